// postern config diff: what a reload from one file to another would do, without a gateway, and that a reload then does exactly that.
import assert from 'node:assert/strict';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';

import { commandLine, EXIT } from '../command-line.mjs';
import { startGateway, temporaryDirectory } from '../gateway.mjs';

const server = (more = {}) => ({ command: '/bin/cat', ...more });

let folder, command;
before(() => {
    folder = temporaryDirectory();
    command = commandLine(folder.path);
});
after(() => folder.remove());

/** Writes a configuration, an object or text; gives its path. */
function write(name, config) {
    const path = join(folder.path, name);
    writeFileSync(path, typeof config === 'string' ? config : JSON.stringify(config));
    return path;
}

const files = (old, next) => [write('old.json', old), write('new.json', next)];
const shown = async (old, next) => (await command.onTerminal(['config', 'diff', ...files(old, next)])).shown;
const changes = (old, next, status) => command.json(['config', 'diff', ...files(old, next)], status);

describe('postern config diff', () => {
    const old = {
        mcpServers: { kept: server(), gone: server(), edited: server({ timeout: '5s' }) },
        tenants: { globex: { mcpServers: { own: server() } } },
        profiles: { dev: { servers: ['kept'] } },
        limits: { sessions: 70 }
    };
    const next = {
        mcpServers: { kept: server(), edited: server({ timeout: '7s' }), added: server() },
        tenants: { acme: { mcpServers: { own: server() } } },
        profiles: { dev: { servers: ['kept', 'added'] } },
        limits: { sessions: 71 }
    };
    const places = ['- /mcpServers/gone', '+ /mcpServers/added', '- /tenants/globex', '+ /tenants/acme', '~ /mcpServers/edited/timeout', '~ /profiles/dev/servers', '~ /limits/sessions: 70 -> 71'];

    test('added, removed and changed parts are shown with their place, and nothing else', async () => {
        const lines = (await shown(old, next)).trim().split('\n');
        for (const place of places) assert.ok(lines.some(line => line.startsWith(place)), `${place} in:\n${lines.join('\n')}`);
        assert.equal(lines.length, places.length, lines.join('\n'));
        assert.ok(!lines.some(line => line.includes('kept:') || line.includes('restart')), lines.join('\n'));
    });

    test('the changes are JSON in a pipe', async () => {
        const list = await changes(old, next);
        assert.deepEqual(list.find(({ path }) => path === '/limits/sessions'), { change: 'changed', path: '/limits/sessions', before: 70, after: 71 });
        assert.equal(list.find(({ path }) => path === '/mcpServers/gone').change, 'removed');
        assert.equal(list.find(({ path }) => path === '/mcpServers/added').change, 'added');
        assert.equal(list.length, places.length);
    });

    test('two files with the same content have no differences', async () => {
        assert.equal(await shown(old, { ...old, limits: { ...old.limits } }), 'no differences\n');
        assert.deepEqual(await changes(old, old), []);
    });

    test('a part that needs a restart is marked, and the exit status is 1', async () => {
        const moved = { ...next, public_url: 'https://other.example.com' };
        const list = await changes(old, moved, EXIT.NEGATIVE);
        assert.deepEqual(list.filter(({ restart }) => restart).map(({ path }) => path), ['/public_url']);
        assert.match(await shown(old, moved), /^~ \/public_url: .*\(needs a restart\)$/m);
    });

    test('a changed secret is reported without its values', async () => {
        const withKey = secret => ({ mcpServers: { a: { url: 'http://127.0.0.1:1/mcp', headers: { Authorization: `Bearer ${secret}` } } } });
        const [one, other] = [withKey('first-of-the-secrets'), withKey('other-of-the-secrets')];
        const { stdout, stderr } = await command.run(['config', 'diff', ...files(one, other)]);
        assert.equal(JSON.parse(stdout).length, 1, stdout);
        assert.doesNotMatch(`${stdout}${stderr}${await shown(one, other)}`, /of-the-secrets/);
    });

    test('variables are compared as they are written and need not be set', async () => {
        const env = name => ({ mcpServers: { a: server({ env: { KEY: `\${${name}}` } }) } });
        assert.deepEqual(await changes(env('POSTERN_TEST_UNSET'), env('POSTERN_TEST_UNSET')), []);
        assert.equal((await changes(env('POSTERN_TEST_UNSET'), env('POSTERN_TEST_OTHER'))).length, 1);
    });

    test('a file that is missing or not valid is an error that names the file', async () => {
        const good = write('good.json', old), bad = write('bad.json', { mcpServers: { a: { comand: 'x' } } });
        await command.fails(['config', 'diff', good, bad], EXIT.CONFIG, /bad\.json:1:\d+: \/mcpServers\/a\/comand/);
        await command.fails(['config', 'diff', bad, good], EXIT.CONFIG, /bad\.json:1:\d+: \/mcpServers\/a\/comand/);
        await command.fails(['config', 'diff', good, join(folder.path, 'none.json')], EXIT.CONFIG, /none\.json: No such file/);
        await command.fails(['config', 'diff', good], EXIT.USAGE, /needs two files/);
    });

    test('a reload makes the changes that were shown', async () => {
        const gateway = await startGateway({ mcpServers: { a: server() }, limits: { sessions: 70 } });
        try {
            const current = join(gateway.state, 'postern.json'), before = JSON.parse(readFileSync(current, 'utf8'));
            const planned = write('planned.json', { ...before, mcpServers: { ...before.mcpServers, b: server() }, limits: { sessions: 71 } });
            const { shown } = await command.onTerminal(['config', 'diff', current, planned]);
            assert.equal(shown, '+ /mcpServers/b\n~ /limits/sessions: 70 -> 71\n');
            assert.match(await gateway.reconfigure(readFileSync(planned, 'utf8')), /^configuration reloaded/);
            const made = [...gateway.log().matchAll(/configuration changed change="(.*)"/g)].map(([, change]) => `${change}\n`);
            assert.equal(made.join(''), shown);
        } finally {
            await gateway.stop();
        }
    });
});
