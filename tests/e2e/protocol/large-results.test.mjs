// Large results: byte for byte over every transport and face, and interruptions in the middle of a result.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { existsSync, writeFileSync } from 'node:fs';
import { request } from 'node:http';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';

import { bulk, envelopes } from '../../peers/bulk.mjs';
import { binary, peerPath, settles, startGateway, startPeer, temporaryDirectory, until, writeConfig } from '../gateway.mjs';
import { initialize, Session, stream } from '../raw.mjs';

const server = peerPath('bulk');
const WAIT_MS = 20_000;
const MB = 1 << 20;

/** Servers by transport: the arguments of the peer, if it listens, and the entry of the configuration. */
const transports = {
    'stdio, lines': { entry: () => ({ command: server }), lines: true },
    'stdio, Content-Length': { entry: () => ({ command: server, args: ['--counted'] }) },
    'HTTP with JSON': { flag: '--http', entry: url => ({ type: 'http', url }) },
    'HTTP with event streams': { flag: '--events', entry: url => ({ type: 'http', url }) },
    'HTTP+SSE': { flag: '--sse', entry: url => ({ type: 'sse', url }) }
};

async function startServer(transport, more = {}) {
    const { flag, entry } = transports[transport];
    const peer = flag ? await startPeer(server, flag) : undefined;
    return { entry: { ...entry(peer?.url), ...more }, stop: () => peer?.stop() };
}

const call = (args, { id = 7, meta } = {}) => ({ jsonrpc: '2.0', id, method: 'tools/call', params: { name: 'b__make', arguments: args, ...(meta && { _meta: meta }) } });
const withProgress = { meta: { progressToken: 1 } };

/** White space is insignificant outside of strings, and the strings of these results do not contain any. */
const packed = text => text.replaceAll(/[ \r\n]/g, '');
const expected = ({ bytes, form }, id = 7) => packed(`{"jsonrpc":"2.0","id":${id},"result":${bulk(bytes, form).replaceAll('"uri":"bulk:', '"uri":"postern://b/bulk:')}}`);

/** Compares texts that are too large to be printed when they differ. */
function assertSame(got, args, id) {
    const [a, b] = [packed(got), expected(args, id)];
    if (a === b) return;
    let at = 0;
    while (at < a.length && a[at] === b[at]) at++;
    assert.fail(`${a.length} and ${b.length} characters, which differ at ${at}: ${a.slice(at - 40, at + 40)} / ${b.slice(at - 40, at + 40)}`);
}

/** The text of the answer in a JSON body, or at the end of an event stream. */
const answerIn = ({ headers, body }) =>
    headers['content-type'].startsWith('application/json') ? body : body.trimEnd().split('\n\n').at(-1).split('\n').filter(line => line.startsWith('data: ')).map(line => line.slice(6)).join('\n');

/** A caller of a stdio gateway: `ask(message)` resolves with the text of the answer. */
function stdioCaller(config) {
    const directory = temporaryDirectory();
    const child = spawn(binary, ['serve', '--stdio', '--config', writeConfig(directory.path, config)], { stdio: ['pipe', 'pipe', 'ignore'], env: { ...process.env, POSTERN_STATE: directory.path } });
    let chunks = [];
    const waiting = [];
    child.stdout.setEncoding('utf8');
    child.stdout.on('data', chunk => {
        const lines = chunk.split('\n');
        lines.forEach((line, i) => {
            chunks.push(line);
            if (i === lines.length - 1) return;
            const text = chunks.join('');
            chunks = [];
            if (text.includes('"id"')) waiting.shift()?.(text);
        });
    });
    const ask = message => new Promise(resolve => {
        waiting.push(resolve);
        child.stdin.write(`${JSON.stringify(message)}\n`);
    });
    const stop = async () => {
        child.stdin.end();
        assert.ok(await settles(new Promise(resolve => child.once('exit', resolve)), WAIT_MS));
        directory.remove();
    };
    return { ask, stop };
}

const sizes = [{ bytes: 6 * MB, form: 'plain' }, { bytes: 2 * MB, form: 'links' }, { bytes: 3 * MB, form: 'pretty' }, { bytes: 100_000, form: 'pretty' }];

for (const transport of Object.keys(transports)) {
    describe(`large results of a server over ${transport}`, () => {
        const args = sizes.filter(({ form }) => form !== 'pretty' || !transports[transport].lines);
        let behind, gateway, session;
        before(async () => {
            behind = await startServer(transport);
            gateway = await startGateway({ mcpServers: { b: behind.entry }, timeouts: { stream_after: '1m' } }); // answers are JSON, even on a busy machine
            session = await Session.open(gateway.url);
        });
        after(async () => {
            await gateway?.stop();
            await behind?.stop();
        });

        for (const made of args) {
            const title = `${made.form}, ${made.bytes} bytes`;
            test(`a large result arrives as JSON: ${title}`, async () => {
                const answer = await session.post(call(made));
                assert.match(answer.headers['content-type'], /^application\/json/);
                assertSame(answer.body, made);
            });
            test(`a large result arrives on an event stream: ${title}`, async t => {
                if (transport === 'HTTP with JSON') return t.skip('such a server makes no progress');
                const answer = await session.post(call(made, withProgress));
                assert.match(answer.headers['content-type'], /^text\/event-stream/);
                return assertSame(answerIn(answer), made);
            });
            test(`a large result arrives over HTTP+SSE: ${title}`, async () => {
                const events = await stream(`${gateway.origin}/sse`, { headers: { accept: 'text/event-stream' } });
                const endpoint = new URL((await events.next()).data, gateway.origin);
                const post = body => fetch(endpoint, { method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify(body) });
                await post(initialize('2024-11-05'));
                await events.message();
                await post({ jsonrpc: '2.0', method: 'notifications/initialized' });
                await post(call(made));
                assertSame((await events.next()).data, made);
                events.drop();
            });
        }
        for (const envelope of Object.keys(envelopes)) {
            test(`a result arrives unchanged in the envelope "${envelope}"`, async () => {
                for (const id of [7, 'an id that is longer than what the server left, '.repeat(4)]) {
                    const { body } = await session.post(call({ bytes: 100_000, form: 'plain', envelope }, { id }));
                    assert.deepEqual(Object.keys(JSON.parse(body)).sort(), ['id', 'jsonrpc', 'result']);
                    assert.equal(JSON.parse(body).id, id);
                    assert.ok(body.includes(`"result":${bulk(100_000, 'plain')}`), body.slice(0, 200));
                }
            });
        }
        test('large results reach a caller over stdio', async () => {
            const caller = stdioCaller({ mcpServers: { b: behind.entry } });
            try {
                await caller.ask(initialize('2025-11-25'));
                for (const made of args) assertSame(await caller.ask(call(made)), made);
                assert.match(await caller.ask({ jsonrpc: '2.0', id: 8, method: 'ping' }), /"id":8,"result":\{\}/);
            } finally {
                await caller.stop();
            }
        });
        test('results of 40 MB and several at once arrive', async () => {
            const made = [{ bytes: 40 * MB, form: 'plain' }, { bytes: 4 * MB, form: 'links' }, { bytes: MB, form: 'plain' }];
            const answers = await Promise.all(made.map((one, i) => session.post(call(one, { id: i }))));
            answers.forEach((answer, i) => assertSame(answerIn(answer), made[i], i));
        });
        test('a batch of large and small results arrives', async () => {
            const old = await Session.open(gateway.url, { version: '2025-03-26' });
            const { body } = await old.post([call({ bytes: MB, form: 'links' }, { id: 1 }), { jsonrpc: '2.0', id: 2, method: 'ping' }, call({ bytes: 10, form: 'plain' }, { id: 3 })]);
            const answers = JSON.parse(body).sort((a, b) => a.id - b.id);
            assert.deepEqual(answers.map(({ id }) => id), [1, 2, 3]);
            assert.deepEqual(answers[0], JSON.parse(expected({ bytes: MB, form: 'links' }, 1)));
        });
    });

    describe(`interrupted large results of a server over ${transport}`, () => {
        let behind, gateway, directory;
        before(async () => {
            directory = temporaryDirectory();
            behind = await startServer(transport);
            gateway = await startGateway({ mcpServers: { b: behind.entry, neighbour: { command: server } } });
        });
        after(async () => {
            await gateway?.stop();
            await behind?.stop();
            directory?.remove();
        });
        const halves = () => {
            const name = join(directory.path, randomUUID());
            return { bytes: 3 * MB, form: 'links', begun: `${name}.begun`, go: `${name}.go` };
        };
        const begun = made => until(() => existsSync(made.begun), WAIT_MS, 'the first half of the result');
        const go = made => writeFileSync(made.go, '');

        /** The whole gateway still works, and so does the server. */
        const works = async session => {
            assertSame(answerIn(await session.post(call({ bytes: 10, form: 'plain' }))), { bytes: 10, form: 'plain' });
            assertSame(answerIn(await session.post(call({ bytes: MB, form: 'links' }))), { bytes: MB, form: 'links' });
        };

        test('calls to other servers continue during a large result', async () => {
            const session = await Session.open(gateway.url), made = halves();
            const answer = session.post(call(made));
            await begun(made);
            for (let i = 0; i < 20; i++) assert.ok((await session.call('neighbour__make', { bytes: 100_000 })).result);
            assert.ok((await session.call('neighbour__make', { bytes: MB, form: 'links' })).result);
            go(made);
            assertSame(answerIn(await answer), made);
        });
        test('a large result ends when its caller cancels', async () => {
            const session = await Session.open(gateway.url);
            for (let round = 0; round < 4; round++) {
                const made = halves();
                const answer = session.post(call(made));
                await begun(made);
                const cancel = () => session.post({ jsonrpc: '2.0', method: 'notifications/cancelled', params: { requestId: 7 } });
                if (round % 2) go(made); // both at once: the rest may be in transit, or being read
                await cancel();
                go(made);
                await answer;
            }
            await works(session);
        });
        test('a large result ends when its caller disconnects', async () => {
            const session = await Session.open(gateway.url), made = halves();
            const caller = request(gateway.url, { method: 'POST', agent: false, headers: session.headers({ 'content-type': 'application/json', accept: 'application/json, text/event-stream' }) });
            caller.on('error', () => {});
            caller.end(JSON.stringify(call(made)));
            await begun(made);
            caller.destroy();
            go(made);
            await works(session);
        });
        test('a large result ends with the session of its caller', async () => {
            const session = await Session.open(gateway.url), made = halves();
            const answer = session.post(call(made));
            await begun(made);
            assert.equal((await session.delete()).status, 200);
            go(made);
            await answer;
            await works(await Session.open(gateway.url));
        });
        test('a large result ends at its timeout', async () => {
            const own = await startServer(transport, { timeout: '500ms' });
            const other = await startGateway({ mcpServers: { b: own.entry } });
            const session = await Session.open(other.url), made = halves();
            assert.match((await session.post(call(made))).body, /"error".*timeout/);
            go(made);
            assert.ok((await session.request('ping')).result);
            await other.stop();
            await own.stop();
        });
        test('a large result arrives although its server ends after it', async t => {
            if (!transport.startsWith('stdio')) return t.skip('only those are started again');
            const session = await Session.open(gateway.url), made = { bytes: 5 * MB, form: 'links', then: 'end' };
            assertSame(answerIn(await session.post(call(made))), made);
            return works(session);
        });
        test('a large result ends when the gateway stops', async () => {
            const other = await startGateway({ mcpServers: { b: behind.entry } });
            const session = await Session.open(other.url), made = halves();
            const answer = session.post(call(made)).catch(() => {});
            await begun(made);
            const stopped = other.stop();
            go(made);
            await stopped;
            await answer;
        });
    });
}
