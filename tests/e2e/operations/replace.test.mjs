// Replacing a running gateway: sockets that a service manager passes and keeps, and `postern serve --replace`.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { chownSync, existsSync, lstatSync, readFileSync, writeFileSync } from 'node:fs';
import { Agent, request } from 'node:http';
import { connect } from 'node:net';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { describe, test } from 'node:test';

import { commandLine, EXIT } from '../command-line.mjs';
import { binary, catalogueText, freePort, peerPath, settles, temporaryDirectory, until, watch, writeConfig } from '../gateway.mjs';
import { initialize, post, reply, resultText, Session } from '../raw.mjs';

const WAIT_MS = 30_000;
const STOP_MS = 30_000;
const NOBODY = 65534;
const mirror = { command: peerPath('mirror'), args: ['--tools', '["one"]'] };

/** Runs `serve` with these arguments in the place; waits until it serves, unless it fails. */
async function serve(place, ...args) {
    const child = spawn(binary, ['serve', '--config', place.path, ...args], { stdio: ['ignore', 'ignore', 'pipe'], env: place.environment });
    const gateway = watch(child, 'stderr');
    place.endings.push(async () => {
        child.kill('SIGTERM');
        if (!(await settles(gateway.exited, STOP_MS))) child.kill('SIGKILL');
    });
    await gateway.line(/control socket open/, WAIT_MS);
    return gateway;
}

/** A place with a TCP and a unix listener, a control socket and an audit log. */
async function open(t, config = {}) {
    const folder = temporaryDirectory(), port = await freePort();
    const at = name => join(folder.path, name);
    const endings = []; // stop the programs that use the folder
    t.after(async () => {
        for (const end of endings) await end();
        folder.remove();
    });
    const listen = [{ address: `127.0.0.1:${port}` }, { address: `unix:${at('callers.sock')}` }];
    const whole = { listen, control: at('control.sock'), audit: { path: at('audit.db') }, mcpServers: { a: mirror }, ...config };
    const command = commandLine(folder.path);
    return {
        ...{ at, whole, command, endings, port, url: `http://127.0.0.1:${port}/mcp`, control: at('control.sock'), callers: at('callers.sock') },
        path: writeConfig(folder.path, whole),
        environment: { ...process.env, POSTERN_STATE: folder.path },
        status: async () => JSON.parse((await command.run(['status', '--control', at('control.sock')])).stdout), // also while its configuration file is not valid
        replace: (more = []) => command.run(['serve', '--config', at('postern.json'), '--replace', ...more], { env: { POSTERN_STATE: folder.path } })
    };
}

/** The path of a folder for the files of a test. */
function temporary(t) {
    const folder = temporaryDirectory();
    t.after(() => folder.remove());
    return folder.path;
}

const exitOf = async (gateway, what) => {
    assert.ok(await settles(gateway.exited, STOP_MS), `${what} did not end\n${gateway.log()}`);
    return (await gateway.exited).code;
};

const stopped = gateway => {
    gateway.child.kill('SIGTERM');
    return exitOf(gateway, 'the gateway');
};

/** A function that posts a message, in the way of `options`, and gives the answer. */
const poster = (url, options) => async (body, headers) => {
    const answer = await new Promise((resolve, reject) => {
        const bytes = JSON.stringify(body);
        const sent = request(url, { method: 'POST', headers: post({ 'content-length': Buffer.byteLength(bytes), ...headers }), ...options }, resolve);
        sent.on('error', reject).end(bytes);
    });
    return { status: answer.statusCode, headers: answer.headers, body: await text(answer) };
};

/** Calls a tool again and again until `end()`; initializes anew after 404 and repeats nothing else. */
function callSteadily(url, options) {
    const seen = { calls: 0, sessions: 0, failures: [] };
    let going = true, session;
    const send = poster(url, options);
    const start = async () => {
        const answer = await send(initialize('2025-11-25'));
        assert.equal(answer.status, 200, answer.body);
        session = { 'mcp-session-id': answer.headers['mcp-session-id'], 'mcp-protocol-version': '2025-11-25' };
        seen.sessions++;
        await send({ jsonrpc: '2.0', method: 'notifications/initialized' }, session);
    };
    const call = async () => {
        const answer = await send({ jsonrpc: '2.0', id: seen.calls, method: 'tools/call', params: { name: 'a__one', arguments: {} } }, session);
        if (answer.status === 404) return start();
        assert.equal(answer.status, 200, answer.body);
        resultText(reply(answer));
        seen.calls++;
    };
    const done = (async () => {
        await start();
        while (going) await call();
    })().catch(error => seen.failures.push(error.stack));
    return { seen, end: () => ((going = false), done) };
}

/** Runs a gateway under a service manager, which passes it sockets that listen at these addresses. */
function manage(place, listeners = []) {
    const given = listeners.flatMap(address => ['--listen', address]);
    const child = spawn(peerPath('service-manager'), [...given, binary, 'serve', '--config', place.path], { stdio: ['pipe', 'pipe', 'pipe'], env: place.environment });
    const manager = watch(child, 'stderr'), reports = watch(child, 'stdout');
    /** Its reports with this name, in order. */
    const reported = name => reports.log().split('\n').slice(0, -1).map(line => JSON.parse(line)[name]).filter(value => value !== undefined);
    const awaitReports = (name, count) => until(() => reported(name).length >= count, WAIT_MS, `${count} reports of ${name}\n${manager.log()}`);
    place.endings.push(async () => {
        child.stdin.end();
        assert.ok(await settles(manager.exited, STOP_MS), `the service manager did not end\n${manager.log()}`);
        assert.equal(reported('ended').at(-1), 0, manager.log());
    });
    const ready = count => until(() => reported('notified').filter(text => text === 'READY=1').length >= count, WAIT_MS, `the gateway is ready\n${manager.log()}`);
    return {
        ...{ reported, ready },
        log: manager.log,
        line: pattern => manager.line(pattern, WAIT_MS),
        stop: async () => {
            const before = reported('ended').length;
            child.stdin.write('stop\n');
            await awaitReports('ended', before + 1);
        },
        start: () => child.stdin.write('start\n')
    };
}

describe('a gateway under a service manager', () => {
    test('a listener serves on the passed socket with its address, and a socket of another address is closed', async t => {
        const here = await open(t), other = await freePort();
        const managed = manage(here, [`127.0.0.1:${other}`, `127.0.0.1:${here.port}`]); // the port is taken: the gateway cannot open it
        await managed.line(new RegExp(`inherited socket closed address=127.0.0.1:${other} `));
        const session = await Session.open(here.url);
        assert.ok((await session.call('a__one')).result);
    });

    test('callers that connect while the gateway restarts are served by the next process', async t => {
        const here = await open(t), managed = manage(here);
        await managed.ready(1);
        const before = lstatSync(here.callers).ino;
        assert.deepEqual([...managed.reported('stored').at(-1)].sort(), [`127.0.0.1_${here.port}`, `unix_${here.callers}`, `unix_${here.control}`].sort());
        await managed.stop();
        assert.ok(managed.reported('notified').includes('STOPPING=1'));
        const status = here.status();
        const callers = [{ agent: false }, { agent: false, socketPath: here.callers }].map(options => callSteadily(here.url, options));
        managed.start();
        await managed.ready(2);
        await until(() => callers.every(({ seen }) => seen.calls > 0 || seen.failures.length), WAIT_MS, 'the callers are served');
        await Promise.all(callers.map(({ end }) => end()));
        assert.deepEqual(callers.flatMap(({ seen }) => seen.failures), []);
        assert.equal((await status).pid, managed.reported('started').at(-1));
        assert.equal(lstatSync(here.callers).ino, before);
        assert.equal(managed.reported('stored').at(-1).length, 3);
    });

    test('a reload stores the sockets of new listeners and forgets those of removed ones', async t => {
        const here = await open(t), managed = manage(here), port = await freePort();
        await managed.ready(1);
        writeConfig(here.at('.'), { ...here.whole, listen: [{ address: `127.0.0.1:${port}` }] });
        await here.command.json(['reload', '--control', here.control]);
        await until(() => managed.reported('stored').at(-1).length === 2, WAIT_MS, 'two sockets are stored');
        assert.deepEqual([...managed.reported('stored').at(-1)].sort(), [`127.0.0.1_${port}`, `unix_${here.control}`].sort());
        await managed.stop();
        await assert.rejects(Session.open(here.url), { code: 'ECONNREFUSED' });
        managed.start();
        await Session.open(`http://127.0.0.1:${port}/mcp`);
    });

    test('a stored socket that the configuration does not list any more is closed and forgotten', async t => {
        const here = await open(t), managed = manage(here), port = await freePort();
        await managed.ready(1);
        await managed.stop();
        writeConfig(here.at('.'), { ...here.whole, listen: [{ address: `127.0.0.1:${port}` }] });
        managed.start();
        await managed.ready(2);
        await Session.open(`http://127.0.0.1:${port}/mcp`);
        assert.ok(!managed.reported('stored').at(-1).includes(`127.0.0.1_${here.port}`));
        await assert.rejects(Session.open(here.url), { code: 'ECONNREFUSED' });
    });

    test('a gateway under a service manager is not replaced by another process', async t => {
        const here = await open(t), managed = manage(here);
        await managed.ready(1);
        const { status, stderr } = await here.replace();
        assert.equal(status, EXIT.UNAVAILABLE);
        assert.match(stderr, /cannot be replaced: it runs under a service manager; restart its service instead/);
        assert.equal((await here.status()).pid, managed.reported('started')[0]);
    });

    test('servers do not get the variables of the service manager', async t => {
        const here = await open(t), managed = manage(here, [`127.0.0.1:${here.port}`]);
        await managed.ready(1);
        await (await Session.open(here.url)).call('a__one');
        const [, pid] = await managed.line(/server started .*pid=(\d+)/);
        assert.doesNotMatch(readFileSync(`/proc/${pid}/environ`, 'latin1'), /NOTIFY_SOCKET|LISTEN_/);
    });
});

describe('postern serve --replace', () => {
    test('no call is refused or lost while the gateway is replaced three times, and the audit log stays whole', async t => {
        const here = await open(t);
        let gateway = await serve(here);
        const before = lstatSync(here.callers).ino;
        const keptAlive = () => ({ agent: new Agent({ keepAlive: true, maxSockets: 1 }) });
        const callers = [{ agent: false }, { agent: false }, keptAlive(), keptAlive(), { agent: false, socketPath: here.callers }].map(options => callSteadily(here.url, options));
        const failures = () => callers.flatMap(({ seen }) => seen.failures);
        for (let round = 1; round <= 3; round++) {
            const old = gateway;
            gateway = await serve(here, '--replace');
            assert.equal(await exitOf(old, 'the replaced gateway'), 0, old.log());
            await old.line(new RegExp(`replaced pid=${gateway.pid}`));
            assert.equal((await here.status()).pid, gateway.pid);
            await until(() => failures().length || callers.every(({ seen }) => seen.sessions > round), WAIT_MS, 'every caller has a session of the successor');
        }
        await Promise.all(callers.map(({ end }) => end()));
        assert.deepEqual(failures(), []);
        assert.equal(lstatSync(here.callers).ino, before);
        assert.equal(await stopped(gateway), 0);
        assert.ok(!existsSync(here.callers) && !existsSync(here.control));
        const { status, stdout, stderr } = await here.command.run(['audit', 'verify', '--file', here.at('audit.db')]);
        assert.equal(status, EXIT.OK, stdout + stderr);
        const rows = (await here.command.run(['audit', '--file', here.at('audit.db'), '--limit', '0', '--json'])).stdout.split('\n').filter(Boolean).map(line => JSON.parse(line));
        assert.equal(rows.filter(({ method, status }) => method === 'tools/call' && status === 'ok').length, callers.reduce((sum, { seen }) => sum + seen.calls, 0));
        assert.equal(rows.filter(({ event, method }) => event === 'operation' && method === 'replace').length, 3);
    });

    test('a call in flight gets its result from the replaced gateway, and new callers are served meanwhile', async t => {
        const here = await open(t, { timeouts: { shutdown: '60s' } });
        const old = await serve(here), session = await Session.open(here.url);
        const slow = session.call('a__wait', { file: here.at('go'), begun: here.at('begun') });
        await until(() => existsSync(here.at('begun')), WAIT_MS, 'the call has begun');
        const next = await serve(here, '--replace');
        await old.line(/replaced pid=/, WAIT_MS);
        const other = await Session.open(here.url);
        assert.equal(resultText(await other.call('a__one')), 'one');
        for (let i = 0; i < 10; i++) assert.equal((await here.status()).pid, next.pid); // never the old one
        assert.equal(old.child.exitCode, null);
        assert.equal((await session.post({ jsonrpc: '2.0', id: 1, method: 'tools/list' })).status, 404);
        writeFileSync(here.at('go'), '');
        assert.equal(resultText(await slow), 'waited');
        assert.equal(await exitOf(old, 'the replaced gateway'), 0);
    });

    test('a caller with an idle connection gets one more answer of the replaced gateway on it', async t => {
        const here = await open(t, { timeouts: { shutdown: '60s' } }), agent = new Agent({ keepAlive: true, maxSockets: 1 });
        t.after(() => agent.destroy());
        const old = await serve(here), send = poster(here.url, { agent });
        const session = { 'mcp-session-id': (await send(initialize('2025-11-25'))).headers['mcp-session-id'], 'mcp-protocol-version': '2025-11-25' };
        const list = id => send({ jsonrpc: '2.0', id, method: 'tools/list' }, session);
        assert.equal((await send({ jsonrpc: '2.0', method: 'notifications/initialized' }, session)).status, 202);
        await serve(here, '--replace');
        await old.line(/replaced pid=/, WAIT_MS);
        const last = await list(1);
        assert.equal(last.status, 200, last.body);
        assert.equal(last.headers.connection, 'close');
        assert.equal((await list(2)).status, 404);
        assert.equal(await exitOf(old, 'the replaced gateway'), 0);
    });

    test('a replaced gateway does not overwrite the lists that its successor has fetched', async t => {
        const names = join(temporary(t), 'tools'), go = `${names}-go`, begun = `${names}-begun`;
        const a = { command: '/bin/sh', args: ['-c', `exec ${peerPath('mirror')} --tools "$(cat ${names})"`] };
        writeFileSync(names, '["one"]');
        const here = await open(t, { timeouts: { shutdown: '60s' }, mcpServers: { a } }), old = await serve(here);
        const session = await Session.open(here.url);
        assert.ok((await session.call('a__one')).result);
        await until(() => catalogueText(here.at('.')).includes('"one"'), WAIT_MS, 'the lists are saved');
        const inFlight = session.call('a__wait', { file: go, begun });
        await until(() => existsSync(begun), WAIT_MS, 'the call has begun');

        writeFileSync(names, '["one","two"]');
        const next = await serve(here, '--replace');
        await old.line(/replaced pid=/, WAIT_MS);
        assert.ok((await (await Session.open(here.url)).call('a__two')).result);
        await until(() => catalogueText(here.at('.')).includes('"two"'), WAIT_MS, 'the lists of the new process are saved');
        writeFileSync(go, '');
        assert.ok((await inFlight).result);
        assert.equal(await exitOf(old, 'the replaced gateway'), 0);

        next.child.kill('SIGKILL'); // so that it saves nothing at its end
        await next.exited;
        await serve(here);
        const { result } = await (await Session.open(here.url)).request('tools/list');
        assert.ok(result.tools.some(({ name }) => name === 'a__two'), 'the next gateway lists what the successor has fetched');
    });

    test('a call that does not end is cut off by the replaced gateway after timeouts.shutdown', async t => {
        const here = await open(t, { timeouts: { shutdown: '500ms' } });
        const old = await serve(here), session = await Session.open(here.url);
        const slow = session.post({ jsonrpc: '2.0', id: 1, method: 'tools/call', params: { name: 'a__wait', arguments: { file: here.at('never'), begun: here.at('begun') } } });
        await until(() => existsSync(here.at('begun')), WAIT_MS, 'the call has begun');
        await serve(here, '--replace');
        assert.match((await slow).body, /shutting down/);
        assert.equal(await exitOf(old, 'the replaced gateway'), 0);
    });

    test('a successor that cannot start leaves the running gateway as it was', async t => {
        const here = await open(t);
        const gateway = await serve(here), session = await Session.open(here.url);
        writeConfig(here.at('.'), { ...here.whole, listn: [] });
        const broken = await here.replace();
        assert.equal(broken.status, EXIT.CONFIG, broken.stderr);
        assert.match(broken.stderr, /listn/);
        // Fails after the handover: a process of the test listens at an address that the new configuration adds.
        const taken = await serve(await open(t)), url = /listening url=http:\/\/(\S+)\/mcp/.exec(taken.log())[1];
        writeConfig(here.at('.'), { ...here.whole, listen: [...here.whole.listen, { address: url }] });
        const refused = await here.replace();
        assert.equal(refused.status, EXIT.CONFIG, refused.stderr);
        assert.match(refused.stderr, /cannot listen on .*Address already in use/);
        await gateway.line(/gateway not replaced: its successor disconnected/, WAIT_MS);
        assert.equal((await here.status()).pid, gateway.pid);
        assert.ok((await session.call('a__one')).result);
        assert.ok(existsSync(here.callers) && existsSync(here.control));
        writeConfig(here.at('.'), here.whole);
        const next = await serve(here, '--replace');
        assert.equal(await exitOf(gateway, 'the replaced gateway'), 0);
        assert.equal((await here.status()).pid, next.pid);
    });

    test('a gateway that finds the sockets in use reports the pid of the successor, not of the replaced gateway', async t => {
        const here = await open(t);
        writeConfig(here.at('.'), { ...here.whole, listen: [{ address: `unix:${here.callers}` }] });
        const old = await serve(here), next = await serve(here, '--replace');
        assert.equal(await exitOf(old, 'the replaced gateway'), 0);
        const { status, stderr } = await here.command.run(['serve', '--config', here.path], { env: here.environment });
        assert.equal(status, EXIT.CONFIG);
        assert.match(stderr, new RegExp(`another process \\(pid ${next.child.pid}\\) listens there already`));
    });

    test('a successor closes a listener that its configuration does not have, and opens one that it adds', async t => {
        const here = await open(t);
        const old = await serve(here), port = await freePort();
        writeConfig(here.at('.'), { ...here.whole, listen: [{ address: `unix:${here.callers}`, mode: '0660' }, { address: `127.0.0.1:${port}` }] });
        await serve(here, '--replace');
        assert.equal(await exitOf(old, 'the replaced gateway'), 0);
        await Session.open(`http://127.0.0.1:${port}/mcp`); // the new gateway runs its loop: it has closed the sockets that it does not need
        await assert.rejects(Session.open(here.url), { code: 'ECONNREFUSED' });
        assert.equal(lstatSync(here.callers).mode & 0o777, 0o660);
    });

    test('a gateway that is being replaced does not reload its configuration, and does so when its successor has failed', async t => {
        const here = await open(t), port = await freePort(), gateway = await serve(here), successor = connect(here.control);
        successor.write('{"op":"handover"}\n');
        await once(successor, 'data');
        writeConfig(here.at('.'), { ...here.whole, listen: [...here.whole.listen, { address: `127.0.0.1:${port}` }] });
        const { status, stderr } = await here.command.run(['reload', '--control', here.control]);
        assert.equal(status, EXIT.CONFIG);
        assert.match(stderr, /another process is replacing the gateway/);
        successor.destroy();
        await gateway.line(new RegExp(`listening url=http://127.0.0.1:${port}/mcp`), WAIT_MS);
        await Session.open(`http://127.0.0.1:${port}/mcp`);
    });

    test('serve --replace fails without a running gateway and says how to start', async t => {
        const here = await open(t), { status, stderr } = await here.replace();
        assert.equal(status, EXIT.UNAVAILABLE);
        assert.match(stderr, /no gateway to replace at the control socket: .*; start without --replace/);
    });

    test('a gateway with another configuration file is not replaced', async t => {
        const here = await open(t), other = await open(t), gateway = await serve(here);
        writeConfig(other.at('.'), { ...other.whole, control: here.control });
        const { status, stderr } = await other.replace();
        assert.equal(status, EXIT.CONFIG);
        assert.match(stderr, /runs with another configuration file/);
        assert.equal((await here.status()).pid, gateway.pid);
    });

    test('a gateway of another user is not replaced, not even by root', { skip: process.getuid() !== 0 && 'needs root' }, async t => {
        const here = await open(t, { audit: undefined, mcpServers: {} });
        for (const name of ['.', 'postern.json']) chownSync(here.at(name), NOBODY, NOBODY);
        const child = spawn('setpriv', [`--reuid=${NOBODY}`, `--regid=${NOBODY}`, '--clear-groups', binary, 'serve', '--config', here.path], { stdio: ['ignore', 'ignore', 'pipe'], env: here.environment });
        here.endings.push(() => child.kill('SIGKILL'));
        await watch(child, 'stderr').line(/control socket open/, WAIT_MS);
        const { status, stderr } = await here.replace();
        assert.equal(status, EXIT.CONFIG);
        assert.match(stderr, /the gateway at \S+ runs as another user; replace it as that user/);
        const socket = connect(here.control);
        socket.end('{"op":"handover"}\n');
        assert.match(await text(socket), /"ok":false.*only a process of the user that the gateway runs as may replace it/);
        assert.equal((await here.status()).pid, child.pid);
    });

    test('only one process at a time may replace the gateway, and another one may when the first has disconnected', async t => {
        const here = await open(t), gateway = await serve(here);
        const first = connect(here.control);
        first.write('{"op":"handover"}\n');
        assert.match((await once(first.setEncoding('utf8'), 'data'))[0], /^{"ok":true/);
        const { status, stderr } = await here.replace();
        assert.equal(status, EXIT.UNAVAILABLE);
        assert.match(stderr, new RegExp(`the process ${process.pid} is replacing this gateway already`));
        first.destroy();
        await gateway.line(/gateway not replaced/, WAIT_MS);
        await serve(here, '--replace');
        assert.equal(await exitOf(gateway, 'the replaced gateway'), 0);
    });

    test('a gateway that has not handed over its sockets does not retire', async t => {
        const here = await open(t), gateway = await serve(here), socket = connect(here.control);
        socket.end('{"op":"retire"}\n');
        assert.match(await text(socket), /"ok":false.*has not handed over its sockets/);
        assert.equal((await here.status()).pid, gateway.pid);
    });

    test('a gateway that serves standard input is not replaced', async t => {
        const here = await open(t);
        const child = spawn(binary, ['serve', '--config', here.path, '--stdio'], { stdio: ['pipe', 'ignore', 'pipe'], env: here.environment });
        const gateway = watch(child, 'stderr');
        here.endings.push(() => child.kill('SIGKILL'));
        await gateway.line(/control socket open/, WAIT_MS);
        const { status, stderr } = await here.replace();
        assert.equal(status, EXIT.UNAVAILABLE);
        assert.match(stderr, /cannot be replaced: it serves a caller on its standard input/);
        await here.command.fails(['serve', '--config', here.path, '--replace', '--stdio'], EXIT.USAGE, /--replace cannot be used with --stdio/);
        assert.equal(await stopped(gateway), 0);
    });
});
