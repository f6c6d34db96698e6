// A session of a caller with a bearer token, which keeps one connection to the gateway.
import assert from 'node:assert/strict';
import { Agent, request } from 'node:http';
import { text } from 'node:stream/consumers';

import { initialize, post } from '../e2e/raw.mjs';

/** One session with its own connection. */
export class Session {
    static async open({ url }, token) {
        const session = new this();
        session.url = url;
        session.agent = new Agent({ keepAlive: true, maxSockets: 1 });
        session.headers = { authorization: `Bearer ${token}` };
        const answer = await session.send(initialize('2025-11-25'));
        assert.equal(answer.status, 200, answer.body);
        session.headers['mcp-session-id'] = answer.headers['mcp-session-id'];
        session.headers['mcp-protocol-version'] = '2025-11-25';
        assert.equal((await session.send({ jsonrpc: '2.0', method: 'notifications/initialized' })).status, 202);
        return session;
    }

    send(body, method = 'POST') {
        return new Promise((resolve, reject) => {
            const req = request(this.url, { method, agent: this.agent, headers: { ...post(), ...this.headers } }, async res => {
                try {
                    resolve({ status: res.statusCode, headers: res.headers, body: await text(res) });
                } catch (error) {
                    reject(error);
                }
            });
            req.on('error', reject);
            req.end(body && JSON.stringify(body));
        });
    }

    async close() {
        const { status } = await this.send(undefined, 'DELETE');
        assert.ok(status === 200 || status === 204, `DELETE: HTTP ${status}`);
        this.agent.destroy();
    }
}
