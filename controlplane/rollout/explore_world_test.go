package rollout

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/fleet"
	"github.com/weirhq/weir/controlplane/tunings"
	"github.com/weirhq/weir/shared/heartbeat"
	"github.com/weirhq/weir/shared/tuning"
)

// The explorer's world is everything that rollouts depend on: the rows of MySQL, nodes and their heartbeats, and of
// Restate the documents, the messages under way and the stopped invocations. All decisions are made by the real code:
// [Rollout], [Lock] and [Work]. Only the database and Restate are models. land has the database's statements. Restate
// replays an invocation from its recorded answers, runs one invocation of an object at a time, and writes its document
// and messages atomically at its end.
type world struct {
	nowMs    int64
	rows     []tunings.Write // index + 1 is the version
	trials   []landTrial     // index + 1 is the number
	saves    []Row           // rows of rollouts in MySQL
	nodes    []mote
	lock     Lock
	rollouts map[string]*Rollout
	letters  []letter       // under way, in any order
	stopped  []call         // at most one per object
	past     []restateState // earlier states of Restate, oldest first: see remember
	backup   *restateState
	left     allowance
	starts   []Start // that operators may order

	lost bool // a state or message was lost, so only the keeper can repair it
	done map[string]int
	limited
	ofLimits bool            // the first rollout changes limits
	edits    map[string]bool // patterns whose limits were edited directly; replaced by each edit
	mutant
}

// restateState is the state of Restate: the lock and the rollouts, and in a backup also everything under way.
type restateState struct {
	lock     Lock
	rollouts map[string]*Rollout
	letters  []letter
	stopped  []call
}

// allowance is how often something may still happen.
type allowance struct{ starts, orders, faults int }

// mote is a node. At every tick it reads its tuning and sends a heartbeat.
type mote struct {
	id, region      string
	how             state
	runs            int64 // the stored version that it has
	trial           int64 // the trial that it runs, 0: none
	untilMs         int64 // when it leaves the trial if it reads no renewal
	says, saysTrial int64 // of its newest heartbeat, as the others are
	seenMs, startMs int64
	movedMs         int64 // when a fault made it run another version than it would have read
}

type state string

const (
	fine  state = "well"
	stuck state = "stuck" // it sends heartbeats, but reads nothing
	mute  state = "mute"  // it does neither, and still runs the same tuning
	dead  state = "dead"
)

// letter is a message to an object of Restate.
type letter struct {
	to, what string // to is fleet, or a rollout
	dueMs    int64
	epoch    int64
	summary  Summary
	order    Order
	start    Start
	traces   []Trace
	nonce    int  // of an order
	again    bool // it has arrived before
}

const wholeFleet = "fleet"

func (l letter) String() string {
	switch l.what {
	case "Step", "Ensure":
		return fmt.Sprintf("%s of %s, epoch %d", l.what, l.to, l.epoch)
	case "Ended":
		return fmt.Sprintf("Ended: %s is %s, epoch %d", l.summary.ID, l.summary.Phase, l.summary.Epoch)
	case "Start":
		return fmt.Sprintf("Start of %s with %s", l.start.ID, subjectOf(l.start.Spec))
	case "Operate", "RollBack":
		return fmt.Sprintf("%s %s by %s, stage %d asked %d, evidence %.6s", l.order.Action, l.to, l.order.By.Actor,
			l.order.Stage, l.order.Asked, l.order.Evidence)
	}
	return l.what
}

// call is an invocation that was stopped: its answers so far are recorded.
type call struct {
	letter  letter
	answers []answered
	judged  bool // its result was checked against the rules
}

type answered struct {
	value any
	err   error
}

func (w *world) clone() *world {
	c := *w
	c.trials, c.saves, c.past = slices.Clip(w.trials), slices.Clip(w.saves), slices.Clip(w.past)
	c.rows, c.letters, c.stopped = slices.Clip(w.rows), slices.Clone(w.letters), slices.Clone(w.stopped)
	c.nodes, c.rollouts, c.done = slices.Clone(w.nodes), maps.Clone(w.rollouts), maps.Clone(w.done)
	return &c
}

// apart returns a copy of a document that a transition may change. It drops the history, which decides nothing.
func apart(r *Rollout) Rollout {
	if r == nil {
		return Rollout{}
	}
	c := *r
	c.Events, c.Touched, c.Watch = nil, slices.Clone(r.Touched), slices.Clone(r.Watch)
	c.Shadows = slices.Clone(r.Shadows)
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

// quantumMs is the precision of time: a timer can be late by as much.
const (
	quantumMs = 500
	liveMs    = 1_200 // age up to which a heartbeat counts as live
	lateMs    = 1_000 // the keeper's
	leaseMs   = 2_500 // of trials
)

// pass lets time pass. At its end every node that can sends a heartbeat.
func (w *world) pass(toMs int64) {
	toMs = (toMs + quantumMs - 1) / quantumMs * quantumMs
	if toMs <= w.nowMs {
		return
	}
	w.nowMs = toMs
	l := w.land()
	for i := range w.nodes {
		n := &w.nodes[i]
		if n.untilMs <= toMs && !w.clinging {
			n.trial = 0
		}
		if n.how == fine {
			n.read(l)
		}
		if n.how == fine || n.how == stuck {
			n.says, n.saysTrial, n.seenMs = n.runs, n.trial, toMs
		}
	}
}

// read makes a node read the rows of its region.
func (m *mote) read(l *land) {
	var left time.Duration
	m.runs, _ = l.newest(m.region)
	if m.trial, left = l.trial(m.region); m.trial != 0 && tuning.TrialShare(m.id) >= l.trials[m.trial-1].Below {
		m.trial, left = 0, 0
	}
	m.untilMs = l.now.UnixMilli() + left.Milliseconds()
}

// land returns the database.
func (w *world) land() *land {
	l := &land{now: time.UnixMilli(w.nowMs), rows: w.rows, trials: w.trials, saves: w.saves, limited: w.limited}
	for _, n := range w.nodes {
		l.nodes = append(l.nodes, fleet.Row{
			Heartbeat: heartbeat.Heartbeat{NodeID: n.id, Region: n.region, TuningVersion: n.says, StartedAtMs: n.startMs,
				SentAtMs: n.seenMs},
			SeenAt: time.UnixMilli(n.seenMs),
			Health: fmt.Sprintf(`{"trial":%d,"tuning_hash":%q}`, n.saysTrial, hashed(w.running(n.says, n.saysTrial))),
		})
	}
	return l
}

// running returns the document of a trial, or of a stored version if there is no trial.
func (w *world) running(version, trial int64) string {
	if trial != 0 {
		return w.trials[trial-1].Document
	}
	return w.document(version)
}

func (w *world) document(version int64) string {
	if version == 0 {
		return defaultDocument
	}
	return w.rows[version-1].Document
}

// settle ends a transition of a rollout as the handlers do: it saves the rollout, and then stores its document.
func (s *run) settle(r *Rollout, wait time.Duration) error {
	if before := s.rollouts[r.ID]; !s.judged && !s.takesBack {
		must(endedStaysEnded(before, r))
		must(outcomeIsSo(s.world, before, r))
		must(noneIsMissing(s.world, before, r))
		must(allHaveTried(s.world, before, r))
	}
	s.judged = true
	r.Settle(wait)
	r.Events = nil
	if err := r.Save(s.on().Steps); err != nil {
		return err
	}
	s.commit(r, wait)
	return nil
}

// restored is settle for a document that equals MySQL's. The rules were checked when it was saved.
func (s *run) restored(r *Rollout, wait time.Duration) error {
	s.judged = true
	return s.settle(r, wait)
}

func (w *world) commit(r *Rollout, wait time.Duration) {
	r.Events = nil
	if wait >= 0 {
		w.letters = append(w.letters, letter{to: r.ID, what: "Step", epoch: r.Epoch, dueMs: r.TimerMs})
	}
	if r.Phase.Over() {
		w.letters = append(w.letters, letter{to: wholeFleet, what: "Ended", summary: r.Summary()})
	}
	w.remember()
	w.rollouts[r.ID] = r
}

// pastMax is how many states are kept.
const pastMax = 12

// remember adds the present state of Restate to the states that an operator can restore.
func (w *world) remember() {
	if n := len(w.past); n >= pastMax {
		w.past = slices.Delete(slices.Clone(w.past), n/2, n/2+1)
	}
	w.past = append(w.past, restateState{lock: w.lock, rollouts: maps.Clone(w.rollouts)})
}

// handle executes an invocation up to its end, or to where it is stopped.
func (s *run) handle() error {
	l := s.letter
	if l.to == wholeFleet {
		return s.handleLock(l)
	}
	r := apart(s.rollouts[l.to])
	if l.what == "Step" && !r.Takes(l.epoch) {
		return nil
	}
	wait, restored, err := r.Restore(s.on().Steps, l.to)
	if err != nil || r.ID == "" {
		return err
	}
	if restored && l.what != "Operate" {
		return s.restored(&r, wait)
	}
	switch l.what {
	case "Step":
		return s.later(s.advance(&r))
	case "Ensure":
		if r.Phase.Over() && !s.isComing(letter{to: wholeFleet, what: "Ended", summary: r.Summary()}) {
			s.letters = append(s.letters, letter{to: wholeFleet, what: "Ended", summary: r.Summary()})
		}
		if r.Takes(l.epoch) {
			nowMs, _ := s.on().nowMs()
			if err := s.settle(&r, r.Revive(nowMs)); !errors.Is(err, controlplane.ErrConflict) {
				return err
			}
		}
	case "Operate":
		return s.operate(&r, l, wait, restored)
	}
	return nil
}

func (s *run) advance(r *Rollout) error {
	wait, err := r.Advance(s.on().Steps)
	if err != nil {
		return err
	}
	return s.settle(r, wait)
}

// later handles a step that is refused: it is retried later.
func (s *run) later(err error) error {
	if !errors.Is(err, controlplane.ErrConflict) {
		return err
	}
	r := apart(s.rollouts[s.letter.to])
	r.MovedMs, r.Trouble = s.nowMs, err.Error()
	r.Settle(quantumMs * time.Millisecond)
	s.commit(&r, quantumMs*time.Millisecond)
	return nil
}

func (s *run) operate(r *Rollout, l letter, wait time.Duration, restored bool) error {
	if s.order != nil {
		s.order(r, &l.order, s.nowMs)
	}
	nowMs, err := s.on().nowMs()
	if err != nil {
		return err
	}
	before, waited := *r, r.Phase == Awaiting
	ordered, err := r.Operate(l.order, nowMs)
	switch {
	case err == nil:
		wait = ordered
		if l.order.Action == Approve && waited && !s.judged {
			s.done[fmt.Sprint("approval ", l.nonce)]++
			must(approvesOnce(s.world, l))
			must(approvedByEnough(s.world, &before, r, l))
		}
	case !restored:
		return nil
	}
	s.judged = s.judged || restored
	if err := s.settle(r, wait); !errors.Is(err, controlplane.ErrConflict) {
		return err
	}
	return nil
}

// isComing reports whether an equal message is under way. If the keeper sends it again, that counts as a message that
// arrives twice.
func (w *world) isComing(l letter) bool {
	return slices.ContainsFunc(w.letters, func(on letter) bool { return on.String() == l.String() })
}

func (s *run) handleLock(l letter) (err error) {
	lock := s.lock
	switch l.what {
	case "Start":
		var r Rollout
		if r, err = lock.Start(s.on(), l.start); err == nil && s.started != nil {
			s.started(&lock, r)
		}
	case "RollBack":
		_, err = lock.RollBack(s.on(), l.order.By.Reason, l.order.By)
	case "Ended":
		if s.ended != nil {
			s.ended(&l.summary)
		}
		lock.Ended(l.summary)
	case "Repair":
		err = lock.Repair(s.on(), l.traces)
	}
	if errors.Is(err, errStopped) {
		return err
	}
	s.remember()
	s.lock = lock
	return nil
}

// keep makes a round of the keeper, and returns the messages that the keeper sends.
func (w *world) keep() (letters []letter) {
	if r := w.rollouts[w.lock.Active]; r != nil && r.Lapsed(w.nowMs, lateMs*time.Millisecond) {
		letters = append(letters, letter{to: r.ID, what: "Ensure", epoch: r.Epoch})
	}
	traces, _ := w.land().Rollouts(context.Background(), 100)
	if wrong, err := w.lock.Wrongs(traces, w.nowMs, lateMs, w.status); err == nil && len(wrong) > 0 {
		letters = append(letters, letter{to: wholeFleet, what: "Repair", traces: wrong})
	}
	return letters
}

// wroteBy reports whether a rollout wrote a version with its tuning.
func (w *world) wroteBy(id string, version int64) bool {
	return version > 0 && strings.HasPrefix(w.rows[version-1].ID, id+"/apply/")
}

// triedBy reports whether a rollout began a trial.
func (w *world) triedBy(id string, trial int64) bool {
	return trial > 0 && (strings.HasPrefix(w.trials[trial-1].ID, id+"/try/") ||
		strings.HasPrefix(w.trials[trial-1].ID, id+"/shadow/"))
}
