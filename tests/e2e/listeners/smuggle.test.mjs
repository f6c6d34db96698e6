// HTTP framing that two parsers could read differently, and slow senders: refused, and the connection closed.
import assert from 'node:assert/strict';
import { connect } from 'node:net';
import { after, before, describe, test } from 'node:test';

import { startGateway, stdioServer } from '../gateway.mjs';
import { initialize } from '../raw.mjs';

const HEADER_TIMEOUT_MS = 1_000;
const CLOSE_MS = 10_000;

let gateway, host, port;
before(async () => {
    gateway = await startGateway({
        prefix: false,
        limits: { header_timeout: '1s' },
        mcpServers: { fixture: stdioServer.fixture() }
    });
    ({ hostname: host, port } = new URL(gateway.url));
});
after(() => gateway?.stop());

/** Opens a connection, lets `talk` write to it, and resolves with everything received once the gateway has closed it. */
function converse(talk) {
    return new Promise((resolve, reject) => {
        const socket = connect(Number(port), host);
        const chunks = [];
        const timer = setTimeout(() => fail(new Error(`not closed within ${CLOSE_MS} ms: ${Buffer.concat(chunks)}`)), CLOSE_MS);
        const fail = error => {
            clearTimeout(timer);
            socket.destroy();
            reject(error);
        };
        socket.on('connect', () => talk(socket));
        socket.on('data', chunk => chunks.push(chunk));
        socket.on('error', error => error.code !== 'ECONNRESET' && error.code !== 'EPIPE' && fail(error));
        socket.on('close', () => {
            clearTimeout(timer);
            resolve(Buffer.concat(chunks).toString('latin1'));
        });
    });
}

const body = JSON.stringify(initialize('2025-11-25'));
const length = `Content-Length: ${Buffer.byteLength(body)}`;

/** A POST with these header lines after the usual ones. */
function request(lines, content = body) {
    const usual = ['POST /mcp HTTP/1.1', `Host: ${host}:${port}`, 'Content-Type: application/json', 'Accept: application/json, text/event-stream'];
    return [...usual, ...lines, '', content].join('\r\n');
}

const responses = answer => answer.match(/HTTP\/1\.1 \d{3}/g) ?? [];

test('the same request without the fault is answered', async () => {
    const answer = await converse(socket => socket.write(request([length, 'Connection: close'])));
    assert.match(answer, /^HTTP\/1\.1 200 /);
});

describe('ambiguous framing', () => {
    const next = `GET /mcp HTTP/1.1\r\nHost: x\r\n\r\n`;
    const chunked = `${Buffer.byteLength(body).toString(16)}\r\n${body}\r\n0\r\n\r\n`;
    const cases = {
        'a request with Content-Length and Transfer-Encoding': () => request([length, 'Transfer-Encoding: chunked'], chunked),
        'a request with Transfer-Encoding and Content-Length': () => request(['Transfer-Encoding: chunked', length], chunked),
        'a request with two Content-Length that differ': () => request([length, 'Content-Length: 3']),
        'a request with two Content-Length that agree': () => request([length, length]),
        'a list as Content-Length': () => request([`${length}, ${Buffer.byteLength(body)}`]),
        'a Content-Length with a sign': () => request([`Content-Length: +${Buffer.byteLength(body)}`]),
        'a negative Content-Length': () => request(['Content-Length: -1']),
        'a Content-Length that overflows': () => request(['Content-Length: 18446744073709551617']),
        'an empty Content-Length': () => request(['Content-Length:']),
        'a Content-Length in hexadecimal': () => request(['Content-Length: 0x10']),
        'a request with two Transfer-Encoding': () => request(['Transfer-Encoding: chunked', 'Transfer-Encoding: identity'], chunked),
        'a Transfer-Encoding that does not end in chunked': () => request(['Transfer-Encoding: chunked, identity'], chunked),
        'a chunk size with a sign': () => request(['Transfer-Encoding: chunked'], `+5\r\nhello\r\n0\r\n\r\n`),
        'a chunk size that overflows': () => request(['Transfer-Encoding: chunked'], `10000000000000000\r\nhello\r\n0\r\n\r\n`),
        'a chunk that is longer than it says': () => request(['Transfer-Encoding: chunked'], `2\r\nhello\r\n0\r\n\r\n`),
        'a header line that ends in a bare LF': () => request([`X-One: 1\nX-Two: 2`, length]),
        'a header line that contains a bare CR': () => request([`X-One: 1\rX-Two: 2`, length]),
        'a header line that contains a NUL': () => request([`X-One: 1\0`, length]),
        'a space before the colon': () => request(['X-Name : value', length]),
        'a space before the colon of Content-Length': () => request([`Content-Length : ${Buffer.byteLength(body)}`]),
        'a header line without a colon': () => request(['X-Name', length]),
        'a header without a name': () => request([': value', length]),
        'a folded header line': () => request(['X-Name: one', ' two', length]),
        'a first header line that begins with a space': () => request([length]).replace('\r\nHost', '\r\n X: 1\r\nHost'),
        'a request with two Host': () => request([`Host: ${host}:${port}`, length]),
        'a request without Host': () => request([length]).replace(`Host: ${host}:${port}\r\n`, ''),
        'a request with two Authorization': () => request(['Authorization: Bearer one', 'Authorization: Bearer two', length]),
        'a request line with a bare LF': () => request([length]).replace('HTTP/1.1\r\n', 'HTTP/1.1\n'),
        'a request line with two spaces': () => request([length]).replace('POST /mcp', 'POST  /mcp'),
        'a request of another protocol': () => request([length]).replace('HTTP/1.1', 'HTTP/one')
    };
    for (const [name, bytes] of Object.entries(cases)) {
        test(`${name} gets 400 and the end of the connection`, async () => {
            const answer = await converse(socket => socket.write(bytes() + next));
            // The request that hides behind the first would be answered 403. libmicrohttpd 0.9.75 repeats the head
            // of the errors it finds itself, so the number of heads is not checked, only their status.
            assert.match(answer, name.includes('overflows') ? /^HTTP\/1\.1 4(00|13) / : /^HTTP\/1\.1 400 /);
            assert.ok(responses(answer).every(head => /4(00|13)$/.test(head)), `the second request was answered:\n${answer}`);
        });
    }
    test('an unknown Transfer-Encoding is refused', async () => {
        const answer = await converse(socket => socket.write(request(['Transfer-Encoding: xchunked'], chunked) + next));
        assert.match(answer, /^HTTP\/1\.1 (400|501) /);
        assert.equal(responses(answer).length, 1, `more than one answer:\n${answer}`);
    });
    test('HTTP/2 without negotiation is refused', async () => {
        const answer = await converse(socket => socket.write('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n'));
        assert.match(answer, /^(HTTP\/1\.1 (400|505) |$)/);
    });
});

describe('slow senders', () => {
    test('headers that arrive slowly are cut off at the header deadline', async () => {
        const started = Date.now();
        let drip;
        const answer = await converse(socket => {
            const bytes = request([length]);
            let sent = 0;
            const one = () => socket.writable && sent < bytes.length && socket.write(bytes[sent++]);
            one();
            drip = setInterval(one, 200);
        }).finally(() => clearInterval(drip));
        assert.match(answer, /^(HTTP\/1\.1 408 |$)/);
        assert.ok(Date.now() - started < HEADER_TIMEOUT_MS + 5_000);
    });
    test('a connection that stays silent is closed', async () => {
        assert.match(await converse(() => {}), /^(HTTP\/1\.1 408 |$)/);
    });
    test('headers without an end are refused', async () => {
        const answer = await converse(socket => {
            socket.write('POST /mcp HTTP/1.1\r\n');
            const line = `X-Filler: ${'x'.repeat(1000)}\r\n`;
            const more = () => socket.writable && socket.write(line, more);
            more();
        });
        assert.match(answer, /^(HTTP\/1\.1 (400|431) |$)/);
    });
    test('the gateway answers after slow senders', async () => {
        const answer = await converse(socket => socket.write(request([length, 'Connection: close'])));
        assert.match(answer, /^HTTP\/1\.1 200 /);
    });
});

describe('valid framing', () => {
    test('a chunked body is read', async () => {
        const half = Math.floor(body.length / 2);
        const chunks = [body.slice(0, half), body.slice(half)].map(part => `${part.length.toString(16)};ext=1\r\n${part}\r\n`).join('');
        const answer = await converse(socket => socket.write(request(['Transfer-Encoding: chunked', 'Connection: close'], `${chunks}0\r\n\r\n`)));
        assert.match(answer, /^HTTP\/1\.1 200 /);
    });
    test('two requests in one segment are answered in turn', async () => {
        const answer = await converse(socket => socket.write(request([length]) + request([length, 'Connection: close'])));
        assert.deepEqual(responses(answer), ['HTTP/1.1 200', 'HTTP/1.1 200']);
    });
    test('a request that arrives byte by byte is answered', async () => {
        const bytes = request([length, 'Connection: close']);
        const answer = await converse(async socket => {
            socket.setNoDelay(true);
            for (const byte of bytes) await new Promise(resolve => socket.write(byte, resolve));
        });
        assert.match(answer, /^HTTP\/1\.1 200 /);
    });
    test('Expect: 100-continue is honoured', async () => {
        const answer = await converse(socket => {
            socket.write(request([length, 'Expect: 100-continue', 'Connection: close'], ''));
            socket.once('data', () => socket.write(body));
        });
        assert.match(answer, /^HTTP\/1\.1 (100|200) /);
        assert.match(answer, /^HTTP\/1\.1 200 /m);
    });
    test('HEAD, OPTIONS and an absolute target are answered', async () => {
        for (const line of ['OPTIONS /mcp HTTP/1.1', 'HEAD /mcp HTTP/1.1', `GET http://${host}:${port}/nowhere HTTP/1.1`]) {
            const answer = await converse(socket => socket.write(`${line}\r\nHost: ${host}:${port}\r\nConnection: close\r\n\r\n`));
            assert.match(answer, /^HTTP\/1\.1 [245]\d\d /, line);
        }
    });
});
