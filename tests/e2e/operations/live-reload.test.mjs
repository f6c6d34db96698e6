// A running gateway reloads its configuration: changed servers, profiles, tenants and listeners start, stop or are replaced, and the rest is not disturbed.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, renameSync, symlinkSync, unlinkSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { after, before, beforeEach, describe, test } from 'node:test';

import { binary, freePort, peerPath, startGateway, temporaryDirectory, until } from '../gateway.mjs';
import { policyRule } from '../policy.mjs';
import { initialize, post, reply, send, Session } from '../raw.mjs';

const WAIT_MS = 20_000;
const demo = join(dirname(binary), 'postern-demo');
/** A server with a tool of this name, besides the tools that every mirror has. */
const mirror = (tools, more = {}) => ({ command: peerPath('mirror'), args: ['--tools', JSON.stringify(tools.split(','))], ...more });

let folder;
before(() => (folder = temporaryDirectory()));
after(() => folder?.remove());

const names = async session => (await session.request('tools/list')).result.tools.map(({ name }) => name).sort();
const has = async (session, name) => (await names(session)).includes(name);
const health = async gateway => JSON.parse((await send(`${gateway.origin}/healthz`, { method: 'GET' })).body);

/** The next message of this method on a session's own stream. */
async function heard(news, method) {
    for (;;) {
        const event = await news.next();
        const message = event.data ? JSON.parse(event.data) : {};
        if (message.method === method) return message;
    }
}

/** Starts a gateway that is stopped when the test ends. */
async function start(t, config, ...more) {
    const gateway = await startGateway(config, ...more);
    t.after(() => gateway.stop());
    return gateway;
}

/** A call that the server answers when `release()` is called. */
async function hold(session, tool) {
    const file = join(folder.path, `go-${Math.random()}`), begun = `${file}-begun`;
    const answer = session.call(tool, { file, begun });
    await until(() => existsSync(begun), WAIT_MS, 'the server has the call');
    return { answer, release: () => writeFileSync(file, '') };
}

describe('servers', () => {
    test('a server that is added can be used by open sessions, which get list_changed', async t => {
        const config = { mcpServers: { a: mirror('one') } };
        const gateway = await start(t, config), session = await Session.open(gateway.url);
        assert.ok(await has(session, 'a__one'));
        const [before] = await gateway.servers();
        const news = await session.get();
        assert.match(await gateway.reconfigure({ mcpServers: { ...config.mcpServers, b: mirror('two') } }), /^configuration reloaded/);
        await heard(news, 'notifications/tools/list_changed');
        assert.ok(await has(session, 'b__two'));
        assert.ok((await session.call('b__two')).result);
        assert.ok((await gateway.servers()).includes(before), 'the other server keeps running');
        news.drop();
    });

    test('a server that is removed finishes its calls and then ends, and its tools are gone', async t => {
        const gateway = await start(t, { mcpServers: { a: mirror('one'), b: mirror('two') } }), session = await Session.open(gateway.url);
        assert.ok(await has(session, 'b__two')); // sessions that have listed are notified
        const { answer, release } = await hold(session, 'b__wait');
        const news = await session.get();
        await gateway.reconfigure({ mcpServers: { a: mirror('one') } });
        await heard(news, 'notifications/tools/list_changed');
        news.drop();
        assert.ok(!await has(session, 'b__two'));
        assert.equal((await session.call('b__two')).error.code, -32602);
        assert.equal((await gateway.servers()).length, 2, 'it drains');
        release();
        assert.ok((await answer).result);
        await until(async () => (await gateway.servers()).length === 1, WAIT_MS, 'it ends');
    });

    test('a removed server that does not finish its calls in time is stopped, and they fail with the reason', async t => {
        const timeouts = { shutdown: '1s' };
        const gateway = await start(t, { timeouts, mcpServers: { a: mirror('one'), b: mirror('two') } }), session = await Session.open(gateway.url);
        const { answer } = await hold(session, 'b__wait');
        await gateway.reconfigure({ timeouts, mcpServers: { a: mirror('one') } });
        const { error } = await answer;
        assert.equal(error.data.reason, 'server_unavailable');
        assert.match(error.message, /removed or changed/);
        await until(async () => (await gateway.servers()).length === 1, WAIT_MS, 'it ends');
    });

    test('a removed server that no session uses any more ends', async t => {
        const b = mirror('two', { isolation: 'session' });
        const gateway = await start(t, { mcpServers: { a: mirror('one'), b } }), session = await Session.open(gateway.url);
        assert.ok(await has(session, 'a__one'));
        await session.delete();
        await until(async () => (await gateway.servers()).length === 1, WAIT_MS, 'the server of the session ends, the shared one stays');
        await gateway.reconfigure({ mcpServers: { b } });
        await until(async () => (await gateway.servers()).length === 0, WAIT_MS, 'the shared one ends');
    });

    test('a server that is changed starts anew, while calls at the old one are answered', async t => {
        const gateway = await start(t, { mcpServers: { a: mirror('one') } }), session = await Session.open(gateway.url);
        const { answer, release } = await hold(session, 'a__wait');
        await gateway.reconfigure({ mcpServers: { a: mirror('other') } });
        assert.ok((await session.call('a__other')).result);
        assert.equal((await session.call('a__one')).error.code, -32602);
        release();
        assert.ok((await answer).result);
        await until(async () => (await gateway.servers()).length === 1, WAIT_MS, 'the old one ends');
    });

    test('a server of each session starts anew with what its caller declared', async t => {
        const own = tools => mirror(tools, { isolation: 'session' });
        const gateway = await start(t, { mcpServers: { a: own('greeting') } });
        const session = await Session.open(gateway.url, { capabilities: { roots: {}, 'vendor.example/x': { odd: 1.0 } } });
        const declared = async () => JSON.parse((await session.call('a__greeting')).result.content[0].text).params.capabilities;
        const before = await declared();
        await gateway.reconfigure({ mcpServers: { a: own('greeting,more') } });
        assert.deepEqual(await declared(), before);
        assert.ok('vendor.example/x' in before);
    });

    test('calls and sessions of an unchanged server continue while other settings change', async t => {
        const gateway = await start(t, { mcpServers: { a: mirror('one'), b: mirror('two') } }), session = await Session.open(gateway.url);
        const { answer, release } = await hold(session, 'a__wait');
        const kept = await gateway.servers();
        await gateway.reconfigure({ prefix: true, limits: { sessions: 77 }, profiles: { p: { servers: ['a'] } }, mcpServers: { c: mirror('three'), a: mirror('one') } });
        release();
        assert.ok((await answer).result);
        assert.ok(await has(session, 'c__three'));
        await until(async () => (await gateway.servers()).filter(pid => kept.includes(pid)).length === 1, WAIT_MS, 'the removed server ends, the other server stays');
    });

    test('a disabled server stops, and starts again when it is enabled', async t => {
        const gateway = await start(t, { mcpServers: { a: mirror('one'), b: mirror('two') } }), session = await Session.open(gateway.url);
        assert.ok(await has(session, 'b__two'));
        await gateway.reconfigure({ mcpServers: { a: mirror('one'), b: mirror('two', { disabled: true }) } });
        assert.ok(!await has(session, 'b__two'));
        await gateway.reconfigure({ mcpServers: { a: mirror('one'), b: mirror('two') } });
        assert.ok((await session.call('b__two')).result);
    });

    test('subscriptions move to a server that is changed, and end with one that is removed', async t => {
        const gateway = await start(t, { mcpServers: { a: mirror('one'), b: mirror('two') } }), session = await Session.open(gateway.url);
        for (const server of ['a', 'b']) assert.ok((await session.request('resources/subscribe', { uri: `postern://${server}/mirror:///one` })).result);
        const news = await session.get();
        await gateway.reconfigure({ mcpServers: { a: mirror('other') } });
        assert.ok((await session.call('a__other')).result);
        assert.ok((await session.call('a__update', { uri: 'mirror:///one' })).result);
        assert.equal((await heard(news, 'notifications/resources/updated')).params.uri, 'postern://a/mirror:///one');
        news.drop();
    });

    test('a subscription that is being made while its server is changed is moved, too', async t => {
        const file = join(folder.path, 'subscribe');
        const server = tools => mirror(tools, { args: [...mirror(tools).args, '--subscribe-after', file] });
        const gateway = await start(t, { mcpServers: { a: server('one') } }), session = await Session.open(gateway.url);
        const news = await session.get();
        const answer = session.request('resources/subscribe', { uri: 'postern://a/mirror:///one' });
        await until(() => existsSync(`${file}-begun`), WAIT_MS, 'the server has the subscription');
        await gateway.reconfigure({ mcpServers: { a: server('other') } });
        assert.ok((await session.call('a__other')).result, 'the changed server is up before the old one answers');
        writeFileSync(file, '');
        assert.ok((await answer).result);
        await until(async () => (await gateway.servers()).length === 1, WAIT_MS, 'the old process ends');
        assert.ok((await session.call('a__update', { uri: 'mirror:///one' })).result);
        assert.equal((await heard(news, 'notifications/resources/updated')).params.uri, 'postern://a/mirror:///one');
        assert.ok((await session.request('resources/unsubscribe', { uri: 'postern://a/mirror:///one' })).result);
        assert.equal((await session.call('a__update', { uri: 'mirror:///one' })).result.content[0].text, 'not subscribed');
        news.drop();
    });

    test('names change with the prefix and the separator', async t => {
        const gateway = await start(t, { mcpServers: { a: mirror('one') } }), session = await Session.open(gateway.url);
        await gateway.reconfigure({ separator: '.', mcpServers: { a: mirror('one') } });
        assert.ok(await has(session, 'a.one'));
        await gateway.reconfigure({ prefix: false, mcpServers: { a: mirror('one') } });
        assert.ok(await has(session, 'one'));
        assert.equal((await gateway.servers()).length, 1, 'the server was not started again');
    });
});

describe('profiles', () => {
    test('a profile that is added is served, and sessions end with one that is removed', async t => {
        const mcpServers = { a: mirror('one'), b: mirror('two') };
        const gateway = await start(t, { mcpServers }), whole = await Session.open(gateway.url);
        assert.equal((await send(`${gateway.url}/dev`, { headers: post(), body: initialize('2025-11-25') })).status, 404);
        await gateway.reconfigure({ mcpServers, profiles: { dev: { servers: ['b'] } } });
        const session = await Session.open(`${gateway.url}/dev`);
        assert.ok((await names(session)).every(name => name.startsWith('b__')));
        await gateway.reconfigure({ mcpServers, profiles: { dev: { servers: ['a'] } } });
        assert.ok((await names(session)).every(name => name.startsWith('a__')), 'the session uses the servers of the changed profile');
        await gateway.reconfigure({ mcpServers });
        assert.equal((await session.post({ jsonrpc: '2.0', id: 1, method: 'ping' })).status, 404);
        assert.ok(await has(whole, 'a__one'));
    });
});

describe('tenants, providers and policies', () => {
    let tokens, policy, ana, gil;
    const issue = (subject, tenant) => execFileSync(binary, ['token', 'new', '--file', tokens, '--subject', subject, '--tenant', tenant, '--description', 'a caller'], { encoding: 'utf8' }).trim();
    const putPolicy = rules => writeFileSync(policy, JSON.stringify({ version: 1, description: 'The policy of this test', rules }));
    const allow = more => policyRule('all', 'allow', { tenants: ['*'], subjects: ['authenticated'], servers: ['*'], names: ['*'], ...more });
    const open = (gateway, token, path = '') => send(`${gateway.url}${path}`, { headers: post({ authorization: `Bearer ${token}` }), body: initialize('2025-11-25') });
    const ask = (gateway, token, opened, method, params = {}) =>
        send(gateway.url, { headers: post({ authorization: `Bearer ${token}`, 'mcp-session-id': opened.headers['mcp-session-id'] }), body: { jsonrpc: '2.0', id: 2, method, params } });
    const base = () => ({ auth: { providers: [{ type: 'bearer', tokens }] }, policy, mcpServers: { a: mirror('one') } });
    const listed = async (...args) => reply(await ask(...args, 'tools/list')).result.tools.map(({ name }) => name);

    beforeEach(() => {
        const place = temporaryDirectory();
        tokens = join(place.path, 'tokens.json');
        policy = join(place.path, 'policy.json');
        ana = issue('ana', 'default');
        gil = issue('gil', 'globex');
        putPolicy([allow()]);
    });

    test('a tenant that is added has servers of its own, and everything of it ends when it is removed', async t => {
        const gateway = await start(t, base());
        const hers = await open(gateway, ana);
        assert.equal((await open(gateway, gil)).status, 401);
        const globex = { mcpServers: { g: mirror('two') } };
        await gateway.reconfigure({ ...base(), tenants: { globex } });
        const his = await open(gateway, gil);
        assert.equal(his.status, 200);
        assert.ok((await listed(gateway, gil, his)).includes('g__two'));
        assert.ok(!(await listed(gateway, ana, hers)).includes('g__two'));
        await gateway.reconfigure(base());
        assert.equal((await ask(gateway, gil, his, 'tools/list')).status, 401);
        assert.ok((await listed(gateway, ana, hers)).includes('a__one'));
        await until(async () => (await gateway.servers()).length === 1, WAIT_MS, 'its server ends');
        await gateway.reconfigure({ ...base(), tenants: { globex } });
        assert.equal((await ask(gateway, gil, his, 'tools/list')).status, 404, 'the session does not come back');
        assert.equal((await open(gateway, gil)).status, 200);
    });

    test('a file that appears in tenants.d is a tenant', async t => {
        const gateway = await start(t, base());
        mkdirSync(join(gateway.state, 'tenants.d'));
        writeFileSync(join(gateway.state, 'tenants.d', 'globex.json'), JSON.stringify({ mcpServers: { g: { command: demo } } }));
        await until(async () => (await open(gateway, gil)).status === 200, WAIT_MS, 'it is a tenant');
        unlinkSync(join(gateway.state, 'tenants.d', 'globex.json'));
        await until(async () => (await open(gateway, gil)).status === 401, WAIT_MS, 'it is not a tenant any more');
    });

    test('a provider that is removed takes its sessions with it', async t => {
        const two = [{ type: 'bearer', tokens }, { type: 'forwarded-user', trusted_proxies: ['127.0.0.1'] }];
        const gateway = await start(t, { ...base(), auth: { providers: two } });
        const proxied = { 'x-forwarded-user': 'eve' };
        const hers = await open(gateway, ana), eves = await send(gateway.url, { headers: post(proxied), body: initialize('2025-11-25') });
        assert.equal(eves.status, 200);
        await gateway.reconfigure(base());
        assert.equal((await send(gateway.url, { headers: post({ ...proxied, 'mcp-session-id': eves.headers['mcp-session-id'] }), body: { jsonrpc: '2.0', id: 2, method: 'ping' } })).status, 401);
        await gateway.line(/session ended: .* subject=eve/, WAIT_MS);
        assert.equal((await ask(gateway, ana, hers, 'tools/list')).status, 200);
    });

    test('a configuration that is not valid delays neither a revoked token nor a stricter policy', async t => {
        const gateway = await start(t, base());
        const hers = await open(gateway, ana);
        assert.match(await gateway.reconfigure('{"mcpServers": {'), /^configuration not reloaded/);
        putPolicy([allow(), policyRule('no', 'deny', { tenants: ['*'], subjects: ['*'], servers: ['a'], names: ['one'] })]);
        await until(async () => !(await listed(gateway, ana, hers)).includes('a__one'), WAIT_MS, 'the policy is in force');
        const [{ id }] = JSON.parse(execFileSync(binary, ['token', 'list', '--file', tokens, '--json'], { encoding: 'utf8' })).filter(({ subject }) => subject.endsWith('ana'));
        execFileSync(binary, ['token', 'revoke', '--file', tokens, id]);
        await until(async () => (await ask(gateway, ana, hers, 'tools/list')).status === 401, WAIT_MS, 'the token is revoked');
        assert.deepEqual((await health(gateway)).problems, ['configuration']);
    });

    test('a configuration whose policy is not valid is refused whole', async t => {
        const gateway = await start(t, base());
        const hers = await open(gateway, ana);
        const bad = join(dirname(policy), 'bad.json');
        writeFileSync(bad, '{"version": 1, "description": "x", "rules": [{}]}');
        assert.match(await gateway.reconfigure({ ...base(), policy: bad, mcpServers: { b: mirror('two') } }), /not reloaded.*\/policy/);
        assert.ok((await listed(gateway, ana, hers)).includes('a__one'));
        assert.match(await gateway.reconfigure({ ...base(), mcpServers: { b: mirror('two') } }), /^configuration reloaded/);
        assert.ok((await listed(gateway, ana, hers)).includes('b__two'));
        assert.deepEqual((await health(gateway)).status, 'ok');
    });

    test('limits that are changed count for the next call', async t => {
        const gateway = await start(t, base());
        const hers = await open(gateway, ana);
        const call = async () => reply(await ask(gateway, ana, hers, 'tools/call', { name: 'a__one', arguments: {} }));
        assert.ok((await call()).result);
        await gateway.reconfigure({ ...base(), limits: { rates: [{ calls: 1, window: '1h' }] } });
        assert.ok((await call()).result);
        assert.equal((await call()).error.data.reason, 'limited');
        await gateway.reconfigure({ ...base(), limits: { rates: [{ calls: 1, window: '1h' }], sessions: 50 } });
        assert.equal((await call()).error.data.reason, 'limited', 'earlier calls still count');
        await gateway.reconfigure(base());
        assert.ok((await call()).result);
    });
});

describe('listeners', () => {
    const listen = (...ports) => ports.map(port => (typeof port === 'object' ? port : { address: `127.0.0.1:${port}` }));
    const answers = async url => (await send(url, { headers: post(), body: initialize('2025-11-25') }).catch(() => ({}))).status;

    test('a listener that is added accepts, and one that is removed does not, while the others serve on', async t => {
        const [one, two] = [await freePort(), await freePort()], mcpServers = { a: { command: demo } };
        const gateway = await start(t, { listen: listen(one), mcpServers }), session = await Session.open(gateway.url);
        await gateway.reconfigure({ listen: listen(one, two), mcpServers });
        assert.equal(await answers(`http://127.0.0.1:${two}/mcp`), 200);
        const elsewhere = Object.assign(Object.create(Object.getPrototypeOf(session)), session, { url: `http://127.0.0.1:${two}/mcp` });
        assert.ok(await has(elsewhere, 'a__echo'), 'sessions are the gateway\'s, not the listener\'s');
        await gateway.reconfigure({ listen: listen(two), mcpServers });
        await until(async () => !await answers(`http://127.0.0.1:${one}/mcp`), WAIT_MS, 'it is closed');
        assert.ok(await has(elsewhere, 'a__echo'));
    });

    test('a listener on a port that is in use refuses the whole reload', async t => {
        const one = await freePort(), mcpServers = { a: { command: demo } };
        const other = await start(t, { mcpServers });
        const gateway = await start(t, { listen: listen(one), mcpServers });
        const taken = new URL(other.url).port;
        assert.match(await gateway.reconfigure({ listen: listen(one, taken), mcpServers: { b: { command: demo } } }), /not reloaded.*cannot listen on/);
        assert.ok(await has(await Session.open(gateway.url), 'a__echo'));
    });

    test('a listener gets TLS on the same port without refusing connections, and serves its old connections to their end', async t => {
        const port = await freePort(), mcpServers = { a: mirror('one') };
        const files = ['tls.crt', 'tls.key'].map(name => join(folder.path, name));
        execFileSync('openssl', ['req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes', '-days', '2', '-subj', '/CN=localhost', '-addext', 'subjectAltName=IP:127.0.0.1', '-keyout', files[1], '-out', files[0]], { stdio: 'ignore' });
        const gateway = await start(t, { listen: listen(port), mcpServers }), session = await Session.open(gateway.url);
        const { answer, release } = await hold(session, 'a__wait');
        await gateway.reconfigure({ listen: listen({ address: `127.0.0.1:${port}`, tls: { certificate: files[0], key: files[1] } }), mcpServers });
        release();
        assert.ok((await answer).result);
        const reached = execFileSync('curl', ['-sS', '--cacert', files[0], '-o', '/dev/null', '-w', '%{http_code}', `https://127.0.0.1:${port}/healthz`], { encoding: 'utf8' });
        assert.equal(reached, '200');
        await gateway.reconfigure({ listen: listen(port), mcpServers });
        assert.ok(await has(session, 'a__one'));
    });

    test('a unix socket keeps its file when its mode changes, and loses it when it is removed', async t => {
        const path = join(folder.path, 'mode.sock'), mcpServers = { a: { command: demo } }, one = await freePort();
        const gateway = await start(t, { listen: listen(one, { address: `unix:${path}` }), mcpServers });
        await gateway.reconfigure({ listen: listen(one, { address: `unix:${path}`, mode: '0666' }), mcpServers });
        const status = () => execFileSync('curl', ['-sS', '--unix-socket', path, '-o', '/dev/null', '-w', '%{http_code}', 'http://localhost/healthz'], { encoding: 'utf8' });
        assert.equal(status(), '200');
        assert.equal(execFileSync('stat', ['-c', '%a', path], { encoding: 'utf8' }).trim(), '666');
        await gateway.reconfigure({ listen: listen(one), mcpServers });
        await until(() => !existsSync(path), WAIT_MS, 'the file is gone');
    });
});

describe('files', () => {
    const config = tool => ({ listen: [{ address: '127.0.0.1:0' }], mcpServers: { a: { command: demo }, [tool]: { command: demo } } });
    const write = (path, tool) => writeFileSync(path, JSON.stringify(config(tool)));
    const lists = async (session, tool) => until(() => has(session, `${tool}__echo`), WAIT_MS, `${tool} is there`);

    test('a configuration behind swapped symbolic links is reloaded, as Kubernetes mounts it', async t => {
        const place = join(folder.path, 'mounted');
        for (const [version, tool] of [['..1', 'b'], ['..2', 'c']]) {
            mkdirSync(join(place, version), { recursive: true });
            write(join(place, version, 'postern.json'), tool);
        }
        symlinkSync('..1', join(place, '..data'));
        symlinkSync('..data/postern.json', join(place, 'postern.json'));
        const gateway = await start(t, { mcpServers: {} }, ['--config', join(place, 'postern.json')]), session = await Session.open(gateway.url);
        await lists(session, 'b');
        symlinkSync('..2', join(place, '..next'));
        renameSync(join(place, '..next'), join(place, '..data'));
        await lists(session, 'c');
    });

    test('a configuration in a git checkout is reloaded when another commit is checked out', async t => {
        const place = join(folder.path, 'checkout');
        mkdirSync(place);
        const git = (...args) => execFileSync('git', ['-c', 'user.name=t', '-c', 'user.email=t@example.com', ...args], { cwd: place, stdio: 'ignore' });
        git('init', '-q', '-b', 'main');
        for (const tool of ['b', 'c']) {
            write(join(place, 'postern.json'), tool);
            git('add', '-A');
            git('commit', '-qm', tool);
        }
        git('checkout', '-q', 'HEAD~1');
        const gateway = await start(t, { mcpServers: {} }, ['--config', join(place, 'postern.json')]), session = await Session.open(gateway.url);
        await lists(session, 'b');
        git('checkout', '-q', 'main');
        await lists(session, 'c');
    });

    test('SIGHUP without a change says so, and disturbs nothing', async t => {
        const gateway = await start(t, { mcpServers: { a: mirror('one') } }), session = await Session.open(gateway.url);
        assert.ok(await has(session, 'a__one'));
        const before = await gateway.servers();
        process.kill(gateway.pid, 'SIGHUP');
        await gateway.line(/SIGHUP/, WAIT_MS);
        assert.ok(await has(session, 'a__one'));
        assert.deepEqual(await gateway.servers(), before);
    });

    test('an option that a running gateway cannot change refuses the reload and is named', async t => {
        const gateway = await start(t, { mcpServers: { a: mirror('one') } }), session = await Session.open(gateway.url);
        assert.match(await gateway.reconfigure({ mcpServers: { b: mirror('two') }, public_url: 'https://other.example.com' }), /not reloaded.*\/public_url: .*restart/);
        assert.ok(await has(session, 'a__one'));
        const { status, configuration } = await health(gateway);
        assert.equal(status, 'degraded');
        assert.ok(configuration.failing_since);
        await gateway.reconfigure({ mcpServers: { b: mirror('two') } });
        assert.ok(await has(session, 'b__two'));
        assert.equal((await health(gateway)).status, 'ok');
    });
});
