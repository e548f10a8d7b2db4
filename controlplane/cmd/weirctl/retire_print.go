package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"connectrpc.com/connect"

	controlv1 "github.com/weirhq/weir/shared/gen/proto/weir/control/v1"
)

// watchRetirement watches the newest retirement of a table.
func (c *call) watchRetirement(table string, every time.Duration) error {
	return c.watch(every, "retire status", func(ctx context.Context) (sight, error) {
		answer, err := c.retirements.RetirementStatus(ctx,
			connect.NewRequest(&controlv1.RetirementStatusRequest{Table: table}))
		if err != nil {
			return sight{}, err
		}
		r := answer.Msg.GetRetirement()
		return sight{retirementStanding(r), answer.Msg, r.GetEndedAtMs() > 0, retirementOutcome(r)}, nil
	})
}

// retirementOutcome fails the command unless the table is dropped.
func retirementOutcome(r *controlv1.Retirement) error {
	if r.GetPhase() == "dropped" {
		return nil
	}
	return &hinted{fmt.Errorf("the retirement of %s is %s", r.GetTable(), because(r.GetPhase(), r.GetWhy())), exitFailure,
		"What happened: weirctl retire history --events."}
}

// retirementStanding is the state of a retirement in one line.
func retirementStanding(r *controlv1.Retirement) string {
	var b strings.Builder
	b.WriteString(because(r.GetPhase(), r.GetWhy()))
	more := []string{r.GetWaiting(), ""}
	if r.GetTrouble() != "" {
		more[1] = "trouble, tried again: " + r.GetTrouble()
	}
	for _, text := range more {
		if text != "" {
			b.WriteString(": " + text)
		}
	}
	return b.String()
}

// retirementNext is what an operator can do now.
var retirementNext = map[string]string{
	"awaiting_approval": "Approve the rename with: weirctl retire approve rename --reason TEXT",
	"renamed":           "If something needs it: weirctl retire abort --reason TEXT",
	"awaiting_final_approval": "Approve the drop, which cannot be undone, with: " +
		"weirctl retire approve drop --reason TEXT",
}

func (c *call) writeRetirement(w io.Writer, r *controlv1.Retirement) {
	_, _ = fmt.Fprintf(w, "retirement of %s, %s\n", plain(r.GetTable()), plain(retirementStanding(r)))
	t := newTable(w)
	t.row("started", fmt.Sprintf("%s by %s: %s", c.ago(r.GetStartedAtMs()), r.GetActor(), r.GetReason()))
	if at := r.GetEndedAtMs(); at > 0 {
		t.row("ended", c.ago(at))
	} else if at := r.GetDueAtMs(); at > 0 {
		t.row("due", c.in(at))
	}
	t.row("other name", r.GetDated())
	t.row("quiet, soak", span(r.GetQuietMs())+", "+span(r.GetSoakMs()))
	c.retirementApproval(t, "rename", r.GetRenameApproval())
	c.retirementApproval(t, "drop", r.GetDropApproval())
	t.flush()
	_, _ = fmt.Fprintln(w)
	c.writeEvidence(w, r)
	c.writeApprovals(w, r.GetApprovals())
	if next := retirementNext[r.GetPhase()]; next != "" {
		if evidence := r.GetApprovals().GetEvidence(); evidence != "" {
			next = strings.Replace(next, "--reason", "--evidence "+plain(evidence)+" --reason", 1)
		}
		_, _ = fmt.Fprintf(w, "\n%s\n", next)
	}
}

func (c *call) retirementApproval(t table, what string, a *controlv1.RetirementApproval) {
	if a != nil {
		t.row(what+" approved", fmt.Sprintf("%s by %s: %s", c.ago(a.GetAtMs()), a.GetActor(), a.GetReason()))
	}
}

// writeEvidence shows what an approval is of.
func (c *call) writeEvidence(w io.Writer, r *controlv1.Retirement) {
	e := r.GetEvidence()
	t := newTable(w)
	t.row("EVIDENCE", "checked "+c.ago(e.GetAtMs()))
	lastWrite := "none since the start"
	if at := r.GetLastWriteAtMs(); at > 0 {
		lastWrite = c.ago(at)
	}
	t.row("last write", lastWrite)
	t.row("quiet for", span(max(0, e.GetAtMs()-e.GetQuietSinceMs())))
	left := digits(e.GetRows())
	if at := e.GetLastExpiryMs(); e.GetRows() > 0 && at > 0 {
		left += ", the last of which expires at " + moment(at)
	}
	t.row("rows left", left)
	t.row("rows deleted", digits(r.GetRowsDeleted()))
	health := e.GetHealthProblem()
	if health == "" {
		health = fmt.Sprintf("healthy in %s, %s, for %s", plural(int64(e.GetRegions()), "region"),
			plural(int64(e.GetNodes()), "node"), span(max(0, e.GetAtMs()-e.GetHealthySinceMs())))
	}
	t.row("counts", health)
	t.flush()
}

func writeRetirements(w io.Writer, list *controlv1.ListRetirementsResponse) {
	if len(list.GetRetirements()) == 0 {
		_, _ = fmt.Fprintln(w, "no retirement yet: see weirctl retire start --help")
		return
	}
	t := newTable(w)
	t.row("STARTED", "BY", "REASON", "TOOK", "RESULT")
	for _, r := range list.GetRetirements() {
		took := "-"
		if at := r.GetEndedAtMs(); at > 0 {
			took = span(at - r.GetStartedAtMs())
		}
		t.row(moment(r.GetStartedAtMs()), r.GetActor(), r.GetReason(), took, because(r.GetPhase(), r.GetWhy()))
	}
	t.flush()
}

func writeRetirementEvents(w io.Writer, r *controlv1.Retirement) {
	t := newTable(w)
	t.row("AT", "BY", "WHAT", "")
	for _, e := range r.GetEvents() {
		t.row(moment(e.GetAtMs()), e.GetActor(), words(e.GetWhat()), e.GetText())
	}
	t.flush()
}
