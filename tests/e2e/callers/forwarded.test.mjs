// The provider forwarded-user: identity headers from a proxy in front, including a real nginx, and the misuse that must be refused.
import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdirSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { connect } from 'node:net';
import { dirname, join } from 'node:path';
import { after, before, describe, test } from 'node:test';

import { binary, startGateway, temporaryDirectory, until } from '../gateway.mjs';
import { policyRule } from '../policy.mjs';
import { initialize, post, reply, send } from '../raw.mjs';

const demo = join(dirname(binary), 'postern-demo');
const SECRET = 'a-secret-of-at-least-thirty-two-characters';

const policy = {
    version: 1,
    description: 'Forwarded users in this test',
    rules: [policyRule('staff-echo', 'allow', { subjects: ['role:staff'], servers: ['demo'], names: ['echo'] })]
};

let folder;
before(() => {
    folder = temporaryDirectory();
    writeFileSync(join(folder.path, 'policy.json'), JSON.stringify(policy));
});
after(() => folder?.remove());

const start = provider =>
    startGateway({
        auth: { providers: [{ type: 'forwarded-user', groups_header: 'X-Forwarded-Groups', ...provider }] },
        policy: join(folder.path, 'policy.json'),
        mcpServers: { demo: { command: demo } }
    });

const open = (url, headers) => send(url, { headers: post(headers), body: initialize('2025-11-25') });

async function call(url, headers) {
    const opened = await open(url, headers);
    assert.equal(opened.status, 200, opened.body);
    const session = { ...headers, 'mcp-session-id': opened.headers['mcp-session-id'] };
    const body = { jsonrpc: '2.0', id: 2, method: 'tools/call', params: { name: 'demo__echo', arguments: { message: 'hi' } } };
    return reply(await send(url, { headers: post(session), body }));
}

describe('identity headers from a trusted proxy on loopback', () => {
    let gateway;
    before(async () => (gateway = await start({ trusted_proxies: ['127.0.0.1'] })));
    after(() => gateway?.stop());

    test('P15 a name with letters beyond ASCII is one name', async () => assert.match(await raw(gateway.url, [`X-Forwarded-User: ${latin('Zoë Ångström')}`]), /^HTTP\/1\.1 200 /));
    test('P2 an identity consists of the forwarded user and groups', async () => {
        assert.ok((await call(gateway.url, { 'x-forwarded-user': 'ana', 'x-forwarded-groups': 'guests, staff' })).result);
        assert.equal((await call(gateway.url, { 'x-forwarded-user': 'bob', 'x-forwarded-groups': 'guests' })).error.code, 403);
    });
    test('P13 a request without identity headers gets 401', async () => assert.equal((await open(gateway.url, {})).status, 401));
    for (const [name, lines] of Object.entries({
        'P13 a repeated user header': ['X-Forwarded-User: ana', 'X-Forwarded-User: ana'],
        'P13 a user header repeated with underscores': ['X-Forwarded-User: ana', 'X_Forwarded_User: eve'],
        'P13 a user header spelled only with underscores': ['X_Forwarded_User: eve'],
        'P13 a request with two groups headers': ['X-Forwarded-User: ana', 'X-Forwarded-Groups: a', 'X-Forwarded-Groups: staff'],
        'P13 a user header with a space before the colon': ['X-Forwarded-User : ana'],
        'P13 a user header repeated with a space before the colon': ['X-Forwarded-User: ana', 'X-Forwarded-User : eve'],
        'P13 a folded user header': ['X-Forwarded-User: ana', ' eve'],
        'P13 a user header repeated in another case': ['X-Forwarded-User: ana', 'x-FORWARDED-user: ana'],
        'P15 an empty user': ['X-Forwarded-User:'],
        'P15 a user with a control character': ['X-Forwarded-User: an\u0001a'],
        'P15 a user that is not UTF-8': ['X-Forwarded-User: an\xffa'],
        'P15 a group that is not UTF-8': ['X-Forwarded-User: ana', 'X-Forwarded-Groups: staff,\xc3'],
        'P15 a user of 257 bytes': [`X-Forwarded-User: ${'u'.repeat(257)}`],
        'P15 a group of 129 bytes': ['X-Forwarded-User: ana', `X-Forwarded-Groups: staff,${'g'.repeat(129)}`],
        'P15 a request with 201 groups': ['X-Forwarded-User: ana', `X-Forwarded-Groups: ${Array.from({ length: 201 }, (_, i) => `g${i}`).join(',')}`]
    }))
        test(`${name} gets 400`, async () => assert.match(await raw(gateway.url, lines), /^HTTP\/1\.1 400 /));
});

describe('identity headers from an untrusted peer', () => {
    let gateway;
    before(async () => (gateway = await start({ trusted_proxies: ['192.0.2.0/24'], secret: SECRET })));
    after(() => gateway?.stop());

    test('P14 identity headers of an untrusted peer get 400', async () =>
        assert.equal((await open(gateway.url, { 'x-forwarded-user': 'ana', 'x-postern-secret': SECRET })).status, 400));
    test('P11 the peer address is that of the socket and not of X-Forwarded-For or Forwarded', async () => {
        for (const headers of [{ 'x-forwarded-for': '192.0.2.1' }, { 'x-real-ip': '192.0.2.1' }, { forwarded: 'for=192.0.2.1' }])
            assert.equal((await open(gateway.url, { 'x-forwarded-user': 'ana', 'x-postern-secret': SECRET, ...headers })).status, 400);
    });
    test('a request of an untrusted peer without identity headers gets 401', async () => assert.equal((await open(gateway.url, {})).status, 401));
});

describe('identity headers with a secret', () => {
    let gateway;
    before(async () => (gateway = await start({ trusted_proxies: ['127.0.0.0/8'], secret: SECRET })));
    after(() => gateway?.stop());

    test('P12 a request without the right secret is refused', async () => {
        const user = { 'x-forwarded-user': 'ana' };
        assert.equal((await open(gateway.url, { ...user, 'x-postern-secret': SECRET })).status, 200);
        assert.equal((await open(gateway.url, { ...user, 'x-postern-secret': `${SECRET}x` })).status, 401);
        assert.equal((await open(gateway.url, user)).status, 401);
    });
    test('P16 the secret of the proxy is not in the log', () => assert.ok(!gateway.log().includes(SECRET)));
});

describe('P16 identity headers are not passed on', () => {
    test('P16 identity headers, secrets and tokens reach neither the server, nor the log, nor the audit', async () => {
        const seen = [];
        const peer = createServer((request, response) => {
            seen.push(JSON.stringify(request.rawHeaders));
            let body = '';
            request.on('data', chunk => (body += chunk)).on('end', () => {
                const { id, method } = body ? JSON.parse(body) : {};
                const result = { initialize: { protocolVersion: '2025-11-25', capabilities: { tools: {} }, serverInfo: { name: 'p', version: '1' } }, 'tools/list': { tools: [{ name: 'echo', inputSchema: { type: 'object' } }] }, 'tools/call': { content: [] } }[method];
                if (id === undefined) response.writeHead(method ? 202 : 405).end();
                else response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify({ jsonrpc: '2.0', id, result: result ?? {} }));
            });
        });
        peer.listen(0, '127.0.0.1');
        await once(peer, 'listening');
        const gateway = await startGateway({
            log: { level: 'debug' },
            auth: { providers: [{ type: 'forwarded-user', trusted_proxies: ['127.0.0.1'], secret: SECRET, groups_header: 'X-Forwarded-Groups' }] },
            policy: join(folder.path, 'policy.json'),
            mcpServers: { demo: { url: `http://127.0.0.1:${peer.address().port}/mcp` } }
        });
        try {
            const headers = { 'x-forwarded-user': 'ana-the-user', 'x-forwarded-groups': 'staff,secret-group', 'x-postern-secret': SECRET, cookie: 'c=cookie-of-ana' };
            assert.ok((await call(gateway.url, headers)).result);
            const calls = seen.join('\n');
            assert.ok(seen.length >= 3, 'the server was asked');
            for (const word of ['ana-the-user', 'secret-group', SECRET, 'cookie-of-ana', 'forwarded', 'postern-secret']) assert.ok(!calls.toLowerCase().includes(word), word);
            const audit = () => execFileSync(binary, ['audit', '--file', join(gateway.state, 'audit.db')], { encoding: 'utf8' });
            await until(() => audit().includes('ana-the-user'), 5_000, 'the call in the audit log');
            for (const word of [SECRET, 'cookie-of-ana']) assert.ok(!gateway.log().includes(word) && !audit().includes(word), word);
        } finally {
            await gateway.stop();
            peer.closeAllConnections();
            peer.close();
        }
    });
});

describe('a gateway behind nginx', () => {
    let gateway, nginx, port;
    before(async () => {
        gateway = await start({ trusted_proxies: ['127.0.0.1'], secret: SECRET });
        ({ nginx, port } = await startNginx(new URL(gateway.url)));
    });
    after(async () => {
        if (nginx) {
            nginx.kill('SIGTERM');
            await once(nginx, 'exit');
        }
        await gateway?.stop();
    });

    test('nginx replaces identity headers that a client sends', async () => {
        const url = `http://127.0.0.1:${port}/mcp`;
        assert.ok((await call(url, {})).result);
        assert.ok((await call(url, { 'x-forwarded-user': 'eve', 'x-forwarded-groups': 'none' })).result, 'nginx replaces the headers');
    });
});

/** The bytes of a text as UTF-8, each as one character, as raw() sends them. */
const latin = text => Buffer.from(text, 'utf8').toString('latin1');

/** Sends an initialize with exactly these header lines, one byte for each character, and returns the answer. */
function raw(url, lines) {
    const { hostname, port, host } = new URL(url);
    const body = JSON.stringify(initialize('2025-11-25'));
    const head = ['POST /mcp HTTP/1.1', `Host: ${host}`, 'Content-Type: application/json', 'Accept: application/json, text/event-stream', `Content-Length: ${body.length}`, 'Connection: close'];
    return new Promise((resolve, reject) => {
        const socket = connect(Number(port), hostname);
        let text = '';
        socket.on('data', chunk => (text += chunk)).on('close', () => resolve(text)).on('error', reject);
        socket.end(Buffer.from([...head, ...lines, '', body].join('\r\n'), 'latin1'));
    });
}

async function startNginx(target) {
    const run = join(folder.path, 'nginx');
    mkdirSync(run);
    const socket = join(run, 'port');
    const port = 20000 + (process.pid % 20000);
    writeFileSync(
        join(run, 'nginx.conf'),
        `daemon off; master_process off; pid ${run}/pid; error_log ${run}/error.log;
events {}
http {
    access_log off; client_body_temp_path ${run}/b; proxy_temp_path ${run}/p; fastcgi_temp_path ${run}/f; uwsgi_temp_path ${run}/u; scgi_temp_path ${run}/s;
    server {
        listen 127.0.0.1:${port};
        location / {
            proxy_pass ${target.origin};
            proxy_http_version 1.1;
            proxy_buffering off;
            proxy_set_header Host $proxy_host;
            proxy_set_header X-Forwarded-User ana;
            proxy_set_header X-Forwarded-Groups staff;
            proxy_set_header X-Postern-Secret ${SECRET};
        }
    }
}
`
    );
    assert.ok(!existsSync(socket));
    const nginx = spawn('nginx', ['-p', run, '-c', join(run, 'nginx.conf')], { stdio: ['ignore', 'ignore', 'inherit'] });
    await until(async () => (await fetch(`http://127.0.0.1:${port}/nothing`).catch(() => undefined)) !== undefined, 10_000, 'nginx');
    return { nginx, port };
}
