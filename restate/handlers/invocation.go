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

// bounds count the requests in progress. A request is arriving until its journal is complete, and is running from then
// on. Slow arrivals do not use up the places of running requests.
type bounds struct {
	limits
	refused func(bounded.Bound)
	bytes   atomic.Int64

	mu       sync.Mutex
	arriving []*invocation // oldest first
	cut      int           // of the requests that were cut off, but have not noticed yet
	run      map[*invocation]struct{}
	over     bool // no invocation waits for input any more
}

// enter reports whether there is room for i. If too many requests are arriving, it cuts off the oldest, so that a
// caller that holds back journals cannot keep other callers out. The SDK's core keeps a megabyte for each cut-off
// request until it notices, so their number is bounded as well.
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

// arrived moves i to the running requests, and reports whether their input has already ended.
func (b *bounds) arrived(i *invocation) (over bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.remove(i)
	b.run[i] = struct{}{}
	return b.over
}

// suspend ends the input of all running requests. A waiting invocation is suspended at once, and an invocation in a
// step when the step has ended.
func (b *bounds) suspend() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.over = true
	for i := range b.run {
		i.readUntil(time.Unix(1, 0))
	}
}

// left removes i.
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

// invocation is a request: its body, and the writer of its response.
type invocation struct {
	http.ResponseWriter
	bounds *bounds
	body   io.ReadCloser
	runs   atomic.Bool
	cut    bool // guarded by bounds.mu

	mu    sync.Mutex
	bytes int64 // read from body
	told  bool  // a reason for its rejection was counted
	ended bool  // the connection has another request; the SDK may still read
}

// readUntil sets the deadline of reads of the body to t.
func (i *invocation) readUntil(t time.Time) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if !i.ended {
		_ = http.NewResponseController(i.ResponseWriter).SetReadDeadline(t)
	}
}

// writeUntil sets the deadline of writes of the response, which wait for the caller, to t. A test's writer may not
// support deadlines.
func (i *invocation) writeUntil(t time.Time) {
	_ = http.NewResponseController(i.ResponseWriter).SetWriteDeadline(t)
}

// WriteHeader also marks the journal as complete if the status is 200, because the SDK sends that status then.
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

// refuse counts the first bound that the request exceeds.
func (i *invocation) refuse(bound bounded.Bound) {
	i.mu.Lock()
	first := !i.told
	i.told = true
	i.mu.Unlock()
	if first {
		i.bounds.refused(bound)
	}
}

// Flush implements http.Flusher, which the SDK needs.
func (i *invocation) Flush() { _ = http.NewResponseController(i.ResponseWriter).Flush() }

// Unwrap lets http.ResponseController find the connection.
func (i *invocation) Unwrap() http.ResponseWriter { return i.ResponseWriter }

// Read reads the body. The end of an attempt's time is the end of its input, which suspends the invocation as Restate
// itself does.
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

// keep counts n further bytes, and reports whether there is room for them.
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

// end releases everything. net/http still reads the rest of a body, for as long as an arrival may take.
func (i *invocation) end() {
	i.bounds.left(i)
	i.readUntil(time.Now().Add(i.bounds.arrival))
	i.mu.Lock()
	defer i.mu.Unlock()
	i.ended = true
	i.bounds.bytes.Add(-i.bytes)
}
