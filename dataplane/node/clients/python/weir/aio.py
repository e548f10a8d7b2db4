"""Client of weir-node for asyncio.

    async with AsyncClient("http://127.0.0.1:7001") as weir:
        d = await weir.limit(Request("acme", "api", "user_42", limit=100, duration_ms=60_000))

Use an AsyncClient in one event loop at a time, by as many tasks as you like. In another loop, for example after a fork, it opens new
connections.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from typing import Any, Awaitable, Callable, Optional, Sequence, TypeVar

from . import _answers, _calls
from ._node import ANSWER_MAX, SERVICE, left, split
from ._types import Batch, Decision, Request, Reservation, Settlement, WeirError

__all__ = ["AsyncClient"]

_T = TypeVar("_T")

_LINE_MAX = 64 << 10  # bytes of a line of a response's head
_LINES_MAX = 100  # headers, or trailers, of a response
_BUFFER_MAX = 256 << 10  # bytes that have arrived before the client reads on
_SECOND_ADDRESS = 0.25  # share of the time left after which the next address of a host is tried beside the first

_STATUS = re.compile(rb"HTTP/1\.([01]) ([1-5][0-9][0-9])(?: .*)?")
_HEADER = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*(.*?)[ \t]*")
_LENGTH = re.compile(r"[0-9]{1,10}")
_CHUNK = re.compile(rb"([0-9A-Fa-f]{1,8})[ \t]*(?:;.*)?")


class _Connection(asyncio.Protocol):
    """A connection to a node, for one call at a time. Until its call has the whole response, it is not used for another call."""

    def __init__(self) -> None:
        self._transport: Any = None
        self._text = bytearray()  # has arrived and was not read yet
        self._more: Optional[asyncio.Future[None]] = None  # is done when more has arrived
        self._ended = False
        self._error: Optional[Exception] = None
        self.reusable = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._text += data
        if len(self._text) > _BUFFER_MAX:
            self._transport.pause_reading()
        self._wake()

    def eof_received(self) -> None:
        self._ended = True
        self._wake()

    def connection_lost(self, e: Optional[Exception]) -> None:
        self._ended, self._error = True, e
        self._wake()

    def _wake(self) -> None:
        if self._more is not None and not self._more.done():
            self._more.set_result(None)

    async def idle(self) -> bool:
        """Reports whether the node has neither closed the connection nor sent anything after its last response."""
        await asyncio.sleep(0)  # in two turns the loop takes in what has arrived
        await asyncio.sleep(0)
        return not (self._ended or self._text or self._transport.is_closing())

    def close(self) -> None:
        self._transport.close()

    def abort(self) -> None:
        self._transport.abort()

    async def exchange(self, request: bytes) -> tuple[int, bytes, Optional[str]]:
        """Sends a request, and returns the status, the body and the Retry-After of the response."""
        self.reusable = False
        if self._ended:
            raise WeirError("unavailable", "the connection ended before the request was sent")
        if self._text:
            raise WeirError("unknown", "a response came before the request was sent")
        self._transport.write(request)
        status = _STATUS.fullmatch(await self._line())
        if status is None:
            raise WeirError("unknown", "the response has no status line of HTTP/1")
        code = int(status[2])
        if code < 200:  # another response follows, which the next call would take for its own
            raise WeirError("unknown", f"status {code} before a response")
        headers = await self._fields()
        body, delimited = await self._body(code, headers)
        tokens = ",".join(headers.get("connection", [])).lower()
        self.reusable = delimited and status[1] == b"1" and "close" not in tokens and not self._text
        return code, body, headers.get("retry-after", [None])[0]

    async def _body(self, status: int, headers: dict[str, Any]) -> tuple[bytes, bool]:
        """Returns the body, and whether the response delimits it. Otherwise the end of the connection does."""
        coding, lengths = headers.get("transfer-encoding"), headers.get("content-length")
        if status in (204, 304):
            return b"", True
        if coding is not None:
            if lengths is not None or [c.lower() for c in coding] != ["chunked"]:
                raise WeirError("unknown", f"the response has the transfer coding {_answers.brief(coding)}")
            return await self._chunks(), True
        if lengths is not None:
            if len(set(lengths)) != 1 or not _LENGTH.fullmatch(lengths[0]):
                raise WeirError("unknown", f"the response has the length {_answers.brief(lengths)}")
            return await self._exactly(int(lengths[0])), True
        while not self._ended:
            _bounded(len(self._text))
            await self._fill()
        if self._error is not None:
            raise self._lost()
        return bytes(self._text), False

    async def _chunks(self) -> bytes:
        parts, size = [], 0
        while True:
            line = _CHUNK.fullmatch(await self._line())
            if line is None:
                raise WeirError("unknown", "the response has a chunk without a size")
            n = int(line[1], 16)
            if n == 0:
                await self._fields()
                return b"".join(parts)
            size += n
            _bounded(size)
            parts.append(await self._exactly(n))
            if await self._line():
                raise WeirError("unknown", "the response has a chunk of another size")

    async def _fields(self) -> dict[str, Any]:
        """Reads headers, or trailers, and the empty line after them. Returns a list of values for each name in lower case."""
        fields: dict[str, Any] = {}
        for _ in range(_LINES_MAX):
            line = await self._line()
            if not line:
                return fields
            field = _HEADER.fullmatch(line)
            if field is None:
                raise WeirError("unknown", "the response has a header without a name")
            fields.setdefault(field[1].decode("ascii").lower(), []).append(field[2].decode("latin-1"))
        raise WeirError("unknown", f"the response has more than {_LINES_MAX} headers")

    async def _line(self) -> bytes:
        """Reads a line, and returns it without its end."""
        searched = 0
        while (at := self._text.find(b"\n", searched)) < 0 and len(self._text) <= _LINE_MAX:
            searched = len(self._text)
            await self._fill()
        if not 0 <= at <= _LINE_MAX:
            raise WeirError("unknown", f"the response has a line of more than {_LINE_MAX} bytes")
        line = bytes(self._text[:at])
        del self._text[: at + 1]
        return line.removesuffix(b"\r")

    async def _exactly(self, n: int) -> bytes:
        _bounded(n)
        while len(self._text) < n:
            await self._fill()
        text = bytes(self._text[:n])
        del self._text[:n]
        return text

    async def _fill(self) -> None:
        """Waits until more has arrived. Raises if the connection has ended."""
        if self._ended:
            raise self._lost()
        self._transport.resume_reading()
        self._more = asyncio.get_running_loop().create_future()
        try:
            await self._more
        finally:
            self._more = None

    def _lost(self) -> WeirError:
        why = f": {type(self._error).__name__}: {self._error}" if self._error else ""
        return WeirError("unknown", f"the connection ended before the response did{why}")


def _bounded(size: int) -> None:
    if size > ANSWER_MAX:
        raise WeirError("unknown", f"the response is longer than {ANSWER_MAX} bytes")


async def _within(deadline: float, work: Callable[..., Awaitable[_T]], *args: Any) -> _T:
    """Cancels the work at the deadline."""
    seconds = left(deadline)
    try:
        return await asyncio.wait_for(work(*args), seconds)
    except asyncio.TimeoutError as e:
        raise WeirError("deadline_exceeded", "no response in time") from e


class _Node:
    def __init__(self, url: str, connections: int, context: Optional[ssl.SSLContext]):
        parts = split(url)
        self._host, self._tls = parts.hostname or "", None
        self._port = parts.port or (443 if parts.scheme == "https" else 80)
        self._path = parts.path.rstrip("/") + SERVICE
        if parts.scheme == "https":
            self._tls = context or ssl.create_default_context()
        self._idle_max = connections
        self._idle: list[_Connection] = []
        self._loop: Optional[asyncio.AbstractEventLoop] = None  # of the idle connections

    async def ask(self, method: str, body: bytes, headers: dict[str, str], deadline: float) -> dict[str, Any]:
        connection = await self._take(deadline)
        try:
            status, text, retry_after = await _within(deadline, connection.exchange, self._request(method, body, headers, deadline))
        except BaseException:
            connection.abort()
            raise
        if connection.reusable and len(self._idle) < self._idle_max:
            self._idle.append(connection)
        else:
            connection.close()
        return _answers.message(status, text, retry_after)

    def _request(self, method: str, body: bytes, headers: dict[str, str], deadline: float) -> bytes:
        host = self._host.encode("idna").decode("ascii")
        lines = [
            f"POST {self._path}{method} HTTP/1.1",
            f"Host: {f'[{host}]' if ':' in host else host}:{self._port}",
            f"Content-Length: {len(body)}",
            f"Connect-Timeout-Ms: {max(1, int(left(deadline) * 1000))}",
            *(f"{name}: {value}" for name, value in headers.items()),
        ]
        return "\r\n".join([*lines, "\r\n"]).encode("ascii") + body

    async def _take(self, deadline: float) -> _Connection:
        """Returns an open connection. An idle connection that the node has closed is found here, before anything is sent."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._idle, self._loop = [], loop
        while self._idle:
            connection = self._idle.pop()
            try:
                if await connection.idle():
                    return connection
            except BaseException:
                connection.abort()
                raise
            connection.abort()
        try:
            return await _within(deadline, self._connect, loop, left(deadline))
        except (OSError, WeirError) as e:  # nothing was sent
            text = str(e) if isinstance(e, WeirError) else f"{type(e).__name__}: {e}"
            raise WeirError("unavailable", f"{self._host} port {self._port}: {text}") from e

    async def _connect(self, loop: asyncio.AbstractEventLoop, seconds: float) -> _Connection:
        _, connection = await loop.create_connection(
            _Connection, self._host, self._port, ssl=self._tls, happy_eyeballs_delay=seconds * _SECOND_ADDRESS
        )
        return connection

    async def close(self) -> None:
        idle, self._idle = self._idle, []
        if self._loop is asyncio.get_running_loop():
            for connection in idle:
                connection.close()
            await asyncio.sleep(0)  # the loop closes the sockets in its next turn


class AsyncClient(_calls.Base[_Node]):
    """Calls one node or several. If a node does not decide a call, the client repeats the call at the next node.

    The options, with their defaults and bounds, are those of weir.Client. Looking up the name of a node is within timeout. If a task is
    cancelled during a call, the call may have been counted.
    """

    _node_class = _Node

    async def limit(self, request: Request) -> Decision:
        """Decides a request, and counts its cost if it is allowed. A denial is an answer, not an error."""
        request = _calls.checked(request)
        known = self._denials.find(request)
        if known is not None:
            return known
        decision = await self._run(_calls.limit(request))
        self._denials.note(request, decision)
        return decision

    async def limit_many(self, requests: Sequence[Request]) -> Batch:
        """Decides 1 to 1,000 requests together: all are counted, or none is."""
        return await self._run(_calls.limit_many(requests))

    async def peek(self, request: Request) -> Decision:
        """Returns the decision that limit would return, and counts nothing."""
        return await self._run(_calls.peek(_calls.checked(request)))

    async def refund(self, request: Request) -> int:
        """Gives back the cost that limit accepted for the same request, and returns the amount given back."""
        request = _calls.checked(request)
        refunded = await self._run(_calls.refund(request))
        self._denials.forget(request)
        return refunded

    async def reserve(
        self, requests: Sequence[Request], *, id: Optional[str] = None, ttl_ms: int = 0, returned: bool = False, holder: str = ""
    ) -> Reservation:
        """Reserves the costs of 1 to 32 requests, as Client.reserve does."""
        return await self._run(_calls.reserve(requests, id, ttl_ms, returned, holder))

    async def spend(self, id: str, costs: Sequence[int]) -> Settlement:
        """Reports the total cost spent so far of each request. The reservation goes on."""
        return await self._run(_calls.spend(id, costs))

    async def settle(self, id: str, costs: Sequence[int]) -> Settlement:
        """Reports the spent cost of each request, which may be less or more than reserved, and ends the reservation."""
        return await self._run(_calls.settle(id, costs))

    async def cancel(self, id: str) -> Settlement:
        """Settles with the cost reported so far, which may be nothing."""
        return await self._run(_calls.cancel(id))

    async def extend(self, id: str, ttl_ms: int = 0) -> Settlement:
        """Moves the end to ttl_ms from now, if that is later: 1,000 to 86,400,000, or 0 for a minute."""
        return await self._run(_calls.extend(id, ttl_ms))

    async def close(self) -> None:
        """Closes idle connections. A later call opens new connections."""
        for node in self._nodes:
            await node.close()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _run(self, call: _calls.Call[_T]) -> _T:
        attempts = _calls.Attempts(self, call)
        while True:
            node, until = attempts.begin()
            try:
                answer = await node.ask(call.method, attempts.body, self._headers, until)
            except WeirError as e:
                await asyncio.sleep(attempts.failed(e))
                continue
            return call.read(answer)
