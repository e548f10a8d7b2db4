package cell

import (
	"sync/atomic"

	"github.com/weirhq/weir/dataplane/internal/clock"
	"github.com/weirhq/weir/dataplane/store"
)

// ledger is what a fleet needs beside the counts. Guarded by Entry.mu.
type ledger struct {
	cells  [2]cellLedger
	epochs [2]store.Epoch // by slot: of the origin's last answer about the cell; 0: there was none
	next   *Entry         // dirty list; belongs to the owner of Dirty, then to the collector
	extra  *ledgerExtra   // nil on nearly every key
}

// cellLedger is the background's part of a cell. With C for the word's count, U for
// ledgerExtra.unnamed, N for ledgerExtra.netted and K for ledgerExtra.claiming, all nearly always 0:
//
//	0 <= settled - U         what the origin has named, or is being told
//	settled <= C - N - K     own cost not yet on its way: never negative
//	0 <= peers <= settled    what is not the other nodes' is this node's own
type cellLedger struct {
	// part of the count that needs no sending: own cost confirmed, on its way or to be restored, and the peers' cost
	settled atomic.Int64
	peers   int64 // part of the count that the region's other nodes have accepted
}

// ledgerExtra is what few keys ever have: those that were refunded after others had been
// told, or are untracked keys, or are near their limits in a namespace that waits for its share,
// and those that the origin has lost. By slot. And all of the estimate mode.
type ledgerExtra struct {
	unnamed [2]int64 // part of settled that the origin has not named: an untracked key's
	credit  [2]int64 // refunded here after others had been told; see Reservation
	netted  [2]int64 // own cost that credit has paid for: it stays in the word, and is never sent
	restore [2]restoring
	carried [2]int64 // the part of others from cells that became future ones when the clock was set back: see SetRight

	metered  *meter    // of the estimate mode: constant, and keeps this extra for the entry's life
	inFlight [2]int64  // own cost on its way in a send; of keys with flagWaits
	claiming [2]int64  // cost on its way in claims: in the count, though not accepted yet, and perhaps in the totals
	lent     [2]*Claim // those among them that have lent their cost to callers who have left
	// since when a claim is refused for the room that others may need, while nothing of theirs was heard; 0: not
	overShare clock.Steady
}

// meter may be asked for without a lock, of entries with flagEstimate.
func (b *ledger) meter() *meter { return b.extra.metered }

func (b *ledger) unnamed(slot int) int64 {
	if b.extra == nil {
		return 0
	}
	return b.extra.unnamed[slot]
}

func (b *ledger) credit(slot int) int64 {
	if b.extra == nil {
		return 0
	}
	return b.extra.credit[slot]
}

func (b *ledger) carried(slot int) int64 {
	if b.extra == nil {
		return 0
	}
	return b.extra.carried[slot]
}

func (b *ledger) netted(slot int) int64 {
	if b.extra == nil {
		return 0
	}
	return b.extra.netted[slot]
}

func (b *ledger) inFlight(slot int) int64 {
	if b.extra == nil {
		return 0
	}
	return b.extra.inFlight[slot]
}

func (b *ledger) claiming(slot int) int64 {
	if b.extra == nil {
		return 0
	}
	return b.extra.claiming[slot]
}

func (b *ledger) needExtra() *ledgerExtra {
	if b.extra == nil {
		b.extra = &ledgerExtra{}
	}
	return b.extra
}

// reset forgets a cell, and extra with the last cell that needed it.
func (b *ledger) reset(slot int) {
	b.cells[slot].settled.Store(0)
	b.cells[slot].peers, b.epochs[slot] = 0, 0
	if r := b.extra; r != nil {
		r.unnamed[slot], r.credit[slot], r.netted[slot], r.inFlight[slot], r.claiming[slot] = 0, 0, 0, 0, 0
		r.restore[slot], r.lent[slot], r.carried[slot] = restoring{}, nil, 0
		if *r == (ledgerExtra{}) {
			b.extra = nil
		}
	}
}

// acceptedLocked is what may be told to others.
func (e *Entry) acceptedLocked(slot int) int64 {
	return e.counter.count(slot) - e.ledger().netted(slot) - e.ledger().claiming(slot)
}

// unsentLocked is this node's own accepted cost that the origin has not confirmed
// and that is neither on its way nor to be restored.
func (e *Entry) unsentLocked(slot int) int64 {
	return e.acceptedLocked(slot) - e.ledger().cells[slot].settled.Load()
}

// ownLocked is what this node has accepted, sent or not.
func (e *Entry) ownLocked(slot int) int64 {
	return max(0, e.acceptedLocked(slot)-e.ledger().cells[slot].peers)
}

// foreignLocked is what all other regions have reported for the cell.
func (e *Entry) foreignLocked(slot int) int64 {
	b := e.ledger()
	return e.othersIn(slot) + b.credit(slot) + b.netted(slot) - b.carried(slot)
}

// sendLocked puts n of the unsent cost on its way; returnLocked takes it back: the
// origin will not have it.
func (e *Entry) sendLocked(slot int, n int64) {
	if e.flags.Or(flagSending<<slot)&flagWaits != 0 {
		e.ledger().needExtra().inFlight[slot] = n
	}
	e.ledger().cells[slot].settled.Add(n)
}

func (e *Entry) returnLocked(slot int, n int64) {
	e.arriveLocked(slot)
	e.ledger().cells[slot].settled.Add(-n)
}

// arriveLocked ends a send.
func (e *Entry) arriveLocked(slot int) {
	e.flags.And(^uint32(flagSending << slot))
	if e.ledger().extra != nil {
		e.ledger().extra.inFlight[slot] = 0
	}
}
