// Messages pass through the gateway byte for byte, except names and resource URIs.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { text } from 'node:stream/consumers';
import { after, before, describe, test } from 'node:test';

import { peerPath, startGateway, startPeer } from '../gateway.mjs';
import { reply, resultText, Session } from '../raw.mjs';

const mirror = peerPath('mirror');
const teller = peerPath('teller');
const mirrorServer = (...tools) => ({ command: mirror, args: tools.length ? ['--tools', JSON.stringify(tools)] : [] });

/** Text of JSON that a parser and a writer would not reproduce. */
const ODD = String.raw`{"z":1e400,"a":12345678901234567890,"n":[1.0,0.10,-0,1E5,1.00,-1e-07,[ ],{ }],"s":"\u00e9\ud83d\ude00\/\\n\u2028 é😀 ` + '\u2028' + String.raw`","":{"$ref":"#"} , "nested":{"b":{},"a":[null,true]}}`;
const PRETTY = '{\n  "a": 1.0,\r\n  "list": [\n    1,\n\t2\n  ]\n}';

const timeouts = { stream_after: '5m' }; // answers are JSON, even on a busy machine

const onOneLine = text => text.replace(/[\r\n]/g, ' ');

/** Posts a request given as text and returns the text of the body. */
async function exchange(session, method, params, id = '7') {
    const answer = await session.post(`{"jsonrpc":"2.0","id":${id},"method":"${method}","params":${params}}`);
    assert.equal(answer.status, 200, answer.body);
    return answer.body;
}

const callParams = (name, args) => `{"name":${JSON.stringify(name)},"arguments":${args}}`;
const answered = (id, result) => `{"jsonrpc":"2.0","id":${id},"result":${result}}`;

/** Lets the server m answer with this text as its result and returns the text that arrives. */
const replied = async (session, raw) => exchange(session, 'tools/call', callParams('m__reply', JSON.stringify({ raw })));

for (const transport of ['stdio', 'http']) {
    describe(`bytes that pass a server over ${transport}`, () => {
        let peer, gateway, session;
        before(async () => {
            peer = transport === 'http' ? await startPeer(mirror, '--http') : undefined;
            gateway = await startGateway({ timeouts, mcpServers: { m: peer ? { type: 'http', url: peer.url } : mirrorServer() } });
            session = await Session.open(gateway.url);
        });
        after(async () => {
            await gateway?.stop();
            await peer?.stop();
        });

        test('arguments pass byte for byte', async () => {
            const seen = resultText(JSON.parse(await exchange(session, 'tools/call', callParams('m__mirror', ODD))));
            assert.match(seen, /^\{"jsonrpc":"2\.0","id":\d+,"method":"tools\/call","params":/);
            assert.ok(seen.endsWith(`"params":${callParams('mirror', ODD)}}`), seen);
        });
        test('arguments on several lines pass without their line ends', async () => {
            const seen = resultText(JSON.parse(await exchange(session, 'tools/call', callParams('m__mirror', PRETTY))));
            assert.ok(onOneLine(seen).endsWith(`"params":${callParams('mirror', onOneLine(PRETTY))}}`), seen);
        });
        test('other members of the params pass, and only name and progress token are replaced', async () => {
            const params = (name, token) => `{ "unknown":[1E5],"name":"${name}","_meta":{"vendor.example/x":1.0,"progressToken":${token}},"arguments":${ODD} }`;
            const seen = resultText(reply(await session.post(`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":${params('m__mirror', '"mine"')}}`)));
            const token = /"progressToken":(\d+)/.exec(seen)?.[1];
            assert.ok(token && seen.endsWith(`"params":${params('mirror', token)}}`), seen);
        });
        test('arguments of prompts pass byte for byte', async () => {
            const args = String.raw`{"topic":"\u0041\/","more":1.0}`;
            const { result } = JSON.parse(await exchange(session, 'prompts/get', callParams('m__ask', args)));
            assert.ok(result.messages[0].content.text.endsWith(`"params":${callParams('ask', args)}}`), result.messages[0].content.text);
        });
        for (const [name, raw] of Object.entries({
            'odd numbers, escapes and unknown members': `{"content":[{"type":"text","text":"\\u0041\\/","annotations":{"priority":1.00}}],"structuredContent":${ODD},"later":[-0,1E5],"_meta":{"n":1.00,"big":12345678901234567890}}`,
            'white space': '{ "content" : [ ] ,\t"isError":false }',
            'a result without any known member': ODD,
            'an empty result': '{}'
        })) {
            test(`results pass byte for byte: ${name}`, async () => assert.equal(await replied(session, raw), answered(7, raw)));
        }
        test('results on an event stream pass byte for byte', async () => {
            const raw = `{"content":[],"structuredContent":${ODD}}`;
            const args = JSON.stringify({ raw, count: 1 });
            const params = `{"name":"m__reply","arguments":${args},"_meta":{"progressToken":1}}`;
            const { headers, body } = await session.post(`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":${params}}`);
            assert.match(headers['content-type'], /^text\/event-stream/);
            const data = body.split('\n').filter(line => line.startsWith('data: {'));
            assert.equal(data.length, 2, body);
            assert.equal(data[1], `data: ${answered(7, raw)}`);
        });
        if (transport === 'http') {
            test('results on several lines pass without their line ends', async () => {
                assert.equal(onOneLine(await replied(session, PRETTY)), answered(7, onOneLine(PRETTY)));
            });
        }
        test('errors of the server pass byte for byte', async () => {
            const raw = String.raw`{"code":-32050,"message":"no \u0041\/","data":{"n":1.00,"list":[1E5]},"later":-0}`;
            const body = await exchange(session, 'tools/call', callParams('m__refuse', JSON.stringify({ raw })));
            assert.equal(body, `{"jsonrpc":"2.0","id":7,"error":${raw}}`);
        });
        test('definitions of tools pass byte for byte', async () => {
            const child = spawn(mirror, { stdio: ['pipe', 'pipe', 'inherit'] });
            child.stdin.end('{"jsonrpc":"2.0","id":1,"method":"tools/list"}\n');
            const [, own] = /"tools":\[(\{"name":"odd",.*?"icons":\[\]\}),/.exec(await text(child.stdout));
            const body = await exchange(session, 'tools/list', '{}');
            assert.ok(body.includes(own.replace('"odd"', '"m__odd"')), body);
        });
    });
}

describe('ids and tokens of callers', () => {
    let gateway, session;
    before(async () => {
        gateway = await startGateway({ timeouts, mcpServers: { m: mirrorServer() } });
        session = await Session.open(gateway.url);
    });
    after(() => gateway?.stop());

    for (const id of ['0', '-7', '12345678901234567890', '-0', '"seven"', '"7"', '""', String.raw`"\u0041\/\"\n\ud83d\ude00 é"`]) {
        test(`the id ${id} comes back unchanged`, async () => {
            assert.equal(await exchange(session, 'ping', '{}', id), answered(id, '{}'));
            const raw = '{"content":[]}';
            assert.equal(await exchange(session, 'tools/call', callParams('m__reply', JSON.stringify({ raw })), id), answered(id, raw));
            const body = await exchange(session, 'tools/call', callParams('m__no_such_tool', '{}'), id);
            assert.ok(body.startsWith(`{"jsonrpc":"2.0","id":${id},"error":`), body);
        });
    }
    for (const token of ['0', '42', '12345678901234567890', '"42"', '"t"', String.raw`"\u0041\/\""`]) {
        test(`the progress token ${token} comes back unchanged`, async () => {
            const args = JSON.stringify({ raw: '{}', count: 2 });
            const events = await session.postStream(
                `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"m__reply","arguments":${args},"_meta":{"progressToken":${token}}}}`
            );
            for (const step of [1, 2]) {
                const { data } = await events.message();
                assert.equal(data, `{"jsonrpc":"2.0","method":"notifications/progress","params":{"total":1E1,"progressToken":${token},"progress":${step}.50}}`);
            }
            assert.equal((await events.message()).data, answered(7, '{}'));
        });
    }
});

describe('resource URIs of a server with a prefix', () => {
    let gateway, session;
    before(async () => {
        gateway = await startGateway({ timeouts, mcpServers: { m: mirrorServer(), other: mirrorServer() } });
        session = await Session.open(gateway.url);
    });
    after(() => gateway?.stop());

    const read = async uri => (await session.request('resources/read', { uri })).result.contents[0];

    test('resource URIs are wrapped in results, but web links and all other bytes are unchanged', async () => {
        const raw = (one, page, ui) =>
            `{"content":[{"type":"resource_link","uri":"${one}","name":"n","size":1.0},{"type":"resource_link","uri":"https://example.com/page","name":"web"},` +
            `{"type":"resource","resource":{"uri":"${one}","text":"see mirror:///one"}},{"type":"resource","resource":{"uri":"${page}","text":""}},` +
            `{"type":"text","text":"mirror:///one, ui://panel/main.html"}],"structuredContent":{"uri":"mirror:///one","n":1.00},"_meta":{"ui":{"resourceUri":"${ui}"},"uri":"mirror:///one"}}`;
        const own = raw('mirror:///one', 'https://example.com/page', 'ui://panel/main.html');
        const wrapped = raw('postern://m/mirror:///one', 'postern://m/https://example.com/page', 'ui://m/panel/main.html');
        assert.equal(await replied(session, own), answered(7, wrapped));
    });
    test('resource URIs are wrapped in errors', async () => {
        const raw = uri => `{"code":-32002,"message":"no mirror:///one","data":{"uri":"${uri}","n":1.0}}`;
        const body = await exchange(session, 'tools/call', callParams('m__refuse', JSON.stringify({ raw: raw('mirror:///one') })));
        assert.equal(body, `{"jsonrpc":"2.0","id":7,"error":${raw('postern://m/mirror:///one')}}`);
    });
    test('resource URIs are wrapped in lists and each of them can be read', async () => {
        const { resources } = (await session.request('resources/list')).result;
        const own = ['mirror:///one', 'https://example.com/page', 'ui://panel/main.html'];
        const wrap = (uri, key) => (uri.startsWith('ui://') ? uri.replace('ui://', `ui://${key}/`) : `postern://${key}/${uri}`);
        assert.deepEqual(resources.map(({ uri }) => uri), ['m', 'other'].flatMap(key => own.map(uri => wrap(uri, key))));
        for (const [i, { uri }] of resources.entries()) {
            assert.deepEqual(await read(uri), { uri, text: own[i % own.length] });
        }
    });
    test('resource URIs expand from a wrapped template', async () => {
        const { resourceTemplates } = (await session.request('resources/templates/list')).result;
        assert.deepEqual(resourceTemplates.map(({ uriTemplate }) => uriTemplate), ['postern://m/mirror:///item/{id}', 'postern://other/mirror:///item/{id}']);
        assert.equal((await read('postern://other/mirror:///item/5')).text, 'mirror:///item/5');
    });
    test('resource URIs of apps keep their scheme in _meta.ui.resourceUri and can be read', async () => {
        const body = await exchange(session, 'tools/list', '{}');
        for (const key of ['m', 'other']) {
            assert.ok(body.includes(`{"name":"${key}__mirror","inputSchema":{"type":"object"},"_meta":{"ui":{"resourceUri":"ui://${key}/panel/main.html","other":1.0}}}`), body);
            assert.equal((await read(`ui://${key}/panel/main.html`)).text, 'ui://panel/main.html');
        }
    });
    for (const uri of ['postern://nobody/mirror:///one', 'ui://nobody/panel', 'mirror:///one', 'postern://m', 'postern:///x']) {
        test(`the URI ${uri} does not belong to a server`, async () => {
            const { error } = await session.request('resources/read', { uri });
            assert.equal(error?.code, -32002);
            assert.equal(error.data?.uri, uri);
        });
    }
});

// A resource URI is wrapped where the protocol defines one, and nowhere else. `@` marks those places.
describe('members that are resource URIs', () => {
    const LINK = '{"type":"resource_link","uri":"@x:///a","name":"n"}', EMBEDDED = '{"uri":"x:///b","type":"resource","resource":{"uri":"@x:///a","text":"x:///a"}}';
    const NONE = '{"type":"text","text":"t","uri":"x:///a","resource":{"uri":"x:///b"}},{"type":"image","data":"","mimeType":"a/b","uri":"x:///a"},{"uri":"x:///a","resource":{"uri":"x:///a"}},[{"type":"resource_link","uri":"x:///a"}],{"type":"resource_link","resource":{"uri":"x:///a"}},{"type":"Resource_Link","uri":"x:///a"}';
    const ELSEWHERE = '"uri":"x:///a","taskId":"t","resource":{"uri":"x:///a"},"structuredContent":{"uri":"x:///a","contents":[{"uri":"x:///a"}],"content":[{"type":"resource_link","uri":"x:///a"}]},"_meta":{"uri":"x:///a","content":[{"type":"resource_link","uri":"x:///a"}]}';
    const tool = `"content":[${LINK},${NONE},${EMBEDDED},{"uri":"@x:///a","type":"resource_lin\\u006b"}]`;
    const messages = content => `"messages":[{"role":"user","content":${content}}]`;
    const other = (...kept) => Object.entries({ content: `"content":[${LINK}]`, messages: messages(LINK), contents: '"contents":[{"uri":"x:///a","text":""}]' })
        .flatMap(([name, text]) => (kept.includes(name) ? [] : [text.replaceAll('@', '')]));
    const results = {
        'tools/call': [tool, ...other('content')],
        'tasks/result': [tool, ...other('content')],
        'prompts/get': [`"messages":[{"role":"user","content":${LINK}},{"role":"user","content":${EMBEDDED}},{"role":"user","content":[${LINK},${NONE}]},{"role":"user","content":{"type":"text","text":"","uri":"x:///a"}}]`, ...other('messages')],
        'resources/read': ['"contents":[{"uri":"@x:///a","text":"x:///a","resource":{"uri":"x:///b"},"_meta":{"uri":"x:///a"}},{"blob":"","uri":"@https://example.com/"}]', ...other('contents')],
        'completion/complete': ['"completion":{"values":["x:///a"],"uri":"x:///a"}', ...other()]
    };
    const asked = {
        'sampling/createMessage': [messages(LINK), messages(`[${LINK},${NONE}]`), messages(`[{"type":"tool_result","toolUseId":"1","content":[${LINK},${NONE},${EMBEDDED}],"structuredContent":{"uri":"x:///a"}}]`), ...other('messages')],
        'elicitation/create': ['"message":"m","requestedSchema":{"type":"object","properties":{"uri":{"type":"string","default":"x:///a"},"content":{"type":"string","enum":["x:///a"]}}}', ...other()]
    };
    const errors = [
        ['tools/call', '"code":-32002,"data":{"uri":"@x:///a","contents":[{"uri":"x:///a"}]}'],
        ['tools/call', '"code":-32050,"data":{"uri":"x:///a"}'],
        ['tools/call', '"code":-32042,"data":{"uri":"x:///a","elicitations":[]}'],
        ['resources/read', '"code":-32602,"data":{"uri":"@x:///a"},"uri":"x:///a"']
    ];
    const own = text => text.replaceAll('@', '');
    const wrapped = text => text.replaceAll('@', 'postern://t/');

    let gateway, session, taskId;
    before(async () => {
        const capabilities = JSON.stringify({ tools: {}, prompts: {}, resources: {}, completions: {}, tasks: { list: {}, requests: { tools: { call: {} } } } });
        gateway = await startGateway({ timeouts, mcpServers: { t: { command: teller, args: [capabilities] } } });
        session = await Session.open(gateway.url, { capabilities: { sampling: { tools: {} }, elicitation: {} } });
        taskId = (await session.request('tools/call', { name: 't__say', arguments: { raw: '{"task":{"taskId":"t","status":"working"}}' }, task: {} })).result.task.taskId;
    });
    after(() => gateway?.stop());

    const params = { 'prompts/get': { name: 't__ask' }, 'resources/read': { uri: 'postern://t/x:///one' }, 'completion/complete': { ref: { type: 'ref/prompt', name: 't__ask' }, argument: { name: 'a', value: '' } } };
    /** Lets the server answer the method with the text and returns the text that arrives. */
    async function answer(method, member) {
        if (method === 'tools/call' && member.startsWith('"error"')) return exchange(session, method, callParams('t__refuse', JSON.stringify({ raw: member.slice('"error":'.length) })));
        if (method === 'tools/call') return exchange(session, method, callParams('t__say', JSON.stringify({ raw: member.slice('"result":'.length) })));
        await session.call('t__next', { method, raws: [member] });
        return exchange(session, method, JSON.stringify(params[method] ?? { taskId }));
    }

    for (const [method, texts] of Object.entries(results))
        test(`resource URIs in results of ${method} are wrapped`, async () => {
            const apps = method === 'tools/call' || method === 'tasks/result' ? ['"_meta":{"ui":{"resourceUri":"ui://@a"}}'] : [];
            for (const text of [...texts, ELSEWHERE, ...apps]) {
                const raw = text.replace('ui://@a', 'ui://a');
                const expected = text.includes('ui://@a') ? text.replace('@', 't/') : wrapped(text);
                assert.equal(await answer(method, `"result":{${own(raw)}}`), answered(7, `{${expected}}`));
            }
        });
    test('resource URIs in errors are wrapped', async () => {
        for (const [method, text] of errors)
            assert.equal(await answer(method, `"error":{"message":"no x:///a",${own(text)}}`), `{"jsonrpc":"2.0","id":7,"error":{"message":"no x:///a",${wrapped(text)}}}`);
    });
    for (const [method, texts] of Object.entries(asked))
        test(`resource URIs in the question ${method} are wrapped`, async () => {
            for (const [i, text] of [...texts, ELSEWHERE].entries()) {
                const raws = [`{"jsonrpc":"2.0","id":"q","method":"${method}","params":{${own(text)}}}`];
                const events = await session.postStream({ jsonrpc: '2.0', id: i, method: 'tools/call', params: { name: 't__say', arguments: { raws } } });
                const { data, message } = await events.message();
                assert.equal(data, `{"jsonrpc":"2.0","id":${message.id},"method":"${method}","params":{${wrapped(text).replace('"message":"m"', '"message":"[t] m"')}}}`);
                const echoed = `{"content":${LINK},"contents":[{"uri":"postern://t/x:///a"}]}`;
                await session.post(`{"jsonrpc":"2.0","id":${message.id},"result":${echoed}}`);
                assert.ok(resultText(await session.call('t__received', { about: '"q"' })).endsWith(`"result":${echoed}}`));
            }
        });
    test('arguments of callers are not wrapped', async () => {
        const args = `{"raw":"{}","content":[{"type":"resource_link","uri":"postern://t/x:///a"}],"uri":"postern://t/x:///a"}`;
        await session.call('t__next', { method: 'prompts/get', raws: ['"result":{"messages":[]}'] });
        await exchange(session, 'prompts/get', callParams('t__ask', args));
        assert.ok(resultText(await session.call('t__received', { about: 'resource_link' })).endsWith(`"params":${callParams('ask', args)}}`));
    });
});

describe('exposed names', () => {
    const long = 'x'.repeat(70);
    const fits = 'f'.repeat(64 - 'm__'.length);
    const odd = ['plain', long, `${long}y`, fits, `${fits}f`, 'näme with (odd) "characters"', 'a b', 'a_b', 'a.b-c/d', ''];
    /** Runs `body` with the tools of two servers that have the same names. */
    async function listed(config, body) {
        const gateway = await startGateway({ timeouts, ...config, mcpServers: { m: mirrorServer(...odd), n: mirrorServer(...odd) } });
        try {
            const session = await Session.open(gateway.url);
            await body(session, (await session.request('tools/list')).result.tools.map(({ name }) => name));
        } finally {
            await gateway.stop();
        }
    }
    const NOT_ODD = 8;

    test('names have at most 64 characters that model APIs accept, are distinct, stable and callable', async () => {
        let before;
        await listed({}, async (session, names) => {
            before = names;
            assert.equal(new Set(names).size, names.length);
            assert.equal(names.length, 2 * (NOT_ODD + odd.length));
            for (const name of names) assert.match(name, /^[A-Za-z0-9_./-]{1,64}$/);
            for (const [server, key] of ['m', 'n'].entries()) {
                const mine = names.slice(server * (NOT_ODD + odd.length)).slice(NOT_ODD, NOT_ODD + odd.length);
                assert.ok(mine.every(name => name.startsWith(`${key}__`)), mine.join());
                for (const [i, own] of odd.entries()) assert.equal(resultText(await session.call(mine[i])), own);
                assert.equal(mine[0], `${key}__plain`);
                assert.match(mine[1], /^.__x{52}_[0-9a-f]{8}$/);
                assert.equal(mine[3], `${key}__${fits}`);
                assert.match(mine[5], /^.__n_+me_with__odd___characters_$/);
                assert.match(mine[7], /^.__a_b_[0-9a-f]{8}$/);
                assert.equal(mine[8], `${key}__a.b-c/d`);
            }
        });
        await listed({}, async (_session, names) => assert.deepEqual(names, before));
    });
    test('names of two servers are distinct', async () => {
        const gateway = await startGateway({ timeouts, mcpServers: { m: mirrorServer(), n: mirrorServer() } });
        try {
            const session = await Session.open(gateway.url);
            const args = JSON.stringify({ name: 'only_n' });
            assert.equal(resultText(JSON.parse(await exchange(session, 'tools/call', callParams('n__grow', args)))), 'grown');
            const seen = resultText(JSON.parse(await exchange(session, 'tools/call', callParams('m__mirror', '{}'))));
            assert.ok(seen.endsWith(callParams('mirror', '{}') + '}'), seen);
        } finally {
            await gateway.stop();
        }
    });
    test('names without prefix are unchanged, and the second of two gets a suffix', () =>
        listed({ prefix: false }, async (session, names) => {
            assert.equal(new Set(names).size, names.length);
            assert.equal(names.length, 2 * (NOT_ODD + odd.length));
            const [first, second] = [names.slice(NOT_ODD, NOT_ODD + odd.length), names.slice(2 * NOT_ODD + odd.length)];
            assert.deepEqual(first, odd);
            for (const [i, own] of odd.entries()) {
                assert.match(second[i], /_[0-9a-f]{8}$/);
                assert.equal(resultText(await session.call(second[i])), own);
            }
        }));
    for (const name of ['é'.repeat(60), `a${'é'.repeat(60)}`]) {
        test(`names without prefix are truncated between characters: ${name.slice(0, 3)}…`, async () => {
            const gateway = await startGateway({ timeouts, prefix: false, mcpServers: { m: mirrorServer(name), n: mirrorServer(name) } });
            try {
                const session = await Session.open(gateway.url);
                const [one, two] = (await session.request('tools/list')).result.tools.map(tool => tool.name).filter(found => found.includes('é'));
                assert.equal(one, name);
                assert.match(two, /^a?é+_[0-9a-f]{8}$/);
                assert.equal(resultText(await session.call(two)), name);
            } finally {
                await gateway.stop();
            }
        });
    }
});
