package dataplane_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/dataplane/store"
)

// "Repeated calls change nothing": a request that is repeated in the next window has a single hold, in the window of
// its first call, and is also granted if the new window is full.
func TestAReservationAskedForAgainInALaterWindowIsHeldOnce(t *testing.T) {
	places(t, func(t *testing.T, a, b *dataplane.Limiter) {
		one := reserveFor("one", time.Hour, ask("k", 60, 100))
		first := wantReserved(t, a, one, true)
		time.Sleep(2 * time.Minute)
		if again := wantReserved(t, b, one, true); again.EndsAt != first.EndsAt {
			t.Errorf("%v, then %v", first.EndsAt, again.EndsAt)
		}
		wantReserved(t, a, reserveFor("all", time.Hour, ask("k", 100, 100)), true)
		again := wantReserved(t, b, one, true)
		if d := again.Decisions[0]; !d.Allowed || d.RetryAfter != 0 {
			t.Errorf("%+v", d)
		}
		time.Sleep(2 * time.Minute)
		wantReserved(t, a, reserveFor("next", time.Hour, ask("k", 100, 100)), true)
	})
}

// "A reservation can be settled only once", also after its origin has dropped the ended hold.
func TestASettlementRepeatedAfterMinutesCountsOnce(t *testing.T) {
	places(t, func(t *testing.T, a, b *dataplane.Limiter) {
		hourly := func(cost int64) dataplane.Request {
			r := ask("k", cost, 100)
			r.Duration = time.Hour
			return r
		}
		wantReserved(t, a, reserveFor("one", 0, hourly(60)), true)
		s, err := a.Settle(t.Context(), "one", 40)
		wantSettled(t, "settled", s, err, true, false, 40)
		time.Sleep(store.HoldKeptFor / 2)
		s, err = b.Settle(t.Context(), "one", 40)
		wantSettled(t, "again", s, err, true, true, 40)
		time.Sleep(2 * store.HoldKeptFor)
		if _, err = b.Settle(t.Context(), "one", 40); !errors.Is(err, dataplane.ErrNoReservation) {
			t.Errorf("long after it was settled: %v", err)
		}
		wantReserved(t, a, reserveFor("more", 0, hourly(61)), false)
		wantReserved(t, b, reserveFor("left", 0, hourly(60)), true)
	})
}

// slowRecords is an origin that answers slowly about changed records.
type slowRecords struct{ store.FullOrigin }

func (o slowRecords) Hold(ctx context.Context, call store.HoldCall) (store.HoldReply, error) {
	reply, err := o.FullOrigin.Hold(ctx, call)
	if call.Record != nil && call.Record.Text == "" {
		time.Sleep(20 * time.Millisecond)
	}
	return reply, err
}

// A reported cost counts if the call is not late, also if the reservation ends during the call.
func TestWhatIsSpentAsAReservationEndsCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		origin := memstore.NewOrigin(memstore.OriginOptions{})
		l, err := dataplane.New(dataplane.Config{Region: "eu", Origin: slowRecords{origin.Client()}})
		if err != nil {
			t.Fatal(err)
		}
		defer stopAll([]*dataplane.Limiter{l})
		wantReserved(t, l, reserveFor("one", time.Second, ask("k", 60, 100)), true)
		time.Sleep(990 * time.Millisecond)
		s, err := l.Spend(t.Context(), "one", 50)
		wantSettled(t, "at the end", s, err, false, false, 50)
		time.Sleep(time.Second)
		wantReserved(t, l, reserveFor("more", 0, ask("k", 51, 100)), false)
		wantReserved(t, l, reserveFor("left", 0, ask("k", 50, 100)), true)
	})
}

// heldHook is an origin whose calls about reservations pass through a function.
type heldHook struct {
	store.FullOrigin
	hook func(call store.HoldCall, do func() (store.HoldReply, error)) (store.HoldReply, error)
}

func (o *heldHook) Hold(ctx context.Context, call store.HoldCall) (store.HoldReply, error) {
	do := func() (store.HoldReply, error) { return o.FullOrigin.Hold(ctx, call) }
	if o.hook == nil {
		return do()
	}
	return o.hook(call, do)
}

// A settlement that the origin has not applied is sent again, also if the answer to an earlier call arrives after it.
// That answer can be about the record, or about the cost that its holds then count.
func TestAnAnswerThatComesLateUndoesNoSettlement(t *testing.T) {
	for name, isLate := range map[string]func(call *store.HoldCall) bool{
		"of the record": func(call *store.HoldCall) bool {
			return call.Record != nil && call.Record.Text == "" && !call.Record.Settled
		},
		"of its holds": func(call *store.HoldCall) bool { return call.Record == nil && len(call.Holds) > 0 },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { settleBesideALateAnswer(t, isLate) })
		})
	}
}

func settleBesideALateAnswer(t *testing.T, isLate func(call *store.HoldCall) bool) {
	origin := &heldHook{FullOrigin: memstore.NewOrigin(memstore.OriginOptions{})}
	nodes := region(t, 1, origin, store.NamespaceRow{})
	defer stopAll(nodes)
	wantReserved(t, nodes[0], reserveFor("one", time.Hour, askDay("k", 60, 100)), true)
	var down atomic.Bool
	origin.hook = func(call store.HoldCall, do func() (store.HoldReply, error)) (store.HoldReply, error) {
		if len(call.Holds) > 0 && down.Load() {
			return store.HoldReply{}, errors.New("down")
		}
		reply, err := do()
		if isLate(&call) {
			time.Sleep(30 * time.Millisecond)
		}
		return reply, err
	}
	spent := make(chan error)
	go func() {
		_, err := nodes[0].Spend(t.Context(), "one", 5)
		spent <- err
	}()
	time.Sleep(10 * time.Millisecond)
	down.Store(true)
	s, err := nodes[0].Settle(t.Context(), "one", 40)
	wantSettled(t, "settled", s, err, true, false, 40)
	if err := <-spent; err != nil {
		t.Error(err)
	}
	down.Store(false)
	time.Sleep(3 * time.Second)
	wantReserved(t, nodes[0], reserveFor("more", 0, askDay("k", 61, 100)), false)
	time.Sleep(20 * time.Millisecond)
	wantReserved(t, nodes[0], reserveFor("left", 0, askDay("k", 60, 100)), true)
}

// If another node settles a reservation before its maker has an answer, the reservation is over: it was not denied.
func TestAReservationSettledBeforeItsAnswerIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		origin := &heldHook{FullOrigin: memstore.NewOrigin(memstore.OriginOptions{})}
		nodes := region(t, 2, origin, store.NamespaceRow{})
		defer stopAll(nodes)
		settled := false
		origin.hook = func(call store.HoldCall, do func() (store.HoldReply, error)) (store.HoldReply, error) {
			reply, err := do()
			if r := call.Record; !settled && r != nil && r.Text != "" {
				settled = true
				s, e := nodes[1].Settle(t.Context(), "one", 10)
				wantSettled(t, "settled", s, e, true, false, 10)
				return reply, errors.New("the reply was lost")
			}
			return reply, err
		}
		wantOver(t, nodes[0], reserveFor("one", time.Hour, askDay("k", 60, 100)))
		wantReserved(t, nodes[0], reserveFor("more", 0, askDay("k", 91, 100)), false)
		time.Sleep(20 * time.Millisecond)
		wantReserved(t, nodes[0], reserveFor("left", 0, askDay("k", 90, 100)), true)
	})
}

// Cost that was reserved and given back, and cost that was never reserved, is in no total that nodes restore: an
// origin that was emptied counts all other cost.
func TestWhatWasNotReservedAtAWipeHidesNoCost(t *testing.T) {
	for name, before := range map[string]func(t *testing.T, origin *memstore.Origin, l *dataplane.Limiter){
		"settled": func(t *testing.T, _ *memstore.Origin, l *dataplane.Limiter) {
			for _, id := range []string{"one", "two"} {
				wantReserved(t, l, reserveFor(id, time.Hour, askDay("k", 60, 100)), true)
				s, err := l.Settle(t.Context(), id, 0)
				wantSettled(t, id, s, err, true, false, 0)
			}
		},
		"never made": func(t *testing.T, origin *memstore.Origin, l *dataplane.Limiter) {
			origin.Faults.Refuse(errors.New("down"), memstore.OpHold)
			wantReserved(t, l, reserveFor("one", time.Hour, askDay("k", 60, 100)), false)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				origin := memstore.NewOrigin(memstore.OriginOptions{})
				nodes := region(t, 2, origin, store.NamespaceRow{Outage: "closed"})
				defer stopAll(nodes)
				if d := nodes[0].Allow(t.Context(), askDay("k", 40, 100)); !d.Allowed {
					t.Fatal(d)
				}
				time.Sleep(2 * time.Second)
				before(t, origin, nodes[0])
				origin.Wipe()
				time.Sleep(2 * time.Second)
				origin.Faults.Refuse(nil)
				time.Sleep(10 * time.Second)
				wantReserved(t, nodes[1], reserveFor("more", 0, askDay("k", 61, 100)), false)
			})
		})
	}
}
