package held

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/dataplane/internal/fair"
	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/dataplane/store"
)

// However many reservations of a key a caller requests, at however many nodes, another caller's are granted. When the
// caller settles some, there is room for its next reservations.
func TestOneCallersHoldsOfAKeyLeaveOthersSome(t *testing.T) {
	want := map[int]int{1: 7500, 3: 8653}
	for _, nodes := range []int{1, 3} {
		t.Run(fmt.Sprint(nodes, " nodes"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				origin := memstore.NewOrigin(memstore.OriginOptions{})
				var all []*node
				for range nodes {
					all = append(all, nodeOf(origin))
				}
				reserve := func(n *node, label string, i int) error {
					r := recordOf(keyCost{"k", 1})
					r.By, r.New = fair.In(fair.With(t.Context(), label)), true
					r.Items[0].Limit, r.EndsMs = 1<<40, r.MadeMs+hour.Milliseconds()
					_, _, err := n.tries(t.Context(), fmt.Sprint(label, i), r)
					return err
				}
				granted, refused := 0, 0
				for i := 0; refused < 100*nodes && granted < store.HoldsMax; i++ {
					switch err := reserve(all[i%nodes], "flood", i); {
					case err == nil:
						granted++
					case errors.Is(err, ErrShare):
						refused++
					default:
						t.Fatal(err)
					}
					if i%20 == 0 {
						time.Sleep(10 * time.Millisecond)
					}
				}
				if want := want[nodes]; granted < want || granted > want+100 {
					t.Errorf("one caller has %d holds of %d, want %d to %d", granted, store.HoldsMax, want, want+100)
				}
				for i := range 500 {
					if err := reserve(all[i%nodes], "victim", i); err != nil {
						t.Fatalf("reservation %d of another caller: %v", i, err)
					}
				}
				for i := range 1000 {
					if _, _, err := all[i%nodes].Change(t.Context(), fmt.Sprint("flood", i), Change{Settled: true}); err != nil {
						t.Fatal(err)
					}
				}
				time.Sleep(2 * time.Second)
				if err := reserve(all[0], "flood", -1); err != nil {
					t.Errorf("after 1000 were settled: %v", err)
				}
			})
		})
	}
}
