package console

import (
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/controlplane/console/pulse"
)

func TestALongListOfNamesIsCut(t *testing.T) {
	for names, want := range map[string]string{
		"eu":            "eu",
		"a,b,c,d,e,f":   "a, b, c, d, e, f",
		"a,b,c,d,e,f,g": "a, b, c, d, e and 2 more",
	} {
		if got := few(strings.Split(names, ",")); got != want {
			t.Errorf("few(%s) = %q, want %q", names, got, want)
		}
	}
}

// span formats a duration "in its largest units, two at most": units change where the next unit is whole.
func TestSpansHaveTwoUnitsAtMost(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-1500 * time.Millisecond:      "−1.5 s",
		999 * time.Millisecond:        "999 ms",
		10 * time.Second:              "10 s",
		119 * time.Second:             "119 s",
		2*time.Minute + 5*time.Second: "2 min 5 s",
		time.Hour:                     "1 h",
		47*time.Hour + 59*time.Minute: "47 h 59 min",
		50*time.Hour + 30*time.Minute: "2 d 2 h",
		366 * 24 * time.Hour:          "366 d",
	} {
		if got := span(d); got != want {
			t.Errorf("span(%v) = %q, want %q", d, got, want)
		}
	}
	for v, want := range map[float64]string{0: "0", 0.04: "0.0", 99.94: "99.9", 99.95: "100", 1234: "1\u202f234"} {
		if got := rate(v); got != want {
			t.Errorf("rate(%v) = %q, want %q", v, got, want)
		}
	}
	if got := rateOf(pulse.Rates{}, 0); got != "–" {
		t.Errorf("an unknown rate is shown as %q", got)
	}
}
