package main

import (
	"os"
	"strings"
	"testing"
)

func TestThePageIsWhatTheProgramWrites(t *testing.T) {
	want, err := metricsPage()
	if err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile("../../shared/gen/reference/metrics.md"); err != nil || string(got) != want {
		t.Errorf("metrics.md is not what the program writes: run make generate (%v)", err)
	}
}

// A metric without a series has its kind from its name alone: so names must be right.
func TestOnlyCountersEndInTotal(t *testing.T) {
	page, err := metricsPage()
	if err != nil {
		t.Fatal(err)
	}
	rows := 0
	for line := range strings.Lines(page) {
		name, rest, ok := strings.Cut(line, "` | ")
		if !ok || !strings.HasPrefix(name, "| `weir_") {
			continue
		}
		rows++
		if strings.HasSuffix(name, "_total") != strings.HasPrefix(rest, "counter |") {
			t.Errorf("%s", line)
		}
	}
	if rows < 100 {
		t.Errorf("only %d metrics", rows)
	}
}
