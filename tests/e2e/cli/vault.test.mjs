// The command `postern vault`, over a store made here, with records sealed according to the documentation of the format alone.
import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { createCipheriv, createDecipheriv, createHash, randomBytes } from 'node:crypto';
import { chmodSync, copyFileSync, existsSync, mkdirSync, openSync, readdirSync, readFileSync, renameSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { afterEach, beforeEach, test } from 'node:test';

import { binary, program, startPeer, temporaryDirectory } from '../gateway.mjs';

let directory, file, ring, db;
beforeEach(() => {
    directory = temporaryDirectory();
    chmodSync(directory.path, 0o700);
    file = join(directory.path, 'store.db');
    ring = join(directory.path, 'vault.key');
    writeFileSync(file, '', { mode: 0o600 });
    db = new DatabaseSync(file);
    db.exec(`PRAGMA journal_mode=WAL; PRAGMA application_id=${0x506f7372}; PRAGMA user_version=1;
        CREATE TABLE record(space TEXT NOT NULL,key BLOB NOT NULL,generation INTEGER NOT NULL,updated INTEGER NOT NULL,
            value BLOB NOT NULL,PRIMARY KEY(space,key)) STRICT;
        CREATE TABLE lease(name BLOB PRIMARY KEY,owner BLOB NOT NULL,until INTEGER NOT NULL,length INTEGER NOT NULL) STRICT;
        CREATE TABLE counter(id INTEGER PRIMARY KEY CHECK(id=1),last INTEGER NOT NULL) STRICT;
        INSERT INTO counter VALUES(1,0)`);
});
afterEach(() => {
    if (db.isOpen) db.close();
    directory.remove();
});

function environment(more = {}) {
    const { POSTERN_VAULT_KEY, CREDENTIALS_DIRECTORY, POSTERN_CONFIG, ...rest } = process.env;
    return { ...rest, POSTERN_STATE: directory.path, XDG_CONFIG_HOME: directory.path, ...more };
}

function vault(args, more) {
    const options = { encoding: 'utf8', cwd: directory.path, env: environment(more) };
    const { status, stdout, stderr } = spawnSync(binary, ['vault', ...args], options);
    return { status, stderr, out: stdout.startsWith('{') ? JSON.parse(stdout) : stdout };
}

const newKey = () => randomBytes(32).toString('base64');
const idOf = key => createHash('sha256').update('postern vault key\0').update(key).digest().subarray(0, 8);
const keysOf = text =>
    text.split('\n').filter(line => line && !line.startsWith('#')).map(line => Buffer.from(line, 'base64'));
const associated = (id, space, key) => Buffer.concat([Buffer.from([1]), id, Buffer.from(space), Buffer.from([0]), key]);

function seal(key, space, name, text) {
    const nonce = randomBytes(12), id = idOf(key);
    const cipher = createCipheriv('aes-256-gcm', key, nonce).setAAD(associated(id, space, name));
    return Buffer.concat([Buffer.from([1]), id, nonce, cipher.update(text), cipher.final(), cipher.getAuthTag()]);
}

function unseal(keys, space, name, sealed) {
    const id = sealed.subarray(1, 9), key = keys.find(one => idOf(one).equals(id));
    assert.ok(key, `no key ${id.toString('hex')}`);
    const cipher = createDecipheriv('aes-256-gcm', key, sealed.subarray(9, 21));
    cipher.setAAD(associated(id, space, name)).setAuthTag(sealed.subarray(-16));
    return Buffer.concat([cipher.update(sealed.subarray(21, -16)), cipher.final()]).toString();
}

/** Adds `count` records sealed with the key; returns their names. */
function fill(key, count) {
    const insert = db.prepare('INSERT INTO record VALUES(?,?,?,?,?)');
    const names = Array.from({ length: count }, (_, i) => Buffer.from(`7:default,${i}`));
    db.exec('BEGIN');
    for (const [i, name] of names.entries())
        insert.run(['grant', 'client', 'attempt'][i % 3], name, i + 1, 0, seal(key, ['grant', 'client', 'attempt'][i % 3], name, `secret ${i}`));
    db.prepare('UPDATE counter SET last=?').run(count);
    db.exec('COMMIT');
    return names;
}

/** Every record opens with the keys of the ring, and its content and generation are unchanged. */
function checkAll(names) {
    const keys = keysOf(readFileSync(ring, 'utf8'));
    const rows = db.prepare("SELECT * FROM record WHERE space<>'vault'").all();
    assert.equal(rows.length, names.length);
    for (const row of rows) {
        const i = names.findIndex(name => name.equals(Buffer.from(row.key)));
        assert.equal(unseal(keys, row.space, Buffer.from(row.key), Buffer.from(row.value)), `secret ${i}`);
        assert.equal(row.generation, i + 1);
    }
}

test('S6 vault rotate seals every record with a new key and status counts them', () => {
    const first = newKey();
    writeFileSync(ring, `${first}\n`, { mode: 0o600 });
    const names = fill(Buffer.from(first, 'base64'), 300);
    const before = vault(['status']);
    assert.equal(before.status, 0, before.stderr);
    assert.deepEqual(before.out.keys.map(key => [key.state, key.records]), [['current', 301]]);
    assert.equal(before.out.source, ring);

    const rotated = vault(['rotate']);
    assert.equal(rotated.status, 0, rotated.stderr);
    assert.deepEqual([rotated.out.new, rotated.out.resealed, rotated.out.dropped], [true, 301, 0]);
    assert.equal(statSync(ring).mode & 0o777, 0o600);
    checkAll(names);

    const after = vault(['status']);
    assert.deepEqual(after.out.keys.map(key => [key.id, key.state, key.records]), [
        [rotated.out.key, 'current', 301],
        [before.out.keys[0].id, 'old', 0]
    ]);
    assert.ok(keysOf(readFileSync(ring, 'utf8'))[1].equals(Buffer.from(first, 'base64')), 'the old key stays behind the new one');
});

test('S6 a rotation killed at any point leaves every record readable and the next one finishes', async () => {
    const first = newKey();
    writeFileSync(ring, `${first}\n`, { mode: 0o600 });
    const names = fill(Buffer.from(first, 'base64'), 600);
    for (const delay of [5, 20, 60]) {
        const child = spawn(binary, ['vault', 'rotate'], { env: environment(), cwd: directory.path, stdio: 'ignore' });
        await new Promise(done => setTimeout(done, delay));
        child.kill('SIGKILL');
        await new Promise(done => child.exitCode ?? child.signalCode ? done() : child.once('exit', done));
        checkAll(names);
        db.exec('DELETE FROM lease'); // as if its minute had passed
    }
    const last = vault(['rotate']);
    assert.equal(last.status, 0, last.stderr);
    checkAll(names);
    const { out } = vault(['status']);
    assert.deepEqual(out.keys.filter(key => key.records).map(key => key.state), ['current']);
});

/** A grant as docs/internals/store.md describes it: version, then tag, length and bytes of each member. */
function grantBytes(members) {
    const parts = Object.entries(members).map(([tag, value]) => {
        const bytes = typeof value === 'bigint' ? Buffer.alloc(8) : Buffer.from(value);
        if (typeof value === 'bigint') bytes.writeBigInt64BE(value);
        const head = Buffer.alloc(5);
        head[0] = Number(tag);
        head.writeUInt32BE(bytes.length, 1);
        return Buffer.concat([head, bytes]);
    });
    return Buffer.concat([Buffer.from([1]), ...parts]);
}

test('S8 a store of the first version is read and unknown members of a grant are ignored', () => {
    const first = newKey();
    writeFileSync(ring, `${first}\n`, { mode: 0o600 });
    const texts = ['default', 'shared', 'https://issuer.example', 'https://server.example/mcp'];
    const name = Buffer.from(texts.map(text => `${text.length}:${text},`).join(''));
    const grant = { 1: 'access', 2: 'refresh', 4: 'a b', 6: 4102444800n, 7: 1n, 8: 'https://issuer.example/token', 200: 'written by a later version' };
    db.prepare('INSERT INTO record VALUES(?,?,?,?,?)').run('grant', name, 1, 0, seal(Buffer.from(first, 'base64'), 'grant', name, grantBytes(grant)));
    db.exec('UPDATE counter SET last=1');
    const { status, stdout, stderr } = spawnSync(binary, ['connections'], { encoding: 'utf8', cwd: directory.path, env: environment() });
    assert.equal(status, 0, stderr);
    const [{ token, ...shown }, ...more] = JSON.parse(stdout);
    assert.deepEqual(more, []);
    assert.deepEqual(shown, { tenant: texts[0], server: texts[3], issuer: texts[2], resource: texts[3], user: texts[1], scope: 'a b', expires: '2100-01-01T00:00:00Z', refresh: true, ended: false, volatile: false });
    assert.deepEqual(readdirSync(directory.path).filter(file => !/^(store\.db(-wal|-shm)?|vault\.key)$/.test(file)), [], 'no file name contains a version');
});

test('S8 a store of a later version is refused and unchanged', () => {
    writeFileSync(ring, `${newKey()}\n`, { mode: 0o600 });
    db.exec('PRAGMA user_version=2');
    const { status, stderr } = vault(['status']);
    assert.equal(status, 3, stderr);
    assert.match(stderr, /version/);
    assert.equal(db.prepare('PRAGMA user_version').get().user_version, 2);
});

test('a second rotation at the same time is refused', () => {
    writeFileSync(ring, newKey(), { mode: 0o600 });
    assert.equal(vault(['status']).status, 0);
    const [seconds] = readFileSync('/proc/uptime', 'utf8').split(' ');
    const until = Math.round(Number(seconds) * 1000) + 50_000;
    db.prepare('INSERT INTO lease VALUES(?,?,?,?)').run(Buffer.from('vault rotation'), randomBytes(16), until, 60_000);
    const { status, stderr } = vault(['rotate']);
    assert.equal(status, 4);
    assert.match(stderr, /another rotation is in progress/);
});

test('S7 a store without its key is not recreated and the error says what to do', () => {
    writeFileSync(ring, newKey(), { mode: 0o600 });
    assert.equal(vault(['status']).status, 0);
    renameSync(ring, `${ring}.aside`);
    for (const command of ['status', 'rotate']) {
        const { status, stderr } = vault([command]);
        assert.equal(status, 3);
        assert.match(stderr, /restore it from a backup/);
        assert.equal(existsSync(ring), false);
    }
    const wrong = vault(['status'], { POSTERN_VAULT_KEY: newKey() });
    assert.equal(wrong.status, 3);
    assert.match(wrong.stderr, /not in POSTERN_VAULT_KEY: restore that key/);
    copyFileSync(`${ring}.aside`, ring);
    chmodSync(ring, 0o644);
    const open = vault(['status']);
    assert.equal(open.status, 3);
    assert.match(open.stderr, /chmod 600/);
    chmodSync(ring, 0o600);
    assert.equal(vault(['status']).status, 0);
});

test('S6 a key ring in a variable is rotated when a key is put in front', () => {
    const first = newKey(), second = newKey();
    assert.equal(vault(['status'], { POSTERN_VAULT_KEY: first }).status, 0);
    const same = vault(['rotate'], { POSTERN_VAULT_KEY: first });
    assert.deepEqual([same.status, same.out.new, same.out.resealed], [0, false, 0]);
    assert.match(same.stderr, /put a new key before the others/);
    const both = vault(['rotate'], { POSTERN_VAULT_KEY: `${second},${first}` });
    assert.deepEqual([both.status, both.out.resealed], [0, 1]);
    assert.equal(vault(['status'], { POSTERN_VAULT_KEY: second }).status, 0);
    assert.equal(vault(['status'], { POSTERN_VAULT_KEY: first }).status, 3);
    assert.equal(existsSync(ring), false);
});

test('paths of store and vault are relative to the configuration', () => {
    const config = join(directory.path, 'postern.json');
    writeFileSync(config, JSON.stringify({ mcpServers: {}, store: { path: 'store.db' }, vault: { key_file: 'mine.key' } }));
    const missing = vault(['status', '--config', config], { POSTERN_STATE: '/nonexistent' });
    assert.equal(missing.status, 3);
    assert.match(missing.stderr, /mine\.key: cannot read the vault's keys/);
    writeFileSync(join(directory.path, 'mine.key'), newKey(), { mode: 0o400 });
    const found = vault(['status', '--config', config], { POSTERN_STATE: '/nonexistent' });
    assert.equal(found.status, 0, found.stderr);
    assert.equal(found.out.store, file);
});

test('wrong usage and a missing store are errors', () => {
    assert.equal(vault(['melt']).status, 2);
    assert.equal(vault([]).status, 2);
    const { status, stderr } = vault(['status'], { POSTERN_STATE: join(directory.path, 'elsewhere') });
    assert.equal(status, 1);
    assert.match(stderr, /the store does not exist yet/);
    assert.equal(existsSync(join(directory.path, 'elsewhere')), false);
});

test('a damaged record is counted and prevents a rotation', () => {
    writeFileSync(ring, newKey(), { mode: 0o600 });
    assert.equal(vault(['status']).status, 0);
    db.prepare('INSERT INTO record VALUES(?,?,?,?,?)').run('grant', Buffer.from('x'), 9, 0, Buffer.from('short'));
    const { status, out } = vault(['status']);
    assert.equal(status, 1);
    assert.equal(out.damaged, 1);
    const rotated = vault(['rotate']);
    assert.equal(rotated.status, 4);
    assert.match(rotated.stderr, /nothing was changed/);
});

// ---- the desktop's keyring, and a descriptor (S6) ---------------------------------------------

const KEEPS = `case $1 in
lookup) test -s "$0.kept" || exit 1; cat "$0.kept" ;;
store) cat >"$0.kept" ;;
esac`;

/** A home with a secret-tool that runs `body` and records its arguments. */
function desktop(body) {
    db.close(); // the store of these tests is made by the command
    const home = join(directory.path, 'home'), tools = join(directory.path, 'tools'), tool = join(tools, 'secret-tool');
    for (const folder of [home, tools]) mkdirSync(folder, { mode: 0o700 });
    if (body) writeFileSync(tool, `#!/bin/sh\necho "$@" >>"$0.asked"\n${body}\n`, { mode: 0o755 });
    const config = join(home, 'postern.json');
    writeFileSync(config, JSON.stringify({ mcpServers: { a: { url: 'http://127.0.0.1:9/mcp' } } }));
    const variables = { PATH: `${tools}:${process.env.PATH}`, HOME: home, POSTERN_STATE: home, DBUS_SESSION_BUS_ADDRESS: 'unix:path=/nowhere' };
    const start = (args, more = {}) => spawn(binary, [...args, '--config', config], { env: { ...variables, ...more }, stdio: 'pipe' });
    const run = async (args, more, input = '') => {
        const child = start(args, more);
        let stderr = '';
        child.stderr.on('data', chunk => (stderr += chunk));
        child.stdin.end(input);
        child.stdout.resume();
        await new Promise(resolve => child.once('close', resolve));
        return { status: child.exitCode, stderr };
    };
    const read = name => (existsSync(name) ? readFileSync(name, 'utf8') : '');
    return {
        home, run,
        file: join(home, 'vault.key'),
        login: more => run(['login', 'a', '--token-stdin'], more, 'token-1\n'),
        kept: () => read(`${tool}.kept`),
        asked: () => read(`${tool}.asked`).trim().split('\n').filter(Boolean)
    };
}

test('S6 a keyring holds the key and no record', async () => {
    const desk = desktop(KEEPS);
    const login = await desk.login();
    assert.equal(login.status, 0, login.stderr);
    assert.match(login.stderr, /generated a new key.*Secret Service/);
    assert.ok(!existsSync(desk.file));
    assert.equal(Buffer.from(desk.kept(), 'base64url').length, 32);
    assert.ok(desk.asked().every(words => words.endsWith(`service postern store ${desk.file}`)), desk.asked().join());
    assert.ok(!desk.asked().join().includes(desk.kept()), 'the key is not passed as an argument');
    assert.equal((await desk.run(['connections'])).status, 0);
    assert.equal((await desk.run(['vault', 'status'])).status, 0);
    const elsewhere = await desk.run(['connections'], { DBUS_SESSION_BUS_ADDRESS: '' });
    assert.notEqual(elsewhere.status, 0);
    assert.match(elsewhere.stderr, /run this command in the desktop session whose keyring contains them; nothing was changed/);
    assert.ok(!existsSync(desk.file));
});

test('S6 only one of several processes creates the key in the keyring', async () => {
    const desk = desktop(KEEPS);
    const logins = await Promise.all(Array.from({ length: 6 }, () => desk.login()));
    for (const { stderr } of logins) assert.doesNotMatch(stderr, /sealed with key/);
    assert.equal(desk.asked().filter(words => words.startsWith('store')).length, 1);
    assert.equal((await desk.login()).status, 0);
});

for (const [what, body, more] of [['hangs', 'exec sleep 60'], ['fails', 'echo "Cannot autolaunch D-Bus" >&2; exit 1'], ['cannot keep it', 'test "$1" = lookup && exit 1; exit 1'],
    ['is not there'], ['has no session', KEEPS, { DBUS_SESSION_BUS_ADDRESS: undefined }]])
    test(`S6 a keyring that ${what} is replaced by a key file without a long wait`, async () => {
        const desk = desktop(body);
        const begun = performance.now();
        const login = await desk.login(more);
        assert.equal(login.status, 0, login.stderr);
        assert.ok(performance.now() - begun < 30_000);
        assert.equal(statSync(desk.file).mode & 0o777, 0o600);
        const asked = desk.asked().length;
        assert.equal(desk.asked().length > 0, Boolean(body && !more));
        assert.equal((await desk.run(['connections'], more)).status, 0);
        assert.equal(desk.asked().length, asked, 'the keyring is not asked while a key file exists');
    });

for (const kind of ['a file', 'a pipe'])
    test(`S6 a key on a descriptor that is ${kind} is read as often as needed`, async t => {
        db.close();
        const home = join(directory.path, 'home'), text = join(directory.path, 'key'), config = join(home, 'postern.json');
        const liar = await startPeer(program.liar, 'none');
        t.after(() => liar.stop());
        mkdirSync(home, { mode: 0o700 });
        writeFileSync(text, `${newKey()}\n`, { mode: 0o600 });
        writeFileSync(config, JSON.stringify({ vault: { key_file: 'fd:3' }, mcpServers: { a: { url: liar.url } } }));
        const run = async (args, input = '') => {
            const env = { PATH: process.env.PATH, HOME: home, POSTERN_STATE: home };
            const child = spawn(binary, [...args, '--config', config], { env, stdio: ['pipe', 'ignore', 'pipe', kind === 'a file' ? openSync(text) : 'pipe'] });
            let stderr = '';
            child.stderr.on('data', chunk => (stderr += chunk));
            child.stdio[3]?.on('error', () => {}).end(readFileSync(text));
            child.stdin.end(input);
            await new Promise(resolve => child.once('close', resolve));
            return { status: child.exitCode, stderr };
        };
        const login = await run(['login', 'a', '--token-stdin'], 'token-1\n');
        assert.equal(login.status, 0, login.stderr);
        assert.ok(!existsSync(join(home, 'vault.key')));
        assert.equal((await run(['connections'])).status, 0);
        const call = await run(['call', 'a', 'echo', '{}', '--headless']);
        assert.equal(call.status, 0, call.stderr); // it opens the store to call, to log in, and to call again
        writeFileSync(text, `${newKey()}\n`);
        assert.match((await run(['connections'])).stderr, /not in fd:3/);
    });
