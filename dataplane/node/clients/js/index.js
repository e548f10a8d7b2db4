// Client of weir-node over Connect's JSON. It needs nothing besides the platform: fetch, AbortSignal and Date.

const SERVICE = "/weir.v1.RateLimitService/";
const LOST = ["unavailable", "deadline_exceeded", "unknown"];
const ANSWER_MAX = 4 << 20; // bytes of an answer: a thousand decisions are some 300 KB

const now = () => performance.now(); // which no clock that is set moves

export class WeirError extends Error {
  constructor(code, message, violations = [], options = undefined) {
    super(`weir: ${code}: ${message}`, options);
    this.name = "WeirError";
    this.code = code;
    this.violations = violations;
  }
}

export class Client {
  #urls;
  #next = 0;
  #headers;
  #timeoutMs;
  #reserveTimeoutMs;
  #retries;
  #fetch;
  #denials;

  constructor(options) {
    const { url, token, timeoutMs = 250, reserveTimeoutMs = 5000, retries = 2, denyCacheMs = 1000, denyCacheSize = 10_000 } = options ?? {};
    const urls = typeof url === "string" ? [url] : [...(url ?? [])];
    if (urls.length === 0) throw new TypeError("weir: url is empty (one node's, or several)");
    this.#urls = urls.map((one) => {
      if (!URL.canParse(one) || !/^https?:$/.test(new URL(one).protocol)) throw new TypeError(`weir: url is ${JSON.stringify(one)} (http://… or https://…)`);
      return one.replace(/\/+$/, "");
    });
    bounded("timeoutMs", timeoutMs, 1, 60_000);
    bounded("reserveTimeoutMs", reserveTimeoutMs, 1, 60_000);
    bounded("retries", retries, 0, 10);
    bounded("denyCacheMs", denyCacheMs, 0, 60_000);
    bounded("denyCacheSize", denyCacheSize, 1, 1_000_000);
    this.#headers = { "Content-Type": "application/json", "Connect-Protocol-Version": "1" };
    if (token !== undefined) this.#headers.Authorization = `Bearer ${token}`;
    this.#timeoutMs = timeoutMs;
    this.#reserveTimeoutMs = reserveTimeoutMs;
    this.#retries = retries;
    this.#fetch = options.fetch ?? globalThis.fetch;
    this.#denials = new Denials(denyCacheMs, denyCacheSize);
  }

  async limit(request) {
    const known = this.#denials.find(request);
    if (known !== undefined) return known;
    const decision = decisionOf(await this.#call("Limit", wire(request)));
    this.#denials.note(request, decision);
    return decision;
  }

  async limitMany(requests) {
    const { allowed = false, responses = [] } = await this.#call("LimitMany", { requests: wires(requests) });
    return { allowed, decisions: responses.map(decisionOf) };
  }

  async peek(request) {
    const { response } = await this.#call("Peek", wire(request), ["unavailable", "unknown"]);
    return decisionOf(response);
  }

  async refund(request) {
    const { refunded } = await this.#call("Refund", wire(request));
    this.#denials.forget(request);
    return Number(refunded ?? 0);
  }

  async reserve(requests, { id = crypto.randomUUID(), ttlMs = 0, returned = false, holder = "" } = {}) {
    const body = { id, requests: wires(requests), ttl_ms: whole("ttlMs", ttlMs), returned, holder };
    const { allowed = false, responses = [], ends_at_ms } = await this.#about("Reserve", body);
    return { id, allowed, decisions: responses.map(decisionOf), endsAt: new Date(Number(ends_at_ms ?? 0)) };
  }

  async spend(id, costs) {
    return settlementOf(await this.#about("Settle", { id, costs: wholes(costs), more: true }));
  }

  async settle(id, costs) {
    return settlementOf(await this.#about("Settle", { id, costs: wholes(costs) }));
  }

  async cancel(id) {
    return settlementOf(await this.#about("Cancel", { id }));
  }

  async extend(id, ttlMs = 0) {
    return settlementOf(await this.#about("Extend", { id, ttl_ms: whole("ttlMs", ttlMs) }));
  }

  // A call about a reservation changes nothing when it is made again with the same id: it is repeated whatever was lost.
  #about(method, body) {
    return this.#call(method, body, LOST, this.#reserveTimeoutMs, this.#retries + 1);
  }

  // A call that counts is repeated where nothing was decided, and never where it may have been: it would count twice.
  // Its time is shared between so many attempts, if an attempt that was not answered in time is repeated.
  async #call(method, body, repeated = ["unavailable"], timeoutMs = this.#timeoutMs, shares = 1) {
    const deadline = now() + timeoutMs;
    const text = JSON.stringify(body);
    for (let attempt = 0; ; attempt++) {
      const at = this.#next;
      try {
        return await this.#attempt(this.#urls[at] + SERVICE + method, text, (deadline - now()) / Math.max(1, shares - attempt));
      } catch (error) {
        // the next call goes to another node, whether or not this one is repeated
        if (LOST.includes(error.code)) this.#next = (at + 1) % this.#urls.length;
        const undecided = repeated.includes(error.code);
        const wait = Math.min(error.retryAfterMs ?? 0, 25 * 2 ** attempt) * (0.5 + Math.random() / 2);
        if (!undecided || attempt >= this.#retries || now() + wait >= deadline) throw error;
        if (wait > 0) await new Promise((go) => setTimeout(go, wait));
      }
    }
  }

  async #attempt(url, body, timeoutMs) {
    let answer, text;
    try {
      answer = await this.#fetch(url, {
        method: "POST", body, redirect: "error", signal: AbortSignal.timeout(Math.max(1, Math.ceil(timeoutMs))),
        headers: { ...this.#headers, "Connect-Timeout-Ms": String(Math.max(1, Math.ceil(timeoutMs))) },
      });
      text = await textOf(answer);
    } catch (error) {
      if (error?.name === "TimeoutError") throw new WeirError("deadline_exceeded", `no answer in ${Math.ceil(timeoutMs)} ms`, [], { cause: error });
      throw new WeirError(refused(error) ? "unavailable" : "unknown", error?.cause?.message ?? error?.message ?? String(error), [], { cause: error });
    }
    let message;
    try {
      message = JSON.parse(text);
    } catch (error) {
      throw new WeirError("unknown", `status ${answer.status} with a body that is no JSON`, [], { cause: error });
    }
    if (message === null || typeof message !== "object" || Array.isArray(message)) throw new WeirError("unknown", `status ${answer.status} with a body that is no object`);
    if (answer.ok) return message;
    const problem = new WeirError(String(message.code ?? "unknown"), message.message ?? `status ${answer.status}`, violationsOf(message));
    problem.retryAfterMs = 1000 * Number(answer.headers.get("Retry-After") ?? 0) || 0;
    throw problem;
  }
}

// A denial is repeated for some time: the same request would be denied again, and the node has better to do.
class Denials {
  #byKey = new Map(); // in the order in which they were noted
  #keepMs;
  #size;

  constructor(keepMs, size) {
    this.#keepMs = keepMs;
    this.#size = size;
  }

  find(request) {
    const known = this.#byKey.get(keyOf(request));
    if (known === undefined || cost(request) !== known.cost || request.limit !== known.limit) return undefined;
    if (now() >= known.until) {
      this.forget(request);
      return undefined;
    }
    const { decision } = known;
    return { ...decision, resetAt: new Date(decision.resetAt), retryAfterMs: decision.retryAfterMs && Math.max(1, Math.ceil(known.passesAt - now())), cached: true };
  }

  note(request, decision) {
    const key = keyOf(request);
    this.#byKey.delete(key);
    const forMs = Math.min(this.#keepMs, decision.neverPasses ? this.#keepMs : decision.retryAfterMs);
    if (decision.allowed || forMs <= 0) return;
    if (this.#byKey.size >= this.#size) this.#byKey.delete(this.#byKey.keys().next().value);
    this.#byKey.set(key, { cost: cost(request), limit: request.limit, until: now() + forMs, passesAt: now() + decision.retryAfterMs, decision });
  }

  forget(request) {
    this.#byKey.delete(keyOf(request));
  }
}

const keyOf = (r) => JSON.stringify([r.workspace, r.namespace, r.identifier, r.durationMs]);

const cost = (r) => r.cost ?? 1;

function wire(r, at = "") {
  const { workspace, namespace, identifier, limit, durationMs } = r;
  for (const [name, value] of Object.entries({ limit, durationMs, cost: cost(r) })) whole(at + name, value);
  const body = { workspace, namespace, identifier, limit, duration_ms: durationMs };
  return cost(r) === 0 ? { ...body, zero_cost: true } : { ...body, cost: cost(r) };
}

const wires = (requests) => list("requests", requests).map((r, i) => wire(r, `requests[${i}].`));

function whole(name, value) {
  if (!Number.isSafeInteger(value) || value < 0) throw wrong(name, `is ${value} (a whole number, 0 to 2^53 - 1)`);
  return value;
}

function list(name, value) {
  if (!Array.isArray(value)) throw wrong(name, `is ${value} (an array)`);
  return value;
}

const wrong = (field, description) => new WeirError("invalid_argument", `${field} ${description}`, [{ field, description }]);

const wholes = (costs) => list("costs", costs).map((c, i) => whole(`costs[${i}]`, c));

function settlementOf({ settlement: s = {} }) {
  return { id: s.id ?? "", spent: (s.spent ?? []).map(Number), settled: s.settled ?? false, late: s.late ?? false, endsAt: new Date(Number(s.ends_at_ms ?? 0)) };
}

function decisionOf(r) {
  return {
    allowed: r.allowed ?? false,
    limit: Number(r.limit ?? 0),
    remaining: Number(r.remaining ?? 0),
    resetAt: new Date(Number(r.reset_at_ms ?? 0)),
    retryAfterMs: Number(r.retry_after_ms ?? 0),
    current: r.current ?? 0,
    source: String(r.source ?? "SOURCE_UNSPECIFIED").slice("SOURCE_".length).toLowerCase().replaceAll("_", "-"),
    shadowed: r.shadowed ?? false,
    override: r.override ?? "",
    candidateDenied: r.candidate_denied ?? false,
    durationMs: Number(r.duration_ms ?? 0),
    neverPasses: r.never_passes ?? false,
    cached: false,
  };
}

// The node names what is wrong with each field in a detail of the error.
function violationsOf(message) {
  return Array.isArray(message.details) ? message.details.flatMap((d) => d?.debug?.fieldViolations ?? []) : [];
}

// The text of an answer, no more of it than there may be.
async function textOf(answer) {
  const parts = [];
  let size = 0;
  for await (const part of answer.body ?? []) {
    if ((size += part.length) > ANSWER_MAX) throw new Error(`the answer is longer than ${ANSWER_MAX} bytes`);
    parts.push(part);
  }
  return new Blob(parts).text();
}

// Where no connection came about nothing was sent.
function refused(error) {
  const codes = ["ECONNREFUSED", "ENOTFOUND", "EAI_AGAIN", "EHOSTUNREACH", "ENETUNREACH", "UND_ERR_CONNECT_TIMEOUT"];
  const all = [error, error?.cause, ...(error?.cause?.errors ?? [])];
  return all.some((e) => codes.includes(e?.code));
}

function bounded(name, value, least, most) {
  if (!Number.isFinite(value) || value < least || value > most) throw new TypeError(`weir: ${name} is ${value} (${least} to ${most})`);
}
