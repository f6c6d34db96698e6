// Unsolicited messages of a server are bounded, alone and in batches, and do not affect the call during which they arrive.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:http';
import { json } from 'node:stream/consumers';
import { after, before, describe, test } from 'node:test';

import { startGateway, until } from '../gateway.mjs';
import { resultText, Session } from '../raw.mjs';

const KIB = 1024, MIB = 1024 * KIB;
const WAIT_MS = 20_000;
const rpc = more => ({ jsonrpc: '2.0', ...more });
const log = (data, pad = '') => rpc({ method: 'notifications/message', params: { level: 'error', data, pad } });
const answer = id => rpc({ id, result: { content: [{ type: 'text', text: 'fine' }] } });

let server, gateway, session, events, said, heard, asked;
before(async () => {
    heard = [];
    server = createServer(async (req, res) => {
        if (req.method !== 'POST') return res.writeHead(405).end();
        const message = await json(req), { id, method, params } = message;
        heard.push(message);
        if (id === undefined || !method) return res.writeHead(202).end();
        const type = events && method === 'tools/call' ? 'text/event-stream' : 'application/json';
        const results = {
            initialize: { protocolVersion: '2025-03-26', capabilities: { tools: {}, logging: {} }, serverInfo: { name: 'talks', version: '1' } },
            'tools/list': { tools: [{ name: 'act', inputSchema: { type: 'object' } }] }
        };
        const spoken = (method === 'tools/call' || method === asked) && said ? said(id, params) : [rpc({ id, result: results[method] ?? {} })];
        res.writeHead(200, { 'content-type': type });
        return res.end(spoken.map(one => (type === 'text/event-stream' ? `data: ${JSON.stringify(one)}\n\n` : JSON.stringify(one))).join(''));
    }).listen(0, '127.0.0.1');
    await once(server, 'listening');
    gateway = await startGateway({ mcpServers: { t: { type: 'http', url: `http://127.0.0.1:${server.address().port}/mcp` } } });
    session = await Session.open(gateway.url, { capabilities: { sampling: {} } });
    assert.ok((await session.request('tools/list')).result.tools.length);
});
after(async () => {
    await gateway?.stop();
    server?.close().closeAllConnections();
});

/** Calls the tool; returns the messages of the answer. The server sends the messages that `speak` returns. */
async function call(speak, asEvents) {
    [said, events] = [speak, asEvents];
    const { headers, body } = await session.post(rpc({ id: 1, method: 'tools/call', params: { name: 't__act', arguments: {} } }));
    if (headers['content-type'].startsWith('application/json')) return [JSON.parse(body)];
    return body.split('\n').filter(line => line.startsWith('data: {')).map(line => JSON.parse(line.slice(6)));
}
const logged = messages => messages.filter(({ method }) => method === 'notifications/message').map(({ params }) => params.data);
const warned = () => gateway.log().match(/request or notification that is too large/g)?.length ?? 0;

describe('notifications above 256 KiB', () => {
    for (const [name, asEvents, speak] of [
        ['alone', true, id => [log('before'), log('dropped', 'x'.repeat(256 * KIB)), log('after'), answer(id)]],
        ['in a batch', false, id => [[log('before'), log('dropped', 'x'.repeat(256 * KIB)), log('after'), answer(id)]]]
    ])
        test(`a notification above 256 KiB ${name} is dropped`, async () => {
            const before = warned(), messages = await call(speak, asEvents);
            assert.deepEqual(logged(messages), ['before', 'after']);
            assert.equal(resultText(messages.at(-1)), 'fine');
            await until(() => warned() === before + 1, WAIT_MS, 'the line in the log');
        });
});

test('a request above 4 MiB is refused and its call continues', async () => {
    const before = warned();
    const messages = await call(id => [rpc({ id: 'large', method: 'sampling/createMessage', params: { messages: [], pad: 'x'.repeat(4 * MIB) } }), answer(id)], true);
    assert.equal(resultText(messages.at(-1)), 'fine');
    assert.equal(messages.length, 1, 'the caller is not asked');
    await until(() => warned() === before + 1, WAIT_MS, 'the line in the log');
    await until(() => heard.some(({ id, error }) => id === 'large' && error), WAIT_MS, 'the refusal');
    assert.deepEqual(heard.find(({ id }) => id === 'large').error, { code: -32603, message: 'the request is too large' });
});

describe('the size of large batches', () => {
    const batch = count => id => [[...Array.from({ length: count - 1 }, (_, i) => log(i, 'x'.repeat(300))), answer(id)]];
    test('a large batch of 1,024 messages is delivered', async () => {
        const messages = await call(batch(1024), false);
        assert.deepEqual(logged(messages), Array.from({ length: 1023 }, (_, i) => i));
        assert.equal(resultText(messages.at(-1)), 'fine');
    });
    test('a large batch of 1,025 messages is dropped and the call fails', async () => {
        const messages = await call(batch(1025), false);
        assert.equal(messages.length, 1);
        assert.equal(messages[0].error.data.reason, 'upstream_invalid');
        await gateway.line(/a large batch has more than 1024 messages/);
        assert.equal(resultText((await call(id => [answer(id)], false))[0]), 'fine');
    });
});

test('messages after an answer to the gateway in one batch are delivered', async () => {
    for (const [level, pad] of [['error', ''], ['debug', 'x'.repeat(300 * KIB)]]) {
        asked = 'logging/setLevel';
        let answered = false;
        said = id => {
            answered = true;
            return [[rpc({ id, result: { pad } }), log('after the answer'), rpc({ id: 'late', method: 'ping' })]];
        };
        const pings = () => heard.filter(({ id, result }) => id === 'late' && result).length, before = pings();
        await session.request('logging/setLevel', { level });
        await until(() => answered && pings() > before, WAIT_MS, 'the answer and the ping arrived');
    }
    [asked, said] = [];
    assert.equal(resultText((await call(undefined, false).then(() => call(id => [answer(id)], false)))[0]), 'fine');
});
