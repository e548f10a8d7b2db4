"""Run by TestThePythonClient, with a node at WEIR_URL that asks for WEIR_TOKEN."""

import json
import os
import socket
import threading
import time
import unittest
import uuid
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.request import Request as HttpRequest
from urllib.request import urlopen

import weir

RUN = uuid.uuid4().hex  # keys of its own
# A duration whose cell does not end while the tests run, whatever the time of day.
LASTING = next(d for d in (h * 3_600_000 for h in (24, 25, 27, 29)) if d - time.time() * 1000 % d > 900_000)


def ask(identifier, limit=3, duration_ms=LASTING, cost=1):
    return weir.Request("acme", "api", identifier and identifier + RUN, limit, duration_ms, cost)


def sent(request):
    """What the node answers to a request that is sent without a client."""
    headers = {"Content-Type": "application/json", "Authorization": "Bearer " + os.environ["WEIR_TOKEN"]}
    body = json.dumps(request.__dict__).encode()
    with urlopen(HttpRequest(os.environ["WEIR_URL"] + "/weir.v1.RateLimitService/Limit", body, headers), timeout=10) as answer:
        return json.load(answer)


BUSY = (503, {"Retry-After": "1"}, {"code": "unavailable", "message": "no slot"})
ALLOWED = (200, {}, {"allowed": True, "limit": "3", "remaining": "2", "source": "SOURCE_LOCAL"})
DENIED = (200, {}, {"limit": "3", "retry_after_ms": "60000", "source": "SOURCE_DEGRADED_CLOSED"})


class Fake(ThreadingHTTPServer):
    """Answers in turn, the last answer from then on; calls are what it was asked."""

    daemon_threads = True

    def __init__(self, *answers):
        self.answers, self.calls, self.mutex, self.over = answers, [], threading.Lock(), threading.Event()
        super().__init__(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, *_):
        pass  # a client that has left

    def end(self):
        self.over.set()
        self.shutdown()
        self.server_close()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        with self.server.mutex:
            self.server.calls.append((self.path, json.loads(body), self.headers))
            answer = self.server.answers[min(len(self.server.calls), len(self.server.answers)) - 1]
        if answer == "hang":
            self.server.over.wait(30)
        if answer == "drip":
            self.send_response(200)
            self.send_header("Content-Length", "1000")
            self.end_headers()
            while not self.server.over.wait(0.05):
                self.wfile.write(b" ")
        if answer in ("hang", "cut", "drip"):
            self.close_connection = True
            return
        status, headers, said = answer
        text = said.encode() if isinstance(said, str) else json.dumps(said).encode()
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", "Content-Length": str(len(text)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_):
        pass


class TestClient(unittest.TestCase):
    make = weir.Client

    def setUp(self):
        global RUN  # the tests of other clients have keys of their own
        RUN = uuid.uuid4().hex

    def client(self, url=None, **options):
        w = self.make(url or os.environ["WEIR_URL"], **{"token": os.environ["WEIR_TOKEN"], "timeout": 10, **options})
        self.addCleanup(w.close)
        return w

    def fake(self, *answers):
        server = Fake(*answers)
        self.addCleanup(server.end)
        return server

    def fails(self, code, call, *args):
        with self.assertRaises(weir.WeirError) as caught:
            call(*args)
        self.assertEqual(caught.exception.code, code)
        return caught.exception

    def test_a_limit_is_used_up_and_said(self):
        with self.client(deny_cache=0) as w:
            for left in (2, 1, 0):
                d = w.limit(ask("ann"))
                self.assertEqual((d.allowed, d.remaining, d.limit, d.duration_ms), (True, left, 3, LASTING))
                self.assertLess(time.time() * 1000, d.reset_at_ms)
            d = w.limit(ask("ann"))
            self.assertEqual((d.allowed, d.remaining, d.cached, d.never_passes), (False, 0, False, False))
            self.assertGreater(d.retry_after_ms, 0)
            self.assertTrue(w.limit(ask("ann", cost=9)).never_passes)

    def test_batches_looks_and_refunds(self):
        with self.client() as w:
            self.assertTrue(w.limit_many([ask("bob", cost=2), ask("cid")]).allowed)
            failed = w.limit_many([ask("bob", cost=2), ask("cid")])
            self.assertEqual([failed.allowed] + [d.allowed for d in failed.decisions], [False, False, True])
            self.assertEqual([w.peek(ask("cid")).remaining, w.peek(ask("cid")).remaining], [1, 1])
            self.assertEqual(w.refund(ask("bob", cost=2)), 2)
            self.assertTrue(w.limit(ask("bob", cost=3)).allowed)
            self.assertTrue(w.limit(ask("bob", cost=0)).allowed)

    def test_threads_share_a_client(self):
        with self.client(deny_cache=0) as w, ThreadPoolExecutor(16) as threads:
            passed = sum(d.allowed for d in threads.map(lambda _: w.limit(ask("dan", limit=100)), range(200)))
        self.assertEqual(passed, 100)

    def test_bad_input_names_the_field(self):
        with self.client() as w:
            self.assertEqual(self.fails("invalid_argument", w.limit, ask("")).violations[0].field, "identifier")
            self.assertEqual(self.fails("invalid_argument", w.limit, ask("x", duration_ms=10)).violations[0].field, "duration_ms")
            for cost in (-1, 0.5, True, 2**53, "1", None):
                self.assertIn("cost is ", str(self.fails("invalid_argument", w.limit, ask("x", cost=cost))))
            self.fails("invalid_argument", w.limit_many, [])
        self.fails("unauthenticated", self.client(token="other").limit, ask("x"))
        for name, value in {"timeout": 0, "retries": 11, "deny_cache": -1, "deny_cache_size": 0, "connections": 0, "url": []}.items():
            with self.assertRaisesRegex(ValueError, name):
                self.make(**{"url": "http://127.0.0.1:1", name: value})
        for name in ("retries", "deny_cache_size", "connections"):
            with self.assertRaisesRegex(ValueError, f"{name} is 1.5 .a whole number"):
                self.make("http://127.0.0.1:1", **{name: 1.5})
        with self.assertRaisesRegex(weir.WeirError, "127.0.0.1 port 1: ConnectionRefusedError"):
            self.make("http://127.0.0.1:1").limit(ask("x"))
        with self.assertRaisesRegex(ValueError, "url is 'weir'"):
            self.make("weir")

    def test_a_name_of_any_length_is_counted_as_the_node_counts_it(self):
        with self.client(deny_cache=0) as w:
            for name in ("k" * 252, "k" * 300, "字" * 2000, "\x01" * 2000, "\ud800" * 2000, "\ud83d\ude00" * 100, "k" * 15_000):
                request = ask(name, limit=2)
                self.assertTrue(w.limit(request).allowed)
                decision = sent(request)  # the same name, from a caller without this client
                self.assertEqual((decision["allowed"], decision["remaining"]), (True, "0"), name[:3])
                self.assertFalse(w.limit(request).allowed)
            for name in ("字" * 20_000, "\udcff" * 20_000, "k" * 2_000_000, "k" * 2_000_001):
                request = ask(name, limit=2)
                self.assertTrue(w.limit_many([request, ask("beside " + name[:9], limit=9)]).allowed)
                self.assertEqual(w.limit(request).remaining, 0)
                self.assertEqual(w.refund(request), 1)
                self.assertEqual(w.peek(request).remaining, 0)  # the rest, without this request

    def test_what_was_not_decided_goes_to_the_next_node(self):
        gone = socket.create_server(("127.0.0.1", 0))
        nowhere = f"http://127.0.0.1:{gone.getsockname()[1]}"
        gone.close()
        full, other = self.fake(BUSY), self.fake(ALLOWED)
        w = self.client([nowhere, full.url, other.url])
        self.assertTrue(w.limit(ask("x")).allowed)
        self.assertEqual((len(full.calls), len(other.calls)), (1, 1))
        w.limit(ask("y"))
        self.assertEqual(len(other.calls), 2, "the node that answered is asked again")
        self.assertEqual(other.calls[0][2]["Authorization"], "Bearer " + os.environ["WEIR_TOKEN"])
        self.fails("unavailable", self.client(full.url, retries=1).limit, ask("x"))
        self.assertEqual(len(full.calls), 3)

    def test_what_may_have_been_counted_is_not_asked_again(self):
        cut = self.fake("cut")
        self.fails("unknown", self.client(cut.url).limit, ask("x"))
        self.assertEqual(len(cut.calls), 1)
        self.assertTrue(self.client(self.fake("cut", (200, {}, {"response": {"allowed": True}})).url).peek(ask("x")).allowed)
        hangs, began = self.fake("hang"), time.monotonic()
        self.fails("deadline_exceeded", self.client(hangs.url, timeout=1).limit, ask("x"))
        self.assertLess(time.monotonic() - began, 5)
        self.assertLessEqual(len(hangs.calls), 1)
        self.fails("unknown", self.client(self.fake((200, {}, "<html>")).url).limit, ask("x"))
        self.fails("unknown", self.client(self.fake((200, {}, " " * (5 << 20))).url).limit, ask("x"))

    def test_a_connection_that_has_ended_is_not_used(self):
        node = self.fake((200, {"Connection": "close"}, ALLOWED[2]))
        w = self.client(node.url)
        for _ in range(3):
            self.assertTrue(w.limit(ask("x")).allowed)

    def test_a_denial_is_repeated_for_as_long_as_it_holds(self):
        node = self.fake(DENIED, DENIED, ALLOWED)
        w = self.client(node.url, deny_cache=60)
        self.assertEqual(w.limit(ask("x", cost=2)).source, "degraded-closed")
        again = w.limit(ask("x", cost=2))
        self.assertEqual((again.allowed, again.cached, len(node.calls)), (False, True, 1))
        self.assertTrue(0 < again.retry_after_ms <= 60_000)
        self.assertFalse(w.limit(ask("x", cost=1)).cached, "a smaller cost may pass")
        self.assertTrue(w.limit(ask("x", limit=9)).allowed, "so may a higher limit")
        none = self.client(self.fake(DENIED).url, deny_cache=0)
        self.assertFalse(none.limit(ask("x")).cached or none.limit(ask("x")).cached)

    def test_a_node_that_is_lost_is_left(self):
        w = self.client([self.fake("hang").url, self.fake(ALLOWED).url], timeout=0.5)
        self.fails("deadline_exceeded", w.limit, ask("x"))
        self.assertTrue(w.limit(ask("x")).allowed)

    def test_an_answer_that_drips_ends_by_the_deadline(self):
        node, began = self.fake("drip"), time.monotonic()
        self.fails("deadline_exceeded", self.client(node.url, timeout=0.5).limit, ask("x"))
        self.assertLess(time.monotonic() - began, 5)

    def test_an_answer_of_a_wrong_shape_is_an_error(self):
        for text in ("null", "[]", "7", "{", "[" * 100_000):
            for status in (200, 400):
                self.fails("unknown", self.client(self.fake((status, {}, text)).url).limit, ask("x"))
        for details in (5, [None], [{"debug": 7}], [{"debug": {"fieldViolations": [1]}}]):
            answer = (400, {}, {"code": "invalid_argument", "details": details})
            self.fails("invalid_argument", self.client(self.fake(answer).url).limit, ask("x"))
        for wait in ("-1", "nan", "soon"):
            node = self.fake((503, {"Retry-After": wait}, BUSY[2]), ALLOWED)
            self.assertTrue(self.client(node.url).limit(ask("x")).allowed)
        with self.assertRaisesRegex(ValueError, "token"):
            self.client(token="secret\n")

    def test_the_denials_that_are_kept_are_bounded(self):
        w = self.client(self.fake(DENIED).url, deny_cache=60, deny_cache_size=2)
        for identifier in "abc":
            w.limit(ask(identifier))
        self.assertTrue(w.limit(ask("c")).cached)
        self.assertFalse(w.limit(ask("a")).cached)

    def test_a_reservation_is_held_told_of_extended_and_settled(self):
        with self.client() as w, self.client() as other:
            held = w.reserve([ask("tokens", limit=100, cost=60), ask("too", limit=100)], returned=True, holder="a test")
            self.assertEqual((held.allowed, [d.remaining for d in held.decisions]), (True, [40, 99]))
            self.assertFalse(w.reserve([ask("tokens", limit=100, cost=41)]).allowed)
            so_far = other.spend(held.id, [20, 0])
            self.assertEqual((so_far.id, so_far.spent, so_far.settled, so_far.late), (held.id, [20, 0], False, False))
            self.assertGreater(other.extend(held.id, 3_600_000).ends_at_ms - held.ends_at_ms, 3_000_000)
            self.assertEqual(other.settle(held.id, [30, 1]).spent, [30, 1])
            late = w.cancel(held.id)
            self.assertEqual((late.spent, late.settled, late.late), ([30, 1], True, True))
            self.assertTrue(w.reserve([ask("tokens", limit=100, cost=70)]).allowed)
            self.fails("not_found", w.settle, "nobody's", [1])
            self.assertEqual(self.fails("invalid_argument", w.reserve, []).violations[0].field, "requests")
            self.assertEqual(self.fails("invalid_argument", w.reserve, [ask("x"), ask("x", limit=-1)]).violations[0].field, "requests[1].limit")
            for call, *args in ((w.settle, "x", [-1]), (w.spend, "x", [0.5]), (w.extend, "x", True), (w.settle, "x", [None]), (w.settle, "x", 1), (w.reserve, ask("x"))):
                self.fails("invalid_argument", call, *args)
        with self.assertRaisesRegex(ValueError, "reserve_timeout"):
            self.make("http://127.0.0.1:1", reserve_timeout=0)

    def test_a_call_about_a_reservation_is_repeated_with_its_id(self):
        settled = (200, {}, {"settlement": {"id": "x", "spent": ["7"], "settled": True, "late": True}})
        reserved = (200, {}, {"allowed": True, "responses": [ALLOWED[2]], "ends_at_ms": "60000"})
        node = self.fake("hang", "cut", reserved, BUSY, "cut", settled, reserved)
        w = self.client(node.url, reserve_timeout=6)
        held = w.reserve([ask("x")])
        self.assertEqual((held.allowed, len(node.calls), len(held.decisions)), (True, 3, 1))
        self.assertEqual({body["id"] for _, body, _ in node.calls}, {held.id})
        s = w.settle(held.id, [7])
        self.assertEqual((s.spent, s.late, len(node.calls)), ([7], True, 6))
        self.assertTrue(all((body["id"], body["costs"]) == (held.id, [7]) for _, body, _ in node.calls[3:]))
        self.assertNotEqual(w.reserve([ask("x")]).id, held.id, "each reservation has an id of its own")
        hangs = self.fake("hang")
        self.fails("deadline_exceeded", self.client(hangs.url, reserve_timeout=0.6, retries=1).settle, "x", [1])
        self.assertEqual(len(hangs.calls), 2)
