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
import { staysFast } from '../neighbour.mjs';
import { policyRule } from '../policy.mjs';
import { initialize, post, reply, send, Session } from '../raw.mjs';

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
            const lost = Number((await gateway.line(/resumed lost=(\d+)/))[1]);
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
    test(`a gateway survives a full disk under ${name}`, async t => {
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

describe('a full disk under the grant store', () => {
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
            await gateway.line(/cannot get a token server=liar.*free disk space/);
            assert.equal(await refreshes(liar), 0);
            faults.diskFull(false);
            await until(async () => (await call()) === 'ok', WAIT_MS, 'calls work again');
            assert.equal(await refreshes(liar), 1);
        }));
});

/** A session whose requests are sent on one connection, which stays open. */
async function openKept(url) {
    const agent = new Agent({ keepAlive: true, maxSockets: 1 }), session = new Session();
    const say = (body, headers = {}) =>
        new Promise((resolve, reject) => {
            const bytes = JSON.stringify(body);
            const req = request(url, { method: 'POST', headers: { ...post(headers), 'content-length': Buffer.byteLength(bytes) }, agent }, async res =>
                resolve({ status: res.statusCode, headers: res.headers, body: await text(res) })
            );
            req.on('error', reject).end(bytes);
        });
    const opened = await say(initialize('2025-11-25'));
    Object.assign(session, { id: opened.headers['mcp-session-id'], version: '2025-11-25', nextId: 100, close: () => agent.destroy() });
    session.post = body => say(body, session.headers());
    await session.post({ jsonrpc: '2.0', method: 'notifications/initialized' });
    return session;
}

/** A function that sets the soft limit on descriptors of the gateway; without a number, to the limit that it began with. */
function descriptorLimit({ pid }) {
    const first = /^Max open files +(\d+)/m.exec(readFileSync(`/proc/${pid}/limits`, 'latin1'))[1];
    return (soft = first) => void execFileSync('prlimit', ['--pid', String(pid), `--nofile=${soft}:`]);
}

test('a process without free descriptors serves its open connections, and everything else when there are descriptors again', async t => {
    const { folder } = place(t), file = join(folder, 'audit.db');
    const peer = await startPeer(program.fixture, 'http');
    t.after(() => peer.stop());
    const gateway = await startGateway({
        audit: { path: file },
        catalogue: { path: join(folder, 'catalogue.db') },
        mcpServers: { demo, cold: demo, web: { url: peer.url } }
    });
    t.after(() => gateway.stop());
    const session = await openKept(gateway.url), limit = descriptorLimit(gateway);
    t.after(session.close);
    assert.equal(await echo(session), 'ok');
    await session.request('tools/list'); // which waits until all servers have started

    limit(3);
    assert.equal(await echo(session), 'ok', 'a server that runs');
    process.kill(Number((await gateway.line(/server started server=cold pid=(\d+)/))[1]), 'SIGKILL');
    await gateway.line(/server lost server=cold/, WAIT_MS);
    assert.deepEqual(await outcome(session, 'cold__echo', { message: 'hi' }), [200, 'server_unavailable'], 'a server that has to start');
    await gateway.line(/server did not start server=cold.*Too many open files/, WAIT_MS);
    const late = Session.open(gateway.url); // it waits
    await gateway.line(/not accepting connections.*Too many open files/, WAIT_MS);
    limit();
    await gateway.line(/accepting connections again/, WAIT_MS);
    const next = await late;
    assert.equal(await echo(next), 'ok');
    await until(async () => (await outcome(next, 'cold__echo', { message: 'hi' })) === 'ok', WAIT_MS, 'the server starts');
    assert.equal(gateway.child.exitCode, null, 'the same process continues');
    const recorded = calls(await rowsIn(file, 5));
    assert.deepEqual(recorded.slice(0, 4).map(({ server, status }) => [server, status]), [['demo', 'ok'], ['demo', 'ok'], ['cold', 'error'], ['demo', 'ok']]);
});

/** In as little memory as a shell takes; `hoard` takes more than it has. */
const hoarder = `
ulimit -v 65536
while read -r line; do
    id=$(expr "$line" : '.*"id":\\([0-9]*\\)')
    case $line in
    *'"initialize"'*) echo '{"jsonrpc":"2.0","id":'$id',"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"hoarder","version":"1"}}}' ;;
    *'"tools/list"'*) echo '{"jsonrpc":"2.0","id":'$id',"result":{"tools":[{"name":"hoard","inputSchema":{"type":"object"}},{"name":"small","inputSchema":{"type":"object"}}]}}' ;;
    *'"hoard"'*) all=$(head -c 200000000 /dev/zero | tr '\\0' x) ;;
    *'"tools/call"'*) echo '{"jsonrpc":"2.0","id":'$id',"result":{"content":[]}}' ;;
    esac
done`;

test('a server process that runs out of memory fails its call and is started again', async t => {
    const { folder } = place(t), file = join(folder, 'audit.db');
    const gateway = await startGateway({ audit: { path: file }, mcpServers: { demo, big: { command: 'sh', args: ['-c', hoarder] } } });
    t.after(() => gateway.stop());
    const session = await Session.open(gateway.url);
    for (let round = 0; round < 2; round++) {
        assert.equal(await outcome(session, 'big__small'), 'ok');
        const [hoarded, healthy] = await Promise.all([outcome(session, 'big__hoard'), echo(session)]);
        assert.deepEqual([hoarded, healthy], [[200, 'upstream_died'], 'ok']);
    }
    await gateway.line(/call failed.*target=hoard.*ended: (signal|exit status) \d+/, WAIT_MS);
    assert.equal(await outcome(session, 'big__small'), 'ok');
    assert.equal(calls(await rowsIn(file, 7)).filter(({ reason }) => reason === 'upstream_died').length, 2);
});

/** `begin`: what causes the fault, until the gateway has noticed it; `end`: what ends it. */
const disturbances = {
    'a full disk': ({ faults, gateway }) => ({
        begin: async () => {
            const seen = gateway.log().length;
            faults.diskFull(true);
            await until(() => /cannot write the audit log/.test(gateway.log().slice(seen)), WAIT_MS, 'a record could not be written');
        },
        end: async () => {
            const seen = gateway.log().length;
            faults.diskFull(false);
            await until(() => /audit writes resumed/.test(gateway.log().slice(seen)), WAIT_MS, 'records are written again');
        }
    }),
    'a lack of descriptors': ({ gateway, other }) => {
        const limit = descriptorLimit(gateway);
        return {
            begin: async () => {
                const seen = gateway.log().length;
                limit(3);
                process.kill(Number(gateway.log().match(/(?<=server started server=big pid=)\d+/g).at(-1)), 'SIGKILL');
                await until(() => /server did not start server=big.*Too many open files/.test(gateway.log().slice(seen)), WAIT_MS, 'a server cannot start');
            },
            end: async () => {
                limit();
                await until(async () => (await outcome(other, 'big__small')) === 'ok', WAIT_MS, 'it starts');
            }
        };
    },
    'a server that runs out of memory': ({ other }) => ({
        begin: async () => assert.deepEqual(await outcome(other, 'big__hoard'), [200, 'upstream_died']),
        end: async () => assert.equal(await outcome(other, 'big__small'), 'ok')
    }),
    'a clock that is set forward': ({ faults }) => ({ begin: async () => faults.clockAhead(5 * HOUR), end: () => faults.clockAhead(0) })
};

for (const [name, disturb] of Object.entries(disturbances))
    test(`${name} does not delay the calls of others`, async t => {
        const here = place(t);
        const gateway = await start(t, here, {
            audit: { path: join(here.folder, 'audit.db') },
            catalogue: { path: join(here.folder, 'catalogue.db') },
            mcpServers: { demo, big: { command: 'sh', args: ['-c', hoarder] } }
        });
        const session = await openKept(gateway.url), other = await Session.open(gateway.url);
        t.after(session.close);
        assert.equal(await outcome(other, 'big__small'), 'ok');
        await staysFast(t, async () => assert.equal(await echo(session), 'ok'), disturb({ ...here, gateway, other }));
        assert.equal(gateway.child.exitCode, null, 'the same process continues');
    });

const AUDIENCE = 'https://gateway.example/mcp';
const clockPolicy = { version: 1, description: 'Authenticated callers may call everything', rules: [policyRule('echo', 'allow', { subjects: ['authenticated'], servers: ['*'], names: ['*'] })] };

/** A session of the caller with this credential. */
async function openAs(gateway, token) {
    const headers = { authorization: `Bearer ${token}` };
    const answer = await send(gateway.url, { headers: post(headers), body: initialize('2025-11-25') });
    if (answer.status !== 200) return answer.status;
    const session = Object.assign(new Session(), { url: gateway.url, id: answer.headers['mcp-session-id'], version: '2025-11-25', nextId: 100 });
    session.post = body => send(gateway.url, { headers: session.headers(post(headers)), body });
    session.get = () => Session.prototype.get.call(session, headers);
    await session.post({ jsonrpc: '2.0', method: 'notifications/initialized' });
    return session;
}

/** `old`: the outcome of calls with credentials that end an hour after the start. `idle`: `timeouts.session_idle`. */
const jumps = {
    forward: { seconds: 5 * HOUR, old: [401, 'unauthenticated'], idle: '1h' },
    back: { seconds: -5 * HOUR, old: 'ok', idle: '10s' }
};

for (const [name, { seconds, old, idle }] of Object.entries(jumps))
    test(`a clock that is set ${name} by hours changes only the expiry of credentials`, async t => {
        const here = place(t), { folder, faults } = here, file = join(folder, 'audit.db'), tokens = join(folder, 'tokens.json'), go = join(folder, 'go');
        const command = (...args) => execFileSync(binary, args, { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] }).trim();
        const tokenOf = (...more) => command('token', 'new', '--file', tokens, '--subject', 'ana', ...more);
        const issuer = await startIssuer(AUDIENCE);
        t.after(issuer.stop);
        const inSeconds = s => Math.floor(Date.now() / 1000) + s;
        const jwt = exp => issuer.sign(issuer.claims({ exp }));
        const credentials = { lasting: tokenOf(), short: tokenOf('--expires', new Date(inSeconds(HOUR) * 1000).toISOString()), jwt: jwt(inSeconds(HOUR)) };
        const policy = join(folder, 'policy.json'), control = join(folder, 'control.sock');
        writeFileSync(policy, JSON.stringify(clockPolicy));
        const gateway = await start(t, here, {
            control,
            policy,
            audit: { path: file },
            timeouts: { session_idle: idle, heartbeat: '200ms' },
            auth: { providers: [{ type: 'bearer', tokens }, { type: 'jwt', issuer: issuer.url, jwks_uri: issuer.jwksUri, audiences: [AUDIENCE] }] },
            mcpServers: {
                demo,
                hangs: { ...stdioServer.misbehave('hang'), timeout: '2s' },
                later: { command: 'sh', args: ['-c', `test -e ${go} && exec ${demo.command}`] }
            }
        });
        const sessions = {};
        for (const [whose, token] of Object.entries(credentials)) sessions[whose] = await openAs(gateway, token);
        for (const session of Object.values(sessions)) assert.equal(await echo(session), 'ok');
        const listening = await sessions.lasting.get();
        await gateway.line(/circuit opened server=later/, WAIT_MS);
        const hanging = outcome(sessions.lasting, 'hangs__act');
        const status = () => JSON.parse(command('status', '--json', '--control', control));
        const before = status().uptime_s;

        faults.clockAhead(seconds);
        const jumped = Date.now();
        assert.equal(await echo(sessions.lasting), 'ok');
        for (const whose of ['short', 'jwt']) assert.deepEqual(await echo(sessions[whose]), old, whose);
        const fresh = await openAs(gateway, jwt(inSeconds(seconds + HOUR)));
        assert.equal(await echo(fresh), 'ok', 'a token of the new time');
        assert.equal(await openAs(gateway, jwt(inSeconds(seconds - HOUR))), 401, 'a token that has expired at the new time');
        assert.deepEqual(await hanging, [200, 'upstream_timeout'], 'a timeout that had begun');
        writeFileSync(go, '');
        await until(async () => (await outcome(sessions.lasting, 'later__echo', { message: 'hi' })) === 'ok', WAIT_MS, 'the pause after failed starts ends');
        const { uptime_s: uptime } = status();
        assert.ok(uptime >= before && uptime <= before + (Date.now() - jumped) / 1000 + 60, `uptime ${before} s, then ${uptime} s`);
        if (seconds < 0) await gateway.line(/session ended: idle/, WAIT_MS);
        else assert.doesNotMatch(gateway.log(), /session ended: idle/);
        listening.drop();

        faults.clockAhead(0);
        assert.equal(await echo(await openAs(gateway, credentials.jwt)), 'ok', 'the clock is right again');
        const rows = calls(await rowsIn(file, 9)), times = rows.map(({ time }) => Date.parse(time));
        const moved = times.filter(time => Math.abs(time - Date.now() - seconds * 1000) < HOUR * 1000).length;
        assert.ok(moved >= 4 && moved < rows.length, `${moved} of ${rows.length} rows have the other time`);
        assert.equal(gateway.child.exitCode, null, 'the same process continues');
    });

for (const [name, ahead] of [['forward', 5 * HOUR], ['back', -5 * HOUR]])
    test(`an access token is refreshed when the server refuses it after the clock is set ${name} by hours`, () =>
        withLogin(async ({ liar, faults, call }) => {
            faults.clockAhead(ahead);
            for (let i = 0; i < 3; i++) assert.equal(await call(), 'ok');
            const already = await refreshes(liar);
            await liar.control({ expire: true });
            for (let i = 0; i < 3; i++) assert.equal(await call(), 'ok');
            assert.equal(await refreshes(liar), already + 1);
            faults.clockAhead(0);
            for (let i = 0; i < 3; i++) assert.equal(await call(), 'ok', 'with a token that was issued at the other time');
            assert.equal(await refreshes(liar), already + 1);
        }));
