// Declarations of callers and servers in the handshake reach the other side: capabilities, instructions, roots.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';

import { ClientV1, HttpTransportV1, schemas, TaskStoreV1 } from '../../peers/clients.mjs';
import { binary, peerPath, startGateway, stdioServer, temporaryDirectory, until } from '../gateway.mjs';
import { policyRule } from '../policy.mjs';
import { post, reply, resultText, send } from '../raw.mjs';

const mirror = peerPath('mirror');
const TOOLS = ['--tools', '["greeting","ask","ask_later","received"]'];
const server = (isolation, ...args) => ({ command: mirror, args: [...TOOLS, ...args], isolation });
const rule = (id, more) => policyRule(id, 'allow', { servers: ['*'], kinds: ['*'], names: ['*'], ...more });
// ann and ben may do everything, dora may call a tool that does not exist, and no rule names eve.
const rules = [
    rule('all', { subjects: ['user:bearer:ann', 'user:bearer:ben', 'user:bearer:cleo'] }),
    rule('dora', { subjects: ['user:bearer:dora'], kinds: ['tool'], names: ['no-such-tool'] })
];

let folder, tokens, secrets;
before(() => {
    folder = temporaryDirectory();
    tokens = join(folder.path, 'tokens.json');
    const make = subject => execFileSync(binary, ['token', 'new', '--file', tokens, '--subject', subject], { encoding: 'utf8' }).trim();
    secrets = Object.fromEntries(['ann', 'ben', 'cleo', 'dora', 'eve'].map(name => [name, make(name)]));
    writeFileSync(join(folder.path, 'policy.json'), JSON.stringify({ version: 1, description: 'A policy of this test', rules }));
});
after(() => folder.remove());

const start = mcpServers =>
    startGateway({ auth: { providers: [{ type: 'bearer', tokens }] }, policy: join(folder.path, 'policy.json'), mcpServers });

/** A session without an SDK. `capabilities` is text; without it, the member is left out. */
async function open(gateway, subject, capabilities, version = '2025-11-25') {
    const headers = post({ authorization: `Bearer ${secrets[subject]}` });
    const params = `{"protocolVersion":"${version}"${capabilities ? `,"capabilities":${capabilities}` : ''},"clientInfo":{"name":"raw","version":"1"}}`;
    const opened = await send(gateway.url, { headers, body: `{"jsonrpc":"2.0","id":1,"method":"initialize","params":${params}}` });
    const session = { status: opened.status, body: opened.body, answer: reply(opened) };
    headers['mcp-session-id'] = opened.headers['mcp-session-id'];
    session.tell = body => send(gateway.url, { headers, body });
    session.ask = async (method, params) => reply(await session.tell({ jsonrpc: '2.0', id: 2, method, params }));
    session.call = async (name, args = {}) => resultText(await session.ask('tools/call', { name, arguments: args }));
    session.end = () => send(gateway.url, { method: 'DELETE', headers });
    if (session.answer.result) await session.tell({ jsonrpc: '2.0', method: 'notifications/initialized' });
    return session;
}

/** A client of the SDK that answers requests with `answers`: method -> function of the params. */
async function connect(gateway, subject, capabilities, answers = {}, options = {}) {
    const client = new ClientV1({ name: 'sdk', version: '1' }, { capabilities, ...options });
    const heard = [];
    client.fallbackRequestHandler = async ({ method, params }) => answers[method](params);
    client.fallbackNotificationHandler = async notification => void heard.push(notification);
    const headers = subject && { authorization: `Bearer ${secrets[subject]}` };
    await client.connect(new HttpTransportV1(new URL(gateway.url), { requestInit: { headers } }));
    const call = async (name, args = {}) => (await client.callTool({ name, arguments: args }, undefined, { timeout: 30_000 })).content[0].text;
    /** The answer that the server received to its question. */
    const asked = async (name, method, params) => {
        const { result, error } = JSON.parse(await call(`${name}__ask`, { method, params: params && JSON.stringify(params) }));
        return error ?? result;
    };
    return { client, heard, call, asked, end: () => client.transport.terminateSession().then(() => client.close()) };
}

const declaredTo = async (session, name) => /"capabilities":(.*),"clientInfo"/.exec(await session.call(`${name}__greeting`))[1];

describe('capabilities of callers', () => {
    let gateway;
    before(async () => (gateway = await start({ own: server('session'), user: server('user'), shared: server('shared') })));
    after(() => gateway?.stop());

    const ODD = String.raw`{"tasks":{"cancel":{},"list":{},"requests":{"elicitation":{"create":{}},"sampling":{"createMessage":{}}}}, "elicitation":{"url":{}},"roots":{"listChanged":false,"deep":[1.0,-0]},"sampling":{"tools":{},"context":{}},"extensions":{"io.modelcontextprotocol\/ui":{"mimeTypes":["text/html;profile=mcp-app"]}},"experimental":{"\u00e9":{"n":1E+2,"big":12345678901234567890}},"vendor":[null]}`;
    for (const [what, text, wanted = text] of [['byte for byte', ODD], ['nothing more', '{}'], ['an empty elicitation', '{"elicitation":{}}'], ['none at all', undefined, '{}'], ['no object', '[]', '{}'], ['one line', '{"x":\n{"jsonrpc":"2.0","id":1,"method":"ping"}\n}', '{"x": {"jsonrpc":"2.0","id":1,"method":"ping"} }']])
        test(`capabilities reach a server of one session unchanged: ${what}`, async () => {
            const session = await open(gateway, 'ann', text);
            assert.equal(await declaredTo(session, 'own'), wanted);
            await session.end();
        });
    test('capabilities reach a server of one session again after a restart', async () => {
        const session = await open(gateway, 'ann', ODD);
        await session.ask('tools/call', { name: 'own__crash', arguments: {} });
        assert.equal(await declaredTo(session, 'own'), ODD);
        await session.end();
    });
    test('capabilities for a shared server are those that the gateway supports', async () => {
        const session = await open(gateway, 'ann', ODD);
        for (const name of ['user', 'shared'])
            assert.equal(await declaredTo(session, name), '{"roots":{"listChanged":true},"sampling":{"context":{},"tools":{}},"elicitation":{"form":{},"url":{}}}');
        await session.end();
    });
    test('capabilities above 64 KiB are refused', async () => {
        const session = await open(gateway, 'ann', `{"experimental":{"x":{"text":"${'x'.repeat(65_536)}"}}}`);
        assert.equal(session.answer.error.data.reason, 'invalid_params');
        assert.match(session.answer.error.message, /capabilities is longer than 65536 bytes/);
    });
});

describe('tasks that callers run for servers', () => {
    const TASKS = { tasks: { list: {}, cancel: {}, requests: { sampling: { createMessage: {} }, elicitation: { create: {} } } }, sampling: {}, elicitation: {} };
    let gateway;
    before(async () => (gateway = await start({
        one: server('session', '--capabilities', '"tasks":{"list":{}}'), two: server('session'), shared: server('shared'), everything: { ...stdioServer.everything(), isolation: 'session' }
    })));
    after(() => gateway?.stop());

    test('a real server samples by a task of a real client', async () => {
        const taskStore = new TaskStoreV1();
        const peer = await connect(gateway, 'ann', TASKS, {}, { taskStore });
        peer.client.setRequestHandler(schemas.CreateMessageRequestSchema, async ({ params }, extra) => {
            const sampled = { model: 'test', role: 'assistant', content: { type: 'text', text: 'sampled later' } };
            if (!params.task) return sampled;
            const task = await extra.taskStore.createTask({ ttl: params.task.ttl });
            await extra.taskStore.storeTaskResult(task.taskId, 'completed', sampled);
            return { task };
        });
        await until(async () => (await peer.client.listTools()).tools.some(({ name }) => name === 'everything__trigger-sampling-request-async'), 10_000, 'the tool');
        const text = await peer.call('everything__trigger-sampling-request-async', { prompt: 'hello' });
        assert.match(text, /\[COMPLETED\][^]*sampled later/);
        taskStore.cleanup();
        await peer.end();
    });

    /** A client that turns questions into tasks whose id is the system prompt of the question. */
    const host = async (capabilities = TASKS) => {
        const got = [];
        const task = taskId => ({ taskId, status: 'working', createdAt: '2026-01-01T00:00:00Z', lastUpdatedAt: '2026-01-01T00:00:00Z', ttl: null });
        const note = answer => params => (got.push(params), answer(params));
        const peer = await connect(gateway, 'ann', capabilities, {
            'sampling/createMessage': ({ systemPrompt }) => ({ task: task(systemPrompt) }),
            'tasks/get': note(({ taskId }) => task(taskId)),
            'tasks/result': note(({ taskId }) => ({ model: 'm', role: 'assistant', content: { type: 'text', text: `result of ${taskId}` } })),
            'tasks/cancel': note(({ taskId }) => ({ ...task(taskId), status: 'cancelled' })),
            'tasks/list': note(() => ({ tasks: ['t1', 't2', 'other'].map(task), nextCursor: 'more', _meta: { kept: true } }))
        });
        return { ...peer, got, sample: (name, systemPrompt) => peer.asked(name, 'sampling/createMessage', { messages: [], maxTokens: 1, systemPrompt, task: {} }) };
    };
    test('a server gets, collects and cancels only the tasks of its own questions', async () => {
        const peer = await host();
        assert.equal((await peer.sample('one', 't1')).task.taskId, 't1');
        assert.equal((await peer.sample('two', 't2')).task.taskId, 't2');
        assert.equal((await peer.asked('one', 'tasks/get', { taskId: 't1' })).taskId, 't1');
        assert.equal((await peer.asked('one', 'tasks/result', { taskId: 't1' })).content.text, 'result of t1');
        assert.equal((await peer.asked('two', 'tasks/cancel', { taskId: 't2' })).status, 'cancelled');
        assert.deepEqual(peer.got.map(({ taskId }) => taskId), ['t1', 't1', 't2']);
        for (const [name, taskId] of [['two', 't1'], ['one', 't2'], ['one', 'other'], ['one', undefined], ['one', 7]])
            for (const method of ['tasks/get', 'tasks/result', 'tasks/cancel'])
                assert.equal((await peer.asked(name, method, { taskId })).code, -32602, `${name} ${method} ${taskId}`);
        assert.equal(peer.got.length, 3);
        const { tasks, nextCursor, _meta } = await peer.asked('one', 'tasks/list', {});
        assert.deepEqual([tasks.map(({ taskId }) => taskId), nextCursor, _meta], [['t1'], 'more', { kept: true }]);
        await peer.end();
    });
    test('a task id that the caller would read differently is not passed on', async () => {
        const peer = await host();
        await peer.sample('one', 't1');
        await peer.sample('two', 't2');
        const ask = async params => JSON.parse(await peer.call('two__ask', { method: 'tasks/get', params }));
        assert.equal((await ask('{"taskId":"t2","TaskId":"t1","taskId":"t1","_meta":{"a":1}}')).result.taskId, 't2');
        assert.deepEqual(peer.got.map(({ taskId, TaskId, _meta }) => [taskId, TaskId, _meta.a]), [['t2', undefined, 1]]);
        await peer.end();
    });
    test('the status of a task is sent to the server that created it', async () => {
        const peer = await host();
        await peer.sample('one', 't1');
        await peer.sample('two', 't2');
        for (const taskId of ['t1', 't2', 'other'])
            await peer.client.notification({ method: 'notifications/tasks/status', params: { taskId, status: 'completed', createdAt: 'x', lastUpdatedAt: 'x', ttl: null } });
        const statuses = async name => (await peer.call(`${name}__received`)).split('\n').map(JSON.parse).filter(({ method }) => method === 'notifications/tasks/status').map(({ params }) => params.taskId);
        assert.deepEqual([await statuses('one'), await statuses('two')], [['t1'], ['t2']]);
        await peer.end();
    });
    test('a task method that the caller did not declare or that a shared server uses is unknown', async () => {
        const peer = await host({ sampling: {} }), able = await host();
        for (const method of ['tasks/get', 'tasks/result', 'tasks/cancel', 'tasks/list']) {
            assert.equal((await peer.asked('one', method, { taskId: 't1' })).code, -32601, method);
            assert.equal((await able.asked('shared', method, { taskId: 't1' })).code, -32601, method);
        }
        assert.deepEqual([peer.got, able.got], [[], []]);
        await Promise.all([peer.end(), able.end()]);
    });
});

describe('instructions and capabilities of servers', () => {
    const one = '"tasks":{"list":{}},"extensions":{"io.modelcontextprotocol\\/ui":{"n":1.0},"x/one":{}},"experimental":{"a":{"from":"one"},"bad":7,"half":{"x":"\\udc00"},"\\ud800":{}}';
    const two = '"extensions":{"io.modelcontextprotocol/ui":{"n":2},"x/two":{"deep":[1E+2,{}]}},"experimental":["no object"]';
    let gateway;
    before(async () => (gateway = await start({
        one: server('shared', '--capabilities', one, '--instructions', String.raw`"one says \ud83d hello"`),
        two: server('shared', '--capabilities', two),
        large: server('shared', '--capabilities', `"experimental":{"large":{"x":"${'x'.repeat(20_000)}"}}`),
        user: server('user', '--capabilities', '"experimental":{"user":{"pid":%PID%}}', '--instructions', '"user %PID%"'),
        own: server('session', '--capabilities', '"experimental":{"own":{"pid":%PID%}}', '--instructions', '"own %PID%"')
    })));
    after(() => gateway?.stop());

    const known = ({ answer: { result } }) => ({ ...result.capabilities.extensions, ...result.capabilities.experimental });
    test('declarations of servers are merged into the answer to initialize in order of the servers', async () => {
        const first = await open(gateway, 'ann', '{}');
        assert.deepEqual([known(first), first.answer.result.instructions], [{}, undefined]);
        await first.ask('tools/list');
        const { body, end } = await open(gateway, 'ben', '{}');
        assert.ok(body.includes(String.raw`"extensions":{"io.modelcontextprotocol\/ui":{"n":1.0},"x/one":{},"x/two":{"deep":[1E+2,{}]}},"experimental":{"a":{"from":"one"}}`), body);
        assert.ok(body.includes('"instructions":"Server \\"one\\" says:\\none says \ufffd hello"'), body);
        await Promise.all([first.end(), end()]);
    });
    test('declarations of servers reach SDK clients', async () => {
        const peer = await connect(gateway, 'ann', {});
        const { extensions, experimental, tasks } = peer.client.getServerCapabilities();
        assert.deepEqual(Object.keys(extensions), ['io.modelcontextprotocol/ui', 'x/one', 'x/two']);
        assert.deepEqual(experimental.a, { from: 'one' });
        assert.ok(tasks.requests.tools.call);
        await peer.end();
    });
    test('declarations of a server per user or session are remembered for that user only', async () => {
        const first = await open(gateway, 'cleo', '{}');
        await first.ask('tools/list');
        await first.end();
        const again = await open(gateway, 'cleo', '{}');
        const { user, own } = known(again);
        assert.match(again.answer.result.instructions, new RegExp(`Server "user" says:\nuser ${user.pid}\n\nServer "own" says:\nown ${own.pid}$`));
        const other = await open(gateway, 'ben', '{}');
        assert.deepEqual([known(other).user, known(other).own], [undefined, undefined]);
        assert.doesNotMatch(other.body, new RegExp(`${user.pid}|${own.pid}`));
        await Promise.all([again.end(), other.end()]);
    });
    test('declarations of an ended server are remembered', async () => {
        const session = await open(gateway, 'ann', '{}');
        await session.ask('tools/call', { name: 'one__crash', arguments: {} });
        const next = await open(gateway, 'ann', '{}');
        assert.match(next.answer.result.instructions, /one says . hello/);
        assert.ok(known(next)['x/one']);
        await Promise.all([session.end(), next.end()]);
    });
    test('X9 declarations of a server are shown to callers that may use an item of it', async () => {
        for (const subject of ['dora', 'eve']) {
            for (let i = 0; i < 2; i++) {
                const session = await open(gateway, subject, '{}');
                assert.deepEqual([known(session), session.answer.result.instructions], [{}, undefined], subject);
                await session.ask('tools/list');
                await session.end();
            }
        }
    });
    test('methods of extensions are refused', async () => {
        const session = await open(gateway, 'ann', '{}');
        assert.equal((await session.ask('x/one', {})).error.code, -32601);
        await session.end();
    });
});

describe('roots of callers at a shared server', () => {
    let gateway;
    before(async () => (gateway = await start({ shared: server('shared') })));
    after(() => gateway?.stop());

    const withRoots = (subject, capabilities = { roots: { listChanged: true } }) =>
        connect(gateway, subject, capabilities, { 'roots/list': () => ({ roots: [{ uri: `file:///home/${subject}` }] }) });
    const seen = async peer => (await peer.asked('shared', 'roots/list')).roots.map(({ uri }) => uri);
    const changes = async peer => (await peer.call('shared__received')).split('\n').filter(text => text.includes('roots/list_changed')).length;

    test('roots reach a shared server while one identity uses it and are withdrawn when another one does', async () => {
        const ann = await withRoots('ann');
        assert.deepEqual(await seen(ann), ['file:///home/ann']);
        const more = await withRoots('ann');
        assert.deepEqual(await seen(more), ['file:///home/ann']);
        const before = await changes(ann);
        const ben = await withRoots('ben');
        assert.equal(await changes(ben), before + 1, 'the server is notified before ben can call it');
        assert.deepEqual([await seen(ben), await seen(ann)], [[], []]);
        await ben.end();
        assert.deepEqual(await seen(ann), ['file:///home/ann']);
        await Promise.all([ann.end(), more.end()]);
    });
    test('roots of the last caller are withdrawn when the next one arrives', async () => {
        const ann = await withRoots('ann');
        assert.deepEqual(await seen(ann), ['file:///home/ann']);
        const before = await changes(ann);
        await ann.end();
        const ben = await withRoots('ben', {});
        assert.equal(await changes(ben), before + 1);
        assert.deepEqual(await seen(ben), []);
        await ben.end();
    });
    test('roots requested before another identity arrives are not passed on later', async () => {
        let answer, question;
        const asked = new Promise(resolve => (question = resolve));
        const ann = await connect(gateway, 'ann', { roots: {} }, { 'roots/list': () => (question(), new Promise(resolve => (answer = resolve))) });
        const waiting = ann.asked('shared', 'roots/list');
        await asked;
        const ben = await withRoots('ben');
        answer({ roots: [{ uri: 'file:///late' }] });
        assert.deepEqual((await waiting).roots, []);
        await Promise.all([ann.end(), ben.end()]);
    });
    test('an identity that may not use the server does not affect its roots', async () => {
        const ann = await withRoots('ann'), eve = await withRoots('eve');
        assert.deepEqual(await seen(ann), ['file:///home/ann']);
        await Promise.all([ann.end(), eve.end()]);
    });
    test('roots are not requested outside of a call', async () => {
        const asked = [];
        const ann = await connect(gateway, 'ann', { roots: { listChanged: true } }, { 'roots/list': params => (asked.push(params), { roots: [{ uri: 'file:///' }] }) });
        const before = await changes(ann);
        const file = join(folder.path, 'later');
        await ann.call('shared__ask_later', { method: 'roots/list', file });
        await until(() => existsSync(file), 20_000, 'the response'); // without a call, during which the roots would be requested
        assert.deepEqual(JSON.parse(readFileSync(file)).result, { roots: [] });
        await ann.client.sendRootsListChanged();
        assert.equal(await changes(ann), before);
        assert.deepEqual(asked, []);
        await ann.end();
    });
    test('roots are requested at any time, and again after a change, where all callers are one identity', async () => {
        const own = await startGateway({ mcpServers: { everything: stdioServer.everything() } });
        let uri = 'file:///first';
        const ann = await connect(own, undefined, { roots: { listChanged: true } }, { 'roots/list': () => ({ roots: [{ uri }] }) });
        const shows = wanted => until(async () => (await ann.call('everything__get-roots-list')).includes(wanted), 10_000, wanted);
        await shows('file:///first');
        uri = 'file:///second';
        await ann.client.sendRootsListChanged();
        await shows('file:///second');
        await ann.end();
        uri = 'file:///third';
        const next = await connect(own, undefined, { roots: {} }, { 'roots/list': () => ({ roots: [{ uri }] }) });
        await until(async () => (await next.call('everything__get-roots-list')).includes('file:///third'), 10_000, 'the roots of the next session');
        await next.end();
        await own.stop();
    });
});
