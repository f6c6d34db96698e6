// Logins and their consequences: the requests, the stored grants, and which callers may use them. The tables of lies are in liar.test.mjs.
import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { connect, createServer } from 'node:net';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { describe, test } from 'node:test';

import { binary, freePort, startGateway, until } from '../gateway.mjs';
import { EXIT, withLiar } from '../liar.mjs';
import { initialize, post, reply, send } from '../raw.mjs';

const { OK, USAGE, CONFIG, UNAVAILABLE, ANSWER, DISCOVERY, STORE, TOKEN } = EXIT;

/** All logins of a test use one port, even if other tests run meanwhile: another port would need another registration. */
const withOwnPort = async (lie, body) => withLiar(lie, { callback_port: await freePort() }, body);

describe('bounded retries of a login', () => {
    test('T13 an unknown code restarts the login only once', () =>
        withLiar('token-200-error', {}, async liar => {
            await liar.login();
            assert.equal((await liar.seen('/authorize')).length, 2);
        }));
    test('G10 an unknown client is registered again only once', () =>
        withLiar('client-unknown', {}, async liar => {
            await liar.login();
            assert.equal((await liar.seen('/register')).length, 2);
        }));
});

describe('doctor', () => {
    test('D17 doctor shows each URL, its status and the decision without registering', () =>
        withLiar('resource-401', { scope: 'a' }, async liar => {
            const { status, stdout } = await liar.run('doctor', 'liar');
            assert.equal(status, OK);
            const said = stdout.replaceAll(liar.origin, '').split('\n');
            assert.deepEqual(said.slice(0, 9), [
                'POST /mcp: HTTP 401',
                'GET /.well-known/oauth-protected-resource/mcp: HTTP 401',
                'GET /.well-known/oauth-protected-resource: HTTP 200',
                'GET /.well-known/oauth-authorization-server: HTTP 200',
                'authorization server: ',
                'client: registered when needed',
                'resource: /mcp',
                'scope: a',
                'authorization endpoint: /authorize'
            ]);
            assert.deepEqual(await liar.seen('/register'), []);
        }));
    test('D17 doctor shows where discovery ends and why', () =>
        withLiar('issuer-other', {}, async liar => {
            const { status, stdout, stderr } = await liar.run('doctor', 'liar');
            assert.equal(status, DISCOVERY);
            assert.match(stdout, /oauth-authorization-server: HTTP 200/);
            assert.match(stderr, /another issuer/);
        }));
});

describe('requests of a login', () => {
    test('N6 N7 N8 A2 A6 G4 L3 requests have the required headers, PKCE, resource and registration', () =>
        withLiar('scopes', {}, async liar => {
            assert.equal((await liar.login()).status, OK);
            const [resource] = await liar.seen('/.well-known/oauth-protected-resource/mcp');
            assert.equal(resource.headers.accept, 'application/json');
            assert.equal(resource.headers['accept-encoding'], 'identity');
            assert.equal(resource.headers['mcp-protocol-version'], '2025-11-25');
            for (const request of await liar.seen()) assert.equal(request.headers['x-org'], undefined, `X-Org was sent to ${request.path}`);
            const [registration] = (await liar.seen('/register')).map(request => JSON.parse(request.body));
            assert.equal(registration.application_type, 'native');
            assert.deepEqual(registration.grant_types, ['authorization_code', 'refresh_token']);
            assert.match(registration.redirect_uris.join(), /^http:\/\/127\.0\.0\.1:80(8[5-9]|9\d)\/callback$/);
            const [{ query }] = await liar.seen('/authorize');
            assert.equal(query.code_challenge_method, 'S256');
            assert.equal(query.resource, liar.url);
            assert.equal(query.scope, 'read');
            const form = new URLSearchParams((await liar.seen('/token'))[0].body);
            assert.equal(form.get('resource'), liar.url);
            assert.equal(form.get('redirect_uri'), query.redirect_uri);
            assert.equal(form.get('client_id'), 'client-1');
        }));
    test('A6 the resource parameter is omitted if configured and in legacy mode', async () => {
        await withLiar('legacy', {}, async liar => {
            assert.equal((await liar.login()).status, OK);
            assert.equal((await liar.seen('/authorize'))[0].query.resource, undefined);
        });
        await withLiar('none', { resource: 'omit' }, async liar => {
            assert.equal((await liar.login()).status, OK);
            assert.equal((await liar.seen('/authorize'))[0].query.resource, undefined);
        });
    });
    test('A7 an empty list of scopes requests no scope', () =>
        withLiar('scopes-empty', {}, async liar => {
            await liar.login();
            assert.equal((await liar.seen('/authorize'))[0].query.scope, undefined);
        }));
    test('A8 offline_access is requested with consent if it is listed', () =>
        withLiar('offline', { scope: 'a' }, async liar => {
            await liar.login();
            const [{ query }] = await liar.seen('/authorize');
            assert.equal(query.scope, 'a offline_access');
            assert.equal(query.prompt, 'consent');
        }));
    test('A11 configured parameters are sent, but not reserved ones', () =>
        withLiar('none', { authorize_params: { audience: 'x y' } }, async liar => {
            await liar.login();
            assert.equal((await liar.seen('/authorize'))[0].query.audience, 'x y');
            writeFileSync(liar.config, JSON.stringify({ mcpServers: { liar: { url: liar.url, auth: { authorize_params: { state: 'x' } } } } }));
            assert.equal((await liar.login()).status, CONFIG);
        }));
    test('D3 only the metadata that the challenge names are fetched', () =>
        withLiar('metadata-elsewhere', {}, async liar => {
            assert.equal((await liar.login()).status, OK);
            assert.equal((await liar.seen('/elsewhere')).length, 1);
            assert.deepEqual(await liar.seen('/.well-known/oauth-protected-resource/mcp'), []);
            assert.equal((await liar.seen('/authorize'))[0].query.scope, 'from challenge');
        }));
    test('G1 G3 a configured client comes before a metadata document and that before a registration', async () => {
        const document = 'https://postern.example/oauth/client.json';
        const clientsOf = async liar => (await liar.seen('/authorize')).map(({ query }) => query.client_id);
        await withLiar('documents', { client_metadata_url: document }, async liar => {
            assert.equal((await liar.login()).status, OK);
            assert.deepEqual(await clientsOf(liar), [document]);
            assert.deepEqual(await liar.seen('/register'), []);
        });
        await withLiar('documents-broken', { client_metadata_url: document }, async liar => {
            assert.equal((await liar.login()).status, OK);
            assert.deepEqual(await clientsOf(liar), [document, 'client-1']);
        });
        await withLiar('none', { client_metadata_url: document }, async liar => {
            assert.equal((await liar.login()).status, OK);
            assert.deepEqual(await clientsOf(liar), ['client-1']);
        });
        await withLiar('documents', { client_metadata_url: document, client_id: 'agent', client_secret: 'agent+secret' }, async liar => {
            assert.equal((await liar.login()).status, OK);
            assert.deepEqual(await clientsOf(liar), ['agent']);
            await liar.control({ expire: true });
            assert.equal((await liar.call()).status, OK, 'refreshed with the secret of the configuration');
        });
    });
    for (const [lie, first, clients] of [['documents-broken', OK, ['DOCUMENT', 'client-1']], ['documents-refused', OK, ['DOCUMENT', 'client-1']], ['documents-page', ANSWER, ['DOCUMENT']]])
        test(`G3 a login after ${lie} remembers to use the registered client`, () =>
            withLiar(lie, {}, async liar => {
                const client_metadata_url = 'https://postern.example/oauth/client.json';
                liar.configure({ client_metadata_url, callback_port: await freePort() });
                assert.equal((await liar.loginAtOnce()).status, first);
                for (let i = 0; i < 2; i++) {
                    const { status, stderr } = await liar.loginAtOnce();
                    assert.equal(status, OK, stderr);
                }
                const asked = (await liar.seen('/authorize')).map(({ query }) => query.client_id);
                assert.deepEqual(asked, [...clients.map(id => (id === 'DOCUMENT' ? client_metadata_url : id)), 'client-1', 'client-1']);
                assert.equal((await liar.seen('/register')).length, 1);
            }));
    test('T4 an exchange without client_id in the body is retried with the other method, which is remembered', () =>
        withOwnPort('basic-overlooked', async liar => {
            for (let i = 0; i < 2; i++) assert.equal((await liar.login()).status, OK);
            assert.deepEqual((await liar.seen('/token')).map(({ headers }) => Boolean(headers.authorization)), [true, false, false]);
            assert.equal((await liar.seen('/register')).length, 1);
            await liar.control({ expire: true });
            assert.equal((await liar.call()).status, OK);
        }));
    test('D7 the configured authorization server is used before one with a grant and before the first', () =>
        withLiar('two-good-servers', { issuer: 'ORIGIN' }, async liar => {
            const asked = async () => (await liar.seen('/authorize')).map(({ away }) => (away ? 'first' : 'second'));
            assert.equal((await liar.login()).status, OK);
            liar.configure({});
            assert.equal((await liar.login()).status, OK);
            assert.equal((await liar.run('logout', 'liar', '--registration')).status, OK);
            assert.equal((await liar.login()).status, OK);
            assert.deepEqual(await asked(), ['second', 'second', 'first']);
        }));
    test('D7 an authorization server with a registration is used if none has a grant', () =>
        withLiar('two-good-servers', {}, async liar => {
            const callback_port = await freePort();
            liar.configure({ issuer: 'ORIGIN', callback_port });
            assert.equal((await liar.login()).status, OK);
            assert.equal((await liar.run('logout', 'liar')).status, OK);
            liar.configure({ callback_port });
            assert.equal((await liar.login()).status, OK);
            assert.deepEqual((await liar.seen('/authorize')).map(({ away }) => away), [false, false]);
            assert.equal((await liar.seen('/register')).length, 1);
        }));
    test('G9 a registration is reused at the next login, and --reregister creates a new one', () =>
        withLiar('none', {}, async liar => {
            const port = String(await freePort()); // a registration is for one redirect URI
            for (let i = 0; i < 2; i++) assert.equal((await liar.login('--callback-port', port)).status, OK);
            assert.equal((await liar.seen('/register')).length, 1);
            assert.equal((await liar.login('--callback-port', port, '--reregister')).status, OK);
            assert.equal((await liar.seen('/register')).length, 2);
        }));
    test('L1 the port of the last login is preferred, and another port is registered if it is taken', () =>
        withLiar('none', {}, async liar => {
            const port = await freePort();
            assert.equal((await liar.loginByBrowser('--callback-port', String(port))).status, OK);
            assert.equal((await liar.loginByBrowser()).status, OK);
            assert.equal((await liar.seen('/register')).length, 1);
            const holder = createServer().listen(port, '127.0.0.1');
            await once(holder, 'listening');
            assert.equal((await liar.loginByBrowser()).status, OK);
            assert.equal((await liar.seen('/register')).length, 2);
            holder.close();
        }));
    test('G8 a client secret that expires soon is not reused', () =>
        withLiar('secret-expired', {}, async liar => {
            await liar.login();
            await liar.login();
            assert.equal((await liar.seen('/register')).length, 2);
        }));
});

describe('one login attempt', () => {
    const portOf = ([{ body }]) => Number(new URL(JSON.parse(body).redirect_uris[0]).port);
    const answers = port =>
        new Promise(resolve => {
            const socket = connect(port, '127.0.0.1', () => socket.end(resolve(true))).on('error', () => resolve(false));
        });

    test('A1 the listener is open before its address is registered and the browser is started', () =>
        withLiar('none', {}, async liar => {
            for (const path of ['/register', '/authorize']) {
                await liar.control({ hold: path, times: 1 });
                const login = liar.loginByBrowser('--reregister');
                await liar.held();
                assert.ok(await answers(portOf((await liar.seen('/register')).slice(-1))), path);
                await liar.control({ release: true });
                assert.equal((await login).status, OK);
            }
        }));
    test('A2 A3 state and verifier are new each time, also when one login asks twice', () =>
        withLiar('token-200-error', {}, async liar => {
            for (let i = 0; i < 2; i++) await liar.login();
            const asked = (await liar.seen('/authorize')).map(({ query }) => query);
            assert.equal(asked.length, 4);
            for (const name of ['state', 'code_challenge']) assert.equal(new Set(asked.map(query => query[name])).size, 4, name);
            for (const { state } of asked) assert.ok(Buffer.from(state, 'base64url').length >= 16, 'of 128 bits');
            const verifiers = (await liar.seen('/token')).map(({ body }) => new URLSearchParams(body).get('code_verifier'));
            for (const verifier of verifiers) assert.match(verifier, /^[A-Za-z0-9_-]{43,128}$/);
        }));
    test('A4 D15 changed metadata do not affect a login in progress but the next one', () =>
        withLiar('none', {}, async liar => {
            const metadata = '/.well-known/oauth-authorization-server';
            await liar.control({ hold: '/authorize', times: 1 });
            const login = liar.login();
            await liar.held();
            const looks = (await liar.seen()).filter(({ path }) => path.startsWith('/.well-known')).length;
            await liar.control({ lie: 'token-link-local', release: true }); // the metadata from now on
            assert.equal((await login).status, OK);
            assert.equal((await liar.seen()).filter(({ path }) => path.startsWith('/.well-known')).length, looks);
            const [{ query }] = await liar.seen('/authorize');
            const form = new URLSearchParams((await liar.seen('/token'))[0].body);
            for (const name of ['redirect_uri', 'resource', 'client_id']) assert.equal(form.get(name), query[name], `T1: ${name}`);
            assert.equal((await liar.seen(metadata)).length, 1);
            assert.equal((await liar.login()).status, TOKEN, 'the metadata are not cached');
            assert.equal((await liar.seen(metadata)).length, 2);
        }));
    test('T12 a grant is stored before success is reported, and a grant that cannot be stored is a failure', () =>
        withLiar('none', {}, async liar => {
            const { child, ended } = liar.start('login', 'liar', '--headless');
            child.stderr.on('data', chunk => /Logged in/.test(chunk) && child.kill('SIGKILL'));
            assert.match((await ended).stderr, /Logged in/);
            assert.equal((await liar.call()).status, OK);
            await liar.control({ hold: '/token', when: 'after', times: 1 });
            const second = liar.login();
            await liar.held();
            const db = new DatabaseSync(join(liar.state, 'store.db'));
            db.exec('ALTER TABLE record RENAME TO away');
            await liar.control({ release: true });
            const { status, stderr } = await second;
            assert.equal(status, STORE, stderr);
            assert.doesNotMatch(stderr, /Logged in/);
            db.exec('ALTER TABLE away RENAME TO record');
            db.close();
            assert.equal((await liar.call()).status, OK, 'the earlier grant is intact');
        }));
    test('T12 a refused call is sent exactly once more', () =>
        withOwnPort('step-up', async liar => {
            const call = await liar.run('call', 'liar', 'echo', '{}', '--headless');
            assert.equal(call.status, OK, call.stderr);
            const methods = (await liar.seen('/mcp')).map(({ body }) => body && JSON.parse(body).method);
            assert.equal(methods.filter(method => method === 'tools/call').length, 2, 'the first was refused for its scope');
        }));
});

describe('use of a grant', () => {
    test('F2 F9 a rejected token is refreshed once and the rotated token is kept', () =>
        withLiar('none', {}, async liar => {
            assert.equal((await liar.login()).status, OK);
            for (let i = 0; i < 3; i++) {
                await liar.control({ expire: true });
                const call = await liar.call();
                assert.equal(call.status, OK, call.stderr);
            }
            const forms = (await liar.seen('/token')).map(request => new URLSearchParams(request.body));
            assert.deepEqual(forms.map(form => form.get('grant_type')), ['authorization_code', 'refresh_token', 'refresh_token', 'refresh_token']);
            for (const form of forms) assert.equal(form.get('resource'), liar.url);
            assert.equal(new Set(forms.map(form => form.get('refresh_token'))).size, 4);
        }));
    test('F3 F4 F5 eight processes whose token is rejected refresh it exactly once and all succeed', () =>
        withLiar('none', {}, async liar => {
            await liar.login();
            for (let round = 1; round <= 2; round++) {
                await liar.control({ expire: true });
                const calls = await Promise.all(Array.from({ length: 8 }, () => liar.call()));
                for (const call of calls) assert.equal(call.status, OK, call.stderr);
                assert.equal((await liar.seen('/token')).length, 1 + round);
            }
        }));
    test('D16 secrets of the old authorization server are not sent to a new one', async () =>
        withLiar('none', {}, async other =>
            withLiar('none', {}, async liar => {
                await liar.login();
                await liar.control({ expire: true, revoke: true, moved: other.origin });
                const call = await liar.run('call', 'liar', 'echo', '{}', '--headless');
                const secrets = await liar.secrets();
                for (const request of await other.seen())
                    for (const value of secrets) assert.ok(!JSON.stringify(request).includes(value), `${request.path} got ${value}`);
                assert.equal((await other.seen('/register')).length, 1, call.stderr);
                assert.ok((await other.seen('/token')).length >= 1, call.stderr);
            })
        ));
    test('D16 a configured client is not sent to an authorization server that the server has moved to', async () =>
        withLiar('none', {}, async other =>
            withLiar('none', { client_id: 'agent', client_secret: 'agent+secret' }, async liar => {
                await liar.login();
                await liar.control({ expire: true, revoke: true, moved: other.origin });
                const again = await liar.run('login', 'liar', '--headless');
                assert.equal(again.status, 14, again.stderr);
                assert.match(again.stderr, /has moved from the authorization server .*; set "issuer" if the new one is correct/);
                for (const path of ['/register', '/authorize', '/token']) assert.deepEqual(await other.seen(path), []);
            })
        ));
    test('S5 S7 a grant with a changed byte is reported as damaged by every command, and a purge removes it', () =>
        withOwnPort('none', async liar => {
            await liar.login();
            const db = new DatabaseSync(join(liar.state, 'store.db'));
            const value = Buffer.from(db.prepare("SELECT value FROM record WHERE space='grant'").get().value);
            value[40] ^= 1;
            db.prepare("UPDATE record SET value=? WHERE space='grant'").run(value);
            db.close();
            const damaged = /the grant of shared at http.* cannot be opened: a sealed record is not authentic.*--purge --issuer http/;
            for (const [command, expected] of [[['call', 'liar', 'echo', '{}'], UNAVAILABLE], [['connections'], STORE], [['connections', '--json'], STORE], [['logout', 'liar'], STORE], [['logout', '--all'], STORE]]) {
                const { status, stderr } = await liar.run(...command);
                assert.equal(status, expected, `${command}: ${stderr}`);
                assert.match(stderr, damaged, `${command}`);
                assert.doesNotMatch(stderr, /postern login|no login/);
            }
            const status = await liar.run('vault', 'status', '--json'), rotated = await liar.run('vault', 'rotate');
            assert.deepEqual([status.status, JSON.parse(status.stdout).damaged], [1, 1]);
            assert.equal(rotated.status, 1, 'only the damaged record keeps the old key');
            assert.partialDeepStrictEqual(JSON.parse(rotated.stdout), { new: true, resealed: 3, damaged: 1 });
            assert.match(rotated.stderr, /damaged records, which were left unchanged: 1;/);
            const purged = await liar.run('connections', '--purge', '--issuer', liar.origin);
            assert.equal(purged.status, STORE, purged.stderr);
            assert.match(purged.stderr, damaged);
            assert.match(purged.stdout, /^1 grant purged/);
            for (const command of [['connections'], ['vault', 'status']]) assert.equal((await liar.run(...command)).status, OK);
            assert.equal((await liar.login()).status, OK);
            assert.equal((await liar.call()).status, OK);
        }));
    test('F9 a refresh token is kept if the server does not rotate it', () =>
        withLiar('no-rotation', {}, async liar => {
            await liar.login();
            for (let i = 0; i < 2; i++) {
                await liar.control({ expire: true });
                assert.equal((await liar.call()).status, OK);
            }
        }));
    test('T7 a token with expires_in 0 is refreshed before the next call', () =>
        withLiar('expires-zero', {}, async liar => {
            await liar.login();
            assert.equal((await liar.call()).status, OK);
            assert.equal((await liar.seen('/token')).length, 2);
        }));
    test('F12 F13 F17 a dead grant is reported with the login command and not tried again', () =>
        withLiar('none', {}, async liar => {
            await liar.login();
            await liar.control({ expire: true, revoke: true });
            for (let i = 0; i < 2; i++) {
                const call = await liar.call();
                assert.equal(call.status, UNAVAILABLE);
                assert.match(call.stderr, /postern login liar/);
            }
            assert.equal((await liar.seen('/token')).length, 2);
            assert.equal(JSON.parse((await liar.run('connections')).stdout)[0].ended, true);
            assert.equal((await liar.login()).status, OK);
            assert.equal((await liar.call()).status, OK);
        }));
    test('F12 a busy token endpoint does not lose the grant', () =>
        withLiar('none', {}, async liar => {
            await liar.login();
            await liar.control({ expire: true, lie: 'token-503' });
            assert.equal((await liar.call()).status, UNAVAILABLE);
            await liar.control({ lie: 'none' });
            assert.equal((await liar.call()).status, OK);
        }));
    test('N10 F12 a refusal that repeats the token is reported without it and the grant is kept', () =>
        withLiar('none', {}, async liar => {
            await liar.login();
            await liar.control({ expire: true, lie: 'refresh-echo' });
            const call = await liar.call();
            assert.equal(call.status, UNAVAILABLE);
            assert.match(call.stderr, /unsupported_grant_type: not \*+/);
            await liar.control({ lie: 'none' });
            assert.equal((await liar.call()).status, OK);
        }));
    test('S3 a login killed while it waits for tokens leaves the earlier grant intact', () =>
        withOwnPort('none', async liar => {
            await liar.login();
            await liar.control({ lie: 'token-silent' });
            const env = { PATH: process.env.PATH, HOME: liar.state, POSTERN_STATE: liar.state };
            const child = spawn(binary, ['login', 'liar', '--headless', '--config', liar.config], { env, stdio: 'ignore' });
            await until(async () => (await liar.seen('/token')).length === 2, 20_000, 'the second token request');
            child.kill('SIGKILL');
            await once(child, 'exit');
            await liar.control({ lie: 'none' });
            assert.equal((await liar.call()).status, OK);
            await liar.control({ expire: true });
            assert.equal((await liar.call()).status, OK);
            assert.equal((await liar.login()).status, OK);
        }));
    test('F14 a refresh refused for its resource is retried once without', () =>
        withLiar('resource-unwanted', {}, async liar => {
            await liar.login();
            await liar.control({ expire: true });
            assert.equal((await liar.call()).status, OK);
        }));
    test('F15 a refresh does not need discovery and asks the issuer of the grant', () =>
        withLiar('none', {}, async liar => {
            await liar.login();
            const looks = async () => (await liar.seen()).filter(({ path }) => path.startsWith('/.well-known')).length;
            const before = await looks();
            await liar.control({ expire: true, lie: 'token-link-local' }); // the metadata if they were fetched now
            assert.equal((await liar.call()).status, OK);
            assert.equal(await looks(), before);
        }));
    test('T2 F15 a refresh authenticates with the registered secret', () =>
        withLiar('secret-basic', {}, async liar => {
            await liar.login();
            await liar.control({ expire: true });
            assert.equal((await liar.call()).status, OK);
            assert.match((await liar.seen('/token'))[1].headers.authorization, /^Basic /);
        }));
    test('A9 a step-up requests all earlier scopes and more', () =>
        withOwnPort('step-up', async liar => {
            await liar.login();
            assert.equal((await liar.call()).status, UNAVAILABLE);
            const call = await liar.run('call', 'liar', 'echo', '{}', '--headless');
            assert.equal(call.status, OK, call.stderr);
            assert.deepEqual((await liar.seen('/authorize')).map(({ query }) => query.scope), ['read', 'read write']);
        }));
    test('A9 a server that always wants more scope causes at most three logins', () =>
        withOwnPort('scope-forever', async liar => {
            assert.equal((await liar.run('call', 'liar', 'echo', '{}', '--headless')).status, UNAVAILABLE);
            assert.equal((await liar.seen('/authorize')).length, 3);
        }));
    test('an open server does not need a login or get a token', () =>
        withLiar('open', {}, async liar => {
            assert.equal((await liar.call()).status, OK);
            assert.equal((await liar.seen('/mcp'))[0].headers.authorization, undefined);
        }));
    test('L15 a token from standard input is used, and a login is requested when it is rejected', () =>
        withLiar('none', {}, async liar => {
            const login = input => liar.withInput(input, 'login', 'liar', '--token-stdin');
            for (const input of ['', '\n', 'two words\n', 'no end of line']) assert.equal((await login(input)).status, USAGE, input);
            assert.equal((await login('token-from-elsewhere\n')).status, OK);
            const call = await liar.call();
            assert.equal(call.status, UNAVAILABLE);
            assert.match(call.stderr, /postern login liar/);
            assert.equal((await liar.seen('/mcp'))[0].headers.authorization, 'Bearer token-from-elsewhere');
            assert.equal((await liar.run('logout', 'liar')).status, OK);
            assert.ok(!liar.output.includes('token-from-elsewhere'));
        }));
    test('S10 L12 F16 connections does not show tokens, and a logout revokes both and may be repeated', () =>
        withLiar('scopes', {}, async liar => {
            await liar.login();
            const [connection] = JSON.parse((await liar.run('connections')).stdout);
            assert.equal(connection.server, 'liar');
            assert.equal(connection.scope, 'read');
            assert.match(connection.token, /^[0-9a-f]{4}\.\.[0-9a-f]{4}$/);
            assert.equal((await liar.run('logout', 'liar')).status, OK);
            const hints = (await liar.seen('/revoke')).map(request => new URLSearchParams(request.body).get('token_type_hint'));
            assert.deepEqual(hints, ['refresh_token', 'access_token']);
            assert.deepEqual(JSON.parse((await liar.run('connections')).stdout), []);
            assert.equal((await liar.run('logout', 'liar')).status, OK);
            assert.match((await liar.call()).stderr, /postern login liar/);
        }));
});

describe('grants in mode per_user', () => {
    const policy = {
        version: 1,
        description: 'Every caller with a token may call the server of this test',
        rules: [
            {
                id: 'all',
                effect: 'allow',
                description: 'every caller with a token may call the tool',
                tenants: ['default'],
                subjects: ['authenticated'],
                servers: ['liar'],
                kinds: ['tool'],
                names: ['echo']
            }
        ]
    };
    async function callerOf(gateway, token) {
        const authorization = `Bearer ${token}`;
        const opened = await send(gateway.url, { headers: post({ authorization }), body: initialize('2025-11-25') });
        const headers = post({ authorization, 'mcp-session-id': opened.headers['mcp-session-id'] });
        let id = 1;
        return async () => {
            const body = { jsonrpc: '2.0', id: ++id, method: 'tools/call', params: { name: 'liar__echo', arguments: {} } };
            const { result, error } = reply(await send(gateway.url, { headers, body }));
            return error?.code ?? result.content[0].text;
        };
    }
    test('H1 H2 a user never uses the grant of another in any order of calls', () =>
        withLiar('none', {}, async liar => {
            const file = join(liar.state, 'tokens.json');
            const tokens = ['alice', 'bob', 'eve'].map(name => execFileSync(binary, ['token', 'new', '--subject', name, '--file', file], { encoding: 'utf8' }).trim());
            writeFileSync(join(liar.state, 'policy.json'), JSON.stringify(policy));
            const config = {
                auth: { providers: [{ type: 'bearer', tokens: file }] },
                policy: join(liar.state, 'policy.json'),
                mcpServers: { liar: { url: liar.url, auth: { mode: 'per_user' } } }
            };
            writeFileSync(liar.config, JSON.stringify(config));
            assert.equal((await liar.login()).status, USAGE, 'whose login?');
            assert.equal((await liar.login('--subject', 'bearer:alice')).status, OK);
            assert.equal((await liar.login('--subject', 'bearer:bob')).status, OK);
            const gateway = await startGateway(config, [], { variables: { POSTERN_STATE: liar.state } });
            try {
                const callers = await Promise.all([...tokens, ...tokens].map(token => callerOf(gateway, token)));
                const expected = ['echo {} for grant 1', 'echo {} for grant 2', -32003];
                for (let round = 0; round < 20; round++) {
                    if (round % 5 === 4) await liar.control({ expire: true });
                    const order = Array.from({ length: 12 }, () => Math.floor(Math.random() * callers.length));
                    const answers = await Promise.all(order.map(i => callers[i]()));
                    assert.deepEqual(answers, order.map(i => expected[i % 3]), `order ${order}`);
                }
                assert.equal((await liar.login('--subject', 'bearer:eve')).status, OK);
                assert.equal(await callers[2](), 'echo {} for grant 3');
                assert.equal((await liar.run('logout', 'liar', '--subject', 'bearer:bob')).status, OK);
                const users = JSON.parse((await liar.run('connections')).stdout).map(connection => connection.user);
                assert.deepEqual(users.sort(), ['bearer/alice', 'bearer/eve']);
            } finally {
                liar.output += gateway.log();
                await gateway.stop();
            }
        }));
    test('H13 mode per_user without authentication of callers is refused', () =>
        withLiar('none', { mode: 'per_user' }, async liar => {
            const { status, stderr } = await liar.run('servers');
            assert.equal(status, CONFIG);
            assert.match(stderr, /per_user.*authenticates callers/);
        }));
});

describe('grants in a gateway', () => {
    async function throughGateway(liar, auth, between) {
        const gateway = await startGateway({ mcpServers: { liar: { url: liar.url, auth } } }, [], { variables: { POSTERN_STATE: liar.state } });
        try {
            const opened = await send(gateway.url, { headers: post(), body: initialize('2025-11-25') });
            const headers = post({ 'mcp-session-id': opened.headers['mcp-session-id'] });
            const body = id => ({ jsonrpc: '2.0', id, method: 'tools/call', params: { name: 'liar__echo', arguments: {} } });
            const answers = [reply(await send(gateway.url, { headers, body: body(2) }))];
            await between?.();
            answers.push(reply(await send(gateway.url, { headers, body: body(3) })));
            return answers;
        } finally {
            liar.output += gateway.log();
            await gateway.stop();
        }
    }
    test('callers in mode shared use the grant of the login, refreshed on 401', () =>
        withLiar('none', {}, async liar => {
            await liar.login();
            await liar.control({ expire: true });
            const [answer] = await throughGateway(liar, { mode: 'shared' });
            assert.ok(answer.result, JSON.stringify(answer));
            assert.equal((await liar.seen('/token')).length, 2);
        }));
    test('F3 F4 F5 eight gateways with fifty calls each refresh a rejected token exactly once', () =>
        withLiar('none', {}, async liar => {
            await liar.login();
            const config = { mcpServers: { liar: { url: liar.url, auth: { mode: 'shared' } } } };
            const gateways = await Promise.all(Array.from({ length: 8 }, () => startGateway(config, [], { variables: { POSTERN_STATE: liar.state } })));
            try {
                const sessions = await Promise.all(
                    gateways.map(async gateway => {
                        const opened = await send(gateway.url, { headers: post(), body: initialize('2025-11-25') });
                        return { url: gateway.url, headers: post({ 'mcp-session-id': opened.headers['mcp-session-id'] }) };
                    })
                );
                const call = ({ url, headers }, id) =>
                    send(url, { headers, body: { jsonrpc: '2.0', id, method: 'tools/call', params: { name: 'liar__echo', arguments: {} } } });
                await Promise.all(sessions.map(session => call(session, 1)));
                await liar.control({ expire: true });
                const answers = await Promise.all(sessions.flatMap(session => Array.from({ length: 50 }, (_, i) => call(session, i + 2))));
                for (const answer of answers) assert.match(answer.body, /for grant 1/);
                assert.equal((await liar.seen('/token')).length, 2);
            } finally {
                for (const gateway of gateways) liar.output += gateway.log();
                await Promise.all(gateways.map(gateway => gateway.stop()));
            }
        }));
    test('H13 mode none never uses the grant of a login', () =>
        withLiar('none', {}, async liar => {
            await liar.login();
            const [answer] = await throughGateway(liar, {});
            assert.ok(answer.error);
        }));
    test('a call in mode shared without a login gets -32003 and works after one', () =>
        withLiar('none', {}, async liar => {
            const [before, then] = await throughGateway(liar, { mode: 'shared' }, () => liar.login());
            assert.equal(before.error.code, -32003, JSON.stringify(before));
            assert.ok(then.result, JSON.stringify(then));
        }));
    test('the gateway in mode client_credentials gets its own token and another one when that is rejected', () =>
        withLiar('none', {}, async liar => {
            const auth = { mode: 'client_credentials', client_id: 'agent', client_secret: 'agent+secret', scope: 's' };
            const answers = await throughGateway(liar, auth, () => liar.control({ expire: true }));
            assert.deepEqual(answers.map(({ result }) => result.content[0].text.at(-1)), ['1', '2']);
            const [first] = await liar.seen('/token');
            const form = new URLSearchParams(first.body);
            assert.equal(form.get('scope'), 's');
            assert.equal(form.get('resource'), liar.url);
            assert.equal(first.headers.authorization, `Basic ${Buffer.from('agent:agent%2Bsecret').toString('base64')}`);
            assert.deepEqual(await liar.seen('/register'), []);
            assert.ok(!liar.output.includes('agent+secret'));
        }));
    test('D16 only the first authorization server gets the secret of client_credentials without an issuer', async () =>
        withLiar('none', {}, async other =>
            withLiar('none', {}, async liar => {
                const auth = { mode: 'client_credentials', client_id: 'agent', client_secret: 'agent+secret' };
                const [first] = await throughGateway(liar, auth);
                assert.ok(first.result, JSON.stringify(first));
                await liar.control({ expire: true, moved: other.origin });
                const [moved] = await throughGateway(liar, auth);
                assert.equal(moved.error?.code, -32002, JSON.stringify(moved));
                assert.deepEqual(await other.seen('/token'), []);
                await throughGateway(liar, { ...auth, issuer: other.origin });
                assert.notEqual((await other.seen('/token')).length, 0);
            })
        ));
    test('the gateway in mode static sends the configured token', () =>
        withLiar('none', {}, async liar => {
            const [answer] = await throughGateway(liar, { mode: 'static', token: 'fixed-token-of-config' });
            assert.ok(answer.error);
            assert.ok((await liar.seen('/mcp')).every(request => request.headers.authorization === 'Bearer fixed-token-of-config'));
        }));
});
