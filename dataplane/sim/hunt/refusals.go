package hunt

import (
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/weirhq/weir/dataplane/memstore"
)

// Calls names a kind of calls that a server refuses while it answers all others.
type Calls string

// Kinds of calls that an origin may refuse. For example, a Redis whose memory is full refuses calls that add something.
// A Redis that has become a replica, or has too few replicas, refuses all writes. If its user lacks a right, it refuses
// a single kind.
const (
	Writes    Calls = "writes"
	Additions Calls = "additions"
	Sends     Calls = "sends"
)

// originCalls maps each kind of calls that an origin may refuse to its operations.
var originCalls = map[Calls][]memstore.Op{
	Writes: append([]memstore.Op{
		memstore.OpApply, memstore.OpRaise, memstore.OpHealed, memstore.OpStoreSettings, memstore.OpLease,
		memstore.OpRelease, memstore.OpAck, memstore.OpStored,
	}, memstore.OriginWrites()...),
	Additions: append([]memstore.Op{
		memstore.OpApply, memstore.OpRaise, memstore.OpHealed, memstore.OpStoreSettings,
	}, memstore.OriginWrites()...),
	Sends:          {memstore.OpSend},
	"reads":        {memstore.OpRead},
	"claims":       {memstore.OpClaim},
	"reservations": {memstore.OpHold},
	"grants":       {memstore.OpGrants},
	"messages":     {memstore.OpListen},
	"relay leases": {memstore.OpLease},
	"changes":      {memstore.OpChanges},
	"told":         {memstore.OpAck},
	"scans":        {memstore.OpScan},
	"totals":       {memstore.OpApply},
	"repairs":      {memstore.OpRaise, memstore.OpHealed},
	"settings":     {memstore.OpSettings},
	"new settings": {memstore.OpStoreSettings},
	"heartbeats":   {memstore.OpHeartbeat, memstore.OpHeartbeats, memstore.OpStored},
}

// mysqlCalls maps each kind of calls that MySQL may refuse to its operations.
var mysqlCalls = map[Calls][]memstore.Op{
	Writes:            {memstore.OpAppend, memstore.OpPrune, memstore.OpPublish, memstore.OpHeartbeat},
	"rows of news":    {memstore.OpAppend},
	"reads of news":   {memstore.OpReadFeed},
	"reads of own":    {memstore.OpOwn},
	"pruning":         {memstore.OpPrune},
	"counts":          {memstore.OpPublish},
	"reads of counts": {memstore.OpImport},
	"settings":        {memstore.OpSettings},
	"heartbeats":      {memstore.OpHeartbeat},
}

// kinds lists the kinds of calls that a server may refuse, always in the same order.
func kinds(of map[Calls][]memstore.Op) []Calls { return slices.Sorted(maps.Keys(of)) }

var errRefused = errors.New("hunt: the server refuses calls of this kind")

// refusals has the calls that a server refuses now. Each part may refuse other calls.
type refusals struct {
	mu sync.Mutex
	by map[refusedCall]refused
}

type refusedCall struct {
	part int // of an origin, from 0 on
	op   memstore.Op
}

// refused counts the faults that refuse a call, and has the time since which there is any.
type refused struct {
	faults int
	since  time.Time
}

// change begins or ends a fault in which some parts refuse calls.
func (r *refusals) change(parts []int, ops []memstore.Op, faults int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.by == nil {
		r.by = make(map[refusedCall]refused)
	}
	for _, part := range parts {
		for _, op := range ops {
			call := refusedCall{part, op}
			is := r.by[call]
			if is.faults == 0 {
				is.since = time.Now()
			}
			is.faults += faults
			r.by[call] = is
		}
	}
}

// refusedFor returns for how long a call has been refused without a pause, 0 if it is not.
func (r *refusals) refusedFor(part int, op memstore.Op) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if is := r.by[refusedCall{part, op}]; is.faults > 0 {
		return time.Since(is.since)
	}
	return 0
}

// hook refuses calls to a part. failed is called for each.
func (r *refusals) hook(part int, failed func()) func(memstore.Op) error {
	return func(op memstore.Op) error {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.by[refusedCall{part, op}].faults == 0 {
			return nil
		}
		failed()
		return errRefused
	}
}

// fault makes some parts refuse calls for a time.
func (r *refusals) fault(parts []int, ops []memstore.Op) (begin, end func()) {
	return func() { r.change(parts, ops, 1) }, func() { r.change(parts, ops, -1) }
}
