// One exchange: a few random messages between a caller and a server, each compared with the message received by the other side.
import { differences as row } from './differences.mjs';
import { Json, Random } from './generate.mjs';
import { Messages, RELATED_TASK } from './messages.mjs';
import { compare, need, sent } from './text.mjs';

/** A message did not arrive as expected: the exchange and its lane end here. */
export class Differs extends Error {}

export class Exchange {
    constructor(lane, seed, number) {
        Object.assign(this, { lane, number, random: new Random(seed, number) });
        lane.server.random = lane.caller.random = new Random(seed + 1, number);
        this.server = new Messages(lane, new Json(this.random, { breaks: row.lineBreak, levels: 100, duplicates: true }));
        this.caller = new Messages(lane, new Json(this.random, { breaks: row.lineBreak }));
    }

    async run() {
        const kinds = [
            [8, () => this.request('tools/call')],
            [3, () => this.request('prompts/get')],
            [3, () => this.request('resources/read')],
            [2, () => this.request('completion/complete')],
            [2, () => this.log()],
            [1, () => this.list()],
            [1, () => this.update()],
            [1, () => this.cancel()],
            [1, () => this.burst()],
            [this.lane.batches ? 2 : 0, () => this.batch()],
            [this.lane.batches ? 0 : 1, () => this.task()],
            [1, () => this.unknown()],
            [this.lane.isolation === 'session' ? 1 : 0, () => this.rootsChanged()]
        ];
        await this.random.pick(kinds.flatMap(([weight, run]) => Array(weight).fill(run)))();
    }

    // ---- one message ----

    /** Compares a message that arrived at a side with the expected text; returns the values that the gateway chose. */
    arrived(side, what, { wire, text }, got) {
        const { lane, number } = this;
        lane.tally.compared++;
        const { found, at, expected } = got ? compare(text, side, got.bytes) : {};
        if (!found) {
            const sender = side === 'own' ? lane.caller : lane.server;
            lane.tell({ number, what, sent: wire, received: got?.bytes, at, expected, answered: sender.inbox.messages.map(({ bytes }) => bytes) });
            throw new Differs();
        }
        return { ...got, ...found };
    }

    say(members) {
        const [wire, text] = row.envelope(this.caller.json, members);
        const message = { wire: sent(wire, 'seen'), text };
        this.lane.caller.send(message.wire);
        return message;
    }

    /** Sends a message of the caller, and checks it at the server. */
    async fromCaller(what, members) {
        return this.arrived('own', what, this.say(members), await this.lane.server.receive());
    }

    /** A message of the server, to be sent. */
    message(members) {
        const [wire, text] = row.envelope(this.server.json, members);
        return { wire: sent(wire, 'own'), text };
    }

    /** Sends a message of the server with `say`, and checks it at the caller. */
    async fromServer(what, members, say = text => this.lane.server.say(text)) {
        const message = this.message(members);
        await say(message.wire);
        return this.arrived('seen', what, message, await this.lane.caller.receive());
    }

    // ---- requests of callers, and their answers ----

    /** The target of a request of the method, as members of its params. */
    about(method) {
        const { lane, caller, random } = this;
        const { json } = caller;
        const prompt = () => row.targetName(lane, json, 'prompt');
        const ref = () => (random.chance(0.5) ? [['type', '"ref/prompt"'], ['name', prompt()]] : [['type', '"ref/resource"'], ['uri', row.targetUri(lane, json, 'file:///{path}')]]);
        return {
            'tools/call': () => [['name', row.targetName(lane, json, 'tool')]],
            'prompts/get': () => [['name', prompt()]],
            'resources/read': () => [['uri', row.targetUri(lane, json, caller.uriText(['file:///', 'mem:', 'ui://app/']))]],
            'completion/complete': () => [
                ['ref', caller.judged(ref(), ['type', 'name', 'uri'])],
                ['argument', caller.judged([['name', '"path"'], ['value', json.string()]])],
                ['context', json.maybe(() => caller.judged([['arguments', json.maybe(() => json.object([['other', json.string()]]))]], ['arguments']), 0.3)]
            ]
        }[method]();
    }

    /** Sends a request of the caller; returns the values that the server needs to answer it. */
    async ask(method, members, { token, related } = {}) {
        const id = this.caller.id();
        const params = this.caller.params(method, members, { token: token && row.progressToken(token), related });
        return { ...(await this.fromCaller(method, [['id', row.id(id)], ['method', method], ['params', params]])), callerId: id };
    }

    /** The answer to it. */
    reply(asked, member, text) {
        return this.fromServer(`the ${member} of ${asked.message.method}`, [['id', row.id(asked.callerId, asked.id)], [member, text]], asked.answer);
    }

    notify(method, params) {
        return this.fromServer(method, [['method', method], ['params', params]]);
    }

    async request(method, members = this.caller.small(() => this.about(method)), related = undefined) {
        const { random, server } = this;
        const token = this.caller.json.maybe(() => this.caller.id(), 0.4);
        const asked = await this.ask(method, members, { token, related });
        if (token) for (let i = random.below(3); i > 0; i--) await this.notify('notifications/progress', server.progress(row.progressToken(token, asked.token)));
        if (random.chance(0.2)) await this.log();
        if (random.chance(0.25)) await this.question();
        if (random.chance(0.8)) await this.reply(asked, 'result', server.result(method));
        else await this.reply(asked, 'error', server.error(method));
    }

    log() {
        return this.notify('notifications/message', this.server.log());
    }

    /** Messages sent without a pause, or in one array, arrive in order. */
    async burst() {
        const { random, server, lane, caller } = this;
        const token = caller.id();
        const asked = await this.ask('tools/call', this.about('tools/call'), { token });
        const news = () => (random.chance(0.5) ? [['method', 'notifications/message'], ['params', server.log()]] : [['method', 'notifications/progress'], ['params', server.progress(row.progressToken(token, asked.token))]]);
        const messages = Array.from({ length: 2 + random.below(8) }, () => this.message(news()));
        const answer = this.message([['id', row.id(asked.callerId, asked.id)], ['result', server.result('tools/call')]]);
        const all = [...messages, answer];
        if (!lane.ordered || random.chance(0.3)) asked.answer(`[${all.map(({ wire }) => wire).join(',')}]`);
        else {
            for (const { wire } of messages) lane.server.say(wire);
            asked.answer(answer.wire);
        }
        for (const message of all) this.arrived('seen', 'messages in a row', message, await lane.caller.receive());
    }

    /** Two requests in one array: the answers are in one array as well, in any order, unless the second is so late that it is sent alone. */
    async batch() {
        const { caller, server, lane } = this;
        const requests = [1, 2].map(number => {
            const id = `"${number}"`;
            const params = caller.params('tools/call', [...this.about('tools/call'), ['which', String(number)]]);
            const [wire, text] = row.envelope(caller.json, [['id', row.id(id)], ['method', 'tools/call'], ['params', params]]);
            return { id, number, wire: sent(wire, 'seen'), text };
        });
        lane.caller.send(`[${requests.map(({ wire }) => wire).join(',')}]`);
        const answers = [];
        for (const got of [await lane.server.receive(), await lane.server.receive()]) {
            const request = requests.find(({ number }) => number === got?.message.params.which) ?? requests[0];
            const asked = this.arrived('own', 'a request in a batch', request, got);
            const answer = this.message([['id', row.id(request.id, asked.id)], ['result', server.result('tools/call')]]);
            asked.answer(answer.wire);
            answers.push({ ...answer, id: JSON.parse(request.id) });
        }
        for (let seen = 0; seen < answers.length; ) {
            const got = await lane.caller.receive();
            const several = Array.isArray(got?.message);
            const wanted = (several ? got.message : [got?.message]).map(one => answers.find(({ id }) => id === one?.id) ?? answers[0]);
            const text = wanted.map((answer, i) => [i ? ',' : '', answer.text]);
            this.arrived('seen', 'the answers of a batch', { wire: wanted.map(({ wire }) => wire).join('\n'), text: several ? ['[', text, ']'] : text }, got);
            seen += wanted.length;
        }
    }

    /** A request that the caller cancels; an answer that is too late is dropped. */
    async cancel() {
        const { caller, server } = this;
        const asked = await this.ask('tools/call', this.about('tools/call'));
        const params = caller.small(() => caller.judged([['requestId', row.id(asked.callerId, asked.id)], ['reason', caller.json.maybe(() => caller.json.string())], ['_meta', caller.json.maybe(() => caller.judged([], ['progressToken', RELATED_TASK]))]]));
        await this.fromCaller('notifications/cancelled', [['method', 'notifications/cancelled'], ['params', params]]);
        asked.answer(`{"jsonrpc":"2.0","id":${asked.id},"result":${sent(server.object([]), 'own')}}`);
        await this.log();
    }

    async rootsChanged() {
        const { caller } = this;
        const method = 'notifications/roots/list_changed';
        const params = caller.json.maybe(() => caller.small(() => caller.judged([['_meta', caller.json.maybe(() => caller.judged([], ['progressToken', RELATED_TASK]))]])));
        await this.fromCaller(method, [['method', method], ['params', params]]);
    }

    // ---- questions of servers, and their answers ----

    async question() {
        const { random, server, caller } = this;
        const method = random.pick(['sampling/createMessage', 'elicitation/create', 'roots/list']);
        const id = server.id(), token = server.json.maybe(() => server.id(), 0.3), url = random.chance(0.3) ? server.word() : undefined;
        const params = server.question(method, { token: token && row.questionToken(token), url });
        const asked = await this.fromServer(method, [['id', row.questionId(id)], ['method', method], ['params', params]]);
        if (random.chance(0.1)) return this.takeBack(id, asked);
        if (token) await this.fromCaller('progress of a question', [['method', 'notifications/progress'], ['params', caller.progress(row.questionToken(token, asked.token), members => caller.judged(members, ['progressToken', RELATED_TASK]))]]);
        const answer = random.chance(0.8) ? ['result', caller.reply(method)] : ['error', caller.replyError()];
        await this.fromCaller(`the ${answer[0]} of ${method}`, [['id', row.questionId(id, asked.id)], answer]);
        if (url && method === 'elicitation/create') await this.notify('notifications/elicitation/complete', server.small(() => server.object([['elicitationId', server.json.spell(url, 0)], ['_meta', server.messageMeta()]])));
        return undefined;
    }

    takeBack(id, asked) {
        const { server } = this;
        const { json } = server;
        return this.notify('notifications/cancelled', server.small(() => server.object([['requestId', row.questionId(id, asked.id)], ['reason', json.maybe(() => json.string())], ['_meta', server.messageMeta()]])));
    }

    // ---- lists ----

    async list() {
        const { random, server, lane } = this;
        const kind = random.pick(Object.keys(lane.lists));
        const items = Array.from({ length: random.below(8) + 1 }, (_, i) => server.item(kind, `${this.number}-${i}`));
        lane.lists[kind].offer(items, server);
        const news = `notifications/${kind === 'resourceTemplates' ? 'resources' : kind}/list_changed`;
        await this.fromServer(news, [['method', news], row.listChanged(server.json.maybe(() => server.object([])))]);
        await lane.lists[kind].check(this);
        const { method, member, own } = random.pick(items);
        if (!method) return;
        const target = member === 'name' ? row.targetName : row.targetUri;
        await this.request(method, [[member, target(lane, this.caller.json, own)]]);
    }

    // ---- subscriptions ----

    async update() {
        const { lane, server, caller } = this;
        const uri = caller.uriText(['file:///', 'mem:']);
        const target = () => [['uri', row.targetUri(lane, caller.json, uri)]];
        const asked = await this.ask('resources/subscribe', target());
        await this.reply(asked, 'result', row.subscribed(sent(server.object([]), 'own')));
        await this.notify('notifications/resources/updated', server.small(() => server.object([['uri', row.uri(lane, server.json, uri)], ['_meta', server.json.maybe(() => server.object([]))]])));
        const id = caller.id(), params = sent(caller.params('resources/unsubscribe', target()), 'seen');
        const told = await this.fromCaller('resources/unsubscribe', [['id', row.id(id)], ['method', 'resources/unsubscribe'], ['params', row.unsubscribed(uri, params)]]);
        told.answer(`{"jsonrpc":"2.0","id":${told.id},"result":{}}`);
        this.arrived('seen', 'the answer to resources/unsubscribe', { wire: params, text: `{"jsonrpc":"2.0","id":${id},"result":{}}` }, await lane.caller.receive());
    }

    // ---- tasks ----

    async task() {
        const { server, caller, random } = this;
        const own = `${server.word()}-${this.number}`;
        const state = id => [['taskId', id], ['status', '"working"'], ['ttl', random.pick(['null', '60000', '6e4'])], ['createdAt', '"2026-01-01T00:00:00Z"'], ['statusMessage', server.json.maybe(() => server.json.string())]];
        const made = await this.ask('tools/call', caller.small(() => [...this.about('tools/call'), ['task', caller.judged([['ttl', caller.json.number()]])]]));
        const task = server.object([['task', server.object(state(row.taskId(server.json, own)))]]);
        const { taskId } = random.chance(0.7) ? await this.reply(made, 'result', task) : await this.earlyStatus(made, task, state(row.taskId(server.json, own)));
        const id = row.taskId(server.json, own, taskId);
        if (random.chance(0.5)) await this.notify('notifications/tasks/status', server.small(() => server.object(state(id))));
        const got = await this.ask(random.pick(['tasks/get', 'tasks/cancel']), [['taskId', id]], { related: random.chance(0.3) ? id : undefined });
        await this.reply(got, 'result', server.object(state(id)));
        if (random.chance(0.3)) await this.request('tools/call', this.about('tools/call'), id);
        const result = await this.ask('tasks/result', [['taskId', id]]);
        const related = server.object([[RELATED_TASK, server.object([['taskId', id]])]]);
        await this.reply(result, 'result', server.object([['content', server.blocks()], ['_meta', related]], ['task']));
        await this.listTasks(server.object(state(id)));
    }

    /** The status of a task before the answer that creates it; the caller receives it after that answer, possibly on another stream. */
    async earlyStatus(made, task, state) {
        const { lane, server } = this;
        const status = this.message([['method', 'notifications/tasks/status'], ['params', server.small(() => server.object(state))]]);
        const answer = this.message([['id', row.id(made.callerId, made.id)], ['result', task]]);
        await lane.server.say(status.wire);
        made.answer(answer.wire);
        const got = [await lane.caller.receive(), await lane.caller.receive()].sort((a, b) => Boolean(a?.message.method) - Boolean(b?.message.method));
        this.arrived('seen', 'the first status of a task', status, got[1]);
        return this.arrived('seen', 'the answer that makes a task', answer, got[0]);
    }

    /** The tasks of all servers, without those of other callers. */
    async listTasks(task) {
        const { server, random } = this;
        const asked = await this.ask('tasks/list', []);
        const other = sent(server.object([['taskId', server.json.spell(`not-${server.word()}`)], ['status', '"working"']]), 'own');
        const [before, after] = random.chance(0.5) ? [`[ ${other},`, '\t]'] : ['[', ` ,${other}]`];
        await this.reply(asked, 'result', server.object([['tasks', [row.tasks(before, '['), task, row.tasks(after, ']')]]], ['nextCursor']));
    }

    // ---- notifications that the protocol does not define ----

    async unknown() {
        const { server, caller, lane } = this;
        const custom = (messages, side) => {
            const unknown = row.unknown(`notifications/${messages.word()}/${messages.word()}`);
            need(unknown);
            return sent(row.envelope(messages.json, [['method', unknown.method], ['params', messages.small(() => messages.object([]))]])[0], side);
        };
        await lane.server.say(custom(server, 'own'));
        await this.log(); // no message arrives before it
        lane.caller.send(custom(caller, 'seen'));
        await this.request('tools/call');
    }
}
