// Runs the official server suite: starts the fixture and the gateway, counts the verdicts, cleans up.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { parseArgs } from 'node:util';

import { node, program, startGateway, startPeer, stdioServer, temporaryDirectory } from '../e2e/gateway.mjs';

/** Scenarios that the suite does not score but that must pass here. */
const REQUIRED = ['server-session-lifecycle', 'json-schema-2020-12'];

const { values: options } = parseArgs({
    options: {
        upstream: { type: 'string', default: 'stdio' },
        era: { type: 'string', default: 'legacy' },
        requirements: { type: 'string', default: '2025-11-25' },
        direct: { type: 'boolean', default: false }
    }
});

const running = [];
const results = temporaryDirectory();
process.on('SIGINT', () => finish(130));
process.on('SIGTERM', () => finish(143));
try {
    const url = await startServerUnderTest();
    const { output, code } = await runSuite(url);
    await finish(report(output, code));
} catch (error) {
    console.error(error.message);
    await finish(1);
}

async function startServerUnderTest() {
    const { upstream, era, direct } = options;
    let server;
    if (upstream === 'stdio' && !direct) {
        server = stdioServer.fixture('--era', era);
    } else {
        const mode = direct ? 'http' : upstream;
        const peer = await startPeer(program.fixture, mode, '--era', era);
        running.push(peer);
        if (direct) return peer.url;
        server = { type: mode, url: peer.url };
    }
    const gateway = await startGateway({ prefix: false, mcpServers: { fixture: server } });
    running.push(gateway);
    return gateway.url;
}

/** The suite needs a localhost URL, for its DNS rebinding scenario. */
async function runSuite(url) {
    const args = ['server', '--url', url.replace('127.0.0.1', 'localhost'), '--requirements', options.requirements, '-o', results.path];
    const suite = spawn(node, [program.conformance, ...args], { stdio: ['ignore', 'pipe', 'inherit'], cwd: results.path });
    running.push({ stop: async () => suite.kill() });
    let output = '';
    suite.stdout.setEncoding('utf8').on('data', chunk => (output += chunk));
    const [code] = await once(suite, 'close');
    return { output, code };
}

/** Prints the verdict and returns the exit code. */
function report(output, code) {
    const summary = output.slice(output.indexOf('=== SUMMARY ==='));
    const verdicts = [...summary.matchAll(/^([✓✗]) (\S+): /gm)].map(([, mark, name]) => ({ name, passed: mark === '✓' }));
    const unscored = new Set([...summary.matchAll(/^ +[✓✗] (\S+) \(/gm)].map(([, name]) => name));
    const scored = verdicts.filter(({ name }) => !unscored.has(name));
    const failed = verdicts.filter(({ passed }) => !passed).map(({ name }) => name);
    const missed = failed.filter(name => !unscored.has(name) || REQUIRED.includes(name));

    for (const name of missed) explain(name);
    for (const name of failed) if (!missed.includes(name)) console.log(`not scored, failing: ${name}`);
    if (scored.length === 0) console.log(output);

    const target = options.direct ? 'direct' : options.upstream;
    const era = options.era === 'legacy' ? '' : ` (${options.era})`;
    const passed = scored.filter(verdict => verdict.passed).length;
    console.log(`conformance server ${target}${era} ${options.requirements}: ${passed}/${scored.length} scored`);
    return code !== 0 ? code : missed.length > 0 || scored.length === 0 ? 1 : 0;
}

/** Prints the failing checks of a scenario. */
function explain(scenario) {
    console.log(`FAILED ${scenario}`);
    const pattern = new RegExp(`^server-${scenario}-\\d{4}-\\d\\d-\\d\\dT`);
    for (const directory of readdirSync(results.path).filter(name => pattern.test(name))) {
        const checks = JSON.parse(readFileSync(join(results.path, directory, 'checks.json'), 'utf8'));
        for (const check of checks.filter(({ status }) => status === 'FAILURE')) {
            console.log(`    ${check.id}: ${check.errorMessage ?? check.description}`);
            if (check.details) console.log(`        ${JSON.stringify(check.details).slice(0, 600)}`);
        }
    }
}

async function finish(code) {
    for (const part of running.reverse()) {
        await part.stop().catch(error => {
            console.error(error.message);
            code ||= 1;
        });
    }
    results.remove();
    process.exit(code);
}
