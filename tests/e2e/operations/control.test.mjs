// The control socket: its operations, its users, its bounds, and the commands that use it.
import assert from 'node:assert/strict';
import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmodSync, existsSync, statSync, writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';

import { commandLine, EXIT } from '../command-line.mjs';
import { binary, peerPath, startGateway, temporaryDirectory, until, writeConfig } from '../gateway.mjs';
import { Session } from '../raw.mjs';

const WAIT_MS = 20_000;
const mirror = (tools, more = {}) => ({ command: peerPath('mirror'), args: ['--tools', JSON.stringify(tools.split(','))], ...more });

let folder, command;
before(() => {
    folder = temporaryDirectory();
    command = commandLine(folder.path);
});
after(() => folder?.remove());

let sockets = 0;
const newSocket = () => join(folder.path, `control-${++sockets}.sock`);

/** Starts a gateway with a control socket. */
async function open(config, ...more) {
    const gateway = await startGateway(config, ...more);
    await gateway.line(/control socket open/, WAIT_MS);
    return gateway;
}

/** The same, with a socket of its own, `gateway.control`; it is stopped when the test ends. */
async function start(t, config, ...more) {
    const control = newSocket(), gateway = await open({ control, ...config }, ...more);
    t.after(() => gateway.stop());
    gateway.control = control;
    gateway.ask = (op, args = []) => command.json([op, ...args, '--control', control]);
    return gateway;
}

/** Sends these bytes to a control socket; gives everything that arrives until the socket is closed. */
async function raw(path, bytes) {
    const socket = connect(path);
    let text = '';
    socket.on('error', () => {}).setEncoding('utf8').on('data', chunk => (text += chunk));
    if (bytes) socket.write(bytes);
    await new Promise(resolve => socket.on('close', resolve));
    return text;
}
const request = async (path, tree) => JSON.parse(await raw(path, `${JSON.stringify(tree)}\n`));

describe('status', () => {
    test('postern status shows what the gateway is doing', async t => {
        const gateway = await start(t, { mcpServers: { a: mirror('one') } }), session = await Session.open(gateway.url);
        await session.call('a__one');
        const status = await gateway.ask('status');
        assert.equal(status.status, 'ok');
        assert.equal(status.pid, gateway.pid);
        assert.equal(status.sessions.open, 1);
        assert.equal(status.servers.up, 1);
        assert.deepEqual(status.listeners, [gateway.url]);
        assert.equal(status.calls.in_flight, 0);
        assert.match(status.version, /^\d+\.\d+/);
        assert.ok(status.uptime_s >= 0);
    });

    test('a command says on standard error which gateway it asked', async t => {
        const gateway = await start(t, { mcpServers: {} });
        const { stderr } = await command.run(['status', '--control', gateway.control]);
        assert.equal(stderr, `postern: gateway with pid ${gateway.pid} at ${gateway.control}, configuration ${join(gateway.state, 'postern.json')}\n`);
    });

    test('postern status is a text on a terminal', async t => {
        const gateway = await start(t, { mcpServers: {} });
        const { shown } = await command.onTerminal(['status', '--control', gateway.control]);
        assert.match(shown, /^status {9}ok$/m);
        assert.match(shown, new RegExp(`^listeners {6}${gateway.url}$`, 'm'));
    });

    test('the socket is found in the configuration', async t => {
        const gateway = await start(t, { mcpServers: {} });
        assert.equal((await command.json(['status', '--config', join(gateway.state, 'postern.json')])).pid, gateway.pid);
    });

    test('the socket is found although variables of the configuration are not set in this shell', async t => {
        const gateway = await start(t, { mcpServers: { a: mirror('one', { env: { SECRET: '${POSTERN_TEST_SECRET}' } }) } }, [], { variables: { POSTERN_TEST_SECRET: 'x' } });
        assert.equal((await command.json(['status', '--config', join(gateway.state, 'postern.json')])).pid, gateway.pid);
    });

    test('postern status fails with exit status 4 if no gateway runs', async () => {
        await command.fails(['status', '--control', join(folder.path, 'none.sock')], EXIT.UNAVAILABLE, /no gateway answers at the control socket: .*none\.sock/);
        await command.fails(['status'], EXIT.UNAVAILABLE, /no control socket/);
    });
});

describe('reload', () => {
    test('postern reload waits until the configuration is in force and shows what changed', async t => {
        const gateway = await start(t, { mcpServers: { a: mirror('one') } }), session = await Session.open(gateway.url);
        gateway.put({ control: gateway.control, mcpServers: { a: mirror('one'), b: mirror('two') } });
        const { changes } = await gateway.ask('reload');
        assert.match(changes, /^(\+ \/mcpServers\/b|no changes)\n$/); // the watched file may have been read before
        assert.ok((await session.call('b__two')).result);
    });

    test('postern reload without a change says so', async t => {
        const gateway = await start(t, { mcpServers: {} });
        assert.deepEqual(await gateway.ask('reload'), { changes: 'no changes\n' });
    });

    test('postern reload of an invalid configuration fails with the reason, which the status keeps', async t => {
        const gateway = await start(t, { mcpServers: { a: mirror('one') } });
        gateway.put('{"mcpServers": {"a": {"comand": "x"}}}');
        const { status, stdout, stderr } = await command.run(['reload', '--control', gateway.control]);
        assert.equal(status, EXIT.CONFIG, stderr);
        assert.equal(stdout, '');
        assert.match(stderr, /\/mcpServers\/a.*comand/);
        const after = JSON.parse((await command.run(['status', '--control', gateway.control])).stdout);
        assert.equal(after.status, 'degraded');
        assert.match(after.configuration.problem, /comand/);
        assert.ok(after.configuration.failing_since);
        const { shown } = await command.onTerminal(['status', '--control', gateway.control]);
        assert.match(shown, /the file is not valid since .*comand/);
    });

    test('a changed path of the control socket needs a restart', async t => {
        const gateway = await start(t, { mcpServers: {} });
        gateway.put({ control: newSocket(), mcpServers: {} });
        const { status, stderr } = await command.run(['reload', '--control', gateway.control]);
        assert.equal(status, EXIT.CONFIG);
        assert.match(stderr, /\/control: a running gateway cannot change this/);
    });

    test('a reload is a row of the audit log, with the user and the process that asked', async t => {
        const audit = join(folder.path, 'reload-audit.db');
        const gateway = await start(t, { audit: { path: audit }, mcpServers: {} });
        await gateway.ask('reload');
        const row = await until(async () => {
            const { stdout } = await command.run(['audit', '--file', audit, '--limit', '0', '--json']);
            return stdout.split('\n').filter(Boolean).map(line => JSON.parse(line)).find(({ event, subject }) => event === 'operation' && subject);
        }, WAIT_MS, 'the row is written');
        assert.equal(row.method, 'reload');
        assert.equal(row.subject, `uid:${process.getuid()}`);
        assert.match(row.peer, /^pid:\d+$/);
        assert.equal(row.status, 'ok');
    });
});

describe('servers', () => {
    const serverOf = async (gateway, name) => (await gateway.ask('servers')).find(server => server.name === name);

    test('postern servers shows the processes, the calls and their p99', async t => {
        const gateway = await start(t, { mcpServers: { a: mirror('one'), off: mirror('two', { disabled: true }) } }), session = await Session.open(gateway.url);
        for (let i = 0; i < 5; i++) await session.call('a__one');
        const a = await serverOf(gateway, 'a');
        assert.deepEqual([a.tenant, a.state, a.calls, a.failed, a.instance_count], ['default', 'ready', 5, 0, 1]);
        assert.ok(a.p99_ms > 0 && a.p99_ms < 20_000, `p99 ${a.p99_ms}`);
        assert.ok(a.tools > 0);
        assert.ok((await gateway.servers()).includes(String(a.instances[0].pid)));
        assert.equal((await serverOf(gateway, 'off')).state, 'disabled');
    });

    test('postern servers keeps the last error of a server, and fails while one is down', async t => {
        const gateway = await start(t, { mcpServers: { a: mirror('one'), broken: { command: '/no/such/program' } } }), session = await Session.open(gateway.url);
        await session.request('tools/list');
        const servers = await command.json(['servers', '--control', gateway.control], EXIT.UNAVAILABLE);
        const broken = servers.find(({ name }) => name === 'broken');
        assert.equal(broken.state, 'failed');
        assert.match(broken.last_error, /no\/such\/program/);
        assert.ok(broken.last_error_at);
        assert.equal(servers.find(({ name }) => name === 'a').state, 'ready');
    });

    test('postern servers shows each instance of a server of sessions', async t => {
        const gateway = await start(t, { mcpServers: { a: mirror('one', { isolation: 'session' }) } });
        for (let i = 0; i < 18; i++) await (await Session.open(gateway.url)).call('a__one');
        const a = await serverOf(gateway, 'a');
        assert.deepEqual([a.instance_count, a.instances.length, a.calls], [18, 16, 18]);
    });

    test('postern servers selects a tenant, and refuses one that does not exist', async t => {
        const tenants = { other: { mcpServers: { b: mirror('two') } } };
        const gateway = await start(t, { tenants, mcpServers: { a: mirror('one') } });
        assert.deepEqual((await gateway.ask('servers')).map(({ tenant, name }) => [tenant, name]), [['default', 'a'], ['other', 'b']]);
        assert.deepEqual((await gateway.ask('servers', ['--tenant', 'other'])).map(({ name }) => name), ['b']);
        const { status, stderr } = await command.run(['servers', '--tenant', 'none', '--control', gateway.control]);
        assert.equal(status, EXIT.CONFIG);
        assert.match(stderr, /no tenant "none"/);
    });

    test('postern servers asks the gateway that runs with the same configuration, and only that one', async t => {
        const gateway = await start(t, { mcpServers: { a: mirror('one') } });
        const own = await command.run(['servers', '--config', join(gateway.state, 'postern.json')]);
        assert.match(own.stderr, new RegExp(`gateway with pid ${gateway.pid} `));
        assert.equal(JSON.parse(own.stdout)[0].state, 'idle');
        const direct = await command.run(['servers', '--direct', '--config', join(gateway.state, 'postern.json')]);
        assert.equal(direct.stderr, '');
        assert.equal(JSON.parse(direct.stdout)[0].state, 'ready');
        const place = temporaryDirectory();
        const other = await command.run(['servers', '--config', writeConfig(place.path, { control: gateway.control, mcpServers: { b: mirror('two') } })]);
        place.remove();
        assert.equal(other.stderr, '');
        assert.deepEqual(JSON.parse(other.stdout).map(({ name, state }) => [name, state]), [['b', 'ready']]);
    });

    test('postern servers is a table on a terminal', async t => {
        const gateway = await start(t, { mcpServers: { a: mirror('one') } }), session = await Session.open(gateway.url);
        await session.call('a__one');
        const { shown } = await command.onTerminal(['servers', '--control', gateway.control]);
        assert.match(shown, /^SERVER +STATE +PID +UPTIME +CALLS +P99 +LAST ERROR$/m);
        assert.match(shown, /^a +ready +\d+ +0m \d+s +1 +[\d.]+ ms/m);
    });
});

describe('logs', () => {
    const shell = script => ({ command: '/bin/sh', args: ['-c', script, peerPath('mirror')] });

    test('postern logs shows what a server wrote to stderr', async t => {
        const a = shell('printf "first\\000 \\377 line\\nlast line\\n" >&2; exec "$0"');
        const gateway = await start(t, { mcpServers: { a, b: mirror('two') } }), session = await Session.open(gateway.url);
        await session.request('tools/list');
        const [{ stderr, pid, state }] = await gateway.ask('logs', ['a']);
        assert.match(stderr, /^first +\S line\nlast line\n$/);
        assert.deepEqual([typeof pid, state], ['number', 'ready']);
        const { shown } = await command.onTerminal(['logs', 'a', '--control', gateway.control]);
        assert.match(shown, /^last line$/m);
        assert.match((await command.onTerminal(['logs', 'b', '--control', gateway.control])).shown, /has written nothing to stderr/);
    });

    test('postern logs keeps the last 32 KiB in whole lines, also of a server that has ended', async t => {
        const a = shell('i=0; while [ $i -lt 3000 ]; do echo "line $i of many" >&2; i=$((i+1)); done; exit 3');
        const gateway = await start(t, { mcpServers: { a } }), session = await Session.open(gateway.url);
        await session.request('tools/list');
        const { stderr } = (await gateway.ask('logs', ['a']))[0];
        assert.ok(stderr.length <= 32_768 && stderr.length > 16_000, `${stderr.length} bytes`);
        assert.match(stderr, /^line \d+ of many\n[^]*line 2999 of many\n$/);
    });

    test('postern logs of an unknown server fails', async t => {
        const gateway = await start(t, { mcpServers: {} });
        const { status, stderr } = await command.run(['logs', 'none', '--control', gateway.control]);
        assert.equal(status, EXIT.CONFIG);
        assert.match(stderr, /tenant "default" has no server "none"/);
    });
});

describe('the control socket', () => {
    test('the file has mode 0600 and is gone when the gateway ends', async t => {
        const control = newSocket(), gateway = await open({ control, mcpServers: {} });
        t.after(() => gateway.child.kill('SIGKILL'));
        assert.equal(statSync(control).mode & 0o777, 0o600);
        await gateway.stop();
        assert.ok(!existsSync(control));
    });

    test('the default socket is in XDG_RUNTIME_DIR, where the commands find it', async t => {
        const gateway = await open({ mcpServers: {} }, [], { variables: { XDG_RUNTIME_DIR: folder.path } });
        t.after(() => gateway.stop());
        assert.equal((await command.json(['status'], EXIT.OK, { env: { XDG_RUNTIME_DIR: folder.path } })).pid, gateway.pid);
    });

    test('an empty path switches it off', async t => {
        const gateway = await startGateway({ control: '', mcpServers: {} }, [], { variables: { XDG_RUNTIME_DIR: folder.path } });
        t.after(() => gateway.stop());
        assert.ok(!existsSync(join(folder.path, 'postern.sock')));
    });

    test('a gateway without listeners opens no control socket', async () => {
        const path = newSocket(), place = temporaryDirectory();
        const child = spawn(binary, ['serve', '--stdio', '--config', writeConfig(place.path, { control: path, mcpServers: {} })], { stdio: ['pipe', 'pipe', 'inherit'] });
        child.stdin.write('{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}\n');
        await once(child.stdout, 'data');
        assert.ok(!existsSync(path));
        child.stdin.end();
        await once(child, 'exit');
        place.remove();
    });

    test('the file that a killed gateway left behind is replaced', async t => {
        const control = newSocket(), killed = await open({ control, mcpServers: {} });
        killed.child.kill('SIGKILL');
        await killed.exited;
        assert.ok(existsSync(control));
        const gateway = await open({ control, mcpServers: {} });
        t.after(() => gateway.stop());
        assert.equal((await request(control, { op: 'status' })).result.pid, gateway.pid);
    });

    test('a gateway does not start if another one has the socket that its configuration names', async t => {
        const gateway = await start(t, { mcpServers: {} }), place = temporaryDirectory();
        const file = writeConfig(place.path, { listen: [{ address: '127.0.0.1:0' }], control: gateway.control, mcpServers: {} });
        const { status, stderr } = await command.run(['serve', '--config', file]);
        place.remove();
        assert.equal(status, EXIT.CONFIG, stderr);
        assert.match(stderr, new RegExp(`^postern: .*another process \\(pid ${gateway.pid}\\) listens there already`, 'm'));
    });

    test('a gateway runs without a socket if another one has the default path', async t => {
        const place = temporaryDirectory(), variables = { XDG_RUNTIME_DIR: place.path };
        t.after(() => place.remove());
        const first = await open({ mcpServers: {} }, [], { variables });
        t.after(() => first.stop());
        const second = await startGateway({ mcpServers: {} }, [], { variables });
        t.after(() => second.stop());
        await second.line(new RegExp(`running without a control socket .*pid ${first.pid}`), WAIT_MS);
        assert.equal((await request(join(place.path, 'postern.sock'), { op: 'status' })).result.pid, first.pid);
    });

    test('another user is refused, even if the mode of the file permits access', { skip: process.getuid() !== 0 && 'needs root' }, async t => {
        const gateway = await start(t, { mcpServers: {} });
        chmodSync(folder.path, 0o755);
        const asNobody = () => new Promise(resolve => execFile('setpriv', ['--reuid=65534', '--regid=65534', '--clear-groups', process.execPath, '-e', `
            const socket = require('net').connect(process.argv[1]);
            socket.on('error', error => console.log(error.code));
            socket.on('data', chunk => process.stdout.write(chunk));`, gateway.control],
        (_error, stdout) => resolve(stdout.trim())));
        assert.equal(await asNobody(), 'EACCES');
        chmodSync(gateway.control, 0o666);
        const reply = JSON.parse(await asNobody());
        assert.equal(reply.ok, false);
        assert.equal(reply.reason, 'denied');
        assert.equal(reply.result, undefined);
        assert.match(gateway.log(), /control connection refused.*uid=65534/);
    });

    test('a request that is not one is answered with the reason', async t => {
        const gateway = await start(t, { mcpServers: {} });
        for (const [line, reason] of [['nonsense', 'parse_error'], ['[]', 'invalid_request'], ['{"op":7}', 'invalid_request'], ['{"op":"halt"}', 'invalid_request'], ['{"op":"\xff"}', undefined], ['', 'parse_error']]) {
            const reply = JSON.parse(await raw(gateway.control, Buffer.from(`${line}\n`, 'latin1')));
            assert.equal(reply.ok, false, line);
            if (reason) assert.equal(reply.reason, reason, line);
        }
        assert.equal((await request(gateway.control, { op: 'status' })).ok, true);
    });

    test('a line that is too long is refused', async t => {
        const gateway = await start(t, { mcpServers: {} });
        const reply = JSON.parse(await raw(gateway.control, `${'x'.repeat(200_000)}\n`));
        assert.equal(reply.reason, 'too_large');
        assert.equal((await request(gateway.control, { op: 'status', more: 'x'.repeat(60_000) })).ok, true);
    });

    test('half a line is refused after 5 s, and the gateway serves others meanwhile', async t => {
        const gateway = await start(t, { mcpServers: {} });
        const started = Date.now(), half = raw(gateway.control, '{"op":');
        assert.equal((await request(gateway.control, { op: 'status' })).ok, true);
        const reply = JSON.parse(await half);
        assert.match(reply.error, /no whole request line/);
        assert.ok(Date.now() - started >= 4_900, 'it has its 5 s');
    });

    test('the 17th connection is refused, and its place is free when another one ends', async t => {
        const gateway = await start(t, { mcpServers: {} });
        const held = [];
        for (let i = 0; i < 16; i++) {
            const socket = connect(gateway.control).on('error', () => {});
            await once(socket, 'connect');
            held.push(socket);
        }
        assert.equal(JSON.parse(await raw(gateway.control, '')).reason, 'overloaded');
        held.pop().destroy();
        await until(async () => (await request(gateway.control, { op: 'status' })).ok, WAIT_MS, 'a place is free');
        held.forEach(socket => socket.destroy());
    });

    test('a peer that goes away before its reload is done disturbs nothing', async t => {
        const gateway = await start(t, { mcpServers: {} });
        const gone = Array.from({ length: 10 }, () => new Promise(resolve => {
            const socket = connect(gateway.control, () => socket.write('{"op":"reload"}\n', () => socket.destroy()));
            socket.on('close', resolve).on('error', () => {});
        }));
        await Promise.all(gone);
        assert.deepEqual(await gateway.ask('reload'), { changes: 'no changes\n' });
    });

    test('a path that cannot be a socket is an error of the configuration', async () => {
        const file = join(folder.path, 'wrong.json');
        for (const control of ['relative.sock', `/${'x'.repeat(108)}`]) {
            writeFileSync(file, JSON.stringify({ control, mcpServers: {} }));
            const { status, stderr } = await command.run(['config', 'check', '--config', file]);
            assert.equal(status, EXIT.CONFIG);
            assert.match(stderr, /\/control: ".*" is not the path of a socket/);
        }
    });
});
