"""Denials that are repeated for some time, because the node would deny the same request again. That saves calls."""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import Optional

from ._types import Decision, Request


@dataclass
class _Denial:
    decision: Decision
    cost: int
    limit: int
    until: float
    passes_at: float


class Denials:
    def __init__(self, keep: float, size: int):
        self._keep = keep
        self._size = size
        self.clear()
        _all.add(self)

    def clear(self) -> None:
        self._by_key: OrderedDict[tuple, _Denial] = OrderedDict()
        self._lock = threading.Lock()

    def find(self, r: Request) -> Optional[Decision]:
        with self._lock:
            known = self._by_key.get(_key(r))
        if known is None or r.cost != known.cost or r.limit != known.limit:
            return None
        now = time.monotonic()
        if now >= known.until:
            self.forget(r)
            return None
        wait = known.decision.retry_after_ms and max(1, round((known.passes_at - now) * 1000))
        return replace(known.decision, retry_after_ms=wait, cached=True)

    def note(self, r: Request, d: Decision) -> None:
        keep = self._keep if d.never_passes else min(self._keep, d.retry_after_ms / 1000)
        now = time.monotonic()
        with self._lock:
            self._by_key.pop(_key(r), None)
            if d.allowed or keep <= 0:
                return
            if len(self._by_key) >= self._size:
                self._by_key.popitem(last=False)
            self._by_key[_key(r)] = _Denial(d, r.cost, r.limit, now + keep, now + d.retry_after_ms / 1000)

    def forget(self, r: Request) -> None:
        with self._lock:
            self._by_key.pop(_key(r), None)


def _key(r: Request) -> tuple:
    return (r.workspace, r.namespace, r.identifier, r.duration_ms)


_all: weakref.WeakSet[Denials] = weakref.WeakSet()


def _clear_all() -> None:
    for denials in list(_all):
        denials.clear()


# Another thread may have held the lock, and changed the map, when its process was forked.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_clear_all)
