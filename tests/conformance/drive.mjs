// Drives the postern command line for one scenario of the official client suite: it lists the tools and calls one, and
// logs in automatically when the server requires it.
//
// usage: tests/peers/node tests/conformance/drive.mjs URL     (the suite appends the URL and sets MCP_CONFORMANCE_*)
import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

const postern = process.env.POSTERN;
const url = process.argv.at(-1);
const scenario = process.env.MCP_CONFORMANCE_SCENARIO ?? '';
const context = JSON.parse(process.env.MCP_CONFORMANCE_CONTEXT ?? '{}');
const state = mkdtempSync(join(tmpdir(), 'postern-conformance-'));

function authOf() {
    const auth = {};
    if (context.client_id) auth.client_id = context.client_id;
    if (context.client_secret) auth.client_secret = context.client_secret;
    if (scenario === 'auth/basic-cimd') auth.client_metadata_url = 'https://conformance-test.local/client-metadata.json';
    if (scenario.startsWith('auth/client-credentials')) auth.mode = 'client_credentials';
    const subject = context.valid_jwt ?? context.idp_id_token;
    if (subject) {
        auth.mode = context.idp_id_token ? 'enterprise' : 'workload';
        auth.subject_token_file = join(state, 'subject');
        writeFileSync(auth.subject_token_file, subject, { mode: 0o600 });
    }
    if (context.idp_token_endpoint) auth.idp = { token_endpoint: context.idp_token_endpoint, client_id: context.idp_client_id };
    if (context.private_key_pem) {
        auth.private_key_file = join(state, 'key.pem');
        auth.signing_algorithm = context.signing_algorithm ?? 'ES256';
        writeFileSync(auth.private_key_file, context.private_key_pem, { mode: 0o600 });
    }
    return auth;
}

const config = join(state, 'postern.json');
writeFileSync(config, JSON.stringify({ mcpServers: { server: { url, auth: authOf() } } }), { mode: 0o600 });

function run(...args) {
    const env = { ...process.env, POSTERN_STATE: state };
    const { status } = spawnSync(postern, [...args, '--config', config, '--headless'], { stdio: ['ignore', 'inherit', 'inherit'], env });
    return status;
}

// Mocks that accept only the stateless requests of 2026-07-28, which the command line does not send: only the login can be checked.
const stateless = ['auth/offline-access-scope', 'auth/offline-access-not-supported', 'auth/iss-supported', 'auth/iss-not-advertised'];

const only = stateless.includes(scenario);
let status = only ? run('login', 'server') : run('tools', 'server');
if (status === 0 && !only && scenario.startsWith('auth/')) status = run('call', 'server', 'test-tool', '{}');
rmSync(state, { recursive: true, force: true });
process.exit(status);
