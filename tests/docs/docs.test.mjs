// The documents are correct: every command and configuration in them works unchanged, in a fresh clone and in order.
import assert from 'node:assert/strict';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';

import { blocksOf, wholes } from './blocks.mjs';
import { Background, clone, documents, environment, prepare, root, shell } from './place.mjs';

const isRoot = process.env.DOCS_ROOT === 'yes';
const SERVES = /listening url=|Postern listens on/;
const NOTHING = { version: 1, description: 'Nothing is allowed', rules: [] };

const read = name => readFileSync(join(root, name), 'utf8');
const write = (folder, name, content) => writeFileSync(join(folder, name), typeof content === 'string' ? content : JSON.stringify(content));

/** The prerequisites of a document, and variables of the environment. */
const presupposed = {
    'docs/policy.md': folder => {
        const { status, stderr } = shell('cp -r policies/example policy; cp deploy/example.json postern.json; git add -A; git commit -qm policy', { cwd: folder });
        assert.equal(status, 0, stderr);
        return { BASE: 'HEAD' };
    },
    'docs/operations.md': folder => {
        write(folder, 'postern.json', { audit: { jsonl: '-' }, mcpServers: {} });
        write(folder, 'policy.json', NOTHING);
    },
    'docs/oauth.md': async (folder, running) => {
        const peer = new Background([join(root, 'tests/peers/liar'), 'none']);
        running.push(peer);
        const url = (await peer.says(/(http:\/\/\S+)/))[1];
        write(folder, 'postern.json', { mcpServers: { tracker: { url, auth: { mode: 'shared' } } } });
        write(folder, 'policy.json', NOTHING);
    }
};

function succeeds(script, document) {
    const { status, stdout, stderr } = shell(script, { cwd: document.folder, env: document.env });
    assert.equal(status, 0, `${script}\nexit status ${status}\n${stdout}${stderr}`);
}

/** Checks a JSON text as a policy or a configuration if it is one, otherwise only its syntax. */
function checkJson(text, file, document) {
    const tree = JSON.parse(text);
    write(document.folder, file, text);
    if (tree.version && tree.rules) succeeds(`postern policy check ${file}`, document);
    else if (tree.mcpServers || tree.auth || tree.listen) succeeds(`postern config check --offline --config ${file}`, document);
}

async function runShell(block, document) {
    const { marks, text } = block;
    if (marks.background) {
        await document.background?.end();
        document.background = new Background(['bash', '-e', '-c', text], { cwd: document.folder, env: { ...environment, ...document.env } });
        await document.background.says(SERVES);
        return;
    }
    const { status, stdout, stderr } = shell(text, { cwd: document.folder, env: document.env });
    assert.equal(status, Number(marks.status ?? 0), `exit status\n${stdout}${stderr}`);
}

/** systemd accepts the unit, and a gateway started as systemd would start it serves. */
async function runUnit(block, document) {
    const file = '/etc/systemd/system/postern.service';
    mkdirSync('/etc/systemd/system', { recursive: true });
    writeFileSync(file, block.text);
    succeeds(`systemd-analyze verify ${file}`, document);
    const all = name => [...block.text.matchAll(new RegExp(`^${name}=(.*)$`, 'gm'))].map(match => match[1]);
    const [user] = all('User'), [state] = all('StateDirectory'), [runtime] = all('RuntimeDirectory'), [start] = all('ExecStart');
    if (runtime) succeeds(`install -d -o ${user} -g ${user} -m 755 /run/${runtime}`, document);
    if (state) succeeds(`install -d -o ${user} -g ${user} -m 700 /var/lib/${state}`, document);
    const command = `exec setpriv --reuid ${user} --regid ${user} --clear-groups env -i PATH=/usr/bin:/bin HOME=/var/lib/postern ${all('Environment').join(' ')} ${start}`;
    await document.background?.end();
    document.background = new Background(['bash', '-c', command], { cwd: '/' });
    await document.background.says(SERVES);
}

function runNginx(block, document) {
    const temporary = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi'].map(name => `${name}_temp_path ${document.folder}/${name};`).join(' ');
    write(document.folder, 'nginx.conf', `user root root; events {} pid ${document.folder}/nginx.pid; http { access_log off; ${temporary} server { listen 127.0.0.1:8081; location = /oauth2/auth { return 204; }\n${block.text}} }\n`);
    succeeds('nginx -t -q -e stderr -p "$PWD" -c "$PWD/nginx.conf"', document);
}

async function runBlock(block, document) {
    const { language, marks } = block;
    const file = marks.file ?? `block-${block.line}.json`;
    if (language === 'json') for (const text of wholes(block)) checkJson(text, file, document);
    else if (marks.file) write(document.folder, file, block.text);
    else if (marks.unit) await runUnit(block, document);
    else if (language === 'sh') await runShell(block, document);
    else if (language === 'nginx') runNginx(block, document);
    else throw new Error(`blocks of ${language} cannot be run; give the block a mark`);
    if (marks.then) succeeds(marks.then, document);
}

before(prepare);

/** Runs the blocks of documents in one clone; a gateway that a document starts ends with the document. */
function run(...names) {
    const running = [];
    const document = {};
    before(() => (document.folder = clone(names[0])));
    for (const name of names)
        describe(name, () => {
            before(async () => (document.env = (await presupposed[name]?.(document.folder, running)) ?? {}));
            after(async () => {
                for (const one of [document.background, ...running]) await one?.end();
            });
            for (const block of blocksOf(name, read(name))) {
                const { skip, root: rights, unit } = block.marks;
                const reason = skip ?? ((rights || unit) && !isRoot ? 'only as root' : undefined);
                test(`${name}:${block.line} ${block.language}`, { skip: reason }, () => runBlock(block, document));
            }
        });
}

const first = ['README.md', 'CONTRIBUTING.md']; // README.md installs the program that the others use
run(...first);
for (const name of documents()) if (!first.includes(name) && blocksOf(name, read(name)).length) run(name);

test('deploy/postern.service is the unit of docs/operations.md', () => {
    const unit = blocksOf('docs/operations.md', read('docs/operations.md')).find(({ marks }) => marks.unit);
    assert.equal(unit.text, read('deploy/postern.service'));
});

describe('a broken block fails', () => {
    const document = {};
    before(() => {
        document.folder = clone('broken');
    });
    // name: [the document, how it fails]
    const broken = {
        'a command that fails': ['```sh\nfalse\necho done\n```', /exit status\n/],
        'a command that does not exist': ['```sh\npostern frobnicate\n```', /unknown command 'frobnicate'/],
        'another exit status': ['<!-- docs-test: status: 1 -->\n```sh\ntrue\n```', /0 !== 1/],
        'a gateway that does not start': ['<!-- docs-test: background -->\n```sh\npostern serve --config missing.json\n```', /it ended before.*\n.*missing\.json: No such file/],
        'text that is not JSON': ['```json\n{"mcpServers": }\n```', /JSON/],
        'a configuration with an unknown key': ['```json\n{"mcpServers": {"a": {"comand": "x"}}}\n```', /comand: unknown key/],
        'a policy whose test fails': [
            '```json\n{"version": 1, "description": "Nothing is allowed", "rules": [], "tests": [{"description": "this cannot be", "server": "a", "name": "b", "expect": "allow"}]}\n```',
            /E9/
        ],
        'a part that does not fit': ['<!-- docs-test: within: {"mcpServers": {…}} -->\n```json\n"a": {}\n```', /mcpServers\/a: give either/],
        'a condition that does not hold afterwards': ['<!-- docs-test: then: test -e missing -->\n```sh\ntrue\n```', /test -e missing/],
        'a location that nginx refuses': ['```nginx\nlocation / { proxy_buffering maybe; }\n```', /proxy_buffering/],
        'a language that cannot be run': ['```yaml\na: b\n```', /yaml/]
    };
    const unit = ['[Service]', 'Type=exec', 'User=postern', 'Environment=POSTERN_CONFIG=/etc/broken.json', 'ExecStart=/usr/local/bin/postern serve', ''].join('\n');
    test('a unit without a state folder', { skip: isRoot ? undefined : 'only as root' }, () => {
        writeFileSync('/etc/broken.json', '{"audit": {"jsonl": "-"}}');
        shell('rm -rf /var/lib/postern', { cwd: '/' });
        return assert.rejects(runUnit({ text: unit }, document), /audit\.db: cannot access its folder: .*POSTERN_STATE/);
    });
    for (const [name, [markdown, pattern]] of Object.entries(broken))
        test(name, () => assert.rejects(runBlock(blocksOf('broken.md', markdown)[0], document), pattern));
    for (const [name, markdown] of Object.entries({
        'a mark that is unknown': '<!-- docs-test: skipp: x -->\n```sh\n```',
        'a skip without a reason': '<!-- docs-test: skip -->\n```sh\n```',
        'a mark without a block': '<!-- docs-test: background -->\n\n```sh\n```'
    }))
        test(name, () => assert.throws(() => blocksOf('broken.md', markdown)));
});
