"""Run by TestThePythonClient: servers that answer as no node does, and clients that are used before a fork."""

import json
import os
import signal
import socket
import threading
import time
import unittest
import uuid
import warnings

import weir

RUN = uuid.uuid4().hex
REQUEST = weir.Request("acme", "api", "x" + RUN, 5, 60_000)
ALLOWED = {"allowed": True, "limit": "5", "remaining": "4"}


def answer(said, headers=b""):
    body = said if isinstance(said, bytes) else json.dumps(said).encode()
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n%s\r\n%s" % (len(body), headers, body)


def request(connection):
    """Reads a request, head and body, which may arrive in several parts. Returns b"" if there is none."""
    text = b""
    while True:
        head, end, body = text.partition(b"\r\n\r\n")
        length = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
        if end and len(body) >= (int(length[0].split(b":")[1]) if length else 0):
            return text
        part = connection.recv(65536)
        if not part:
            return b""
        text += part


class Raw:
    """Runs a function for each connection, after it has read a request. over is set at the end."""

    def __init__(self, serve):
        self.serve, self.over, self.connections = serve, threading.Event(), 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        self.threads = [threading.Thread(target=self.accept)]
        self.threads[0].start()

    def accept(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            if self.over.is_set():
                connection.close()
                return
            self.connections += 1
            thread = threading.Thread(target=self.one, args=(connection,))
            self.threads.append(thread)
            thread.start()

    def one(self, connection):
        with connection:
            connection.settimeout(20)
            try:
                if request(connection):
                    self.serve(connection, self.over)
            except OSError:
                pass

    def end(self):
        self.over.set()
        try:
            socket.create_connection(self.listener.getsockname(), 5).close()  # wakes accept
        except OSError:
            pass
        for thread in list(self.threads):
            thread.join(30)
        self.listener.close()


def drip(before, drop, every=0.05):
    def serve(connection, over):
        connection.sendall(before)
        while not over.wait(every):
            connection.sendall(drop)

    return serve


def send(*texts):
    """Sends a text, reads a request, and so on; then keeps the connection open."""

    def serve(connection, over):
        for text in texts:
            connection.sendall(text)
            if not request(connection):
                return
        over.wait(20)

    return serve


class Unprintable:
    def __repr__(self):
        raise RuntimeError("has no text")


class TestHostileServers(unittest.TestCase):
    make = weir.Client

    def raw(self, serve):
        server = Raw(serve)
        self.addCleanup(server.end)
        return server

    def client(self, server, **options):
        w = self.make(server.url, **{"timeout": 10, "reserve_timeout": 10, "retries": 0, **options})
        self.addCleanup(w.close)
        return w

    def fails(self, codes, call, *args):
        with self.assertRaises(weir.WeirError) as caught:
            call(*args)
        self.assertIn(caught.exception.code, codes)
        return caught.exception

    def test_the_deadline_holds_however_an_answer_arrives(self):
        ok = b"HTTP/1.1 200 OK\r\n"
        chunked = ok + b"Transfer-Encoding: chunked\r\n\r\n"
        for name, serve in {
            "nothing": drip(b"", b""),
            "a status line that drips": drip(b"HTTP/1.1 200 ", b"O"),
            "a header that drips": drip(ok + b"X-A: ", b"a"),
            "headers that drip": drip(ok, b"X: a\r\n", 0.2),
            "100 Continue without end": drip(b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 100, 0),
            "103 Early Hints that drip": drip(b"HTTP/1.1 103 Early Hints\r\nLink: ", b"x"),
            "a body that drips": drip(ok + b"Content-Length: 1000\r\n\r\n", b" "),
            "a chunk's size that drips": drip(chunked + b"1;", b"a"),
            "chunks that drip": drip(chunked, b"1\r\n \r\n"),
            "trailers without end": drip(chunked + b"0\r\n", b"X: " + b"a" * 1000 + b"\r\n", 0),
            "a trailer that drips": drip(chunked + b"0\r\nX: ", b"a"),
        }.items():
            with self.subTest(name):
                w, began = self.client(self.raw(serve), timeout=1), time.monotonic()
                self.fails(("deadline_exceeded", "unknown", "unavailable"), w.limit, REQUEST)
                self.assertLess(time.monotonic() - began, 6)

    def test_an_answer_is_never_that_to_another_request(self):
        allowed, other = answer(ALLOWED), answer({"allowed": True, "limit": "77"})
        for name, serve in {
            "after an interim answer": send(b"HTTP/1.1 103 Early Hints\r\n\r\n", other, other),
            "after an upgrade": send(b"HTTP/1.1 101 Switching Protocols\r\n\r\n", other, other),
            "two answers at once": send(allowed + other, allowed),
            "an answer that is too short": send(b"HTTP/1.1 200 OK\r\nContent-Length: 90\r\n\r\n" + json.dumps(ALLOWED).encode(), other),
        }.items():
            with self.subTest(name):
                server = self.raw(serve)
                w = self.client(server, timeout=2)
                for _ in range(2):
                    try:
                        self.assertNotEqual(w.limit(REQUEST).limit, 77)
                    except weir.WeirError as e:
                        self.assertIn(e.code, ("unknown", "deadline_exceeded"))
                self.assertEqual(server.connections, 2, "the connection is not used again")

    def test_a_late_answer_is_not_that_to_the_next_request(self):
        late, numbers = threading.Event(), iter(range(100, 200))

        def serve(connection, over):
            number = next(numbers)
            if number == 100:
                late.wait(20)
            connection.sendall(answer({"allowed": True, "limit": str(number)}))
            over.wait(20)

        w = self.client(self.raw(serve), timeout=1)
        self.fails(("deadline_exceeded", "unavailable"), w.limit, REQUEST)
        late.set()
        w._timeout = 10
        self.assertGreater(w.limit(REQUEST).limit, 100)

    def test_an_answer_that_ends_early_is_an_error(self):
        body = json.dumps(ALLOWED).encode()
        for text in (
            b"HTTP/1.1 200 OK\r\nContent-Length: 90\r\nConnection: close\r\n\r\n" + body,
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n" % (len(body), body),
        ):
            w = self.client(self.raw(lambda connection, _, text=text: connection.sendall(text)))
            self.fails(("unknown",), w.limit, REQUEST)

    def test_a_field_of_another_type_is_an_error(self):
        odd = [{}, [], "abc", "", "1.5", "0x1", "١", True, 1.5, "9" * 40, 10**30]
        for name in ("limit", "remaining", "reset_at_ms", "retry_after_ms", "duration_ms"):
            for value in odd:
                with self.subTest(name, value=value):
                    self.says({**ALLOWED, name: value}, "limit", name)
        for name in ("allowed", "shadowed", "candidate_denied", "never_passes"):
            for value in ("false", 0, 1, [], {}):
                self.says({**ALLOWED, name: value}, "limit", name)
        for name in ("source", "override"):
            for value in (5, [], {}, False):
                self.says({**ALLOWED, name: value}, "limit", name)
        for value in ("1", [], {}, True, 10**400):
            self.says({**ALLOWED, "current": value}, "limit", "current")
        for text in (b'{"current":NaN}', b'{"current":1e400}', b'{"current":-Infinity}', b'{"retry_after_ms":NaN}', b'{"limit":1e400}'):
            self.says(text, "limit", "")
        for value in (5, "x", [], [ALLOWED, ALLOWED], [5], [None], {}):
            self.says({"allowed": True, "responses": value}, "limit_many", "responses")
            self.says({"allowed": True, "responses": value}, "reserve", "responses")
        self.says({"response": 5}, "peek", "response")
        self.says({"refunded": "x"}, "refund", "refunded")
        for said in ({"spent": 5}, {"spent": ["a"]}, {"spent": [None]}, {"ends_at_ms": "x"}, {"id": 5}, {"late": 1}, {"settled": "yes"}):
            self.says({"settlement": said}, "settle", list(said)[0])
        self.says({"settlement": [1]}, "settle", "settlement")
        self.says(b'{"override":"\xff"}', "limit", "no JSON")
        self.says(json.dumps(ALLOWED).encode("utf-16"), "limit", "no JSON")
        self.says(b"9" * 5000, "limit", "no JSON")

    def says(self, said, method, name):
        server = self.raw(send(answer(said)))
        w = self.client(server)
        args = {"settle": ("x", [1]), "limit_many": ([REQUEST],), "reserve": ([REQUEST],)}.get(method, (REQUEST,))
        self.assertIn(name, str(self.fails(("unknown",), getattr(w, method), *args)))
        w.close()
        server.end()

    def test_a_field_that_is_null_or_left_out_has_its_default(self):
        names = ("allowed", "limit", "remaining", "reset_at_ms", "current", "source", "override", "duration_ms")
        for said in ({}, {name: None for name in names}):
            d = self.client(self.raw(send(answer(said)))).limit(REQUEST)
            self.assertEqual((d.allowed, d.limit, d.current, d.source, d.override), (False, 0, 0.0, "unspecified", ""))
        self.assertEqual(self.client(self.raw(send(answer({"settlement": None})))).settle("x", [1]).spent, [])

    def test_an_odd_refusal_is_an_error_of_its_kind(self):
        for code, message in ((5, "x"), ({"a": 1}, [1]), (None, None)):
            body = json.dumps({"code": code, "message": message, "details": 5}).encode()
            text = b"HTTP/1.1 400 B\r\nRetry-After: 1e999\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
            self.fails(("unknown",), self.client(self.raw(send(text))).limit, REQUEST)

    def test_bad_input_is_an_error_of_its_kind(self):
        w = self.make("http://127.0.0.1:1")
        for bad in (b"bytes", None, 7, ["x"], {}):
            for name in ("workspace", "namespace", "identifier"):
                request = weir.Request(**{**REQUEST.__dict__, name: bad})
                self.assertEqual(self.fails(("invalid_argument",), w.limit, request).violations[0].field, name)
                self.assertEqual(self.fails(("invalid_argument",), w.reserve, [request]).violations[0].field, f"requests[0].{name}")
            self.assertEqual(self.fails(("invalid_argument",), w.settle, bad, [1]).violations[0].field, "id")
        for name in ("timeout", "retries", "connections"):
            with self.assertRaisesRegex(ValueError, name):
                self.make("http://127.0.0.1:1", **{name: "1"})
        for bad in (10**5000, Unprintable(), -(10**5000), b"x" * 100_000):
            for request in (bad, weir.Request(**{**REQUEST.__dict__, "limit": bad})):
                error = self.fails(("invalid_argument",), w.limit, request)
                self.assertLess(len(str(error)), 300)
            self.fails(("invalid_argument",), w.settle, "x", [bad])
        for bad in (None, {}, REQUEST.__dict__):
            self.assertEqual(self.fails(("invalid_argument",), w.limit, bad).violations[0].field, "request")
            self.assertEqual(self.fails(("invalid_argument",), w.limit_many, [bad]).violations[0].field, "requests[0]")

    def test_what_no_request_can_be_sent_to_is_no_url(self):
        label = "a" * 64
        for url in (7, None, "weir", "http://127.0.0.1:x", "http://[::1", f"http://{label}.example", "http://a..b", "http://a b", "http://a\x00b",
                    "http://a\n.b", "http://a/\x7f", "http://a/é", "http://a?b=c", "http://a#b", "http://user:secret@a"):  # fmt: skip
            for given in (url, [url]) if url is not None else ([url],):
                with self.assertRaisesRegex(ValueError, "url") as failed:
                    self.make(given)
                self.assertNotIn("secret", str(failed.exception))

    def test_a_denial_is_that_of_no_other_name(self):
        class Alike(str):
            def __eq__(self, other):
                return True

            def __hash__(self):
                return 1

        denied = answer({"allowed": False, "retry_after_ms": "60000"})
        w = self.client(self.raw(send(denied, answer(ALLOWED))), deny_cache=60)
        self.assertFalse(w.limit(weir.Request("acme", "api", Alike("one"), 5, 60_000)).allowed)
        self.assertTrue(w.limit(weir.Request("acme", "api", Alike("other"), 5, 60_000)).allowed)


class TestFork(unittest.TestCase):
    def child(self, work):
        """Runs work in a child of fork. Returns what it returns, or how it failed."""
        out, into = os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # that threads and fork are seldom good together
            pid = os.fork()
        if pid == 0:
            os.close(out)
            signal.alarm(60)
            try:
                said = repr(work())
            except BaseException as e:
                said = f"failed: {e!r}"
            os.write(into, said.encode()[:4000])
            os._exit(0)
        os.close(into)
        return pid, out

    def result(self, child):
        pid, out = child
        with os.fdopen(out) as f:
            said = f.read()
        _, status = os.waitpid(pid, 0)
        return said if status == 0 else f"ended by {status}"

    def node(self, **options):
        w = weir.Client(os.environ["WEIR_URL"], **{"token": os.environ["WEIR_TOKEN"], "timeout": 30, **options})
        self.addCleanup(w.close)
        return w

    def ask(self, name, limit):
        return weir.Request("acme", "fork", name + RUN, limit, 60_000)

    def test_each_process_gets_the_answers_to_its_own_requests(self):
        w = self.node()
        w.limit(self.ask("warm", 1))  # leaves an idle connection

        def work(limit):
            return sum(w.limit(self.ask(f"worker{limit}", limit)).limit != limit for _ in range(100))

        children = [self.child(lambda limit=limit: work(limit)) for limit in (100_001, 100_002, 100_003)]
        self.assertEqual(work(100_000), 0)
        self.assertEqual([self.result(c) for c in children], ["0", "0", "0"])
        self.assertEqual(w.limit(self.ask("after", 7)).limit, 7, "the parent's connection still works")

    def test_a_child_does_not_wait_for_locks_of_its_parent(self):
        w = self.node()
        w.limit(self.ask("warm", 1))
        with w._nodes[0]._lock, w._denials._lock:
            child = self.child(lambda: w.limit(self.ask("child", 3)).allowed)
            self.assertEqual(self.result(child), "True")

    def test_a_child_does_not_keep_its_parents_connections_open(self):
        gone = threading.Event()

        def serve(connection, _):
            connection.sendall(answer(ALLOWED))
            if not connection.recv(1):
                gone.set()

        server = Raw(serve)
        self.addCleanup(server.end)
        w = weir.Client(server.url, timeout=30)
        w.limit(REQUEST)
        wait, go = os.pipe()
        child = self.child(lambda: os.read(wait, 1))
        w.close()
        self.assertTrue(gone.wait(30), "the node sees that the parent has closed")
        os.write(go, b"x")
        self.assertEqual(self.result(child), "b'x'")
        os.close(wait), os.close(go)


if __name__ == "__main__":
    unittest.main()
