package dataplane

import "github.com/weirhq/weir/shared/window"

// Entry stands for the memory that holds a key at this moment, nil for none. It is
// equal to an earlier one only if the key was not forgotten in between.
func (l *Limiter) Entry(k window.Key) any {
	if e := l.entryOf(k); e != nil {
		return e
	}
	return nil
}

// SweepTick is one tick of the sweep. It returns how many entries it looked at.
func (l *Limiter) SweepTick() (looked int) { return l.table.sweep(l.nowMs()) }

// BreakersOff lets every call to the origin through.
func (l *Limiter) BreakersOff() {
	for _, sh := range l.shards {
		sh.breaker.turnOff()
	}
}
