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
func (e *Entry) beginLocked(slot int) {
	e.revokeAllLocked(slot)
	c := &e.ledger().cells[slot]
	own, known := e.ownLocked(slot), c.settled.Load() // an untracked key alone has unnamed cost
	e.arriveLocked(slot)
	if own <= 0 && known <= 0 || e.flags.Load()&flagUntracked != 0 {
		return
	}
	e.ledger().needExtra().restore[slot] = restoring{own, max(0, known)}
	e.flags.Or(flagRestore << slot)
	if unsent := e.unsentLocked(slot); unsent > 0 {
		c.settled.Add(unsent)
	}
}

// refusedLocked restores a cell's first cost, which was sent before the node knew an epoch of the cell and is refused
// because of an earlier epoch, if another answer has brought the cell's epoch meanwhile. It restores only the refused
// cost: other nodes may have been answered with it. The region's cost that the node knows is of the new epoch, so the
// origin has it and would count it twice. The same holds for cost that a claim has added meanwhile.
func (e *Entry) refusedLocked(slot int, sent *store.Cost) {
	e.arriveLocked(slot)
	if sent.Add <= 0 || e.flags.Load()&flagUntracked != 0 {
		return
	}
	e.ledger().needExtra().restore[slot] = restoring{own: sent.Add}
	e.flags.Or(flagRestore << slot)
}

// Renew begins a new epoch of the cells that are still in the lost one, unless the origin is heard of them first. true
// means that the entry has something to restore that is not on its way.
func (e *Entry) Renew(lost, epoch store.Epoch) (restores bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ledger() == nil || e.flags.Load()&flagDead != 0 {
		return false
	}
	for slot := range e.ledger().epochs {
		if of := &e.ledger().epochs[slot]; *of == lost {
			e.beginLocked(slot)
			*of = epoch
		}
	}
	return e.restoresLocked(0) || e.restoresLocked(1)
}

// restoresLocked is true while a cell has something to restore that is not on its way.
func (e *Entry) restoresLocked(slot int) bool {
	return e.flags.Load()>>slot&(flagRestore|flagSending) == flagRestore
}

// Restores is true while the origin has to be told again what it has lost.
func (f Flags) Restores() bool { return f&(flagRestore|flagRestore1) != 0 }
