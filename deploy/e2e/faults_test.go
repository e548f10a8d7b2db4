package e2e

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/dataplane/redisorigin"
	"github.com/weirhq/weir/deploy/local/stack"
	"github.com/weirhq/weir/shared/await"
	"github.com/weirhq/weir/shared/servers"
	"github.com/weirhq/weir/shared/window"
)

// No kill loses or doubles cost, except a node's: the node loses the cost that it accepted since its last send.
const tickMax = 120 * time.Millisecond // 100 ms and a fifth

// fault is a process that is killed with SIGKILL under load, then started again.
type fault struct {
	name  string
	kill  func(*stack.Stack) error
	start func(context.Context, *stack.Stack) error

	// lost and doubled bound the difference between a region's origin and the accepted cost.
	lost, doubled func(region string, l *load) int64
}

func nothing(string, *load) int64 { return 0 }

func retried(_ string, l *load) int64 { return l.retried.Load() }

// regionTick returns the cost that a region's load accepts in two replay ticks: one tick, and one for the call. A
// second's worth is 300. The data plane promises half of it: two ticks of the load that the killed node alone accepts,
// which is half of its region's. The rest is room for ticks and calls that wait for a processor, because one machine
// runs the whole fleet and its load.
func regionTick(of string) func(string, *load) int64 {
	return func(region string, _ *load) int64 {
		if region != of {
			return 0
		}
		return int64(loadPerSecond / 2 * (2 * tickMax).Seconds())
	}
}

var faults = []fault{
	{"MySQL",
		func(s *stack.Stack) error { return s.SQL.Kill() },
		func(ctx context.Context, s *stack.Stack) error { return s.SQL.Restart(ctx) }, nothing, nothing},
	{"Restate",
		func(s *stack.Stack) error { return s.Restate.Kill() },
		func(ctx context.Context, s *stack.Stack) error { return s.Restate.Restart(ctx) }, nothing, nothing},
	{"control plane",
		func(s *stack.Stack) error { return s.Control.Kill() },
		func(ctx context.Context, s *stack.Stack) error { return s.Control.Restart(ctx) }, nothing, nothing},
	{"Redis of eu",
		func(s *stack.Stack) error { return s.Redis["eu"].Kill() },
		func(ctx context.Context, s *stack.Stack) error { return s.Redis["eu"].Restart(ctx) }, nothing, nothing},
	{"a node of us",
		func(s *stack.Stack) error { return s.Nodes[3].Kill() },
		func(ctx context.Context, s *stack.Stack) error { return s.Nodes[3].Restart(ctx) }, regionTick("us"), retried},
}

// kill -9 of Redis, MySQL, Restate, the control plane and a node, one at a time, each followed by recovery, under a
// load of up to loadPerSecond. A node of the region answers every request. At the end each origin has exactly the cost
// that its nodes accepted, within the bounds lost and doubled of a fault.
func TestAnyProcessMayBeKilled(t *testing.T) { servers.TurnSQL(t, testAnyProcessMayBeKilled) }

func testAnyProcessMayBeKilled(t *testing.T) {
	s := start(t)
	for _, f := range faults {
		t.Run(f.name, func(t *testing.T) {
			prefix := strings.ReplaceAll(f.name, " ", "_") + "_"
			l := startLoad(t, s, prefix)
			pause(t.Context(), 700*time.Millisecond)
			if err := f.kill(s); err != nil {
				t.Fatal(err)
			}
			pause(t.Context(), 1500*time.Millisecond)
			ctx, cancel := context.WithTimeout(t.Context(), await.Patience)
			defer cancel()
			restarting := time.Now()
			if err := f.start(ctx, s); err != nil {
				t.Fatal(err)
			}
			t.Logf("ready again %v after its start", time.Since(restarting).Round(time.Millisecond))
			pause(t.Context(), 800*time.Millisecond)
			l.check(t)
			originsHold(t, s, l, prefix, f)
		})
	}
	recovered(t, s)
}

// originsHold waits until each region's origin has the cost that its callers were granted, within the fault's bounds.
func originsHold(t *testing.T, s *stack.Stack, l *load, prefix string, f fault) {
	t.Helper()
	for region := range s.Redis {
		accepted := l.total(region)
		least, most := accepted-f.lost(region, l), accepted+f.doubled(region, l)
		var held int64
		took := await.True(t, fmt.Sprintf("the origin of %s holds %d to %d", region, least, most), func() bool {
			held = originTotal(t, s, region, prefix)
			if held > most {
				t.Fatalf("the origin of %s holds %d, %d were accepted", region, held, accepted)
			}
			return held >= least
		})
		t.Logf("%s: accepted %d, origin holds %d, %v after the load", region, accepted, held, took.Round(time.Millisecond))
	}
}

// originTotal returns the sum of the load's keys in a region's Redis.
func originTotal(t *testing.T, s *stack.Stack, region, prefix string) (sum int64) {
	t.Helper()
	origin, err := redisorigin.Open([]string{"redis://" + s.Redis[region].Addr()}, redisorigin.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = origin.Close() }()
	var cells []window.Cell
	for i := range loadKeys {
		key := window.Key{Workspace: "acme", Namespace: "load", Identifier: fmt.Sprintf("%s%02d", prefix, i), Duration: loadWindow}
		cells = append(cells, window.Cell{Key: key, Sequence: window.Sequence(time.Now().UnixMilli(), loadWindow.Milliseconds())})
	}
	reply, err := origin.Read(t.Context(), cells)
	if err != nil {
		t.Fatal(err)
	}
	for _, total := range reply.Totals {
		sum += total.Region
	}
	return sum
}

// recovered checks once more that the whole works after all faults.
func recovered(t *testing.T, s *stack.Stack) {
	t.Helper()
	db := database(t, s)
	if _, err := db.ExecContext(t.Context(), "INSERT INTO ratelimit_window_counts "+
		"(workspace_id, namespace, identifier, duration_ms, sequence, region, count, expires_at, updated_at) VALUES ('acme','api','old',60000,1,'eu',7,?,1)",
		time.Now().Add(-2*time.Hour).UnixMilli()); err != nil {
		t.Fatal(err)
	}
	endHour(t, db, time.Now().Add(-time.Hour))
	await.True(t, "the cron goes on deleting", func() bool {
		var n int
		if err := db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM ratelimit_window_counts WHERE identifier = 'old'").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n == 0
	})
	for i := range 10 {
		limit(t, s.Nodes[i%2], limitRequest("after", 1, 10, time.Hour))
	}
	await.True(t, "us denies what eu has used up", func() bool {
		return !limit(t, s.Nodes[3], limitRequest("after", 1, 10, time.Hour)).Allowed
	})
}

// If a node is stopped under load, it sends all of its cost first.
func TestARollingRestartLosesNothing(t *testing.T) {
	servers.TurnSQL(t, testARollingRestartLosesNothing)
}

func testARollingRestartLosesNothing(t *testing.T) {
	s := start(t)
	l := startLoad(t, s, "rolling_")
	for _, n := range s.Nodes {
		pause(t.Context(), 400*time.Millisecond)
		if err := n.End(20 * time.Second); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), await.Patience)
		if err := n.Restart(ctx); err != nil {
			t.Fatal(err)
		}
		cancel()
	}
	l.check(t)
	originsHold(t, s, l, "rolling_", fault{lost: nothing, doubled: retried})
}

// Every listener is on loopback, and everything that must answer does.
func TestEveryDoorAnswers(t *testing.T) {
	t.Parallel()
	servers.TurnSQL(t, testEveryDoorAnswers)
}

func testEveryDoorAnswers(t *testing.T) {
	s := startShared(t)
	for _, n := range s.Nodes {
		for _, path := range []string{"/healthz", "/readyz", "/metrics", "/debug/pprof/cmdline"} {
			res, err := http.Get(n.AdminURL() + path)
			if err != nil {
				t.Fatal(err)
			}
			_ = res.Body.Close()
			if res.StatusCode != http.StatusOK {
				t.Errorf("%s %s: %s", n.ID, path, res.Status)
			}
		}
	}
}
