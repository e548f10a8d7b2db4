package dataplane_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/dataplane/store"
)

// Stop sends all cost that was accepted before it, and returns, however much is accepted while it sends.
func TestStopReturnsUnderTraffic(t *testing.T) {
	for name, row := range map[string]store.NamespaceRow{
		"exact": {}, "waits": {NodeShare: "wait"}, "estimate": {Mode: "estimate", Estimate: posthog},
	} {
		synctest.Test(t, func(t *testing.T) {
			origin := memstore.NewOrigin(memstore.OriginOptions{})
			n := region(t, 1, origin, row, tick(t, 10*time.Second))[0]
			accepted := int64(0)
			take := func(identifier string) {
				if n.Allow(context.Background(), ask(identifier, 1, 10)).Allowed {
					accepted++
				}
			}
			for i := range 5 {
				take("hot")
				take(fmt.Sprint("k", i))
			}
			synctest.Wait()
			before := accepted
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			sends := 0
			origin.Faults.Hook(func(op memstore.Op) error {
				if op == memstore.OpSend { // each send finds further cost
					if sends++; sends > 100 {
						cancel()
					}
					take("hot")
					take(fmt.Sprint("while it sends ", sends))
				}
				return nil
			})
			if err := n.Stop(ctx); err != nil || sends > 3 {
				t.Errorf("%s: %d sends, %v", name, sends, err)
			}
			var total int64
			for _, count := range totals(origin) {
				total += count
			}
			if total < before {
				t.Errorf("%s: the origin has %d of the %d that were accepted before", name, total, before)
			}
		})
	}
}

// An origin that is emptied before each send confirms nothing. Stop keeps trying, with a pause each time.
func TestStopPausesWhereNothingIsConfirmed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		origin := memstore.NewOrigin(memstore.OriginOptions{})
		n := region(t, 1, origin, store.NamespaceRow{}, tick(t, 10*time.Second))[0]
		n.Allow(t.Context(), ask("k", 1, 10))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		sends := 0
		origin.Faults.Hook(func(op memstore.Op) error {
			if op == memstore.OpSend {
				if sends++; sends > 1000 {
					cancel()
				}
				origin.Wipe()
			}
			return nil
		})
		if err := n.Stop(ctx); err == nil || sends < 10 || sends > 100 {
			t.Errorf("%d sends in a second, %v", sends, err)
		}
	})
}

// "Stop ends the loops": it waits for reads whose callers have left, and starts none from then on.
func TestStopWaitsForCallsAndStartsNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		origin := memstore.NewOrigin(memstore.OriginOptions{})
		n := region(t, 1, origin, store.NamespaceRow{})[0]
		origin.Faults.Delay(40 * time.Millisecond)
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		n.Allow(ctx, ask("left behind", 1, 10))
		began := time.Now()
		if err := n.Stop(t.Context()); err != nil || time.Since(began) < 39*time.Millisecond {
			t.Errorf("%v after %v, while a read was out for 39 ms more", err, time.Since(began))
		}
		reads := origin.Stats().Gets
		d := n.Allow(t.Context(), ask("cold", 1, 10))
		n.AllowMany(t.Context(), []dataplane.Request{ask("cold too", 1, 10)})
		if got := origin.Stats().Gets; got != reads || d.Source != dataplane.SourceDegraded || !d.Allowed {
			t.Errorf("%d reads after Stop, %+v", got-reads, d)
		}
	})
}
