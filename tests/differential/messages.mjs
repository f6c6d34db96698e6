// Random messages of the protocol, member by member: the parts that the gateway may change are made by the table, all others are data.
import { differences as row } from './differences.mjs';

export const RELATED_TASK = 'io.modelcontextprotocol/related-task';
const SCHEMES = ['file:///', 'mem:', 'db://host/', 'ui://app/', 'http://example.com/', 'https://example.com/'];

/** Makes messages of one exchange, for one lane. */
export class Messages {
    constructor(lane, json) {
        Object.assign(this, { lane, json, random: json.random });
    }

    /** The result of `make` without large values: all values except answers and arguments are bounded. */
    small(make) {
        return this.json.small(make);
    }

    object(members, reserved = []) {
        return this.json.object(members, { more: this.random.below(4), reserved });
    }

    word() {
        return Array.from({ length: 1 + this.random.below(8) }, () => this.random.pick([...'abcdefghijklmnopqrstuvwxyz0123456789'])).join('');
    }

    /** Sometimes half of a character. */
    half() {
        return this.random.chance(0.1) ? '\ud83d' : '';
    }

    uriText(schemes = SCHEMES) {
        const end = this.random.pick(['', '.txt', '?q=1&r=%20', '#x', '/%C3%A9', '/a;b']);
        return this.random.pick(schemes) + this.word() + (this.lane.policy ? '' : end); // a policy judges canonical URIs only
    }

    id() {
        const { random, json } = this;
        return random.pick([() => String(random.below(1e9)), () => '12345678901234567890', () => '-7', () => '-0', () => json.spell(`${this.word()} é"\\/😀${this.half()}`, 0.2), () => '""'])();
    }

    // ---- from servers ----

    /** `app`: the place where MCP Apps defines the resource of a tool. */
    meta(app = false) {
        const { json, lane } = this;
        const resource = () => (app ? row.uri(lane, json, this.uriText(['ui://app/', 'file:///'])) : json.spell(this.uriText()));
        return json.maybe(() => this.object([['ui', json.maybe(() => this.object([['resourceUri', resource()]]), 0.3)]]), 0.4);
    }

    /** `_meta` of a whole message, which may name the task that it belongs to. */
    messageMeta(app = false) {
        const { json } = this;
        const related = json.maybe(() => this.object([['taskId', row.taskId(json, this.word())]]), 0.1);
        return json.maybe(() => this.object([['ui', app ? json.maybe(() => this.object([['resourceUri', row.uri(this.lane, json, this.uriText())]]), 0.3) : undefined], [RELATED_TASK, related]]), 0.4);
    }

    annotations() {
        const { json, random } = this;
        return json.maybe(() => this.object([['audience', json.maybe(() => '["user"]')], ['priority', json.maybe(() => random.pick(['0.50', '1.0', '1E0']))], ['lastModified', json.maybe(() => json.string())]]), 0.3);
    }

    icons() {
        const { json } = this;
        return json.maybe(() => json.array([this.object([['src', json.spell('data:image/png;base64,AA==')], ['sizes', '["48x48"]']])]), 0.2);
    }

    described(app) {
        const { json } = this;
        return [['title', json.maybe(() => json.string())], ['description', json.maybe(() => json.string())], ['icons', this.icons()], ['annotations', this.annotations()], ['_meta', this.meta(app)]];
    }

    /** A link to the web is not changed: a caller may fetch it itself. */
    link() {
        const uri = this.uriText();
        return uri.startsWith('http') ? this.json.spell(uri) : row.uri(this.lane, this.json, uri);
    }

    contents() {
        const { json, random } = this;
        const held = random.chance(0.5) ? ['text', json.string()] : ['blob', '"AA=="'];
        return this.object([['uri', row.uri(this.lane, json, this.uriText())], ['mimeType', json.maybe(() => '"text\\/plain"')], held, ['_meta', this.meta()]]);
    }

    block() {
        const { json, random } = this;
        const rest = [['annotations', this.annotations()], ['_meta', this.meta()]];
        return random.pick([
            () => this.object([['type', '"text"'], ['text', json.string()], ...rest]),
            () => this.object([['type', json.spell('image')], ['data', '"AA=="'], ['mimeType', '"image/png"'], ...rest]),
            () => this.object([['type', '"audio"'], ['data', '"AA=="'], ['mimeType', '"audio/wav"'], ...rest]),
            () => this.object([['type', '"resource_link"'], ['uri', this.link()], ['name', json.string()], ['size', json.maybe(() => json.number())], ...this.described()]),
            () => this.object([['type', '"resource"'], ['resource', this.contents()], ...rest])
        ])();
    }

    blocks(count = this.random.below(4)) {
        return this.json.array(Array.from({ length: count }, () => this.block()));
    }

    promptMessages() {
        const { json, random } = this;
        const used = () => this.object([['type', '"tool_result"'], ['toolUseId', json.string()], ['content', this.blocks()], ['structuredContent', json.maybe(() => json.value())]]);
        const one = () => this.object([['role', random.pick(['"user"', '"assistant"'])], ['content', random.pick([() => this.block(), () => this.block(), () => this.blocks(), used, () => json.array([used(), this.block()])])()]]);
        return json.array(Array.from({ length: random.below(4) }, one));
    }

    /** The result of a request of this method; sometimes not one that the protocol defines. */
    result(method) {
        const { json } = this;
        if (this.random.chance(0.1)) return json.object([], { more: 6, depth: 4, reserved: ['_meta', 'task'] });
        const members = {
            'tools/call': () => [['content', json.maybe(() => this.blocks(), 0.9)], ['structuredContent', json.maybe(() => this.object([]))], ['isError', json.maybe(() => this.random.pick(['true', 'false']), 0.3)]],
            'prompts/get': () => [['description', json.maybe(() => json.string())], ['messages', this.promptMessages()]],
            'resources/read': () => [['contents', json.array(Array.from({ length: this.random.below(3) }, () => this.contents()))]],
            'completion/complete': () => [['completion', this.object([['values', json.array([json.string(), json.string()])], ['total', json.maybe(() => json.number())], ['hasMore', json.maybe(() => 'true')]])]]
        }[method]();
        return this.object([...members, ['_meta', this.messageMeta(method === 'tools/call')]], method === 'tools/call' ? ['task'] : []);
    }

    /** An error; `data.uri` names a resource if the code says that it is missing, or the method has a resource. */
    error(method) {
        const { json, random, lane } = this;
        const missing = random.chance(0.2), about = missing || method === 'resources/read' || method === 'completion/complete';
        const data = random.chance(0.3) ? this.object([['uri', about ? row.uri(lane, json, this.uriText()) : json.spell(this.uriText())]]) : json.maybe(() => (about ? json.array([json.value()]) : json.value()));
        return this.object([['code', missing ? '-32002' : random.pick(['-32603', '-32000', '0', '42', '-9007199254740993'])], ['message', json.string()], ['data', data]]);
    }

    /** The params of progress; those of callers are `judged`. */
    progress(token, object = members => this.object(members)) {
        const { json } = this;
        return this.small(() => object([['progressToken', token], ['progress', json.number()], ['total', json.maybe(() => json.number())], ['message', json.maybe(() => json.string())], ['_meta', json.maybe(() => object([]))]]));
    }

    log() {
        const { json, random, lane } = this;
        const level = ['level', json.spell(random.pick(['debug', 'info', 'notice', 'warning', 'error', 'critical', 'alert', 'emergency']))];
        return this.small(() => {
            const rest = [['data', json.value()], ['_meta', json.maybe(() => this.object([]))]];
            if (random.chance(0.7)) return this.object([level, ['logger', row.logger(lane, json, `log ${this.word()} é${this.half()}`)], ...rest]);
            const [brace, ...members] = this.object([level, ...rest], ['logger']);
            return [brace, row.missingLogger(lane), members];
        });
    }

    /** The params of a question; `url` is the id of an elicitation that continues in a browser. */
    question(method, { token, url }) {
        const { json, random, lane } = this;
        const meta = token || random.chance(0.3) ? this.object([['progressToken', token], [RELATED_TASK, json.maybe(() => this.object([['taskId', row.taskId(json, this.word())]]), 0.2)]]) : undefined;
        const messages = {
            'sampling/createMessage': () => [['messages', this.promptMessages()], ['maxTokens', json.number()], ['systemPrompt', json.maybe(() => json.string())], ['modelPreferences', json.maybe(() => this.object([]))], ['temperature', json.maybe(() => '0.70')], ['metadata', json.maybe(() => json.value())]],
            'elicitation/create': () =>
                url === undefined
                    ? [['message', row.elicitation(lane, json, `Who? ${this.word()}\n"é"${this.half()}`)], ['requestedSchema', this.object([['type', '"object"'], ['properties', this.object([])]])], ['mode', json.maybe(() => '"form"')]]
                    : [['message', row.elicitation(lane, json, `Where? ${this.word()}`)], ['mode', '"url"'], ['url', json.spell(this.uriText(['https://example.com/']))], ['elicitationId', json.spell(url, 0)]],
            'roots/list': () => []
        }[method]();
        return this.object([...messages, ['_meta', meta]], ['task', 'tools', 'mode', 'elicitationId']);
    }

    // ---- from callers ----

    /** An object of a request whose known members the gateway reads: no other member may be confused with one of them. */
    judged(members, reserved = []) {
        const names = [...members.map(([key]) => key), ...reserved].map(name => name.toLowerCase());
        const taken = key => names.includes(key.toLowerCase()) || key.includes('\0');
        return this.json.object(members, { more: this.random.below(4), taken });
    }

    /** The params of a request; `members` are its target. */
    params(method, members, { token, related } = {}) {
        const { json, random } = this;
        const known = { 'tools/call': ['name', 'arguments', 'task', '_meta'], 'prompts/get': ['name', 'arguments', '_meta'], 'completion/complete': ['ref', 'argument', 'context', '_meta'] }[method] ?? ['uri', 'taskId', 'cursor', '_meta'];
        const given = method === 'tools/call' || method === 'prompts/get' ? json.maybe(() => json.object([], { more: random.below(5) }), 0.9) : undefined;
        return this.small(() => {
            const task = related && this.judged([['taskId', related]]);
            const meta = token || task || random.chance(0.4) ? this.judged([['progressToken', token], [RELATED_TASK, task]]) : undefined;
            return this.judged([...members, ['arguments', given], ['_meta', meta]], known);
        });
    }

    /** The result of a caller for a question. */
    reply(method) {
        const { json, random } = this;
        const members = {
            'sampling/createMessage': () => [['role', '"assistant"'], ['model', json.string()], ['content', this.object([['type', '"text"'], ['text', json.string()]])], ['stopReason', json.maybe(() => '"endTurn"')]],
            'elicitation/create': () => [['action', random.pick(['"accept"', '"decline"', '"cancel"'])], ['content', json.maybe(() => this.object([]))]],
            'roots/list': () => [['roots', json.array([this.object([['uri', json.spell(this.uriText(['file:///']))], ['name', json.maybe(() => json.string())]])])]]
        }[method]();
        return this.object([...members, ['_meta', json.maybe(() => this.object([]))]]);
    }

    replyError() {
        const { json } = this;
        return this.object([['code', '-1'], ['message', json.string()], ['data', json.maybe(() => json.value())]]);
    }

    // ---- lists ----

    /** An item of a list: its text, and its use. */
    item(kind, number) {
        const { json, random, lane } = this;
        const name = `i${number}${random.pick(['', ' b', 'é', '(x)', '.-/', 'x'.repeat(70), '"'])}${this.word()}`;
        const uri = `${this.uriText(['file:///', 'mem:', 'ui://app/', 'http://example.com/'])}/i${number}`;
        const schema = () => this.object([['type', '"object"'], ['properties', this.object([])]]);
        const item = members => this.object([...members, ...this.described(true)]);
        return {
            tools: () => ({ method: 'tools/call', member: 'name', own: name, text: item([['name', row.name(lane, json, name)], ['inputSchema', schema()], ['outputSchema', json.maybe(schema, 0.2)]]) }),
            prompts: () => ({ method: 'prompts/get', member: 'name', own: name, text: item([['name', row.name(lane, json, name)], ['arguments', json.maybe(() => json.array([this.object([['name', json.string()]])]))]]) }),
            resources: () => ({ method: 'resources/read', member: 'uri', own: uri, text: item([['uri', row.uri(lane, json, uri)], ['name', json.string()], ['size', json.maybe(() => json.number())]]) }),
            resourceTemplates: () => ({ text: item([['uriTemplate', row.uri(lane, json, `${uri}/{id}`)], ['name', json.string()]]) })
        }[kind]();
    }
}
