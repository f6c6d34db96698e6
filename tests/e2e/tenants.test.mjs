// Two tenants with two users each, interleaved at random: nothing of one is ever seen by another.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { after, before, test } from 'node:test';

import { binary, startGateway, temporaryDirectory } from './gateway.mjs';
import { initialize, post, send } from './raw.mjs';

const demo = join(dirname(binary), 'postern-demo');
const OPERATIONS = 1_500;

// Servers of one tenant carry its mark in their name, which is in every name, URI and error that could leak.
const tenants = { default: 'north', acme: 'east', globex: 'west' };

const policy = {
    version: 1,
    description: 'Everybody may use the servers of the own tenant',
    rules: [
        {
            id: 'own-servers',
            effect: 'allow',
            description: 'every user may use what the tenant has',
            tenants: ['*'],
            subjects: ['authenticated'],
            servers: ['*'],
            kinds: ['*'],
            names: ['*']
        }
    ]
};

let folder, gateway;
const users = [];

before(async () => {
    folder = temporaryDirectory();
    writeFileSync(join(folder.path, 'policy.json'), JSON.stringify(policy));
    for (const tenant of ['acme', 'globex'])
        for (const name of ['ana', 'bob']) {
            const args = ['token', 'new', '--file', join(folder.path, 'tokens.json'), '--subject', name, '--tenant', tenant, '--description', 'a user of this test'];
            users.push({ tenant, name, token: execFileSync(binary, args, { encoding: 'utf8' }).trim() });
        }
    const args = ['token', 'new', '--file', join(folder.path, 'tokens.json'), '--subject', 'eve', '--tenant', 'nowhere', '--description', 'of no tenant'];
    users.push({ tenant: 'nowhere', name: 'eve', token: execFileSync(binary, args, { encoding: 'utf8' }).trim() });
    const server = (tenant, isolation) => ({ [`${tenants[tenant]}-${isolation}`]: { command: demo, isolation } });
    const servers = tenant => ({ ...server(tenant, 'shared'), ...server(tenant, 'user'), ...server(tenant, 'session') });
    gateway = await startGateway({
        auth: { providers: [{ type: 'bearer', tokens: join(folder.path, 'tokens.json') }] },
        policy: join(folder.path, 'policy.json'),
        limits: { page_size: 4 },
        mcpServers: server('default', 'shared'),
        tenants: { acme: { mcpServers: servers('acme') }, globex: { mcpServers: servers('globex') } }
    });
});
after(async () => {
    await gateway?.stop();
    folder?.remove();
});

async function ask(user, body, session = user.session) {
    const headers = post({ authorization: `Bearer ${user.token}`, ...(session ? { 'mcp-session-id': session } : {}) });
    const answer = await send(gateway.url, { headers, body });
    return { status: answer.status, session: answer.headers['mcp-session-id'], text: answer.body, message: answer.body ? JSON.parse(answer.body) : undefined };
}

test('an identity of a tenant that is not configured is not let in', async () =>
    assert.equal((await ask(users[4], initialize('2025-11-25'))).status, 401));

test(`${OPERATIONS} random operations of four users`, { timeout: 240_000 }, async () => {
    let seed = 20261116;
    const random = n => (seed = (Math.imul(seed, 1103515245) + 12345) >>> 0) % n;
    const people = users.slice(0, 4);
    let nonce = 0;
    for (const user of people) {
        user.session = (await ask(user, initialize('2025-11-25'))).session;
        assert.equal((await ask(user, { jsonrpc: '2.0', method: 'notifications/initialized' })).status, 202);
    }
    const request = (method, params) => ({ jsonrpc: '2.0', id: ++nonce, method, params });
    const clean = (user, { text }) => {
        for (const [tenant, mark] of Object.entries(tenants))
            if (tenant !== user.tenant) assert.ok(!text.includes(mark), `${user.tenant}/${user.name} saw ${mark}: ${text.slice(0, 300)}`);
    };
    const operations = [
        async user => {
            const answer = await ask(user, request('tools/list', {}));
            clean(user, answer);
            assert.equal(answer.message.result.tools.length, 4);
            user.cursor = answer.message.result.nextCursor;
        },
        async user => {
            const tool = `${tenants[user.tenant]}-${['shared', 'user', 'session'][random(3)]}__echo`;
            const message = `${user.tenant}/${user.name}/${nonce}`;
            const answer = await ask(user, request('tools/call', { name: tool, arguments: { message } }));
            assert.equal(answer.message.result?.content[0].text, message, answer.text);
        },
        async (user, other) => {
            const answer = await ask(user, request('tools/call', { name: `${tenants[other.tenant]}-shared__echo`, arguments: { message: 'x' } }));
            if (other.tenant !== user.tenant) assert.equal(answer.message.error.code, 403, answer.text);
        },
        async (user, other) => {
            const uri = `postern://${tenants[other.tenant]}-shared/demo://welcome`;
            const answer = await ask(user, request('resources/read', { uri }));
            if (other.tenant !== user.tenant) assert.ok(answer.message.error, answer.text);
            else assert.ok(answer.message.result, answer.text);
        },
        async (user, other) => {
            const answer = await ask(user, request('ping'), other.session);
            assert.equal(answer.status, other === user ? 200 : 404);
            clean(user, answer);
        },
        async (user, other) => {
            if (!other.cursor) return;
            const answer = await ask(user, request('tools/list', { cursor: other.cursor }));
            clean(user, answer);
            if (other.tenant !== user.tenant || other !== user) assert.equal(answer.message.error?.code, -32602, answer.text);
            else assert.ok(answer.message.result, answer.text);
        },
        async user => {
            const answer = await ask(user, request('prompts/list', {}));
            clean(user, answer);
        }
    ];
    for (let i = 0; i < OPERATIONS; i += 4)
        await Promise.all(people.map(user => operations[random(operations.length)](user, people[random(4)])));
});
