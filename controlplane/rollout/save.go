package rollout

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/weirhq/weir/controlplane"
)

// Row is a rollout's row in MySQL.
type Row struct {
	ID        string
	By        controlplane.By // the actor that started it
	StartedMs int64
	Saved     int64 // number of saves, including this save
	Phase     Phase
	State     string // the Rollout, JSON
}

// standing returns a digest of the fields that must not be lost: regions that were touched, and operators' orders. It
// leaves out figures of nodes and times to wait until, because an outage does not make them useless: they are measured
// again.
func (r *Rollout) standing() string {
	return controlplane.Digest(struct {
		Phase, Wanted      Phase
		Stage              int
		Asked              int64
		Approvals          []controlplane.Approval
		Paused             *Paused
		Touched            []Touched
		Keeps, TrialsEnded bool
		Shadows            []Touched `json:",omitempty"`
		Kept, Reverted     bool      `json:",omitempty"`
	}{r.Phase, r.Wanted, r.Stage, r.Asked, r.Approvals, r.Paused, r.Touched, r.Keeps, r.TrialsEnded, r.Shadows, r.Kept,
		r.Reverted})
}

// Save writes the rollout's state to MySQL, unless MySQL already has it. It must be the end of a transition, after
// [Rollout.Settle]: the next transition's effects are recorded before they are made.
func (r *Rollout) Save(steps Steps) error {
	standing := r.standing()
	if standing == r.Standing {
		return nil
	}
	r.Saved, r.Standing = r.Saved+1, standing
	state, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("write the state of rollout %s: %w", r.ID, err)
	}
	return steps.save(Row{ID: r.ID, By: r.By, StartedMs: r.StartedMs, Saved: r.Saved, Phase: r.Phase,
		State: string(state)})
}

// SaveAgain saves even an unchanged state, because MySQL may have been restored from an older copy.
func (r *Rollout) SaveAgain(steps Steps) error {
	r.Standing = ""
	return r.Save(steps)
}

// Restore begins a transition: if MySQL has a newer document of the rollout, it replaces r, which may be empty. That
// happens if Restate has lost the rollout or was restored from a backup, or if the last transition was killed after it
// was saved. wait has the meaning of [Rollout.Advance].
//
// The rollout goes on as after an outage: its waits begin again, and if a trial has ended meanwhile, it rolls back.
func (r *Rollout) Restore(steps Steps, id string) (wait time.Duration, restored bool, err error) {
	state, err := steps.newer(id, r.Saved)
	if err != nil || state == "" {
		return 0, false, err
	}
	var saved Rollout
	if err := json.Unmarshal([]byte(state), &saved); err != nil {
		return 0, false, fmt.Errorf("%w: read the state of rollout %s in MySQL: %w", controlplane.ErrConflict, id, err)
	}
	if err := saved.Check(); err != nil {
		return 0, false, err
	}
	nowMs, err := steps.nowMs()
	if err != nil {
		return 0, false, err
	}
	if r.Saved == 0 && r.Epoch > saved.Epoch { // an older build advanced it since, and does not save
		often := saved.Saved
		saved = *r
		saved.Saved = often
	}
	saved.Upgrade()
	saved.MovedMs, saved.Epoch = nowMs, max(saved.Epoch, r.Epoch) // earlier timers are stale
	saved.AddEvent(nowMs, controlplane.Itself, "restore", "Restate had lost its state, or its state differed from MySQL's")
	saved.restart(nowMs)
	*r = saved
	if !r.ticks() {
		return -1, true, nil
	}
	return 0, true, nil
}
