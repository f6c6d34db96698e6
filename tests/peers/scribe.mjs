// A server that writes exactly the text given in a call, whether or not it is a valid message.
//   write {text, where}   writes the text in place of an answer; ID in it stands for the id of the request, and FILL for 128 KiB
//   release {count}       waits for `count` calls of `write`, answers all of them, and then itself
//   ask {method, params}  asks the caller; answers with the text of the caller's result or error
// With --on METHOD TEXT the text is written in place of the answer to that method. Over --http a text is sent as a JSON body, on
// the stream of its request (where: "stream"), which stays open, or on the standalone one (where: "standalone").
import { createServer } from 'node:http';
import { createInterface } from 'node:readline';
import { text as body } from 'node:stream/consumers';

const args = process.argv.slice(2);
const after = name => (args.includes(name) ? args.slice(args.indexOf(name) + 1) : []);
const [overridden, override] = after('--on');
const TOOLS = ['write', 'release', 'ask'];
const fill = (text, id) => text.replaceAll('ID', id).replaceAll('FILL', 'x'.repeat(128 << 10));
const said = value => ({ content: [{ type: 'text', text: value }] });
const open = new Map(); // calls of `write`: id → function that writes a message
const asked = new Map();
let asks = 0;
let releasing; // the call of `release` that waits

const methods = {
    initialize: ({ protocolVersion }) => ({ protocolVersion, capabilities: { tools: {}, logging: {} }, serverInfo: { name: 'scribe', version: '1.0.0' } }),
    'tools/list': () => ({ tools: TOOLS.map(name => ({ name, inputSchema: { type: 'object' } })) }),
    'logging/setLevel': () => ({}),
    ping: () => ({})
};

const result = (id, value) => JSON.stringify({ jsonrpc: '2.0', id, result: value });

/** `send(text, where)` writes one message in place of the answer to this one. */
function handle({ id, method, params, ...rest }, send) {
    if (method === undefined) return asked.get(id)?.(JSON.stringify(rest.result ?? rest.error));
    if (method === overridden) return send(fill(override, id));
    if (id === undefined) return undefined;
    if (method !== 'tools/call') return send(methods[method] ? result(id, methods[method](params)) : JSON.stringify({ jsonrpc: '2.0', id, error: { code: -32601, message: 'no such method' } }));
    const { name, arguments: given } = params;
    if (name === 'write') {
        open.set(id, send);
        send(fill(given.text, id), given.where);
        return release();
    }
    if (name === 'ask') {
        asked.set(++asks, answer => send(result(id, said(answer))));
        return send(JSON.stringify({ jsonrpc: '2.0', id: asks, method: given.method, params: given.params }), 'stream');
    }
    releasing = { count: given.count, answer: () => send(result(id, said('released'))) };
    return release();
}

/** Answers the calls of `write`, once there are as many as requested. */
function release() {
    if (!releasing || open.size < releasing.count) return;
    for (const [id, write] of open) write(result(id, said('released')), 'stream');
    open.clear();
    releasing.answer();
    releasing = undefined;
}

function serveStdio() {
    createInterface({ input: process.stdin })
        .on('line', line => handle(JSON.parse(line), text => process.stdout.write(`${text}\n`)))
        .on('close', () => process.exit(0));
}

const startEvents = res => res.writeHead(200, { 'content-type': 'text/event-stream' }).flushHeaders();
const event = text => `event: message\ndata: ${text}\n\n`;

/** Streamable HTTP without a session. */
function serveHttp() {
    let standalone;
    listen('/mcp', async (req, res) => {
        if (req.method === 'GET') return startEvents((standalone = res));
        const message = JSON.parse(await body(req));
        if (message.id === undefined || message.method === undefined) res.writeHead(202).end();
        return handle(message, (text, where) => {
            if (where === 'standalone') return standalone.write(event(text));
            if (where !== 'stream' && !res.headersSent) return res.writeHead(200, { 'content-type': 'application/json' }).end(text);
            if (!res.headersSent) startEvents(res);
            return res.write(event(text));
        });
    });
}

/** HTTP+SSE, for one client. */
function serveSse() {
    let stream;
    listen('/sse', async (req, res) => {
        if (req.method === 'GET') {
            startEvents((stream = res));
            return res.write('event: endpoint\ndata: /messages\n\n');
        }
        const message = JSON.parse(await body(req));
        res.writeHead(202).end();
        return handle(message, text => stream.write(event(text)));
    });
}

function listen(path, handler) {
    const server = createServer(handler).listen(0, '127.0.0.1', () => console.log(`http://127.0.0.1:${server.address().port}${path}`));
}

process.on('SIGTERM', () => process.exit(0));
if (args.includes('--http')) serveHttp();
else if (args.includes('--sse')) serveSse();
else serveStdio();
