// The table of changes by the gateway: every part of a message that may differ on arrival is made here, by the function of its row.
// docs/fidelity.md explains the rows under the same names; tests/lint/fidelity checks that it has all of them.
import { createHash } from 'node:crypto';

/** The key of the server in every configuration. */
export const SERVER = 's';

export const quoted = JSON.stringify;

function exposedName(name) {
    const hash = createHash('sha256').update(`${SERVER}\0${name}`).digest('hex').slice(0, 8);
    const full = `${SERVER}__${Buffer.from(name).toString('latin1').replace(/[^A-Za-z0-9_./-]/g, '_')}`;
    return full.length > 64 ? `${full.slice(0, 55)}_${hash}` : full;
}

const exposedUri = uri => (uri.startsWith('ui://') ? `ui://${SERVER}/${uri.slice(5)}` : `postern://${SERVER}/${uri}`);

/** A string that has different values on the two sides. The sender may write it with escapes; the receiver gets it without. */
const renamed = (row, json, own, seen) => ({ row, own: quoted(own), seen: quoted(seen), send: { own: json.spell(own), seen: json.spell(seen) } });

/** A string that the caller gets with a prefix, and with its escapes unchanged. */
function led(row, json, lead, own) {
    const spelled = json.spell(own);
    return { row, own: spelled, seen: `"${lead}${spelled.slice(1)}` };
}

/** `lane.prefix` says whether servers have prefixes, `json.spell` writes a string. */
export const differences = {
    // ---- both directions ----

    /**
     * Members of a message that JSON-RPC does not define, the order of the others, the white space between them and the escapes
     * of the method: [sent, expected]. A member that is omitted has its row in third place.
     */
    envelope: (json, members) => [
        json.small(() => json.object([['jsonrpc', '"2.0"'], ...members.map(([key, text]) => [key, key === 'method' ? json.spell(text) : text])], { more: json.random.below(3), reserved: ['id', 'method', 'params', 'result', 'error'] })),
        [{ row: 'envelope', own: '', seen: '' }, '{"jsonrpc":"2.0"', members.map(([key, text, left]) => left ?? (text === undefined ? '' : [`,"${key}":`, key === 'method' ? quoted(text) : text])), '}']
    ],

    /** Line breaks between tokens. */
    lineBreak: text => ({ row: 'lineBreak', own: /[\r\n ]{1,2}/, seen: /[\r\n ]{1,2}/, send: { own: text, seen: text } }),

    /** The id of a caller's request. */
    id: (id, own = /\d+/) => ({ row: 'id', own, seen: id, as: 'id' }),

    /** The id of a server's question. */
    questionId: (id, seen = /\d+/) => ({ row: 'questionId', own: id, seen, as: 'id' }),

    /** The progress token of a caller's request. */
    progressToken: (token, own = /\d+/) => ({ row: 'progressToken', own, seen: token, as: 'token' }),

    /** The progress token of a server's question. */
    questionToken: (token, seen = /\d+/) => ({ row: 'questionToken', own: token, seen, as: 'token' }),

    /** The id of a task. */
    taskId: (json, id, seen) => ({ row: 'taskId', own: quoted(id), seen: seen ?? new RegExp(`"${SERVER}\\.[\\w-]{16}\\.${Buffer.from(id).toString('base64url')}"`), send: { own: json.spell(id) }, as: 'taskId' }),

    // ---- from callers ----

    /** The name of the tool or prompt that a request is about. */
    targetName: (lane, json, name) => renamed('targetName', json, name, lane.prefix ? exposedName(name) : name),

    /** The URI of the resource that a request is about. */
    targetUri: (lane, json, uri) => renamed('targetUri', json, uri, lane.prefix ? exposedUri(uri) : uri),

    // ---- from servers ----

    /** The name of a listed tool or prompt. */
    name: (lane, json, name) => (lane.prefix ? renamed('name', json, name, exposedName(name)) : json.spell(name)),

    /** The URI of a resource, in the places where the protocol defines one. */
    uri: (lane, json, uri) => (lane.prefix ? renamed('uri', json, uri, exposedUri(uri)) : json.spell(uri)),

    /** The logger of a log message. */
    logger: (lane, json, logger) => (lane.prefix ? led('logger', json, `${SERVER}/`, logger) : json.spell(logger)),
    missingLogger: lane => (lane.prefix ? { row: 'missingLogger', own: '', seen: `"logger":"${SERVER}",` } : ''),

    /** The message of a question to a user. */
    elicitation: (lane, json, message) => (lane.prefix ? led('elicitation', json, `[${SERVER}] `, message) : json.spell(message)),

    /** The members beside the items of a list. */
    list: (own, seen) => ({ row: 'list', own, seen }),

    /** The cursor of a list. */
    cursor: () => ({ row: 'cursor', own: '', seen: /"[\w.-]+"/, as: 'cursor' }),

    /** The answer to a subscription. */
    subscribed: own => ({ row: 'subscribed', own, seen: '{}' }),

    /** The params of the request that ends the last subscription to a resource. */
    unsubscribed: (uri, seen) => ({ row: 'unsubscribed', own: `{"uri":${quoted(uri)}}`, seen }),

    /** The params of an announcement that a list changed. */
    listChanged: params => ['params', params, { row: 'listChanged', own: '', seen: '' }],

    /** The text before and after the caller's own tasks in a list of tasks. */
    tasks: (own, seen) => ({ row: 'tasks', own, seen }),

    /** A notification that the protocol does not define: nothing arrives. */
    unknown: method => ({ row: 'unknown', method })
};
