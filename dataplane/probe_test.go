package dataplane

import (
	"context"
	"testing"
	"time"
)

// "A private key which never leaves the process nor counts in metrics."
func TestProbeLeavesNoTrace(t *testing.T) {
	l, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	if l.probe, err = newProbe(nil); err != nil {
		t.Fatal(err)
	}
	if us := l.Health().DecisionP99Us; us != 0 {
		t.Errorf("%v µs before there is a sample", us)
	}
	for range 2 * probeSamples / probeTurn {
		l.probe.turn(context.Background())
	}
	h := l.Health()
	if h.DecisionP99Us <= 0 || h.AllowedTotal != 0 || h.Entries != 0 || len(l.probe.taken) != probeSamples {
		t.Errorf("%+v", h)
	}
	for i := range l.probe.taken { // the 99th percentile is of what was taken
		l.probe.taken[i] = time.Microsecond
	}
	for i := range 10 {
		l.probe.taken[i] = time.Millisecond
	}
	if us := l.Health().DecisionP99Us; us != 1000 {
		t.Errorf("%v µs", us)
	}
}
