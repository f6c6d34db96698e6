// S9: access of other processes to keys and tokens in memory, in environments and on command lines.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { chmodSync, chownSync, closeSync, copyFileSync, existsSync, mkdirSync, openSync, readFileSync, readSync, statSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { after, test } from 'node:test';

import { binary, node, peerPath, sanitized, startGateway, startPeer, temporaryDirectory, until, watch } from '../gateway.mjs';
import { resultText, Session } from '../raw.mjs';

const demo = join(dirname(binary), 'postern-demo');
const authority = peerPath('authority.mjs');
const root = process.getuid() === 0;
const WAIT_MS = 20_000;

const directory = temporaryDirectory();
after(() => directory.remove());
const shared = { mcpServers: { s: { url: 'http://127.0.0.1:1/mcp', auth: { mode: 'shared' } } } };

/** The mappings of a process with their flags. */
function mappings(pid) {
    const found = [];
    for (const line of readFileSync(`/proc/${pid}/smaps`, 'latin1').split('\n')) {
        const head = /^([0-9a-f]+)-([0-9a-f]+) (\S+) \S+ \S+ \S+ *(.*)$/.exec(line);
        if (head) found.push({ from: parseInt(head[1], 16), to: parseInt(head[2], 16), rights: head[3], name: head[4], flags: [] });
        const flags = /^VmFlags: (.*)$/.exec(line);
        if (flags) found.at(-1).flags = flags[1].trim().split(' ');
    }
    return found;
}

/** The mappings of a process that contain these bytes, one entry for each occurrence. */
function holders(pid, bytes) {
    const memory = openSync(`/proc/${pid}/mem`);
    const found = [];
    for (const mapping of mappings(pid)) {
        if (!mapping.rights.startsWith('rw') || mapping.to - mapping.from > 1 << 28) continue;
        const block = Buffer.alloc(mapping.to - mapping.from);
        try {
            readSync(memory, block, 0, block.length, mapping.from);
        } catch {
            continue;
        }
        for (let at = block.indexOf(bytes); at >= 0; at = block.indexOf(bytes, at + 1)) found.push(mapping);
    }
    closeSync(memory);
    return found;
}

test('S9 the gateway does not leave a core file and only root can inspect it', async () => {
    const home = join(directory.path, 'other');
    const program = join(home, 'postern');
    const uid = root ? 65534 : process.getuid();
    chmodSync(directory.path, 0o755);
    mkdirSync(home, { mode: 0o700 });
    copyFileSync(binary, program);
    chmodSync(program, 0o755);
    writeFileSync(join(home, 'postern.json'), JSON.stringify({ listen: [{ address: '127.0.0.1:0' }], mcpServers: {} }));
    if (root) for (const path of [home, program, join(home, 'postern.json')]) chownSync(path, uid, uid);
    const child = spawn(program, ['serve', '--config', join(home, 'postern.json')], { ...(root && { uid, gid: uid }), env: { HOME: home, POSTERN_STATE: home }, stdio: ['ignore', 'ignore', 'pipe'] });
    const gateway = watch(child, 'stderr');
    await gateway.line(/listening/, WAIT_MS);
    assert.match(readFileSync(`/proc/${child.pid}/status`, 'utf8'), new RegExp(`^Uid:\\s+${uid}\\s`, 'm'));
    const spawner = readFileSync(`/proc/${child.pid}/task/${child.pid}/children`, 'utf8').trim(); // it has the same environment
    for (const pid of [child.pid, spawner]) assert.equal(statSync(`/proc/${pid}/environ`).uid, 0, 'its files in /proc belong to root');
    child.kill('SIGTERM');
    assert.equal((await gateway.exited).code, 0, gateway.log());
});

test('S9 the vault key is in memory once, in a locked page that is not dumped', { skip: !root && 'only root can look' }, async () => {
    const key = randomBytes(32);
    const file = join(directory.path, 'ring');
    writeFileSync(file, `${key.toString('base64')}\n`, { mode: 0o600 });
    const gateway = await startGateway({ ...shared, vault: { key_file: file } });
    try {
        const found = holders(gateway.pid, key);
        assert.equal(found.length, 1, JSON.stringify(found));
        assert.ok(found[0].flags.includes('dd'), `not to be dumped: ${found[0].flags}`);
        if (!sanitized) assert.ok(found[0].flags.includes('lo'), `locked: ${found[0].flags}`);
        assert.deepEqual(holders(gateway.pid, Buffer.from(key.toString('base64'))), [], 'the encoded key is not in memory');
    } finally {
        await gateway.stop();
    }
});

test('S9 a stdio server does not get a key or token in its environment or command line', async () => {
    const key = randomBytes(32).toString('base64'), token = `token-${randomBytes(12).toString('hex')}`;
    const mcpServers = { ...shared.mcpServers, web: { url: 'http://127.0.0.1:1/mcp', auth: { mode: 'static', token: '${WEB_TOKEN}' } }, demo: { command: demo, args: [] } };
    const gateway = await startGateway({ mcpServers }, [], { variables: { POSTERN_VAULT_KEY: key, WEB_TOKEN: token } });
    try {
        const session = await Session.open(gateway.url);
        assert.equal(resultText(await session.call('demo__echo', { message: 'hi' })), 'hi');
        const [pid] = gateway.servers();
        const own = ['environ', 'cmdline'].map(name => readFileSync(`/proc/${pid}/${name}`, 'latin1')).join();
        assert.match(own, /postern-demo/);
        for (const secret of [key, token, 'POSTERN_VAULT_KEY', 'WEB_TOKEN']) assert.ok(!own.includes(secret), secret);
    } finally {
        await gateway.stop();
    }
});

test('S9 the browser of a login gets the URL and no key', async () => {
    const peer = await startPeer(node, authority);
    const marker = join(directory.path, 'browser-saw'), script = join(directory.path, 'browser');
    const key = randomBytes(32).toString('base64');
    writeFileSync(script, `#!/bin/sh\n(env; printf '%s\\n' "$@") >${marker}.new\nmv ${marker}.new ${marker}\n`, { mode: 0o755 });
    const home = join(directory.path, 'person');
    mkdirSync(home, { mode: 0o700 });
    const env = { PATH: process.env.PATH, HOME: home, POSTERN_STATE: home, POSTERN_VAULT_KEY: key, BROWSER: script };
    const child = spawn(binary, ['login', '--url', peer.url], { env, stdio: ['ignore', 'ignore', 'pipe'] });
    const login = watch(child, 'stderr');
    try {
        await until(() => existsSync(marker), WAIT_MS, 'the browser');
        const saw = readFileSync(marker, 'utf8');
        assert.match(saw, /^HOME=/m);
        assert.match(saw, /^http:\S+code_challenge=/m);
        assert.ok(!saw.includes(key) && !saw.includes('POSTERN_'), saw);
    } finally {
        child.kill('SIGINT');
        await login.exited;
        await peer.stop();
    }
});
