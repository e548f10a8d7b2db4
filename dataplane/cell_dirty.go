package dataplane

import "sync/atomic"

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
