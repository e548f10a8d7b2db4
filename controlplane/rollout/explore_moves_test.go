package rollout

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/internal/controltest"
	"github.com/weirhq/weir/controlplane/tunings"
)

// move is a possible next event.
type move struct {
	kind kind
	what string
	do   func(*world)
}

// lettersMax is the number of messages under way at which the keeper stops sending.
const lettersMax = 8

// deliver executes an invocation, and stops at step stopAt if there is such a step. If twice, the step is executed and
// its answer lost. It reports whether the invocation was stopped.
func (w *world) deliver(l letter, stopAt int, twice bool) (stopped bool) {
	w.pass(l.dueMs)
	return w.execute(call{letter: l}, stopAt, twice)
}

// giveUp executes a start that fails permanently after MySQL has stored the rollout's row.
func (w *world) giveUp(l letter) {
	s := &run{world: w, call: call{letter: l}, stopAt: -1, gaveUp: true}
	if err := s.handle(); errors.Is(err, errStopped) {
		w.stopped = append(w.stopped, s.call)
	}
}

func (w *world) execute(c call, stopAt int, twice bool) (stopped bool) {
	s := &run{world: w, call: c, stopAt: stopAt, twice: twice}
	if err := s.handle(); errors.Is(err, errStopped) {
		w.stopped = append(w.stopped, s.call)
		return true
	} else if err != nil {
		panic(violation{fmt.Sprintf("%v fails: %v", c.letter, err)})
	}
	return false
}

// resume goes on with a call from the answers that it has. It returns false if the call still waits.
func (w *world) resume(i int) bool {
	c := w.stopped[i]
	w.stopped = slices.Delete(w.stopped, i, i+1)
	return !w.execute(c, -1, false)
}

func (w *world) orderOf(r *Rollout, id string, action Action, actor string) letter {
	o := Order{Action: action, By: controlplane.By{Actor: actor, Reason: id}, Stage: r.Stage + 1, Asked: max(r.Asked, 1),
		Evidence: r.Evidence()}
	if action == RollBack {
		return letter{to: wholeFleet, what: "RollBack", order: o}
	}
	w.done["orders"]++
	return letter{to: id, what: "Operate", order: o, nonce: w.done["orders"]}
}

// moves returns all possible next events of a world.
func (w *world) moves() (all []move) {
	all = append(all, w.deliveries()...)
	all = append(all, w.operators()...)
	// While a message is under way, the keeper's repeated messages add nothing.
	letters := w.keep()
	if len(letters) > 0 && len(w.letters) < lettersMax && !slices.ContainsFunc(w.letters, func(l letter) bool {
		return l.what == letters[0].what && l.to == letters[0].to
	}) {
		all = append(all, move{theKeeperLooks, "the keeper makes a round", func(w *world) {
			w.letters = append(w.letters, letters...)
		}})
	}
	if !slices.ContainsFunc(w.letters, func(l letter) bool { return l.dueMs > w.nowMs }) {
		all = append(all, move{timePasses, "time passes", func(w *world) { w.pass(w.nowMs + quantumMs) }})
	}
	return append(all, w.misfortunes()...)
}

// deliveries returns the moves of messages and calls: messages arrive, are stopped, arrive twice or are lost, and calls
// go on.
func (w *world) deliveries() (all []move) {
	for i := range w.stopped {
		l := w.stopped[i].letter
		all = append(all, move{l.kind(goesOn), fmt.Sprintf("%v goes on", l), func(w *world) { w.resume(i) }})
	}
	for i, l := range w.letters {
		if w.busy(l.to) || slices.ContainsFunc(w.letters[:i], func(o letter) bool { return o.String() == l.String() }) {
			continue
		}
		take := func(w *world) { w.letters = slices.Delete(w.letters, i, i+1) }
		all = append(all, move{l.kind(comes), fmt.Sprint(l), func(w *world) { take(w); w.deliver(l, -1, false) }})
		if l.order.Action == Approve && !l.again {
			all = append(all, move{askedAgain, fmt.Sprintf("%v comes, and the operator asks once more", l), func(w *world) {
				w.letters[i].again = true
				w.deliver(l, -1, false)
			}})
		}
		if w.left.faults == 0 {
			continue
		}
		all = append(all,
			move{l.kind(repeated), fmt.Sprintf("%v comes and will come again", l), func(w *world) {
				w.left.faults--
				w.deliver(l, -1, false)
			}},
			move{l.kind(lost), fmt.Sprintf("%v is lost", l), func(w *world) { w.left.faults--; take(w); w.lost = true }})
		if l.what == "Start" {
			all = append(all, move{l.kind(givenUp), fmt.Sprintf("%v is recorded, and given up", l), func(w *world) {
				w.left.faults--
				take(w)
				w.lost = true
				w.giveUp(l)
			}})
		}
		for stop := range 5 {
			for _, twice := range []bool{false, true} {
				how := killedBefore
				if twice {
					how = killedAfter
				}
				all = append(all, move{l.kind(how), fmt.Sprintf("%v %s %d", l, how, stop+1), func(w *world) {
					w.left.faults--
					take(w)
					if !w.deliver(l, stop, twice) {
						w.left.faults = -1 // there is no such step
					}
				}})
			}
		}
	}
	return all
}

// operators returns the orders that two operators can give. Each order is based on the state that the operator saw.
func (w *world) operators() (all []move) {
	orders := func(a *allowance) *int { return &a.orders }
	for _, start := range w.starts {
		if w.left.starts > 0 {
			what := fmt.Sprintf("an operator starts %s with %s", start.ID, subjectOf(start.Spec))
			all = append(all, move{w.kindOfStart(start), what, func(w *world) {
				w.left.starts--
				w.letters = append(w.letters, letter{to: wholeFleet, what: "Start", start: start})
			}})
		}
	}
	for _, id := range []string{"a", "b"} {
		r := w.rollouts[id]
		if r == nil {
			continue
		}
		askBy := func(actor string, action Action, cost func(*allowance) *int) {
			o := w.clone().orderOf(r, id, action, actor)
			all = append(all, move{w.kindOfOrder(r, o.order), fmt.Sprintf("%s asks: %s %s", actor, action, id), nil})
			all[len(all)-1].do = func(w *world) {
				if cost != nil {
					*cost(&w.left)--
				}
				if action != RollBack {
					w.done["orders"] = o.nonce
				}
				w.letters = append(w.letters, o)
			}
		}
		ask := func(action Action, cost func(*allowance) *int) { askBy("ann", action, cost) }
		awaits := r.Phase == Awaiting && r.Paused == nil
		asked := slices.ContainsFunc(w.letters, func(l letter) bool { return l.what == "Operate" })
		if awaits && !asked {
			askBy("ann", Approve, nil)
			askBy("bob", Approve, nil)
		}
		if r.Paused != nil && !asked {
			ask(Resume, nil)
		}
		if w.left.orders > 0 {
			if !r.Phase.Over() {
				ask(Abort, orders)
				ask(Pause, orders)
			}
			if r.Phase == Done {
				ask(RollBack, orders)
			}
		}
	}
	return all
}

// misfortunes returns the faults of nodes and of Restate.
func (w *world) misfortunes() (all []move) {
	for i, n := range w.nodes {
		if n.how == stuck || n.how == mute {
			all = append(all, move{w.kindOfRecovery(n), fmt.Sprintf("node %s is well again", n.id), func(w *world) {
				w.nodes[i].how = fine
			}})
		}
	}
	if w.left.faults == 0 {
		return all
	}
	fault := func(kind kind, what string, do func(w *world)) {
		all = append(all, move{kind, what, func(w *world) { w.left.faults--; do(w) }})
	}
	for i, n := range w.nodes {
		if n.how == fine {
			w.befall(i, fault)
		}
	}
	fault(leaseLapses, "nothing is done for as long as a lease", func(w *world) { w.pass(w.nowMs + leaseMs) })
	for _, region := range []string{"eu", ""} {
		fault(directChange, "an operator changes the tuning of "+controlplane.RowName(region)+" directly", func(w *world) {
			w.rows = append(w.rows, tunings.Write{Region: region, Document: directDocument, Over: w.land().own(region)})
		})
	}
	for _, pattern := range []string{"u*", "new"} {
		if w.ofLimits && !w.edits[pattern] {
			fault(directEdit, "an operator edits the limit of "+pattern+" directly", func(w *world) { w.edit(pattern) })
		}
	}
	for _, region := range []string{"us", "ap"} {
		fault(nodeJoins, "a node joins "+region, func(w *world) {
			joins := mote{id: fmt.Sprint(region, "+", len(w.nodes)), region: region, how: fine, seenMs: w.nowMs, startMs: w.nowMs,
				movedMs: w.nowMs}
			joins.read(w.land())
			joins.says, joins.saysTrial = joins.runs, joins.trial
			w.nodes = append(w.nodes, joins)
		})
	}
	if !w.busy(wholeFleet) { // a change of an object's state waits for its call
		fault(lockLost, "Restate loses the lock", func(w *world) { w.lock, w.lost = Lock{}, true })
	}
	fault(allLost, "Restate loses everything", func(w *world) {
		w.lock, w.rollouts, w.letters, w.stopped, w.lost = Lock{}, map[string]*Rollout{}, nil, nil, true
	})
	for _, id := range slices.Sorted(maps.Keys(w.rollouts)) {
		if !w.busy(id) {
			fault(rolloutLost, "Restate loses rollout "+id, func(w *world) { delete(w.rollouts, id); w.lost = true })
		}
	}
	return append(all, w.restorations()...)
}

// restorations returns the restorations of an older state of Restate: of one object, or of a whole backup.
func (w *world) restorations() (all []move) {
	restores := func(kind kind, what string, do func(w *world)) {
		all = append(all, move{kind, what, func(w *world) { w.left.faults--; w.lost = true; do(w) }})
	}
	n := len(w.past)
	if w.recordless || w.stateless {
		return nil // an old state cannot be distinguished from a new state
	}
	for _, i := range slices.Compact([]int{n / 3, 2 * n / 3, max(0, n-2)}) {
		if i >= n {
			continue
		}
		was := w.past[i]
		if !w.busy(wholeFleet) {
			restores(lockOld, fmt.Sprintf("the lock is restored: state %d of %d", i+1, n), func(w *world) {
				w.lock = was.lock
			})
		}
		for _, id := range slices.Sorted(maps.Keys(was.rollouts)) {
			if w.rollouts[id] != was.rollouts[id] && !w.busy(id) {
				restores(rolloutOld, fmt.Sprintf("rollout %s is restored: state %d of %d", id, i+1, n), func(w *world) {
					w.rollouts[id] = was.rollouts[id]
				})
			}
		}
	}
	if w.backup == nil {
		return append(all, move{backedUp, "a backup of Restate is made", func(w *world) {
			c := w.clone()
			w.backup = &restateState{c.lock, c.rollouts, c.letters, c.stopped}
		}})
	}
	restores(backupOld, "the backup of Restate is restored", func(w *world) {
		w.lock, w.rollouts = w.backup.lock, maps.Clone(w.backup.rollouts)
		w.letters, w.stopped = slices.Clone(w.backup.letters), slices.Clone(w.backup.stopped)
	})
	return all
}

// befall returns the faults that can happen to a healthy node.
func (w *world) befall(i int, fault func(kind, string, func(*world))) {
	n := w.nodes[i]
	becomes := func(how state) func(*world) { return func(w *world) { w.nodes[i].how = how } }
	fault(nodeDies, fmt.Sprintf("node %s dies", n.id), becomes(dead))
	fault(nodeStuck, fmt.Sprintf("node %s reads nothing", n.id), becomes(stuck))
	fault(nodeMute, fmt.Sprintf("node %s is cut off", n.id), becomes(mute))
	reads := n
	if reads.read(w.land()); n.runs != reads.runs || n.trial != reads.trial {
		fault(nodeDiesOfIt, fmt.Sprintf("node %s takes version %d, trial %d up, and dies of it", n.id, reads.runs,
			reads.trial), func(w *world) {
			reads.how = dead
			w.nodes[i] = reads
		})
	}
	for _, version := range slices.Sorted(maps.Keys(w.versions(n.region))) {
		fault(nodeStarts, fmt.Sprintf("node %s starts anew, with version %d", n.id, version), func(w *world) {
			w.nodes[i].tell(version, w.nowMs)
			w.nodes[i].startMs = w.nowMs
		})
		if version < n.runs || n.trial != 0 && version == n.runs {
			fault(relayLags, fmt.Sprintf("the relay tells node %s version %d, and goes on so", n.id, version),
				func(w *world) {
					w.nodes[i].tell(version, w.nowMs)
					w.nodes[i].how = stuck
				})
		}
	}
}

var directDocument = controltest.Document("floor=0.7")

// tell makes a node run and report a version, regardless of MySQL.
func (m *mote) tell(version, nowMs int64) {
	m.runs, m.says, m.seenMs, m.movedMs = version, version, nowMs, nowMs
	m.trial, m.saysTrial = 0, 0
}

// versions returns the versions that a node of a region may have read.
func (w *world) versions(region string) map[int64]bool {
	all := map[int64]bool{0: true}
	for i, row := range w.rows {
		if row.Region == region || row.Region == "" {
			all[int64(i+1)] = true
		}
	}
	return all
}
