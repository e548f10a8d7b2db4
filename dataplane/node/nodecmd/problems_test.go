package nodecmd

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/redis/go-redis/v9"

	"github.com/weirhq/weir/dataplane/redisorigin"
	"github.com/weirhq/weir/dataplane/relay"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/heartbeat"
	"github.com/weirhq/weir/shared/servers"
)

// watched returns a watch of a node with a Redis, and its log.
func watched(t *testing.T, address, node string) (*watch, *bytes.Buffer) {
	t.Helper()
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, nil))
	origin, err := redisorigin.Open([]string{"redis://" + address}, redisorigin.Options{Logger: logger})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = origin.Close() })
	return newWatch(origin, node, logger), &log
}

func wantProblems(t *testing.T, w *watch, says ...string) {
	t.Helper()
	texts := w.texts()
	if len(texts) != len(says) {
		t.Fatalf("problems are %q, want %d", texts, len(says))
	}
	for i, text := range texts {
		if !strings.Contains(text, says[i]) || len(text) > heartbeat.ProblemBytesMax {
			t.Errorf("%q does not say %q", text, says[i])
		}
	}
}

func wantMetric(t *testing.T, w *watch, eviction, nodeID, region string) {
	t.Helper()
	want := "# HELP weir_node_problem 1 if the node has this problem, 0 if it has not, -1 if the node could not find out.\n" +
		"# TYPE weir_node_problem gauge\n" +
		`weir_node_problem{problem="redis_evicts"} ` + eviction + "\n" +
		`weir_node_problem{problem="duplicate_node_id"} ` + nodeID + "\n" +
		`weir_node_problem{problem="duplicate_region"} ` + region + "\n"
	if err := testutil.CollectAndCompare(w, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}

func TestANodeReportsARedisThatEvicts(t *testing.T) {
	server := servers.RedisForTest(t)
	raw := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { _ = raw.Close() })
	policy := func(name string) {
		t.Helper()
		if err := raw.ConfigSet(t.Context(), "maxmemory-policy", name).Err(); err != nil {
			t.Fatal(err)
		}
	}
	w, log := watched(t, server.Addr(), "n")
	wantMetric(t, w, "-1", "-1", "-1")
	now := time.Now()
	policy("allkeys-lru")
	w.step(t.Context(), now)
	wantProblems(t, w, "set maxmemory-policy noeviction at "+server.Addr()+" (allkeys-lru)")
	wantMetric(t, w, "1", "0", "-1")
	policy("noeviction")
	w.step(t.Context(), now.Add(evictionEvery-1))
	wantProblems(t, w, "noeviction") // is checked once a minute
	w.step(t.Context(), now.Add(evictionEvery))
	wantProblems(t, w)
	policy("volatile-ttl")
	w.step(t.Context(), now.Add(2*evictionEvery))
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	w.step(t.Context(), now.Add(3*evictionEvery)) // silence does not end a finding
	wantProblems(t, w, "volatile-ttl")
	if n := strings.Count(log.String(), "level=ERROR"); n != 2 {
		t.Errorf("%d lines for two problems:\n%s", n, log)
	}
}

func TestTwoProcessesOfOneNodeIDReportEachOther(t *testing.T) {
	server := servers.RedisForTest(t)
	dead, _ := watched(t, server.Addr(), "n")
	dead.step(t.Context(), time.Now()) // was killed: it is still listed
	a, log := watched(t, server.Addr(), "n")
	other, _ := watched(t, server.Addr(), "n-2")
	for range 3 {
		a.step(t.Context(), time.Now())
		other.step(t.Context(), time.Now())
	}
	wantProblems(t, a)
	b, _ := watched(t, server.Addr(), "n")
	for len(a.texts()) == 0 || len(b.texts()) == 0 { // in two looks
		a.step(t.Context(), time.Now())
		b.step(t.Context(), time.Now())
		nextMillisecond() // Redis keeps the time of a look in milliseconds, and looks are seconds apart
	}
	wantProblems(t, a, `another process has the node-id "n"`)
	wantProblems(t, b, `another process has the node-id "n"`)
	wantProblems(t, other)
	wantMetric(t, a, "0", "1", "-1")
	b.leave()
	a.step(t.Context(), time.Now())
	wantProblems(t, a)
	if n := strings.Count(log.String(), "duplicate_node_id"); n != 2 {
		t.Errorf("%d lines for a beginning and an end:\n%s", n, log)
	}
}

func nextMillisecond() {
	for now := time.Now().UnixMilli(); time.Now().UnixMilli() == now; {
	}
}

// A takeover fences once. Two regions with the same name fence again and again, and both keep their leases.
func TestTwoRegionsOfOneNameAreReported(t *testing.T) {
	w := newWatch(nil, "n", slog.New(slog.DiscardHandler))
	began := time.Now()
	fence := func(after time.Duration, total int64, held ...int) {
		w.relayed(&relay.Figures{Fenced: total, Held: held}, began.Add(after))
	}
	fence(0, 10)
	wantMetric(t, w, "-1", "-1", "0")
	fence(10*time.Second, 11, 0) // a takeover
	fence(20*time.Second, 20)    // without the lease
	wantProblems(t, w)
	fence(30*time.Second, 20, 0)
	wantProblems(t, w, "two regions with separate Redis servers have the same name")
	fence(20*time.Second+fencedWithin+1, 20, 0)
	wantProblems(t, w)
}

// A problem that was seen while the node's clock was ahead ends as soon as usual after the clock is corrected.
func TestAProblemDoesNotOutliveACorrectionOfTheClock(t *testing.T) {
	w := newWatch(nil, "n", slog.New(slog.DiscardHandler))
	began := time.Now()
	w.relayed(&relay.Figures{Fenced: 10, Held: []int{0}}, began.Add(time.Hour))
	w.relayed(&relay.Figures{Fenced: 20, Held: []int{0}}, began)
	wantProblems(t, w, "two regions with separate Redis servers have the same name")
	w.relayed(&relay.Figures{Fenced: 20, Held: []int{0}}, began.Add(fencedWithin+1))
	wantProblems(t, w)
}

// A node's heartbeats have its problems.
func TestHeartbeatsHaveTheProblems(t *testing.T) {
	server := servers.RedisForTest(t)
	w, _ := watched(t, server.Addr(), "n")
	w.setLocked(problemEviction, "Redis may drop counts")
	origin := w.origin.(store.FullOrigin)
	settings := withRelay(origin, nil, w)
	if err := settings.Heartbeat(t.Context(), heartbeat.Heartbeat{NodeID: "n", Region: "eu", SentAtMs: time.Now().UnixMilli()}); err != nil {
		t.Fatal(err)
	}
	kept, err := origin.Heartbeats(t.Context(), 0, 1)
	if err != nil || len(kept) != 1 || len(kept[0].Health.Problems) != 1 || kept[0].Health.Problems[0] != "Redis may drop counts" {
		t.Errorf("%+v, %v", kept, err)
	}
}
