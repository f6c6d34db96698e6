// Identity assertions: a server receives a signed assertion about the caller in a header, checked with the public key, and never the caller's own token.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { generateKeyPairSync, verify } from 'node:crypto';
import { chmodSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { join } from 'node:path';
import { after, before, beforeEach, describe, test } from 'node:test';
import { text } from 'node:stream/consumers';

import { calculateJwkThumbprint, createRemoteJWKSet, jwtVerify } from '../../peers/jose.mjs';
import { binary, startGateway, temporaryDirectory, writeConfig } from '../gateway.mjs';
import { initialize, post, reply, send } from '../raw.mjs';

const PUBLIC_URL = 'https://gate.example';
const policy = {
    version: 1,
    description: 'Every authenticated caller may do everything in this test',
    rules: [{ id: 'all', effect: 'allow', description: 'every authenticated caller', tenants: ['*'], subjects: ['authenticated'], servers: ['*'], kinds: ['*'], names: ['*'] }]
};

let folder, server, seen;
const keys = { ES256: generateKeyPairSync('ec', { namedCurve: 'P-256' }), RS256: generateKeyPairSync('rsa', { modulusLength: 2048 }) };

before(async () => {
    folder = temporaryDirectory();
    writeFileSync(join(folder.path, 'policy.json'), JSON.stringify(policy));
    for (const [name, { privateKey }] of Object.entries(keys))
        writeFileSync(join(folder.path, `${name}.pem`), privateKey.export({ type: 'pkcs8', format: 'pem' }), { mode: 0o600 });
    server = await startServer();
});
after(() => {
    server?.close();
    server?.closeAllConnections();
    folder?.remove();
});
beforeEach(() => (seen = []));

/** A server with one tool that records every request. */
async function startServer() {
    const answers = {
        initialize: { protocolVersion: '2025-11-25', capabilities: { tools: {} }, serverInfo: { name: 'who', version: '1' } },
        'tools/list': { tools: [{ name: 'who', inputSchema: { type: 'object' } }] },
        'tools/call': { content: [{ type: 'text', text: 'you' }] }
    };
    let events; // the stream of HTTP+SSE
    const http = createServer(async (req, res) => {
        const body = await text(req);
        const message = body ? JSON.parse(body) : {};
        seen.push({ method: message.method ?? req.method, headers: req.headers });
        if (req.method === 'GET' && req.url === '/sse') {
            events = res.writeHead(200, { 'content-type': 'text/event-stream' });
            return events.write('event: endpoint\ndata: /messages\n\n');
        }
        if (req.method !== 'POST') return res.writeHead(405).end();
        if (req.url === '/messages') {
            res.writeHead(202).end();
            if (message.id !== undefined) events.write(`event: message\ndata: ${JSON.stringify({ jsonrpc: '2.0', id: message.id, result: answers[message.method] ?? {} })}\n\n`);
            return;
        }
        if (message.id === undefined) return res.writeHead(202).end();
        res.writeHead(200, { 'content-type': 'application/json' });
        res.end(JSON.stringify({ jsonrpc: '2.0', id: message.id, result: answers[message.method] ?? {} }));
    });
    await new Promise(done => http.listen(0, '127.0.0.1', done));
    http.url = `http://127.0.0.1:${http.address().port}/mcp`;
    return http;
}

const tokenFile = () => join(folder.path, 'tokens.json');
function token(subject, ...roles) {
    const made = spawnSync(binary, ['token', 'new', '--file', tokenFile(), '--subject', subject, ...roles.flatMap(role => ['--role', role])], { encoding: 'utf8' });
    assert.equal(made.status, 0, made.stderr);
    return made.stdout.trim();
}

const configure = (assertion, more = {}, top = {}) => ({
    public_url: PUBLIC_URL,
    auth: { providers: [{ type: 'bearer', tokens: tokenFile() }] },
    policy: join(folder.path, 'policy.json'),
    mcpServers: { tracker: { url: server.url, isolation: 'user', auth: { assertion: { key_file: join(folder.path, 'ES256.pem'), ...assertion } }, ...more } },
    ...top
});

/** Opens a session with a token and calls the tool; returns the JSON-RPC response. */
async function call(gateway, bearer) {
    const headers = { authorization: `Bearer ${bearer}` };
    const opened = await send(gateway.url, { headers: post(headers), body: initialize('2025-11-25') });
    assert.equal(opened.status, 200, opened.body);
    const session = { ...headers, 'mcp-session-id': opened.headers['mcp-session-id'] };
    const body = { jsonrpc: '2.0', id: 2, method: 'tools/call', params: { name: 'tracker__who', arguments: {} } };
    return reply(await send(gateway.url, { headers: post(session), body }));
}

/** The claims, after the signature and the header were checked. */
function claims(jwt, alg = 'ES256') {
    const [head, body, signature] = jwt.split('.');
    assert.equal(JSON.parse(Buffer.from(head, 'base64url')).alg, alg);
    const key = { key: keys[alg].publicKey, ...(alg === 'ES256' ? { dsaEncoding: 'ieee-p1363' } : {}) };
    assert.ok(verify('sha256', Buffer.from(`${head}.${body}`), key, Buffer.from(signature, 'base64url')), 'the signature is good');
    return JSON.parse(Buffer.from(body, 'base64url'));
}

describe('a server with identity assertions', () => {
    let gateway, ana, admin, bob, eve, fay;
    before(async () => {
        [ana, admin, bob, eve, fay] = [token('ana', 'dev'), token('ana', 'dev', 'admin'), token('bob'), token('eve', 'admin'), token('fay')];
        gateway = await startGateway(configure());
    });
    after(() => gateway?.stop());

    const calls = () => seen.filter(({ method }) => method === 'tools/call').map(({ headers }) => claims(headers['x-postern-identity']));

    test('a server gets a short-lived signed assertion with user, tenant and roles', async () => {
        assert.ok((await call(gateway, ana)).result);
        const [{ iat, exp, jti, ...rest }] = calls();
        assert.deepEqual(rest, { iss: PUBLIC_URL, aud: server.url, sub: 'bearer:ana', tenant: 'default', roles: ['dev'] });
        assert.equal(exp - iat, 60);
        assert.ok(Math.abs(iat - Date.now() / 1000) < 30 && jti.length >= 20);
    });
    test('a server gets the roles of each call on a connection that all sessions of a user share', async () => {
        for (const one of [ana, admin, ana]) assert.ok((await call(gateway, one)).result);
        assert.deepEqual(calls().map(({ roles }) => roles), [['dev'], ['dev', 'admin'], ['dev']]);
    });
    test('a server gets separate assertions for two users', async () => {
        await Promise.all([ana, bob, ana, bob].map(one => call(gateway, one)));
        assert.deepEqual(calls().map(({ sub }) => sub).sort(), ['bearer:ana', 'bearer:ana', 'bearer:bob', 'bearer:bob']);
    });
    test('every request to a server has an assertion, without roles outside of a call', async () => {
        await call(gateway, eve);
        assert.ok(seen.some(({ method }) => method === 'initialize') && seen.some(({ method }) => method === 'tools/list'));
        for (const { method, headers } of seen) {
            const { sub, roles } = claims(headers['x-postern-identity']);
            assert.deepEqual([sub, roles], ['bearer:eve', method === 'tools/call' ? ['admin'] : []], method);
        }
    });
    test('a server never gets the token of a caller', async () => {
        await call(gateway, fay);
        assert.ok(seen.length > 0);
        const secret = fay.split('_')[2];
        assert.ok(!JSON.stringify(seen).includes(secret));
        assert.ok(!gateway.log().includes(secret) && !gateway.log().includes(seen[0].headers['x-postern-identity']));
        assert.ok(seen.every(({ headers }) => headers.authorization === undefined));
    });
});

test('an assertion has the configured algorithm, key, header and audience beside a static token', async () => {
    const bearer = token('gus');
    const assertion = { key_file: join(folder.path, 'RS256.pem'), algorithm: 'RS256', key_id: 'k7', header: 'X-Caller', audience: 'tracker', lifetime: 10 };
    const gateway = await startGateway(configure(undefined, { isolation: 'session', auth: { mode: 'static', token: 'fixed', assertion } }));
    try {
        assert.ok((await call(gateway, bearer)).result);
        const { headers } = seen.find(({ method }) => method === 'tools/call');
        const { aud, iat, exp } = claims(headers['x-caller'], 'RS256');
        assert.deepEqual([aud, exp - iat, headers.authorization], ['tracker', 10, 'Bearer fixed']);
        assert.equal(JSON.parse(Buffer.from(headers['x-caller'].split('.')[0], 'base64url')).kid, 'k7');
    } finally {
        await gateway.stop();
    }
});

test('the stream and every message over HTTP+SSE carry an assertion', async () => {
    const bearer = token('ida', 'dev');
    const gateway = await startGateway(configure(undefined, { type: 'sse', url: server.url.replace('/mcp', '/sse') }));
    try {
        assert.ok((await call(gateway, bearer)).result);
        assert.deepEqual([seen[0].method, seen.at(-1).method], ['GET', 'tools/call']);
        for (const { method, headers } of seen) {
            const { sub, aud, roles } = claims(headers['x-postern-identity']);
            assert.deepEqual([sub, aud, roles], ['bearer:ida', server.url.replace('/mcp', '/sse'), method === 'tools/call' ? ['dev'] : []], method);
        }
    } finally {
        await gateway.stop();
    }
});

test('a server without a usable signing key is never contacted', async () => {
    const bearer = token('hal');
    const path = join(folder.path, 'open.pem');
    writeFileSync(path, keys.ES256.privateKey.export({ type: 'pkcs8', format: 'pem' }));
    chmodSync(path, 0o644);
    const gateway = await startGateway(configure({ key_file: path }));
    try {
        assert.ok((await call(gateway, bearer)).error);
        assert.deepEqual(seen, []);
        await gateway.line(/cannot sign the identity assertion/);
    } finally {
        await gateway.stop();
    }
});

describe('mistakes in the configuration of assertions', () => {
    for (const [name, config, message] of [
        ['for a shared connection', () => configure(undefined, { isolation: 'shared' }), /"isolation"/],
        ['without public_url', () => configure(undefined, {}, { public_url: undefined }), /public_url/],
        ['without authentication of callers', () => configure(undefined, {}, { auth: undefined, policy: undefined }), /authenticates callers/],
        ['in the header of the token', () => configure({ header: 'Authorization' }), /header/],
        ['in a header that is already set', () => configure(undefined, { headers: { 'x-postern-identity': 'me' } }), /reserved for the assertion/],
        ['with a shared secret', () => configure({ algorithm: 'HS256' }), /algorithm/],
        ['for a stdio server', () => configure(undefined, { url: undefined, command: 'cat' }), /"url"/]
    ])
        test(`an assertion ${name} is refused`, () => {
            const own = temporaryDirectory();
            try {
                const path = writeConfig(own.path, config());
                const { status, stderr } = spawnSync(binary, ['config', 'check', '--config', path], { encoding: 'utf8' });
                assert.notEqual(status, 0);
                assert.match(stderr, message);
            } finally {
                own.remove();
            }
        });
});

describe('published keys of assertions', () => {
    const publicPem = name => {
        const path = join(folder.path, `${name}.pub`);
        writeFileSync(path, keys[name].publicKey.export({ type: 'spki', format: 'pem' }));
        return path;
    };
    const keysOf = async gateway => {
        const answer = await send(`${gateway.origin}/.well-known/jwks.json`, { method: 'GET' });
        assert.equal(answer.status, 200, answer.body);
        return { ...answer, keys: JSON.parse(answer.body).keys };
    };
    /** Verifies an assertion as a server would, knowing only the address of the keys. */
    const verified = async gateway => {
        const remote = createRemoteJWKSet(new URL(`${gateway.origin}/.well-known/jwks.json`));
        const { headers } = seen.findLast(({ method }) => method === 'tools/call');
        return jwtVerify(headers['x-postern-identity'], remote, { issuer: PUBLIC_URL, audience: server.url });
    };

    test('a server that knows only the URL of the keys can verify an assertion', async () => {
        const bearer = token('kai', 'dev');
        const gateway = await startGateway(configure());
        try {
            assert.ok((await call(gateway, bearer)).result);
            const { payload, protectedHeader } = await verified(gateway);
            assert.equal(payload.sub, 'bearer:kai');
            const { headers, keys: published } = await keysOf(gateway);
            const { kty, crv, x, y } = keys.ES256.publicKey.export({ format: 'jwk' });
            const kid = await calculateJwkThumbprint({ kty, crv, x, y });
            assert.deepEqual(published, [{ crv, kty, x, y, kid, use: 'sig', alg: 'ES256' }]);
            assert.equal(protectedHeader.kid, kid);
            assert.equal(headers['content-type'], 'application/jwk-set+json');
            assert.equal(headers['cache-control'], 'public, max-age=300');
            assert.equal(headers['access-control-allow-origin'], '*');
        } finally {
            await gateway.stop();
        }
    });
    test('old and new keys are published during a rotation, and a key of two servers once', async () => {
        const bearer = token('lea');
        const rsa = { key_file: join(folder.path, 'RS256.pem'), algorithm: 'RS256', key_id: 'new' };
        const old = { old: publicPem('ES256'), next: join(folder.path, 'RS256.pem') };
        const config = configure({ ...rsa, other_keys: old });
        config.mcpServers.other = { ...config.mcpServers.tracker, auth: { assertion: rsa } };
        const gateway = await startGateway(config);
        try {
            assert.ok((await call(gateway, bearer)).result);
            assert.equal((await verified(gateway)).protectedHeader.kid, 'new');
            const { keys: published, body } = await keysOf(gateway);
            assert.deepEqual(published.map(({ kid, kty, alg }) => [kid, kty, alg]), [['new', 'RSA', 'RS256'], ['old', 'EC', 'ES256'], ['next', 'RSA', undefined]]);
            for (const secret of ['"d"', '"p"', '"q"', 'PRIVATE']) assert.ok(!body.includes(secret));
        } finally {
            await gateway.stop();
        }
    });
    test('a second key with the id of another is not used', async () => {
        const bearer = token('moe');
        const config = configure({ key_id: 'k' });
        config.mcpServers.other = { ...config.mcpServers.tracker, auth: { assertion: { key_file: join(folder.path, 'RS256.pem'), algorithm: 'RS256', key_id: 'k' } } };
        const gateway = await startGateway(config);
        try {
            assert.ok((await call(gateway, bearer)).result);
            assert.ok(seen.every(({ headers }) => JSON.parse(Buffer.from(headers['x-postern-identity'].split('.')[0], 'base64url')).alg === 'ES256'));
            await gateway.line(/another key already has the key_id/, 5_000);
        } finally {
            await gateway.stop();
        }
    });
    test('keys are not published without assertions and cannot be written', async () => {
        const none = await startGateway({ mcpServers: {} });
        try {
            assert.equal((await send(`${none.origin}/.well-known/jwks.json`, { method: 'GET' })).status, 404);
        } finally {
            await none.stop();
        }
        const gateway = await startGateway(configure());
        try {
            assert.equal((await send(`${gateway.origin}/.well-known/jwks.json`, { method: 'HEAD' })).status, 200);
            assert.equal((await send(`${gateway.origin}/.well-known/jwks.json`, { headers: post(), body: '{}' })).status, 404);
        } finally {
            await gateway.stop();
        }
    });
});
