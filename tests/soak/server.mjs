// The server of the soak, over stdio. echo {nonce} answers with the nonce; slow {nonce, ms} sends progress at once, and its
// answer after that time.
// With --noisy it also writes bursts of junk lines, log notifications and stderr lines, ten times a second.
import { createInterface } from 'node:readline';

const write = message => process.stdout.write(`${JSON.stringify({ jsonrpc: '2.0', ...message })}\n`);
const text = value => ({ content: [{ type: 'text', text: String(value) }] });
const tool = name => ({ name, description: `The tool ${name}`, inputSchema: { type: 'object' } });
const BURST = 50;

const methods = {
    initialize: ({ protocolVersion }) => ({ protocolVersion, capabilities: { tools: {}, logging: {} }, serverInfo: { name: 'soak', version: '1.0.0' } }),
    ping: () => ({}),
    'logging/setLevel': () => ({}),
    'tools/list': () => ({ tools: ['echo', 'slow', 'secret'].map(tool) })
};

function call(id, { name, arguments: { nonce, ms } = {}, _meta }) {
    if (name !== 'slow') return write({ id, result: text(nonce) });
    const progressToken = _meta?.progressToken;
    if (progressToken !== undefined) write({ method: 'notifications/progress', params: { progressToken, progress: 1 } });
    return setTimeout(() => write({ id, result: text(nonce) }), ms);
}

createInterface({ input: process.stdin }).on('line', line => {
    const { id, method, params } = JSON.parse(line);
    if (method === 'tools/call') call(id, params);
    else if (id !== undefined && method) write(methods[method] ? { id, result: methods[method](params) } : { id, error: { code: -32601, message: 'method not found' } });
}).on('close', () => process.exit(0));

function burst() {
    for (let i = 0; i < BURST; i++) {
        process.stdout.write(`junk ${i} that is not a message\n`);
        write({ method: 'notifications/message', params: { level: 'error', data: `noise ${i}` } });
        process.stderr.write(`noise ${i}\n`);
    }
}
if (process.argv.includes('--noisy')) setInterval(burst, 100);
