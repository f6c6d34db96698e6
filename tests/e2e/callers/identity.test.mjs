// Authentication and authorization through the running gateway: bearer tokens, 401, the policy on calls and lists, reload and revocation.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { renameSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { after, before, describe, test } from 'node:test';

import { binary, startGateway, temporaryDirectory, until } from '../gateway.mjs';
import { policyRule } from '../policy.mjs';
import { initialize, post, reply, resultText, send, stream } from '../raw.mjs';

const demo = join(dirname(binary), 'postern-demo');

const rule = (id, effect, more) => policyRule(id, effect, { tenants: ['default'], subjects: ['authenticated'], servers: ['demo'], ...more });

const policy = {
    version: 1,
    description: 'The policy of this test',
    rules: [
        rule('echo-for-all', 'allow', { names: ['echo'] }),
        rule('add-for-clerks', 'allow', { subjects: ['role:clerk'], names: ['add'], when: { '/a': { le: 10 } } }),
        rule('no-now', 'deny', { names: ['now'] }),
        rule('read-welcome', 'allow', { kinds: ['resource'], names: ['demo://welcome'] })
    ],
    tests: [
        {
            description: 'every caller with a token may echo',
            as: { tenant: 'default', subject: 'bearer:ana' },
            server: 'demo',
            kind: 'tool',
            name: 'echo',
            expect: 'allow',
            by: 'echo-for-all'
        }
    ]
};

let folder, gateway, ana, bob;

function token(...args) {
    return execFileSync(binary, ['token', ...args, '--file', join(folder.path, 'tokens.json')], { encoding: 'utf8' }).trim();
}

/** Replaces a file by a rename, as editors and git do. */
function replace(name, text) {
    writeFileSync(join(folder.path, `${name}.new`), text);
    renameSync(join(folder.path, `${name}.new`), join(folder.path, name));
}

class Caller {
    static async open(secret) {
        const caller = new Caller();
        caller.headers = { authorization: `Bearer ${secret}` };
        const answer = await send(gateway.url, { headers: post(caller.headers), body: initialize('2025-11-25') });
        assert.equal(answer.status, 200, answer.body);
        caller.headers['mcp-session-id'] = answer.headers['mcp-session-id'];
        await send(gateway.url, { headers: post(caller.headers), body: { jsonrpc: '2.0', method: 'notifications/initialized' } });
        return caller;
    }
    async request(method, params) {
        const answer = await send(gateway.url, { headers: post(this.headers), body: { jsonrpc: '2.0', id: 7, method, params } });
        return { status: answer.status, ...reply(answer) };
    }
    call(name, args = {}) {
        return this.request('tools/call', { name, arguments: args });
    }
    async names(method, member) {
        return (await this.request(method)).result[member].map(({ name, uri }) => uri ?? name);
    }
}

before(async () => {
    folder = temporaryDirectory();
    ana = token('new', '--subject', 'ana', '--role', 'clerk', '--description', 'the clerk');
    bob = token('new', '--subject', 'bob', '--description', 'somebody else');
    replace('policy.json', JSON.stringify(policy));
    gateway = await startGateway({
        auth: { providers: [{ type: 'bearer', tokens: join(folder.path, 'tokens.json') }] },
        policy: join(folder.path, 'policy.json'),
        mcpServers: { demo: { command: demo } }
    });
});
after(async () => {
    await gateway?.stop();
    folder?.remove();
});

describe('authentication with caller tokens', () => {
    const refused = async (headers, expected) => {
        const answer = await send(gateway.url, { headers: post(headers), body: initialize('2025-11-25') });
        assert.equal(answer.status, 401, answer.body);
        assert.equal(answer.headers['www-authenticate'], expected);
        assert.equal(JSON.parse(answer.body).error.message, 'Authentication is required');
    };
    test('P3 a request without a token gets 401 and a challenge', () => refused({}, 'Bearer'));
    for (const [name, value] of Object.entries({
        'an unknown token': 'Bearer postern_AAAAAAAA_0123456789012345678901234567890123456789012_AAAAAA',
        'another kind of token': 'Bearer eyJhbGciOiJub25lIn0.e30.',
        'another scheme': 'Basic YTpi',
        'a scheme without a token': 'Bearer'
    }))
        test(`P1 ${name} gets the same 401`, () => refused({ authorization: value }, 'Bearer error="invalid_token"'));
    test('P5 a request with two Authorization headers gets 400', async () => {
        const answer = await send(gateway.url, { headers: { ...post({}), authorization: [`Bearer ${ana}`, `Bearer ${bob}`] }, body: initialize('2025-11-25') });
        assert.equal(answer.status, 400, answer.body);
    });
    test('P5 a token outside of Authorization is ignored', async () => {
        for (const [query, headers] of [[`?access_token=${ana}`, {}], [`?token=${ana}`, {}], ['', { cookie: `access_token=${ana}` }], ['', { 'x-api-key': ana }], ['', { 'proxy-authorization': `Bearer ${ana}` }]]) {
            const answer = await send(gateway.url + query, { headers: post(headers), body: initialize('2025-11-25') });
            assert.deepEqual([answer.status, answer.headers['www-authenticate']], [401, 'Bearer'], query);
        }
    });
    test('P3 requests with an unknown token, a damaged token and no token get the same body', async () => {
        const bodies = new Set();
        for (const value of [undefined, `Bearer ${ana.slice(0, -1)}!`, 'Bearer postern_AAAAAAAA_0123456789012345678901234567890123456789012_AAAAAA', 'Bearer x.y.z'])
            bodies.add((await send(gateway.url, { headers: post(value ? { authorization: value } : {}), body: initialize('2025-11-25') })).body);
        assert.equal(bodies.size, 1, [...bodies].join('\n'));
    });
    test('P2 a session belongs to the identity that opened it', async () => {
        const caller = await Caller.open(ana);
        const headers = { ...caller.headers, authorization: `Bearer ${bob}` };
        const answer = await send(gateway.url, { headers: post(headers), body: { jsonrpc: '2.0', id: 1, method: 'ping' } });
        assert.equal(answer.status, 404);
    });
});

describe('authorization by policy', () => {
    test('X1 a call that no rule allows is denied', async () => {
        const caller = await Caller.open(bob);
        assert.equal(resultText(await caller.call('demo__echo', { message: 'hi' })), 'hi');
        const { status, error } = await caller.call('demo__add', { a: 1, b: 2 });
        assert.equal(status, 200);
        assert.equal(error.code, 403);
        assert.deepEqual(error.data, { reason: 'denied', rule: 'default' });
    });
    test('X6 a call is decided by the conditions on its arguments', async () => {
        const caller = await Caller.open(ana);
        assert.equal(resultText(await caller.call('demo__add', { a: 10, b: 2 })), '12');
        for (const args of [{ a: 11, b: 2 }, { b: 2 }, { a: '1', b: 2 }, {}])
            assert.equal((await caller.call('demo__add', args)).error.code, 403, JSON.stringify(args));
    });
    test('X19 a denial names only its rule and the description of the rule', async () => {
        const { error } = await (await Caller.open(ana)).call('demo__now');
        assert.deepEqual(error.data, { reason: 'denied', rule: 'no-now', description: 'the rule no-now of this test' });
    });
    test('an unknown name is denied like a name without a rule', async () => {
        const caller = await Caller.open(ana);
        const { error } = await caller.call('demo__nothing');
        assert.deepEqual([error.code, error.data], [403, { reason: 'denied', rule: 'default' }]);
    });
    test('X9 lists show items that may be called with some arguments', async () => {
        assert.deepEqual(await (await Caller.open(ana)).names('tools/list', 'tools'), ['demo__echo', 'demo__add']);
        assert.deepEqual(await (await Caller.open(bob)).names('tools/list', 'tools'), ['demo__echo']);
        assert.deepEqual(await (await Caller.open(bob)).names('prompts/list', 'prompts'), []);
        assert.deepEqual(await (await Caller.open(bob)).names('resources/list', 'resources'), ['postern://demo/demo://welcome']);
    });
    test('X5 a URI that is not canonical is denied before a rule is asked', async () => {
        const caller = await Caller.open(bob);
        assert.ok((await caller.request('resources/read', { uri: 'postern://demo/demo://welcome' })).result);
        const { error } = await caller.request('resources/read', { uri: 'postern://demo/demo://x/../welcome' });
        assert.deepEqual([error.code, error.data.rule], [403, 'uri_not_canonical']);
    });
});

test('every call, denial and refusal is in the audit log and its chain verifies', async () => {
    const file = join(gateway.state, 'audit.db');
    const caller = await Caller.open(ana);
    await caller.call('demo__echo', { message: 'for the audit' });
    const audit = (...args) => execFileSync(binary, ['audit', ...args, '--file', file, '--json'], { encoding: 'utf8' });
    const rows = () => audit().trim().split('\n').map(line => JSON.parse(line));
    await until(() => rows().some(({ name, decision }) => name === 'echo' && decision === 'allow'), 5_000, 'the call');
    const all = rows();
    assert.ok(all.some(({ event, status }) => event === 'authentication' && status === 'denied'), 'refused callers are recorded');
    const denied = all.find(({ rule }) => rule === 'no-now');
    assert.deepEqual([denied.decision, denied.subject, denied.server, denied.kind, denied.name, denied.status], ['deny', 'ana', 'demo', 'tool', 'now', 'denied']);
    assert.match(denied.policy, /^[0-9a-f]{64}$/);
    assert.ok(all.some(({ event }) => event === 'policy'));
    assert.ok(!audit().includes(ana) && !audit().includes('for the audit'), 'the audit log contains neither a token nor an argument');
    execFileSync(binary, ['audit', 'verify', '--file', file]);
});

describe('reloads of policies and tokens', () => {
    const allowsAdd = async () => !(await (await Caller.open(bob)).call('demo__add', { a: 1, b: 2 })).error;
    test('X14 a policy file that is replaced takes effect unless the new one is broken', async () => {
        const wider = { ...policy, rules: [...policy.rules, rule('add-for-all', 'allow', { names: ['add'] })] };
        replace('policy.json', JSON.stringify(wider));
        await until(allowsAdd, 5_000, 'the new policy');
        for (const broken of ['{', JSON.stringify({ ...policy, rulez: [] }), JSON.stringify({ ...policy, tests: [{ ...policy.tests[0], expect: 'deny' }] })]) {
            replace('policy.json', broken);
            const seen = gateway.log().length;
            await until(() => gateway.log().slice(seen).includes('policy not reloaded'), 5_000, 'the refusal');
            assert.ok(await allowsAdd(), 'the previous policy stays in force');
        }
        replace('policy.json', JSON.stringify(policy));
        await until(async () => !(await allowsAdd()), 5_000, 'the old policy again');
    });
    test('P10 a revoked token and its streams end within a second', async () => {
        const secret = token('new', '--subject', 'eve', '--description', 'revoked by this test');
        await until(async () => (await send(gateway.url, { headers: post({ authorization: `Bearer ${secret}` }), body: initialize('2025-11-25') })).status === 200, 5_000, 'the new token');
        const eve = await Caller.open(secret);
        const events = await stream(gateway.url, { headers: { ...eve.headers, accept: 'text/event-stream' } });
        assert.equal(events.status, 200);
        token('revoke', secret.split('_')[1]);
        const revoked = Date.now();
        while (await events.next()) continue; // until the stream ends
        assert.ok(Date.now() - revoked < 1_000, `the stream ended after ${Date.now() - revoked} ms`);
        const answer = await send(gateway.url, { headers: post(eve.headers), body: { jsonrpc: '2.0', id: 1, method: 'ping' } });
        assert.equal(answer.status, 401);
    });
});

describe('several providers', () => {
    let both;
    const start = providers =>
        startGateway({ auth: { providers }, policy: join(folder.path, 'both.json'), mcpServers: { demo: { command: demo } } });
    const bearer = () => ({ type: 'bearer', tokens: join(folder.path, 'tokens.json') });
    const opens = headers => send(both.url, { headers: post(headers), body: initialize('2025-11-25') });
    before(() => {
        const rules = [rule('only-that-ana', 'allow', { subjects: ['user:bearer:ana'], names: ['echo'] })];
        replace('both.json', JSON.stringify({ version: 1, description: 'One ana of two', rules }));
    });

    test('P2 equal names from two providers are different identities for policy and sessions', async () => {
        both = await start([bearer(), { type: 'forwarded-user', trusted_proxies: ['127.0.0.1'] }]);
        try {
            const ways = { bearer: { authorization: `Bearer ${ana}` }, forwarded: { 'x-forwarded-user': 'ana' } };
            const codes = {};
            for (const [way, headers] of Object.entries(ways)) {
                const session = { ...headers, 'mcp-session-id': (await opens(headers)).headers['mcp-session-id'] };
                const call = { jsonrpc: '2.0', id: 2, method: 'tools/call', params: { name: 'demo__echo', arguments: { message: 'hi' } } };
                codes[way] = reply(await send(both.url, { headers: post(session), body: call })).error?.code;
                const other = { ...ways[way === 'bearer' ? 'forwarded' : 'bearer'], 'mcp-session-id': session['mcp-session-id'] };
                assert.equal((await send(both.url, { headers: post(other), body: call })).status, 404, 'the session of the other ana');
            }
            assert.deepEqual(codes, { bearer: undefined, forwarded: 403 });
        } finally {
            await both.stop();
        }
    });
    test('P1 a credential that was presented and not accepted never falls through to none', async () => {
        both = await start([bearer(), { type: 'none' }]);
        try {
            assert.equal((await opens({})).status, 200, 'a caller without a credential is anonymous on loopback');
            assert.equal((await opens({ authorization: `Bearer ${ana}` })).status, 200);
            for (const value of [`Bearer ${ana.slice(0, -1)}`, 'Bearer postern_AAAAAAAA_0123456789012345678901234567890123456789012_AAAAAA', 'Bearer eyJhbGciOiJub25lIn0.e30.', 'Basic YTpi', 'Bearer', ''])
                assert.equal((await opens({ authorization: value })).status, 401, value);
        } finally {
            await both.stop();
        }
    });
});

describe('P7 the provider none', () => {
    const start = (address, more) => startGateway({ listen: [{ address }], prefix: false, mcpServers: { demo: { command: demo } }, ...more });
    test('P7 a listener beyond loopback needs i_know_this_is_open and still checks Host and Origin', async () => {
        await assert.rejects(start('0.0.0.0:0'), /not loopback/);
        const open = await start('0.0.0.0:0', { auth: { providers: [{ type: 'none', i_know_this_is_open: true }] } });
        try {
            const url = open.url.replace('0.0.0.0', '127.0.0.1');
            const ask = headers => send(url, { headers: post(headers), body: initialize('2025-11-25') });
            assert.equal((await ask({})).status, 200);
            assert.equal((await ask({ host: 'evil.example' })).status, 403);
            assert.equal((await ask({ origin: 'https://evil.example' })).status, 403);
            assert.equal((await ask({ authorization: `Bearer ${ana}` })).status, 401, 'a presented credential is not ignored');
        } finally {
            await open.stop();
        }
    });
    test('P7 a caller of the provider none is anonymous', async () => {
        const open = await start('127.0.0.1:0', { audit: { path: join(folder.path, 'none.db') } });
        try {
            await send(open.url, { headers: post(), body: initialize('2025-11-25') });
            const rows = () => execFileSync(binary, ['audit', '--file', join(folder.path, 'none.db')], { encoding: 'utf8' }).split('\n').filter(Boolean).map(line => JSON.parse(line));
            await until(() => rows().length === 1, 5_000, 'the record');
            assert.deepEqual([rows()[0].provider, rows()[0].subject, rows()[0].roles], ['none', 'anonymous', undefined]);
        } finally {
            await open.stop();
        }
    });
});
