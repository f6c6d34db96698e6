// The bound on connections: what happens when it is reached, how the gateway resumes, and which connections are closed first.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync, writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { dirname, join } from 'node:path';
import { after, describe, test } from 'node:test';

import { callOf, Channel } from '../channel.mjs';
import { binary, startGateway, stdioServer, temporaryDirectory, until } from '../gateway.mjs';
import { initialize } from '../raw.mjs';

const WAIT_MS = 20_000;
const ROUNDS = 8;
const LARGE = 32 << 20; // more than the kernel buffers for a caller that does not read
const FULL = /not accepting connections/g;
const AGAIN = /accepting connections again/g;

const count = (text, pattern) => [...text.matchAll(pattern)].length;
const limitOf = pid => /^Max open files +(\d+) +(\d+)/m.exec(readFileSync(`/proc/${pid}/limits`, 'latin1')).slice(1).map(Number);

/** A raw connection that has sent something. `answered` is true as soon as anything was received. */
function dial(gateway, text, options = {}) {
    const target = gateway.url.startsWith('unix:') ? { path: gateway.url.slice(5) } : { host: '127.0.0.1', port: new URL(gateway.url).port, ...options };
    const socket = connect(target, () => socket.write(text));
    const line = { socket, answered: false, closed: false };
    socket.on('error', () => {}).on('data', () => (line.answered = true)).on('close', () => (line.closed = true));
    return line;
}
const pipe = 'GET /sse HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n';

/** The calls of one session, over separate connections. */
async function works(gateway, token) {
    const unix = gateway.url.startsWith('unix:');
    const channel = await Channel.open(unix ? 'http://localhost/mcp' : gateway.url, unix ? { socketPath: gateway.url.slice(5) } : {}, token && { authorization: `Bearer ${token}` });
    assert.equal((await channel.request('ping')).error, undefined);
}

/** Opens streams until the gateway accepts no more, and closes them all; then the gateway must accept connections again. */
async function fillAndLeave(gateway) {
    for (let round = 1; round <= ROUNDS; round++) {
        const lines = [], full = () => count(gateway.log(), FULL) === round;
        while (!full()) {
            const line = dial(gateway, pipe);
            lines.push(line);
            await until(() => line.answered || full(), WAIT_MS, 'an answer, or the log says that the limit is reached');
        }
        assert.ok(lines.slice(0, -1).every(({ answered, closed }) => answered && !closed), 'accepted connections stay open');
        assert.equal(lines.at(-1).answered, false);
        for (const { socket } of lines) socket.destroy();
        await works(gateway);
        await until(() => count(gateway.log(), AGAIN) === round, WAIT_MS, `the log says ${round} times that connections are accepted again`);
    }
}

describe('accepting after connections close', () => {
    const directory = temporaryDirectory();
    after(() => directory.remove());
    for (const address of ['127.0.0.1:0', `unix:${join(directory.path, 'postern.sock')}`])
        test(`connections are accepted again after limits.connections was reached on ${address.split(':')[0]}`, async () => {
            const gateway = await startGateway({ listen: [{ address }], limits: { connections: 10 }, mcpServers: {} });
            try {
                await fillAndLeave(gateway);
                await gateway.line(/limits\.connections/);
            } finally {
                await gateway.stop();
            }
        });

    test('connections are accepted again after the descriptors ran out', async () => {
        const gateway = await startGateway({ mcpServers: {} }, [], { launcher: ['prlimit', '--nofile=64:64'] });
        try {
            await fillAndLeave(gateway);
            await gateway.line(/not accepting connections.*Too many open files/);
        } finally {
            await gateway.stop();
        }
    });

    test('a waiting connection is accepted when another one closes', async () => {
        const gateway = await startGateway({ limits: { connections: 2 }, mcpServers: {} });
        try {
            const lines = [dial(gateway, pipe), dial(gateway, pipe)];
            await until(() => lines.every(({ answered }) => answered), WAIT_MS, 'two streams');
            const third = dial(gateway, pipe);
            await gateway.line(FULL, WAIT_MS);
            assert.equal(third.answered, false);
            lines[0].socket.destroy();
            await until(() => third.answered, WAIT_MS, 'the third is served');
            for (const { socket } of [...lines, third]) socket.destroy();
        } finally {
            await gateway.stop();
        }
    });
});

test('a policy and a certificate that could not be read without descriptors are reloaded later', async () => {
    const keys = temporaryDirectory();
    const [certificate, key] = ['tls.crt', 'tls.key'].map(name => join(keys.path, name));
    const renew = () => execFileSync('openssl', ['req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-noenc', '-keyout', key, '-out', certificate, '-days', '30', '-subj', '/CN=localhost'], { stdio: 'ignore' });
    renew();
    const policy = rules => ({ version: 1, description: 'No caller may call anything', rules });
    const gateway = await startGateway({ listen: [{ address: '127.0.0.1:0' }, { address: 'localhost:0', tls: { certificate, key } }], policy: 'policy.json', mcpServers: {} }, [], { launcher: ['prlimit', '--nofile=64:64'], files: { 'policy.json': policy([]) } });
    const lines = [];
    try {
        while (!count(gateway.log(), FULL)) {
            const line = dial(gateway, pipe);
            lines.push(line);
            await until(() => line.answered || count(gateway.log(), FULL), WAIT_MS, 'an answer, or the log says that the limit is reached');
        }
        const rule = { id: 'new', effect: 'deny', description: 'no caller may call anything', tenants: ['*'], subjects: ['*'], servers: ['*'], kinds: ['*'], names: ['*'] };
        writeFileSync(join(gateway.state, 'policy.json'), JSON.stringify(policy([rule])));
        renew();
        await gateway.line(/policy not reloaded/, WAIT_MS);
        await gateway.line(/cannot replace the certificate/, WAIT_MS);
        for (const { socket } of lines) socket.destroy();
        await gateway.line(/policy loaded .*rules=1/, WAIT_MS);
        await gateway.line(/certificate replaced/, WAIT_MS);
        assert.equal(count(gateway.log(), /policy not reloaded/g), 1, 'the failed reload is logged once');
        assert.equal(count(gateway.log(), /cannot replace the certificate/g), 1, 'the failed replacement is logged once');
    } finally {
        for (const { socket } of lines) socket.destroy();
        await gateway.stop();
        keys.remove();
    }
});

test('the gateway raises its descriptor limit and servers keep the original one', async () => {
    const demo = { command: join(dirname(binary), 'postern-demo'), args: [] }; // node would raise its limit by itself
    const config = { log: { level: 'debug' }, mcpServers: { demo } };
    const gateway = await startGateway(config, [], { launcher: ['prlimit', '--nofile=256:5000'] });
    try {
        assert.deepEqual(limitOf(gateway.pid), [5000, 5000]);
        await gateway.line(/descriptor limit raised.*256.*5000/);
        const channel = await Channel.open(gateway.url);
        await channel.request('tools/list');
        const servers = gateway.servers();
        assert.ok(servers.length > 0);
        for (const pid of servers) assert.equal(limitOf(pid)[0], 256, readFileSync(`/proc/${pid}/cmdline`, 'latin1'));
    } finally {
        await gateway.stop();
    }
});

test('a descriptor limit below the configured limits is logged at startup', async () => {
    const gateway = await startGateway({ limits: { connections: 5000 }, mcpServers: {} }, [], { launcher: ['prlimit', '--nofile=256:1000'] });
    try {
        await gateway.line(/descriptor limit.*limits\.connections.*hard_limit=1000 needed=5221/);
    } finally {
        await gateway.stop();
    }
});

describe('unauthenticated connections', () => {
    const folder = temporaryDirectory();
    after(() => folder.remove());
    const file = join(folder.path, 'tokens.json');
    const token = execFileSync(binary, ['token', 'new', '--file', file, '--subject', 'ann', '--description', 'of this test'], { encoding: 'utf8' }).trim();
    const HOURS = { header_timeout: '1h', body_timeout: '1h', idle_timeout: '1h', unauthenticated_body_timeout: '1h' };
    const policy = join(folder.path, 'policy.json');
    writeFileSync(policy, JSON.stringify({ version: 1, description: 'No caller may call anything', rules: [] }));

    /** A gateway where callers need a token; deadlines end nothing unless a test says so. */
    const start = (limits, providers = []) =>
        startGateway({ auth: { providers: [{ type: 'bearer', tokens: file }, ...providers] }, policy, timeouts: { heartbeat: '200ms' }, limits: { ...HOURS, ...limits }, mcpServers: {} });

    const promise = (headers = '', length = 100) =>
        `POST /mcp HTTP/1.1\r\nHost: localhost\r\nAccept: application/json, text/event-stream\r\nContent-Type: application/json\r\n${headers}Content-Length: ${length}\r\n\r\n{`;
    const hello = JSON.stringify(initialize('2025-11-25'));
    const authenticated = `${promise(`Authorization: Bearer ${token}\r\n`, hello.length).slice(0, -1)}${hello}`;
    const stream = `GET /sse HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer ${token}\r\nAccept: text/event-stream\r\n\r\n`;
    const all = (lines, what, test) => until(() => lines.every(test), WAIT_MS, what);

    /** Runs the body with a gateway, and closes the connections that it made with `line`. */
    async function within(limits, body, providers) {
        const gateway = await start(limits, providers), lines = [];
        try {
            await body(gateway, (text, from) => (lines.push(dial(gateway, text, from && { localAddress: from })), lines.at(-1)));
        } finally {
            for (const { socket } of lines) socket.destroy();
            await gateway.stop();
        }
    }

    test('4,097 unauthenticated connections with pending bodies do not block callers or close streams', () =>
        within({ unauthenticated_connections: 10_000 }, async (gateway, line) => {
            const streams = [line(stream), line(stream)];
            await all(streams, 'streams', ({ answered }) => answered);
            const flood = [];
            for (let i = 0; i < 4_097; i++) {
                flood.push(line(promise()));
                if (i % 256 === 0) await once(flood.at(-1).socket, 'connect');
            }
            await until(() => flood.filter(({ closed }) => closed).length >= 3, WAIT_MS, 'the oldest connections are closed for new ones');
            await works(gateway, token);
            for (const { socket } of streams) await once(socket, 'data'); // heartbeats
            assert.ok(streams.every(({ closed }) => !closed));
            assert.ok(flood.filter(({ closed }) => closed).length < 1_000, 'only the necessary number of connections is closed');
        }));

    test('4,097 unauthenticated connections of one address do not block other addresses', () =>
        within({ unauthenticated_connections: 256 }, async (gateway, line) => {
            const flood = Array.from({ length: 400 }, () => line(promise(), '127.0.0.2'));
            await until(() => flood.filter(({ closed }) => closed).length === 400 - 256, WAIT_MS, '256 connections remain');
            await works(gateway, token);
            await gateway.line(/closed unauthenticated or idle connections.*limits\.unauthenticated_connections/, WAIT_MS);
        }));

    test('an unauthenticated connection whose body takes too long is closed before an authenticated one', () =>
        within({ unauthenticated_body_timeout: '300ms' }, async (_gateway, line) => {
            const known = line(authenticated);
            await all([known], 'an answer', ({ answered }) => answered);
            known.answered = false;
            known.socket.write(authenticated.slice(0, -10));
            const unknown = line(promise());
            await all([unknown], 'the end of the one', ({ closed }) => closed);
            assert.equal(known.closed, false);
            known.socket.write(authenticated.slice(-10));
            await all([known], 'the answer to the other', ({ answered }) => answered);
        }));

    test('a connection whose first request is authenticated may pause reading an answer', async () => {
        const gateway = await startGateway({ limits: { ...HOURS, unauthenticated_body_timeout: '300ms' }, mcpServers: { bad: stdioServer.misbehave('huge', LARGE) } });
        const lines = [];
        try {
            const body = JSON.stringify(callOf('bad__act'));
            const session = Object.entries((await Channel.open(gateway.url)).session).map(([name, value]) => `${name}: ${value}\r\n`).join('');
            const paused = dial(gateway, `${promise(session, body.length).slice(0, -1)}${body}`);
            let size = 0;
            lines.push(paused);
            paused.socket.once('data', () => paused.socket.pause()).on('data', chunk => (size += chunk.length));
            await all([paused], 'the beginning of the answer', ({ answered }) => answered);
            for (let i = 0; i < 3; i++) {
                lines.push(dial(gateway, promise()));
                await all(lines.slice(-1), 'the deadline of another connection', ({ closed }) => closed);
            }
            paused.socket.resume();
            await until(() => size > LARGE || paused.closed, WAIT_MS, 'the whole answer');
            assert.ok(size > LARGE, `${size} bytes of ${LARGE}`);
        } finally {
            for (const { socket } of lines) socket.destroy();
            await gateway.stop();
        }
    });

    test('the oldest unauthenticated connection of an address is closed, and authenticated ones do not count', () =>
        within({ unauthenticated_connections: 3 }, async (_gateway, line) => {
            const known = [line(authenticated, '127.0.0.2'), line(stream, '127.0.0.2')], elsewhere = line(promise(), '127.0.0.3');
            await all(known, 'answers', ({ answered }) => answered);
            const lines = [];
            for (let i = 0; i < 5; i++) {
                lines.push(line(promise(), '127.0.0.2'));
                await once(lines.at(-1).socket, 'connect');
            }
            await all(lines.slice(0, 2), 'the two oldest go', ({ closed }) => closed);
            assert.deepEqual([...lines.slice(2), ...known, elsewhere].map(({ closed }) => closed), Array(6).fill(false));
        }));

    test('connections of a trusted proxy are not counted by address', () =>
        within(
            { unauthenticated_connections: 2 },
            async (_gateway, line) => {
                const proxy = Array.from({ length: 8 }, () => line(promise(), '127.0.0.9')), others = Array.from({ length: 8 }, () => line(promise(), '127.0.0.8'));
                await until(() => others.filter(({ closed }) => closed).length === 6, WAIT_MS, 'others are closed');
                assert.ok(proxy.every(({ closed }) => !closed));
            },
            [{ type: 'forwarded-user', trusted_proxies: ['127.0.0.9'] }]
        ));

    test('unauthenticated connections are closed before idle authenticated ones, and those before busy ones', () =>
        within({ connections: 4 }, async (_gateway, line) => {
            const idle = line(authenticated), streaming = line(stream);
            await all([idle, streaming], 'answers', ({ answered }) => answered);
            const unknown = line('GET /mcp HTTP/1.1\r\n');
            await once(unknown.socket, 'connect');
            const more = [line(stream), line(stream)];
            await all([...more, unknown], 'one for the unauthenticated one', ({ answered, closed }) => answered || closed);
            assert.deepEqual([unknown, idle, streaming].map(({ closed }) => closed), [true, false, false]);
            const last = line(stream);
            await all([last, idle], 'one for the idle one', ({ answered }) => answered);
            await all([idle], 'the idle one goes', ({ closed }) => closed);
            assert.ok([streaming, ...more, last].every(({ closed }) => !closed));
        }));
});
