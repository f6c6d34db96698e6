// A server over stdio that ignores the case of member names, by Unicode's simple case folding, and lets the last one
// win. It answers with its reading of the message, as main.go does.
import { createInterface } from 'node:readline';

const MEMBERS = ['id', 'method', 'params', 'protocolVersion', 'name', 'uri', 'taskId', 'task', 'arguments', 'owner', 'repository', 'branch',
    'ref', 'argument', 'value', 'context', '_meta', 'progressToken'];
const patterns = MEMBERS.map(member => [member, new RegExp(`^${member}$`, 'iu')]);

/** The tree with every member under the name that it folds to; a later one replaces an earlier one. */
const fold = value =>
    Array.isArray(value) ? value.map(fold)
        : value === null || typeof value !== 'object' ? value
            : Object.fromEntries(Object.entries(value).map(([key, inner]) => [patterns.find(([, pattern]) => pattern.test(key))?.[0] ?? key, fold(inner)]));

const content = p => ({ type: 'text', text: `${p.name} owner=${p.arguments?.owner ?? ''} branch=${p.arguments?.repository?.branch ?? ''}` });
const task = (taskId, statusMessage) => ({ taskId, status: 'working', statusMessage, ttl: 60_000, createdAt: '2026-01-01T00:00:00Z', lastUpdatedAt: '2026-01-01T00:00:00Z' });
const tool = name => ({ name, inputSchema: { type: 'object' } });
const answers = {
    initialize: p => ({
        protocolVersion: p.protocolVersion, serverInfo: { name: 'folding', version: '1.0.0' },
        capabilities: { tools: {}, prompts: {}, resources: { subscribe: true }, completions: {}, tasks: { list: {}, cancel: {}, requests: { tools: { call: {} } } } }
    }),
    'tools/list': () => ({ tools: [tool('get_repo'), tool('delete_repo')] }),
    'tools/call': p => (p.task ? { task: task(p.arguments.owner, '') } : { content: [content(p)] }),
    'prompts/list': () => ({ prompts: [{ name: 'review' }, { name: 'release' }] }),
    'prompts/get': p => ({ messages: [{ role: 'user', content: content(p) }] }),
    'resources/list': () => ({ resources: ['open', 'secret'].map(name => ({ uri: `repo:///${name}`, name })) }),
    'resources/templates/list': () => ({ resourceTemplates: [{ uriTemplate: 'repo:///{owner}', name: 'owner' }] }),
    'resources/read': p => ({ contents: [{ uri: p.uri, text: p.uri }] }),
    'completion/complete': p => ({
        completion: { values: [`${p.ref.name ?? ''}${p.ref.uri ?? ''} ${p.argument.name}=${p.argument.value} owner=${p.context?.arguments?.owner ?? ''}`] }
    }),
    'tasks/get': p => task(p.taskId, p.taskId),
    'tasks/cancel': p => task(p.taskId, p.taskId)
};

const write = message => process.stdout.write(`${JSON.stringify({ jsonrpc: '2.0', ...message })}\n`);
for await (const line of createInterface(process.stdin)) {
    const { id, method, params: p = {} } = fold(JSON.parse(line));
    if (id === undefined || method === undefined) continue;
    const progressToken = p._meta?.progressToken;
    if (method === 'tools/call' && progressToken !== undefined) write({ method: 'notifications/progress', params: { progressToken, progress: 1 } });
    write({ id, result: answers[method]?.(p) ?? {} });
}
