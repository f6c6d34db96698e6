// Failed authentication is counted once, for pages and calls alike; failures that the caller did not cause are not counted.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { Agent, request } from 'node:http';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { after, afterEach, before, beforeEach, describe, test } from 'node:test';

import { until } from '../gateway.mjs';
import { startWorld } from '../hosted.mjs';
import { startIssuer } from '../issuer.mjs';
import { initialize, post, send } from '../raw.mjs';

const AUDIENCE = 'https://gateway.example/mcp';
const FAILURES = 4;

let world, issuer, gateway;
before(async () => (world = await startWorld()));
after(() => world?.stop());
beforeEach(async () => {
    issuer = await startIssuer(AUDIENCE);
    issuer.add('other', 'ES256');
    issuer.stranger = issuer.keys.other;
    delete issuer.keys.other;
    const { claims } = issuer;
    issuer.claims = more => claims({ org: 'default', ...more });
});
afterEach(async () => {
    await gateway?.stop();
    await issuer.stop();
    gateway = undefined;
});

async function start(more) {
    gateway = await world.start({
        auth: {
            providers: [
                { type: 'jwt', issuer: issuer.url, jwks_uri: issuer.jwksUri, audiences: [AUDIENCE], required_scopes: ['mcp:use'], tenant_claim: '/org' },
                { type: 'forwarded-user', trusted_proxies: ['192.0.2.1'], secret: 'a-secret-of-at-least-thirty-two-characters' }
            ]
        },
        limits: { auth_failures: FAILURES, auth_window: '1h' }, audit: { path: join(world.folder.path, `audit-${Date.now()}.db`) }, ...more
    });
}
/** Signed by a key that the issuer does not publish. */
function forged() {
    issuer.keys.wrong = issuer.stranger;
    const token = issuer.sign(issuer.claims(), { alg: 'ES256', kid: 'es' }, 'wrong');
    delete issuer.keys.wrong;
    return token;
}
/** A token, or other headers. */
const bearer = shown => (typeof shown === 'string' ? { authorization: `Bearer ${shown}` } : (shown ?? {}));
const page = token => send(new URL('/oauth/connections', gateway.origin), { method: 'GET', headers: bearer(token) });
const call = token => send(gateway.url, { headers: post(bearer(token)), body: initialize('2025-11-25') });
const ways = { page, call };

/** A call whose body is read only after the caller has been authenticated. */
const large = token => send(gateway.url, { headers: post(bearer(token)), body: { ...initialize('2025-11-25'), _padding: 'x'.repeat(64 << 10) } });
Object.assign(ways, { large });

/**
 * The outcome of each credential, the same on every path: the status for calls and for pages, whether it counts as a failed
 * authentication of its address, and the reason in the audit log (which has no row for an admitted request of a page).
 */
const OUTCOMES = [
    { credential: 'none', token: () => undefined, call: 401, page: 403, counted: false, reason: { call: 'unauthenticated' } },
    { credential: 'malformed', token: () => 'a.b.c', call: 401, page: 403, counted: true, reason: { call: 'unauthenticated', page: 'unauthenticated' } },
    { credential: 'forged', token: forged, call: 401, page: 403, counted: true, reason: { call: 'unauthenticated', page: 'unauthenticated' } },
    { credential: 'without the scope', token: () => issuer.sign(issuer.claims({ scope: 'mcp:other' })), call: 403, page: 403, counted: false, reason: { call: 'insufficient_scope', page: 'insufficient_scope' } },
    { credential: 'of a tenant that does not exist', token: () => issuer.sign(issuer.claims({ org: 'globex' })), call: 401, page: 403, counted: false, reason: { call: 'unauthenticated', page: 'unauthenticated' } },
    { credential: 'in a header that only a proxy may send', token: () => ({ 'x-forwarded-user': 'ana' }), call: 400, page: 403, counted: true, reason: { call: 'bad_request', page: 'bad_request' } },
    { credential: 'of an issuer that is down', down: true, token: () => issuer.sign(), call: 503, page: 503, counted: false, reason: { call: 'auth_unavailable', page: 'auth_unavailable' } },
    { credential: 'good', token: () => issuer.sign(), call: 200, page: 200, counted: false, reason: {} },
];
for (const outcome of OUTCOMES)
    for (const [way, ask] of Object.entries(ways))
        test(`a credential (${outcome.credential}) sent with a ${way === 'large' ? 'large call' : way} has the same outcome everywhere`, async () => {
            const face = way === 'page' ? 'page' : 'call', lines = join(world.folder.path, `outcome-${way}-${OUTCOMES.indexOf(outcome)}.jsonl`);
            if (outcome.down) issuer.serve = (_request, response) => response.writeHead(503).end();
            await start({ audit: { jsonl: lines } });
            if (!outcome.down) await until(async () => (await call(issuer.sign())).status === 200, 30_000, 'the keys are fetched');
            const token = outcome.token();
            for (let i = 0; i < FAILURES; i++) assert.equal((await ask(token)).status, outcome[face]);
            const next = (await ask(issuer.sign())).status;
            assert.equal(next, outcome.counted ? 429 : outcome.down ? 503 : 200, 'the next one with a good credential');
            await gateway.stop();
            gateway = undefined;
            const rows = readFileSync(lines, 'utf8').split('\n').filter(Boolean).map(line => JSON.parse(line));
            const refused = rows.filter(({ event, reason }) => event === 'authentication' && reason !== 'auth_limited');
            const count = refused.reduce((sum, row) => sum + (row.count ?? 1), 0);
            assert.deepEqual([...new Set(refused.map(({ reason }) => reason))], outcome.reason[face] ? [outcome.reason[face]] : []);
            assert.equal(count, outcome.reason[face] ? FAILURES + (outcome.down ? 1 : 0) : 0, 'each is in the audit log once');
        });
test('wrong credentials of pages and calls are counted together', async () => {
    await start();
    const wrong = forged();
    for (let i = 0; i < FAILURES / 2; i++) {
        assert.equal((await page(wrong)).status, 403);
        assert.equal((await call(wrong)).status, 401);
    }
    for (const ask of Object.values(ways)) {
        assert.equal((await ask(issuer.sign())).status, 429);
        assert.notEqual((await ask()).status, 429, 'a request without a credential is not a failed authentication');
    }
    assert.equal(gateway.log().split('throttling address after failed authentications').length, 2);
});

test('a flood of requests without a credential does not delete the row of a call', async () => {
    const file = join(world.folder.path, 'flood.db');
    await start({ audit: { path: file, retention_size: '64KiB' } });
    assert.equal((await call(issuer.sign())).status, 200);
    const agent = new Agent({ keepAlive: true, maxSockets: 16 }), headers = post(), body = JSON.stringify(initialize('2025-11-25'));
    const knock = () => new Promise((resolve, reject) => {
        const req = request(gateway.url, { method: 'POST', headers: { ...headers, 'content-length': body.length }, agent }, res => res.resume().on('end', resolve));
        req.on('error', reject).end(body);
    });
    await Promise.all(Array.from({ length: 5000 }, knock)); // retention is checked every 4,096 rows
    agent.destroy();
    assert.equal((await call(issuer.sign())).status, 200);
    await gateway.stop();
    gateway = undefined;
    const db = new DatabaseSync(file, { readOnly: true });
    try {
        assert.deepEqual(db.prepare("SELECT method, status FROM audit WHERE event='call' ORDER BY seq").all().map(row => ({ ...row })), Array(2).fill({ method: 'initialize', status: 'ok' }));
    } finally {
        db.close();
    }
});
test('requests without a credential are recorded as one row for each address and minute', async () => {
    const lines = join(world.folder.path, 'refused.jsonl');
    issuer.serve = (_request, response) => response.writeHead(503).end();
    await start({ audit: { jsonl: lines } });
    for (let i = 0; i < 5; i++) {
        assert.equal((await call()).status, 401);
        assert.equal((await send(gateway.url, { headers: post(), body: { jsonrpc: '2.0', id: 1, method: 'tools/call', params: { name: 'x', arguments: { i } } } })).status, 401);
    }
    for (let i = 0; i < 3; i++) assert.equal((await call(issuer.sign())).status, 503);
    await gateway.stop();
    gateway = undefined;
    const rows = readFileSync(lines, 'utf8').split('\n').filter(Boolean).map(line => JSON.parse(line));
    const shown = rows.filter(({ event }) => event === 'authentication' || event === 'call').map(row => [row.event, row.peer, row.reason, row.status, row.count]);
    assert.deepEqual(shown.filter(([, , reason]) => reason === 'unauthenticated'), [
        ['authentication', '127.0.0.1', 'unauthenticated', 'denied', undefined],
        ['authentication', '127.0.0.1', 'unauthenticated', 'denied', 9]
    ]);
    assert.deepEqual(shown.filter(([, , reason]) => reason !== 'unauthenticated'), Array(3).fill(['authentication', '127.0.0.1', 'auth_unavailable', 'error', undefined]));
});
