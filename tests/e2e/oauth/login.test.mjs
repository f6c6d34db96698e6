// Logging in with a browser at a real OpenID provider: the listener, pasting back, refresh by many processes at once, logout.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmodSync, existsSync, mkdirSync, readdirSync, readFileSync, readlinkSync, writeFileSync } from 'node:fs';
import { connect, createServer } from 'node:net';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { after, before, describe, test } from 'node:test';

import { binary, freePort, node, peerPath, startPeer, temporaryDirectory, until, watch } from '../gateway.mjs';
import { aMinuteLater, withLiar } from '../liar.mjs';

const [OK, USAGE, UNAVAILABLE, DENIED, TIMEOUT, PORT, DISCOVERY, TOKEN, STORE, ANSWER] = [0, 2, 4, 10, 11, 12, 14, 15, 16, 17];
const program = peerPath('authority.mjs');
const START_MS = 20_000;

const directory = temporaryDirectory();
after(() => directory.remove());
let homes = 0;

/** A user with a separate home and the command line; `variables` are added to the environment, besides PATH and HOME. */
function person(url, auth = {}, variables = {}) {
    const state = join(directory.path, `home-${++homes}`);
    mkdirSync(state, { mode: 0o700 });
    const config = join(state, 'postern.json');
    writeFileSync(config, JSON.stringify({ mcpServers: { authority: { url, auth }, other: { url: `${url}/other`, auth } } }));
    const start = (...args) => {
        const env = { PATH: process.env.PATH, HOME: state, POSTERN_STATE: state, ...variables };
        const child = spawn(binary, [...args, '--config', config], { env, stdio: ['pipe', 'pipe', 'pipe'] });
        child.stdin.on('error', () => {});
        const out = watch(child, 'stdout');
        return Object.assign(watch(child, 'stderr'), { out: out.log });
    };
    /** The same on a terminal: `log` has everything that the terminal shows. */
    const onTerminal = (...args) => {
        const env = { PATH: process.env.PATH, HOME: state, POSTERN_STATE: state, ...variables };
        const words = [binary, ...args, '--config', config].map(word => `'${word.replaceAll("'", `'\\''`)}'`).join(' ');
        return watch(spawn('script', ['-qec', words, '/dev/null'], { env, stdio: ['pipe', 'pipe', 'pipe'] }), 'stdout');
    };
    return {
        state,
        onTerminal,
        servers: mcpServers => writeFileSync(config, JSON.stringify({ mcpServers })),
        start,
        run: async (...args) => {
            const command = start(...args);
            command.child.stdin.end();
            const { code } = await command.exited;
            return { status: code, stdout: command.out(), stderr: command.log() };
        }
    };
}

/** Follows redirects as a browser would, with cookies, up to the redirect URI; returns that address. */
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

/** Listens on this port as soon as it is free: other tests log in as well. */
async function hold(port) {
    for (;;) {
        const server = createServer();
        const [error] = await new Promise(resolve => server.listen(port, '127.0.0.1', () => resolve([])).once('error', failed => resolve([failed])));
        if (!error) return server;
        assert.equal(error.code, 'EADDRINUSE');
        await new Promise(resolve => setTimeout(resolve, 50));
    }
}

/** The ports that a process listens on. */
function listening(pid) {
    const inodes = new Set(readdirSync(`/proc/${pid}/fd`).map(fd => {
        try {
            return /^socket:\[(\d+)\]$/.exec(readlinkSync(`/proc/${pid}/fd/${fd}`))?.[1];
        } catch {
            return undefined; // closed meanwhile
        }
    }));
    const rows = ['tcp', 'tcp6'].flatMap(file => readFileSync(`/proc/${pid}/net/${file}`, 'utf8').split('\n').slice(1).map(row => row.trim().split(/\s+/)));
    return rows.filter(([, , , state, , , , , , inode]) => state === '0A' && inodes.has(inode)).map(([, local]) => parseInt(local.split(':')[1], 16));
}

describe('the listener of a login', () => {
    test('--headless does not bind a port', () =>
        withLiar('none', null, async liar => {
            const taken = createServer(() => assert.fail('connected')).listen(0, '127.0.0.1');
            await once(taken, 'listening');
            try {
                await liar.control({ hold: '/token', times: 1 });
                const login = liar.start('login', ...liar.whom, '--headless', '--callback-port', String(taken.address().port));
                const over = await Promise.race([liar.held(), login.ended.then(({ status, stderr }) => assert.fail(`${status} ${stderr}`))]);
                assert.ok(over);
                assert.deepEqual(listening(login.child.pid), []);
                await liar.control({ release: true });
                assert.equal((await login.ended).status, OK);
            } finally {
                taken.close();
            }
        }));

    test('L5 B1 B2 B7 B8 B9 only the right request completes a login, and the page appears afterwards', async () => {
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
        connect(Number(back.port), '127.0.0.1').on('error', () => {}); // a speculative connection, as browsers make
        const page = await fetch(back);
        assert.equal(page.status, 200);
        assert.equal(page.headers.get('cache-control'), 'no-store');
        assert.equal(page.headers.get('referrer-policy'), 'no-referrer');
        assert.equal(page.headers.get('x-frame-options'), 'DENY');
        assert.match(page.headers.get('content-security-policy'), /default-src 'none'/);
        assert.ok(!(await page.text()).includes(back.searchParams.get('code')));
        assert.equal((await login.exited).code, OK, login.log());
        assert.match(login.log(), new RegExp(`^stored: ${alice.state}/store\\.db$`, 'm'), 'L12');
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

    test('L1 L4 a login uses the next port of the range for a taken one, or fails if that port was requested', async () => {
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

    test('L7 a pasted address completes a login, and one without a code is asked for again', async () => {
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

    test('L9 G10 a login that times out waiting for the browser ends with status 11, and the next one registers again', async () => {
        const alice = person(authority.url);
        const login = await alice.run('login', 'authority', '--no-browser', '--timeout', '1s');
        assert.equal(login.status, TIMEOUT, login.stderr);
        assert.doesNotMatch(login.stderr, /waiting/, 'the countdown is shown only on a terminal');
        const first = /client_id=([^&]+)/.exec(login.stderr)[1];
        aMinuteLater(alice.state);
        const again = alice.start('login', 'authority', '--no-browser');
        const second = /client_id=([^&]+)/.exec(await addressOf(again))[1];
        assert.notEqual(second, first);
        again.child.kill('SIGINT');
        await again.exited;
        aMinuteLater(alice.state);
        const third = alice.start('login', 'authority', '--no-browser');
        assert.notEqual(/client_id=([^&]+)/.exec(await addressOf(third))[1], second, 'an interrupted login also makes the next one register again');
        third.child.kill('SIGINT');
        await third.exited;
    });
});

describe('a login on a terminal', () => {
    test('L9 the remaining seconds are counted down', async () => {
        const login = person(authority.url).onTerminal('login', 'authority', '--no-browser', '--timeout', '3s');
        assert.equal((await login.exited).code, TIMEOUT, login.log());
        const seconds = [...login.log().matchAll(/waiting: (\d) s \r/g)].map(([, second]) => Number(second));
        assert.equal(seconds[0], 3, 'the whole timeout, even if the start was slow');
        for (let i = 1; i < seconds.length; i++) assert.ok(seconds[i] < seconds[i - 1], login.log());
        assert.ok(seconds.length > 1, login.log());
        assert.match(login.log(), /\rpostern: the login was not completed in the browser within \d+ seconds/);
    });

    test('S10 connections shows the owner and issuer of a grant and a digest that distinguishes tokens', async () => {
        const alice = person(authority.url);
        const login = alice.start('login', 'authority', '--no-browser');
        assert.equal((await fetch(await browse(await addressOf(login)))).status, 200);
        assert.equal((await login.exited).code, OK);
        const [{ issuer, token, user, expires }] = JSON.parse((await alice.run('connections')).stdout);
        const shown = alice.onTerminal('connections');
        assert.equal((await shown.exited).code, OK);
        const [titles, row] = shown.log().replaceAll(/\x1b\[[0-9;]*m/g, '').split('\r\n').map(line => line.split(/ {2,}/));
        assert.deepEqual(titles, ['TENANT', 'SERVER', 'USER', 'ISSUER', 'EXPIRES', 'TOKEN', 'SCOPE']);
        assert.deepEqual(row.slice(0, 6), ['default', 'authority', user, issuer, expires, token]);
    });

    test('F17 --interactive logs in only on a terminal, and otherwise prints the login command', async () => {
        const marker = join(directory.path, 'nobody-is-there');
        const script = join(directory.path, 'nobody');
        writeFileSync(script, `#!/bin/sh\ntouch ${marker}\n`, { mode: 0o755 });
        const alice = person(authority.url, {}, { BROWSER: script });
        for (const command of [['call', 'authority', 'whoami'], ['tools', 'authority']]) {
            const { status, stderr } = await alice.run(...command, '--interactive');
            assert.equal(status, UNAVAILABLE, stderr);
            assert.match(stderr, /^postern: .*postern login authority.*\n$/);
            assert.ok(!existsSync(marker));
        }
        const call = alice.onTerminal('call', 'authority', 'whoami', '--interactive');
        assert.equal((await fetch(await browse((await call.line(/^(http:\S+\/auth\?\S+)\r$/m, START_MS))[1]))).status, 200);
        assert.equal((await call.exited).code, OK, call.log());
        assert.ok(existsSync(marker));
    });
});

describe('L15 token pages of well-known services', () => {
    test('L15 the token page and the command are named when OAuth is not usable', async () => {
        const proxy = createServer(socket => socket.once('data', () => socket.end('HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n')).on('error', () => {}));
        await new Promise(resolve => proxy.listen(0, '127.0.0.1', resolve));
        try {
            const alice = person(authority.url, {}, { https_proxy: `http://127.0.0.1:${proxy.address().port}` });
            for (const [url, hint] of [['https://mcp.linear.app/mcp', 'https://linear.app/settings/account/security'], ['https://mcp.postern.example/mcp']]) {
                const { status, stderr } = await alice.run('login', '--url', url, '--headless');
                assert.equal(status, DISCOVERY, stderr);
                assert.equal(stderr.includes(`issued at ${hint}: postern login --url ${url} --token-stdin`), hint !== undefined, stderr);
                assert.equal(/token-stdin/.test(stderr), hint !== undefined, stderr);
            }
        } finally {
            proxy.close();
        }
    });

    test('L15 the token page is named at the prompt', async () => {
        const login = person(authority.url).onTerminal('login', '--url', 'https://api.githubcopilot.com/mcp/', '--token-stdin');
        await login.line(/issued at\r\nhttps:\/\/github\.com\/settings\/personal-access-tokens\r\nToken: /, START_MS);
        login.child.stdin.write('github_pat_1\n');
        assert.equal((await login.exited).code, OK, login.log());
        assert.ok(!login.log().includes('github_pat_1'));
    });
});

function raw(port, text) {
    return new Promise((resolve, reject) => {
        let got = '';
        const socket = connect(Number(port), '127.0.0.1', () => socket.write(text));
        socket.on('data', chunk => (got += chunk)).on('end', () => resolve(got)).on('error', reject);
    });
}

describe('a grant of a login', () => {
    async function loggedIn(url, auth) {
        const alice = person(url, auth);
        const login = alice.start('login', 'authority', '--no-browser');
        const back = await browse(await addressOf(login));
        assert.equal((await fetch(back)).status, 200);
        assert.equal((await login.exited).code, OK, login.log());
        return alice;
    }
    const countOf = async peer => (await fetch(new URL('/count', peer.url))).json();

    test('F3 F4 F5 eight processes with an expired token refresh it once and all succeed', async () => {
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

    test('F16 a logout revokes the tokens at the provider', async () => {
        const alice = await loggedIn(authority.url);
        assert.equal((await alice.run('logout', 'authority')).status, OK);
        assert.deepEqual(JSON.parse((await alice.run('connections')).stdout), []);
        assert.match((await alice.run('call', 'authority', 'whoami')).stderr, /postern login authority/);
    });

    test('B5 a login that the user declines is an error', async () => {
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

    /** A browser that records its arguments, with a single write. */
    const browserScript = marker => `#!/bin/sh\nprintf '%s|' "$@" >${marker}.new\nmv ${marker}.new ${marker}\n`;
    const written = async marker => {
        await until(() => existsSync(marker), START_MS, 'the browser');
        return readFileSync(marker, 'utf8');
    };

    test('L5 $BROWSER is started without a shell, with the address as one word', async () => {
        const marker = join(directory.path, 'browser-was-here');
        const script = join(directory.path, 'browser');
        writeFileSync(script, browserScript(marker), { mode: 0o755 });
        const env = { PATH: process.env.PATH, HOME: directory.path, POSTERN_STATE: directory.path, BROWSER: `${script} --new ""` };
        const login = watch(spawn(binary, ['login', '--url', authority.url], { env, stdio: ['ignore', 'ignore', 'pipe'] }), 'stderr');
        const address = await addressOf(login);
        assert.equal(await written(marker), `--new||${address}|`);
        login.child.kill('SIGINT');
        await login.exited;
    });

    test('L5 --browser-cmd comes before $BROWSER', async () => {
        const marker = join(directory.path, 'other-browser-was-here');
        const script = join(directory.path, 'other-browser');
        writeFileSync(script, browserScript(marker), { mode: 0o755 });
        const alice = person(authority.url, {}, { BROWSER: '/bin/false' });
        const login = alice.start('login', 'authority', '--browser-cmd', `${script} --app %s -x`);
        const address = await addressOf(login);
        assert.equal(await written(marker), `--app|${address}|-x|`);
        login.child.kill('SIGINT');
        await login.exited;
        for (const other of ['--no-browser', '--headless', '--device', '--start', '--token-stdin'])
            assert.equal((await alice.run('login', 'authority', '--browser-cmd', script, other)).status, USAGE, other);
    });
});

describe('a login that asks the user twice', () => {
    const script = join(directory.path, 'once-more');
    const tabs = join(directory.path, 'once-more-tabs');
    before(() => writeFileSync(script, `#!/bin/sh\necho "$1" >>${tabs}\n`, { mode: 0o755 }));

    const document = { client_metadata_url: 'https://postern.example/oauth/client.json' };
    const rows = [
        ['G10', 'client-forgotten', {}, OK, 'Connected'],
        ['G3', 'documents-broken', document, OK, 'Connected'],
        ['T13', 'token-200-error', {}, TOKEN, 'Not connected']
    ];
    for (const [number, lie, auth, code, end] of rows)
        test(`${number} L10 a login under the lie ${lie} closes the first tab, opens a second one and uses its answer`, () =>
            withLiar(lie, auth, async liar => {
                writeFileSync(tabs, '');
                liar.variables = { BROWSER: script };
                const opened = () => readFileSync(tabs, 'utf8').split('\n').filter(Boolean);
                const login = liar.start('login', 'liar');
                const pages = [];
                for (let i = 1; i <= 2; i++) {
                    await until(() => opened().length === i, START_MS, `tab ${i}: ${login.log()}`);
                    pages.push(fetch(opened()[i - 1]).then(page => page.text())); // which redirects to the listener
                }
                const titles = (await Promise.all(pages)).map(page => /<h1>(.*)<\/h1>/.exec(page)?.[1]);
                assert.deepEqual(titles, ['Log in again', end], login.log());
                const { status, stderr } = await login.ended;
                assert.equal(status, code, stderr);
                assert.doesNotMatch(stderr, /--force/);
                liar.output = liar.output.replaceAll(/^http:\S+\/authorize\?\S+$/gm, ''); // the user has to see it, including its state
                assert.equal(opened().length, 2);
            }));
});

describe('F10 a refreshed token that cannot be stored', () => {
    /** A call whose refreshed token arrives after the SQL `spoil` was run on the store; `then` checks the outcome. */
    const withSpoilt = (spoil, then) =>
        withLiar('none', {}, async liar => {
            assert.equal((await liar.login()).status, OK);
            await liar.control({ expire: true, hold: '/token', when: 'after', times: 1 });
            const call = liar.startCall();
            await liar.held();
            const db = new DatabaseSync(join(liar.state, 'store.db'));
            try {
                db.exec('PRAGMA busy_timeout = 5000');
                db.exec(spoil);
                await liar.control({ release: true });
                await then(liar, call, db);
            } finally {
                db.close();
            }
        });

    test('F10 a call waits and reports it while another process has locked the store', () =>
        withSpoilt('BEGIN IMMEDIATE', async (liar, call, db) => {
            await until(() => /a refreshed token is not stored yet; retrying for \d+ seconds: .*locked/.test(call.log()), 30_000, 'the line');
            db.exec('ROLLBACK');
            const { status, stdout, stderr } = await call.ended;
            assert.equal(status, OK, stderr);
            assert.match(stdout, /"content"/);
            assert.equal((await liar.call()).status, OK, 'the grant is still valid');
        }));
    test('F10 a call under a store that stays locked prints its answer, reports the loss and exits with 16', () =>
        withSpoilt('ALTER TABLE record RENAME TO away', async (liar, call, db) => {
            const { status, stdout, stderr } = await call.ended;
            assert.equal(status, STORE, stderr);
            assert.match(stdout, /"content"/);
            assert.match(stderr, /^postern: a refreshed token could not be stored.*log in again/m);
            db.exec('ALTER TABLE away RENAME TO record');
        }));
});

describe('L10 several processes that need the same login', () => {
    const tokens = async () => (await (await fetch(new URL('/count', authority.url))).json()).authorization_code ?? 0;
    const waits = async (login, owner) => assert.equal(Number((await login.line(/waiting for the login in process (\d+)/, START_MS))[1]), owner.child.pid);

    test('L10 one process logs in and the others wait and use its grant', async () => {
        const alice = person(authority.url);
        const before = await tokens();
        const owner = alice.start('login', 'authority', '--no-browser');
        const address = await addressOf(owner);
        const others = [alice.start('login', 'authority', '--no-browser'), alice.onTerminal('call', 'authority', 'whoami', '--interactive')];
        for (const other of others) await waits(other, owner);
        assert.equal((await fetch(await browse(address))).status, 200);
        for (const login of [owner, ...others]) assert.equal((await login.exited).code, OK, login.log());
        for (const other of others) assert.doesNotMatch(other.log(), /^http/m, 'the other processes do not ask for a login');
        assert.match(others[0].log(), /^Logged in to authority/m);
        assert.match(others[1].log(), /alice/);
        assert.equal(await tokens(), before + 1);
    });

    for (const signal of ['SIGKILL', 'SIGINT'])
        test(`L10 the next process takes over when the first one ends by ${signal}`, async () => {
            const alice = person(authority.url, { callback_port: await freePort() }); // with the same registration
            const owner = alice.start('login', 'authority', '--no-browser');
            await addressOf(owner);
            const heir = alice.start('login', 'authority', '--no-browser');
            await waits(heir, owner);
            owner.child.kill(signal);
            assert.equal((await fetch(await browse(await addressOf(heir)))).status, 200);
            assert.equal((await heir.exited).code, OK, heir.log());
        });

    test('L10 a process waits a limited time, can be interrupted, and waits only for the same login', async () => {
        const alice = person(authority.url);
        const owner = alice.start('login', 'authority', '--no-browser');
        await addressOf(owner);
        const late = await alice.run('login', 'authority', '--no-browser', '--timeout', '1s');
        assert.equal(late.status, TIMEOUT, late.stderr);
        assert.match(late.stderr, new RegExp(`the login in process ${owner.child.pid} did not finish within 1 seconds`));
        const patient = alice.start('login', 'authority', '--no-browser');
        await waits(patient, owner);
        patient.child.kill('SIGINT');
        assert.equal((await patient.exited).code, 130);
        aMinuteLater(alice.state); // another port is another registration
        const somebody = alice.start('login', 'authority', '--no-browser', '--subject', 'bearer:bob');
        await addressOf(somebody);
        for (const login of [owner, somebody]) {
            login.child.kill('SIGINT');
            await login.exited;
        }
    });

    test('L10 S12 one browser is opened in ten minutes, except with --force and after a logout', async () => {
        const marker = join(directory.path, 'tabs');
        const script = join(directory.path, 'tab');
        writeFileSync(script, `#!/bin/sh\necho tab >>${marker}\n`, { mode: 0o755 });
        const alice = person(authority.url, { callback_port: await freePort() }, { BROWSER: script });
        const tabs = () => (existsSync(marker) ? readFileSync(marker, 'utf8').split('\n').length - 1 : 0);
        const opened = async count => {
            await until(() => tabs() >= count, START_MS, 'the browser');
            assert.equal(tabs(), count);
        };
        const locks = () => readdirSync(alice.state).filter(name => name.endsWith('.lock'));
        const login = async (...args) => {
            const { status, stderr } = await alice.run('login', 'authority', '--timeout', '2s', ...args);
            assert.equal(status, TIMEOUT, stderr);
            return stderr;
        };
        await login();
        await opened(1);
        assert.match(await login(), /A browser was started for this login \d+ seconds ago; open the address yourself, or use --force/);
        await opened(1);
        await login('--force');
        await opened(2);
        assert.match(locks().join(), /^login-[0-9a-f]{32}\.lock$/, 'S4: the name does not contain user or server');
        assert.equal((await alice.run('logout', 'authority')).status, OK);
        assert.deepEqual(locks(), []);
        await login();
        await opened(3);
        const lock = join(alice.state, locks()[0]);
        writeFileSync(lock, readFileSync(lock, 'utf8').replace(/opened (\d+)/, (_, seconds) => `opened ${seconds - 601}`));
        await login();
        await opened(4);
    });
});

describe('L8 a login in two commands', () => {
    const begin = async alice => {
        const started = await alice.run('login', 'authority', '--start');
        assert.equal(started.status, OK, started.stderr);
        return JSON.parse(started.stdout);
    };
    const finish = (alice, id, url, server = 'authority') => alice.run('login', server, '--finish', id, '--redirect', url);

    test('L8 a started login is finished once and only with its own callback', async () => {
        const alice = person(authority.url);
        const { attempt_id: id, url, redirect_uri: redirect, expires } = await begin(alice);
        const left = Date.parse(expires) - Date.now();
        assert.ok(left > 500_000 && left <= 600_000, `${left} ms are left`);
        const asked = new URL(url).searchParams;
        assert.equal(asked.get('redirect_uri'), redirect);
        const stored = ['store.db', 'store.db-wal'].map(name => join(alice.state, name)).filter(existsSync).map(name => readFileSync(name, 'latin1')).join();
        for (const secret of [asked.get('state'), id]) assert.ok(!stored.includes(secret), 'sealed');
        const back = await browse(url);
        for (const wrong of [back.href.replace(/state=[^&]+/, 'state=other'), redirect]) {
            const refused = await finish(alice, id, wrong);
            assert.equal(refused.status, ANSWER, refused.stderr);
            assert.match(refused.stderr, /the attempt can still be completed/);
        }
        const elsewhere = await finish(alice, id, back.href, 'other');
        assert.equal(elsewhere.status, USAGE, elsewhere.stderr);
        const both = await Promise.all([finish(alice, id, back.href), finish(alice, id, back.href)]);
        assert.deepEqual(both.map(({ status }) => status).sort(), [OK, TIMEOUT], JSON.stringify(both));
        const again = await finish(alice, id, back.href);
        assert.equal(again.status, TIMEOUT);
        assert.match(again.stderr, /the attempt does not exist: it was completed/);
        assert.match((await alice.run('call', 'authority', 'whoami')).stdout, /alice/);
    });

    test('L8 login --finish reads the callback from standard input and reports a declined login', async () => {
        const strict = await startPeer(node, program);
        try {
            const alice = person(strict.url);
            const { attempt_id: id, url } = await begin(alice);
            const back = await browse(url);
            const login = alice.start('login', 'authority', '--finish', id, '--redirect', '-');
            login.child.stdin.end(`${back.href}\n`);
            assert.equal((await login.exited).code, OK, login.log());
            await fetch(new URL('/deny', strict.url));
            const second = await begin(alice);
            assert.equal((await finish(alice, second.attempt_id, (await browse(second.url)).href)).status, DENIED);
        } finally {
            await strict.stop();
        }
    });

    test('L8 a started login expires after ten minutes', async () => {
        const alice = person(authority.url);
        const { attempt_id: id, url } = await begin(alice);
        const back = await browse(url);
        const store = new DatabaseSync(join(alice.state, 'store.db'));
        assert.equal(store.prepare("UPDATE record SET updated = updated - 600001 WHERE space = 'attempt'").run().changes, 1);
        store.close();
        const late = await finish(alice, id, back.href);
        assert.equal(late.status, TIMEOUT, late.stderr);
    });

    test('L8 G10 an abandoned login makes the next login of either kind register again', async () => {
        const alice = person(authority.url, { callback_port: await freePort() });
        const client = url => new URL(url).searchParams.get('client_id');
        const first = client((await begin(alice)).url);
        assert.equal(client((await begin(alice)).url), first, 'the first login may still be finished');
        const store = new DatabaseSync(join(alice.state, 'store.db'));
        assert.equal(store.prepare("UPDATE record SET updated = updated - 600001 WHERE space = 'attempt'").run().changes, 2);
        store.close();
        aMinuteLater(alice.state);
        const login = alice.start('login', 'authority', '--no-browser');
        assert.notEqual(client(await addressOf(login)), first);
        login.child.kill('SIGINT');
        await login.exited;
    });

    test('L8 wrong usage of the two commands ends with status 2', async () => {
        const alice = person(authority.url);
        for (const args of [['--start', '--finish', 'x', '--redirect', 'y'], ['--finish', 'x'], ['--redirect', 'y'], ['--start', '--headless']])
            assert.equal((await alice.run('login', 'authority', ...args)).status, USAGE, args.join(' '));
    });
});

describe('L6 environments without a browser', () => {
    const contained = ['/.dockerenv', '/run/.containerenv'].some(existsSync);
    const tools = join(directory.path, 'tools');
    const marker = join(directory.path, 'xdg-open-was-here');
    before(() => {
        mkdirSync(tools);
        writeFileSync(join(tools, 'xdg-open'), `#!/bin/sh\necho "$1" >>${marker}\n`, { mode: 0o755 });
    });
    const display = { DISPLAY: ':0', PATH: `${tools}:${process.env.PATH}` };
    const login = async variables => {
        writeFileSync(marker, '');
        const { status, stderr } = await person(authority.url, {}, variables).run('login', 'authority', '--timeout', '1s');
        assert.equal(status, TIMEOUT, stderr);
        return { opened: readFileSync(marker, 'utf8').includes('http'), stderr };
    };

    const remote = { 'over ssh': { SSH_CONNECTION: '10.0.0.1 1 10.0.0.2 22' }, 'on a terminal of ssh': { SSH_TTY: '/dev/pts/9' }, 'in CI': { CI: 'true' },
        'in a container': { container: 'podman' }, 'in a pod': { KUBERNETES_SERVICE_HOST: '10.0.0.1' }, 'without a display': { DISPLAY: undefined } };
    for (const [where, variables] of Object.entries(remote))
        test(`L6 a login ${where} does not start a browser and shows the line for ssh`, async () => {
            const { opened, stderr } = await login({ ...display, ...variables });
            assert.ok(!opened, stderr);
            const [, port] = /redirect_uri=http%3A%2F%2F127\.0\.0\.1%3A(\d+)%2F/.exec(stderr);
            assert.match(stderr, new RegExp(`^ssh -L ${port}:127\\.0\\.0\\.1:${port} <this host>$`, 'm'));
        });

    test('L6 a login with a display starts the browser', { skip: contained && 'this is a container' }, async () => assert.ok((await login(display)).opened));
});

describe('other rules of a login', () => {
    for (const [configured, proof] of [['auto', /^Basic /], ['client_secret_basic', /^Basic (?!.*client_id=)/], ['client_secret_post', /^undefined .*client_secret=/]])
        test(`T3 a client secret is sent as configured (${configured}), also at a refresh`, () =>
            withLiar('none', { client_id: 'agent', client_secret: 'agent+secret', token_endpoint_auth_method: configured }, async liar => {
                assert.equal((await liar.login()).status, OK);
                await liar.control({ expire: true });
                assert.equal((await liar.call()).status, OK);
                const asked = await liar.seen('/token');
                assert.equal(asked.length, 2);
                for (const { headers, body } of asked) assert.match(`${headers.authorization} ${body}`, proof);
            }));

    test('L2 the port of a login can be bound again at once and is never shared', async () => {
        const alice = person(authority.url);
        const port = String(await freePort());
        for (let round = 0; round < 2; round++) {
            const login = alice.start('login', 'authority', '--no-browser', '--callback-port', port);
            const back = await browse(await addressOf(login));
            const shared = createServer();
            const [error] = await new Promise(resolve => shared.listen({ port: Number(port), host: '127.0.0.1', reusePort: true }, () => resolve([])).once('error', failed => resolve([failed])));
            shared.close();
            assert.equal(error?.code, 'EADDRINUSE');
            assert.equal((await fetch(back)).status, 200);
            assert.equal((await login.exited).code, OK, login.log());
        }
    });

    test('S1 a grant survives the renaming of its server and is shared by two names of one server', async () => {
        const alice = person(authority.url);
        const login = alice.start('login', 'authority', '--no-browser');
        assert.equal((await fetch(await browse(await addressOf(login)))).status, 200);
        assert.equal((await login.exited).code, OK, login.log());
        alice.servers({ renamed: { url: authority.url }, twin: { url: authority.url }, other: { url: new URL('/elsewhere', authority.url).href } });
        for (const name of ['renamed', 'twin']) assert.match((await alice.run('call', name, 'whoami')).stdout, /alice/);
        assert.notEqual((await alice.run('call', 'other', 'whoami')).status, OK);
        assert.equal(JSON.parse((await alice.run('connections')).stdout).length, 1);
    });

    test('S4 the name of a user is not used in a path', async () => {
        const alice = person(authority.url);
        const before = readdirSync(join(alice.state, '..'));
        const login = alice.start('login', 'authority', '--no-browser', '--subject', 'bearer:../../mallory');
        assert.equal((await fetch(await browse(await addressOf(login)))).status, 200);
        assert.equal((await login.exited).code, OK, login.log());
        assert.deepEqual(readdirSync(join(alice.state, '..')), before);
        for (const name of readdirSync(alice.state, { recursive: true })) assert.match(name, /^(postern\.json|vault\.key|store\.db(-wal|-shm)?|login-[0-9a-f]{32}\.lock)$/);
    });

    test('L9 Ctrl-C frees the port of a login at once and removes its state', async () => {
        const alice = person(authority.url, { callback_port: await freePort() }); // a port that no other login takes meanwhile
        const login = alice.start('login', 'authority', '--no-browser');
        const { port } = await browse(await addressOf(login));
        login.child.kill('SIGINT');
        assert.equal((await login.exited).code, 130);
        assert.match(login.log(), /login interrupted/);
        await assert.rejects(fetch(`http://127.0.0.1:${port}/`));
        assert.deepEqual(JSON.parse((await alice.run('connections')).stdout), []);
        const store = new DatabaseSync(join(alice.state, 'store.db'));
        assert.equal(store.prepare("SELECT count(*) AS count FROM record WHERE space = 'attempt'").get().count, 0);
        store.close();
    });

    test('L12 T11 the account in the ID token is shown and the ID token is not stored', async () => {
        const alice = person(authority.url, { scope: 'openid mcp:use' });
        const login = alice.start('login', 'authority', '--no-browser');
        assert.equal((await fetch(await browse(await addressOf(login)))).status, 200);
        assert.equal((await login.exited).code, OK, login.log());
        assert.match(login.log(), /^Logged in to authority at \S+ as alice$/m);
        assert.equal(JSON.parse((await alice.run('connections')).stdout)[0].account, 'alice');
    });

    test('S6 the first login reports where the new key is stored', async () => {
        const alice = person(authority.url);
        const first = await alice.run('login', 'authority', '--start');
        assert.match(first.stderr, new RegExp(`^.* warn +generated a new key for the users' tokens: keep a copy of it.*${alice.state}/vault\\.key`, 'm'));
        assert.equal((await alice.run('login', 'authority', '--start')).stderr, '');
    });

    test('S12 a logout keeps the registration or removes it on request', async () => {
        const alice = person(authority.url, { callback_port: await freePort() });
        const client = async () => {
            const login = alice.start('login', 'authority', '--no-browser');
            const address = await addressOf(login);
            assert.equal((await fetch(await browse(address))).status, 200);
            assert.equal((await login.exited).code, OK, login.log());
            return new URL(address).searchParams.get('client_id');
        };
        const first = await client();
        for (let i = 0; i < 2; i++) assert.equal((await alice.run('logout', 'authority')).status, OK);
        assert.equal(await client(), first);
        for (let i = 0; i < 2; i++) assert.equal((await alice.run('logout', 'authority', '--registration')).status, OK);
        aMinuteLater(alice.state);
        assert.notEqual(await client(), first);
    });

    test('L7 a pasted code completes a login that asked for it', async () => {
        const alice = person(authority.url);
        const login = alice.start('login', 'authority', '--no-browser', '--paste-code');
        const back = await browse(await addressOf(login));
        login.child.stdin.write(`${back.searchParams.get('code')}\n`);
        assert.equal((await login.exited).code, OK, login.log());
    });

    test('L11 a server that needs a login is reported at once and others are listed', async () => {
        const alice = person(authority.url, { mode: 'shared' });
        const began = Date.now();
        const call = await alice.run('call', 'authority', 'whoami');
        assert.notEqual(call.status, OK);
        assert.match(call.stderr, /postern login authority/);
        const serve = alice.start('serve', '--stdio');
        const send = message => serve.child.stdin.write(`${JSON.stringify({ jsonrpc: '2.0', ...message })}\n`);
        send({ id: 1, method: 'initialize', params: { protocolVersion: '2025-11-25', capabilities: {}, clientInfo: { name: 'test', version: '1' } } });
        send({ method: 'notifications/initialized' });
        send({ id: 2, method: 'tools/call', params: { name: 'authority__whoami', arguments: {} } });
        serve.child.stdin.end();
        await serve.exited;
        const answers = serve.out().trim().split('\n').map(JSON.parse);
        assert.ok(answers.find(({ id }) => id === 1).result, serve.out());
        assert.equal(answers.find(({ id }) => id === 2).error.code, -32003, serve.out());
        assert.ok(Date.now() - began < 10_000, 'at once');
    });

    test('L13 each failure of a login has its own exit status', async () => {
        const nobody = person('http://127.0.0.1:1/mcp');
        assert.equal((await nobody.run('login', 'authority', '--no-browser')).status, DISCOVERY);
        assert.equal((await nobody.run('login', 'authority', '--callback-host', 'example.org')).status, USAGE);
        assert.equal((await nobody.run('login')).status, USAGE);
        chmodSync(join(nobody.state, 'store.db'), 0o644);
        const open = await nobody.run('login', 'authority', '--no-browser');
        assert.equal(open.status, STORE);
        assert.match(open.stderr, /chmod 600/, 'S2');
    });
});
