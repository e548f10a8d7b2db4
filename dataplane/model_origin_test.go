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

// What a history's node and its origin say to each other.

// spiedOrigin is an origin that remembers what was said in the last step.
type spiedOrigin struct {
	*memstore.Origin
	down bool

	mu       sync.Mutex
	answered bool // anything
	reads    []spiedRead
	sends    []spiedSend
	behind   store.Chunk // that is sent once more, after what the origin has lost of its stream
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
		return reply, err // decisions of untracked keys, which the breaker of reads guards
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

// flying is a cost that is on its way, and whose.
type flying struct {
	cost store.Cost
	key  *dumbKey
}

// lost are the epochs that the origin has lost, and what each made way for.
type lost map[store.Epoch]store.Epoch

// absorbRead takes in the answer to one read; false if there was none.
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

// renew has every key begin anew that was in a lost epoch. The node does so in the background.
func (h *history) renew(gone lost) {
	for _, k := range h.known {
		for _, s := range k.alive() {
			k.renew(s, gone)
		}
	}
}

// resolve takes what the node had counted before it began a new epoch in the background, and the dumb limiter after it,
// for what is restored.
func (h *history) resolve(k *dumbKey, sequence, unsent int64) {
	r, restores := k.restore[sequence]
	if more := k.unsent(sequence) - unsent; restores && more > 0 {
		r.own += more
		k.restore[sequence] = r
		k.sent[sequence] += more
	}
}

// replay sends again what got no answer, then what is unsent or to be restored; drops and counts what nobody needs any
// more; and may read closed cells once more.
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

// queued are the keys that a replay looks at: those with anything that the origin is to be told.
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

// sendsOfReplay are those of the loop's stream.
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

// confirm takes in the answer to the chunk that is on its way, if there is one.
func (h *history) confirm(s spiedSend, gone lost) {
	h.pending = 0
	if s.err != nil {
		if len(s.chunk.Costs) > 0 { // one that only asks is made anew
			h.pending = s.chunk.Number
		}
		return
	}
	for i, f := range h.flight {
		k, total := f.key, s.totals[i]
		if h.known[f.cost.Cell.Key] != k || !slices.Contains(k.alive(), f.cost.Cell.Sequence) {
			continue
		}
		gone.add(k.confirm(f.cost, total), total.Epoch)
		if total.Err == nil && f.cost.Cell.Sequence == k.latest && k.refreshedMs > 0 { // a reply is no hydration
			k.refreshedMs = max(k.refreshedMs, h.steadyMs())
		}
	}
	h.flight = nil
}

// giveUp drops what is over. What the node may have taken for lost a moment earlier, is not counted as dropped:
// possible.
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

// wantSent holds a new chunk to what is unsent and to be restored, and puts that on its way. A cell of a lost epoch may
// have begun anew before it was looked at, or not.
func (h *history) wantSent(sends []spiedSend, queued map[window.Key]*dumbKey, gone lost) {
	for i, send := range sends { // the last one may have no costs: it asks for the time
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
