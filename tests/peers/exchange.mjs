// Two real OpenID providers (npm oidc-provider) and a server that accepts only their tokens: `idp`, which knows the users and exchanges
// tokens (RFC 8693, ID-JAG), and `as`, which accepts clients, workloads and ID-JAGs (RFC 7523). The exchanges are grant types defined here; the
// clients are authenticated by the provider.
//
// `state` may be changed at any time: the lifetime of tokens, the refused subjects with their errors, the tokens that the server refuses, the
// scopes that a tool needs, and false values in the metadata of the providers.
// `asked` has every token request of an authenticated client; `seen` has every request to the server.
import { createServer } from 'node:http';
import { text } from 'node:stream/consumers';

import { createLocalJWKSet, exportJWK, generateKeyPair, importJWK, jwtVerify, SignJWT } from 'jose';
import { errors, Provider } from 'oidc-provider';

const TYPE = 'urn:ietf:params:oauth:token-type:';
const GRANT = 'urn:ietf:params:oauth:grant-type:';
const SCOPES = 'mcp:use mcp:write mcp:admin';

const listen = server => new Promise(done => server.listen(0, '127.0.0.1', () => done(`http://127.0.0.1:${server.address().port}`)));
const client = (client_id, grant_types, more = {}) => ({
    client_id, client_secret: `the secret of ${client_id}`, grant_types, redirect_uris: [], response_types: [], token_endpoint_auth_method: 'client_secret_basic',
    id_token_signed_response_alg: 'ES256', ...more
});

async function makeKey(kid) {
    const { privateKey } = await generateKeyPair('ES256', { extractable: true });
    const whole = { ...(await exportJWK(privateKey)), alg: 'ES256', use: 'sig', kid };
    const { d, ...open } = whole;
    return { whole, open, privateKey: await importJWK(whole, 'ES256') };
}

function provide(issuer, key, clients, state, asked) {
    const provider = new Provider(issuer, {
        jwks: { keys: [key.whole] },
        clients,
        scopes: SCOPES.split(' '),
        ttl: { ClientCredentials: (_context, _token, { clientId }) => (state.callers.includes(clientId) ? state.callerLifetime : state.told ?? state.lifetime) },
        formats: { customizers: { jwt: (_context, { clientId }, { payload }) => { if (!state.callers.includes(clientId)) payload.exp = payload.iat + state.lifetime; } } },
        clientAuthMethods: ['client_secret_basic', 'client_secret_post', 'private_key_jwt', 'none'],
        enabledJWA: { clientAuthSigningAlgValues: ['RS256', 'ES256'] },
        features: {
            devInteractions: { enabled: false },
            clientCredentials: { enabled: true },
            resourceIndicators: {
                enabled: true,
                defaultResource: () => undefined,
                useGrantedResource: () => true,
                getResourceServerInfo: (_context, resource) => ({ scope: SCOPES, audience: resource, accessTokenFormat: 'jwt', jwt: { sign: { alg: 'ES256' } } })
            }
        }
    });
    const note = context => {
        const by = context.oidc.client?.clientId;
        if (!state.callers.includes(by)) asked.push({ at: issuer, client: by, ...context.oidc.params });
    };
    provider.on('grant.success', note);
    provider.on('grant.error', note);
    provider.on('server_error', (_context, error) => console.error(error));
    return provider;
}

/**
 * Starts the providers and the server; tokens are valid for `state.lifetime` seconds, but their issuer announces `state.told` if set;
 * `audience` is that of the gateway, `gatewayKey` the public JWK of its client with a key.
 */
export async function startExchange(audience, gatewayKey) {
    const state = { callers: ['ana', 'bob', 'eve'], callerLifetime: 120, lifetime: 120, refuse: {}, refused: new Set(), needs: {}, given: SCOPES, strict: false, down: false, lies: {} };
    const asked = [], seen = [];
    const listeners = { idp: createServer(), as: createServer(), server: createServer() };
    const [idp, as, origin] = await Promise.all(Object.values(listeners).map(listen));
    const keys = { idp: await makeKey('idp-1'), as: await makeKey('as-1'), workload: await makeKey('workload-1') };
    const known = createLocalJWKSet({ keys: Object.values(keys).map(({ open }) => open) });

    const people = state.callers.map(name => client(name, ['client_credentials'], { client_secret: name, token_endpoint_auth_method: 'client_secret_post' }));
    const providers = {
        idp: provide(idp, keys.idp, [...people, client('gateway', [`${GRANT}token-exchange`])], state, asked),
        as: provide(as, keys.as, [
            client('gateway', ['client_credentials', `${GRANT}jwt-bearer`]),
            client('gateway-key', ['client_credentials'], { client_secret: undefined, token_endpoint_auth_method: 'private_key_jwt', token_endpoint_auth_signing_alg: 'ES256', jwks: { keys: [gatewayKey] } }),
            client('workload', [`${GRANT}jwt-bearer`], { client_secret: undefined, token_endpoint_auth_method: 'none' })
        ], state, asked)
    };

    const sign = (key, claims, typ, seconds) =>
        new SignJWT(claims).setProtectedHeader({ alg: 'ES256', kid: key.open.kid, typ }).setIssuedAt().setJti(crypto.randomUUID()).setExpirationTime(`${seconds}s`).sign(key.privateKey);
    const check = async (token, rules) => {
        try {
            return (await jwtVerify(token, known, rules)).payload;
        } catch {
            throw new errors.InvalidGrant('the token does not convince');
        }
    };
    const refuse = sub => {
        const said = state.refuse[sub];
        if (said) throw Object.assign(new errors.InvalidGrant(said), { error_description: said });
    };
    /** An access token of this issuer for the requested resource. */
    const give = async (context, at, sub) => {
        const { resource, scope } = context.oidc.params;
        const granted = (scope ?? 'mcp:use').split(' ').filter(one => state.given.includes(one)).join(' ');
        if (state.strict && granted !== scope) throw new errors.InvalidScope('more than you may have', scope);
        const claims = { iss: at === 'idp' ? idp : as, sub, aud: resource, client_id: context.oidc.client.clientId, scope: granted };
        return { access_token: await sign(keys[at], claims, 'at+jwt', state.lifetime), token_type: 'Bearer', expires_in: state.told ?? state.lifetime, scope: granted };
    };
    providers.idp.registerGrantType(`${GRANT}token-exchange`, async context => {
        const { subject_token, requested_token_type, audience: to, resource } = context.oidc.params;
        const { sub } = await check(subject_token, { issuer: idp, audience });
        refuse(sub);
        if (requested_token_type === `${TYPE}id-jag`)
            context.body = { access_token: await sign(keys.idp, { iss: idp, sub, aud: to, client_id: 'gateway', resource }, 'oauth-id-jag+jwt', 60), issued_token_type: `${TYPE}id-jag`, token_type: 'N_A' };
        else context.body = { ...(await give(context, 'idp', sub)), issued_token_type: `${TYPE}access_token` };
    }, ['subject_token', 'subject_token_type', 'requested_token_type', 'audience', 'resource', 'scope']);
    providers.as.registerGrantType(`${GRANT}jwt-bearer`, async context => {
        const { assertion } = context.oidc.params;
        const jag = context.oidc.client.clientId === 'gateway';
        const { sub } = await check(assertion, jag ? { issuer: idp, audience: as, typ: 'oauth-id-jag+jwt' } : { issuer: 'https://workloads.example', audience: as });
        refuse(sub);
        context.body = await give(context, 'as', sub);
    }, ['assertion', 'resource', 'scope']);
    for (const at of ['idp', 'as']) {
        const handle = providers[at].callback();
        listeners[at].on('request', (request, response) => {
            const lie = request.url.startsWith('/.well-known/oauth-authorization-server') && state.lies[at];
            if (lie) return response.writeHead(lie.status ?? 200, { 'content-type': 'application/json' }).end(JSON.stringify(lie));
            if (request.url === '/.well-known/oauth-authorization-server') request.url = '/.well-known/openid-configuration';
            if (state.down && request.url === '/token') return response.writeHead(503).end();
            handle(request, response);
        });
    }

    // ---- the server: /mcp accepts tokens of `as`, /exchange/mcp those of `idp`

    const results = {
        initialize: ({ protocolVersion }) => ({ protocolVersion, capabilities: { tools: {} }, serverInfo: { name: 'exchange', version: '1' } }),
        'tools/list': () => ({ tools: ['whoami', 'write', 'admin'].map(name => ({ name, inputSchema: { type: 'object' } })) }),
        'tools/call': (_params, who) => ({ content: [{ type: 'text', text: who.sub }] })
    };
    const issuerOf = path => (path === '/exchange/mcp' ? idp : as);
    async function mcp(request, response) {
        const path = request.url;
        const challenge = more => ({ 'www-authenticate': `Bearer resource_metadata="${origin}/.well-known/oauth-protected-resource${path}"${more}` });
        const token = /^Bearer (\S+)$/.exec(request.headers.authorization ?? '')?.[1];
        const body = await text(request);
        const message = body ? JSON.parse(body) : {};
        let who;
        try {
            who = (await jwtVerify(token, known, { issuer: issuerOf(path), audience: `${origin}${path}` })).payload;
            if (state.refused.has(who.jti)) throw new Error('revoked');
        } catch {
            who = undefined;
        }
        seen.push({ path: request.url, method: message.method ?? request.method, token, who, headers: request.headers });
        if (!who) return response.writeHead(401, challenge('')).end();
        const needed = state.needs[message.params?.name];
        if (needed && !needed.split(' ').every(one => who.scope?.split(' ').includes(one)))
            return response.writeHead(403, challenge(`, error="insufficient_scope", scope="${needed}"`)).end();
        if (request.method !== 'POST') return response.writeHead(405).end();
        if (message.id === undefined) return response.writeHead(202).end();
        const answer = JSON.stringify({ jsonrpc: '2.0', id: message.id, result: (results[message.method] ?? (() => ({})))(message.params, who) });
        response.writeHead(200, { 'content-type': 'application/json' }).end(answer);
    }
    listeners.server.on('request', (request, response) => {
        const [, path] = /^\/\.well-known\/oauth-protected-resource(\/.*)$/.exec(request.url) ?? [];
        if (path)
            return response.end(JSON.stringify({ resource: `${origin}${path}`, authorization_servers: state.servers ?? [issuerOf(path)], scopes_supported: ['mcp:use'] }));
        if (request.url.endsWith('/mcp')) return mcp(request, response);
        response.writeHead(404).end();
    });

    return {
        idp, as, origin, state, asked, seen, keys,
        sign,
        /** Before a test: changes the state, and forgets all recorded requests. */
        reset(changes) {
            Object.assign(state, changes);
            asked.length = seen.length = 0;
        },
        /** The tokens received by the server that appear in this log. */
        leaked: log => seen.map(({ token }) => token).filter(token => token && log.includes(token)),
        /** An access token of `idp` for the gateway, as a user would present it. */
        async caller(name, more = {}) {
            const body = new URLSearchParams({ grant_type: 'client_credentials', client_id: name, client_secret: name, resource: audience, scope: 'mcp:use', ...more });
            const answer = await fetch(`${idp}/token`, { method: 'POST', body });
            if (answer.status !== 200) throw new Error(await answer.text());
            return (await answer.json()).access_token;
        },
        stop() {
            for (const listener of Object.values(listeners)) {
                listener.close();
                listener.closeAllConnections();
            }
        }
    };
}
