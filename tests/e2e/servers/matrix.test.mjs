// The fault matrix: each row is a fault of a server, with the answer that its caller gets. In each row another server answers as fast as
// without the fault.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { createServer as createTlsServer } from 'node:https';
import { createServer as createTcpServer } from 'node:net';
import { json } from 'node:stream/consumers';
import { after, before, test } from 'node:test';

import { freePort, program, startGateway, startPeer, stdioServer, temporaryDirectory, until } from '../gateway.mjs';
import { staysFast } from '../neighbour.mjs';
import { resultText, Session } from '../raw.mjs';

const HUGE = 100 * 1024 * 1024;
const WAIT_MS = 20_000;

const UNAVAILABLE = [-32002, 'server_unavailable'], DIED = [-32001, 'upstream_died'], TIMEOUT = [-32001, 'upstream_timeout'];
const INVALID = [-32001, 'upstream_invalid'], TRANSPORT = [-32001, 'upstream_transport'];

const stdio = (...args) => stdioServer.misbehave(...args);
const events = { 'content-type': 'text/event-stream' };
const HEAD = 'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n';

/**
 * `server`: its configuration; or `act`: what a server over HTTP does with a call. `expect`: the answer to a call of `act`. `times`: how often
 * it is called in a measurement. `log`: what the gateway logs. `again`: false if the server has no other tool that answers.
 */
const rows = {
    'a process that exits at once': { server: { command: '/bin/false' }, expect: UNAVAILABLE, log: /server did not start.*exit status 1/, again: false },
    'a process that does not exist': { server: { command: '/no/such/command' }, expect: UNAVAILABLE, log: /server did not start.*no\/such/, again: false },
    'a process that exits in the middle of a call': { server: stdio('die'), expect: DIED, log: /call.*exit status 3; its last lines on stderr: .*last words 3/ },
    'a process that ignores SIGTERM': { server: stdio('ignore-term') }, // its end is that of the gateway, which leaves no process
    'a process that leaves a grandchild with its pipes': { server: stdio('fork'), expect: DIED },
    'a process that stops reading': { server: stdio('freeze'), expect: TIMEOUT, times: 1 },
    'a process that writes half a line': { server: stdio('half-line'), expect: TIMEOUT, again: false },
    'a process that writes half a line and exits': { server: stdio('half-line', 'die'), expect: DIED },
    'a process that writes a line of 100 MB': { server: { ...stdio('huge', HUGE), timeout: '60s' }, expect: INVALID, times: 1 },
    'a process that is silent': { server: stdio('hang'), expect: TIMEOUT },
    'a port that refuses connections': { server: async () => ({ url: `http://127.0.0.1:${await freePort()}/mcp` }), expect: UNAVAILABLE, again: false },
    'a connection that is reset': { act: res => res.socket.resetAndDestroy(), expect: DIED },
    'a connection that is not accepted': { server: async () => ({ url: (await peer('freeze', '--http')).url }), expect: TIMEOUT, times: 1, again: false },
    'a head that does not end': { act: res => res.socket.write(HEAD), expect: TIMEOUT },
    'a body that does not end': { act: res => res.socket.write(`${HEAD}Content-Length: 1000\r\n\r\n{"jsonrpc"`), expect: TIMEOUT },
    'an event stream without events': { act: res => res.writeHead(200, events).flushHeaders(), expect: TIMEOUT },
    'an event stream that ends before the answer': { act: res => res.writeHead(200, events).end(), expect: DIED },
    'a body that ends too early': { act: res => res.socket.end(`${HEAD}Content-Length: 1000\r\n\r\n{"jsonrpc"`), expect: DIED },
    'status 500': { act: res => res.writeHead(500).end('oops'), expect: TRANSPORT },
    'a redirect': { act: res => res.writeHead(307, { location: '/elsewhere' }).end(), expect: TRANSPORT },
    'chunks that are not valid': { act: res => res.socket.write(`${HEAD}Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n`), expect: TRANSPORT },
    'a server without TLS at an https URL': { server: () => ({ url: `${web.origin.replace('http', 'https')}/tls` }), expect: UNAVAILABLE, again: false },
    'a TLS handshake that does not end': { server: () => ({ url: `https://127.0.0.1:${mute.address().port}/mcp`, connect_timeout: '1s' }), expect: UNAVAILABLE, log: /connect_timeout = 1000 ms/, again: false },
    'a certificate of an unknown authority': { server: () => ({ url: `${secure.origin}/mcp` }), expect: UNAVAILABLE, again: false }
};
const names = Object.keys(rows);
const nameOf = row => `bad${names.indexOf(row)}`;

const peers = [];
let web, secure, mute, folder, gateway, session, healthy;

async function peer(...args) {
    const started = await startPeer(program.misbehave, ...args);
    peers.push(started);
    return started;
}

/** The server of the rows with `act`: the path has the name of the row. Elsewhere it must not be asked anything. */
async function serve(req, res) {
    const row = rows[names[Number(/^\/bad(\d+)$/.exec(req.url)?.[1])]];
    if (!row) web.strayed++;
    if (!row || req.method !== 'POST') return res.writeHead(405).end();
    const { id, method, params } = await json(req);
    if (id === undefined) return res.writeHead(202).end();
    if (params?.name === 'act') return row.act(res);
    const result = {
        initialize: { protocolVersion: '2025-11-25', capabilities: { tools: {} }, serverInfo: { name: 'web', version: '1' } },
        'tools/list': { tools: ['act', 'fine'].map(name => ({ name, inputSchema: { type: 'object' } })) },
        'tools/call': { content: [{ type: 'text', text: 'fine' }] }
    }[method] ?? {};
    return res.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify({ jsonrpc: '2.0', id, result }));
}

async function listen(server, scheme) {
    server.listen(0, '127.0.0.1').on('tlsClientError', () => {});
    await once(server, 'listening');
    server.origin = `${scheme}://127.0.0.1:${server.address().port}`;
    server.strayed = 0;
    return server;
}

before(async () => {
    folder = temporaryDirectory();
    const [key, cert] = ['key', 'cert'].map(name => `${folder.path}/${name}.pem`);
    execFileSync('openssl', ['req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-noenc', '-keyout', key, '-out', cert, '-days', '30', '-subj', '/CN=127.0.0.1'], { stdio: 'ignore' });
    web = await listen(createServer(serve), 'http');
    secure = await listen(createTlsServer({ key: readFileSync(key), cert: readFileSync(cert) }, serve), 'https');
    mute = createTcpServer(socket => socket.on('error', () => {})).listen(0, '127.0.0.1');
    await once(mute, 'listening');
    const servers = { good: stdioServer.fixture() };
    for (const [row, { server, act }] of Object.entries(rows)) {
        const own = act ? { url: `${web.origin}/${nameOf(row)}` } : typeof server === 'function' ? await server() : server;
        servers[nameOf(row)] = { timeout: '1s', ...own };
    }
    gateway = await startGateway({ mcpServers: servers });
    session = await Session.open(gateway.url);
    healthy = await Session.open(gateway.url);
    await session.request('tools/list');
    assert.ok((await healthy.call('good__test_simple_text')).result);
});
after(async () => {
    await gateway?.stop();
    for (const one of peers) {
        process.kill(one.pid, 'SIGCONT');
        await one.stop();
    }
    for (const server of [web, secure]) {
        server?.closeAllConnections();
        server?.close();
    }
    mute?.close();
    folder?.remove();
});

async function fail(row) {
    const { expect, times = 3 } = rows[row];
    for (let i = 0; i < times; i++) {
        const { error, result } = await session.call(`${nameOf(row)}__act`);
        if (expect) assert.deepEqual([error?.code, error?.data?.reason], expect, JSON.stringify(error ?? result).slice(0, 500));
        else assert.ok(result, JSON.stringify(error));
        assert.doesNotMatch(JSON.stringify(error ?? {}), /last words|misbehave\.mjs|exit status/, 'internals reached the caller');
    }
}

for (const [row, { log, again = true }] of Object.entries(rows))
    test(`${row} spoils only its own calls`, async t => {
        await staysFast(t, async () => assert.ok((await healthy.call('good__test_simple_text')).result, 'the healthy server answers'), {
            begin: () => fail(row),
            again: () => again && until(async () => (await session.call(`${nameOf(row)}__fine`)).result, WAIT_MS, 'the server is back')
        });
        if (log) await gateway.line(log, WAIT_MS);
        if (again) assert.equal(resultText(await until(async () => {
            const answer = await session.call(`${nameOf(row)}__fine`);
            return answer.result && answer;
        }, WAIT_MS, 'the server answers again')), 'fine');
        assert.equal(web.strayed + secure.strayed, 0, 'a request went where none should');
    });
