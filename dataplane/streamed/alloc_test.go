//go:build !race

package streamed_test

import (
	"testing"
	"time"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/streamed"
)

// Reporting a token allocates nothing.
func TestSpentAllocatesNothing(t *testing.T) {
	limiter, err := dataplane.New(dataplane.Config{})
	if err != nil {
		t.Fatal(err)
	}
	s := metered(t, limiter, func(cfg *streamed.Config) { cfg.Every = time.Hour })
	m := begin(t, s, 24*time.Hour, tokens("org", 1<<40, 1<<41), tokens("model", 1<<40, 1<<41))
	if n := testing.AllocsPerRun(1000, func() { m.Spent(1) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
	m.End()
	if err := s.Stop(t.Context()); err != nil {
		t.Error(err)
	}
}
