// The differential test: random messages through the gateway, compared byte for byte with the sent ones.
//
// Eight lanes, each with a separate gateway: servers over stdio, HTTP with JSON, HTTP with event streams and HTTP+SSE, with and
// without prefix, shared and of one session, and callers over Streamable HTTP, HTTP+SSE and stdio. The peers write the bytes of a direct connection,
// so every byte must arrive unchanged, apart from the parts that differences.mjs makes.
import { parseArgs } from 'node:util';

import { differences } from './differences.mjs';
import { Exchange, Differs } from './exchanges.mjs';
import { Lane } from './lane.mjs';
import { needed } from './text.mjs';

const USAGE = `Usage: tests/differential/run [--messages N] [--seed S] [--only NUMBER]

Sends random messages through the gateway, in both directions, and compares what arrives with what was sent, byte for byte.

  --messages N   the number of exchanges (2000); each has one to about ten messages
  --seed S       a whole number (1); another seed makes other messages
  --only NUMBER  only this exchange, as it is in a run with the same seed

$POSTERN is the gateway to test (build/postern). Exit status: 0 no difference beyond those of docs/fidelity.md, 1 otherwise, 2 wrong usage.`;

function options() {
    try {
        const number = { type: 'string' };
        const { values } = parseArgs({ options: { messages: number, seed: number, only: number, help: { type: 'boolean', short: 'h' } } });
        if (values.help) {
            console.log(USAGE);
            process.exit(0);
        }
        for (const name of ['messages', 'seed', 'only']) {
            if (values[name] === undefined) continue;
            if (!/^\d{1,9}$/.test(values[name])) throw new Error(`--${name} is "${values[name]}"; it must be a whole number`);
            values[name] = Number(values[name]);
        }
        if (values.messages === 0) throw new Error('--messages must be at least 1');
        return { messages: 2000, seed: 1, ...values };
    } catch (error) {
        console.error(`${error.message}\n\n${USAGE}`);
        process.exit(2);
    }
}

const { messages: MESSAGES, seed: SEED, only: ONLY } = options();
const LANES = [
    { server: 'stdio', caller: 'http', prefix: true, isolation: 'session' },
    { server: 'json', caller: 'sse', prefix: true, isolation: 'session' },
    { server: 'stream', caller: 'http', prefix: true, isolation: 'shared', policy: true },
    { server: 'sse', caller: 'stdio', prefix: true, isolation: 'shared' },
    { server: 'stdio', caller: 'stdio', prefix: false, isolation: 'shared' },
    { server: 'json', caller: 'http', prefix: false, isolation: 'shared', revision: '2025-03-26' },
    { server: 'stream', caller: 'sse', prefix: false, isolation: 'session' },
    { server: 'sse', caller: 'http', prefix: false, isolation: 'session', policy: true }
];

const tally = { compared: 0, exchanges: 0, differences: 0 };

const shown = text => (text.length > 4000 ? `${text.slice(0, 2000)} … ${text.length} characters` : text);

function tell({ lane, number, what, sent, received, at, expected, answered }) {
    tally.differences++;
    const around = text => JSON.stringify(Buffer.from(text, 'latin1').toString().slice(0, 80));
    console.log(`\nDIFFERENCE in ${what} (seed ${SEED}, number ${number}; ${lane})`);
    console.log(`  sent:     ${shown(sent)}`);
    if (received === undefined) console.log(`  received: nothing; the sender got ${answered.length ? shown(answered.join('\n')) : 'nothing either'}`);
    else {
        console.log(`  received: ${shown(Buffer.from(received, 'latin1').toString())}`);
        console.log(`  byte ${at}: expected ${around(expected)}, got ${around(received.slice(at))}, after ${around(received.slice(Math.max(0, at - 40), at))}`);
    }
    console.log(`  alone:    tests/differential/run --seed ${SEED} --only ${number}`);
}

async function run(index) {
    const lane = new Lane(LANES[index], tally, tell);
    try {
        await lane.start();
        for (let number = ONLY ?? index; number <= (ONLY ?? MESSAGES - 1); number += LANES.length) {
            await new Exchange(lane, SEED, number).run();
            tally.exchanges++;
        }
    } catch (error) {
        if (!(error instanceof Differs)) throw error;
    } finally {
        await lane.stop();
    }
}

const began = Date.now();
const lanes = await Promise.allSettled(LANES.map((_, index) => (ONLY === undefined || ONLY % LANES.length === index ? run(index) : undefined)));
for (const { reason } of lanes) if (reason) throw reason;
const unused = ONLY === undefined && MESSAGES >= 2000 ? Object.keys(differences).filter(name => !needed.has(name)) : [];
const rows = [...needed].sort(([a], [b]) => a.localeCompare(b)).map(([name, count]) => `${name} ${count}`).join(', ');
console.log(`${tally.exchanges} exchanges, ${tally.compared} messages compared, ${tally.differences} differences, seed ${SEED}, ${((Date.now() - began) / 1000).toFixed(1)} s`);
console.log(`rows of the table: ${rows}`);
if (unused.length) console.log(`rows that no message needs: ${unused.join(', ')}`);
process.exit(unused.length === 0 && tally.differences === 0 && tally.exchanges === (ONLY === undefined ? MESSAGES : 1) ? 0 : 1);
