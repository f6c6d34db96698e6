// Connections beside others whose calls wait for a server: the HTTP server of the gateway polls them together, and must not miss an event of any.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:http';
import { connect } from 'node:net';
import { json } from 'node:stream/consumers';
import { after, before, describe, test } from 'node:test';

import { startGateway, until } from '../gateway.mjs';
import { ACCEPT_BOTH, resultText, Session } from '../raw.mjs';

const NEIGHBOURS = 6, PIPELINED = 40, WAIT_MS = 20_000;
const LARGE = 2 << 20;

/** A server whose tool `act` answers after `ms` milliseconds (null: at the end of the tests) with the length of `text`. */
async function startServer() {
    const results = {
        initialize: ({ protocolVersion }) => ({ protocolVersion, capabilities: { tools: {} }, serverInfo: { name: 'waiting', version: '1.0.0' } }),
        'tools/list': () => ({ tools: [{ name: 'act', inputSchema: { type: 'object' } }] }),
        'tools/call': ({ arguments: args }) => ({ content: [{ type: 'text', text: String(args.text?.length ?? 'done') }] })
    };
    let release;
    const end = new Promise(resolve => (release = resolve));
    const server = createServer(async (req, res) => {
        if (req.method !== 'POST') return res.writeHead(405).end();
        const { id, method, params } = await json(req);
        if (id === undefined) return res.writeHead(202).end();
        server.taken += params?.arguments?.text === 'mine';
        const { ms = 0 } = params?.arguments ?? {};
        await (ms === null ? end : new Promise(resolve => setTimeout(resolve, ms)));
        return res.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify({ jsonrpc: '2.0', id, result: results[method]?.(params) ?? {} }));
    });
    server.taken = 0; // calls of the caller that disconnects
    server.end = release;
    await once(server.listen(0, '127.0.0.1'), 'listening');
    return server;
}

const callOf = args => JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'tools/call', params: { name: 's__act', arguments: args } });
const requestOf = (session, body, more = '') =>
    `POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nAccept: ${ACCEPT_BOTH}\r\nMcp-Session-Id: ${session.id}\r\n` +
    `MCP-Protocol-Version: 2025-11-25\r\n${more}Content-Length: ${Buffer.byteLength(body)}\r\n\r\n${body}`;

for (const ms of [1, null]) describe(`beside calls that wait ${ms ? `for ${ms} ms` : 'all the time'}`, () => {
    let server, gateway, session, neighbours, over = false;
    before(async () => {
        server = await startServer();
        gateway = await startGateway({ mcpServers: { s: { url: `http://127.0.0.1:${server.address().port}/mcp` } } });
        session = await Session.open(gateway.url);
        const others = await Promise.all(Array.from({ length: NEIGHBOURS }, () => Session.open(gateway.url)));
        neighbours = others.map(async other => {
            while (!over) assert.equal(resultText(await other.call('s__act', { ms })), 'done');
        });
    });
    after(async () => {
        over = true;
        server.end();
        await Promise.all(neighbours);
        await gateway.stop();
        server.closeAllConnections();
        server.close();
    });

    const open = async () => {
        const socket = connect(Number(new URL(gateway.url).port), '127.0.0.1');
        socket.heard = '';
        socket.setEncoding('utf8').on('data', bytes => (socket.heard += bytes)).on('error', () => {});
        await once(socket, 'connect');
        return socket;
    };
    const answers = (socket, text) => socket.heard.split(`"text":"${text}"`).length - 1;

    test('requests in one piece are answered one after the other', async () => {
        const socket = await open();
        socket.write(requestOf(session, callOf({ ms: 1 })).repeat(PIPELINED));
        await until(() => answers(socket, 'done') === PIPELINED, WAIT_MS, 'all answers');
        socket.destroy();
    });
    test('a large body is read', async () => {
        const socket = await open();
        socket.write(requestOf(session, callOf({ text: 'x'.repeat(LARGE) })));
        await until(() => answers(socket, LARGE) === 1, WAIT_MS, 'the answer');
        socket.destroy();
    });
    test('a request head in pieces is read', async () => {
        const socket = await open();
        const request = requestOf(session, callOf({}), `X-Long: ${'x'.repeat(7000)}\r\n`);
        for (let at = 0; at < request.length; at += 1500) {
            socket.write(request.slice(at, at + 1500));
            await new Promise(resolve => setTimeout(resolve, 2));
        }
        await until(() => answers(socket, 'done') === 1, WAIT_MS, 'the answer');
        socket.destroy();
    });
    test('a caller that closes its sending side gets its answer', async () => {
        const socket = await open();
        socket.end(requestOf(session, callOf({ ms: 50 }), 'Connection: close\r\n'));
        await once(socket, 'close');
        assert.equal(answers(socket, 'done'), 1);
    });
    test('a call continues when its caller disconnects', async () => {
        for (const ms of [2, 100]) {
            const socket = await open(), calls = server.taken;
            socket.write(requestOf(session, callOf({ ms, text: 'mine' })));
            await until(() => server.taken > calls, WAIT_MS, 'the call');
            socket.resetAndDestroy();
        }
        assert.equal(resultText(await session.call('s__act')), 'done');
    });
});
