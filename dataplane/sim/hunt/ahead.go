package hunt

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/store"
)

// Bounds of the faults that set an origin's clock.
const (
	aheadMin     = 2 * time.Second // for which a clock is ahead
	aheadMax     = 6 * time.Second
	spendsMax    = 6
	asksLaterMax = 3
	aheadOneIn   = 6 // plans
)

// aheadBy lists by how much an origin's clock is set ahead. After one of the shorter steps, callers still send requests
// when the clock reaches the same cells for the second time.
var aheadBy = []time.Duration{5 * time.Second, 20 * time.Second, 40 * time.Second, 70 * time.Second, time.Hour,
	24 * time.Hour}

// ahead draws an origin whose clock is ahead for some seconds. It has its own random source. Callers spend a key's
// limit meanwhile, and send requests again when the clock reaches the same cells.
//
// The fleet then has no claims, because claims return cost as credit. It has no holds or leases either, because these
// end early when the clock is set ahead.
func (p *Plan) ahead(span time.Duration) (drawn bool) {
	d := drawer{rand.New(rand.NewPCG(p.Seed, 0x61686561))}
	if d.IntN(aheadOneIn) > 0 {
		return false
	}
	p.Fleet.Share, p.Fleet.Room, p.Fleet.Held, p.Fleet.Slots, p.Rests = false, 0, nil, nil, false
	set := Step{At: d.between(0, span), Do: SetClock, After: d.between(aheadMin, aheadMax)}
	set.Delay, set.Region = aheadBy[d.IntN(len(aheadBy))], d.IntN(len(p.Fleet.Nodes))
	p.Steps = slices.DeleteFunc(p.Steps, func(s Step) bool { return s.ofGrants() || s.emptiesAhead(&set) })
	for i := range p.Steps {
		p.Steps[i].Waits = false
	}
	key := d.IntN(len(p.Fleet.Keys))
	p.Fleet.Keys[key].Duration = d.one(2*time.Second, 2*time.Second, 5*time.Second)
	p.Steps = append(p.Steps, set)
	for range 1 + d.IntN(spendsMax) {
		spend := Step{At: set.At + d.between(0, set.After), Do: Ask, Key: key, Cost: p.Fleet.Keys[key].Limit}
		spend.Region, spend.Node = set.Region, d.IntN(p.Fleet.Nodes[set.Region])
		p.Steps = append(p.Steps, spend)
		if set.Delay > 2*time.Minute {
			continue
		}
		for range d.IntN(asksLaterMax + 1) {
			again := Step{At: spend.At + set.Delay + d.between(0, 3*time.Second), Do: Ask, Key: key, Cost: 1}
			again.Region, again.Node = d.place(p.Fleet)
			p.Steps = append(p.Steps, again)
		}
	}
	slices.SortStableFunc(p.Steps, func(a, b Step) int { return cmp.Compare(a.At, b.At) })
	return true
}

// ofGrants reports whether a step makes a call about a reservation or a lease.
func (s *Step) ofGrants() bool {
	switch s.Do {
	case Hold, SpendHold, SettleHold, CancelHold, ExtendHold, Acquire, Token, Renew, Release:
		return true
	}
	return false
}

// emptiesAhead reports whether a step empties an origin while its clock is ahead: then the origin does not find out
// that the clock is set back. See dataplane/DESIGN.md, "Precision given up".
func (s *Step) emptiesAhead(set *Step) bool {
	return s.Do == Wipe && s.Region == set.Region && s.At >= set.At && s.At <= set.At+set.After
}

// setsClock reports whether any step sets the clock of a region's origin.
func (p Plan) setsClock(region int) bool {
	return slices.ContainsFunc(p.Steps, func(s Step) bool { return s.Do == SetClock && s.Region == region })
}

// aheadOf returns all the offsets that the clock of a region's origin ever has.
func (p Plan) aheadOf(region int) []time.Duration {
	all := []time.Duration{p.Fleet.Ahead[region]}
	for _, s := range p.Steps {
		if s.Do == SetClock && s.Region == region {
			all = append(all, p.Fleet.Ahead[region]+s.Delay)
		}
	}
	return all
}

// now returns the time by the clock of a region's origin.
func (r *region) now() time.Time { return time.Now().Add(time.Duration(r.ahead.Load())) }

// setClock sets the clock of a region's origin ahead for a while. The relays' leases end early when it is set ahead,
// and as they would have when it is set back.
func (w *world) setClock(r *region, s Step) {
	set := func(by time.Duration) {
		r.ahead.Add(int64(by))
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
func (p Plan) noticesWithin() time.Duration {
	if p.changes(Cut, Refuse, Mute, Slow, Repeat, RefuseCalls) {
		return 3*time.Second + placedIn
	}
	return 3 * time.Second
}

// wasSet reports whether the clock of a region's origin was set so recently that a node may not have noticed.
func (w *world) wasSet(r *region) bool {
	at := r.setAt.Load()
	return at != 0 && time.Since(w.began)-time.Duration(at) < w.plan.noticesWithin()
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
func (w *world) locked(l *life, key int, d *dataplane.Decision) {
	if d.Allowed || d.Err != nil || d.Source.Degraded() || l.ended.Load() || w.plan.Fleet.Strict || !w.heals(l, d) {
		return
	}
	asked := w.asks.since(key, time.Now().Add(-2*d.Duration-w.plan.apart()))
	if asked <= d.Limit {
		w.record.violate("ahead", "%v denies k%d, and callers have asked for %d of %d in the last two windows", l, key, asked,
			d.Limit)
	}
}

// apart returns by how much longer than two windows a cost may count: clocks of regions are apart, stand still for up
// to a second, and a node may go by its own clock.
func (p Plan) apart() time.Duration {
	const regions, nodes = 4 * time.Second, 6 * time.Second
	if p.changes(Clock) {
		return regions + nodes + store.ClockSetBack
	}
	return regions + store.ClockSetBack
}

// healsElsewhere is how far ahead a cell may begin for other regions to keep its counts: see dataplane/ACCURACY.md,
// "Bounded".
const healsElsewhere = 2 * time.Minute

// heals reports whether all clocks of origins were set, and have been right for so long that no cell that was ahead
// still counts: two windows in the origin's own region.
func (w *world) heals(l *life, d *dataplane.Decision) (set bool) {
	for _, r := range w.regions {
		at := r.setAt.Load()
		if at == 0 {
			if w.plan.setsClock(r.index) {
				return false
			}
			continue
		}
		after := 2*d.Duration + w.plan.apart() + w.plan.noticesWithin()
		if r != l.node.region {
			after += healsElsewhere
		}
		if w.isAhead(r) || time.Since(w.began)-time.Duration(at) < after {
			return false
		}
		set = true
	}
	return set
}

// isAhead reports whether the clock of a region's origin has not been set right yet.
func (w *world) isAhead(r *region) bool {
	return time.Duration(r.ahead.Load()) != w.plan.Fleet.Ahead[r.index]
}
