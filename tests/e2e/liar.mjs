// A liar (tests/peers/liar), and a user with a separate home who logs in to it; all output and files of the user are searched for secrets.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';

import { binary, program, startGateway, startPeer, temporaryDirectory, watch } from './gateway.mjs';

/** Exit codes of the commands. */
export const EXIT = { OK: 0, USAGE: 2, CONFIG: 3, UNAVAILABLE: 4, DENIED: 10, TIMEOUT: 11, PORT: 12, REGISTRATION: 13, DISCOVERY: 14, TOKEN: 15, STORE: 16, ANSWER: 17 };

const WAIT_MS = 60_000;

/** Deletes the record of the last registration, as if a minute had passed: another registration is allowed (G13). */
export function aMinuteLater(state) {
    if (!existsSync(join(state, 'store.db'))) return;
    const db = new DatabaseSync(join(state, 'store.db'));
    db.exec('PRAGMA busy_timeout = 5000');
    db.exec("DELETE FROM lease WHERE CAST(name AS TEXT) LIKE 'register %'");
    db.close();
}

class Liar {
    output = '';
    variables = {}; // in the environment of its commands

    static async start(lie) {
        const liar = new Liar();
        liar.peer = await startPeer(program.liar, lie);
        liar.url = liar.peer.url;
        liar.origin = new URL(liar.url).origin;
        liar.directory = temporaryDirectory();
        liar.state = join(liar.directory.path, 'state');
        mkdirSync(liar.state, { mode: 0o700 });
        return liar;
    }

    /** Writes the configuration; ORIGIN in `auth` stands for the origin of the liar. Without `auth`, commands name the liar by its URL. */
    configure(auth) {
        const settled = JSON.parse(JSON.stringify(auth ?? {}).replaceAll('ORIGIN', this.origin));
        this.whom = auth ? ['liar'] : ['--url', this.url];
        this.config = join(this.directory.path, 'postern.json');
        writeFileSync(this.config, JSON.stringify({ mcpServers: { liar: { url: this.url, headers: { 'X-Org': 'ours' }, auth: settled } } }));
    }

    async get(path) {
        return (await fetch(`${this.origin}${path}`, { signal: AbortSignal.timeout(WAIT_MS) })).json();
    }

    secrets() {
        return this.get('/secrets');
    }

    control(order) {
        return fetch(`${this.origin}/control`, { method: 'POST', body: JSON.stringify(order) });
    }

    /** The requests that it received, to one path if `path` is given; `away` are those to its other origin. */
    async seen(path) {
        return (await this.get('/seen')).filter(request => !path || (path === 'away' ? request.away : request.path === path));
    }

    /** Waits until this many requests are held. */
    held(count = 1) {
        return this.get(`/held?count=${count}`);
    }

    /** Starts a command; `ended` resolves with its {status, signal, stdout, stderr}. */
    start(...args) {
        const env = { PATH: process.env.PATH, HOME: this.state, POSTERN_STATE: this.state, ...this.variables };
        const child = spawn(binary, [...args, '--config', this.config], { env, cwd: this.state, stdio: 'pipe' });
        child.stdin.on('error', () => {}); // the command may have ended without reading its input
        const stdout = watch(child, 'stdout');
        const stderr = watch(child, 'stderr');
        const closed = new Promise(resolve => child.once('close', resolve));
        const ended = closed.then(() => {
            this.output += stdout.log() + stderr.log();
            return { status: child.exitCode, signal: child.signalCode, stdout: stdout.log(), stderr: stderr.log() };
        });
        return { child, ended, log: stderr.log, line: stderr.line };
    }

    run(...args) {
        return this.withInput('', ...args);
    }

    withInput(input, ...args) {
        const { child, ended } = this.start(...args);
        child.stdin.end(input);
        return ended;
    }

    /** Logs in, as if more than a minute after any earlier registration. */
    login(...args) {
        aMinuteLater(this.state);
        return this.loginAtOnce(...args);
    }

    loginAtOnce(...args) {
        return this.run('login', ...this.whom, '--headless', '--verbose', ...args);
    }

    /** The same with a browser, which is redirected to the listener. */
    async loginByBrowser(...args) {
        aMinuteLater(this.state);
        const login = this.start('login', ...this.whom, '--no-browser', '--verbose', ...args);
        const [, address] = await login.line(/^To log in to .*, open\n(\S+)$/m, WAIT_MS);
        await fetch(address);
        const ended = await login.ended;
        this.output = this.output.replaceAll(address, ''); // the user has to see the address, including its state
        return ended;
    }

    startCall() {
        return this.start('call', ...this.whom, 'echo', '{"a":1}');
    }

    call() {
        return this.startCall().ended;
    }

    async connections() {
        return JSON.parse((await this.run('connections', '--json')).stdout);
    }

    /** A gateway with this home and log level debug; its log is searched as well. */
    async gateway(auth = { mode: 'shared' }, server = {}, launcher = []) {
        const config = { log: { level: 'debug' }, mcpServers: { liar: { url: this.url, ...server, auth } } };
        const gateway = await startGateway(config, [], { variables: { POSTERN_STATE: this.state }, launcher });
        const { stop } = gateway;
        let stopped = false;
        gateway.stop = async () => {
            if (stopped) return;
            stopped = true;
            try {
                await stop();
            } finally {
                this.output += gateway.log();
            }
        };
        return gateway;
    }

    /** The number of refreshes in progress according to the store. */
    refreshing() {
        const db = new DatabaseSync(join(this.state, 'store.db'), { readOnly: true });
        const { count } = db.prepare("SELECT count(*) AS count FROM lease WHERE CAST(name AS TEXT) NOT LIKE 'register %'").get();
        db.close();
        return count;
    }

    /** Deletes all leases, as if the lease of a killed holder had expired. */
    endLeases() {
        const db = new DatabaseSync(join(this.state, 'store.db'));
        db.exec('DELETE FROM lease');
        db.close();
    }

    /** The content of all files in the home of the user. */
    disk() {
        const files = readdirSync(this.state, { recursive: true, withFileTypes: true }).filter(entry => entry.isFile());
        return files.map(entry => readFileSync(join(entry.parentPath, entry.name), 'latin1')).join('\n');
    }

    /** No secret that the liar issued or received, nor a long part of one, is in the output of a command or on the disk. */
    async assertNothingLeaked() {
        const disk = this.disk();
        for (const secret of await this.secrets()) {
            for (const part of [secret, secret.slice(0, 14), secret.slice(-14)].filter(({ length }) => length >= 14)) {
                assert.ok(!this.output.includes(part), `a secret was printed: ${secret}\n${this.output}`);
                assert.ok(!disk.includes(part), `a secret is on the disk: ${secret}`);
            }
        }
    }
}

/**
 * Checks every request, for every lie: none has a cookie; no address contains a secret except the state of the authorization
 * request; bearer tokens went only to the MCP server, and other secrets only to the endpoints for tokens.
 */
async function assertNothingAstray(liar) {
    const secrets = await liar.secrets();
    const has = text => secrets.find(secret => text.includes(secret));
    for (const { path, query, headers, body, away } of await liar.seen()) {
        const { state, ...rest } = query;
        const { authorization = '', ...others } = headers;
        const where = `${away ? 'the other origin ' : ''}${path}`;
        assert.equal(headers.cookie, undefined, `a cookie went to ${where}`);
        assert.equal(has(JSON.stringify(path === '/authorize' ? rest : query) + JSON.stringify(others)), undefined, `a secret in the request to ${where}`);
        if (authorization.startsWith('Bearer ')) assert.ok(!away && authorization.startsWith('Bearer management-') === path.startsWith('/register/') && /^\/(mcp|sse|messages|register\/.*)$/.test(path), `a bearer token went to ${where}`);
        if (!['/token', '/moved', '/revoke'].includes(path)) assert.equal(has(body), undefined, `a secret in the body to ${where}`);
    }
}

/** Runs `body` with a liar, and then searches for secrets that leaked or were sent to the wrong place. */
export async function withLiar(lie, auth, body) {
    const liar = await Liar.start(lie);
    try {
        liar.configure(auth);
        await body(liar);
        await liar.assertNothingLeaked();
        await assertNothingAstray(liar);
    } finally {
        await liar.control({ release: true });
        await liar.peer.stop();
        liar.directory.remove();
    }
}
