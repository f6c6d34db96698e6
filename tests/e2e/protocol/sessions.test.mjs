// Streamable HTTP of the legacy revisions, header by header and status by status.
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';

import { startGateway, stdioServer, until } from '../gateway.mjs';
import { initialize, post, reply, resultText, send, Session, stream } from '../raw.mjs';

const LATEST = '2025-11-25';
const ping = { jsonrpc: '2.0', id: 7, method: 'ping' };
const callText = (name, args = {}, id = 7) => ({ jsonrpc: '2.0', id, method: 'tools/call', params: { name, arguments: args } });

let gateway;
before(async () => {
    gateway = await startGateway({
        prefix: false,
        limits: { max_body: '64KiB' },
        mcpServers: { fixture: stdioServer.fixture() }
    });
});
after(() => gateway?.stop());

/** Asserts the status and, if given, the JSON-RPC error code of an answer. */
function refused(answer, status, code) {
    assert.equal(answer.status, status, answer.body);
    if (code !== undefined) assert.equal(JSON.parse(answer.body).error?.code, code, answer.body);
}

describe('version negotiation', () => {
    const known = ['2024-11-05', '2025-03-26', '2025-06-18', '2025-11-25'];
    for (const version of known) {
        test(`a client of ${version} gets that revision`, async () => {
            const session = await Session.open(gateway.url, { version });
            assert.equal(session.version, version);
            assert.equal(resultText(await session.call('test_simple_text')), 'This is a simple text response for testing.');
        });
    }
    for (const version of ['2026-07-28', '2099-01-01', 'nonsense']) {
        test(`a client of ${version} gets ${LATEST}`, async () => {
            assert.equal((await Session.open(gateway.url, { version })).version, LATEST);
        });
    }
    test('the session id is visible ASCII and hard to guess', async () => {
        const [one, two] = await Promise.all([Session.open(gateway.url), Session.open(gateway.url)]);
        assert.match(one.id, /^[\x21-\x7e]{20,}$/);
        assert.notEqual(one.id, two.id);
    });
});

describe('refused POSTs', () => {
    const accepts = { 'only JSON': 'application/json', 'only events': 'text/event-stream', 'something else': 'text/html' };
    for (const [name, accept] of Object.entries(accepts)) {
        test(`a POST that accepts ${name} gets 406`, async () => {
            refused(await send(gateway.url, { headers: post({ accept }), body: initialize(LATEST) }), 406);
        });
    }
    for (const type of ['text/plain', 'application/x-www-form-urlencoded', undefined]) {
        test(`a POST whose content type is ${type ?? 'missing'} gets 415`, async () => {
            const headers = { accept: post().accept, ...(type && { 'content-type': type }) };
            refused(await send(gateway.url, { headers, body: JSON.stringify(initialize(LATEST)) }), 415);
        });
    }
    test('a POST larger than limits.max_body gets 413', async () => {
        const session = await Session.open(gateway.url);
        refused(await session.post(callText('test_elicitation', { message: 'x'.repeat(70_000) })), 413);
        refused(await session.post(ping), 200);
    });
    for (const [name, body] of Object.entries({
        'is not JSON': 'hello',
        'is truncated': '{"jsonrpc":"2.0","id":1,"method":"ping"',
        'is empty': '',
        'is followed by more': '{"jsonrpc":"2.0","id":1,"method":"ping"} {}',
        'is not UTF-8': Buffer.from('{"jsonrpc":"2.0","id":1,"method":"p\xff"}', 'latin1')
    })) {
        test(`a POST whose body ${name} gets 400`, async () => {
            const session = await Session.open(gateway.url);
            refused(await session.post(body), 400, -32700);
        });
    }
    test('a POST with a repeated member gets 400', async () => {
        const session = await Session.open(gateway.url);
        refused(await session.post('{"jsonrpc":"2.0","id":1,"method":"ping","method":"tools/list"}'), 400);
    });
    for (const [name, body] of Object.entries({
        'without jsonrpc': { id: 1, method: 'ping' },
        'of another JSON-RPC version': { jsonrpc: '1.0', id: 1, method: 'ping' },
        'with null as id': { jsonrpc: '2.0', id: null, method: 'ping' },
        'with an object as id': { jsonrpc: '2.0', id: {}, method: 'ping' },
        'with a number as method': { jsonrpc: '2.0', id: 1, method: 5 },
        'that is a string': '"ping"'
    })) {
        test(`a POST of a message ${name} gets 400`, async () => {
            const session = await Session.open(gateway.url);
            refused(await session.post(body), 400, -32600);
        });
    }
});

describe('rules of a session', () => {
    test('a session refuses a second initialize', async () => {
        const session = await Session.open(gateway.url);
        refused(await session.post(initialize(LATEST)), 400, -32600);
    });
    test('a request without a session id gets 400', async () => {
        refused(await send(gateway.url, { headers: post(), body: ping }), 400);
    });
    test('a request with an unknown session id gets 404', async () => {
        refused(await send(gateway.url, { headers: post({ 'mcp-session-id': 'no-such-session' }), body: ping }), 404, -32001);
        const get = { 'mcp-session-id': 'no-such-session', accept: 'text/event-stream' };
        refused(await send(gateway.url, { method: 'GET', headers: get }), 404);
        refused(await send(gateway.url, { method: 'DELETE', headers: get }), 404);
    });
    test('a session that DELETE ends gets 404 afterwards', async () => {
        const session = await Session.open(gateway.url);
        refused(await session.delete(), 200);
        refused(await session.post(ping), 404, -32001);
        refused(await session.delete(), 404);
        assert.equal((await session.get()).status, 404);
    });
    test('a session refuses an unknown protocol version', async () => {
        const session = await Session.open(gateway.url);
        refused(await session.post(ping, { 'mcp-protocol-version': '1999-01-01' }), 400);
        refused(await session.post(ping, { 'mcp-protocol-version': LATEST }), 200);
    });
    test('a session works without the version header', async () => {
        const session = await Session.open(gateway.url);
        const headers = post({ 'mcp-session-id': session.id });
        refused(await send(gateway.url, { headers, body: ping }), 200);
    });
    test('a session answers notifications and responses with 202 and no body', async () => {
        const session = await Session.open(gateway.url);
        for (const body of [
            { jsonrpc: '2.0', method: 'notifications/cancelled', params: { requestId: 12345 } },
            { jsonrpc: '2.0', method: 'notifications/unheard_of' },
            { jsonrpc: '2.0', id: 99, result: {} },
            { jsonrpc: '2.0', id: 99, error: { code: -1, message: 'no' } }
        ]) {
            const answer = await session.post(body);
            assert.deepEqual([answer.status, answer.body], [202, '']);
        }
    });
    test('a session answers with the id of the request and its type', async () => {
        const session = await Session.open(gateway.url);
        for (const id of ['seven', '7', 7, 0, -3, 9007199254740991]) {
            assert.strictEqual(reply(await session.post({ ...ping, id })).id, id);
            assert.strictEqual(reply(await session.post(callText('test_simple_text', {}, id))).id, id);
        }
    });
    test('a session answers ping, setLevel and subscribe with exactly {}', async () => {
        const session = await Session.open(gateway.url);
        assert.deepEqual((await session.request('ping')).result, {});
        assert.deepEqual((await session.request('logging/setLevel', { level: 'info' })).result, {});
        assert.deepEqual((await session.request('resources/subscribe', { uri: 'test://watched-resource' })).result, {});
        assert.deepEqual((await session.request('resources/unsubscribe', { uri: 'test://watched-resource' })).result, {});
    });
    test('a session answers an unknown method with -32601 and an unknown tool with -32602', async () => {
        const session = await Session.open(gateway.url);
        assert.equal((await session.request('no/such/method')).error.code, -32601);
        const { error } = await session.call('no_such_tool');
        assert.equal(error.code, -32602);
        assert.equal(error.data?.reason, 'unknown_tool');
    });
    test('a session answers a quick call with JSON', async () => {
        const session = await Session.open(gateway.url);
        const answer = await session.post(callText('test_simple_text'));
        assert.match(answer.headers['content-type'], /^application\/json/);
    });
});

describe('methods and origins', () => {
    for (const method of ['PUT', 'PATCH']) {
        test(`the method ${method} gets 405`, async () => {
            const answer = await send(gateway.url, { method, headers: post(), body: ping });
            refused(answer, 405);
            assert.match(answer.headers.allow ?? '', /POST/);
        });
    }
    test('a request of another path gets 404', async () => {
        refused(await send(`${gateway.origin}/no/such/path`, { headers: post(), body: ping }), 404);
    });
    for (const [name, headers] of Object.entries({
        'Host is foreign': { host: 'evil.example.com' },
        'Origin is foreign': { origin: 'http://evil.example.com' },
        'Origin is null': { origin: 'null' },
        'Origin only begins with localhost': { origin: 'http://localhost.evil.example.com' }
    })) {
        test(`P7 a request whose ${name} gets 403`, async () => {
            refused(await send(gateway.url, { headers: post(headers), body: initialize(LATEST) }), 403);
        });
    }
    test('P7 localhost is accepted as Host and Origin', async () => {
        const { port } = new URL(gateway.url);
        for (const headers of [{ host: `localhost:${port}` }, { origin: `http://localhost:${port}` }, { origin: 'http://127.0.0.1:3000' }]) {
            refused(await send(gateway.url, { headers: post(headers), body: initialize(LATEST) }), 200);
        }
    });
});

describe('escaped members', () => {
    test('a method with escapes is unescaped', async () => {
        const session = await Session.open(gateway.url);
        assert.deepEqual(reply(await session.post('{"jsonrpc":"2.0","id":7,"method":"\\u0070ing"}')).result, {});
    });
    test('a log level with escapes is unescaped', async () => {
        const session = await Session.open(gateway.url);
        const body = '{"jsonrpc":"2.0","id":7,"method":"logging/setLevel","params":{"level":"\\u0064ebug"}}';
        assert.deepEqual(reply(await session.post(body)).result, {});
    });
    for (const method of ['resources/read', 'resources/subscribe', 'resources/unsubscribe']) {
        test(`${method} refuses a URI with control characters`, async () => {
            const session = await Session.open(gateway.url);
            for (const uri of ['test://watched-resource\0', 'test://a\nb', '\x7f'])
                assert.equal((await session.request(method, { uri })).error?.code, -32602);
        });
    }
});

describe('batches of messages', () => {
    const batch = [{ ...ping, id: 'a' }, { jsonrpc: '2.0', method: 'notifications/cancelled', params: { requestId: 1 } }, callText('test_simple_text', {}, 'b')];

    test('a batch in a session of 2025-03-26 is answered with an array', async () => {
        const session = await Session.open(gateway.url, { version: '2025-03-26' });
        const answer = await session.post(batch);
        assert.equal(answer.status, 200, answer.body);
        const replies = JSON.parse(answer.body);
        assert.deepEqual(replies.map(({ id }) => id).sort(), ['a', 'b']);
        assert.deepEqual(replies.find(({ id }) => id === 'a').result, {});
    });
    test('a batch without requests in a session of 2025-03-26 gets 202', async () => {
        const session = await Session.open(gateway.url, { version: '2025-03-26' });
        const answer = await session.post([batch[1], { jsonrpc: '2.0', id: 5, result: {} }]);
        assert.deepEqual([answer.status, answer.body], [202, '']);
    });
    test('an empty batch is refused', async () => {
        const session = await Session.open(gateway.url, { version: '2025-03-26' });
        refused(await session.post([]), 400, -32600);
    });
    test('a batch with initialize is refused', async () => {
        const session = await Session.open(gateway.url, { version: '2025-03-26' });
        refused(await session.post([initialize('2025-03-26'), ping]), 400, -32600);
    });
    test('a batch with an escaped initialize is refused and the session continues', async () => {
        const session = await Session.open(gateway.url, { version: '2025-03-26' });
        const hidden = JSON.stringify(initialize('2025-03-26')).replace('initialize', '\\u0069nitialize');
        refused(await session.post(`[${hidden}]`), 400, -32600);
        refused(await session.post(hidden), 400, -32600);
        assert.equal(resultText(await session.call('test_simple_text')), 'This is a simple text response for testing.');
        assert.equal((await session.delete()).status, 200);
        assert.equal((await (await Session.open(gateway.url)).request('tools/list')).error, undefined);
    });
    for (const version of ['2025-06-18', '2025-11-25']) {
        test(`a batch in a session of ${version} is refused`, async () => {
            const session = await Session.open(gateway.url, { version });
            refused(await session.post(batch), 400, -32600);
        });
    }
});

describe('event streams', () => {
    /** Lets a held call finish, from another session. */
    async function release(key) {
        const other = await Session.open(gateway.url);
        await until(async () => resultText(await other.call('test_release', { key })) === 'yes', 10_000, `test_hold ${key} is running`);
    }

    test('a slow call of 2025-11-25 opens with a priming event that has an id and a retry', async () => {
        const session = await Session.open(gateway.url);
        const events = await session.postStream(callText('test_hold', { key: 'priming' }));
        assert.equal(events.status, 200);
        assert.match(events.headers['content-type'], /^text\/event-stream/);
        assert.match(events.headers['cache-control'], /no-cache/);
        const first = await events.next();
        assert.ok(first.id, JSON.stringify(first));
        assert.equal(first.data ?? '', '');
        assert.match(first.retry ?? '', /^\d+$/);
        await release('priming');
        const { message, id } = await events.message();
        assert.equal(resultText(message), 'Released: priming');
        assert.ok(id && id !== first.id);
        assert.equal(await events.next(), undefined);
    });
    test('a slow call of 2025-06-18 does not open with a priming event', async () => {
        const session = await Session.open(gateway.url, { version: '2025-06-18' });
        const events = await session.postStream(callText('test_hold', { key: 'no-priming' }));
        await release('no-priming');
        const first = await events.next();
        assert.ok(first.data, JSON.stringify(first));
        assert.equal(resultText(JSON.parse(first.data)), 'Released: no-priming');
    });
    test('progress arrives on the stream of its call with the token of the client', async () => {
        const session = await Session.open(gateway.url);
        for (const token of ['a-token', 42]) {
            const body = callText('test_tool_with_progress');
            body.params._meta = { progressToken: token };
            const events = await session.postStream(body);
            const seen = [];
            for (let event = await events.message(); event; event = await events.message()) seen.push(event.message);
            assert.deepEqual(seen.slice(0, -1).map(({ params }) => [params.progressToken, params.progress]), [[token, 0], [token, 50], [token, 100]]);
            assert.equal(seen.at(-1).id, 7);
        }
    });
    test('a call survives its connection and its answer arrives at a GET with Last-Event-ID', async () => {
        const session = await Session.open(gateway.url);
        const one = await session.postStream(callText('test_hold', { key: 'one' }, 'call-one'));
        const two = await session.postStream(callText('test_hold', { key: 'two' }, 'call-two'));
        const { id } = await one.next();
        await two.next();
        one.drop();
        await release('two');
        assert.equal((await two.message()).message.id, 'call-two');
        await release('one');
        const resumed = await session.get({ 'last-event-id': id });
        assert.equal(resumed.status, 200);
        const { message } = await resumed.message();
        assert.equal(message.id, 'call-one');
        assert.equal(resultText(message), 'Released: one');
    });
    test('a stream can be resumed before its call has ended', async () => {
        const session = await Session.open(gateway.url);
        const events = await session.postStream(callText('test_hold', { key: 'early' }, 'early'));
        const { id } = await events.next();
        events.drop();
        const resumed = await session.get({ 'last-event-id': id });
        assert.equal(resumed.status, 200);
        await release('early');
        assert.equal((await resumed.message()).message.id, 'early');
    });
    test('an event id of another session does not resume a stream', async () => {
        const [mine, other] = await Promise.all([Session.open(gateway.url), Session.open(gateway.url)]);
        const events = await mine.postStream(callText('test_hold', { key: 'mine' }));
        const { id } = await events.next();
        const stolen = await other.get({ 'last-event-id': id });
        await release('mine');
        assert.equal(resultText((await events.message()).message), 'Released: mine');
        if (stolen.status === 200) {
            await other.delete();
            assert.equal(await stolen.message(), undefined);
        } else {
            assert.ok(stolen.status >= 400 && stolen.status < 500, String(stolen.status));
        }
    });
    test('a second standalone stream is refused with 409', async () => {
        const session = await Session.open(gateway.url);
        const first = await session.get();
        assert.equal(first.status, 200);
        assert.equal((await session.get()).status, 409);
        first.drop();
    });
    test('a GET that does not accept events gets 406', async () => {
        const session = await Session.open(gateway.url);
        const answer = await send(gateway.url, { method: 'GET', headers: session.headers({ accept: 'application/json' }) });
        refused(answer, 406);
    });
    test('a message without a call arrives on the standalone stream', async () => {
        const session = await Session.open(gateway.url);
        const events = await session.get();
        await session.request('resources/subscribe', { uri: 'test://watched-resource' });
        await session.call('test_trigger_resource_update');
        const { message } = await events.notification('notifications/resources/updated');
        assert.deepEqual(message.params, { uri: 'test://watched-resource' });
        events.drop();
    });
    test('a changed tool list is announced and served', async () => {
        const session = await Session.open(gateway.url);
        const events = await session.get();
        const revision = ({ result }) => result.tools.find(({ name }) => name === 'test_trigger_tool_change').description;
        const old = revision(await session.request('tools/list'));
        await session.call('test_trigger_tool_change');
        await events.notification('notifications/tools/list_changed');
        assert.notEqual(revision(await session.request('tools/list')), old);
        events.drop();
    });
    test('a cancelled call is cancelled at the server and never answered', async () => {
        const session = await Session.open(gateway.url);
        const counts = async () => JSON.parse(resultText(await session.call('test_hold_counts')));
        const before = await counts();
        const events = await session.postStream(callText('test_hold', { key: 'cancelled' }, 'to-cancel'));
        await events.next();
        await session.post({ jsonrpc: '2.0', method: 'notifications/cancelled', params: { requestId: 'to-cancel', reason: 'test' } });
        await until(async () => (await counts()).cancelled > before.cancelled, 10_000, 'the call is cancelled upstream');
        await session.delete();
        assert.equal(await events.message(), undefined);
    });
});

describe('HTTP+SSE of 2024-11-05', () => {
    for (const path of ['/sse', '/mcp']) {
        test(`a GET of ${path} sends the endpoint first and answers as message events`, async () => {
            const events = await stream(`${gateway.origin}${path}`, { headers: { accept: 'text/event-stream' } });
            assert.equal(events.status, 200);
            const first = await events.next();
            assert.equal(first.event, 'endpoint');
            const endpoint = new URL(first.data, gateway.origin);
            assert.equal(endpoint.origin, gateway.origin);
            const posted = await send(endpoint, { headers: { 'content-type': 'application/json' }, body: initialize('2024-11-05') });
            assert.equal(posted.status, 202);
            const { event, message } = await events.message();
            assert.equal(event, 'message');
            assert.equal(message.result.protocolVersion, '2024-11-05');
            events.drop();
        });
    }
    test('a session over HTTP+SSE ends with its stream', async () => {
        const events = await stream(`${gateway.origin}/sse`, { headers: { accept: 'text/event-stream' } });
        const endpoint = new URL((await events.next()).data, gateway.origin);
        events.drop();
        const status = async () => (await send(endpoint, { headers: { 'content-type': 'application/json' }, body: ping })).status;
        await until(async () => (await status()) === 404, 10_000, 'the endpoint is gone');
    });
});
