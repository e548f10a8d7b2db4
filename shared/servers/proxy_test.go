package servers

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/weirhq/weir/shared/await"
)

// lineServer answers every line with "got <line>" and remembers it.
type lineServer struct {
	net.Listener
	mu    sync.Mutex
	lines []string
}

func startLines(t *testing.T) *lineServer {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	s := &lineServer{Listener: l}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			running.Go(func() { s.serve(conn) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		running.Wait()
	})
	return s
}

func (s *lineServer) serve(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	for lines := bufio.NewScanner(conn); lines.Scan(); {
		s.mu.Lock()
		s.lines = append(s.lines, lines.Text())
		s.mu.Unlock()
		if _, err := fmt.Fprintf(conn, "got %s\n", lines.Text()); err != nil {
			return
		}
	}
}

func (s *lineServer) got(line string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.lines {
		if l == line {
			return nil
		}
	}
	return fmt.Errorf("%q has not arrived, only %q", line, s.lines)
}

func dialProxy(t *testing.T, p *Proxy) net.Conn {
	t.Helper()
	conn, err := net.DialTimeout("tcp", p.Addr(), 5*time.Second)
	must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// ask sends a line and returns the reply. It waits for the reply at most patience.
func ask(conn net.Conn, line string, patience time.Duration) (string, error) {
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return "", err
	}
	if _, err := fmt.Fprintln(conn, line); err != nil {
		return "", err
	}
	return bufio.NewReader(conn).ReadString('\n')
}

const (
	long  = 10 * time.Second
	brief = 50 * time.Millisecond // for answers that must not come
)

func mustAnswer(t *testing.T, conn net.Conn, line string) {
	t.Helper()
	if answer, err := ask(conn, line, long); err != nil || answer != "got "+line+"\n" {
		t.Fatalf("asked %s: %q, %v", line, answer, err)
	}
}

func mustBeSilent(t *testing.T, conn net.Conn, line string) {
	t.Helper()
	if answer, err := ask(conn, line, brief); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("asked %s: %q, %v; want silence", line, answer, err)
	}
}

// mustBeClosed: by the proxy, not by a deadline of ours.
func mustBeClosed(t *testing.T, conn net.Conn) {
	t.Helper()
	must(t, conn.SetDeadline(time.Now().Add(long)))
	if n, err := conn.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("read %d bytes, %v; want a closed connection", n, err)
	}
}

// "all connections are closed, and new connections are refused"
func TestProxyCut(t *testing.T) {
	t.Parallel()
	p := ProxyForTest(t, startLines(t).Addr().String())
	first, second := dialProxy(t, p), dialProxy(t, p)
	mustAnswer(t, first, "a")
	mustAnswer(t, second, "b")
	p.Cut()
	p.Cut() // cut already: nothing to do
	mustBeClosed(t, first)
	mustBeClosed(t, second)
	mustRefuse(t, p.Addr())
	addr := p.Addr()
	must(t, p.Heal())
	must(t, p.Heal()) // whole already: nothing to do
	if p.Addr() != addr {
		t.Errorf("healed on %s, was on %s", p.Addr(), addr)
	}
	mustAnswer(t, dialProxy(t, p), "c")
}

// "connections are accepted, and nothing passes in either direction", not even later.
func TestProxyBlackHole(t *testing.T) {
	t.Parallel()
	target := startLines(t)
	p := ProxyForTest(t, target.Addr().String())
	old, idle := dialProxy(t, p), dialProxy(t, p)
	mustAnswer(t, old, "before")
	mustAnswer(t, idle, "idle before")
	p.BlackHole(true)
	mustBeSilent(t, old, "lost on the old one")
	fresh := dialProxy(t, p)
	mustBeSilent(t, fresh, "lost on a fresh one")

	p.BlackHole(false)
	mustBeClosed(t, old)
	mustBeClosed(t, fresh)
	mustAnswer(t, idle, "idle after") // it lost nothing
	mustAnswer(t, dialProxy(t, p), "after")
	for _, lost := range []string{"lost on the old one", "lost on a fresh one"} {
		if target.got(lost) == nil {
			t.Errorf("%q arrived", lost)
		}
	}
}

// "requests reach the target, which executes them, and its replies are swallowed"
func TestProxyDropReplies(t *testing.T) {
	t.Parallel()
	target := startLines(t)
	p := ProxyForTest(t, target.Addr().String())
	conn := dialProxy(t, p)
	mustAnswer(t, conn, "before")
	p.DropReplies(true)
	mustBeSilent(t, conn, "done but unanswered")
	await.NoError(t, "the request arrives", func() error { return target.got("done but unanswered") })
	p.DropReplies(false)
	mustBeClosed(t, conn) // else its next answer would be that of the request before
	mustAnswer(t, dialProxy(t, p), "after")
}

// missesBytes reports whether the only connection has lost bytes.
func (p *Proxy) missesBytes() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		return l.lost
	}
	return false
}

// A connection whose first reply was swallowed forwards later requests. If a client sends several requests before it
// reads, the target executes all of them, in any fragmentation.
func TestProxyDropRepliesPassesLaterRequests(t *testing.T) {
	t.Parallel()
	target := startLines(t)
	p := ProxyForTest(t, target.Addr().String())
	conn := dialProxy(t, p)
	mustAnswer(t, conn, "before")
	p.DropReplies(true)
	for _, line := range []string{"first", "second", "third"} {
		mustBeSilent(t, conn, line)
		await.NoError(t, "the request arrives", func() error { return target.got(line) })
		await.True(t, "its reply is swallowed", func() bool { return p.missesBytes() })
	}
	p.DropReplies(false)
	mustBeClosed(t, conn)
}

func TestProxyDelay(t *testing.T) {
	t.Parallel()
	p := ProxyForTest(t, startLines(t).Addr().String())
	conn := dialProxy(t, p)
	mustAnswer(t, conn, "at once")
	p.SetDelay(100 * time.Millisecond)
	begin := time.Now()
	mustAnswer(t, conn, "later")
	if took := time.Since(begin); took < 100*time.Millisecond {
		t.Errorf("answered after %v, want 100ms or more", took)
	}
	p.SetDelay(time.Hour)
	mustBeSilent(t, conn, "much later")
	p.Cut() // must not wait for it
	mustBeClosed(t, conn)
}

// "Heal undoes every fault."
func TestProxyHealUndoesAll(t *testing.T) {
	t.Parallel()
	p := ProxyForTest(t, startLines(t).Addr().String())
	p.SetDelay(time.Hour)
	p.BlackHole(true)
	p.DropReplies(true)
	p.Cut()
	must(t, p.Heal())
	mustAnswer(t, dialProxy(t, p), "whole")
	must(t, p.Close())
	must(t, p.Close()) // a second Close does nothing
	mustRefuse(t, p.Addr())
	if err := p.Heal(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("heal after close: %v, want %v", err, net.ErrClosed)
	}
}

// "which need not be there yet"
func TestProxyWithoutTarget(t *testing.T) {
	t.Parallel()
	target := startLines(t)
	must(t, target.Close())
	p := ProxyForTest(t, target.Addr().String())
	mustBeClosed(t, dialProxy(t, p))
}

// Servers work through a proxy as without it: MariaDB sends first, Redis second.
func TestProxyBeforeServers(t *testing.T) {
	t.Parallel()
	EachSQL(t, testProxyBeforeServers)
}

func testProxyBeforeServers(t *testing.T) {
	t.Parallel()
	r := RedisForTest(t)
	p := ProxyForTest(t, r.Addr())
	client := redisClient(t, p.Addr())
	must(t, client.Incr(t.Context(), "n").Err())
	p.Cut()
	if err := client.Incr(t.Context(), "n").Err(); err == nil {
		t.Error("incremented through a cut")
	}
	must(t, p.Heal())
	if n, err := client.Incr(t.Context(), "n").Result(); err != nil || n != 2 {
		t.Errorf("after heal: %d, %v; want 2", n, err)
	}

	m := SharedSQL(t)
	through := *m
	through.port = ProxyForTest(t, m.Addr()).port
	if n := count(t, through.DSN(""), "SELECT 1"); n != 1 {
		t.Errorf("SELECT 1 = %d", n)
	}
}
