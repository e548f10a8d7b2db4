//go:build !race

// The race detector makes pools forget on purpose.

package httplimit_test

import "testing"

// A request that passes allocates only the text of its fields.
func TestPassingAllocatesLittle(t *testing.T) {
	for _, c := range costs {
		serve := passing(t, c.policies, c.quiet)
		serve()
		if got := testing.AllocsPerRun(1000, serve); got > c.allocs {
			t.Errorf("%s: %v allocations, want %v", c.name, got, c.allocs)
		}
	}
}
