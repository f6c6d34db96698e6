// The negative suite: forged tokens, and good tokens in requests that libmicrohttpd itself would accept. Each of them is refused, and the
// audit log must not contain a call of any of them.
//
// Every case has a twin without the flaw that is accepted ("the same without a flaw"), which proves that the flaw is the reason for the refusal.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { dirname, join } from 'node:path';
import { after, before, describe, test } from 'node:test';

import { binary, startGateway, temporaryDirectory, until } from '../gateway.mjs';
import { encode, startIssuer } from '../issuer.mjs';
import { initialize, post, send } from '../raw.mjs';

const demo = join(dirname(binary), 'postern-demo');
const AUDIENCE = 'https://gateway.example/mcp';
const CLOSE_MS = 15_000;
const policy = {
    version: 1,
    description: 'Every authenticated caller may do everything',
    rules: [{ id: 'all', effect: 'allow', description: 'everything for every caller', tenants: ['default'], subjects: ['authenticated'], servers: ['*'], kinds: ['*'], names: ['*'], acknowledge: 'open' }]
};

let folder, issuer, gateway, bearer;
before(async () => {
    folder = temporaryDirectory();
    writeFileSync(join(folder.path, 'policy.json'), JSON.stringify(policy));
    bearer = execFileSync(binary, ['token', 'new', '--subject', 'good', '--file', join(folder.path, 'tokens.json')], { encoding: 'utf8' }).trim();
    issuer = await startIssuer(AUDIENCE);
    issuer.add('rsa', 'RS256');
    issuer.add('es384', 'ES384');
    issuer.add('ed', 'EdDSA');
    gateway = await startGateway({
        limits: { max_header: '32KiB', header_timeout: '1s', auth_failures: 100_000 }, // P6 has its own test
        auth: {
            providers: [
                { type: 'bearer', tokens: join(folder.path, 'tokens.json') },
                { type: 'jwt', issuer: issuer.url, audiences: [AUDIENCE], jwks_uri: issuer.jwksUri },
                { type: 'forwarded-user', trusted_proxies: ['192.0.2.1'], secret: 'x'.repeat(32) }
            ]
        },
        policy: join(folder.path, 'policy.json'),
        audit: { path: join(folder.path, 'audit.db') },
        mcpServers: { demo: { command: demo } }
    });
});
after(async () => {
    await gateway?.stop();
    await issuer?.stop();
    folder?.remove();
});

const open = token => send(gateway.url, { headers: post({ authorization: `Bearer ${token}` }), body: initialize('2025-11-25') });
const seconds = more => Math.floor(Date.now() / 1000) + more;

// ---- tokens of the issuer -------------------------------------------------------------------

const es = { alg: 'ES256', kid: 'es' };
const pem = kid => issuer.keys[kid].publicKey.export({ type: 'spki', format: 'pem' });
/** Tokens without a flaw, which prove that the others are refused for theirs. */
const good = {
    'an ES256 signature': () => issuer.sign(),
    'an RS256 signature': () => issuer.sign(issuer.claims(), { alg: 'RS256', kid: 'rsa' }, 'rsa', 'RS256'),
    'an EdDSA signature': () => issuer.sign(issuer.claims(), { alg: 'EdDSA', kid: 'ed' }, 'ed', 'EdDSA'),
    'several audiences': () => issuer.sign(issuer.claims({ aud: ['elsewhere', AUDIENCE] })),
    'typ at+jwt': () => issuer.sign(issuer.claims(), { ...es, typ: 'at+jwt' }),
    'jku, x5u and jwk in the header': () => issuer.sign(issuer.claims(), { ...es, jku: 'http://127.0.0.1:1/', x5u: 'http://127.0.0.1:1/', jwk: { kty: 'oct', k: 'AA' } })
};
const forged = {
    'alg none': () => `${encode({ ...es, alg: 'none' })}.${encode(issuer.claims())}.`,
    'alg none with a signature': () => issuer.sign(issuer.claims(), { ...es, alg: 'none' }),
    'alg None': () => `${encode({ ...es, alg: 'None' })}.${encode(issuer.claims())}.`,
    'alg NONE with a signature': () => issuer.sign(issuer.claims(), { ...es, alg: 'NONE' }),
    'alg es256 in lower case': () => issuer.sign(issuer.claims(), { ...es, alg: 'es256' }),
    'no alg': () => issuer.sign(issuer.claims(), { kid: 'es' }),
    'HS256 with the PEM of the RSA key': () => issuer.hmac(issuer.claims(), { alg: 'HS256', kid: 'rsa' }, pem('rsa')),
    'HS256 with the PEM of the EC key': () => issuer.hmac(issuer.claims(), { alg: 'HS256', kid: 'es' }, pem('es')),
    'HS256 with the modulus': () => issuer.hmac(issuer.claims(), { alg: 'HS256', kid: 'rsa' }, Buffer.from(issuer.keys.rsa.publicKey.export({ format: 'jwk' }).n, 'base64url')),
    'alg RS256 and an HMAC with the PEM': () => issuer.hmac(issuer.claims(), { alg: 'RS256', kid: 'rsa' }, pem('rsa')),
    'an unknown kid': () => issuer.sign(issuer.claims(), { ...es, kid: 'nobody' }),
    "the kid of another key": () => issuer.sign(issuer.claims(), { ...es, kid: 'rsa' }),
    'no kid where the issuer has several keys': () => issuer.sign(issuer.claims(), { alg: 'RS256', kid: undefined }, 'es'),
    'a kid that is a path': () => issuer.sign(issuer.claims(), { ...es, kid: '../../../dev/null' }),
    'a kid that is not a string': () => issuer.sign(issuer.claims(), { ...es, kid: 7 }),
    'a P-384 signature as ES256': () => issuer.sign(issuer.claims(), { alg: 'ES256', kid: 'es384' }, 'es384', 'ES384'),
    'alg ES384, which is not allowed,': () => issuer.sign(issuer.claims(), { alg: 'ES384', kid: 'es384' }, 'es384', 'ES384'),
    'an RS256 signature as PS256': () => issuer.sign(issuer.claims(), { alg: 'PS256', kid: 'rsa' }, 'rsa', 'RS256'),
    'a signature cut by one byte': () => {
        const [head, payload, signature] = issuer.sign().split('.');
        return `${head}.${payload}.${Buffer.from(signature, 'base64url').subarray(0, -1).toString('base64url')}`;
    },
    'no signature': () => issuer.sign().replace(/[^.]+$/, ''),
    'a signature of zeros': () => issuer.sign().replace(/[^.]+$/, Buffer.alloc(64).toString('base64url')),
    'a signature in DER': () => issuer.sign().replace(/[^.]+$/, signature => {
        const half = at => Buffer.concat([Buffer.from([2, 33, 0]), Buffer.from(signature, 'base64url').subarray(at, at + 32)]);
        return Buffer.concat([Buffer.from([48, 70]), half(0), half(32)]).toString('base64url');
    }),
    'another payload': () => {
        const [head, , signature] = issuer.sign().split('.');
        return `${head}.${encode(issuer.claims({ sub: 'root' }))}.${signature}`;
    },
    'two dots in a row': () => issuer.sign().replace(/\..*\./, '..'),
    'two segments': () => issuer.sign().split('.').slice(0, 2).join('.'),
    'four segments': () => `${issuer.sign()}.e30`,
    'five segments, like an encrypted token,': () => `${encode({ alg: 'dir', enc: 'A256GCM' })}.a.b.c.d`,
    'padding in base64': () => issuer.sign().replace(/\.([^.]+)\./, '.$1==.'),
    'a signature in standard base64': () => issuer.sign().replace(/[^.]+$/, text => `+/${text.slice(2)}`),
    'aud twice': () => issuer.sign(JSON.stringify(issuer.claims({ aud: 'x' })).replace('}', `,"aud":"${AUDIENCE}"}`)),
    'alg twice': () => issuer.sign(issuer.claims(), '{"alg":"none","kid":"es","alg":"ES256"}'),
    'the aud of another resource': () => issuer.sign(issuer.claims({ aud: 'https://elsewhere.example/mcp' })),
    'an extra slash in aud': () => issuer.sign(issuer.claims({ aud: `${AUDIENCE}/` })),
    'an aud that only begins like the right one': () => issuer.sign(issuer.claims({ aud: `${AUDIENCE}.evil.example` })),
    'an aud that is an object': () => issuer.sign(issuer.claims({ aud: { [AUDIENCE]: true } })),
    'an aud that contains a number': () => issuer.sign(issuer.claims({ aud: [AUDIENCE, 7] })),
    'no aud': () => issuer.sign(issuer.claims({ aud: undefined })),
    'the iss of another issuer': () => issuer.sign(issuer.claims({ iss: 'https://evil.example' })),
    'an extra slash in iss': () => issuer.sign(issuer.claims({ iss: `${issuer.url}/` })),
    'no iss': () => issuer.sign(issuer.claims({ iss: undefined })),
    'an exp in the past': () => issuer.sign(issuer.claims({ exp: seconds(-31) })),
    'no exp': () => issuer.sign(issuer.claims({ exp: undefined })),
    'an exp that is a string': () => issuer.sign(issuer.claims({ exp: String(seconds(60)) })),
    'a giant exp': () => issuer.sign(JSON.stringify(issuer.claims({ exp: 0 })).replace('"exp":0', '"exp":1e300')),
    'an exp beyond all numbers': () => issuer.sign(JSON.stringify(issuer.claims({ exp: 0 })).replace('"exp":0', '"exp":1e999')),
    'an exp below zero': () => issuer.sign(issuer.claims({ exp: -1e300 })),
    'an nbf in the future': () => issuer.sign(issuer.claims({ nbf: seconds(90) })),
    'an nbf that is not a number': () => issuer.sign(issuer.claims({ nbf: true })),
    crit: () => issuer.sign(issuer.claims(), { ...es, crit: ['exp'], exp: seconds(60) }),
    'an empty crit': () => issuer.sign(issuer.claims(), { ...es, crit: [] }),
    'the typ of another kind of token': () => issuer.sign(issuer.claims(), { ...es, typ: 'logout+jwt' }),
    'no sub': () => issuer.sign(issuer.claims({ sub: undefined })),
    'a sub with a line end': () => issuer.sign(issuer.claims({ sub: 'a\nb' })),
    'a payload that is an array': () => issuer.sign([issuer.claims()]),
    'a payload that is not JSON': () => issuer.sign('{"iss":'),
    'more than 16 KiB': () => issuer.sign(issuer.claims({ padding: 'x'.repeat(17_000) }))
};

describe('tokens without a flaw are accepted', () => {
    for (const [name, make] of Object.entries(good)) test(`J17 a token with ${name} is accepted`, async () => assert.equal((await open(make())).status, 200));
});

describe('forged tokens are refused', () => {
    for (const [name, make] of Object.entries(forged))
        test(`J17 a token with ${name} is refused`, async () => {
            const { status, headers } = await open(make());
            assert.equal(status, 401);
            assert.match(headers['www-authenticate'], /error="invalid_token"$/);
        });
});

// ---- requests that libmicrohttpd accepts ---------------------------------------------------------------

const body = JSON.stringify(initialize('2025-11-25'));
const length = `Content-Length: ${Buffer.byteLength(body)}`;

/** Sends these bytes on a new connection and returns everything received until it is closed; `drip`: one byte every 100 ms. */
function exchange(bytes, drip) {
    const { hostname, port } = new URL(gateway.url);
    return new Promise((resolve, reject) => {
        const socket = connect(Number(port), hostname);
        let text = '', timer;
        const late = setTimeout(() => socket.destroy(new Error(`not closed within ${CLOSE_MS} ms:\n${text}`)), CLOSE_MS);
        socket.on('data', chunk => (text += chunk.toString('latin1')));
        socket.on('error', error => (['ECONNRESET', 'EPIPE'].includes(error.code) ? undefined : reject(error)));
        socket.on('close', () => {
            clearTimeout(late);
            clearInterval(timer);
            resolve(text);
        });
        const all = Buffer.from(bytes, 'latin1');
        let sent = 0;
        if (drip) timer = setInterval(() => socket.writable && sent < all.length && socket.write(all.subarray(sent, ++sent)), 100);
        else socket.write(all);
    });
}

const head = lines => ['POST /mcp HTTP/1.1', `Host: ${new URL(gateway.url).host}`, 'Content-Type: application/json', 'Accept: application/json, text/event-stream', ...lines].join('\r\n');
const request = (lines, content = body) => `${head(lines)}\r\n\r\n${content}`;
const auth = () => `Authorization: Bearer ${bearer}`;
const chunked = () => `${Buffer.byteLength(body).toString(16)}\r\n${body}\r\n0\r\n\r\n`;
const close = 'Connection: close';

/** Good tokens that must not be accepted, because two parsers could read the request differently. */
const lenient = {
    'MHD CL+TE: a token in a request with both framings': () => request([auth(), length, 'Transfer-Encoding: chunked'], chunked() + request([auth(), length, close])),
    'MHD CL+TE: a token in a request with both framings in reverse order': () => request([auth(), 'Transfer-Encoding: chunked', length], chunked()),
    'MHD CL+CL: a token with two Content-Length that differ': () => request([auth(), length, 'Content-Length: 0'], body + request([auth(), length, close])),
    'MHD CL+CL: a token with two Content-Length that agree': () => request([auth(), length, length]),
    'MHD a bare LF before Authorization': () => request(['X-One: 1\n' + auth(), length]),
    'MHD a bare LF after Authorization': () => request([`${auth()}\nX-One: 1`, length]),
    'MHD a bare LF at the end of the headers': () => `${head([auth(), length])}\n\n${body}`,
    'MHD a bare LF after the last header': () => `${head([auth(), length])}\n\r\n${body}`,
    'MHD a bare LF for the empty line': () => `${head([auth(), length])}\r\n\n${body}`,
    'MHD a bare LF after a blank': () => request([`${auth()} \nX-One: 1`, length]),
    'MHD a bare LF at every line end': () => request([auth(), length]).replaceAll('\r\n', '\n'),
    'MHD a bare CR at every line end': () => request([auth(), length]).replaceAll('\r\n', '\r'),
    'MHD "Name :": a space before the colon of Authorization': () => request([`Authorization : Bearer ${bearer}`, length]),
    'MHD "Name :": a tab before the colon': () => request([`Authorization\t: Bearer ${bearer}`, length]),
    'MHD obs-fold: Authorization in two lines': () => request([`Authorization: Bearer`, ` ${bearer}`, length]),
    'MHD obs-fold: a folded line that looks like Authorization': () => request(['X-One: 1', ` ${auth()}`, length]),
    'MHD NUL: a token value with a NUL in the middle': () => request([`Authorization: Bearer ${bearer}\0garbage`, length]),
    'MHD NUL: a token value with a NUL before it': () => request([`Authorization: \0Bearer ${bearer}`, length]),
    'MHD first of two: a good token and a bad one': () => request([auth(), 'Authorization: Bearer x', length]),
    'MHD first of two: a bad token and a good one': () => request(['Authorization: Bearer x', auth(), length]),
    'MHD first of two: the same token twice': () => request([auth(), auth(), length]),
    'MHD a second Host header': () => request([`Host: ${new URL(gateway.url).host}`, auth(), length]),
    'MHD a request without Host': () => request([auth(), length]).replace(/Host: .*\r\n/, ''),
    'MHD a header name with invalid characters': () => request(['X(One): 1', auth(), length]),
    'MHD a header without a name': () => request([': 1', auth(), length]),
    'MHD a CR in a value': () => request([`X-One: 1\rAuthorization: Bearer ${bearer}`, auth(), length]),
    'MHD a Transfer-Encoding of identity': () => request([auth(), 'Transfer-Encoding: identity', close]),
    'MHD a Transfer-Encoding of chunked, chunked': () => request([auth(), 'Transfer-Encoding: chunked, chunked'], chunked()),
    'MHD a repeated Transfer-Encoding': () => request([auth(), 'Transfer-Encoding: chunked', 'Transfer-Encoding: chunked'], chunked()),
    'MHD underscores: X_Forwarded_User from an untrusted peer': () => request(['X_Forwarded_User: ana', length]),
    'MHD underscores: X_Forwarded_User beside a token': () => request([auth(), 'X_Forwarded_User: ana', length]).replace(auth(), 'Authorization: Bearer x'),
    'MHD trailing space: X-Forwarded-User with a space in its name': () => request(['X-Forwarded-User : ana', length]),
    'MHD pool: a header block beyond the pool': () => request([auth(), `X-Filler: ${'x'.repeat(40_000)}`, length]),
    'a token in the request line': () => request([length, close]).replace('/mcp ', `/mcp?access_token=${bearer} `),
    'a token in the body': () => {
        const content = JSON.stringify({ ...initialize('2025-11-25'), authorization: `Bearer ${bearer}` });
        return request([`Content-Length: ${Buffer.byteLength(content)}`, close], content);
    },
    'a token in a trailer': () => request(['Transfer-Encoding: chunked', 'Trailer: Authorization', close], chunked().replace(/\r\n$/, `${auth()}\r\n\r\n`)),
    'another scheme': () => request([`Authorization: Token ${bearer}`, length, close]),
    'a scheme without a space before the token': () => request([`Authorization: Bearer${bearer}`, length, close]),
    'a token with more text after it': () => request([`Authorization: Bearer ${bearer}, Bearer x`, length, close])
};

describe('good tokens in ambiguous requests are refused', () => {
    test('the same request without a flaw is accepted', async () => assert.match(await exchange(request([auth(), length, close])), /^HTTP\/1\.1 200 /));
    for (const [name, bytes] of Object.entries(lenient))
        test(`${name} is refused`, async () => {
            const answer = await exchange(bytes());
            const statuses = [...answer.matchAll(/^HTTP\/1\.1 (\d{3})/gm)].map(([, status]) => status);
            assert.ok(statuses.every(status => ['400', '401', '431', '501'].includes(status)), answer.slice(0, 1000)); // or closed without an answer
            assert.ok(!/mcp-session-id/i.test(answer), 'a session was opened');
        });
    test('MHD timeout: a good token that arrives a byte every 100 ms is refused at the header deadline', async () => {
        const began = Date.now();
        assert.match(await exchange(request([auth(), length]), true), /^(HTTP\/1\.1 408 |$)/);
        assert.ok(Date.now() - began < 5_000, `after ${Date.now() - began} ms`);
    });
});

test('the audit has no session of a refused request', async () => {
    const read = () => execFileSync(binary, ['audit', '--file', join(folder.path, 'audit.db'), '--limit', '0'], { encoding: 'utf8' }).trim().split('\n').map(line => JSON.parse(line));
    await until(() => read().filter(({ event }) => event === 'authentication').length >= Object.keys(forged).length, 5_000, 'the refusals in the audit log');
    const rows = read();
    const inside = rows.filter(({ event }) => event === 'call');
    assert.equal(inside.length, Object.keys(good).length + 1);
    assert.ok(inside.every(({ method, status, subject }) => method === 'initialize' && status === 'ok' && ['ana', 'good'].includes(subject)));
    const outside = rows.filter(({ event }) => event === 'authentication');
    assert.ok(outside.length >= Object.keys(forged).length);
    assert.ok(outside.every(({ subject, decision }) => subject === undefined && decision === undefined));
});
