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
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/await"
	"github.com/weirhq/weir/shared/window"
)

// atOrigin returns the region's own counts of cells in its Redis.
func (r *region) atOrigin(ctx context.Context, cells totals) (totals, error) {
	return r.read(ctx, cells, func(t *store.Total) int64 { return t.Region })
}

// foreign returns the counts of all other regions in the region's Redis.
func (r *region) foreign(ctx context.Context, cells totals) (totals, error) {
	return r.read(ctx, cells, func(t *store.Total) int64 { return t.Foreign })
}

func (r *region) read(ctx context.Context, cells totals, part func(*store.Total) int64) (totals, error) {
	held := make(totals, len(cells))
	for chunk := range slices.Chunk(slices.Collect(maps.Keys(cells)), 500) {
		ask := make([]window.Cell, len(chunk))
		for i, c := range chunk {
			ask[i] = window.Cell{Key: window.Key{Workspace: workspace, Namespace: namespace, Identifier: c.identifier, Duration: r.ledger.duration}, Sequence: c.sequence}
		}
		reply, err := r.truth.Read(ctx, ask)
		if err != nil {
			return nil, err
		}
		for i, c := range chunk {
			held[c] = part(&reply.Totals[i])
		}
	}
	return held, nil
}

// others returns the sum of the counts of all regions but r.
func (r *region) others(counts map[*region]totals) totals {
	sum := make(totals)
	for other, cells := range counts {
		if other != r {
			for c, n := range cells {
				sum[c] += n
			}
		}
	}
	return sum
}

// published returns the counts that the region has stored in MySQL.
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

// drift returns the cost that got lacks of want, and the cost that it has in addition, summed over all cells.
func drift(want, got totals) (lost, over int64) {
	for c, n := range want {
		lost += max(0, n-got[c])
	}
	for c, n := range got {
		over += max(0, n-want[c])
	}
	return lost, over
}

// watch checks the invariants of the fleet until stop is called: at any moment, no region's Redis and no region's row
// can have more than was accepted.
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
	own := func() totals { return r.ledger.atMost() }
	others := func() totals {
		counts := make(map[*region]totals)
		for _, other := range r.fleet.regions {
			counts[other] = other.ledger.atMost()
		}
		return r.others(counts)
	}
	for what, look := range map[string]struct {
		held func() (totals, error)
		most func() totals
	}{
		"Redis holds":                  {func() (totals, error) { return r.atOrigin(ctx, own()) }, own},
		"Redis holds of other regions": {func() (totals, error) { return r.foreign(ctx, others()) }, others},
		"MySQL has":                    {func() (totals, error) { return r.published(ctx) }, own},
	} {
		got, err := look.held()
		if err != nil {
			continue // down, or the context has ended
		}
		if _, over := drift(look.most(), got); over > 0 {
			r.fleet.t.Errorf("%s: %s %d more than was accepted", r.name, what, over)
		}
	}
}

// decidesOn returns once every region has made a hundred more decisions, because decisions must continue during a
// fault. The slowest decision is printed. The proof that none outlasts ReadTimeout is in virtual time.
func (f *fleet) decidesOn() {
	f.t.Helper()
	for _, r := range f.regions {
		before := r.ledger.made()
		await.True(f.t, "decisions of "+r.name+" go on", func() bool { return r.ledger.made() >= before+100 })
	}
}

// recovery has the times from a fault's end until all cost that was accepted before it has arrived. The load continues
// meanwhile.
type recovery struct {
	origin time.Duration // in the region's Redis
	rows   time.Duration // in MySQL
	heard  time.Duration // in the Redis of all other regions, and counted by a node of each
}

// recovered waits for the recovery. refused is the cost that MySQL never accepts.
func (f *fleet) recovered(since time.Time, refused int64) (took recovery) {
	f.t.Helper()
	wants := make(map[*region]totals)
	for _, r := range f.regions {
		wants[r] = r.ledger.snapshot()
	}
	complete := func(forgiven int64, held func(*region) (totals, error)) func() bool {
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
		"each Redis holds what was accepted": {&took.origin, complete(0, func(r *region) (totals, error) { return r.atOrigin(f.t.Context(), wants[r]) })},
		"MySQL has what was accepted":        {&took.rows, complete(refused, func(r *region) (totals, error) { return r.published(f.t.Context()) })},
		"every region has heard of it":       {&took.heard, f.hearing(wants)},
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

// hearing returns a function that reports whether each region's Redis has the counts of the other regions. It also
// checks, for some keys that only other regions use, that a node of the region counts them; it reads only some because
// each read takes time. A node whose Redis does not answer in time is read again.
func (f *fleet) hearing(wants map[*region]totals) (heard func() bool) {
	unheard := make(map[*region]totals)
	for _, r := range f.regions {
		unheard[r] = r.others(wants)
	}
	return func() bool {
		for _, r := range f.regions {
			got, err := r.foreign(f.t.Context(), unheard[r])
			if err != nil {
				return false
			}
			n, asks := r.nodes[len(r.nodes)-1], 20
			maps.DeleteFunc(unheard[r], func(c cell, count int64) bool {
				if got[c] < count || !strings.Contains(c.identifier, "@") || asks == 0 {
					return got[c] >= count
				}
				asks--
				return n.knows(c.identifier, r.ledger.duration) >= count
			})
			if len(unheard[r]) > 0 {
				return false
			}
		}
		return true
	}
}

// knows returns the cost that a node counts for a key.
func (n *node) knows(identifier string, duration time.Duration) int64 {
	d := n.Peek(context.Background(), dataplane.Request{
		Workspace: workspace, Namespace: namespace, Identifier: identifier, Limit: plenty, Duration: duration, ZeroCost: true})
	return int64(d.Current)
}

// allowance is the cost that MySQL may lack in the end.
type allowance struct {
	refused int64 // cost of rows that MySQL rejects

	unpublished bool // by tuning: cost below the floor, and less than a step
}

// settle stops all limiters and compares counts exactly: each Redis must have the accepted cost. Relays then carry
// exactly that to MySQL and to the other regions. It prints a line of figures.
func (f *fleet) settle(fault string, took recovery, a allowance) {
	t := f.t
	t.Helper()
	f.stop()
	var decisions int64
	var worst time.Duration
	wants := make(map[*region]totals)
	for _, r := range f.regions {
		r.ledger.check(t.Errorf, r.name)
		wants[r] = r.ledger.snapshot()
		held, err := r.atOrigin(t.Context(), wants[r])
		must(t, err)
		if lost, over := drift(wants[r], held); lost > 0 || over > 0 {
			t.Errorf("%s: of %d accepted Redis lacks %d, and has %d beyond it", r.name, wants[r].sum(), lost, over)
		}
		decisions, worst = decisions+r.ledger.decisions, max(worst, r.ledger.worst)
	}
	if !a.unpublished {
		f.carried(wants, a.refused)
	}
	t.Logf("MEASURED | %s | %s | %s | %s | %s (%s) | %.0f |", fault,
		ms(took.origin), ms(took.rows), ms(took.heard), ms(worst), ms(f.machine.worst()), float64(decisions)/time.Since(f.began).Seconds())
}

// carried waits until relays have brought all that was accepted to MySQL and to all other regions, and holds them to no
// more than that.
func (f *fleet) carried(wants map[*region]totals, refused int64) {
	t := f.t
	t.Helper()
	exactly := func(what string, forgiven int64, want totals, read func() (totals, error)) {
		t.Helper()
		var over int64
		await.True(t, what, func() bool {
			got, err := read()
			must(t, err)
			var lost int64
			lost, over = drift(want, got)
			return lost <= forgiven || t.Failed()
		})
		if over > 0 {
			t.Errorf("%s, and %d beyond it", what, over)
		}
	}
	for _, r := range f.regions {
		others := r.others(wants)
		exactly("MySQL has what "+r.name+" accepted", refused, wants[r], func() (totals, error) { return r.published(t.Context()) })
		exactly(r.name+" has heard of all", 0, others, func() (totals, error) { return r.foreign(t.Context(), others) })
	}
}

// check checks the invariants of the callers' side: for example, no caller may see an error.
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
