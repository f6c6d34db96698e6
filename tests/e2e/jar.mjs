// A minimal browser for tests of the pages that need no real one: cookies, forms and redirects.
import assert from 'node:assert/strict';

import { send } from './raw.mjs';

export class Jar {
    cookies = {};
    /** A browser does not separate cookies by port. `apart`: this one does, for a server that records every cookie it receives. */
    constructor(user, { apart = false } = {}) {
        this.user = user;
        this.apart = apart;
    }
    /** Gets a page and follows redirects, except to an address that begins with `stop`. */
    async visit(url, form, stop) {
        const { hostname, host } = new URL(url);
        const jar = (this.cookies[this.apart ? host : hostname] ??= {});
        const headers = this.user ? { 'x-forwarded-user': this.user } : {};
        if (Object.keys(jar).length) headers.cookie = Object.entries(jar).map(pair => pair.join('=')).join('; ');
        if (form) headers['content-type'] = 'application/x-www-form-urlencoded';
        const answer = await send(url, { method: form ? 'POST' : 'GET', headers, body: form && new URLSearchParams(form).toString() });
        for (const line of answer.headers['set-cookie'] ?? []) {
            const [, name, value] = /^([^=]+)=([^;]*)/.exec(line);
            if (/; Max-Age=0;/i.test(line)) delete jar[name];
            else jar[name] = value;
        }
        const { location } = answer.headers;
        const next = location && new URL(location, url).href;
        return !next || (stop && next.startsWith(stop)) ? { url, next, ...answer } : this.visit(next, undefined, stop);
    }
    /** Opens a link; returns the consent page. */
    async open(link) {
        const asked = await this.visit(link);
        assert.equal(asked.status, 200, asked.body);
        return asked;
    }
    /** Agrees on the consent page, with a form sent to `origin`; returns the next page. */
    agree(asked, origin = new URL(asked.url).origin) {
        const field = name => new RegExp(`name="${name}" value="([^"]+)"`).exec(asked.body)[1];
        return this.visit(`${origin}/oauth/connect`, { t: field('t'), csrf: field('csrf'), answer: 'yes' });
    }
    /** Continues to the authorization server, allows the access, and follows the redirects back up to `stop`. */
    async allow(gone, stop) {
        assert.equal(gone.status, 200, gone.body);
        const there = await this.visit(/url=([^"]+)"/.exec(gone.body)[1].replaceAll('&amp;', '&'), undefined, stop);
        return there.body.includes('name="answer"') ? this.visit(there.url, { name: `account-of-${this.user}`, answer: 'allow' }, stop) : there;
    }
    /** The address of the callback, which is not visited. */
    async callback(link) {
        const { origin } = new URL(link);
        return (await this.allow(await this.agree(await this.open(link)), `${origin}/oauth/callback`)).next;
    }
    /** Performs a whole login from a connect link and agrees on each page; returns the consent page. */
    async connect(link) {
        const asked = await this.open(link);
        const done = await this.allow(await this.agree(asked));
        assert.match(done.body, /<h1>Connected/);
        return asked;
    }
    async disconnect(origin, server) {
        const list = await this.visit(`${origin}/oauth/connections`);
        const csrf = /name="csrf" value="([^"]+)"/.exec(list.body)[1];
        await this.visit(`${origin}/oauth/disconnect`, { server, csrf });
    }
}
