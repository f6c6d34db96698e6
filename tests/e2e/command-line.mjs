// Runs commands of the program as a script or a user does: in a pipe, and on a terminal.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';

import { binary } from './gateway.mjs';

export const EXIT = { OK: 0, NEGATIVE: 1, USAGE: 2, CONFIG: 3, UNAVAILABLE: 4 };
const RUN_MS = 60_000;

/** A word for a shell. */
export const quote = word => `'${word.replaceAll("'", `'\\''`)}'`;

/** Commands that run with this home directory, and in it. */
export function commandLine(home) {
    function execute(program, args, { input = '', cwd = home, env = {} } = {}) {
        const { POSTERN_CONFIG, POSTERN_TOKEN, XDG_CONFIG_HOME, ...environment } = process.env;
        return new Promise(resolve => {
            const options = { timeout: RUN_MS, cwd, env: { ...environment, HOME: home, ...env } };
            const child = execFile(program, args, options, (_error, stdout, stderr) => resolve({ status: child.exitCode, stdout, stderr }));
            child.stdin.on('error', () => {});
            child.stdin.end(input);
        });
    }

    /** Runs the gateway in a pipe. */
    const run = (args, options) => execute(binary, args, options);

    /** Runs the gateway on a terminal; returns what the terminal shows, without carriage returns and colours. */
    async function onTerminal(args, options) {
        const { status, stdout } = await execute('script', ['-qec', [binary, ...args].map(quote).join(' '), '/dev/null'], options);
        return { status, shown: stdout.replaceAll('\r', '').replace(/\x1b\[[0-9;]*m/g, '') };
    }

    /** The JSON on standard output of a command that ended with this status. */
    async function json(args, status = EXIT.OK, options) {
        const got = await run(args, options);
        assert.equal(got.status, status, got.stderr);
        return JSON.parse(got.stdout);
    }

    /** It ends with this status, nothing on standard output, and one line that matches. */
    async function fails(args, status, pattern, options) {
        const got = await run(args, options);
        assert.equal(got.status, status, got.stderr);
        assert.equal(got.stdout, '');
        assert.match(got.stderr, /^postern: .*\n$/);
        assert.match(got.stderr, pattern);
    }

    return { execute, run, onTerminal, json, fails };
}
