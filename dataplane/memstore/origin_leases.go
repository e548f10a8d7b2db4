package memstore

import (
	"context"
	"time"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// Leases implements store.Granter.
func (h *Origin) Leases(ctx context.Context, shard int, words []store.LeaseWord) (reply store.LeaseReply, err error) {
	if len(words) == 0 {
		return reply, nil
	}
	if err := h.inShard(shard, len(words), func(i int) *window.Key { return &words[i].Key }); err != nil {
		return reply, opError(OpLeases, err)
	}
	err = h.call(ctx, OpLeases, shard, func(s *originShard, _ store.Epoch) error {
		now := h.clock()
		reply = store.LeaseReply{Answers: make([]store.LeaseAnswer, len(words)), Now: now}
		for i := range words {
			a := &reply.Answers[i]
			if a.Err = store.CheckLeaseWord(&words[i]); a.Err != nil {
				a.Err = opError(OpLeases, a.Err)
				continue
			}
			*a = s.leaseLocked(&words[i], now.UnixMilli())
		}
		s.sweepSlots(now.UnixMilli())
		return nil
	})
	if err != nil {
		return store.LeaseReply{}, err
	}
	return reply, nil
}

// leaseLocked is what a store.LeaseWord does.
func (s *originShard) leaseLocked(word *store.LeaseWord, nowMs int64) (a store.LeaseAnswer) {
	a.Slots, _, a.RetryIn = s.othersSlots(&word.Key, 0, nowMs)
	leases := s.leases[word.Key]
	if leases == nil {
		leases = make(map[string]int64)
		s.leases[word.Key] = leases
	}
	_, is := leases[word.ID]
	recovering := time.Duration(s.lostMs+word.TTL.Milliseconds()-nowMs) * time.Millisecond
	switch {
	case word.Verb == store.LeaseRelease:
		delete(leases, word.ID)
		if is {
			a.Slots--
		}
	case is || word.Verb == store.LeaseRenew && recovering > 0:
		a.Held = true
	case word.Verb == store.LeaseRenew:
	case recovering > 0:
		a.Err, a.RetryIn = store.ErrRecovering, recovering
	case a.Slots < word.Limit:
		a.Held = true
	default:
		endsMs := nowMs + store.SlotsStarvedFor.Milliseconds()
		s.heldOf(&word.Key)[0] = slotsHeld{endsMs: endsMs, starvedMs: endsMs}
	}
	if a.Held {
		if leases[word.ID] = max(leases[word.ID], nowMs+word.TTL.Milliseconds()); !is {
			a.Slots++
		}
	}
	return a
}

// Leases implements store.Granter.
func (c *Cluster) Leases(ctx context.Context, shard int, words []store.LeaseWord) (reply store.LeaseReply, err error) {
	reply.Answers, reply.Now, err = scatter(c, OpLeases, shard, words,
		func(w *store.LeaseWord) *window.Key { return &w.Key },
		func(bucket int, words []store.LeaseWord) ([]store.LeaseAnswer, time.Time, error) {
			part, err := c.Origin.Leases(ctx, bucket, words)
			return part.Answers, part.Now, err
		})
	return reply, err
}
