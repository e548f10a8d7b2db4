package main

import (
	"io"
	"os"
	"strings"
	"testing"

	"github.com/weirhq/weir/shared/strict/flags"
)

// The README's table has every option, under its name and with its default, and no others.
func TestEveryOptionIsExplained(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, model, _, err := parse(nil, io.Discard, io.Discard, "test")
	if err != nil {
		t.Fatal(err)
	}
	options := 0
	for _, f := range model.Flags {
		if !flags.InFile(f) {
			continue
		}
		options++
		row := strings.TrimSpace("| `" + f.Name + "` | " + f.Default)
		if n := strings.Count(string(readme), row+" |"); n != 1 {
			t.Errorf("README has %d rows that begin with %s", n, row)
		}
	}
	if rows := strings.Count(string(readme), "\n| `"); rows != options {
		t.Errorf("README has %d rows, want one for each of %d options", rows, options)
	}
}
