// How long the gateway waits for a server: each option on its own, the error that names it, and the cancellation that the server gets.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { join } from 'node:path';
import { json } from 'node:stream/consumers';
import { after, before, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';

import { settles, startGateway, stdioServer, temporaryDirectory, until } from '../gateway.mjs';
import { post, resultText, Session } from '../raw.mjs';

const WAIT_MS = 20_000;
const cancelled = [];
let server, gateway, session;

const text = value => ({ content: [{ type: 'text', text: value }] });
const send = (res, message) => res.write(`data: ${JSON.stringify({ jsonrpc: '2.0', ...message })}\n\n`);

/** What each tool does; `asked` resolves when the caller has answered the question. */
let asked;
const tools = {
    silent: () => {},
    patient: () => {},
    busy: async (id, res, { _meta: { progressToken } }) => {
        for (let progress = 1; !res.closed; progress++) {
            send(res, { method: 'notifications/progress', params: { progressToken, progress } });
            await sleep(50);
        }
    },
    ask: async (id, res) => {
        const answer = new Promise(resolve => (asked = resolve));
        send(res, { id: 'q', method: 'elicitation/create', params: { message: 'Well?', requestedSchema: { type: 'object', properties: {} } } });
        send(res, { id, result: text((await answer).action) });
        res.end();
    }
};

async function serve(req, res) {
    if (req.method !== 'POST') return res.writeHead(405).end();
    const { id, method, params, result } = await json(req);
    if (result) asked(result);
    if (method === 'notifications/cancelled') cancelled.push(params);
    if (id === undefined || method === undefined) return res.writeHead(202).end();
    if (method === 'initialize' && req.url === '/deaf') return undefined;
    if (method === 'tools/call') {
        res.writeHead(200, { 'content-type': 'text/event-stream' }).flushHeaders();
        return tools[params.name](id, res, params);
    }
    const answers = {
        initialize: { protocolVersion: '2025-11-25', capabilities: { tools: {} }, serverInfo: { name: 'web', version: '1' } },
        'tools/list': { tools: Object.keys(tools).map(name => ({ name, inputSchema: { type: 'object' } })) }
    };
    return res.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify({ jsonrpc: '2.0', id, result: answers[method] ?? {} }));
}

before(async () => {
    server = createServer(serve).listen(0, '127.0.0.1');
    await once(server, 'listening');
    const origin = `http://127.0.0.1:${server.address().port}`;
    gateway = await startGateway({
        mcpServers: {
            web: { url: `${origin}/mcp`, timeout: '1s', max_timeout: '3s', tool_timeouts: { patient: '2500ms' } },
            deaf: { url: `${origin}/deaf`, start_timeout: '2s' },
            own: { url: `${origin}/own`, isolation: 'session', timeout: '1s' }
        }
    });
    session = await Session.open(gateway.url, { capabilities: { elicitation: { form: {} } } });
    await session.request('tools/list');
});
after(async () => {
    await gateway?.stop();
    server.closeAllConnections();
    server.close();
});

/** A call that times out: its error, and how long it took. */
async function timeOut(name, args) {
    const before = cancelled.length, began = Date.now();
    const { error } = await session.call(name, args);
    assert.deepEqual([error.code, error.data.reason], [-32001, 'upstream_timeout'], JSON.stringify(error));
    await until(() => cancelled.length > before, WAIT_MS, 'the server is notified of the cancellation');
    return { message: error.message, took: Date.now() - began };
}

test('a call without an answer ends after timeout, which the error names, and is cancelled at the server', async () => {
    const { message, took } = await timeOut('web__silent');
    assert.equal(message, 'The server did not answer in time (timeout: 1 s)');
    assert.ok(took >= 1_000, `${took} ms`);
    assert.equal(cancelled.at(-1).reason, 'timeout');
    await gateway.line(/call failed.*target=silent.*did not answer within \d+ ms; the limit is timeout = 1000 ms/, WAIT_MS);
});

test('a tool may have a timeout of its own', async () => {
    const { message, took } = await timeOut('web__patient');
    assert.equal(message, 'The server did not answer in time (tool_timeouts: 2500 ms)');
    assert.ok(took >= 2_500, `${took} ms`);
});

test('progress renews the timeout up to max_timeout', async () => {
    const body = { jsonrpc: '2.0', id: 50, method: 'tools/call', params: { name: 'web__busy', arguments: {}, _meta: { progressToken: 'p' } } };
    const began = Date.now();
    const { body: answer } = await session.post(body, post());
    assert.match(answer, /The server did not answer in time \(max_timeout: 3 s\)/);
    assert.ok(Date.now() - began >= 3_000);
});

test('a server that does not complete its start in time is named with start_timeout', async () => {
    const { error } = await session.call('deaf__act');
    assert.equal(error.data.reason, 'server_unavailable', JSON.stringify(error));
    await gateway.line(/server did not start server=deaf .*did not answer initialize within \d+ ms; the limit is start_timeout = 2000 ms/, WAIT_MS);
});

test('an open question to the caller pauses the timeout of the call', async () => {
    const call = await session.postStream({ jsonrpc: '2.0', id: 60, method: 'tools/call', params: { name: 'own__ask', arguments: {} } });
    const question = await call.notification('elicitation/create');
    await sleep(2_000); // the caller thinks for longer than the timeout of the call
    await session.post({ jsonrpc: '2.0', id: question.message.id, result: { action: 'decline' } });
    const { message } = await call.message();
    assert.equal(resultText(message), 'decline');
});

/** A gateway with a server that starts when `go` is called. */
async function startLate(t, list) {
    const folder = temporaryDirectory(), file = join(folder.path, 'go');
    t.after(folder.remove);
    const late = { ...stdioServer.misbehave('start-with', file), start_timeout: '60s' };
    const own = await startGateway({ timeouts: { list }, mcpServers: { late, quick: stdioServer.misbehave('fine') } });
    t.after(() => own.stop());
    return { url: own.url, go: () => writeFileSync(file, '') };
}
const names = answer => answer.result.tools.map(({ name }) => name);
const QUICK = ['quick__act', 'quick__fine'], ALL = ['late__act', 'late__fine', ...QUICK];

test('a list waits for a server that starts', async t => {
    const { url, go } = await startLate(t, '30s'), caller = await Session.open(url);
    const list = caller.request('tools/list');
    assert.equal(await settles(list, 1_000), false);
    go();
    assert.deepEqual(names(await list).sort(), ALL);
});

test('a list waits no longer than timeouts.list, and the caller is notified later', async t => {
    const began = Date.now(), { url, go } = await startLate(t, '1500ms'), caller = await Session.open(url);
    assert.deepEqual(names(await caller.request('tools/list')).sort(), QUICK);
    assert.ok(Date.now() - began >= 1_500);
    const news = await caller.get();
    go();
    await news.notification('notifications/tools/list_changed');
    assert.deepEqual(names(await caller.request('tools/list')).sort(), ALL);
    news.drop();
});
