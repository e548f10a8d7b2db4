package plan

import (
	"math/rand/v2"
	"slices"
	"time"
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
	p.Steps = slices.DeleteFunc(p.Steps, func(s Step) bool { return s.Do.ofGrants() || s.emptiesAhead(&set) })
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
	p.sort()
	return true
}

// emptiesAhead reports whether a step empties an origin while its clock is ahead: then the origin does not find out
// that the clock is set back. See dataplane/DESIGN.md, "Precision given up".
func (s *Step) emptiesAhead(set *Step) bool {
	return s.Do == Wipe && s.Region == set.Region && s.At >= set.At && s.At <= set.At+set.After
}

// SetsClock reports whether any step sets the clock of a region's origin.
func (p Plan) SetsClock(region int) bool {
	return slices.ContainsFunc(p.Steps, func(s Step) bool { return s.Do == SetClock && s.Region == region })
}

// AheadOf returns all the offsets that the clock of a region's origin ever has.
func (p Plan) AheadOf(region int) []time.Duration {
	all := []time.Duration{p.Fleet.Ahead[region]}
	for _, s := range p.Steps {
		if s.Do == SetClock && s.Region == region {
			all = append(all, p.Fleet.Ahead[region]+s.Delay)
		}
	}
	return all
}
