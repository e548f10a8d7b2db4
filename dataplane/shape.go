package dataplane

import (
	"time"

	"github.com/weirhq/weir/dataplane/internal/cell"
	"github.com/weirhq/weir/shared/window"
)

// What callers are like, for heartbeats: predictions of a tuning start from it. It is
// measured by a walk over the table now and then, and not by requests.

const (
	shapeEvery     = 30 * time.Second
	shapeHot       = 0.5  // share of its limit past which a key is hot
	shapeSampled   = 4096 // keys, about, that other regions' filters are asked for
	shapeLookedMin = 3    // of those at the least, for a share to be told
)

// shape is immutable.
type shape struct {
	atMs              int64
	keys, hot, shared int64
	sharedKnown       bool
}

// measureShape measures anew if the last time is long enough ago.
func (l *Limiter) measureShape(set *settings, nowMs int64) {
	last := l.shape.Load()
	if last != nil && nowMs >= last.atMs && nowMs-last.atMs < shapeEvery.Milliseconds() {
		return
	}
	s := &shape{atMs: nowMs, sharedKnown: l.elsewhere.covered(nowMs)}
	each := uint64(l.table.Len()/shapeSampled + 1)
	var looked, used int64
	l.table.Walk(func(e *cell.Entry) {
		durationMs := e.DurationMs()
		if milliseconds(durationMs) < set.tuning.MinGlobalDuration.Std() {
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
		if !s.sharedKnown {
			return
		}
		if hash := fleetHash(e.Names()); hash%each == 0 {
			looked++
			if l.elsewhere.users(hash, nowMs) > 0 {
				used++
			}
		}
	})
	if looked > 0 {
		s.shared = s.keys * used / looked
	}
	s.sharedKnown = s.sharedKnown && looked >= shapeLookedMin
	l.shape.Store(s)
}
