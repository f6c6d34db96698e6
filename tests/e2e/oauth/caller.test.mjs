// Tokens for callers, obtained by exchanging the token of each caller: modes token_exchange and enterprise with `subject: "caller"`, through the
// running gateway, with a real OpenID provider as the callers' issuer.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { generateKeyPairSync } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, afterEach, before, beforeEach, describe, test } from 'node:test';

import { startExchange } from '../../peers/exchange.mjs';
import { binary, startGateway, temporaryDirectory, until, writeConfig } from '../gateway.mjs';
import { initialize, post, reply, send } from '../raw.mjs';

const AUDIENCE = 'https://gateway.example/mcp';
const policy = {
    version: 1,
    description: 'Every authenticated caller may do everything in this test',
    rules: [{ id: 'all', effect: 'allow', description: 'every authenticated caller', tenants: ['*'], subjects: ['authenticated'], servers: ['*'], kinds: ['*'], names: ['*'] }]
};

let folder, peer, gateway;
before(async () => {
    folder = temporaryDirectory();
    writeFileSync(join(folder.path, 'policy.json'), JSON.stringify(policy));
    const { publicKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
    peer = await startExchange(AUDIENCE, publicKey.export({ format: 'jwk' }));
});
after(() => {
    peer?.stop();
    folder?.remove();
});
beforeEach(() => peer.reset({ callerLifetime: 120, lifetime: 120, refuse: {}, refused: new Set(), needs: {}, servers: undefined, down: false, lies: {} }));
afterEach(async () => {
    const log = gateway?.log() ?? '';
    await gateway?.stop();
    gateway = undefined;
    assert.deepEqual(peer.leaked(log), [], 'no token is in the log');
});

const auth = {
    token_exchange: () => ({
        mode: 'token_exchange', subject: 'caller', subject_token_type: 'access_token', issuer: peer.idp, client_id: 'gateway', client_secret: 'the secret of gateway'
    }),
    enterprise: () => ({
        mode: 'enterprise', subject: 'caller', client_id: 'gateway', client_secret: 'the secret of gateway',
        idp: { issuer: peer.idp, client_id: 'gateway', client_secret: 'the secret of gateway' }
    })
};
const urls = { token_exchange: () => `${peer.origin}/exchange/mcp`, enterprise: () => `${peer.origin}/mcp` };
const jwtProvider = () => ({ type: 'jwt', issuer: peer.idp, audiences: [AUDIENCE], clock_skew: 0 });
const configure = (mode, more = {}, server = {}, top = {}) => ({
    auth: { providers: [jwtProvider()] },
    policy: join(folder.path, 'policy.json'),
    mcpServers: { server: { url: urls[mode](), auth: { ...auth[mode](), ...more }, ...server } },
    ...top
});

/** A session of this caller; `call` returns the answer of the server, or the error. */
async function open(token) {
    const headers = post({ authorization: `Bearer ${token}` });
    // 503: the gateway is still fetching the keys of the issuer.
    const opened = await until(async () => {
        const answer = await send(gateway.url, { headers, body: initialize('2025-11-25') });
        return answer.status !== 503 && answer;
    }, 20_000, 'a session');
    assert.equal(opened.status, 200, opened.body);
    headers['mcp-session-id'] = opened.headers['mcp-session-id'];
    let id = 1;
    const call = async (name = 'server__whoami', as = token) => {
        const body = { jsonrpc: '2.0', id: ++id, method: 'tools/call', params: { name, arguments: {} } };
        const { result, error } = reply(await send(gateway.url, { headers: { ...headers, authorization: `Bearer ${as}` }, body }));
        return error ?? result.content[0].text;
    };
    const ping = as => send(gateway.url, { headers: { ...headers, authorization: `Bearer ${as}` }, body: { jsonrpc: '2.0', id: ++id, method: 'ping' } });
    const end = () => send(gateway.url, { method: 'DELETE', headers });
    return { call, ping, end };
}

const exchanges = () => peer.asked.filter(({ grant_type }) => /token-exchange/.test(grant_type));

for (const mode of Object.keys(auth))
    describe(`H12 mode ${mode} with the caller's own token`, () => {
        test('H1 H12 two interleaved users keep their identities at the server with one exchange each', async () => {
            gateway = await startGateway(configure(mode));
            const tokens = { ana: await peer.caller('ana'), bob: await peer.caller('bob') };
            const sessions = { ana: await open(tokens.ana), bob: await open(tokens.bob) };
            const names = ['ana', 'bob', 'bob', 'ana', 'bob', 'ana', 'ana', 'bob'];
            assert.deepEqual(await Promise.all(names.map(name => sessions[name].call())), names);
            for (const name of names) assert.equal(await sessions[name].call(), name);
            assert.deepEqual(exchanges().map(({ subject_token }) => subject_token).sort(), Object.values(tokens).sort());
            for (const { token } of peer.seen) assert.ok(!Object.values(tokens).includes(token), "no caller's token at the server");
            assert.ok(!Object.values(tokens).some(token => gateway.log().includes(token)), "no caller's token in the log");
        });
        test('H12 the exchange sends the required parameters to the right endpoint', async () => {
            gateway = await startGateway(configure(mode));
            const token = await peer.caller('ana');
            assert.equal(await (await open(token)).call(), 'ana');
            const resource = urls[mode]();
            const [first, second] = peer.asked;
            assert.deepEqual([first.at, first.client, first.subject_token, first.resource], [peer.idp, 'gateway', token, resource]);
            if (mode === 'token_exchange') {
                assert.equal(first.subject_token_type, 'urn:ietf:params:oauth:token-type:access_token');
                assert.equal(second, undefined);
            } else {
                assert.deepEqual([first.audience, second.at, second.grant_type.split(':').at(-1)], [peer.as, peer.as, 'jwt-bearer']);
                assert.ok(!JSON.stringify(second).includes(token));
            }
        });
        test('S1 an exchanged token is used by later sessions of the same user only', async () => {
            gateway = await startGateway(configure(mode));
            const ana = await peer.caller('ana');
            for (const token of [ana, await peer.caller('ana'), ana]) {
                const session = await open(token);
                assert.equal(await session.call(), 'ana');
                assert.equal((await session.end()).status, 200);
            }
            assert.equal(exchanges().length, 1);
            assert.equal(await (await open(await peer.caller('bob'))).call(), 'bob');
            assert.equal(exchanges().length, 2);
        });
        test('sessions do not share exchanged tokens with isolation session', async () => {
            gateway = await startGateway(configure(mode, {}, { isolation: 'session' }));
            for (let i = 0; i < 2; i++) assert.equal(await (await open(await peer.caller('ana'))).call(), 'ana');
            assert.equal(exchanges().length, 2);
        });
        test('an exchanged token expires with the token of its caller, and the next token is exchanged again', async () => {
            gateway = await startGateway(configure(mode));
            Object.assign(peer.state, { callerLifetime: 6, lifetime: 600 });
            const first = await peer.caller('ana');
            peer.state.callerLifetime = 120;
            const session = await open(first), next = await peer.caller('ana');
            assert.equal(await session.call(), 'ana');
            assert.equal((await session.ping(next)).status, 200); // the session does not end with the first token
            const { exp } = JSON.parse(Buffer.from(first.split('.')[1], 'base64url'));
            await until(() => Date.now() / 1000 >= exp + 0.05, 8_000, 'the token has expired, even by a coarse clock');
            assert.equal(await session.call('server__whoami', next), 'ana');
            assert.deepEqual(exchanges().map(({ subject_token }) => subject_token), [first, next]);
            const jtis = peer.seen.filter(({ method }) => method === 'tools/call').map(({ who }) => who?.jti);
            assert.equal(new Set(jtis).size, 2);
            assert.equal(jtis.length, 2, 'the old token was not sent again');
        });
        test('F2 F3 an exchanged token that the server refuses is replaced once for 50 calls', async () => {
            gateway = await startGateway(configure(mode));
            const session = await open(await peer.caller('ana'));
            assert.equal(await session.call(), 'ana');
            peer.state.refused.add(peer.seen.at(-1).who.jti);
            assert.deepEqual(new Set(await Promise.all(Array.from({ length: 50 }, () => session.call()))), new Set(['ana']));
            assert.equal(exchanges().length, 2);
        });
        test('A9 more scope is requested once, with the token of the caller and only for that caller', async () => {
            peer.state.needs = { write: 'mcp:write' };
            gateway = await startGateway(configure(mode));
            const ana = await open(await peer.caller('ana')), bob = await open(await peer.caller('bob'));
            assert.deepEqual(await Promise.all([ana.call(), bob.call()]), ['ana', 'bob']);
            assert.equal(await ana.call('server__write'), 'ana');
            assert.equal(exchanges().length, 3);
            assert.equal(peer.asked.at(-1).scope, 'mcp:use mcp:write');
            assert.equal(await bob.call(), 'bob');
            assert.equal(peer.seen.at(-1).who.scope, 'mcp:use');
        });
        test('a user refused by the authorization server gets an error, the log has the reason, and other users are not affected', async () => {
            peer.state.refuse = { eve: 'eve has left the company' };
            gateway = await startGateway(configure(mode));
            const token = await peer.caller('eve'), eve = await open(token), bob = await open(await peer.caller('bob'));
            const error = await eve.call();
            assert.deepEqual([error.code, error.data.reason, error.data.server], [-32003, 'authorization_required', 'server']);
            assert.match(error.message, /your token does not give access to it/);
            assert.doesNotMatch(JSON.stringify(error), /left the company/);
            assert.equal(await bob.call(), 'bob');
            await gateway.line(/cannot get a token.*user=jwt\/eve.*eve has left the company/, 5_000);
            assert.ok(!gateway.log().includes(token));
            peer.state.refuse = {};
            assert.equal(await eve.call('server__whoami', await peer.caller('eve')), 'eve', 'a new token is exchanged');
        });
        test('H12 a token of another issuer or audience is not sent to be exchanged', async () => {
            const elsewhere = mode === 'enterprise' ? { idp: { ...auth.enterprise().idp, issuer: peer.as } } : { issuer: peer.as };
            peer.state.servers = [peer.as];
            gateway = await startGateway(configure(mode, elsewhere));
            const error = await (await open(await peer.caller('ana'))).call();
            assert.equal(error.code, -32003);
            assert.deepEqual(peer.asked, []);
            await gateway.line(/neither issued it nor is named in its aud/, 5_000);
        });
    });

test('H12 a server that names another authorization server does not get a token, even if that one claims a false name', async () => {
    peer.state.servers = [peer.as];
    peer.state.lies.as = { issuer: peer.idp, token_endpoint: `${peer.as}/token` };
    gateway = await startGateway(configure('token_exchange'));
    const error = await (await open(await peer.caller('ana'))).call();
    assert.equal(error.code, -32002);
    assert.deepEqual(peer.asked, []);
    await gateway.line(/does not accept tokens of .*the configured issuer/, 5_000);
});

test('a caller without an exchangeable token gets an error that says which token is needed', async () => {
    const tokens = join(folder.path, 'tokens.json');
    const made = spawnSync(binary, ['token', 'new', '--file', tokens, '--subject', 'gus'], { encoding: 'utf8' });
    gateway = await startGateway(configure('token_exchange', {}, {}, { auth: { providers: [{ type: 'bearer', tokens }, jwtProvider()] } }));
    const session = await open(made.stdout.trim());
    const error = await session.call();
    assert.deepEqual([error.code, error.data.server], [-32003, 'server']);
    assert.match(error.message, /authenticate with a token of your identity provider/);
    assert.deepEqual(peer.asked, []);
    assert.equal(await (await open(await peer.caller('ana'))).call(), 'ana');
});

describe('mistakes in the configuration of exchanged caller tokens', () => {
    const check = config => {
        const own = temporaryDirectory();
        try {
            return spawnSync(binary, ['config', 'check', '--config', writeConfig(own.path, config)], { encoding: 'utf8' });
        } finally {
            own.remove();
        }
    };
    for (const [name, config, message] of [
        ['without the provider jwt', () => configure('token_exchange', {}, {}, { auth: undefined, policy: undefined }), /provider "jwt"/],
        ['beside a token file', () => configure('token_exchange', { subject_token_file: '/x' }), /subject_token_file/],
        ['in mode workload', () => configure('token_exchange', { mode: 'workload' }), /subject/],
        ['in mode shared', () => configure('token_exchange', { mode: 'shared' }), /subject/],
        ['with an identity provider without an issuer', () => configure('enterprise', { idp: { token_endpoint: `${peer.idp}/token`, client_id: 'gateway' } }), /idp\/issuer/]
    ])
        test(`the caller as subject ${name} is refused`, () => {
            const { status, stderr } = check(config());
            assert.notEqual(status, 0);
            assert.match(stderr, message);
        });
    test('the configurations of these tests are accepted', () => {
        for (const mode of Object.keys(auth)) assert.equal(check(configure(mode)).status, 0);
    });
});
