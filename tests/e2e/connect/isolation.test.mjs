// A user never uses the grant of another user: users connect, disconnect and call in random order, and every answer is checked against
// the grants of its user. POSTERN_STEPS is the number of calls (default: 10,000); POSTERN_SEED repeats a run.
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';

import { freePort, node, peerPath, startGateway, startPeer, temporaryDirectory } from '../gateway.mjs';
import { Jar } from '../jar.mjs';
import { initialize, post, reply, send } from '../raw.mjs';

const STEPS = Number(process.env.POSTERN_STEPS ?? 10_000);
const SEED = Number(process.env.POSTERN_SEED ?? Date.now() % 1_000_000);
const USERS = 12;
const AT_ONCE = 40;

let folder, authority, gateway;
before(async () => {
    folder = temporaryDirectory();
    const rule = { id: 'all', effect: 'allow', description: 'Every authenticated caller may call every tool', tenants: ['default'], subjects: ['authenticated'], servers: ['*'], kinds: ['tool'], names: ['*'] };
    writeFileSync(join(folder.path, 'policy.json'), JSON.stringify({ version: 1, description: 'Everything is allowed', rules: [rule] }));
    authority = await startPeer(node, peerPath('authority.mjs'), 3600, 'ask');
    const port = await freePort();
    gateway = await startGateway({
        listen: [{ address: `127.0.0.1:${port}` }],
        public_url: `http://127.0.0.1:${port}`,
        auth: { providers: [{ type: 'forwarded-user', trusted_proxies: ['127.0.0.1'] }] },
        policy: join(folder.path, 'policy.json'),
        mcpServers: { files: { url: authority.url, auth: { mode: 'per_user' } } }
    });
});
after(async () => {
    await gateway?.stop();
    await authority?.stop();
    folder?.remove();
});

/** mulberry32 */
function randomOf(seed) {
    let a = seed;
    return below => {
        a = (a + 0x6d2b79f5) | 0;
        let t = Math.imul(a ^ (a >>> 15), 1 | a);
        t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
        return Math.floor((((t ^ (t >>> 14)) >>> 0) / 2 ** 32) * below);
    };
}

class Session {
    static async open(user) {
        const session = new Session();
        session.user = user;
        const headers = { 'x-forwarded-user': user.name };
        const opened = await send(gateway.url, { headers: post(headers), body: initialize('2025-06-18') });
        session.headers = post({ ...headers, 'mcp-session-id': opened.headers['mcp-session-id'] });
        return session;
    }
    async request(method, params) {
        return reply(await send(gateway.url, { headers: this.headers, body: { jsonrpc: '2.0', id: 1, method, params } }));
    }
    /** Lists the tools; a user who never connected must not see any, even if other users do. */
    async list() {
        const never = this.user.turns === 0;
        const { result } = await this.request('tools/list', {});
        if (never) assert.deepEqual(result.tools, [], `${this.user.name}, seed ${SEED}`);
    }
    async check() {
        const expected = this.user.connected ? `account-of-${this.user.name}` : -32003;
        const { error, result } = await this.request('tools/call', { name: 'files__whoami', arguments: {} });
        assert.equal(error?.code ?? result.content[0].text, expected, `${this.user.name}, seed ${SEED}: ${JSON.stringify(error ?? result)}`);
        return error?.data?.authorizationUrl;
    }
}

test(`H1 H2 a user without a grant is always asked to connect (${STEPS} calls, seed ${SEED})`, async () => {
    const random = randomOf(SEED);
    const users = Array.from({ length: USERS }, (_, i) => ({ name: `user${i}`, connected: false, turns: 0 }));
    const jars = users.map(user => new Jar(user.name));
    const sessions = [];
    for (const user of [...users, ...users]) sessions.push(await Session.open(user));
    for (let step = 0; step < STEPS; step += AT_ONCE) {
        // One user connects or disconnects while the others call; the calls of that user are skipped, as their outcome is undefined meanwhile.
        const at = random(USERS);
        const mover = step % (AT_ONCE * 4) === 0 && users[at].turns < 8 ? users[at] : undefined;
        const calls = [];
        for (let i = 0; i < AT_ONCE; i++) {
            const session = sessions[random(sessions.length)];
            if (session.user !== mover) calls.push(random(10) === 0 ? session.list() : session.check());
        }
        if (mover) {
            mover.turns++;
            if (mover.connected) await jars[at].disconnect(gateway.origin, 'files');
            else await jars[at].connect(await sessions.find(session => session.user === mover).check());
            mover.connected = !mover.connected;
        }
        await Promise.all(calls);
        if (random(20) === 0) sessions[random(sessions.length)] = await Session.open(users[random(USERS)]);
        for (const user of users) if (!sessions.some(session => session.user === user)) sessions.push(await Session.open(user));
    }
    for (const session of sessions) await session.check();
});
