// Clients that share a server process: all of them, or none with isolation "session".
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { pathToFileURL } from 'node:url';

import { connect } from '../connect.mjs';
import { startGateway, stdioServer, until } from '../gateway.mjs';

let gateway;
before(async () => {
    gateway = await startGateway({
        mcpServers: {
            shared: stdioServer.fixture(),
            own: { ...stdioServer.fixture(), isolation: 'session' },
            everything: { ...stdioServer.everything(), isolation: 'session' }
        }
    });
});
after(() => gateway?.stop());

const pid = async (peer, server) => JSON.parse(await peer.text(`${server}__test_process`)).pid;
const asking = name => ({
    sampling: () => ({ model: 'test', role: 'assistant', content: { type: 'text', text: `sampled by ${name}` } }),
    elicitation: () => ({ action: 'accept', content: { username: name, email: `${name}@example.com` } }),
    roots: () => ({ roots: [{ uri: pathToFileURL(`/${name}`).href, name }] })
});

describe('two clients of one gateway', () => {
    let ada, ben;
    before(async () => {
        ada = await connect(gateway, undefined, asking('ada'));
        ben = await connect(gateway, undefined, asking('ben'));
    });
    after(() => Promise.all([ada?.close(), ben?.close()]));

    test('two clients share one process of a shared server', async () => {
        const pids = [await pid(ada, 'shared'), await pid(ben, 'shared'), await pid(ada, 'shared')];
        assert.equal(new Set(pids).size, 1);
    });
    test('two clients each have a process of a server with isolation "session"', async () => {
        const [one, two, again] = [await pid(ada, 'own'), await pid(ben, 'own'), await pid(ada, 'own')];
        assert.notEqual(one, two);
        assert.equal(one, again);
    });
    test('two clients each get the questions of their own calls at the same time', async () => {
        const sample = peer => Promise.all([1, 2, 3].map(() => peer.text('own__test_sampling', { prompt: 'x' })));
        const [one, two] = await Promise.all([sample(ada), sample(ben)]);
        assert.deepEqual([...new Set(one)], ['LLM response: sampled by ada']);
        assert.deepEqual([...new Set(two)], ['LLM response: sampled by ben']);
        assert.match(await ada.text('own__test_elicitation', { message: 'who?' }), /"username":"ada"/);
        assert.match(await ben.text('own__test_elicitation', { message: 'who?' }), /"username":"ben"/);
    });
    test('two clients are each asked for their own roots outside of a call', async () => {
        assert.equal(await ada.text('own__test_roots'), 'file:///ada');
        assert.equal(await ben.text('own__test_roots'), 'file:///ben');
        const roots = peer => until(() => peer.text('everything__get-roots-list').then(text => /file:/.exec(text) && text), 10_000, 'roots are known');
        assert.match(await roots(ada), /file:\/\/\/ada/);
        assert.match(await roots(ben), /file:\/\/\/ben/);
    });
    test('two clients get only updates of their own subscriptions', async () => {
        const uri = 'postern://shared/test://watched-resource';
        const updates = peer => peer.notifications.filter(({ method }) => method === 'notifications/resources/updated');
        await ada.client.subscribeResource({ uri });
        await ben.text('shared__test_trigger_resource_update');
        await ada.notified('notifications/resources/updated');
        assert.deepEqual(updates(ben), []);
        await ben.client.subscribeResource({ uri });
        await ada.client.unsubscribeResource({ uri });
        ada.notifications.length = 0;
        await ada.text('shared__test_trigger_resource_update');
        await ben.notified('notifications/resources/updated');
        assert.deepEqual(updates(ada), []);
    });
    test('two clients get only the progress of their own calls', async () => {
        const run = async peer => {
            const seen = [];
            await peer.text('shared__test_tool_with_progress', {}, { onprogress: ({ progress }) => seen.push(progress) });
            return seen;
        };
        assert.deepEqual(await Promise.all([run(ada), run(ben)]), [[0, 50, 100], [0, 50, 100]]);
    });
});

test('the process of a client ends with its session', async () => {
    const peer = await connect(gateway);
    const own = String(await pid(peer, 'own'));
    assert.ok(gateway.servers().includes(own));
    await peer.transport.terminateSession();
    await peer.close();
    await until(() => !gateway.servers().includes(own), 10_000, 'the process is gone');
});

test('a client without a capability does not get questions through another client', async () => {
    const mute = await connect(gateway);
    const able = await connect(gateway, undefined, asking('able'));
    const refused = await mute.call('own__test_sampling', { prompt: 'x' }).then(({ isError }) => isError, () => true);
    assert.equal(refused, true);
    assert.equal(await able.text('own__test_sampling', { prompt: 'x' }), 'LLM response: sampled by able');
    await Promise.all([mute.close(), able.close()]);
});
