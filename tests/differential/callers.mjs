// Callers that send given texts: over Streamable HTTP, HTTP+SSE and stdio.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { Agent, request } from 'node:http';
import { buffer } from 'node:stream/consumers';

import { binary, startGateway, temporaryDirectory, watch, writeConfig } from '../e2e/gateway.mjs';
import { post } from '../e2e/raw.mjs';
import { Random } from './generate.mjs';
import { framed, Frames, Inbox, readEvents, write } from './wire.mjs';

class Caller {
    constructor() {
        this.inbox = new Inbox();
        this.random = new Random(0, 0); // decides how messages are written
    }

    take(bytes) {
        this.inbox.put({ bytes, message: JSON.parse(Buffer.from(bytes, 'latin1').toString()) });
    }

    receive() {
        return this.inbox.take();
    }
}

class HttpCaller extends Caller {
    constructor() {
        super();
        this.agent = new Agent({ keepAlive: true });
    }

    async start(config, files) {
        this.gateway = await startGateway(config, [], { files });
        this.url = this.gateway.url;
    }

    open(method, url, headers, body) {
        return new Promise((resolve, reject) => {
            const length = body === undefined ? {} : { 'content-length': Buffer.byteLength(body) };
            const req = request(url, { method, headers: { ...length, ...headers }, agent: this.agent }, resolve);
            req.on('error', reject);
            req.end(body);
        });
    }

    async stop() {
        this.agent.destroy();
        await this.gateway?.stop();
    }

    /** Sends a message; if the gateway has ended, the wait for the answer fails with that reason. */
    send(text) {
        this.post(text).catch(() => {});
    }

    /** Reads events until the stream or the gateway ends. */
    follow(res, take) {
        readEvents(res, take).catch(() => {});
    }
}

class StreamableCaller extends HttpCaller {
    get headers() {
        return this.session ? { 'mcp-session-id': this.session, 'mcp-protocol-version': this.revision } : {};
    }

    async post(text) {
        const res = await this.open('POST', this.url, post(this.headers), text);
        this.session ??= res.headers['mcp-session-id'];
        if (res.headers['content-type']?.startsWith('text/event-stream')) return this.follow(res, bytes => this.take(bytes));
        const bytes = (await buffer(res)).toString('latin1');
        if (bytes) this.take(bytes);
        return undefined;
    }

    async listen() {
        this.follow(await this.open('GET', this.url, { ...this.headers, accept: 'text/event-stream' }), bytes => this.take(bytes));
    }
}

class SseCaller extends HttpCaller {
    async start(config, files) {
        await super.start(config, files);
        const res = await this.open('GET', new URL('/sse', this.gateway.origin), { accept: 'text/event-stream' });
        await new Promise(resolve => {
            this.follow(res, (bytes, name) => {
                if (name !== 'endpoint') return this.take(bytes);
                this.endpoint = new URL(bytes, this.gateway.origin);
                return resolve();
            });
        });
    }

    async post(text) {
        const res = await this.open('POST', this.endpoint, { 'content-type': 'application/json' }, text);
        const bytes = (await buffer(res)).toString('latin1');
        if (res.statusCode !== 202) this.take(bytes);
    }

    listen() {}
}

class StdioCaller extends Caller {
    async start(config) {
        this.directory = temporaryDirectory();
        const path = writeConfig(this.directory.path, config);
        this.child = spawn(binary, ['serve', '--stdio', '--config', path], { stdio: ['pipe', 'pipe', 'pipe'], env: { ...process.env, POSTERN_STATE: this.directory.path } });
        const frames = new Frames(bytes => this.take(bytes));
        this.child.stdout.on('data', chunk => frames.read(chunk));
        this.gateway = watch(this.child, 'stderr');
    }

    send(text) {
        write(this.child.stdin, framed(text, this.random), this.random);
    }

    listen() {}

    async stop() {
        this.child.stdin.end();
        const { code, signal } = await this.gateway.exited;
        this.directory.remove();
        assert.equal(signal ?? code, 0, `the gateway's exit status at the end of its input\n${this.gateway.log()}`);
    }
}

/** Callers by their transport to the gateway. */
export const callers = { http: () => new StreamableCaller(), sse: () => new SseCaller(), stdio: () => new StdioCaller() };
