// Real SDK clients in front of the gateway, behind one small interface for every SDK and transport.
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';

import { ClientV1, ClientV2, HttpTransportV1, HttpTransportV2, schemas, SseTransportV1, StdioTransportV1, StdioTransportV2 } from '../peers/clients.mjs';
import { binary, survivors, temporaryDirectory, writeConfig } from './gateway.mjs';

const WAIT_MS = 15_000;

/** Ways to reach a gateway that listens; each returns a transport for its endpoint. */
export const overHttp = {
    'SDK 1 over Streamable HTTP': ({ url }) => [ClientV1, new HttpTransportV1(new URL(url))],
    'SDK 1 over HTTP+SSE at /sse': ({ origin }) => [ClientV1, new SseTransportV1(new URL('/sse', origin))],
    'SDK 1 over HTTP+SSE at /mcp': ({ url }) => [ClientV1, new SseTransportV1(new URL(url))],
    'SDK 2 over Streamable HTTP': ({ url }) => [ClientV2, new HttpTransportV2(new URL(url))]
};

/** Ways to run a separate gateway; each returns a transport for a configuration file. */
export const overStdio = {
    'SDK 1 over stdio': path => [ClientV1, new StdioTransportV1(gatewayOnStdio(path))],
    'SDK 2 over stdio': path => [ClientV2, new StdioTransportV2(gatewayOnStdio(path))]
};

const gatewayOnStdio = path => ({ command: binary, args: ['serve', '--stdio', '--config', path], env: process.env, stderr: 'ignore' });

/** Connects to a running gateway. */
export const connect = (gateway, how = 'SDK 1 over Streamable HTTP', handlers = {}) => Peer.open(overHttp[how](gateway), handlers);

/** Starts a gateway on stdio and connects to it; closing the peer stops it and checks that no process remains. */
export async function connectStdio(config, how = 'SDK 1 over stdio', handlers = {}) {
    const mark = randomUUID();
    const directory = temporaryDirectory();
    const peer = await Peer.open(overStdio[how](writeConfig(directory.path, config, mark)), handlers);
    const close = peer.close;
    peer.close = async () => {
        await close.call(peer);
        directory.remove();
        assert.deepEqual(await survivors(mark), [], 'processes that outlived the gateway');
    };
    return peer;
}

/** Connects to a server directly, without the gateway. */
export const connectServer = ({ command, args, env }, handlers = {}) =>
    Peer.open([ClientV1, new StdioTransportV1({ command, args, env: { ...process.env, ...env }, stderr: 'ignore' })], handlers);

/** The methods of requests to a client, with their capability and their schema in SDK 1. */
const ASKABLE = {
    sampling: ['sampling/createMessage', schemas.CreateMessageRequestSchema, {}],
    elicitation: ['elicitation/create', schemas.ElicitRequestSchema, { form: {} }],
    roots: ['roots/list', schemas.ListRootsRequestSchema, { listChanged: true }]
};

class Peer {
    /** `handlers` has a function for each of sampling, elicitation and roots that the client declares. */
    static async open([Client, transport], handlers) {
        const peer = new Peer();
        const capabilities = Object.fromEntries(Object.keys(handlers).map(name => [name, ASKABLE[name][2]]));
        peer.client = new Client({ name: 'postern-e2e', version: '1.0.0' }, { capabilities });
        peer.transport = transport;
        peer.isV1 = Client === ClientV1;
        peer.notifications = [];
        peer.waiting = new Set();
        for (const [name, handler] of Object.entries(handlers)) {
            const [method, schema] = ASKABLE[name];
            peer.client.setRequestHandler(peer.isV1 ? schema : method, ({ params }) => handler(params));
        }
        peer.client.fallbackNotificationHandler = async notification => {
            peer.notifications.push(notification);
            for (const check of peer.waiting) check();
        };
        await peer.client.connect(transport, { timeout: WAIT_MS });
        return peer;
    }

    close() {
        return this.client.close();
    }

    call(name, args = {}, options = {}) {
        const params = { name, arguments: args };
        const settings = { timeout: WAIT_MS, ...options };
        return this.isV1 ? this.client.callTool(params, undefined, settings) : this.client.callTool(params, settings);
    }

    /** The text of a tool's answer, which must not be an error. */
    async text(name, args, options) {
        const result = await this.call(name, args, options);
        const text = result.content.map(block => block.text ?? '').join('\n');
        assert.ok(!result.isError, `${name} failed: ${text}`);
        return text;
    }

    async list(method, member) {
        const all = [];
        for (let cursor; ; ) {
            const page = await this.client[method](cursor === undefined ? {} : { cursor });
            all.push(...page[member]);
            cursor = page.nextCursor;
            if (cursor === undefined) return all;
        }
    }

    tools = () => this.list('listTools', 'tools');
    prompts = () => this.list('listPrompts', 'prompts');
    resources = () => this.list('listResources', 'resources');
    templates = () => this.list('listResourceTemplates', 'resourceTemplates');
    read = uri => this.client.readResource({ uri });
    prompt = (name, args) => this.client.getPrompt({ name, arguments: args });
    complete = params => this.client.complete(params);

    /** The first notification of this method that matches, including those already received. */
    notified(method, fits = () => true) {
        const find = () => this.notifications.find(({ method: has, params }) => has === method && fits(params ?? {}));
        return new Promise((resolve, reject) => {
            const check = () => {
                const found = find();
                if (!found) return;
                clearTimeout(timer);
                this.waiting.delete(check);
                resolve(found);
            };
            const timer = setTimeout(() => {
                this.waiting.delete(check);
                reject(new Error(`no ${method} within ${WAIT_MS} ms; seen: ${JSON.stringify(this.notifications)}`));
            }, WAIT_MS);
            this.waiting.add(check);
            check();
        });
    }
}
