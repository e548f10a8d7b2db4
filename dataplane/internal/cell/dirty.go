package cell

import "sync/atomic"

// DirtyList is a stack of entries whose counts have changed, newest first. An entry is in it once.
type DirtyList struct{ head atomic.Pointer[Entry] }

// Mark sets flags on an entry, and pushes the entry if flags include Dirty and Dirty was not set.
func (d *DirtyList) Mark(e *Entry, flags uint32) {
	if before := e.flags.Or(flags); flags&Dirty == 0 || before&Dirty != 0 {
		return
	}
	for {
		head := d.head.Load()
		e.Ledger().next = head
		if d.head.CompareAndSwap(head, e) {
			return
		}
	}
}

// Take empties the list and visits its entries. A count that grows meanwhile is either seen by the next reader of the
// entry, or marks it again: the flag is cleared before any count is read.
func (d *DirtyList) Take(visit func(*Entry)) {
	for e := d.head.Swap(nil); e != nil; {
		next := e.Ledger().next
		e.Ledger().next = nil
		visit(e)
		e.flags.And(^uint32(Dirty))
		e = next
	}
}
