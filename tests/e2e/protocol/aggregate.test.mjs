// Several servers behind one endpoint, with real clients, over every transport on both sides.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { mkdirSync, readdirSync, realpathSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { after, before, describe, test } from 'node:test';
import { pathToFileURL } from 'node:url';

import { calledElsewhere, everythingCalls, filesystemCalls, memoryCalls } from '../calls.mjs';
import { connect, connectServer, connectStdio, overHttp, overStdio } from '../connect.mjs';
import { program, startEverything, startGateway, startPeer, stdioServer, temporaryDirectory, until } from '../gateway.mjs';
import { initialize, Session } from '../raw.mjs';

const directory = temporaryDirectory();
after(directory.remove);
const sandbox = join(realpathSync(directory.path), 'files');
mkdirSync(sandbox);

const servers = {
    everything: stdioServer.everything(),
    files: stdioServer.filesystem(sandbox),
    memory: stdioServer.memory(join(directory.path, 'memory.jsonl')),
    fixture: stdioServer.fixture()
};

const handlers = {
    sampling: ({ messages }) => ({
        model: 'test',
        role: 'assistant',
        content: { type: 'text', text: `a sampled answer to ${messages[0].content.text}` }
    }),
    elicitation: () => ({ action: 'accept', content: { name: 'Ada', username: 'ada', email: 'ada@example.com' } }),
    roots: () => ({ roots: [{ uri: pathToFileURL(sandbox).href, name: 'sandbox' }] })
};

const wrapFor = server => uri => `postern://${server}/${uri}`;

/** Every tool of every server appears under its prefixed name, with the schema of the server. */
async function listsTools(peer, names) {
    const listed = new Map((await peer.tools()).map(tool => [tool.name, tool]));
    for (const name of names) {
        const direct = await connectServer(servers[name], handlers);
        try {
            for (const tool of await direct.tools()) {
                const seen = listed.get(`${name}__${tool.name}`);
                assert.ok(seen, `${name}__${tool.name} is not listed`);
                assert.equal(JSON.stringify(seen.inputSchema), JSON.stringify(tool.inputSchema), tool.name);
                assert.deepEqual(seen.outputSchema, tool.outputSchema, tool.name);
                assert.deepEqual(seen.annotations, tool.annotations, tool.name);
                assert.equal(seen.description, tool.description);
            }
        } finally {
            await direct.close();
        }
    }
    for (const name of listed.keys()) {
        assert.ok(names.includes(name.split('__')[0]), `${name} belongs to no configured server`);
        assert.match(name, /^[A-Za-z0-9_./-]{1,64}$/);
    }
}

/** The tools of a server as it writes them, untouched by an SDK. */
async function rawTools({ command, args, env }) {
    const child = spawn(command, args, { env: { ...process.env, ...env }, stdio: ['pipe', 'pipe', 'ignore'] });
    const messages = [initialize('2025-11-25'), { jsonrpc: '2.0', method: 'notifications/initialized' }, { jsonrpc: '2.0', id: 2, method: 'tools/list' }];
    for (const message of messages) child.stdin.write(`${JSON.stringify(message)}\n`);
    try {
        for await (const line of createInterface({ input: child.stdout })) {
            const { id, result } = JSON.parse(line);
            if (id === 2) return result.tools;
        }
    } finally {
        child.kill();
    }
    throw new Error(`${command} ended without listing its tools`);
}

/** Calls every tool of the server; the table has to cover every listed tool. */
async function callsTools(peer, server, table) {
    for (const [tool, args, check] of table) {
        const result = await peer.call(`${server}__${tool}`, args);
        assert.ok(!result.isError, `${server}__${tool}: ${JSON.stringify(result.content)}`);
        check(result);
    }
    const listed = (await peer.tools()).map(({ name }) => name).filter(name => name.startsWith(`${server}__`));
    const called = new Set([...table.map(([tool]) => tool), ...calledElsewhere].map(tool => `${server}__${tool}`));
    assert.deepEqual(listed.filter(name => !called.has(name)), [], 'tools without a call');
}

async function getsPrompts(peer, server) {
    const wrap = wrapFor(server);
    const names = (await peer.prompts()).map(({ name }) => name);
    for (const name of ['simple-prompt', 'args-prompt', 'completable-prompt', 'resource-prompt']) assert.ok(names.includes(`${server}__${name}`), name);
    const said = async (name, args) => (await peer.prompt(`${server}__${name}`, args)).messages;
    assert.match((await said('simple-prompt'))[0].content.text, /simple prompt/);
    assert.match((await said('args-prompt', { city: 'Paris' }))[0].content.text, /Paris/);
    assert.match((await said('completable-prompt', { department: 'Sales', name: 'Eve' }))[0].content.text, /Eve/);
    const [, { content }] = await said('resource-prompt', { resourceType: 'Text', resourceId: '3' });
    assert.equal(content.resource.uri, wrap('demo://resource/dynamic/text/3'));
}

/** Every listed resource can be read under its listed URI, every template expanded and read. */
async function readsResources(peer, server, least) {
    const mine = uri => uri.startsWith(wrapFor(server)(''));
    const listed = (await peer.resources()).map(({ uri }) => uri).filter(mine);
    assert.ok(listed.length >= least, `${listed.length} resources`);
    for (const uri of listed) {
        const { contents } = await peer.read(uri);
        assert.equal(contents[0].uri, uri);
        assert.ok(contents[0].text ?? contents[0].blob);
    }
    const templates = (await peer.templates()).map(({ uriTemplate }) => uriTemplate).filter(mine);
    assert.ok(templates.length > 0);
    for (const template of templates) {
        const uri = template.replace(/\{\w+\}/, '5');
        const { contents } = await peer.read(uri);
        assert.equal(contents[0].uri, uri);
    }
    await assert.rejects(peer.read(wrapFor(server)('demo://no/such/resource')), ({ code }) => code === -32002 || code === -32602);
}

async function linksCanBeRead(peer, server) {
    const links = (await peer.call(`${server}__get-resource-links`, { count: 4 })).content.filter(({ type }) => type === 'resource_link');
    const [zip] = (await peer.call(`${server}__gzip-file-as-resource`, { name: 'link.gz', data: 'data:text/plain,link' })).content;
    for (const { uri } of [...links, zip]) assert.equal((await peer.read(uri)).contents[0].uri, uri);
}

async function completes(peer, server) {
    const prompt = { type: 'ref/prompt', name: `${server}__completable-prompt` };
    const values = async params => (await peer.complete(params)).completion.values;
    assert.deepEqual(await values({ ref: prompt, argument: { name: 'department', value: 'S' } }), ['Sales', 'Support']);
    const context = { arguments: { department: 'Sales' } };
    assert.deepEqual(await values({ ref: prompt, argument: { name: 'name', value: 'E' }, context }), ['Eve']);
    const template = { type: 'ref/resource', uri: wrapFor(server)('demo://resource/dynamic/text/{resourceId}') };
    assert.deepEqual(await values({ ref: template, argument: { name: 'resourceId', value: '7' } }), ['7']);
}

/** An update arrives under the URI the client subscribed with, and no longer after it unsubscribed. */
async function subscribes(peer, server, uri, trigger) {
    const wrapped = wrapFor(server)(uri);
    peer.notifications.length = 0;
    await peer.client.subscribeResource({ uri: wrapped });
    await peer.text(`${server}__${trigger}`);
    const { params } = await peer.notified('notifications/resources/updated', ({ uri: updated }) => updated === wrapped);
    assert.equal(params.uri, wrapped);
    await peer.client.unsubscribeResource({ uri: wrapped });
    await peer.text(`${server}__${trigger}`);
    assert.equal(peer.notifications.filter(({ method }) => method === 'notifications/resources/updated').length, 1);
}

async function logs(peer, server) {
    const tool = `${server}__test_tool_with_logging`;
    const lines = () => peer.notifications.filter(({ method }) => method === 'notifications/message');
    const infos = () => lines().filter(({ params }) => params.level === 'info' && /^Tool /.test(params.data));
    await peer.client.setLoggingLevel('error');
    peer.notifications.length = 0;
    await peer.text(tool);
    assert.deepEqual(infos(), []);
    await peer.client.setLoggingLevel('info');
    await peer.text(tool);
    await peer.notified('notifications/message', ({ data }) => data === 'Tool execution completed');
    assert.deepEqual(infos().map(({ params }) => params.data), ['Tool execution started', 'Tool processing data', 'Tool execution completed']);
    for (const { params } of infos()) assert.match(params.logger, new RegExp(server));
}

/** SDK 1 loses a progress notification that arrives in one piece with the result, so the last one may be missing. */
async function reportsProgress(peer, server) {
    const seen = [];
    await peer.text(`${server}__trigger-long-running-operation`, { duration: 0.4, steps: 4 }, { onprogress: ({ progress, total }) => seen.push([progress, total]) });
    assert.ok(seen.length >= 3, `${seen.length} notifications`);
    assert.deepEqual(seen, [[1, 4], [2, 4], [3, 4], [4, 4]].slice(0, seen.length));
}

async function cancels(peer, server) {
    const counts = async () => JSON.parse(await peer.text(`${server}__test_hold_counts`));
    const before = await counts();
    const controller = new AbortController();
    const call = peer.call(`${server}__test_hold`, { key: 'cancel' }, { signal: controller.signal });
    await until(async () => (await counts()).started > before.started, 10_000, 'the call runs');
    controller.abort('enough');
    await assert.rejects(call);
    await until(async () => (await counts()).cancelled > before.cancelled, 10_000, 'the call is cancelled upstream');
}

async function asksTheClient(peer, server) {
    assert.equal(await peer.text(`${server}__test_sampling`, { prompt: 'a prompt' }), 'LLM response: a sampled answer to a prompt');
    assert.match(await peer.text(`${server}__test_elicitation`, { message: 'who?' }), /action=accept.*"username":"ada"/);
    assert.equal(await peer.text(`${server}__test_roots`), pathToFileURL(sandbox).href);
    assert.match(await peer.text(`${server}__test_input_required_result_multi_round`), /Ada/);
}

/** The tests of one client; `peer()` is connected when they run. */
function behaves(peer) {
    test('a client lists every tool with its own schema', () => listsTools(peer(), Object.keys(servers)));
    test('a client calls every tool of server-everything', () => callsTools(peer(), 'everything', everythingCalls({ wrap: wrapFor('everything') })));
    test('a client calls every tool of server-memory', () => callsTools(peer(), 'memory', memoryCalls()));
    test('a client calls every tool of server-filesystem', async () => {
        for (const name of readdirSync(sandbox)) rmSync(join(sandbox, name), { recursive: true });
        await callsTools(peer(), 'files', filesystemCalls(sandbox));
    });
    test('an unknown tool is refused', () => assert.rejects(peer().call('everything__nonsense'), { code: -32602 }));
    test('a tool of one server is not found under the prefix of another', () => assert.rejects(peer().call('memory__echo', { message: 'x' }), { code: -32602 }));
    test('a tool error is passed on as a result', async () => assert.equal((await peer().call('fixture__test_error_handling')).isError, true));
    test('a client gets the prompts of server-everything', () => getsPrompts(peer(), 'everything'));
    test('a client reads every resource of server-everything', () => readsResources(peer(), 'everything', 7));
    test('a client reads every resource of the fixture', () => readsResources(peer(), 'fixture', 3));
    test('a client reads the resources that tools link to', () => linksCanBeRead(peer(), 'everything'));
    test('a client completes arguments of a prompt', () => completes(peer(), 'everything'));
    test('a client gets updates that it subscribed to', async () => {
        await subscribes(peer(), 'fixture', 'test://watched-resource', 'test_trigger_resource_update');
        await subscribes(peer(), 'everything', 'demo://resource/static/document/features.md', 'toggle-subscriber-updates');
    });
    test('a client gets log messages of its level', () => logs(peer(), 'fixture'));
    test('a client gets the progress of a call', () => reportsProgress(peer(), 'everything'));
    test('a client cancels a running call', () => cancels(peer(), 'fixture'));
    test('a client is asked for samples, answers and roots', () => asksTheClient(peer(), 'fixture'));
}

describe('one endpoint for four servers', () => {
    let gateway;
    before(async () => {
        gateway = await startGateway({ mcpServers: servers });
    });
    after(() => gateway?.stop());

    for (const how of Object.keys(overHttp)) {
        describe(how, () => {
            let peer;
            before(async () => {
                peer = await connect(gateway, how, handlers);
            });
            after(() => peer?.close());
            behaves(() => peer);
        });
    }

    test('schemas arrive byte for byte', async () => {
        const session = await Session.open(gateway.url);
        const { body } = await session.post({ jsonrpc: '2.0', id: 1, method: 'tools/list' });
        for (const server of Object.values(servers)) {
            for (const { name, inputSchema } of await rawTools(server)) assert.ok(body.includes(`"inputSchema":${JSON.stringify(inputSchema)}`), name);
        }
    });
    test('a list has the stable order of the configuration', async () => {
        const peer = await connect(gateway);
        const [one, two] = [await peer.tools(), await peer.tools()].map(tools => tools.map(({ name }) => name));
        assert.deepEqual(one, two);
        const order = one.map(name => Object.keys(servers).indexOf(name.split('__')[0]));
        assert.deepEqual(order, order.toSorted((a, b) => a - b));
        await peer.close();
    });
});

for (const how of Object.keys(overStdio)) {
    describe(how, () => {
        let peer;
        before(async () => {
            peer = await connectStdio({ mcpServers: servers }, how, handlers);
        });
        after(() => peer?.close());
        behaves(() => peer);
    });
}

describe('servers over HTTP', () => {
    const upstreams = [];
    let gateway, peer;
    before(async () => {
        const [everythingHttp, everythingSse, fixtureHttp, fixtureSse] = await Promise.all([
            startEverything('streamableHttp'),
            startEverything('sse'),
            startPeer(program.fixture, 'http'),
            startPeer(program.fixture, 'sse')
        ]);
        upstreams.push(everythingHttp, everythingSse, fixtureHttp, fixtureSse);
        gateway = await startGateway({
            mcpServers: {
                ehttp: { type: 'http', url: everythingHttp.url },
                esse: { type: 'sse', url: everythingSse.url },
                fhttp: { type: 'http', url: fixtureHttp.url },
                fsse: { type: 'sse', url: fixtureSse.url },
                guessed: { url: fixtureHttp.url }
            }
        });
        peer = await connect(gateway, undefined, handlers);
    });
    after(async () => {
        await peer?.close();
        await gateway?.stop();
        await Promise.all(upstreams.map(upstream => upstream.stop()));
    });

    for (const [server, transport] of [['ehttp', 'Streamable HTTP'], ['esse', 'HTTP+SSE']]) {
        describe(`server-everything over ${transport}`, () => {
            test('a client calls every tool of server-everything', () => callsTools(peer, server, everythingCalls({ wrap: wrapFor(server) })));
            test('a client gets the prompts of server-everything', () => getsPrompts(peer, server));
            test('a client reads every resource', () => readsResources(peer, server, 7));
            test('a client completes arguments of a prompt', () => completes(peer, server));
            test('a client gets the progress of a call', () => reportsProgress(peer, server));
            test('a client gets updates', () => subscribes(peer, server, 'demo://resource/static/document/features.md', 'toggle-subscriber-updates'));
        });
    }
    for (const [server, transport] of [['fhttp', 'Streamable HTTP'], ['fsse', 'HTTP+SSE'], ['guessed', 'Streamable HTTP by default']]) {
        describe(`the fixture over ${transport}`, () => {
            test('a client reads every resource', () => readsResources(peer, server, 3));
            test('a client gets updates', () => subscribes(peer, server, 'test://watched-resource', 'test_trigger_resource_update'));
            test('a client gets log messages of its level', () => logs(peer, server));
            test('a client cancels a running call', () => cancels(peer, server));
            test('a client is asked for samples, answers and roots', () => asksTheClient(peer, server));
            test('a stream that the server closes is resumed', async () => assert.match(await peer.text(`${server}__test_reconnection`), /Delivered/));
        });
    }
});
