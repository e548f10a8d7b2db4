"""Answers of a node. If a field does not have its type, the whole answer is an error: nothing is guessed."""

from __future__ import annotations

import json
import math
from typing import Any, Optional

from ._types import Decision, FieldViolation, Settlement, WeirError

_INT_MAX = 2**63 - 1


def message(status: int, text: bytes, retry_after: Optional[str]) -> dict[str, Any]:
    """The message in an answer. Raises the error with which the node refused the call."""
    try:
        read = json.loads(text.decode("utf-8"))
    except (ValueError, RecursionError) as e:
        raise WeirError("unknown", f"status {status} with a body that is no JSON") from e
    if not isinstance(read, dict):
        raise WeirError("unknown", f"status {status} with a body that is no object")
    if status == 200:
        return read
    violations = [
        FieldViolation(str(v.get("field", "")), str(v.get("description", "")))
        for detail in _list(read.get("details"))
        for v in _list(_dict(_dict(detail).get("debug")).get("fieldViolations"))
        if isinstance(v, dict)
    ]
    code, said = read.get("code"), read.get("message")
    raise WeirError(
        code if isinstance(code, str) else "unknown",
        said if isinstance(said, str) else f"status {status}",
        violations,
        _seconds(retry_after),
    )


def _seconds(text: Optional[str]) -> float:
    try:
        seconds = float(text or 0)
    except ValueError:
        return 0
    return seconds if 0 <= seconds <= 3600 else 0


def decision(r: dict[str, Any]) -> Decision:
    source = string(r, "source") or "SOURCE_UNSPECIFIED"
    return Decision(
        allowed=boolean(r, "allowed"),
        limit=integer(r, "limit"),
        remaining=integer(r, "remaining"),
        reset_at_ms=integer(r, "reset_at_ms"),
        retry_after_ms=integer(r, "retry_after_ms"),
        current=_number(r, "current"),
        source=source.removeprefix("SOURCE_").lower().replace("_", "-"),
        shadowed=boolean(r, "shadowed"),
        override=string(r, "override"),
        candidate_denied=boolean(r, "candidate_denied"),
        duration_ms=integer(r, "duration_ms"),
        never_passes=boolean(r, "never_passes"),
    )


def decisions(r: dict[str, Any], n: int) -> list[Decision]:
    """The decisions on n requests. Another number is an error, because the decisions could not be matched with the requests."""
    found = _field(r, "responses", list, [])
    if len(found) != n:
        raise _wrong("responses", f"has {len(found)} items for {n} requests")
    return [decision(_checked("responses", one, dict)) for one in found]


def nested(r: dict[str, Any], name: str) -> dict[str, Any]:
    return _field(r, name, dict, {})


def settlement(answer: dict[str, Any]) -> Settlement:
    s = nested(answer, "settlement")
    spent = [_integer("spent", c) for c in _field(s, "spent", list, [])]
    return Settlement(string(s, "id"), spent, boolean(s, "settled"), boolean(s, "late"), integer(s, "ends_at_ms"))


def boolean(r: dict[str, Any], name: str) -> bool:
    return _field(r, name, bool, False)


def string(r: dict[str, Any], name: str) -> str:
    return _field(r, name, str, "")


def integer(r: dict[str, Any], name: str) -> int:
    value = r.get(name)
    return 0 if value is None else _integer(name, value)


def _integer(name: str, value: Any) -> int:
    """A 64-bit integer is a string in protobuf's JSON, and a number is accepted as well."""
    if isinstance(value, str) and len(value) <= 20 and value.removeprefix("-").isascii() and value.removeprefix("-").isdecimal():
        value = int(value)
    if type(value) is not int or not -_INT_MAX - 1 <= value <= _INT_MAX:
        raise _wrong(name, f"is {brief(value)}, and no integer")
    return value


def _number(r: dict[str, Any], name: str) -> float:
    value = r.get(name)
    if value is None:
        return 0.0
    try:
        if type(value) in (int, float) and math.isfinite(value):
            return float(value)
    except OverflowError:
        pass
    raise _wrong(name, f"is {brief(value)}, and no number")


def _field(r: dict[str, Any], name: str, kind: type, default: Any) -> Any:
    """A field that is left out, or null, has its default."""
    value = r.get(name)
    return default if value is None else _checked(name, value, kind)


def _checked(name: str, value: Any, kind: type) -> Any:
    if type(value) is not kind:
        raise _wrong(name, f"is {brief(value)}, and no {kind.__name__}")
    return value


def _wrong(name: str, why: str) -> WeirError:
    return WeirError("unknown", f"the answer's field {name} {why}")


def brief(value: Any) -> str:
    """A value of any type for an error: an integer of thousands of digits has no text, and other types may have none."""
    try:
        text = repr(value)
    except Exception:
        return f"a value of type {type(value).__name__}"
    return text if len(text) <= 64 else text[:64] + "…"


def _list(value: Any) -> list:
    return value if isinstance(value, list) else []


def _dict(value: Any) -> dict:
    return value if isinstance(value, dict) else {}
