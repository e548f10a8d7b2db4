package cell

import "github.com/weirhq/weir/dataplane/store"

// An origin that has lost its counts answers with a new epoch. In the new epoch a node restores the cost that it has
// accepted so far, once, and then adds the cost that it accepts later.

// restoring holds the counts that must be restored at the origin, while flagRestore is set.
type restoring struct {
	own   int64 // accepted by this node before it received the new epoch
	known int64 // by the whole region in earlier epochs, as far as the origin had sent or was about to receive
}

// enterLocked records the epoch of an answer, 0 for no epoch. If the cell had another epoch, enterLocked begins the new
// epoch and returns the lost one. For example, if the cell had epoch 7 and the answer has 8, the node restores its cost
// in epoch 8, and 7 is lost.
func (l Ledger) enterLocked(slot int, epoch store.Epoch) (lost store.Epoch) {
	was := l.epochs[slot]
	if epoch == 0 || epoch == was {
		return 0
	}
	l.epochs[slot] = epoch
	if was != 0 {
		l.beginLocked(slot)
	} else if l.e.flags.Load()&(flagSending<<slot) != 0 {
		c, extra := &l.cells[slot], l.needExtra()
		extra.first[slot] = true
		extra.inFlight[slot] = max(0, c.settled.Load()-c.peers-extra.restore[slot].own)
	}
	return was
}

// beginLocked begins a new epoch of a cell. It restores confirmed and unsent cost, and cost that was sent in the lost
// epoch and has no answer yet, which is ignored when it comes. It does not restore cost that was sent without an epoch:
// the origin may still add it in the new epoch, and only the answer shows whether it has. Untracked keys restore
// nothing, because they are gone before they could.
func (l Ledger) beginLocked(slot int) {
	if l.extra != nil {
		l.extra.claims.loseLocked(slot)
		l.extra.forgotten[slot] = 0 // the new epoch has all of the cost, forgotten or not
	}
	c := &l.cells[slot]
	own, known := l.ownLocked(slot), c.settled.Load() // an untracked key alone has unnamed cost
	if l.isFirst(slot) {
		own, known = own-l.inFlight(slot), known-l.inFlight(slot)
	} else {
		l.arriveLocked(slot)
	}
	if own <= 0 && known <= 0 || l.e.flags.Load()&flagUntracked != 0 {
		return
	}
	l.needExtra().restore[slot] = restoring{max(0, own), max(0, known)}
	l.e.flags.Or(flagRestore << slot)
	if unsent := l.unsentLocked(slot); unsent > 0 {
		c.settled.Add(unsent)
	}
}

// restoreLocked restores settled cost that the new epoch does not have, and that other nodes may have had in their
// answers: a cell's first cost that the origin refused because of an earlier epoch, or a claim that it added in an
// epoch that is lost by the time of the answer. It restores nothing else, because the origin may already have the rest
// in the new epoch, and would count it twice.
func (l Ledger) restoreLocked(slot int, cost int64) {
	if cost <= 0 || l.e.flags.Load()&flagUntracked != 0 {
		return
	}
	l.needExtra().restore[slot].own += cost
	l.e.flags.Or(flagRestore << slot)
}

// restoredLocked ends the restore that was sent. Cost that came to it while it was on its way is still restored.
func (l Ledger) restoredLocked(slot int, sent int64) {
	if l.extra != nil { // else it was given up while it was on its way
		own := l.extra.restore[slot].own - sent
		if l.extra.restore[slot] = (restoring{own: max(0, own)}); own > 0 {
			return
		}
	}
	l.e.flags.And(^uint32(flagRestore << slot))
}

// Renew begins a new epoch of the cells that are still in the lost epoch, unless an answer of the origin does so first.
// It reports whether the entry has something to restore that is not on its way.
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

// restoresLocked reports whether a cell has something to restore that is not on its way.
func (l Ledger) restoresLocked(slot int) bool {
	return l.e.flags.Load()>>slot&(flagRestore|flagSending) == flagRestore
}

// Restores reports whether lost cost must be sent to the origin again.
func (f Flags) Restores() bool { return f&(flagRestore|flagRestore1) != 0 }
