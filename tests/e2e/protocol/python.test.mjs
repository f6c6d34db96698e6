// Servers and clients written in Python: through the gateway, a client sees the same as without it, except for the rows of DIFFERENCES.
import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { after, before, describe, test } from 'node:test';
import { isDeepStrictEqual } from 'node:util';

import { binary, peerPath, startGateway, startPeer, temporaryDirectory, writeConfig } from '../gateway.mjs';
import { Session } from '../raw.mjs';

const python = line => peerPath(`venv/${line}/bin/python`);
const script = name => peerPath(`python/${name}.py`);

const WAIT_MS = 120_000; // twenty servers start at once, possibly on a busy machine
const timeouts = { list: '60s' }; // changes made by a call are listed, even on a busy machine
const ANY = 'anything';
const masked = () => ANY;
const prefixed = (name, { tools }) => tools + name;
const wrapped = (uri, { uris }) => uris + uri;
const unless = instead => answer => (answer.error?.code === 'number -32601' ? instead : answer);
const listed = kind => unless({ [kind]: [], more: {} });
const completed = unless({ result: { completion: { values: [], hasMore: false } } });
const refused = (code, message, reason) => () => ({ error: { code: `number ${code}`, message, data: { reason } } });

/**
 * The permitted differences: the path, the change by the gateway (`masked`: not compared), and the reason. In a path, * is any one part,
 * and ** at the beginning is any number of parts.
 */
const DIFFERENCES = [
    ['steps > initialize > result > serverInfo', masked, 'the gateway introduces itself'],
    ['steps > initialize > result > capabilities', masked, 'the gateway declares its own over all servers'],
    ['steps > initialize > result > instructions', (said, { server, caller }) => (caller === 'stdio' ? undefined : `Server "${server}" says:\n${said}`), 'several servers may have instructions; `initialize` does not wait for a server that was never up'],
    ['steps > resources', listed('resources'), 'one of the servers may have some'],
    ['steps > templates', listed('resourceTemplates'), 'one of the servers may have some'],
    ['steps > prompts', listed('prompts'), 'one of the servers may have some'],
    ['steps > * > tools > * > name', prefixed, 'names are prefixed'],
    ['steps > * > prompts > * > name', prefixed, 'names are prefixed'],
    ['steps > * > resources > * > uri', wrapped, 'URIs are wrapped'],
    ['steps > * > resourceTemplates > * > uriTemplate', wrapped, 'URIs are wrapped'],
    ['steps > * > result > contents > * > uri', wrapped, 'URIs are wrapped'],
    ['** > resource > uri', wrapped, 'URIs are wrapped'],
    ['steps > * > result > content > * > uri', (uri, target) => (/^https?:/.test(uri) ? uri : wrapped(uri, target)), 'URIs are wrapped, but not links that a caller may fetch itself'],
    ['steps > * > error > data > uri', wrapped, 'URIs are wrapped'],
    ['notifications > notifications/resources/updated > * > uri', wrapped, 'URIs are wrapped'],
    ['steps > unknown', refused(-32602, 'Unknown tool', 'unknown_tool'), 'the gateway knows that it does not exist'],
    ['steps > unknown prompt', refused(-32602, 'Unknown prompt', 'unknown_prompt'), 'the gateway knows that it does not exist'],
    ['steps > task unknown', refused(-32602, 'Unknown task', 'unknown_task'), 'the gateway knows that it does not exist'],
    ['steps > complete prompt', completed, 'one of the servers may have completions'],
    ['steps > complete template', completed, 'one of the servers may have completions'],
    ['steps > level', () => ({ result: {} }), 'the level applies to all servers'],
    ['steps > who', masked, 'the client of the servers is the gateway'],
    ['notifications > notifications/message > *', (said, { tools, server }) => (tools ? { ...said, logger: [server, said.logger].filter(Boolean).join('/') } : said), 'loggers are prefixed'],
    ['questions > elicitation/create > * > message', (said, { tools, server }) => (tools ? `[${server}] ${said}` : said), 'users see which server asks'],
    ['questions > ping', () => undefined, 'the gateway answers for the caller'],
    ['** > taskId', masked, 'task ids are sealed for their owner'],
    ['** > createdAt', masked, 'two tasks have different times'],
    ['** > lastUpdatedAt', masked, 'two tasks have different times']
].map(([where, becomes]) => ({ where: where.split(' > '), becomes }));

function matches(where, path) {
    if (where[0] === '**') [where, path] = [where.slice(1), path.slice(1 - where.length)];
    return where.length === path.length && where.every((part, i) => part === '*' || part === path[i]);
}

/** A record with all differences applied (`make`), or only with the masked ones. */
function shaped(value, target, make, path = []) {
    const becomes = DIFFERENCES.find(({ where }) => matches(where, path))?.becomes;
    if (becomes && (make || becomes === masked)) {
        const made = becomes(value, target);
        if (made !== value) return made;
    }
    if (Array.isArray(value)) return value.map((inner, i) => shaped(inner, target, make, [...path, String(i)]));
    if (value === null || typeof value !== 'object') return value;
    const members = Object.entries(value).map(([key, inner]) => [key, shaped(inner, target, make, [...path, key])]);
    return Object.fromEntries(members.filter(([, inner]) => inner !== undefined));
}

const brief = value => (value === undefined ? 'nothing' : JSON.stringify(value).slice(0, 160));

/** The differences of two records, one line each. */
function differences(expected, seen, path = []) {
    const nested = [expected, seen].every(value => value !== null && typeof value === 'object' && !Array.isArray(value));
    const lists = [expected, seen].every(Array.isArray) && expected.length === seen.length;
    if (!nested && !lists) return isDeepStrictEqual(expected, seen) ? [] : [`${path.join(' > ')}: ${brief(expected)} became ${brief(seen)}`];
    return [...new Set([...Object.keys(expected), ...Object.keys(seen)])].flatMap(key => differences(expected[key], seen[key], [...path, key]));
}

/** The record of the client for each target, by name. Numbers are compared as text. */
async function visit(line, targets) {
    const child = spawn(python(line), [script('client')], { stdio: ['pipe', 'pipe', 'inherit'] });
    const ended = once(child, 'exit');
    child.stdin.end(JSON.stringify(targets));
    const seen = await text(child.stdout);
    assert.deepEqual(await ended, [0, null], 'exit status of the client');
    return JSON.parse(seen, (_key, value, { source }) => (typeof value === 'number' ? `number ${source}` : value));
}

/** Each server: the environment it needs, its program, and the modes it is tried in. The client is of the same environment. */
const FAMILIES = {
    low: { title: 'the low-level server of the SDK 1.x', line: 1, program: ['sdk1'], modes: ['stdio', 'http', 'json', 'stateless', 'sse'] },
    bundled: { title: 'the FastMCP of the SDK 1.x', line: 1, program: ['decorated', 'bundled'], modes: ['stdio', 'http'] },
    fastmcp: { title: 'FastMCP 3 and its client', line: 1, program: ['decorated', 'fastmcp'], modes: ['stdio', 'http', 'json', 'stateless', 'sse'], client: 'fastmcp' },
    mcpserver: { title: 'the MCPServer and the client of the SDK 2.x', line: 2, program: ['decorated', 'mcpserver'], modes: ['stdio', 'http', 'json', 'stateless', 'sse'] },
    reference: { title: 'the reference servers', line: 1, modes: ['time', 'git', 'fetch'] }
};

/** The entry of the configuration for a server in each mode. */
const MODES = {
    stdio: ({ line, program }) => ({ command: python(line), args: [script(program[0]), ...program.slice(1), 'stdio'] }),
    http: ({ origin }) => ({ type: 'http', url: `${origin}/mcp` }),
    json: ({ origin }) => ({ type: 'http', url: `${origin}/json` }),
    stateless: ({ origin }) => ({ type: 'http', url: `${origin}/stateless` }),
    sse: ({ origin }) => ({ type: 'sse', url: `${origin}/sse` }),
    time: ({ line }) => ({ command: python(line), args: ['-m', 'mcp_server_time', '--local-timezone', 'UTC'] }),
    git: ({ line }) => ({ command: python(line), args: ['-m', 'mcp_server_git', '--repository', directory.path] }),
    fetch: ({ line }) => ({ command: python(line), args: ['-m', 'mcp_server_fetch', '--allow-private-ips'], env: { PATH: '/nonexistent' } }) // with Node it would run npm
};

/** The data that a client needs about a server, besides its address. */
const QUIRKS = {
    json: () => ({ quiet: true }),
    stateless: () => ({ stateless: true }),
    time: () => ({
        calls: [
            ['convert', 'convert_time', { source_timezone: 'Asia/Tokyo', time: '12:00', target_timezone: 'America/Sao_Paulo' }],
            ['no such zone', 'get_current_time', { timezone: 'Mars/Olympus' }],
            ['no such time', 'convert_time', { source_timezone: 'UTC', time: '25:00', target_timezone: 'UTC' }]
        ]
    }),
    git: () => ({
        calls: [
            ['status', 'git_status', { repo_path: directory.path }],
            ['log', 'git_log', { repo_path: directory.path, max_count: 5 }],
            ['show', 'git_show', { repo_path: directory.path, revision: 'HEAD' }],
            ['unstaged', 'git_diff_unstaged', { repo_path: directory.path }],
            ['outside', 'git_status', { repo_path: '/' }]
        ]
    }),
    fetch: () => ({
        calls: [
            ['page', 'fetch', { url: `${site.origin}/page` }],
            ['part', 'fetch', { url: `${site.origin}/page`, max_length: 20, start_index: 5, raw: true }],
            ['missing page', 'fetch', { url: `${site.origin}/missing` }],
            ['forbidden page', 'fetch', { url: `${site.origin}/private` }],
            ['no URL', 'fetch', { url: 'nothing' }]
        ],
        prompts: [['prompted page', 'fetch', { url: `${site.origin}/private` }], ['prompted nothing', 'fetch', {}]]
    })
};

/** Each kind of caller, and its way to a server: one prefixes names and URIs, one does not. */
const CALLERS = {
    'streamable HTTP': (server, { gateway }) => ({ transport: 'http', url: `${gateway.url}/${server}`, tools: `${server}__`, uris: `postern://${server}/` }),
    'HTTP+SSE': (server, { gateway }) => ({ transport: 'sse', url: `${gateway.url}/${server}-bare`, tools: '', uris: '' }),
    stdio: (server, { config }) => ({
        transport: 'stdio', command: binary, args: ['serve', '--stdio', '--config', config, '--profile', server], tools: `${server}__`, uris: `postern://${server}/`
    })
};

/** Family `low` is tested with every pair of mode and caller (stdio, which needs a separate gateway, with two modes only); the others once with each mode. */
const CALLERS_OF = {
    low: { stdio: ['streamable HTTP', 'HTTP+SSE', 'stdio'], http: ['streamable HTTP', 'HTTP+SSE', 'stdio'], json: ['streamable HTTP', 'HTTP+SSE'], stateless: ['streamable HTTP', 'HTTP+SSE'], sse: ['streamable HTTP', 'HTTP+SSE'] },
    others: { stdio: ['streamable HTTP'], http: ['HTTP+SSE'], json: ['streamable HTTP'], stateless: ['HTTP+SSE'], sse: ['stdio'], time: ['streamable HTTP'], git: ['HTTP+SSE'], fetch: ['stdio'] }
};

for (const [family, server] of Object.entries(FAMILIES)) {
    server.runs = server.modes.flatMap(mode => (CALLERS_OF[family] ?? CALLERS_OF.others)[mode].map(caller => ({ mode, caller, server: `${family}-${mode}`, name: `${mode} to ${caller}` })));
}

const PAGE = '<!doctype html><title>Tür</title><h1>Ein “Titel” 🚪</h1><p>A <a href="/x">link</a> and <b>more</b>, 日本語.</p>';
const directory = temporaryDirectory(), configuration = temporaryDirectory();
const site = createServer(({ url }, response) => {
    const page = { '/robots.txt': 'User-agent: *\nDisallow: /private\n', '/page': PAGE, '/private': PAGE }[url];
    response.writeHead(page ? 200 : 404, { 'content-type': url === '/robots.txt' ? 'text/plain' : 'text/html; charset=utf-8' }).end(page);
});
const peers = [];
let gateway, config;

/** A repository with one commit and a change. */
function makeRepository() {
    const env = { ...process.env, GIT_CONFIG_GLOBAL: '/dev/null', GIT_AUTHOR_DATE: '2026-01-02T03:04:05Z', GIT_COMMITTER_DATE: '2026-01-02T03:04:05Z' };
    const git = (...args) => execFileSync('git', ['-C', directory.path, '-c', 'user.name=Zoë', '-c', 'user.email=zoe@example.com', ...args], { env });
    git('init', '--quiet', '--initial-branch=main');
    writeFileSync(join(directory.path, 'naïve.txt'), 'first “line”\n');
    git('add', '.');
    git('commit', '--quiet', '--message', 'a 🚪 opens');
    writeFileSync(join(directory.path, 'naïve.txt'), 'second line\n');
}

before(async () => {
    makeRepository();
    await once(site.listen(0, '127.0.0.1'), 'listening');
    site.origin = `http://127.0.0.1:${site.address().port}`;
    await Promise.all(Object.values(FAMILIES).filter(({ program }) => program).map(async server => {
        const peer = await startPeer(python(server.line), script(server.program[0]), ...server.program.slice(1), 'http');
        peers.push(peer);
        server.origin = peer.url;
    }));
    const mcpServers = Object.fromEntries(Object.entries(FAMILIES).flatMap(([family, server]) => server.modes.map(mode => [`${family}-${mode}`, { ...MODES[mode](server), start_timeout: WAIT_MS / 1000 }])));
    const names = Object.keys(mcpServers);
    const profiles = Object.fromEntries(names.flatMap(name => [[name, { servers: [name] }], [`${name}-bare`, { servers: [name], prefix: false }]]));
    gateway = await startGateway({ mcpServers, profiles, timeouts });
    await Session.open(gateway.url); // starts all servers
    for (const name of names) await gateway.line(new RegExp(`server ready server=${name} `), WAIT_MS);
    config = writeConfig(configuration.path, { mcpServers, profiles, timeouts });
    await Promise.all(Object.values(FAMILIES).map(async server => {
        const direct = server.modes.map(mode => {
            const { type = 'stdio', ...way } = MODES[mode](server);
            return { name: mode, transport: type, client: server.client, ...way, ...QUIRKS[mode]?.() };
        });
        for (const run of server.runs) run.target = { ...run, client: server.client, ...CALLERS[run.caller](run.server, { gateway, config }), ...QUIRKS[run.mode]?.() };
        server.seen = await visit(server.line, [...direct, ...server.runs.map(({ target }) => target)]);
    }));
});

after(async () => {
    await gateway?.stop();
    await Promise.all(peers.map(peer => peer.stop()));
    site.close();
    directory.remove();
    configuration.remove();
});

for (const server of Object.values(FAMILIES)) {
    describe(server.title, () => {
        for (const { mode, caller, name } of server.runs) {
            test(`a caller over ${caller} sees a server over ${mode} as without the gateway`, () => {
                const { target } = server.runs.find(run => run.name === name);
                assert.ok(Object.keys(server.seen[mode].steps).length > 15, 'the client performed all steps');
                assert.deepEqual(differences(shaped(server.seen[mode], target, true), shaped(server.seen[name], target, false)), []);
            });
        }
    });
}

test('the client of the SDK 2.x falls back to initialize over every transport', async () => {
    const { command, args } = CALLERS.stdio('mcpserver-stdio', { config });
    const url = `${gateway.url}/mcpserver-stdio`;
    const child = spawn(python(2), [script('probe'), url, url, command, ...args], { stdio: ['ignore', 'pipe', 'inherit'] });
    const tools = FAMILIES.mcpserver.seen.stdio.steps.tools.tools.length;
    assert.deepEqual(JSON.parse(await text(child.stdout)), Array(3).fill(['2025-11-25', tools]));
});
