// A server for large results, over every transport:  bulk [--counted] | bulk --http | bulk --events | bulk --sse
//   make {bytes, form, envelope, begun, go, then}   answers with the result of bulk(), in one of `envelopes`; with `begun` it
//                                         sends one half, creates that file and sends the rest when `go` exists; with `then` "end"
//                                         it exits after that
// --counted: stdio with Content-Length. --http: Streamable HTTP with JSON answers, --events with event streams. --sse: HTTP+SSE.
import { existsSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { text as body } from 'node:stream/consumers';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';

/** A result of about this many bytes, as text. */
export function bulk(bytes, form) {
    const parts = [];
    const line = form === 'pretty' ? '\n' : '';
    let left = bytes;
    const put = part => {
        parts.push(part);
        left -= part.length;
    };
    if (form === 'plain') return `{"content":[{"type":"text","text":"${'é😀\\n\\u0041x'.repeat(Math.ceil(bytes / 16))}"}]}`;
    put(`{"content":[${line}`);
    for (let i = 0; left > 0; i++) {
        const comma = i ? `,${form === 'pretty' ? '\r\n' : ''}` : '';
        // The first links are far apart, and the others are dense.
        const filler = form === 'links' && left > bytes / 2 ? 'y'.repeat(100_000) : 'z';
        put(`${comma}{"type":"resource_link","uri":"bulk:///${i}","name":"${filler}","size":1.${i}0E+2,${line} "big":12345678901234567890}`);
    }
    return `${parts.join('')}]${line},"structuredContent":{"a":-0,${line}"b":[1E400]}}`;
}

const quoted = JSON.stringify;
const args = process.argv.slice(2);

/** Equivalent forms of an answer, with another order of members or other white space. */
export const envelopes = {
    before: (id, result) => `{"jsonrpc":"2.0","id":${id},"result":${result}}`,
    after: (id, result) => `{"result":${result},"id":${id},"jsonrpc":"2.0"}`,
    around: (id, result) => `{"id":${id},"result":${result},"jsonrpc":"2.0"}`,
    spacious: (id, result) => `  {${' '.repeat(300)}"jsonrpc": "2.0", "id": ${id}, "result": ${result}, "extra": null}  `
};

async function* answer({ id, method, params }) {
    const whole = (result, envelope = 'before') => envelopes[envelope](quoted(id), result);
    if (method === 'initialize') {
        yield whole(`{"protocolVersion":${quoted(params.protocolVersion)},"capabilities":{"tools":{}},"serverInfo":{"name":"bulk","version":"1.0.0"}}`);
    } else if (method === 'tools/list') {
        yield whole('{"tools":[{"name":"make","inputSchema":{"type":"object"}}]}');
    } else if (method === 'tools/call') {
        const { bytes, form = 'plain', envelope, begun, go } = params.arguments;
        const text = Buffer.from(whole(bulk(bytes, form), envelope));
        yield { length: text.length };
        yield text.subarray(0, begun ? text.length >> 1 : text.length);
        if (!begun) return;
        writeFileSync(begun, '');
        while (!existsSync(go)) await sleep(10);
        yield text.subarray(text.length >> 1);
    } else {
        yield whole('{}');
    }
}

/** Writes an answer while it is generated: `head` gets its length, if that is known. */
async function write(message, out, { head = () => {}, line = text => text, tail = '' } = {}) {
    for await (const part of answer(message)) {
        if (part.length !== undefined && !Buffer.isBuffer(part) && typeof part !== 'string') head(part.length);
        else {
            if (typeof part === 'string') head(Buffer.byteLength(part));
            await new Promise(resolve => out.write(line(part), resolve));
        }
    }
    if (tail) await new Promise(resolve => out.write(tail, resolve));
    if (message.params?.arguments?.then === 'end') process.exit(0);
}

const progress = params =>
    params?._meta?.progressToken === undefined ? [] : [`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":${quoted(params._meta.progressToken)},"progress":1}}`];

function serveStdio() {
    const counted = args.includes('--counted');
    let rest = '', turn = Promise.resolve();
    const head = length => counted && process.stdout.write(`Content-Length: ${length}\r\n\r\n`);
    process.stdin.setEncoding('latin1');
    process.stdin.on('data', chunk => {
        rest += chunk;
        for (let text; (text = take()) !== undefined;) {
            const message = JSON.parse(text);
            if (message.id === undefined) continue;
            turn = turn.then(() => {
                for (const told of progress(message.params)) process.stdout.write(counted ? `Content-Length: ${told.length}\r\n\r\n${told}` : `${told}\n`);
                return write(message, process.stdout, { head, tail: counted ? '' : '\n' });
            });
        }
    });
    /** The next message in `rest`, framed either way. */
    function take() {
        const [, header, length] = /^(Content-Length: (\d+)\r\n\r\n)/.exec(rest) ?? [];
        const start = header?.length ?? 0, end = header ? start + Number(length) : rest.indexOf('\n') + 1;
        if (end === 0 || end > rest.length) return undefined;
        const text = rest.slice(start, end);
        rest = rest.slice(end);
        return text;
    }
    process.stdin.on('end', () => process.exit(0));
}

/** Line ends of the data become data lines, wherever the text was cut. */
const asData = part => part.toString('latin1').replaceAll(/\r\n|\n/g, '\ndata: ');

function serveHttp() {
    const events = args.includes('--events');
    const server = createServer(async (req, res) => {
        if (req.method !== 'POST') return res.writeHead(405).end();
        const message = JSON.parse(await body(req));
        if (message.id === undefined) return res.writeHead(202).end();
        if (!events) {
            await write(message, res, { head: length => res.writeHead(200, { 'content-type': 'application/json', 'content-length': length }) });
            return res.end();
        }
        res.writeHead(200, { 'content-type': 'text/event-stream' });
        for (const text of progress(message.params)) res.write(`data: ${text}\n\n`);
        res.write('event: message\ndata: ');
        await write(message, res, { line: part => Buffer.from(asData(Buffer.from(part)), 'latin1'), tail: '\n\n' });
        return res.end();
    });
    listen(server, '/mcp');
}

function serveSse() {
    const streams = [];
    const server = createServer(async (req, res) => {
        if (req.method === 'GET') {
            streams.push({ out: res, turn: Promise.resolve() });
            res.writeHead(200, { 'content-type': 'text/event-stream' });
            return res.write(`event: endpoint\ndata: /post/${streams.length - 1}\n\n`);
        }
        const stream = streams[req.url.split('/').at(-1)];
        const message = JSON.parse(await body(req));
        res.writeHead(202).end();
        if (message.id === undefined) return undefined;
        stream.turn = stream.turn.then(async () => {
            for (const text of progress(message.params)) stream.out.write(`data: ${text}\n\n`);
            stream.out.write('data: ');
            await write(message, stream.out, { line: part => Buffer.from(asData(Buffer.from(part)), 'latin1'), tail: '\n\n' });
        });
        return stream.turn;
    });
    listen(server, '/sse');
}

function listen(server, path) {
    server.listen(0, '127.0.0.1', () => console.log(`http://127.0.0.1:${server.address().port}${path}`));
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
    process.on('SIGTERM', () => process.exit(0));
    if (args.includes('--sse')) serveSse();
    else if (args.includes('--http') || args.includes('--events')) serveHttp();
    else serveStdio();
}
