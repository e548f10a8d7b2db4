package dataplane

import "fmt"

// Health reads the node's figures. It is for people and monitors: it sums up all counters.
func (l *Limiter) Health() Health {
	f := l.reports.figures()
	return healthOf(&f)
}

// TableFull is true when, in the last minute, a key found no room in the table: too many keys are
// at their limits, or their cost is not sent. Such keys are decided by what the origin has, or by
// a sketch that may take them for more than they are. It is cheap, and needs no lock.
func (l *Limiter) TableFull() bool {
	at := l.engine.table.FullSince.Load()
	return at != 0 && int64(l.engine.clock.Steady())-at < fullLogEvery.Milliseconds()
}

// TopKeys tells which keys are hot or denied. What it sees and misses: of hot keys
// those in memory, so not one that a full table could not take, and in the estimate mode
// the cost that this node knows of; of denied ones every key with more than a share of
// 1/512 in this node's denials. It blocks no decision. Errors wrap ErrInvalid, or are
// ErrTopBusy.
func (l *Limiter) TopKeys(q TopQuery) (TopKeys, error) {
	if q.Limit < 1 || q.Limit > TopKeysMax {
		return TopKeys{}, fmt.Errorf("%w: limit is %d (1 to %d)", ErrInvalid, q.Limit, TopKeysMax)
	}
	switch q.By {
	case TopHot:
		return l.reports.top.hottest(&q, false)
	case TopDenied:
		return l.reports.top.denials(&q, l.engine.clock.ReadMs()), nil
	}
	return TopKeys{}, fmt.Errorf("%w: by is %d (0 or 1)", ErrInvalid, q.By)
}
