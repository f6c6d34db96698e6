// Room for connections: what happens when it is used up, that it is noticed when it is free again, and who has to go first.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { connect } from 'node:net';
import { dirname, join } from 'node:path';
import { after, describe, test } from 'node:test';

import { Channel } from './channel.mjs';
import { binary, startGateway, temporaryDirectory, until } from './gateway.mjs';

const WAIT_MS = 20_000;
const ROUNDS = 20;
const FULL = /not accepting connections/g;
const AGAIN = /accepting connections again/g;

const count = (text, pattern) => [...text.matchAll(pattern)].length;
const limitOf = pid => /^Max open files +(\d+) +(\d+)/m.exec(readFileSync(`/proc/${pid}/limits`, 'latin1')).slice(1).map(Number);

/** A connection of our own that has sent something. `answered` is true as soon as anything came back. */
function dial(gateway, text, options = {}) {
    const target = gateway.url.startsWith('unix:') ? { path: gateway.url.slice(5) } : { host: '127.0.0.1', port: new URL(gateway.url).port, ...options };
    const socket = connect(target, () => socket.write(text));
    const line = { socket, answered: false, closed: false };
    socket.on('error', () => {}).on('data', () => (line.answered = true)).on('close', () => (line.closed = true));
    return line;
}
const pipe = 'GET /sse HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n';

/** The calls of one session, over connections of its own. */
async function works(gateway) {
    const unix = gateway.url.startsWith('unix:');
    const channel = await Channel.open(unix ? 'http://localhost/mcp' : gateway.url, unix ? { socketPath: gateway.url.slice(5) } : {});
    assert.equal((await channel.request('ping')).error, undefined);
}

/** More callers than there is room for open streams, and all leave; then there must be room. */
async function fillAndLeave(gateway, callers) {
    for (let round = 1; round <= ROUNDS; round++) {
        const lines = Array.from({ length: callers }, () => dial(gateway, pipe));
        await until(() => count(gateway.log(), FULL) === round, WAIT_MS, `the log says for the ${round}. time that there is no room`);
        await until(() => lines.some(({ answered }) => answered), WAIT_MS, 'some are served');
        assert.ok(lines.some(({ answered }) => !answered), 'some have to wait');
        for (const { socket } of lines) socket.destroy();
        await works(gateway);
        await until(() => count(gateway.log(), AGAIN) === round, WAIT_MS, `the log says for the ${round}. time that there is room`);
    }
}

describe('accepting goes on when callers leave', () => {
    const directory = temporaryDirectory();
    after(() => directory.remove());
    for (const address of ['127.0.0.1:0', `unix:${join(directory.path, 'postern.sock')}`])
        test(`after limits.connections was reached on ${address.split(':')[0]}`, async () => {
            const gateway = await startGateway({ listen: [{ address }], limits: { connections: 10 }, mcpServers: {} });
            try {
                await fillAndLeave(gateway, 15);
                assert.match(gateway.log(), /limits\.connections/);
            } finally {
                await gateway.stop();
            }
        });

    test('after the descriptors ran out', async () => {
        const gateway = await startGateway({ mcpServers: {} }, [], { launcher: ['prlimit', '--nofile=64:64'] });
        try {
            await fillAndLeave(gateway, 80);
            assert.match(gateway.log(), /not accepting connections.*Too many open files/);
        } finally {
            await gateway.stop();
        }
    });

    test('after a caller waited for a place, and the place was freed', async () => {
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

test('the gateway raises its limit of descriptors, and servers have the old one', async () => {
    const demo = { command: join(dirname(binary), 'postern-demo'), args: [] }; // node would raise its limit by itself
    const config = { log: { level: 'debug' }, mcpServers: { demo } };
    const gateway = await startGateway(config, [], { launcher: ['prlimit', '--nofile=256:5000'] });
    try {
        assert.deepEqual(limitOf(gateway.pid), [5000, 5000]);
        assert.match(gateway.log(), /descriptor limit raised.*256.*5000/);
        const channel = await Channel.open(gateway.url);
        await channel.request('tools/list');
        const servers = gateway.servers();
        assert.ok(servers.length > 0);
        for (const pid of servers) assert.equal(limitOf(pid)[0], 256, readFileSync(`/proc/${pid}/cmdline`, 'latin1'));
    } finally {
        await gateway.stop();
    }
});

test('a limit of descriptors that is lower than the configured limits is told at the start', async () => {
    const gateway = await startGateway({ limits: { connections: 5000 }, mcpServers: {} }, [], { launcher: ['prlimit', '--nofile=256:1000'] });
    try {
        assert.match(gateway.log(), /descriptor limit.*limits\.connections.*1000/);
    } finally {
        await gateway.stop();
    }
});
