package main

import (
	"errors"
	"testing"

	"github.com/weirhq/weir/dataplane/internal/planted"
)

func TestWhatTheExplorerPrintsIsRead(t *testing.T) {
	const states = "    explore_test.go:178: {starts:1 orders:0 faults:0}: 2100 states, 9 moves deep, 131 played to the end\n" +
		"    explore_test.go:178: {starts:2 orders:1 faults:0}: 20000 states, 6 moves deep, 1250 played to the end\n"
	for name, c := range map[string]struct {
		text string
		want finding
	}{
		"no rule is broken": {states + "--- PASS: TestExploreRollouts (1.20s)\n", finding{states: 22100}},
		"one is": {states + "    explore_test.go:180: {starts:2 orders:1 faults:0}: at most one rollout is under way: a and b are\n" +
			"          0  (world 0)\n--- FAIL: TestExploreRollouts (1.20s)\n",
			finding{states: 22100, broken: `"at most one rollout is under way: a and b are"`}},
		"a transition panics": {"--- FAIL: TestExploreRollouts (0.00s)\npanic: runtime error\n", finding{broken: "ends"}},
	} {
		if f, err := explored(c.text); err != nil || f != c.want {
			t.Errorf("%s: %+v, %v", name, f, err)
		}
	}
	if f, err := explored("# weir/controlplane\n./rollout.go:1:1: syntax error\n"); !errors.Is(err, planted.ErrPatch) {
		t.Errorf("a patch that does not compile: %+v, %v", f, err)
	}
}

// The printed line about a search names its effort.
func TestEffort(t *testing.T) {
	if got := (&finding{states: 22100, broken: "ends"}).effort(); got != "22100 states,    0 s" {
		t.Errorf("%q", got)
	}
	if got := (&finding{seeds: 3, broken: "R1"}).effort(); got != "   3 seeds,  0.00 virtual hours,    0 s" {
		t.Errorf("%q", got)
	}
}
