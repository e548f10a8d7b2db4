package redisorigin

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/redis/go-redis/v9"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// Lease implements store.Relayed.
func (h *Origin) Lease(ctx context.Context, shard int, holder string, ttl time.Duration) (store.Lease, error) {
	if n := len(holder); n < 1 || n > store.HolderBytesMax || ttl < time.Millisecond {
		return store.Lease{}, fmt.Errorf("redisorigin: lease: holder is %d bytes long (1 to %d), ttl is %v (at least 1ms)",
			n, store.HolderBytesMax, ttl)
	}
	reply, err := h.leaseCall(ctx, shard, leaseScript, holder, bounded(ttl.Milliseconds()))
	if err != nil {
		return store.Lease{}, fmt.Errorf("redisorigin: lease of shard %d: %w", shard, err)
	}
	pair, _ := reply.([]any)
	if len(pair) == 2 {
		holder, isHolder := pair[0].(string)
		left, isLeft := pair[1].(int64)
		if isHolder && isLeft && left >= 0 {
			return store.Lease{Holder: holder, Left: time.Duration(left) * time.Millisecond}, nil
		}
	}
	return store.Lease{}, fmt.Errorf("redisorigin: lease of shard %d: %w", shard, errStrangeReply)
}

// Release implements store.Relayed.
func (h *Origin) Release(ctx context.Context, shard int, holder string) error {
	if _, err := h.leaseCall(ctx, shard, releaseScript, holder); err != nil {
		return fmt.Errorf("redisorigin: release of shard %d: %w", shard, err)
	}
	return nil
}

func (h *Origin) leaseCall(ctx context.Context, shard int, script string, args ...any) (any, error) {
	s, err := h.shard(shard, 0, nil)
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return s.client.Eval(ctx, script, []string{s.buckets[0].leaseKey}, args...).Result()
}

// see remembers the epochs of all buckets and returns one that stands for them.
func (s *shard) see(epochs []store.Epoch) store.Epoch {
	all := epochs[0]
	if len(epochs) > 1 {
		b := make([]byte, 0, 4*len(epochs))
		for _, e := range epochs {
			b = binary.BigEndian.AppendUint32(b, uint32(e))
		}
		all = store.Epoch(xxhash.Sum64(b)>>32) | 1
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen = seenEpochs{all, epochs}
	return all
}

// epochsOf is each bucket's epoch when Changes reported all of them as one, nil if it did not or has reported
// another one since.
func (s *shard) epochsOf(all store.Epoch) []store.Epoch {
	if len(s.buckets) == 1 {
		return []store.Epoch{all}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.seen.all != all {
		return nil
	}
	return s.seen.buckets
}

// Ack implements store.Relayed.
func (h *Origin) Ack(ctx context.Context, shard int, cells []store.Change) error {
	return h.relay(ctx, "ack", shard, len(cells), func(i int) *window.Cell { return &cells[i].Cell },
		func(p *pipeline, part *part) *redis.Cmd {
			args := make([]any, 0, 2*len(part.places))
			for _, place := range part.places {
				args = append(args, bounded(cells[place].Total), bounded(cells[place].Limit))
			}
			return p.pipe.Eval(p.ctx, ackScript, append([]string{part.changesKey}, part.keys...), args...)
		}, func(int64) {}, nil)
}

// Apply implements store.Relayed.
func (h *Origin) Apply(ctx context.Context, shard int, totals []store.Foreign) (raised int, err error) {
	err = h.relay(ctx, "apply", shard, len(totals), func(i int) *window.Cell { return &totals[i].Cell },
		func(p *pipeline, part *part) *redis.Cmd {
			args := append(make([]any, 0, 1+2*len(part.places)), p.s.channel)
			for i, place := range part.places {
				args = append(args, bounded(totals[place].Count), p.s.expiresAtMs(totals[place].Cell, part.keys[i]))
			}
			return p.pipe.Eval(p.ctx, applyScript, append([]string{part.epochKey}, part.keys...), args...)
		}, func(n int64) { raised += int(n) }, nil)
	return raised, err
}

// Raise implements store.Relayed.
func (h *Origin) Raise(ctx context.Context, of int, epoch store.Epoch, totals []store.Change) error {
	return h.inEpoch(ctx, of, epoch, func(s *shard, epochs []store.Epoch) error {
		return h.relay(ctx, "raise", of, len(totals), func(i int) *window.Cell { return &totals[i].Cell },
			func(p *pipeline, part *part) *redis.Cmd {
				args := append(make([]any, 0, 1+3*len(part.places)), formatEpoch(epochs[part.n]))
				for i, place := range part.places {
					t := totals[place]
					args = append(args, bounded(t.Total), bounded(t.Limit), s.expiresAtMs(t.Cell, part.keys[i]))
				}
				return p.eval(part.bucket, raiseScript, []string{part.healedKey, part.changesKey}, part.keys, args)
			}, nil, raised)
	})
}

// raised reads the answer to Raise.
func raised(r *scriptReply) error {
	if r.int() == 1 {
		return store.ErrEpoch
	}
	if problem := r.text(); problem != "" {
		return errors.New(problem)
	}
	return r.end()
}

// Healed implements store.Relayed.
func (h *Origin) Healed(ctx context.Context, of int, epoch store.Epoch) error {
	return h.inEpoch(ctx, of, epoch, func(s *shard, epochs []store.Epoch) error {
		p := s.pipeline(ctx)
		cmds := make([]*redis.Cmd, len(s.buckets))
		for i, b := range s.buckets {
			cmds[i] = p.eval(b, healedScript, []string{b.healedKey}, nil, []any{formatEpoch(epochs[i])})
		}
		p.exec()
		for i, b := range s.buckets {
			r, err := p.reply(b, cmds[i])
			if err == nil && r.int() == 1 {
				err = store.ErrEpoch
			}
			if err != nil {
				return fmt.Errorf("redisorigin: healed at %s: %w", s.where, err)
			}
		}
		return nil
	})
}

func (h *Origin) inEpoch(ctx context.Context, shard int, epoch store.Epoch,
	call func(*shard, []store.Epoch) error) error {
	s, err := h.shard(shard, 0, nil)
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return err
	}
	epochs := s.epochsOf(epoch)
	if epochs == nil {
		return fmt.Errorf("redisorigin: shard %d: %w", shard, store.ErrEpoch)
	}
	return call(s, epochs)
}

// relayCellsMax bounds the cells of one round trip of a call that may be repeated.
const relayCellsMax = 20 * callKeysMax

// relay makes a call that may be repeated, some thousand cells at a time; count is for answers that are one number,
// read for those with a head.
func (h *Origin) relay(ctx context.Context, what string, shard, n int, cell func(i int) *window.Cell,
	command func(*pipeline, *part) *redis.Cmd, count func(n int64), read func(*scriptReply) error) error {
	s, err := h.shard(shard, n, func(i int) *window.Key { return &cell(i).Key })
	if err != nil {
		return err
	}
	parts := s.split(n, cell)
	if n == 0 {
		return ctx.Err()
	}
	for some := range slices.Chunk(parts, relayCellsMax/callKeysMax) {
		p := s.pipeline(ctx)
		for _, part := range some {
			part.cmd = command(p, part)
		}
		p.exec()
		for _, part := range some {
			if err := p.done(part, count, read); err != nil {
				return s.failed(what, len(part.places), err)
			}
		}
	}
	return nil
}

// done is what went wrong with a part.
func (p *pipeline) done(part *part, count func(n int64), read func(*scriptReply) error) error {
	if count != nil {
		reply, err := replyOf(part.cmd, p.err)
		n, isCount := reply.(int64)
		switch {
		case err != nil:
			return err
		case !isCount:
			return errStrangeReply
		}
		count(n)
		return nil
	}
	r, err := p.reply(part.bucket, part.cmd)
	if err != nil {
		return err
	}
	return read(r)
}
