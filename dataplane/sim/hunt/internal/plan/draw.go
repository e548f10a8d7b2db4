package plan

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/weirhq/weir/shared/tuning"
	"github.com/weirhq/weir/shared/window"
)

// Bounds of a drawn history. Histories are small, so that many seeds are played: two nodes usually show a fault that
// ten nodes have.
const (
	regionsMax       = 3
	nodesMax         = 3 // a region
	bucketsMax       = 3
	keysMax          = 4
	keysOfFullTables = 20 // of tables that have room for RoomMin to roomMax of them
	RoomMin          = 3
	roomMax          = 10
	requestsMax      = 120
	bulkMax          = 40
	hurryMax         = 20 * time.Millisecond
	faultsMax        = 8
	operationsMax    = 6
	trialMax         = 10 * time.Second
	renewalsMax      = 6
	trafficMin       = 4 * time.Second
	trafficMax       = 20 * time.Second
	failoverMax      = 4 * time.Second // below store.KeepFor: nodes still hold the cost that an origin forgets
	faultTimeMax     = 8 * time.Second
)

// Draw makes the plan of a seed. Each plan has only some kinds of requests, some kinds of faults and some shapes,
// because some bugs show only where another kind is absent.
func Draw(seed uint64) Plan {
	d := drawer{rand.New(rand.NewPCG(seed, 0x77656972))}
	p := Plan{Seed: seed, Fleet: d.fleet()}
	span := d.between(trafficMin, trafficMax)
	calls := d.some(Ask, Burst, Batch, Reserve, Hurry, Bulk, Peek, Refund)
	if len(calls) == 0 {
		calls = []Verb{Ask}
	}
	for range 10 + d.IntN(requestsMax) {
		p.Steps = append(p.Steps, d.call(p.Fleet, calls[d.IntN(len(calls))], d.between(0, span)))
	}
	faults := d.some(Kill, Stop, Cut, Refuse, Mute, Slow, Repeat, CutMySQL, SlowMySQL, FailMySQL, HoldFeed,
		CutPeers, Jumble, Isolate, LagCounts, Wipe, Failover, Unlease, LoseFeed, Clock, Leave, Die)
	if len(faults) > 0 {
		for range d.IntN(faultsMax + 1) {
			fault := d.fault(p.Fleet, faults[d.IntN(len(faults))], d.between(0, span))
			p.Steps = append(p.Steps, d.aim(fault, p.Steps))
		}
	}
	for region, late := range p.Fleet.Late {
		for i := range late {
			p.Steps = append(p.Steps, Step{
				At: d.between(0, span), Do: Join, Region: region, Node: p.Fleet.Nodes[region] - 1 - i,
			})
		}
	}
	d.operators(&p, span)
	p.Rests = p.Longest() <= restMax && d.IntN(2) == 0
	p.Steps = slices.DeleteFunc(p.Steps, p.returnsAnEpoch)
	p.sort()
	p.held(span)
	p.Steps = slices.DeleteFunc(p.Steps, p.returnsAnEpoch)
	p.refused(span)
	if !p.ahead(span) { // a log of real windows needs a single clock
		p.precise(span)
	}
	return p
}

// returnsAnEpoch reports whether, after a wipe, a replica is promoted whose data is older than the wipe. Then an epoch
// that had ended goes on, and its cost is counted twice. See dataplane/DESIGN.md, "Precision given up".
func (p Plan) returnsAnEpoch(wipe Step) bool {
	return wipe.Do == Wipe && slices.ContainsFunc(p.Steps, func(s Step) bool {
		return s.Do == Failover && s.Region == wipe.Region && (s.Part == wipe.Part || s.Part*wipe.Part == 0) &&
			s.At <= wipe.At && wipe.At <= s.At+s.After
	})
}

// operators draws operators' steps, if the history has any.
func (d drawer) operators(p *Plan, span time.Duration) {
	var all []Verb
	for _, kinds := range [][]Verb{{Override, Override, Unset}, {Reset}, {Tune}, {Rule}, {Try}} {
		if d.IntN(4) == 0 {
			all = append(all, kinds...)
		}
	}
	if len(all) == 0 {
		return
	}
	for range 1 + d.IntN(operationsMax) {
		p.Steps = append(p.Steps, d.operation(p.Fleet, all[d.IntN(len(all))], d.between(0, span)))
	}
}

func (d drawer) operation(f Fleet, do Verb, at time.Duration) Step {
	s := Step{At: at, Do: do, Region: d.IntN(len(f.Nodes)), Key: d.IntN(len(f.Keys))}
	switch do {
	case Override:
		s.All, s.Limit = d.IntN(4) == 0, d.limit()
		if d.IntN(8) == 0 {
			s.Limit = 0
		}
		if d.IntN(4) == 0 {
			s.Window = d.window()
		}
	case Unset:
		s.All = d.IntN(4) == 0
	case Tune:
		s.All, s.Tuning = d.IntN(3) > 0, d.tuning()
	case Try:
		s.All, s.Tuning, s.Share = d.IntN(3) == 0, d.tuning(), d.Float64()
		s.After, s.Count = d.between(time.Second, trialMax), d.IntN(renewalsMax+1)
		if d.IntN(2) == 0 {
			s.Share = 1
		}
	case Rule:
		if s.Mode = window.Exact; d.IntN(3) == 0 {
			s.Mode = window.Estimate
		} else {
			s.Waits = d.IntN(2) == 0
		}
	}
	return s
}

// tuning draws each field from its allowed values.
func (d drawer) tuning() tuning.Tuning {
	t := tuning.Default()
	fraction := func(choices ...float64) float64 { return choices[d.IntN(len(choices))] }
	t.Floor, t.Step, t.Jitter = fraction(0, t.Floor, 0.5), fraction(0, t.Step, 0.1), fraction(0, t.Jitter, 0.5)
	t.FeedInterval = tuning.Duration(d.one(50*time.Millisecond, t.FeedInterval.Std(), time.Second))
	t.SettingsInterval = tuning.Duration(d.one(500*time.Millisecond, 2*time.Second, t.SettingsInterval.Std()))
	t.ReplayTick = tuning.Duration(d.one(20*time.Millisecond, t.ReplayTick.Std(), 500*time.Millisecond))
	t.FreshFor = tuning.Duration(d.one(200*time.Millisecond, time.Second, t.FreshFor.Std()))
	t.StrictFor = tuning.Duration(d.one(0, time.Second, time.Minute))
	t.MinGlobalDuration = tuning.Duration(d.one(t.MinGlobalDuration.Std(), t.MinGlobalDuration.Std(), 10*time.Second,
		2*time.Minute))
	return t
}

type drawer struct{ *rand.Rand }

// between returns a whole number of milliseconds in [least, most].
func (d drawer) between(least, most time.Duration) time.Duration {
	return least + time.Duration(d.Int64N(int64((most-least)/time.Millisecond)+1))*time.Millisecond
}

func (d drawer) one(choices ...time.Duration) time.Duration { return choices[d.IntN(len(choices))] }

// some draws each kind with even odds.
func (d drawer) some(all ...Verb) (drawn []Verb) {
	for _, v := range all {
		if d.IntN(2) == 0 {
			drawn = append(drawn, v)
		}
	}
	return drawn
}

func (d drawer) fleet() Fleet {
	f := Fleet{
		Shards: 1 + d.IntN(2),
		Begin: d.one(0, d.between(0, time.Minute), d.between(0, time.Hour),
			d.between(time.Hour-time.Minute, time.Hour)),
		OriginTrip: d.one(200*time.Microsecond, time.Millisecond, 5*time.Millisecond),
		MySQLTrip:  d.one(time.Millisecond, 30*time.Millisecond, 120*time.Millisecond),
		Tuning:     tuning.Default(),
	}
	if d.IntN(3) == 0 {
		f.Shards, f.Buckets = 1, 2+d.IntN(bucketsMax-1)
	}
	d.places(&f)
	if d.IntN(3) == 0 {
		for i := range f.Ahead {
			f.Ahead[i] = d.between(-2*time.Second, 2*time.Second)
		}
	}
	if d.IntN(4) == 0 {
		f.Mode = window.Estimate
	} else {
		f.Share = d.IntN(4) == 0
	}
	f.PeerTrip = d.one(0, 0, 10*time.Millisecond, 150*time.Millisecond)
	f.Patient = d.IntN(4) == 0
	f.Tuning.Jitter = float64(d.IntN(2)) * 0.2
	keys := 1 + d.IntN(keysMax)
	if d.IntN(6) == 0 {
		f.Room, keys = RoomMin+d.IntN(roomMax-RoomMin+1), keysOfFullTables
	}
	for i := range keys {
		f.Keys = append(f.Keys, Key{
			Name:     fmt.Sprint("k", i),
			Limit:    d.limit(),
			Duration: d.window(),
		})
	}
	return f
}

func (d drawer) limit() int64 { return []int64{1, 10, 100, 1000}[d.IntN(4)] }

func (d drawer) window() time.Duration {
	return d.one(2*time.Second, 5*time.Second, time.Minute, time.Hour, time.Hour)
}

// places draws regions and their nodes. Node 0 of each is always there, and runs a relay.
func (d drawer) places(f *Fleet) {
	bare, late := d.IntN(3) == 0, d.IntN(3) == 0
	for range 1 + d.IntN(regionsMax) {
		nodes := 1 + d.IntN(nodesMax)
		relays, missing := nodes, 0
		if bare {
			relays = 1 + d.IntN(nodes)
		}
		if late {
			missing = d.IntN(nodes)
		}
		f.Nodes, f.Relays, f.Late = append(f.Nodes, nodes), append(f.Relays, relays), append(f.Late, missing)
		f.Ahead = append(f.Ahead, 0)
	}
}

func (d drawer) place(f Fleet) (region, node int) {
	region = d.IntN(len(f.Nodes))
	return region, d.IntN(f.Nodes[region])
}

func (d drawer) call(f Fleet, do Verb, at time.Duration) Step {
	s := Step{At: at, Do: do, Key: d.IntN(len(f.Keys)), Second: d.IntN(len(f.Keys)), Count: 2 + d.IntN(8)}
	s.Region, s.Node = d.place(f)
	s.Cost, s.Actual = d.cost(f.Keys[s.Key].Limit), d.cost(f.Keys[s.Second].Limit)
	switch do {
	case Reserve:
		s.Actual, s.After = d.cost(f.Keys[s.Key].Limit), d.between(0, 3*time.Second)
	case Hurry:
		s.After = d.between(0, hurryMax)
	case Bulk:
		s.Count = 3 + d.IntN(bulkMax-2)
	}
	return s
}

// part draws a whole origin (0), or a part of it.
func (d drawer) part(f Fleet) int {
	if d.IntN(2) == 0 {
		return 0
	}
	return 1 + d.IntN(f.Parts())
}

// cost draws mostly a small part of a limit, and sometimes all of it.
func (d drawer) cost(limit int64) int64 {
	switch d.IntN(8) {
	case 0:
		return limit
	case 1:
		return 1 + d.Int64N(limit)
	case 2, 3:
		return 1 + d.Int64N(1+limit/10)
	}
	return 1
}

// aim moves most ends of processes to just after a request or a fault on the same node.
func (d drawer) aim(s Step, earlier []Step) Step {
	if (s.Do == Kill || s.Do == Stop) && d.IntN(4) > 0 {
		at := earlier[d.IntN(len(earlier))]
		s.Region, s.Node, s.At = at.Region, at.Node, at.At+d.between(0, 50*time.Millisecond)
	}
	return s
}

func (d drawer) fault(f Fleet, do Verb, at time.Duration) Step {
	s := Step{At: at, Do: do, After: d.between(10*time.Millisecond, faultTimeMax), Share: 0.2 + 0.8*d.Float64()}
	s.Region, s.Node = d.place(f)
	switch do {
	case Slow, HoldFeed, Jumble:
		s.Delay = d.between(10*time.Millisecond, 3*time.Second)
	case Repeat:
		s.Delay = d.one(0, 20*time.Millisecond, 500*time.Millisecond)
	case SlowMySQL:
		s.Delay = d.between(10*time.Millisecond, time.Second)
	case Leave, Die:
		if s.Node == 0 {
			s.Do = map[Verb]Verb{Leave: Stop, Die: Kill}[do]
		}
	case Wipe:
		s.Part = d.part(f)
	case Failover:
		s.Part = d.part(f)
		s.After = d.between(10*time.Millisecond, failoverMax)
	case LoseFeed:
		s.Count = 1 + d.IntN(5)
	case Clock:
		s.Delay = d.between(-3*time.Second, 3*time.Second)
	}
	return s
}
