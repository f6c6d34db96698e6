// Servers that ignore the case of member names, one in Go and one of these tests: a message that they would read differently from the
// policy never reaches them. And only members that the method defines as arguments are treated as such.
import assert from 'node:assert/strict';
import { execFileSync, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { after, before, describe, test } from 'node:test';

import { binary, node, peerPath, startGateway, temporaryDirectory, until } from '../gateway.mjs';
import { policyRule } from '../policy.mjs';
import { reply, Session } from '../raw.mjs';

const peers = peerPath('folding/');
const rule = (id, more) => policyRule(id, 'allow', { subjects: ['anonymous'], servers: ['repos'], ...more });
const acme = { '/owner': { eq: 'acme' } };
const rules = [
    rule('get', { names: ['get_repo'], when: acme }),
    rule('branch', { names: ['delete_repo'], when: { ...acme, '/repository/branch': { glob: 'old/*' } } }),
    rule('never-evil', { kinds: ['tool', 'prompt'], names: ['*'], effect: 'deny', when: { '/owner': { eq: 'evil' } } }),
    rule('review', { kinds: ['prompt'], names: ['review'], when: acme }),
    rule('release', { kinds: ['prompt'], names: ['release'] }),
    rule('open', { kinds: ['resource'], names: ['repo:///open'] }),
    rule('template', { kinds: ['resource_template'], names: ['repo:///{owner}'] })
];
const written = (all = rules) => JSON.stringify({ version: 1, description: 'A policy of this test', rules: all });
const ref = '"ref":{"type":"ref/prompt","name":"review"}';

/**
 * Each attack: its name, the method, the parameters as text, the effect at a server that ignores case, and the reason of the refusal
 * by the gateway. "TASK" is a task of the caller, and "theirs" is a task of another caller.
 */
const attacks = [
    ['another tool by "Name"', 'tools/call', '{"name":"get_repo","Name":"delete_repo","arguments":{"owner":"acme"}}', /delete_repo owner=acme/, 'invalid_params'],
    ['another tool by an escaped key', 'tools/call', String.raw`{"name":"get_repo","\u004eAM\u0045":"delete_repo","arguments":{"owner":"acme"}}`, /delete_repo/, 'invalid_params'],
    ['other arguments by "Arguments"', 'tools/call', '{"name":"get_repo","arguments":{"owner":"acme"},"Arguments":{"owner":"evil"}}', /owner=evil/, 'invalid_params'],
    ['other arguments by a long s', 'tools/call', '{"name":"get_repo","arguments":{"owner":"acme"},"argument\u017f":{"owner":"evil"}}', /owner=evil/, 'invalid_params'],
    ['other arguments by an escaped long s', 'tools/call', String.raw`{"name":"get_repo","arguments":{"owner":"acme"},"argument\u017f":{"owner":"evil"}}`, /owner=evil/, 'invalid_params'],
    ['another argument by "Owner"', 'tools/call', '{"name":"get_repo","arguments":{"owner":"acme","Owner":"evil"}}', /owner=evil/, 'denied'],
    ['a denied argument by "OWNER" alone', 'prompts/get', '{"name":"release","arguments":{"OWNER":"evil"}}', /owner=evil/, 'denied'],
    ['another argument deep inside', 'tools/call', '{"name":"delete_repo","arguments":{"owner":"acme","repository":{"branch":"old/x","Branch":"main"}}}', /branch=main/, 'denied'],
    ['another argument on the way', 'tools/call', '{"name":"delete_repo","arguments":{"owner":"acme","repository":{"branch":"old/x"},"Repo\u017fitory":{"branch":"main"}}}', /branch=main/, 'denied'],
    ['the progress of another caller', 'tools/call', '{"name":"get_repo","arguments":{"owner":"acme"},"_meta":{"progressToken":7,"ProgressToken":8}}', /"progressToken":8/, 'invalid_params'],
    ['another prompt', 'prompts/get', '{"name":"review","NAME":"release","arguments":{"owner":"acme"}}', /release owner=acme/, 'invalid_params'],
    ['other arguments of a prompt', 'prompts/get', '{"name":"review","arguments":{"owner":"acme"},"ARGUMENTS":{"owner":"evil"}}', /owner=evil/, 'invalid_params'],
    ['any resource by "URI"', 'resources/read', '{"uri":"repo:///open","URI":"repo:///secret"}', /repo:\/\/\/secret/, 'invalid_params'],
    ['another reference', 'completion/complete', '{"ref":{"type":"ref/prompt","name":"review","Name":"release"},"argument":{"name":"topic","value":"x"},"context":{"arguments":{"owner":"acme"}}}', /release/, 'invalid_params'],
    ['another argument to complete', 'completion/complete', `{${ref},"argument":{"name":"owner","value":"acme","Value":"evil"}}`, /owner=evil/, 'invalid_params'],
    ['another context', 'completion/complete', `{${ref},"argument":{"name":"topic","value":"x"},"context":{"arguments":{"owner":"acme"},"Arguments":{"owner":"evil"}}}`, /owner=evil/, 'invalid_params'],
    ['a task of another caller by "taskID"', 'tasks/get', '{"taskId":"TASK","taskID":"theirs"}', /"statusMessage":"theirs"/, 'invalid_params'],
    ['a task of another caller by a kelvin sign', 'tasks/cancel', '{"taskId":"TASK","tas\u212aId":"theirs"}', /"statusMessage":"theirs"/, 'invalid_params']
];

/** The output of a server without the gateway for a request, up to its response. */
async function alone({ command, args }, method, params) {
    const child = spawn(command, args, { stdio: ['pipe', 'pipe', 'inherit'] });
    const exited = once(child, 'exit');
    child.stdin.end(`{"jsonrpc":"2.0","id":1,"method":"${method}","params":${params}}\n`);
    const lines = [];
    for await (const line of createInterface(child.stdout)) lines.push(line);
    await exited;
    return lines.join('\n');
}

let folder, policy, goServer;
before(() => {
    folder = temporaryDirectory();
    policy = join(folder.path, 'policy.json');
    writeFileSync(policy, written());
    goServer = execFileSync(join(peers, 'build'), { encoding: 'utf8' }).trim();
});
after(() => folder.remove());

for (const [kind, server] of [['Go', () => ({ command: goServer, args: [] })], ['our own', () => ({ command: node, args: [join(peers, 'folding.mjs')] })]])
    describe(`a server that ignores case: ${kind}`, () => {
        let gateway, session, taskId;
        /** The JSON-RPC response to a request whose parameters are given as text. */
        const ask = async (method, params) => reply(await session.post(`{"jsonrpc":"2.0","id":1,"method":"${method}","params":${params}}`));
        const outcome = ({ error }) => (error ? error.data.reason : 'done');

        before(async () => {
            gateway = await startGateway({ prefix: false, policy, audit: { path: 'audit.db', arguments: true }, mcpServers: { repos: server() } });
            session = await Session.open(gateway.url);
            const started = await ask('tools/call', '{"name":"get_repo","arguments":{"owner":"acme"},"task":{}}');
            taskId = started.result.task.taskId;
        });
        after(() => gateway?.stop());

        for (const [name, method, params, executed, refusal] of attacks)
            test(`a request with ${name} is refused`, async () => {
                assert.match(await alone(server(), method, params), executed, 'the server alone would do it');
                const answer = await ask(method, params.replace('TASK', taskId));
                assert.equal(outcome(answer), refusal, JSON.stringify(answer));
                assert.match(answer.error.message, refusal === 'denied' ? /^Denied by policy/ : /differs only in case/);
            });

        test('a member of params whose name contains U+0000 is refused', async () => {
            for (const params of [String.raw`{"name":"get_repo","arguments":{"owner":"acme"},"name\u0000":"delete_repo"}`, String.raw`{"name":"get_repo","arguments":{"owner":"acme"},"x\u0000":1}`])
                assert.equal(outcome(await ask('tools/call', params)), 'invalid_params');
            assert.equal(outcome(await ask('tools/call', String.raw`{"name":"get_repo","arguments":{"owner":"acme","owner\u0000":"evil"}}`)), 'invalid_params');
        });
        test('an unambiguous request passes', async () => {
            for (const params of [
                '{"name":"get_repo","arguments":{"owner":"acme"}}',
                '{"name":"get_repo","arguments":{"owner":"acme","owners":1,"own":2,"Note":3,"note":4,"\u00f6wner":5},"Extra":1,"extra":2,"URI":"x","_meta":{"Vendor":1,"vendor":2}}',
                String.raw`{"n\u0061me":"get_repo","arguments":{"\u006fwner":"acme"}}`
            ]) {
                const answer = await ask('tools/call', params);
                assert.equal(answer.result?.content[0].text, 'get_repo owner=acme branch=', JSON.stringify(answer));
            }
            assert.equal((await ask('resources/read', '{"uri":"repo:///open","Name":"x"}')).result.contents[0].text, 'repo:///open');
            assert.equal((await ask('tasks/get', `{"taskId":"${taskId}"}`)).result.statusMessage, 'acme');
        });
        test('the envelope of a request is rewritten', async () => {
            const { body } = await session.post('{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"get_repo","arguments":{"owner":"acme"}},"ID":2,"Method":"x","Param\u017f":{"name":"delete_repo"}}');
            assert.match(body, /get_repo owner=acme/);
        });
        test('a notification with an ambiguous member is dropped', async () => {
            const { status } = await session.post('{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"ProgressToken":2,"progress":1}}');
            assert.equal(status, 202);
            await gateway.line(/method=notifications\/progress .*reason=invalid_params/, 5_000);
        });
        test('an ambiguous part of a batch is refused', async () => {
            const old = await Session.open(gateway.url, { version: '2025-03-26' });
            const part = (id, params) => `{"jsonrpc":"2.0","id":${id},"method":"tools/call","params":${params}}`;
            const { body } = await old.post(`[${part(1, attacks[0][2])},${part(2, '{"name":"get_repo","arguments":{"owner":"acme"}}')}]`);
            assert.doesNotMatch(body, /delete_repo/);
            assert.match(body, /"reason":"invalid_params"/);
            assert.match(body, /get_repo owner=acme/);
        });

        describe('conditions on completions', () => {
            const complete = (argument, context, more = '') => ask('completion/complete', `{${ref},"argument":${argument}${context ? `,"context":{"arguments":${context}}` : ''}${more}}`);
            test('a completion is decided by the arguments in its context and the one being completed', async () => {
                assert.equal(outcome(await complete('{"name":"topic","value":"x"}', '{"owner":"acme"}')), 'done');
                assert.equal(outcome(await complete('{"name":"owner","value":"acme"}')), 'done');
                assert.equal(outcome(await complete('{"name":"owner","value":"acme"}', '{ }')), 'done');
                assert.equal(outcome(await complete('{"name":"topic","value":"x"}', '{"owner":"evil"}')), 'denied');
                assert.equal(outcome(await complete('{"name":"topic","value":"x"}')), 'denied');
                assert.equal(outcome(await complete('{"name":"owner","value":"evil"}')), 'denied');
            });
            test('a completion is decided by the value typed so far', async () => {
                assert.equal(outcome(await complete('{"name":"owner","value":"ac"}')), 'denied');
                assert.equal(outcome(await complete('{"name":"owner","value":""}')), 'denied');
            });
            test('a completion ignores invented arguments', async () => {
                assert.equal(outcome(await complete('{"name":"topic","value":"x"}', '{"owner":"evil"}', ',"arguments":{"owner":"acme"}')), 'denied');
                assert.equal(outcome(await complete('{"name":"topic","value":"x"}', undefined, ',"arguments":{"owner":"acme"}')), 'denied');
            });
            test('a completion with a repeated, differently cased or malformed argument is refused', async () => {
                assert.equal(outcome(await complete('{"name":"owner","value":"acme"}', '{"owner":"evil"}')), 'invalid_params');
                assert.equal(outcome(await complete(String.raw`{"name":"owner","value":"acme"}`, String.raw`{"\u006fwner":"acme"}`)), 'invalid_params');
                assert.equal(outcome(await complete('{"name":"owner","value":"acme"}', '{"Owner":"evil"}')), 'denied');
                for (const argument of ['null', '{}', '{"name":"owner"}', '{"name":"owner","value":1}', '{"name":1,"value":"acme"}', '[]'])
                    assert.equal(outcome(await complete(argument)), 'invalid_params', argument);
                assert.equal(outcome(await complete('{"name":"topic","value":"x"}', '["owner"]')), 'invalid_params');
            });
            test('a completion of a template is decided without conditions', async () => {
                const params = more => `{"ref":{"type":"ref/resource","uri":"repo:///{owner}"},"argument":{"name":"owner","value":"a"}${more}}`;
                assert.equal((await ask('completion/complete', params(''))).result.completion.values[0], 'repo:///{owner} owner=a owner=');
                assert.equal(outcome(await ask('completion/complete', params(',"context":{"arguments":{"owner":"b"}}'))), 'invalid_params');
            });
            test('a completion is recorded with its arguments and a replay decides the same', async () => {
                const audit = join(gateway.state, 'audit.db');
                const read = () => execFileSync(binary, ['audit', '--file', audit, '--json'], { encoding: 'utf8' }).trim().split('\n').map(line => JSON.parse(line))
                    .filter(({ method, kind, decision }) => method === 'completion/complete' && kind === 'prompt' && decision === 'allow');
                const allowed = await until(() => (rows => rows.length >= 2 && rows)(read()), 10_000, 'the rows of two completions');
                assert.deepEqual(allowed.slice(0, 2).map(row => JSON.parse(row.arguments)), [{ topic: 'x', owner: 'acme' }, { owner: 'acme' }]);
                const { status, stdout } = spawnSync(binary, ['policy', 'replay', '--policy', policy, '--file', audit, '--json'], { encoding: 'utf8' });
                assert.equal(status, 0, stdout);
            });
        });
        test('arguments that a caller adds to other methods are ignored', async () => {
            assert.equal(outcome(await ask('resources/read', '{"uri":"repo:///open","arguments":{"owner":"evil"}}')), 'done');
        });
    });

test('the limit of a tool cannot be bypassed under another name without a policy', async t => {
    const rates = [{ tool: 'delete_repo', calls: 1, window: '1h' }];
    const gateway = await startGateway({ prefix: false, limits: { rates }, mcpServers: { repos: { command: goServer } } });
    t.after(() => gateway.stop());
    const session = await Session.open(gateway.url);
    const outcomes = [];
    for (const params of [{ name: 'delete_repo' }, { name: 'delete_repo' }, { name: 'get_repo', Name: 'delete_repo' }, { name: 'get_repo' }]) {
        const { error, result } = await session.request('tools/call', params);
        outcomes.push(error ? error.data.reason : result.content[0].text.split(' ')[0]);
    }
    assert.deepEqual(outcomes, ['delete_repo', 'limited', 'invalid_params', 'get_repo']);
});

describe('folding in commands', () => {
    const postern = (...args) => spawnSync(binary, args, { encoding: 'utf8' });
    const explain = args => postern('policy', 'explain', '--policy', policy, '--subject', 'anonymous', '--server', 'repos', '--tool', 'get_repo', '--args', JSON.stringify(args));
    test('explain reports that a key in another case cannot be judged', () => {
        assert.equal(explain({ owner: 'acme' }).status, 0);
        const { status, stdout } = explain({ owner: 'acme', Owner: 'evil' });
        assert.equal(status, 1);
        assert.match(stdout, /when \/owner: cannot be evaluated: another key differs only in case/);
        assert.match(stdout, /deny by never-evil/);
    });
    for (const kinds of [['*'], ['resource'], ['resource_template'], ['tool', 'resource']])
        test(`a condition on ${kinds.join(' and ')} is an error that stops the start`, async () => {
            const path = join(folder.path, 'split.json');
            writeFileSync(path, written([rule('mixed', { kinds, names: ['x*'], when: acme })]));
            const { status, stdout } = postern('policy', 'check', path);
            assert.equal(status, 1);
            assert.match(stdout, /E13 mixed: \/rules\/0\/kinds: .*split the rule/);
            await assert.rejects(startGateway({ policy: path, mcpServers: { repos: { command: 'true' } } }), /E13/);
        });
});
