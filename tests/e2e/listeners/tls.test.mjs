// The listener with TLS: sessions over it, certificates and their replacement, client certificates, and refused handshakes.
import assert from 'node:assert/strict';
import { execFile, execFileSync } from 'node:child_process';
import { chmodSync, copyFileSync, mkdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import { Agent } from 'node:https';
import { connect } from 'node:net';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { connect as connectTls } from 'node:tls';

import { big, callOf, Channel, everyWay } from '../channel.mjs';
import { binary, peerPath, startGateway, temporaryDirectory, until, writeConfig } from '../gateway.mjs';
import { initialize } from '../raw.mjs';

const mirror = peerPath('mirror');
const WAIT_MS = 10_000;

const directory = temporaryDirectory();
after(() => directory.remove());
const at = name => join(directory.path, name);

const openssl = (...args) => execFileSync('openssl', args, { cwd: directory.path, stdio: ['ignore', 'ignore', 'pipe'] });
const KEY = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-noenc'];

/** Makes NAME.crt and NAME.key; signed by the authority, if there is one. */
function certificate(name, { authority, names = 'DNS:localhost,IP:127.0.0.1', extra = [] } = {}) {
    const by = authority ? ['-CA', `${authority}.crt`, '-CAkey', `${authority}.key`] : [];
    const extensions = ['-addext', `subjectAltName=${names}`, ...extra.flatMap(line => ['-addext', line])];
    openssl('req', '-x509', ...KEY, '-keyout', `${name}.key`, '-out', `${name}.crt`, '-days', '30', '-subj', `/CN=${name}`, ...extensions, ...by);
}

const END_ENTITY = ['basicConstraints=critical,CA:FALSE'];
before(() => {
    openssl('req', '-x509', ...KEY, '-keyout', 'ca.key', '-out', 'ca.crt', '-days', '30', '-subj', '/CN=ca');
    openssl('req', '-x509', ...KEY, '-keyout', 'other.key', '-out', 'other.crt', '-days', '30', '-subj', '/CN=other');
    for (const name of ['one', 'two']) certificate(name, { authority: 'ca', extra: END_ENTITY });
    const names = 'DNS:agent.example,URI:spiffe://example/agent,email:agent@example.org,IP:10.0.0.1';
    certificate('agent', { authority: 'ca', names, extra: [...END_ENTITY, 'extendedKeyUsage=clientAuth'] });
    certificate('server-only', { authority: 'ca', names, extra: [...END_ENTITY, 'extendedKeyUsage=serverAuth'] });
    certificate('stranger', { authority: 'other', names, extra: [...END_ENTITY, 'extendedKeyUsage=clientAuth'] });
    writeFileSync(at('garbage'), 'no certificate\n');
    openssl('pkcs8', '-topk8', '-in', 'one.key', '-out', 'locked.key', '-passout', 'pass:x');
});

const file = name => readFileSync(at(name));
const tlsOf = (name, more = {}) => ({ certificate: at(`${name}.crt`), key: at(`${name}.key`), ...more });
const trusting = (more = {}) => ({ ca: file('ca.crt'), ...more });
const start = (tls, config = {}) => startGateway({ listen: [{ address: '127.0.0.1:0', tls }], mcpServers: { m: { command: mirror } }, ...config });
const portOf = ({ url }) => Number(new URL(url).port);

/** The common name of the certificate that a new connection receives. */
function shown(gateway) {
    return new Promise((resolve, reject) => {
        const socket = connectTls({ host: '127.0.0.1', port: portOf(gateway), ...trusting() }, () => {
            resolve(socket.getPeerCertificate().subject.CN);
            socket.destroy();
        });
        socket.on('error', reject);
    });
}

/** Copies a pair to the place where the gateway reads it, each file by a rename. */
function install(name, to) {
    for (const kind of ['key', 'crt']) {
        copyFileSync(at(`${name}.${kind}`), at(`${to}.${kind}.new`));
        renameSync(at(`${to}.${kind}.new`), at(`${to}.${kind}`));
    }
}

/** True if the gateway still has the connection of this socket of a caller open. */
function holds(gateway, { localPort }) {
    const [ours, theirs] = [portOf(gateway), localPort].map(port => port.toString(16).toUpperCase().padStart(4, '0'));
    return new RegExp(`^ *\\d+: [0-9A-F]+:${ours} [0-9A-F]+:${theirs} 01 `, 'm').test(readFileSync('/proc/net/tcp', 'latin1'));
}

/** Milliseconds of processor time the process has used. */
function cpuOf(pid) {
    const fields = readFileSync(`/proc/${pid}/stat`, 'latin1').replace(/^.*\) /, '').split(' ');
    return (Number(fields[11]) + Number(fields[12])) * 10;
}

/** How long until the socket is closed. */
async function closedAfter(socket) {
    const began = Date.now();
    await Promise.race([new Promise(resolve => socket.on('error', () => {}).on('close', resolve)), sleep(WAIT_MS)]);
    return Date.now() - began;
}

describe('a TLS listener', () => {
    let gateway, hasty; // deadlines that are short enough to wait for are too short for a busy machine's handshakes
    before(async () => {
        gateway = await start(tlsOf('one'), { timeouts: { stream_after: '50ms', heartbeat: '200ms' }, limits: { body_timeout: '8s' } });
        hasty = await start(tlsOf('one'), { limits: { header_timeout: '700ms' } });
    });
    after(async () => {
        await gateway.stop();
        await hasty.stop();
    });

    test('the log shows the URL of a TLS listener', () => assert.match(gateway.url, /^https:\/\/127\.0\.0\.1:\d+\/mcp$/));

    for (const [name, body] of everyWay) test(name, () => body(gateway.url, trusting()));

    test('a slow call gets an event stream with heartbeats and does not use processor time while it waits', async () => {
        const channel = await Channel.open(gateway.url, trusting());
        const res = await channel.begin(callOf('m__wait', { file: at('go') }));
        assert.match(res.headers['content-type'], /event-stream/);
        let seen = '';
        res.setEncoding('utf8').on('data', chunk => (seen += chunk));
        await until(() => seen.includes(': keepalive'), WAIT_MS, 'a heartbeat');
        const before = cpuOf(gateway.pid);
        await sleep(1_000);
        assert.ok(cpuOf(gateway.pid) - before < 300, `${cpuOf(gateway.pid) - before} ms of processor time in a second`);
        writeFileSync(at('go'), '');
        await until(() => seen.includes('waited'), WAIT_MS, 'the answer');
    });

    test('messages arrive on a GET stream', async () => {
        const channel = await Channel.open(gateway.url, trusting());
        const res = await channel.begin(undefined, { method: 'GET' });
        let seen = '';
        res.setEncoding('utf8').on('data', chunk => (seen += chunk));
        await channel.request('tools/list');
        assert.equal(await channel.call('m__grow', { name: 'grown' }), 'grown');
        await until(() => seen.includes('notifications/tools/list_changed'), WAIT_MS, 'the notification');
        res.destroy();
    });

    test('a caller that disconnects frees its stream', async () => {
        const channel = await Channel.open(gateway.url, trusting());
        (await channel.begin(undefined, { method: 'GET' })).destroy();
        await until(async () => {
            const again = await channel.begin(undefined, { method: 'GET' });
            again.destroy();
            return again.statusCode === 200;
        }, WAIT_MS, 'a second stream');
    });

    test('a connection is kept open, also after an answer that took time', async () => {
        const agent = new Agent({ keepAlive: true, maxSockets: 1, ...trusting() });
        const channel = await Channel.open(gateway.url, { agent });
        const sockets = new Set();
        for (let i = 0; i < 50; i++) sockets.add((await channel.request('tools/call', { name: 'm__mirror', arguments: {} })).socket);
        assert.equal(sockets.size, 1);
        agent.destroy();
    });

    test('requests in one TLS record are all answered', async () => {
        const channel = await Channel.open(gateway.url, trusting());
        const socket = connectTls({ host: '127.0.0.1', port: portOf(gateway), ...trusting() });
        const request = id => {
            const body = JSON.stringify(callOf('m__reply', big(id), id));
            const headers = { host: 'localhost', 'content-type': 'application/json', accept: 'application/json, text/event-stream', ...channel.session };
            const lines = Object.entries({ ...headers, 'content-length': body.length }).map(([name, value]) => `${name}: ${value}\r\n`);
            return `POST /mcp HTTP/1.1\r\n${lines.join('')}\r\n${body}`;
        };
        let seen = '';
        socket.setEncoding('utf8').on('data', chunk => (seen += chunk));
        socket.write([11, 12, 13, 14].map(request).join(''));
        await until(() => [11, 12, 13, 14].every(id => seen.includes(`"id":${id},`)), WAIT_MS, 'four answers');
        socket.destroy();
    });

    test('a caller that does not read is cut off', async () => {
        const channel = await Channel.open(gateway.url, trusting());
        const res = await channel.begin(callOf('m__reply', big(20 << 20)));
        res.pause();
        assert.ok(holds(gateway, res.socket));
        await until(() => !holds(gateway, res.socket), 3 * WAIT_MS, 'the connection is closed'); // sending the answer takes a while
        res.destroy();
    });

    for (const [name, first] of [['silence', ''], ['half a ClientHello', '160301020001000']])
        test(`${name} instead of a handshake is cut off at the header deadline`, async () => {
            const socket = connect({ host: '127.0.0.1', port: portOf(hasty) });
            if (first) socket.write(Buffer.from(first, 'hex'));
            const took = await closedAfter(socket);
            assert.ok(took > 300 && took < 2_000, `closed after ${took} ms`);
        });

    test('a handshake byte by byte is cut off at the header deadline', async () => {
        const socket = connect({ host: '127.0.0.1', port: portOf(hasty) });
        const hello = Buffer.from('16030102000100', 'hex');
        let sent = 0;
        const drip = setInterval(() => socket.write(hello.subarray(sent, ++sent)), 150);
        const took = await closedAfter(socket);
        clearInterval(drip);
        assert.ok(took < 2_000, `closed after ${took} ms`);
    });

    test('incomplete handshakes, incomplete requests and pausing callers do not use processor time', async () => {
        const slow = await start(tlsOf('one'));
        const channel = await Channel.open(slow.url, trusting());
        const open = Array.from({ length: 30 }, () => connect({ host: '127.0.0.1', port: portOf(slow) }));
        for (const socket of open) socket.write(Buffer.from('1603010200010001', 'hex'));
        const half = connectTls({ host: '127.0.0.1', port: portOf(slow), ...trusting() });
        half.write('POST /mcp HTTP/1.1\r\nHo');
        const res = await channel.begin(callOf('m__reply', big(20 << 20)));
        res.pause();
        await sleep(1_000);
        const before = cpuOf(slow.pid);
        await sleep(1_000);
        const used = cpuOf(slow.pid) - before;
        assert.ok(used < 300, `${used} ms of processor time in a second`);
        await slow.stop(); // also with all of them open
        for (const socket of [...open, half, res]) socket.destroy();
    });

    test('plain HTTP is closed without an answer', async () => {
        const socket = connect({ host: '127.0.0.1', port: portOf(gateway) });
        let seen = Buffer.alloc(0);
        socket.on('data', chunk => (seen = Buffer.concat([seen, chunk])));
        socket.write('GET /mcp HTTP/1.1\r\nHost: localhost\r\n\r\n');
        const took = await closedAfter(socket);
        assert.ok(took < 2_000, `closed after ${took} ms`);
        assert.ok(!seen.toString('latin1').includes('HTTP/'), seen.toString('latin1'));
    });

    const versions = { TLSv1: false, 'TLSv1.1': false, 'TLSv1.2': true, 'TLSv1.3': true };
    for (const [version, accepted] of Object.entries(versions))
        test(`${version} is ${accepted ? 'accepted' : 'refused'}`, async () => {
            const settings = { minVersion: version, maxVersion: version, ciphers: 'ALL:@SECLEVEL=0', ...trusting() };
            const got = await new Promise(resolve => {
                const socket = connectTls({ host: '127.0.0.1', port: portOf(gateway), ...settings }, () => {
                    resolve(socket.getProtocol());
                    socket.destroy();
                });
                socket.on('error', ({ code }) => resolve(code));
            });
            if (accepted) assert.equal(got, version);
            else assert.match(String(got), /ALERT|ECONNRESET|VERSION/);
        });

    test('HTTP/1.1 is chosen where the caller offers more', async () => {
        const chosen = await new Promise((resolve, reject) => {
            const socket = connectTls({ host: '127.0.0.1', port: portOf(gateway), ALPNProtocols: ['h2', 'http/1.1'], ...trusting() }, () => {
                resolve(socket.alpnProtocol);
                socket.destroy();
            });
            socket.on('error', reject);
        });
        assert.equal(chosen, 'http/1.1');
    });
});

describe('replaced certificates', () => {
    let gateway;
    before(async () => {
        install('one', 'used');
        gateway = await start(tlsOf('used'));
    });
    after(() => gateway.stop());
    const errors = () => gateway.log().split('cannot replace the certificate').length - 1;

    test('a replaced certificate is shown to new connections and open ones continue', async () => {
        const agent = new Agent({ keepAlive: true, maxSockets: 1, ...trusting() });
        const channel = await Channel.open(gateway.url, { agent });
        const { socket } = await channel.request('ping');
        assert.equal(await shown(gateway), 'one');
        install('two', 'used');
        await until(async () => (await shown(gateway)) === 'two', WAIT_MS, 'the new certificate');
        const later = await channel.request('tools/call', { name: 'm__reply', arguments: big(1 << 20) });
        assert.equal(later.socket, socket);
        assert.equal(socket.getPeerCertificate().subject.CN, 'one');
        assert.equal(errors(), 0);
        agent.destroy();
    });

    const broken = {
        garbage: () => copyFileSync(at('garbage'), at('used.crt')),
        'the certificate of another key': () => copyFileSync(at('other.key'), at('used.key')),
        'an empty file': () => writeFileSync(at('used.crt'), ''),
        'a missing file': () => renameSync(at('used.crt'), at('used.gone'))
    };
    for (const [name, damage] of Object.entries(broken))
        test(`a replaced certificate that is ${name} is logged once and not used`, async () => {
            install('two', 'used');
            await sleep(2_500);
            const before = errors();
            damage();
            await until(() => errors() > before, WAIT_MS, 'a line in the log');
            await gateway.line(/error cannot replace the certificate; the previous one stays in use detail=.*used\.(crt|key)/);
            assert.equal(await shown(gateway), 'two');
            await sleep(2_500);
            assert.equal(errors(), before + 1);
            install('one', 'used');
            await until(async () => (await shown(gateway)) === 'one', WAIT_MS, 'the repaired certificate');
        });

    test('a certificate is replaced while the configuration file is not valid', async t => {
        install('one', 'renewed');
        const own = await start(tlsOf('renewed'));
        t.after(() => own.stop());
        assert.match(await own.reconfigure('{"mcpServers": {'), /^configuration not reloaded/);
        install('two', 'renewed');
        await until(async () => (await shown(own)) === 'two', WAIT_MS, 'the new certificate');
    });

    test('a certificate that is overwritten in place takes effect', async () => {
        install('one', 'used');
        await until(async () => (await shown(gateway)) === 'one', WAIT_MS, 'the first');
        writeFileSync(at('used.key'), file('two.key'));
        writeFileSync(at('used.crt'), file('two.crt'));
        await until(async () => (await shown(gateway)) === 'two', WAIT_MS, 'the second');
    });
});

describe('client_ca', () => {
    let gateway;
    before(async () => (gateway = await start(tlsOf('one', { client_ca: at('ca.crt') }), { log: { level: 'debug' } })));
    after(() => gateway.stop());
    const certified = name => trusting({ cert: file(`${name}.crt`), key: file(`${name}.key`) });
    const logged = async work => {
        const from = gateway.log().length;
        await work();
        await sleep(100);
        return gateway.log().slice(from);
    };
    const asking = name => async () => assert.ok(await Channel.open(gateway.url, certified(name)));

    test('DNS, URI and email names of a good certificate are read, once for each connection', async () => {
        const agent = new Agent({ keepAlive: true, maxSockets: 1, ...certified('agent') });
        const said = await logged(() => Channel.open(gateway.url, { agent }));
        const names = [...said.matchAll(/client certificate (\S+)=(\S+)/g)].map(([, kind, name]) => [kind, name]);
        assert.deepEqual(names, [['dns', 'agent.example'], ['uri', 'spiffe://example/agent'], ['email', 'agent@example.org']]);
        agent.destroy();
    });

    for (const name of ['stranger', 'server-only'])
        test(`the certificate "${name}" does not identify a caller`, async () => {
            const said = await logged(asking(name));
            assert.match(said, /warn +client certificate rejected detail=/);
            assert.doesNotMatch(said, /client certificate (dns|uri|email)=/);
        });

    test('a caller without a certificate has no certificate names', async () => {
        const said = await logged(async () => assert.ok(await Channel.open(gateway.url, trusting())));
        assert.doesNotMatch(said, /client certificate/);
    });
});

describe('P12 a proxy that presents a certificate', () => {
    let gateway;
    before(async () => {
        const rules = [{ id: 'echo', effect: 'allow', description: 'every caller may use echo', tenants: ['*'], subjects: ['authenticated'], servers: ['m'], kinds: ['tool'], names: ['*'] }];
        writeFileSync(at('policy.json'), JSON.stringify({ version: 1, description: 'Behind a proxy', rules }));
        gateway = await start(tlsOf('one', { client_ca: at('ca.crt') }), {
            auth: { providers: [{ type: 'forwarded-user', trusted_proxies: ['127.0.0.1'], certificate_names: ['agent.example'] }] },
            policy: at('policy.json')
        });
    });
    after(() => gateway.stop());
    const status = async (name, headers = { 'x-forwarded-user': 'ana' }) => {
        const options = name ? trusting({ cert: file(`${name}.crt`), key: file(`${name}.key`) }) : trusting();
        return (await new Channel(gateway.url, options).send(initialize('2025-11-25'), { headers })).status;
    };

    test('P12 a proxy with the configured certificate name is trusted', async () => assert.equal(await status('agent'), 200));
    test('P12 a proxy with the configured certificate name and without a user gets 401', async () => assert.equal(await status('agent', {}), 401));
    for (const name of ['stranger', 'server-only', 'one', undefined])
        test(`P12 a proxy with ${name ? 'the certificate ' + name : 'no certificate'} gets 401`, async () => assert.equal(await status(name), 401));
});

describe('mistakes in the configuration of TLS', () => {
    const wrong = {
        'without its certificate file': [() => ({ ...tlsOf('one'), certificate: at('none.crt') }), /tls\.certificate: .*none\.crt: No such file or directory; write the file/],
        'without its key file': [() => ({ ...tlsOf('one'), key: at('none.key') }), /tls\.key: .*none\.key: No such file or directory; write the file/],
        'without its authorities file': [() => tlsOf('one', { client_ca: at('none.crt') }), /tls\.client_ca: .*none\.crt: No such file/],
        'with a folder as certificate': [() => ({ ...tlsOf('one'), certificate: directory.path }), /tls\.certificate: .*: is not a regular file, or is too large/],
        'with garbage for a certificate': [() => ({ ...tlsOf('one'), certificate: at('garbage') }), /tls\.certificate: .*garbage: does not contain a PEM certificate/],
        'with garbage for a key': [() => ({ ...tlsOf('one'), key: at('garbage') }), /tls\.key: .*garbage: does not contain a PEM private key/],
        'with garbage for authorities': [() => tlsOf('one', { client_ca: at('garbage') }), /tls\.client_ca: .*garbage: does not contain a PEM certificate/],
        'with a key that has a passphrase': [() => ({ ...tlsOf('one'), key: at('locked.key') }), /tls\.key: .*locked\.key: .*passphrase; remove the passphrase/],
        'with the key of another certificate': [() => ({ ...tlsOf('one'), key: at('two.key') }), /tls\.key: .*two\.key: does not belong to the certificate/],
        'with a certificate alone': [() => ({ certificate: at('one.crt') }), /\/listen\/0\/tls\/key: missing; TLS needs a certificate and its key/],
        'with authorities alone': [() => ({ client_ca: at('ca.crt') }), /\/listen\/0\/tls\/certificate: missing/],
        'with a mode': [() => tlsOf('one'), /\/listen\/0\/mode: applies only to a unix socket/, { mode: '0600' }],
        'beyond loopback without a provider': [() => tlsOf('one'), /\/listen\/0\/address: 0\.0\.0\.0:0 is not loopback/, { address: '0.0.0.0:0' }]
    };
    for (const [name, [tls, message, more = {}]] of Object.entries(wrong))
        test(`a listener ${name} stops the start`, async () => {
            const folder = temporaryDirectory();
            const path = writeConfig(folder.path, { listen: [{ address: '127.0.0.1:0', tls: tls(), ...more }], mcpServers: {} });
            const { status, stderr } = await new Promise(resolve => {
                const child = execFile(binary, ['serve', '--config', path], { timeout: WAIT_MS }, (_error, _stdout, text) => resolve({ status: child.exitCode, stderr: text }));
            });
            folder.remove();
            assert.equal(status, 3, stderr);
            assert.match(stderr, message);
        });

    test('a listener with an unreadable key stops the start', { skip: process.getuid() === 0 && 'root reads everything' }, async () => {
        copyFileSync(at('one.key'), at('secret.key'));
        chmodSync(at('secret.key'), 0);
        await assert.rejects(start({ ...tlsOf('one'), key: at('secret.key') }), /Permission denied; .*make it readable/);
    });
});

test('plain HTTP, TLS and a unix socket work side by side', async () => {
    const listen = [{ address: '127.0.0.1:0' }, { address: '127.0.0.1:0', tls: tlsOf('one') }, { address: `unix:${at('beside.sock')}` }];
    const gateway = await startGateway({ listen, mcpServers: { m: { command: mirror } } });
    const [, secure] = await gateway.line(/url=(https:\S+)/, WAIT_MS);
    await gateway.line(/url=unix:/, WAIT_MS);
    await Channel.open(gateway.url);
    await Channel.open(secure, trusting());
    await Channel.open('http://localhost/mcp', { socketPath: at('beside.sock') });
    await gateway.stop();
});

test('paths of a listener are relative to the configuration file', async () => {
    const folder = temporaryDirectory();
    mkdirSync(join(folder.path, 'tls'));
    for (const name of ['one.crt', 'one.key']) copyFileSync(at(name), join(folder.path, 'tls', name));
    const path = writeConfig(folder.path, { listen: [{ address: '127.0.0.1:0', tls: { certificate: 'tls/one.crt', key: 'tls/none.key' } }], mcpServers: {} });
    const stderr = await new Promise(resolve => execFile(binary, ['serve', '--config', path], { timeout: WAIT_MS }, (_error, _stdout, text) => resolve(text)));
    folder.remove();
    assert.ok(stderr.includes(`tls.key: ${join(folder.path, 'tls/none.key')}: No such file`), stderr);
});
