// Spellings of a URI: every other spelling of a denied resource is denied as well, for every method, as checked with three URL parsers.
import assert from 'node:assert/strict';
import { execFileSync, spawnSync } from 'node:child_process';
import { mkdirSync, writeFileSync } from 'node:fs';
import { join, posix } from 'node:path';
import { after, before, describe, test } from 'node:test';

import { binary, peerPath, startGateway, temporaryDirectory, until } from '../gateway.mjs';
import { policyRule } from '../policy.mjs';
import { initialize, post, reply, send } from '../raw.mjs';

const rule = (id, effect, names) => policyRule(id, effect, {
    subjects: ['*'], servers: ['*'], kinds: ['resource', 'resource_template'], names, ...(effect === 'allow' ? { acknowledge: 'open' } : {})
});
/** Everything may be read except one file and the paths below it. */
const rules = [rule('no-secret', 'deny', ['file:///srv/secret', 'file:///srv/secret/*', 'file:///srv/s@c+t']), rule('all', 'allow', ['*'])];
const written = (more = {}) => JSON.stringify({ version: 1, description: 'A policy of this test', ...more });

let folder, policy;
before(() => {
    folder = temporaryDirectory();
    policy = join(folder.path, 'policy.json');
    writeFileSync(policy, written({ rules }));
});
after(() => folder.remove());

/** Opens a session; returns a function that sends a request. */
async function open(gateway) {
    const headers = post();
    const opened = await send(gateway.url, { headers, body: initialize('2025-11-25') });
    assert.equal(opened.status, 200, opened.body);
    headers['mcp-session-id'] = opened.headers['mcp-session-id'];
    await send(gateway.url, { headers, body: { jsonrpc: '2.0', method: 'notifications/initialized' } });
    return async (method, params = {}) => reply(await send(gateway.url, { headers, body: { jsonrpc: '2.0', id: 1, method, params } }));
}

const mirror = (resources, templates) => ({
    command: peerPath('mirror'), args: ['--resources', JSON.stringify(resources), '--templates', JSON.stringify(templates)]
});
const listed = { resources: ['file:///srv/a', 'file:///srv/a b', 'file:///srv//b'], templates: ['file:///srv/{name}', 'file:///srv//{name}', 'FILE:///{name}'] };
const completion = uri => ({ ref: { type: 'ref/resource', uri }, argument: { name: 'name', value: '' } });

describe('other spellings of URIs', () => {
    let gateway, ask;
    before(async () => {
        gateway = await startGateway({ policy, audit: { path: join(folder.path, 'audit.db') }, mcpServers: { m: mirror(listed.resources, listed.templates) } });
        ask = await open(gateway);
    });
    after(() => gateway?.stop());
    const wrapped = uri => `postern://m/${uri}`;

    for (const [uri, canonical] of [
        ['file:///srv//secret', 'file:///srv/secret'], ['file:////srv/secret', 'file:///srv/secret'], ['file:///srv/s%40c+t', 'file:///srv/s@c+t'],
        ['file:///srv/s@c%2Bt', 'file:///srv/s@c+t'], ['file:///srv/s@c%2bt', 'file:///srv/s@c+t'], ['file:/srv/secret', 'file:///srv/secret'],
        ['file:srv/secret', 'file:///srv/secret'], ['file://localhost/srv/secret', 'file:///srv/secret'], ['file:///srv/secret/', 'file:///srv/secret'],
        ['file:///srv/secret/a b', 'file:///srv/secret/a%20b'], ['file:///srv/secret/é', 'file:///srv/secret/%C3%A9'], ['file:///srv/secret/%c3%a9', 'file:///srv/secret/%C3%A9'],
        ['file:///srv/secret?', 'file:///srv/secret'], ['file:///srv/secret#a', 'file:///srv/secret'], ['file:///srv/secre%74', 'file:///srv/secret'],
        ['file:///srv/a/../secret', 'file:///srv/secret'], ['file:///srv\\secret'], ['file:///srv%2Fsecret'], ['file:///srv/secret%00']
    ])
        for (const [method, params] of [
            ['resources/read', { uri: wrapped(uri) }], ['resources/subscribe', { uri: wrapped(uri) }], ['resources/unsubscribe', { uri: wrapped(uri) }],
            ['completion/complete', completion(wrapped(uri))]
        ])
            test(`${method} of ${uri} is denied`, async () => {
                const { error, result } = await ask(method, params);
                assert.equal(result, undefined);
                assert.deepEqual([error.code, error.data.rule, error.data.canonical], [403, 'uri_not_canonical', canonical]);
                if (canonical) assert.equal(error.message, `Denied by policy (rule uri_not_canonical): the canonical spelling is ${canonical}`);
            });
    for (const uri of ['file:///srv//{name}', 'file:/srv/{name}', 'file://localhost/{name}', 'file:///srv/%61/{name}', 'file:///%7Bname%7D', 'file:///srv/../{name}', 'file:///{name'])
        test(`completion/complete of the template ${uri} is denied`, async () => {
            const { error } = await ask('completion/complete', completion(wrapped(uri)));
            assert.deepEqual([error?.code, error?.data.rule], [403, 'uri_not_canonical']);
        });
    test('rules apply to the canonical spelling', async () => {
        assert.equal((await ask('resources/read', { uri: wrapped('file:///srv/secret') })).error.data.rule, 'no-secret');
        assert.equal((await ask('resources/read', { uri: wrapped('file:///srv/secret/a%20b') })).error.data.rule, 'no-secret');
        assert.equal((await ask('resources/read', { uri: wrapped('file:///srv/secrets') })).result.contents[0].text, 'file:///srv/secrets');
        assert.ok((await ask('completion/complete', completion(wrapped('file:///srv/{name}')))).result);
    });
    for (const uri of ['test://static-text', 'memo://insights', 'urn:isbn:0451450523', 'ui://panel/main.html', 'demo://a/b/', 'x:///one', 'https://example.com/a?b=c%20d', 'users://42/profile'])
        test(`an ordinary URI is read: ${uri}`, async () => {
            const exposed = uri.startsWith('ui://') ? uri.replace('ui://', 'ui://m/') : wrapped(uri);
            assert.equal((await ask('resources/read', { uri: exposed })).result?.contents[0].text, uri);
        });
    test('a listed resource with another spelling is hidden and logged once', async () => {
        const { result: { resources } } = await ask('resources/list');
        assert.deepEqual(resources.map(({ uri }) => uri), [wrapped('file:///srv/a')]);
        const { result: { resourceTemplates } } = await ask('resources/templates/list');
        assert.deepEqual(resourceTemplates.map(({ uriTemplate }) => uriTemplate), [wrapped('file:///srv/{name}')]);
        const lines = gateway.log().split('\n').filter(line => line.includes('resources hidden'));
        assert.equal(lines.length, 1, lines.join('\n'));
        assert.match(lines[0], /server=m count=4 first="file:\/\/\/srv\/a b"/);
    });
    test('the audit and `policy explain` name the same reason', async () => {
        await ask('resources/read', { uri: wrapped('file:///srv//secret') });
        const rows = () => execFileSync(binary, ['audit', '--file', join(folder.path, 'audit.db'), '--denied', '--json'], { encoding: 'utf8' }).trim().split('\n').filter(Boolean).map(line => JSON.parse(line));
        await until(() => rows().some(({ method, rule: by }) => method === 'resources/read' && by === 'uri_not_canonical'), 5_000, 'the row');
        const explain = (...more) => spawnSync(binary, ['policy', 'explain', '--policy', policy, '--subject', 'anonymous', '--server', 'm', '--resource', 'file:///srv//secret', ...more], { encoding: 'utf8' });
        const { status, stdout } = explain('--json');
        const { decision, rule: by, canonical, rules: asked } = JSON.parse(stdout);
        assert.deepEqual([status, decision, by, canonical, asked], [1, 'deny', 'uri_not_canonical', 'file:///srv/secret', []]);
        assert.match(explain().stdout, /^deny by uri_not_canonical \(canonical spelling: file:\/\/\/srv\/secret\)$/m);
    });
});

test('a policy test with another spelling does not exercise a rule', () => {
    const file = join(folder.path, 'untested.json');
    const check = name => {
        writeFileSync(file, written({ rules: [rule('no-secret', 'deny', ['file:///srv/*'])], tests: [{ description: 'no caller may read it', server: 'm', kind: 'resource', name, expect: 'deny' }] }));
        return JSON.parse(spawnSync(binary, ['policy', 'check', file, '--json'], { encoding: 'utf8' }).stdout).map(({ code }) => code);
    };
    assert.deepEqual(check('file:///srv/a'), []);
    assert.deepEqual(check('file:///srv//a'), ['W3']);
});

test('`policy diff` compares patterns that some canonical URI matches', () => {
    const [before, after] = ['before.json', 'after.json'].map(name => join(folder.path, name));
    writeFileSync(before, written({ rules: [] }));
    for (const name of ['*', '*.pem', 'file:///srv/*', 'file:///{path}']) {
        writeFileSync(after, written({ rules: [rule('some', 'allow', [name])] }));
        const { stdout } = spawnSync(binary, ['policy', 'diff', before, after], { encoding: 'utf8' });
        assert.ok(stdout.includes(`+ default: * resource_template ${name}: deny → allow`), stdout);
        assert.equal(stdout.includes(`+ default: * resource ${name}: deny → allow`), !name.includes('{'), stdout);
    }
});

test('URIs of a server without a prefix are judged alike', async () => {
    const gateway = await startGateway({ policy, prefix: false, mcpServers: { m: mirror(listed.resources, listed.templates) } });
    try {
        const ask = await open(gateway);
        for (const uri of ['file:///srv//secret', 'file:/srv/secret', 'file:///srv/a b', 'postern://m/file:///srv/secret'])
            assert.equal((await ask('resources/read', { uri })).error?.data.rule, 'uri_not_canonical', uri);
        assert.equal((await ask('resources/read', { uri: 'file:///srv/secret' })).error.data.rule, 'no-secret');
        assert.equal((await ask('resources/read', { uri: 'file:///srv/a' })).result.contents[0].text, 'file:///srv/a');
    } finally {
        await gateway.stop();
    }
});

test('every spelling of a URI passes unchanged without a policy', async () => {
    const gateway = await startGateway({ mcpServers: { m: mirror(listed.resources, listed.templates) } });
    try {
        const ask = await open(gateway);
        const { result: { resources } } = await ask('resources/list');
        assert.deepEqual(resources.map(({ uri }) => uri), listed.resources.map(uri => `postern://m/${uri}`));
        for (const uri of ['file:///srv/a b', 'file:/srv//secret'])
            assert.equal((await ask('resources/read', { uri: `postern://m/${uri}` })).result.contents[0].text, uri);
        assert.doesNotMatch(gateway.log(), /resources hidden/);
    } finally {
        await gateway.stop();
    }
});

describe('canonical URIs in three URL parsers', () => {
    const COUNT = 12_000;
    /** mulberry32: the same URIs in every run. */
    const randomFrom = seed => () => {
        seed = (seed + 0x6d2b79f5) | 0;
        let t = Math.imul(seed ^ (seed >>> 15), 1 | seed);
        t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
        return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
    };
    const random = randomFrom(9);
    const pick = list => list[Math.floor(random() * list.length)];
    const many = (most, make) => Array.from({ length: Math.floor(random() * (most + 1)) }, make).join('');

    const CHARACTERS = [...' !"$&\'()*+,-.;:<=>@[\\]^_`{|}~09azAZé€\t\n\u0001\u007f'];
    const escape = c => [...Buffer.from(c)].map(byte => `%${byte.toString(16).padStart(2, '0')}`).join('');
    const PIECES = ['srv', 'secret', 'srv', 'secret', 'a', 'b', '.', '..', '%2e', '%2E%2e', '', '%2F', '%2f', '%5C', '%25', '%2541', '%252e', '%C0%AF', '%FF', '%', '%4', '?x', '#x', '?', '#', '?a+b', '?a%20b', '?a%2Bb', '?a&b'];
    const oddly = text => [...text].map(c => (random() < 0.02 ? pick([escape(c), escape(c).toUpperCase(), c.toUpperCase()]) : c)).join('');
    const piece = () => (random() < 0.25 ? pick([pick(CHARACTERS), escape(pick(CHARACTERS)), escape(pick(CHARACTERS)).toUpperCase()]) : oddly(pick(PIECES)));
    const HEADS = [
        'file:///', 'file:///srv/', 'file:///srv/', 'file:///srv/secret', 'file:/', 'file:', 'file://localhost/', 'file://LOCALHOST/', 'file:////', 'file://h/', 'FILE:///', 'file:///C:/', 'file:///c:/', 'file:///C|/', 'file:\\\\\\', ' file:///',
        'http://h/', 'http://H/', 'http://h:80/', 'http://h:/', 'http://h:8080/', 'http:/h/', 'http:h/', 'http:///h/', 'http://h', 'http://u@h/', 'http://h./', 'http://127.0.0.1/', 'http://127.1/', 'http://0x7f.1/', 'http://2130706433/', 'http://[::1]/', 'http://[0::1]/', 'https://h/', 'https://%68/', 'ftp://h/',
        'x://h/', 'x://H/', 'x://h', 'x:///', 'x:/', 'x:', 'x://h:1/', 'x://h:01/', 'x://h%40i/', 'X://h/'
    ];
    const built = () => pick(HEADS) + many(3, () => piece() + pick(['/', '/', '', '//'])) + (random() < 0.8 ? piece() : '');

    /** Plain URIs, and mutations of them that some parser reverses. */
    const word = () => pick(['a', 'b', 'Key', '.x', '1@2', 'p+q', 'x;y=z', "it's", '%20', '%C3%A9', '%5B1%5D', '100%25', '~', '*', '%3F']);
    const plain = () =>
        pick(['file:///srv/secret', 'file:///srv/secret/', 'file:///srv/', 'file:///', 'http://h/', 'https://h:8443/', 'x://h/', 'x:///', 'x:', 'urn:a:']) +
        Array.from({ length: Math.floor(random() * 4) }, word).join(pick(['/', '/', ''])) + (random() < 0.15 ? `?${word()}=${word()}` : '');
    const at = (text, change) => {
        const i = Math.floor(random() * (text.length + 1));
        return text.slice(0, i) + change(text.slice(i));
    };
    const afterSlash = (text, insert) => text.replace(/\/(?!\/)(?=[^/]*$)|\/(?=\w)/, slash => slash + insert);
    const MUTATIONS = [
        text => at(text, rest => rest && escape(rest[0]) + rest.slice(1)), text => at(text, rest => rest && escape(rest[0]).toUpperCase() + rest.slice(1)),
        text => at(text, rest => rest && rest[0].toUpperCase() + rest.slice(1)), text => at(text, rest => pick(CHARACTERS) + rest),
        text => afterSlash(text, '/'), text => afterSlash(text, './'), text => afterSlash(text, 'zz/../'), text => afterSlash(text, '%2e/'), text => afterSlash(text, 'q/%2E%2e/'),
        text => `${text}/`, text => `${text}?`, text => `${text}#`, text => `${text}?a`, text => `${text}/.`, text => `${text} `, text => ` ${text}`,
        text => text.replace('///', '/'), text => text.replace('///', ''), text => text.replace('///', '////'), text => text.replace('///', '//localhost/'), text => text.replace('//', '/'), text => text.replace('//h', '//u@h'),
        text => text.replace('/', '\\'), text => text.replaceAll('%20', '+'), text => text.replaceAll('%20', ' '), text => decodeURIComponent(text.replaceAll(/%(?![0-9a-f]{2})/gi, '%25')), text => text.replace(/%../g, escaped => escaped.toLowerCase()), text => text.replaceAll('%', '%25')
    ];
    function mutated() {
        let uri = plain();
        for (let count = Math.floor(random() * 4); count > 0; count--) {
            try {
                uri = pick(MUTATIONS)(uri);
            } catch {
                // escapes that are not valid UTF-8 any more are kept
            }
        }
        return uri;
    }
    const make = () => (random() < 0.3 ? built() : mutated());

    /** The resource that a server with WHATWG URLs would open; null: refused. */
    function whatwg(uri) {
        if (!URL.canParse(uri)) return null;
        const url = new URL(uri);
        try {
            const path = decodeURIComponent(url.pathname);
            if (url.protocol === 'file:') return ['file', posix.normalize(`/${path}`).replace(/\/+$/, '') || '/'];
            return [url.protocol, decodeURIComponent(url.host), path && posix.normalize(path), decodeURIComponent(url.search.replaceAll('+', ' '))];
        } catch {
            return null;
        }
    }

    let uris, verdicts, names;
    before(() => {
        uris = [...new Set(Array.from({ length: COUNT }, make))];
        const tests = uris.map((name, i) => ({ description: `the URI number ${i}.`, server: 'm', kind: 'resource', name, expect: 'deny', by: 'uri_not_canonical' }));
        const many = join(folder.path, 'many');
        mkdirSync(many);
        for (let i = 0; i < tests.length; i += 500)
            writeFileSync(join(many, `${i}.json`), written({ rules: i ? [] : rules, tests: tests.slice(i, i + 500) }));
        const { stdout } = spawnSync(binary, ['policy', 'check', many, '--json'], { encoding: 'utf8', maxBuffer: 1 << 28 });
        verdicts = uris.map(() => 'uri_not_canonical');
        for (const { code, text } of JSON.parse(stdout)) {
            const [, at, by] = code === 'E9' ? /"the URI number (\d+)\.": .* by (all|no-secret)\b/.exec(text) : [];
            if (at) verdicts[at] = by;
            else assert.match(code, /^W/, text);
        }
        const read = execFileSync('python3', [peerPath('parse-uris.py')], { input: JSON.stringify(uris), encoding: 'utf8', maxBuffer: 1 << 28 });
        names = { whatwg: uris.map(whatwg), ...JSON.parse(read) };
    });
    const allowed = () => uris.map((uri, i) => ({ uri, i })).filter(({ i }) => verdicts[i] === 'all');

    test('the sample has enough URIs of each kind', () => {
        const count = by => verdicts.filter(one => one === by).length;
        assert.ok(count('all') > 500 && count('no-secret') > 50 && count('uri_not_canonical') > 5000, `${count('all')} ${count('no-secret')} ${count('uri_not_canonical')}`);
        for (const list of Object.values(names)) assert.ok(list.filter(Boolean).length > 2000);
    });
    for (const parser of ['whatwg', 'urllib', 'curl']) {
        const isSecret = name => name?.[0] === 'file' && (name[1] === '/srv/secret' || name[1].startsWith('/srv/secret/'));
        test(`an allowed URI never names a denied file (${parser})`, () => {
            const leaks = allowed().filter(({ i }) => isSecret(names[parser][i]));
            assert.deepEqual(leaks.map(({ uri }) => uri), []);
            assert.ok(names[parser].filter(isSecret).length > 100);
        });
        test(`two allowed URIs never name the same resource (${parser})`, () => {
            const first = new Map(), pairs = [];
            for (const { uri, i } of allowed()) {
                const name = JSON.stringify(names[parser][i]);
                if (name === 'null') continue;
                if (first.has(name)) pairs.push([first.get(name), uri]);
                else first.set(name, uri);
            }
            assert.deepEqual(pairs, []);
        });
    }
    test('allowed URIs are written as in RFC 3986 and the URL standard', () => {
        for (const { uri } of allowed()) {
            assert.match(uri, /^[a-z][a-z0-9+.-]*:(?:[\w.~!$&'()*+,;=:@/?[\]-]|%[2-9A-F][0-9A-F])+$/);
            assert.ok(URL.canParse(uri), uri);
            assert.equal(new URL(uri).href.replaceAll('%27', "'"), uri);
        }
    });
});
