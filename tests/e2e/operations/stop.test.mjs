// Stopping: calls in flight, the deadline, the listener, further signals, and leftover processes and files.
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { Agent, request } from 'node:http';
import { connect } from 'node:net';
import { join } from 'node:path';
import { test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';

import { startIssuer } from '../issuer.mjs';
import { peerPath, settles, startGateway, stdioServer, temporaryDirectory, until } from '../gateway.mjs';
import { initialize, post, reply, resultText, send, Session } from '../raw.mjs';

const mirror = peerPath('mirror');
const WAIT_MS = 10_000;
const DEADLINE_MS = 2_000;
const SLACK_MS = 1_000;
const call = (name, args = {}, id = 7) => ({ jsonrpc: '2.0', id, method: 'tools/call', params: { name, arguments: args } });

/** Runs `body` with a gateway that `body` stops; checks that it ends with status 0 and leaves nothing behind. */
async function stopping(config, body) {
    const gateway = await startGateway({ timeouts: { shutdown: `${DEADLINE_MS}ms` }, mcpServers: { m: { command: mirror } }, ...config });
    const directory = temporaryDirectory();
    try {
        const session = await Session.open(gateway.url);
        assert.equal((await session.request('tools/list')).error, undefined);
        await body({ gateway, session, file: join(directory.path, 'go') });
        assert.ok(await settles(gateway.exited, WAIT_MS), `it did not end\n${gateway.log()}`);
    } finally {
        directory.remove();
        await gateway.stop(); // checks the status, and that no server is left
    }
}

/** Starts a call that lasts until the file is there, and waits until it has reached the server. */
async function hold(session, file, id = 7) {
    const events = await session.postStream(call('m__wait', { file }, id));
    assert.equal(events.status, 200);
    return events;
}

async function lastMessage(events) {
    let last;
    for (let event = await events.message(); event; event = await events.message()) last = event.message;
    return last;
}

/** The code of the error with which a new connection fails; undefined if it is accepted. */
function connectionError(origin) {
    const { hostname, port } = new URL(origin);
    return new Promise(resolve => {
        const socket = connect({ host: hostname, port: Number(port) });
        socket.on('connect', () => resolve(undefined)).on('error', ({ code }) => resolve(code));
        socket.on('close', () => socket.destroy());
        socket.on('connect', () => socket.destroy());
    });
}

/** The status of the answer to a POST over the agent's connection. */
function statusOver(agent, url, headers, body) {
    return new Promise((resolve, reject) => {
        const req = request(url, { method: 'POST', headers, agent }, res => res.resume().on('end', () => resolve(res.statusCode)));
        req.on('error', reject);
        req.end(JSON.stringify(body));
    });
}

for (const signal of ['SIGTERM', 'SIGINT']) {
    test(`a call in flight is finished and answered after ${signal}`, () =>
        stopping({}, async ({ gateway, session, file }) => {
            const events = await hold(session, file);
            gateway.child.kill(signal);
            await gateway.line(/stopping/, WAIT_MS);
            writeFileSync(file, '');
            assert.equal(resultText(await lastMessage(events)), 'waited');
        }));
    test(`a call that never ends is aborted at the deadline after ${signal}`, () =>
        stopping({ mcpServers: { m: { command: mirror }, bad: stdioServer.misbehave('hang') } }, async ({ gateway, session }) => {
            const events = await session.postStream(call('bad__act'));
            const started = Date.now();
            gateway.child.kill(signal);
            const message = await lastMessage(events);
            assert.ok(message === undefined || message.error, JSON.stringify(message));
            await gateway.exited;
            const took = Date.now() - started;
            assert.ok(took < DEADLINE_MS + SLACK_MS, `stopping took ${took} ms`);
        }));
}

test('a call without a stream is answered with JSON during a stop', () =>
    stopping({ timeouts: { shutdown: '4s', stream_after: '10s' } }, async ({ gateway, session, file }) => {
        const answer = session.post(call('m__wait', { file }));
        await session.call('m__mirror'); // the server has taken the first call by now
        gateway.child.kill('SIGTERM');
        await gateway.line(/stopping/, WAIT_MS);
        writeFileSync(file, '');
        const answered = await answer;
        assert.match(answered.headers['content-type'], /^application\/json/);
        assert.equal(resultText(reply(answered)), 'waited');
    }));

test('a gateway without calls ends at once, also with an open GET stream and an idle connection', () =>
    stopping({ timeouts: { shutdown: '5s' } }, async ({ gateway, session }) => {
        const events = await session.get();
        const { hostname, port } = new URL(gateway.url);
        const idle = connect({ host: hostname, port: Number(port) });
        const closed = new Promise(resolve => idle.on('error', resolve).on('close', resolve));
        await until(() => idle.readyState === 'open', WAIT_MS, 'the connection is open');
        const started = Date.now();
        gateway.child.kill('SIGTERM');
        await gateway.exited;
        assert.ok(Date.now() - started < 2_000, `stopping took ${Date.now() - started} ms`);
        assert.equal(await lastMessage(events), undefined);
        await closed;
    }));

test('new connections are refused during a stop and open ones get 503 for a new session', () =>
    stopping({ timeouts: { shutdown: '8s' } }, async ({ gateway, session, file }) => {
        const events = await hold(session, file);
        const agent = new Agent({ keepAlive: true, maxSockets: 1 });
        assert.equal(await statusOver(agent, session.url, session.headers(post()), { jsonrpc: '2.0', id: 1, method: 'ping' }), 200);
        assert.equal(await connectionError(gateway.origin), undefined);
        gateway.child.kill('SIGTERM');
        await gateway.line(/stopping/, WAIT_MS);
        assert.equal(await connectionError(gateway.origin), 'ECONNREFUSED');
        assert.equal(await statusOver(agent, session.url, post(), initialize('2025-11-25')), 503);
        agent.destroy();
        writeFileSync(file, '');
        assert.equal(resultText(await lastMessage(events)), 'waited');
    }));

test('a call that waits for keys is answered and recorded during a stop', async () => {
    const issuer = await startIssuer('https://gateway.example/mcp');
    const folder = temporaryDirectory();
    const rule = { id: 'all', effect: 'allow', description: 'everything for every caller', tenants: ['*'], subjects: ['authenticated'], servers: ['*'], kinds: ['*'], names: ['*'] };
    writeFileSync(join(folder.path, 'policy.json'), JSON.stringify({ version: 1, description: 'Everything is allowed', rules: [rule] }));
    issuer.serve = () => {}; // it never answers
    const gateway = await startGateway({
        timeouts: { shutdown: `${DEADLINE_MS}ms` },
        auth: { providers: [{ type: 'jwt', issuer: issuer.url, audiences: ['https://gateway.example/mcp'], jwks_uri: issuer.jwksUri }] },
        policy: join(folder.path, 'policy.json'),
        mcpServers: {}
    });
    try {
        const answer = send(gateway.url, { headers: post({ authorization: `Bearer ${issuer.sign()}` }), body: initialize('2025-11-25') });
        await until(() => issuer.fetches['/jwks'], WAIT_MS, 'the keys are asked for');
        gateway.child.kill('SIGTERM');
        assert.equal((await answer).status, 503);
        assert.equal(JSON.parse((await answer).body).error.data.reason, 'shutting_down');
        assert.ok(await settles(gateway.exited, WAIT_MS), gateway.log());
        await gateway.line(/call failed .*method=initialize.*reason=shutting_down/);
    } finally {
        await gateway.stop();
        await issuer.stop();
        folder.remove();
    }
});

test('further signals during a stop are ignored', () =>
    stopping({}, async ({ gateway, session, file }) => {
        const events = await hold(session, file);
        gateway.child.kill('SIGTERM');
        await gateway.line(/stopping/, WAIT_MS);
        for (const signal of ['SIGTERM', 'SIGINT', 'SIGHUP', 'SIGTERM']) {
            gateway.child.kill(signal);
            await sleep(20);
        }
        writeFileSync(file, '');
        assert.equal(resultText(await lastMessage(events)), 'waited');
        await gateway.exited;
        assert.equal(gateway.log().match(/stopping/g).length, 1);
    }));

test('SIGHUP does not stop the gateway', () =>
    stopping({}, async ({ gateway, session }) => {
        gateway.child.kill('SIGHUP');
        await gateway.line(/SIGHUP/, WAIT_MS);
        assert.match(resultText(await session.call('m__mirror')), /tools\/call/);
        gateway.child.kill('SIGTERM');
    }));

test('servers end with the gateway, also one that ignores SIGTERM and one that is starting', () => {
    const servers = { m: { command: mirror }, deaf: stdioServer.misbehave('ignore-term'), slow: stdioServer.misbehave('hang-init') };
    return stopping({ timeouts: { shutdown: `${DEADLINE_MS}ms`, list: '1s' }, mcpServers: servers }, async ({ gateway, session }) => {
        assert.equal(resultText(await session.call('deaf__fine')), 'fine');
        await until(() => gateway.servers().length === 3, WAIT_MS, 'all of them run');
        const started = Date.now();
        gateway.child.kill('SIGTERM');
        await gateway.exited;
        assert.ok(Date.now() - started < DEADLINE_MS + SLACK_MS, `stopping took ${Date.now() - started} ms`);
        await until(() => gateway.servers().length === 0, WAIT_MS, 'the servers are gone');
    });
});

test('an answer in progress is sent in full to a slow reader', () => {
    const SIZE = 16 * 1024 * 1024;
    const servers = { m: { command: mirror }, bad: stdioServer.misbehave('huge', SIZE) };
    return stopping({ timeouts: { shutdown: '5s' }, mcpServers: servers }, async ({ gateway, session }) => {
        const body = JSON.stringify(call('bad__act'));
        const res = await new Promise((resolve, reject) => {
            const req = request(session.url, { method: 'POST', headers: session.headers(post()), agent: false }, resolve);
            req.on('error', reject);
            req.end(body);
        });
        res.pause();
        gateway.child.kill('SIGTERM');
        await gateway.line(/stopping/, WAIT_MS);
        await sleep(500); // a slow reader, but within timeouts.shutdown
        let got = 0;
        res.on('data', chunk => (got += chunk.length));
        await new Promise(resolve => res.on('close', resolve).on('error', () => {}).resume());
        assert.ok(res.complete && got > SIZE, `${got} bytes of more than ${SIZE}`);
    });
});
