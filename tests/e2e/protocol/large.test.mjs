// Large messages of callers: parsed by workers, in order, forwarded byte for byte, and without delaying other callers.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { request } from 'node:http';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { after, before, describe, test } from 'node:test';

import { binary, peerPath, startGateway, startPeer, temporaryDirectory, until, writeConfig } from '../gateway.mjs';
import { initialize, post, reply, resultText, Session } from '../raw.mjs';

const mirror = peerPath('mirror');
const MiB = 1 << 20;
const WAIT_MS = 60_000;
const dense = bytes => `[${'1,'.repeat(bytes / 2)}1]`;
const onOneLine = message => message.replace(/[\r\n]/g, ' ');
const call = (id, params) => `{"jsonrpc":"2.0","id":${id},"method":"tools/call","params":${params}}`;
const mirrored = (id, args) => call(id, `{"name":"m__mirror","arguments":${args}}`);

/** Posts a body; `sent` resolves when all of it has been handed to the system, `answer` with the answer, or undefined if it was dropped. */
function postLarge(session, body, headers = {}) {
    const req = request(session.url, { method: 'POST', headers: { ...session.headers(post()), 'content-length': Buffer.byteLength(body), ...headers }, agent: false });
    const sent = once(req, 'finish');
    const answer = once(req, 'response').then(async ([res]) => ({ status: res.statusCode, headers: res.headers, body: await text(res) }), () => undefined);
    req.end(body);
    return { sent, answer, drop: () => req.destroy() };
}

for (const transport of ['stdio', 'http']) {
    describe(`large calls to a server over ${transport}`, () => {
        let peer, gateway, session;
        before(async () => {
            peer = transport === 'http' ? await startPeer(mirror, '--http') : undefined;
            gateway = await startGateway({ mcpServers: { m: peer ? { type: 'http', url: peer.url } : { command: mirror } }, timeouts: { stream_after: '5m' }, audit: { jsonl: 'audit.jsonl', arguments: true } });
            session = await Session.open(gateway.url);
        });
        after(async () => {
            await gateway?.stop();
            await peer?.stop();
        });

        for (const first of ['name', 'arguments'])
            test(`a large call with its ${first} first arrives byte for byte, except its name and progress token`, async () => {
                const args = `{"text":${JSON.stringify('é"\\\n'.repeat(MiB / 4))},"list":${dense(MiB)} , "odd":[1E5,1.0,-0,"\\u00e9\\/"]}`;
                const params = (name, token) => first === 'name' ? `{ "name":"${name}","_meta":{"x":1.0,"progressToken":${token}},"arguments":${args}}`
                    : `{"arguments":${args} ,"_meta":{"progressToken":${token},"x":1.0},"name":"${name}" }`;
                const { answer } = postLarge(session, call(7, params('m__mirror', '"mine"')));
                const seen = resultText(reply(await answer));
                const token = /"progressToken":(\d+)/.exec(seen)?.[1];
                assert.ok(token && seen.endsWith(`,"method":"tools/call","params":${params('mirror', token)}}`), seen.slice(0, 300));
            });

        test('a large call on several lines arrives without its line ends', async () => {
            const args = `{\n"list":[\r\n${'1,\n'.repeat(MiB / 4)}2]\n}`;
            const seen = resultText(reply(await postLarge(session, mirrored(7, args)).answer));
            assert.ok(onOneLine(seen).endsWith(`"params":{"name":"mirror","arguments":${onOneLine(args)}}}`), seen.slice(0, 300));
        });

        test('a large call is recorded with the digest of its arguments', async () => {
            const args = `{"list":${dense(MiB)},"password":"hidden"}`;
            resultText(reply(await postLarge(session, mirrored(8, args)).answer));
            const digest = createHash('sha256').update(args).digest('hex');
            const row = await until(() => readFileSync(join(gateway.state, 'audit.jsonl'), 'utf8').split('\n').find(line => line.includes(digest)), WAIT_MS, 'its row');
            assert.match(row, /too long: \d+ bytes/);
        });
    });
}

describe('large messages', () => {
    let gateway, session, neighbour;
    before(async () => {
        gateway = await startGateway({ mcpServers: { m: { command: mirror } }, timeouts: { stream_after: '5m' } }); // answers are JSON, even on a busy machine
        session = await Session.open(gateway.url, { version: '2025-03-26' });
        neighbour = await Session.open(gateway.url);
        await neighbour.call('m__mirror');
    });
    after(() => gateway?.stop());

    const kinds = {
        'a call': id => mirrored(id, `{"list":${dense(24 * MiB)}}`).replace('m__mirror', 'm__nothing'),
        'an unknown method': id => `{"jsonrpc":"2.0","id":${id},"method":"no/such","params":{"x":${dense(24 * MiB)}}}`,
        'a notification': () => `{"jsonrpc":"2.0","method":"notifications/none","params":{"x":${dense(24 * MiB)}}}`,
        'an answer': id => `{"jsonrpc":"2.0","id":${id},"result":{"x":${dense(24 * MiB)}}}`,
        'a text that is not JSON': id => `{"jsonrpc":"2.0","id":${id},"method":"ping","params":{"x":${dense(24 * MiB)}}`,
        'a batch': id => `[${mirrored(id, `{"list":${dense(24 * MiB)}}`).replace('m__mirror', 'm__nothing')},{"jsonrpc":"2.0","id":0,"method":"ping"}]`
    };
    for (const [kind, make] of Object.entries(kinds))
        test(`large messages of others do not delay a call: ${kind}`, async () => {
            const body = make(5);
            let held = await holdUp(body);
            for (let again = 0; again < 2 && held > 0.5; again++) held = await holdUp(body); // a busy machine holds up calls as well
            assert.ok(held <= 0.5, `one call waited for ${held} of the time it took to read the message`);
        });

    /** The longest call of a neighbour as a fraction of the time that the gateway takes for the body. */
    async function holdUp(body) {
        const { sent, answer } = postLarge(session, body);
        let over = false, longest = 0;
        answer.then(() => (over = true));
        await sent;
        const begin = performance.now();
        while (!over) {
            const start = performance.now();
            await neighbour.call('m__mirror');
            longest = Math.max(longest, performance.now() - start);
        }
        assert.ok((await answer).status < 500);
        return longest / (performance.now() - begin);
    }

    test('large messages in a batch are answered with the rest of it', async () => {
        const args = `{"list":${dense(MiB)}}`;
        const answers = JSON.parse((await postLarge(session, `[${mirrored(1, args)},{"jsonrpc":"2.0","id":2,"method":"ping"},{"id":3}]`).answer).body);
        assert.deepEqual(answers.map(({ id }) => id).sort(), [1, 2, 3]);
        assert.ok(resultText(answers.find(({ id }) => id === 1)).endsWith(`"params":{"name":"mirror","arguments":${args}}}`));
        assert.equal(answers.find(({ id }) => id === 3).error.code, -32600);
    });

    test('large messages in a batch with too many messages are refused', async () => {
        for (const last of [`{"list":${dense(MiB)}}`, '{}']) {
            const pings = Array.from({ length: 150 }, (_, i) => `{"jsonrpc":"2.0","id":${i},"method":"ping"}`);
            assert.match((await postLarge(session, `[${pings},${mirrored(1, last)}]`).answer).body, /-32600/);
        }
    });

    test('large batches that initialize or that the revision does not allow are refused', async () => {
        const filler = mirrored(1, `{"list":${dense(MiB)}}`);
        const again = `{"jsonrpc":"2.0","id":2,"method":"initi\\u0061lize","params":{}}`;
        assert.match((await postLarge(session, `[${filler},${again}]`).answer).body, /-32600/);
        assert.match((await postLarge(neighbour, `[${filler}]`).answer).body, /-32600/);
    });

    test('large messages whose caller or session ends while they are read are freed', async () => {
        const body = mirrored(1, `{"list":${dense(4 * MiB)}}`);
        const gone = await Session.open(gateway.url);
        const dropped = postLarge(gone, body);
        await dropped.sent;
        dropped.drop();
        await dropped.answer;
        const ended = postLarge(gone, body);
        await ended.sent;
        assert.equal((await gone.delete()).status, 200);
        assert.match((await ended.answer).body, /session|"result"/);
        resultText(await neighbour.call('m__mirror'));
    });
});

test('messages of one pipe keep their order when one is large', async () => {
    const directory = temporaryDirectory();
    const child = spawn(binary, ['serve', '--stdio', '--config', writeConfig(directory.path, { mcpServers: { m: { command: mirror } } })],
        { stdio: ['pipe', 'pipe', 'ignore'], env: { ...process.env, POSTERN_STATE: directory.path } });
    const lines = [JSON.stringify(initialize('2025-11-25')), '{"jsonrpc":"2.0","method":"notifications/initialized"}', mirrored(2, '{}'),
        mirrored(3, `{"list":${dense(MiB)}}`), '{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":3}}',
        mirrored(4, `{"list":${dense(MiB)}}`), '{"jsonrpc":"2.0","id":5,"method":"ping"}'];
    child.stdin.end(lines.join('\n') + '\n');
    const answers = (await text(child.stdout)).trim().split('\n').map(line => JSON.parse(line));
    assert.deepEqual(answers.map(({ id }) => id).filter(id => id !== undefined).sort(), [1, 2, 4, 5], 'the cancelled one is not answered');
    directory.remove();
});

test('the gateway stops while it reads large messages', async () => {
    const gateway = await startGateway({ timeouts: { shutdown: '2s' }, mcpServers: { m: { command: mirror } } });
    const posts = [];
    for (let i = 0; i < 3; i++) posts.push(postLarge(await Session.open(gateway.url), mirrored(1, `{"list":${dense(8 * MiB)}}`)));
    await Promise.all(posts.map(({ sent }) => sent));
    await gateway.stop();
    for (const { answer } of posts) {
        const got = await answer;
        if (got) assert.match(got.body, /shutting_down|"result"/);
    }
});

test('a policy judges large arguments up to its limit', async () => {
    const rule = { id: 'fine', effect: 'allow', description: 'only if the kind is fine', tenants: ['*'], subjects: ['*'], servers: ['m'], kinds: ['tool'], names: ['mirror'], when: { '/kind': { eq: 'fine' } } };
    const policy = { version: 1, description: 'A policy of this test', rules: [rule] };
    const gateway = await startGateway({ policy: 'policy.json', mcpServers: { m: { command: mirror } } }, [], { files: { 'policy.json': policy } });
    try {
        const session = await Session.open(gateway.url);
        const judged = async (kind, bytes) => reply(await postLarge(session, mirrored(1, `{"list":${dense(bytes)},"kind":"${kind}"}`)).answer);
        assert.match(resultText(await judged('fine', MiB / 2)), /"kind":"fine"/);
        assert.equal((await judged('bad', MiB / 2)).error.code, 403);
        assert.equal((await judged('fine', 2 * MiB)).error.code, -32602);
    } finally {
        await gateway.stop();
    }
});
