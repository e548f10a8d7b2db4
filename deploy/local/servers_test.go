package main

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// mortal is a server that ends when a test ends it, and fails to start the given number of times.
type mortal struct {
	exited   chan struct{}
	failures int
	starts   []time.Duration
	began    time.Time
}

func (m *mortal) Exited() <-chan struct{} { return m.exited }

func (m *mortal) Restart(context.Context) error {
	m.starts = append(m.starts, time.Since(m.began))
	if m.failures > 0 {
		m.failures--
		return errors.New("port already in use")
	}
	m.exited = make(chan struct{})
	return nil
}

// A server that ends does not end the others: it stays away for ten seconds, in which decisions can be seen to go on,
// and is started again, as often as it ends.
func TestServersThatEndAreStartedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		redis := &mortal{exited: make(chan struct{}), failures: 1, began: time.Now()}
		other := &mortal{exited: make(chan struct{}), began: time.Now()}
		var printed bytes.Buffer
		wait := keepServers(ctx, &printed, map[string]server{"Redis of eu": redis, "Restate": other})
		close(redis.exited)
		time.Sleep(25 * time.Second)
		synctest.Wait()
		close(redis.exited)
		time.Sleep(15 * time.Second)
		cancel()
		wait()
		if got := redis.starts; len(got) != 3 || got[0] != 10*time.Second || got[1] != 20*time.Second || got[2] != 35*time.Second {
			t.Errorf("started after %v, want after 10 s, again at 20 s, and at 35 s", got)
		}
		if len(other.starts) != 0 {
			t.Error("a server that runs was started again")
		}
		const want = "\nRedis of eu has ended: nodes still decide without it. It is started again in 10s.\n" +
			"Redis of eu does not start, next attempt in 10s: port already in use\n" +
			"Redis of eu answers again.\n" +
			"\nRedis of eu has ended: nodes still decide without it. It is started again in 10s.\n" +
			"Redis of eu answers again.\n"
		if printed.String() != want {
			t.Errorf("printed %q", printed.String())
		}
	})
}

// spoken is a mortal with a text of its own about its end, which takes a while, as nodes have.
type spoken struct{ *mortal }

func (spoken) ended(context.Context) string {
	time.Sleep(3 * time.Second)
	return "node eu-1 has ended. node eu-2 relays eu."
}

// A node that ends is started again ten seconds later, as the servers are. In that time the node that relays its
// region then is printed.
func TestNodesThatEndAreStartedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		node := &mortal{exited: make(chan struct{}), began: time.Now()}
		var printed bytes.Buffer
		wait := keepServers(ctx, &printed, map[string]server{"node eu-1": spoken{node}})
		close(node.exited)
		time.Sleep(15 * time.Second)
		cancel()
		wait()
		const want = "\nnode eu-1 has ended. node eu-2 relays eu. It is started again in 7s.\nnode eu-1 answers again.\n"
		if len(node.starts) != 1 || node.starts[0] != 10*time.Second || printed.String() != want {
			t.Errorf("started after %v, printed %q", node.starts, printed.String())
		}
	})
}
