package controlplane

import (
	"strings"
	"testing"
	"time"
)

// Each transition has its number, and at most one timer: a timer with any other number is stale.
func TestTransitionsHaveOneTimer(t *testing.T) {
	var tr Transitions
	for i, c := range []struct {
		wait  time.Duration
		timer int64
	}{{time.Second, 6000}, {0, 5000}, {-1, 0}, {time.Minute, 65_000}} {
		tr.EndTransition(5000, c.wait)
		if epoch := int64(i + 1); tr.Epoch != epoch || tr.TimerMs != c.timer || !tr.IsCurrent(epoch) || tr.IsCurrent(epoch-1) || tr.IsCurrent(epoch+1) {
			t.Errorf("after %v: epoch %d, timer at %d, want %d and %d", c.wait, tr.Epoch, tr.TimerMs, epoch, c.timer)
		}
	}
	for late, overdue := range map[time.Duration]bool{0: false, 10 * time.Second: false, 10*time.Second + time.Millisecond: true} {
		if got := tr.OverdueBy(65_000+late.Milliseconds(), 10*time.Second); got != overdue {
			t.Errorf("a timer that is %v late is overdue: %v", late, got)
		}
	}
}

// "The newest EventsMax", oldest first, each of a bounded length.
func TestTransitionsKeepTheNewestEvents(t *testing.T) {
	var tr Transitions
	for i := range int64(EventsMax + 3) {
		tr.AddEvent(i, "ann", "resume", strings.Repeat("x", 2*ReasonBytesMax))
	}
	first, last := tr.Events[0], tr.Events[len(tr.Events)-1]
	if len(tr.Events) != EventsMax || first.AtMs != 3 || last.AtMs != EventsMax+2 || len(last.Text) != ReasonBytesMax {
		t.Errorf("%d events of %d to %d, with %d bytes", len(tr.Events), first.AtMs, last.AtMs, len(last.Text))
	}
}
