// Servers that crash or hang, and come back: the gateway restarts or replaces them, and other servers do not notice.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { join } from 'node:path';
import { json } from 'node:stream/consumers';
import { after, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';

import { freePort, startGateway, stdioServer, temporaryDirectory, until } from '../gateway.mjs';
import { resultText, send, Session } from '../raw.mjs';

const WAIT_MS = 20_000;
const CALLS_A_LIFE = 120;
const LIVES = 5;
const LIFE_MS = 4_000;
const PAUSE_MS = 10; // between steady calls
const TIMEOUT_MS = 2_000;

const health = async gateway => JSON.parse((await send(`${gateway.origin}/healthz`, { method: 'GET' })).body).servers;

/** Runs `body` with a gateway that has the servers beside a healthy one, which must answer all the time. */
async function beside(servers, body) {
    const gateway = await startGateway({ mcpServers: { ...servers, good: stdioServer.fixture() } });
    try {
        const session = await Session.open(gateway.url);
        await session.request('tools/list');
        let over = false;
        const healthy = (async () => {
            const other = await Session.open(gateway.url);
            while (!over) assert.ok((await other.call('good__test_simple_text')).result, 'the healthy server answers');
        })();
        await Promise.all([body({ gateway, session }).finally(() => (over = true)), healthy]);
    } finally {
        await gateway.stop();
    }
}

/** An MCP server over HTTP in this process; `on` replaces what a method does. `sessions` counts its handshakes. */
async function startHttpServer(on = {}, port = 0) {
    const server = createServer(async (req, res) => {
        if (req.method !== 'POST') return res.writeHead(405).end();
        const message = await json(req);
        if (on.any?.(message, req, res) || on[message.method]?.(message, req, res)) return undefined;
        if (message.id === undefined) return res.writeHead(202).end();
        if (message.method === 'initialize') res.setHeader('mcp-session-id', String(++server.sessions));
        const result = {
            initialize: { protocolVersion: '2025-11-25', capabilities: { tools: {} }, serverInfo: { name: 'web', version: '1' } },
            'tools/list': { tools: [{ name: 'act', inputSchema: { type: 'object' } }] },
            'tools/call': { content: [{ type: 'text', text: 'done' }] }
        }[message.method] ?? {};
        return res.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify({ jsonrpc: '2.0', id: message.id, result }));
    });
    server.sessions = 0;
    server.listen(port, '127.0.0.1');
    await once(server, 'listening');
    server.url = `http://127.0.0.1:${server.address().port}/mcp`;
    server.stop = () => {
        server.closeAllConnections();
        server.close();
    };
    after(server.stop);
    return server;
}

test(`a server that crashes after every ${CALLS_A_LIFE} calls answers 99 % of steady calls`, () =>
    beside({ bad: stdioServer.misbehave('die-after', CALLS_A_LIFE) }, async ({ gateway, session }) => {
        let failed = 0;
        for (let i = 0; i < CALLS_A_LIFE * LIVES; i++) failed += (await session.call('bad__fine')).error ? 1 : 0;
        assert.ok(failed <= (CALLS_A_LIFE * LIVES) / 100, `${failed} of ${CALLS_A_LIFE * LIVES} calls failed`);
        assert.ok(gateway.log().match(/server lost.*server=bad/g).length >= LIVES - 1);
        assert.doesNotMatch(gateway.log(), /circuit opened/);
    }));

test('a server that crashes every 4 s answers 99 % of steady calls', t =>
    beside({ bad: stdioServer.misbehave('die-every', LIFE_MS) }, async ({ gateway, session }) => {
        const lost = () => gateway.log().match(/server lost.*server=bad/g)?.length ?? 0;
        let calls = 0, failed = 0;
        for (; lost() < LIVES; calls++) {
            failed += (await session.call('bad__fine')).error ? 1 : 0;
            await sleep(PAUSE_MS);
        }
        t.diagnostic(`${failed} of ${calls} calls failed, in ${LIVES} lives`);
        assert.ok(failed <= calls / 100, `${failed} of ${calls} calls failed`);
        assert.doesNotMatch(gateway.log(), /circuit opened/);
    }));

test('a stdio server that hangs is replaced within three timeouts', () =>
    beside({ bad: { ...stdioServer.misbehave('freeze'), timeout: `${TIMEOUT_MS}ms` } }, async ({ gateway, session }) => {
        const [, pid] = await gateway.line(/server started server=bad pid=(\d+)/, WAIT_MS);
        const began = Date.now();
        const { error } = await session.call('bad__act');
        assert.deepEqual([error.code, error.data.reason], [-32001, 'upstream_timeout']);
        await until(async () => (await session.call('bad__fine')).result, WAIT_MS, 'the server answers again');
        const lost = Date.parse((await gateway.line(/^(\S+) warn  server lost.*hangs and is replaced/m))[1]);
        assert.ok(lost - began < 3 * TIMEOUT_MS, `replaced after ${lost - began} ms`);
        assert.ok(!gateway.servers().includes(pid), 'the first process is gone');
    }));

test('an HTTP server that hangs gets another session within three timeouts', async () => {
    const hangs = { any: (message, req) => req.headers['mcp-session-id'] === '1' && hangs.now };
    const server = await startHttpServer(hangs);
    await beside({ bad: { url: server.url, timeout: `${TIMEOUT_MS}ms` } }, async ({ gateway, session }) => {
        assert.equal(resultText(await session.call('bad__act')), 'done');
        hangs.now = true;
        const began = Date.now();
        assert.equal((await session.call('bad__act')).error.data.reason, 'upstream_timeout');
        await until(async () => (await session.call('bad__act')).result, WAIT_MS, 'the server answers again');
        const lost = Date.parse((await gateway.line(/^(\S+) warn  server lost.*hangs and is replaced/m))[1]);
        assert.ok(lost - began < 3 * TIMEOUT_MS, `replaced after ${lost - began} ms`);
        assert.equal(server.sessions, 2);
    });
});

test('a call is sent once it is certain that the HTTP server came back, and calls during the outage wait for it', async () => {
    const port = await freePort();
    const first = await startHttpServer({}, port);
    await beside({ bad: { url: first.url, timeout: '10s' } }, async ({ gateway, session }) => {
        assert.equal(resultText(await session.call('bad__act')), 'done');
        first.stop();
        await once(first, 'close');
        assert.equal((await session.call('bad__act')).error.data.reason, 'server_unavailable');
        await gateway.line(/server lost server=bad/, WAIT_MS);
        const waits = session.call('bad__act');
        await startHttpServer({}, port);
        assert.equal(resultText(await waits), 'done');
    });
});

test('an HTTP server that accepts no connections any more still answers the call that it has', async () => {
    let held;
    const hold = { 'tools/call': (message, req, res) => !held && (held = () => res.writeHead(200, { 'content-type': 'application/json' })
        .end(JSON.stringify({ jsonrpc: '2.0', id: message.id, result: { content: [{ type: 'text', text: 'late' }] } }))) };
    const server = await startHttpServer(hold);
    await beside({ bad: { url: server.url } }, async ({ gateway, session }) => {
        const first = session.call('bad__act');
        await until(() => held, WAIT_MS, 'the server has the call');
        server.close();
        server.closeIdleConnections();
        const { error } = await (await Session.open(gateway.url)).call('bad__act');
        assert.deepEqual([error.code, error.data.reason], [-32002, 'server_unavailable']);
        held();
        assert.equal(resultText(await first), 'late');
        assert.doesNotMatch(gateway.log(), /server lost/);
    });
});

test('an HTTP server that restarts between two calls answers both', async () => {
    const port = await freePort();
    let calls = 0;
    const count = { 'tools/call': () => void calls++ };
    const first = await startHttpServer(count, port);
    await beside({ bad: { url: first.url } }, async ({ session }) => {
        assert.equal(resultText(await session.call('bad__act')), 'done');
        first.stop();
        await once(first, 'close');
        await startHttpServer(count, port);
        assert.equal(resultText(await session.call('bad__act')), 'done');
        assert.equal(calls, 2, 'each call ran once');
    });
});

test('a slow server that answers pings is not replaced', () =>
    beside({ bad: { ...stdioServer.misbehave('hang'), timeout: '500ms' } }, async ({ gateway, session }) => {
        for (let i = 0; i < 4; i++) assert.equal((await session.call('bad__act')).error.data.reason, 'upstream_timeout');
        await gateway.line(/sending a ping server=bad/);
        assert.equal(resultText(await session.call('bad__fine')), 'fine');
        assert.doesNotMatch(gateway.log(), /server lost/);
    }));

/** A server that cannot start until `repair` is called. */
const broken = {
    stdio: async () => {
        const folder = temporaryDirectory(), file = join(folder.path, 'repaired'), { command, args } = stdioServer.misbehave('fine');
        after(folder.remove);
        return { server: { command: '/bin/sh', args: ['-c', `test -e ${file} && exec "$0" "$@"`, command, ...args] }, tool: 'fine', repair: () => writeFileSync(file, '') };
    },
    http: async () => {
        const port = await freePort();
        return { server: { url: `http://127.0.0.1:${port}/mcp` }, tool: 'act', repair: () => startHttpServer({}, port) };
    }
};

for (const [transport, start] of Object.entries(broken))
    test(`a server over ${transport} that cannot start opens the circuit, which fails calls at once and closes by itself`, async () => {
        const { server, tool, repair } = await start();
        await beside({ bad: server }, async ({ gateway, session }) => {
            await gateway.line(/circuit opened server=bad failures=5/, WAIT_MS);
            assert.equal((await health(gateway)).circuit_open, 1);
            const { error } = await session.call(`bad__${tool}`);
            assert.deepEqual([error.code, error.data.reason], [-32002, 'server_unavailable']);
            assert.ok(error.data.retryAfterMs > 0 && error.data.retryAfterMs <= 30_000, JSON.stringify(error));
            await repair();
            await gateway.line(/circuit closed server=bad/, WAIT_MS); // no call has asked for that start
            assert.equal((await health(gateway)).circuit_open, 0);
            assert.ok((await session.call(`bad__${tool}`)).result);
        });
    });
