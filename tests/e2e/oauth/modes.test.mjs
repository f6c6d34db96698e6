// The modes without user interaction, through the running gateway, at real OpenID providers: the requests, renewal before expiry and after a refusal,
// one request for many calls, errors without a token, more scope.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { generateKeyPairSync } from 'node:crypto';
import { once } from 'node:events';
import { rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, afterEach, before, beforeEach, describe, test } from 'node:test';

import { startExchange } from '../../peers/exchange.mjs';
import { binary, startGateway, temporaryDirectory, until, writeConfig } from '../gateway.mjs';
import { Session } from '../raw.mjs';

const AUDIENCE = 'https://gateway.example/mcp';
const WAIT_MS = 60_000;
const GRANT = 'urn:ietf:params:oauth:grant-type:';

let folder, peer, gateway;
before(async () => {
    folder = temporaryDirectory();
    const { publicKey, privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
    writeFileSync(join(folder.path, 'key.pem'), privateKey.export({ type: 'pkcs8', format: 'pem' }), { mode: 0o600 });
    peer = await startExchange(AUDIENCE, { ...publicKey.export({ format: 'jwk' }), kid: 'k1' });
});
after(() => {
    peer?.stop();
    folder?.remove();
});
beforeEach(() => peer.reset({ callerLifetime: 120, lifetime: 120, told: undefined, refuse: {}, refused: new Set(), needs: {}, servers: undefined, down: false, lies: {}, strict: false, given: 'mcp:use mcp:write mcp:admin' }));
afterEach(async () => {
    const log = gateway?.log() ?? '';
    await gateway?.stop();
    gateway = undefined;
    assert.deepEqual(peer.leaked(log), [], 'no token is in the log');
});

const file = () => join(folder.path, 'subject');
const secret = { client_id: 'gateway', client_secret: 'the secret of gateway' };
/** Each mode: the token in the subject file, `auth` and URL of the server, the subject of the issued token, and the grant types needed for one token. */
const modes = {
    'client_credentials with a secret': {
        auth: () => ({ mode: 'client_credentials', ...secret }), url: () => `${peer.origin}/mcp`, sub: 'gateway', grants: ['client_credentials']
    },
    'client_credentials with a key': {
        auth: () => ({ mode: 'client_credentials', client_id: 'gateway-key', private_key_file: join(folder.path, 'key.pem'), signing_algorithm: 'ES256', key_id: 'k1' }),
        url: () => `${peer.origin}/mcp`, sub: 'gateway-key', grants: ['client_credentials']
    },
    workload: {
        subject: () => peer.sign(peer.keys.workload, { iss: 'https://workloads.example', sub: 'job-7', aud: peer.as }, 'JWT', 600),
        auth: () => ({ mode: 'workload', client_id: 'workload', subject_token_file: file() }), url: () => `${peer.origin}/mcp`, sub: 'job-7', grants: [`${GRANT}jwt-bearer`]
    },
    token_exchange: {
        subject: () => peer.caller('ana'),
        auth: () => ({ mode: 'token_exchange', issuer: peer.idp, ...secret, subject_token_file: file(), subject_token_type: 'access_token' }),
        url: () => `${peer.origin}/exchange/mcp`, sub: 'ana', grants: [`${GRANT}token-exchange`]
    },
    enterprise: {
        subject: () => peer.caller('ana'),
        auth: () => ({ mode: 'enterprise', ...secret, subject_token_file: file(), idp: { issuer: peer.idp, ...secret } }),
        url: () => `${peer.origin}/mcp`, sub: 'ana', grants: [`${GRANT}token-exchange`, `${GRANT}jwt-bearer`]
    }
};

async function start(mode, more = {}, server = {}, first = () => {}) {
    if (mode.subject) writeFileSync(file(), await mode.subject());
    first();
    gateway = await startGateway({ mcpServers: { server: { url: mode.url(), auth: { ...mode.auth(), ...more }, ...server } } });
    return Session.open(gateway.url);
}
const said = ({ result, error }) => error ?? result.content[0].text;
const calls = () => peer.seen.filter(({ method }) => method === 'tools/call');
const kinds = () => peer.asked.map(({ grant_type }) => grant_type);

for (const [name, mode] of Object.entries(modes))
    describe(`mode ${name}`, () => {
        test('F3 50 concurrent first calls request one token for the resource and all succeed', async () => {
            const session = await start(mode);
            const answers = await Promise.all(Array.from({ length: 50 }, () => session.call('server__whoami')));
            assert.deepEqual(new Set(answers.map(said)), new Set([mode.sub]));
            assert.deepEqual(kinds(), mode.grants);
            for (const { resource } of peer.asked) assert.equal(resource, mode.url());
            assert.equal(new Set(calls().map(({ who }) => who.jti)).size, 1);
        });
        test('F2 F3 a token that the server rejects is replaced once for 50 calls, each resent only with the new one', async () => {
            const session = await start(mode);
            assert.equal(said(await session.call('server__whoami')), mode.sub);
            peer.state.refused.add(calls()[0].who.jti);
            const answers = await Promise.all(Array.from({ length: 50 }, () => session.call('server__whoami')));
            assert.deepEqual(new Set(answers.map(said)), new Set([mode.sub]));
            assert.deepEqual(kinds(), [...mode.grants, ...mode.grants]);
            assert.equal(calls().filter(({ who }) => who).length, 51);
            assert.ok(calls().length <= 101);
        });
        test('F1 a token is renewed before it expires and calls continue', async () => {
            peer.state.told = 6; // tokens are valid for longer, so that none expires while a busy machine renews it
            const session = await start(mode);
            assert.equal(said(await session.call('server__whoami')), mode.sub);
            const [{ who: first }] = calls();
            await until(() => kinds().length >= 2 * mode.grants.length, WAIT_MS, 'another token');
            assert.equal(calls().length, 1, 'the renewal did not need a call');
            await until(async () => said(await session.call('server__whoami')) === mode.sub && calls().at(-1).who.jti !== first.jti, WAIT_MS, 'the next token in use');
            assert.ok(peer.seen.every(({ who, token }) => who || !token), 'no token was refused');
        });
        test('F12 a provider that is down is logged, asked again after a pause, and not needed once there is a token', async () => {
            const session = await start(mode, {}, {}, () => (peer.state.down = true));
            const { error } = await session.call('server__whoami');
            assert.deepEqual([error.code, error.data.reason], [-32002, 'server_unavailable']);
            await gateway.line(/cannot get a token.*HTTP 503/, 5_000);
            peer.state.down = false;
            await until(async () => said(await session.call('server__whoami')) === mode.sub, 15_000, 'an answer');
            peer.state.down = true;
            assert.equal(said(await session.call('server__whoami')), mode.sub);
        });
        test('N10 the reason of a refusal is logged and not shown to callers', async () => {
            const session = await start(mode, mode.auth().client_secret ? { client_secret: 'a wrong secret' } : mode.sub === 'job-7' ? {} : { key_id: 'k9' });
            const kept = said(await session.call('server__whoami'));
            if (mode.sub === 'job-7') {  // only the token can be invalid
                writeFileSync(file(), await peer.sign(peer.keys.idp, { iss: 'https://others.example', sub: 'job-7', aud: peer.as }, 'JWT', 600));
                peer.state.refused.add(calls()[0].who.jti);
            }
            const error = mode.sub === 'job-7' ? said(await session.call('server__whoami')) : kept;
            assert.equal(error.code, -32002);
            assert.doesNotMatch(JSON.stringify(error), /invalid_/);
            await gateway.line(/cannot get a token.*invalid_(client|grant)/, 5_000);
            assert.doesNotMatch(gateway.log(), /a wrong secret/);
        });
        if (mode.subject)
            test('a missing token file is logged and read again when it is back', async () => {
                const session = await start(mode);
                assert.equal(said(await session.call('server__whoami')), mode.sub);
                rmSync(file());
                peer.state.refused.add(calls()[0].who.jti);
                const { error } = await session.call('server__whoami');
                assert.deepEqual([error.code, error.data.reason], [-32002, 'server_unavailable']);
                await gateway.line(/cannot get a token.*subject: No such file/, 5_000);
                writeFileSync(file(), await mode.subject());
                await until(async () => said(await session.call('server__whoami')) === mode.sub, 15_000, 'an answer');
            });
        test('A9 more scope is requested once, together with the earlier scope', async () => {
            peer.state.needs = { write: 'mcp:write' };
            const session = await start(mode);
            assert.equal(said(await session.call('server__whoami')), mode.sub);
            const answers = await Promise.all(Array.from({ length: 10 }, () => session.call('server__write')));
            assert.deepEqual(new Set(answers.map(said)), new Set([mode.sub]));
            assert.deepEqual(kinds(), [...mode.grants, ...mode.grants]);
            assert.deepEqual(peer.asked.map(({ scope }) => scope), [...mode.grants.map(() => 'mcp:use'), ...mode.grants.map(() => 'mcp:use mcp:write')]);
            assert.equal(said(await session.call('server__whoami')), mode.sub);
        });
        test('A9 scope that is not granted is requested once, and other calls continue', async () => {
            peer.state.needs = { admin: 'mcp:nothing' };
            const session = await start(mode);
            assert.equal(said(await session.call('server__whoami')), mode.sub);
            for (let i = 0; i < 3; i++) {
                const { error } = await session.call('server__admin');
                assert.deepEqual([error.code, error.data.reason], [-32003, 'authorization_required']);
            }
            assert.equal(said(await session.call('server__whoami')), mode.sub);
            assert.ok(kinds().length <= 2 * mode.grants.length, kinds().join());
        });
        if (mode.subject)
            test('A9 a refused scope does not affect the existing token, which is renewed without it', async () => {
                Object.assign(peer.state, { needs: { admin: 'mcp:nothing' }, strict: true });
                const session = await start(mode);
                assert.equal(said(await session.call('server__whoami')), mode.sub);
                assert.equal(said(await session.call('server__admin')).code, -32003);
                await gateway.line(/cannot get a token.*invalid_scope: more than you may have/, 5_000);
                assert.equal(said(await session.call('server__whoami')), mode.sub);
                await until(() => peer.asked.at(-1).scope === 'mcp:use', 10_000, 'another token');
                assert.equal(said(await session.call('server__whoami')), mode.sub);
            });
        test('A9 only a configured scope is requested', async () => {
            peer.state.needs = { write: 'mcp:write' };
            const session = await start(mode, { scope: 'mcp:use' });
            const { error } = await session.call('server__write');
            assert.equal(error.code, -32003);
            assert.deepEqual(kinds(), mode.grants);
            await gateway.line(/requires the scope \\?"mcp:write/, 5_000);
            assert.equal(said(await session.call('server__whoami')), mode.sub);
        });
        if (name !== 'token_exchange')  // mode token_exchange always has a configured issuer
            test('D16 a server that moves to another authorization server does not cause secrets to be sent there', async () => {
                const session = await start(mode);
                assert.equal(said(await session.call('server__whoami')), mode.sub);
                peer.state.servers = [peer.idp];
                peer.state.refused.add(calls()[0].who.jti);
                peer.asked.length = 0;
                assert.equal(said(await session.call('server__whoami')).code, -32002);
                assert.deepEqual(peer.asked, []);
                await gateway.line(/has moved from the authorization server/, 5_000);
                peer.state.servers = undefined;
                await until(async () => said(await session.call('server__whoami')) === mode.sub, 15_000, 'the first authorization server is used again');
            });
        test('D16 a server that names another authorization server does not cause secrets to be sent there', async () => {
            const [own, other] = mode.url().includes('exchange') ? ['idp', 'as'] : ['as', 'idp'];
            peer.state.servers = [peer[other]];
            peer.state.lies[other] = { issuer: peer[own], token_endpoint: `${peer[other]}/token` };
            const session = await start(mode, { issuer: peer[own] });
            const { error } = await session.call('server__whoami');
            assert.equal(error.code, -32002);
            assert.deepEqual(peer.asked, []);
            await gateway.line(/does not accept tokens of/, 5_000);
        });
    });

describe('the identity provider of mode enterprise', () => {
    test('D8 an identity provider with only OpenID metadata is found', async () => {
        peer.state.lies.idp = { status: 404 };
        assert.equal(said(await (await start(modes.enterprise)).call('server__whoami')), 'ana');
        assert.deepEqual(kinds(), modes.enterprise.grants);
    });
    for (const [name, lie, line] of [
        ['D9 an identity provider with another issuer', () => ({ issuer: `${peer.idp}/x`, token_endpoint: `${peer.idp}/token` }), /belong to another issuer/],
        ['N1 an identity provider without TLS', () => ({ issuer: peer.idp, token_endpoint: 'http://192.0.2.1/token' }), /token_endpoint/],
        ['an identity provider without metadata', () => ({ status: 500 }), /cannot get a token.*HTTP 500/]
    ])
        test(`${name} does not get a token`, async () => {
            const session = await start(modes.enterprise, {}, {}, () => (peer.state.lies.idp = lie()));
            assert.equal(said(await session.call('server__whoami')).code, -32002);
            assert.deepEqual(peer.asked, []);
            await gateway.line(line, 5_000);
        });
    test('an identity provider with a configured endpoint does not need metadata', async () => {
        peer.state.lies.idp = { status: 500 };
        const idp = { token_endpoint: `${peer.idp}/token`, ...secret };
        assert.equal(said(await (await start(modes.enterprise, { idp })).call('server__whoami')), 'ana');
    });
});

describe('A9 scope beyond a grant', () => {
    /** A token as a user would have obtained it, with the scope that every call needs. */
    async function given() {
        const body = new URLSearchParams({ grant_type: 'client_credentials', resource: `${peer.origin}/mcp`, scope: 'mcp:use' });
        const authorization = `Basic ${Buffer.from(`gateway:${encodeURIComponent(secret.client_secret)}`).toString('base64')}`;
        const answer = await fetch(`${peer.as}/token`, { method: 'POST', body, headers: { authorization } });
        assert.equal(answer.status, 200, await answer.clone().text());
        return (await answer.json()).access_token;
    }
    async function expectRefused(session, line) {
        const { error } = await session.call('server__write');
        assert.deepEqual([error.code, error.data.reason], [-32003, 'authorization_required']);
        await gateway.line(line, 5_000);
        assert.equal(said(await session.call('server__whoami')), 'gateway', 'other calls continue');
        assert.equal(calls().filter(({ who }) => who).length, 2, 'no call was repeated');
    }
    test('A9 a call in mode static that needs more scope fails and the log says to change the configuration', async () => {
        const token = await given();
        peer.state.needs = { write: 'mcp:write' };
        gateway = await startGateway({ mcpServers: { server: { url: `${peer.origin}/mcp`, auth: { mode: 'static', token } } } });
        await expectRefused(await Session.open(gateway.url), /requires a token with more scope than the configured one/);
    });
    test('A9 a call in mode shared that needs more scope fails and the log names the login command', async () => {
        const config = { mcpServers: { server: { url: `${peer.origin}/mcp`, auth: { mode: 'shared' } } } };
        const own = temporaryDirectory();
        const args = ['login', 'server', '--token-stdin', '--config', writeConfig(own.path, config)];
        const login = spawn(binary, args, { stdio: ['pipe', 'ignore', 'inherit'], env: { ...process.env, POSTERN_STATE: own.path } });
        login.stdin.end(`${await given()}\n`);
        assert.deepEqual(await once(login, 'exit'), [0, null]);
        peer.state.needs = { write: 'mcp:write' };
        try {
            gateway = await startGateway(config, [], { variables: { POSTERN_STATE: own.path } });
            await expectRefused(await Session.open(gateway.url), /needs more scope: run 'postern login server'/);
        } finally {
            own.remove();
        }
    });
});
