package dataplane_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/dataplane/store"
)

// A claim whose answer is lost may be counted twice: by the origin, which added it, and as the cost that the node
// decided about without it. So the origin has what was accepted, no less, and at most what the metric says besides.
func TestALostClaimCountsTwiceAtMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		origin := memstore.NewOrigin(memstore.OriginOptions{})
		nodes := region(t, 5, origin, store.NamespaceRow{Headroom: "wait"})
		defer stopAll(nodes)
		accepted := int64(0)
		for i := range 60 {
			origin.Faults.LoseReplies(i%10 == 3)
			if nodes[i%5].Allow(t.Context(), ask("k", 1, 30)).Allowed {
				accepted++
			}
			origin.Faults.LoseReplies(false)
			time.Sleep(250 * time.Millisecond)
		}
		lost, total := 0.0, int64(0)
		for _, n := range nodes {
			lost += gather(t, n)["weir_replay_ambiguous_cost_total"]
		}
		for _, count := range totals(origin) {
			total += count
		}
		if lost == 0 || total < accepted || total > accepted+int64(lost) {
			t.Errorf("%d accepted, the origin has %d: want at most the %v of lost claims more", accepted, total, lost)
		}
	})
}

// What a batch counted on a guest and got no answer for is at the origin once; its node alone takes the key for that
// much more, until the window ends.
func TestALostReplyAboutGuestsIsCountedOnceAtTheOrigin(t *testing.T) {
	w := newWorld(t)
	n := w.crowd("api")
	w.origin("eu").Faults.Hook(func(op memstore.Op) error {
		w.origin("eu").Faults.LoseReplies(op == memstore.OpSend)
		return nil
	})
	requests := []dataplane.Request{ask("victim", 7, 20), ask("beside", 1, 1000)}
	if b := n.AllowMany(t.Context(), requests); !b.Allowed {
		t.Fatalf("%+v", b)
	}
	w.origin("eu").Faults.Hook(nil)
	w.origin("eu").Faults.LoseReplies(false)
	for range 2 {
		n.replay()
		if got := totals(w.origin("eu"))[w.cell("victim")]; got != 7 {
			t.Errorf("the origin has %d, want 7", got)
		}
	}
	wantAllowed(t, "beyond twice the cost", n.take("victim", 7, 20), false, 6)
	wantAllowed(t, "the rest", n.take("victim", 6, 20), true, 0)
	w.clock.set(2 * time.Minute)
	wantAllowed(t, "two windows later", n.take("victim", 20, 20), true, 0)
}
