// Byte budgets through the running gateway: which callers are refused and which are not, and what the log and the health say.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { createServer, request } from 'node:http';
import { connect } from 'node:net';
import { join } from 'node:path';
import { json, text } from 'node:stream/consumers';
import { after, before, describe, test } from 'node:test';

import { binary, startGateway, stdioServer, temporaryDirectory, until } from '../gateway.mjs';
import { initialize, post, reply, send } from '../raw.mjs';

const KIB = 1024, MIB = 1024 * KIB;
const WAIT_MS = 20_000;

let folder;
const secrets = {};
before(() => {
    folder = temporaryDirectory();
    const rule = { id: 'all', effect: 'allow', description: 'every caller but mallory may do everything', tenants: ['*'], subjects: ['user:bearer:alice', 'user:bearer:bob'], servers: ['*'], kinds: ['*'], names: ['*'] };
    writeFileSync(join(folder.path, 'policy.json'), JSON.stringify({ version: 1, description: 'Everything is allowed except for mallory', rules: [rule] }));
    for (const subject of ['alice', 'bob', 'mallory']) {
        const args = ['token', 'new', '--file', join(folder.path, 'tokens.json'), '--subject', subject, '--description', 'of this test'];
        secrets[subject] = execFileSync(binary, args, { encoding: 'utf8' }).trim();
    }
});
after(() => folder?.remove());

/** A gateway whose identities may hold 4 MiB each, of which 1 MiB is the reserve and an eighth of the rest is for small requests. */
async function start(t, more = {}) {
    const gateway = await startGateway({
        auth: { providers: [{ type: 'bearer', tokens: join(folder.path, 'tokens.json') }] },
        policy: join(folder.path, 'policy.json'),
        mcpServers: { m: stdioServer.fixture() },
        ...more,
        limits: { max_body: MIB, max_message: MIB, identity_memory: 4 * MIB, memory: 16 * MIB, ...more.limits }
    });
    t.after(() => gateway.stop());
    gateway.memory = async () => JSON.parse((await send(`${gateway.origin}/healthz`, { method: 'GET' })).body).memory;
    return gateway;
}

async function open(gateway, subject, version = '2025-11-25') {
    const headers = { authorization: `Bearer ${secrets[subject]}` };
    const answer = await send(gateway.url, { headers: post(headers), body: initialize(version) });
    assert.equal(answer.status, 200, answer.body);
    headers['mcp-session-id'] = answer.headers['mcp-session-id'];
    const ask = (body, more) => send(gateway.url, { headers: post({ ...headers, ...more }), body });
    await ask({ jsonrpc: '2.0', method: 'notifications/initialized' });
    return { headers, ask, end: () => send(gateway.url, { method: 'DELETE', headers }) };
}

const ping = () => JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'ping' });
/** A call of about this size to a tool that does not exist: it is read and decided by the policy, and goes no further. */
const padded = size => JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'tools/call', params: { name: 'm__none', arguments: { pad: 'x'.repeat(size) } } });
const assertRead = answer => assert.equal(reply(answer).error.data.reason, 'denied'); // like every call of an unknown tool

/** Sends the head of a request and `sent` bytes of its body; the rest is never sent. The connection is dropped when the test ends. */
async function hang(t, gateway, headers, { length, sent = 1 }) {
    const req = request(gateway.url, { method: 'POST', agent: false, headers: { ...post(headers), ...(length ? { 'content-length': length } : {}) } });
    t.after(() => req.destroy());
    req.on('error', () => {});
    const answer = once(req, 'response').then(([res]) => res, () => undefined);
    await new Promise(resolve => req.write('x'.repeat(sent), resolve));
    return { req, answer, drop: () => req.destroy() };
}

function assertRefused({ status, headers, body }) {
    assert.equal(status, 429, body);
    assert.match(headers['retry-after'], /^[1-9]\d*$/);
    const { error } = JSON.parse(body);
    assert.deepEqual([error.code, error.data.reason], [429, 'memory_limit']);
    assert.ok(error.data.retryAfterMs > 0);
}

describe('bytes of request bodies', () => {
    test('an identity at its bound gets 429 before its body is read and other identities do not', async t => {
        const gateway = await start(t), alice = await open(gateway, 'alice'), bob = await open(gateway, 'bob');
        const held = [await hang(t, gateway, alice.headers, { length: MIB }), await hang(t, gateway, alice.headers, { length: MIB })];
        await until(async () => (await gateway.memory()).largest_identity >= 2 * MIB, WAIT_MS, 'two bodies are counted by their length');
        const third = await hang(t, gateway, alice.headers, { length: MIB });
        const res = await third.answer;
        assertRefused({ status: res.statusCode, headers: res.headers, body: await text(res) });
        await gateway.line(/request refused.*memory_limit.*limits\.identity_memory/, WAIT_MS);
        assertRead(await bob.ask(padded(MIB - 200))); // another identity has its own bound
        assert.equal(reply(await alice.ask(ping())).error, undefined, 'small requests still fit into the bound');
        for (const { drop } of held) drop();
        await until(async () => (await gateway.memory()).held < KIB, WAIT_MS, 'abandoned bodies are no longer counted');
        assertRead(await alice.ask(padded(MIB - 200)));
    });

    test('a body without a length is counted as it arrives', async t => {
        const gateway = await start(t), alice = await open(gateway, 'alice');
        const session = (await gateway.memory()).largest_identity; // the capabilities that the caller declared
        for (let i = 0; i < 2; i++) await hang(t, gateway, alice.headers, { length: MIB });
        await until(async () => (await gateway.memory()).largest_identity >= 2 * MIB, WAIT_MS, 'two bodies are counted');
        const chunked = await hang(t, gateway, alice.headers, { sent: 900 * KIB });
        chunked.req.end();
        const res = await chunked.answer;
        assertRefused({ status: res.statusCode, headers: res.headers, body: await text(res) });
        assert.equal((await gateway.memory()).largest_identity, session + 2 * MIB, 'the bytes of the refused body are released');
    });

    test('unauthenticated callers use up only their shared bound', async t => {
        const gateway = await start(t, { limits: { max_body: 32 * KIB, max_message: 64 * KIB, identity_memory: 128 * KIB } });
        const alice = await open(gateway, 'alice');
        for (let i = 0; i < 4; i++) await hang(t, gateway, {}, { length: 16 * KIB });
        await until(async () => (await gateway.memory()).unauthenticated === 64 * KIB, WAIT_MS, 'the shared bound is used up');
        assert.equal((await send(gateway.url, { headers: post(), body: ping() })).status, 401);
        assert.equal(reply(await alice.ask(ping())).error, undefined);
    });

    test('the total bound applies to all identities together', async t => {
        const gateway = await start(t, { limits: { memory: 4 * MIB, identity_memory: 0 } }), alice = await open(gateway, 'alice'), bob = await open(gateway, 'bob');
        for (const { headers } of [alice, bob]) await hang(t, gateway, headers, { length: MIB });
        await until(async () => (await gateway.memory()).held >= 2 * MIB, WAIT_MS, 'both are counted');
        assertRefused(await alice.ask(padded(MIB - 200)));
        await gateway.line(/request refused.*not enough memory for \d+ bytes: \d+ of \d+ are held, and \d+ reserved for an answer \(limits\.memory\)/, WAIT_MS);
    });
});

describe('bytes of calls in flight', () => {
    test('calls count with their bodies until they end', async t => {
        const gateway = await start(t, { mcpServers: { bad: stdioServer.misbehave('hang') } }), alice = await open(gateway, 'alice');
        const act = id => ({ jsonrpc: '2.0', id, method: 'tools/call', params: { name: 'bad__act', arguments: { pad: 'x'.repeat(MIB - 400) } } });
        const calls = [1, 2].map(id => alice.ask(act(id)));
        await until(async () => (await gateway.memory()).largest_identity > 2 * (MIB - 400), WAIT_MS, 'both are in flight');
        assertRefused(await alice.ask(act(3)));
        for (const requestId of [1, 2]) await alice.ask({ jsonrpc: '2.0', method: 'notifications/cancelled', params: { requestId } });
        await Promise.all(calls);
        await until(async () => (await gateway.memory()).held < KIB, WAIT_MS, 'ended calls do not hold bytes');
    });

    for (const version of ['2025-11-25', '2025-03-26'])
        test(`cancelled calls${version < '2025-06' ? ' in a batch' : ''} count with their bodies while these may still be sent`, async t => {
            let called = false;
            const server = createServer(async (req, res) => {
                if (req.method !== 'POST') return res.writeHead(405).end();
                const { id, method } = await json(req);
                if (id === undefined) return res.writeHead(202).end();
                if (method === 'tools/call') return (called = true); // never answered
                const results = { initialize: { protocolVersion: '2025-11-25', capabilities: { tools: {} }, serverInfo: { name: 'deaf', version: '1' } }, 'tools/list': { tools: [{ name: 'act', inputSchema: { type: 'object' } }] } };
                return res.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify({ jsonrpc: '2.0', id, result: results[method] ?? {} }));
            }).listen(0, '127.0.0.1');
            await once(server, 'listening');
            t.after(() => server.close().closeAllConnections());
            const gateway = await start(t, { mcpServers: { deaf: { type: 'http', url: `http://127.0.0.1:${server.address().port}/mcp` } } }), alice = await open(gateway, 'alice', version);
            const act = { jsonrpc: '2.0', id: 1, method: 'tools/call', params: { name: 'deaf__act', arguments: { pad: 'x'.repeat(900 * KIB) } } };
            const call = alice.ask(version < '2025-06' ? [act] : act);
            await until(() => called, WAIT_MS, 'it is in flight');
            await alice.ask({ jsonrpc: '2.0', method: 'notifications/cancelled', params: { requestId: 1 } });
            await call;
            assert.ok((await gateway.memory()).largest_identity > 900 * KIB, 'it may be sent once more');
            await until(async () => (await gateway.memory()).held < KIB, WAIT_MS, 'its transfer is abandoned');
        });
});

describe('bytes of denied calls', () => {
    const LIMITS = { max_body: 256 * KIB, max_message: 256 * KIB, identity_memory: MIB, memory: 16 * MIB, replay_events: 1000, session_calls: 100_000 };
    const denied = (id, size) => JSON.stringify({ jsonrpc: '2.0', id, method: 'tools/call', params: { name: 'm__echo', arguments: { pad: 'x'.repeat(size) } } });

    /** The most bytes held for an identity while `work` runs. */
    async function largest(gateway, work) {
        let most = 0, going = true;
        const look = (async () => {
            while (going) most = Math.max(most, (await gateway.memory()).largest_identity);
        })();
        await work().finally(() => (going = false));
        await look;
        return most;
    }

    test('a caller that is denied everything cannot make the gateway hold more than its bound', async t => {
        const gateway = await start(t, { limits: LIMITS }), bob = await open(gateway, 'bob');
        const sessions = await Promise.all(Array.from({ length: 10 }, () => open(gateway, 'mallory', '2025-03-26')));
        const statuses = new Set();
        const most = await largest(gateway, async () => {
            await Promise.all(sessions.flatMap(({ ask, headers }, s) => [
                ...Array.from({ length: 8 }, async (_, i) => statuses.add((await ask(denied(i, 200 * KIB))).status)),
                ask(`[${Array.from({ length: 100 }, (_, i) => denied(`b${i}`, 1000)).join()}]`),
                ask(denied('x'.repeat(100 * KIB), 1)),
                hang(t, gateway, headers, { length: 200 * KIB }),
                s % 2 ? hang(t, gateway, headers, { sent: 100 * KIB }) : undefined
            ]));
            const answer = reply(await bob.ask({ jsonrpc: '2.0', id: 7, method: 'tools/list' }));
            assert.ok(answer.result.tools.length, 'other callers are not affected');
        });
        assert.ok(most > 0 && most <= MIB, `${most} bytes were held`);
        assert.ok(statuses.has(429), `some of it was refused: ${[...statuses]}`);
    });
});

/**
 * A server over HTTP whose tool answers with `size` bytes, as JSON with a Content-Length or as an event, after a progress event if
 * requested; it waits for `together` calls and answers them at once.
 */
async function startServer(t, size, { events = false, together = 1 } = {}) {
    const results = {
        initialize: { protocolVersion: '2025-11-25', capabilities: { tools: {} }, serverInfo: { name: 'large', version: '1' } },
        'tools/list': { tools: [{ name: 'act', inputSchema: { type: 'object' } }] },
        'tools/call': { content: [{ type: 'text', text: 'x'.repeat(size) }] }
    };
    const waiting = [];
    const server = createServer(async (req, res) => {
        if (req.method !== 'POST') return res.writeHead(405).end();
        const { id, method, params } = await json(req);
        if (id === undefined) return res.writeHead(202).end();
        const message = JSON.stringify({ jsonrpc: '2.0', id, result: results[method] ?? {} });
        const progressToken = params?._meta?.progressToken;
        const progress = progressToken === undefined ? '' : `data: ${JSON.stringify({ jsonrpc: '2.0', method: 'notifications/progress', params: { progressToken, progress: 1 } })}\n\n`;
        const body = events ? `${progress}data: ${message}\n\n` : message;
        waiting.push(() => res.writeHead(200, events ? { 'content-type': 'text/event-stream' } : { 'content-type': 'application/json', 'content-length': body.length }).end(body));
        if (method !== 'tools/call' || waiting.length === together) for (const answer of waiting.splice(0)) answer();
    }).listen(0, '127.0.0.1');
    await once(server, 'listening');
    t.after(() => server.close().closeAllConnections());
    return { url: `http://127.0.0.1:${server.address().port}/mcp` };
}

describe('large answers', () => {
    const SIZE = 900 * KIB, BOUND = MIB + 128 * KIB;
    const LIMITS = { max_body: 64 * KIB, max_message: MIB, identity_memory: 0, memory: BOUND };
    const servers = {
        'HTTP and JSON': t => startServer(t, SIZE, { together: 8 }),
        'HTTP and events': t => startServer(t, SIZE, { together: 8, events: true }),
        stdio: async () => stdioServer.misbehave('huge', SIZE)
    };
    const act = id => ({ jsonrpc: '2.0', id, method: 'tools/call', params: { name: 'big__act', arguments: {} } });

    // A call that gets a notification of progress is answered by an event, which is kept for resumption as long as the budget allows.
    const act_slowly = id => ({ ...act(id), params: { ...act(id).params, _meta: { progressToken: id } } });
    const assertAnswered = (answer, form) => {
        assert.ok(answer.headers['content-type'].startsWith(form), `${answer.headers['content-type']}: ${answer.body.slice(0, 1000)}`);
        assert.equal(reply(answer).result?.content[0].text.length, SIZE, answer.body.slice(0, 1000));
    };
    const JSON_FORM = 'application/json', EVENTS_FORM = 'text/event-stream';
    for (const [name, form] of [...Object.keys(servers).map(server => [server, JSON_FORM]), ['HTTP and events', EVENTS_FORM], ['stdio', EVENTS_FORM]])
        test(`${name}: calls wait for their budget instead of failing and are answered as ${form}`, async t => {
            const gateway = await start(t, { mcpServers: { big: await servers[name](t) }, limits: LIMITS, timeouts: { stream_after: '5m' } });
            const callers = [await open(gateway, 'alice'), await open(gateway, 'bob')];
            let going = true, most = 0;
            const look = (async () => {
                while (going) most = Math.max(most, (await gateway.memory()).held);
            })();
            const asked = Array.from({ length: 8 }, (_, id) => callers[id % 2].ask((form === JSON_FORM ? act : act_slowly)(id)));
            const answers = await Promise.all(asked).finally(() => (going = false));
            await look;
            for (const answer of answers) assertAnswered(answer, form);
            assert.ok(most > 0 && most <= BOUND, `${most} bytes were held`);
            if (name !== 'stdio') await gateway.line(/reading from a server paused: memory limit reached server=big limit=limits\.memory/, WAIT_MS);
            if (form === EVENTS_FORM) await Promise.all(callers.map(({ end }) => end()));
            await until(async () => (await gateway.memory()).held < KIB, WAIT_MS, 'nothing is held afterwards');
        });

    test('messages kept for resumption are dropped for the next answer to the same caller', async t => {
        const limits = { ...LIMITS, identity_memory: BOUND, memory: 0 };
        const gateway = await start(t, { mcpServers: { big: await servers.stdio() }, limits }), alice = await open(gateway, 'alice');
        for (let id = 0; id < 3; id++) assertAnswered(await alice.ask(act_slowly(id)), EVENTS_FORM);
    });

    test('a dropped line above the maximum does not hold memory and the log names the option', async t => {
        const big = stdioServer.misbehave('huge', 3 * MIB);
        const gateway = await start(t, { mcpServers: { big }, limits: LIMITS }), alice = await open(gateway, 'alice');
        const answer = await alice.ask(act(1));
        assert.equal(reply(answer).error.data.reason, 'upstream_invalid');
        await gateway.line(/server sent a message that is too large server=big max=1048576 option=limits\.max_message/, WAIT_MS);
        await until(async () => (await gateway.memory()).held < KIB, WAIT_MS, 'nothing is held afterwards');
    });

    test('an answer above the maximum does not keep others waiting', async t => {
        const [big, long] = await Promise.all([[SIZE, 8], [3 * MIB, 4]].map(([size, together]) => startServer(t, size, { events: true, together })));
        const gateway = await start(t, { mcpServers: { big, long }, limits: LIMITS }), alice = await open(gateway, 'alice');
        const calls = Array.from({ length: 12 }, (_, id) => ({ ...act(id), params: { name: id % 3 ? 'big__act' : 'long__act', arguments: {} } }));
        const answers = await Promise.all(calls.map(call => alice.ask(call)));
        for (const [id, answer] of answers.entries()) {
            const { result, error } = reply(answer);
            if (id % 3) assert.equal(result.content[0].text.length, SIZE);
            else assert.match(error.data.reason, /^upstream_/);
        }
    });

    test('a caller that does not read its answers does not delay callers with another bound', async t => {
        const size = 20 * MIB; // more than sockets take
        const limits = { max_body: 64 * KIB, max_message: 24 * MIB, identity_memory: 25 * MIB, memory: 128 * MIB };
        const gateway = await start(t, { mcpServers: { big: await startServer(t, size) }, limits }), alice = await open(gateway, 'alice'), bob = await open(gateway, 'bob');
        const { hostname, port } = new URL(gateway.url);
        const unread = Array.from({ length: 3 }, (_, id) => {
            const body = JSON.stringify(act(id)), headers = { host: `${hostname}:${port}`, ...post(alice.headers), 'content-length': body.length };
            const socket = connect(port, hostname, () => socket.write(`POST /mcp HTTP/1.1\r\n${Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`).join('')}\r\n${body}`));
            t.after(() => socket.destroy());
            return socket.on('error', () => {});
        });
        await gateway.line(/reading from a server paused: memory limit reached server=big limit=limits\.identity_memory/, WAIT_MS);
        for (let id = 0; id < 2; id++) assert.equal(reply(await bob.ask(act(id))).result.content[0].text.length, size);
        assert.equal(reply(await alice.ask(ping())).error, undefined, 'small calls of the same caller are answered');
        for (const socket of unread) socket.destroy();
        assert.equal(reply(await alice.ask(act(9))).result.content[0].text.length, size);
    });
});

test('a configuration whose bounds are too small is refused and both options are named', () => {
    const config = join(folder.path, 'small.json');
    const rows = {
        '/limits/memory': { limits: { memory: '100MiB' } },
        '/limits/identity_memory': { limits: { identity_memory: '100MiB' } },
        '/tenants/acme/limits/memory': { tenants: { acme: { limits: { memory: '100MiB' } } } }
    };
    for (const [path, limits] of Object.entries(rows)) {
        writeFileSync(config, JSON.stringify({ mcpServers: {}, ...limits }));
        assert.throws(() => execFileSync(binary, ['config', 'check', '--config', config], { stdio: 'pipe' }), ({ stderr }) => {
            assert.ok(String(stderr).includes(`${path}: 104857600 bytes are less than the 218103808 of /limits/max_message (83886080) plus twice /limits/max_body (67108864); raise it`), String(stderr));
            return true;
        });
    }
});
