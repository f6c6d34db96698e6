// An MCP server and its authorization server in one, honest but for the one lie it is told to tell.
//
// usage: tests/peers/node tests/peers/liar.mjs LIE     prints the URL of the MCP server on the first line
//
// GET /seen gives every request so far, GET /secrets every secret it has given out or was sent. POST /control changes it while it runs:
// {"lie": "…"}, {"expire": true} makes all access tokens invalid, {"revoke": true} all refresh tokens, {"moved": ISSUER} names another
// authorization server from now on.
import { createHash, randomBytes } from 'node:crypto';
import { createServer } from 'node:http';

let lie = process.argv[2] ?? 'none';
const seen = [];
const secrets = new Set();
const clients = new Map([['agent', { client_id: 'agent', client_secret: 'agent+secret' }]]);
const codes = new Map();
let access = new Map(); // token -> {scope, grant}
let refresh = new Map(); // token -> grant while it is good
let grants = 0;
let bursts = 0;
let moved;

const secret = prefix => {
    const value = `${prefix}-${randomBytes(18).toString('base64url')}`;
    secrets.add(value);
    return value;
};

const server = createServer(async (request, response) => {
    const chunks = [];
    for await (const chunk of request) chunks.push(chunk);
    const body = Buffer.concat(chunks).toString();
    const url = new URL(request.url, `http://${request.headers.host}`);
    if (url.pathname === '/seen') return json(response, 200, seen);
    if (url.pathname === '/secrets') return json(response, 200, [...secrets]);
    if (url.pathname === '/control') return control(JSON.parse(body), response);
    seen.push({ method: request.method, path: url.pathname, query: Object.fromEntries(url.searchParams), headers: request.headers, body });
    const route = routes[`${request.method} ${url.pathname}`] ?? routes[url.pathname];
    if (route) return route(request, response, url, body);
    response.writeHead(404).end('nothing here');
});

function json(response, status, value, headers = {}) {
    response.writeHead(status, { 'content-type': 'application/json', ...headers }).end(JSON.stringify(value));
}

function control(order, response) {
    if (order.lie) lie = order.lie;
    if (order.moved) moved = order.moved;
    if (order.expire) access = new Map();
    if (order.revoke) refresh = new Map();
    json(response, 200, {});
}

const origin = () => `http://127.0.0.1:${server.address().port}`;

// ---- the MCP server -------------------------------------------------------------------------

function challenge(extra = '') {
    if (lie === 'no-challenge') return {};
    if (lie === 'challenge-list') return { 'www-authenticate': ['Basic realm="a, Bearer b"', `Bearer resource_metadata="${origin()}/elsewhere"`] };
    if (lie === 'metadata-elsewhere') return { 'www-authenticate': `Bearer resource_metadata="${origin()}/elsewhere", scope="from challenge"` };
    if (lie === 'insecure-metadata') return { 'www-authenticate': 'Bearer resource_metadata="http://198.51.100.1/prm"' };
    if (lie === 'file-metadata') return { 'www-authenticate': 'Bearer resource_metadata="file:///etc/passwd"' };
    return { 'www-authenticate': `Bearer realm="mcp"${extra}` };
}

const results = {
    initialize: params => ({ protocolVersion: params.protocolVersion, capabilities: { tools: {} }, serverInfo: { name: 'liar', version: '1' } }),
    'tools/list': () => ({ tools: [{ name: 'echo', description: 'says it again', inputSchema: { type: 'object' } }] }),
    'tools/call': (params, grant) => ({ content: [{ type: 'text', text: `echo ${JSON.stringify(params.arguments)} for grant ${grant}` }] }),
    ping: () => ({})
};

function mcp(request, response, _url, body) {
    const token = /^Bearer (\S+)$/.exec(request.headers.authorization ?? '')?.[1];
    if (lie !== 'open' && !access.has(token)) return json(response, 401, { error: 'unauthorized' }, challenge(token ? ', error="invalid_token"' : ''));
    const message = JSON.parse(body);
    if (message.method === 'tools/call' && lie === 'scope-forever')
        return json(response, 403, {}, { 'www-authenticate': 'Bearer error="insufficient_scope", scope="more"' });
    if (message.method === 'tools/call' && lie === 'step-up' && !access.get(token).scope.split(' ').includes('write'))
        return json(response, 403, {}, { 'www-authenticate': 'Bearer error="insufficient_scope", scope="write"' });
    if (message.id === undefined) return response.writeHead(202).end();
    json(response, 200, { jsonrpc: '2.0', id: message.id, result: results[message.method](message.params, access.get(token)?.grant) });
}

// ---- metadata -------------------------------------------------------------------------------

const servers = () =>
    ({
        'link-local-server': ['https://169.254.169.254'],
        'unusable-server': ['https://0.0.0.0'],
        'insecure-server': ['http://as.example'],
        'issuer-path': [`${origin()}/tenant`],
        'two-servers': [`${origin()}/broken`, origin()]
    })[lie] ?? [moved ?? origin()];

function resource(_request, response, url) {
    const root = url.pathname === '/.well-known/oauth-protected-resource';
    if (['legacy', 'legacy-bare', 'legacy-mismatch'].includes(lie)) return response.writeHead(404).end();
    if (lie === 'resource-hangup') return response.destroy();
    if (lie === 'resource-500') return response.writeHead(500).end();
    if (lie === 'resource-401' && !root) return json(response, 401, {});
    if (lie === 'resource-502' && !root) return response.writeHead(502).end();
    if (lie === 'resource-html' && !root) return response.writeHead(200, { 'content-type': 'text/html' }).end('<html>hello</html>');
    if (lie === 'resource-redirect' && !root) return response.writeHead(302, { location: `${origin()}/elsewhere` }).end();
    if (lie === 'resource-duplicate') return response.end(`{"resource":"${origin()}/mcp","resource":"${origin()}/mcp","authorization_servers":["${origin()}"]}`);
    if (lie === 'resource-large') return response.end(`{"pad":"${'x'.repeat(2 << 20)}"}`);
    json(response, 200, {
        resource: lie === 'resource-mismatch' ? 'https://other.example/mcp' : `${origin()}/mcp`,
        authorization_servers: servers(),
        ...(lie === 'scopes' || lie === 'step-up' ? { scopes_supported: ['read'] } : {}),
        ...(lie === 'scopes-empty' ? { scopes_supported: [] } : {})
    });
}

const LIES_OF_METADATA = {
    'issuer-other': () => ({ issuer: 'https://other.example' }),
    'issuer-slash': () => ({ issuer: `${origin()}/` }),
    'issuer-extra-path': () => ({ issuer: `${origin()}/extra` }),
    'issuer-path': () => ({ issuer: `${origin()}/tenant` }),
    'legacy-mismatch': () => ({ issuer: 'https://other.example' }),
    'token-insecure': () => ({ token_endpoint: 'http://198.51.100.1/token' }),
    'authorize-file': () => ({ authorization_endpoint: 'file:///etc/passwd' }),
    documents: () => ({ client_id_metadata_document_supported: true }),
    'documents-broken': () => ({ client_id_metadata_document_supported: true }),
    'authorize-link-local': () => ({ authorization_endpoint: 'https://169.254.169.254/authorize' }),
    'register-link-local': () => ({ registration_endpoint: 'https://169.254.169.254/register' }),
    'pkce-absent': () => ({ code_challenge_methods_supported: undefined }),
    'pkce-plain': () => ({ code_challenge_methods_supported: ['plain'] }),
    'no-code': () => ({ response_types_supported: ['token'] }),
    'no-register': () => ({ registration_endpoint: undefined }),
    'only-post': () => ({ token_endpoint_auth_methods_supported: ['client_secret_post'] }),
    'only-basic': () => ({ token_endpoint_auth_methods_supported: ['client_secret_basic'] }),
    offline: () => ({ scopes_supported: ['a', 'offline_access'] }),
    'iss-missing': () => ({ authorization_response_iss_parameter_supported: true }),
    'iss-good': () => ({ authorization_response_iss_parameter_supported: true }),
    'null-members': () => ({ revocation_endpoint: null, jwks_uri: '', scopes_supported: null })
};

function metadata(_request, response, url) {
    if (lie === 'legacy-bare') return response.writeHead(404).end();
    if (lie === 'oidc-only' && !url.pathname.includes('openid')) return response.writeHead(404).end();
    if (lie === 'metadata-401' && !url.pathname.includes('openid')) return json(response, 401, {});
    if (lie === 'metadata-503') return response.writeHead(503).end();
    if (lie === 'issuer-path' && url.pathname !== '/tenant/.well-known/openid-configuration') return response.writeHead(404).end();
    json(response, 200, {
        issuer: origin(),
        authorization_endpoint: `${origin()}/authorize`,
        token_endpoint: lie === 'token-redirect' ? `${origin()}/moved` : `${origin()}/token`,
        registration_endpoint: `${origin()}/register`,
        revocation_endpoint: `${origin()}/revoke`,
        code_challenge_methods_supported: ['S256'],
        response_types_supported: ['code'],
        ...LIES_OF_METADATA[lie]?.()
    });
}

// ---- registration ---------------------------------------------------------------------------

function register(_request, response, _url, body) {
    const asked = JSON.parse(body);
    const client = { client_id: `client-${clients.size}`, redirect_uris: asked.redirect_uris };
    if (lie === 'register-refused') return json(response, 400, { error: 'invalid_redirect_uri', error_description: 'no\u001b[31m loopback' });
    if (lie === 'register-html') return response.writeHead(200, { 'content-type': 'text/html' }).end('<html>');
    const method = asked.token_endpoint_auth_method;
    const confidential = method !== 'none' || ['secret-no-method', 'secret-none', 'secret-basic', 'secret-expired'].includes(lie);
    if (confidential) client.client_secret = secret('secret+/%&:');
    if (lie === 'secret-none') client.token_endpoint_auth_method = 'none';
    else if (lie === 'secret-basic') client.token_endpoint_auth_method = 'client_secret_basic';
    else if (lie === 'method-without-secret') client.token_endpoint_auth_method = 'client_secret_basic';
    else if (lie === 'method-unknown') client.token_endpoint_auth_method = 'tls_client_auth';
    else if (lie === 'secret-no-method') delete client.token_endpoint_auth_method;
    else client.token_endpoint_auth_method = method;
    if (lie === 'secret-expired') client.client_secret_expires_at = Math.floor(Date.now() / 1000) + 30;
    if (lie === 'null-members') Object.assign(client, { client_secret: null, registration_client_uri: '' });
    clients.set(client.client_id, client);
    json(response, lie === 'register-200' ? 200 : 201, client);
}

// ---- authorization --------------------------------------------------------------------------

function authorize(_request, response, url) {
    const asked = url.searchParams;
    const document = lie.startsWith('documents') && asked.get('client_id').startsWith('https://');
    if (document && lie === 'documents') clients.set(asked.get('client_id'), {});
    if (!clients.has(asked.get('client_id')) && !document) return response.writeHead(400, { 'content-type': 'text/html' }).end('<html>unknown client</html>');
    secrets.add(asked.get('state'));
    const back = new URL(asked.get('redirect_uri'));
    const answer = back.searchParams;
    const code = secret('code');
    codes.set(code, { challenge: asked.get('code_challenge'), scope: asked.get('scope') ?? '', redirect: asked.get('redirect_uri'), resource: asked.get('resource') });
    if (lie === 'denied') answer.set('error', 'access_denied');
    else if (lie === 'refused') Object.entries({ error: 'server_error', error_description: `state ${asked.get('state')} is bad` }).forEach(pair => answer.set(...pair));
    else if (lie !== 'no-code-back') answer.set('code', code);
    answer.set('state', lie === 'state-wrong' ? 'AAAA' : asked.get('state'));
    if (lie === 'iss-wrong') answer.set('iss', 'https://other.example');
    if (lie === 'iss-good') answer.set('iss', origin());
    if (lie === 'iss-slash') answer.set('iss', `${origin()}/`);
    if (lie === 'code-twice') answer.append('code', 'another');
    if (lie === 'denied-by-stranger') Object.entries({ error: 'call this number', iss: 'https://other.example' }).forEach(pair => answer.set(...pair));
    response.writeHead(302, { location: lie === 'back-elsewhere' ? 'https://other.example/?code=x' : back.href }).end();
}

// ---- tokens ---------------------------------------------------------------------------------

function clientOf(request, form) {
    const basic = /^Basic (.*)$/.exec(request.headers.authorization ?? '')?.[1];
    if (!basic) return [form.get('client_id'), form.get('client_secret')];
    return Buffer.from(basic, 'base64').toString().split(':').map(decodeURIComponent);
}

function provenClient(request, form) {
    const [id, given] = clientOf(request, form);
    const client = clients.get(id);
    const basic = request.headers.authorization !== undefined;
    if (lie === 'basic-broken' && basic) return false;
    return client && (client.client_secret ?? null) === (given ?? null);
}

function spoil(tokens) {
    if (lie === 'expires-string') tokens.expires_in = '3600';
    if (lie === 'expires-zero') tokens.expires_in = 0;
    if (lie === 'expires-absent') delete tokens.expires_in;
    if (lie === 'expires-garbage') tokens.expires_in = '3600abc';
    if (lie === 'expires-negative') tokens.expires_in = -5;
    if (lie === 'expires-huge') tokens.expires_in = 1e300;
    if (lie === 'expires-short') tokens.expires_in = 1;
    if (lie === 'type-mac') tokens.token_type = 'mac';
    if (lie === 'type-absent') delete tokens.token_type;
    if (lie === 'no-access-token') delete tokens.access_token;
    if (lie === 'token-header-injection') tokens.access_token = 'a\r\nX-Evil: 1';
    if (lie === 'no-refresh-token') delete tokens.refresh_token;
    return tokens;
}

function give(response, scope, grant, old) {
    const tokens = { access_token: secret('access'), token_type: 'Bearer', expires_in: 3600, scope };
    access.set(tokens.access_token, { scope, grant });
    if (lie === 'no-rotation' && old) refresh.set(old, grant);
    else {
        tokens.refresh_token = secret('refresh');
        refresh.set(tokens.refresh_token, grant);
    }
    spoil(tokens);
    if (lie === 'token-form') return response.writeHead(200, { 'content-type': 'application/x-www-form-urlencoded' }).end(new URLSearchParams(tokens).toString());
    json(response, lie === 'token-201' ? 201 : 200, tokens);
}

async function token(request, response, _url, body) {
    const form = new URLSearchParams(body);
    for (const name of ['code', 'code_verifier', 'refresh_token', 'client_secret']) if (form.has(name)) secrets.add(form.get(name));
    if (lie === 'token-503' || (lie === 'token-burst' && bursts++ < 2)) return response.writeHead(503).end('busy');
    if (lie === 'token-html') return response.writeHead(200, { 'content-type': 'text/html' }).end('<html>');
    if (lie === 'token-200-error') return json(response, 200, { error: 'invalid_grant', error_description: `bad ${form.get('code')} ${form.get('code_verifier')}` });
    if (lie === 'token-large') return response.end('x'.repeat(2 << 20));
    if (lie === 'client-forgotten' && clients.size === 2) return json(response, 401, { error: 'invalid_client' });
    if (lie === 'client-unknown') return json(response, 401, { error: 'invalid_client' });
    if (lie === 'token-silent') return; // and never answers
    if (!provenClient(request, form)) return json(response, 401, { error: 'invalid_client', error_description: 'who?' });
    if (form.get('grant_type') === 'client_credentials') return give(response, form.get('scope') ?? '', ++grants);
    if (form.get('grant_type') === 'refresh_token') {
        if (lie === 'resource-unwanted' && form.has('resource')) return json(response, 400, { error: 'invalid_request', error_description: 'resource?' });
        const old = form.get('refresh_token');
        if (lie === 'refresh-echo') return json(response, 400, { error: 'unsupported_grant_type', error_description: `not ${old}` });
        const grant = refresh.get(old);
        if (!grant) return json(response, 400, { error: 'invalid_grant', error_description: `no ${old}` });
        refresh.delete(old);
        return give(response, '', grant, old);
    }
    const attempt = codes.get(form.get('code'));
    codes.delete(form.get('code'));
    const challenge = createHash('sha256').update(form.get('code_verifier') ?? '').digest('base64url');
    if (!attempt || attempt.challenge !== challenge || attempt.redirect !== form.get('redirect_uri') || attempt.resource !== form.get('resource'))
        return json(response, 400, { error: 'invalid_grant' });
    give(response, attempt.scope, ++grants);
}

const routes = {
    'POST /mcp': mcp,
    '/.well-known/oauth-protected-resource/mcp': resource,
    '/.well-known/oauth-protected-resource': resource,
    '/elsewhere': resource,
    '/.well-known/oauth-authorization-server': metadata,
    '/.well-known/openid-configuration': metadata,
    '/.well-known/oauth-authorization-server/tenant': metadata,
    '/.well-known/openid-configuration/tenant': metadata,
    '/tenant/.well-known/openid-configuration': metadata,
    'POST /register': register,
    'GET /authorize': authorize,
    'POST /token': token,
    'POST /moved': (_request, response) => response.writeHead(307, { location: `${origin()}/token` }).end(),
    'POST /revoke': (_request, response) => response.writeHead(200).end()
};

server.listen(0, '127.0.0.1', () => console.log(`${origin()}/mcp`));
process.on('SIGTERM', () => process.exit(0));
