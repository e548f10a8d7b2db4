package controlplane

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/weirhq/weir/shared/heartbeat"
)

// The explorer's world is everything that rollouts depend on: the rows of MySQL, nodes and their heartbeats, and of
// Restate the documents, the messages that are on their way and the invocations that were stopped on theirs. All that
// decides is the code that runs: [Rollout], [RolloutList] and [RolloutWork]. What is made up here is the database, of
// which land has the statements, and Restate: an invocation is replayed from the answers that were written down, an
// object has one at a time, and its document and messages are written as one when it ends.
type world struct {
	nowMs    int64
	rows     []TuningWrite // index + 1 is the version
	began    []TuningTrace // rollouts that MySQL knows of
	nodes    []mote
	list     RolloutList
	rollouts map[string]*Rollout
	letters  []letter // on their way, in no order
	stopped  []call   // each has the object that it is of
	left     allowance

	lost bool // state or a message, so only the keeper can make good what it said
	done map[string]int
	mutant
}

// allowance is how often something may still happen.
type allowance struct{ starts, orders, faults int }

// mote is a node. At every tick of the time it reads its tuning and speaks.
type mote struct {
	id, region      string
	how             state
	runs            int64 // a version
	says            int64 // of its newest heartbeat, as the others are
	seenMs, startMs int64
	movedMs         int64 // when misfortune made it run another version than it would have read
}

type state string

const (
	fine  state = "well"
	stuck state = "stuck" // it speaks, and reads nothing
	mute  state = "mute"  // it does neither, and runs what it ran
	dead  state = "dead"
)

// letter is a message to an object of Restate.
type letter struct {
	to, what string // to is fleet, or a rollout
	dueMs    int64
	epoch    int64
	summary  RolloutSummary
	order    RolloutOrder
	start    RolloutStart
	traces   []TuningTrace
	nonce    int  // of an order
	again    bool // it has come before
}

const fleet = "fleet"

func (l letter) String() string {
	switch l.what {
	case "Step", "Ensure":
		return fmt.Sprintf("%s of %s, epoch %d", l.what, l.to, l.epoch)
	case "Ended":
		return fmt.Sprintf("Ended: %s is %s, epoch %d", l.summary.ID, l.summary.Phase, l.summary.Epoch)
	case "Start":
		return fmt.Sprintf("Start of %s with %s", l.start.ID, l.start.Spec.Tuning[:14])
	case "Operate", "TakeBack":
		return fmt.Sprintf("%s %s, stage %d asked %d", l.order.Action, l.to, l.order.Stage, l.order.Asked)
	}
	return l.what
}

// call is an invocation that was stopped: its answers so far are written down.
type call struct {
	letter  letter
	answers []answered
}

type answered struct {
	value any
	err   error
}

func (w *world) clone() *world {
	c := *w
	c.rows, c.letters, c.stopped = slices.Clip(w.rows), slices.Clone(w.letters), slices.Clone(w.stopped)
	c.nodes, c.rollouts, c.done = slices.Clone(w.nodes), maps.Clone(w.rollouts), maps.Clone(w.done)
	c.list.List = slices.Clone(w.list.List)
	return &c
}

// apart is a document that a transition may change. Its history decides nothing.
func apart(r *Rollout) Rollout {
	if r == nil {
		return Rollout{}
	}
	c := *r
	c.Events, c.Touched, c.Watch = nil, slices.Clone(r.Touched), slices.Clone(r.Watch)
	for i := range c.Watch {
		w := &c.Watch[i]
		w.Nodes = slices.Clone(w.Nodes)
		for j := range w.Nodes {
			n := &w.Nodes[j]
			n.Window, n.Restarts = slices.Clone(n.Window), slices.Clone(n.Restarts)
		}
	}
	return c
}

// quantumMs is how exact the time is: a timer may be late by as much.
const (
	quantumMs = 500
	liveMs    = 1_200 // how old the heartbeat of a live node is at most
	lateMs    = 1_000 // the keeper's
)

// pass lets time pass, at the end of which every node speaks that can.
func (w *world) pass(toMs int64) {
	toMs = (toMs + quantumMs - 1) / quantumMs * quantumMs
	if toMs <= w.nowMs {
		return
	}
	w.nowMs = toMs
	l := w.land()
	for i := range w.nodes {
		n := &w.nodes[i]
		if n.how == fine {
			n.runs, _ = l.newest(n.region)
		}
		if n.how == fine || n.how == stuck {
			n.says, n.seenMs = n.runs, toMs
		}
	}
}

// land is the database.
func (w *world) land() *land {
	l := &land{now: time.UnixMilli(w.nowMs), rows: w.rows, began: w.began}
	for _, n := range w.nodes {
		l.nodes = append(l.nodes, FleetRow{
			Beat: heartbeat.Beat{NodeID: n.id, Region: n.region, TuningVersion: n.says, StartedAtMs: n.startMs,
				SentAtMs: n.seenMs},
			SeenAt: time.UnixMilli(n.seenMs), Health: "{}",
		})
	}
	return l
}

func (w *world) document(version int64) string {
	if version == 0 {
		return defaultDocument()
	}
	return w.rows[version-1].Document
}

// settle is what the handlers do after a transition of a rollout.
func (w *world) settle(r *Rollout, wait time.Duration) {
	before := w.rollouts[r.ID]
	must(endedStaysEnded(before, r))
	must(outcomeIsSo(w, before, r))
	must(noneIsMissing(w, before, r))
	w.commit(r, wait)
}

// takenBack is settle of the one transition that an outcome has.
func (w *world) takenBack(r *Rollout, wait time.Duration) { w.commit(r, wait) }

func (w *world) commit(r *Rollout, wait time.Duration) {
	sends := r.Settle(wait)
	r.Events = nil
	if sends.Timer {
		w.letters = append(w.letters, letter{to: r.ID, what: "Step", epoch: r.Epoch, dueMs: r.TimerMs})
	}
	if sends.Outcome {
		w.letters = append(w.letters, letter{to: fleet, what: "Ended", summary: r.Summary()})
	}
	w.rollouts[r.ID] = r
}

// handle executes an invocation up to its end, or to where it is stopped.
func (s *run) handle() error {
	l := s.letter
	if l.to == fleet {
		return s.handleList(l)
	}
	r := apart(s.rollouts[l.to])
	if r.ID == "" {
		return nil
	}
	switch l.what {
	case "Step":
		if !r.Takes(l.epoch) {
			return nil
		}
		wait, err := r.Advance(s)
		if err != nil {
			return err
		}
		s.settle(&r, wait)
	case "Ensure":
		owes := r.Owes(l.epoch)
		if owes.Outcome && !s.isComing(letter{to: fleet, what: "Ended", summary: r.Summary()}) {
			s.letters = append(s.letters, letter{to: fleet, what: "Ended", summary: r.Summary()})
		}
		if owes.Timer {
			s.settle(&r, r.Revive(s.nowMs))
		}
	case "Operate":
		if s.order != nil {
			s.order(&r, &l.order)
		}
		waited := r.Phase == RolloutAwaiting
		if wait, err := r.Operate(l.order, s.nowMs); err == nil {
			if l.order.Action == RolloutApprove && waited {
				s.done[fmt.Sprint("approval ", l.nonce)]++
				must(approvesOnce(s.world, l))
			}
			s.settle(&r, wait)
		}
	}
	return nil
}

// isComing tells that a message is on its way: another one like it, which the keeper asks for, is what comes twice.
func (w *world) isComing(l letter) bool {
	return slices.ContainsFunc(w.letters, func(on letter) bool { return on.String() == l.String() })
}

func (s *run) handleList(l letter) (err error) {
	list := s.list
	list.List = slices.Clone(list.List)
	switch l.what {
	case "Start":
		var r Rollout
		if r, err = list.Start(s, l.start); err == nil && s.started != nil {
			s.started(&list, r)
		}
	case "TakeBack":
		_, err = list.TakeBack(s, l.order.By.Reason, l.order.By)
	case "Ended":
		if s.ended != nil {
			s.ended(&l.summary)
		}
		list.Ended(l.summary)
	case "Repair":
		err = list.Repair(s, l.traces)
	}
	if errors.Is(err, errStopped) {
		return err
	}
	s.list = list
	return nil
}

// keep is a round of the keeper: the messages that it sends.
func (w *world) keep() (letters []letter) {
	for _, id := range w.list.UnderWay() {
		if r := w.rollouts[id]; r != nil && r.Lapsed(w.nowMs, lateMs*time.Millisecond) {
			letters = append(letters, letter{to: id, what: "Ensure", epoch: r.Epoch})
		}
	}
	traces, _ := w.land().TracesOfTunings(context.Background(), 100)
	if wrong, err := w.list.Wrongs(traces, w.nowMs, lateMs, w.status); err == nil && len(wrong) > 0 {
		letters = append(letters, letter{to: fleet, what: "Repair", traces: wrong})
	}
	return letters
}

// wroteBy tells that a version is of a rollout, and brought its tuning.
func (w *world) wroteBy(id string, version int64) bool {
	return version > 0 && strings.HasPrefix(w.rows[version-1].ID, id+"/apply/")
}
