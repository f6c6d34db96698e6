// A server that sends unsolicited messages: instructions, logs, updates and questions, each with its mark and process id.
//   say {text}      logs the text
//   touch {uri}     sends an update of a resource, whether or not it is subscribed to
//   grow {name}     adds a tool and announces a changed list
//   whoami          answers with the mark and the process id
// When its tools are listed, it requests a sample and logs the answer. Its resources are x://open, x://hidden and one named after its process.
import { createInterface } from 'node:readline';

const [mark] = process.argv.slice(2);
const self = `${mark}#${process.pid}#`;
const tools = ['say', 'touch', 'grow', 'whoami'];
const write = message => process.stdout.write(`${JSON.stringify({ jsonrpc: '2.0', ...message })}\n`);
const notify = (method, params) => write({ method: `notifications/${method}`, params });
const log = data => notify('message', { level: 'info', logger: 'pusher', data: `${self} ${data}` });
const inputSchema = { type: 'object' };

const acts = {
    say: ({ text }) => log(text),
    touch: ({ uri }) => notify('resources/updated', { uri }),
    grow: ({ name }) => {
        tools.push(name);
        notify('tools/list_changed');
    },
    whoami: () => {}
};

const methods = {
    initialize: ({ protocolVersion }) => ({
        protocolVersion,
        capabilities: { tools: { listChanged: true }, resources: { subscribe: true }, logging: {} },
        serverInfo: { name: 'pusher', version: '1.0.0' },
        instructions: `${self} instructions`
    }),
    ping: () => ({}),
    'logging/setLevel': ({ level }) => {
        log(`level ${level}`);
        return {};
    },
    'tools/list': () => ({ tools: tools.map(name => ({ name, description: `of ${self}`, inputSchema })) }),
    'resources/list': () => ({ resources: ['x://open', 'x://hidden', `x://process/${process.pid}`].map(uri => ({ uri, name: `${uri} of ${self}` })) }),
    'resources/read': ({ uri }) => ({ contents: [{ uri, text: `${self} ${uri}` }] }),
    'resources/subscribe': () => ({}),
    'resources/unsubscribe': () => ({}),
    'tools/call': ({ name, arguments: args }) => {
        acts[name]?.(args ?? {});
        return { content: [{ type: 'text', text: `${self} ${name}` }] };
    }
};

createInterface({ input: process.stdin })
    .on('line', line => {
        const { id, method, params, error, result } = JSON.parse(line);
        if (method === undefined) return log(`sample ${error ? 'refused' : JSON.stringify(result)}`);
        if (id === undefined) return undefined;
        const found = methods[method];
        write(found ? { id, result: found(params ?? {}) } : { id, error: { code: -32601, message: `No method ${method}` } });
        if (method === 'tools/list') write({ id: `sample-${id}`, method: 'sampling/createMessage', params: { messages: [], maxTokens: 1, systemPrompt: self } });
        return undefined;
    })
    .on('close', () => process.exit(0));
process.on('SIGTERM', () => process.exit(0));
