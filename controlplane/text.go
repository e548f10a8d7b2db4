package controlplane

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

const (
	// TextBytesMax bounds a text that Clip returns.
	TextBytesMax = 500

	namesMax = 5 // that Several names
)

// Clock returns a time for people.
func Clock(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05.000Z") }

// Cut shortens text to at most bytesMax bytes, at a rune's border.
func Cut(text string, bytesMax int) string {
	if len(text) <= bytesMax {
		return text
	}
	text = text[:bytesMax]
	for !utf8.ValidString(text) {
		text = text[:len(text)-1]
	}
	return text
}

// Shorten returns text of at most bytesMax bytes. If it cuts the text, it cuts after a word, and adds an ellipsis.
func Shorten(text string, bytesMax int) string {
	const ellipsis = "…"
	if len(text) <= bytesMax {
		return text
	}
	text = Cut(text, bytesMax-len(ellipsis))
	if i := strings.LastIndexByte(text, ' '); i > len(text)/2 {
		text = text[:i]
	}
	return text + ellipsis
}

// ShortReason makes a reason for the audit log from a line.
func ShortReason(line string) string { return Shorten(line, ReasonBytesMax) }

// Clip bounds a text, which may quote other people's text, to TextBytesMax.
func Clip(text string) string {
	if len(text) <= TextBytesMax {
		return text
	}
	cut := TextBytesMax
	for cut > 0 && text[cut]&0xC0 == 0x80 { // within a rune
		cut--
	}
	return text[:cut] + "…"
}

// Several joins the first few of names and counts the rest.
func Several(names []string) string {
	if more := len(names) - namesMax; more > 0 {
		names = append(slices.Clone(names[:namesMax]), fmt.Sprintf("and %d more", more))
	}
	return strings.Join(names, ", ")
}

// CountOf returns a count with its noun.
func CountOf(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// Digits groups the digits of a number by threes, for example 1,200.
func Digits(n int64) string {
	text := strconv.FormatInt(n, 10)
	sign := ""
	if strings.HasPrefix(text, "-") {
		sign, text = "-", text[1:]
	}
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return sign + text
}

// Figure returns a number with a precision that suits people. The largest float64 stands for an infinite number; see
// queries.Rail.
func Figure(v float64) string {
	switch {
	case math.Abs(v) == math.MaxFloat64:
		return fmt.Sprint(math.Inf(int(math.Copysign(1, v))))
	case v >= 1000:
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.4g", v)
}

// Seconds returns a time for people, in whole seconds.
func Seconds(d time.Duration) string { return d.Round(time.Second).String() }

// RowName returns the name of a region's row for people; an empty region is the fleet's.
func RowName(region string) string {
	if region == "" {
		return "the fleet"
	}
	return "region " + region
}
