// Visits the console with a real browser. The first argument says which visit; KNOWN, as JSON, has
// what it needs to know.

import assert from 'node:assert/strict';
import { NARROW, WIDE, accessible, api, fits, picture, visit } from './browser.mjs';

const known = JSON.parse(process.env.KNOWN);
const hook = (name) => `[data-test="${name}"]`;

const LOOKS = [
  ['wide', { viewport: WIDE, colorScheme: 'light' }],
  ['narrow-dark', { viewport: NARROW, colorScheme: 'dark' }],
];

/** Marks of direction in an id turn nothing around that stands behind it. */
async function reads(page) {
  const places = await page.locator('h1 .hidden-marks').evaluateAll((all) =>
    all.map((it) => {
      const range = document.createRange();
      const left = (at) => {
        range.setStart(it.firstChild, at);
        range.setEnd(it.firstChild, at + 1);
        return range.getBoundingClientRect().left;
      };
      return [left(0), left(it.firstChild.length - 1)];
    }),
  );
  for (const [first, last] of places) assert.ok(first < last, 'from left to right');
  return places.length;
}

/** Each number of the span's page is the API's. */
async function numbers(page, base, id) {
  const path = `/v1/spans/${encodeURIComponent(id)}`;
  const span = await api(base, path);
  const { items } = await api(base, `${path}/usages?limit=1000`);
  assert.ok(items.length > 0, 'the span has usages');
  const drawn = await page.locator(`${hook('timeline')} .usage`).evaluateAll((all) =>
    all.map((it) => [it.dataset.usage, it.classList.contains('backward'), it.querySelector('title').textContent]),
  );
  assert.ok(drawn.length > 0 && drawn.length <= 200, `${drawn.length} bars`);
  for (const [usage, isBackward, title] of drawn.filter(([usage]) => usage)) {
    const { duration } = items.find((it) => it.id === usage);
    assert.equal(isBackward, duration < 0, usage);
    assert.ok(title.includes(`(${duration} ms)`), title);
  }
  const rows = await page.locator(hook('ledger-row')).evaluateAll((all) =>
    all.map((row) => [row.id, Number(row.querySelector('data.length').value)]),
  );
  assert.deepEqual(rows, items.reverse().slice(0, 100).map((it) => [`u-${it.id}`, it.duration]));
  const proof = await page.locator(`${hook('proof')} data:not(${hook('unsampled')} data)`).evaluateAll((all) => all.map((it) => Number(it.value)));
  const { used, billed, skipped, ledger, difference } = span.proof;
  assert.deepEqual(proof, [used, billed, skipped, ledger, difference]);
  // A tick says that all which has run is billed.
  const [verdict] = await page.locator(`${hook('proof')} .verdict`).allTextContents();
  assert.equal(verdict.includes('✓'), span.proof.unsampled === 0, verdict);
  assert.equal(await page.locator(hook('unsampled')).count(), Number(span.proof.unsampled !== 0));
}

/** Each sum is the API's. */
async function sums(page, base, path) {
  const { items } = await api(base, `/v1/usages${path.slice(path.indexOf('?'))}`);
  assert.ok(items.length > 1, 'there are sums');
  const rows = await page.locator(hook('usage-row')).evaluateAll((all) =>
    all.map((row) => [...row.querySelectorAll('.number data')].map((it) => Number(it.value))),
  );
  assert.deepEqual(rows, items.map((it) => [it.usages, it.duration]));
}

/** The spans that links lead to. */
const named = (links) => links.map((it) => decodeURIComponent(it.pathname.split('/').pop()));

/** Waits for what the workers do. */
async function until(what, isSo, limit = 30_000) {
  for (const begin = Date.now(); !(await isSo()); ) {
    assert.ok(Date.now() - begin < limit, what);
    await new Promise((done) => setTimeout(done, 100));
  }
}

/** Moves to an element with the Tab key. */
async function tabTo(page, selector) {
  const isThere = () => page.evaluate((selector) => document.activeElement.matches(selector), selector);
  for (let presses = 0; !(await isThere()); presses += 1) {
    assert.ok(presses < 300, `Tab leads to ${selector}`);
    await page.keyboard.press('Tab');
  }
}

async function press(page, selector) {
  await tabTo(page, selector);
  await page.keyboard.press('Enter');
}

const visits = {
  /** Every page in every look, against the API. */
  async pages({ base, open }) {
    for (const [look, options] of LOOKS) {
      const { context, page, faults } = await open(options);
      // Chromium itself tells of a page whose status is an error.
      const told = [];
      for (const [name, path] of Object.entries(known.pages)) {
        const answer = await page.goto(base + path);
        if (!answer.ok()) {
          told.push(`Failed to load resource: the server responded with a status of ${answer.status()} (${answer.statusText()})`);
        }
        assert.equal(await page.locator(hook('open-banner')).count(), 1);
        if (name === 'sums') await sums(page, base, path);
        await fits(page);
        await accessible(page);
        await picture(page, `${name}-${look}`);
      }
      for (const id of known.spans) {
        await page.goto(`${base}/console/spans/${encodeURIComponent(id)}`);
        await numbers(page, base, id);
        assert.equal(await reads(page), id === known.hostile ? 1 : 0);
        await fits(page);
        await accessible(page);
        await picture(page, `span-${known.spans.indexOf(id)}-${look}`);
      }
      assert.deepEqual(faults, told, look);
      await context.close();
    }
  },

  /** The same numbers without JavaScript. */
  async unscripted({ base, open }) {
    const { context, page, faults } = await open({ javaScriptEnabled: false });
    await page.goto(`${base}/console/spans`);
    await page.getByLabel('Organization').fill(known.organization);
    await page.getByRole('button', { name: 'Search' }).click();
    const { items } = await api(base, `/v1/spans?organization_id=${known.organization}`);
    const rows = page.locator(hook('span-row'));
    assert.equal(await rows.count(), items.length);
    const spans = await page.locator(`${hook('span-row')} .main a`).evaluateAll(named);
    assert.deepEqual(spans, items.map((it) => it.id));
    await rows.first().getByRole('link').click();
    await page.waitForURL(`**/console/spans/${items[0].id}`);
    assert.equal(await page.locator(hook('timeline')).count(), 1);
    assert.deepEqual(faults, []);
    await context.close();
  },

  /** With the keyboard alone: from the top of a page to a usage, its numbers, and its row. */
  async keyboard({ base, open }) {
    const { context, page, faults } = await open();
    const id = known.spans[0];
    await page.goto(`${base}/console/spans/${encodeURIComponent(id)}`);
    await page.keyboard.press('Tab');
    assert.equal(await page.evaluate(() => document.activeElement.className), 'skip');
    await page.keyboard.press('Enter');
    const isUsage = () => page.evaluate(() => document.activeElement.matches('a[data-usage]'));
    for (let presses = 0; !(await isUsage()); presses += 1) {
      assert.ok(presses < 30, 'a usage comes soon');
      await page.keyboard.press('Tab');
    }
    const seen = await page.evaluate(() => {
      const numbers = document.activeElement.querySelector('.numbers');
      return [getComputedStyle(numbers).visibility, numbers.textContent, document.activeElement.dataset.usage];
    });
    assert.equal(seen[0], 'visible');
    const hint = () => page.locator('.timeline .hint').evaluate((it) => getComputedStyle(it).visibility);
    assert.equal(await hint(), 'hidden', 'the hint gives way to the numbers');
    assert.match(seen[1], /-?\d+ ms/);
    await picture(page, 'span-focus-1280');
    await page.keyboard.press('Enter');
    assert.equal(decodeURIComponent(new URL(page.url()).hash), `#u-${seen[2]}`);
    assert.deepEqual(faults, []);
    await context.close();
  },

  /** "/" leads to the search; times are told in the reader's zone as well; pages refresh. */
  async habits({ base, open }) {
    const { context, page, faults } = await open({ timezoneId: 'Asia/Kolkata' });
    await page.goto(`${base}/console/spans`);
    await page.keyboard.press('/');
    await page.keyboard.type('a/b');
    assert.equal(await page.getByLabel('Organization').inputValue(), 'a/b');
    await page.goto(`${base}/console/spans/${encodeURIComponent(known.spans[0])}`);
    const title = await page.locator('time').first().getAttribute('title');
    assert.match(title, /local: .*GMT\+5:30/);
    await page.clock.install();
    await page.goto(`${base}/console`);
    await page.locator('h1').evaluate((it) => it.remove());
    await page.clock.fastForward(10_000);
    await page.locator('h1').waitFor();
    assert.deepEqual(faults, []);
    await context.close();
  },

  /** What is suspended in every look, and a usage that is given up, with the keyboard alone. */
  async skip({ base, open }) {
    const { items: causes } = await api(base, '/v1/suspended');
    assert.ok(causes.length > 1, 'there are causes');
    for (const [look, options] of LOOKS) {
      const { context, page, faults } = await open(options);
      await page.goto(`${base}/console/suspended`);
      const rows = await page.locator(hook('cause-row')).evaluateAll((all) =>
        all.map((row) => row.cells[0].textContent.trim()),
      );
      assert.deepEqual(rows, causes.map((it) => `${it.spans} span${it.spans === 1 ? '' : 's'}`));
      const { items } = await api(base, `/v1/spans?state=suspended&cause=${causes[0].cause}&limit=50`);
      const spans = await page.locator(`${hook('span-row')} .main a`).evaluateAll(named);
      assert.deepEqual(spans, items.map((it) => it.id));
      for (const [name, path] of [
        ['suspended', '/console/suspended'],
        ['overview-suspended', '/console'],
        ['resume', `/console/suspended/${causes[0].cause}/resume`],
        ['skip', `/console/spans/${known.span}/skip`],
        ['span-suspended', `/console/spans/${known.span}`],
      ]) {
        await page.goto(base + path);
        await fits(page);
        await accessible(page);
        await picture(page, `${name}-${look}`);
      }
      assert.deepEqual(faults, [], look);
      await context.close();
    }
    const { context, page, faults } = await open();
    await page.goto(`${base}/console`);
    assert.equal(await page.locator(`${hook('causes')} tbody tr`).count(), causes.length);
    await page.goto(`${base}/console/spans/${known.span}`);
    const { planned } = await api(base, `/v1/spans/${known.span}`);
    await press(page, hook('skip'));
    await page.waitForURL('**/skip');
    assert.match(await page.locator(hook('effect')).textContent(), /Skip 1 usage of .*The usage is not billed, unless it is sent again later\./s);
    await tabTo(page, 'textarea');
    await page.keyboard.type('Billed by hand, <b>4711</b>.');
    await press(page, hook('confirm'));
    await page.waitForURL(`**/console/spans/${known.span}`);
    const { excluded } = await api(base, `/v1/spans/${known.span}`);
    assert.deepEqual([excluded[0].start, excluded[0].end], [planned.start, planned.end]);
    const { items: [act] } = await api(base, `/v1/audit?span=${known.span}`);
    assert.deepEqual([act.act, act.reason, act.outcome], ['span.skip', 'Billed by hand, <b>4711</b>.', 'done']);
    await page.goto(`${base}/console/audit`);
    assert.ok((await page.locator(hook('audit-row')).first().textContent()).includes(act.reason));
    assert.deepEqual(faults, []);
    await context.close();
  },

  /** All spans of a cause are resumed, without JavaScript. */
  async resume({ base, open }) {
    const { items: causes } = await api(base, '/v1/suspended');
    const { cause, spans } = causes.find((it) => it.plan_id === known.plan);
    const { context, page, faults } = await open({ javaScriptEnabled: false });
    await page.goto(`${base}/console/suspended`);
    await page.locator(`${hook('resume-cause')}[href*="${cause}"]`).click();
    await page.waitForURL(`**/${cause}/resume`);
    assert.ok((await page.locator(hook('effect')).textContent()).includes(`Resume ${spans} spans.`));
    await page.locator('textarea').fill('Mapped now.');
    await page.locator(hook('confirm')).click();
    await page.waitForURL(`**/console/suspended?cause=${cause}`);
    const gone = async () => {
      const { items } = await api(base, `/v1/spans?state=suspended&cause=${cause}`);
      return items.length === 0;
    };
    await until('its spans are resumed', gone);
    await page.reload();
    assert.equal(await page.locator(hook('span-row')).count(), 0);
    assert.deepEqual(faults, []);
    await context.close();
  },

  /** What was skipped is sent again, without JavaScript. */
  async resend({ base, open }) {
    const { excluded: [skipped] } = await api(base, `/v1/spans/${known.span}`);
    const { context, page, faults } = await open({ javaScriptEnabled: false });
    await page.goto(`${base}/console/spans/${known.span}`);
    await press(page, hook('resend'));
    await page.waitForURL('**/resend?*');
    await tabTo(page, 'textarea');
    await page.keyboard.type('Mapped now.');
    await press(page, hook('confirm'));
    await page.waitForURL(`**/console/spans/${known.span}`);
    const isAccepted = async () => {
      const { items } = await api(base, `/v1/spans/${known.span}/usages`);
      return items.some((it) => it.interval.start === skipped.start);
    };
    await until('the usage is accepted', isAccepted);
    const { items: [act] } = await api(base, `/v1/audit?span=${known.span}`);
    assert.deepEqual([act.act, act.reason, act.outcome], ['span.resend', 'Mapped now.', 'done']);
    assert.deepEqual(faults, []);
    await context.close();
  },

  /** The description of the API, and a request that is sent from it, which nobody else learns of. */
  async docs({ base, open }) {
    const { paths } = await api(base, '/openapi.json');
    const { context, page, faults } = await open();
    await page.goto(`${base}/docs`);
    const operations = page.locator('.opblock');
    await operations.first().waitFor();
    const described = Object.values(paths).flatMap((item) => Object.keys(item)).length;
    assert.equal(await operations.count(), described);
    const spans = page.locator('.opblock-get', { has: page.locator('[data-path="/v1/spans"]') });
    await spans.locator('.opblock-summary').click();
    await spans.getByRole('button', { name: 'Try it out' }).click();
    // The others have examples.
    for (const name of ['resource_id', 'from', 'to']) {
      await spans.locator(`[data-param-name=${name}] input`).fill('');
    }
    await spans.locator('[data-param-name=organization_id] input').fill(known.organization);
    await spans.getByRole('button', { name: 'Execute' }).click();
    const { items } = await api(base, `/v1/spans?organization_id=${known.organization}`);
    await spans.locator('.live-responses-table', { hasText: items[0].id }).waitFor();
    await picture(page, 'docs');
    assert.deepEqual(faults, []);
    await context.close();
  },

  /** Signing in at a certified provider, with what the account may see, and out again. */
  async signing({ base, open }) {
    const { context, page, faults } = await open({ others: [known.issuer] });
    const signIn = async (name) => {
      await page.locator('input[name=login]').fill(name);
      await page.locator('input[name=password]').fill('any');
      await page.getByRole('button', { name: 'Sign-in' }).click();
      await page.getByRole('button', { name: 'Continue' }).click();
    };
    const wanted = `/console/spans?organization_id=${known.organization}`;
    await page.goto(base + wanted);
    assert.equal(new URL(page.url()).origin, known.issuer);
    await signIn('alice');
    await page.waitForURL(base + wanted);
    assert.equal(await page.locator(hook('span-row')).count(), known.all);
    assert.equal(await page.locator('.who .id').textContent(), 'alice');
    assert.equal(await page.locator(hook('open-banner')).count(), 0);
    const cookies = await context.cookies(`${base}/console`);
    const session = cookies.find((cookie) => cookie.name === 'sampler_console');
    assert.equal(session.httpOnly && session.sameSite === 'Lax' && !session.secure, true);
    assert.ok(!(await page.content()).includes('eyJ'), 'no token is in the page');
    await fits(page);
    await accessible(page);
    await picture(page, 'signed-in-1280');
    await page.locator(hook('sign-out')).click();
    await page.waitForURL(`${base}/console/signed-out`);
    assert.equal((await context.cookies(`${base}/console`)).some((it) => it.name === 'sampler_console'), false);
    assert.deepEqual(faults, []);
    await context.close();
  },
};

await visit(known.base, visits[process.argv[2]]);
