package console

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"time"

	controlv1 "github.com/weirhq/weir/shared/gen/proto/weir/control/v1"
	"github.com/weirhq/weir/shared/heartbeat"
)

// pairsView has, for each pair of regions, the delay after which one region uses the cost of the other.
type pairsView struct {
	Regions []string // columns: where cost was accepted; at most pairRegionsMax
	More    bool     // there are more regions
	Rows    []pairsRow
}

type pairsRow struct {
	To    string
	Cells []pairCell
}

// pairCell is a pair of regions. Known is false if no node has measured the pair.
type pairCell struct {
	Known, Same bool
	P99         int64
	State       string // ok, late, bad
}

// Seconds formats the delay without its unit, so that many cells fit.
func (c pairCell) Seconds() string {
	switch {
	case c.P99 < 50:
		return "<0.1"
	case c.P99 < 9_950:
		return strconv.FormatFloat(float64(c.P99)/1000, 'f', 1, 64)
	}
	return count((c.P99 + 500) / 1000)
}

// pairRegionsMax is the number of rows and columns of the table at most. The number of cells is its square.
const pairRegionsMax = heartbeat.RegionsMax

// pairsOf returns a table with a row and a column for each region that has nodes or sends counts.
func pairsOf(f *controlv1.FleetResponse) (v pairsView) {
	type way struct{ from, to string }
	found := make(map[way]int64)
	for _, p := range f.GetPairs() {
		found[way{p.GetFrom(), p.GetTo()}] = p.GetP99Ms()
	}
	v.Regions, v.More = pairRegions(f)
	for _, to := range v.Regions {
		row := pairsRow{To: to}
		for _, from := range v.Regions {
			p99, known := found[way{from, to}]
			row.Cells = append(row.Cells, pairCell{Known: known, Same: from == to, P99: p99, State: lateness(p99)})
		}
		v.Rows = append(v.Rows, row)
	}
	return v
}

// pairRegions returns the regions of the table, sorted by name. If there are too many, the regions with the most nodes
// and pairs remain.
func pairRegions(f *controlv1.FleetResponse) (regions []string, more bool) {
	seen := make(map[string]int)
	for _, n := range f.GetNodes() {
		seen[n.GetRegion()]++
	}
	for _, p := range f.GetPairs() {
		seen[p.GetFrom()]++
	}
	regions = slices.SortedFunc(maps.Keys(seen), func(a, b string) int {
		return cmp.Or(cmp.Compare(seen[b], seen[a]), cmp.Compare(a, b))
	})
	more = len(regions) > pairRegionsMax
	regions = regions[:min(len(regions), pairRegionsMax)]
	slices.Sort(regions)
	return regions, more
}

// lateness returns the state of a convergence delay.
func lateness(p99Ms int64) string {
	switch p99 := time.Duration(p99Ms) * time.Millisecond; {
	case p99 > convergenceBad:
		return "bad"
	case p99 > convergenceLate:
		return "late"
	}
	return "ok"
}
