// A deliberately faulty MCP server. Its tool `fine` always works; its tool `act` behaves according to the mode:
//   die               writes to stderr and exits in the middle of the call
//   die-after N       exits as soon as it has answered N calls
//   die-every MS      exits after that time, also in the middle of a call
//   hang              never answers the call
//   fork              starts a process that keeps its pipes open, and exits in the middle of the call
//   half-line [die]   writes half an answer, and no more; exits if `die`
//   freeze            stops itself: it neither reads nor answers from then on
//   wrong-id          answers with another id than that of the request
//   junk              writes lines that are not JSON between all messages
//   flood             sends notifications endlessly from the first call on, but still answers
//   count N           sends N numbered log messages before it answers the call
//   junk-flood N      writes N lines that are not JSON before it answers the call
//   stderr-flood N    writes N lines to stderr before it answers the call
//   bad-utf8          answers with bytes that are not UTF-8
//   bad-json          answers with a truncated line
//   huge BYTES        answers with that much text, after a notification of progress if requested
//   content-length    frames every message with a Content-Length header, as language servers do
//   slow-start MS     begins to read after that time
//   start-with FILE [empty]   begins to read when the file exists; has no tools if `empty`
//   changing MS       announces changed tools endlessly from the start; answers tools/list after that time
//   pages N           lists N tools, one a page; one of the cursors is the empty string
//   nulls N           lists null N times before its tools
//   long-name BYTES   also lists a tool with a name of that length
//   hang-list         never answers tools/list
//   hang-init         never answers initialize
//   ignore-term       outlives the end of stdin and SIGTERM
//   session-404       (HTTP) forgets the session after the first call
//   foreign-endpoint URL   (HTTP+SSE) names an endpoint of another origin
import { spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { existsSync } from 'node:fs';
import { createServer } from 'node:http';
import { createInterface } from 'node:readline';
import { json } from 'node:stream/consumers';
import { setTimeout as sleep } from 'node:timers/promises';

const args = process.argv.slice(2);
const http = args.includes('--http');
const [mode, argument, more] = args.filter(arg => arg !== '--http');
const text = value => ({ content: [{ type: 'text', text: value }] });
const tool = name => ({ name, description: `The tool ${name}`, inputSchema: { type: 'object', properties: {} } });

/** The tool `act` in each mode; gets the id of the request and a function that writes raw bytes as one message. */
const acts = {
    die: () => {
        for (let i = 1; i <= 3; i++) console.error(`misbehave: last words ${i}`);
        process.exit(3);
    },
    hang: () => {},
    fork: () => {
        spawn('sleep', ['1000'], { stdio: 'inherit', detached: true });
        process.exit(3);
    },
    'half-line': id => process.stdout.write(result(id, text('fine')).slice(0, 20), () => argument === 'die' && process.exit(3)),
    freeze: () => process.kill(process.pid, 'SIGSTOP'),
    'wrong-id': (id, send) => send(result(id + 1000, text('for another request'))),
    'bad-utf8': (id, send) => {
        const [head, tail] = result(id, text('@')).split('@');
        send(Buffer.concat([Buffer.from(head), Buffer.from([0xff, 0xfe, 0xc0, 0x80]), Buffer.from(tail)]));
    },
    'bad-json': (id, send) => send(result(id, text('cut')).slice(0, -8)),
    huge: async (id, send, { _meta: { progressToken } = {} }) => {
        if (progressToken !== undefined) await send(JSON.stringify({ jsonrpc: '2.0', method: 'notifications/progress', params: { progressToken, progress: 1 } }));
        await send(result(id, text('x'.repeat(Number(argument)))));
    },
    count: async (id, send) => {
        for (let i = 0; i < Number(argument); i++)
            await send(JSON.stringify({ jsonrpc: '2.0', method: 'notifications/message', params: { level: 'info', data: i } }));
        send(result(id, text('counted')));
    },
    'junk-flood': async (id, send) => {
        for (let i = 0; i < Number(argument); i++) await send(`${i} is not a message ${'x'.repeat(100)}`);
        send(result(id, text('flooded')));
    },
    'stderr-flood': async (id, send) => {
        for (let i = 0; i < Number(argument); i++) await new Promise(resolve => process.stderr.write(`${i} ${'x'.repeat(500)}\n`, resolve));
        send(result(id, text('flooded')));
    },
    flood: (id, send) => {
        flooding ||= flood(send);
        send(result(id, text('flooding')));
    }
};
let flooding, lists = 0, calls = 0;

if (mode === 'die-every') setTimeout(() => process.exit(1), Number(argument));
if (mode === 'slow-start') await sleep(Number(argument));
while (mode === 'start-with' && !existsSync(argument)) await sleep(20);
if (mode === 'ignore-term') {
    process.on('SIGTERM', () => console.error('misbehave: SIGTERM ignored'));
    setInterval(() => {}, 1000);
} else {
    process.on('SIGTERM', () => process.exit(0));
}
if (mode === 'foreign-endpoint') serveForeignEndpoint();
else if (http || mode === 'session-404') serveHttp();
else serveStdio();

/** Answers one request through `send`, unless the mode prevents it. */
function handle(message, send) {
    const { id, method, params } = message;
    if (id === undefined || method === undefined) return undefined;
    const answer = value => send(result(id, value));
    switch (method) {
        case 'initialize':
            if (mode === 'hang-init') return undefined;
            return answer({
                protocolVersion: params.protocolVersion,
                capabilities: { tools: {}, logging: {} },
                serverInfo: { name: 'misbehave', version: '1.0.0' }
            });
        case 'tools/list':
            if (mode === 'hang-list') return undefined;
            if (more === 'empty') return answer({ tools: [] });
            if (mode === 'changing') {
                flooding ||= change(send);
                return void setTimeout(() => answer({ tools: [tool('fine'), tool(`list_${++lists}`)] }), Number(argument));
            }
            if (mode === 'nulls') return answer({ tools: [...Array(Number(argument)).fill(null), tool('fine')] });
            if (mode === 'long-name') return answer({ tools: [tool('fine'), tool('n'.repeat(Number(argument)))] });
            return answer(mode === 'pages' ? page(params?.cursor) : { tools: [tool('act'), tool('fine')] });
        case 'tools/call':
            if (params.name === 'act' && acts[mode]) return acts[mode](id, send, params);
            if (mode === 'die-after' && ++calls === Number(argument)) return void send(result(id, text('fine'))).then(() => process.exit(1));
            return answer(text('fine'));
        case 'ping':
        case 'logging/setLevel':
            return answer({});
        default:
            return send(JSON.stringify({ jsonrpc: '2.0', id, error: { code: -32601, message: `No method ${method}` } }));
    }
}

function result(id, value) {
    return JSON.stringify({ jsonrpc: '2.0', id, result: value });
}

/** Page 0 has no cursor, page 1 the empty one, page n the cursor n. */
function page(cursor) {
    const index = cursor === undefined ? 0 : cursor === '' ? 1 : Number(cursor);
    const next = index + 1 < Number(argument) ? { nextCursor: index === 0 ? '' : String(index + 1) } : {};
    return { tools: [tool(index === 0 ? 'fine' : `page_${index}`)], ...next };
}

async function flood(send) {
    const params = { level: 'info', logger: 'flood', data: 'x'.repeat(1000) };
    const message = JSON.stringify({ jsonrpc: '2.0', method: 'notifications/message', params });
    for (;;) await send(message);
}

async function change(send) {
    for (;;) await Promise.all([send(JSON.stringify({ jsonrpc: '2.0', method: 'notifications/tools/list_changed' })), sleep(1)]);
}

function serveStdio() {
    const write = bytes => new Promise(resolve => process.stdout.write(bytes, resolve));
    const send = message => {
        const body = Buffer.from(message);
        if (mode === 'content-length') return write(Buffer.concat([Buffer.from(`Content-Length: ${body.length}\r\n\r\n`), body]));
        if (mode === 'junk') return write(Buffer.concat([Buffer.from('starting up...\n\n[1, 2\n'), body, Buffer.from('\ndone {"not": "mcp"}\n')]));
        return write(Buffer.concat([body, Buffer.from('\n')]));
    };
    const lines = createInterface({ input: process.stdin });
    lines.on('line', line => {
        if (line.startsWith('{')) handle(JSON.parse(line), send);
    });
    lines.on('close', () => mode !== 'ignore-term' && process.exit(0));
}

/** Streamable HTTP: every request is answered with an event stream. The messages of `count` are sent on a separate stream. */
function serveHttp() {
    const sessions = new Set();
    const event = body => Buffer.concat([Buffer.from('event: message\ndata: '), Buffer.from(body), Buffer.from('\n\n')]);
    let listener;
    listen('/mcp', async (req, res) => {
        if (req.method === 'GET' && mode === 'count') {
            res.writeHead(200, { 'content-type': 'text/event-stream' }).flushHeaders();
            listener = res;
            return undefined;
        }
        if (req.method !== 'POST') return res.writeHead(req.method === 'DELETE' ? 200 : 405).end();
        const message = await json(req);
        const session = req.headers['mcp-session-id'];
        if (message.method === 'initialize') {
            const id = randomUUID();
            sessions.add(id);
            res.setHeader('mcp-session-id', id);
        } else if (!sessions.has(session)) {
            res.writeHead(404, { 'content-type': 'application/json' });
            return res.end('{"jsonrpc":"2.0","id":null,"error":{"code":-32001,"message":"Session not found"}}');
        }
        if (message.id === undefined || message.method === undefined) return res.writeHead(202).end();
        if (mode === 'session-404' && message.method === 'tools/call') sessions.delete(session);
        res.writeHead(200, { 'content-type': 'text/event-stream' });
        res.flushHeaders();
        handle(message, body => {
            if (mode === 'count' && body.includes('notifications/message')) return listener.write(event(body));
            res.write(event(body));
            return flooding ? sleep(0) : res.end();
        });
    });
}

function serveForeignEndpoint() {
    listen('/sse', (_req, res) => {
        res.writeHead(200, { 'content-type': 'text/event-stream' });
        res.write(`event: endpoint\ndata: ${argument}\n\n`);
    });
}

function listen(path, handler) {
    const server = createServer(handler).listen(0, '127.0.0.1', () => console.log(`http://127.0.0.1:${server.address().port}${path}`));
}
