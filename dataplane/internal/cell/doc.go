// Package cell keeps what a node knows about keys: entries, the table that finds them, and
// what has no place in it.
//
// An entry's words, flags, ledger and lock are read and written here and nowhere else. The
// limiter, replay, claims, syncs and listeners speak to an entry in named
// operations, each of which takes the entry's lock at most once and does no I/O.
//
// An entry is made of parts, and each field is touched by the methods of one part alone
// (TestOnlyTheOwnerOfAFieldTouchesIt):
//
//	Entry       identity, lock, rotation, eviction, and decisions by the counts
//	counter     the words of its two cells
//	Ledger      what a fleet needs: sends, answers, credit, restores
//	Claim       a cost that waits for the origin, and claims, what an entry keeps of those
//	NodeShare   decisions within the node's share of a limit
//	Reads       reads from the origin: freshness, the read in flight, strictness
//	Estimates   the estimate mode: judging by estimates, syncs
//
// A part is reached by a method of Entry, for example Entry.Ledger. It holds one or two pointers, and is made for each
// call. All parts share the entry's flags and its lock. Methods whose names end in Locked are called under that lock.
//
//	entry.go word.go flags.go     an entry, the word that counts, its flags
//	counter.go                    the words of both cells
//	judge.go hold.go              decisions: of one request, of a batch
//	ledger.go merge.go            what a fleet needs beside the counts, and how totals are merged
//	read.go replay.go claim.go    refresh, replay and claims
//	restore.go                    what an origin is told that has lost its counts
//	node_share.go charge.go       node shares of a limit; settlements, refunds and charges
//	estimate.go sync.go           the estimate mode
//	table.go evict.go group.go    the table, what goes, and the share of a namespace
//	untracked.go overflow.go      keys without a place in the table
//	identity.go                   identities and names of keys
//	look.go                       readings for people and tests
package cell
