// Calling a tool by hand: what its arguments are, ways to write them, the short form, and results that are not text.
import assert from 'node:assert/strict';
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { after, describe, test } from 'node:test';

import { commandLine, EXIT } from '../command-line.mjs';
import { binary, peerPath, temporaryDirectory } from '../gateway.mjs';

const { OK, NEGATIVE, USAGE, CONFIG, UNAVAILABLE } = EXIT;
const directory = temporaryDirectory();
after(() => directory.remove());
const { run, onTerminal, json } = commandLine(directory.path);

const NESTED = {
    name: 'nested',
    description: 'Takes many things',
    inputSchema: {
        type: 'object',
        required: ['who', 'deep'],
        properties: {
            who: { type: 'string', description: 'A name' },
            mode: { enum: ['slow', 'fast'], default: 'slow' },
            deep: { type: 'object', required: ['n'], properties: { n: { type: 'integer' }, list: { type: 'array', items: { type: ['string', 'null'] } } } },
            odd: true,
            odder: { type: 7, properties: 'x' }
        }
    }
};
const config = join(directory.path, 'postern.json');
writeFileSync(config, `{ // two servers
    "mcpServers": {
        "demo": ${JSON.stringify({ command: join(dirname(binary), 'postern-demo') })},
        "mirror": ${JSON.stringify({ command: peerPath('mirror'), args: ['--items', JSON.stringify(NESTED)] })},
        "tools": ${JSON.stringify({ command: peerPath('mirror') })}, // has the name of a command
    },
}`);
const at = ['--config', config];

/** The arguments that the server received. */
async function received(...words) {
    const { status, stdout, stderr } = await run(['call', 'mirror', 'mirror', ...words, ...at]);
    assert.deepEqual([status, stderr], [OK, '']);
    return JSON.parse(JSON.parse(stdout).content[0].text.replace(/^[^{]*/, '')).params.arguments;
}

describe('ways to write arguments', () => {
    const ways = {
        'words whose values are JSON or texts': [['n=3', 'f=-1.5e3', 'yes=true', 'none=null', 'list=[1,"a"]', 'object={"a":1}', 'text=two words', 'quoted="3"', 'empty=', 'sum=1=2', 'no=01', 'at=@x'],
            { n: 3, f: -1500, yes: true, none: null, list: [1, 'a'], object: { a: 1 }, text: 'two words', quoted: '3', empty: '', sum: '1=2', no: '01', at: '@x' }],
        'words with characters that JSON escapes': [['a"b=c\\d\n', 'ü=日本'], { 'a"b': 'c\\d\n', ü: '日本' }],
        'one JSON text': [['{"a": [1]}'], { a: [1] }],
        'no arguments': [[], {}]
    };
    for (const [name, [words, want]] of Object.entries(ways)) {
        test(`${name} become an object`, async () => assert.deepEqual(await received(...words), want));
    }
    test('a file with JSON becomes an object', async () => {
        const file = join(directory.path, 'arguments.json');
        writeFileSync(file, '{"from": "a file"}\n');
        assert.deepEqual(await received(`@${file}`), { from: 'a file' });
    });
    const wrong = {
        'a word without a value': [['a=1', 'b'], /^postern: "b": the arguments must be a JSON object/],
        'a key that is given twice': [['a=1', 'a=2'], /duplicate/],
        'a JSON text beside words': [['{}', 'a=1'], /^postern: "\{\}": the arguments must be/],
        'an array': [['[1]'], /must be a JSON object/],
        'a file that does not exist': [['@/no/such/file'], /^postern: \/no\/such\/file: No such file/],
        'a value without a key': [['=1'], /the arguments must be/]
    };
    for (const [name, [words, message]] of Object.entries(wrong)) {
        test(`${name} is a usage error`, async () => {
            const { status, stdout, stderr } = await run(['call', 'mirror', 'mirror', ...words, ...at]);
            assert.deepEqual([status, stdout], [USAGE, '']);
            assert.match(stderr, message);
        });
    }
    test('arguments of a prompt are always texts', async () => {
        const { stdout } = await run(['prompt', 'mirror', 'mirror', 'n=3', 'b=true', ...at]);
        assert.match(stdout, /\\"arguments\\":\{\\"n\\":\\"3\\",\\"b\\":\\"true\\"\}/);
    });
});

describe('the short form of call', () => {
    test('postern SERVER TOOL calls the tool', async () => {
        const { status, stdout } = await run(['demo', 'echo', 'message=hi', ...at]);
        assert.deepEqual([status, JSON.parse(stdout).content[0].text], [OK, 'hi']);
        assert.match((await onTerminal(['demo', 'echo', 'message=hi', `--config=${config}`])).shown, /^hi\n$/);
    });
    test('a command wins over a server with its name', async () => {
        const { stdout } = await run(['tools', 'demo', ...at]);
        assert.deepEqual(JSON.parse(stdout).map(({ name }) => name), ['echo', 'add', 'now']);
    });
    test('a name that is neither is an unknown command', async () => {
        const { status, stderr } = await run(['dmo', 'echo', ...at]);
        assert.equal(status, USAGE);
        assert.match(stderr, /^postern: unknown command 'dmo'.*\n$/);
    });
    test('a name with an invalid configuration is unknown, with the reason', async () => {
        const invalid = join(directory.path, 'invalid.json');
        writeFileSync(invalid, '{"mcpServers": {"demo": {"command": 7}}}');
        const { status, stderr } = await run(['demo', 'echo', '--config', invalid]);
        assert.equal(status, USAGE);
        assert.match(stderr, /^postern: unknown command 'demo'.*\npostern: no server is known either: .*invalid\.json:1:26: \/mcpServers\/demo\/command: must be a string\n$/);
    });
});

describe('info', () => {
    test('info prints the whole definition in a pipe', async () => assert.deepEqual(await json(['info', 'mirror', 'nested', ...at]), NESTED));
    test('info prints the arguments as a table on a terminal, members of objects too', async () => {
        const { shown } = await onTerminal(['info', 'mirror', 'nested', ...at]);
        assert.match(shown, /^nested\n\nTakes many things\n\nARGUMENT +TYPE +USE +DESCRIPTION\n/);
        const rows = shown.trim().split('\n').slice(5).map(line => line.trim().split(/ {2,}/));
        assert.deepEqual(rows, [
            ['who', 'string', 'required', 'A name'],
            ['mode', 'one of slow, fast', 'default "slow"'],
            ['deep', 'object', 'required'],
            ['deep.n', 'integer', 'required'],
            ['deep.list', 'array of string or null'],
            ['odd', 'any'],
            ['odder', 'any']
        ]);
    });
    test('info of a tool without arguments says so', async () => assert.match((await onTerminal(['info', 'demo', 'now', ...at])).shown, /\n\nno arguments\n$/));
    test('info of an unknown tool names a similar one', async () => {
        const { status, stderr } = await run(['info', 'demo', 'ad', ...at]);
        assert.equal(status, NEGATIVE);
        assert.equal(stderr, 'postern: server "demo" has no tool "ad", but "add"; `postern tools demo` lists them\n');
    });
    test('info of an unknown server is a configuration error', async () => assert.equal((await run(['info', 'dmo', 'ad', ...at])).status, CONFIG));
});

describe('results that are not text', () => {
    const PNG = Buffer.from('89504e470d0a1a0a', 'hex');
    const image = { type: 'image', mimeType: 'image/png', data: PNG.toString('base64') };
    const content = [
        { type: 'text', text: 'first' },
        image,
        { type: 'audio', mimeType: 'audio/../../x', data: Buffer.alloc(12_345).toString('base64') },
        { type: 'resource', resource: { uri: 'file:///blob', mimeType: 'application/x-y', blob: 'AAEC+/8=' } },
        image
    ];
    const reply = ['call', 'mirror', 'reply', JSON.stringify({ raw: JSON.stringify({ content }) }), ...at];
    const text = 'first\n[image: image/png, 8 bytes]\n[audio: audio/../../x, 12 KB]\n[data: application/x-y, 5 bytes]\nfile:///blob\n[image: image/png, 8 bytes]\n';
    test('a terminal shows their types and sizes', async () => assert.equal((await onTerminal(reply)).shown, text));
    test('--save writes them into new files', async () => {
        const folder = temporaryDirectory();
        const { status, stdout, stderr } = await run([...reply, '--save', folder.path]);
        assert.equal(status, OK);
        assert.deepEqual(JSON.parse(stdout).content, content);
        const files = ['content-1.png', 'content-1.bin', 'content-1.x', 'content-2.png'];
        assert.equal(stderr, files.map(name => `postern: saved ${folder.path}/${name}\n`).join(''));
        assert.deepEqual(readdirSync(folder.path).sort(), [...files].sort());
        assert.deepEqual(readFileSync(join(folder.path, 'content-2.png')), PNG);
        assert.deepEqual(readFileSync(join(folder.path, 'content-1.x')), Buffer.from([0, 1, 2, 0xfb, 0xff]));
        folder.remove();
    });
    test('--save reports a folder that it cannot write and data that is not base64', async () => {
        const missing = await run([...reply, '--save', '/no/such/folder']);
        assert.equal(missing.status, UNAVAILABLE);
        assert.match(missing.stderr, /^postern: --save: \/no\/such\/folder\/content-1\.png: No such file or directory\n$/);
        const raw = JSON.stringify({ content: [{ ...image, data: '***' }] });
        const { status, stderr } = await run(['call', 'mirror', 'reply', JSON.stringify({ raw }), ...at, '--save', directory.path]);
        assert.deepEqual([status, stderr], [UNAVAILABLE, 'postern: the server sent data that is not base64\n']);
    });
    test('--save writes the image after data that is not base64', async () => {
        const folder = temporaryDirectory();
        const raw = JSON.stringify({ content: [{ ...image, data: '***' }, image] });
        const { status, stderr } = await run(['call', 'mirror', 'reply', JSON.stringify({ raw }), ...at, '--save', folder.path]);
        assert.deepEqual([status, stderr], [UNAVAILABLE, `postern: saved ${folder.path}/content-1.png\npostern: the server sent data that is not base64\n`]);
        assert.deepEqual(readFileSync(join(folder.path, 'content-1.png')), PNG);
        folder.remove();
    });
});
