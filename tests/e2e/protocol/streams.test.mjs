// Streams to callers: heartbeats, callers that do not read, HTTP+SSE, stdio framing, and HTTP beside stdio.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { readFileSync, writeFileSync } from 'node:fs';
import { request } from 'node:http';
import { connect as connectSocket } from 'node:net';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';

import { binary, peerPath, settles, startGateway, stdioServer, survivors, temporaryDirectory, until, watch, writeConfig } from '../gateway.mjs';
import { initialize, post, reply, resultText, send, Session, stream } from '../raw.mjs';

const mirror = peerPath('mirror');
const mirrorServer = () => ({ command: mirror, args: [] });
const WAIT_MS = 15_000;
const SOON_MS = 2_000;
const call = (name, args = {}, id = 7) => ({ jsonrpc: '2.0', id, method: 'tools/call', params: { name, arguments: args } });

/** Sends a request and follows the text of its answer: `until(pattern)` waits for a match, `ended` for the end. */
async function follow(url, { method = 'GET', headers, body }) {
    const req = request(url, { method, headers, agent: false });
    req.on('error', () => {});
    req.end(body && JSON.stringify(body));
    const [res] = await once(req, 'response');
    let text = '';
    const waiting = new Set();
    res.setEncoding('utf8');
    res.on('data', chunk => {
        text += chunk;
        for (const check of waiting) check();
    });
    res.on('error', () => {});
    const ended = once(res, 'close');
    const matches = pattern =>
        new Promise((resolve, reject) => {
            const timer = setTimeout(() => reject(new Error(`no ${pattern} in ${text}`)), WAIT_MS);
            const check = () => {
                if (!pattern.test(text)) return;
                clearTimeout(timer);
                waiting.delete(check);
                resolve(text);
            };
            waiting.add(check);
            check();
        });
    return { status: res.statusCode, headers: res.headers, until: matches, text: () => text, ended, drop: () => res.destroy() };
}

describe('heartbeats', () => {
    const directory = temporaryDirectory();
    let gateway;
    before(async () => {
        gateway = await startGateway({ timeouts: { heartbeat: '200ms', stream_after: '100ms' }, mcpServers: { m: mirrorServer() } });
    });
    after(async () => {
        await gateway?.stop();
        directory.remove();
    });

    const TWO = /^: .*\n\n: .*\n\n/m;

    test('heartbeats are comments on a quiet GET stream', async () => {
        const session = await Session.open(gateway.url);
        const events = await follow(session.url, { headers: session.headers({ accept: 'text/event-stream' }) });
        await events.until(TWO);
        assert.equal((await session.request('ping')).error, undefined);
        events.drop();
    });
    test('heartbeats are comments on the stream of a slow call before its answer', async () => {
        const session = await Session.open(gateway.url);
        const file = join(directory.path, 'go');
        const events = await follow(session.url, { method: 'POST', headers: session.headers(post()), body: call('m__wait', { file }) });
        await events.until(TWO);
        writeFileSync(file, '');
        await events.until(/"id":7,"result":/);
        await events.ended;
    });
    test('heartbeats are comments on an HTTP+SSE stream', async () => {
        const events = await follow(new URL('/sse', gateway.origin), { headers: { accept: 'text/event-stream' } });
        await events.until(TWO);
        events.drop();
    });
});

describe('callers that do not read', () => {
    /** The resident memory of the gateway, in KiB. */
    const memory = pid => Number(/^VmRSS:\s+(\d+) kB/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))[1]);

    /** Opens the standalone stream of a session on a socket that is never read. */
    async function openUnread(gateway, session) {
        const { hostname, port, host } = new URL(gateway.url);
        const socket = connectSocket({ host: hostname, port: Number(port) });
        socket.on('error', () => {});
        await once(socket, 'connect');
        socket.write(`GET /mcp HTTP/1.1\r\nHost: ${host}\r\nAccept: text/event-stream\r\nMcp-Session-Id: ${session.id}\r\n\r\n`);
        await once(socket, 'readable'); // the stream is open
        return socket;
    }

    test('a caller that does not read is cut off with bounded memory while others are served', async () => {
        // AddressSanitizer keeps freed memory in a quarantine; keep that small, because it counts here.
        const { ASAN_OPTIONS } = process.env;
        process.env.ASAN_OPTIONS = [ASAN_OPTIONS, 'quarantine_size_mb=4'].filter(Boolean).join(':');
        const gateway = await startGateway({
            limits: { stream_buffer: '256KiB' },
            mcpServers: { bad: stdioServer.misbehave('flood'), good: stdioServer.fixture() }
        }).finally(() => {
            if (ASAN_OPTIONS === undefined) delete process.env.ASAN_OPTIONS;
            else process.env.ASAN_OPTIONS = ASAN_OPTIONS;
        });
        let socket;
        try {
            const [deaf, other] = [await Session.open(gateway.url), await Session.open(gateway.url)];
            await other.request('logging/setLevel', { level: 'emergency' });
            await deaf.call('good__test_simple_text');
            socket = await openUnread(gateway, deaf);
            const before = memory(gateway.pid);
            let peak = before;
            const sampling = setInterval(() => (peak = Math.max(peak, memory(gateway.pid))), 20);
            try {
                assert.equal(resultText(await deaf.call('bad__act')), 'flooding');
                const cut = gateway.line(/caller cut off: it does not read its stream.*tenant=default.*subject=anonymous.*bytes=\d{6,}.*option=limits\.stream_buffer/, WAIT_MS);
                for (let i = 0; i < 10; i++) {
                    const started = Date.now();
                    assert.equal(resultText(await other.call('good__test_simple_text')), 'This is a simple text response for testing.');
                    assert.ok(Date.now() - started < SOON_MS, `a call of another session took ${Date.now() - started} ms`);
                }
                await cut;
                await sleep(500); // the flood goes on without a reader
                assert.equal(resultText(await other.call('good__test_simple_text')), 'This is a simple text response for testing.');
            } finally {
                clearInterval(sampling);
            }
            assert.ok(peak - before < 64 * 1024, `the gateway grew from ${before} to ${peak} KiB`);
            let got = 0;
            socket.on('data', chunk => (got += chunk.length));
            await once(socket, 'close');
            assert.ok(got > 256 * 1024, `${got} bytes had been sent`);
        } finally {
            socket?.destroy();
            await gateway.stop();
        }
    });
    test('a caller that does not read is cut off when the memory for messages is used up', async () => {
        const limits = { max_body: '256KiB', max_message: '256KiB', identity_memory: 0, memory: '4MiB', stream_buffer: '64MiB' };
        const gateway = await startGateway({ limits, mcpServers: { bad: stdioServer.misbehave('flood') } });
        let socket;
        try {
            const deaf = await Session.open(gateway.url);
            socket = await openUnread(gateway, deaf);
            assert.equal(resultText(await deaf.call('bad__act')), 'flooding');
            await gateway.line(/caller cut off: not enough memory for its unread messages.*tenant=default.*subject=anonymous.*bytes=\d{5,}.*option=limits\.memory/, WAIT_MS);
        } finally {
            socket?.destroy();
            await gateway.stop();
        }
    });
});

describe('streams of HTTP+SSE', () => {
    let gateway;
    before(async () => {
        gateway = await startGateway({ limits: { stream_buffer: '256KiB' }, mcpServers: { m: mirrorServer() } });
    });
    after(() => gateway?.stop());

    /** Opens a session; `post` sends a message to the endpoint it was given. */
    async function open(path) {
        const events = await stream(new URL(path, gateway.origin), { headers: { accept: 'text/event-stream' } });
        assert.equal(events.status, 200);
        const first = await events.next();
        assert.equal(first.event, 'endpoint', JSON.stringify(first));
        const endpoint = new URL(first.data, gateway.origin);
        const say = body => send(endpoint, { headers: { 'content-type': 'application/json' }, body });
        assert.equal((await say(initialize('2024-11-05'))).status, 202);
        assert.equal((await events.message()).message.result.protocolVersion, '2024-11-05');
        assert.equal((await say({ jsonrpc: '2.0', method: 'notifications/initialized' })).status, 202);
        return { events, say, endpoint };
    }

    for (const path of ['/sse', '/mcp']) {
        test(`a stream of ${path} starts with the endpoint and carries the answers`, async () => {
            const { events, say, endpoint } = await open(path);
            assert.equal(endpoint.origin, gateway.origin);
            assert.equal(endpoint.pathname, path === '/sse' ? '/messages' : '/mcp');
            const answer = await say(call('m__mirror', { n: 1 }));
            assert.equal(answer.status, 202);
            const { message, event } = await events.message();
            assert.equal(event, 'message');
            assert.match(resultText(message), /"arguments":\{"n":1\}/);
            events.drop();
        });
        test(`a session of ${path} ends with its stream`, async () => {
            const { events, say } = await open(path);
            const ping = { jsonrpc: '2.0', id: 9, method: 'ping' };
            assert.equal((await say(ping)).status, 202);
            events.drop();
            await until(async () => (await say(ping)).status === 404, WAIT_MS, 'the session is gone');
        });
    }
    test('messages of two HTTP+SSE streams do not mix', async () => {
        const sessions = await Promise.all(['/sse', '/mcp', '/sse', '/mcp'].map(open));
        const streamable = await Session.open(gateway.url);
        const ids = [1, 2, 3, 4, 5];
        await Promise.all(sessions.flatMap(({ say }, who) => ids.map(id => say(call('m__mirror', { who }, id)))));
        const mine = await streamable.call('m__mirror', { who: 'streamable' });
        assert.match(resultText(mine), /"who":"streamable"/);
        for (const [who, { events }] of sessions.entries()) {
            const seen = [];
            for (let i = 0; i < ids.length; i++) {
                const { message } = await events.message();
                assert.match(resultText(message), new RegExp(`"who":${who}\\}`));
                seen.push(message.id);
            }
            assert.deepEqual(seen.sort(), ids);
            events.drop();
        }
    });
    test('a caller that does not read answers is refused, and accepted requests are answered', async () => {
        const { events, say } = await open('/sse');
        const raw = JSON.stringify({ content: [{ type: 'text', text: 'x'.repeat(1 << 20) }] });
        let accepted = 0;
        const refused = await until(async () => {
            const answer = await say(call('m__reply', { raw }, accepted + 1));
            if (answer.status !== 202) return answer;
            assert.ok(++accepted < 100, 'all of them were accepted');
        }, WAIT_MS, 'a call is refused');
        assert.equal(refused.status, 503);
        assert.equal(refused.headers['retry-after'], '1');
        assert.equal(JSON.parse(refused.body).error.data.reason, 'overloaded');
        assert.equal((await say({ jsonrpc: '2.0', method: 'notifications/cancelled', params: { requestId: 4711 } })).status, 202);
        for (let i = 0; i < accepted; i++) assert.equal(resultText((await events.message()).message).length, 1 << 20);
        assert.equal((await say({ jsonrpc: '2.0', id: 9, method: 'ping' })).status, 202);
        assert.equal((await events.message()).message.id, 9);
        events.drop();
    });
    test('a session of one transport cannot be used by the other', async () => {
        const { events, endpoint } = await open('/sse');
        const id = endpoint.searchParams.get('sessionId');
        const ping = { jsonrpc: '2.0', id: 9, method: 'ping' };
        assert.equal((await send(gateway.url, { headers: post({ 'mcp-session-id': id }), body: ping })).status, 404);
        const streamable = await Session.open(gateway.url);
        assert.equal((await send(`${gateway.origin}/messages?sessionId=${streamable.id}`, { headers: post(), body: ping })).status, 404);
        events.drop();
    });
});

test('messages of several calls in one session do not mix', async () => {
    const gateway = await startGateway({ mcpServers: { m: mirrorServer() } });
    try {
        const session = await Session.open(gateway.url);
        const texts = await Promise.all(
            ['a', 'b', 'c'].map(async token => {
                const body = call('m__reply', { raw: JSON.stringify({ content: [{ type: 'text', text: token }] }), count: 5 }, token);
                body.params._meta = { progressToken: token };
                return (await session.post(body)).body;
            })
        );
        for (const [i, token] of ['a', 'b', 'c'].entries()) {
            const messages = [...texts[i].matchAll(/^data: (\{.*)$/gm)].map(([, data]) => JSON.parse(data));
            assert.deepEqual(messages.map(({ id, params }) => id ?? params.progressToken), Array(6).fill(token));
            assert.equal(resultText(messages.at(-1)), token);
        }
    } finally {
        await gateway.stop();
    }
});

describe('browsers and CORS', () => {
    const allowed = 'https://app.example.com';
    let gateway;
    before(async () => {
        gateway = await startGateway({ allowed_origins: [allowed], mcpServers: { m: mirrorServer() } });
    });
    after(() => gateway?.stop());

    const preflight = (origin, path = '/mcp') =>
        send(new URL(path, gateway.origin), {
            method: 'OPTIONS',
            headers: { origin, 'access-control-request-method': 'POST', 'access-control-request-headers': 'content-type,mcp-session-id' }
        });

    for (const path of ['/mcp', '/sse', '/messages']) {
        test(`a browser of an allowed origin may request ${path}`, async () => {
            const { status, headers, body } = await preflight(allowed, path);
            assert.deepEqual([status, body], [204, '']);
            assert.equal(headers['access-control-allow-origin'], allowed);
            assert.match(headers.vary ?? '', /origin/i);
            for (const method of ['GET', 'POST', 'DELETE']) assert.match(headers['access-control-allow-methods'], new RegExp(`\\b${method}\\b`));
            for (const name of ['content-type', 'accept', 'mcp-session-id', 'mcp-protocol-version', 'last-event-id', 'authorization']) {
                assert.ok(headers['access-control-allow-headers'].toLowerCase().split(/, */).includes(name), name);
            }
        });
    }
    test('a browser of another origin is refused', async () => {
        const { status, headers } = await preflight('https://evil.example.com');
        assert.equal(status, 403);
        assert.equal(headers['access-control-allow-origin'], undefined);
    });
    test('a browser sees answers, streams and the session id', async () => {
        const answer = await send(gateway.url, { headers: post({ origin: allowed }), body: initialize('2025-11-25') });
        assert.equal(answer.status, 200);
        assert.equal(answer.headers['access-control-allow-origin'], allowed);
        assert.match(answer.headers['access-control-expose-headers'], /mcp-session-id/i);
        const headers = { origin: allowed, accept: 'text/event-stream', 'mcp-session-id': answer.headers['mcp-session-id'] };
        const events = await stream(gateway.url, { headers });
        assert.equal(events.headers['access-control-allow-origin'], allowed);
        events.drop();
    });
});

/**
 * A gateway on stdio: `write(text)`, `say(message)` writes a line, `frame(message)` with Content-Length;
 * `next()` resolves with the next message on its standard output as {framing, message}.
 */
function startStdio(config) {
    const mark = randomUUID();
    const directory = temporaryDirectory();
    const path = writeConfig(directory.path, config, mark);
    const child = spawn(binary, ['serve', '--stdio', '--config', path], { stdio: ['pipe', 'pipe', 'pipe'] });
    const gateway = watch(child, 'stderr');
    let text = Buffer.alloc(0);
    let arrived;
    child.stdin.on('error', () => {});
    child.stdout.on('data', chunk => {
        text = Buffer.concat([text, chunk]);
        arrived?.();
    });
    child.stdout.on('end', () => arrived?.());

    const take = length => {
        const taken = text.subarray(0, length);
        text = text.subarray(length);
        return taken.toString();
    };
    const parse = () => {
        const head = /^Content-Length: (\d+)\r\n\r\n/.exec(text.subarray(0, 64).toString('latin1'));
        if (head && text.length >= head[0].length + Number(head[1])) {
            take(head[0].length);
            return { framing: 'content-length', message: JSON.parse(take(Number(head[1]))) };
        }
        const end = head ? -1 : text.indexOf('\n');
        if (end < 0 || text.subarray(0, 7).toString() === 'Content') return undefined;
        return { framing: 'newline', message: JSON.parse(take(end + 1)) };
    };
    return Object.assign(gateway, {
        path: directory.path,
        write: bytes => child.stdin.write(bytes),
        say: message => child.stdin.write(`${JSON.stringify(message)}\n`),
        frame: message => child.stdin.write(framed(message)),
        rest: () => text.toString(),
        async next(ms = WAIT_MS) {
            for (;;) {
                const found = parse();
                if (found) return found;
                assert.ok(!child.stdout.readableEnded, `the output ended; ${text.length} bytes are left\n${gateway.log()}`);
                assert.ok(await settles(new Promise(resolve => (arrived = resolve)), ms), `no message\n${gateway.log()}`);
            }
        },
        async handshake() {
            gateway.say(initialize('2025-11-25'));
            assert.equal((await gateway.next()).message.id, 1);
            gateway.say({ jsonrpc: '2.0', method: 'notifications/initialized' });
        },
        end: () => child.stdin.end(),
        /** Ends the input if it has not ended, and checks that everything ends well. */
        async close() {
            child.stdin.end();
            const inTime = await settles(gateway.exited, WAIT_MS);
            if (!inTime) child.kill('SIGKILL');
            const { code, signal } = await gateway.exited;
            directory.remove();
            assert.ok(inTime, `it did not end\n${gateway.log()}`);
            assert.equal(signal ?? code, 0, gateway.log());
            assert.deepEqual(await survivors(mark), []);
        },
        kill: signal => child.kill(signal),
        output: child.stdout
    });
}

function framed(message) {
    const body = JSON.stringify(message);
    return `Content-Length: ${Buffer.byteLength(body)}\r\n\r\n${body}`;
}

describe('framing on stdio', () => {
    const ping = id => ({ jsonrpc: '2.0', id, method: 'ping' });

    test('a message is answered in its own framing', async () => {
        const gateway = startStdio({ mcpServers: { m: mirrorServer() } });
        try {
            await gateway.handshake();
            for (const [i, framing] of ['newline', 'content-length', 'content-length', 'newline', 'content-length'].entries()) {
                if (framing === 'newline') gateway.say(ping(i));
                else gateway.frame(ping(i));
                assert.deepEqual(await gateway.next(), { framing, message: { jsonrpc: '2.0', id: i, result: {} } });
            }
            gateway.frame(call('m__mirror', { text: 'é😀' }));
            const { framing, message } = await gateway.next();
            assert.equal(framing, 'content-length');
            assert.match(resultText(message), /é😀/);
        } finally {
            await gateway.close();
        }
    });
    test('messages of both framings in one write are each answered in their own', async () => {
        const gateway = startStdio({ mcpServers: { m: mirrorServer() } });
        try {
            await gateway.handshake();
            gateway.write(`${JSON.stringify(ping('a'))}\n${framed(ping('b'))}${JSON.stringify(ping('c'))}\n`);
            const seen = [await gateway.next(), await gateway.next(), await gateway.next()];
            assert.deepEqual(seen.map(({ framing, message }) => [message.id, framing]), [['a', 'newline'], ['b', 'content-length'], ['c', 'newline']]);
        } finally {
            await gateway.close();
        }
    });
    test('a message with Content-Length is read in small pieces', async () => {
        const gateway = startStdio({ mcpServers: { m: mirrorServer() } });
        try {
            const text = framed(initialize('2025-06-18'));
            for (const piece of [text.slice(0, 5), text.slice(5, 22), text.slice(22)]) {
                gateway.write(piece);
                await sleep(20);
            }
            const { framing, message } = await gateway.next();
            assert.equal(framing, 'content-length');
            assert.equal(message.result.protocolVersion, '2025-06-18');
        } finally {
            await gateway.close();
        }
    });
    test('a text that is not JSON gets -32700 and the next message is served', async () => {
        const gateway = startStdio({ mcpServers: { m: mirrorServer() } });
        try {
            await gateway.handshake();
            for (const junk of ['nonsense\n', '{"jsonrpc":\n']) {
                gateway.write(junk);
                assert.equal((await gateway.next()).message.error?.code, -32700, junk);
            }
            gateway.say(ping('still here'));
            assert.equal((await gateway.next()).message.id, 'still here');
        } finally {
            await gateway.close();
        }
    });
    test('the gateway ends after calls in flight at the end of the input', async () => {
        const gateway = startStdio({ mcpServers: { m: mirrorServer() } });
        const file = join(gateway.path, 'go');
        try {
            await gateway.handshake();
            gateway.say(call('m__mirror', {}, 'ready'));
            await gateway.next();
            gateway.say(call('m__wait', { file }, 'late'));
            gateway.end();
            await gateway.line(/stopping/, WAIT_MS);
            writeFileSync(file, '');
            const { message } = await gateway.next();
            assert.equal(message.id, 'late');
            assert.equal(resultText(message), 'waited');
        } finally {
            await gateway.close();
        }
    });
    test('messages followed at once by the end of the input are answered', async () => {
        const gateway = startStdio({ mcpServers: { m: mirrorServer() } });
        try {
            const messages = [initialize('2025-11-25'), { jsonrpc: '2.0', method: 'notifications/initialized' }, call('m__mirror', {}, 2), ping(3)];
            gateway.write(messages.map(message => `${JSON.stringify(message)}\n`).join(''));
            gateway.end();
            const ids = [await gateway.next(), await gateway.next(), await gateway.next()].map(({ message }) => message.id);
            assert.deepEqual(ids.sort(), [1, 2, 3]);
        } finally {
            await gateway.close();
        }
    });
    test('a large answer is written in full to a slow reader after the end of the input', async () => {
        const SIZE = 4 * 1024 * 1024;
        const gateway = startStdio({ mcpServers: { bad: stdioServer.misbehave('huge', SIZE) } });
        try {
            await gateway.handshake();
            gateway.say(call('bad__fine', {}, 'ready'));
            await gateway.next();
            gateway.output.pause();
            gateway.say(call('bad__act', {}, 'large'));
            gateway.end();
            await gateway.line(/stopping/, WAIT_MS);
            await sleep(500); // a slow reader, but within timeouts.shutdown
            gateway.output.resume();
            const { message } = await gateway.next();
            assert.equal(message.id, 'large');
            assert.equal(resultText(message).length, SIZE);
        } finally {
            await gateway.close();
        }
    });
});

describe('stdio and HTTP at once', () => {
    let gateway, url;
    before(async () => {
        gateway = startStdio({ listen: [{ address: '127.0.0.1:0' }], mcpServers: { m: mirrorServer() } });
        [, url] = await gateway.line(/listening\b.*\burl=(\S+)/, WAIT_MS);
        await gateway.handshake();
    });
    after(async () => {
        gateway?.kill('SIGTERM');
        await gateway?.close();
    });

    test('stdio and HTTP are served at once', async () => {
        const session = await Session.open(url);
        gateway.say(call('m__mirror', { from: 'stdio' }));
        assert.match(resultText(await session.call('m__mirror', { from: 'http' })), /"from":"http"/);
        assert.match(resultText((await gateway.next()).message), /"from":"stdio"/);
    });
    test('the end of the input ends only the stdio session', async () => {
        const session = await Session.open(url);
        gateway.end();
        assert.match(resultText(await session.call('m__mirror', { from: 'http' })), /"from":"http"/);
        assert.ok(!(await settles(gateway.exited, 500)), 'the gateway ended');
    });
    test('HTTP continues after the end of the input', async () => {
        const session = await Session.open(url);
        const answer = await session.post(call('m__mirror', { from: 'http' }));
        assert.match(resultText(reply(answer)), /"from":"http"/);
    });
    test('calls in flight on stdio finish after the end of the input beside HTTP', async () => {
        const other = startStdio({ listen: [{ address: '127.0.0.1:0' }], mcpServers: { m: mirrorServer() } });
        const file = join(other.path, 'go');
        try {
            await other.handshake();
            other.say(call('m__mirror', {}, 'ready'));
            await other.next();
            other.say(call('m__wait', { file }, 'late'));
            other.end();
            await sleep(200); // the end of the input is not observable from outside
            writeFileSync(file, '');
            assert.equal((await other.next(SOON_MS)).message.id, 'late');
        } finally {
            other.kill('SIGTERM');
            await other.close();
        }
    });
});
