// A server for byte-exact tests: it returns the text it received, and answers with the text given in a call.
//   mirror               answers with the message it received, as text
//   reply {raw, count}   answers with the text `raw` as its result, after `count` progress notifications
//   refuse {raw}         answers with the text `raw` as its error
//   wait {file, begun}   creates the file `begun`, if given, and answers when `file` exists
//   grow {name}          adds a tool and announces a changed list
//   update {uri}         sends an update of a resource, if it is subscribed to
//   crash                ends the process
// and, if --tools names them:
//   greeting             answers with the `initialize` that it received, as text
//   ask {method, params} sends a request with the text `params`, and answers with the text of the response
//   ask_later {method, file}   answers, and then sends a request; the file gets the response
//   push {method, raw}   sends a notification with the text `raw` as its params
//   received             answers with the notifications it received, as text
// Its tool `odd` has a definition full of odd but valid JSON. --tools has the names of further tools, which answer with
// their own names; --resources and --templates have URIs in place of its own; --capabilities has the text of further
// capabilities, --instructions the text of its instructions; %PID% stands for its process id in both.
// --items has the text of further items in the list of tools; U+F8FF in it becomes the byte FF, and %LARGE% a long text. With --id-last the id
// is the last member of responses, as in those of the TypeScript SDK. With --after FILE it exits at once unless the
// file exists. With --subscribe-after FILE it creates FILE-begun when it gets a subscription, and answers when FILE exists.
import { existsSync, renameSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { text as body } from 'node:stream/consumers';
import { setTimeout as sleep } from 'node:timers/promises';

/** The definition of the tool `odd` without its name. */
const ODD = String.raw`"title":"Odd \u00e9\ud83d\ude00 \/ \"quoted\"","inputSchema":{"zeta":1,"type":"object","$defs":{"n":{"maximum":1e400,"minimum":-0,"multipleOf":0.10,"const":12345678901234567890}},"properties":{"b":{"$ref":"#/$defs/n"},"a":{"default":1.0,"examples":[1.00,-0.0,1E5,1e-07]}},"x-unknown":[null,true,{"":[]}],"additionalProperties":false},"_meta":{"vendor.example/flag":{"n":1E+2}},"later":"\u2028","icons":[]`;
/** The text of every resource: its own URI. */
const RESOURCES = ['mirror:///one', 'https://example.com/page', 'ui://panel/main.html'];
const TEMPLATES = ['mirror:///item/{id}'];

const NAMES = ['mirror', 'reply', 'refuse', 'wait', 'grow', 'update', 'crash'];
const args = process.argv.slice(2);
const option = name => (args.includes(name) ? args[args.indexOf(name) + 1] : undefined);

const more = JSON.parse(option('--tools') ?? '[]');
const resources = option('--resources') ? JSON.parse(option('--resources')) : RESOURCES;
const templates = option('--templates') ? JSON.parse(option('--templates')) : TEMPLATES;
const own = name => option(name)?.replaceAll('%PID%', process.pid);
const items = option('--items') ? `,${option('--items').replaceAll('%LARGE%', 'x'.repeat(300_000))}` : '';
const slow = option('--subscribe-after');
const subscribed = new Set();
const asked = new Map();
const received = [];
let greeting;
const quoted = JSON.stringify;
const said = value => `{"content":[{"type":"text","text":${quoted(value)}}]}`;
const result = value => `"result":${value}`;
const error = value => `"error":${value}`;

const acts = {
    mirror: async (_args, { raw }) => result(said(raw)),
    reply: async ({ raw, count = 0 }, { params, notify }) => {
        for (let i = 1; i <= count; i++) notify('progress', `{"total":1E1,"progressToken":${quoted(params._meta.progressToken)},"progress":${i}.50}`);
        return result(raw);
    },
    refuse: async ({ raw }) => error(raw),
    wait: async ({ file, begun }) => {
        if (begun) writeFileSync(begun, '');
        while (!existsSync(file)) await sleep(20);
        return result(said('waited'));
    },
    grow: async ({ name }, { notify }) => {
        more.push(name);
        notify('tools/list_changed');
        return result(said('grown'));
    },
    update: async ({ uri }, { notify }) => {
        if (subscribed.has(uri)) notify('resources/updated', `{"uri":${quoted(uri)}}`);
        return result(said(subscribed.has(uri) ? 'told' : 'not subscribed'));
    },
    crash: async () => process.exit(3),
    greeting: async () => result(said(greeting)),
    ask: async ({ method, params }, { send }) => {
        const id = `asked-${asked.size + 1}`;
        const response = new Promise(resolve => asked.set(id, resolve));
        send(`{"jsonrpc":"2.0","id":"${id}","method":${quoted(method)}${params ? `,"params":${params}` : ''}}`);
        return result(said(await response));
    },
    ask_later: async ({ method, file }, { send }) => {
        asked.set('later', response => (writeFileSync(`${file}.new`, response), renameSync(`${file}.new`, file)));
        setImmediate(() => send(`{"jsonrpc":"2.0","id":"later","method":${quoted(method)}}`));
        return result(said('asked'));
    },
    push: async ({ method, raw }, { notify }) => {
        notify(method, raw);
        return result(said('pushed'));
    },
    received: async () => result(said(received.join('\n')))
};

/** The member `result` or `error` of the response, as text. */
async function answer(method, context) {
    const { params } = context;
    switch (method) {
        case 'initialize': {
            const capabilities = own('--capabilities') ? `,${own('--capabilities')}` : '';
            const instructions = own('--instructions') ? `,"instructions":${own('--instructions')}` : '';
            greeting = context.raw;
            return result(
                `{"protocolVersion":${quoted(params.protocolVersion)},"capabilities":{"tools":{"listChanged":true},"prompts":{},"resources":{"subscribe":true}${capabilities}},"serverInfo":{"name":"mirror","version":"1.0.0"}${instructions}}`
            );
        }
        case 'ping':
            return result('{}');
        case 'tools/list':
            return result(`{"tools":[{"name":"odd",${ODD}},${[...NAMES, ...more].map(tool).join(',')}${items}]}`);
        case 'tools/call':
            if (acts[params.name]) return acts[params.name](params.arguments ?? {}, context);
            return result(said(params.name));
        case 'prompts/list':
            return result('{"prompts":[{"name":"ask","arguments":[{"name":"topic","required":false}]}]}');
        case 'prompts/get':
            return result(`{"messages":[{"role":"user","content":{"type":"text","text":${quoted(context.raw)}}}]}`);
        case 'resources/list':
            return result(`{"resources":[${resources.map(uri => `{"uri":${quoted(uri)},"name":${quoted(uri)}}`).join(',')}]}`);
        case 'resources/templates/list':
            return result(`{"resourceTemplates":[${templates.map(uri => `{"uriTemplate":${quoted(uri)},"name":"item"}`).join(',')}]}`);
        case 'resources/read':
            return result(`{"contents":[{"uri":${quoted(params.uri)},"text":${quoted(params.uri)}}]}`);
        case 'resources/subscribe':
            subscribed.add(params.uri);
            if (slow) await acts.wait({ file: slow, begun: `${slow}-begun` });
            return result('{}');
        case 'resources/unsubscribe':
            subscribed.delete(params.uri);
            return result('{}');
        default:
            return error(`{"code":-32601,"message":"No method ${method}"}`);
    }
}

function tool(name) {
    const app = name === 'mirror' ? ',"_meta":{"ui":{"resourceUri":"ui:\\/\\/panel\\/main.html","other":1.0}}' : '';
    return `{"name":${quoted(name)},"inputSchema":{"type":"object"}${app}}`;
}

/** Answers one message, given as text; `send` writes a message, the last one of the answer with `true`. */
async function handle(raw, send) {
    const { id, method, params } = JSON.parse(raw);
    if (id === undefined) received.push(raw);
    else if (method === undefined) asked.get(id)?.(raw);
    if (id === undefined || method === undefined) return;
    const notify = (name, text) => send(`{"jsonrpc":"2.0","method":"notifications/${name}"${text ? `,"params":${text}` : ''}}`);
    const head = `"jsonrpc":"2.0","id":${quoted(id)}`, rest = await answer(method, { raw, params, notify, send });
    send(args.includes('--id-last') ? `{${rest},${head}}` : `{${head},${rest}}`, true);
}

const bytes = text => (text.includes('\uF8FF') ? Buffer.from(Buffer.from(text).toString('latin1').replaceAll('\xef\xa3\xbf', '\xff'), 'latin1') : text);
const event = message => bytes(`event: message\n${message.split('\n').map(line => `data: ${line}\n`).join('')}\n`);

function serveStdio() {
    let rest = '';
    process.stdin.setEncoding('utf8');
    process.stdin.on('data', chunk => {
        const lines = (rest + chunk).split('\n');
        rest = lines.pop();
        for (const line of lines) handle(line, message => process.stdout.write(bytes(`${message}\n`)));
    });
    process.stdin.on('end', () => process.exit(0));
}

/** Streamable HTTP without sessions; a single message is sent as JSON, several as an event stream. */
async function onPost(req, res) {
    let only;
    await handle(await body(req), (message, last) => {
        if (!res.headersSent && last) return (only = message);
        if (!res.headersSent) res.writeHead(200, { 'content-type': 'text/event-stream' });
        return res.write(event(message));
    });
    if (res.headersSent) return res.end();
    return only ? res.writeHead(200, { 'content-type': 'application/json' }).end(bytes(only)) : res.writeHead(202).end();
}

/** HTTP+SSE: every message is sent as an event of the one stream. */
async function onSse(req, res) {
    if (req.method === 'GET') {
        stream = res.writeHead(200, { 'content-type': 'text/event-stream' });
        return stream.write('event: endpoint\ndata: /messages\n\n');
    }
    const raw = await body(req);
    res.writeHead(202).end();
    return handle(raw, message => stream.write(event(message)));
}
let stream;

function serveHttp(path, handler) {
    const server = createServer(handler).listen(0, '127.0.0.1', () => console.log(`http://127.0.0.1:${server.address().port}${path}`));
}

if (option('--after') !== undefined && !existsSync(option('--after'))) process.exit(1);
process.on('SIGTERM', () => process.exit(0));
if (args.includes('--http')) serveHttp('/mcp', (req, res) => (req.method === 'POST' ? onPost(req, res) : res.writeHead(405).end()));
else if (args.includes('--sse')) serveHttp('/sse', onSse);
else serveStdio();
