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

// Duration reads a duration as package time prints it, such as 1m30s or 0.5s, of at least low and
// at most high. A part of a nanosecond is an error, as is a number without a unit other than 0.
func Duration(field, text string, low, high time.Duration) (time.Duration, error) {
	n, why := duration(text)
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

// fault is the error of a text that is not understood. Bounds that are those of the type are left out.
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

// every reports whether bounds are those of the type.
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

// outside is the error of a number that is understood: it has no need of quotes.
func outside[N cmp.Ordered](field, text string, low, high N) error {
	return fmt.Errorf("%s is %.64s (%v to %v)", field, text, low, high)
}

const wantInt = "want a whole number in decimal digits"

// notInt returns why a text is no whole decimal number, or "".
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

// units are those of time.ParseDuration, in nanoseconds.
var units = map[string]int64{
	"ns": 1, "us": 1e3, "µs": 1e3, "μs": 1e3, "ms": 1e6, "s": 1e9, "m": 60e9, "h": 3600e9,
}

const (
	wantDuration = "want a duration such as 90s or 1h30m"
	// durationBytesMax bounds the work of a text's arithmetic.
	durationBytesMax = 64
)

// duration returns a text's nanoseconds, or why it is no duration.
func duration(text string) (*big.Int, string) {
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
		if part, rest, err = durationPart(rest); err != nil {
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
func durationPart(text string) (ns *big.Rat, rest string, err error) {
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
	unit, known := units[rest[:end]]
	if !known {
		return nil, "", fmt.Errorf("the unit %s is not ns, us, ms, s, m or h", Quote(rest[:end]))
	}
	ns, ok := new(big.Rat).SetString(number)
	if !ok {
		return nil, "", errors.New(wantDuration)
	}
	return ns.Mul(ns, new(big.Rat).SetInt64(unit)), rest[end:], nil
}
