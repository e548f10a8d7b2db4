package rollout

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/weirhq/weir/controlplane"
)

// kind classifies a move. An exploration that never makes a move of some kind has not tested it.
type kind string

// Kinds of events of a message, or of the call that it makes; see [letter.kind].
const (
	comes        = "comes"
	repeated     = "comes twice"
	lost         = "is lost"
	givenUp      = "is given up"
	killedBefore = "is killed before step"
	killedAfter  = "is killed after step"
	goesOn       = "goes on"
)

// All other kinds.
const (
	askedAgain kind = "an approval is asked for once more"

	approvesTwice kind = "an operator approves what the same one has approved"
	approvesToo   kind = "an operator approves what another one has approved"
	approvesLate  kind = "an operator approves what another one had approved, before that expired"
	approvesAnew  kind = "an operator approves anew what the same one had approved, before that expired"

	startAlone  kind = "an operator starts a rollout"
	startBeside kind = "an operator starts a rollout beside one that is under way"
	startUsed   kind = "an operator starts a rollout under an id that was used"
	orderBeside kind = "an operator asks while another one's order is on its way"

	theKeeperLooks kind = "the keeper makes a round"
	timePasses     kind = "time passes"
	leaseLapses    kind = "nothing is done for as long as a lease"
	directChange   kind = "an operator changes the tuning directly"
	directEdit     kind = "an operator edits a limit directly"

	nodeDies     kind = "a node dies"
	nodeDiesOfIt kind = "a node dies of what it takes up"
	nodeStuck    kind = "a node reads nothing"
	nodeMute     kind = "a node is cut off"
	nodeWell     kind = "a node is well again"
	nodeLate     kind = "a node is well again, later than a rollout has waited for it"
	nodeStarts   kind = "a node starts anew, with any version"
	nodeJoins    kind = "a node joins"
	relayLags    kind = "a relay tells a running node an older version"

	lockLost    kind = "Restate loses the lock"
	allLost     kind = "Restate loses everything"
	rolloutLost kind = "Restate loses a rollout"
	lockOld     kind = "an old state of the lock is restored"
	rolloutOld  kind = "an old state of a rollout is restored"
	backedUp    kind = "a backup of Restate is made"
	backupOld   kind = "a backup of Restate is restored"
)

// kinds returns all kinds. Calls without a step cannot be killed at a step.
func kinds() map[kind]bool {
	all := map[kind]bool{}
	for _, k := range []kind{askedAgain, approvesTwice, approvesToo, approvesLate, approvesAnew, startAlone, startBeside, startUsed, orderBeside, theKeeperLooks, timePasses, leaseLapses, directChange, directEdit,
		nodeDies, nodeDiesOfIt, nodeStuck, nodeMute, nodeWell, nodeLate, nodeStarts, nodeJoins, relayLags, lockLost, allLost,
		rolloutLost, lockOld, rolloutOld, backedUp, backupOld, "Start is given up"} {
		all[k] = true
	}
	for _, action := range []Action{Approve, Pause, Resume, Abort, RollBack} {
		all[kindOf(action)] = true
	}
	for _, what := range []string{"Start", "Step", "RollBack", "Repair", "Ended", "Ensure", "Operate"} {
		for _, how := range []string{comes, repeated, lost} {
			all[kind(what+" "+how)] = true
		}
	}
	for _, what := range []string{"Start", "Step", "RollBack", "Repair", "Ensure", "Operate"} {
		for _, how := range []string{killedBefore, killedAfter, goesOn} {
			all[kind(what+" "+how)] = true
		}
	}
	return all
}

// untaken returns the kinds without any move, and the moves of unknown kinds.
func untaken(taken map[kind]int) (wrong []string) {
	all := kinds()
	for k := range taken {
		if !all[k] {
			wrong = append(wrong, "not among the kinds: "+string(k))
		}
	}
	for k := range all {
		if taken[k] == 0 {
			wrong = append(wrong, "never taken: "+string(k))
		}
	}
	return slices.Sorted(slices.Values(wrong))
}

// summary describes the moves that were made.
func summary(taken map[kind]int) string {
	var lines strings.Builder
	for _, k := range slices.Sorted(maps.Keys(taken)) {
		fmt.Fprintf(&lines, "\n%8d  %s", taken[k], k)
	}
	return lines.String()
}

func (l letter) kind(how string) kind { return kind(l.what + " " + how) }

func kindOf(action Action) kind { return "an operator asks: " + kind(action) }

func (w *world) kindOfStart(start Start) kind {
	switch {
	case w.rollouts[start.ID] != nil:
		return startUsed
	case slices.ContainsFunc(slices.Collect(maps.Values(w.rollouts)), func(r *Rollout) bool { return !r.Phase.Over() }):
		return startBeside
	}
	return startAlone
}

func (w *world) kindOfOrder(r *Rollout, o Order) kind {
	has := func(a controlplane.Approval) bool { return a.Actor == o.By.Actor }
	counting := r.Spec.Plan.Counting(r.Approvals, r.Evidence(), w.nowMs)
	switch {
	case o.Action != Approve || len(r.Approvals) == 0:
	case slices.ContainsFunc(counting, has):
		return approvesTwice
	case slices.ContainsFunc(r.Approvals, has):
		return approvesAnew
	case len(counting) == 0:
		return approvesLate
	default:
		return approvesToo
	}
	if slices.ContainsFunc(w.letters, func(l letter) bool { return l.what == "Operate" || l.what == "RollBack" }) {
		return orderBeside
	}
	return kindOf(o.Action)
}

// kindOfRecovery returns the kind of a node's recovery, by whether a rollout still waits for the node.
func (w *world) kindOfRecovery(n mote) kind {
	for _, r := range w.rollouts {
		waits := (r.Phase == Converging || r.Phase == RollingBack) && (r.DueMs == 0 || w.nowMs < r.DueMs)
		if r.Touched.scope().Has(n.region) && !waits {
			return nodeLate
		}
	}
	return nodeWell
}
