// A browser, and what holds for every page that is opened in it.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { chromium } from 'playwright-core';

const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

export const WIDE = { width: 1280, height: 800 };
export const NARROW = { width: 390, height: 800 };

/** Opens a browser for a visit of the console at `base`, and closes it after. */
export async function visit(base, steps) {
  const browser = await chromium.launch({
    executablePath: process.env.BROWSER,
    // Tests also run as root, where Chromium has no sandbox; it sees nothing but our own pages.
    args: ['--no-sandbox', '--disable-dev-shm-usage'],
  });
  try {
    await steps({ browser, base, open: (options) => open(browser, base, options) });
  } finally {
    await browser.close();
  }
}

/** A page that notes whatever must not happen: errors, and requests to anybody else. */
async function open(browser, base, { others = [], ...options } = {}) {
  const context = await browser.newContext({ viewport: WIDE, ...options });
  const page = await context.newPage();
  const faults = [];
  const known = [base, ...others].map((address) => new URL(address).origin);
  // What pages of others do is theirs.
  const isOurs = () => page.url().startsWith(base);
  page.on('console', (message) => {
    if (isOurs() && ['error', 'warning'].includes(message.type())) faults.push(message.text());
  });
  page.on('pageerror', (error) => isOurs() && faults.push(String(error)));
  page.on('request', (request) => {
    if (isOurs() && !known.includes(new URL(request.url()).origin)) faults.push(`asks ${request.url()}`);
  });
  return { context, page, faults };
}

/** Takes a picture. */
export async function picture(page, name) {
  await page.screenshot({ path: `${process.env.PICTURES}/${name}.png` });
}

/** Nothing on the page is wider than the page. */
export async function fits(page) {
  const [content, width] = await page.evaluate(() => [
    document.documentElement.scrollWidth,
    document.documentElement.clientWidth,
  ]);
  assert.ok(content <= width, `${page.url()}: ${content} px of content on ${width} px`);
}

/** What axe-core finds is not serious. The policy of the page forbids scripts of ours, not the
 * debugger's, so it is run as one. `rules` chooses among its rules. */
export async function accessible(page, rules = {}) {
  const session = await page.context().newCDPSession(page);
  const run = async (expression) => {
    const { result, exceptionDetails } = await session.send('Runtime.evaluate', {
      expression,
      awaitPromise: true,
      returnByValue: true,
    });
    assert.equal(exceptionDetails, undefined, JSON.stringify(exceptionDetails));
    return result.value;
  };
  await run(`${axe}; true`);
  // What passes is not worked out: nobody asks for it.
  const options = JSON.stringify({ resultTypes: ['violations'], ...rules });
  const found = await run(`axe.run(${options}).then(({ violations }) => JSON.stringify(violations))`);
  const serious = JSON.parse(found).filter((it) => ['serious', 'critical'].includes(it.impact));
  const told = serious.map((it) => `${it.id}: ${it.help}: ${it.nodes.map((node) => `${node.html} ${node.failureSummary}`).join(' | ')}`);
  assert.deepEqual(told, [], page.url());
}

/** Reads from the API. */
export async function api(base, path) {
  const answer = await fetch(new URL(path, base));
  assert.equal(answer.status, 200, path);
  return answer.json();
}
