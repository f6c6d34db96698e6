// A browser without pictures, for the pages of the gateway where no real one is needed: cookies, forms, redirects.
import assert from 'node:assert/strict';

import { send } from './raw.mjs';

export class Jar {
    cookies = {};
    constructor(user) {
        this.user = user;
    }
    async visit(url, form) {
        const { host } = new URL(url);
        const jar = (this.cookies[host] ??= {});
        const headers = { 'x-forwarded-user': this.user };
        if (Object.keys(jar).length) headers.cookie = Object.entries(jar).map(pair => pair.join('=')).join('; ');
        if (form) headers['content-type'] = 'application/x-www-form-urlencoded';
        const answer = await send(url, { method: form ? 'POST' : 'GET', headers, body: form && new URLSearchParams(form).toString() });
        for (const line of answer.headers['set-cookie'] ?? []) {
            const [, name, value] = /^([^=]+)=([^;]*)/.exec(line);
            jar[name] = value;
        }
        const { location } = answer.headers;
        return location ? this.visit(new URL(location, url).href) : { url, ...answer };
    }
    /** Goes all the way from a connect link, as somebody who agrees to everything; gives the page that asked. */
    async connect(link) {
        const asked = await this.visit(link);
        assert.equal(asked.status, 200, asked.body);
        const field = name => new RegExp(`name="${name}" value="([^"]+)"`).exec(asked.body)[1];
        const gone = await this.visit(asked.url.replace(/\?.*/, ''), { t: field('t'), csrf: field('csrf'), answer: 'yes' });
        const there = await this.visit(/url=([^"]+)"/.exec(gone.body)[1].replaceAll('&amp;', '&'));
        const asks = there.body.includes('name="answer"');
        const done = asks ? await this.visit(there.url, { name: `account-of-${this.user}`, answer: 'allow' }) : there;
        assert.match(done.body, /<h1>Connected/);
        return asked;
    }
    async disconnect(origin, server) {
        const list = await this.visit(`${origin}/oauth/connections`);
        const csrf = /name="csrf" value="([^"]+)"/.exec(list.body)[1];
        await this.visit(`${origin}/oauth/disconnect`, { server, csrf });
    }
}
