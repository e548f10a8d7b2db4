package window

import (
	"math"
	"math/bits"
)

// History stores, in a 64-bit word, when a cell's count reached each of up to 28 thresholds. The zero History belongs
// to a cell in which nothing was counted, or whose history was not kept.
//
// A precise window counts the previous cell by its history: a group of units counts in full until the step in which the
// group's last unit was counted lies a whole window back, and then no more. So an accepted unit never counts for less
// than a window. Of the units that have left the window, at most the units of a step, and of a group that is not
// complete, still count. Units beyond the last mark count until the cell has left the window.
//
// A History is a value, and its methods are pure. Callers that share a History must keep it in an atomic, and serialize
// changes.
//
//	bits 56-63  the code of its division: the size of a group, how many marks, and how many steps; 0: no history
//	bits 0-55   from the lowest bit on, a 1 for each mark and a 0 for each step that ended, in order of time,
//	            and above them a final 1
//
// For example, with groups of 10 units, the bits 1_0_1_1_0_0 (highest first) mean: two steps without a mark, two marks
// in the third step, which ended, and, since then, no mark. So 20 units were counted by the end of the third step.
//
// With n marks and m steps, the bits need (m - 1) + n + 1 <= 56 places, so n + m = 56.
type History uint64

const (
	historyBits = 56 // marks + steps
	historyBody = 1<<historyBits - 1
	// MarksMax is how many marks a History has at most.
	MarksMax = 28
)

// Division is how a history divides the cost and the time of its cell.
type Division struct {
	Group int64 // units of cost a mark, 1 to 2^52
	Marks int   // 1 to MarksMax
	Steps int   // 28 to 55
}

// divisions has the division of each code. Codes 1 to 27 are for limits of as many units, with a mark for each unit.
// Codes from 28 on have 28 marks, and groups of 1 to 16, then of 18 to 2^24 in eighths of a power of two, and then of
// powers of two.
var divisions = func() (all [256]Division) {
	for code := 1; code < MarksMax; code++ {
		all[code] = Division{1, code, historyBits - code}
	}
	group := int64(1)
	for code := MarksMax; code < len(all); code++ {
		all[code] = Division{group, MarksMax, historyBits - MarksMax}
		switch {
		case group < 16:
			group++
		case group < 1<<24:
			group += int64(1) << (bits.Len64(uint64(group)) - 4)
		case group < 1<<52:
			group *= 2
		}
	}
	return all
}()

// BeginHistory returns the empty history of a cell whose first cost was counted against limit. The marks reach at least
// up to limit. A limit below 1 is taken for 1.
func BeginHistory(limit int64) History {
	return History(codeOf(limit))<<historyBits | 1
}

func codeOf(limit int64) int {
	if limit < MarksMax {
		return int(max(1, limit))
	}
	low, high := MarksMax, len(divisions)-1
	for low < high { // the first division whose marks reach the limit
		if mid := (low + high) / 2; divisions[mid].Group >= (limit+MarksMax-1)/MarksMax {
			high = mid
		} else {
			low = mid + 1
		}
	}
	return low
}

// Division returns the history's division. ok is false for an empty History.
func (w History) Division() (d Division, ok bool) { return divisions[w>>historyBits], w != 0 }

// Empty returns the history of the same division without marks.
func (w History) Empty() History {
	if w == 0 {
		return 0
	}
	return w&^historyBody | 1
}

func (w History) division() *Division { return &divisions[w>>historyBits] }

// marks returns the number of marks: all set bits but the highest.
func (w History) marks() int { return bits.OnesCount64(uint64(w&historyBody)) - 1 }

// ended returns the number of steps that have ended.
func (w History) ended() int {
	return bits.Len64(uint64(w&historyBody)) - bits.OnesCount64(uint64(w&historyBody))
}

// Next returns the count from which a further mark is due: math.MaxInt64 if the history is full, 0 if it is empty.
func (w History) Next() int64 {
	d, n := w.division(), w.marks()
	if n >= d.Marks {
		return math.MaxInt64
	}
	return int64(n+1) * d.Group
}

// Ends reports whether a step that has not ended yet would have ended at a time, in milliseconds since the cell began.
// It costs a multiplication.
func (w History) Ends(elapsedMs, durationMs int64) bool {
	return elapsedMs*int64(w.division().Steps) >= int64(w.ended()+1)*durationMs
}

// Count returns the history after count was reached at a time, in milliseconds since the cell began. It ends the steps
// until then, and marks the groups that count completes. Ended steps stay ended, so a mark is never earlier than any
// time that was passed before. From the cell's end on, it sets no mark.
func (w History) Count(count, elapsedMs, durationMs int64) History {
	d := w.division()
	if w == 0 || elapsedMs >= durationMs {
		return w
	}
	step := int(max(0, elapsedMs) * int64(d.Steps) / durationMs)
	w = w.append(0, step-w.ended())
	return w.append(1, int(min(int64(d.Marks), count/d.Group))-w.marks())
}

// append adds n bits of a kind below the final 1.
func (w History) append(bit History, n int) History {
	if n <= 0 {
		return w
	}
	at := bits.Len64(uint64(w&historyBody)) - 1
	ones := (History(1)<<n - 1) * bit
	return w&^(1<<at) | ones<<at | 1<<(at+n)
}

// Gone returns the cost that has left a window which ends elapsedMs after the cell's end: the groups whose marks are in
// steps that ended at least a duration before. 0 <= elapsedMs <= durationMs.
func (w History) Gone(elapsedMs, durationMs int64) int64 {
	gone, _ := w.GoneBy(w.Hint(elapsedMs, durationMs), elapsedMs, durationMs)
	return gone
}

// Hint is a result of Gone, in the lowest 19 bits: the division's code, a number of steps, and how many marks they
// have. The zero Hint holds for no history.
type Hint uint32

// HintBits is how many bits a Hint has.
const HintBits = 8 + hintStepBits + hintMarkBits

const (
	hintStepBits = 6
	hintMarkBits = 5
)

// Hint returns the hint of an elapsed time, 0 for an empty history.
func (w History) Hint(elapsedMs, durationMs int64) Hint {
	if w == 0 {
		return 0
	}
	steps := int(elapsedMs * int64(w.division().Steps) / durationMs)
	return (Hint(w>>historyBits)<<hintStepBits|Hint(steps))<<hintMarkBits | Hint(w.marksWithin(steps))
}

// GoneBy is Gone by a hint, without a division. ok is false if the hint belongs to another division, or to another
// step. A hint of an earlier version of the history is safe: its marks are never early, so GoneBy may return less than
// Gone, and never too much.
func (w History) GoneBy(hint Hint, elapsedMs, durationMs int64) (gone int64, ok bool) {
	d := w.division()
	since := elapsedMs*int64(d.Steps) - int64(hint>>hintMarkBits&(1<<hintStepBits-1))*durationMs
	return int64(hint&(1<<hintMarkBits-1)) * d.Group,
		uint64(since) < uint64(durationMs) && hint>>(hintStepBits+hintMarkBits) == Hint(w>>historyBits)
}

// marksWithin returns how many marks the first steps have.
func (w History) marksWithin(steps int) int {
	if steps > w.ended() {
		return w.marks() // the step that has not ended in the word has ended since
	}
	if steps == 0 {
		return 0
	}
	return nthOne(^uint64(w), steps) - (steps - 1)
}

// nthOne returns the place of the nth 1 in x, n >= 1.
func nthOne(x uint64, n int) (place int) {
	for width := 32; width > 0; width /= 2 {
		if low := bits.OnesCount64(x & (1<<width - 1)); n > low {
			n -= low
			x >>= width
			place += width
		}
	}
	return place
}

// FreesAt returns the earliest time, in milliseconds since the cell's end, from which at least cost has left the
// window. ok is false if so much never leaves before the whole cell does.
func (w History) FreesAt(cost, durationMs int64) (elapsedMs int64, ok bool) {
	d := w.division()
	if cost <= 0 {
		return 0, true
	}
	if w == 0 || cost > int64(w.marks())*d.Group {
		return 0, false
	}
	n := int((cost + d.Group - 1) / d.Group)
	place := nthOne(uint64(w&historyBody), n)
	steps := int64(place - (n - 1) + 1) // the mark's step must have ended
	return (steps*durationMs + int64(d.Steps) - 1) / int64(d.Steps), true
}

// MergeHistories returns the history that has each mark of a and b, and the earlier mark if both have it. Both
// histories must belong to the same cell. If one is empty, it returns the other. If their divisions differ, it returns
// a, with the steps ended until the time that b has come to: a mark that is set later is not earlier than cost that b
// has counted.
//
// MergeHistories is commutative, associative and idempotent for histories with the same division. It keeps the ended
// steps of both.
func MergeHistories(a, b History) History {
	switch {
	case a == 0:
		return b
	case b == 0 || a == b:
		return a
	case a>>historyBits != b>>historyBits:
		steps := a.division().Steps
		latest := ((b.ended()+1)*steps - 1) / b.division().Steps // the step in which b's last step ends
		return a.append(0, min(latest, steps-1)-a.ended())
	}
	m := a.Empty()
	for step, last := 0, max(a.ended(), b.ended()); ; step++ {
		m = m.append(1, max(a.marksWithin(step+1), b.marksWithin(step+1))-m.marks())
		if step == last {
			return m
		}
		m = m.append(0, 1)
	}
}

// AppendSteps appends the number of each mark's step, for people and for origins that store histories as text.
func (w History) AppendSteps(to []int) []int {
	for n, step := w.marks(), 0; n > 0; w >>= 1 {
		if w&1 == 0 {
			step++
			continue
		}
		to = append(to, step)
		n--
	}
	return to
}

// HistoryOf returns the history of a division with marks in the given steps, which must ascend. It leaves out steps and
// marks that the division does not have. The zero History is returned for an unknown division.
func HistoryOf(d Division, steps []int) History {
	if d.Group < 1 || d.Group > 1<<52 || d.Marks < 1 || d.Marks > MarksMax {
		return 0
	}
	code := codeOf(int64(d.Marks) * d.Group)
	if divisions[code] != d {
		return 0
	}
	w := History(code)<<historyBits | 1
	for i, step := range steps {
		if i == d.Marks || step >= d.Steps {
			break
		}
		w = w.append(0, step-w.ended()).append(1, 1)
	}
	return w
}
