// An MCP server at a public address, and addresses that it must not reach through the gateway: this host, and a private network.
//
// usage: outside.mjs POSTERN HOW TARGET [BLOCK]     in a network namespace with the addresses 203.0.113.7 and 10.1.2.3
//
// Logs in to the server with the program POSTERN, by the command (HOW is `login`) or on the pages of a gateway (`hosted`); the server's
// challenge names metadata at the address TARGET. BLOCK is an address block that the configuration allows. Prints {status, stderr,
// connections}: the exit status or the status of the page, and the number of connections to TARGET.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { createServer as createListener } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

const [postern, how, target, block] = process.argv.slice(2);
const PUBLIC = '203.0.113.7';

async function listen(server, address) {
    server.listen(0, address);
    await once(server, 'listening');
    return server.address().port;
}

let connections = 0;
const inside = createListener(socket => {
    connections++;
    socket.on('error', () => {}).end('HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n');
});
const scheme = target.startsWith('127.') ? 'http' : 'https';
const metadata = `${scheme}://${target}:${await listen(inside, target)}/metadata`;
const outside = createServer((_request, response) => response.writeHead(401, { 'www-authenticate': `Bearer resource_metadata="${metadata}"` }).end());
const url = `http://${PUBLIC}:${await listen(outside, PUBLIC)}/mcp`;

const state = mkdtempSync(join(tmpdir(), 'postern-outside-'));
const config = join(state, 'postern.json');
const policy = join(state, 'policy.json');
const allowed = block ? { allow_addresses: [block] } : {};
const server = { url, auth: how === 'hosted' ? { mode: 'per_user', ...allowed } : allowed };
let stderr = '';

function start(...args) {
    const child = spawn(postern, [...args, '--config', config], { env: { PATH: process.env.PATH, HOME: state, POSTERN_STATE: state } });
    child.stderr.on('data', chunk => (stderr += chunk));
    return child;
}

async function login() {
    writeFileSync(config, JSON.stringify({ mcpServers: { outside: server } }));
    return (await once(start('login', 'outside', '--headless'), 'close'))[0];
}

async function hosted() {
    const rule = { id: 'all', effect: 'allow', description: 'Every authenticated caller may do everything', tenants: ['default'], subjects: ['authenticated'], servers: ['*'], kinds: ['*'], names: ['*'] };
    const origin = 'http://127.0.0.1:8080'; // no other program uses the namespace
    writeFileSync(policy, JSON.stringify({ version: 1, description: 'The policy of this test', rules: [rule] }));
    writeFileSync(config, JSON.stringify({ listen: [{ address: origin.slice(7) }], public_url: origin, auth: { providers: [{ type: 'forwarded-user', trusted_proxies: ['127.0.0.1'] }] }, policy, mcpServers: { outside: server } }));
    const gateway = start('serve');
    gateway.once('exit', () => gateway.stderr.emit('data', ''));
    while (!stderr.includes('listening') && gateway.exitCode === null) await once(gateway.stderr, 'data');
    if (gateway.exitCode !== null) throw new Error(stderr);
    const { status } = await fetch(`${origin}/oauth/connect/outside`, { headers: { 'x-forwarded-user': 'ann' } });
    gateway.kill('SIGTERM');
    await once(gateway, 'close');
    return status;
}

const status = await (how === 'hosted' ? hosted() : login());
rmSync(state, { recursive: true });
console.log(JSON.stringify({ status, stderr, connections }));
process.exit(0);
