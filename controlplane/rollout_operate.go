package controlplane

import (
	"fmt"
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

// Operate is an operator's transition. It answers, as Advance does, when the next one
// is due. An error wraps ErrInvalid or ErrConflict, and nothing has changed.
func (r *Rollout) Operate(action RolloutAction, by By, nowMs int64) (wait time.Duration, err error) {
	if err := by.Validate(); err != nil {
		return 0, err
	}
	r.MovedMs = nowMs
	switch action {
	case RolloutApprove:
		return r.approve(by, nowMs)
	case RolloutSuspend:
		return r.pause(by, nowMs)
	case RolloutResume:
		return r.resume(by, nowMs)
	case RolloutAbort:
		return r.abort(by, nowMs)
	case RolloutTakeBack:
		return r.takeBack(by, nowMs)
	}
	return 0, fmt.Errorf("%w: there is no action %q", ErrInvalid, action)
}

func (r *Rollout) approve(by By, nowMs int64) (time.Duration, error) {
	if r.Phase != RolloutAwaiting || r.Paused != nil {
		return 0, r.conflict("nothing waits for an approval")
	}
	r.Phase = RolloutMeasuring
	r.event(nowMs, by.Actor, "approve", fmt.Sprintf("stage %d: %s", r.Stage+1, by.Reason))
	return 0, nil
}

// pause stands still. What was measured and waited for is void: by the time somebody
// resumes, it says nothing any more.
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
	return -1, nil
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
		case RolloutMeasuring, RolloutBaking:
			r.Sample, r.DueMs = nil, 0
		case RolloutConverging:
			r.DueMs = nowMs + r.Spec.Plan.ApplyTimeoutMs
		}
	}
	r.event(nowMs, by.Actor, "resume", by.Reason)
	return 0, nil
}

func (r *Rollout) abort(by By, nowMs int64) (time.Duration, error) {
	switch {
	case r.Phase == RolloutDone:
		return 0, r.conflict("take it back with rollback")
	case r.Phase.Over() || r.Phase == RolloutRollingBack:
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
}

// Summary is the rollout's line.
func (r *Rollout) Summary() RolloutSummary {
	return RolloutSummary{ID: r.ID, By: r.By, StartedMs: r.StartedMs, EndedMs: r.EndedMs, Phase: r.Phase, Why: r.Why}
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
