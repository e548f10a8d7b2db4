package clock

import (
	"testing"
	"time"
)

// Of the last 16 answers the one that took least time shows the other clock.
func TestTheQuickestOfTheLastAnswersTellsTheTime(t *testing.T) {
	var o Offsets
	if _, ok := o.Ahead(); ok {
		t.Error("there is an offset before the first answer")
	}
	o.Add(5*time.Second, 2*time.Millisecond)
	for i := range offsetsMax - 1 {
		o.Add(time.Duration(i)*time.Second, 10*time.Millisecond)
	}
	if ahead, ok := o.Ahead(); !ok || ahead != 5*time.Second {
		t.Errorf("%v ahead, want 5s by the quickest of 16", ahead)
	}
	o.Add(9*time.Second, 3*time.Millisecond)
	if ahead, _ := o.Ahead(); ahead != 9*time.Second {
		t.Errorf("%v ahead, want 9s: the 17th answer takes the place of the first", ahead)
	}
}
