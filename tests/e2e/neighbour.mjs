// Measures whether a fault delays the calls of other callers: their p99 beside the fault, and alone.
import assert from 'node:assert/strict';

import { sanitized } from './gateway.mjs';

const CALLS = 200; // in each measurement
const SANITIZED_FACTOR = 3; // AddressSanitizer copies memory that grows; tests/run also measures an optimised build
const ROUNDS = 8; // a busy machine may spoil some of them; a fault that delays others spoils all

/** The 99th percentile of the durations of `call`, in ms, until there are enough of them and `meanwhile` has ended. */
async function p99(call, meanwhile = Promise.resolve()) {
    const times = [];
    let over = false;
    const ended = meanwhile.finally(() => (over = true));
    ended.catch(() => {}); // it is awaited below
    while (times.length < CALLS || !over) {
        const began = performance.now();
        await call();
        times.push(performance.now() - began);
    }
    await ended;
    return times.sort((a, b) => a - b)[Math.floor(times.length * 0.99)];
}

/**
 * Fails if the p99 of `call` beside the fault is above twice that of `call` alone plus 10 ms, in each round (sanitizers may take
 * longer). `begin` causes the fault, and `end` ends it; `again` restores what the next round needs.
 */
export async function staysFast(t, call, { begin, end = () => {}, again = () => {} }) {
    const seen = [];
    for (let round = 1; ; round++) {
        const alone = await p99(call);
        const beside = await p99(call, begin());
        await end();
        seen.push(`${beside.toFixed(1)} ms beside, ${alone.toFixed(1)} ms alone`);
        t.diagnostic(seen.at(-1));
        if (beside <= (2 * alone + 10) * (sanitized ? SANITIZED_FACTOR : 1)) return;
        assert.ok(round < ROUNDS, `99 % of the calls beside the fault: ${seen.join('; ')}`);
        await again();
    }
}
