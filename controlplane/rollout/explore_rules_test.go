package rollout

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/tunings"
)

// violation is a broken rule; the explorer adds the path to it.
type violation struct{ text string }

// must ends a move that breaks a rule.
func must(broken string) {
	if broken != "" {
		panic(violation{broken})
	}
}

// "At most one rollout is under way."
func oneIsUnderWay(w *world) string {
	under := map[string]bool{}
	for id, r := range w.rollouts {
		under[id] = !r.Phase.Over()
	}
	for _, row := range w.saves {
		if w.older(row.ID) {
			under[row.ID] = !row.Phase.Over()
		}
	}
	maps.DeleteFunc(under, func(_ string, is bool) bool { return !is })
	if len(under) > 1 {
		return "at most one rollout is under way: " + strings.Join(slices.Sorted(maps.Keys(under)), " and ") + " are"
	}
	return ""
}

// older reports whether MySQL has a newer state of a rollout than Restate, which has an older state or none.
func (w *world) older(id string) bool {
	i := savedIn(w.saves, id)
	return i >= 0 && (w.rollouts[id] == nil || w.rollouts[id].Saved < w.saves[i].Saved)
}

// "MySQL keeps an outcome, whatever Restate loses", unless an operator rolls back a rollout that is done.
func outcomeStays(s *run, row Row) string {
	i := savedIn(s.saves, row.ID)
	if i < 0 || s.saves[i].Saved >= row.Saved || s.takesBack {
		return ""
	}
	if was := s.saves[i].Phase; was.Over() && was != row.Phase {
		return fmt.Sprintf("MySQL has %s as %s, and now as %s", row.ID, was, row.Phase)
	}
	return ""
}

// "The rollout that is under way has the lock, or the outcome of the rollout with the lock is on its way to it."
func lockIsRight(w *world) string {
	if w.lost || w.busy(wholeFleet) {
		return "" // the keeper repairs the loss, and a stopped call goes on
	}
	told := func(id string) bool {
		return slices.ContainsFunc(w.letters, func(l letter) bool { return l.what == "Ended" && l.summary.ID == id })
	}
	if r := w.rollouts[w.lock.Active]; w.lock.Active != "" && (r == nil || r.Phase.Over()) && !told(w.lock.Active) {
		return fmt.Sprintf("the lock stays with %s, which is not under way, and nothing will give it back", w.lock.Active)
	}
	for id, r := range w.rollouts {
		if !r.Phase.Over() && w.lock.Active != id {
			return fmt.Sprintf("%s is under way without the lock, which %q has", id, w.lock.Active)
		}
	}
	return ""
}

// "A rollout has one outcome: a rollout that is over does not change. An operator can roll back a rollout that is done,
// once."
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
	if i := slices.IndexFunc(w.rows, func(row tunings.Write) bool { return strings.HasPrefix(row.ID, id+"/") }); i >= 0 &&
		!w.forgetful {
		return fmt.Sprintf("%s begins anew, and version %d is its own", id, i+1)
	}
	return ""
}

// "A stage begins when as many different people as the plan requires have approved it, and none of their approvals has
// expired."
func approvedByEnough(w *world, before, after *Rollout, l letter) string {
	by := func(actor string) string {
		return fmt.Sprintf("approved %s stage %d asked %d by %s", l.to, l.order.Stage, l.order.Asked, actor)
	}
	w.done[by(l.order.By.Actor)] = int(w.nowMs)
	if after.Phase == Awaiting {
		return ""
	}
	have := 0
	for _, actor := range []string{"ann", "bob"} {
		at, approved := w.done[by(actor)]
		if approved && w.nowMs-int64(at) < before.Spec.Plan.TTL().Milliseconds() {
			have++
		}
	}
	if have < before.Spec.Plan.Need() {
		return fmt.Sprintf("stage %d of %s begins with the approvals of %d people of %d", before.Stage+1, l.to, have,
			before.Spec.Plan.Need())
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

// "done: every live node of every region runs the document, and MySQL has it. rolled_back, aborted: no node runs it,
// except nodes that an operator gave up." The rule skips a node that has restarted, or was made to run another version,
// since the rollout's last look.
func outcomeIsSo(w *world, before, r *Rollout) string {
	if !r.Phase.Over() || before == nil || before.Phase == r.Phase || strings.Contains(r.Why, "gave up waiting") {
		return ""
	}
	l := w.land()
	if r.Spec.Limits != nil {
		return limitsAreSo(w, r)
	}
	for _, t := range r.Touched {
		version, document := l.newest(t.Region)
		if version != 0 && w.rows[version-1].ID == "" {
			continue // an operator has changed it since
		}
		if r.Phase == Done && document != r.Document {
			return fmt.Sprintf("%s is done, and version %d of %s is of another document", r.ID, version, controlplane.RowName(t.Region))
		}
		if r.Phase != Done && w.wroteBy(r.ID, version) {
			return fmt.Sprintf("%s is %s, and its version %d is in force for %s", r.ID, r.Phase, version, controlplane.RowName(t.Region))
		}
	}
	for _, n := range w.nodes {
		judged := w.nowMs-n.seenMs <= liveMs && n.how != dead && n.movedMs < r.Clocks.OwnMs && r.Touched.scope().Has(n.region)
		switch runs := w.running(n.runs, n.trial); {
		case !judged || runs == directDocument:
		case r.Phase == Done && runs != r.Document:
			return fmt.Sprintf("%s is done, and node %s runs version %d, of another document", r.ID, n.id, n.runs)
		case r.Phase == Done && n.trial != 0:
			return fmt.Sprintf("%s is done, and node %s runs trial %d, which ends", r.ID, n.id, n.trial)
		case r.Phase != Done && w.triedBy(r.ID, n.trial):
			return fmt.Sprintf("%s is %s, and node %s runs its trial %d", r.ID, r.Phase, n.id, n.trial)
		case r.Phase != Done && n.trial == 0 && w.wroteBy(r.ID, n.runs):
			return fmt.Sprintf("%s is %s, and node %s runs its version %d", r.ID, r.Phase, n.id, n.runs)
		}
	}
	return ""
}

// "Regions with the tuning are watched until the rollout is over: it is not done without the nodes from before the
// stage." If the plan allows the loss of all nodes, it can be done without them.
func noneIsMissing(w *world, before, r *Rollout) string {
	if r.Phase != Done || before == nil || r.Spec.Plan.Guardrails.NodesLostShare >= 1 {
		return ""
	}
	for _, watched := range before.Watch {
		if watched.Whole { // its nodes have watches of their own from their stage on
			continue
		}
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
		if row.ID == "" {
			continue // by an operator
		}
		if ids[row.ID] {
			return "write " + row.ID + " is made twice"
		}
		ids[row.ID] = true
	}
	return ""
}

// "An operator's direct change stays, whatever an earlier rollout writes."
func directChangesStay(w *world) string {
	direct := map[string]int64{}
	for i, row := range w.rows {
		if row.ID == "" {
			direct[row.Region] = int64(i + 1)
		} else if row.Over < direct[row.Region] {
			return fmt.Sprintf("version %d of %s was written directly, and %s replaces it", direct[row.Region],
				controlplane.RowName(row.Region), row.ID)
		}
	}
	return ""
}

// "A trial that has ended does not begin again."
func trialsStayOver(w *world) string {
	l := w.land()
	for i, t := range w.trials {
		name := fmt.Sprint("over: trial ", i+1)
		over := t.endsMs <= w.nowMs || l.own(t.Region) != t.Over
		if !over && w.done[name] > 0 {
			return fmt.Sprintf("trial %d was over, and goes on", i+1)
		}
		if over {
			w.done[name]++
		}
	}
	return ""
}

// "A trial is never narrowed."
func trialsAreWidened(w *world) string {
	for i, t := range w.trials {
		name := fmt.Sprint("below: trial ", i+1)
		if int64(w.done[name]) > t.Below {
			return fmt.Sprintf("trial %d is narrowed from %d to %d", i+1, w.done[name], t.Below)
		}
		w.done[name] = int(t.Below)
	}
	return ""
}

// "Before the tuning is stored every live node has tried it." The rule skips a node that has restarted, or was made to
// run another version, since the rollout's last look.
func allHaveTried(w *world, before, r *Rollout) string {
	if r.Phase != Keeping || before == nil || before.Phase == r.Phase || len(w.edits) > 0 {
		return "" // an edit voids trials at once, and then the change is not stored
	}
	for _, n := range w.nodes {
		judged := w.nowMs-n.seenMs <= liveMs && n.how != dead && n.movedMs < r.Clocks.OwnMs && r.Touched.scope().Has(n.region)
		if runs := w.running(n.runs, n.trial); judged && runs != r.Document && runs != directDocument {
			return fmt.Sprintf("%s is stored for all, and node %s runs version %d, trial %d", r.ID, n.id, n.runs, n.trial)
		}
	}
	return ""
}

// "No node runs a trial after its lease, nor a withdrawn tuning for longer than a lease": neither after a rollback
// began, nor after Restate has lost the rollout.
func nodesLeaveInTime(w *world) string {
	for i, t := range w.trials {
		name := fmt.Sprint("good until: trial ", i+1)
		w.done[name] = max(w.done[name], int(t.endsMs))
	}
	for _, n := range w.nodes {
		if n.trial == 0 {
			continue
		}
		if until := int64(w.done[fmt.Sprint("good until: trial ", n.trial)]); w.nowMs >= until {
			return fmt.Sprintf("node %s still runs trial %d, which was good until %d ms ago", n.id, n.trial, w.nowMs-until)
		}
		id, _, _ := strings.Cut(w.trials[n.trial-1].ID, "/")
		r, name := w.rollouts[id], "withdrawn: "+id
		if r != nil && !w.older(id) && r.Phase != RollingBack && (!r.Phase.Over() || r.Phase == Done) {
			delete(w.done, name) // it was lost, and goes on
			continue
		}
		if w.done[name] == 0 {
			w.done[name] = int(w.nowMs)
		}
		if w.nowMs-int64(w.done[name]) > leaseMs {
			return fmt.Sprintf("%s is withdrawn, and node %s still runs trial %d after a lease", id, n.id, n.trial)
		}
	}
	return ""
}

// unwellMoves is enough moves for an aborted rollout to reach its outcome.
const unwellMoves = 20

// endsWell plays on without faults, with operators who approve and resume: "every rollout ends, the lock is free, and
// all nodes run the tuning that MySQL has". Nodes recover only after some moves, because for example a rollout must
// wait for nodes that don't read, and the search alone seldom goes on for so long after a fault.
func endsWell(w *world) string {
	w = w.clone()
	w.lost = true
	for range unwellMoves {
		if !w.goOn() {
			break
		}
		if broken := w.broken(); broken != "" {
			return broken
		}
	}
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
	if w.lock.Active != "" {
		return "the lock stays with " + w.lock.Active
	}
	for _, row := range w.saves {
		r := w.rollouts[row.ID]
		if row.Saved == 0 {
			continue
		}
		if r == nil || r.Phase != row.Phase {
			return fmt.Sprintf("MySQL has %s as %s, and Restate has not", row.ID, row.Phase)
		}
	}
	l := w.land()
	for _, n := range w.nodes {
		if version, _ := l.newest(n.region); n.how == fine && (n.runs != version || n.trial != 0) {
			return fmt.Sprintf("node %s runs version %d, trial %d, and not version %d", n.id, n.runs, n.trial, version)
		}
	}
	return ""
}

// goOn makes the next move that is not a fault; false: there is none.
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

// operate approves or resumes a rollout that waits for it.
func (w *world) operate() bool {
	if slices.ContainsFunc(w.letters, func(l letter) bool { return l.what == "Operate" }) {
		return false
	}
	for _, id := range slices.Sorted(maps.Keys(w.rollouts)) {
		r, action := w.rollouts[id], Approve
		if r.Paused != nil {
			action = Resume
		}
		if !r.Phase.Over() && (r.Phase == Awaiting || r.Paused != nil) {
			counting, actor := r.Spec.Plan.Counting(r.Approvals, r.Evidence(), w.nowMs), "ann"
			if len(counting) < len(r.Approvals) { // a new request for approvals is about to begin
				continue
			}
			if len(counting) > 0 && counting[0].Actor == actor {
				actor = "bob"
			}
			w.letters = append(w.letters, w.orderOf(r, id, action, actor))
			return true
		}
	}
	return false
}

// resumeOne goes on with a stopped call that can go on.
func (w *world) resumeOne() bool {
	for range w.stopped { // a call that still waits is put last
		if w.resume(0) {
			return true
		}
	}
	return false
}
