package faults

import (
	"testing"
	"time"

	"github.com/weirhq/weir/shared/await"
	"github.com/weirhq/weir/shared/servers"
	"github.com/weirhq/weir/shared/tuning"
)

// With digests regions tell each other by bulletins, and rows are lower bounds. MySQL is
// cut off from everybody, for longer than digests are good for in the long form, while one
// region uses up what both use: when it is back the other denies, and nobody was ever
// told more than was accepted.
func TestSoakBulletinsAfterMySQLWasAway(t *testing.T) {
	t.Parallel()
	servers.TurnSQL(t, testSoakBulletinsAfterMySQLWasAway)
}

func testSoakBulletinsAfterMySQLWasAway(t *testing.T) {
	t.Parallel()
	set := tuning.Default()
	set.SlowInterval, set.FastInterval = tuning.Duration(400*time.Millisecond), tuning.Duration(200*time.Millisecond)
	set.DigestInterval = tuning.Duration(500 * time.Millisecond)
	f := newFleet(t, plan{tuning: set})
	eu, us := f.region("eu"), f.region("us")
	l := load{perSecond: 100, keys: 50, limit: 500, shared: true}
	stop := l.start(t, f.regions...)
	stopWatch := f.watch()
	pause(t.Context(), 2*set.DigestInterval.Std())
	for _, r := range f.regions {
		r.toMySQL((*servers.Proxy).Cut)
	}
	pause(t.Context(), soak(2*time.Second, 30*time.Second))
	stop()
	eu.useUp(l)
	since := f.heal()
	await.True(t, "the other region has heard of all that was accepted", func() bool { return us.knowsAll(f, l) })
	took := recovery{heard: time.Since(since)}
	stopWatch()
	ambiguous := f.metric("weir_replay_ambiguous_cost_total") // may count twice
	for i := range l.keys {
		for _, n := range us.nodes {
			if d := us.ask(n, l.key(i), l.limit); d.Allowed {
				t.Errorf("%s of a key that is used up: %+v", n.id, d)
			}
			if knows, most := n.knows(l.key(i), oneCell), f.accepted(l.key(i)); knows > most+ambiguous {
				t.Errorf("%s counts %d of %s, %d were accepted and %d are ambiguous", n.id, knows, l.key(i), most, ambiguous)
			}
		}
	}
	f.settle("MySQL cut off from all, with digests", took, allowance{unpublished: true})
}

// useUp asks until every node of the region denies every key.
func (r *region) useUp(l load) {
	for i := range l.keys {
		for _, n := range r.nodes {
			for r.ask(n, l.key(i), l.limit).Allowed {
				continue
			}
		}
	}
}

// knowsAll is true when every node of the region counts as much as was accepted of each
// key, everywhere.
func (r *region) knowsAll(f *fleet, l load) bool {
	for i := range l.keys {
		for _, n := range r.nodes {
			if n.knows(l.key(i), oneCell) < min(l.limit, f.accepted(l.key(i))) {
				return false
			}
		}
	}
	return true
}

// accepted is what all regions have accepted of a key.
func (f *fleet) accepted(identifier string) (n int64) {
	for _, r := range f.regions {
		n += r.ledger.of(identifier)
	}
	return n
}
