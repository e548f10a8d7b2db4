package console

import (
	"fmt"
	"html/template"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/weirhq/weir/controlplane/console/pulse"
	"github.com/weirhq/weir/shared/window"
)

// funcs are the functions with which templates format figures.
var funcs = template.FuncMap{
	"count":  func(v any) string { return count(whole(v)) },
	"limit":  limitText,
	"ms":     func(ms int64) string { return span(time.Duration(ms) * time.Millisecond) },
	"plural": func(n any, one, more string) string { return plural(whole(n), one, more) },
	"add":    func(a, b int) int { return a + b },
	"add64":  func(a int64, b any) int64 { return a + whole(b) },
	"rate":   rate, "rates": rateOf, "figure": figure, "span": span, "clock": clock, "stamp": stamp, "iso": iso,
	"percent": percent, "action": newAction, "join": strings.Join, "few": few,
}

// count formats a whole number with narrow spaces between its thousands, for example 1 234 567.
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

// limitText formats an override's limit.
func limitText(v int64) string {
	if v == window.LimitMax {
		return unlimited
	}
	return count(v)
}

// few lists names. For a long list it ends with the number of names that are left out.
func few(names []string) string {
	const most = 6
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %s more", strings.Join(names[:most-1], ", "), count(len(names)-most+1))
}

// rate formats a number of events per second.
func rate(v float64) string {
	switch {
	case v >= 99.95:
		return count(int64(math.Round(v)))
	case v == 0:
		return "0"
	}
	return strconv.FormatFloat(v, 'f', 1, 64)
}

// rateOf formats a rate of a node or region.
func rateOf(of pulse.Rates, v float64) string {
	if !of.Known {
		return "–"
	}
	return rate(v)
}

// figure formats a number with three significant digits, and whole from 1,000.
func figure(v float64) string {
	if v >= 1000 {
		return count(int64(math.Round(v)))
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}

func percent(v float64) string { return tenths(100*v) + "\u202f%" }

// tenths formats a number with one decimal place, and without it if it is zero.
func tenths(v float64) string { return strings.TrimSuffix(strconv.FormatFloat(v, 'f', 1, 64), ".0") }

// span formats a duration in its largest units, two at most, for example "2 min 5 s".
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

// clock formats a moment as a time of day in UTC, as all times on pages.
func clock(ms int64) string {
	if ms == 0 {
		return "never"
	}
	return time.UnixMilli(ms).UTC().Format("15:04:05")
}

// stamp formats a moment with its date.
func stamp(ms int64) string {
	if ms == 0 {
		return "never"
	}
	return time.UnixMilli(ms).UTC().Format("2006-01-02 15:04:05")
}

// iso formats a moment for <time datetime>.
func iso(ms int64) string { return time.UnixMilli(ms).UTC().Format(time.RFC3339) }

// whole converts an integer of any size that pages use.
func whole(v any) int64 {
	switch v := v.(type) {
	case int:
		return int64(v)
	case int32:
		return int64(v)
	case int64:
		return v
	}
	panic(fmt.Sprintf("%T is not a whole number", v)) // a mistake in a template, which the template's test finds
}

// plural formats a number with its noun, for example "1 node" or "3 nodes".
func plural[T int | int64](n T, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return count(n) + " " + more
}
