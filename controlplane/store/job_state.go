package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/shared/gen/sql/controlplanedb"
)

var _ controlplane.JobStates = (*Store)(nil)

func (s jobs) JobState(ctx context.Context, name string) (controlplane.JobState, error) {
	state, err := jobState(ctx, s.queries, name)
	if err != nil {
		return state, fmt.Errorf("read the state of %s: %w", name, explain(err))
	}
	return state, nil
}

func jobState(ctx context.Context, q *queries, name string) (controlplane.JobState, error) {
	row, err := q.JobState(ctx, []byte(name))
	if errors.Is(err, sql.ErrNoRows) {
		return controlplane.JobState{Name: name}, nil
	}
	return controlplane.JobState{Name: name, Saved: int64(row.Saved), State: row.State}, err
}

func (s jobs) SaveJobState(ctx context.Context, state controlplane.JobState) (controlplane.JobState, error) {
	var kept controlplane.JobState
	err := s.inTransaction(ctx, func(q *queries) (err error) {
		if err := q.JobStateSave(ctx, controlplanedb.JobStateSaveParams{Name: []byte(state.Name),
			Saved: uint64(state.Saved), State: state.State}); err != nil {
			return err
		}
		kept, err = jobState(ctx, q, state.Name)
		return err
	})
	if err != nil {
		return kept, fmt.Errorf("save the state of %s: %w", state.Name, err)
	}
	return kept, nil
}
