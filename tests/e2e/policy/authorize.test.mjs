// Authorization before a server receives a message: arguments that cannot be judged, every method, revoked subscriptions, refused policies.
import assert from 'node:assert/strict';
import { execFileSync, spawnSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { after, before, describe, test } from 'node:test';

import { ClientV1, HttpTransportV1, schemas } from '../../peers/clients.mjs';
import { binary, peerPath, startGateway, stdioServer, temporaryDirectory, until, writeConfig } from '../gateway.mjs';
import { policyRule } from '../policy.mjs';
import { initialize, post, reply, send } from '../raw.mjs';

const demo = join(dirname(binary), 'postern-demo');
const mirror = peerPath('mirror');
const rule = (id, effect, more) => policyRule(id, effect, { subjects: ['role:clerk'], servers: ['*'], names: ['*'], ...more });
const written = (rules, more = {}) => JSON.stringify({ version: 1, description: 'A policy of this test', rules, ...more });

let folder, tokens, secrets;
before(() => {
    folder = temporaryDirectory();
    tokens = join(folder.path, 'tokens.json');
    const make = (subject, ...more) => execFileSync(binary, ['token', 'new', '--file', tokens, '--subject', subject, ...more], { encoding: 'utf8' }).trim();
    secrets = { ann: make('ann', '--role', 'clerk'), bob: make('bob') };
});
after(() => folder.remove());

const start = (rules, mcpServers, more = {}) => {
    const policy = join(folder.path, 'policy.json');
    writeFileSync(policy, written(rules));
    return startGateway({ auth: { providers: [{ type: 'bearer', tokens }] }, policy, mcpServers, ...more });
};

/** Opens a session; returns a function that sends a body, as a tree or as a text, and returns the JSON of the answer. */
async function open(gateway, subject) {
    const headers = post({ authorization: `Bearer ${secrets[subject]}` });
    const opened = await send(gateway.url, { headers, body: initialize('2025-11-25') });
    assert.equal(opened.status, 200, opened.body);
    headers['mcp-session-id'] = opened.headers['mcp-session-id'];
    await send(gateway.url, { headers, body: { jsonrpc: '2.0', method: 'notifications/initialized' } });
    return async body => reply(await send(gateway.url, { headers, body }));
}

describe('X8 arguments that cannot be judged never reach a server', () => {
    let gateway, ask;
    const body = args => `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"demo__echo","arguments":${args}}}`;
    const nested = depth => `{"message":"hi","more":${'['.repeat(depth - 1)}${']'.repeat(depth - 1)}}`;
    before(async () => {
        gateway = await start([rule('all', 'allow'), rule('no-secret', 'deny', { when: { '/message': { eq: 'secret' } } })], { demo: { command: demo } });
        ask = await open(gateway, 'ann');
    });
    after(() => gateway?.stop());

    for (const [name, args, code] of [
        ['an object with a repeated key', '{"message":"hi","message":"secret"}', -32700],
        ['an object with a key repeated under an escape', String.raw`{"message":"hi","mess\u0061ge":"secret"}`, -32700],
        ['an object with a key repeated deep inside', '{"message":"hi","more":[{"a":1,"a":2}]}', -32700],
        ['nested 65 deep', nested(65), -32602], ['nested 10,000 deep', nested(10_000), -32700],
        ['a list', '["secret"]', -32602], ['a text', '"secret"', -32602], ['null', 'null', -32602],
        ['more than a megabyte', `{"message":"${'x'.repeat(1 << 20)}"}`, -32602]
    ])
        test(`X8 a call whose arguments are ${name} is refused`, async () => {
            const { error, result } = await ask(body(args));
            assert.equal(result, undefined);
            assert.equal(error.code, code, JSON.stringify(error));
        });
    test('X19 a denial names its rule and description, also in its message', async () => {
        const { error } = await ask(body('{"message":"secret"}'));
        assert.equal(error.message, 'Denied by policy (rule no-secret): the rule no-secret of this test');
        assert.deepEqual(error.data, { reason: 'denied', rule: 'no-secret', description: 'the rule no-secret of this test' });
        const stranger = await (await open(gateway, 'bob'))(body('{}'));
        assert.equal(stranger.error.message, 'Denied by policy (rule default)');
    });
    test('X8 arguments nested 64 deep are judged', async () => {
        assert.equal((await ask(body(nested(64).replace('hi', 'secret')))).error.data.rule, 'no-secret');
        assert.notEqual((await ask(body(nested(64)))).error?.code, 403);
        assert.equal((await ask(body('{"message":"hi"}'))).result.content[0].text, 'hi');
    });
    test('X16 each decision is recorded with its rule, policy digest and request', async () => {
        await ask(body('{"message":"secret"}'));
        const rows = () => execFileSync(binary, ['audit', '--file', join(gateway.state, 'audit.db'), '--json'], { encoding: 'utf8' }).trim().split('\n').map(line => JSON.parse(line));
        const [, digest] = await gateway.line(/digest=(\w{64})/);
        const row = await until(() => rows().findLast(({ rule: by }) => by === 'no-secret'), 5_000, 'the row');
        assert.deepEqual([row.decision, row.policy, row.status], ['deny', digest, 'denied']);
        assert.match(row.request, /\S/);
        assert.equal(rows().filter(({ request }) => request === row.request).length, 1);
    });
});

describe('X8 arguments without conditions', () => {
    let gateway, ask;
    const body = (args, method = 'tools/call') => `{"jsonrpc":"2.0","id":1,"method":"${method}","params":{"name":"demo__${method === 'tools/call' ? 'echo' : 'introduce'}","arguments":${args}}}`;
    before(async () => {
        gateway = await start([rule('all', 'allow', { kinds: ['*'] })], { demo: { command: demo } });
        ask = await open(gateway, 'ann');
    });
    after(() => gateway?.stop());

    const deep = depth => `{"message":"hi","more":${'['.repeat(depth - 1)}${']'.repeat(depth - 1)}}`;
    for (const [name, args] of [['nested 65 deep', deep(65)], ['a list', '["secret"]'], ['a text', '"secret"'], ['null', 'null'], ['a number', '1']])
        for (const method of ['tools/call', 'prompts/get'])
            test(`X8 arguments that are ${name} in ${method} are refused without conditions`, async () => {
                const { error } = await ask(body(args, method));
                assert.deepEqual([error?.code, error?.data.reason], [-32602, 'invalid_params'], JSON.stringify(error));
            });
    test('X8 arguments nested 64 deep or of two megabytes pass without conditions', async () => {
        assert.equal((await ask(body(deep(64)))).result.content[0].text, 'hi');
        const message = 'x'.repeat(2 << 20);
        assert.equal((await ask(body(JSON.stringify({ message })))).result.content[0].text, message);
    });
});

describe('X8 conditions are about the tools of their rule', () => {
    let gateway, ask;
    before(async () => {
        const secret = { when: { '/raw': { eq: 'secret' } } };
        const rules = [rule('some', 'allow', { names: ['mirror', 'reply'] }), rule('no-secret', 'deny', { names: ['reply'], ...secret }), rule('watched', 'deny', { mode: 'shadow', names: ['wait'], ...secret })];
        gateway = await start(rules, { m: { command: mirror } });
        ask = await open(gateway, 'ann');
    });
    after(() => gateway?.stop());

    const body = (name, args) => `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"${name}","arguments":${args}}}`;
    for (const [name, args] of [
        ['an integer beyond 64 bits', '{"n":12345678901234567890}'], ['a number beyond any double', '{"n":1e400}'],
        ['the name of an argument with U+0000', String.raw`{"a\u0000":1}`], ['the name of an argument with a lone surrogate', String.raw`{"\ud83d":1}`],
        ['an argument of more than a megabyte', `{"text":"${'x'.repeat(1 << 20)}"}`]
    ]) {
        test(`X8 ${name} reaches other tools as it was sent`, async () => {
            const { result } = await ask(body('m__mirror', args));
            assert.ok(result.content[0].text.endsWith(`"arguments":${args}}}`), result.content[0].text.slice(-200));
        });
        test(`X8 ${name} does not reach the tool of the rule`, async () => {
            const { error } = await ask(body('m__reply', args));
            assert.deepEqual([error?.code, error?.data.reason], [-32602, 'invalid_params'], JSON.stringify(error));
        });
        test(`X8 ${name} for a hidden tool is denied like for an unknown one`, async () => {
            const [hidden, missing] = [await ask(body('m__wait', args)), await ask(body('m__nothing', args))];
            assert.equal(hidden.error.data.reason, 'denied');
            assert.deepEqual(hidden.error, missing.error);
        });
    }
    test('X8 arguments that could not be judged are not in the log', () => assert.doesNotMatch(gateway.log(), /12345678901234567890/));
});

describe('X10 every method is authorized', () => {
    let gateway, ask;
    before(async () => {
        gateway = await start([rule('clerks', 'allow', { kinds: ['*'] })], { demo: { command: demo } });
        ask = await open(gateway, 'bob');
    });
    after(() => gateway?.stop());
    const request = (method, params = {}) => ask({ jsonrpc: '2.0', id: 1, method, params });

    for (const [method, params] of [['ping'], ['logging/setLevel', { level: 'error' }], ['tools/list'], ['prompts/list'], ['resources/list'], ['resources/templates/list']])
        test(`X10 ${method} is for every authenticated caller and shows only its own items`, async () => {
            const { result, error } = await request(method, params);
            assert.equal(error, undefined, JSON.stringify(error));
            assert.deepEqual(Object.values(result).flat(), []);
        });
    const uri = 'postern://demo/demo://welcome';
    for (const [method, params] of [
        ['tools/call', { name: 'demo__echo', arguments: { message: 'hi' } }], ['prompts/get', { name: 'demo__introduce', arguments: { name: 'Ann' } }],
        ['resources/read', { uri }], ['resources/subscribe', { uri }], ['resources/unsubscribe', { uri }],
        ['completion/complete', { ref: { type: 'ref/prompt', name: 'demo__introduce' }, argument: { name: 'name', value: 'A' } }],
        ['completion/complete', { ref: { type: 'ref/resource', uri: 'postern://demo/demo://greeting/{name}' }, argument: { name: 'name', value: 'A' } }]
    ])
        test(`X10 ${method} of ${params.ref?.type ?? params.name ?? uri} is decided by the policy`, async () => {
            const { error } = await request(method, params);
            assert.deepEqual([error?.code, error?.data.rule], [403, 'default'], JSON.stringify(error));
        });
    for (const method of ['tasks/get', 'tasks/result', 'tasks/cancel'])
        test(`X10 ${method} is only for the owner of the task`, async () => assert.ok((await request(method, { taskId: 'of-another-owner' })).error));
    for (const method of ['tools/destroy', 'initialize2', 'TOOLS/CALL', 'tools/call ', ''])
        test(`X10 the method "${method}" is denied`, async () => {
            const { error } = await request(method, { name: 'demo__echo' });
            assert.ok([-32601, -32600].includes(error?.code), JSON.stringify(error));
        });
    test('X10 an unknown method is recorded as a denial', async () => {
        await request('tools/obliterate');
        const rows = () => execFileSync(binary, ['audit', '--file', join(gateway.state, 'audit.db'), '--denied', '--json'], { encoding: 'utf8' }).trim().split('\n').filter(Boolean).map(line => JSON.parse(line));
        const row = await until(() => rows().find(({ method }) => method === 'tools/obliterate'), 5_000, 'the row');
        assert.deepEqual([row.decision, row.rule, row.reason], ['deny', 'builtin:method', 'method_not_found']);
    });
});

test('X15 a subscription ends with its policy in the same session', async () => {
    const policy = join(folder.path, 'policy.json');
    const tools = rule('tools', 'allow'), watch = rule('watch', 'allow', { kinds: ['resource'], names: ['test://*'] });
    const gateway = await start([tools, watch], { fixture: stdioServer.fixture() });
    const client = new ClientV1({ name: 'authorize', version: '1' });
    const updates = [];
    client.setNotificationHandler(schemas.ResourceUpdatedNotificationSchema, ({ params }) => void updates.push(params.uri));
    try {
        await client.connect(new HttpTransportV1(new URL(gateway.url), { requestInit: { headers: { authorization: `Bearer ${secrets.ann}` } } }));
        const uri = 'postern://fixture/test://watched-resource', trigger = () => client.callTool({ name: 'fixture__test_trigger_resource_update' });
        await client.subscribeResource({ uri });
        await trigger();
        await until(() => updates.includes(uri), 5_000, 'an update');
        const seen = gateway.log().length;
        writeFileSync(policy, written([tools]));
        process.kill(gateway.pid, 'SIGHUP');
        await until(() => gateway.log().slice(seen).includes('policy loaded'), 5_000, 'the new policy');
        const before = updates.length;
        await trigger();
        await trigger();  // updates are in order: the second answer follows the updates that the first would have caused
        await client.ping();
        assert.equal(updates.length, before);
        await assert.rejects(client.subscribeResource({ uri }), { code: 403 });
    } finally {
        await client.close();
        await gateway.stop();
    }
});

describe('X14 policies that stop the start', () => {
    const groups = { a: { description: 'the first of the two', members: ['group:b'] }, b: { description: 'the second of the two', members: ['group:a'] } };
    const failing = [{ description: 'is not so in this policy', as: { subject: 'bearer:ann' }, server: 'demo', name: 'echo', expect: 'deny' }];
    for (const [name, text, says] of [
        ['a typo in a key', written([rule('a', 'allow', { nmaes: ['x'] })]), /E1 \/rules\/0\/nmaes: unknown key/],
        ['a typo in an effect', written([rule('a', 'alow')]), /E7.*effect/s],
        ['an empty selector', written([rule('a', 'allow', { names: [] })]), /E5.*names: is empty/s],
        ['a missing selector', written([rule('a', 'allow', { subjects: undefined })]), /E5.*subjects: is empty/s],
        ['groups in a circle', written([], { groups }), /E6.*contains itself/s],
        ['a repeated key', '{"version":1,"version":1}', /E2.*duplicate/s],
        ['ten megabytes', `{"version":1,"description":"${'x'.repeat(10 << 20)}"}`, /larger than 4194304 bytes/],
        ['10,000 nested lists', `{"version":1,"rules":${'['.repeat(10_000)}`, /E7/],
        ['a failing test', written([rule('a', 'allow', { subjects: ['authenticated'] })], { tests: failing }), /E9.*expected deny, got allow by a/s],
        ['an unknown server', written([rule('a', 'allow', { servers: ['dmeo'] })]), /E4.*server "dmeo" does not exist/s],
        ['no content', '', /empty/]
    ])
        test(`X14 a policy with ${name} stops the start`, () => {
            const directory = temporaryDirectory(), policy = join(directory.path, 'p.json');
            writeFileSync(policy, text);
            const config = writeConfig(directory.path, {
                listen: [{ address: '127.0.0.1:0' }], auth: { providers: [{ type: 'bearer', tokens }] }, policy, mcpServers: { demo: { command: demo } }
            });
            const env = { ...process.env, POSTERN_STATE: directory.path };
            const { status, stderr } = spawnSync(binary, ['serve', '--config', config], { encoding: 'utf8', timeout: 20_000, env });
            directory.remove();
            assert.equal(status, 3, stderr);
            assert.match(stderr, says);
            assert.doesNotMatch(stderr, /listening/);
        });
});
