package guard

import (
	"fmt"
	"time"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/fleet"
	"github.com/weirhq/weir/controlplane/queries"
)

// relayed sums up which shards of the region's origin are relayed, by its nodes' newest heartbeats.
func (w *RegionWatch) relayed() (all fleet.Relayed) {
	for n := range w.live() {
		all.Add(n.Shards, n.Held)
	}
	return all
}

// observeRelays updates how long the region's origin has not been relayed, has been down, or has not been measured
// although it was before the stage. While it is unsure which nodes are live, all three times restart.
func (w *RegionWatch) observeRelays(gapMs int64, measuring, unsure bool) {
	see := func(l *queries.Lasting, lacks bool) {
		if unsure {
			*l = 0
		}
		l.See(lacks, gapMs, fleet.UnrelayedMax)
	}
	see(&w.Unrelayed, len(w.relayed().Missing()) > 0)
	see(&w.Down, w.down())
	see(&w.Unmeasured, !measuring && w.ConvergenceMs != nil && w.now().ConvergenceMs == nil)
}

// down reports whether the region's origin answers none of its nodes.
func (w *RegionWatch) down() (all bool) {
	for n := range w.live() {
		if all = n.Down; !all {
			return false
		}
	}
	return all
}

// originLost describes a region whose origin has answered no node for longer than borne; empty: there is none. A plan
// with DegradedShare off does not check it.
func (g bounds) originLost(w *RegionWatch, borne time.Duration) string {
	if !w.Down.Reaches(borne) || g.DegradedShare.Off {
		return ""
	}
	return fmt.Sprintf("the Redis of region %s, or a part of it, has answered no node for %s", w.Region,
		controlplane.Seconds(w.Down.Time()))
}

// relaysLost describes a region that has had no relay, or no measured delay, for longer than borne; empty: there is
// none. A plan with ConvergenceMs off does not check it.
func (g bounds) relaysLost(w *RegionWatch, borne time.Duration) string {
	if g.ConvergenceMs.Off {
		return ""
	}
	if w.Unrelayed.Reaches(borne) {
		missing := w.relayed().Missing()
		return fmt.Sprintf("no node has relayed %s of the Redis of region %s for %s", fleet.ShardNames(missing),
			w.Region,
			controlplane.Seconds(w.Unrelayed.Time()))
	}
	if w.Unmeasured.Reaches(borne) {
		return fmt.Sprintf("no node of region %s has measured the convergence delay for %s (before the stage %s ms)",
			w.Region, controlplane.Seconds(w.Unmeasured.Time()), controlplane.Figure(*w.ConvergenceMs))
	}
	return ""
}
