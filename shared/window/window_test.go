package window

import (
	"errors"
	"math/big"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestSequence(t *testing.T) {
	for _, c := range []struct{ t, d, want int64 }{
		// Behaviour 1 of the estimate list, in seconds there.
		{60, 60, 1}, {90, 60, 1}, {119, 60, 1}, {120, 60, 2}, {0, 60, 0}, {1735000080, 60, 28916668}, {30, 30, 1},
		{-1, 60, -1}, {-60, 60, -1}, {-61, 60, -2},
	} {
		if got := Sequence(c.t, c.d); got != c.want {
			t.Errorf("Sequence(%d, %d) = %d, want %d", c.t, c.d, got, c.want)
		}
	}
}

// Behaviour 2 of the estimate list: weighted count of (prev, cur, t) at a window of 60. Parts of a unit do not count.
func TestEffective(t *testing.T) {
	for _, c := range []struct{ prev, cur, t, want int64 }{
		{100, 0, 60, 100}, {100, 0, 90, 50}, {100, 50, 90, 100}, {0, 100, 90, 100}, {0, 0, 90, 0}, {100, 100, 60, 200},
		{1, 0, 60, 1}, {1, 0, 61, 0}, {1, 7, 119, 7}, {5, 0, 61, 4}, {5, 0, 72, 4}, {5, 0, 73, 3},
	} {
		if got := Effective(c.cur, c.prev, 0, c.t, 60); got != c.want {
			t.Errorf("Effective(prev %d, cur %d, t %d) = %d, want %d", c.prev, c.cur, c.t, got, c.want)
		}
	}
}

// Behaviour 44, "limit 1 an hour, one accepted at 0:59:59: at 1:00:00.4 allowed (carry 0)". A persistent caller gets
// all of a small limit.
func TestSmallLimitsAreGivenInFull(t *testing.T) {
	const hour = 3_600_000
	if !Fits(0, 1, 1, 1, Uncovered(hour+400, hour), hour) {
		t.Error("limit 1 an hour, one at 0:59:59: denied at 1:00:00.4")
	}
	if at, ok := PassesAt(1, 1, 1, 1, hour+400, hour); !ok || at != 2*hour+1 {
		t.Errorf("limit 1 an hour, one at 1:00:00.4: the next passes at %d, %v", at, ok)
	}
	for limit, want := range map[int64]int64{1: 60, 2: 120, 3: 180, 5: 300, 7: 420} {
		var accepted, current, previous, sequence int64
		for t := int64(0); t < hour; t += 1000 {
			for ; sequence < Sequence(t, 60_000); sequence++ {
				current, previous = 0, current
			}
			if Fits(current, previous, 1, limit, Uncovered(t, 60_000), 60_000) {
				current++
				accepted++
			}
		}
		if accepted < want-1 || accepted > want {
			t.Errorf("limit %d a minute, asked every second for an hour: %d accepted, want %d", limit, accepted, want)
		}
	}
}

// Behaviours 1 to 4 of the exact list: limit 10, window 60 s, e the elapsed share.
func TestVerdicts(t *testing.T) {
	const d = 60_000
	for _, c := range []struct {
		name            string
		cur, prev, cost int64
		elapsedMs       int64
		allowed         bool
		remaining       int64
	}{
		{"cur 0, prev 0, e 0, cost 1 → allowed, remaining 9", 0, 0, 1, 0, true, 9},
		{"cur 9, cost 1 → allowed, remaining 0", 9, 0, 1, 0, true, 0},
		{"cur 10, cost 0 → allowed, remaining 0", 10, 0, 0, 0, true, 0},
		{"cur 10, cost 1 → denied, remaining 0", 10, 0, 1, 0, false, 0},
		{"cur 5, prev 10, e 0.5, cost 1 → 11 > 10, denied", 5, 10, 1, d / 2, false, 0},
		{"cur 4, prev 10, e 0.5, cost 1 → 10, allowed", 4, 10, 1, d / 2, true, 0},
		{"cur 5, prev 9, e 0.5, cost 1 → 10 and a half, allowed", 5, 9, 1, d / 2, true, 0},
		{"cur 5, prev 10, e 0.99, cost 1 → allowed, remaining 4", 5, 10, 1, d * 99 / 100, true, 4},
		{"cost 100 on an empty key → denied", 0, 0, 100, 0, false, 10},
	} {
		u := Uncovered(c.elapsedMs, d)
		if got := Fits(c.cur, c.prev, c.cost, 10, u, d); got != c.allowed {
			t.Errorf("%s: allowed = %v", c.name, got)
		}
		counted := c.cur
		if c.allowed {
			counted += c.cost
		}
		if got := Remaining(counted, c.prev, 10, u, d); got != c.remaining {
			t.Errorf("%s: remaining = %d", c.name, got)
		}
	}
}

type drawn struct{ cur, prev, cost, limit, t, d int64 }

func draw(t *rapid.T) drawn {
	d := rapid.OneOf(rapid.Int64Range(1000, 5000), rapid.Int64Range(1000, DurationMax.Milliseconds())).Draw(t, "duration")
	count := rapid.OneOf(rapid.Int64Range(0, 20), rapid.Int64Range(0, 1<<55-1))
	return drawn{
		cur: count.Draw(t, "current"), prev: count.Draw(t, "previous"),
		cost:  rapid.OneOf(rapid.Int64Range(0, 20), rapid.Int64Range(0, LimitMax)).Draw(t, "cost"),
		limit: rapid.OneOf(rapid.Int64Range(0, 40), rapid.Int64Range(0, LimitMax)).Draw(t, "limit"),
		t:     rapid.Int64Range(0, 1<<42).Draw(t, "t"), d: d,
	}
}

func fitsAt(c drawn, t int64) bool {
	cur, prev := c.cur, c.prev
	for range Sequence(t, c.d) - Sequence(c.t, c.d) {
		cur, prev = 0, cur
	}
	return Fits(cur, prev, c.cost, c.limit, Uncovered(t, c.d), c.d)
}

// Fits and Carried agree with big rationals, for every count a counter can hold: the
// previous cell's carry is int64(previous * weight).
func TestFitsAgreesWithBigRationals(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := draw(t)
		weighed := new(big.Rat).Mul(big.NewRat(Uncovered(c.t, c.d), c.d), big.NewRat(c.prev, 1))
		carried := new(big.Int).Quo(weighed.Num(), weighed.Denom()).Int64()
		if got, want := fitsAt(c, c.t), c.cur+carried+c.cost <= c.limit; got != want {
			t.Fatalf("Fits = %v, exact arithmetic says %v", got, want)
		}
		if got := Carried(c.prev, Uncovered(c.t, c.d), c.d); got != carried {
			t.Fatalf("Carried = %d, want %d", got, carried)
		}
		if got, want := Effective(c.cur, c.prev, c.cost, c.t, c.d), c.cur+carried+c.cost; got != want {
			t.Fatalf("Effective = %d, want %d", got, want)
		}
		remaining := Remaining(c.cur, c.prev, c.limit, Uncovered(c.t, c.d), c.d)
		if remaining < 0 || remaining > c.limit {
			t.Fatalf("Remaining = %d of %d", remaining, c.limit)
		}
		if c.cur+carried <= c.limit && (!fitsNow(c, remaining) || fitsNow(c, remaining+1)) {
			t.Fatalf("Remaining = %d is not the most that fits", remaining)
		}
	})
}

func fitsNow(c drawn, cost int64) bool {
	return Fits(c.cur, c.prev, cost, c.limit, Uncovered(c.t, c.d), c.d)
}

// Behaviour 10: "advancing the clock by exactly that much makes the same request
// pass; by one millisecond less, not."
func TestPassesAtIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := draw(t)
		at, ok := PassesAt(c.cur, c.prev, c.cost, c.limit, c.t, c.d)
		if ok != (c.cost <= c.limit) {
			t.Fatalf("ok = %v with cost %d, limit %d", ok, c.cost, c.limit)
		}
		if !ok {
			return
		}
		if at < c.t || at > ExpiresAt(Sequence(c.t, c.d), c.d) {
			t.Fatalf("passes at %d, asked at %d", at, c.t)
		}
		if !fitsAt(c, at) {
			t.Fatalf("does not pass at %d", at)
		}
		if at > c.t && fitsAt(c, at-1) {
			t.Fatalf("passes at %d already", at-1)
		}
	})
}

func TestWeightStaysWithinItsBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := draw(t)
		if w := Weight(c.t, c.d); w <= 0 || w > 1 {
			t.Fatalf("weight %v", w)
		}
		if s := Sequence(c.t, c.d); Start(s, c.d) > c.t || Start(s+1, c.d) <= c.t {
			t.Fatalf("cell %d does not hold %d", s, c.t)
		}
	})
}

// Behaviours 8 and 9: "a validation error naming the field and the bound".
func TestValidateNamesFieldAndBound(t *testing.T) {
	ok := Key{Workspace: "w", Namespace: "n", Identifier: "i", Duration: time.Minute}
	if err := ok.Validate(); err != nil {
		t.Fatal(err)
	}
	odd := Key{Workspace: "a:b/c-d", Namespace: "\x00\xff", Identifier: "😀 ", Duration: time.Second}
	if err := odd.Validate(); err != nil {
		t.Errorf("names with any characters are refused: %v", err)
	}
	for _, c := range []struct {
		change func(*Key)
		want   []string
	}{
		{func(k *Key) { k.Workspace = "" }, []string{"workspace", "empty", "191"}},
		{func(k *Key) { k.Namespace = "" }, []string{"namespace", "empty", "255"}},
		{func(k *Key) { k.Identifier = "" }, []string{"identifier", "empty", "255"}},
		{func(k *Key) { k.Workspace = strings.Repeat("x", 192) }, []string{"workspace", "192", "191"}},
		{func(k *Key) { k.Namespace = strings.Repeat("x", 256) }, []string{"namespace", "256", "255"}},
		{func(k *Key) { k.Identifier = strings.Repeat("é", 128) }, []string{"identifier", "256 bytes", "not as characters"}},
		{func(k *Key) { k.Duration = time.Second - 1 }, []string{"duration", "1s"}},
		{func(k *Key) { k.Duration = DurationMax + 1 }, []string{"duration", "8784h"}},
		{func(k *Key) { k.Duration = time.Second + time.Microsecond }, []string{"duration", "milliseconds"}},
	} {
		k := ok
		c.change(&k)
		err := k.Validate()
		if !errors.Is(err, ErrInvalid) {
			t.Fatalf("%v is accepted", k)
		}
		for _, w := range c.want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("error %q does not say %q", err, w)
			}
		}
	}
}

// The order of writers is the order of the table's primary key.
func TestCompareIsTheOrderOfThePrimaryKey(t *testing.T) {
	cell := func(w, n, i string, d time.Duration, s int64) Cell {
		return Cell{Key{Workspace: w, Namespace: n, Identifier: i, Duration: d}, s}
	}
	sorted := []Cell{
		cell("A", "z", "z", 9e9, 9), cell("a", "a", "a", 1e9, -1), cell("a", "a", "a", 1e9, 3), cell("a", "a", "a", 2e9, 0),
		cell("a", "a", "a ", 1e9, 0), cell("a", "a", "b", 1e9, 0), cell("a", "b", "a", 1e9, 0), cell("b", "a", "a", 1e9, 0),
	}
	for i := range sorted {
		for j := range sorted {
			want := 0
			if i < j {
				want = -1
			} else if i > j {
				want = 1
			}
			if got := sorted[i].Compare(sorted[j]); got != want {
				t.Errorf("%v against %v: %d, want %d", sorted[i], sorted[j], got, want)
			}
		}
	}
}

func TestExpiry(t *testing.T) {
	if got := (Cell{Key{Duration: time.Minute}, 5}).ExpiresAtMs(); got != 7*60_000 {
		t.Errorf("expires at %d", got)
	}
}
