// A lane: one caller, one gateway and one server, each with its own transport; it runs exchanges in sequence.
import { setTimeout as sleep } from 'node:timers/promises';

import { callers } from './callers.mjs';
import { differences as row, quoted, SERVER } from './differences.mjs';
import { Json, Random } from './generate.mjs';
import { Messages } from './messages.mjs';
import { servers } from './servers.mjs';
import { compare, sent } from './text.mjs';

const PAGE = 4;
const METHODS = { tools: 'tools/list', prompts: 'prompts/list', resources: 'resources/list', resourceTemplates: 'resources/templates/list' };
const BASE = {
    tools: ['name', 'tool', '"inputSchema":{"type":"object"}'],
    prompts: ['name', 'prompt', '"arguments":[{"name":"path"}]'],
    resources: ['uri', 'file:///base', '"name":"base"'],
    resourceTemplates: ['uriTemplate', 'file:///{path}', '"name":"any"']
};
const CAPABILITIES = { tools: { listChanged: true }, prompts: { listChanged: true }, resources: { subscribe: true, listChanged: true }, logging: {}, completions: {}, tasks: { list: {}, cancel: {}, requests: { tools: { call: {} } } } };
const CALLER = { roots: { listChanged: true }, sampling: { tools: {}, context: {} }, elicitation: { form: {}, url: {} } };

const rule = (id, effect, more) => ({ id, effect, description: `the rule ${id} of the differential test`, tenants: ['*'], subjects: ['anonymous'], servers: ['*'], ...more });

/** Allows everything, so that every item and every call is decided; its condition is for a tool that does not exist. */
const POLICY = {
    version: 1,
    description: 'The policy of the differential test',
    rules: [
        rule('all', 'allow', { acknowledge: 'open', kinds: ['tool', 'prompt', 'resource', 'resource_template'], names: ['*'] }),
        rule('other', 'deny', { kinds: ['tool'], names: ['other'], when: { '/kind': { eq: 'x' } } })
    ]
};

/** One list of the server: its pages, and the items expected by callers. */
class List {
    constructor(lane, kind) {
        Object.assign(this, { lane, kind });
        const [key, value, rest] = BASE[kind];
        const plain = new Json(new Random(0, 0));
        plain.spell = quoted;
        this.base = { text: [`{"${key}":`, row[key === 'name' ? 'name' : 'uri'](lane, plain, value), `,${rest}}`] };
        this.offer([], new Messages(lane, plain));
    }

    /** Replaces the items, and distributes them on pages with cursors of the server. */
    offer(items, messages) {
        const { json, random } = messages;
        this.items = [this.base, ...items];
        this.pages = [];
        for (let at = 0; at < this.items.length; ) {
            const size = 1 + random.below(5);
            const page = this.items.slice(at, at + size);
            at += size;
            const cursor = at < this.items.length ? json.spell(random.pick(['', 'next', 'é"']) + at, 0.2) : undefined;
            const members = [[this.kind, json.array(page.map(({ text }) => text))], ['nextCursor', cursor]];
            this.pages.push({ text: sent(messages.small(() => messages.object(members)), 'own'), cursor });
        }
    }

    /** The answer to the gateway's request for a page; a cursor must be unchanged. */
    page(message, bytes) {
        const cursor = message.params?.cursor;
        const before = cursor === undefined ? undefined : this.pages.find(page => page.cursor && JSON.parse(page.cursor) === cursor);
        const text = ['{"jsonrpc":"2.0","id":', /\d+/, `,"method":"${METHODS[this.kind]}"`, before ? `,"params":{"cursor":${before.cursor}}` : '', '}'];
        const { found, at, expected } = compare(text, 'own', bytes);
        if (!found) this.lane.tell({ what: `the request for a page of ${this.kind}`, sent: before?.cursor ?? '', received: bytes, at, expected });
        return this.pages[before ? this.pages.indexOf(before) + 1 : 0].text;
    }

    /** Lists all pages of the gateway and compares them. */
    async check(exchange) {
        const { lane, kind, items } = this;
        const all = items.map(({ text }) => sent(text, 'own')).join('\n');
        let cursor;
        for (let at = 0; at < items.length; at += PAGE) {
            const id = exchange.caller.id();
            exchange.say([['id', id], ['method', METHODS[kind]], ['params', exchange.caller.params(METHODS[kind], [['cursor', cursor]])]]);
            const page = items.slice(at, at + PAGE).map(({ text }, i) => [i ? ',' : '', text]);
            const next = at + PAGE < items.length ? [',"nextCursor":', row.cursor()] : '';
            const text = [`{"jsonrpc":"2.0","id":`, row.id(id), ',"result":', row.list('', `{"${kind}":[`), page, ']', next, '}}'];
            ({ cursor } = exchange.arrived('seen', `a page of ${kind}`, { wire: all, text }, await lane.caller.receive()));
        }
    }
}

export class Lane {
    /** `tell` reports a difference. */
    constructor({ server, caller, prefix, isolation, revision = '2025-11-25', policy = false }, tally, tell) {
        Object.assign(this, { prefix, isolation, revision, policy, tally });
        this.ordered = server !== 'json'; // that server sends answers and notifications on two connections
        this.batches = revision === '2025-03-26';
        this.name = `${caller} caller, ${server} server, ${prefix ? 'with' : 'without'} prefix, isolation ${isolation}, ${revision}${policy ? ', with a policy' : ''}`;
        this.tell = difference => tell({ lane: this.name, ...difference });
        this.lists = Object.fromEntries(Object.keys(METHODS).map(kind => [kind, new List(this, kind)]));
        this.server = servers[server]((message, bytes) => this.habit(message, bytes));
        this.caller = callers[caller]();
    }

    /** The automatic answer of the server: its text, or '' for no answer; undefined for messages that an exchange answers. */
    habit(message, bytes) {
        const { id, method, params } = message;
        const kind = Object.keys(METHODS).find(one => METHODS[one] === method);
        const result = method === 'initialize' ? JSON.stringify({ protocolVersion: params.protocolVersion, capabilities: CAPABILITIES, serverInfo: { name: 'differential', version: '1' } })
            : method === 'ping' || method === 'logging/setLevel' ? '{}'
                : kind ? this.lists[kind].page(message, bytes) : undefined;
        if (result) return `{"jsonrpc":"2.0","id":${JSON.stringify(id)},"result":${result}}`;
        return method === 'notifications/initialized' ? '' : undefined;
    }

    async start() {
        const entry = await this.server.start();
        const config = { prefix: this.prefix, limits: { page_size: PAGE }, mcpServers: { [SERVER]: { ...entry, isolation: this.isolation } } };
        this.caller.revision = this.revision;
        await this.caller.start(this.policy ? { ...config, auth: { providers: [{ type: 'none' }] }, policy: 'policy.json' } : config, { 'policy.json': POLICY });
        const params = { protocolVersion: this.revision, capabilities: CALLER, clientInfo: { name: 'differential', version: '1' } };
        await this.say({ id: 1, method: 'initialize', params });
        this.caller.send('{"jsonrpc":"2.0","method":"notifications/initialized"}');
        await this.caller.listen();
        for (const method of Object.values(METHODS)) await this.say({ id: 2, method });
        await this.server.opened; // messages without a request need the standalone stream
    }

    async say(message) {
        this.caller.send(JSON.stringify({ jsonrpc: '2.0', ...message }));
        const got = await this.caller.receive();
        if (!got?.message.result) throw new Error(`${this.name}: ${message.method} got ${got?.bytes}`);
    }

    async stop() {
        await this.caller.stop();
        this.server.stop();
        await sleep(0);
    }
}
