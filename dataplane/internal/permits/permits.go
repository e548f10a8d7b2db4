// Package permits keeps the reservations and leases of a node's callers. Reservations hold cost (package held), and
// leases are the slots of concurrency limits (packages slots and leases).
package permits

import (
	"time"

	"github.com/weirhq/weir/dataplane/internal/clock"
	"github.com/weirhq/weir/dataplane/internal/loop"
	"github.com/weirhq/weir/dataplane/internal/outbox"
	"github.com/weirhq/weir/dataplane/internal/rules"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

const callTimeout = time.Second // of a call to the origin

// Origin is an origin that grants reservations and leases.
type Origin interface {
	store.Origin
	store.Granter
}

// Config configures Permits.
type Config struct {
	Origin      Origin // nil: this process grants by itself
	EntriesMax  int    // keys with leases
	ReadTimeout time.Duration

	Clock  *clock.Clock
	Rules  *rules.Rules
	Out    *outbox.Outbox
	Calls  *loop.Calls // to the origin; none is made once they are stopped
	Engine Engine
}

// Engine holds the methods of the engine that permits need. They must be safe to call concurrently.
type Engine interface {
	// Refused counts a refusal among the denials of a key.
	Refused(key window.Key, reset *window.Reset, limit int64)

	// Counted returns this node's count of a cell, or 0 if the table has no entry for the key.
	Counted(c *window.Cell, reset *window.Reset) int64

	// Absorb merges the total of a cell into the key's entry, if the table has room for the key.
	Absorb(sh *outbox.Shard, c *window.Cell, reset *window.Reset, total *store.Total, nowMs int64)
}

// Permits are a node's reservations and leases. Call Init first; all methods may then be called concurrently.
type Permits struct {
	Reservations Reservations
	Leases       Leases
}

// Init sets the parts that the permits use, and must be called before any other method. It makes no call.
func (p *Permits) Init(cfg Config) {
	p.Reservations.init(&cfg)
	p.Leases.init(&cfg)
}
