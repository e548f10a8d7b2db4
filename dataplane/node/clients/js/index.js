// Client of weir-node over Connect's JSON. It needs only the platform: fetch, AbortSignal and Date.

const SERVICE = "/weir.v1.RateLimitService/";
const LOST = ["unavailable", "deadline_exceeded", "unknown"];
const ANSWER_MAX = 4 << 20; // bytes of an answer: a thousand decisions are some 300 KB

const OPTIONS = ["url", "token", "timeoutMs", "reserveTimeoutMs", "retries", "denyCacheMs", "denyCacheSize", "fetch"];
const REQUEST = ["workspace", "namespace", "identifier", "limit", "durationMs", "cost"];
const RESERVE = ["id", "ttlMs", "returned", "holder"];

const now = () => performance.now(); // setting a clock does not change it

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
    for (const name of Object.keys(options ?? {})) {
      if (!OPTIONS.includes(name)) throw new TypeError(`weir: ${brief(name)} is no option (${OPTIONS.join(", ")})`);
    }
    const { url, token, timeoutMs = 250, reserveTimeoutMs = 5000, retries = 2, denyCacheMs = 1000, denyCacheSize = 10_000 } = options ?? {};
    const urls = typeof url === "string" ? [url] : [...(url ?? [])];
    if (urls.length === 0) throw new TypeError("weir: url is empty (one node's, or several)");
    this.#urls = urls.map((one) => {
      if (typeof one === "string" && one.includes("@")) throw new TypeError("weir: url has an '@' (http://… or https://…, a host, and at most a port and a path)"); // not quoted, because it may have a password
      if (typeof one !== "string" || !URL.canParse(one) || !/^https?:\/\/[^?#\s]+$/i.test(one)) throw new TypeError(`weir: url is ${brief(one)} (http://… or https://…, a host, and at most a port and a path)`);
      return one.replace(/\/+$/, "");
    });
    bounded("timeoutMs", timeoutMs, 1, 60_000);
    bounded("reserveTimeoutMs", reserveTimeoutMs, 1, 60_000);
    bounded("retries", retries, 0, 10, Number.isInteger);
    bounded("denyCacheMs", denyCacheMs, 0, 60_000);
    bounded("denyCacheSize", denyCacheSize, 1, 1_000_000, Number.isInteger);
    this.#headers = { "Content-Type": "application/json", "Connect-Protocol-Version": "1" };
    if (token !== undefined) {
      if (typeof token !== "string" || !/^[\x20-\x7e]+$/.test(token)) throw new TypeError("weir: token is empty, or holds a character that no header may");
      this.#headers.Authorization = `Bearer ${token}`;
    }
    this.#timeoutMs = timeoutMs;
    this.#reserveTimeoutMs = reserveTimeoutMs;
    this.#retries = retries;
    this.#fetch = options.fetch ?? globalThis.fetch;
    this.#denials = new Denials(denyCacheMs, denyCacheSize);
  }

  async limit(request) {
    const body = await counted(wire(request));
    const known = this.#denials.find(body);
    if (known !== undefined) return known;
    const decision = decisionOf(await this.#call("Limit", body));
    this.#denials.note(body, decision);
    return decision;
  }

  async limitMany(requests) {
    const body = { requests: await wires(requests) };
    const answer = await this.#call("LimitMany", body);
    return { allowed: boolean(answer, "allowed"), decisions: decisionsOf(answer, body.requests.length) };
  }

  async peek(request) {
    const answer = await this.#call("Peek", await counted(wire(request)), ["unavailable", "unknown"]);
    return decisionOf(object(answer, "response"));
  }

  async refund(request) {
    const body = await counted(wire(request));
    const refunded = integer(await this.#call("Refund", body), "refunded");
    this.#denials.forget(body);
    return refunded;
  }

  async reserve(requests, options = {}) {
    known("options", options, RESERVE);
    const { id = crypto.randomUUID(), ttlMs = 0, returned = false, holder = "" } = options;
    const body = { id: text("id", id), requests: await wires(requests), ttl_ms: whole("ttlMs", ttlMs), returned: Boolean(returned), holder: text("holder", holder) };
    const answer = await this.#about("Reserve", body);
    return { id, allowed: boolean(answer, "allowed"), decisions: decisionsOf(answer, body.requests.length), endsAt: date(answer, "ends_at_ms") };
  }

  async spend(id, costs) {
    return settlementOf(await this.#about("Settle", { id: text("id", id), costs: wholes(costs), more: true }));
  }

  async settle(id, costs) {
    return settlementOf(await this.#about("Settle", { id: text("id", id), costs: wholes(costs) }));
  }

  async cancel(id) {
    return settlementOf(await this.#about("Cancel", { id: text("id", id) }));
  }

  async extend(id, ttlMs = 0) {
    return settlementOf(await this.#about("Extend", { id: text("id", id), ttl_ms: whole("ttlMs", ttlMs) }));
  }

  // A call about a reservation changes nothing when it is repeated with the same id, so it is repeated after any loss.
  #about(method, body) {
    return this.#call(method, body, LOST, this.#reserveTimeoutMs, this.#retries + 1);
  }

  // A call that counts is repeated if nothing was decided, and never if it may have been decided: it would count twice.
  // Its time is shared between so many attempts, if an attempt that was not answered in time is repeated.
  async #call(method, body, repeated = ["unavailable"], timeoutMs = this.#timeoutMs, shares = 1) {
    const deadline = now() + timeoutMs;
    const message = JSON.stringify(body);
    for (let attempt = 0; ; attempt++) {
      const at = this.#next;
      try {
        return await this.#attempt(this.#urls[at] + SERVICE + method, message, (deadline - now()) / Math.max(1, shares - attempt));
      } catch (error) {
        // the next call goes to another node, whether or not this call is repeated
        if (LOST.includes(error.code)) this.#next = (at + 1) % this.#urls.length;
        const undecided = repeated.includes(error.code);
        const wait = Math.min(error.retryAfterMs ?? 0, 25 * 2 ** attempt) * (0.5 + Math.random() / 2);
        if (!undecided || attempt >= this.#retries || now() + wait >= deadline) throw error;
        if (wait > 0) await new Promise((go) => setTimeout(go, wait));
      }
    }
  }

  async #attempt(url, body, timeoutMs) {
    let answer, said;
    try {
      answer = await this.#fetch(url, {
        method: "POST", body, redirect: "error", signal: AbortSignal.timeout(Math.max(1, Math.ceil(timeoutMs))),
        headers: { ...this.#headers, "Connect-Timeout-Ms": String(Math.max(1, Math.ceil(timeoutMs))) },
      });
      said = await textOf(answer);
    } catch (error) {
      if (error?.name === "TimeoutError") throw new WeirError("deadline_exceeded", `no answer in ${Math.ceil(timeoutMs)} ms`, [], { cause: error });
      throw new WeirError(refused(error) ? "unavailable" : "unknown", error?.cause?.message ?? error?.message ?? String(error), [], { cause: error });
    }
    let message;
    try {
      message = JSON.parse(said);
    } catch (error) {
      throw new WeirError("unknown", `status ${answer.status} with a body that is no JSON`, [], { cause: error });
    }
    if (!isObject(message)) throw new WeirError("unknown", `status ${answer.status} with a body that is no object`);
    if (answer.ok) return message;
    throw problemOf(message, answer);
  }
}

// A denial is repeated for some time, because the node would deny the same request again. That saves calls.
class Denials {
  #byKey = new Map(); // in the order in which they were noted
  #keepMs;
  #size;

  constructor(keepMs, size) {
    this.#keepMs = keepMs;
    this.#size = size;
  }

  find(body) {
    const known = this.#byKey.get(keyOf(body));
    if (known === undefined || body.cost !== known.cost || body.limit !== known.limit) return undefined;
    if (now() >= known.until) {
      this.forget(body);
      return undefined;
    }
    const { decision } = known;
    return { ...decision, resetAt: new Date(decision.resetAt), retryAfterMs: decision.retryAfterMs && Math.max(1, Math.ceil(known.passesAt - now())), cached: true };
  }

  note(body, decision) {
    const key = keyOf(body);
    this.#byKey.delete(key);
    const forMs = Math.min(this.#keepMs, decision.neverPasses ? this.#keepMs : decision.retryAfterMs);
    if (decision.allowed || forMs <= 0) return;
    if (this.#byKey.size >= this.#size) this.#byKey.delete(this.#byKey.keys().next().value);
    this.#byKey.set(key, { cost: body.cost, limit: body.limit, until: now() + forMs, passesAt: now() + decision.retryAfterMs, decision });
  }

  forget(body) {
    this.#byKey.delete(keyOf(body));
  }
}

const keyOf = (body) => JSON.stringify([body.workspace, body.namespace, body.identifier, body.duration_ms]);

function wire(r, at = "") {
  if (!isObject(r)) throw wrong(at.slice(0, -1) || "request", `is ${brief(r)} (an object)`);
  known(at.slice(0, -1) || "request", r, REQUEST);
  const { workspace, namespace, identifier, limit, durationMs } = r, cost = r.cost ?? 1;
  for (const [name, value] of Object.entries({ workspace, namespace, identifier })) text(at + name, value);
  for (const [name, value] of Object.entries({ limit, durationMs, cost })) whole(at + name, value);
  const body = { workspace, namespace, identifier, limit, duration_ms: durationMs };
  return cost === 0 ? { ...body, zero_cost: true } : { ...body, cost };
}

const wires = (requests) => Promise.all(list("requests", requests).map((r, i) => wire(r, `requests[${i}].`)).map(counted));

const IDENTIFIER_BYTES_MAX = 255;

// The request with the identifier under which a node counts its name: beyond 255 bytes the name's SHA-256. A limited
// caller may choose a name that is longer than a call may be, so the client hashes it as the node would.
async function counted(body) {
  if (3 * body.identifier.length <= IDENTIFIER_BYTES_MAX) return body;
  const bytes = bytesOf(body.identifier);
  if (bytes.length <= IDENTIFIER_BYTES_MAX) return body;
  const sum = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
  return { ...body, identifier: "sha256:" + Array.from(sum, (b) => b.toString(16).padStart(2, "0")).join("") };
}

// A text's bytes as the node reads them in JSON: half of a surrogate pair is three bytes of its own.
function bytesOf(name) {
  if (name.isWellFormed()) return new TextEncoder().encode(name);
  const bytes = new Uint8Array(3 * name.length);
  let size = 0;
  for (const character of name) {
    const unit = character.codePointAt(0);
    const part = unit >> 11 === 0x1b ? [0xed, 0x80 | ((unit >> 6) & 0x3f), 0x80 | (unit & 0x3f)] : new TextEncoder().encode(character);
    bytes.set(part, size);
    size += part.length;
  }
  return bytes.subarray(0, size);
}

// A misspelt field would leave the intended field at its default, such as a cost of 1.
function known(name, value, fields) {
  for (const field of Object.keys(value)) {
    if (!fields.includes(field)) throw wrong(name, `has an unknown field ${brief(field)} (${fields.join(", ")})`);
  }
}

function whole(name, value) {
  if (!Number.isSafeInteger(value) || value < 0) throw wrong(name, `is ${brief(value)} (a whole number, 0 to 2^53 - 1)`);
  return value;
}

function text(name, value) {
  if (typeof value !== "string") throw wrong(name, `is ${brief(value)} (a string)`);
  return value;
}

function list(name, value) {
  if (!Array.isArray(value)) throw wrong(name, `is ${brief(value)} (an array)`);
  return value;
}

const wrong = (field, description) => new WeirError("invalid_argument", `${field} ${description}`, [{ field, description }]);

const wholes = (costs) => list("costs", costs).map((c, i) => whole(`costs[${i}]`, c));

function settlementOf(answer) {
  const s = object(answer, "settlement");
  return {
    id: string(s, "id"), spent: array(s, "spent").map((c) => integerOf("spent", c)), settled: boolean(s, "settled"), late: boolean(s, "late"),
    endsAt: date(s, "ends_at_ms"),
  };
}

// The decisions on n requests. Another number is an error, because decisions could not be matched with requests.
function decisionsOf(answer, n) {
  const found = array(answer, "responses");
  if (found.length !== n) throw odd("responses", `has ${found.length} items for ${n} requests`);
  return found.map((one) => decisionOf(checked("responses", one, isObject, "object")));
}

function decisionOf(r) {
  return {
    allowed: boolean(r, "allowed"),
    limit: integer(r, "limit"),
    remaining: integer(r, "remaining"),
    resetAt: date(r, "reset_at_ms"),
    retryAfterMs: integer(r, "retry_after_ms"),
    current: field(r, "current", Number.isFinite, "number", 0),
    source: (string(r, "source") || "SOURCE_UNSPECIFIED").replace(/^SOURCE_/, "").toLowerCase().replaceAll("_", "-"),
    shadowed: boolean(r, "shadowed"),
    override: string(r, "override"),
    candidateDenied: boolean(r, "candidate_denied"),
    durationMs: integer(r, "duration_ms"),
    neverPasses: boolean(r, "never_passes"),
    cached: false,
  };
}

// Fields of answers. A field that is left out, or null, has its default. If a field does not have its type, the whole
// answer is an error: nothing is guessed.

const isObject = (value) => value !== null && typeof value === "object" && !Array.isArray(value);
const boolean = (r, name) => field(r, name, (v) => typeof v === "boolean", "boolean", false);
const string = (r, name) => field(r, name, (v) => typeof v === "string", "string", "");
const object = (r, name) => field(r, name, isObject, "object", {});
const array = (r, name) => field(r, name, Array.isArray, "array", []);
const integer = (r, name) => integerOf(name, own(r, name) ?? 0);

const own = (r, name) => (Object.hasOwn(r, name) ? r[name] : undefined);
const field = (r, name, isKind, kind, otherwise) => checked(name, own(r, name) ?? otherwise, isKind, kind);

function checked(name, value, isKind, kind) {
  if (!isKind(value)) throw odd(name, `is ${brief(value)}, and no ${kind}`);
  return value;
}

// A 64-bit integer is a string in protobuf's JSON, and a number is accepted as well.
function integerOf(name, value) {
  const n = typeof value === "string" && /^-?[0-9]{1,19}$/.test(value) ? Number(value) : value;
  if (!Number.isInteger(n) || Math.abs(n) > 2 ** 63) throw odd(name, `is ${brief(value)}, and no integer`);
  return n;
}

function date(r, name) {
  const at = new Date(integer(r, name));
  if (Number.isNaN(at.getTime())) throw odd(name, `is ${brief(r[name])}, and no time`);
  return at;
}

const odd = (name, why) => new WeirError("unknown", `the answer's field ${name} ${why}`);

// A value of any type for an error: JSON has no text for NaN, big integers and cycles.
function brief(value) {
  try {
    return (typeof value === "number" ? String(value) : JSON.stringify(value) ?? typeof value).slice(0, 64);
  } catch {
    return typeof value;
  }
}

// The error in an answer. Its fields have this client's names.
function problemOf(message, answer) {
  const violations = violationsOf(message);
  const said = typeof message.message === "string" ? message.message : `status ${answer.status}`;
  const problem = new WeirError(typeof message.code === "string" ? message.code : "unknown",
    violations.length > 0 ? violations.map((v) => `${v.field} ${v.description}`).join("; ") : said, violations);
  const seconds = Number(answer.headers.get("Retry-After") ?? 0);
  problem.retryAfterMs = seconds >= 0 && seconds <= 3600 ? 1000 * seconds : 0;
  return problem;
}

// The node describes the fault of each field in a detail of the error.
function violationsOf(message) {
  return array(isObject(message) && Array.isArray(message.details) ? message : {}, "details")
    .flatMap((d) => (Array.isArray(d?.debug?.fieldViolations) ? d.debug.fieldViolations : []))
    .filter(isObject)
    .map((v) => ({ field: named(String(v.field ?? "")), description: String(v.description ?? "") }));
}

// requests[3].duration_ms is requests[3].durationMs here.
const named = (wireName) => wireName.replace(/_([a-z])/g, (_, letter) => letter.toUpperCase());

// The text of an answer, up to the bound.
async function textOf(answer) {
  const parts = [];
  let size = 0;
  for await (const part of answer.body ?? []) {
    if ((size += part.length) > ANSWER_MAX) throw new Error(`the answer is longer than ${ANSWER_MAX} bytes`);
    parts.push(part);
  }
  return new Blob(parts).text();
}

// If no connection could be made, nothing was sent. A host may also become unreachable while an answer is awaited.
function refused(error) {
  const codes = ["ECONNREFUSED", "ENOTFOUND", "EAI_AGAIN", "UND_ERR_CONNECT_TIMEOUT"], atConnect = ["EHOSTUNREACH", "ENETUNREACH"];
  const all = [error, error?.cause, ...(error?.cause?.errors ?? [])];
  return all.some((e) => codes.includes(e?.code) || (atConnect.includes(e?.code) && e.syscall === "connect"));
}

function bounded(name, value, least, most, isKind = Number.isFinite) {
  if (!isKind(value) || value < least || value > most) throw new TypeError(`weir: ${name} is ${value} (${isKind === Number.isInteger ? "a whole number, " : ""}${least} to ${most})`);
}
