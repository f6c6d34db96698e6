// A real OpenID provider (npm oidc-provider) that issues access tokens as JWTs to one client, for the tests of the provider `jwt`.
//
// usage: tests/peers/node tests/peers/oidc.mjs PORT ALG AUDIENCE     prints its issuer on the first line
import { createServer } from 'node:http';

import { exportJWK, generateKeyPair } from 'jose';
import { Provider } from 'oidc-provider';

const [, , port, alg, audience] = process.argv;
const server = createServer();
server.listen(Number(port), '127.0.0.1', async () => {
    const issuer = `http://127.0.0.1:${server.address().port}`;
    const { privateKey } = await generateKeyPair(alg, { extractable: true });
    const key = { ...(await exportJWK(privateKey)), alg, use: 'sig', kid: `${alg}-${process.pid}` };
    const provider = new Provider(issuer, {
        jwks: { keys: [key] },
        clients: [
            {
                client_id: 'agent',
                client_secret: 'the-secret-of-the-agent',
                grant_types: ['client_credentials'],
                redirect_uris: [],
                response_types: [],
                token_endpoint_auth_method: 'client_secret_post',
                id_token_signed_response_alg: alg
            }
        ],
        features: {
            devInteractions: { enabled: false },
            clientCredentials: { enabled: true },
            resourceIndicators: {
                enabled: true,
                defaultResource: () => audience,
                useGrantedResource: () => true,
                getResourceServerInfo: (_context, resource) => ({
                    scope: 'mcp:use mcp:admin',
                    audience: resource,
                    accessTokenTTL: 120,
                    accessTokenFormat: 'jwt',
                    jwt: { sign: { alg } }
                })
            }
        },
        scopes: ['mcp:use', 'mcp:admin']
    });
    server.on('request', provider.callback());
    console.log(issuer);
});
process.on('SIGTERM', () => process.exit(0));
