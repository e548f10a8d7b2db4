package controlplane

import (
	"fmt"
	"slices"
	"time"
	"unicode/utf8"
)

// RolloutAction is what an operator can do to a rollout.
type RolloutAction string

// The actions.
const (
	RolloutApprove  RolloutAction = "approve"  // let the stage begin that waits for it
	RolloutSuspend  RolloutAction = "pause"    // stand still, at whatever has been applied
	RolloutResume   RolloutAction = "resume"   // go on: the phase that was paused begins again
	RolloutAbort    RolloutAction = "abort"    // give up, and roll back what was applied
	RolloutTakeBack RolloutAction = "rollback" // of a rollout that is done
)

// RolloutOrder is what an operator asks for, and why.
type RolloutOrder struct {
	Action RolloutAction `json:"action"`
	By     By            `json:"by"`

	// What an approval is of: the stage, from 1, and Asked of the rollout as it was looked at.
	// So one that comes twice, or late, approves nothing else.
	Stage int   `json:"stage,omitempty"`
	Asked int64 `json:"asked,omitempty"`
}

// Validate reports what is missing.
func (o RolloutOrder) Validate() error {
	if err := o.By.Validate(); err != nil {
		return err
	}
	if o.Action == RolloutApprove && (o.Stage < 1 || o.Asked < 1) {
		return fmt.Errorf("%w: an approval names its stage, from 1, and what was asked: stage is %d and asked is %d",
			ErrInvalid, o.Stage, o.Asked)
	}
	return nil
}

// Operate is an operator's transition. It answers, as Advance does, when the next one
// is due. An error wraps ErrInvalid or ErrConflict, and nothing has changed.
func (r *Rollout) Operate(o RolloutOrder, nowMs int64) (wait time.Duration, err error) {
	if err := o.Validate(); err != nil {
		return 0, err
	}
	moved := r.MovedMs
	r.MovedMs = nowMs
	if wait, err = r.operate(o, nowMs); err != nil {
		r.MovedMs = moved
		return wait, err
	}
	r.Trouble = ""
	return wait, nil
}

func (r *Rollout) operate(o RolloutOrder, nowMs int64) (time.Duration, error) {
	switch o.Action {
	case RolloutApprove:
		return r.approve(o, nowMs)
	case RolloutSuspend:
		return r.pause(o.By, nowMs)
	case RolloutResume:
		return r.resume(o.By, nowMs)
	case RolloutAbort:
		return r.abort(o.By, nowMs)
	case RolloutTakeBack:
		return r.takeBack(o.By, nowMs)
	}
	return 0, fmt.Errorf("%w: there is no action %q", ErrInvalid, o.Action)
}

func (r *Rollout) approve(o RolloutOrder, nowMs int64) (time.Duration, error) {
	if r.Phase != RolloutAwaiting || r.Paused != nil {
		return 0, r.conflict("nothing waits for an approval")
	}
	if o.Stage != r.Stage+1 || o.Asked != r.Asked {
		return 0, r.conflict(fmt.Sprintf("what waits is stage %d (asked %d), and the approval names stage %d (asked %d): "+
			"look at its status again",
			r.Stage+1, r.Asked, o.Stage, o.Asked))
	}
	r.Phase = RolloutMeasuring
	r.event(nowMs, o.By.Actor, "approve", fmt.Sprintf("stage %d: %s", r.Stage+1, o.By.Reason))
	return 0, nil
}

// pause stands still. What was measured and waited for is void: by the time somebody
// resumes, it says nothing any more. Guardrails hold all the same: what breaks one while the
// rollout is paused, or waits for an approval, is rolled back.
func (r *Rollout) pause(by By, nowMs int64) (time.Duration, error) {
	switch {
	case r.Phase.Over():
		return 0, r.conflict("it is over")
	case r.Phase == RolloutRollingBack:
		return 0, r.conflict("a rollback is seen through")
	case r.Paused != nil:
		return 0, r.conflict("resume or abort it")
	}
	r.Paused = &RolloutPause{By: by, AtMs: nowMs}
	r.event(nowMs, by.Actor, "pause", by.Reason)
	if len(r.Touched) == 0 {
		return -1, nil
	}
	return r.watchEvery(), nil
}

// Revive goes on with a rollout whose timer was lost, from where it stands.
func (r *Rollout) Revive(nowMs int64) (wait time.Duration) {
	r.MovedMs = nowMs
	r.event(nowMs, rolloutItself, "revive", "its timer was lost")
	return 0
}

// resume goes on. On a rollout that is not paused it only looks at once whether
// something is due.
func (r *Rollout) resume(by By, nowMs int64) (time.Duration, error) {
	if r.Phase.Over() {
		return 0, r.conflict("it is over")
	}
	if r.Paused != nil {
		r.Paused, r.BlindMs = nil, 0
		switch r.Phase {
		case RolloutMeasuring:
			r.Watch = slices.DeleteFunc(r.Watch, func(w RegionWatch) bool { return w.Stage == r.Stage })
			r.DueMs = 0
		case RolloutBaking:
			r.DueMs = 0
		case RolloutConverging:
			r.DueMs = nowMs + r.Spec.Plan.ApplyTimeoutMs
		}
	}
	r.event(nowMs, by.Actor, "resume", by.Reason)
	if r.Phase == RolloutAwaiting && len(r.Touched) == 0 {
		return -1, nil
	}
	return 0, nil
}

// abort gives up. Of a rollback it gives up nodes that have not followed in time: those may
// hang for ever, and until somebody says so no other rollout can start.
func (r *Rollout) abort(by By, nowMs int64) (time.Duration, error) {
	switch {
	case r.Phase == RolloutDone:
		return 0, r.conflict("take it back with rollback")
	case r.Phase == RolloutRollingBack && r.DueMs > 0 && nowMs >= r.DueMs:
		r.Why = fmt.Sprintf("%s; %s gave up waiting: %s; %s", r.Why, by.Actor, by.Reason, r.Waiting)
		return r.end(nowMs, RolloutAborted, by.Actor), nil
	case r.Phase == RolloutRollingBack:
		return 0, r.conflict("it is being rolled back; nodes that do not follow can be given up after apply_timeout_ms")
	case r.Phase.Over():
		return 0, r.conflict("nothing is left to abort")
	}
	return r.turn(nowMs, RolloutAborted, by.Actor, fmt.Sprintf("aborted by %s: %s", by.Actor, by.Reason)), nil
}

func (r *Rollout) takeBack(by By, nowMs int64) (time.Duration, error) {
	switch {
	case !r.Phase.Over():
		return 0, r.conflict("abort it, which rolls back too")
	case r.Phase != RolloutDone:
		return 0, r.conflict("there is nothing to roll back")
	}
	return r.turn(nowMs, RolloutRolledBack, by.Actor, fmt.Sprintf("rolled back by %s: %s", by.Actor, by.Reason)), nil
}

func (r *Rollout) conflict(what string) error {
	standing := string(r.Phase)
	if r.Paused != nil {
		standing += ", paused by " + r.Paused.Actor
	}
	return fmt.Errorf("%w: rollout %s is %s: %s", ErrConflict, r.ID, standing, what)
}

// RolloutSummary is a line of the list of rollouts.
type RolloutSummary struct {
	ID        string       `json:"id"`
	By        By           `json:"by"`
	StartedMs int64        `json:"started_ms"`
	EndedMs   int64        `json:"ended_ms,omitempty"`
	Phase     RolloutPhase `json:"phase"` // of one that is under way, as it was last told
	Why       string       `json:"why,omitempty"`
	Epoch     int64        `json:"epoch,omitempty"` // of the rollout when it was told; 0: not known
}

// Summary is the rollout's line.
func (r *Rollout) Summary() RolloutSummary {
	return RolloutSummary{ID: r.ID, By: r.By, StartedMs: r.StartedMs, EndedMs: r.EndedMs, Phase: r.Phase, Why: r.Why,
		Epoch: r.Epoch}
}

// cut shortens text to at most bytesMax bytes, at a rune's border.
func cut(text string, bytesMax int) string {
	if len(text) <= bytesMax {
		return text
	}
	text = text[:bytesMax]
	for !utf8.ValidString(text) {
		text = text[:len(text)-1]
	}
	return text
}
