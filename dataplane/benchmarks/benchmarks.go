// Package benchmarks compares Weir's embedded limiter with other limiters for Go, and with the least work that any of
// them has to do. README.md has the figures.
//
// It is a Go module of its own, so that the compared modules never become a requirement of Weir. gubernator has a
// further module, because its requirements and these exclude each other.
package benchmarks

import (
	"context"

	"github.com/weirhq/weir/dataplane/benchmarks/workload"
)

var background = context.Background()

// Limiters returns the limiters that take part in a case, in the order of tables.
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

// must panics on an error. Use it for calls with constant arguments, which fail only if an argument is wrong.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
