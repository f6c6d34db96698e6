// Replacing a running gateway: sockets that a service manager passes and keeps, and `postern serve --replace`.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { existsSync, lstatSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, test } from 'node:test';

import { commandLine, EXIT } from '../command-line.mjs';
import { binary, freePort, peerPath, settles, temporaryDirectory, until, watch, writeConfig } from '../gateway.mjs';
import { Session } from '../raw.mjs';

const WAIT_MS = 30_000;
const STOP_MS = 30_000;
const mirror = { command: peerPath('mirror'), args: ['--tools', '["one"]'] };

/** A folder of the test with its configuration, which several gateways share. */
function place(t, config) {
    const folder = temporaryDirectory();
    t.after(folder.remove);
    return {
        folder: folder.path,
        at: name => join(folder.path, name),
        path: writeConfig(folder.path, config),
        environment: { ...process.env, POSTERN_STATE: folder.path }
    };
}

/** Runs a gateway under a service manager; `events` are its reports. */
function manage(t, place, listeners = []) {
    const given = listeners.flatMap(address => ['--listen', address]);
    const child = spawn(peerPath('service-manager'), [...given, binary, 'serve', '--config', place.path], { stdio: ['pipe', 'pipe', 'pipe'], env: place.environment });
    const manager = watch(child, 'stderr');
    const reports = watch(child, 'stdout');
    const events = () => reports.log().split('\n').slice(0, -1).map(line => JSON.parse(line));
    const last = name => events().map(event => event[name]).filter(value => value !== undefined).at(-1);
    t.after(async () => {
        child.stdin.end();
        assert.ok(await settles(manager.exited, STOP_MS), `the service manager did not end\n${manager.log()}`);
        assert.equal(last('ended'), 0, manager.log());
    });
    return { manager, events, last, tell: word => child.stdin.write(`${word}\n`), log: manager.log, line: pattern => manager.line(pattern, WAIT_MS) };
}

describe('sockets that a service manager passes', () => {
    test('a listener serves on the passed socket with its address, and a socket of another address is closed', async t => {
        const [port, other] = [await freePort(), await freePort()];
        const here = place(t, { listen: [{ address: `127.0.0.1:${port}` }], mcpServers: { a: mirror } });
        const managed = manage(t, here, [`127.0.0.1:${other}`, `127.0.0.1:${port}`]); // the port is taken: the gateway cannot open it
        await managed.line(new RegExp(`inherited socket closed address=127.0.0.1:${other} `));
        const session = await Session.open(`http://127.0.0.1:${port}/mcp`);
        assert.ok((await session.call('a__one')).result);
    });
});
