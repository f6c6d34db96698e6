// What a stdio server gets from the gateway: three pipes and the environment it was given, and nothing else.
import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { test } from 'node:test';

import { binary, program, startGateway, startPeer } from './gateway.mjs';
import { resultText, Session } from './raw.mjs';

const demo = join(dirname(binary), 'postern-demo');

test('a child inherits no connection of the gateway and no variable it was not given', async () => {
    const peer = await startPeer(program.fixture, 'http', '--port', 0);
    process.env.POSTERN_TEST_SECRET = 'not for children';
    const gateway = await startGateway({
        mcpServers: {
            web: { url: peer.url, type: 'http' },
            demo: { command: demo, isolation: 'session', env: { GIVEN: 'yes' } }
        }
    });
    try {
        const first = await Session.open(gateway.url);
        assert.ok((await first.call('web__test_simple_text')).result, 'a connection to the HTTP server is open');
        const second = await Session.open(gateway.url); // its own child starts now, beside that connection
        assert.equal(resultText(await second.call('demo__echo', { message: 'hi' })), 'hi');
        const children = gateway.servers();
        assert.equal(children.length, 2);
        for (const pid of children) {
            assert.deepEqual(readdirSync(`/proc/${pid}/fd`).sort(), ['0', '1', '2']);
            const environment = readFileSync(`/proc/${pid}/environ`, 'latin1').split('\0');
            assert.ok(environment.includes('GIVEN=yes'));
            assert.ok(!environment.some(variable => variable.startsWith('POSTERN_TEST_SECRET=')));
        }
    } finally {
        delete process.env.POSTERN_TEST_SECRET;
        await gateway.stop();
        await peer.stop();
    }
});
