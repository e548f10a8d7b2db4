package dataplane_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/dataplane/store"
)

// beginning is the beginning of an outage: the record that is stored first gets no answer until the outage is over,
// while the origin answers all other calls, slowly.
type beginning struct {
	mu    sync.Mutex
	first string // the text of that record
	over  bool
}

func (b *beginning) hold(_ context.Context, call store.HoldCall, do func() (store.HoldReply, error)) (store.HoldReply,
	error) {
	if call.Record == nil || call.Record.Text == "" {
		return do()
	}
	b.mu.Lock()
	if b.first == "" {
		b.first = call.Record.Text
	}
	fails := call.Record.Text == b.first && !b.over
	b.mu.Unlock()
	if fails {
		time.Sleep(5 * time.Millisecond)
		return store.HoldReply{}, errors.New("down")
	}
	time.Sleep(20 * time.Millisecond)
	return do()
}

// "Calls with the same ID … share one reservation": also if the origin answers only one of the calls.
func TestTwoCallsWithOneIDAtTheBeginningOfAnOutageShareAReservation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		origin := &hooked{FullOrigin: memstore.NewOrigin(memstore.OriginOptions{})}
		nodes := region(t, 2, origin, store.NamespaceRow{})
		defer stopAll(nodes)
		var outage beginning
		origin.hook.Store(new(hook(outage.hold)))
		one := reserveFor("one", time.Hour, askDay("k", 40, 100))
		var got [2]dataplane.Reserved
		together(len(got), func(i int) { got[i] = wantReserved(t, nodes[0], one, true) })
		if got[0].EndsAt != got[1].EndsAt {
			t.Errorf("%+v and %+v", got[0], got[1])
		}
		outage.mu.Lock()
		outage.over = true
		outage.mu.Unlock()
		time.Sleep(5 * time.Second) // each call's outcome is stated again
		wantReserved(t, nodes[1], reserveFor("more", time.Hour, askDay("k", 61, 100)), false)
		time.Sleep(time.Second)
		wantReserved(t, nodes[1], reserveFor("left", time.Hour, askDay("k", 60, 100)), true)
		for _, late := range []bool{false, true} {
			s, err := nodes[0].Settle(t.Context(), "one", 40)
			wantSettled(t, "one", s, err, true, late, 40)
		}
	})
}
