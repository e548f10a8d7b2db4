package relay

import (
	"maps"
	"sync"
	"time"

	"github.com/weirhq/weir/dataplane/store"
)

// logEvery is how often at most a relay logs the same problem of a region.
const logEvery = time.Minute

// logged records when a problem was last logged, by region.
type logged struct {
	mu sync.Mutex
	at map[string]time.Time
}

// due reports whether the problem should be logged now: once every logEvery for each region.
func (l *logged) due(region string, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	maps.DeleteFunc(l.at, func(_ string, at time.Time) bool { return now.Sub(at) >= logEvery })
	if _, ok := l.at[region]; ok {
		return false
	}
	if l.at == nil {
		l.at = make(map[string]time.Time)
	}
	l.at[region] = now
	return true
}

// noteLeftOut counts and logs the cells of a row that were left out. Early cells come from a region whose origin's
// clock is ahead, and would stay until their windows end. Excess cells come from a region with more cells than a relay
// holds of any region.
func (r *Relay) noteLeftOut(row *store.FeedRow, left leftOut, now time.Time) {
	r.metrics.early.Add(int64(left.early))
	r.metrics.excess.Add(int64(left.excess))
	r.noteMalformed(row, left.malformed, now)
	if left.early > 0 && r.reader.earlyLogged.due(row.Region, now) {
		r.cfg.Logger.Warn("relay leaves out changes of windows that begin in the future: check that region's clock",
			"region", row.Region,
			"shard", row.Shard, "sequence", row.Sequence, "cells", left.early)
	}
	if left.excess > 0 && r.reader.excessLogged.due(row.Region, now) {
		r.cfg.Logger.Warn("relay leaves out changes of a region that has too many cells", "region", row.Region,
			"shard", row.Shard, "sequence", row.Sequence, "cells", left.excess, "cells_max", regionCellsMax)
	}
}

// noteMalformed counts and logs cells that were left out because no node can have written them.
func (r *Relay) noteMalformed(row *store.FeedRow, cells int, now time.Time) {
	r.metrics.malformed.Add(int64(cells))
	if cells > 0 && r.reader.malformedLogged.due(row.Region, now) {
		r.cfg.Logger.Error("relay leaves out malformed cells: check which other program writes to Weir's stores", "region",
			row.Region, "shard", row.Shard, "sequence", row.Sequence, "cells", cells)
	}
}

// noteFull counts and logs a read that left streams out.
func (r *Relay) noteFull(page *store.FeedPage, now time.Time) {
	if !page.Full {
		return
	}
	r.metrics.full.Add(1)
	if r.reader.fullLogged.due("", now) {
		r.cfg.Logger.Warn("relay leaves out streams of the change feed because there are too many: check ratelimit_changes "+
			"for regions that do not exist", "streams_max", r.reader.streamsMax)
	}
}
