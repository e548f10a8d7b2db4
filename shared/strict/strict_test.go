package strict

import (
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestANumberHasOneSpelling(t *testing.T) {
	for text, want := range map[string]int64{"0": 0, "7": 7, "-7": -7, "100": 100} {
		if n, err := Int("limit", text, -10, 100); err != nil || n != want {
			t.Errorf("%q is %d, %v; want %d", text, n, err, want)
		}
	}
	for text, says := range map[string]string{
		"":                     "limit is empty: want a whole number in decimal digits (0 to 100)",
		"0100":                 `limit is "0100": want a whole number without leading zeros (0 to 100)`,
		"101":                  "limit is 101 (0 to 100)",
		"-1":                   "limit is -1 (0 to 100)",
		"99999999999999999999": "limit is 99999999999999999999 (0 to 100)",
		"-0":                   "leading zeros", "00": "leading zeros",
		"0x10": "decimal digits", "0b11": "decimal digits", "0o17": "decimal digits", "1_000": "decimal digits",
		"0.5": "decimal digits", "5.0": "decimal digits", "1e2": "decimal digits", "+1": "decimal digits",
		" 1": "decimal digits", "1 ": "decimal digits", "1\n": "decimal digits", "\ufeff1": "decimal digits",
		"--1": "decimal digits", "-": "decimal digits", "١": "decimal digits", "NaN": "decimal digits", "1,000": "decimal digits",
	} {
		if n, err := Int("limit", text, 0, 100); err == nil || n != 0 || !strings.Contains(err.Error(), says) {
			t.Errorf("%q is %d, %v; want %q", text, n, err, says)
		}
	}
	if n, err := Uint("seed", "18446744073709551615", 0, math.MaxUint64); err != nil || n != math.MaxUint64 {
		t.Errorf("the largest number is %d, %v", n, err)
	}
	for _, text := range []string{"-1", "18446744073709551616", "01", ""} {
		if n, err := Uint("seed", text, 0, math.MaxUint64); err == nil || n != 0 {
			t.Errorf("%q is %d", text, n)
		}
	}
}

func TestAFractionIsANumberInDecimalDigits(t *testing.T) {
	for text, want := range map[string]float64{"0": 0, "0.5": 0.5, "-0.5": -0.5, "1e-3": 0.001, "1E+1": 10, "2": 2} {
		if n, err := Float("share", text, -1, 10); err != nil || n != want {
			t.Errorf("%q is %v, %v; want %v", text, n, err, want)
		}
	}
	for _, text := range []string{"", ".5", "5.", "05", "NaN", "Inf", "-Inf", "0x1p-2", "1_0", " 1", "1 ", "+1", "1e", "1e+",
		"1e+-1", "1.5.5", "11", "1e999", "--1", "infinity", "0,5"} {
		if n, err := Float("share", text, -1, 10); err == nil || n != 0 || !strings.HasPrefix(err.Error(), "share is ") ||
			!strings.HasSuffix(err.Error(), "(-1 to 10)") {
			t.Errorf("%q is %v, %v", text, n, err)
		}
	}
	if _, err := Float("share", "--1", -1, 10); err == nil || !strings.Contains(err.Error(), "want a number") {
		t.Errorf("two signs: %v", err)
	}
}

func TestADurationIsExact(t *testing.T) {
	for text, want := range map[string]time.Duration{"0": 0, "0s": 0, "1m30s": 90 * time.Second, "0.3s": 300 * time.Millisecond,
		"1.5h": 90 * time.Minute, "-1s": -time.Second, "-0.5d": -12 * time.Hour, "30d": 720 * time.Hour, "1w12h": 180 * time.Hour, "1us": 1000, "1µs": 1000, "0.001us": 1} {
		if d, err := Duration("ttl", text, -24*time.Hour, 720*time.Hour); err != nil || d != want {
			t.Errorf("%q is %v, %v; want %v", text, d, err, want)
		}
	}
	for text, says := range map[string]string{
		"":      "ttl is empty: want a duration such as 90s or 1h30m (0s to 1h0m0s)",
		"5":     `want a unit after the number, such as "5s"`,
		"0.1ns": "part of a nanosecond", "1.5ns": "part of a nanosecond",
		"2h": "ttl is 2h (0s to 1h0m0s)", "-1s": "ttl is -1s (0s to 1h0m0s)",
		"9999999999h": "ttl is 9999999999h (0s to 1h0m0s)",
		"05s":         "leading zeros", ".5s": "want a duration", "1.s": "leading zeros", "+1s": "want a duration", " 1s": "want a duration",
		"1s ": "the unit", "1 s": "the unit", "1y": `the unit "y" is not ns, us, ms, s, m, h, d or w`, "1S": "the unit", "s": "want a duration", "1s-1s": "the unit",
		"NaNs": "want a duration", "1e3s": "the unit", "1_0s": "the unit", "\ufeff1s": "want a duration",
		strings.Repeat("0s", 33): "want a duration",
	} {
		if d, err := Duration("ttl", text, 0, time.Hour); err == nil || d != 0 || !strings.Contains(err.Error(), says) {
			t.Errorf("%q is %v, %v; want %q", text, d, err, says)
		}
	}
}

// Libraries that parse a text themselves know no days.
func TestATimeDurationHasNoDays(t *testing.T) {
	if d, err := TimeDuration("ttl", "1h30m", 0, 2*time.Hour); err != nil || d != 90*time.Minute {
		t.Error(d, err)
	}
	const says = `the unit "d" is not ns, us, ms, s, m or h`
	if d, err := TimeDuration("ttl", "1d", 0, 48*time.Hour); err == nil || !strings.Contains(err.Error(), says) {
		t.Errorf("%v, %v; want %q", d, err, says)
	}
}

func TestTwoNamesThatLookTheSameAreTheSame(t *testing.T) {
	for _, name := range []string{"eu", "eu west", "on", "007", "é", "a=b", strings.Repeat("x", 48)} {
		if err := Name("region", name, 48); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	for name, says := range map[string]string{
		"": "region is empty (1 to 48 bytes)", strings.Repeat("x", 49): "region is 49 bytes long (1 to 48)",
		" eu": "blank", "eu ": "blank", "eu\u00a0": "blank", "eu\n": "blank", "e\x00u": "not printable", "e\tu": "not printable",
		"\ufeffeu": "U+FEFF", "e\u200bu": "U+200B", "e\u202eu": "U+202E", "e\xffu": "not UTF-8", "e\u00a0u": "U+00A0",
	} {
		if err := Name("region", name, 48); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, want %q", name, err, says)
		}
	}
}

func TestAnAddressIsOfOneServer(t *testing.T) {
	for _, address := range []string{"a:6379", "10.0.0.1:1", "[::1]:65535", "[fe80::1%eth0]:7001", "redis-0.redis.svc.cluster.local.:6379",
		"a_b:1", "xn--bcher-kva.example:443"} {
		if err := Address("redis-url", address); err != nil {
			t.Errorf("%q: %v", address, err)
		}
	}
	for address, says := range map[string]string{
		"": "redis-url is empty", "a:6379,b:6379": "not a list", "a,b:6379": "not a list", "a b:1": "not a list", "a:1 ": "not a list",
		"a": "host:port", "::1:6379": "in brackets", "a:": "port is empty", "a:0": "port is 0 (1 to 65535)", "a:65536": "port is 65536",
		"a:06379": "leading zeros", "a:http": "decimal digits", "a:-1": "port is -1", ":6379": "names no host", "a..b:1": "neither",
		"a/b:1": "neither", "a@b:1": "neither", "é:1": "neither", "10.0.0.010:1": "ends in a number", "10.0.0.256:1": "ends in a number",
		"0x7f000001:1": "ends in a number", "2130706433:1": "ends in a number", strings.Repeat("a.", 130) + "a:1": "261 bytes long",
	} {
		if err := Address("redis-url", address); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, want %q", address, err, says)
		}
	}
	for _, address := range []string{":7001", "127.0.0.1:0", "localhost:7001"} {
		if err := ListenAddress("listen", address); err != nil {
			t.Errorf("%q: %v", address, err)
		}
	}
}

func TestAFileIsTextWithoutAByteOrderMark(t *testing.T) {
	path := filepath.Join(t.TempDir(), "password")
	for content, want := range map[string]string{"secret": "secret", "secret\r\n\n": "secret", "\xef\xbb\xbfsecret\n": "secret",
		" secret ": " secret ", "a\xffb": "a\xffb"} {
		write(t, path, content)
		if text, err := Line("password-file", path); err != nil || text != want {
			t.Errorf("%q is %q, %v", content, text, err)
		}
	}
	for content, says := range map[string]string{"": "is empty", "\n \n": "is empty", "\xef\xbb\xbf\n": "is empty",
		"\xff\xfes\x00e\x00": "UTF-16", "\xff\xfe\x2d\x4e": "UTF-16", "\xfe\xff\x4e\x2d": "UTF-16", "s\x00e\x00": "UTF-16", "secret\nsecret": "several lines"} {
		write(t, path, content)
		text, err := Line("password-file", path)
		if err == nil || text != "" || !strings.Contains(err.Error(), says) || !strings.Contains(err.Error(), "password-file: "+path) ||
			strings.Contains(err.Error(), "secret") {
			t.Errorf("%q is %q, %v; want %q", content, text, err, says)
		}
	}
	write(t, path, strings.Repeat("x", FileBytesMax+1))
	if _, err := File("f", path); err == nil || !strings.Contains(err.Error(), "longer than 1048576 bytes") {
		t.Errorf("%v", err)
	}
	if _, err := File("f", path+"x"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v", err)
	}
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// Every number that is read is spelled as the standard library spells it, so no two texts have the same value.
func FuzzNumbers(f *testing.F) {
	for _, seed := range []string{"0", "-0", "0100", "1_000", "0x1", "9223372036854775808", "1e3", "0.5", "1h30m", "2d", "1.5ns", "µs", "-", ""} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if n, err := Int("n", text, math.MinInt64, math.MaxInt64); err == nil && strconv.FormatInt(n, 10) != text {
			t.Errorf("%q is read as %d", text, n)
		}
		if n, err := Uint("n", text, 0, math.MaxUint64); err == nil && strconv.FormatUint(n, 10) != text {
			t.Errorf("%q is read as %d", text, n)
		}
		if x, err := Float("n", text, -1e9, 1e9); err == nil {
			if want, err := strconv.ParseFloat(text, 64); err != nil || x != want || !(x >= -1e9 && x <= 1e9) {
				t.Errorf("%q is read as %v, want %v, %v", text, x, want, err)
			}
		}
		if d, err := TimeDuration("n", text, math.MinInt64, math.MaxInt64); err == nil {
			if want, err := time.ParseDuration(text); err != nil || d != want {
				t.Errorf("%q is read as %v, want %v, %v", text, d, want, err)
			}
		}
	})
}

// A duration is read from its own printed text without a change.
func FuzzDurationsAsPrinted(f *testing.F) {
	f.Add(int64(0))
	f.Add(int64(math.MinInt64))
	f.Add(int64(1500))
	f.Fuzz(func(t *testing.T, n int64) {
		if d, err := Duration("d", time.Duration(n).String(), math.MinInt64, math.MaxInt64); err != nil || d != time.Duration(n) {
			t.Errorf("%v is read as %v, %v", time.Duration(n), d, err)
		}
	})
}

func FuzzNamesAndAddresses(f *testing.F) {
	for _, seed := range []string{"a:1", "[::1]:1", "a,b:1", "eu", " eu", "\xff", "0x1:1", "a.:1", "."} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if Address("a", text) == nil && (strings.ContainsAny(text, ", \n@/") || strings.HasPrefix(text, ":")) {
			t.Errorf("%q is one address", text)
		}
		if Name("n", text, 48) == nil && (text == "" || len(text) > 48 || strings.TrimSpace(text) != text) {
			t.Errorf("%q is a name", text)
		}
		if got, err := Text([]byte(text)); err == nil && (got == "" || strings.HasPrefix(got, byteOrderMark) && !strings.HasPrefix(text, byteOrderMark+byteOrderMark)) {
			t.Errorf("%q is the text %q", text, got)
		}
	})
}
