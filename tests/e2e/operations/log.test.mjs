// The log: a reader of standard error that does not read does not block the gateway, and floods of lines are limited.
import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, constants, existsSync, openSync, readlinkSync } from 'node:fs';
import { Socket } from 'node:net';
import { join } from 'node:path';
import { after, describe, test } from 'node:test';

import { binary, freePort, settles, startGateway, stdioServer, temporaryDirectory, until, writeConfig } from '../gateway.mjs';
import { post, resultText, send, Session } from '../raw.mjs';

const WAIT_MS = 60_000;
const STOP_MS = 10_000;
const SOURCE_LINES = 100; // of one event and source in ten seconds: src/base/log_limit.h
const directory = temporaryDirectory();
after(() => directory.remove());

/** Two ends of a pipe: one for the gateway, and one that the test reads after `read()`. */
function makePipe(name) {
    const path = join(directory.path, name);
    execFileSync('mkfifo', [path]);
    const readEnd = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK);
    return { theirs: openSync(path, 'w'), read: () => new Socket({ fd: readEnd, readable: true, writable: false }) };
}

/** A gateway whose standard error is not read until `read()` is called; then `log()` returns its text. */
async function startUnread(kind) {
    const pipe = kind === 'pipe' && makePipe('stderr');
    const port = await freePort();
    const servers = { loud: stdioServer.misbehave('stderr-flood', 4000) };
    const config = writeConfig(directory.path, { listen: [{ address: `127.0.0.1:${port}` }], log: { level: 'debug' }, mcpServers: servers });
    const child = spawn(binary, ['serve', '--config', config], { stdio: ['ignore', 'ignore', pipe ? pipe.theirs : 'pipe'], env: { ...process.env, POSTERN_STATE: directory.path } });
    if (pipe) closeSync(pipe.theirs);
    const exited = once(child, 'exit');
    const origin = `http://127.0.0.1:${port}`;
    const health = async () => JSON.parse((await send(`${origin}/healthz`, { method: 'GET' })).body);
    let text = '';
    const read = () => (pipe ? pipe.read() : child.stderr).setEncoding('utf8').on('data', chunk => (text += chunk));
    await until(() => health().then(({ status }) => status === 'ok', () => child.exitCode !== null), WAIT_MS, 'it listens');
    assert.equal(child.exitCode, null);
    return { child, exited, url: `${origin}/mcp`, health, read, log: () => text };
}

describe('a blocked reader of standard error', () => {
    for (const kind of ['pipe', 'socket'])
        test(`a blocked ${kind} does not stop calls or health, and dropped lines are counted later`, async () => {
            const gateway = await startUnread(kind);
            try {
                const session = await Session.open(gateway.url);
                assert.equal(resultText(await session.call('loud__act')), 'flooded');
                assert.equal(resultText(await session.call('loud__fine')), 'fine');
                const { status, log } = await gateway.health();
                assert.equal(status, 'ok');
                assert.ok(log.dropped > 0, `${log.dropped} lines dropped`);
                gateway.read();
                await until(() => /log lines dropped/.test(gateway.log()), WAIT_MS, 'the count of dropped lines is logged');
                const told = () => [...gateway.log().matchAll(/^\S+Z warn +log lines dropped count=(\d+)$/gm)].reduce((sum, [, count]) => sum + Number(count), 0);
                await until(async () => told() === (await gateway.health()).log.dropped, WAIT_MS, 'all of them');
                await session.call('loud__fine');
                await until(() => /log lines dropped[^]*call .*target=fine/.test(gateway.log()), WAIT_MS, 'the next lines');
                for (const line of gateway.log().split('\n').slice(0, -1)) assert.match(line, /^\d{4}-\d\d-\d\dT\S+Z (debug|info|warn) /);
                gateway.child.kill('SIGTERM');
                assert.deepEqual(await gateway.exited, [0, null]);
                await until(() => / stopped\n$/.test(gateway.log()), WAIT_MS, 'the last line');
            } finally {
                gateway.child.kill('SIGKILL');
                await gateway.exited;
            }
        });

    test('the gateway ends although nothing reads its log', async () => {
        const gateway = await startUnread('socket');
        try {
            assert.equal(resultText(await (await Session.open(gateway.url)).call('loud__act')), 'flooded');
            gateway.child.kill('SIGTERM');
            assert.ok(await settles(gateway.exited, STOP_MS));
            assert.deepEqual(await gateway.exited, [0, null]);
        } finally {
            gateway.child.kill('SIGKILL');
            await gateway.exited;
        }
    });
});

test('a standard descriptor that is closed at startup is not reused for a connection', async () => {
    const address = `unix:${join(directory.path, 'closed.sock')}`;
    const config = writeConfig(directory.path, { listen: [{ address }], mcpServers: {} });
    const child = spawn('sh', ['-c', 'exec "$@" <&- >&- 2>&-', 'sh', binary, 'serve', '--config', config], { stdio: 'ignore', env: { ...process.env, POSTERN_STATE: directory.path } });
    const exited = once(child, 'exit');
    try {
        await until(() => existsSync(address.slice(5)) || child.exitCode !== null, WAIT_MS, 'it listens');
        assert.deepEqual([0, 1, 2].map(fd => readlinkSync(`/proc/${child.pid}/fd/${fd}`)), Array(3).fill('/dev/null'));
        child.kill('SIGTERM');
        assert.deepEqual(await exited, [0, null]);
    } finally {
        child.kill('SIGKILL');
        await exited;
    }
});

/** The numbers of lines of an event that were written and left out during the whole life of the gateway. */
function count(log, event, source) {
    const lines = log.split('\n');
    const told = lines.filter(line => line.includes(`log lines left out event="${event}" source=${source} count=`));
    return { written: lines.filter(line => / (info|warn) +/.test(line) && line.includes(`  ${event} `)).length, leftOut: told.reduce((sum, line) => sum + Number(/count=(\d+)/.exec(line)[1]), 0), told };
}

describe('a flood of log lines', () => {
    test('junk lines of a server are logged up to a bound and then counted', async () => {
        const LINES = 20_000;
        const gateway = await startGateway({ mcpServers: { bad: stdioServer.misbehave('junk-flood', LINES) } });
        try {
            const began = Date.now();
            const session = await Session.open(gateway.url);
            assert.equal(resultText(await session.call('bad__act')), 'flooded');
            const windows = Math.ceil((Date.now() - began) / 10_000) + 1;
            await gateway.stop();
            const { written, leftOut, told } = count(gateway.log(), 'server wrote a line that is not a message', 'bad');
            assert.equal(written + leftOut, LINES);
            assert.ok(written <= windows * SOURCE_LINES, `${written} lines written`);
            assert.ok(told.length >= 1);
        } finally {
            gateway.child.kill('SIGKILL');
        }
    });

    test('requests without a credential are logged up to a bound', async () => {
        const REQUESTS = 1000;
        const tokens = join(directory.path, 'tokens.json');
        execFileSync(binary, ['token', 'new', '--subject', 'ana', '--file', tokens]);
        const rule = { id: 'all', effect: 'allow', description: 'everything is allowed', tenants: ['default'], subjects: ['authenticated'], servers: ['demo'], kinds: ['tool'], names: ['*'] };
        const files = { 'policy.json': { version: 1, description: 'Every caller with a token', rules: [rule] } };
        const config = { auth: { providers: [{ type: 'bearer', tokens }] }, policy: 'policy.json', mcpServers: { demo: stdioServer.fixture() } };
        const gateway = await startGateway(config, [], { files });
        try {
            const began = Date.now();
            const body = { jsonrpc: '2.0', id: 1, method: 'tools/list' };
            for (let i = 0; i < REQUESTS; i += 50)
                for (const { status } of await Promise.all(Array.from({ length: 50 }, () => send(gateway.url, { headers: post(), body })))) assert.ok([401, 429].includes(status), status);
            const windows = Math.ceil((Date.now() - began) / 10_000) + 1;
            await gateway.stop();
            const lines = gateway.log().split('\n').length;
            assert.ok(lines <= 50 + windows * SOURCE_LINES, `${lines} lines for ${REQUESTS} requests`);
        } finally {
            gateway.child.kill('SIGKILL');
        }
    });
});
