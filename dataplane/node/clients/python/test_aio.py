"""Run by TestThePythonClient: AsyncClient passes the tests of Client, and has some of its own."""

import asyncio
import inspect
import json
import os
import ssl
import threading
import time
import unittest
from pathlib import Path

import test_hostile
import test_weir
import weir
from test_hostile import ALLOWED, REQUEST, Raw, answer, send
from weir.aio import AsyncClient


class Sync:
    """An AsyncClient with the methods of a Client, in a loop of its own."""

    def __init__(self, *args, **options):
        self.__dict__["client"] = AsyncClient(*args, **options)
        self.__dict__["loop"] = asyncio.new_event_loop()
        self.__dict__["thread"] = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()

    def __getattr__(self, name):
        found = getattr(self.client, name)
        if not inspect.iscoroutinefunction(found):
            return found

        def call(*args, **options):
            return asyncio.run_coroutine_threadsafe(found(*args, **options), self.loop).result()

        return call

    def __setattr__(self, name, value):
        setattr(self.client, name, value)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        if self.loop.is_closed():
            return
        asyncio.run_coroutine_threadsafe(self.client.close(), self.loop).result()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()


class TestAsyncClient(test_weir.TestClient):
    make = Sync


class TestAsyncHostileServers(test_hostile.TestHostileServers):
    make = Sync


class TestTasks(unittest.TestCase):
    def raw(self, serve):
        server = Raw(serve)
        self.addCleanup(server.end)
        return server

    def test_the_methods_are_those_of_the_client(self):
        for name, method in inspect.getmembers(weir.Client, inspect.isfunction):
            if name.startswith("_"):
                continue
            same = getattr(AsyncClient, name)
            self.assertTrue(inspect.iscoroutinefunction(same), name)
            self.assertEqual(inspect.signature(same), inspect.signature(method), name)
        self.assertEqual(inspect.signature(AsyncClient), inspect.signature(weir.Client))

    def test_tasks_share_a_client_and_its_connections(self):
        node = test_weir.Fake(test_weir.ALLOWED)
        self.addCleanup(node.end)

        async def work():
            async with AsyncClient(node.url, timeout=30, connections=4) as w:
                for _ in range(3):
                    found = await asyncio.gather(*(w.limit(REQUEST) for _ in range(20)))
                    self.assertTrue(all(d.allowed for d in found))
                return len(w._nodes[0]._idle)

        self.assertEqual(asyncio.run(work()), 4, "idle connections that are kept")
        self.assertEqual(len(node.calls), 60)

    def test_the_loop_goes_on_while_a_node_hangs(self):
        async def work():
            hung = asyncio.create_task(w.limit(REQUEST))
            ticks = 0
            while not hung.done():
                await asyncio.sleep(0)
                ticks += 1
            with self.assertRaises(weir.WeirError) as failed:
                await hung
            return failed.exception.code, ticks

        w = AsyncClient(self.raw(lambda _, over: over.wait(20)).url, timeout=0.3, retries=0)
        code, ticks = asyncio.run(work())
        self.assertEqual(code, "deadline_exceeded")
        self.assertGreater(ticks, 100)

    def test_the_connection_of_a_cancelled_call_is_not_used_again(self):
        asked, go = threading.Event(), threading.Event()

        def serve(connection, over):
            if asked.is_set():
                connection.sendall(answer({"allowed": True, "limit": "2"}))
            else:
                asked.set()
                go.wait(20)
                connection.sendall(answer({"allowed": True, "limit": "1"}))
            over.wait(20)

        async def work():
            async with AsyncClient(server.url, timeout=20) as w:
                first = asyncio.create_task(w.limit(REQUEST))
                await asyncio.to_thread(asked.wait, 20)
                first.cancel()
                with self.assertRaises(asyncio.CancelledError):
                    await first
                go.set()
                return (await w.limit(REQUEST)).limit

        server = self.raw(serve)
        self.assertEqual(asyncio.run(work()), 2)
        self.assertEqual(server.connections, 2)

    def test_another_loop_opens_connections_of_its_own(self):
        server = self.raw(send(answer(ALLOWED), answer(ALLOWED)))
        w = AsyncClient(server.url, timeout=20)

        async def work():
            allowed = (await w.limit(REQUEST)).allowed
            await w.close()
            return allowed

        self.assertEqual([asyncio.run(work()) for _ in range(3)], [True] * 3)
        self.assertEqual(server.connections, 3)

    def test_a_child_of_fork_opens_connections_of_its_own(self):
        fork = test_hostile.TestFork
        w = AsyncClient(os.environ["WEIR_URL"], token=os.environ["WEIR_TOKEN"], timeout=30)

        async def wrong(limit):
            found = [await w.limit(fork.ask(self, f"aio{limit}", limit)) for _ in range(50)]
            return sum(d.limit != limit for d in found)

        loop = asyncio.new_event_loop()
        self.addCleanup(loop.close)
        self.assertEqual(loop.run_until_complete(wrong(100_000)), 0)  # leaves an idle connection
        children = [fork.child(self, lambda limit=limit: asyncio.run(wrong(limit))) for limit in (100_001, 100_002)]
        self.assertEqual(loop.run_until_complete(wrong(100_003)), 0)
        self.assertEqual([fork.result(self, c) for c in children], ["0", "0"])
        loop.run_until_complete(w.close())

    def test_a_node_that_closes_an_idle_connection_costs_no_call(self):
        closed = threading.Event()

        def serve(connection, _):
            connection.sendall(answer(ALLOWED))
            connection.close()
            closed.set()

        async def work():
            async with AsyncClient(server.url, timeout=20, retries=0) as w:
                for _ in range(3):
                    self.assertTrue((await w.limit(REQUEST)).allowed)
                    closed.wait(20)  # the loop stands still, and has not seen the end of the connection
                    closed.clear()

        server = self.raw(serve)
        asyncio.run(work())

    def test_odd_heads_are_errors(self):
        body = json.dumps(ALLOWED).encode()
        for head in (
            b"HTTP/2 200 OK\r\nContent-Length: %d" % len(body),
            b"ICY 200 OK",
            b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nContent-Length: 1" % len(body),
            b"HTTP/1.1 200 OK\r\nContent-Length: +%d" % len(body),
            b"HTTP/1.1 200 OK\r\nContent-Length: 9999999999",
            b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nTransfer-Encoding: chunked" % len(body),
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip",
            b"HTTP/1.1 200 OK\r\n folded: x",
            b"HTTP/1.1 200 OK\r\n: x",
            b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 101 + b"C: d",
            b"HTTP/1.1 200 OK\r\nA: " + b"b" * 100_000,
        ):
            with self.subTest(head[:60]):
                server = self.raw(send(head + b"\r\n\r\n" + body))

                async def work(url=server.url):
                    async with AsyncClient(url, timeout=10, retries=0) as w:
                        await w.limit(REQUEST)

                with self.assertRaises(weir.WeirError) as failed:
                    asyncio.run(work())
                self.assertEqual(failed.exception.code, "unknown")
                server.end()

    def test_a_response_up_to_the_end_of_its_connection(self):
        def serve(connection, _):
            connection.sendall(b"HTTP/1.0 200 OK\r\n\r\n" + json.dumps(ALLOWED).encode())

        server = self.raw(serve)

        async def work():
            async with AsyncClient(server.url, timeout=10) as w:
                return [(await w.limit(REQUEST)).allowed for _ in range(2)]

        self.assertEqual(asyncio.run(work()), [True, True])
        self.assertEqual(server.connections, 2)

    def test_a_node_without_tls_is_unavailable_by_https(self):
        server = self.raw(send(answer(ALLOWED)))

        async def work():
            async with AsyncClient(server.url.replace("http", "https"), timeout=5, retries=0, context=ssl.create_default_context()) as w:
                await w.limit(REQUEST)

        began = time.monotonic()
        with self.assertRaises(weir.WeirError) as failed:
            asyncio.run(work())
        self.assertEqual(failed.exception.code, "unavailable")
        self.assertLess(time.monotonic() - began, 15)


class TestReadme(unittest.TestCase):
    def test_its_example_for_asyncio_runs(self):
        page = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")
        (example,) = [b for b in page.split("```python\n")[1:] if "AsyncClient" in b.split("```")[0]]
        url = os.environ["WEIR_URL"]
        code = "\n".join("    " + line for line in example.split("```")[0].replace("http://10.0.0.1:7001", url).splitlines())
        scope = {"os": os, "Request": weir.Request}
        exec(f"async def work():\n{code}\n    return d", scope)
        self.assertTrue(asyncio.run(scope["work"]()).allowed)


class TestPackage(unittest.TestCase):
    def test_asyncio_is_not_loaded_by_those_who_do_not_use_it(self):
        source = Path(weir.__file__).read_text()
        self.assertNotIn("import asyncio", source)
        self.assertNotIn("aio import", source)


if __name__ == "__main__":
    unittest.main()
