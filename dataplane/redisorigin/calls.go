package redisorigin

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// part is one command's worth of a call's cells: of one bucket, at most callKeysMax.
type part struct {
	*bucket
	index  int   // among the bucket's parts
	places []int // of its cells in the call
	keys   []string

	cmd *redis.Cmd
}

// split cuts a call's cells into parts, always in the same way.
func (s *shard) split(n int, cell func(i int) *window.Cell) []*part {
	var parts []*part
	open, counts := make(map[int]*part), make(map[int]int)
	for i := range n {
		c := cell(i)
		b := s.bucketOf(&c.Key)
		p := open[b.n]
		if p == nil || len(p.places) == callKeysMax {
			p = &part{bucket: b, index: counts[b.n]}
			counts[b.n]++
			open[b.n] = p
			parts = append(parts, p)
		}
		p.places = append(p.places, i)
		p.keys = append(p.keys, b.keys.key(*c))
	}
	return parts
}

// pipeline is one round trip to a shard.
type pipeline struct {
	ctx   context.Context
	s     *shard
	pipe  redis.Pipeliner
	clock *redis.Cmd // of bucket 0, unless another command tells
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
	}
	return r, err
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

// now is the clock that was asked for, zero if it was not answered.
func (p *pipeline) now() time.Time {
	if p.clock != nil {
		if r, err := p.reply(p.s.buckets[0], p.clock); err == nil {
			return r.now
		}
	}
	return time.Time{}
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
	p := s.pipeline(ctx)
	p.askClock(parts)
	for _, part := range parts {
		part.cmd = p.eval(part.bucket, readScript, nil, part.keys, nil)
	}
	p.exec()
	reply := store.Reply{Totals: make([]store.Total, len(cells)), Now: p.now()}
	for _, part := range parts {
		r, err := p.reply(part.bucket, part.cmd)
		if err == nil {
			err = s.totals(part, r, "", &reply)
		}
		if err != nil {
			return store.Reply{}, s.failed("read", len(cells), err)
		}
	}
	return reply, nil
}

// totals reads a part's answers into their places, if they have any.
func (s *shard) totals(part *part, r *scriptReply, problem string, into *store.Reply) error {
	for i, key := range part.keys {
		total := r.total(key, problem)
		if s.noteJunk(total.Err); len(part.places) > 0 {
			into.Totals[part.places[i]] = total
		}
	}
	if part.n == 0 {
		into.Now = r.now
	}
	return r.end()
}
