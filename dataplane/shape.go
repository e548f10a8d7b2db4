package dataplane

import (
	"time"

	"github.com/weirhq/weir/dataplane/internal/cell"
	"github.com/weirhq/weir/dataplane/internal/rules"
	"github.com/weirhq/weir/shared/window"
)

// What callers are like, for heartbeats: predictions of a tuning start from it. It is
// measured by a walk over the table now and then, and not by requests.

const (
	shapeEvery = 30 * time.Second
	shapeHot   = 0.5 // share of its limit past which a key is hot
)

// shape is immutable.
type shape struct {
	atMs              int64
	keys, hot, shared int64 // shared: that other regions use too
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
