// A first rollout by a person who has only the console. run.sh calls it; it prints the steps
// that are timed.
//
//   node rollout.js http://127.0.0.1:7080 /usr/bin/chromium
import { chromium } from "../e2e/console/browser/node_modules/playwright-core/index.mjs";

const [url, executablePath] = process.argv.slice(2);
const browser = await chromium.launch({
  executablePath,
  args: ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"],
});

try {
  const page = await (await browser.newContext({ baseURL: url })).newPage();
  page.setDefaultTimeout(300_000);
  await page.goto("/console/rollouts/new");
  await page.locator('[name="tuning.floor"]').fill("0.3");
  for (const stage of [1, 2]) await page.locator(`[name="bake.${stage}"]`).fill("30s");
  await page.getByLabel("Your name").fill("me");
  await page.getByLabel("Reason").fill("my first rollout");
  await page.getByRole("button", { name: "Start the rollout" }).click();
  await page.getByText("The rollout has started.").waitFor();
  console.log("rollout started in the console");
  await page.getByText("Waits for a person to approve the stage.").waitFor();
  console.log("its first region has it, the rest waits for approval");
  await page.locator("summary", { hasText: "Approve stage 2" }).click();
  const form = page.locator("details[open] form").first();
  await form.getByLabel("Your name").fill("me");
  await form.getByLabel("Reason").fill("the first region looks well");
  await form.getByRole("button", { name: "Approve stage 2" }).click();
  await page.getByText("Approved: the stage begins").waitFor();
  console.log("approved in the console");
  await page.locator(".phase", { hasText: "done" }).waitFor();
  console.log("rollout done");
} finally {
  await browser.close();
}
