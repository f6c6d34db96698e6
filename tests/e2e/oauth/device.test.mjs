// `postern login --device` (L14, RFC 8628): a code that a user enters on another device, and every outcome of that.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { createServer } from 'node:http';
import { text } from 'node:stream/consumers';
import { after, before, beforeEach, describe, test } from 'node:test';

import { binary, temporaryDirectory, writeConfig } from '../gateway.mjs';
import { aMinuteLater } from '../liar.mjs';

const GRANT = 'urn:ietf:params:oauth:grant-type:device_code';
const PENDING = [400, { error: 'authorization_pending' }];
const secret = () => randomBytes(24).toString('base64url');

let folder, peer, asked, times, script, device, tokens;
before(async () => (peer = await startPeer()));
after(() => {
    peer?.close();
    peer?.closeAllConnections();
});
beforeEach(() => {
    asked = [];
    times = [];
    tokens = { access_token: secret(), refresh_token: secret(), token_type: 'Bearer', expires_in: 3600 };
    script = [[200, tokens]];
    device = [200, { device_code: secret(), user_code: 'WDJB-MJHT', verification_uri: `${peer.origin}/device`, interval: 1, expires_in: 600 }];
});

/** A server and its authorization server; the token endpoint answers polls as `script` says, in order. */
async function startPeer() {
    const results = {
        initialize: { protocolVersion: '2025-11-25', capabilities: { tools: {} }, serverInfo: { name: 'device', version: '1' } },
        'tools/list': { tools: [{ name: 'hello', inputSchema: { type: 'object' } }] },
        'tools/call': { content: [{ type: 'text', text: 'hello' }] }
    };
    const http = createServer(async (req, res) => {
        const body = await text(req);
        const json = (status, tree, headers = {}) => res.writeHead(status, { 'content-type': 'application/json', ...headers }).end(JSON.stringify(tree));
        const { origin } = http;
        const form = Object.fromEntries(new URLSearchParams(body));
        switch (req.url) {
            case '/.well-known/oauth-protected-resource/mcp':
                return json(200, { resource: `${origin}/mcp`, authorization_servers: [origin] });
            case '/.well-known/oauth-authorization-server':
                return json(200, {
                    issuer: origin, authorization_endpoint: `${origin}/authorize`, token_endpoint: `${origin}/token`, registration_endpoint: `${origin}/register`,
                    ...(device ? { device_authorization_endpoint: `${origin}/device_authorization` } : {})
                });
            case '/register':
                asked.push({ at: req.url, form: JSON.parse(body) });
                return json(201, { client_id: 'registered', token_endpoint_auth_method: 'none' });
            case '/device_authorization':
                asked.push({ at: req.url, form });
                return json(...device);
            case '/token':
                asked.push({ at: req.url, form });
                times.push(Date.now());
                const next = script.length > 1 ? script.shift() : script[0];
                return next === 'hang up' ? req.socket.destroy() : json(...next);
            case '/mcp':
                if (req.method !== 'POST') return res.writeHead(405).end();
                if (req.headers.authorization !== `Bearer ${tokens.access_token}`) return json(401, {}, { 'www-authenticate': 'Bearer' });
                const message = JSON.parse(body);
                return message.id === undefined ? res.writeHead(202).end() : json(200, { jsonrpc: '2.0', id: message.id, result: results[message.method] ?? {} });
            default:
                return res.writeHead(404).end();
        }
    });
    await new Promise(done => http.listen(0, '127.0.0.1', done));
    http.origin = `http://127.0.0.1:${http.address().port}`;
    return http;
}

async function run(...args) {
    return runWith({}, ...args);
}

async function runWith(auth, ...args) {
    const config = writeConfig(folder.path, { mcpServers: { server: { url: `${peer.origin}/mcp`, auth: { mode: 'shared', ...auth } } } });
    const child = spawn(binary, [...args, '--config', config], { stdio: ['ignore', 'pipe', 'pipe'], env: { ...process.env, POSTERN_STATE: folder.path } });
    const [stdout, stderr, status] = await Promise.all([text(child.stdout), text(child.stderr), new Promise(done => child.once('exit', done))]);
    for (const one of [tokens.access_token, tokens.refresh_token, device?.[1].device_code].filter(Boolean))
        assert.ok(!(stdout + stderr).includes(one), 'no secret in the output');
    return { status, stdout, stderr };
}

async function login(...args) {
    folder = temporaryDirectory();
    try {
        return await run('login', 'server', '--device', ...args);
    } finally {
        folder.remove();
    }
}

const polls = () => asked.filter(({ at }) => at === '/token');

test('L14 a device login shows a code, polls until the user agrees, and its grant serves calls', async () => {
    script = [PENDING, [200, tokens]];
    device[1].verification_uri_complete = `${peer.origin}/device?user_code=WDJB-MJHT`;
    folder = temporaryDirectory();
    try {
        const { status, stderr } = await run('login', 'server', '--device');
        assert.equal(status, 0, stderr);
        assert.ok(stderr.includes(`${peer.origin}/device\n`) && stderr.includes('enter the code WDJB-MJHT') && stderr.includes('?user_code=WDJB-MJHT'), stderr);
        const called = await run('call', 'server', 'hello', '{}');
        assert.equal(called.status, 0, called.stderr);
        assert.match(called.stdout, /hello/);
    } finally {
        folder.remove();
    }
    const [registered, code, ...rest] = asked;
    assert.deepEqual(registered.form.grant_types, [GRANT, 'refresh_token']);
    assert.equal(registered.form.redirect_uris, undefined);
    assert.deepEqual(code, { at: '/device_authorization', form: { client_id: 'registered', resource: `${peer.origin}/mcp` } });
    const poll = { grant_type: GRANT, device_code: device[1].device_code, client_id: 'registered', resource: `${peer.origin}/mcp` };
    assert.deepEqual(rest.map(({ form }) => form), [poll, poll]);
    assert.ok(times[1] - times[0] >= 900, 'not more often than the announced interval');
});

test('L14 slow_down adds five seconds to the polling interval', async () => {
    script = [[400, { error: 'slow_down' }], [200, tokens]];
    assert.equal((await login()).status, 0);
    assert.ok(times[1] - times[0] >= 5900, `${times[1] - times[0]} ms`);
});

test('L14 a poll without an answer does not end the login', async () => {
    script = ['hang up', [200, tokens]];
    assert.equal((await login()).status, 0);
    assert.equal(polls().length, 2);
});

describe('L14 exit status of a device login', () => {
    for (const [name, prepare, code, message] of [
        ['with 10 when it is declined', () => (script = [[400, { error: 'access_denied' }]]), 10, /declined/],
        ['with 11 when the server says that the code has expired', () => (script = [[400, { error: 'expired_token' }]]), 11, /log in again/],
        ['with 11 when the code expires while the server says pending', () => ((script = [PENDING]), (device[1].expires_in = 2)), 11, /log in again/],
        ['with 15 when the token endpoint refuses', () => (script = [[400, { error: 'unsupported_grant_type' }]]), 15, /unsupported_grant_type/],
        ['with 14 when the server has no device endpoint', () => (device = undefined), 14, /does not support the device flow/],
        ['with 17 when the answer has no code', () => delete device[1].device_code, 17, /a code or the URL is missing or not valid/],
        ['with 17 when the code cannot be shown', () => (device[1].user_code = 'A\u001b[31m'), 17, /a code or the URL is missing or not valid/],
        ['with 17 when the address is not safe', () => (device[1].verification_uri = 'http://evil.example/'), 17, /a code or the URL is missing or not valid/],
        ['with 17 when the device request is refused', () => (device = [400, { error: 'invalid_scope' }]), 17, /invalid_scope/]
    ])
        test(`L14 a device login ends ${name}`, async () => {
            prepare();
            const { status, stderr } = await login();
            assert.equal(status, code, stderr);
            assert.match(stderr, message);
        });
});

test('L14 the configuration selects a device login and --no-browser another one', async () => {
    folder = temporaryDirectory();
    try {
        assert.equal((await runWith({ device: true }, 'login', 'server')).status, 0);
        assert.equal(polls().length, 1);
        aMinuteLater(folder.path); // a client for a browser is another registration
        const other = await runWith({ device: true, pkce: 'assume_s256' }, 'login', 'server', '--no-browser', '--timeout', '1s');
        assert.equal(other.status, 11, other.stderr);
        assert.match(other.stderr, /^To log in to server, open$/m);
        assert.equal(polls().length, 1);
    } finally {
        folder.remove();
    }
});

test('--device excludes options about the browser', async () => {
    for (const flag of ['--headless', '--no-browser', '--token-stdin']) assert.equal((await login(flag)).status, 2);
    assert.deepEqual(asked, []);
});
