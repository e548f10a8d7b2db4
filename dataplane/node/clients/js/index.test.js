// Run by TestTheJavaScriptClient, with a node at WEIR_URL that requires WEIR_TOKEN.
import assert from "node:assert/strict";
import { createServer } from "node:http";
import { after, test } from "node:test";

import { Client, WeirError } from "./index.js";

const url = process.env.WEIR_URL, token = process.env.WEIR_TOKEN;
const client = (options) => new Client({ url, token, timeoutMs: 10_000, ...options });
const run = Math.random().toString(36); // keys of its own
// A duration whose cell does not end while the tests run, whatever the time of day.
const lasting = [24, 25, 27, 29].map((h) => h * 3_600_000).find((d) => d - (Date.now() % d) > 900_000);
const ask = (identifier, more) => ({ workspace: "acme", namespace: "api", identifier: identifier && identifier + run, limit: 3, durationMs: lasting, ...more });

const servers = [];
after(() => servers.filter((s) => s.listening).forEach((s) => s.close().closeAllConnections()));

// a server that gives its answers in turn, and then the last answer again; calls are the received requests
async function fake(...answers) {
  const calls = [];
  const server = createServer((request, response) => {
    let body = "";
    request.on("data", (more) => { body += more; }).on("end", () => {
      calls.push({ path: request.url, body: JSON.parse(body), headers: request.headers });
      const answer = answers[Math.min(calls.length, answers.length) - 1];
      if (answer === "hang") return;
      if (answer === "cut") return void request.socket.destroy();
      response.writeHead(answer.status ?? 200, { "Content-Type": "application/json", ...answer.headers }).end(answer.text ?? JSON.stringify(answer.json));
    });
  });
  servers.push(server);
  await new Promise((go) => server.listen(0, "127.0.0.1", go));
  return { url: `http://127.0.0.1:${server.address().port}`, calls };
}

const busy = { status: 503, headers: { "Retry-After": "1" }, json: { code: "unavailable", message: "no slot" } };
const allowed = { json: { allowed: true, limit: "3", remaining: "2", source: "SOURCE_LOCAL" } };
const denied = { json: { allowed: false, limit: "3", remaining: "0", retry_after_ms: "60000", source: "SOURCE_LOCAL" } };
const isError = (code) => (error) => error instanceof WeirError && error.code === code;

test("a limit is used up, and said", async () => {
  const weir = client({ denyCacheMs: 0 });
  for (const left of [2, 1, 0]) {
    const d = await weir.limit(ask("ann"));
    assert.equal(d.allowed, true);
    assert.equal(d.remaining, left);
    assert.equal(d.limit, 3);
    assert.equal(d.durationMs, lasting);
    assert.ok(d.resetAt > new Date() && d.resetAt < new Date(Date.now() + 2 * 86_400_000));
  }
  const d = await weir.limit(ask("ann"));
  assert.deepEqual([d.allowed, d.remaining, d.cached, d.neverPasses], [false, 0, false, false]);
  assert.ok(d.retryAfterMs > 0);
  assert.equal((await weir.limit(ask("ann", { cost: 9 }))).neverPasses, true);
});

test("a batch is counted as a whole, a look not at all, and a refund comes back", async () => {
  const weir = client();
  assert.equal((await weir.limitMany([ask("bob", { cost: 2 }), ask("cid")])).allowed, true);
  const failed = await weir.limitMany([ask("bob", { cost: 2 }), ask("cid")]);
  assert.deepEqual([failed.allowed, ...failed.decisions.map((d) => d.allowed)], [false, false, true]);
  assert.equal((await weir.peek(ask("cid"))).remaining, 1);
  assert.equal((await weir.peek(ask("cid"))).remaining, 1);
  assert.equal(await weir.refund(ask("bob", { cost: 2 })), 2);
  assert.equal((await weir.limit(ask("bob", { cost: 3 }))).allowed, true);
  assert.equal((await weir.limit(ask("bob", { cost: 0 }))).allowed, true);
});

test("bad input names the field", async () => {
  const weir = client();
  await assert.rejects(weir.limit(ask("", {})), (e) => isError("invalid_argument")(e) && e.violations[0].field === "identifier");
  await assert.rejects(weir.limit(ask("x", { durationMs: 10 })), (e) => isError("invalid_argument")(e) && e.violations[0].field === "durationMs" && /: durationMs is 10 /.test(e.message));
  for (const cost of [-1, 0.5, NaN, 2 ** 53, "1"]) await assert.rejects(weir.limit(ask("x", { cost })), (e) => isError("invalid_argument")(e) && e.message.includes("cost is "));
  await assert.rejects(weir.limitMany([]), isError("invalid_argument"));
  await assert.rejects(client({ token: "other" }).limit(ask("x")), isError("unauthenticated"));
  for (const wrong of [{}, { url: [] }, { url: "weir" }, { url, timeoutMs: 0 }, { url, reserveTimeoutMs: 0 }, { url, retries: 11 }, { url, denyCacheMs: -1 }, { url, denyCacheSize: 0 }, { url, retries: 1.5 }, { url, denyCacheSize: 1.5 }, { url, timeout: 1 }]) {
    assert.throws(() => new Client(wrong), TypeError);
  }
});

test("what was not decided goes to the next node", async () => {
  const gone = await fake(), full = await fake(busy), other = await fake(allowed);
  await new Promise((go) => servers[servers.length - 3].close(go));
  const weir = client({ url: [gone.url, full.url, other.url] });
  assert.equal((await weir.limit(ask("x"))).allowed, true);
  assert.deepEqual([full.calls.length, other.calls.length], [1, 1]);
  await weir.limit(ask("y"));
  assert.equal(other.calls.length, 2, "the node that answered is asked again");
  assert.equal(other.calls[0].headers.authorization, `Bearer ${token}`);
  await assert.rejects(client({ url: full.url, retries: 1 }).limit(ask("x")), isError("unavailable"));
  assert.equal(full.calls.length, 3);
});

test("what may have been counted is not asked again", async () => {
  const cut = await fake("cut");
  await assert.rejects(client({ url: cut.url }).limit(ask("x")), isError("unknown"));
  assert.equal(cut.calls.length, 1);
  const looks = await fake("cut", { json: { response: { allowed: true } } });
  assert.equal((await client({ url: looks.url }).peek(ask("x"))).allowed, true);
  const hangs = await fake("hang");
  const began = Date.now();
  await assert.rejects(client({ url: hangs.url, timeoutMs: 1000 }).limit(ask("x")), isError("deadline_exceeded"));
  assert.ok(Date.now() - began < 5000);
  assert.ok(hangs.calls.length <= 1);
  await assert.rejects(client({ url: (await fake({ text: "<html>" })).url }).limit(ask("x")), isError("unknown"));
});

test("a denial is repeated for as long as it holds, of the same request", async () => {
  const node = await fake(denied, denied, allowed);
  const weir = client({ url: node.url, denyCacheMs: 60_000, denyCacheSize: 2 });
  await weir.limit(ask("x", { cost: 2 }));
  const again = await weir.limit(ask("x", { cost: 2 }));
  assert.deepEqual([again.allowed, again.cached, node.calls.length], [false, true, 1]);
  assert.ok(again.retryAfterMs > 0 && again.retryAfterMs <= 60_000);
  assert.equal((await weir.limit(ask("x", { cost: 1 }))).cached, false, "a smaller cost may pass");
  assert.equal((await weir.limit(ask("x", { limit: 9 }))).allowed, true, "so may a higher limit");
  const none = client({ url: (await fake(denied)).url, denyCacheMs: 0 });
  assert.deepEqual([(await none.limit(ask("x"))).cached, (await none.limit(ask("x"))).cached], [false, false]);
});

test("a node that is lost is left, by all calls at once", async () => {
  const hangs = await fake("hang"), other = await fake(allowed);
  const weir = client({ url: [hangs.url, other.url], timeoutMs: 500 });
  await assert.rejects(weir.limit(ask("x")), isError("deadline_exceeded"));
  assert.equal((await weir.limit(ask("x"))).allowed, true);
  const gone = await fake();
  await new Promise((go) => servers[servers.length - 1].close(go));
  const many = client({ url: [gone.url, other.url] });
  const all = await Promise.all(Array.from({ length: 100 }, () => many.limit(ask("x"))));
  assert.ok(all.every((d) => d.allowed));
});

test("an answer of a wrong shape is an error", async () => {
  for (const text of ["null", "[]", "7", "{", " ".repeat(5 << 20)]) {
    for (const status of [200, 400]) await assert.rejects(client({ url: (await fake({ status, text })).url }).limit(ask("x")), isError("unknown"), text.slice(0, 9));
  }
  for (const details of [5, [null], [{ debug: 7 }]]) {
    await assert.rejects(client({ url: (await fake({ status: 400, json: { code: "invalid_argument", details } })).url }).limit(ask("x")), isError("invalid_argument"));
  }
});

test("a field of another type is an error", async () => {
  const says = async (said, method, name, ...args) => {
    const node = await fake(typeof said === "string" ? { text: said } : { json: said });
    await assert.rejects(client({ url: node.url, retries: 0 })[method](...args), (e) => isError("unknown")(e) && e.message.includes(name), `${method} ${JSON.stringify(said)}`);
  };
  for (const name of ["limit", "remaining", "reset_at_ms", "retry_after_ms", "duration_ms"]) {
    for (const value of [{}, [], ["5"], "abc", "", "1.5", "0x1", true, 1.5, "9".repeat(40)]) await says({ ...allowed.json, [name]: value }, "limit", name, ask("x"));
  }
  for (const name of ["allowed", "shadowed", "candidate_denied", "never_passes"]) {
    for (const value of ["false", 0, 1, [], {}]) await says({ ...allowed.json, [name]: value }, "limit", name, ask("x"));
  }
  for (const name of ["source", "override"]) {
    for (const value of [5, [], {}, false]) await says({ ...allowed.json, [name]: value }, "limit", name, ask("x"));
  }
  for (const value of ["1", [], {}, true]) await says({ ...allowed.json, current: value }, "limit", "current", ask("x"));
  for (const text of ['{"current":1e400}', '{"limit":1e400}', '{"reset_at_ms":"9000000000000000000"}']) await says(text, "limit", "", ask("x"));
  for (const responses of [5, "x", [], [allowed.json, allowed.json], [5], [null], {}]) {
    await says({ allowed: true, responses }, "limitMany", "responses", [ask("x")]);
    await says({ allowed: true, responses }, "reserve", "responses", [ask("x")]);
  }
  await says({ response: 5 }, "peek", "response", ask("x"));
  await says({ refunded: "x" }, "refund", "refunded", ask("x"));
  for (const settlement of [{ spent: 5 }, { spent: ["a"] }, { spent: [null] }, { ends_at_ms: "x" }, { id: 5 }, { late: 1 }, { settled: "yes" }]) {
    await says({ settlement }, "settle", Object.keys(settlement)[0], "x", [1]);
  }
  await says({ settlement: [1] }, "settle", "settlement", "x", [1]);
});

test("a field that is null or left out has its default", async () => {
  for (const json of [{}, { allowed: null, limit: null, reset_at_ms: null, current: null, source: null, override: null }, JSON.parse('{"__proto__":{"allowed":true,"limit":"7"}}')]) {
    const d = await client({ url: (await fake({ text: JSON.stringify(json) })).url }).limit(ask("x"));
    assert.deepEqual([d.allowed, d.limit, d.current, d.source, d.override], [false, 0, 0, "unspecified", ""]);
  }
  assert.deepEqual((await client({ url: (await fake({ json: { settlement: null } })).url }).settle("x", [1])).spent, []);
  assert.equal((await client({ url: (await fake({ json: { response: null } })).url }).peek(ask("x"))).allowed, false);
});

test("an odd refusal is an error of its kind", async () => {
  for (const [code, message] of [[5, "x"], [{ a: 1 }, [1, 2]], [null, null]]) {
    for (const details of [5, [{ debug: { fieldViolations: 5 } }], [{ debug: { fieldViolations: [1, null] } }]]) {
      const node = await fake({ status: 400, headers: { "Retry-After": "1e999" }, json: { code, message, details } });
      await assert.rejects(client({ url: node.url }).limit(ask("x")), (e) => isError("unknown")(e) && e.violations.length === 0);
    }
  }
});

test("bad input is an error of its kind", async () => {
  const weir = client({ url: "http://127.0.0.1:1" }), circle = {};
  circle.circle = circle;
  for (const bad of [undefined, null, 7, 7n, {}, circle, Symbol("x"), ["x"]]) {
    for (const name of ["workspace", "namespace", "identifier"]) {
      await assert.rejects(weir.limit({ ...ask("x"), [name]: bad }), (e) => isError("invalid_argument")(e) && e.violations[0].field === name);
      await assert.rejects(weir.reserve([{ ...ask("x"), [name]: bad }]), (e) => isError("invalid_argument")(e) && e.violations[0].field === `requests[0].${name}`);
    }
    await assert.rejects(weir.settle(bad, [1]), isError("invalid_argument"));
    if (bad !== 7) await assert.rejects(weir.limit(ask("x", { limit: bad })), isError("invalid_argument"));
  }
  for (const bad of [undefined, null, 7, "x", []]) await assert.rejects(weir.limit(bad), isError("invalid_argument"));
});

test("a name of any length is counted as the node counts it", async () => {
  const weir = client({ denyCacheMs: 0 });
  for (const name of ["k".repeat(242), "k".repeat(300), "字".repeat(2000), "\x01".repeat(2000), "\ud800".repeat(2000), "\ud83d\ude00\ud83d".repeat(100), "k".repeat(15_000)]) {
    const request = ask(name, { limit: 2 });
    assert.equal((await weir.limit(request)).allowed, true);
    // the same name, as a caller without this client sends it
    const { durationMs, ...same } = request;
    const answer = await fetch(url + "/weir.v1.RateLimitService/Limit", {
      method: "POST", body: JSON.stringify({ ...same, duration_ms: durationMs }), headers: { "Content-Type": "application/json", Authorization: `Bearer ${token}` },
    });
    const decision = await answer.json();
    assert.deepEqual([decision.allowed, decision.remaining], [true, "0"], name.slice(0, 3));
    assert.equal((await weir.limit(request)).allowed, false);
  }
  for (const name of ["字".repeat(20_000), "\udcff".repeat(20_000), "k".repeat(2_000_000), "k".repeat(2_000_001)]) {
    const request = ask(name, { limit: 2 });
    assert.equal((await weir.limitMany([request, ask("beside " + name.slice(0, 9), { limit: 9 })])).allowed, true);
    assert.equal((await weir.limit(request)).remaining, 0);
    assert.equal(await weir.refund(request), 1);
    assert.equal((await weir.peek(request)).remaining, 0); // the rest, without this request
  }
});

test("what no request can be sent with is refused at once", () => {
  for (const bad of [7, null, "weir", "http:/x", "ftp://x", "http://a b", "http://a?b=c", "http://a#b", "http://a/\n", "http://user:secret@a"]) {
    for (const given of [bad, [bad]]) assert.throws(() => new Client({ url: given }), (e) => e instanceof TypeError && e.message.includes("url") && !e.message.includes("secret"));
  }
  for (const bad of ["", "secret\n", "se\u0000cret", "secr\u00e9t", 7, null]) assert.throws(() => new Client({ url: "http://a", token: bad }), (e) => e.message.includes("token") && !e.message.includes("secr"));
});

test("a call that was sent is not made again because its host has become unreachable", async () => {
  for (const [syscall, attempts] of [["read", 1], ["connect", 3]]) {
    let calls = 0;
    const lost = () => { calls++; throw new TypeError("fetch failed", { cause: Object.assign(new Error("lost"), { code: "EHOSTUNREACH", syscall }) }); };
    await assert.rejects(client({ url: "http://a", retries: 2, fetch: async () => lost() }).limit(ask("x")), isError(attempts > 1 ? "unavailable" : "unknown"));
    assert.equal(calls, attempts);
  }
});

test("errors of a node name fields as they are named here", async () => {
  const node = client();
  await assert.rejects(node.limitMany([ask("x"), ask("x", { durationMs: 10 })]), (e) => e.violations[0].field === "requests[1].durationMs" && !e.message.includes("duration_ms"));
  await assert.rejects(node.reserve([ask("x")], { ttlMs: 10 }), (e) => e.violations[0].field === "ttlMs" && e.message.includes("ttlMs is 10"));
});

test("the denials that are kept are bounded", async () => {
  const node = await fake(denied);
  const weir = client({ url: node.url, denyCacheMs: 60_000, denyCacheSize: 2 });
  for (const identifier of ["a", "b", "c"]) await weir.limit(ask(identifier));
  assert.equal((await weir.limit(ask("c"))).cached, true);
  assert.equal((await weir.limit(ask("a"))).cached, false);
});

test("a reservation is held, told of, extended and settled", async () => {
  const weir = client(), other = client();
  const key = (cost) => ask("tokens", { limit: 100, cost });
  const held = await weir.reserve([key(60), ask("too", { limit: 100 })], { returned: true, holder: "a test" });
  assert.equal(held.allowed, true);
  assert.deepEqual(held.decisions.map((d) => d.remaining), [40, 99]);
  assert.equal((await weir.reserve([key(41)])).allowed, false);
  const sofar = await other.spend(held.id, [20, 0]);
  assert.deepEqual([sofar.id, sofar.spent, sofar.settled, sofar.late], [held.id, [20, 0], false, false]);
  const longer = await other.extend(held.id, 3_600_000);
  assert.ok(longer.endsAt - held.endsAt > 3_000_000);
  assert.deepEqual((await other.settle(held.id, [30, 1])).spent, [30, 1]);
  const late = await weir.cancel(held.id);
  assert.deepEqual([late.spent, late.settled, late.late], [[30, 1], true, true]);
  assert.equal((await weir.reserve([key(70)])).allowed, true);
  await assert.rejects(weir.settle("nobody's", [1]), isError("not_found"));
  await assert.rejects(weir.reserve([]), (e) => isError("invalid_argument")(e) && e.violations[0].field === "requests");
  await assert.rejects(weir.reserve([ask("x"), ask("x", { limit: -1 })]), (e) => /^is -1 \(/.test(e.violations[0].description) && e.violations[0].field === "requests[1].limit");
  for (const wrong of [weir.settle("x", [-1]), weir.spend("x", [0.5]), weir.extend("x", NaN), weir.reserve([ask("x")], { ttlMs: -1 }), weir.settle("x", 1), weir.reserve(ask("x"))]) {
    await assert.rejects(wrong, isError("invalid_argument"));
  }
});

test("a call about a reservation is repeated with its id, whatever was lost", async () => {
  const reserved = { json: { allowed: true, responses: [allowed.json], ends_at_ms: "60000" } };
  const settled = { json: { settlement: { id: "x", spent: ["7"], settled: true, late: true } } };
  const node = await fake("hang", "cut", reserved, busy, "cut", settled);
  const weir = client({ url: node.url, reserveTimeoutMs: 6000 });
  const held = await weir.reserve([ask("x")]);
  assert.deepEqual([held.allowed, node.calls.length], [true, 3]);
  assert.ok(held.id.length > 30);
  assert.deepEqual(node.calls.map((c) => c.body.id), [held.id, held.id, held.id]);
  const s = await weir.settle(held.id, [7]);
  assert.deepEqual([s.spent, s.late, node.calls.length], [[7], true, 6]);
  assert.ok(node.calls.slice(3).every((c) => c.body.id === held.id && c.body.costs[0] === 7));
  const other = await weir.reserve([ask("x")]).catch(() => undefined);
  assert.ok(other === undefined || other.id !== held.id, "each reservation has an id of its own");
  const hangs = await fake("hang");
  await assert.rejects(client({ url: hangs.url, reserveTimeoutMs: 600, retries: 1 }).settle("x", [1]), isError("deadline_exceeded"));
  assert.equal(hangs.calls.length, 2);
});

test("a field or an option that is misspelt is an error that names it and those that there are", async () => {
  const weir = client({ url: "http://a", fetch: async () => assert.fail("the call was sent") });
  const ask = { workspace: "acme", namespace: "api", identifier: "x", limit: 1, durationMs: 1000 };
  const invalid = (field) => (e) => e.code === "invalid_argument" && e.message.includes(field) && e.violations.length === 1;
  for (const method of ["limit", "peek", "refund"]) await assert.rejects(weir[method]({ ...ask, costs: 5 }), invalid('request has an unknown field "costs" (workspace, namespace'));
  await assert.rejects(weir.limitMany([ask, { ...ask, duration_ms: 5 }]), invalid('requests[1] has an unknown field "duration_ms"'));
  await assert.rejects(weir.reserve([ask], { ttl: 5 }), invalid('options has an unknown field "ttl" (id, ttlMs'));
  assert.throws(() => new Client({ url: "http://a", timeout: 1 }), (e) => e.message.includes('"timeout" is no option (url, token, timeoutMs'));
});
