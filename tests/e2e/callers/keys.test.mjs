// Keys of an issuer that misbehaves, and scopes: what the gateway fetches and when, how long it waits, and how it answers meanwhile.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { after, before, describe, test } from 'node:test';

import { binary, freePort, startGateway, temporaryDirectory, until } from '../gateway.mjs';
import { startIssuer } from '../issuer.mjs';
import { initialize, post, send } from '../raw.mjs';

const demo = join(dirname(binary), 'postern-demo');
const AUDIENCE = 'https://gateway.example/mcp';
const policy = {
    version: 1,
    description: 'Every caller may echo',
    rules: [{ id: 'echo', effect: 'allow', description: 'echo for every caller of this test', tenants: ['default'], subjects: ['authenticated'], servers: ['demo'], kinds: ['tool'], names: ['echo'] }]
};

let folder;
before(() => {
    folder = temporaryDirectory();
    writeFileSync(join(folder.path, 'policy.json'), JSON.stringify(policy));
});
after(() => folder?.remove());

const start = (issuer, more) =>
    startGateway({
        auth: { providers: [{ type: 'jwt', issuer: issuer.url, audiences: [AUDIENCE], ...more }] },
        policy: join(folder.path, 'policy.json'),
        mcpServers: { demo: { command: demo } }
    });
const open = (gateway, token) => send(gateway.url, { headers: post(token ? { authorization: `Bearer ${token}` } : {}), body: initialize('2025-11-25') });

/** Runs `body` with an issuer and a gateway that trusts it, and stops both afterwards. */
async function withIssuer(more, body, prepare = () => {}) {
    const issuer = await startIssuer(AUDIENCE);
    prepare(issuer);
    const gateway = await start(issuer, typeof more === 'function' ? more(issuer) : more);
    try {
        await body({ issuer, gateway });
    } finally {
        await gateway.stop();
        await issuer.stop().catch(() => {});
    }
}

/** Waits until the keys were fetched: a caller that waits for them longer than three seconds gets 503 with Retry-After. */
const fetched = (issuer, gateway) => until(async () => (await open(gateway, issuer.sign())).status === 200, 15_000, 'the keys');

describe('J10 cached keys', () => {
    test('J10 keys are fetched once, at startup', () =>
        withIssuer({}, async ({ issuer, gateway }) => {
            await until(() => issuer.fetches['/jwks'] === 1, 15_000, 'the keys');
            await fetched(issuer, gateway);
            for (let i = 0; i < 5; i++) assert.equal((await open(gateway, issuer.sign(issuer.claims({ jti: String(i) })))).status, 200);
            assert.deepEqual(issuer.fetches, { '/.well-known/openid-configuration': 1, '/jwks': 1 });
        }));
    test('J10 tokens with known keys are accepted while their issuer is down', () =>
        withIssuer({}, async ({ issuer, gateway }) => {
            await fetched(issuer, gateway);
            const token = issuer.sign(issuer.claims({ jti: 'later' }));
            await issuer.stop();
            assert.equal((await open(gateway, token)).status, 200);
        }));
    test('J10 keys of an issuer that starts later are fetched with growing pauses', async () => {
        const port = await freePort();
        const gateway = await start({ url: `http://127.0.0.1:${port}` });
        let issuer;
        try {
            await until(() => gateway.log().split('cannot fetch the keys').length > 2, 10_000, 'a second attempt');
            issuer = await startIssuer(AUDIENCE, port);
            await until(async () => (await open(gateway, issuer.sign())).status === 200, 15_000, 'the keys');
        } finally {
            await gateway.stop();
            await issuer?.stop();
        }
    });
});

describe('J11 unknown keys', () => {
    test('J11 an unknown key causes one fetch a minute, and a bad signature does not cause any', () =>
        withIssuer({}, async ({ issuer, gateway }) => {
            await fetched(issuer, gateway);
            issuer.add('other', 'ES256');
            const forged = issuer.sign(issuer.claims(), { alg: 'ES256', kid: 'es' }, 'other');
            assert.equal((await open(gateway, forged)).status, 401);
            assert.equal(issuer.fetches['/jwks'], 1, 'a bad signature with a known kid does not cause a fetch');
            const unknown = Array.from({ length: 20 }, (_, i) => issuer.sign(issuer.claims(), { alg: 'ES256', kid: `no-${i}` }));
            const statuses = await Promise.all(unknown.map(async token => (await open(gateway, token)).status));
            assert.deepEqual(new Set(statuses), new Set([401]));
            assert.equal(issuer.fetches['/jwks'], 2);
        }));
    test('J11 a newly published key is accepted at once', () =>
        withIssuer({}, async ({ issuer, gateway }) => {
            await fetched(issuer, gateway);
            issuer.add('new', 'ES256');
            assert.equal((await open(gateway, issuer.sign(issuer.claims(), { alg: 'ES256', kid: 'new' }, 'new'))).status, 200);
        }));
});

describe('J12 callers that wait for keys', () => {
    test('J12 a caller waits three seconds and gets 503, and no other caller waits', () =>
        withIssuer({}, async ({ issuer, gateway }) => {
            const began = Date.now();
            let answered = false;
            const waiting = open(gateway, issuer.sign()).finally(() => (answered = true));
            assert.equal((await open(gateway)).status, 401, 'a request without a token does not wait for keys');
            assert.ok(!answered, 'the event loop is not blocked');
            const { status, headers, body } = await waiting;
            assert.equal(status, 503);
            assert.match(headers['retry-after'], /^\d+$/);
            assert.equal(JSON.parse(body).error.data.reason, 'auth_unavailable');
            assert.ok(Date.now() - began > 2_000 && Date.now() - began < 5_000, `${Date.now() - began} ms`);
        }, issuer => (issuer.serve = () => {})));
    test('J12 a token with an unknown key gets 503 while its issuer is slow', () =>
        withIssuer({}, async ({ issuer, gateway }) => {
            await fetched(issuer, gateway);
            issuer.add('rotated', 'ES256');
            issuer.serve = () => {};
            const { status, headers } = await open(gateway, issuer.sign(issuer.claims(), { alg: 'ES256', kid: 'rotated' }, 'rotated'));
            assert.deepEqual([status, /^\d+$/.test(headers['retry-after'])], [503, true]);
            assert.equal((await open(gateway, issuer.sign(issuer.claims({ jti: 'known' })))).status, 200, 'known keys stay in use');
        }));
    test('J12 a caller that waits is answered when the keys arrive', () => {
        let answer;
        return withIssuer({}, async ({ issuer, gateway }) => {
            await until(() => answer, 15_000, 'the request for the keys');
            const waiting = open(gateway, issuer.sign());
            await until(() => open(gateway).then(({ status }) => status === 401), 15_000, 'the gateway has read the previous request');
            const held = answer;
            issuer.serve = undefined;
            held.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify(issuer.metadata()));
            assert.equal((await waiting).status, 200);
        }, issuer => (issuer.serve = (_request, response) => (answer = response)));
    });
});

describe('J13 sources of keys', () => {
    const nobody = async ({ issuer, gateway }, why) => {
        await until(() => gateway.log().includes('cannot fetch the keys'), 10_000, 'the refusal');
        await gateway.line(why);
        assert.equal((await open(gateway, issuer.sign())).status, 503);
    };
    const metadata = more => issuer => {
        const usual = issuer.metadata;
        issuer.metadata = () => ({ ...usual(), ...more(issuer) });
    };
    test('J13 metadata of another issuer are refused', () =>
        withIssuer({}, peers => nobody(peers, /name another issuer/), metadata(({ url }) => ({ issuer: `${url}/` }))));
    for (const uri of ['http://198.51.100.1/jwks', 'http://localhost.example/jwks', 'http://127.0.0.1:80@198.51.100.1/jwks', 'file:///etc/passwd', '/jwks'])
        test(`J13 metadata that point to ${uri} are refused`, () =>
            withIssuer({}, peers => nobody(peers, /do not contain a jwks_uri that the gateway may fetch/), metadata(() => ({ jwks_uri: uri }))));
    test('N3 J13 metadata may not lead to another kind of network', () =>
        withIssuer({}, peers => nobody(peers, /connections to its address are not allowed/), metadata(() => ({ jwks_uri: 'https://10.255.255.1/jwks' }))));
    test('J13 a redirect of the key set is not followed', () =>
        withIssuer(({ jwksUri }) => ({ jwks_uri: jwksUri }), async peers => {
            await nobody(peers, /answered HTTP/);
            assert.equal(peers.issuer.fetches['/elsewhere'], undefined);
        }, issuer => (issuer.serve = (_request, response) => response.writeHead(302, { location: `${issuer.url}/elsewhere` }).end())));
    test('J13 a key set above 256 KiB is not read', () =>
        withIssuer(({ jwksUri }) => ({ jwks_uri: jwksUri }), peers => nobody(peers, /the document is larger than 262144 bytes/), issuer => {
            const usual = issuer.jwks;
            issuer.jwks = () => ({ ...usual(), padding: 'x'.repeat(256 << 10) });
        }));
    for (const [key, url] of Object.entries({
        issuer: 'http://issuer.example',
        jwks_uri: 'http://localhost.example/jwks',
        'jwks_uri ': 'http://127.0.0.1.example/jwks',
        'jwks_uri  ': 'ftp://127.0.0.1/jwks'
    }))
        test(`J13 the configuration cannot name ${url}`, () => {
            const provider = { type: 'jwt', issuer: 'https://issuer.example', audiences: [AUDIENCE], [key.trim()]: url };
            const config = join(folder.path, 'wrong.json');
            writeFileSync(config, JSON.stringify({ mcpServers: {}, policy: 'policy.json', auth: { providers: [provider] } }));
            assert.throws(() => execFileSync(binary, ['config', 'check', '--config', config], { stdio: 'pipe' }), ({ stderr }) =>
                stderr.includes(`/auth/providers/0/${key.trim()}: must be an https:// URL`));
        });
});

describe('J15 required scopes', () => {
    test('J15 P3 a token without a required scope gets 403 insufficient_scope that names all of them', () =>
        withIssuer({ required_scopes: ['mcp:use', 'mcp:admin'] }, async ({ issuer, gateway }) => {
            const { origin } = new URL(gateway.url);
            for (const scope of ['', 'mcp:use', 'mcp:admin', 'mcp:users mcp:admin']) {
                const { status, headers, body } = await open(gateway, issuer.sign(issuer.claims({ scope })));
                assert.equal(status, 403, scope);
                assert.equal(JSON.parse(body).error.data.reason, 'insufficient_scope');
                assert.equal(headers['www-authenticate'],
                    `Bearer resource_metadata="${origin}/.well-known/oauth-protected-resource/mcp", error="insufficient_scope", scope="mcp:use mcp:admin"`);
            }
            for (const claims of [{ scope: 'mcp:admin x mcp:use' }, { scope: 'mcp:use', scp: ['mcp:admin'] }])
                assert.equal((await open(gateway, issuer.sign(issuer.claims(claims)))).status, 200);
            assert.equal((await open(gateway, `${issuer.sign(issuer.claims({ scope: '' })).slice(0, -4)}AAAA`)).status, 401, 'an invalid token gets 401 and not 403');
            const { body } = await send(`${origin}/.well-known/oauth-protected-resource`, { method: 'GET' });
            assert.deepEqual(JSON.parse(body).scopes_supported, ['mcp:use', 'mcp:admin']);
            const refused = () =>
                execFileSync(binary, ['audit', '--config', join(gateway.state, 'postern.json')], { encoding: 'utf8', env: { ...process.env, POSTERN_STATE: gateway.state } })
                    .split('\n').filter(Boolean).map(line => JSON.parse(line)).filter(({ reason }) => reason === 'insufficient_scope');
            await until(() => refused().length >= 4, 5_000, 'the refusals in the audit log');
            assert.ok(refused().every(({ event, status }) => event === 'authentication' && status === 'denied'));
        }));
});

describe('J16 the tenant of a token', () => {
    test('J16 a mapped claim names the tenant, and a tenant that is not configured is refused', () =>
        withIssuer({ tenant_claim: '/org' }, async ({ issuer, gateway }) => {
            assert.equal((await open(gateway, issuer.sign(issuer.claims({ org: 'default' })))).status, 200);
            for (const claims of [{}, { org: 'nobody' }, { org: 7 }, { org: '' }, { tenant: 'default' }])
                assert.equal((await open(gateway, issuer.sign(issuer.claims(claims)))).status, 401, JSON.stringify(claims));
        }));
    test('J16 a claim that is not mapped does not name the tenant', () =>
        withIssuer({}, async ({ issuer, gateway }) => assert.equal((await open(gateway, issuer.sign(issuer.claims({ tenant: 'nobody', org: 'nobody' })))).status, 200)));
});

test('a caller that is evicted while the keys for its token are fetched is disconnected, and its request is forgotten', async () => {
    let answer;
    const issuer = await startIssuer(AUDIENCE);
    issuer.serve = (request, response) => {
        answer = () => {
            issuer.serve = undefined;
            response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify(issuer.jwks()));
        };
    };
    const gateway = await startGateway({
        auth: { providers: [{ type: 'jwt', issuer: issuer.url, jwks_uri: issuer.jwksUri, audiences: [AUDIENCE] }] },
        policy: join(folder.path, 'policy.json'),
        limits: { unauthenticated_connections: 2 },
        mcpServers: { demo: { command: demo } }
    });
    try {
        await until(() => answer, 15_000, 'the keys are asked for');
        const waiting = open(gateway, issuer.sign()).then(({ status }) => status, ({ code }) => code);
        const held = async () => JSON.parse((await send(`${gateway.origin}/healthz`, { method: 'GET' })).body).memory.held;
        await until(async () => (await held()) > 0, 15_000, 'its request waits');
        const others = Array.from({ length: 3 }, () => open(gateway, issuer.sign()).catch(() => {}));
        assert.equal(await waiting, 'ECONNRESET');
        answer();
        await Promise.all(others);
        await fetched(issuer, gateway);
    } finally {
        await gateway.stop();
        await issuer.stop();
    }
});
