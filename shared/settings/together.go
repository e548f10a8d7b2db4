package settings

import (
	"slices"
	"strings"

	"github.com/weirhq/weir/shared/estimate"
	"github.com/weirhq/weir/shared/window"
)

type space struct{ workspace, namespace string }

// checkTogether refuses what single items cannot show: an item that appears twice, a candidate that no
// node can judge, and patterns that a node would leave out.
func (d *Document) checkTogether(p *problems, at lines) {
	leaky := make(map[space]bool)
	first := make(map[Namespace]int)
	for i, n := range d.Namespaces {
		here := place{list: "namespaces", at: i, line: lineOf(at.namespaces, i)}
		name := Namespace{Workspace: n.Workspace, Namespace: n.Namespace}
		if earlier, twice := first[name]; twice {
			p.add(here, "repeats namespaces[%d]", earlier)
			continue
		}
		first[name] = i
		if knobs, _ := estimate.Parse(n.Estimate); n.Mode == "estimate" && knobs != nil && knobs.Leaky {
			leaky[space{n.Workspace, n.Namespace}] = true
		}
	}
	d.checkOverrides(p, at, leaky)
	d.checkPatterns(p, at)
}

func (d *Document) checkOverrides(p *problems, at lines, leaky map[space]bool) {
	first := make(map[Override]int, len(d.Overrides))
	for i, o := range d.Overrides {
		here := place{list: "overrides", at: i, line: lineOf(at.overrides, i)}
		name := Override{Workspace: o.Workspace, Namespace: o.Namespace, Pattern: o.Pattern}
		if earlier, twice := first[name]; twice {
			p.add(here, "repeats overrides[%d]", earlier)
			continue
		}
		first[name] = i
		if o.Candidate != 0 && leaky[space{o.Workspace, o.Namespace}] {
			p.add(here.of("candidate"), "is %d (0 in a namespace that estimates with a leaky drain: "+
				"what has drained depends on the limit)", o.Candidate)
		}
	}
}

// checkPatterns refuses patterns with several '*' for which a look-up has no room.
func (d *Document) checkPatterns(p *problems, at lines) {
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
		p.add(place{list: "overrides", at: i, field: "pattern", line: lineOf(at.overrides, i)},
			"is one of more than %d patterns with several '*' that begin alike", window.PatternsAlikeMax)
	}
}
