// The hosted connect flow: a caller gets a link, a user connects an account in a real browser, and the call works.
import assert from 'node:assert/strict';
import { execFileSync, spawnSync } from 'node:child_process';
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';

import { person, startBrowser } from '../browser.mjs';
import { binary, freePort, node, peerPath, startGateway, startPeer, temporaryDirectory, until } from '../gateway.mjs';
import { Jar } from '../jar.mjs';
import { initialize, post, reply, resultText, send, stream } from '../raw.mjs';

const authorityProgram = peerPath('authority.mjs');
const shots = process.env.POSTERN_SHOTS; // a folder for pictures of the pages, to look at

const policy = {
    version: 1,
    description: 'Every authenticated caller may use everything',
    rules: [
        {
            id: 'all',
            effect: 'allow',
            description: 'every authenticated caller',
            tenants: ['default'],
            subjects: ['authenticated'],
            servers: ['*'],
            kinds: ['tool'],
            names: ['*']
        },
        {
            id: 'not-mallory',
            effect: 'deny',
            description: 'Mallory may not',
            tenants: ['default'],
            subjects: ['user:forwarded-user:mallory'],
            servers: ['*'],
            kinds: ['tool'],
            names: ['*']
        }
    ]
};

let browser, authority, folder, gateway;

before(async () => {
    folder = temporaryDirectory();
    writeFileSync(join(folder.path, 'policy.json'), JSON.stringify(policy));
    authority = await startPeer(node, authorityProgram, 3600, 'ask');
    browser = await startBrowser();
    gateway = await start();
});
after(async () => {
    await browser?.close();
    await gateway?.stop();
    await authority?.stop();
    folder?.remove();
});

async function start({ hosted = {}, providers, variables = {}, port, ...more } = {}) {
    port ??= await freePort();
    const config = {
        listen: [{ address: `127.0.0.1:${port}` }],
        public_url: `http://127.0.0.1:${port}`,
        auth: { providers: providers ?? [{ type: 'forwarded-user', trusted_proxies: ['127.0.0.1'] }] },
        policy: join(folder.path, 'policy.json'),
        hosted,
        mcpServers: { files: { url: authority.url, auth: { mode: 'per_user' } } },
        ...more
    };
    return startGateway(config, [], { variables });
}

/** A caller's session. */
async function caller(user, { url = gateway.url, version = '2025-11-25', capabilities = {}, headers = { 'x-forwarded-user': user } } = {}) {
    const opened = await send(url, { headers: post(headers), body: initialize(version, capabilities) });
    assert.equal(opened.status, 200, opened.body);
    const own = { ...headers, 'mcp-session-id': opened.headers['mcp-session-id'] };
    let id = 10;
    const request = async (method, params) => reply(await send(url, { headers: post(own), body: { jsonrpc: '2.0', id: ++id, method, params } }));
    await send(url, { headers: post(own), body: { jsonrpc: '2.0', method: 'notifications/initialized' } });
    return {
        request,
        call: () => request('tools/call', { name: 'files__whoami', arguments: {} }),
        listen: () => stream(url, { headers: { ...own, accept: 'text/event-stream' } })
    };
}

const legacy = { version: '2025-06-18' };
const linkOf = answer => answer.error.data.authorizationUrl;
let users = 0;
const newUser = () => `user${++users}`;

/** A new user with a connect link and a browser page that can open it. */
async function withLink(options = {}) {
    const user = options.user ?? newUser();
    const calls = await caller(user, { ...legacy, ...options });
    const link = linkOf(await calls.call());
    const context = await person(browser, user);
    return { user, calls, link, context, page: await context.newPage() };
}

const heading = page => page.locator('h1').innerText();
const shot = (page, name) => (shots ? page.screenshot({ path: join(shots, `${name}.png`), fullPage: true }) : undefined);

async function agree(page) {
    await page.getByRole('button', { name: 'Continue' }).click();
    await page.getByRole('button', { name: 'Allow' }).waitFor();
}

async function allow(page, name = 'alice') {
    await page.locator('input[name=name]').fill(name);
    await page.getByRole('button', { name: 'Allow' }).click();
    await page.locator('main').waitFor();
}

/** Performs the whole login in the browser, from the connect link to the page "Connected". */
async function connect(page, link, name) {
    await page.goto(link);
    await agree(page);
    await allow(page, name);
    assert.equal(await heading(page), 'Connected');
}

/** Performs a login up to the redirect to the callback, and returns the address of the callback. */
async function stopAtCallback(page, link) {
    await page.goto(link);
    await agree(page);
    // The browser would follow every redirect, so the remaining requests are sent without it, but with its cookies.
    let answer = await page.request.post(page.url(), { form: { name: 'alice', answer: 'allow' }, maxRedirects: 0 });
    for (;;) {
        const { location } = answer.headers();
        assert.ok(location, await answer.text());
        if (location.startsWith(`${new URL(link).origin}/oauth/callback`)) return location;
        answer = await page.request.get(location, { maxRedirects: 0 });
    }
}

describe('links to connect', () => {
    test('H3 H11 a caller without URL elicitation gets -32003 with an absolute link and readable text', async () => {
        const { error } = await (await caller(newUser(), legacy)).call();
        assert.equal(error.code, -32003);
        assert.equal(error.data.reason, 'authorization_required');
        assert.equal(error.data.server, 'files');
        const link = new URL(error.data.authorizationUrl);
        assert.equal(link.origin, gateway.origin);
        assert.equal(link.pathname, '/oauth/connect');
        assert.match(link.searchParams.get('t'), /^[\w-]{43}$/, 'H4: 256 bits');
        assert.ok(error.message.includes('files') && error.message.includes(link.href), error.message);
    });
    test('H3 a caller of 2025-11-25 with URL elicitation gets -32042 with the link', async () => {
        const { error } = await (await caller(newUser(), { capabilities: { elicitation: { url: {} } } })).call();
        assert.equal(error.code, -32042);
        const [asked] = error.data.elicitations;
        assert.equal(asked.mode, 'url');
        assert.ok(asked.elicitationId && asked.message.includes('files'));
        assert.equal(new URL(asked.url).origin, gateway.origin);
    });
    test('a caller without URL elicitation or of an older revision gets -32003', async () => {
        assert.equal((await (await caller(newUser(), { capabilities: { elicitation: {} } })).call()).error.code, -32003);
        assert.equal((await (await caller(newUser(), { ...legacy, capabilities: { elicitation: { url: {} } } })).call()).error.code, -32003);
    });
    test('H3 the instructions of a session link to the connect page of a server without tools', async () => {
        const opened = await send(gateway.url, { headers: post({ 'x-forwarded-user': newUser() }), body: initialize('2025-11-25') });
        assert.ok(reply(opened).result.instructions.includes(`${gateway.origin}/oauth/connect/files`));
    });
    test('H15 a caller that the policy denies gets no link', async () => {
        const { error } = await (await caller('mallory', legacy)).call();
        assert.equal(error.code, 403);
        assert.equal(error.data.authorizationUrl, undefined);
    });
    test('H11 Host does not change the link', async () => {
        const { link } = await withLink({ headers: { 'x-forwarded-user': newUser(), 'x-forwarded-host': 'evil.example', host: `localhost:${new URL(gateway.url).port}` } });
        assert.equal(new URL(link).origin, gateway.origin);
    });
});

describe('connecting', () => {
    test('H5 H7 H8 a page explains the consent, consent leads to the authorization server, and the retried call works', async () => {
        const { user, calls, link, context, page } = await withLink();
        const answer = await page.goto(link);
        await shot(page, 'asks');
        const headers = answer.headers();
        assert.equal(headers['cache-control'], 'no-store');
        assert.match(headers['content-security-policy'], /default-src 'none'.*frame-ancestors 'none'/);
        assert.equal(headers['x-frame-options'], 'DENY');
        const text = await page.locator('main').innerText();
        for (const part of ['Connect “files”', user, 'mcp:use', 'You will sign in at', '127.0.0.1:']) assert.ok(text.includes(part), `${part} in ${text}`);
        assert.ok(!(await context.cookies()).some(({ name }) => name.includes('_oa_')), 'no binding cookie before consent');
        await agree(page);
        const bound = (await context.cookies()).find(({ name }) => name.startsWith('postern_oa_'));
        assert.ok(bound.httpOnly && bound.sameSite === 'Lax' && bound.path === '/', JSON.stringify(bound));
        await allow(page, 'alice');
        await shot(page, 'connected');
        assert.equal(await heading(page), 'Connected');
        assert.ok(!(await context.cookies()).some(({ name }) => name.includes('_oa_')), 'the cookie is gone');
        assert.equal(resultText(await calls.call()), 'alice');
        await context.close();
    });
    test('H16 a session gets elicitation/complete and list_changed and continues without reconnecting', async () => {
        const user = newUser();
        const calls = await caller(user, { capabilities: { elicitation: { url: {} } } });
        assert.deepEqual((await calls.request('tools/list', {})).result.tools, []);
        const listening = await calls.listen();
        const [asked] = (await calls.call()).error.data.elicitations;
        const context = await person(browser, user);
        await connect(await context.newPage(), asked.url, 'carol');
        const heard = [];
        while (heard.length < 2) {
            const { message } = await listening.message();
            if (message.method === 'notifications/elicitation/complete') assert.deepEqual(message.params, { elicitationId: asked.elicitationId });
            if (['notifications/elicitation/complete', 'notifications/tools/list_changed'].includes(message.method)) heard.push(message.method);
        }
        assert.equal(new Set(heard).size, 2);
        listening.drop();
        assert.equal((await calls.request('tools/list', {})).result.tools[0].name, 'files__whoami');
        assert.equal(resultText(await calls.call()), 'carol');
        await context.close();
    });
    test('B5 a login declined at the authorization server is reported and not stored, and the next link works', async () => {
        const { calls, link, context, page } = await withLink();
        await page.goto(link);
        await agree(page);
        await page.getByRole('button', { name: 'Deny' }).click();
        await page.locator('main').waitFor();
        await shot(page, 'declined');
        assert.equal(await heading(page), 'Not connected');
        const next = await calls.call();
        assert.equal(next.error.code, -32003);
        await connect(page, linkOf(next), 'dora');
        assert.equal(resultText(await calls.call()), 'dora');
        await context.close();
    });
    test('H5 the Cancel button uses up the link without a request to the authorization server', async () => {
        const { link, context, page } = await withLink();
        await page.goto(link);
        await page.getByRole('button', { name: 'Cancel' }).click();
        assert.equal(await heading(page), 'Not connected');
        assert.equal((await page.goto(link)).status(), 409);
        await context.close();
    });
    test('H9 two tabs with two links in one browser both connect', async () => {
        const { user, calls, link, context, page } = await withLink();
        const second = linkOf(await calls.call());
        const other = await context.newPage();
        await page.goto(link);
        await other.goto(second);
        await agree(page);
        await agree(other);
        await allow(other, 'tabs');
        await allow(page, 'tabs');
        assert.equal(await heading(page), 'Connected');
        assert.equal(await heading(other), 'Connected');
        assert.equal(resultText(await (await caller(user)).call()), 'tabs');
        await context.close();
    });
    test('H4 two tabs with one link connect only the first that consents', async () => {
        const { link, context, page } = await withLink();
        const other = await context.newPage();
        await page.goto(link);
        await other.goto(link);
        await agree(page);
        const answer = other.waitForResponse(response => response.request().method() === 'POST');
        await other.getByRole('button', { name: 'Continue' }).click();
        assert.equal((await answer).status(), 409);
        await shot(other, 'used');
        await allow(page, 'erin');
        assert.equal(await heading(page), 'Connected');
        await context.close();
    });
});

describe('refused links and callbacks', () => {
    test('H6 a link opened by another user gets 403 and becomes invalid', async () => {
        const { link, context, page } = await withLink();
        const other = await person(browser, newUser());
        const theirs = await other.newPage();
        assert.equal((await theirs.goto(link)).status(), 403);
        await shot(theirs, 'wrong-user');
        assert.equal(await heading(theirs), 'This link is for another user');
        assert.equal((await page.goto(link)).status(), 409, 'invalid for its owner as well');
        await other.close();
        await context.close();
    });
    test('H6 H8 a callback of another user gets 403 and no grant is stored', async () => {
        const { calls, link, context, page } = await withLink();
        const address = await stopAtCallback(page, link);
        await context.setExtraHTTPHeaders({ 'x-forwarded-user': newUser() });
        assert.equal((await page.goto(address)).status(), 403);
        assert.equal(await heading(page), 'This link is for another user');
        assert.equal((await calls.call()).error.code, -32003);
        await context.close();
    });
    test('H8 a callback in another browser gets 403 and the first browser can still complete the login', async () => {
        const { user, calls, link, context, page } = await withLink();
        const address = await stopAtCallback(page, link);
        const other = await person(browser, user);
        const theirs = await other.newPage();
        assert.equal((await theirs.goto(address)).status(), 403);
        await shot(theirs, 'wrong-browser');
        assert.equal(await heading(theirs), 'This login began in another browser');
        assert.equal((await calls.call()).error.code, -32003, 'no token was stored');
        assert.equal((await page.goto(address)).status(), 200);
        assert.equal(await heading(page), 'Connected');
        assert.equal(resultText(await calls.call()), 'alice');
        await other.close();
        await context.close();
    });
    test('B7 H8 a replayed callback gets 409', async () => {
        const { link, context, page } = await withLink();
        const address = await stopAtCallback(page, link);
        assert.equal((await page.goto(address)).status(), 200);
        assert.equal((await page.goto(address)).status(), 409);
        await context.close();
    });
    test('B2 B4 a callback with an unknown state or repeated parameters gets 400 and the login stays valid', async () => {
        const { link, context, page } = await withLink();
        const address = await stopAtCallback(page, link);
        const state = new URL(address).searchParams.get('state');
        for (const query of ['', 'code=x', `code=x&state=${'A'.repeat(43)}`, `code=x&state=${state}&state=${state}`, 'state=%zz']) {
            const answer = await page.goto(`${gateway.origin}/oauth/callback?${query}`);
            assert.equal(answer.status(), 400, query);
        }
        await shot(page, 'strange');
        await page.goto(address);
        assert.equal(await heading(page), 'Connected');
        await context.close();
    });
    test('B3 a callback with another issuer does not connect', async () => {
        const { calls, link, context, page } = await withLink();
        const address = new URL(await stopAtCallback(page, link));
        address.searchParams.set('iss', 'https://evil.example');
        assert.equal((await page.goto(address.href)).status(), 502);
        assert.equal(await heading(page), 'Not connected');
        assert.equal((await calls.call()).error.code, -32003);
        await context.close();
    });
    test('H4 an unknown link gets 410', async () => {
        const context = await person(browser, newUser());
        const page = await context.newPage();
        assert.equal((await page.goto(`${gateway.origin}/oauth/connect?t=${'A'.repeat(43)}`)).status(), 410);
        assert.equal((await page.goto(`${gateway.origin}/oauth/connect`)).status(), 410);
        await context.close();
    });
    test('H5 H7 a consent without the cookie, with a wrong token or from another site is refused', async () => {
        const { user, link, context, page } = await withLink();
        await page.goto(link);
        const ticket = new URL(link).searchParams.get('t');
        const csrf = await page.locator('input[name=csrf]').getAttribute('value');
        const cookie = (await context.cookies()).map(({ name, value }) => `${name}=${value}`).join('; ');
        const consent = (fields, headers) =>
            send(`${gateway.origin}/oauth/connect`, {
                headers: { 'content-type': 'application/x-www-form-urlencoded', 'x-forwarded-user': user, ...headers },
                body: new URLSearchParams({ t: ticket, answer: 'yes', ...fields }).toString()
            });
        assert.equal((await consent({ csrf }, {})).status, 403, 'no cookie');
        assert.equal((await consent({ csrf: csrf.replace(/^./, c => (c === 'A' ? 'B' : 'A')) }, { cookie })).status, 403, 'wrong token');
        assert.equal((await consent({}, { cookie })).status, 403, 'no token');
        assert.equal((await consent({ csrf }, { cookie, origin: 'http://localhost:1' })).status, 403, 'another site');
        const taken = await consent({ csrf }, { cookie, origin: gateway.origin });
        assert.equal(taken.status, 200, 'a valid consent is accepted');
        assert.ok(taken.headers['set-cookie'].some(line => /^postern_oa_[0-9a-f]{8}=[\w-]{43}\.\d{13}; Path=\/; Max-Age=\d+; HttpOnly; SameSite=Lax$/.test(line)));
        await context.close();
    });
    test('H5 a GET of a link does not redirect to the authorization server', async () => {
        const { link, context, page } = await withLink();
        const answer = await page.goto(`${link}&answer=yes`);
        assert.equal(answer.status(), 200);
        assert.equal(new URL(page.url()).origin, gateway.origin);
        await context.close();
    });
    test('H18 a user who opens more than ten links a minute waits', async () => {
        const { link, context, page } = await withLink();
        const statuses = [];
        for (let i = 0; i < 12; i++) statuses.push((await page.goto(link)).status());
        assert.deepEqual(statuses, [...Array(10).fill(200), 429, 429]);
        await context.close();
    });
});

describe('requests that the pages of the gateway do not make', () => {
    const form = { 'content-type': 'application/x-www-form-urlencoded' };
    for (const [name, method, path, headers, body, status] of [
        ['a form of another content type', 'POST', 'connect', { 'content-type': 'application/json' }, '{}', 403],
        ['a form without a content type', 'POST', 'connect', {}, 't=x', 403],
        ['an image of another site', 'GET', 'connect/files', { 'sec-fetch-dest': 'image', 'sec-fetch-site': 'cross-site' }, undefined, 403],
        ['a page in a frame', 'GET', 'connections', { 'sec-fetch-dest': 'iframe' }, undefined, 403],
        ['an empty form', 'POST', 'connect', form, '', 403],
        ['a repeated field', 'POST', 'connect', form, 't=a&t=b', 400],
        ['a field that is too long', 'POST', 'connect', form, `t=${'x'.repeat(600)}`, 400],
        ['a form that is too long', 'POST', 'connect', form, `x=${'x'.repeat(5000)}`, 413],
        ['a body that is not a form', 'POST', 'connect', form, 't=%zz', 400],
        ['a repeated ticket', 'GET', 'connect?t=a&t=b', {}, undefined, 400],
        ['a POST of the callback', 'POST', 'callback', form, 'code=x&state=y', 404],
        ['a GET of the disconnect button', 'GET', 'disconnect?server=files', {}, undefined, 404],
        ['a server name like a path', 'GET', 'connect/..%2f..%2fetc', {}, undefined, 404],
        ['a server name with markup', 'GET', 'connect/%3Cscript%3E', {}, undefined, 404]
    ])
        test(`${name} gets ${status}`, async () => {
            const answer = await send(`${gateway.origin}/oauth/${path}`, { method, headers: { 'x-forwarded-user': 'odd', ...headers }, body });
            assert.equal(answer.status, status, answer.body);
            assert.ok(!answer.body.includes('<script'), answer.body);
        });
});

describe('the configuration of hosted logins', () => {
    const check = config => {
        const path = join(folder.path, 'check.json');
        const provider = { type: 'forwarded-user', trusted_proxies: ['127.0.0.1'] };
        writeFileSync(path, JSON.stringify({ auth: { providers: [provider] }, policy: join(folder.path, 'policy.json'), mcpServers: { files: { url: 'https://files.example/mcp', auth: { mode: 'per_user' } } }, ...config }));
        return spawnSync(binary, ['config', 'check', '--config', path], { encoding: 'utf8' });
    };
    test('H11 the public_url of per_user servers must be https, or http on this host', () => {
        const { status, stderr } = check({ public_url: 'http://gateway.example' });
        assert.equal(status, 3);
        assert.match(stderr, /\/public_url: .*https/);
        for (const public_url of ['https://gateway.example', 'https://gateway.example/mcp-gateway/', 'http://127.0.0.1:8080']) assert.equal(check({ public_url }).status, 0, public_url);
    });
    test('H9 a lifetime of links above ten minutes is refused', () => {
        assert.equal(check({ hosted: { lifetime: '10m' } }).status, 0);
        assert.match(check({ hosted: { lifetime: '11m' } }).stderr, /\/hosted\/lifetime/);
        assert.match(check({ hosted: { allow_unbound_ticket: true } }).stderr, /allow_unbound_tickets/);
    });
});

describe('links that expire', () => {
    const LIFETIME_MS = 10_000; // long enough for a whole login in a browser, even on a busy machine
    let quick, unused;
    before(async () => {
        quick = await start({ hosted: { lifetime: `${LIFETIME_MS}ms` } });
        unused = await withLink({ url: quick.url });
    });
    after(() => quick?.stop());

    test('H9 an expired callback gets 400 and no grant is stored', async () => {
        const { calls, link, context, page } = await withLink({ url: quick.url });
        const address = await stopAtCallback(page, link);
        await sleep(LIFETIME_MS + 100);
        assert.equal((await page.goto(address)).status(), 400);
        assert.equal((await calls.call()).error.code, -32003);
        await context.close();
    });
    test('H4 an expired link gets 410', async () => {
        const { link, context, page } = unused; // older than the expired link of the previous test
        assert.equal((await page.goto(link)).status(), 410);
        await shot(page, 'expired');
        await context.close();
    });
});

describe('the page of connections', () => {
    test('H3 H14 a user connects from the list, and a disconnect revokes and deletes the grant', async () => {
        const user = newUser();
        const context = await person(browser, user);
        const page = await context.newPage();
        await page.goto(`${gateway.origin}/oauth/connections`);
        await shot(page, 'connections-empty');
        assert.match(await page.locator('main').innerText(), /Not connected/);
        await page.getByRole('link', { name: 'Connect files' }).click();
        await agree(page);
        await allow(page, 'fred');
        const calls = await caller(user, legacy);
        assert.equal(resultText(await calls.call()), 'fred');
        await page.goto(`${gateway.origin}/oauth/connections`);
        await shot(page, 'connections');
        const before = await (await fetch(new URL('/count', authority.url))).json();
        await page.getByRole('button', { name: 'Disconnect files' }).click();
        await page.getByRole('link', { name: 'Connect files' }).waitFor();
        const after = await (await fetch(new URL('/count', authority.url))).json();
        assert.equal(after.revoked, (before.revoked ?? 0) + 1, 'the refresh token was revoked');
        assert.equal((await calls.call()).error.code, -32003, 'the disconnection takes effect at once in the same session');
        const elsewhere = await person(browser, user);
        await connect(await elsewhere.newPage(), linkOf(await calls.call()), 'greta');
        assert.equal(resultText(await calls.call()), 'greta', 'only the second account is used');
        await elsewhere.close();
        await context.close();
    });
    test('H14 a disconnect from another page is refused', async () => {
        const answer = await send(`${gateway.origin}/oauth/disconnect`, {
            headers: { 'content-type': 'application/x-www-form-urlencoded', 'x-forwarded-user': newUser() },
            body: 'server=files&csrf=x'
        });
        assert.equal(answer.status, 403);
    });
    test('a server that is unknown or has no per-user grants gets 404', async () => {
        const headers = { 'x-forwarded-user': newUser() };
        assert.equal((await send(`${gateway.origin}/oauth/connect/nothing`, { method: 'GET', headers })).status, 404);
        assert.equal((await send(`${gateway.origin}/oauth/other`, { method: 'GET', headers })).status, 404);
    });
    test('H14 a purge by user or issuer takes effect in a running gateway', async () => {
        const env = { ...process.env, POSTERN_STATE: gateway.state };
        const postern = (...args) => execFileSync(binary, ['connections', ...args], { encoding: 'utf8', env, cwd: folder.path, stdio: ['ignore', 'pipe', 'ignore'] });
        const [leaver, stayer] = await Promise.all([withLink(), withLink()]);
        for (const one of [leaver, stayer]) {
            await connect(one.page, one.link, `${one.user}-there`);
            assert.equal(resultText(await one.calls.call()), `${one.user}-there`);
        }
        const refused = one => until(async () => (await one.calls.call()).error?.code === -32003, 10_000, 'the grant is gone');
        assert.equal(postern('--purge', '--subject', `forwarded-user:${leaver.user}`).trim(), '1 grant purged');
        await refused(leaver);
        assert.equal(resultText(await stayer.calls.call()), `${stayer.user}-there`, 'the grants of other users remain');
        const { issuer } = JSON.parse(postern('--json')).find(({ user }) => user.endsWith(`/${stayer.user}`));
        assert.throws(() => postern('--purge'), '--purge needs a selection');
        assert.match(postern('--purge', '--issuer', issuer), /^[1-9]\d* grants? purged/);
        await refused(stayer);
        assert.deepEqual(JSON.parse(postern('--json')), []);
        for (const one of [leaver, stayer]) await one.context.close();
    });
    test('H6 the page shows neither list nor links without an authenticated user', async () => {
        assert.equal((await send(`${gateway.origin}/oauth/connections`, { method: 'GET' })).status, 403);
        assert.equal((await send(`${gateway.origin}/oauth/connect/files`, { method: 'GET' })).status, 403);
    });
});

describe('browsers without authentication', () => {
    const gateways = [];
    let token;
    before(async () => {
        const file = join(folder.path, 'tokens.json');
        token = execFileSync(binary, ['token', 'new', '--subject', 'ivy', '--file', file], { encoding: 'utf8' }).trim();
        const providers = [{ type: 'bearer', tokens: file }], everybody = join(folder.path, 'everybody.json');
        writeFileSync(everybody, JSON.stringify({ ...policy, rules: policy.rules.slice(0, 1) }));
        for (const allow_unbound_tickets of [false, true]) gateways.push(await start({ providers, policy: everybody, hosted: { allow_unbound_tickets } }));
    });
    after(() => Promise.all(gateways.map(one => one.stop())));

    test('H6 a link is refused in an unauthenticated browser without allow_unbound_tickets', async () => {
        const calls = await caller('ivy', { ...legacy, url: gateways[0].url, headers: { authorization: `Bearer ${token}` } });
        const context = await person(browser);
        const page = await context.newPage();
        assert.equal((await page.goto(linkOf(await calls.call()))).status(), 403);
        await shot(page, 'nobody');
        assert.equal(await heading(page), 'You are not signed in');
        await context.close();
    });
    test('H6 a link works in one unauthenticated browser with allow_unbound_tickets and shows its user', async () => {
        const calls = await caller('ivy', { ...legacy, url: gateways[1].url, headers: { authorization: `Bearer ${token}` } });
        const context = await person(browser);
        const page = await context.newPage();
        await page.goto(linkOf(await calls.call()));
        await shot(page, 'unbound');
        assert.match(await page.locator('.warn').innerText(), /used by\s+ivy/);
        await agree(page);
        await allow(page, 'ivy-there');
        assert.equal(await heading(page), 'Connected');
        assert.equal(resultText(await calls.call()), 'ivy-there');
        await context.close();
    });
});

describe('a server that needs more scope', () => {
    let liar, stepping;
    before(async () => {
        liar = await startPeer(node, peerPath('liar.mjs'), 'step-up');
        stepping = await start({ mcpServers: { files: { url: liar.url, auth: { mode: 'per_user' } } } });
    });
    after(async () => {
        await stepping?.stop();
        await liar?.stop();
    });

    test('A9 H5 a call that needs more scope gives a link that asks for all of it, and then works', async () => {
        const user = newUser();
        const calls = await caller(user, { ...legacy, url: stepping.url });
        const echo = () => calls.request('tools/call', { name: 'files__echo', arguments: {} });
        const jar = new Jar(user);
        const scopes = page => [...page.body.matchAll(/<li><code>([^<]+)</g)].map(([, scope]) => scope);
        assert.deepEqual(scopes(await jar.connect(linkOf(await echo()))), ['read']);
        const more = await echo();
        assert.equal(more.error.code, -32003, JSON.stringify(more));
        assert.deepEqual(scopes(await jar.connect(linkOf(more))), ['read', 'write']);
        assert.match(resultText(await echo()), /^echo/);
        const secrets = await (await fetch(new URL('/secrets', liar.url))).json();
        const files = readdirSync(stepping.state).filter(name => name.includes('.')).map(name => readFileSync(join(stepping.state, name), 'latin1'));
        assert.ok(secrets.length > 4 && files.length > 2);
        for (const secret of secrets) assert.ok(![stepping.log(), ...files].some(text => text.includes(secret)), 'no secret in the log or on the disk');
    });
});

describe('hosted logins over TLS', () => {
    let secure, documents, port;
    before(async () => {
        const certificate = join(folder.path, 'tls.crt'), key = join(folder.path, 'tls.key');
        const args = ['req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-noenc', '-days', '2', '-subj', '/CN=gateway', '-addext', 'subjectAltName=IP:127.0.0.1'];
        execFileSync('openssl', [...args, '-keyout', key, '-out', certificate], { stdio: 'ignore' });
        documents = await startPeer(node, authorityProgram, 3600, 'ask', 'documents');
        port = await freePort();
        secure = await start({
            listen: [{ address: `127.0.0.1:${port}`, tls: { certificate, key } }],
            public_url: `https://127.0.0.1:${port}/`,
            mcpServers: { files: { url: documents.url, auth: { mode: 'per_user' } } }
        });
    });
    after(async () => {
        await secure?.stop();
        await documents?.stop();
    });

    test('H7 G2 cookies are __Host- and Secure over TLS, and the client id is the metadata document of the gateway', async () => {
        const context = await person(browser, newUser());
        const endpoint = `https://127.0.0.1:${port}/mcp`;
        const ask = (headers, data) => context.request.post(endpoint, { headers: post(headers), data });
        const opened = await ask({}, initialize('2025-06-18'));
        const session = { 'mcp-session-id': opened.headers()['mcp-session-id'] };
        const call = async () => (await ask(session, { jsonrpc: '2.0', id: 2, method: 'tools/call', params: { name: 'files__whoami', arguments: {} } })).json();
        const link = linkOf(await call());
        assert.ok(link.startsWith(`https://127.0.0.1:${port}/oauth/connect?t=`), link);
        const address = `https://127.0.0.1:${port}/oauth/client-metadata.json`;
        const document = await (await context.request.get(address)).json();
        assert.equal(document.client_id, address);
        assert.deepEqual(document.redirect_uris, [`https://127.0.0.1:${port}/oauth/callback`]);
        assert.equal(document.token_endpoint_auth_method, 'none');
        assert.equal(document.application_type, 'web');
        const forCommands = `https://127.0.0.1:${port}/oauth/cli-metadata.json`;
        const native = await (await context.request.get(forCommands)).json();
        assert.equal(native.client_id, forCommands);
        assert.deepEqual(native.redirect_uris, ['http://127.0.0.1/callback', 'http://localhost/callback'], 'any port');
        assert.deepEqual([native.token_endpoint_auth_method, native.application_type], ['none', 'native']);
        const page = await context.newPage();
        await page.goto(link);
        await agree(page);
        const ours = (await context.cookies()).filter(({ name }) => name.includes('postern_'));
        assert.deepEqual(ours.map(({ name }) => name.replace(/[0-9a-f]{8}$/, '')).sort(), ['__Host-postern_csrf', '__Host-postern_oa_']);
        for (const cookie of ours) assert.ok(cookie.secure && cookie.httpOnly && cookie.sameSite === 'Lax' && cookie.path === '/', JSON.stringify(cookie));
        await allow(page, 'kim');
        assert.equal(await heading(page), 'Connected');
        assert.equal(resultText(await call()), 'kim');
        assert.equal((await (await fetch(new URL('/count', documents.url))).json()).registered, undefined, 'no client was registered');
        await context.close();
    });
    test('G2 a client metadata document is not served without https', async () => {
        for (const name of ['client', 'cli'])
            assert.equal((await send(`${gateway.origin}/oauth/${name}-metadata.json`, { method: 'GET' })).status, 404);
    });
});

describe('the audit log of a login', () => {
    test('H17 refreshes are recorded in the audit log', async () => {
        const short = await startPeer(node, authorityProgram, 4, 'ask');
        const other = await start({ mcpServers: { files: { url: short.url, auth: { mode: 'per_user' } } } });
        try {
            const user = newUser();
            const calls = await caller(user, { ...legacy, url: other.url });
            await new Jar(user).connect(linkOf(await calls.call()));
            assert.equal(resultText(await calls.call()), `account-of-${user}`);
            const rows = () => execFileSync(binary, ['audit', '--file', join(other.state, 'audit.db'), '--json'], { encoding: 'utf8' });
            await until(() => rows().includes('"refresh_ok"'), 15_000, 'a refresh');
            const row = rows().split('\n').filter(line => line.includes('"refresh_ok"')).map(line => JSON.parse(line))[0];
            assert.deepEqual([row.subject, row.server, row.tenant], [user, 'files', 'default']);
            assert.equal(resultText(await calls.call()), `account-of-${user}`);
        } finally {
            await other.stop();
            await short.stop();
        }
    });
    test('H17 every step of a login is recorded with user, server, issuer and address and without secrets', async () => {
        const { user, calls, link, context, page } = await withLink();
        await connect(page, link, 'hugo');
        assert.equal(resultText(await calls.call()), 'hugo');
        await context.close();
        const file = join(gateway.state, 'audit.db');
        const rows = () => execFileSync(binary, ['audit', '--file', file, '--json', '--subject', user], { encoding: 'utf8' }).trim().split('\n').map(line => JSON.parse(line));
        const steps = () => rows().filter(({ event }) => event === 'token');
        await until(() => steps().length >= 4, 10_000, 'the rows');
        assert.deepEqual(steps().map(({ method }) => method), ['attempt_started', 'consent_shown', 'consent_given', 'callback_ok']);
        for (const row of steps()) assert.equal(row.server, 'files');
        assert.match(steps()[3].name, /^http:\/\/127\.0\.0\.1:\d+$/);
        assert.match(JSON.stringify(steps()[2]), /127\.0\.0\.1/);
        const ticket = new URL(link).searchParams.get('t');
        assert.ok(!JSON.stringify(rows()).includes(ticket) && !gateway.log().includes(ticket), 'the ticket is not recorded');
    });
});
