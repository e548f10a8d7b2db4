package redisorigin

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/weirhq/weir/dataplane/store"
)

// changesMax bounds what one look for changes takes, and with it how long a server can do nothing else.
const changesMax = 1000

// changesTurn is the last change that Changes has returned of a bucket: the next call goes on after it.
type changesTurn struct {
	expiresAtMs int64
	key         string
}

// Changes implements store.RelayOrigin. It takes at most 1,000 at a time, by when they expire.
func (h *Origin) Changes(ctx context.Context, shard, max int) (store.Changes, error) {
	s, err := h.shard(shard, 0, nil)
	if err == nil && max < 1 {
		err = fmt.Errorf("redisorigin: changes: max is %d, want >= 1", max)
	}
	if err != nil {
		return store.Changes{}, err
	}
	max = min(max, changesMax)
	p := s.pipeline(ctx)
	cmds := make([]*redis.Cmd, len(s.buckets))
	each := min(max, max/len(s.buckets)+1)
	for i, b := range s.buckets {
		turn := s.turnOf(b)
		args := []any{each, turn.expiresAtMs, turn.key}
		cmds[i] = p.eval(b, changesScript, []string{b.changesKey, b.healedKey}, nil, args)
	}
	p.exec()
	return s.changes(p, cmds, max)
}

// changes reads the buckets' answers. Where not all of them have room, the next call begins with the first that has
// none.
func (s *shard) changes(p *pipeline, cmds []*redis.Cmd, max int) (store.Changes, error) {
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
			err = s.takeChanges(s.buckets[n], r, max, &changes)
		}
		if err != nil {
			return store.Changes{}, fmt.Errorf("redisorigin: changes at %s: %w", s.where, err)
		}
	}
	changes.Epoch = s.see(epochs)
	return changes, nil
}

func (s *shard) turnOf(b *bucket) changesTurn {
	s.mu.Lock()
	defer s.mu.Unlock()
	return b.turn
}

// takeChanges reads one bucket's.
func (s *shard) takeChanges(b *bucket, r *scriptReply, max int, into *store.Changes) error {
	left, last := r.int(), s.turnOf(b)
	into.Healed = r.int() == 1 && into.Healed
	if b.n == 0 {
		into.Now = r.now
	}
	for len(r.rest) > 0 && !r.bad {
		key, total, limit := r.text(), r.int(), r.int()
		left--
		c, err := b.keys.cell(key)
		switch {
		case err != nil:
			s.noteJunk(fmt.Errorf("redisorigin: a change: %w: %w", errJunk, err))
		case len(into.Cells) == max:
			into.More = true
		default:
			into.Cells = append(into.Cells, store.Change{Cell: c, Total: total, Limit: limit})
			last = changesTurn{s.expiresAtMs(c, key), key}
		}
	}
	s.mu.Lock()
	b.turn = last
	s.mu.Unlock()
	into.More = into.More || left > 0
	return r.end()
}
