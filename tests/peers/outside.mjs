// An MCP server at a public address, and what it should not be able to reach through us: this host, and a private network.
//
// usage: outside.mjs POSTERN TARGET [BLOCK]     in a network namespace where 203.0.113.7 and 10.1.2.3 are ours
//
// Logs in to the server with the program POSTERN; the server's challenge names metadata at TARGET, an address. BLOCK is one that the
// configuration allows. Prints {status, stderr, connections}: how often somebody came to TARGET.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { createServer as createListener } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

const [postern, target, block] = process.argv.slice(2);
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
writeFileSync(config, JSON.stringify({ mcpServers: { outside: { url, auth: block ? { allow_addresses: [block] } : {} } } }));
const child = spawn(postern, ['login', 'outside', '--headless', '--config', config], { env: { PATH: process.env.PATH, HOME: state, POSTERN_STATE: state } });
let stderr = '';
child.stderr.on('data', chunk => (stderr += chunk));
const [status] = await once(child, 'close');
rmSync(state, { recursive: true });
console.log(JSON.stringify({ status, stderr, connections }));
process.exit(0);
