// The command `postern policy`, and that its verdicts agree with those of the running gateway.
import assert from 'node:assert/strict';
import { execFileSync, spawn, spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { chmodSync, cpSync, mkdirSync, readdirSync, readFileSync, statSync, symlinkSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { after, afterEach, before, beforeEach, describe, test } from 'node:test';
import { fileURLToPath } from 'node:url';

import { binary, startGateway, temporaryDirectory, watch } from '../gateway.mjs';
import { policyRule } from '../policy.mjs';
import { initialize, post, reply, send } from '../raw.mjs';

const example = fileURLToPath(new URL('../../../policies/example', import.meta.url));
const demo = join(dirname(binary), 'postern-demo');

let directory, file;
beforeEach(() => {
    directory = temporaryDirectory();
    file = join(directory.path, 'p.json');
});
afterEach(() => directory.remove());

/** Runs `postern policy ARGS`. */
function policy(...args) {
    const { status, stdout, stderr } = spawnSync(binary, ['policy', ...args], { encoding: 'utf8', cwd: directory.path });
    return { status, stdout, stderr, json: () => JSON.parse(stdout) };
}

const rule = (id, effect, more = {}) => policyRule(id, effect, { tenants: ['acme'], subjects: ['role:eng'], servers: ['s'], names: ['get_*'], ...more });
const expecting = (expect, name, more = {}) => ({
    description: `${expect} of ${name} in this test`, as: { tenant: 'acme', subject: 'corp:bob', roles: ['eng'] }, server: 's',
    kind: 'tool', name, expect, ...more
});
const written = (rules, more = {}) => ({ version: 1, description: 'A policy of this test', rules, ...more });
const write = (tree, path = file) => writeFileSync(path, typeof tree === 'string' ? tree : JSON.stringify(tree, null, 2));
const bob = ['--tenant', 'acme', '--subject', 'corp:bob', '--role', 'eng', '--server', 's'];

describe('X17 policy check', () => {
    test('the example policy has no findings and is formatted', () => {
        const { status, stdout } = policy('check', example);
        assert.equal(status, 0, stdout);
        assert.match(stdout, /^\S+: ok, \d+ rules, \d+ tests, 0 warnings, digest [0-9a-f]{16}\n$/);
        assert.equal(policy('fmt', '--check', example).status, 0);
        const bytes = readdirSync(example).sort().map(name => readFileSync(join(example, name), 'utf8')).join('');
        assert.ok(createHash('sha256').update(bytes).digest('hex').startsWith(stdout.trim().split(' ').at(-1)), 'X16 the digest');
        assert.equal(policy('coverage', example).status, 0);
    });
    test('the recipe of policies/README.md works as written', () => {
        const folder = dirname(example), recipe = /^```sh\n(.*?)^```/ms.exec(readFileSync(join(folder, 'README.md'), 'utf8'))[1];
        for (const name of ['policies', 'deploy']) symlinkSync(join(dirname(folder), name), join(directory.path, name));
        symlinkSync(binary, join(directory.path, 'postern'));
        const env = { ...process.env, PATH: `${directory.path}:${process.env.PATH}` };
        const { status, stdout, stderr } = spawnSync('bash', ['-e', '-c', recipe], { encoding: 'utf8', cwd: directory.path, env });
        assert.equal(status, 0, stderr || stdout);
        assert.match(stdout, /^policy: ok, \d+ rules, \d+ tests, 0 warnings, digest/);
        assert.match(stdout, /^allow by github-read /m);
    });
    test('errors are printed one per line and the exit status is 1', () => {
        write(written([rule('r', 'allow', { names: ['set:none'] }), rule('short', 'deny', { description: 'why' })]));
        const { status, stdout } = policy('check', file);
        assert.equal(status, 1);
        const text = readFileSync(file, 'utf8').split('\n');
        const line = id => text.findIndex(row => row.includes(`"id": "${id}"`)) + 1;
        assert.match(stdout, new RegExp(`^${file}:${line('r')}: E4 r: /rules/0/names: set "none" does not exist; define it in "sets", or correct the name$`, 'm'));
        assert.match(stdout, new RegExp(`^${file}:${line('short')}: E3 short: /rules/1/description: `, 'm'));
        assert.match(stdout, new RegExp(`^${file}: 2 errors, 0 warnings\n$`, 'm'));
    });
    test('errors are printed as JSON on request', () => {
        write('{"version": 1,\n "rules": [}');
        const { status, json } = policy('check', file, '--json');
        assert.equal(status, 1);
        const [finding] = json();
        assert.deepEqual({ ...finding, text: undefined }, { code: 'E7', severity: 'error', file, line: 2, rule: null, pointer: null, text: undefined });
    });
    test('a finding has file, line, rule, pointer and text', () => {
        write(written([rule('r', 'allow'), rule('typo', 'allow', { nmaes: [] })]));
        const text = readFileSync(file, 'utf8').split('\n');
        const [finding] = policy('check', file, '--json').json();
        assert.deepEqual({ ...finding, text: undefined }, {
            code: 'E1', severity: 'error', file, line: text.findIndex(row => row.includes('"id": "typo"')) + 1, rule: 'typo', pointer: '/rules/1/nmaes', text: undefined
        });
        write(written([rule('r', 'allow', { names: ['set:none'] })]));
        assert.equal(policy('check', file, '--json').json()[0].pointer, '/rules/0/names');
        write(written([rule('r', 'allow')]));
        assert.equal(policy('check', file, '--json').json()[0].pointer, '/rules/0');
    });
    test('warnings W3 and W4 alone give exit status 0', () => {
        const rules = [rule('a', 'allow', { when: { '/n': { eq: 1 } } }), rule('b', 'allow', { names: ['put'] })];
        const codes = () => policy('check', file, '--json').json().map(({ code, rule: id }) => `${code} ${id}`);
        write(written(rules));
        assert.equal(policy('check', file).status, 0);
        assert.deepEqual(codes(), ['W3 a', 'W4 a', 'W3 b']);
        const tests = [expecting('allow', 'get_x', { args: { n: 1 } })];
        write(written(rules, { tests }));
        assert.deepEqual(codes(), ['W4 a', 'W3 b']);
        tests.push(expecting('deny', 'get_x', { args: { n: 2 } }), expecting('allow', 'put'));
        write(written(rules, { tests }));
        assert.deepEqual(codes(), []);
    });
    test('a failing test is an error', () => {
        write(written([rule('a', 'allow')], { tests: [expecting('deny', 'get_x')] }));
        const { status, stdout } = policy('check', file);
        assert.equal(status, 1);
        const line = readFileSync(file, 'utf8').split('\n').findIndex(row => row.includes('"tests"')) + 2;
        assert.match(stdout, new RegExp(`^${file}:${line}: E9 /tests/0 "deny of get_x in this test": expected deny, got allow by a; correct `, 'm'));
    });
    test('--config reports servers that do not exist', () => {
        write(written([rule('a', 'allow')]));
        const config = join(directory.path, 'postern.json');
        write({ mcpServers: { t: { command: 'true' } }, tenants: { acme: {} } }, config);
        assert.match(policy('check', file, '--config', config).stdout, /E4 a: \/rules\/0\/servers: server "s" does not exist in the configuration/);
        write({ mcpServers: { s: { command: 'true' } }, tenants: { acme: {} } }, config);
        assert.equal(policy('check', file, '--config', config).status, 0);
    });
    test('--config reports unknown tenants and providers as E4 and accepts servers of any tenant', () => {
        const config = join(directory.path, 'postern.json');
        write({
            auth: { providers: [{ type: 'bearer', tokens: 'tokens.json' }] }, policy: 'p.json', mcpServers: { s: { command: 'true' } },
            tenants: { acme: { mcpServers: { own: { command: 'true' } } } }
        }, config);
        write(written([rule('a', 'allow', { servers: ['s', 'own'], subjects: ['user:bearer:ann'] })]));
        assert.equal(policy('check', file, '--config', config).status, 0);
        write(written([rule('a', 'allow', { tenants: ['acmee'], subjects: ['user:barer:ann'] })]));
        const { status, stdout } = policy('check', file, '--config', config);
        assert.equal(status, 1);
        assert.match(stdout, /p\.json:\d+: E4 a: \/rules\/0\/tenants: tenant "acmee" does not exist in the configuration; did you mean "acme"\?/);
        assert.match(stdout, /p\.json:\d+: E4 a: \/rules\/0\/subjects: "user:barer:ann": provider "barer" does not exist in the configuration; did you mean "bearer"\?/);
    });
    test('--inventory reads the output of postern tools, resources and prompts and reports W5, W6, W9 and W10', () => {
        const config = join(directory.path, 'postern.json'), inventory = join(directory.path, 'inventory.json');
        write({ mcpServers: { demo: { command: demo } } }, config);
        const all = ['tools', 'resources', 'prompts'].map(what => execFileSync(binary, [what, '--config', config], { encoding: 'utf8' })).join('');
        const git = (...args) => execFileSync('git', ['-c', 'user.name=t', '-c', 'user.email=t@example.com', ...args], { cwd: directory.path, stdio: 'pipe' });
        const demoRule = (id, effect, names, more) => rule(id, effect, { tenants: ['default'], servers: ['demo'], names, ...more });
        const rules = [
            demoRule('typo', 'allow', ['ehco']), demoRule('fine', 'allow', ['echo']), demoRule('all', 'allow', ['a*']),
            demoRule('public', 'allow', ['now'], { subjects: ['authenticated'] }), demoRule('idle', 'deny', ['delete_*'], { kinds: ['*'] })
        ];
        write(written(rules));
        write(all.replace('"name":"add"', '"name":"subtract"'), inventory);
        git('init', '-q');
        git('add', '.');
        git('commit', '-qm', 'first');
        write(all, inventory);
        const findings = (...args) => policy('check', file, ...args, '--json').json().filter(({ code }) => code !== 'W3').map(({ code, rule: id, text }) => `${code} ${id} ${text}`);
        const said = findings('--config', config, '--inventory', inventory, '--inventory-before', 'HEAD:inventory.json');
        assert.match(said.find(text => text.startsWith('W5')), /^W5 typo \/rules\/0\/names\/0: "ehco" matches nothing in the inventory/);
        assert.match(said.find(text => text.startsWith('W6')), /^W6 all \/rules\/2\/names\/0: "a\*" now also matches new items: demo add;/);
        assert.match(said.find(text => text.startsWith('W10')), /^W10 idle \/rules\/4\/names: the rule never denies/);
        assert.equal(said.filter(text => /^W(5|6|10)/.test(text)).length, 3, said.join('\n'));
        assert.deepEqual(findings(), []);
        write('[{"server":"demo","name":"now","inputSchema":{}}]', inventory);
        assert.ok(findings('--inventory', inventory).some(text => text.startsWith('W9 public /rules/3/subjects: every caller may call')));
        for (const [args, status, says] of [
            [['--inventory-before', inventory], 2, /needs --inventory/],
            [['--inventory', file], 3, /not an inventory; expected the JSON that/],
            [['--inventory', inventory, '--inventory-before', 'HEAD:nothing.json'], 3, /nothing\.json/]
        ]) {
            const wrong = policy('check', file, ...args);
            assert.equal(wrong.status, status, wrong.stderr);
            assert.match(wrong.stderr, says);
        }
    });
    test('X13 ids are unique across the files of a folder', () => {
        const folder = join(directory.path, 'd');
        mkdirSync(folder);
        write(written([rule('a', 'allow')]), join(folder, '1.json'));
        write(written([rule('a', 'deny')]), join(folder, '2.json'));
        assert.match(policy('check', folder).stdout, /2\.json:\d+: E2 a: \/rules\/0\/id: the id is used already in \S+1\.json:\d+/);
    });
    test('an unreadable policy is a finding that says what to do', () => {
        const folder = join(directory.path, 'd'), big = join(folder, 'big.json'), locked = join(folder, 'locked.json');
        mkdirSync(folder);
        const said = () => policy('check', folder, '--json').json().map(({ code, file: where, text }) => `${code} ${where} ${text}`);
        assert.deepEqual(said(), [`E7 ${folder} the folder contains no *.json file; name the folder of the policy files`]);
        writeFileSync(big, `{"version":1,"description":"${'x'.repeat(10 << 20)}"}`);
        mkdirSync(locked);
        assert.deepEqual(said(), [`E7 ${big} larger than 4194304 bytes; split it into several files in one folder`, `E7 ${locked} cannot be read: Is a directory`]);
        assert.equal(policy('check', folder).status, 1);
    });
    test('a missing policy gives exit status 3', () => {
        const none = join(directory.path, 'none');
        assert.equal(policy('check', none).status, 3);
        const { status, json } = policy('check', none, '--json');
        assert.deepEqual([status, json().map(({ code, file: where }) => [code, where])], [3, [['E7', none]]]);
    });
});

describe('X18 policy explain', () => {
    const rules = [
        rule('read', 'allow', { subjects: ['group:staff'], when: { '/owner': { in: ['acme'] } } }),
        rule('other', 'allow', { servers: ['t'], names: ['x'] }),
        rule('no-secret', 'deny', { subjects: ['*'], names: ['*_secret'] })
    ];
    const groups = { staff: { description: 'Everybody here', members: ['role:eng'] } };
    const explain = (...args) => policy('explain', '--policy', file, ...bob, ...args);
    beforeEach(() => write(written(rules, { groups })));

    test('explain of an allowed call shows its rule and place and exits with 0', () => {
        const { status, json } = explain('--tool', 'get_x', '--args', '{"owner":"acme"}', '--json');
        assert.equal(status, 0);
        const { policy_digest: digest, line, ...rest } = json();
        assert.match(digest, /^[0-9a-f]{64}$/);
        assert.match(readFileSync(file, 'utf8').split('\n')[line - 1], /"id": "read"/);
        assert.deepEqual(rest, {
            decision: 'allow', rule: 'read', file, nearest: null,
            rules: [
                { id: 'read', effect: 'allow', matched: true, via: 'role:eng → group:staff' },
                { id: 'other', effect: 'allow', matched: false, failed: 'servers' },
                { id: 'no-secret', effect: 'deny', matched: false, failed: 'names' }
            ]
        });
    });
    test('explain of a call denied by default shows the nearest rule without values and exits with 1', () => {
        const denied = explain('--tool', 'get_x', '--args', '{"owner":"Wayland"}', '--json');
        assert.equal(denied.status, 1);
        const { decision, rule: by, file: where, line, nearest, rules: all } = denied.json();
        assert.deepEqual([decision, by, where, line, nearest], ['deny', 'default', null, null, 'read']);
        assert.equal(all[0].failed, 'when /owner: its value not in ["acme"]');
        const text = explain('--tool', 'get_x', '--args', '{"owner":"Wayland"}');
        assert.match(text.stdout, /^deny by default/);
        assert.match(text.stdout, /^caller corp:bob of tenant acme, roles eng$/m);
        assert.match(text.stdout, /nearest: read \(\S+\) fails on one selector only/);
        assert.ok(!(denied.stdout + text.stdout).includes('Wayland'));
        assert.match(explain('--tool', 'get_x', '--args', '{"owner":"Wayland"}', '--show-args').stdout, /"Wayland" not in \["acme"\]/);
        assert.equal(explain('--tool', 'set_x', '--json').json().nearest, null, 'two selectors fail');
    });
    test('explain of a denied call shows the rule that denies it', () => {
        const { status, json } = explain('--tool', 'get_secret', '--args', '{"owner":"acme"}', '--json');
        assert.deepEqual([status, json().rule, json().nearest], [1, 'no-secret', null]);
    });
    test('explain with wrong arguments exits with 2', () => {
        for (const [args, says] of [
            [['explain'], /--policy is missing/],
            [['explain', '--policy', file], /--subject must be PROVIDER:NAME or anonymous/],
            [['explain', '--policy', file, '--subject', 'bob'], /--subject must be/],
            [['explain', '--policy', file, ...bob], /one of --tool/],
            [['explain', '--policy', file, ...bob, '--tool', 'a', '--prompt', 'b'], /one of --tool/],
            [['explain', '--policy', file, ...bob, '--tool', 'a', '--args', '[]'], /--args must be a JSON object/],
            [['explain', '--policy', file, ...bob, '--tool', 'a', '--args', '{"a":1,"a":2}'], /--args must be a JSON object/],
            [['explain', '--policy', file, ...bob, '--tool', 'a', '--check'], /does not accept --check/],
            [['check'], /usage: postern policy check PATH/],
            [['check', file, '--role', 'x'], /does not accept --role/],
            [['fmt', file, '--json'], /does not accept --json/],
            [['diff', file], /usage: postern policy diff/],
            [['lint', file], /use one of check, explain, fmt, who-can, diff, replay, coverage/]
        ]) {
            const { status, stdout, stderr } = policy(...args);
            assert.equal(status, 2, `${args}: ${stderr}`);
            assert.match(stderr, says);
            assert.equal(stdout, '');
        }
    });
});

describe('X17 policy fmt', () => {
    test('fmt writes the canonical form and keeps the mode, and --check does not change the file', () => {
        const before = JSON.stringify(written([rule('a', 'allow', { names: ['b', 'a'] })], { tests: [expecting('allow', 'a', { args: { names: ['b', 'a'] } })] }));
        write(before);
        chmodSync(file, 0o640);
        const checked = policy('fmt', '--check', file);
        assert.deepEqual([checked.status, checked.stdout], [1, `${file}\n`]);
        assert.equal(readFileSync(file, 'utf8'), before);
        assert.equal(policy('fmt', file).stdout, `${file}\n`);
        const text = readFileSync(file, 'utf8');
        assert.match(text, /^ {6}"names": \["a", "b"\]$/m);
        assert.deepEqual(JSON.parse(text).tests[0].args, { names: ['b', 'a'] }, 'the order of arguments is kept');
        assert.ok(text.endsWith('}\n'));
        assert.equal(statSync(file).mode & 0o777, 0o640);
        assert.deepEqual(readdirSync(directory.path), ['p.json']);
        const again = policy('fmt', '--check', file);
        assert.deepEqual([again.status, again.stdout], [0, '']);
    });
    test('fmt of a folder formats its *.json and leaves invalid ones unchanged', () => {
        write(written([]), join(directory.path, 'b.json'));
        write('{', join(directory.path, 'c.json'));
        const { status, stdout, stderr } = policy('fmt', directory.path);
        assert.equal(status, 3);
        assert.equal(stdout, `${directory.path}/b.json\n`);
        assert.match(stderr, /c\.json:1:/);
        assert.equal(readFileSync(join(directory.path, 'c.json'), 'utf8'), '{');
    });
    test('fmt refuses a file that is not a policy and a folder without policies', () => {
        write('[1,2]');
        const list = policy('fmt', file);
        assert.deepEqual([list.status, list.stdout, readFileSync(file, 'utf8')], [3, '', '[1,2]']);
        assert.match(list.stderr, /p\.json: must be an object/);
        mkdirSync(join(directory.path, 'empty'));
        const none = policy('fmt', 'empty');
        assert.deepEqual([none.status, none.stderr], [3, 'postern: empty: the folder contains no *.json file\n']);
    });
});

test('X17 who-can lists the verdict of every subject in the policy', () => {
    write(written([
        rule('staff', 'allow', { subjects: ['group:staff'] }), rule('no-ann', 'deny', { subjects: ['user:corp:ann'] }),
        rule('small', 'allow', { subjects: ['authenticated'], when: { '/n': { lt: 5 } } })
    ], { groups: { staff: { description: 'Everybody here', members: ['role:eng', 'user:corp:ann'] } }, tests: [expecting('allow', 'get_x')] }));
    const who = (...args) => Object.fromEntries(policy('who-can', '--policy', file, '--tenant', 'acme', '--server', 's', '--tool', 'get_x', ...args, '--json')
        .json().map(({ principal, verdict, rule: by }) => [principal, `${verdict} ${by}`]));
    assert.deepEqual(who(), {
        anonymous: 'deny default', authenticated: 'depends default', 'role:eng': 'allow staff', 'user:corp:ann': 'deny no-ann',
        'user:corp:bob with role:eng': 'allow staff'
    });
    assert.equal(who('--args', '{"n":1}').authenticated, 'allow small');
    assert.match(policy('who-can', '--policy', file, '--server', 's', '--tool', 'get_x').stdout, /TENANT +SUBJECT +VERDICT/);
    const tenants = ['zeta', 'acme', 'mid', 'beta'];
    write(written([rule('a', 'allow', { tenants })]));
    assert.deepEqual([...new Set(policy('who-can', '--policy', file, '--server', 's', '--tool', 'get_x', '--json').json().map(({ tenant }) => tenant))],
        [...tenants, 'default'].sort(), 'in the same order each time');
});

test('X17 coverage lists rules without a test', () => {
    write(written([rule('a', 'allow'), rule('b', 'deny', { names: ['x'] })], { tests: [expecting('allow', 'get_x')] }));
    const { status, stdout } = policy('coverage', file);
    assert.equal(status, 1);
    assert.match(stdout, /p\.json:\d+: b\n1 of 2 rules exercised by 1 test \(50\.0%\)\n$/);
    const { missing, percent } = policy('coverage', file, '--json').json();
    assert.deepEqual([missing.map(({ id }) => id), percent], [['b'], 50]);
});

describe('X17 policy diff', () => {
    const old = () => join(directory.path, 'old.json');
    const diff = (before, after, ...more) => {
        write(written(before), old());
        write(written(after));
        const { status, json } = policy('diff', old(), file, '--json', ...more);
        return { status, rows: json().map(({ change, principal, name, before: was, after: is }) => `${change} ${principal} ${name}: ${was} ${is}`) };
    };
    test('diff ignores the order of rules', () => {
        const rules = [rule('a', 'allow'), rule('b', 'deny', { names: ['get_secret'] })];
        assert.deepEqual(diff(rules, [...rules].reverse(), '--fail-on-new-access'), { status: 0, rows: [] });
    });
    test('diff reports an added name as gained and a removed one as lost', () => {
        const one = [rule('a', 'allow')], two = [rule('a', 'allow', { names: ['get_*', 'put'] })];
        assert.deepEqual(diff(one, two, '--fail-on-new-access'), { status: 1, rows: ['+ role:eng put: deny allow'] });
        assert.deepEqual(diff(two, one, '--fail-on-new-access'), { status: 0, rows: ['- role:eng put: allow deny'] });
        assert.equal(diff(one, two).status, 0);
    });
    test('diff reports wider patterns, removed denies and overlaps', () => {
        assert.deepEqual(diff([rule('a', 'allow', { names: ['get_x'] })], [rule('a', 'allow')]).rows, ['+ role:eng get_*: deny allow']);
        const both = [rule('a', 'allow'), rule('d', 'deny', { subjects: ['*'], names: ['*_secret'] })];
        assert.deepEqual(diff(both, both.slice(0, 1)).rows, ['+ role:eng get_*_secret: deny allow', '+ role:eng get_secret: deny allow']);
        const between = [both[0], rule('d', 'deny', { subjects: ['*'], names: ['get_*_secret'] })];
        assert.deepEqual(diff(both, between).rows, ['+ role:eng get_secret: deny allow']);
        const wide = [rule('a', 'allow', { servers: ['*'] })];
        assert.equal(diff([rule('a', 'allow')], wide, '--fail-on-new-access').status, 1);
    });
    test('diff reports removed and changed conditions', () => {
        const bound = n => [rule('a', 'allow', { when: { '/n': { lt: n } } })];
        assert.deepEqual(diff(bound(5), [rule('a', 'allow')]).rows, ['+ role:eng get_*: depends allow']);
        assert.deepEqual(diff(bound(5), bound(9), '--fail-on-new-access'), { status: 1, rows: ['~ role:eng get_*: depends depends'] });
        assert.deepEqual(diff([rule('a', 'allow')], bound(9), '--fail-on-new-access').status, 0);
    });
    test('diff reports an added role as gained', () => {
        assert.deepEqual(diff([rule('a', 'allow')], [rule('a', 'allow', { subjects: ['role:eng', 'role:ops'] })]).rows, ['+ role:ops get_*: deny allow']);
    });
    test('diff --inventory reports items by name', () => {
        const inventory = join(directory.path, 'inventory.json'), tool = (server, name) => ({ server, name, inputSchema: {} });
        write([tool('s', 'get_a'), tool('s', 'put_a'), tool('t', 'get_a')], inventory);
        const one = [rule('a', 'allow', { names: ['get_x'] })];
        assert.deepEqual(diff(one, [rule('a', 'allow')], '--inventory', inventory).rows, ['+ role:eng get_*: deny allow', '+ role:eng get_a: deny allow']);
        assert.equal(policy('diff', old(), file, '--inventory', file).status, 3);
        assert.equal(policy('diff', old(), file, '--inventory', inventory, '--inventory-before', inventory).status, 2);
    });
    test('diff of too many items is not reported as clean', () => {
        const inventory = join(directory.path, 'inventory.json');
        write(JSON.stringify(Array.from({ length: 20_001 }, (_, i) => ({ server: 's', name: `n${i}`, inputSchema: {} }))), inventory);
        const both = more => diff([rule('a', 'allow')], [rule('a', 'allow')], '--inventory', inventory, ...more).status;
        assert.equal(both(['--fail-on-new-access']), 1);
        assert.match(policy('diff', old(), file, '--inventory', inventory).stderr, /only the first 20000 items were compared/);
        assert.equal(both([]), 0);
    });
    test('diff reports callers that gain when a deny beside an allow is removed', () => {
        const allow = rule('a', 'allow'), denies = [rule('d', 'deny', { subjects: ['user:bearer:cat'] }), rule('e', 'deny', { subjects: ['group:guests'] })];
        const groups = { guests: { description: 'Temporary users', members: ['role:contractor'] } };
        const pairs = (before, after, ...more) => {
            write(written(before, { groups }), old());
            write(written(after, { groups }));
            const { status, json } = policy('diff', old(), file, '--json', ...more);
            return { status, rows: json().map(({ change, principal }) => `${change} ${principal}`).sort() };
        };
        const both = ['role:contractor with role:eng', 'user:bearer:cat with role:eng'];
        assert.deepEqual(pairs([allow, ...denies], [allow], '--fail-on-new-access'), { status: 1, rows: both.map(who => `+ ${who}`) });
        assert.deepEqual(pairs([allow], [allow, ...denies], '--fail-on-new-access'), { status: 0, rows: both.map(who => `- ${who}`) });
        assert.deepEqual(pairs([allow, ...denies], [allow, ...denies]), { status: 0, rows: [] });
        const when = n => rule('d', 'deny', { subjects: ['role:late'], when: { '/n': { lt: n } } });
        assert.deepEqual(pairs([allow, when(5)], [allow, when(9)], '--fail-on-new-access'), { status: 1, rows: ['~ role:late with role:eng'] });
        assert.deepEqual(pairs([allow, denies[1]], [rule('a', 'allow', { subjects: ['role:eng', 'role:contractor'] })]).rows, ['+ role:contractor'], 'access gained by a single subject is listed once');
    });
    test('diff compares servers that two patterns share and tenants without a name', () => {
        const allow = rule('a', 'allow', { servers: ['gh-*'] }), deny = rule('d', 'deny', { subjects: ['*'], servers: ['*-prod'] });
        assert.equal(diff([allow, deny], [allow], '--fail-on-new-access').status, 1);
        const tenants = names => [rule('a', 'allow', { tenants: names })];
        assert.equal(diff(tenants(['default']), tenants(['*']), '--fail-on-new-access').status, 1);
        assert.equal(diff(tenants(['acme']), tenants(['*']), '--fail-on-new-access').status, 1);
    });
    test('diff combines many patterns or reports that it is incomplete', () => {
        const names = Array.from({ length: 400 }, (_, i) => `n${i}_*`), deny = rule('d', 'deny', { subjects: ['*'], names: ['*_secret'] });
        const allow = rule('a', 'allow', { names });
        const { status, rows } = diff([allow, deny], [allow], '--fail-on-new-access');
        assert.deepEqual([status, rows.length], [1, 800], 'n0_*_secret, n0_secret and so on');
        const more = rule('a', 'allow', { names: Array.from({ length: 1001 }, (_, i) => `n${i}_*`) });
        assert.equal(diff([more], [more], '--fail-on-new-access').status, 1);
        assert.match(policy('diff', old(), file).stderr, /the result is incomplete.*overlaps of patterns/);
    });
    test('diff reports that it is incomplete for too many users and roles', () => {
        const roles = (word, count) => Array.from({ length: count }, (_, i) => `role:${word}${i}`);
        const allow = rule('a', 'allow', { subjects: roles('a', 201), names: ['x'] }), deny = rule('d', 'deny', { subjects: roles('d', 250), names: ['x'] });
        const after = [allow, { ...deny, when: { '/n': { lt: 5 } } }, rule('e', 'deny', { subjects: allow.subjects, names: ['x'] })];
        write(written([allow, deny]), old());
        write(written(after));
        const { status, stdout, stderr } = policy('diff', old(), file, '--fail-on-new-access');
        assert.equal(status, 1);
        assert.match(stdout, /^0 gained, 201 lost/m);
        assert.match(stderr, /the result is incomplete.*50000 callers with two of the principals/);
    });
    test('diff does not count a shadow rule as access', () => {
        assert.deepEqual(diff([rule('a', 'allow')], [rule('a', 'allow'), rule('b', 'allow', { names: ['put'], mode: 'shadow' })]).rows, []);
    });
    test('diff compares against a git revision', () => {
        const git = (...args) => execFileSync('git', ['-c', 'user.name=t', '-c', 'user.email=t@example.com', ...args], { cwd: directory.path, stdio: 'pipe' });
        cpSync(example, join(directory.path, 'policy'), { recursive: true });
        git('init', '-q');
        git('add', '.');
        git('commit', '-qm', 'first');
        assert.match(policy('diff', 'HEAD:policy', 'policy').stdout, /^0 gained, 0 lost, 0 with other conditions\n$/);
        const path = join(directory.path, 'policy/10-engineering.json');
        write(readFileSync(path, 'utf8').replace('"create_issue"]', '"create_issue", "close_issue"]'), path);
        const changed = policy('diff', 'HEAD:policy', 'policy', '--fail-on-new-access');
        assert.equal(changed.status, 1, changed.stderr);
        assert.match(changed.stdout, /^\+ acme: github tool close_issue: deny → depends .*\n +role:corp\/eng, role:corp\/sre/m);
        assert.equal(policy('diff', 'HEAD:policy/00-baseline.json', 'policy/00-baseline.json').status, 0);
        const unknown = policy('diff', 'nowhere:policy', 'policy');
        assert.equal(unknown.status, 3);
        assert.match(unknown.stderr, /git ls-tree: fatal: .*nowhere/);
        assert.equal(policy('diff', 'HEAD:nothing', 'policy').status, 3);
        assert.match(policy('diff', 'HEAD', 'policy').stderr, /^postern: HEAD: no such file or folder; for a git revision, write REVISION:PATH$/m);
        write('{', path);
        git('commit', '-qam', 'broken');
        for (const side of ['HEAD:policy', 'HEAD:policy/10-engineering.json']) {
            const { status, stderr } = policy('diff', side, example);
            assert.equal(status, 3);
            assert.match(stderr, /^HEAD:policy\/10-engineering\.json:\d+: E7 /m, 'by its name, not by that of a copy');
        }
    });
});

describe('policy explain and the gateway', () => {
    const all = { tenants: ['default'], servers: ['demo'] };
    const rules = [
        rule('echo', 'allow', { ...all, subjects: ['authenticated'], names: ['echo'] }),
        rule('echo-length', 'deny', { ...all, subjects: ['*'], names: ['echo'], when: { '/message': { glob: '*secret*' } } }),
        rule('add', 'allow', { ...all, subjects: ['group:clerks'], names: ['a*'], when: { '/a': { ge: 0, le: 10 } } }),
        rule('no-add', 'deny', { ...all, subjects: ['user:bearer:cat'], names: ['add'] }),
        rule('now', 'allow', { ...all, subjects: ['role:clerk'], names: ['now'], mode: 'shadow' }),
        rule('old', 'allow', { ...all, subjects: ['*'], names: ['now'], expires: '2020-01-01' }),
        rule('welcome', 'allow', { ...all, subjects: ['*'], kinds: ['resource'], names: ['demo://*'] }),
        rule('introduce', 'allow', { ...all, subjects: ['user:bearer:bob'], kinds: ['prompt'], names: ['introduce'] })
    ];
    const groups = { clerks: { description: 'The clerks, and bob', members: ['role:clerk', 'user:bearer:bob'] } };
    const callers = { ann: ['clerk'], bob: [], cat: ['clerk', 'late'], dan: [] };
    const calls = [
        ['tool', 'echo', { message: 'hi' }], ['tool', 'echo', { message: 'a secret' }], ['tool', 'echo', { message: 5 }], ['tool', 'echo', {}],
        ['tool', 'add', { a: 1, b: 2 }], ['tool', 'add', { a: 10, b: 2 }], ['tool', 'add', { a: 11, b: 2 }], ['tool', 'add', { a: '1', b: 2 }],
        ['tool', 'add', { b: 2 }], ['tool', 'add', { a: 1, A: 2, b: 2 }], ['tool', 'echo', { MESSAGE: 'a secret' }], ['tool', 'now', {}], ['tool', 'nothing', {}], ['resource', 'demo://welcome'], ['resource', 'demo://x/../welcome'],
        ['resource', 'demo://w%65lcome'], ['resource', 'DEMO://welcome'], ['prompt', 'introduce', { name: 'Ann' }]
    ];
    const methods = {
        tool: (name, args) => ['tools/call', { name: `demo__${name}`, arguments: args }],
        resource: uri => ['resources/read', { uri: `postern://demo/${uri}` }],
        prompt: (name, args) => ['prompts/get', { name: `demo__${name}`, arguments: args }]
    };
    let folder, gateway;
    const sessions = {};

    before(async () => {
        folder = temporaryDirectory();
        const tokens = join(folder.path, 'tokens.json'), path = join(folder.path, 'policy.json');
        write(written(rules, { groups }), path);
        const secrets = Object.entries(callers).map(([subject, roles]) => [subject, execFileSync(binary,
            ['token', 'new', '--file', tokens, '--subject', subject, ...roles.flatMap(role => ['--role', role])], { encoding: 'utf8' }).trim()]);
        gateway = await startGateway({
            auth: { providers: [{ type: 'bearer', tokens }] }, policy: path, mcpServers: { demo: { command: demo } }
        });
        for (const [subject, secret] of secrets) {
            const headers = post({ authorization: `Bearer ${secret}` });
            const opened = await send(gateway.url, { headers, body: initialize('2025-11-25') });
            assert.equal(opened.status, 200, opened.body);
            sessions[subject] = { ...headers, 'mcp-session-id': opened.headers['mcp-session-id'] };
            await send(gateway.url, { headers: sessions[subject], body: { jsonrpc: '2.0', method: 'notifications/initialized' } });
        }
    });
    after(async () => {
        await gateway?.stop();
        folder?.remove();
    });

    for (const [subject, roles] of Object.entries(callers))
        for (const [kind, name, args] of calls)
            test(`explain and the gateway agree on ${subject}: ${kind} ${name} ${JSON.stringify(args ?? {})}`, async () => {
                const [method, params] = methods[kind](name, args);
                const answer = reply(await send(gateway.url, { headers: sessions[subject], body: { jsonrpc: '2.0', id: 1, method, params } }));
                const said = policy('explain', '--policy', join(folder.path, 'policy.json'), '--subject', `bearer:${subject}`,
                    ...roles.flatMap(role => ['--role', role]), '--server', 'demo', `--${kind}`, name,
                    ...(args ? ['--args', JSON.stringify(args)] : []), '--json').json();
                const denied = answer.error?.code === 403;
                assert.equal(denied ? 'deny' : 'allow', said.decision, JSON.stringify(answer));
                if (denied) assert.equal(answer.error.data.rule, said.rule);
            });
    test('X12 a shadow rule writes a log line', () => gateway.line(/shadow rule matches.*rule=now/));
});

describe('X14 the gateway and `policy check --config`', () => {
    const configure = tenants => {
        const path = join(directory.path, 'postern.json');
        write({ listen: [{ address: '127.0.0.1:0' }], auth: { providers: [{ type: 'bearer', tokens: 'tokens.json' }] }, policy: 'p.json', mcpServers: { hub: { command: demo } }, tenants }, path);
        return path;
    };
    const config = () => join(directory.path, 'postern.json');
    beforeEach(() => execFileSync(binary, ['token', 'new', '--subject', 'ana', '--file', join(directory.path, 'tokens.json')]));
    const serve = () => spawnSync(binary, ['serve', '--config', config()], { encoding: 'utf8', env: { ...process.env, POSTERN_STATE: directory.path }, timeout: 20_000 });

    test('X14 a policy that several tenants have may name the servers of each', async () => {
        write(written([rule('r', 'allow', { servers: ['hub'], tenants: ['*'] }), rule('own', 'allow', { servers: ['own'], tenants: ['acme'] })]));
        configure({ acme: { mcpServers: { own: { command: demo } } } });
        assert.equal(policy('check', file, '--config', config()).status, 0);
        const child = spawn(binary, ['serve', '--config', config()], { stdio: ['ignore', 'ignore', 'pipe'], env: { ...process.env, POSTERN_STATE: directory.path } });
        const gateway = watch(child, 'stderr');
        await gateway.line(/listening\b/, 20_000);
        child.kill('SIGTERM');
        assert.equal((await gateway.exited).code, 0);
    });
    test('X14 a policy that one tenant has may not name the servers of another', () => {
        write(written([]));
        write(written([rule('r', 'allow', { servers: ['hub'] })]), join(directory.path, 'acme.json'));
        configure({ acme: { policy: 'acme.json', mcpServers: { own: { command: demo } } } });
        assert.match(policy('check', join(directory.path, 'acme.json'), '--config', config()).stdout, /E4 r: .*server "hub" does not exist/);
        const { status, stderr } = serve();
        assert.equal(status, 3);
        assert.match(stderr, /E4 .*server \\?"hub\\?" does not exist/);
    });
    test('X14 a rule about an unknown tenant or provider is refused by both', () => {
        write(written([rule('r', 'deny', { servers: ['hub'], tenants: ['defualt'], subjects: ['user:barer:bob'] })]));
        configure({});
        const found = policy('check', file, '--config', config());
        assert.equal(found.stdout.match(/ E4 r: /g).length, 2, found.stdout);
        const { status, stderr } = serve();
        assert.equal(status, 3);
        for (const name of ['defualt', 'barer']) assert.match(stderr, new RegExp(`code=E4 .*${name}`));
    });
});
