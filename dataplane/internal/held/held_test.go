package held

import (
	"errors"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/dataplane/store"
)

func drawn(t *rapid.T) *Record {
	amount := rapid.Int64Range(0, 100)
	r := &Record{Returned: rapid.Bool().Draw(t, "returned"), Holder: rapid.String().Draw(t, "holder"), EndsMs: 5000, MadeBy: 7}
	for range rapid.IntRange(1, 4).Draw(t, "items") {
		r.Items = append(r.Items, Item{Workspace: "w", Namespace: "<\x01>", DurationMs: 60_000,
			Identifier: string(rapid.SliceOfN(rapid.Byte(), 1, 9).Draw(t, "identifier")),
			Sequence:   amount.Draw(t, "sequence"), Limit: amount.Draw(t, "limit"), Held: amount.Draw(t, "held"),
			Shadowed: rapid.Bool().Draw(t, "shadowed")})
	}
	return r
}

// A note's text is read as it was written.
func TestTextIsReadAsItWasWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := drawn(t)
		got, err := Parse(r.Text())
		if err != nil || !reflect.DeepEqual(got, r) || !got.Same(r) {
			t.Fatalf("%+v, %v; want %+v", got, err, r)
		}
	})
}

// "What was said to be spent is never less than what was said before", and nothing changes what it is made of.
func TestSpendingOnlyGrows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := drawn(t)
		before := r.Text()
		most := make([]int64, len(r.Items))
		for now := r; ; {
			costs := make([]int64, len(most))
			for i := range costs {
				costs[i] = rapid.Int64Range(0, 100).Draw(t, "cost")
				most[i] = max(most[i], costs[i])
			}
			last := rapid.IntRange(0, 3).Draw(t, "last") == 0
			if next := now.Spend(costs, last); next != nil {
				now = next
			}
			for i := range most {
				if now.Items[i].Spent != most[i] {
					t.Fatalf("item %d: spent %d, want %d", i, now.Items[i].Spent, most[i])
				}
			}
			for _, w := range now.Words("id", 2, 1000) {
				if w.After > w.Cost || last && w.After != w.Cost || last != (w.TTL == 0) {
					t.Fatalf("%+v", w)
				}
			}
			if last {
				break
			}
		}
		if r.Text() != before {
			t.Fatalf("%s has become %s", before, r.Text())
		}
	})
}

// Whatever an origin has in the place of a note, it is read or refused; what is read can be said.
func FuzzParse(f *testing.F) {
	f.Add(`{"items":[{"w":"dw==","n":"bg==","i":"aQ==","d":60000,"s":1,"l":10,"h":5,"p":0}],` +
		`"made_ms":1,"ends_ms":2,"made_by":3}`)
	f.Add(`{"items":[{"d":-1}]}`)
	f.Add(`[]`)
	f.Fuzz(func(t *testing.T, text string) {
		r, err := Parse(text)
		if err != nil {
			return
		}
		for _, w := range r.Words("id", 2, 1000) {
			if w.Cost < 0 || w.After < 0 || w.After > w.Cost || w.TTL < 0 {
				t.Errorf("%+v", w)
			}
		}
	})
}

// A word names the cell before by the generation that it had, and a key of another duration is another one.
func TestWordsNameTheCellBefore(t *testing.T) {
	r := &Record{EndsMs: 5000, MadeBy: 7, Items: []Item{{Workspace: "w", Namespace: "n", Identifier: "i",
		DurationMs: 60_000, Sequence: 5, Generation: 3, GenerationBefore: 2}}}
	w := r.Words("id", 1, 1000)[0]
	if w.Cell.Sequence != 5 || w.Cell.Generation != 3 || w.Before.Sequence != 4 || w.Before.Generation != 2 {
		t.Errorf("%+v", w)
	}
	other := &Record{Items: []Item{r.Items[0]}}
	if other.Items[0].DurationMs = 1000; other.Same(r) {
		t.Error("the same, of another duration")
	}
}

// none counts nothing.
func none() (counts []Count, ok bool, answer any) { return make([]Count, 32), true, "made" }

func settle(r *Record, _ int64) (*Record, error) {
	return r.Spend(make([]int64, len(r.Items)), true), nil
}

// A node that has as many reservations as it may forgets those that are settled before it refuses one, and looks for
// them once a second: all others wait meanwhile.
func TestSettledReservationsMakeRoom(t *testing.T) {
	nowMs := int64(1000)
	clock := func() int64 { return nowMs }
	here := &Here{NowMs: clock, by: make(map[string]*Own)}
	there := &There{NowMs: clock, kept: make(map[string]*kept)}
	fill := func(id string, settled bool) {
		own := &Own{id: id, timer: time.AfterFunc(time.Hour, func() {})}
		own.over.Store(settled)
		here.by[id], there.kept[id] = own, &kept{record: &Record{Settled: settled}}
	}
	for i := range Max {
		fill(strconv.Itoa(i), i == 7)
	}
	if _, err := here.enter(&Own{id: "one more"}); err != nil || there.Full() {
		t.Errorf("one is settled: %v, full %v", err, there.Full())
	}
	there.kept["one more"] = &kept{record: &Record{}}
	for range 2 {
		if _, err := here.enter(&Own{id: "two more"}); !errors.Is(err, ErrMany) || !there.Full() {
			t.Errorf("none is settled, or was a moment ago: %v, full %v", err, there.Full())
		}
		fill("8", true)
	}
	nowMs += 1000
	if _, err := here.enter(&Own{id: "two more"}); err != nil || there.Full() {
		t.Errorf("a second later: %v, full %v", err, there.Full())
	}
}

// Reservations are bounded in bytes, too, and what ends gives its bytes back.
func TestReservationsAreBoundedInBytes(t *testing.T) {
	nowMs := int64(1000)
	clock := func() int64 { return nowMs }
	here, there := &Here{NowMs: clock}, &There{NowMs: clock}
	long := &Record{MadeMs: nowMs, EndsMs: nowMs + 86_400_000, Items: slices.Repeat([]Item{{
		Workspace: strings.Repeat("w", 191), Namespace: strings.Repeat("n", 255), Identifier: strings.Repeat("i", 255), DurationMs: 60_000}}, 32)}
	if least := len(long.Text()) + 32*701; long.bytes() < least || long.bytes() > 2*least {
		t.Errorf("%d bytes, and there are %d at least", long.bytes(), least)
	}
	n := 0
	for ; ; n++ {
		id := strconv.Itoa(n)
		k := there.keep(store.Note{ID: id, Version: 1}, long, 0)
		_, err := here.Reserve(id, long, none)
		if err == nil != (k != nil) || err == nil == there.Full() && (n+1)*long.bytes() < BytesMax {
			t.Fatalf("%d: %v, %v, full %v", n, err, k, there.Full())
		}
		if err != nil {
			break
		}
	}
	if n*long.bytes() < BytesMax || n > BytesMax/long.bytes()+1 {
		t.Errorf("there are %d of %d bytes each", n, long.bytes())
	}
	settled, _ := settle(long, nowMs)
	for i := range n {
		id := strconv.Itoa(i)
		if k := there.keep(store.Note{ID: id, Version: 2}, settled, 0); k == nil {
			t.Errorf("no room for a change of %s", id)
		}
		if _, late, err := here.Find(id).Change(settle); late || err != nil {
			t.Error(late, err)
		}
	}
	nowMs += 1000
	if _, err := here.Reserve("more", long, none); err != nil || there.Full() {
		t.Errorf("all are settled: %v, full %v", err, there.Full())
	}
	if here.room.bytes != long.bytes() || there.room.bytes != 0 || here.Len() != 1 || there.Len() != 0 {
		t.Errorf("%d and %d bytes, %d and %d reservations", here.room.bytes, there.room.bytes, here.Len(), there.Len())
	}
	here.Stop()
}

// What makes room for another reservation is gone, timer and all, and harms none that takes its id.
func TestForgottenReservationsAreGone(t *testing.T) {
	here := &Here{NowMs: func() int64 { return 1000 }}
	defer here.Stop()
	reserve := func() *Own {
		if _, err := here.Reserve("id", &Record{EndsMs: 86_400_000, Items: make([]Item, 32)}, none); err != nil {
			t.Fatal(err)
		}
		return here.Find("id")
	}
	own := reserve()
	if _, _, err := own.Change(settle); err != nil {
		t.Fatal(err)
	}
	here.mu.Lock()
	here.makeRoom()
	here.mu.Unlock()
	if own.timer.Stop() {
		t.Error("its timer keeps it")
	}
	next := reserve()
	own.end()
	own.end()
	if own.timer.Stop(); here.Find("id") != next {
		t.Error("the end of one that was forgotten has ended another one")
	}
}
