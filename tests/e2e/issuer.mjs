// An issuer under the control of the test: it signs any token, valid or not, and serves its keys correctly or with faults.
import { createHmac, generateKeyPairSync, sign as signBytes } from 'node:crypto';
import { once } from 'node:events';
import { createServer } from 'node:http';

export const encode = value => Buffer.from(typeof value === 'string' ? value : JSON.stringify(value)).toString('base64url');

const KEYS = {
    ES256: () => generateKeyPairSync('ec', { namedCurve: 'P-256' }),
    ES384: () => generateKeyPairSync('ec', { namedCurve: 'P-384' }),
    RS256: () => generateKeyPairSync('rsa', { modulusLength: 2048 }),
    EdDSA: () => generateKeyPairSync('ed25519')
};

/**
 * Starts it on `port`. `issuer.keys` are served at `jwksUri`; `issuer.serve` (request, response) answers instead if it is set. `fetches`
 * counts the requests by path.
 */
export async function startIssuer(audience, port = 0) {
    const issuer = { fetches: {}, keys: {}, serve: undefined };
    const server = createServer((request, response) => {
        issuer.fetches[request.url] = (issuer.fetches[request.url] ?? 0) + 1;
        if (issuer.serve) return issuer.serve(request, response);
        const found = request.url === '/jwks' ? issuer.jwks() : request.url === '/.well-known/openid-configuration' ? issuer.metadata() : undefined;
        response.writeHead(found ? 200 : 404, { 'content-type': 'application/json', ...issuer.headers }).end(JSON.stringify(found ?? {}));
    });
    server.listen(port, '127.0.0.1');
    await once(server, 'listening');
    issuer.url = `http://127.0.0.1:${server.address().port}`;
    issuer.jwksUri = `${issuer.url}/jwks`;
    issuer.jwks = () => ({ keys: Object.entries(issuer.keys).map(([kid, { publicKey }]) => ({ ...publicKey.export({ format: 'jwk' }), kid })) });
    issuer.metadata = () => ({ issuer: issuer.url, jwks_uri: issuer.jwksUri });
    issuer.add = (kid, alg) => (issuer.keys[kid] = KEYS[alg]());
    issuer.claims = more => ({ iss: issuer.url, sub: 'ana', aud: audience, exp: Math.floor(Date.now() / 1000) + 60, scope: 'mcp:use', ...more });
    /** A token with exactly this header and payload (objects or JSON text), signed as `alg` by the key `by`. */
    issuer.sign = (payload = issuer.claims(), header = { alg: 'ES256', kid: 'es' }, by = 'es', alg = 'ES256') => {
        const text = `${encode(header)}.${encode(payload)}`;
        const digest = alg === 'EdDSA' ? null : `sha${alg.slice(2)}`;
        const signature = signBytes(digest, Buffer.from(text), { key: issuer.keys[by].privateKey, dsaEncoding: 'ieee-p1363' });
        return `${text}.${signature.toString('base64url')}`;
    };
    issuer.hmac = (payload, header, key) => {
        const text = `${encode(header)}.${encode(payload)}`;
        return `${text}.${createHmac('sha256', key).update(text).digest('base64url')}`;
    };
    issuer.stop = async () => {
        server.closeAllConnections();
        server.close();
        await once(server, 'close');
    };
    issuer.add('es', 'ES256');
    return issuer;
}
