package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/weirhq/weir/controlplane/cmd/weirctl/format"
	"github.com/weirhq/weir/controlplane/cmd/weirctl/progress"
	"github.com/weirhq/weir/controlplane/internal/apiclient"
	controlv1 "github.com/weirhq/weir/shared/gen/proto/weir/control/v1"
)

// watchRollout watches a rollout, or the newest rollout if id is empty.
func (c *call) watchRollout(id string, every time.Duration) error {
	return c.watch(every, "rollout status", func(ctx context.Context) (sight, error) {
		answer, err := apiclient.Ask(ctx, c.Rollouts.RolloutStatus, &controlv1.RolloutStatusRequest{Id: id})
		if err != nil {
			return sight{}, noneYet(id, err)
		}
		r := answer.GetRollout()
		id = r.GetId() // stays with this rollout if another one starts
		return sight{standing(r), answer, r.GetEndedAtMs() > 0, outcome(r)}, nil
	})
}

// outcome returns an error unless the rollout is done.
func outcome(r *controlv1.Rollout) error {
	if r.GetPhase() == "done" {
		return nil
	}
	what := "What happened: weirctl rollout history " + format.Plain(r.GetId()) + "."
	if r.GetPhase() == "rolled_back" {
		what = "No live node runs it any more. " + what
	}
	if r.GetUnknown() != "" {
		what = "Not known: " + format.Plain(r.GetUnknown()) + ". " + what
	}
	return &hinted{fmt.Errorf("rollout %s is %s", r.GetId(), because(r.GetPhase(), r.GetWhy())), exitFailure, what}
}

// standing describes the state of a rollout in one line.
func standing(r *controlv1.Rollout) string {
	var b strings.Builder
	back := r.GetPhase() == "rolling_back" // why names the stage at fault
	if r.GetEndedAtMs() == 0 && !back {
		_, _ = fmt.Fprintf(&b, "stage %d of %d: ", r.GetStage(), len(r.GetStages()))
	}
	if by := r.GetPausedBy(); by != "" {
		_, _ = fmt.Fprintf(&b, "%s, paused by %s: %s", words(r.GetPhase()), by, r.GetPausedReason())
		if r.GetWhy() != "" {
			b.WriteString(": " + r.GetWhy())
		}
	} else if back && r.GetWaiting() != "" {
		b.WriteString(words(r.GetPhase()))
	} else {
		b.WriteString(because(r.GetPhase(), r.GetWhy()))
	}
	return b.String() + trouble(r)
}

// trouble describes the reason for which a rollout or a retirement waits, and its problem. The text follows the phase.
func trouble(r interface {
	GetWaiting() string
	GetTrouble() string
}) (text string) {
	if r.GetWaiting() != "" {
		text = ": " + r.GetWaiting()
	}
	if r.GetTrouble() != "" {
		text += ": trouble, tried again: " + r.GetTrouble()
	}
	return text
}

func (c *call) writeRollout(w io.Writer, r *controlv1.Rollout) {
	format.Headline(w, fmt.Sprintf("rollout %s, %s", r.GetId(), standing(r)))
	t := format.NewTable(w)
	t.Row("started", fmt.Sprintf("%s by %s: %s", c.ago(r.GetStartedAtMs()), r.GetActor(), r.GetReason()))
	if at := r.GetEndedAtMs(); at > 0 {
		t.Row("ended", c.ago(at))
	} else if at := r.GetDueAtMs(); at > 0 && r.GetPausedBy() == "" {
		t.Row("due", c.in(at))
	}
	if r.GetPhase() == "rolling_back" && r.GetWaiting() != "" {
		t.Long(100, "why", r.GetWhy())
	}
	if r.GetUnknown() != "" {
		t.Long(100, "not known", r.GetUnknown())
	}
	if parts := progress.Parts(r); parts != "" {
		t.Long(100, "on trial", parts)
	}
	limits := r.GetLimits()
	if limits == nil {
		t.Long(100, "tuning", fields.Replace(r.GetTuning()))
	} else {
		items := len(limits.GetNamespaces()) + len(limits.GetOverrides())
		t.Row("limits", format.Plural(int64(items), "item")+" of the settings")
	}
	t.Flush()
	if limits != nil {
		progress.WriteLimits(w, limits)
	}
	_, _ = fmt.Fprintln(w)
	progress.WriteStages(w, r)
	if limits != nil {
		progress.WriteEvidence(w, r.GetEvidence())
	}
	progress.WriteRails(w, r)
	progress.WriteQueries(w, r)
	switch {
	case r.GetPhase() == "awaiting_approval":
		c.writeApprovals(w, r.GetApprovals())
		_, _ = fmt.Fprintf(w, "\nApprove with: weirctl rollout approve %s --stage %d --asked %d --evidence %s "+
			"--reason TEXT\n", format.Plain(r.GetId()), r.GetStage(), r.GetAsked(), format.Plain(r.GetApprovals().GetEvidence()))
	case r.GetPausedBy() != "":
		_, _ = fmt.Fprintf(w, "\nResume with: weirctl rollout resume %s --reason TEXT\n", format.Plain(r.GetId()))
	}
}

// writeApprovals prints the approvals of a step that needs several people, and how many are missing.
func (c *call) writeApprovals(w io.Writer, a *controlv1.Approvals) {
	if a.GetApprovers() <= 1 {
		return
	}
	missing := int64(a.GetApprovers()) - int64(len(a.GetGiven()))
	_, _ = fmt.Fprintf(w, "\n%d of %s, and %d more by other people\n", len(a.GetGiven()),
		format.Plural(int64(a.GetApprovers()), "approval"), missing)
	if len(a.GetGiven()) == 0 {
		return
	}
	t := format.NewTable(w)
	t.Row("APPROVED BY", "WHEN", "COUNTS", "WHY")
	for _, g := range a.GetGiven() {
		t.Long(80, g.GetActor(), c.ago(g.GetAtMs()), "until "+format.Moment(g.GetExpiresAtMs()), g.GetReason())
	}
	t.Flush()
}

// fields converts a flat JSON document to text.
var fields = strings.NewReplacer("{", "", "}", "", `"`, "", ":", " ", ",", ", ")

func writeRollouts(w io.Writer, list *controlv1.ListRolloutsResponse) {
	format.List(w, "no rollout yet: see weirctl rollout start --help",
		[]string{"ID", "STARTED", "BY", "REASON", "TOOK", "RESULT"}, list.GetRollouts(),
		func(t format.Table, r *controlv1.RolloutSummary) {
			t.Long(60, r.GetId(), format.Moment(r.GetStartedAtMs()), r.GetActor(), r.GetReason(),
				took(r.GetStartedAtMs(), r.GetEndedAtMs()), because(r.GetPhase(), r.GetWhy()))
		})
}

func took(startedMs, endedMs int64) string {
	if endedMs == 0 {
		return "-"
	}
	return format.Span(endedMs - startedMs)
}

// writeEvents prints the history of a rollout or a retirement.
func writeEvents[E interface {
	GetAtMs() int64
	GetActor() string
	GetWhat() string
	GetText() string
}](w io.Writer, events []E) {
	t := format.NewTable(w)
	t.Row("AT", "BY", "WHAT", "")
	for _, e := range events {
		t.Long(80, format.Moment(e.GetAtMs()), e.GetActor(), words(e.GetWhat()), e.GetText())
	}
	t.Flush()
}
