// HTTP servers that misuse or lose their connection, each beside a healthy one: floods of requests, streams that end at once, calls that break off,
// tokens that do not arrive. Other servers and callers must not be affected.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { readdirSync } from 'node:fs';
import { createServer } from 'node:http';
import { connect } from 'node:net';
import { describe, test } from 'node:test';
import { json, text } from 'node:stream/consumers';

import { startGateway, stdioServer, until } from '../gateway.mjs';
import { resultText, Session } from '../raw.mjs';

const CALL_FAILED = -32001;
const WAIT_MS = 20_000;
const FLOOD = 3_000; // more than there are descriptors, fewer than may be on their way
const DESCRIPTORS_MAX = 400;
const CONNECTIONS_MAX = 256;

const said = value => ({ content: [{ type: 'text', text: value }] });
const results = {
    initialize: ({ params }) => ({
        protocolVersion: params.protocolVersion,
        capabilities: { tools: {}, prompts: {}, completions: {} },
        serverInfo: { name: 'wire', version: '1.0.0' }
    }),
    'tools/list': () => ({ tools: [{ name: 'act', inputSchema: { type: 'object' } }] }),
    'prompts/list': () => ({ prompts: [{ name: 'ask' }] }),
    'tools/call': () => said('done')
};

/**
 * A server whose parts a test replaces. `on` has functions by method, `answer` for answers to its own requests, `get` for GET; each gets the
 * message, the request and the response. Everything else is answered correctly.
 */
async function startServer(on = {}) {
    const server = createServer(async (req, res) => {
        const path = new URL(req.url, 'http://127.0.0.1').pathname;
        if (on[path]) return on[path](req, res);
        if (req.method !== 'POST') return on.get ? on.get(req, res) : res.writeHead(req.method === 'GET' ? 405 : 200).end();
        const message = await json(req);
        const own = on[message.method ?? 'answer'];
        if (own) return own(message, req, res);
        return reply(message, res);
    });
    server.keepAliveTimeout = 0;
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    server.origin = `http://127.0.0.1:${server.address().port}`;
    server.stop = () => {
        server.closeAllConnections();
        server.close();
    };
    return server;
}

function reply({ id, method, params }, res) {
    if (id === undefined || method === undefined) return res.writeHead(202).end();
    res.writeHead(200, { 'content-type': 'application/json' });
    return res.end(JSON.stringify({ jsonrpc: '2.0', id, result: results[method]?.({ params }) ?? {} }));
}

/** Runs `body` with a gateway that has the server as `bad` beside a healthy one. */
async function beside(server, config, body) {
    const gateway = await startGateway({ mcpServers: { bad: { url: `${server.origin}/mcp`, ...config }, good: stdioServer.fixture() } });
    try {
        const session = await Session.open(gateway.url);
        await session.request('tools/list');
        await body({ gateway, session });
    } finally {
        server.stop();
        await gateway.stop();
    }
}

const stillGood = async session =>
    assert.equal(resultText(await session.call('good__test_simple_text')), 'This is a simple text response for testing.');
const descriptors = gateway => readdirSync(`/proc/${gateway.pid}/fd`).length;

describe('servers that send requests and do not accept answers', () => {
    const events = { 'content-type': 'text/event-stream' };
    /** The handlers of each transport that give a server access to its stream. */
    const transports = {
        http: on => {
            on.get = (_req, res) => on.open(res.writeHead(200, events));
            return '/mcp';
        },
        sse: on => {
            const send = message => on.stream.write(`data: ${JSON.stringify(message)}\n\n`);
            on['/sse'] = (_req, res) => {
                res.writeHead(200, events).write('event: endpoint\ndata: /messages\n\n');
                on.open(res);
            };
            on['/messages'] = async (req, res) => {
                const { id, method, params } = await json(req);
                if (method === undefined) return on.answer();
                res.writeHead(202).end();
                if (id !== undefined) send({ jsonrpc: '2.0', id, result: results[method]?.({ params }) ?? {} });
            };
            return '/sse';
        }
    };
    for (const [type, prepare] of Object.entries(transports)) {
        test(`a server over ${type} that does not accept answers is given up without delaying others`, async () => {
            let heard = 0;
            const on = { answer: () => heard++, open: res => (on.stream = res) }; // none of the answers is acknowledged
            const path = prepare(on);
            const server = await startServer(on);
            await beside(server, { type, url: server.origin + path }, async ({ gateway, session }) => {
                const flood = from => {
                    for (let id = from; id < from + FLOOD; id++) on.stream.write(`data: {"jsonrpc":"2.0","id":${id},"method":"ping"}\n\n`);
                };
                await until(() => on.stream, WAIT_MS, 'the stream is open');
                flood(0);
                await until(() => heard >= 32, WAIT_MS, 'answers come');
                await stillGood(session);
                assert.ok(descriptors(gateway) < DESCRIPTORS_MAX, `${descriptors(gateway)} descriptors`);
                assert.equal(resultText(await session.call('bad__act')), 'done');
                flood(FLOOD);
                await gateway.line(/server lost.*does not accept messages/, WAIT_MS);
                await stillGood(session);
                assert.ok(descriptors(gateway) < DESCRIPTORS_MAX, `${descriptors(gateway)} descriptors`);
            });
        });
    }
});

test('long calls use a bounded number of connections, and only urgent messages do not wait', async () => {
    const held = [], cancelled = [];
    const on = {
        'tools/call': (message, _req, res) => held.push(() => reply(message, res)),
        'notifications/cancelled': ({ params }, _req, res) => {
            cancelled.push(params.requestId);
            res.writeHead(202).end();
        }
    };
    const server = await startServer(on);
    await beside(server, { timeout: '60s' }, async ({ session }) => {
        const calls = Array.from({ length: CONNECTIONS_MAX + 40 }, () => session.call('bad__act'));
        await until(() => held.length === CONNECTIONS_MAX, WAIT_MS, 'all connections are taken');
        const doomed = session.nextId++;
        void session.post({ jsonrpc: '2.0', id: doomed, method: 'tools/call', params: { name: 'bad__act', arguments: {} } });
        await stillGood(session);
        await session.post({ jsonrpc: '2.0', method: 'notifications/cancelled', params: { requestId: doomed } });
        await until(() => cancelled.length === 1, WAIT_MS, 'the server receives the cancellation');
        assert.equal(held.length, CONNECTIONS_MAX);
        const answer = setInterval(() => held.splice(0).forEach(release => release()), 5);
        try {
            for (const call of calls) assert.equal(resultText(await call), 'done');
        } finally {
            clearInterval(answer);
        }
    });
});

test('a call lost on a kept connection is not sent again', async () => {
    let runs = 0;
    const on = {
        'tools/call': (_message, req) => {
            runs++;
            setTimeout(() => req.socket.destroy(), 300);
        }
    };
    const server = await startServer(on);
    await beside(server, {}, async ({ session }) => {
        const { error } = await session.call('bad__act');
        assert.equal(error.code, CALL_FAILED, JSON.stringify(error));
        assert.equal(error.data.reason, 'upstream_died');
        assert.equal(runs, 1);
        on['tools/call'] = undefined;
        assert.equal(resultText(await session.call('bad__act')), 'done');
        await stillGood(session);
    });
});

test('a stream that ends at once is resumed only after a pause', async () => {
    let resumed = 0;
    const end = res => res.writeHead(200, { 'content-type': 'text/event-stream' }).end('id: 1\nretry: 0\ndata:\n\n');
    const on = {
        'tools/call': (_message, _req, res) => end(res),
        get: (req, res) => {
            if (!req.headers['last-event-id']) return res.writeHead(405).end();
            resumed++;
            return end(res);
        }
    };
    const server = await startServer(on);
    await beside(server, { timeout: '1s' }, async ({ session }) => {
        const { error } = await session.call('bad__act');
        assert.equal(error.data.reason, 'upstream_timeout', JSON.stringify(error));
        assert.ok(resumed >= 1 && resumed <= 11, `resumed ${resumed} times in a second`);
    });
});

test('a caller that cancels during a token refresh does not stop later callers', async () => {
    const tokens = [];
    let release, origin;
    const given = new Promise(resolve => (release = resolve));
    const document = value => (_req, res) => res.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify(value()));
    const authorized = (message, req, res) => {
        const refuses = message.method === 'tools/call' && req.headers.authorization === 'Bearer token-1';
        if (req.headers.authorization && !refuses) return reply(message, res);
        const metadata = `${origin}/.well-known/oauth-protected-resource/mcp`;
        return res.writeHead(401, { 'www-authenticate': `Bearer resource_metadata="${metadata}"` }).end();
    };
    const on = {
        '/.well-known/oauth-protected-resource/mcp': document(() => ({ resource: `${origin}/mcp`, authorization_servers: [origin] })),
        '/.well-known/oauth-authorization-server': document(() => ({
            issuer: origin, authorization_endpoint: `${origin}/a`, token_endpoint: `${origin}/token`, code_challenge_methods_supported: ['S256'], response_types_supported: ['code']
        })),
        '/token': async (req, res) => {
            await text(req);
            const token = `token-${tokens.push(1)}`;
            if (tokens.length > 1) await given;
            return document(() => ({ access_token: token, token_type: 'Bearer', expires_in: 3600 }))(req, res);
        },
        ...Object.fromEntries(['initialize', 'notifications/initialized', 'tools/list', 'tools/call'].map(method => [method, authorized]))
    };
    const server = await startServer(on);
    origin = server.origin;
    const auth = { mode: 'client_credentials', issuer: origin, client_id: 'gateway', client_secret: 'the secret of gateway' };
    await beside(server, { auth }, async ({ session }) => {
        const body = { jsonrpc: '2.0', id: 10, method: 'tools/call', params: { name: 'bad__act', arguments: {} } };
        const first = session.post(body);
        await until(() => tokens.length === 2, WAIT_MS, 'another token is asked for');
        await session.post({ jsonrpc: '2.0', method: 'notifications/cancelled', params: { requestId: 10 } });
        await first;
        const second = session.call('bad__act');
        await stillGood(session);
        release();
        assert.equal(resultText(await second), 'done');
        await stillGood(session);
    });
});

test('a completion translates only the name of its reference', async () => {
    const refs = [];
    const on = {
        'completion/complete': (message, _req, res) => {
            refs.push(message.params.ref);
            reply(message, res);
        }
    };
    const server = await startServer(on);
    await beside(server, {}, async ({ session }) => {
        const ref = { type: 'ref/prompt', name: 'bad__ask', uri: 'x' };
        await session.request('completion/complete', { ref, argument: { name: 'topic', value: '' } });
        assert.deepEqual(refs, [{ type: 'ref/prompt', name: 'ask', uri: 'x' }]);
    });
});

test('a request of a server is recognized however it is escaped', async () => {
    let stream, id;
    const on = {
        'tools/call': (message, _req, res) => {
            id = message.id;
            stream = res.writeHead(200, { 'content-type': 'text/event-stream' });
            stream.write('data: {"jsonrpc":"2.0","id":1,"method":"elicitation/create","params":{"mode":"\\u0075rl","message":"?","elicitationId":"e","url":"https://example.com/"}}\n\n');
        },
        answer: ({ result }, _req, res) => {
            res.writeHead(202).end();
            stream.end(`data: ${JSON.stringify({ jsonrpc: '2.0', id, result: said(result.action) })}\n\n`);
        }
    };
    const server = await startServer(on);
    await beside(server, { timeout: '5s' }, async ({ gateway }) => {
        const session = await Session.open(gateway.url, { capabilities: { elicitation: { form: {} } } });
        assert.equal(resultText(await session.call('bad__act')), 'cancel'); // it is not asked
    });
});

test('a server without TLS is reached in a tunnel through the proxy of the environment', async () => {
    const server = await startServer();
    const asked = [];
    const proxy = createServer((_req, res) => res.writeHead(501).end()).on('connect', (req, socket) => {
        asked.push(req.url);
        const back = connect(server.address().port, '127.0.0.1', () => {
            socket.write('HTTP/1.1 200 Connection established\r\n\r\n');
            socket.pipe(back).pipe(socket);
        });
        for (const [end, other] of [[socket, back], [back, socket]]) end.on('error', () => other.destroy()).on('close', () => other.destroy());
    });
    await once(proxy.listen(0, '127.0.0.1'), 'listening');
    const variables = { http_proxy: `http://127.0.0.1:${proxy.address().port}`, no_proxy: '' };
    const gateway = await startGateway({ mcpServers: { far: { url: 'http://far.test:81/mcp' } } }, [], { variables });
    const session = await Session.open(gateway.url);
    for (let i = 0; i < 3; i++) assert.equal(resultText(await session.call('far__act')), 'done');
    assert.deepEqual([...new Set(asked)], ['far.test:81']);
    await gateway.stop();
    proxy.closeAllConnections();
    proxy.close();
    server.stop();
});
