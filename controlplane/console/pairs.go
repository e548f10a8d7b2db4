package console

import (
	"slices"
	"strconv"
	"time"

	controlv1 "github.com/weirhq/weir/shared/gen/proto/weir/control/v1"
)

// pairsView is how late each region uses the cost of each other one.
type pairsView struct {
	Regions []string // across: where cost comes from
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

// pairsOf has a row and a column for each region that there is, or was heard from.
func pairsOf(f *controlv1.FleetResponse) (v pairsView) {
	type way struct{ from, to string }
	found := make(map[way]int64)
	for _, n := range f.GetNodes() {
		v.Regions = append(v.Regions, n.GetRegion())
	}
	for _, p := range f.GetPairs() {
		v.Regions = append(v.Regions, p.GetFrom())
		found[way{p.GetFrom(), p.GetTo()}] = p.GetP99Ms()
	}
	slices.Sort(v.Regions)
	v.Regions = slices.Compact(v.Regions)
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
