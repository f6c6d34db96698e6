// Out of memory: a request or an answer that does not fit fails its call, and the gateway continues.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, request } from 'node:http';
import { text } from 'node:stream/consumers';
import { after, before, describe, test } from 'node:test';

import { sanitized, startGateway } from '../gateway.mjs';
import { post, resultText, Session } from '../raw.mjs';

const MiB = 1 << 20;
const LIMIT = 72 * MiB; // of address space: an idle gateway has 24 MiB
const LARGE = 60 * MiB;
const WAIT_MS = 20_000;

const TOOLS = '{"tools":[{"name":"json","inputSchema":{"type":"object"}},{"name":"events","inputSchema":{"type":"object"}},{"name":"small","inputSchema":{"type":"object"}}]}';
const READY = '{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"large","version":"1"}}';

/** A server over HTTP whose tools answer with more than fits into memory, or with little. */
async function startLarge() {
    const filler = 'x'.repeat(LARGE);
    const server = createServer(async (req, res) => {
        if (req.method !== 'POST') return void res.writeHead(405).end();
        const { id, method, params } = JSON.parse(await text(req));
        if (id === undefined) return void res.writeHead(202).end();
        const said = `{"content":[{"type":"text","text":"${params?.name === 'small' ? 'small' : filler}"}]}`;
        const answer = `{"jsonrpc":"2.0","id":${id},"result":${method === 'initialize' ? READY : method === 'tools/list' ? TOOLS : said}}`;
        res.on('error', () => {});
        if (params?.name === 'events') res.writeHead(200, { 'content-type': 'text/event-stream' }).end(`data: ${answer}\n\n`);
        else res.writeHead(200, { 'content-type': 'application/json' }).end(answer);
    }).listen(0, '127.0.0.1');
    await once(server, 'listening');
    return { url: `http://127.0.0.1:${server.address().port}/mcp`, stop: () => (server.closeAllConnections(), server.close()) };
}

/** The same over stdio, in as little memory as a shell takes. */
const script = `
while read -r line; do
    id=$(expr "$line" : '.*"id":\\([0-9]*\\)')
    case $line in
    *'"initialize"'*) echo '{"jsonrpc":"2.0","id":'$id',"result":${READY}}' ;;
    *'"tools/list"'*) echo '{"jsonrpc":"2.0","id":'$id',"result":${TOOLS}}' ;;
    *'"small"'*) echo '{"jsonrpc":"2.0","id":'$id',"result":{"content":[{"type":"text","text":"small"}]}}' ;;
    *'"tools/call"'*)
        printf '{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"' $id
        head -c ${LARGE} /dev/zero | tr '\\0' x
        echo '"}]}}' ;;
    esac
done`;

describe('a gateway that runs out of memory', { skip: sanitized && 'sanitizers reserve address space; tests/run has this with build-release as well' }, () => {
    let peer, gateway, session;
    before(async () => {
        peer = await startLarge();
        const mcpServers = { http: { type: 'http', url: peer.url }, stdio: { command: 'sh', args: ['-c', script], timeout: '2s' } };
        gateway = await startGateway({ mcpServers, limits: { max_body: '64MiB' } }, [], { launcher: ['prlimit', `--as=${LIMIT}`] });
        session = await Session.open(gateway.url);
    });
    after(async () => {
        await gateway?.stop();
        peer?.stop();
    });

    /** Small calls work, and the gateway is still the same process. */
    const assertServes = async () => {
        for (const server of ['http', 'stdio']) assert.equal(resultText(await session.call(`${server}__small`)), 'small');
        assert.equal(gateway.child.exitCode, null);
    };

    /** Posts a body that the gateway may refuse before it has read all of it. */
    async function postLarge(body) {
        const req = request(gateway.url, { method: 'POST', headers: { ...session.headers(post()), 'content-length': Buffer.byteLength(body) }, agent: false });
        req.end(body);
        const [res] = await once(req, 'response');
        return { status: res.statusCode, headers: res.headers, body: await text(res) };
    }

    test('a body that does not fit into memory gets 503', async () => {
        const { status, headers, body } = await postLarge(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"http__small","arguments":{"x":"${'x'.repeat(LARGE)}"}}}`);
        assert.equal(status, 503);
        assert.ok(headers['retry-after']);
        assert.equal(JSON.parse(body).error.data.reason, 'overloaded');
        await gateway.line(/request refused: out of memory/, WAIT_MS);
        await assertServes();
    });

    test('a body whose keys cannot be compared gets 503', async () => {
        const keys = Array.from({ length: 1_400_000 }, (_, i) => `"key${i}":1`).join(',');
        const { status, body } = await postLarge(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"http__small","arguments":{${keys}}}}`);
        assert.equal(status, 503);
        assert.equal(JSON.parse(body).error.data.reason, 'overloaded');
        await assertServes();
    });

    /** The error that a call of a tool is answered with. */
    async function failure(name) {
        const { body } = await session.post({ jsonrpc: '2.0', id: 1, method: 'tools/call', params: { name, arguments: {} } });
        assert.match(body, /"error":\{/, body.slice(0, 200));
        return body;
    }

    test('a call whose JSON answer over HTTP does not fit fails', async () => {
        assert.match(await failure('http__json'), /"reason":"overloaded"/);
        await assertServes();
    });

    test('a call whose event over HTTP does not fit fails', async () => {
        await failure('http__events');
        await assertServes();
    });

    test('a call whose line over stdio does not fit fails', async () => {
        await failure('stdio__json');
        await gateway.line(/server message dropped: out of memory/, WAIT_MS);
        await assertServes();
    });
});
