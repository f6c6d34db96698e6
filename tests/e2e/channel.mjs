// A session over any connection that node can make: TLS, a unix socket, or an agent that the test provides.
import assert from 'node:assert/strict';
import { request as plain } from 'node:http';
import { request as secure } from 'node:https';
import { text } from 'node:stream/consumers';

import { initialize, post, reply } from './raw.mjs';

const WAIT_MS = 20_000;

/** The arguments of a call of the mirror's tool `reply` that is answered with this many bytes of text. */
export const big = bytes => ({ raw: JSON.stringify({ content: [{ type: 'text', text: 'x'.repeat(bytes) }] }) });

export const callOf = (name, args = {}, id = 7) => ({ jsonrpc: '2.0', id, method: 'tools/call', params: { name, arguments: args } });

export class Channel {
    /** `options` are those of node's request(): `ca`, `cert`, `socketPath`, `agent`, …; `headers` go with every request. */
    constructor(url, options = {}, headers = {}) {
        this.url = url;
        this.options = { agent: false, ...options };
        this.session = headers;
        this.nextId = 1;
    }

    /** Performs the handshake of a new session. */
    static async open(url, options, headers) {
        const channel = new Channel(url, options, headers);
        const answer = await channel.send(initialize('2025-11-25'));
        assert.equal(answer.status, 200, answer.body);
        channel.session = { ...headers, 'mcp-session-id': answer.headers['mcp-session-id'], 'mcp-protocol-version': '2025-11-25' };
        const { status } = await channel.send({ jsonrpc: '2.0', method: 'notifications/initialized' });
        assert.equal(status, 202);
        return channel;
    }

    /** Resolves with the answer as soon as its headers have arrived; the body is not read. */
    begin(body, { method = 'POST', headers = {} } = {}) {
        const bytes = body === undefined ? undefined : JSON.stringify(body);
        const kind = method === 'POST' ? post() : { accept: 'text/event-stream' };
        const length = bytes === undefined ? {} : { 'content-length': Buffer.byteLength(bytes) };
        const request = this.url.startsWith('https:') ? secure : plain;
        return new Promise((resolve, reject) => {
            const req = request(this.url, { ...this.options, method, headers: { ...kind, ...length, ...this.session, ...headers } }, resolve);
            req.setTimeout(WAIT_MS, () => req.destroy(new Error(`no answer to ${method} within ${WAIT_MS} ms`)));
            req.on('error', reject);
            req.end(bytes);
        });
    }

    async send(body, more) {
        const res = await this.begin(body, more);
        const { socket } = res;
        return { status: res.statusCode, headers: res.headers, body: await text(res), socket };
    }

    /** The JSON-RPC response of a request, and the socket it came over. */
    async request(method, params) {
        const answer = await this.send({ jsonrpc: '2.0', id: this.nextId++, method, params });
        assert.equal(answer.status, 200, answer.body);
        return { ...reply(answer), socket: answer.socket };
    }

    /** The text of a tool's answer. */
    async call(name, args = {}) {
        const { result, error } = await this.request('tools/call', { name, arguments: args });
        assert.ok(result, JSON.stringify(error));
        return result.content[0].text;
    }
}

/** Tests of a gateway with the mirror behind it that pass over every transport: an array of [name, function(gateway, options)]. */
export const everyWay = [
    ['a session initializes, lists, calls and is deleted', async (url, options) => {
        const channel = await Channel.open(url, options);
        assert.ok((await channel.request('tools/list')).result.tools.some(({ name }) => name === 'm__reply'));
        assert.equal(await channel.call('m__reply', big(3)), 'xxx');
        assert.equal((await channel.send(undefined, { method: 'DELETE' })).status, 200);
        assert.equal((await channel.send(callOf('m__mirror'))).status, 404);
    }],
    ['several answers and bodies of 5 MB pass at once', async (url, options) => {
        const channel = await Channel.open(url, options);
        const size = 5 << 20;
        const texts = await Promise.all(Array.from({ length: 4 }, () => channel.call('m__reply', big(size))));
        for (const answer of texts) assert.ok(answer === 'x'.repeat(size));
    }],
    ['an answer of 5 MB reaches a caller that pauses', async (url, options) => {
        const channel = await Channel.open(url, options);
        const res = await channel.begin(callOf('m__reply', big(5 << 20)));
        res.pause();
        await new Promise(resolve => setTimeout(resolve, 500));
        assert.equal(reply({ headers: res.headers, body: await text(res) }).result.content[0].text.length, 5 << 20);
    }],
    ['40 connections each have a session', async (url, options) => {
        await Promise.all(Array.from({ length: 40 }, async (_, i) => {
            const channel = await Channel.open(url, options);
            for (let k = 0; k < 3; k++) assert.equal(await channel.call('m__reply', big(i + k)), 'x'.repeat(i + k));
        }));
    }]
];
