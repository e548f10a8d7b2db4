// Package fair divides a node's room between the callers and namespaces that use it, so that no caller can leave
// another caller without room. For example, a node keeps at most 100,000 reservations, and a caller alone gets 75,000.
//
//	caller.go  the caller of a call, in its context
//	places.go  a number of places, and each caller's and namespace's share of them
//	line.go    a queue in which callers take turns
//	turns.go   calls at a time, begun in such an order
package fair

import (
	"context"
	"hash/maphash"
)

// Caller identifies the caller of a call: the hash of a label. The zero Caller stands for all callers without a label.
// Two labels have the same hash about once in 2^62 pairs.
type Caller uint64

// Space is a namespace of a workspace.
type Space struct{ Workspace, Namespace string }

// ofSpace is set in the Caller that stands for a namespace's callers without a label.
const ofSpace = 1

var seed = maphash.MakeSeed() // so that callers cannot choose a label with the hash of another label

// callerKey is the context key of a Caller.
type callerKey struct{}

// With returns a context whose calls are made for the caller with a label. An empty label leaves ctx as it is.
func With(ctx context.Context, label string) context.Context {
	if label == "" {
		return ctx
	}
	return context.WithValue(ctx, callerKey{}, Caller(maphash.String(seed, label)|2)&^ofSpace)
}

// OrSpace returns ctx if its calls are made for a caller with a label. Otherwise it returns a context whose calls are
// made for the namespace's callers without a label, which take turns as a single caller.
func OrSpace(ctx context.Context, s Space) context.Context {
	if In(ctx) != 0 {
		return ctx
	}
	return context.WithValue(ctx, callerKey{}, InOrSpace(ctx, s))
}

// InOrSpace returns the caller that the calls of OrSpace's context are made for.
func InOrSpace(ctx context.Context, s Space) Caller {
	if c := In(ctx); c != 0 {
		return c
	}
	return Caller(maphash.Comparable(seed, s) | ofSpace)
}

// In returns the caller that the calls of a context are made for.
func In(ctx context.Context) Caller {
	c, _ := ctx.Value(callerKey{}).(Caller)
	return c
}

// Labelled reports whether the caller has a label.
func (c Caller) Labelled() bool { return c != 0 && c&ofSpace == 0 }
