//go:build !race

package dataplane_test

import (
	"testing"

	"github.com/weirhq/weir/dataplane"
)

// A decision on a warm key allocates nothing, whatever its outcome, with every layer
// configured and settings in force.
func TestWarmDecisionsDoNotAllocate(t *testing.T) {
	w := newWorld(t)
	w.counts.SetOverrides(
		dataplane.OverrideRow{Workspace: "acme", Namespace: "api", Pattern: "vip_*", Limit: 1 << 40},
		dataplane.OverrideRow{Workspace: "acme", Namespace: "api", Pattern: "blocked", Limit: 0})
	n := w.node("eu", "a")
	ctx := t.Context()
	for name, r := range map[string]dataplane.Request{
		"allowed":    ask("k", 1, 1<<40),
		"peek":       ask("k", 0, 1<<40),
		"denied":     ask("full", 1, 10),
		"oversized":  ask("k", 1<<41, 1<<40),
		"overridden": ask("vip_7", 1, 10),
		"blocked":    ask("blocked", 1, 10),
	} {
		n.take("full", 0, 10)
		n.Allow(ctx, ask("full", 10, 10))
		n.Allow(ctx, r)
		if got := testing.AllocsPerRun(1000, func() { n.Allow(ctx, r) }); got != 0 {
			t.Errorf("%s: %v allocations a decision", name, got)
		}
	}
}
