package clock

import (
	"testing"
	"time"
)

// Of the last 16 answers the quickest shows the other clock.
func TestTheQuickestOfTheLastAnswersTellsTheTime(t *testing.T) {
	var o Offsets
	if _, ok := o.Ahead(); ok {
		t.Error("there is an offset before the first answer")
	}
	o.Add(500*time.Millisecond, 2*time.Millisecond)
	for i := range offsetsMax - 1 {
		o.Add(time.Duration(i)*50*time.Millisecond, 10*time.Millisecond)
	}
	if ahead, ok := o.Ahead(); !ok || ahead != 500*time.Millisecond {
		t.Errorf("%v ahead, want 500ms by the quickest of 16", ahead)
	}
	o.Add(900*time.Millisecond, 3*time.Millisecond)
	if ahead, _ := o.Ahead(); ahead != 900*time.Millisecond {
		t.Errorf("%v ahead, want 900ms: the 17th answer takes the place of the first", ahead)
	}
}

// An answer that contradicts the earlier ones by more than a second shows that the other clock was set: it alone
// counts, although an earlier answer was quicker. A quiet node would otherwise go by the wrong time for another 15
// answers.
func TestAnAnswerThatContradictsTheEarlierOnesReplacesThem(t *testing.T) {
	for _, step := range []time.Duration{-time.Hour, -3 * time.Second, 3 * time.Second, time.Hour} {
		var o Offsets
		o.Add(0, 2*time.Millisecond)
		o.Add(step, 10*time.Millisecond)
		if ahead, _ := o.Ahead(); ahead != step {
			t.Errorf("%v ahead after a step of %v", ahead, step)
		}
		o.Add(step+5*time.Millisecond, 5*time.Millisecond)
		if ahead, _ := o.Ahead(); ahead != step+5*time.Millisecond {
			t.Errorf("%v ahead, want the quickest answer after the step of %v", ahead, step)
		}
	}
}

// A slow answer is off by up to half of the time that it took, so a quicker answer with another offset may be right.
func TestASlowAnswerContradictsNoQuickerOne(t *testing.T) {
	var o Offsets
	o.Add(0, 2*time.Millisecond)
	o.Add(3*time.Second, 5*time.Second)
	if ahead, _ := o.Ahead(); ahead != 0 {
		t.Errorf("%v ahead, want 0 by the quicker answer", ahead)
	}
}

// A step back of the other clock is found, with the most by which that clock can have been ahead before.
func TestAStepBackOfTheOtherClockIsFound(t *testing.T) {
	for _, c := range []struct {
		step, took time.Duration
		setBack    bool
	}{
		{-time.Hour, 10 * time.Millisecond, true},
		{-3 * time.Second, 10 * time.Millisecond, true},
		{-3 * time.Second, 5 * time.Second, false}, // the answer was slow
		{-time.Second, 10 * time.Millisecond, false},
		{time.Hour, 10 * time.Millisecond, false},
	} {
		var o Offsets
		o.Add(time.Minute, 4*time.Millisecond)
		was, setBack := o.Add(time.Minute+c.step, c.took)
		if setBack != c.setBack || setBack && was != time.Minute+2*time.Millisecond {
			t.Errorf("a step of %v, found in %v: set back %v, was ahead by %v", c.step, c.took, setBack, was)
		}
	}
}
