// A real Chromium, driven with Playwright: one browser for a test file, a context of its own for each person.
import { createRequire } from 'node:module';
import { fileURLToPath } from 'node:url';

const { chromium } = createRequire(fileURLToPath(new URL('../peers/package.json', import.meta.url)))('playwright-core');

export function startBrowser() {
    // The pages have no script; that they need none is tested with it switched off.
    return chromium.launch({ executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium', args: ['--no-sandbox', '--disable-dev-shm-usage'] });
}

/** A person at a browser of their own; `user` is who the proxy says they are. */
export async function person(browser, user, more = {}) {
    const context = await browser.newContext({ javaScriptEnabled: false, ignoreHTTPSErrors: true, extraHTTPHeaders: user ? { 'x-forwarded-user': user } : {}, ...more });
    context.setDefaultTimeout(15_000);
    return context;
}
