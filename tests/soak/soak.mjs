// The soak: a gateway with bearer tokens, policies and the audit log, in normal use while parts of it fail or change.
//
//   callers    keep sessions and check that each answer is the one to their own call
//   droppers   open event streams of every kind and drop them, also during calls
//   killer     kills servers with SIGKILL
//   reviewer   replaces the policy
//   asker      checks that after the log says "policy loaded", no call is decided by the previous policy
//   issuer     creates, uses and revokes tokens
//   noisy      a server that writes junk, log messages and stderr lines all the time
//
// A run has rounds. After each round, all callers close their sessions, and the gateway is measured. The first round is the
// warm-up; after every later one, descriptors, processes and threads must be as many as after the warm-up, and memory must have
// grown by GROWTH_KB at most. No answer may be wrong, and the audit log must have one row for each call.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { renameSync, writeFileSync } from 'node:fs';
import { Agent } from 'node:http';
import { dirname, join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { parseArgs, promisify } from 'node:util';
import { fileURLToPath } from 'node:url';

import { binary, node, sanitized, startGateway, temporaryDirectory, until } from '../e2e/gateway.mjs';
import { initialize, post, reply, stream } from '../e2e/raw.mjs';
import { descendants, holds } from './measure.mjs';
import { Session } from './session.mjs';

const { values } = parseArgs({ options: { seconds: { type: 'string', default: '60' } } });
const SECONDS = Number(values.seconds);
assert.ok(SECONDS >= 20 && SECONDS <= 3600, '--seconds must be 20 to 3600');
const WARM_UP_MS = Math.min(20_000, (SECONDS * 1000) / 3);
const ROUND_MS = Math.min(60_000, SECONDS * 1000 - WARM_UP_MS);
const ROUNDS = 1 + Math.max(1, Math.round((SECONDS * 1000 - WARM_UP_MS) / ROUND_MS));
const GROWTH_KB = 2048;
const QUIET_MS = 30_000;
const SAME = 25; // so many measurements in a row, 200 ms apart, must be equal
const CALLERS = 8;
const DROPPERS = 4;
const DROP_MS = 60; // abandoned sessions with a process each stay below limits.identity_processes until they time out

const run = promisify(execFile);
const directory = temporaryDirectory();
const at = name => join(directory.path, name);
const server = fileURLToPath(new URL('server.mjs', import.meta.url));
const demo = { command: join(dirname(binary), 'postern-demo') };
const tally = { calls: 0, answers: 0, denied: 0, interrupted: 0, dropped: 0, kills: 0, policies: 0, tokens: 0 };
const wrong = [];
let working = false; // true during a round

/** Records a failure, which is printed at the end. */
function expect(condition, what) {
    if (!condition && wrong.length < 20) wrong.push(what);
}

// ---- policy and tokens -----------------------------------------------------------------------

const rule = (id, effect, names) => ({ id, effect, description: `the rule ${id} of the soak`, tenants: ['*'], subjects: ['authenticated'], servers: ['*'], kinds: ['tool'], names });
const policyWith = (...rules) => JSON.stringify({ version: 1, description: 'The policy of the soak', rules: [rule('all', 'allow', ['*']), ...rules] });
function putPolicy(secretAllowed) {
    writeFileSync(at('policy.new'), policyWith(...(secretAllowed ? [] : [rule('no-secret', 'deny', ['secret'])])));
    renameSync(at('policy.new'), at('policy.json'));
}

const newToken = async subject => (await run(binary, ['token', 'new', '--file', at('tokens.json'), '--subject', subject])).stdout.trim();

// ---- callers ---------------------------------------------------------------------------------

const REASONS_IN_TROUBLE = ['upstream_died', 'upstream_transport', 'server_unavailable', 'upstream_invalid'];

class Caller extends Session {
    /** Calls a tool of a soak server and checks the answer. Returns 'answer', 'denied', 'interrupted' or 'wrong'. */
    async call(name, args = {}, troubled = false) {
        const id = randomUUID(), nonce = randomUUID();
        tally.calls++;
        const answer = await this.send({ jsonrpc: '2.0', id, method: 'tools/call', params: { name, arguments: { ...args, nonce } } });
        expect(answer.status === 200, `${name}: HTTP ${answer.status} ${answer.body}`);
        if (answer.status !== 200) return 'wrong';
        const response = reply(answer);
        expect(response?.id === id, `${name}: the answer to ${id} has the id ${response?.id}: ${answer.body}`);
        if (response?.result) {
            expect(response.result.content[0].text === nonce, `${name}: the answer belongs to another call: ${answer.body}`);
            tally.answers++;
            return 'answer';
        }
        const reason = response?.error?.data?.reason;
        if (reason === 'denied') {
            tally.denied++;
            return 'denied';
        }
        expect(troubled && REASONS_IN_TROUBLE.includes(reason), `${name}: ${answer.body}`);
        tally.interrupted++;
        return 'interrupted';
    }
}

async function caller(gateway, token, name, troubled) {
    while (working) {
        const session = await Caller.open(gateway, token);
        for (let i = 0; working && i < 200; i++) {
            await session.call(`${name}__echo`, {}, troubled);
            if (i % 50 === 0) await session.call(`${name}__slow`, { ms: 20 }, troubled);
            if (name !== 'steady') await sleep(5);
        }
        await session.close();
    }
}

// ---- droppers --------------------------------------------------------------------------------

const drops = {
    /** The standalone stream of a session, dropped as the SDKs do. */
    async listen({ url, headers }) {
        (await stream(url, { headers: { ...headers, accept: 'text/event-stream' } })).drop();
    },
    /** The stream of a call whose answer has begun. */
    async midCall({ url, headers }) {
        tally.calls++;
        tally.dropped++;
        const body = { jsonrpc: '2.0', id: randomUUID(), method: 'tools/call', params: { name: 'steady__slow', arguments: { nonce: 'x', ms: 30 }, _meta: { progressToken: randomUUID() } } };
        const events = await stream(url, { method: 'POST', headers: { ...headers, ...post() }, body });
        await events.notification('notifications/progress');
        events.drop();
    },
    /** The stream of an HTTP+SSE session, which ends with it. */
    async pipe({ url, headers }) {
        const events = await stream(new URL('/sse', url), { headers: { authorization: headers.authorization, accept: 'text/event-stream' } });
        await events.next();
        events.drop();
    },
    /** A session with its own server process, which is abandoned and times out. */
    async abandon({ gateway, token }) {
        const session = await Caller.open(gateway, token);
        tally.calls++;
        const answer = await session.send({ jsonrpc: '2.0', id: 1, method: 'tools/call', params: { name: 'own__add', arguments: { a: 2, b: 3 } } });
        expect(answer.status === 200 && reply(answer).result?.content[0].text === '5', `own__add: ${answer.body}`);
        tally.answers++;
        session.agent.destroy();
    }
};

async function dropper(gateway, token, i) {
    const session = await Caller.open(gateway, token);
    const kinds = Object.values(drops);
    for (let n = i; working; n++) {
        await kinds[n % kinds.length]({ gateway, token, url: session.url, headers: session.headers });
        await sleep(DROP_MS);
    }
    await session.close();
}

// ---- trouble ---------------------------------------------------------------------------------

async function killer(gateway) {
    while (working) {
        for (const [pid, line] of descendants(gateway.pid)) {
            if (!line.includes('--mortal')) continue;
            process.kill(pid, 'SIGKILL');
            tally.kills++;
        }
        await sleep(700);
    }
}

/** True if the policy in force allows the tool `secret`; null while the policy is being replaced. */
let inForce = true;
let changes = 0;

async function reviewer(gateway) {
    for (let allowed = false; working; allowed = !allowed) {
        const before = gateway.log().match(/policy loaded/g)?.length ?? 0;
        inForce = null;
        changes++;
        putPolicy(allowed);
        await until(() => (gateway.log().match(/policy loaded/g)?.length ?? 0) > before, 10_000, 'a new policy is loaded');
        inForce = allowed;
        tally.policies++;
        await sleep(500);
    }
}

async function asker(gateway, token) {
    const session = await Caller.open(gateway, token);
    while (working) {
        const [then, change] = [inForce, changes];
        const got = await session.call('steady__secret');
        if (then !== null && change === changes) expect(got === (then ? 'answer' : 'denied'), `secret: ${got}, though the policy in force says ${then ? 'allow' : 'deny'}`);
        await sleep(5);
    }
    await session.close();
}

/** True if the gateway accepts this token. The token may be revoked during the request. */
async function accepted(gateway, token) {
    const agent = new Agent({ keepAlive: true });
    const ask = (method, headers, body) => Caller.prototype.send.call({ url: gateway.url, agent, headers: { authorization: `Bearer ${token}`, ...headers } }, body, method);
    const { status, headers, body } = await ask('POST', {}, initialize('2025-11-25'));
    expect(status === 200 || status === 401, `initialize: HTTP ${status} ${body}`);
    if (status === 200) await ask('DELETE', { 'mcp-session-id': headers['mcp-session-id'] });
    agent.destroy();
    return status === 200;
}

async function issuer(gateway) {
    while (working) {
        const token = await newToken('guest');
        await until(() => accepted(gateway, token), 10_000, 'a new token is accepted');
        const session = await Caller.open(gateway, token);
        await session.call('steady__echo');
        await session.close();
        await run(binary, ['token', 'revoke', token, '--file', at('tokens.json')]);
        await until(async () => !(await accepted(gateway, token)), 10_000, 'a revoked token is refused');
        tally.tokens++;
        await sleep(300);
    }
}

// ---- measuring -------------------------------------------------------------------------------

async function round(gateway, token, ms) {
    working = true;
    const end = setTimeout(() => { working = false; }, ms);
    const workers = [
        ...Array.from({ length: CALLERS }, () => caller(gateway, token, 'steady', false)),
        caller(gateway, token, 'noisy', false),
        caller(gateway, token, 'mortal', true),
        ...Array.from({ length: DROPPERS }, (_, i) => dropper(gateway, token, i)),
        killer(gateway), reviewer(gateway), asker(gateway, token), issuer(gateway)
    ];
    try {
        await Promise.all(workers);
    } finally {
        working = false;
        clearTimeout(end);
        await Promise.allSettled(workers);
    }
}

/** Waits until all callers have disconnected and every shared server is up, for QUIET_MS at most, and measures the gateway. */
async function quiet(gateway, token, expected) {
    const session = await Caller.open(gateway, token);
    for (const name of ['steady', 'mortal', 'noisy']) await until(async () => (await session.call(`${name}__echo`, {}, true)) === 'answer', QUIET_MS, `${name} answers again`);
    await session.close();
    const settled = ({ descriptors, processes, threads }) => !expected || (descriptors === expected.descriptors && processes === expected.processes && threads === expected.threads);
    const deadline = Date.now() + QUIET_MS;
    let now = holds(gateway.pid), same = 0;
    while (Date.now() < deadline && (same < SAME || !settled(now))) {
        await sleep(200);
        const next = holds(gateway.pid);
        same = next.descriptors === now.descriptors && next.processes === now.processes && next.threads === now.threads ? same + 1 : 0;
        now = next;
    }
    return now;
}

async function main() {
    putPolicy(true);
    const token = await newToken('regular');
    const gateway = await startGateway({
        auth: { providers: [{ type: 'bearer', tokens: at('tokens.json') }] },
        policy: at('policy.json'),
        audit: { path: at('audit.db') },
        limits: { sessions: 2000, identity_sessions: 2000, identity_processes: 256, auth_failures: 100_000 },
        timeouts: { session_idle: '2s' },
        mcpServers: {
            steady: { command: node, args: [server] },
            mortal: { command: node, args: [server, '--mortal'] },
            noisy: { command: node, args: [server, '--noisy'] },
            own: { ...demo, isolation: 'session' }
        }
    });
    try {
        let base;
        for (let i = 0; i < ROUNDS; i++) {
            await round(gateway, token, i ? ROUND_MS : WARM_UP_MS);
            const now = await quiet(gateway, token, base);
            console.log(`${i ? `round ${i}` : 'warm-up'}: ${JSON.stringify(now)} ${JSON.stringify(tally)}`);
            base ??= now;
            for (const what of ['descriptors', 'processes', 'threads']) expect(now[what] === base[what], `${what}: ${base[what]} after the warm-up, ${now[what]} now`);
            if (!sanitized) expect(now.kilobytes <= base.kilobytes + GROWTH_KB, `memory: ${base.kilobytes} kB after the warm-up, ${now.kilobytes} now`);
        }
        for (const what of ['answers', 'denied', 'dropped', 'kills', 'policies', 'tokens']) expect(tally[what] > 0, `the run had no ${what}`);
    } finally {
        await gateway.stop();
    }
    const { stdout } = await run(binary, ['audit', '--file', at('audit.db'), '--limit', '0', '--json'], { maxBuffer: 1 << 30 });
    const rows = stdout.split('\n').filter(line => line.includes('"tools/call"')).length;
    expect(rows === tally.calls, `${tally.calls} calls, but ${rows} rows in the audit log`);
    expect((await run(binary, ['audit', 'verify', '--file', at('audit.db')])).stdout, 'the audit log cannot be verified');
    console.log(`audit: ${rows} rows of calls`);
    for (const what of wrong) console.log(`WRONG: ${what}`);
    process.exitCode = wrong.length ? 1 : 0;
}

try {
    await main();
} finally {
    directory.remove();
}
