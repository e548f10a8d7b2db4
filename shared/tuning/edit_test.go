package tuning

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
)

// Edit changes the given fields and keeps the rest. Diff lists the changes.
func TestEditKeepsWhatIsNotGiven(t *testing.T) {
	base := RFC()
	got, err := Edit(base, []string{"floor=0.3", " settings_interval_ms = 20000"})
	want := base
	want.Floor, want.SettingsInterval = 0.3, Duration(20*time.Second)
	if err != nil || got != want {
		t.Fatalf("%+v, %v", got, err)
	}
	diff, err := Diff(base, got)
	if err != nil || !slices.Equal(diff, []Change{{"floor", "0.5", "0.3"}, {"settings_interval_ms", "10000", "20000"}}) {
		t.Errorf("%v, %v", diff, err)
	}
	if diff, err := Diff(base, base); err != nil || len(diff) > 0 {
		t.Errorf("a tuning differs from itself: %v, %v", diff, err)
	}
	if _, err := Diff(base, Tuning{}); !errors.Is(err, ErrInvalid) {
		t.Errorf("%v", err)
	}
}

func TestEditRefuses(t *testing.T) {
	for change, want := range map[string]string{
		"floor":                  `"floor" is not FIELD=VALUE`,
		"flor=0.3":               `there is no field "flor" (fields: floor, step,`,
		"requires=[]":            `there is no field "requires"`,
		"floor=":                 `floor is "", want a number`,
		"floor=low":              `floor is "low", want a number`,
		`floor="0.3"`:            "want a number",
		"floor=null":             "want a number",
		"floor=0.3,\"step\":0.1": "want a number",
		"floor=7":                "floor is 7 (0 to 1)",
		"jitter=0.1|jitter=0.2":  "jitter is given twice",
		"fast_interval_ms=6000":  `there is no field "fast_interval_ms"`,
		"feed_interval_ms=70000": "feed_interval_ms is 70000 (50 to 60000)",
		"replay_tick_ms=1.5":     "whole number of milliseconds",
	} {
		if _, err := Edit(Default(), strings.Split(change, "|")); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", change, err, want)
		}
	}
}
