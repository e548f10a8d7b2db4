package hunt

import (
	"sync"
	"time"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/store"
)

// setClock sets the clock of a region's origin ahead for a while. The relays' leases end early when it is set ahead,
// and as they would have when it is set back.
func (w *world) setClock(r *region, s Step) {
	set := func(by time.Duration) {
		r.clock.Move(by)
		r.setAt.Store(int64(time.Since(w.began)))
		w.ledger.clockSet(r)
	}
	r.leases.forget(func() { set(s.Delay) })
	time.Sleep(s.After)
	set(-s.Delay)
	w.record.note("the clock of %s is right again", r.name)
}

// noticesWithin returns how long a life takes to notice that its origin's clock was set: it calls its origin each
// second.
func (w *world) noticesWithin() time.Duration {
	if w.plan.LosesCalls() {
		return 3*time.Second + placedIn
	}
	return 3 * time.Second
}

// wasSet reports whether the clock of a region's origin was set so recently that a node may not have noticed.
func (w *world) wasSet(r *region) bool {
	at := r.setAt.Load()
	return at != 0 && time.Since(w.began)-time.Duration(at) < w.noticesWithin()
}

// clockSet records that the clock of a region's origin was set. The origin may then forget cells that are ahead, and
// cells that have ended. Their names may come again. So the origin may hold the cost accepted in them, but need not.
func (g *ledger) clockSet(r *region) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, a := range g.accounts {
		for _, e := range a.entries {
			if e.life.node.region == r {
				e.low, e.unknown, e.atStop = 0, 0, 0
			}
		}
	}
}

// asks lists the costs of all requests, granted or denied, with their times.
type asks struct {
	world *world

	mu  sync.Mutex
	all []askedFor
}

type askedFor struct {
	key  int
	cost int64
	at   time.Time
}

func (a *asks) add(key int, cost int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.all = append(a.all, askedFor{key, cost, time.Now()})
}

// since returns the cost that callers have requested of a key since a time.
func (a *asks) since(key int, from time.Time) (cost int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, is := range a.all {
		if is.key == key && !is.at.Before(from) {
			cost += is.cost
		}
	}
	return cost
}

// locked checks a denial against the cost that callers requested in the last two windows, this request included. In a
// history in which an origin's clock is set, no other cost may deny a caller once the clock has been right for as long.
func (a *asks) locked(l *life, key int, d *dataplane.Decision) {
	if d.Allowed || d.Err != nil || d.Source.Degraded() || l.ended.Load() || a.world.plan.Fleet.Strict || !a.heals(l, d) {
		return
	}
	asked := a.since(key, time.Now().Add(-2*d.Duration-a.apart()))
	if asked <= d.Limit {
		a.world.record.violate("ahead", "%v denies k%d, and callers have asked for %d of %d in the last two windows", l, key,
			asked, d.Limit)
	}
}

// apart returns by how much longer than two windows a cost may count: clocks of regions are apart, stand still for up
// to a second, and a node may go by its own clock.
func (a *asks) apart() time.Duration {
	const regions, nodes = 4 * time.Second, 6 * time.Second
	if a.world.plan.Changes(Clock) {
		return regions + nodes + store.ClockSetBack
	}
	return regions + store.ClockSetBack
}

// healsElsewhere is how far ahead a cell may begin for other regions to keep its counts: see dataplane/ACCURACY.md,
// "Bounded".
const healsElsewhere = 2 * time.Minute

// heals reports whether all clocks of origins were set, and have been right for so long that no cell that was ahead
// still counts: two windows in the origin's own region.
func (a *asks) heals(l *life, d *dataplane.Decision) (set bool) {
	w := a.world
	for _, r := range w.regions {
		at := r.setAt.Load()
		if at == 0 {
			if w.plan.SetsClock(r.index) {
				return false
			}
			continue
		}
		after := 2*d.Duration + a.apart() + w.noticesWithin()
		if r != l.node.region {
			after += healsElsewhere
		}
		if r.clock.Ahead() != w.plan.Fleet.Ahead[r.index] || time.Since(w.began)-time.Duration(at) < after {
			return false
		}
		set = true
	}
	return set
}
