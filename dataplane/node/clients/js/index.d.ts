/** What a request may spend, and of whom: see weir/v1/ratelimit.proto. */
export interface Request {
  /** 1 to 191 bytes */
  workspace: string;
  /** 1 to 255 bytes */
  namespace: string;
  /** 1 byte or more; past 255 bytes its SHA-256 is counted */
  identifier: string;
  /** cost allowed in any durationMs: 0 (blocks) to 2^53 - 1 */
  limit: number;
  /** length of the sliding window: 1,000 to 31,622,400,000 (366 days) */
  durationMs: number;
  /** 0 (counts nothing) to 2^53 - 1; default 1 */
  cost?: number;
}

export interface Decision {
  allowed: boolean;
  /** that was applied: an override may change it */
  limit: number;
  /** never negative; a denied cost is not subtracted */
  remaining: number;
  /** end of the fixed cell of this decision */
  resetAt: Date;
  /** until the same request would pass; 0 when allowed, and with neverPasses */
  retryAfterMs: number;
  /** what was compared with the limit, the cost included */
  current: number;
  source: "local" | "origin" | "degraded" | "degraded-open" | "degraded-closed" | "unspecified";
  /** over the limit, and allowed only because of shadow mode */
  shadowed: boolean;
  /** pattern of the override that applied */
  override: string;
  /** the candidate limit of that override would have denied */
  candidateDenied: boolean;
  /** of the window that was applied */
  durationMs: number;
  /** denied, and no waiting helps: the cost is more than the limit */
  neverPasses: boolean;
  /** answered by this client, from a denial of the node's */
  cached: boolean;
}

export interface Batch {
  /** true: all requests were counted; false: none was */
  allowed: boolean;
  /** each request's own verdict, in order */
  decisions: Decision[];
}

export interface Reservation {
  /** that settles it */
  id: string;
  /** true: all of it is reserved; false: nothing is */
  allowed: boolean;
  /** each request's own verdict, in order */
  decisions: Decision[];
  /** by the origin's clock */
  endsAt: Date;
}

export interface ReserveOptions {
  /** 1 to 124 bytes, unique in the region; default: a random one. Every caller that knows it can settle */
  id?: string;
  /** how long it lasts unless it is settled or extended: 1,000 to 86,400,000, or 0 for a minute; default 0 */
  ttlMs?: number;
  /** gives back at its end what was not said to be spent; default false: then all of it counts as spent */
  returned?: boolean;
  /** who it is, for operators: at most 64 bytes */
  holder?: string;
}

/** What a reservation is after a call about it. */
export interface Settlement {
  id: string;
  /** of each request, as far as it was said */
  spent: number[];
  /** nothing can change any more */
  settled: boolean;
  /** it was settled or had ended before: the call has changed nothing. So it is after a repetition of a call whose answer was lost */
  late: boolean;
  endsAt: Date;
}

export interface Options {
  /** of one node or several; a call that a node did not decide goes to the next one */
  url: string | readonly string[];
  /** that the node asks for (tokens-file) */
  token?: string;
  /** of a call, its repetitions included: 1 to 60,000; default 250 */
  timeoutMs?: number;
  /** of a call about a reservation, its repetitions included: 1 to 60,000; default 5,000: such a call waits for the region's origin */
  reserveTimeoutMs?: number;
  /** more attempts of a call, 0 to 10; default 2: after an answer that nothing was decided, or where no connection came about */
  retries?: number;
  /** how long a denial of the same request is repeated without asking, at most, and never beyond its retryAfterMs: 0 (not at all) to 60,000; default 1,000. A reset, or a higher limit, takes as long to be noticed */
  denyCacheMs?: number;
  /** denials that are kept, 1 to 1,000,000; default 10,000: the oldest goes */
  denyCacheSize?: number;
  /** default: the platform's */
  fetch?: typeof fetch;
}

export interface FieldViolation {
  field: string;
  description: string;
}

/** A call that was not decided, or of which that is not known. */
export class WeirError extends Error {
  /**
   * Connect's code: "invalid_argument", "unauthenticated", "unavailable", …; "deadline_exceeded" and "unknown" where no
   * answer came: the request may have been counted.
   */
  readonly code: string;
  /** what is wrong with the request, of "invalid_argument": fields by their names here, such as requests[3].durationMs */
  readonly violations: readonly FieldViolation[];
}

/** Safe for any number of calls at once. */
export class Client {
  /** Throws a TypeError that names the option and its bound. */
  constructor(options: Options);
  /** Decides a request, and counts its cost if it is allowed. A denial is an answer, not an error. */
  limit(request: Request): Promise<Decision>;
  /** Decides 1 to 1,000 requests as one: all are counted, or none is. */
  limitMany(requests: readonly Request[]): Promise<Batch>;
  /** Answers what limit would, and counts nothing. */
  peek(request: Request): Promise<Decision>;
  /** Gives back the cost that limit has accepted for the same request, and answers how much that was. */
  refund(request: Request): Promise<number>;
  /** Holds the costs of 1 to 32 requests, all or none, until they are settled or the reservation ends. A denial is an answer, not an error. */
  reserve(requests: readonly Request[], options?: ReserveOptions): Promise<Reservation>;
  /** Says what was spent so far, in all, of each request; the reservation goes on. */
  spend(id: string, costs: readonly number[]): Promise<Settlement>;
  /** Says what was spent of each request, less or more than reserved, and ends the reservation. */
  settle(id: string, costs: readonly number[]): Promise<Settlement>;
  /** Settles with what was said to be spent, which may be nothing. */
  cancel(id: string): Promise<Settlement>;
  /** Has the reservation end ttlMs from now, if that is later: 1,000 to 86,400,000, or 0 for a minute. */
  extend(id: string, ttlMs?: number): Promise<Settlement>;
}
