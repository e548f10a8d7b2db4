package rollout

import (
	"fmt"
	"maps"
	"slices"

	"github.com/weirhq/weir/controlplane/internal/controltest"
	"github.com/weirhq/weir/controlplane/rollout/plan"
	"github.com/weirhq/weir/shared/settings"
)

// limitsStarts are starts whose first rollout changes limits: a stage with shadow, and the whole fleet.
var limitsStarts = func() []Start {
	all := starts(1)
	p := all[0].Spec.Plan
	p.Stages = []plan.Stage{{Regions: []string{"eu"}, BakeMs: 100, Shadow: true}, {All: true, BakeMs: 100, Approval: true}}
	p.Guardrails = bare()
	all[0] = Start{ID: "a", Spec: Spec{Limits: &limitsItems, Plan: p}, By: controltest.Ann}
	return all
}()

// subjectOf returns a text that tells the subjects of starts apart.
func subjectOf(s Spec) string {
	if s.Limits != nil {
		return "limits"
	}
	return s.Tuning[:14]
}

// edit changes or creates an override directly.
func (w *world) edit(pattern string) {
	to := settings.Override{Workspace: "acme", Namespace: "api", Pattern: pattern, Limit: 77}
	w.stored = *settings.Change{Overrides: []settings.OverrideChange{{After: &to}}}.Apply(&w.stored)
	edits := maps.Clone(w.edits)
	if edits == nil {
		edits = map[string]bool{}
	}
	edits[pattern] = true
	w.edits = edits
}

// limitOf returns the stored limit of a pattern, -1: none.
func (w *world) limitOf(pattern string) int64 {
	i := slices.IndexFunc(w.stored.Overrides, func(o settings.Override) bool {
		return o.Workspace == "acme" && o.Pattern == pattern
	})
	if i < 0 {
		return -1
	}
	return w.stored.Overrides[i].Limit
}

// "An edit is never overwritten."
func editsStay(w *world) string {
	for pattern := range w.edits {
		if is := w.limitOf(pattern); is != 77 {
			return fmt.Sprintf("the limit of %s was edited directly, and is %d", pattern, is)
		}
	}
	return ""
}

// "A rollout of limits that is done has stored every item, and any other outcome leaves every item as before", except
// items that were edited directly. No live node runs a trial.
func limitsAreSo(w *world, r *Rollout) string {
	want := map[string]int64{"u*": 10, "gone": 3, "new": -1}
	if r.Phase == Done {
		want = map[string]int64{"u*": 8, "gone": -1, "new": 7}
	}
	for pattern, limit := range want {
		if is := w.limitOf(pattern); !w.edits[pattern] && is != limit {
			return fmt.Sprintf("%s is %s, and the limit of %s is %d, not %d", r.ID, r.Phase, pattern, is, limit)
		}
	}
	for _, n := range w.nodes {
		judged := w.nowMs-n.seenMs <= liveMs && n.how != dead && n.movedMs < r.Clocks.OwnMs && r.Trials().scope().Has(n.region)
		if judged && w.triedBy(r.ID, n.trial) {
			return fmt.Sprintf("%s is %s, and node %s runs its trial %d", r.ID, r.Phase, n.id, n.trial)
		}
	}
	return ""
}
