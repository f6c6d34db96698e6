// The catalogue cache keeps the lists of each user apart, and no longer than the user's grant.
import assert from 'node:assert/strict';
import { execFile, execFileSync } from 'node:child_process';
import { copyFileSync, existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { after, before, test } from 'node:test';
import { promisify } from 'node:util';

import { binary, catalogueText, freePort, node, peerPath, startGateway, startPeer, stdioServer, temporaryDirectory, until } from '../gateway.mjs';
import { Jar } from '../jar.mjs';
import { initialize, post, reply, send } from '../raw.mjs';

const WAIT_MS = 30_000;
const ROUNDS = 4;

let folder, authority, config, starts;
before(async () => {
    folder = temporaryDirectory();
    const rule = { id: 'all', effect: 'allow', description: 'All tools, for authenticated callers', tenants: ['default'], subjects: ['authenticated'], servers: ['*'], kinds: ['tool'], names: ['*'] };
    writeFileSync(join(folder.path, 'policy.json'), JSON.stringify({ version: 1, description: 'All tools of all servers', rules: [rule] }));
    authority = await startPeer(node, peerPath('authority.mjs'), 3600, 'ask');
    const port = await freePort();
    const file = join(folder.path, 'starts');
    starts = () => (existsSync(file) ? readFileSync(file, 'utf8').trim().split('\n').length : 0);
    const { command, args } = stdioServer.misbehave('fine');
    config = {
        listen: [{ address: `127.0.0.1:${port}` }],
        public_url: `http://127.0.0.1:${port}`,
        auth: { providers: [{ type: 'forwarded-user', trusted_proxies: ['127.0.0.1'] }] },
        policy: join(folder.path, 'policy.json'),
        mcpServers: {
            files: { url: authority.url, auth: { mode: 'per_user' } },
            own: { command: '/bin/sh', args: ['-c', 'echo started >> "$0"; exec "$@"', file, command, ...args], isolation: 'user' }
        }
    };
});
after(async () => {
    await authority?.stop();
    folder?.remove();
});

class Caller {
    static async open(gateway, user, headers = { 'x-forwarded-user': user }) {
        const caller = Object.assign(new Caller(), { gateway });
        const opened = await send(gateway.url, { headers: post(headers), body: initialize('2025-06-18') });
        caller.headers = post({ ...headers, 'mcp-session-id': opened.headers['mcp-session-id'] });
        return caller;
    }
    async request(method, params) {
        return reply(await send(this.gateway.url, { headers: this.headers, body: { jsonrpc: '2.0', id: 1, method, params } }));
    }
    async names() {
        return (await this.request('tools/list', {})).result.tools.map(tool => tool.name);
    }
    async connect(user) {
        const { error } = await this.request('tools/call', { name: 'files__whoami', arguments: {} });
        await new Jar(user).connect(error.data.authorizationUrl);
        await this.request('tools/call', { name: 'files__whoami', arguments: {} }); // which waits for the new connection
        await until(async () => (await this.names()).includes('files__whoami'), WAIT_MS, `${user} sees the server`);
        for (const kind of ['prompts', 'resources', 'resources/templates']) await this.request(`${kind}/list`, {}); // lists are kept when all were fetched
    }
}

const sees = async (gateway, user) => (await Caller.open(gateway, user)).names();
const both = ['files__whoami', 'own__act', 'own__fine'], own = ['own__act', 'own__fine'];

/** Waits until the catalogue cache of a gateway has so many entries of a server. */
const awaitEntries = (gateway, server, count) =>
    until(() => {
        const file = new DatabaseSync(join(gateway.state, 'catalogue.db'), { readOnly: true });
        try {
            return file.prepare('SELECT count(*) AS n FROM entry WHERE server = ?').get(server).n === count;
        } finally {
            file.close();
        }
    }, WAIT_MS, `${count} entries of ${server}`);

test('H2 lists of a user are kept for that user alone, sealed, and until the user disconnects', async () => {
    let gateway = await startGateway(config);
    const again = async () => {
        await gateway.end('SIGTERM');
        gateway = await startGateway(config, [], { earlier: gateway });
    };
    try {
        await (await Caller.open(gateway, 'alice')).connect('alice');
        assert.deepEqual(await sees(gateway, 'bob'), own);
        await awaitEntries(gateway, 'files', 1);
        await awaitEntries(gateway, 'own', 2);
        await again();
        const before = starts();
        assert.deepEqual([await sees(gateway, 'alice'), await sees(gateway, 'bob')], [both, own]);
        assert.equal(starts(), before, 'both were answered from the cache');
        assert.deepEqual(await sees(gateway, 'carol'), own);
        assert.equal(starts(), before + 1, 'carol gets nothing that was kept for others');
        assert.match(catalogueText(gateway.state), /files/);
        assert.doesNotMatch(catalogueText(gateway.state), /whoami|alice|carol/);

        await new Jar('alice').disconnect(gateway.origin, 'files');
        await awaitEntries(gateway, 'files', 0);
        await again();
        assert.deepEqual(await sees(gateway, 'alice'), own);
    } finally {
        await gateway.stop();
    }
});

test('H2 the lists of a user whose token is revoked are forgotten, also of a server that was used', async () => {
    const tokens = join(folder.path, 'tokens.json');
    const token = (...args) => execFileSync(binary, ['token', ...args, '--file', tokens], { encoding: 'utf8' }).trim();
    const secrets = ['eve', 'dan'].map(subject => token('new', '--subject', subject));
    const gateway = await startGateway({ ...config, auth: { providers: [{ type: 'bearer', tokens }] } });
    const kept = () => {
        const db = new DatabaseSync(join(gateway.state, 'catalogue.db'));
        const rows = db.prepare("SELECT count(DISTINCT user) AS users FROM entry WHERE server = 'own'").get();
        db.close();
        return rows.users;
    };
    try {
        const callers = await Promise.all(secrets.map(secret => Caller.open(gateway, '', { authorization: `Bearer ${secret}` })));
        for (const caller of callers) assert.deepEqual(await caller.names(), own);
        await until(() => kept() === 2, WAIT_MS, 'the lists of both are kept');
        for (const caller of callers) assert.ok((await caller.request('tools/call', { name: 'own__fine', arguments: {} })).result);
        token('revoke', secrets[0].split('_')[1]);
        await gateway.line(/session ended: its credential is no longer valid/, WAIT_MS);
        await until(() => gateway.servers().length === 1, WAIT_MS, 'the server of eve has ended');
        await gateway.end('SIGTERM');
        assert.equal(kept(), 1);
    } finally {
        await gateway.stop();
    }
});

test('a gateway that is killed under load loses no token, no process and no list', async () => {
    const busy = { ...config, log: { level: 'debug' }, mcpServers: { ...config.mcpServers, changing: stdioServer.misbehave('changing', 5) } };
    let gateway = await startGateway(busy);
    try {
        await (await Caller.open(gateway, 'alice')).connect('alice');
        await gateway.line(/server saved in the catalogue cache server=files/, WAIT_MS);
        for (let round = 0; round < ROUNDS; round++) {
            const callers = await Promise.all(['alice', 'alice', 'bob', 'bob', 'carol'].map(user => Caller.open(gateway, user)));
            let answers = 0, killed = false;
            const load = callers.map(async (caller, i) => {
                const methods = [['tools/list', {}], ['tools/call', { name: ['own__fine', 'files__whoami'][i % 2], arguments: {} }]];
                for (let n = 0; !killed; n++) {
                    await caller.request(...methods[n % 2]).catch(() => (killed ||= true));
                    answers++;
                }
            });
            const enough = answers + 20 + round * 17;
            await until(() => answers > enough, WAIT_MS, 'calls are answered');
            await gateway.end('SIGKILL'); // which checks that no process of a server is left
            killed = true;
            await Promise.all(load);
            for (const name of ['store.db', 'catalogue.db']) {
                const file = new DatabaseSync(join(gateway.state, name));
                assert.deepEqual(file.prepare('PRAGMA integrity_check').all().map(row => row.integrity_check), ['ok'], name);
                file.close();
            }

            gateway = await startGateway(busy, [], { earlier: gateway });
            assert.doesNotMatch(gateway.log(), /damaged|^\S+ error /m);
            const alice = await Caller.open(gateway, 'alice');
            const listed = await alice.names();
            assert.ok(both.every(name => listed.includes(name)), `round ${round}: ${listed}`);
            await gateway.line(/server restored from the catalogue cache.*server=files/);
            const { result } = await alice.request('tools/call', { name: 'files__whoami', arguments: {} });
            assert.equal(result?.content[0].text, 'account-of-alice', `round ${round}`);
        }
    } finally {
        await gateway.stop();
    }
});

test('lists of a user whose token is revoked are deleted', async () => {
    const tokens = join(folder.path, 'tokens.json');
    const token = (...args) => execFileSync(binary, ['token', ...args, '--file', tokens], { encoding: 'utf8' }).trim();
    const newToken = () => ({ authorization: `Bearer ${token('new', '--subject', 'dora', '--description', 'of this test')}` });
    const first = newToken();
    const bearer = { ...config, auth: { providers: [{ type: 'bearer', tokens }] } };
    let gateway = await startGateway(bearer);
    const list = async headers => (await Caller.open(gateway, 'dora', headers)).names();
    try {
        assert.deepEqual(await list(first), own);
        await gateway.end('SIGTERM');
        gateway = await startGateway(bearer, [], { earlier: gateway });
        const before = starts();
        assert.deepEqual([await list(first), starts()], [own, before]);
        assert.ok((await (await Caller.open(gateway, 'dora', first)).request('tools/call', { name: 'own__fine', arguments: {} })).result);
        assert.equal(starts(), before + 1, 'a call has started the server, so its lists may be saved again');
        token('revoke', /postern_([A-Za-z0-9]+)_/.exec(first.authorization)[1]);
        await gateway.line(/session ended: its credential is no longer valid/, WAIT_MS);
        const second = newToken();
        const opens = () => send(gateway.url, { headers: post(second), body: initialize('2025-06-18') });
        await until(async () => (await opens()).status === 200, WAIT_MS, 'the new token is accepted');
        assert.deepEqual([await list(second), starts()], [own, before + 2]);
    } finally {
        await gateway.stop();
    }
});

for (const used of [true, false])
    test(`H2 lists of a user are deleted when a command logs the user out of a server that ${used ? 'was used' : 'was only listed'}, while the gateway runs`, async () => {
        let gateway = await startGateway(config);
        const again = async () => {
            await gateway.end('SIGTERM');
            gateway = await startGateway(config, [], { earlier: gateway });
        };
        try {
            await (await Caller.open(gateway, 'alice')).connect('alice');
            await awaitEntries(gateway, 'files', 1);
            if (!used) await again();
            const alice = await Caller.open(gateway, 'alice');
            assert.deepEqual(await alice.names(), both);
            const args = ['logout', 'files', '--subject', 'forwarded-user:alice', '--config', join(gateway.state, 'postern.json')];
            await promisify(execFile)(binary, args, { env: { ...process.env, POSTERN_STATE: gateway.state } });
            await awaitEntries(gateway, 'files', 0);
            assert.equal((await alice.request('tools/call', { name: 'files__whoami', arguments: {} })).error.data.reason, 'authorization_required');
            await gateway.end('SIGTERM');
            await awaitEntries(gateway, 'files', 0); // nothing was saved at the end
        } finally {
            await gateway.stop();
        }
    });

test('H2 lists of a user are not used after a logout while no gateway ran, nor after another login', async () => {
    let gateway = await startGateway(config);
    const again = async () => {
        await gateway.end('SIGTERM');
        gateway = await startGateway(config, [], { earlier: gateway });
    };
    try {
        await (await Caller.open(gateway, 'alice')).connect('alice');
        await awaitEntries(gateway, 'files', 1);
        await gateway.end('SIGTERM');
        const file = join(gateway.state, 'catalogue.db'), copy = join(folder.path, 'earlier.db');
        copyFileSync(file, copy);
        const args = ['logout', 'files', '--subject', 'forwarded-user:alice', '--config', join(gateway.state, 'postern.json')];
        execFileSync(binary, args, { env: { ...process.env, POSTERN_STATE: gateway.state } });
        gateway = await startGateway(config, [], { earlier: gateway });
        assert.deepEqual(await sees(gateway, 'alice'), own);
        await awaitEntries(gateway, 'files', 0);
        await (await Caller.open(gateway, 'alice')).connect('alice');
        await awaitEntries(gateway, 'files', 1);
        await again();
        assert.deepEqual(await sees(gateway, 'alice'), both);
        await gateway.line(/server restored from the catalogue cache.*server=files/);

        await gateway.end('SIGTERM');
        copyFileSync(copy, file); // the entry from before the logout, while another grant exists
        gateway = await startGateway(config, [], { earlier: gateway });
        assert.deepEqual(await sees(gateway, 'alice'), both);
        assert.doesNotMatch(gateway.log(), /server restored from the catalogue cache.*server=files/);
    } finally {
        await gateway.stop();
    }
});
