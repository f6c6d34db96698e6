// Logins to servers whose authorization server lies in one way each: which lies are tolerated or refused, and which data is never sent or shown.
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';

import { LIES } from '../../peers/lies.mjs';
import { settles, until } from '../gateway.mjs';
import { EXIT, withLiar } from '../liar.mjs';
import { Session } from '../raw.mjs';

const { OK, UNAVAILABLE, DENIED, REGISTRATION, DISCOVERY, TOKEN, ANSWER } = EXIT;
const WAIT_MS = 60_000;
const title = lie => `${lie}: ${LIES[lie]}`;

/** None of these paths was requested; the path `away` stands for the other origin. */
async function assertNeverAsked(liar, paths) {
    for (const path of paths) assert.deepEqual((await liar.seen(path)).map(request => request.path), [], `${path} was asked`);
}

/** Seconds until the token expires, according to the output of the login; undefined if it is not printed. */
function lifetime({ stderr }) {
    const said = /valid until (\d{4}-\S+) (\S+) UTC/.exec(stderr);
    return said ? (Date.parse(`${said[1]}T${said[2]}Z`) - Date.now()) / 1000 : undefined;
}

const lasts = seconds => (_liar, login) => assert.ok(Math.abs(lifetime(login) - seconds) < 60, login.stderr);
const lastsUntilRefused = (_liar, login) => assert.match(login.stderr, /valid until it is refused/);
const warnedOf = (_liar, login) => assert.match(login.stderr, /ignoring invalid expires_in[^]*valid until it is refused/);
const refreshedFirst = async liar => assert.equal((await liar.get('/state')).refreshes, 1);
const asked = path => async liar => assert.equal((await liar.seen(path)).length, 1);
const never = (...paths) => liar => assertNeverAsked(liar, paths);
const proves = pattern => async liar => {
    const { headers, body } = (await liar.seen('/token')).at(-1);
    assert.match(`${headers.authorization} ${body}`, pattern);
};

// The lie, a check in addition to a login and a call that work, and `auth` of the configuration.
const WORKS = [
    ['none'],
    ['no-challenge'],
    ['challenge-list', asked('/elsewhere')],
    ['metadata-elsewhere', never('/.well-known/oauth-protected-resource', '/.well-known/oauth-protected-resource/mcp')],
    ['resource-root', asked('/.well-known/oauth-protected-resource')],
    ['resource-401', asked('/.well-known/oauth-protected-resource')],
    ['resource-403', asked('/.well-known/oauth-protected-resource')],
    ['resource-502', asked('/.well-known/oauth-protected-resource')],
    ['resource-html', asked('/.well-known/oauth-protected-resource')],
    ['resource-list', asked('/.well-known/oauth-protected-resource')],
    ['resource-redirect', never('away')],
    ['resource-parent', async liar => assert.equal((await liar.seen('/authorize'))[0].query.resource, liar.origin)],
    ['legacy', async liar => assert.equal((await liar.seen('/authorize'))[0].query.resource, undefined)],
    ['legacy-bare', async liar => assert.equal((await liar.seen('/authorize'))[0].query.resource, undefined)],
    ['oidc-only'],
    ['metadata-401'],
    ['issuer-path-first', never('/.well-known/oauth-authorization-server')],
    ['issuer-path-second', never('/.well-known/oauth-authorization-server')],
    ['issuer-path', never('/.well-known/oauth-authorization-server')],
    ['two-servers'],
    ['null-members'],
    ['issuer-slash', async liar => assert.equal((await liar.connections())[0].issuer, `${liar.origin}/`, 'D10: as the metadata say it')],
    ['issuer-extra-path', undefined, { issuer: 'ORIGIN/extra' }],
    ['pkce-absent', undefined, { pkce: 'assume_s256' }],
    ['only-post', proves(/^undefined .*client_secret=/)],
    ['only-basic', proves(/^Basic (?!.*client_id=)/)],
    ['register-200'],
    ['register-localhost', async liar => assert.match((await liar.seen('/authorize'))[0].query.redirect_uri, /^http:\/\/localhost:\d+\/callback$/)],
    ['register-issuer', async liar => assert.equal((await liar.connections())[0].issuer, liar.origin)],
    ['secret-no-method', proves(/^undefined .*client_secret=/)],
    ['secret-none', proves(/^undefined .*client_secret=/)],
    ['secret-basic', proves(/^Basic (?!.*client_id=)/)],
    ['secret-expired'],
    ['client-forgotten', async liar => assert.equal((await liar.seen('/register')).length, 2)],
    ['basic-broken', async liar => assert.ok((await liar.seen('/token')).length <= 2)],
    ['iss-unsaid'],
    ['iss-good'],
    ['iss-unpromised'],
    ['token-form'],
    ['token-201'],
    ['type-absent'],
    ['expires-string', lasts(3600)],
    ['expires-real', lasts(3600)],
    ['expires-huge', lasts(10 * 365 * 86400)],
    ['expires-garbage', warnedOf],
    ['expires-negative', warnedOf],
    ['expires-null', lastsUntilRefused],
    ['expires-absent', lastsUntilRefused],
    ['expires-jwt', lasts(7200)],
    ['expires-zero-string', refreshedFirst],
    ['expires-first', refreshedFirst],
    ['id-token', async liar => assert.ok(!JSON.stringify(await liar.seen()).includes('identity-'))],
    ['no-refresh-token', (_liar, login) => assert.match(login.stderr, /did not issue a refresh token/)],
    ['no-rotation'],
    ['refresh-bare']
];

describe('lies that a login survives', () => {
    for (const [lie, check, auth = null] of WORKS)
        test(`a login survives the lie ${title(lie)}`, () =>
            withLiar(lie, auth, async liar => {
                const login = await liar.login();
                assert.equal(login.status, OK, login.stderr);
                const call = await liar.call();
                assert.equal(call.status, OK, call.stderr);
                assert.match(call.stdout, /echo/);
                await check?.(liar, login);
            })
        );
});

// The lie, the exit status of the login, its message, and the paths that must not have been requested.
const REFUSED = [
    ['insecure-metadata', DISCOVERY, /metadata document is not https/, ['/register']],
    ['file-metadata', DISCOVERY, /metadata document is not https/, ['/register']],
    ['link-local-metadata', DISCOVERY, /connections to its address are not allowed/, ['/register']],
    ['resource-500', DISCOVERY, /HTTP 500/, ['/.well-known/oauth-authorization-server', '/register']],
    ['resource-hangup', DISCOVERY, /./, ['/.well-known/oauth-authorization-server', '/register']],
    ['resource-duplicate', DISCOVERY, /not a JSON object/, ['/register']],
    ['resource-drip', DISCOVERY, /./, ['/register']],
    ['resource-large', DISCOVERY, /larger than/, ['/register']],
    ['resource-mismatch', DISCOVERY, /another resource.*other\.example/, ['/register', '/authorize']],
    ['resource-sibling', DISCOVERY, /another resource/, ['/register', '/authorize']],
    ['legacy-mismatch', DISCOVERY, /another issuer/, ['/register']],
    ['issuer-path-nowhere', DISCOVERY, /no metadata found for the authorization server.*tenant/, ['/.well-known/oauth-authorization-server', '/register']],
    ['metadata-503', DISCOVERY, /HTTP 503/, ['/register']],
    ['link-local-server', DISCOVERY, /connections to its address are not allowed/, ['/register']],
    ['link-local-decimal', DISCOVERY, /connections to its address are not allowed/, ['/register']],
    ['link-local-hex', DISCOVERY, /connections to its address are not allowed/, ['/register']],
    ['link-local-mapped', DISCOVERY, /connections to its address are not allowed/, ['/register']],
    ['private-server', DISCOVERY, /connections to its address are not allowed/, ['/register']],
    ['unusable-server', DISCOVERY, /connections to its address are not allowed/, ['/register']],
    ['insecure-server', DISCOVERY, /do not name an authorization server with an https URL/, ['/register']],
    ['issuer-other', DISCOVERY, /another issuer.*127\.0\.0\.1.*other\.example/, ['/register']],
    ['issuer-extra-path', DISCOVERY, /another issuer.*\/extra"/, ['/register']],
    ['issuer-path-slash', DISCOVERY, /another issuer.*\/tenant\/"/, ['/register']],
    ['issuer-absent', DISCOVERY, /another issuer/, ['/register']],
    ['token-insecure', DISCOVERY, /token_endpoint is not an https URL/, ['/register']],
    ['token-link-local', TOKEN, /connections to its address are not allowed/, ['/token']],
    ['authorize-file', DISCOVERY, /authorization_endpoint is not an https URL/, ['/register']],
    ['authorize-link-local', ANSWER, /connections to its address are not allowed/, ['/token']],
    ['register-link-local', REGISTRATION, /connections to its address are not allowed/, ['/authorize']],
    ['pkce-absent', DISCOVERY, /assume_s256/, ['/register']],
    ['pkce-plain', DISCOVERY, /does not support PKCE/, ['/register']],
    ['no-code', DISCOVERY, /does not support authorization codes/, ['/register']],
    ['no-register', REGISTRATION, /client_id/, ['/authorize']],
    ['register-refused', REGISTRATION, /HTTP 400: invalid_redirect_uri: no\\x1b\[31m loopback.*127\.0\.0\.1/, ['/authorize']],
    ['register-page', REGISTRATION, /HTTP 403: <html>go\\x1b away.*the request was \{.*"redirect_uris":\["http:\/\/127\.0\.0\.1:.*"application_type":"native"/, ['/authorize']],
    ['register-html', REGISTRATION, /not a JSON object/, ['/authorize']],
    ['register-redirect', REGISTRATION, /HTTP 307/, ['away', '/authorize']],
    ['register-no-id', REGISTRATION, /no client_id/, ['/authorize']],
    ['method-without-secret', REGISTRATION, /no client_secret/, ['/authorize']],
    ['method-unknown', REGISTRATION, /tls_client_auth/, ['/authorize']],
    ['client-unknown', TOKEN, /invalid_client/, []],
    ['denied', DENIED, /declined/, ['/token']],
    ['refused', ANSWER, /server_error/, ['/token']],
    ['refused-loudly', ANSWER, /server_error: \\x1b/, ['/token']],
    ['no-code-back', ANSWER, /neither a code nor an error/, ['/token']],
    ['state-wrong', ANSWER, /another login attempt/, ['/token']],
    ['state-absent', ANSWER, /another login attempt/, ['/token']],
    ['state-twice', ANSWER, /another login attempt/, ['/token']],
    ['code-twice', ANSWER, /another login attempt/, ['/token']],
    ['code-large', ANSWER, /another login attempt/, ['/token']],
    ['back-elsewhere', ANSWER, /without a redirect/, ['/token']],
    ['denied-by-stranger', ANSWER, /^(?![^]*call this number)/, ['/token']],
    ['iss-missing', ANSWER, /iss/, ['/token']],
    ['iss-wrong', ANSWER, /another issuer/, ['/token']],
    ['iss-slash', ANSWER, /another issuer/, ['/token']],
    ['iss-twice', ANSWER, /another login attempt/, ['/token']],
    ['token-form-error', TOKEN, /bad_verification_code: too late/, []],
    ['token-200-error', TOKEN, /invalid_grant/, []],
    ['token-echo-cut', TOKEN, /invalid_scope/, []],
    ['token-html', TOKEN, /not a token response|not a JSON object/, []],
    ['token-hangup', TOKEN, /./, []],
    ['token-duplicate', TOKEN, /./, []],
    ['token-large', TOKEN, /larger than/, []],
    ['token-503', TOKEN, /HTTP 503/, []],
    ['token-429', TOKEN, /HTTP 429/, []],
    ['token-redirect', TOKEN, /HTTP 307/, ['/token']],
    ['token-redirect-away', TOKEN, /HTTP 307/, ['away']],
    ['token-header-injection', TOKEN, /access_token/, []],
    ['no-access-token', TOKEN, /access_token/, []],
    ['type-mac', TOKEN, /token_type/, []]
];

describe('lies that end a login', () => {
    for (const [lie, status, said, paths] of REFUSED)
        test(`a login ends with an error for the lie ${title(lie)}`, () =>
            withLiar(lie, null, async liar => {
                const login = await liar.login();
                assert.equal(login.status, status, login.stderr);
                assert.match(login.stderr, said);
                assert.doesNotMatch(login.stderr, /[\0-\x08\x0b-\x1f\x7f]/, 'control characters reach the terminal');
                await assertNeverAsked(liar, paths);
                assert.deepEqual(await liar.connections(), [], 'nothing is stored');
                assert.ok((await liar.seen('/authorize')).length <= 2, 'T13: restarts are bounded');
                assert.ok((await liar.seen('/register')).length <= 2, 'G10: registrations are bounded');
            })
        );
});

// Lies told after an honest login, when the access token has expired: the exit status of a call, its message, and the maximal number of
// requests to the token endpoint. `kept`: when the lie ends, the grant still works.
const LATER = [
    ['token-503', UNAVAILABLE, /HTTP 503/, { kept: true }],
    ['token-429', UNAVAILABLE, /HTTP 429/, { kept: true }],
    ['token-html', UNAVAILABLE, /token/, { kept: true }],
    ['refresh-html', UNAVAILABLE, /token/, { kept: true }],
    ['token-large', UNAVAILABLE, /larger than/, { kept: true }],
    ['refresh-redirect', UNAVAILABLE, /HTTP 307/, { kept: true }],
    ['token-redirect-away', UNAVAILABLE, /HTTP 307/, { kept: true }],
    ['refresh-invalid-client', UNAVAILABLE, /invalid_client.*postern login.*--reregister/, { kept: true }],
    ['refresh-echo', UNAVAILABLE, /unsupported_grant_type: not \*+/, { kept: true }],
    ['refresh-echo-cut', UNAVAILABLE, /invalid_scope/, { kept: true }],
    ['refresh-invalid-request', UNAVAILABLE, /invalid_request/, { kept: true, requests: 2 }],
    ['refresh-200-error', UNAVAILABLE, /postern login/, { kept: false }],
    ['no-rotation', OK, /^/, { kept: true }],
    ['refresh-bare', OK, /^/, { kept: true }],
    ['token-form', OK, /^/, { kept: true }],
    ['token-201', OK, /^/, { kept: true }],
    ['expires-string', OK, /^/, { kept: true }],
    ['resource-unwanted', OK, /^/, { kept: true, requests: 2 }],
    ['greeting-late', OK, /^/, { kept: true, requests: 2 }],
    ['greeting-refused', UNAVAILABLE, /notifications\/initialized.*401/, { kept: true, requests: 2 }]
];

describe('lies told to a refresh', () => {
    for (const [lie, status, said, { kept, requests = 1 }] of LATER)
        test(`a refresh fails for the lie ${title(lie)}`, () =>
            withLiar('none', null, async liar => {
                assert.equal((await liar.login()).status, OK);
                await liar.control({ expire: true, lie });
                const call = await liar.call();
                assert.equal(call.status, status, call.stderr);
                assert.match(call.stderr, said);
                assert.ok((await liar.seen('/token')).length <= 1 + requests);
                await assertNeverAsked(liar, ['away']);
                assert.equal((await liar.connections())[0].ended ?? false, !kept);
                await liar.control({ expire: true, lie: 'none' });
                const after = await liar.call();
                assert.equal(after.status, kept ? OK : UNAVAILABLE, after.stderr);
                assert.equal((await liar.login()).status, OK, 'a new login always works');
                assert.equal((await liar.call()).status, OK);
            })
        );
});

describe('lies with their own tests', () => {
    test(`a login registers again after the lie ${title('client-page')}`, () =>
        withLiar('client-page', null, async liar => {
            const login = await liar.login();
            assert.equal(login.status, ANSWER, login.stderr);
            assert.match(login.stderr, /HTTP 400/);
            assert.equal((await liar.login()).status, OK);
            assert.equal((await liar.seen('/register')).length, 2);
        }));
    test(`a grant survives the lie ${title('token-burst')}`, () =>
        withLiar('none', null, async liar => {
            await liar.login();
            await liar.control({ expire: true, lie: 'token-burst' });
            assert.equal((await liar.call()).status, UNAVAILABLE);
            assert.equal((await liar.call()).status, UNAVAILABLE);
            assert.equal((await liar.call()).status, OK, 'nothing was lost');
        }));
    test(`a login does not send old secrets under the lie ${title('migrated')}`, () =>
        withLiar('none', null, async liar => {
            assert.equal((await liar.login()).status, OK);
            const old = await liar.secrets();
            await liar.control({ lie: 'migrated', revoke: true });
            assert.equal((await liar.login()).status, OK);
            assert.equal((await liar.call()).status, OK);
            const there = await liar.seen('away');
            assert.deepEqual(there.map(({ path }) => path).filter(path => !path.startsWith('/.well-known')), ['/register', '/authorize', '/token']);
            for (const value of [...old, 'client-1', 'ours']) assert.ok(!JSON.stringify(there).includes(value), `${value} went to the new one`);
        }));
    test(`a call does not follow the lie ${title('mcp-redirect')}`, () =>
        withLiar('none', null, async liar => {
            await liar.login();
            await liar.control({ lie: 'mcp-redirect' });
            assert.notEqual((await liar.call()).status, OK);
            await assertNeverAsked(liar, ['away']);
        }));
    test(`a call does not show secrets under the lie ${title('mcp-echo')}`, () =>
        withLiar('none', null, async liar => {
            await liar.login();
            await liar.control({ lie: 'mcp-echo', expire: true, revoke: true });
            const call = await liar.call();
            assert.equal(call.status, UNAVAILABLE);
            assert.match(call.stderr, /postern login/);
        }));
    test(`a logout does not follow the lie ${title('revoke-redirect')}`, () =>
        withLiar('none', null, async liar => {
            await liar.login();
            await liar.control({ lie: 'revoke-redirect' });
            assert.equal((await liar.run('logout', ...liar.whom)).status, OK);
            assert.equal((await liar.seen('/revoke')).length, 2);
            await assertNeverAsked(liar, ['away']);
            assert.deepEqual(await liar.connections(), []);
        }));
    test('N8 configured headers are sent only to the MCP server', () =>
        withLiar('migrated', { mode: 'shared' }, async liar => {
            assert.equal((await liar.login()).status, OK);
            assert.equal((await liar.call()).status, OK);
            for (const request of await liar.seen()) if (request.path !== '/mcp') assert.equal(request.headers['x-org'], undefined, request.path);
            assert.equal((await liar.seen('/mcp')).at(-1).headers['x-org'], 'ours');
        }));
});

// The lies for tests of the log at its lowest level, and of the number of requests to the token endpoint.
const LOGGED = ['none', 'expires-zero', 'expires-first', 'refresh-echo', 'refresh-echo-cut', 'refresh-200-error', 'mcp-echo', 'token-503', 'token-hangup', 'type-mac', 'scope-forever'];

describe('a gateway in front of a liar', () => {
    for (const lie of LOGGED)
        test(`a gateway logs no secret and limits its requests under the lie ${title(lie)}`, () =>
            withLiar('none', null, async liar => {
                assert.equal((await liar.login()).status, OK);
                await liar.control({ expire: true, lie });
                const gateway = await liar.gateway();
                try {
                    const session = await Session.open(gateway.url);
                    for (let i = 0; i < 3; i++) {
                        const answer = await session.call('liar__echo', { i });
                        if (['none', 'expires-zero', 'expires-first', 'mcp-echo'].includes(lie)) assert.ok(answer.result, JSON.stringify(answer));
                        else assert.ok(answer.error, JSON.stringify(answer));
                        for (const value of await liar.secrets()) assert.ok(!JSON.stringify(answer).includes(value), 'an answer to a caller contains a secret');
                    }
                } finally {
                    await gateway.stop();
                }
                assert.ok((await liar.seen('/token')).length <= 12, `${(await liar.seen('/token')).length} requests for tokens`);
            })
        );
});

/** Logs in at a liar and opens a session at a gateway with that grant. */
const withSession = (lie, body) =>
    withLiar(lie, null, async liar => {
        assert.equal((await liar.login()).status, OK);
        const gateway = await liar.gateway();
        try {
            await body(liar, await Session.open(gateway.url));
        } finally {
            await gateway.stop();
        }
    });

describe('F12 a token that expires while the token endpoint fails', () => {
    const withPause = (lie, body) =>
        withSession('none', async (liar, session) => {
            assert.ok((await session.call('liar__echo')).result);
            await liar.control({ lie, expire: true });
            await body(liar, session);
        });
    const tokenRequests = async liar => (await liar.seen('/token')).length - 1; // without that of the login

    for (const [lie, reason] of [['token-503', 'server_unavailable'], ['refresh-html', 'server_unavailable'], ['refresh-invalid-client', 'authorization_required']])
        test(`twenty calls cause few requests to a token endpoint that fails (${lie}), and calls work again later`, () =>
            withPause(lie, async (liar, session) => {
                for (let i = 0; i < 20; i++) assert.equal((await session.call('liar__echo')).error.data.reason, reason);
                assert.ok((await tokenRequests(liar)) < 8); // one, unless twenty calls take longer than the pauses
                await liar.control({ lie: 'none' });
                await until(async () => (await session.call('liar__echo')).result, 10_000, 'a call works');
            }));
    test('a login while the token endpoint fails takes effect at once', () =>
        withPause('refresh-html', async (liar, session) => {
            for (let i = 0; i < 3; i++) assert.ok((await session.call('liar__echo')).error);
            assert.equal((await liar.login()).status, OK);
            assert.ok((await session.call('liar__echo')).result);
        }));
    test('a token endpoint with Retry-After is not asked earlier', () =>
        withPause('token-429', async (liar, session) => {
            const { error } = await session.call('liar__echo');
            assert.ok(error.data.retryAfterMs > 0 && error.data.retryAfterMs <= 3300, JSON.stringify(error));
            await until(async () => (await tokenRequests(liar)) === 2, 15_000, 'a second refresh');
            const [first, second] = (await liar.seen('/token')).slice(1);
            assert.ok(second.at - first.at > 2900, `${second.at - first.at} ms`);
        }));
});

test('F14 a gateway remembers to refresh without a resource', () =>
    withSession('none', async (liar, session) => {
        for (let i = 0; i < 3; i++) {
            await liar.control({ lie: 'resource-unwanted', expire: true });
            assert.ok((await session.call('liar__echo')).result);
        }
        const named = (await liar.seen('/token')).slice(1).map(({ body }) => new URLSearchParams(body).has('resource'));
        assert.deepEqual(named, [true, false, false, false]);
    }));

test('F14 other processes also refresh without a resource at the same authorization server', () =>
    withLiar('none', null, async liar => {
        assert.equal((await liar.login()).status, OK);
        for (let i = 0; i < 2; i++) {
            await liar.control({ lie: 'resource-unwanted', expire: true });
            assert.equal((await liar.call()).status, OK);
        }
        assert.equal((await liar.run('logout', ...liar.whom)).status, OK);
        assert.equal((await liar.login()).status, OK);
        await liar.control({ expire: true });
        assert.equal((await liar.call()).status, OK);
        const refreshes = (await liar.seen('/token')).map(({ body }) => new URLSearchParams(body)).filter(form => form.get('grant_type') === 'refresh_token');
        assert.deepEqual(refreshes.map(form => form.has('resource')), [true, false, false, false]);
    }));

test('F12 vague refusals are counted, and three at once do not end a grant', () =>
    withLiar('none', null, async liar => {
        assert.equal((await liar.login()).status, OK);
        await liar.control({ expire: true, lie: 'refresh-invalid-request' });
        for (let i = 0; i < 4; i++) assert.equal((await liar.call()).status, UNAVAILABLE);
        assert.equal((await liar.connections())[0].ended, false);
        await liar.control({ lie: 'none' });
        assert.equal((await liar.call()).status, OK);
    }));

test('F1 an idle gateway does not refresh tokens that expire at once', () =>
    withSession('expires-zero', async (liar, session) => {
        assert.ok((await session.call('liar__echo')).result);
        const before = (await liar.seen('/token')).length;
        await sleep(1500); // time in which a refresh would happen
        assert.ok((await liar.seen('/token')).length <= before + 1);
    }));

test('F1 F18 an idle gateway refreshes a token before it expires', () =>
    withSession('expires-soon', async (liar, session) => {
        assert.ok((await session.call('liar__echo')).result);
        const [called, asked] = [(await liar.seen('/mcp')).length, (await liar.seen('/token')).length];
        await until(async () => (await liar.seen('/token')).length > asked, WAIT_MS, 'a refresh');
        assert.equal((await liar.seen('/mcp')).length, called, 'the refresh did not need a call');
        await liar.control({ lie: 'none' });
        await until(async () => Date.parse((await liar.connections())[0].expires) > Date.now() + 600_000, WAIT_MS, 'a token that lasts');
        await liar.control({ lie: 'token-503' }); // from now on only the token in memory works
        assert.ok((await session.call('liar__echo')).result);
    }));

test('F6 a token is used while it is refreshed ahead by a slow token endpoint', () =>
    withSession('expires-soon', async (liar, session) => {
        assert.ok((await session.call('liar__echo')).result);
        let used = false;
        for (let i = 0; i < 5 && !used; i++) { // once more if a busy machine made the call after the end of the token
            await liar.control({ hold: '/token' });
            await liar.held();
            const call = session.call('liar__echo');
            used = await settles(call, 5_000);
            await liar.control({ release: true });
            assert.ok((await call).result);
        }
        assert.ok(used);
    }));

test('every lie is used in a test', () => {
    const elsewhere = ['open', 'documents', 'documents-broken', 'documents-refused', 'documents-page', 'basic-overlooked', 'scopes', 'scopes-empty', 'offline', 'step-up', 'scope-forever', 'token-silent', 'rotation-grace', 'secret-managed', 'secret-managed-away', 'secret-unmanaged', 'expires-soon', 'two-good-servers']; // oauth, refresh and registration
    const own = ['client-page', 'token-burst', 'migrated', 'mcp-redirect', 'mcp-echo', 'revoke-redirect'];
    const told = new Set([...WORKS, ...REFUSED, ...LATER].map(([lie]) => lie).concat(LOGGED, own, elsewhere));
    assert.deepEqual(Object.keys(LIES).filter(lie => !told.has(lie)), []);
});
