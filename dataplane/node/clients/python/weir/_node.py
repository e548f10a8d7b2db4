"""Connections to a node: each is used by one call at a time, in the process that opened it, and until a deadline."""

from __future__ import annotations

import http.client
import io
import os
import socket
import ssl
import threading
import time
import weakref
from typing import Any, Optional
from urllib.parse import SplitResult, urlsplit

from . import _answers
from ._types import WeirError

SERVICE = "/weir.v1.RateLimitService/"
ANSWER_MAX = 4 << 20  # bytes of an answer: a thousand decisions are some 300 KB


def left(deadline: float) -> float:
    """The seconds until a deadline. Raises if there are none."""
    seconds = deadline - time.monotonic()
    if seconds <= 0:
        raise WeirError("deadline_exceeded", "no answer in time")
    return seconds


def split(url: Any) -> SplitResult:
    """The parts of a URL that a connection needs. A URL to which no request could be sent raises here, and not in the first call."""
    if isinstance(url, str) and "@" in url:  # not quoted, because it may have a password
        raise ValueError("weir: url has an '@' (http://… or https://…, a host, and at most a port and a path)")
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname.encode("idna"), parts.port  # both raise
        plain = all(0x20 < c < 0x7F for c in host + parts.path.encode("ascii"))
        if plain and url.isprintable() and parts.scheme in ("http", "https") and not (parts.query or parts.fragment):
            return parts
    except (TypeError, ValueError, AttributeError):
        pass
    raise ValueError(f"weir: url is {_answers.brief(url)} (http://… or https://…, a host, and at most a port and a path)") from None


class Node:
    def __init__(self, url: str, connections: int, context: Optional[ssl.SSLContext]):
        parts = split(url)
        self._at = (parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80))
        self._path = parts.path.rstrip("/") + SERVICE
        self._context = None
        if parts.scheme == "https":
            self._context = context or ssl.create_default_context()
        self._idle_max = connections
        self.forget()
        _nodes.add(self)

    def forget(self) -> None:
        """Begins without connections, and with a free lock."""
        self._idle: list[_Connection] = []
        self._lock = threading.Lock()

    def ask(self, method: str, body: bytes, headers: dict[str, str], deadline: float) -> dict[str, Any]:
        connection = self._take(deadline)
        try:
            answer, text = connection.exchange(self._path + method, body, headers, deadline)
        except BaseException:
            connection.close()
            raise
        # An answer of 1xx is followed by another answer, which the next call would take for its own.
        if answer.status >= 200:
            self._put(connection)
        else:
            connection.close()
        return _answers.message(answer.status, text, answer.headers.get("Retry-After"))

    def _take(self, deadline: float) -> _Connection:
        """An open connection, over which a request may arrive. Idle connections that the node has closed are dropped here."""
        while True:
            with self._lock:
                connection = self._idle.pop() if self._idle else None
            if connection is None:
                break
            if connection.idle():
                return connection
            connection.close()
        connection = _Connection(*self._at, self._context)
        try:
            connection.open(deadline)
        except OSError as e:  # nothing was sent
            connection.close()
            raise WeirError("unavailable", f"{self._at[0]} port {self._at[1]}: {type(e).__name__}: {e}") from e
        except BaseException:
            connection.close()
            raise
        return connection

    def _put(self, connection: _Connection) -> None:
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


_nodes: weakref.WeakSet[Node] = weakref.WeakSet()
_connections: weakref.WeakSet[_Connection] = weakref.WeakSet()


def _forget_all() -> None:
    for connection in list(_connections):
        connection.leave()
    for node in list(_nodes):
        node.forget()


# A child of fork has its parent's sockets: if both processes wrote to a socket, they would get each other's answers. It also has locks that
# threads of its parent held, and that are never released.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)


class _Connection(http.client.HTTPConnection):
    auto_open = 0  # a request that was sent once is not sent again over another connection

    def __init__(self, host: str, port: int, context: Optional[ssl.SSLContext]):
        super().__init__(host, port)
        self._tls = context
        _connections.add(self)

    def leave(self) -> None:
        """Closes this process's end of a connection that belongs to another process, and sends nothing to the other side."""
        if self.sock is not None:
            os.close(self.sock.raw.detach())
            self.sock = None

    def open(self, deadline: float) -> None:
        """Connects to the first address that answers. Looking up the name is not bounded in time."""
        addresses = socket.getaddrinfo(self.host, self.port, 0, socket.SOCK_STREAM)
        for i, (family, kind, protocol, _, address) in enumerate(addresses):
            raw = socket.socket(family, kind, protocol)
            try:
                raw.settimeout(left(deadline) / (len(addresses) - i))
                raw.connect(address)
                raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                raw.settimeout(left(deadline))
                if self._tls is not None:
                    raw = self._tls.wrap_socket(raw, server_hostname=self.host)  # in that time, all of it
            except OSError:
                raw.close()
                if i == len(addresses) - 1:
                    raise
                continue
            except BaseException:
                raw.close()
                raise
            self.sock = _Socket(raw)  # type: ignore[assignment]
            return
        raise OSError(f"{self.host} has no address")

    def idle(self) -> bool:
        """Whether the other side has neither closed the connection nor sent unexpected bytes."""
        return self.sock is not None and self.sock.silent()

    def exchange(self, path: str, body: bytes, headers: dict[str, str], deadline: float) -> tuple[http.client.HTTPResponse, bytes]:
        if self.sock is None:
            raise WeirError("unavailable", "the connection is closed")
        self.sock.deadline = deadline
        try:
            self.request("POST", path, body, {**headers, "Connect-Timeout-Ms": str(max(1, int(left(deadline) * 1000)))})
            answer = self.getresponse()
            parts, size = [], 0
            while part := answer.read1(65536):
                parts.append(part)
                size += len(part)
                if size > ANSWER_MAX:
                    raise WeirError("unknown", f"the answer is longer than {ANSWER_MAX} bytes")
            if answer.length:
                raise WeirError("unknown", f"the answer ends {answer.length} bytes early")
            answer.close()  # all of it has been read: the connection is free for another call
        except TimeoutError as e:
            raise WeirError("deadline_exceeded", "no answer in time") from e
        except (OSError, http.client.HTTPException, ValueError) as e:
            raise WeirError("unknown", f"{self.host} port {self.port}: {type(e).__name__}: {e}") from e
        return answer, b"".join(parts)


class _Socket:
    """The socket of an http.client.HTTPConnection. All operations of a call end by the call's deadline, however slowly the other side sends or
    reads: each operation has the time that is left, and not a timeout of its own."""

    def __init__(self, raw: socket.socket):
        self.raw = raw
        self.deadline = 0.0
        self.clean = True  # nothing has been read beyond the end of an answer

    def sendall(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            self.raw.settimeout(left(self.deadline))
            rest = rest[self.raw.send(rest) :]

    def makefile(self, _mode: str) -> io.BufferedReader:
        return _Buffer(_Reader(self))

    def silent(self) -> bool:
        if not self.clean:
            return False
        try:
            self.raw.settimeout(0)
            self.raw.recv(1)  # b"" or a byte: neither is expected
            return False
        except (BlockingIOError, ssl.SSLWantReadError):
            return True
        except OSError:
            return False

    def close(self) -> None:
        self.raw.close()  # once the files that were made of it are closed, too


class _Buffer(io.BufferedReader):
    """The file of an answer."""

    raw: _Reader

    def close(self) -> None:
        if not self.closed:
            self.raw.ended = True
            self.raw.of.clean = self.raw.of.clean and not self.peek(1)
        super().close()


class _Reader(io.RawIOBase):
    def __init__(self, of: _Socket):
        self.of = of
        self.ended = False
        self._file = of.raw.makefile("rb", buffering=0)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> Optional[int]:
        if self.ended:
            return 0
        self.of.raw.settimeout(left(self.of.deadline))
        return self._file.readinto(buffer)

    def close(self) -> None:
        self._file.close()
        super().close()
