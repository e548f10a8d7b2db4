// Drives Chromium through the console. The Go tests in the folder above call it:
//
//   node drive.js SCENARIO '{"chromium": …, "url": …, "tokens": {…}, "nodes": […], "shots": …}'
//
// Exits 0 if everything is correct. Otherwise it prints the faults.
import assert from "node:assert/strict";
import { mkdirSync, readFileSync } from "node:fs";
import { chromium } from "playwright-core";

const [scenario, json] = process.argv.slice(2);
const world = JSON.parse(json);
const look = readFileSync(new URL("look.js", import.meta.url), "utf8");
const patience = 60_000; // for events that must happen; they happen within seconds

// launch starts Chromium, which sometimes crashes before it has a page. Such a crash is no fault of the console.
async function launch(options, attempts = 3) {
  for (;;) {
    try {
      return await chromium.launch(options);
    } catch (e) {
      if (--attempts === 0) throw e;
    }
  }
}

const browser = await launch({
  executablePath: world.chromium,
  args: ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"],
});

// A fault is anything that a browser's console would show in red.
const faults = [];

// someone is a browser of their own, signed in with the token of a role.
async function someone(role, options = {}) {
  const context = await browser.newContext({ baseURL: world.url, viewport: { width: 1280, height: 800 }, timezoneId: "UTC", ...options });
  context.setDefaultTimeout(patience);
  const page = await context.newPage();
  const here = () => page.url().replace(world.url, "");
  // 504 shows a busy machine, and is no fault of a page.
  page.expected = ["504"];
  page.on("console", (m) => m.type() === "error" && !page.expected.some((e) => m.text().includes(e)) && faults.push(`${here()}: ${m.text()}`));
  page.on("pageerror", (e) => faults.push(`${here()}: ${e}`));
  page.on("response", (r) => r.status() >= 500 && r.status() !== 504 && faults.push(`${r.url()}: ${r.status()}`));
  if (role) {
    await page.goto("/console/");
    await page.getByLabel("API token").fill(world.tokens[role]);
    await page.getByRole("button", { name: "Sign in" }).click();
    await page.getByRole("heading", { name: "Fleet", level: 1 }).waitFor();
  }
  return page;
}

const stops = []; // traffic that still runs when a scenario fails would keep this process alive

// traffic sends requests to nodes until the returned function stops it.
function traffic(limit, identifiers = 20) {
  let going = true;
  const ask = async (url) => {
    for (let i = 0; going; i++) {
      await fetch(`${url}/weir.v1.RateLimitService/Limit`, {
        method: "POST", headers: { "Content-Type": "application/json" },
        body: JSON.stringify({ workspace: "acme", namespace: "api", identifier: `user_${i % identifiers}`, limit, duration_ms: 60000 }),
      }).catch(() => {});
      await new Promise((go) => setTimeout(go, 10));
    }
  };
  const all = world.nodes.map(ask);
  const stop = async () => { going = false; await Promise.all(all); };
  stops.push(stop);
  return stop;
}

// rpc calls the operators' API, as weirctl does.
async function rpc(role, procedure, body) {
  const answer = await fetch(`${world.url}/weir.control.v1.${procedure}`, { method: "POST", headers: { "Content-Type": "application/json", Authorization: `Bearer ${world.tokens[role]}` }, body: JSON.stringify(body) });
  const text = await answer.text();
  assert.ok(answer.ok, `${procedure}: ${answer.status} ${text}`);
  return JSON.parse(text);
}


// tuned is the fleet's tuning in force with changes, as a whole document.
async function tuned(changes) {
  const { tunings } = await rpc("viewer", "RolloutService/GetTuning", {});
  return JSON.stringify({ ...JSON.parse(tunings[0].document), ...changes });
}
const text = (page, selector) => page.locator(selector).first().innerText();
const number = async (page, selector) => Number((await text(page, selector)).replaceAll("\u202f", ""));

// until polls a condition: no test here depends on how long it takes.
async function until(what, condition) {
  const end = Date.now() + patience;
  for (;;) {
    const found = await condition();
    if (found) return found;
    assert.ok(Date.now() < end, `not within ${patience} ms: ${what}`);
    await new Promise((go) => setTimeout(go, 200));
  }
}

const act = async (page, name, reason) => {
  await page.locator("summary", { hasText: name }).first().click();
  const form = page.locator("details[open] form").first();
  await form.getByLabel("Reason").fill(reason);
  await form.getByRole("button", { name }).click();
};

const scenarios = {
  // Every page, in light, dark and on a phone: no error, and nothing that look.js finds.
  async tour() {
    const looks = { light: { colorScheme: "light" }, dark: { colorScheme: "dark" }, phone: { colorScheme: "light", viewport: { width: 390, height: 844 }, isMobile: true, hasTouch: true } };
    for (const [on, options] of Object.entries(looks)) {
      const shots = `${world.shots}/${on}`;
      mkdirSync(shots, { recursive: true });
      const stranger = await someone(null, options);
      await stranger.goto("/console/sign-in");
      assert.deepEqual(await stranger.evaluate(look), [], `${on}, sign-in`);
      await stranger.screenshot({ path: `${shots}/sign-in.png`, fullPage: true });
      await stranger.context().close();
      const page = await someone("admin", options); // who has one more page than an operator
      const stop = traffic(200, 5); // of several regions, so that there is something to converge
      for (const [name, path] of Object.entries(world.pages)) {
        page.expected = name === "not-found" ? ["404"] : ["504"];
        await until(`${name} is loaded`, async () => (await page.goto(path)).status() !== 504);
        await page.locator("main h1").waitFor();
        if (name === "fleet") {
          await page.locator("#chart canvas").waitFor();
          await page.locator(".scale").first().waitFor();
        }
        assert.deepEqual(await page.evaluate(look), [], `${on}, ${name}`);
        await page.screenshot({ path: `${shots}/${name}.png`, fullPage: true });
        for (const summary of await page.locator("main summary").all()) await summary.click();
        // A click scrolls its table, whose first column then stands on others, as it should.
        await page.evaluate(() => document.querySelectorAll(".scroll").forEach((e) => { e.scrollLeft = 0; }));
        if (await page.locator("main summary").count()) {
          assert.deepEqual(await page.evaluate(look), [], `${on}, ${name} with all forms open`);
          await page.screenshot({ path: `${shots}/${name}-open.png`, fullPage: true });
        }
      }
      await stop();
      await page.context().close();
    }
  },

  // The fleet page moves by itself when traffic comes.
  async live() {
    const page = await someone("viewer");
    const stop = traffic(1_000_000);
    const first = await until("decisions are shown", async () => (await number(page, '[data-rate="allowed"]')) || 0);
    await until("the figure changes", async () => (await number(page, '[data-rate="allowed"]')) !== first);
    await until("a region has its own", async () => (await number(page, `[data-rate="${world.regions[0]}.allowed"]`)) > 0);
    await page.locator("#chart canvas").waitFor();
    assert.equal(await text(page, "#link"), "live");
    await stop();
    await until("the figure falls to 0", async () => (await number(page, '[data-rate="allowed"]')) === 0);
  },

  // An operator approves a rollout in the browser; a shift of denials breaks a guardrail,
  // and the page that is open shows it without being loaded again.
  async breach() {
    const calm = traffic(1_000_000);
    const stage = { all: true, approval: true, bakeMs: 120_000 };
    await rpc("operator", "RolloutService/StartRollout", { id: "breach", reason: "try a lower floor", tuning: await tuned({ floor: 0.1 }), plan: { baselineMs: 8000, stages: [stage] } });
    const page = await someone("operator");
    await page.goto("/console/rollouts");
    await page.getByRole("link", { name: "breach" }).click();
    await page.getByText("Waits for a person to approve the stage.").waitFor();
    await act(page, "Approve stage 1", "the canary looks well");
    await page.getByText("Approved: the stage begins").waitFor();
    await page.goto("/console/rollouts/at/breach");
    await page.evaluate(() => { globalThis.same = true; });
    await page.getByText("Bakes: health is compared with the baseline.").waitFor();
    await until("figures of the stage are shown", async () => (await text(page, ".rails")).includes("now "));
    await page.screenshot({ path: `${world.shots}/rollout-baking.png`, fullPage: true });
    await calm();
    const denied = traffic(0);
    // It takes several looks, and a bake of 2 minutes has a look every 6 s: half a minute if nothing else runs.
    await page.locator(".phase", { hasText: "rolled back" }).waitFor({ timeout: 3 * patience });
    assert.match(await text(page, '[data-live="now"]'), /share of denied decisions/);
    assert.ok(await page.evaluate(() => globalThis.same), "the page was loaded again");
    await denied();
    await page.screenshot({ path: `${world.shots}/rollout-breach.png`, fullPage: true });
  },

  // A viewer sees a rollout and no button to approve it. A forced approval is rejected.
  async viewer() {
    await rpc("operator", "RolloutService/StartRollout", { id: "guarded", reason: "fewer rows", tuning: await tuned({}), plan: { stages: [{ all: true, approval: true }] } });
    const page = await someone("viewer");
    await page.goto("/console/rollouts/at/guarded");
    await page.getByText("you have the role viewer").waitFor();
    assert.equal(await page.getByRole("button", { name: /approve/i }).count(), 0);
    assert.equal(await page.locator("main form").count(), 0);
    page.expected = ["403"];
    const [status, words] = await page.evaluate(async () => {
      const forgery = document.querySelector('[name="forgery"]').value;
      const answer = await fetch(location.href, { method: "POST", body: new URLSearchParams({ do: "approve", reason: "x", forgery }) });
      return [answer.status, await answer.text()];
    });
    assert.equal(status, 403);
    assert.match(words, /this requires the role operator/);
    const { rollout } = await rpc("viewer", "RolloutService/RolloutStatus", { id: "guarded" });
    assert.equal(rollout.phase, "awaiting_approval");
    await rpc("operator", "RolloutService/OperateRollout", { id: "guarded", reason: "done", action: "ROLLOUT_ACTION_ABORT" });
  },

  // A plan is started by its form, field by field, and abandoned.
  async plan() {
    const page = await someone("operator");
    await page.goto("/console/rollouts/new");
    await page.locator('[name="tuning.floor"]').fill("lots");
    await page.getByLabel("Reason").fill("fewer rows");
    await page.getByLabel("Name").fill("by-form");
    page.expected = ["400"];
    await page.getByRole("button", { name: "Start the rollout" }).click();
    await page.getByRole("alert").filter({ hasText: 'Floor is "lots", want a number' }).waitFor();
    page.expected = ["504"];
    assert.equal(await page.getByLabel("Name").inputValue(), "by-form");
    await page.locator('[name="tuning.floor"]').fill("0.3");
    await page.getByRole("button", { name: "Preview what it would do" }).click();
    await page.getByRole("heading", { name: "What it would do" }).waitFor();
    assert.equal(await page.locator('[name="tuning.floor"]').inputValue(), "0.3");
    await page.screenshot({ path: `${world.shots}/preview.png`, fullPage: true });
    await page.getByText(/What the fleet runs, with a feed interval of [0-9.]+ m?s, moves/).waitFor();
    // Another stage and a laxer guardrail, by the keyboard; no input is lost.
    await page.getByRole("button", { name: "Add a stage" }).focus();
    await page.keyboard.press("Enter");
    await page.getByRole("group", { name: "Stage 5" }).waitFor();
    assert.equal(await page.locator('[name="tuning.floor"]').inputValue(), "0.3");
    const latency = page.getByRole("group", { name: /Decision latency/ });
    assert.equal(await latency.getByLabel("Never below").inputValue(), "1000");
    await latency.getByLabel("Never below").fill("250000");
    await page.getByLabel("Reason").fill("fewer rows");
    await page.getByRole("button", { name: "Start the rollout" }).click();
    await page.getByText("The rollout has started.").waitFor();
    await act(page, "Abort", "only a try");
    await page.locator(".phase", { hasText: /aborted|rolled back/ }).waitFor();
    const { rollout } = await rpc("viewer", "RolloutService/RolloutStatus", { id: "by-form" });
    assert.match(rollout.tuning, /"floor":0.3/);
    assert.equal(rollout.guardrails.latencyUs.least, 250000);
    assert.equal(rollout.guardrails.convergenceMs.least, 30000);
  },

  // A document of limits, typed or uploaded, is compared with the stored settings before it is rolled out. No input is
  // lost, and nothing is stored.
  async difference() {
    const page = await someone("operator");
    await page.goto("/console/limits/namespace?workspace=acme&namespace=staged");
    await page.getByRole("link", { name: "Roll out a change in stages" }).click();
    const text = page.getByLabel("Document, in YAML or JSON");
    assert.match(await text.inputValue(), /namespace: "staged"/);
    const document = (limit) => `kind: weir-settings\nversion: 1\noverrides:\n  - {workspace: acme, namespace: staged, pattern: "<b>*", limit: ${limit}}\n`;
    await text.fill(document(50));
    await page.getByLabel("Reason").fill("less for all");
    await page.getByLabel("Protected callers").fill("acme/staged/partner_*");
    await page.getByRole("group", { name: "Stage 1" }).getByLabel("shadow").uncheck();
    await page.getByLabel("Reason").press("Enter");
    await page.getByText("override acme/staged/<b>*").waitFor();
    await page.getByText("limit 50, window of the request").waitFor();
    assert.equal(await page.getByLabel("Protected callers").inputValue(), "acme/staged/partner_*");
    assert.equal(await page.getByRole("group", { name: "Stage 1" }).getByLabel("shadow").isChecked(), false);
    await page.getByLabel("Or a file").setInputFiles({ name: "limits.yaml", mimeType: "application/yaml", buffer: Buffer.from(document(70)) });
    await page.getByRole("button", { name: "Show the difference again" }).click();
    await page.getByText("limit 70, window of the request").waitFor();
    assert.match(await text.inputValue(), /limit: 70/);
    await page.screenshot({ path: `${world.shots}/difference.png`, fullPage: true });
    page.expected = ["400"];
    await text.fill("kind: weir-settings\nversion: 2\n");
    await page.getByRole("button", { name: "Start the rollout" }).last().click();
    await page.getByRole("alert").filter({ hasText: "version is 2, want 1" }).waitFor();
    const { overrides } = await rpc("viewer", "SettingsService/ListOverrides", { workspace: "acme", namespace: "staged" });
    assert.equal((overrides ?? []).length, 0, "stored");
  },

  // An operator starts a rollout of limits by its form. Its first stage only counts, and is rolled back because callers
  // would be newly denied. A viewer reads the evidence on a phone. No setting changes.
  async stricter() {
    const calm = traffic(1_000_000);
    const page = await someone("operator", { viewport: { width: 1440, height: 900 } });
    await page.goto("/console/rollouts/limits");
    await page.getByLabel("Document, in YAML or JSON").fill('kind: weir-settings\nversion: 1\noverrides:\n  - {workspace: acme, namespace: api, pattern: "user_1*", limit: 5}\n');
    await page.getByLabel("Health is measured for").fill("1s");
    await page.getByLabel("Name", { exact: true }).fill("stricter");
    await page.getByLabel("Reason").fill("less for a few");
    await page.getByRole("button", { name: "Show the difference" }).last().click();
    await page.getByText("limit 5, window of the request").waitFor();
    await page.getByRole("button", { name: "Start the rollout" }).last().click();
    await page.getByText("The rollout has started.").waitFor();
    await page.locator(".phase", { hasText: "rolled back" }).waitFor({ timeout: 3 * patience });
    assert.match(await text(page, '[data-live="now"]'), /newly denied/);
    await calm();
    await page.reload();
    assert.match(await text(page, '[data-live="evidence"]'), /user_1\d/);
    const phone = await someone("viewer", { viewport: { width: 390, height: 844 }, isMobile: true, hasTouch: true });
    await phone.goto("/console/rollouts/at/stricter");
    for (const [on, reader] of Object.entries({ wide: page, phone })) {
      assert.deepEqual(await reader.evaluate(look), [], on);
      await reader.screenshot({ path: `${world.shots}/stricter-${on}.png`, fullPage: true });
    }
    const { overrides } = await rpc("viewer", "SettingsService/ListOverrides", { workspace: "acme", namespace: "api" });
    assert.ok(!(overrides ?? []).some((o) => o.pattern === "user_1*"), "stored");
  },

  // An override is reviewed and set, and is changed without losing other fields. A change is rejected
  // if another person has changed it meanwhile. It is deleted; the keyboard is enough to set it.
  async limits() {
    const page = await someone("operator");
    await page.goto("/console/limits?workspace=acme&namespace=api");
    await page.locator("summary", { hasText: "Set an override" }).focus();
    await page.keyboard.press("Enter");
    await page.keyboard.press("Tab");
    await page.keyboard.type("blocked_*");
    await page.keyboard.press("Tab");
    await page.keyboard.type("0");
    await page.keyboard.press("Tab");
    await page.keyboard.type("1m");
    await page.keyboard.press("Tab");
    await page.keyboard.type("5");
    await page.keyboard.press("Tab");
    await page.keyboard.press("Space");
    await page.keyboard.press("Tab");
    await page.keyboard.type("abuse");
    await page.keyboard.press("Enter");
    await page.getByText(/^Estimate:/).waitFor();
    await page.screenshot({ path: `${world.shots}/override-review.png`, fullPage: true });
    assert.equal(await page.getByRole("row", { name: /blocked_\*/ }).count(), 0, "set before it was confirmed");
    await page.keyboard.press("Tab"); // from the estimate, which has the focus
    await page.keyboard.press("Enter");
    await page.getByText("The override is set.").waitFor();
    await page.getByRole("row", { name: /blocked_\*/ }).waitFor();
    await page.screenshot({ path: `${world.shots}/override-set.png`, fullPage: true });
    const key = { workspace: "acme", namespace: "api", pattern: "blocked_*" };
    const override = async () => (await rpc("viewer", "SettingsService/GetOverride", key)).override;
    assert.equal(JSON.stringify([(await override()).limit ?? "0", (await override()).durationMs, (await override()).candidate, (await override()).shadow]), '["0","60000","5",true]');
    const change = () => page.getByRole("link", { name: "Change blocked_*" }).click();
    await change();
    assert.equal(await page.getByLabel("Duration").inputValue(), "1m");
    await page.getByLabel("Limit", { exact: true }).fill("7");
    const form = page.locator("#override");
    await form.getByLabel("Reason").fill("a little, then");
    await form.getByRole("button", { name: "Review" }).click();
    await form.getByRole("button", { name: "Set it" }).click();
    await page.getByText("The override is set.").waitFor();
    assert.equal(JSON.stringify([(await override()).limit, (await override()).durationMs, (await override()).candidate, (await override()).shadow]), '["7","60000","5",true]');
    await change();
    await rpc("operator", "SettingsService/ChangeOverride", { ...key, candidate: 6, reason: "another person" });
    await page.getByLabel("Limit", { exact: true }).fill("8");
    await form.getByLabel("Reason").fill("more");
    await form.getByRole("button", { name: "Review" }).click();
    page.expected = ["409"];
    await form.getByRole("button", { name: "Set it" }).click();
    await page.getByRole("alert").filter({ hasText: "It is now a limit of 7 in 1m, with the candidate 6, in shadow mode." }).waitFor();
    page.expected = ["504"];
    assert.equal(await page.getByLabel("Limit", { exact: true }).inputValue(), "8");
    assert.equal((await override()).candidate, "6", "overwritten");
    await page.getByRole("link", { name: "Set another instead" }).click();
    await page.getByRole("link", { name: "Delete blocked_*" }).click();
    await page.getByText(/^Estimate:/).waitFor();
    await page.screenshot({ path: `${world.shots}/override-delete.png`, fullPage: true });
    await page.getByLabel("Reason").last().fill("it was a try");
    await page.getByRole("button", { name: "Delete it" }).click();
    await page.getByText("The override is deleted.").waitFor();
  },

  // The audit is searched by the keyboard alone. The address has the search, so that it can
  // be sent to others, and an error of the API appears at its field.
  async audit() {
    const page = await someone("viewer");
    await page.goto("/console/audit");
    await page.getByRole("searchbox", { name: "Action" }).focus();
    await page.keyboard.type("override.delete");
    await page.keyboard.press("Tab");
    await page.keyboard.type("blocked_");
    await page.keyboard.press("Enter");
    await page.waitForURL(/action=override\.delete&subject=blocked_/);
    const changes = page.locator(".audit li");
    assert.equal(await changes.count(), 1);
    await changes.getByText("it was a try").waitFor();
    await changes.locator("summary").click();
    await changes.getByText('"candidate":6').waitFor(); // before
    await page.reload();
    assert.equal(await page.getByRole("searchbox", { name: "Object" }).inputValue(), "blocked_");
    await page.getByLabel("Until (UTC)").fill("2001-01-01T00:00");
    await page.keyboard.press("Enter");
    await page.getByText("No change matches").waitFor();
    await page.getByRole("link", { name: "All changes" }).click();
    await page.getByRole("searchbox", { name: "Namespace" }).fill("api");
    page.expected = ["400"];
    await page.keyboard.press("Enter");
    await page.getByRole("alert").filter({ hasText: "workspace is empty" }).waitFor();
    page.expected = ["504"];
    assert.equal(await page.getByRole("searchbox", { name: "Workspace" }).getAttribute("aria-invalid"), "true");
    await page.screenshot({ path: `${world.shots}/audit-form.png`, fullPage: true });
  },

  // A customer who used up a limit is found, and let back in, by a reset.
  async keys() {
    // A duration whose cell does not end meanwhile, whatever the time of day.
    const duration_ms = [24, 25, 27, 29].map((h) => h * 3_600_000).find((d) => d - (Date.now() % d) > 900_000);
    const ask = async () => (await fetch(`${world.nodes[0]}/weir.v1.RateLimitService/Limit`, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ workspace: "acme", namespace: "api", identifier: "locked_out", limit: 2, duration_ms }) })).json();
    for (let i = 0; i < 3; i++) await ask();
    assert.ok(!(await ask()).allowed, "the limit is not used up");
    const page = await someone("operator");
    await page.goto("/console/keys");
    await page.getByLabel("Workspace", { exact: true }).fill("acme");
    await page.getByLabel("Namespace", { exact: true }).fill("api");
    await page.getByLabel("Identifier", { exact: true }).fill("locked_out");
    await page.getByRole("button", { name: "Find" }).click();
    await page.getByText("No override matches").waitFor();
    // Both regions used it: each has its part, and the page that is open fills.
    const elsewhere = world.nodes.at(-1);
    await fetch(`${elsewhere}/weir.v1.RateLimitService/Limit`, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ workspace: "acme", namespace: "api", identifier: "locked_out", limit: 10_000_000, cost: 7_000_000, duration_ms }) });
    const parts = page.locator('[data-live="key"] table');
    for (const region of world.regions) await parts.getByRole("row", { name: new RegExp(`^${region} `) }).waitFor();
    await parts.getByRole("row", { name: /^us 0 7.000.000/ }).waitFor();
    await page.getByLabel("Limit", { exact: true }).fill("8");
    await page.getByRole("button", { name: "Find" }).click();
    // A verdict comes from nodes' reports of their hottest keys; at this cost the key is among them.
    await page.getByText("a cost of 1 is denied").waitFor();
    await page.screenshot({ path: `${world.shots}/key.png`, fullPage: true });
    await page.locator("summary", { hasText: "Reset it" }).click();
    await page.getByLabel("Longest window").fill("30h");
    await page.getByLabel("Reason").fill("a support case");
    await page.getByRole("button", { name: "Reset it" }).click();
    await page.getByText("It was reset").waitFor();
    await page.getByText("Nothing is counted in them.").waitFor();
    await until("the customer is let back in", async () => (await ask()).allowed);
  },

  // A retirement is begun, shows its evidence, and is given up: the table stays.
  async retirement() {
    const page = await someone("operator");
    await page.goto("/console/jobs");
    await act(page, "Retire the table", "nobody reads it");
    await page.getByText("Watches for writes").waitFor();
    await page.getByRole("heading", { name: "Evidence" }).waitFor();
    await page.screenshot({ path: `${world.shots}/retirement.png`, fullPage: true });
    await act(page, "Abort", "only a try");
    await page.getByText("Aborted: the table has its name back").waitFor();
  },

  // The cleanup is paused, shows who paused it, and goes on.
  async jobs() {
    const page = await someone("operator");
    await page.goto("/console/jobs");
    await act(page, "Pause the schedule", "a deploy");
    await page.getByText("The cleanup's schedule is paused.").waitFor();
    await page.locator('[data-live="cleanup"]', { hasText: "a deploy" }).waitFor();
    await act(page, "Resume the schedule", "it is over");
    await page.locator('[data-live="cleanup"]', { hasText: "The next run is due" }).waitFor();
  },

  // A region has lost its Redis: the open page shows that in text.
  async outage() {
    const page = await someone("viewer");
    const stop = traffic(200, 5);
    await page.locator("#attention").waitFor();
    await until("which region it is", async () => /eu-\d in eu decides without its Redis/.test(await text(page, ".findings")));
    await page.screenshot({ path: `${world.shots}/outage.png`, fullPage: true });
    await stop();
  },

  // A chosen theme stays; without a choice it is the system's. The skip link comes first.
  async theme() {
    const page = await someone("viewer", { colorScheme: "light" });
    const ground = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
    const light = await ground();
    await page.getByRole("button", { name: "Change between light and dark" }).click();
    const dark = await ground();
    assert.notEqual(dark, light);
    await page.goto("/console/jobs");
    assert.equal(await ground(), dark);
    await page.keyboard.press("Tab");
    assert.equal(await page.evaluate(() => document.activeElement.textContent), "Skip to content");
    await page.getByRole("button", { name: "Sign out" }).click();
    await page.getByLabel("API token").waitFor();
    await page.goto("/console/jobs");
    await page.getByLabel("API token").waitFor();
  },
};

try {
  await scenarios[scenario]();
  assert.deepEqual(faults, [], "errors in the browser's console");
} catch (e) {
  console.error(e, faults);
  process.exitCode = 1;
} finally {
  await Promise.all(stops.map((stop) => stop()));
  await browser.close();
}
