package plan

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// Bounds of drawn reservations and leases.
const (
	heldMax         = 2 // keys
	reservationsMax = 8
	slotsMax        = 2 // keys
	leasesMax       = 24
	callsMax        = 6 // about one reservation or lease, after the first
	heldTTLMin      = time.Second
	heldTTLMax      = 6 * time.Second
)

// held draws reservations and leases. It has its own random source, so the rest of a seed's plan does not depend on it.
func (p *Plan) held(span time.Duration) {
	d := drawer{rand.New(rand.NewPCG(p.Seed, 0x68656c64))}
	reserves, leases := d.IntN(3) == 0, d.IntN(3) == 0
	p.Fleet.Closed = d.IntN(2) == 0
	before := len(p.Steps)
	if reserves {
		d.reservations(p, span)
	}
	if leases {
		d.leases(p, span)
		if d.IntN(2) == 0 {
			d.contest(p, span)
		}
	}
	if before == len(p.Steps) {
		return
	}
	for i, s := range p.Steps[:before] { // half of the faults happen to nodes and origins that hold something
		if !s.Do.IsFault() || d.IntN(2) == 0 {
			continue
		}
		at := p.Steps[before+d.IntN(len(p.Steps)-before)]
		p.Steps[i].Region, p.Steps[i].Node, p.Steps[i].At = at.Region, at.Node, at.At+d.between(0, 100*time.Millisecond)
		if kept := map[Verb]Verb{Leave: Stop, Die: Kill}[s.Do]; kept != "" && at.Node == 0 {
			p.Steps[i].Do = kept
		}
	}
	if d.IntN(2) == 0 { // nodes that hold something die
		for range 1 + d.IntN(2) {
			at := p.Steps[before+d.IntN(len(p.Steps)-before)]
			kill := Step{At: at.At + d.between(0, 50*time.Millisecond), Do: Kill, Region: at.Region, Node: at.Node,
				After: d.between(10*time.Millisecond, faultTimeMax)}
			if d.IntN(4) == 0 {
				kill.Do = Stop
			}
			p.Steps = append(p.Steps, kill)
		}
	}
	p.orders(span)
	p.sort()
}

// orders draws calls in orders that matter and that independent draws seldom produce. It has its own random source, so
// the rest of a seed's plan does not depend on it.
func (p *Plan) orders(span time.Duration) {
	d := drawer{rand.New(rand.NewPCG(p.Seed, 0x6f726465))}
	if len(p.Fleet.Held) > 0 && d.IntN(2) == 0 {
		d.extended(p, span)
	}
	if len(p.Fleet.Held) > 0 && d.IntN(4) == 0 {
		d.lacking(p, span)
	}
	if len(p.Fleet.Slots) > 0 && d.IntN(2) == 0 {
		d.impatient(p, span)
	}
}

// extended draws a reservation that returns its unspent cost, is extended, and goes on long after its first end.
func (d drawer) extended(p *Plan, span time.Duration) {
	hold := Step{At: d.between(0, span), Do: Hold, ID: p.nextID(), Key: d.IntN(len(p.Fleet.Held)),
		After: d.between(heldTTLMin, 2*heldTTLMin), Returned: true}
	hold.Region, hold.Node = d.place(p.Fleet)
	hold.Costs[0] = 1 + d.Int64N(1+p.Fleet.HeldKey(hold.Key, 0).Limit/10) // there is room for it as a rule
	extend := hold
	extend.Do, extend.At, extend.After = ExtendHold, hold.At+d.between(hold.After/4, hold.After/2), heldTTLMax
	p.Steps = append(p.Steps, hold, extend)
	for range 2 { // it is there all the time, and is looked at with each call about it
		spend := hold
		spend.Do, spend.At, spend.Costs = SpendHold, hold.At+d.between(2*heldTTLMin, 4*heldTTLMin), Costs{}
		spend.Node = d.IntN(p.Fleet.Nodes[hold.Region])
		p.Steps = append(p.Steps, spend)
	}
}

// lacking draws a reservation that counts in full, and a failover of its origin to a replica from before the
// reservation.
func (d drawer) lacking(p *Plan, span time.Duration) {
	hold := Step{At: d.between(500*time.Millisecond, span), Do: Hold, ID: p.nextID(), Key: d.IntN(len(p.Fleet.Held)),
		After: heldTTLMax}
	hold.Region, hold.Node = d.place(p.Fleet)
	hold.Costs[0] = 1 + d.Int64N(1+p.Fleet.HeldKey(hold.Key, 0).Limit/10)
	failover := Step{At: hold.At - d.between(10*time.Millisecond, 500*time.Millisecond), Do: Failover, Region: hold.Region}
	failover.After = hold.At - failover.At + d.between(10*time.Millisecond, time.Second)
	p.Steps = append(p.Steps, hold, failover)
}

// impatient draws holders of all leases of a key at a node, and other requests there that stop waiting before these
// holders release.
func (d drawer) impatient(p *Plan, span time.Duration) {
	key := d.IntN(len(p.Fleet.Slots))
	first := Step{At: d.between(0, span), Do: Acquire, Key: key}
	first.Region, first.Node = d.place(p.Fleet)
	for range p.Fleet.Slots[key].Limit {
		holder := first
		holder.ID, holder.After = p.nextID(), d.between(time.Second, 2*time.Second)
		p.Steps = append(p.Steps, holder)
	}
	for range 1 + d.IntN(2) {
		waiter := first
		waiter.At += d.between(50*time.Millisecond, 300*time.Millisecond)
		waiter.ID, waiter.Delay = p.nextID(), d.between(10*time.Millisecond, 500*time.Millisecond)
		p.Steps = append(p.Steps, waiter)
	}
}

func (d drawer) reservations(p *Plan, span time.Duration) {
	for i := range 1 + d.IntN(heldMax) {
		k := Key{Name: fmt.Sprint("h", i), Limit: []int64{1, 10, 100}[d.IntN(3)], Duration: d.window()}
		if p.Rests {
			k.Duration = d.one(2*time.Second, restMax)
		}
		p.Fleet.Held = append(p.Fleet.Held, k)
	}
	returned, extends, again := d.IntN(3), d.IntN(2) == 0, d.IntN(2) == 0
	for range 1 + d.IntN(reservationsMax) {
		id := p.nextID()
		hold := Step{At: d.between(0, span), Do: Hold, ID: id, Key: d.IntN(len(p.Fleet.Held)),
			After: d.between(heldTTLMin, heldTTLMax), Returned: returned == 0 || returned == 1 && d.IntN(2) == 0}
		hold.Region, hold.Node = d.place(p.Fleet)
		items := 1
		if d.IntN(2) == 0 {
			items = 1 + d.IntN(CostsMax)
		}
		for i := range items {
			hold.Costs[i] = d.reserved(p.Fleet.HeldKey(hold.Key, i).Limit)
		}
		p.Steps = append(p.Steps, hold)
		do := []Verb{SettleHold, SettleHold, SpendHold, CancelHold}
		if extends {
			do = append(do, ExtendHold)
		}
		if again {
			do = append(do, Hold)
		}
		for range d.IntN(callsMax + 1) {
			p.Steps = append(p.Steps, d.about(p, hold, do[d.IntN(len(do))]))
		}
	}
}

// about draws a call about a reservation: while it lasts, after its end, and sometimes before it exists.
func (d drawer) about(p *Plan, hold Step, do Verb) Step {
	s := hold
	s.Do, s.Node = do, d.IntN(p.Fleet.Nodes[s.Region])
	s.At = max(0, hold.At+d.between(-100*time.Millisecond, hold.After+time.Second))
	switch d.IntN(8) {
	case 0, 1: // side by side with others
		s.At = hold.At + d.between(0, 20*time.Millisecond)
	case 2:
		s.At = hold.At + hold.After + d.between(-20*time.Millisecond, 20*time.Millisecond)
	}
	switch do {
	case SettleHold, SpendHold:
		for i, cost := range hold.Costs {
			if cost == 0 {
				continue
			}
			s.Costs[i] = []int64{cost, 0, d.Int64N(cost + 1), d.Int64N(cost + 1), cost + 1 + d.Int64N(cost)}[d.IntN(5)]
		}
	case ExtendHold:
		s.After = d.between(heldTTLMin, heldTTLMax)
	case Hold:
		if d.IntN(8) == 0 {
			s.Costs[0]++ // costs that differ from the first request's
		}
	}
	return s
}

// reserved draws mostly a large part of a limit.
func (d drawer) reserved(limit int64) int64 {
	if d.IntN(6) == 0 {
		return limit
	}
	return 1 + d.Int64N(1+limit/2)
}

func (d drawer) leases(p *Plan, span time.Duration) {
	for i := range 1 + d.IntN(slotsMax) {
		p.Fleet.Slots = append(p.Fleet.Slots, Slot{
			Name: fmt.Sprint("s", i), Limit: []int64{1, 1, 2, 5}[d.IntN(4)],
			TTL: d.one(time.Second, 2*time.Second, 3*time.Second),
		})
	}
	kinds := [][]Verb{{Acquire}, {Token}, {Acquire, Token}}[d.IntN(3)]
	waits := d.IntN(2) == 0
	for range 1 + d.IntN(leasesMax) {
		s := Step{At: d.between(0, span), Do: kinds[d.IntN(len(kinds))], ID: p.nextID(), Key: d.IntN(len(p.Fleet.Slots))}
		s.Region, s.Node = d.place(p.Fleet)
		s.After = d.one(0, 100*time.Millisecond, time.Second, 4*time.Second)
		if d.IntN(8) == 0 {
			s.After = ForGood
		}
		if waits && d.IntN(2) == 0 {
			s.Delay = d.between(10*time.Millisecond, 3*time.Second)
		}
		p.Steps = append(p.Steps, s)
		if s.Do == Acquire {
			continue
		}
		ttl := p.Fleet.Slots[s.Key].TTL
		for range d.IntN(callsMax) { // some of these calls are late
			next := s
			next.Do = []Verb{Renew, Renew, Renew, Token}[d.IntN(4)]
			next.At, next.Node = s.At+d.between(0, 3*ttl), d.IntN(p.Fleet.Nodes[s.Region])
			p.Steps = append(p.Steps, next)
		}
		if d.IntN(4) > 0 { // else its holder has died
			for range 1 + d.IntN(2) {
				next := s
				next.Do, next.At = Release, s.At+d.between(0, 3*ttl)
				next.Node = d.IntN(p.Fleet.Nodes[s.Region])
				p.Steps = append(p.Steps, next)
			}
		}
	}
}

// contest draws a holder whose node or origin fails, and other requests for its lease.
func (d drawer) contest(p *Plan, span time.Duration) {
	key := d.IntN(len(p.Fleet.Slots))
	ttl := p.Fleet.Slots[key].TTL
	holder := Step{At: d.between(0, span), Do: Acquire, ID: p.nextID(), Key: key, After: d.between(ttl, 3*ttl)}
	holder.Region, holder.Node = d.place(p.Fleet)
	harm := holder
	harm.Do = []Verb{Cut, Cut, Refuse, Wipe, Wipe, Kill}[d.IntN(6)]
	harm.At, harm.After = holder.At+d.between(20*time.Millisecond, ttl), d.between(ttl, 3*ttl)
	p.Steps = append(p.Steps, holder, harm)
	for range 2 + d.IntN(6) {
		next := holder
		next.Do, next.ID = []Verb{Acquire, Token}[d.IntN(2)], p.nextID()
		next.At, next.Node = holder.At+d.between(-ttl, 3*ttl), d.IntN(p.Fleet.Nodes[holder.Region])
		next.At, next.After = max(0, next.At), d.between(0, 2*ttl)
		p.Steps = append(p.Steps, next)
	}
}

// ForGood is longer than any history.
const ForGood = 24 * time.Hour

// nextID returns an ID that no reservation or lease has yet.
func (p *Plan) nextID() (next int) {
	for _, s := range p.Steps {
		next = max(next, s.ID+1)
	}
	return next
}

// HeldKey returns the key of a reservation's item.
func (f Fleet) HeldKey(first, item int) Key { return f.Held[(first+item)%len(f.Held)] }
