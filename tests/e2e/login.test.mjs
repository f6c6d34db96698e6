// Logging in with a browser at a real OpenID provider: the listener, pasting back, refresh by many processes at once, logout.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { connect, createServer } from 'node:net';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { fileURLToPath } from 'node:url';

import { binary, node, startPeer, temporaryDirectory, watch } from './gateway.mjs';
import { aMinuteLater } from './liar.mjs';

const [OK, DENIED, TIMEOUT, PORT] = [0, 10, 11, 12];
const program = fileURLToPath(new URL('../peers/authority.mjs', import.meta.url));
const START_MS = 20_000;

const directory = temporaryDirectory();
after(() => directory.remove());
let homes = 0;

/** A person with a home of their own and the command line. */
function person(url, auth = {}) {
    const state = join(directory.path, `home-${++homes}`);
    mkdirSync(state, { mode: 0o700 });
    const config = join(state, 'postern.json');
    writeFileSync(config, JSON.stringify({ mcpServers: { authority: { url, auth } } }));
    const start = (...args) => {
        const env = { PATH: process.env.PATH, HOME: state, POSTERN_STATE: state };
        const child = spawn(binary, [...args, '--config', config], { env, stdio: ['pipe', 'pipe', 'pipe'] });
        child.stdin.on('error', () => {});
        const out = watch(child, 'stdout');
        return Object.assign(watch(child, 'stderr'), { out: out.log });
    };
    return {
        state,
        start,
        run: async (...args) => {
            const command = start(...args);
            command.child.stdin.end();
            const { code } = await command.exited;
            return { status: code, stdout: command.out(), stderr: command.log() };
        }
    };
}

/** Follows redirects as a browser would, with cookies, until they leave for the redirect URI; gives that address. */
async function browse(address) {
    const jar = new Map();
    for (let url = new URL(address), hops = 0; hops < 12; hops++) {
        const cookie = [...jar].map(pair => pair.join('=')).join('; ');
        const answer = await fetch(url, { redirect: 'manual', headers: { cookie } });
        for (const line of answer.headers.getSetCookie()) {
            const [, name, value] = /^([^=]+)=([^;]*)/.exec(line);
            jar.set(name, value);
        }
        assert.ok(answer.headers.has('location'), `no redirect from ${url}: ${answer.status} ${await answer.text()}`);
        url = new URL(answer.headers.get('location'), url);
        if (url.pathname === '/callback') return url;
    }
    assert.fail('redirects without end');
}

const addressOf = async login => (await login.line(/^(http:\S+\/auth\?\S+)$/m, START_MS))[1];

let authority;
before(async () => (authority = await startPeer(node, program)));
after(() => authority?.stop());

/** Listens on that very port, as soon as nobody else does: other tests log in, too. */
async function hold(port) {
    for (;;) {
        const server = createServer();
        const [error] = await new Promise(resolve => server.listen(port, '127.0.0.1', () => resolve([])).once('error', failed => resolve([failed])));
        if (!error) return server;
        assert.equal(error.code, 'EADDRINUSE');
        await new Promise(resolve => setTimeout(resolve, 50));
    }
}

describe('the listener', () => {
    test('L5 B1 B2 B7 B8 B9: only the right request counts, and the page comes when it is done', async () => {
        const alice = person(authority.url);
        const login = alice.start('login', 'authority', '--no-browser');
        const back = await browse(await addressOf(login));
        const { origin } = back;
        assert.equal((await fetch(`${origin}/favicon.ico`)).status, 404);
        assert.equal((await fetch(`${origin}/`)).status, 404);
        assert.equal((await fetch(back, { method: 'POST' })).status, 405);
        assert.equal((await fetch(`${origin}/callback?error=access_denied&state=guess`)).status, 400);
        assert.equal((await fetch(`${origin}/callback?error=access_denied`)).status, 400);
        await login.line(/ignored a callback for another login attempt/, START_MS);
        const rebound = await raw(back.port, `GET ${back.pathname}${back.search} HTTP/1.1\r\nHost: evil.example:${back.port}\r\n\r\n`);
        assert.match(rebound, /^HTTP\/1.1 400/);
        connect(Number(back.port), '127.0.0.1').on('error', () => {}); // a connection ahead of need
        const page = await fetch(back);
        assert.equal(page.status, 200);
        assert.equal(page.headers.get('cache-control'), 'no-store');
        assert.equal(page.headers.get('referrer-policy'), 'no-referrer');
        assert.equal(page.headers.get('x-frame-options'), 'DENY');
        assert.match(page.headers.get('content-security-policy'), /default-src 'none'/);
        assert.ok(!(await page.text()).includes(back.searchParams.get('code')));
        assert.equal((await login.exited).code, OK, login.log());
        const call = await alice.run('call', 'authority', 'whoami');
        assert.match(call.stdout, /alice/, call.stderr);
    });

    test('L4 B10 localhost listens on both families', async () => {
        const alice = person(authority.url);
        const login = alice.start('login', 'authority', '--no-browser', '--callback-host', 'localhost');
        const back = await browse(await addressOf(login));
        assert.equal(back.hostname, 'localhost');
        for (const host of ['127.0.0.1', '[::1]']) assert.equal((await fetch(`http://${host}:${back.port}/`)).status, 404);
        assert.equal((await fetch(back)).status, 200);
        assert.equal((await login.exited).code, OK);
    });

    test('L1 L4 a port that is taken: the next of the range, or an error if it was asked for', async () => {
        const holder = await hold(8085);
        const taken = createServer().listen(0, '127.0.0.1');
        await new Promise(resolve => taken.once('listening', resolve));
        try {
            const alice = person(authority.url);
            const login = alice.start('login', 'authority', '--no-browser');
            const back = await browse(await addressOf(login));
            assert.notEqual(back.port, '8085');
            login.child.kill('SIGINT');
            await login.exited;
            const { port } = taken.address();
            const refused = await alice.run('login', 'authority', '--no-browser', '--callback-port', String(port));
            assert.equal(refused.status, PORT);
            assert.match(refused.stderr, new RegExp(`${port}.*--callback-port`));
        } finally {
            holder.close();
            taken.close();
        }
    });

    test('L7 the address is pasted instead; one without a code is asked for again', async () => {
        const alice = person(authority.url);
        const login = alice.start('login', 'authority', '--no-browser');
        const back = await browse(await addressOf(login));
        login.child.stdin.write('nonsense\n');
        await login.line(/paste the whole address/, START_MS);
        login.child.stdin.write(`${back.href.replace(/state=[^&]+/, 'state=other')}\n`);
        await login.line(/another login attempt/, START_MS);
        login.child.stdin.write(`${back.href}\n`);
        assert.equal((await login.exited).code, OK, login.log());
    });

    test('L9 G10 nobody comes back: status 11, and the next login registers anew', async () => {
        const alice = person(authority.url);
        const login = await alice.run('login', 'authority', '--no-browser', '--timeout', '1s');
        assert.equal(login.status, TIMEOUT, login.stderr);
        const first = /client_id=([^&]+)/.exec(login.stderr)[1];
        aMinuteLater(alice.state);
        const again = alice.start('login', 'authority', '--no-browser');
        const second = /client_id=([^&]+)/.exec(await addressOf(again))[1];
        assert.notEqual(second, first);
        again.child.kill('SIGINT');
        await again.exited;
        aMinuteLater(alice.state);
        const third = alice.start('login', 'authority', '--no-browser');
        assert.notEqual(/client_id=([^&]+)/.exec(await addressOf(third))[1], second, 'given up is left lying, too');
        third.child.kill('SIGINT');
        await third.exited;
    });
});

function raw(port, text) {
    return new Promise((resolve, reject) => {
        let got = '';
        const socket = connect(Number(port), '127.0.0.1', () => socket.write(text));
        socket.on('data', chunk => (got += chunk)).on('end', () => resolve(got)).on('error', reject);
    });
}

describe('a grant', () => {
    async function loggedIn(url, auth) {
        const alice = person(url, auth);
        const login = alice.start('login', 'authority', '--no-browser');
        const back = await browse(await addressOf(login));
        assert.equal((await fetch(back)).status, 200);
        assert.equal((await login.exited).code, OK, login.log());
        return alice;
    }
    const countOf = async peer => (await fetch(new URL('/count', peer.url))).json();

    test('F3 F4 F5 eight processes with an expired token: one refresh, all succeed, and the grant lives', async () => {
        const short = await startPeer(node, program, 3);
        try {
            const alice = await loggedIn(short.url);
            for (let round = 1; round <= 2; round++) {
                await new Promise(resolve => setTimeout(resolve, 3_200)); // the token's own lifetime
                const calls = await Promise.all(Array.from({ length: 8 }, () => alice.run('call', 'authority', 'whoami')));
                for (const call of calls) assert.equal(call.status, OK, call.stderr);
                const count = await countOf(short);
                assert.equal(count.refused, undefined, 'no refresh was refused');
                assert.ok(count.refresh_token >= round && count.refresh_token <= 3 * round, `refreshes: ${count.refresh_token}`);
            }
        } finally {
            await short.stop();
        }
    });

    test('F16 after a logout the provider does not take the tokens any more', async () => {
        const alice = await loggedIn(authority.url);
        assert.equal((await alice.run('logout', 'authority')).status, OK);
        assert.deepEqual(JSON.parse((await alice.run('connections')).stdout), []);
        assert.match((await alice.run('call', 'authority', 'whoami')).stderr, /postern login authority/);
    });

    test('B5 the user declines', async () => {
        const strict = await startPeer(node, program);
        try {
            await fetch(new URL('/deny', strict.url));
            const login = person(strict.url).start('login', 'authority', '--no-browser');
            const back = await browse(await addressOf(login));
            assert.equal((await fetch(back)).status, 403);
            assert.equal((await login.exited).code, DENIED, login.log());
        } finally {
            await strict.stop();
        }
    });

    test('L5 $BROWSER is started without a shell, with the address as one word', async () => {
        const marker = join(directory.path, 'browser-was-here');
        const script = join(directory.path, 'browser');
        writeFileSync(script, `#!/bin/sh\nprintf '%s|' "$@" >${marker}\n`, { mode: 0o755 });
        const env = { PATH: process.env.PATH, HOME: directory.path, POSTERN_STATE: directory.path, BROWSER: `${script} --new ""` };
        const child = spawn(binary, ['login', '--url', authority.url, '--timeout', '2s'], { env, stdio: ['ignore', 'ignore', 'pipe'] });
        const login = watch(child, 'stderr');
        const address = await addressOf(login);
        assert.equal((await login.exited).code, TIMEOUT);
        assert.equal(readFileSync(marker, 'utf8'), `--new||${address}|`);
    });
});
