package main

import (
	"cmp"
	"fmt"
	"io"
	"time"

	"github.com/weirhq/weir/controlplane/internal/apiclient"
	controlv1 "github.com/weirhq/weir/shared/gen/proto/weir/control/v1"
)

// ofTable is the flag for the table of a command.
type ofTable struct {
	Table string `default:"ratelimit_blocklist" placeholder:"NAME" help:"The table. Only ${default} can be retired."`
}

type retireStart struct {
	ofTable
	Quiet        time.Duration `default:"24h" help:"How long nothing may write the table, and counts must be healthy in every region, before rows are deleted (100ms to 2160h)."`
	Soak         time.Duration `default:"168h" help:"How long the renamed table is kept before it may be dropped (100ms to 2160h)."`
	HealthWithin time.Duration `default:"2m" help:"How old the last round of a region's relay may be (1s to 1h)."`
	BatchRows    int64         `default:"1000" help:"Most rows of one DELETE (1 to 50000)."`
	Approvers    int32         `default:"1" help:"How many different people must approve the rename, and the drop (1 to 10). You may be one of them."`
	ApprovalTTL  time.Duration `name:"approval-ttl" default:"24h" help:"How long an approval is valid (1s to 720h)."`
	Watch        bool          `help:"Follow it until it is over, as status --watch does."`
	by
}

func (r retireStart) Run(c *call) error {
	answer, err := apiclient.Ask(c.ctx, c.Retirements.StartRetirement, &controlv1.StartRetirementRequest{
		Actor: r.Actor, Reason: r.Reason, Table: r.Table, QuietMs: new(r.Quiet.Milliseconds()),
		SoakMs: new(r.Soak.Milliseconds()), HealthWithinMs: new(r.HealthWithin.Milliseconds()), BatchRows: &r.BatchRows,
		Approvers: &r.Approvers, ApprovalTtlMs: new(r.ApprovalTTL.Milliseconds()),
	})
	if err != nil {
		return err
	}
	if r.Watch {
		return c.watchRetirement(r.Table, watchEvery)
	}
	return c.print(answer, func(w io.Writer) {
		c.writeRetirement(w, answer.GetRetirement())
		_, _ = fmt.Fprint(w, "\nFollow it with: weirctl retire status --watch\n")
	})
}

type retireStatus struct {
	ofTable
	Watch bool          `help:"Follow it until it is over."`
	Every time.Duration `default:"2s" help:"Time between two updates of --watch."`
}

func (r retireStatus) Run(c *call) error {
	if r.Watch {
		return c.watchRetirement(r.Table, max(r.Every, 10*time.Millisecond))
	}
	return showRetirement(c, c.Retirements.RetirementStatus, &controlv1.RetirementStatusRequest{Table: r.Table})
}

// retireApprove requires the name of the step, so that a repeated command does not approve the other step.
type retireApprove struct {
	What     string `arg:"" enum:"rename,drop" help:"The step to approve: rename or drop."`
	Evidence string `placeholder:"HASH" help:"The evidence that status showed; default: the evidence that it shows now."`
	ofTable
	by
}

func (r retireApprove) Run(c *call) error {
	evidence := r.Evidence
	if evidence == "" {
		answer, err := apiclient.Ask(c.ctx, c.Retirements.RetirementStatus,
			&controlv1.RetirementStatusRequest{Table: r.Table})
		if err != nil {
			return err
		}
		// if the retirement does not wait, the API's error describes its phase
		evidence = cmp.Or(answer.GetRetirement().GetApprovals().GetEvidence(), "none")
	}
	if r.What == "drop" {
		return showRetirement(c, c.Retirements.ApproveDrop, &controlv1.ApproveDropRequest{Actor: r.Actor, Reason: r.Reason,
			Table: r.Table, Evidence: evidence})
	}
	return showRetirement(c, c.Retirements.ApproveRename, &controlv1.ApproveRenameRequest{Actor: r.Actor,
		Reason: r.Reason, Table: r.Table, Evidence: evidence})
}

type retireAbort struct {
	ofTable
	by
}

func (r retireAbort) Run(c *call) error {
	return showRetirement(c, c.Retirements.AbortRetirement, &controlv1.AbortRetirementRequest{Actor: r.Actor,
		Reason: r.Reason, Table: r.Table})
}

type retireHistory struct {
	ofTable
	Events bool `help:"Show the events of the newest retirement."`
}

func (r retireHistory) Run(c *call) error {
	if r.Events {
		return show(c, c.Retirements.RetirementStatus, &controlv1.RetirementStatusRequest{Table: r.Table},
			func(w io.Writer, a *controlv1.RetirementStatusResponse) {
				writeEvents(w, a.GetRetirement().GetEvents())
			})
	}
	return show(c, c.Retirements.ListRetirements, &controlv1.ListRetirementsRequest{Table: r.Table}, writeRetirements)
}
