package redisorigin

import (
	"cmp"
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

// sending is a part of a chunk or of claims on its way: what a stream sends to one bucket in one command.
type sending struct {
	part
	id     resend.ID
	number int64
	costs  []store.Cost // stamped; its own copy; of claims, those that were added
	claims []store.Claim
	err    error // why it was not answered
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
	reply := newReply(len(chunk.Costs))
	parts, err := s.sendings(ctx, &chunk, &reply.Reply)
	if err == nil {
		err = s.sendAll(ctx, parts, reply)
	}
	if err != nil {
		return store.Reply{}, s.failed("send", len(chunk.Costs), err)
	}
	return reply.Reply, nil
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
	if c.Add < 0 || c.Restore < 0 || c.Known < 0 || c.Limit < 0 {
		return fmt.Errorf("redisorigin: send %v: add, restore, known and limit are %d, %d, %d and %d, want >= 0",
			c.Cell, c.Add, c.Restore, c.Known, c.Limit)
	}
	return nil
}

// sendings are a chunk's parts, with its good costs.
func (s *shard) sendings(ctx context.Context, chunk *store.Chunk, reply *store.Reply) ([]*sending, error) {
	parts := s.numbered(chunk, len(chunk.Costs), func(i int) *window.Cell { return &chunk.Costs[i].Cell })
	for _, p := range parts {
		s.stampOf(p) // also if what follows fails
	}
	if err := s.learnEpochs(ctx, chunk, parts); err != nil {
		return nil, err
	}
	for _, p := range parts {
		s.stamp(p, chunk, reply)
	}
	return parts, nil
}

// numbered are the parts of a call about n cells, and one without cells for each sequence of the stream that has to be
// asked whether it has lost what it had answered.
func (s *shard) numbered(chunk *store.Chunk, n int, cell func(i int) *window.Cell) (parts []*sending) {
	for _, p := range s.split(n, cell) {
		parts = append(parts, &sending{part: *p, id: s.id(chunk, p.n, p.index), number: chunk.Number})
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
func (s *shard) stamp(p *sending, chunk *store.Chunk, reply *store.Reply) {
	current := s.stampOf(p)
	places, keys := p.places[:0], p.keys[:0]
	for i, place := range p.places {
		c := chunk.Costs[place]
		if err := checkCost(&c); err != nil {
			reply.Totals[place] = store.Total{Epoch: store.Epoch(p.epoch.Load()), Err: err}
			continue
		}
		if c.Epoch == 0 {
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
	if !slices.ContainsFunc(chunk.Costs, func(c store.Cost) bool { return c.Epoch == 0 }) {
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
func (s *shard) sendAll(ctx context.Context, parts []*sending, reply *store.ClaimReply) error {
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
	var errs []error
	for _, part := range parts {
		errs = append(errs, part.err)
	}
	return errors.Join(errs...)
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
	args := make([]any, 0, 5+6*len(part.keys))
	args = append(args, part.number, after, formatEpoch(afterEpoch),
		store.StreamKeptFor.Milliseconds(), store.StreamKeptMax.Milliseconds())
	script := sendScript
	if part.claims != nil {
		script, args = claimScript, s.claimArgs(part, args)
	} else {
		args = s.costArgs(part, args)
	}
	return p.eval(part.bucket, script, []string{part.streamKey(part.id), part.changesKey}, part.keys, args)
}

// costArgs are what the script takes of a part's costs.
func (s *shard) costArgs(part *sending, args []any) []any {
	for i, c := range part.costs {
		args = append(args, formatEpoch(c.Epoch), bounded(c.Add), bounded(c.Restore), bounded(c.Known), bounded(c.Limit),
			s.expiresAtMs(c.Cell, part.keys[i]))
	}
	return args
}

// What a script answers beside the number before.
const (
	numberLost = 1 // it is less than was answered: nothing was done
	numberLate = 2 // it is more than the claims': nothing was done
)

// sent reads a part's answer; lost: the bucket has lost what came after chunk last, and has done nothing.
func (s *shard) sent(p *pipeline, part *sending, reply *store.ClaimReply) (last int64, lost bool, err error) {
	r, err := p.reply(part.bucket, part.cmd)
	if err != nil {
		return 0, false, err
	}
	last, state := r.int(), r.int()
	noted, problem := r.int() == 1, r.text()
	switch {
	case state == numberLost:
		return last, true, r.end()
	case state == numberLate:
		return last, false, cmp.Or(r.end(), errLate)
	case !noted && part.claims != nil: // the claims stand
		s.noteJunk(fmt.Errorf("redisorigin: %s: %w", part.changesKey, errJunk))
	case !noted:
		return last, false, fmt.Errorf("%s: changes cannot be noted: %s", part.changesKey, problem)
	}
	if part.claims != nil {
		err = s.claimed(part, r, problem, reply)
	} else {
		err = s.totals(&part.part, r, problem, &reply.Reply)
	}
	if err != nil {
		return 0, false, err
	}
	if s.origin.streams.Answered(part.id, part.number, r.epoch, part.costs, time.Now()) {
		reply.Repeated = true
	}
	return last, false, nil
}

// resendParts sends what the buckets have lost of each part's stream, as far as it is kept, and then the
// part. Each follows the one before it: where one fails, so do the next. What was answered may have the part's own
// number, where another part of its call got no answer.
func (s *shard) resendParts(ctx context.Context, parts []*sending, after []int64, reply *store.ClaimReply) {
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
func (s *shard) readResent(p *pipeline, chain []*sending, reply *store.ClaimReply) error {
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
