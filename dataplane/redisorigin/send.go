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

// sending is a part of a chunk on its way: what a stream sends to one bucket in one command.
type sending struct {
	part
	id     resend.ID
	number int64
	costs  []store.Cost // stamped; its own copy
	bounds bool         // the chunk has bounded costs
	err    error        // why it was not answered
}

// Send implements store.Origin. A chunk of more than 500 cells is sent in parts, on a Cluster one for
// each bucket at least: each part is numbered by itself, so that one that was applied is not applied again where
// another was not.
func (h *Origin) Send(ctx context.Context, chunk store.Chunk) (store.Reply, error) {
	s, err := h.shard(chunk.Shard, len(chunk.Costs), func(i int) *window.Key { return &chunk.Costs[i].Cell.Key })
	if err == nil {
		err = checkNumber(chunk.Stream, chunk.Number)
	}
	if err != nil {
		return store.Reply{}, err
	}
	reply := store.Reply{Totals: make([]store.Total, len(chunk.Costs))}
	parts, err := s.sendings(ctx, &chunk)
	if err == nil {
		s.sendAll(ctx, parts, &reply)
		err = s.failures(parts, &reply)
	}
	if err != nil && (parts == nil || !chunk.Bounded()) {
		return store.Reply{}, s.failed("send", len(chunk.Costs), err)
	}
	s.refuse(&chunk, &reply)
	return reply, nil
}

// failures returns why parts were not answered, and gives their cells that error.
func (s *shard) failures(parts []*sending, reply *store.Reply) error {
	var errs []error
	for _, part := range parts {
		if part.err == nil {
			continue
		}
		errs = append(errs, part.err)
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

func checkNumber(stream uint64, number int64) error {
	switch {
	case stream == 0:
		return errors.New("redisorigin: stream is 0, want any other number")
	case number < 1 || number > store.CountMax:
		return fmt.Errorf("redisorigin: number is %d (1 to %d)", number, int64(store.CountMax))
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

// sendings are a chunk's parts, with its good costs.
func (s *shard) sendings(ctx context.Context, chunk *store.Chunk) ([]*sending, error) {
	parts := s.numbered(chunk)
	for _, p := range parts {
		s.stampOf(p) // also if what follows fails
	}
	if err := s.learnEpochs(ctx, chunk, parts); err != nil {
		return nil, err
	}
	for _, p := range parts {
		s.stamp(p, chunk)
	}
	return parts, nil
}

// numbered are the parts of a chunk, and one without cells for each sequence of the stream that has to be
// asked whether it has lost what it had answered.
func (s *shard) numbered(chunk *store.Chunk) (parts []*sending) {
	n, bounds := len(chunk.Costs), chunk.Bounded()
	for _, p := range s.split(n, func(i int) *window.Cell { return &chunk.Costs[i].Cell }) {
		parts = append(parts, &sending{part: *p, id: s.id(chunk, p.n, p.index), number: chunk.Number, bounds: bounds})
	}
	if len(parts) == 0 {
		parts = append(parts, &sending{part: part{bucket: s.buckets[0]}, id: s.id(chunk, 0, 0), number: chunk.Number})
	}
	for _, id := range s.silent(chunk, n) {
		if !slices.ContainsFunc(parts, func(p *sending) bool { return p.id == id }) {
			parts = append(parts, &sending{part: part{bucket: s.buckets[id.Bucket]}, id: id, number: chunk.Number})
		}
	}
	return parts
}

func (s *shard) id(chunk *store.Chunk, bucket, part int) resend.ID {
	return resend.ID{Stream: chunk.Stream, Shard: chunk.Shard, Bucket: bucket, Part: part}
}

// silent are sequences that keep chunks and were not answered for a while.
func (s *shard) silent(chunk *store.Chunk, cells int) []resend.ID {
	atLeast := store.KeepFor / 2
	if cells == 0 {
		atLeast = 0
	}
	return s.origin.streams.Untouched(chunk.Stream, chunk.Shard, atLeast, time.Now())
}

// stamp copies a part's good costs, each with the epoch that it belongs to.
func (s *shard) stamp(p *sending, chunk *store.Chunk) {
	current := s.stampOf(p)
	places, keys := p.places[:0], p.keys[:0]
	for i, place := range p.places {
		c := chunk.Costs[place]
		if checkCost(&c) != nil {
			continue
		}
		if c.Epoch == 0 && c.AtMost == 0 {
			c.Epoch = current
		}
		p.costs = append(p.costs, c)
		places, keys = append(places, place), append(keys, p.keys[i])
	}
	p.places, p.keys = places, keys
}

// stampOf is the epoch that a part was first sent in, 0 if the bucket's is not known.
func (s *shard) stampOf(p *sending) store.Epoch {
	return s.origin.streams.Stamp(p.id, p.number, store.Epoch(p.epoch.Load()), store.Epoch(p.first.Load()), time.Now())
}

// learnEpochs asks for the epochs of buckets that are not known yet, if a chunk has costs that need one.
func (s *shard) learnEpochs(ctx context.Context, chunk *store.Chunk, parts []*sending) error {
	if !slices.ContainsFunc(chunk.Costs, func(c store.Cost) bool { return c.Epoch == 0 && c.AtMost == 0 }) {
		return nil
	}
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

// sendAll sends parts in one round trip, and in another one those that have to wait for chunks that were lost.
func (s *shard) sendAll(ctx context.Context, parts []*sending, reply *store.Reply) {
	p := s.pipeline(ctx)
	for _, part := range parts {
		number, epoch := s.origin.streams.Last(part.id)
		part.cmd = s.queue(p, part, number, epoch)
	}
	if len(s.buckets) > 1 {
		p.askClock(partsOf(parts))
	}
	p.exec()
	reply.Now = p.now()
	var behind []*sending
	var after []int64
	for _, part := range parts {
		last, lost, err := s.sent(p, part, reply)
		if part.err = err; lost {
			behind, after = append(behind, part), append(after, last)
		}
	}
	if len(behind) > 0 {
		s.resendParts(ctx, behind, after, reply)
	}
}

func partsOf(sendings []*sending) []*part {
	parts := make([]*part, len(sendings))
	for i, s := range sendings {
		parts[i] = &s.part
	}
	return parts
}

// queue adds a part's command.
func (s *shard) queue(p *pipeline, part *sending, after int64, afterEpoch store.Epoch) *redis.Cmd {
	args := make([]any, 0, 5+7*len(part.keys))
	args = append(args, part.number, after, formatEpoch(afterEpoch),
		store.StreamKeptFor.Milliseconds(), store.StreamKeptMax.Milliseconds())
	for i := range part.costs {
		c := &part.costs[i]
		args = append(args, formatEpoch(c.Epoch), bounded(c.Add), bounded(c.Restore), bounded(c.Known), bounded(c.Limit),
			s.expiresAtMs(c.Cell, part.keys[i]), roomFor(c))
	}
	return p.eval(part.bucket, sendScript, []string{part.streamKey(part.id), part.changesKey}, part.keys, args)
}

// roomFor is the largest total that a cost can be added to, -1 if there is none, "" for any.
func roomFor(c *store.Cost) any {
	switch {
	case c.AtMost == 0:
		return ""
	case bounded(c.AtMost) < c.Add:
		return -1
	}
	return bounded(c.AtMost) - c.Add
}

// sent reads a part's answer; lost: the bucket has lost what came after chunk last, and has done nothing.
func (s *shard) sent(p *pipeline, part *sending, reply *store.Reply) (last int64, lost bool, err error) {
	r, err := p.reply(part.bucket, part.cmd)
	if err != nil {
		return 0, false, err
	}
	last, lost = r.int(), r.int() == 1
	noted, problem, added := r.int() == 1, r.text(), r.text()
	switch {
	case lost:
		return last, true, r.end()
	case part.bounds && part.number < last:
		return last, false, errLate
	case !noted && part.bounds: // what was added stands
		s.noteJunk(fmt.Errorf("redisorigin: %s: %w", part.changesKey, errJunk))
	case !noted:
		return last, false, fmt.Errorf("%s: changes cannot be noted: %s", part.changesKey, problem)
	}
	if err := s.totals(&part.part, r, problem, reply); err != nil {
		return 0, false, err
	}
	costs := part.costs
	if part.bounds {
		costs = part.decided(added, r.epoch, reply)
	}
	if s.origin.streams.Answered(part.id, part.number, r.epoch, costs, time.Now()) {
		reply.Repeated = true
	}
	return last, false, nil
}

var errLate = errors.New("a later chunk of the stream was applied")

// decided notes which bounded costs were added, by the digits of the script's answer. It returns the costs as they are
// to be applied again: those that were added, without their bounds, and all others.
func (p *sending) decided(added string, epoch store.Epoch, reply *store.Reply) (costs []store.Cost) {
	for i, c := range p.costs {
		if c.AtMost != 0 {
			total := &reply.Totals[p.places[i]]
			if total.Added = total.Err == nil && i < len(added) && added[i] == '1'; !total.Added {
				continue
			}
			c.Epoch, c.AtMost = epoch, 0
		}
		costs = append(costs, c)
	}
	return costs
}

// decideAs has a part's bounded costs decided as they were answered before: those among applied are added, and the
// others are not.
func (p *sending) decideAs(applied []store.Cost) {
	for i := range p.costs {
		c := &p.costs[i]
		was := len(applied) > 0 && applied[0].Cell == c.Cell && applied[0].Add == c.Add
		if c.AtMost != 0 && was {
			c.AtMost = store.CountMax
		} else if c.AtMost != 0 {
			c.AtMost = -1
			continue
		}
		if was {
			applied = applied[1:]
		}
	}
}

// resendParts sends what the buckets have lost of each part's stream, as far as it is kept, and then the
// part. Each follows the one before it: where one fails, so do the next. What was answered may have the part's own
// number, where another part of its call got no answer.
func (s *shard) resendParts(ctx context.Context, parts []*sending, after []int64, reply *store.Reply) {
	p := s.pipeline(ctx)
	again := make([][]*sending, len(parts))
	for i, part := range parts {
		number, epoch := after[i], store.Epoch(part.epoch.Load())
		for _, kept := range s.origin.streams.After(part.id, number) {
			switch {
			case kept.Number < part.number:
				again[i] = append(again[i], s.kept(part, kept))
			case kept.Number == part.number:
				part.decideAs(kept.Costs)
			}
		}
		again[i] = append(again[i], part)
		for _, one := range again[i] {
			one.cmd = s.queue(p, one, number, epoch)
			number = one.number
		}
	}
	p.exec()
	for i, part := range parts {
		part.err = s.readResent(p, again[i], reply)
	}
}

// readResent reads the answers to a part and to what was sent before it.
func (s *shard) readResent(p *pipeline, chain []*sending, reply *store.Reply) error {
	var errs []error
	for _, one := range chain {
		_, lost, err := s.sent(p, one, reply)
		if lost {
			err = errLostAgain
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("chunk %d, sent again after a failover: %w", one.number, err))
		}
	}
	return errors.Join(errs...)
}

var errLostAgain = errors.New("chunks before it are missing")

// kept is a chunk that was answered, for the sequence of a part.
func (s *shard) kept(of *sending, c resend.Chunk) *sending {
	again := &sending{part: part{bucket: of.bucket}, id: of.id, number: c.Number, costs: c.Costs}
	for _, cost := range c.Costs {
		again.keys = append(again.keys, of.bucket.keys.key(cost.Cell))
	}
	return again
}
