package redisorigin

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"sync"

	"github.com/cespare/xxhash/v2"
	"github.com/redis/go-redis/v9"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// changesTurn is the last change that Changes has returned of a bucket: the next call goes on after it. It never
// changes.
type changesTurn struct {
	expiresAtMs int64
	key         string
}

// Changes implements store.Relayed. It reads the changes of a server in pages, in the order in
// which they expire, so that no script keeps the server busy for long.
func (h *Origin) Changes(ctx context.Context, shard, max int) (store.Changes, error) {
	s, err := h.shard(shard, 0, nil)
	if err == nil && max < 1 {
		err = fmt.Errorf("redisorigin: changes: max is %d, want >= 1", max)
	}
	if err != nil {
		return store.Changes{}, err
	}
	most := store.ChangesPage * len(s.buckets) // a page of each bucket
	all, there, err := s.changesPage(ctx, min(max, most))
	if err == nil && len(all.Cells) < min(max, there) {
		all, there, err = s.morePages(ctx, all, max)
	}
	all.More = there > len(all.Cells)
	return all, err
}

// morePages reads further pages until there are max cells, or until a page has no new cells,
// because then all changes were read once. If a cell has changed meanwhile, its last state counts.
// The buckets of a Cluster differ in their numbers of changes; morePages reads the same number from
// each.
func (s *shard) morePages(ctx context.Context, all store.Changes, max int) (_ store.Changes, there int, err error) {
	at := make(map[window.Cell]int)
	for i := range all.Cells {
		at[all.Cells[i].Cell] = i
	}
	for range 2 * (max/store.ChangesPage + 4) { // pages without cells bring nothing, so bound the number of rounds
		ask := max - len(all.Cells)
		if len(s.buckets) > 1 {
			ask = max
		}
		page, n, err := s.changesPage(ctx, min(ask, store.ChangesPage*len(s.buckets)))
		if err != nil || page.Epoch != all.Epoch {
			return page, n, err // without cells of an earlier epoch, which the server has lost
		}
		all.Now, all.Healed, there = page.Now, page.Healed, n
		before := len(all.Cells)
		for _, c := range page.Cells {
			switch i, ok := at[c.Cell]; {
			case ok:
				all.Cells[i] = c
			case len(all.Cells) < max:
				at[c.Cell] = len(all.Cells)
				all.Cells = append(all.Cells, c)
			}
		}
		if len(page.Cells) > 0 && len(all.Cells) == before || len(all.Cells) >= min(max, there) {
			break
		}
	}
	return all, there, nil
}

// changesPage reads up to max changes in one round trip. there is the number of changes on the server. If not all
// buckets have room, the next page begins with the first bucket that had none.
func (s *shard) changesPage(ctx context.Context, max int) (changes store.Changes, there int, err error) {
	p := s.pipeline(ctx)
	each := min(max, max/len(s.buckets)+1)
	epochs := make([]store.Epoch, len(s.buckets))
	changes.Healed = true
	err = p.call(s.eachBucket(int(s.begin.Load())), func(p *pipeline, part *part) *redis.Cmd {
		turn := part.turn.Load()
		return p.eval(part.bucket, changesScript, []string{part.changesKey, part.healedKey}, nil,
			[]any{each, turn.expiresAtMs, turn.key})
	}, func(part *part, r *scriptReply) error {
		if len(changes.Cells) < max {
			s.begin.Store(int64(part.n+1) % int64(len(s.buckets)))
		}
		epochs[part.n] = r.epoch
		return s.takeChanges(ctx, part.bucket, r, max, &changes, &there)
	})
	if err != nil {
		return store.Changes{}, 0, fmt.Errorf("redisorigin: changes at %s: %w", s.where, err)
	}
	changes.Now, changes.Epoch = p.now(), s.seen.set(epochs)
	return changes, there, nil
}

// eachBucket returns a part without cells for each bucket, beginning with the n-th.
func (s *shard) eachBucket(n int) (parts []*part) {
	for _, b := range slices.Concat(s.buckets[n:], s.buckets[:n]) {
		parts = append(parts, &part{bucket: b})
	}
	return parts
}

// seenEpochs holds the last report of Changes about a shard: an epoch for all buckets, and each bucket's epoch.
type seenEpochs struct {
	mu      sync.Mutex
	all     store.Epoch
	buckets []store.Epoch
}

// set records the epochs of all buckets and returns an epoch that stands for all of them.
func (e *seenEpochs) set(epochs []store.Epoch) store.Epoch {
	all := epochs[0]
	if len(epochs) > 1 {
		b := make([]byte, 0, 4*len(epochs))
		for _, e := range epochs {
			b = binary.BigEndian.AppendUint32(b, uint32(e))
		}
		all = store.Epoch(xxhash.Sum64(b)>>32) | 1
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all, e.buckets = all, epochs
	return all
}

// of returns each bucket's epoch if the last report of Changes had this epoch for all of them, or else nil.
func (e *seenEpochs) of(all store.Epoch) []store.Epoch {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.all != all {
		return nil
	}
	return e.buckets
}

// takeChanges collects the changes of a bucket. It removes keys that are not cells from the changes, because they can't
// be published and would hide others.
func (s *shard) takeChanges(ctx context.Context, b *bucket, r *scriptReply, max int, into *store.Changes,
	there *int) error {
	var junk []any
	*there += int(r.int())
	last := b.turn.Load()
	into.Healed = r.int() == 1 && into.Healed
	for len(r.rest) > 0 && !r.bad {
		key, total, limit := r.text(), r.int(), r.int()
		c, err := b.keys.cell(key)
		switch {
		case err != nil:
			*there--
			junk = append(junk, key)
			s.noteJunk(fmt.Errorf("redisorigin: a change: %w: %w", errJunk, err))
		case len(into.Cells) < max:
			into.Cells = append(into.Cells, store.Change{Cell: c, Total: total, Limit: limit})
			last = &changesTurn{s.expiresAtMs(c, key), key}
		}
	}
	b.turn.Store(last)
	if err := r.end(); err != nil || len(junk) == 0 {
		return err
	}
	return s.client.ZRem(ctx, b.changesKey, junk...).Err()
}
