// The command `postern audit`, over a database made here, with the chain computed from its documentation alone.
import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { afterEach, beforeEach, test } from 'node:test';

import { binary, temporaryDirectory, until } from '../gateway.mjs';

const ZEROS = '0'.repeat(64);
const SHARED = ['event', 'tenant', 'provider', 'subject', 'proof', 'token', 'roles', 'peer', 'server', 'kind', 'name', 'method',
    'decision', 'rule', 'policy', 'status', 'reason', 'count', 'first_seq'];
const OWN = ['request', 'arguments_sha256', 'arguments', 'duration_us', 'bytes_in', 'bytes_out'];

const CHAINS = ['calls', 'authentication', 'administration'];
const chainOf = ({ event, kind }) => (event === 'call' ? 0 : event === 'authentication' ? 1 : event === 'retention' ? CHAINS.indexOf(kind) : 2);

let directory, file, db;
beforeEach(() => {
    directory = temporaryDirectory();
    file = join(directory.path, 'audit.db');
    db = new DatabaseSync(file);
    db.exec(`PRAGMA journal_mode=WAL; PRAGMA application_id=${0x506f7374}; PRAGMA user_version=6;
        CREATE TABLE segment(seq INTEGER PRIMARY KEY, last INTEGER NOT NULL, chain INTEGER NOT NULL, since INTEGER NOT NULL,
            until INTEGER NOT NULL, bytes INTEGER NOT NULL, prev TEXT NOT NULL, shared TEXT NOT NULL, rows TEXT NOT NULL) STRICT;
        CREATE TABLE anchor(chain INTEGER PRIMARY KEY, first_seq INTEGER NOT NULL, first_prev TEXT NOT NULL,
            head_seq INTEGER NOT NULL, head_hash TEXT NOT NULL, bytes INTEGER NOT NULL) STRICT;`);
    for (const chain of CHAINS.keys()) db.prepare('INSERT INTO anchor VALUES(?, 1, ?, 0, ?, 0)').run(chain, ZEROS, ZEROS);
});
afterEach(() => {
    db.close();
    directory.remove();
});

const ago = minutes => new Date(Date.now() - minutes * 60_000).toISOString();

const sha256 = text => createHash('sha256').update(text).digest('hex');

/** Adds rows the way the gateway does: those of each chain as one segment, with shared values stored once. */
function add(...given) {
    for (const chain of CHAINS.keys()) addTo(chain, given.filter(one => chainOf(one) === chain));
}

function addTo(chain, given) {
    if (given.length === 0) return;
    const { before } = db.prepare('SELECT max(head_seq) AS before FROM anchor').get();
    const { head_hash } = db.prepare('SELECT * FROM anchor WHERE chain=?').get(chain);
    const shared = [];
    let hash = head_hash;
    const times = [], rows = given.map((one, i) => {
        const place = [before + 1 + i, one.time ?? ago(0)];
        const common = JSON.stringify(Object.fromEntries(SHARED.map(name => [name, one[name]])));
        const own = OWN.map(name => one[name] ?? (/^(duration_us|bytes_in|bytes_out)$/.test(name) ? 0 : null));
        if (!shared.includes(common)) shared.push(common);
        times.push(Date.parse(place[1]));
        hash = sha256(hash + sha256(common) + JSON.stringify([...place, ...own]));
        return [...place, shared.indexOf(common), ...own, hash];
    });
    const last = before + rows.length;
    db.prepare('INSERT INTO segment VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?)')
        .run(before + 1, last, chain, Math.min(...times), Math.max(...times), 1000, head_hash, `[${shared}]`, JSON.stringify(rows));
    db.prepare('UPDATE anchor SET head_seq=?, head_hash=? WHERE chain=?').run(last, hash, chain);
}

const call = { event: 'call', request: 'r1', tenant: 'default', provider: 'bearer', subject: 'alice', proof: 'bearer',
    token: 'Ab3dEf9h', server: 'files', kind: 'tool', name: 'read', method: 'tools/call', decision: 'allow', rule: 'r',
    status: 'ok', duration_us: 1500, bytes_in: 10, bytes_out: 20 };

function audit(...args) {
    const { status, stdout, stderr } = spawnSync(binary, ['audit', ...args, '--file', file], { encoding: 'utf8' });
    return { status, stdout, stderr };
}

function onTerminal(...args) {
    const words = [binary, 'audit', ...args, '--file', file].map(word => `'${word}'`).join(' ');
    const { status, stdout } = spawnSync('script', ['-qec', words, '/dev/null'], { encoding: 'utf8' });
    return { status, text: stdout.replaceAll('\r\n', '\n') };
}

function names(...args) {
    const { status, stdout, stderr } = audit(...args);
    assert.equal(status, 0, stderr);
    return stdout.split('\n').filter(Boolean).map(line => JSON.parse(line).name);
}

test('audit prints JSON lines in a pipe and a table on a terminal', () => {
    add(call, { ...call, tenant: 'acme', subject: 'bob\u001b[2J', name: 'rm', decision: 'deny', rule: 'no-rm',
        status: 'denied', reason: 'denied', duration_us: 0 }, { event: 'gap', status: 'error', reason: 'audit_dropped', count: 7 });
    const piped = audit();
    assert.equal(piped.stderr, '');
    const rows = piped.stdout.trimEnd().split('\n').map(line => JSON.parse(line));
    assert.deepEqual(rows.map(row => row.seq), [1, 2, 3]);
    assert.equal(rows[0].token, 'Ab3dEf9h');
    assert.equal(rows[1].prev, rows[0].hash);
    assert.equal(rows[2].count, 7);
    const { status, text } = onTerminal();
    assert.equal(status, 0);
    assert.match(text, /TIME +SUBJECT +EVENT +RESULT/);
    assert.match(text, /Z +alice +files read +ok 1\.5 ms/);
    assert.match(text, /Z +acme\/bob \[2J +files rm +denied by no-rm/);
    assert.match(text, /gap: 7 records were dropped/);
    assert.equal(onTerminal('--json').text, piped.stdout);
});

test('audit flags select rows', () => {
    add({ ...call, name: 'a', time: ago(180) }, { ...call, name: 'b', time: ago(90), subject: 'bob' },
        { ...call, name: 'c', time: ago(30), server: 'git' }, { ...call, name: 'd', time: ago(1), status: 'denied', tenant: 'acme' });
    assert.deepEqual(names(), ['a', 'b', 'c', 'd']);
    assert.deepEqual(names('--since', '2h'), ['b', 'c', 'd']);
    assert.deepEqual(names('--since', '2h', '--until', '1h'), ['b']);
    assert.deepEqual(names('--since', ago(60).slice(0, 19) + 'Z'), ['c', 'd']);
    assert.deepEqual(names('--until', '2020-01-01'), []);
    assert.deepEqual(names('--subject', 'bob'), ['b']);
    assert.deepEqual(names('--server', 'git'), ['c']);
    assert.deepEqual(names('--tenant', 'acme'), ['d']);
    assert.deepEqual(names('--tool', 'a'), ['a']);
    assert.deepEqual(names('--denied'), ['d']);
    assert.deepEqual(names('--limit', '2'), ['c', 'd']);
    add(...Array.from({ length: 120 }, () => call));
    assert.equal(names().length, 100);
    assert.equal(names('--limit', '0').length, 124);
    assert.equal(names('--since', '1h').length, 122);
});

for (const option of ['--follow', '-f'])
    test(`audit ${option} prints new rows as they are written`, async () => {
        add(call);
        const child = spawn(binary, ['audit', option, '--file', file], { stdio: ['ignore', 'pipe', 'inherit'] });
        let out = '';
        child.stdout.on('data', text => { out += text; });
        const lines = () => out.split('\n').length - 1;
        try {
            await until(() => lines() === 1, 10_000, 'the first row');
            add(call, call);
            await until(() => lines() === 3, 10_000, 'the rows that came');
            assert.deepEqual(out.trimEnd().split('\n').map(line => JSON.parse(line).seq), [1, 2, 3]);
        } finally {
            child.kill();
        }
    });

test('audit verify exits with 0 for an intact chain and with 1 and each finding otherwise', () => {
    add(...Array.from({ length: 10 }, (_, i) => ({ ...call, name: `ä"\\\n${i}` })));
    const clean = audit('verify');
    assert.equal(clean.status, 0, clean.stderr + clean.stdout);
    const { head_hash } = db.prepare('SELECT * FROM anchor').get();
    assert.deepEqual(JSON.parse(clean.stdout),
        { file, rows: 10, first_seq: 1, last_seq: 10, dropped: 0, heads: { calls: head_hash, authentication: ZEROS, administration: ZEROS }, findings: [] });
    const calm = onTerminal('verify');
    assert.equal(calm.status, 0);
    assert.match(calm.text, /10 rows \(1 to 10\), 0 findings/);
    db.exec("UPDATE segment SET shared=json_set(shared, '$[2].subject', 'mallory'), rows=json_remove(rows, '$[5]', '$[5]')");
    const broken = audit('verify');
    assert.equal(broken.status, 1);
    assert.deepEqual(JSON.parse(broken.stdout).findings, [
        { seq: 3, problem: 'row 3 does not match its hash: it was changed, or the row before it was replaced' },
        { seq: 6, problem: 'rows 6 to 7 are missing' }
    ]);
    const told = onTerminal('verify');
    assert.equal(told.status, 1);
    assert.match(told.text, /^row 3 does not match its hash.*\nrows 6 to 7 are missing\n.*2 findings/);
});

test('an invalid flag or unreadable file is an error', () => {
    for (const [args, code, words] of [
        [['--since', 'yesterday'], 2, /--since must be/],
        [['--limit', 'x'], 2, /--limit must be/],
        [['check'], 2, /audit check: unknown/],
        [['verify', '--denied'], 2, /does not accept --denied/]
    ]) {
        const { status, stdout, stderr } = audit(...args);
        assert.equal(status, code, stderr);
        assert.match(stderr, words);
        assert.equal(stdout, '');
    }
    file = join(directory.path, 'none.db');
    assert.equal(audit().status, 3);
    assert.match(audit('verify').stderr, /none\.db: No such file/);
    writeFileSync(file, 'no database '.repeat(1000));
    assert.match(audit('verify').stderr, /not an audit database/);
});
