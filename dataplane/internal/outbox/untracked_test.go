package outbox

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/weirhq/weir/dataplane/internal/breaker"
	"github.com/weirhq/weir/dataplane/internal/cell"
	"github.com/weirhq/weir/dataplane/internal/clock"
	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

const sequence = int64(1000)

// withUntracked returns an outbox with an origin in memory, and an untracked key in the current cell.
func withUntracked(t *testing.T, change ...func(*Config)) (*Outbox, *cell.Entry) {
	t.Helper()
	now := func() time.Time { return time.UnixMilli(window.Start(sequence, time.Minute.Milliseconds())) }
	o := testOutbox(t, memstore.NewOrigin(memstore.OriginOptions{Clock: now}), now, change...)
	key := window.Key{Workspace: "acme", Namespace: "api", Identifier: "k", Duration: time.Minute}
	id := o.cfg.Table.IdentityOfKey(&key, nil)
	e, _ := o.cfg.Table.AddUntracked(&id, &key, nil, false, o.cfg.Table.Horizon(false), sequence)
	return o, e
}

// The answer to an untracked key's cost is merged, with the cost of other nodes in it. A short answer is a failure:
// cost that it leaves out is in the overflow.
func TestTheAnswerToAnUntrackedKeysCostIsMerged(t *testing.T) {
	o, e := withUntracked(t)
	sh := o.shards[0]
	// another node's
	_, _ = o.cfg.Origin.Send(t.Context(), store.Chunk{Stream: 1, Number: 1, Costs: []store.Cost{{Cell: e.Cell(sequence), Add: 4}}})
	e.Charge(sequence, 5, 100)
	sh.untracked.send([]UntrackedCost{{e, sequence, 5}})
	if got := e.LookAt(sequence).Counted; got != 9 {
		t.Errorf("%d are counted of its own 5 and others' 4", got)
	}
	o.cfg.Origin = silent{o.cfg.Origin}
	e.Charge(sequence, 2, 100)
	sh.untracked.send([]UntrackedCost{{e, sequence, 2}})
	if got := o.cfg.Table.SpilledCost(e, sequence); got != 2 {
		t.Errorf("the overflow has %d of the 2 that were not answered", got)
	}
}

// silent answers no chunk.
type silent struct{ store.Origin }

func (silent) Send(context.Context, store.Chunk) (store.Reply, error) { return store.Reply{}, nil }

// The cost of a chunk that got no answer is in the overflow. It counts as dropped once the chunk is answered, if its
// cell has expired by then or the origin refuses it.
func TestACostOfAnUntrackedKeyThatComesTooLateIsDropped(t *testing.T) {
	for name, c := range map[string]struct {
		later   time.Duration
		refuses bool
		want    int64
	}{
		"in time":  {2*time.Minute - time.Millisecond, false, 0},
		"too late": {2 * time.Minute, false, 5},
		"refused":  {time.Second, true, 5},
	} {
		t.Run(name, func(t *testing.T) {
			at := time.UnixMilli(window.Start(sequence, time.Minute.Milliseconds()))
			o, e := withUntracked(t, func(o *Config) {
				o.Clock = clock.New(func() time.Time { return at })
				o.Breaker = breaker.Config{CallsMin: 100}
			})
			origin, sh := o.cfg.Origin, o.shards[0]
			o.cfg.Origin = silent{origin}
			e.Charge(sequence, 5, 100)
			sh.untracked.send([]UntrackedCost{{e, sequence, 5}})
			if got := o.Stats.DroppedCost(); got != 0 {
				t.Fatalf("%d are counted as dropped before the answer", got)
			}
			if o.cfg.Origin = origin; c.refuses {
				o.cfg.Origin = refusing{origin.(store.FullOrigin)}
			}
			at = at.Add(c.later)
			if err := sh.untracked.proveIdle(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got := o.Stats.DroppedCost(); got != c.want {
				t.Errorf("%d are counted as dropped, want %d", got, c.want)
			}
		})
	}
}

// refusing answers each cost with an error.
type refusing struct{ store.FullOrigin }

func (refusing) Send(_ context.Context, c store.Chunk) (reply store.Reply, _ error) {
	for range c.Costs {
		reply.Totals = append(reply.Totals, store.Total{Epoch: 1, Err: errors.New("cannot be written")})
	}
	return reply, nil
}

// Spilled cost is in the overflow, is counted as dropped, and is settled; a cost of 0 leaves no trace.
func TestASpillIsInTheOverflow(t *testing.T) {
	o, e := withUntracked(t)
	o.Spill(e, sequence, 0)
	if got := o.Stats.DroppedCost(); got != 0 {
		t.Errorf("nothing is spilled, and %d are counted as dropped", got)
	}
	e.Charge(sequence, 5, 100)
	o.Spill(e, sequence, 5)
	if got := o.cfg.Table.SpilledCost(e, sequence); got != 5 {
		t.Errorf("the overflow has %d of 5", got)
	}
	if got := o.Stats.DroppedCost(); got != 5 {
		t.Errorf("%d are counted as dropped", got)
	}
	if got := e.Ledger().Unsent(); got != 0 {
		t.Errorf("%d are to be sent, which nobody does", got)
	}
}

// If a shard refuses a single cost of untracked keys, it is still up: no breaker opens.
func TestAnOriginThatTakesSomeCostsOfUntrackedKeysIsThere(t *testing.T) {
	o, e := withUntracked(t, func(c *Config) { c.Breaker = breaker.Config{CallsMin: 1, FailureRatio: 0.0001} })
	o.cfg.Origin = partial{o.cfg.Origin}
	e.Charge(sequence, 5, 100)
	o.shards[0].untracked.send([]UntrackedCost{{e, sequence, 2}, {e, sequence, 3}})
	if _, ok := o.shards[0].asks.Begin(); !ok {
		t.Error("the breaker is open")
	}
	if got := o.cfg.Table.SpilledCost(e, sequence); got != 3 {
		t.Errorf("the overflow has %d, want the 3 that were refused", got)
	}
}

// partial takes the first cost only.
type partial struct{ store.Origin }

func (o partial) Send(ctx context.Context, c store.Chunk) (store.Reply, error) {
	c.Costs = c.Costs[:1]
	reply, err := o.Origin.Send(ctx, c)
	reply.Totals = append(reply.Totals, store.Total{Err: errShortAnswer})
	return reply, err
}
