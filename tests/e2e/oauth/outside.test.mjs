// The addresses that a server on the public internet can make the gateway connect to, in a network namespace made by the test.
import assert from 'node:assert/strict';
import { execFileSync, spawnSync } from 'node:child_process';
import { describe, test } from 'node:test';

import { binary, node, peerPath } from '../gateway.mjs';
import { EXIT } from '../liar.mjs';

const program = peerPath('outside.mjs');
const ADDRESSES = ['203.0.113.7', '10.1.2.3'].map(address => `ip addr add ${address}/32 dev lo`).join(' && ');
const inNamespace = (...words) => ['-rn', 'sh', '-c', `ip link set lo up && ${ADDRESSES} && exec "$@"`, 'sh', ...words];
const possible = spawnSync('unshare', inNamespace('true')).status === 0;

const login = (...args) => JSON.parse(execFileSync('unshare', inNamespace(node, program, binary, ...args), { encoding: 'utf8', timeout: 60_000 }));

const ends = { login: EXIT.DISCOVERY, hosted: 502 };

for (const how of Object.keys(ends))
    describe(`N4 a public server, ${how}`, { skip: !possible && 'no network namespaces here' }, () => {
        for (const [target, block] of [['127.0.0.1', '127.0.0.0/8'], ['10.1.2.3', '10.0.0.0/8']]) {
            test(`a public server may not point discovery at ${target}`, () => {
                const { status, stderr, connections } = login(how, target);
                assert.equal(status, ends[how], stderr);
                assert.match(stderr, /connections to its address are not allowed/);
                assert.equal(connections, 0);
            });
            test(`a public server may point discovery into ${block} if the configuration allows it`, () => {
                const { stderr, connections } = login(how, target, block);
                assert.ok(connections > 0, stderr);
            });
        }
        test('an allowed network does not make another network reachable', () => {
            assert.equal(login(how, '10.1.2.3', '127.0.0.0/8').connections, 0);
        });
    });
