package dataplane

import (
	"fmt"

	"github.com/weirhq/weir/dataplane/internal/census"
)

// Health returns the node's figures. Call it from monitors, not for each request, because it sums all counters.
func (l *Limiter) Health() Health {
	f := l.reports.figures()
	return healthOf(&f)
}

// TableFull reports whether, in the last minute, a key found no room in the table, because too many keys are at their
// limits or their cost is not sent. Such keys are decided from the origin's counts, or by a sketch that may
// overestimate them. TableFull is cheap, and needs no lock.
func (l *Limiter) TableFull() bool {
	at := l.engine.table.FullSince.Load()
	return at != 0 && int64(l.engine.clock.Steady())-at < census.FullFor.Milliseconds()
}

// TopKeys returns the keys that are hot or denied, for example to find the caller that floods a service.
//
//   - Only keys in memory can be hot, so TopKeys misses keys that found no room in a full table. In the estimate mode
//     it counts only the cost that this node has read.
//   - Denied keys include every key with more than a share of 1/512 of this node's denials.
//
// TopKeys blocks no decision. Its errors wrap ErrInvalid, or are ErrTopBusy.
func (l *Limiter) TopKeys(q TopQuery) (TopKeys, error) {
	if q.Limit < 1 || q.Limit > TopKeysMax {
		return TopKeys{}, fmt.Errorf("%w: limit is %d (1 to %d)", ErrInvalid, q.Limit, TopKeysMax)
	}
	of := census.Query{Workspace: q.Workspace, Namespace: q.Namespace, Limit: q.Limit, Visible: q.Visible}
	var found census.Answer
	switch q.By {
	case TopHot:
		var ok bool
		if found, ok = l.reports.keys.Hottest(&of, false); !ok {
			return TopKeys{}, ErrTopBusy
		}
	case TopDenied:
		found = l.reports.keys.MostDenied(&of, l.engine.clock.ReadMs())
	default:
		return TopKeys{}, fmt.Errorf("%w: by is %d (0 or 1)", ErrInvalid, q.By)
	}
	return topKeysOf(&found), nil
}
