package settings

import (
	"slices"
	"strings"

	"github.com/weirhq/weir/shared/estimate"
	"github.com/weirhq/weir/shared/settings/internal/problems"
	"github.com/weirhq/weir/shared/window"
)

type space struct{ workspace, namespace string }

// checkTogether returns errors that single items cannot show: an item that appears twice, a candidate that no node can
// judge, and patterns that a node would leave out.
func (d *Document) checkTogether(p *problems.List, at Lines) {
	leaky := make(map[space]bool)
	namespaces, overrides := make(map[space]int), make(map[Override]int, len(d.Overrides))
	for i, n := range d.Namespaces {
		here := problems.Place{List: "namespaces", At: i, Line: lineOf(at.Namespaces, i)}
		name := space{n.Workspace, n.Namespace}
		if knobs, _ := estimate.Parse(n.Estimate); once(p, namespaces, name, here) {
			leaky[name] = n.Mode == "estimate" && knobs != nil && knobs.Leaky
		}
	}
	for i, o := range d.Overrides {
		here, in := problems.Place{List: "overrides", At: i, Line: lineOf(at.Overrides, i)}, space{o.Workspace, o.Namespace}
		name := Override{Workspace: o.Workspace, Namespace: o.Namespace, Pattern: o.Pattern}
		if once(p, overrides, name, here) && o.Candidate != 0 && leaky[in] {
			p.Add(here.Of("candidate"), "is %d (0 in a namespace that estimates with a leaky drain: "+
				"what has drained depends on the limit)", o.Candidate)
		}
	}
	d.checkPatterns(p, at)
}

// once reports whether a list has no earlier item of that name.
func once[K comparable](p *problems.List, first map[K]int, name K, here problems.Place) bool {
	earlier, twice := first[name]
	if twice {
		p.Add(here, "repeats %s[%d]", here.List, earlier)
		return false
	}
	first[name] = here.At
	return true
}

// checkPatterns rejects patterns with several '*' for which a look-up has no room.
func (d *Document) checkPatterns(p *problems.List, at Lines) {
	several := make(map[space][]int)
	for i, o := range d.Overrides {
		if strings.Count(o.Pattern, "*") > 1 {
			name := space{o.Workspace, o.Namespace}
			several[name] = append(several[name], i)
		}
	}
	var leftOut []int
	for _, places := range several {
		slices.SortFunc(places, func(a, b int) int {
			return window.ComparePatterns(d.Overrides[a].Pattern, d.Overrides[b].Pattern)
		})
		patterns := make([]string, len(places))
		for i, at := range places {
			patterns[i] = d.Overrides[at].Pattern
		}
		_, left := window.NewPatterns(patterns)
		for _, i := range left {
			leftOut = append(leftOut, places[i])
		}
	}
	slices.Sort(leftOut)
	for _, i := range leftOut {
		p.Add(problems.Place{List: "overrides", At: i, Field: "pattern", Line: lineOf(at.Overrides, i)},
			"is one of more than %d patterns with several '*' that begin alike", window.PatternsAlikeMax)
	}
}
