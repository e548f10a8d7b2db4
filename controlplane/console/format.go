package console

import (
	"fmt"
	"html/template"
	"math"
	"strconv"
	"strings"
	"time"
)

// funcs are what templates say figures with.
var funcs = template.FuncMap{
	"count":  func(v any) string { return count(whole(v)) },
	"ms":     func(ms int64) string { return span(time.Duration(ms) * time.Millisecond) },
	"plural": func(n any, one, more string) string { return plural(whole(n), one, more) },
	"add":    func(a, b int) int { return a + b },
	"add64":  func(a int64, b any) int64 { return a + whole(b) },
	"rate":   rate, "figure": figure, "span": span, "clock": clock, "stamp": stamp, "iso": iso, "percent": percent,
	"action": newAction, "join": strings.Join, "few": few,
}

// count is a whole number with its thousands apart.
func count[T int | int32 | int64](v T) string {
	s := strconv.FormatInt(int64(v), 10)
	digits := strings.TrimPrefix(s, "-")
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "\u202f" + digits[i:]
	}
	if v < 0 {
		return "−" + digits
	}
	return digits
}

// few lists names, and of a long list how many more there are.
func few(names []string) string {
	const most = 6
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %s more", strings.Join(names[:most-1], ", "), count(len(names)-most+1))
}

// rate is a figure a second.
func rate(v float64) string {
	switch {
	case v >= 99.95:
		return count(int64(math.Round(v)))
	case v == 0:
		return "0"
	}
	return strconv.FormatFloat(v, 'f', 1, 64)
}

// figure has the precision that people want of it.
func figure(v float64) string {
	if v >= 1000 {
		return count(int64(math.Round(v)))
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}

func percent(v float64) string { return tenths(100*v) + "\u202f%" }

// tenths is a figure with one decimal place, if there is anything in it.
func tenths(v float64) string { return strings.TrimSuffix(strconv.FormatFloat(v, 'f', 1, 64), ".0") }

// span is a length of time in its largest units, two at the most.
func span(d time.Duration) string {
	if d < 0 {
		return "−" + span(-d)
	}
	switch {
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < 10*time.Second:
		return tenths(d.Seconds()) + " s"
	case d < 2*time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < time.Hour:
		return two(int(d.Minutes()), "min", int(d.Seconds())%60, "s")
	case d < 48*time.Hour:
		return two(int(d.Hours()), "h", int(d.Minutes())%60, "min")
	}
	return two(int(d.Hours())/24, "d", int(d.Hours())%24, "h")
}

func two(a int, unit string, b int, lesser string) string {
	if b == 0 {
		return fmt.Sprintf("%d %s", a, unit)
	}
	return fmt.Sprintf("%d %s %d %s", a, unit, b, lesser)
}

// clock is a moment's time of day, in UTC as everything here.
func clock(ms int64) string {
	if ms == 0 {
		return "never"
	}
	return time.UnixMilli(ms).UTC().Format("15:04:05")
}

// stamp is a moment with its day.
func stamp(ms int64) string {
	if ms == 0 {
		return "never"
	}
	return time.UnixMilli(ms).UTC().Format("2006-01-02 15:04:05")
}

// iso is a moment for <time datetime>.
func iso(ms int64) string { return time.UnixMilli(ms).UTC().Format(time.RFC3339) }

// whole is an integer of any size that pages have.
func whole(v any) int64 {
	switch v := v.(type) {
	case int:
		return int64(v)
	case int32:
		return int64(v)
	case int64:
		return v
	}
	panic(fmt.Sprintf("%T is not a whole number", v)) // a template's mistake, which its test finds
}

// plural is "1 node" or "3 nodes".
func plural[T int | int64](n T, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return count(n) + " " + more
}
