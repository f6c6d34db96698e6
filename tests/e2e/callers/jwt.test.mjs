// The provider jwt with a real OpenID provider: discovery, roles from scopes, rotation of its keys, and tokens that must be refused.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { createHmac } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { after, before, describe, test } from 'node:test';

import { binary, node, peerPath, startGateway, temporaryDirectory, watch } from '../gateway.mjs';
import { policyRule } from '../policy.mjs';
import { initialize, post, reply, send } from '../raw.mjs';

const demo = join(dirname(binary), 'postern-demo');
const oidc = peerPath('oidc.mjs');
const AUDIENCE = 'https://gateway.example/mcp';

const policy = {
    version: 1,
    description: 'Roles that come from scopes',
    rules: [policyRule('users-echo', 'allow', { tenants: ['default'], subjects: ['role:user'], servers: ['demo'], names: ['echo'] })]
};

async function startIssuer(port, alg) {
    const child = spawn(node, [oidc, String(port), alg, AUDIENCE], { stdio: ['ignore', 'pipe', 'ignore'] });
    const peer = watch(child, 'stdout');
    peer.issuer = (await peer.line(/^(http:\S+)$/m, 20_000))[1];
    peer.stop = async () => {
        child.kill('SIGTERM');
        await peer.exited;
    };
    return peer;
}

async function tokenOf(issuer, scope = 'mcp:use', resource = AUDIENCE) {
    const body = new URLSearchParams({ grant_type: 'client_credentials', client_id: 'agent', client_secret: 'the-secret-of-the-agent', scope, resource });
    const answer = await fetch(`${issuer}/token`, { method: 'POST', body });
    assert.equal(answer.status, 200, await answer.clone().text());
    return (await answer.json()).access_token;
}

let folder, issuer, gateway;
before(async () => {
    folder = temporaryDirectory();
    writeFileSync(join(folder.path, 'policy.json'), JSON.stringify(policy));
    issuer = await startIssuer(0, 'ES256');
    gateway = await startGateway({
        limits: { max_header: '32KiB' }, // so that a giant token is read
        auth: { providers: [{ type: 'jwt', issuer: issuer.issuer, audiences: [AUDIENCE], role_map: { 'mcp:use': 'user' } }] },
        policy: join(folder.path, 'policy.json'),
        mcpServers: { demo: { command: demo } },
        profiles: { dev: {} }
    });
});
after(async () => {
    await gateway?.stop();
    await issuer?.stop();
    folder?.remove();
});

const open = token => send(gateway.url, { headers: post(token ? { authorization: `Bearer ${token}` } : {}), body: initialize('2025-11-25') });

async function call(token) {
    const opened = await open(token);
    assert.equal(opened.status, 200, opened.body);
    const headers = post({ authorization: `Bearer ${token}`, 'mcp-session-id': opened.headers['mcp-session-id'] });
    const body = { jsonrpc: '2.0', id: 2, method: 'tools/call', params: { name: 'demo__echo', arguments: { message: 'hi' } } };
    return reply(await send(gateway.url, { headers, body }));
}

describe('tokens of the issuer', () => {
    test('J14 a scope is mapped to a role that the policy decides by', async () => {
        assert.ok((await call(await tokenOf(issuer.issuer, 'mcp:use'))).result);
        assert.equal((await call(await tokenOf(issuer.issuer, 'mcp:admin'))).error.code, 403);
    });
    test('J2 a token for another audience is refused', async () =>
        assert.equal((await open(await tokenOf(issuer.issuer, 'mcp:use', 'https://elsewhere.example/mcp'))).status, 401));
});

test('P4 the protected resource metadata are served at both places and named in the challenge', async () => {
    const { origin } = new URL(gateway.url);
    for (const path of ['/.well-known/oauth-protected-resource', '/.well-known/oauth-protected-resource/mcp']) {
        const answer = await send(`${origin}${path}`, { method: 'GET' });
        assert.equal(answer.status, 200);
        assert.deepEqual(JSON.parse(answer.body), {
            resource: `${origin}/mcp`,
            authorization_servers: [issuer.issuer],
            bearer_methods_supported: ['header']
        });
    }
    const asked = { origin: 'https://app.example' };
    for (const method of ['GET', 'HEAD', 'OPTIONS']) {
        const answer = await send(`${origin}/.well-known/oauth-protected-resource/mcp`, { method, headers: asked });
        assert.deepEqual([answer.status, answer.headers['access-control-allow-origin']], [method === 'OPTIONS' ? 204 : 200, '*'], method);
        if (method === 'HEAD') assert.equal(answer.body, '');
    }
    assert.equal((await send(`${origin}/mcp`, { headers: post(asked), body: initialize('2025-11-25') })).status, 403, 'only the metadata');
    const challenge = `Bearer resource_metadata="${origin}/.well-known/oauth-protected-resource/mcp"`;
    assert.equal((await open()).headers['www-authenticate'], challenge);
    assert.equal((await open('a.b.c')).headers['www-authenticate'], `${challenge}, error="invalid_token"`);
});

test('P4 each profile is a separate protected resource, and metadata do not show which profiles exist', async () => {
    const { origin } = new URL(gateway.url);
    const metadata = `${origin}/.well-known/oauth-protected-resource/mcp`;
    for (const name of ['dev', 'nobodys']) {
        assert.equal(JSON.parse((await send(`${metadata}/${name}`, { method: 'GET' })).body).resource, `${origin}/mcp/${name}`);
        const refused = await send(`${gateway.url}/${name}`, { headers: post(), body: initialize('2025-11-25') });
        assert.equal(refused.status, 401);
        assert.equal(refused.headers['www-authenticate'], `Bearer resource_metadata="${metadata}/${name}"`);
    }
    for (const path of ['a/b', '..%2F', 'a%22', '%0d%0aX:1', 'x'.repeat(100)])
        assert.equal((await send(`${metadata}/${path}`, { method: 'GET' })).status, 404, path);
});

describe('tokens that are refused', () => {
    const encode = value => Buffer.from(typeof value === 'string' ? value : JSON.stringify(value)).toString('base64url');
    const claims = () => ({ iss: issuer.issuer, sub: 'eve', aud: AUDIENCE, exp: Math.floor(Date.now() / 1000) + 60, scope: 'mcp:use' });
    const cases = {
        'alg none': () => `${encode({ alg: 'none' })}.${encode(claims())}.`,
        'alg None': () => `${encode({ alg: 'None' })}.${encode(claims())}.`,
        'HS256 with a guessed key': () => {
            const text = `${encode({ alg: 'HS256' })}.${encode(claims())}`;
            return `${text}.${createHmac('sha256', 'key').update(text).digest('base64url')}`;
        },
        'a signature cut off': async () => (await tokenOf(issuer.issuer)).slice(0, -10),
        'a changed payload': async () => {
            const [head, , signature] = (await tokenOf(issuer.issuer)).split('.');
            return `${head}.${encode({ ...claims(), scope: 'mcp:use mcp:admin' })}.${signature}`;
        },
        'only two segments': async () => (await tokenOf(issuer.issuer)).split('.').slice(0, 2).join('.'),
        'a giant payload': () => `${encode({ alg: 'ES256' })}.${encode({ ...claims(), pad: 'x'.repeat(15_000) })}.AAAA`,
        'meaningless segments': () => 'a.b.c'
    };
    for (const [name, make] of Object.entries(cases))
        test(`J17 a token with ${name} is refused`, async () => assert.equal((await open(await make())).status, 401));
    test('a request without a token gets 401', async () => assert.equal((await open()).status, 401));
});

test('J11 a token with an unknown key makes the gateway fetch the keys', async () => {
    const { port } = new URL(issuer.issuer);
    await issuer.stop();
    issuer = await startIssuer(port, 'ES256');
    assert.ok((await call(await tokenOf(issuer.issuer))).result);
    // A storm of unknown keys causes no storm of fetches: the next unknown key within a minute is simply refused.
    await issuer.stop();
    issuer = await startIssuer(port, 'ES256');
    assert.equal((await open(await tokenOf(issuer.issuer))).status, 401);
});
