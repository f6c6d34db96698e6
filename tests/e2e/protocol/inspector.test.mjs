// The command line of the Inspector as a client, over each of its transports.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';

import { binary, node, program, startGateway, stdioServer, temporaryDirectory, writeConfig } from '../gateway.mjs';

const mcpServers = { everything: stdioServer.everything(), fixture: stdioServer.fixture() };
const directory = temporaryDirectory();
after(directory.remove);

/** Runs the Inspector once and returns its output, parsed; its files are in the temporary directory. */
function inspect(target, ...args) {
    const env = { ...process.env, HOME: directory.path };
    return new Promise((resolve, reject) => {
        execFile(node, [program.inspector, '--cli', ...target, ...args], { env, timeout: 30_000 }, (error, stdout, stderr) => {
            if (error) reject(new Error(`${error.message}\n${stdout}${stderr}`));
            else resolve(JSON.parse(stdout));
        });
    });
}

let gateway;
before(async () => {
    gateway = await startGateway({ mcpServers });
});
after(() => gateway?.stop());

const targets = {
    http: () => [gateway.url, '--transport', 'http'],
    sse: () => [`${gateway.origin}/sse`, '--transport', 'sse'],
    stdio: () => ['--config', inspectorConfig(writeConfig(directory.path, { mcpServers })), '--server', 'postern']
};

/** A configuration file of the Inspector: it would take a --config on its command line as its own option. */
function inspectorConfig(config) {
    const path = join(directory.path, 'inspector.json');
    writeFileSync(path, JSON.stringify({ mcpServers: { postern: { command: binary, args: ['serve', '--stdio', '--config', config] } } }));
    return path;
}

for (const [transport, target] of Object.entries(targets)) {
    describe(transport, () => {
        const run = (method, ...args) => inspect(target(), '--method', method, ...args);

        test('tools/list lists the tools of all servers', async () => {
            const { tools } = await run('tools/list');
            const names = tools.map(({ name }) => name);
            assert.ok(names.includes('everything__get-sum'));
            assert.ok(names.includes('fixture__json_schema_2020_12_tool'));
        });
        test('tools/call calls a tool', async () => {
            const { content } = await run('tools/call', '--tool-name', 'everything__get-sum', '--tool-arg', 'a=2', '--tool-arg', 'b=40');
            assert.match(content[0].text, /42/);
        });
        test('resources/list and resources/read show resources of a server', async () => {
            const { resources } = await run('resources/list');
            const { uri } = resources.find(({ uri: candidate }) => candidate.endsWith('test://static-text'));
            assert.equal(uri, 'postern://fixture/test://static-text');
            const { contents } = await run('resources/read', '--uri', uri);
            assert.equal(contents[0].text, 'This is the content of the static text resource.');
        });
        test('resources/templates/list lists the templates of all servers', async () => {
            const { resourceTemplates } = await run('resources/templates/list');
            assert.ok(resourceTemplates.some(({ uriTemplate }) => uriTemplate === 'postern://fixture/test://template/{id}/data'));
        });
        test('prompts/list and prompts/get show prompts of a server', async () => {
            const { prompts } = await run('prompts/list');
            assert.ok(prompts.some(({ name }) => name === 'fixture__test_prompt_with_arguments'));
            const { messages } = await run('prompts/get', '--prompt-name', 'fixture__test_prompt_with_arguments', '--prompt-args', 'arg1=a', 'arg2=b');
            assert.equal(messages[0].content.text, "Prompt with arguments: arg1='a', arg2='b'");
        });
    });
}
