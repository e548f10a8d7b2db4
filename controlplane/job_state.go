package controlplane

import (
	"context"
	"encoding/json"
	"fmt"
)

// JobState is the state of a job, saved in MySQL in addition to Restate. If Restate loses its data, or is restored from
// a backup, the orders of operators are still there.
type JobState struct {
	Name  string `json:"name"`  // see PauseState and RetirementState
	Saved int64  `json:"saved"` // number of the save: the state with the highest counts; 0: nothing is saved
	State string `json:"state"` // JSON
}

// JobStates saves states of jobs. All methods may be called concurrently.
type JobStates interface {
	// JobState returns the state with a name. If there is none, its Saved is 0.
	JobState(ctx context.Context, name string) (JobState, error)
	// SaveJobState saves a state unless there is a state with the same or a higher number. It returns the state that is
	// then stored.
	SaveJobState(ctx context.Context, s JobState) (JobState, error)
}

// PauseState returns the name of the state that holds a job's newest PauseOrder.
func PauseState(job string) string { return "pause/" + job }

// RetirementState returns the name of the state that holds a table's newest Retirement.
func RetirementState(table string) string { return "retirement/" + table }

// PauseOrder is an operator's newest order to pause or resume a job. The zero value means that
// there is none.
type PauseOrder struct {
	By
	OrderedMs int64 `json:"ordered_ms"` // Unix ms by weir-control's clock, and later than the previous order
	Paused    bool  `json:"paused"`     // false: the job was resumed

	// Generation is the number of the job's chain of runs after the order. If it is lower than the job's own number, a
	// build that saves no orders has given a later order.
	Generation int64 `json:"generation,omitempty"`
}

// LoadPause returns the newest order about a job.
func LoadPause(ctx context.Context, states JobStates, job string) (o PauseOrder, err error) {
	saved, err := states.JobState(ctx, PauseState(job))
	if err != nil || saved.Saved == 0 {
		return o, err
	}
	if err := json.Unmarshal([]byte(saved.State), &o); err != nil {
		return o, fmt.Errorf("read the newest order about job %s: %w", job, err)
	}
	o.OrderedMs = saved.Saved
	return o, nil
}

// SavePause saves an order about a job, unless a later order is saved already.
func SavePause(ctx context.Context, states JobStates, job string, o PauseOrder) error {
	state, err := json.Marshal(o)
	if err != nil {
		return fmt.Errorf("write the newest order about job %s: %w", job, err)
	}
	_, err = states.SaveJobState(ctx, JobState{Name: PauseState(job), Saved: o.OrderedMs, State: string(state)})
	return err
}
