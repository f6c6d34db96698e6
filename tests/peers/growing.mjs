// A server of the TypeScript SDK that registers items while it runs: growing stdio|http|sse [quiet|streamless]
//   grow {kind, name}   registers a tool, prompt, resource or template of that name, before it answers
//   counts              answers with the number of times its tools were listed
//   hold {file}         delays later answers to tools/list until the file exists
// With `quiet` it does not declare listChanged, and announces nothing; with `streamless` it declares listChanged, but has no stream for announcements.
import { randomUUID } from 'node:crypto';
import { existsSync } from 'node:fs';
import { createServer } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';

import { McpServer, ResourceTemplate } from '@modelcontextprotocol/sdk/server/mcp.js';
import { SSEServerTransport } from '@modelcontextprotocol/sdk/server/sse.js';
import { StdioServerTransport } from '@modelcontextprotocol/sdk/server/stdio.js';
import { StreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/streamableHttp.js';
import { z } from 'zod';

const [mode, manner] = process.argv.slice(2);
const text = value => ({ content: [{ type: 'text', text: value }] });

const register = {
    tool: (server, name) => server.registerTool(name, {}, () => text(name)),
    prompt: (server, name) => server.registerPrompt(name, {}, () => ({ messages: [{ role: 'user', content: { type: 'text', text: name } }] })),
    resource: (server, name) => server.registerResource(name, `grown://${name}`, {}, ({ href }) => ({ contents: [{ uri: href, text: name }] })),
    template: (server, name) =>
        server.registerResource(name, new ResourceTemplate(`grown-${name}://{id}`, { list: undefined }), {}, ({ href }) => ({ contents: [{ uri: href, text: name }] }))
};

function growingServer() {
    const server = new McpServer({ name: 'growing', version: '1.0.0' });
    let listed = 0, held;
    for (const [kind, add] of Object.entries(register)) add(server, `first_${kind}`);
    server.registerTool('grow', { inputSchema: { kind: z.string(), name: z.string() } }, ({ kind, name }) => {
        register[kind](server, name);
        return text('grown');
    });
    server.registerTool('counts', {}, () => text(String(listed)));
    server.registerTool('hold', { inputSchema: { file: z.string() } }, ({ file }) => text((held = file)));
    if (manner === 'quiet') {
        for (const what of ['Tool', 'Prompt', 'Resource']) server[`send${what}ListChanged`] = () => {};
        server.server.registerCapabilities({ tools: { listChanged: false }, prompts: { listChanged: false }, resources: { listChanged: false } });
    }
    const list = server.server._requestHandlers.get('tools/list');
    server.server._requestHandlers.set('tools/list', async (...args) => {
        listed++;
        while (held && !existsSync(held)) await sleep(20);
        return list(...args);
    });
    return server;
}

function serve(path, handle) {
    const http = createServer((req, res) => handle(req, res));
    http.listen(0, '127.0.0.1', () => console.log(`http://127.0.0.1:${http.address().port}${path}`));
}

const sessions = new Map();
const modes = {
    stdio: () => {
        process.stdin.on('end', () => process.exit(0));
        return growingServer().connect(new StdioServerTransport());
    },
    http: () =>
        serve('/mcp', async (req, res) => {
            if (req.method === 'GET' && manner === 'streamless') return res.writeHead(405).end();
            const known = sessions.get(req.headers['mcp-session-id']);
            if (known) return known.handleRequest(req, res);
            const transport = new StreamableHTTPServerTransport({ sessionIdGenerator: randomUUID, onsessioninitialized: id => sessions.set(id, transport) });
            await growingServer().connect(transport);
            return transport.handleRequest(req, res);
        }),
    sse: () =>
        serve('/sse', async (req, res) => {
            if (req.method === 'POST') return sessions.get(new URL(req.url, 'http://localhost').searchParams.get('sessionId')).handlePostMessage(req, res);
            const transport = new SSEServerTransport('/messages', res);
            sessions.set(transport.sessionId, transport);
            return growingServer().connect(transport);
        })
};
process.on('SIGTERM', () => process.exit(0));
await modes[mode]();
