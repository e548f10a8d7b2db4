package held

import (
	"errors"
	"reflect"
	"strconv"
	"testing"

	"pgregory.net/rapid"
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

// A node that has as many reservations as it may forgets those that are settled before it refuses one.
func TestSettledReservationsMakeRoom(t *testing.T) {
	here := &Here{by: make(map[string]*Own)}
	there := &There{kept: make(map[string]*kept)}
	for i := range Max {
		id := strconv.Itoa(i)
		own := &Own{id: id}
		own.over.Store(i == 7)
		here.by[id], there.kept[id] = own, &kept{record: &Record{Settled: i == 7}}
	}
	if _, err := here.enter(&Own{id: "one more"}); err != nil || there.Full() {
		t.Errorf("one is settled: %v, full %v", err, there.Full())
	}
	there.kept["one more"] = &kept{record: &Record{}}
	if _, err := here.enter(&Own{id: "two more"}); !errors.Is(err, ErrMany) || !there.Full() {
		t.Errorf("none is settled: %v, full %v", err, there.Full())
	}
}
