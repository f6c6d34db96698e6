// Tests the byte budgets: no mix of slow, huge and abandoned requests and answers takes more memory than is configured.
//
// A gateway with small budgets has three tenants. In two of them callers and servers misbehave, in an order that a seed
// decides; the callers of the third tenant behave. At all times:
//   - the gateway's resident memory is at most its resident memory at rest, plus limits.memory, plus SLACK
//   - the bytes that /healthz reports as held are within limits.memory, and within limits.identity_memory for each identity
//   - every call of the third tenant gets its result, with the right bytes
//   - a misbehaving request is answered or disconnected within PATIENCE_MS, and a request to refuse does not get a result
// When all callers have disconnected, no budget holds bytes, no connection is open, and the memory is returned to the system.
import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync, writeFileSync } from 'node:fs';
import { Agent, createServer, request } from 'node:http';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { setTimeout as sleep } from 'node:timers/promises';
import { parseArgs } from 'node:util';

import { binary, sanitized, startGateway, temporaryDirectory, until, watch } from '../e2e/gateway.mjs';
import { initialize, post, reply, send } from '../e2e/raw.mjs';
import { chooser } from './chooser.mjs';

const { values } = parseArgs({ options: { seconds: { type: 'string', default: '8' }, seed: { type: 'string', default: '1' } } });
const SECONDS = Number(values.seconds), SEED = Number(values.seed);
assert.ok(SECONDS >= 5 && SECONDS <= 3600, '--seconds must be 5 to 3600');

const KIB = 1024, MIB = 1024 * KIB;
const BODY = 4 * MIB, MESSAGE = 8 * MIB;
const MEMORY = 96 * MIB, TENANT = 32 * MIB, IDENTITY = 16 * MIB; // the two others cannot use the share of the third tenant
const SLACK = 24 * MIB; // connections, sessions, parts of messages in processing, and unused memory of the allocator
const LEFT = 8 * MIB; // permitted growth of the resident memory at rest, after all holds are released
const PATIENCE_MS = 30_000;
const upstream = join(process.env.BENCH_BUILD, 'bench/bench_upstream');

// ---- figures ---------------------------------------------------------------------------------

const wrong = [];
/** Records a failure, which is printed at the end. */
function expect(condition, what) {
    if (!condition && wrong.length < 20) wrong.push(what);
}

const tally = {};
const count = what => (tally[what] = (tally[what] ?? 0) + 1);
const peak = { rss: 0, held: 0, identity: 0, waiting: 0 };

const resident = pid => Number(/^VmRSS:\s+(\d+)/m.exec(readFileSync(`/proc/${pid}/status`, 'latin1'))[1]) * KIB;
/** The number of callers' connections that the gateway has open. */
const connections = () => {
    const here = `0100007F:${Number(new URL(gateway.url).port).toString(16).toUpperCase().padStart(4, '0')}`;
    return readFileSync('/proc/net/tcp', 'latin1').split('\n').filter(line => line.trim().split(/\s+/)[1] === here && / (01|08) /.test(line)).length;
};
const megabytes = bytes => `${(bytes / MIB).toFixed(1)} MiB`;

// ---- servers ---------------------------------------------------------------------------------

/** A server that sends slowly, stops in the middle, or never answers. */
async function startSlowServer() {
    const tools = ['drip', 'cut', 'never'].map(name => ({ name, inputSchema: { type: 'object' } }));
    const results = {
        initialize: { protocolVersion: '2025-11-25', capabilities: { tools: {} }, serverInfo: { name: 'slow', version: '1' } },
        'tools/list': { tools },
        ping: {}
    };
    const drip = async (res, bytes, events) => {
        const piece = 'x'.repeat(bytes / 16);
        for (let i = 0; i < 16 && !res.destroyed; i++) {
            res.write(piece);
            await sleep(60);
        }
        res.end(`"}]}}${events ? '\n\n' : ''}`);
    };
    const server = createServer(async (req, res) => {
        if (req.method !== 'POST') return res.writeHead(405).end();
        const { id, method, params } = JSON.parse(await text(req));
        if (id === undefined) return res.writeHead(202).end();
        if (results[method]) return res.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify({ jsonrpc: '2.0', id, result: results[method] }));
        if (params.name === 'never') return;
        const { bytes, events } = params.arguments;
        res.writeHead(200, { 'content-type': events ? 'text/event-stream' : 'application/json' });
        res.write(`${events ? 'data: ' : ''}{"jsonrpc":"2.0","id":${id},"result":{"content":[{"type":"text","text":"`);
        if (params.name === 'drip') return drip(res, bytes, events);
        res.write('x'.repeat(bytes / 2), () => res.destroy());
    });
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    return { url: `http://127.0.0.1:${server.address().port}/mcp`, stop: () => (server.closeAllConnections(), server.close()) };
}

async function startUpstream(kind) {
    const peer = watch(spawn(upstream, [kind, '0'], { stdio: ['ignore', 'pipe', 'inherit'] }), 'stdout');
    const url = (await peer.line(/^(http:\S+)$/m, 20_000))[1];
    return { url, stop: () => (peer.child.kill('SIGTERM'), peer.exited) };
}

// ---- callers ---------------------------------------------------------------------------------

let working = true, gateway, folder;
const at = name => join(folder.path, name);

/** A session of a subject in a tenant. */
class Caller {
    static async open(token) {
        const caller = new Caller();
        caller.agent = new Agent({ keepAlive: true, maxSockets: 1 });
        caller.headers = { authorization: `Bearer ${token}` };
        const answer = await caller.ask(initialize('2025-11-25'));
        if (answer.status !== 200) return undefined;
        caller.headers['mcp-session-id'] = answer.headers['mcp-session-id'];
        caller.headers['mcp-protocol-version'] = '2025-11-25';
        await caller.ask({ jsonrpc: '2.0', method: 'notifications/initialized' });
        return caller;
    }

    /** Begins a request: {req, answer}, where answer is the response whose body is not read yet. */
    begin({ method = 'POST', body, length, agent = this.agent }) {
        const size = length ?? (body === undefined ? undefined : Buffer.byteLength(body));
        const req = request(gateway.url, { method, agent, headers: { ...post(), ...this.headers, ...(size === undefined ? {} : { 'content-length': size }) } });
        const answer = once(req, 'response').then(([res]) => res.on('error', () => {}));
        answer.catch(() => {});
        req.on('error', () => {});
        return { req, answer };
    }

    async ask(body) {
        const message = JSON.stringify(body);
        const { req, answer } = this.begin({ body: message });
        req.end(message);
        const res = await answer;
        return { status: res.statusCode, headers: res.headers, body: await text(res) };
    }

    async close() {
        const { req, answer } = this.begin({ method: 'DELETE' });
        req.end();
        await text(await answer);
        this.agent.destroy();
    }
}

const call = (name, args, id = 1) => ({ jsonrpc: '2.0', id, method: 'tools/call', params: { name, arguments: args } });

/** Waits until a request has ended, with an answer or without; a request that does not end is a failure. */
async function ends(what, promise) {
    const late = Symbol('late');
    const timer = new AbortController();
    const value = await Promise.race([promise.catch(() => 'cut'), sleep(PATIENCE_MS, late, { signal: timer.signal }).catch(() => late)]);
    timer.abort();
    expect(value !== late, `${what}: no end after ${PATIENCE_MS} ms`);
    return value;
}

const SERVERS = ['http', 'sse', 'stdio'];
const REFUSALS = [408, 409, 413, 429, 503]; // 409: the gateway has not noticed yet that the previous stream was dropped

function expectRefused(what, { statusCode, headers }) {
    count(`HTTP ${statusCode}`);
    expect(statusCode === 200 || REFUSALS.includes(statusCode), `${what}: HTTP ${statusCode}`);
    if (statusCode === 429) expect(/^[1-9]\d*$/.test(headers['retry-after']), `${what}: 429 without Retry-After`);
}

/** The ways in which callers misbehave, each on its own connection. */
const misdeeds = {
    async readSlowly(caller, { of, between }) {
        const body = JSON.stringify(call(`${of(SERVERS)}__huge`, { bytes: between(1, 7) * MIB }));
        const { req, answer } = caller.begin({ agent: false, body });
        req.end(body);
        await ends('readSlowly', answer.then(async res => {
            expectRefused('readSlowly', res);
            const end = Date.now() + between(500, 4000);
            while (working && Date.now() < end && res.read(4 * KIB) !== undefined && !res.readableEnded) await sleep(50);
            res.destroy();
        }));
    },
    async vanish(caller, { of, between }) {
        const body = JSON.stringify(call(`${of(SERVERS)}__huge`, { bytes: between(1, 7) * MIB }));
        const { req } = caller.begin({ agent: false, body });
        req.end(body);
        await sleep(between(0, 200));
        req.destroy();
    },
    async sendSlowly(caller, { between, upTo }) {
        const length = between(1, 4) * MIB - 1000;
        const { req, answer } = caller.begin({ agent: false, length });
        const refused = answer.then(res => expectRefused('sendSlowly', res), () => {});
        let gone = false;
        refused.then(() => (gone = true));
        const pieces = between(2, 30);
        for (let i = 0; working && !gone && i < pieces; i++) {
            req.write(Buffer.alloc(Math.floor(length / 40), 0x20));
            await sleep(upTo(200));
        }
        req.destroy();
        await ends('sendSlowly', refused);
    },
    async sendHuge(caller, { of, between }) {
        const body = JSON.stringify(call(`${of(SERVERS)}__small`, { padding: 'x'.repeat(between(1, 6) * MIB) }));
        const { req, answer } = caller.begin({ agent: false, body });
        req.end(body);
        await ends('sendHuge', answer.then(async res => (expectRefused('sendHuge', res), text(res))));
    },
    async askTooMuch(caller, { of }) {
        const body = JSON.stringify(call(`${of(SERVERS)}__huge`, { bytes: 2 * MESSAGE }));
        const { req, answer } = caller.begin({ agent: false, body });
        req.end(body);
        await ends('askTooMuch', answer.then(async res => {
            expectRefused('askTooMuch', res);
            expect(!(await text(res)).includes('"result"'), 'askTooMuch: a result above limits.max_message');
        }));
    },
    async slowServer(caller, { of, between, upTo }) {
        const body = JSON.stringify(call(`slow__${of(['drip', 'cut', 'never'])}`, { bytes: between(1, 6) * MIB, events: upTo(2) === 1 }));
        const { req, answer } = caller.begin({ agent: false, body });
        req.end(body);
        const timer = setTimeout(() => req.destroy(), between(100, 3000));
        await ends('slowServer', answer.then(res => text(res)));
        clearTimeout(timer);
    },
    async readNothing(caller, { between }) {
        const { req, answer } = caller.begin({ method: 'GET', agent: false });
        req.end();
        const res = await ends('readNothing', answer);
        if (res !== 'cut') expectRefused('readNothing', res);
        await caller.ask(call('stdio__flood', { mode: 'notes', ms: between(50, 500) }));
        await sleep(between(500, 3000)); // nothing is read meanwhile
        req.destroy();
    },
    async unauthenticated(caller, { between }) {
        const length = between(1, 4) * MIB;
        const req = request(gateway.url, { method: 'POST', agent: false, headers: { ...post(), 'content-length': length } });
        req.on('error', () => {});
        const answer = once(req, 'response').then(([res]) => expect(res.statusCode === 401, `unauthenticated: HTTP ${res.statusCode}`), () => {});
        req.write(Buffer.alloc(length / 2, 0x20));
        await ends('unauthenticated', answer);
        req.destroy();
    }
};

async function misbehave(token, seed) {
    const choice = chooser(seed);
    let caller;
    while (working) {
        caller ??= await Caller.open(token).catch(() => undefined);
        if (!caller) {
            await sleep(100);
            continue;
        }
        const name = choice.of(Object.keys(misdeeds));
        count(name);
        await misdeeds[name](caller, choice).catch(error => expect(/ECONNRESET|EPIPE|socket hang up|aborted/.test(error.message), `${name}: ${error.stack}`));
        if (choice.upTo(4)) continue;
        if (choice.upTo(2)) await caller.close().catch(() => {}); // otherwise the session is abandoned
        caller.agent.destroy();
        caller = undefined;
    }
    await caller?.close().catch(() => {});
}

/** A caller that must not be affected: it makes small calls, and calls whose results take a large part of the budgets. */
async function behave(token, seed) {
    const choice = chooser(seed);
    const caller = await Caller.open(token);
    for (let id = 1; working; id++) {
        const bytes = choice.upTo(8) === 0 ? choice.between(1, 6) * MIB : choice.upTo(1000);
        const server = choice.of(SERVERS);
        const answer = await ends('behave', caller.ask(call(`${server}__huge`, { bytes }, id)));
        const message = answer?.status === 200 ? reply(answer) : undefined;
        expect(message?.id === id && message.result?.content[0].text.length === bytes, `behave: ${bytes} bytes of ${server}: ${answer?.status} ${answer?.body?.slice(0, 300)}`);
        count('answered');
        await sleep(choice.upTo(20));
    }
    await caller.close();
}

// ---- the run ---------------------------------------------------------------------------------

const health = async () => JSON.parse((await send(`${gateway.origin}/healthz`, { method: 'GET' })).body).memory;

async function observe(rest) {
    for (let i = 0; working; i++) {
        const rss = resident(gateway.pid);
        peak.rss = Math.max(peak.rss, rss - rest);
        if (i % 10 === 0) {
            const { held, largest_identity: identity, waiting } = await health();
            peak.held = Math.max(peak.held, held);
            peak.identity = Math.max(peak.identity, identity);
            peak.waiting = Math.max(peak.waiting, waiting);
        }
        await sleep(10);
    }
}

function newToken(subject, tenant) {
    return execFileSync(binary, ['token', 'new', '--file', at('tokens.json'), '--subject', subject, '--tenant', tenant], { encoding: 'utf8' }).trim();
}

async function start(servers) {
    const rule = { id: 'all', effect: 'allow', description: 'everything', tenants: ['*'], subjects: ['authenticated'], servers: ['*'], kinds: ['tool'], names: ['*'] };
    writeFileSync(at('policy.json'), JSON.stringify({ version: 1, description: 'Everything is allowed', rules: [rule] }));
    const mcpServers = { http: { url: servers.http.url }, sse: { url: servers.sse.url }, stdio: { command: upstream, args: ['stdio'] }, slow: { url: servers.slow.url } };
    const impatient = Object.fromEntries(Object.entries(mcpServers).map(([name, server]) => [name, { ...server, timeout: '4s' }]));
    const tenant = { mcpServers: impatient, limits: { memory: TENANT } };
    gateway = await startGateway({
        auth: { providers: [{ type: 'bearer', tokens: at('tokens.json') }] },
        policy: at('policy.json'),
        limits: { max_body: BODY, max_message: MESSAGE, memory: MEMORY, identity_memory: IDENTITY, identity_sessions: 2000, stream_buffer: MIB, body_timeout: '3s', auth_failures: 100_000 },
        timeouts: { session_idle: '5s', resume: '1s' },
        mcpServers,
        tenants: { rough: tenant, rude: tenant }
    });
}

async function main() {
    folder = temporaryDirectory();
    const servers = { http: await startUpstream('http'), sse: await startUpstream('sse'), slow: await startSlowServer() };
    const good = ['ana', 'ben'].map(subject => newToken(subject, 'default'));
    const bad = ['rough', 'rude'].flatMap(tenant => ['carl', 'dora', 'emil'].map(subject => newToken(subject, tenant)));
    try {
        await start(servers);
        const first = await Promise.all([...good, ...bad].map(token => Caller.open(token)));
        for (const caller of first) for (const server of SERVERS) await caller.ask(call(`${server}__huge`, { bytes: 100 }));
        await Promise.all(first.map(caller => caller.close()));
        await sleep(500);
        const rest = resident(gateway.pid);
        const people = [observe(rest), ...good.map((token, i) => behave(token, SEED * 1000 + i)), ...Array.from({ length: 8 }, () => bad).flat().map((token, i) => misbehave(token, SEED * 1000 + 100 + i))];
        await sleep(SECONDS * 1000);
        working = false;
        await Promise.all(people);
        console.log(`seed ${SEED}: ${JSON.stringify(tally)}`);
        console.log(`at most ${megabytes(peak.rss)} more than at rest, ${megabytes(peak.held)} held, ${megabytes(peak.identity)} for one identity, ${peak.waiting} answers waiting`);
        expect(peak.rss <= MEMORY + SLACK, `resident memory: ${megabytes(peak.rss)} more than at rest`);
        expect(peak.held <= MEMORY, `held: ${megabytes(peak.held)}`);
        expect(peak.identity <= IDENTITY, `held for one identity: ${megabytes(peak.identity)}`);
        await until(async () => (await health()).held === 0, PATIENCE_MS, 'no bytes are held').catch(async () => expect(false, `still held: ${JSON.stringify(await health())}`));
        await until(() => connections() === 0, PATIENCE_MS, 'connections').catch(() => expect(false, `connections that are still open: ${connections()}`));
        await until(() => resident(gateway.pid) <= rest + LEFT, PATIENCE_MS, 'memory').catch(() => expect(false, `resident memory after the run: ${megabytes(resident(gateway.pid) - rest)} more than at rest`));
        console.log(`afterwards: ${megabytes(resident(gateway.pid) - rest)} more than at rest`);
    } finally {
        await gateway?.stop();
        for (const server of Object.values(servers)) await server.stop();
    }
    for (const what of wrong) console.log(`WRONG: ${what}`);
    process.exitCode = wrong.length ? 1 : 0;
}

assert.ok(!sanitized, 'AddressSanitizer keeps freed memory in quarantine; set POSTERN to a release build');
try {
    await main();
} finally {
    folder?.remove();
}
