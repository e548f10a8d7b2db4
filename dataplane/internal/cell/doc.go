// Package cell keeps what a node knows about keys: entries, the table that finds them, and
// what has no place in it.
//
// An entry's words, flags, ledger and lock are read and written here and nowhere else. The
// limiter, replay, claims, syncs and listeners speak to an entry in named
// operations, each of which takes the entry's lock at most once and does no I/O.
//
//	entry.go word.go flags.go     an entry, the word that counts, its flags
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
