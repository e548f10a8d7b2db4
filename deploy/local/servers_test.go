package main

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/deploy/local/stack"
)

// mortal is a server that a test ends, and what is printed about it.
type mortal struct {
	mu       sync.Mutex
	exited   chan struct{}
	restarts []time.Time
	fails    int // restarts that fail, before one succeeds
	out      bytes.Buffer
}

func (m *mortal) PID() int { return 1 }

func (m *mortal) Exited() <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.exited
}

func (m *mortal) Restart(context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.restarts = append(m.restarts, time.Now())
	if m.fails > 0 {
		m.fails--
		return errors.New("port 7090 is taken")
	}
	m.exited = make(chan struct{})
	return nil
}

func (m *mortal) Write(b []byte) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.out.Write(b)
}

// kill ends it; the next restarts fail so often.
func (m *mortal) kill(fails int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fails, m.restarts = fails, nil
	m.out.Reset()
	close(m.exited)
}

func (m *mortal) seen() (restarts []time.Time, printed string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.restarts), m.out.String()
}

// A server that is killed does not end `make run`: it says what goes on without the server, and starts it again, as
// often as it is killed and even if it does not start at once.
func TestAServerThatIsKilledStartsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &mortal{exited: make(chan struct{})}
		ctx, cancel := context.WithCancel(t.Context())
		wait := keepServers(ctx, m, []stack.Server{{Mortal: m, Name: "Redis of eu", Without: "Nodes of eu decide alone."}})
		for kill, fails := range []int{0, 2} {
			killed := time.Now()
			m.kill(fails)
			time.Sleep(restartAfter - time.Second)
			synctest.Wait()
			if restarts, printed := m.seen(); len(restarts) != 0 || printed != "\nRedis of eu has ended. Nodes of eu decide alone. It starts again in 10s.\n" {
				t.Errorf("kill %d, after 9 s: restarts %v, %q", kill, restarts, printed)
			}
			time.Sleep(time.Duration(1+fails) * restartAfter)
			synctest.Wait()
			restarts, printed := m.seen()
			if len(restarts) != 1+fails || restarts[0].Sub(killed) != restartAfter || !strings.Contains(printed, "Redis of eu runs again.") {
				t.Errorf("kill %d: restarts %v after %v, %q", kill, restarts, killed, printed)
			}
			if fails > 0 && !strings.Contains(printed, "does not start, and is tried again in 10s: port 7090 is taken") {
				t.Errorf("%q", printed)
			}
		}
		cancel()
		wait()
	})
}
