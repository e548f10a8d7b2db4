"""What callers give and get: requests, decisions and errors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Sequence


@dataclass(frozen=True)
class Request:
    """What a request may spend, and of whom: see weir/v1/ratelimit.proto."""

    workspace: str  # 1 to 191 bytes
    namespace: str  # 1 to 255 bytes
    identifier: str  # 1 byte or more; past 255 bytes its SHA-256 is counted
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
    where no answer came, or one that is not a node's: the request may have been counted. violations are the fields of the
    request that are at fault.
    """

    def __init__(self, code: str, message: str, violations: Sequence[FieldViolation] = (), retry_after: float = 0):
        super().__init__(f"weir: {code}: {message}")
        self.code = code
        self.violations = list(violations)
        self.retry_after = retry_after  # seconds; 0: not said
