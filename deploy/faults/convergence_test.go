package faults

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/weirhq/weir/shared/servers"
	"github.com/weirhq/weir/shared/tuning"
)

// How long it takes, at the default tuning, from the moment in which one region has used
// a limit up until the other denies. Three kinds of keys: those that the other region does
// not use, those that it has just begun to use, and those that it has used for longer than
// a digest needs to say so. Each is measured at a moment of its own within the loops'
// intervals.
func TestSoakConvergenceAtTheDefaultTuning(t *testing.T) {
	t.Parallel()
	servers.TurnSQL(t, testSoakConvergenceAtTheDefaultTuning)
}

func testSoakConvergenceAtTheDefaultTuning(t *testing.T) {
	t.Parallel()
	set := tuning.Default()
	f := newFleet(t, plan{tuning: set})
	keys, spread := soak(15, 200), soak(2*time.Second, time.Minute)
	kinds := []*struct {
		name      string
		used      bool          // by the other region
		after     time.Duration // that it has used it
		took      delays
		measuring sync.WaitGroup
	}{
		{name: "a key that the other region does not use"},
		{name: "a key that the other region has just begun to use", used: true},
		{name: "a key that both regions use", used: true, after: 4 * set.NewsInterval.Std()},
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
		if late := kind.took.late(); kind.used && late > keys/4 {
			t.Errorf("%s: of %d keys %d were not heard of within %v", kind.name, keys, late, patience)
		}
	}
	f.settle("none, at the default tuning", recovery{}, allowance{unpublished: true})
}

// untilDenied uses a limit up in the first region, at once, and returns how long it
// takes until each node of the second one denies.
func (f *fleet) untilDenied(identifier string, used bool, after time.Duration) time.Duration {
	const limit, ask = 100, 103 // one more for what the other region has used
	eu, us := f.regions[0], f.regions[1]
	if used {
		for _, n := range us.nodes {
			us.ask(n, identifier, ask)
		}
		eu.ask(eu.nodes[0], identifier, ask)
		pause(f.t.Context(), after)
	}
	for i := range limit {
		eu.ask(eu.nodes[i%len(eu.nodes)], identifier, ask)
	}
	began := time.Now()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for time.Since(began) < patience && slices.ContainsFunc(us.nodes, func(n *node) bool { return n.knows(identifier, oneCell) < limit }) {
		<-tick.C
	}
	return time.Since(began)
}

// patience is how long a key is waited for; those that take longer are counted.
const patience = 20 * time.Second

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
		if took >= patience {
			n++
		}
	}
	return n
}

// String is what a row of a table has.
func (d *delays) String() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	slices.Sort(d.all)
	at := func(share float64) string { return ms(d.all[int(share*float64(len(d.all)-1))]) }
	return fmt.Sprintf("%d | %s | %s | %s", len(d.all), at(0.5), at(0.99), at(1))
}
