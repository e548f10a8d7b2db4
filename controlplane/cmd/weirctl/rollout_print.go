package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"connectrpc.com/connect"

	controlv1 "github.com/weirhq/weir/shared/gen/proto/weir/control/v1"
)

// watchRollout watches a rollout, the newest where none is named.
func (c *call) watchRollout(id string, every time.Duration) error {
	return c.watch(every, "rollout status", func(ctx context.Context) (sight, error) {
		answer, err := c.rollouts.RolloutStatus(ctx, connect.NewRequest(&controlv1.RolloutStatusRequest{Id: id}))
		if err != nil {
			return sight{}, noneYet(id, err)
		}
		r := answer.Msg.GetRollout()
		id = r.GetId() // whatever begins meanwhile
		return sight{standing(r), answer.Msg, r.GetEndedAtMs() > 0, outcome(r)}, nil
	})
}

// outcome fails the command unless the rollout is done.
func outcome(r *controlv1.Rollout) error {
	if r.GetPhase() == "done" {
		return nil
	}
	what := "What happened: weirctl rollout history " + plain(r.GetId()) + "."
	if r.GetPhase() == "rolled_back" {
		what = "No live node runs it any more. " + what
	}
	return &told{fmt.Errorf("rollout %s is %s", r.GetId(), because(r.GetPhase(), r.GetWhy())), exitFailure, what}
}

// standing is where a rollout stands, in a line.
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
	for _, more := range []string{r.GetWaiting(), trouble(r)} {
		if more != "" {
			b.WriteString(": " + more)
		}
	}
	return b.String()
}

func trouble(r *controlv1.Rollout) string {
	if r.GetTrouble() == "" {
		return ""
	}
	return "trouble, tried again: " + r.GetTrouble()
}

func (c *call) writeRollout(w io.Writer, r *controlv1.Rollout) {
	_, _ = fmt.Fprintf(w, "rollout %s, %s\n", plain(r.GetId()), plain(standing(r)))
	t := newTable(w)
	t.row("started", fmt.Sprintf("%s by %s: %s", c.ago(r.GetStartedAtMs()), r.GetActor(), r.GetReason()))
	if at := r.GetEndedAtMs(); at > 0 {
		t.row("ended", c.ago(at))
	} else if at := r.GetDueAtMs(); at > 0 && r.GetPausedBy() == "" {
		t.row("due", c.in(at))
	}
	if r.GetPhase() == "rolling_back" && r.GetWaiting() != "" {
		t.long(100, "why", r.GetWhy())
	}
	t.long(100, "tuning", fields.Replace(r.GetTuning()))
	t.flush()

	_, _ = fmt.Fprintln(w)
	t = newTable(w)
	t.row("STAGE", "REGIONS", "BAKE", "APPROVAL", "STATE")
	for i, s := range r.GetStages() {
		t.row(fmt.Sprint(i+1), regions(s), span(s.GetBakeMs()), yes(s.GetApproval()), s.GetState())
	}
	t.flush()
	c.writeRates(w, r)
	writeQueries(w, r)
	switch {
	case r.GetPhase() == "awaiting_approval":
		_, _ = fmt.Fprintf(w, "\nLet it go on with: weirctl rollout approve %s --stage %d --asked %d --reason TEXT\n",
			plain(r.GetId()), r.GetStage(), r.GetAsked())
	case r.GetPausedBy() != "":
		_, _ = fmt.Fprintf(w, "\nLet it go on with: weirctl rollout resume %s --reason TEXT\n", plain(r.GetId()))
	}
}

// writeRates shows what guardrails compare, once there is something to compare.
func (c *call) writeRates(w io.Writer, r *controlv1.Rollout) {
	before, now := r.GetBaseline(), r.GetNow()
	if before.GetNodes() == 0 && now.GetNodes() == 0 && now.GetNodesLost() == 0 {
		return
	}
	_, _ = fmt.Fprintln(w)
	t := newTable(w)
	t.row("WORST REGION OF STAGE "+fmt.Sprint(r.GetStage()), "BEFORE", "NOW")
	t.row("nodes heard of", fmt.Sprint(before.GetNodes()), fmt.Sprint(now.GetNodes()))
	t.row("nodes lost", fmt.Sprint(before.GetNodesLost()), fmt.Sprint(now.GetNodesLost()))
	for _, f := range []struct {
		name        string
		before, now *float64
	}{
		{"errors a node and minute", before.ErrorsPerMinute, now.ErrorsPerMinute},
		{"MySQL rows a second", before.RowsPerSecond, now.RowsPerSecond},
		{"share denied", before.DeniedShare, now.DeniedShare},
		{"share without the origin", before.DegradedShare, now.DegradedShare},
		{"convergence delay, ms", before.ConvergenceMs, now.ConvergenceMs},
		{"decision latency, µs", before.LatencyUs, now.LatencyUs},
	} {
		t.row(f.name, measured(f.before), measured(f.now))
	}
	t.flush()
}

// writeQueries shows what the queries of the plan answered.
func writeQueries(w io.Writer, r *controlv1.Rollout) {
	if len(r.GetQueries()) == 0 {
		return
	}
	_, _ = fmt.Fprintln(w)
	t := newTable(w)
	t.row("QUERY", "REGION", "BEFORE", "NOW", "WANT", "")
	for _, q := range r.GetQueries() {
		region := q.GetRegion()
		if region == "" {
			region = "-"
		}
		t.row(q.GetName(), region, measured(q.Before), measured(q.Now), q.GetBound(), q.GetProblem())
	}
	t.flush()
}

func measured(v *float64) string {
	if v == nil {
		return "-"
	}
	if *v >= 1000 {
		return digits(int64(math.Round(*v)))
	}
	return fmt.Sprintf("%.4g", *v)
}

func regions(s *controlv1.RolloutProgress) string {
	names := strings.Join(s.GetRegions(), ", ")
	switch {
	case s.GetRest() && names != "":
		return names + " and regions to come"
	case s.GetRest():
		return "regions to come"
	}
	return names
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "-"
}

// fields turns a flat document into a sentence.
var fields = strings.NewReplacer("{", "", "}", "", `"`, "", ":", " ", ",", ", ")

func writeRollouts(w io.Writer, list *controlv1.ListRolloutsResponse) {
	if len(list.GetRollouts()) == 0 {
		_, _ = fmt.Fprintln(w, "there has been no rollout yet: see weirctl rollout start --help")
		return
	}
	t := newTable(w)
	t.row("ID", "STARTED", "BY", "REASON", "TOOK", "RESULT")
	for _, r := range list.GetRollouts() {
		took := "-"
		if at := r.GetEndedAtMs(); at > 0 {
			took = span(at - r.GetStartedAtMs())
		}
		t.long(60, r.GetId(), moment(r.GetStartedAtMs()), r.GetActor(), r.GetReason(), took,
			because(r.GetPhase(), r.GetWhy()))
	}
	t.flush()
}

func writeEvents(w io.Writer, r *controlv1.Rollout) {
	t := newTable(w)
	t.row("AT", "BY", "WHAT", "")
	for _, e := range r.GetEvents() {
		t.row(moment(e.GetAtMs()), e.GetActor(), words(e.GetWhat()), e.GetText())
	}
	t.flush()
}
