package retire

import (
	"context"
	"fmt"
	"time"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/access"
	"github.com/weirhq/weir/controlplane/cleanup"
	"github.com/weirhq/weir/controlplane/fleet"
)

// Steps are the effects of a retirement, each a step of a journal, with stepTimeout. Each may be executed
// more than once, and an attempt that was given up may still come, unless its fence is lower than that of an attempt
// that came before: then it does nothing.
type Steps struct {
	work      *Work
	journal   controlplane.Journal
	approvers access.Approvers
}

// On returns the steps of an invocation. approvers reports whose approvals no longer count; nil: all approvals count.
func (w *Work) On(j controlplane.Journal, approvers access.Approvers) Steps {
	return Steps{w, j, approvers}
}

// do executes a step within its timeout.
func do[T any](s Steps, name string, step func(context.Context) (T, error)) (T, error) {
	return controlplane.Do(s.journal, name, controlplane.Within(stepTimeout, step))
}

// NowMs returns the time, in Unix ms.
func (s Steps) NowMs() (int64, error) { return controlplane.NowMs(s.journal) }

// Look returns how the table and the fleet are, and which of the actors who approve the waiting step, and of more, may
// not do so any more.
func (s Steps) Look(r *Retirement, more ...string) (Look, error) {
	approving, needs := r.approving(more...), r.Needs()
	return do(s, "look", func(ctx context.Context) (look Look, err error) {
		if look.Table, err = s.work.store.TableFigures(ctx, r.Table); err != nil {
			return look, err
		}
		if look.Dated, err = s.work.store.TableFigures(ctx, r.Dated); err != nil {
			return look, err
		}
		fleet, err := fleet.List(ctx, s.work.store, s.work.liveWithin)
		if err != nil {
			return look, err
		}
		look.Health = JudgeCounts(fleet, r.Spec.HealthWithinMs)
		if s.approvers != nil && len(approving) > 0 {
			look.Ended, err = s.approvers.Ended(ctx, approving, needs)
		}
		return look, err
	})
}

// drain deletes at most rows rows of the table that have expired.
func (s Steps) drain(table string, rows int) (cleanup.Batch, error) {
	return do(s, "delete expired rows", func(ctx context.Context) (batch cleanup.Batch, err error) {
		if table != Blocklist {
			return batch, fmt.Errorf("%w: rows of %s are not deleted", controlplane.ErrInvalid, table)
		}
		now, err := s.work.store.Now(ctx)
		if err != nil {
			return batch, err
		}
		start := time.Now()
		deleted, err := s.work.store.DeleteExpiredBlocklist(ctx, now.Add(-s.work.grace), rows)
		if err != nil {
			return batch, err
		}
		s.work.metrics.RowsRetired(deleted)
		return cleanup.Batch{Rows: deleted, Took: time.Since(start)}, nil
	})
}

// rename gives the table named from the name to, if there is one of the first name and none of the other, and tells
// which are there afterwards.
func (s Steps) rename(table, from, to string, fence int64) (TableNames, error) {
	return do(s, "rename "+from, func(ctx context.Context) (TableNames, error) {
		return s.work.store.RenameTable(ctx, table, from, to, fence)
	})
}

// drop drops the dated table if it is empty and nothing has the table's name, and tells how many rows it still has
// otherwise and which names are there afterwards.
func (s Steps) drop(table, dated string, fence int64) (TableDrop, error) {
	return do(s, "drop "+dated, func(ctx context.Context) (TableDrop, error) {
		return s.work.store.DropTable(ctx, table, dated, fence)
	})
}

// newer returns the state of a table's retirement that was saved more often than that; empty: there is none.
func (s Steps) newer(table string, saved int64) (string, error) {
	return do(s, "look for a newer state", func(ctx context.Context) (string, error) {
		state, err := s.work.store.JobState(ctx, controlplane.RetirementState(table))
		if err != nil || state.Saved <= saved {
			return "", err
		}
		return state.State, nil
	})
}

// save saves a state. The error wraps controlplane.ErrConflict if MySQL has a newer state, or another one with the same
// number.
func (s Steps) save(state controlplane.JobState) error {
	return controlplane.DoSave(s.journal, state.Saved, stepTimeout, func(ctx context.Context) error {
		kept, err := s.work.store.SaveJobState(ctx, state)
		if err != nil {
			return err
		}
		if kept != state {
			return fmt.Errorf("%w: MySQL has a newer state of %s, which replaces this one within a minute: try again then",
				controlplane.ErrConflict, state.Name)
		}
		return nil
	})
}
