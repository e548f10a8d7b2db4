package dataplane

import "sync/atomic"

// flagSet is a reading of an entry's flags.
type flagSet uint32

// marks reads the entry's flags.
func (e *entry) marks() flagSet { return flagSet(e.flags.Load()) }

// have is true when all of some marks are set.
func (f flagSet) have(marks uint32) bool { return uint32(f)&marks == marks }

// news is true when no decision has used yet what another region has told.
func (f flagSet) news() bool { return f&(flagNews|flagNews1) != 0 }

// estimates is true of an entry of the estimate mode on a node with an origin.
func (f flagSet) estimates() bool { return f&flagEstimate != 0 }

// asked is true while the entry waits for a sync, or is in one.
func (f flagSet) asked() bool { return f&flagAsked != 0 }

// claiming is true while a claim of a cell is on its way.
func (f flagSet) claiming() bool { return f&(flagClaiming|flagClaiming1) != 0 }

// pressedMark is the mark of a cell that was denied, or charged past any limit.
func pressedMark(sequence int64) uint32 { return flagPressed << slotOf(sequence) }

// Queues that an entry can be in, each once.
const (
	inReplay = flagInReplay
	inFlush  = flagInFlush
	inTell   = flagInTell
)

// enqueue puts the entry into queues. It returns those that it was not in.
func (e *entry) enqueue(queues uint32) (fresh uint32) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return queues &^ e.flags.Or(queues)
}

// dirtyList is a stack of entries whose counts have changed, newest first. An entry is in it once.
type dirtyList struct{ head atomic.Pointer[entry] }

// mark sets flags on an entry, and pushes it if flagDirty is one of them and was not set.
func (d *dirtyList) mark(e *entry, flags uint32) {
	if before := e.flags.Or(flags); flags&flagDirty == 0 || before&flagDirty != 0 {
		return
	}
	for {
		head := d.head.Load()
		e.book.next = head
		if d.head.CompareAndSwap(head, e) {
			return
		}
	}
}

// take empties the list, and visits what was in it. A count that grows meanwhile is either seen by what reads the entry
// next, or marks it again: the flag is cleared before any count is read.
func (d *dirtyList) take(visit func(*entry)) {
	for e := d.head.Swap(nil); e != nil; {
		next := e.book.next
		e.book.next = nil
		visit(e)
		e.flags.And(^uint32(flagDirty))
		e = next
	}
}
