// A server that answers with Retry-After: its callers get the wait, and the gateway observes it.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:http';
import { json } from 'node:stream/consumers';
import { after, before, beforeEach, describe, test } from 'node:test';

import { startGateway } from '../gateway.mjs';
import { Session } from '../raw.mjs';

const DAY_MS = 86_400_000;

/** An MCP server over both HTTP transports that answers the methods in `busy` with {status, after, body}. */
const busy = {}, asked = {};
const streams = new Set();
let server, gateway, session, url;

const results = {
    initialize: ({ protocolVersion }) => ({ protocolVersion, capabilities: { tools: {} }, serverInfo: { name: 'busy', version: '1' } }),
    'tools/list': () => ({ tools: [{ name: 'work', inputSchema: { type: 'object' } }] }),
    'tools/call': () => ({ content: [{ type: 'text', text: 'done' }] })
};

async function serve(request, response) {
    const sse = request.url.startsWith('/sse');
    if (request.method === 'GET' && sse) {
        streams.add(response);
        return response.writeHead(200, { 'content-type': 'text/event-stream' }).write('event: endpoint\ndata: /sse/messages\n\n');
    }
    if (request.method !== 'POST') return response.writeHead(405).end();
    const { id, method, params } = await json(request);
    const key = `${request.url.split('/')[1]} ${method}`;
    asked[key] = (asked[key] ?? 0) + 1;
    const no = busy[key];
    if (no) return response.writeHead(no.status ?? 429, { 'content-type': 'application/json', ...(no.after !== undefined && { 'retry-after': no.after }) }).end(no.body?.(id));
    if (id === undefined) return response.writeHead(202).end();
    const answer = JSON.stringify({ jsonrpc: '2.0', id, result: results[method](params) });
    if (!sse) return response.writeHead(200, { 'content-type': 'application/json' }).end(answer);
    response.writeHead(202).end();
    for (const stream of streams) stream.write(`event: message\ndata: ${answer}\n\n`);
}

before(async () => {
    server = createServer(serve).listen(0, '127.0.0.1');
    await once(server, 'listening');
    url = `http://127.0.0.1:${server.address().port}`;
    Object.assign(busy, { 'down initialize': { status: 503, after: '3600' }, 'unlisted tools/list': { status: 429, after: '3600' } });
    gateway = await startGateway({
        timeouts: { stream_after: '5m' }, // answers are JSON, even on a busy machine
        mcpServers: {
            http: { type: 'http', url: `${url}/http` },
            sse: { type: 'sse', url: `${url}/sse` },
            down: { type: 'http', url: `${url}/down` },
            unlisted: { type: 'http', url: `${url}/unlisted` }
        }
    });
    session = await Session.open(gateway.url);
    await session.request('tools/list');
});
after(async () => {
    await gateway?.stop();
    server.closeAllConnections();
    server.close();
});
beforeEach(() => Object.keys(busy).filter(key => key.endsWith('tools/call')).forEach(key => delete busy[key]));

/** The error of a call, and the header of the answer. */
async function refused(name, no) {
    busy[`${name} tools/call`] = no;
    const answer = await session.post({ jsonrpc: '2.0', id: 7, method: 'tools/call', params: { name: `${name}__work`, arguments: {} } });
    return { error: JSON.parse(answer.body).error, header: answer.headers['retry-after'] };
}

for (const name of ['http', 'sse'])
    describe(`Retry-After of a server over ${name}`, () => {
        for (const status of [429, 503])
            test(`a ${status} with seconds reaches the caller as retryAfterMs`, async () => {
                const { error, header } = await refused(name, { status, after: '7' });
                assert.deepEqual([error.code, error.data], [-32001, { reason: 'upstream_transport', retryAfterMs: 7000 }]);
                assert.equal(header, '7');
                assert.equal(error.message, 'The server could not be reached, or answered with an HTTP error; try again in 7 s');
            });
        test('a 429 with a date reaches the caller as retryAfterMs', async () => {
            const { error } = await refused(name, { after: new Date(Date.now() + 60_000).toUTCString() });
            assert.ok(error.data.retryAfterMs > 50_000 && error.data.retryAfterMs <= 61_000, JSON.stringify(error));
        });
        test('a Retry-After in the far future is limited to a day', async () => {
            for (const after of ['864000', '99999999999999999999999', 'Fri, 31 Dec 2199 23:59:59 GMT'])
                assert.equal((await refused(name, { after })).error.data.retryAfterMs, DAY_MS, after);
        });
        test('an absent, invalid or past Retry-After is ignored', async () => {
            for (const after of ['0', '-5', '1.5', 'soon', '', 'Thu, 01 Jan 1970 00:00:01 GMT', '7 days', undefined])
                assert.deepEqual((await refused(name, { after })).error.data, { reason: 'upstream_transport' }, after);
        });
        test('a Retry-After with another status is ignored', async () => {
            const { error, header } = await refused(name, { status: 500, after: '7' });
            assert.deepEqual([error.data, header], [{ reason: 'upstream_transport' }, undefined]);
        });
    });

describe('JSON-RPC errors with Retry-After', () => {
    const body = error => id => JSON.stringify({ jsonrpc: '2.0', id, error });
    const cases = [
        ['without data', { code: -32000, message: 'slow down' }, { code: -32000, message: 'slow down', data: { retryAfterMs: 7000 } }],
        ['with data', { code: 9, message: 'm', data: { a: 1.0 } }, { code: 9, message: 'm', data: { a: 1.0, retryAfterMs: 7000 } }],
        ['with empty data', { code: 9, data: {}, message: 'm' }, { code: 9, message: 'm', data: { retryAfterMs: 7000 } }],
        ['with its own retryAfterMs', { code: 9, message: 'm', data: { retryAfterMs: 5 } }, { code: 9, message: 'm', data: { retryAfterMs: 5 } }],
        ['with data that is not an object', { code: 9, message: 'm', data: [1] }, { code: 9, message: 'm', data: [1] }]
    ];
    for (const [what, said, wanted] of cases)
        test(`an error ${what} keeps its members beside retryAfterMs`, async () => {
            const { error, header } = await refused('http', { after: '7', body: body(said) });
            assert.deepEqual(error, wanted);
            assert.equal(header, '7');
        });
});

test('a server that asks to retry its start later is left alone and callers are informed', async () => {
    const before = asked['down initialize'];
    for (let i = 0; i < 5; i++) {
        const { error } = await session.call('down__work');
        assert.equal(error.code, -32002, JSON.stringify(error));
        assert.equal(error.data.reason, 'server_unavailable');
        assert.match(error.message, /^The server is not available; try again in \d+ s$/);
        assert.ok(error.data.retryAfterMs > 200_000 && error.data.retryAfterMs <= 300_000, JSON.stringify(error));
    }
    assert.equal(asked['down initialize'], before);
});

test('a list that the server delays is not fetched for every list of a caller', async () => {
    const before = asked['unlisted tools/list'];
    for (let i = 0; i < 20; i++) await session.request('tools/list');
    assert.equal(asked['unlisted tools/list'], before);
});
