// The command `postern token`: its output and files, concurrent runs, and its exit codes.
import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { chmodSync, existsSync, openSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, test } from 'node:test';
import { crc32 } from 'node:zlib';

import { binary, temporaryDirectory } from '../gateway.mjs';

const SHAPE = /^postern_([0-9A-Za-z]{8})_([0-9A-Za-z]{43})_([0-9A-Za-z]{6})$/;
const DIGITS = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz';
const DAY = 86_400_000;

let directory, file;
beforeEach(() => {
    directory = temporaryDirectory();
    file = join(directory.path, 'tokens.json');
});
afterEach(() => directory.remove());

/** Runs `postern token ARGS --file FILE` without a terminal. */
function token(...args) {
    const { status, stdout, stderr } = spawnSync(binary, ['token', ...args, '--file', file], { encoding: 'utf8' });
    return { status, stdout, stderr };
}

/** The same on a terminal; stdout and stderr arrive as one text. */
function onTerminal(...args) {
    const words = [binary, 'token', ...args, '--file', file].map(word => `'${word}'`).join(' ');
    const { status, stdout } = spawnSync('script', ['-qec', words, '/dev/null'], { encoding: 'utf8' });
    return { status, text: stdout.replaceAll('\r\n', '\n') };
}

function make(...args) {
    const { status, stdout, stderr } = token('new', ...args);
    assert.equal(status, 0, stderr);
    assert.equal(stderr, '', 'without a terminal only the token is printed');
    assert.match(stdout.trimEnd(), SHAPE);
    return { text: stdout.trimEnd(), id: SHAPE.exec(stdout.trimEnd())[1] };
}

const stored = () => JSON.parse(readFileSync(file, 'utf8'));
const sha256 = text => createHash('sha256').update(text).digest('hex');
const near = (date, ms) => assert.ok(Math.abs(Date.parse(date) - Date.now() - ms) < 60_000, `${date} is not ${ms} ms away`);

function base62(number) {
    let text = '';
    for (let i = 0; i < 6; i++, number = Math.floor(number / 62)) text = DIGITS[number % 62] + text;
    return text;
}

test('P9 a token has the documented shape and a standard CRC-32', () => {
    for (let i = 0; i < 5; i++) {
        const { text } = make('--subject', `s${i}`);
        assert.equal(text.slice(-6), base62(crc32(text.slice(0, -7))));
    }
});

test('P8 P10 token new writes the digest and the given members in order to a private file', () => {
    const { text, id } = make('--subject', 'alice', '--role', 'dev', '--role=on call', '--tenant', 'acme',
        '--expires', '2099-01-31', '--description', 'Laptop');
    const written = readFileSync(file, 'utf8');
    assert.equal(written, JSON.stringify(stored(), null, 2) + '\n');
    assert.ok(!written.includes(SHAPE.exec(text)[2].slice(0, 8)));
    const [entry] = stored().tokens;
    assert.deepEqual(Object.keys(stored()), ['version', 'tokens']);
    assert.deepEqual(Object.keys(entry), ['id', 'sha256', 'subject', 'roles', 'tenant', 'created', 'expires', 'description']);
    near(entry.created, 0);
    delete entry.created;
    assert.deepEqual(entry, {
        id, sha256: sha256(text), subject: 'alice', roles: ['dev', 'on call'], tenant: 'acme', expires: '2099-01-31',
        description: 'Laptop'
    });
    assert.equal(statSync(file).mode & 0o777, 0o600);
    chmodSync(file, 0o640);
    make('--subject', 'bob');
    assert.equal(statSync(file).mode & 0o777, 0o640);
    assert.deepEqual(Object.keys(stored().tokens[1]), ['id', 'sha256', 'subject', 'roles', 'created']);
    assert.deepEqual(readdirSync(directory.path).sort(), ['.tokens.json.lock', 'tokens.json']);
});

test('P10 --expires accepts a time from now', () => {
    make('--subject', 'alice', '--expires', '90d');
    near(stored().tokens[0].expires, 90 * DAY);
});

test('P10 token list shows all members but digests, as JSON in a pipe and as a table on a terminal', () => {
    const { id } = make('--subject', 'alice', '--role', 'dev', '--description', 'Laptop');
    const expired = make('--subject', 'bob', '--tenant', 'acme');
    const changed = stored();
    changed.tokens[1].expires = '2020-01-01';
    writeFileSync(file, JSON.stringify(changed));
    const listed = token('list');
    assert.equal(listed.status, 0);
    const [alice, bob] = JSON.parse(listed.stdout);
    assert.deepEqual({ ...alice, created: undefined },
        { id, subject: 'alice', roles: ['dev'], tenant: 'default', description: 'Laptop', active: true, created: undefined });
    assert.deepEqual([bob.id, bob.tenant, bob.expires, bob.active], [expired.id, 'acme', '2020-01-01', false]);
    const table = onTerminal('list');
    assert.equal(table.status, 0);
    assert.match(table.text, /ID +SUBJECT +EXPIRES +ROLES; DESCRIPTION/);
    assert.match(table.text, new RegExp(`${id} +alice +never +dev; Laptop`));
    assert.match(table.text, new RegExp(`${expired.id} +acme/bob +2020-01-01 \\(expired\\)`));
    assert.doesNotThrow(() => JSON.parse(onTerminal('list', '--json').text));
    for (const { sha256: digest } of stored().tokens)
        for (let i = 0; i + 9 <= digest.length; i++)
            assert.ok(!(listed.stdout + table.text).includes(digest.slice(i, i + 9)), 'a part of a digest is shown');
});

test('P10 token new says on a terminal that the token is shown once', () => {
    const { status, text } = onTerminal('new', '--subject', 'alice');
    assert.equal(status, 0);
    assert.match(text.split('\n')[0], SHAPE);
    assert.match(text, /shown only once/);
    assert.match(text, /Authorization: Bearer/);
    assert.match(text, /does not expire/);
});

test('P10 token rotate issues a new token with the same data and expires the old one after the overlap', () => {
    const old = make('--subject', 'alice', '--role', 'dev', '--tenant', 'acme', '--description', 'Laptop');
    const before = stored().tokens[0];
    const rotated = token('rotate', old.id);
    assert.equal(rotated.status, 0, rotated.stderr);
    const [first, second] = stored().tokens;
    assert.equal(second.sha256, sha256(rotated.stdout.trimEnd()));
    assert.equal(second.id, SHAPE.exec(rotated.stdout.trimEnd())[1]);
    for (const key of ['subject', 'roles', 'tenant', 'description', 'expires']) assert.deepEqual(second[key], before[key]);
    near(first.expires, DAY);
    assert.deepEqual({ ...first, expires: undefined }, { ...before, expires: undefined });

    const third = token('rotate', second.id);
    assert.equal(third.status, 1, 'two are active');
    assert.match(third.stderr, new RegExp(`2 active tokens already \\(${first.id}, ${second.id}\\)`));
    assert.equal(token('new', '--subject', 'alice', '--tenant', 'acme').status, 1);
    assert.equal(stored().tokens.length, 2);
    make('--subject', 'alice'); // of another tenant, so another identity

    assert.equal(token('revoke', first.id).status, 0);
    const now = token('rotate', second.id, '--overlap', '0s', '--expires', '10d');
    assert.equal(now.status, 0, now.stderr);
    const entries = stored().tokens;
    near(entries.find(entry => entry.id === second.id).expires, 0);
    near(entries.at(-1).expires, 10 * DAY);
});

test('P10 an overlap does not extend the life of a token', () => {
    const old = make('--subject', 'alice', '--expires', '1h');
    const { expires } = stored().tokens[0];
    assert.equal(token('rotate', old.id).status, 0);
    assert.deepEqual(stored().tokens.map(entry => entry.expires), [expires, expires]);
});

test('P10 an expired token is rotated only with a new expiry', () => {
    const old = make('--subject', 'alice');
    const changed = stored();
    changed.tokens[0].expires = '2020-01-01';
    writeFileSync(file, JSON.stringify(changed));
    const refused = token('rotate', old.id);
    assert.equal(refused.status, 1);
    assert.match(refused.stderr, /--expires/);
    assert.equal(token('rotate', old.id, '--expires', '1d').status, 0);
    assert.equal(stored().tokens[0].expires, '2020-01-01');
});

test('P10 token revoke removes an entry by id or by the whole token', () => {
    const [a, b, c] = ['a', 'b', 'c'].map(subject => make('--subject', subject));
    assert.deepEqual(token('revoke', b.id), { status: 0, stdout: '', stderr: '' });
    assert.deepEqual(stored().tokens.map(entry => entry.id), [a.id, c.id]);
    const again = token('revoke', b.text);
    assert.equal(again.status, 1);
    assert.match(again.stderr, new RegExp(`no token with id "${b.id}"`));
    assert.ok(!again.stderr.includes(b.text.slice(17)), 'the secret is repeated');
    const typo = token('revoke', a.text.slice(0, -1) + (a.text.endsWith('x') ? 'y' : 'x'));
    assert.equal(typo.status, 2);
    assert.ok(!typo.stderr.includes(a.text.slice(17, 40)), 'the secret is repeated');
    assert.equal(token('revoke', a.text).status, 0);
    assert.deepEqual(stored().tokens.map(entry => entry.id), [c.id]);
});

test('P10 concurrent token commands lose no entry and a reader never sees a partial file', async () => {
    const running = Array.from({ length: 16 }, (_, i) =>
        spawn(binary, ['token', 'new', '--subject', `s${i}`, '--file', file], { stdio: ['ignore', 'pipe', 'inherit'] }));
    let reading = true, reads = 0;
    const reader = (async () => {
        for (; reading; reads++) {
            if (existsSync(file)) assert.ok(stored().tokens.length >= 1);
            await new Promise(setImmediate);
        }
    })();
    const printed = await Promise.all(running.map(async child => {
        let text = '';
        child.stdout.setEncoding('utf8').on('data', chunk => (text += chunk));
        const [code] = await once(child, 'close');
        assert.equal(code, 0);
        return text.trimEnd();
    }));
    reading = false;
    await reader;
    assert.ok(reads > 1);
    const digests = new Set(stored().tokens.map(entry => entry.sha256));
    assert.equal(digests.size, 16);
    for (const text of printed) assert.ok(digests.has(sha256(text)));
});

test('a token that cannot be printed is reported with its id', () => {
    const full = openSync('/dev/full', 'w');
    const { status, stderr } = spawnSync(binary, ['token', 'new', '--subject', 'a', '--file', file],
        { encoding: 'utf8', stdio: ['ignore', full, 'pipe'] });
    assert.equal(status, 4);
    assert.match(stderr, new RegExp(`token revoke ${stored().tokens[0].id} `));
});

test('wrong usage of token exits with 2 and does not write the file', () => {
    for (const [args, says] of [
        [['new'], /--subject is missing/],
        [['new', '--subject', ''], /subject: must be one line/],
        [['new', '--subject', 'a\nb'], /subject: must be one line/],
        [['new', '--subject', 'a', '--role', 'x,y'], /roles: each must be/],
        [['new', '--subject', 'a', '--expires', 'soon'], /--expires must be a date/],
        [['new', '--subject', 'a', '--expires', 'nand'], /--expires must be a date/],
        [['new', '--subject', 'a', '--expires', '9e14d'], /--expires must be a date/],
        [['new', '--subject', 'a', '--expires', '999999999d'], /--expires must be a date/],
        [['new', '--subject', 'a', '--expires', '2027-02-30'], /--expires must be a date/],
        [['new', '--subject', 'a', '--expires', '2020-01-01'], /not in the future/],
        [['new', '--subject', 'a', '--expires', '0s'], /not in the future/],
        [['new', '--subject', 'a', '--overlap', '1h'], /does not accept --overlap/],
        [['new', '--subject', 'a', ...Array(17).fill('--role=x')], /--role is given more than 16 times/],
        [['new', 'extra', '--subject', 'a'], /usage: postern token new/],
        [['list', '--role', 'x'], /does not accept --role/],
        [['rotate'], /usage: postern token rotate ID/],
        [['rotate', 'abcdefgh', '--role', 'admin'], /does not accept --role/],
        [['rotate', 'abcdefgh', '--overlap', 'long'], /--overlap must be/],
        [['revoke'], /usage: postern token revoke ID/],
        [['revoke', 'abc'], /ID must be 8 letters and digits/],
        [['revoke', 'abcdefgh', '--expires', '1d'], /does not accept --expires/],
        [['make'], /use new, list, rotate or revoke/],
        [['new', '--subjekt', 'a'], /did you mean --subject/]
    ]) {
        const { status, stdout, stderr } = token(...args);
        assert.equal(status, 2, `${args}: ${stderr}`);
        assert.match(stderr, says);
        assert.equal(stdout, '');
        assert.ok(!existsSync(file));
    }
    const { status, stderr } = spawnSync(binary, ['token', 'list'], { encoding: 'utf8' });
    assert.equal(status, 2);
    assert.match(stderr, /--file is missing/);
});

test('a missing or invalid token file is unchanged and the exit status is 3', () => {
    for (const args of [['list'], ['rotate', 'abcdefgh'], ['revoke', 'abcdefgh']]) assert.equal(token(...args).status, 3);
    assert.deepEqual(readdirSync(directory.path), []);
    const wrong = '{"version":1,"tokens":[{"id":"abcdefgh","secret":"x"}]}';
    writeFileSync(file, wrong);
    for (const args of [['list'], ['new', '--subject', 'a'], ['rotate', 'abcdefgh'], ['revoke', 'abcdefgh']]) {
        const { status, stdout, stderr } = token(...args);
        assert.equal(status, 3);
        assert.equal(stdout, '');
        assert.match(stderr, /tokens\.json: \/tokens\/0\/secret: unknown key/);
    }
    assert.equal(readFileSync(file, 'utf8'), wrong);
    file = join(directory.path, 'missing', 'tokens.json');
    const { status, stderr } = token('new', '--subject', 'a');
    assert.equal(status, 4);
    assert.match(stderr, /No such file or directory/);
});
