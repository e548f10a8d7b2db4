package controlplane

import (
	"fmt"
	"time"
)

// relayed is how the region's origin is relayed, by its nodes' newest heartbeats.
func (w *RegionWatch) relayed() (all relayed) {
	for i := range w.Nodes {
		if n := &w.Nodes[i]; !n.Gone {
			all.add(n.Shards, n.Held)
		}
	}
	return all
}

// observeRelays notes since when the region is not relayed, or does not measure what it measured before its stage.
// While it is unsure which nodes are live, nothing lasts.
func (w *RegionWatch) observeRelays(nowMs int64, measuring, unsure bool) {
	since := func(was int64, lacks bool) int64 {
		switch {
		case !lacks:
			return 0
		case was == 0 || was > nowMs || unsure:
			return nowMs
		}
		return was
	}
	w.UnrelayedMs = since(w.UnrelayedMs, len(w.relayed().missing()) > 0)
	w.UnmeasuredMs = since(w.UnmeasuredMs, !measuring && w.ConvergenceMs != nil && w.now().ConvergenceMs == nil)
}

// relaysLost tells that a region has been without a relay, or a figure of one, for as long as is not borne. A plan that
// does not judge convergence bears it.
func (g Guardrails) relaysLost(w *RegionWatch, nowMs int64, borne time.Duration) string {
	lasts := func(sinceMs int64) (time.Duration, bool) {
		d := time.Duration(nowMs-sinceMs) * time.Millisecond
		return d, sinceMs > 0 && d >= borne
	}
	if g.ConvergenceMs.Off {
		return ""
	}
	if d, so := lasts(w.UnrelayedMs); so {
		missing := w.relayed().missing()
		return fmt.Sprintf("%s of the region's Redis relayed by no node for %s, want by one, of region %s",
			shardNames(missing), figureOf(d), w.Region)
	}
	if d, so := lasts(w.UnmeasuredMs); so {
		return fmt.Sprintf("convergence delay: measured by no node for %s, and %s ms before the stage, of region %s",
			figureOf(d), figure(*w.ConvergenceMs), w.Region)
	}
	return ""
}

// figureOf is a time for people.
func figureOf(d time.Duration) string { return d.Round(time.Second).String() }
