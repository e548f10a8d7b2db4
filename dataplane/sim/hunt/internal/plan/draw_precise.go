package plan

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/weirhq/weir/shared/tuning"
	"github.com/weirhq/weir/shared/window"
)

// Bounds of plans with precise windows.
const (
	pressedMin  = 60 // requests on a pressed key
	pressedMax  = 160
	reframesMax = 3
)

// precise draws a namespace with a precise window. It has its own random source, so other plans do not change. Two in
// three of these plans have nothing that lets more pass than a limit: in these, real windows must stay within the
// limit.
func (p *Plan) precise(span time.Duration) {
	d := drawer{rand.New(rand.NewPCG(p.Seed, 0x70726563))}
	if d.IntN(3) > 0 || p.Fleet.Mode != window.Exact {
		return
	}
	p.Fleet.Precise = d.IntN(4) > 0
	if !p.Fleet.Precise || d.IntN(4) == 0 {
		for range 1 + d.IntN(reframesMax) {
			p.Steps = append(p.Steps, Step{At: d.between(0, span), Do: Reframe, Precise: d.IntN(3) > 0})
		}
	}
	mixed := d.IntN(2) == 0
	switch d.IntN(6) {
	case 0:
		d.restarted(p)
	case 1:
		d.still(p, span)
		mixed = false
	case 2, 3:
		d.together(p)
		mixed = d.IntN(4) > 0
	}
	d.press(p, span, mixed)
	p.sort()
}

// keep removes the steps and shapes that let a fleet pass more than a limit, and all faults except the given kinds.
func (p *Plan) keep(faults ...Verb) {
	p.Fleet.Room, p.Fleet.Ahead = 0, make([]time.Duration, len(p.Fleet.Nodes))
	p.Steps = slices.DeleteFunc(p.Steps, func(s Step) bool {
		return s.Do.IsFault() && !slices.Contains(faults, s.Do) || slices.Contains(unclean, s.Do)
	})
}

// one reduces the fleet to a single node.
func (p *Plan) one() {
	p.Fleet.Nodes, p.Fleet.Relays, p.Fleet.Late = []int{1}, []int{1}, []int{0}
	p.Steps = slices.DeleteFunc(p.Steps, func(s Step) bool { return s.Do == Join })
	for i := range p.Steps {
		p.Steps[i].Region, p.Steps[i].Node = 0, 0
	}
}

// restarted reduces the fleet to a single node that is stopped and started.
func (drawer) restarted(p *Plan) {
	p.one()
	p.keep(Stop)
}

// still draws a single node that is never started again, and that is cut off from its origin. The log of real windows
// checks its denials.
func (d drawer) still(p *Plan, span time.Duration) {
	p.one()
	p.keep(Cut, Refuse, Mute, RefuseCalls, Wipe)
	p.Fleet.Share, p.Fleet.Strict, p.Fleet.Precise = false, false, true
	p.Steps = slices.DeleteFunc(p.Steps, func(s Step) bool {
		return s.Do == Override || s.Do == Unset || s.Do == Refund || s.Do == Rule || s.Do == Reframe
	})
	for range 1 + d.IntN(3) {
		p.Steps = append(p.Steps, Step{At: d.between(0, span), Do: []Verb{Cut, Refuse}[d.IntN(2)],
			After: d.between(500*time.Millisecond, 3*time.Second)})
	}
}

// together draws nodes that soon receive each other's counts. In half of the plans the fleet is two nodes of one
// region.
func (d drawer) together(p *Plan) {
	if d.IntN(2) == 0 {
		p.one()
		p.Fleet.Nodes[0], p.Fleet.Relays[0] = 2, 2
		for i := range p.Steps {
			p.Steps[i].Node = d.IntN(2)
		}
	}
	p.keep()
	p.Fleet.Tuning.FreshFor = tuning.Duration(d.one(100*time.Millisecond, 500*time.Millisecond))
}

// press draws requests for more than a key's limit, for some seconds, in a short window. Such callers gain from any
// cost that leaves a window too early. If mixed, the requests have several limits.
func (d drawer) press(p *Plan, span time.Duration, mixed bool) {
	i := d.IntN(len(p.Fleet.Keys))
	key := &p.Fleet.Keys[i]
	key.Duration = d.one(2*time.Second, 5*time.Second)
	key.Limit = []int64{3, 10, 30, 100, 1000}[d.IntN(5)]
	moment := d.moments(key.Duration, span)
	for range pressedMin + d.IntN(pressedMax-pressedMin) {
		s := Step{At: moment(), Do: Ask, Key: i}
		s.Region, s.Node = d.place(p.Fleet)
		limit := key.Limit
		if mixed && d.IntN(2) == 0 {
			s.Limit = max(1, []int64{limit / 10, limit / 2, 2 * limit, 10 * limit}[d.IntN(4)])
			limit = min(limit, s.Limit)
		}
		s.Cost = 1 + d.Int64N(1+limit/4)
		p.Steps = append(p.Steps, s)
	}
}

// moments draws the times of requests on a pressed key: any time, or a rhythm. In the rhythm a few requests begin a
// cell, many come in its second half, and many come early in the next cell, if the drawn phase is that of the cells.
func (d drawer) moments(window, span time.Duration) func() time.Duration {
	if d.IntN(2) == 0 {
		return func() time.Duration { return d.between(0, span) }
	}
	phase := d.between(0, 2*window)
	return func() time.Duration {
		at := phase + 2*window*time.Duration(d.Int64N(int64(span/(2*window))+1))
		switch d.IntN(5) {
		case 0:
			return at + d.between(0, 50*time.Millisecond)
		case 1, 2:
			return at + d.between(window/2, window)
		}
		return at + d.between(window, window*3/2)
	}
}

// MixesLimits reports whether requests on the same key have several limits.
func (p Plan) MixesLimits() bool {
	return slices.ContainsFunc(p.Steps, func(s Step) bool { return s.Do == Ask && s.Limit > 0 })
}
