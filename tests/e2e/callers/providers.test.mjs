// Lists of providers: one for each listener, several issuers in one list, their names, and rules that do not depend on the order.
import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { mkdirSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { after, before, describe, test } from 'node:test';

import { binary, startGateway, temporaryDirectory, until, watch, writeConfig } from '../gateway.mjs';
import { startIssuer } from '../issuer.mjs';
import { initialize, post, reply, send } from '../raw.mjs';

const demo = join(dirname(binary), 'postern-demo');
const AUDIENCE = 'https://gateway.example/mcp';
const WAIT_MS = 15_000;

const allow = (id, subjects) => ({
    id,
    effect: 'allow',
    description: `the rule ${id} of this test`,
    tenants: ['default'],
    subjects,
    servers: ['demo'],
    kinds: ['tool'],
    names: ['echo']
});

let folder;
before(() => (folder = temporaryDirectory()));
after(() => folder?.remove());

function policyOf(name, ...rules) {
    const path = join(folder.path, `${name}.json`);
    writeFileSync(path, JSON.stringify({ version: 1, description: 'Providers in this test', rules }));
    return path;
}

const token = (...args) => execFileSync(binary, ['token', ...args, '--file', join(folder.path, 'tokens.json')], { encoding: 'utf8' }).trim();
const bearer = secret => (secret ? { authorization: `Bearer ${secret}` } : {});
const open = (url, secret, more = {}) => send(url, { headers: post({ ...bearer(secret), ...more }), body: initialize('2025-11-25') });
const echo = { jsonrpc: '2.0', id: 2, method: 'tools/call', params: { name: 'demo__echo', arguments: { message: 'hi' } } };
const inSession = (url, secret, id) => send(url, { headers: post({ ...bearer(secret), 'mcp-session-id': id }), body: echo });

async function call(url, secret) {
    const opened = await open(url, secret);
    assert.equal(opened.status, 200, opened.body);
    return reply(await inSession(url, secret, opened.headers['mcp-session-id']));
}

describe('P1 a list of providers for each listener', () => {
    let issuer, gateway, urls, ana;
    before(async () => {
        ana = token('new', '--subject', 'ana');
        issuer = await startIssuer(AUDIENCE);
        gateway = await startGateway({
            auth: { providers: [{ type: 'jwt', issuer: issuer.url, audiences: [AUDIENCE] }] },
            listen: [
                { address: '127.0.0.1:0' },
                { address: '127.0.0.1:0', auth: { providers: [{ type: 'none' }] } },
                { address: '127.0.0.1:0', auth: { providers: [{ type: 'bearer', tokens: join(folder.path, 'tokens.json') }] } }
            ],
            policy: policyOf('listeners', allow('echo', ['user:jwt:ana', 'user:bearer:ana', 'anonymous'])),
            mcpServers: { demo: { command: demo } }
        });
        const all = () => [...gateway.log().matchAll(/listening\b.*\burl=(\S+)/g)].map(([, url]) => url);
        urls = await until(() => all().length === 3 && all(), WAIT_MS, 'three listeners');
    });
    after(async () => {
        await gateway?.stop();
        await issuer?.stop();
    });

    test('P1 each listener accepts only the credentials of its own providers', async () => {
        const jwt = issuer.sign();
        const statuses = async secret => Promise.all(urls.map(async url => (await open(url, secret)).status));
        assert.deepEqual(await statuses(), [401, 200, 401]);
        assert.deepEqual(await statuses(jwt), [200, 401, 401]);
        assert.deepEqual(await statuses(ana), [401, 401, 200]);
        for (const [url, secret] of [[urls[0], jwt], [urls[1]], [urls[2], ana]]) assert.ok((await call(url, secret)).result, url);
    });
    test('P3 P4 each listener has its own challenge and metadata', async () => {
        const { origin } = new URL(urls[0]);
        assert.equal((await open(urls[0])).headers['www-authenticate'], `Bearer resource_metadata="${origin}/.well-known/oauth-protected-resource/mcp"`);
        assert.equal((await open(urls[2])).headers['www-authenticate'], 'Bearer');
        const statuses = urls.map(async url => (await send(`${new URL(url).origin}/.well-known/oauth-protected-resource`, { method: 'GET' })).status);
        assert.deepEqual(await Promise.all(statuses), [200, 404, 404]);
    });
    test('P2 a session belongs to the identity that opened it on any listener', async () => {
        const id = (await open(urls[2], ana)).headers['mcp-session-id'];
        assert.equal((await inSession(urls[2], ana, id)).status, 200);
        assert.equal((await inSession(urls[0], issuer.sign(), id)).status, 404, 'the same subject of another provider');
        assert.equal((await inSession(urls[1], undefined, id)).status, 404);
        assert.equal((await inSession(urls[0], ana, id)).status, 401, 'a good token at another listener');
    });
    test('P10 a revoked token ends only the sessions of its listener', async () => {
        const bob = token('new', '--subject', 'bob');
        await until(async () => (await open(urls[2], bob)).status === 200, WAIT_MS, 'the new token');
        const id = (await open(urls[2], bob)).headers['mcp-session-id'];
        const other = (await open(urls[0], issuer.sign())).headers['mcp-session-id'];
        token('revoke', bob.split('_')[1]);
        await until(() => gateway.log().includes('session ended: its credential is no longer valid'), WAIT_MS, 'the end of the session');
        assert.equal((await inSession(urls[2], bob, id)).status, 401);
        assert.equal((await inSession(urls[0], issuer.sign(), other)).status, 200);
    });
});

describe('J1 several issuers', () => {
    let corp, partner, gateway;
    before(async () => {
        corp = await startIssuer(AUDIENCE);
        partner = await startIssuer(AUDIENCE);
        gateway = await startGateway({
            auth: {
                providers: [
                    { type: 'jwt', name: 'corp', issuer: corp.url, audiences: [AUDIENCE], required_scopes: ['mcp:use'] },
                    { type: 'jwt', name: 'partner', issuer: partner.url, audiences: [AUDIENCE], required_scopes: ['mcp:use', 'mcp:partner'] }
                ]
            },
            policy: policyOf('issuers', allow('echo', ['user:corp:ana'])),
            mcpServers: { demo: { command: demo } }
        });
    });
    after(async () => {
        await gateway?.stop();
        await corp?.stop();
        await partner?.stop();
    });
    const ofPartner = more => partner.sign(partner.claims({ scope: 'mcp:use mcp:partner', ...more }));

    test('J5 P2 equal subjects of two issuers are different identities', async () => {
        assert.ok((await call(gateway.url, corp.sign())).result);
        assert.equal((await call(gateway.url, ofPartner())).error.code, 403);
        const id = (await open(gateway.url, corp.sign())).headers['mcp-session-id'];
        assert.equal((await inSession(gateway.url, ofPartner(), id)).status, 404);
    });
    test('J5 a token is verified only with the keys of the issuer that it names', async () => {
        const forged = issuer => issuer.sign({ ...partner.claims({ scope: 'mcp:use mcp:partner' }), iss: issuer === corp ? partner.url : corp.url });
        for (const issuer of [corp, partner]) assert.equal((await open(gateway.url, forged(issuer))).status, 401);
        for (const iss of ['https://nobody.example', '', 7, undefined]) assert.equal((await open(gateway.url, corp.sign(corp.claims({ iss })))).status, 401, String(iss));
    });
    test('J11 an unknown key is fetched only from its own issuer', async () => {
        const before = { corp: corp.fetches['/jwks'], partner: partner.fetches['/jwks'] };
        assert.equal((await open(gateway.url, partner.sign(partner.claims(), { alg: 'ES256', kid: 'new' }))).status, 401);
        assert.deepEqual({ corp: corp.fetches['/jwks'], partner: partner.fetches['/jwks'] }, { ...before, partner: before.partner + 1 });
        corp.add('rotated', 'ES256');
        assert.equal((await open(gateway.url, corp.sign(corp.claims(), { alg: 'ES256', kid: 'rotated' }, 'rotated'))).status, 200, 'the fetch of this issuer is still available');
    });
    test('P4 J15 the metadata name all issuers and each scope once', async () => {
        const { body } = await send(`${gateway.origin}/.well-known/oauth-protected-resource`, { method: 'GET' });
        const { authorization_servers: servers, scopes_supported: scopes } = JSON.parse(body);
        assert.deepEqual({ servers, scopes }, { servers: [corp.url, partner.url], scopes: ['mcp:use', 'mcp:partner'] });
    });
});

describe('P13 P14 identity headers beside a token, with either provider first', () => {
    let gateway, ana;
    before(async () => {
        ana = token('new', '--subject', 'order');
        gateway = await startGateway({
            auth: {
                providers: [
                    { type: 'bearer', tokens: join(folder.path, 'tokens.json') },
                    { type: 'forwarded-user', trusted_proxies: ['10.9.8.7'], secret: 'a-secret-of-at-least-thirty-two-characters' }
                ]
            },
            policy: policyOf('order', allow('echo', ['authenticated'])),
            mcpServers: { demo: { command: demo } }
        });
    });
    after(() => gateway?.stop());

    for (const name of ['x-forwarded-user', 'x_forwarded_user', 'x-forwarded-groups'])
        test(`P14 ${name} of an untrusted peer with a good token gets 400`, async () => assert.equal((await open(gateway.url, ana, { [name]: 'eve' })).status, 400));
    test('P14 a request with the token alone gets 200', async () => assert.equal((await open(gateway.url, ana)).status, 200));
});

describe('standard input with a token of an issuer', () => {
    let issuer, config;
    before(async () => {
        issuer = await startIssuer(AUDIENCE);
        const state = join(folder.path, 'stdio');
        mkdirSync(state);
        config = writeConfig(state, {
            auth: { providers: [{ type: 'jwt', issuer: issuer.url, audiences: [AUDIENCE] }] },
            audit: { path: join(state, 'audit.db') },
            policy: policyOf('stdio', allow('echo', ['user:jwt:ana'])),
            mcpServers: { demo: { command: demo } }
        });
    });
    after(() => issuer?.stop());

    const serve = secret => {
        const env = { ...process.env, POSTERN_TOKEN: secret };
        const child = spawn(binary, ['serve', '--stdio', '--config', config], { stdio: ['pipe', 'pipe', 'pipe'], env });
        return { out: watch(child, 'stdout'), err: watch(child, 'stderr'), child };
    };

    test('J12 a caller on standard input is authenticated when the keys arrive', async () => {
        const { out, err, child } = serve(issuer.sign());
        child.stdin.write(`${JSON.stringify(initialize('2025-11-25'))}\n`);
        await out.line(/"protocolVersion":"2025-11-25"/, WAIT_MS);
        child.stdin.end();
        assert.deepEqual(await out.exited, { code: 0, signal: null }, err.log());
    });
    test('J5 a rejected token ends the stdio session with an error', async () => {
        const { out, err } = serve(issuer.sign(issuer.claims({ aud: 'https://elsewhere.example' })));
        assert.deepEqual(await out.exited, { code: 4, signal: null }, err.log());
        assert.match(err.log(), /caller on standard input refused/);
    });
    test('J12 a stdio session that ends before authentication leaves no processes', async () => {
        const asked = () => issuer.fetches['/.well-known/openid-configuration'] ?? 0, before = asked();
        issuer.serve = () => {};
        const { out, err, child } = serve(issuer.sign());
        await until(() => asked() > before, WAIT_MS, 'the request for the keys');
        child.kill('SIGTERM');
        assert.deepEqual(await out.exited, { code: 0, signal: null }, err.log());
    });
});
