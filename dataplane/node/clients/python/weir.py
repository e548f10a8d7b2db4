"""Client of weir-node: may this request pass?

    weir = Client("http://127.0.0.1:7001")
    d = weir.limit(Request("acme", "api", "user_42", limit=100, duration_ms=60_000))
    if not d.allowed:
        raise TooManyRequests(retry_after=d.retry_after_ms / 1000)

It needs nothing besides the standard library of Python 3.10 or newer. A Client is safe for use by several threads; it keeps a connection to
a node for each call at once.
"""

from __future__ import annotations

import http.client
import json
import random
import ssl
import threading
import time
import uuid
from collections import OrderedDict
from dataclasses import dataclass, field, replace
from typing import Any, Optional, Sequence, Union
from urllib.parse import urlsplit

__version__ = "0.1.0"
__all__ = ["Batch", "Client", "Decision", "FieldViolation", "Request", "Reservation", "Settlement", "WeirError"]

_SERVICE = "/weir.v1.RateLimitService/"
_ANSWER_MAX = 4 << 20  # bytes of an answer: a thousand decisions are some 300 KB
_AMOUNT_MAX = 2**53 - 1
_LOST = ("unavailable", "deadline_exceeded", "unknown")


@dataclass(frozen=True)
class Request:
    """What a request may spend, and of whom: see weir/v1/ratelimit.proto."""

    workspace: str  # 1 to 191 bytes
    namespace: str  # 1 to 255 bytes
    identifier: str  # 1 to 255 bytes
    limit: int  # cost allowed in any duration_ms: 0 (blocks) to 2**53 - 1
    duration_ms: int  # length of the sliding window: 1,000 to 31,622,400,000 (366 days)
    cost: int = 1  # 0 (counts nothing) to 2**53 - 1


@dataclass(frozen=True)
class Decision:
    allowed: bool
    limit: int  # that was applied: an override may change it
    remaining: int  # never negative; a denied cost is not subtracted
    reset_at_ms: int  # Unix ms: end of the fixed cell of this decision
    retry_after_ms: int  # until the same request would pass; 0 when allowed, and with never_passes
    current: float  # what was compared with the limit, the cost included
    source: str  # local, origin, degraded, degraded-open, degraded-closed
    shadowed: bool  # over the limit, and allowed only because of shadow mode
    override: str  # pattern of the override that applied
    candidate_denied: bool  # the candidate limit of that override would have denied
    duration_ms: int  # of the window that was applied
    never_passes: bool  # denied, and no waiting helps: the cost is more than the limit
    cached: bool = False  # answered by this client, from a denial of the node's


@dataclass(frozen=True)
class Batch:
    allowed: bool  # True: all requests were counted; False: none was
    decisions: list[Decision]  # each request's own verdict, in order


@dataclass(frozen=True)
class Reservation:
    id: str  # that settles it
    allowed: bool  # True: all of it is reserved; False: nothing is
    decisions: list[Decision]  # each request's own verdict, in order
    ends_at_ms: int  # Unix ms, by the origin's clock


@dataclass(frozen=True)
class Settlement:
    """What a reservation is after a call about it."""

    id: str
    spent: list[int]  # of each request, as far as it was said
    settled: bool  # nothing can change any more
    late: bool  # it was settled or had ended before: the call has changed nothing. So it is when a call whose answer was lost is repeated
    ends_at_ms: int


@dataclass(frozen=True)
class FieldViolation:
    field: str
    description: str


class WeirError(Exception):
    """A call that was not decided, or of which that is not known.

    code is Connect's: "invalid_argument", "unauthenticated", "unavailable" and so on; "deadline_exceeded" and "unknown"
    where no answer came: the request may have been counted. violations say what is wrong with the request.
    """

    def __init__(self, code: str, message: str, violations: Sequence[FieldViolation] = (), retry_after: float = 0):
        super().__init__(f"weir: {code}: {message}")
        self.code = code
        self.violations = list(violations)
        self.retry_after = retry_after  # seconds; 0: not said


class Client:
    """Asks one node or several; a call that a node did not decide goes to the next one.

    timeout: seconds of a call, its repetitions included: 0.001 to 60. Looking up the name of a node is not bounded.
    reserve_timeout: seconds of a call about a reservation, its repetitions included, 0.001 to 60: such a call waits for the region's origin.
    retries: more attempts of a call, 0 to 10: after an answer that nothing was decided, or where no connection came about.
    deny_cache: seconds for which a denial of the same request is repeated without asking, at most, and never beyond its retry_after_ms: 0
        (not at all) to 60. A reset, or a higher limit, takes as long to be noticed.
    deny_cache_size: denials that are kept, 1 to 1,000,000: the oldest goes.
    connections: idle ones that are kept for each node, 1 to 10,000.
    context: for https; default: ssl.create_default_context().
    Raises ValueError that names the option and its bound.
    """

    def __init__(
        self,
        url: Union[str, Sequence[str]],
        *,
        token: Optional[str] = None,
        timeout: float = 0.25,
        reserve_timeout: float = 5.0,
        retries: int = 2,
        deny_cache: float = 1.0,
        deny_cache_size: int = 10_000,
        connections: int = 32,
        context: Optional[ssl.SSLContext] = None,
    ):
        _bounded("timeout", timeout, 0.001, 60)
        _bounded("reserve_timeout", reserve_timeout, 0.001, 60)
        _bounded("retries", retries, 0, 10)
        _bounded("deny_cache", deny_cache, 0, 60)
        _bounded("deny_cache_size", deny_cache_size, 1, 1_000_000)
        _bounded("connections", connections, 1, 10_000)
        urls = [url] if isinstance(url, str) else list(url)
        if not urls:
            raise ValueError("weir: url is empty (one node's, or several)")
        self._nodes = [_Node(one, connections, context) for one in urls]
        self._next = 0
        self._timeout = timeout
        self._reserve_timeout = reserve_timeout
        self._retries = retries
        self._headers = {"Content-Type": "application/json", "Connect-Protocol-Version": "1"}
        if token is not None:
            if not (token and token.isascii() and token.isprintable()):
                raise ValueError("weir: token is empty, or holds a character that no header may")
            self._headers["Authorization"] = f"Bearer {token}"
        self._denials = _Denials(deny_cache, deny_cache_size)

    def limit(self, request: Request) -> Decision:
        """Decides a request, and counts its cost if it is allowed. A denial is an answer, not an error."""
        known = self._denials.find(request)
        if known is not None:
            return known
        decision = _decision(self._call("Limit", _wire(request)))
        self._denials.note(request, decision)
        return decision

    def limit_many(self, requests: Sequence[Request]) -> Batch:
        """Decides 1 to 1,000 requests as one: all are counted, or none is."""
        answer = self._call("LimitMany", {"requests": _wires(requests)})
        return Batch(answer.get("allowed", False), [_decision(r) for r in answer.get("responses", [])])

    def peek(self, request: Request) -> Decision:
        """Answers what limit would, and counts nothing."""
        return _decision(self._call("Peek", _wire(request), ("unavailable", "unknown")).get("response", {}))

    def refund(self, request: Request) -> int:
        """Gives back the cost that limit has accepted for the same request, and answers how much that was."""
        refunded = int(self._call("Refund", _wire(request)).get("refunded", 0))
        self._denials.forget(request)
        return refunded

    def reserve(
        self, requests: Sequence[Request], *, id: Optional[str] = None, ttl_ms: int = 0, returned: bool = False, holder: str = ""
    ) -> Reservation:
        """Holds the costs of 1 to 32 requests, all or none, until they are settled or the reservation ends.

        id: 1 to 124 bytes, unique in the region; a random one if it is left out. Every caller that knows it can settle.
        ttl_ms: how long it lasts unless it is settled or extended: 1,000 to 86,400,000, or 0 for a minute.
        returned: gives back at its end what was not said to be spent; otherwise all of it counts as spent.
        holder: who it is, for operators: at most 64 bytes.
        A denial is an answer, not an error.
        """
        id = str(uuid.uuid4()) if id is None else id
        body = {"id": id, "requests": _wires(requests), "ttl_ms": _whole("ttl_ms", ttl_ms), "returned": returned, "holder": holder}
        answer = self._about("Reserve", body)
        decisions = [_decision(r) for r in answer.get("responses", [])]
        return Reservation(id, answer.get("allowed", False), decisions, int(answer.get("ends_at_ms", 0)))

    def spend(self, id: str, costs: Sequence[int]) -> Settlement:
        """Says what was spent so far, in all, of each request; the reservation goes on."""
        return _settlement(self._about("Settle", {"id": id, "costs": _wholes("costs", costs), "more": True}))

    def settle(self, id: str, costs: Sequence[int]) -> Settlement:
        """Says what was spent of each request, less or more than reserved, and ends the reservation."""
        return _settlement(self._about("Settle", {"id": id, "costs": _wholes("costs", costs)}))

    def cancel(self, id: str) -> Settlement:
        """Settles with what was said to be spent, which may be nothing."""
        return _settlement(self._about("Cancel", {"id": id}))

    def extend(self, id: str, ttl_ms: int = 0) -> Settlement:
        """Has the reservation end ttl_ms from now, if that is later: 1,000 to 86,400,000, or 0 for a minute."""
        return _settlement(self._about("Extend", {"id": id, "ttl_ms": _whole("ttl_ms", ttl_ms)}))

    def close(self) -> None:
        """Closes idle connections. A call after it opens new ones."""
        for node in self._nodes:
            node.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _about(self, method: str, body: dict[str, Any]) -> dict[str, Any]:
        # A call about a reservation changes nothing when it is made again with the same id: it is repeated whatever was lost.
        return self._call(method, body, _LOST, self._reserve_timeout, self._retries + 1)

    def _call(
        self,
        method: str,
        body: dict[str, Any],
        repeated: Sequence[str] = ("unavailable",),
        timeout: Optional[float] = None,
        shares: int = 1,
    ) -> dict[str, Any]:
        # A call that counts is repeated where nothing was decided, and never where it may have been: it would count twice. Its time is
        # shared between so many attempts, if an attempt that was not answered in time is repeated.
        deadline = time.monotonic() + (self._timeout if timeout is None else timeout)
        text = json.dumps(body).encode()
        attempt = 0
        while True:
            at = self._next
            now = time.monotonic()
            until = now + (deadline - now) / max(1, shares - attempt)
            try:
                return self._nodes[at % len(self._nodes)].ask(method, text, self._headers, until)
            except WeirError as e:
                if e.code in _LOST:
                    self._next = (at + 1) % len(self._nodes)  # the next call goes to another node in any case
                undecided = e.code in repeated
                wait = min(e.retry_after, 0.025 * 2**attempt) * random.uniform(0.5, 1)
                if not undecided or attempt >= self._retries or time.monotonic() + wait >= deadline:
                    raise
                time.sleep(wait)
                attempt += 1


class _Node:
    def __init__(self, url: str, connections: int, context: Optional[ssl.SSLContext]):
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"weir: url is {url!r} (http://… or https://…)")
        self._at = (parts.hostname, parts.port)
        self._path = parts.path.rstrip("/") + _SERVICE
        self._context = None
        if parts.scheme == "https":
            self._context = context or ssl.create_default_context()
        self._idle: list[http.client.HTTPConnection] = []
        self._idle_max = connections
        self._lock = threading.Lock()

    def ask(self, method: str, body: bytes, headers: dict[str, str], deadline: float) -> dict[str, Any]:
        connection = self._take(deadline)
        try:
            status, said, text = self._exchange(connection, self._path + method, body, headers, deadline)
        except BaseException:
            connection.close()
            raise
        self._put(connection)
        try:
            message = json.loads(text)
        except (ValueError, RecursionError) as e:
            raise WeirError("unknown", f"status {status} with a body that is no JSON") from e
        if not isinstance(message, dict):
            raise WeirError("unknown", f"status {status} with a body that is no object")
        if status == 200:
            return message
        violations = [
            FieldViolation(str(v.get("field", "")), str(v.get("description", "")))
            for detail in _list(message.get("details"))
            for v in _list(_dict(_dict(detail).get("debug")).get("fieldViolations"))
            if isinstance(v, dict)
        ]
        try:
            retry_after = float(said.get("Retry-After") or 0)
        except ValueError:
            retry_after = 0
        if not 0 <= retry_after <= 3600:
            retry_after = 0
        said = message.get("message", f"status {status}")
        raise WeirError(str(message.get("code", "unknown")), said, violations, retry_after)

    def _exchange(self, connection, path, body, headers, deadline):
        left = _left(deadline)
        connection.sock.settimeout(left)
        try:
            connection.request("POST", path, body, {**headers, "Connect-Timeout-Ms": str(max(1, int(left * 1000)))})
            answer = connection.getresponse()
            text = b""
            while len(text) <= _ANSWER_MAX:
                left = _left(deadline)
                if connection.sock is not None:  # else the node has said that it closes
                    connection.sock.settimeout(left)
                part = answer.read1(65536)
                if not part:
                    break
                text += part
            answer.close()  # all of it has been read: the connection is free for another call
        except TimeoutError as e:
            raise WeirError("deadline_exceeded", "no answer in time") from e
        except (OSError, http.client.HTTPException) as e:
            raise WeirError("unknown", f"{type(e).__name__}: {e}") from e
        if len(text) > _ANSWER_MAX:
            raise WeirError("unknown", f"the answer is longer than {_ANSWER_MAX} bytes")
        return answer.status, answer.headers, text

    def _take(self, deadline: float) -> http.client.HTTPConnection:
        """A connection that is open: what is sent on it may arrive. An idle one that the node has closed is found out here."""
        while True:
            with self._lock:
                connection = self._idle.pop() if self._idle else None
            if connection is None:
                break
            if connection.sock is not None and not _over(connection.sock):
                return connection
            connection.close()
        left = _left(deadline)
        if self._context is None:
            connection = http.client.HTTPConnection(*self._at, timeout=left)
        else:
            connection = http.client.HTTPSConnection(*self._at, timeout=left, context=self._context)
        try:
            connection.connect()
        except OSError as e:  # nothing was sent
            raise WeirError("unavailable", f"{type(e).__name__}: {e}") from e
        return connection

    def _put(self, connection: http.client.HTTPConnection) -> None:
        with self._lock:
            if connection.sock is not None and len(self._idle) < self._idle_max:
                self._idle.append(connection)
                return
        connection.close()

    def close(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()


def _over(sock) -> bool:
    """Whether the other side has closed, or said something that nobody asked for."""
    try:
        sock.settimeout(0)
        return sock.recv(1) is not None  # b"" or a byte: neither is expected
    except (BlockingIOError, ssl.SSLWantReadError):
        return False
    except OSError:
        return True


@dataclass
class _Denial:
    decision: Decision
    cost: int
    limit: int
    until: float
    passes_at: float


@dataclass
class _Denials:
    """A denial is repeated for some time: the same request would be denied again, and the node has better to do."""

    keep: float
    size: int
    by_key: OrderedDict = field(default_factory=OrderedDict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def find(self, r: Request) -> Optional[Decision]:
        with self.lock:
            known = self.by_key.get(_key(r))
        if known is None or r.cost != known.cost or r.limit != known.limit:
            return None
        now = time.monotonic()
        if now >= known.until:
            self.forget(r)
            return None
        wait = known.decision.retry_after_ms and max(1, round((known.passes_at - now) * 1000))
        return replace(known.decision, retry_after_ms=wait, cached=True)

    def note(self, r: Request, d: Decision) -> None:
        keep = self.keep if d.never_passes else min(self.keep, d.retry_after_ms / 1000)
        now = time.monotonic()
        with self.lock:
            self.by_key.pop(_key(r), None)
            if d.allowed or keep <= 0:
                return
            if len(self.by_key) >= self.size:
                self.by_key.popitem(last=False)
            self.by_key[_key(r)] = _Denial(d, r.cost, r.limit, now + keep, now + d.retry_after_ms / 1000)

    def forget(self, r: Request) -> None:
        with self.lock:
            self.by_key.pop(_key(r), None)


def _list(value: Any) -> list:
    return value if isinstance(value, list) else []


def _dict(value: Any) -> dict:
    return value if isinstance(value, dict) else {}


def _key(r: Request) -> tuple:
    return (r.workspace, r.namespace, r.identifier, r.duration_ms)


def _wires(requests: Sequence[Request]) -> list[dict[str, Any]]:
    return [_wire(r, f"requests[{i}].") for i, r in enumerate(_all("requests", requests))]


def _wire(r: Request, at: str = "") -> dict[str, Any]:
    for name in ("limit", "duration_ms", "cost"):
        _whole(at + name, getattr(r, name))
    body = {
        "workspace": r.workspace,
        "namespace": r.namespace,
        "identifier": r.identifier,
        "limit": r.limit,
        "duration_ms": r.duration_ms,
    }
    return {**body, "zero_cost": True} if r.cost == 0 else {**body, "cost": r.cost}


def _whole(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _AMOUNT_MAX:
        raise _wrong(name, f"is {value!r} (a whole number, 0 to 2**53 - 1)")
    return value


def _wholes(name: str, values: Any) -> list[int]:
    return [_whole(f"{name}[{i}]", v) for i, v in enumerate(_all(name, values))]


def _all(name: str, values: Any) -> list[Any]:
    try:
        return list(values)
    except TypeError:
        raise _wrong(name, f"is {values!r} (a list)") from None


def _wrong(name: str, said: str) -> WeirError:
    return WeirError("invalid_argument", f"{name} {said}", [FieldViolation(name, said)])


def _settlement(answer: dict[str, Any]) -> Settlement:
    s = _dict(answer.get("settlement"))
    spent = [int(c) for c in _list(s.get("spent"))]
    return Settlement(s.get("id", ""), spent, s.get("settled", False), s.get("late", False), int(s.get("ends_at_ms", 0)))


def _decision(r: dict[str, Any]) -> Decision:
    return Decision(
        allowed=r.get("allowed", False),
        limit=int(r.get("limit", 0)),
        remaining=int(r.get("remaining", 0)),
        reset_at_ms=int(r.get("reset_at_ms", 0)),
        retry_after_ms=int(r.get("retry_after_ms", 0)),
        current=float(r.get("current", 0)),
        source=r.get("source", "SOURCE_UNSPECIFIED")[len("SOURCE_") :].lower().replace("_", "-"),
        shadowed=r.get("shadowed", False),
        override=r.get("override", ""),
        candidate_denied=r.get("candidate_denied", False),
        duration_ms=int(r.get("duration_ms", 0)),
        never_passes=r.get("never_passes", False),
    )


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise WeirError("deadline_exceeded", "no answer in time")
    return left


def _bounded(name: str, value: float, least: float, most: float) -> None:
    if not least <= value <= most:
        raise ValueError(f"weir: {name} is {value!r} ({least} to {most})")
