package progress

import (
	"cmp"
	"fmt"
	"io"

	"github.com/weirhq/weir/controlplane/cmd/weirctl/format"
	controlv1 "github.com/weirhq/weir/shared/gen/proto/weir/control/v1"
)

// railNames are the descriptions of guardrails.
var railNames = map[string]string{
	"errors_per_minute": "errors a node and minute", "rows_per_second": "MySQL rows a second",
	"degraded_share": "share without the origin", "denied_share_shift": "share denied",
	"convergence_ms": "convergence delay, ms", "latency_us": "decision latency, µs",
	"nodes_lost_share": "share of nodes lost", "restarts_per_hour": "restarts of a node an hour",
	"dropped_cost":             "cost dropped",
	"newly_denied_share":       "share newly denied",
	"newly_denied_callers":     "callers newly denied",
	"protected":                "protected newly denied",
	"rows_against_control":     "MySQL rows a decision, times the others'",
	"denied_against_control":   "share denied, above the others'",
	"allowed_against_control":  "share allowed, above the others'",
	"degraded_against_control": "share without the origin, above the others'",
	"errors_against_control":   "errors a node and minute, above the others'",
}

// WriteRails prints the figures of guardrails, once there are figures to compare. Each guardrail is shown for the
// region and node that is nearest to its bound.
func WriteRails(w io.Writer, r *controlv1.Rollout) {
	before, now := r.GetBaseline(), r.GetNow()
	if before.GetNodes() == 0 && now.GetNodes() == 0 && now.GetNodesLost() == 0 {
		return
	}
	_, _ = fmt.Fprintf(w, "\nstage %d: %s with heartbeats, %s before the stage, %s lost\n", r.GetStage(),
		format.Plural(int64(now.GetNodes()), "node"), format.Digits(int64(before.GetNodes())),
		format.Digits(int64(now.GetNodesLost())))
	t := format.NewTable(w)
	t.Row("GUARDRAIL", "BEFORE", "NOW", "BOUND", "MARGIN", "NEAREST TO IT")
	for _, rail := range r.GetRails() {
		t.Row(cmp.Or(railNames[rail.GetField()], rail.GetField()), format.Measured(rail.Before), format.Measured(rail.Now),
			railBound(rail), railMargin(rail), railPlace(rail))
	}
	t.Flush()
}

func railBound(rail *controlv1.RolloutRail) string {
	switch {
	case rail.Most == nil:
		return "-"
	case rail.Least != nil:
		return format.Measured(rail.Least) + " to " + format.Measured(rail.Most)
	}
	return format.Measured(rail.Most)
}

func railMargin(rail *controlv1.RolloutRail) string {
	switch {
	case rail.Margin == nil:
		return "-"
	case rail.GetMargin() < 0:
		return "broken"
	}
	if rail.Confidence != nil {
		return fmt.Sprintf("confidence %.2g that it is more", rail.GetConfidence())
	}
	return fmt.Sprintf("%.0f %%", 100*rail.GetMargin())
}

func railPlace(rail *controlv1.RolloutRail) string {
	if rail.GetNode() != "" {
		return rail.GetRegion() + ", node " + rail.GetNode()
	}
	return format.OrNone(rail.GetRegion())
}

// WriteQueries prints the values of the plan's queries.
func WriteQueries(w io.Writer, r *controlv1.Rollout) {
	if len(r.GetQueries()) == 0 {
		return
	}
	_, _ = fmt.Fprintln(w)
	t := format.NewTable(w)
	t.Row("QUERY", "REGION", "BEFORE", "NOW", "WANT", "")
	for _, q := range r.GetQueries() {
		t.Row(q.GetName(), format.OrNone(q.GetRegion()), format.Measured(q.Before), format.Measured(q.Now),
			q.GetBound(), q.GetProblem())
	}
	t.Flush()
}
