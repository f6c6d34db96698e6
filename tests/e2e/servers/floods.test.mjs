// A server that floods the gateway: its own sessions receive every message in order, and other callers are served meanwhile.
// And lengths that callers and servers choose are bounded.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { afterEach, describe, test } from 'node:test';

import { program, startGateway, startPeer, stdioServer, until } from '../gateway.mjs';
import { resultText, Session } from '../raw.mjs';

const WAIT_MS = 60_000;
const SESSIONS = 70; // more than one turn's slice: src/gate/server/fan_out.c
const MESSAGES = 100;
const CALLS = 30;

let gateway;
afterEach(() => gateway.stop());

async function start(servers, limits) {
    gateway = await startGateway({ mcpServers: servers, ...(limits && { limits }) });
}

/** Opens sessions that receive log messages, each with a stream; returns the streams. */
async function listen(url, count) {
    const streams = [];
    for (let i = 0; i < count; i++) {
        const session = await Session.open(url);
        await session.request('logging/setLevel', { level: 'info' });
        streams.push(await session.get());
    }
    return streams;
}

const residentBytes = ({ pid }) => Number(/^VmRSS:\s+(\d+)/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))[1]) * 1024;

test('every session gets each message once and in order, and the caller before its answer', async () => {
    await start({ counter: stdioServer.misbehave('count', MESSAGES) });
    const streams = await listen(gateway.url, SESSIONS);
    const caller = await Session.open(gateway.url);
    const body = { jsonrpc: '2.0', id: 1, method: 'tools/call', params: { name: 'counter__act', arguments: {} } };
    const answer = await caller.postStream(body);
    const wanted = Array.from({ length: MESSAGES }, (_, i) => i);
    const heard = [];
    for (let event; (event = await answer.message()); ) heard.push(event.message.params?.data ?? event.message.result.content[0].text);
    assert.deepEqual(heard, [...wanted, 'counted']);
    for (const stream of streams) {
        const data = [];
        while (data.length < MESSAGES) data.push((await stream.notification('notifications/message')).message.params.data);
        assert.deepEqual(data, wanted);
        stream.drop();
    }
});

test('every session gets each message of an HTTP server once and in order', async () => {
    const peer = await startPeer(program.misbehave, 'count', MESSAGES * 10, '--http');
    try {
        await start({ counter: { url: peer.url } });
        const streams = await listen(gateway.url, SESSIONS);
        const caller = await Session.open(gateway.url);
        assert.equal(resultText(await caller.call('counter__act')), 'counted');
        for (const stream of streams) {
            for (let i = 0; i < MESSAGES * 10; i++)
                assert.equal((await stream.notification('notifications/message')).message.params.data, i);
            stream.drop();
        }
    } finally {
        await peer.stop();
    }
});

describe('servers that flood', () => {
    for (const [name, mode] of Object.entries({ notifications: ['flood'], junk: ['junk-flood', 1e9], 'lines on standard error': ['stderr-flood', 1e9] }))
        test(`other servers work while one floods the gateway with ${name}`, async () => {
            await start({ flood: stdioServer.misbehave(...mode), calm: stdioServer.misbehave('fine') });
            const streams = await listen(gateway.url, SESSIONS);
            const neighbour = await Session.open(gateway.url);
            assert.equal(resultText(await neighbour.call('calm__fine')), 'fine');
            const before = residentBytes(gateway);
            const caller = await Session.open(gateway.url);
            caller.call('flood__act').catch(() => {}); // junk and lines never end
            if (mode[0] === 'flood') await Promise.all(streams.map(stream => stream.notification('notifications/message')));
            else await until(() => /a line that is not a message|last lines|server ready/.test(gateway.log()), WAIT_MS, 'the flood');
            for (let i = 0; i < CALLS; i++) assert.equal(resultText(await neighbour.call('calm__fine')), 'fine');
            if (mode[0] === 'flood') await Promise.all(streams.map(stream => stream.notification('notifications/message'))); // the flood continues
            const grown = residentBytes(gateway) - before;
            assert.ok(grown < 256 * 2 ** 20, `${grown} bytes more than before`);
            for (const stream of streams) stream.drop();
        });
});

test('calls that wait for a server to start count for limits.session_calls', async () => {
    await start({ slow: { ...stdioServer.misbehave('hang-init'), start_timeout: '60s' } }, { session_calls: 3 });
    const session = await Session.open(gateway.url);
    const answers = Array.from({ length: 4 }, (_, i) => session.call(`slow__${i}`));
    const { error } = await Promise.race(answers);
    assert.equal(error.data.reason, 'limited', JSON.stringify(error));
    assert.ok(error.data.retryAfterMs > 0);
    await session.delete();
    await Promise.allSettled(answers);
});

describe('bounds on lengths', () => {
    const refusals = [
        ['a name', 'tools/call', { name: 'n'.repeat(1100) }, /name is longer than 1024 bytes/],
        ['a URI', 'resources/read', { uri: `a:${'u'.repeat(9000)}` }, /uri is longer than 8192 bytes/],
        ['a progress token', 'tools/call', { name: 'odd__fine', _meta: { progressToken: 't'.repeat(1100) } }, /progressToken is longer than 1024 bytes/],
        ['all but the arguments', 'ping', { _meta: { more: 'm'.repeat(300_000) } }, /the message without `arguments` is longer than 262144 bytes/]
    ];
    for (const [what, method, params, text] of refusals)
        test(`${what} of a caller that is too long is refused with an error that names it`, async () => {
            await start({ odd: stdioServer.misbehave('long-name', 10) });
            const session = await Session.open(gateway.url);
            const { error } = await session.request(method, params);
            assert.deepEqual([error.code, error.data.reason], [-32602, 'invalid_params']);
            assert.match(error.message, text);
            assert.equal(resultText(await session.call('odd__fine', { text: 'x'.repeat(500_000) })), 'fine', 'arguments may be large');
        });

    test('an overlong name in a list of a server is left out and logged', async () => {
        await start({ odd: stdioServer.misbehave('long-name', 1025) });
        const session = await Session.open(gateway.url);
        assert.deepEqual((await session.request('tools/list')).result.tools.map(({ name }) => name), ['odd__fine']);
        await gateway.line(/list item left out server=odd what=tools index=1 detail="its name or URI is too long"/);
    });

    for (const [count, names, end] of [
        [1000, ['odd__fine'], /list items left out server=odd what=tools count=1000/],
        [200_000, [], /server lists too many items, the rest is left out server=odd what=tools items=100000/]
    ])
        test(`${count} invalid items of a list cause a bounded number of log lines`, async () => {
            await start({ odd: stdioServer.misbehave('nulls', count) });
            const session = await Session.open(gateway.url);
            assert.deepEqual((await session.request('tools/list')).result.tools.map(({ name }) => name), names);
            await gateway.line(end);
            assert.equal(gateway.log().match(/list item left out/g).length, 20);
        });
});
