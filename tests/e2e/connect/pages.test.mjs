// The connect pages in a real browser: on a narrow phone, in dark mode, with a keyboard, and for a screen reader.
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';

import { person, startBrowser } from '../browser.mjs';
import { caller, newUser, startWorld } from '../hosted.mjs';
import { send } from '../raw.mjs';

const shots = process.env.POSTERN_SHOTS; // a folder for pictures of the pages, to look at
const LONG = 'averylongnameofaserverwithnoplacetobreakit';
const longUser = () => `averylongnameofanaccountwithnoplacetobreakit${newUser()}@department.example`;

let world, gateway, browser;
before(async () => {
    world = await startWorld('ask');
    const own = { url: world.authority.url, auth: { mode: 'per_user' } };
    gateway = await world.start({ mcpServers: { files: own, [LONG]: own } });
    browser = await startBrowser();
});
after(async () => {
    await browser?.close();
    await gateway?.stop();
    await world?.stop();
});

/** Visits every kind of page of a login, in order; `look` is called on each. */
async function goThrough(context, look) {
    const page = await context.newPage();
    const see = name => look(page, name);
    await page.goto(`${gateway.origin}/oauth/connections`);
    await see('connections-none');
    await page.getByRole('link', { name: `Connect ${LONG}` }).click();
    await see('asks');
    const link = page.url();
    await page.getByRole('button', { name: 'Continue' }).click();
    await page.getByRole('button', { name: 'Allow' }).click();
    await page.getByRole('heading', { name: 'Connected' }).waitFor();
    await see('connected');
    await page.goto(`${gateway.origin}/oauth/connections`);
    await see('connections');
    await page.goto(link);
    await see('used');
    await page.goto(`${gateway.origin}/oauth/connect?t=gone`);
    await see('expired');
}

describe('pages on a phone', () => {
    for (const [name, options] of Object.entries({ light: {}, dark: { colorScheme: 'dark' } }))
        test(`H5 H14 the content of each page fits into 320 pixels (${name})`, async () => {
            const width = 320;
            const context = await person(browser, longUser(), { viewport: { width, height: 640 }, ...options });
            await goThrough(context, async (page, which) => {
                const picture = await page.screenshot({ fullPage: true, ...(shots && { path: join(shots, `phone-${name}-${which}.png`) }) });
                assert.equal(picture.readUInt32BE(16), width, `${which} is not wider than the screen`);
                for (const control of await page.locator('button, a.deed').all()) {
                    const { x, width: wide, height } = await control.boundingBox();
                    assert.ok(x >= 0 && x + wide <= width, `${which}: a button is on the screen`);
                    assert.ok(height >= 40, `${which}: a button is large enough for a finger, not ${height}`);
                }
            });
            await context.close();
        });
});

describe('accessibility of the pages', () => {
    test('H5 H14 each page has a language, a title, one heading and a main part, and every control has a unique name', async () => {
        const context = await person(browser, newUser());
        await goThrough(context, async (page, which) => {
            assert.equal(await page.locator('html').getAttribute('lang'), 'en', which);
            assert.match(await page.title(), /.+ · Postern$/, which);
            assert.equal(await page.getByRole('main').count(), 1, which);
            assert.equal(await page.getByRole('heading', { level: 1 }).count(), 1, which);
            const names = [];
            for (const control of await page.locator('button, a').all()) names.push((await control.getAttribute('aria-label')) ?? (await control.innerText()));
            assert.ok(names.every(Boolean), which);
            assert.equal(new Set(names).size, names.length, `${which}: ${names}`);
        });
        await context.close();
    });
    test('H5 the Continue button is the first control and shows its focus', async () => {
        const user = newUser();
        const context = await person(browser, user);
        const page = await context.newPage();
        await page.goto(await (await caller(user, gateway.url)).link());
        const plain = await page.screenshot();
        await page.keyboard.press('Tab');
        assert.notDeepEqual(await page.screenshot(), plain, 'the focus is seen');
        assert.equal(await page.locator(':focus').innerText(), 'Continue');
        await page.keyboard.press('Enter');
        await page.getByRole('button', { name: 'Allow' }).waitFor();
        await context.close();
    });
    test('H5 text has a contrast of at least 4.5 and button edges of at least 3 in both color schemes', async () => {
        const { body } = await send(`${gateway.origin}/oauth/connections`, { method: 'GET', headers: { 'x-forwarded-user': newUser() } });
        const palettes = [...body.matchAll(/:root\{([^}]*)\}/g)].map(([, text]) => Object.fromEntries([...text.matchAll(/--([\w-]+):(#\w+)/g)].map(([, name, value]) => [name, value])));
        assert.equal(palettes.length, 2);
        const channel = value => (value <= 0.03928 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4);
        const luminance = color => {
            const digits = color.length === 4 ? [...color.slice(1)].map(c => c + c) : color.slice(1).match(/../g);
            const [r, g, b] = digits.map(pair => channel(parseInt(pair, 16) / 255));
            return 0.2126 * r + 0.7152 * g + 0.0722 * b;
        };
        const contrast = (a, b) => {
            const [low, high] = [luminance(a), luminance(b)].sort((x, y) => x - y);
            return (high + 0.05) / (low + 0.05);
        };
        for (const palette of palettes)
            for (const [front, back, least] of [['ink', 'card', 4.5], ['soft', 'card', 4.5], ['good', 'card', 4.5], ['warn', 'warn-back', 4.5], ['on-deed', 'deed', 4.5], ['edge', 'card', 3], ['deed', 'card', 3]])
                assert.ok(contrast(palette[front], palette[back]) >= least, `${front} on ${back}: ${contrast(palette[front], palette[back])}`);
    });
});
