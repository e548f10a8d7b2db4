package auditchain

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// row is an entry with its link, as in the two tables.
type row struct {
	Entry
	Link
}

// written returns a log of some entries before the chain began and some in it, with gaps between their ids.
func written(t *rapid.T) (log []row, end End) {
	id := uint64(0)
	text := rapid.SampledFrom([]string{"", "a", "ab", "b", "\x00", "ä", "{}"})
	draw := func() Entry {
		id += rapid.Uint64Range(1, 3).Draw(t, "step")
		return Entry{
			ID: id, AtMs: rapid.Uint64Range(0, 3).Draw(t, "at"), Actor: text.Draw(t, "actor"), Action: text.Draw(t, "action"),
			Subject: text.Draw(t, "subject"), Reason: text.Draw(t, "reason"), Before: text.Draw(t, "before"),
			After: text.Draw(t, "after"), WriteID: text.Draw(t, "write id"),
		}
	}
	for range rapid.IntRange(0, 2).Draw(t, "unlinked") {
		log = append(log, row{Entry: draw()})
	}
	for range rapid.IntRange(1, 6).Draw(t, "linked") {
		e := draw()
		l := end.Append(&e)
		log, end = append(log, row{e, l}), End{e.ID, l.Hash}
	}
	return log, end
}

func verify(log []row, end End, v *Verifier) error {
	for _, r := range log {
		if r.Link != (Link{}) {
			v.Begins(r.ID)
			break
		}
	}
	for _, r := range log {
		if err := v.Next(&r.Entry, r.Link); err != nil {
			return err
		}
	}
	return v.Finish(end)
}

// A log as it was written is whole, from its beginning and from every linked entry.
func TestWhole(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		log, end := written(t)
		if err := verify(log, end, new(Verifier)); err != nil {
			t.Fatal(err)
		}
		for i, r := range log {
			v := From(r.ID)
			v.Expect(end.Hash)
			err := verify(log[i:], end, v)
			if linked := r.Link != (Link{}); linked != (err == nil) {
				t.Fatalf("from %d: %v", r.ID, err)
			}
			if err == nil && (v.Linked() != int64(len(log)-i) || v.Last() != end) {
				t.Fatalf("from %d: %d linked, the last is %v", r.ID, v.Linked(), v.Last())
			}
		}
	})
}

// alterations each change a log in a single place: at the linked entry i.
var alterations = map[string]func(t *rapid.T, log []row, i int) []row{
	"actor":    func(_ *rapid.T, log []row, i int) []row { log[i].Actor += "x"; return log },
	"action":   func(_ *rapid.T, log []row, i int) []row { log[i].Action += "x"; return log },
	"subject":  func(_ *rapid.T, log []row, i int) []row { log[i].Subject += "x"; return log },
	"reason":   func(_ *rapid.T, log []row, i int) []row { log[i].Reason += "x"; return log },
	"before":   func(_ *rapid.T, log []row, i int) []row { log[i].Before += "x"; return log },
	"after":    func(_ *rapid.T, log []row, i int) []row { log[i].After += "x"; return log },
	"write id": func(_ *rapid.T, log []row, i int) []row { log[i].WriteID += "x"; return log },
	"time":     func(_ *rapid.T, log []row, i int) []row { log[i].AtMs++; return log },
	"follows":  func(_ *rapid.T, log []row, i int) []row { log[i].Follows++; return log },
	"previous": func(_ *rapid.T, log []row, i int) []row { log[i].Previous[31] ^= 1; return log },
	"hash":     func(_ *rapid.T, log []row, i int) []row { log[i].Hash[0] ^= 1; return log },
	"id": func(_ *rapid.T, log []row, i int) []row { // in both tables
		log[i].ID += 100
		slices.SortFunc(log, func(a, b row) int { return int(a.ID) - int(b.ID) })
		return log
	},
	"a letter that moves to the next field": func(_ *rapid.T, log []row, i int) []row {
		log[i].Actor, log[i].Action = log[i].Actor+"x"+log[i].Action, ""
		return log
	},
	"no link":         func(_ *rapid.T, log []row, i int) []row { log[i].Link = Link{}; return log },
	"deleted":         func(_ *rapid.T, log []row, i int) []row { return slices.Delete(log, i, i+1) },
	"all but deleted": func(_ *rapid.T, log []row, i int) []row { return append(log[:i:i], log[len(log):]...) },
	"swapped texts": func(t *rapid.T, log []row, i int) []row {
		j := other(t, log, i)
		a, b := log[i].Entry, log[j].Entry
		log[i].Entry, log[j].Entry = b, a
		log[i].ID, log[j].ID = a.ID, b.ID
		log[i].Actor += "x" // so that the two differ
		return log
	},
	"swapped whole": func(t *rapid.T, log []row, i int) []row {
		j := other(t, log, i)
		log[i], log[j] = log[j], log[i]
		log[i].ID, log[j].ID = log[j].ID, log[i].ID
		return log
	},
	"inserted without a link": func(_ *rapid.T, log []row, i int) []row {
		return slices.Insert(log, i+1, row{Entry: Entry{ID: log[i].ID + 1}})
	},
	"inserted with a link of its own": func(_ *rapid.T, log []row, i int) []row {
		e := Entry{ID: log[i].ID + 1, Actor: "eve"}
		return slices.Insert(log, i+1, row{e, End{log[i].ID, log[i].Hash}.Append(&e)})
	},
	"changed, with its link": func(_ *rapid.T, log []row, i int) []row {
		log[i].Actor += "x"
		log[i].Link = End{log[i].Follows, log[i].Previous}.Append(&log[i].Entry)
		return log
	},
}

func other(t *rapid.T, log []row, i int) int {
	j := rapid.IntRange(0, len(log)-1).Draw(t, "other")
	if j == i || log[j].Link == (Link{}) {
		t.SkipNow()
	}
	return j
}

// Every change in a single place is found. The entry that the error names is not after the first changed entry.
func TestEveryAlterationIsFound(t *testing.T) {
	for name, alter := range alterations {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				log, end := written(t)
				i := rapid.IntRange(0, len(log)-1).Draw(t, "entry")
				if log[i].Link == (Link{}) {
					t.SkipNow()
				}
				altered := alter(t, slices.Clone(log), i)
				var b *Broken
				if err := verify(altered, end, new(Verifier)); !errors.As(err, &b) {
					t.Fatalf("%v is as whole as %v", altered, log)
				}
				if changesOneEntry(name) && b.ID != log[i].ID {
					t.Fatalf("%v; want entry %d", b, log[i].ID)
				}
			})
		})
	}
}

// changesOneEntry reports whether an alteration leaves all other entries, and their order, unchanged.
func changesOneEntry(name string) bool {
	return !slices.Contains([]string{"id", "hash", "no link", "all but deleted", "swapped texts", "swapped whole"}, name) &&
		!strings.HasPrefix(name, "inserted")
}

// If a writer computes all hashes again, or cuts the newest entries off and sets the open end back, a hash that was
// noted before reveals it.
func TestANotedHashFindsWhatIsComputedAnew(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		log, end := written(t)
		noted := end
		i := rapid.IntRange(0, len(log)-1).Draw(t, "entry")
		if log[i].Link == (Link{}) {
			t.SkipNow()
		}
		if rapid.Bool().Draw(t, "cut") {
			end = End{log[i].Follows, log[i].Previous}
			log = log[:i]
		} else {
			end = End{log[i].Follows, log[i].Previous}
			log[i].Reason += "x"
			for ; i < len(log); i++ {
				log[i].Link = end.Append(&log[i].Entry)
				end = End{log[i].ID, log[i].Hash}
			}
		}
		if err := verify(log, end, new(Verifier)); err != nil {
			t.Fatalf("%v without the hash that was noted", err)
		}
		v := new(Verifier)
		v.Expect(noted.Hash)
		if err := verify(log, end, v); err == nil || !strings.Contains(err.Error(), noted.Hash.String()) {
			t.Fatalf("%v with the hash that was noted", err)
		}
	})
}

// The encoding that the package comment states, once by hand: a chain that is stored stays valid.
func TestHashIsTheOneStated(t *testing.T) {
	e := Entry{ID: 7, AtMs: 1767366245000, Actor: "ann", Action: "cleanup.pause", Subject: "job cleanup", Reason: "deploy", After: "{}"}
	link := End{}.Append(&e)
	const want = "4089aead9aab337de88d61cdfc07ca7c75358e6e2b3bdc717d36700e6cdadbf4"
	if got := link.Hash.String(); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if h, err := ParseHash(want); err != nil || h != link.Hash {
		t.Errorf("%v, %v", h, err)
	}
	for _, text := range []string{"", want[1:], want + "0", strings.Repeat("x", 64)} {
		if _, err := ParseHash(text); err == nil || !strings.Contains(err.Error(), "64 hexadecimal digits") {
			t.Errorf("%q: %v", text, err)
		}
	}
}
