package redisorigin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

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
	r := scriptReply{rest: pair}
	lease := store.Lease{Holder: r.text(), Left: time.Duration(r.int()) * time.Millisecond}
	if r.end() != nil || lease.Left < 0 {
		return store.Lease{}, fmt.Errorf("redisorigin: lease of shard %d: %w", shard, errStrangeReply)
	}
	return lease, nil
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
	b := s.buckets[0]
	keys := []string{b.leaseKey}
	if script == leaseScript {
		keys = append(keys, b.leasedKey, b.clockKey)
	}
	return s.eval(ctx, script, keys, args...).Result()
}

// Ack implements store.Relayed.
func (h *Origin) Ack(ctx context.Context, shard int, cells []store.Change) error {
	return h.relay(ctx, "ack", shard, len(cells), func(i int) *window.Cell { return &cells[i].Cell },
		func(p *pipeline, part *part) *redis.Cmd {
			args := make([]any, 0, 2*len(part.places))
			for _, place := range part.places {
				args = append(args, bounded(cells[place].Total), bounded(cells[place].Limit))
			}
			return p.pipe.Eval(p.ctx, ackScript, part.keysAfter(part.changesKey), args...)
		}, func(p *pipeline, part *part) error {
			_, err := p.number(part)
			return err
		})
}

// Apply implements store.Relayed.
func (h *Origin) Apply(ctx context.Context, shard int, totals []store.Foreign) (raised int, err error) {
	err = h.relay(ctx, "apply", shard, len(totals), func(i int) *window.Cell { return &totals[i].Cell },
		func(p *pipeline, part *part) *redis.Cmd {
			args := append(make([]any, 0, 1+2*len(part.places)), p.s.channel)
			for i, place := range part.places {
				args = append(args, bounded(totals[place].Count), p.s.expiresAtMs(totals[place].Cell, part.keys[i]))
			}
			return p.pipe.Eval(p.ctx, applyScript, part.keysAfter(part.epochKey), args...)
		}, func(p *pipeline, part *part) error {
			n, err := p.number(part)
			raised += int(n)
			return err
		})
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
			}, raised)
	})
}

// raised reads the answer to Raise.
func raised(p *pipeline, part *part) error {
	r, err := p.reply(part.bucket, part.cmd)
	if err != nil {
		return err
	}
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
		err := s.pipeline(ctx).call(s.eachBucket(0), func(p *pipeline, part *part) *redis.Cmd {
			return p.eval(part.bucket, healedScript, []string{part.healedKey}, nil, []any{formatEpoch(epochs[part.n])})
		}, func(_ *part, r *scriptReply) error {
			if r.int() == 1 {
				return store.ErrEpoch
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("redisorigin: healed at %s: %w", s.where, err)
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
	epochs := []store.Epoch{epoch}
	if len(s.buckets) > 1 {
		epochs = s.seen.of(epoch)
	}
	if epochs == nil {
		return fmt.Errorf("redisorigin: shard %d: %w", shard, store.ErrEpoch)
	}
	return call(s, epochs)
}

// relayCellsMax bounds the cells of a round trip of a call that may be repeated.
const relayCellsMax = 20 * callKeysMax

// relay makes a call that may be repeated, some thousand cells at a time.
func (h *Origin) relay(ctx context.Context, what string, shard, n int, cell func(i int) *window.Cell,
	command func(*pipeline, *part) *redis.Cmd, read func(*pipeline, *part) error) error {
	s, err := h.shard(shard, n, func(i int) *window.Key { return &cell(i).Key })
	if err != nil {
		return err
	}
	if n == 0 {
		return ctx.Err()
	}
	for some := range slices.Chunk(s.split(n, cell), relayCellsMax/callKeysMax) {
		p := s.pipeline(ctx)
		p.send(some, command)
		for _, part := range some {
			if err := read(p, part); err != nil {
				return s.failed(what, len(part.places), err)
			}
		}
	}
	return nil
}

// number reads a part's answer that is a single number.
func (p *pipeline) number(part *part) (int64, error) {
	reply, err := replyOf(part.cmd, p.err)
	if n, isNumber := reply.(int64); err != nil || isNumber {
		return n, err
	}
	return 0, errStrangeReply
}
