// Package suite has the parts that the suites of origins, counts and change feeds share: names and cells that stores
// confuse, contexts that have ended, and the search for deliberate faults.
package suite

import (
	"context"
	"maps"
	"testing"
	"time"
)

// Reporter holds the methods that *testing.T and *rapid.T share.
type Reporter interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	Context() context.Context
}

// WantSame compares without regard to order.
func WantSame[T comparable](t testing.TB, what string, got, want []T) {
	t.Helper()
	count := make(map[T]int)
	for _, r := range got {
		count[r]++
	}
	for _, r := range want {
		count[r]--
	}
	maps.DeleteFunc(count, func(_ T, n int) bool { return n == 0 })
	if len(count) > 0 {
		t.Errorf("%s:\n got %#v\nwant %#v", what, got, want)
	}
}

// EndedContexts calls try with contexts that have ended in each way, and the errors that calls with them must have.
func EndedContexts(t testing.TB, try func(ended string, ctx context.Context, want error)) {
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	late, cancelLate := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancelLate()
	try("a cancelled ctx", cancelled, context.Canceled)
	try("a ctx past its deadline", late, context.DeadlineExceeded)
}
