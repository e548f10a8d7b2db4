package dataplane

import (
	"context"
	"errors"
	"fmt"

	"github.com/weirhq/weir/dataplane/internal/cell"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// learnOnce reads the digests of other regions that are new.
func (l *Limiter) learnOnce(ctx context.Context) error {
	l.learning.Lock()
	defer l.learning.Unlock()
	if l.settings.Load().tuning.DigestInterval == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, digestTimeout)
	defer cancel()
	nowMs := l.nowMs()
	var unreadable error
	var answering []*cell.Entry
	cursor, err := l.cfg.Counts.Digests(ctx, l.cfg.Region, nowMs, l.learnedTo, func(d store.Digest) {
		entries, err := l.learn(&d, nowMs)
		answering = append(answering, entries...)
		unreadable = cmpErr(unreadable, err)
	})
	l.answer(answering)
	if err != nil {
		l.metrics.digestErrors.Add(1)
		return fmt.Errorf("read digests: %w", err)
	}
	l.learnedTo = cursor
	l.elsewhere.tidy(nowMs)
	return unreadable
}

// learn takes one digest in. It returns the entries that the other regions should be told
// of, now that one of them has spoken of the cell.
func (l *Limiter) learn(d *store.Digest, nowMs int64) (answering []*cell.Entry, err error) {
	l.elsewhere.heardOf(d.Region, nowMs)
	if len(d.Filter) == 0 {
		return nil, fmt.Errorf("%w: digest of %q is empty", errDigest, d.Node)
	}
	if d.Filter[0] == digestFilter {
		set, err := decodeFilter(d.Filter)
		if err != nil {
			l.metrics.digestErrors.Add(1)
			return nil, fmt.Errorf("digest of %q: %w", d.Node, err)
		}
		l.elsewhere.learnFilter(d, &filter{set, d.ExpiresAtMs})
		return nil, nil
	}
	counts, err := DigestCounts(d)
	if err != nil {
		l.metrics.digestErrors.Add(1)
		return nil, err
	}
	for i := range counts {
		if e := l.learnCount(d.Region, &counts[i], nowMs); e != nil {
			answering = append(answering, e)
		}
	}
	return answering, nil
}

// learnCount merges a count of a bulletin. A key that is not held here has no traffic
// here: when it has, tell.go finds what was remembered.
func (l *Limiter) learnCount(region string, c *store.Count, nowMs int64) (answering *cell.Entry) {
	current := window.Sequence(nowMs, c.Cell.DurationMs())
	if c.Cell.Sequence != current && c.Cell.Sequence != current-1 {
		return nil
	}
	foreign, known := l.elsewhere.learnCount(region, c)
	reset, ok := l.settings.Load().inForce(&c.Cell)
	if !ok {
		return nil
	}
	id := l.table.IdentityOfKey(&c.Cell.Key, reset)
	e := l.table.Get(&id)
	if !known || e == nil {
		return nil
	}
	from := cell.ForeignCount{Sequence: c.Cell.Sequence, Count: foreign, From: l.metrics.agedIn(region), CountedAtMs: c.CountedAtMs}
	agedOut, learned, answer := e.LearnCount(&l.metrics.merged, current, from)
	l.metrics.dropped[droppedExpired].Add(agedOut)
	if learned {
		l.metrics.bulletinApplied.Add(1)
	}
	if !answer {
		return nil
	}
	return e
}

var errBulletinCut = errors.New("dataplane: not all counts fit into a bulletin")
