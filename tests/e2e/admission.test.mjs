// Failed authentication is counted once, for pages and calls alike; what is not the caller's mistake is not counted.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { Agent, request } from 'node:http';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { after, afterEach, before, beforeEach, describe, test } from 'node:test';

import { until } from './gateway.mjs';
import { startWorld } from './hosted.mjs';
import { startIssuer } from './issuer.mjs';
import { initialize, post, send } from './raw.mjs';

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
});
afterEach(async () => {
    await gateway?.stop();
    await issuer.stop();
    gateway = undefined;
});

async function start(more) {
    gateway = await world.start({
        auth: { providers: [{ type: 'jwt', issuer: issuer.url, jwks_uri: issuer.jwksUri, audiences: [AUDIENCE], required_scopes: ['mcp:use'] }] },
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
const bearer = token => (token ? { authorization: `Bearer ${token}` } : {});
const page = token => send(new URL('/oauth/connections', gateway.origin), { method: 'GET', headers: bearer(token) });
const call = token => send(gateway.url, { headers: post(bearer(token)), body: initialize('2025-11-25') });
const ways = { page, call };

for (const [name, ask] of Object.entries(ways)) {
    describe(`authentication of a ${name}`, () => {
        test('an issuer outage is 503 and not counted', async () => {
            issuer.serve = (_request, response) => response.writeHead(503).end();
            await start();
            const token = issuer.sign();
            for (let i = 0; i < 2 * FAILURES; i++) assert.equal((await ask(token)).status, 503);
            issuer.serve = undefined;
            await until(async () => (await ask(token)).status === 200, 30_000, 'the keys are fetched');
        });
        test('a missing scope is 403 and not counted', async () => {
            await start();
            const narrow = issuer.sign(issuer.claims({ scope: 'mcp:other' }));
            for (let i = 0; i < 2 * FAILURES; i++) assert.equal((await ask(narrow)).status, 403);
            assert.equal((await ask(issuer.sign())).status, 200);
        });
    });
}
test('wrong credentials of pages and calls are counted together', async () => {
    await start();
    const wrong = forged();
    for (let i = 0; i < FAILURES / 2; i++) {
        assert.equal((await page(wrong)).status, 403);
        assert.equal((await call(wrong)).status, 401);
    }
    for (const ask of Object.values(ways)) {
        assert.equal((await ask(issuer.sign())).status, 429);
        assert.notEqual((await ask()).status, 429, 'without a credential nothing is guessed');
    }
    assert.equal(gateway.log().split('throttling address after failed authentications').length, 2);
});

test('a flood of requests without a credential deletes no row of a call', async () => {
    const file = join(world.folder.path, 'flood.db');
    await start({ audit: { path: file, retention_size: '64KiB' } });
    assert.equal((await call(issuer.sign())).status, 200);
    const agent = new Agent({ keepAlive: true, maxSockets: 16 }), headers = post(), body = JSON.stringify(initialize('2025-11-25'));
    const knock = () => new Promise((resolve, reject) => {
        const req = request(gateway.url, { method: 'POST', headers: { ...headers, 'content-length': body.length }, agent }, res => res.resume().on('end', resolve));
        req.on('error', reject).end(body);
    });
    await Promise.all(Array.from({ length: 5000 }, knock)); // after 4,096 rows retention has a look
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
test('requests without a credential are one row for each address and minute, whatever they ask for', async () => {
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
