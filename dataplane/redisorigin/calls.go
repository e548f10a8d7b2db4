package redisorigin

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// part is one command's worth of a call's cells: of one bucket, at most callKeysMax.
type part struct {
	*bucket
	places []int // of its cells in the call
	keys   []string

	cmd *redis.Cmd
}

// split cuts a call's cells into parts.
func (s *shard) split(n int, cell func(i int) *window.Cell) []*part {
	return s.splitKeys(n, func(i int) *window.Key { return &cell(i).Key },
		func(names []string, b *bucket, i int) []string { return append(names, b.keys.key(*cell(i))) })
}

// splitKeys cuts what a call says about n keys into parts, and leaves out keys that are nil.
// Function name appends what the i-th key has at the server.
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

// pipeline is one round trip to a shard.
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

// eval adds a script whose keys begin with the bucket's epoch and whose arguments with a token for one.
func (p *pipeline) eval(b *bucket, script string, keys, cells []string, args []any) *redis.Cmd {
	all := append(append(append(make([]string, 0, 1+len(keys)+len(cells)), b.epochKey), keys...), cells...)
	return p.pipe.Eval(p.ctx, script, all, append([]any{p.s.newEpoch(b)}, args...)...)
}

func (p *pipeline) exec() {
	if err := p.ctx.Err(); err != nil {
		p.err = err
		return
	}
	_, p.err = p.pipe.Exec(p.ctx)
}

// reply reads a command's, and remembers the bucket's epoch.
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

// ask is pipeline.call in a pipeline that has bucket 0's clock too.
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

// call sends a command for each part in one round trip, and has read take each part's reply. It returns the first
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

// askClock asks bucket 0 for its clock unless one of the parts does.
func (p *pipeline) askClock(parts []*part) {
	for _, part := range parts {
		if part.n == 0 {
			return
		}
	}
	p.clock = p.eval(p.s.buckets[0], clockScript, nil, nil, nil)
}

// now is bucket 0's clock, zero if it was not answered.
func (p *pipeline) now() time.Time {
	if p.clock != nil {
		_, _ = p.reply(p.s.buckets[0], p.clock)
	}
	return p.at
}

// Read implements store.Origin. A Total has an Err where a key holds something else than counts.
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
		s.noteJunk(total.Err)
		into.Totals[part.places[i]] = total
	}
	return r.end()
}
