package sessions

import (
	"fmt"
	"testing"
	"time"
)

// Attempts that fail slow their own address and their own token down, and nothing else.
func TestFailedSignInsSlowDown(t *testing.T) {
	now := time.Unix(0, 0)
	b := NewBackoff(time.Now)
	b.now = func() time.Time { return now }
	for i := range FailuresFree {
		if wait := b.Try("address a"); wait != 0 {
			t.Fatalf("attempt %d waits %v", i+1, wait)
		}
	}
	for i, want := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 16 * time.Second, 32 * time.Second, time.Minute, time.Minute} {
		if wait := b.Try("address a"); wait != want {
			t.Fatalf("failure %d: the next waits %v, want %v", FailuresFree+i, wait, want)
		}
		if wait := b.Try("address a", "token t"); wait != want {
			t.Fatalf("with another token: %v", wait)
		}
		if now = now.Add(want - time.Nanosecond); b.Try("address a") != time.Nanosecond {
			t.Fatal("it does not wait for all of it")
		}
		if now = now.Add(time.Nanosecond); b.Try("address a") != 0 {
			t.Fatal("it waits for longer than it said")
		}
	}
	if wait := b.Try("address b", "token t"); wait != 0 {
		t.Errorf("another address waits %v", wait)
	}
	now = now.Add(forgetAfter)
	for range FailuresFree {
		if wait := b.Try("address a"); wait != 0 {
			t.Errorf("a quarter of an hour forgets nothing: %v", wait)
		}
	}
}

// Attempts in progress count, attempts that pass do not, and memory is bounded.
func TestBackoffCountsWhatFails(t *testing.T) {
	b := NewBackoff(time.Now)
	for i := range 10 * FailuresFree {
		if wait := b.Try("address a", "token t"); wait != 0 {
			t.Fatalf("sign-in %d waits %v", i+1, wait)
		}
		b.Passed("address a", "token t")
	}
	if len(b.byKey) != 0 {
		t.Errorf("%d counters are left of what has passed", len(b.byKey))
	}
	under := 0
	for range 100 { // none has ended yet
		if b.Try("address a") == 0 {
			under++
		}
	}
	if under != FailuresFree {
		t.Errorf("%d attempts at once, want %d", under, FailuresFree)
	}
	for i := range countersMax + 10 {
		b.Try(fmt.Sprint("address ", i))
	}
	if len(b.byKey) != countersMax {
		t.Errorf("%d counters", len(b.byKey))
	}
}
