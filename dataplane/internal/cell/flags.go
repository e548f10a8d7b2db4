package cell

// Flags of an entry. The flags of a slot describe the cell in it and end with the cell.
const (
	Dirty        = 1 << iota // in the dirty list: its counts changed since a collector last took it
	Used                     // a request came since the hand of the sweep last passed
	flagDead                 // evicted: a holder must look its key up again
	flagInReplay             // in the replay queue; under mu
	flagDenied               // slot 0: denied; see deniedLocked
	flagDenied1
	flagRestore // slot 0: the origin has lost it, see restoring; under mu
	flagRestore1
	flagStale // slot 0: closed, and the origin's last answer about it came before its end
	flagStale1
	flagSending // slot 0: own cost is on its way to the origin; under mu
	flagSending1
	flagFlush  // in the list of entries that are sent at once
	flagWaits  // a request came in a namespace that waits for its share
	flagOthers // slot 0: others is, or is about to be, more or less than nothing
	flagOthers1
	flagUntracked // it has no place in the table, see UntrackedKeys; constant
	flagStrict    // strictUntil is set; ends with the entry
	flagClaiming  // slot 0: claims.cost is more than nothing; changed under mu
	flagClaiming1
	flagFleet     // it has books, see Ledger; constant
	flagHeldBack  // the key is new and not sent to the origin: see NewKeys; guarded by mu
	flagHistories // it has room for histories; constant
	flagPrecise   // judged by a precise window; see Histories
	flagUnread    // the previous cell was not read since it ended; changed under mu

	flagsOfSlot = flagDenied | flagRestore | flagStale | flagSending | flagOthers | flagClaiming
)

// Flags is a reading of an entry's flags.
type Flags uint32

// Flags reads the entry's flags.
func (e *Entry) Flags() Flags { return Flags(e.flags.Load()) }

// Have reports whether all of some marks are set.
func (f Flags) Have(marks uint32) bool { return uint32(f)&marks == marks }

// Estimates reports whether the entry is in the estimate mode, on a node with an origin.
func (f Flags) Estimates() bool { return f&flagEstimate != 0 }

// Asked reports whether the entry waits for a sync, or is in a running sync.
func (f Flags) Asked() bool { return f&flagAsked != 0 }

// Claiming reports whether a claim of a cell is on its way.
func (f Flags) Claiming() bool { return f&(flagClaiming|flagClaiming1) != 0 }

// Denied returns the flag of a cell that was denied.
func Denied(sequence int64) uint32 { return flagDenied << slotOf(sequence) }

// Enqueue puts the entry into the queue of replay; first is false if it is there.
func (l Ledger) Enqueue() (first bool) {
	l.e.mu.Lock()
	defer l.e.mu.Unlock()
	return l.e.flags.Or(flagInReplay)&flagInReplay == 0
}
