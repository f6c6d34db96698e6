// MCP over plain HTTP without an SDK: the tests see every header and status.
import assert from 'node:assert/strict';
import { request } from 'node:http';
import { text } from 'node:stream/consumers';
import { setTimeout as sleep } from 'node:timers/promises';

export const ACCEPT_BOTH = 'application/json, text/event-stream';
const WAIT_MS = 60_000;

/** Sends one request and returns {status, headers, body}; `body` in the options is sent unchanged, objects as JSON. */
export async function send(url, { method = 'POST', headers = {}, body } = {}) {
    const res = await open(url, method, headers, body);
    return { status: res.statusCode, headers: res.headers, body: await text(res) };
}

/** Sends one request and returns {status, headers, next(), message(), notification(), drop()} for the event stream of the answer. */
export async function stream(url, { method = 'GET', headers = {}, body } = {}) {
    const res = await open(url, method, headers, body);
    const events = parse(res);
    const next = async () => {
        const { value, done } = await within(events.next(), 'an event');
        return done ? undefined : value;
    };
    /** The next event that carries a JSON-RPC message, parsed; undefined at the end of the stream. */
    const message = async () => {
        for (;;) {
            const event = await next();
            if (event === undefined) return undefined;
            if (event.data) return { ...event, message: JSON.parse(event.data) };
        }
    };
    /** The next notification of a method; others are skipped. */
    const notification = async wanted => {
        for (;;) {
            const event = await message();
            assert.ok(event, `the stream ended before ${wanted}`);
            if (event.message.method === wanted) return event;
        }
    };
    return { status: res.statusCode, headers: res.headers, next, message, notification, drop: () => res.destroy() };
}

/** A legacy session: `open` performs the handshake, later requests carry its headers. */
export class Session {
    static async open(url, { version = '2025-11-25', capabilities = {} } = {}) {
        const answer = await send(url, { headers: post(), body: initialize(version, capabilities) });
        assert.equal(answer.status, 200, answer.body);
        const session = new Session();
        session.url = url;
        session.id = answer.headers['mcp-session-id'];
        session.initialized = reply(answer);
        session.version = session.initialized.result.protocolVersion;
        session.nextId = 100;
        const { status } = await session.post({ jsonrpc: '2.0', method: 'notifications/initialized' });
        assert.equal(status, 202);
        return session;
    }

    headers(more = {}) {
        const version = this.version >= '2025-06-18' ? { 'mcp-protocol-version': this.version } : {};
        return { 'mcp-session-id': this.id, ...version, ...more };
    }

    post(body, more) {
        return send(this.url, { headers: this.headers(post(more)), body });
    }

    /** Posts a request and returns the JSON-RPC response, from a JSON body or the end of a stream. */
    async request(method, params) {
        const body = { jsonrpc: '2.0', id: this.nextId++, method, params };
        const answer = await this.post(body);
        assert.equal(answer.status, 200, answer.body);
        const response = reply(answer);
        assert.equal(response.id, body.id);
        return response;
    }

    async call(name, args = {}) {
        return this.request('tools/call', { name, arguments: args });
    }

    /** Posts a request and reads its answer as an event stream. */
    postStream(body, more) {
        return stream(this.url, { method: 'POST', headers: this.headers(post(more)), body });
    }

    /** Opens the standalone stream. One that was dropped may still count until the gateway has noticed: then it answers 409. */
    async get(more) {
        for (;;) {
            const events = await stream(this.url, { headers: this.headers({ accept: 'text/event-stream', ...more }) });
            const drop = () => {
                this.dropped = true;
                events.drop();
            };
            if (events.status !== 409 || !this.dropped) return { ...events, drop };
            events.drop();
            await sleep(10);
        }
    }

    delete() {
        return send(this.url, { method: 'DELETE', headers: this.headers() });
    }
}

export const post = more => ({ 'content-type': 'application/json', accept: ACCEPT_BOTH, ...more });

export const initialize = (version, capabilities = {}, id = 1) => ({
    jsonrpc: '2.0',
    id,
    method: 'initialize',
    params: { protocolVersion: version, capabilities, clientInfo: { name: 'raw', version: '1.0.0' } }
});

/** The text of the first content block of a tools/call response. */
export function resultText(response) {
    assert.ok(response.result, JSON.stringify(response).slice(0, 500));
    return response.result.content[0].text;
}

/** The JSON-RPC response in an HTTP answer, be it JSON or the last message of an event stream. */
export function reply({ headers, body }) {
    if (headers['content-type'].startsWith('application/json')) return JSON.parse(body);
    const messages = body.split(/\r?\n\r?\n/).flatMap(block => {
        const data = block.split(/\r?\n/).filter(line => line.startsWith('data:'));
        const joined = data.map(line => line.slice(5).replace(/^ /, '')).join('\n');
        return joined ? [JSON.parse(joined)] : [];
    });
    return messages.at(-1);
}

function open(url, method, headers, body) {
    const bytes = body === undefined || typeof body === 'string' || Buffer.isBuffer(body) ? body : JSON.stringify(body);
    return within(
        new Promise((resolve, reject) => {
            const length = bytes === undefined ? {} : { 'content-length': Buffer.byteLength(bytes) };
            const req = request(url, { method, headers: { ...length, ...headers }, agent: false }, resolve);
            req.on('error', reject);
            req.end(bytes);
        }),
        `the answer to ${method}`
    );
}

async function* parse(res) {
    let buffer = '';
    res.setEncoding('utf8');
    try {
        for await (const chunk of res) {
            buffer += chunk;
            let end;
            while ((end = /\r?\n\r?\n/.exec(buffer))) {
                const event = fields(buffer.slice(0, end.index));
                buffer = buffer.slice(end.index + end[0].length);
                if (event) yield event;
            }
        }
    } catch (error) {
        if (error.code !== 'ECONNRESET' && !res.destroyed) throw error;
    }
}

/** The fields of one event block; undefined for a block of comments. */
function fields(block) {
    const event = {};
    for (const line of block.split(/\r?\n/)) {
        const [, name, value] = /^([^:]*):? ?(.*)$/.exec(line);
        if (name === '') continue;
        event[name] = name === 'data' && event.data !== undefined ? `${event.data}\n${value}` : value;
    }
    return Object.keys(event).length > 0 ? event : undefined;
}

function within(promise, what) {
    let timer;
    const late = new Promise((_, reject) => {
        timer = setTimeout(() => reject(new Error(`timed out waiting for ${what}`)), WAIT_MS);
    });
    return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}
