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
	slotsYoung
	slotsLate
	slotsJunk
)

// Slots implements store.Origin.
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
	parts := s.splitSlots(&call, &reply)
	p := s.pipeline(ctx)
	p.askClock(parts)
	for _, part := range parts {
		part.cmd = s.queueSlots(p, part, &call)
	}
	p.exec()
	reply.Now = p.now()
	for _, part := range parts {
		r, err := p.reply(part.bucket, part.cmd)
		if err == nil {
			err = s.slotsAnswers(part, r, &reply)
		}
		if err != nil {
			return store.SlotsReply{}, s.failed("slots of", len(call.Asks), err)
		}
	}
	return reply, nil
}

// splitSlots cuts the asks that are in bounds into parts, and answers the others.
func (s *shard) splitSlots(call *store.SlotsCall, reply *store.SlotsReply) (parts []*part) {
	open := make(map[int]*part)
	for i := range call.Asks {
		ask := &call.Asks[i]
		if err := store.CheckSlotsAsk(ask); err != nil {
			reply.Answers[i].Err = fmt.Errorf("redisorigin: %w", err)
			continue
		}
		b := s.bucketOf(&ask.Key)
		p := open[b.n]
		if p == nil || len(p.places) == callKeysMax {
			p = &part{bucket: b}
			open[b.n] = p
			parts = append(parts, p)
		}
		p.places = append(p.places, i)
		p.keys = append(p.keys, b.slotsKey(&ask.Key))
	}
	return parts
}

// slotsKey is where the slots of a key are.
func (b *bucket) slotsKey(key *window.Key) string {
	name := append(make([]byte, 0, len(b.heldHead)+128), b.heldHead...)
	name = append(name, "slots:{"...)
	name = append(appendEscaped(name, key.Workspace), ':')
	name = append(appendEscaped(name, key.Namespace), ':')
	return string(append(appendEscaped(name, key.Identifier), '}'))
}

func (s *shard) queueSlots(p *pipeline, part *part, call *store.SlotsCall) *redis.Cmd {
	args := make([]any, 0, 3+5*len(part.places))
	args = append(args, strconv.FormatUint(call.Node, 16), call.Number, store.SlotsStarvedFor.Milliseconds())
	for _, place := range part.places {
		a := &call.Asks[place]
		args = append(args, a.Limit, a.Have, a.Want, a.Spare, a.TTL.Milliseconds())
	}
	return p.eval(part.bucket, slotsScript, []string{part.bornKey}, part.keys, args)
}

// slotsAnswers reads a part's answers into their places.
func (s *shard) slotsAnswers(part *part, r *scriptReply, reply *store.SlotsReply) error {
	for i, place := range part.places {
		state := r.int()
		a := store.SlotsAnswer{Held: r.int(), Others: r.int(), Starved: r.int() == 1,
			RetryIn: time.Duration(r.int()) * time.Millisecond}
		switch state {
		case slotsApplied:
		case slotsYoung:
			a.Err = store.ErrYoung
		case slotsLate:
			a.Err = store.ErrSlotsLate
		case slotsJunk:
			a.Err = fmt.Errorf("redisorigin: %s: %w", part.keys[i], errJunk)
			s.noteJunk(a.Err)
		default:
			r.bad = true
		}
		reply.Answers[place] = a
	}
	if part.n == 0 {
		reply.Now = r.now
	}
	return r.end()
}
