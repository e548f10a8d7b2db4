package console

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	controlv1 "github.com/weirhq/weir/shared/gen/proto/weir/control/v1"
	"github.com/weirhq/weir/shared/window"
)

// cellsView draws a key's two cells, as regions have stored them, with the sliding window over them. Each cell is 300
// wide, and the height of a bar is a region's count.
type cellsView struct {
	*controlv1.KeyWindow
	NowMs   int64
	Cost    int64
	Shadow  bool          // all requests pass
	Problem string        // why the nodes' reports could not be read
	Now     int64         // end of the window, which begins 300 before it
	Ends    time.Duration // until the current cell ends
	LimitAt int64         // distance from the top; 0: there is no limit
	Bars    []cellBar
	Regions []cellRegion
}

// cellBar is a region's count in a cell.
type cellBar struct {
	Cell, Region string
	Count        int64
	X, Y, High   int64
	Class        int
}

// cellRegion is a region's row of the table.
type cellRegion struct {
	Region            string
	Class             int
	Previous, Current int64
	Written           int64 // age in ms; 0: unknown
}

// Heights in the drawing.
const (
	cellTop  = 10
	cellHigh = 110
)

// Begins returns the position where the window begins.
func (c cellsView) Begins() int64 { return c.Now - 300 }

// Passes describes whether the next request passes.
func (c cellsView) Passes() string {
	switch v := c.GetVerdict(); {
	case c.Shadow:
		return c.passesShadow()
	case c.Limit == nil:
		return ""
	case c.GetLimit() == 0:
		return "Nothing passes: it is blocked."
	case v == controlv1.KeyVerdict_KEY_VERDICT_NEVER_PASSES:
		return fmt.Sprintf("A cost of %s never passes: it is more than the limit.", count(c.Cost))
	case v == controlv1.KeyVerdict_KEY_VERDICT_PASSES:
		return fmt.Sprintf("According to the last reports of nodes, a cost of %s passes.", count(c.Cost))
	case v == controlv1.KeyVerdict_KEY_VERDICT_DENIED:
		return fmt.Sprintf("According to the last reports of nodes, a cost of %s is denied.", count(c.Cost))
	}
	if c.Problem != "" {
		return fmt.Sprintf("It is unknown whether a cost of %s passes: the reports of nodes could not be read.",
			count(c.Cost))
	}
	return fmt.Sprintf("It is unknown whether a cost of %s passes: no node has reported the key lately.", count(c.Cost))
}

// passesShadow describes the next request in shadow mode: it passes, also over the limit.
func (c cellsView) passesShadow() string {
	over := c.Cost > c.GetLimit() || c.Reported != nil && c.Cost > c.GetLimit()-c.GetReported()
	if c.Limit != nil && over {
		return fmt.Sprintf("A cost of %s is over the limit, and passes because of shadow mode.", count(c.Cost))
	}
	return fmt.Sprintf("A cost of %s passes, because the key is in shadow mode.", count(c.Cost))
}

// drawCells returns the drawing of a key's window.
func drawCells(w *controlv1.KeyWindow, key *controlv1.GetKeyResponse, cost int64) cellsView {
	d, nowMs := w.GetDurationMs(), key.GetNowMs()
	passed := nowMs - window.Sequence(nowMs, d)*d
	v := cellsView{KeyWindow: w, NowMs: nowMs, Cost: cost, Shadow: key.GetShadow(),
		Problem: key.GetJudgeProblem(), Now: 300 + 300*passed/d,
		Ends: time.Duration(d-passed) * time.Millisecond}
	most := max(1, w.GetCurrent().GetCount(), w.GetPrevious().GetCount(), w.GetLimit())
	if w.Limit != nil {
		v.LimitAt = cellTop + cellHigh - scaled(w.GetLimit(), most)
	}
	for _, name := range regionsOf(w) { // sorted, so that regions keep their colors
		v.Regions = append(v.Regions, cellRegion{Region: name, Class: len(v.Regions) % 4})
	}
	v.stack("previous", w.GetPrevious(), 0, most)
	v.stack("current", w.GetCurrent(), 300, most)
	return v
}

func scaled(count, most int64) int64 { return int64(cellHigh * float64(count) / float64(most)) }

// stack puts the bars of a cell on top of each other.
func (c *cellsView) stack(name string, cell *controlv1.KeyCell, x, most int64) {
	var below int64
	for _, p := range cell.GetParts() {
		region := c.region(p.GetRegion())
		from, to := scaled(below, most), scaled(below+p.GetCount(), most)
		below += p.GetCount()
		c.Bars = append(c.Bars, cellBar{Cell: name, Region: p.GetRegion(), Count: p.GetCount(), X: x + 2,
			Y: cellTop + cellHigh - to, High: max(1, to-from), Class: region.Class})
		if name == "current" {
			region.Current = p.GetCount()
		} else {
			region.Previous = p.GetCount()
		}
		// The current cell comes last, so its newer time wins.
		region.Written = cmp.Or(c.ago(p.GetUpdatedAtMs()), region.Written)
	}
}

// ago returns the age of a moment in ms, at least 1, or 0 if the moment is unknown.
func (c *cellsView) ago(atMs int64) int64 {
	if atMs == 0 {
		return 0
	}
	return max(1, c.NowMs-atMs)
}

func (c *cellsView) region(name string) *cellRegion {
	return &c.Regions[slices.IndexFunc(c.Regions, func(r cellRegion) bool { return r.Region == name })]
}

// regionsOf returns the regions of both cells, sorted by name.
func regionsOf(w *controlv1.KeyWindow) (names []string) {
	for _, p := range slices.Concat(w.GetPrevious().GetParts(), w.GetCurrent().GetParts()) {
		names = append(names, p.GetRegion())
	}
	slices.Sort(names)
	return slices.Compact(names)
}
