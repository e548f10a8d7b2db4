package dataplane

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"

	"github.com/weirhq/weir/dataplane/internal/cell"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// A node tells the other regions of a cell, in its bulletin, when
//
//	- another region has told of it; or
//	- another region's filter holds the key, and the region's count has come to its part
//	  of unseenShare of the limit, or all that is known of the cell to tellShare; or
//	- the key is so new that this node's filter does not hold it, and its count has come to
//	  announceShare.
//
// From then on the cell stays in the bulletin until it expires. With R other regions
// that use a key, what nobody has been told of is at most R parts, unseenShare of the
// limit; from there on everybody knows of everybody, and tells of any growth.
//
// Bulletins are states, not changes: one that nobody read is made up for by the next.

const (
	unseenShare   = 0.1  // of the limit, by all other regions that use a key together
	announceShare = 0.1  // of the limit
	tellShare     = 0.6  // of the limit, by all that is known of a cell: from there on any growth is told at once
	announcedMax  = 1000 // cells that are only told of because their keys are new
	bulletinTurns = 2    // fast intervals from one bulletin to the next, at least
)

// bulletin is what this node tells. Guarded by Limiter.telling.
type bulletin struct {
	cells     map[window.Cell]*telling
	announced int // of cells: those of new keys
	watched   map[*cell.Entry]watched

	changed, urgent bool // since it was published
	publishedAtMs   int64
	expiresAtMs     int64
}

// telling is one cell in it.
type telling struct {
	count, countedAtMs int64
	told               int64 // of count: in the bulletin that was last published
	limit              int64
	announced          bool
}

// tellOnce takes in what was accepted, and publishes the bulletin if that is due: soon
// after growth near a limit, otherwise with the slow interval.
func (l *Limiter) tellOnce(ctx context.Context, final bool) error {
	l.telling.Lock()
	defer l.telling.Unlock()
	l.collect()
	l.queues.Lock()
	queue := l.queues.tell
	l.queues.tell = nil
	l.queues.Unlock()
	set, nowMs := l.settings.Load(), l.nowMs()
	b := &l.bulletin
	for _, q := range append(queue, b.found(l.elsewhere.takeFresh(), nowMs)...) {
		l.tell(q, set, nowMs)
	}
	for cell, t := range b.cells {
		if cell.ExpiresAtMs() <= nowMs {
			if t.announced {
				b.announced--
			}
			delete(b.cells, cell)
		}
	}
	if set.tuning.DigestInterval == 0 || !b.due(set, nowMs) && !(final && b.changed) {
		return nil
	}
	return l.publishBulletin(ctx, set, nowMs)
}

func (b *bulletin) due(set *settings, nowMs int64) bool {
	since := milliseconds(nowMs - b.publishedAtMs)
	fast, slow := set.tuning.FastInterval.Std(), set.tuning.SlowInterval.Std()
	switch {
	case b.urgent:
		return since >= bulletinTurns*fast-fast/2
	case b.changed:
		return since >= slow-fast/2
	}
	return len(b.cells) > 0 && nowMs+(slow+fast/2).Milliseconds() >= b.expiresAtMs
}

// tell takes one entry in that has accepted cost, or should answer another region. One that
// was evicted meanwhile still says what it held.
func (l *Limiter) tell(q queued, set *settings, nowMs int64) {
	e := q.entry
	e.LeaveTell()
	if set.tuning.DigestInterval == 0 || milliseconds(e.DurationMs()) < set.tuning.MinGlobalDuration.Std() || set.superseded(e.Names()) {
		return
	}
	hash := fleetHash(e.Names())
	users := l.elsewhere.users(hash, nowMs)
	was, watching := l.bulletin.watched[e]
	if q.sinceMs == 0 {
		q.sinceMs = was.sinceMs
	}
	watch := false
	for _, c := range e.TellableCells(nowMs) {
		foreign, regions := l.elsewhere.of(&c)
		e.TellCell(&l.metrics.merged, c.Sequence, nowMs, foreign, func(t cell.Tellable) (told bool) {
			w, told := l.tellCell(&c, t, q.sinceMs, hash, max(users, regions))
			watch = watch || w
			return told
		})
	}
	if watch {
		l.bulletin.watched[e] = watched{hash, q.sinceMs}
	} else if watching {
		delete(l.bulletin.watched, e)
	}
}

// tellCell takes one cell in. watch is true when it is told to nobody, and would be if
// another region used the key.
func (l *Limiter) tellCell(c *window.Cell, of cell.Tellable, sinceMs int64, hash uint64, users int) (watch, told bool) {
	b := &l.bulletin
	share := float64(of.Count) / float64(max(1, of.Limit))
	hot := of.Effective >= tellShare*float64(of.Limit)
	t := b.cells[*c]
	if t == nil {
		shared := of.Foreign || users > 0 && (hot || share*float64(users) >= unseenShare)
		if !shared && (share < announceShare || b.announced >= announcedMax || l.elsewhere.announced(hash)) {
			return hot || share >= unseenShare, false
		}
		t = &telling{announced: !shared}
		if t.announced {
			b.announced++
		} else {
			l.metrics.digestMatches.Add(1)
		}
		b.cells[*c] = t
		b.urgent = true
	}
	t.limit = of.Limit
	if of.Count <= t.count {
		return false, false
	}
	t.count, t.countedAtMs = of.Count, sinceMs
	b.changed = true
	if hot || float64(of.Count-t.told)*float64(users) >= unseenShare*float64(of.Limit) {
		b.urgent = b.urgent || users > 0 || of.Foreign
	}
	return false, true
}

// watched is an entry that nobody needs to be told of yet.
type watched struct {
	hash    uint64
	sinceMs int64 // as queued has it
}

// found returns the watched entries that one of some filters holds, and ends watching what
// is over. A key can have its traffic here before it has any elsewhere.
func (b *bulletin) found(filters []*filter, nowMs int64) (found []queued) {
	if len(filters) == 0 {
		return nil
	}
	for e, w := range b.watched {
		if e.Expired(nowMs) {
			delete(b.watched, e)
			continue
		}
		if slices.ContainsFunc(filters, func(f *filter) bool { return f.has(w.hash) }) {
			found = append(found, queued{e, w.sinceMs})
		}
	}
	return found
}

// announced is true when others can know that the key is used here.
func (w *elsewhere) announced(hash uint64) bool {
	own := w.own.Load()
	return own != nil && own.has(hash)
}

func (l *Limiter) publishBulletin(ctx context.Context, set *settings, nowMs int64) error {
	b := &l.bulletin
	counts := make([]store.Count, 0, len(b.cells))
	for cell, t := range b.cells {
		counts = append(counts, store.Count{Cell: cell, Count: t.count, CountedAtMs: t.countedAtMs})
	}
	const sure = store.DigestBytesMax/bulletinRowBytesMax - 4 // fit whatever their names
	if len(counts) > sure {
		slices.SortFunc(counts, func(x, y store.Count) int { return cmp.Compare(b.share(&y), b.share(&x)) })
		size := 0
		for i := range counts {
			if size += len(counts[i].Cell.Workspace) + len(counts[i].Cell.Namespace) + len(counts[i].Cell.Identifier) + 64; size > store.DigestBytesMax-4*bulletinRowBytesMax {
				counts = counts[:i]
				break
			}
		}
	}
	payload, told := encodeBulletin(counts, nowMs)
	leftOut := len(b.cells) - told
	l.metrics.digestLeftOut.Add(int64(leftOut))
	expiresAtMs := nowMs + digestIntervals*max(set.tuning.DigestInterval.Std(), set.tuning.SlowInterval.Std()).Milliseconds()
	ctx, cancel := context.WithTimeout(ctx, digestTimeout)
	defer cancel()
	err := l.cfg.Counts.PublishDigest(ctx, l.cfg.Region, store.Digest{
		Region: l.cfg.Region, Node: bulletinName(l.cfg.NodeID), Keys: told, Filter: payload, MadeAtMs: nowMs, ExpiresAtMs: expiresAtMs})
	l.elsewhere.bulletinFailed(err != nil || leftOut > 0)
	if err != nil {
		l.metrics.digestErrors.Add(1)
		return fmt.Errorf("publish a bulletin of %d counts: %w", told, err)
	}
	for _, c := range counts {
		t := b.cells[c.Cell]
		t.told = t.count
	}
	b.changed, b.urgent, b.publishedAtMs, b.expiresAtMs = false, false, nowMs, expiresAtMs
	l.metrics.bulletinCells.Store(int64(told))
	l.metrics.bulletinBytes.Store(int64(len(payload)))
	if leftOut > 0 {
		return fmt.Errorf("%w: %d are left out", errBulletinCut, leftOut)
	}
	return nil
}

func (b *bulletin) share(c *store.Count) float64 {
	return float64(c.Count) / float64(max(1, b.cells[c.Cell].limit))
}

// bulletinName is the node whose digest the bulletin is: another than its filter's.
func bulletinName(node string) string {
	const suffix = "/counts"
	if len(node)+len(suffix) <= nodeIDBytesMax {
		return node + suffix
	}
	sum := sha256.Sum256([]byte(node))
	return hex.EncodeToString(sum[:16]) + suffix
}
