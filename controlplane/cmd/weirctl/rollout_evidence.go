package main

import (
	"fmt"
	"io"
	"slices"

	"github.com/weirhq/weir/controlplane/cmd/weirctl/format"
	"github.com/weirhq/weir/controlplane/cmd/weirctl/plan"
	"github.com/weirhq/weir/controlplane/internal/limitchange"
	controlv1 "github.com/weirhq/weir/shared/gen/proto/weir/control/v1"
)

// What status prints of a rollout of limits at most. -o json has all of it.
const (
	itemsShown      = 20
	namespacesShown = 20
)

// writeLimits prints the change of a rollout of limits.
func writeLimits(w io.Writer, change *controlv1.LimitsChange) {
	lines := plan.Words.Lines(limitchange.Of(change))
	_, _ = fmt.Fprintln(w)
	for _, line := range lines[:min(len(lines), itemsShown)] {
		format.Head(w, "%s", format.Plain(line.String()))
	}
	writeRest(w, len(lines)-itemsShown)
}

func writeRest(w io.Writer, more int) {
	if more > 0 {
		format.Head(w, "and %s more; -o json has all", format.Digits(int64(more)))
	}
}

// writeEvidence prints, for each namespace, the decisions that both limits judged, and the callers most affected.
func writeEvidence(w io.Writer, e *controlv1.LimitsEvidence) {
	_, _ = fmt.Fprintln(w)
	if e.GetNodes() == 0 {
		format.Head(w, "no evidence yet: nodes report it when a stage has measured its baseline and begun its trial")
		return
	}
	if e.GetJudged() == 0 {
		format.Head(w, "evidence of %s: no decision yet about keys whose limit changes", format.Plural(int64(e.GetNodes()),
			"node"))
		return
	}
	format.Head(w, "evidence of %s: %s newly denied, and %s about protected callers",
		format.Plural(int64(e.GetNodes()), "node"), format.Plural(e.GetCallers(), "caller"),
		format.Plural(e.GetProtected(), "decision"))
	t := format.NewTable(w)
	t.Row("NAMESPACE", "JUDGED", "DENIED BEFORE", "DENIED AFTER", "NEWLY DENIED", "SHARE")
	for _, n := range e.GetNamespaces()[:min(len(e.GetNamespaces()), namespacesShown)] {
		t.Row(figures(n.GetWorkspace()+"/"+n.GetNamespace(), n)...)
	}
	if len(e.GetNamespaces()) != 1 {
		t.Row(figures("all", e)...)
	}
	t.Flush()
	writeRest(w, len(e.GetNamespaces())-namespacesShown)
	if len(e.GetTop()) == 0 {
		return
	}
	_, _ = fmt.Fprintln(w)
	t = format.NewTable(w)
	t.Row("CALLER NEWLY DENIED OF LATE", "NEW LIMIT", "DENIED", "PROTECTED")
	for _, c := range e.GetTop() {
		t.Row(fmt.Sprintf("%s/%s/%s", c.GetWorkspace(), c.GetNamespace(), c.GetIdentifier()),
			plan.Words.Limit(c.GetLimit())+" in "+format.Span(c.GetDurationMs()), format.Digits(c.GetNewlyDenied()),
			format.Yes(c.GetProtected()))
	}
	t.Flush()
}

// figures is a row of the evidence.
func figures(name string, of interface {
	GetJudged() int64
	GetDeniedBefore() int64
	GetDeniedAfter() int64
	GetNewlyDenied() int64
}) []string {
	share := "-"
	if of.GetJudged() > 0 {
		share = fmt.Sprintf("%.2f %%", 100*float64(of.GetNewlyDenied())/float64(of.GetJudged()))
	}
	return []string{name, format.Digits(of.GetJudged()), format.Digits(of.GetDeniedBefore()),
		format.Digits(of.GetDeniedAfter()), format.Digits(of.GetNewlyDenied()), share}
}

// writeStages prints the stages. Only those of a rollout of limits have a mode.
func writeStages(w io.Writer, r *controlv1.Rollout) {
	const mode = 3
	t := format.NewTable(w)
	row := func(cells ...string) {
		if r.GetLimits() == nil {
			cells = slices.Delete(cells, mode, mode+1)
		}
		t.Row(cells...)
	}
	row("STAGE", "REGIONS", "BAKE", "MODE", "APPROVAL", "STATE")
	for i, s := range r.GetStages() {
		decides := "enforce"
		if s.GetShadow() {
			decides = "shadow"
		}
		row(fmt.Sprint(i+1), regions(s), format.Span(s.GetBakeMs()), decides, format.Yes(s.GetApproval()), stageState(r, s))
	}
	t.Flush()
}

// stageState returns the state of a stage. After a rollback no stage is active, and none waits.
func stageState(r *controlv1.Rollout, s *controlv1.RolloutProgress) string {
	switch {
	case r.GetEndedAtMs() == 0 || r.GetPhase() == "done":
		return s.GetState()
	case s.GetState() == "waiting":
		return "not begun"
	}
	return "ended"
}
