package dataplane

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/weirhq/weir/dataplane/internal/brief"
	"github.com/weirhq/weir/dataplane/internal/slots"
)

// ConcurrencyExplanation describes a key with leases as a node has it at the moment of the call.
type ConcurrencyExplanation struct {
	At time.Time

	// Decision is the answer that Acquire would give now from this node's slots, without calling the origin. Nothing is
	// granted.
	Decision ConcurrencyDecision

	Overridden bool   // an override set the limit; Decision.Override is its pattern
	Shadow     bool   // the namespace or the override lets requests over the limit pass
	Outage     string // the namespace's policy

	Known    bool          // this node has leases of the key, or waiting requests; otherwise the fields below are 0
	Leases   int64         // held on this node; of leases by id, only the leases that this process has granted by itself
	Slots    int64         // slots that this node has for them
	Others   int64         // slots of other nodes, and leases by id, by the origin's last reply
	Waiters  int64         // requests that wait on this node
	Alone    bool          // there is no origin: this process has all slots
	ValidFor time.Duration // until the node's slots end unless they are renewed
	Starved  bool          // other nodes were refused recently, so this node keeps no spare slot
	RestsFor time.Duration // until the origin is called again after failed calls
}

// ExplainConcurrency explains whether and why a lease would be granted or refused. It grants nothing, brings no key
// into memory, and calls no server.
func (l *Limiter) ExplainConcurrency(r ConcurrencyRequest) (x ConcurrencyExplanation, err error) {
	var ask slots.Ask
	if _, err := l.called(context.Background()); err != nil {
		return ConcurrencyExplanation{}, err
	}
	if err := r.prepare(&ask); err != nil {
		return ConcurrencyExplanation{}, err
	}
	by := l.permits.Leases.Judge(&ask)
	x.At = time.UnixMilli(l.engine.clock.ReadMs())
	x.Overridden, x.Shadow, x.Outage = by.Pattern != "", by.Shadow, by.Outage.String()
	var result slots.Result
	at, known := l.permits.Leases.Look(&ask, &result)
	x.Known, x.Leases, x.Slots, x.Others, x.Waiters = known, at.Leases, at.Slots, at.Others, at.Waiters
	x.Alone, x.ValidFor, x.Starved, x.RestsFor = at.Alone, at.ValidFor, at.Starved, at.RestsFor
	result.Out = at.RestsFor > 0
	x.Decision.take(&result, &ask, by)
	return x, nil
}

// String returns the explanation as a paragraph of text.
func (x ConcurrencyExplanation) String() string {
	var b strings.Builder
	say := func(format string, args ...any) { fmt.Fprintf(&b, format, args...) }
	d := &x.Decision
	switch {
	case d.Shadowed:
		say("A lease would be over the limit of %d, and let pass without a slot because of shadow mode", d.Limit)
	case d.Allowed:
		say("A lease would be granted: limit %d, %d held by this node's counts", d.Limit, d.Held)
	case x.Alone || d.Limit == 0:
		say("No slot is free: limit %d, %d held by this node's counts", d.Limit, d.Held)
	case x.Known:
		say("No slot is free here: limit %d, %d held by this node's counts; it would call the origin", d.Limit, d.Held)
	default:
		say("This node holds no slots of the key; it would request one of %d from the origin, which has all leases", d.Limit)
	}
	if x.Overridden {
		say(". The limit is that of the override %q", brief.Name(d.Override))
	} else {
		say(". The limit is that of the request")
	}
	if x.Known {
		say(". This node has %d leases on %d slots, others hold %d, and %d wait here", x.Leases, x.Slots, x.Others, x.Waiters)
	}
	if x.Starved {
		say(". Others were refused lately, so no slot is kept to spare")
	}
	if x.RestsFor > 0 {
		say(". The origin has not answered, and is called again in %v: the outage policy is %s", x.RestsFor, x.Outage)
	}
	say(".")
	return b.String()
}
