// Package progress prints the parts of a rollout: its change, its stages, the evidence of new limits, and the figures
// of its guardrails and queries.
package progress

import (
	"fmt"
	"io"

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

// WriteLimits prints the change of a rollout of limits.
func WriteLimits(w io.Writer, change *controlv1.LimitsChange) {
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

// WriteEvidence prints, for each namespace, the decisions that both limits judged, and the callers most affected.
func WriteEvidence(w io.Writer, e *controlv1.LimitsEvidence) {
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
