// The server of the soaks, over stdio, or over HTTP with --http: then its first line on stdout is its URL, and it
// closes idle connections on SIGUSR2. echo {nonce} answers with the nonce; slow {nonce, ms} sends progress at once (stdio
// only), and its answer after that time; version answers with the value of --version.
// With --noisy it also writes bursts of junk lines, log notifications and stderr lines, ten times a second.
import { createServer } from 'node:http';
import { createInterface } from 'node:readline';
import { text as body } from 'node:stream/consumers';
import { setTimeout as sleep } from 'node:timers/promises';
import { parseArgs } from 'node:util';

const { http, noisy, version } = parseArgs({ options: { http: { type: 'boolean' }, mortal: { type: 'boolean' }, noisy: { type: 'boolean' }, version: { type: 'string', default: '0' } } }).values;

const write = message => process.stdout.write(`${JSON.stringify({ jsonrpc: '2.0', ...message })}\n`);
const text = value => ({ content: [{ type: 'text', text: String(value) }] });
const tool = name => ({ name, description: `The tool ${name}`, inputSchema: { type: 'object' } });
const BURST = 50;

const methods = {
    initialize: ({ protocolVersion }) => ({ protocolVersion, capabilities: { tools: {}, logging: {} }, serverInfo: { name: 'soak', version: '1.0.0' } }),
    ping: () => ({}),
    'logging/setLevel': () => ({}),
    'tools/list': () => ({ tools: ['echo', 'slow', 'secret', 'version'].map(tool) })
};

async function call({ name, arguments: { nonce, ms } = {}, _meta }) {
    if (name === 'version') return text(version);
    if (name !== 'slow') return text(nonce);
    const progressToken = _meta?.progressToken;
    if (progressToken !== undefined && !http) write({ method: 'notifications/progress', params: { progressToken, progress: 1 } });
    await sleep(ms);
    return text(nonce);
}

/** The response to a message; undefined if it is not a request. */
async function respond({ id, method, params }) {
    if (id === undefined || !method) return undefined;
    if (method === 'tools/call') return { id, result: await call(params) };
    return methods[method] ? { id, result: methods[method](params) } : { id, error: { code: -32601, message: 'method not found' } };
}

function serveHttp() {
    const server = createServer(async (req, res) => {
        const response = req.method === 'POST' ? await respond(JSON.parse(await body(req))) : undefined;
        if (response) res.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify({ jsonrpc: '2.0', ...response }));
        else res.writeHead(req.method === 'POST' ? 202 : 405).end();
    });
    server.keepAliveTimeout = 0;
    process.on('SIGUSR2', () => server.closeIdleConnections());
    server.listen(0, '127.0.0.1', () => console.log(`http://127.0.0.1:${server.address().port}/mcp`));
}

function serveStdio() {
    createInterface({ input: process.stdin }).on('line', async line => {
        const response = await respond(JSON.parse(line));
        if (response) write(response);
    }).on('close', () => process.exit(0));
}

function burst() {
    for (let i = 0; i < BURST; i++) {
        process.stdout.write(`junk ${i} that is not a message\n`);
        write({ method: 'notifications/message', params: { level: 'error', data: `noise ${i}` } });
        process.stderr.write(`noise ${i}\n`);
    }
}
if (http) serveHttp();
else serveStdio();
if (noisy) setInterval(burst, 100);
