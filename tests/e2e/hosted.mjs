// Helpers for the tests of the hosted connect flow without a real browser: a world with an authorization server and a policy, callers,
// and the redirect back to the gateway.
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';

import { freePort, node, peerPath, startGateway, startPeer, temporaryDirectory } from './gateway.mjs';
import { initialize, post, reply, send, stream } from './raw.mjs';

const authorityProgram = peerPath('authority.mjs');

export const everybody = { id: 'all', effect: 'allow', description: 'Every authenticated caller may do everything', tenants: ['default'], subjects: ['authenticated'], servers: ['*'], kinds: ['*'], names: ['*'] };
export const forwarded = { type: 'forwarded-user', trusted_proxies: ['127.0.0.1'] };

/** `folder.path` has policy.json; `start` starts a gateway with two servers that users connect to, both at one authority. */
export async function startWorld(...options) {
    const folder = temporaryDirectory();
    const world = { folder, policy: join(folder.path, 'policy.json') };
    world.setPolicy = (...rules) => writeFileSync(world.policy, JSON.stringify({ version: 1, description: 'The policy of this test', rules }));
    world.setPolicy(everybody);
    world.authority = await startPeer(node, authorityProgram, 3600, ...options);
    world.count = async () => (await fetch(new URL('/count', world.authority.url))).json();
    world.start = async ({ port, public_port, variables = {}, files = {}, ...more } = {}) => {
        port ??= await freePort();
        const own = { url: world.authority.url, auth: { mode: 'per_user' } };
        const config = {
            listen: [{ address: `127.0.0.1:${port}` }],
            public_url: `http://127.0.0.1:${public_port ?? port}`,
            auth: { providers: [forwarded] },
            policy: world.policy,
            mcpServers: { files: own, mail: own },
            ...more
        };
        return startGateway(config, [], { variables, files });
    };
    world.stop = async () => {
        await world.authority.stop();
        folder.remove();
    };
    return world;
}

let users = 0;
export const newUser = () => `user${++users}`;

/** A caller's session: of 2025-11-25 with these capabilities, or else of an older revision. */
export async function caller(user, url, { capabilities, headers = { 'x-forwarded-user': user } } = {}) {
    const opened = await send(url, { headers: post(headers), body: initialize(capabilities ? '2025-11-25' : '2025-06-18', capabilities) });
    const own = { ...headers, 'mcp-session-id': opened.headers['mcp-session-id'] };
    await send(url, { headers: post(own), body: { jsonrpc: '2.0', method: 'notifications/initialized' } });
    let id = 1;
    const request = async (method, params = {}) => reply(await send(url, { headers: post(own), body: { jsonrpc: '2.0', id: ++id, method, params } }));
    const call = (server = 'files') => request('tools/call', { name: `${server}__whoami`, arguments: {} });
    return {
        request,
        call,
        link: async server => (await call(server)).error.data.authorizationUrl,
        listen: () => stream(url, { headers: { ...own, accept: 'text/event-stream' } })
    };
}

export const title = page => /<h1>([^<]*)/.exec(page.body)?.[1];

/** Visits the callback, and repeats it after the announced wait while the rate of logins at its issuer is exceeded. */
export async function comeBack(jar, address) {
    for (;;) {
        const page = await jar.visit(address);
        if (page.status !== 429) return page;
        await sleep(1000 * page.headers['retry-after']);
    }
}
