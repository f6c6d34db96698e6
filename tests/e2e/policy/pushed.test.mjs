// The policy applies to messages that servers push as well: they reach only callers that may use an item of the server.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, afterEach, before, test } from 'node:test';

import { binary, program, startGateway, temporaryDirectory, until } from '../gateway.mjs';
import { startIssuer } from '../issuer.mjs';
import { policyRule } from '../policy.mjs';
import { initialize, post, reply, send, stream } from '../raw.mjs';

const rule = (id, more) => policyRule(id, 'allow', { servers: ['*'], kinds: ['*'], names: ['*'], ...more });
const user = name => [`user:bearer:${name}`];
// ann may do everything, carl may read one resource, dora may call a tool that does not exist, and no rule names bob.
const rules = [
    rule('ann', { subjects: user('ann') }),
    rule('carl', { subjects: user('carl'), kinds: ['resource'], names: ['x://open'] }),
    rule('dora', { subjects: user('dora'), kinds: ['tool'], names: ['no-such-tool'] })
];

let folder, tokens, policy, secrets, gateway;
before(() => {
    folder = temporaryDirectory();
    tokens = join(folder.path, 'tokens.json');
    policy = join(folder.path, 'policy.json');
    const make = subject => execFileSync(binary, ['token', 'new', '--file', tokens, '--subject', subject], { encoding: 'utf8' }).trim();
    secrets = Object.fromEntries(['ann', 'bob', 'carl', 'dora'].map(name => [name, make(name)]));
});
after(() => folder.remove());
afterEach(() => gateway?.stop());

async function start(isolation) {
    writeFileSync(policy, JSON.stringify({ version: 1, description: 'A policy of this test', rules }));
    gateway = await startGateway({
        auth: { providers: [{ type: 'bearer', tokens }] }, policy, mcpServers: { p: { command: program.pusher, args: ['MARK'], isolation } }
    });
}

/** A session with its standalone stream open: `got` has every message received on it. */
async function open(subject, token = secrets[subject]) {
    const headers = post({ authorization: `Bearer ${token}` });
    const opened = await send(gateway.url, { headers, body: initialize('2025-11-25', { sampling: {}, roots: { listChanged: true } }) });
    assert.equal(opened.status, 200, opened.body);
    headers['mcp-session-id'] = opened.headers['mcp-session-id'];
    const session = { initialized: opened.body, got: [] };
    const tell = body => send(gateway.url, { headers, body });
    await tell({ jsonrpc: '2.0', method: 'notifications/initialized' });
    const events = await stream(gateway.url, { headers: { ...headers, accept: 'text/event-stream' } });
    const reading = (async () => {
        for (let event; (event = await events.message().catch(() => undefined)); ) session.got.push(event.message);
    })();
    let id = 1;
    session.tell = tell;
    session.ask = async (method, params) => reply(await tell({ jsonrpc: '2.0', id: ++id, method, params }));
    session.call = (name, args = {}) => session.ask('tools/call', { name: `p__${name}`, arguments: args });
    session.texts = () => JSON.stringify(session.got);
    session.renew = newer => (headers.authorization = `Bearer ${newer}`);
    session.end = () => send(gateway.url, { method: 'DELETE', headers });
    session.close = async () => {
        events.drop();
        await reading;
    };
    return session;
}
const closeAll = sessions => Promise.all(Object.values(sessions).map(session => session.close()));

test('X9 the instructions of a server are shown to callers that may use an item of it', async () => {
    await start('shared');
    const first = await open('ann');
    assert.equal((await first.ask('tools/list')).result.tools.length, 4);
    for (const list of ['prompts/list', 'resources/list']) await first.ask(list); // the server is known after the last of its lists
    const sessions = { first, ann: await open('ann'), bob: await open('bob'), carl: await open('carl'), dora: await open('dora') };
    const heard = Object.entries(sessions).filter(([, { initialized }]) => initialized.includes('MARK')).map(([name]) => name);
    assert.deepEqual(heard.filter(name => name !== 'first'), ['ann', 'carl']);
    for (const name of ['bob', 'dora']) assert.doesNotMatch(sessions[name].initialized, /instructions|"p"/, name);
    await closeAll(sessions);
});

test('X10 messages of a shared server reach only callers that may use it', async () => {
    await start('shared');
    const sessions = { ann: await open('ann'), bob: await open('bob'), carl: await open('carl'), dora: await open('dora') };
    const { ann, bob, carl, dora } = sessions;
    for (const session of Object.values(sessions)) await session.ask('tools/list');
    await carl.ask('resources/list');
    assert.ok((await carl.ask('resources/subscribe', { uri: 'postern://p/x://open' })).result);
    assert.equal((await carl.ask('resources/subscribe', { uri: 'postern://p/x://hidden' })).error.code, 403);
    assert.ok((await ann.ask('resources/subscribe', { uri: 'postern://p/x://hidden' })).result);
    await ann.call('say', { text: 'SECRET' });
    for (const uri of ['x://hidden', 'x://open/part', 'x://unknown', 'x://open']) await ann.call('touch', { uri });
    await ann.call('grow', { name: 'later' });
    const updates = ({ got }) => got.filter(({ method }) => method === 'notifications/resources/updated').map(({ params }) => params.uri);
    await until(() => updates(carl).includes('postern://p/x://open'), 5_000, 'the last update');
    await until(() => ann.texts().includes('tools/list_changed'), 5_000, 'the news');
    assert.deepEqual(updates(carl), ['postern://p/x://open']);
    assert.match(carl.texts(), /SECRET/);
    assert.deepEqual(bob.got, []);
    assert.ok(!dora.texts().includes('MARK'), dora.texts());
    await closeAll(sessions);
});

test('X10 a log level set by a caller that may not use the server is not sent to it', async () => {
    await start('shared');
    const sessions = { ann: await open('ann'), bob: await open('bob') };
    const { ann, bob } = sessions;
    await ann.ask('tools/list');
    await bob.ask('logging/setLevel', { level: 'debug' });
    await ann.ask('logging/setLevel', { level: 'info' });
    await until(() => ann.texts().includes('level info'), 5_000, 'the level');
    assert.doesNotMatch(ann.texts(), /level debug/);
    await closeAll(sessions);
});

test('a server gets the lowest log level that a session wants, and a higher one when that session ends', async () => {
    await start('shared');
    const sessions = { ann: await open('ann'), other: await open('ann') };
    const { ann, other } = sessions;
    await ann.ask('tools/list');
    const levels = () => [...ann.texts().matchAll(/level (\w+)/g)].map(([, level]) => level);
    const become = (...wanted) => until(() => levels().join() === wanted.join(), 5_000, wanted.join());
    await ann.ask('logging/setLevel', { level: 'info' });
    await become('info');
    await other.ask('logging/setLevel', { level: 'debug' });
    await become('info', 'debug');
    await other.ask('logging/setLevel', { level: 'info' });
    await become('info', 'debug', 'info');
    await other.ask('logging/setLevel', { level: 'debug' });
    await become('info', 'debug', 'info', 'debug');
    await other.end();
    await become('info', 'debug', 'info', 'debug', 'info');
    await closeAll(sessions);
});

test('X10 a server with isolation session does not start for a caller that may not use it', async () => {
    await start('session');
    const bob = await open('bob');
    assert.deepEqual((await bob.ask('tools/list')).result.tools, []);
    assert.equal((await bob.call('whoami')).error.code, 403);
    await bob.tell({ jsonrpc: '2.0', method: 'notifications/roots/list_changed' });
    assert.deepEqual(gateway.servers(), []);
    assert.deepEqual(bob.got, []);
    const dora = await open('dora'), ann = await open('ann');
    assert.deepEqual((await dora.ask('tools/list')).result.tools, []);
    assert.equal((await ann.ask('tools/list')).result.tools.length, 4);
    await until(() => ann.texts().includes('sampling/createMessage'), 5_000, 'the question');
    await dora.ask('ping');
    assert.deepEqual(dora.got, []);
    await closeAll({ ann, bob, dora });
});

test('X15 a caller that a new policy allows to use a server gets its messages and list changes', async () => {
    await start('shared');
    const sessions = { ann: await open('ann'), bob: await open('bob') };
    const { ann, bob } = sessions;
    await ann.ask('tools/list');
    await bob.ask('tools/list');
    const seen = gateway.log().length;
    writeFileSync(policy, JSON.stringify({ version: 1, description: 'Now bob may', rules: [...rules, rule('bob', { subjects: user('bob') })] }));
    process.kill(gateway.pid, 'SIGHUP');
    await until(() => gateway.log().slice(seen).includes('policy loaded'), 5_000, 'the new policy');
    await until(() => bob.texts().includes('tools/list_changed'), 5_000, 'the news');
    assert.equal((await bob.ask('tools/list')).result.tools.length, 4);
    await ann.call('say', { text: 'for both' });
    await until(() => bob.texts().includes('for both'), 5_000, 'the log');
    await closeAll(sessions);
});

test('X15 J14 a renewed token with fewer roles ends what the roles allowed, and omitted roles are marked in the audit', async () => {
    const issuer = await startIssuer('https://gateway.example/mcp');
    const groups = (...names) => issuer.sign(issuer.claims({ scope: '', groups: names, jti: names.join() || 'none' }));
    writeFileSync(policy, JSON.stringify({ version: 1, description: 'A policy of this test', rules: [
        rule('tools', { subjects: ['authenticated'], kinds: ['tool'] }), rule('readers', { subjects: ['role:reader'], kinds: ['resource'] })
    ] }));
    gateway = await startGateway({
        auth: { providers: [{ type: 'jwt', issuer: issuer.url, audiences: ['https://gateway.example/mcp'], role_claims: ['/groups'], role_map: { r: 'reader', w: 'writer' } }] },
        policy, mcpServers: { p: { command: program.pusher, args: ['MARK'] } }
    });
    const session = await open('ana', groups('r', 'w'));
    try {
        const updates = () => session.got.filter(({ method }) => method === 'notifications/resources/updated').length;
        await session.ask('resources/list');
        assert.ok((await session.ask('resources/subscribe', { uri: 'postern://p/x://open' })).result);
        await session.call('touch', { uri: 'x://open' });
        await until(() => updates() === 1, 5_000, 'an update');
        session.renew(groups('w'));
        await session.call('touch', { uri: 'x://open' });
        await until(() => session.texts().includes('resources/list_changed'), 5_000, 'the notification of the shorter list');
        session.renew(groups('r'));  // ended subscriptions are not renewed automatically
        await session.call('touch', { uri: 'x://open' });
        await session.ask('ping');
        assert.equal(updates(), 1);

        session.renew(issuer.sign(issuer.claims({ scope: '', groups: ['w'], _claim_names: { groups: 'elsewhere' }, jti: 'many' })));
        await session.call('whoami');
        const rows = () => execFileSync(binary, ['audit', '--file', join(gateway.state, 'audit.db'), '--json'], { encoding: 'utf8' }).trim().split('\n').filter(Boolean).map(line => JSON.parse(line));
        const row = await until(() => rows().find(({ name }) => name === 'whoami'), 5_000, 'the row');
        assert.deepEqual(JSON.parse(row.roles), ['…']);
        assert.deepEqual(JSON.parse(rows().find(({ name }) => name === 'touch').roles), ['reader', 'writer']);
    } finally {
        await session.close();
        await issuer.stop();
    }
});
