package held

import (
	"errors"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/dataplane/internal/fair"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

func drawn(t *rapid.T) *Record {
	amount := rapid.Int64Range(0, window.LimitMax)
	r := &Record{Returned: rapid.Bool().Draw(t, "returned"), Holder: rapid.String().Draw(t, "holder"),
		MadeMs: rapid.Int64Range(0, 1<<42).Draw(t, "made"), MadeBy: rapid.Uint64().Draw(t, "made by"),
		EndsMs: rapid.Int64().Draw(t, "ends"), Settled: rapid.Bool().Draw(t, "settled")}
	for range rapid.IntRange(1, store.RecordItemsMax).Draw(t, "items") {
		it := Item{Workspace: "w", Namespace: "<\x01>", DurationMs: 60_000, Shadow: rapid.Bool().Draw(t, "shadow"),
			Identifier: string(rapid.SliceOfN(rapid.Byte(), 1, 9).Draw(t, "identifier")),
			Sequence:   rapid.Int64Range(1, 1<<30).Draw(t, "sequence"), Limit: amount.Draw(t, "limit"),
			Held: amount.Draw(t, "held"), Spent: amount.Draw(t, "spent"),
			Generation:       rapid.Uint16Range(0, uint16(window.GenerationMax)).Draw(t, "generation"),
			GenerationBefore: rapid.Uint16Range(0, uint16(window.GenerationMax)).Draw(t, "generation before"),
			Epoch:            store.Epoch(rapid.Uint32().Draw(t, "epoch"))}
		it.Shadowed = it.Shadow
		r.Items = append(r.Items, it)
	}
	return r
}

// answerOf returns an origin's answer with a record.
func answerOf(r *Record) *store.RecordAnswer {
	return &store.RecordAnswer{Text: r.Text(), Spent: r.spent(), EndsMs: r.EndsMs, Settled: r.Settled}
}

// A record is parsed as it was written.
func TestTextIsReadAsItWasWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := drawn(t)
		got, err := Parse(answerOf(r))
		if err != nil || !reflect.DeepEqual(got, r) || !got.Same(r) {
			t.Fatalf("%+v, %v; want %+v", got, err, r)
		}
		text := r.Text()
		if n := rapid.IntRange(0, len(text)-1).Draw(t, "cut"); n < len(text) {
			if cut, err := Parse(&store.RecordAnswer{Text: text[:n]}); err == nil && cut.Text() != text[:n] {
				t.Fatalf("%d of %d bytes are %+v", n, len(text), cut)
			}
		}
	})
}

// A text that this version would write differently is not a record.
func TestAnotherSpellingIsRefused(t *testing.T) {
	r := &Record{MadeBy: 7, Holder: "h", Items: []Item{{Workspace: "w", Namespace: "n", Identifier: "i",
		DurationMs: 1000}}}
	text := r.Text()
	for _, other := range []string{"\x01" + text[1:], text[:9] + "\x02" + text[10:], text[:10] + "\x80\x00" + text[11:],
		text + "\x00", text[:12], ""} {
		if _, err := Parse(&store.RecordAnswer{Text: other}); !errors.Is(err, errText) {
			t.Errorf("%q: %v", other, err)
		}
	}
	if _, err := Parse(&store.RecordAnswer{Text: text}); err != nil {
		t.Errorf("%q: %v", text, err)
	}
}

// A record with the most items and the longest names fits.
func TestTheLongestTextFits(t *testing.T) {
	if n := len(longest(1 << 40).Text()); n > store.RecordBytesMax {
		t.Errorf("%d bytes", n)
	}
}

func longest(nowMs int64) *Record {
	return &Record{MadeMs: nowMs, EndsMs: nowMs + 86_400_000, MadeBy: 1, Holder: strings.Repeat("h", 255),
		Items: slices.Repeat([]Item{{Workspace: strings.Repeat("w", window.WorkspaceBytesMax),
			Namespace:  strings.Repeat("n", window.NamespaceBytesMax),
			Identifier: strings.Repeat("i", window.IdentifierBytesMax), DurationMs: window.DurationMax.Milliseconds(),
			Sequence: 1 << 40, Limit: window.LimitMax, Held: window.LimitMax}}, store.RecordItemsMax)}
}

// Any bytes in the place of a record are parsed or refused, and a parsed record can be stated.
func FuzzParse(f *testing.F) {
	r := &Record{MadeBy: 7, MadeMs: 5, EndsMs: 9, Holder: "h", Items: []Item{{Workspace: "w", Namespace: "n",
		Identifier: "i", DurationMs: 1000, Sequence: 3, Limit: 10, Held: 5, Shadow: true}}}
	f.Add(r.Text(), int64(3), int64(9), false)
	f.Add(r.Text(), int64(-3), int64(-1<<63), true)
	f.Add(r.Text(), int64(1<<62), int64(1<<63-1), false)
	f.Add("\x02", int64(0), int64(0), false)
	f.Fuzz(func(t *testing.T, text string, spent, endsMs int64, settled bool) {
		r, err := Parse(&store.RecordAnswer{Text: text, Spent: []int64{spent}, EndsMs: endsMs, Settled: settled})
		if err != nil {
			if !errors.Is(err, errText) {
				t.Error(err)
			}
			return
		}
		if len(text) > store.RecordBytesMax {
			t.Errorf("%d bytes are read", len(text))
		}
		for _, nowMs := range []int64{0, 8, 1 << 41} {
			for as := store.HoldState; as <= store.HoldForced; as++ {
				if as == store.HoldNew {
					continue // derived from the test's own values
				}
				if err := store.CheckHoldCall(&store.HoldCall{Stream: 1, Holds: r.holds(as, nowMs)}); err != nil {
					t.Errorf("as %d at %d: %v", as, nowMs, err)
				}
			}
			if err := store.CheckHoldCall(&store.HoldCall{Stream: 1, Record: &store.Record{ID: "i", Restored: true,
				Text: r.Text(), Spent: r.spent(), TTL: max(r.left(nowMs), time.Millisecond), Settled: r.Settled}}); err != nil {
				t.Errorf("at %d: %v", nowMs, err)
			}
		}
	})
}

// Spent costs, the end and a settlement only grow, by changes and by answers in any order. Reserved costs never change.
func TestReservationsOnlyGrow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := drawn(t)
		r.EndsMs, r.Settled = rapid.Int64Range(0, 5000).Draw(t, "ends"), false
		nowMs := rapid.Int64Range(0, 9000).Draw(t, "now")
		by := Change{TTL: time.Duration(rapid.Int64Range(0, 9000).Draw(t, "ttl")) * time.Millisecond,
			Settled: rapid.Bool().Draw(t, "settled")}
		if rapid.Bool().Draw(t, "spends") {
			by.Spent = drawn(t).spent()
			by.Spent = append(by.Spent, make([]int64, store.RecordItemsMax)...)[:len(r.Items)]
		}
		before := *r
		before.Items = slices.Clone(r.Items)
		next := by.apply(r, nowMs)
		if !reflect.DeepEqual(r, &before) || next.Text() != r.Text() || next.Settled != by.Settled {
			t.Fatalf("%+v has become %+v, and then %+v", before, r, next)
		}
		ends := r.EndsMs
		if by.TTL > 0 {
			ends = max(ends, nowMs+by.TTL.Milliseconds())
		}
		if next.EndsMs != ends {
			t.Errorf("ends at %d, want %d", next.EndsMs, ends)
		}
		for i := range r.Items {
			want := r.Items[i].Spent
			if by.Spent != nil {
				want = max(want, by.Spent[i])
			}
			if next.Items[i].Spent != want {
				t.Errorf("item %d: %d spent, want %d", i, next.Items[i].Spent, want)
			}
		}
		if a, b := r.merged(next), next.merged(r); !reflect.DeepEqual(a, next) || !reflect.DeepEqual(b, next) {
			t.Errorf("merged: %+v and %+v, want %+v", a, b, next)
		}
	})
}

// A change is refused if it has costs for other items, or costs out of bounds.
func TestChangesAreChecked(t *testing.T) {
	for _, test := range []struct {
		spent         []int64
		ok, okForMany bool
	}{
		{nil, true, true}, {[]int64{0, 5}, true, true}, {[]int64{window.LimitMax, 0}, true, true}, {[]int64{}, false, false},
		{[]int64{1}, false, true}, {[]int64{0, -1}, false, false}, {[]int64{0, window.LimitMax + 1}, false, false},
		{make([]int64, store.RecordItemsMax), false, true}, {make([]int64, store.RecordItemsMax+1), false, false},
	} {
		by := Change{Spent: test.spent}
		if err := by.check(2); err == nil != test.ok || err != nil && !errors.Is(err, window.ErrInvalid) {
			t.Errorf("%v of 2: %v", test.spent, err)
		}
		if err := by.checkCosts(); err == nil != test.okForMany || err != nil && !errors.Is(err, window.ErrInvalid) {
			t.Errorf("%v: %v", test.spent, err)
		}
	}
}

// Each kind of statement has the cost that a reservation counts now, and the cost from its end on.
func TestHoldsFollowFromTheRecord(t *testing.T) {
	type want struct {
		amount, after int64
		ttl           time.Duration
	}
	for name, test := range map[string]struct {
		change func(r *Record)
		want   want
	}{
		"open, returned":       {func(r *Record) { r.Returned = true }, want{10, 4, 5 * time.Second}},
		"open, not returned":   {func(*Record) {}, want{10, 10, 5 * time.Second}},
		"more spent than held": {func(r *Record) { r.Items[0].Spent = 30 }, want{30, 30, 5 * time.Second}},
		"the same, returned":   {func(r *Record) { r.Items[0].Spent, r.Returned = 30, true }, want{30, 30, 5 * time.Second}},
		"settled":              {func(r *Record) { r.Settled = true }, want{4, 4, 0}},
		"ended, returned":      {func(r *Record) { r.EndsMs, r.Returned = 1000, true }, want{4, 4, 0}},
		"ended, not returned":  {func(r *Record) { r.EndsMs = 1000 }, want{10, 10, 0}},
		"ends in a century":    {func(r *Record) { r.EndsMs = 1 << 45 }, want{10, 10, store.HoldTTLMax}},
		"undone":               {func(r *Record) { *r = *r.undone() }, want{0, 0, 0}},
	} {
		r := &Record{EndsMs: 6000, MadeBy: 7, Items: []Item{{Workspace: "w", Namespace: "n", Identifier: "i", Limit: 99,
			DurationMs: 60_000, Sequence: 5, Generation: 3, GenerationBefore: 2, Held: 10, Spent: 4, Shadow: true}}}
		test.change(r)
		for as := store.HoldState; as <= store.HoldForced; as++ {
			h := r.holds(as, 1000)[0]
			if got := (want{h.Amount, h.After, h.TTL}); got != test.want || h.As != as || h.Limit != 99 || h.Tentative {
				t.Errorf("%s, as %d: %+v, want %+v", name, as, h, test.want)
			}
			isNew := as == store.HoldNew
			if h.Optional != isNew || h.Before.Sequence == 4 != isNew || h.Before.Generation == 2 != isNew {
				t.Errorf("%s, as %d: %+v", name, as, h)
			}
			if h.Cell.Sequence != 5 || h.Cell.Generation != 3 {
				t.Errorf("%v", h.Cell)
			}
			r.Items[0].Shadowed = true
			if h := r.holds(as, 1000)[0]; h.As != min(as, store.HoldNew) && h.As != store.HoldState {
				t.Errorf("%s: an item that holds nothing is stated as %d", name, h.As)
			}
			r.Items[0].Shadowed = false
		}
	}
	for i, h := range tentative(longest(1).holds(store.HoldNew, 1)) {
		if !h.Tentative {
			t.Errorf("%d is not tentative", i)
		}
	}
}

// Each item of each reservation has an owner of its own.
func TestOwnersAreUnique(t *testing.T) {
	seen := make(map[string]bool)
	for _, by := range []uint64{1, 2, 1 << 56, 1<<64 - 1} {
		r := longest(1)
		r.MadeBy = by
		for i := range r.Items {
			if o := r.owner(i); seen[o] || len(o) > store.HoldOwnerBytesMax {
				t.Errorf("%x", o)
			} else {
				seen[o] = true
			}
		}
	}
}

// Records with the same keys and costs are for the same request, even if limits and durations have changed.
func TestTheSameIsAskedFor(t *testing.T) {
	make2 := func(change func(r *Record)) *Record {
		r := &Record{MadeBy: 1, Items: []Item{{Workspace: "w", Namespace: "n", Identifier: "i", DurationMs: 1000, Held: 5},
			{Workspace: "w", Namespace: "n", Identifier: "j", DurationMs: 1000, Held: 6}}}
		change(r)
		return r
	}
	was := make2(func(*Record) {})
	for name, test := range map[string]struct {
		change func(r *Record)
		same   bool
	}{
		"all":           {func(*Record) {}, true},
		"made anew":     {func(r *Record) { r.MadeBy, r.MadeMs, r.EndsMs, r.Holder = 2, 3, 4, "h" }, true},
		"override":      {func(r *Record) { r.Items[0].DurationMs, r.Items[0].Limit, r.Items[0].Shadow = 5, 6, true }, true},
		"returned":      {func(r *Record) { r.Returned = true }, false},
		"an item less":  {func(r *Record) { r.Items = r.Items[:1] }, false},
		"another order": {func(r *Record) { slices.Reverse(r.Items) }, false},
		"workspace":     {func(r *Record) { r.Items[1].Workspace = "x" }, false},
		"namespace":     {func(r *Record) { r.Items[1].Namespace = "x" }, false},
		"identifier":    {func(r *Record) { r.Items[1].Identifier = "x" }, false},
		"cost":          {func(r *Record) { r.Items[1].Held++ }, false},
	} {
		if other := make2(test.change); was.Same(other) != test.same || other.Same(was) != test.same {
			t.Errorf("%s: the same is %v", name, !test.same)
		}
	}
}

// A node that is full forgets the settled reservations that the origin has acknowledged, before it refuses a new
// reservation. It does so at most once a second, because all other calls wait meanwhile.
func TestSettledReservationsMakeRoom(t *testing.T) {
	nowMs, trimmed := int64(1000), 0
	at := &Reservations{NowMs: func() int64 { return nowMs }, Trim: func() { trimmed++ }}
	another := &Record{Items: make([]Item, 1)}
	fill := func(i int, settled, unstated bool) {
		id := strconv.Itoa(i)
		r := &Record{MadeBy: uint64(i + 1), EndsMs: 5000, Settled: settled, Items: make([]Item, 1)}
		at.book.keep(&kept{id: id, record: r, unstated: unstated}, at.NowMs())
	}
	for i := range Max {
		fill(i, i == 7, i > Max/2)
	}
	if at.Full(another) || at.Len() != Max-1 || trimmed != 1 {
		t.Errorf("one is settled: full %v, %d, trimmed %d times", at.Full(another), at.Len(), trimmed)
	}
	fill(Max, false, false)
	for range 2 {
		if !at.Full(another) || trimmed != 1 {
			t.Errorf("none is settled, or was a moment ago: there is room, or it was trimmed %d times", trimmed)
		}
		fill(8, true, false)
		fill(Max-1, true, true)
	}
	nowMs += 1000
	if at.Full(another) || trimmed != 2 {
		t.Errorf("a second later: full %v, trimmed %d times", at.Full(another), trimmed)
	}
	if at.book.ids["8"] != nil || at.book.ids[strconv.Itoa(Max-1)] == nil {
		t.Error("a settlement that was not stated is forgotten, or one that was is not")
	}
}

// The bytes of reservations are bounded, too, and a reservation that ends frees its bytes.
func TestReservationsAreBoundedInBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		at := &Reservations{NowMs: func() int64 { return time.Now().UnixMilli() }}
		long := longest(at.NowMs())
		if least := len(long.Text()) + 32*701; long.bytes() < least || long.bytes() > 2*least {
			t.Errorf("%d bytes, and there are %d at least", long.bytes(), least)
		}
		keep := func(i int, settled bool) {
			r := *long
			r.MadeBy, r.Settled = uint64(i+1), settled
			at.book.keep(&kept{id: strconv.Itoa(i), record: &r}, at.NowMs())
		}
		n := 0
		for ; !at.Full(long); n++ {
			keep(n, false)
		}
		keep(n, false)
		if at.Len() != n {
			t.Errorf("%d of %d are kept", at.Len(), n)
		}
		if share := BytesMax / 4 * 3; n*long.bytes() < share-BytesMax/100 || n > share/long.bytes()+1 { // of a namespace
			t.Errorf("there are %d of %d bytes each", n, long.bytes())
		}
		for i := range n {
			keep(i, true)
		}
		time.Sleep(time.Second)
		if at.Full(long) || at.book.room.bytes.Used() != 0 || at.Len() != 0 {
			t.Errorf("all are settled: full %v, %d bytes, %d reservations", at.Full(long), at.book.room.bytes.Used(), at.Len())
		}
	})
}

// However many reservations the callers of a namespace have, others find room. When reservations end, there is room for
// their callers again.
func TestReservationsHaveShares(t *testing.T) {
	label := func(name string) fair.Caller { return fair.In(fair.With(t.Context(), name)) }
	for what, c := range map[string]struct{ flood, victim fair.Of }{
		"a caller": {fair.Of{Caller: label("flood"), Space: fair.Space{Namespace: "a"}},
			fair.Of{Caller: label("victim"), Space: fair.Space{Namespace: "a"}}},
		"a namespace": {fair.Of{Space: fair.Space{Namespace: "a"}}, fair.Of{Space: fair.Space{Namespace: "b"}}},
	} {
		nowMs := int64(1000)
		s := &Reservations{NowMs: func() int64 { return nowMs }}
		record := func(of fair.Of, i int) *Record {
			return &Record{MadeBy: uint64(i + 1), By: of.Caller, EndsMs: 5000, Items: []Item{{Namespace: of.Space.Namespace}}}
		}
		n := 0
		for ; !s.Full(record(c.flood, n)); n++ {
			s.book.keep(&kept{id: strconv.Itoa(n), record: record(c.flood, n)}, s.NowMs())
		}
		if n != Max*3/4 {
			t.Errorf("%s has %d reservations of %d", what, n, Max)
		}
		for i := range Max / 16 {
			if r := record(c.victim, n+i); s.Full(r) {
				t.Fatalf("%s: another one finds no room after %d", what, i)
			} else {
				s.book.keep(&kept{id: strconv.Itoa(n + i), record: r}, s.NowMs())
			}
		}
		if nowMs = 6000; s.Full(record(c.flood, 0)) {
			t.Errorf("%s: all have ended, and there is no room", what)
		}
	}
}
