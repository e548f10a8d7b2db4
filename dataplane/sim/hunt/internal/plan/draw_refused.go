package plan

import (
	"math/rand/v2"
	"time"
)

// Bounds of refused calls.
const (
	refusalsMax   = 4
	strictMin     = 5 * time.Second // that a strict fleet's origin refuses to count
	strictMax     = 10 * time.Second
	strictAsksMax = 60
)

// refused draws servers that refuse some kinds of calls. It has its own random source, so the rest of a seed's plan
// does not depend on it.
func (p *Plan) refused(span time.Duration) {
	d := drawer{rand.New(rand.NewPCG(p.Seed, 0x72656675))}
	if d.IntN(3) > 0 {
		return
	}
	origin, mysql := d.IntN(4) > 0, d.IntN(2) == 0
	for range 1 + d.IntN(refusalsMax) {
		if origin {
			p.Steps = append(p.Steps, d.refusal(p.Fleet, d.between(0, span)))
		}
		if mysql {
			p.Steps = append(p.Steps, d.refusedStatement(d.between(0, span)))
		}
	}
	if p.Fleet.Strict = d.IntN(2) == 0; p.Fleet.Strict {
		d.strict(p, span)
	}
	p.sort()
}

func (d drawer) refusal(f Fleet, at time.Duration) Step {
	s := Step{At: at, Do: RefuseCalls, After: d.between(10*time.Millisecond, faultTimeMax)}
	s.Region, s.Part = d.IntN(len(f.Nodes)), d.part(f)
	all := kinds(OriginCalls)
	s.Calls = all[d.IntN(len(all))]
	if d.IntN(3) == 0 {
		s.Calls = []Calls{Writes, Additions, Sends}[d.IntN(3)]
	}
	return s
}

func (d drawer) refusedStatement(at time.Duration) Step {
	all := kinds(MySQLCalls)
	return Step{At: at, Do: RefuseStatements, Calls: all[d.IntN(len(all))],
		After: d.between(10*time.Millisecond, faultTimeMax)}
}

// strict draws an origin that refuses to count for longer than nodes take to notice it. Meanwhile callers request more
// than a key's limit from all nodes of the region.
func (d drawer) strict(p *Plan, span time.Duration) {
	key := d.IntN(len(p.Fleet.Keys))
	s := Step{At: d.between(0, span), Do: RefuseCalls, Calls: []Calls{Writes, Additions, Sends}[d.IntN(3)],
		After: d.between(strictMin, strictMax)}
	s.Region = d.IntN(len(p.Fleet.Nodes))
	p.Steps = append(p.Steps, s)
	for range 20 + d.IntN(strictAsksMax) {
		ask := Step{At: s.At + d.between(0, s.After), Do: Ask, Region: s.Region, Key: key,
			Cost: 1 + d.Int64N(1+p.Fleet.Keys[key].Limit/5)}
		ask.Node = d.IntN(p.Fleet.Nodes[s.Region])
		p.Steps = append(p.Steps, ask)
	}
}
