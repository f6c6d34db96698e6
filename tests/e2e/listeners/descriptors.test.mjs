// Descriptors of dropped connections: every kind of event stream, in every state, over TCP, TLS and a unix socket.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { connect as connectTls } from 'node:tls';

import { ClientV1, ClientV2, HttpTransportV1, HttpTransportV2, SseTransportV1 } from '../../peers/clients.mjs';
import { big, callOf, Channel } from '../channel.mjs';
import { peerPath, startGateway, temporaryDirectory, until } from '../gateway.mjs';
import { post } from '../raw.mjs';

const peer = name => ({ command: peerPath(name), args: name === 'pusher' ? ['p'] : [] });
const WAIT_MS = 20_000;
const TIMES = 4;
const LARGE = 2 << 20; // more than the kernel buffers for a caller that does not read

const directory = temporaryDirectory();
after(() => directory.remove());
const at = name => join(directory.path, name);
const descriptors = ({ pid }) => readdirSync(`/proc/${pid}/fd`).length;

/** A connection of our own: `seen(pattern)` waits for what the gateway sent, `drop()` closes it at once. */
async function dial(way) {
    const socket = way.dial();
    let text = '';
    const ended = once(socket, 'close');
    socket.on('error', () => {}).on('data', chunk => (text += chunk.toString('latin1')));
    await once(socket, way.ready);
    const seen = pattern => until(() => pattern.exec(text), WAIT_MS, `${pattern} in ${text.slice(0, 500)}`);
    const drop = () => {
        (socket.raw ?? socket).destroy();
        socket.destroy();
    };
    return { socket, seen, drop, ended };
}

/** Sends a request on a new connection. */
async function ask(way, { method = 'GET', path = '/mcp', headers = {}, body, version = '1.1', length }) {
    const bytes = body === undefined ? '' : JSON.stringify(body);
    const kind = method === 'POST' ? { ...post(), 'content-length': length ?? Buffer.byteLength(bytes) } : { accept: 'text/event-stream' };
    const lines = Object.entries({ host: 'localhost', ...kind, ...headers }).map(([name, value]) => `${name}: ${value}\r\n`);
    const line = await dial(way);
    await new Promise(resolve => line.socket.write(`${method} ${path} HTTP/${version}\r\n${lines.join('')}\r\n${bytes}`, resolve));
    return line;
}

const waiting = () => callOf('m__wait', { file: at('never') });
const progressing = (bytes = 3) => {
    const call = callOf('m__reply', { ...big(bytes), count: 3 });
    call.params._meta = { progressToken: 1 };
    return call;
};
const open = way => Channel.open(way.url, way.options);
const listen = async way => ask(way, { headers: (await open(way)).session });
const slow = async (way, body = waiting(), more = {}) => ask(way, { method: 'POST', headers: (await open(way)).session, body, ...more });

/** Every way to open an event stream: opens one and returns its connection. */
const kinds = {
    'a GET stream': listen,
    'a call that is answered with events': way => slow(way),
    'an HTTP+SSE pipe at /mcp': way => ask(way, {}),
    'an HTTP+SSE pipe at /sse': way => ask(way, { path: '/sse' })
};

/** The states of a connection in which a caller may drop it. */
const states = {
    'before the first event': async line => line.drop(),
    'while it is idle': async line => {
        await line.seen(/^HTTP\/1\.1 200 .*event-stream.*\r\n\r\n/s);
        line.drop();
    },
    'between heartbeats': async line => {
        await line.seen(/: keepalive/);
        line.drop();
    },
    'by closing its sending side only': async line => {
        await line.seen(/^HTTP\/1\.1 200 .*\r\n\r\n/s);
        line.socket.end();
        await line.ended;
    }
};

const others = {
    'a GET stream with unread events': async way => {
        const line = await listen(way);
        await line.seen(/^HTTP\/1\.1 200 /);
        line.socket.pause();
        const speaker = await open(way);
        for (let i = 0; i < 3; i++) await speaker.call('p__say', { text: 'x'.repeat(LARGE / 3) });
        line.drop();
    },
    'an HTTP+SSE pipe with an unread answer': async way => {
        const line = await ask(way, { path: '/sse' });
        const [, path] = await line.seen(/data: (\/messages\S+)/);
        line.socket.pause();
        const say = body => new Channel(new URL(path, way.url).href, way.options).send(body);
        await say({ jsonrpc: '2.0', id: 1, method: 'initialize', params: { protocolVersion: '2024-11-05', capabilities: {}, clientInfo: { name: 'raw', version: '1' } } });
        await say({ jsonrpc: '2.0', method: 'notifications/initialized' });
        assert.equal((await say(callOf('m__reply', big(LARGE)))).status, 202);
        line.drop();
    },
    'a call in the middle of its events': async way => {
        const line = await slow(way, progressing(LARGE));
        await line.seen(/notifications\/progress.*x{1000}/s);
        line.drop();
    },
    'a call with unread events': async way => {
        const line = await slow(way, progressing(LARGE));
        line.socket.pause();
        await (await open(way)).call('m__reply', big(LARGE)); // the server answers in order
        line.drop();
    },
    'a call in the middle of its plain answer': async way => {
        const line = await slow(way, callOf('m__reply', big(LARGE)));
        await line.seen(/x{1000}/);
        line.drop();
    },
    'a call dropped while it is answered': async way => {
        const file = at(`go-${Math.random()}`), line = await slow(way, callOf('m__wait', { file }));
        await line.seen(/event-stream/);
        writeFileSync(file, '');
        line.drop();
    },
    'a GET stream after the end of its session': async way => {
        const channel = await open(way), line = await ask(way, { headers: channel.session });
        await line.seen(/^HTTP\/1\.1 200 .*\r\n\r\n/s);
        assert.equal((await channel.send(undefined, { method: 'DELETE' })).status, 200);
        await line.seen(/\r\n0\r\n/);
        line.drop();
    },
    'a call after the end of its session': async way => {
        const channel = await open(way), line = await ask(way, { method: 'POST', headers: channel.session, body: waiting() });
        await line.seen(/event-stream.*\r\n\r\n/s);
        const ended = channel.send(undefined, { method: 'DELETE' });
        line.drop();
        assert.equal((await ended).status, 200);
    },
    'a GET stream resumed on another connection': async way => {
        const channel = await open(way), first = await ask(way, { headers: channel.session });
        const [, id] = await first.seen(/id: (\S+)/);
        const second = await ask(way, { headers: { ...channel.session, 'last-event-id': id } });
        await first.ended;
        second.drop();
    },
    'an HTTP/1.0 stream while it is idle': async way => {
        const line = await slow(way, waiting(), { version: '1.0' });
        await line.seen(/event-stream.*\r\n\r\n/s);
        line.drop();
    },
    'an HTTP/1.0 stream that has ended': async way => {
        const line = await slow(way, progressing(), { version: '1.0' });
        await line.seen(/"result":/);
        await line.ended;
    },
    'an HTTP/1.0 stream that ends while the caller disconnects': async way => {
        const channel = await open(way), line = await ask(way, { headers: channel.session, version: '1.0' });
        await line.seen(/event-stream.*\r\n\r\n/s);
        const ended = channel.send(undefined, { method: 'DELETE' });
        line.drop();
        assert.equal((await ended).status, 200);
    },
    'half a body': async way => {
        const line = await slow(way, progressing(4_000), { length: 8_000 });
        line.drop();
    },
    'half of a large body': async way => {
        const line = await slow(way, progressing(1 << 20), { length: 2 << 20 });
        line.drop();
    },
    'half a request line': async way => {
        const line = await dial(way);
        await new Promise(resolve => line.socket.write('GET /mc', resolve));
        line.drop();
    }
};

/** Repeats an action many times, and waits until the gateway has no more descriptors than before. */
async function returnsToBase({ gateway, base }, body) {
    await Promise.all(Array.from({ length: TIMES }, body));
    await until(() => descriptors(gateway) <= base, WAIT_MS, `${base} descriptors again; there are ${descriptors(gateway)}`);
}

const config = {
    timeouts: { stream_after: '50ms', heartbeat: '300ms' },
    limits: { header_timeout: '1h', body_timeout: '1h', idle_timeout: '1h' }, // what a deadline frees is not freed by dropping
    mcpServers: { m: peer('mirror'), p: peer('pusher') }
};

const ways = {
    TCP: {
        listen: { address: '127.0.0.1:0' },
        ready: 'connect',
        use: way => (way.dial = () => connect(new URL(way.url).port, '127.0.0.1'))
    },
    TLS: {
        listen: { address: '127.0.0.1:0', tls: { certificate: at('one.crt'), key: at('one.key') } },
        ready: 'secureConnect',
        use: way => {
            way.options = { ca: readFileSync(at('one.crt')) };
            way.dial = () => {
                const raw = connect(new URL(way.url).port, '127.0.0.1');
                return Object.assign(connectTls({ socket: raw, ...way.options }), { raw });
            };
        }
    },
    'a unix socket': {
        listen: { address: `unix:${at('postern.sock')}` },
        ready: 'connect',
        use: way => {
            way.options = { socketPath: at('postern.sock') };
            way.url = 'http://localhost/mcp';
            way.dial = () => connect(at('postern.sock'));
        }
    }
};

before(() => {
    const key = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-noenc'];
    const names = ['-subj', '/CN=one', '-addext', 'subjectAltName=DNS:localhost,IP:127.0.0.1'];
    execFileSync('openssl', ['req', '-x509', ...key, '-keyout', at('one.key'), '-out', at('one.crt'), '-days', '30', ...names], { stdio: 'ignore' });
});

for (const [name, way] of Object.entries(ways))
    describe(`connections dropped over ${name}`, () => {
        let gateway, resting;
        const started = {};
        before(async () => {
            gateway = await startGateway({ ...config, listen: [way.listen] });
            way.url = gateway.url;
            way.use(way);
            resting = await dial(way); // a connection that lives longer than those that are dropped
            const channel = await open(way);
            await channel.call('m__reply', big(3));
            await channel.call('p__whoami');
            Object.assign(started, { gateway, base: descriptors(gateway) });
        });
        after(async () => {
            resting?.drop();
            await gateway?.stop();
        });

        for (const [kind, begin] of Object.entries(kinds))
            for (const [state, leave] of Object.entries(states))
                test(`descriptors return to their number after ${kind} ${state}`, () => returnsToBase(started, async () => leave(await begin(way))));
        for (const [what, body] of Object.entries(others)) test(`descriptors return to their number after ${what}`, () => returnsToBase(started, () => body(way)));
        if (name === 'TLS')
            test('descriptors return to their number after half a handshake', () =>
                returnsToBase(started, async () => {
                    const socket = connect(new URL(way.url).port, '127.0.0.1');
                    await new Promise(resolve => socket.write(Buffer.from('16030101', 'hex'), resolve));
                    socket.destroy();
                }));
        if (name === 'TCP')
            test('descriptors return to their number after client.close() of each official SDK', () =>
                returnsToBase(started, () =>
                    Promise.all(
                        [[ClientV1, HttpTransportV1, '/mcp'], [ClientV2, HttpTransportV2, '/mcp'], [ClientV1, SseTransportV1, '/sse']].map(async ([Client, Transport, path]) => {
                            const caller = new Client({ name: 'descriptors', version: '1' });
                            await caller.connect(new Transport(new URL(path, gateway.url)));
                            await caller.listTools();
                            await caller.close();
                        })
                    )
                ));
    });
