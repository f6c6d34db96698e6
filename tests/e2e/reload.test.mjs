// Reload under load: good and broken policies alternate while calls go on; none fails, none is decided wrongly.
//
// POSTERN_RELOADS sets how many, for trying things out.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { readFileSync, renameSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { test } from 'node:test';

import { binary, sanitized, startGateway, temporaryDirectory, until } from './gateway.mjs';
import { initialize, post, reply, send } from './raw.mjs';

const RELOADS = Number(process.env.POSTERN_RELOADS ?? 1000);
const demo = join(dirname(binary), 'postern-demo');

const rule = (id, effect, name) => ({
    id,
    effect,
    description: `the rule ${id} of this test`,
    tenants: ['default'],
    subjects: ['authenticated'],
    servers: ['demo'],
    kinds: ['tool'],
    names: [name]
});
// In every good policy echo is allowed and now is denied; add is allowed in half of them.
const policy = wide => ({
    version: 1,
    description: 'One of two policies that take turns',
    rules: [rule('echo', 'allow', 'echo'), rule('no-now', 'deny', 'now'), ...(wide ? [rule('add', 'allow', 'add')] : [])]
});
const broken = ['{', '{"version": 1}', JSON.stringify({ ...policy(true), rulez: 1 }), ''];

const memory = pid => Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))[1]);

test(`${RELOADS} reloads while calls go on`, { timeout: 600_000 }, async () => {
    const folder = temporaryDirectory();
    const file = join(folder.path, 'policy.json');
    const put = text => {
        writeFileSync(`${file}.new`, text);
        renameSync(`${file}.new`, file);
    };
    put(JSON.stringify(policy(false)));
    const tokens = join(folder.path, 'tokens.json');
    const token = execFileSync(binary, ['token', 'new', '--file', tokens, '--subject', 'ana', '--description', 'the caller'], { encoding: 'utf8' }).trim();
    const gateway = await startGateway({ auth: { providers: [{ type: 'bearer', tokens }] }, policy: file, mcpServers: { demo: { command: demo } } });
    let running = true;
    let calls = 0;
    const traffic = async () => {
        const authorization = { authorization: `Bearer ${token}` };
        const opened = await send(gateway.url, { headers: post(authorization), body: initialize('2025-11-25') });
        const headers = post({ ...authorization, 'mcp-session-id': opened.headers['mcp-session-id'] });
        const call = async (name, args) => {
            const body = { jsonrpc: '2.0', id: ++calls, method: 'tools/call', params: { name, arguments: args } };
            const answer = await send(gateway.url, { headers, body });
            assert.equal(answer.status, 200, answer.body);
            return reply(answer);
        };
        while (running) {
            assert.ok((await call('demo__echo', { message: 'hi' })).result, 'echo is always allowed');
            assert.equal((await call('demo__now', {})).error?.data.rule, 'no-now', 'now is always denied');
            const { error } = await call('demo__add', { a: 1, b: 2 });
            assert.ok(!error || error.data.rule === 'default', JSON.stringify(error));
        }
    };
    try {
        const callers = Promise.all([traffic(), traffic(), traffic(), traffic()]);
        let early = 0;
        for (let i = 0; i < RELOADS; i++) {
            const bad = i % 2 === 1;
            const seen = gateway.log().length;
            put(bad ? broken[(i >> 1) % broken.length] : JSON.stringify(policy(i % 4 === 0)));
            gateway.child.kill('SIGHUP');
            await until(() => /policy loaded|policy not reloaded/.test(gateway.log().slice(seen)), 10_000, `reload ${i}`);
            if (i === RELOADS >> 1) early = memory(gateway.pid);
        }
        running = false;
        await callers;
        assert.ok(calls > RELOADS, `${calls} calls`);
        const late = memory(gateway.pid);
        console.log(`# ${RELOADS} reloads, ${calls} calls, resident ${early} kB at half, ${late} kB at the end`);
        if (!sanitized) assert.ok(late - early < 4096, `memory grew by ${late - early} kB`);
    } finally {
        running = false;
        await gateway.stop();
        folder.remove();
    }
});
