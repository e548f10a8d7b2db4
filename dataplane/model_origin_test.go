package dataplane_test

import (
	"context"
	"slices"
	"sync"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// The calls between a history's node and its origin.

// spiedOrigin is an origin that records the calls of the last step.
type spiedOrigin struct {
	*memstore.Origin
	down bool

	mu       sync.Mutex
	answered bool // any call was answered
	reads    []spiedRead
	sends    []spiedSend
	behind   store.Chunk // the chunk that is sent again after the lost chunks of its stream
}

type spiedRead struct {
	cells  []window.Cell
	totals []store.Total // nil if there was no answer
}

type spiedSend struct {
	chunk  store.Chunk
	totals []store.Total
	err    error
}

func (o *spiedOrigin) forget() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.answered, o.reads, o.sends = false, nil, nil
}

func (o *spiedOrigin) Read(ctx context.Context, cells []window.Cell) (store.Reply, error) {
	reply, err := o.Origin.Read(ctx, cells)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.answered = o.answered || err == nil
	o.reads = append(o.reads, spiedRead{slices.Clone(cells), slices.Clone(reply.Totals)})
	return reply, err
}

func (o *spiedOrigin) Send(ctx context.Context, chunk store.Chunk) (store.Reply, error) {
	reply, err := o.Origin.Send(ctx, chunk)
	if chunk.Bounded() {
		return reply, err // decisions of untracked keys, which use the breaker of reads
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.answered = o.answered || err == nil
	chunk.Costs = slices.Clone(chunk.Costs)
	switch {
	case err == nil && len(reply.Behind) > 0: // an origin that has forgotten the stream is behind, too
		if !chunk.Repeats {
			o.behind = chunk
		}
		return reply, err
	case chunk.Repeats && err == nil:
		return reply, err
	case chunk.Repeats: // the chunk gets no answer
		chunk = o.behind
	}
	o.sends = append(o.sends, spiedSend{chunk, slices.Clone(reply.Totals), err})
	return reply, err
}

// flying is a cost in flight, with its key.
type flying struct {
	cost store.Cost
	key  *dumbKey
}

// lost maps each epoch that the origin has lost to the epoch that replaced it.
type lost map[store.Epoch]store.Epoch

// absorbRead merges the answer to a read; it returns false if there was no answer.
func (h *history) absorbRead(r spiedRead, asking []*dumbKey) bool {

	gone := lost{}
	for i, k := range asking {
		if k == nil {
			continue
		}
		if r.totals == nil {
			k.restMs = h.steadyMs() + 300
			continue
		}
		k.restMs = 0
		for j := range 2 {
			if total := r.totals[2*i+j]; slices.Contains(k.alive(), r.cells[2*i+j].Sequence) {
				gone.add(k.absorb(r.cells[2*i+j].Sequence, total), total.Epoch)
			}
		}
		if r.cells[2*i+1].Sequence == k.latest {
			k.refreshedMs = max(k.refreshedMs, h.steadyMs())
		}
	}
	h.renew(gone)
	return r.totals != nil
}

func (l lost) add(epoch, next store.Epoch) {
	if epoch != 0 {
		l[epoch] = next
	}
}

// renew starts a new epoch for every key in a lost epoch. The node does so in the background.
func (h *history) renew(gone lost) {
	for _, k := range h.known {
		for _, s := range k.alive() {
			k.renew(s, gone)
		}
	}
}

// resolve moves cost to the cost that is restored: the node counted it before it started a new epoch in the
// background, but the dumb limiter afterwards.
func (h *history) resolve(k *dumbKey, sequence, unsent int64) {
	r, restores := k.restore[sequence]
	if more := k.unsent(sequence) - unsent; restores && more > 0 {
		r.own += more
		k.restore[sequence] = r
		k.sent[sequence] += more
	}
}

// replay first sends unanswered chunks again, then unsent and lost cost. It drops and counts the cost that no
// decision needs any more, and may read closed cells once more.
func (h *history) replay(rt *rapid.T) {
	h.rt = rt
	if h.origin == nil {
		return
	}
	nowMs := h.nowMs()
	queued := h.queued()
	var err error
	h.during(nowMs, func() { err = h.n.ReplayOnce(context.Background()) })
	sends := h.sendsOfReplay()
	gone, stopped := lost{}, false
	if again := h.pending; again != 0 {
		if len(sends) == 0 || sends[0].chunk.Number != again || !slices.Equal(sends[0].chunk.Costs, costsOf(h.flight)) {
			rt.Fatalf("sent %+v, on its way is chunk %d: %+v", sends, again, h.flight)
		}
		h.tooLate(sends[0], nowMs)
		h.confirm(sends[0], gone)
		stopped, sends = h.pending != 0, sends[1:]
	}
	possible := int64(0)
	if !stopped {
		possible = h.giveUp(queued, nowMs, gone)
		h.wantSent(sends, queued, gone)
	}
	for _, s := range sends {
		h.confirm(s, gone)
		stopped = stopped || h.pending != 0
	}
	if stopped && err == nil {
		rt.Fatal("a failed send was not reported")
	}
	for _, r := range h.origin.reads {
		var asking []*dumbKey
		for i := 0; i < len(r.cells); i += 2 {
			asking = append(asking, h.known[r.cells[i].Key])
		}
		h.absorbRead(r, asking)
	}
	h.renew(gone)
	got := h.n.Health().DroppedCost
	if got < h.dropped || got > h.dropped+possible {
		rt.Fatalf("%d counted as dropped, want %d to %d", got, h.dropped, h.dropped+possible)
	}
	h.dropped = got
}

// queued returns the keys that a replay examines: all keys with cost for the origin.
func (h *history) queued() map[window.Key]*dumbKey {
	of := map[window.Key]*dumbKey{}
	for key, k := range h.known {
		for s := range k.own {
			if s < k.latest-1 { // dropped when the key moved on
				h.dropped += k.giveUp(s)
			}
		}
		for _, s := range k.alive() {
			_, sending := k.way[s]
			if _, restores := k.restore[s]; restores && !sending || k.unsent(s) != 0 {
				of[key] = k
			}
		}
	}
	return of
}

// sendsOfReplay returns the sends of the loop's stream.
func (h *history) sendsOfReplay() (sends []spiedSend) {
	for _, s := range h.origin.sends {
		if s.chunk.Stream == h.n.ReplayStream() {
			sends = append(sends, s)
		}
	}
	return sends
}

func costsOf(flight []flying) (costs []store.Cost) {
	for _, f := range flight {
		costs = append(costs, f.cost)
	}
	return costs
}

// tooLate drops the cost of cells that had expired when a chunk was sent again.
func (h *history) tooLate(s spiedSend, nowMs int64) {
	for i, total := range s.totals {
		if cell := s.chunk.Costs[i].Cell; total.Err == nil && cell.ExpiresAtMs() <= nowMs {
			h.dropped += s.chunk.Costs[i].Add
		}
	}
}

// confirm merges the answer to the chunk in flight, if there is any.
func (h *history) confirm(s spiedSend, gone lost) {
	h.pending = 0
	if s.err != nil {
		if len(s.chunk.Costs) > 0 { // a chunk that only compares is made again
			h.pending = s.chunk.Number
		}
		return
	}
	for i, f := range h.flight {
		k, total := f.key, s.totals[i]
		if h.known[f.cost.Cell.Key] != k || !slices.Contains(k.alive(), f.cost.Cell.Sequence) {
			if total.Err != nil { // it is not sent again
				h.dropped += f.cost.Add
			}
			continue
		}
		gone.add(k.confirm(f.cost, total), total.Epoch)
		if total.Err == nil && f.cost.Cell.Sequence == k.latest && k.refreshedMs > 0 { // a reply is not a read
			k.refreshedMs = max(k.refreshedMs, h.steadyMs())
		}
	}
	h.flight = nil
}

// giveUp drops expired cost. The result, possible, is cost that the node may have counted as lost a moment earlier,
// instead of as dropped.
func (h *history) giveUp(queued map[window.Key]*dumbKey, nowMs int64, gone lost) (possible int64) {
	for _, k := range queued {
		for _, s := range k.alive() {
			if !k.over(s, nowMs) {
				continue
			}
			_, inLost := gone[k.epoch[s]]
			if cost := k.giveUp(s); inLost {
				possible += cost
			} else {
				h.dropped += cost
			}
		}
	}
	return possible
}

// wantSent checks a new chunk against the unsent and the lost cost, and marks that cost as in flight. A cell of a
// lost epoch may or may not have started again before it was examined.
func (h *history) wantSent(sends []spiedSend, queued map[window.Key]*dumbKey, gone lost) {
	for i, send := range sends { // the last send may have no costs: it reads the time
		if i > 0 && len(send.chunk.Costs) > 0 {
			h.rt.Fatalf("%d chunks: %+v", len(sends), sends)
		}
		for _, cost := range send.chunk.Costs {
			k, s := queued[cost.Cell.Key], cost.Cell.Sequence
			if k == nil || !slices.Contains(k.alive(), s) {
				h.rt.Fatalf("sent %+v of a key with nothing to send", cost)
			}
			if next, inLost := gone[k.epoch[s]]; inLost && cost.Epoch == next {
				k.renew(s, gone)
			}
			want, ok := k.load(s)
			want.Cell = cost.Cell
			if !ok || want != cost {
				h.rt.Fatalf("sent %+v, want %+v (%v)", cost, want, ok)
			}
			h.flight = append(h.flight, flying{cost, k})
		}
	}
	for key, k := range queued {
		for _, s := range k.alive() {
			_, sending := k.way[s]
			if _, restores := k.restore[s]; !sending && (restores || k.unsent(s) != 0) {
				h.rt.Fatalf("%s, cell %d was not sent: %+v", key.Identifier, s, *k)
			}
		}
	}
}
