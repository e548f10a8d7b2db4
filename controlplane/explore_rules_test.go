package controlplane

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// violation is what a rule finds; the explorer puts the path beside it.
type violation struct{ text string }

// must ends a move that breaks a rule.
func must(broken string) {
	if broken != "" {
		panic(violation{broken})
	}
}

// "At most one rollout is under way."
func oneIsUnderWay(w *world) string {
	var under []string
	for id, r := range w.rollouts {
		if !r.Phase.Over() {
			under = append(under, id)
		}
	}
	if len(under) > 1 {
		return "at most one rollout is under way: " + strings.Join(slices.Sorted(slices.Values(under)), " and ") + " are"
	}
	return ""
}

// "The lock is that of the rollout that is under way, or its outcome is on its way to the list."
func lockIsRight(w *world) string {
	if w.lost || w.busy(fleet) {
		return "" // the keeper makes good what was lost, and a call that goes on what it began
	}
	told := func(id string) bool {
		return slices.ContainsFunc(w.letters, func(l letter) bool { return l.what == "Ended" && l.summary.ID == id })
	}
	if r := w.rollouts[w.list.Active]; w.list.Active != "" && (r == nil || r.Phase.Over()) && !told(w.list.Active) {
		return fmt.Sprintf("the lock stays with %s, which is not under way, and nothing will give it back", w.list.Active)
	}
	for id, r := range w.rollouts {
		if !r.Phase.Over() && w.list.Active != id {
			return fmt.Sprintf("%s is under way without the lock, which %q has", id, w.list.Active)
		}
	}
	return ""
}

// "A rollout has one outcome: one that is over stays as it ended. An operator can take back one that is done, once."
func endedStaysEnded(before, r *Rollout) string {
	if before != nil && before.Phase.Over() {
		return fmt.Sprintf("%s was %s, and is %s", r.ID, before.Phase, r.Phase)
	}
	return ""
}

// "An id is used once."
func idIsFresh(w *world, id string) string {
	if w.rollouts[id] != nil {
		return fmt.Sprintf("%s begins anew, and is there", id)
	}
	if i := slices.IndexFunc(w.rows, func(row TuningWrite) bool { return strings.HasPrefix(row.ID, id+"/") }); i >= 0 &&
		!w.forgetful {
		return fmt.Sprintf("%s begins anew, and version %d is its own", id, i+1)
	}
	return ""
}

// "An approval approves one stage."
func approvesOnce(w *world, l letter) string {
	if n := w.done[fmt.Sprint("approval ", l.nonce)]; n > 1 {
		return fmt.Sprintf("one approval of %s, of stage %d, approves %d stages", l.to, l.order.Stage, n)
	}
	return ""
}

// "done: every live node of every region of it runs the document, and MySQL has it. rolled_back, aborted: none does,
// except nodes that an operator gave up." A node that has started, or was told another version, since the rollout's
// last look is not judged.
func outcomeIsSo(w *world, before, r *Rollout) string {
	if !r.Phase.Over() || before == nil || before.Phase == r.Phase || strings.Contains(r.Why, "gave up waiting") {
		return ""
	}
	l := w.land()
	for _, t := range r.Touched {
		version, document := l.newest(t.Region)
		if r.Phase == RolloutDone && document != r.Document {
			return fmt.Sprintf("%s is done, and version %d of %s is of another document", r.ID, version, rowName(t.Region))
		}
		if r.Phase != RolloutDone && w.wroteBy(r.ID, version) {
			return fmt.Sprintf("%s is %s, and its version %d is in force for %s", r.ID, r.Phase, version, rowName(t.Region))
		}
	}
	for _, n := range w.nodes {
		judged := w.nowMs-n.seenMs <= liveMs && n.how != dead && n.movedMs < r.Clocks.OwnMs && r.touchedScope().Has(n.region)
		switch runs := w.document(n.runs); {
		case !judged:
		case r.Phase == RolloutDone && runs != r.Document:
			return fmt.Sprintf("%s is done, and node %s runs version %d, of another document", r.ID, n.id, n.runs)
		case r.Phase != RolloutDone && w.wroteBy(r.ID, n.runs):
			return fmt.Sprintf("%s is %s, and node %s runs its version %d", r.ID, r.Phase, n.id, n.runs)
		}
	}
	return ""
}

// "What has the tuning is watched until the rollout is over: it is not done without the nodes that were there before."
// A plan that bears the loss of all is done without them.
func noneIsMissing(w *world, before, r *Rollout) string {
	if r.Phase != RolloutDone || before == nil || r.Spec.Plan.Guardrails.NodesLostShare >= 1 {
		return ""
	}
	for _, watched := range before.Watch {
		for _, was := range watched.Nodes {
			i := slices.IndexFunc(w.nodes, func(n mote) bool { return n.id == was.ID })
			if n := w.nodes[i]; !was.Came && n.how == dead && n.seenMs <= r.SinceMs {
				return fmt.Sprintf("%s is done, and node %s, which was there before, has died", r.ID, n.id)
			}
		}
	}
	return ""
}

// "A write is made once."
func writesAreMadeOnce(w *world) string {
	ids := map[string]bool{}
	for _, row := range w.rows {
		if ids[row.ID] {
			return "write " + row.ID + " is made twice"
		}
		ids[row.ID] = true
	}
	return ""
}

// endsWell plays on without faults, as operators do who see things through: "every rollout comes to an end, the lock is
// free, and all nodes run what MySQL has".
func endsWell(w *world) string {
	w = w.clone()
	w.lost = true
	for i := range w.nodes {
		if w.nodes[i].how != dead {
			w.nodes[i].how = fine
		}
	}
	for range 400 {
		if !w.goOn() {
			break
		}
	}
	for id, r := range w.rollouts {
		if !r.Phase.Over() {
			return fmt.Sprintf("%s does not come to an end: it stays %s, %q, %q", id, r.Phase, r.Waiting, r.Trouble)
		}
	}
	if len(w.stopped)+len(w.letters) > 0 {
		return fmt.Sprintf("messages do not come to an end: %v", w.letters)
	}
	if w.list.Active != "" {
		return "the lock stays with " + w.list.Active
	}
	l := w.land()
	for _, n := range w.nodes {
		if version, _ := l.newest(n.region); n.how == fine && n.runs != version {
			return fmt.Sprintf("node %s runs version %d, and not %d", n.id, n.runs, version)
		}
	}
	return ""
}

// goOn makes the next move of those that are no faults; false: all is quiet.
func (w *world) goOn() bool {
	if len(w.stopped) > 0 && w.resumeOne() || w.operate() {
		return true
	}
	if len(w.letters) > 0 {
		next := 0
		for i, l := range w.letters {
			if l.dueMs < w.letters[next].dueMs {
				next = i
			}
		}
		l := w.letters[next]
		w.letters = slices.Delete(w.letters, next, next+1)
		w.deliver(l, -1, false)
		return true
	}
	for range 8 {
		w.pass(w.nowMs + quantumMs)
		if w.letters = w.keep(); len(w.letters) > 0 {
			return true
		}
	}
	return false
}

// operate approves, and resumes, what waits for it.
func (w *world) operate() bool {
	if slices.ContainsFunc(w.letters, func(l letter) bool { return l.what == "Operate" }) {
		return false
	}
	for _, id := range slices.Sorted(maps.Keys(w.rollouts)) {
		r, action := w.rollouts[id], RolloutApprove
		if r.Paused != nil {
			action = RolloutResume
		}
		if !r.Phase.Over() && (r.Phase == RolloutAwaiting || r.Paused != nil) {
			w.letters = append(w.letters, w.orderOf(r, id, action))
			return true
		}
	}
	return false
}

// resumeOne goes on with a call that can.
func (w *world) resumeOne() bool {
	for range w.stopped { // one that still waits becomes the last
		if w.resume(0) {
			return true
		}
	}
	return false
}
