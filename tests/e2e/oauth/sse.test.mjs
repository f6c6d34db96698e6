// Tokens for a server over HTTP+SSE: renewed when the stream, the handshake or a call is refused, and not more than once.
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';

import { EXIT, withLiar } from '../liar.mjs';
import { Session } from '../raw.mjs';

/** Logs in to the HTTP+SSE server of the liar; `body` starts a gateway in front of it. */
async function withStream(body) {
    await withLiar('resource-parent', {}, async liar => {
        liar.url = `${liar.origin}/sse`;
        liar.configure({});
        const login = await liar.login();
        assert.equal(login.status, EXIT.OK, login.stderr);
        await body(liar, async use => {
            const gateway = await liar.gateway({ mode: 'shared' }, { type: 'sse' });
            try {
                await use(await Session.open(gateway.url));
            } finally {
                await gateway.stop();
            }
        });
    });
}

const works = async session => assert.match(JSON.stringify(await session.call('liar__echo')), /for grant 1/);
const refreshes = async liar => (await liar.get('/state')).refreshes;
const streams = async liar => (await liar.seen('/sse')).filter(({ method }) => method === 'GET').length;
const sent = async (liar, method) => (await liar.seen('/messages')).filter(({ body }) => JSON.parse(body).method === method).length;

describe('F2 over HTTP+SSE', () => {
    test('a call whose token expires on an open stream is sent again with another one on the same stream', () =>
        withStream((liar, inGateway) =>
            inGateway(async session => {
                await works(session);
                for (let round = 1; round <= 2; round++) {
                    await liar.control({ expire: true });
                    await works(session);
                    await works(session);
                    assert.equal(await refreshes(liar), round);
                }
                assert.equal(await streams(liar), 1);
                assert.equal(await sent(liar, 'tools/call'), 7, 'two of five messages were refused');
            })
        ));
    test('F3 many concurrent calls cause one refresh and each is answered', () =>
        withStream((liar, inGateway) =>
            inGateway(async session => {
                await works(session);
                await liar.control({ expire: true });
                await Promise.all(Array.from({ length: 20 }, () => works(session)));
                assert.equal(await refreshes(liar), 1);
            })
        ));
    test('a token that expired before the stream is opened is refreshed', () =>
        withStream(async (liar, inGateway) => {
            await liar.control({ expire: true });
            await inGateway(works);
            assert.equal(await refreshes(liar), 1);
            assert.equal(await streams(liar), 2);
        }));
    test('a token that expires during the handshake is refreshed', () =>
        withStream(async (liar, inGateway) => {
            await liar.control({ lie: 'greeting-late' });
            await inGateway(works);
            assert.equal(await refreshes(liar), 1);
        }));
    test('a call under a dead grant gets an error that asks for a login and the server is not asked repeatedly', () =>
        withStream((liar, inGateway) =>
            inGateway(async session => {
                await works(session);
                await liar.control({ expire: true, revoke: true });
                for (let i = 0; i < 3; i++) assert.equal((await session.call('liar__echo')).error.code, -32003);
                assert.equal((await liar.seen('/token')).length, 2);
            })
        ));
});
