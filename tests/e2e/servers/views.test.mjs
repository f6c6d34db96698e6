// Lists are fresh, and requests wait only for the servers they need: an item that a server registers while it runs is available at once,
// and a server that starts or lists slowly delays only its own calls.
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';

import { node, peerPath, settles, startGateway, startPeer, stdioServer, temporaryDirectory } from '../gateway.mjs';
import { resultText, Session } from '../raw.mjs';

const TIMES = 10, UNDER_WAY_MS = 300;
const growing = peerPath('growing.mjs');
const onStdio = (...args) => ({ command: node, args: [growing, 'stdio', ...args] });

/** For each kind of item: its use, and its list. */
const kinds = {
    tool: [(session, server, name) => session.call(`${server}__${name}`), 'tools/list', 'tools', 'name', (server, name) => `${server}__${name}`],
    prompt: [(session, server, name) => session.request('prompts/get', { name: `${server}__${name}` }), 'prompts/list', 'prompts', 'name', (server, name) => `${server}__${name}`],
    resource: [(session, server, name) => session.request('resources/read', { uri: `postern://${server}/grown://${name}` }), 'resources/list', 'resources', 'uri', (server, name) => `postern://${server}/grown://${name}`],
    template: [
        (session, server, name) => session.request('completion/complete', { ref: { type: 'ref/resource', uri: `postern://${server}/grown-${name}://{id}` }, argument: { name: 'id', value: '' } }),
        'resources/templates/list', 'resourceTemplates', 'uriTemplate', (server, name) => `postern://${server}/grown-${name}://{id}`
    ]
};
const listed = async (session, [, method, member, key]) => (await session.request(method)).result[member].map(item => item[key]);

describe('items that a server registers while it runs', () => {
    let gateway, peers, next = 0;
    before(async () => {
        peers = await Promise.all([startPeer(node, growing, 'http'), startPeer(node, growing, 'sse'), startPeer(node, growing, 'http', 'quiet'), startPeer(node, growing, 'http', 'streamless')]);
        const [http, sse, quiet, streamless] = peers.map(({ url }) => ({ url }));
        gateway = await startGateway({
            mcpServers: {
                stdio: onStdio(), http, sse: { ...sse, type: 'sse' }, user: { ...onStdio(), isolation: 'user' }, session: { ...onStdio(), isolation: 'session' },
                quiet, streamless, quietly: onStdio('quiet')
            },
            profiles: { bare: { servers: ['stdio', 'http'], prefix: false } },
            timeouts: { list: '60s' }
        });
    });
    after(async () => {
        await gateway?.stop();
        await Promise.all((peers ?? []).map(peer => peer.stop()));
    });
    const grow = async (session, tool, kind) => {
        const name = `n${next++}`;
        assert.equal(resultText(await session.call(tool, { kind, name })), 'grown');
        return name;
    };

    for (const server of ['stdio', 'http', 'sse', 'user', 'session'])
        for (const kind of Object.keys(kinds))
            test(`a ${kind} registered later by ${server} is used and listed at once`, async () => {
                const session = await Session.open(gateway.url), [use, , , , exposed] = kinds[kind];
                const missing = { used: 0, listed: 0 };
                for (let i = 0; i < TIMES; i++) {
                    missing.used += 'error' in (await use(session, server, await grow(session, `${server}__grow`, kind)));
                    const name = await grow(session, `${server}__grow`, kind);
                    missing.listed += !(await listed(session, kinds[kind])).includes(exposed(server, name));
                }
                assert.deepEqual(missing, { used: 0, listed: 0 });
            });
    test('an item registered later is used at once without prefixes', async () => {
        const session = await Session.open(`${gateway.url}/bare`), missing = { used: 0, listed: 0 };
        for (let i = 0; i < TIMES; i++) {
            missing.used += 'error' in (await session.call(await grow(session, 'grow', 'tool')));
            const name = await grow(session, 'grow', 'tool');
            missing.listed += !(await listed(session, kinds.tool)).includes(name);
        }
        assert.deepEqual(missing, { used: 0, listed: 0 });
        const prompt = await grow(session, 'grow', 'prompt');
        assert.equal((await session.request('prompts/get', { name: prompt })).result?.messages[0].content.text, prompt);
        const resource = await grow(session, 'grow', 'resource');
        assert.equal((await session.request('resources/read', { uri: `grown://${resource}` })).result?.contents[0].text, resource);
        const template = await grow(session, 'grow', 'template');
        assert.equal((await session.request('resources/read', { uri: `grown-${template}://x` })).result?.contents[0].text, template);
    });
    for (const server of ['quiet', 'quietly', 'streamless'])
        test(`an item registered later by ${server} is used at once without an announcement`, async () => {
            const session = await Session.open(gateway.url), missing = { used: 0, listed: 0 };
            for (let i = 0; i < TIMES; i++) {
                missing.used += 'error' in (await session.call(`${server}__${await grow(session, `${server}__grow`, 'tool')}`));
                const name = await grow(session, `${server}__grow`, 'tool');
                missing.listed += !(await listed(session, kinds.tool)).includes(`${server}__${name}`);
            }
            assert.deepEqual(missing, { used: 0, listed: 0 });
            const name = await grow(session, `${server}__grow`, 'tool');
            await sleep(UNDER_WAY_MS); // an announcement would have arrived by then
            assert.ok((await listed(session, kinds.tool)).includes(`${server}__${name}`));
        });
    test('unknown names do not make the gateway fetch lists over and over', async () => {
        const session = await Session.open(gateway.url);
        const counts = async () => Number(resultText(await session.call('quietly__counts')));
        const before = await counts();
        for (let i = 0; i < TIMES; i++) assert.equal((await session.call(`quietly__no${i}`)).error.data.reason, 'unknown_tool');
        assert.ok((await counts()) <= before + 1, 'unknown names cause at most one fetch');
    });
    test('a completion of a new prompt is answered', async () => {
        const session = await Session.open(gateway.url);
        const name = await grow(session, 'stdio__grow', 'prompt');
        const { error } = await session.request('completion/complete', { ref: { type: 'ref/prompt', name: `stdio__${name}` }, argument: { name: 'x', value: '' } });
        assert.notEqual(error?.data?.reason, 'invalid_params', JSON.stringify(error));
    });
});

describe('a server that starts slowly', () => {
    let directory, gateway, session, bare, events;
    const file = name => join(directory.path, name);
    const slow = (name, ...more) => ({ ...stdioServer.misbehave('start-with', file(name), ...more), start_timeout: '60s' });
    before(async () => {
        directory = temporaryDirectory();
        gateway = await startGateway({
            mcpServers: {
                good: onStdio(),
                dead: { command: '/bin/false', args: [] },
                unlisted: { ...stdioServer.misbehave('hang-list'), start_timeout: '1s' },
                slow: slow('go'),
                own: { ...slow('go'), isolation: 'session' },
                empty: slow('go-empty', 'empty')
            },
            profiles: { bare: { servers: ['good', 'slow'], prefix: false } },
            timeouts: { list: '500ms' }
        });
        session = await Session.open(gateway.url);
        bare = await Session.open(`${gateway.url}/bare`);
        events = await session.get();
        assert.equal(resultText(await session.call('good__first_tool')), 'first_tool');
    });
    after(async () => {
        events?.drop();
        await gateway?.stop();
        directory?.remove();
    });
    const reason = async answer => (await answer).error?.data?.reason;
    let own;

    test('a server that starts slowly does not delay a list', async () => {
        const names = await listed(session, kinds.tool);
        assert.ok(names.includes('good__grow') && !names.some(name => /^(slow|own|empty|dead)__/.test(name)), names);
    });
    test('a server that starts slowly does not delay calls to others', async () => {
        assert.equal(resultText(await session.call('good__first_tool')), 'first_tool');
        assert.equal(await reason(session.call('good__nothing')), 'unknown_tool');
        assert.equal(await reason(session.call('nobody__nothing')), 'unknown_tool');
        assert.equal(await reason(session.call('dead__nothing')), 'server_unavailable');
        assert.equal(await reason(session.request('prompts/get', { name: 'good__nothing' })), 'unknown_prompt');
        assert.equal(resultText(await bare.call('first_tool')), 'first_tool');
    });
    test('calls wait up to start_timeout for a server that does not list its items', async () => {
        assert.equal(await reason(session.call('unlisted__fine')), 'server_unavailable');
    });
    test('calls that may concern a server that starts slowly wait for it', async () => {
        own = [session.call('slow__fine'), session.call('own__fine'), bare.call('fine')];
        assert.equal(await settles(Promise.race(own), 1_000), false);
    });
    test('a server that starts slowly is announced when it is ready, unless it has no items', async () => {
        writeFileSync(file('go-empty'), '');
        assert.equal(await reason(session.call('empty__nothing')), 'unknown_tool');
        await listed(session, kinds.prompt);
        await session.call('good__grow', { kind: 'prompt', name: 'news' });
        assert.equal((await events.message()).message.method, 'notifications/prompts/list_changed', 'the first announcement');
        writeFileSync(file('go'), '');
        for (const answer of await Promise.all(own)) assert.equal(resultText(answer), 'fine');
        for (let seen = ''; !/slow.*own|own.*slow/.test(seen); seen = (await listed(session, kinds.tool)).join())
            await events.notification('notifications/tools/list_changed');
    });
});

describe('a server without announcements that is slow to list its tools', () => {
    let directory, gateway;
    before(async () => {
        directory = temporaryDirectory();
        gateway = await startGateway({ mcpServers: { quiet: onStdio('quiet') }, timeouts: { list: '20s' } });
    });
    after(async () => {
        await gateway?.stop();
        directory?.remove();
    });

    test('a server that is slow to list its tools delays a list briefly and its new tools are announced', async () => {
        const session = await Session.open(gateway.url), events = await session.get(), file = join(directory.path, 'go');
        assert.ok((await listed(session, kinds.tool)).includes('quiet__hold'));
        await session.call('quiet__hold', { file });
        await session.call('quiet__grow', { kind: 'tool', name: 'new' });
        assert.ok(!(await listed(session, kinds.tool)).includes('quiet__new'), 'the known list is shown');
        const called = session.call('quiet__new');
        assert.equal(await settles(called, 100), false, 'a call of a name that is not known waits');
        writeFileSync(file, '');
        assert.equal(resultText(await called), 'new');
        await events.notification('notifications/tools/list_changed');
        assert.ok((await listed(session, kinds.tool)).includes('quiet__new'));
        events.drop();
    });
});

describe('a server that announces changes without end', () => {
    let gateway, session;
    before(async () => {
        gateway = await startGateway({ mcpServers: { changing: stdioServer.misbehave('changing', 30), good: onStdio() }, timeouts: { list: '30s' } });
        session = await Session.open(gateway.url);
    });
    after(() => gateway?.stop());

    test('a server that announces changes without end is listed as of each request', async () => {
        for (let last = 0, i = 0; i < 5; i++) {
            const now = Number((await listed(session, kinds.tool)).find(name => name.startsWith('changing__list_')).split('_').at(-1));
            assert.ok(now > last, `${now} after ${last}`);
            last = now;
        }
    });
    test('a server that announces changes without end does not delay calls to others', async () => {
        assert.equal((await session.call('changing__nothing')).error.data.reason, 'unknown_tool');
        assert.equal((await session.call('good__nothing')).error.data.reason, 'unknown_tool');
    });
});
