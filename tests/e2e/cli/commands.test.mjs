// Every command as a user sees it: help, mistakes, output on a terminal and in a pipe, exit status.
import assert from 'node:assert/strict';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { fileURLToPath } from 'node:url';

import { commandLine, EXIT, quote } from '../command-line.mjs';
import { binary, startGateway, stdioServer, temporaryDirectory } from '../gateway.mjs';

const { OK, NEGATIVE, USAGE, CONFIG, UNAVAILABLE } = EXIT;
const COMMANDS = ['serve', 'tools', 'resources', 'prompts', 'info', 'call', 'read', 'prompt', 'servers', 'status', 'logs', 'reload', 'restart', 'disable', 'enable', 'config', 'token', 'policy', 'audit', 'login', 'logout',
    'connections', 'doctor', 'vault', 'version', 'help', 'completion'];

const root = fileURLToPath(new URL('../../..', import.meta.url));
const mirror = join(root, 'tests/peers/mirror');
const demo = { command: join(dirname(binary), 'postern-demo') };
const directory = temporaryDirectory();
const home = join(directory.path, 'home');
after(() => directory.remove());

/** Writes a configuration and returns its path. */
function configure(config, name = 'servers.json') {
    const path = join(directory.path, name);
    writeFileSync(path, JSON.stringify(config));
    return path;
}

mkdirSync(home);
const working = configure({ mcpServers: { demo, other: { command: mirror } } });
const partly = configure({ mcpServers: { broken: { command: '/no/such/program' }, demo, off: { ...demo, disabled: true } } }, 'partly.json');

const { execute, run, onTerminal, json, fails } = commandLine(home);

describe('help', () => {
    for (const arg of ['--help', 'help', '-h']) {
        test(`postern ${arg} names every command and the exit status`, async () => {
            const { status, stdout, stderr } = await run([arg]);
            assert.deepEqual([status, stderr], [OK, '']);
            for (const command of COMMANDS) assert.match(stdout, new RegExp(`^  ${command} +\\S`, 'm'));
            assert.match(stdout, /^usage: postern COMMAND/);
            assert.match(stdout, /Exit status: 0 .* 1 .* 2 .* 3 .* 4 /);
        });
    }
    test('postern without arguments prints its help on standard error', async () => {
        const { status, stdout, stderr } = await run([]);
        assert.deepEqual([status, stdout], [USAGE, '']);
        assert.match(stderr, /^usage: postern COMMAND/);
    });
    for (const command of COMMANDS) {
        test(`postern ${command} --help prints the help of the command`, async () => {
            const { status, stdout, stderr } = await run([command, '--help']);
            assert.deepEqual([status, stderr], [OK, '']);
            assert.match(stdout, new RegExp(`^usage: postern ${command}\\b`));
            assert.match(stdout, /^options:$/m);
            assert.match(stdout, /^  --help, -h /m);
            for (const line of stdout.split('\n')) assert.ok(line.length <= 120, line);
            for (const flag of stdout.split('\n')[0].match(/--[a-z]+/g) ?? []) assert.match(stdout, new RegExp(`^  ${flag} `, 'm'), `${flag} is explained`);
        });
    }
});

describe('help of one command', () => {
    test('postern help COMMAND and postern COMMAND -h are the same as --help', async () => {
        const { stdout } = await run(['tools', '--help']);
        for (const args of [['help', 'tools'], ['tools', '-h']]) assert.deepEqual(await run(args), { status: OK, stdout, stderr: '' });
    });
    test('postern help of an unknown command is an error with a suggestion', () => fails(['help', 'tolls'], USAGE, /'tolls'.*did you mean 'tools'\?/));
});

describe('control characters of a server', () => {
    const evil = 'a\\u001b[31mb\\u009b2Jc\\u0000d';
    const steers = /[\x00-\x09\x0b-\x1f\x7f-\x9f]/;
    const call = (tool, raw) => onTerminal(['call', '--config', working, 'other', tool, JSON.stringify({ raw })]);
    test('control characters in an answer do not reach the terminal', async () => {
        const { shown } = await call('reply', `{"content":[{"type":"text","text":"${evil}"}]}`);
        assert.doesNotMatch(shown, steers);
        assert.match(shown, /^a \[31mb {2}2Jc d\n$/);
    });
    test('control characters in an error do not reach the terminal', async () => {
        const { shown } = await call('refuse', `{"code":-1,"message":"${evil}"}`);
        assert.doesNotMatch(shown, steers);
        assert.match(shown, /a \[31mb/);
    });
    test('control characters in a table do not reach the terminal', async () => {
        const named = configure({ mcpServers: { other: { command: mirror, args: ['--tools', JSON.stringify(['x\x1b[31my'])] } } }, 'evil.json');
        const { stdout } = await execute('script', ['-qec', [binary, 'tools', '--config', named].map(quote).join(' '), '/dev/null'], { env: { NO_COLOR: '1' } });
        assert.match(stdout, /x \[31my/);
        assert.ok(!stdout.includes('\x1b'), 'no bold, as NO_COLOR says, and nothing of the server');
    });
});

describe('standard output', () => {
    test('standard output that cannot be written is an error', async () => {
        const { status, stderr } = await execute('sh', ['-c', `${quote(binary)} config docs >/dev/full`]);
        assert.equal(status, UNAVAILABLE);
        assert.match(stderr, /^postern: standard output: No space left on device\n$/);
    });
    test('standard output without a reader is not an error', async () => {
        const { status, stdout, stderr } = await execute('bash', ['-c', `${quote(binary)} config docs | head -1; exit \${PIPESTATUS[0]}`]);
        assert.deepEqual([status, stdout, stderr], [OK, '# Configuration\n', '']);
    });
});

describe('completion', () => {
    const postern = dirname(binary);
    /** The completions that a real bash offers after this line, with the cursor at its end. */
    async function offers(line) {
        const script = `PATH=${quote(postern)}:$PATH; source <(postern completion bash)
            complete -p postern >/dev/null || exit 1
            read -ra COMP_WORDS <<<${quote(line)}; [[ ${quote(line)} != *' ' ]] || COMP_WORDS+=('')
            COMP_CWORD=$((\${#COMP_WORDS[@]} - 1)); _postern; printf '%s\\n' "\${COMPREPLY[@]}"`;
        const { status, stdout, stderr } = await execute('bash', ['-c', script], { cwd: directory.path, env: { POSTERN_CONFIG: working } });
        assert.deepEqual([status, stderr], [OK, '']);
        return stdout.split('\n').filter(Boolean);
    }

    test('bash completion offers commands', async () => {
        assert.deepEqual((await offers('postern ')).sort(), [...COMMANDS].sort());
        assert.deepEqual(await offers('postern co'), ['config', 'connections', 'completion']);
        assert.deepEqual(await offers('postern help ve'), ['version']);
    });
    test('bash completion offers words and options of a command', async () => {
        assert.deepEqual(await offers('postern vault '), ['status', 'rotate']);
        assert.deepEqual(await offers('postern login --ca'), ['--callback-host', '--callback-port']);
        assert.deepEqual(await offers('postern audit -'), ['--config', '--file', '--since', '--until', '--subject', '--tenant', '--server', '--tool', '--denied', '--limit', '--follow', '-f', '--json', '--help', '-h']);
        assert.deepEqual(await offers('postern vault --'), ['--config', '--json', '--help']);
    });
    test('bash completion offers servers of the configuration', async () => {
        assert.deepEqual(await offers('postern call '), ['demo', 'other']);
        assert.deepEqual(await offers('postern audit --server d'), ['demo']);
        assert.deepEqual(await offers(`postern tools --config ${partly} `), ['broken', 'demo', 'off']);
        assert.deepEqual(await offers('postern tools --config /no/such/file '), []);
    });
    test('bash completion offers files only after options that take a file', async () => {
        assert.deepEqual(await offers('postern tools --config ser'), ['servers.json']);
        assert.deepEqual(await offers('postern policy check part'), ['partly.json']);
        assert.deepEqual(await offers('postern tools --search ser'), []);
    });
    test('completion for an unknown shell is an error', () => fails(['completion', 'csh'], USAGE, /bash, zsh, fish/));

    for (const [shell, check] of [['zsh', '-n'], ['fish', '--no-execute']])
        test(`${shell} accepts its completion script`, async t => {
            if ((await execute('sh', ['-c', `command -v ${shell}`])).status !== OK) return t.skip('it is not installed');
            const script = join(directory.path, `completion.${shell}`);
            writeFileSync(script, (await run(['completion', shell])).stdout);
            assert.deepEqual(await execute(shell, [check, script]), { status: OK, stdout: '', stderr: '' });
        });
});

describe('manual pages', () => {
    for (const [page, words] of [['postern.1', ['NAME', 'COMMANDS', 'EXIT STATUS', 'ENVIRONMENT', 'FILES', ...COMMANDS]], ['postern.json.5', ['listen', 'mcpServers', 'ca_file', 'per_user']]])
        test(`${page} matches the tables and man shows it without a warning`, async t => {
            const source = (await run(page === 'postern.1' ? ['help', '--man'] : ['config', 'man'])).stdout;
            assert.equal(source, readFileSync(join(root, 'docs/man', page), 'utf8'), 'tests/lint/man-pages --fix');
            const shown = await execute('man', ['--warnings', '-E', 'UTF-8', '-P', 'cat', '-l', join(root, 'docs/man', page)], { env: { MANWIDTH: '80', LC_ALL: 'C.UTF-8' } });
            if (shown.status === null) return t.skip('man is not installed');
            assert.deepEqual([shown.status, shown.stderr], [OK, '']);
            const text = shown.stdout.replace(/.\x08|\x1b\[[0-9;]*m/g, '');
            for (const word of words) assert.ok(text.includes(word), word);
        });
});

test('an installation has the program, manual pages, completions and example policies', async t => {
    const to = join(directory.path, 'installed');
    const { status, stderr } = await execute('cmake', ['--install', dirname(binary), '--prefix', to]);
    if (status === null) return t.skip('cmake is not installed');
    assert.equal(status, OK, stderr);
    const files = ['bin/postern', 'share/man/man1/postern.1', 'share/man/man5/postern.json.5', 'share/bash-completion/completions/postern',
        'share/zsh/site-functions/_postern', 'share/fish/vendor_completions.d/postern.fish', 'share/doc/postern/policies/example/00-baseline.json'];
    for (const file of files) assert.ok(readFileSync(join(to, file)).length > 0, file);
    assert.deepEqual(JSON.parse((await execute(join(to, 'bin/postern'), ['version'])).stdout), await json(['version']));
    assert.equal(readFileSync(join(to, files[3]), 'utf8'), (await run(['completion', 'bash'])).stdout);
    assert.equal((await execute(join(to, 'bin/postern'), ['policy', 'check', join(to, 'share/doc/postern/policies/example')])).status, OK);
});

describe('mistakes on the command line', () => {
    const cases = {
        'an option before the command': [['--config', 'x', 'tools'], /^postern: --config: the command comes first/],
        'a value for a switch': [['tools', '--json=yes'], /--json takes no value/],
        'an option with one dash': [['tools', '-v'], /unknown option -v.*begin with --/],
        'a misspelt command': [['tolls'], /'tolls'.*did you mean 'tools'\?/],
        'a command unlike any other': [['qqqqqqqq'], /'qqqqqqqq'.*postern --help/],
        'a misspelt option': [['tools', '--serch', 'x'], /--serch; did you mean --search\?/],
        'a misspelt option with a value': [['tools', '--confg=/a/long/path/to/postern.json'], /--confg\b.*did you mean --config\?/],
        'an option unlike any other': [['tools', '--qqqqqqqq'], /unknown option --qqqqqqqq.*--help/],
        'an option of another command': [['version', '--search', 'x'], /unknown option --search/],
        'an option without its value': [['tools', '--config'], /--config needs a FILE/],
        'an extra argument': [['tools', 'a', 'b'], /unexpected argument 'b'.*usage: postern tools/],
        'a missing argument': [['call', 'demo'], /usage: postern call SERVER TOOL/],
        'config without a word': [['config'], /usage: postern config/],
        'config with an unknown word': [['config', 'chekc'], /chekc.*check, show, diff, schema, docs or man/],
        'a server beside --url': [['call', '--url', 'http://127.0.0.1:1/mcp', 'demo', 'echo', '{}'], /--url/]
    };
    for (const [name, [args, pattern]] of Object.entries(cases)) test(`${name} is an error`, () => fails(args, USAGE, pattern));
});

describe('version', () => {
    test('version prints JSON in a pipe', async () => {
        const { version, revisions } = await json(['version']);
        assert.match(version, /^\d+\.\d+\.\d+$/);
        assert.deepEqual(revisions, ['2024-11-05', '2025-03-26', '2025-06-18', '2025-11-25']);
        assert.deepEqual(await json(['--version']), { version, revisions });
    });
    test('version prints a line on a terminal', async () => {
        const { status, shown } = await onTerminal(['version']);
        assert.equal(status, OK);
        assert.match(shown, /^postern \d+\.\d+\.\d+ \(MCP 2024-11-05 to 2025-11-25\)\n$/);
    });
});

describe('the search for a configuration', () => {
    const check = options => run(['config', 'check'], options);

    test('a missing configuration is an error that says what to do', () => fails(['tools'], CONFIG, /no configuration.*--config FILE.*postern\.json/));
    test('the configuration is found in $POSTERN_CONFIG', async () => {
        const { status, stdout } = await check({ env: { POSTERN_CONFIG: working } });
        assert.deepEqual([status, stdout], [OK, `${working}: ok, 2 servers\n`]);
    });
    test('the configuration is found in the working directory before the home directory', async () => {
        const cwd = join(directory.path, 'cwd');
        mkdirSync(cwd);
        writeFileSync(join(cwd, 'postern.json'), '{"mcpServers": {}}');
        const { status, stdout } = await check({ cwd });
        assert.deepEqual([status, stdout], [OK, 'postern.json: ok, 0 servers\n']);
    });
    test('the configuration is found in $XDG_CONFIG_HOME and ~/.config', async () => {
        const HOME = join(directory.path, 'other-home');
        for (const [env, base] of [[{ HOME, XDG_CONFIG_HOME: join(HOME, 'xdg') }, join(HOME, 'xdg')], [{ HOME }, join(HOME, '.config')]]) {
            mkdirSync(join(base, 'postern'), { recursive: true });
            const path = join(base, 'postern/postern.json');
            writeFileSync(path, '{"mcpServers": {}}');
            const { status, stdout } = await check({ env });
            assert.deepEqual([status, stdout], [OK, `${path}: ok, 0 servers\n`]);
        }
    });
    test('--config=FILE comes before all other places', async () => {
        const { stdout } = await run(['config', 'check', `--config=${working}`], { env: { POSTERN_CONFIG: partly } });
        assert.equal(stdout, `${working}: ok, 2 servers\n`);
    });
});

describe('tools, resources and prompts', () => {
    const list = (command, ...args) => [command, '--config', working, ...args];

    test('tools lists all servers with every member', async () => {
        const tools = await json(list('tools'));
        assert.deepEqual([...new Set(tools.map(({ server }) => server))], ['demo', 'other']);
        const [echo] = tools;
        assert.equal(echo.name, 'echo');
        for (const member of ['title', 'description', 'inputSchema', 'annotations']) assert.ok(member in echo, member);
        const { stdout } = await run(list('tools', 'other', '--search', 'odd'));
        assert.ok(stdout.includes('"maximum":1e400,"minimum":-0,"multipleOf":0.10,"const":12345678901234567890'), stdout);
        assert.ok(stdout.includes('"_meta":{"vendor.example/flag":{"n":1E+2}}'), stdout);
    });
    test('tools lists one server and searches', async () => {
        assert.deepEqual((await json(list('tools', 'demo'))).map(({ name }) => name), ['echo', 'add', 'now']);
        assert.deepEqual((await json(list('tools', 'demo', '--search', 'SUM'))).map(({ name }) => name), ['add']);
        assert.deepEqual(await json(list('tools', '--search', 'no such text')), []);
    });
    test('resources lists templates too', async () => {
        const found = await json(list('resources', 'demo'));
        assert.deepEqual(found.map(({ uri, uriTemplate }) => uri ?? uriTemplate), ['demo://welcome', 'demo://greeting/{name}']);
        assert.equal((await json(list('resources', '--search', 'greeting'))).length, 1);
    });
    test('prompts of all servers are listed', async () => {
        assert.deepEqual((await json(list('prompts'))).map(({ server, name }) => `${server}/${name}`), ['demo/introduce', 'other/ask']);
    });
    for (const [command, title, row] of [
        ['tools', 'TOOL', /^demo +add +Adds two numbers/m],
        ['resources', 'RESOURCE', /^demo +demo:\/\/welcome +A few/m],
        ['prompts', 'PROMPT', /^demo +introduce +Asks/m]
    ]) {
        test(`${command} prints a table on a terminal and JSON with --json`, async () => {
            const { status, shown } = await onTerminal(list(command));
            assert.equal(status, OK);
            assert.match(shown, new RegExp(`^SERVER +${title} +DESCRIPTION\\n`));
            assert.match(shown, row);
            const asked = await onTerminal(list(command, '--json'));
            assert.deepEqual(JSON.parse(asked.shown), await json(list(command)));
        });
    }
    test('a list of an unknown server is an error with a suggestion', async () => {
        await fails(list('tools', 'dmo'), CONFIG, /server "dmo" does not exist.*did you mean "demo"\?/);
        await fails(list('tools', 'qqqqqqqq'), CONFIG, /server "qqqqqqqq" does not exist.*postern servers/);
    });
    test('a broken server does not hide the others and the exit status is 4', async () => {
        const { status, stdout, stderr } = await run(['tools', '--config', partly]);
        assert.equal(status, UNAVAILABLE);
        assert.match(stderr, /^postern: server "broken": .*No such file or directory\n$/);
        assert.deepEqual(JSON.parse(stdout).map(({ server, name }) => `${server}/${name}`), ['demo/echo', 'demo/add', 'demo/now']);
    });
});

describe('unknown servers and absent logins', () => {
    const state = () => ({ env: { POSTERN_STATE: join(directory.path, 'state') } });
    for (const command of ['login', 'doctor', 'logout'])
        test(`${command} of an unknown server suggests a similar name`, () => fails([command, 'dmo', '--config', working], CONFIG, /server "dmo" does not exist .*did you mean "demo"\?/, state()));
    test('logout reports an absent login', async () => {
        const web = configure({ mcpServers: { web: { url: 'http://127.0.0.1:1/mcp' } } }, 'web.json');
        for (const [args, said] of [[['web'], 'Not logged in to web\n'], [['--all'], 'Not logged in\n']])
            assert.deepEqual(await run(['logout', ...args, '--config', web], state()), { status: OK, stdout: '', stderr: said });
    });
    test('connections reports on a terminal that it is empty', async () => assert.match((await onTerminal(['connections', '--config', working], state())).shown, /^The store does not contain any grants; to log in, run 'postern login SERVER'\n$/));
});

describe('call', () => {
    const call = (...args) => ['call', '--config', working, ...args];
    const hello = '{"message":"hello\\nworld é"}';

    test('call prints the whole result in a pipe', async () => {
        assert.deepEqual(await json(call('demo', 'echo', hello)), { content: [{ type: 'text', text: 'hello\nworld é' }] });
    });
    test('call prints the text on a terminal and JSON with --json', async () => {
        assert.deepEqual(await onTerminal(call('demo', 'echo', hello)), { status: OK, shown: 'hello\nworld é\n' });
        const { shown } = await onTerminal(call('demo', 'echo', hello, '--json'));
        assert.equal(JSON.parse(shown).content[0].text, 'hello\nworld é');
    });
    test('--defaults answers a form with its defaults, and declines where a required one is missing', async () => {
        const asking = configure({ mcpServers: { fixture: stdioServer.fixture() } }, 'asking.json');
        const ask = async (tool, args) => (await json(['call', '--config', asking, 'fixture', tool, args, '--defaults'])).content[0].text;
        assert.match(await ask('test_elicitation_sep1034_defaults', '{}'), /accept.*John Doe.*95\.5/);
        assert.match(await ask('test_elicitation', '{"message":"who?"}'), /decline/);
    });
    test('call reads arguments from standard input', async () => {
        assert.equal((await json(call('demo', 'echo', '-'), OK, { input: hello })).content[0].text, 'hello\nworld é');
        await fails(call('demo', 'echo', '-'), USAGE, /JSON object/, { input: '' });
    });
    test('a tool is called without arguments', async () => assert.ok((await json(call('demo', 'now'))).structuredContent.unix > 0));
    test('arguments and result of a call pass unchanged', async () => {
        const args = '{"n":1.00,"big":12345678901234567890}';
        const seen = await json(call('other', 'mirror', args));
        assert.ok(seen.content[0].text.endsWith(`"arguments":${args}}}`), seen.content[0].text);
        const raw = '{"content":[],"structuredContent":{"n":1.00,"big":12345678901234567890}}';
        assert.equal((await run(call('other', 'reply', JSON.stringify({ raw })))).stdout, `${raw}\n`);
    });
    for (const [given, why] of [['{"message":', /: byte \d+/], ['hello', /^postern: "hello": /], ['{"a":1,"a":2}', /duplicate/], ['[1]', /object such as .*name=value\n$/], ['', /object/]]) {
        test(`arguments that are not a JSON object are an error with the reason: ${given}`, async () => {
            await fails(call('demo', 'echo', given), USAGE, /^postern: (?!.*must.*must).*must be a JSON object/);
            await fails(call('demo', 'echo', given), USAGE, why);
        });
    }
    test('a tool that reports an error prints its result and the exit status is 1', async () => {
        const { content, isError } = await json(call('demo', 'echo', '{}'), NEGATIVE);
        assert.ok(isError && content[0].text.includes('message'));
        assert.equal((await onTerminal(call('demo', 'echo', '{}'))).status, NEGATIVE);
    });
    test('an unknown tool prints the message of the server and the exit status is 1', () => fails(call('demo', 'no_such_tool'), NEGATIVE, /Unknown tool/));
    test('a call to an unknown server suggests a similar name and the exit status is 3', () => fails(call('dmo', 'echo'), CONFIG, /did you mean "demo"\?/));
    test('a call to an unreachable server exits with status 4', () => fails(['call', '--config', partly, 'broken', 'x'], UNAVAILABLE, /no\/such\/program.*No such file/));
});

describe('read and prompt', () => {
    const on = (command, ...args) => [command, '--config', working, 'demo', ...args];

    test('a resource is read', async () => {
        const { contents } = await json(on('read', 'demo://greeting/Bo'));
        assert.deepEqual(contents.map(({ uri, text }) => [uri, text]), [['demo://greeting/Bo', 'Hello, Bo!\n']]);
        const { status, shown } = await onTerminal(on('read', 'demo://greeting/Bo'));
        assert.equal(status, OK);
        assert.equal(shown.trimEnd(), 'Hello, Bo!');
        await fails(on('read', 'demo://nothing'), NEGATIVE, /Resource not found/);
    });
    test('a prompt is fetched with its arguments', async () => {
        const { messages } = await json(on('prompt', 'introduce', '{"name":"Bo"}'));
        assert.match(messages[0].content.text, /introduce Bo/);
        const { shown } = await onTerminal(on('prompt', 'introduce', '{"name":"Bo"}'));
        assert.match(shown, /^user: Please introduce Bo/);
        assert.deepEqual(await json(on('prompt', 'introduce', '-'), OK, { input: '{"name":"Bo"}' }), await json(on('prompt', 'introduce', '{"name":"Bo"}')));
        await fails(on('prompt', 'introduce'), NEGATIVE, /name/);
        await fails(on('prompt', 'nobody'), NEGATIVE, /Unknown prompt/);
        await fails(on('prompt', 'introduce', 'Bo'), USAGE, /JSON object/);
    });
});

describe('--url, through a running gateway', () => {
    let gateway;
    before(async () => {
        gateway = await startGateway({ mcpServers: { demo, fixture: stdioServer.fixture() } });
    });
    after(() => gateway?.stop());

    const via = (command, ...args) => [command, '--url', gateway.url, ...args];

    test('tools, resources and prompts list the items of the gateway', async () => {
        const tools = (await json(via('tools'))).map(({ name }) => name);
        assert.ok(tools.includes('demo__echo') && tools.includes('fixture__test_simple_text'), tools.join());
        assert.ok((await json(via('resources'))).some(({ uri }) => uri === 'postern://demo/demo://welcome'));
        assert.ok((await json(via('prompts'))).some(({ name }) => name === 'demo__introduce'));
    });
    test('call, read and prompt reach the servers of the gateway', async () => {
        assert.equal((await json(via('call', 'demo__echo', '{"message":"hi"}'))).content[0].text, 'hi');
        assert.equal((await json(via('call', 'demo__echo', '-'), OK, { input: '{"message":"hi"}' })).content[0].text, 'hi');
        assert.match((await json(via('read', 'postern://demo/demo://welcome'))).contents[0].text, /^Welcome/);
        assert.match((await json(via('prompt', 'demo__introduce', '{"name":"Bo"}'))).messages[0].content.text, /Bo/);
        await fails(via('call', 'no_such_tool'), NEGATIVE, /Unknown tool/);
    });
    test('--url reaches a gateway over HTTP+SSE', async () => {
        const url = new URL('/sse', gateway.origin).href;
        assert.equal((await json(['call', '--url', url, 'demo__echo', '{"message":"hi"}'])).content[0].text, 'hi');
    });
    test('servers shows the gateway behind --url', async () => {
        const [row] = await json(via('servers'));
        assert.deepEqual([row.state, row.where], ['ready', gateway.url]);
    });
    test('an unreachable URL is an error with exit status 4', async () => {
        const { status, stderr } = await run(['tools', '--url', 'http://127.0.0.1:9/mcp']);
        assert.equal(status, UNAVAILABLE);
        assert.match(stderr, /^postern: .*127\.0\.0\.1.*\n$/);
        await fails(['call', '--url', 'http://127.0.0.1:9/mcp', 'echo'], UNAVAILABLE, /127\.0\.0\.1/);
    });
    test('an invalid URL is an error', () => fails(['tools', '--url', 'nonsense'], CONFIG, /--url.*absolute http/));
});

describe('servers', () => {
    test('servers that are ready are listed with the number of their items', async () => {
        const rows = await json(['servers', '--config', working]);
        assert.deepEqual(rows.map(({ name, state }) => [name, state]), [['demo', 'ready'], ['other', 'ready']]);
        assert.deepEqual([rows[0].tools, rows[0].prompts, rows[0].resources, rows[0].templates, rows[0].revision], [3, 1, 1, 1, '2025-11-25']);
    });
    test('one broken server does not hide the others and the exit status is 4', async () => {
        const rows = await json(['servers', '--config', partly], UNAVAILABLE);
        assert.deepEqual(rows.map(({ name, state }) => [name, state]), [['broken', 'failed'], ['demo', 'ready'], ['off', 'disabled']]);
        assert.match(rows[0].problem, /No such file or directory/);
    });
    test('servers prints a table on a terminal', async () => {
        const { status, shown } = await onTerminal(['servers', '--config', partly]);
        assert.equal(status, UNAVAILABLE);
        assert.match(shown, /^SERVER +STATE +OFFERS +COMMAND OR URL$/m);
        assert.match(shown, /^broken +failed .*no\/such\/program/m);
        assert.match(shown, /^demo +ready +3 tools, 1 prompts?, 2 resources/m);
        assert.match(shown, /^off +disabled/m);
    });
});

describe('config', () => {
    const secret = configure(
        {
            mcpServers: {
                local: { ...demo, env: { API_KEY: 'hunter2', OTHER: '${FROM_ENV}' } },
                remote: { url: 'https://example.com/mcp', headers: { Authorization: 'Bearer hunter2' } }
            }
        },
        'secret.json'
    );
    const env = { FROM_ENV: 'hunter2' };

    test('config show prints every option in force and secrets as ***', async () => {
        const { status, stdout } = await run(['config', 'show', '--config', secret], { env });
        assert.equal(status, OK);
        assert.ok(!stdout.includes('hunter2'), stdout);
        const shown = JSON.parse(stdout);
        assert.deepEqual(shown.mcpServers.local.env, { API_KEY: '***', OTHER: '***' });
        assert.deepEqual(shown.mcpServers.remote.headers, { Authorization: '***' });
        assert.deepEqual([shown.limits.page_size, shown.timeouts.list, shown.separator], [1000, '5s', '__']);
    });
    test('config show prints a valid configuration', async () => {
        const { stdout } = await run(['config', 'show', '--config', secret], { env });
        const again = configure(JSON.parse(stdout), 'again.json');
        assert.equal((await run(['config', 'check', '--config', again])).status, OK);
        assert.equal((await run(['config', 'show', '--config', again])).stdout, stdout);
    });
    test('config schema accepts the samples and the output of show, and refuses mistakes', async () => {
        const schema = await json(['config', 'schema']);
        assert.equal(schema.$schema, 'https://json-schema.org/draft/2020-12/schema');
        const readme = /`postern\.json`:\s+<!--[^>]*-->\s+```json\n([^]*?)```/.exec(readFileSync(join(root, 'README.md'), 'utf8'))[1];
        const samples = {
            quickstart: JSON.parse(readFileSync(join(root, 'deploy/quickstart.json'), 'utf8')),
            README: JSON.parse(readme),
            shown: await json(['config', 'show', '--config', secret], OK, { env }),
            forms: { prefix: false, limits: { max_body: '1MiB', page_size: 5 }, timeouts: { list: 1.5, ask: '1h' }, mcpServers: { a: { command: 'x', prefix: false } } },
            'with a reference to the schema': { $schema: './postern.schema.json', mcpServers: {} }
        };
        for (const [name, sample] of Object.entries(samples)) assert.deepEqual(problems(schema, sample), [], name);
        for (const wrong of [{ mcpserver: {} }, { prefix: 1 }, { log: { level: 'loud' } }, { mcpServers: { a: { args: [1] } } }, { listen: {} }]) {
            assert.notDeepEqual(problems(schema, wrong), [], JSON.stringify(wrong));
        }
    });
    test('config docs prints docs/config.md and is complete', async () => {
        const { status, stdout } = await run(['config', 'docs']);
        assert.equal(status, OK);
        assert.equal(stdout, readFileSync(join(root, 'docs/config.md'), 'utf8'));
        const { properties } = await json(['config', 'schema']);
        delete properties.$schema; // for editors, not an option
        for (const key of Object.keys(properties)) assert.ok(stdout.includes(`| \`${key}\` |`), key);
    });
});

/** The violations of a schema by a value, under the part of JSON Schema that `config schema` uses. */
function problems(schema, value, path = '') {
    const known = ['$schema', 'title', 'description', 'default', 'type', 'enum', 'const', 'anyOf', 'items', 'properties', 'additionalProperties', 'minimum', 'maximum', 'pattern'];
    const odd = Object.keys(schema).filter(key => !known.includes(key));
    if (odd.length) return [`${path}: unknown keyword ${odd}`];
    if (schema.anyOf && schema.anyOf.every(inner => problems(inner, value, path).length)) return [`${path}: none of anyOf`];
    if (schema.enum && !schema.enum.includes(value)) return [`${path}: not in enum`];
    if ('const' in schema && schema.const !== value) return [`${path}: not const`];
    if (schema.type && ![schema.type].flat().some(type => isType[type](value))) return [`${path}: not ${schema.type}`];
    if (Array.isArray(value)) return value.flatMap((item, i) => (schema.items ? problems(schema.items, item, `${path}/${i}`) : []));
    if (!isType.object(value)) return [];
    return Object.entries(value).flatMap(([key, item]) => {
        const inner = schema.properties?.[key] ?? schema.additionalProperties;
        if (inner === false) return [`${path}/${key}: not allowed`];
        return inner ? problems(inner, item, `${path}/${key}`) : [];
    });
}

const isType = {
    object: value => typeof value === 'object' && value !== null && !Array.isArray(value),
    array: Array.isArray,
    string: value => typeof value === 'string',
    boolean: value => typeof value === 'boolean',
    number: value => typeof value === 'number',
    integer: Number.isInteger
};
