package faults

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/shared/await"
	"github.com/weirhq/weir/shared/servers"
	"github.com/weirhq/weir/shared/tuning"
)

// With the default tuning, another region denies within 3 s after a region has used a limit up: see heardWithin. There
// are three kinds of keys: keys that the other region does not use, keys that it has just begun to use, and keys that
// it has used for seconds. Each is measured at a different moment within the relays' intervals.
func TestSoakConvergenceAtTheDefaultTuning(t *testing.T) {
	t.Parallel()
	servers.TurnSQL(t, testSoakConvergenceAtTheDefaultTuning)
}

func testSoakConvergenceAtTheDefaultTuning(t *testing.T) {
	t.Parallel()
	f := newFleet(t, plan{tuning: tuning.Default()})
	const keys, spread = 200, 20 * time.Second
	kinds := []*struct {
		name      string
		used      bool          // by the other region
		after     time.Duration // that it has used it
		took      delays
		measuring sync.WaitGroup
	}{
		{name: "a key that the other region does not use"},
		{name: "a key that the other region has just begun to use", used: true},
		{name: "a key that both regions use", used: true, after: 5 * time.Second},
	}
	random := rand.New(rand.NewPCG(1, 1))
	for n, kind := range kinds {
		for i := range keys {
			begins, key := time.Duration(random.Int64N(int64(spread))), fmt.Sprintf("kind%d-%d", n, i)
			kind.measuring.Go(func() {
				pause(t.Context(), begins)
				kind.took.add(f.untilDenied(key, kind.used, kind.after))
			})
		}
	}
	for _, kind := range kinds {
		kind.measuring.Wait()
		t.Logf("MEASURED | %s | %v |", kind.name, &kind.took)
		if late := kind.took.late(); late > 0 {
			t.Errorf("%s: of %d keys %d were not heard of within %v", kind.name, keys, late, heardWithin)
		}
	}
	t.Logf("relays: %d errors, %d fenced; origin: %d errors", f.metric("weir_relay_errors_total"), f.metric("weir_relay_fenced_total"), f.metric("weir_origin_errors_total"))
	f.settle("none, at the default tuning", recovery{}, allowance{unpublished: true})
}

// untilDenied uses the rest of a limit up in the first region immediately, and returns the time until each node of the
// second region would deny.
func (f *fleet) untilDenied(identifier string, used bool, after time.Duration) time.Duration {
	const limit = 100
	eu, us := f.regions[0], f.regions[1]
	left := limit
	if used {
		for _, n := range us.nodes {
			us.ask(n, identifier, limit)
		}
		eu.ask(eu.nodes[0], identifier, limit)
		left -= len(us.nodes) + 1
		pause(f.t.Context(), after)
	}
	for i := range left {
		eu.ask(eu.nodes[i%len(eu.nodes)], identifier, limit)
	}
	began := time.Now()
	tick := time.NewTicker(100 * time.Millisecond) // the waiting must not cause the effect that it waits for
	defer tick.Stop()
	for time.Since(began) < patience && slices.ContainsFunc(us.nodes, func(n *node) bool { return n.allows(identifier, limit) }) {
		<-tick.C
	}
	return time.Since(began)
}

// allows reports whether a node would allow a request of cost 1.
func (n *node) allows(identifier string, limit int64) bool {
	return n.Peek(context.Background(), dataplane.Request{
		Workspace: workspace, Namespace: namespace, Identifier: identifier, Limit: limit, Duration: oneCell}).Allowed
}

// heardWithin bounds the time for which a key is allowed in one region after another region has used it up. The short
// form runs together with other tests, on machines of any speed, so it only waits until the key is denied at all. The
// tests of package relay prove the bound in virtual time.
var heardWithin = soak(await.Patience, 3*time.Second)

// patience bounds how long a test can wait for a key.
var patience = heardWithin + 20*time.Second

// delays are samples.
type delays struct {
	mu  sync.Mutex
	all []time.Duration
}

func (d *delays) add(sample time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.all = append(d.all, sample)
}

func (d *delays) late() (n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, took := range d.all {
		if took > heardWithin {
			n++
		}
	}
	return n
}

// String formats the row of a table.
func (d *delays) String() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	slices.Sort(d.all)
	at := func(share float64) string { return ms(d.all[int(share*float64(len(d.all)-1))]) }
	return fmt.Sprintf("%d | %s | %s | %s", len(d.all), at(0.5), at(0.99), at(1))
}
