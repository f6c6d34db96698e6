// A server that writes the messages given in a call, and returns those it received, byte for byte. Its argument has its capabilities.
//   say {raws, raw}       writes the messages `raws` and then answers with the result `raw`
//   refuse {raw}          answers with the error `raw`
//   hang {key, raws}      writes the messages `raws` and answers with the result `raw` of a later call `answer {key, raw}`
//   next {method, raws}   answers requests of the method with these members, "result":… or "error":…, in turn; the last one is repeated
//   received {about}      waits for a message, other than tools/call, that contains `about`; answers with the oldest one, and forgets it
// In `raws`, @token stands for the progress token of the call, or of the last call that had one.
import { EventEmitter } from 'node:events';
import { createInterface } from 'node:readline';

const TOOLS = ['say', 'refuse', 'hang', 'answer', 'next', 'received'];
const capabilities = process.argv[2] ?? '{"tools":{}}';
const quoted = JSON.stringify;
const said = text => `{"content":[{"type":"text","text":${quoted(text)}}]}`;
const write = text => process.stdout.write(`${text}\n`);

let last;
function writeAll(raws, token = last) {
    last = token;
    for (const raw of raws ?? []) write(raw.replaceAll('@token', quoted(token)));
}

const messages = [], hanging = new Map(), answers = new Map();
const arrival = new EventEmitter().setMaxListeners(0);

async function received(about) {
    for (;;) {
        const at = messages.findIndex(raw => raw.includes(about));
        if (at >= 0) return messages.splice(at, 1)[0];
        await new Promise(resolve => arrival.once('message', resolve));
    }
}

const acts = {
    say: ({ raws, raw }, token) => {
        writeAll(raws, token);
        return `"result":${raw ?? said('said')}`;
    },
    refuse: ({ raw }) => `"error":${raw}`,
    hang: ({ key, raws }, token) => {
        writeAll(raws, token);
        return new Promise(resolve => hanging.set(key, raw => resolve(`"result":${raw}`)));
    },
    answer: ({ key, raw }) => {
        hanging.get(key)(raw);
        return `"result":${said('answered')}`;
    },
    next: ({ method, raws }) => {
        answers.set(method, raws);
        return `"result":${said('noted')}`;
    },
    received: async ({ about }) => `"result":${said(await received(about))}`
};

const methods = {
    initialize: ({ protocolVersion }) => `"result":{"protocolVersion":${quoted(protocolVersion)},"capabilities":${capabilities},"serverInfo":{"name":"teller","version":"1.0.0"}}`,
    'tools/list': () => `"result":{"tools":[${TOOLS.map(name => `{"name":"${name}","inputSchema":{"type":"object"}}`)}]}`,
    'prompts/list': () => '"result":{"prompts":[{"name":"ask"}]}',
    'resources/list': () => '"result":{"resources":[{"uri":"x:///one","name":"one"}]}',
    'resources/templates/list': () => '"result":{"resourceTemplates":[]}'
};

function answer(method, params) {
    if (method === 'tools/call') return acts[params.name](params.arguments ?? {}, params._meta?.progressToken);
    const raws = answers.get(method);
    if (raws) return raws.length > 1 ? raws.shift() : raws[0];
    return methods[method]?.(params ?? {}) ?? '"result":{}';
}

createInterface({ input: process.stdin })
    .on('line', async raw => {
        const { id, method, params } = JSON.parse(raw);
        if (method !== 'tools/call') {
            messages.push(raw);
            arrival.emit('message');
        }
        if (id !== undefined && method !== undefined) write(`{"jsonrpc":"2.0","id":${quoted(id)},${await answer(method, params)}}`);
    })
    .on('close', () => process.exit(0));
process.on('SIGTERM', () => process.exit(0));
