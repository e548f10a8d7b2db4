// Package format writes the texts that weirctl prints for people: tables, sentences, times and numbers.
package format

import (
	"fmt"
	"io"
	"math"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/weirhq/weir/controlplane"
)

// Table aligns columns.
type Table struct{ w *tabwriter.Writer }

// NewTable returns a table. Callers must call Flush to write it to w.
func NewTable(w io.Writer) Table { return Table{tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)} }

// Row adds a row.
func (t Table) Row(cells ...string) {
	for i := range cells {
		cells[i] = Plain(cells[i])
	}
	_, _ = fmt.Fprintln(t.w, strings.Join(cells, "\t"))
}

// Plain makes text of other people safe to print: it replaces control characters, invisible characters, and marks that
// reverse the text around them with a ?.
func Plain(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case unicode.IsControl(r), unicode.Is(unicode.Cf, r):
			return '?'
		}
		return r
	}, text)
}

// proseWidth is the column at which sentences wrap.
const proseWidth = 120

const headlineIndent = "  "

// Prose writes a text of other people. Later lines are indented like the text in the first line.
func Prose(w io.Writer, begin, text string) {
	begin = Plain(begin)
	for _, line := range broken(text, proseWidth-utf8.RuneCountInString(begin)) {
		_, _ = fmt.Fprintln(w, begin+line)
		begin = strings.Repeat(" ", utf8.RuneCountInString(begin))
	}
}

// Headline writes a text above a table. Later lines are indented, so that they do not look like the table's first row.
func Headline(w io.Writer, text string) {
	begin := ""
	for _, line := range broken(text, proseWidth-len(headlineIndent)) {
		_, _ = fmt.Fprintln(w, begin+line)
		begin = headlineIndent
	}
}

// broken wraps a text to lines of at most width columns, unless a word is longer.
func broken(text string, width int) []string {
	lines := []string{""}
	for _, word := range strings.Fields(Plain(text)) {
		switch last := &lines[len(lines)-1]; {
		case *last == "":
			*last = word
		case utf8.RuneCountInString(*last)+1+utf8.RuneCountInString(word) <= width:
			*last += " " + word
		default:
			lines = append(lines, word)
		}
	}
	return lines
}

// Long adds a row whose last cell is a sentence, which can take several rows.
func (t Table) Long(width int, cells ...string) {
	last := len(cells) - 1
	for _, line := range broken(cells[last], width) {
		cells[last] = line
		t.Row(cells...)
		clear(cells)
	}
}

// cellMax is the length of a sentence in a table at most, in runes.
const cellMax = 80

// Cell shortens a text for a table, and reports whether it did.
func Cell(text string) (short string, cut bool) {
	if runes := []rune(Plain(text)); len(runes) > cellMax {
		return string(runes[:cellMax-1]) + "…", true
	}
	return text, false
}

// List writes a table with a row for each item, or the line empty without items.
func List[T any](w io.Writer, empty string, head []string, items []T, row func(Table, T)) {
	if len(items) == 0 {
		Head(w, "%s", empty)
		return
	}
	t := NewTable(w)
	t.Row(head...)
	for _, item := range items {
		row(t, item)
	}
	t.Flush()
}

// Flush writes the table.
func (t Table) Flush() { _ = t.w.Flush() }

// Head writes a line above a table.
func Head(w io.Writer, format string, args ...any) {
	_, _ = fmt.Fprintf(w, format+"\n", args...)
}

// Span formats a duration, rounded for people.
func Span(ms int64) string {
	d := time.Duration(ms) * time.Millisecond
	switch abs := d.Abs(); {
	case abs >= 24*time.Hour:
		return fmt.Sprintf("%dd%dh", d/(24*time.Hour), abs%(24*time.Hour)/time.Hour)
	case abs >= time.Minute:
		return WholeUnits(d.Round(time.Second).String())
	case abs >= 10*time.Second:
		return d.Round(time.Second).String()
	}
	return d.String()
}

// WholeUnits removes trailing units that are 0: 1h0m0s becomes 1h.
func WholeUnits(d string) string {
	if whole, cut := strings.CutSuffix(d, "m0s"); cut {
		d = whole + "m"
	}
	if whole, cut := strings.CutSuffix(d, "h0m"); cut {
		d = whole + "h"
	}
	return d
}

// Moment formats a point in time, in UTC.
func Moment(unixMs int64) string { return time.UnixMilli(unixMs).UTC().Format("2006-01-02 15:04:05Z") }

// Digits groups the digits of a number by threes.
func Digits(n int64) string { return controlplane.Digits(n) }

// Measured formats a figure with four significant digits, and whole from 1,000. nil is a figure that is unknown.
func Measured(v *float64) string {
	if v == nil {
		return "-"
	}
	if *v >= 1000 {
		return Digits(int64(math.Round(*v)))
	}
	return fmt.Sprintf("%.4g", *v)
}

// Plural formats a number of things, for example "1 node" or "1,000 nodes".
func Plural(n int64, thing string) string {
	switch {
	case n == 1:
		return "1 " + thing
	case strings.HasSuffix(thing, "ch"):
		return Digits(n) + " " + thing + "es"
	}
	return Digits(n) + " " + thing + "s"
}

// Yes returns yes, or a dash for false.
func Yes(b bool) string {
	if b {
		return "yes"
	}
	return "-"
}

// OrNone returns text, or a dash for an empty text.
func OrNone(text string) string {
	if text == "" {
		return "-"
	}
	return text
}
