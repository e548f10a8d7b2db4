package redisorigin

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// part is the cells of a call that go in the same command: cells of the same bucket, at most callKeysMax.
type part struct {
	*bucket
	places []int // of its cells in the call
	keys   []string

	cmd *redis.Cmd
}

// keysAfter returns the keys of a script that has no epoch: first, the cells' keys, and the clock's key.
func (p *part) keysAfter(first string) []string {
	keys := append(make([]string, 0, 2+len(p.keys)), first)
	return append(append(keys, p.keys...), p.clockKey)
}

// split cuts a call's cells into parts.
func (s *shard) split(n int, cell func(i int) *window.Cell) []*part {
	return s.splitKeys(n, func(i int) *window.Key { return &cell(i).Key },
		func(names []string, b *bucket, i int) []string { return append(names, b.keys.key(*cell(i))) })
}

// splitKeys cuts a call's n keys into parts, and leaves out nil keys. Function name appends the server's names for the
// i-th key.
func (s *shard) splitKeys(n int, key func(i int) *window.Key,
	name func(names []string, b *bucket, i int) []string) []*part {
	var parts []*part
	open := make(map[*bucket]*part)
	for i := range n {
		key := key(i)
		if key == nil {
			continue
		}
		b := s.bucketOf(key)
		p := open[b]
		if p == nil || len(p.places) == callKeysMax {
			p = &part{bucket: b}
			open[b] = p
			parts = append(parts, p)
		}
		p.places = append(p.places, i)
		p.keys = name(p.keys, b, i)
	}
	return parts
}

// eval runs a script by itself.
func (s *shard) eval(ctx context.Context, script string, keys []string, args ...any) *redis.Cmd {
	if err := ctx.Err(); err != nil {
		cmd := redis.NewCmd(ctx)
		cmd.SetErr(err)
		return cmd
	}
	return s.client.Eval(ctx, script, keys, args...)
}

// pipeline is a round trip to a shard.
type pipeline struct {
	ctx   context.Context
	s     *shard
	pipe  redis.Pipeliner
	clock *redis.Cmd // of bucket 0, unless another command has it
	at    time.Time  // bucket 0's clock, once a reply with it was read
	err   error
}

func (s *shard) pipeline(ctx context.Context) *pipeline {
	return &pipeline{ctx: ctx, s: s, pipe: s.client.Pipeline()}
}

// eval adds a script whose keys begin with the bucket's epoch, and end with its clock, and whose arguments begin with a
// token for an epoch.
func (p *pipeline) eval(b *bucket, script string, keys, cells []string, args []any) *redis.Cmd {
	all := append(append(append(make([]string, 0, 2+len(keys)+len(cells)), b.epochKey), keys...), cells...)
	return p.pipe.Eval(p.ctx, script, append(all, b.clockKey), append([]any{p.s.newEpoch(b)}, args...)...)
}

func (p *pipeline) exec() {
	if err := p.ctx.Err(); err != nil {
		p.err = err
		return
	}
	_, p.err = p.pipe.Exec(p.ctx)
}

// reply reads a command's reply, and stores the bucket's epoch.
func (p *pipeline) reply(b *bucket, cmd *redis.Cmd) (*scriptReply, error) {
	r, err := scriptReplyOf(cmd, p.err)
	if err == nil {
		b.first.CompareAndSwap(0, uint32(r.epoch))
		b.epoch.Store(uint32(r.epoch))
		if b.n == 0 {
			p.at = r.now
		}
	}
	return r, err
}

// inBounds returns key, or nil if there is a problem with the call's item about the key. Then the problem is the item's
// answer.
func inBounds(key *window.Key, problem error, answer *error) *window.Key {
	if problem == nil {
		return key
	}
	*answer = fmt.Errorf("redisorigin: %w", problem)
	return nil
}

// ask is pipeline.call in a pipeline that also reads bucket 0's clock.
func (s *shard) ask(ctx context.Context, parts []*part, command func(*pipeline, *part) *redis.Cmd,
	read func(*part, *scriptReply) error) (now time.Time, err error) {
	p := s.pipeline(ctx)
	p.askClock(parts)
	err = p.call(parts, command, read)
	return p.now(), err
}

// send sends a command for each part in one round trip.
func (p *pipeline) send(parts []*part, command func(*pipeline, *part) *redis.Cmd) {
	for _, part := range parts {
		part.cmd = command(p, part)
	}
	p.exec()
}

// call sends a command for each part in one round trip, and passes each part's reply to read. It returns the first
// error.
func (p *pipeline) call(parts []*part, command func(*pipeline, *part) *redis.Cmd,
	read func(*part, *scriptReply) error) error {
	p.send(parts, command)
	for _, part := range parts {
		r, err := p.reply(part.bucket, part.cmd)
		if err == nil {
			err = read(part, r)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// askClock adds a read of bucket 0's clock, unless one of the parts reads it.
func (p *pipeline) askClock(parts []*part) {
	for _, part := range parts {
		if part.n == 0 {
			return
		}
	}
	p.clock = p.eval(p.s.buckets[0], clockScript, nil, nil, nil)
}

// now returns bucket 0's clock, or the zero time if there was no answer.
func (p *pipeline) now() time.Time {
	if p.clock != nil {
		_, _ = p.reply(p.s.buckets[0], p.clock)
	}
	return p.at
}

// Read implements store.Origin. A Total has an Err if its key holds anything but counts.
func (h *Origin) Read(ctx context.Context, cells []window.Cell) (store.Reply, error) {
	if len(cells) == 0 {
		return store.Reply{}, nil
	}
	s, err := h.shard(h.ShardOf(&cells[0].Key), len(cells), func(i int) *window.Key { return &cells[i].Key })
	if err != nil {
		return store.Reply{}, err
	}
	parts := s.split(len(cells), func(i int) *window.Cell { return &cells[i] })
	reply := store.Reply{Totals: make([]store.Total, len(cells))}
	reply.Now, err = s.ask(ctx, parts, func(p *pipeline, part *part) *redis.Cmd {
		return p.eval(part.bucket, readScript, nil, part.keys, nil)
	}, func(part *part, r *scriptReply) error { return s.totals(part, r, "", &reply) })
	if err != nil {
		return store.Reply{}, s.failed("read", len(cells), err)
	}
	return reply, nil
}

// totals reads a part's answers into their places.
func (s *shard) totals(part *part, r *scriptReply, problem string, into *store.Reply) error {
	for i, key := range part.keys {
		total := r.total(key, problem)
		if history := r.text(); total.Err == nil {
			total.History = parseHistory(history)
		}
		s.noteJunk(total.Err)
		into.Totals[part.places[i]] = total
	}
	return r.end()
}
