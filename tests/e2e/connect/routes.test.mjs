// Every request to a server that the caller has not connected gets a connect link, and works after the login: tools, prompts, resources,
// subscriptions and completions, with and without prefixes, including names that could belong to any of several servers.
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { setTimeout } from 'node:timers/promises';

import { stdioServer } from '../gateway.mjs';
import { caller, everybody, newUser, startWorld } from '../hosted.mjs';
import { Jar } from '../jar.mjs';

let world;
before(async () => (world = await startWorld()));
after(() => world?.stop());

const own = () => ({ url: world.authority.url, auth: { mode: 'per_user' } });

/** The requests for items of one server, each with a function that extracts the account from a correct result. */
const requests = (name, uri) => ({
    'tools/call': [{ name: name('whoami'), arguments: {} }, result => result.content[0].text],
    'prompts/get': [{ name: name('introduce') }, result => result.messages[0].content.text],
    'resources/read': [{ uri: uri('account://me') }, result => result.contents[0].text],
    'resources/read of a template': [{ uri: uri('account://me/x') }, result => result.contents[0].text],
    'resources/subscribe': [{ uri: uri('account://me') }, result => (assert.deepEqual(result, {}), 'alice')],
    'completion/complete of a prompt': [{ ref: { type: 'ref/prompt', name: name('introduce') }, argument: { name: 'a', value: '' } }, result => result.completion.values[0]],
    'completion/complete of a template': [{ ref: { type: 'ref/resource', uri: uri('account://me/{part}') }, argument: { name: 'part', value: '' } }, result => result.completion.values[0]]
});
const prefixed = requests(name => `files__${name}`, uri => `postern://files/${uri}`);
const bare = requests(name => name, uri => uri);

/** The gateway requests at most five tokens a second from one issuer (H18), so logins of consecutive tests are spaced out. */
let earliest = 0;
async function connects(user, link) {
    await setTimeout(Math.max(0, earliest - Date.now()));
    earliest = Date.now() + 250;
    await new Jar(user).connect(link);
}

const methodOf = label => label.split(' ')[0];

describe('calls to a server with a prefix', () => {
    let gateway;
    before(async () => (gateway = await world.start({ mcpServers: { files: own(), mail: own(), local: stdioServer.fixture() } })));
    after(() => gateway?.stop());

    for (const [label, [params, account]] of Object.entries(prefixed)) {
        test(`H3 ${label} gets -32003 with a link and works after connecting`, async () => {
            const user = newUser();
            const calls = await caller(user, gateway.url);
            const { error } = await calls.request(methodOf(label), params);
            assert.equal(error?.code, -32003, JSON.stringify(error));
            assert.equal(error.data.server, 'files');
            assert.ok(error.message.includes(error.data.authorizationUrl), error.message);
            await connects(user, error.data.authorizationUrl);
            const { result, error: left } = await calls.request(methodOf(label), params);
            assert.equal(left, undefined, JSON.stringify(left));
            assert.equal(account(result), 'alice');
        });
        test(`H3 ${label} of a caller with URL elicitation gets -32042`, async () => {
            const calls = await caller(newUser(), gateway.url, { capabilities: { elicitation: { url: {} } } });
            const { error } = await calls.request(methodOf(label), params);
            assert.equal(error?.code, -32042, JSON.stringify(error));
            assert.ok(error.data.elicitations[0].url.startsWith(`${gateway.origin}/oauth/connect?t=`));
        });
    }
    test('an item that no server has is unknown for every user', async () => {
        const calls = await caller(newUser(), gateway.url);
        const { error } = await calls.request('resources/read', { uri: 'account://me' });
        assert.equal(error.data.authorizationUrl, undefined);
        assert.ok([-32002, 403].includes(error.code), JSON.stringify(error));
        assert.ok((await calls.request('resources/read', { uri: 'postern://local/test://static-text' })).result, 'an item that exists is served');
    });
});

describe('calls to one server without a prefix', () => {
    let gateway;
    before(async () => (gateway = await world.start({ prefix: false, mcpServers: { files: own() } })));
    after(() => gateway?.stop());

    for (const [label, [params, account]] of Object.entries(bare))
        test(`H3 ${label} without prefixes gets a link and works after connecting`, async () => {
            const user = newUser();
            const calls = await caller(user, gateway.url);
            const { error } = await calls.request(methodOf(label), params);
            assert.equal(error?.code, -32003, JSON.stringify(error));
            await connects(user, error.data.authorizationUrl);
            assert.equal(account((await calls.request(methodOf(label), params)).result), 'alice');
        });
});

describe('calls to several servers without prefixes', () => {
    let gateway;
    before(async () => (gateway = await world.start({ prefix: false, mcpServers: { local: stdioServer.fixture(), files: own(), mail: { ...own() } } })));
    after(() => gateway?.stop());

    for (const [label, [params, account]] of Object.entries(bare))
        test(`H3 ${label} gets an error that names all servers without a grant and links to the first`, async () => {
            const user = newUser();
            const calls = await caller(user, gateway.url);
            const { error } = await calls.request(methodOf(label), params);
            assert.equal(error?.code, -32003, JSON.stringify(error));
            assert.equal(error.data.server, 'files');
            assert.match(error.message, /not connected yet: "files", "mail"/);
            await connects(user, error.data.authorizationUrl);
            assert.equal(account((await calls.request(methodOf(label), params)).result), 'alice');
        });
    test('an item of a connected server is served while other servers are not connected', async () => {
        const calls = await caller(newUser(), gateway.url);
        assert.match((await calls.request('resources/read', { uri: 'test://static-text' })).result.contents[0].text, /static text/);
    });
    test('H15 a server that the policy denies to the caller is not named and cannot be connected', async () => {
        const [user, stranger] = [newUser(), newUser()];
        world.setPolicy(everybody, { ...everybody, id: 'no-files', effect: 'deny', subjects: [`user:forwarded-user:${user}`], servers: ['files'] }, { ...everybody, id: 'nothing', effect: 'deny', subjects: [`user:forwarded-user:${stranger}`], servers: ['files', 'mail'] });
        const strict = await world.start({ prefix: false, mcpServers: { local: stdioServer.fixture(), files: own(), mail: own() } });
        try {
            const { error } = await (await caller(user, strict.url)).request('resources/read', { uri: 'account://me' });
            assert.equal(error.data.server, 'mail');
            assert.match(error.message, /not connected yet: "mail"\./);
            assert.ok(!error.message.includes('files'));
            const denied = (await (await caller(stranger, strict.url)).request('resources/read', { uri: 'account://me' })).error;
            assert.equal(denied.code, 403, 'the same error as for an unknown item');
            assert.ok(!JSON.stringify(denied).includes('mail'));
        } finally {
            world.setPolicy(everybody);
            await strict.stop();
        }
    });
});
