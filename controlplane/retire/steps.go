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

// Steps are the effects of a retirement. Each is a step of a journal with stepTimeout, and may be executed more than
// once. An attempt that was given up may still arrive. If a rename or drop arrives after an attempt with a higher
// fence, it does nothing.
type Steps struct {
	work      *Work
	journal   controlplane.Journal
	approvers access.Approvers
}

// On returns the steps of an invocation. approvers reports whose approvals no longer count; nil: all approvals count.
func (w *Work) On(j controlplane.Journal, approvers access.Approvers) Steps {
	return Steps{w, j, approvers}
}

// do executes a step with a timeout of stepTimeout.
func do[T any](s Steps, name string, step func(context.Context) (T, error)) (T, error) {
	return controlplane.Do(s.journal, name, controlplane.Within(stepTimeout, step))
}

// NowMs returns the time, in Unix ms.
func (s Steps) NowMs() (int64, error) { return controlplane.NowMs(s.journal) }

// Look returns the state of the table and the fleet. Look.Ended names the actors, among those who approve the waiting
// step and more, who may no longer approve it.
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

// drain deletes at most rows expired rows of the table.
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

// rename renames the table from one name to the other, if a table has the first name and none has the other. It returns
// which names exist afterwards.
func (s Steps) rename(table, from, to string, fence int64) (TableNames, error) {
	return do(s, "rename "+from, func(ctx context.Context) (TableNames, error) {
		return s.work.store.RenameTable(ctx, table, from, to, fence)
	})
}

// drop drops the dated table if it is empty and no table has the original name. It returns which names exist afterwards
// and, if the table was not dropped, the rows that it still has.
func (s Steps) drop(table, dated string, fence int64) (TableDrop, error) {
	return do(s, "drop "+dated, func(ctx context.Context) (TableDrop, error) {
		return s.work.store.DropTable(ctx, table, dated, fence)
	})
}

// newer returns the state of a table's retirement that was saved more often than saved; empty: there is none.
func (s Steps) newer(table string, saved int64) (string, error) {
	return do(s, "look for a newer state", func(ctx context.Context) (string, error) {
		state, err := s.work.store.JobState(ctx, controlplane.RetirementState(table))
		if err != nil || state.Saved <= saved {
			return "", err
		}
		return state.State, nil
	})
}

// save saves a state. The error wraps controlplane.ErrConflict if MySQL has a newer state, or a different state with
// the same number.
func (s Steps) save(state controlplane.JobState) error {
	return controlplane.DoSave(s.journal, state.Saved, stepTimeout, func(ctx context.Context) error {
		kept, err := s.work.store.SaveJobState(ctx, state)
		if err != nil {
			return err
		}
		if kept != state {
			return fmt.Errorf("%w: MySQL has a newer state of %s, which replaces this state within a minute: retry after that",
				controlplane.ErrConflict, state.Name)
		}
		return nil
	})
}
