package cell

import (
	"testing"

	"github.com/weirhq/weir/shared/window"
)

const hintLimit, hintMs = 10, 60_000

// spentAt returns the history of a cell in which hintLimit was counted at a time.
func spentAt(ms int64) window.History {
	return window.BeginHistory(hintLimit).Count(hintLimit, ms, hintMs)
}

// A hint of a cell before is not taken for the cell that has its slot now, and a hint that was stored late is cleared.
func TestAHintIsOfItsCellsHistory(t *testing.T) {
	p, slot := new(past), slotOf(ledgerSeq)
	early, late := spentAt(10_000), spentAt(50_000)
	p.history[slot].Store(uint64(early))
	for range 2 {
		if gone := p.gone(ledgerSeq, early, 45_000, hintMs); gone != hintLimit || p.hint.Load() == 0 {
			t.Fatalf("%d are gone by the hint %x, want all", gone, p.hint.Load())
		}
	}
	p.history[slot].Store(uint64(late))
	if gone := p.gone(ledgerSeq+2, late, 45_000, hintMs); gone != 0 {
		t.Errorf("%d are gone of a cell whose cost came later", gone)
	}
	if p.gone(ledgerSeq, early, 45_000, hintMs); p.hint.Load() != 0 {
		t.Errorf("the hint %x of a history that was replaced is kept", p.hint.Load())
	}
	for _, sequence := range []int64{-1, 1<<(64-window.HintBits) + ledgerSeq} { // a hint has no room for them
		p.history[slotOf(sequence)].Store(uint64(early))
		if gone := p.gone(sequence, early, 45_000, hintMs); gone != hintLimit {
			t.Errorf("%d are gone of the cell %d, want all", gone, sequence)
		}
		if p.hint.Store(0); p.gone(sequence, early, 45_000, hintMs) != hintLimit || p.hint.Load() != 0 {
			t.Errorf("the cell %d has the hint %x", sequence, p.hint.Load())
		}
	}
}

// Earlier marks of the origin count in the step in which they come.
func TestAMergedHistoryCountsAtOnce(t *testing.T) {
	h := &Histories{&Entry{behind: &(&behindAndPast{}).behind}}
	h.e.flags.Store(flagHistories | flagPrecise)
	slot := slotOf(ledgerSeq)
	h.mergeLocked(slot, spentAt(50_000))
	counted := func() int64 { return h.counted(ledgerSeq, hintLimit, h.of(slot), 45_000, hintMs) }
	if got := counted(); got != hintLimit {
		t.Fatalf("%d count, want all", got)
	}
	h.mergeLocked(slot, spentAt(10_000))
	if got := counted(); got != 0 {
		t.Errorf("%d count, want none", got)
	}
}
