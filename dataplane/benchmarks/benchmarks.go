// Package benchmarks puts Weir's embedded limiter beside others that can be had for
// Go, and beside the least that any of them has to do. README.md has the figures.
//
// It is a Go module of its own, so that what it measures never becomes a requirement
// of Weir; gubernator is a further one, because its requirements and these cannot be
// had together.
package benchmarks

import (
	"context"

	"github.com/weirhq/weir/dataplane/benchmarks/workload"
)

var background = context.Background()

// Limiters are those that take part in a case, in the order of tables.
func Limiters(c workload.Case) []workload.Limiter {
	switch c.Name {
	case workload.Batch.Name:
		return []workload.Limiter{weirBatch}
	case workload.Handle.Name:
		return []workload.Limiter{weirHandle}
	case workload.HandleAt.Name:
		return []workload.Limiter{weirHandleAt}
	}
	all := []workload.Limiter{weir, goLimiter, xtime, throttledGCRA, mennanov, ulule}
	if !c.Denied {
		all = append(all, floor, floorLeast)
	}
	return all
}

// must is for calls that fail only if an argument is wrong, and ours are constants.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
