package window

import (
	"errors"
	"slices"
	"testing"
	"time"
)

func TestModesHaveNames(t *testing.T) {
	for m := range Modes {
		if got, err := ParseMode(m.String()); got != m || err != nil {
			t.Errorf("%v is read back as %v, %v", m, got, err)
		}
	}
	if m, err := ParseMode(""); m != Exact || err != nil {
		t.Errorf("no name: %v, %v", m, err)
	}
	if _, err := ParseMode("Estimate"); !errors.Is(err, ErrInvalid) {
		t.Errorf("another name: %v", err)
	}
}

// Two modes never share a cell, and the order of cells is still total.
func TestModesAreApart(t *testing.T) {
	key := Key{Workspace: "w", Namespace: "n", Identifier: "i", Duration: time.Hour}
	exact, estimate, longer := Cell{key, 7}, Cell{key, 7}, Cell{key, 7}
	estimate.Mode = Estimate
	longer.Duration = 24 * time.Hour
	want := []Cell{exact, longer, estimate}
	if got := slices.SortedFunc(slices.Values([]Cell{estimate, longer, exact}), Cell.Compare); !slices.Equal(got, want) {
		t.Errorf("sorted: %v", got)
	}
	if exact.String() == estimate.String() {
		t.Errorf("both print as %v", exact)
	}
	key.Mode = Modes
	if err := key.Validate(); !errors.Is(err, ErrInvalid) {
		t.Errorf("mode %d: %v", key.Mode, err)
	}
}
