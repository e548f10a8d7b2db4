"""Calls of a node, without I/O: requests, responses, options and attempts. Client and AsyncClient share this code."""

from __future__ import annotations

import hashlib
import json
import random
import ssl
import time
import uuid
from dataclasses import dataclass
from typing import Any, Callable, Generic, Optional, Sequence, TypeVar, Union

from . import _answers
from ._denials import Denials
from ._types import Batch, Decision, FieldViolation, Request, Reservation, Settlement, WeirError

T = TypeVar("T")
N = TypeVar("N")

_AMOUNT_MAX = 2**53 - 1
_IDENTIFIER_BYTES_MAX = 255
_LOST = ("unavailable", "deadline_exceeded", "unknown")


@dataclass(frozen=True)
class Call(Generic[T]):
    """One call of a node, however often it is attempted."""

    method: str
    body: dict[str, Any]
    read: Callable[[dict[str, Any]], T]  # makes the result from the message in the response
    repeated: Sequence[str] = ("unavailable",)  # codes after which there is another attempt
    reserves: bool = False  # it is about a reservation: it has reserve_timeout, and each attempt has a share of that


def limit(request: Request) -> Call[Decision]:
    return Call("Limit", _wire(request), _answers.decision)


def limit_many(requests: Sequence[Request]) -> Call[Batch]:
    body = _wires(requests)
    return Call("LimitMany", {"requests": body}, lambda r: Batch(_answers.boolean(r, "allowed"), _answers.decisions(r, len(body))))


def peek(request: Request) -> Call[Decision]:
    # It counts nothing, so a lost response is no reason to give up.
    return Call("Peek", _wire(request), lambda r: _answers.decision(_answers.nested(r, "response")), ("unavailable", "unknown"))


def refund(request: Request) -> Call[int]:
    return Call("Refund", _wire(request), lambda r: _answers.integer(r, "refunded"))


def reserve(requests: Sequence[Request], id: Optional[str], ttl_ms: int, returned: bool, holder: str) -> Call[Reservation]:
    id = str(uuid.uuid4()) if id is None else id
    body = {
        "id": _text("id", id),
        "requests": _wires(requests),
        "ttl_ms": _whole("ttl_ms", ttl_ms),
        "returned": bool(returned),
        "holder": _text("holder", holder),
    }

    def read(r: dict[str, Any]) -> Reservation:
        decisions = _answers.decisions(r, len(body["requests"]))
        return Reservation(id, _answers.boolean(r, "allowed"), decisions, _answers.integer(r, "ends_at_ms"))

    return Call("Reserve", body, read, _LOST, True)


def spend(id: str, costs: Sequence[int]) -> Call[Settlement]:
    return _about("Settle", {"id": _text("id", id), "costs": _wholes("costs", costs), "more": True})


def settle(id: str, costs: Sequence[int]) -> Call[Settlement]:
    return _about("Settle", {"id": _text("id", id), "costs": _wholes("costs", costs)})


def cancel(id: str) -> Call[Settlement]:
    return _about("Cancel", {"id": _text("id", id)})


def extend(id: str, ttl_ms: int) -> Call[Settlement]:
    return _about("Extend", {"id": _text("id", id), "ttl_ms": _whole("ttl_ms", ttl_ms)})


def _about(method: str, body: dict[str, Any]) -> Call[Settlement]:
    # A call about a reservation changes nothing when it is made again with the same id: it is repeated after any loss.
    return Call(method, body, _answers.settlement, _LOST, True)


class Base(Generic[N]):
    """The options and the state of a client, for one node or several. N is the class of its nodes."""

    _node_class: Callable[[str, int, Optional[ssl.SSLContext]], N]

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
        self._nodes = [self._node_class(one, connections, context) for one in urls]
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


class Attempts(Generic[N]):
    """The attempts of one call: the node and the deadline of each, and whether another one follows.

    A call that counts is repeated if nothing was decided, and never if its cost may have been counted: it would count twice. If an
    attempt without a response in time is repeated, the attempts share the time of the call.
    """

    def __init__(self, client: Base[N], call: Call[Any]):
        self._client = client
        self._call = call
        self._deadline = time.monotonic() + (client._reserve_timeout if call.reserves else client._timeout)
        self._shares = client._retries + 1 if call.reserves else 1
        self._made = 0
        self._at = 0
        self.body = json.dumps(call.body).encode()

    def begin(self) -> tuple[N, float]:
        """Returns the node of the next attempt, and the attempt's deadline."""
        self._at = self._client._next % len(self._client._nodes)
        now = time.monotonic()
        return self._client._nodes[self._at], now + (self._deadline - now) / max(1, self._shares - self._made)

    def failed(self, e: WeirError) -> float:
        """Returns the seconds to wait before the next attempt. Raises e if there is none."""
        if e.code in _LOST:  # the next call goes to another node in any case
            self._client._next = (self._at + 1) % len(self._client._nodes)
        wait = min(e.retry_after, 0.025 * 2**self._made) * random.uniform(0.5, 1)
        if e.code not in self._call.repeated or self._made >= self._client._retries or time.monotonic() + wait >= self._deadline:
            raise e
        self._made += 1
        return wait


def checked(r: Any, at: str = "") -> Request:
    """Returns the request that is sent for r: each value has its own type, and the identifier is the counted one."""
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


def _wires(requests: Sequence[Request]) -> list[dict[str, Any]]:
    return [_wire(checked(r, f"requests[{i}]")) for i, r in enumerate(_all("requests", requests))]


def _wire(r: Request) -> dict[str, Any]:
    body = {
        "workspace": r.workspace,
        "namespace": r.namespace,
        "identifier": r.identifier,
        "limit": r.limit,
        "duration_ms": r.duration_ms,
    }
    return {**body, "zero_cost": True} if r.cost == 0 else {**body, "cost": r.cost}


def _counted(name: str) -> str:
    """Returns the identifier under which a node counts a name: above 255 bytes its SHA-256. A limited caller may choose a name that is longer
    than a call may be, so the client does the same as the node. Halves of a surrogate pair are read as the node reads them in JSON."""
    if 4 * len(name) <= _IDENTIFIER_BYTES_MAX:
        return name
    pairs = name.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    text = pairs.encode("utf-8", "surrogatepass")
    return name if len(text) <= _IDENTIFIER_BYTES_MAX else "sha256:" + hashlib.sha256(text).hexdigest()


def _whole(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise _wrong(name, f"is {_answers.brief(value)} (a whole number, 0 to 2**53 - 1)")
    number = int.__index__(value)  # a plain int, because a subclass may compare in its own way
    if not 0 <= number <= _AMOUNT_MAX:
        raise _wrong(name, f"is {_answers.brief(number)} (a whole number, 0 to 2**53 - 1)")
    return number


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise _wrong(name, f"is {_answers.brief(value)} (a string)")
    return str.__str__(value)  # a plain str, because a subclass may compare in its own way


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
