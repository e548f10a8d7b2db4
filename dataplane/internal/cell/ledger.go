package cell

import (
	"sync/atomic"
	"unsafe"

	"github.com/weirhq/weir/dataplane/store"
)

// Ledger is the part of an entry that a fleet needs: cost that was sent to the origin and that it has confirmed, cost
// of other nodes and regions, credit, and cost to be restored. A node without an origin keeps none of it.
//
// It owns its books. Methods whose names end in Locked are called under Entry.mu; the others take it.
type Ledger struct {
	*books // nil on a node alone
	e      *Entry
}

// Ledger returns the part of the entry that a fleet needs.
func (e *Entry) Ledger() Ledger { return Ledger{e.keeps(), e} }

// keeps returns the books of the entry, or nil on a node without an origin.
func (e *Entry) keeps() *books {
	if e.flags.Load()&flagFleet == 0 {
		return nil
	}
	// newEntry sets flagFleet only where behind is the first field of a behindOfFleet.
	return &(*behindOfFleet)(unsafe.Pointer(e.behind)).books
}

// books are the data that a fleet needs in addition to the counts: the data of a Ledger. Guarded by Entry.mu.
type books struct {
	cells  [2]cellLedger
	epochs [2]store.Epoch // by slot: of the origin's last answer about the cell; 0: there was none
	next   *Entry         // dirty list; belongs to the owner of Dirty, then to the collector
	extra  *ledgerExtra   // nil on nearly every key that has no cost on its way
}

// cellLedger is the background's part of a cell. With C for the word's count, U for
// ledgerExtra.unnamed, N for ledgerExtra.netted and K for claims.cost, all nearly always 0:
//
//	0 <= settled - U         cost that the origin has named, or that is being sent
//	settled <= C - N - K     own cost not yet on its way: never negative
//	0 <= peers <= settled    the rest of the count is this node's own cost
type cellLedger struct {
	// part of the count that needs no sending: own cost confirmed, on its way or to be restored, and the peers' cost
	settled atomic.Int64
	peers   int64 // part of the count that the region's other nodes have accepted
}

// ledgerExtra is data that only some keys have, few of them outside of the estimate mode:
//
//   - keys that were refunded after the cost had been sent,
//   - untracked keys,
//   - keys near their limits in a namespace that waits for its share,
//   - keys that the origin has lost, or may have forgotten,
//   - all keys of the estimate mode.
//
// Keys with flagWaits have it while their cost is on its way. Arrays are by slot.
type ledgerExtra struct {
	unnamed [2]int64 // part of settled that the origin has not named: an untracked key's
	credit  [2]int64 // refunded here after the cost had been sent; see Reservation
	netted  [2]int64 // own cost that credit has paid for: it stays in the word, and is never sent
	restore [2]restoring
	carried [2]int64 // the part of others from cells that a clock set back made future cells: see SetRight
	// cost that the origin had named and may have forgotten since, less the part of it that was given back: see Forget
	forgotten [2]int64

	metered  *meter   // of the estimate mode: constant, and keeps this extra for the entry's life
	inFlight [2]int64 // own cost that was sent and has no answer yet; of keys with flagWaits, and where first is set
	first    [2]bool  // that cost was sent without an epoch, and another answer has brought an epoch of the cell since
	claims   claims
}

// meter can be called without a lock, on entries with flagEstimate.
func (b *books) meter() *meter { return b.extra.metered }

// beginMeter makes a meter, with an extra in the same piece of memory.
func (b *books) beginMeter() {
	whole := &struct {
		rare  ledgerExtra
		meter meter
	}{}
	whole.rare.metered = &whole.meter
	b.extra = &whole.rare
}

func (b *books) unnamed(slot int) int64 {
	if b.extra == nil {
		return 0
	}
	return b.extra.unnamed[slot]
}

func (b *books) credit(slot int) int64 {
	if b.extra == nil {
		return 0
	}
	return b.extra.credit[slot]
}

// named returns the cost of a cell that the origin has named, or is being sent.
func (b *books) named(slot int) int64 { return b.cells[slot].settled.Load() - b.unnamed(slot) }

// peersIn returns the cost of the region's other nodes in a cell.
func (b *books) peersIn(slot int) int64 { return b.cells[slot].peers }

// epoch returns the epoch of the origin's last answer about a cell, 0 if there was none.
func (b *books) epoch(slot int) store.Epoch { return b.epochs[slot] }

// pay pays for cost from a cell's credit, and returns how much it paid. The cost stays in the word, and others keeps
// the amount that balances it. If both were removed, a word could return to an earlier value while others has changed,
// and a decision that was judged before would count after.
func (b *books) pay(slot int, cost int64) (paid int64) {
	if paid = min(b.credit(slot), cost); paid > 0 {
		b.extra.credit[slot] -= paid
		b.extra.netted[slot] += paid
	}
	return paid
}

func (b *books) carried(slot int) int64 {
	if b.extra == nil {
		return 0
	}
	return b.extra.carried[slot]
}

func (b *books) netted(slot int) int64 {
	if b.extra == nil {
		return 0
	}
	return b.extra.netted[slot]
}

func (b *books) inFlight(slot int) int64 {
	if b.extra == nil {
		return 0
	}
	return b.extra.inFlight[slot]
}

func (b *books) isFirst(slot int) bool { return b.extra != nil && b.extra.first[slot] }

func (b *books) claiming(slot int) int64 {
	if b.extra == nil {
		return 0
	}
	return b.extra.claims.of(slot)
}

// take copies all data from the books of an entry that ends.
func (b *books) take(was *books) {
	for slot := range b.cells {
		b.cells[slot].settled.Store(was.cells[slot].settled.Load())
		b.cells[slot].peers = was.cells[slot].peers
	}
	b.epochs = was.epochs
	if was.extra != nil {
		extra := *was.extra
		b.extra = &extra
	}
}

func (b *books) needExtra() *ledgerExtra {
	if b.extra == nil {
		b.extra = &ledgerExtra{}
	}
	return b.extra
}

// reset drops a cell's data, and extra with the last cell that needed it.
func (b *books) reset(slot int) {
	b.cells[slot].settled.Store(0)
	b.cells[slot].peers, b.epochs[slot] = 0, 0
	if r := b.extra; r != nil {
		r.unnamed[slot], r.credit[slot], r.netted[slot], r.inFlight[slot] = 0, 0, 0, 0
		r.restore[slot], r.carried[slot], r.first[slot], r.forgotten[slot] = restoring{}, 0, false, 0
		r.claims.reset(slot)
		b.freeExtra()
	}
}

// freeExtra frees an extra that holds nothing. A namespace that waits is the default, so nearly every key that is sent
// has an extra until the answer, and 200 B an identifier leave no room for an extra.
func (b *books) freeExtra() {
	if b.extra != nil && *b.extra == (ledgerExtra{}) {
		b.extra = nil
	}
}

// resetLocked drops a cell's data, and returns its unsent cost.
func (l Ledger) resetLocked(slot int) (unsent int64) {
	if l.books == nil {
		return 0
	}
	unsent = max(0, l.unsentLocked(slot))
	l.books.reset(slot)
	return unsent
}

// acceptedLocked returns the cost that may be sent to others.
func (l Ledger) acceptedLocked(slot int) int64 {
	return l.e.counter.count(slot) - l.netted(slot) - l.claiming(slot)
}

// unsentLocked returns this node's own accepted cost that the origin has not confirmed and that is neither on its way
// nor to be restored.
func (l Ledger) unsentLocked(slot int) int64 {
	return l.acceptedLocked(slot) - l.cells[slot].settled.Load()
}

// ownLocked returns the cost that this node has accepted, sent or not.
func (l Ledger) ownLocked(slot int) int64 {
	return max(0, l.acceptedLocked(slot)-l.cells[slot].peers)
}

// unconfirmedLocked returns own accepted cost that the origin has not confirmed, on its way or not, and cost that the
// origin has lost.
func (l Ledger) unconfirmedLocked(slot int, word uint64) int64 {
	unconfirmed := max(0, wordCount(word)-l.netted(slot)-l.claiming(slot)-l.cells[slot].settled.Load()) + l.inFlight(slot)
	if l.e.flags.Load()&(flagRestore<<slot) != 0 {
		unconfirmed += max(1, l.extra.restore[slot].own) // no claim is decided by a total that lacks it
	}
	return unconfirmed
}

// foreignLocked returns the cost that all other regions have reported for the cell.
func (l Ledger) foreignLocked(slot int) int64 {
	return l.e.othersIn(slot) + l.credit(slot) + l.netted(slot) - l.carried(slot)
}

// sendLocked puts n of the unsent cost on its way.
func (l Ledger) sendLocked(slot int, n int64) {
	if l.e.flags.Or(flagSending<<slot)&flagWaits != 0 {
		l.needExtra().inFlight[slot] = n
	}
	l.cells[slot].settled.Add(n)
}

// settleLocked counts own cost as confirmed, or a negative cost as unsent again.
func (l Ledger) settleLocked(slot int, cost int64) { l.cells[slot].settled.Add(cost) }

// arriveLocked ends a send.
func (l Ledger) arriveLocked(slot int) {
	l.e.flags.And(^uint32(flagSending << slot))
	if l.extra != nil {
		l.extra.inFlight[slot], l.extra.first[slot] = 0, false
		l.freeExtra()
	}
}
