// Lists in pages, cursors, and the sessions that are notified when a list changes.
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';

import { peerPath, startGateway, stdioServer, temporaryDirectory, until } from '../gateway.mjs';
import { resultText, Session } from '../raw.mjs';

const mirror = peerPath('mirror');
const mirrorServer = (...args) => ({ command: mirror, args });
const TOOLS_CHANGED = 'notifications/tools/list_changed';
const URI = 'postern://m/mirror:///one';
const WAIT_MS = 15_000;

/** The pages of a list, each as an array of names or URIs. */
async function pages(session, method, member, key) {
    const all = [];
    for (let cursor; ; ) {
        const { result } = await session.request(method, cursor === undefined ? {} : { cursor });
        all.push(result[member].map(item => item[key]));
        if (result.nextCursor === undefined) return all;
        cursor = result.nextCursor;
    }
}

const toolNames = async session => (await pages(session, 'tools/list', 'tools', 'name')).flat();

/** Collects the methods of the notifications on the GET stream of the session. */
async function listen(session) {
    const events = await session.get();
    assert.equal(events.status, 200);
    return {
        drop: events.drop,
        notification: events.notification,
        /** All notifications before the update of a resource, which the session causes itself. */
        async untilUpdate() {
            const seen = [];
            for (;;) {
                const { message } = await events.message();
                if (message.method === 'notifications/resources/updated') return seen;
                seen.push(message.method);
            }
        }
    };
}

/** Makes the server m send an update to the subscribers of URI, which marks a place in their streams. */
async function markStreams(session) {
    assert.equal(resultText(await session.call('m__update', { uri: 'mirror:///one' })), 'told');
}

describe('pages of three', () => {
    const PAGES = 8;
    let gateway, session;
    before(async () => {
        gateway = await startGateway({
            limits: { page_size: 3 },
            mcpServers: { pages: stdioServer.misbehave('pages', PAGES), m: mirrorServer('--tools', '["one","two"]') }
        });
        session = await Session.open(gateway.url);
    });
    after(() => gateway?.stop());

    const firstCursor = async (method = 'tools/list') => (await session.request(method)).result.nextCursor;

    test('pages list each tool once in the order of the configuration', async () => {
        const all = await pages(session, 'tools/list', 'tools', 'name');
        const own = ['odd', 'mirror', 'reply', 'refuse', 'wait', 'grow', 'update', 'crash', 'one', 'two'];
        const wanted = ['fine', ...Array.from({ length: PAGES - 1 }, (_, i) => `page_${i + 1}`)].map(name => `pages__${name}`);
        assert.deepEqual(all.flat(), [...wanted, ...own.map(name => `m__${name}`)]);
        assert.deepEqual(all.map(page => page.length), [3, 3, 3, 3, 3, 3]);
    });
    test('a last page that is full has no cursor', async () => {
        assert.deepEqual((await pages(session, 'resources/list', 'resources', 'uri')).map(page => page.length), [3]);
    });
    test('a cursor can be used repeatedly', async () => {
        const cursor = await firstCursor();
        const [one, two] = [await session.request('tools/list', { cursor }), await session.request('tools/list', { cursor })];
        assert.deepEqual(one.result, two.result);
    });
    test('a cursor of another list is refused', async () => {
        const cursor = await firstCursor();
        for (const method of ['prompts/list', 'resources/list', 'resources/templates/list']) {
            const { error } = await session.request(method, { cursor });
            assert.equal(error?.code, -32602, method);
            assert.equal(error.data?.reason, 'bad_cursor');
        }
    });
    test('a cursor that was changed is refused', async () => {
        const cursor = await firstCursor();
        const changed = i => cursor.slice(0, i) + (cursor[i] === 'A' ? 'B' : 'A') + cursor.slice(i + 1);
        for (const bad of [changed(0), changed(12), changed(cursor.length - 2), cursor.slice(0, -4), `${cursor}AAAA`, 'nonsense', '', '3']) {
            assert.equal((await session.request('tools/list', { cursor: bad })).error?.code, -32602, `cursor ${bad}`);
        }
    });
    test('a cursor that is not a string is refused', async () => {
        for (const cursor of [3, {}]) assert.equal((await session.request('tools/list', { cursor })).error?.code, -32602, JSON.stringify(cursor));
    });
    test('a cursor from before a change is refused and a new list works', async () => {
        const cursor = await firstCursor();
        const stream = await listen(session);
        assert.equal(resultText(await session.call('m__grow', { name: 'three' })), 'grown');
        await stream.notification(TOOLS_CHANGED);
        assert.equal((await session.request('tools/list', { cursor })).error?.code, -32602);
        assert.ok((await toolNames(session)).includes('m__three'));
        stream.drop();
    });
    test('a cursor of another gateway is refused', async () => {
        const other = await startGateway({ limits: { page_size: 3 }, mcpServers: { m: mirrorServer() } });
        try {
            const there = await Session.open(other.url);
            const { nextCursor } = (await there.request('tools/list')).result;
            assert.equal((await session.request('tools/list', { cursor: nextCursor })).error?.code, -32602);
        } finally {
            await other.stop();
        }
    });
});

describe('lists that change', () => {
    let gateway;
    before(async () => {
        gateway = await startGateway({ mcpServers: { m: mirrorServer() } });
    });
    after(() => gateway?.stop());

    test('a changed list is announced once on the GET stream and has the new tool', async () => {
        const session = await Session.open(gateway.url);
        await toolNames(session);
        await session.request('resources/subscribe', { uri: URI });
        const stream = await listen(session);
        await session.call('m__grow', { name: 'told' });
        await stream.notification(TOOLS_CHANGED);
        assert.ok((await toolNames(session)).includes('m__told'));
        assert.equal(resultText(await session.call('m__told')), 'told');
        await markStreams(session);
        assert.deepEqual(await stream.untilUpdate(), []);
        stream.drop();
    });
    test('a changed list is announced only to sessions that listed it', async () => {
        const [listed, never] = [await Session.open(gateway.url), await Session.open(gateway.url)];
        for (const session of [listed, never]) await session.request('resources/subscribe', { uri: URI });
        await toolNames(listed);
        const [heard, unheard] = [await listen(listed), await listen(never)];
        await listed.call('m__grow', { name: 'heard' });
        await until(async () => (await toolNames(listed)).includes('m__heard'), WAIT_MS, 'the tool is listed');
        await markStreams(listed);
        assert.deepEqual(await heard.untilUpdate(), [TOOLS_CHANGED]);
        assert.deepEqual(await unheard.untilUpdate(), []);
        heard.drop();
        unheard.drop();
    });
    test('a changed list is announced to sessions of older revisions', async () => {
        const session = await Session.open(gateway.url, { version: '2025-03-26' });
        await toolNames(session);
        const stream = await listen(session);
        await session.call('m__grow', { name: 'older' });
        await stream.notification(TOOLS_CHANGED);
        stream.drop();
    });
});

describe('servers that start and end', () => {
    test('a server that was down is announced with its tools when it starts', async () => {
        const directory = temporaryDirectory();
        const file = join(directory.path, 'up');
        const gateway = await startGateway({ mcpServers: { late: mirrorServer('--after', file), m: mirrorServer() } });
        try {
            const session = await Session.open(gateway.url);
            assert.ok((await toolNames(session)).every(name => name.startsWith('m__')));
            const stream = await listen(session);
            writeFileSync(file, '');
            await stream.notification(TOOLS_CHANGED);
            const names = await toolNames(session);
            assert.equal(names[0], 'late__odd');
            assert.ok(names.includes('m__odd'));
            assert.match(resultText(await session.call('late__mirror')), /"tools\/call"/);
            stream.drop();
        } finally {
            await gateway.stop();
            directory.remove();
        }
    });
    test('a server that crashed is restarted and its subscriptions are renewed', async () => {
        const gateway = await startGateway({ mcpServers: { m: mirrorServer() } });
        try {
            const session = await Session.open(gateway.url);
            await toolNames(session);
            await session.request('resources/subscribe', { uri: URI });
            const stream = await listen(session);
            assert.equal((await session.call('m__crash')).error?.code, -32001);
            const told = async () => {
                const answer = await session.call('m__update', { uri: 'mirror:///one' });
                return answer.result && resultText(answer) === 'told';
            };
            await until(told, WAIT_MS, 'the subscription is renewed');
            const { message } = await stream.notification('notifications/resources/updated');
            assert.equal(message.params.uri, URI);
            stream.drop();
        } finally {
            await gateway.stop();
        }
    });
    test('a server that restarts with fewer tools is announced as a change', async () => {
        const gateway = await startGateway({ mcpServers: { m: mirrorServer() } });
        try {
            const session = await Session.open(gateway.url);
            await toolNames(session);
            const stream = await listen(session);
            await session.call('m__grow', { name: 'short_lived' });
            await stream.notification(TOOLS_CHANGED);
            assert.ok((await toolNames(session)).includes('m__short_lived'));
            await session.call('m__crash');
            await stream.notification(TOOLS_CHANGED);
            assert.ok(!(await toolNames(session)).includes('m__short_lived'));
            stream.drop();
        } finally {
            await gateway.stop();
        }
    });
    test('an unsubscribed resource stays unsubscribed after a crash', async () => {
        const gateway = await startGateway({ mcpServers: { m: mirrorServer() } });
        try {
            const session = await Session.open(gateway.url);
            await session.request('resources/subscribe', { uri: URI });
            await session.request('resources/unsubscribe', { uri: URI });
            await session.call('m__crash');
            await gateway.line(/server ready[^]*server ready/, WAIT_MS);
            assert.equal(resultText(await session.call('m__update', { uri: 'mirror:///one' })), 'not subscribed');
        } finally {
            await gateway.stop();
        }
    });
});
