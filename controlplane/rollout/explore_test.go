package rollout

import (
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/fleet"
	"github.com/weirhq/weir/controlplane/internal/controltest"
	"github.com/weirhq/weir/controlplane/rollout/plan"
	"github.com/weirhq/weir/controlplane/tunings"
	"github.com/weirhq/weir/shared/tuning"
)

// mutant removes code, so that a test can check that the explorer finds the defect.
type mutant struct {
	order     func(r *Rollout, o *Order, nowMs int64)
	started   func(*Lock, Rollout)
	ended     func(*Summary)
	look      func(*world, *fleet.Look)
	write     func(*land, []tunings.Write, tunings.Written) tunings.Written
	renew     func(*land, []string, int64, tunings.TrialsRenewed) tunings.TrialsRenewed
	end       func(*land)
	limits    func(l *land, w LimitsWrite, keep bool) // before a write of limits
	clinging  bool                                    // nodes run a trial until they read of its end
	forgetful bool                                    // every id counts as unused
	traceless bool                                    // MySQL has no traces of rollouts

	recordless bool // MySQL has no rows of rollouts, so only their versions are a trace
	stateless  bool // MySQL has rows of rollouts without states, as an older build wrote them
	trusting   bool // a rollout does not check whether MySQL has a newer state
}

// startsOf are the rollouts that operators can start if a stage of the first rollout needs two approvers. oneApproves
// are the same with one approver, with which searches go deeper.
var startsOf, oneApproves = starts(2), starts(1)

// inShares are starts whose first rollout begins with a node of each region, and goes on with the others.
var inShares = func() []Start {
	all := starts(1)
	p := &all[0].Spec.Plan
	p.Stages = slices.Clone(p.Stages)
	p.Stages[0] = plan.Stage{All: true, StageNodes: plan.StageNodes{Nodes: 1}, BakeMs: 100, Approval: true}
	return all
}()

// starts returns two rollouts, and another rollout with the first ID and another tuning.
func starts(approvers int) []Start {
	gated := func(regions ...string) plan.Stage {
		return plan.Stage{Regions: regions, All: len(regions) == 0, BakeMs: 100, Approval: true}
	}
	a, b := plan.DefaultPlan(), plan.DefaultPlan()
	a.Stages, a.BaselineMs, a.ApplyTimeoutMs = []plan.Stage{gated("eu"), gated()}, 100, 1_000
	a.LeaseMs, b.LeaseMs = leaseMs, leaseMs
	if approvers > 1 {
		a.Quorum = controlplane.Quorum{Approvers: approvers, ApprovalTTLMs: 3_000}
	}
	b.Stages, b.BaselineMs, b.ApplyTimeoutMs = []plan.Stage{{All: true, BakeMs: 100}}, 0, 1_000
	b.Guardrails.NodesLostShare = 1
	for _, g := range []*plan.Guardrails{&a.Guardrails, &b.Guardrails} { // nodes have no counts for a bake to wait for
		g.ErrorsPerMinute.Off, g.RowsPerSecond.Off, g.DegradedShare.Off, g.DeniedShareShift = true, true, true, 1
	}
	start := func(id, floor string, p plan.Plan) Start {
		document := controltest.Document("floor="+floor, "settings_interval_ms=100")
		return Start{ID: id, Spec: Spec{Tuning: document, Plan: p}, By: controltest.Ann}
	}
	return []Start{start("a", "0.3", a), start("b", "0.4", b), start("a", "0.2", b)}
}

func newWorld(s search) *world {
	w := &world{nowMs: controltest.Day.UnixMilli() / quantumMs * quantumMs, mutant: s.mutant, left: s.left, starts: startsOf,
		rollouts: map[string]*Rollout{}, done: map[string]int{}}
	switch {
	case s.ofLimits:
		w.starts, w.ofLimits, w.stored = limitsStarts, true, limitsBefore
	case s.inShares:
		w.starts = inShares
	case s.oneApproves:
		w.starts = oneApproves
	}
	for _, region := range []string{"eu", "us"} {
		for i := range max(1, s.nodes) {
			w.nodes = append(w.nodes, mote{id: fmt.Sprint(region, i+1), region: region, how: fine, seenMs: w.nowMs, startMs: 1})
		}
	}
	return w
}

// search selects the worlds to visit.
type search struct {
	mutant
	left      allowance
	statesMax int
	nodes     int        // of a region, at least 1
	width     int        // how many worlds to go on from after each move; 0: all
	draw      *rand.Rand // selects these worlds

	oneApproves bool // stages need one approver, not two
	ofLimits    bool // as oneApproves, with a first rollout of limits
	inShares    bool // as oneApproves, with a rollout whose first stage has one node of each region
}

// visit is a world that was reached, and the way to it.
type visit struct {
	from int // index of the visit before
	what string
}

// exploration is the result of a search, breadth first. Without a width, the path to the first violation is a shortest
// path.
type exploration struct {
	search
	visits []visit
	seen   map[uint64]bool
	depth  int
	ended  int // worlds from which it was played to the end
	taken  map[kind]int
	found  string
}

// reached is a world that a visit came to.
type reached struct {
	*world
	visit int
	kind  kind // of the move
	fault bool // the move is a fault
	rank  int  // the lowest are kept
}

var seed = maphash.MakeSeed()

// explore begins at each world that a rollout goes through without trouble, for each rollout that may be started.
func explore(s search) *exploration {
	e := &exploration{search: s, seen: map[uint64]bool{}, taken: map[kind]int{}}
	var level []reached
	var begun []*world
	e.found = judged(func() string { begun = roots(s); return "" })
	for i, w := range begun {
		e.visits = append(e.visits, visit{-1, fmt.Sprintf("(world %d of the runs without trouble)", i)})
		level = append(level, reached{world: w, visit: i})
	}
	level = e.some(level)
	for depth := 0; len(level) > 0 && len(e.visits) < e.statesMax && e.found == ""; depth++ {
		e.depth = depth
		var next []reached
		for i := 0; i < len(level) && len(e.visits) < e.statesMax && e.found == ""; i++ {
			next = e.goOn(level[i], next)
			level[i].world = nil
		}
		level = e.some(next)
	}
	return e
}

// some returns the worlds that the search has room for: of many kinds of moves, and fewer of faults. Most moves are
// faults, and the allowance of faults is soon used up.
func (e *exploration) some(worlds []reached) []reached {
	if e.width == 0 || len(worlds) <= e.width {
		return worlds
	}
	e.draw.Shuffle(len(worlds), func(i, j int) { worlds[i], worlds[j] = worlds[j], worlds[i] })
	had := map[kind]int{}
	for i := range worlds {
		w := &worlds[i]
		w.rank = 10*had[w.kind] + e.draw.IntN(10)
		if had[w.kind]++; w.fault {
			w.rank += e.draw.IntN(20)
		}
	}
	slices.SortStableFunc(worlds, func(a, b reached) int { return a.rank - b.rank })
	return slices.Clone(worlds[:e.width])
}

// goOn makes every possible next move, and adds the new worlds.
func (e *exploration) goOn(at reached, all []reached) []reached {
	for _, m := range at.moves() {
		next, broken := try(at.world, m)
		if next.left.faults < 0 {
			continue
		}
		e.taken[m.kind]++
		if broken == "" && !e.isNew(next) {
			continue
		}
		e.visits = append(e.visits, visit{at.visit, m.what})
		if broken == "" && len(e.visits)%16 == 0 {
			e.ended++
			if broken = judged(func() string { return endsWell(next) }); broken != "" {
				e.visits = append(e.visits, visit{len(e.visits) - 1, "(it is played on to its end)"})
			}
		}
		if broken != "" {
			e.found = broken + "\n" + e.path(len(e.visits)-1)
			return nil
		}
		all = append(all, reached{world: next, visit: len(e.visits) - 1, kind: m.kind,
			fault: next.left.faults < at.left.faults})
	}
	return all
}

func (e *exploration) isNew(w *world) bool {
	key := maphash.Bytes(seed, w.key())
	known := e.seen[key]
	e.seen[key] = true
	return !known
}

// roots returns the worlds that a rollout goes through without trouble.
func roots(s search) (all []*world) {
	for i := range 2 {
		w := newWorld(s)
		start := w.starts[i]
		all = append(all, w.clone())
		w.left.starts--
		w.letters = append(w.letters, letter{to: wholeFleet, what: "Start", start: start})
		for len(all) < 100 && w.goOn() {
			must(w.broken()) // also notes the ends of trials
			all = append(all, w.clone())
		}
	}
	return all
}

// try makes a move, and checks the rules in the resulting world.
func try(w *world, m move) (next *world, broken string) {
	next = w.clone()
	broken = judged(func() string {
		m.do(next)
		return next.broken()
	})
	return next, broken
}

// broken returns the rule that a world breaks, or "".
func (w *world) broken() string {
	for _, rule := range []func(*world) string{editsStay, oneIsUnderWay, lockIsRight, writesAreMadeOnce,
		directChangesStay, trialsStayOver, trialsAreWidened, nodesLeaveInTime} {
		if broken := rule(w); broken != "" {
			return broken
		}
	}
	return ""
}

func judged(check func() string) (broken string) {
	defer func() {
		if v := recover(); v != nil {
			found, is := v.(violation)
			if !is {
				panic(v)
			}
			broken = found.text
		}
	}()
	return check()
}

// path describes how a world was reached.
func (e *exploration) path(at int) string {
	var lines []string
	for ; at >= 0; at = e.visits[at].from {
		lines = append(lines, e.visits[at].what)
	}
	slices.Reverse(lines)
	for i := range lines {
		lines[i] = fmt.Sprintf("%3d  %s", i, lines[i])
	}
	return strings.Join(lines, "\n")
}

// The rules hold in the presence of two operators, messages that are late, lost or repeated, steps that are killed and
// made again, nodes that die, hang, restart or read an older version, and a Restate that loses its state. Each kind of
// event happens in at least one search.
//
//weir:unraced
func TestExploreRollouts(t *testing.T) {
	taken := map[kind]int{}
	for _, left := range allowances {
		exploreOne(t, search{left: left, statesMax: 8_000, oneApproves: true}, taken)
	}
	for _, left := range allowances[:2] {
		exploreOne(t, search{left: left, statesMax: 8_000}, taken)
	}
	exploreOne(t, search{left: allowance{1, 1, 1}, statesMax: 4_000, nodes: 2, inShares: true}, taken)
	for _, left := range []allowance{{1, 0, 0}, {1, 1, 1}} {
		exploreOne(t, search{left: left, statesMax: 4_000, ofLimits: true}, taken)
	}
	for i := range 8 {
		s := deeper(i, 2_000)
		s.ofLimits, s.oneApproves, s.inShares = true, false, false
		exploreOne(t, s, taken)
	}
	for i := range 56 {
		exploreOne(t, deeper(i, 2_000), taken)
	}
	t.Logf("moves by kind:%s", summary(taken))
	if wrong := untaken(taken); len(wrong) > 0 {
		t.Errorf("moves:\n%s", strings.Join(wrong, "\n"))
	}
}

// allowances are the searches that visit everything up to their depth.
var allowances = []allowance{{1, 0, 0}, {1, 2, 0}, {2, 1, 0}, {2, 0, 1}, {2, 1, 1}, {2, 2, 2}}

func exploreOne(t *testing.T, s search, taken map[kind]int) *exploration {
	t.Helper()
	e := explore(s)
	t.Logf("%+v: %d states, %d moves deep, %d played to the end", s.left, len(e.visits), e.depth, e.ended)
	if e.found != "" {
		t.Fatalf("%+v: %s", s.left, e.found)
	}
	for kind, n := range e.taken {
		taken[kind] += n
	}
	return e
}

// The same for a rollout that takes in a node of each region first.
//
//weir:unraced
func TestTheExplorerFindsDefectsOfShares(t *testing.T) {
	for name, c := range map[string]struct {
		mutant
		want string
	}{
		"a node that was not in the share is taken to run the trial": {mutant{look: func(w *world, l *fleet.Look) {
			for i := range l.Nodes {
				n := &l.Nodes[i]
				n.Trial, _ = w.land().trial(n.Region)
				n.Hash = hashed(w.running(n.Version, n.Trial))
			}
		}}, "is stored for all, and node"},
		"a trial is narrowed": {mutant{renew: func(l *land, _ []string, _ int64, renewed tunings.TrialsRenewed) tunings.TrialsRenewed {
			if l.trials[0].Below == tuning.TrialShares {
				l.trials = slices.Clone(l.trials)
				l.trials[0].Below-- // which moves no node
			}
			return renewed
		}}, "is narrowed"},
	} {
		t.Run(name, func(t *testing.T) {
			e := explore(search{mutant: c.mutant, left: allowance{1, 0, 1}, statesMax: 60_000, nodes: 2, inShares: true})
			if e.found == "" || !strings.Contains(e.found, c.want) {
				t.Fatalf("%d states, %d moves deep, and found %q, want %q", len(e.visits), e.depth, e.found, c.want)
			}
			t.Logf("found after %d states: %s", len(e.visits), e.found)
		})
	}
}

// The same for a rollout of limits.
//
//weir:unraced
func TestTheExplorerFindsDefectsOfLimits(t *testing.T) {
	for name, c := range map[string]struct {
		mutant
		want string
	}{
		"an edit is overwritten when limits are stored": {mutant{limits: func(l *land, w LimitsWrite, keep bool) {
			if keep && w.Change.Conflicts(&l.stored).Items() > 0 {
				back := w.Change.Reverse()
				l.stored = *back.Apply(&l.stored)
			}
		}}, "was edited directly, and is"},
		"a rollback restores what others edited": {mutant{limits: func(l *land, w LimitsWrite, keep bool) {
			if !keep && l.records[w.ID].kept {
				l.stored = *w.Change.Apply(&l.stored)
			}
		}}, "was edited directly, and is"},
		"a rollback forgets that limits are stored": {mutant{limits: func(l *land, w LimitsWrite, keep bool) {
			if !keep {
				l.record(w.ID, limitsRecord{})
			}
		}}, "and the limit of"},
	} {
		t.Run(name, func(t *testing.T) {
			e := explore(search{mutant: c.mutant, left: allowance{1, 1, 1}, statesMax: 60_000, ofLimits: true})
			if e.found == "" || !strings.Contains(e.found, c.want) {
				t.Fatalf("%d states, %d moves deep, and found %q, want %q", len(e.visits), e.depth, e.found, c.want)
			}
			t.Logf("found after %d states: %s", len(e.visits), e.found)
		})
	}
}

// For each defect that was fixed, the explorer finds it again if the fix is removed.
//
//weir:unraced
func TestTheExplorerFindsDefects(t *testing.T) {
	for name, c := range map[string]struct {
		mutant
		left allowance
		want string // the rule that it breaks
	}{
		"an approval that comes again approves the next stage": {mutant{order: func(r *Rollout, o *Order, _ int64) {
			o.Stage, o.Asked, o.Evidence = r.Stage+1, max(r.Asked, 1), r.Evidence()
		}}, allowance{1, 0, 0}, "one approval of a, of stage"},
		"one person is taken for two": {mutant{order: func(r *Rollout, o *Order, _ int64) {
			if slices.ContainsFunc(r.Approvals, func(a controlplane.Approval) bool { return a.Actor == o.By.Actor }) {
				o.By.Actor += " again"
			}
		}}, allowance{1, 0, 0}, "one approval of a, of stage 1, approves 2 stages"},
		"approvals that expired count": {mutant{order: func(r *Rollout, _ *Order, nowMs int64) {
			for i := range r.Approvals {
				r.Approvals[i].AtMs = nowMs
			}
		}}, allowance{1, 0, 0}, "with the approvals of 1 people of 2"},
		"an approval that comes again is renewed": {mutant{order: func(r *Rollout, o *Order, _ int64) {
			o.Asked = max(r.Asked, 1)
		}}, allowance{1, 0, 0}, "one approval of a, of stage"},
		"a rollout that is over takes the lock when it is started again": {mutant{started: func(l *Lock,
			r Rollout) {
			l.take(r.Summary())
		}}, allowance{2, 0, 1}, "the lock stays with"},
		"an id is used again, and versions that it wrote count as made": {mutant{forgetful: true, stateless: true,
			write: func(l *land, writes []tunings.Write, written tunings.Written) tunings.Written {
				if written.Refused == nil || !written.Refused.IDTaken {
					return written
				}
				return madeBefore(l, writes)
			}}, allowance{2, 0, 1}, " and "},
		"a start beside a rollout that the lock has lost": {mutant{traceless: true}, allowance{2, 0, 1},
			"at most one rollout is under way"},
		"a start beside a rollout that wrote nothing and that the lock has lost": {mutant{recordless: true},
			allowance{2, 0, 1}, "at most one rollout is under way"},
		"a rollout goes on from an old state": {mutant{trusting: true}, allowance{1, 0, 1},
			"a does not come to an end"},
		"the outcome of before gives the lock back": {mutant{ended: func(s *Summary) { s.Epoch = 1 << 40 }},
			allowance{1, 1, 0}, "is under way without the lock"},
		"nodes are taken to run what was written last": {mutant{look: func(w *world, l *fleet.Look) {
			for i := range l.Nodes {
				n := &l.Nodes[i]
				n.Version, _ = w.land().newest(n.Region)
				n.Trial, _ = w.land().trial(n.Region)
				n.Hash = hashed(w.running(n.Version, n.Trial))
			}
		}}, allowance{1, 1, 1}, ", and node"},
		"a node that reads nothing is taken to run the newest version": {mutant{look: func(w *world, l *fleet.Look) {
			for i := range l.Nodes {
				n := &l.Nodes[i]
				is := slices.IndexFunc(w.nodes, func(m mote) bool { return m.id == n.ID })
				if w.nodes[is].how == stuck && n.Trial == 0 {
					n.Version, _ = w.land().newest(n.Region)
					n.Hash = hashed(w.document(n.Version))
				}
			}
		}}, allowance{1, 0, 1}, ", of another document"},
		"a rollback ends while a node still runs what was withdrawn": {mutant{look: func(w *world, l *fleet.Look) {
			if r := w.rollouts["a"]; r == nil || r.Phase != RollingBack || r.DueMs == 0 { // it has not waited yet
				return
			}
			for i := range l.Nodes {
				n := &l.Nodes[i]
				n.Trial, n.Version, n.Hash = 0, 0, hashed(w.document(0))
			}
		}}, allowance{1, 1, 1}, "is aborted, and node"},
		"a trial that is over is begun again": {mutant{renew: func(l *land, ids []string, leaseMs int64,
			_ tunings.TrialsRenewed) tunings.TrialsRenewed {
			for _, id := range ids {
				i := slices.IndexFunc(l.trials, func(t landTrial) bool { return t.ID == id })
				l.trials = slices.Clone(l.trials)
				l.trials[i].endsMs = l.databaseMs() + leaseMs
			}
			return tunings.TrialsRenewed{}
		}}, allowance{1, 0, 1}, "was over, and goes on"},
		"a rollback does not end the trials": {mutant{end: func(l *land) {
			for i := range l.trials {
				l.trials[i].endsMs = l.databaseMs() + 10*leaseMs
			}
		}}, allowance{1, 1, 1}, "trial 1"},
		"a node that is cut off goes on with a trial": {mutant{clinging: true}, allowance{1, 1, 2},
			"still runs trial 1, which was good until"},
		"versions are kept over a direct change": {mutant{write: func(l *land, writes []tunings.Write,
			_ tunings.Written) tunings.Written {
			return madeBefore(l, writes)
		}}, allowance{1, 1, 1}, "directly, and"},
		"nodes that die are taken for live": {mutant{look: func(w *world, l *fleet.Look) {
			for _, n := range w.nodes {
				if n.how == dead && w.nowMs-n.seenMs > liveMs {
					version, _ := w.land().newest(n.region)
					trial, _ := w.land().trial(n.region)
					l.Nodes = append(l.Nodes, fleet.NodeFigures{ID: n.id, Region: n.region, Version: version, Trial: trial,
						Hash: hashed(w.running(version, trial)), StartedMs: n.startMs, SentMs: l.AtMs, SeenMs: l.AtMs})
				}
			}
		}}, allowance{1, 0, 1}, ", which was there before, has died"},
	} {
		t.Run(name, func(t *testing.T) {
			e := explore(search{mutant: c.mutant, left: c.left, statesMax: 60_000})
			if e.found == "" || !strings.Contains(e.found, c.want) {
				t.Fatalf("%d states, %d moves deep, and found %q, want %q", len(e.visits), e.depth, e.found, c.want)
			}
			t.Logf("found after %d states: %s", len(e.visits), e.found)
		})
	}
}

// madeBefore returns the result of writes before the code checked whether an ID had written the same document.
func madeBefore(l *land, writes []tunings.Write) (written tunings.Written) {
	for _, w := range writes {
		i := slices.IndexFunc(l.rows, func(row tunings.Write) bool { return row.ID == w.ID })
		if i < 0 {
			l.rows = append(slices.Clip(l.rows), w)
			i = len(l.rows) - 1
		}
		written.Versions = append(written.Versions, int64(i+1))
	}
	return written
}
