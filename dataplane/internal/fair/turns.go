package fair

import (
	"context"
	"sync"
)

// Turns bound the number of calls that are under way. Calls that wait begin in the order of a Line. So a call of a
// caller that has no other call waiting begins after at most two waiting calls of each other caller, however many calls
// these have waiting. All methods may be called concurrently.
type Turns struct {
	mu   sync.Mutex
	free int
	line Line[chan struct{}]
}

// NewTurns returns Turns that allow most calls at a time.
func NewTurns(most int) *Turns { return &Turns{free: most} }

// Begin waits until a call of a caller may begin, or returns the error of ctx. Call End after the call.
func (t *Turns) Begin(ctx context.Context, by Caller) error {
	t.mu.Lock()
	if t.free > 0 { // then no call waits
		t.free--
		t.mu.Unlock()
		return nil
	}
	ready := make(chan struct{})
	at := t.line.Add(by, ready)
	t.mu.Unlock()
	select {
	case <-ready:
		return nil
	case <-ctx.Done():
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if !at.Queued() {
		return nil // it may begin since a moment ago
	}
	t.line.Remove(at)
	return ctx.Err()
}

// End ends a call that Begin began, and begins the first call that waits.
func (t *Turns) End() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.endLocked()
}

func (t *Turns) endLocked() {
	first := t.line.First()
	if first == nil {
		t.free++
		return
	}
	t.line.Serve(first)
	t.line.Remove(first)
	close(first.Value)
}
