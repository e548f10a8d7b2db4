package dataplane_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/dataplane/store"
)

// After a claim's answer is lost, the origin has its cost as often as the cost was accepted: once, or not at all.
func TestALostClaimCountsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		origin := memstore.NewOrigin(memstore.OriginOptions{})
		nodes := region(t, 5, origin, store.NamespaceRow{NodeShare: "wait"})
		defer stopAll(nodes)
		accepted, without := int64(0), 0
		for i := range 60 {
			origin.Faults.LoseReplies(i%10 == 3)
			d := nodes[i%5].Allow(t.Context(), ask("k", 1, 30))
			if d.Allowed {
				accepted++
			}
			if d.Source.Degraded() {
				without++
			}
			origin.Faults.LoseReplies(false)
			time.Sleep(250 * time.Millisecond)
		}
		total := int64(0)
		for _, count := range totals(origin) {
			total += count
		}
		if without == 0 || total != accepted {
			t.Errorf("%d accepted, %d decisions without an answer; the origin has %d", accepted, without, total)
		}
	})
}

// If a batch's send for an untracked key gets no answer, the origin has its cost once. Only the batch's own node
// counts the cost twice, until the window ends.
func TestALostReplyAboutUntrackedKeysIsCountedOnceAtTheOrigin(t *testing.T) {
	w := newWorld(t)
	w.flushes() // otherwise the batch would claim the cost first
	n := w.fullTable("api", func(c *dataplane.Config) { c.Settings = w.counts })
	n.loadSettings()
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
