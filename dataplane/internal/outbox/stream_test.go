package outbox

import (
	"context"
	"testing"
	"time"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// All streams of an outbox share one bound for the chunks that they keep. A stream that keeps nothing has nothing to
// prove.
func TestStreamsOfAnOutboxKeepWithinOneBound(t *testing.T) {
	o := &Outbox{}
	for shard := range 2 {
		s, sh := &stream{}, &Shard{out: o, index: shard}
		s.init(sh, nil) // no call may be made
		if err := sh.prove(t.Context(), s); err != nil {
			t.Error(err)
		}
		answer := func(context.Context, store.Chunk) (store.Reply, error) {
			return store.Reply{Totals: []store.Total{{Epoch: 1}}}, nil
		}
		cost := store.Cost{Cell: window.Cell{Key: window.Key{Duration: time.Hour}}, Add: 1}
		if _, err := s.kept.Send(t.Context(), answer, store.Chunk{Number: 1, Costs: []store.Cost{cost}}); err != nil {
			t.Fatal(err)
		}
	}
	if n := o.kept.Load(); n != 2 {
		t.Errorf("%d costs are kept, want 2", n)
	}
}
