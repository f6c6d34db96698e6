// Two tenants with two users each, interleaved at random: no user ever sees anything of another tenant.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';

import { binary, program, startGateway, temporaryDirectory, until } from '../gateway.mjs';
import { policyRule } from '../policy.mjs';
import { initialize, post, reply, send, stream } from '../raw.mjs';

const OPERATIONS = 1_500;
const SEED = Number(process.env.POSTERN_TEST_SEED ?? 20261116);

// Servers of a tenant carry its mark in their name, which is part of every name, URI and error that could leak, and of every message
// that they push. The process id beside it distinguishes the servers of single users and sessions.
const tenants = { default: 'north', acme: 'east', globex: 'west' };
const kinds = ['shared', 'user', 'session'];

const rule = (id, more) => policyRule(id, 'allow', { subjects: ['authenticated'], servers: ['*'], kinds: ['*'], names: ['*'], ...more });
const policy = { version: 1, description: 'Every caller may use the servers of its own tenant', rules: [rule('own-servers')] };

let folder, gateway;
const users = [];

before(async () => {
    folder = temporaryDirectory();
    writeFileSync(join(folder.path, 'policy.json'), JSON.stringify(policy));
    const token = (name, tenant) => {
        const args = ['token', 'new', '--file', join(folder.path, 'tokens.json'), '--subject', name, '--tenant', tenant, '--description', 'a user of this test'];
        return execFileSync(binary, args, { encoding: 'utf8' }).trim();
    };
    for (const tenant of ['acme', 'globex']) for (const name of ['ana', 'bob']) users.push({ tenant, name, token: token(name, tenant) });
    users.push({ tenant: 'nowhere', name: 'eve', token: token('eve', 'nowhere') });
    const server = (tenant, isolation) => {
        const name = `${tenants[tenant]}-${isolation}`;
        return { [name]: { command: program.pusher, args: [name], isolation } };
    };
    const servers = tenant => Object.assign({}, ...kinds.map(kind => server(tenant, kind)));
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

const headersOf = (user, session) => ({ authorization: `Bearer ${user.token}`, ...(session ? { 'mcp-session-id': session } : {}) });

/** Checks a text that a user received: it contains nothing of another tenant, another user or a process of another user. */
function check(user, text) {
    const who = `${user.tenant}/${user.name}`;
    for (const [tenant, mark] of Object.entries(tenants))
        if (tenant !== user.tenant) assert.ok(!text.includes(mark) && !text.includes(`${tenant}/`), `${who} saw ${tenant}: ${text.slice(0, 500)}`);
    for (const [, kind, pid, saying] of text.matchAll(/-(shared|user|session)#(\d+)#(?: for (\w+\/\w+))?/g)) {
        if (kind === 'shared') continue;  // one process for the whole tenant
        assert.ok(!saying || saying === who, `${who} received a message for ${saying}: ${text.slice(0, 500)}`);
        user.processes.add(pid);
    }
    for (const other of users.slice(0, 4))
        if (other !== user && other.session) assert.ok(!text.includes(other.session), `${who} saw a session of ${other.tenant}/${other.name}`);
}

async function ask(user, body, session = user.session) {
    const answer = await send(gateway.url, { headers: post(headersOf(user, session)), body });
    if (user.processes) {
        check(user, JSON.stringify(answer.headers) + answer.body);
        for (const [, method] of answer.body.matchAll(/"method":"([^"]+)"/g)) user.heard[method] = (user.heard[method] ?? 0) + 1;
    }
    return { status: answer.status, session: answer.headers['mcp-session-id'], text: answer.body, message: answer.body ? reply(answer) : undefined };
}

/** Opens a session and its standalone stream; every message on it is checked as well. */
async function enter(user) {
    Object.assign(user, { processes: new Set(), heard: {} });
    const opened = await ask(user, initialize('2025-11-25', { sampling: {} }), undefined);
    user.session = opened.session;
    assert.equal((await ask(user, { jsonrpc: '2.0', method: 'notifications/initialized' })).status, 202);
    user.events = await stream(gateway.url, { headers: { ...headersOf(user, user.session), accept: 'text/event-stream' } });
    user.reading = (async () => {
        for (let event; (event = await user.events.message().catch(() => undefined)); ) {
            try {
                check(user, JSON.stringify(event));
            } catch (error) {
                user.leak ??= error;
            }
            user.heard[event.message.method] = (user.heard[event.message.method] ?? 0) + 1;
            user.ended ||= event.message.params?.uri?.endsWith('/the-end'); // messages of other servers may follow it
        }
    })();
}

test('an identity of an unknown tenant is refused', async () =>
    assert.equal((await ask(users[4], initialize('2025-11-25'))).status, 401));

test(`four users stay separate in ${OPERATIONS} random operations (seed ${SEED})`, { timeout: 240_000 }, async () => {
    let seed = SEED;
    const random = n => ((seed = (Math.imul(seed, 1103515245) + 12345) >>> 0) >>> 12) % n;  // its low bits are not random enough
    const people = users.slice(0, 4);
    let nonce = 0;
    for (const user of people) await enter(user);
    const request = (method, params) => ({ jsonrpc: '2.0', id: ++nonce, method, params });
    const serverOf = user => `${tenants[user.tenant]}-${kinds[random(3)]}`;
    const uriOf = (user, uri) => `postern://${serverOf(user)}/${uri}`;
    const call = (user, tool, args) => ask(user, request('tools/call', { name: `${serverOf(user)}__${tool}`, arguments: args }));
    // A request for an item of another tenant gets the same error as one for an item that does not exist, except for the requested name.
    const refused = async (user, method, params, absent) => {
        const [there, nowhere] = [await send(gateway.url, { headers: post(headersOf(user, user.session)), body: { jsonrpc: '2.0', id: 1, method, params } }),
            await ask(user, { jsonrpc: '2.0', id: 1, method, params: absent })];
        assert.ok(nowhere.message.error, nowhere.text);
        const bare = text => text.replaceAll(params.uri ?? params.name, '?').replaceAll(absent.uri ?? absent.name, '?');
        assert.equal(bare(there.body), bare(nowhere.text));
    };
    // Wait for all servers to start, because a call that waits for a start is answered with an event stream.
    for (const user of people) assert.equal((await ask(user, request('tools/list', {}))).message.result.tools.length, 4);
    const operations = [
        async user => {
            const answer = await ask(user, request('tools/list', {}));
            assert.equal(answer.message.result.tools.length, 4);
            user.cursor = answer.message.result.nextCursor;
        },
        async user => {
            const answer = await call(user, 'whoami', {});
            assert.match(answer.message.result?.content[0].text ?? answer.text, /#\d+# whoami$/);
        },
        async (user, other) => {
            if (other.tenant === user.tenant) return;
            await refused(user, 'tools/call', { name: `${tenants[other.tenant]}-shared__whoami`, arguments: {} }, { name: 'nowhere-shared__whoami', arguments: {} });
        },
        async (user, other) => {
            if (other.tenant === user.tenant) return;
            await refused(user, 'resources/read', { uri: `postern://${tenants[other.tenant]}-shared/x://open` }, { uri: 'postern://nowhere-shared/x://open' });
        },
        async (user, other) => {
            const answer = await ask(user, request('ping'), other.session);
            assert.equal(answer.status, other === user ? 200 : 404);
        },
        async (user, other) => {
            if (!other.cursor) return;
            const answer = await ask(user, request('tools/list', { cursor: other.cursor }));
            if (other !== user) assert.equal(answer.message.error?.code, -32602, answer.text);
            else assert.ok(answer.message.result, answer.text);
        },
        async user => void (await ask(user, request(['prompts/list', 'resources/list', 'resources/templates/list'][random(3)], {}))),
        async user => assert.ok((await ask(user, request('resources/read', { uri: uriOf(user, 'x://open') }))).message.result),
        async user => assert.ok((await ask(user, request('resources/subscribe', { uri: uriOf(user, 'x://open') }))).message.result),
        async user => assert.ok((await call(user, 'say', { text: `for ${user.tenant}/${user.name} ${nonce}` })).message.result),
        // URIs below the subscribed resource and elsewhere: updates of both go to subscribers of this server.
        async user => assert.ok((await call(user, 'touch', { uri: `x://${random(2) ? 'open' : 'other'}/${user.tenant}/${user.name}/${nonce}` })).message.result),
        async user => assert.ok((await ask(user, request('logging/setLevel', { level: ['debug', 'info'][random(2)] }))).message.result)
    ];
    for (let i = 0; i < OPERATIONS; i += 4)
        await Promise.all(people.map(user => operations[random(operations.length)](user, people[random(4)])));

    for (const user of people) {  // messages are in order, so all earlier ones have arrived with the end
        const uri = 'x://open', own = `${tenants[user.tenant]}-session`, end = `${uri}/the-end`;
        await ask(user, request('resources/subscribe', { uri: `postern://${own}/${uri}` }));
        await ask(user, request('tools/call', { name: `${own}__touch`, arguments: { uri: end } }));
        await until(() => user.ended, 10_000, 'the end');
        user.events.drop();
        await user.reading;
        if (user.leak) throw user.leak;
        for (const method of ['notifications/message', 'notifications/resources/updated']) assert.ok(user.heard[method] > 10, `${user.name}: ${JSON.stringify(user.heard)}`);
    }
    // Lists, logs and answers of servers of a single user came from processes of which no other user received anything.
    for (const user of people) {
        assert.ok(user.processes.size >= 2, [...user.processes].join());
        for (const other of people) if (other !== user) assert.ok(user.processes.isDisjointFrom(other.processes), `${user.name}, ${other.name}`);
    }
});

test('the audit of a tenant has only its own rows with the right users', async () => {
    const read = (...more) => execFileSync(binary, ['audit', '--file', join(gateway.state, 'audit.db'), '--json', '--limit', '0', ...more], { encoding: 'utf8', maxBuffer: 1 << 28 })
        .trim().split('\n').filter(Boolean).map(line => JSON.parse(line));
    const all = await until(() => {
        const rows = read();
        return rows.filter(({ method }) => method === 'tools/call').length > 100 && rows;
    }, 10_000, 'the rows');
    for (const tenant of ['acme', 'globex']) {
        const rows = read('--tenant', tenant);
        assert.ok(rows.length > 100 && rows.length < all.length);
        for (const row of rows) {
            assert.equal(row.tenant, tenant);
            assert.ok(['ana', 'bob'].includes(row.subject), JSON.stringify(row));
            if (row.server) assert.ok(row.server.startsWith(tenants[tenant]), JSON.stringify(row));
        }
        for (const name of ['ana', 'bob']) assert.ok(read('--tenant', tenant, '--subject', name).every(({ subject }) => subject === name));
    }
});
