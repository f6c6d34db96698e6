// The soak of reloads: a gateway whose configuration is replaced again and again, while callers use the parts that do not change.
//
// Each reload adds, changes or removes a server, a tenant or a profile, chosen by a seed. Every third configuration is also broken, and
// the next one is right again. The file is replaced by a rename, which the gateway notices; or with SIGHUP; or with `postern reload`.
//
//   callers    keep their sessions over all reloads, and call a stdio server and an HTTP server that do not change; of the gateway as a
//              whole, of a profile, and of a tenant. Some of their calls are always in flight
//   newcomer   opens sessions, calls and closes them
//   listener   keeps an event stream open, on which no message arrives
//   prober     checks after each reload that exactly the configuration in force is served, in sessions that it keeps over reloads, and
//              that `/healthz` and `postern status` report a broken file until it is right
//
// No call of a caller may fail. After a warm-up, and again at the end, the gateway has its first configuration, and is measured:
// descriptors, processes and threads must be as many, and memory must have grown by GROWTH_KB at most.
import assert from 'node:assert/strict';
import { execFile, execFileSync } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { request } from 'node:http';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { fileURLToPath } from 'node:url';

import { binary, node, sanitized, startGateway, startPeer, temporaryDirectory, until } from '../e2e/gateway.mjs';
import { initialize, reply, send } from '../e2e/raw.mjs';
import { chooser } from './chooser.mjs';
import { descendants, holds } from './measure.mjs';
import { Session } from './session.mjs';

const { values } = parseArgs({ options: { reloads: { type: 'string', default: '50' }, seed: { type: 'string', default: '1' } } });
const RELOADS = Number(values.reloads), SEED = Number(values.seed);
assert.ok(RELOADS >= 10 && RELOADS <= 100_000, '--reloads must be 10 to 100000');
const WARM_UP = 24; // each way to break a configuration once
const GROWTH_KB = 2048;
const WAIT_MS = 30_000;
const SAME = 10; // so many measurements in a row, 200 ms apart, must be equal
const REPORT_EVERY = 100;

const directory = temporaryDirectory();
const at = name => join(directory.path, name);
const control = at('control.sock');
const server = fileURLToPath(new URL('server.mjs', import.meta.url));
const soakServer = (version, more) => ({ command: node, args: [server, '--version', String(version)], ...more });
const choice = chooser(SEED);
const tally = { calls: 0, newcomers: 0, valid: 0, refused: 0, rename: 0, SIGHUP: 0, command: 0 };

// ---- configurations --------------------------------------------------------------------------

const SERVERS = ['s0', 's1', 's2', 's3'], TENANTS = ['t0', 't1', 't2'], PROFILES = ['p0', 'p1', 'p2'];
const CONSTANT = ['steady', 'remote'];
const FIRST = { servers: {}, tenants: {}, profiles: {} }; // name → version, version, names of servers

const rule = { id: 'all', effect: 'allow', description: 'the rule of the soak', tenants: ['*'], subjects: ['authenticated'], servers: ['*'], kinds: ['tool'], names: ['*'] };
const mapped = (object, f) => Object.fromEntries(Object.entries(object).map(([key, value]) => [key, f(value, key)]));

/** The configuration with the parts of this state. Each session has its own process of the server s0. */
const configuration = ({ servers, tenants, profiles }, remote) => ({
    control,
    auth: { providers: [{ type: 'bearer', tokens: at('tokens.json') }] },
    policy: at('policy.json'),
    mcpServers: {
        steady: soakServer(0),
        remote: { url: remote.url },
        ...mapped(servers, (version, name) => soakServer(version, name === 's0' ? { isolation: 'session' } : {}))
    },
    profiles: { constant: { servers: CONSTANT }, ...mapped(profiles, names => ({ servers: names })) },
    tenants: { constant: { mcpServers: { steady: soakServer(0) } }, ...mapped(tenants, version => ({ mcpServers: { own: soakServer(version) } })) }
});

let versions = 0;
const changes = {
    servers(state, name) {
        state.servers[name] = ++versions;
    },
    tenants(state, name) {
        state.tenants[name] = ++versions;
    },
    profiles(state, name) {
        const now = state.profiles[name] ?? [], other = choice.of([...CONSTANT, ...Object.keys(state.servers)]);
        const next = now.includes(other) ? now.filter(one => one !== other) : [...now, other];
        state.profiles[name] = next.length ? next : [CONSTANT.find(one => one !== other)];
    }
};

/** A state with one part added, changed or removed. */
function changed(state) {
    const next = structuredClone(state);
    const [kind, names] = choice.of([['servers', SERVERS], ['tenants', TENANTS], ['profiles', PROFILES]]);
    const name = choice.of(names);
    if (!(name in state[kind]) || choice.upTo(2)) {
        changes[kind](next, name);
    } else {
        delete next[kind][name];
        if (kind === 'servers') next.profiles = mapped(next.profiles, list => (list.join() === name ? ['steady'] : list.filter(one => one !== name)));
    }
    return next;
}

/** Ways to break a configuration: the file, and the reason for which it must be refused. */
const BROKEN = [
    [config => JSON.stringify(config).slice(0, -9), /postern\.json/],
    [config => ({ ...config, mcpServers: { ...config.mcpServers, steady: { ...config.mcpServers.steady, comand: 'x' } } }), /\/mcpServers\/steady.*comand/],
    [config => ({ ...config, policy: at('broken-policy.json') }), /\/policy/],
    [(config, { taken }) => ({ ...config, listen: [{ address: '127.0.0.1:0' }, { address: `unix:${at('other.sock')}` }, { address: `127.0.0.1:${taken}` }] }), /cannot listen on/],
    [config => ({ ...config, public_url: 'https://other.example.com' }), /\/public_url: .*restart/],
    [config => ({ ...config, profiles: { ...config.profiles, p0: { servers: ['missing'] } } }), /\/profiles\/p0.*missing/],
    [config => ({ ...config, tenants: { ...config.tenants, t0: { policy: at('missing.json'), mcpServers: {} } } }), /t0\/policy/],
    [config => ({ ...config, mcpServers: { ...config.mcpServers, s1: soakServer('${POSTERN_SOAK_UNSET}') } }), /POSTERN_SOAK_UNSET/]
];

// ---- sessions --------------------------------------------------------------------------------

/** A session that checks that each answer is the one to its own request. */
class Caller extends Session {
    static open(gateway, token, profile) {
        return super.open({ url: profile ? `${gateway.url}/${profile}` : gateway.url }, token);
    }

    async request(method, params) {
        const id = randomUUID(), answer = await this.send({ jsonrpc: '2.0', id, method, params });
        assert.equal(answer.status, 200, `${method} ${params?.name ?? ''}: HTTP ${answer.status} ${answer.body}`);
        const response = reply(answer);
        assert.equal(response?.id, id, `${method}: ${answer.body}`);
        return response;
    }

    /** Calls a tool of a soak server; gives the text of the result. */
    async call(name, args = {}) {
        const { result, error } = await this.request('tools/call', { name, arguments: args });
        assert.ok(result, `${name}: ${JSON.stringify(error)}`);
        return result.content[0].text;
    }

    async echo(name, args) {
        const nonce = randomUUID();
        assert.equal(await this.call(name, { ...args, nonce }), nonce);
        tally.calls++;
    }

    /** The names of the servers whose tools are listed. */
    async servers() {
        const { result, error } = await this.request('tools/list');
        assert.ok(result, JSON.stringify(error));
        return [...new Set(result.tools.map(({ name }) => name.split('__')[0]))].sort();
    }

    /** The HTTP status of a request of this session. */
    async status() {
        return (await this.send({ jsonrpc: '2.0', id: randomUUID(), method: 'ping' })).status;
    }
}

// ---- callers ---------------------------------------------------------------------------------

class Callers {
    #working = true;
    #ended;
    failure;

    constructor(gateway, tokens) {
        const loops = [
            this.#calls(gateway, tokens.default, undefined, 'steady__echo', 5),
            this.#calls(gateway, tokens.default, undefined, 'remote__echo', 5),
            this.#calls(gateway, tokens.default, 'constant', 'steady__echo', 5),
            this.#calls(gateway, tokens.default, 'constant', 'remote__echo', 5),
            this.#calls(gateway, tokens.constant, undefined, 'steady__echo', 5),
            this.#calls(gateway, tokens.default, 'constant', 'steady__slow', 0),
            this.#calls(gateway, tokens.default, 'constant', 'remote__slow', 0),
            this.#newcomer(gateway, tokens.default),
            this.#listener(gateway, tokens.default)
        ];
        this.#ended = Promise.all(loops.map(loop => loop.catch(error => { this.failure ??= error; })));
    }

    async #calls(gateway, token, profile, name, pause) {
        const session = await Caller.open(gateway, token, profile);
        while (this.#working) {
            await session.echo(name, { ms: 200 });
            await sleep(pause);
        }
        await session.close();
    }

    async #newcomer(gateway, token) {
        while (this.#working) {
            const session = await Caller.open(gateway, token, 'constant');
            for (const name of CONSTANT) await session.echo(`${name}__echo`);
            await session.close();
            tally.newcomers++;
            await sleep(20);
        }
    }

    /** The lists of this session do not change, so its event stream stays open, and has no messages. */
    async #listener(gateway, token) {
        const session = await Caller.open(gateway, token, 'constant');
        const [stream] = await once(request(session.url, { headers: { ...session.headers, accept: 'text/event-stream' } }).end(), 'response');
        assert.equal(stream.statusCode, 200);
        stream.setEncoding('utf8').on('data', events => { if (events.includes('jsonrpc')) this.#fail(`unexpected on the event stream of a session: ${events}`); });
        stream.on('error', () => {}).on('close', () => { if (this.#working) this.#fail('the event stream of a session ended'); });
        while (this.#working) await sleep(20);
        stream.destroy();
        await session.close();
    }

    #fail(what) {
        this.failure ??= new Error(what);
    }

    /** Fails if a call has failed. */
    check() {
        if (this.failure) throw this.failure;
    }

    async stop() {
        this.#working = false;
        await this.#ended;
        this.check();
    }
}

// ---- the configuration in force --------------------------------------------------------------

const constantProcesses = gateway => [...descendants(gateway.pid)].filter(([, line]) => line.endsWith('--version\x000\x00')).map(([pid]) => pid).sort();

class Prober {
    sessions = { tenants: {}, profiles: {} };

    static async open(gateway, tokens) {
        const prober = new Prober();
        Object.assign(prober, { gateway, tokens, main: await Caller.open(gateway, tokens.default) });
        for (const token of [tokens.default, tokens.constant]) {
            const session = await Caller.open(gateway, token);
            await session.echo('steady__echo'); // the server has started
            await session.close();
        }
        prober.constant = constantProcesses(gateway);
        assert.equal(prober.constant.length, 2);
        return prober;
    }

    /** Checks that exactly this state is in force. */
    async check(state) {
        assert.deepEqual(constantProcesses(this.gateway), this.constant, 'the processes of the servers that do not change');
        assert.deepEqual(await this.main.servers(), [...CONSTANT, ...Object.keys(state.servers)].sort());
        for (const name of SERVERS) await this.#checkServer(name, state.servers[name]);
        for (const name of TENANTS) await this.#checkTenant(name, state.tenants[name]);
        for (const name of PROFILES) await this.#checkProfile(name, state.profiles[name]);
        assert.ok(!existsSync(at('other.sock')), 'the socket of a configuration that was refused');
        await this.#leave(choice.of(['tenants', 'profiles']));
    }

    /** Closes a session, so that some tenants and profiles change without one. */
    async #leave(kind) {
        const name = choice.of(kind === 'tenants' ? TENANTS : PROFILES);
        await this.sessions[kind][name]?.close();
        delete this.sessions[kind][name];
    }

    async #checkServer(name, version) {
        if (version) return assert.equal(await this.main.call(`${name}__version`), String(version));
        const { error } = await this.main.request('tools/call', { name: `${name}__version`, arguments: {} });
        return assert.equal(error?.data?.rule, 'default', `${name} was removed: ${JSON.stringify(error)}`); // no rule allows an unknown tool
    }

    async #checkTenant(name, version) {
        const session = await this.#session('tenants', name, version, this.tokens[name], undefined, 401);
        if (session) assert.equal(await session.call('own__version'), String(version));
    }

    async #checkProfile(name, servers) {
        const session = await this.#session('profiles', name, servers, this.tokens.default, name, 404);
        if (session) assert.deepEqual(await session.servers(), [...servers].sort());
    }

    /** The session of a tenant or profile, kept or new. If it was removed, its session has ended, and another cannot be opened. */
    async #session(kind, name, present, token, profile, refused) {
        const kept = this.sessions[kind];
        if (present) return (kept[name] ??= await Caller.open(this.gateway, token, profile));
        if (kept[name]) assert.equal(await kept[name].status(), refused, `the session of ${name}, which was removed`);
        kept[name]?.agent.destroy();
        delete kept[name];
        const url = profile ? `${this.gateway.url}/${profile}` : this.gateway.url;
        const headers = { 'content-type': 'application/json', accept: 'application/json, text/event-stream', authorization: `Bearer ${token}` };
        assert.equal((await send(url, { headers, body: initialize('2025-11-25') })).status, refused, name);
        return undefined;
    }

    /** Checks what the gateway reports: the reason for which the file was refused, or that it is in order. */
    async checkReport(reason) {
        const health = JSON.parse((await send(`${this.gateway.origin}/healthz`, { method: 'GET' })).body);
        const { stdout } = await execute(['status', '--control', control]);
        const { status, configuration: { problem, failing_since: since } } = JSON.parse(stdout);
        assert.deepEqual([health.status, health.problems], reason ? ['degraded', ['configuration']] : ['ok', []]);
        assert.equal(status, health.status);
        assert.equal(since, health.configuration.failing_since);
        if (reason) assert.match(problem, reason);
        else assert.ok(!problem && !since, `${problem} ${since}`);
    }

    async close() {
        await this.main.close();
    }
}

// ---- reloads ---------------------------------------------------------------------------------

const execute = args => new Promise(resolve => { const child = execFile(binary, args, (_error, stdout, stderr) => resolve({ status: child.exitCode, stdout, stderr })); });
const EXIT_CONFIG = 3;

const triggers = {
    rename: async () => {},
    SIGHUP: async gateway => { process.kill(gateway.pid, 'SIGHUP'); },
    async command(_gateway, reason) {
        const { status, stderr } = await execute(['reload', '--control', control]);
        assert.equal(status, reason ? EXIT_CONFIG : 0, stderr);
        if (reason) assert.match(stderr, reason);
    }
};
const triggerNames = Object.keys(triggers);

/** The outcomes of reloads in the log, each of them once. */
function follow(gateway) {
    let seen = 0;
    return () => until(() => {
        const match = /configuration (?:not )?reloaded\b.*\n/.exec(gateway.log().slice(seen));
        if (match) seen += match.index + match[0].length;
        return match?.[0];
    }, WAIT_MS, 'the configuration is reloaded');
}

class Reloads {
    #count = 0;
    state = FIRST;

    constructor(parts) {
        Object.assign(this, parts); // gateway, prober, callers, peers, outcome
    }

    /** Puts this state in force; with `broken`, a configuration that is broken in this way, which must be refused. */
    async #put(state, [spoil, reason] = []) {
        const trigger = triggerNames[this.#count++ % triggerNames.length], config = configuration(state, this.peers.remote);
        this.gateway.put(spoil ? spoil(config, this.peers) : config);
        await triggers[trigger](this.gateway, reason);
        assert.match(await this.outcome(), reason ? /^configuration not reloaded/ : /^configuration reloaded/);
        if (!reason) this.state = state;
        await this.prober.check(this.state);
        await this.prober.checkReport(reason);
        this.callers.check();
        tally[trigger]++;
        tally[reason ? 'refused' : 'valid']++;
    }

    async run(count) {
        for (let i = 0; i < count; i++) {
            await this.#put(changed(this.state), i % 3 === 1 ? BROKEN[Math.floor(i / 3) % BROKEN.length] : undefined);
            if (i % REPORT_EVERY === REPORT_EVERY - 1) console.log(`${i + 1} reloads: ${JSON.stringify(holds(this.gateway.pid))} ${JSON.stringify(tally)}`);
        }
        await this.#put(FIRST);
    }
}

// ---- measuring -------------------------------------------------------------------------------

/** True while a connection to this server is open. */
function connected({ url }) {
    const port = `:${Number(new URL(url).port).toString(16).toUpperCase().padStart(4, '0')}`;
    return readFileSync('/proc/net/tcp', 'latin1').split('\n').some(line => line.trim().split(/\s+/)[2]?.endsWith(port) && / (01|08) /.test(line));
}

/** Waits until what the gateway holds does not change any more, and is as expected, for WAIT_MS at most. */
async function quiet(gateway, remote, expected) {
    process.kill(remote.pid, 'SIGUSR2'); // how many idle connections are kept depends on the calls before
    await until(() => !connected(remote), WAIT_MS, 'no connection to the HTTP server is open');
    const key = ({ descriptors, processes, threads }) => `${descriptors} descriptors, ${processes} processes, ${threads} threads`;
    const deadline = Date.now() + WAIT_MS;
    let now = holds(gateway.pid), same = 0;
    while (Date.now() < deadline && (same < SAME || (expected && key(now) !== key(expected)))) {
        await sleep(200);
        const next = holds(gateway.pid);
        same = key(next) === key(now) ? same + 1 : 0;
        now = next;
    }
    if (expected) assert.equal(key(now), key(expected), 'at the end, and after the warm-up');
    return now;
}

/** A round of reloads under the calls of callers. When all sessions are closed, the gateway is measured. */
async function round(gateway, tokens, peers, outcome, count, expected) {
    const prober = await Prober.open(gateway, tokens), callers = new Callers(gateway, tokens);
    const reloads = new Reloads({ gateway, prober, callers, peers, outcome });
    try {
        await reloads.run(count);
    } finally {
        await callers.stop();
    }
    await prober.close();
    const now = await quiet(gateway, peers.remote, expected);
    console.log(`after ${count} reloads: ${JSON.stringify(now)} ${JSON.stringify(tally)}`);
    return now;
}

async function takePort() {
    const listener = createServer().listen(0, '127.0.0.1');
    await once(listener, 'listening');
    return { taken: listener.address().port, free: () => listener.close() };
}

async function main() {
    const issue = tenant => execFileSync(binary, ['token', 'new', '--file', at('tokens.json'), '--subject', 'regular', '--tenant', tenant], { encoding: 'utf8' }).trim();
    const tokens = Object.fromEntries(['default', 'constant', ...TENANTS].map(tenant => [tenant, issue(tenant)]));
    writeFileSync(at('policy.json'), JSON.stringify({ version: 1, description: 'The policy of the soak', rules: [rule] }));
    writeFileSync(at('broken-policy.json'), JSON.stringify({ version: 1, description: 'A broken policy', rules: [{}] }));
    const remote = await startPeer(node, server, '--http'), port = await takePort();
    const peers = { remote, taken: port.taken };
    const gateway = await startGateway(configuration(FIRST, remote));
    try {
        const outcome = follow(gateway);
        const base = await round(gateway, tokens, peers, outcome, WARM_UP);
        const now = await round(gateway, tokens, peers, outcome, RELOADS, base);
        if (!sanitized) assert.ok(now.kilobytes <= base.kilobytes + GROWTH_KB, `memory: ${base.kilobytes} kB after the warm-up, ${now.kilobytes} now`);
    } catch (error) {
        console.log(gateway.log().split('\n').slice(-40).join('\n'));
        throw error;
    } finally {
        await gateway.stop();
        await remote.stop();
        port.free();
    }
}

try {
    await main();
} finally {
    directory.remove();
}
