package bounded

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"pgregory.net/rapid"
)

// However many messages of a caller's streams wait, they hold a sixteenth of the slots, and another caller's message
// gets a slot immediately.
func TestMessagesOfOneCallerLeaveRoomForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		s, flood, other := NewSlots(Calls, 32), new(Caller), new(Caller)
		var got, gaveUp atomic.Int64
		for range 1000 {
			go func() {
				if s.Wait(ctx, flood) != nil {
					gaveUp.Add(1)
					return
				}
				got.Add(1)
			}()
			synctest.Wait()
		}
		if n := got.Load(); n != 2 {
			t.Errorf("one caller's messages hold %d of 32 slots, want 2", n)
		}
		if err := s.Wait(ctx, other); err != nil {
			t.Errorf("another caller's message: %v", err)
		}
		if err := s.Take(other); err != nil {
			t.Errorf("another caller's call: %v", err)
		}
		s.GiveWaited(flood)
		synctest.Wait()
		if n := got.Load(); n != 3 {
			t.Errorf("a slot that was given back went to %d messages of the same caller, want 1", n-2)
		}
		cancel()
		synctest.Wait()
		if n := gaveUp.Load(); n != 997 || s.queues.Len() != 0 {
			t.Errorf("%d messages ended with their context, %d callers are queued", n, s.queues.Len())
		}
	})
}

// When all slots are in use, callers whose messages wait take turns.
func TestWaitingCallersTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, busy := NewSlots(Calls, 32), make([]*Caller, 2)
		for i := range busy {
			busy[i] = new(Caller)
			for range 16 {
				if err := s.Take(busy[i]); err != nil {
					t.Fatal(err)
				}
			}
		}
		order := make(chan string, 8)
		wait := func(name string, c *Caller) {
			go func() {
				if err := s.Wait(t.Context(), c); err != nil {
					t.Error(err)
				}
				order <- name
			}()
			synctest.Wait()
		}
		one, two := new(Caller), new(Caller)
		wait("one", one)
		wait("one", one)
		wait("two", two)
		for range 3 {
			s.Give(busy[0])
			synctest.Wait()
		}
		if a, b, c := <-order, <-order, <-order; a != "one" || b != "two" || c != "one" {
			t.Errorf("slots went to %s, %s and %s", a, b, c)
		}
	})
}

// TakeAll waits for the slots in use and keeps everything else out; when its context ends it lets messages in again.
func TestTakeAllKeepsMessagesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c := NewSlots(Calls, 1), new(Caller)
		if err := s.Wait(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		taken, waited := make(chan error, 1), make(chan error, 1)
		go func() { taken <- s.TakeAll(ctx) }()
		synctest.Wait()
		go func() { waited <- s.Wait(t.Context(), c) }()
		synctest.Wait()
		s.mu.Lock()
		queued := s.queues.Len()
		s.mu.Unlock()
		if queued != 1 {
			t.Errorf("%d callers wait, want 1", queued)
		}
		cancel()
		if err := <-taken; !errors.Is(err, context.Canceled) {
			t.Errorf("TakeAll whose context ended: %v", err)
		}
		s.GiveWaited(c)
		if err := <-waited; err != nil {
			t.Error(err)
		}
		s.GiveWaited(c)
		if err := s.TakeAll(t.Context()); err != nil {
			t.Error(err)
		}
		if err := s.Take(c); boundOf(err) != BoundSlots {
			t.Errorf("a call after TakeAll: %v", err)
		}
	})
}

// A slot that is free after TakeAll has given up goes to a waiting message, and messages of a caller keep their order.
func TestMessagesOfOneCallerComeInTheirOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c := NewSlots(Calls, 2), new(Caller)
		ctx, cancel := context.WithCancel(t.Context())
		taken, waited := make(chan error, 1), make(chan int, 2)
		if err := s.Take(c); err != nil {
			t.Fatal(err)
		}
		go func() { taken <- s.TakeAll(ctx) }()
		synctest.Wait()
		for i := range 2 {
			go func() {
				if s.Wait(t.Context(), c) == nil {
					waited <- i
				}
			}()
			synctest.Wait()
		}
		cancel() // one of the two gets the free slot, although no other slot was given back
		if err := <-taken; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		synctest.Wait()
		if len(waited) != 1 || <-waited != 0 {
			t.Fatal("the message that came first did not get the free slot")
		}
		late := make(chan error, 1)
		go func() { late <- s.Wait(t.Context(), c) }()
		synctest.Wait()
		s.GiveWaited(c)
		synctest.Wait()
		if len(waited) != 1 || len(late) != 0 {
			t.Error("a message that came later has the slot")
		}
		s.GiveWaited(c)
		if err := <-late; err != nil {
			t.Error(err)
		}
	})
}

// For any sequence of calls and messages, no bound is exceeded, and no message waits that could have a slot.
func TestSlotsKeepTheirBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		most := rapid.IntRange(1, 40).Draw(t, "most")
		s, callers := NewSlots(Calls, most), []*Caller{new(Caller), new(Caller), nil}
		type holder struct {
			caller *Caller
			waits  bool
		}
		var held []holder
		over, cancel := context.WithCancel(context.Background())
		cancel()
		t.Repeat(map[string]func(*rapid.T){
			"take": func(t *rapid.T) {
				c := rapid.SampledFrom(callers).Draw(t, "caller")
				if s.Take(c) == nil {
					held = append(held, holder{c, false})
				}
			},
			"wait": func(t *rapid.T) { // with a context that has ended: it gets a slot immediately, or none
				c := rapid.SampledFrom(callers).Draw(t, "caller")
				if s.Wait(over, c) == nil {
					held = append(held, holder{c, true})
				}
			},
			"give": func(t *rapid.T) {
				if len(held) == 0 {
					return
				}
				i := rapid.IntRange(0, len(held)-1).Draw(t, "which")
				h := held[i]
				held = append(held[:i:i], held[i+1:]...)
				if h.waits {
					s.GiveWaited(h.caller)
				} else {
					s.Give(h.caller)
				}
			},
			"": func(t *rapid.T) {
				if s.used != int64(len(held)) || s.used > s.most || s.queues.Len() != 0 {
					t.Fatalf("%d slots in use of %d, %d are held, %d callers are queued", s.used, s.most, len(held), s.queues.Len())
				}
				for _, c := range callers[:2] {
					if of := s.shareOf(c); of.working > s.callerMost || of.waited > s.callerWaitMost {
						t.Fatalf("one caller holds %d slots (%d), %d of them for messages (%d)", of.working, s.callerMost, of.waited,
							s.callerWaitMost)
					}
				}
			},
		})
	})
}
