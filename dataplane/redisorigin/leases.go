package redisorigin

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// Leases implements store.Granter.
func (h *Origin) Leases(ctx context.Context, shard int, words []store.LeaseWord) (store.LeaseReply, error) {
	reply := store.LeaseReply{Answers: make([]store.LeaseAnswer, len(words))}
	if len(words) == 0 {
		return reply, nil
	}
	s, err := h.shard(shard, len(words), func(i int) *window.Key { return &words[i].Key })
	if err != nil {
		return store.LeaseReply{}, err
	}
	parts := s.splitKeys(len(words), func(i int) *window.Key {
		return inBounds(&words[i].Key, store.CheckLeaseWord(&words[i]), &reply.Answers[i].Err)
	}, func(names []string, b *bucket, i int) []string { return b.appendSlots(names, &words[i].Key) })
	reply.Now, err = s.ask(ctx, parts,
		func(p *pipeline, part *part) *redis.Cmd { return queueLeases(p, part, words) },
		func(part *part, r *scriptReply) error { return s.leaseAnswers(part, r, &reply) })
	if err != nil {
		return store.LeaseReply{}, s.failed("leases of", len(words), err)
	}
	return reply, nil
}

func queueLeases(p *pipeline, part *part, words []store.LeaseWord) *redis.Cmd {
	args := append(make([]any, 0, 1+4*len(part.places)), store.SlotsStarvedFor.Milliseconds())
	for _, place := range part.places {
		w := &words[place]
		args = append(args, w.ID, int(w.Verb), w.Limit, bounded(w.TTL.Milliseconds()))
	}
	return p.eval(part.bucket, leasesScript, []string{part.sinceKey}, part.keys, args)
}

// leaseAnswers reads a part's answers into their places.
func (s *shard) leaseAnswers(part *part, r *scriptReply, reply *store.LeaseReply) error {
	for i, place := range part.places {
		state := r.int()
		reply.Answers[place] = store.LeaseAnswer{Held: r.int() == 1, Slots: r.int(),
			RetryIn: time.Duration(r.int()) * time.Millisecond, Err: s.slotsProblem(part.keys[2*i], state, r)}
	}
	return r.end()
}
