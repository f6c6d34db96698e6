// GET /healthz: the status for every caller, the figures for callers on this host, and the conditions that change the status.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync, renameSync, writeFileSync } from 'node:fs';
import { Agent, request } from 'node:http';
import { dirname, join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { text } from 'node:stream/consumers';
import { after, before, describe, test } from 'node:test';

import { binary, peerPath, startGateway, temporaryDirectory, until } from '../gateway.mjs';
import { startIssuer } from '../issuer.mjs';
import { initialize, post, send, Session } from '../raw.mjs';

const demo = join(dirname(binary), 'postern-demo');
const mirror = peerPath('mirror');
const AUDIENCE = 'https://gateway.example/mcp';
const WAIT_MS = 15_000;
const policy = {
    version: 1,
    description: 'Every caller may echo',
    rules: [{ id: 'echo', effect: 'allow', description: 'echo for every caller of this test', tenants: ['default'], subjects: ['authenticated'], servers: ['demo'], kinds: ['tool'], names: ['echo'] }]
};

let folder, issuer, gateway, token;
/** Replaces a file by a rename, as editors and git do. */
function replace(name, content) {
    writeFileSync(join(folder.path, `${name}.new`), content);
    renameSync(join(folder.path, `${name}.new`), join(folder.path, name));
}
const ask = (headers = {}, method = 'GET') => send(`${gateway.origin}/healthz`, { method, headers });
const health = async () => JSON.parse((await ask()).body);
const becomes = (status, ...problems) =>
    until(async () => {
        const now = await health();
        return now.status === status && JSON.stringify(now.problems) === JSON.stringify(problems) && now;
    }, WAIT_MS, `${status} ${problems}`);

before(async () => {
    folder = temporaryDirectory();
    replace('policy.json', JSON.stringify(policy));
    token = execFileSync(binary, ['token', 'new', '--subject', 'ana', '--file', join(folder.path, 'tokens.json')], { encoding: 'utf8' }).trim();
    issuer = await startIssuer(AUDIENCE);
    gateway = await startGateway({
        public_url: 'https://gateway.example',
        auth: {
            providers: [
                { type: 'bearer', tokens: join(folder.path, 'tokens.json') },
                { type: 'jwt', name: 'corp', issuer: issuer.url, audiences: [AUDIENCE] }
            ]
        },
        policy: join(folder.path, 'policy.json'),
        mcpServers: { demo: { command: demo } }
    });
});
after(async () => {
    await gateway?.stop();
    await issuer?.stop();
    folder?.remove();
});

test('a healthy gateway shows its figures to callers on this host', async () => {
    await until(async () => (await health()).issuers[0].keys_age_s !== null, WAIT_MS, 'the keys');
    const opened = await send(gateway.url, { headers: post({ authorization: `Bearer ${token}` }), body: initialize('2025-11-25') });
    assert.equal(opened.status, 200, opened.body);
    const now = await until(async () => {
        const { servers } = await health();
        return servers.up === 1 && health();
    }, WAIT_MS, 'the server');
    assert.deepEqual([now.status, now.problems], ['ok', []]);
    const [{ tenant, digest, since, ...loaded }] = now.policies;
    assert.deepEqual([tenant, digest.length, loaded], ['default', 64, { reload_failed: 0, failing_since: null }]);
    assert.ok(Date.now() - Date.parse(since) < 600_000, since);
    assert.deepEqual(now.issuers.map(({ provider, issuer: url, failures }) => [provider, url, failures]), [['corp', issuer.url, 0]]);
    assert.deepEqual([now.audit.dropped, now.audit.write_errors, now.audit.failing, now.audit.room > 0], [0, 0, false, true]);
    assert.deepEqual(now.servers, { up: 1, down: 0, starting: 0, idle: 0, circuit_open: 0 });
    assert.equal(now.sessions.open, 1);
    assert.deepEqual(Object.keys(now.loop), ['stalls', 'longest_ms']);
    assert.equal(now.loop.stalls > 0, now.loop.longest_ms > 20);
    assert.equal(now.tokens, null, 'no server needs the store');
    assert.ok(!JSON.stringify(now).includes(token));
});

describe('health for other callers', () => {
    for (const [name, headers] of Object.entries({
        'behind a proxy with X-Forwarded-For': { 'x-forwarded-for': '192.0.2.1' },
        'behind a proxy with the name of the gateway': { host: 'gateway.example' }
    }))
        test(`callers ${name} get only the status`, async () => {
            const answer = await ask(headers);
            assert.deepEqual([answer.status, answer.body, answer.headers['cache-control']], [200, '{"status":"ok"}', 'no-store']);
        });
    test('a health request with a foreign host name is refused', async () => assert.equal((await ask({ host: 'evil.example' })).status, 403));
    test('a HEAD of health has no body and a POST is refused', async () => {
        assert.deepEqual(await ask({}, 'HEAD').then(({ status, body }) => [status, body]), [200, '']);
        assert.equal((await ask({}, 'POST')).status, 404);
    });
});

test('X14 a policy that cannot be reloaded degrades the health until it is repaired', async () => {
    const { digest, since } = (await health()).policies[0];
    replace('policy.json', '{');
    const [broken] = (await becomes('degraded', 'policies')).policies;
    assert.deepEqual([broken.digest, broken.since, broken.reload_failed], [digest, since, 1]);
    assert.ok(Date.parse(broken.failing_since) >= Date.parse(since));
    assert.equal((await ask({ host: 'gateway.example' })).body, '{"status":"degraded"}', 'a degraded gateway still serves');
    replace('policy.json', JSON.stringify(policy));
    const [mended] = (await becomes('ok')).policies;
    assert.deepEqual([mended.digest, mended.reload_failed, mended.failing_since], [digest, 1, null]);
});

test('P10 a token file that cannot be read degrades the health until it can', async () => {
    const good = readFileSync(join(folder.path, 'tokens.json'));
    replace('tokens.json', '{');
    await becomes('degraded', 'credentials');
    replace('tokens.json', good);
    await becomes('ok');
});

test('J10 an issuer whose keys cannot be fetched degrades the health and its old keys stay in use', async () => {
    issuer.serve = (_request, response) => response.writeHead(500).end();
    const before = (await health()).issuers[0];
    issuer.add('new', 'ES256');
    await send(gateway.url, { headers: post({ authorization: `Bearer ${issuer.sign(issuer.claims(), { alg: 'ES256', kid: 'new' }, 'new')}` }), body: initialize('2025-11-25') });
    const [corp] = (await becomes('degraded', 'issuers')).issuers;
    assert.ok(corp.failures >= 1 && corp.keys_age_s >= before.keys_age_s);
    issuer.serve = undefined;
    assert.equal((await becomes('ok')).issuers[0].failures, 0);
});

describe('an audit', () => {
    /** Runs `body` with a gateway whose audit database is locked by another connection. */
    async function locked(audit, body) {
        const path = join(folder.path, `audit-${Object.keys(audit)}.db`);
        const own = await startGateway({ audit: { path, ...audit }, mcpServers: {} });
        const lock = new DatabaseSync(path);
        const now = async () => JSON.parse((await send(`${own.origin}/healthz`, { method: 'GET' })).body);
        try {
            assert.equal((await now()).status, 'ok');
            lock.exec('BEGIN IMMEDIATE');
            const session = await Session.open(own.url);
            await body({ own, now, session, unlock: () => lock.exec('ROLLBACK') });
        } finally {
            lock.close();
            await own.stop();
        }
    }

    test('an audit that cannot be written degrades the health until it can', () => locked({}, async ({ now, unlock }) => {
        const failing = await until(async () => (await now()).status === 'degraded' && now(), WAIT_MS, 'degraded');
        assert.deepEqual([failing.problems, failing.audit.failing, failing.audit.dropped], [['audit'], true, 0]);
        unlock();
        const mended = await until(async () => (await now()).status === 'ok' && now(), WAIT_MS, 'ok');
        assert.deepEqual([mended.problems, mended.audit.failing], [[], false]);
    }));

    test('an audit that dropped rows stays degraded until it writes again', () => locked({ queue: 4 }, async ({ own, now, session, unlock }) => {
        for (let i = 0; i < 8; i++) await session.request('tools/list');
        const losing = await now();
        assert.deepEqual([losing.status, losing.problems, losing.audit.dropped > 0], ['degraded', ['audit'], true]);
        assert.equal((await send(`${own.origin}/healthz`, { method: 'GET', headers: { via: 'proxy' } })).body, '{"status":"degraded"}');
        unlock();
        const empty = await until(async () => (await now()).audit.queued === 0 && now(), WAIT_MS, 'the queue is empty');
        assert.deepEqual([empty.status, empty.problems, empty.audit.failing], ['degraded', ['audit'], false]);
    }));
});

test('a certificate that cannot be reloaded degrades the health until one can', async () => {
    const at = name => join(folder.path, name);
    execFileSync('openssl', ['req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-noenc', '-keyout', at('tls.key'), '-out', at('tls.crt'), '-days', '30', '-subj', '/CN=localhost'], { stdio: 'ignore' });
    const good = readFileSync(at('tls.crt'));
    const own = await startGateway({ listen: [{ address: '127.0.0.1:0' }, { address: 'localhost:0', tls: { certificate: at('tls.crt'), key: at('tls.key') } }], mcpServers: {} });
    const now = async () => JSON.parse((await send(`${own.origin}/healthz`, { method: 'GET' })).body);
    const becomes = (status, ...problems) => until(async () => {
        const { status: is, problems: has } = await now();
        return is === status && JSON.stringify(has) === JSON.stringify(problems);
    }, WAIT_MS, `${status} ${problems}`);
    try {
        assert.deepEqual((await now()).certificates, { failing: false });
        replace('tls.crt', 'garbage');
        await becomes('degraded', 'certificates');
        replace('tls.crt', good);
        await becomes('ok');
        replace('tls.crt', '');
        process.kill(own.pid, 'SIGHUP');
        await becomes('degraded', 'certificates');
        replace('tls.crt', good);
        process.kill(own.pid, 'SIGHUP');
        await becomes('ok');
    } finally {
        await own.stop();
    }
});

test('health is 503 during a stop', async () => {
    const own = await startGateway({ mcpServers: { m: { command: mirror } } });
    const agent = new Agent({ keepAlive: true, maxSockets: 1 }), file = join(folder.path, 'go');
    const ask = async (path, method, headers, body) => {
        const req = request(`${own.origin}${path}`, { agent, method, headers });
        req.end(body && JSON.stringify(body));
        const [res] = await once(req, 'response');
        return { status: res.statusCode, headers: res.headers, body: await text(res) };
    };
    const opened = await send(own.url, { headers: post(), body: initialize('2025-11-25') });
    const inSession = post({ 'mcp-session-id': opened.headers['mcp-session-id'] });
    const hanging = send(own.url, { headers: inSession, body: { jsonrpc: '2.0', id: 2, method: 'tools/call', params: { name: 'm__wait', arguments: { file } } } });
    await until(async () => JSON.parse((await send(`${own.origin}/healthz`, { method: 'GET' })).body).servers.up === 1, WAIT_MS, 'the server');
    const kept = await ask('/mcp', 'POST', inSession, { jsonrpc: '2.0', id: 3, method: 'ping' });
    assert.deepEqual([kept.status, kept.headers.connection], [200, undefined], 'the connection is kept');
    process.kill(own.pid, 'SIGTERM');
    await own.line(/stopping/, WAIT_MS);
    const { status, body } = await ask('/healthz', 'GET', {});
    writeFileSync(file, '');
    await hanging;
    agent.destroy();
    await own.stop();
    assert.equal(status, 503);
    assert.match(body, /^\{"status":"stopping"/);
});
