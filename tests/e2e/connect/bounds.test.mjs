// The bounds of the hosted connect flow: number and rate of logins, targets of redirects, secrets that never leave the gateway, and the
// owners of grants.
import assert from 'node:assert/strict';
import { execFileSync, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';

import { person, startBrowser } from '../browser.mjs';
import { binary, program, startPeer, until } from '../gateway.mjs';
import { caller, comeBack, everybody, forwarded, newUser, startWorld, title } from '../hosted.mjs';
import { startIssuer } from '../issuer.mjs';
import { Jar } from '../jar.mjs';
import { resultText, send } from '../raw.mjs';

let world, gateway;
before(async () => {
    world = await startWorld();
    gateway = await world.start();
});
after(async () => {
    await gateway?.stop();
    await world?.stop();
});

describe('bounds on open logins', () => {
    test('H7 a ninth login in one browser drops the oldest, which can no longer be completed', async () => {
        const user = newUser(), jar = new Jar(user);
        const calls = await caller(user, gateway.url);
        const bound = () => Object.keys(jar.cookies['127.0.0.1']).filter(name => name.startsWith('postern_oa_'));
        const away = [], names = [];
        for (let i = 0; i < 9; i++) {
            const before = i ? bound() : [];
            away.push(await jar.agree(await jar.open(await calls.link(i < 5 ? 'files' : 'mail'))));
            names.push(bound().find(name => !before.includes(name)));
            assert.equal(bound().length, Math.min(i + 1, 8));
        }
        assert.ok(!bound().includes(names[0]), 'the oldest login was dropped');
        assert.deepEqual(bound().sort(), names.slice(1).sort(), 'no other login was dropped');
        const dropped = await jar.allow(away[0]);
        assert.equal(dropped.status, 403);
        assert.equal(title(dropped), 'This login began in another browser');
        for (const login of [away[1], away[8]]) {
            const { next } = await jar.allow(login, `${gateway.origin}/oauth/callback`);
            assert.equal(title(await comeBack(jar, next)), 'Connected');
        }
    });
    test('H9 a sixth link for one user and server invalidates only the first one for that server', async () => {
        const user = newUser(), jar = new Jar(user);
        const calls = await caller(user, gateway.url);
        const mail = await calls.link('mail'), links = [];
        for (let i = 0; i < 6; i++) links.push(await calls.link());
        assert.equal((await jar.visit(links[0])).status, 410);
        for (const link of [...links.slice(1), mail]) assert.equal((await jar.visit(link)).status, 200);
    });
    test('H4 the ticket and the browser cookies are neither on disk nor in the log', async () => {
        const user = newUser(), jar = new Jar(user);
        const link = await (await caller(user, gateway.url)).link();
        const ticket = new URL(link).searchParams.get('t');
        const address = await jar.callback(link);
        const state = new URL(address).searchParams.get('state');
        const [, cookie] = Object.entries(jar.cookies['127.0.0.1']).find(([name]) => name.startsWith('postern_oa_'));
        const files = readdirSync(gateway.state).filter(name => name.startsWith('store.')).map(name => readFileSync(join(gateway.state, name), 'latin1'));
        assert.ok(files.some(text => text.includes('attempt')), 'the login is stored');
        for (const secret of [ticket, state, cookie.split('.')[0]]) assert.ok(![gateway.log(), ...files].some(text => text.includes(secret)));
        assert.equal(title(await comeBack(jar, address)), 'Connected');
    });
});

describe('rates of connecting', () => {
    /** As many are answered with `status` as the limit of a minute allows, and those regained meanwhile; the rest get 429. Returns one of these. */
    async function holds(ask, status, limit) {
        const began = Date.now();
        const answers = await Promise.all(Array.from({ length: limit + 40 }, ask));
        const regained = Math.ceil((limit * (Date.now() - began)) / 60_000);
        const passed = answers.filter(answer => answer.status === status).length;
        assert.ok(passed >= limit && passed <= limit + regained, `${passed} of ${answers.length} in ${Date.now() - began} ms`);
        const limited = answers.filter(answer => answer.status === 429);
        assert.equal(limited.length, answers.length - passed);
        return limited[0];
    }
    test('H18 a user may open ten links a minute, and other users are not affected', async () => {
        const user = newUser(), jar = new Jar(user);
        const statuses = [];
        for (let i = 0; i < 11; i++) statuses.push((await jar.visit(`${gateway.origin}/oauth/connect/files`, undefined, gateway.origin)).status);
        assert.deepEqual(statuses, [...Array(10).fill(303), 429]);
        const limited = await jar.visit(`${gateway.origin}/oauth/connect/mail`);
        assert.equal(limited.status, 429);
        assert.ok(Number(limited.headers['retry-after']) > 0);
        const other = newUser();
        assert.equal((await new Jar(other).visit(`${gateway.origin}/oauth/connect/files`)).status, 200);
    });
    test('H18 a user behind the proxy may send thirty callbacks a minute, and other users are not affected', async () => {
        const [jar, other] = [new Jar(newUser()), new Jar(newUser())];
        const strange = browser => browser.visit(`${gateway.origin}/oauth/callback?code=x&state=${'A'.repeat(43)}`);
        const limited = await holds(() => strange(jar), 400, 30);
        assert.ok(Number(limited.headers['retry-after']) > 0);
        assert.equal((await strange(other)).status, 400);
    });
    test('H18 an address without a proxy may send thirty callbacks a minute for all its users', async () => {
        const file = join(world.folder.path, 'tokens.json');
        execFileSync(binary, ['token', 'new', '--subject', 'ivy', '--file', file]);
        const bare = await world.start({ auth: { providers: [{ type: 'bearer', tokens: file }] }, hosted: { allow_unbound_tickets: true } });
        try {
            const strange = () => send(`${bare.origin}/oauth/callback?code=x&state=${'A'.repeat(43)}`, { method: 'GET' });
            await holds(strange, 400, 30);
            const guess = () => send(`${bare.origin}/oauth/connect?t=${'A'.repeat(43)}`, { method: 'GET' });
            await holds(guess, 410, 90); // guesses of tickets are limited as well
        } finally {
            await bare.stop();
        }
    });
    test('H18 five logins a second complete at one issuer, and a login that waits stays valid', async () => {
        const own = await world.start();
        try {
            const jars = Array.from({ length: 12 }, () => new Jar(newUser()));
            const addresses = [];
            for (const jar of jars) addresses.push(await jar.callback(await (await caller(jar.user, own.url)).link()));
            const began = Date.now();
            const pages = await Promise.all(jars.map((jar, i) => jar.visit(addresses[i])));
            const seconds = (Date.now() - began) / 1000;
            const connected = pages.filter(page => title(page) === 'Connected').length;
            assert.ok(connected >= 5 && connected <= 5 + Math.ceil(5 * seconds), `${connected} in ${seconds} s`);
            const limited = pages.flatMap((page, i) => (page.status === 429 ? [i] : []));
            assert.equal(connected + limited.length, 12);
            assert.ok(limited.length > 0);
            for (const i of limited) assert.equal(title(await comeBack(jars[i], addresses[i])), 'Connected');
        } finally {
            await own.stop();
        }
    });
});

describe('requests for more scope', () => {
    let liar, own;
    before(async () => {
        liar = await startPeer(program.liar, 'scope-forever');
        own = await world.start({ mcpServers: { files: { url: liar.url, auth: { mode: 'per_user' } } } });
    });
    after(async () => {
        await own?.stop();
        await liar?.stop();
    });
    const connect = async (jar, link) => assert.equal(title(await comeBack(jar, await jar.callback(link))), 'Connected');
    const authorized = async () => (await (await fetch(new URL('/seen', liar.url))).json()).filter(({ path }) => path === '/authorize').length;

    for (const [how, capabilities, linkOf] of [
        ['-32003', undefined, ({ error }) => error.data.authorizationUrl],
        ['-32042', { elicitation: { url: {} } }, ({ error }) => error.data.elicitations?.[0].url]
    ])
        test(`A9 a server that always wants more scope gets three links (callers of ${how})`, async () => {
            const user = newUser(), jar = new Jar(user), before = await authorized();
            const calls = await caller(user, own.url, { capabilities });
            const echo = (session = calls) => session.request('tools/call', { name: 'files__echo', arguments: {} });
            for (let logins = 0; logins < 4; logins++) {
                await echo(); // unused links are not counted
                await connect(jar, linkOf(await echo()));
            }
            for (const session of [calls, await caller(user, own.url)]) {
                const { error } = await echo(session);
                assert.equal(error.code, -32003, JSON.stringify(error));
                assert.deepEqual([error.data.reason, error.data.server, linkOf({ error })], ['authorization_required', 'files', undefined]);
                assert.match(error.message, /does not help/);
            }
            assert.equal((await authorized()) - before, 4, 'one login, and three requests for more scope');
            const other = newUser(), others = await caller(other, own.url, { capabilities });
            await connect(new Jar(other), linkOf(await echo(others)));
            assert.ok(linkOf(await echo(others)), 'another user still gets a link');
        });
    test('A9 a user who disconnects after three requests for scope can still connect', async () => {
        const user = newUser(), jar = new Jar(user), calls = await caller(user, own.url);
        const echo = () => calls.request('tools/call', { name: 'files__echo', arguments: {} });
        for (let logins = 0; logins < 4; logins++) await connect(jar, (await echo()).error.data.authorizationUrl);
        assert.equal((await echo()).error.data.authorizationUrl, undefined);
        await jar.disconnect(own.origin, 'files');
        await connect(jar, (await echo()).error.data.authorizationUrl);
        assert.equal((await echo()).error.data.authorizationUrl, undefined);
    });
});

describe('targets of return_to', () => {
    let portal, returning, back;
    before(async () => {
        portal = createServer((_request, response) => response.end('<h1>The portal</h1>'));
        portal.listen(0, '127.0.0.1');
        await once(portal, 'listening');
        back = `http://127.0.0.1:${portal.address().port}`;
        returning = await world.start({ hosted: { return_to: ['https://app.example', back] } });
    });
    after(async () => {
        await returning?.stop();
        portal.closeAllConnections();
        portal.close();
    });
    const begin = (jar, origin, to) => jar.visit(`${origin}/oauth/connect/files?return_to=${encodeURIComponent(to)}`);

    test('H10 a browser returns to a listed origin with its path and query', async () => {
        const user = newUser(), jar = new Jar(user), to = 'https://app.example/done?server=files&x=%2F';
        const asked = await begin(jar, returning.origin, to);
        assert.equal(asked.status, 200, asked.body);
        const done = await jar.allow(await jar.agree(asked), 'https://app.example');
        assert.equal(done.status, 303);
        assert.equal(done.headers.location, to);
        assert.equal(resultText(await (await caller(user, returning.url)).call()), 'alice');
    });
    test('H10 a real browser arrives at its return_to', async () => {
        const browser = await startBrowser();
        try {
            const page = await (await person(browser, newUser())).newPage();
            await page.goto(`${returning.origin}/oauth/connect/files?return_to=${encodeURIComponent(`${back}/x`)}`);
            await page.getByRole('button', { name: 'Continue' }).click();
            await page.waitForURL(`${back}/x`);
            assert.equal(await page.locator('h1').innerText(), 'The portal');
        } finally {
            await browser.close();
        }
    });
    test('H10 a browser of a declined login is not redirected', async () => {
        const jar = new Jar(newUser());
        const asked = await begin(jar, returning.origin, 'https://app.example/');
        const field = name => new RegExp(`name="${name}" value="([^"]+)"`).exec(asked.body)[1];
        const declined = await jar.visit(`${returning.origin}/oauth/connect`, { t: field('t'), csrf: field('csrf'), answer: 'no' });
        assert.equal(declined.status, 200);
        assert.equal(declined.headers.location, undefined);
    });
    for (const to of [
        '//evil.example/',
        '///evil.example/',
        'https://evil.example/',
        'https://app.example.evil.example/',
        'https://evil.example/https://app.example/',
        'https://evil.example/?https://app.example',
        'https://app.example@evil.example/',
        'https://app.example:x@evil.example/',
        'https://user@app.example/',
        'https://app.example\\@evil.example/',
        'https://app.example\\.evil.example/',
        'https://evil.example\\.app.example/',
        'https:\\\\app.example/',
        'https:/app.example/',
        'https:app.example/',
        'https://app.example%2eevil.example/',
        'https://app.example%00.evil.example/',
        'https://app.example\0.evil.example/',
        'https://app.example/\r\nSet-Cookie: a=b',
        'https://app.example/\nLocation: https://evil.example/',
        'https://app.example/\tx',
        ' https://app.example/',
        'https://app.example/#evil',
        'https://app.example:443/',
        'https://app.example:8443/',
        'https://app.example./',
        'HTTPS://APP.EXAMPLE/',
        'http://app.example/',
        'ftp://app.example/',
        'javascript:alert(1)',
        'data:text/html,x',
        '/oauth/connections',
        '.',
        `https://app.example/${'x'.repeat(600)}`
    ])
        test(`H10 the return_to ${JSON.stringify(to.slice(0, 60))} is refused before the login begins`, async () => {
            const answer = await begin(new Jar(newUser()), returning.origin, to);
            assert.equal(answer.status, 400);
            assert.equal(answer.headers.location, undefined);
            assert.ok(!(answer.headers['set-cookie'] ?? []).length);
            assert.ok(!answer.body.includes('evil'), 'the page does not repeat the address');
        });
    test('H10 a return_to is ignored when it is repeated, beside a ticket or in a callback', async () => {
        const user = newUser(), jar = new Jar(user);
        const to = encodeURIComponent('https://app.example/');
        assert.equal((await jar.visit(`${returning.origin}/oauth/connect/files?return_to=${to}&return_to=${to}`)).status, 400);
        const link = await (await caller(user, returning.url)).link();
        assert.equal((await jar.visit(`${link}&return_to=${to}`)).status, 400);
        const done = await comeBack(jar, `${await jar.callback(link)}&return_to=${to}`);
        assert.equal(title(done), 'Connected');
        assert.equal(done.headers.location, undefined);
    });
    test('H10 a login without a list of origins ends on a page and does not accept a return_to', async () => {
        assert.equal((await begin(new Jar(newUser()), gateway.origin, 'https://app.example/')).status, 400);
        assert.equal((await begin(new Jar(newUser()), gateway.origin, gateway.origin)).status, 400);
    });
    test('H10 an entry of the list that is not an origin is refused', () => {
        const path = join(world.folder.path, 'check.json');
        const check = return_to => {
            writeFileSync(path, JSON.stringify({ auth: { providers: [forwarded] }, policy: world.policy, hosted: { return_to }, mcpServers: {} }));
            return spawnSync(binary, ['config', 'check', '--config', path], { encoding: 'utf8' });
        };
        assert.equal(check(['https://app.example', 'https://app.example:8443', 'http://localhost:3000']).status, 0);
        for (const bad of ['https://app.example/', 'https://app.example/x', 'https://*.example', '*', 'http://app.example', 'app.example', '']) {
            const { status, stderr } = check([bad]);
            assert.equal(status, 3, bad);
            assert.match(stderr, /\/hosted\/return_to: /);
        }
    });
});

describe('tokens of callers', () => {
    test('H12 the gateway has no endpoint for registration or authorization', async () => {
        const headers = { 'x-forwarded-user': newUser() };
        const paths = ['authorize', 'register', 'token', 'oauth/authorize', 'oauth/register', 'oauth/token', '.well-known/oauth-authorization-server', '.well-known/openid-configuration', '.well-known/oauth-authorization-server/mcp'];
        for (const path of paths)
            for (const method of ['GET', 'POST']) {
                const answer = await send(`${gateway.origin}/${path}`, { method, headers: { ...headers, 'content-type': 'application/json' }, body: method === 'POST' ? '{"redirect_uris":["https://evil.example/"]}' : undefined });
                assert.ok([403, 404, 405].includes(answer.status), `${method} /${path}: ${answer.status} ${answer.body}`);
                assert.ok(!/client_id|registration_endpoint|authorization_endpoint/.test(answer.body), answer.body);
            }
    });
    for (const kind of ['bearer', 'jwt'])
        test(`H12 H16 the token of a ${kind} caller never reaches a server or its authorization server, and no call is replayed`, async () => {
            const liar = await startPeer(program.liar, 'none');
            const issuer = await startIssuer('https://gateway.example/mcp');
            const file = join(world.folder.path, 'callers.json');
            const token = kind === 'bearer' ? execFileSync(binary, ['token', 'new', '--subject', `${kind}-caller`, '--file', file], { encoding: 'utf8' }).trim() : issuer.sign();
            const provider = kind === 'bearer' ? { type: 'bearer', tokens: file } : { type: 'jwt', issuer: issuer.url, audiences: ['https://gateway.example/mcp'] };
            const open = { url: `${new URL(liar.url).origin}/plain` };
            const own = await world.start({
                auth: { providers: [provider] },
                hosted: { allow_unbound_tickets: true },
                mcpServers: { files: { url: liar.url, auth: { mode: 'per_user' } }, open }
            });
            const seen = async () => (await fetch(new URL('/seen', liar.url))).json();
            try {
                const calls = await caller(undefined, own.url, { headers: { authorization: `Bearer ${token}` } });
                const echo = () => calls.request('tools/call', { name: 'files__echo', arguments: {} });
                const link = (await echo()).error.data.authorizationUrl;
                await calls.request('tools/list');
                await new Jar(undefined).connect(link);
                const asked = all => all.filter(({ body }) => String(body).includes('tools/call')).length;
                assert.equal(asked(await seen()), 0, 'nothing was sent before the caller tried again');
                assert.ok((await echo()).result, 'connected');
                const requests = await seen();
                assert.equal(asked(requests), 1);
                assert.ok(requests.some(({ path }) => path === '/plain') && requests.some(({ headers }) => headers.authorization), 'both servers were asked');
                for (const request of requests) assert.ok(!JSON.stringify(request).includes(token), `${request.method} ${request.path}`);
            } finally {
                await own.stop();
                await liar.stop();
                await issuer.stop();
            }
        });
});

describe('owners of grants', () => {
    test('H13 a per_user server asks each caller to connect, even beside a shared grant for the same server', async () => {
        const liar = await startPeer(program.liar, 'none');
        const own = await world.start({ mcpServers: { files: { url: liar.url, auth: { mode: 'per_user' } }, team: { url: liar.url, auth: { mode: 'shared' } } } });
        try {
            const env = { ...process.env, POSTERN_STATE: own.state };
            execFileSync(binary, ['login', 'team', '--headless', '--config', join(own.state, 'postern.json')], { env, stdio: 'ignore' });
            const calls = await caller(newUser(), own.url);
            const echo = server => calls.request('tools/call', { name: `${server}__echo`, arguments: {} });
            assert.ok((await echo('team')).result, 'the shared grant works');
            assert.equal((await echo('files')).error.code, -32003);
            assert.ok((await echo('team')).result);
        } finally {
            await own.stop();
            await liar.stop();
        }
    });
    test('H13 an unknown mode stops the start', () => {
        const path = join(world.folder.path, 'check.json');
        writeFileSync(path, JSON.stringify({ auth: { providers: [forwarded] }, policy: world.policy, mcpServers: { files: { url: 'https://files.example/mcp', auth: { mode: 'per-user' } } } }));
        const { status, stderr } = spawnSync(binary, ['serve', '--config', path], { encoding: 'utf8' });
        assert.equal(status, 3);
        assert.match(stderr, /\/mcpServers\/files\/auth\/mode: .*per_user/);
    });
    test('H13 a tenant file with per_user servers but no authentication stops the start and is named', () => {
        const own = join(world.folder.path, 'tenant'), path = join(own, 'postern.json');
        mkdirSync(join(own, 'tenants.d'), { recursive: true });
        writeFileSync(path, JSON.stringify({ mcpServers: {} }));
        writeFileSync(join(own, 'tenants.d/acme.json'), JSON.stringify({ mcpServers: { files: { url: 'https://files.example/mcp', auth: { mode: 'per_user' } } } }));
        const { status, stderr } = spawnSync(binary, ['serve', '--config', path], { encoding: 'utf8', timeout: 10_000 });
        assert.equal(status, 3, stderr);
        assert.ok(stderr.includes(join(own, 'tenants.d/acme.json')) && stderr.includes('/mcpServers/files/auth/mode'), stderr);
        assert.ok(stderr.includes(`authenticates callers, in ${path}`), stderr);
    });
    test('H15 a user whom a new policy denies is stopped at once, and the grant is kept', async () => {
        const own = await world.start();
        const user = newUser();
        try {
            const calls = await caller(user, own.url);
            await new Jar(user).connect(await calls.link());
            assert.equal(resultText(await calls.call()), 'alice');
            world.setPolicy(everybody, { ...everybody, id: 'not-them', effect: 'deny', subjects: [`user:forwarded-user:${user}`] });
            own.child.kill('SIGHUP');
            await until(async () => (await calls.call()).error?.code === 403, 5000, 'the denial');
            const denied = await calls.call();
            assert.equal(denied.error.data.authorizationUrl, undefined, 'a denial has no connect link');
            world.setPolicy(everybody);
            own.child.kill('SIGHUP');
            await until(async () => !(await calls.call()).error, 5000, 'the call is allowed again');
            assert.equal(resultText(await calls.call()), 'alice', 'the grant is still stored');
        } finally {
            world.setPolicy(everybody);
            await own.stop();
        }
    });
});

describe('the audit log of failed logins', () => {
    /** The token events of a user, oldest first. */
    const events = (state, user) =>
        execFileSync(binary, ['audit', '--file', join(state, 'audit.db'), '--json', '--subject', user], { encoding: 'utf8' })
            .trim()
            .split('\n')
            .filter(Boolean)
            .map(line => JSON.parse(line))
            .filter(({ event }) => event === 'token');
    const decline = (jar, asked) => {
        const field = name => new RegExp(`name="${name}" value="([^"]+)"`).exec(asked.body)[1];
        return jar.visit(`${new URL(asked.url).origin}/oauth/connect`, { t: field('t'), csrf: field('csrf'), answer: 'no' });
    };
    const changed = (address, name, value) => {
        const url = new URL(address);
        url.searchParams.set(name, value);
        return url.href;
    };
    for (const [reason, what, status, act] of [
        ['wrong_user', 'opened by another user', 403, (_jar, link) => new Jar(newUser()).visit(link)],
        ['declined', 'declined on our page', 200, async (jar, link) => decline(jar, await jar.open(link))],
        ['declined', 'declined at the authorization server', 200, async (jar, link) => jar.visit((await jar.callback(link)).replace(/code=[^&]*/, 'error=access_denied'))],
        ['wrong_browser', 'ended in another browser', 403, async (jar, link) => new Jar(jar.user).visit(await jar.callback(link))],
        ['strange', 'with two codes', 400, async (jar, link) => jar.visit(`${await jar.callback(link)}&code=again`)],
        ['not_granted', 'from another issuer', 502, async (jar, link) => jar.visit(changed(await jar.callback(link), 'iss', 'https://evil.example'))],
        ['ask_again', 'with an invalid code', 502, async (jar, link) => jar.visit(changed(await jar.callback(link), 'code', 'none'))],
        ['used', 'a second time', 409, async (jar, link) => {
            const address = await jar.callback(link);
            assert.equal(title(await comeBack(jar, address)), 'Connected');
            return jar.visit(address);
        }]
    ])
        test(`H17 a login ${what} is recorded as callback_rejected, ${reason}, with user, server and address`, async () => {
            const user = newUser(), jar = new Jar(user);
            const page = await act(jar, await (await caller(user, gateway.url)).link());
            assert.equal(page.status, status, page.body);
            const rejected = () => events(gateway.state, user).filter(({ method }) => method === 'callback_rejected');
            await until(() => rejected().length === 1, 10_000, 'the row');
            const [row] = rejected();
            assert.deepEqual([row.reason, row.server, row.tenant, row.status], [reason, 'files', 'default', 'denied']);
            assert.match(JSON.stringify(row), /127\.0\.0\.1/);
        });
    test('H17 a login that could not begin, a refused refresh and a disconnection are recorded', async () => {
        const liar = await startPeer(program.liar, 'none');
        const own = await world.start({ mcpServers: { files: { url: liar.url, auth: { mode: 'per_user' } }, gone: { url: 'http://127.0.0.1:9/mcp', auth: { mode: 'per_user' } } } });
        const user = newUser(), jar = new Jar(user);
        const control = order => fetch(new URL('/control', liar.url), { method: 'POST', body: JSON.stringify(order) });
        const last = async method => {
            await until(() => events(own.state, user).some(row => row.method === method), 10_000, method);
            return events(own.state, user).find(row => row.method === method);
        };
        try {
            assert.equal((await jar.visit(`${own.origin}/oauth/connect/gone`)).status, 502);
            const begun = await last('callback_rejected');
            assert.deepEqual([begun.reason, begun.server], ['not_prepared', 'gone']);
            const calls = await caller(user, own.url);
            const echo = () => calls.request('tools/call', { name: 'files__echo', arguments: {} });
            await jar.connect((await echo()).error.data.authorizationUrl);
            assert.ok((await echo()).result);
            await jar.disconnect(own.origin, 'files');
            const revoked = await last('revoked');
            assert.deepEqual([revoked.server, revoked.name, revoked.status], ['files', new URL(liar.url).origin, 'ok']);
            await jar.connect((await echo()).error.data.authorizationUrl);
            assert.ok((await echo()).result);
            await control({ revoke: true });
            await control({ expire: true });
            assert.equal((await echo()).error.code, -32003);
            const refused = await last('refresh_err');
            assert.deepEqual([refused.server, refused.status], ['files', 'error']);
            const secrets = await (await fetch(new URL('/secrets', liar.url))).json();
            const all = JSON.stringify(events(own.state, user));
            for (const secret of secrets) assert.ok(!all.includes(secret));
        } finally {
            await own.stop();
            await liar.stop();
        }
    });
});

test('H11 the redirect URI follows from the configuration and not from Host', async () => {
    const user = newUser(), jar = new Jar(user);
    const local = `http://localhost:${new URL(gateway.origin).port}`;
    const link = await (await caller(user, gateway.url, { headers: { 'x-forwarded-user': user, 'x-forwarded-host': 'evil.example' } })).link();
    const asked = await jar.open(link.replace(gateway.origin, local));
    const gone = await jar.agree(asked);
    const there = new URL(/url=([^"]+)"/.exec(gone.body)[1].replaceAll('&amp;', '&'));
    assert.equal(there.searchParams.get('redirect_uri'), `${gateway.origin}/oauth/callback`);
});
