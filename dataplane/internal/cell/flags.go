package cell

// Flags of an entry. The ones of a slot stand for the cell in it and end with it.
const (
	Dirty        = 1 << iota // in the dirty list: its counts changed since a collector last took it
	Touched                  // a request came since the hand of the sweep last passed
	flagDead                 // evicted: a holder must look its key up again
	flagInReplay             // in the replay queue; under mu
	flagInFlush              // in the flush queue; under mu
	flagPressed              // slot 0: denied; see pressedLocked
	flagPressed1
	flagRefused // slot 0: the count store will not have its row
	flagRefused1
	flagStale // slot 0: closed, and the origin last spoke of it before its end
	flagStale1
	flagSending // slot 0: own cost is on its way to the origin; under mu
	flagSending1
	flagOffered // slot 0: the count store may hold more than flushed: a call's fate is open or unknown; under mu
	flagOffered1
	flagKicked // among those that are sent at once
	flagShared // asked about in a namespace that waits for its share
	flagNews   // slot 0: no decision has used yet what another region has told
	flagNews1
	flagCrossed // slot 0: an increment of this node took the region's count past a mark; under mu
	flagCrossed1
	flagForeign // slot 0: others is, or is about to be, more or less than nothing
	flagForeign1
	flagStrict   // strictUntil is set; ends with the entry
	flagInTell   // in the queue of what to tell of, which keeps no entry alive; under mu
	flagClaiming // slot 0: ledgerExtra.claiming is more than nothing; changed under mu
	flagClaiming1

	flagsOfSlot = flagPressed | flagRefused | flagStale | flagSending | flagOffered | flagNews | flagCrossed | flagForeign | flagClaiming
)

// Flags is a reading of an entry's flags.
type Flags uint32

// Flags reads the entry's flags.
func (e *Entry) Flags() Flags { return Flags(e.flags.Load()) }

// Have is true when all of some marks are set.
func (f Flags) Have(marks uint32) bool { return uint32(f)&marks == marks }

// News is true when no decision has used yet what another region has told.
func (f Flags) News() bool { return f&(flagNews|flagNews1) != 0 }

// Estimates is true of an entry of the estimate mode on a node with an origin.
func (f Flags) Estimates() bool { return f&flagEstimate != 0 }

// Asked is true while the entry waits for a sync, or is in one.
func (f Flags) Asked() bool { return f&flagAsked != 0 }

// Claiming is true while a claim of a cell is on its way.
func (f Flags) Claiming() bool { return f&(flagClaiming|flagClaiming1) != 0 }

// Pressed is the mark of a cell that was denied.
func Pressed(sequence int64) uint32 { return flagPressed << slotOf(sequence) }

// Queues that an entry can be in, each once.
const (
	InReplay = flagInReplay
	InFlush  = flagInFlush
	InTell   = flagInTell
)

// Enqueue puts the entry into queues. It returns those that it was not in.
func (e *Entry) Enqueue(queues uint32) (fresh uint32) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return queues &^ e.flags.Or(queues)
}
