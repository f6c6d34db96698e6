// Changes that a command makes to the grant store while a gateway runs take effect at the very next list and the very next call.
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, test } from 'node:test';

import { startGateway } from '../gateway.mjs';
import { caller, everybody, forwarded } from '../hosted.mjs';
import { EXIT, withLiar } from '../liar.mjs';
import { resultText } from '../raw.mjs';

const LOGIN = -32003;

const servers = {
    shared: { auth: { mode: 'shared' } },
    own: { auth: { mode: 'per_user' } },
    alone: { auth: { mode: 'shared' }, isolation: 'session' }
};

/** Runs `body` with a liar, and a session of alice at a gateway that has these servers. */
async function withGateway(body) {
    await withLiar('none', null, async liar => {
        const policy = join(liar.directory.path, 'policy.json');
        writeFileSync(policy, JSON.stringify({ version: 1, description: 'The policy of this test', rules: [everybody] }));
        const mcpServers = Object.fromEntries(Object.entries(servers).map(([name, server]) => [name, { url: liar.url, ...server }]));
        const config = { auth: { providers: [forwarded] }, policy, mcpServers, timeouts: { list: '30s' } };
        liar.config = join(liar.directory.path, 'serve.json');
        writeFileSync(liar.config, JSON.stringify(config));
        const gateway = await startGateway(config, [], { variables: { POSTERN_STATE: liar.state } });
        try {
            await body(liar, await caller('alice', gateway.url), gateway);
        } finally {
            await gateway.stop();
        }
    });
}

const whose = server => (server === 'own' ? ['--subject', 'forwarded-user:alice'] : []);

async function command(liar, name, server, ...args) {
    liar.whom = [server, ...whose(server)];
    const { status, stderr } = await (name === 'login' ? liar.login(...args) : liar.run(name, ...liar.whom));
    assert.equal(status, EXIT.OK, stderr);
}

const listed = async alice => (await alice.request('tools/list')).result.tools.map(({ name }) => name);
const echo = (alice, server) => alice.request('tools/call', { name: `${server}__echo`, arguments: {} });
const grantOf = async (alice, server) => Number(/for grant (\d+)$/.exec(resultText(await echo(alice, server)))[1]);
const called = async liar => (await liar.seen('/mcp')).filter(({ body }) => body.includes('"tools/call"')).length;
const asked = async liar => (await liar.seen('/mcp')).length;

/** Lists `times` times in sequence, long enough for the pauses between attempts to grow. */
async function listOften(alice, times) {
    for (let i = 0; i < times; i++) assert.deepEqual(await listed(alice), []);
}

for (const server of Object.keys(servers))
    describe(`${server}: ${JSON.stringify(servers[server])}`, () => {
        test('the tools of a server are listed after a login', () =>
            withGateway(async (liar, alice) => {
                await listOften(alice, 20);
                assert.equal(await asked(liar), 0, 'no request is sent without a grant');
                await command(liar, 'login', server);
                assert.ok((await listed(alice)).includes(`${server}__echo`));
            }));
        test('calls follow a login, a logout and another login at once', () =>
            withGateway(async (liar, alice) => {
                assert.equal((await echo(alice, server)).error.code, LOGIN);
                await command(liar, 'login', server);
                const first = await grantOf(alice, server);
                await command(liar, 'login', server, '--force');
                const second = await grantOf(alice, server);
                assert.equal(second, first + 1, 'another login');
                const before = await called(liar);
                await command(liar, 'logout', server);
                assert.equal((await echo(alice, server)).error?.code, LOGIN);
                assert.equal(await called(liar), before, 'no call was sent after the logout');
                await command(liar, 'login', server);
                assert.equal(await grantOf(alice, server), second + 1);
            }));
    });

test('a token that the server rejects is not sent for every list, and the next login takes effect at once', () =>
    withGateway(async (liar, alice) => {
        liar.whom = ['shared'];
        const { status, stderr } = await liar.withInput('stale-token-of-nobody\n', 'login', 'shared', '--token-stdin');
        assert.equal(status, EXIT.OK, stderr);
        const began = Date.now();
        await Promise.all(Array.from({ length: 20 }, () => listOften(alice, 10)));
        const rounds = 1 + Math.ceil((Date.now() - began) / 1000);
        // Two servers; the gateway also starts one of them without a call.
        const times = await asked(liar);
        assert.ok(times >= 2 && times <= 4 * rounds, `${times} requests in ${rounds} s`);
        await command(liar, 'login', 'shared');
        assert.ok((await listed(alice)).includes('shared__echo'));
    }));

test('a token that expires while commands use the store is refreshed for every call', () =>
    withGateway(async (liar, alice) => {
        await command(liar, 'login', 'shared');
        for (let round = 0; round < 5; round++) {
            await liar.control({ expire: true });
            const using = liar.connections();
            const calls = Array.from({ length: 8 }, () => grantOf(alice, 'shared'));
            await using;
            calls.push(grantOf(alice, 'shared'));
            assert.deepEqual(new Set(await Promise.all(calls)).size, 1);
        }
        assert.ok((await liar.get('/state')).refreshes <= 5, 'one refresh for each expired token');
    }));
