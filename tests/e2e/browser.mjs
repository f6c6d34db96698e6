// A real Chromium, driven with Playwright: one browser for a test file, with a separate context for each user.
import { createRequire } from 'node:module';
import { fileURLToPath } from 'node:url';

const { chromium } = createRequire(fileURLToPath(new URL('../peers/package.json', import.meta.url)))('playwright-core');

export function startBrowser() {
    // The pages contain no scripts; with JavaScript disabled the tests also prove that they do not need any.
    return chromium.launch({ executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium', args: ['--no-sandbox', '--disable-dev-shm-usage'] });
}

/** A user with a separate browser context; `user` is the name that the proxy sends. */
export async function person(browser, user, more = {}) {
    const context = await browser.newContext({ javaScriptEnabled: false, ignoreHTTPSErrors: true, extraHTTPHeaders: user ? { 'x-forwarded-user': user } : {}, ...more });
    context.setDefaultTimeout(15_000);
    return context;
}
