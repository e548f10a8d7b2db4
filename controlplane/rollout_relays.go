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
	w.DownMs = since(w.DownMs, w.down())
	w.UnmeasuredMs = since(w.UnmeasuredMs, !measuring && w.ConvergenceMs != nil && w.now().ConvergenceMs == nil)
}

// down tells that the region's origin answers none of its nodes.
func (w *RegionWatch) down() (all bool) {
	for i := range w.Nodes {
		if n := &w.Nodes[i]; !n.Gone {
			if all = n.Down; !all {
				return false
			}
		}
	}
	return all
}

// originLost tells that a region's origin has answered no node for as long as is not borne. A plan that does not judge
// decisions without the origin bears it.
func (g Guardrails) originLost(w *RegionWatch, nowMs int64, borne time.Duration) string {
	d := time.Duration(nowMs-w.DownMs) * time.Millisecond
	if w.DownMs == 0 || d < borne || g.DegradedShare.Off {
		return ""
	}
	return fmt.Sprintf("the Redis of region %s, or a part of it, has answered no node for %s", w.Region,
		figureOf(d))
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
		return fmt.Sprintf("no node has relayed %s of the Redis of region %s for %s", shardNames(missing), w.Region,
			figureOf(d))
	}
	if d, so := lasts(w.UnmeasuredMs); so {
		return fmt.Sprintf("no node of region %s has measured the convergence delay for %s (before the stage %s ms)",
			w.Region, figureOf(d), figure(*w.ConvergenceMs))
	}
	return ""
}

// figureOf is a time for people.
func figureOf(d time.Duration) string { return d.Round(time.Second).String() }
