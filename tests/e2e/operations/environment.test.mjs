// The fault matrix of the environment: each row is a fault of the machine that the gateway runs on, with the answers that its callers get, the lines
// of the log, and the recovery after the fault. In each row the same process continues, and no record is lost without a line in the log.
//
// Elsewhere: faults of servers (servers/matrix), an audit database that is locked, and its queue when it is full (recorded, required), the gateway
// under RLIMIT_AS (limits/memory), limits.memory (limits/budget), and connections that use up all descriptors (listeners/connections).
import assert from 'node:assert/strict';
import { execFileSync, spawnSync } from 'node:child_process';
import { closeSync, openSync, readFileSync, writeFileSync, writeSync } from 'node:fs';
import { Agent, request } from 'node:http';
import { dirname, join } from 'node:path';
import { text } from 'node:stream/consumers';
import { describe, test } from 'node:test';

import { binary, program, startGateway, startPeer, stdioServer, temporaryDirectory, until } from '../gateway.mjs';
import { startIssuer } from '../issuer.mjs';
import { withLiar } from '../liar.mjs';
import { policyRule } from '../policy.mjs';
import { initialize, post, reply, resultText, send, Session } from '../raw.mjs';

const WAIT_MS = 60_000;
const HOUR = 3600;
const demo = { command: join(dirname(binary), 'postern-demo') };

// Sanitizers must be loaded first, unless they are linked statically.
const sanitizers = execFileSync('ldd', [binary], { encoding: 'utf8' }).match(/\S*\/lib[at]san\.so\S*/g) ?? [];
const preload = [...sanitizers, join(dirname(binary), 'faults.so')].join(':');

/** Faults for one process (tests/peers/environment/faults.c); the disk is full in `folder`. */
function makeFaults(folder) {
    const file = join(folder, 'faults');
    writeFileSync(file, Buffer.alloc(16));
    const fd = openSync(file, 'r+');
    const set = at => value => void writeSync(fd, new BigInt64Array([BigInt(value)]), 0, 8, at);
    return {
        launcher: ['env', `LD_PRELOAD=${preload}`, `POSTERN_FAULTS=${file}`, `POSTERN_FAULTS_FOLDER=${folder}/`],
        clockAhead: set(0),
        diskFull: full => set(8)(full ? 1 : 0),
        close: () => closeSync(fd)
    };
}

/** A folder for the state of gateways, and faults of it; both end with the test. */
function place(t) {
    const folder = temporaryDirectory(), faults = makeFaults(folder.path);
    t.after(() => {
        faults.close();
        folder.remove();
    });
    return { folder: folder.path, faults };
}

/** A gateway with the state folder and the faults of the place, stopped when the test ends. */
async function start(t, { folder, faults }, config, earlier) {
    const gateway = await startGateway(config, [], { launcher: faults.launcher, variables: { POSTERN_STATE: folder }, earlier });
    t.after(() => gateway.ended || gateway.stop());
    return gateway;
}

/** Another process with the same configuration, after the first has ended. */
async function restart(t, here, config, gateway) {
    await gateway.end('SIGTERM');
    gateway.ended = true;
    return start(t, here, config, gateway);
}

const healthOf = async ({ origin }) => JSON.parse((await send(`${origin}/healthz`, { method: 'GET' })).body);

/** The result of a call: `ok`, or its HTTP status and reason. */
async function outcome(session, name, args = {}) {
    const answer = await session.post({ jsonrpc: '2.0', id: 1, method: 'tools/call', params: { name, arguments: args } });
    const { result, error } = reply(answer);
    return result ? 'ok' : [answer.status, error.data.reason];
}
const echo = session => outcome(session, 'demo__echo', { message: 'hi' });

const parseLines = lines => lines.split('\n').filter(Boolean).map(line => JSON.parse(line));
const calls = rows => rows.filter(({ method }) => method === 'tools/call');

/** The rows of an audit log, which must be a valid chain, once there are as many calls as wanted. */
async function rowsIn(file, count) {
    const read = () => parseLines(execFileSync(binary, ['audit', '--file', file, '--json', '--limit', '0'], { encoding: 'utf8' }));
    await until(() => calls(read()).length >= count, WAIT_MS, `${count} rows of calls`);
    const verified = spawnSync(binary, ['audit', 'verify', '--file', file], { encoding: 'utf8' });
    assert.equal(verified.status, 0, verified.stdout + verified.stderr);
    return read();
}

/**
 * `config`: of the gateway, for its state folder. `callers`: their calls during the fault. `log`: a line of the fault, and `over` one of its end.
 * `after`: checks of the recovery.
 */
const fullDisk = {
    'the audit log': {
        config: folder => ({ audit: { path: join(folder, 'audit.db') }, mcpServers: { demo } }),
        callers: async ({ session, gateway }) => {
            for (let i = 0; i < 3; i++) assert.equal(await echo(session), 'ok');
            assert.ok((await healthOf(gateway)).audit.queued >= 3, 'records wait');
        },
        log: /cannot write the audit log.*free disk space.*calls=answered/,
        over: /audit writes resumed/,
        after: async ({ session, folder }) => {
            assert.equal(await echo(session), 'ok');
            assert.equal(calls(await rowsIn(join(folder, 'audit.db'), 5)).length, 5);
        }
    },
    'a required audit log': {
        config: folder => ({ audit: { path: join(folder, 'audit.db'), required: true }, mcpServers: { demo } }),
        callers: async ({ session }) => {
            assert.deepEqual(await echo(session), [200, 'audit_unavailable'], 'the failure was not known when the call arrived');
            assert.deepEqual(await echo(session), [503, 'overloaded']);
        },
        log: /cannot write the audit log.*free disk space.*calls=refused/,
        over: /audit writes resumed/,
        after: async ({ session, folder }) => {
            assert.equal(await echo(session), 'ok');
            const rows = await rowsIn(join(folder, 'audit.db'), 4);
            assert.deepEqual(calls(rows).map(({ status }) => status), ['ok', 'ok', 'error', 'ok']);
        }
    },
    'the JSON lines of the audit log': {
        elsewhere: true, // the database is on another disk
        config: (folder, other) => ({ audit: { path: join(other, 'audit.db'), jsonl: join(folder, 'audit.jsonl') }, mcpServers: { demo } }),
        callers: async ({ session, gateway }) => {
            for (let i = 0; i < 3; i++) assert.equal(await echo(session), 'ok');
            await until(async () => (await healthOf(gateway)).audit.failing, WAIT_MS, 'the health says so');
        },
        log: /cannot write the JSON lines of the audit log.*No space left on device/,
        next: async ({ session }) => assert.equal(await echo(session), 'ok'),
        over: /JSON lines of the audit log resumed lost=\d+/,
        after: async ({ folder, other, gateway }) => {
            const rows = await rowsIn(join(other, 'audit.db'), 5);
            const lost = Number(/resumed lost=(\d+)/.exec(gateway.log())[1]);
            assert.equal(calls(rows).length, 5);
            assert.equal(parseLines(readFileSync(join(folder, 'audit.jsonl'), 'utf8')).length + lost, rows.length, 'all rows are in the database, and the log has the number of lost lines');
            assert.equal((await healthOf(gateway)).status, 'ok');
        }
    },
    'the catalogue cache': {
        config: () => ({ catalogue: { fresh: '1h' }, mcpServers: { demo, late: stdioServer.misbehave('fine') } }),
        cold: true, // servers start, and their lists arrive, while the disk is full
        callers: async ({ session }) => {
            assert.equal(await echo(session), 'ok');
            assert.equal((await session.request('tools/list')).result.tools.filter(({ name }) => /^(demo__echo|late__fine)$/.test(name)).length, 2);
        },
        log: /cannot write the catalogue cache.*free disk space/,
        over: /catalogue cache writes resumed/,
        after: async ({ session, gateway, restart }) => {
            const names = (await session.request('tools/list')).result.tools.map(({ name }) => name);
            assert.doesNotMatch(gateway.log(), /catalogue cache not used any more/);
            const next = await restart();
            assert.deepEqual((await (await Session.open(next.url)).request('tools/list')).result.tools.map(({ name }) => name), names);
            assert.deepEqual(next.servers(), [], 'the lists come from the cache');
        }
    }
};

for (const [name, row] of Object.entries(fullDisk))
    test(`a full disk under ${name} is survived`, async t => {
        const here = place(t), other = row.elsewhere ? place(t).folder : undefined;
        const config = row.config(here.folder, other), gateway = await start(t, here, config);
        const open = () => Session.open(gateway.url);
        let session = row.cold ? undefined : await open();
        if (session) assert.equal(await echo(session), 'ok');
        here.faults.diskFull(true);
        session ??= await open();
        const given = { ...here, other, gateway, session, restart: () => restart(t, here, config, gateway) };
        await row.callers(given);
        await gateway.line(row.log, WAIT_MS);
        here.faults.diskFull(false);
        await row.next?.(given);
        await gateway.line(row.over, WAIT_MS);
        assert.equal(gateway.child.exitCode, null, 'the same process goes on');
        await row.after(given);
    });

/** Runs `body` with a session of a gateway that is logged in to a liar and has faults; the disk is full in the folder of its store. */
const withLogin = body =>
    withLiar('none', null, async liar => {
        const { status, stderr } = await liar.login();
        assert.equal(status, 0, stderr);
        const faults = makeFaults(liar.directory.path), gateway = await liar.gateway(undefined, undefined, faults.launcher);
        try {
            const session = await Session.open(gateway.url);
            const call = () => outcome(session, 'liar__echo', { a: 1 });
            assert.equal(await call(), 'ok');
            await body({ liar, faults, gateway, call });
            assert.equal(gateway.child.exitCode, null, 'the same process continues');
        } finally {
            faults.close();
            await gateway.stop();
        }
    });

/** The number of refreshes; a grant whose spent refresh token was used again would be revoked. */
const refreshes = async liar => {
    const { refreshes, reuses, alive } = await liar.get('/state');
    assert.deepEqual([reuses, alive], [0, 1]);
    return refreshes;
};

describe('a full disk under the token store', () => {
    test('a token that is refreshed on a full disk is used, and stored when there is space', () =>
        withLogin(async ({ liar, faults, gateway, call }) => {
            await liar.control({ expire: true });
            await liar.control({ hold: '/token', when: 'after' });
            const waiting = call();
            await liar.held();
            faults.diskFull(true);
            await liar.control({ release: true });
            assert.equal(await waiting, 'ok');
            for (let i = 0; i < 3; i++) assert.equal(await call(), 'ok', 'the store still has the old token');
            await gateway.line(/cannot store a refreshed token; keeping it in memory and retrying.*free disk space/, WAIT_MS);
            const { status, tokens } = await healthOf(gateway);
            assert.deepEqual([status, tokens.unsaved], ['degraded', 1]);
            faults.diskFull(false);
            await gateway.line(/stored a refreshed token after a retry/, WAIT_MS);
            assert.equal((await healthOf(gateway)).tokens.unsaved, 0);
            assert.equal((await liar.call()).status, 0, 'another process uses the stored token');
            assert.equal(await refreshes(liar), 1);
        }));

    test('a refresh token is not spent while the disk is full', () =>
        withLogin(async ({ liar, faults, gateway, call }) => {
            faults.diskFull(true);
            await liar.control({ expire: true });
            assert.deepEqual(await call(), [200, 'server_unavailable']);
            assert.match(gateway.log(), /cannot get a token server=liar.*free disk space/);
            assert.equal(await refreshes(liar), 0);
            faults.diskFull(false);
            await until(async () => (await call()) === 'ok', WAIT_MS, 'calls work again');
            assert.equal(await refreshes(liar), 1);
        }));
});

/** Sends on one connection, which stays open. */
function keepOpen(url) {
    const agent = new Agent({ keepAlive: true, maxSockets: 1 }), session = new Session();
    const say = (body, headers = {}) =>
        new Promise((resolve, reject) => {
            const bytes = JSON.stringify(body);
            const req = request(url, { method: 'POST', headers: { ...post(headers), 'content-length': Buffer.byteLength(bytes) }, agent }, async res =>
                resolve({ status: res.statusCode, headers: res.headers, body: await text(res) })
            );
            req.on('error', reject).end(bytes);
        });
    session.post = body => say(body, session.headers());
    return { session, say, close: () => agent.destroy() };
}

test('a process without free descriptors serves its open connections, and everything else when there are descriptors again', async t => {
    const { folder } = place(t), file = join(folder, 'audit.db');
    const peer = await startPeer(program.fixture, 'http');
    t.after(() => peer.stop());
    const slowly = { idle_timeout: 'never' };
    const gateway = await startGateway({
        audit: { path: file },
        catalogue: { path: join(folder, 'catalogue.db') },
        mcpServers: { demo: { ...demo, ...slowly }, cold: { ...demo, isolation: 'session' }, web: { url: peer.url, isolation: 'session' } }
    });
    t.after(() => gateway.stop());
    const kept = keepOpen(gateway.url), { session } = kept;
    t.after(kept.close);
    const opened = await kept.say(initialize('2025-11-25'));
    Object.assign(session, { id: opened.headers['mcp-session-id'], version: '2025-11-25', nextId: 100 });
    await session.post({ jsonrpc: '2.0', method: 'notifications/initialized' });
    assert.equal(await echo(session), 'ok');

    const limits = /^Max open files +(\d+)/m.exec(readFileSync(`/proc/${gateway.pid}/limits`, 'latin1'))[1];
    const limit = soft => execFileSync('prlimit', ['--pid', String(gateway.pid), `--nofile=${soft}:`]);
    limit(3);
    assert.equal(await echo(session), 'ok', 'a server that runs');
    console.error(await outcome(session, 'cold__echo', { message: 'hi' }));
    console.error(await outcome(session, 'web__test_simple_text'));
    const late = Session.open(gateway.url); // it waits
    await gateway.line(/not accepting connections.*Too many open files/, WAIT_MS);
    limit(limits);
    await gateway.line(/accepting connections again/, WAIT_MS);
    const next = await late;
    for (const name of ['demo__echo', 'cold__echo']) assert.equal(await outcome(next, name, { message: 'hi' }), 'ok');
    await until(async () => (await outcome(next, 'web__test_simple_text')) === 'ok', WAIT_MS, 'a server over HTTP');
    console.error(gateway.log());
    assert.equal(calls(await rowsIn(file, 7)).length >= 7, true);
});
