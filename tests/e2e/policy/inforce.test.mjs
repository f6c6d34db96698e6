// A call is decided by the policy in force when it is sent to its server, regardless of how long it has waited.
import assert from 'node:assert/strict';
import { execFileSync, spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { afterEach, beforeEach, describe, test } from 'node:test';

import { binary, node, startGateway, temporaryDirectory, until } from '../gateway.mjs';
import { policyRule } from '../policy.mjs';
import { reply, Session } from '../raw.mjs';

const DENIED = 403;
const CONNECTIONS = 256; // of the gateway to one server

const rule = (id, more) => policyRule(id, 'allow', { subjects: ['anonymous'], servers: ['peer'], ...more });
const NOTHING = [rule('nothing', { names: ['no-such-tool'] })];
const DENY_ALL = [rule('all', { effect: 'deny', kinds: ['*'], names: ['*'] })];
const OTHER = [rule('other', { names: ['other'] })];
const ECHO = [rule('echo', { names: ['echo', 'other', 'task'] }), rule('read', { kinds: ['resource'], names: ['peer:///one'] })];

const RESULTS = {
    initialize: { protocolVersion: '2025-11-25', capabilities: { tools: {}, resources: { subscribe: true }, tasks: { list: {} } }, serverInfo: { name: 'peer', version: '1' } },
    'tools/list': { tools: ['echo', 'other', 'task'].map(name => ({ name, inputSchema: { type: 'object' } })) },
    'resources/list': { resources: [{ uri: 'peer:///one', name: 'one' }] },
    'tools/call': { content: [{ type: 'text', text: 'done' }] },
    'tasks/result': { content: [{ type: 'text', text: 'the secret of the task' }] },
    'tasks/list': { tasks: [{ taskId: 't1', status: 'completed' }] }
};
const answer = ({ id, method, params }) => ({
    jsonrpc: '2.0', id, result: params?.name === 'task' ? { task: { taskId: 't1', status: 'working' } } : RESULTS[method] ?? {}
});

/** A server over HTTP: `seen` has the methods that reached it; a method given to `hold` is answered after `release`. */
class Peer {
    seen = [];
    forgets = false; // forgets its session once: the next tools/call gets 404
    #held = new Map();

    static async start() {
        const peer = new Peer();
        peer.server = createServer((req, res) => peer.#serve(req, res)).listen(0, '127.0.0.1');
        await once(peer.server, 'listening');
        peer.url = `http://127.0.0.1:${peer.server.address().port}/mcp`;
        return peer;
    }
    hold(method) {
        let release;
        this.#held.set(method, { until: new Promise(resolve => (release = resolve)), release });
    }
    release(method) {
        this.#held.get(method).release();
        this.#held.delete(method);
    }
    count(method) {
        return this.seen.filter(one => one === method).length;
    }
    async #serve(req, res) {
        if (req.method !== 'POST') return res.writeHead(405).end();
        const message = JSON.parse(await text(req));
        this.seen.push(message.method);
        if (message.method === 'tools/call' && this.forgets) {
            this.forgets = false;
            return res.writeHead(404).end();
        }
        await this.#held.get(message.method)?.until;
        if (message.id === undefined) return res.writeHead(202).end();
        const head = { 'content-type': 'application/json', 'mcp-session-id': 's' };
        res.writeHead(200, head).end(JSON.stringify(answer(message)));
    }
    async stop() {
        for (const { release } of this.#held.values()) release();
        this.server.closeAllConnections();
        this.server.close();
        await once(this.server, 'close');
    }
}

let folder, policy, peer, gateway, loaded;
beforeEach(async () => {
    folder = temporaryDirectory();
    policy = join(folder.path, 'policy.json');
    peer = await Peer.start();
});
afterEach(async () => {
    await gateway?.stop();
    await peer.stop();
    folder.remove();
    gateway = undefined;
});

async function start(rules, server = { type: 'http', url: peer.url }) {
    writeFileSync(policy, JSON.stringify({ version: 1, description: 'A policy of this test', rules }));
    gateway = await startGateway({
        auth: { providers: [{ type: 'none' }] }, policy, prefix: false, audit: { path: join(folder.path, 'audit.db') },
        timeouts: { stream_after: '10ms', list: 60, shutdown: 2 }, mcpServers: { peer: server }
    });
    loaded = 1;
}

/** Replaces the policy; when this resolves, it is in force. */
async function swap(rules) {
    writeFileSync(policy, JSON.stringify({ version: 1, description: 'A policy of this test', rules }));
    process.kill(gateway.pid, 'SIGHUP');
    loaded++;
    await until(() => gateway.log().split('policy loaded').length > loaded, 10_000, 'the new policy is in force');
    await Session.open(gateway.url); // and the turn of the loop that loaded it has ended
}

const request = (method, params, id = 7) => ({ jsonrpc: '2.0', id, method, params });
const calling = (name, id) => request('tools/call', { name, arguments: {} }, id);

/** A request that waits in the gateway or at the server when this resolves; `answer()` resolves with its response. */
async function waiting(session, body) {
    const events = await session.postStream(body);
    assert.match(events.headers['content-type'], /^text\/event-stream/, 'it waits');
    return { answer: async () => (await events.message()).message };
}

/** The row of the audit log for which `wanted` is true. */
const rowOf = wanted => until(() => {
    const { stdout } = spawnSync(binary, ['audit', '--file', join(folder.path, 'audit.db')], { encoding: 'utf8' });
    return stdout.split('\n').filter(Boolean).map(line => JSON.parse(line)).find(wanted);
}, 10_000, 'its row');

function assertDenied({ error }, by) {
    assert.equal(error?.code, DENIED, JSON.stringify(error));
    assert.equal(error.data.rule, by);
}

describe('calls that wait for the lists of their server', () => {
    test('a waiting call is denied if the policy no longer allows it, and the audit names that policy', async () => {
        peer.hold('initialize');
        await start(ECHO);
        const call = await waiting(await Session.open(gateway.url), calling('echo'));
        await swap([...OTHER, ...DENY_ALL]);
        peer.release('initialize');
        assertDenied(await call.answer(), 'all');
        assert.equal(peer.count('tools/call'), 0);
        const row = await rowOf(({ method }) => method === 'tools/call');
        const digest = createHash('sha256').update(execFileSync(binary, ['policy', 'fmt', policy]) && readFileSync(policy)).digest('hex');
        assert.deepEqual([row.decision, row.rule, row.policy], ['deny', 'all', digest]);
    });
    test('a waiting call is allowed if the policy allows it meanwhile', async () => {
        peer.hold('initialize');
        await start(OTHER);
        const call = await waiting(await Session.open(gateway.url), calling('echo'));
        await swap(ECHO);
        peer.release('initialize');
        assert.equal((await call.answer()).result.content[0].text, 'done');
    });
    test('a waiting part of a batch is decided by the new policy', async () => {
        peer.hold('initialize');
        await start(ECHO);
        const batch = await waiting(await Session.open(gateway.url, { version: '2025-03-26' }), [calling('echo', 1), calling('other', 2)]);
        await swap(OTHER);
        peer.release('initialize');
        const answers = new Map();
        for (let i = 0; i < 2; i++) {
            const one = await batch.answer();
            answers.set(one.id, one);
        }
        assertDenied(answers.get(1), 'default');
        assert.equal(answers.get(2).result.content[0].text, 'done');
        assert.equal(peer.count('tools/call'), 1);
    });
    test('a waiting list shows items that the policy allows when it is made', async () => {
        peer.hold('initialize');
        await start(ECHO);
        const list = await waiting(await Session.open(gateway.url), request('tools/list'));
        await swap(OTHER);
        peer.release('initialize');
        assert.deepEqual((await list.answer()).result.tools.map(({ name }) => name), ['other']);
    });
});

describe('calls that wait after they were allowed', () => {
    /** A session that has used the server. */
    async function used() {
        const session = await Session.open(gateway.url);
        assert.ok((await session.call('echo')).result);
        await until(() => peer.count('resources/list') && peer.count('resources/templates/list'), 10_000, 'all its lists are fetched');
        peer.seen.length = 0;
        return session;
    }

    test('a call that waits for a new session with its server is not sent if it is denied meanwhile', async () => {
        await start(ECHO);
        const session = await used();
        peer.hold('initialize');
        peer.forgets = true;
        const call = await waiting(session, calling('echo'));
        await until(() => peer.count('initialize'), 10_000, 'the new session');
        assert.deepEqual(peer.seen, ['tools/call', 'initialize']);
        await swap(OTHER);
        peer.release('initialize');
        assertDenied(await call.answer(), 'default');
        assert.equal(peer.count('tools/call'), 1);
    });
    test('a call that waits for a new session with its server is sent again if it is still allowed', async () => {
        await start(ECHO);
        const session = await used();
        peer.hold('initialize');
        peer.forgets = true;
        const call = await waiting(session, calling('echo'));
        await swap([rule('new', { names: ['echo'] })]);
        peer.release('initialize');
        assert.equal((await call.answer()).result.content[0].text, 'done');
        assert.equal(peer.count('tools/call'), 2);
    });
    test('a waiting call that the new policy cannot judge is refused and recorded as denied', async () => {
        await start(ECHO);
        const session = await used();
        peer.hold('initialize');
        peer.forgets = true;
        const call = await waiting(session, request('tools/call', { name: 'echo', arguments: { message: 'x'.repeat(1 << 20) } }));
        await swap([rule('short', { names: ['echo'], when: { '/message': { max_len: 10 } } })]);
        peer.release('initialize');
        assert.equal((await call.answer()).error.data.reason, 'invalid_params');
        assert.equal(peer.count('tools/call'), 1);
        assert.equal((await rowOf(({ reason }) => reason === 'invalid_params')).decision, 'deny');
    });
    test('a call that waits for a connection is not sent if it is denied or its session ends', async () => {
        await start(ECHO);
        const session = await used(), ended = await Session.open(gateway.url);
        peer.hold('tools/call');
        const sent = await Promise.all(Array.from({ length: CONNECTIONS }, (_, i) => waiting(session, calling('other', i))));
        const call = await waiting(session, calling('echo', 1000));
        await waiting(ended, calling('other', 1001));
        await until(() => peer.count('tools/call') === CONNECTIONS, 60_000, 'every connection has a call');
        await swap(OTHER);
        assert.equal((await ended.delete()).status, 200);
        peer.release('tools/call');
        assertDenied(await call.answer(), 'default');
        for (const one of sent) assert.ok((await one.answer()).result, 'calls that were already sent are answered');
        assert.ok((await session.call('other')).result);
        assert.equal(peer.count('tools/call'), CONNECTIONS + 1);
    });
    test('a call that waits for a restart of its server is not sent if it is denied meanwhile', async () => {
        const [script, seen, ran, gate] = ['server.mjs', 'seen', 'ran', 'gate'].map(name => join(folder.path, name));
        execFileSync('mkfifo', [gate]);
        writeFileSync(script, `import { appendFileSync, existsSync, readFileSync, writeFileSync } from 'node:fs';
            import { createInterface } from 'node:readline';
            const RESULTS = ${JSON.stringify(RESULTS)}, answer = ${answer};
            if (existsSync(${JSON.stringify(ran)})) readFileSync(${JSON.stringify(gate)}); // blocks until the test opens it for writing
            writeFileSync(${JSON.stringify(ran)}, '');
            for await (const line of createInterface({ input: process.stdin })) {
                const message = JSON.parse(line);
                appendFileSync(${JSON.stringify(seen)}, message.method + '\\n');
                if (message.params?.name === 'other') process.exit(1);
                if (message.id !== undefined) process.stdout.write(JSON.stringify(answer(message)) + '\\n');
            }`);
        await start(ECHO, { command: node, args: [script] });
        const session = await Session.open(gateway.url);
        assert.ok((await session.call('echo')).result);
        assert.ok((await session.call('other')).error, 'the server ends');
        const call = await waiting(session, calling('echo'));
        await swap(NOTHING);
        await writeFile(gate, '');
        assertDenied(await call.answer(), 'default');
        assert.equal(readFileSync(seen, 'utf8').split('\n').filter(method => method === 'tools/call').length, 2);
        assert.ok(existsSync(ran));
    });
    test('a call that waits for its server to read is not sent if it is denied or cancelled', async () => {
        const [script, seen] = ['server.mjs', 'seen'].map(name => join(folder.path, name));
        writeFileSync(script, `import { appendFileSync } from 'node:fs';
            import { createInterface } from 'node:readline';
            const RESULTS = ${JSON.stringify(RESULTS)}, answer = ${answer};
            for await (const line of createInterface({ input: process.stdin })) {
                const message = JSON.parse(line);
                appendFileSync(${JSON.stringify(seen)}, message.method + ' ' + message.params?.arguments?.label + '\\n');
                if (message.id !== undefined) process.stdout.write(JSON.stringify(answer(message)) + '\\n');
                if (message.params?.arguments?.label === 'pid') appendFileSync(${JSON.stringify(seen)}, 'pid ' + process.pid + '\\n');
            }`);
        await start(ECHO, { command: node, args: [script] });
        const session = await Session.open(gateway.url);
        const labelled = (name, label, more) => request('tools/call', { name, arguments: { label, more } }, label);
        const lines = () => readFileSync(seen, 'utf8').split('\n');
        assert.ok((await session.call('echo', { label: 'pid' })).result);
        const pid = Number((await until(() => lines().find(line => line.startsWith('pid ')), 10_000, 'its process')).slice(4));
        process.kill(pid, 'SIGSTOP');
        const full = 'x'.repeat(1 << 21); // more than a pipe holds
        const begun = await waiting(session, labelled('echo', 'begun', full));
        const calls = await Promise.all(['first', 'last'].map(label => waiting(session, labelled('echo', label))));
        const kept = await waiting(session, labelled('other', 'kept'));
        await waiting(session, labelled('other', 'cancelled'));
        await session.post({ jsonrpc: '2.0', method: 'notifications/cancelled', params: { requestId: 'cancelled' } });
        await swap(OTHER);
        const sent = await waiting(session, labelled('other', 'sent'));
        process.kill(pid, 'SIGCONT');
        for (const call of calls) assertDenied(await call.answer(), 'default');
        for (const call of [begun, kept, sent]) assert.ok((await call.answer()).result);
        assert.deepEqual(lines().filter(line => line.startsWith('tools/call')), ['pid', 'begun', 'kept', 'sent'].map(label => `tools/call ${label}`));
    });
});

test('a subscription that the server confirms after a denial is cancelled', async () => {
    await start(ECHO);
    const session = await Session.open(gateway.url);
    assert.ok((await session.request('resources/list')).result);
    peer.hold('resources/subscribe');
    const call = await waiting(session, request('resources/subscribe', { uri: 'peer:///one' }));
    await swap(OTHER);
    peer.release('resources/subscribe');
    assertDenied(await call.answer(), 'default');
    await until(() => peer.count('resources/unsubscribe') === 1, 10_000, 'the server receives the cancellation');
});

test('a task of a fully denied server is not requested', async () => {
    await start(ECHO);
    const session = await Session.open(gateway.url);
    const { result } = await session.request('tools/call', { name: 'task', arguments: {}, task: {} });
    const taskId = result.task.taskId;
    assert.ok((await session.request('tasks/result', { taskId })).result);
    assert.deepEqual((await session.request('tasks/list')).result.tasks.map(one => one.taskId), [taskId]);
    peer.seen.length = 0;
    await swap(DENY_ALL);
    for (const method of ['tasks/get', 'tasks/result', 'tasks/cancel']) assertDenied(reply(await session.post(request(method, { taskId }))), 'default');
    assert.deepEqual((await session.request('tasks/list')).result.tasks, []);
    assert.deepEqual(peer.seen.filter(method => method.startsWith('tasks/')), []);
});

test('the status of a task reaches its owner while the policy allows an item of the server', async () => {
    const [script, seen] = ['server.mjs', 'seen'].map(name => join(folder.path, name));
    writeFileSync(seen, '');
    writeFileSync(script, `import { appendFileSync } from 'node:fs';
        import { createInterface } from 'node:readline';
        const RESULTS = ${JSON.stringify(RESULTS)}, answer = ${answer};
        const write = message => process.stdout.write(JSON.stringify({ jsonrpc: '2.0', ...message }) + '\\n');
        let progressToken, news = 0;
        process.on('SIGUSR2', () => {
            const message = 'news ' + ++news;
            write({ method: 'notifications/progress', params: { progressToken, progress: news, message } });
            write({ method: 'notifications/tasks/status', params: { taskId: 't1', status: 'working', statusMessage: message } });
            write({ id: message, method: 'ping' });
        });
        for await (const line of createInterface({ input: process.stdin })) {
            const message = JSON.parse(line);
            progressToken = message.params?._meta?.progressToken ?? progressToken;
            if (message.method && message.id !== undefined) write(answer(message));
            if (message.result || progressToken) appendFileSync(${JSON.stringify(seen)}, (message.result ? message.id : 'pid ' + process.pid) + '\\n');
        }`);
    await start(ECHO, { command: node, args: [script] });
    const session = await Session.open(gateway.url), events = await session.get();
    const has = wanted => until(() => readFileSync(seen, 'utf8').split('\n').find(line => line.startsWith(wanted)), 10_000, wanted);
    assert.ok((await session.request('tools/call', { name: 'task', arguments: {}, task: {}, _meta: { progressToken: 'mine' } })).result.task);
    const pid = Number((await has('pid ')).slice(4));
    for (const [i, rules] of [ECHO, DENY_ALL, ECHO].entries()) {
        await swap(rules);
        process.kill(pid, 'SIGUSR2');
        await has(`news ${i + 1}`); // the gateway has read them
    }
    const heard = [];
    while (heard.filter(one => one.endsWith('3')).length < 2) {
        const { message: { method, params } } = await events.message();
        if (/progress|status/.test(method)) heard.push(`${method.split('/').at(-1)} ${params.message ?? params.statusMessage}`);
    }
    assert.deepEqual(heard, ['progress news 1', 'status news 1', 'progress news 3', 'status news 3']);
});
