package bounded

import (
	"context"
	"runtime/debug"
	"sync"
	"time"
)

const (
	// graceMin is how long a call may keep the server waiting before it is cut off in favor of
	// another one. Messages of some hundred bytes arrive with their headers.
	graceMin = 250 * time.Millisecond

	// waitMax bounds how long a call waits for memory before it is shed.
	waitMax = time.Second

	// waitersMax bounds the calls that do. Nothing of them has been read.
	waitersMax = 1024
)

// Memory is what calls hold together: bodies that arrive, bodies that are worked on, answers
// that callers have not read. One caller holds at most half of it.
type Memory struct {
	kind Kind
	most int64

	mu             sync.Mutex
	used           int64
	oldest, newest *Hold // that wait for their callers, by how long they have
	waiting        []*waiter
	spiked         bool // since Settle
}

// Hold is a call's part of a Memory, and of its caller's. The zero Hold holds nothing; fill in
// Caller and Cutter before Take. A Hold is used by one goroutine at a time, except Give.
type Hold struct {
	Caller *Caller // nil: counts for no caller
	Cutter Cutter

	memory       *Memory
	n            int64
	since        time.Time
	listed, gone bool // gone: cut off, and not given back yet
	older, newer *Hold
}

// Cutter is called when a call is cut off that waits for its caller: to read more of it, or to
// take its answer. It may be called at any time until the Hold's Work or Give returns, must not
// block, and must make that waiting end.
type Cutter interface{ Cut() }

type waiter struct {
	hold  *Hold
	more  int64
	ready chan struct{}
}

// Kind tells the memories apart of which callers have a part each.
type Kind int

// The kinds. A server has one Memory of each at most.
const (
	Calls Kind = iota
	Streams
	Probes
	kinds
)

// NewMemory makes a Memory of so many bytes.
func NewMemory(kind Kind, most int64) *Memory { return &Memory{kind: kind, most: most} }

// Take takes n bytes for a call that waits for its caller from now on. When they are in use it
// waits for them, for a second at most, while those are cut off that have waited longest.
func (m *Memory) Take(ctx context.Context, h *Hold, n int64) error {
	h.memory, h.since = m, time.Now()
	return m.take(ctx, h, n)
}

// Grow takes n bytes more.
func (h *Hold) Grow(ctx context.Context, n int64) error { return h.memory.take(ctx, h, n) }

func (m *Memory) take(ctx context.Context, h *Hold, n int64) error {
	m.mu.Lock()
	if len(m.waiting) == 0 && m.fits(h, n) {
		m.give(h, n)
		m.mu.Unlock()
		return nil
	}
	if len(m.waiting) >= waitersMax || n > m.most/2 {
		m.mu.Unlock()
		return m.full()
	}
	w := &waiter{h, n, make(chan struct{})}
	m.waiting = append(m.waiting, w)
	m.serve()
	m.mu.Unlock()
	return m.wait(ctx, w)
}

// wait cuts off those that have kept the server waiting, until w has what it waits for.
func (m *Memory) wait(ctx context.Context, w *waiter) error {
	patience := time.NewTimer(waitMax)
	defer patience.Stop()
	look := time.NewTicker(graceMin / 4)
	defer look.Stop()
	for {
		m.cutOldest(w)
		select {
		case <-w.ready:
			return nil
		case <-look.C:
		case <-ctx.Done():
			return m.leave(w, context.Cause(ctx))
		case <-patience.C:
			return m.leave(w, m.full())
		}
	}
}

func (m *Memory) full() error {
	return refuse(BoundMemory, "calls in flight hold more than %d bytes on this server", m.most)
}

// leave is nil if w got what it waited for at the last moment.
func (m *Memory) leave(w *waiter, err error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, other := range m.waiting {
		if other == w {
			m.waiting = append(m.waiting[:i], m.waiting[i+1:]...)
			m.serve()
			return err
		}
	}
	return nil
}

// cutOldest cuts off calls that hold what w waits for, those that have waited longest first: its
// own caller's where it is that caller's part that is in use. What they hold comes back when they
// have noticed.
func (m *Memory) cutOldest(w *waiter) {
	m.mu.Lock()
	defer m.mu.Unlock()
	ownOnly := m.used+w.more <= m.most
	for h, n, now := m.oldest, w.more, time.Now(); h != nil && n > 0 && now.Sub(h.since) >= graceMin; h = h.newer {
		if h == w.hold || ownOnly && h.Caller != w.hold.Caller {
			continue
		}
		if n -= h.n; !h.gone {
			h.gone = true
			h.Cutter.Cut()
		}
	}
}

func (m *Memory) fits(h *Hold, n int64) bool {
	return m.used+n <= m.most && (h.Caller == nil || h.Caller.bytes[m.kind]+n <= m.most/2)
}

func (m *Memory) give(h *Hold, n int64) {
	h.n += n
	m.used += n
	if h.Caller != nil {
		h.Caller.bytes[m.kind] += n
	}
	m.spiked = m.spiked || m.used > m.most/4
	if !h.listed {
		m.list(h)
	}
}

func (m *Memory) takeBack(h *Hold, n int64) {
	h.n -= n
	m.used -= n
	if h.Caller != nil {
		h.Caller.bytes[m.kind] -= n
	}
	if len(m.waiting) > 0 {
		m.serve()
	}
}

// serve gives to those who wait, in their order. Only one whose caller has its part already does
// not keep the others waiting.
func (m *Memory) serve() {
	kept := m.waiting[:0]
	for i, w := range m.waiting {
		if m.used+w.more > m.most {
			kept = append(kept, m.waiting[i:]...)
			break
		}
		if m.fits(w.hold, w.more) {
			m.give(w.hold, w.more)
			close(w.ready)
		} else {
			kept = append(kept, w)
		}
	}
	clear(m.waiting[len(kept):])
	m.waiting = kept
}

func (m *Memory) list(h *Hold) {
	h.listed, h.older = true, m.newest
	if m.newest != nil {
		m.newest.newer = h
	} else {
		m.oldest = h
	}
	m.newest = h
}

func (m *Memory) unlist(h *Hold) {
	if !h.listed {
		return
	}
	if h.older != nil {
		h.older.newer = h.newer
	} else {
		m.oldest = h.newer
	}
	if h.newer != nil {
		h.newer.older = h.older
	} else {
		m.newest = h.older
	}
	h.listed, h.older, h.newer = false, nil, nil
}

// Work keeps n of the bytes, at most what is held, for a call that no longer waits for its
// caller: it is not cut off.
func (h *Hold) Work(n int64) {
	m := h.memory
	m.mu.Lock()
	m.unlist(h)
	m.takeBack(h, max(0, h.n-n))
	m.mu.Unlock()
}

// Send holds n bytes, whether or not they are left, for a call that waits for its caller from
// now on: its answer exists already.
func (h *Hold) Send(n int64) {
	m := h.memory
	if m == nil {
		return // refused before it held anything
	}
	m.mu.Lock()
	h.since = time.Now()
	m.takeBack(h, h.n)
	m.give(h, n)
	m.mu.Unlock()
}

// Renew makes a call one that waits for its caller from now on.
func (h *Hold) Renew() {
	m := h.memory
	m.mu.Lock()
	h.since = time.Now()
	if h.listed {
		m.unlist(h)
		m.list(h)
	}
	m.mu.Unlock()
}

// WasCut tells whether the call was cut off in favor of another one.
func (h *Hold) WasCut() bool {
	h.memory.mu.Lock()
	defer h.memory.mu.Unlock()
	return h.gone
}

// Give gives everything back. A Hold that holds nothing may be given back again.
func (h *Hold) Give() {
	m := h.memory
	if m == nil {
		return
	}
	m.mu.Lock()
	m.unlist(h)
	m.takeBack(h, h.n)
	m.mu.Unlock()
}

// Used is how many bytes are held now.
func (m *Memory) Used() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.used
}

// Busy tells whether more is held than calls hold that are read at once and answered at once.
func (m *Memory) Busy() bool { return m.Used() > m.most/8 }

// Settle gives memory back to the system when much of it was held and no longer is: Go by itself
// keeps it for minutes. Call it every few seconds. It tells whether it did.
func (m *Memory) Settle() bool {
	m.mu.Lock()
	over := m.spiked && m.used <= m.most/16
	if over {
		m.spiked = false
	}
	m.mu.Unlock()
	if over {
		debug.FreeOSMemory()
	}
	return over
}
