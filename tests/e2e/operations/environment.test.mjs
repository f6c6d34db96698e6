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
