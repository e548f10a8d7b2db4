package redisorigin

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// changesTurn is the last change that Changes has returned of a bucket: the next call goes on after it.
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
	most := store.ChangesPage * len(s.buckets) // one page of each bucket
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

// changesPage reads up to max changes in one round trip. there is the number of changes on the
// server.
func (s *shard) changesPage(ctx context.Context, max int) (_ store.Changes, there int, err error) {
	p := s.pipeline(ctx)
	cmds := make([]*redis.Cmd, len(s.buckets))
	each := min(max, max/len(s.buckets)+1)
	for i, b := range s.buckets {
		turn := s.turnOf(b)
		args := []any{each, turn.expiresAtMs, turn.key}
		cmds[i] = p.eval(b, changesScript, []string{b.changesKey, b.healedKey}, nil, args)
	}
	p.exec()
	return s.changes(ctx, p, cmds, max)
}

// changes reads the buckets' answers. Where not all of them have room, the next call begins with the first that has
// none.
func (s *shard) changes(ctx context.Context, p *pipeline, cmds []*redis.Cmd, max int) (_ store.Changes, there int,
	err error) {
	changes := store.Changes{Healed: true}
	epochs := make([]store.Epoch, len(s.buckets))
	first := int(s.begin.Load())
	for i := range s.buckets {
		n := (first + i) % len(s.buckets)
		if len(changes.Cells) < max {
			s.begin.Store(int64(n+1) % int64(len(s.buckets)))
		}
		r, err := p.reply(s.buckets[n], cmds[n])
		if err == nil {
			epochs[n] = r.epoch
			err = s.takeChanges(ctx, s.buckets[n], r, max, &changes, &there)
		}
		if err != nil {
			return store.Changes{}, 0, fmt.Errorf("redisorigin: changes at %s: %w", s.where, err)
		}
	}
	changes.Epoch = s.see(epochs)
	return changes, there, nil
}

func (s *shard) turnOf(b *bucket) changesTurn {
	s.mu.Lock()
	defer s.mu.Unlock()
	return b.turn
}

// takeChanges collects the changes of one bucket. Keys that are not cells are removed from the
// changes: they can't be published, and would hide others.
func (s *shard) takeChanges(ctx context.Context, b *bucket, r *scriptReply, max int, into *store.Changes,
	there *int) error {
	var junk []any
	*there += int(r.int())
	last := s.turnOf(b)
	into.Healed = r.int() == 1 && into.Healed
	if b.n == 0 {
		into.Now = r.now
	}
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
			last = changesTurn{s.expiresAtMs(c, key), key}
		}
	}
	s.mu.Lock()
	b.turn = last
	s.mu.Unlock()
	if err := r.end(); err != nil || len(junk) == 0 {
		return err
	}
	return s.client.ZRem(ctx, b.changesKey, junk...).Err()
}
