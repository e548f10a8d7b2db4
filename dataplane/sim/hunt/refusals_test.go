package hunt

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/dataplane/sim/hunt/internal/plan"
)

// If two faults refuse the same calls, the refusal ends with the later end, and its time counts from the earlier
// beginning.
func TestRefusalsOverlap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r refusals
		failed := 0
		call := r.hook(1, func() { failed++ })
		want := func(when string, refusedFor time.Duration) {
			t.Helper()
			if got := r.refusedFor(1, memstore.OpSend); got != refusedFor {
				t.Errorf("%s: refused for %v, want %v", when, got, refusedFor)
			}
			before := failed
			err := call(memstore.OpSend)
			if refused := refusedFor > 0; (err != nil) != refused || (failed > before) != refused {
				t.Errorf("%s: %v, %d calls have failed", when, err, failed-before)
			}
			if err := call(memstore.OpRead); err != nil {
				t.Errorf("%s: a read: %v", when, err)
			}
		}
		ops := plan.OriginCalls[Sends]
		want("at first", 0)
		r.change([]int{0, 1}, ops, 1)
		time.Sleep(time.Second)
		want("in one fault", time.Second)
		r.change([]int{1}, ops, 1)
		time.Sleep(time.Second)
		r.change([]int{0, 1}, ops, -1)
		want("after the first has ended", 2*time.Second)
		r.change([]int{1}, ops, -1)
		want("after both", 0)
	})
}
