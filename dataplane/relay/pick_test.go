package relay

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/dataplane/store"
)

// If counts do not fit into a row, those with the smallest shares of their limits are left for the next row.
func TestARowTellsTheGreatestSharesFirst(t *testing.T) {
	s, now := newTestRelay(t).shards[0], time.Now()
	s.own.tuning = DefaultTuning()
	const n = 6_000
	for i := range n {
		c := minuteCell(fmt.Sprint(strings.Repeat("x", 200), i))
		s.book.growLocked(&store.Change{Cell: c, Total: int64(100 + i), Limit: 10 * n}, now)
		s.book.cells.find(&c).shared = true
	}
	fit, _, left := s.choose(now)
	if !left || len(fit) == 0 {
		t.Fatalf("%d of %d counts fit into a row", len(fit), n)
	}
	for i, published := range fit {
		if want := int64(100 + n - 1 - i); published.total != want {
			t.Fatalf("number %d of the row has %d of its limit, want %d", i, published.total, want)
		}
	}
}
