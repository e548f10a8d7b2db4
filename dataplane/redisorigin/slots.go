package redisorigin

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// States of a script's answer about slots.
const (
	slotsApplied = iota
	slotsRecovering
	slotsLate
	slotsJunk
)

// Slots implements store.Granter.
func (h *Origin) Slots(ctx context.Context, shard int, call store.SlotsCall) (store.SlotsReply, error) {
	reply := store.SlotsReply{Answers: make([]store.SlotsAnswer, len(call.Asks))}
	if len(call.Asks) == 0 {
		return reply, nil
	}
	if err := store.CheckSlotsCall(&call); err != nil {
		return store.SlotsReply{}, fmt.Errorf("redisorigin: %w", err)
	}
	s, err := h.shard(shard, len(call.Asks), func(i int) *window.Key { return &call.Asks[i].Key })
	if err != nil {
		return store.SlotsReply{}, err
	}
	parts := s.splitKeys(len(call.Asks), func(i int) *window.Key {
		ask := &call.Asks[i]
		return inBounds(&ask.Key, store.CheckSlotsAsk(ask), &reply.Answers[i].Err)
	}, func(names []string, b *bucket, i int) []string { return b.appendSlots(names, &call.Asks[i].Key) })
	reply.Now, err = s.ask(ctx, parts,
		func(p *pipeline, part *part) *redis.Cmd { return queueSlots(p, part, &call) },
		func(part *part, r *scriptReply) error { return s.slotsAnswers(part, r, &reply) })
	if err != nil {
		return store.SlotsReply{}, s.failed("slots of", len(call.Asks), err)
	}
	return reply, nil
}

// appendSlots appends where the slots and the leases of a key are.
func (b *bucket) appendSlots(names []string, key *window.Key) []string {
	return append(names, b.nameOf("slots", key), b.nameOf("leases", key))
}

// nameOf is where the slots, or the leases, of a key are.
func (b *bucket) nameOf(what string, key *window.Key) string {
	name := append(make([]byte, 0, len(b.heldHead)+128), b.heldHead...)
	name = append(append(name, what...), ":{"...)
	name = append(appendEscaped(name, key.Workspace), ':')
	name = append(appendEscaped(name, key.Namespace), ':')
	return string(append(appendEscaped(name, key.Identifier), '}'))
}

func queueSlots(p *pipeline, part *part, call *store.SlotsCall) *redis.Cmd {
	args := make([]any, 0, 3+5*len(part.places))
	args = append(args, strconv.FormatUint(call.Node, 16), call.Number, store.SlotsStarvedFor.Milliseconds())
	for _, place := range part.places {
		a := &call.Asks[place]
		args = append(args, a.Limit, a.Have, a.Want, a.Spare, a.TTL.Milliseconds())
	}
	return p.eval(part.bucket, slotsScript, []string{part.sinceKey}, part.keys, args)
}

// slotsProblem is what a state says about the slots of a key.
func (s *shard) slotsProblem(key string, state int64, r *scriptReply) (err error) {
	switch state {
	case slotsApplied:
	case slotsRecovering:
		err = store.ErrRecovering
	case slotsLate:
		err = store.ErrSlotsLate
	case slotsJunk:
		err = fmt.Errorf("redisorigin: %s: %w", key, errJunk)
		s.noteJunk(err)
	default:
		r.bad = true
	}
	return err
}

// slotsAnswers reads a part's answers into their places.
func (s *shard) slotsAnswers(part *part, r *scriptReply, reply *store.SlotsReply) error {
	for i, place := range part.places {
		state := r.int()
		reply.Answers[place] = store.SlotsAnswer{Held: r.int(), Others: r.int(), Starved: r.int() == 1,
			RetryIn: time.Duration(r.int()) * time.Millisecond, Err: s.slotsProblem(part.keys[2*i], state, r)}
	}
	return r.end()
}
