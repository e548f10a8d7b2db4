package main

import (
	"fmt"
	"io"
	"time"

	"connectrpc.com/connect"

	controlv1 "github.com/weirhq/weir/shared/gen/proto/weir/control/v1"
)

// ofTable is the table that a command is about.
type ofTable struct {
	Table string `default:"ratelimit_blocklist" placeholder:"NAME" help:"The table; there is one that can be retired: ${default}."`
}

type retireStart struct {
	ofTable
	Quiet        time.Duration `default:"24h" help:"How long the table must be unwritten, and counts healthy in every region, before rows are deleted (100ms to 2160h)."`
	Soak         time.Duration `default:"168h" help:"How long the table is there under its other name before it may be dropped (100ms to 2160h)."`
	HealthWithin time.Duration `default:"2m" help:"How old the last round of news of a region's relay may be (1s to 1h)."`
	BatchRows    int64         `default:"1000" help:"Most rows of one DELETE (1 to 50000)."`
	Watch        bool          `help:"Watch it until it is over, as status --watch does."`
	by
}

// Run starts a retirement.
func (r retireStart) Run(c *call) error {
	actor, err := c.actor(r.Actor)
	if err != nil {
		return err
	}
	quiet, soak, within := r.Quiet.Milliseconds(), r.Soak.Milliseconds(), r.HealthWithin.Milliseconds()
	answer, err := c.retirements.StartRetirement(c.ctx, connect.NewRequest(&controlv1.StartRetirementRequest{
		Actor: actor, Reason: r.Reason, Table: r.Table, QuietMs: &quiet, SoakMs: &soak, HealthWithinMs: &within,
		BatchRows: &r.BatchRows,
	}))
	if err != nil {
		return err
	}
	if r.Watch {
		return c.watchRetirement(r.Table, watchEvery)
	}
	return c.print(answer.Msg, func(w io.Writer) {
		c.writeRetirement(w, answer.Msg.GetRetirement())
		_, _ = fmt.Fprint(w, "\nFollow it with: weirctl retire status --watch\n")
	})
}

type retireStatus struct {
	ofTable
	Watch bool          `help:"Look again and again, until it is over."`
	Every time.Duration `default:"2s" help:"Time between two looks of --watch."`
}

// Run shows a retirement.
func (r retireStatus) Run(c *call) error {
	if r.Watch {
		return c.watchRetirement(r.Table, max(r.Every, 10*time.Millisecond))
	}
	answer, err := c.retirements.RetirementStatus(c.ctx,
		connect.NewRequest(&controlv1.RetirementStatusRequest{Table: r.Table}))
	if err != nil {
		return err
	}
	return c.print(answer.Msg, func(w io.Writer) { c.writeRetirement(w, answer.Msg.GetRetirement()) })
}

// retireApprove names what it approves: the same command once more must not approve the
// other.
type retireApprove struct {
	What string `arg:"" enum:"rename,drop" help:"What is to happen: rename or drop."`
	ofTable
	by
}

// Run approves.
func (r retireApprove) Run(c *call) error {
	actor, err := c.actor(r.Actor)
	if err != nil {
		return err
	}
	if r.What == "drop" {
		answer, err := c.retirements.ApproveDrop(c.ctx,
			connect.NewRequest(&controlv1.ApproveDropRequest{Actor: actor, Reason: r.Reason, Table: r.Table}))
		if err != nil {
			return err
		}
		return c.print(answer.Msg, func(w io.Writer) { c.writeRetirement(w, answer.Msg.GetRetirement()) })
	}
	answer, err := c.retirements.ApproveRename(c.ctx,
		connect.NewRequest(&controlv1.ApproveRenameRequest{Actor: actor, Reason: r.Reason, Table: r.Table}))
	if err != nil {
		return err
	}
	return c.print(answer.Msg, func(w io.Writer) { c.writeRetirement(w, answer.Msg.GetRetirement()) })
}

type retireAbort struct {
	ofTable
	by
}

// Run aborts.
func (r retireAbort) Run(c *call) error {
	actor, err := c.actor(r.Actor)
	if err != nil {
		return err
	}
	answer, err := c.retirements.AbortRetirement(c.ctx,
		connect.NewRequest(&controlv1.AbortRetirementRequest{Actor: actor, Reason: r.Reason, Table: r.Table}))
	if err != nil {
		return err
	}
	return c.print(answer.Msg, func(w io.Writer) { c.writeRetirement(w, answer.Msg.GetRetirement()) })
}

type retireHistory struct {
	ofTable
	Events bool `help:"What happened in the newest one."`
}

// Run lists retirements, or what happened in the newest.
func (r retireHistory) Run(c *call) error {
	if r.Events {
		answer, err := c.retirements.RetirementStatus(c.ctx,
			connect.NewRequest(&controlv1.RetirementStatusRequest{Table: r.Table}))
		if err != nil {
			return err
		}
		return c.print(answer.Msg, func(w io.Writer) { writeRetirementEvents(w, answer.Msg.GetRetirement()) })
	}
	answer, err := c.retirements.ListRetirements(c.ctx,
		connect.NewRequest(&controlv1.ListRetirementsRequest{Table: r.Table}))
	if err != nil {
		return err
	}
	return c.print(answer.Msg, func(w io.Writer) { writeRetirements(w, answer.Msg) })
}
