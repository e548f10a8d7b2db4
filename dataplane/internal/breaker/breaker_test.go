package breaker

import (
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// The state that decisions read without a lock is the state of the breaker's calls, at any time and after any calls.
func TestTheStateWithoutALockIsTheStateOfTheCalls(t *testing.T) {
	cfg, err := Config{}.WithDefaults()
	if err != nil {
		t.Fatal(err)
	}
	// A move begins a call, ends the oldest with or without an error, or lets so many ms pass.
	const begin, succeed, fail = -1, -2, -3
	rapid.Check(t, func(draw *rapid.T) {
		moves := rapid.SliceOfN(rapid.OneOf(rapid.SampledFrom([]int{begin, begin, succeed, fail, fail}),
			rapid.IntRange(0, 1500)), 1, 80).Draw(draw, "moves")
		var got, want State
		synctest.Test(t, func(*testing.T) {
			b := New(cfg)
			var ends []func(error)
			for _, move := range moves {
				switch {
				case move >= 0:
					time.Sleep(time.Duration(move) * time.Millisecond)
				case move == begin:
					if end, ok := b.Begin(); ok {
						ends = append(ends, end)
					}
				case len(ends) > 0:
					ends[0](map[int]error{succeed: nil, fail: errRefused}[move])
					ends = ends[1:]
				}
				if got, want = b.State(), State(b.calls.State()); got != want {
					return
				}
			}
		})
		if got != want {
			draw.Fatalf("%v, want %v", got, want)
		}
	})
}

// A breaker opens by failed calls, lets some through after a while, and closes by their success.
func TestABreakerOpensAndCloses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg, err := Config{}.WithDefaults()
		if err != nil {
			t.Fatal(err)
		}
		b := New(cfg)
		call := func(err error) bool {
			end, ok := b.Begin()
			if ok {
				end(err)
			}
			return ok
		}
		for range cfg.CallsMin {
			call(errRefused)
		}
		if b.State() != Open || call(nil) || b.OpensFor() != cfg.OpenFor {
			t.Fatalf("%v, for %v", b.State(), b.OpensFor())
		}
		time.Sleep(cfg.OpenFor + time.Millisecond)
		if b.State() != HalfOpen || b.OpensFor() != 0 {
			t.Fatalf("%v, for %v", b.State(), b.OpensFor())
		}
		for range cfg.HalfOpenCalls {
			if !call(nil) {
				t.Fatal("a half-open breaker lets no call through")
			}
		}
		if b.State() != Closed {
			t.Fatal(b.State())
		}
	})
}
