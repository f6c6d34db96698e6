// The truth table of tests/unit/auth/policy, row by row, with `policy explain` and with the running gateway.
//
// The unit test reads the same rows. Left out here are rows that a forwarded-user gateway cannot produce: callers
// without a name, other tenants, templates, rows about time, and names that are exposed under another spelling.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, describe, test } from 'node:test';

import { binary, startGateway, temporaryDirectory } from '../gateway.mjs';
import { initialize, post, reply, send } from '../raw.mjs';

const root = join(import.meta.dirname, '../..');
const material = join(root, 'unit/auth/policy');
const columns = ['item', 'policy', 'who', 'tenant', 'roles', 'server', 'kind', 'name', 'args', 'verdict', 'by', 'note'];
const exposed = /^[\w./-]{1,40}$/;

const rows = readFileSync(join(material, 'table.tsv'), 'utf8')
    .split('\n')
    .filter(line => line && !line.startsWith('#'))
    .map(line => Object.fromEntries(line.split('\t').map((cell, i) => [columns[i], cell])))
    .map(row => ({ ...row, name: row.name.startsWith('"') ? JSON.parse(row.name) : row.name }))
    .filter(
        row =>
            row.policy !== 'split' && row.who.startsWith('corp:') && row.tenant === 'acme' && row.server !== 'time' &&
            (row.kind === 'tool' ? exposed.test(row.name) && exposed.test(row.server) : row.kind === 'resource' && /^[\x21-\x7e]+$/.test(row.name)) &&
            /^[\w,-]+$/.test(row.roles)
    );

function explain(policy, row) {
    const roles = row.roles === '-' ? [] : row.roles.split(',').flatMap(role => ['--role', role]);
    const args = row.args === '-' ? [] : ['--args', row.args];
    return new Promise(resolve =>
        execFile(
            binary,
            ['policy', 'explain', '--policy', policy, '--tenant', row.tenant, '--subject', row.who, ...roles, '--server', row.server,
                `--${row.kind}`, row.name, ...args, '--json'],
            (_error, stdout) => resolve(JSON.parse(stdout))
        )
    );
}

class Callers {
    #sessions = new Map();
    constructor(url) {
        this.url = url;
    }
    async headers(row) {
        const key = `${row.who} ${row.roles}`;
        if (!this.#sessions.has(key)) {
            const who = { 'x-forwarded-user': row.who.slice('corp:'.length), 'x-tenant': row.tenant };
            if (row.roles !== '-') who['x-forwarded-groups'] = row.roles;
            const opened = await send(this.url, { headers: post(who), body: initialize('2025-11-25') });
            assert.equal(opened.status, 200, opened.body);
            const headers = post({ ...who, 'mcp-session-id': opened.headers['mcp-session-id'] });
            await send(this.url, { headers, body: { jsonrpc: '2.0', method: 'notifications/initialized' } });
            this.#sessions.set(key, headers);
        }
        return this.#sessions.get(key);
    }
    async ask(row) {
        const args = row.args === '-' ? '{}' : row.args; // unchanged text, because of its numbers
        const params =
            row.kind === 'tool'
                ? `{"name":${JSON.stringify(`${row.server}__${row.name}`)},"arguments":${args}}`
                : `{"uri":${JSON.stringify(`postern://${row.server}/${row.name}`)}}`;
        const method = row.kind === 'tool' ? 'tools/call' : 'resources/read';
        const body = `{"jsonrpc":"2.0","id":1,"method":"${method}","params":${params}}`;
        return reply(await send(this.url, { headers: await this.headers(row), body }));
    }
}

for (const name of new Set(rows.map(row => row.policy)))
    describe(`the rows of ${name}`, async () => {
        const mine = rows.filter(row => row.policy === name);
        const text = readFileSync(join(material, name), 'utf8');
        const folder = temporaryDirectory();
        const policy = join(folder.path, 'policy.json');
        writeFileSync(policy, text);
        const servers = new Set([...mine.map(row => row.server), ...JSON.parse(text).rules.flatMap(rule => rule.servers)].filter(server => exposed.test(server)));
        const tools = server => JSON.stringify([...new Set(mine.filter(row => row.server === server && row.kind === 'tool').map(row => row.name))]);
        const tenants = JSON.parse(text).rules.flatMap(rule => rule.tenants ?? []).filter(tenant => /^\w+$/.test(tenant) && tenant !== 'default');
        let gateway;
        const ready = startGateway({
            auth: { providers: [{ type: 'forwarded-user', name: 'corp', trusted_proxies: ['127.0.0.1'], groups_header: 'X-Forwarded-Groups', tenant_header: 'X-Tenant' }] },
            policy,
            mcpServers: {},
            tenants: {
                ...Object.fromEntries(tenants.map(tenant => [tenant, {}])),
                acme: {
                    mcpServers: Object.fromEntries(
                        [...servers].map(server => [server, { command: join(root, 'peers/mirror'), args: ['--tools', tools(server)] }])
                    )
                }
            }
        }).then(started => new Callers((gateway = started).url));
        after(async () => {
            await ready;
            await gateway?.stop();
            folder.remove();
        });
        for (const [i, row] of mine.entries())
            test(`${row.item} ${row.who} (${row.roles}) in row ${i} gets ${row.verdict} by ${row.by} for ${row.server} ${row.kind} ${row.name} ${row.args}`, async () => {
                const callers = await ready;
                const [said, answer] = await Promise.all([explain(policy, row), callers.ask(row)]);
                const denied = answer.error?.code === 403;
                assert.equal(said.decision, row.verdict, JSON.stringify(said));
                assert.ok(row.by.split('|').includes(said.rule), `explain says ${said.rule}`);
                assert.equal(denied ? 'deny' : 'allow', row.verdict, JSON.stringify(answer));
                if (denied) assert.ok(row.by.split('|').includes(answer.error.data.rule), JSON.stringify(answer.error));
            });
    });

test('the truth table has at least 200 rows', () => assert.ok(rows.length >= 200, `${rows.length}`));
