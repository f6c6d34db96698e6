// The rows that the running gateway and `postern token` write to the audit log: arguments and roles, tokens, policies, timeouts, callers
// that disconnect; and the behavior while the log cannot be written.
import assert from 'node:assert/strict';
import { execFileSync, spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { userInfo } from 'node:os';
import { dirname, join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { after, before, describe, test } from 'node:test';

import { binary, startGateway, stdioServer, temporaryDirectory, until } from '../gateway.mjs';
import { policyRule } from '../policy.mjs';
import { initialize, post, reply, send, Session, stream } from '../raw.mjs';

const demo = join(dirname(binary), 'postern-demo');

function postern(args, options = {}) {
    const { status, stdout, stderr } = spawnSync(binary, args, { encoding: 'utf8', ...options });
    return { status, stdout, stderr };
}

/** The rows as `postern audit` prints them, found through the configuration; it is run until `enough` accepts them. */
async function rowsOf(gateway, enough = () => true) {
    const config = join(gateway.state, 'postern.json');
    let rows;
    await until(() => {
        const { status, stdout, stderr } = postern(['audit', '--config', config, '--limit', '0'], { env: { ...process.env, POSTERN_STATE: gateway.state } });
        assert.equal(status, 0, stderr);
        rows = stdout.split('\n').filter(Boolean).map(line => JSON.parse(line));
        return enough(rows);
    }, 15_000, 'the rows');
    const verified = postern(['audit', 'verify', '--config', config], { env: { ...process.env, POSTERN_STATE: gateway.state } });
    assert.equal(verified.status, 0, verified.stdout + verified.stderr);
    return rows;
}

const calls = rows => rows.filter(({ method }) => method === 'tools/call');

describe('arguments', () => {
    const start = audit => startGateway({ audit: { path: 'sub/audit.db', ...audit }, prefix: false, mcpServers: { demo: { command: demo } } });
    const secret = String.raw`{"message":"hello","nested":[{"pass\u0077ord":"hunter2"}],"X-Api-Key":"k-123","user":{"mail":"a@b.example"}}`;

    async function recorded(audit, args) {
        const folder = temporaryDirectory();
        mkdirSync(join(folder.path, 'sub'));
        const gateway = await start({ ...audit, path: join(folder.path, 'sub/audit.db') });
        try {
            const session = await Session.open(gateway.url);
            const { status } = await session.post(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":${args}}}`);
            assert.equal(status, 200);
            const [row] = calls(await rowsOf(gateway, rows => calls(rows).length === 1));
            return { row, bytes: readFileSync(join(folder.path, 'sub/audit.db'), 'latin1') + readFileSync(join(folder.path, 'sub/audit.db-wal'), 'latin1') };
        } finally {
            await gateway.stop();
            folder.remove();
        }
    }

    test('arguments are recorded only as a digest by default', async () => {
        const { row, bytes } = await recorded({}, secret);
        assert.equal(row.arguments, undefined);
        assert.match(row.arguments_sha256, /^[0-9a-f]{64}$/);
        assert.ok(!bytes.includes('hello'));
    });
    test('recorded arguments omit redacted members and secrets', async () => {
        const { row, bytes } = await recorded({ arguments: true, redact: { pointers: ['/user/mail'] } }, secret);
        assert.deepEqual(JSON.parse(row.arguments), {
            message: 'hello',
            nested: [{ password: '[redacted]' }],
            'X-Api-Key': '[redacted]',
            user: { mail: '[redacted]' }
        });
        for (const word of ['hunter2', 'k-123', 'a@b.example']) assert.ok(!bytes.includes(word), word);
    });
    test('arguments that are too long are recorded as a marker with their digest', async () => {
        const { row } = await recorded({ arguments: true }, JSON.stringify({ message: 'x'.repeat(100_000) }));
        assert.equal(JSON.parse(row.arguments), `[too long: 100014 bytes, sha256 ${row.arguments_sha256}]`);
    });
});

describe('postern audit without --file', () => {
    let folder;
    before(() => {
        folder = temporaryDirectory();
        writeFileSync(join(folder.path, 'off.json'), '{"mcpServers":{}}');
        writeFileSync(join(folder.path, 'on.json'), '{"mcpServers":{},"audit":{"path":"a.db"}}');
    });
    after(() => folder.remove());

    for (const verify of [[], ['verify']]) {
        const name = ['audit', ...verify].join(' ');
        test(`postern ${name} of a configuration without an audit log says how to enable it`, () => {
            const { status, stdout, stderr } = postern(['audit', ...verify, '--config', join(folder.path, 'off.json')]);
            assert.deepEqual([status, stdout], [3, '']);
            assert.match(stderr, /has no audit log: set audit\.path, or add a provider that authenticates callers; --file DB/);
        });
        test(`postern ${name} reads the path relative to the configuration`, () => {
            const where = new RegExp(`${folder.path}/a\\.db: No such file`);
            assert.match(postern(['audit', ...verify, '--config', join(folder.path, 'on.json')]).stderr, where);
            assert.match(postern(['audit', ...verify], { env: { ...process.env, POSTERN_CONFIG: join(folder.path, 'on.json') } }).stderr, where);
            const none = postern(['audit', ...verify], { cwd: folder.path, env: { HOME: folder.path } });
            assert.equal(none.status, 3);
            assert.match(none.stderr, /no configuration/);
        });
    }
});

const rule = (id, more) => policyRule(id, 'allow', { subjects: ['authenticated'], servers: ['demo'], names: ['*'], ...more });
const policy = { version: 1, description: 'For the audit', rules: [rule('clerks-add', { subjects: ['role:clerk'], names: ['add'] }), rule('all-echo', { names: ['echo'] })] };

describe('tokens and policies', () => {
    let folder, gateway, config;
    const token = (...args) => {
        const done = postern(['token', ...args, '--file', join(folder.path, 'tokens.json'), ...(config ? ['--config', config] : [])]);
        assert.equal(done.status, 0, done.stderr);
        return done;
    };
    const replace = (name, text) => {
        writeFileSync(join(folder.path, `${name}.new`), text);
        renameSync(join(folder.path, `${name}.new`), join(folder.path, name));
    };
    before(async () => {
        folder = temporaryDirectory();
        replace('policy.json', JSON.stringify(policy));
        token('new', '--subject', 'first');
        gateway = await startGateway({
            auth: { providers: [{ type: 'bearer', tokens: join(folder.path, 'tokens.json') }] },
            policy: join(folder.path, 'policy.json'),
            audit: { path: join(folder.path, 'audit.db'), jsonl: join(folder.path, 'audit.jsonl'), arguments: true },
            mcpServers: { demo: { command: demo } }
        });
        config = join(gateway.state, 'postern.json');
    });
    after(async () => {
        await gateway?.stop();
        folder?.remove();
    });
    const events = (rows, wanted) => rows.filter(({ event, method }) => event === 'token' && method === wanted);

    test('token new, rotate and revoke are recorded with their user and without a secret', async () => {
        const first = token('new', '--subject', 'ana', '--role', 'clerk', '--tenant', 'default').stdout.trim();
        const id = first.split('_')[1];
        const second = token('rotate', id, '--overlap', '0s').stdout.trim();
        token('revoke', second.split('_')[1]);
        const rows = await rowsOf(gateway, all => events(all, 'revoke').length === 1);
        const told = rows.filter(({ kind }) => kind === 'token').map(({ method, provider, subject, name, tenant, status, token: which, reason }) =>
            ({ method, provider, subject, name, tenant, status, which, reason }));
        const by = { provider: 'os', subject: userInfo().username, name: 'ana', tenant: 'default', status: 'ok' };
        assert.deepEqual(told, [
            { method: 'new', ...by, which: id, reason: undefined },
            { method: 'rotate', ...by, which: second.split('_')[1], reason: `replaces ${id}` },
            { method: 'revoke', ...by, which: second.split('_')[1], reason: undefined }
        ]);
        const lines = readFileSync(join(folder.path, 'audit.jsonl'), 'utf8');
        for (const text of [first, second]) {
            assert.ok(!JSON.stringify(rows).includes(text.split('_')[2]) && !lines.includes(text.split('_')[2]), 'a secret was recorded');
            assert.ok(lines.includes(text.split('_')[1]), 'the JSON lines have it too');
        }
    });

    test('the gateway records that it reloaded tokens and that a revocation ended a session', async () => {
        const secret = token('new', '--subject', 'eve', '--role', 'guest').stdout.trim();
        const headers = { authorization: `Bearer ${secret}` };
        const open = () => send(gateway.url, { headers: post(headers), body: initialize('2025-11-25') });
        let opened;
        await until(async () => (opened = await open()).status === 200, 5_000, 'the new token');
        const reloads = events(await rowsOf(gateway, all => events(all, 'reload').length > 0), 'reload');
        assert.ok(reloads.every(({ status }) => status === 'ok'));
        const listening = await stream(gateway.url, { headers: { ...headers, 'mcp-session-id': opened.headers['mcp-session-id'], accept: 'text/event-stream' } });
        token('revoke', secret.split('_')[1]);
        while (await listening.next()) continue;
        const ended = events(await rowsOf(gateway, all => events(all, 'end').length > 0), 'end');
        assert.ok(ended.length >= 1);
        for (const row of ended)
            assert.deepEqual([row.provider, row.subject, row.token, row.roles, row.reason], ['bearer', 'eve', secret.split('_')[1], '["guest"]', 'credential_ended']);

        const good = readFileSync(join(folder.path, 'tokens.json'));
        replace('tokens.json', '{"version":1,"tokens":[{}]}');
        const rows = await rowsOf(gateway, all => events(all, 'reload').some(({ status }) => status === 'error'));
        assert.match(events(rows, 'reload').at(-1).reason, /tokens\.json: \/tokens\/0/);
        replace('tokens.json', good);
        await rowsOf(gateway, all => events(all, 'reload').at(-1).status === 'ok');
        assert.equal(events(await rowsOf(gateway), 'reload').filter(({ status }) => status === 'error').length, 1, 'a repeated failure is recorded once');
    });

    test('a call is recorded with everything that the policy decides by', async () => {
        const secret = token('new', '--subject', 'carl', '--role', 'clerk', '--role', 'night shift').stdout.trim();
        const headers = { authorization: `Bearer ${secret}` };
        let opened;
        await until(async () => (opened = await send(gateway.url, { headers: post(headers), body: initialize('2025-11-25') })).status === 200, 5_000, 'the new token');
        const body = { jsonrpc: '2.0', id: 2, method: 'tools/call', params: { name: 'demo__add', arguments: { a: 1, b: 2 } } };
        const answer = await send(gateway.url, { headers: post({ ...headers, 'mcp-session-id': opened.headers['mcp-session-id'] }), body });
        assert.ok(reply(answer).result, answer.body);
        const [row] = calls(await rowsOf(gateway, rows => calls(rows).length > 0));
        assert.equal(row.token, secret.split('_')[1]);
        const { tenant, provider, subject, roles, server, kind, name, decision, rule: by } = row;
        assert.deepEqual({ tenant, provider, subject, roles: JSON.parse(roles), server, kind, name, decision, by }, {
            tenant: 'default', provider: 'bearer', subject: 'carl', roles: ['clerk', 'night shift'], server: 'demo', kind: 'tool', name: 'add', decision: 'allow', by: 'clerks-add'
        });
    });

    test('X17 policy replay can decide a recorded call again, by role and by argument', () => {
        const again = rules => {
            writeFileSync(join(folder.path, 'other.json'), JSON.stringify({ ...policy, rules }));
            const { stdout, stderr } = postern(['policy', 'replay', '--policy', join(folder.path, 'other.json'), '--file', join(folder.path, 'audit.db'), '--json']);
            assert.ok(stdout, stderr);
            const { replayed, same, newly_denied, depends } = JSON.parse(stdout);
            return { replayed, same, newly_denied, depends };
        };
        const byRole = { subjects: ['role:clerk'], names: ['add'] };
        assert.deepEqual(again([rule('add', { ...byRole, when: { '/a': { le: 1 } } })]), { replayed: 1, same: 1, newly_denied: 0, depends: 0 });
        assert.deepEqual(again([rule('add', { ...byRole, when: { '/a': { le: 0 } } })]), { replayed: 1, same: 0, newly_denied: 1, depends: 0 });
        assert.deepEqual(again([rule('add', { subjects: ['role:baker'], names: ['add'] })]), { replayed: 1, same: 0, newly_denied: 1, depends: 0 });
    });

    test('P10 token list shows from the audit when a token was last used', async () => {
        const listed = JSON.parse(token('list').stdout);
        const used = Object.fromEntries(listed.map(({ subject, last_used }) => [subject, last_used]));
        const last = (await rowsOf(gateway)).filter(({ event, subject }) => event === 'call' && subject === 'carl').at(-1);
        assert.deepEqual([used.first, used.carl], [undefined, last.time]);
    });

    test('X16 a policy that is loaded or refused is recorded', async () => {
        const policies = rows => rows.filter(({ event }) => event === 'policy');
        const known = policies(await rowsOf(gateway)).length;
        assert.ok(known >= 1, 'the policy loaded at the start is recorded');
        replace('policy.json', '{"version":1}');
        const [broken] = policies(await rowsOf(gateway, rows => policies(rows).length > known)).slice(known);
        assert.deepEqual([broken.status, broken.policy], ['error', undefined]);
        assert.match(broken.reason, /./);
        replace('policy.json', JSON.stringify(policy));
        const [good] = policies(await rowsOf(gateway, rows => policies(rows).length > known + 1)).slice(known + 1);
        assert.equal(good.status, 'ok');
        assert.match(good.policy, /^[0-9a-f]{64}$/);
    });
});

describe('postern token and an audit that cannot be written', () => {
    let folder, file, tokens;
    const config = required => {
        const path = join(folder.path, `${required}.json`);
        writeFileSync(path, JSON.stringify({ mcpServers: {}, audit: { path: 'nowhere/a.db', required } }));
        return path;
    };
    before(() => {
        folder = temporaryDirectory();
        file = join(folder.path, 'tokens.json');
        tokens = () => JSON.parse(readFileSync(file, 'utf8')).tokens.length;
    });
    after(() => folder.remove());

    test('a token change without a required audit is made and reported as unrecorded', () => {
        const { status, stderr } = postern(['token', 'new', '--subject', 'a', '--file', file, '--config', config(false)]);
        assert.equal(status, 0);
        assert.match(stderr, /not recorded in the audit log: .*nowhere\/a\.db/);
        assert.equal(tokens(), 1);
    });
    test('a required audit that cannot be written refuses new tokens but not revocations', () => {
        const refused = postern(['token', 'new', '--subject', 'b', '--file', file, '--config', config(true)]);
        assert.deepEqual([refused.status, refused.stdout], [3, '']);
        assert.match(refused.stderr, /nothing was changed, because the change cannot be recorded/);
        assert.equal(tokens(), 1);
        const [{ id }] = JSON.parse(readFileSync(file, 'utf8')).tokens;
        assert.equal(postern(['token', 'revoke', id, '--file', file, '--config', config(true)]).status, 0);
        assert.equal(tokens(), 0);
    });
    test('a default state folder without a database is not changed', () => {
        const state = join(folder.path, 'state');
        writeFileSync(join(folder.path, 'bearer.json'), JSON.stringify({ mcpServers: {}, policy: 'p.json', auth: { providers: [{ type: 'bearer', tokens: 'tokens.json' }] } }));
        const done = postern(['token', 'new', '--subject', 'c', '--file', file, '--config', join(folder.path, 'bearer.json')], { env: { ...process.env, POSTERN_STATE: state } });
        assert.deepEqual([done.status, done.stderr], [0, '']);
        assert.ok(!existsSync(state));
    });
});

describe('calls that end without an answer', () => {
    let folder, gateway;
    before(async () => {
        folder = temporaryDirectory();
        gateway = await startGateway({
            audit: { path: join(folder.path, 'audit.db') },
            timeouts: { stream_after: '100ms' },
            mcpServers: {
                everything: stdioServer.everything(),
                bad: { ...stdioServer.misbehave('hang'), timeout: '1s' }
            }
        });
    });
    after(async () => {
        await gateway?.stop();
        folder?.remove();
    });
    const slow = (seconds, id = 1) =>
        ({ jsonrpc: '2.0', id, method: 'tools/call', params: { name: 'everything__trigger-long-running-operation', arguments: { duration: seconds, steps: 1 } } });
    /** The rows of calls after `seen` of them, once there are `count` more and a further row has had time to appear. */
    async function more(seen, count) {
        await rowsOf(gateway, rows => calls(rows).length >= seen + count);
        const session = await Session.open(gateway.url);
        await session.call('everything__echo', { message: 'after' });  // rows are written in order, so all earlier rows exist
        const rows = calls(await rowsOf(gateway, all => calls(all).length > seen + count)).slice(seen);
        assert.equal(rows.pop().name, 'echo');
        return rows;
    }
    const seen = async () => calls(await rowsOf(gateway)).length;

    test('a call that times out is recorded once as timeout', async () => {
        const already = await seen();
        const session = await Session.open(gateway.url);
        assert.equal((await session.call('bad__act')).error.data.reason, 'upstream_timeout');
        const rows = await more(already, 1);
        assert.deepEqual(rows.map(({ server, name, decision, status, reason }) => [server, name, decision, status, reason]),
            [['bad', 'act', 'allow', 'timeout', 'upstream_timeout']]);
        assert.ok(rows[0].duration_us >= 1_000_000);
    });
    test('a call whose caller disconnected is recorded once as gone', async () => {
        const already = await seen();
        const session = await Session.open(gateway.url);
        const call = await session.postStream(slow(1.5));
        assert.equal(call.status, 200);
        call.drop();
        const rows = await more(already, 1);
        assert.deepEqual(rows.map(({ name, status }) => [name, status]), [['trigger-long-running-operation', 'gone']]);
    });
    test('a call whose HTTP+SSE stream closed is recorded once as gone', async () => {
        const already = await seen();
        const pipe = await stream(new URL('/sse', gateway.url).href, { headers: { accept: 'text/event-stream' } });
        const endpoint = new URL((await pipe.next()).data, gateway.url).href;
        const tell = body => send(endpoint, { headers: post(), body });
        await tell(initialize('2024-11-05'));
        await pipe.message();
        await tell({ jsonrpc: '2.0', method: 'notifications/initialized' });
        assert.equal((await tell(slow(60, 2))).status, 202);
        pipe.drop();
        const rows = await more(already, 1);
        assert.deepEqual(rows.map(({ name, status }) => [name, status]), [['trigger-long-running-operation', 'gone']]);
    });
    test('a cancelled call is recorded once as cancelled', async () => {
        const already = await seen();
        const session = await Session.open(gateway.url);
        const call = await session.postStream(slow(60, 77));
        await session.post({ jsonrpc: '2.0', method: 'notifications/cancelled', params: { requestId: 77 } });
        while (await call.next()) continue;
        const rows = await more(already, 1);
        assert.deepEqual(rows.map(({ name, status }) => [name, status]), [['trigger-long-running-operation', 'cancelled']]);
    });
    test('an answered call is recorded once as ok', async () => {
        const already = await seen();
        const session = await Session.open(gateway.url);
        assert.ok((await session.request('tools/call', slow(0.5).params)).result);
        assert.deepEqual((await more(already, 1)).map(({ status }) => status), ['ok']);
    });
});

describe('P2 refused callers in the audit log', () => {
    let folder, gateway;
    before(async () => {
        folder = temporaryDirectory();
        const tokens = join(folder.path, 'tokens.json'), policy = join(folder.path, 'policy.json');
        postern(['token', 'new', '--file', tokens, '--subject', 'ann']);
        writeFileSync(policy, JSON.stringify({ version: 1, description: 'Nothing is allowed', rules: [] }));
        gateway = await startGateway({ auth: { providers: [{ type: 'bearer', tokens }] }, policy, limits: { auth_failures: 3, auth_window: '10m' }, mcpServers: { demo: { command: demo } } });
    });
    after(async () => {
        await gateway?.stop();
        folder.remove();
    });
    const refusals = rows => rows.filter(({ event }) => event === 'authentication');
    const shape = rows => rows.map(({ peer, reason, status, count }) => [peer, reason, status, count]);

    test('P2 an ambiguous request is recorded at once with its address, and later ones together', async () => {
        const { hostname, port } = new URL(gateway.url);
        for (let i = 0; i < 4; i++)
            await new Promise((resolve, reject) => {
                const socket = connect(Number(port), hostname, () => socket.write(`POST /mcp HTTP/1.1\r\nHost: ${hostname}\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n`));
                socket.on('error', reject).on('close', resolve).resume();
            });
        const rows = refusals(await rowsOf(gateway, all => refusals(all).length >= 1));
        assert.deepEqual(shape(rows), [['127.0.0.1', 'bad_request', 'error', undefined]]);
    });
    test('P2 refused credentials are recorded one by one, and throttled requests together', async () => {
        const already = refusals(await rowsOf(gateway)).length;
        const knock = () => send(gateway.url, { headers: post({ authorization: 'Bearer postern_no_such' }), body: initialize('2025-11-25') });
        const statuses = [];
        for (let i = 0; i < 8; i++) statuses.push((await knock()).status);
        assert.deepEqual(statuses, [401, 401, 401, 429, 429, 429, 429, 429]);
        const rows = refusals(await rowsOf(gateway, all => refusals(all).length >= already + 4)).slice(already);
        assert.deepEqual(shape(rows), [...Array(3).fill(['127.0.0.1', 'unauthenticated', 'denied', undefined]), ['127.0.0.1', 'auth_limited', 'denied', undefined]]);
    });
    test('P2 counted refusals are written at the latest when the gateway ends', async () => {
        const copy = join(folder.path, 'lines.jsonl');
        const tokens = join(folder.path, 'tokens.json'), policy = join(folder.path, 'policy.json');
        const own = await startGateway({ auth: { providers: [{ type: 'bearer', tokens }] }, policy, audit: { jsonl: copy }, limits: { auth_failures: 1, auth_window: '10m' }, mcpServers: { demo: { command: demo } } });
        for (let i = 0; i < 6; i++) await send(own.url, { headers: post({ authorization: 'Bearer postern_no_such' }), body: initialize('2025-11-25') });
        await own.stop();
        const rows = refusals(readFileSync(copy, 'utf8').split('\n').filter(Boolean).map(line => JSON.parse(line)));
        assert.deepEqual(shape(rows), [['127.0.0.1', 'unauthenticated', 'denied', undefined], ['127.0.0.1', 'auth_limited', 'denied', undefined], ['127.0.0.1', 'auth_limited', 'denied', 4]]);
    });
});

describe('a locked audit database', () => {
    for (const required of [true, false])
        test(required ? 'a required audit that is locked refuses calls until it can be written' : 'an audit that is locked does not stop calls or lose rows', async () => {
            const folder = temporaryDirectory();
            const file = join(folder.path, 'audit.db');
            const gateway = await startGateway({ audit: { path: file, required }, prefix: false, mcpServers: { demo: { command: demo } } });
            const lock = new DatabaseSync(file);
            try {
                const session = await Session.open(gateway.url);
                const echo = async () => {
                    const answer = await session.post({ jsonrpc: '2.0', id: 1, method: 'tools/call', params: { name: 'echo', arguments: { message: 'hi' } } });
                    return [answer.status, reply(answer).error?.data.reason];
                };
                assert.deepEqual(await echo(), [200, undefined]);
                await rowsOf(gateway, rows => calls(rows).length === 1);
                lock.exec('BEGIN IMMEDIATE');
                assert.deepEqual(await echo(), [200, required ? 'audit_unavailable' : undefined], 'the failure was not known when the call arrived');
                await until(() => gateway.log().includes('cannot write the audit log'), 15_000, 'the failure in the log');
                await gateway.line(required ? /cannot write the audit log.*calls=refused/ : /cannot write the audit log.*calls=answered/);
                assert.deepEqual(await echo(), required ? [503, 'overloaded'] : [200, undefined]);
                lock.exec('ROLLBACK');
                await until(() => gateway.log().includes('audit writes resumed'), 15_000, 'the recovery in the log');
                assert.deepEqual(await echo(), [200, undefined]);
                const statuses = calls(await rowsOf(gateway, rows => calls(rows).length === 4)).map(({ status }) => status);
                assert.deepEqual(statuses, required ? ['ok', 'ok', 'error', 'ok'] : ['ok', 'ok', 'ok', 'ok']);
            } finally {
                lock.close();
                await gateway.stop();
                folder.remove();
            }
        });
    test('rows beyond the audit queue are counted in a gap row', async () => {
        const folder = temporaryDirectory();
        const file = join(folder.path, 'audit.db');
        const gateway = await startGateway({ audit: { path: file, queue: 4 }, prefix: false, mcpServers: { demo: { command: demo } } });
        const lock = new DatabaseSync(file);
        try {
            const session = await Session.open(gateway.url);
            await rowsOf(gateway, rows => rows.length === 1);
            lock.exec('BEGIN IMMEDIATE');
            for (let i = 0; i < 10; i++) await session.call('echo', { message: 'hi' });
            await gateway.line(/audit queue full, dropping records/);
            lock.exec('ROLLBACK');
            const rows = await rowsOf(gateway, all => all.some(({ event }) => event === 'gap'));
            const gap = rows.find(({ event }) => event === 'gap');
            assert.equal(calls(rows).length + gap.count, 10);
            assert.match(execFileSync(binary, ['audit', 'verify', '--file', file], { encoding: 'utf8' }), new RegExp(`"dropped": ${gap.count}`));
        } finally {
            lock.close();
            await gateway.stop();
            folder.remove();
        }
    });
});
