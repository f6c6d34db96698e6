// A stdio server inherits three pipes and its configured environment from the gateway, and nothing else; and no process of its tree
// outlives it or the gateway, however they end.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { readdirSync, readFileSync, rmSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { test } from 'node:test';

import { binary, program, startGateway, startPeer, temporaryDirectory, until, watch, writeConfig } from '../gateway.mjs';
import { resultText, send, Session } from '../raw.mjs';

const demo = join(dirname(binary), 'postern-demo');
const WAIT_MS = 15_000;

const STUBBORN = 'trap "" TERM HUP INT; ';
const FOREVER = 'while :; do sleep 1000; done';
/** A daemon whose parent has ended and that has its own session, so that neither leads to it. */
const DAEMON = `setsid sh -c '(${STUBBORN}${FOREVER}) &' </dev/null >/dev/null 2>&1; `;
/** A server that keeps running after the end of its input, and ignores SIGTERM. */
const deafServer = { command: 'sh', args: ['-c', `${STUBBORN}${demo}; ${FOREVER}`] };
/** A server that ends with its input, and leaves a daemon behind. */
const daemonServer = { command: 'sh', args: ['-c', `${DAEMON}exec ${demo}`] };

/** Process id, name and parent of every process. */
function processes() {
    return readdirSync('/proc').filter(name => /^\d+$/.test(name)).flatMap(pid => {
        try {
            const [, name, parent] = /^\d+ \((.*)\) \S (\d+) /s.exec(readFileSync(`/proc/${pid}/stat`, 'latin1'));
            return [{ pid: Number(pid), name, parent: Number(parent) }];
        } catch {
            return []; // it has ended meanwhile
        }
    });
}

function descendants(pid, all = processes()) {
    return all.filter(({ parent }) => parent === pid).flatMap(child => [child, ...descendants(child.pid, all)]);
}

const running = pids => processes().filter(({ pid }) => pids.includes(pid));
const gone = (pids, what) => until(() => running(pids).length === 0, WAIT_MS, what);
/** False for a zombie as well. */
function isRunning(pid) {
    try {
        return !/\) [ZX] /.test(readFileSync(`/proc/${pid}/stat`, 'latin1'));
    } catch {
        return false;
    }
}
const parentOf = pid => processes().find(process => process.pid === Number(pid)).parent;

test('a server does not inherit connections or variables of the gateway', async () => {
    const peer = await startPeer(program.fixture, 'http', '--port', 0);
    process.env.POSTERN_TEST_SECRET = 'not for children';
    const gateway = await startGateway({
        mcpServers: {
            web: { url: peer.url, type: 'http' },
            demo: { command: demo, isolation: 'session', env: { GIVEN: 'yes' } }
        }
    });
    try {
        const first = await Session.open(gateway.url);
        assert.ok((await first.call('web__test_simple_text')).result, 'a connection to the HTTP server is open');
        const second = await Session.open(gateway.url); // its own child starts now, beside that connection
        assert.equal(resultText(await second.call('demo__echo', { message: 'hi' })), 'hi');
        const children = gateway.servers();
        assert.equal(children.length, 2);
        for (const pid of children) {
            assert.deepEqual(readdirSync(`/proc/${pid}/fd`).sort(), ['0', '1', '2']);
            const environment = readFileSync(`/proc/${pid}/environ`, 'latin1').split('\0');
            assert.ok(environment.includes('GIVEN=yes'));
            assert.ok(!environment.some(variable => variable.startsWith('POSTERN_TEST_SECRET=')));
        }
    } finally {
        delete process.env.POSTERN_TEST_SECRET;
        await gateway.stop();
        await peer.stop();
    }
});

test('kill -9 of the gateway ends every server and its daemons', async t => {
    const many = Array.from({ length: 10 }, (_, i) => [`demo${i}`, { command: demo }]);
    const gateway = await startGateway({ mcpServers: { deaf: deafServer, daemon: daemonServer, ...Object.fromEntries(many) } });
    t.after(() => {
        gateway.child.kill('SIGKILL');
        rmSync(gateway.state, { recursive: true, force: true });
    });
    const session = await Session.open(gateway.url);
    for (const name of ['deaf', 'daemon', ...many.map(([name]) => name)])
        assert.equal(resultText(await session.call(`${name}__echo`, { message: 'hi' })), 'hi');
    const tree = descendants(gateway.pid);
    assert.equal(tree.filter(({ name }) => name === 'postern-keeper').length, 12);
    const pids = [...new Set([...tree.map(({ pid }) => pid), ...gateway.servers().map(Number)])];
    assert.ok(pids.length >= 1 + 12 + 12 + 1, 'a spawner, keepers, servers and a daemon');
    gateway.child.kill('SIGKILL');
    await gateway.exited;
    await gone(pids, 'the end of all processes after the gateway was killed');
    assert.deepEqual(gateway.servers(), []);
});

test('a daemon that a server has left behind ends with the server', async () => {
    const gateway = await startGateway({ mcpServers: { daemon: { ...daemonServer, isolation: 'session' } } });
    try {
        const session = await Session.open(gateway.url);
        assert.equal(resultText(await session.call('daemon__echo', { message: 'hi' })), 'hi');
        assert.ok(gateway.servers().length >= 2, 'a server and its daemon');
        assert.equal((await send(gateway.url, { method: 'DELETE', headers: session.headers() })).status, 200);
        await until(() => gateway.servers().length === 0, WAIT_MS, 'the end of the server and its daemon');
    } finally {
        await gateway.stop();
    }
});

test('a server dies with its killed keeper, and the next call starts another', async () => {
    const gateway = await startGateway({ mcpServers: { deaf: deafServer, daemon: daemonServer } });
    try {
        const session = await Session.open(gateway.url);
        for (const name of ['deaf', 'daemon']) assert.equal(resultText(await session.call(`${name}__echo`, { message: 'hi' })), 'hi');
        const before = gateway.servers().map(Number);
        for (const { pid } of descendants(gateway.pid).filter(({ name }) => name === 'postern-keeper')) process.kill(pid, 'SIGKILL');
        await gone(before, 'the end of the servers whose keepers were killed');
        assert.equal(resultText(await session.call('deaf__echo', { message: 'again' })), 'again');
        await gateway.line(/keeper process was killed/);
    } finally {
        await gateway.stop();
    }
});

test('a killed spawner does not end servers and the next server still starts', async () => {
    const gateway = await startGateway({ mcpServers: { demo: { command: demo, isolation: 'session' } } });
    try {
        const first = await Session.open(gateway.url);
        assert.equal(resultText(await first.call('demo__echo', { message: 'hi' })), 'hi');
        const [server] = gateway.servers();
        const spawner = parentOf(parentOf(server));
        assert.equal(parentOf(spawner), gateway.pid);
        process.kill(spawner, 'SIGKILL');
        await until(() => !isRunning(spawner), WAIT_MS, 'the spawner has ended');
        const second = await Session.open(gateway.url);
        assert.equal(resultText(await second.call('demo__echo', { message: 'hi' })), 'hi');
        await gateway.line(/spawner process ended unexpectedly/);
        assert.equal(resultText(await first.call('demo__echo', { message: 'still' })), 'still');
        assert.deepEqual(gateway.servers().filter(pid => pid === server), [server]);
    } finally {
        await gateway.stop();
    }
});

test('a stopped keeper is continued at once', async () => {
    const gateway = await startGateway({ timeouts: { shutdown: '1s' }, mcpServers: { deaf: deafServer } });
    try {
        assert.equal(resultText(await (await Session.open(gateway.url)).call('deaf__echo', { message: 'hi' })), 'hi');
        for (const { pid } of descendants(gateway.pid).filter(({ name }) => name === 'postern-keeper')) process.kill(pid, 'SIGSTOP');
    } finally {
        await gateway.stop(); // no server outlives it
    }
});

test('a keeper that never answers does not delay the end of the gateway', async t => {
    const gateway = await startGateway({ timeouts: { shutdown: '1s' }, mcpServers: { deaf: deafServer } });
    try {
        assert.equal(resultText(await (await Session.open(gateway.url)).call('deaf__echo', { message: 'hi' })), 'hi');
        const [keeper] = descendants(gateway.pid).filter(({ name }) => name === 'postern-keeper').map(({ pid }) => pid);
        const spawner = parentOf(keeper);
        process.kill(spawner, 'SIGKILL'); // it would continue the keeper
        await until(() => parentOf(keeper) !== spawner, WAIT_MS, 'the end of the spawner');
        process.kill(keeper, 'SIGSTOP');
        t.after(() => gone([keeper], 'the end of the keeper'));
        gateway.line(/keeper process does not answer/, WAIT_MS).finally(() => process.kill(keeper, 'SIGCONT'));
    } finally {
        await gateway.stop();
    }
});

test('kill -9 of a command ends the servers it has started', async t => {
    const directory = temporaryDirectory();
    t.after(directory.remove);
    const config = writeConfig(directory.path, { mcpServers: { deaf: { ...deafServer, args: ['-c', `${STUBBORN}${DAEMON}${FOREVER}`] } } }, randomUUID());
    const child = spawn(binary, ['tools', '--config', config], { stdio: ['ignore', 'ignore', 'pipe'], env: { ...process.env, POSTERN_STATE: directory.path } });
    t.after(() => child.kill('SIGKILL'));
    const command = watch(child, 'stderr');
    const tree = await until(() => {
        const found = descendants(child.pid);
        return found.filter(({ name }) => name === 'sleep').length === 2 && found;
    }, WAIT_MS, 'the server and its daemon');
    child.kill('SIGKILL');
    await command.exited;
    await gone(tree.map(({ pid }) => pid), 'the end of all processes after the command was killed');
});
