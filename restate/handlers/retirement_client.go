package handlers

import (
	"context"
	"fmt"

	restate "github.com/restatedev/sdk-go"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/retire"
)

// RetirementClient is a client of retirements for the operators' API. Its errors are those of Client, and can also wrap
// controlplane.ErrConflict or controlplane.ErrNotFound.
type RetirementClient struct{ *Client }

// Start begins a retirement. It is idempotent while a retirement with the same spec is under way.
func (c RetirementClient) Start(ctx context.Context, table string, spec retire.Spec,
	by controlplane.By) (retire.Retirement, error) {
	return askRetirement[RetirementStart, retire.Retirement](ctx, c.Client, table, "Start",
		RetirementStart{Spec: spec, By: by})
}

// ApproveRename approves the rename of the table.
func (c RetirementClient) ApproveRename(ctx context.Context, table string,
	o retire.Order) (retire.Retirement, error) {
	return askRetirement[RetirementApprove, retire.Retirement](ctx, c.Client, table, "Approve",
		RetirementApprove{Order: o})
}

// ApproveDrop approves the drop of the renamed table.
func (c RetirementClient) ApproveDrop(ctx context.Context, table string,
	o retire.Order) (retire.Retirement, error) {
	return askRetirement[RetirementApprove, retire.Retirement](ctx, c.Client, table, "Approve",
		RetirementApprove{Drop: true, Order: o})
}

// Abort gives up the retirement, and gives the table its name back.
func (c RetirementClient) Abort(ctx context.Context, table string,
	by controlplane.By) (retire.Retirement, error) {
	return askRetirement[controlplane.By, retire.Retirement](ctx, c.Client, table, "Abort", by)
}

// Ensure revives a retirement whose timer was lost.
func (c RetirementClient) Ensure(ctx context.Context, table string) (retire.Retirement, error) {
	return askRetirement[restate.Void, retire.Retirement](ctx, c.Client, table, "Ensure", restate.Void{})
}

// Status returns the state of a table's newest retirement.
func (c RetirementClient) Status(ctx context.Context, table string) (retire.Retirement, error) {
	r, err := askRetirement[restate.Void, retire.Retirement](ctx, c.Client, table, "Status", restate.Void{})
	if err == nil && r.ID == "" {
		err = fmt.Errorf("retirement: %w", neverRetired(table))
	}
	return r, err
}

// List returns a table's retirements, newest first.
func (c RetirementClient) List(ctx context.Context, table string) ([]retire.Summary, error) {
	return askRetirement[restate.Void, []retire.Summary](ctx, c.Client, table, "List", restate.Void{})
}

// askRetirement calls a handler of a table. It rejects tables that cannot be retired, because the name becomes part of
// a URL.
func askRetirement[I, O any](ctx context.Context, c *Client, table, handler string, in I) (out O, err error) {
	if err := retire.ValidateRetirable(table); err != nil {
		return out, err
	}
	if out, err = invoke[I, O](ctx, c, RetirementService, table, handler, in); err != nil {
		return out, fmt.Errorf("retirement: %w", c.classify(ctx, err))
	}
	return out, nil
}
