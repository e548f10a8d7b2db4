package dataplane_test

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/memstore"
)

// agreement is a region with two nodes and the cost that each of them accepts of a key. The origin fails when they
// first use the key.
type agreement struct {
	nodes  [2]*dataplane.Limiter
	origin *memstore.Origin
}

var costsAccepted = [2]int64{7, 5} // by node

func newAgreement(t *testing.T) *agreement {
	counts, origin := memstore.NewCounts(memstore.CountsOptions{}), memstore.NewOrigin(memstore.OriginOptions{})
	return &agreement{[2]*dataplane.Limiter{started(t, "eu", "a", origin, counts), started(t, "eu", "b", origin, counts)}, origin}
}

// take makes each node accept its cost, the second after a delay.
func (a *agreement) take(t *testing.T, later time.Duration) {
	t.Helper()
	for i, n := range a.nodes {
		if d := n.Allow(t.Context(), ask("k", costsAccepted[i], 100)); !d.Allowed {
			t.Fatalf("node %d: %+v", i, d)
		}
		time.Sleep(later)
	}
}

// askAll sends a request of cost 0 to both nodes every 5 ms, for d.
func (a *agreement) askAll(t *testing.T, d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		for _, n := range a.nodes {
			n.Allow(t.Context(), ask("k", 0, 100))
		}
	}
}

// check fails unless the origin holds the accepted cost once, and both nodes count it.
func (a *agreement) check(t *testing.T) {
	t.Helper()
	var held int64
	for _, total := range totals(a.origin) {
		held += total
	}
	if want := costsAccepted[0] + costsAccepted[1]; held != want {
		t.Errorf("the origin holds %d of %d", held, want)
	}
	for i, n := range a.nodes {
		if d := n.Allow(t.Context(), ask("k", 0, 100)); d.Current != float64(held) {
			t.Errorf("node %d counts %v, the origin %d", i, d.Current, held)
		}
	}
}

// Two nodes first use a key while their origin is down, slow or loses replies. When the origin has recovered, it
// holds the accepted cost once, however often it was sent, and both nodes count it.
func TestNodesAgreeAfterATroubledStart(t *testing.T) {
	for name, trouble := range map[string]func(*memstore.Faults){
		"down":                                  func(f *memstore.Faults) { f.Fail(errDown) },
		"too slow for decisions, not for sends": func(f *memstore.Faults) { f.Delay(300 * time.Millisecond) },
		"too slow for both":                     func(f *memstore.Faults) { f.Delay(3 * time.Second) },
		"replies are lost":                      func(f *memstore.Faults) { f.LoseReplies(true) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := newAgreement(t)
				trouble(&a.origin.Faults)
				a.take(t, 0)
				a.askAll(t, 1500*time.Millisecond)
				heal(&a.origin.Faults)
				a.askAll(t, 15*time.Second)
				a.check(t)
			})
		})
	}
}

func heal(f *memstore.Faults) {
	f.Fail(nil)
	f.Delay(0)
	f.LoseReplies(false)
}

// The same must hold if failures come and go at any moment.
func TestNodesAgreeAfterAnyTroubledStart(t *testing.T) {
	for seed := range uint64(60) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 0))
			upTo := func(ms int) time.Duration { return time.Duration(random.IntN(ms)) * time.Millisecond }
			a := newAgreement(t)
			go func() {
				for range 1 + random.IntN(8) {
					switch random.IntN(4) {
					case 0:
						a.origin.Faults.Fail(errDown)
					case 1:
						a.origin.Faults.Delay(upTo(2500))
					case 2:
						a.origin.Faults.LoseReplies(true)
					case 3:
						heal(&a.origin.Faults)
					}
					time.Sleep(upTo(700))
				}
				heal(&a.origin.Faults)
			}()
			later, troubled := time.Duration(seed%5*70)*time.Millisecond, 6*time.Second
			a.take(t, later)
			a.askAll(t, troubled)
			a.askAll(t, 15*time.Second)
			a.check(t)
			if t.Failed() {
				t.Logf("seed %d", seed)
			}
		})
	}
}
