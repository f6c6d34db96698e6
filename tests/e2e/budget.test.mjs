// Byte budgets through the running gateway: who is refused, who is not, and what the log and the health say.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { request } from 'node:http';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { after, before, describe, test } from 'node:test';

import { binary, startGateway, stdioServer, temporaryDirectory, until } from './gateway.mjs';
import { initialize, post, reply, send } from './raw.mjs';

const KIB = 1024, MIB = 1024 * KIB;
const WAIT_MS = 20_000;

let folder;
const secrets = {};
before(() => {
    folder = temporaryDirectory();
    const rule = { id: 'all', effect: 'allow', description: 'everybody but mallory may do everything', tenants: ['*'], subjects: ['user:bearer:alice', 'user:bearer:bob'], servers: ['*'], kinds: ['*'], names: ['*'] };
    writeFileSync(join(folder.path, 'policy.json'), JSON.stringify({ version: 1, description: 'For all but one', rules: [rule] }));
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
    return { headers, ask };
}

const ping = (size = 0) => JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'ping' }) + ' '.repeat(size); // params have a bound of their own

/** Sends the head of a request and `sent` bytes of its body; the rest never comes. Dropped when the test is over. */
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

describe('bodies', () => {
    test('an identity at its bound gets 429 before its body is read, and nobody else does', async t => {
        const gateway = await start(t), alice = await open(gateway, 'alice'), bob = await open(gateway, 'bob');
        const held = [await hang(t, gateway, alice.headers, { length: MIB }), await hang(t, gateway, alice.headers, { length: MIB })];
        await until(async () => (await gateway.memory()).largest_identity >= 2 * MIB, WAIT_MS, 'two bodies are counted by their length');
        const third = await hang(t, gateway, alice.headers, { length: MIB });
        const res = await third.answer;
        assertRefused({ status: res.statusCode, headers: res.headers, body: await text(res) });
        await gateway.line(/request refused.*memory_limit.*limits\.identity_memory/, WAIT_MS);
        assert.equal(reply(await bob.ask(ping(MIB - 200))).error, undefined, 'another identity has its own');
        assert.equal(reply(await alice.ask(ping())).error, undefined, 'small requests have room left');
        for (const { drop } of held) drop();
        await until(async () => (await gateway.memory()).held === 0, WAIT_MS, 'bodies that were given up count no more');
        assert.equal(reply(await alice.ask(ping(MIB - 200))).error, undefined);
    });

    test('a body that does not say how large it is is counted as it comes', async t => {
        const gateway = await start(t), alice = await open(gateway, 'alice');
        for (let i = 0; i < 2; i++) await hang(t, gateway, alice.headers, { length: MIB });
        await until(async () => (await gateway.memory()).largest_identity >= 2 * MIB, WAIT_MS, 'two bodies are counted');
        const chunked = await hang(t, gateway, alice.headers, { sent: 900 * KIB });
        chunked.req.end();
        const res = await chunked.answer;
        assertRefused({ status: res.statusCode, headers: res.headers, body: await text(res) });
        assert.equal((await gateway.memory()).largest_identity, 2 * MIB, 'nothing is kept of it');
    });

    test('callers that do not authenticate use up only what they share', async t => {
        const gateway = await start(t, { limits: { max_body: 32 * KIB, max_message: 64 * KIB, identity_memory: 128 * KIB } });
        const alice = await open(gateway, 'alice');
        for (let i = 0; i < 4; i++) await hang(t, gateway, {}, { length: 16 * KIB });
        await until(async () => (await gateway.memory()).unauthenticated === 64 * KIB, WAIT_MS, 'they have used it up');
        assert.equal((await send(gateway.url, { headers: post(), body: ping() })).status, 401);
        assert.equal(reply(await alice.ask(ping(KIB))).error, undefined);
    });

    test('the bound in all holds for identities together', async t => {
        const gateway = await start(t, { limits: { memory: 4 * MIB, identity_memory: 0 } }), alice = await open(gateway, 'alice'), bob = await open(gateway, 'bob');
        for (const { headers } of [alice, bob]) await hang(t, gateway, headers, { length: MIB });
        await until(async () => (await gateway.memory()).held >= 2 * MIB, WAIT_MS, 'both are counted');
        assertRefused(await alice.ask(ping(MIB - 200)));
        await gateway.line(/request refused.*\(limits\.memory\)/, WAIT_MS);
    });
});

describe('calls in flight', () => {
    test('count with their bodies until they are over', async t => {
        const gateway = await start(t, { mcpServers: { bad: stdioServer.misbehave('hang') } }), alice = await open(gateway, 'alice');
        const act = id => ({ jsonrpc: '2.0', id, method: 'tools/call', params: { name: 'bad__act', arguments: { pad: 'x'.repeat(MIB - 400) } } });
        const calls = [1, 2].map(id => alice.ask(act(id)));
        await until(async () => (await gateway.memory()).largest_identity > 2 * (MIB - 400), WAIT_MS, 'both are in flight');
        assertRefused(await alice.ask(act(3)));
        for (const requestId of [1, 2]) await alice.ask({ jsonrpc: '2.0', method: 'notifications/cancelled', params: { requestId } });
        await Promise.all(calls);
        await until(async () => (await gateway.memory()).held === 0, WAIT_MS, 'nothing is held for calls that are over');
    });
});

describe('a caller that is denied everything', () => {
    const LIMITS = { max_body: 256 * KIB, max_message: 256 * KIB, identity_memory: MIB, memory: 16 * MIB, replay_events: 1000, session_calls: 100_000 };
    const denied = (id, size) => JSON.stringify({ jsonrpc: '2.0', id, method: 'tools/call', params: { name: 'm__echo', arguments: { pad: 'x'.repeat(size) } } });

    /** Follows what is held for an identity until the work is done. */
    async function largest(gateway, work) {
        let most = 0, going = true;
        const look = (async () => {
            while (going) most = Math.max(most, (await gateway.memory()).largest_identity);
        })();
        await work().finally(() => (going = false));
        await look;
        return most;
    }

    test('cannot make the gateway hold more than its bound, whatever it sends and does not read', async t => {
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
            assert.ok(answer.result.tools.length, 'nobody else notices');
        });
        assert.ok(most > 0 && most <= MIB, `${most} bytes were held`);
        assert.ok(statuses.has(429), `some of it was refused: ${[...statuses]}`);
    });
});

test('a configuration whose bounds are too small is refused, with both options named', () => {
    const config = join(folder.path, 'small.json');
    const rows = {
        '/limits/memory': { limits: { memory: '100MiB' } },
        '/limits/identity_memory': { limits: { identity_memory: '100MiB' } },
        '/tenants/acme/limits/memory': { tenants: { acme: { limits: { memory: '100MiB' } } } }
    };
    for (const [path, limits] of Object.entries(rows)) {
        writeFileSync(config, JSON.stringify({ mcpServers: {}, ...limits }));
        assert.throws(() => execFileSync(binary, ['config', 'check', '--config', config], { stdio: 'pipe' }), ({ stderr }) => {
            assert.ok(String(stderr).includes(`${path}: 104857600 bytes are less than /limits/max_message and twice /limits/max_body, 218103808 bytes in all`), String(stderr));
            return true;
        });
    }
});
