package window

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// arrival is cost that was accepted at a time since its cell began.
type arrival struct{ ms, cost int64 }

func drawCell(t *rapid.T, limit, durationMs int64) (log []arrival) {
	at := int64(0)
	for range rapid.IntRange(0, 60).Draw(t, "arrivals") {
		at += rapid.Int64Range(0, max(1, durationMs/20)).Draw(t, "gap")
		if at >= durationMs {
			return log
		}
		log = append(log, arrival{at, rapid.Int64Range(1, max(1, limit/4)).Draw(t, "cost")})
	}
	return log
}

var limits = rapid.OneOf(rapid.Int64Range(1, 100), rapid.Int64Range(1, 1e6), rapid.Int64Range(1, LimitMax))

// after returns the cost of a log that was accepted at or after a time.
func after(log []arrival, ms int64) (cost int64) {
	for _, a := range log {
		if a.ms >= ms {
			cost += a.cost
		}
	}
	return cost
}

func totalOf(log []arrival) int64 { return after(log, 0) }

// noted returns the history of a log, with each mark set when the count is reached or some arrivals later.
func noted(t *rapid.T, log []arrival, limit, durationMs int64) (w History) {
	count := int64(0)
	for _, a := range log {
		if w == 0 {
			w = BeginHistory(limit)
		}
		if count += a.cost; rapid.IntRange(0, 3).Draw(t, "late") > 0 {
			w = w.Count(count, a.ms, durationMs)
		}
	}
	return w
}

// Cost that has left a window by its history was never accepted within the window.
func TestWhatIsGoneHasLeftTheWindow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit, durationMs := limits.Draw(t, "limit"), rapid.Int64Range(1000, 100_000).Draw(t, "duration")
		log := drawCell(t, limit, durationMs)
		w := noted(t, log, limit, durationMs)
		for range 10 {
			// The window that ends now covers cost that was accepted after now - duration.
			now := rapid.Int64Range(0, durationMs).Draw(t, "now")
			if counted, in := totalOf(log)-w.Gone(now, durationMs), after(log, now+1); counted < in {
				t.Fatalf("%d ms into the next cell %d count, %d were accepted within the window; %v", now, counted, in,
					w.AppendSteps(nil))
			}
		}
	})
}

// A history without late marks counts each unit for a step and a group too long at most.
func TestWhatIsGoneIsCountedForAStepAndAGroupMore(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit, durationMs := rapid.Int64Range(1, 1e6).Draw(t, "limit"), rapid.Int64Range(1000, 100_000).Draw(t, "duration")
		w, count := BeginHistory(limit), int64(0)
		var log []arrival
		for _, a := range drawCell(t, limit, durationMs) {
			if count+a.cost > limit {
				break
			}
			count += a.cost
			w, log = w.Count(count, a.ms, durationMs), append(log, a)
		}
		d, _ := w.Division()
		if d.Group > 1 && 8*d.Group > limit/MarksMax*9+16 || d.Group*int64(d.Marks) < limit {
			t.Fatalf("a limit of %d has %+v", limit, d)
		}
		now := rapid.Int64Range(0, durationMs).Draw(t, "now")
		step := (durationMs + int64(d.Steps) - 1) / int64(d.Steps)
		if counted, most := count-w.Gone(now, durationMs), after(log, now-step)+d.Group-1; counted > most {
			t.Fatalf("%d ms into the next cell %d count, want at most %d", now, counted, most)
		}
	})
}

// By a hint of the same history GoneBy is Gone. By a hint of an earlier version it returns no more, and a hint of
// another division does not hold.
func TestAHintNeverAddsToWhatIsGone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit, durationMs := limits.Draw(t, "limit"), rapid.Int64Range(1000, 100_000).Draw(t, "duration")
		log := drawCell(t, limit, durationMs)
		early, w := noted(t, log, limit, durationMs), noted(t, log, limit, durationMs)
		later := MergeHistories(early, w)
		other := BeginHistory(3*limit+1).Count(LimitMax, 0, durationMs)
		for range 20 {
			now := rapid.Int64Range(0, durationMs).Draw(t, "now")
			then := now + rapid.Int64Range(-durationMs/20, durationMs/20).Draw(t, "earlier or later")
			then = max(0, min(then, durationMs))
			most, hint := later.Gone(now, durationMs), later.Hint(then, durationMs)
			if gone, ok := later.GoneBy(hint, now, durationMs); hint>>HintBits != 0 || ok && gone != most || !ok && then == now && later != 0 {
				t.Fatalf("%d are gone at %d by the hint %x, %v, want %d", gone, now, hint, ok, most)
			}
			hint = early.Hint(then, durationMs)
			if gone, ok := later.GoneBy(hint, now, durationMs); ok && gone > most {
				t.Fatalf("%d are gone by the hint %x of an earlier version, want at most %d", gone, hint, most)
			}
			hint = other.Hint(now, durationMs)
			if gone, ok := later.GoneBy(hint, now, durationMs); ok && other.Empty() != later.Empty() {
				t.Fatalf("%d are gone by the hint %x of another division", gone, hint)
			}
		}
	})
}

func TestFreesAtIsTheFirstTimeAtWhichSoMuchIsGone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit, durationMs := limits.Draw(t, "limit"), rapid.Int64Range(1000, 5000).Draw(t, "duration")
		log := drawCell(t, limit, durationMs)
		w := noted(t, log, limit, durationMs)
		cost := rapid.Int64Range(0, totalOf(log)+1).Draw(t, "cost")
		at, ok := w.FreesAt(cost, durationMs)
		if ok && (w.Gone(at, durationMs) < cost || at > 0 && w.Gone(at-1, durationMs) >= cost) {
			t.Fatalf("%d are gone at %d, and %d a millisecond before; want %d", w.Gone(at, durationMs), at,
				w.Gone(at-1, durationMs), cost)
		}
		if !ok && w.Gone(durationMs, durationMs) >= cost {
			t.Fatalf("%d of %d are gone in the end", w.Gone(durationMs, durationMs), cost)
		}
	})
}

// By a merged history, no cost leaves a window earlier than by either of the two, and Merge is a join.
func TestMergeTakesTheEarlierOfEachMark(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit, durationMs := limits.Draw(t, "limit"), rapid.Int64Range(1000, 100_000).Draw(t, "duration")
		log := drawCell(t, limit, durationMs)
		a, b, c := noted(t, log, limit, durationMs), noted(t, log, limit, durationMs), noted(t, log, limit, durationMs)
		m := MergeHistories(a, b)
		if m != MergeHistories(b, a) || MergeHistories(m, m) != m || MergeHistories(MergeHistories(a, b), c) != MergeHistories(a, MergeHistories(b, c)) || MergeHistories(m, a) != m {
			t.Fatalf("%x, %x and %x do not merge alike in any order", a, b, c)
		}
		for now := int64(0); now <= durationMs; now += durationMs / 40 {
			if gone, want := m.Gone(now, durationMs), max(a.Gone(now, durationMs), b.Gone(now, durationMs)); gone != want {
				t.Fatalf("%d are gone at %d, want %d", gone, now, want)
			}
		}
		d, _ := a.Division()
		if got := HistoryOf(d, a.AppendSteps(nil)); a != 0 && !slices.Equal(got.AppendSteps(nil), a.AppendSteps(nil)) {
			t.Fatalf("%v are read back as %v", a.AppendSteps(nil), got.AppendSteps(nil))
		}
	})
}

// Of two divisions the first stays, and no later mark is earlier than cost that the second has counted.
func TestHistoriesOfTwoDivisionsDoNotMix(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		durationMs := rapid.Int64Range(1000, 100_000).Draw(t, "duration")
		limit := limits.Draw(t, "limit")
		a, b := BeginHistory(limit), BeginHistory(3*limit+1)
		if rapid.Bool().Draw(t, "turned") {
			a, b = b, a
		}
		aMs, bMs := rapid.Int64Range(0, durationMs-1).Draw(t, "time"), rapid.Int64Range(0, durationMs-1).Draw(t, "other time")
		a, b = a.Count(a.Next(), aMs, durationMs), b.Count(b.Next(), bMs, durationMs)
		m := MergeHistories(a, b)
		if !slices.Equal(m.AppendSteps(nil), a.AppendSteps(nil)) || m.Empty() != a.Empty() {
			t.Fatalf("%x with %x is %x", a, b, m)
		}
		d, _ := m.Division()
		marked := m.Count(2*d.Group, 0, durationMs) // by a decision with an earlier time
		if left := marked.Gone(bMs, durationMs); d.Marks > 1 && bMs < durationMs-1 && left > d.Group {
			t.Fatalf("%d are gone at %d, when what was counted then has not left", left, bMs)
		}
	})
	if a := BeginHistory(10); MergeHistories(0, a) != a || MergeHistories(a, 0) != a {
		t.Error("an empty history changes another")
	}
}

func TestTimesGoOn(t *testing.T) {
	w := BeginHistory(10).Count(1, 900, 1000)
	if later := w.Count(2, 100, 1000); later.Gone(899, 1000) != 0 {
		t.Errorf("a mark was set before what was counted: %v", later.AppendSteps(nil))
	}
	if !BeginHistory(10).Ends(30, 1000) || w.Ends(900, 1000) || w.Ends(100, 1000) || !w.Ends(930, 1000) {
		t.Error("Ends")
	}
	if after := w.Count(9, 1000, 1000); after != w {
		t.Errorf("marked after the cell's end: %v", after.AppendSteps(nil))
	}
	if w.Count(9, -5, 1000) != w.Count(9, 0, 1000) {
		t.Error("a time before the cell is its first step")
	}
}

func TestAnEmptyHistoryKeepsNothing(t *testing.T) {
	var w History
	if _, ok := w.Division(); ok || w.Gone(1000, 1000) != 0 || w.Count(5, 0, 1000) != 0 || w.Next() != 0 {
		t.Error("an empty history has marks")
	}
	if _, ok := w.FreesAt(1, 1000); ok {
		t.Error("an empty history frees cost")
	}
	full := BeginHistory(1).Count(1, 0, 1000)
	if full.Next() != math.MaxInt64 || BeginHistory(-1) != BeginHistory(1) || HistoryOf(Division{Group: 17, Marks: 28, Steps: 28}, nil) != 0 {
		t.Error("bounds")
	}
}

var sink int64

func BenchmarkGone(b *testing.B) {
	w := BeginHistory(1000)
	for i := range int64(28) {
		w = w.Count(36*(i+1), 1000*i, 28_000)
	}
	for i := range int64(b.N) {
		sink += w.Gone(i&0x3fff, 28_000)
	}
}
