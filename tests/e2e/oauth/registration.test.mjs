// Registration as a client of an authorization server: rare registrations, renewal of secrets, and recovery when the server forgets the client.
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, test } from 'node:test';

import { freePort, settles, startGateway } from '../gateway.mjs';
import { Jar } from '../jar.mjs';
import { aMinuteLater, EXIT, withLiar } from '../liar.mjs';
import { initialize, post, reply, send } from '../raw.mjs';

const { OK, DENIED, REGISTRATION, ANSWER } = EXIT;

const registrations = async liar => (await liar.seen('/register')).length;
const clientsOf = async liar => (await liar.seen('/authorize')).map(({ query }) => query.client_id);

/** Returns a function that always logs in with the same port, because a registration is for one redirect URI. */
async function atOnePort(liar) {
    const port = String(await freePort());
    return async (...args) => {
        const { status, stderr } = await liar.login('--callback-port', port, ...args);
        assert.equal(status, OK, stderr);
    };
}

describe('G13 rate of registrations', () => {
    test('a second registration within a minute is refused without a request and works later', () =>
        withLiar('none', null, async liar => {
            const login = await atOnePort(liar);
            await login();
            const early = await liar.loginAtOnce('--reregister');
            assert.equal(early.status, REGISTRATION);
            assert.match(early.stderr, /try again in (60|5\d) seconds/);
            assert.equal(await registrations(liar), 1);
            await login('--reregister');
            assert.equal(await registrations(liar), 2);
        }));
    test('a refused registration is not repeated within a minute', () =>
        withLiar('register-page', null, async liar => {
            for (let i = 0; i < 2; i++) assert.equal((await liar.loginAtOnce()).status, REGISTRATION);
            assert.equal(await registrations(liar), 1);
        }));
    test('G10 one login may register a second time', () =>
        withLiar('client-forgotten', null, async liar => {
            assert.equal((await liar.login()).status, OK);
            assert.equal(await registrations(liar), 2);
        }));
});

describe('G10 a client that the authorization server forgot', () => {
    test('a refresh with a forgotten client keeps the grant and the next login registers again', () =>
        withLiar('none', null, async liar => {
            const login = await atOnePort(liar);
            await login();
            await liar.control({ expire: true, lie: 'refresh-invalid-client' });
            assert.match((await liar.call()).stderr, /invalid_client/);
            assert.equal((await liar.connections())[0].ended, false);
            await liar.control({ lie: 'none' });
            assert.equal((await liar.call()).status, OK, 'the grant works again when the server knows the client');
            await login();
            assert.deepEqual(await clientsOf(liar), ['client-1', 'client-2']);
        }));
    test('a suspect client is used while another one may not be registered yet (G13)', () =>
        withLiar('client-page', null, async liar => {
            const port = String(await freePort());
            assert.equal((await liar.loginAtOnce('--callback-port', port)).status, ANSWER);
            assert.equal((await liar.loginAtOnce('--callback-port', port)).status, ANSWER);
            assert.equal((await liar.login('--callback-port', port)).status, OK);
            assert.deepEqual(await clientsOf(liar), ['client-1', 'client-1', 'client-2']);
        }));
    test('a configured client is not replaced', () =>
        withLiar('none', { client_id: 'agent', client_secret: 'agent+secret' }, async liar => {
            assert.equal((await liar.login()).status, OK);
            await liar.control({ expire: true, lie: 'refresh-invalid-client' });
            assert.match((await liar.call()).stderr, /invalid_client/);
            await liar.control({ lie: 'none' });
            assert.equal((await liar.login()).status, OK);
            assert.equal(await registrations(liar), 0);
        }));
});

describe('G8 a client secret that expires', () => {
    test('a client secret that expires is renewed at its management endpoint before the next login', () =>
        withLiar('secret-managed', null, async liar => {
            const login = await atOnePort(liar);
            await login();
            await login();
            assert.deepEqual([await registrations(liar), (await liar.seen('/register/client-1')).length], [1, 1]);
            assert.deepEqual(await clientsOf(liar), ['client-1', 'client-1']);
        }));
    test('a client secret is renewed before a refresh and the grants of the client stay valid', () =>
        withLiar('secret-managed', null, async liar => {
            assert.equal((await liar.login()).status, OK);
            aMinuteLater(liar.state);
            for (let i = 0; i < 2; i++) {
                await liar.control({ expire: true });
                const call = await liar.call();
                assert.equal(call.status, OK, call.stderr);
            }
            assert.deepEqual((await liar.seen()).map(({ method, path }) => `${method} ${path}`).filter(line => /register|token/.test(line)), [
                'POST /register',
                'POST /token',
                'PUT /register/client-1',
                'POST /token',
                'POST /token'
            ]);
        }));
    for (const lie of ['secret-managed-away', 'secret-unmanaged'])
        test(`a client secret that cannot be renewed makes the gateway register a new client (${lie})`, () =>
            withLiar(lie, null, async liar => {
                const login = await atOnePort(liar);
                await login();
                await login();
                assert.equal(await registrations(liar), 2);
                assert.deepEqual(await liar.seen('away'), []);
            }));
    test('G9 the grant of a previous client is refreshed until the new login is complete', () =>
        withLiar('only-post', null, async liar => {
            const login = await atOnePort(liar);
            await login();
            await liar.control({ lie: 'denied' });
            const port = new URL((await liar.seen('/authorize'))[0].query.redirect_uri).port;
            assert.equal((await liar.login('--reregister', '--callback-port', port)).status, DENIED);
            assert.equal(await registrations(liar), 2);
            await liar.control({ lie: 'only-post', expire: true });
            const call = await liar.call();
            assert.equal(call.status, OK, call.stderr);
        }));
});

describe('one hosted client for many users', () => {
    const rule = { id: 'all', effect: 'allow', description: 'Every authenticated caller may call every tool', tenants: ['default'], subjects: ['authenticated'], servers: ['*'], kinds: ['tool'], names: ['*'] };

    /** A gateway in front of the liar, with users behind a proxy. */
    async function withUsers(lie, body, hosted = {}, auth = {}) {
        await withLiar(lie, {}, async liar => {
            const port = await freePort();
            const policy = join(liar.state, 'policy.json');
            writeFileSync(policy, JSON.stringify({ version: 1, description: 'Everything is allowed', rules: [rule] }));
            const config = {
                listen: [{ address: `127.0.0.1:${port}` }],
                public_url: `http://127.0.0.1:${port}`,
                auth: { providers: [{ type: 'forwarded-user', trusted_proxies: ['127.0.0.1'] }] },
                policy,
                hosted,
                mcpServers: { liar: { url: liar.url, auth: { mode: 'per_user', ...auth } } }
            };
            const gateway = await startGateway(config, [], { variables: { POSTERN_STATE: liar.state } });
            const user = async name => {
                const own = { 'x-forwarded-user': name };
                const opened = await send(gateway.url, { headers: post(own), body: initialize('2025-06-18') });
                const headers = post({ ...own, 'mcp-session-id': opened.headers['mcp-session-id'] });
                let id = 1;
                const call = async () => reply(await send(gateway.url, { headers, body: { jsonrpc: '2.0', id: ++id, method: 'tools/call', params: { name: 'liar__echo', arguments: {} } } }));
                return { call, name, link: async () => (await call()).error.data.authorizationUrl };
            };
            try {
                await body({ liar, gateway, user });
            } finally {
                liar.output += gateway.log();
                await gateway.stop();
            }
        });
    }
    const connects = async somebody => new Jar(somebody.name, { apart: true }).connect(await somebody.link());

    /** Begins a login at the authorization server and abandons it. */
    async function leaves(somebody) {
        const jar = new Jar(somebody.name, { apart: true });
        const asked = await jar.visit(await somebody.link());
        const field = name => new RegExp(`name="${name}" value="([^"]+)"`).exec(asked.body)[1];
        await jar.visit(asked.url.replace(/\?.*/, ''), { t: field('t'), csrf: field('csrf'), answer: 'yes' });
    }

    test('G13 two users who connect at once share one registration', () =>
        withUsers('none', async ({ liar, user }) => {
            const [alice, bob] = [await user('alice'), await user('bob')];
            await liar.control({ hold: '/register' });
            const first = connects(alice);
            await liar.held();
            const second = connects(bob);
            assert.equal(await settles(liar.held(2), 600), false, 'two registrations at once');
            await liar.control({ release: true });
            await Promise.all([first, second]);
            assert.equal(await registrations(liar), 1);
        }));
    test('G11 a client that other grants depend on is replaced only by an administrator', () =>
        withUsers('none', async ({ liar, user, gateway }) => {
            const [alice, bob] = [await user('alice'), await user('bob')];
            await connects(alice);
            await liar.control({ lie: 'client-unknown' });
            aMinuteLater(liar.state);
            await assert.rejects(connects(bob));
            assert.equal(await registrations(liar), 1);
            await gateway.line(/the store has grants of that client \(1\): remove them with 'postern connections --purge --issuer http/);
            await liar.control({ lie: 'none', expire: true });
            assert.ok((await alice.call()).result, 'the grant of alice still works');
            assert.equal((await liar.run('connections', '--purge', '--issuer', liar.origin)).status, OK);
            await liar.control({ lie: 'client-forgotten' });
            await assert.rejects(connects(bob)); // bob needs a new link
            assert.equal(await registrations(liar), 2);
            await connects(bob);
            assert.ok((await bob.call()).result);
        }));
    test('G10 G11 an abandoned login makes the client suspect, and it is replaced if no grant depends on it', () =>
        withUsers('none', async ({ liar, user }) => {
            const [alice, bob] = [await user('alice'), await user('bob')];
            for (let i = 0; i < 5; i++) await leaves(bob);
            assert.equal(await registrations(liar), 1);
            aMinuteLater(liar.state);
            await connects(bob); // one link more than the limit of a user: the oldest is dropped (H9)
            assert.deepEqual([await registrations(liar), (await clientsOf(liar)).at(-1)], [2, 'client-2']);
            for (let i = 0; i < 5; i++) await leaves(alice);
            aMinuteLater(liar.state);
            await connects(alice); // the same, but bob depends on it
            assert.deepEqual([await registrations(liar), (await clientsOf(liar)).at(-1)], [2, 'client-2']);
        }));
    const client_metadata_url = 'https://postern.example/oauth/client.json';
    for (const lie of ['documents-broken', 'documents-refused'])
        test(`G3 the links after ${lie} are for a registered client`, () =>
            withUsers(
                lie,
                async ({ liar, user }) => {
                    const [alice, bob] = [await user('alice'), await user('bob')];
                    await assert.rejects(connects(alice));
                    for (const somebody of [alice, bob]) {
                        await connects(somebody);
                        assert.ok((await somebody.call()).result);
                    }
                    assert.deepEqual(await clientsOf(liar), [client_metadata_url, 'client-1', 'client-1']);
                    assert.equal(await registrations(liar), 1);
                },
                {},
                { client_metadata_url }
            ));
    test('G3 an abandoned login with a metadata document makes documents suspect', () =>
        withUsers(
            'documents',
            async ({ liar, user }) => {
                const alice = await user('alice');
                for (let i = 0; i < 5; i++) await leaves(alice);
                assert.equal(await registrations(liar), 0);
                await connects(alice); // one link more than the limit of a user: the oldest is dropped (H9)
                assert.ok((await alice.call()).result);
                assert.deepEqual([await registrations(liar), (await clientsOf(liar)).at(-1)], [1, 'client-1']);
            },
            {},
            { client_metadata_url }
        ));
    test('N5 an authorization server that is not in the list is not contacted', async () => {
        await withUsers('none', async ({ liar, user, gateway }) => {
            const page = await new Jar('alice').visit(await (await user('alice')).link());
            assert.doesNotMatch(page.body, /name="csrf"/);
            await gateway.line(/authorization server .*127\.0\.0\.1.* is not in hosted\.authorization_servers; add its domain/);
            assert.deepEqual((await liar.seen()).map(({ path }) => path).filter(path => !/mcp$/.test(path)), []);
        }, { authorization_servers: ['login.example.com', '*.127.0.0.1'] });
        await withUsers('none', async ({ user }) => {
            const alice = await user('alice');
            await connects(alice);
            assert.ok((await alice.call()).result);
        }, { authorization_servers: ['login.example.com', '127.0.0.1'] });
    });
});
