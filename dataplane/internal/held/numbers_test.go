package held

import (
	"testing"
	"testing/synctest"

	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// numbered is a group's state by its answers.
type numbered struct {
	*node
	of  int
	key window.Key
}

func (n *numbered) answers(numbers ...int64) {
	for _, number := range numbers {
		n.book.answered(n.of, &n.key, &store.HoldReply{Epoch: 1, Number: number}, n.NowMs())
	}
}

// keeps keeps reservations whose answers had the given numbers.
func (n *numbered) keeps(answered ...number) (all []*kept) {
	for _, is := range answered {
		is.epoch = 1
		all = append(all, n.book.keep(&kept{record: recordOf(both...), numbers: numbers{{n.of, is}}}, n.NowMs()))
	}
	return all
}

func (n *numbered) lostAre(t *testing.T, all []*kept, want ...bool) {
	t.Helper()
	for i, k := range all {
		if got := k.lost && n.book.pending[k]; got != want[i] {
			t.Errorf("reservation %d is lost: %v, want %v", i, got, want[i])
		}
	}
}

// Answers come in any order. A number that comes twice shows that the calls from it on were lost.
func TestANumberThatComesTwiceShowsALoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &numbered{node: nodeOf(memstore.NewOrigin(memstore.OriginOptions{}))}
		n.answers(1, 3, 2, 5, 4)
		all := n.keeps(number{n: 1}, number{n: 2}, number{n: 3}, number{n: 4}, number{n: 5})
		n.lostAre(t, all, false, false, false, false, false)
		if _, after := n.book.marks(0, n.NowMs()); after.Number != 5 {
			t.Errorf("after is %+v", after)
		}
		n.answers(4)
		n.lostAre(t, all, false, false, false, true, true)
		if _, after := n.book.marks(0, n.NowMs()); after.Number != 4 {
			t.Errorf("after is %+v", after)
		}
		n.answers(3)
		n.lostAre(t, all, false, false, true, true, true)
	})
}

// A loss also marks a reservation whose answer came just before the loss was found, and that is kept just after.
func TestAnAnswerThatIsOvertakenByALossIsStatedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &numbered{node: nodeOf(memstore.NewOrigin(memstore.OriginOptions{}))}
		n.answers(1, 2, 3)
		n.book.answered(0, &n.key, &store.HoldReply{Epoch: 1, Behind: true, Have: 1}, n.NowMs())
		n.lostAre(t, n.keeps(number{n: 3}), true)
		again := n.book.answered(0, &n.key, &store.HoldReply{Epoch: 1, Number: 2}, n.NowMs())
		next := n.book.answered(0, &n.key, &store.HoldReply{Epoch: 1, Number: 3}, n.NowMs())
		n.lostAre(t, n.keeps(again, number{n: 2}, next), false, true, false)
	})
}

// A reservation that an emptied origin has answered, and that is kept after the loss was found, is restored.
func TestAnAnswerOfALostEpochIsRestored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &numbered{node: nodeOf(memstore.NewOrigin(memstore.OriginOptions{}))}
		n.answers(1, 2)
		n.book.answered(0, &n.key, &store.HoldReply{Epoch: 2, Number: 1}, n.NowMs())
		for i, k := range n.keeps(number{n: 1}, number{n: 2}) {
			if !k.lost || !n.book.pending[k] {
				t.Errorf("reservation %d: lost %v, pending %v", i, k.lost, n.book.pending[k])
			}
		}
	})
}

// If an origin forgets a stream without calls, and counts from 1 again, nothing counts as lost.
func TestAStreamThatWasForgottenHasLostNothing(t *testing.T) {
	places(t, func(t *testing.T, origin Origin, _ *memstore.Origin) {
		n := nodeOf(origin)
		r := recordOf(both...)
		r.EndsMs += 3_600_000
		if ok, _, err := n.tries(t.Context(), "one", r); !ok || err != nil {
			t.Fatal(ok, err)
		}
		for range 180 {
			n.sends(t)
		}
		n.reserves(t, "two", both...)
		for k := range n.book.pending {
			t.Errorf("%q is to be stated again", k.id)
		}
	})
}
