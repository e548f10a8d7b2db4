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

// States in the script's answer to a request.
const (
	grantApplied = iota
	grantRecovering
	grantLate
	grantJunk
)

// Grants implements store.Granter.
func (h *Origin) Grants(ctx context.Context, shard int, call store.GrantCall) (store.GrantReply, error) {
	reply := store.GrantReply{Answers: make([]store.GrantAnswer, len(call.Asks))}
	if len(call.Asks) == 0 {
		return reply, nil
	}
	if err := store.CheckGrantCall(&call); err != nil {
		return store.GrantReply{}, fmt.Errorf("redisorigin: %w", err)
	}
	s, err := h.shard(shard, len(call.Asks), func(i int) *window.Key { return &call.Asks[i].Key })
	if err != nil {
		return store.GrantReply{}, err
	}
	parts := s.splitKeys(len(call.Asks), func(i int) *window.Key {
		ask := &call.Asks[i]
		return inBounds(&ask.Key, store.CheckGrantAsk(ask), &reply.Answers[i].Err)
	}, func(names []string, b *bucket, i int) []string {
		key := &call.Asks[i].Key
		return append(names, b.nameOf("slots", key), b.nameOf("leases", key))
	})
	reply.Now, err = s.ask(ctx, parts,
		func(p *pipeline, part *part) *redis.Cmd { return queueGrants(p, part, &call) },
		func(part *part, r *scriptReply) error { return s.grantAnswers(part, r, &reply) })
	if err != nil {
		return store.GrantReply{}, s.failed("grants of", len(call.Asks), err)
	}
	return reply, nil
}

// nameOf returns the key of the nodes' slots of a key, or of its leases.
func (b *bucket) nameOf(what string, key *window.Key) string {
	name := append(make([]byte, 0, len(b.heldHead)+128), b.heldHead...)
	name = append(append(name, what...), ":{"...)
	name = append(appendEscaped(name, key.Workspace), ':')
	name = append(appendEscaped(name, key.Namespace), ':')
	return string(append(appendEscaped(name, key.Identifier), '}'))
}

func queueGrants(p *pipeline, part *part, call *store.GrantCall) *redis.Cmd {
	args := make([]any, 0, 4+6*len(part.places))
	args = append(args, strconv.FormatUint(call.Node, 16), call.Number, store.GrantStarvedFor.Milliseconds(),
		store.GrantKeptFor.Milliseconds())
	for _, place := range part.places {
		a := &call.Asks[place]
		args = append(args, a.Lease, a.Limit, a.Have, a.Want, a.Spare, a.TTL.Milliseconds())
	}
	return p.eval(part.bucket, grantsScript, []string{part.sinceKey}, part.keys, args)
}

// grantAnswers reads a part's answers into their places.
func (s *shard) grantAnswers(part *part, r *scriptReply, reply *store.GrantReply) error {
	for i, place := range part.places {
		state, a := r.int(), &reply.Answers[place]
		*a = store.GrantAnswer{Held: r.int(), Others: r.int(), Starved: r.int() == 1,
			RetryIn: time.Duration(r.int()) * time.Millisecond}
		switch state {
		case grantApplied:
		case grantRecovering:
			a.Err = store.ErrRecovering
		case grantLate:
			a.Err = store.ErrGrantLate
		case grantJunk:
			junk := part.keys[2*i+min(1, int(a.Held))] // of nodes, or of leases
			a.Held, a.Err = 0, fmt.Errorf("redisorigin: %s: %w", junk, errJunk)
			s.noteJunk(a.Err)
		default:
			r.bad = true
		}
	}
	return r.end()
}
