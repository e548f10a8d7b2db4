package hunt

import (
	"slices"
	"time"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// judged holds the settings by which a life decides on a key, as far as the decision does not name them. They are part
// of the cell's name.
type judged struct {
	mode  window.Mode
	reset window.Reset
	early bool // the life did not have its origin's clock yet

	precise bool
	at      time.Time
}

// explain returns a life's explanation of a key. Explain returns an error for invalid requests only.
func (w *world) explain(l *life, key int, violate func(invariant, format string, args ...any)) (
	x dataplane.Explanation, ok bool) {
	x, err := l.Limiter.Explain(w.request(key, 0))
	if err != nil {
		violate("error", "%v explains k%d: %v", l, key, err)
	}
	return x, err == nil
}

// current returns the cell that a life counts a key in now.
func (w *world) current(l *life, key int) (cell window.Cell, ok bool) {
	x, ok := w.explain(l, key, w.record.violate)
	return explained(&x, x.Current.Sequence), ok
}

// explained returns the key's cell with a sequence number, named as in the explanation.
func explained(x *dataplane.Explanation, sequence int64) window.Cell {
	return judgedBy(x).cell(apiKey(x.Identifier, x.Duration), sequence)
}

func (w *world) judged(l *life, key int) judged {
	x, _ := w.explain(l, key, w.record.violate)
	by := judgedBy(&x)
	by.early, by.at = w.early(l, &x), time.Now()
	return by
}

func judgedBy(x *dataplane.Explanation) (by judged) {
	by.precise = x.Window == string(store.WindowPrecise)
	if x.Mode == window.Estimate.String() {
		by.mode = window.Estimate
	}
	if x.Reset > 0 {
		by.reset = window.Reset{Generation: window.Generation(x.Reset), AtMs: x.ResetAt.UnixMilli()}
	}
	return by
}

// placedIn is how long a life may be without its origin's clock: no fault that keeps calls from its origin lasts
// longer.
const placedIn = 10 * time.Second

// early reports whether a life still uses its own clock, and not its origin's. Once it has used its origin's clock it
// always does. While both clocks agree, and its own clock will be moved later, it may use either.
func (w *world) early(l *life, x *dataplane.Explanation) bool {
	if l.timed.Load() {
		return false
	}
	origins := l.node.region.clock.Now()
	own := l.node.clock.Now()
	offOwn, offOrigins := x.At.Sub(own).Abs(), x.At.Sub(origins).Abs()
	early := offOwn < offOrigins || offOwn == offOrigins && !l.answered.Load() && w.isToBeMoved(l.node)
	l.timed.Store(!early)
	return early
}

// isToBeMoved reports whether a node's own clock is moved later.
func (w *world) isToBeMoved(n *node) bool {
	return slices.ContainsFunc(w.plan.Steps, func(s Step) bool {
		return s.Do == Clock && w.regions[s.Region].nodes[s.Node] == n && time.Now().Before(w.began.Add(s.At))
	})
}

// cell returns a key's cell under the name that all nodes and stores use.
func (by judged) cell(key window.Key, sequence int64) window.Cell {
	key.Mode, key.Generation = by.mode, generation(by.reset, sequence, key.Duration)
	return window.Cell{Key: key, Sequence: sequence}
}

// generation returns a reset's generation for cells that had begun when the reset was made, and 0 for later cells.
func generation(r window.Reset, sequence int64, d time.Duration) window.Generation {
	if sequence*d.Milliseconds() > r.AtMs {
		return 0
	}
	return r.Generation
}

// cellsOf returns the cells in which a decision's cost may count. There are two if settings arrived during the
// decision. There are several if the life did not have its origin's clock: it later moves the cost to the cell that
// this clock shows.
func (w *world) cellsOf(l *life, key int, d *dataplane.Decision, before, after judged) []window.Cell {
	k := apiKey(w.plan.Fleet.Keys[key].Name, d.Duration)
	sequence := d.ResetAt.UnixMilli()/d.Duration.Milliseconds() - 1
	cells := []window.Cell{before.cell(k, sequence)}
	if other := after.cell(k, sequence); other != cells[0] {
		cells = append(cells, other)
	}
	if !before.early {
		return cells
	}
	for _, ahead := range w.plan.AheadOf(l.node.region.index) {
		now := time.Now().Add(ahead)
		last := window.Sequence(now.Add(placedIn).UnixMilli(), k.DurationMs())
		for s := window.Sequence(now.Add(-waits).UnixMilli(), k.DurationMs()); s <= last; s++ {
			if other := after.cell(k, s); !slices.Contains(cells, other) {
				cells = append(cells, other)
			}
		}
	}
	return cells
}

// names returns all names that a cell may have: the name before any reset, and the name after each reset.
func (w *world) names(cell window.Cell) (names []window.Cell) {
	last := w.operators.lastReset(cell.Identifier).Generation
	for cell.Generation = 0; cell.Generation <= last; cell.Generation++ {
		names = append(names, cell)
	}
	return names
}

// apiKey returns an identifier in a window, before any reset, in the exact mode.
func apiKey(identifier string, d time.Duration) window.Key {
	return window.Key{Workspace: workspace, Namespace: namespace, Identifier: identifier, Duration: d}
}
