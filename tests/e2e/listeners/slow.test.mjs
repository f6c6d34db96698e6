// limits.min_rate: callers that send or read too slowly are cut off; ordinary ones and idle streams are not.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect } from 'node:net';
import { after, before, describe, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';

import { callOf, Channel } from '../channel.mjs';
import { startGateway, stdioServer, until } from '../gateway.mjs';

const WAIT_MS = 30_000;
const LARGE = 32 << 20; // more than the kernel buffers for a caller that does not read
const BODY = 1 << 20;

/** Opens a raw connection. */
async function dial(gateway) {
    const socket = connect(Number(new URL(gateway.url).port), '127.0.0.1');
    socket.on('error', () => {});
    await once(socket, 'connect');
    return socket;
}
const post = (headers, length) =>
    `POST /mcp HTTP/1.1\r\nHost: localhost\r\nAccept: application/json, text/event-stream\r\nContent-Type: application/json\r\n${headers}Content-Length: ${length}\r\n\r\n`;
const headersOf = channel => Object.entries(channel.session).map(([name, value]) => `${name}: ${value}\r\n`).join('');

describe('a caller that sends a body', () => {
    let gateway;
    before(async () => (gateway = await startGateway({ limits: { body_timeout: '8s', min_rate: '16KiB' }, mcpServers: {} })));
    after(() => gateway?.stop());

    /** Sends a body in pieces until all is sent or the connection is closed; returns the answer. */
    async function send(piece, pause_ms) {
        const body = JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'ping', params: { filler: '' } }).replace('""', `"${'x'.repeat(BODY)}"`);
        const socket = await dial(gateway), chunks = [];
        let open = true;
        socket.on('data', chunk => chunks.push(chunk)).on('close', () => (open = false));
        socket.write(post(headersOf(await Channel.open(gateway.url)), body.length));
        for (let sent = 0; sent < body.length && open; sent += piece) {
            socket.write(body.slice(sent, sent + piece));
            await sleep(pause_ms);
        }
        await until(() => chunks.length || !open, WAIT_MS, 'an answer, or the end');
        socket.destroy();
        return Buffer.concat(chunks).toString();
    }

    test('a body sent more slowly than limits.min_rate is cut off', async () => {
        assert.equal(await send(1 << 10, 200), '');
        await gateway.line(/caller cut off: request body sent too slowly.*subject=anonymous.*bytes=\d{4,}.*option=limits\.min_rate/, WAIT_MS);
    });
    test('a body sent faster than limits.min_rate is answered even after one window', async () => assert.match(await send(BODY / 20, 250), /^HTTP\/1\.1 200 /));
});

describe('a caller that reads an answer', () => {
    let gateway;
    before(async () => {
        gateway = await startGateway({
            limits: { body_timeout: '2s', min_rate: '1MiB' },
            timeouts: { heartbeat: '200ms' },
            mcpServers: { bad: stdioServer.misbehave('huge', LARGE) }
        });
    });
    after(() => gateway?.stop());

    const cut = () => /caller cut off: answer read too slowly.*subject=anonymous.*bytes=\d{8}.*option=limits\.min_rate/.test(gateway.log());

    /** Reads a large answer in pieces until it is complete or a caller is cut off; returns the number of bytes received. */
    async function read(piece, pause_ms) {
        const body = JSON.stringify(callOf('bad__act')), socket = await dial(gateway);
        let size = 0, rest = piece;
        socket.on('data', chunk => {
            size += chunk.length;
            if ((rest -= chunk.length) > 0) return;
            rest = piece;
            socket.pause();
            setTimeout(() => socket.resume(), pause_ms);
        });
        socket.write(post(headersOf(await Channel.open(gateway.url)), body.length) + body);
        await until(() => size >= LARGE || cut(), WAIT_MS, 'the whole answer, or the end');
        socket.destroy();
        return size;
    }

    test('an answer read faster than limits.min_rate arrives whole', async () => assert.ok((await read(2 << 20, 100)) >= LARGE));
    test('an answer read more slowly than limits.min_rate is cut off', async () => {
        assert.ok((await read(1, 500)) < LARGE);
        assert.ok(cut());
    });
    test('a caller keeps a stream that is idle', async () => {
        const socket = await dial(gateway), channel = await Channel.open(gateway.url);
        let beats = 0;
        socket.on('data', chunk => (beats += chunk.toString().split(': keepalive').length - 1));
        socket.write(`GET /mcp HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n${headersOf(channel)}\r\n`);
        await until(() => beats > 20 || socket.destroyed, WAIT_MS, 'heartbeats for four windows');
        assert.equal(socket.destroyed, false);
        socket.destroy();
    });
});
