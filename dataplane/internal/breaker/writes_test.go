package breaker

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"
)

var errRefused = errors.New("refused")

// A single lost reply is no refusal. Two failures in a row are, until a write succeeds.
func TestTwoFailuresInARowAreARefusal(t *testing.T) {
	var refusing atomic.Int64
	w := NewWrites(&refusing)
	for i, step := range []struct {
		err     error
		refused bool
	}{
		{nil, false}, {errRefused, false}, {nil, false}, {errRefused, false}, {errRefused, true}, {errRefused, true},
		{nil, false}, {errRefused, false},
	} {
		w.Note(step.err, 1000, time.Second)
		if got := w.Refused(1000); got != step.refused || (refusing.Load() != 0) != step.refused {
			t.Errorf("step %d: refused %v, %d shards refuse, want %v", i, got, refusing.Load(), step.refused)
		}
	}
}

// If there are no more writes, a refusal ends by itself, because otherwise nothing would ever find out that it is over.
func TestARefusalEndsWhereNobodyWrites(t *testing.T) {
	var refusing atomic.Int64
	w := NewWrites(&refusing)
	w.Note(errRefused, 1000, time.Second)
	w.Note(errRefused, 1500, time.Second)
	for now, want := range map[int64]bool{1500: true, 2499: true, 2500: false} {
		if got := w.Refused(now); got != want {
			t.Errorf("at %d: refused %v, want %v", now, got, want)
		}
	}
}
