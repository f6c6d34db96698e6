// Servers that are not used are ended, unless something still needs them, and the next call starts them again.
import assert from 'node:assert/strict';
import { existsSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { describe, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';

import { startGateway, startPeer, program, stdioServer, temporaryDirectory, until } from '../gateway.mjs';
import { Session, resultText, send } from '../raw.mjs';

const WAIT_MS = 30_000;
const IDLE_MS = 1_000;
const SLOW_CALL_S = 4;
const RESTING_MAX = 8; // of src/gate/server/idle.c

/** A small server in a shell, with one tool; `more` is run for each line before the answer. */
const shellServer = (more, first = '') => ({
    command: '/bin/sh',
    args: ['-c', `${first}
while read -r line; do
    id=$(expr "$line" : '.*"id":\\([0-9]*\\)')
    ${more}
    case $line in
    *'"initialize"'*) echo '{"jsonrpc":"2.0","id":'$id',"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"shell","version":"1"}}}' ;;
    *'"tools/list"'*) echo '{"jsonrpc":"2.0","id":'$id',"result":{"tools":[{"name":"one","inputSchema":{"type":"object"}}]}}' ;;
    *'"tools/call"'*) echo '{"jsonrpc":"2.0","id":'$id',"result":{"content":[]}}' ;;
    esac
done`]
});

const idle = server => ({ ...server, idle_timeout: `${IDLE_MS}ms` });
const rests = (gateway, server) => gateway.line(new RegExp(`server stopping: not used server=${server}\\b`), WAIT_MS);
const times = (gateway, pattern) => gateway.log().match(new RegExp(pattern, 'g'))?.length ?? 0;

/** A request in a session of its own, which is over with the answer. */
async function once(gateway, method, params = {}) {
    const session = await Session.open(gateway.url);
    const answer = await session.request(method, params);
    await session.delete();
    return answer;
}
const call = (gateway, name, args = {}) => once(gateway, 'tools/call', { name, arguments: args });
const names = answer => answer.result.tools.map(tool => tool.name);

async function withGateway(mcpServers, run, more = {}) {
    const gateway = await startGateway({ mcpServers, ...more });
    try {
        await run(gateway);
    } finally {
        await gateway.stop();
    }
}

describe('idle servers', () => {
    test('a server that is not used is ended, stays listed, and is started again by the next call', () =>
        withGateway({ one: idle(stdioServer.misbehave('fine')) }, async gateway => {
            const session = await Session.open(gateway.url);
            const listed = names(await session.request('tools/list'));
            for (let round = 1; round <= 2; round++) {
                assert.equal(resultText(await call(gateway, 'one__fine')), 'fine');
                await until(() => times(gateway, 'server stopping') === round && gateway.servers().length === 0, WAIT_MS, 'the server has ended');
                assert.deepEqual(names(await session.request('tools/list')), listed);
                assert.equal(gateway.servers().length, 0, 'a list does not start it');
            }
            assert.doesNotMatch(gateway.log(), /server lost|did not start/);
        }));

    test('a session that has called a server keeps it, and other sessions do not', () =>
        withGateway({ called: idle(stdioServer.misbehave('fine')), other: idle(stdioServer.misbehave('fine')) }, async gateway => {
            const [session, another] = [await Session.open(gateway.url), await Session.open(gateway.url)];
            await another.request('tools/list');
            await session.call('called__fine');
            await rests(gateway, 'other');
            await call(gateway, 'other__fine');
            await until(() => times(gateway, 'server stopping.*server=other') === 2, WAIT_MS, 'the server that no session keeps has been stopped twice');
            assert.equal(times(gateway, 'server stopping.*server=called'), 0);
            await until(() => gateway.servers().length === 1, WAIT_MS, 'the server that no session keeps has ended');
            await session.delete();
            await rests(gateway, 'called');
        }));

    test('a call and a subscription keep a server', () =>
        withGateway({ calls: idle(stdioServer.everything()), watched: idle(stdioServer.everything()), other: idle(stdioServer.misbehave('fine')) }, async gateway => {
            const watcher = await Session.open(gateway.url);
            const { result } = await watcher.request('resources/list');
            const { uri } = result.resources.find(resource => resource.uri.includes('watched'));
            assert.ok((await watcher.request('resources/subscribe', { uri })).result);
            const answer = await call(gateway, 'calls__trigger-long-running-operation', { duration: SLOW_CALL_S, steps: 2 });
            assert.match(resultText(answer), /completed/);
            assert.equal(times(gateway, 'server stopping.*server=(calls|watched)'), 0);
            assert.equal(times(gateway, 'server stopping.*server=other'), 1);
            await rests(gateway, 'calls');
            assert.equal(times(gateway, 'server stopping.*server=watched'), 0);
            await watcher.delete();
            await rests(gateway, 'watched');
        }));

    test('a task keeps its server, also when the session that made it has ended', () =>
        withGateway({ tasked: idle(stdioServer.everything()), other: idle(stdioServer.misbehave('fine')) }, async gateway => {
            const session = await Session.open(gateway.url, { capabilities: { elicitation: {} } });
            await session.request('tools/list');
            const params = { name: 'tasked__simulate-research-query', arguments: { topic: 'x' }, task: { ttl: 60_000 } };
            assert.ok((await session.request('tools/call', params)).result.task.ttl >= 60_000);
            await session.delete();
            for (let round = 1; round <= 2; round++) {
                await call(gateway, 'other__fine');
                await until(() => times(gateway, 'server stopping.*server=other') >= round, WAIT_MS, 'the server "other" is stopped');
            }
            assert.equal(times(gateway, 'server stopping.*server=tasked'), 0);
        }));

    test('a call that arrives while its server is being ended is answered by the next one', () =>
        withGateway({ one: idle(stdioServer.misbehave('ignore-term')) }, async gateway => {
            assert.equal(resultText(await call(gateway, 'one__fine')), 'fine');
            await rests(gateway, 'one');
            assert.equal(gateway.servers().length, 1, 'it is still there');
            assert.equal(resultText(await call(gateway, 'one__fine')), 'fine');
            assert.equal(times(gateway, 'server started'), 2);
            assert.doesNotMatch(gateway.log(), /server lost|did not start/);
        }, { timeouts: { shutdown: '3s' } }));

    test('a gateway stops in time while a server is being ended', () =>
        withGateway({ one: idle(stdioServer.misbehave('ignore-term')) }, async gateway => {
            await call(gateway, 'one__fine');
            await rests(gateway, 'one'); // and then stop(), which checks that no process is left
        }, { timeouts: { shutdown: '3s' } }));

    test('a connection to an HTTP server is ended, and opened again by the next call', async () => {
        const peer = await startPeer(program.fixture, 'http');
        try {
            await withGateway({ web: idle({ url: peer.url }) }, async gateway => {
                const listed = names(await once(gateway, 'tools/list'));
                await rests(gateway, 'web');
                await until(async () => /"idle":1/.test((await send(`${gateway.origin}/healthz`, { method: 'GET' })).body), WAIT_MS, 'it is down');
                assert.equal((await call(gateway, 'web__test_simple_text')).result.content[0].type, 'text');
                assert.equal(times(gateway, 'server ready'), 2);
                assert.deepEqual(names(await once(gateway, 'tools/list')), listed);
            });
        } finally {
            await peer.stop();
        }
    });

    test('an open question to a caller keeps the server that asks', async t => {
        const folder = temporaryDirectory(), answered = join(folder.path, 'answered');
        t.after(folder.remove);
        const asks = shellServer(`case $line in
    *notifications/initialized*) echo '{"jsonrpc":"2.0","id":"question","method":"roots/list"}' ;;
    *'"question"'*) : >${answered} ;;
    esac`);
        await withGateway({ asks: { ...idle(asks), isolation: 'session' }, other: idle(stdioServer.misbehave('fine')) }, async gateway => {
            const session = await Session.open(gateway.url, { capabilities: { roots: {} } });
            const news = await session.get();
            assert.ok(names(await session.request('tools/list')).includes('asks__one'));
            const question = await news.notification('roots/list');
            for (let round = 1; round <= 2; round++) {
                await call(gateway, 'other__fine');
                await until(() => times(gateway, 'server stopping.*server=other') >= round, WAIT_MS, 'the server "other" is stopped');
            }
            assert.equal(times(gateway, 'server stopping.*server=asks'), 0);
            await session.post({ jsonrpc: '2.0', id: question.message.id, result: { roots: [] } });
            await until(() => existsSync(answered), WAIT_MS, 'the server has the answer');
            await rests(gateway, 'asks');
            news.drop();
        });
    });

    test('servers that are not used are ended together, but not more than eight at a time', async t => {
        const folder = temporaryDirectory(), go = join(folder.path, 'go'), count = RESTING_MAX + 3;
        t.after(folder.remove);
        const stubborn = shellServer('', `trap '' TERM; trap 'while [ ! -e ${go} ]; do sleep 0.1; done' EXIT`); // it ends when the file exists
        const servers = Object.fromEntries(Array.from({ length: count }, (_, i) => [`s${i}`, idle(stubborn)]));
        await withGateway({ ...servers, good: stdioServer.misbehave('fine') }, async gateway => {
            const session = await Session.open(gateway.url);
            assert.equal(names(await session.request('tools/list')).length, count + 2);
            await until(() => times(gateway, 'server stopping') === RESTING_MAX, WAIT_MS, 'eight servers are being ended');
            await sleep(2 * IDLE_MS); // the others are not used for longer than they may be idle
            assert.equal(times(gateway, 'server ended'), 0, 'at the same time');
            assert.equal(resultText(await session.call('good__fine')), 'fine', 'the gateway serves meanwhile');
            assert.equal(times(gateway, 'server stopping'), RESTING_MAX);
            writeFileSync(go, '');
            await until(() => times(gateway, 'server ended') === count, WAIT_MS, 'all have ended');
            let resting = 0;
            for (const [, event] of gateway.log().matchAll(/server (stopping|ended)/g)) {
                resting += event === 'stopping' ? 1 : -1;
                assert.ok(resting <= RESTING_MAX, `${resting} servers were being ended at a time`);
            }
        }, { timeouts: { shutdown: '60s' } });
    });

    test('how often a server is used is known after a restart', async () => {
        const config = { mcpServers: { one: stdioServer.misbehave('fine') } };
        const interval = gateway => {
            const file = new DatabaseSync(join(gateway.state, 'catalogue.db'), { readOnly: true });
            try {
                return file.prepare("SELECT interval FROM entry WHERE server = 'one'").get().interval;
            } finally {
                file.close();
            }
        };
        const first = await startGateway(config), session = await Session.open(first.url);
        for (const kind of ['tools', 'prompts', 'resources', 'resources/templates']) await session.request(`${kind}/list`);
        await session.call('one__fine');
        await sleep(100); // the interval between the two
        await session.call('one__fine');
        await first.end('SIGTERM');
        const before = interval(first);
        assert.ok(before >= 100, `${before} ms`);
        const second = await startGateway(config, [], { earlier: first });
        await call(second, 'one__fine'); // which has no interval of its own
        await second.end('SIGTERM');
        assert.equal(interval(second), before);
        first.directory.remove();
    });

    test('a server with idle_timeout never, and an eager one, run on', () =>
        withGateway({ never: { ...stdioServer.misbehave('fine'), idle_timeout: 'never' }, eager: { ...idle(stdioServer.misbehave('fine')), eager: true }, other: idle(stdioServer.misbehave('fine')) }, async gateway => {
            await once(gateway, 'tools/list');
            for (let round = 1; round <= 2; round++) {
                await call(gateway, 'other__fine');
                await until(() => times(gateway, 'server stopping.*server=other') === round, WAIT_MS, 'the server "other" is stopped');
            }
            assert.equal(times(gateway, 'server stopping'), 2);
        }));
});
