package retire

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/weirhq/weir/controlplane"
)

// RetirementSaves keeps a retirement in MySQL, beside Restate. Each step may be executed more than once.
type RetirementSaves interface {
	NowMs() (int64, error)
	// Newer returns the state of a table's retirement that was saved more often than that; empty: there is none.
	Newer(table string, saved int64) (state string, err error)
	// Save saves a state. The error wraps controlplane.ErrConflict if MySQL has a newer state, or another one with the
	// same number.
	Save(s controlplane.JobState) error
}

// Save saves the retirement to MySQL. It ends a transition, after [Retirement.Settle] and before anything follows from
// the transition.
func (r *Retirement) Save(steps RetirementSaves) error {
	r.Saved++
	state, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("write the state of the retirement of %s: %w", r.Table, err)
	}
	return steps.Save(controlplane.JobState{Name: controlplane.RetirementState(r.Table), Saved: r.Saved,
		State: string(state)})
}

// Restore replaces a document that is empty, or older than the one in MySQL, by that one: Restate has lost the
// retirement then, or was restored from a backup. The retirement goes on as after an outage, with a look.
func (r *Retirement) Restore(steps RetirementSaves, table string) (wait time.Duration, restored bool, err error) {
	state, err := steps.Newer(table, r.Saved)
	if err != nil || state == "" {
		return 0, false, err
	}
	var saved Retirement
	if err := json.Unmarshal([]byte(state), &saved); err != nil {
		return 0, false, fmt.Errorf("%w: read the state of the retirement of %s in MySQL: %w", controlplane.ErrConflict,
			table, err)
	}
	if err := saved.Check(); err != nil {
		return 0, false, err
	}
	nowMs, err := steps.NowMs()
	if err != nil {
		return 0, false, err
	}
	if r.Saved == 0 && r.ID != "" && r.Epoch > saved.Epoch { // a build that saves nothing has gone on with it
		often := saved.Saved
		saved = *r
		saved.Saved = often
	}
	saved.Epoch, saved.Trouble = max(saved.Epoch, r.Epoch), "" // timers of before are stale
	saved.AddEvent(nowMs, controlplane.Itself, "restore", "Restate had lost its state, or had an older one than MySQL")
	*r = saved
	if !r.UnderWay() {
		return -1, true, nil
	}
	return 0, true, nil
}

// Newer returns the state of a table's retirement that was saved more often than that; empty: there is none.
func (w *RetirementWork) Newer(ctx context.Context, table string, saved int64) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, retirementStepTimeout)
	defer cancel()
	s, err := w.store.JobState(ctx, controlplane.RetirementState(table))
	if err != nil || s.Saved <= saved {
		return "", err
	}
	return s.State, nil
}

// Save saves a state. The error wraps controlplane.ErrConflict if MySQL has a newer state, or another one with the same
// number.
func (w *RetirementWork) Save(ctx context.Context, s controlplane.JobState) error {
	ctx, cancel := context.WithTimeout(ctx, retirementStepTimeout)
	defer cancel()
	kept, err := w.store.SaveJobState(ctx, s)
	if err != nil {
		return err
	}
	if kept != s {
		return fmt.Errorf("%w: MySQL has a newer state of %s, which replaces this one within a minute: try again then",
			controlplane.ErrConflict, s.Name)
	}
	return nil
}
