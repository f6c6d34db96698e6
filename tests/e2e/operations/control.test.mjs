// The control socket: its operations, its users, its bounds, and the commands that use it.
import assert from 'node:assert/strict';
import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmodSync, existsSync, statSync, writeFileSync } from 'node:fs';
import { connect, createServer } from 'node:net';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';

import { commandLine, EXIT } from '../command-line.mjs';
import { binary, catalogueText, peerPath, startGateway, stdioServer, temporaryDirectory, until, writeConfig } from '../gateway.mjs';
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
/** One that is refused before its request was read may lose the reply. */
const isServed = async path => /^\{"ok":true/.test(await raw(path, '{"op":"status"}\n'));
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
        const gateway = await start(t, { mcpServers: { a: mirror('one') } });
        for (const args of [['status'], ['servers'], ['logs', 'a'], ['reload'], ['restart', 'a'], ['disable', 'a'], ['enable', 'a']]) {
            const { stderr } = await command.run([...args, '--control', gateway.control]);
            assert.equal(stderr, `postern: gateway with pid ${gateway.pid} at ${gateway.control}, configuration ${join(gateway.state, 'postern.json')}\n`, args[0]);
        }
    });

    test('postern status is a text on a terminal', async t => {
        const gateway = await start(t, { mcpServers: {} });
        const { shown } = await command.onTerminal(['status', '--control', gateway.control]);
        assert.match(shown, /^status {9}ok$/m);
        assert.match(shown, new RegExp(`^listeners {6}${gateway.url}$`, 'm'));
    });

    test('a command finds the control socket in the configuration', async t => {
        const gateway = await start(t, { mcpServers: {} });
        assert.equal((await command.json(['status', '--config', join(gateway.state, 'postern.json')])).pid, gateway.pid);
    });

    test('a command finds the control socket although variables of the configuration are not set in its shell', async t => {
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

    test('the changes of a reload do not contain the values of variables', async t => {
        const secret = 'of-the-environment';
        const config = (more, sessions) => ({ mcpServers: { a: mirror('one', { args: ['--tools', '["one"]', '--key', '${POSTERN_TEST_SECRET}', more] }) }, limits: { sessions } });
        const gateway = await start(t, config('x', 70), [], { variables: { POSTERN_TEST_SECRET: secret } });
        gateway.put({ control: gateway.control, ...config('y', 71) });
        const { changes } = await gateway.ask('reload');
        await gateway.line(/~ \/mcpServers\/a\/args: changed"/, WAIT_MS);
        await gateway.line(/~ \/limits\/sessions: 70 -> 71"/, WAIT_MS);
        assert.ok(!`${changes}${gateway.log()}`.includes(secret));
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
        assert.match(shown, /the file has not been valid since .*comand/);
    });

    test('a changed path of the control socket needs a restart', async t => {
        const gateway = await start(t, { mcpServers: {} });
        gateway.put({ control: newSocket(), mcpServers: {} });
        const { status, stderr } = await command.run(['reload', '--control', gateway.control]);
        assert.equal(status, EXIT.CONFIG);
        assert.match(stderr, /\/control: a running gateway cannot change this/);
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
        const found = (servers, wanted) => servers.find(({ name }) => name === wanted);
        const servers = await until(async () => { // it is started again from time to time, and is not down meanwhile
            const { status, stdout } = await command.run(['servers', '--control', gateway.control]);
            const all = JSON.parse(stdout);
            return status === EXIT.UNAVAILABLE && found(all, 'broken').state === 'failed' && all;
        }, WAIT_MS, 'the server is down');
        const broken = found(servers, 'broken');
        assert.match(broken.last_error, /no\/such\/program/);
        assert.ok(broken.last_error_at);
        assert.equal(found(servers, 'a').state, 'ready');
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
        assert.equal(other.stderr, 'postern: no gateway with this configuration answers; starting or connecting to each server\n');
        assert.deepEqual(JSON.parse(other.stdout).map(({ name, state }) => [name, state]), [['b', 'ready']]);
    });

    test('postern servers shows a server that is being ended because it is idle', async t => {
        const a = { ...stdioServer.misbehave('ignore-term'), idle_timeout: '1s' };
        const gateway = await start(t, { timeouts: { shutdown: '4s' }, mcpServers: { a } }), session = await Session.open(gateway.url);
        await session.request('tools/list');
        await gateway.line(/server stopping: not used/, WAIT_MS);
        const { state, instances } = await serverOf(gateway, 'a');
        assert.equal(state, 'stopping');
        assert.ok((await gateway.servers()).includes(String(instances[0].pid)), 'its process is still there');
    });

    test('postern servers and postern status show an open circuit', async t => {
        const gateway = await start(t, { mcpServers: { broken: { command: '/no/such/program' } } }), session = await Session.open(gateway.url);
        await session.request('tools/list');
        await gateway.line(/circuit opened.*server=broken/, WAIT_MS);
        const [broken] = await command.json(['servers', '--control', gateway.control], EXIT.UNAVAILABLE);
        assert.deepEqual([broken.state, broken.circuit_open], ['failed', true]);
        assert.equal((await gateway.ask('status')).servers.circuit_open, 1);
        assert.match((await command.onTerminal(['status', '--control', gateway.control])).shown, /^servers .*1 down \(1 with an open circuit\)$/m);
    });

    test('postern servers is a table on a terminal', async t => {
        const gateway = await start(t, { mcpServers: { a: mirror('one') } }), session = await Session.open(gateway.url);
        await session.call('a__one');
        const { shown } = await command.onTerminal(['servers', '--control', gateway.control]);
        assert.match(shown, /^SERVER +STATE +PID +UPTIME +CALLS +LATENCY +LAST ERROR$/m);
        assert.match(shown, /^a +ready +\d+ +0m \d+s +1 +[\d.]+ ms/m);
    });
});

describe('servers that are not used', () => {
    test('postern servers shows a server that is being ended because it was not used', async t => {
        const a = { command: peerPath('misbehave'), args: ['ignore-term'], idle_timeout: '1s' };
        const gateway = await start(t, { mcpServers: { a } }), session = await Session.open(gateway.url);
        await session.call('a__fine');
        await session.delete();
        await gateway.line(/server stopping: not used server=a/, WAIT_MS);
        const [row] = await gateway.ask('servers');
        assert.deepEqual([row.state, row.instances.map(({ state }) => state)], ['stopping', ['stopping']]);
        const { shown } = await command.onTerminal(['servers', '--control', gateway.control]);
        assert.match(shown, /^a +stopping /m);
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

    test('a server cannot control the terminal of an operator through its stderr', async t => {
        const a = shell('printf "\\033]0;title\\007\\302\\23331m\\302\\235x\\177 \\342\\202\\254\\r\\n" >&2; exit 3');
        const gateway = await start(t, { log: { level: 'debug' }, mcpServers: { a } }), session = await Session.open(gateway.url);
        await session.request('tools/list');
        await gateway.line(/server did not start/, WAIT_MS);
        const commands = [['logs', 'a'], ['logs', 'a', '--json'], ['servers'], ['servers', '--json'], ['status']];
        const shown = await Promise.all(commands.map(args => command.onTerminal([...args, '--control', gateway.control])));
        assert.match(shown[0].shown, /title/);
        for (const [i, text] of [...shown.map(({ shown }) => shown), gateway.log()].entries())
            assert.doesNotMatch(text, /[\0-\x08\x0b-\x1f\x7f-\x9f]/, String(commands[i] ?? 'the log'));
        await gateway.line(/\u20ac/); // other characters stay
    });

    test('a process that listens in the place of a gateway cannot control the terminal of an operator, nor crash a command', async t => {
        const path = newSocket(), odd = '\u001b]0;title\u0007\u009b31m';
        let result;
        const server = createServer(socket => socket.on('error', () => {}).on('data', () => socket.end(`${JSON.stringify({ ok: true, result, gateway: { configuration: odd } })}\n`)));
        server.listen(path);
        await once(server, 'listening');
        t.after(() => server.close());
        const asks = [['logs', 'a'], ['servers'], ['status'], ['reload'], ['restart', 'a']];
        const results = [
            [{ state: odd, pid: 1, stderr: odd }, { state: odd, stderr: odd }],
            [{ stderr: 'x' }, {}],
            { status: odd, version: odd, problems: [odd], listeners: [odd], changes: odd, configuration: { failing_since: odd } },
            {}, [], [7], 'text', null
        ];
        for (result of results)
            for (const ask of asks) {
                const { shown, status } = await command.onTerminal([...ask, '--control', path]);
                assert.doesNotMatch(shown, /[\0-\x08\x0b-\x1f\x7f-\x9f]/, `${ask}: ${JSON.stringify(result)}`);
                assert.ok(Object.values(EXIT).includes(status), `${ask}: exit status ${status}\n${shown}`);
            }
    });

    test('postern logs of an unknown server fails', async t => {
        const gateway = await start(t, { mcpServers: {} });
        const { status, stderr } = await command.run(['logs', 'none', '--control', gateway.control]);
        assert.equal(status, EXIT.CONFIG);
        assert.match(stderr, /tenant "default" has no server "none"/);
    });
});

const toolsOf = async session => (await session.request('tools/list')).result.tools.map(({ name }) => name);
const withoutMarks = pids => pids.map(Number).sort();

/** A call that the server answers when `release()` is called. */
async function hold(session, tool) {
    const file = join(folder.path, `go-${Math.random()}`), begun = `${file}-begun`;
    const answer = session.call(tool, { file, begun });
    await until(() => existsSync(begun), WAIT_MS, 'the server has the call');
    return { answer, release: () => writeFileSync(file, '') };
}

/** The next message of this method on a session's own stream. */
async function heard(news, method) {
    for (;;) {
        const event = await news.next();
        if (event.data && JSON.parse(event.data).method === method) return;
    }
}

describe('restart', () => {
    const pidOf = async (gateway, name) => (await gateway.ask('servers')).find(server => server.name === name).instances.find(({ state }) => state !== 'draining')?.pid;

    test('postern restart replaces the process, while other servers and sessions are not disturbed', async t => {
        const gateway = await start(t, { mcpServers: { a: mirror('one'), b: mirror('two') } }), session = await Session.open(gateway.url);
        await session.request('tools/list');
        const a = await pidOf(gateway, 'a'), b = await pidOf(gateway, 'b');
        const held = await hold(session, 'b__wait');
        const cache = () => catalogueText(gateway.state);
        await until(() => cache().includes('"one"'), WAIT_MS, 'the lists are kept; the server is started again nevertheless');
        assert.deepEqual(await gateway.ask('restart', ['a']), { instances: 1 });
        const after = await until(() => pidOf(gateway, 'a'), WAIT_MS, 'another process starts, although no call needs it');
        assert.ok((await session.call('a__one')).result);
        assert.ok(after !== a, `${a} is replaced by ${after}`);
        assert.equal(await pidOf(gateway, 'b'), b);
        held.release();
        assert.ok((await held.answer).result, 'the call at the other server is answered');
        await until(async () => (await gateway.servers()).length === 2, WAIT_MS, 'the old process ends');
    });

    test('a restarted server finishes its calls', async t => {
        const gateway = await start(t, { mcpServers: { a: mirror('one') } }), session = await Session.open(gateway.url);
        const held = await hold(session, 'a__wait');
        await gateway.ask('restart', ['a']);
        const states = (await gateway.ask('servers'))[0].instances.map(({ state }) => state);
        assert.ok(states.includes('draining'), String(states));
        held.release();
        assert.ok((await held.answer).result);
        await until(async () => (await gateway.servers()).length === 1, WAIT_MS, 'the old process ends');
    });

    test('a restarted server that does not finish its calls in time is ended, and they fail with the reason', async t => {
        const gateway = await start(t, { timeouts: { shutdown: '1s' }, mcpServers: { a: mirror('one') } }), session = await Session.open(gateway.url);
        const { answer } = await hold(session, 'a__wait');
        await gateway.ask('restart', ['a']);
        assert.match((await answer).error.message, /restarted, removed or changed/);
        await until(async () => (await gateway.servers()).length === 1, WAIT_MS, 'the old process ends');
    });

    test('postern restart starts a failed server at once', async t => {
        const file = join(folder.path, 'repaired');
        const a = { command: '/bin/sh', args: ['-c', `test -e ${file} || exit 1; exec ${peerPath('mirror')}`] };
        const gateway = await start(t, { mcpServers: { a } }), session = await Session.open(gateway.url);
        await session.request('tools/list');
        assert.equal((await command.json(['servers', '--control', gateway.control], EXIT.UNAVAILABLE))[0].state, 'failed');
        writeFileSync(file, '');
        await gateway.ask('restart', ['a']);
        assert.ok((await session.call('a__mirror')).result);
    });

    test('postern restart replaces each instance of a server of sessions', async t => {
        const gateway = await start(t, { mcpServers: { a: mirror('one', { isolation: 'session' }) } });
        const sessions = [await Session.open(gateway.url), await Session.open(gateway.url)];
        for (const session of sessions) await session.call('a__one');
        const before = withoutMarks(await gateway.servers());
        assert.deepEqual(await gateway.ask('restart', ['a']), { instances: 2 });
        for (const session of sessions) assert.ok((await session.call('a__one')).result);
        await until(async () => (await gateway.servers()).length === 2, WAIT_MS, 'the old processes end');
        assert.ok(withoutMarks(await gateway.servers()).every(pid => !before.includes(pid)));
    });

    test('postern restart fetches the lists of the new process, although those of the old one are kept', async t => {
        const file = join(folder.path, 'pages-of-a'), { command: program, args } = stdioServer.misbehave('pages');
        const a = { command: '/bin/sh', args: ['-c', `exec "$0" "$@" $(cat ${file})`, program, ...args] };
        writeFileSync(file, '1');
        const gateway = await start(t, { mcpServers: { a } }), session = await Session.open(gateway.url);
        assert.deepEqual(await toolsOf(session), ['a__fine']);
        await until(() => catalogueText(gateway.state).includes('fine'), WAIT_MS, 'its lists are kept');
        writeFileSync(file, '2');
        await gateway.ask('restart', ['a']);
        assert.deepEqual(await toolsOf(session), ['a__fine', 'a__page_1']);
    });

    test('postern restart starts an eager server again, although no session needs it', async t => {
        const gateway = await start(t, { mcpServers: { a: mirror('one', { eager: true }) } });
        const before = await until(() => pidOf(gateway, 'a'), WAIT_MS, 'the server starts with the gateway');
        assert.deepEqual(await gateway.ask('restart', ['a']), { instances: 1 });
        await until(async () => ![undefined, before].includes(await pidOf(gateway, 'a')), WAIT_MS, 'another process starts');
    });

    test('postern restart starts a new process also without a session and with known lists', async t => {
        const gateway = await start(t, { mcpServers: { a: mirror('one') } }), session = await Session.open(gateway.url);
        await session.call('a__one');
        await session.delete();
        const before = await pidOf(gateway, 'a');
        assert.deepEqual(await gateway.ask('restart', ['a']), { instances: 1 });
        const after = await until(() => pidOf(gateway, 'a'), WAIT_MS, 'another process starts');
        assert.notEqual(after, before);
    });

    test('postern restart of a server whose process was ended because it was not used says that it was not running', async t => {
        const gateway = await start(t, { mcpServers: { a: mirror('one', { idle_timeout: '1s' }) } }), session = await Session.open(gateway.url);
        await session.call('a__one');
        await session.delete();
        await until(async () => (await gateway.ask('servers'))[0].state === 'idle', WAIT_MS, 'it has ended');
        assert.deepEqual(await gateway.ask('restart', ['a']), { instances: 0 });
    });

    test('postern restart of a server that does not run says so', async t => {
        const gateway = await start(t, { mcpServers: { a: mirror('one') } });
        assert.deepEqual(await gateway.ask('restart', ['a']), { instances: 0 });
        assert.match((await command.onTerminal(['restart', 'a', '--control', gateway.control])).shown, /was not running; the next call starts it/);
        const { status, stderr } = await command.run(['restart', 'none', '--control', gateway.control]);
        assert.equal(status, EXIT.CONFIG);
        assert.match(stderr, /has no server "none"/);
    });
});

describe('disable', () => {
    test('a disabled server ends and its tools are gone until it is enabled, and sessions get list_changed', async t => {
        const gateway = await start(t, { mcpServers: { a: mirror('one'), b: mirror('two') } }), session = await Session.open(gateway.url);
        assert.ok((await toolsOf(session)).includes('b__two'));
        const news = await session.get();
        assert.deepEqual(await gateway.ask('disable', ['b']), { instances: 1 });
        await heard(news, 'notifications/tools/list_changed');
        assert.ok(!(await toolsOf(session)).includes('b__two'));
        assert.equal((await session.call('b__two')).error.code, -32602);
        assert.ok((await session.call('a__one')).result);
        const b = (await gateway.ask('servers')).find(({ name }) => name === 'b');
        assert.deepEqual([b.state, b.disabled_by], ['disabled', 'operator']);
        await until(async () => (await gateway.servers()).length === 1, WAIT_MS, 'it ends');
        await gateway.ask('enable', ['b']);
        await heard(news, 'notifications/tools/list_changed');
        assert.ok((await session.call('b__two')).result);
        news.drop();
    });

    test('a disabled server stays disabled across a reload', async t => {
        const config = { mcpServers: { a: mirror('one'), b: mirror('two') } };
        const gateway = await start(t, config), session = await Session.open(gateway.url);
        await gateway.ask('disable', ['b']);
        gateway.put({ control: gateway.control, mcpServers: { ...config.mcpServers, c: mirror('three') } });
        await gateway.ask('reload');
        assert.ok((await session.call('c__three')).result);
        assert.equal((await session.call('b__two')).error.code, -32602);
        assert.equal((await gateway.ask('servers')).find(({ name }) => name === 'b').state, 'disabled');
    });

    test('a disabled server with "eager" does not start at a reload, and starts when it is enabled', async t => {
        const config = { mcpServers: { a: mirror('one', { eager: true }) } }, gateway = await start(t, config);
        await until(async () => (await gateway.servers()).length === 1, WAIT_MS, 'it starts with the gateway');
        await gateway.ask('disable', ['a']);
        await until(async () => (await gateway.servers()).length === 0, WAIT_MS, 'it ends');
        gateway.put({ control: gateway.control, mcpServers: { ...config.mcpServers, b: mirror('two', { eager: true }) } });
        await gateway.ask('reload');
        await until(async () => (await gateway.ask('servers')).find(({ name }) => name === 'b').state === 'ready', WAIT_MS, 'the added server starts');
        assert.deepEqual((await gateway.ask('servers')).find(({ name }) => name === 'a').instances, []);
        assert.equal((await gateway.servers()).length, 1);
        await gateway.ask('enable', ['a']);
        await until(async () => (await gateway.servers()).length === 2, WAIT_MS, 'it starts although no call needs it');
    });

    test('postern restart of a disabled server fails and names the command that enables it', async t => {
        const gateway = await start(t, { mcpServers: { a: mirror('one'), b: mirror('two', { disabled: true }) } });
        await gateway.ask('disable', ['a']);
        const a = await command.run(['restart', 'a', '--control', gateway.control]), b = await command.run(['restart', 'b', '--control', gateway.control]);
        assert.deepEqual([a.status, b.status], [EXIT.CONFIG, EXIT.CONFIG]);
        assert.match(a.stderr, /server "a" is disabled; .*'postern enable a'/);
        assert.match(b.stderr, /server "b" is disabled in the configuration/);
    });

    test('a server that the configuration disables is not enabled', async t => {
        const gateway = await start(t, { mcpServers: { a: mirror('one', { disabled: true }) } });
        const { status, stderr } = await command.run(['enable', 'a', '--control', gateway.control]);
        assert.equal(status, EXIT.CONFIG);
        assert.match(stderr, /disabled in the configuration/);
        assert.equal((await gateway.ask('servers'))[0].disabled_by, 'configuration');
    });

    test('disabling a server twice, and enabling one that is enabled, changes nothing', async t => {
        const gateway = await start(t, { mcpServers: { a: mirror('one') } }), session = await Session.open(gateway.url);
        await gateway.ask('enable', ['a']);
        assert.ok((await session.call('a__one')).result);
        const [pid] = await gateway.servers();
        await gateway.ask('enable', ['a']);
        assert.deepEqual(await gateway.servers(), [pid]);
        await gateway.ask('disable', ['a']);
        assert.deepEqual(await gateway.ask('disable', ['a']), { instances: 0 });
    });

    test('a server of another tenant with the same name is not disabled', async t => {
        const tenants = { other: { mcpServers: { a: mirror('two') } } };
        const gateway = await start(t, { tenants, mcpServers: { a: mirror('one') } }), session = await Session.open(gateway.url);
        await gateway.ask('disable', ['a', '--tenant', 'other']);
        assert.ok((await session.call('a__one')).result);
        assert.deepEqual((await gateway.ask('servers')).map(({ tenant, state }) => [tenant, state]), [['default', 'ready'], ['other', 'disabled']]);
    });
});

describe('the audit log', () => {
    test('changes are rows of the audit log, also those that failed, with the user and the process that asked', async t => {
        const audit = join(folder.path, 'audit.db');
        const gateway = await start(t, { audit: { path: audit }, mcpServers: { a: mirror('one') } });
        for (const op of [['status'], ['servers'], ['logs', 'a'], ['reload'], ['restart', 'a'], ['disable', 'a'], ['enable', 'a']]) await gateway.ask(op[0], op.slice(1));
        await command.run(['restart', 'none', '--control', gateway.control]);
        const rows = await until(async () => {
            const { stdout } = await command.run(['audit', '--file', audit, '--limit', '0', '--json']);
            const found = stdout.split('\n').filter(Boolean).map(line => JSON.parse(line)).filter(({ event, subject }) => event === 'operation' && subject);
            return found.length === 5 && found;
        }, WAIT_MS, 'the rows are written');
        assert.deepEqual(rows.map(({ method, server, tenant, status }) => [method, server, tenant, status]), [
            ['reload', undefined, undefined, 'ok'], ['restart', 'a', 'default', 'ok'], ['disable', 'a', 'default', 'ok'],
            ['enable', 'a', 'default', 'ok'], ['restart', 'none', 'default', 'error']]);
        for (const { subject, peer, provider } of rows) {
            assert.deepEqual([subject, provider], [`uid:${process.getuid()}`, 'os']);
            assert.match(peer, /^pid:\d+$/);
        }
        assert.match(rows[4].reason, /has no server "none"/);
    });
});

describe('the control socket', () => {
    test('the file of the control socket has mode 0600 and is removed when the gateway ends', async t => {
        const control = newSocket(), gateway = await open({ control, mcpServers: {} });
        t.after(() => gateway.child.kill('SIGKILL'));
        assert.equal(statSync(control).mode & 0o777, 0o600);
        await gateway.stop();
        assert.ok(!existsSync(control));
    });

    test('the default control socket is in XDG_RUNTIME_DIR, where commands find it', async t => {
        const gateway = await open({ mcpServers: {} }, [], { variables: { XDG_RUNTIME_DIR: folder.path } });
        t.after(() => gateway.stop());
        assert.equal((await command.json(['status'], EXIT.OK, { env: { XDG_RUNTIME_DIR: folder.path } })).pid, gateway.pid);
    });

    test('a request whose tenant is not a name is refused, and not taken for one about the tenant "default"', async t => {
        const gateway = await start(t, { mcpServers: { a: mirror('one') } });
        for (const op of ['restart', 'disable', 'logs', 'servers'])
            for (const tenant of [7, {}, [], true]) {
                const { ok, error } = await request(gateway.control, { op, server: 'a', tenant });
                assert.deepEqual([ok, error], [false, '"tenant" must be the name of a tenant'], op);
            }
        assert.equal((await request(gateway.control, { op: 'restart', server: 'a', tenant: null })).ok, true);
    });

    test('an empty path disables the control socket', async t => {
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

    test('the file of a control socket that a killed gateway left behind is replaced', async t => {
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
        await gateway.line(/control connection refused.*uid=65534/);
    });

    test('a line that is not a request is answered with the reason', async t => {
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
        assert.match(reply.error, /no complete request line/);
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
        await until(() => isServed(gateway.control), WAIT_MS, 'a place is free');
        held.forEach(socket => socket.destroy());
    });

    test('a peer that does not read its reply is disconnected after 5 s', async t => {
        const a = { command: '/bin/sh', args: ['-c', `i=0; while [ $i -lt 1500 ]; do echo "a line of about thirty bytes: $i" >&2; i=$((i+1)); done; exec ${peerPath('mirror')}`], isolation: 'session' };
        const gateway = await start(t, { mcpServers: { a } });
        for (let i = 0; i < 15; i++) await (await Session.open(gateway.url)).call('a__mirror'); // 15 times 32 KiB: more than a socket holds
        const deaf = [];
        for (let i = 0; i < 16; i++) {
            const socket = connect(gateway.control).on('error', () => {}).pause();
            socket.write('{"op":"logs","server":"a"}\n');
            await once(socket, 'connect');
            deaf.push(socket);
        }
        assert.equal(JSON.parse(await raw(gateway.control, '')).reason, 'overloaded');
        await until(() => isServed(gateway.control), WAIT_MS, 'their places are free');
        assert.equal((await request(gateway.control, { op: 'logs', server: 'a' })).result.length, 15);
        deaf.forEach(socket => socket.destroy());
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
