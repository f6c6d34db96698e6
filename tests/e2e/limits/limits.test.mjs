// Limits through the running gateway: rates and calls in flight by tool, server, identity and tenant, and failed authentication.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { request as httpRequest } from 'node:http';
import { connect } from 'node:net';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { after, before, describe, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';

import { binary, peerPath, startGateway, stdioServer, temporaryDirectory, until } from '../gateway.mjs';
import { initialize, post, reply, send, stream } from '../raw.mjs';

const mirror = peerPath('mirror');
const mirrorServer = (...tools) => ({ command: mirror, args: ['--tools', JSON.stringify(tools)] });
const LIMITED = 429;
const HOUR = 3_600_000;

let folder;
before(() => {
    folder = temporaryDirectory();
    const rule = { id: 'all', effect: 'allow', description: 'every caller may do everything here', tenants: ['*'], subjects: ['authenticated'], servers: ['*'], kinds: ['*'], names: ['*'] };
    const never = { ...rule, id: 'never', effect: 'deny', description: 'no caller may call this tool', kinds: ['tool'], names: ['forbidden'] };
    writeFileSync(join(folder.path, 'policy.json'), JSON.stringify({ version: 1, description: 'All but one tool', rules: [rule, never] }));
});
after(() => folder?.remove());

function token(file, subject, ...more) {
    const args = ['token', 'new', '--file', join(folder.path, file), '--subject', subject, '--description', 'of this test', ...more];
    return execFileSync(binary, args, { encoding: 'utf8' }).trim();
}

/** A gateway that is stopped when the test ends. */
async function gatewayFor(t, config) {
    const gateway = await startGateway(config);
    t.after(() => gateway.stop());
    return gateway;
}

const withTokens = (file, more) => ({
    auth: { providers: [{ type: 'bearer', tokens: join(folder.path, file) }] },
    policy: join(folder.path, 'policy.json'),
    mcpServers: {},
    ...more
});

/** A session with a credential; `ask` returns the whole answer, `call` only the JSON-RPC response. */
class Caller {
    static async open(gateway, secret, version = '2025-11-25') {
        const caller = new Caller();
        caller.url = gateway.url;
        caller.headers = secret ? { authorization: `Bearer ${secret}` } : {};
        const answer = await send(gateway.url, { headers: post(caller.headers), body: initialize(version) });
        assert.equal(answer.status, 200, answer.body);
        caller.headers['mcp-session-id'] = answer.headers['mcp-session-id'];
        await caller.post({ jsonrpc: '2.0', method: 'notifications/initialized' });
        return caller;
    }
    post(body) {
        return send(this.url, { headers: post(this.headers), body });
    }
    async ask(method, params) {
        const answer = await this.post({ jsonrpc: '2.0', id: 7, method, params });
        return { ...answer, message: reply(answer) };
    }
    async call(name, args = {}) {
        return (await this.ask('tools/call', { name, arguments: args })).message;
    }
    /** A call to a server that is up: when this resolves, it is in flight (its event stream has begun) or refused. */
    start(name, args, id = 9) {
        return stream(this.url, { method: 'POST', headers: post(this.headers), body: { jsonrpc: '2.0', id, method: 'tools/call', params: { name, arguments: args } } });
    }
}

function assertPasses({ result, error }) {
    assert.ok(result, JSON.stringify(error));
}

/** The call was refused by a limit; returns the announced wait in milliseconds. */
function assertLimited({ error }) {
    assert.equal(error?.code, LIMITED, JSON.stringify(error));
    assert.deepEqual(Object.keys(error.data).sort(), ['reason', 'retryAfterMs']);
    assert.equal(error.data.reason, 'limited');
    assert.ok(Number.isInteger(error.data.retryAfterMs) && error.data.retryAfterMs > 0, JSON.stringify(error));
    return error.data.retryAfterMs;
}

/** The same for a whole HTTP answer, which has the wait in its header as well. */
function assertLimitedAnswer({ status, headers, message }) {
    assert.equal(status, 200);
    assert.match(headers['content-type'], /^application\/json/);
    const wait = assertLimited(message);
    assert.equal(headers['retry-after'], String(Math.ceil(wait / 1000)));
    return wait;
}

describe('bounds on sessions', () => {
    const opening = (gateway, secret) => send(gateway.url, { headers: post({ authorization: `Bearer ${secret}` }), body: initialize('2025-11-25') });
    function assertFull(answer) {
        assert.equal(answer.status, 503, answer.body);
        assert.match(answer.headers['retry-after'], /^\d+$/);
        assert.equal(reply(answer).error.data.reason, 'overloaded');
    }

    test('sessions of one identity are bounded and leave capacity for others', async t => {
        const ana = token('many.json', 'ana'), bob = token('many.json', 'bob');
        const gateway = await gatewayFor(t, withTokens('many.json', { limits: { identity_sessions: 2 } }));
        const caller = await Caller.open(gateway, ana);
        await Caller.open(gateway, ana);
        for (let i = 0; i < 3; i++) assertFull(await opening(gateway, ana));
        assertFull(await send(new URL('/sse', gateway.origin), { method: 'GET', headers: { accept: 'text/event-stream', authorization: `Bearer ${ana}` } }));
        await Caller.open(gateway, bob);
        assert.equal((await send(gateway.url, { method: 'DELETE', headers: caller.headers })).status, 200);
        await Caller.open(gateway, ana);
        assertFull(await opening(gateway, ana));
    });
    test('sessions of one tenant are bounded and leave capacity for others', async t => {
        const ana = token('share.json', 'ana', '--tenant', 'acme'), eve = token('share.json', 'eve', '--tenant', 'acme'), bob = token('share.json', 'bob');
        const gateway = await gatewayFor(t, withTokens('share.json', { tenants: { acme: { limits: { sessions: 1 } } } }));
        const caller = await Caller.open(gateway, ana);
        assertFull(await opening(gateway, eve));
        for (let i = 0; i < 3; i++) await Caller.open(gateway, bob);
        assert.equal((await send(gateway.url, { method: 'DELETE', headers: caller.headers })).status, 200);
        await Caller.open(gateway, eve);
        assertFull(await opening(gateway, ana));
    });
    test('sessions of anonymous callers are not counted by identity', async t => {
        const gateway = await gatewayFor(t, { mcpServers: {}, limits: { identity_sessions: 1 } });
        for (let i = 0; i < 3; i++) await Caller.open(gateway);
    });
});

describe('bounds on server processes', () => {
    const own = { command: mirror, args: ['--tools', '["one"]'], isolation: 'session' };
    const one = caller => caller.call('m__one');
    function assertFull({ error }) {
        assert.equal(error?.code, LIMITED, JSON.stringify(error));
        assert.equal(error.data.reason, 'process_limit');
        assert.match(error.message, /close sessions/);
    }
    const end = (gateway, caller) => send(gateway.url, { method: 'DELETE', headers: caller.headers });
    /** A server counts until its process has ended. */
    const passesSoon = (caller, what) => until(async () => !(await one(caller)).error, 10_000, what);

    test('processes of one identity are bounded and leave capacity for others', async t => {
        const ana = token('processes.json', 'ana'), bob = token('processes.json', 'bob');
        const gateway = await gatewayFor(t, withTokens('processes.json', { mcpServers: { m: own, all: mirrorServer('one') }, limits: { identity_processes: 2 } }));
        const first = await Caller.open(gateway, ana), second = await Caller.open(gateway, ana), third = await Caller.open(gateway, ana);
        assertPasses(await one(first));
        assertPasses(await one(second));
        for (let i = 0; i < 3; i++) assertFull(await one(third));
        assertPasses(await third.call('all__one')); // a shared server is not counted for any identity
        assert.equal(gateway.servers().length, 3);
        assertPasses(await one(await Caller.open(gateway, bob)));
        assertPasses(await one(first));
        await gateway.line(/server did not start.*limits\.identity_processes/);
        assert.equal((await end(gateway, first)).status, 200);
        await passesSoon(third, 'the ended server is no longer counted');
    });
    test('processes of servers with isolation `user` are counted as well', async t => {
        const ana = token('users.json', 'ana'), bob = token('users.json', 'bob');
        const mine = { ...own, isolation: 'user' };
        const gateway = await gatewayFor(t, withTokens('users.json', { mcpServers: { m: mine, n: mine }, limits: { identity_processes: 1 } }));
        for (const secret of [ana, bob]) {
            const caller = await Caller.open(gateway, secret);
            const answers = [await one(caller), await caller.call('n__one')];
            assert.equal(answers.filter(({ error }) => !error).length, 1, JSON.stringify(answers));
            assertFull(answers.find(({ error }) => error));
        }
        assert.equal(gateway.servers().length, 2);
    });
    test('processes of one tenant are bounded and leave capacity for others', async t => {
        const ana = token('shares.json', 'ana', '--tenant', 'acme'), eve = token('shares.json', 'eve', '--tenant', 'acme'), bob = token('shares.json', 'bob');
        const tenants = { acme: { mcpServers: { m: own }, limits: { processes: 1 } } };
        const gateway = await gatewayFor(t, withTokens('shares.json', { mcpServers: { m: own }, tenants }));
        const first = await Caller.open(gateway, ana), second = await Caller.open(gateway, eve);
        assertPasses(await one(first));
        assertFull(await one(second));
        for (let i = 0; i < 2; i++) assertPasses(await one(await Caller.open(gateway, bob)));
        await gateway.line(/tenants\.acme\.limits\.processes/);
        assert.equal((await end(gateway, first)).status, 200);
        await passesSoon(second, 'the ended server is no longer counted');
    });
    test('all processes together are bounded, also for anonymous callers', async t => {
        const gateway = await gatewayFor(t, { mcpServers: { m: own }, limits: { processes: 3, identity_processes: 1 } });
        const callers = [];
        for (let i = 0; i < 5; i++) callers.push(await Caller.open(gateway));
        const answers = await Promise.all(callers.map(one));
        assert.equal(answers.filter(({ error }) => !error).length, 3, JSON.stringify(answers));
        for (const answer of answers.filter(({ error }) => error)) assertFull(answer);
        assert.equal(gateway.servers().length, 3);
        const refused = callers[answers.findIndex(({ error }) => error)], served = callers[answers.findIndex(({ error }) => !error)];
        assert.deepEqual((await refused.ask('tools/list')).message.result.tools, []);
        await gateway.line(/limits\.processes/);
        for (const other of callers.filter((caller, i) => answers[i].error && caller !== refused)) await end(gateway, other); // it would take the free place
        assert.equal((await end(gateway, served)).status, 200);
        await passesSoon(refused, 'the ended server is no longer counted');
    });
});

describe('rates of calls', () => {
    test('calls after a burst are refused with the time to wait', async t => {
        const rates = [{ server: 'm', tool: 'one', calls: 2, window: '1h' }];
        const gateway = await gatewayFor(t, { mcpServers: { m: mirrorServer('one', 'two') }, limits: { rates } });
        const caller = await Caller.open(gateway);
        const ask = () => caller.ask('tools/call', { name: 'm__one', arguments: {} });
        for (let i = 0; i < 2; i++) {
            const answer = await ask();
            assertPasses(answer.message);
            assert.equal(answer.headers['retry-after'], undefined);
        }
        const wait = assertLimitedAnswer(await ask());
        assert.ok(wait <= HOUR / 2, `half an hour brings a call, not ${wait} ms`);
        assertLimitedAnswer(await ask());
        assertPasses(await caller.call('m__two')); // another tool has its own rate
    });
    test('a call after the announced wait passes', async t => {
        const rates = [{ calls: 1, window: '3s', burst: 2 }];
        const gateway = await gatewayFor(t, { mcpServers: { m: mirrorServer('one') }, limits: { rates } });
        const caller = await Caller.open(gateway);
        let passed = 0, answer;
        while ((answer = await caller.call('m__one')).result && passed < 100) passed++;
        assert.ok(passed >= 2, 'the burst');
        const wait = assertLimited(answer);
        assert.ok(wait <= 3_000);
        await sleep(wait + 5); // the timers of Node may be early
        assertPasses(await caller.call('m__one'));
    });
    test('every request that reaches a server counts, but lists and housekeeping do not', async t => {
        token('counted.json', 'ana');
        const secret = token('counted.json', 'bob');
        const rates = [{ server: 'm', calls: 5, window: '1h' }];
        const gateway = await gatewayFor(t, withTokens('counted.json', { mcpServers: { m: mirrorServer('one', 'forbidden') }, limits: { rates } }));
        const caller = await Caller.open(gateway, secret);
        for (let i = 0; i < 8; i++) {
            assertPasses((await caller.ask('ping')).message);
            assertPasses((await caller.ask('tools/list')).message);
            assertPasses((await caller.ask('resources/templates/list')).message);
            assert.equal((await caller.call('m__forbidden')).error.code, 403);
            assert.ok([403, -32602].includes((await caller.call('m__unknown')).error.code));
            await caller.post({ jsonrpc: '2.0', method: 'notifications/cancelled', params: { requestId: 4711 } });
        }
        const uri = 'postern://m/mirror:///one';
        assertPasses(await caller.call('m__one'));
        assertPasses((await caller.ask('resources/read', { uri })).message);
        assertPasses((await caller.ask('resources/subscribe', { uri })).message);
        assertPasses((await caller.ask('prompts/get', { name: 'm__ask' })).message);
        assertPasses((await caller.ask('completion/complete', { ref: { type: 'ref/prompt', name: 'm__ask' }, argument: { name: 'topic', value: '' } })).message);
        for (const [method, params] of [['tools/call', { name: 'm__one' }], ['resources/read', { uri }], ['resources/subscribe', { uri }], ['prompts/get', { name: 'm__ask' }]])
            assertLimitedAnswer(await caller.ask(method, params));
        assertPasses((await caller.ask('resources/unsubscribe', { uri })).message);
        assertPasses((await caller.ask('tools/list')).message);
        assert.equal((await caller.call('m__forbidden')).error.code, 403, 'the policy is asked before the limit');
    });
    test('each part of a batch counts as a call', async t => {
        const rates = [{ calls: 2, window: '1h' }];
        const gateway = await gatewayFor(t, { mcpServers: { m: mirrorServer('one') }, limits: { rates } });
        const caller = await Caller.open(gateway, undefined, '2025-03-26');
        await caller.ask('tools/list');
        const part = id => ({ jsonrpc: '2.0', id, method: 'tools/call', params: { name: 'm__one', arguments: {} } });
        const answer = await caller.post([part(1), part(2), { jsonrpc: '2.0', id: 3, method: 'ping' }, part(4)]);
        const byId = Object.fromEntries(JSON.parse(answer.body).map(message => [message.id, message]));
        for (const id of [1, 2, 3]) assertPasses(byId[id]);
        assertLimited(byId[4]);
    });
    test('a refused call over HTTP+SSE is answered on the stream', async t => {
        const gateway = await gatewayFor(t, { mcpServers: { m: mirrorServer('one') }, limits: { rates: [{ calls: 1, window: '1h' }] } });
        const events = await stream(new URL('/sse', gateway.origin), { headers: { accept: 'text/event-stream' } });
        const endpoint = new URL((await events.next()).data, gateway.origin);
        const tell = async body => assert.equal((await send(endpoint, { headers: post(), body })).status, 202);
        await tell(initialize('2024-11-05'));
        assertPasses((await events.message()).message);
        for (const check of [assertPasses, assertLimited]) {
            await tell({ jsonrpc: '2.0', id: 2, method: 'tools/call', params: { name: 'm__one' } });
            check((await events.message()).message);
        }
        events.drop();
    });
});

describe('scopes of rates', () => {
    let gateway;
    const secrets = {};
    before(async () => {
        for (const [who, ...more] of [['ana'], ['bob', '--role', 'busy'], ['eve']]) secrets[who] = token('users.json', who, ...more);
        for (const tenant of ['acme', 'globex']) secrets[tenant] = token('users.json', 'ana', '--tenant', tenant);
        secrets.acmeBob = token('users.json', 'bob', '--tenant', 'acme');
        const servers = { m: mirrorServer('one', 'two', 'three') };
        gateway = await startGateway(
            withTokens('users.json', {
                mcpServers: servers,
                limits: {
                    rates: [
                        { tool: 'one', per: 'identity', calls: 1, window: '1h' },
                        { tool: 'one', subject: 'role:busy', per: 'identity', calls: 2, window: '1h' },
                        { tool: 'two', calls: 2, window: '1h' }
                    ]
                },
                tenants: { acme: { mcpServers: servers, limits: { rates: [{ calls: 1, window: '1h' }] } }, globex: { mcpServers: servers } }
            })
        );
    });
    after(() => gateway?.stop());

    test('a rate per identity does not affect another user, and a role has its own row', async () => {
        const [ana, again, bob, eve] = await Promise.all(['ana', 'ana', 'bob', 'eve'].map(who => Caller.open(gateway, secrets[who])));
        assertPasses(await ana.call('m__one'));
        assertLimited(await ana.call('m__one'));
        assertLimited(await again.call('m__one')); // another session is the same identity
        assertPasses(await bob.call('m__one'));
        assertPasses(await bob.call('m__one'));
        assertLimited(await bob.call('m__one'));
        assertPasses(await eve.call('m__one'));
        assertLimited(await eve.call('m__one'));
        assertPasses(await ana.call('m__three'));
    });
    test('a rate per tenant counts all callers of that tenant together and no others', async () => {
        const [ana, bob] = await Promise.all(['ana', 'bob'].map(who => Caller.open(gateway, secrets[who])));
        assertPasses(await ana.call('m__two'));
        assertPasses(await bob.call('m__two'));
        assertLimited(await ana.call('m__two'));
        assertLimited(await bob.call('m__two'));
        const [acme, acmeBob, globex] = await Promise.all(['acme', 'acmeBob', 'globex'].map(who => Caller.open(gateway, secrets[who])));
        for (let i = 0; i < 4; i++) assertPasses(await globex.call(i % 2 ? 'm__one' : 'm__two')); // that tenant has no limits
        assertPasses(await acme.call('m__two'));
        assertLimited(await acmeBob.call('m__three'));
    });
    test('a limited call is recorded as allowed by policy and refused by a limit', async () => {
        const ana = await Caller.open(gateway, secrets.ana);
        while (!(await ana.call('m__one')).error) continue;
        const file = join(gateway.state, 'audit.db');
        const rows = () => execFileSync(binary, ['audit', '--file', file, '--json'], { encoding: 'utf8' }).trim().split('\n').map(line => JSON.parse(line));
        const row = await until(() => rows().find(({ reason }) => reason === 'limited'), 5_000, 'the record');
        assert.deepEqual([row.event, row.decision, row.status, row.server, row.kind], ['call', 'allow', 'error', 'm', 'tool']);
    });
});

describe('bounds on calls in flight', () => {
    let gateway, count = 0;
    before(async () => {
        gateway = await startGateway({
            mcpServers: { m: mirrorServer('one'), bad: { ...stdioServer.misbehave('hang'), timeout: '4s' } },
            limits: { rates: [{ server: 'm', tool: 'wait', concurrent: 2 }, { server: 'bad', tool: 'act', concurrent: 1 }] },
            timeouts: { stream_after: '50ms' }
        });
        const caller = await Caller.open(gateway);
        for (const name of ['m__one', 'bad__fine']) assertPasses(await caller.call(name)); // from now on no call waits for its server
    });
    after(() => gateway?.stop());

    const file = () => join(folder.path, `go-${count++}`);
    const refused = async caller => assertLimitedAnswer(await caller.ask('tools/call', { name: 'm__wait', arguments: { file: file() } }));
    /** All slots are free, and there are exactly as many as configured. */
    async function bothFree(caller) {
        const go = file();
        const running = [];
        for (let id = 21; running.length < 2; id++) running.push(await until(() => flying(caller, go, id), 10_000, 'a free slot'));
        await refused(caller);
        writeFileSync(go, '');
        for (const events of running) assertPasses((await events.message()).message);
    }
    /** A call in flight, or undefined if it was refused. */
    async function flying(caller, go, id) {
        const events = await caller.start('m__wait', { file: go }, id);
        if (events.headers['content-type'].startsWith('text/event-stream')) return events;
        events.drop();
        return undefined;
    }

    test('concurrent calls of a tool are bounded, and an answer frees a slot', async () => {
        const caller = await Caller.open(gateway);
        const [first, second] = [file(), file()];
        const one = await caller.start('m__wait', { file: first }, 11);
        const two = await caller.start('m__wait', { file: second }, 12);
        assert.equal(await refused(caller), 1_000);
        assertPasses(await caller.call('m__one'));
        writeFileSync(first, '');
        assertPasses((await one.message()).message);
        assertPasses(await caller.call('m__wait', { file: first }));
        const three = await caller.start('m__wait', { file: file() }, 13);
        await refused(caller);
        three.drop();
        await caller.post({ jsonrpc: '2.0', method: 'notifications/cancelled', params: { requestId: 13 } });
        writeFileSync(second, '');
        assertPasses((await two.message()).message);
        await bothFree(caller);
    });
    test('a call whose caller disconnected holds its slot until the server answers', async () => {
        const caller = await Caller.open(gateway);
        const go = file();
        for (const id of [11, 12]) (await caller.start('m__wait', { file: go }, id)).drop();
        await refused(caller); // a caller cannot exceed the bound of the server by disconnecting
        writeFileSync(go, '');
        await bothFree(caller);
    });
    test('a session that ends frees the slots of its calls', async () => {
        const [caller, other] = [await Caller.open(gateway), await Caller.open(gateway)];
        const running = [await caller.start('m__wait', { file: file() }, 11), await caller.start('m__wait', { file: file() }, 12)];
        await refused(other);
        assert.equal((await send(gateway.url, { method: 'DELETE', headers: caller.headers })).status, 200);
        for (const events of running) assert.equal((await events.message()).message.error.data.reason, 'session_unknown');
        await bothFree(other);
    });
    test('a call that times out frees its slot', async () => {
        const caller = await Caller.open(gateway);
        const events = await caller.start('bad__act', {});
        assertLimited(await caller.call('bad__act'));
        assertPasses(await caller.call('bad__fine'));
        assert.equal((await events.message()).message.error.data.reason, 'upstream_timeout');
        const again = await caller.start('bad__act', {});
        assert.match(again.headers['content-type'], /^text\/event-stream/, 'it is in flight');
        again.drop();
    });
    test('a server that dies frees the slots of its calls', async () => {
        const caller = await Caller.open(gateway);
        const running = [await caller.start('m__wait', { file: file() }, 11), await caller.start('m__wait', { file: file() }, 12)];
        await refused(caller);
        assert.ok((await caller.call('m__crash')).error);
        for (const events of running) assert.equal((await events.message()).message.error.data.reason, 'upstream_died');
        await until(async () => !(await caller.call('m__one')).error, 15_000, 'the server again');
        await bothFree(caller);
    });
});

describe('failed authentication', () => {
    const wrong = { authorization: 'Bearer postern_AAAAAAAA_0123456789012345678901234567890123456789012_AAAAAA' };
    const open = (url, headers) => send(url, { headers: post(headers), body: initialize('2025-11-25') });

    /** The request got 429 without authentication; returns the announced wait. */
    function assertThrottled({ status, headers, body }) {
        assert.equal(status, 429, body);
        const { error } = JSON.parse(body);
        assert.deepEqual([error.code, error.data.reason], [LIMITED, 'auth_limited']);
        assert.ok(error.data.retryAfterMs > 0);
        assert.equal(headers['retry-after'], String(Math.ceil(error.data.retryAfterMs / 1000)));
        assert.equal(headers['www-authenticate'], undefined);
        return error.data.retryAfterMs;
    }
    /** The same request from another address of loopback. */
    async function openFrom(address, url, headers) {
        const req = httpRequest(url, { method: 'POST', headers: post(headers), localAddress: address, agent: false });
        req.end(JSON.stringify(initialize('2025-11-25')));
        const [res] = await once(req, 'response');
        return { status: res.statusCode, headers: res.headers, body: await text(res) };
    }
    const good = secret => ({ authorization: `Bearer ${secret}` });
    const throttledAfter = (file, more) => withTokens(file, { mcpServers: { m: mirrorServer('one') }, limits: { auth_failures: 3, auth_window: '1h' }, ...more });

    test('P6 an address with too many refused credentials gets 429, but open sessions, other addresses and callers without a credential do not', async t => {
        const secret = token('p6.json', 'ana');
        const gateway = await gatewayFor(t, throttledAfter('p6.json'));
        const caller = await Caller.open(gateway, secret);
        for (let i = 0; i < 5; i++) assert.equal((await open(gateway.url, {})).status, 401, 'a request without a credential is not a failed authentication');
        for (let i = 0; i < 3; i++) {
            assert.equal((await open(gateway.url, good(secret))).status, 200, 'a good credential is accepted and does not reset the count');
            assert.equal((await open(gateway.url, wrong)).status, 401);
        }
        const wait = assertThrottled(await open(gateway.url, wrong));
        assert.ok(wait <= HOUR / 3);
        assertThrottled(await open(gateway.url, good(secret)));
        assertThrottled(await send(gateway.url, { method: 'GET', headers: { ...wrong, accept: 'text/event-stream' } }));
        assertThrottled(await open(gateway.url, { ...wrong, 'mcp-session-id': 'A'.repeat(43) }));

        assertPasses(await caller.call('m__one'));
        const expired = await send(gateway.url, { headers: post({ ...caller.headers, ...wrong }), body: { jsonrpc: '2.0', id: 1, method: 'ping' } });
        assert.equal(expired.status, 401, 'a session whose credential expired gets 401');
        assert.equal((await open(gateway.url, {})).headers['www-authenticate'], 'Bearer', 'the challenge is still sent');
        assert.equal((await openFrom('127.0.0.2', gateway.url, good(secret))).status, 200);
        await gateway.line(/throttling address after failed authentications address=127\.0\.0\.1 /);
        assert.ok(!gateway.log().includes(secret.slice(17, 40)), 'a token in the log');
    });
    test('P6 a throttled address gets 429 before the body is read or a provider is asked', async t => {
        token('p6body.json', 'ana');
        const gateway = await gatewayFor(t, throttledAfter('p6body.json'));
        for (let i = 0; i < 3; i++) assert.equal((await open(gateway.url, wrong)).status, 401);
        const { hostname, port, host } = new URL(gateway.url);
        const socket = connect(Number(port), hostname);
        const lines = ['POST /mcp HTTP/1.1', `Host: ${host}`, 'Content-Type: application/json', 'Accept: application/json, text/event-stream', 'Content-Length: 60000000', `Authorization: ${wrong.authorization}`];
        socket.write([...lines, '', ''].join('\r\n')); // without any byte of the body
        const [head] = await once(socket, 'data', { signal: AbortSignal.timeout(15_000) });
        assert.match(head.toString(), /^HTTP\/1\.1 429 /);
        socket.destroy();
        const file = join(gateway.state, 'audit.db');
        const refusals = () => execFileSync(binary, ['audit', '--file', file, '--json'], { encoding: 'utf8' }).split('\n').filter(line => line.includes('"event":"authentication"'));
        await until(() => refusals().length >= 4, 5_000, 'the records');
        const reasons = refusals().map(line => JSON.parse(line).reason);
        assert.deepEqual(reasons, [...Array(3).fill('unauthenticated'), 'auth_limited'], 'one row for each credential that a provider refused, and one for the throttled request');
    });
    for (const [name, lines] of Object.entries({ 'a large body': ['Content-Length: 60000000'], 'a body without length': ['Transfer-Encoding: chunked'] }))
        test(`P6 ${name} of an unauthenticated caller gets 401 before it is read, and one record`, async t => {
            const secret = token('p6stranger.json', 'ana');
            const gateway = await gatewayFor(t, throttledAfter('p6stranger.json'));
            const { hostname, port, host } = new URL(gateway.url);
            const answerTo = async more => {
                const socket = connect(Number(port), hostname);
                socket.write(['POST /mcp HTTP/1.1', `Host: ${host}`, 'Content-Type: application/json', 'Accept: application/json, text/event-stream', ...lines, ...more, '', ''].join('\r\n')); // without any byte of the body
                const [head] = await once(socket, 'data', { signal: AbortSignal.timeout(15_000) });
                socket.destroy();
                return head.toString();
            };
            for (const more of [[`Authorization: ${wrong.authorization}`], []]) assert.match(await answerTo(more), /^HTTP\/1\.1 401 [^]*WWW-Authenticate: Bearer/);
            assert.match(await answerTo([`Authorization: ${good(secret).authorization}`, 'Expect: 100-continue']), /^HTTP\/1\.1 100 /, 'the body of an authenticated caller is read');
            const file = join(gateway.state, 'audit.db');
            const refusals = () => execFileSync(binary, ['audit', '--file', file, '--json'], { encoding: 'utf8' }).split('\n').filter(line => line.includes('"event":"authentication"'));
            await until(() => refusals().length >= 2, 5_000, 'the records');
            assert.equal(refusals().length, 2);
            assert.equal((await open(gateway.url, wrong)).status, 401);
            assert.equal((await open(gateway.url, wrong)).status, 401, 'three refused credentials, each counted once');
            assert.equal((await open(gateway.url, wrong)).status, 429);
        });
    test('P6 an address may authenticate again after the announced wait', async t => {
        const secret = token('p6wait.json', 'ana');
        const gateway = await gatewayFor(t, throttledAfter('p6wait.json', { limits: { auth_failures: 1, auth_window: '3s' } }));
        let answer;
        for (let i = 0; i < 100 && (answer = await open(gateway.url, wrong)).status === 401; i++) continue;
        const wait = assertThrottled(answer);
        assert.ok(wait <= 3_000);
        await sleep(wait + 5);
        assert.equal((await open(gateway.url, good(secret))).status, 200);
    });
    test('P6 P11 a proxy that authenticated itself is not throttled, and another one is', async t => {
        token('p6proxy.json', 'ana');
        const secret = 'a-secret-of-at-least-thirty-two-characters';
        const providers = [
            { type: 'bearer', tokens: join(folder.path, 'p6proxy.json') },
            { type: 'forwarded-user', trusted_proxies: ['127.0.0.1'], secret }
        ];
        const gateway = await gatewayFor(t, throttledAfter('p6proxy.json', { auth: { providers } }));
        const proxy = { 'x-postern-secret': secret, 'x-forwarded-user': 'ana' };
        for (let i = 0; i < 8; i++) assert.equal((await open(gateway.url, { ...proxy, ...wrong })).status, 401, 'a wrong token behind an authenticated proxy');
        assert.equal((await open(gateway.url, proxy)).status, 200);
        const forged = { ...proxy, 'x-postern-secret': `${secret}x` };
        for (let i = 0; i < 3; i++) assert.equal((await open(gateway.url, forged)).status, 401);
        assertThrottled(await open(gateway.url, forged));
        assert.equal((await open(gateway.url, proxy)).status, 200, 'the authenticated proxy on the same host is not throttled');
    });
});
