package cell

import "github.com/weirhq/weir/dataplane/store"

// An origin that has lost its counts answers another epoch than before. In the new one a node
// restores what it has accepted so far, once, and adds what it accepts from then on.

// restoring is what the origin is to be restored to, while flagRestore is set.
type restoring struct {
	own   int64 // accepted by this node when it heard of the new epoch
	known int64 // by the whole region, as far as the origin had told, or was about to be told, in earlier epochs
}

// beginLocked begins a new epoch of a cell. What is on its way, and what is unsent, is restored
// with the rest: no answer to what was sent before counts any more. An untracked key is gone before it could restore
// anything.
func (l Ledger) beginLocked(slot int) {
	for l.extra != nil && l.extra.claims.lentIn(slot) != nil { // what claims have lent is accepted cost like any other
		l.extra.claims.lentIn(slot).releaseLocked(slot)
	}
	c := &l.cells[slot]
	own, known := l.ownLocked(slot), c.settled.Load() // an untracked key alone has unnamed cost
	l.arriveLocked(slot)
	if own <= 0 && known <= 0 || l.e.flags.Load()&flagUntracked != 0 {
		return
	}
	l.needExtra().restore[slot] = restoring{own, max(0, known)}
	l.e.flags.Or(flagRestore << slot)
	if unsent := l.unsentLocked(slot); unsent > 0 {
		c.settled.Add(unsent)
	}
}

// refusedLocked restores a cell's first cost, which was sent before the node knew an epoch of the cell and is refused
// because of an earlier epoch, if another answer has brought the cell's epoch meanwhile. It restores only the refused
// cost: other nodes may have been answered with it. The region's cost that the node knows is of the new epoch, so the
// origin has it and would count it twice. The same holds for cost that a claim has added meanwhile.
func (l Ledger) refusedLocked(slot int, sent *store.Cost) {
	l.arriveLocked(slot)
	if sent.Add <= 0 || l.e.flags.Load()&flagUntracked != 0 {
		return
	}
	l.needExtra().restore[slot] = restoring{own: sent.Add}
	l.e.flags.Or(flagRestore << slot)
}

// Renew begins a new epoch of the cells that are still in the lost one, unless the origin is heard of them first. true
// means that the entry has something to restore that is not on its way.
func (l Ledger) Renew(lost, epoch store.Epoch) (restores bool) {
	l.e.mu.Lock()
	defer l.e.mu.Unlock()
	if l.books == nil || l.e.flags.Load()&flagDead != 0 {
		return false
	}
	for slot := range l.epochs {
		if of := &l.epochs[slot]; *of == lost {
			l.beginLocked(slot)
			*of = epoch
		}
	}
	return l.restoresLocked(0) || l.restoresLocked(1)
}

// restoresLocked is true while a cell has something to restore that is not on its way.
func (l Ledger) restoresLocked(slot int) bool {
	return l.e.flags.Load()>>slot&(flagRestore|flagSending) == flagRestore
}

// Restores is true while the origin has to be told again what it has lost.
func (f Flags) Restores() bool { return f&(flagRestore|flagRestore1) != 0 }
