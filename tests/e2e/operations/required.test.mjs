// audit.required: an answer is sent only after its row is stored, even if the gateway is killed at that moment; and the errors for callers
// if the row cannot be written.
import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { describe, test } from 'node:test';

import { binary, peerPath, settles, startGateway, temporaryDirectory, until, watch, writeConfig } from '../gateway.mjs';
import { initialize, post, reply, resultText, send, Session, stream } from '../raw.mjs';

const mirror = peerPath('mirror');
const WAIT_MS = 20_000;
const MCP = { m: { command: mirror } };

const tool = (id, name, args, meta) => ({ jsonrpc: '2.0', id, method: 'tools/call', params: { name: `m__${name}`, arguments: args, ...(meta && { _meta: meta }) } });
const digest = args => createHash('sha256').update(JSON.stringify(args)).digest('hex');
const rowsIn = file => execFileSync(binary, ['audit', '--file', file, '--json', '--limit', '100000'], { encoding: 'utf8', maxBuffer: 1 << 28 }).split('\n').filter(Boolean).map(line => JSON.parse(line));

/** A session over HTTP+SSE; `ask` resolves with the answer. */
async function openPipe(origin) {
    const events = await stream(`${origin}/sse`, { headers: { accept: 'text/event-stream' } });
    const url = new URL((await events.next()).data, origin);
    const say = body => send(url, { headers: { 'content-type': 'application/json' }, body });
    const ask = async body => {
        assert.equal((await say(body)).status, 202);
        for (;;) {
            const { message } = await events.message();
            if (message.id === body.id) return message;
        }
    };
    await ask(initialize('2024-11-05'));
    await say({ jsonrpc: '2.0', method: 'notifications/initialized' });
    return ask;
}

/** Ways to make a call with these arguments; each resolves when the last byte of the answer has come. */
const ways = {
    JSON: async ({ url }) => {
        const session = await Session.open(url);
        return async (id, args) => reply(await session.post(tool(id, 'mirror', args)));
    },
    'an event stream': async ({ url }) => {
        const session = await Session.open(url);
        return async (id, args) => {
            const answer = await session.post(tool(id, 'reply', { ...args, raw: '{"content":[]}', count: 1 }, { progressToken: id }));
            assert.equal(answer.headers['content-type'], answer.status === 200 ? 'text/event-stream' : 'application/json');
            return reply(answer);
        };
    },
    'a batch': async ({ url }) => {
        const session = await Session.open(url, { version: '2025-03-26' });
        return async (id, args) => {
            const answer = reply(await session.post([tool(id, 'mirror', args), { jsonrpc: '2.0', method: 'notifications/roots/list_changed' }]));
            return Array.isArray(answer) ? answer[0] : answer; // not an array on an event stream
        };
    },
    'HTTP+SSE': async ({ origin }) => {
        const ask = await openPipe(origin);
        return (id, args) => ask(tool(id, 'mirror', args));
    }
};

test('every answered call has its row when the gateway is killed under load', async () => {
    const ROUNDS = 6, CALLERS = 3, BEFORE = 40;
    const folder = temporaryDirectory(), file = join(folder.path, 'audit.db');
    const path = writeConfig(folder.path, { listen: [{ address: '127.0.0.1:0' }], audit: { path: file, required: true }, mcpServers: MCP });
    const answered = new Map();
    let next = 0;
    /** Makes calls until the gateway is killed, and records the answered ones. */
    async function caller(way, child) {
        try {
            for (const call = await way; child.signalCode === null; ) {
                const id = ++next, mark = { n: `call ${id}` };
                const { result } = await call(id, mark);
                assert.ok(result);
                answered.set(id, mark);
                if (answered.size % BEFORE === 0) child.kill('SIGKILL');
            }
        } catch (error) {
            assert.ok(child.killed, error);
        }
    }
    try {
        for (let round = 0; round < ROUNDS; round++) {
            const child = spawn(binary, ['serve', '--config', path], { stdio: ['ignore', 'ignore', 'pipe'], env: { ...process.env, POSTERN_STATE: folder.path } });
            const gateway = watch(child, 'stderr');
            const url = (await gateway.line(/listening\b.*\burl=(\S+)/, WAIT_MS))[1];
            const opened = Object.values(ways).flatMap(way => Array.from({ length: CALLERS }, () => way({ url, origin: new URL(url).origin })));
            await Promise.all(opened.map(way => caller(way, child)));
            assert.equal((await gateway.exited).signal, 'SIGKILL', gateway.log());
        }
        const seen = new Set(rowsIn(file).map(row => row.arguments_sha256));
        const lost = [...answered].filter(([, mark]) => !seen.has(digest(mark)) && !seen.has(digest({ ...mark, raw: '{"content":[]}', count: 1 })));
        assert.deepEqual(lost, [], `${lost.length} of ${answered.size} answered calls have no row`);
        assert.match(execFileSync(binary, ['audit', 'verify', '--file', file], { encoding: 'utf8' }), /rows/);
    } finally {
        folder.remove();
    }
});

/** Runs `body` with a gateway whose audit is required, and functions that lock and unlock its database. */
async function lockable(config, body) {
    const folder = temporaryDirectory(), file = join(folder.path, 'audit.db');
    const gateway = await startGateway({ audit: { path: file, required: true }, mcpServers: MCP, ...config });
    const lock = new DatabaseSync(file);
    try {
        await body({ gateway, file, at: name => join(folder.path, name), lock: () => lock.exec('BEGIN IMMEDIATE'), unlock: () => lock.exec('ROLLBACK') });
    } finally {
        lock.close();
        await gateway.stop();
        folder.remove();
    }
}

describe('an audit that cannot be written', { concurrency: true }, () => {
    for (const [name, way] of Object.entries(ways))
        test(`an audit that cannot be written withholds answers over ${name} and then refuses calls`, () => lockable({}, async ({ gateway, file, lock, unlock }) => {
            const call = await way(gateway);
            assert.ok((await call(1, {})).result);
            lock();
            const { id, error } = await call(2, {});
            assert.deepEqual([id, error?.code, error?.data.reason], [2, -32000, 'audit_unavailable']);
            assert.match(error.message, /the server may have/);
            await gateway.line(/answer withheld/);
            assert.equal((await call(3, {})).error.data.reason, 'overloaded');
            unlock();
            await gateway.line(/audit writes resumed/, WAIT_MS);
            assert.ok((await call(4, {})).result);
            const told = rowsIn(file).filter(({ method }) => method === 'tools/call').map(({ status, reason }) => [status, reason]);
            assert.deepEqual(told, [['ok', undefined], ['ok', undefined], ['error', 'overloaded'], ['ok', undefined]], 'the completed call is recorded, although late');
        }));

    test('an audit that cannot be written refuses new sessions', () => lockable({ timeouts: { stream_after: '1ms' } }, async ({ gateway, lock, unlock }) => {
        lock();
        const answer = await send(gateway.url, { headers: post(), body: initialize('2025-11-25') });
        assert.deepEqual([answer.status, answer.headers['mcp-session-id'], reply(answer).error?.data.reason], [200, undefined, 'audit_unavailable']);
        unlock();
        await gateway.line(/audit writes resumed/, WAIT_MS);
        await Session.open(gateway.url);
    }));
});

describe('while a row is being written', () => {
    /** A call that the server has answered; its row waits for the lock. */
    async function waiting({ gateway, at, lock }, id = 1) {
        const session = await Session.open(gateway.url);
        const begun = at(`begun-${id}`), go = at(`go-${id}`);
        const answer = session.post(tool(id, 'wait', { file: go, begun }));
        await until(() => existsSync(begun), WAIT_MS, 'the server has the call');
        lock();
        execFileSync('touch', [go]);
        await until(() => health(gateway).then(({ audit }) => audit.queued > 0), WAIT_MS, 'its row waits');
        return { session, answer };
    }
    const health = async ({ origin }) => JSON.parse((await send(`${origin}/healthz`, { method: 'GET' })).body);

    test('a call whose row is being written is answered although it is cancelled', () => lockable({}, async given => {
        const { session, answer } = await waiting(given);
        assert.equal((await session.post({ jsonrpc: '2.0', method: 'notifications/cancelled', params: { requestId: 1 } })).status, 202);
        given.unlock();
        assert.equal(resultText(reply(await answer)), 'waited');
    }));

    for (const stream_after of ['1ms', '60s'])
        test(`a call whose row is being written is answered although its session ends (stream after ${stream_after})`, () => lockable({ timeouts: { stream_after } }, async given => {
            const { session, answer } = await waiting(given);
            const listening = await session.get();
            assert.equal((await session.delete()).status, 200);
            given.unlock();
            assert.equal(resultText(reply(await answer)), 'waited');
            assert.equal(await listening.message(), undefined, 'the stream ends with the session');
            assert.equal((await session.post(tool(2, 'mirror', {}))).status, 404);
        }));

    test('a call whose row is being written is recorded although its caller disconnects', () => lockable({}, async given => {
        const session = await Session.open(given.gateway.url);
        await session.call('m__mirror');
        given.lock();
        const events = stream(session.url, { method: 'POST', headers: session.headers(post()), body: tool(2, 'reply', { raw: '{"content":[]}', count: 1 }, { progressToken: 1 }) });
        await (await events).message();
        (await events).drop();
        given.unlock();
        await until(() => rowsIn(given.file).filter(({ name }) => name === 'reply').length === 1, WAIT_MS, 'the row');
    }));

    test('a call whose row is being written is answered during a stop', () => lockable({ timeouts: { shutdown: '4s' } }, async given => {
        const { answer } = await waiting(given);
        given.gateway.child.kill('SIGTERM');
        await given.gateway.line(/stopping/, WAIT_MS);
        given.unlock();
        assert.equal(resultText(reply(await answer)), 'waited');
        assert.ok(await settles(given.gateway.exited, WAIT_MS));
        assert.deepEqual(rowsIn(given.file).filter(({ name }) => name === 'wait').map(({ status }) => status), ['ok']);
    }));

    test('a call whose row cannot be written during a stop gets an error', () => lockable({ timeouts: { shutdown: '1s' } }, async given => {
        const { answer } = await waiting(given);
        given.gateway.child.kill('SIGTERM');
        const { error } = reply(await answer);
        assert.equal(error?.data.reason, 'audit_unavailable');
        given.unlock();
        assert.ok(await settles(given.gateway.exited, WAIT_MS));
    }));
});
