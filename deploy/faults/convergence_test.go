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
// a limit up until the other denies. A key that only one region uses and one that both
// use are measured apart; each at a moment of its own within the loops' intervals.
func TestSoakConvergenceAtTheDefaultTuning(t *testing.T) {
	t.Parallel()
	f := newFleet(t, plan{tuning: tuning.Default()})
	keys, spread := soak(20, 200), soak(3*time.Second, time.Minute)
	var known, unknown delays
	var measuring sync.WaitGroup
	random := rand.New(rand.NewPCG(1, 1))
	for i := range keys {
		after := time.Duration(random.Int64N(int64(spread)))
		measuring.Go(func() {
			pause(t.Context(), after)
			unknown.add(f.untilDenied(fmt.Sprintf("unknown%d", i), false))
		})
		measuring.Go(func() {
			pause(t.Context(), after)
			known.add(f.untilDenied(fmt.Sprintf("known%d", i), true))
		})
	}
	measuring.Wait()
	t.Logf("MEASURED | a key that the other region does not use | %v |", &unknown)
	t.Logf("MEASURED | a key that both regions use | %v |", &known)
	f.settle("none, at the default tuning", recovery{}, allowance{unpublished: true})
}

// untilDenied uses a limit up in the first region, at once, and returns how long it
// takes until each node of the second one denies.
func (f *fleet) untilDenied(identifier string, known bool) time.Duration {
	const limit = 100
	eu, us := f.regions[0], f.regions[1]
	left := int64(limit)
	if known {
		for _, n := range us.nodes {
			us.ask(n, identifier, limit)
			left--
		}
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
