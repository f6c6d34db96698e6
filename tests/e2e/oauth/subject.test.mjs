// Tokens obtained with a token of another issuer: modes workload (RFC 7523), token_exchange (RFC 8693) and enterprise (ID-JAG).
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { after, before, beforeEach, describe, test } from 'node:test';

import { binary, temporaryDirectory, writeConfig } from '../gateway.mjs';

const TYPE = 'urn:ietf:params:oauth:token-type:';
const GRANT = 'urn:ietf:params:oauth:grant-type:';
const secret = () => randomBytes(24).toString('base64url');
const jwt = claims => ['{"alg":"ES256"}', JSON.stringify(claims), secret()].map((part, i) => (i < 2 ? Buffer.from(part).toString('base64url') : part)).join('.');

let folder, peer, asked, said;
before(async () => {
    folder = temporaryDirectory();
    peer = await startPeer();
});
after(() => {
    peer?.close();
    peer?.closeAllConnections();
    folder?.remove();
});
beforeEach(() => {
    asked = [];
    const issued = secret();
    said = {
        idp: [200, { access_token: 'jag-' + secret(), issued_token_type: TYPE + 'id-jag', token_type: 'N_A' }],
        token: [200, { access_token: issued, token_type: 'Bearer', expires_in: 3600 }],
        issued
    };
});

/** A server, its authorization server and an identity provider at one origin; `asked` has the requests to the token endpoints. */
async function startPeer() {
    const results = {
        initialize: { protocolVersion: '2025-11-25', capabilities: { tools: {} }, serverInfo: { name: 'subject', version: '1' } },
        'tools/list': { tools: [{ name: 'hello', inputSchema: { type: 'object' } }] },
        'tools/call': { content: [{ type: 'text', text: 'hello' }] }
    };
    const http = createServer(async (req, res) => {
        const body = await text(req);
        const json = (status, tree, headers = {}) => res.writeHead(status, { 'content-type': 'application/json', ...headers }).end(JSON.stringify(tree));
        const origin = http.origin;
        if (req.url.startsWith('/.well-known/oauth-protected-resource')) return json(200, { resource: `${origin}/mcp`, authorization_servers: [origin] });
        if (req.url === '/.well-known/oauth-authorization-server')
            return json(200, { issuer: origin, authorization_endpoint: `${origin}/authorize`, token_endpoint: `${origin}/token`, token_endpoint_auth_methods_supported: ['client_secret_basic', 'none'] });
        if (req.url === '/idp' || req.url === '/token') {
            asked.push({ at: req.url, form: Object.fromEntries(new URLSearchParams(body)), authorization: req.headers.authorization });
            return json(...said[req.url.slice(1)]);
        }
        if (req.url !== '/mcp' || req.method !== 'POST') return res.writeHead(405).end();
        if (req.headers.authorization !== `Bearer ${said.issued}`)
            return json(401, {}, { 'www-authenticate': `Bearer resource_metadata="${origin}/.well-known/oauth-protected-resource/mcp"` });
        const message = JSON.parse(body);
        if (message.id === undefined) return res.writeHead(202).end();
        json(200, { jsonrpc: '2.0', id: message.id, result: results[message.method] ?? {} });
    });
    await new Promise(done => http.listen(0, '127.0.0.1', done));
    http.origin = `http://127.0.0.1:${http.address().port}`;
    return http;
}

const file = () => join(folder.path, 'subject');
const idp = () => ({ token_endpoint: `${peer.origin}/idp`, client_id: 'gateway-at-idp', client_secret: 'idp secret' });
const modes = {
    workload: () => ({ mode: 'workload', client_id: 'gateway', subject_token_file: file() }),
    token_exchange: () => ({ mode: 'token_exchange', client_id: 'gateway', client_secret: 's3cret', issuer: peer.origin, subject_token_file: file(), subject_token_type: 'access_token' }),
    enterprise: () => ({ mode: 'enterprise', client_id: 'gateway', client_secret: 's3cret', subject_token_file: file(), idp: idp() })
};

function run(auth, ...args) {
    const path = writeConfig(folder.path, { mcpServers: { server: { url: `${peer.origin}/mcp`, auth } } });
    const options = { env: { ...process.env, POSTERN_STATE: folder.path }, encoding: 'utf8' };
    return new Promise(done => execFile(binary, [...args, '--config', path], options, (error, stdout, stderr) => done({ status: error?.code ?? 0, stdout, stderr })));
}

/** Calls the tool with this subject token; no output may contain a token. */
async function call(mode, token, more = {}) {
    writeFileSync(file(), `${token}\n`);
    const ran = await run({ ...modes[mode](), ...more }, 'call', 'server', 'hello', '{}');
    const secrets = [token, said.issued, said.idp[1].access_token, 's3cret', 'idp secret'].filter(Boolean);
    for (const one of secrets) assert.ok(!(ran.stdout + ran.stderr).includes(one), 'no token in the output');
    return ran;
}

const basic = (id, word) => `Basic ${Buffer.from(`${id}:${word}`).toString('base64')}`;

test('mode workload sends the token of the workload once and has no fallback', async () => {
    const token = jwt({ aud: peer.origin, sub: 'workload' });
    const { status, stderr } = await call('workload', token, { scope: 'read' });
    assert.equal(status, 0, stderr);
    assert.deepEqual(asked, [
        { at: '/token', form: { grant_type: GRANT + 'jwt-bearer', assertion: token, scope: 'read', resource: `${peer.origin}/mcp`, client_id: 'gateway' }, authorization: undefined }
    ]);
});

test('mode workload does not send a token to an authorization server that it does not name', async () => {
    for (const claims of [{ aud: 'https://elsewhere.example' }, { aud: [`${peer.origin}/x`] }, {}]) {
        const { status, stderr } = await call('workload', jwt(claims));
        assert.notEqual(status, 0);
        assert.match(stderr, /does not name the authorization server .* in aud/);
    }
    assert.deepEqual(asked, []);
});

test('mode token_exchange sends the parameters of RFC 8693', async () => {
    const { status, stderr } = await call('token_exchange', 'opaque-subject');
    assert.equal(status, 0, stderr);
    const form = {
        grant_type: GRANT + 'token-exchange', subject_token: 'opaque-subject', subject_token_type: TYPE + 'access_token',
        requested_token_type: TYPE + 'access_token', resource: `${peer.origin}/mcp`
    };
    assert.deepEqual(asked, [{ at: '/token', form, authorization: basic('gateway', 's3cret') }]);
});

test('mode enterprise asks the identity provider and then the authorization server, each as its own client', async () => {
    const { status, stderr } = await call('enterprise', 'an-id-token');
    assert.equal(status, 0, stderr);
    const first = {
        grant_type: GRANT + 'token-exchange', subject_token: 'an-id-token', subject_token_type: TYPE + 'id_token',
        requested_token_type: TYPE + 'id-jag', audience: peer.origin, resource: `${peer.origin}/mcp`
    };
    const second = { grant_type: GRANT + 'jwt-bearer', assertion: said.idp[1].access_token, resource: `${peer.origin}/mcp` };
    assert.deepEqual(asked, [
        { at: '/idp', form: first, authorization: basic('gateway-at-idp', 'idp%20secret') },
        { at: '/token', form: second, authorization: basic('gateway', 's3cret') }
    ]);
});

describe('answers of an identity provider without a usable ID-JAG', () => {
    for (const [name, answer, message] of [
        ['a token that is not an ID-JAG', [200, { access_token: 'x', issued_token_type: TYPE + 'access_token', token_type: 'Bearer' }], /not an ID-JAG/],
        ['a token without a type', [200, { access_token: 'x' }], /not an ID-JAG/],
        ['a malformed token', [200, { access_token: 'a b\r\nc', issued_token_type: TYPE + 'id-jag' }], /did not issue a usable ID-JAG/],
        ['an absent token', [200, { issued_token_type: TYPE + 'id-jag' }], /did not issue a usable ID-JAG/],
        ['a refused assertion', [400, { error: 'invalid_grant', error_description: 'the person has left' }], /the person has left/]
    ])
        test(`mode enterprise does not send the authorization server ${name}`, async () => {
            said.idp = answer;
            const { status, stderr } = await call('enterprise', 'an-id-token');
            assert.notEqual(status, 0);
            assert.match(stderr, message);
            assert.deepEqual(asked.map(({ at }) => at), ['/idp']);
        });
});

for (const error of ['invalid_grant', 'invalid_scope', 'unauthorized_client'])
    test(`a token endpoint that answers ${error} is asked only once`, async () => {
        said.token = [400, { error, error_description: 'no' }];
        const { status } = await call('workload', jwt({ aud: [peer.origin, 'x'] }));
        assert.notEqual(status, 0);
        assert.deepEqual(asked.map(({ form }) => form.grant_type), [GRANT + 'jwt-bearer']);
    });

test('a token file that is empty, invalid or missing is named in the error', async () => {
    for (const content of ['', 'two words', 'x'.repeat(70_000)]) assert.match((await call('token_exchange', content)).stderr, /subject: does not contain a token/);
    const missing = await call('token_exchange', 'a-token-that-nobody-reads', { subject_token_file: join(folder.path, 'missing') });
    assert.match(missing.stderr, /missing: No such file/);
    assert.deepEqual(asked, []);
});

describe('mistakes in the configuration of modes', () => {
    for (const [name, auth] of [
        ['a mode without its file', () => ({ ...modes.workload(), subject_token_file: undefined })],
        ['a file without its mode', () => ({ mode: 'shared', subject_token_file: file() })],
        ['an exchange without an issuer', () => ({ ...modes.token_exchange(), issuer: undefined })],
        ['mode enterprise without an identity provider', () => ({ ...modes.enterprise(), idp: undefined })],
        ['an identity provider without mode enterprise', () => ({ ...modes.workload(), idp: idp() })],
        ['an identity provider without TLS', () => ({ ...modes.enterprise(), idp: { ...idp(), token_endpoint: 'http://idp.example/token' } })],
        ['a mode without a client', () => ({ ...modes.workload(), client_id: undefined })]
    ])
        test(`${name} is refused`, async () => assert.notEqual((await run(auth(), 'config', 'check')).status, 0));
    test('the modes of these tests are accepted', async () => {
        for (const mode of Object.values(modes)) assert.equal((await run(mode(), 'config', 'check')).status, 0);
    });
});
