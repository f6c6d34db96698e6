// Answers of servers that are invalid or do not say which request they answer: a request fails at once if it is the only one that the
// answer can belong to, and is not affected otherwise. The same holds for answers of callers to questions of servers.
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';

import { peerPath, startGateway, startPeer, until, within } from '../gateway.mjs';
import { resultText, Session } from '../raw.mjs';

const scribe = peerPath('scribe');
const SOON_MS = 10_000;
const LONG = { timeout: '40s', start_timeout: '40s' }; // no test reaches these
const BOM = '\ufeff';
const OK = '{"content":[{"type":"text","text":"fine"}]}';
const LARGE = '{"content":[{"type":"text","text":"FILL"}]}';

/** Message of a server → pattern of its log line. The only outstanding request fails. */
const INVALID = {
    'an id as a string': ['{"jsonrpc":"2.0","id":"ID","result":{}}', 'the id ."\\d+.* does not match a request'],
    'another id': ['{"jsonrpc":"2.0","id":9ID000,"result":{}}', 'the id 9\\d+000 does not match a request'],
    'an id that is null': ['{"jsonrpc":"2.0","id":null,"result":{}}', 'a result without an id'],
    'no id': ['{"jsonrpc":"2.0","result":{}}', 'a result without an id'],
    'a fraction as id': ['{"jsonrpc":"2.0","id":1.5,"result":{}}', 'id must be a string or an integer'],
    'an error that breaks off': ['{"jsonrpc":"2.0","error":{"code":1,"mess', 'byte \\d+'],
    'a result that breaks off': ['{"jsonrpc":"2.0","id":ID,"result":{"content"', 'byte \\d+'],
    'a result that breaks off before the id': ['{"result":{"content"', 'byte \\d+'],
    'two ids': ['{"jsonrpc":"2.0","id":ID,"id":1,"result":{}}', 'duplicate key'],
    'a result that is null': ['{"jsonrpc":"2.0","id":ID,"result":null}', 'result is not an object'],
    'a result that is a number': ['{"jsonrpc":"2.0","id":ID,"result":5}', 'result is not an object'],
    'a result that is a string': ['{"jsonrpc":"2.0","id":ID,"result":"x"}', 'result is not an object'],
    'a result that is a list': ['{"jsonrpc":"2.0","id":ID,"result":[]}', 'result is not an object'],
    'a result and an error': ['{"jsonrpc":"2.0","id":ID,"result":{},"error":{"code":1,"message":"x"}}', 'both a result and an error'],
    'neither a result nor an error': ['{"jsonrpc":"2.0","id":ID}', 'neither a request'],
    'an error without a message': ['{"jsonrpc":"2.0","id":ID,"error":{"code":1}}', 'error is not an object with'],
    'an error without a code': ['{"jsonrpc":"2.0","id":ID,"error":{"message":"x"}}', 'error is not an object with'],
    'an error with a fraction as code': ['{"jsonrpc":"2.0","id":ID,"error":{"code":1.5,"message":"x"}}', 'error is not an object with'],
    'an error that is a string': ['{"jsonrpc":"2.0","id":ID,"error":"x"}', 'error is not an object with'],
    'an error that is null': ['{"jsonrpc":"2.0","id":ID,"error":null}', 'error is not an object with'],
    'no jsonrpc': ['{"id":ID,"result":{}}', 'jsonrpc must be'],
    'a list of one invalid answer': ['[{"jsonrpc":"2.0","id":ID,"result":null}]', 'result is not an object'],
    'a list that breaks off': ['[{"jsonrpc":"2.0","id":ID,"result":{}', 'byte \\d+'],
    'more than limits.max_message': [`{"jsonrpc":"2.0","id":ID,"result":${LARGE}}`, 'larger than 65536 bytes'],
    'more than limits.max_message with the id last': [`{"result":${LARGE},"jsonrpc":"2.0","id":ID}`, 'larger than 65536 bytes']
};

/** Messages that are not answers, or answers to another request → pattern of the log line. */
const HARMLESS = {
    'a notification that breaks off': ['{"jsonrpc":"2.0","method":"notifications/message","params":{', /server sent an invalid message/g],
    'a notification with a list as params': ['{"jsonrpc":"2.0","params":[],"method":"notifications/message"}', /server sent an invalid message/g],
    'a notification above limits.max_message': ['{"jsonrpc":"2.0","method":"notifications/message","params":{"data":"FILL"}}', /server sent a message that is too large/g],
    'a notification above limits.max_message with the params first': ['{"jsonrpc":"2.0","params":{"data":"FILL"},"method":"notifications/message"}', /server sent a message that is too large/g]
};
const HARMLESS_IN_COMMON = {
    'a line of a log in JSON': ['{"level":"error","error":"connection lost","result":null}', /server sent an invalid message/g],
    'a list of no messages': ['[1, 2', /server sent an invalid message/g],
    'a late answer': ['{"jsonrpc":"2.0","id":1,"result":{}}', /late answer ignored/g],
    'a late answer with its id as a string': ['{"jsonrpc":"2.0","id":"1","result":{}}', /late answer ignored/g],
    'a late answer that is not valid': ['{"jsonrpc":"2.0","id":1,"result":null}', /server sent an invalid message/g],
    'a text above limits.max_message': ['FILL', /server sent a message that is too large/g]
};

const soon = (promise, what) => within(promise, SOON_MS, what);

let peers, gateway, session;
before(async () => {
    peers = await Promise.all([startPeer(scribe, '--http'), startPeer(scribe, '--sse')]);
    gateway = await startGateway({
        log: { level: 'debug' },
        limits: { max_message: '64KiB' },
        mcpServers: {
            stdio: { command: scribe, args: [], ...LONG },
            http: { type: 'http', url: peers[0].url, ...LONG },
            sse: { type: 'sse', url: peers[1].url, ...LONG }
        }
    });
    session = await Session.open(gateway.url);
    for (const server of ['stdio', 'http', 'sse']) await session.call(`${server}__release`, { count: 0 });
});
after(async () => {
    await gateway?.stop();
    await Promise.all((peers ?? []).map(peer => peer.stop()));
});

const count = pattern => gateway.log().match(pattern)?.length ?? 0;

/** Lets the server write the text in place of an answer; waits until more lines match `logged` than before. */
async function writes([server, where], text, logged) {
    const before = logged ? count(logged) : 0;
    const answer = session.call(`${server}__write`, { text, where });
    if (logged) await until(() => count(logged) > before, SOON_MS, `a log line ${logged}`);
    return { answer };
}

/** Lets the server answer all outstanding requests. */
const release = (server, count) => session.call(`${server}__release`, { count });

for (const [way, server, where] of [
    ['over stdio', 'stdio'],
    ['over HTTP+SSE', 'sse'],
    ['as the body of a POST', 'http'],
    ['on the stream of a POST', 'http', 'stream'],
    ['on the standalone stream', 'http', 'standalone']
]) {
    const own = server === 'http' && where !== 'standalone'; // the stream belongs to a single request
    describe(`invalid answers ${way}`, () => {
        for (const [what, [text, detail]] of Object.entries(INVALID))
            test(`an invalid answer fails its request: ${what}`, async () => {
                const { answer } = await writes([server, where], text);
                const { error } = await soon(answer, what);
                assert.deepEqual([error?.code, error?.data?.reason], [-32001, 'upstream_invalid'], JSON.stringify(error));
                await gateway.line(new RegExp(`${way === 'as the body of a POST' && what.startsWith('more') ? 'call failed' : 'server'}.*${detail}`), SOON_MS);
                if (where) await release(server, 1); // ends the POST
            });
        test('a byte order mark in front is skipped', async () => {
            const { answer } = await writes([server, where], `${BOM}{"jsonrpc":"2.0","id":ID,"result":${OK}}`);
            assert.equal(resultText(await soon(answer, 'the answer')), 'fine');
        });
    });

    if (way !== 'as the body of a POST')
        describe(`messages that do not fail a request ${way}`, () => {
            for (const [what, [text, logged]] of Object.entries(own ? HARMLESS : { ...HARMLESS, ...HARMLESS_IN_COMMON }))
                test(`a message does not fail a request: ${what}`, async () => {
                    const { answer } = await writes([server, where], text, logged);
                    await release(server, 1);
                    assert.equal(resultText(await soon(answer, what)), 'released');
                });
        });

    if (!own)
        describe(`several outstanding requests ${way}`, () => {
            for (const [what, text] of Object.entries({ 'an error without an id': '{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"x"}}', 'a result that breaks off before the id': '{"result":{', 'another id': '{"jsonrpc":"2.0","id":9ID000,"result":{}}' }))
                test(`an invalid answer does not fail one of several requests: ${what}`, async () => {
                    const first = await writes([server, where], '{}', /server sent an invalid message/g);
                    const second = await writes([server, where], text, /server sent an invalid message.*outstanding=2/g);
                    await release(server, 2);
                    for (const { answer } of [first, second]) assert.equal(resultText(await soon(answer, what)), 'released');
                });
            for (const [what, text] of Object.entries({ 'an id as a string': '{"jsonrpc":"2.0","id":"ID","result":{}}', 'a result that is null': '{"jsonrpc":"2.0","id":ID,"result":null}', 'more than limits.max_message': `{"jsonrpc":"2.0","id":ID,"result":${LARGE}}` }))
                test(`an invalid answer fails the request of its id: ${what}`, async () => {
                    const first = await writes([server, where], '{}', /server sent an invalid message/g);
                    const second = await writes([server, where], text);
                    assert.equal((await soon(second.answer, what)).error?.data?.reason, 'upstream_invalid');
                    await release(server, 2);
                    assert.equal(resultText(await soon(first.answer, what)), 'released');
                });
        });
}

describe('requests of the gateway itself', () => {
    const NO_METHOD = '{"jsonrpc":"2.0","id":null,"error":{"code":-32601,"message":"no such method"}}';
    const methods = {
        'initialize: a result that is null': ['initialize', '{"jsonrpc":"2.0","id":ID,"result":null}', /server did not start.*an invalid answer to initialize: result is not an object/],
        'initialize: an id as a string': ['initialize', '{"jsonrpc":"2.0","id":"ID","result":{}}', /server did not start.*an invalid answer to initialize: the id .* does not match a request/],
        'initialize: an error without an id': ['initialize', NO_METHOD, /server did not start.*(an error without an id|refused initialize)/],
        'tools/list: a result that is null': ['tools/list', '{"jsonrpc":"2.0","id":ID,"result":null}', /cannot list.*result is not an object/],
        'tools/list: an error without a message': ['tools/list', '{"jsonrpc":"2.0","id":ID,"error":{"code":-32601}}', /cannot list.*error is not an object/]
    };
    for (const transport of ['stdio', '--http', '--sse'])
        test(`a request of the gateway with an invalid answer fails at once over ${transport}`, async () => {
            const each = Object.entries(methods).map(([name, [method, text, line]], i) => ({ name, args: ['--on', method, text], line, key: `s${i}` }));
            const started = transport === 'stdio' ? [] : await Promise.all(each.map(({ args }) => startPeer(scribe, transport, ...args)));
            const servers = each.map(({ key, args }, i) => [key, started[i] ? { type: transport.slice(2), url: started[i].url, ...LONG } : { command: scribe, args, ...LONG }]);
            const other = await startGateway({ mcpServers: Object.fromEntries(servers), timeouts: { list: '40s' } });
            try {
                const caller = await Session.open(other.url);
                assert.deepEqual((await soon(caller.request('tools/list'), 'tools/list')).result.tools, []);
                for (const { name, key, line } of each)
                    await until(() => other.log().split('\n').some(text => text.includes(`server=${key} `) && line.test(text)), SOON_MS, name);
            } finally {
                await other.stop();
                await Promise.all(started.map(peer => peer.stop()));
            }
        });
    test('an answer to a notification does not belong to a request', async () => {
        const answers = { error: NO_METHOD, result: '{"jsonrpc":"2.0","id":null,"result":{}}' };
        const servers = Object.entries(answers).map(([name, text]) => [name, { command: scribe, args: ['--on', 'notifications/initialized', text], ...LONG }]);
        const other = await startGateway({ mcpServers: Object.fromEntries(servers) });
        try {
            const caller = await Session.open(other.url);
            for (const name of Object.keys(answers)) assert.equal(resultText(await soon(caller.call(`${name}__release`, { count: 0 }), name)), 'released');
        } finally {
            await other.stop();
        }
    });
});

describe('messages after a cancelled call', () => {
    const CANCELLED = 'notifications/cancelled';
    const NO_ID = '{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"x"}}';
    const LATE = `{"result":${LARGE},"jsonrpc":"2.0","id":1}`;
    let other, caller;
    before(async () => {
        const servers = { deaf: [], chatty: ['--on', CANCELLED, NO_ID] };
        other = await startGateway({
            limits: { max_message: '64KiB' },
            mcpServers: Object.fromEntries(Object.entries(servers).map(([name, args]) => [name, { command: scribe, args, ...LONG }]))
        });
        caller = await Session.open(other.url);
    });
    after(() => other?.stop());

    const invalid = outstanding => new RegExp(`server sent an invalid message.*outstanding=${outstanding}`, 'g');
    const seen = async (pattern, act) => {
        const lines = () => other.log().match(pattern)?.length ?? 0;
        const before = lines();
        const value = act();
        await until(() => lines() > before, SOON_MS, `a log line ${pattern}`);
        return { value };
    };
    const open = (server, outstanding) => seen(invalid(outstanding), () => caller.call(`${server}__write`, { text: '{}' }));
    /** Opens a call and cancels it; it gets no answer. */
    const giveUp = async (server, outstanding, logged) => {
        const { value } = await open(server, outstanding);
        const ended = assert.rejects(value);
        const cancel = () => caller.post({ jsonrpc: '2.0', method: CANCELLED, params: { requestId: caller.nextId - 1 } });
        await (logged ? seen(logged, cancel) : cancel());
        await ended;
    };

    test('an answer to a cancellation does not fail another call', async () => {
        const { value: answer } = await open('chatty', 1);
        await giveUp('chatty', 2, invalid(1));
        await caller.call('chatty__release', { count: 2 });
        assert.equal(resultText(await soon(answer, 'the other call')), 'released');
    });
    test('a late answer whose id comes last does not fail another call', async () => {
        await giveUp('deaf', 1);
        await caller.call('deaf__ask', { method: 'ping', params: {} }); // the server has read the cancellation
        const { value: answer } = await seen(/server sent a message that is too large/g, () => caller.call('deaf__write', { text: LATE }));
        await caller.call('deaf__release', { count: 2 });
        assert.equal(resultText(await soon(answer, 'the other call')), 'released');
    });
    test('an answer without an id fails the only call', async () => {
        const { error } = await soon(caller.call('deaf__write', { text: NO_ID }), 'the call');
        assert.equal(error?.data?.reason, 'upstream_invalid', JSON.stringify(error));
    });
});

describe('invalid answers of callers', () => {
    const ANSWERS = {
        'a result that is null': '"result":null',
        'a result that is a number': '"result":5',
        'a result that is a list': '"result":[]',
        'a result and an error': '"result":{},"error":{"code":1,"message":"x"}',
        'neither a result nor an error': '"more":1',
        'an error without a message': '"error":{"code":1}',
        'an error that is a string': '"error":"x"',
        'more than 256 KiB that is not an object': `"result":"${'x'.repeat(300 << 10)}"`
    };
    const params = { messages: [], maxTokens: 1 };
    for (const [what, members] of Object.entries(ANSWERS))
        test(`an invalid answer of a caller becomes an error for the server: ${what}`, async () => {
            const caller = await Session.open(gateway.url, { capabilities: { sampling: {} } });
            const call = { jsonrpc: '2.0', id: 1, method: 'tools/call', params: { name: 'stdio__ask', arguments: { method: 'sampling/createMessage', params } } };
            const stream = await caller.postStream(call);
            const { message } = await stream.message();
            assert.equal(message.method, 'sampling/createMessage');
            const { status, body } = await caller.post(`{"jsonrpc":"2.0","id":${message.id},${members}}`);
            assert.equal(status, 400);
            assert.equal(JSON.parse(body).id, null, 'the id belongs to the question and not to a request of the caller');
            const answer = await soon(stream.message(), 'the answer');
            assert.deepEqual(JSON.parse(resultText(answer.message)), { code: -32603, message: "the caller's answer is not valid" });
            await caller.delete();
        });
    test('an answer of a caller that was not asked is ignored', async () => {
        const caller = await Session.open(gateway.url, { capabilities: { sampling: {} } });
        const call = { jsonrpc: '2.0', id: 1, method: 'tools/call', params: { name: 'stdio__ask', arguments: { method: 'sampling/createMessage', params } } };
        const stream = await caller.postStream(call);
        const { message } = await stream.message();
        const other = await Session.open(gateway.url);
        assert.equal((await other.post(`{"jsonrpc":"2.0","id":${message.id},"result":null}`)).status, 400);
        const answer = { role: 'assistant', model: 'm', content: { type: 'text', text: 'x' } };
        assert.equal((await caller.post({ jsonrpc: '2.0', id: message.id, result: answer })).status, 202);
        assert.deepEqual(JSON.parse(resultText((await soon(stream.message(), 'the answer')).message)), answer);
    });
});
