package handlers

import (
	"context"
	"fmt"

	restate "github.com/restatedev/sdk-go"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/retire"
)

// RetirementClient is retirements for the operators' API. Errors are those of Client, and
// wrap controlplane.ErrConflict or controlplane.ErrNotFound besides.
type RetirementClient struct{ *Client }

// Start begins a retirement. The same once more, while it is under way, changes nothing.
func (c RetirementClient) Start(ctx context.Context, table string, spec retire.Spec,
	by controlplane.By) (retire.Retirement, error) {
	return askRetirement[RetirementStart, retire.Retirement](ctx, c.Client, table, "Start",
		RetirementStart{Spec: spec, By: by})
}

// ApproveRename lets the table be renamed.
func (c RetirementClient) ApproveRename(ctx context.Context, table string,
	o retire.Order) (retire.Retirement, error) {
	return askRetirement[RetirementApprove, retire.Retirement](ctx, c.Client, table, "Approve",
		RetirementApprove{Order: o})
}

// ApproveDrop lets the renamed table be dropped.
func (c RetirementClient) ApproveDrop(ctx context.Context, table string,
	o retire.Order) (retire.Retirement, error) {
	return askRetirement[RetirementApprove, retire.Retirement](ctx, c.Client, table, "Approve",
		RetirementApprove{Drop: true, Order: o})
}

// Abort gives up, and gives the table its name back.
func (c RetirementClient) Abort(ctx context.Context, table string,
	by controlplane.By) (retire.Retirement, error) {
	return askRetirement[controlplane.By, retire.Retirement](ctx, c.Client, table, "Abort", by)
}

// Ensure revives a retirement whose timer was lost.
func (c RetirementClient) Ensure(ctx context.Context, table string) (retire.Retirement, error) {
	return askRetirement[restate.Void, retire.Retirement](ctx, c.Client, table, "Ensure", restate.Void{})
}

// Status is how a table's newest retirement stands.
func (c RetirementClient) Status(ctx context.Context, table string) (retire.Retirement, error) {
	r, err := askRetirement[restate.Void, retire.Retirement](ctx, c.Client, table, "Status", restate.Void{})
	if err == nil && r.ID == "" {
		err = fmt.Errorf("retirement: %w", neverRetired(table))
	}
	return r, err
}

// List is a table's retirements, newest first.
func (c RetirementClient) List(ctx context.Context, table string) ([]retire.Summary, error) {
	return askRetirement[restate.Void, []retire.Summary](ctx, c.Client, table, "List", restate.Void{})
}

// askRetirement calls a handler of a table that can be retired: it becomes part of a URL.
func askRetirement[I, O any](ctx context.Context, c *Client, table, handler string, in I) (out O, err error) {
	if err := retire.ValidateRetirable(table); err != nil {
		return out, err
	}
	if out, err = invoke[I, O](ctx, c, RetirementService, table, handler, in); err != nil {
		return out, fmt.Errorf("retirement: %w", c.classify(ctx, err))
	}
	return out, nil
}
