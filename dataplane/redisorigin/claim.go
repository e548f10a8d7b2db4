package redisorigin

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// Claim implements store.Origin. Claims go in parts, as chunks do.
func (h *Origin) Claim(ctx context.Context, call store.Claims) store.ClaimReply {
	claims := call.Claims
	reply := newReply(len(claims))
	if len(claims) == 0 {
		return *reply
	}
	id := h.ShardOf(&claims[0].Cell.Key)
	s, err := h.shard(id, len(claims), func(i int) *window.Key { return &claims[i].Cell.Key })
	if err == nil {
		err = checkNumber(call.Stream, call.Number)
	}
	places := make([]int, 0, len(claims)) // of those that may be sent
	for i := range claims {
		if reply.Totals[i].Err = cmp.Or(err, checkClaim(&claims[i])); reply.Totals[i].Err == nil {
			places = append(places, i)
		}
	}
	if len(places) > 0 {
		s.claimAll(ctx, id, call, places, reply)
	}
	return *reply
}

func newReply(cells int) *store.ClaimReply {
	return &store.ClaimReply{Reply: store.Reply{Totals: make([]store.Total, cells)}, Added: make([]bool, cells)}
}

func checkClaim(c *store.Claim) error {
	if c.Cost <= 0 || c.Limit < 0 {
		return fmt.Errorf("redisorigin: claim %v: cost is %d, want > 0, limit is %d, want >= 0", c.Cell, c.Cost, c.Limit)
	}
	return nil
}

// claimAll sends those of a call's claims that may be sent.
func (s *shard) claimAll(ctx context.Context, shard int, call store.Claims, places []int, reply *store.ClaimReply) {
	chunk := store.Chunk{Shard: shard, Stream: call.Stream, Number: call.Number}
	parts := s.numbered(&chunk, len(places), func(i int) *window.Cell { return &call.Claims[places[i]].Cell })
	for _, part := range parts {
		for i, at := range part.places {
			part.places[i] = places[at]
			part.claims = append(part.claims, call.Claims[places[at]])
		}
	}
	_ = s.sendAll(ctx, parts, reply) // each part has its own
	for _, part := range parts {
		if part.err == nil {
			continue
		}
		err := sendError(s.failed("claim from", len(part.places), part.err))
		for _, place := range part.places {
			reply.Totals[place], reply.Added[place] = store.Total{Err: err}, false
		}
	}
}

// claimArgs are what the script takes of a part's claims.
func (s *shard) claimArgs(part *sending, args []any) []any {
	for i := range part.claims {
		c := &part.claims[i]
		args = append(args, formatEpoch(c.Epoch), bounded(c.Cost), roomFor(c), bounded(c.Limit),
			s.expiresAtMs(c.Cell, part.keys[i]))
	}
	return args
}

// roomFor is the largest total that a claim's cost can be added to, -1 if there is none.
func roomFor(c *store.Claim) int64 {
	if bounded(c.AtMost) < c.Cost {
		return -1
	}
	return bounded(c.AtMost) - c.Cost
}

// decideAs has claims decided as they were answered before: those of added are added, and the others are not.
func (p *sending) decideAs(added []store.Cost) {
	for i := range p.claims {
		c := &p.claims[i]
		if c.AtMost = -1; len(added) > 0 && added[0].Cell == c.Cell && added[0].Add == c.Cost {
			c.AtMost, added = store.CountMax, added[1:]
		}
	}
}

// claimed reads the answers to a part's claims. What was added is the part's costs.
func (s *shard) claimed(part *sending, r *scriptReply, problem string, reply *store.ClaimReply) error {
	for i, place := range part.places {
		total := r.total(part.keys[i], problem)
		added := r.int() == 1
		s.noteJunk(total.Err)
		reply.Totals[place], reply.Added[place] = total, added
		if c := &part.claims[i]; added {
			part.costs = append(part.costs, store.Cost{Cell: c.Cell, Epoch: r.epoch, Add: c.Cost, Limit: c.Limit})
		}
	}
	if part.n == 0 {
		reply.Now = r.now
	}
	return r.end()
}

var errLate = errors.New("a later call of the stream was applied")
