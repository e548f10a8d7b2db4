package sim

import (
	"cmp"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/dataplane/store"
)

// A caller who spends the limit at the end of a cell, and again while its weight falls, gets twice the limit in a real
// window of cells. In a precise window the caller never gets more than the limit: on one node, two nodes and two
// regions, with several limits and costs.
//
//weir:unraced
func TestEdges(t *testing.T) {
	for window, want := range map[store.Window]float64{store.WindowCells: 1.9, store.WindowPrecise: 1} {
		r := simulate(t, lookup(t, "edges"), Options{Seed: 1, Window: window})
		for _, g := range r.Groups {
			if got := g.RealWindowOverLimit; window == store.WindowPrecise && got != 1 ||
				window == store.WindowCells && got < want && !strings.Contains(g.Name, "limits 50 and 100") {
				t.Errorf("%s, %s: %v of the limit in a real window, want %v", window, g.Name, got, want)
			}
		}
	}
}

// Whatever the arrivals are, a precise window on a single node never admits more than the limit, and nearly as much as
// an exact log.
//
//weir:unraced
func TestArrivalsInAPreciseWindow(t *testing.T) {
	r := simulate(t, lookup(t, "arrivals"), Options{Seed: 2, Window: store.WindowPrecise, Duration: 5 * time.Minute})
	if len(r.Groups) < 20 {
		t.Errorf("%d kinds of arrivals", len(r.Groups))
	}
	// Each unit counts for up to a step more than a duration, which a small limit that is used exactly has no room for.
	small := map[string]float64{"even, 1x, limit 1": 0.5, "even, 1x, limit 2": 0.65}
	for _, g := range r.Groups {
		if g.RealWindowOverLimit > 1 || g.AdmittedOverLog < cmp.Or(small[g.Name], 0.9) {
			t.Errorf("%s: %v of the limit in a real window, %v of a log's cost", g.Name, g.RealWindowOverLimit, g.AdmittedOverLog)
		}
	}
}
