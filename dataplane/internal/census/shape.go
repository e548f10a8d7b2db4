package census

import (
	"sync/atomic"
	"time"

	"github.com/weirhq/weir/dataplane/internal/cell"
	"github.com/weirhq/weir/dataplane/internal/rules"
	"github.com/weirhq/weir/shared/window"
)

const (
	shapeEvery = 30 * time.Second
	shapeHot   = 0.5 // a key is hot past this share of its limit
)

// Shape is the shape of the load: the numbers of active, hot and shared keys, of windows that regions share.
// Predictions of a tuning start from it.
type Shape struct {
	atMs              int64
	Keys, Hot, Shared int64 // Shared: number of keys that other regions use too
}

// Load measures the shape of a table's load from time to time. Its methods may be called concurrently.
type Load struct {
	Table *cell.Table
	shape atomic.Pointer[Shape]
}

// Measure measures the shape if the last measurement is at least shapeEvery old.
func (l *Load) Measure(set *rules.Settings, nowMs int64) {
	last := l.shape.Load()
	if last == nil || nowMs < last.atMs || nowMs-last.atMs >= shapeEvery.Milliseconds() {
		l.shape.Store(shapeOf(l.Table, set, nowMs))
	}
}

// Shape returns the last measurement, or nil if there is none. Callers must not change it.
func (l *Load) Shape() *Shape { return l.shape.Load() }

func shapeOf(table *cell.Table, set *rules.Settings, nowMs int64) *Shape {
	s := &Shape{atMs: nowMs}
	table.Walk(func(e *cell.Entry) {
		durationMs := e.DurationMs()
		if milliseconds(durationMs) < set.Tuning.MinGlobalDuration.Std() {
			return
		}
		share := e.ActiveShare(window.Sequence(nowMs, durationMs))
		if share == 0 {
			return
		}
		s.Keys++
		if share >= shapeHot {
			s.Hot++
		}
		if e.HasOthers() {
			s.Shared++
		}
	})
	return s
}

func milliseconds(ms int64) time.Duration { return time.Duration(ms) * time.Millisecond }
