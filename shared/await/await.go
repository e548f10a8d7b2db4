// Package await lets a test wait for a condition that other goroutines or processes bring about:
//
//	await.True(t, "the node is ready", node.Ready)
//	await.NoError(t, "listening again", func() (err error) { l, err = net.Listen("tcp", addr); return err })
//
// The deadline, [Patience], is the same for every condition. It only ends a test that fails: a test that passes waits
// as long as its condition takes, on a machine of any speed. A test that proves how soon something happens does so in
// the virtual time of testing/synctest.
//
// When not to use it: outside of tests.
package await

import (
	"errors"
	"testing"
	"time"
)

const (
	// Patience bounds the time for a condition. It is far more than any condition takes on a machine with twenty times as
	// much work as it has cores for, and less than the timeout of a test binary.
	Patience = 5 * time.Minute

	every = 5 * time.Millisecond
)

var errFalse = errors.New("still false")

// True waits until holds returns true and returns how long that took. It fails the test if holds is still false after
// Patience. Call it from the test's goroutine, which also calls holds.
func True(t testing.TB, what string, holds func() bool) time.Duration {
	t.Helper()
	return NoError(t, what, func() error {
		if holds() {
			return nil
		}
		return errFalse
	})
}

// NoError waits until try returns nil and returns how long that took. If try still returns an error after Patience,
// NoError fails the test with it. Call it from the test's goroutine, which also calls try.
func NoError(t testing.TB, what string, try func() error) time.Duration {
	t.Helper()
	tick := time.NewTicker(every)
	defer tick.Stop()
	for began := time.Now(); ; <-tick.C {
		// The last attempt begins after the deadline: a process that was stopped in between still makes it.
		last := time.Since(began) >= Patience
		err := try()
		if err == nil {
			return time.Since(began)
		}
		if last {
			t.Fatalf("%s: not within %v: %v", what, Patience, err)
		}
	}
}
