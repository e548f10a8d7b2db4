package dataplane_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/shared/window"
)

// A key's names are any bytes, and what is settled is what was reserved.
func TestReservationsOfAnyNames(t *testing.T) {
	places(t, func(t *testing.T, a, b *dataplane.Limiter) {
		for i, name := range []string{"\xff\xfe", "<&>", "\u2028", `"\`} {
			id := fmt.Sprint("any", i)
			wantReserved(t, a, reserveFor(id, 0, ask(name, 60, 100)), true)
			s, err := b.Settle(t.Context(), id, 10)
			wantSettled(t, name, s, err, true, false, 10)
			wantReserved(t, b, reserveFor(id+"more", 0, ask(name, 90, 100)), true)
		}
	})
}

// The most requests with the longest names fit a note, whatever is in them.
func TestReservationsOfTheLongestNames(t *testing.T) {
	places(t, func(t *testing.T, a, b *dataplane.Limiter) {
		r := reserveFor("long", 0)
		var costs []int64
		for i := range dataplane.ReservedMax {
			q := ask(fmt.Sprintf("%02d%s", i, strings.Repeat("<", window.IdentifierBytesMax-2)), 60, 100)
			q.Workspace = strings.Repeat("\x01", window.WorkspaceBytesMax)
			q.Namespace = strings.Repeat("&", window.NamespaceBytesMax)
			r.Requests, costs = append(r.Requests, q), append(costs, 1)
		}
		wantReserved(t, a, r, true)
		s, err := b.Settle(t.Context(), "long", costs...)
		wantSettled(t, "long", s, err, true, false, costs...)
	})
}
