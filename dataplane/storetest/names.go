package storetest

import (
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// lookalikes are names that some store somewhere takes for one another: by
// collation, padding, normalisation, decoding, or by its own delimiters.
var lookalikes = []string{
	"alice", "Alice", "ALICE", "alice ", " alice", "alice\t", "alicé", "alice\u0301", "alice\x00", "alice\x00\x00",
	"a-b", "a:b", "a/b", "a.b", "a|b", "a,b", "a%b", "a_b", `a\b`, "a'b", `a"b`, "a`b", "a;b", "a b", "a\nb", "a\r\nb",
	"a%3Ab", "a%3ab", "a%253Ab", "a+b", "a%20b", "a%2", "a%",
	":", "::", "-", "/", "{", "}", "{}", "{a}", "a{b}c", "}{", "*", "?", "[a]", "%", "%%", "\x00", "\n", " ", "0", "00",
	"-1", "nil", "NULL",
	"🙂", "🙃", "ß", "ss", "ı", "i", "I", "İ", "k", "K", "\u212a", "\u00e9", "e\u0301",
	"\xff", "\xfe", "\xc3\x28", "a\xffb", "a\ufffdb", "\ufffd", "\xed\xa0\x80",
	"1:3600000", "3600000:1", "1", "2", "3600000",
}

// began is the moment that all cells and imports are reckoned from, so that no test
// depends on which side of a minute it runs.
var began = time.Now()

// sequenceNow is the cell of a duration that began lies in.
func sequenceNow(d time.Duration) int64 {
	return window.Sequence(began.UnixMilli(), d.Milliseconds())
}

// liveCell is a cell that is alive while the tests run: of the hour that began lies in.
func liveCell(workspace, identifier string) window.Cell {
	return window.Cell{
		Key:      window.Key{Workspace: workspace, Namespace: "n", Identifier: identifier, Duration: time.Hour},
		Sequence: sequenceNow(time.Hour),
	}
}

// liveCells are n cells of one workspace.
func liveCells(n int) []window.Cell {
	cells := make([]window.Cell, n)
	for i := range cells {
		cells[i] = liveCell("w", fmt.Sprint("id-", i))
	}
	return cells
}

// lookalikeCells crosses the lookalikes over the three names of a key, and adds
// cells that become equal when their parts are joined by a common delimiter. All
// are different, alive now, and in workspaces that begin with their own prefix.
func lookalikeCells(prefix string) []window.Cell {
	seen := make(map[window.Cell]bool)
	var cells []window.Cell
	add := func(workspace, namespace, identifier string, d time.Duration, sequence int64) {
		c := window.Cell{Key: window.Key{Workspace: prefix + workspace, Namespace: namespace, Identifier: identifier,
			Duration: d}, Sequence: sequence}
		if !seen[c] {
			seen[c] = true
			cells = append(cells, c)
		}
	}
	hour := sequenceNow(time.Hour)
	for _, n := range lookalikes {
		add(n, "n", "i", time.Hour, hour)
		add("w", n, "i", time.Hour, hour)
		add("w", "n", n, time.Hour, hour)
	}
	for _, d := range []string{":", "/", "-", "\x00", "|", ".", "}:{", "%3A", " "} {
		add("a"+d+"b", "c", "d", time.Hour, hour)
		add("a", "b"+d+"c", "d", time.Hour, hour)
		add("a", "b", "c"+d+"d", time.Hour, hour)
		add("a", "b", fmt.Sprint("c", d, 3600000), time.Hour, hour)
		add("a", "b", fmt.Sprint("c", d, 3600000, d, hour), time.Hour, hour)
	}
	for _, d := range []time.Duration{time.Hour, time.Hour + time.Millisecond, 24 * time.Hour, window.DurationMax} {
		add("w", "n", "durations", d, sequenceNow(d))
		add("w", "n", "durations", d, sequenceNow(d)+1)
	}
	return cells
}

// longestCells are cells whose names are as long as names may be and differ in the
// last byte only.
func longestCells(prefix string) []window.Cell {
	long := func(begin string, bytesMax int, last string) string {
		return begin + strings.Repeat("n", bytesMax-len(begin)-len(last)) + last
	}
	var cells []window.Cell
	for _, last := range []string{"a", "A", " ", "\x00", "\xff", "🙂"} {
		for differs := range 3 {
			ends := [3]string{"n", "n", "n"}
			ends[differs] = last
			cells = append(cells, window.Cell{Key: window.Key{
				Workspace:  long(prefix, window.WorkspaceBytesMax, ends[0]),
				Namespace:  long("", window.NamespaceBytesMax, ends[1]),
				Identifier: long("", window.IdentifierBytesMax, ends[2]),
				Duration:   time.Hour,
			}, Sequence: sequenceNow(time.Hour)})
		}
	}
	return cells
}

// likeCells are cells that differ in the duration, the workspace, the sequence, the mode or the generation alone.
func likeCells() []window.Cell {
	hour := liveCell("w", "x")
	day, next, estimate, reset := hour, hour, hour, hour
	day.Duration, day.Sequence = 24*time.Hour, sequenceNow(24*time.Hour)
	next.Sequence++
	estimate.Mode, reset.Generation = window.Estimate, 1
	estimateDay, last := day, day
	estimateDay.Mode = window.Estimate
	last.Mode, last.Generation = window.Estimate, window.GenerationMax
	return []window.Cell{hour, liveCell("w2", "x"), day, next, estimate, estimateDay, reset, last}
}

// numbered makes something of each cell, with the numbers from 1 on.
func numbered[T any](cells []window.Cell, of func(c window.Cell, n int64) T) []T {
	all := make([]T, len(cells))
	for i, c := range cells {
		all[i] = of(c, int64(i+1))
	}
	return all
}

// countOf and foreignOf are for numbered.
func countOf(c window.Cell, n int64) store.Count     { return store.Count{Cell: c, Count: n} }
func foreignOf(c window.Cell, n int64) store.Foreign { return store.Foreign{Cell: c, Count: n} }

var workspaces atomic.Int64

// freshWorkspace is a name that no other part of this process's tests uses, so that
// random histories can share one store without seeing each other.
func freshWorkspace() string {
	return fmt.Sprintf("ws%x.%d.", began.UnixNano(), workspaces.Add(1))
}

// drawCell draws one of a few cells that are alive, so that histories meet often.
func drawCell(workspace string) *rapid.Generator[window.Cell] {
	return rapid.Custom(func(t *rapid.T) window.Cell {
		d := rapid.SampledFrom([]time.Duration{time.Hour, 24 * time.Hour, window.DurationMax}).Draw(t, "duration")
		return window.Cell{
			Key: window.Key{
				Workspace:  workspace + rapid.SampledFrom([]string{"", " ", "x"}).Draw(t, "workspace"),
				Namespace:  rapid.SampledFrom([]string{"n", "N", "n:"}).Draw(t, "namespace"),
				Identifier: rapid.SampledFrom([]string{"a", "A", "a ", "\xff", "é"}).Draw(t, "identifier"),
				Duration:   d,
				Generation: rapid.SampledFrom([]window.Generation{0, 0, 0, 1, window.GenerationMax}).Draw(t, "generation"),
			},
			Sequence: sequenceNow(d) + rapid.Int64Range(0, 1).Draw(t, "sequence"),
		}
	})
}

// sortedCounts orders rows as Publish wants them.
func sortedCounts(rows map[window.Cell]int64) []store.Count {
	counts := make([]store.Count, 0, len(rows))
	for c, n := range rows {
		counts = append(counts, store.Count{Cell: c, Count: n})
	}
	sortCounts(counts)
	return counts
}
