package dataplane

import (
	"time"

	"github.com/weirhq/weir/dataplane/internal/cell"
	"github.com/weirhq/weir/dataplane/internal/rules"
	"github.com/weirhq/weir/shared/window"
)

// Heartbeats report the shape of the load: the numbers of active, hot and shared keys. Predictions of a tuning start
// from it. A walk over the table measures it from time to time, so requests do no work for it.

const (
	shapeEvery = 30 * time.Second
	shapeHot   = 0.5 // a key is hot past this share of its limit
)

// shape is immutable.
type shape struct {
	atMs              int64
	keys, hot, shared int64 // shared: number of keys that other regions use too
}

func shapeOf(table *cell.Table, set *rules.Settings, nowMs int64) *shape {
	s := &shape{atMs: nowMs}
	table.Walk(func(e *cell.Entry) {
		durationMs := e.DurationMs()
		if milliseconds(durationMs) < set.Tuning.MinGlobalDuration.Std() {
			return
		}
		share := e.ActiveShare(window.Sequence(nowMs, durationMs))
		if share == 0 {
			return
		}
		s.keys++
		if share >= shapeHot {
			s.hot++
		}
		if e.HasOthers() {
			s.shared++
		}
	})
	return s
}
