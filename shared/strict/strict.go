// Package strict reads numbers, durations, names and addresses from configuration: flags,
// environment variables, files and URLs.
//
// It accepts one spelling of each value. Anything that two readers could take for different values
// is an error: 0100 (64 in octal), 0x10, 1_000, 0.5 where a whole number is wanted, blanks around a
// value, a byte order mark, an empty value, NaN. Every error names the field, the value and the
// bounds. The value is part of the error, so a secret must not be read with this package, except by
// File and Line, whose errors name only the file.
package strict

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Int reads a whole decimal number of at least low and at most high.
func Int(field, text string, low, high int64) (int64, error) {
	if why := notInt(text); why != "" {
		return 0, fault(field, text, why, low, high)
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < low || n > high {
		return 0, outside(field, text, low, high)
	}
	return n, nil
}

// Uint is Int for numbers that may exceed an int64, such as seeds.
func Uint(field, text string, low, high uint64) (uint64, error) {
	if why := notInt(text); why != "" {
		return 0, fault(field, text, why, low, high)
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil || n < low || n > high {
		return 0, outside(field, text, low, high)
	}
	return n, nil
}

// Float reads a decimal number, such as 0.5 or 1e-3, of at least low and at most high. NaN and
// infinities are errors.
func Float(field, text string, low, high float64) (float64, error) {
	mantissa, exponent, scaled := strings.Cut(strings.ToLower(text), "e")
	whole, fraction, pointed := strings.Cut(mantissa, ".")
	if why := notInt(strings.TrimPrefix(whole, "-")); why != "" || strings.HasPrefix(whole, "--") {
		return 0, fault(field, text, strings.Replace(cmp.Or(why, wantInt), "a whole number", "a number", 1), low, high)
	}
	if pointed && !digits(fraction) || scaled && !digits(strings.TrimPrefix(strings.TrimPrefix(exponent, "+"), "-")) {
		return 0, fault(field, text, "want a number in decimal digits", low, high)
	}
	n, err := strconv.ParseFloat(text, 64)
	if err != nil || n < low || n > high {
		return 0, outside(field, text, low, high)
	}
	return n, nil
}

// Duration reads a duration as package time prints it, such as 1m30s or 0.5s, of at least low and at most high. It also
// reads days and weeks, for example 30d or 1w12h: a day is 24 hours. A part of a nanosecond is an error, as is a number
// without a unit other than 0.
func Duration(field, text string, low, high time.Duration) (time.Duration, error) {
	return durationIn(units, field, text, low, high)
}

// TimeDuration is Duration without days and weeks. Use it for texts that a library parses with package time.
func TimeDuration(field, text string, low, high time.Duration) (time.Duration, error) {
	return durationIn(timeUnits, field, text, low, high)
}

func durationIn(units []unit, field, text string, low, high time.Duration) (time.Duration, error) {
	n, why := duration(units, text)
	switch {
	case why != "":
		return 0, fault(field, text, why, low, high)
	case !n.IsInt64() || time.Duration(n.Int64()) < low || time.Duration(n.Int64()) > high:
		return 0, outside(field, text, low, high)
	}
	return time.Duration(n.Int64()), nil
}

// Bool reads true or false.
func Bool(field, text string) (bool, error) {
	switch text {
	case "true":
		return true, nil
	case "false":
		return false, nil
	}
	return false, fmt.Errorf("%s is %s: want true or false", field, Quote(text))
}

// Name reads a name of 1 to bytesMax bytes. It consists of printable characters and has no blank at
// either end, so that two names that look the same are the same.
func Name(field, text string, bytesMax int) error {
	switch {
	case text == "":
		return fmt.Errorf("%s is empty (1 to %d bytes)", field, bytesMax)
	case len(text) > bytesMax:
		return fmt.Errorf("%s is %d bytes long (1 to %d)", field, len(text), bytesMax)
	case !utf8.ValidString(text):
		return fmt.Errorf("%s is %s: it is not UTF-8", field, Quote(text))
	case strings.TrimFunc(text, unicode.IsSpace) != text:
		return fmt.Errorf("%s is %s: it must not begin or end with a blank", field, Quote(text))
	}
	for _, r := range text {
		if !unicode.IsPrint(r) {
			return fmt.Errorf("%s is %s: the character %U is not printable", field, Quote(text), r)
		}
	}
	return nil
}

// Quote returns a value as an error shows it: quoted, and cut to 64 bytes.
func Quote(text string) string {
	const most = 64
	if len(text) > most {
		return strconv.Quote(text[:most]) + "…"
	}
	return strconv.Quote(text)
}

// fault returns the error of an invalid text. It leaves out bounds that are the bounds of the type.
func fault[N cmp.Ordered](field, text, why string, low, high N) error {
	is := "empty"
	if text != "" {
		is = Quote(text)
	}
	if every(low, high) {
		return fmt.Errorf("%s is %s: %s", field, is, why)
	}
	return fmt.Errorf("%s is %s: %s (%v to %v)", field, is, why, low, high)
}

// every reports whether bounds are the bounds of the type.
func every[N cmp.Ordered](low, high N) bool {
	switch low := any(low).(type) {
	case int64:
		return low == math.MinInt64 && any(high) == any(int64(math.MaxInt64))
	case uint64:
		return low == 0 && any(high) == any(uint64(math.MaxUint64))
	case float64:
		return low == -math.MaxFloat64 && any(high) == any(math.MaxFloat64)
	case time.Duration:
		return low == math.MinInt64 && any(high) == any(time.Duration(math.MaxInt64))
	}
	return false
}

// outside returns the error of a valid number out of its bounds, without quotes.
func outside[N cmp.Ordered](field, text string, low, high N) error {
	return fmt.Errorf("%s is %.64s (%v to %v)", field, text, low, high)
}

const wantInt = "want a whole number in decimal digits"

// notInt returns the reason why a text is no whole decimal number, or "".
func notInt(text string) string {
	number := strings.TrimPrefix(text, "-")
	switch {
	case !digits(number):
		return wantInt
	case number[0] == '0' && (len(number) > 1 || text != number):
		return "want a whole number without leading zeros"
	}
	return ""
}

func digits(text string) bool {
	for i := range len(text) {
		if text[i] < '0' || text[i] > '9' {
			return false
		}
	}
	return text != ""
}

// unit is a unit of time by its names.
type unit struct {
	names []string // errors use the first name
	ns    int64
}

// units are the units of Duration. The first six are the units of package time.
var (
	units = []unit{
		{[]string{"ns"}, 1}, {[]string{"us", "µs", "μs"}, 1e3}, {[]string{"ms"}, 1e6}, {[]string{"s"}, 1e9},
		{[]string{"m"}, 60e9}, {[]string{"h"}, 3600e9}, {[]string{"d"}, 24 * 3600e9}, {[]string{"w"}, 7 * 24 * 3600e9},
	}
	timeUnits = units[:6]
)

// unitOf returns the nanoseconds of a unit, or an error that lists the units.
func unitOf(units []unit, name string) (ns int64, err error) {
	var first []string
	for _, u := range units {
		if slices.Contains(u.names, name) {
			return u.ns, nil
		}
		first = append(first, u.names[0])
	}
	last := len(first) - 1
	return 0, fmt.Errorf("the unit %s is not %s or %s", Quote(name), strings.Join(first[:last], ", "), first[last])
}

const (
	wantDuration = "want a duration such as 90s or 1h30m"
	// durationBytesMax bounds the work of a text's arithmetic.
	durationBytesMax = 64
)

// duration returns a text's nanoseconds, or the reason why the text is no duration.
func duration(units []unit, text string) (*big.Int, string) {
	sum := new(big.Rat)
	rest, negative := strings.CutPrefix(text, "-")
	switch {
	case len(text) > durationBytesMax || rest == "":
		return nil, wantDuration
	case text == "0":
		return new(big.Int), ""
	case digits(rest):
		return nil, "want a unit after the number, such as " + Quote(text+"s")
	}
	for rest != "" {
		var part *big.Rat
		var err error
		if part, rest, err = durationPart(units, rest); err != nil {
			return nil, err.Error()
		}
		sum.Add(sum, part)
	}
	if !sum.IsInt() {
		return nil, "it has a part of a nanosecond"
	}
	if negative {
		sum.Neg(sum)
	}
	return sum.Num(), ""
}

// durationPart reads a number and its unit off the front of a text.
func durationPart(units []unit, text string) (ns *big.Rat, rest string, err error) {
	end := strings.IndexFunc(text, func(r rune) bool { return r != '.' && (r < '0' || r > '9') })
	if end < 1 {
		return nil, "", errors.New(wantDuration)
	}
	number, rest := text[:end], text[end:]
	whole, fraction, pointed := strings.Cut(number, ".")
	if notInt(whole) != "" || pointed && !digits(fraction) {
		return nil, "", errors.New(wantDuration + ", in decimal digits without leading zeros")
	}
	end = strings.IndexFunc(rest, func(r rune) bool { return r >= '0' && r <= '9' })
	if end < 0 {
		end = len(rest)
	}
	each, err := unitOf(units, rest[:end])
	if err != nil {
		return nil, "", err
	}
	ns, ok := new(big.Rat).SetString(number)
	if !ok {
		return nil, "", errors.New(wantDuration)
	}
	return ns.Mul(ns, new(big.Rat).SetInt64(each)), rest[end:], nil
}
