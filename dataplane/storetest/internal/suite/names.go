package suite

import (
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/weirhq/weir/shared/window"
)

// Lookalikes are names that some store somewhere takes for one another: by
// collation, padding, normalisation, decoding, or by its own delimiters.
var Lookalikes = []string{
	"alice", "Alice", "ALICE", "alice ", " alice", "alice\t", "alicé", "alice\u0301", "alice\x00", "alice\x00\x00",
	"a-b", "a:b", "a/b", "a.b", "a|b", "a,b", "a%b", "a_b", `a\b`, "a'b", `a"b`, "a`b", "a;b", "a b", "a\nb", "a\r\nb",
	"a%3Ab", "a%3ab", "a%253Ab", "a+b", "a%20b", "a%2", "a%",
	":", "::", "-", "/", "{", "}", "{}", "{a}", "a{b}c", "}{", "*", "?", "[a]", "%", "%%", "\x00", "\n", " ", "0", "00",
	"-1", "nil", "NULL",
	"🙂", "🙃", "ß", "ss", "ı", "i", "I", "İ", "k", "K", "\u212a", "\u00e9", "e\u0301",
	"\xff", "\xfe", "\xc3\x28", "a\xffb", "a\ufffdb", "\ufffd", "\xed\xa0\x80",
	"1:3600000", "3600000:1", "1", "2", "3600000",
}

// Began is the moment that all cells and imports are reckoned from, so that no test
// depends on which side of a minute it runs.
var Began = time.Now()

// SequenceNow is the cell of a duration that Began lies in.
func SequenceNow(d time.Duration) int64 {
	return window.Sequence(Began.UnixMilli(), d.Milliseconds())
}

// LiveCell is a cell that is alive while the tests run: of the hour that Began lies in.
func LiveCell(workspace, identifier string) window.Cell {
	return window.Cell{
		Key:      window.Key{Workspace: workspace, Namespace: "n", Identifier: identifier, Duration: time.Hour},
		Sequence: SequenceNow(time.Hour),
	}
}

// LiveCells are n cells of one workspace.
func LiveCells(n int) []window.Cell {
	cells := make([]window.Cell, n)
	for i := range cells {
		cells[i] = LiveCell("w", fmt.Sprint("id-", i))
	}
	return cells
}

// LookalikeCells crosses the Lookalikes over the three names of a key, and adds
// cells that become equal when their parts are joined by a common delimiter. All
// are different, alive now, and in workspaces that begin with their own prefix.
func LookalikeCells(prefix string) []window.Cell {
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
	hour := SequenceNow(time.Hour)
	for _, n := range Lookalikes {
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
		add("w", "n", "durations", d, SequenceNow(d))
		add("w", "n", "durations", d, SequenceNow(d)+1)
	}
	return cells
}

// LongestCells are cells whose names are as long as names may be and differ in the
// last byte only.
func LongestCells(prefix string) []window.Cell {
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
			}, Sequence: SequenceNow(time.Hour)})
		}
	}
	return cells
}

// LikeCells are cells that differ in the duration, the workspace, the sequence, the mode or the generation alone.
func LikeCells() []window.Cell {
	hour := LiveCell("w", "x")
	day, next, estimate, reset := hour, hour, hour, hour
	day.Duration, day.Sequence = 24*time.Hour, SequenceNow(24*time.Hour)
	next.Sequence++
	estimate.Mode, reset.Generation = window.Estimate, 1
	estimateDay, last := day, day
	estimateDay.Mode = window.Estimate
	last.Mode, last.Generation = window.Estimate, window.GenerationMax
	return []window.Cell{hour, LiveCell("w2", "x"), day, next, estimate, estimateDay, reset, last}
}

// Numbered makes something of each cell, with the numbers from 1 on.
func Numbered[T any](cells []window.Cell, of func(c window.Cell, n int64) T) []T {
	all := make([]T, len(cells))
	for i, c := range cells {
		all[i] = of(c, int64(i+1))
	}
	return all
}

var workspaces atomic.Int64

// FreshWorkspace is a name that no other part of this process's tests uses, so that
// random histories can share one store without seeing each other.
func FreshWorkspace() string {
	return fmt.Sprintf("ws%x.%d.", Began.UnixNano(), workspaces.Add(1))
}
