package dataplane

import (
	"context"

	"github.com/weirhq/weir/dataplane/internal/fair"
)

// WithCaller returns a context whose calls about reservations and leases are made for a caller. The label says which:
// for example, a tenant's name, or the address that a request came from. weir-node takes the token of a call, its
// client certificate, or its address.
//
// A node has room for a bounded number of reservations, leases, requests that wait for a lease, and calls to the
// origin. A caller alone may have half of that room at most, and the more others have, the less each may have. Calls
// of one caller wait in their order, and callers take turns. So a caller that floods a node delays another caller's
// call by no more than one call of its own. Set a label if a process serves several callers: calls without a label
// share what their namespace may have, which is three quarters of the room at most. See "Shares" in node/README.md.
//
// A label may have any length. An empty label leaves ctx as it is. Decisions of Allow and AllowMany need no label.
func WithCaller(ctx context.Context, label string) context.Context { return fair.With(ctx, label) }
