package handlers

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/shared/bounded"
)

// bounds count what is in progress. A request arrives until its journal is there, and runs from then on:
// requests that come slowly take no place of those that run.
type bounds struct {
	limits
	refused func(bounded.Bound)
	bytes   atomic.Int64

	mu       sync.Mutex
	arriving []*invocation // oldest first
	cut      int           // of those that arrived, and have not noticed yet
	run      map[*invocation]struct{}
	over     bool // no invocation waits for input any more
}

// enter tells whether there is room for i among those that run. It cuts the oldest arrival off where too many
// arrive, so that holding back a journal keeps no other caller out. The SDK's core has a megabyte for each until it
// has noticed, so as many may be on their way out as arrive.
func (b *bounds) enter(i *invocation) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.run) >= b.invocations {
		return false
	}
	if len(b.arriving) >= b.limits.arriving {
		if b.cut >= b.limits.arriving {
			return false
		}
		b.cutOff(b.arriving[0])
	}
	b.arriving = append(b.arriving, i)
	return true
}

func (b *bounds) cutOff(i *invocation) {
	i.readUntil(time.Unix(1, 0))
	b.arriving = slices.Delete(b.arriving, 0, 1)
	b.cut++
	i.cut = true
}

// arrived makes i one of those that run, and tells whether its input is over already.
func (b *bounds) arrived(i *invocation) (over bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.remove(i)
	b.run[i] = struct{}{}
	return b.over
}

// suspend ends the input of what runs: an invocation that waits is suspended, and one in a step when that has ended.
func (b *bounds) suspend() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.over = true
	for i := range b.run {
		i.readUntil(time.Unix(1, 0))
	}
}

// left forgets i.
func (b *bounds) left(i *invocation) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.remove(i)
	delete(b.run, i)
}

func (b *bounds) remove(i *invocation) {
	b.arriving = slices.DeleteFunc(b.arriving, func(other *invocation) bool { return other == i })
	if i.cut {
		i.cut = false
		b.cut--
	}
}

// invocation is a request: its body, and the writer of its answer.
type invocation struct {
	http.ResponseWriter
	bounds *bounds
	body   io.ReadCloser
	runs   atomic.Bool
	cut    bool // guarded by bounds.mu

	mu    sync.Mutex
	bytes int64 // read of body
	told  bool  // why it is refused
	ended bool  // the connection is another request's; the SDK may read on all the same
}

// readUntil ends reads that wait for the body at t.
func (i *invocation) readUntil(t time.Time) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if !i.ended {
		_ = http.NewResponseController(i.ResponseWriter).SetReadDeadline(t)
	}
}

// writeUntil ends writes of the answer, which wait for the caller, at t. A test's writer may have no deadlines.
func (i *invocation) writeUntil(t time.Time) {
	_ = http.NewResponseController(i.ResponseWriter).SetWriteDeadline(t)
}

// WriteHeader is the SDK's word that the journal is there, if the status is 200.
func (i *invocation) WriteHeader(status int) {
	switch {
	case status == http.StatusUnauthorized:
		i.refuse(controlplane.BoundIdentity)
	case status == http.StatusOK && i.runs.CompareAndSwap(false, true):
		i.readUntil(time.Now().Add(i.bounds.attempt))
		if i.bounds.arrived(i) {
			i.readUntil(time.Unix(1, 0))
		}
		i.writeUntil(time.Now().Add(i.bounds.attempt + stepMax))
	}
	i.ResponseWriter.WriteHeader(status)
}

// refuse counts the first bound that the request ran into.
func (i *invocation) refuse(bound bounded.Bound) {
	i.mu.Lock()
	first := !i.told
	i.told = true
	i.mu.Unlock()
	if first {
		i.bounds.refused(bound)
	}
}

// Flush is what the SDK asks for by http.Flusher.
func (i *invocation) Flush() { _ = http.NewResponseController(i.ResponseWriter).Flush() }

// Unwrap leads http.ResponseController to the connection.
func (i *invocation) Unwrap() http.ResponseWriter { return i.ResponseWriter }

// Read reads the body. The end of an attempt's time is the end of its input, which suspends the invocation as
// Restate itself does it.
func (i *invocation) Read(p []byte) (int, error) {
	n, err := i.body.Read(p)
	if !i.keep(int64(n)) {
		i.refuse(bounded.BoundMemory)
		return 0, fmt.Errorf("journals of all invocations together are longer than %d bytes", i.bounds.allBytes)
	}
	var long *http.MaxBytesError
	switch late := errors.Is(err, os.ErrDeadlineExceeded); {
	case late && i.runs.Load():
		err = io.EOF
	case late:
		i.refuse(bounded.BoundTime)
	case errors.As(err, &long):
		i.refuse(bounded.BoundBody)
	}
	return n, err
}

// keep counts n bytes more, and tells whether there is room for them.
func (i *invocation) keep(n int64) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.ended {
		return true
	}
	i.bytes += n
	return i.bounds.bytes.Add(n) <= i.bounds.allBytes
}

// Close closes the body.
func (i *invocation) Close() error { return i.body.Close() }

// end gives everything back. net/http reads what is left of a body, for as long as an arrival may take.
func (i *invocation) end() {
	i.bounds.left(i)
	i.readUntil(time.Now().Add(i.bounds.arrival))
	i.mu.Lock()
	defer i.mu.Unlock()
	i.ended = true
	i.bounds.bytes.Add(-i.bytes)
}
