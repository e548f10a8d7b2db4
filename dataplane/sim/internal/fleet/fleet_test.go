package fleet

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/dataplane/relay"
	"github.com/weirhq/weir/dataplane/sim/internal/network"
	"github.com/weirhq/weir/shared/window"
)

// startNode starts a process with a limiter and a relay, 1 ms from its origin and 30 ms from MySQL.
func startNode(t *testing.T, w *World, origin *memstore.Origin, name string) *Process {
	t.Helper()
	link := func(to string, trip time.Duration) *network.Link {
		return w.Link(network.Profile{Delay: trip}, func(op string) string { return name + " to " + to + " " + op })
	}
	p := w.NewProcess(origin.Client(), link("origin", time.Millisecond), link("mysql", 30*time.Millisecond))
	var err error
	p.Limiter, err = dataplane.New(dataplane.Config{Region: "eu", NodeID: name, Origin: p.Origin})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.AddRelay(p, relay.Config{Region: "eu", Holder: name, Counts: w.Counts, Settings: w.Counts}); err != nil {
		t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(5 * time.Second)
	return p
}

// spend makes a process accept a cost of 10.
func spend(t *testing.T, p *Process) {
	t.Helper()
	d := p.Limiter.Allow(context.Background(), dataplane.Request{
		Workspace: "acme", Namespace: "api", Identifier: "k", Limit: 100, Duration: time.Hour, Cost: 10,
	})
	if !d.Allowed || d.Err != nil {
		t.Fatalf("%+v", d)
	}
}

// held returns the sum of all totals of an origin.
func held(origin *memstore.Origin) (cost int64) {
	for _, total := range origin.Totals() {
		cost += total.Region
	}
	return cost
}

// inBubble runs a test in a bubble, which fails if a goroutine is left.
func inBubble(t *testing.T, test func(t *testing.T, w *World, origin *memstore.Origin)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		test(t, NewWorld(1, "database"), memstore.NewOrigin(memstore.OriginOptions{}))
	})
}

func TestAStoppedProcessSendsWhatItHasAccepted(t *testing.T) {
	inBubble(t, func(t *testing.T, w *World, origin *memstore.Origin) {
		p := startNode(t, w, origin, "a")
		spend(t, p)
		w.End(func() { p.Stop(5 * time.Second) })
		if held(origin) != 10 || !p.Sent.Load() {
			t.Errorf("the origin holds %d of 10, all is sent: %t", held(origin), p.Sent.Load())
		}
	})
}

func TestAKilledProcessSendsNothingMore(t *testing.T) {
	inBubble(t, func(t *testing.T, w *World, origin *memstore.Origin) {
		p := startNode(t, w, origin, "a")
		spend(t, p)
		w.Kill(p)
		time.Sleep(10 * time.Second)
		w.End()
		if held(origin) != 0 || p.Sent.Load() {
			t.Errorf("the origin holds %d, all is sent: %t", held(origin), p.Sent.Load())
		}
	})
}

// A process that takes over for a killed process relays once the killed process's lease has ended, and stores its
// counts.
func TestAnotherProcessTakesOverFromAKilledOne(t *testing.T) {
	inBubble(t, func(t *testing.T, w *World, origin *memstore.Origin) {
		first := startNode(t, w, origin, "a")
		w.Kill(first)
		second := startNode(t, w, origin, "b")
		for range 10 { // up to the limit, because a count far below it is not stored
			spend(t, second)
		}
		time.Sleep(time.Minute)
		if len(w.Counts.Rows()) == 0 || w.MySQL.Statements.Load() == 0 || w.Origins.Trips.Load() == 0 {
			t.Errorf("%d rows are stored in %d statements", len(w.Counts.Rows()), w.MySQL.Statements.Load())
		}
		w.End(func() { second.Stop(5 * time.Second) })
	})
}

// End waits for calls whose callers have gone, even if there is no process to stop.
func TestTheEndWaitsForCallsThatAreOnTheirWay(t *testing.T) {
	inBubble(t, func(t *testing.T, w *World, origin *memstore.Origin) {
		link := w.Link(network.Profile{Delay: time.Minute}, func(op string) string { return op })
		p := w.NewProcess(origin, link, nil)
		ctx, leave := context.WithTimeout(context.Background(), time.Second)
		defer leave()
		if _, err := p.Origin.Read(ctx, make([]window.Cell, 1)); err == nil {
			t.Error("a call of a minute was answered within a second")
		}
		began := time.Now()
		if w.End(); time.Since(began) < 20*time.Second {
			t.Errorf("the end came after %v", time.Since(began))
		}
	})
}

func TestEachPurposeHasAStreamOfItsOwn(t *testing.T) {
	w, other := NewWorld(1, "database"), NewWorld(2, "database")
	a, again, b, c := w.Stream("a"), w.Stream("a"), w.Stream("b"), other.Stream("a")
	first := a.Uint64()
	if first != again.Uint64() {
		t.Error("two streams of one purpose differ")
	}
	if first == b.Uint64() || first == c.Uint64() {
		t.Error("another purpose, or another seed, draws the same")
	}
}
