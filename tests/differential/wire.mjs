// The framing of messages: lines, Content-Length and events. Bytes that arrive are strings of latin1, one character each.
const WAIT_MS = 20_000;

/** A queue of received messages. */
export class Inbox {
    constructor() {
        this.messages = [];
        this.waiting = [];
    }

    put(message) {
        if (this.waiting.length) this.waiting.shift()(message);
        else this.messages.push(message);
    }

    /** The next message; undefined if it does not arrive in time. */
    take() {
        if (this.messages.length) return this.messages.shift();
        return new Promise(resolve => {
            const timer = setTimeout(() => {
                this.waiting = this.waiting.filter(one => one !== wake);
                resolve(undefined);
            }, WAIT_MS);
            const wake = message => {
                clearTimeout(timer);
                resolve(message);
            };
            this.waiting.push(wake);
        });
    }
}

/** A message on a pipe: a line, or with its length, as it must if it has line breaks. */
export const framed = (text, random) =>
    /[\r\n]/.test(text) || random.chance(0.1) ? `Content-Length: ${Buffer.byteLength(text)}\r\n\r\n${text}` : `${text}${random.chance(0.1) ? '\r\n' : '\n'}`;

/** Writes a text in a few pieces, which may end within a character. */
export function write(stream, text, random) {
    const bytes = Buffer.from(text);
    const ends = [random.below(bytes.length + 1), random.below(bytes.length + 1)].sort((a, b) => a - b);
    if (random.chance(0.7)) return stream.write(bytes);
    return [[0, ends[0]], [ends[0], ends[1]], [ends[1], bytes.length]].forEach(([from, to]) => from < to && stream.write(bytes.subarray(from, to)));
}

/** Reads messages from a pipe. */
export class Frames {
    constructor(take) {
        this.take = take;
        this.rest = '';
        this.chunks = [];
    }

    read(chunk) {
        this.chunks.push(chunk.toString('latin1'));
        if (!chunk.includes('\n') && !this.rest.startsWith('Content-Length')) return; // no message ends here
        this.rest += this.chunks.join('');
        this.chunks = [];
        while (this.next());
    }

    next() {
        const counted = /^Content-Length: (\d+)\r\n\r\n/.exec(this.rest);
        const start = counted ? counted[0].length : 0;
        const end = counted ? start + Number(counted[1]) : this.rest.indexOf('\n');
        if (end < 0 || end > this.rest.length || (!counted && this.rest.startsWith('Content-Length'))) return false;
        const message = this.rest.slice(start, end);
        this.rest = this.rest.slice(counted ? end : end + 1);
        this.take(message);
        return true;
    }
}

/** A message as an event, with any line ends. */
export function event(text, random) {
    const end = random.chance(0.8) ? '\n' : random.pick(['\r\n', '\r']);
    const lead = random.chance(0.9) ? 'data: ' : 'data:';
    const before = [random.chance(0.1) ? ': comment' : [], random.chance(0.8) ? 'event: message' : [], random.chance(0.05) ? 'unknown: field' : []].flat();
    return [...before, ...text.split(/\r\n|\r|\n/).map(line => (line.startsWith(' ') ? 'data: ' : lead) + line), '', ''].join(end);
}

/** Reads an event stream: calls `take` with the name and the data of each event that has data. */
export async function readEvents(stream, take) {
    let rest = '';
    const chunks = [];
    for await (const chunk of stream) {
        chunks.push(chunk.toString('latin1'));
        if (!chunk.includes('\n')) continue;
        const blocks = (rest + chunks.splice(0).join('')).split(/\r?\n\r?\n/);
        rest = blocks.pop();
        for (const block of blocks) {
            const lines = block.split(/\r?\n/);
            const value = name => lines.filter(line => line.startsWith(`${name}:`)).map(line => line.slice(name.length + 1).replace(/^ /, ''));
            const data = value('data').join('\n');
            if (data) take(data, value('event')[0]);
        }
    }
}
