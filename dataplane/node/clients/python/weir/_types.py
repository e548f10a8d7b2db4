"""Requests, decisions and errors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Sequence


@dataclass(frozen=True)
class Request:
    """A request for a cost on a key: see weir/v1/ratelimit.proto. For example, 1 of user_42's 100 in any 60,000 ms."""

    workspace: str  # 1 to 191 bytes
    namespace: str  # 1 to 255 bytes
    identifier: str  # 1 byte or more; above 255 bytes, it is counted under its SHA-256
    limit: int  # cost allowed in any duration_ms: 0 (blocks) to 2**53 - 1
    duration_ms: int  # length of the sliding window: 1,000 to 31,622,400,000 (366 days)
    cost: int = 1  # 0 (counts nothing) to 2**53 - 1


@dataclass(frozen=True)
class Decision:
    allowed: bool
    limit: int  # the applied limit: an override may change it
    remaining: int  # never negative; a denied cost is not subtracted
    reset_at_ms: int  # Unix ms: end of the fixed cell of this decision
    retry_after_ms: int  # until the same request would pass; 0 when allowed, and with never_passes
    current: float  # the value that was compared with the limit, the cost included
    source: str  # local, origin, degraded, degraded-open, degraded-closed
    shadowed: bool  # over the limit, and allowed only because of shadow mode
    override: str  # pattern of the override that applied
    candidate_denied: bool  # the candidate limit of that override would have denied
    duration_ms: int  # length of the applied window
    never_passes: bool  # denied, and no waiting helps: the cost is more than the limit
    cached: bool = False  # answered by this client, from an earlier denial by the node


@dataclass(frozen=True)
class Batch:
    allowed: bool  # True: all requests were counted; False: none was
    decisions: list[Decision]  # the decision on each request, in order


@dataclass(frozen=True)
class Reservation:
    id: str  # the id to settle it with
    allowed: bool  # True: all of it is reserved; False: nothing is
    decisions: list[Decision]  # the decision on each request, in order
    ends_at_ms: int  # Unix ms, by the origin's clock


@dataclass(frozen=True)
class Settlement:
    """The state of a reservation after a call about it."""

    id: str
    spent: list[int]  # the reported cost of each request
    settled: bool  # nothing can change any more
    late: bool  # it was settled or had ended before, so the call changed nothing: for example, the call repeats a call whose answer was lost
    ends_at_ms: int


@dataclass(frozen=True)
class FieldViolation:
    field: str
    description: str


class WeirError(Exception):
    """The error of a call that was not decided, or whose outcome is unknown.

    code is Connect's: "invalid_argument", "unauthenticated", "unavailable" and so on; "deadline_exceeded" and "unknown"
    if no answer came, or an answer that is not a node's: the request may have been counted. violations are the faulty
    fields of the request.
    """

    def __init__(self, code: str, message: str, violations: Sequence[FieldViolation] = (), retry_after: float = 0):
        super().__init__(f"weir: {code}: {message}")
        self.code = code
        self.violations = list(violations)
        self.retry_after = retry_after  # seconds; 0: the answer has none
