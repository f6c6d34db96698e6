// Random choices that a seed decides.

/** The choices are the same for the same seed. */
export function chooser(seed) {
    let state = seed >>> 0;
    const next = () => {
        state = (state + 0x6d2b79f5) >>> 0;
        let t = Math.imul(state ^ (state >>> 15), state | 1);
        t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
        return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
    };
    const upTo = n => Math.floor(next() * n);
    return { upTo, between: (low, high) => low + upTo(high - low + 1), of: list => list[upTo(list.length)] };
}
