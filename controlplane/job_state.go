package controlplane

import (
	"context"
	"encoding/json"
	"fmt"
)

// JobState is how a job stands, as MySQL keeps it beside Restate. Restate can lose its data, or be restored from a
// backup; what an operator has ordered must not be lost with it.
type JobState struct {
	Name  string `json:"name"`  // see PauseState and RetirementState
	Saved int64  `json:"saved"` // of two states of a name, the one with the higher number counts; 0: there is none
	State string `json:"state"` // JSON
}

// JobStates keeps states of jobs. All methods may be called at once.
type JobStates interface {
	// JobState returns the state of a name; without one its Saved is 0.
	JobState(ctx context.Context, name string) (JobState, error)
	// SaveJobState saves a state, unless there is one with the same number or a higher one, and returns the one that is
	// there afterwards.
	SaveJobState(ctx context.Context, s JobState) (JobState, error)
}

// PauseState is the name of the state that holds a job's newest PauseOrder.
func PauseState(job string) string { return "pause/" + job }

// RetirementState is the name of the state that holds a table's newest Retirement.
func RetirementState(table string) string { return "retirement/" + table }

// PauseOrder is the newest order of an operator to pause a job or to resume it. The zero value is none.
type PauseOrder struct {
	By
	OrderedMs int64 `json:"ordered_ms"` // Unix ms by the clock of weir-control, and later than the order before
	Paused    bool  `json:"paused"`     // else it was resumed

	// Generation is the job's chain after the order. A build that saves no orders leaves a later one.
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

// SavePause saves an order about a job, unless a later one is there.
func SavePause(ctx context.Context, states JobStates, job string, o PauseOrder) error {
	state, err := json.Marshal(o)
	if err != nil {
		return fmt.Errorf("write the newest order about job %s: %w", job, err)
	}
	_, err = states.SaveJobState(ctx, JobState{Name: PauseState(job), Saved: o.OrderedMs, State: string(state)})
	return err
}
