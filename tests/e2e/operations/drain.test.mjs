// Stopping under load: every accepted call gets exactly one answer over every transport, and a new call is refused at once.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { existsSync, writeFileSync } from 'node:fs';
import { Agent, request } from 'node:http';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { describe, test } from 'node:test';

import { connect } from '../connect.mjs';
import { binary, peerPath, settles, startGateway, temporaryDirectory, until, watch, writeConfig } from '../gateway.mjs';
import { initialize, post, reply, resultText, send, Session, stream } from '../raw.mjs';

const mirror = peerPath('mirror');
const WAIT_MS = 15_000;
const EACH = 8;
const quick = { shutdown: '3s', stream_after: '60s' };
const wait = (id, args) => ({ jsonrpc: '2.0', id, method: 'tools/call', params: { name: 'm__wait', arguments: args } });
const ids = (first, count = EACH) => Array.from({ length: count }, (_, i) => first + i);
const ENDS = ids(100), NEVER = ids(200);

/** Calls that wait for a file. `begun` resolves when the server has all of them; `go` writes the file that half of them wait for. */
function calls(directory) {
    const file = name => join(directory, name);
    return {
        messages: [...ENDS.map(id => wait(id, { file: file('go'), begun: file(`begun-${id}`) })), ...NEVER.map(id => wait(id, { file: file('never'), begun: file(`begun-${id}`) }))],
        begun: () => until(() => [...ENDS, ...NEVER].every(id => existsSync(file(`begun-${id}`))), WAIT_MS, 'the server has all calls'),
        go: () => writeFileSync(file('go'), '')
    };
}

/** Each call is answered exactly once: with its result, or with an error that has the reason. */
function assertAnswered(messages) {
    assert.deepEqual(messages.map(({ id }) => id).sort((a, b) => a - b), [...ENDS, ...NEVER], 'one answer each');
    for (const message of messages)
        if (ENDS.includes(message.id)) assert.equal(resultText(message), 'waited');
        else assert.deepEqual([message.error?.code, message.error?.data.reason], [-32000, 'shutting_down'], JSON.stringify(message));
}

/** Runs `body` with a gateway that `body` stops; the gateway must end with status 0. */
async function stopping(timeouts, body) {
    const gateway = await startGateway({ timeouts, mcpServers: { m: { command: mirror } } });
    const directory = temporaryDirectory();
    try {
        await body({ gateway, load: calls(directory.path), stop: async () => {
            gateway.child.kill('SIGTERM');
            await gateway.line(/stopping/, WAIT_MS);
        } });
        assert.ok(await settles(gateway.exited, WAIT_MS), `it did not end\n${gateway.log()}`);
    } finally {
        directory.remove();
        await gateway.stop();
    }
}

/** All messages of an event stream, until it ends. */
async function messagesOf(events) {
    const all = [];
    for (let event = await events.message(); event; event = await events.message()) all.push(event.message);
    return all;
}

/** A session over HTTP+SSE: every message arrives on one event stream. */
async function openPipe(origin) {
    const events = await stream(`${origin}/sse`, { headers: { accept: 'text/event-stream' } });
    const url = new URL((await events.next()).data, origin);
    const say = body => send(url, { headers: { 'content-type': 'application/json' }, body });
    assert.equal((await say(initialize('2024-11-05'))).status, 202);
    assert.ok((await events.message()).message.result);
    await say({ jsonrpc: '2.0', method: 'notifications/initialized' });
    return { events, say };
}

describe('calls in flight during a stop', () => {
    test('calls in flight over JSON are answered before the stop', () => stopping(quick, async ({ gateway, load, stop }) => {
        const session = await Session.open(gateway.url);
        const answers = load.messages.map(message => session.post(message));
        await load.begun();
        await stop();
        load.go();
        const all = await Promise.all(answers);
        assertAnswered(all.map(reply));
        for (const { status, headers, body } of all) {
            assert.match(headers['content-type'], /^application\/json/);
            assert.equal(status, JSON.parse(body).error ? 503 : 200);
            assert.equal(headers.connection, 'close', body);
        }
    }));

    for (const version of ['2025-11-25', '2025-03-26'])
        test(`calls in flight over event streams of ${version} are answered before the stop`, () => stopping({ ...quick, stream_after: '1ms' }, async ({ gateway, load, stop }) => {
            const session = await Session.open(gateway.url, { version });
            const streams = await Promise.all(load.messages.map(message => session.postStream(message)));
            for (const { headers } of streams) assert.equal(headers['content-type'], 'text/event-stream');
            await load.begun();
            await stop();
            load.go();
            const all = await Promise.all(streams.map(messagesOf));
            for (const messages of all) assert.equal(messages.length, 1, JSON.stringify(messages));
            assertAnswered(all.flat());
        }));

    for (const [how, timeouts] of Object.entries({ JSON: quick, 'an event stream': { ...quick, stream_after: '1ms' } }))
        test(`a batch over ${how} is answered before the stop`, () => stopping(timeouts, async ({ gateway, load, stop }) => {
            const session = await Session.open(gateway.url, { version: '2025-03-26' });
            const answer = session.post(load.messages);
            await load.begun();
            await stop();
            load.go();
            const { headers, body } = await answer;
            assertAnswered(headers['content-type'] === 'application/json'
                ? JSON.parse(body) : body.split('\n').filter(line => /^data: ./.test(line)).flatMap(line => JSON.parse(line.slice(6))));
        }));

    test('calls in flight over HTTP+SSE are answered before the stop', () => stopping(quick, async ({ gateway, load, stop }) => {
        const { events, say } = await openPipe(gateway.origin);
        for (const message of load.messages) assert.equal((await say(message)).status, 202);
        await load.begun();
        await stop();
        load.go();
        assertAnswered(await messagesOf(events));
    }));

    for (const [name, client] of Object.entries({ http: 'SDK 1 over Streamable HTTP', http2: 'SDK 2 over Streamable HTTP', sse: 'SDK 1 over HTTP+SSE at /sse' }))
        test(`calls in flight of the official client (${name}) are answered before the stop`, () => stopping({ ...quick, stream_after: '1ms' }, async ({ gateway, load, stop }) => {
            const peer = await connect(gateway, client);
            const answers = Promise.all(load.messages.map(({ params }) => peer.call(params.name, params.arguments).then(({ content }) => content[0].text, ({ message }) => message)));
            await load.begun();
            await stop();
            load.go();
            const told = await answers;
            assert.deepEqual(told.slice(0, EACH), Array(EACH).fill('waited'));
            for (const message of told.slice(EACH)) assert.match(message, /The gateway is shutting down/);
            await peer.close();
        }));
});

describe('calls that arrive during a stop', () => {
    /** One request over the agent's connection: its status, headers and body. */
    async function over(agent, url, headers, body, method = 'POST') {
        const res = await new Promise((resolve, reject) => {
            const req = request(url, { method, headers, agent }, resolve).on('error', reject);
            req.end(body && JSON.stringify(body));
        });
        return { status: res.statusCode, headers: res.headers, body: await text(res) };
    }

    test('calls that arrive during a stop get 503 with their id and the connection closes', () => stopping(quick, async ({ gateway, load, stop }) => {
        const session = await Session.open(gateway.url);
        const agents = ids(0, 4).map(() => new Agent({ keepAlive: true, maxSockets: 1 }));
        const ask = (agent, body, method) => over(agent, session.url, session.headers(post()), body, method);
        for (const agent of agents) assert.equal((await ask(agent, { jsonrpc: '2.0', id: 1, method: 'ping' })).headers.connection, undefined);
        const held = session.post(load.messages[0]);
        await until(() => existsSync(load.messages[0].params.arguments.begun), WAIT_MS, 'the server has the call');
        await stop();
        for (const [i, body] of [wait(9, {}), { jsonrpc: '2.0', id: 9, method: 'tools/list' }].entries()) {
            const answer = await ask(agents[i], body);
            assert.deepEqual([answer.status, answer.headers.connection, answer.headers['retry-after']], [503, 'close', '3']);
            const { id, error } = JSON.parse(answer.body);
            assert.deepEqual([id, error.code, error.data.reason], [9, -32000, 'shutting_down']);
        }
        const listening = await ask(agents[2], undefined, 'GET');
        assert.deepEqual([listening.status, listening.headers.connection], [503, 'close'], 'new streams are refused');
        const told = await ask(agents[3], { jsonrpc: '2.0', method: 'notifications/roots/list_changed' });
        assert.deepEqual([told.status, told.headers.connection], [202, 'close'], 'notifications are accepted, as they may concern calls in flight');
        load.go();
        assert.equal(resultText(reply(await held)), 'waited');
        for (const agent of agents) agent.destroy();
    }));

    test('calls that arrive over HTTP+SSE during a stop get 503', () => stopping(quick, async ({ gateway, load, stop }) => {
        const events = await stream(`${gateway.origin}/sse`, { headers: { accept: 'text/event-stream' } });
        const url = new URL((await events.next()).data, gateway.origin);
        const agent = new Agent({ keepAlive: true, maxSockets: 1 });
        const say = body => over(agent, url, { 'content-type': 'application/json' }, body);
        await say(initialize('2024-11-05'));
        await events.message();
        await say(load.messages[0]);
        await until(() => existsSync(load.messages[0].params.arguments.begun), WAIT_MS, 'the server has the call');
        await stop();
        const { status, headers, body } = await say(wait(9, {}));
        assert.deepEqual([status, headers.connection, JSON.parse(body).id], [503, 'close', 9]);
        load.go();
        assert.deepEqual((await messagesOf(events)).map(({ id }) => id), [ENDS[0]]);
        agent.destroy();
    }));
});

describe('a stop on stdio', () => {
    /** Runs a gateway on stdio with all calls in flight, and `act`; returns its messages. */
    async function answersAfter(act) {
        const directory = temporaryDirectory(), load = calls(directory.path);
        const path = writeConfig(directory.path, { timeouts: { shutdown: '3s' }, mcpServers: { m: { command: mirror } } });
        const child = spawn(binary, ['serve', '--stdio', '--config', path], { stdio: ['pipe', 'pipe', 'pipe'] });
        const gateway = watch(child, 'stderr');
        const out = text(child.stdout);
        const say = message => child.stdin.write(`${JSON.stringify(message)}\n`);
        try {
            say(initialize('2025-11-25'));
            say({ jsonrpc: '2.0', method: 'notifications/initialized' });
            load.messages.forEach(say);
            await load.begun();
            await act({ child, gateway, say });
            load.go();
            assert.ok(await settles(gateway.exited, WAIT_MS), gateway.log());
            assert.deepEqual(await gateway.exited, { code: 0, signal: null });
            return (await out).trim().split('\n').map(JSON.parse).filter(({ id }) => id !== 1);
        } finally {
            child.kill('SIGKILL');
            directory.remove();
        }
    }

    test('calls in flight on stdio are answered after SIGTERM and later calls are refused', async () => {
        const messages = await answersAfter(async ({ child, gateway, say }) => {
            child.kill('SIGTERM');
            await gateway.line(/stopping/, WAIT_MS);
            say(wait(9, {}));
            await gateway.line(/call failed.*shutting_down/, WAIT_MS);
        });
        const late = messages.filter(({ id }) => id === 9);
        assert.deepEqual(late.map(({ error }) => error.data.reason), ['shutting_down']);
        assertAnswered(messages.filter(({ id }) => id !== 9));
    });

    test('calls in flight on stdio are answered after the end of input', async () =>
        assertAnswered(await answersAfter(async ({ child, gateway }) => {
            child.stdin.end();
            await gateway.line(/stopping/, WAIT_MS);
        })));
});

test('a call whose session ends gets an answer and not an empty stream', async () => {
    const gateway = await startGateway({ timeouts: { stream_after: '1ms' }, mcpServers: { m: { command: mirror } } });
    const directory = temporaryDirectory();
    try {
        const { messages: [message] } = calls(directory.path);
        const session = await Session.open(gateway.url);
        const events = await session.postStream(message);
        await until(() => existsSync(message.params.arguments.begun), WAIT_MS, 'the server has the call');
        assert.equal((await session.delete()).status, 200);
        const [answer, ...more] = await messagesOf(events);
        assert.deepEqual([answer?.id, answer?.error.data.reason, more.length], [message.id, 'session_unknown', 0]);
    } finally {
        directory.remove();
        await gateway.stop();
    }
});
