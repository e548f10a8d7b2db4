package relay

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

func drawCell(t *rapid.T) window.Cell {
	name := func(label string, bytesMax int) string {
		return string(rapid.SliceOfN(rapid.SampledFrom([]byte{0, 'a', 'b', ':', 0xff}), 1, bytesMax).Draw(t, label))
	}
	return window.Cell{
		Key: window.Key{
			Workspace: name("workspace", 3), Namespace: name("namespace", 3), Identifier: name("identifier", 6),
			Duration:   time.Duration(rapid.SampledFrom([]int64{1000, 60_000, window.DurationMax.Milliseconds()}).Draw(t, "ms")) * time.Millisecond,
			Mode:       window.Mode(rapid.IntRange(0, int(window.Modes)-1).Draw(t, "mode")),
			Generation: window.Generation(rapid.SampledFrom([]int{0, 1, int(window.GenerationMax)}).Draw(t, "generation")),
		},
		Sequence: rapid.SampledFrom([]int64{-1, 0, 1, 28_000_000}).Draw(t, "sequence"),
	}
}

// drawCount draws a count with its cell's name or number.
func drawCount(t *rapid.T) counted {
	c := counted{drawCell(t), rapid.Uint32().Draw(t, "number"), rapid.Int64Range(0, store.CountMax).Draw(t, "total")}
	if c.number > 0 && rapid.Bool().Draw(t, "by number") {
		c.cell.Identifier = ""
	}
	return c
}

// Decoding an encoded payload returns exactly the counts that were encoded.
func TestPayloadsComeBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		counts := map[counted]bool{}
		for range rapid.IntRange(0, 20).Draw(t, "counts") {
			counts[drawCount(t)] = true
		}
		payload, space := payloadOf(counts)
		if !space {
			t.Fatal("no room for some entries")
		}
		got := map[counted]bool{}
		err := decodeOnly(payload, func(c counted) { got[c] = true })
		if err != nil || !maps.Equal(got, counts) {
			t.Fatalf("%v came back as %v, %v", counts, got, err)
		}
	})
}

// payloadOf also reports whether a room as large as the payload had space for all counts.
func payloadOf(counts map[counted]bool) (payload []byte, space bool) {
	r, space := newRoom(store.FeedBytesMax), true
	var c []counted
	for one := range counts {
		c, space = append(c, one), space && r.count(&one.cell, !one.isNamed())
	}
	return encode(c, 0), space
}

// Counts for which a room has space fit into its bytes, and a room is at least half used when it is full.
func TestARoomIsLargeEnough(t *testing.T) {
	const bytesMax = 20_000
	for _, long := range []int{1, 30, window.IdentifierBytesMax} {
		r, counts := newRoom(bytesMax), []counted(nil)
		for i := int64(0); ; i++ {
			cell := minuteCell(fmt.Sprint(strings.Repeat("x", max(0, long-5)), i))
			cell.Identifier = cell.Identifier[:min(len(cell.Identifier), window.IdentifierBytesMax)]
			cell.Sequence = i / 10
			cell.Workspace = strings.Repeat("w", 1+rand.IntN(window.WorkspaceBytesMax))
			byNumber := i%3 == 0
			if !r.count(&cell, byNumber) {
				break
			}
			if byNumber {
				cell.Identifier = ""
			}
			counts = append(counts, counted{cell, uint32(1<<32 - 1 - i%2*(1<<31)), store.CountMax})
		}
		if n := len(encodePlain(counts)); n > bytesMax {
			t.Errorf("%d counts take %d bytes, more than %d", len(counts), n, bytesMax)
		}
	}
}

func TestPayloadsAreRefused(t *testing.T) {
	cell := minuteCell("alice")
	whole := encode([]counted{{cell, 1, 7}, {groupOf(cell), 9, 8}}, 0)
	ignore := func(payload []byte) error { return decodeOnly(payload, func(counted) {}) }
	if err := ignore(whole); err != nil {
		t.Fatal(err)
	}
	for n := range whole {
		if err := ignore(whole[:n]); !errors.Is(err, errPayload) {
			t.Errorf("its first %d bytes: %v", n, err)
		}
	}
	known := []byte{versionPlain, 10, 1, 1, 'w', 1, 'n', 0xe8, 7, 2, 0, 1, 4, 0, 0, 1, 7, 1, 'a'}
	if err := ignore(known); err != nil {
		t.Fatal(err)
	}
	bad := map[string][]byte{
		"another version":       append([]byte{versionDeflated + 1}, whole[1:]...),
		"bytes at its end":      append(bytes.Clone(whole), 0),
		"too long":              make([]byte, store.FeedBytesMax+1),
		"more than is shared":   {versionPlain, 10, 1, 1, 'w', 1, 'n', 0xe8, 7, 2, 0, 1, 4, 0, 1, 1, 7, 1, 'a'},
		"no room for its names": {versionPlain, 10, 1, 1, 'w', 1, 'n', 0xe8, 7, 2, 0, 2, 4, 0, 0, 1, 7, 1, 'a'},
	}
	for what, payload := range bad {
		if err := ignore(payload); !errors.Is(err, errPayload) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// A malformed count is left out and counted, and the other counts of its row are decoded.
func TestMalformedCountsAreLeftOut(t *testing.T) {
	with := func(change func(c *counted)) counted {
		c := counted{minuteCell("bad"), 2, 7}
		change(&c)
		return c
	}
	good := []counted{{minuteCell("a"), 1, 5}, {minuteCell("z"), 3, 6}, {groupOf(minuteCell("")), 9, 8}}
	for what, bad := range map[string]counted{
		"neither name nor number": with(func(c *counted) { c.cell.Identifier, c.number = "", 0 }),
		"a name too long": with(func(c *counted) {
			c.cell.Identifier = strings.Repeat("x", window.IdentifierBytesMax+1)
		}),
		"a negative total":           with(func(c *counted) { c.total = -1 }),
		"a total too large":          with(func(c *counted) { c.total = store.CountMax + 1 }),
		"a total by number":          {groupOf(minuteCell("")), 7, store.CountMax + 1},
		"no workspace":               with(func(c *counted) { c.cell.Workspace = "" }),
		"a long workspace":           with(func(c *counted) { c.cell.Workspace = strings.Repeat("x", window.WorkspaceBytesMax+1) }),
		"no namespace":               with(func(c *counted) { c.cell.Namespace = "" }),
		"a short window":             with(func(c *counted) { c.cell.Duration = time.Millisecond }),
		"a long window":              with(func(c *counted) { c.cell.Duration = window.DurationMax + time.Second }),
		"a cell at the end of time":  with(func(c *counted) { c.cell.Sequence = 1 << 60 }),
		"a cell before time":         with(func(c *counted) { c.cell.Sequence = -3 }),
		"a cell of a bad generation": with(func(c *counted) { c.cell.Generation = window.GenerationMax + 1 }),
	} {
		for _, age := range []time.Duration{0, time.Second} {
			got := map[counted]bool{}
			malformed, err := decode(encode(append([]counted{bad}, good...), age), func(c counted) { got[c] = true })
			if err != nil || malformed != 1 || len(got) != len(good) || !got[good[0]] || !got[good[1]] || !got[good[2]] {
				t.Errorf("%s: %d malformed, and %v, %v", what, malformed, got, err)
			}
		}
	}
}

// decode calls count for each count of a payload, and returns the number of malformed counts.
func decode(payload []byte, count func(counted)) (malformed int, err error) {
	_, malformed, err = decodeBlocks(payload, func(of *window.Cell, entries []entry) {
		for _, e := range entries {
			c := counted{*of, e.number, e.total}
			c.cell.Identifier = e.identifier
			count(c)
		}
	})
	return malformed, err
}

func decodeOnly(payload []byte, count func(counted)) error {
	_, err := decode(payload, count)
	return err
}

// decode panics for no input, and each entry that it yields is a count that a relay can have published.
func FuzzDecode(f *testing.F) {
	f.Add(encode(nil, 0))
	counts := []counted{{minuteCell("alice"), 1, 7}, {minuteCell("alicia"), 2, 1 << 50}, {minuteCell(""), 3, 4}}
	f.Add(encode(counts, 0))
	body := []byte{10, 1, 1, 'w', 1, 'n', 0xe8, 7, 2, 0, 1, 4, 0, 0, 1, 7, 1, 'a'}
	f.Add(deflate(body))
	f.Add(append([]byte{versionPlain}, body...))
	f.Fuzz(func(t *testing.T, payload []byte) {
		var counts []counted
		err := decodeOnly(payload, func(c counted) {
			whole := c.cell
			if !c.isNamed() && c.number > 0 {
				whole.Identifier = "known"
			}
			if whole.Validate() != nil || c.total < 0 || c.cell.ExpiresAtMs()/c.cell.DurationMs()-2 != c.cell.Sequence {
				t.Fatalf("yielded %+v", c)
			}
			counts = append(counts, c)
		})
		if err != nil {
			return
		}
		n := 0
		if err := decodeOnly(encode(counts, 0), func(counted) { n++ }); err != nil || n != len(counts) {
			t.Fatalf("encoded again: %d of %d counts, %v", n, len(counts), err)
		}
	})
}

func encodePlain(counts []counted) []byte {
	s := sectionsOf(counts)
	return s.plain()
}

func minuteCell(identifier string) window.Cell {
	return window.Cell{Key: window.Key{Workspace: "acme", Namespace: "api", Identifier: identifier, Duration: time.Minute}, Sequence: 28_000_000}
}

// A payload is deflated if that makes it shorter. It is rejected if it is cut short, or if it inflates to more bytes
// than a row may have.
func TestDeflatedPayloads(t *testing.T) {
	var counts []counted
	for i := range 2000 {
		name := fmt.Sprintf("user-%08x", uint32(i)*2654435761)
		counts = append(counts, counted{cell: minuteCell(name), total: int64(i)})
	}
	payload := encode(counts, 0)
	if plain := len(encodePlain(counts)); payload[0] != versionDeflated || len(payload) > plain*8/10 {
		t.Errorf("%d bytes of version %d, and %d bytes plain", len(payload), payload[0], plain)
	}
	n := 0
	count := func(counted) { n++ }
	if err := decodeOnly(payload, count); err != nil || n != len(counts) {
		t.Errorf("%d of %d came back, %v", n, len(counts), err)
	}
	for _, bad := range [][]byte{payload[:len(payload)/2], payload[:1], append(bytes.Clone(payload), 0), deflate(make([]byte, store.FeedBytesMax+1))} {
		if err := decodeOnly(bad, func(counted) {}); !errors.Is(err, errPayload) {
			t.Errorf("%d bytes: %v", len(bad), err)
		}
	}
	if small := encode(counts[:1], 0); small[0] != versionPlain {
		t.Errorf("a single count is of version %d", small[0])
	}
}

// The age of a row's oldest count is decoded in ms. A row without counts has no age, and an age of 0 is not encoded.
func TestAges(t *testing.T) {
	counts := []counted{{minuteCell("alice"), 1, 7}}
	read := func(payload []byte) (time.Duration, error) {
		age, _, err := decodeBlocks(payload, func(*window.Cell, []entry) {})
		return age, err
	}
	for _, age := range []time.Duration{0, time.Millisecond, time.Minute, ageMax} {
		if got, err := read(encode(counts, age)); got != age || err != nil {
			t.Errorf("%v came back as %v, %v", age, got, err)
		}
	}
	if got, err := read(encode(counts, 2*ageMax)); got != ageMax || err != nil {
		t.Errorf("twice the longest came back as %v, %v", got, err)
	}
	for _, end := range [][]byte{{0}, {1, 0}, {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f}} {
		if _, err := read(append(encode(counts, 0), end...)); !errors.Is(err, errPayload) {
			t.Errorf("a row that ends with %v: %v", end, err)
		}
	}
}

// A cell whose end is beyond the range of clocks is left out. The last cell whose end is within the range is not.
func TestSequencesEndWhereTimeDoes(t *testing.T) {
	c := minuteCell("a")
	last := math.MaxInt64/c.DurationMs() - 2
	for sequence, want := range map[int64]bool{last: true, last + 1: false, -2: true, -3: false} {
		c.Sequence = sequence
		taken := false
		malformed, err := decode(encode([]counted{{cell: c, total: 1}}, 0), func(counted) { taken = true })
		if taken != want || (malformed == 0) != want || err != nil || want && c.ExpiresAtMs() < 0 {
			t.Errorf("sequence %d is taken: %v, %v; it ends at %d", sequence, taken, err, c.ExpiresAtMs())
		}
	}
}
