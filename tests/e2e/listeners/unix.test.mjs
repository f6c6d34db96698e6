// The listener on a unix socket: sessions over it, its permissions, and what happens to its file.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { existsSync, lstatSync, readFileSync, renameSync, symlinkSync, writeFileSync } from 'node:fs';
import { Agent } from 'node:http';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';

import { binary, peerPath, startGateway, temporaryDirectory, until, writeConfig } from '../gateway.mjs';
import { callOf, Channel, everyWay } from '../channel.mjs';

const mirror = peerPath('mirror');
const URL_FOR_HOST = 'http://localhost/mcp';
const WAIT_MS = 10_000;

const directory = temporaryDirectory();
after(() => directory.remove());
const at = name => join(directory.path, name);

const start = (path, more = {}, config = {}) =>
    startGateway({ listen: [{ address: `unix:${path}`, ...more }], mcpServers: { m: { command: mirror } }, ...config });

/** Starts a gateway that must refuse to start; returns its exit status and output. */
function refused(path, more = {}) {
    const folder = temporaryDirectory();
    const file = writeConfig(folder.path, { listen: [{ address: `unix:${path}`, ...more }], mcpServers: {} });
    return new Promise(resolve => {
        const child = execFile(binary, ['serve', '--config', file], { timeout: WAIT_MS }, (_error, _stdout, stderr) => {
            folder.remove();
            resolve({ status: child.exitCode, stderr });
        });
    });
}

describe('a unix socket', () => {
    const path = at('postern.sock');
    let gateway;
    before(async () => (gateway = await start(path, {}, { timeouts: { stream_after: '50ms', heartbeat: '200ms' } })));
    after(() => gateway.stop());

    test('the log shows the path of a unix socket', () => assert.equal(gateway.url, `unix:${path}`));

    for (const [name, body] of everyWay) test(name, () => body(URL_FOR_HOST, { socketPath: path }));

    test('a slow call over a unix socket gets an event stream with heartbeats', async () => {
        const channel = await Channel.open(URL_FOR_HOST, { socketPath: path });
        const res = await channel.begin(callOf('m__wait', { file: at('go') }));
        assert.match(res.headers['content-type'], /event-stream/);
        let seen = '';
        res.setEncoding('utf8').on('data', chunk => (seen += chunk));
        await until(() => seen.includes(': keepalive'), WAIT_MS, 'a heartbeat');
        writeFileSync(at('go'), '');
        await until(() => seen.includes('waited'), WAIT_MS, 'the answer');
    });

    test('a caller of a unix socket that disconnects frees its stream', async () => {
        const channel = await Channel.open(URL_FOR_HOST, { socketPath: path });
        const res = await channel.begin(undefined, { method: 'GET' });
        assert.equal(res.statusCode, 200);
        res.destroy();
        await until(async () => {
            const again = await channel.begin(undefined, { method: 'GET' });
            again.destroy();
            return again.statusCode === 200;
        }, WAIT_MS, 'a second stream');
    });

    test('a connection to a unix socket is kept open', async () => {
        const agent = new Agent({ keepAlive: true, maxSockets: 1 });
        const channel = await Channel.open(URL_FOR_HOST, { socketPath: path, agent });
        const sockets = new Set();
        for (let i = 0; i < 20; i++) sockets.add((await channel.request('ping')).socket);
        assert.equal(sockets.size, 1);
        agent.destroy();
    });

    test('a Host that is not a loopback name is refused', async () => {
        const { status } = await new Channel('http://evil.example/mcp', { socketPath: path }).send(callOf('m__mirror'));
        assert.equal(status, 403);
    });
});

describe('the socket file', () => {
    for (const [mode, more] of [[0o600, {}], [0o660, { mode: '0660' }], [0o666, { mode: '666' }]])
        test(`a socket file has mode ${mode.toString(8)} with ${JSON.stringify(more)} under any umask, and is removed at the stop`, async () => {
            const path = at(`mode-${mode}.sock`);
            const before = process.umask(0o077);
            const gateway = await start(path, more).finally(() => process.umask(before));
            assert.ok(lstatSync(path).isSocket());
            assert.equal(lstatSync(path).mode & 0o7777, mode);
            await gateway.stop();
            assert.equal(existsSync(path), false);
        });

    test('a socket file is removed before the drain, so that a new gateway can listen', async () => {
        const path = at('handover.sock');
        const first = await start(path, {}, { timeouts: { shutdown: '4s', stream_after: '50ms' } });
        const channel = await Channel.open(URL_FOR_HOST, { socketPath: path });
        const res = await channel.begin(callOf('m__wait', { file: at('later') }));
        first.child.kill('SIGTERM');
        await until(() => !existsSync(path), WAIT_MS, 'the socket is removed');
        const second = await start(path);
        writeFileSync(at('later'), '');
        res.resume();
        await first.stop();
        await Channel.open(URL_FOR_HOST, { socketPath: path });
        await second.stop();
    });

    test('a socket file that a killed gateway left behind is replaced', async () => {
        const path = at('stale.sock');
        const killed = await start(path);
        const servers = killed.servers();
        killed.child.kill('SIGKILL');
        await killed.exited;
        await until(() => killed.servers().length === 0 || servers.length === 0, WAIT_MS, 'its servers end');
        assert.ok(lstatSync(path).isSocket());
        const gateway = await start(path);
        await Channel.open(URL_FOR_HOST, { socketPath: path });
        await gateway.stop();
    });

    test('a socket on which another gateway listens is not replaced', async () => {
        const path = at('live.sock');
        const gateway = await start(path);
        const { status, stderr } = await refused(path);
        assert.equal(status, 3, stderr);
        assert.match(stderr, /^postern: .*live\.sock: another process \(pid \d+\) listens there already; stop it, or choose another path\n$/m);
        await Channel.open(URL_FOR_HOST, { socketPath: path });
        await gateway.stop();
    });

    test('a socket on which another program listens without accepting is not replaced', async () => {
        const path = at('deaf.sock');
        const server = createServer().listen(path);
        await new Promise(resolve => server.on('listening', resolve));
        assert.match((await refused(path)).stderr, /another process \(pid \d+\) listens there already/);
        server.close();
    });

    test('a socket that several gateways want at once goes to one of them', async () => {
        const path = at('race.sock');
        const killed = await start(path);
        killed.child.kill('SIGKILL');
        await killed.exited;
        const results = await Promise.allSettled([start(path), start(path), start(path)]);
        const running = results.filter(({ status }) => status === 'fulfilled').map(({ value }) => value);
        assert.equal(running.length, 1, results.map(({ reason }) => reason?.message).join('\n'));
        await Channel.open(URL_FOR_HOST, { socketPath: path });
        await running[0].stop();
    });

    test('a file that is not a socket is refused, also a link', async () => {
        writeFileSync(at('file'), 'precious');
        symlinkSync(at('file'), at('link'));
        symlinkSync(at('nowhere'), at('dangling'));
        for (const name of ['file', 'link', 'dangling']) {
            const { status, stderr } = await refused(at(name));
            assert.equal(status, 3, stderr);
            assert.match(stderr, new RegExp(`${name}: the existing file is not a socket; move it away`));
        }
        assert.equal(readFileSync(at('file'), 'utf8'), 'precious');
        assert.equal(existsSync(at('nowhere')), false);
    });

    test('a file that was put in place of the socket is not removed at stop', async () => {
        const path = at('moved.sock');
        const gateway = await start(path);
        renameSync(path, at('elsewhere.sock'));
        writeFileSync(path, 'precious');
        await gateway.stop();
        assert.equal(readFileSync(path, 'utf8'), 'precious');
    });

    test('a socket in a missing folder is refused', async () => {
        const { status, stderr } = await refused(at('no/such/x.sock'));
        assert.equal(status, 3, stderr);
        assert.match(stderr, /folder .*no\/such: No such file or directory/);
    });
});

describe('mistakes in the configuration of a unix socket', () => {
    const wrong = {
        'a relative path': ['x.sock', {}, /\/listen\/0\/address: write unix:\/PATH/],
        'a folder': ['/tmp/', {}, /\/listen\/0\/address: write unix:\/PATH/],
        'a path that is too long': [`/${'x'.repeat(107)}`, {}, /at most 107 characters/],
        'an invalid mode': ['/tmp/x.sock', { mode: 'rw' }, /\/listen\/0\/mode: write the permissions in octal/],
        'a mode with setuid': ['/tmp/x.sock', { mode: '4755' }, /\/listen\/0\/mode: write the permissions in octal/],
        'a listener with TLS': ['/tmp/x.sock', { tls: { certificate: 'a', key: 'b' } }, /\/listen\/0\/tls: not possible on a unix socket/]
    };
    for (const [name, [path, more, message]] of Object.entries(wrong))
        test(`${name} as the address of a socket stops the start`, async () => {
            const { status, stderr } = await refused(path, more);
            assert.equal(status, 3, stderr);
            assert.match(stderr, message);
        });
});

test('a connection that is silent after a few bytes is cut off at the header deadline', async () => {
    const path = at('slow.sock');
    const gateway = await start(path, {}, { limits: { header_timeout: '300ms' } });
    const { connect } = await import('node:net');
    const socket = connect(path);
    socket.on('error', () => {}).write('POST /mcp HTTP/1.1\r\nHo');
    const began = Date.now();
    await Promise.race([new Promise(resolve => socket.on('close', resolve)), sleep(WAIT_MS)]);
    assert.ok(Date.now() - began < 2_000, `closed after ${Date.now() - began} ms`);
    await gateway.stop();
});
