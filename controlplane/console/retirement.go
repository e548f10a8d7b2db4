package console

import (
	"context"
	"net/http"
	"time"

	"github.com/weirhq/weir/controlplane/internal/apiclient"
	controlv1 "github.com/weirhq/weir/shared/gen/proto/weir/control/v1"
)

// retirementView describes the retirement of the table that is no longer needed.
type retirementView struct {
	*controlv1.Retirement
	None    bool   // there has been no retirement
	Problem string // why its status cannot be read
	Words   string
	Over    bool
	// Startable reports whether a retirement can begin: none is under way, and the last one has not dropped the table.
	Startable bool
	Due       time.Duration
	Steps     []retirementStep
	Can       []can
	Quorum    quorumForm // of the form that starts a retirement
}

// retirementStep is a step from observed to dropped. State is done, active or waiting.
type retirementStep struct{ Name, State string }

// retirementPhases are the phases in order, each with its description.
var retirementPhases = []struct{ Phase, Step, Words string }{
	{"observing", "observe", "Watches for writes: for the quiet time nothing may write the table, and counts must be " +
		"healthy in every region."},
	{"draining", "drain", "Deletes expired rows in batches. Other rows stay."},
	{"awaiting_approval", "approve", "Waits for a person to look at the evidence and approve the rename."},
	{"renaming", "rename", "Renames the table."},
	{"renamed", "soak", "Soaks under its new name: the table can get its old name back until it is dropped."},
	{"awaiting_final_approval", "approve the drop",
		"Waits for an admin to approve the drop, which cannot be undone."},
	{"dropping", "drop", "Drops the table."},
}

func (c jobPages) retirement(ctx context.Context) retirementView {
	found, err := apiclient.Ask(ctx, c.backend.Retirements.RetirementStatus, &controlv1.RetirementStatusRequest{})
	switch {
	case err != nil && status(err) == http.StatusNotFound:
		return retirementView{None: true, Startable: true, Quorum: firstQuorum}
	case err != nil:
		return retirementView{Problem: apiclient.Words(err)}
	}
	return describeRetirement(found.GetRetirement(), time.Now())
}

func describeRetirement(r *controlv1.Retirement, now time.Time) retirementView {
	v := retirementView{Retirement: r, Over: r.GetEndedAtMs() > 0, Quorum: firstQuorum}
	v.Startable = v.Over && r.GetPhase() != "dropped"
	if due := r.GetDueAtMs(); due > 0 && !v.Over {
		v.Due = max(0, time.UnixMilli(due).Sub(now).Round(time.Second))
	}
	state := "done"
	for _, p := range retirementPhases {
		step := retirementStep{p.Step, state}
		if p.Phase == r.GetPhase() {
			step.State, state, v.Words = "active", "waiting", p.Words
		}
		v.Steps = append(v.Steps, step)
	}
	switch phase := r.GetPhase(); phase {
	case "dropped":
		v.Words = "The table is gone."
	case "aborted", "restoring":
		v.Words = "Aborted: the table has its name back, or gets it now."
		for i := range v.Steps {
			v.Steps[i].State = "waiting"
		}
	case "awaiting_approval":
		v.Can = append(v.Can, can{"rename", "Approve the rename", "The table gets the name " + r.GetDated() +
			". It can get its old name back until it is dropped."})
	case "awaiting_final_approval":
		v.Can = append(v.Can, can{"drop", "!Approve the drop",
			"The table is dropped, and cannot come back. This requires the role admin."})
	}
	if !v.Over && r.GetPhase() != "dropping" && r.GetPhase() != "restoring" {
		v.Can = append(v.Can, can{"abort", "!Abort", "The table keeps its name, or gets it back."})
	}
	return v
}

func (c jobPages) operateRetirement(w http.ResponseWriter, r *http.Request, v *viewer) {
	actor, reason := c.by(w, r, v)
	do, evidence := r.PostForm.Get("do"), r.PostForm.Get("evidence") // the evidence that the page showed
	start := &controlv1.StartRetirementRequest{Actor: actor, Reason: reason}
	if do == "start" {
		var err error
		if start.Approvers, start.ApprovalTtlMs, err = readQuorum(r.PostForm).request(); err != nil {
			c.showJobs(w, r, v, http.StatusBadRequest, err.Error())
			return
		}
	}
	c.operate(w, r, v, "retirement", map[string]order{
		"start": asking(c.backend.Retirements.StartRetirement, start),
		"rename": asking(c.backend.Retirements.ApproveRename,
			&controlv1.ApproveRenameRequest{Actor: actor, Reason: reason, Evidence: evidence}),
		"drop": asking(c.backend.Retirements.ApproveDrop,
			&controlv1.ApproveDropRequest{Actor: actor, Reason: reason, Evidence: evidence}),
		"abort": asking(c.backend.Retirements.AbortRetirement,
			&controlv1.AbortRetirementRequest{Actor: actor, Reason: reason}),
	})
}
