package dataplane

import (
	"fmt"
	"time"

	"github.com/weirhq/weir/dataplane/internal/rules"
	"github.com/weirhq/weir/shared/window"
)

// Request asks for leave to spend Cost on a key. Names are compared as bytes.
//
// A Cost of 0 is left out, and is 1: a request counts unless it says otherwise. One that is to
// count nothing sets ZeroCost. A negative Cost is no word for that, because a cost that was
// computed may come out as one by mistake; it is refused.
type Request struct {
	Workspace  string        // 1 to 191 bytes
	Namespace  string        // 1 to 255 bytes
	Identifier string        // 1 to 255 bytes
	Limit      int64         // cost allowed in any Duration, 0 (blocks) to window.LimitMax
	Duration   time.Duration // 1 s to 366 days, whole milliseconds
	Cost       int64         // 1 to window.LimitMax; 0 is 1

	// ZeroCost makes a request without a Cost cost 0, where it would be 1. It counts nothing,
	// and passes as long as its key is not over the limit: also at the limit, where nothing is
	// left. To ask whether a cost would pass, use Peek.
	ZeroCost bool

	// Shadow lets it pass although it is over its limit, as the shadow mode of a namespace
	// does: see Decision.Shadowed.
	Shadow bool

	peek bool // judged and answered with its cost, which is not counted
}

// cost is what r is judged by, and counts if it is allowed.
func (r *Request) cost() int64 {
	if r.Cost == 0 && !r.ZeroCost {
		return 1
	}
	return r.Cost
}

// Validate reports the first field outside its bounds.
func (r *Request) Validate() error {
	key := r.key()
	if err := key.Validate(); err != nil {
		return err
	}
	if r.ZeroCost && r.Cost != 0 {
		return fmt.Errorf("%w: cost is %d beside ZeroCost (set one of them)", ErrInvalid, r.Cost)
	}
	return validateAmounts(r.Limit, r.Cost)
}

// valid is Validate for the way of a request: no error is made, and most requests
// need nothing else.
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

// resolve finds what is set for r, and changes its limit and duration if an override says so.
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

// Source tells what a decision was based on.
type Source uint8

const (
	// SourceNone is the source of a decision that was not made: see Decision.Err.
	SourceNone Source = iota
	// SourceLocal is a decision from this node's own state, which was fresh enough,
	// or enough to deny.
	SourceLocal
	// SourceOrigin is a decision that asked the region's origin first.
	SourceOrigin
	// SourceDegraded is a decision that wanted the origin's answer, did not get it
	// in time, and was made from this node's own state.
	SourceDegraded
	// SourceDegradedOpen is SourceDegraded in a namespace whose outage policy is open:
	// the request passed whatever this node knows, unless its cost is above the limit.
	SourceDegradedOpen
	// SourceDegradedClosed is SourceDegraded in a namespace whose outage policy is
	// closed: the request was denied whatever this node knows.
	SourceDegradedClosed
)

// Degraded is true when the decision wanted the origin's answer and did not get it.
func (s Source) Degraded() bool { return s >= SourceDegraded && s <= SourceDegradedClosed }

// String is the name used on the wire and in metrics.
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
	// Allowed is the verdict. It is false when Err is set.
	Allowed bool

	// Shadowed is true when the request was over its limit and only passes because
	// its namespace, its override or the request itself is in shadow mode. Its cost was not counted.
	Shadowed bool

	// Source tells what the decision was based on.
	Source Source

	// CandidateDenied is true when the candidate limit of the override that applied would
	// have denied the request, by the same counts at the same instant. The candidate
	// decides nothing; see store.OverrideRow.
	CandidateDenied bool

	// NeverPasses is true of a denial that no waiting changes: the cost is more than the limit,
	// which blocks all costs if it is 0. In a batch: with the costs of the items before it on its key.
	NeverPasses bool

	// Limit is the limit that was applied: the request's, or an override's.
	Limit int64

	// Duration is the window that was applied: the request's, or an override's.
	Duration time.Duration

	// Remaining is limit - current - floor(previous*weight) after this decision, the
	// largest cost that would pass, never negative. A denied cost is not subtracted.
	Remaining int64

	// Current is current + floor(previous*weight) + cost, what was compared with the limit;
	// on denial too. Only a leaky level (the estimate mode) has fractions.
	Current float64

	// ResetAt is the end of the fixed cell that the decision was made in.
	ResetAt time.Time

	// RetryAfter is how long until this same cost would pass if nothing else were
	// counted, exact to the millisecond: by one millisecond less it would not. It is
	// 0 when the request was allowed, and with NeverPasses. In a
	// batch: until the items before it on its key and this one would pass together. With
	// SourceDegradedClosed: until the origin is asked again.
	RetryAfter time.Duration

	// Override is the pattern of the override that applied, "" for none.
	Override string

	// Err is set, and wraps ErrInvalid, when the request itself is at fault; nothing
	// was counted then. A dependency that is down is never an error.
	Err error
}

// BatchMax is how many requests one AllowMany may carry.
const BatchMax = 1000

// Batch is the answer to AllowMany.
type Batch struct {
	// Allowed is true when every item passed and all costs were counted. If it is
	// false none was.
	Allowed bool

	// Decisions holds each item's own verdict, in the order of the requests: what it
	// would have been together with the items before it.
	Decisions []Decision

	// Err wraps ErrInvalid, and names the first item at fault, when the batch was
	// not decided at all.
	Err error
}

func milliseconds(ms int64) time.Duration { return time.Duration(ms) * time.Millisecond }
