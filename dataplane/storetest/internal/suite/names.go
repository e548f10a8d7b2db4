package suite

import (
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/weirhq/weir/shared/window"
)

// Lookalikes are names that some store confuses: by collation, padding, normalisation, decoding, or by its own
// delimiters.
var Lookalikes = []string{
	"alice", "Alice", "ALICE", "alice ", " alice", "alice\t", "alicé", "alice\u0301", "alice\x00", "alice\x00\x00",
	"a-b", "a:b", "a/b", "a.b", "a|b", "a,b", "a%b", "a_b", `a\b`, "a'b", `a"b`, "a`b", "a;b", "a b", "a\nb", "a\r\nb",
	"a%3Ab", "a%3ab", "a%253Ab", "a+b", "a%20b", "a%2", "a%",
	":", "::", "-", "/", "{", "}", "{}", "{a}", "a{b}c", "}{", "*", "?", "[a]", "%", "%%", "\x00", "\n", " ", "0", "00",
	"-1", "nil", "NULL",
	"🙂", "🙃", "ß", "ss", "ı", "i", "I", "İ", "k", "K", "\u212a", "\u00e9", "e\u0301",
	"\xff", "\xfe", "\xc3\x28", "a\xffb", "a\ufffdb", "\ufffd", "\xed\xa0\x80",
	"1:" + hourMs, hourMs + ":1", "1", "2", hourMs,
}

// Began is the moment that all cells and imports are reckoned from, so that no test
// depends on which side of a minute it runs.
var Began = time.Now()

// The durations of live cells. They are an hour and a day, with as few milliseconds more as it takes for Began to be
// well inside of a cell, and the longest duration.
var (
	Hour    = liveFrom(Began, time.Hour, time.Millisecond)
	Day     = liveFrom(Began, 24*time.Hour, time.Millisecond)
	Longest = liveFrom(Began, window.DurationMax, -time.Hour)
)

var hourMs = fmt.Sprint(Hour.Milliseconds())

const (
	liveMin  = 30 * time.Minute
	begunMin = 7 * time.Minute
)

// liveFrom returns the first duration from d on, by steps, whose cell began some time before t and outlasts the tests,
// which begin at t. So the cell before counts as long, and no test runs in the first step of an hour's history.
//
// Each millisecond more makes t lie earlier in its cell, by as many milliseconds as cells have passed since 1970: some
// eight minutes for an hour, and 20 seconds for a day.
func liveFrom(t time.Time, d, step time.Duration) time.Duration {
	for left := leftAt(t, d); left < liveMin || d-left < begunMin; left = leftAt(t, d) {
		d += step
	}
	return d
}

// leftAt returns for how long after t the cell lasts that t lies in.
func leftAt(t time.Time, d time.Duration) time.Duration {
	end := window.Start(window.Sequence(t.UnixMilli(), d.Milliseconds())+1, d.Milliseconds())
	return time.UnixMilli(end).Sub(t)
}

// SequenceNow returns the sequence of the cell of a duration that contains Began.
func SequenceNow(d time.Duration) int64 {
	return window.Sequence(Began.UnixMilli(), d.Milliseconds())
}

// LiveCell returns a cell that is alive while the tests run: the cell of the Hour that contains Began.
func LiveCell(workspace, identifier string) window.Cell {
	return window.Cell{
		Key:      window.Key{Workspace: workspace, Namespace: "n", Identifier: identifier, Duration: Hour},
		Sequence: SequenceNow(Hour),
	}
}

// LiveCells returns n cells of a workspace.
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
	hour := SequenceNow(Hour)
	for _, n := range Lookalikes {
		add(n, "n", "i", Hour, hour)
		add("w", n, "i", Hour, hour)
		add("w", "n", n, Hour, hour)
	}
	for _, d := range []string{":", "/", "-", "\x00", "|", ".", "}:{", "%3A", " "} {
		add("a"+d+"b", "c", "d", Hour, hour)
		add("a", "b"+d+"c", "d", Hour, hour)
		add("a", "b", "c"+d+"d", Hour, hour)
		add("a", "b", fmt.Sprint("c", d, hourMs), Hour, hour)
		add("a", "b", fmt.Sprint("c", d, hourMs, d, hour), Hour, hour)
	}
	for _, d := range []time.Duration{Hour, liveFrom(Began, Hour+time.Millisecond, time.Millisecond), Day, Longest} {
		add("w", "n", "durations", d, SequenceNow(d))
		add("w", "n", "durations", d, SequenceNow(d)-1)
	}
	return cells
}

// LongestCells returns cells whose names have the greatest length and differ only in the last byte.
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
				Duration:   Hour,
			}, Sequence: SequenceNow(Hour)})
		}
	}
	return cells
}

// LikeCells returns cells that differ only in the duration, the workspace, the sequence, the mode or the generation.
func LikeCells() []window.Cell {
	hour := LiveCell("w", "x")
	day, before, estimate, reset := hour, hour, hour, hour
	day.Duration, day.Sequence = Day, SequenceNow(Day)
	before.Sequence--
	estimate.Mode, reset.Generation = window.Estimate, 1
	estimateDay, last := day, day
	estimateDay.Mode = window.Estimate
	last.Mode, last.Generation = window.Estimate, window.GenerationMax
	return []window.Cell{hour, LiveCell("w2", "x"), day, before, estimate, estimateDay, reset, last}
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

// FreshWorkspace returns a name that no other part of this process's tests uses, so that random histories can share a
// store without seeing each other.
func FreshWorkspace() string {
	return fmt.Sprintf("ws%x.%d.", Began.UnixNano(), workspaces.Add(1))
}
