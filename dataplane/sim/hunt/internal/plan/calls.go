package plan

import (
	"maps"
	"slices"

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

// OriginCalls maps each kind of calls that an origin may refuse to its operations.
var OriginCalls = map[Calls][]memstore.Op{
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

// MySQLCalls maps each kind of calls that MySQL may refuse to its operations.
var MySQLCalls = map[Calls][]memstore.Op{
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
