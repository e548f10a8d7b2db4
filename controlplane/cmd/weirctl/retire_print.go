package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/weirhq/weir/controlplane/cmd/weirctl/format"
	"github.com/weirhq/weir/controlplane/internal/apiclient"
	controlv1 "github.com/weirhq/weir/shared/gen/proto/weir/control/v1"
)

// watchRetirement watches the newest retirement of a table.
func (c *call) watchRetirement(table string, every time.Duration) error {
	return c.watch(every, "retire status", func(ctx context.Context) (sight, error) {
		answer, err := apiclient.Ask(ctx, c.Retirements.RetirementStatus, &controlv1.RetirementStatusRequest{Table: table})
		if err != nil {
			return sight{}, err
		}
		r := answer.GetRetirement()
		return sight{retirementStanding(r), answer, r.GetEndedAtMs() > 0, retirementOutcome(r)}, nil
	})
}

// retirementOutcome returns an error unless the table is dropped.
func retirementOutcome(r *controlv1.Retirement) error {
	if r.GetPhase() == "dropped" {
		return nil
	}
	return &hinted{fmt.Errorf("the retirement of %s is %s", r.GetTable(), because(r.GetPhase(), r.GetWhy())), exitFailure,
		"What happened: weirctl retire history --events."}
}

// retirementStanding describes the state of a retirement in one line.
func retirementStanding(r *controlv1.Retirement) string {
	return because(r.GetPhase(), r.GetWhy()) + trouble(r)
}

// retirementNext are the next steps by phase.
var retirementNext = map[string]string{
	"awaiting_approval": "Approve the rename with: weirctl retire approve rename --reason TEXT",
	"renamed":           "If something needs it: weirctl retire abort --reason TEXT",
	"awaiting_final_approval": "Approve the drop, which cannot be undone, with: " +
		"weirctl retire approve drop --reason TEXT",
}

func (c *call) writeRetirement(w io.Writer, r *controlv1.Retirement) {
	_, _ = fmt.Fprintf(w, "retirement of %s, %s\n", format.Plain(r.GetTable()), format.Plain(retirementStanding(r)))
	t := format.NewTable(w)
	t.Row("started", fmt.Sprintf("%s by %s: %s", c.ago(r.GetStartedAtMs()), r.GetActor(), r.GetReason()))
	if at := r.GetEndedAtMs(); at > 0 {
		t.Row("ended", c.ago(at))
	} else if at := r.GetDueAtMs(); at > 0 {
		t.Row("due", c.in(at))
	}
	t.Row("other name", r.GetDated())
	t.Row("quiet, soak", format.Span(r.GetQuietMs())+", "+format.Span(r.GetSoakMs()))
	c.retirementApproval(t, "rename", r.GetRenameApproval())
	c.retirementApproval(t, "drop", r.GetDropApproval())
	t.Flush()
	_, _ = fmt.Fprintln(w)
	c.writeEvidence(w, r)
	c.writeApprovals(w, r.GetApprovals())
	if next := retirementNext[r.GetPhase()]; next != "" {
		if evidence := r.GetApprovals().GetEvidence(); evidence != "" {
			next = strings.Replace(next, "--reason", "--evidence "+format.Plain(evidence)+" --reason", 1)
		}
		_, _ = fmt.Fprintf(w, "\n%s\n", next)
	}
}

// showRetirement calls an RPC that returns a retirement, and prints it.
func showRetirement[Q, A any, P interface {
	*A
	GetRetirement() *controlv1.Retirement
}](c *call, rpc apiclient.RPC[Q, A], msg *Q) error {
	return show(c, rpc, msg, func(w io.Writer, answer *A) { c.writeRetirement(w, P(answer).GetRetirement()) })
}

func (c *call) retirementApproval(t format.Table, what string, a *controlv1.RetirementApproval) {
	if a != nil {
		t.Row(what+" approved", fmt.Sprintf("%s by %s: %s", c.ago(a.GetAtMs()), a.GetActor(), a.GetReason()))
	}
}

// writeEvidence prints the evidence for an approval.
func (c *call) writeEvidence(w io.Writer, r *controlv1.Retirement) {
	e := r.GetEvidence()
	t := format.NewTable(w)
	t.Row("EVIDENCE", "checked "+c.ago(e.GetAtMs()))
	lastWrite := "none since the start"
	if at := r.GetLastWriteAtMs(); at > 0 {
		lastWrite = c.ago(at)
	}
	t.Row("last write", lastWrite)
	t.Row("quiet for", format.Span(max(0, e.GetAtMs()-e.GetQuietSinceMs())))
	left := format.Digits(e.GetRows())
	if at := e.GetLastExpiryMs(); e.GetRows() > 0 && at > 0 {
		left += ", the last of which expires at " + format.Moment(at)
	}
	t.Row("rows left", left)
	t.Row("rows deleted", format.Digits(r.GetRowsDeleted()))
	health := e.GetHealthProblem()
	if health == "" {
		health = fmt.Sprintf("healthy in %s, %s, for %s", format.Plural(int64(e.GetRegions()), "region"),
			format.Plural(int64(e.GetNodes()), "node"), format.Span(max(0, e.GetAtMs()-e.GetHealthySinceMs())))
	}
	t.Row("counts", health)
	t.Flush()
}

func writeRetirements(w io.Writer, list *controlv1.ListRetirementsResponse) {
	format.List(w, "no retirement yet: see weirctl retire start --help",
		[]string{"STARTED", "BY", "REASON", "TOOK", "RESULT"}, list.GetRetirements(),
		func(t format.Table, r *controlv1.RetirementSummary) {
			t.Row(format.Moment(r.GetStartedAtMs()), r.GetActor(), r.GetReason(),
				took(r.GetStartedAtMs(), r.GetEndedAtMs()), because(r.GetPhase(), r.GetWhy()))
		})
}
