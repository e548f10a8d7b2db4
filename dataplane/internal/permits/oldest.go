package permits

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"

	"github.com/weirhq/weir/dataplane/internal/held"
	"github.com/weirhq/weir/dataplane/internal/leases"
	"github.com/weirhq/weir/dataplane/internal/slots"
	"github.com/weirhq/weir/dataplane/internal/topk"
	"github.com/weirhq/weir/shared/heartbeat"
)

// Oldest returns the leases and reservations that have been held longest, at most so many, as of now in Unix ms. It
// holds no lock for longer than it takes to look at the leases of one key.
func (p *Permits) Oldest(most int, nowMs int64) []heartbeat.Held {
	found := topk.Ranking[heartbeat.Held]{Limit: most, Compare: older}
	p.Leases.slots.Each(func(l *slots.Held) {
		h := heartbeat.Held{Kind: heartbeat.HeldLease, SinceMs: nowMs - l.Age.Milliseconds(), Amount: 1}
		if l.Ends >= 0 {
			h.EndsMs = nowMs + l.Ends.Milliseconds()
		}
		if found.Takes(&h) {
			n := &l.Name
			h.Workspace, h.Namespace, h.Identifier = []byte(n.Workspace), []byte(n.Namespace), []byte(n.Identifier)
			h.Holder = []byte(l.Holder)
			found.Add(h)
		}
	})
	p.Leases.book.Each(func(l *leases.Lease, leftMs int64) {
		found.Add(heartbeat.Held{Kind: heartbeat.HeldLease, Workspace: []byte(l.Key.Workspace),
			Namespace: []byte(l.Key.Namespace), Identifier: []byte(l.Key.Identifier), Holder: []byte(l.Holder),
			SinceMs: l.SinceMs, EndsMs: nowMs + leftMs, Amount: 1, Mark: mark(l.ID)})
	})
	aheadMs := int64(0)
	reservation := func(id string, r *held.Record) {
		if !found.Takes(&heartbeat.Held{SinceMs: r.MadeMs}) {
			return
		}
		for i := range r.Items {
			it := &r.Items[i]
			found.Add(heartbeat.Held{Kind: heartbeat.HeldReservation, Workspace: []byte(it.Workspace),
				Namespace: []byte(it.Namespace), Identifier: []byte(it.Identifier), Holder: []byte(r.Holder),
				SinceMs: r.MadeMs, EndsMs: r.EndsMs + aheadMs, Amount: max(it.Held, it.Spent), Mark: mark(id)})
		}
	}
	p.Reservations.region.Each(reservation)
	aheadMs = nowMs - p.Reservations.local.nowMs()
	p.Reservations.own.Each(reservation)
	return found.Items
}

// mark returns a hash of an id, which identifies the id but does not reveal it: with the id anybody can settle or
// release.
func mark(id string) uint64 {
	sum := sha256.Sum256([]byte(id))
	return binary.BigEndian.Uint64(sum[:])
}

// older sorts the longest held first, then by names.
func older(a, b heartbeat.Held) int {
	return cmp.Or(cmp.Compare(a.SinceMs, b.SinceMs), bytes.Compare(a.Workspace, b.Workspace),
		bytes.Compare(a.Namespace, b.Namespace), bytes.Compare(a.Identifier, b.Identifier), cmp.Compare(a.Mark, b.Mark))
}
