// Servers over https with certificates of a private authority: every transport, logins, and untrusted certificates.
import assert from 'node:assert/strict';
import { execFileSync, spawn, spawnSync } from 'node:child_process';
import { copyFileSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { createServer as createTlsServer } from 'node:tls';

import { big, Channel } from '../channel.mjs';
import { binary, freePort, node, peerPath, startEverything, startGateway, startPeer, temporaryDirectory, watch, writeConfig } from '../gateway.mjs';
import { aMinuteLater } from '../liar.mjs';

const [OK, CONFIG, UNAVAILABLE, DISCOVERY] = [0, 3, 4, 14];
const BIG = 5 << 20;
const MANY = 40;

const directory = temporaryDirectory();
after(() => directory.remove());
const at = name => join(directory.path, name);
const openssl = (...args) => execFileSync('openssl', args, { cwd: directory.path, stdio: ['ignore', 'ignore', 'pipe'] });
const KEY = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-noenc'];

/** Makes NAME.crt and NAME.key, signed by the authority, or self-signed without one. */
function certificate(name, { authority, names = 'DNS:localhost,IP:127.0.0.1', days = 30 } = {}) {
    openssl('req', '-new', ...KEY, '-keyout', `${name}.key`, '-out', `${name}.csr`, '-subj', `/CN=${name}`, '-addext', `subjectAltName=${names}`);
    const by = authority ? ['-CA', `${authority}.crt`, '-CAkey', `${authority}.key`] : ['-signkey', `${name}.key`];
    openssl('x509', '-req', '-in', `${name}.csr`, '-copy_extensions', 'copy', '-days', String(days), '-out', `${name}.crt`, ...by);
}

/**
 * A TLS front for a plain server: returns its URL, the number of connections that sent a request, and a function to change the certificate. Requests
 * are passed on when `together` connections have sent one.
 */
async function secured(url, name) {
    const front = { requests: 0, together: 0 };
    const held = new Map();
    const pair = of => ({ cert: readFileSync(at(`${of}.crt`)), key: readFileSync(at(`${of}.key`)) });
    const open = new Set();
    const server = createTlsServer(pair(name), socket => {
        const back = connect(Number(new URL(url).port), '127.0.0.1');
        open.add(socket);
        for (const [from, to] of [[socket, back], [back, socket]]) from.on('error', () => to.destroy()).on('close', () => to.destroy());
        back.pipe(socket);
        socket.once('data', () => front.requests++).on('end', () => back.end()).on('data', bytes => {
            held.set(socket, [...(held.get(socket) ?? []), () => back.write(bytes)]);
            if (held.size < front.together) return;
            front.together = 0;
            for (const writes of held.values()) for (const write of writes) write();
            held.clear();
        });
    }).on('tlsClientError', () => {});
    await new Promise(resolve => server.listen(0, '127.0.0.1', resolve));
    const secure = new URL(url);
    secure.protocol = 'https:';
    secure.port = server.address().port;
    front.url = secure.href;
    front.change = of => {
        server.setSecureContext(pair(of));
        for (const socket of open) socket.destroy();
    };
    front.stop = () => {
        for (const socket of open) socket.destroy();
        server.close();
    };
    return front;
}

let mirror;
before(async () => {
    for (const name of ['ca', 'other']) openssl('req', '-x509', ...KEY, '-keyout', `${name}.key`, '-out', `${name}.crt`, '-days', '30', '-subj', `/CN=${name}`);
    certificate('good', { authority: 'ca' });
    certificate('elsewhere', { authority: 'ca', names: 'DNS:elsewhere.example' });
    certificate('expired', { authority: 'ca', days: -1 });
    certificate('stranger', { authority: 'other' });
    certificate('itself');
    mirror = await startPeer(peerPath('mirror'), '--http');
});
after(() => mirror?.stop());

let homes = 0;
/** Runs a command with a new home, or with an existing one. */
async function run(config, args, home = join(directory.path, `home-${++homes}`)) {
    mkdirSync(home, { recursive: true, mode: 0o700 });
    const path = writeConfig(home, config);
    const child = spawn(binary, [...args, '--config', path], { env: { PATH: process.env.PATH, HOME: home, POSTERN_STATE: home }, stdio: ['ignore', 'pipe', 'pipe'] });
    const out = watch(child, 'stdout'), err = watch(child, 'stderr');
    const { code } = await err.exited;
    return { status: code, stdout: out.log(), stderr: err.log() };
}

const tls = { ca_file: at('ca.crt') };

describe('a server with a private certificate authority', () => {
    test('calls, an answer of 5 MB and an event stream pass over Streamable HTTP with TLS', async () => {
        const front = await secured(mirror.url, 'good');
        const gateway = await startGateway({ mcpServers: { m: { url: front.url, type: 'http', tls } } });
        const channel = await Channel.open(gateway.url);
        assert.equal((await channel.call('m__reply', big(BIG))).length, BIG);
        const params = { name: 'm__reply', arguments: { ...big(3), count: 5 }, _meta: { progressToken: 'p' } };
        const { body } = await channel.send({ jsonrpc: '2.0', id: 9, method: 'tools/call', params });
        assert.equal(body.split('notifications/progress').length - 1, 5, body);
        assert.match(body, /"text":"xxx"/);
        assert.ok(front.requests > 0);
        await gateway.stop();
        front.stop();
    });

    test('many connections that are reused and closed each get their own answers', async () => {
        const front = await secured(mirror.url, 'good');
        const gateway = await startGateway({ mcpServers: { m: { url: front.url, type: 'http', tls } } });
        const channel = await Channel.open(gateway.url);
        const lengths = Array.from({ length: MANY }, (_, i) => i * 3000);
        const all = () => Promise.all(lengths.map(length => channel.call('m__reply', big(length))));
        await channel.call('m__reply', big(1));
        front.together = MANY;
        for (let round = 0; round < 3; round++) assert.deepEqual((await all()).map(({ length }) => length), lengths);
        assert.ok(front.requests >= MANY, `${front.requests} connections`);
        front.change('good'); // all of them close
        assert.deepEqual((await all()).map(({ length }) => length), lengths);
        await gateway.stop();
        front.stop();
    });

    for (const [mode, type] of [['streamableHttp', 'http'], ['sse', 'sse']])
        test(`the reference server over ${type} sends progress and then the result`, async () => {
            const everything = await startEverything(mode);
            const front = await secured(everything.url, 'good');
            const gateway = await startGateway({ mcpServers: { e: { url: front.url, type, tls } } });
            const channel = await Channel.open(gateway.url);
            const params = { name: 'e__trigger-long-running-operation', arguments: { duration: 1, steps: 4 }, _meta: { progressToken: 'p' } };
            const { body } = await channel.send({ jsonrpc: '2.0', id: 9, method: 'tools/call', params });
            assert.equal(body.split('notifications/progress').length - 1, 4, body);
            assert.match(body, /Long running operation completed/);
            assert.match(await channel.call('e__echo', { message: 'hello' }), /hello/);
            await gateway.stop();
            front.stop();
            await everything.stop();
        });

    test('a new certificate authority takes effect without a restart', async () => {
        const front = await secured(mirror.url, 'good');
        copyFileSync(at('ca.crt'), at('used.crt'));
        const gateway = await startGateway({ mcpServers: { m: { url: front.url, type: 'http', tls: { ca_file: at('used.crt') } } } });
        const channel = await Channel.open(gateway.url);
        assert.equal(await channel.call('m__reply', big(1)), 'x');
        writeFileSync(at('used.crt'), readFileSync(at('other.crt')));
        front.change('stranger');
        assert.equal(await channel.call('m__reply', big(2)), 'xx');
        await gateway.stop();
        front.stop();
    });

    test('the path of the authority is relative to the configuration, also for servers of tenants', async () => {
        const front = await secured(mirror.url, 'good');
        const home = join(directory.path, 'relative');
        mkdirSync(home);
        copyFileSync(at('ca.crt'), join(home, 'ca.pem'));
        const server = { url: front.url, type: 'http', tls: { ca_file: 'ca.pem' } };
        const listed = await run({ mcpServers: { m: server }, tenants: { t: { mcpServers: { n: server } } } }, ['tools'], home);
        assert.equal(listed.status, OK, listed.stderr);
        front.stop();
    });
});

describe('untrusted certificates', () => {
    const wrong = {
        'of an unknown authority': ['good', undefined, /unable to get local issuer certificate/],
        'of another authority': ['stranger', tls, /unable to get local issuer certificate/],
        'that is self-signed': ['itself', tls, /self-signed certificate/],
        'for another name': ['elsewhere', tls, /no alternative certificate subject name matches target host name '127\.0\.0\.1'/],
        'that has expired': ['expired', tls, /certificate has expired/]
    };
    for (const [what, [name, trusted, message]] of Object.entries(wrong))
        test(`a server certificate ${what} is an error and no request is sent`, async () => {
            const front = await secured(mirror.url, name);
            const config = { mcpServers: { m: { url: front.url, type: 'http', ...(trusted && { tls: trusted }), headers: { 'X-Key': 'secret' } } } };
            const listed = await run(config, ['tools']);
            assert.equal(listed.status, UNAVAILABLE, listed.stderr);
            assert.match(listed.stderr, message);
            assert.match(listed.stderr, /must be valid for this name and date, and issued by a trusted authority: one of the system's, or one in the server's tls\.ca_file/);
            const gateway = await startGateway(config);
            const channel = await Channel.open(gateway.url);
            const { error } = await channel.request('tools/call', { name: 'm__reply', arguments: {} });
            assert.ok(error, 'no answer');
            await gateway.line(message, 10_000);
            assert.equal(front.requests, 0);
            await gateway.stop();
            front.stop();
        });
});

describe('mistakes in the configuration of authorities', () => {
    before(() => {
        writeFileSync(at('empty'), '');
        writeFileSync(at('garbage'), 'no certificate\n');
        writeFileSync(at('half'), `${readFileSync(at('ca.crt'))}-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n`);
    });
    const url = 'https://127.0.0.1:1/mcp';
    const wrong = {
        'with a missing file': [() => ({ url, tls: { ca_file: at('none') } }), /\/mcpServers\/m\/tls\/ca_file: .*none: No such file/],
        'with an empty file': [() => ({ url, tls: { ca_file: at('empty') } }), /\/mcpServers\/m\/tls\/ca_file: .*empty: does not contain a PEM certificate/],
        'with a file that is not a certificate': [() => ({ url, tls: { ca_file: at('garbage') } }), /garbage: does not contain a PEM certificate/],
        'with a truncated certificate': [() => ({ url, tls: { ca_file: at('half') } }), /half: certificate 2 is malformed/],
        'with a folder': [() => ({ url, tls: { ca_file: directory.path } }), /is not a regular file/],
        'for a server without TLS': [() => ({ url: 'http://127.0.0.1:1/mcp', tls }), /\/mcpServers\/m\/tls\/ca_file: applies only to a server with an https "url"/],
        'for a stdio server': [() => ({ command: 'true', tls }), /applies only to a server with an https "url"/]
    };
    for (const [name, [server, message]] of Object.entries(wrong))
        test(`an authority ${name} stops the start`, async () => {
            for (const config of [{ mcpServers: { m: server() } }, { mcpServers: {}, tenants: { t: { mcpServers: { m: server() } } } }]) {
                const served = await run({ listen: [{ address: '127.0.0.1:0' }], ...config }, ['serve']);
                assert.equal(served.status, CONFIG, served.stderr);
                assert.match(served.stderr, message);
            }
        });

    test('the gateway starts although a disabled server has a bad authority', async () =>
        assert.equal((await run({ mcpServers: { m: { url, disabled: true, tls: { ca_file: at('none') } } } }, ['config', 'check'])).status, OK));
});

describe('an authorization server with a private certificate authority', () => {
    let authority;
    before(async () => (authority = await startPeer(node, peerPath('authority.mjs'), 3, '--tls', at('good.crt'), at('good.key'))));
    after(() => authority?.stop());
    const count = async () => JSON.parse(execFileSync('curl', ['-s', '--cacert', at('ca.crt'), new URL('/count', authority.url).href]));

    test('login, calls, refresh and revocation need the authority file', async () => {
        const home = join(directory.path, 'person');
        const config = { mcpServers: { a: { url: authority.url, type: 'http', tls, auth: { mode: 'shared' } } } };
        const trusting = (...args) => run(config, args, home);
        const begun = await trusting('login', 'a', '--start');
        assert.equal(begun.status, OK, begun.stderr);
        const { attempt_id: id, url } = JSON.parse(begun.stdout);
        const visit = ['-sL', '-b', '', '--cacert', at('ca.crt'), '-o', at('page'), '-w', '%{url_effective}', url];
        const back = spawnSync('curl', visit, { encoding: 'utf8' }).stdout.trim(); // no process listens at the redirect URI
        assert.match(back, /\/callback\?code=/);
        const ended = await trusting('login', 'a', '--finish', id, '--redirect', back);
        assert.equal(ended.status, OK, ended.stderr);
        await new Promise(resolve => setTimeout(resolve, 3_200)); // the token's own lifetime
        const called = await trusting('call', 'a', 'whoami');
        assert.match(called.stdout, /alice/, called.stderr);
        assert.ok((await count()).refresh_token >= 1, 'refreshed');
        assert.equal((await trusting('logout', 'a')).status, OK);
        assert.ok((await count()).revoked >= 1, 'revoked');
        const alone = await run({ mcpServers: { a: { url: authority.url, type: 'http' } } }, ['login', 'a', '--start']);
        assert.equal(alone.status, DISCOVERY, alone.stderr);
        assert.match(alone.stderr, /unable to get local issuer certificate/);
    });
    test('G8 a client secret is renewed over TLS before a login and before a refresh', async () => {
        const liar = await startPeer(peerPath('liar'), 'secret-managed');
        const front = await secured(liar.url, 'good');
        try {
            const control = order => fetch(new URL('/control', liar.url), { method: 'POST', body: JSON.stringify(order) });
            await control({ front: new URL(front.url).origin });
            const config = { mcpServers: { a: { url: front.url, type: 'http', tls, auth: { mode: 'shared', callback_port: await freePort() } } } };
            for (const second of [['login', 'a', '--headless'], ['call', 'a', 'echo', '{}']]) {
                const home = join(directory.path, `renewing-${second[0]}`);
                for (const command of [['login', 'a', '--headless'], second]) {
                    aMinuteLater(home);
                    const { status, stderr } = await run(config, command, home);
                    assert.equal(status, OK, stderr);
                    await control({ expire: true });
                }
            }
            const seen = await (await fetch(new URL('/seen', liar.url))).json();
            const lines = seen.map(({ method, path }) => `${method} ${path}`).filter(line => line.includes('/register'));
            assert.deepEqual(lines, ['POST /register', 'PUT /register/client-1', 'POST /register', 'PUT /register/client-2']);
        } finally {
            front.stop();
            await liar.stop();
        }
    });
});
