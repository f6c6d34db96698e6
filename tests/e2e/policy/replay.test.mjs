// X17 `postern policy replay`: recorded calls decided by a new policy, from a real audit log and from lines written here.
import assert from 'node:assert/strict';
import { execFileSync, spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { after, afterEach, before, beforeEach, describe, test } from 'node:test';

import { binary, startGateway, temporaryDirectory } from '../gateway.mjs';
import { policyRule } from '../policy.mjs';
import { initialize, post, reply, send } from '../raw.mjs';

const demo = join(dirname(binary), 'postern-demo');
const rule = (id, effect, names, more = {}) => policyRule(id, effect, { subjects: ['authenticated'], servers: ['demo'], names, ...more });
const written = rules => JSON.stringify({ version: 1, description: 'A policy of this test', rules });

let directory;
beforeEach(() => (directory = temporaryDirectory()));
afterEach(() => directory.remove());

/** Replays a file under rules. */
function replay(file, rules, ...args) {
    const path = join(directory.path, 'next.json');
    writeFileSync(path, written(rules));
    const { status, stdout, stderr } = spawnSync(binary, ['policy', 'replay', '--policy', path, '--file', file, ...args], { encoding: 'utf8' });
    return { status, stdout, stderr, json: () => JSON.parse(stdout) };
}

describe('X17 replay of a real audit log', () => {
    let folder, gateway, files;
    const today = [rule('echo', 'allow', ['echo']), rule('add', 'allow', ['add'], { when: { '/a': { le: 10 } } }), rule('no-now', 'deny', ['now'])];
    before(async () => {
        folder = temporaryDirectory();
        const tokens = join(folder.path, 'tokens.json'), policy = join(folder.path, 'policy.json');
        files = [join(folder.path, 'audit.db'), join(folder.path, 'audit.jsonl')];
        writeFileSync(policy, written(today));
        const secrets = ['ann', 'bob'].map(subject => execFileSync(binary, ['token', 'new', '--file', tokens, '--subject', subject], { encoding: 'utf8' }).trim());
        gateway = await startGateway({
            auth: { providers: [{ type: 'bearer', tokens }] }, policy, audit: { path: files[0], jsonl: files[1] }, mcpServers: { demo: { command: demo } }
        });
        const expected = [];
        for (const secret of secrets) {
            const headers = post({ authorization: `Bearer ${secret}` });
            const opened = await send(gateway.url, { headers, body: initialize('2025-11-25') });
            const session = { ...headers, 'mcp-session-id': opened.headers['mcp-session-id'] };
            await send(gateway.url, { headers: session, body: { jsonrpc: '2.0', method: 'notifications/initialized' } });
            for (const [name, args] of [['echo', { message: 'hi' }], ['echo', { message: 'hi' }], ['add', { a: 1, b: 2 }], ['add', { a: 11, b: 2 }], ['now', {}], ['now', undefined], ['nothing', {}]]) {
                const body = { jsonrpc: '2.0', id: 1, method: 'tools/call', params: { name: `demo__${name}`, arguments: args } };
                expected.push(reply(await send(gateway.url, { headers: session, body })).error?.code === 403 ? 'denied' : 'ok');
            }
        }
        assert.equal(expected.filter(status => status === 'denied').length, 8, expected.join());
        await gateway.stop();  // all rows are written now
        gateway = undefined;
    });
    after(async () => {
        await gateway?.stop();
        folder?.remove();
    });
    const both = (name, run) => {
        for (const i of [0, 1]) test(`${name} (${['database', 'lines'][i]})`, () => run(files[i]));
    };

    both('a replay under reordered rules changes only decisions that depend on arguments', file => {
        const { status, json } = replay(file, [...today].reverse(), '--json');
        const { replayed, same, newly_denied: denied, newly_allowed: allowed, depends, changes } = json();
        assert.deepEqual([status, replayed, same, denied, allowed, depends], [0, 12, 8, 0, 0, 4], JSON.stringify(changes, null, 1));
        assert.deepEqual(changes.map(({ change, count, name, before, after_rule: by }) => [change, count, name, before, by]),
            [['depends on arguments', 2, 'add', 'allow', 'add'], ['depends on arguments', 2, 'add', 'deny', 'add']]);
    });
    both('a replay groups and counts new denials and allows and exits with 1', file => {
        const { status, json } = replay(file, [rule('echo-ann', 'allow', ['echo'], { subjects: ['user:bearer:ann'] }), rule('now', 'allow', ['now'], { subjects: ['user:bearer:bob'] })], '--json');
        const { changes, ...counts } = json();
        assert.equal(status, 1);
        assert.deepEqual({ ...counts, policy_digest: undefined, skipped: undefined },
            { policy_digest: undefined, skipped: undefined, replayed: 12, same: 6, newly_denied: 4, newly_allowed: 2, depends: 0 });
        assert.deepEqual(changes.map(group => [group.change, group.count, group.name, `${group.before} ${group.before_rule}`, `${group.after} ${group.after_rule}`, group.subjects]), [
            ['newly denied', 2, 'add', 'allow add', 'deny default', { 'bearer:ann': 1, 'bearer:bob': 1 }],
            ['newly denied', 2, 'echo', 'allow echo', 'deny default', { 'bearer:bob': 2 }],
            ['newly allowed', 2, 'now', 'deny no-now', 'allow now', { 'bearer:bob': 2 }]
        ]);
    });
    both('a replay prints its groups as text', file => {
        const { status, stdout } = replay(file, [rule('echo', 'allow', ['echo'])]);
        assert.equal(status, 1);
        assert.match(stdout, /^newly denied\n {2}2 {2}default: demo tool add: allow by add → deny, by default\n {6}bearer:ann 1, bearer:bob 1\n\n/);
        assert.match(stdout, /\n12 decisions replayed: 10 as before, 2 newly denied, 0 newly allowed, 0 undecided; \d+ other rows\n$/);
    });
    both('a replay of a call without arguments has all it needs', file => {
        const now = when => replay(file, [...today.slice(0, 1), rule('now', 'allow', ['now'], { when })], '--json').json().changes.filter(({ name }) => name === 'now');
        assert.deepEqual(now({ '/zone': { present: false } }).map(({ change, count }) => [change, count]), [['newly allowed', 4]]);
        assert.deepEqual(now({ '/zone': { eq: 'UTC' } }), []);
    });
    both('a replay is limited by --since and --tenant', file => {
        const none = { replayed: 0, skipped: 0 };
        const counts = (...args) => (({ replayed, skipped }) => ({ replayed, skipped }))(replay(file, today, ...args, '--json').json());
        assert.deepEqual(counts('--tenant', 'acme'), none);
        assert.deepEqual(counts('--since', '2999-01-01'), none);
        assert.equal(counts('--since', '1h', '--tenant', 'default').replayed, 12);
    });
});

describe('X17 replay of incomplete rows', () => {
    const sha256 = text => createHash('sha256').update(text).digest('hex');
    let at = 0;
    const call = (name, more = {}) => ({
        seq: ++at, time: '2027-01-31T12:00:00.000Z', event: 'call', tenant: 'acme', provider: 'corp', subject: 'ann', proof: 'jwt', server: 'demo', kind: 'tool',
        name, decision: 'allow', rule: 'old', status: 'ok', ...more
    });
    const withArguments = (args, kept = args) => ({ arguments_sha256: sha256(args), ...(kept ? { arguments: kept } : {}) });
    /** The outcomes of rows under rules: one word each. */
    const outcomes = (rows, rules) => {
        const file = join(directory.path, 'rows.jsonl');
        return rows.map(row => {
            writeFileSync(file, [].concat(row).map(one => JSON.stringify(one) + '\n').join(''));
            const { changes, skipped, same } = replay(file, rules, '--json').json();
            return changes[0]?.change ?? (same ? 'same' : skipped ? 'skipped' : 'nothing');
        });
    };

    test('a replay uses arguments only if they are recorded exactly', () => {
        const small = [rule('small', 'allow', ['add'], { when: { '/a': { le: 10 } } })];
        assert.deepEqual(outcomes([
            call('add', withArguments('{"a":1}')), call('add', withArguments('{"a":11}')), call('add', withArguments('{ "a": 11 }', '{"a":11}')),
            call('add', withArguments('{"a":1,"token":"x"}', '{"a":1,"token":"[redacted]"}')), call('add', withArguments('[1]', '"[not an object: 3 bytes]"')),
            call('add', withArguments('{"a":1}', null)), call('add', withArguments('{"a":1}', '{"a":1…')), call('add'), call('add', withArguments('{}', null))
        ], small), ['same', 'newly denied', 'newly denied', 'depends on arguments', 'depends on arguments', 'depends on arguments', 'depends on arguments', 'newly denied', 'newly denied']);
    });
    test('a replay needs arguments only for rules that could change the verdict', () => {
        const row = call('add', withArguments('{"a":1}', null)), when = { '/a': { le: 10 } };
        const allow = rule('a', 'allow', ['add']), deny = rule('d', 'deny', ['add']);
        for (const [rules, outcome] of [
            [[allow], 'same'], [[deny, rule('w', 'allow', ['add'], { when })], 'newly denied'], [[allow, rule('w', 'allow', ['add'], { when })], 'same'],
            [[allow, rule('w', 'deny', ['add'], { when })], 'depends on arguments'], [[rule('w', 'deny', ['add'], { when })], 'newly denied'],
            [[allow, rule('w', 'deny', ['add'], { when, mode: 'shadow' })], 'same'], [[allow, rule('w', 'deny', ['other'], { when })], 'same']
        ]) assert.deepEqual(outcomes([row], rules), [outcome], JSON.stringify(rules.map(({ id }) => id)));
    });
    test('a replay uses roles only if they are recorded whole', () => {
        const eng = [rule('eng', 'allow', ['add'], { subjects: ['role:eng'] })], roles = list => ({ roles: JSON.stringify(list) });
        assert.deepEqual(outcomes([
            call('add', roles(['eng'])), call('add', roles(['ops'])), call('add', roles(['ops', '…'])), call('add'),
            [call('other', { ...roles(['ops']), decision: 'deny', status: 'denied' }), call('add')], call('add', { proof: 'anonymous', provider: 'none', subject: 'anonymous' })
        ], eng), ['same', 'newly denied', 'depends on roles', 'depends on roles', 'newly denied', 'newly denied']);
        assert.deepEqual(outcomes([call('add')], [rule('all', 'allow', ['add'])]), ['same']);
        assert.deepEqual(outcomes([call('add')], [rule('no-ops', 'deny', ['add'], { subjects: ['role:ops'] }), rule('all', 'allow', ['add'])]), ['depends on roles']);
        assert.deepEqual(outcomes([call('add', withArguments('{"a":1}', null))], [{ ...eng[0], when: { '/a': { eq: 1 } } }]), ['depends on arguments and roles']);
    });
    test('a replay skips rows without a decision of a policy', () => {
        assert.deepEqual(outcomes([
            call('add', { event: 'token' }), call('add', { kind: undefined }), call('add', { server: undefined }), call('add', { decision: undefined }),
            call('add', { decision: 'deny', status: 'error' }), call('x'.repeat(1030))
        ], [rule('all', 'allow', ['add'])]), Array(6).fill('skipped'));
    });
    test('a replay denies a URI that is not canonical', () => {
        const read = uri => call(uri, { kind: 'resource' });
        assert.deepEqual(outcomes([read('doc://a'), read('doc://a/../b')], [rule('all', 'allow', ['*'], { kinds: ['resource'] })]), ['same', 'newly denied']);
    });
    test('a replay with wrong arguments or an unreadable file is an error', () => {
        const file = join(directory.path, 'rows.jsonl'), line = JSON.stringify(call('add'));
        writeFileSync(file, `${line}\nnot JSON\n`);
        for (const [args, status, says] of [
            [[file, []], 3, /rows\.jsonl: line 2/], [[join(directory.path, 'none'), []], 3, /none: No such file/], [[file, [], '--since', 'soon'], 2, /--since must be/],
            [[file, [], '--role', 'x'], 2, /does not accept --role/], [[file, [], 'more'], 2, /usage: postern policy replay/]
        ]) {
            const wrong = replay(...args);
            assert.equal(wrong.status, status, wrong.stderr);
            assert.match(wrong.stderr, says);
            assert.equal(wrong.stdout, '');
        }
        writeFileSync(file, `${line}\n${line.slice(0, 20)}`);  // the last line is being written
        assert.equal(replay(file, [], '--json').json().replayed, 1);
    });
});
