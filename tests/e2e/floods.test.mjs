// A server that says more than anybody can take: its own sessions hear all of it in order, and everybody else is served meanwhile.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { afterEach, describe, test } from 'node:test';

import { startGateway, stdioServer, until } from './gateway.mjs';
import { resultText, Session } from './raw.mjs';

const WAIT_MS = 60_000;
const SESSIONS = 70; // more than one turn's slice: src/gate/fan_out.c
const MESSAGES = 100;
const CALLS = 30;

let gateway;
afterEach(() => gateway.stop());

async function start(servers) {
    gateway = await startGateway({ mcpServers: servers });
}

/** Opens sessions that hear log messages, each with a stream; gives the streams. */
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

test('every session hears every message once and in order, and who called before the answer', async () => {
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

describe('others are served while a server floods', () => {
    for (const [name, mode] of Object.entries({ notifications: ['flood'], junk: ['junk-flood', 1e9], 'lines on standard error': ['stderr-flood', 1e9] }))
        test(name, async () => {
            await start({ flood: stdioServer.misbehave(...mode), calm: stdioServer.misbehave('fine') });
            const streams = await listen(gateway.url, SESSIONS);
            const neighbour = await Session.open(gateway.url);
            assert.equal(resultText(await neighbour.call('calm__fine')), 'fine');
            const before = residentBytes(gateway);
            const caller = await Session.open(gateway.url);
            caller.call('flood__act').catch(() => {}); // junk and lines never end
            if (mode[0] === 'flood') await Promise.all(streams.map(stream => stream.notification('notifications/message')));
            else await until(() => /something that is no message|last lines|server ready/.test(gateway.log()), WAIT_MS, 'the flood');
            for (let i = 0; i < CALLS; i++) assert.equal(resultText(await neighbour.call('calm__fine')), 'fine');
            if (mode[0] === 'flood') await Promise.all(streams.map(stream => stream.notification('notifications/message'))); // it still goes on
            const grown = residentBytes(gateway) - before;
            assert.ok(grown < 256 * 2 ** 20, `${grown} bytes more than before`);
            for (const stream of streams) stream.drop();
        });
});
