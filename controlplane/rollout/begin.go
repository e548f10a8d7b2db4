package rollout

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/weirhq/weir/controlplane"
)

// ForcedBytesMax bounds Rollout.Forced.
const ForcedBytesMax = 400

// Begin is the message that makes an empty object a rollout.
type Begin struct {
	Spec    Spec            `json:"spec"`
	By      controlplane.By `json:"by"`
	Regions []string        `json:"regions"`          // all regions of the fleet
	Forced  string          `json:"forced,omitempty"` // Start.Forced
}

// Begin makes an empty document a rollout, and returns when its first transition is due. It is idempotent for the same
// spec. It rejects another spec under this ID, and an ID that was used before. The caller must save the document before
// the rollout exists, so that the rollout can be found if Restate loses it.
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
	if begin.Forced != "" {
		began.Forced = controlplane.Shorten(begin.Forced, ForcedBytesMax)
		began.AddEvent(nowMs, begin.By.Actor, "forced", "the health of the fleet was critical: "+began.Forced)
	}
	*r = *began
	if !r.ticks() {
		wait = -1
	}
	return wait, true, nil
}

func same(a, b Spec) bool {
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)
	return errX == nil && errY == nil && string(x) == string(y)
}

// RollBack makes the transition of an operator who rolls back a rollout that is done. It must be called under the lock,
// so no other rollout is under way. It returns an error if another rollout has changed a row since.
func (r *Rollout) RollBack(steps Steps, by controlplane.By) (wait time.Duration, err error) {
	if r.Phase == Done && r.Spec.Limits == nil {
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

// Settle ends a transition: earlier timers are stale, and the next transition is due after wait; less than 0: none
// before an operator acts.
func (r *Rollout) Settle(wait time.Duration) { r.EndTransition(r.MovedMs, wait) }

// Lapsed reports whether a message of the rollout is late by more than late: the timer of its next transition, or its
// outcome, which would release the lock.
func (r *Rollout) Lapsed(nowMs int64, late time.Duration) bool {
	return r.Overdue(nowMs, late) || r.Phase.Over() && nowMs > r.EndedMs+late.Milliseconds()
}
