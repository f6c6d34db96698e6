// Profiles at /mcp/NAME: the lists and calls of their callers, and the separation of profiles.
import assert from 'node:assert/strict';
import { execFileSync, spawnSync } from 'node:child_process';
import { mkdirSync, realpathSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { after, before, describe, test } from 'node:test';

import { StdioTransportV1, ClientV1 } from '../../peers/clients.mjs';
import { connect, overHttp } from '../connect.mjs';
import { binary, startGateway, stdioServer, temporaryDirectory, until, writeConfig } from '../gateway.mjs';
import { initialize, post, reply, send, Session } from '../raw.mjs';

const WAIT_MS = 5_000;
const demo = join(dirname(binary), 'postern-demo');
const directory = temporaryDirectory();
after(directory.remove);
const root = realpathSync(directory.path);
const sandbox = join(root, 'files'), archive = join(root, 'archive');
for (const folder of [sandbox, archive]) {
    mkdirSync(folder);
    writeFileSync(join(folder, 'a.txt'), `a file in ${folder}\n`);
}

const servers = {
    files: stdioServer.filesystem(sandbox),
    archive: stdioServer.filesystem(archive),
    memory: stdioServer.memory(join(root, 'memory.jsonl')),
    fixture: stdioServer.fixture()
};

const DESCRIPTION = 'Prints a file of the shared folder; "path" is absolute';
const profiles = {
    dev: {
        servers: ['memory', 'files'],
        tools: {
            files: {
                allow: ['read_text_file', 'list_*'],
                override: {
                    read_text_file: { name: 'cat', title: 'Print a file', description: DESCRIPTION },
                    list_directory: { title: 'A folder' }
                }
            },
            memory: { allow: ['read_graph'] }
        }
    },
    bare: { servers: ['files', 'archive'], prefix: false },
    fix: { servers: ['fixture'], tools: { fixture: { override: { test_process: { name: 'whoami' } } } } },
    all: {}
};

const at = (gateway, profile) => ({ ...gateway, url: `${gateway.url}/${profile}` });
const refusedAs = code => error => error.code === code || assert.fail(`${error.code}: ${error.message}`);
const UNKNOWN_TOOL = refusedAs(-32602);

describe('profiles of one tenant', () => {
    let gateway, plain, dev, bare;
    before(async () => {
        gateway = await startGateway({ mcpServers: servers, profiles, limits: { page_size: 5 } });
        [plain, dev, bare] = await Promise.all([connect(gateway), connect(at(gateway, 'dev')), connect(at(gateway, 'bare'))]);
    });
    after(async () => {
        await Promise.all([plain, dev, bare].map(peer => peer?.close()));
        await gateway?.stop();
    });

    test('a profile lists its servers and tools in its order and under its names', async () => {
        assert.deepEqual(
            (await dev.tools()).map(({ name }) => name),
            ['memory__read_graph', 'cat', 'files__list_directory', 'files__list_directory_with_sizes', 'files__list_allowed_directories']
        );
        assert.deepEqual(await dev.prompts(), []);
        assert.deepEqual((await dev.resources()).filter(({ uri }) => !/^postern:\/\/(memory|files)\//.test(uri)), []);
    });

    test('titles and descriptions come from the profile and every other member from the server', async () => {
        const theirs = new Map((await plain.tools()).map(tool => [tool.name, tool]));
        const ours = new Map((await dev.tools()).map(tool => [tool.name, tool]));
        const { name, title, description, ...rest } = ours.get('cat');
        const { name: _name, title: _title, description: _description, ...original } = theirs.get('files__read_text_file');
        assert.deepEqual([title, description], ['Print a file', DESCRIPTION]);
        assert.equal(JSON.stringify(rest), JSON.stringify(original));
        assert.equal(ours.get('files__list_directory').title, 'A folder');
        assert.equal(ours.get('files__list_directory').description, theirs.get('files__list_directory').description);
        assert.equal(JSON.stringify(ours.get('memory__read_graph')), JSON.stringify(theirs.get('memory__read_graph')));
    });

    test('names, titles and descriptions are replaced within the bytes of the server', async () => {
        const listed = async url => {
            const session = await Session.open(url);
            const seen = { text: '', tools: [] };
            for (let params = {}; params; ) {
                const { body } = await session.post({ jsonrpc: '2.0', id: 1, method: 'tools/list', params });
                const { tools, nextCursor: cursor } = JSON.parse(body).result;
                seen.text += body;
                seen.tools.push(...tools);
                params = cursor && { cursor };
            }
            return seen;
        };
        const [theirs, ours] = await Promise.all([listed(gateway.url), listed(at(gateway, 'dev').url)]);
        const original = theirs.tools.find(({ name }) => name === 'files__read_text_file');
        assert.ok(original.title && original.inputSchema.$schema);
        assert.ok(theirs.text.includes(JSON.stringify(original)), 'the server writes the bytes of JSON.stringify');
        assert.ok(ours.text.includes(JSON.stringify({ ...original, name: 'cat', title: 'Print a file', description: DESCRIPTION })));
    });

    test('a renamed tool is called by its new name', async () =>
        assert.match(await dev.text('cat', { path: join(sandbox, 'a.txt') }), /a file in .*files/));

    test('a tool that a profile omits cannot be called, nor a renamed one by its old name', async () => {
        const path = join(sandbox, 'b.txt');
        for (const name of ['files__write_file', 'write_file', 'files__read_text_file', 'read_text_file', 'fixture__test_simple_text', 'memory__create_entities'])
            await assert.rejects(dev.call(name, { path, content: 'x' }), UNKNOWN_TOOL, name);
        await assert.rejects(dev.read('postern://fixture/test://static-text'), refusedAs(-32002));
    });

    test('a profile changes nothing at /mcp', async () => {
        const names = (await plain.tools()).map(({ name }) => name);
        for (const name of ['files__read_text_file', 'files__write_file', 'fixture__test_process']) assert.ok(names.includes(name), name);
        await assert.rejects(plain.call('cat', { path: join(sandbox, 'a.txt') }), UNKNOWN_TOOL);
    });

    test('an empty profile has all servers and tools', async () => {
        const all = await connect(at(gateway, 'all'));
        assert.deepEqual(await all.tools(), await plain.tools());
        await all.close();
    });

    test('a name without prefix belongs to the first server, and the next one keeps its prefix and is logged once', async () => {
        const names = (await bare.tools()).map(({ name }) => name);
        assert.ok(names.includes('read_text_file') && names.includes('archive__read_text_file'), names.join());
        assert.equal(new Set(names).size, names.length);
        assert.match(await bare.text('read_text_file', { path: join(sandbox, 'a.txt') }), /in .*files/);
        assert.match(await bare.text('archive__read_text_file', { path: join(archive, 'a.txt') }), /in .*archive/);
        await gateway.line(/keeps its prefix.*name=read_text_file\b/, WAIT_MS);
        await bare.tools();
        assert.equal(gateway.log().match(/keeps its prefix.*profile=bare.*name=read_text_file\b/g).length, 1);
    });

    test('profiles share their server and its list changes', async () => {
        const fix = await connect(at(gateway, 'fix'));
        const pid = text => JSON.parse(text).pid;
        assert.equal(pid(await fix.text('whoami')), pid(await plain.text('fixture__test_process')));
        await Promise.all([fix.tools(), dev.tools(), plain.tools()]);
        dev.notifications.length = 0;
        await fix.text('fixture__test_trigger_tool_change');
        await Promise.all([fix, plain].map(peer => peer.notified('notifications/tools/list_changed')));
        await dev.client.ping();
        assert.deepEqual(dev.notifications, [], 'a profile without that server');
        const uri = 'postern://fixture/test://watched-resource';
        await fix.client.subscribeResource({ uri });
        await fix.text('fixture__test_trigger_resource_update');
        await fix.notified('notifications/resources/updated', params => params.uri === uri);
        assert.ok((await fix.prompts()).every(({ name }) => name.startsWith('fixture__')));
        await fix.close();
    });

    test('a session is known only in the profile that opened it', async () => {
        const ping = { jsonrpc: '2.0', id: 7, method: 'ping' };
        const urls = [gateway.url, at(gateway, 'dev').url, at(gateway, 'bare').url];
        for (const home of urls) {
            const session = await Session.open(home);
            for (const url of urls.filter(other => other !== home)) {
                for (const request of [
                    { headers: session.headers(post()), body: ping },
                    { method: 'GET', headers: session.headers({ accept: 'text/event-stream' }) },
                    { method: 'DELETE', headers: session.headers() }
                ]) {
                    const answer = await send(url, request);
                    assert.equal(answer.status, 404, `${request.method} ${url} with a session of ${home}`);
                    assert.equal(JSON.parse(answer.body).error.data.reason, 'session_unknown');
                }
            }
            assert.deepEqual((await session.request('ping')).result, {});
            assert.equal((await session.delete()).status, 200);
        }
    });

    test('a cursor is valid only in its own profile', async () => {
        const [one, other, same] = await Promise.all(['bare', 'all', 'bare'].map(name => Session.open(at(gateway, name).url)));
        const { nextCursor: cursor } = (await one.request('tools/list', {})).result;
        assert.ok(cursor);
        assert.equal((await other.request('tools/list', { cursor })).error.code, -32602);
        assert.ok((await same.request('tools/list', { cursor })).result);
    });

    test('an unknown profile gets 404 with -32000', async () => {
        const requests = [
            { headers: post(), body: initialize('2025-11-25') },
            { method: 'GET', headers: { accept: 'text/event-stream' } },
            { method: 'DELETE', headers: { 'mcp-session-id': 'x'.repeat(43) } }
        ];
        for (const path of ['none', 'DEV', 'dev/x', 'dev.', '%64ev%2Fx', 'x'.repeat(100)])
            for (const request of requests) {
                const answer = await send(`${gateway.url}/${path}`, request);
                const { error } = JSON.parse(answer.body);
                assert.deepEqual([answer.status, error.code, error.data.reason], [404, -32000, 'profile_not_found'], path);
            }
    });

    test('a trailing slash is ignored and a wrong method gets 405', async () => {
        assert.equal((await send(`${gateway.url}/dev/`, { headers: post(), body: initialize('2025-11-25') })).status, 200);
        assert.equal((await send(`${gateway.url}/dev`, { method: 'PUT', headers: post(), body: {} })).status, 405);
    });

    test('a profile is served over HTTP+SSE at the same path', async () => {
        const sse = await connect(at(gateway, 'dev'), 'SDK 1 over HTTP+SSE at /mcp');
        assert.match(await sse.text('cat', { path: join(sandbox, 'a.txt') }), /a file/);
        assert.equal(sse.transport._endpoint.pathname, '/mcp/dev');
        const strayed = new URL(sse.transport._endpoint);
        strayed.pathname = '/mcp';
        assert.equal((await send(strayed, { headers: post(), body: { jsonrpc: '2.0', id: 1, method: 'ping' } })).status, 404);
        strayed.pathname = '/messages';
        assert.equal((await send(strayed, { headers: post(), body: { jsonrpc: '2.0', id: 1, method: 'ping' } })).status, 404);
        await sse.close();
    });

    test('clients of SDK 1 and SDK 2 work with a profile', async () => {
        const peer = await connect(at(gateway, 'dev'), Object.keys(overHttp).find(name => name.startsWith('SDK 2')));
        assert.equal((await peer.tools())[1].title, 'Print a file');
        assert.match(await peer.text('cat', { path: join(sandbox, 'a.txt') }), /a file/);
        await peer.close();
    });
});

describe('profiles on stdio', () => {
    const config = writeConfig(root, { mcpServers: { demo: { command: demo } }, profiles: { one: { prefix: false, tools: { demo: { allow: ['echo'] } } } } });
    const run = (...args) => spawnSync(binary, ['serve', '--config', config, ...args], { encoding: 'utf8', input: '', timeout: 10_000 });

    test('serve --stdio --profile serves one profile', async () => {
        const client = new ClientV1({ name: 'postern-e2e', version: '1.0.0' });
        await client.connect(new StdioTransportV1({ command: binary, args: ['serve', '--stdio', '--profile', 'one', '--config', config], env: process.env, stderr: 'ignore' }));
        assert.deepEqual((await client.listTools()).tools.map(({ name }) => name), ['echo']);
        assert.equal((await client.callTool({ name: 'echo', arguments: { message: 'hello' } })).content[0].text, 'hello');
        await client.close();
    });
    test('an unknown profile stops the start', () => {
        const { status, stderr } = run('--stdio', '--profile', 'two');
        assert.equal(status, 3, stderr);
        assert.match(stderr, /--profile two: .*does not exist/);
    });
    test('--profile without --stdio is an error', () => {
        const { status, stderr } = run('--profile', 'one');
        assert.equal(status, 2, stderr);
        assert.match(stderr, /\/mcp\/NAME/);
    });
});

describe('several tenants, one of them in tenants.d', () => {
    const selected = { tenants: ['*'], subjects: ['authenticated'], kinds: ['tool'] };
    const policy = {
        version: 1,
        description: 'Every caller may echo, and add in acme',
        rules: [
            { ...selected, id: 'echo', effect: 'allow', description: 'echo is harmless everywhere', servers: ['*'], names: ['echo'] },
            { ...selected, id: 'add', effect: 'allow', description: 'acme is allowed to add', tenants: ['acme'], servers: ['demo'], names: ['add'] }
        ]
    };
    // The denied tool gets the name of an allowed one, and the allowed one another.
    const disguised = { demo: { override: { echo: { name: 'repeat' }, add: { name: 'echo' } } } };
    let gateway;
    const tokens = {};
    before(async () => {
        writeFileSync(join(root, 'policy.json'), JSON.stringify(policy));
        for (const tenant of ['default', 'acme', 'globex']) {
            const args = ['token', 'new', '--file', join(root, 'tokens.json'), '--subject', 'ana', '--tenant', tenant, '--description', 'a user of this test'];
            tokens[tenant] = execFileSync(binary, args, { encoding: 'utf8' }).trim();
        }
        gateway = await startGateway(
            {
                auth: { providers: [{ type: 'bearer', tokens: join(root, 'tokens.json') }] },
                policy: join(root, 'policy.json'),
                mcpServers: { demo: { command: demo } },
                profiles: { shared: { prefix: false, tools: disguised }, top: {} },
                tenants: { globex: { mcpServers: { demo: { command: demo } } } }
            },
            [],
            { files: { 'tenants.d/acme.json': { mcpServers: { demo: { command: demo } }, profiles: { shared: { tools: { demo: { override: { add: { name: 'plus' } } } } }, own: {} } } } }
        );
    });
    after(() => gateway?.stop());

    async function ask(tenant, path, body, session) {
        const headers = post({ ...(tenant && { authorization: `Bearer ${tokens[tenant]}` }), ...(session && { 'mcp-session-id': session }) });
        const answer = await send(`${gateway.origin}${path}`, { headers, body });
        return { status: answer.status, session: answer.headers['mcp-session-id'], text: answer.body, message: answer.body && reply(answer) };
    }
    const open = async (tenant, path) => {
        const { status, session, text } = await ask(tenant, path, initialize('2025-11-25'));
        assert.equal(status, 200, text);
        return (method, params) => ask(tenant, path, { jsonrpc: '2.0', id: 2, method, params }, session).then(({ message }) => message);
    };
    const names = async request => (await request('tools/list', {})).result.tools.map(({ name }) => name);

    test('the policy decides by the server and the original name', async () => {
        const request = await open('default', '/mcp/shared');
        assert.deepEqual(await names(request), ['repeat']);
        assert.equal((await request('tools/call', { name: 'repeat', arguments: { message: 'hi' } })).result.content[0].text, 'hi');
        const denied = (await request('tools/call', { name: 'echo', arguments: {} })).error;
        assert.deepEqual([denied.code, denied.data.reason], [403, 'denied']);
        await gateway.line(/profile=shared.* server=demo target=add decision=deny by=default reason=denied/, WAIT_MS);
        const audited = () => {
            const rows = execFileSync(binary, ['audit', '--file', join(gateway.state, 'audit.db')], { encoding: 'utf8' }).trim().split('\n');
            return rows.filter(row => row.includes('tools/call')).map(row => JSON.parse(row)).map(({ server, name, decision }) => `${server} ${name} ${decision}`);
        };
        await until(() => audited().length >= 2, WAIT_MS, 'both calls in the audit log');
        assert.deepEqual(audited(), ['demo echo allow', 'demo add deny']);
    });

    test('a tenant of tenants.d has its servers and profiles', async () => {
        const request = await open('acme', '/mcp/shared');
        assert.deepEqual((await names(request)).sort(), ['demo__echo', 'plus']);
        assert.ok((await request('tools/call', { name: 'plus', arguments: { a: 1, b: 2 } })).result);
        assert.equal((await request('tools/call', { name: 'repeat', arguments: {} })).error.code, 403);
    });

    test('a profile of another tenant is reported as unknown', async () => {
        const told = async (tenant, path) => {
            const { status, text } = await ask(tenant, path, initialize('2025-11-25'));
            return `${status} ${text}`;
        };
        const unknown = await told('acme', '/mcp/nobodys');
        assert.match(unknown, /^404 .*-32000/);
        assert.equal(await told('acme', '/mcp/top'), unknown);
        assert.equal(await told('default', '/mcp/own'), unknown);
        assert.equal(await told('globex', '/mcp/shared'), unknown);
        const stranger = await told(undefined, '/mcp/nobodys');
        assert.match(stranger, /^401 /);
        assert.equal(await told(undefined, '/mcp/shared'), stranger);
    });

    test('an invalid file in tenants.d stops the start and is named', () => {
        const folder = join(root, 'wrong');
        mkdirSync(join(folder, 'tenants.d'), { recursive: true });
        const config = writeConfig(folder, { mcpServers: {} });
        writeFileSync(join(folder, 'tenants.d/acme.json'), JSON.stringify({ mcpServers: {}, profile: {} }));
        for (const args of [['serve'], ['config', 'check'], ['config', 'show']]) {
            const { status, stderr } = spawnSync(binary, [...args, '--config', config], { encoding: 'utf8', timeout: 10_000 });
            assert.equal(status, 3);
            assert.equal(stderr, `postern: ${folder}/tenants.d/acme.json:1:18: /profile: unknown key; did you mean "profiles"?\n`);
        }
        writeFileSync(join(folder, 'tenants.d/acme.json'), JSON.stringify({ mcpServers: {}, profiles: { dev: {} } }));
        const run = (...args) => execFileSync(binary, ['config', ...args, '--config', config], { encoding: 'utf8' });
        assert.equal(run('check'), `${config}: ok, 0 servers\n`);
        assert.deepEqual(JSON.parse(run('show')).tenants.acme.profiles, { dev: { tools: {}, prefix: true } });
        const { profiles: schema } = JSON.parse(run('schema')).properties.tenants.additionalProperties.properties;
        assert.deepEqual(Object.keys(schema.additionalProperties.properties), ['servers', 'tools', 'prefix']);
    });
});
