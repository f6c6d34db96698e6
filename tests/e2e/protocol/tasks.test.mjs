// Tasks of 2025-11-25 through the gateway: server-everything's research tool runs only as a task.
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';

import { schemas } from '../../peers/clients.mjs';
import { connect } from '../connect.mjs';
import { startEverything, startGateway, stdioServer } from '../gateway.mjs';
import { Session } from '../raw.mjs';

const RELATED = 'io.modelcontextprotocol/related-task';
const handlers = { elicitation: () => ({ action: 'accept', content: { interpretation: 'technical' } }) };

let gateway, http, peer, tasks;
before(async () => {
    http = await startEverything('streamableHttp');
    gateway = await startGateway({
        mcpServers: {
            one: stdioServer.everything(),
            two: { type: 'http', url: http.url }
        }
    });
    peer = await connect(gateway, undefined, handlers);
    tasks = peer.client.experimental.tasks;
    await peer.tools();
});
after(async () => {
    await peer?.close();
    await gateway?.stop();
    await http?.stop();
});

/** Starts the research tool as a task and returns the task. */
async function start(server, args = { topic: 'gateways' }) {
    const params = { name: `${server}__simulate-research-query`, arguments: args, task: { ttl: 60_000 } };
    return (await peer.client.request({ method: 'tools/call', params }, schemas.CreateTaskResultSchema)).task;
}

for (const [server, transport] of [['one', 'stdio'], ['two', 'Streamable HTTP']]) {
    describe(`tasks of a server over ${transport}`, () => {
        test('the tool declares that it needs a task and the gateway that it supports tasks', async () => {
            const tool = (await peer.tools()).find(({ name }) => name === `${server}__simulate-research-query`);
            assert.equal(tool.execution.taskSupport, 'required');
            assert.ok(peer.client.getServerCapabilities().tasks.requests.tools.call);
        });
        test('a call without a task is refused with -32601 or the error of the server', async () => {
            const session = await Session.open(gateway.url, { capabilities: { elicitation: {} } });
            const { error, result } = await session.call(`${server}__simulate-research-query`, { topic: 'x' });
            if (error) assert.equal(error.code, -32601);
            else assert.match(JSON.stringify(result), /"isError":true/);
        });
        test('a task is created, polled and collected', async () => {
            const seen = [];
            const params = { name: `${server}__simulate-research-query`, arguments: { topic: 'gateways' } };
            for await (const message of tasks.callToolStream(params, undefined, { timeout: 30_000 })) seen.push(message);
            const { type, result, error } = seen.at(-1);
            assert.equal(type, 'result', String(error));
            assert.match(result.content[0].text, /# Research Report: gateways/);
            assert.equal(seen[0].type, 'taskCreated');
            assert.equal(result._meta[RELATED].taskId, seen[0].task.taskId);
            assert.equal((await tasks.getTask(seen[0].task.taskId)).status, 'completed');
        });
        test('tasks/get, tasks/list and tasks/cancel accept the id that the client got', async () => {
            const { taskId, status } = await start(server);
            assert.equal(status, 'working');
            const polled = await tasks.getTask(taskId);
            assert.deepEqual([polled.taskId, polled.status], [taskId, 'working']);
            assert.ok((await allTasks()).includes(taskId));
            const cancelled = await tasks.cancelTask(taskId);
            assert.deepEqual([cancelled.taskId, cancelled.status], [taskId, 'cancelled']);
            await assert.rejects(tasks.cancelTask(taskId), { code: -32602 });
        });
        test('a task asks its questions through tasks/result', async () => {
            const { taskId } = await start(server, { topic: 'python', ambiguous: true });
            const result = await tasks.getTaskResult(taskId, schemas.CallToolResultSchema, { timeout: 30_000 });
            assert.match(result.content[0].text, /Clarification\*\*: technical/);
            assert.equal(result._meta[RELATED].taskId, taskId);
        });
    });
}

describe('task ids', () => {
    test('task ids of two servers are listed together and are distinct', async () => {
        const started = [await start('one'), await start('two')].map(({ taskId }) => taskId);
        assert.notEqual(started[0], started[1]);
        const listed = await allTasks();
        for (const taskId of started) assert.ok(listed.includes(taskId));
        for (const taskId of started) await tasks.cancelTask(taskId);
    });
    test('task ids that the gateway did not give out are refused with -32602', async () => {
        for (const taskId of ['nonsense', 'one', 'one:nonsense', '']) {
            await assert.rejects(tasks.getTask(taskId), { code: -32602 });
            await assert.rejects(tasks.cancelTask(taskId), { code: -32602 });
        }
    });
});

async function allTasks() {
    const ids = [];
    for (let cursor; ; ) {
        const page = await tasks.listTasks(cursor);
        ids.push(...page.tasks.map(({ taskId }) => taskId));
        cursor = page.nextCursor;
        if (cursor === undefined) return ids;
    }
}
