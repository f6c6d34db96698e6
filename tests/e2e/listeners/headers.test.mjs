// limits.max_header: how large the request line and the headers of a request may be.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect } from 'node:net';
import { text } from 'node:stream/consumers';
import { describe, test } from 'node:test';

import { startGateway } from '../gateway.mjs';
import { initialize } from '../raw.mjs';

const body = JSON.stringify(initialize('2025-11-25'));
const usual = ['POST /mcp HTTP/1.1', 'Host: localhost', 'Content-Type: application/json', 'Accept: application/json, text/event-stream', `Content-Length: ${body.length}`, 'Connection: close'];

/** A request whose head has `size` bytes, most of them in `count` headers. */
function request(size, count) {
    const lines = usual.map(line => `${line}\r\n`).join('');
    const fill = size - lines.length - 2, each = Math.floor(fill / count);
    const filler = Array.from({ length: count }, (_, i) => `X-${i}: `).map((name, i) => name.padEnd((i ? each : fill - each * (count - 1)) - 2, 'x') + '\r\n');
    const head = `${lines}${filler.join('')}\r\n`;
    assert.equal(head.length, size);
    return head + body;
}

async function send(gateway, bytes) {
    const socket = connect(Number(new URL(gateway.url).port), '127.0.0.1');
    socket.on('error', () => {}); // the gateway closes without reading the rest
    await once(socket, 'connect');
    socket.write(bytes);
    const answer = await text(socket);
    return { status: Number(answer.slice(9, 12)), body: answer.slice(answer.indexOf('\r\n\r\n') + 4) };
}

for (const [max, limits] of [[8 << 10, {}], [32 << 10, { max_header: '32KiB' }]])
    describe(`a limit of ${max >> 10} KiB for headers`, () => {
        const within = run => async () => {
            const gateway = await startGateway({ limits, mcpServers: {} });
            try {
                await run(gateway);
            } finally {
                await gateway.stop();
            }
        };
        test('headers up to the limit are accepted, whether few or many', within(async gateway => {
            for (const count of [1, 40]) assert.equal((await send(gateway, request(max, count))).status, 200, `${count} headers`);
        }));
        test('headers one byte above the limit are refused', within(async gateway => {
            const answer = await send(gateway, request(max + 1, 1));
            assert.equal(answer.status, 431);
            assert.equal(JSON.parse(answer.body).error.data.reason, 'header_too_large');
            await gateway.line(/header_too_large.*limits\.max_header/, 10_000);
        }));
        test('headers far above the limit are refused', within(async gateway => assert.equal((await send(gateway, request(max * 4, 1))).status, 431)));
    });
