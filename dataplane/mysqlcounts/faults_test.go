package mysqlcounts

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/await"
	"github.com/weirhq/weir/shared/heartbeat"
	"github.com/weirhq/weir/shared/servers"
)

// faulty returns a store on a database of this test's own, behind a proxy, with one open connection.
func faulty(t *testing.T) (c *Counts, direct *Counts, proxy *servers.Proxy) {
	t.Helper()
	dsn := migrated(t)
	proxy = servers.ProxyForTest(t, servers.SharedSQL(t).Addr())
	c = New(open(t, through(t, dsn, proxy)), Options{})
	publish(t, c, "eu", countsOf(1, cell("x"))...)
	return c, New(open(t, dsn), Options{}), proxy
}

func wantOwn(t *testing.T, c *Counts, want int64) {
	t.Helper()
	if got := imported(t, c, "eu")[cell("x")].Own; got != want {
		t.Errorf("the count is %d, want %d", got, want)
	}
}

// withLostReply makes a call whose reply is lost after the database has acted. It repeats the call with longer
// deadlines, until a deadline leaves enough time to send it.
func withLostReply(t *testing.T, c *Counts, proxy *servers.Proxy, call func(context.Context), acted func() bool) {
	t.Helper()
	for deadline := 300 * time.Millisecond; deadline < await.Patience; deadline *= 2 {
		if err := c.db.PingContext(t.Context()); err != nil { // opens it: a new connection gets no greeting
			t.Fatal(err)
		}
		proxy.DropReplies(true)
		call(within(t, deadline))
		if err := proxy.Heal(); err != nil {
			t.Fatal(err)
		}
		if acted() {
			return
		}
	}
	t.Fatal("the database never acts on the call")
}

// "After any other error the caller may repeat the same call with no harm done": the
// reply is lost, the row is stored, and storing it again changes nothing.
func TestPublishWithLostReply(t *testing.T) { servers.EachSQL(t, testPublishWithLostReply) }

func testPublishWithLostReply(t *testing.T) {
	c, direct, proxy := faulty(t)
	withLostReply(t, c, proxy, func(ctx context.Context) {
		err := c.Publish(ctx, "eu", countsOf(6, cell("x")))
		wantTransient(t, err)
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v, want the deadline", err)
		}
	}, func() bool { return imported(t, direct, "eu")[cell("x")].Own == 6 })

	publish(t, c, "eu", countsOf(6, cell("x"))...)
	publish(t, direct, "eu", countsOf(9, cell("x"))...)
	publish(t, c, "eu", countsOf(6, cell("x"))...) // the statement whose reply was lost, late
	wantOwn(t, direct, 9)
}

// All methods return at ctx's deadline, even if the network drops all packets, and whether a connection is open already
// or not.
func TestDeadlineInABlackHole(t *testing.T) { servers.EachSQL(t, testDeadlineInABlackHole) }

func testDeadlineInABlackHole(t *testing.T) {
	for name, connsKept := range map[string]int{"open connection": connsMax, "new connection": 0} {
		t.Run(name, func(t *testing.T) {
			c, _, proxy := faulty(t)
			c.db.SetMaxIdleConns(connsKept)
			proxy.BlackHole(true)
			for method, call := range calls(c) {
				start := time.Now()
				err := call(within(t, 200*time.Millisecond))
				wantTransient(t, err)
				if took := time.Since(start); !errors.Is(err, context.DeadlineExceeded) || took > 5*time.Second {
					t.Errorf("%s: %v after %v", method, err, took)
				}
			}
			if err := proxy.Heal(); err != nil {
				t.Fatal(err)
			}
			for method, call := range calls(c) {
				if err := call(t.Context()); err != nil {
					t.Errorf("%s, healed: %v", method, err)
				}
			}
		})
	}
}

// A dead server is an error at once, and no error once it is back.
func TestDeadServer(t *testing.T) { servers.EachSQL(t, testDeadServer) }

func testDeadServer(t *testing.T) {
	c, _, proxy := faulty(t)
	proxy.Cut()
	for method, call := range calls(c) {
		err := call(within(t, 10*time.Second))
		wantTransient(t, err)
		if errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s waited for a server that is gone", method)
		}
	}
	if err := proxy.Heal(); err != nil {
		t.Fatal(err)
	}
	for method, call := range calls(c) {
		if err := call(t.Context()); err != nil {
			t.Errorf("%s, healed: %v", method, err)
		}
	}
}

// "After nil all are stored": a server that is killed while it writes has, once restarted, every count that was
// acknowledged.
func TestServerKilledUnderWrites(t *testing.T) { servers.EachSQL(t, testServerKilledUnderWrites) }

func testServerKilledUnderWrites(t *testing.T) {
	server := servers.SQLForTest(t)
	server.CreateForTest(t, "weir")
	migrate(t, server.DSN("weir"))
	c := New(open(t, server.DSN("weir")), Options{})

	all := cells(200)
	acknowledged := make(chan int64, 1)
	failed := make(chan error, 1)
	go func() {
		for n := int64(1); ; n++ {
			if err := c.Publish(t.Context(), "eu", countsOf(n, all...)); err != nil {
				failed <- err
				return
			}
			select {
			case <-acknowledged:
			default:
			}
			acknowledged <- n
		}
	}()
	var seen int64
	for seen < 20 {
		seen = <-acknowledged
	}
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	wantTransient(t, <-failed)
	select {
	case seen = <-acknowledged:
	default:
	}
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	got := imported(t, c, "eu")
	for _, x := range all {
		if own := got[x].Own; own < seen || own > seen+1 || own != got[all[0]].Own {
			t.Fatalf("%v has %d; %d was acknowledged", x, own, seen)
		}
	}
	publish(t, c, "eu", countsOf(1<<40, all...)...)
}

func calls(c *Counts) map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		"Publish": func(ctx context.Context) error { return c.Publish(ctx, "eu", countsOf(2, cell("x"))) },
		"Import": func(ctx context.Context) error {
			return c.Import(ctx, began.UnixMilli(), func(string, store.Count) {})
		},
		"Settings": func(ctx context.Context) error {
			_, err := c.Settings(ctx, "eu")
			return err
		},
		"Heartbeat": func(ctx context.Context) error {
			return c.Heartbeat(ctx, heartbeat.Heartbeat{NodeID: "n", Region: "eu"})
		},
	}
}
