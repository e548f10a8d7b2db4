package guard

import (
	"cmp"
	"fmt"
	"time"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/queries"
	"github.com/weirhq/weir/controlplane/sequential"
)

// Undecided names a guardrail that cannot be judged yet and the data that is missing; empty: there is none.
func (j *Judge) Undecided() string {
	var few []string
	for i := range j.Watch {
		w := &j.Watch[i]
		if beyond := w.beyond(j.Stages[w.Stage].Borne()); beyond != "" {
			return beyond
		}
		few = append(few, w.few()...)
	}
	g := j.bounds()
	if len(few) > 0 && g.counts() {
		return fmt.Sprintf("heartbeats in fewer than %d parts of the bake: %s", sequential.Least, controlplane.Several(few))
	}
	return cmp.Or(j.Watch.baselineTooShort(g, j.Stages), g.queryBeyond(j.QueriesNow, j.Stages[j.lastApplied()].Borne()))
}

// counts reports whether any guardrail on counts of heartbeats is on.
func (g bounds) counts() bool {
	return !g.ErrorsPerMinute.Off || !g.RowsPerSecond.Off || !g.DegradedShare.Off || g.DeniedShareShift < 1 ||
		g.NewlyDeniedShare != nil && *g.NewlyDeniedShare < 1
}

// worstIfExact returns the guardrail that would be broken if the baseline were exact.
func (j *judgement) worstIfExact() string {
	j.exact = true
	why, _ := j.worst()
	if why == "" {
		return ""
	}
	return "the baseline is too short to judge " + why
}

// few names the live nodes from before the stage whose heartbeats cover too few parts of the window, or the region if
// its parts are too few. The heartbeats' contents do not matter: nodes without traffic are judged.
func (w *RegionWatch) few() (few []string) {
	live := false
	for i := range w.Nodes {
		n := &w.Nodes[i]
		if n.Gone {
			continue
		}
		live = true
		parts := 0
		for _, s := range n.Window {
			if s[0] > 0 {
				parts++
			}
		}
		if !w.Whole && !n.Came && parts < sequential.Least {
			few = append(few, fmt.Sprintf("%s in %s (%d)", n.ID, w.Region, parts))
		}
	}
	parts := 0
	for _, p := range w.Parts {
		if p.Did[0] > 0 {
			parts++
		}
	}
	if live && len(few) == 0 && parts < sequential.Least {
		few = append(few, fmt.Sprintf("region %s (%d)", w.Region, parts))
	}
	return few
}

// beyond names a measured figure that exceeds its bound, but not yet for long enough to break it; empty: there is none.
func (w *RegionWatch) beyond(borne time.Duration) string {
	for i := range w.Nodes {
		n := &w.Nodes[i]
		if n.Gone || w.Whole {
			continue
		}
		for _, f := range []struct {
			words string
			over  queries.Lasting
		}{{"convergence delay in ms", n.Over.Convergence}, {"decision latency in µs", n.Over.Latency}} {
			if f.over > 0 {
				return fmt.Sprintf("%s is beyond its bound for %s, and breaks it after %s, of node %s in %s", f.words,
					controlplane.Seconds(f.over.Time()), borne, n.ID, w.Region)
			}
		}
	}
	return ""
}
