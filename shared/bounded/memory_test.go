package bounded

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// slow is a call that keeps the server waiting until it is cut off.
type slow struct {
	Hold
	cut atomic.Bool
}

func (s *slow) Cut() { s.cut.Store(true) }

func slowly(c *Caller) *slow {
	s := new(slow)
	s.Caller, s.Cutter = c, s
	return s
}

func boundOf(err error) Bound {
	var refusal *Refusal
	_ = errors.As(err, &refusal)
	if refusal == nil {
		return ""
	}
	return refusal.Bound
}

// The call that has kept the server waiting longest makes room for a new call. A call that has just begun is not cut
// off.
func TestTheOldestMakesRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewMemory(Calls, 100)
		var calls []*slow
		for range 4 {
			s := slowly(nil)
			if err := m.Take(t.Context(), &s.Hold, 25); err != nil {
				t.Fatal(err)
			}
			calls = append(calls, s)
			time.Sleep(100 * time.Millisecond)
		}
		fifth := slowly(nil)
		taken := make(chan error)
		go func() { taken <- m.Take(t.Context(), &fifth.Hold, 25) }()
		synctest.Wait()
		if !calls[0].cut.Load() || calls[1].cut.Load() {
			t.Errorf("cut off: %v %v, want the first alone", calls[0].cut.Load(), calls[1].cut.Load())
		}
		calls[0].Give()
		if err := <-taken; err != nil {
			t.Error(err)
		}
		if m.Used() != 100 {
			t.Errorf("%d bytes are in use, want 100", m.Used())
		}
	})
}

// If several callers fill the memory together, the callers with the most bytes make room, not a caller with a single
// call, however long that has waited.
func TestTheCallerThatHoldsMostMakesRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewMemory(Streams, 100)
		quiet := slowly(new(Caller))
		_ = m.Take(t.Context(), &quiet.Hold, 10)
		time.Sleep(time.Second)
		greedy := []*Caller{new(Caller), new(Caller)}
		var calls []*slow
		for i := range 9 {
			s := slowly(greedy[i%2])
			if err := m.Take(t.Context(), &s.Hold, 10); err != nil {
				t.Fatal(err)
			}
			calls = append(calls, s)
		}
		time.Sleep(time.Second)
		for _, c := range []*Caller{greedy[1], new(Caller)} {
			filling := slowly(nil)
			_ = m.Take(t.Context(), &filling.Hold, 100-m.Used())
			filling.Work(100)
			another, taken := slowly(c), make(chan error)
			go func() { taken <- m.Take(t.Context(), &another.Hold, 20) }()
			synctest.Wait()
			if quiet.cut.Load() {
				t.Fatal("the one call of a caller is cut off")
			}
			var cut []int
			for i, s := range calls {
				if s.cut.Load() {
					cut = append(cut, i)
					s.Give()
				}
			}
			if len(cut) < 2 {
				t.Errorf("%v are cut off", cut)
			}
			if err := <-taken; err != nil {
				t.Errorf("%v after %v were cut off", err, cut)
			}
			another.Give()
			filling.Give()
			calls = slices.DeleteFunc(calls, func(s *slow) bool { return s.cut.Load() })
		}
	})
}

// The bytes of calls that were cut off are counted once: no further call is cut off for the same bytes before they have
// ended.
func TestThoseThatAreCutOffMakeTheRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewMemory(Calls, 100)
		c := new(Caller)
		calls := []*slow{slowly(c), slowly(c), slowly(c), slowly(c)}
		for _, s := range calls {
			_ = m.Take(t.Context(), &s.Hold, 12)
		}
		_ = m.Take(t.Context(), &slowly(new(Caller)).Hold, 50)
		time.Sleep(time.Second)
		late := slowly(c)
		taken := make(chan error)
		go func() { taken <- m.Take(t.Context(), &late.Hold, 12) }()
		time.Sleep(waitMax / 2)
		if !calls[0].cut.Load() || calls[1].cut.Load() {
			t.Errorf("cut off: %v %v, want the first alone", calls[0].cut.Load(), calls[1].cut.Load())
		}
		calls[0].Shrink(2)
		calls[0].Give()
		if err := <-taken; err != nil {
			t.Error(err)
		}
		late.Give()
		for _, s := range calls {
			s.Give()
		}
		if m.going != 0 || c.going[Calls] != 0 || m.Used() != 50 || c.bytes[Calls] != 0 {
			t.Errorf("%d going of %d, %d of %d of the caller", m.going, m.Used(), c.going[Calls], c.bytes[Calls])
		}
	})
}

// A call in work is not cut off, and a call that finds no room in time is shed.
func TestWorkIsNotCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewMemory(Calls, 100)
		busy, reading := slowly(nil), slowly(nil)
		_ = m.Take(t.Context(), &busy.Hold, 50)
		busy.Work(40)
		_ = m.Take(t.Context(), &reading.Hold, 50)
		if m.Used() != 90 {
			t.Errorf("%d bytes are in use, want 90", m.Used())
		}
		time.Sleep(time.Minute)
		start := time.Now()
		late := slowly(nil)
		if err := m.Take(t.Context(), &late.Hold, 50); boundOf(err) != BoundMemory {
			t.Errorf("with all in use: %v", err)
		}
		if waited := time.Since(start); waited != waitMax || busy.cut.Load() || !reading.cut.Load() {
			t.Errorf("waited %v; cut off: the busy call %v, the other %v", waited, busy.cut.Load(), reading.cut.Load())
		}
		reading.Give()
		if err := m.Take(t.Context(), &reading.Hold, 50); err != nil {
			t.Fatal(err)
		}
		reading.Work(50)
		busy.Send(50) // from now on it waits for its caller
		time.Sleep(time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		if err := m.Take(ctx, &late.Hold, 50); !errors.Is(err, context.DeadlineExceeded) || !busy.cut.Load() {
			t.Errorf("%v; the answer nobody reads is cut off: %v", err, busy.cut.Load())
		}
		late.Give()
		busy.Give()
		reading.Give()
		if m.Used() != 0 {
			t.Errorf("%d bytes are in use at the end", m.Used())
		}
	})
}

// A caller holds at most half of the memory. If it needs more, its own oldest call is cut off, and calls of other
// callers do not wait.
func TestACallersPartOfTheMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewMemory(Calls, 100)
		greedy, other := new(Caller), new(Caller)
		calls := []*slow{slowly(other), slowly(greedy), slowly(greedy)}
		for _, s := range calls {
			if err := m.Take(t.Context(), &s.Hold, 25); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Second)
		more, small := slowly(greedy), slowly(other)
		taken := make(chan error)
		go func() { taken <- m.Take(t.Context(), &more.Hold, 25) }()
		synctest.Wait()
		if calls[0].cut.Load() || !calls[1].cut.Load() || calls[2].cut.Load() {
			t.Error("the greedy caller's own oldest call is to be cut off, and no other")
		}
		go func() {
			if err := m.Take(t.Context(), &small.Hold, 20); err != nil {
				t.Error(err)
			}
			calls[1].Give()
		}()
		if err := <-taken; err != nil {
			t.Error(err)
		}
	})
}

// A caller whose own calls have all just begun can't make room for itself. It then waits, and no call of another caller
// is cut off for it.
func TestACallerBeyondItsPartCutsNobodyElseOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewMemory(Calls, 100)
		greedy, old := new(Caller), slowly(new(Caller))
		_ = m.Take(t.Context(), &old.Hold, 50)
		time.Sleep(time.Second)
		recent, more := slowly(greedy), slowly(greedy)
		_ = m.Take(t.Context(), &recent.Hold, 50)
		taken := make(chan error)
		go func() { taken <- m.Take(t.Context(), &more.Hold, 10) }()
		synctest.Wait()
		if old.cut.Load() || recent.cut.Load() {
			t.Errorf("cut off: the other caller's call %v, the own one %v", old.cut.Load(), recent.cut.Load())
		}
		time.Sleep(2 * graceMin)
		if old.cut.Load() || !recent.cut.Load() {
			t.Errorf("a while later, cut off: the other caller's call %v, the own one %v", old.cut.Load(), recent.cut.Load())
		}
		recent.Give()
		if err := <-taken; err != nil {
			t.Error(err)
		}
	})
}

// A call that needs more than any caller can have is rejected immediately, and cuts nothing off.
func TestACallThatIsTooLargeIsRefusedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewMemory(Calls, 100)
		old, large := slowly(new(Caller)), slowly(new(Caller))
		_ = m.Take(t.Context(), &old.Hold, 50)
		time.Sleep(time.Second)
		began := time.Now()
		if err := m.Take(t.Context(), &large.Hold, 51); boundOf(err) != BoundMemory || time.Since(began) != 0 || old.cut.Load() {
			t.Errorf("%v after %v, and another call is cut off: %v", err, time.Since(began), old.cut.Load())
		}
	})
}

// If callers with one call each take all places of the queue, a further caller gets none of them.
func TestAFullQueueOfFairCallersTakesNoMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewMemory(Calls, 100)
		full := slowly(nil)
		_ = m.Take(t.Context(), &full.Hold, 100)
		full.Work(100)
		ended := make(chan error, waitersMax)
		for range waitersMax {
			s := slowly(new(Caller))
			go func() { ended <- m.Take(t.Context(), &s.Hold, 1) }()
		}
		synctest.Wait()
		began, late := time.Now(), slowly(new(Caller))
		if err := m.Take(t.Context(), &late.Hold, 1); boundOf(err) != BoundMemory || time.Since(began) != 0 || len(ended) != 0 {
			t.Errorf("%v after %v, and %d others have lost their places", err, time.Since(began), len(ended))
		}
		for range waitersMax {
			if err := <-ended; err == nil {
				t.Error("a call got memory that was never free")
			}
		}
	})
}

// Memory is returned to the system once, after much was held and little is.
func TestSettle(t *testing.T) {
	m := NewMemory(Calls, 1000)
	s := slowly(nil)
	for _, step := range []struct {
		n    int64
		want bool
	}{{200, false}, {300, true}} {
		_ = m.Take(t.Context(), &s.Hold, step.n)
		if m.Settle() {
			t.Error("while it is held")
		}
		s.Give()
		if got := m.Settle(); got != step.want {
			t.Errorf("after %d of 1000: %v, want %v", step.n, got, step.want)
		}
		if m.Settle() {
			t.Error("twice")
		}
	}
}

// A caller that fills the queue for memory loses a place to another caller, which does not wait behind it either.
func TestNobodyFillsTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewMemory(Calls, 100)
		crowd := []*Caller{new(Caller), new(Caller)}
		var holding [10]*slow
		for i := range holding {
			holding[i] = slowly(crowd[i%2])
			if err := m.Take(t.Context(), &holding[i].Hold, 10); err != nil {
				t.Fatal(err)
			}
		}
		refused := make(chan error, waitersMax)
		for i := range waitersMax {
			s := slowly(crowd[i%2])
			go func() { refused <- m.Take(t.Context(), &s.Hold, 10) }()
		}
		synctest.Wait()
		victim, taken := slowly(new(Caller)), make(chan error, 1)
		go func() { taken <- m.Take(t.Context(), &victim.Hold, 10) }()
		synctest.Wait()
		if err := <-refused; boundOf(err) != BoundMemory {
			t.Errorf("the one whose place is taken: %v", err)
		}
		holding[0].Give()
		synctest.Wait()
		select {
		case err := <-taken:
			if err != nil {
				t.Errorf("the other caller: %v", err)
			}
		default:
			t.Error("the other caller waits behind those who have their part")
		}
		for range waitersMax - 1 {
			if err := <-refused; err == nil {
				t.Error("one of those who wait is served after the other caller has taken the memory")
			}
		}
	})
}

// If callers do not take their responses, the responses can be longer than the memory of their calls, and exceed the
// Memory. They are then cut off together for another call, not one after another.
func TestAnswersBeyondTheMemoryAreCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewMemory(Calls, 100)
		greedy := new(Caller)
		var unread []*slow
		for _, s := range working(t, m, greedy, 7) {
			if s.Send(10) {
				unread = append(unread, s)
			}
		}
		if len(unread) != 6 || m.Used() != 60 {
			t.Errorf("%d answers of one caller hold %d bytes, want 6: its part and a quarter", len(unread), m.Used())
		}
		other := slowly(nil)
		other.memory = m
		for _, s := range working(t, m, nil, 5) {
			_ = s.Send(10)
			unread = append(unread, s)
		}
		time.Sleep(time.Second)
		taken := make(chan error, 1)
		go func() { taken <- m.Take(t.Context(), &other.Hold, 20) }()
		synctest.Wait()
		cut := 0
		for _, s := range unread {
			if s.cut.Load() {
				cut++
				s.Give()
			}
		}
		if cut != 3 {
			t.Errorf("%d answers are cut off at once, want the 3 that are in the way", cut)
		}
		if err := <-taken; err != nil {
			t.Error(err)
		}
	})
}

// working returns n calls that hold a byte each.
func working(t *testing.T, m *Memory, of *Caller, n int) (calls []*slow) {
	t.Helper()
	for range n {
		s := slowly(of)
		if err := m.Take(t.Context(), &s.Hold, 1); err != nil {
			t.Fatal(err)
		}
		calls = append(calls, s)
	}
	return calls
}

// The response to a rejected call that held nothing takes no room above the Memory, and none that others wait for.
func TestARefusalTakesNoRoomOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewMemory(Calls, 100)
		refused := func() bool { s := slowly(nil); s.memory = m; defer s.Give(); return s.Send(10) }
		if !refused() {
			t.Error("a refusal is not sent, and there is room")
		}
		busy := slowly(nil)
		_ = m.Take(t.Context(), &busy.Hold, 50)
		_ = m.Take(t.Context(), &slowly(nil).Hold, 45)
		if refused() {
			t.Error("a refusal is sent beyond the memory")
		}
		go func() { _ = m.Take(t.Context(), &slowly(nil).Hold, 50) }()
		synctest.Wait()
		busy.Work(20)
		if refused() {
			t.Error("a refusal takes the room that another call waits for")
		}
		busy.Give()
		synctest.Wait()
	})
}

// A call that was cut off while it was read can be cut off again while its refusal is sent.
func TestARefusalIsCutOffToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewMemory(Calls, 100)
		first, second := slowly(nil), slowly(nil)
		_ = m.Take(t.Context(), &first.Hold, 50)
		_ = m.Take(t.Context(), &second.Hold, 50)
		for _, s := range []*slow{first, second} {
			s.cut.Store(false)
			s.gone = true // as cutOldest leaves it
			_ = s.Send(50)
		}
		time.Sleep(time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		_ = m.Take(ctx, &slowly(nil).Hold, 50)
		if !first.cut.Load() {
			t.Error("a refusal that is not read keeps its memory")
		}
	})
}
