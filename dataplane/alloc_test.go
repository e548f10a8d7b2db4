//go:build !race

package dataplane_test

import (
	"fmt"
	"testing"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/settings"
)

// A decision on a warm key allocates nothing, whatever its outcome, with every layer configured and settings in
// force.
func TestWarmDecisionsDoNotAllocate(t *testing.T) {
	w := newWorld(t)
	w.counts.SetOverrides(
		store.OverrideRow{Workspace: "acme", Namespace: "api", Pattern: "vip_*", Limit: 1 << 40},
		store.OverrideRow{Workspace: "acme", Namespace: "api", Pattern: "blocked", Limit: 0},
		store.OverrideRow{Workspace: "acme", Namespace: "api", Pattern: "v*p*of*many", Limit: 1 << 40},
		store.OverrideRow{Workspace: "acme", Namespace: "api", Pattern: "tried*", Limit: 1 << 40, Candidate: 10, Shadow: true})
	w.counts.SetResets(w.reset("reset", 7))
	n := w.node("eu", "a")
	ctx := t.Context()
	for name, r := range map[string]dataplane.Request{
		"allowed":    ask("k", 1, 1<<40),
		"peek":       ask("k", 0, 1<<40),
		"denied":     ask("full", 1, 10),
		"oversized":  ask("k", 1<<41, 1<<40),
		"overridden": ask("vip_7", 1, 10),
		"many stars": ask("vap of so many", 1, 10),
		"blocked":    ask("blocked", 1, 10),
		"reset":      ask("reset", 1, 1<<40),
		"candidate":  ask("tried", 1, 10),
		"shadowed":   ask("tried2", 1<<41, 10),
	} {
		n.take("full", 0, 10)
		n.Allow(ctx, ask("full", 10, 10))
		n.Allow(ctx, r)
		if got := testing.AllocsPerRun(1000, func() { n.Allow(ctx, r) }); got != 0 {
			t.Errorf("%s: %v allocations a decision", name, got)
		}
	}
}

// The same holds while a trial of limits is judged too, whichever limits decide, for singles, batches and handles.
func TestWarmDecisionsInATrialDoNotAllocate(t *testing.T) {
	for _, mode := range []string{settings.TrialShadow, settings.TrialEnforce} {
		w := newWorld(t)
		w.counts.SetOverrides(store.OverrideRow(*limitOf("full*", 10)), store.OverrideRow(*limitOf("gone", 1<<40)))
		change := settings.Change{Overrides: []settings.OverrideChange{{Before: limitOf("full*", 10), After: limitOf("full*", 5)},
			{Before: limitOf("gone", 1<<40)}, {After: limitOf("k*", 3)}}}
		w.tryLimits(7, mode, change, "full*", "a*b*c")
		n := w.node("eu", "a", func(c *dataplane.Config) { c.Origin = nil })
		n.take("full", 5, 99)
		ctx := t.Context()
		for name, r := range map[string]dataplane.Request{
			"newly denied":     ask("full", 1, 99),
			"denied by both":   ask("full", 11, 99),
			"untouched":        ask("other", 1, 1<<40),
			"a new override":   ask("k", 1, 1<<40),
			"deleted override": ask("gone", 1, 1<<39),
			"the same limit":   ask("k1", 1, 3),
		} {
			handle, err := n.Handle(r.Workspace, r.Namespace, r.Identifier, r.Duration)
			if err != nil {
				t.Fatal(err)
			}
			batch, decisions := []dataplane.Request{r, r}, make([]dataplane.Decision, 0, 2)
			calls := map[string]func(){"single": func() { n.Allow(ctx, r) },
				"batch":  func() { decisions = n.AppendAllowMany(ctx, decisions[:0], batch).Decisions },
				"handle": func() { handle.Allow(ctx, r.Limit, dataplane.Cost(r.Cost)) }}
			for kind, call := range calls {
				call()
				if got := testing.AllocsPerRun(1000, call); got != 0 {
					t.Errorf("%s, %s, %s: %v allocations", mode, name, kind, got)
				}
			}
		}
		if n.limits().NewlyDenied == 0 {
			t.Error("nothing was compared")
		}
	}
}

// The same holds in the estimate mode, synced or not.
func TestWarmEstimatesDoNotAllocate(t *testing.T) {
	for _, knobs := range []string{"", posthog} {
		w := newWorld(t)
		w.estimates(knobs)
		n := w.node("eu", "a")
		n.known("full", 20, 10)
		n.known("synced", 20_000_000_000, 1<<40)
		ctx := t.Context()
		for name, r := range map[string]dataplane.Request{
			"allowed":  ask("k", 1, 1<<40),
			"synced":   ask("synced", 1, 1<<40),
			"peek":     ask("k", 0, 1<<40),
			"limited":  ask("full", 1, 10),
			"too much": ask("synced", 1<<41, 1<<40),
		} {
			n.Allow(ctx, r)
			if got := testing.AllocsPerRun(1000, func() { n.Allow(ctx, r) }); got != 0 {
				t.Errorf("%q, %s: %v allocations a decision", knobs, name, got)
			}
		}
	}
}

// "If the slice has room, all keys are warm and there are at most 24 requests, it allocates nothing."
func TestWarmBatchesDoNotAllocate(t *testing.T) {
	w := newWorld(t)
	n := w.alone()
	for _, size := range []int{1, 4, 24} {
		var batch []dataplane.Request
		for i := range size {
			batch = append(batch, ask(fmt.Sprint("k", i*7%size), 1, 1<<40))
		}
		decisions := n.AppendAllowMany(t.Context(), nil, batch).Decisions
		if got := testing.AllocsPerRun(1000, func() { decisions = n.AppendAllowMany(t.Context(), decisions[:0], batch).Decisions }); got != 0 {
			t.Errorf("%d requests: %v allocations a batch", size, got)
		}
	}
}

// A lease of a free slot of a warm key allocates nothing. Its release and a refusal without a call allocate nothing
// either.
func TestWarmLeasesDoNotAllocate(t *testing.T) {
	for name, cfg := range map[string]dataplane.Config{
		"alone": {}, "fleet": {Origin: memstore.NewOrigin(memstore.OriginOptions{}), Region: "eu"},
	} {
		l := acquirer(t, cfg)
		r := jobs(1 << 40)
		for range 2 {
			l.Acquire(t.Context(), r)
		}
		got := testing.AllocsPerRun(1000, func() {
			lease, d := l.Acquire(t.Context(), r)
			if lease.Release(); !d.Allowed {
				t.Fatalf("%+v", d)
			}
		})
		if got != 0 {
			t.Errorf("%s: %v allocations a lease", name, got)
		}
	}
	l := acquirer(t, dataplane.Config{})
	l.Acquire(t.Context(), jobs(1))
	if got := testing.AllocsPerRun(1000, func() { l.Acquire(t.Context(), jobs(1)) }); got != 0 {
		t.Errorf("%v allocations a refusal", got)
	}
}

// A reservation that this process makes and settles by itself allocates little.
func TestAReservationOfAProcessAllocatesLittle(t *testing.T) {
	l := newAlone(t, dataplane.Config{})
	r := dataplane.ReserveRequest{Requests: []dataplane.Request{askDay("k", 500, 1<<40)}}
	got := testing.AllocsPerRun(1000, func() {
		made := l.Reserve(t.Context(), r)
		if s, err := l.Settle(t.Context(), made.ID, 120); err != nil || !s.Settled {
			t.Error(made, s, err)
		}
	})
	if got > 40 {
		t.Errorf("%v allocations a reservation, want 40 at most", got)
	}
}
