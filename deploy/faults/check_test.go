package faults

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/shared/await"
	"github.com/weirhq/weir/shared/window"
)

// atOrigin is what the region's Redis holds of cells.
func (r *region) atOrigin(ctx context.Context, cells totals) (totals, error) {
	held := make(totals, len(cells))
	for chunk := range slices.Chunk(slices.Collect(maps.Keys(cells)), 500) {
		ask := make([]window.Cell, len(chunk))
		for i, c := range chunk {
			ask[i] = window.Cell{Key: window.Key{Workspace: workspace, Namespace: namespace, Identifier: c.identifier, Duration: r.ledger.duration}, Sequence: c.sequence}
		}
		reply, err := r.truth.Get(ctx, ask)
		if err != nil {
			return nil, err
		}
		for i, c := range chunk {
			held[c] = reply.Totals[i].Region
		}
	}
	return held, nil
}

// published is what the region has told the others.
func (r *region) published(ctx context.Context) (totals, error) {
	rows, err := r.fleet.db.QueryContext(ctx, "SELECT identifier, sequence, count FROM ratelimit_window_counts WHERE region = ?", r.name)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	held := make(totals)
	for rows.Next() {
		var c cell
		var n int64
		if err := rows.Scan(&c.identifier, &c.sequence, &n); err != nil {
			return nil, err
		}
		held[c] = n
	}
	return held, rows.Err()
}

// drift is what got lacks of want, and has beyond it, cell by cell.
func drift(want, got totals) (lost, over int64) {
	for c, n := range want {
		lost += max(0, n-got[c])
	}
	for c, n := range got {
		over += max(0, n-want[c])
	}
	return lost, over
}

// watch holds the fleet, until stop is called, to what must be true at any moment: no
// region's origin and no region's row says more than was accepted and what the nodes
// name as ambiguous.
func (f *fleet) watch() (stop func()) {
	ctx, cancel := context.WithCancel(f.t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		tick := time.NewTicker(200 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				for _, r := range f.regions {
					r.look(ctx)
				}
			}
		}
	})
	stop = sync.OnceFunc(func() { cancel(); running.Wait() })
	f.t.Cleanup(stop)
	return stop
}

func (r *region) look(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	for what, held := range map[string]func() (totals, error){
		"the origin holds":    func() (totals, error) { return r.atOrigin(ctx, r.ledger.snapshot()) },
		"the count store has": func() (totals, error) { return r.published(ctx) },
	} {
		got, err := held()
		if err != nil {
			continue // down, or told to stop
		}
		want := r.ledger.snapshot()
		for c := range want {
			want[c] += r.ledger.workers // decided, and not written down yet
		}
		if _, over := drift(want, got); over > r.metric("weir_replay_ambiguous_cost_total") {
			r.fleet.t.Errorf("%s: %s %d more than was accepted", r.name, what, over)
		}
	}
}

// decidesOn returns once every region has made a hundred decisions more: during a fault they have to go on without an
// end of it. How long one takes is printed; that none outlasts ReadTimeout is proven in virtual time.
func (f *fleet) decidesOn() {
	f.t.Helper()
	for _, r := range f.regions {
		before := r.ledger.made()
		await.True(f.t, "decisions of "+r.name+" go on", func() bool { return r.ledger.made() >= before+100 })
	}
}

// recovery is how long after a fault's end everything accepted before it was where it
// belongs; the load goes on meanwhile.
type recovery struct {
	origin time.Duration // in the region's Redis
	rows   time.Duration // in MySQL
	heard  time.Duration // known to a node of each other region
}

// recovered waits for that. forgiven is how much may be lost for good, but for what is
// not healed at all.
func (f *fleet) recovered(since time.Time, forgiven int64) (took recovery) {
	f.t.Helper()
	wants := make(map[*region]totals)
	for _, r := range f.regions {
		wants[r] = f.healed(r.ledger.snapshot())
	}
	complete := func(held func(*region) (totals, error)) func() bool {
		return func() bool {
			for _, r := range f.regions {
				got, err := held(r)
				if lost, _ := drift(wants[r], got); err != nil || lost > forgiven {
					return false
				}
			}
			return true
		}
	}
	var waiting sync.WaitGroup
	for what, wait := range map[string]struct {
		took *time.Duration
		done func() bool
	}{
		"the origins hold what was accepted": {&took.origin, complete(func(r *region) (totals, error) { return r.atOrigin(f.t.Context(), wants[r]) })},
		"MySQL has what was accepted":        {&took.rows, complete(func(r *region) (totals, error) { return r.published(f.t.Context()) })},
		"every region has heard of it":       {&took.heard, func() bool { return f.heard(wants, forgiven) }},
	} {
		waiting.Go(func() {
			tick := time.NewTicker(20 * time.Millisecond)
			defer tick.Stop()
			for !wait.done() {
				if <-tick.C; time.Since(since) > await.Patience {
					f.t.Errorf("not within %v: %s", await.Patience, what)
					return
				}
			}
			*wait.took = time.Since(since)
		})
	}
	waiting.Wait()
	return took
}

// heard is true when a node of each region counts at least as much of what the other
// regions have to themselves.
func (f *fleet) heard(wants map[*region]totals, forgiven int64) bool {
	for _, r := range f.regions {
		n := r.nodes[len(r.nodes)-1]
		var missing int64
		for other, want := range wants {
			for c, count := range want {
				if other != r && other.owns(c.identifier) {
					missing += max(0, count-n.knows(c.identifier, r.ledger.duration))
				}
			}
		}
		if missing > forgiven {
			return false
		}
	}
	return true
}

// knows is what a node counts against a key.
func (n *node) knows(identifier string, duration time.Duration) int64 {
	d := n.Peek(context.Background(), dataplane.Request{
		Workspace: workspace, Namespace: namespace, Identifier: identifier, Limit: plenty, Duration: duration, ZeroCost: true})
	return int64(d.Current)
}

// healed is cells without those of keys at their limit, if an origin has lost them:
// nobody may add to them, so nobody finds them lost.
func (f *fleet) healed(all totals) totals {
	maps.DeleteFunc(all, func(c cell, _ int64) bool { return f.wiped && strings.HasPrefix(c.identifier, victims.prefix) })
	return all
}

// allowance is what a fault may cost, beyond what the nodes' metrics name.
type allowance struct {
	lost    int64 // at the origin, and so in MySQL
	missing int64 // rows that MySQL refused, in cost

	unpublished bool // by the tuning: what is below the floor, and less than a step
}

// settle stops all nodes and compares, to the unit: what the origins hold is what was
// accepted, but for what was dropped or forgiven, and what is ambiguous; and what MySQL
// has is what the origins hold. It prints a line of figures.
func (f *fleet) settle(fault string, took recovery, a allowance) {
	t := f.t
	t.Helper()
	f.stop()
	var decisions, lost, over, ambiguous int64
	var worst time.Duration
	for _, r := range f.regions {
		r.ledger.check(t.Errorf, r.name)
		want := f.healed(r.ledger.snapshot())
		held, err := r.atOrigin(t.Context(), want)
		must(t, err)
		rows, err := r.published(t.Context())
		must(t, err)
		rows = f.healed(rows)

		maybe, dropped := r.metric("weir_replay_ambiguous_cost_total"), r.metric("weir_dropped_cost_total")
		regionLost, regionOver := drift(want, held)
		if regionLost > dropped+a.lost {
			t.Errorf("%s: the origin lacks %d of %d, of which %d are named as dropped", r.name, regionLost, want.sum(), dropped)
		}
		if regionOver > maybe {
			t.Errorf("%s: the origin counts %d too many, of which %d are named as ambiguous", r.name, regionOver, maybe)
		}
		if fewer, more := drift(held, rows); !a.unpublished && fewer > a.missing+regionOver || more > a.lost {
			t.Errorf("%s: of what the origin holds MySQL lacks %d, and has %d beyond it", r.name, fewer, more)
		}
		lost, over, ambiguous = lost+regionLost, over+regionOver, ambiguous+maybe
		decisions, worst = decisions+r.ledger.decisions, max(worst, r.ledger.worst)
	}
	t.Logf("MEASURED | %s | %s | %s | %s | %d | %d of %d | %s (%s) | %.0f |", fault,
		ms(took.origin), ms(took.rows), ms(took.heard), lost, over, ambiguous, ms(worst), ms(f.machine.worst()), float64(decisions)/time.Since(f.began).Seconds())
}

// check holds the callers' side to what no fault may change.
func (l *ledger) check(errorf func(string, ...any), region string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.firstErr != nil {
		errorf("%s: a caller saw an error: %v", region, l.firstErr)
	}
	if l.decisions == 0 {
		errorf("%s: nothing was decided", region)
	}
}

func ms(d time.Duration) string {
	if d == 0 {
		return "-"
	}
	return fmt.Sprintf("%d ms", d.Milliseconds())
}
