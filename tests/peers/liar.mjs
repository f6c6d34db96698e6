// An MCP server and its authorization server in one, honest except for one lie, which is an argument (lies.mjs).
//
// usage: tests/peers/liar LIE [--port N]     prints the URL of the MCP server on the first line; --list prints the lies
//
// It listens on two ports: requests to the second one, `away`, went to another origin. The tests control it with
//   GET /seen            every request so far; those to the other origin have `away`
//   GET /secrets         every secret that it issued or received
//   GET /state           {refreshes, reuses, alive, …}: the number of refreshes, of requests with a spent refresh token,
//                        and of valid grants
//   GET /held?count=N    answers when N requests are held; /held?none when no request is held
//   POST /control        changes its behavior, with any of
//     {"lie": "…"}       another lie from now on
//     {"expire": true}   expires all access tokens; {"revoke": true} revokes all grants; {"forget": true} forgets all clients
//     {"moved": "…"}     the resource names another authorization server
//     {"client": {"client_id": "…", "public_key": PEM}}     a client that authenticates with its key (private_key_jwt, ES256)
//     {"front": "…"}     its public origin from now on
//     {"hold": "/token", "when": "before" | "after", "times": 1, "bearer": true}     holds this many requests to the path (default:
//                        all; with `bearer` only those with a bearer token), before they are processed or before they are answered; a request whose client
//                        disconnects meanwhile is dropped; {"release": true} releases them
import { createHash, randomBytes, verify } from 'node:crypto';
import { once } from 'node:events';
import { createServer } from 'node:http';

import { LIES } from './lies.mjs';

const [lieGiven = 'none', option, portGiven = '0'] = process.argv.slice(2);
if (lieGiven === '--list') {
    for (const [name, what] of Object.entries(LIES)) console.log(`${name.padEnd(24)}${what}`);
    process.exit(0);
}
let lie = known(lieGiven);
if (option !== undefined && option !== '--port') throw new Error(`unknown option ${option}`);

const seen = [];
const secrets = new Set();
const clients = new Map(); // id -> {origin, client_secret, redirect_uris, …}; `agent` exists from the start
const codes = new Map();
const access = new Map(); // token -> {scope, resource, grant}
const refresh = new Map(); // token -> {scope, resource, grant, spent, next}
const grants = new Set(); // the valid ones
const count = { refreshes: 0, reuses: 0, busy: 0, clients: 0, grants: 0, late: 0 };
let origin, away, moved;

function known(name) {
    if (!(name in LIES)) throw new Error(`no lie ${name}; see --list`);
    return name;
}

const is = (...names) => names.includes(lie);

function secret(prefix) {
    const value = `${prefix}-${randomBytes(18).toString('base64url')}`;
    secrets.add(value);
    return value;
}

function json(response, status, value, headers = {}) {
    response.writeHead(status, { 'content-type': 'application/json', ...headers }).end(JSON.stringify(value));
}

const page = (response, status, text) => response.writeHead(status, { 'content-type': 'text/html' }).end(`<html>${text}</html>`);
const redirect = (response, path) => response.writeHead(307, { location: `${away}${path}` }).end();
const missing = response => response.writeHead(404).end('nothing here');

// ---- control by the tests ----------------------------------------------------------------

let hold; // {path, when, times, bearer}
const held = new Set(); // functions that release one request
const watchers = new Set();

/** Holds this request if the test asked for it; false: its client disconnected meanwhile. */
async function heldBack(request, response, path, when) {
    if (hold?.path !== path || hold.when !== when || (hold.bearer && !request.headers.authorization) || hold.times-- < 1) return true;
    const gone = await new Promise(resolve => {
        const tell = () => [...watchers].forEach(look => look());
        const go = lost => {
            if (held.delete(go)) resolve(lost === true);
            tell();
        };
        held.add(go);
        response.once('close', () => go(true));
        tell();
    });
    return !gone;
}

const inside = {
    '/seen': (_url, _body, response) => json(response, 200, seen),
    '/secrets': (_url, _body, response) => json(response, 200, [...secrets]),
    '/state': (_url, _body, response) => json(response, 200, { ...count, alive: grants.size }),
    '/held': (url, _body, response) => {
        const look = () => {
            if (url.searchParams.has('none') ? held.size : held.size < Number(url.searchParams.get('count') ?? 1)) return;
            watchers.delete(look);
            json(response, 200, held.size);
        };
        watchers.add(look);
        look();
    },
    '/control': (_url, body, response) => {
        const order = JSON.parse(body);
        if (order.lie) lie = known(order.lie);
        if (order.moved) moved = order.moved;
        if (order.client) clients.set(order.client.client_id, { ...order.client, origin });
        if (order.front) origin = order.front;
        if (order.expire) access.clear();
        if (order.revoke) grants.clear();
        if (order.forget) clients.clear();
        if (order.hold) hold = { path: order.hold, when: order.when ?? 'before', times: order.times ?? Infinity, bearer: order.bearer };
        if (order.release) hold = undefined;
        if (order.release) for (const go of held) go();
        json(response, 200, {});
    }
};

// ---- the MCP server -------------------------------------------------------------------------

function challenge(token) {
    const said = token ? ', error="invalid_token"' : '';
    const place = { 'insecure-metadata': 'http://198.51.100.1/prm', 'file-metadata': 'file:///etc/passwd', 'link-local-metadata': 'https://169.254.169.254/prm' }[lie];
    if (is('no-challenge')) return {};
    if (is('challenge-list')) return { 'www-authenticate': ['Basic realm="a, Bearer b"', `Bearer resource_metadata="${origin}/elsewhere"`] };
    if (is('metadata-elsewhere')) return { 'www-authenticate': `Bearer resource_metadata="${origin}/elsewhere", scope="from challenge"` };
    if (is('mcp-echo')) return { 'www-authenticate': `Bearer error="invalid_token", error_description="not ${token}"`, 'x-token': token ?? '' };
    return { 'www-authenticate': place ? `Bearer resource_metadata="${place}"` : `Bearer realm="mcp"${said}` };
}

const results = {
    initialize: params => ({ protocolVersion: params.protocolVersion, capabilities: { tools: {} }, serverInfo: { name: 'liar', version: '1' } }),
    'tools/list': () => ({ tools: [{ name: 'echo', description: 'says it again', inputSchema: { type: 'object' } }] }),
    'tools/call': (params, grant) => ({ content: [{ type: 'text', text: `echo ${JSON.stringify(params.arguments)} for grant ${grant?.number}` }] }),
    ping: () => ({})
};

/** The rights of a token; undefined: the token is unknown or for another server. */
function right(token) {
    const found = access.get(token);
    const mine = found && [`${origin}/mcp`, origin, null].includes(found.resource);
    return mine && grants.has(found.grant) ? found : undefined;
}

function mcp({ request, response, body }) {
    const token = /^Bearer (\S+)$/.exec(request.headers.authorization ?? '')?.[1];
    const may = right(token);
    if (is('mcp-redirect') && token) return redirect(response, '/mcp');
    if (!is('open') && !may) return json(response, 401, { error: `unauthorized ${is('mcp-echo') ? token : ''}` }, challenge(token));
    const message = JSON.parse(body);
    if (message.method === 'notifications/initialized' && (is('greeting-refused') || (is('greeting-late') && count.late++ === 0))) {
        access.clear();
        return json(response, 401, {}, challenge(token));
    }
    const wanted = is('scope-forever') ? 'more' : is('step-up') && !may.scope.split(' ').includes('write') ? 'write' : undefined;
    if (message.method === 'tools/call' && wanted) return json(response, 403, {}, { 'www-authenticate': `Bearer error="insufficient_scope", scope="${wanted}"` });
    if (message.id === undefined) return response.writeHead(202).end();
    json(response, 200, { jsonrpc: '2.0', id: message.id, result: results[message.method](message.params, may?.grant) });
}

// The same over HTTP+SSE.
const streams = new Map();

function openStream({ request, response }) {
    const token = /^Bearer (\S+)$/.exec(request.headers.authorization ?? '')?.[1];
    if (!right(token)) return json(response, 401, {}, challenge(token));
    const id = randomBytes(8).toString('hex');
    streams.set(id, response);
    response.writeHead(200, { 'content-type': 'text/event-stream' }).write(`event: endpoint\ndata: /messages?session=${id}\n\n`);
}

function hear({ request, response, url, body }) {
    const token = /^Bearer (\S+)$/.exec(request.headers.authorization ?? '')?.[1];
    const may = right(token);
    const message = JSON.parse(body);
    if (message.method === 'notifications/initialized' && is('greeting-late') && count.late++ === 0) access.clear();
    else if (may) {
        const answer = { jsonrpc: '2.0', id: message.id, result: results[message.method]?.(message.params, may.grant) };
        if (message.id !== undefined) streams.get(url.searchParams.get('session')).write(`event: message\ndata: ${JSON.stringify(answer)}\n\n`);
        return response.writeHead(202).end();
    }
    return json(response, 401, {}, challenge(token));
}

// ---- metadata -------------------------------------------------------------------------------

const SERVERS = {
    'link-local-server': () => ['https://169.254.169.254'],
    'link-local-decimal': () => ['https://2852039166'],
    'link-local-hex': () => ['https://0xa9fea9fe'],
    'link-local-mapped': () => ['https://[::ffff:169.254.169.254]'],
    'private-server': () => ['https://10.255.255.1'],
    'unusable-server': () => ['https://0.0.0.0'],
    'insecure-server': () => ['http://as.example'],
    'issuer-path': () => [`${origin}/tenant`],
    'issuer-path-first': () => [`${origin}/tenant`],
    'issuer-path-second': () => [`${origin}/tenant`],
    'issuer-path-nowhere': () => [`${origin}/tenant`],
    'issuer-path-slash': () => [`${origin}/tenant`],
    'two-servers': () => [`${origin}/broken`, origin],
    'two-good-servers': () => [away, origin],
    migrated: () => [away]
};

const RESOURCES = {
    'resource-mismatch': () => 'https://other.example/mcp',
    'resource-sibling': () => `${origin}/mc`,
    'resource-parent': () => origin
};

function resource({ request, response, path }) {
    const root = path === '/.well-known/oauth-protected-resource';
    if (is('legacy', 'legacy-bare', 'legacy-mismatch')) return missing(response);
    if (is('resource-root') && !root) return missing(response);
    if (is('resource-500')) return response.writeHead(500).end();
    if (is('resource-hangup')) return request.socket.destroy();
    if (is('resource-401', 'resource-403', 'resource-502') && !root) return json(response, Number(lie.slice(-3)), {});
    if (is('resource-html') && !root) return page(response, 200, 'hello');
    if (is('resource-list') && !root) return json(response, 200, [1]);
    if (is('resource-redirect') && !root) return redirect(response, path);
    if (is('resource-duplicate')) return response.end(`{"resource":"${origin}/mcp","resource":"${origin}/mcp","authorization_servers":["${origin}"]}`);
    if (is('resource-drip')) return setInterval(() => response.write(' '), 500);
    if (is('resource-large')) return response.end(`{"pad":"${'x'.repeat(2 << 20)}"}`);
    const elsewhere = is('metadata-elsewhere') && path !== '/elsewhere';
    json(response, 200, {
        resource: elsewhere ? 'https://other.example' : (RESOURCES[lie]?.() ?? `${origin}/mcp`),
        authorization_servers: SERVERS[lie]?.() ?? [moved ?? origin],
        ...(is('scopes', 'step-up') ? { scopes_supported: ['read'] } : {}),
        ...(is('scopes-empty') ? { scopes_supported: [] } : {})
    });
}

const SERVER_SAYS = {
    'issuer-other': () => ({ issuer: 'https://other.example' }),
    'issuer-slash': () => ({ issuer: `${origin}/` }),
    'issuer-extra-path': () => ({ issuer: `${origin}/extra` }),
    'issuer-path-slash': () => ({ issuer: `${origin}/tenant/` }),
    'issuer-absent': () => ({ issuer: undefined }),
    'legacy-mismatch': () => ({ issuer: 'https://other.example' }),
    'token-insecure': () => ({ token_endpoint: 'http://198.51.100.1/token' }),
    'token-link-local': () => ({ token_endpoint: 'https://169.254.169.254/token' }),
    'token-redirect': () => ({ token_endpoint: `${origin}/moved` }),
    'authorize-file': () => ({ authorization_endpoint: 'file:///etc/passwd' }),
    'authorize-link-local': () => ({ authorization_endpoint: 'https://169.254.169.254/authorize' }),
    documents: () => ({ client_id_metadata_document_supported: true }),
    'documents-broken': () => ({ client_id_metadata_document_supported: true }),
    'documents-refused': () => ({ client_id_metadata_document_supported: true }),
    'documents-page': () => ({ client_id_metadata_document_supported: true }),
    'register-link-local': () => ({ registration_endpoint: 'https://169.254.169.254/register' }),
    'pkce-absent': () => ({ code_challenge_methods_supported: undefined }),
    'pkce-plain': () => ({ code_challenge_methods_supported: ['plain'] }),
    'no-code': () => ({ response_types_supported: ['token'] }),
    'no-register': () => ({ registration_endpoint: undefined }),
    'only-post': () => ({ token_endpoint_auth_methods_supported: ['client_secret_post'] }),
    'only-basic': () => ({ token_endpoint_auth_methods_supported: ['client_secret_basic'] }),
    'basic-broken': () => ({ token_endpoint_auth_methods_supported: ['client_secret_basic', 'client_secret_post'] }),
    offline: () => ({ scopes_supported: ['a', 'offline_access'] }),
    'iss-unsaid': () => ({ authorization_response_iss_parameter_supported: undefined }),
    'iss-unpromised': () => ({ authorization_response_iss_parameter_supported: false }),
    'null-members': () => ({ revocation_endpoint: null, jwks_uri: '', scopes_supported: null })
};

/** The only place of the metadata, for lies about that place. */
const PLACES = {
    'oidc-only': '/.well-known/openid-configuration',
    'metadata-401': '/.well-known/openid-configuration',
    'issuer-path-first': '/.well-known/oauth-authorization-server/tenant',
    'issuer-path-second': '/.well-known/openid-configuration/tenant',
    'issuer-path': '/tenant/.well-known/openid-configuration',
    'legacy-bare': ''
};

function metadata({ response, path, here }) {
    const tenant = path.includes('/tenant');
    const place = PLACES[lie] ?? path;
    if (is('metadata-503')) return response.writeHead(503).end();
    if (path !== place && is('metadata-401')) return json(response, 401, {});
    if (path !== place && (tenant || !place.includes('/tenant'))) return missing(response);
    if (is('issuer-path-nowhere') && tenant) return missing(response);
    json(response, 200, {
        issuer: tenant ? `${here}/tenant` : here,
        authorization_endpoint: `${here}/authorize`,
        token_endpoint: `${here}/token`,
        registration_endpoint: `${here}/register`,
        revocation_endpoint: `${here}/revoke`,
        code_challenge_methods_supported: ['S256'],
        response_types_supported: ['code'],
        authorization_response_iss_parameter_supported: true,
        ...SERVER_SAYS[lie]?.()
    });
}

/** The issuer in the metadata; undefined without metadata. */
function issuer(here) {
    if (is('legacy-bare')) return undefined;
    return SERVER_SAYS[lie]?.().issuer ?? SERVERS[lie]?.().find(server => server.startsWith(here) && !server.endsWith('/broken')) ?? here;
}

// ---- registration ---------------------------------------------------------------------------

const MANAGED = ['secret-managed', 'secret-managed-away', 'secret-unmanaged'];

/** RFC 7592: the new metadata of the client. */
function manage({ request, response, path, body }) {
    const client = clients.get(path.slice('/register/'.length));
    const asked = JSON.parse(body);
    if (is('secret-unmanaged') || request.headers.authorization !== `Bearer ${client?.registration_access_token}`) return json(response, 401, { error: 'invalid_token' });
    if (asked.client_id !== client.client_id || asked.redirect_uris.join() !== client.redirect_uris.join()) return json(response, 400, { error: 'invalid_client_metadata' });
    Object.assign(client, { client_secret: secret('secret'), client_secret_expires_at: Math.floor(Date.now() / 1000) + 3600, registration_access_token: secret('management') });
    const { origin: _, ...said } = client;
    return json(response, 200, said);
}

function register({ response, body, here }) {
    const asked = JSON.parse(body);
    if (is('register-refused')) return json(response, 400, { error: 'invalid_redirect_uri', error_description: 'no\u001b[31m loopback' });
    if (is('register-page')) return page(response, 403, 'go\u001b away');
    if (is('register-localhost') && !asked.redirect_uris[0].startsWith('http://localhost:')) return json(response, 400, { error: 'invalid_redirect_uri' });
    if (is('register-html')) return page(response, 200, 'welcome');
    if (is('register-redirect')) return redirect(response, '/register');
    const method = asked.token_endpoint_auth_method;
    const client = {
        client_id: `client-${++count.clients}`,
        redirect_uris: asked.redirect_uris,
        token_endpoint_auth_method: { 'secret-none': 'none', 'method-unknown': 'tls_client_auth', 'secret-no-method': undefined }[lie] ?? method
    };
    if (is('secret-basic', 'method-without-secret', 'basic-overlooked')) client.token_endpoint_auth_method = 'client_secret_basic';
    if (is('secret-no-method')) delete client.token_endpoint_auth_method;
    if (method !== 'none' || is('secret-no-method', 'secret-none', 'secret-basic', 'secret-expired', 'basic-broken', 'basic-overlooked') || is(...MANAGED)) client.client_secret = secret('secret+/%&:');
    if (is('secret-expired', ...MANAGED)) client.client_secret_expires_at = Math.floor(Date.now() / 1000) + 30;
    if (is(...MANAGED)) Object.assign(client, { registration_access_token: secret('management'), registration_client_uri: `${is('secret-managed-away') ? away : here}/register/${client.client_id}` });
    if (is('register-issuer')) client.issuer = 'https://other.example';
    clients.set(client.client_id, { ...client, origin: here });
    if (is('null-members')) Object.assign(client, { client_secret: null, registration_client_uri: '' });
    if (is('register-no-id')) delete client.client_id;
    json(response, is('register-200') ? 200 : 201, { registration_access_token: secret('management'), ...client });
}

// ---- authorization --------------------------------------------------------------------------

const ANSWERS = {
    denied: () => ({ error: 'access_denied', code: undefined }),
    refused: asked => ({ error: 'server_error', error_description: `state ${asked.get('state')} is bad`, code: undefined }),
    'refused-loudly': () => ({ error: 'server_error', error_description: '\u001b]0;owned\u0007\r\n'.repeat(200), code: undefined }),
    'denied-by-stranger': () => ({ error: 'call this number', iss: 'https://other.example', code: undefined }),
    'no-code-back': () => ({ code: undefined }),
    'code-large': () => ({ code: 'x'.repeat(5000) }),
    'state-wrong': () => ({ state: 'AAAA' }),
    'state-absent': () => ({ state: undefined }),
    'iss-wrong': () => ({ iss: 'https://other.example' }),
    'iss-slash': () => ({ iss: `${origin}/` }),
    'iss-missing': () => ({ iss: undefined }),
    'iss-unsaid': () => ({ iss: undefined })
};

function authorize({ response, url, here }) {
    const asked = url.searchParams;
    const id = asked.get('client_id');
    const document = is('documents', 'documents-broken', 'documents-refused') && id.startsWith('https://') ? { client_id: id, origin: here } : undefined;
    if (is('documents') && document && !clients.has(id)) clients.set(id, document);
    const client = clients.get(id) ?? document;
    if (!client || client.origin !== here || (is('client-page') && client.client_id === 'client-1')) return page(response, 400, 'unknown client');
    if (client.redirect_uris && !client.redirect_uris.includes(asked.get('redirect_uri'))) return page(response, 400, 'unknown redirect_uri');
    secrets.add(asked.get('state'));
    const code = secret('code');
    codes.set(code, {
        client,
        challenge: asked.get('code_challenge'),
        scope: asked.get('scope') ?? '',
        redirect: asked.get('redirect_uri'),
        resource: asked.get('resource')
    });
    const back = new URL(asked.get('redirect_uri'));
    const refused = is('documents-refused') && document ? { error: 'invalid_request', error_description: 'unknown client', code: undefined } : {};
    const answer = { code, state: asked.get('state'), iss: issuer(here), ...refused, ...ANSWERS[lie]?.(asked) };
    for (const [name, value] of Object.entries(answer)) if (value !== undefined) back.searchParams.set(name, value);
    const twice = { 'code-twice': 'code', 'state-twice': 'state', 'iss-twice': 'iss' }[lie];
    if (twice) back.searchParams.append(twice, answer[twice]);
    response.writeHead(302, { location: is('back-elsewhere') ? 'https://other.example/?code=x' : back.href }).end();
}

// ---- tokens ---------------------------------------------------------------------------------

/** The client whose key has signed this assertion for us, or undefined. */
function signed(assertion, here) {
    const [head, payload, signature] = assertion.split('.');
    const { sub, aud } = JSON.parse(Buffer.from(payload, 'base64url'));
    const client = clients.get(sub);
    const good = client?.public_key && verify('SHA256', Buffer.from(`${head}.${payload}`), { key: client.public_key, dsaEncoding: 'ieee-p1363' }, Buffer.from(signature, 'base64url'));
    return good && aud === issuer(here) && client.origin === here ? client : undefined;
}

/** The authenticated client, or undefined. */
function proven(request, form, here) {
    if (form.has('client_assertion')) return signed(form.get('client_assertion'), here);
    const basic = /^Basic (.*)$/.exec(request.headers.authorization ?? '')?.[1];
    const [id, given] = basic ? Buffer.from(basic, 'base64').toString().split(':').map(decodeURIComponent) : [form.get('client_id'), form.get('client_secret')];
    const client = clients.get(id);
    if (given) secrets.add(given);
    if (basic) secrets.add(basic);
    if (is('basic-broken') && basic) return undefined;
    return client?.origin === here && (client.client_secret ?? null) === (given ?? null) ? client : undefined;
}

const jwt = payload => `${[{ alg: 'RS256', typ: 'at+jwt' }, payload].map(part => Buffer.from(JSON.stringify(part)).toString('base64url')).join('.')}.${randomBytes(32).toString('base64url')}`;

const SPOIL = {
    'expires-string': () => ({ expires_in: '3600' }),
    'expires-real': () => ({ expires_in: 3600.7 }),
    'expires-zero': () => ({ expires_in: 0 }),
    'expires-zero-string': again => (again ? {} : { expires_in: '0' }),
    'expires-first': again => (again ? {} : { expires_in: 0 }),
    'expires-soon': () => ({ expires_in: 5 }),
    'id-token': () => ({ id_token: secret('identity') }),
    'expires-absent': () => ({ expires_in: undefined }),
    'expires-null': () => ({ expires_in: null }),
    'expires-garbage': () => ({ expires_in: '3600abc' }),
    'expires-negative': () => ({ expires_in: -5 }),
    'expires-huge': () => ({ expires_in: 1e300 }),
    'expires-jwt': () => ({ expires_in: undefined, access_token: jwt({ exp: Math.floor(Date.now() / 1000) + 7200 }) }),
    'type-mac': () => ({ token_type: 'mac' }),
    'type-absent': () => ({ token_type: undefined }),
    'no-access-token': () => ({ access_token: undefined }),
    'token-header-injection': () => ({ access_token: 'a\r\nX-Evil: 1' }),
    'no-refresh-token': () => ({ refresh_token: undefined }),
    'no-rotation': again => (again ? { refresh_token: undefined } : {}),
    'refresh-bare': again => (again ? { refresh_token: undefined, expires_in: undefined, scope: undefined, token_type: undefined } : {})
};

function give(response, from, old) {
    const right = { scope: from.scope, resource: from.resource, client: from.client, grant: from.grant };
    const tokens = { access_token: secret('access'), token_type: 'Bearer', expires_in: 3600, scope: from.scope, refresh_token: secret('refresh'), ...(is('register-issuer') ? { issuer: 'https://other.example' } : {}), ...SPOIL[lie]?.(old !== undefined) };
    if (tokens.access_token) secrets.add(tokens.access_token);
    if (!is('expires-first') || old) access.set(tokens.access_token, right);
    if (tokens.refresh_token) refresh.set(tokens.refresh_token, { ...right, spent: false });
    if (old) Object.assign(old, { spent: tokens.refresh_token !== undefined, next: tokens.refresh_token });
    if (is('token-form')) return response.writeHead(200, { 'content-type': 'application/x-www-form-urlencoded; charset=utf-8' }).end(new URLSearchParams(tokens).toString());
    if (is('token-duplicate')) return response.end(JSON.stringify(tokens).replace('{', `{"access_token":"${secret('access')}",`));
    if (is('token-hangup')) return response.writeHead(200, { 'content-length': 4096 }).write(JSON.stringify(tokens), () => response.destroy());
    json(response, is('token-201') ? 201 : 200, tokens);
}

function grantAnew(response, from) {
    const grant = { number: ++count.grants };
    grants.add(grant);
    give(response, { ...from, grant });
}

/** Answers with the current lie; true if it concerns this request. */
function liesInstead({ response, form }) {
    const again = form.get('grant_type') === 'refresh_token';
    const filler = 'x'.repeat(240);
    if (is('token-503') || (is('token-burst') && count.busy++ < 2)) response.writeHead(503).end('busy');
    else if (is('token-429')) json(response, 429, { error: 'slow_down' }, { 'retry-after': '3' });
    else if (is('token-html') || (is('refresh-html') && again)) page(response, 200, 'hello');
    else if (is('token-200-error')) json(response, 200, { error: 'invalid_grant', error_description: `bad ${form.get('code')} ${form.get('code_verifier')}` });
    else if (is('token-form-error')) response.writeHead(200, { 'content-type': 'application/x-www-form-urlencoded' }).end('error=bad_verification_code&error_description=too+late');
    else if (is('token-echo-cut')) json(response, 400, { error: 'invalid_scope', error_description: `${filler}${form.get('code_verifier')}` });
    else if (is('token-silent')) return true; // and never answers
    else if (is('token-large')) response.end('x'.repeat(2 << 20));
    else if (is('token-redirect-away') || (is('refresh-redirect') && again)) redirect(response, '/token');
    else if (is('refresh-200-error') && again) json(response, 200, { error: 'bad_refresh_token', error_description: `no ${form.get('refresh_token')}` });
    else if (is('refresh-invalid-request') && again) json(response, 400, { error: 'invalid_request' });
    else if (is('refresh-echo') && again) json(response, 400, { error: 'unsupported_grant_type', error_description: `not ${form.get('refresh_token')}` });
    else if (is('refresh-echo-cut') && again) json(response, 400, { error: 'invalid_scope', error_description: `${filler}${form.get('refresh_token')}` });
    else if (is('client-unknown') || (is('client-forgotten') && count.clients === 1) || (is('refresh-invalid-client') && again)) json(response, 401, { error: 'invalid_client' });
    else return false;
    return true;
}

function refreshed(response, form, client) {
    const old = refresh.get(form.get('refresh_token'));
    const grace = is('rotation-grace') && old?.next && !refresh.get(old.next).spent;
    if (is('resource-unwanted') && form.has('resource')) return json(response, 400, { error: 'invalid_request', error_description: 'resource?' });
    if (old?.spent && !grace) {
        count.reuses++;
        grants.delete(old.grant); // the token was copied, so the whole grant is revoked
    }
    if (!old || old.client !== client || !grants.has(old.grant) || (old.spent && !grace)) return json(response, 400, { error: 'invalid_grant', error_description: `no ${form.get('refresh_token')}` });
    if (form.has('resource') && old.resource && form.get('resource') !== old.resource) return json(response, 400, { error: 'invalid_target' });
    count.refreshes++;
    give(response, old, old);
}

function token({ request, response, body, here }) {
    const form = new URLSearchParams(body);
    for (const name of ['code', 'code_verifier', 'refresh_token', 'client_secret']) if (form.has(name)) secrets.add(form.get(name));
    const client = proven(request, form, here);
    if (is('basic-overlooked') && !form.has('client_id')) return json(response, 400, { error: 'invalid_request', error_description: 'Missing client_id' });
    if (liesInstead({ response, form })) return undefined;
    if (!client) return json(response, 401, { error: 'invalid_client', error_description: 'who?' });
    if (form.get('grant_type') === 'refresh_token') return refreshed(response, form, client);
    if (form.get('grant_type') === 'client_credentials') return grantAnew(response, { scope: form.get('scope') ?? '', resource: form.get('resource'), client });
    const attempt = codes.get(form.get('code'));
    codes.delete(form.get('code'));
    const challenge = createHash('sha256').update(form.get('code_verifier') ?? '').digest('base64url');
    if (!attempt || attempt.client !== client || attempt.challenge !== challenge || attempt.redirect !== form.get('redirect_uri') || attempt.resource !== form.get('resource'))
        return json(response, 400, { error: 'invalid_grant' });
    return grantAnew(response, attempt);
}

function revoke({ request, response, body, here }) {
    const form = new URLSearchParams(body);
    const given = form.get('token');
    const client = proven(request, form, here);
    if (is('revoke-redirect')) return redirect(response, '/revoke');
    if (!client) return json(response, 401, { error: 'invalid_client' });
    const found = refresh.get(given) ?? access.get(given);
    if (found?.client === client) grants.delete(found.grant);
    return response.writeHead(200).end();
}

// ---- serving --------------------------------------------------------------------------------

const routes = {
    'POST /mcp': mcp,
    'GET /sse': openStream,
    'POST /messages': hear,
    'GET /.well-known/oauth-protected-resource/mcp': resource,
    'GET /.well-known/oauth-protected-resource': resource,
    'GET /elsewhere': resource,
    'GET /.well-known/oauth-authorization-server': metadata,
    'GET /.well-known/openid-configuration': metadata,
    'GET /.well-known/oauth-authorization-server/tenant': metadata,
    'GET /.well-known/openid-configuration/tenant': metadata,
    'GET /tenant/.well-known/openid-configuration': metadata,
    'POST /register': register,
    'GET /authorize': authorize,
    'POST /token': token,
    'POST /moved': ({ response }) => response.writeHead(307, { location: `${origin}/token` }).end(),
    'POST /revoke': revoke
};

async function serve(request, response, here) {
    const chunks = [];
    for await (const chunk of request) chunks.push(chunk);
    const body = Buffer.concat(chunks).toString();
    const url = new URL(request.url, here);
    const path = url.pathname;
    if (inside[path]) return inside[path](url, body, response);
    seen.push({ method: request.method, path, query: Object.fromEntries(url.searchParams), headers: request.headers, body, away: here === away, at: Date.now() });
    response.setHeader('set-cookie', 'liar=1'); // the gateway must not send it back
    const route = routes[`${request.method} ${path}`] ?? (request.method === 'PUT' && path.startsWith('/register/') ? manage : undefined);
    if (!route) return missing(response);
    if (!(await heldBack(request, response, path, 'before'))) return undefined;
    const end = response.end.bind(response);
    response.end = (...rest) => {
        heldBack(request, response, path, 'after').then(there => there && end(...rest));
        return response;
    };
    return route({ request, response, url, path, body, here });
}

async function listen(port) {
    const server = createServer((request, response) => serve(request, response, server.origin === away ? away : origin)).listen(port, '127.0.0.1');
    await once(server, 'listening');
    server.keepAliveTimeout = 60_000;
    server.origin = `http://127.0.0.1:${server.address().port}`;
    return server.origin;
}

away = await listen(0);
origin = await listen(Number(portGiven));
clients.set('agent', { client_id: 'agent', client_secret: 'agent+secret', origin });
console.log(`${origin}/mcp`);
process.on('SIGTERM', () => process.exit(0));
