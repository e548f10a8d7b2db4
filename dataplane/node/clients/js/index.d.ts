/** A request for a cost on a key: see weir/v1/ratelimit.proto. For example, 1 of user_42's 100 in any 60,000 ms. */
export interface Request {
  /** 1 to 191 bytes */
  workspace: string;
  /** 1 to 255 bytes */
  namespace: string;
  /** 1 byte or more; above 255 bytes, it is counted under its SHA-256 */
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
  /** the applied limit: an override may change it */
  limit: number;
  /** never negative; a denied cost is not subtracted */
  remaining: number;
  /** end of the fixed cell of this decision */
  resetAt: Date;
  /** until the same request would pass; 0 when allowed, and with neverPasses */
  retryAfterMs: number;
  /** the value that was compared with the limit, the cost included */
  current: number;
  source: "local" | "origin" | "degraded" | "degraded-open" | "degraded-closed" | "unspecified";
  /** over the limit, and allowed only because of shadow mode */
  shadowed: boolean;
  /** pattern of the override that applied */
  override: string;
  /** the candidate limit of that override would have denied */
  candidateDenied: boolean;
  /** length of the applied window */
  durationMs: number;
  /** denied, and no waiting helps: the cost is more than the limit */
  neverPasses: boolean;
  /** answered by this client, from an earlier denial by the node */
  cached: boolean;
}

export interface Batch {
  /** true: all requests were counted; false: none was */
  allowed: boolean;
  /** the decision on each request, in order */
  decisions: Decision[];
}

export interface Reservation {
  /** the id to settle it with */
  id: string;
  /** true: all of it is reserved; false: nothing is */
  allowed: boolean;
  /** the decision on each request, in order */
  decisions: Decision[];
  /** by the origin's clock */
  endsAt: Date;
}

export interface ReserveOptions {
  /** 1 to 124 bytes, unique in the region; default: a random id. Any caller with the id can settle the reservation */
  id?: string;
  /** how long it lasts unless it is settled or extended: 1,000 to 86,400,000, or 0 for a minute; default 0 */
  ttlMs?: number;
  /** at its end, cost that was not reported as spent is given back; default false: then all of it counts as spent */
  returned?: boolean;
  /** the holder's name, for operators: at most 64 bytes */
  holder?: string;
}

/** The state of a reservation after a call about it. */
export interface Settlement {
  id: string;
  /** the reported cost of each request */
  spent: number[];
  /** nothing can change any more */
  settled: boolean;
  /** it was settled or had ended before, so the call changed nothing: for example, the call repeats a call whose answer was lost */
  late: boolean;
  endsAt: Date;
}

export interface Options {
  /** of one node or several; if a node does not decide a call, the next call goes to the next node */
  url: string | readonly string[];
  /** required if the node has a tokens-file */
  token?: string;
  /** bounds a call and its repetitions together: 1 to 60,000; default 250. A lower value fails sooner if the node is slow */
  timeoutMs?: number;
  /** bounds a call about a reservation and its repetitions together: 1 to 60,000; default 5,000, because such a call waits for the region's origin */
  reserveTimeoutMs?: number;
  /** further attempts of a call, 0 to 10; default 2: after an answer that nothing was decided, or if no connection could be made */
  retries?: number;
  /** how long the client repeats a denial of the same request without a call, at most, and never beyond its retryAfterMs: 0 (never) to 60,000; default 1,000. The client notices a reset, or a higher limit, only after that time */
  denyCacheMs?: number;
  /** how many denials are kept, 1 to 1,000,000; default 10,000: a further denial replaces the oldest */
  denyCacheSize?: number;
  /** default: the platform's */
  fetch?: typeof fetch;
}

export interface FieldViolation {
  field: string;
  description: string;
}

/** The error of a call that was not decided, or whose outcome is unknown. */
export class WeirError extends Error {
  /**
   * Connect's code: "invalid_argument", "unauthenticated", "unavailable", …; "deadline_exceeded" and "unknown" if no
   * answer came: the request may have been counted.
   */
  readonly code: string;
  /** the faults of the request, with "invalid_argument": fields by their names here, such as requests[3].durationMs */
  readonly violations: readonly FieldViolation[];
}

/** A client can make any number of calls at once. Use one client for the whole program. */
export class Client {
  /** Throws a TypeError that names the option and its bound. */
  constructor(options: Options);
  /** Decides a request, and counts its cost if it is allowed. A denial is an answer, not an error. */
  limit(request: Request): Promise<Decision>;
  /** Decides 1 to 1,000 requests together: all are counted, or none is. */
  limitMany(requests: readonly Request[]): Promise<Batch>;
  /** Returns the decision that limit would return, and counts nothing. */
  peek(request: Request): Promise<Decision>;
  /** Gives back the cost that limit accepted for the same request, and returns the amount given back. */
  refund(request: Request): Promise<number>;
  /** Holds the costs of 1 to 32 requests, all or none, until they are settled or the reservation ends. A denial is an answer, not an error. */
  reserve(requests: readonly Request[], options?: ReserveOptions): Promise<Reservation>;
  /** Reports the total cost spent so far of each request. The reservation goes on. */
  spend(id: string, costs: readonly number[]): Promise<Settlement>;
  /** Reports the spent cost of each request, which may be less or more than reserved, and ends the reservation. */
  settle(id: string, costs: readonly number[]): Promise<Settlement>;
  /** Settles with the cost reported so far, which may be nothing. */
  cancel(id: string): Promise<Settlement>;
  /** Moves the end to ttlMs from now, if that is later: 1,000 to 86,400,000, or 0 for a minute. */
  extend(id: string, ttlMs?: number): Promise<Settlement>;
}
