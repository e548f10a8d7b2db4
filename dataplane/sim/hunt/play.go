package hunt

import (
	"context"
	"time"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/sim/internal/bubble"
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
		if s.Do.IsFault() {
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
	if s.Do.IsOperators() {
		w.record.note("operators: %v", s.Action())
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
		w.callers.askBy(n.life.Load(), s)
	case Burst:
		for range s.Count {
			w.steps.Go(func() { w.callers.ask(n.life.Load(), s.Key, s.Cost) })
		}
	case Batch:
		w.callers.batch(n.life.Load(), []int{s.Key, s.Second}, []int64{s.Cost, s.Actual})
	case Reserve:
		w.callers.reserve(n.life.Load(), s)
	case Hurry:
		w.callers.hurry(n.life.Load(), s)
	case Bulk:
		w.callers.bulk(n.life.Load(), s)
	case Peek:
		w.callers.peek(n.life.Load(), s)
	case Refund:
		w.callers.refund(n.life.Load(), s)
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
		w.record.note("%v.%d %v", r.name, s.Node, s.Action())
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

// look makes every region use every key, and then every node decide on it at no cost, until everything has converged.
// It stops after Settle at most. In a patient history it always takes as long, because a cost that is counted twice may
// appear late.
func (w *world) look() *check {
	failed := w.plan.Fails()
	settings := w.operators.bound()
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
			w.callers.ask(r.nodes[0].life.Load(), key, 1)
		}
	}
	if !failed {
		time.Sleep(w.bound())
		if c := w.within(); len(c.broken) > 0 {
			return c
		}
	}
	for {
		time.Sleep(lookEvery)
		for _, l := range w.lives() {
			for key := range w.plan.Fleet.Keys {
				w.callers.ask(l, key, 0)
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
