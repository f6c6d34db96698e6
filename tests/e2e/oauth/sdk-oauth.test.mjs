// The example of an OAuth-protected server in the SDK, with its authorization server, as a peer of logins and of the gateway.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';

import { binary, freePort, node, program, startGateway, temporaryDirectory, watch, writeConfig } from '../gateway.mjs';
import { resultText, Session } from '../raw.mjs';

const example = join(program.everything, '../../../sdk/dist/esm/examples/server/simpleStreamableHttp.js');
const [OK, WAIT_MS] = [0, 20_000];

for (const strict of [false, true])
    describe(`simpleStreamableHttp --oauth${strict ? ' --oauth-strict' : ''}`, () => {
        const directory = temporaryDirectory();
        let server, url, issuer, child, callback_port; // the same for all logins: they share a registration
        before(async () => {
            const [port, authPort] = [await freePort(), await freePort()];
            callback_port = await freePort();
            url = `http://localhost:${port}/mcp`;
            issuer = `http://localhost:${authPort}/`;
            const env = { ...process.env, MCP_PORT: String(port), MCP_AUTH_PORT: String(authPort) };
            child = spawn(node, [example, '--oauth', ...(strict ? ['--oauth-strict'] : [])], { env, stdio: ['ignore', 'pipe', 'inherit'] });
            server = watch(child, 'stdout');
            await server.line(/MCP Streamable HTTP Server listening on port/, WAIT_MS);
            await server.line(/OAuth Authorization Server listening on port/, WAIT_MS);
        });
        after(async () => {
            child.kill('SIGTERM');
            await server.exited;
            directory.remove();
        });

        async function run(...args) {
            const config = writeConfig(directory.path, { mcpServers: { example: { url, auth: { callback_port } } } });
            const env = { PATH: process.env.PATH, HOME: directory.path, POSTERN_STATE: directory.path };
            const command = spawn(binary, [...args, '--config', config], { env, stdio: ['ignore', 'pipe', 'pipe'] });
            const out = watch(command, 'stdout'), err = watch(command, 'stderr');
            const { code } = await err.exited;
            return { status: code, stdout: out.log(), stderr: err.log() };
        }
        const greet = ['call', 'example', 'greet', '{"name":"Ana"}'];

        test('D17 doctor finds both endpoints of the SDK server from a 401', async () => {
            const { status, stdout, stderr } = await run('doctor', 'example');
            assert.equal(status, OK, stderr);
            assert.ok((stdout + stderr).includes(`authorization server: ${issuer}`), stdout + stderr);
        });

        test('D9 T12 login, calls and logout work with an issuer that ends with a slash', async () => {
            assert.match((await run(...greet)).stderr, /postern login example/);
            const login = await run('login', 'example', '--headless');
            assert.equal(login.status, OK, login.stderr);
            assert.ok(login.stderr.includes(`Logged in to example at ${issuer}\nscope: mcp:tools`), login.stderr);
            const called = await run(...greet);
            assert.match(called.stdout, /Hello, Ana!/, called.stderr);
            assert.equal(JSON.parse((await run('connections')).stdout)[0].refresh, false);
            assert.equal((await run('logout', 'example')).status, OK);
            assert.match((await run(...greet)).stderr, /postern login example/);
        });

        test('T12 a gateway in front of the SDK server gives -32003 without a grant and results with one', async () => {
            const gateway = await startGateway({ mcpServers: { example: { url, auth: { mode: 'shared' } } } }, [], { variables: { POSTERN_STATE: directory.path } });
            try {
                const session = await Session.open(gateway.url);
                const refused = await session.call('example__greet', { name: 'Ana' });
                assert.equal(refused.error.code, -32003, JSON.stringify(refused));
                const login = await run('login', 'example', '--headless');
                assert.equal(login.status, OK, login.stderr);
                assert.equal(resultText(await session.call('example__greet', { name: 'Ana' })), 'Hello, Ana!');
                assert.ok((await session.call('example__multi-greet', { name: 'Ana' })).result, 'a call with notifications on its stream');
            } finally {
                await gateway.stop();
            }
        });
    });
