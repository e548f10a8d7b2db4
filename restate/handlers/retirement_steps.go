package handlers

import (
	"context"
	"errors"
	"fmt"
	"strings"

	restate "github.com/restatedev/sdk-go"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/access"
	"github.com/weirhq/weir/controlplane/cleanup"
	"github.com/weirhq/weir/controlplane/retire"
)

// durableRetirement is retire.RetirementSteps for one invocation.
type durableRetirement struct {
	ctx   restate.Context
	work  *retire.RetirementWork
	steps *stepper
	spec  retire.RetirementSpec

	// Of a step that waits for approvals: who reports whose count no more (nil: nobody), who approves, and the role.
	approvers access.Approvers
	approving []string
	needs     access.Role

	at int64 // the last result of NowMs
}

func (d *durableRetirement) NowMs() (at int64, err error) {
	d.at, err = now(d.ctx, d.steps, "now")
	return d.at, err
}

func (d *durableRetirement) Look(table, dated string) (retire.RetirementLook, error) {
	return step(d.ctx, d.steps, "look", func(ctx context.Context) (retire.RetirementLook, error) {
		look, err := d.work.Look(ctx, table, dated, d.spec)
		if err == nil && d.approvers != nil && len(d.approving) > 0 {
			look.Ended, err = d.approvers.Ended(ctx, d.approving, d.needs)
		}
		return look, err
	})
}

func (d *durableRetirement) Drain(table string, rows int) (cleanup.Batch, error) {
	return step(d.ctx, d.steps, "delete expired rows", func(ctx context.Context) (cleanup.Batch, error) {
		return d.work.Drain(ctx, table, rows)
	})
}

func (d *durableRetirement) Rename(table, from, to string, fence int64) (retire.TableNames, error) {
	return step(d.ctx, d.steps, "rename "+from, func(ctx context.Context) (retire.TableNames, error) {
		return d.work.Rename(ctx, table, from, to, fence)
	})
}

func (d *durableRetirement) Drop(table, dated string, fence int64) (retire.TableDrop, error) {
	return step(d.ctx, d.steps, "drop "+dated, func(ctx context.Context) (retire.TableDrop, error) {
		return d.work.Drop(ctx, table, dated, fence)
	})
}

func (d *durableRetirement) Newer(table string, saved int64) (string, error) {
	return step(d.ctx, d.steps, "look for a newer state", func(ctx context.Context) (string, error) {
		return d.work.Newer(ctx, table, saved)
	})
}

// Save returns a conflict as the step's answer, so that the step is not retried.
func (d *durableRetirement) Save(s controlplane.JobState) error {
	conflict, err := step(d.ctx, d.steps, fmt.Sprintf("save %d", s.Saved), func(ctx context.Context) (string, error) {
		err := d.work.Save(ctx, s)
		if errors.Is(err, controlplane.ErrConflict) {
			return err.Error(), nil
		}
		return "", err
	})
	if err == nil && conflict != "" {
		err = failed(fmt.Errorf("%w: %s", controlplane.ErrConflict,
			strings.TrimPrefix(conflict, controlplane.ErrConflict.Error()+": ")))
	}
	return err
}
