// Mistakes in the configuration: each error names the file, the place and what to do, and the exit status is 3.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';

import { binary, startGateway, temporaryDirectory } from '../gateway.mjs';

const directory = temporaryDirectory();
after(() => directory.remove());

const file = join(directory.path, 'postern.json');
const RUN_MS = 5_000;
const demo = { command: process.execPath };
const server = more => ({ mcpServers: { a: { ...demo, ...more } } });

/** Runs the gateway and returns its {status, stdout, stderr}; a gateway that serves is stopped after a while. */
function execute(args, env = {}) {
    const { SECRET_TOKEN, ...environment } = process.env;
    return new Promise(resolve => {
        const options = { timeout: RUN_MS, env: { ...environment, ...env } };
        const child = execFile(binary, args, options, (_error, stdout, stderr) => resolve({ status: child.exitCode, stdout, stderr }));
        child.stdin.end();
    });
}

/** Runs it with this configuration, an object or text. */
function run(config, args = ['config', 'check'], env) {
    writeFileSync(file, typeof config === 'string' ? config : JSON.stringify(config));
    return execute([...args, '--config', file], env);
}

/** It ends with status 3 and one line on stderr that begins with the file and contains all of these texts. */
function refused({ status, stdout, stderr }, ...wanted) {
    assert.equal(status, 3, stderr || stdout);
    assert.equal(stdout, '');
    assert.match(stderr, /^postern: .*\n$/, 'one line, without a report of a sanitizer');
    assert.ok(stderr.startsWith(`postern: ${file}`), stderr);
    for (const part of wanted) assert.ok(stderr.includes(part), `${part} in: ${stderr}`);
}

const NOT_LOOPBACK = [' /listen/0/address: ', 'not loopback', '127.0.0.1'];
const listenOn = address => ({ listen: [{ address }], mcpServers: {} });

const provider = entry => ({ policy: 'p.json', auth: { providers: [entry] } });
const forwarded = more => provider({ type: 'forwarded-user', ...more });
const jwt = more => provider({ type: 'jwt', issuer: 'https://issuer.example', audiences: ['https://gateway.example/mcp'], ...more });

const issuers = (...more) => ({ policy: 'p.json', auth: { providers: more.map(one => jwt(one).auth.providers[0]) } });

const mistakes = {
    'an unknown key': [{ mcpserver: {} }, ' /mcpserver: unknown key', 'did you mean "mcpServers"?'],
    'an unknown key inside': [{ limits: { max_bdy: 1 } }, ' /limits/max_bdy: unknown key', 'did you mean "max_body"?'],
    'an unknown key of a server': [server({ comand: 'x' }), ' /mcpServers/a/comand: unknown key', 'did you mean "command"?'],
    'an unknown key unlike any other': [{ qqqqqqqqqqqq: 1 }, ' /qqqqqqqqqqqq: unknown key'],
    'a wrong type': [{ prefix: 'yes' }, ' /prefix: must be true or false'],
    'a number for a string': [{ separator: 5 }, ' /separator: must be a string'],
    'a string for a number': [{ limits: { page_size: '10' } }, ' /limits/page_size: must be a whole number'],
    'a fraction for a whole number': [{ limits: { page_size: 1.5 } }, ' /limits/page_size: must be a whole number'],
    'a null for an object': [{ log: null }, ' /log: must be an object'],
    'an array for an object': [{ mcpServers: [] }, ' /mcpServers: must be an object of objects'],
    'an object for an array': [{ listen: { address: '127.0.0.1:0' } }, ' /listen: must be an array of objects'],
    'a string for a server': [{ mcpServers: { a: 'postern-demo' } }, ' /mcpServers/a: must be an object'],
    'a string for arguments': [server({ args: '--verbose' }), ' /mcpServers/a/args: must be an array of strings'],
    'a number among arguments': [server({ args: ['--port', 80] }), ' /mcpServers/a/args', 'strings'],
    'an array in the environment': [server({ env: { PORTS: [80] } }), ' /mcpServers/a/env', 'strings'],
    'a word that is not among the choices': [{ log: { level: 'loud' } }, ' /log/level: must be one of "debug", "info", "warn", "error", "off"'],
    'an array at the top': ['[]', 'must be an object'],
    'a number below the minimum': [{ limits: { page_size: 0 } }, ' /limits/page_size: must be between 1 and 100000'],
    'a number above the maximum': [{ limits: { page_size: 100001 } }, ' /limits/page_size: must be between 1 and 100000'],
    'a size too small': [{ limits: { max_body: '1B' } }, ' /limits/max_body: must be between 1024 and 1073741824 bytes'],
    'a size too large': [{ limits: { max_body: '2GiB' } }, ' /limits/max_body: must be between 1024 and 1073741824 bytes'],
    'an invalid size': [{ limits: { max_body: '4 potatoes' } }, ' /limits/max_body: must be a size such as 4096'],
    'a negative duration': [{ timeouts: { list: -1 } }, ' /timeouts/list: must be a duration such as 30 (seconds), "500ms"'],
    'a duration too short': [{ timeouts: { heartbeat: '1ms' } }, ' /timeouts/heartbeat: must be between 100 and 3600000 ms'],
    'a duration too long': [{ timeouts: { heartbeat: '2h' } }, ' /timeouts/heartbeat: must be between 100 and 3600000 ms'],
    'a duration beyond all numbers': [{ timeouts: { list: '999999999999999d' } }, ' /timeouts/list: must be'],
    'a duration that is not a number': [{ timeouts: { list: 'nans' } }, ' /timeouts/list: must be'],
    'a duration without unit': [{ timeouts: { list: '5' } }, ' /timeouts/list: must be a duration'],
    'a server with both command and url': [server({ url: 'http://127.0.0.1:1/mcp' }), ' /mcpServers/a: give either "command" or "url"'],
    'a server with neither command nor url': [{ mcpServers: { a: {} } }, ' /mcpServers/a: give either "command" or "url"'],
    'a type that does not fit the url': [{ mcpServers: { a: { type: 'stdio', url: 'http://127.0.0.1:1/mcp' } } }, ' /mcpServers/a/type: "stdio" needs a "command"'],
    'a type that does not fit the command': [server({ type: 'sse' }), ' /mcpServers/a/type: "sse" needs a "url"'],
    'a url of another scheme': [{ mcpServers: { a: { url: 'ftp://127.0.0.1/mcp' } } }, ' /mcpServers/a/url: must be an absolute http:// or https:// URL'],
    'a relative url': [{ mcpServers: { a: { url: '/mcp' } } }, ' /mcpServers/a/url: must be an absolute http:// or https:// URL'],
    'a name that would be the same as another one': [{ mcpServers: { 'a b': demo, a_b: demo } }, ' /mcpServers/a b: ', 'callers would see this server as "a_b"'],
    'milliseconds as a timeout': [server({ timeout: 30000 }), ' /mcpServers/a/timeout: 30000 would be seconds', '"30000ms" or 30'],
    'hidden tools of a client': [server({ disabledTools: ['x'] }), ' /mcpServers/a/disabledTools: hides tools at a client', '/profiles'],
    'an empty name': [{ mcpServers: { '': demo } }, ' /mcpServers/: ', '1 to 48'],
    'a bad prefix': [server({ prefix: 'a/b' }), ' /mcpServers/a/prefix: ', 'letters, digits'],
    'a repeated prefix': [{ mcpServers: { a: demo, b: { ...demo, prefix: 'a' } } }, ' /mcpServers/b/prefix: "a" is used by "a" already'],
    'a bad separator': [{ separator: ':' }, ' /separator: ', '_ - . /'],
    'an empty separator': [{ separator: '' }, ' /separator: ', '_ - . /'],
    'a long separator': [{ separator: '_'.repeat(9) }, ' /separator: must be 1 to 8'],
    'an address without port': [listenOn('127.0.0.1'), ' /listen/0/address: write ADDRESS:PORT, such as 127.0.0.1:8080'],
    'a port that is a word': [listenOn('127.0.0.1:http'), ' /listen/0/address: write ADDRESS:PORT'],
    'an empty port': [listenOn('127.0.0.1:'), ' /listen/0/address: write ADDRESS:PORT'],
    'a port that is too large': [listenOn('127.0.0.1:99999'), ' /listen/0/address: '],
    'P7 a listener on all of IPv4': [listenOn('0.0.0.0:0'), ...NOT_LOOPBACK, '0.0.0.0:0'],
    'P7 a listener on all of IPv6': [listenOn('[::]:0'), ...NOT_LOOPBACK, '[::]:0'],
    'P7 a public address': [listenOn('192.0.2.1:80'), ...NOT_LOOPBACK, '192.0.2.1:80'],
    'P7 a host name that only begins like loopback': [listenOn('127.example.com:0'), ...NOT_LOOPBACK],
    'P7 loopback beside a public address': [{ listen: [{ address: '127.0.0.1:0' }, { address: '0.0.0.0:0' }], mcpServers: {} }, ' /listen/1/address: ', 'not loopback'],
    'P1 an empty list of providers': [{ auth: { providers: [] } }, ' /auth/providers: must name at least one provider'],
    'P1 a provider that is unknown': [{ auth: { providers: [{ type: 'kerberos' }] } }, ' /auth/providers/0/type: must be one of "none", "bearer", "forwarded-user", "jwt"'],
    'P1 an empty list of a listener': [{ listen: [{ auth: { providers: [] } }] }, ' /listen/0/auth/providers: must name at least one provider'],
    'P7 a listener beyond loopback whose own list proves no identity': [
        { ...provider({ type: 'bearer', tokens: 't.json' }), listen: [{ address: '0.0.0.0:0', auth: { providers: [{ type: 'none' }] } }] },
        ...NOT_LOOPBACK,
        "the listener's auth/providers"
    ],
    'P7 a listener beyond loopback beside one that proves identities': [
        { policy: 'p.json', listen: [{ auth: { providers: [{ type: 'bearer', tokens: 't.json' }] } }, { address: '0.0.0.0:0' }] },
        ' /listen/1/address: ',
        'not loopback'
    ],
    'P12 a proxy of a listener beyond loopback without a secret': [
        { policy: 'p.json', listen: [{ auth: { providers: [{ type: 'forwarded-user', trusted_proxies: ['10.0.0.5'] }] } }] },
        ' /listen/0/auth/providers/0/secret: a proxy beyond loopback must also present a secret'
    ],
    'a listener that proves identities without a policy': [{ listen: [{ auth: { providers: [{ type: 'bearer', tokens: 't.json' }] } }] }, ' /policy: a provider authenticates callers'],
    'P1 a second provider of a type that may occur once': [{ auth: { providers: [{ type: 'none' }, { type: 'none', name: 'b' }] } }, ' /auth/providers/1 (none): only one provider may have this type'],
    'J1 a name shared by two issuers': [issuers({ issuer: 'https://a.example' }, { issuer: 'https://b.example' }), ' /auth/providers/1 (jwt): another provider has the same name; give this one a `name`'],
    'J1 a repeated issuer': [issuers({ issuer: 'https://a.example', name: 'a' }, { issuer: 'https://a.example', name: 'b' }), ' /auth/providers/1 (jwt): another provider of this type has the same issuer'],
    'P2 a name shared by issuers of two listeners': [
        { ...jwt(), listen: [{ auth: jwt({ issuer: 'https://other.example' }).auth }] },
        ' /listen/0/auth/providers/0: another provider has the name "jwt" already'
    ],
    'P2 a name shared by token files of two listeners': [
        { policy: 'p.json', listen: [{ auth: { providers: [{ type: 'bearer', tokens: 'a.json' }] } }, { auth: { providers: [{ type: 'bearer', tokens: 'b.json' }] } }] },
        ' /listen/1/auth/providers/0: another provider has the name "bearer" already'
    ],
    'P2 a name of a provider with a colon': [jwt({ name: 'a:b' }), ' /auth/providers/0/name: must be 1 to 64 letters'],
    'P7 openness of a provider that proves identities': [{ auth: { providers: [{ type: 'bearer', tokens: 't.json', i_know_this_is_open: true }] } }, ' /auth/providers/0/i_know_this_is_open: only for the type "none"'],
    'P11 a forwarded user without trusted proxies': [forwarded({}), ' /auth/providers/0/trusted_proxies: name the addresses of the proxy'],
    'P11 an empty list of trusted proxies': [forwarded({ trusted_proxies: [] }), ' /auth/providers/0/trusted_proxies: name the addresses'],
    'P11 a trusted proxy that is not an address': [forwarded({ trusted_proxies: ['proxy.example'] }), ' /auth/providers/0/trusted_proxies: "proxy.example" is not an address or network'],
    'P11 a network with an invalid prefix length': [forwarded({ trusted_proxies: ['10.0.0.0/33'] }), ' /auth/providers/0/trusted_proxies: "10.0.0.0/33" is not an address or network'],
    'P12 a proxy beyond loopback without a secret or a certificate': [forwarded({ trusted_proxies: ['10.0.0.5'] }), ' /auth/providers/0/secret: a proxy beyond loopback must also present a secret'],
    'P12 every address as a trusted proxy': [forwarded({ trusted_proxies: ['0.0.0.0/0'] }), ' /auth/providers/0/secret: a proxy beyond loopback must'],
    'P12 a secret that is too short': [forwarded({ trusted_proxies: ['10.0.0.5'], secret: 'x'.repeat(31) }), ' /auth/providers/0/secret: must have at least 32 characters'],
    'J1 an issuer without an audience': [jwt({ audiences: undefined }), ' /auth/providers/0: tokens need at least one audience'],
    'J1 an empty list of audiences': [jwt({ audiences: [] }), ' /auth/providers/0: tokens need at least one audience'],
    'J1 a jwt provider without an issuer': [jwt({ issuer: undefined }), ' /auth/providers/0: tokens need an issuer'],
    'J1 a clock skew of more than five minutes': [jwt({ clock_skew: '301s' }), ' /auth/providers/0/clock_skew: must be between 0 and 300000'],
    'J4 an algorithm with a shared secret': [jwt({ algorithms: ['HS256'] }), ' /auth/providers/0: HS256 is not an algorithm'],
    'J4 the algorithm none': [jwt({ algorithms: ['none'] }), ' /auth/providers/0: none is not an algorithm'],
    'J14 a role claim that is not a JSON Pointer': [jwt({ role_claims: ['/groups', 'realm_access.roles'] }), ' /auth/providers/0: "realm_access.roles" is not a JSON pointer'],
    'J16 a tenant claim that is not a JSON Pointer': [jwt({ tenant_claim: 'org' }), ' /auth/providers/0: "org" is not a JSON pointer'],
    'J15 a scope with a quotation mark': [jwt({ required_scopes: ['a"b'] }), ' /auth/providers/0/required_scopes: "a"b" is not the name of a scope'],
    'a redaction pointer that is not a JSON Pointer': [{ audit: { redact: { pointers: ['user/mail'] } } }, ' /audit/redact/pointers/0: not a JSON Pointer'],
    'a variable that is not set': [server({ env: { TOKEN: '${SECRET_TOKEN}' } }), ' /mcpServers/a/env', 'SECRET_TOKEN is not set', '${SECRET_TOKEN:-default}'],
    'a variable that is not set, in a header': [{ mcpServers: { a: { url: 'http://127.0.0.1:1/mcp', headers: { Authorization: 'Bearer ${SECRET_TOKEN}' } } } }, ' /mcpServers/a/headers', 'SECRET_TOKEN is not set'],
    'a variable that is not closed': [server({ args: ['${HOME'] }), ' /mcpServers/a/args: "${" without "}"'],
    'a repeated key': ['{"mcpServers": {},\n "mcpServers": {}}', ':2:', 'duplicate', 'mcpServers'],
    'a repeated server': ['{"mcpServers": {"a": {"command": "x"},\n "a": {"command": "y"}}}', ':2:', 'duplicate', '"a"'],
    'a text that is not JSON': ['mcpServers:\n  a: x\n', ':1:'],
    'a truncated JSON text': ['{"mcpServers": {\n', ':2:'],
    'a text after the end': ['{"mcpServers": {}} {}', ':1:'],
    'a comment that does not end': ['{\n/* servers\n"mcpServers": {}}', ':2:'],
    'two commas': ['{"mcpServers": {},,}', ':1:19:'],
    'an empty file': ['', ':1:']
};

describe('mistakes that config check finds', () => {
    for (const [name, [config, ...wanted]] of Object.entries(mistakes)) {
        test(`${name} is refused`, async () => refused(await run(config), ...wanted));
    }
    test('a missing configuration file is refused', async () => {
        const missing = join(directory.path, 'missing.json');
        const { status, stderr } = await execute(['config', 'check', '--config', missing]);
        assert.equal(status, 3);
        assert.match(stderr, /^postern: .*missing\.json: No such file or directory\n$/);
    });
    test('a directory as configuration is refused', async () => {
        const path = join(directory.path, 'directory');
        mkdirSync(path);
        const { status, stderr } = await execute(['config', 'check', '--config', path]);
        assert.equal(status, 3);
        assert.match(stderr, /^postern: .*directory: .*directory\n$/);
    });
});

describe('commands with a wrong configuration', () => {
    for (const line of ['serve', 'serve --stdio', 'tools', 'resources', 'prompts', 'servers', 'call a echo', 'read a demo://welcome', 'prompt a x', 'config show']) {
        test(`${line} refuses a wrong configuration`, async () => refused(await run({ mcpserver: {} }, line.split(' ')), ' /mcpserver: unknown key', 'mcpServers'));
    }
});

describe('configurations that config check accepts', () => {
    const right = {
        'an empty object': {},
        'a loopback address in each form': { listen: ['127.0.0.1:0', '127.1.2.3:80', '[::1]:8080', 'localhost:8080'].map(address => ({ address })) },
        'a variable with a default': server({ args: ['${SECRET_TOKEN:-none}', '${SECRET_TOKEN:-}'] }),
        'a duration or size in each form': { timeouts: { list: 1.5, heartbeat: '1m', retry: '2 s', ask: '1h' }, limits: { max_body: 4096, max_message: '1MiB', stream_buffer: '64 KB' } },
        'a reference to its schema': { $schema: './postern.schema.json', mcpServers: {} },
        'a server without prefix': server({ prefix: false }),
        'a comment and a comma at the end': '{ // the servers\n"mcpServers": {/* none */},\n}',
        'a number in the environment': server({ env: { PORT: 80 } }),
        'a server as a client has it': { servers: { a: { type: 'streamableHttp', serverUrl: 'http://127.0.0.1:1/mcp', enabled: true, description: 'x' } } },
        'the type streamable-http': { mcpServers: { a: { type: 'streamable-http', url: 'http://127.0.0.1:1/mcp' } } }
    };
    for (const [name, config] of Object.entries(right)) {
        test(`${name} is accepted`, async () => {
            const { status, stdout, stderr } = await run(config);
            assert.deepEqual([status, stderr], [0, '']);
            assert.ok(stdout.startsWith(`${file}: ok`), stdout);
        });
    }
    test('every problem is reported with its line and column, in their order', async () => {
        const text = '{ // servers\n  "mcpServers": {\n    "a": { "comand": "x" },\n    "b": { "url": "http://127.0.0.1:1/", "timeout": 60000 }\n  },\n  "prefx": true\n}\n';
        const { status, stderr } = await run(text);
        assert.equal(status, 3);
        assert.deepEqual(stderr.split('\n').map(line => /postern\.json:(\d+:\d+): (\S+): /.exec(line)?.slice(1)), [['3:12', '/mcpServers/a/comand'], ['4:42', '/mcpServers/b/timeout'], ['6:3', '/prefx'], undefined]);
    });
    test('settings of clients and changed names are noted', async () => {
        const { status, stdout, stderr } = await run({ mcpServers: { 'My Server': { ...demo, autoApprove: ['x'] }, b: { ...demo, alwaysAllow: [], autoApprove: [] } } });
        assert.deepEqual([status, stdout], [0, `${file}: ok, 2 servers\n`]);
        assert.equal(stderr, 'postern: note: server "My Server" is called "My_Server" here, in names of tools and in policies\npostern: note: autoApprove, alwaysAllow: settings for clients, without effect in a gateway\n');
    });
    test('a variable that is set is accepted', async () => {
        const { status, stderr } = await run(server({ env: { TOKEN: '${SECRET_TOKEN}' } }), ['config', 'check'], { SECRET_TOKEN: 'x' });
        assert.deepEqual([status, stderr], [0, '']);
    });
});

/** A policy with one rule, for these servers. */
const policy = (...servers) => ({
    version: 1,
    description: 'The policy of the configuration tests',
    rules: [{ id: 'all', effect: 'allow', description: 'every caller may use them', tenants: ['*'], subjects: ['authenticated'], servers, kinds: ['tool'], names: ['*'] }]
});
const beside = (name, content) => writeFileSync(join(directory.path, name), typeof content === 'string' ? content : JSON.stringify(content));
const bearer = more => ({ auth: { providers: [{ type: 'bearer', tokens: 'tokens.json' }] }, policy: 'policy.json', mcpServers: { a: demo }, ...more });
const tls = files => ({ listen: [{ address: '127.0.0.1:0', tls: files }] });

describe('config check and serve', () => {
    before(() => {
        beside('policy.json', policy('a'));
        beside('tokens.json', { version: 1, tokens: [] });
        beside('not.pem', 'no certificate');
        mkdirSync(join(directory.path, 'folder'));
        beside('folder/00-policy.json', policy('a'));
        beside('folder/postern.json', { mcpServers: {} });
    });

    // name: [configuration, what both say]
    const refusals = {
        'a missing policy': [bearer({ policy: 'missing.json' }), 'missing.json: No such file'],
        'a policy about an unknown server': [bearer({ mcpServers: { b: demo } }), 'server "a" does not exist in the configuration'],
        'a policy folder with a configuration in it': [bearer({ policy: 'folder' }), 'folder/postern.json: E1 is a configuration, not a policy'],
        "a missing policy of a tenant": [bearer({ tenants: { acme: { policy: 'acme.json' } } }), 'acme.json: No such file'],
        'a missing token file': [bearer({ auth: { providers: [{ type: 'bearer', tokens: 'nowhere.json' }] } }), 'nowhere.json'],
        'a missing certificate': [tls({ certificate: 'missing.pem', key: 'missing.pem' }), 'missing.pem'],
        'an invalid certificate': [tls({ certificate: 'not.pem', key: 'not.pem' }), 'not.pem'],
        'a missing key of the vault': [
            { vault: { key_file: 'vault.key' }, mcpServers: { a: { url: 'https://a.example/mcp', auth: { mode: 'shared' } } } },
            "vault.key: cannot read the vault's keys: No such file"
        ]
    };
    for (const [name, [config, wanted]] of Object.entries(refusals)) {
        test(`${name} is refused by config check and serve`, async () => {
            const environment = { POSTERN_STATE: join(directory.path, 'state') };
            refused(await run(config, ['config', 'check'], environment), wanted);
            const { status, stderr } = await run(config, ['serve'], environment);
            assert.equal(status, 3, stderr);
            assert.ok(stderr.includes(wanted), `${wanted} in: ${stderr}`);
        });
    }
    test('a valid configuration is accepted by config check and serve', async () => {
        const { status, stdout, stderr } = await run(bearer());
        assert.deepEqual([status, stdout, stderr], [0, `${file}: ok, 1 server\n`, '']);
    });
});

describe('servers that config check examines', () => {
    const programs = {
        'a command that is not in PATH': [{ command: 'no-such-program' }, '/command: "no-such-program" is not in PATH'],
        'a command with its arguments in it': [{ command: 'npx -y some-server' }, '/command: "npx -y some-server" is not a program; put its arguments in "args"'],
        'a path that is not a program': [{ command: './postern.json', cwd: directory.path }, `/command: ${directory.path}/./postern.json is not an executable file`],
        'a missing private key': [
            { url: 'https://a.example/mcp', auth: { mode: 'client_credentials', client_id: 'x', private_key_file: '/nowhere/key.pem' } },
            '/auth/private_key_file: /nowhere/key.pem: No such file'
        ]
    };
    for (const [name, [entry, wanted]] of Object.entries(programs)) {
        test(`${name} is refused`, async () => refused(await run({ mcpServers: { a: entry } }), ` /mcpServers/a${wanted}`));
    }
    test('config check reports every wrong server, also of tenants', async () => {
        const { status, stderr } = await run({ mcpServers: { a: { command: 'none-1' } }, tenants: { acme: { mcpServers: { b: { command: 'none-2' } } } } });
        assert.equal(status, 3);
        assert.match(stderr, /^postern: .* \/mcpServers\/a\/command: .*\npostern: .* \/tenants\/acme\/mcpServers\/b\/command: .*\n$/);
    });
    test('config check ignores disabled servers', async () => assert.equal((await run({ mcpServers: { a: { command: 'no-such-program', disabled: true } } })).status, 0));
    test('config check finds a program in the cwd and one with a space in its path', async () => {
        const folder = join(directory.path, 'My Programs');
        mkdirSync(folder);
        writeFileSync(join(folder, 'server'), '#!/bin/sh\n', { mode: 0o755 });
        for (const entry of [{ command: './server', cwd: folder }, { command: join(folder, 'server') }]) {
            const { status, stderr } = await run({ mcpServers: { a: entry } });
            assert.deepEqual([status, stderr], [0, '']);
        }
    });
    test('serve starts with a server that cannot work and logs a warning', async () => {
        const gateway = await startGateway({ mcpServers: { a: { command: 'npx -y some-server' } } });
        await gateway.line(/server cannot work as configured.*\/mcpServers\/a\/command.*put its arguments in/);
        await gateway.stop();
    });
    test('config check counts servers of tenants', async () => {
        const tenants = { acme: { mcpServers: { a: demo, b: demo } }, empty: {} };
        assert.equal((await run({ tenants })).stdout, `${file}: ok, 2 servers in 1 tenant\n`);
        assert.equal((await run({ mcpServers: { c: demo }, tenants })).stdout, `${file}: ok, 3 servers in 2 tenants\n`);
    });
});

describe('config check --offline', () => {
    const offline = config => run(config, ['config', 'check', '--offline']);
    const production = {
        listen: [{ address: '${LISTEN}', tls: { certificate: '/nowhere/tls.crt', key: '/nowhere/tls.key' } }],
        public_url: '${PUBLIC_URL}',
        auth: { providers: [{ type: 'forwarded-user', trusted_proxies: ['10.0.0.5'], secret: '${PROXY_SECRET}' }, { type: 'bearer', tokens: '/nowhere/tokens.json' }] },
        policy: 'policy.json',
        mcpServers: { a: { command: 'no-such-program', env: { TOKEN: '${SECRET_TOKEN}', AGAIN: '${SECRET_TOKEN}' } }, b: { url: '${B_URL}' } }
    };
    test('--offline notes each variable that is not set and does not need the host', async () => {
        const { status, stdout, stderr } = await offline(production);
        assert.deepEqual([status, stdout], [0, `${file}: ok, 2 servers\n`], stderr);
        assert.deepEqual(
            stderr.match(/note: \w+ is not set/g),
            ['LISTEN', 'PUBLIC_URL', 'PROXY_SECRET', 'SECRET_TOKEN', 'B_URL'].map(name => `note: ${name} is not set`)
        );
    });
    test('the same configuration is refused without --offline, and every variable is named', async () => {
        const { status, stderr } = await run(production);
        assert.equal(status, 3);
        assert.deepEqual(stderr.match(/\w+ is not set/g), ['LISTEN', 'PUBLIC_URL', 'PROXY_SECRET', 'SECRET_TOKEN', 'B_URL'].map(name => `${name} is not set`));
        assert.match(stderr, /^(postern: .*postern\.json:1:\d+: \/.*\n){5}$/);
    });
    const wrong = {
        'an unknown key': [{ mcpServers: { a: { ...demo, env: { T: '${SECRET_TOKEN}' }, comand: 'x' } } }, '/mcpServers/a/comand: unknown key'],
        'a broken policy': [bearer({ policy: 'missing.json' }), 'missing.json'],
        'a mistake beside a variable': [bearer({ separator: ':', mcpServers: { a: { ...demo, env: { T: '${SECRET_TOKEN}' } } } }), '/separator: ']
    };
    for (const [name, [config, wanted]] of Object.entries(wrong)) {
        test(`--offline refuses ${name}`, async () => {
            const { status, stderr } = await offline(config);
            assert.equal(status, 3);
            assert.ok(stderr.includes(wanted), stderr);
        });
    }
    test('--offline is not an option of serve or config show', async () => {
        for (const line of [['serve', '--offline'], ['config', 'show', '--offline']]) assert.equal((await run(production, line)).status, 2);
    });
    test('policy check accepts --offline', async () => {
        writeFileSync(file, JSON.stringify(production));
        const path = join(directory.path, 'policy.json');
        assert.equal((await execute(['policy', 'check', path, '--config', file])).status, 3);
        const { status, stdout, stderr } = await execute(['policy', 'check', path, '--config', file, '--offline']);
        assert.equal(status, 0, stdout + stderr);
        assert.match(stderr, /note: SECRET_TOKEN is not set/);
    });
});

test('a missing file is reported with the folder where it was expected', async () => {
    for (const [args, env] of [[['--config', 'missing.json'], {}], [[], { POSTERN_CONFIG: 'missing.json' }]]) {
        const { status, stderr } = await execute(['serve', '--stdio', ...args], env);
        assert.deepEqual([status, stderr], [3, `postern: ${join(process.cwd(), 'missing.json')}: No such file or directory\n`]);
    }
});

describe('addresses that serve refuses', () => {
    let taken;
    before(async () => {
        taken = createServer().listen(0, '127.0.0.1');
        await once(taken, 'listening');
    });
    after(() => taken.close());

    const serve = (...args) => {
        writeFileSync(file, '{"mcpServers": {}}');
        return execute(['serve', '--config', file, ...args]);
    };

    test('a port that is in use is an error that says what to do', async () => {
        const address = `127.0.0.1:${taken.address().port}`;
        for (const { status, stderr } of [await run(listenOn(address), ['serve']), await serve('--listen', address)]) {
            assert.equal(status, 3, stderr);
            assert.match(stderr, /Address already in use/);
            assert.ok(stderr.includes(address) && stderr.includes('--listen'), stderr);
        }
    });
    for (const address of ['0.0.0.0:0', '[::]:0', '192.0.2.1:80', '127.example.com:0']) {
        test(`--listen ${address} beyond loopback is refused`, async () => {
            const { status, stderr } = await serve('--listen', address);
            assert.equal(status, 3, stderr);
            assert.match(stderr, /^postern: .*not loopback.*127\.0\.0\.1.*\n$/);
            assert.ok(stderr.includes(address));
        });
    }
    for (const address of ['8080', '127.0.0.1', '127.0.0.1:', '127.0.0.1:http', '127.0.0.1:99999']) {
        test(`--listen ${address} without a valid port is refused`, async () => {
            const { status, stderr } = await serve('--listen', address);
            assert.equal(status, 3, stderr);
            assert.match(stderr, /^postern: .*\n$/);
            assert.ok(stderr.includes(address), stderr);
        });
    }
});
