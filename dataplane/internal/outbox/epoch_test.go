package outbox

import (
	"errors"
	"testing"
	"time"

	"github.com/weirhq/weir/dataplane/internal/cell"
	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// withSent returns an outbox with an origin in memory, and an entry whose cost of 5 the origin has confirmed.
func withSent(t *testing.T) (o *Outbox, origin *memstore.Origin, e *cell.Entry) {
	t.Helper()
	now := func() time.Time { return time.UnixMilli(window.Start(sequence, time.Minute.Milliseconds())) }
	origin = memstore.NewOrigin(memstore.OriginOptions{Clock: now})
	o = testOutbox(t, origin, now)
	key := window.Key{Workspace: "acme", Namespace: "api", Identifier: "k", Duration: time.Minute}
	id := o.cfg.Table.IdentityOfKey(&key, nil)
	e, _ = o.cfg.Table.Add(&id, &key, nil, false, o.cfg.Table.Horizon(false), sequence, now().UnixMilli())
	e.Charge(sequence, 5, 100)
	o.Resend(e)
	if err := o.shards[0].Replay(t.Context()); err != nil || e.LookAt(sequence).Epoch == 0 {
		t.Fatalf("%+v: %v", e.LookAt(sequence), err)
	}
	return o, origin, e
}

// lose makes a shard find that the entry's epoch is lost, and returns the next epoch.
func lose(o *Outbox, e *cell.Entry) (next store.Epoch) {
	lost := e.LookAt(sequence).Epoch
	next = lost + 1
	o.shards[0].lostAll([]store.Epoch{lost}, []store.Total{{Epoch: next}}, func(int) *cell.Entry { return e })
	o.cfg.Calls.Wait()
	return next
}

// Streams keep nothing of a lost epoch: it is restored, and a replica that has the epoch must not get it twice.
func TestStreamsKeepNothingOfALostEpoch(t *testing.T) {
	o, _, e := withSent(t)
	if n := o.kept.Load(); n != 1 {
		t.Fatalf("%d costs are kept before", n)
	}
	if lose(o, e); o.kept.Load() != 0 || !o.shards[0].replay.kept.Empty() {
		t.Errorf("%d costs are kept", o.kept.Load())
	}
}

// A first cost whose answer belongs to a lost epoch is refused in favor of the next epoch.
func TestAFirstCostOfALostEpochIsRefused(t *testing.T) {
	o, _, e := withSent(t)
	sh, was := o.shards[0], e.LookAt(sequence).Epoch
	call := sh.ask()
	next := lose(o, e)
	reply := store.Reply{Totals: []store.Total{{Region: 5, Epoch: was}}}
	sh.answered(call, &reply, store.Cost{Cell: e.Cell(sequence), Add: 5})
	if got := reply.Totals[0]; got.Epoch != next || !errors.Is(got.Err, store.ErrEpoch) {
		t.Errorf("%+v, want a refusal in epoch %d", got, next)
	}
}

// A claim whose answer belongs to a lost epoch is restored with the next tick, even if nothing else of its key must be
// sent.
func TestAClaimOfALostEpochIsSentAgain(t *testing.T) {
	o, origin, e := withSent(t)
	sh := o.shards[0]
	v := cell.Verdict{Sequence: sequence, AtMs: window.Start(sequence, time.Minute.Milliseconds())}
	claim := cell.NewClaim(e, &v, 100, 10, false, false)
	if call, _ := sh.claims.prepare([]*cell.Claim{claim}); len(call.costs) != 1 {
		t.Fatal("the claim is not on its way")
	}
	origin.Wipe()
	<-o.ReadAll(o.cfg.Clock.ReadSteady(), []*cell.Entry{e})[0].Done // which shows that the epoch is lost
	o.cfg.Calls.Wait()
	for _, answered := range []bool{true, false} {
		if err := sh.Replay(t.Context()); err != nil {
			t.Fatal(err)
		}
		if answered {
			sh.claims.end(claim, &store.Total{Region: 15, Added: true}, o.cfg.Clock.ReadSteady())
		}
	}
	reply, err := origin.Read(t.Context(), []window.Cell{e.Cell(sequence)})
	if err != nil || reply.Totals[0].Region != 15 {
		t.Errorf("the origin has %+v, want 15: %v", reply.Totals, err)
	}
}
