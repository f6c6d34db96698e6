// X9: the inputSchema of a listed tool is narrowed to the values its caller may pass; every other byte is unchanged, and calls are still decided.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';

import { ClientV1, HttpTransportV1 } from '../../peers/clients.mjs';
import { connectServer } from '../connect.mjs';
import { binary, startGateway, stdioServer, temporaryDirectory, until } from '../gateway.mjs';
import { policyRule } from '../policy.mjs';

const rule = (id, subjects, names, when) => policyRule(id, 'allow', { subjects, servers: ['every'], names, ...(when ? { when } : {}) });
const written = rules => JSON.stringify({ version: 1, description: 'A policy of this test', rules });
const rules = [
    rule('clerk-echo', ['role:clerk'], ['echo'], { '/message': { in: ['hello', 'good bye'] } }),
    rule('boss-echo', ['role:boss'], ['echo']),
    rule('polite-echo', ['role:polite'], ['echo'], { '/message': { eq: 'please' } }),
    rule('clerk-sum', ['role:clerk'], ['get-sum'], { '/a': { in: [1, 2] }, '/b': { le: 10 } }),
    rule('boss-sum', ['role:boss'], ['get-sum'], { '/a': { in: [1, 2] }, '/b': { le: 10 } }),
    rule('clerk-annotated', ['role:clerk'], ['get-annotated-message'], { '/messageType': { in: ['success', 'debug', 'unheard'] } })
];
const callers = { ann: ['clerk'], bob: ['boss', 'clerk'], cat: ['clerk', 'polite'] };

let folder, gateway;
const clients = {}, own = {};

before(async () => {
    folder = temporaryDirectory();
    const tokens = join(folder.path, 'tokens.json'), policy = join(folder.path, 'policy.json');
    writeFileSync(policy, written(rules));
    const secrets = Object.entries(callers).map(([subject, roles]) => [subject, execFileSync(binary,
        ['token', 'new', '--file', tokens, '--subject', subject, ...roles.flatMap(role => ['--role', role])], { encoding: 'utf8' }).trim()]);
    gateway = await startGateway({ auth: { providers: [{ type: 'bearer', tokens }] }, policy, mcpServers: { every: stdioServer.everything() } });
    for (const [subject, secret] of secrets) {
        clients[subject] = new ClientV1({ name: 'narrow', version: '1' });
        const requestInit = { headers: { authorization: `Bearer ${secret}` } };
        await clients[subject].connect(new HttpTransportV1(new URL(gateway.url), { requestInit }));
    }
    const direct = await connectServer(stdioServer.everything());
    for (const tool of (await direct.client.listTools()).tools) own[tool.name] = tool;
    await direct.close();
});
after(async () => {
    for (const client of Object.values(clients)) await client.close();
    await gateway?.stop();
    folder?.remove();
});

/** The tools as listed, by their names at the server. */
const listed = async subject => Object.fromEntries((await clients[subject].listTools()).tools.map(tool => [tool.name.replace('every__', ''), tool]));
/** The tool of the server under its exposed name, with other properties. */
const narrowed = (name, properties) => ({
    ...own[name], name: `every__${name}`,
    inputSchema: { ...own[name].inputSchema, properties: { ...own[name].inputSchema.properties, ...properties } }
});

test('X9 a narrowed schema shows only the values that a caller may pass', async () => {
    const { message } = own.echo.inputSchema.properties, { a } = own['get-sum'].inputSchema.properties;
    const { messageType } = own['get-annotated-message'].inputSchema.properties;
    assert.deepEqual(messageType.enum, ['error', 'success', 'debug'], 'the peer has an enum of its own');
    assert.deepEqual(await listed('ann'), {
        echo: narrowed('echo', { message: { ...message, enum: ['hello', 'good bye'] } }),
        'get-sum': narrowed('get-sum', { a: { ...a, enum: [1, 2] } }),
        'get-annotated-message': narrowed('get-annotated-message', { messageType: { ...messageType, enum: ['success', 'debug'] } })
    });
});
test('X9 a rule without the condition prevents narrowing and two conditions are united', async () => {
    assert.deepEqual((await listed('bob')).echo, narrowed('echo', {}));
    assert.deepEqual((await listed('bob'))['get-sum'].inputSchema.properties.a.enum, [1, 2]);
    assert.deepEqual((await listed('cat')).echo.inputSchema.properties.message.enum, ['hello', 'good bye', 'please']);
});
test('X9 shown values can be called and hidden values are denied by the policy', async () => {
    const call = (subject, name, args) => clients[subject].callTool({ name: `every__${name}`, arguments: args });
    for (const message of (await listed('ann')).echo.inputSchema.properties.message.enum)
        assert.equal((await call('ann', 'echo', { message })).content[0].text, `Echo: ${message}`);
    await assert.rejects(call('ann', 'echo', { message: 'please' }), { code: 403 });
    assert.equal((await call('bob', 'echo', { message: 'anything' })).content[0].text, 'Echo: anything');
    assert.equal((await call('cat', 'echo', { message: 'please' })).content[0].text, 'Echo: please');
    await assert.rejects(call('ann', 'get-sum', { a: 1, b: 11 }), { code: 403 });
    assert.match((await call('ann', 'get-sum', { a: 1, b: 10 })).content[0].text, /11/);
});
test('X15 a new policy changes the list in the same session', async () => {
    writeFileSync(join(folder.path, 'policy.json'), written([rule('clerk-echo', ['role:clerk'], ['echo'], { '/message': { eq: 'new' } })]));
    process.kill(gateway.pid, 'SIGHUP');
    const tools = await until(async () => {
        const now = await listed('ann');
        return Object.keys(now).length === 1 && now;
    }, 10_000, 'the new policy is in force');
    assert.deepEqual(tools.echo.inputSchema.properties.message.enum, ['new']);
});
