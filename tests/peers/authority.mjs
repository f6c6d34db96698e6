// A real OpenID provider (npm oidc-provider) with registration, PKCE, rotation with reuse detection and resource indicators, and an MCP
// server that accepts only its tokens.
//
// usage: tests/peers/node tests/peers/authority.mjs [SECONDS] [ask [documents]] [--tls CERTIFICATE KEY]
//
// Prints the URL of the MCP server. SECONDS is the lifetime of tokens, by default 3600; with `ask` the browser gets a page with a name
// and two buttons, instead of an automatic login; with `documents` client ids may be URLs of metadata documents, and their certificates
// are not verified; with `--tls` both speak https.
//
// GET /count of the MCP server returns the number of requests for each grant type; POST /deny makes the user decline from now on.
import { readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { createServer as createSecureServer } from 'node:https';

import { createLocalJWKSet, exportJWK, generateKeyPair, jwtVerify } from 'jose';
import { Provider } from 'oidc-provider';

const tlsAt = process.argv.indexOf('--tls');
const [certificate, privateFile] = tlsAt < 0 ? [] : process.argv.splice(tlsAt, 3).slice(1);
const scheme = certificate ? 'https' : 'http';
const listener = () => (certificate ? createSecureServer({ cert: readFileSync(certificate), key: readFileSync(privateFile) }) : createServer());
const lifetime = Number(process.argv[2] ?? 3600);
const asks = process.argv[3] === 'ask';
const documents = process.argv[4] === 'documents';
if (documents) process.env.NODE_TLS_REJECT_UNAUTHORIZED = '0';
const count = {};
let deny = false;

const { privateKey } = await generateKeyPair('RS256', { extractable: true });
const key = { ...(await exportJWK(privateKey)), alg: 'RS256', use: 'sig', kid: 'one' };
const { d, ...publicKey } = key;
const keys = createLocalJWKSet({ keys: [publicKey] });

const front = listener();
const back = listener();
await new Promise(resolve => front.listen(0, '127.0.0.1', resolve));
await new Promise(resolve => back.listen(0, '127.0.0.1', resolve));
const issuer = `${scheme}://127.0.0.1:${front.address().port}`;
const resource = `${scheme}://127.0.0.1:${back.address().port}/mcp`;

// ---- the provider ---------------------------------------------------------------------------

const provider = new Provider(issuer, {
    fetch: (url, { dispatcher, ...options }) => fetch(url, options),
    jwks: { keys: [key] },
    clients: [],
    scopes: ['openid', 'offline_access', 'mcp:use', 'mcp:write'],
    pkce: { required: () => true },
    rotateRefreshToken: true,
    issueRefreshToken: (_context, client) => client.grantTypeAllowed('refresh_token'),
    interactions: { url: (_context, interaction) => `/${asks ? 'ask' : 'auto'}/${interaction.uid}` },
    findAccount: (_context, id) => ({ accountId: id, claims: () => ({ sub: id }) }),
    ttl: { AccessToken: lifetime, Grant: 86400, RefreshToken: 86400, Session: 86400, Interaction: 600 },
    features: {
        devInteractions: { enabled: false },
        registration: { enabled: true },
        ...(documents && { clientIdMetadataDocument: { enabled: true, ack: 'draft-02' } }),
        revocation: { enabled: true, allowedPolicy: () => true },
        resourceIndicators: {
            enabled: true,
            defaultResource: () => resource,
            useGrantedResource: () => true,
            getResourceServerInfo: (_context, asked) => {
                if (asked !== resource) throw new Error('invalid_target');
                return { scope: 'mcp:use mcp:write', audience: resource, accessTokenTTL: lifetime, accessTokenFormat: 'jwt', jwt: { sign: { alg: 'RS256' } } };
            }
        }
    }
});
provider.on('grant.success', context => (count[context.oidc.params.grant_type] = (count[context.oidc.params.grant_type] ?? 0) + 1));
provider.on('refresh_token.destroyed', () => (count.revoked = (count.revoked ?? 0) + 1));
provider.on('registration_create.success', () => (count.registered = (count.registered ?? 0) + 1));
provider.on('grant.error', context => (count.refused = (count.refused ?? 0) + 1));

/** Completes a login as a user who always agrees, or always declines. */
async function decide(request, response, accountId = 'alice', denied = deny) {
    const { params, grantId } = await provider.interactionDetails(request, response);
    if (denied) return provider.interactionFinished(request, response, { error: 'access_denied', error_description: 'the user declined' });
    const grant = grantId ? await provider.Grant.find(grantId) : new provider.Grant({ accountId, clientId: params.client_id });
    grant.addOIDCScope('openid offline_access mcp:use mcp:write');
    grant.addResourceScope(resource, 'mcp:use mcp:write');
    const result = { login: { accountId }, consent: { grantId: await grant.save() } };
    await provider.interactionFinished(request, response, result, { mergeWithLastSubmission: true });
}

/** The consent page, and the handler of its form. */
async function ask(request, response) {
    if (request.method === 'POST') {
        const chunks = [];
        for await (const chunk of request) chunks.push(chunk);
        const form = new URLSearchParams(Buffer.concat(chunks).toString());
        return decide(request, response, form.get('name'), form.get('answer') === 'deny');
    }
    response.writeHead(200, { 'content-type': 'text/html' });
    response.end(`<title>Authority</title><form method="post"><input name="name" value="alice"><button name="answer" value="allow">Allow</button>
        <button name="answer" value="deny">Deny</button></form>`);
}

const handle = provider.callback();
front.on('request', (request, response) => {
    if (request.url.startsWith('/ask/')) return ask(request, response);
    if (request.url.startsWith('/auto/')) return decide(request, response);
    handle(request, response);
});

// ---- the MCP server -------------------------------------------------------------------------

const results = {
    initialize: params => ({
        protocolVersion: params.protocolVersion,
        capabilities: { tools: {}, prompts: {}, resources: { subscribe: true }, completions: {} },
        serverInfo: { name: 'authority', version: '1' }
    }),
    'tools/list': () => ({ tools: [{ name: 'whoami', inputSchema: { type: 'object' } }] }),
    'prompts/list': () => ({ prompts: [{ name: 'introduce' }] }),
    'prompts/get': (_params, who) => ({ messages: [{ role: 'user', content: { type: 'text', text: who.sub } }] }),
    'resources/list': () => ({ resources: [{ uri: 'account://me', name: 'me' }] }),
    'resources/templates/list': () => ({ resourceTemplates: [{ uriTemplate: 'account://me/{part}', name: 'part' }] }),
    'resources/read': ({ uri }, who) => ({ contents: [{ uri, text: who.sub }] }),
    'resources/subscribe': () => ({}),
    'resources/unsubscribe': () => ({}),
    'completion/complete': (_params, who) => ({ completion: { values: [who.sub] } }),
    'tools/call': (_params, who) => ({ content: [{ type: 'text', text: who.sub }] })
};

async function mcp(request, response) {
    const challenge = { 'www-authenticate': `Bearer resource_metadata="${new URL(resource).origin}/.well-known/oauth-protected-resource/mcp", scope="mcp:use"` };
    let who;
    try {
        const token = /^Bearer (\S+)$/.exec(request.headers.authorization ?? '')[1];
        who = (await jwtVerify(token, keys, { issuer, audience: resource })).payload;
    } catch {
        return response.writeHead(401, challenge).end();
    }
    const chunks = [];
    for await (const chunk of request) chunks.push(chunk);
    const message = JSON.parse(Buffer.concat(chunks));
    if (message.id === undefined) return response.writeHead(202).end();
    response.writeHead(200, { 'content-type': 'application/json' });
    response.end(JSON.stringify({ jsonrpc: '2.0', id: message.id, result: results[message.method](message.params, who) }));
}

back.on('request', (request, response) => {
    if (request.url === '/count') return response.end(JSON.stringify(count));
    if (request.url === '/deny') return response.end(String((deny = true)));
    if (request.url === '/.well-known/oauth-protected-resource/mcp')
        return response.end(JSON.stringify({ resource, authorization_servers: [issuer], scopes_supported: ['mcp:use'] }));
    if (request.url === '/mcp' && request.method === 'POST') return mcp(request, response).catch(() => response.destroy()); // the client has disconnected
    response.writeHead(404).end();
});

console.log(resource);
process.on('SIGTERM', () => process.exit(0));
