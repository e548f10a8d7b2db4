// Package cell holds a node's state of keys: entries, the table that finds them, and a sketch for keys without room in
// the table.
//
// An entry's words, flags, ledger and lock are read and written here and nowhere else. The
// limiter and package outbox change an entry by named operations, each of which takes the entry's lock at most once
// and does no I/O.
//
// An entry is made of parts, and each field is touched by the methods of one part alone
// (TestOnlyTheOwnerOfAFieldTouchesIt):
//
//	Entry       identity, lock, rotation, eviction, and decisions by the counts
//	counter     the words of its two cells
//	Ledger      data for a fleet: sends, answers, credit, restores
//	Claim       a cost that waits for the origin, and claims, the part of an entry about them
//	NodeShare   decisions within the node's share of a limit
//	Histories   decisions by a precise window, and when the counts of both cells grew
//	Reads       reads from the origin: freshness, the read in flight, strictness
//	Estimates   the estimate mode: judging by estimates, syncs
//
// A part is reached by a method of Entry, for example Entry.Ledger. It holds one or two pointers, and is made for each
// call. All parts share the entry's flags and its lock. Methods whose names end in Locked are called under that lock.
//
//	entry.go word.go flags.go     an entry, the word that counts, its flags
//	counter.go                    the words of both cells
//	judge.go hold.go              decisions: of one request, of a batch
//	min_limits.go                 the lowest limit that a cell's cost was counted against
//	dirty.go                      the entries whose counts have changed since the last tick
//	ledger.go merge.go            counts that a fleet needs in addition, and how totals are merged
//	read.go replay.go claim.go    refresh, replay and claims
//	restore.go                    cost to send again after the origin has lost its counts
//	forget.go                     cost of cells that the origin has expired by a clock that was ahead
//	node_share.go charge.go       node shares of a limit; settlements, refunds and charges
//	estimate.go sync.go           the estimate mode
//	histories.go                  precise windows
//	horizon.go set_right.go       a clock that was ahead and is set back
//	place.go                      entries that were numbered before the origin's clock was known
//	table.go evict.go group.go    the table, eviction, and the share of a namespace
//	untracked.go overflow.go      keys without room in the table: temporary entries, and the sketch
//	new_keys.go                   the bound on new keys that a namespace creates at the origin
//	identity.go                   identities and names of keys
//	look.go                       readings for people and tests
package cell
