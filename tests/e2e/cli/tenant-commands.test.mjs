// The command line with several tenants, servers that fail or are slow, and a gateway that requires a token.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdirSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { after, before, describe, test } from 'node:test';

import { commandLine, EXIT, quote } from '../command-line.mjs';
import { binary, peerPath, startGateway, temporaryDirectory } from '../gateway.mjs';

const { OK, NEGATIVE, USAGE, CONFIG, UNAVAILABLE } = EXIT;
const mirror = peerPath('mirror');
const demo = { command: join(dirname(binary), 'postern-demo') };
const broken = { command: 'sh', args: ['-c', 'echo reading settings >&2; printf "no such \\033[31mtable" >&2; exit 3'] };
const directory = temporaryDirectory();
const home = join(directory.path, 'home');
mkdirSync(home);
after(() => directory.remove());

function configure(name, config) {
    const path = join(directory.path, name);
    writeFileSync(path, JSON.stringify(config));
    return path;
}

const { run, onTerminal, json, fails } = commandLine(home);

describe('servers of several tenants', () => {
    const config = configure('tenants.json', { mcpServers: { demo }, tenants: { globex: { mcpServers: { plain: { command: mirror } } }, acme: { mcpServers: { demo } } } });
    const on = (command, ...args) => [command, '--config', config, ...args];
    const placed = rows => [...new Set(rows.map(({ tenant, server, name }) => `${tenant}/${server ?? name}`))].sort();

    test('servers and tools show every tenant', async () => {
        assert.deepEqual(placed(await json(on('servers'))), ['acme/demo', 'default/demo', 'globex/plain']);
        assert.deepEqual(placed(await json(on('tools'))), ['acme/demo', 'default/demo', 'globex/plain']);
        assert.deepEqual(placed(await json(on('tools', 'demo'))), ['acme/demo', 'default/demo']);
        for (const command of ['resources', 'prompts']) assert.ok((await json(on(command))).every(({ tenant }) => ['default', 'acme', 'globex'].includes(tenant)));
    });
    test('the tenant is a column on a terminal', async () => {
        const { status, shown } = await onTerminal(on('servers'));
        assert.equal(status, OK, shown);
        assert.match(shown, /^TENANT +SERVER +STATE/m);
        assert.match(shown, /^globex +plain +ready/m);
    });
    test('--tenant selects one tenant', async () => {
        assert.deepEqual(placed(await json(on('servers', '--tenant', 'acme'))), ['acme/demo']);
        assert.deepEqual(placed(await json(on('tools', '--tenant', 'globex'))), ['globex/plain']);
        assert.deepEqual(placed(await json(on('tools', '--tenant', 'default'))), ['default/demo']);
    });
    test('call, read and prompt reach the server of the tenant', async () => {
        assert.equal((await json(on('call', '--tenant', 'acme', 'demo', 'add', '{"a":2,"b":3}'))).content[0].text, '5');
        assert.ok((await json(on('read', '--tenant', 'acme', 'demo', 'demo://welcome'))).contents.length);
        await fails(on('call', '--tenant', 'acme', 'plain', 'x'), CONFIG, /tenant "acme" has no server "plain", but tenant "globex" has: add --tenant globex/);
        await fails(on('call', 'plain', 'x'), CONFIG, /add --tenant globex/);
        await fails(on('prompt', '--tenant', 'globex', 'demo', 'x'), CONFIG, /add --tenant default/);
    });
    test('a tenant that does not exist is an error that names the nearest', async () => {
        for (const command of [['servers'], ['tools'], ['resources'], ['prompts'], ['call', 'demo', 'add'], ['read', 'demo', 'a:b'], ['prompt', 'demo', 'x']])
            await fails([...command, '--config', config, '--tenant', 'globx'], CONFIG, /tenant "globx" does not exist.*did you mean "globex"\?/);
    });
    test('--tenant is not for --url', () => fails(['tools', '--url', 'http://127.0.0.1:9/mcp', '--tenant', 'acme'], USAGE, /--tenant.*--url/));
});

describe('tokens of several tenants', () => {
    const file = join(directory.path, 'tokens.json');
    const ids = {};
    before(async () => {
        for (const tenant of ['acme', 'globex']) {
            const { status, stdout } = await run(['token', 'new', '--file', file, '--subject', 'ana', '--tenant', tenant]);
            assert.equal(status, OK);
            ids[tenant] = stdout.split('_')[1];
        }
    });
    test('token list shows all tokens or those of --tenant', async () => {
        assert.deepEqual((await json(['token', 'list', '--file', file])).map(({ tenant }) => tenant).sort(), ['acme', 'globex']);
        assert.deepEqual((await json(['token', 'list', '--file', file, '--tenant', 'acme'])).map(({ id }) => id), [ids.acme]);
    });
    test('token revoke and rotate accept only a token of --tenant', async () => {
        await fails(['token', 'revoke', ids.acme, '--file', file, '--tenant', 'globex'], NEGATIVE, /no token with id "\w+" of tenant globex/);
        await fails(['token', 'rotate', ids.acme, '--file', file, '--tenant', 'globex'], NEGATIVE, /of tenant globex/);
        assert.equal((await run(['token', 'revoke', ids.acme, '--file', file, '--tenant', 'acme'])).status, OK);
        assert.deepEqual((await json(['token', 'list', '--file', file])).map(({ id }) => id), [ids.globex]);
    });
});

describe('a server that fails shows its last lines', () => {
    const config = configure('broken.json', { mcpServers: { broken, demo } });
    const lines = /server "broken" wrote to stderr:\n {2}reading settings\n {2}no such  \[31mtable\n/;
    test('the last lines of a failed server are a member of its row in a pipe', async () => {
        const [row] = await json(['servers', '--config', config], UNAVAILABLE);
        assert.match(row.problem, /exit status 3/);
        assert.equal(row.stderr, 'reading settings\nno such \x1b[31mtable');
    });
    test('the last lines of a failed server are shown below the table without control characters', async () => {
        const { status, shown } = await onTerminal(['servers', '--config', config]);
        assert.equal(status, UNAVAILABLE);
        assert.match(shown, lines);
    });
    test('tools and call show the last lines of a failed server', async () => {
        for (const args of [['tools'], ['call', 'broken', 'x']]) {
            const { status, stderr } = await run([...args, '--config', config]);
            assert.equal(status, UNAVAILABLE, stderr);
            assert.match(stderr, /^postern: server "broken" ended: exit status 3$/m);
            assert.match(stderr, lines);
        }
    });
});

describe('progress', () => {
    const started = join(directory.path, 'go');
    const slow = { command: 'sh', args: ['-c', `echo installing packages >&2; while ! [ -e ${quote(started)} ]; do sleep 0.1; done; exec ${quote(demo.command)}`] };
    test('a slow server is named on the terminal with its last line', async () => {
        const config = configure('slow.json', { mcpServers: { slow } });
        const args = ['-qec', [binary, 'tools', '--config', config].map(quote).join(' '), '/dev/null'];
        const child = execFile('script', args, { cwd: home, timeout: 60_000 });
        let shown = '';
        child.stdout.on('data', text => {
            shown += text;
            if (/waiting for server "slow" to start \(\d+ s\); its last line on stderr: installing packages/.test(shown)) writeFileSync(started, '');
        });
        await new Promise(resolve => child.on('close', resolve));
        assert.equal(child.exitCode, OK, shown);
        assert.match(shown, /waiting for server "slow"[^]*slow +echo/);
    });
});

describe('--url with a token', () => {
    let gateway, token;
    const file = join(directory.path, 'caller.token');
    before(async () => {
        const tokens = join(directory.path, 'callers.json');
        token = (await run(['token', 'new', '--file', tokens, '--subject', 'ana'])).stdout.trim();
        writeFileSync(file, `${token}\n`);
        const policy = { version: 1, description: 'Everything for known callers of this test', rules: [{ id: 'all', effect: 'allow', description: 'all who are known', tenants: ['*'], subjects: ['authenticated'], servers: ['*'], kinds: ['*'], names: ['*'] }] };
        gateway = await startGateway({ auth: { providers: [{ type: 'bearer', tokens }] }, policy: 'policy.json', mcpServers: { demo } }, [], { files: { 'policy.json': policy } });
    });
    after(() => gateway?.stop());
    const call = (...args) => ['call', '--url', gateway.url, ...args, 'demo__add', '{"a":2,"b":3}'];

    test('$POSTERN_TOKEN or --token-file opens the gateway', async () => {
        assert.equal((await json(call(), OK, { env: { POSTERN_TOKEN: token } })).content[0].text, '5');
        assert.equal((await json(call('--token-file', file))).content[0].text, '5');
        assert.ok((await json(['tools', '--url', gateway.url, '--token-file', file])).some(({ name }) => name === 'demo__add'));
    });
    test('a missing or wrong token is an error that says what to do', async () => {
        await fails(call(), UNAVAILABLE, /needs authorization: .*--token-file or \$POSTERN_TOKEN\n$/);
        await fails(call(), UNAVAILABLE, /answered HTTP 401: the credential is .*revoked; check the token/, { env: { POSTERN_TOKEN: `${token.slice(0, -1)}${token.endsWith('A') ? 'B' : 'A'}` } });
    });
    test('a missing policy is reported as a policy', () =>
        fails(['serve', '--config', configure('unjudged.json', { policy: 'none', mcpServers: { demo } })], CONFIG, /policy .*none: No such file or directory; name a file or folder/));
    test('an invalid token file is an error that does not show its content', async () => {
        const wrong = join(directory.path, 'wrong.token');
        writeFileSync(wrong, 'my secret words\n');
        await fails(call('--token-file', join(home, 'none')), CONFIG, /--token-file .*none: No such file/);
        const got = await run(call('--token-file', wrong));
        assert.equal(got.status, CONFIG);
        assert.match(got.stderr, /wrong\.token does not contain a bearer token/);
        assert.doesNotMatch(got.stderr, /secret words/);
    });
    test('the token is not sent unencrypted over a network, nor to configured servers', async () => {
        await fails(['tools', '--url', 'http://192.0.2.1/mcp', '--token-file', file], CONFIG, /unencrypted; use https/);
        await fails(['tools', '--token-file', file], USAGE, /--token-file needs --url/);
    });
});
