package dataplane_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/weirhq/weir/dataplane/memstore"
)

// Cost that is restored to an origin that has lost its counts waits by the settings of its namespace, as any sync
// does.
func TestRestoredEstimatesAreBounded(t *testing.T) {
	w := newWorld(t)
	w.estimates(`{"batch_max":10}`)
	n := w.node("eu", "a")
	for i := range 25 {
		n.take(fmt.Sprint(i), 1, 10)
	}
	for range 3 {
		n.sync()
	}
	w.origin("eu").Wipe()
	n.take("0", 1, 10)
	n.sync()
	n.AwaitCalls()
	for _, want := range []int{25, 15, 5, 0} {
		if keys, _ := n.Waiting(); keys != want {
			t.Errorf("%d wait, want %d", keys, want)
		}
		n.sync()
	}
	for i := range 25 {
		want := int64(1)
		if i == 0 {
			want = 2
		}
		if got := totals(w.origin("eu"))[w.estimateCell(fmt.Sprint(i), 0)]; got != want {
			t.Errorf("the origin has %d of %d of key %d", got, want, i)
		}
	}
}

// If the origin has lost its counts, a key that is only read is restored as well.
func TestAnEstimateThatIsReadIsRestored(t *testing.T) {
	w := newWorld(t)
	w.estimates("")
	n := w.node("eu", "a")
	n.take("k", 8, 10)
	n.take("other", 8, 10)
	n.sync()
	w.clock.advance(20 * time.Second)
	w.origin("eu").Wipe()
	n.take("other", 1, 10)
	n.take("k", 0, 10)
	w.origin("eu").Faults.Hook(func(op memstore.Op) error {
		if op == memstore.OpRead {
			n.AwaitCalls() // the walk for lost cost meets the key in the middle of its sync
		}
		return nil
	})
	n.sync()
	w.origin("eu").Faults.Hook(nil)
	n.sync()
	if got := totals(w.origin("eu"))[w.estimateCell("k", 0)]; got != 8 {
		t.Errorf("the origin has %d of 8", got)
	}
}
