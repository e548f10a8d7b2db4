package controlplane

import (
	"fmt"
	"hash/maphash"
	"os"
	"slices"
	"strings"
	"testing"
)

// mutant is what a test takes out of the code to see that the explorer finds it.
type mutant struct {
	order     func(*Rollout, *RolloutOrder)
	started   func(*RolloutList, Rollout)
	ended     func(*RolloutSummary)
	look      func(*world, *FleetLook)
	write     func(*land, []TuningWrite, TuningsWritten) TuningsWritten
	forgetful bool // no id was used before
	traceless bool // MySQL has no traces of rollouts

	recordless bool // MySQL has no rows of rollouts, and knows of those alone that wrote versions
}

// startsOf are what operators may start: two rollouts, and the first one's id with another tuning.
var startsOf = func() []RolloutStart {
	gated := func(regions ...string) RolloutStage {
		return RolloutStage{Regions: regions, All: len(regions) == 0, BakeMs: 100, Approval: true}
	}
	a, b := DefaultRolloutPlan(), DefaultRolloutPlan()
	a.Stages, a.BaselineMs, a.ApplyTimeoutMs = []RolloutStage{gated("eu"), gated()}, 100, 1_000
	b.Stages, b.BaselineMs, b.ApplyTimeoutMs = []RolloutStage{{All: true, BakeMs: 100}}, 0, 1_000
	b.Guardrails.NodesLostShare = 1
	start := func(id, document string, plan RolloutPlan) RolloutStart {
		return RolloutStart{ID: id, Spec: RolloutSpec{Tuning: string(mustDocument(document)), Plan: plan}, By: ann}
	}
	return []RolloutStart{start("a", `{"floor":0.3}`, a), start("b", `{"floor":0.4}`, b), start("a", `{"floor":0.2}`, b)}
}()

func newWorld(m mutant, left allowance) *world {
	w := &world{nowMs: day.UnixMilli() / quantumMs * quantumMs, mutant: m, left: left, rollouts: map[string]*Rollout{},
		done: map[string]int{}}
	for _, region := range []string{"eu", "us"} {
		w.nodes = append(w.nodes, mote{id: region + "1", region: region, how: fine, seenMs: w.nowMs, startMs: 1})
	}
	return w
}

// visit is a world that was reached, and how.
type visit struct {
	from int // index of the visit before
	what string
}

// exploration is a search of all worlds, breadth first: the path to the first violation is a shortest one.
type exploration struct {
	visits []visit
	seen   map[uint64]bool
	depth  int
	ended  int // worlds from which it was played to the end
	found  string
}

var seed = maphash.MakeSeed()

// explore begins at each world of a run without trouble of each rollout that may be started.
func explore(m mutant, left allowance, statesMax int) *exploration {
	e := &exploration{seen: map[uint64]bool{}}
	type reached struct {
		*world
		visit, depth int
	}
	var queue []reached
	for i, w := range roots(m, left) {
		e.visits = append(e.visits, visit{-1, fmt.Sprintf("(world %d of the runs without trouble)", i)})
		queue = append(queue, reached{w, i, 0})
	}
	for len(queue) > 0 && len(e.visits) < statesMax {
		at := queue[0]
		queue[0].world = nil
		queue = queue[1:]
		e.depth = at.depth
		for _, m := range at.moves() {
			next, broken := try(at.world, m)
			if next.left.faults < 0 || broken == "" && !e.isNew(next) {
				continue
			}
			e.visits = append(e.visits, visit{at.visit, m.what})
			if broken == "" && len(e.visits)%16 == 0 {
				e.ended++
				broken = judged(func() string { return endsWell(next) })
			}
			if broken != "" {
				e.found = broken + "\n" + e.path(len(e.visits)-1)
				return e
			}
			queue = append(queue, reached{next, len(e.visits) - 1, at.depth + 1})
		}
	}
	return e
}

func (e *exploration) isNew(w *world) bool {
	key := maphash.Bytes(seed, w.key())
	known := e.seen[key]
	e.seen[key] = true
	return !known
}

// roots are the worlds that a rollout goes through when nothing happens to it.
func roots(m mutant, left allowance) (all []*world) {
	for _, start := range startsOf[:2] {
		w := newWorld(m, left)
		all = append(all, w.clone())
		w.left.starts--
		w.letters = append(w.letters, letter{to: fleet, what: "Start", start: start})
		for len(all) < 100 && w.goOn() {
			all = append(all, w.clone())
		}
	}
	return all
}

// try makes a move, and holds what comes of it against the rules.
func try(w *world, m move) (next *world, broken string) {
	next = w.clone()
	broken = judged(func() string {
		m.do(next)
		for _, rule := range []func(*world) string{oneIsUnderWay, lockIsRight, writesAreMadeOnce} {
			if broken := rule(next); broken != "" {
				return broken
			}
		}
		return ""
	})
	return next, broken
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

// path is a transcript of how a world was reached.
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

// Two operators, messages that come late, twice or not at all, steps that are killed and made again, nodes that die,
// hang and start anew, and a Restate that loses its state: whatever happens, the rules hold.
func TestExploreRollouts(t *testing.T) { exploreAll(t, 20_000) }

// The same for as long as takes millions of states, with WEIR_SOAK=1.
func TestExploreRolloutsSoak(t *testing.T) {
	states := 1_000
	if os.Getenv("WEIR_SOAK") != "" {
		states = 500_000
	}
	exploreAll(t, states)
}

func exploreAll(t *testing.T, states int) {
	for _, left := range []allowance{{1, 0, 0}, {1, 2, 0}, {2, 1, 0}, {2, 0, 1}, {2, 1, 1}, {2, 2, 2}} {
		e := explore(mutant{}, left, states)
		t.Logf("%+v: %d states, %d moves deep, %d played to the end", left, len(e.visits), e.depth, e.ended)
		if e.found != "" {
			t.Errorf("%+v: %s", left, e.found)
		}
	}
}

// What mended a defect is taken out, and the explorer finds the defect again.
func TestTheExplorerFindsDefects(t *testing.T) {
	for name, c := range map[string]struct {
		mutant
		left allowance
		want string // the rule that it breaks
	}{
		"an approval that comes again approves the next stage": {mutant{order: func(r *Rollout, o *RolloutOrder) {
			o.Stage, o.Asked = r.Stage+1, max(r.Asked, 1)
		}}, allowance{1, 0, 0}, "one approval of a, of stage"},
		"a rollout that is over takes the lock when it is started again": {mutant{started: func(l *RolloutList,
			r Rollout) {
			l.lock(r.Summary())
		}}, allowance{2, 0, 1}, "the lock stays with"},
		"an id is used again, and versions that it wrote count as made": {mutant{forgetful: true,
			write: func(l *land, writes []TuningWrite, written TuningsWritten) TuningsWritten {
				if written.Refused == nil || !written.Refused.IDTaken {
					return written
				}
				return madeBefore(l, writes)
			}}, allowance{2, 0, 1}, ", and "},
		"a start beside a rollout that the list has lost": {mutant{traceless: true}, allowance{2, 0, 1},
			"at most one rollout is under way"},
		"a start beside a rollout that wrote nothing and that the list has lost": {mutant{recordless: true},
			allowance{2, 0, 1}, "at most one rollout is under way"},
		"the outcome of before gives the lock back": {mutant{ended: func(s *RolloutSummary) { s.Epoch = 1 << 40 }},
			allowance{1, 1, 0}, "is under way without the lock"},
		"nodes are taken to run what was written last": {mutant{look: func(w *world, l *FleetLook) {
			for i := range l.Nodes {
				l.Nodes[i].Version, _ = w.land().newest(l.Nodes[i].Region)
			}
		}}, allowance{1, 1, 1}, ", and node"},
	} {
		t.Run(name, func(t *testing.T) {
			e := explore(c.mutant, c.left, 60_000)
			if e.found == "" || !strings.Contains(e.found, c.want) {
				t.Fatalf("%d states, %d moves deep, and found %q, want %q", len(e.visits), e.depth, e.found, c.want)
			}
			t.Logf("found after %d states: %s", len(e.visits), e.found)
		})
	}
}

// madeBefore is what writes answered before it was looked at whether an id had written the same document.
func madeBefore(l *land, writes []TuningWrite) (written TuningsWritten) {
	for _, w := range writes {
		i := slices.IndexFunc(l.rows, func(row TuningWrite) bool { return row.ID == w.ID })
		if i < 0 {
			l.rows = append(slices.Clip(l.rows), w)
			i = len(l.rows) - 1
		}
		written.Versions = append(written.Versions, int64(i+1))
	}
	return written
}
