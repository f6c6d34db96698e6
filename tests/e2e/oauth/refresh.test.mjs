// Many processes with one grant at a server that rotates refresh tokens and revokes a grant when a spent token is used again; and kill -9.
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { describe, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';

import { settles, until } from '../gateway.mjs';
import { aMinuteLater, EXIT, withLiar } from '../liar.mjs';
import { Session } from '../raw.mjs';

const { OK, UNAVAILABLE } = EXIT;
const [GATEWAYS, CALLS] = (process.env.POSTERN_STORM ?? '8x50').split('x').map(Number);
const COMMANDS = 8;
const ROUNDS = 10;
const NOTICED_MS = 50;
const HOLD_MS = 10_000; // TOKEN_STORE_HOLD_MS: a lease that is not renewed
const WAIT_MS = 60_000;

const many = (count, make) => Promise.all(Array.from({ length: count }, (_, i) => make(i)));

/** Runs `body` with gateways that share the home of the login, each with an open session. */
async function withGateways(liar, count, body) {
    const gateways = await many(count, () => liar.gateway());
    try {
        for (const gateway of gateways) gateway.session = await Session.open(gateway.url);
        await body(gateways);
    } finally {
        await Promise.all(gateways.map(gateway => gateway.stop()));
    }
}

/** Makes `calls` concurrent calls through each gateway, all of which must succeed. */
async function storm(gateways, calls = CALLS) {
    const answers = await Promise.all(gateways.map(({ session }) => many(calls, i => session.call('liar__echo', { i }))));
    for (const answer of answers.flat()) assert.ok(answer.result, JSON.stringify(answer));
}

/** There were this many refreshes and reuses of a spent token, and the grant is still valid. */
async function assertRefreshed(liar, refreshes, reuses = 0) {
    const state = await liar.get('/state');
    assert.deepEqual([state.refreshes, state.reuses, state.alive], [refreshes, reuses, 1]);
}

/** Runs `work` while the first refresh is held for `ms`, during which no other process may begin a refresh. */
async function whileRefreshing(liar, work, ms = 1000) {
    await liar.control({ hold: '/token', when: 'after' });
    const done = work();
    await liar.held();
    assert.equal(await settles(liar.held(2), ms), false, 'two refresh at once');
    await liar.control({ release: true });
    await done;
}

/** Gateways that have the store open look their grants up again after this, within a moment. */
async function anotherProcessWrites(liar) {
    const db = new DatabaseSync(join(liar.state, 'store.db'));
    db.exec('UPDATE counter SET last=last+1');
    db.close();
    await sleep(NOTICED_MS); // the lookup is not observable from outside; a round that begins too early only proves less
}

async function login(liar) {
    const { status, stderr } = await liar.login();
    assert.equal(status, OK, stderr);
}

async function callWorks(liar) {
    const { status, stderr } = await liar.call();
    assert.equal(status, OK, stderr);
}

async function kill({ child, ended }) {
    child.kill('SIGKILL');
    assert.equal((await ended).signal, 'SIGKILL');
}

async function killGateway(gateway) {
    gateway.child.kill('SIGKILL');
    await gateway.exited;
    await gateway.stop().catch(() => {}); // it reports the signal after it has cleaned up
}

describe('F3 F4 F5 concurrent refreshes', () => {
    test(`${GATEWAYS} gateways with ${CALLS} concurrent calls each refresh a rejected token once`, () =>
        withLiar('none', null, async liar => {
            await login(liar);
            await withGateways(liar, GATEWAYS, async gateways => {
                await storm(gateways, 1);
                await assertRefreshed(liar, 0);
                await liar.control({ expire: true });
                await storm(gateways);
                await assertRefreshed(liar, 1);
                await liar.control({ expire: true });
                await whileRefreshing(liar, () => storm(gateways));
                await assertRefreshed(liar, 2);
            });
        }));
    test('a token that is rejected during a lookup for other calls is refreshed once for all of them', () =>
        withLiar('none', null, async liar => {
            await login(liar);
            await withGateways(liar, 1, async ([gateway]) => {
                await storm([gateway], 1);
                for (let round = 1; round <= ROUNDS; round++) {
                    await liar.control({ hold: '/mcp', times: CALLS });
                    const sent = storm([gateway]);
                    await liar.held(CALLS);
                    await liar.control({ expire: true });
                    await anotherProcessWrites(liar);
                    const released = liar.control({ release: true });
                    await Promise.all([storm([gateway]), sent, released]);
                    await assertRefreshed(liar, round);
                }
            });
        }));
    test(`${GATEWAYS} gateways with ${CALLS} concurrent calls each refresh an expired token once`, () =>
        withLiar('expires-first', null, async liar => {
            await login(liar);
            await whileRefreshing(liar, () => withGateways(liar, GATEWAYS, gateways => storm(gateways)));
            await assertRefreshed(liar, 1);
        }));
    test(`${COMMANDS} concurrent commands refresh an expired token once`, () =>
        withLiar('none', null, async liar => {
            await login(liar);
            await liar.control({ expire: true });
            await whileRefreshing(liar, () => many(COMMANDS, () => callWorks(liar)));
            await assertRefreshed(liar, 1);
        }));
    test('F6 a lease is renewed while a slow token endpoint answers and all callers wait', () =>
        withLiar('none', null, async liar => {
            await login(liar);
            await liar.control({ expire: true });
            await whileRefreshing(liar, () => many(3, () => callWorks(liar)), HOLD_MS + 2000);
            await assertRefreshed(liar, 1);
        }));
});

describe('F4 F11 a process that is killed while it refreshes', () => {
    test(`${GATEWAYS - 1} other gateways with ${CALLS} concurrent calls each continue after a kill before the refresh`, () =>
        withLiar('none', null, async liar => {
            await login(liar);
            await withGateways(liar, GATEWAYS, async ([winner, ...others]) => {
                await storm([winner, ...others], 1);
                await liar.control({ expire: true, hold: '/token', times: 1 });
                const lost = winner.session.call('liar__echo').catch(() => {});
                await liar.held();
                const before = (await liar.seen('/mcp')).length;
                const waiting = storm(others);
                await until(async () => (await liar.seen('/mcp')).length >= before + others.length, WAIT_MS, 'the others are refused');
                await killGateway(winner);
                await lost;
                await waiting;
                await assertRefreshed(liar, 1);
            });
        }));
    test(`${COMMANDS - 1} other commands continue after a kill before the refresh`, () =>
        withLiar('none', null, async liar => {
            await login(liar);
            await liar.control({ expire: true, hold: '/token', times: 1 });
            assert.equal(liar.refreshing(), 0);
            const winner = liar.startCall();
            await liar.held();
            assert.equal(liar.refreshing(), 1, 'F11: the lease is stored before the server handles the request');
            const before = (await liar.seen('/mcp')).length;
            const waiting = many(COMMANDS - 1, () => callWorks(liar));
            await until(async () => (await liar.seen('/mcp')).length >= before + COMMANDS - 1, WAIT_MS, 'the others are refused');
            await kill(winner);
            assert.equal(liar.refreshing(), 1, 'F11: the lease of the killed process is still stored');
            await waiting;
            await assertRefreshed(liar, 1);
            assert.equal(liar.refreshing(), 0);
        }));
    test('a kill after a strict server has rotated loses the grant, which is reported and repaired by a login', () =>
        withLiar('none', null, async liar => {
            await login(liar);
            await liar.control({ expire: true, hold: '/token', when: 'after', times: 1 });
            const winner = liar.startCall();
            await liar.held();
            await kill(winner);
            const next = await liar.call();
            assert.equal(next.status, UNAVAILABLE);
            assert.match(next.stderr, /postern login/);
            assert.equal((await liar.get('/state')).reuses, 1);
            await login(liar);
            await callWorks(liar);
        }));
    test('a kill after a server with a grace period has rotated does not lose the grant', () =>
        withLiar('rotation-grace', null, async liar => {
            await login(liar);
            await liar.control({ expire: true, hold: '/token', when: 'after', times: 1 });
            const winner = liar.startCall();
            await liar.held();
            await kill(winner);
            await callWorks(liar);
            await assertRefreshed(liar, 2);
        }));
    test('S3 a kill while the answer is stored leaves the old or the new record', () =>
        withLiar('rotation-grace', null, async liar => {
            await login(liar);
            for (let delay = 0; delay < 24; delay += 2) {
                await liar.control({ expire: true, hold: '/token', when: 'after', times: 1 });
                const winner = liar.startCall();
                await liar.held();
                await liar.control({ release: true });
                await sleep(delay); // at a different moment in each round
                winner.child.kill('SIGKILL');
                await winner.ended;
                liar.endLeases();
                await callWorks(liar);
                await liar.assertNothingLeaked();
            }
            assert.deepEqual([(await liar.get('/state')).alive, (await liar.connections()).length], [1, 1]);
        }));
});

const STEPS = [
    ['/mcp', 'before'],
    ['/.well-known/oauth-protected-resource/mcp', 'before'],
    ['/.well-known/oauth-authorization-server', 'before'],
    ['/register', 'before'],
    ['/register', 'after'],
    ['/authorize', 'before'],
    ['/authorize', 'after'],
    ['/token', 'before'],
    ['/token', 'after']
];

/** A login that is killed while the liar holds one of its requests. */
async function killedLogin(liar, hold, when) {
    await liar.control({ hold, when, times: 1 });
    const command = liar.start('login', '--url', liar.url, '--headless', '--reregister');
    await liar.held();
    await kill(command);
    await liar.assertNothingLeaked();
    aMinuteLater(liar.state);
}

describe('a login that is killed', () => {
    for (const [path, when] of STEPS)
        test(`a login killed ${when === 'before' ? 'before' : 'after'} the answer of ${path} leaves no state and the next one works`, () =>
            withLiar('none', null, async liar => {
                await killedLogin(liar, path, when);
                assert.deepEqual(await liar.connections(), []);
                assert.equal((await liar.call()).status, UNAVAILABLE);
                await login(liar);
                await callWorks(liar);
            }));
    test('a login killed at any step leaves the grant of an earlier login', () =>
        withLiar('none', null, async liar => {
            await login(liar);
            for (const [path, when] of STEPS) {
                await killedLogin(liar, path, when);
                await liar.control({ expire: true });
                await callWorks(liar);
            }
            assert.equal((await liar.connections()).length, 1);
            assert.equal((await liar.get('/state')).reuses, 0);
        }));
});
