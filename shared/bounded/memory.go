package bounded

import (
	"context"
	"runtime/debug"
	"slices"
	"sync"
	"time"
)

const (
	// graceMin is how long a call may keep the server waiting before it is cut off in favor of
	// another one. Messages of some hundred bytes arrive with their headers.
	graceMin = 250 * time.Millisecond

	// waitMax bounds how long a call waits for memory before it is shed.
	waitMax = time.Second

	// waitersMax bounds the calls that do. Nothing of them has been read. A further one takes the
	// place of one of the caller's that has the most.
	waitersMax = 1024
)

// Memory is what calls hold together: bodies that arrive, bodies that are worked on, answers
// that callers have not read. One caller holds at most half of it.
type Memory struct {
	kind Kind
	most int64

	mu             sync.Mutex
	used           int64
	going          int64 // the part of used that is held by calls that were cut off and have not ended yet
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
	listed, gone bool // gone: the call was cut off while it waited for its caller
	going        bool // counted in going: its bytes will be returned soon
	older, newer *Hold
}

// Cutter is called when a call is cut off that waits for its caller: to read more of it, or to
// take its answer. It may be called at any time until the Hold's Work or Give returns, must not
// block, and must make that waiting end.
type Cutter interface{ Cut() }

type waiter struct {
	hold  *Hold
	more  int64
	ready chan struct{} // closed when it waits no longer
	shed  bool          // without what it waits for; guarded by the Memory's mu until ready is closed
}

// Kind names a memory, or a set of slots, that callers share by parts.
type Kind int

// The kinds. A server has one Memory and one Slots of each at most.
const (
	Calls Kind = iota
	Streams
	Probes
	Scrapes
	Profiles
	kinds
)

// NewMemory makes a Memory of so many bytes.
func NewMemory(kind Kind, most int64) *Memory { return &Memory{kind: kind, most: most} }

// Take takes n bytes for a call that waits for its caller from now on. When they are in use it
// waits for them, for a second at most, while those are cut off that have waited longest.
func (m *Memory) Take(ctx context.Context, h *Hold, n int64) error {
	h.memory, h.since, h.gone = m, time.Now(), false
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
	if n > m.most/2 || len(m.waiting) >= waitersMax && !m.shedOne(h.Caller) {
		m.mu.Unlock()
		return m.full()
	}
	w := &waiter{hold: h, more: n, ready: make(chan struct{})}
	m.waiting = append(m.waiting, w)
	m.serve()
	m.mu.Unlock()
	return m.wait(ctx, w)
}

// shedOne makes a place among those who wait: the one that came last of the caller that has the
// most of them is shed, unless c has as many.
func (m *Memory) shedOne(c *Caller) bool {
	count := make(map[*Caller]int)
	var most *Caller
	for _, w := range m.waiting {
		if count[w.hold.Caller]++; count[w.hold.Caller] > count[most] {
			most = w.hold.Caller
		}
	}
	if count[c]+1 >= count[most] {
		return false
	}
	for i := len(m.waiting) - 1; ; i-- {
		if w := m.waiting[i]; w.hold.Caller == most {
			m.waiting = slices.Delete(m.waiting, i, i+1)
			w.shed = true
			close(w.ready)
			return true
		}
	}
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
			return m.outcome(w)
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

// outcome is that of a waiter that waits no longer.
func (m *Memory) outcome(w *waiter) error {
	if w.shed {
		return m.full()
	}
	return nil
}

// leave is nil if w got what it waited for at the last moment.
func (m *Memory) leave(w *waiter, err error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if i := slices.Index(m.waiting, w); i >= 0 {
		m.waiting = slices.Delete(m.waiting, i, i+1)
		m.serve()
		return err
	}
	return m.outcome(w)
}

// cutOldest cuts off calls to free the bytes that w waits for. It takes the caller that holds the
// most first, and of its calls the one that has waited longest, so a caller with one call does not
// pay for callers with many. If w's own caller has used up its part, only calls of that caller are
// cut off. Their bytes return to the Memory when they end.
func (m *Memory) cutOldest(w *waiter) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := w.hold.Caller
	if c == nil || m.cut(w, true, m.stays(c)+w.more-m.most/2) {
		m.cut(w, false, m.used-m.going+w.more-m.most)
	}
}

// cut cuts off calls until they hold `missing` bytes together. It reports whether it found enough
// of them.
func (m *Memory) cut(w *waiter, ownOnly bool, missing int64) bool {
	for now := time.Now(); missing > 0; {
		h := m.nextToCut(w, ownOnly, now)
		if h == nil {
			return false
		}
		missing -= h.n
		h.gone = true
		m.count(h, true)
		h.Cutter.Cut()
	}
	return true
}

func (m *Memory) nextToCut(w *waiter, ownOnly bool, now time.Time) (next *Hold) {
	for h := m.oldest; h != nil && now.Sub(h.since) >= graceMin; h = h.newer {
		switch {
		case h == w.hold || h.gone || ownOnly && h.Caller != w.hold.Caller:
		case ownOnly:
			return h
		case next == nil || m.stays(h.Caller) > m.stays(next.Caller):
			next = h
		}
	}
	return next
}

// stays returns the bytes that a caller holds without its calls that were cut off, or 0 without a
// caller.
func (m *Memory) stays(c *Caller) int64 {
	if c == nil {
		return 0
	}
	return c.bytes[m.kind] - c.going[m.kind]
}

// count adds h's bytes to going, or takes them off.
func (m *Memory) count(h *Hold, going bool) {
	if h.going == going {
		return
	}
	n := h.n
	if h.going = going; !going {
		n = -n
	}
	m.addGoing(h, n)
}

func (m *Memory) addGoing(h *Hold, n int64) {
	m.going += n
	if h.Caller != nil {
		h.Caller.going[m.kind] += n
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
	if h.going {
		m.addGoing(h, n)
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
	if h.going {
		m.addGoing(h, -n)
	}
	if len(m.waiting) > 0 {
		m.serve()
	}
}

// serve gives to those who wait: first to the one whose caller holds least, and of several in their
// order. Only one whose caller has its part already does not keep the others waiting.
func (m *Memory) serve() {
	for {
		next := -1
		for i, w := range m.waiting {
			if (next < 0 || m.heldBy(w) < m.heldBy(m.waiting[next])) && m.heldBy(w)+w.more <= m.most/2 {
				next = i
			}
		}
		if next < 0 || m.used+m.waiting[next].more > m.most {
			return
		}
		w := m.waiting[next]
		m.waiting = slices.Delete(m.waiting, next, next+1)
		m.give(w.hold, w.more)
		close(w.ready)
	}
}

// heldBy is what a waiter's caller holds; 0 without a caller.
func (m *Memory) heldBy(w *waiter) int64 {
	if w.hold.Caller == nil {
		return 0
	}
	return w.hold.Caller.bytes[m.kind]
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
	if m == nil {
		return
	}
	m.mu.Lock()
	m.unlist(h)
	m.count(h, false)
	m.takeBack(h, max(0, h.n-n))
	m.mu.Unlock()
}

// Shrink gives back all but n bytes of the Hold while its call still waits for its caller. n must
// not exceed what it holds.
func (h *Hold) Shrink(n int64) {
	m := h.memory
	m.mu.Lock()
	defer m.mu.Unlock()
	m.takeBack(h, max(0, h.n-n))
}

// Send holds n bytes for a call that waits for its caller from now on. The answer of a call that held
// something exists already, so that they may be more than are left, by a quarter; a call that was refused
// before it held anything takes no room from those that wait for it. Beyond that Send returns false and holds
// nothing: the answer is not to be sent.
func (h *Hold) Send(n int64) bool {
	m := h.memory
	if m == nil {
		return true // refused before it held anything
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	h.since, h.gone = time.Now(), false
	m.unlist(h)
	m.count(h, false)
	if h.n == 0 && (len(m.waiting) > 0 || !m.fits(h, n)) {
		return false
	}
	m.takeBack(h, h.n)
	if m.used+n > m.most/4*5 || h.Caller != nil && h.Caller.bytes[m.kind]+n > m.most/8*5 {
		return false
	}
	m.give(h, n)
	return true
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
	m.count(h, false)
	m.takeBack(h, h.n)
	m.mu.Unlock()
}

func (h *Hold) holds() bool {
	if h.memory == nil {
		return false
	}
	h.memory.mu.Lock()
	defer h.memory.mu.Unlock()
	return h.n > 0
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
