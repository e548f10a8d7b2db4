"""Client of weir-node: may this request pass?

    weir = Client("http://127.0.0.1:7001")
    d = weir.limit(Request("acme", "api", "user_42", limit=100, duration_ms=60_000))
    if not d.allowed:
        raise TooManyRequests(retry_after=d.retry_after_ms / 1000)

It needs nothing besides the standard library of Python 3.10 or newer. A Client is safe for use by several threads; it keeps a connection to
a node for each call at once. It may be made and used before a process forks (gunicorn's preload, Celery, multiprocessing): a child opens
connections of its own, and forgets denials.
"""

from __future__ import annotations

import hashlib
import json
import random
import ssl
import time
import uuid
from typing import Any, Optional, Sequence, Union

from . import _answers
from ._denials import Denials
from ._node import Node
from ._types import Batch, Decision, FieldViolation, Request, Reservation, Settlement, WeirError

__version__ = "0.1.0"
__all__ = ["Batch", "Client", "Decision", "FieldViolation", "Request", "Reservation", "Settlement", "WeirError"]

_AMOUNT_MAX = 2**53 - 1
_IDENTIFIER_BYTES_MAX = 255
_LOST = ("unavailable", "deadline_exceeded", "unknown")


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
        _bounded("retries", retries, 0, 10, int)
        _bounded("deny_cache", deny_cache, 0, 60)
        _bounded("deny_cache_size", deny_cache_size, 1, 1_000_000, int)
        _bounded("connections", connections, 1, 10_000, int)
        try:
            urls = [url] if isinstance(url, str) else list(url)
        except TypeError:
            raise ValueError(f"weir: url is {_answers.brief(url)} (one node's, or several)") from None
        if not urls:
            raise ValueError("weir: url is empty (one node's, or several)")
        self._nodes = [Node(one, connections, context) for one in urls]
        self._next = 0
        self._timeout = timeout
        self._reserve_timeout = reserve_timeout
        self._retries = retries
        self._headers = {"Content-Type": "application/json", "Connect-Protocol-Version": "1"}
        if token is not None:
            if not (isinstance(token, str) and token and token.isascii() and token.isprintable()):
                raise ValueError("weir: token is empty, or holds a character that no header may")
            self._headers["Authorization"] = f"Bearer {token}"
        self._denials = Denials(deny_cache, deny_cache_size)

    def limit(self, request: Request) -> Decision:
        """Decides a request, and counts its cost if it is allowed. A denial is an answer, not an error."""
        request = _request(request)
        known = self._denials.find(request)
        if known is not None:
            return known
        decision = _answers.decision(self._call("Limit", _wire(request)))
        self._denials.note(request, decision)
        return decision

    def limit_many(self, requests: Sequence[Request]) -> Batch:
        """Decides 1 to 1,000 requests as one: all are counted, or none is."""
        body = _wires(requests)
        answer = self._call("LimitMany", {"requests": body})
        return Batch(_answers.boolean(answer, "allowed"), _answers.decisions(answer, len(body)))

    def peek(self, request: Request) -> Decision:
        """Answers what limit would, and counts nothing."""
        answer = self._call("Peek", _wire(_request(request)), ("unavailable", "unknown"))
        return _answers.decision(_answers.nested(answer, "response"))

    def refund(self, request: Request) -> int:
        """Gives back the cost that limit has accepted for the same request, and answers how much that was."""
        request = _request(request)
        refunded = _answers.integer(self._call("Refund", _wire(request)), "refunded")
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
        body = {
            "id": _text("id", id),
            "requests": _wires(requests),
            "ttl_ms": _whole("ttl_ms", ttl_ms),
            "returned": bool(returned),
            "holder": _text("holder", holder),
        }
        answer = self._about("Reserve", body)
        decisions = _answers.decisions(answer, len(body["requests"]))
        return Reservation(id, _answers.boolean(answer, "allowed"), decisions, _answers.integer(answer, "ends_at_ms"))

    def spend(self, id: str, costs: Sequence[int]) -> Settlement:
        """Says what was spent so far, in all, of each request; the reservation goes on."""
        return _answers.settlement(self._about("Settle", {"id": _text("id", id), "costs": _wholes("costs", costs), "more": True}))

    def settle(self, id: str, costs: Sequence[int]) -> Settlement:
        """Says what was spent of each request, less or more than reserved, and ends the reservation."""
        return _answers.settlement(self._about("Settle", {"id": _text("id", id), "costs": _wholes("costs", costs)}))

    def cancel(self, id: str) -> Settlement:
        """Settles with what was said to be spent, which may be nothing."""
        return _answers.settlement(self._about("Cancel", {"id": _text("id", id)}))

    def extend(self, id: str, ttl_ms: int = 0) -> Settlement:
        """Has the reservation end ttl_ms from now, if that is later: 1,000 to 86,400,000, or 0 for a minute."""
        return _answers.settlement(self._about("Extend", {"id": _text("id", id), "ttl_ms": _whole("ttl_ms", ttl_ms)}))

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


def _wires(requests: Sequence[Request]) -> list[dict[str, Any]]:
    return [_wire(_request(r, f"requests[{i}]")) for i, r in enumerate(_all("requests", requests))]


def _wire(r: Request) -> dict[str, Any]:
    body = {
        "workspace": r.workspace,
        "namespace": r.namespace,
        "identifier": r.identifier,
        "limit": r.limit,
        "duration_ms": r.duration_ms,
    }
    return {**body, "zero_cost": True} if r.cost == 0 else {**body, "cost": r.cost}


def _request(r: Any, at: str = "") -> Request:
    """The request that is sent for r: each value has its own type, and the identifier is the one that is counted."""
    if not isinstance(r, Request):
        raise _wrong(at or "request", f"is {_answers.brief(r)} (a weir.Request)")
    before = at and at + "."
    return Request(
        _text(before + "workspace", r.workspace),
        _text(before + "namespace", r.namespace),
        _counted(_text(before + "identifier", r.identifier)),
        _whole(before + "limit", r.limit),
        _whole(before + "duration_ms", r.duration_ms),
        _whole(before + "cost", r.cost),
    )


def _counted(name: str) -> str:
    """The identifier under which a node counts a name: beyond 255 bytes its SHA-256. A limited caller may choose a name that is longer than a
    call may be, so the client does what the node would do. Halves of a surrogate pair are read as the node reads them in JSON."""
    if 4 * len(name) <= _IDENTIFIER_BYTES_MAX:
        return name
    pairs = name.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    text = pairs.encode("utf-8", "surrogatepass")
    return name if len(text) <= _IDENTIFIER_BYTES_MAX else "sha256:" + hashlib.sha256(text).hexdigest()


def _whole(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise _wrong(name, f"is {_answers.brief(value)} (a whole number, 0 to 2**53 - 1)")
    number = int.__index__(value)  # a plain one: a subclass may compare as it likes
    if not 0 <= number <= _AMOUNT_MAX:
        raise _wrong(name, f"is {_answers.brief(number)} (a whole number, 0 to 2**53 - 1)")
    return number


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise _wrong(name, f"is {_answers.brief(value)} (a string)")
    return str.__str__(value)  # a plain one: a subclass may be equal to what it likes


def _wholes(name: str, values: Any) -> list[int]:
    return [_whole(f"{name}[{i}]", v) for i, v in enumerate(_all(name, values))]


def _all(name: str, values: Any) -> list[Any]:
    try:
        return list(values)
    except TypeError:
        raise _wrong(name, f"is {_answers.brief(values)} (a list)") from None


def _wrong(name: str, said: str) -> WeirError:
    return WeirError("invalid_argument", f"{name} {said}", [FieldViolation(name, said)])


def _bounded(name: str, value: float, least: float, most: float, kind: Any = (int, float)) -> None:
    if isinstance(value, bool) or not isinstance(value, kind) or not least <= value <= most:
        whole = "a whole number, " if kind is int else ""
        raise ValueError(f"weir: {name} is {_answers.brief(value)} ({whole}{least} to {most})")
