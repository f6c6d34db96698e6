// Grants of users after the login: which client is sent to which authorization server, how grants are revoked (on the pages and by
// commands) in every tenant, and their rows in the audit log.
import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { generateKeyPairSync } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { userInfo } from 'node:os';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { after, before, describe, test } from 'node:test';

import { binary, program, startPeer, temporaryDirectory, until, watch } from '../gateway.mjs';
import { caller, newUser, startWorld, title } from '../hosted.mjs';
import { Jar } from '../jar.mjs';
import { aMinuteLater } from '../liar.mjs';

let world;
before(async () => (world = await startWorld()));
after(() => world?.stop());

const agent = { mode: 'per_user', client_id: 'agent', client_secret: 'agent+secret' };

async function startLiar(lie = 'none') {
    const liar = await startPeer(program.liar, lie);
    liar.origin = new URL(liar.url).origin;
    liar.seen = async path => (await (await fetch(`${liar.origin}/seen`)).json()).filter(request => request.path === path);
    liar.state = async () => (await fetch(`${liar.origin}/state`)).json();
    liar.control = order => fetch(`${liar.origin}/control`, { method: 'POST', body: JSON.stringify(order) });
    return liar;
}

/** One state folder, used by a sequence of gateways and by commands. */
class Place {
    state = temporaryDirectory();
    async start(auth, liar, more = {}) {
        await this.stop();
        this.gateway = await world.start({ variables: { POSTERN_STATE: this.state.path }, mcpServers: { files: { url: liar.url, auth } }, ...more });
    }
    async stop() {
        const { gateway } = this;
        this.gateway = undefined;
        await gateway?.stop();
    }
    get config() {
        return join(this.gateway.state, 'postern.json');
    }
    async link(user) {
        const { error } = await (await caller(user, this.gateway.url)).request('tools/call', { name: 'files__echo', arguments: {} });
        return error.data.authorizationUrl;
    }
    async connect(user) {
        const jar = new Jar(user);
        await jar.connect(await this.link(user));
        return jar;
    }
    /** Runs a command: {status, stdout, stderr}. */
    async run(...args) {
        const child = spawn(binary, [...args, '--config', this.config], { env: { ...process.env, POSTERN_STATE: this.state.path }, stdio: ['ignore', 'pipe', 'pipe'] });
        const [stdout, stderr] = [watch(child, 'stdout'), watch(child, 'stderr')];
        await new Promise(resolve => child.once('close', resolve));
        return { status: child.exitCode, stdout: stdout.log(), stderr: stderr.log() };
    }
    async revoked(count) {
        const rows = () =>
            execFileSync(binary, ['audit', '--file', join(this.state.path, 'audit.db'), '--json'], { encoding: 'utf8' })
                .trim()
                .split('\n')
                .filter(line => line.includes('"revoked"'))
                .map(line => JSON.parse(line));
        await until(() => rows().length >= count, 10_000, `${count} rows`);
        assert.equal(rows().length, count);
        return rows();
    }
    async end() {
        await this.stop();
        this.state.remove();
    }
}

/** Runs `body` with a liar and a place. */
async function withPlace(lie, body) {
    const liar = await startLiar(lie), place = new Place();
    try {
        await body(liar, place);
    } finally {
        await place.end();
        await liar.stop();
    }
}

const told = requests => requests.map(({ headers, body }) => [headers.authorization ?? '', body].join(' '));

test('D16 a configured client is sent only to the authorization server of the first user', () =>
    withPlace('none', async (liar, place) => {
        const other = await startLiar();
        try {
            await place.start(agent, liar);
            const first = newUser(), jar = await place.connect(first);
            await liar.control({ moved: other.origin, expire: true, revoke: true });
            await jar.disconnect(place.gateway.origin, 'files');
            for (const user of [first, newUser()]) {
                const page = await new Jar(user).visit(await place.link(user));
                assert.equal(page.status, 502, page.body);
            }
            await place.start(agent, liar);
            assert.equal((await new Jar(first).visit(await place.link(first))).status, 502, 'the client is not sent after a restart either');
            for (const path of ['/token', '/authorize', '/revoke']) assert.deepEqual(await other.seen(path), [], path);
            await place.start({ ...agent, issuer: other.origin }, liar);
            const address = await new Jar(first).callback(await place.link(first));
            assert.ok(address, 'the operator has configured the issuer');
        } finally {
            await other.stop();
        }
    }));

describe('revocation of grants', () => {
    const changed = { ...agent, client_id: 'another', client_secret: 'another+secret' };
    test('F15 the secret of a client configured later is not sent, and disconnect reports that it only deleted the grant', () =>
        withPlace('none', async (liar, place) => {
            await place.start(agent, liar);
            const jar = await place.connect(newUser());
            await place.start(changed, liar);
            await jar.disconnect(place.gateway.origin, 'files');
            const [row] = await place.revoked(1);
            assert.equal(row.reason, 'not_told');
            assert.deepEqual(await liar.seen('/revoke'), []);
            await place.gateway.line(/cannot revoke a grant, only deleting it.*the registration of the client that the grant at .* was issued to does not exist any more/);
            assert.deepEqual(JSON.parse((await place.run('connections', '--json')).stdout), []);
        }));
    test('F15 the secret of a client is not sent to another issuer configured for the same client', () =>
        withPlace('none', async (liar, place) => {
            await place.start(agent, liar);
            const jar = await place.connect(newUser());
            await place.start({ ...agent, issuer: 'https://elsewhere.example', client_secret: 'another+secret' }, liar);
            await jar.disconnect(place.gateway.origin, 'files');
            await place.revoked(1);
            assert.deepEqual(await liar.seen('/revoke'), []);
        }));
    test('F15 the secret of a client configured later is not sent by commands, which report that', () =>
        withPlace('none', async (liar, place) => {
            await place.start(agent, liar);
            const user = newUser();
            await place.connect(user);
            await place.start(changed, liar);
            const { status, stderr } = await place.run('logout', 'files', '--subject', `forwarded-user:${user}`);
            assert.equal(status, 0, stderr);
            assert.match(stderr, /deleted locally but not revoked: .*the registration of the client that the grant at .* was issued to does not exist any more/);
            assert.deepEqual(await liar.seen('/revoke'), []);
            assert.deepEqual(JSON.parse((await place.run('connections', '--json')).stdout), []);
        }));
    for (const how of ['disconnect', 'logout', 'purge'])
        test(`F16 a client that authenticates with a key revokes with that key: ${how}`, () =>
            withPlace('none', async (liar, place) => {
                const { publicKey, privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
                const private_key_file = join(place.state.path, 'key.pem');
                writeFileSync(private_key_file, privateKey.export({ type: 'pkcs8', format: 'pem' }), { mode: 0o600 });
                await liar.control({ client: { client_id: 'keyed', public_key: publicKey.export({ type: 'spki', format: 'pem' }) } });
                await place.start({ mode: 'per_user', client_id: 'keyed', private_key_file, signing_algorithm: 'ES256' }, liar);
                const user = newUser(), subject = `forwarded-user:${user}`;
                const jar = await place.connect(user);
                if (how === 'disconnect') await jar.disconnect(place.gateway.origin, 'files');
                if (how === 'logout') await place.run('logout', 'files', '--subject', subject);
                if (how === 'purge') await place.run('connections', '--purge', '--subject', subject);
                assert.equal((await liar.state()).alive, 0);
                assert.ok((await liar.seen('/revoke')).every(({ body }) => body.includes('client_assertion=')));
                const [row] = await place.revoked(1);
                assert.equal(row.reason, undefined);
            }));
    test('G9 a grant of a previously registered client is revoked as that client', () =>
        withPlace('only-post', async (liar, place) => {
            await place.start({ mode: 'per_user' }, liar);
            const [one, other] = [newUser(), newUser()];
            for (const user of [one, other]) {
                aMinuteLater(place.state.path);
                const login = await place.run('login', 'files', '--subject', `forwarded-user:${user}`, '--headless', ...(user === other ? ['--reregister'] : []));
                assert.equal(login.status, 0, login.stderr);
            }
            assert.equal((await liar.state()).alive, 2);
            await new Jar(one).disconnect(place.gateway.origin, 'files');
            await place.revoked(1);
            assert.equal((await liar.state()).alive, 1);
            assert.ok(told(await liar.seen('/revoke')).every(text => text.includes('client_id=client-1&')));
        }));
});

test('H16 a call during the start of a server with a new grant waits for the server', () =>
    withPlace('none', async (liar, place) => {
        await place.start({ mode: 'per_user' }, liar);
        const user = newUser(), calls = await caller(user, place.gateway.url);
        const echo = () => calls.request('tools/call', { name: 'files__echo', arguments: {} });
        assert.equal((await echo()).error.code, -32003);
        await liar.control({ hold: '/mcp', bearer: true });
        const login = await place.run('login', 'files', '--subject', `forwarded-user:${user}`, '--headless');
        assert.equal(login.status, 0, login.stderr);
        await fetch(`${liar.origin}/held`); // without a call: the gateway has noticed the new grant and starts the server
        const answer = echo();
        assert.equal(await Promise.race([answer, calls.request('ping')]).then(({ error }) => error), undefined, 'the call waits without a link, and the ping does not wait');
        await liar.control({ release: true });
        assert.ok((await answer).result);
    }));

describe('grants of tenants', () => {
    const tenants = liar => ({ tenants: { acme: { policy: world.policy, mcpServers: { desk: { url: liar.url, auth: { ...agent, mode: 'shared' } } } } } });
    const everywhere = async (liar, place) => {
        await place.start(agent, liar, tenants(liar));
        await place.connect(newUser());
        const login = await place.run('login', 'desk', '--tenant', 'acme', '--headless');
        assert.equal(login.status, 0, login.stderr);
    };
    const listed = async (place, ...args) => JSON.parse((await place.run('connections', '--json', ...args)).stdout).map(({ tenant, server }) => [tenant, server]);

    test('H14 postern connections lists the grants of all tenants or of one', () =>
        withPlace('none', async (liar, place) => {
            await everywhere(liar, place);
            assert.deepEqual((await listed(place)).sort(), [['acme', 'desk'], ['default', 'files']]);
            assert.deepEqual(await listed(place, '--tenant', 'acme'), [['acme', 'desk']]);
            assert.deepEqual(await listed(place, '--tenant', 'default'), [['default', 'files']]);
        }));
    test('H14 --purge --issuer revokes the grants of an issuer in every tenant or in one', () =>
        withPlace('none', async (liar, place) => {
            await everywhere(liar, place);
            const purge = async (...args) => (await place.run('connections', '--purge', '--issuer', liar.origin, ...args)).stdout.trim();
            assert.equal(await purge('--tenant', 'acme'), '1 grant purged');
            assert.deepEqual(await listed(place), [['default', 'files']]);
            assert.equal((await liar.state()).alive, 1, 'the grant was revoked with the secret of that tenant');
            assert.equal((await place.run('login', 'desk', '--tenant', 'acme', '--headless')).status, 0);
            assert.equal(await purge(), '2 grants purged');
            assert.deepEqual(await listed(place), []);
            assert.equal((await liar.state()).alive, 0);
        }));
});

test('H14 --purge --subject revokes the grants of that user in all tenants and of no other user', () =>
    withPlace('none', async (liar, place) => {
        const [leaver, stayer] = [newUser(), newUser()];
        await place.start(agent, liar, { tenants: { acme: { policy: world.policy, mcpServers: { desk: { url: liar.url, auth: agent } } } } });
        for (const user of [leaver, stayer]) {
            await place.connect(user);
            assert.equal((await place.run('login', 'desk', '--tenant', 'acme', '--subject', `forwarded-user:${user}`, '--headless')).status, 0);
        }
        assert.equal((await place.run('connections', '--purge', '--subject', `forwarded-user:${leaver}`)).stdout.trim(), '2 grants purged');
        const left = JSON.parse((await place.run('connections', '--json')).stdout);
        assert.deepEqual(left.map(({ tenant, user }) => [tenant, user]).sort(), ['acme', 'default'].map(tenant => [tenant, `forwarded-user/${stayer}`]));
        assert.equal((await liar.state()).alive, 2);
    }));

test('S7 a connection that cannot be unsealed is shown as such and can be disconnected', () =>
    withPlace('none', async (liar, place) => {
        await place.start(agent, liar);
        const user = newUser(), jar = await place.connect(user);
        await place.stop();
        const db = new DatabaseSync(join(place.state.path, 'store.db'));
        const value = Buffer.from(db.prepare("SELECT value FROM record WHERE space='grant'").get().value);
        value[40] ^= 1;
        db.prepare("UPDATE record SET value=? WHERE space='grant'").run(value);
        db.close();
        await place.start(agent, liar);
        const list = async () => (await jar.visit(`${place.gateway.origin}/oauth/connections`)).body;
        const damaged = await list();
        assert.match(damaged, /The stored access cannot be read: disconnect, then connect again/);
        assert.ok(damaged.includes(new URL(liar.origin).host), 'the issuer of the damaged grant is shown');
        assert.doesNotMatch(damaged, /Not connected/);
        await jar.disconnect(place.gateway.origin, 'files');
        const [row] = await place.revoked(1);
        assert.deepEqual([row.subject, row.name, row.reason], [user, liar.origin, 'not_told']);
        assert.deepEqual(await liar.seen('/revoke'), []);
        assert.match(await list(), /Not connected/);
        await jar.connect(await place.link(user));
        assert.match(await list(), />Connected</);
    }));

describe('the audit log of disconnections', () => {
    test('H17 a disconnection is recorded with the address of its caller', () =>
        withPlace('none', async (liar, place) => {
            await place.start({ mode: 'per_user' }, liar);
            const user = newUser(), jar = await place.connect(user);
            await jar.disconnect(place.gateway.origin, 'files');
            const [row] = await place.revoked(1);
            assert.deepEqual([row.subject, row.server, row.name, row.tenant, row.status], [user, 'files', liar.origin, 'default', 'ok']);
            assert.equal(row.peer, '127.0.0.1');
        }));
    test('H17 a revocation by a command is recorded with the user who ran it and the owner of the grant', () =>
        withPlace('none', async (liar, place) => {
            await place.start({ mode: 'per_user' }, liar);
            const [one, other] = [newUser(), newUser()];
            for (const user of [one, other]) await place.connect(user);
            assert.equal((await place.run('logout', 'files', '--subject', `forwarded-user:${one}`)).status, 0);
            assert.equal((await place.run('connections', '--purge', '--subject', `forwarded-user:${other}`)).status, 0);
            const rows = await place.revoked(2);
            for (const [i, user] of [one, other].entries()) {
                const { event, provider, subject, proof, server, name, tenant, status, kind } = rows[i];
                assert.deepEqual([event, provider, subject, proof, server, name, tenant, status, kind], ['token', 'os', userInfo().username, 'os', 'files', liar.origin, 'default', 'ok', 'grant']);
                assert.equal(rows[i].arguments, JSON.stringify({ user: `forwarded-user/${user}` }));
            }
            const verified = execFileSync(binary, ['audit', 'verify', '--file', join(place.state.path, 'audit.db')], { encoding: 'utf8' });
            assert.ok(verified, 'the chain is intact');
        }));
    test('H17 a disconnection without an audit log is not recorded', () =>
        withPlace('none', async (liar, place) => {
            const config = join(place.state.path, 'plain.json');
            writeFileSync(config, JSON.stringify({ mcpServers: { files: { url: liar.url } } }));
            const env = { ...process.env, POSTERN_STATE: place.state.path };
            for (const args of [['login', 'files', '--headless'], ['logout', 'files']]) execFileSync(binary, [...args, '--config', config], { env, stdio: 'ignore' });
            assert.throws(() => execFileSync(binary, ['audit', '--file', join(place.state.path, 'audit.db')], { stdio: 'ignore' }), 'the audit log does not exist');
        }));
});
