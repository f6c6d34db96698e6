// The hosted connect flow over several gateways with one state folder: each step of a login may be handled by another gateway, or by
// the same gateway after it was killed, and no step is performed twice.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';

import { binary, freePort, program, startPeer, temporaryDirectory } from '../gateway.mjs';
import { caller, comeBack, newUser, startWorld, title } from '../hosted.mjs';
import { Jar } from '../jar.mjs';
import { aMinuteLater } from '../liar.mjs';
import { resultText } from '../raw.mjs';

let world, port;
before(async () => {
    world = await startWorld('ask');
    port = await freePort();
});
after(() => world?.stop());

/** One of several gateways, with its own port and the common state folder and public URL. */
const replica = (state, own) => world.start({ port: own, public_port: port, variables: { POSTERN_STATE: state.path } });

/** The address of the same page at another gateway, as a load balancer would choose it. */
const at = (gateway, address) => address.replace(`http://127.0.0.1:${port}`, gateway.origin);

describe('two gateways with one state folder', () => {
    let state, one, other;
    before(async () => {
        state = temporaryDirectory();
        [one, other] = [await replica(state, port), await replica(state, await freePort())];
    });
    after(async () => {
        await one?.stop();
        await other?.stop();
        state?.remove();
    });

    test('H9 a login whose steps alternate between two gateways connects both', async () => {
        const user = newUser(), jar = new Jar(user);
        const calls = await caller(user, one.url), elsewhere = await caller(user, other.url);
        const asked = await jar.open(at(other, await calls.link()));
        const { next } = await jar.allow(await jar.agree(asked, one.origin), `${one.origin}/oauth/callback`);
        const done = await comeBack(jar, at(other, next));
        assert.equal(title(done), 'Connected');
        assert.equal(resultText(await elsewhere.call()), `account-of-${user}`);
        assert.equal(resultText(await calls.call()), `account-of-${user}`, 'the gateway that made the link has the grant');
        for (const gateway of [one, other]) {
            assert.equal((await jar.visit(at(gateway, next))).status, 409, 'the callback is spent at both gateways');
            assert.equal((await jar.visit(at(gateway, asked.url))).status, 409);
        }
    });
    test('H9 a login begun at one gateway is completed at the other', async () => {
        const user = newUser(), jar = new Jar(user);
        const calls = await caller(user, one.url);
        assert.equal(title(await comeBack(jar, at(other, await jar.callback(await calls.link())))), 'Connected');
        assert.equal(resultText(await calls.call()), `account-of-${user}`);
    });
    test('H9 B7 a callback sent to both gateways at once connects at only one', async () => {
        for (let round = 0; round < 6; round++) {
            const user = newUser(), jar = new Jar(user);
            const calls = await caller(user, one.url);
            const address = await jar.callback(await calls.link());
            const before = await world.count();
            const statuses = (await Promise.all([comeBack(jar, address), comeBack(jar, at(other, address))])).map(({ status }) => status);
            assert.deepEqual(statuses.sort(), [200, 409], `round ${round}`);
            const after = await world.count();
            assert.equal(after.authorization_code, (before.authorization_code ?? 0) + 1, 'one code was exchanged');
            assert.equal(after.refused, before.refused, 'no code was exchanged twice');
            assert.equal(resultText(await calls.call()), `account-of-${user}`);
        }
    });
    test('H9 H4 a consent sent to both gateways at once is accepted by only one', async () => {
        const user = newUser(), jar = new Jar(user);
        const calls = await caller(user, one.url);
        const asked = await jar.open(await calls.link());
        const gone = await Promise.all([jar.agree(asked, one.origin), jar.agree(asked, other.origin)]);
        assert.deepEqual(gone.map(({ status }) => status).sort(), [200, 409]);
    });
    test('H9 a link opened at both gateways at once shows the consent page at both and works', async () => {
        const user = newUser(), jar = new Jar(user);
        const calls = await caller(user, one.url);
        const link = await calls.link();
        const [here, there] = await Promise.all([jar.open(link), jar.open(at(other, link))]);
        assert.equal(title(here), title(there));
        const again = await jar.open(link); // its form matches the cookie that was set last
        const { next } = await jar.allow(await jar.agree(again, other.origin), `${one.origin}/oauth/callback`);
        assert.equal(title(await comeBack(jar, next)), 'Connected');
        assert.equal(resultText(await calls.call()), `account-of-${user}`);
    });
    test('H6 H9 a link opened by another user at the other gateway becomes invalid for both', async () => {
        const user = newUser(), jar = new Jar(user);
        const link = await (await caller(user, one.url)).link();
        assert.equal((await new Jar(newUser()).visit(at(other, link))).status, 403);
        assert.equal((await jar.visit(link)).status, 409);
    });
    test('H8 H9 a callback in another browser at the other gateway gets 403, and the first browser can still complete the login', async () => {
        const user = newUser(), jar = new Jar(user);
        const address = await jar.callback(await (await caller(user, one.url)).link());
        assert.equal((await new Jar(user).visit(at(other, address))).status, 403);
        assert.equal(title(await comeBack(jar, at(other, address))), 'Connected');
    });
    test('H16 H9 a session of one gateway is notified of a login completed at the other', async () => {
        const user = newUser(), jar = new Jar(user);
        const calls = await caller(user, one.url, { capabilities: { elicitation: { url: {} } } });
        assert.deepEqual((await calls.request('tools/list')).result.tools, []);
        const listening = await calls.listen();
        const [asked] = (await calls.call()).error.data.elicitations;
        assert.equal(title(await comeBack(jar, at(other, await jar.callback(asked.url)))), 'Connected');
        const heard = new Set();
        while (heard.size < 2) {
            const { message } = await listening.message();
            if (message.method === 'notifications/elicitation/complete') assert.deepEqual(message.params, { elicitationId: asked.elicitationId });
            if (['notifications/elicitation/complete', 'notifications/tools/list_changed'].includes(message.method)) heard.add(message.method);
        }
        listening.drop();
        assert.equal(resultText(await calls.call()), `account-of-${user}`);
    });
    test('H9 a sixth open link of one user and server over both gateways drops only the oldest', async () => {
        const user = newUser(), jar = new Jar(user);
        const [here, there] = [await caller(user, one.url), await caller(user, other.url)];
        const foreign = await (await caller(newUser(), one.url)).link(), mail = await here.link('mail');
        const links = [];
        for (let i = 0; i < 6; i++) links.push(await [here, there][i % 2].link());
        assert.equal((await jar.visit(at(other, links[0]))).status, 410);
        for (const link of [links[1], links[5], mail]) assert.equal((await jar.visit(link)).status, 200, link);
        assert.notEqual((await jar.visit(foreign)).status, 410, "another's is still there");
    });
    test('H14 a connection listed by one gateway is disconnected at the other', async () => {
        const user = newUser(), jar = new Jar(user);
        assert.equal(title(await comeBack(jar, await jar.callback(await (await caller(user, one.url)).link()))), 'Connected');
        const list = await jar.visit(`${one.origin}/oauth/connections`);
        const csrf = /name="csrf" value="([^"]+)"/.exec(list.body)[1];
        const after = await jar.visit(`${other.origin}/oauth/disconnect`, { server: 'files', csrf });
        assert.match(after.body, /aria-label="Connect files"/);
    });
});

test('H9 a login continues at the next gateway after a kill at any step, and existing grants stay', async () => {
    const state = temporaryDirectory();
    let gateway = await replica(state, port);
    const killed = async () => {
        gateway.child.kill('SIGKILL');
        await gateway.exited;
        await gateway.stop().catch(() => {});
        gateway = await replica(state, port);
    };
    try {
        const [connected, user] = [newUser(), newUser()], jar = new Jar(user);
        await new Jar(connected).connect(await (await caller(connected, gateway.url)).link());
        const link = await (await caller(user, gateway.url)).link();
        await killed();
        const asked = await jar.open(link);
        await killed();
        const gone = await jar.agree(asked);
        await killed();
        const { next } = await jar.allow(gone, `${gateway.origin}/oauth/callback`);
        await killed();
        assert.equal(title(await jar.visit(next)), 'Connected');
        assert.equal(resultText(await (await caller(user, gateway.url)).call()), `account-of-${user}`);
        await killed();
        assert.equal((await jar.visit(next)).status, 409, 'a callback cannot be repeated');
        assert.equal(resultText(await (await caller(connected, gateway.url)).call()), `account-of-${connected}`);
        assert.equal(resultText(await (await caller(user, gateway.url)).call()), `account-of-${user}`);
    } finally {
        await gateway.stop();
        state.remove();
    }
});

describe('a gateway that is killed in the middle of a step', () => {
    const paths = ['/mcp', '/.well-known/oauth-protected-resource/mcp', '/.well-known/oauth-authorization-server', '/register'];

    /** A liar that delays requests to `path`, and a gateway that is killed meanwhile. */
    async function withHeld(path, when, body) {
        const liar = await startPeer(program.liar, 'only-post'), state = temporaryDirectory();
        const ask = async where => (await fetch(new URL(where, liar.url))).json();
        const control = order => fetch(new URL('/control', liar.url), { method: 'POST', body: JSON.stringify(order) });
        const start = () => world.start({ port, variables: { POSTERN_STATE: state.path }, mcpServers: { files: { url: liar.url, auth: { mode: 'per_user' } } } });
        let gateway = await start();
        const echo = async user => (await caller(user, gateway.url)).request('tools/call', { name: 'files__echo', arguments: {} });
        const held = {
            echo,
            link: async user => (await echo(user)).error.data.authorizationUrl,
            /** Starts `step`, kills the gateway while the liar delays its request, and starts another gateway. */
            kill: async step => {
                await control({ hold: path, when });
                const broken = assert.rejects(step());
                await ask('/held');
                gateway.child.kill('SIGKILL');
                await gateway.exited;
                await broken;
                await gateway.stop().catch(() => {});
                await ask('/held?none'); // the liar has noticed the closed connection
                await control({ release: true });
                aMinuteLater(state.path);
                gateway = await start();
            },
            grants: async () => JSON.parse(execFileSync(binary, ['connections', '--json'], { encoding: 'utf8', cwd: state.path, env: { ...process.env, POSTERN_STATE: state.path } })),
            state: () => ask('/state')
        };
        try {
            await body(held);
            const disk = readdirSync(state.path).map(name => readFileSync(join(state.path, name), 'latin1'));
            const secrets = await ask('/secrets');
            assert.ok(secrets.length > 4 && disk.length > 2);
            for (const secret of secrets) assert.ok(!disk.some(text => text.includes(secret)), 'no secret on the disk');
        } finally {
            await gateway.stop();
            await liar.stop();
            state.remove();
        }
    }

    for (const path of paths)
        for (const when of ['before', 'after'])
            test(`H9 a gateway killed while it opens a link, at ${path}, held ${when} it is done, leaves the link valid`, () =>
                withHeld(path, when, async held => {
                    const user = newUser(), jar = new Jar(user);
                    const link = await held.link(user);
                    await held.kill(() => jar.open(link));
                    await jar.connect(link);
                    assert.ok((await held.echo(user)).result);
                    assert.equal((await held.grants()).length, 1);
                    assert.equal((await held.state()).clients, path === '/register' && when === 'after' ? 2 : 1, 'the response with the id of the first client was lost');
                }));
    for (const when of ['before', 'after'])
        test(`H9 a gateway killed while it exchanges a code, held ${when} it is done, uses up only that link`, () =>
            withHeld('/token', when, async held => {
                const [other, user] = [newUser(), newUser()], jar = new Jar(user);
                await new Jar(other).connect(await held.link(other));
                const link = await held.link(user), address = await jar.callback(link);
                await held.kill(() => jar.visit(address));
                assert.equal((await jar.visit(address)).status, 409, 'the code may have been redeemed, so it is not sent again');
                assert.equal((await jar.visit(link)).status, 409);
                assert.equal((await held.echo(user)).error.code, -32003);
                assert.equal((await held.grants()).length, 1);
                await jar.connect(await held.link(user));
                for (const one of [other, user]) assert.ok((await held.echo(one)).result);
                assert.deepEqual((await held.grants()).map(grant => grant.user).sort(), [other, user].map(one => `forwarded-user/${one}`).sort());
                assert.equal((await held.state()).clients, 1);
                assert.equal((await held.state()).reuses, 0);
            }));
});

describe('a gateway that restarts with another configuration during a login', () => {
    let liar, state;
    before(async () => {
        liar = await startPeer(program.liar, 'none');
        state = temporaryDirectory();
    });
    after(async () => {
        await liar?.stop();
        state?.remove();
    });
    const agent = { mode: 'per_user', client_id: 'agent', client_secret: 'agent+secret' };
    const start = (auth, more = {}) => world.start({ port, variables: { POSTERN_STATE: state.path }, mcpServers: { files: { url: liar.url, auth } }, ...more });

    for (const [what, before, after, more, status, shown] of [
        ['the same client of the configuration, whose secret is not in the store', agent, agent, () => ({}), 200, 'Connected'],
        ['a client that was registered', { mode: 'per_user' }, { mode: 'per_user' }, () => ({}), 200, 'Connected'],
        ['another client_id', agent, { ...agent, client_id: 'another' }, () => ({}), 410, 'This link is not valid any more'],
        ['another public_url', { mode: 'per_user' }, { mode: 'per_user' }, () => ({ public_url: `http://localhost:${port}` }), 410, 'This link is not valid any more'],
        ['another URL of the server', { mode: 'per_user' }, { mode: 'per_user' }, () => ({ mcpServers: { files: { url: liar.url.replace('/mcp', '/other'), auth: { mode: 'per_user' } } } }), 400, 'This response does not belong to a login'],
        ['a configuration without the server', { mode: 'per_user' }, { mode: 'per_user' }, () => ({ mcpServers: { other: { url: liar.url, auth: { mode: 'per_user' } } } }), 400, 'This response does not belong to a login']
    ])
        test(`H9 A4 a restart with ${what} shows: ${shown}`, async () => {
            const user = newUser(), jar = new Jar(user);
            let gateway = await start(before);
            try {
                const { error } = await (await caller(user, gateway.url)).request('tools/call', { name: 'files__echo', arguments: {} });
                const address = await jar.callback(error.data.authorizationUrl);
                await gateway.stop();
                const files = readdirSync(state.path).map(name => readFileSync(join(state.path, name), 'latin1'));
                assert.ok(!files.some(text => text.includes('agent+secret')));
                gateway = await start(after, more());
                const page = await jar.visit(address);
                assert.equal(page.status, status, page.body);
                assert.equal(title(page), shown);
            } finally {
                await gateway.stop();
            }
        });
});
