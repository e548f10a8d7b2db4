package hunt

import (
	"context"
	"slices"
	"time"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/sim/internal/bubble"
	"github.com/weirhq/weir/shared/window"
)

const (
	// settling is how long nodes are up before the first step.
	settling = 3 * time.Second

	// Settle is how long after the last fault everything has converged:
	//
	//   - A relay waits up to 3 s for a lease, and up to 5 s for an answer to a load that got lost.
	//   - It begins a load that failed again after up to 8 s, and looks every 5 s whether its cursors are still stored.
	//   - It publishes an origin's cells once more after store.KeepFor, 5 s.
	Settle = 26 * time.Second

	// soonest is the time after the last fault before the first look.
	soonest = 3 * time.Second

	lookEvery = time.Second

	stopWithin = 5 * time.Second
)

// Result is the outcome of a plan.
type Result struct {
	Seed       uint64        `json:"seed"`
	Hash       string        `json:"hash"` // of all that happened
	Decisions  int64         `json:"decisions"`
	Faults     map[Verb]int  `json:"faults"` // how many of each kind were begun
	Virtual    time.Duration `json:"virtual_ns"`
	Steps      int           `json:"steps"`
	Violations []Violation   `json:"violations,omitempty"`
	Lines      []string      `json:"lines"`
}

// Play plays a plan in a bubble of its own.
func Play(p Plan) (Result, error) {
	return bubble.Run(func() (Result, error) { return play(p) })
}

func play(p Plan) (Result, error) {
	w, err := newWorld(p)
	if err != nil {
		return Result{}, err
	}
	time.Sleep(p.Fleet.Begin) // of windows, too
	if err := w.bootAll(); err != nil {
		return Result{}, err
	}
	result := Result{Seed: p.Seed, Steps: len(p.Steps), Faults: make(map[Verb]int)}
	for _, s := range p.Steps {
		time.Sleep(time.Until(w.began.Add(s.At)))
		w.steps.Go(func() { w.step(s) })
		if s.Do.isFault() {
			result.Faults[s.Do]++
		}
	}
	w.steps.Wait()
	w.record.note("all faults are over")
	w.record.add(w.look())
	w.windows.look()
	w.reservations.look()
	w.holders.rest()
	if p.Rests {
		w.record.add(w.rest())
	}
	w.stopAll()
	result.Decisions, result.Virtual = w.ledger.decisions.Load(), time.Since(w.began)
	result.Hash, result.Violations, result.Lines = w.record.hash(), w.record.violations, w.record.lines
	return result, nil
}

func (v Verb) isFault() bool {
	switch v {
	case Ask, Burst, Batch, Reserve, Hurry, Bulk, Peek, Refund, Join, Override, Unset, Reset, Tune, Rule, Reframe, Try,
		Hold, SpendHold, SettleHold, CancelHold, ExtendHold, Acquire, Token, Renew, Release:
		return false
	}
	return true
}

func (v Verb) isOperators() bool {
	switch v {
	case Override, Unset, Reset, Tune, Rule, Reframe, Try:
		return true
	}
	return false
}

func (w *world) bootAll() error {
	rows, err := versioned{w.Counts}.Settings(context.Background(), "")
	if err != nil {
		return err
	}
	for _, r := range w.regions {
		r.origin.SetSettings(rows)
		for _, n := range r.nodes {
			if n.away.Load() {
				continue
			}
			if err := w.boot(n); err != nil {
				return err
			}
		}
	}
	time.Sleep(settling)
	w.began = time.Now()
	w.record.begin(w.began)
	return nil
}

// step plays a step, and returns when the step is over.
func (w *world) step(s Step) {
	r := w.regions[s.Region]
	n := r.nodes[s.Node]
	if s.Do.isOperators() {
		w.record.note("operators: %v", s.fault())
		w.operators.operate(s)
		if s.Do == Try {
			w.operators.renew(s)
		}
		return
	}
	if n.away.Load() {
		if s.Do == Join {
			w.join(n)
		}
		return // nothing happens to a node that is not running
	}
	switch s.Do {
	case Ask:
		w.askBy(n.life.Load(), s)
	case Burst:
		for range s.Count {
			w.steps.Go(func() { w.ask(n.life.Load(), s.Key, s.Cost) })
		}
	case Batch:
		w.batch(n.life.Load(), []int{s.Key, s.Second}, []int64{s.Cost, s.Actual})
	case Reserve:
		w.reserve(n.life.Load(), s)
	case Hurry:
		w.hurry(n.life.Load(), s)
	case Bulk:
		w.bulk(n.life.Load(), s)
	case Peek:
		w.peek(n.life.Load(), s)
	case Refund:
		w.refund(n.life.Load(), s)
	case Hold:
		w.reservations.hold(n.life.Load(), s)
	case SpendHold, SettleHold, CancelHold, ExtendHold:
		w.reservations.change(n.life.Load(), s)
	case Acquire:
		w.holders.acquire(n.life.Load(), s)
	case Token:
		w.holders.byID(n.life.Load(), s)
	case Renew:
		w.holders.renew(n.life.Load(), s)
	case Release:
		w.holders.release(n.life.Load(), s)
	default:
		w.record.note("%v.%d %v", r.name, s.Node, s.fault())
		w.fault(r, n, s)
	}
}

func (w *world) request(key int, cost int64) dataplane.Request {
	k := w.plan.Fleet.Keys[key]
	return dataplane.Request{
		Workspace: workspace, Namespace: namespace, Identifier: k.Name, Limit: k.Limit, Duration: k.Duration,
		Cost: cost, ZeroCost: cost == 0,
	}
}

// decided records the decision of a single request.
func (w *world) decided(l *life, key int, cost int64, d *dataplane.Decision, before judged) (cells []window.Cell) {
	return w.decidedOf(l, key, cost, d, before, !w.plan.mayFill() || !d.Source.Degraded())
}

// decidedOf records a decision. If known, the decision's cost reaches the origin. Otherwise perhaps only the sketch of
// a full table has it.
func (w *world) decidedOf(l *life, key int, cost int64, d *dataplane.Decision, before judged,
	known bool) (cells []window.Cell) {
	w.ledger.decisions.Add(1)
	if d.Err != nil {
		w.record.violate("error", "%v decided on k%d: %v", l, key, d.Err)
		return nil
	}
	if !w.operators.limitWasSet(key, d.Limit) {
		w.record.violate("set", "%v decided on k%d by a limit of %d", l, key, d.Limit)
	}
	if d.Source == dataplane.SourceOrigin {
		l.answered.Store(true)
	}
	after := w.judged(l, key)
	cells = w.cellsOf(l, key, d, before, after)
	w.windows.decided(l, key, cost, d, before, after)
	verdict := "denied"
	if d.Source.Degraded() && w.plan.claims() {
		w.ledger.withoutAnswer(l.node.region, cells, cost, d.Allowed)
	}
	if d.Allowed {
		verdict = "allowed"
		w.ledger.grant(l, cells, cost, d.Limit, known)
	}
	w.record.note("%v  k%d for %d: %s, %d left (%v)", l, key, cost, verdict, d.Remaining, d.Source)
	w.views.look(l, key)
	return cells
}

// look makes every region use every key, and then every node decide on it at no cost, until everything has converged.
// It stops after Settle at most. In a patient history it always takes as long, because a cost that is counted twice may
// appear late.
func (w *world) look() *check {
	failed := slices.ContainsFunc(w.plan.Steps, func(s Step) bool { return s.Do.isFault() })
	settings := w.plan.settingsBound()
	if failed {
		settings += Settle
	}
	if c := w.operators.arrive(settings); len(c.broken) > 0 {
		return c
	}
	until := time.Now().Add(Settle)
	time.Sleep(soonest)
	for _, r := range w.regions {
		for key := range w.plan.Fleet.Keys {
			w.ask(r.nodes[0].life.Load(), key, 1)
		}
	}
	if !failed {
		time.Sleep(w.plan.bound())
		if c := w.within(); len(c.broken) > 0 {
			return c
		}
	}
	for {
		time.Sleep(lookEvery)
		for _, l := range w.lives() {
			for key := range w.plan.Fleet.Keys {
				w.ask(l, key, 0)
			}
		}
		last := !time.Now().Before(until)
		if w.plan.Fleet.Patient && !last {
			continue
		}
		if c := w.check(); last || len(c.broken) == 0 {
			return c
		}
	}
}

// stopAll stops all nodes, and waits for everything that still moves.
func (w *world) stopAll() {
	var stops []func()
	for _, l := range w.lives() {
		stops = append(stops, func() { w.stop(l) })
	}
	w.End(stops...)
}
