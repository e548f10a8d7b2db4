package dataplane

import (
	"context"

	"github.com/weirhq/weir/dataplane/internal/fair"
)

// WithCaller returns a context whose calls about reservations and leases are made for a caller. The label names the
// caller: for example, a tenant, or the address that a request came from. weir-node uses the token of a call, its
// client certificate, or its address.
//
// Set a label if a process serves several callers, so that a single caller cannot leave the others without room:
//
//	held := limiter.Reserve(dataplane.WithCaller(ctx, tenant), request)
//
// A node has room for a bounded number of reservations, leases, and requests that wait for a lease, and a key has
// room for a bounded number of open reservations. A single caller can have three quarters of the room. The more the
// other callers have, the less each can have: for example, of 100,000 reservations a single caller gets 75,000, two
// callers of a namespace 39,473 each, and ten 8,241 each. Callers also take turns in calls to the origin and in
// waiting for a lease. So a caller that floods a node delays another caller's call by at most two calls of its own.
//
// Without a label, the callers of a namespace are one caller: together they can have three quarters of a node's room.
// In the room of a key, callers without a label have no shares: the first to come can take all of it. So label
// either all calls about a key or none of them. See "Shares of reservations and leases" in node/README.md.
//
// Labels don't divide the limit of a key. For example, one caller can hold all ten slots of a concurrency limit of
// 10. To leave some for others, acquire a slot of a key of the caller's own first: guides/concurrency.md shows how.
//
// A label can have any length. An empty label leaves ctx as it is. Allow and AllowMany need no label.
func WithCaller(ctx context.Context, label string) context.Context { return fair.With(ctx, label) }
