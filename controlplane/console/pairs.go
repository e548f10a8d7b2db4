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

// pairsView is how late each region uses the cost of each other one.
type pairsView struct {
	Regions []string // across: where cost comes from; at most pairRegionsMax
	More    bool     // there are others
	Rows    []pairsRow
}

type pairsRow struct {
	To    string
	Cells []pairCell
}

// pairCell is one pair; not Known is one that no node has measured.
type pairCell struct {
	Known, Same bool
	P99         int64
	State       string // ok, late, bad
}

// Seconds is the delay without its unit, so that there is room for many.
func (c pairCell) Seconds() string {
	switch {
	case c.P99 < 50:
		return "<0.1"
	case c.P99 < 9_950:
		return strconv.FormatFloat(float64(c.P99)/1000, 'f', 1, 64)
	}
	return count((c.P99 + 500) / 1000)
}

// pairRegionsMax is how many rows and columns the table has: its cells are their square.
const pairRegionsMax = heartbeat.RegionsMax

// pairsOf has a row and a column for each region that there is, or was heard from.
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

// pairRegions are the regions of the table, in order; of too many those with the most nodes and pairs.
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

// lateness is the state of a convergence delay.
func lateness(p99Ms int64) string {
	switch p99 := time.Duration(p99Ms) * time.Millisecond; {
	case p99 > convergenceBad:
		return "bad"
	case p99 > convergenceLate:
		return "late"
	}
	return "ok"
}
