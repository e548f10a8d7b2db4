package redisorigin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirhq/weir/dataplane/internal/resend"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// sending is a part of a chunk on its way: the costs that a stream sends to a bucket.
type sending struct {
	*part
	costs []store.Cost // stamped; its own copy
	after store.Mark   // how far the stream should be; zero: unknown here
	err   error        // why it was not answered
}

// Send implements store.Origin. On a Cluster a chunk is sent in parts, one for each bucket. Each bucket numbers the
// stream's chunks by itself, so if only some parts were applied, they are not applied again.
func (h *Origin) Send(ctx context.Context, chunk store.Chunk) (store.Reply, error) {
	s, err := h.shard(chunk.Shard, len(chunk.Costs), func(i int) *window.Key { return &chunk.Costs[i].Cell.Key })
	if err == nil {
		err = checkChunk(&chunk)
	}
	if err != nil {
		return store.Reply{}, err
	}
	reply := store.Reply{Totals: make([]store.Total, len(chunk.Costs))}
	parts, err := s.sendings(ctx, &chunk)
	if err == nil {
		s.sendAll(ctx, &chunk, parts, &reply)
		err = s.failures(parts, &reply)
	}
	if err != nil && (parts == nil || !chunk.Bounded()) {
		return store.Reply{}, s.failed("send", len(chunk.Costs), err)
	}
	s.refuse(&chunk, &reply)
	return reply, nil
}

// failures returns why parts were not answered, gives their cells that error, and lists their epochs.
func (s *shard) failures(parts []*sending, reply *store.Reply) error {
	var errs []error
	for _, part := range parts {
		if part.err == nil {
			continue
		}
		errs = append(errs, part.err)
		if part.after.Epoch != 0 {
			reply.Unanswered = append(reply.Unanswered, part.after.Epoch)
		}
		err := notApplied(s.failed("send", len(part.places), part.err))
		for _, place := range part.places {
			reply.Totals[place] = store.Total{Err: err}
		}
	}
	return errors.Join(errs...)
}

// refuse answers the costs that are out of bounds, which were not sent.
func (s *shard) refuse(chunk *store.Chunk, reply *store.Reply) {
	for i := range chunk.Costs {
		c := &chunk.Costs[i]
		if err := checkCost(c); err != nil {
			epoch := store.Epoch(s.bucketOf(&c.Cell.Key).epoch.Load())
			reply.Totals[i] = store.Total{Epoch: epoch, Err: err}
		}
	}
}

func checkChunk(c *store.Chunk) error {
	switch {
	case c.Stream == 0:
		return errors.New("redisorigin: stream is 0, want any other number")
	case c.Number < 1 || c.Number > store.CountMax:
		return fmt.Errorf("redisorigin: number is %d (1 to %d)", c.Number, int64(store.CountMax))
	case len(c.Costs) > store.ChunkMax:
		return fmt.Errorf("redisorigin: a chunk of %d costs (0 to %d)", len(c.Costs), store.ChunkMax)
	}
	return nil
}

func checkCost(c *store.Cost) error {
	switch {
	case c.Add < 0 || c.Restore < 0 || c.Known < 0 || c.Limit < 0:
		return fmt.Errorf("redisorigin: send %v: add, restore, known and limit are %d, %d, %d and %d, want >= 0",
			c.Cell, c.Add, c.Restore, c.Known, c.Limit)
	case c.AtMost != 0 && (c.Add == 0 || c.Restore != 0 || c.Known != 0):
		return fmt.Errorf("redisorigin: send %v, bounded: add, restore and known are %d, %d and %d, want > 0, 0 and 0",
			c.Cell, c.Add, c.Restore, c.Known)
	}
	return nil
}

// sendings returns a chunk's parts, with its valid costs.
func (s *shard) sendings(ctx context.Context, chunk *store.Chunk) ([]*sending, error) {
	parts := s.parts(chunk)
	if slices.ContainsFunc(chunk.Costs, func(c store.Cost) bool { return c.Epoch == 0 && c.AtMost == 0 }) {
		for _, p := range parts {
			s.stampOf(p, chunk) // even if the next calls fail
		}
		if err := s.learnEpochs(ctx, parts); err != nil {
			return nil, err
		}
	}
	for _, p := range parts {
		s.stamp(p, chunk)
	}
	return parts, nil
}

// parts returns the parts of a chunk, and a part without cells for each other bucket that must be checked for the loss
// of chunks that it had answered.
func (s *shard) parts(chunk *store.Chunk) (parts []*sending) {
	marks := make(map[store.Epoch]store.Mark, len(chunk.After))
	for _, m := range chunk.After {
		marks[m.Epoch] = m
	}
	all := s.split(len(chunk.Costs), func(i int) *window.Cell { return &chunk.Costs[i].Cell })
	has := make(map[int]bool, len(all))
	for _, p := range all {
		has[p.n] = true
	}
	for _, b := range s.buckets {
		if m := marks[store.Epoch(b.epoch.Load())]; !has[b.n] && (m.Ask || b.n == 0 && len(all) == 0) {
			all = append(all, &part{bucket: b})
		}
	}
	for _, p := range all {
		parts = append(parts, &sending{part: p, after: marks[store.Epoch(p.epoch.Load())]})
	}
	return parts
}

// stamp copies a part's good costs, each with the epoch that it belongs to.
func (s *shard) stamp(p *sending, chunk *store.Chunk) {
	places, keys := p.places[:0], p.keys[:0]
	for i, place := range p.places {
		c := chunk.Costs[place]
		if checkCost(&c) != nil {
			continue
		}
		if c.Epoch == 0 && c.AtMost == 0 {
			c.Epoch = s.stampOf(p, chunk)
		}
		p.costs = append(p.costs, c)
		places, keys = append(places, place), append(keys, p.keys[i])
	}
	p.places, p.keys = places, keys
}

// stampOf returns the epoch in which a part was first sent, or 0 if the bucket has no epoch here yet.
func (s *shard) stampOf(p *sending, chunk *store.Chunk) store.Epoch {
	id := resend.ID{Stream: chunk.Stream, Shard: chunk.Shard, Bucket: p.n}
	return s.origin.stamps.Of(id, chunk.Number, store.Epoch(p.epoch.Load()), store.Epoch(p.first.Load()), time.Now())
}

// learnEpochs reads the epochs of buckets that have no epoch here yet.
func (s *shard) learnEpochs(ctx context.Context, parts []*sending) error {
	p := s.pipeline(ctx)
	asked := make(map[*bucket]*redis.Cmd)
	for _, part := range parts {
		if part.epoch.Load() == 0 && asked[part.bucket] == nil {
			asked[part.bucket] = p.eval(part.bucket, clockScript, nil, nil, nil)
		}
	}
	if len(asked) == 0 {
		return nil
	}
	p.exec()
	var errs []error
	for b, cmd := range asked {
		_, err := p.reply(b, cmd)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// sendAll sends parts in one round trip.
func (s *shard) sendAll(ctx context.Context, chunk *store.Chunk, parts []*sending, reply *store.Reply) {
	p := s.pipeline(ctx)
	all := make([]*part, len(parts))
	for i, part := range parts {
		all[i] = part.part
		part.cmd = s.queue(p, chunk, part)
	}
	p.askClock(all)
	p.exec()
	answered := false
	for _, part := range parts {
		part.err = s.sent(p, chunk, part, reply)
		answered = answered || part.err == nil
	}
	if answered {
		reply.Now = p.now()
	}
}

// queue adds a part's command.
func (s *shard) queue(p *pipeline, chunk *store.Chunk, part *sending) *redis.Cmd {
	repeats := 0
	if chunk.Repeats {
		repeats = 1
	}
	args := make([]any, 0, 6+8*len(part.keys))
	args = append(args, chunk.Number, part.after.Number, formatEpoch(part.after.Epoch), repeats,
		store.StreamKeptFor.Milliseconds(), store.StreamKeptMax.Milliseconds())
	for i := range part.costs {
		c := &part.costs[i]
		args = append(args, formatEpoch(c.Epoch), bounded(c.Add), bounded(c.Restore), bounded(c.Known), bounded(c.Limit),
			s.expiresAtMs(c.Cell, part.keys[i]), roomFor(c), formatHistory(&c.Cell, c.History))
	}
	return p.eval(part.bucket, sendScript, []string{part.streamKey(chunk.Stream), part.changesKey}, part.keys, args)
}

// roomFor returns the largest total to which a cost can be added, -1 if there is none, "" for any.
func roomFor(c *store.Cost) any {
	switch {
	case c.AtMost == 0:
		return ""
	case bounded(c.AtMost) < c.Add:
		return -1
	}
	return bounded(c.AtMost) - c.Add
}

// sent reads a part's answer.
func (s *shard) sent(p *pipeline, chunk *store.Chunk, part *sending, reply *store.Reply) error {
	r, err := p.reply(part.bucket, part.cmd)
	if err != nil {
		return err
	}
	last, lost := r.int(), r.int() == 1
	noted, problem, added := r.int() == 1, r.text(), r.text()
	bounds := chunk.Bounded()
	switch {
	case lost:
		reply.Behind = append(reply.Behind, store.Mark{Epoch: r.epoch, Number: last})
		for _, place := range part.places {
			reply.Totals[place] = store.Total{Epoch: r.epoch, Err: errBehind}
		}
		return r.end()
	case bounds && chunk.Number < last:
		return errLate
	case !noted && bounds: // added cost stands
		s.noteJunk(fmt.Errorf("redisorigin: %s: %w", part.changesKey, errJunk))
	case !noted:
		return fmt.Errorf("%s: changes cannot be noted: %s", part.changesKey, problem)
	}
	if err := s.totals(part.part, r, problem, reply); err != nil {
		return err
	}
	for i := range part.costs {
		total := &reply.Totals[part.places[i]]
		total.Added = part.costs[i].AtMost != 0 && total.Err == nil && i < len(added) && added[i] == '1'
	}
	return nil
}

var (
	errLate   = errors.New("a later chunk of the stream was applied")
	errBehind = errors.New("redisorigin: earlier chunks of the stream are missing")
)
