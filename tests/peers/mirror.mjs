// A server for byte-exact tests: it shows the text it received and answers with the text it is told to.
//   mirror               answers with the message it received, as text
//   reply {raw, count}   answers with the text `raw` as its result, after so many progress notifications
//   refuse {raw}         answers with the text `raw` as its error
//   wait {file, begun}   makes the file `begun`, if it is given, and answers when `file` exists
//   grow {name}          adds a tool and says that the list changed
//   update {uri}         says that a resource changed, if it was subscribed to
//   crash                ends the process
// Its tool `odd` has a definition full of odd but valid JSON. --tools has the names of further tools, which answer with
// their own names; --resources and --templates have URIs in place of its own. With --after it ends at once as long as the
// file does not exist.
import { existsSync, writeFileSync } from 'node:fs';
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
const subscribed = new Set();
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
        return result(said(subscribed.has(uri) ? 'told' : 'nobody subscribed'));
    },
    crash: async () => process.exit(3)
};

/** The member `result` or `error` of the response, as text. */
async function answer(method, context) {
    const { params } = context;
    switch (method) {
        case 'initialize':
            return result(
                `{"protocolVersion":${quoted(params.protocolVersion)},"capabilities":{"tools":{"listChanged":true},"prompts":{},"resources":{"subscribe":true}},"serverInfo":{"name":"mirror","version":"1.0.0"}}`
            );
        case 'ping':
            return result('{}');
        case 'tools/list':
            return result(`{"tools":[{"name":"odd",${ODD}},${[...NAMES, ...more].map(tool).join(',')}]}`);
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

/** Answers one message, given as text; `send` writes a message. */
async function handle(raw, send) {
    const { id, method, params } = JSON.parse(raw);
    if (id === undefined || method === undefined) return;
    const notify = (name, text) => send(`{"jsonrpc":"2.0","method":"notifications/${name}"${text ? `,"params":${text}` : ''}}`);
    send(`{"jsonrpc":"2.0","id":${quoted(id)},${await answer(method, { raw, params, notify })}}`);
}

function serveStdio() {
    let rest = '';
    process.stdin.setEncoding('utf8');
    process.stdin.on('data', chunk => {
        const lines = (rest + chunk).split('\n');
        rest = lines.pop();
        for (const line of lines) handle(line, message => process.stdout.write(`${message}\n`));
    });
    process.stdin.on('end', () => process.exit(0));
}

/** Streamable HTTP without sessions; a message alone is answered as JSON, several as an event stream. */
function serveHttp() {
    const server = createServer(async (req, res) => {
        if (req.method !== 'POST') return res.writeHead(405).end();
        const messages = [];
        await handle(await body(req), message => messages.push(message));
        if (messages.length === 0) return res.writeHead(202).end();
        if (messages.length === 1) return res.writeHead(200, { 'content-type': 'application/json' }).end(messages[0]);
        res.writeHead(200, { 'content-type': 'text/event-stream' });
        for (const message of messages) res.write(`event: message\n${message.split('\n').map(line => `data: ${line}\n`).join('')}\n`);
        return res.end();
    }).listen(0, '127.0.0.1', () => console.log(`http://127.0.0.1:${server.address().port}/mcp`));
}

if (option('--after') !== undefined && !existsSync(option('--after'))) process.exit(1);
process.on('SIGTERM', () => process.exit(0));
if (args.includes('--http')) serveHttp();
else serveStdio();
