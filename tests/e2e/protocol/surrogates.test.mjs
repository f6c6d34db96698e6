// Lone surrogates, escapes of half a character that JSON.stringify and json.dumps may write: they pass unchanged, and a policy does not
// decide about a text that contains one. And an invalid item of a list affects only that item.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { after, before, describe, test } from 'node:test';

import { ClientV1, StdioTransportV1 } from '../../peers/clients.mjs';
import { commandLine } from '../command-line.mjs';
import { binary, peerPath, startGateway, startPeer, temporaryDirectory, until, writeConfig } from '../gateway.mjs';
import { initialize, post, reply, resultText, send, Session } from '../raw.mjs';

const mirror = peerPath('mirror');
const timeouts = { stream_after: '5m' }; // answers are JSON, even on a busy machine

/** A text of halves, one of them in upper case, among whole characters. */
const HALVES = String.raw`a\ud83d\ud83d\ude00\uDE00 \\ud83d \udfff😀`;
const VALUE = `{"text":"${HALVES}","${HALVES}":["\\udbff",{"deep":"\\ud800"}]}`;
const LARGE = `{"text":"${HALVES.repeat(9000)}"}`; // above 256 KiB: read by a worker
const WHOLE = `{"name":"whole","description":"${HALVES}","inputSchema":{"type":"object","properties":{"kind":{"enum":["a","b","${HALVES}"]}},"title":"\\uDE00"},"_meta":{"${HALVES}":1}}`;

const callParams = (name, args, more = '') => `{"name":"${name}","arguments":${args}${more}}`;
const request = (method, params, id = 7) => `{"jsonrpc":"2.0","id":${id},"method":"${method}","params":${params}}`;
const result = raw => `{"jsonrpc":"2.0","id":7,"result":${raw}}`;
/** Arguments for the mirror that contain the text. */
const told = (raw, more = {}) => JSON.stringify({ raw, ...more });
const reason = ({ error }) => error?.data.reason;

describe('lone surrogates that pass unchanged', () => {
    let peers, gateway, session;
    before(async () => {
        const given = ['--tools', '["push","ask"]', '--items', WHOLE, '--instructions', '"half \\ud83d"'];
        peers = [await startPeer(mirror, '--http', ...given), await startPeer(mirror, '--sse', ...given)];
        gateway = await startGateway({
            timeouts,
            mcpServers: {
                stdio: { command: mirror, args: given, isolation: 'session' },
                http: { type: 'http', url: peers[0].url, isolation: 'session' },
                sse: { type: 'sse', url: peers[1].url, isolation: 'session' }
            },
            profiles: { other: { servers: ['stdio'], tools: { stdio: { override: { whole: { title: 'Whole' } } } } } }
        });
        session = await Session.open(gateway.url, { capabilities: { elicitation: {}, sampling: {} } });
    });
    after(async () => {
        await gateway?.stop();
        for (const peer of peers ?? []) await peer.stop();
    });

    const exchange = async (method, params) => {
        const { status, body } = await session.post(request(method, params));
        assert.equal(status, 200, body);
        return body;
    };

    for (const server of ['stdio', 'http', 'sse']) {
        test(`lone surrogates pass in arguments and members of params and _meta (${server})`, async () => {
            const more = `,"task\\ud83d\\ude00":"${HALVES}","${HALVES}":1,"_meta":{"vendor":${VALUE},"${HALVES}":2}`;
            const seen = resultText(JSON.parse(await exchange('tools/call', callParams(`${server}__mirror`, VALUE, more))));
            assert.ok(seen.endsWith(`"params":${callParams('mirror', VALUE, more)}}`), seen);
        });
        test(`lone surrogates pass in arguments of prompts and completions (${server})`, async () => {
            const { result } = JSON.parse(await exchange('prompts/get', callParams(`${server}__ask`, VALUE)));
            assert.ok(result.messages[0].content.text.endsWith(`"params":${callParams('ask', VALUE)}}`));
        });
        test(`lone surrogates pass in results and errors (${server})`, async () => {
            const raw = `{"content":[{"type":"text","text":"${HALVES}"}],"structuredContent":${VALUE},"_meta":${VALUE}}`;
            assert.equal(await exchange('tools/call', callParams(`${server}__reply`, told(raw))), result(raw));
            const refusal = `{"code":-32050,"message":"${HALVES}","data":${VALUE}}`;
            assert.equal(await exchange('tools/call', callParams(`${server}__refuse`, told(refusal))), `{"jsonrpc":"2.0","id":7,"error":${refusal}}`);
        });
        test(`lone surrogates pass in messages above 256 KiB in both directions (${server})`, async () => {
            const seen = resultText(JSON.parse(await exchange('tools/call', callParams(`${server}__mirror`, LARGE))));
            assert.ok(seen.endsWith(`"params":${callParams('mirror', LARGE)}}`), `${seen.length} bytes`);
            const raw = `{"content":[],"structuredContent":${LARGE}}`;
            assert.ok(await exchange('tools/call', callParams(`${server}__reply`, told(raw))) === result(raw));
        });
        test(`lone surrogates pass in progress and log messages (${server})`, async () => {
            const events = await session.get();
            const log = `{"level":"info","logger":"${HALVES}","data":${VALUE}}`;
            const called = await exchange('tools/call', callParams(`${server}__push`, told(log, { method: 'message' })));
            const want = `{"jsonrpc":"2.0","method":"notifications/message","params":${log.replace('"logger":"', `"logger":"${server}/`)}}`;
            // Over HTTP they come on the call's own stream.
            const data = called.includes('notifications/message') ? /^data: (.*notifications\/message.*)$/m.exec(called)[1] : (await events.notification('notifications/message')).data;
            assert.equal(data, want);
            events.drop();
        });
        test(`lone surrogates pass in questions and their answers (${server})`, async () => {
            const question = `{"message":"${HALVES}","requestedSchema":{"type":"object","properties":{"x":{"type":"string","title":"${HALVES}"}}}}`;
            const events = await session.get();
            const call = await session.postStream(request('tools/call', callParams(`${server}__ask`, JSON.stringify({ method: 'elicitation/create', params: question }))));
            const asked = await Promise.race([call.notification('elicitation/create'), events.notification('elicitation/create')]);
            assert.ok(asked.data.endsWith(`"params":${question.replace('"message":"', `"message":"[${server}] `)}}`), asked.data);
            const answer = `{"action":"accept","content":{"x":"${HALVES}"}}`;
            assert.equal((await session.post(`{"jsonrpc":"2.0","id":${JSON.stringify(asked.message.id)},"result":${answer}}`)).status, 202);
            const seen = resultText((await call.message()).message);
            assert.ok(seen.endsWith(`"result":${answer}}`), seen);
            events.drop();
        });
        test(`lone surrogates pass in definitions of lists and links of results (${server})`, async () => {
            const body = await exchange('tools/list', '{}');
            assert.ok(body.includes(WHOLE.replace('"whole"', `"${server}__whole"`)), body);
            const raw = uri => `{"content":[{"type":"resource_link","uri":"${uri}","name":"${HALVES}"}]}`;
            assert.equal(await exchange('tools/call', callParams(`${server}__reply`, told(raw('mirror:///\\ud83d')))), result(raw(`postern://${server}/mirror:///\\ud83d`)));
        });
    }
    test('lone surrogates become U+FFFD in instructions', async () => {
        const { body } = await send(gateway.url, { headers: post(), body: initialize('2025-11-25') });
        assert.ok(body.includes('half \uFFFD'), body);
    });
    test('lone surrogates pass in an item that a profile changes', async () => {
        const other = await Session.open(`${gateway.url}/other`);
        const { body } = await other.post(request('tools/list', '{}'));
        assert.ok(body.includes(`${WHOLE.replace('"whole"', '"stdio__whole"').slice(0, -1)},"title":"Whole"}`), body);
    });
    test('lone surrogates pass in ids and progress tokens of callers', async () => {
        assert.equal((await session.post(request('ping', '{}', '"\\ud83d"'))).body, '{"jsonrpc":"2.0","id":"\\ud83d","result":{}}');
        const events = await session.postStream(request('tools/call', callParams('stdio__reply', told('{}', { count: 1 }), ',"_meta":{"progressToken":"\\uDE00"}')));
        assert.match((await events.message()).data, /"progressToken":"\\uDE00"/);
        assert.equal((await events.message()).data, result('{}'));
    });

    for (const [what, method, params] of [
        ['the name of a tool', 'tools/call', callParams('stdio__mirror\\ud83d', '{}')],
        ['a name that would be a tool without the surrogate', 'tools/call', callParams('stdio__mir\\ude00ror', '{}')],
        ['the name of a prompt', 'prompts/get', callParams('stdio__ask\\ud83d', '{}')],
        ['a URI', 'resources/read', '{"uri":"postern://stdio/mirror:///one\\ud83d"}'],
        ['a URI to subscribe to', 'resources/subscribe', '{"uri":"postern://stdio/mirror:///one\\ud83d"}'],
        ['a reference', 'completion/complete', '{"ref":{"type":"ref/prompt","name":"stdio__ask\\ud83d"},"argument":{"name":"a","value":""}}'],
        ['the name of a member that would be another one without the surrogate', 'tools/call', `{"name":"stdio__mirror","arguments":{},"na\\ud83dme":"stdio__crash"}`],
        ['the name of a member that would be another one if it ended there', 'tools/call', `{"name":"stdio__mirror","arguments":{},"name\\ud83d2":"stdio__crash"}`],
        ['the name of a member of _meta that would be another one without the surrogate', 'tools/call', `{"name":"stdio__mirror","_meta":{"progress\\ud83dToken":1}}`]
    ])
        test(`lone surrogates are refused in ${what}`, async () => {
            const answer = JSON.parse(await exchange(method, params));
            assert.equal(reason(answer), 'invalid_params', JSON.stringify(answer));
            assert.match(answer.error.message, /lone surrogate/);
        });
    test('raw bytes of a lone surrogate are refused as invalid JSON', async () => {
        const body = Buffer.concat([Buffer.from('{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"stdio__mirror","arguments":{"a":"'), Buffer.from([0xed, 0xa0, 0xbd]), Buffer.from('"}}}')]);
        assert.equal(reason(reply(await session.post(body))), 'parse_error');
    });

    test('lone surrogates pass over HTTP+SSE and standard input', async () => {
        const events = await Session.prototype.get.call({ url: gateway.origin + '/sse', headers: more => more });
        const { data: endpoint } = await events.next();
        const say = text => fetch(gateway.origin + endpoint, { method: 'POST', headers: { 'content-type': 'application/json' }, body: text });
        const directory = temporaryDirectory();
        const child = spawn(binary, ['serve', '--stdio', '--config', writeConfig(directory.path, { mcpServers: { http: { type: 'http', url: peers[0].url } } })],
            { stdio: ['pipe', 'pipe', 'ignore'], env: { ...process.env, POSTERN_STATE: directory.path } });
        const lines = createInterface(child.stdout)[Symbol.asyncIterator]();
        const faces = [
            [say, async () => (await events.message()).data],
            [async text => child.stdin.write(`${text}\n`), async () => (await lines.next()).value]
        ];
        for (const [tell, heard] of faces) {
            await tell(JSON.stringify(initialize('2025-11-25')));
            await heard();
            await tell('{"jsonrpc":"2.0","method":"notifications/initialized"}');
            const raw = `{"content":[],"structuredContent":${VALUE}}`;
            await tell(request('tools/call', callParams('http__reply', told(raw))));
            assert.equal(await heard(), result(raw));
            await tell(request('tools/call', callParams('http__mirror', VALUE)));
            assert.ok(resultText(JSON.parse(await heard())).endsWith(`"params":${callParams('mirror', VALUE)}}`));
        }
        events.drop();
        child.stdin.end();
        assert.equal((await lines.next()).done, true);
        directory.remove();
    });
});

describe('invalid items of lists', () => {
    const deep = `{"name":"deep","inputSchema":${'['.repeat(200)}${']'.repeat(200)}}`;
    const items = ['null', '7', '"name"', '[]', '{"title":"no name"}', '{"name":7}', '{"name":"half\\ud83d"}', '{"name":"bytes","description":"\uF8FF"}', deep, '{"name":"escape","title":"\\x"}', WHOLE];
    const left = ['odd', 'mirror', 'reply', 'refuse', 'wait', 'grow', 'update', 'crash', 'whole'];

    test('an item of a list that cannot be parsed is left out and logged over every transport', async () => {
        const given = ['--items', items.join(',')];
        const large = `${items.join(',')},{"name":"large","description":"%LARGE%"}`; // above 256 KiB: read by a worker
        const peers = [await startPeer(mirror, '--http', '--items', large), await startPeer(mirror, '--sse', ...given)];
        const gateway = await startGateway({
            mcpServers: { stdio: { command: mirror, args: given }, http: { type: 'http', url: peers[0].url }, sse: { type: 'sse', url: peers[1].url } }
        });
        try {
            const session = await Session.open(gateway.url);
            const { tools } = (await session.request('tools/list')).result;
            assert.deepEqual(tools.map(({ name }) => name).sort(), ['http__large', ...['http', 'sse', 'stdio'].flatMap(server => left.map(name => `${server}__${name}`))].sort());
            for (const server of ['stdio', 'http', 'sse']) {
                const lines = gateway.log().split('\n').filter(line => line.includes(`server=${server} `));
                assert.match(lines.find(line => line.includes('server sent an invalid message')), /detail="byte \d+: /);
                assert.equal(lines.filter(line => line.includes('list item contains a lone surrogate') && line.includes('what=tools item=whole')).length, 1);
                const outs = lines.filter(line => line.includes('list item left out'));
                assert.deepEqual(outs.map(line => /what=tools index=(\d+) /.exec(line)?.[1]), items.slice(0, -1).map((_, i) => String(i + 8)), outs.join('\n'));
                assert.ok(outs[6].includes('lone surrogate') && outs[4].includes('it has no name or URI') && outs[7].includes('not valid JSON'), outs.join('\n'));
            }
        } finally {
            await gateway.stop();
            for (const peer of peers) await peer.stop();
        }
    });
    test('a resource that a server lists twice is listed once, and the second of two tools gets a suffix', async () => {
        const twice = JSON.stringify(['mirror:///one', 'mirror:///one']);
        const gateway = await startGateway({ mcpServers: { m: { command: mirror, args: ['--items', '{"name":"twice","title":"first"},{"name":"twice","title":"second"}', '--resources', twice] } } });
        try {
            const session = await Session.open(gateway.url);
            const { tools } = (await session.request('tools/list')).result;
            const shown = tools.filter(({ name }) => name.includes('twice')).map(({ name, title }) => [name.replace(/_[0-9a-f]{8}$/, '_HASH'), title]);
            assert.deepEqual(shown, [['m__twice', 'first'], ['m__twice_HASH', 'second']]);
            assert.deepEqual((await session.request('resources/list')).result.resources.map(({ uri }) => uri), ['postern://m/mirror:///one']);
        } finally {
            await gateway.stop();
        }
    });
    test('a list whose structure is broken fails at once and is logged', async () => {
        const gateway = await startGateway({ mcpServers: { bad: { command: mirror, args: ['--id-last', '--items', '{"name":"a"} {"name":"b"}'] }, good: { command: mirror } } });
        try {
            const session = await Session.open(gateway.url);
            const started = Date.now();
            const { tools } = (await session.request('tools/list')).result;
            assert.ok(tools.some(({ name }) => name === 'good__mirror') && !tools.some(({ name }) => name.startsWith('bad__')));
            await until(() => /cannot list server=bad what=tools/.test(gateway.log()), 10_000, 'the line in the log');
            assert.ok(Date.now() - started < 10_000);
        } finally {
            await gateway.stop();
        }
    });
});

describe('lone surrogates under a policy', () => {
    const rule = (id, more) => ({ id, effect: 'allow', description: `the rule ${id} of this test`, tenants: ['*'], subjects: ['*'], servers: ['m'], kinds: ['tool', 'prompt'], names: ['*'], ...more });
    const policy = {
        version: 1, description: 'A policy of this test',
        rules: [
            rule('kinds', { names: ['mirror', 'whole', 'ask'], when: { '/kind': { in: ['a', 'b'] } } }),
            rule('reply', { names: ['reply'] }),
            rule('never', { effect: 'deny', names: ['reply'], when: { '/path': { glob: '/etc/*' } } }),
            rule('read', { kinds: ['resource'], names: ['mirror:///one'] })
        ]
    };
    let gateway, session, home, shell;
    before(async () => {
        home = temporaryDirectory();
        writeFileSync(join(home.path, 'policy.json'), JSON.stringify(policy));
        shell = commandLine(home.path);
        gateway = await startGateway({ timeouts, prefix: false, policy: join(home.path, 'policy.json'), audit: { path: 'audit.db', arguments: true }, mcpServers: { m: { command: mirror, args: ['--items', WHOLE] } } });
        session = await Session.open(gateway.url);
    });
    after(async () => {
        await gateway?.stop();
        home?.remove();
    });
    const ask = async (method, params) => reply(await session.post(request(method, params)));

    for (const [what, params, outcome] of [
        ['a surrogate in a value of an allow', callParams('mirror', '{"kind":"a\\ud83d"}'), 'denied'],
        ['a surrogate in a value of a deny', callParams('reply', '{"raw":"{}","path":"\\ud83d"}'), 'denied'],
        ['a surrogate in a value that a deny does not match', callParams('reply', '{"raw":"{}","path":"/tmp/\\ud83d"}'), 'denied'],
        ['U+0000 in a value of a rule', callParams('mirror', '{"kind":"a\\u0000"}'), 'denied'],
        ['a surrogate in the name of an argument', callParams('mirror', '{"kind":"a","kind\\ud83d":"c"}'), 'invalid_params'],
        ['a surrogate in the name of a large argument', callParams('mirror', `{"kind":"a","kind\\ud83d":"${'x'.repeat(300_000)}"}`), 'invalid_params'],
        ['a surrogate in a large value of a rule', callParams('mirror', `{"kind":"a\\ud83d","text":"${'x'.repeat(300_000)}"}`), 'denied'],
        ['a surrogate in a value without a rule', callParams('mirror', `{"kind":"a","text":"${HALVES}"}`), undefined],
        ['a surrogate in a large value without a rule', callParams('mirror', `{"kind":"a","text":"${HALVES.repeat(9000)}"}`), undefined],
        ['U+0000 in a value without a rule', callParams('mirror', '{"kind":"a","text":"\\u0000"}'), undefined]
    ])
        test(`a call with ${what} is ${outcome ?? 'allowed'}`, async () => {
            const answer = await ask('tools/call', params);
            assert.equal(reason(answer), outcome, JSON.stringify(answer).slice(0, 500));
            if (outcome === 'invalid_params') assert.match(answer.error.message, /the name of one contains U\+0000 or a lone surrogate/);
            if (!outcome) assert.ok(resultText(answer).endsWith(`"params":${params}}`));
        });
    test('a completion with a lone surrogate is judged like a call', async () => {
        const complete = (value, more = '') => ask('completion/complete', `{"ref":{"type":"ref/prompt","name":"ask"},"argument":{"name":"kind","value":"${value}"}${more}}`);
        assert.equal(reason(await complete('a\\ud83d')), 'denied');
        assert.equal(reason(await complete('a', ',"context":{"arguments":{"topic\\ud83d":"x"}}')), 'invalid_params');
        assert.ok((await complete('a', `,"context":{"arguments":{"topic":"${HALVES}"}}`)).result);
    });
    test('a narrowed schema keeps every other byte', async () => {
        const { body } = await session.post(request('tools/list', '{}'));
        // An element that cannot be read stays: the call is decided anyway.
        assert.ok(body.includes(WHOLE), body);
    });
    test('lone surrogates are kept in audit rows, replays and `policy explain`', async () => {
        const rows = await until(async () => {
            const { stdout } = await shell.run(['audit', '--json', '--file', join(gateway.state, 'audit.db')]);
            const all = stdout.trim().split('\n').map(line => JSON.parse(line)).filter(({ method }) => method === 'tools/call');
            return all.length >= 9 ? all : undefined;
        }, 10_000, 'the rows');
        assert.ok(rows.every(row => JSON.stringify(row).isWellFormed()));
        assert.ok(rows.some(({ arguments: args }) => args === `{"kind":"a","text":"${HALVES}"}`), 'recorded arguments are unchanged');
        const replayed = await shell.run(['policy', 'replay', '--json', '--policy', join(home.path, 'policy.json'), '--file', join(gateway.state, 'audit.db')]);
        assert.equal(replayed.status, 0, replayed.stderr + replayed.stdout);
        const explained = await shell.run(['policy', 'explain', '--policy', join(home.path, 'policy.json'), '--subject', 'anonymous', '--server', 'm', '--tool', 'mirror', '--args', '{"kind":"a\\ud83d"}']);
        assert.match(explained.stdout, /deny/);
        assert.match(explained.stdout, /cannot be evaluated by in/);
        assert.equal(reason(await ask('resources/read', '{"uri":"mirror:///one\\ud83d"}')), 'invalid_params');
    });
});

describe('lone surrogates on the command line', () => {
    let home, shell, config;
    before(() => {
        home = temporaryDirectory();
        shell = commandLine(home.path);
        config = writeConfig(home.path, { mcpServers: { m: { command: mirror, args: ['--items', WHOLE] } } });
    });
    after(() => home?.remove());

    const shown = '\uFFFD😀\uFFFD \\ud83d \uFFFD😀';
    test('call accepts lone surrogates and prints JSON unchanged and text with U+FFFD', async () => {
        const raw = `{"content":[{"type":"text","text":"${HALVES}"}]}`;
        const piped = await shell.run(['call', 'm', 'reply', told(raw), '--config', config]);
        assert.equal(piped.stdout.trim(), raw);
        const { shown: text } = await shell.onTerminal(['call', 'm', 'reply', told(raw), '--config', config]);
        assert.equal(text.trim(), `a${shown}`);
        const sent = JSON.parse((await shell.run(['call', 'm', 'mirror', VALUE, '--config', config])).stdout).content[0].text;
        assert.ok(sent.endsWith(`"params":${callParams('mirror', VALUE)}}`), sent);
        const failed = await shell.run(['call', 'm', 'refuse', told(`{"code":1,"message":"no ${HALVES}"}`), '--config', config]);
        assert.ok(failed.stderr.includes(`no a${shown}`), failed.stderr);
    });
    test('lists print lone surrogates unchanged in JSON and as U+FFFD in a table', async () => {
        const { shown: table } = await shell.onTerminal(['tools', '--config', config]);
        assert.ok(table.split('\n').some(line => /m +whole +a\uFFFD😀\uFFFD/.test(line)), table);
        assert.ok((await shell.run(['tools', '--config', config])).stdout.includes(WHOLE.slice(1)));
    });
});

test('an SDK client gets the same strings through the gateway as directly', async () => {
    const directory = temporaryDirectory();
    const config = writeConfig(directory.path, { prefix: false, mcpServers: { m: { command: mirror, args: ['--items', WHOLE] } } });
    const seen = [];
    for (const [command, args] of [[mirror, ['--items', WHOLE]], [binary, ['serve', '--stdio', '--config', config]]]) {
        const client = new ClientV1({ name: 'half', version: '1' });
        await client.connect(new StdioTransportV1({ command, args, env: { ...process.env, POSTERN_STATE: directory.path }, stderr: 'ignore' }));
        const half = '\ud83d', raw = JSON.stringify({ content: [{ type: 'text', text: half }], _meta: { [half]: half } });
        seen.push([(await client.listTools()).tools, await client.callTool({ name: 'reply', arguments: { raw, half } })]);
        await client.close();
    }
    assert.deepEqual(seen[1][1], seen[0][1]);
    assert.deepEqual(seen[1][0].map(JSON.stringify).sort(), seen[0][0].map(JSON.stringify).sort());
    directory.remove();
});
