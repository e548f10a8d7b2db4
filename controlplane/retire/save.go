package retire

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/weirhq/weir/controlplane"
)

// Save saves the retirement to MySQL. It must be the end of a transition, after [Retirement.Settle] and before any
// effect of the transition.
func (r *Retirement) Save(steps Steps) error {
	r.Saved++
	state, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("write the state of the retirement of %s: %w", r.Table, err)
	}
	return steps.save(controlplane.JobState{Name: controlplane.RetirementState(r.Table), Saved: r.Saved,
		State: string(state)})
}

// Restore replaces a document that is empty, or older than MySQL's, by MySQL's. That happens if Restate has lost the
// retirement or was restored from a backup. The retirement goes on as after an outage, with a look. wait has the
// meaning of Advance; the transition is settled.
func (r *Retirement) Restore(steps Steps, table string) (wait time.Duration, restored bool, err error) {
	state, err := steps.newer(table, r.Saved)
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
	if r.Saved == 0 && r.ID != "" && r.Epoch > saved.Epoch { // a build without saves advanced it since
		often := saved.Saved
		saved = *r
		saved.Saved = often
	}
	saved.Epoch, saved.Trouble = max(saved.Epoch, r.Epoch), "" // earlier timers are stale
	saved.AddEvent(nowMs, controlplane.Itself, "restore", "Restate had lost its state, or had an older state than MySQL")
	*r = saved
	if !r.UnderWay() {
		wait = -1
	}
	r.Settle(nowMs, wait)
	return wait, true, nil
}
