package main

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/deploy/local/stack"
)

// mortal is a server that a test ends.
type mortal struct {
	exited   chan struct{}
	restarts []time.Time
	fails    int // restarts that fail, before one succeeds
}

func (m *mortal) PID() int { return 1 }

func (m *mortal) Exited() <-chan struct{} { return m.exited }

func (m *mortal) Restart(context.Context) error {
	m.restarts = append(m.restarts, time.Now())
	if m.fails > 0 {
		m.fails--
		return errors.New("port 7090 is taken")
	}
	m.exited = make(chan struct{})
	return nil
}

// A server that is killed does not end `make run`: it says what goes on without the server, and starts it again, as
// often as it is killed and even if it does not start at once.
func TestAServerThatIsKilledStartsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		m := &mortal{exited: make(chan struct{})}
		ctx, cancel := context.WithCancel(t.Context())
		wait := keepServers(ctx, &out, []stack.Server{{Mortal: m, Name: "Redis of eu", Without: "Nodes of eu decide alone."}})
		for kill, fails := range []int{0, 2} {
			m.fails, m.restarts = fails, nil
			killed := time.Now()
			close(m.exited)
			time.Sleep(restartAfter - time.Second)
			synctest.Wait()
			if len(m.restarts) != 0 || !strings.Contains(out.String(), "\nRedis of eu has ended. Nodes of eu decide alone. It starts again in 10s.\n") {
				t.Errorf("kill %d, after 9 s: restarts %v, %q", kill, m.restarts, out.String())
			}
			time.Sleep(time.Duration(1+fails) * restartAfter)
			synctest.Wait()
			if len(m.restarts) != 1+fails || m.restarts[0].Sub(killed) != restartAfter || !strings.Contains(out.String(), "Redis of eu runs again.") {
				t.Errorf("kill %d: restarts %v after %v, %q", kill, m.restarts, killed, out.String())
			}
			if fails > 0 && !strings.Contains(out.String(), "does not start, and is tried again in 10s: port 7090 is taken") {
				t.Errorf("%q", out.String())
			}
			out.Reset()
		}
		cancel()
		wait()
	})
}
