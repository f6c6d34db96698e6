// Servers that send given texts: over stdio, over HTTP with answers as JSON or as event streams, and over HTTP+SSE.
// Over stdio the gateway starts pipe.mjs, which connects its standard input and output to this process.
import { once } from 'node:events';
import { createServer } from 'node:http';
import { createServer as listen } from 'node:net';
import { buffer } from 'node:stream/consumers';
import { fileURLToPath } from 'node:url';

import { node } from '../e2e/gateway.mjs';
import { Random } from './generate.mjs';
import { event, framed, Frames, Inbox, write } from './wire.mjs';

const pipe = fileURLToPath(new URL('pipe.mjs', import.meta.url));
const parsed = bytes => JSON.parse(Buffer.from(bytes, 'latin1').toString());

/** Receives messages, except those that it answers automatically (`habit`). `random` decides how messages are written. */
class Server {
    constructor(habit) {
        this.habit = habit;
        this.inbox = new Inbox();
        this.random = new Random(0, 0);
    }

    /** Takes a message as bytes, and the function that sends its answer. */
    take(bytes, answer) {
        const message = parsed(bytes);
        const own = this.habit(message, bytes);
        if (own === undefined) this.inbox.put({ bytes, message, answer });
        else if (own) answer(own);
    }

    receive() {
        return this.inbox.take();
    }
}

class StdioServer extends Server {
    async start() {
        this.listener = listen(socket => {
            this.socket = socket;
            const frames = new Frames(bytes => this.take(bytes, text => this.say(text)));
            socket.on('data', chunk => frames.read(chunk));
        }).listen(0, '127.0.0.1');
        await once(this.listener, 'listening');
        return { command: node, args: [pipe, String(this.listener.address().port)] };
    }

    say(text) {
        write(this.socket, framed(text, this.random), this.random);
    }

    stop() {
        this.socket?.destroy();
        this.listener.close();
    }
}

/** The common part of both kinds of HTTP servers: one stream for messages without a request. */
class HttpServer extends Server {
    opened = new Promise(resolve => {
        this.open = stream => resolve((this.stream = stream));
    });

    async start() {
        this.listener = createServer((req, res) => this.serve(req, res)).listen(0, '127.0.0.1');
        this.listener.keepAliveTimeout = 60_000;
        await once(this.listener, 'listening');
        return `http://127.0.0.1:${this.listener.address().port}`;
    }

    begin(res) {
        res.writeHead(200, { 'content-type': 'text/event-stream' });
        res.flushHeaders();
        return res;
    }

    async say(text) {
        write(await this.opened, event(text, this.random), this.random);
    }

    stop() {
        this.listener.closeAllConnections();
        this.listener.close();
    }
}

class StreamableServer extends HttpServer {
    constructor(habit, streams) {
        super(habit);
        this.streams = streams; // whether answers are event streams
    }

    async start() {
        return { type: 'http', url: `${await super.start()}/mcp` };
    }

    async serve(req, res) {
        if (req.method === 'GET') return this.open(this.begin(res));
        if (req.method !== 'POST') return res.writeHead(405).end();
        const bytes = (await buffer(req)).toString('latin1');
        const { id, method } = parsed(bytes);
        if (id === undefined || method === undefined) {
            this.take(bytes, () => {});
            return res.writeHead(202).end();
        }
        if (this.streams) this.current = this.begin(res);
        const over = () => {
            if (this.current === res) this.current = undefined;
        };
        res.on('close', over); // the gateway cancels a request
        return this.take(bytes, text => {
            over();
            if (this.streams) {
                write(res, event(text, this.random), this.random);
                res.end();
            } else res.writeHead(200, { 'content-type': 'application/json' }).end(text);
        });
    }

    /** On the stream of the request that is being answered, if it has one. */
    async say(text) {
        if (this.current) write(this.current, event(text, this.random), this.random);
        else await super.say(text);
    }
}

class SseServer extends HttpServer {
    async start() {
        return { type: 'sse', url: `${await super.start()}/sse` };
    }

    async serve(req, res) {
        if (req.method === 'GET') {
            this.begin(res).write('event: endpoint\ndata: /messages\n\n');
            return this.open(res);
        }
        const bytes = (await buffer(req)).toString('latin1');
        res.writeHead(202).end();
        return this.take(bytes, text => this.say(text));
    }
}

/** Servers by the transport of their answers. */
export const servers = {
    stdio: habit => new StdioServer(habit),
    json: habit => new StreamableServer(habit, false),
    stream: habit => new StreamableServer(habit, true),
    sse: habit => new SseServer(habit)
};
