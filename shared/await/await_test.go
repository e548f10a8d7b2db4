package await

import (
	"errors"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
)

// spy is a test that may fail.
type spy struct {
	testing.TB
	failure string
}

func (s *spy) Fatalf(format string, args ...any) {
	s.failure = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// watch runs f on a test of its own and returns how that failed, or "".
func watch(t *testing.T, f func(testing.TB)) string {
	s := &spy{TB: t}
	done := make(chan struct{})
	go func() { defer close(done); f(s) }()
	<-done
	return s.failure
}

// A condition that holds at once costs no time. A condition that comes to hold later is noticed soon after.
func TestWaitsNoLongerThanTheConditionTakes(t *testing.T) {
	for _, takes := range []time.Duration{0, time.Second, time.Minute, Patience - 1} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			holds := func() bool { return time.Since(began) >= takes }
			if took := True(t, "it holds", holds); took < takes || took > takes+every {
				t.Errorf("waited %v for what takes %v", took, takes)
			}
		})
	}
}

// A condition that never holds fails the test after Patience, with its name and the last error.
func TestFailsWithTheLastError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		failure := watch(t, func(t testing.TB) {
			NoError(t, "the server is up", func() error { return fmt.Errorf("refused at %v", time.Since(began)) })
		})
		if want := fmt.Sprintf("the server is up: not within %v: refused at %v", Patience, Patience); failure != want {
			t.Errorf("%q, want %q", failure, want)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		failure := watch(t, func(t testing.TB) { True(t, "it is ready", func() bool { return false }) })
		if want := fmt.Sprintf("it is ready: not within %v: still false", Patience); failure != want {
			t.Errorf("%q, want %q", failure, want)
		}
	})
}

// A process that does not run for longer than Patience finds a condition that came to hold meanwhile.
func TestAStoppedProcessTriesOnceMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		attempts := 0
		NoError(t, "the second attempt", func() error {
			if attempts++; attempts == 1 {
				time.Sleep(2 * Patience) // in virtual time
				return errors.New("too early")
			}
			return nil
		})
	})
}
