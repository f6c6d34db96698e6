// Owns the place in which documents run: a home, stand-ins for external programs, clones, and processes.
import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { cpSync, lstatSync, mkdirSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

export const root = fileURLToPath(new URL('../..', import.meta.url));
export const work = process.env.DOCS_WORK;
const peers = join(root, 'tests/peers');
const home = join(work, 'home'), programs = join(work, 'programs'), source = join(work, 'source');
const COMMAND_MS = 600_000;

const { POSTERN_CONFIG, POSTERN_STATE, POSTERN_TOKEN, POSTERN_VAULT_KEY, XDG_CONFIG_HOME, XDG_STATE_HOME, DBUS_SESSION_BUS_ADDRESS, DESTDIR, ...outside } = process.env;
export const environment = { ...outside, HOME: home, PATH: `${programs}:/usr/local/bin:${outside.PATH}`, BROWSER: join(programs, 'browser') };

const node = join(peers, 'node');
const server = name => `${node} ${join(peers, `node_modules/@modelcontextprotocol/server-${name}/dist/index.js`)}`;
const standIns = {
    // npx -y PACKAGE ARGUMENT..., for the installed packages
    npx: `case $2 in */server-filesystem) set -- ${server('filesystem')} "\${@:3}" ;; */server-memory) set -- ${server('memory')} ;; *) echo "npx: no stand-in for $2" >&2; exit 1 ;; esac; exec "$@"`,
    browser: 'exec curl --silent --location --output /dev/null "$@"',
    'mcp-server-filesystem': `exec ${server('filesystem')} ${work}`,
    'github-mcp-server': `exec ${server('everything')} stdio`,
    'mcp-server-postgres': `exec ${server('everything')} stdio`,
    'mcp-server-time': `exec ${server('everything')} stdio`
};

function must(program, args, options) {
    const { status, stdout, stderr } = spawnSync(program, args, { encoding: 'utf8', env: environment, ...options });
    assert.equal(status, 0, `${program} ${args.join(' ')}\n${stdout}${stderr}`);
    return stdout;
}

/** The files of the working tree that a commit of all changes would contain. */
const tracked = (...patterns) =>
    must('git', ['ls-files', '-z', '--cached', '--others', '--exclude-standard', ...patterns], { cwd: root })
        .split('\0')
        .filter(name => name && lstatSync(join(root, name), { throwIfNoEntry: false }));
export const documents = () => tracked('*.md');

/** A repository with the files of the working tree, committed. */
export function prepare() {
    for (const folder of [home, programs, source]) mkdirSync(folder);
    for (const [name, text] of Object.entries(standIns)) writeFileSync(join(programs, name), `#!/bin/bash\n${text}\n`, { mode: 0o755 });
    writeFileSync(join(home, '.gitconfig'), '[user]\n\tname = Reader\n\temail = reader@example.org\n[init]\n\tdefaultBranch = main\n[safe]\n\tdirectory = *\n');
    for (const name of tracked()) {
        mkdirSync(dirname(join(source, name)), { recursive: true });
        cpSync(join(root, name), join(source, name), { force: true, verbatimSymlinks: true });
    }
    must('git', ['init', '-q'], { cwd: source });
    must('git', ['add', '-A'], { cwd: source });
    must('git', ['commit', '-qm', 'The working tree'], { cwd: source });
}

export function clone(name) {
    const folder = join(work, 'clones', name.replaceAll('/', '-'));
    must('git', ['clone', '-q', source, folder]);
    return folder;
}

/** Runs a shell script to its end. */
export function shell(script, { cwd, env = {} }) {
    return spawnSync('bash', ['-e', '-o', 'pipefail', '-c', script], { cwd, encoding: 'utf8', env: { ...environment, ...env }, timeout: COMMAND_MS, stdio: ['ignore', 'pipe', 'pipe'] });
}

const groups = new Set();
process.on('exit', () => groups.forEach(pid => process.kill(-pid, 'SIGKILL')));
process.once('SIGTERM', () => process.exit(143));

/** A program in a separate process group; `output` is its output so far. */
export class Background {
    output = '';

    constructor(command, options) {
        this.child = spawn(command[0], command.slice(1), { detached: true, stdio: ['ignore', 'pipe', 'pipe'], env: environment, ...options });
        const { pid } = this.child;
        groups.add(pid);
        this.ended = new Promise(resolve => this.child.on('close', resolve)).then(() => groups.delete(pid));
        this.news = () => {};
        for (const stream of [this.child.stdout, this.child.stderr])
            stream.on('data', data => {
                this.output += data;
                this.news();
            });
    }

    /** Resolves with the match as soon as its output matches. */
    async says(pattern) {
        const said = new Promise(resolve => {
            this.news = () => pattern.test(this.output) && resolve(true);
            this.news();
        });
        assert.ok(await Promise.race([said, this.ended.then(() => false)]), `it ended before it said ${pattern}\n${this.output}`);
        return pattern.exec(this.output);
    }

    async end() {
        if (groups.has(this.child.pid)) process.kill(-this.child.pid, 'SIGTERM');
        await this.ended;
    }
}
