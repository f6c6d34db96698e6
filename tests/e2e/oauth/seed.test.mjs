// S11: a seed, which is a store that is only read. Refreshed grants live in memory, and are marked as volatile.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { chmodSync, copyFileSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { after, before, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';

import { binary, node, peerPath, startGateway, startPeer, temporaryDirectory, watch, writeConfig } from '../gateway.mjs';
import { resultText, Session } from '../raw.mjs';

const authority = peerPath('authority.mjs');
const [OK, CONFIG, STORE] = [0, 3, 16];
const LIFETIME_MS = 3_000;

const directory = temporaryDirectory();
const folder = name => join(directory.path, name);
let peer, key;
after(async () => {
    await peer?.stop();
    chmodSync(folder('secret'), 0o700);
    directory.remove();
});

async function run(config, args, more = {}) {
    const home = folder('home');
    mkdirSync(home, { recursive: true, mode: 0o700 });
    const path = writeConfig(home, config);
    const env = { PATH: process.env.PATH, HOME: home, POSTERN_STATE: home, BROWSER: 'curl -sL -b "" -o /dev/null', ...more };
    const child = spawn(binary, [...args, '--config', path], { env, stdio: ['ignore', 'pipe', 'pipe'] });
    const out = watch(child, 'stdout'), err = watch(child, 'stderr');
    const { code } = await err.exited;
    return { status: code, stdout: out.log(), stderr: err.log() };
}

const servers = () => ({ mcpServers: { a: { url: peer.url, type: 'http', auth: { mode: 'shared' } } } });
const seeded = (file = 'secret/grants.db') => ({ ...servers(), store: { seed: folder(file) } });

before(async () => {
    peer = await startPeer(node, authority, LIFETIME_MS / 1000);
    const login = await run(servers(), ['login', 'a']);
    assert.equal(login.status, OK, login.stderr);
    key = readFileSync(join(folder('home'), 'vault.key'), 'utf8').split('\n').filter(line => line && !line.startsWith('#'))[0];
    const store = new DatabaseSync(join(folder('home'), 'store.db'));
    store.exec('PRAGMA wal_checkpoint(TRUNCATE)');
    store.close();
    mkdirSync(folder('secret'));
    copyFileSync(join(folder('home'), 'store.db'), folder('secret/grants.db')); // its header says that it has a write-ahead log
    chmodSync(folder('secret/grants.db'), 0o444);
    chmodSync(folder('secret'), 0o555);
});

test('S11 a gateway refreshes a seed repeatedly in memory and does not change the file', async () => {
    const bytes = readFileSync(folder('secret/grants.db'));
    const gateway = await startGateway(seeded(), [], { variables: { POSTERN_VAULT_KEY: key } });
    try {
        await gateway.line(/the store is a seed: refreshed tokens are kept in memory only, and lost at the end/, 10_000);
        const session = await Session.open(gateway.url);
        for (let round = 0; round < 3; round++) {
            await sleep(LIFETIME_MS + 200); // the token's own lifetime; each refresh needs the refresh token of the last one
            assert.equal(resultText(await session.call('a__whoami')), 'alice', gateway.log());
        }
        const count = await (await fetch(new URL('/count', peer.url))).json();
        assert.ok(count.refresh_token >= 3 && !count.refused, JSON.stringify(count));
        assert.deepEqual(readdirSync(gateway.state).filter(name => /store|vault/.test(name)), [], 'nothing was stored');
    } finally {
        await gateway.stop();
    }
    assert.ok(readFileSync(folder('secret/grants.db')).equals(bytes));
    assert.deepEqual(readdirSync(folder('secret')), ['grants.db']);
});

test('S11 connections marks seeds as volatile and commands that would change them are refused', async () => {
    const variables = { POSTERN_VAULT_KEY: key };
    const listed = await run(seeded(), ['connections'], variables);
    assert.equal(listed.status, OK, listed.stderr);
    assert.deepEqual(JSON.parse(listed.stdout).map(grant => [grant.server, grant.volatile]), [['a', true]]);
    for (const args of [['login', 'a', '--headless'], ['logout', 'a'], ['connections', '--purge', '--issuer', 'x'], ['vault', 'rotate']]) {
        const refused = await run(seeded(), args, variables);
        assert.equal(refused.status, STORE, `${args.join(' ')}: ${refused.stderr}`);
        assert.match(refused.stderr, /grants\.db: the store is a seed.*where the seed is created/);
    }
    assert.equal((await run(seeded(), ['vault', 'status'], variables)).status, OK);
});

test('S11 a seed that cannot be used stops the start', async () => {
    const [wal, open, garbage] = ['wal.db', 'open.db', 'garbage.db'].map(folder);
    for (const file of [wal, open]) copyFileSync(folder('secret/grants.db'), file);
    chmodSync(open, 0o666);
    writeFileSync(`${wal}-wal`, 'more');
    writeFileSync(garbage, 'not a database at all, but long enough for SQLite to look for a header');
    const cases = { 'none.db': /none\.db: No such file/, 'open.db': /writable by other users.*chmod go-w/, 'wal.db': /wal\.db-wal.*\.backup/, 'garbage.db': /garbage\.db: not a postern store, or a damaged one/ };
    for (const [file, message] of Object.entries(cases)) {
        const refused = await run({ listen: [{ address: '127.0.0.1:0' }], ...seeded(file) }, ['serve'], { POSTERN_VAULT_KEY: key });
        assert.equal(refused.status, CONFIG, `${file}: ${refused.stderr}`);
        assert.match(refused.stderr, message);
    }
    const keyless = await run({ listen: [{ address: '127.0.0.1:0' }], ...seeded() }, ['serve'], { POSTERN_STATE: folder('nowhere') });
    assert.equal(keyless.status, CONFIG, keyless.stderr);
    assert.match(keyless.stderr, /set vault\.key_file to the location of the keys/);
    const both = await run({ ...servers(), store: { seed: 'a.db', path: 'b.db' } }, ['config', 'check']);
    assert.match(both.stderr, /\/store: set either "path" or "seed", not both/);
});
