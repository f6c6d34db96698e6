// Measures the descriptors, descendants, threads and memory of a process.
import { readdirSync, readFileSync } from 'node:fs';

/** The descendants of a process: pid → command line. */
export function descendants(pid) {
    const parents = new Map();
    for (const entry of readdirSync('/proc')) {
        if (!/^\d+$/.test(entry)) continue;
        try {
            const parent = Number(/\) \S (\d+)/.exec(readFileSync(`/proc/${entry}/stat`, 'latin1'))[1]);
            parents.set(Number(entry), { parent, line: readFileSync(`/proc/${entry}/cmdline`, 'latin1') });
        } catch {
            // the process has ended since readdirSync()
        }
    }
    const below = p => [...parents].filter(([, { parent }]) => parent === p).flatMap(([child, { line }]) => [[child, line], ...below(child)]);
    return new Map(below(pid));
}

const status = (pid, name) => Number(new RegExp(`^${name}:\\s+(\\d+)`, 'm').exec(readFileSync(`/proc/${pid}/status`, 'latin1'))[1]);
/** Descriptors, processes, threads and resident kilobytes. */
export const holds = pid => ({ descriptors: readdirSync(`/proc/${pid}/fd`).length, processes: descendants(pid).size, threads: status(pid, 'Threads'), kilobytes: status(pid, 'VmRSS') });
