// Notifications arrive unchanged in both directions, except for ids that differ between the two sides, which are translated.
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';

import { peerPath, startGateway } from '../gateway.mjs';
import { initialize, post, resultText, send, Session, stream } from '../raw.mjs';

const teller = peerPath('teller');
const CAPABILITIES = JSON.stringify({ tools: {}, resources: { subscribe: true }, logging: {}, tasks: { list: {}, cancel: {}, requests: { tools: { call: {} } } } });
const RELATED = 'io.modelcontextprotocol/related-task';
/** Members that no method has, in a spelling that a parser and a writer would not reproduce. */
const MORE = String.raw`"_meta":{"vendor.example/x":1.00,"\u0041":[1E5]},"later":{"n":-0 }`;

const notification = (method, params) => `{"jsonrpc":"2.0","method":"notifications/${method}","params":${params}}`;
const question = (id, method, params) => `{"jsonrpc":"2.0","id":"${id}","method":"${method}","params":${params}}`;
const task = id => `{"task":{"taskId":"${id}","status":"working","createdAt":"2026-01-01T00:00:00Z","lastUpdatedAt":"2026-01-01T00:00:00Z","ttl":null}}`;

let gateway;
before(async () => {
    const server = { command: teller, args: [CAPABILITIES] };
    const timeouts = { stream_after: '5m' }; // answers are JSON, even on a busy machine
    gateway = await startGateway({ timeouts, mcpServers: { t: server, own: { ...server, isolation: 'session' } } });
});
after(() => gateway?.stop());

const open = () => Session.open(gateway.url, { capabilities: { sampling: {}, elicitation: { form: {}, url: {} }, roots: { listChanged: true } } });
let nextId = 1000;
const request = (method, params, id = nextId++) => ({ jsonrpc: '2.0', id, method, params });
const calling = (session, name, args, more) => session.postStream(request('tools/call', { name, arguments: args, ...more }));
/** The first message received by the server that contains this text. */
const received = async (session, about, server = 't') => resultText(await session.call(`${server}__received`, { about }));
const create = async (session, id, more = {}) => (await session.request('tools/call', { name: 't__say', arguments: { raw: task(id) }, task: {}, ...more })).result.task.taskId;

describe('notifications of callers', () => {
    let session;
    before(async () => (session = await open()));

    for (const [name, rest] of Object.entries({ 'its reason and all other members': String.raw`"reason":"no \u0041 longer",${MORE}`, nothing: '' }))
        test(`a cancellation reaches its server with ${name}`, async () => {
            const events = await calling(session, 't__hang', { key: name, raws: [notification('progress', '{"progressToken":@token,"progress":1}')] }, { _meta: { progressToken: 'p' } });
            await events.message(); // so the server has the call
            const params = id => `{${rest}${rest && ','}"requestId":${id}}`;
            await session.post(notification('cancelled', params(nextId - 1)));
            const seen = await received(session, 'notifications/cancelled');
            const [, id] = /"requestId":(\d+)/.exec(seen);
            assert.equal(seen, notification('cancelled', params(id)));
            assert.equal(await events.message(), undefined);
        });
    test('a cancellation by the gateway has its own reason', async () => {
        const gone = await open();
        const events = await calling(gone, 't__hang', { key: 'gone', raws: [notification('progress', '{"progressToken":@token,"progress":1}')] }, { _meta: { progressToken: 'p' } });
        await events.message();
        await gone.delete();
        assert.match(await received(session, 'notifications/cancelled'), /"params":\{"requestId":\d+,"reason":"The session has ended"\}\}$/);
    });
    test('progress of the answer to a question reaches the server', async () => {
        const events = await calling(session, 't__hang', { key: 'q', raws: [question('q', 'sampling/createMessage', '{"messages":[],"maxTokens":1,"_meta":{"progressToken":"theirs"}}')] });
        const { message } = await events.message();
        const params = token => String.raw`{"message":"\u0041","progressToken":${token},"progress":0.50,"total":1E1,${MORE}}`;
        await session.post(notification('progress', params(message.params._meta.progressToken)));
        assert.equal(await received(session, 'notifications/progress'), notification('progress', params('"theirs"')));
        await session.post({ jsonrpc: '2.0', id: message.id, result: {} });
        await session.call('t__answer', { key: 'q', raw: '{}' });
    });
    test('a notification about an unknown question is dropped', async () => {
        for (const [method, params] of [['progress', '{"progressToken":"none-asked","progress":1}'], ['cancelled', '{"requestId":"none-asked"}'], ['tasks/status', '{"taskId":"none-asked","status":"working"}']])
            assert.equal((await session.post(notification(method, params))).status, 202);
        const events = await calling(session, 't__hang', { key: 'mark', raws: [notification('progress', '{"progressToken":@token,"progress":1}')] }, { _meta: { progressToken: 'p' } });
        await events.message(); // so the server has the call
        await session.post(notification('cancelled', `{"requestId":${nextId - 1},"reason":"after none-asked"}`));
        assert.match(await received(session, 'none-asked'), /"reason":"after none-asked"/);
    });
    test('a change of the roots reaches the server', async () => {
        await session.call('own__say');
        await session.post(notification('roots/list_changed', `{${MORE}}`));
        assert.equal(await received(session, 'roots/list_changed', 'own'), notification('roots/list_changed', `{${MORE}}`));
    });
});

describe('notifications of servers', () => {
    let session;
    before(async () => (session = await open()));

    /** Lets the server send messages during a call and returns the messages that arrive on the stream of the call. */
    async function said(raws, count = raws.length, more = {}) {
        const events = await calling(session, 't__say', { raws }, more);
        const texts = [];
        for (let i = 0; i < count; i++) texts.push((await events.message()).data);
        return texts;
    }

    test('a cancelled question is cancelled at its caller with its reason and all other members', async () => {
        const params = id => String.raw`{"reason":"no \u0041 longer",${MORE},"requestId":${id}}`;
        const [asked, cancelled] = await said([question('q1', 'sampling/createMessage', '{"messages":[],"maxTokens":1}'), notification('cancelled', params('"q1"'))]);
        assert.equal(cancelled, notification('cancelled', params(JSON.parse(asked).id)));
    });
    for (const token of ['"t"', '7', JSON.stringify('x'.repeat(900))])
        test(`progress reaches the token ${token.slice(0, 10)}`, async () => {
            const params = mine => String.raw`{"message":"\u0041","progressToken":${mine},"progress":0.50,"total":1E1,${MORE}}`;
            assert.deepEqual(await said([notification('progress', params('@token'))], 1, { _meta: { progressToken: JSON.parse(token) } }), [notification('progress', params(token))]);
        });
    test('a log message reaches the caller', async () => {
        const params = logger => String.raw`{"level":"info","data":{"n":1.00},"logger":"${logger}",${MORE}}`;
        assert.deepEqual(await said([notification('message', params('l'))]), [notification('message', params('t/l'))]);
    });
    test('an update of a resource reaches the caller', async () => {
        const events = await session.get();
        assert.ok((await session.request('resources/subscribe', { uri: 'postern://t/x:///one' })).result);
        const params = uri => `{${MORE},"uri":"${uri}","title":"One"}`;
        await session.call('t__say', { raws: [notification('resources/updated', params('x:///one'))] });
        assert.equal((await events.notification('notifications/resources/updated')).data, notification('resources/updated', params('postern://t/x:///one')));
        events.drop();
    });
    test('a notification about an unknown request is dropped', async () => {
        const none = [['progress', '{"progressToken":987654,"progress":1}'], ['cancelled', '{"requestId":"none"}'], ['tasks/status', '{"taskId":"none","status":"working"}'], ['elicitation/complete', '{"elicitationId":"none"}']];
        const events = await session.get();
        const log = notification('message', '{"level":"info","data":1,"logger":"t/l"}');
        assert.deepEqual(await said([...none.map(([method, params]) => notification(method, params)), log.replace('t/l', 'l')], 1), [log]);
        await session.call('t__say', { raws: [notification('resources/updated', '{"uri":"x:///one","mark":1}')] });
        assert.match((await events.message()).data, /"mark":1/);
        events.drop();
    });
    test('the end of an elicitation reaches the caller', async () => {
        const params = `{"elicitationId":"e1",${MORE}}`;
        const [, complete] = await said([question('e', 'elicitation/create', '{"mode":"url","message":"m","url":"https://example.com/","elicitationId":"e1"}'), notification('elicitation/complete', params)]);
        assert.equal(complete, notification('elicitation/complete', params));
    });
    test('the end of an elicitation that an error asked for reaches the caller', async () => {
        const elicitations = [{ mode: 'url', message: 'm', url: 'https://example.com/', elicitationId: 'e2' }];
        const { error } = await session.call('t__refuse', { raw: JSON.stringify({ code: -32042, message: 'first', data: { elicitations } }) });
        assert.deepEqual(error.data.elicitations, elicitations);
        const text = notification('elicitation/complete', '{"elicitationId":"e2"}');
        assert.deepEqual(await said([text]), [text]);
    });
});

describe('the related task of a message', () => {
    let session, taskId;
    const related = id => `"_meta":{"n":1.0,"${RELATED}":{"taskId":"${id}"}}`;
    before(async () => {
        session = await open();
        taskId = await create(session, 'one');
    });

    test('a related task has the id of its owner in messages of the server', async () => {
        await session.call('t__next', { method: 'tasks/result', raws: [`"result":{"content":[],${related('one')}}`] });
        const { body } = await session.post(request('tasks/result', { taskId }, 7));
        assert.equal(body, `{"jsonrpc":"2.0","id":7,"result":{"content":[],${related(taskId)}}}`);
        const raws = id => [
            question('r', 'elicitation/create', `{"message":"m","requestedSchema":{},${related(id)}}`).replace(/"id":"r"/, id === 'one' ? '"id":"r"' : '"id":@').replace('"m"', id === 'one' ? '"m"' : '"[t] m"'),
            notification('progress', `{"progressToken":${id === 'one' ? '@token' : '"p"'},"progress":1,${related(id)}}`),
            notification('cancelled', `{"requestId":${id === 'one' ? '"r"' : '@'},${related(id)}}`)
        ];
        const events = await calling(session, 't__say', { raws: raws('one') }, { _meta: { progressToken: 'p' } });
        const texts = [];
        for (let i = 0; i < 3; i++) texts.push((await events.message()).data);
        const { id } = JSON.parse(texts[0]);
        assert.deepEqual(texts, raws(taskId).map(text => text.replace('@', id)));
    });
    test('a related task has the id of the server in messages of its owner', async () => {
        const events = await calling(session, 't__hang', { key: 'r', raws: [question('r2', 'elicitation/create', '{"message":"m","requestedSchema":{},"_meta":{"progressToken":"theirs"}}')] });
        const { message } = await events.message();
        await session.post(notification('progress', `{"progressToken":${message.id},"progress":1,${related(taskId)}}`));
        assert.equal(await received(session, 'notifications/progress'), notification('progress', `{"progressToken":"theirs","progress":1,${related('one')}}`));
        await session.post(`{"jsonrpc":"2.0","id":${message.id},"result":{"action":"decline",${related(taskId)}}}`);
        assert.equal(await received(session, '"r2"'), `{"jsonrpc":"2.0","id":"r2","result":{"action":"decline",${related('one')}}}`);
        await session.post(notification('cancelled', `{"requestId":${nextId - 1},${related(taskId)}}`));
        assert.ok((await received(session, 'notifications/cancelled')).endsWith(`,${related('one')}}}`));
        await session.request('tasks/get', { [RELATED]: 1, taskId, _meta: { [RELATED]: { taskId } } });
        assert.ok((await received(session, 'tasks/get')).endsWith(`"taskId":"one","_meta":{"${RELATED}":{"taskId":"one"}}}}`));
    });
    test('a related task of another caller does not reach a shared server', async () => {
        const other = await open();
        for (const id of ['one', 7]) {
            const { error } = await other.request('tools/call', { name: 't__say', arguments: {}, _meta: { [RELATED]: { taskId: id } } });
            assert.deepEqual([error?.code, error?.data.reason], [-32602, 'unknown_task']);
        }
        const twice = await other.request('tools/call', { name: 't__say', arguments: {}, _meta: { [RELATED]: { taskID: 'one' } } });
        assert.equal(twice.error?.data.reason, 'invalid_params');
        assert.ok((await other.request('tools/call', { name: 'own__say', arguments: {}, _meta: { [RELATED]: { taskId: 'mine' } } })).result);
        const events = await calling(other, 't__hang', { key: 'o', raws: [notification('progress', '{"progressToken":@token,"progress":1}')] }, { _meta: { progressToken: 'p' } });
        await events.message();
        await other.post(notification('cancelled', `{"requestId":${nextId - 1},"reason":"mine",${related('one')}}`));
        assert.match(await received(session, 'notifications/cancelled'), /"params":\{"requestId":\d+,"reason":"cancelled by the caller"\}\}$/);
    });
    test('a related task reports progress after its call was answered', async () => {
        const news = await session.get();
        for (const token of ['text', 7, 'x'.repeat(900)]) {
            const id = `p${String(token).length}`;
            const wrapped = (await session.request('tools/call', { name: 't__say', arguments: { raws: [notification('progress', '{"progressToken":@token,"progress":1}')], raw: task(id) }, task: {}, _meta: { progressToken: token } })).result.task.taskId;
            const params = (own, about) => `{"progressToken":${own},${related(about)},"progress":2}`;
            await session.call('t__say', { raws: [notification('progress', params('@token', id))] });
            assert.equal((await news.notification('notifications/progress')).data, notification('progress', params(JSON.stringify(token), wrapped)));
        }
        news.drop();
    });
});

describe('status of a task before the answer that creates it', () => {
    const status = (id, state = 'working', more = '') => notification('tasks/status', `{"taskId":"${id}","status":"${state}"${more}}`);
    const wanted = { task: {} };
    let ann, bob, annStream, bobStream;
    before(async () => {
        [ann, bob] = [await open(), await open()];
        [annStream, bobStream] = [await ann.get(), await bob.get()];
    });
    after(() => [annStream, bobStream].forEach(events => events?.drop()));

    /** The messages that a session has received on its stream so far: all those before a mark that is sent now. */
    let marks = 0;
    async function receivedBy(session, events) {
        const mark = `mark ${++marks}`, all = [];
        await session.request('resources/subscribe', { uri: `postern://t/x:///${marks}` });
        await session.call('t__say', { raws: [notification('resources/updated', `{"uri":"x:///${marks}","mark":"${mark}"}`)] });
        for (;;) {
            const { data, message } = await events.message();
            if (message.params.mark === mark) return all;
            all.push(data);
        }
    }
    /** A call that asks for a task, once the server has it; `answered` resolves with the id of the task. */
    async function begin(session, key, raws = []) {
        const events = await calling(session, 't__hang', { key, raws: [...raws, notification('progress', '{"progressToken":@token,"progress":1}')] }, { ...wanted, _meta: { progressToken: key } });
        await events.notification('notifications/progress');
        return { answered: async () => (await events.message()).message.result.task.taskId };
    }

    test('an early task status reaches its owner whole, in order and with the id of the answer', async () => {
        const more = `,${MORE}`;
        const raws = [status('e1', 'submitted', more), status('e1', 'working', more), notification('message', `{"level":"info","data":1,"logger":"l","_meta":{"${RELATED}":{"taskId":"e1"}}}`), status('e1', 'completed', more)];
        const { taskId } = (await ann.request('tools/call', { name: 't__say', arguments: { raws, raw: task('e1') }, ...wanted })).result.task;
        const told = await receivedBy(ann, annStream);
        assert.deepEqual(told, raws.map(text => text.replace('"e1"', `"${taskId}"`).replace('"l"', '"t/l"')));
        assert.deepEqual(await receivedBy(bob, bobStream), []);
        await bob.call('t__say', { raws: [status('e1', 'failed')] });
        assert.deepEqual(await receivedBy(ann, annStream), [status(taskId, 'failed')]);
        assert.deepEqual(await receivedBy(bob, bobStream), []);
    });
    test('an early task status arrives after the answer that creates the task', async () => {
        const events = await stream(`${gateway.origin}/sse`, { headers: { accept: 'text/event-stream' } });
        const url = new URL((await events.next()).data, gateway.origin);
        const say = body => send(url, { headers: post(), body });
        await say(initialize('2025-11-25'));
        await events.message();
        await say({ jsonrpc: '2.0', method: 'notifications/initialized' });
        await say(request('tools/call', { name: 't__say', arguments: { raws: [status('e2')], raw: task('e2') }, ...wanted }));
        const { taskId } = (await events.message()).message.result.task;
        assert.equal((await events.message()).data, status(taskId));
        events.drop();
    });
    test('an early task status reaches only the owner, even if another caller waits for a task', async () => {
        const first = await begin(ann, 'a', [status('e3')]), second = await begin(bob, 'b', [status('e4'), status('nobody')]);
        await bob.call('t__say', { raws: [status('e3', 'completed')] });
        await bob.call('t__answer', { key: 'b', raw: task('e4') });
        const bobs = await second.answered();
        assert.deepEqual(await receivedBy(bob, bobStream), [status(bobs)]);
        await bob.call('t__answer', { key: 'a', raw: task('e3') });
        const anns = await first.answered();
        assert.deepEqual(await receivedBy(ann, annStream), [status(anns), status(anns, 'completed')]);
        assert.deepEqual(await receivedBy(bob, bobStream), []);
    });
    test('an early task status is dropped with the last call that may have created the task', async () => {
        for (const [id, raw] of [['e5', '{"content":[]}'], ['e6', task('e9')]]) {
            const call = await begin(ann, 'a', [status(id)]);
            await ann.call('t__answer', { key: 'a', raw });
            await call.answered().catch(() => undefined);
            await create(bob, id);
            assert.deepEqual(await receivedBy(ann, annStream), []);
            assert.deepEqual(await receivedBy(bob, bobStream), []);
        }
        await ann.call('t__say', { raws: [status('e7')] }); // no call waits for a task
        await create(ann, 'e7');
        assert.deepEqual(await receivedBy(ann, annStream), []);
    });
    test('an early task status is kept for the newest 100', async () => {
        const raws = Array.from({ length: 130 }, (_, i) => status('e8', 'working', `,"n":${i}`));
        const { taskId } = (await ann.request('tools/call', { name: 't__say', arguments: { raws, raw: task('e8') }, ...wanted })).result.task;
        assert.deepEqual(await receivedBy(ann, annStream), raws.slice(30).map(text => text.replace('e8', taskId)));
    });
});

describe('lists of tasks', () => {
    const one = (id, more = '') => `{"taskId":"${id}","status":"working"${more}}`;
    const page = (ids, more) => `"result":{"tasks":[${ids.map(id => one(id, ',"n":1.00'))}],${more}}`;
    const made = async (session, server, id) => (await session.request('tools/call', { name: `${server}__say`, arguments: { raw: task(id) }, task: {} })).result.task.taskId;
    const list = async (session, params) => (await session.post(`{"jsonrpc":"2.0","id":7,"method":"tasks/list"${params ? `,"params":${params}` : ''}}`)).body;
    let session, ids;
    before(async () => {
        session = await open();
        ids = [await made(session, 't', 'l1'), await made(session, 't', 'l2'), await made(session, 'own', 'l3')];
        await create(await open(), 'l4');
    });

    test('a list of tasks has all pages and other members of all servers', async () => {
        await session.call('t__next', { method: 'tasks/list', raws: [page(['l2', 'l4'], `"nextCursor":"c1",${MORE},"first":1E5`), page(['l1'], '"first":2,"second":[ ],"_meta":{"A":0,"b":1.0}')] });
        await session.call('own__next', { method: 'tasks/list', raws: ['"result":{"tasks":[]}'] });
        const mine = [ids[1], ids[0]].map(id => one(id, ',"n":1.00'));
        const rest = '"later":{"n":-0 },"first":1E5,"second":[ ]', meta = String.raw`"vendor.example/x":1.00,"\u0041":[1E5],"b":1.0`;
        assert.equal(await list(session), `{"jsonrpc":"2.0","id":7,"result":{"tasks":[${mine}],${rest},"_meta":{${meta}}}}`);
        await session.call('t__next', { method: 'tasks/list', raws: [page(['l2'], '"first":1')] });
        await session.call('own__next', { method: 'tasks/list', raws: [page(['l3'], '"first":2,"third":3,"_meta":{"c":{}}')] });
        const both = [ids[1], ids[2]].map(id => one(id, ',"n":1.00'));
        assert.equal(await list(session), `{"jsonrpc":"2.0","id":7,"result":{"tasks":[${both}],"first":1,"third":3,"_meta":{"c":{}}}}`);
    });
    test('a list of tasks is requested with the params of the caller', async () => {
        await session.call('own__next', { method: 'tasks/list', raws: ['"result":{"tasks":[]}'] });
        await session.call('t__next', { method: 'tasks/list', raws: [page([], '"nextCursor":"c\\u0031"'), page([], '"x":1')] });
        const more = token => `"_meta":{"v":1.0,"progressToken":${token}},"later":1E5`;
        await list(session, `{${more('"mine"')}}`);
        for (const cursor of ['', '"cursor":"c\\u0031",']) {
            let seen;
            do seen = await received(session, 'tasks/list');
            while (!seen.includes('later'));
            assert.ok(seen.endsWith(`"params":{${cursor}${more(/"progressToken":(\d+)/.exec(seen)[1])}}}`), seen);
        }
        assert.equal(JSON.parse(await list(session, '{"cursor":"c1"}')).error.data.reason, 'bad_cursor');
    });
});

describe('messages of a known task', () => {
    test('log messages and questions of a task reach only its owner', async () => {
        const [ann, bob] = [await open(), await open()];
        const [annStream, bobStream] = [await ann.get(), await bob.get()];
        const taskId = await create(ann, 'k1');
        const related = id => `"_meta":{"${RELATED}":{"taskId":"${id}"}}`;
        const log = (data, id) => notification('message', `{"level":"info","data":"${data}","logger":"t/l"${id ? `,${related(id)}` : ''}}`);
        const raws = [log('mine', 'k1'), log('unknown', 'k2'), log('all')].map(text => text.replace('t/l', 'l'));
        const events = await calling(bob, 't__say', { raws });
        assert.equal((await events.message()).data, log('all'));
        for (const text of [log('mine', taskId), log('all')]) assert.equal((await annStream.message()).data, text);

        const asked = id => question(id, 'elicitation/create', `{"message":"m","requestedSchema":{},${related('k1')}}`);
        assert.ok((await bob.call('t__say', { raws: [asked('k3')] })).result);
        assert.match(await received(bob, '"k3"'), /"error"|"cancel"/); // the owner does not call, so it cannot be asked
        const call = await calling(ann, 't__hang', { key: 'k', raws: [notification('progress', '{"progressToken":@token,"progress":1}')] }, { _meta: { progressToken: 'k' } });
        await call.message();
        assert.ok((await bob.call('t__say', { raws: [asked('k4')] })).result);
        const { message } = await call.message();
        assert.deepEqual([message.method, message.params._meta[RELATED].taskId], ['elicitation/create', taskId]);
        await ann.post({ jsonrpc: '2.0', id: message.id, result: { action: 'decline' } });
        assert.match(await received(bob, '"k4"'), /"decline"/);
        await ann.call('t__answer', { key: 'k', raw: '{}' });
        [annStream, bobStream].forEach(stream => stream.drop());
    });
});
