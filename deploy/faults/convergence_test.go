package faults

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/weirhq/weir/shared/tuning"
)

// How long it takes, at the default tuning, from the moment in which one region has used
// a limit up until the other denies. Three kinds of keys: those that the other region does
// not use, those that it has just begun to use, and those that it has used for longer than
// a digest needs to say so. Each is measured at a moment of its own within the loops'
// intervals.
func TestSoakConvergenceAtTheDefaultTuning(t *testing.T) {
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
		{name: "a key that both regions use", used: true, after: set.DigestInterval.Std() + 2*set.FastInterval.Std()},
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
	}
	f.settle("none, at the default tuning", recovery{}, allowance{unpublished: true})
}

// untilDenied uses a limit up in the first region, at once, and returns how long it
// takes until each node of the second one denies.
func (f *fleet) untilDenied(identifier string, used bool, after time.Duration) time.Duration {
	const limit = 100
	eu, us := f.regions[0], f.regions[1]
	left := int64(limit)
	if used {
		for _, n := range us.nodes {
			us.ask(n, identifier, limit)
			left--
		}
		eu.ask(eu.nodes[0], identifier, limit)
		left--
		pause(f.t.Context(), after)
	}
	for i := range left {
		eu.ask(eu.nodes[int(i)%len(eu.nodes)], identifier, limit)
	}
	began := time.Now()
	eventually(f.t, 60*time.Second, "the other region denies "+identifier, func() bool {
		for _, n := range us.nodes {
			if n.knows(identifier, oneCell) < limit {
				return false
			}
		}
		return true
	})
	return time.Since(began)
}

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

// String is what a row of a table has.
func (d *delays) String() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	slices.Sort(d.all)
	at := func(share float64) string { return ms(d.all[int(share*float64(len(d.all)-1))]) }
	return fmt.Sprintf("%d | %s | %s | %s", len(d.all), at(0.5), at(0.99), at(1))
}
