package rollout

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/weirhq/weir/controlplane"
)

// ForcedBytesMax bounds Rollout.Forced.
const ForcedBytesMax = 400

// Begin makes an object a rollout.
type Begin struct {
	Spec    Spec            `json:"spec"`
	By      controlplane.By `json:"by"`
	Regions []string        `json:"regions"`          // of the fleet
	Forced  string          `json:"forced,omitempty"` // Start.Forced
}

// Begin makes an empty document a rollout, and answers when its first transition is due. The same spec once more
// changes nothing; another one under this id, or an id that was used before, is refused. The document that it leaves is
// saved before the rollout exists: a list that is lost meanwhile finds it.
func (r *Rollout) Begin(steps Steps, id string, begin Begin) (wait time.Duration, fresh bool,
	err error) {
	if r.ID != "" {
		if !same(r.Spec, begin.Spec) {
			err = fmt.Errorf("%w: rollout %s exists already, with another tuning or plan: choose another id",
				controlplane.ErrConflict,
				r.ID)
		}
		return 0, false, err
	}
	used, err := steps.used(id)
	if err != nil {
		return 0, false, err
	}
	if used != "" {
		return 0, false, fmt.Errorf("%w: %s", controlplane.ErrConflict, used)
	}
	nowMs, err := steps.nowMs()
	if err != nil {
		return 0, false, err
	}
	began, err := New(id, begin.Spec, begin.By, begin.Regions, nowMs)
	if err != nil {
		return 0, false, err
	}
	began.force(begin.Forced)
	*r = *began
	if !r.ticks() {
		wait = -1
	}
	return wait, true, nil
}

// force keeps in the document and its history what was critical when the rollout was started all the same.
func (r *Rollout) force(critical string) {
	if critical == "" {
		return
	}
	r.Forced = controlplane.Shorten(critical, ForcedBytesMax)
	r.AddEvent(r.StartedMs, r.By.Actor, "forced", "the health of the fleet was critical: "+r.Forced)
}

func same(a, b Spec) bool {
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)
	return errX == nil && errY == nil && string(x) == string(y)
}

// RollBack is the transition of an operator who rolls back what is done. It is called under the
// lock, so no other is under way; the rows say whether one has been since.
func (r *Rollout) RollBack(steps Steps, by controlplane.By) (wait time.Duration, err error) {
	if r.Phase == Done {
		inForce, err := steps.inForce(r.Touched.rows())
		if err != nil {
			return 0, err
		}
		if err := r.Overtaken(inForce); err != nil {
			return 0, err
		}
	}
	nowMs, err := steps.nowMs()
	if err != nil {
		return 0, err
	}
	return r.Operate(Order{Action: RollBack, By: by}, nowMs)
}

// Settle ends a transition: timers of before are stale, and the next one is due after wait; less than 0: not before an
// operator acts.
func (r *Rollout) Settle(wait time.Duration) { r.EndTransition(r.MovedMs, wait) }

// Lapsed tells that a message of the rollout should have come for longer than late: the timer of its next transition,
// or its outcome, which would release the lock.
func (r *Rollout) Lapsed(nowMs int64, late time.Duration) bool {
	return r.Overdue(nowMs, late) || r.Phase.Over() && nowMs > r.EndedMs+late.Milliseconds()
}
