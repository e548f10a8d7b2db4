"""Client of weir-node: may this request pass?

    weir = Client("http://127.0.0.1:7001")
    d = weir.limit(Request("acme", "api", "user_42", limit=100, duration_ms=60_000))
    if not d.allowed:
        raise TooManyRequests(retry_after=d.retry_after_ms / 1000)

It needs only the standard library of Python 3.10 or newer. Several threads can use one Client, which keeps a connection to a node for each
concurrent call. You can make and use it before a process forks (gunicorn's preload, Celery, multiprocessing): a child opens its own
connections, and forgets denials.

weir.aio.AsyncClient has the same methods for asyncio.
"""

from __future__ import annotations

import time
from typing import Optional, Sequence, TypeVar

from . import _calls
from ._node import Node
from ._types import Batch, Decision, FieldViolation, Request, Reservation, Settlement, WeirError

__version__ = "0.1.0"
__all__ = ["Batch", "Client", "Decision", "FieldViolation", "Request", "Reservation", "Settlement", "WeirError"]

_T = TypeVar("_T")


class Client(_calls.Base[Node]):
    """Calls one node or several. If a node does not decide a call, the client repeats the call at the next node.

    timeout: bounds a call and its repetitions together, in seconds: 0.001 to 60. Looking up the name of a node is not bounded.
    reserve_timeout: the same for a call about a reservation, 0.001 to 60, because such a call waits for the region's origin.
    retries: further attempts of a call, 0 to 10: after an answer that nothing was decided, or if no connection could be made.
    deny_cache: seconds for which the client repeats a denial of the same request without a call, at most, and never beyond its
        retry_after_ms: 0 (never) to 60. The client notices a reset, or a higher limit, only after that time.
    deny_cache_size: how many denials are kept, 1 to 1,000,000: a further denial replaces the oldest.
    connections: idle connections that are kept for each node, 1 to 10,000.
    context: for https; default: ssl.create_default_context().
    Raises ValueError that names the option and its bound.
    """

    _node_class = Node

    def limit(self, request: Request) -> Decision:
        """Decides a request, and counts its cost if it is allowed. A denial is an answer, not an error."""
        request = _calls.checked(request)
        known = self._denials.find(request)
        if known is not None:
            return known
        decision = self._run(_calls.limit(request))
        self._denials.note(request, decision)
        return decision

    def limit_many(self, requests: Sequence[Request]) -> Batch:
        """Decides 1 to 1,000 requests together: all are counted, or none is."""
        return self._run(_calls.limit_many(requests))

    def peek(self, request: Request) -> Decision:
        """Returns the decision that limit would return, and counts nothing."""
        return self._run(_calls.peek(_calls.checked(request)))

    def refund(self, request: Request) -> int:
        """Gives back the cost that limit accepted for the same request, and returns the amount given back."""
        request = _calls.checked(request)
        refunded = self._run(_calls.refund(request))
        self._denials.forget(request)
        return refunded

    def reserve(
        self, requests: Sequence[Request], *, id: Optional[str] = None, ttl_ms: int = 0, returned: bool = False, holder: str = ""
    ) -> Reservation:
        """Holds the costs of 1 to 32 requests, all or none, until they are settled or the reservation ends.

        id: 1 to 124 bytes, unique in the region; a random id if it is left out. Any caller with the id can settle the reservation.
        ttl_ms: how long it lasts unless it is settled or extended: 1,000 to 86,400,000, or 0 for a minute.
        returned: at its end, cost that was not reported as spent is given back; otherwise all of it counts as spent.
        holder: the holder's name, for operators: at most 64 bytes.
        A denial is an answer, not an error.
        """
        return self._run(_calls.reserve(requests, id, ttl_ms, returned, holder))

    def spend(self, id: str, costs: Sequence[int]) -> Settlement:
        """Reports the total cost spent so far of each request. The reservation goes on."""
        return self._run(_calls.spend(id, costs))

    def settle(self, id: str, costs: Sequence[int]) -> Settlement:
        """Reports the spent cost of each request, which may be less or more than reserved, and ends the reservation."""
        return self._run(_calls.settle(id, costs))

    def cancel(self, id: str) -> Settlement:
        """Settles with the cost reported so far, which may be nothing."""
        return self._run(_calls.cancel(id))

    def extend(self, id: str, ttl_ms: int = 0) -> Settlement:
        """Moves the end to ttl_ms from now, if that is later: 1,000 to 86,400,000, or 0 for a minute."""
        return self._run(_calls.extend(id, ttl_ms))

    def close(self) -> None:
        """Closes idle connections. A later call opens new connections."""
        for node in self._nodes:
            node.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self, call: _calls.Call[_T]) -> _T:
        attempts = _calls.Attempts(self, call)
        while True:
            node, until = attempts.begin()
            try:
                answer = node.ask(call.method, attempts.body, self._headers, until)
            except WeirError as e:
                time.sleep(attempts.failed(e))
                continue
            return call.read(answer)
