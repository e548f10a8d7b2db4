package flags

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"
)

type settings struct {
	Config kong.ConfigFlag
	Number int               `default:"7"`
	Small  int8              `default:"1"`
	Seed   uint64            `default:"1"`
	Share  float64           `default:"0.5"`
	Wait   time.Duration     `default:"1m"`
	Name   string            `default:"eu"`
	Names  []string          `default:"a,b"`
	Hosts  map[string]string `mapsep:";"`
	Public bool
}

func parse(t *testing.T, args ...string) (settings, error) {
	t.Helper()
	var s settings
	parser, err := kong.New(&s, Strict(), kong.Configuration(LoadYAML), kong.DefaultEnvars("X"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = parser.Parse(args)
	return s, err
}

// doors returns the ways of a setting into a program.
func doors(t *testing.T, name, value string) map[string]func() (settings, error) {
	file := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(file, []byte(name+": "+value+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return map[string]func() (settings, error){
		"flag": func() (settings, error) { return parse(t, "--"+name+"="+value) },
		"file": func() (settings, error) { return parse(t, "--config="+file) },
		"environment": func() (settings, error) {
			variable := "X_" + strings.ToUpper(name)
			if err := os.Setenv(variable, value); err != nil {
				t.Fatal(err)
			}
			defer func() { _ = os.Unsetenv(variable) }()
			return parse(t)
		},
	}
}

func TestASettingMeansTheSameWhereverItComesFrom(t *testing.T) {
	for _, c := range []struct {
		name, value string
		is          func(settings) bool
	}{
		{"number", "100", func(s settings) bool { return s.Number == 100 }},
		{"number", "-1", func(s settings) bool { return s.Number == -1 }},
		{"small", "127", func(s settings) bool { return s.Small == 127 }},
		{"seed", "18446744073709551615", func(s settings) bool { return s.Seed == 1<<64-1 }},
		{"share", "0.25", func(s settings) bool { return s.Share == 0.25 }},
		{"wait", "1m30s", func(s settings) bool { return s.Wait == 90*time.Second }},
		{"name", "007", func(s settings) bool { return s.Name == "007" }},
		{"name", "on", func(s settings) bool { return s.Name == "on" }},
		{"names", "c,d", func(s settings) bool { return strings.Join(s.Names, "|") == "c|d" }},
		{"hosts", "a=b=c;d=e", func(s settings) bool { return s.Hosts["a"] == "b=c" && s.Hosts["d"] == "e" }},
		{"public", "true", func(s settings) bool { return s.Public }},
	} {
		for door, open := range doors(t, c.name, c.value) {
			if s, err := open(); err != nil || !c.is(s) {
				t.Errorf("%s=%s by %s: %+v, %v", c.name, c.value, door, s, err)
			}
		}
	}
}

func TestALenientNumberIsRefusedWhereverItComesFrom(t *testing.T) {
	for _, c := range []struct{ name, value string }{
		{"number", "0100"}, {"number", "0x10"}, {"number", "0b1"}, {"number", "0o7"}, {"number", "1_000"}, {"number", "0.5"}, {"number", "1e3"},
		{"number", "99999999999999999999"}, {"number", "+1"}, {"number", ""}, {"number", "NaN"}, {"small", "128"}, {"small", "-129"},
		{"seed", "-1"}, {"seed", "0x1"}, {"seed", "18446744073709551616"}, {"share", "NaN"}, {"share", "Inf"}, {"share", ".5"}, {"share", "0x1p-2"},
		{"wait", "5"}, {"wait", "1.5ns"}, {"wait", "01s"}, {"wait", ""}, {"wait", "9999999999h"}, {"hosts", "a=b;a=c"}, {"public", ""}, {"public", "maybe"},
	} {
		for door, open := range doors(t, c.name, c.value) {
			if s, err := open(); err == nil || !strings.Contains(err.Error(), c.name) && door != "environment" {
				t.Errorf("%s=%q by %s: %+v, %v", c.name, c.value, door, s, err)
			}
		}
	}
}

func TestAConfigurationFileHasEachKeyOnceAndAValue(t *testing.T) {
	for document, says := range map[string]string{
		"name:":              "line 1: name has no value",
		"name: ~":            "no value",
		"nam: eu":            `unknown keys: "nam" (known: `,
		"help: true":         "unknown keys",
		"name: a\nname: b":   "already defined",
		"name: [a]":          "name is a list",
		"number: {a: 1}":     "number is a mapping",
		"names: [[a]]":       "names is a list",
		"name: a\n---\nb: c": "several documents",
		"- a":                "not YAML of the form name: value",
		"hosts: {a=b: c}":    "must not contain '='",
		"hosts: {a: }":       "has no value",
		"number: 0100":       "leading zeros",
	} {
		path := filepath.Join(t.TempDir(), "config.yaml")
		if err := os.WriteFile(path, []byte(document), 0o600); err != nil {
			t.Fatal(err)
		}
		if s, err := parse(t, "--config="+path); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %+v, %v; want %q", document, s, err, says)
		}
	}
	if _, err := LoadYAML(strings.NewReader(strings.Repeat("# x\n", fileBytesMax))); err == nil || !strings.Contains(err.Error(), "longer than 1048576 bytes") {
		t.Errorf("a long file: %v", err)
	}
	s, err := LoadYAML(strings.NewReader("\xef\xbb\xbfname: eu\n"))
	if err != nil || s == nil {
		t.Errorf("a file with a byte order mark: %v", err)
	}
	path := filepath.Join(t.TempDir(), "config.yaml")
	document := "names: ['a,b', c]\nhosts: {x: 'y;z', on: off}\n"
	if err := os.WriteFile(path, []byte(document), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := parse(t, "--config="+path)
	if err != nil || strings.Join(got.Names, "|") != "a,b|c" || got.Hosts["x"] != "y;z" || got.Hosts["on"] != "off" {
		t.Errorf("%+v, %v", got, err)
	}
}

func FuzzLoadYAML(f *testing.F) {
	for _, seed := range []string{"name: eu", "a: [1]", "a: {b: c}", "a: &x 1\nb: *x", "---\n---", "\xef\xbb\xbf", "a: !!binary aGk="} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, document string) {
		if r, err := LoadYAML(strings.NewReader(document)); (err == nil) == (r == nil) {
			t.Errorf("%q: %v, %v", document, r, err)
		}
	})
}

// A number after a blank is a value too. So its own bounds reject it, and not the syntax of flags.
func TestANegativeNumberIsAValue(t *testing.T) {
	s, err := parse(t, "--number", "-5", "--share", "-0.5", "--wait", "-1m")
	if err != nil || s.Number != -5 || s.Share != -0.5 || s.Wait != -time.Minute {
		t.Errorf("%+v, %v", s, err)
	}
	if _, err := parse(t, "--number", "--public"); err == nil {
		t.Error("a flag was read as a number")
	}
	if _, err := parse(t, "--seed", "-1"); err == nil || !strings.Contains(err.Error(), "is -1 (0 to") {
		t.Errorf("%v, want an error with the value and its bounds", err)
	}
}
