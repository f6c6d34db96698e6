// Faulty servers: a fault affects only the calls of its own server. matrix.test.mjs has the faults that are a row each.
import assert from 'node:assert/strict';
import { createServer } from 'node:http';
import { once } from 'node:events';
import { after, before, describe, test } from 'node:test';

import { program, startGateway, startPeer, stdioServer, within } from '../gateway.mjs';
import { resultText, Session } from '../raw.mjs';

const CALL_FAILED = -32001;
const UNAVAILABLE = -32002;
const SOON_MS = 2_000;
const HUGE = 64 * 1024 * 1024 - 4096;

/** Runs `body` with a gateway that has the bad server beside a healthy one. */
async function beside(bad, body) {
    const gateway = await startGateway({ mcpServers: { bad, good: stdioServer.fixture() } });
    try {
        const session = await Session.open(gateway.url);
        assert.ok((await session.call('good__test_simple_text')).result, 'the healthy server has started');
        await body({ gateway, session });
    } finally {
        await gateway.stop();
    }
}

const soon = (promise, what) => within(promise, SOON_MS, what);

/** The healthy server answers at once. */
async function stillGood(session) {
    const answer = await soon(session.call('good__test_simple_text'), 'the healthy server');
    assert.equal(resultText(answer), 'This is a simple text response for testing.');
}

const names = async session => (await session.request('tools/list')).result.tools.map(({ name }) => name);

/** The call fails with this code and one of these reasons. */
function failed({ error }, code, ...reasons) {
    assert.equal(error?.code, code, JSON.stringify(error));
    assert.ok(reasons.includes(error.data?.reason), `reason ${error.data?.reason}, wanted ${reasons.join(' or ')}`);
    assert.doesNotMatch(JSON.stringify(error), /last words|misbehave\.mjs/, 'internals reached the caller');
}

const bad = (...args) => ({ ...stdioServer.misbehave(...args), timeout: '1s', start_timeout: '30s' });
const impatient = server => ({ ...server, start_timeout: '3s' });

describe('faults of one call', () => {
    const cases = {
        'wrong-id': [CALL_FAILED, 'upstream_timeout', 'upstream_invalid'],
        'bad-utf8': [CALL_FAILED, 'upstream_invalid', 'upstream_timeout'],
        'bad-json': [CALL_FAILED, 'upstream_invalid', 'upstream_timeout']
    };
    for (const [mode, expected] of Object.entries(cases)) {
        test(`a call of ${mode} over stdio fails alone`, () =>
            beside(bad(mode), async ({ session }) => {
                assert.equal(resultText(await session.call('bad__fine')), 'fine');
                const doomed = session.call('bad__act');
                await stillGood(session);
                failed(await doomed, ...expected);
                await stillGood(session);
                assert.ok((await names(session)).includes('good__test_simple_text'));
            }));
    }
    for (const mode of ['die', 'hang', 'wrong-id', 'bad-utf8', 'bad-json']) {
        test(`a call of ${mode} over Streamable HTTP fails alone`, async () => {
            const peer = await startPeer(program.misbehave, mode, '--http');
            try {
                await beside({ type: 'http', url: peer.url, timeout: '1s', start_timeout: '30s' }, async ({ session }) => {
                    assert.equal(resultText(await session.call('bad__fine')), 'fine');
                    const doomed = session.call('bad__act');
                    await stillGood(session);
                    failed(await doomed, CALL_FAILED, 'upstream_died', 'upstream_timeout', 'upstream_invalid');
                    await stillGood(session);
                });
            } finally {
                await peer.stop();
            }
        });
    }
    test('a server that died is restarted or reported unavailable', () =>
        beside(bad('die'), async ({ session }) => {
            await session.call('bad__act');
            const answer = await session.call('bad__fine');
            if (answer.error) failed(answer, UNAVAILABLE, 'server_unavailable', 'upstream_died');
            else assert.equal(resultText(answer), 'fine');
        }));
});

describe('faults of a start', () => {
    const cases = {
        'hang-init': impatient(bad('hang-init')),
        'hang-list': impatient(bad('hang-list')),
        'a missing command': { command: '/no/such/command', args: [] },
        'a command that ends at once': { command: '/bin/false', args: [], start_timeout: '3s' },
        'a closed port': { type: 'http', url: 'http://127.0.0.1:9/mcp', start_timeout: '3s' }
    };
    for (const [name, server] of Object.entries(cases)) {
        test(`a server with ${name} is left out of the list in its own time`, () =>
            beside(server, async ({ session }) => {
                await stillGood(session);
                const started = Date.now();
                assert.ok((await names(session)).includes('good__test_simple_text'));
                assert.ok(Date.now() - started < 5_000, 'tools/list waited too long');
                await stillGood(session);
                if (name === 'hang-list') return;
                const { error } = await session.call('bad__fine');
                assert.ok([UNAVAILABLE, -32602].includes(error?.code), JSON.stringify(error));
                assert.ok(['server_unavailable', 'upstream_timeout', 'unknown_tool'].includes(error.data?.reason), JSON.stringify(error));
            }));
    }
});

describe('odd but working servers', () => {
    test('junk between messages of a server is skipped', () =>
        beside(bad('junk'), async ({ session }) => {
            assert.equal(resultText(await session.call('bad__act')), 'fine');
            await stillGood(session);
        }));
    test('a call waits for a slow start', () =>
        beside(bad('slow-start', 1500), async ({ session }) => {
            await stillGood(session);
            assert.equal(resultText(await session.call('bad__fine')), 'fine');
        }));
    test('every page of a list is fetched until an empty cursor', () =>
        beside(bad('pages', 7), async ({ session }) => {
            const listed = (await names(session)).filter(name => name.startsWith('bad__'));
            assert.deepEqual(listed, ['bad__fine', ...[1, 2, 3, 4, 5, 6].map(page => `bad__page_${page}`)]);
            assert.equal(resultText(await session.call('bad__page_6')), 'fine');
        }));
    test('a flood of notifications does not delay other servers', () =>
        beside(bad('flood'), async ({ session }) => {
            assert.equal(resultText(await session.call('bad__act')), 'flooding');
            for (let i = 0; i < 10; i++) await stillGood(session);
        }));
    test('a server with Content-Length framing works', () =>
        beside(bad('content-length'), async ({ session }) => {
            await stillGood(session);
            const answer = await session.call('bad__fine');
            if (answer.error) assert.ok([UNAVAILABLE, -32602].includes(answer.error.code), JSON.stringify(answer.error));
            else assert.equal(resultText(answer), 'fine');
            await stillGood(session);
        }));
    for (const http of [false, true]) {
        test(`a message of 64 MiB passes ${http ? 'from Streamable HTTP' : 'from stdio'}`, async () => {
            const peer = http ? await startPeer(program.misbehave, 'huge', HUGE, '--http') : undefined;
            try {
                const server = peer ? { type: 'http', url: peer.url } : stdioServer.misbehave('huge', HUGE);
                await beside({ ...server, timeout: '60s' }, async ({ session }) => {
                    const call = session.call('bad__act');
                    await stillGood(session);
                    const text = resultText(await call);
                    assert.equal(text.length, HUGE);
                    assert.match(text.slice(-10), /^x+$/);
                    await stillGood(session);
                });
            } finally {
                await peer?.stop();
            }
        });
    }
    test('a session that the server forgot is reopened', async () => {
        const peer = await startPeer(program.misbehave, 'session-404');
        try {
            await beside({ type: 'http', url: peer.url, timeout: '5s' }, async ({ session }) => {
                for (let i = 0; i < 3; i++) assert.equal(resultText(await session.call('bad__fine')), 'fine');
            });
        } finally {
            await peer.stop();
        }
    });
});

describe('a server is not trusted', () => {
    let trap, hits;
    before(async () => {
        hits = 0;
        trap = createServer((_req, res) => {
            hits++;
            res.writeHead(202).end();
        }).listen(0, '127.0.0.1');
        await once(trap, 'listening');
    });
    after(() => trap.close());

    test('an SSE endpoint of another origin is never contacted', async () => {
        const foreign = `http://127.0.0.1:${trap.address().port}/messages`;
        const peer = await startPeer(program.misbehave, 'foreign-endpoint', foreign);
        try {
            await beside({ type: 'sse', url: peer.url, start_timeout: '2s', timeout: '2s' }, async ({ session }) => {
                const { error } = await session.call('bad__fine');
                assert.ok([UNAVAILABLE, -32602].includes(error?.code), JSON.stringify(error));
                await stillGood(session);
                assert.equal(hits, 0);
            });
        } finally {
            await peer.stop();
        }
    });
});

test('a server that ignores EOF and SIGTERM is killed at shutdown', () =>
    beside(bad('ignore-term'), async ({ gateway, session }) => {
        assert.equal(resultText(await session.call('bad__fine')), 'fine');
        await stillGood(session);
        assert.equal(gateway.servers().length, 2);
    }));
