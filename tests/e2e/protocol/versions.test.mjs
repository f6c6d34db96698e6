// Requests of unsupported revisions: the error names the supported ones, and newer clients start again with one of them.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import { once } from 'node:events';
import { after, before, describe, test } from 'node:test';

import { ClientV2, HttpTransportV2, StdioTransportV2 } from '../../peers/clients.mjs';
import { binary, peerPath, startGateway, temporaryDirectory, writeConfig } from '../gateway.mjs';
import { initialize, post, send, Session } from '../raw.mjs';

const m = { command: peerPath('mirror'), args: [] };
const SUPPORTED = ['2025-11-25', '2025-06-18', '2025-03-26', '2024-11-05'];
const NEW = '2026-07-28';
const VERSION = 'io.modelcontextprotocol/protocolVersion';
const request = (method, version) => ({ jsonrpc: '2.0', id: 'x', method, params: version ? { _meta: { [VERSION]: version, 'io.modelcontextprotocol/clientCapabilities': {} } } : {} });
const header = version => ({ 'mcp-protocol-version': version });

function refused(error, requested) {
    assert.equal(error?.code, -32022, JSON.stringify(error));
    assert.deepEqual(error.data, { reason: 'unsupported_version', supported: SUPPORTED, requested });
}

describe('unsupported revisions', () => {
    let gateway, session;
    before(async () => {
        gateway = await startGateway({ mcpServers: { m } });
        session = await Session.open(gateway.url);
    });
    after(() => gateway?.stop());

    const SESSIONS = { 'without a session': () => ({}), 'with a session': () => ({ 'mcp-session-id': session.id }), 'with an unknown session': () => ({ 'mcp-session-id': 'no-such-session' }) };
    for (const [which, id] of Object.entries(SESSIONS)) {
        for (const version of [NEW, '1999-01-01', 'v"1"'])
            test(`an unsupported revision in the header ${which} is refused: ${version}`, async () => {
                const answer = await send(gateway.url, { headers: post({ ...id(), ...header(version) }), body: request('tools/list') });
                assert.equal(answer.status, 400);
                assert.equal(JSON.parse(answer.body).id, 'x');
                refused(JSON.parse(answer.body).error, version);
            });
        for (const method of ['GET', 'DELETE'])
            test(`an unsupported revision of ${method} ${which} is refused`, async () => {
                const answer = await send(gateway.url, { method, headers: { accept: 'text/event-stream', ...id(), ...header(NEW) } });
                assert.equal(answer.status, 400);
                refused(JSON.parse(answer.body).error, NEW);
            });
        for (const method of ['server/discover', 'tools/list', 'ping'])
            test(`an unsupported revision in _meta of ${method} ${which} is refused`, async () => {
                for (const more of [{}, header(NEW)]) {
                    const answer = await send(gateway.url, { headers: post({ ...id(), ...more }), body: request(method, NEW) });
                    assert.equal(answer.status, 400);
                    refused(JSON.parse(answer.body).error, NEW);
                }
            });
    }
    test('an unsupported revision does not change the session, and supported ones are accepted', async () => {
        for (const version of SUPPORTED) assert.equal((await session.post(request('ping', version), header(version))).status, 200);
        assert.equal((await send(gateway.url, { headers: post(header(NEW)), body: initialize(NEW) })).status, 200);
    });
});

test('an unsupported revision is refused over stdio, before initialize and after it', async () => {
    const directory = temporaryDirectory();
    const child = spawn(binary, ['serve', '--stdio', '--config', writeConfig(directory.path, { mcpServers: { m } })], { stdio: ['pipe', 'pipe', 'ignore'], env: { ...process.env, POSTERN_STATE: directory.path } });
    const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
    const ask = async message => {
        child.stdin.write(`${JSON.stringify(message)}\n`);
        return JSON.parse((await lines.next()).value);
    };
    try {
        refused((await ask(request('server/discover', NEW))).error, NEW);
        assert.equal((await ask(initialize('2025-11-25'))).result.protocolVersion, '2025-11-25');
        refused((await ask(request('tools/list', NEW))).error, NEW);
        assert.ok((await ask(request('ping'))).result);
    } finally {
        child.stdin.end();
        await once(child, 'exit');
        directory.remove();
    }
});

describe('clients of both eras', () => {
    const connects = async transport => {
        const client = new ClientV2({ name: 'both', version: '1.0.0' }, { versionNegotiation: { mode: 'auto' } });
        await client.connect(transport);
        try {
            assert.ok((await client.listTools()).tools.some(({ name }) => name === 'm__mirror'));
        } finally {
            await client.close();
        }
    };
    test('a client of both eras connects over Streamable HTTP', async () => {
        const gateway = await startGateway({ log: { level: 'debug' }, mcpServers: { m } });
        try {
            await connects(new HttpTransportV2(new URL(gateway.url)));
            await gateway.line(/server\/discover.*reason=unsupported_version/, 5_000);
        } finally {
            await gateway.stop();
        }
    });
    test('a client of both eras connects over stdio', async () => {
        const directory = temporaryDirectory();
        const path = writeConfig(directory.path, { mcpServers: { m } });
        await connects(new StdioTransportV2({ command: binary, args: ['serve', '--stdio', '--config', path], env: process.env, stderr: 'ignore' }));
        directory.remove();
    });
});
