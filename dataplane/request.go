package dataplane

import (
	"fmt"
	"time"

	"github.com/weirhq/weir/dataplane/internal/rules"
	"github.com/weirhq/weir/shared/window"
)

// Request requests permission to spend Cost on a key. Names are compared as bytes.
//
// If Cost is left out, it is 1, so a request counts unless you set ZeroCost. A negative Cost is an error, because it
// is usually the result of a wrong computation.
type Request struct {
	Workspace  string        // 1 to 191 bytes
	Namespace  string        // 1 to 255 bytes
	Identifier string        // 1 to 255 bytes
	Limit      int64         // cost allowed in any Duration, 0 (blocks) to window.LimitMax
	Duration   time.Duration // 1 s to 366 days, whole milliseconds
	Cost       int64         // 1 to window.LimitMax; 0 means 1

	// ZeroCost makes a request without a Cost cost 0 instead of 1. It counts nothing, and passes as long as its key is
	// not over the limit. It also passes at the limit, where nothing remains. To check whether a cost would pass, use
	// Peek.
	ZeroCost bool

	// Shadow lets the request pass although it is over its limit, as the shadow mode of a namespace does: see
	// Decision.Shadowed.
	Shadow bool

	peek bool // decide with the cost, but do not count it
}

// cost returns the cost by which r is judged, and which counts if r is allowed.
func (r *Request) cost() int64 {
	if r.Cost == 0 && !r.ZeroCost {
		return 1
	}
	return r.Cost
}

// Validate returns an error for the first field that is out of bounds, or nil.
func (r *Request) Validate() error {
	key := r.key()
	if err := key.Validate(); err != nil {
		return err
	}
	if r.ZeroCost && r.Cost != 0 {
		return fmt.Errorf("%w: cost is %d and ZeroCost is set (set one of them)", ErrInvalid, r.Cost)
	}
	return validateAmounts(r.Limit, r.Cost)
}

// valid reports whether Validate returns nil. The request path uses it, because it makes no error.
func (r *Request) valid() bool {
	return uint(len(r.Workspace)-1) < window.WorkspaceBytesMax &&
		uint(len(r.Namespace)-1) < window.NamespaceBytesMax &&
		uint(len(r.Identifier)-1) < window.IdentifierBytesMax &&
		uint64(r.Limit) <= window.LimitMax && uint64(r.Cost) <= window.LimitMax && (r.Cost == 0 || !r.ZeroCost) &&
		r.Duration >= window.DurationMin && r.Duration <= window.DurationMax && r.Duration%time.Millisecond == 0
}

func (r *Request) key() window.Key {
	return window.Key{Workspace: r.Workspace, Namespace: r.Namespace, Identifier: r.Identifier, Duration: r.Duration}
}

// resolve returns the rule that applies to r, and changes r's limit and duration if an override applies.
func (r *Request) resolve(set *rules.Settings) *rules.Rule {
	return set.Resolve(r.Workspace, r.Namespace, r.Identifier, &r.Limit, &r.Duration)
}

func validateAmounts(limit, cost int64) error {
	if limit < 0 || limit > window.LimitMax {
		return fmt.Errorf("%w: limit is %d (0 to %d)", ErrInvalid, limit, int64(window.LimitMax))
	}
	if cost < 0 || cost > window.LimitMax {
		return fmt.Errorf("%w: cost is %d (0 to %d)", ErrInvalid, cost, int64(window.LimitMax))
	}
	return nil
}

func checkTTL(ttl, least, most time.Duration) error {
	if ttl < least || ttl > most {
		return fmt.Errorf("%w: ttl is %v (%v to %v)", ErrInvalid, ttl, least, most)
	}
	return nil
}

// Source is the basis of a decision.
type Source uint8

const (
	// SourceNone is the source of a decision that was not made: see Decision.Err.
	SourceNone Source = iota
	// SourceLocal is a decision from this node's own state, which was fresh enough, or sufficient to deny.
	SourceLocal
	// SourceOrigin is a decision for which this node first called the region's origin.
	SourceOrigin
	// SourceDegraded is a decision that needed the origin's answer, did not get it in time, and was made from this
	// node's own state.
	SourceDegraded
	// SourceDegradedOpen is SourceDegraded in a namespace whose outage policy is open: the request passed whatever the
	// counts of this node, unless its cost is above the limit.
	SourceDegradedOpen
	// SourceDegradedClosed is SourceDegraded in a namespace whose outage policy is closed: the request was denied
	// whatever the counts of this node.
	SourceDegradedClosed
)

// Degraded reports whether the decision needed the origin's answer and did not get it.
func (s Source) Degraded() bool { return s >= SourceDegraded && s <= SourceDegradedClosed }

// String returns the name used on the wire and in metrics.
func (s Source) String() string {
	switch s {
	case SourceLocal:
		return "local"
	case SourceOrigin:
		return "origin"
	case SourceDegraded:
		return "degraded"
	case SourceDegradedOpen:
		return "degraded-open"
	case SourceDegradedClosed:
		return "degraded-closed"
	}
	return "none"
}

// Decision is the answer to a Request.
type Decision struct {
	// Allowed reports whether the request may pass. It is false if Err is set.
	Allowed bool

	// Shadowed reports whether the request was over its limit and passes only because its namespace, its override or the
	// request itself is in shadow mode. Its cost was not counted.
	Shadowed bool

	// Source is the basis of the decision.
	Source Source

	// CandidateDenied reports whether the candidate limit of the override that applied would have denied the request, by
	// the same counts at the same instant. The candidate decides nothing; see store.OverrideRow.
	CandidateDenied bool

	// NeverPasses reports a denial that waiting cannot change, because the cost is more than the limit. For example, a
	// limit of 0 blocks all costs. In a batch, the costs of the earlier items on the same key are added.
	NeverPasses bool

	// Limit is the limit that was applied: the request's, or an override's.
	Limit int64

	// Duration is the window that was applied: the request's, or an override's.
	Duration time.Duration

	// Remaining is limit - current - floor(previous*weight) after this decision: the largest cost that would pass. It is
	// never negative. A denied cost is not subtracted.
	Remaining int64

	// Current is current + floor(previous*weight) + cost, the level that was compared with the limit, also on denial.
	// Only a leaky level (the estimate mode) has fractions.
	Current float64

	// ResetAt is the end of the fixed cell in which the decision was made.
	ResetAt time.Time

	// RetryAfter is the time until the same cost would pass if nothing else were counted. It is exact to the
	// millisecond: a millisecond earlier the cost would not pass. It is 0 if the request was allowed, and with
	// NeverPasses. There are three special cases:
	//
	//   - In a batch, it is the time until the item would pass together with the earlier items on its key.
	//   - With SourceDegradedClosed, it is the time until the limiter calls the origin again.
	//   - For a reservation in a namespace with a precise window, it is an upper bound, because the origin's reply does
	//     not include when the cost was accepted.
	RetryAfter time.Duration

	// Override is the pattern of the override that applied, "" for none.
	Override string

	// Err is set, and wraps ErrInvalid, if the request itself is invalid. Then nothing was counted. A dependency that is
	// down is never an error.
	Err error
}

// BatchMax is the highest number of requests in an AllowMany.
const BatchMax = 1000

// Batch is the answer to AllowMany.
type Batch struct {
	// Allowed reports whether every item passed and all costs were counted. If it is false, no cost was counted.
	Allowed bool

	// Decisions holds each item's own verdict, in the order of the requests. Each verdict assumes that the items before
	// it were counted.
	Decisions []Decision

	// Err wraps ErrInvalid, and names the first invalid item, if the batch was not decided at all.
	Err error
}

func milliseconds(ms int64) time.Duration { return time.Duration(ms) * time.Millisecond }
