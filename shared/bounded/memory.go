package bounded

import (
	"context"
	"runtime/debug"
	"slices"
	"sync"
	"time"
)

const (
	// graceMin is the time for which a call can keep the server waiting before it is cut off in favor of another call.
	// Messages of some hundred bytes arrive with their headers.
	graceMin = 250 * time.Millisecond

	// waitMax bounds the time for which a call waits for memory before it is shed.
	waitMax = time.Second

	// waitersMax bounds the number of calls that wait for memory. Nothing of them has been read. A further call replaces a
	// waiting call of the caller with the most waiting calls.
	waitersMax = 1024
)

// Memory is the memory that calls hold together: bodies that arrive, bodies in work, and responses that callers have
// not read. A single caller holds at most half of it.
type Memory struct {
	kind Kind
	most int64

	mu             sync.Mutex
	used           int64
	going          int64 // the part of used of calls that were cut off and have not ended yet
	oldest, newest *Hold // calls that wait for their callers, by how long they have waited
	waiting        []*waiter
	spiked         bool // since Settle
}

// Hold is a call's part of a Memory, and of its caller's part. The zero Hold holds nothing; set Caller and Cutter
// before Take. Only one goroutine at a time may use a Hold, except for Give.
type Hold struct {
	Caller *Caller // nil: counts for no caller
	Cutter Cutter

	memory       *Memory
	n            int64
	since        time.Time
	listed, gone bool // gone: the call was cut off while it waited for its caller
	going        bool // counted in going: its bytes will return soon
	older, newer *Hold
}

// Cutter cuts off a call that waits for its caller, either to read more or to send its response. Cut can be called at
// any time until the Hold's Work or Give returns. It must not block, and must end the waiting.
type Cutter interface{ Cut() }

type waiter struct {
	hold  *Hold
	more  int64
	ready chan struct{} // closed when the wait ends
	shed  bool          // ended without memory; guarded by the Memory's mu until ready is closed
}

// Kind identifies a Memory or Slots that callers share.
type Kind int

// The kinds. A server has at most one Memory and one Slots of each kind.
const (
	Calls Kind = iota
	Streams
	Probes
	Scrapes
	Profiles
	kinds
)

// NewMemory returns a Memory of most bytes.
func NewMemory(kind Kind, most int64) *Memory { return &Memory{kind: kind, most: most} }

// Take takes n bytes for a call that waits for its caller from now on. If the bytes are in use, Take waits at most a
// second, while calls that have waited longest for their callers are cut off.
func (m *Memory) Take(ctx context.Context, h *Hold, n int64) error {
	h.memory, h.since, h.gone = m, time.Now(), false
	return m.take(ctx, h, n)
}

// Grow takes n more bytes.
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

// shedOne makes room among the waiting calls: it sheds the newest waiting call of the caller with the most waiting
// calls, unless c has as many.
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

// wait cuts off calls that have kept the server waiting, until w has its bytes.
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

// outcome returns the result of a waiter whose wait has ended.
func (m *Memory) outcome(w *waiter) error {
	if w.shed {
		return m.full()
	}
	return nil
}

// leave ends a wait. It returns nil if w got its bytes at the last moment.
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

// cutOldest cuts off calls to free the bytes that w waits for. It begins with the caller that holds the most, and with
// its call that has waited longest, so that a caller with a single call does not pay for callers with many. If w's own
// caller has used up its part, only calls of that caller are cut off. Their bytes return to the Memory when they end.
func (m *Memory) cutOldest(w *waiter) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := w.hold.Caller
	if c == nil || m.cut(w, true, m.stays(c)+w.more-m.most/2) {
		m.cut(w, false, m.used-m.going+w.more-m.most)
	}
}

// cut cuts off calls until they hold `missing` bytes together. It reports whether it found enough calls.
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

// stays returns the bytes that a caller holds without its calls that were cut off, or 0 for a nil caller.
func (m *Memory) stays(c *Caller) int64 {
	if c == nil {
		return 0
	}
	return c.bytes[m.kind] - c.going[m.kind]
}

// count adds h's bytes to going, or subtracts them.
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

// serve gives bytes to waiting calls: first to the call whose caller holds least, and for equal callers in their order.
// A call whose caller has used up its part does not delay the others.
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

// heldBy returns the bytes that a waiter's caller holds, or 0 without a caller.
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

// Work keeps n bytes, at most the bytes that are held, for a call that no longer waits for its caller. The call cannot
// be cut off then.
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

// Shrink gives back all but n bytes of the Hold while its call still waits for its caller. n must not exceed the bytes
// that are held.
func (h *Hold) Shrink(n int64) {
	m := h.memory
	m.mu.Lock()
	defer m.mu.Unlock()
	m.takeBack(h, max(0, h.n-n))
}

// Send holds n bytes for a call that waits for its caller from now on. The response of a call that held bytes exists
// already, so Send can exceed the Memory by a quarter for it. A call that was rejected before it held bytes takes no
// room that others wait for. Above that Send returns false and holds nothing, and the response must not be sent.
func (h *Hold) Send(n int64) bool {
	m := h.memory
	if m == nil {
		return true // rejected before it held anything
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

// Renew restarts the time for which a call has waited for its caller.
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

// WasCut reports whether the call was cut off in favor of another call.
func (h *Hold) WasCut() bool {
	h.memory.mu.Lock()
	defer h.memory.mu.Unlock()
	return h.gone
}

// Give gives everything back. It can be called again for a Hold that holds nothing.
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

// Used returns the number of bytes that are held now.
func (m *Memory) Used() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.used
}

// Busy reports whether more is held than by calls that arrive and are taken without delay.
func (m *Memory) Busy() bool { return m.Used() > m.most/8 }

// Settle returns memory to the system if much was held and little is now, because Go itself keeps it for minutes. Call
// it every few seconds. It reports whether it returned memory.
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
