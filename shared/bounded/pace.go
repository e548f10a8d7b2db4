package bounded

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// A caller that sends more calls than the processors can serve delays the calls of all callers: Go
// runs goroutines in the order in which they become ready, and it looks for data on other
// connections only when no goroutine is ready, or after 10 ms. Pacing bounds that delay. While the
// processors are that busy, the connections and streams of a caller that sends much take turns.
// Each waits until the goroutines that became ready before it have run, and rests for a moment if
// there were many, so that Go looks at the other connections. Meanwhile the caller's data stays in
// the kernel's buffers, and TCP slows the caller down.
//
// Pacing does not affect callers that send little, or a caller that is the only caller. A turn lasts at most restMax,
// so a paced caller with n connections and streams can wait n times as long for its next turn.
const (
	paceWindow   = 10 * time.Millisecond
	paceBytesMin = 8 << 10 // within paceWindow: a caller that sends less is not paced; about 80 short calls
	paceReadMax  = 1 << 10 // bytes that a paced connection reads at a time; about ten short calls

	busyAfter = 200 * time.Microsecond // the processors are busy if a goroutine waits longer than this
	probeGap  = time.Millisecond       // between two measurements of that wait
	restFor   = time.Millisecond
	restMax   = 10 * time.Millisecond // the longest turn
)

// pace is a caller's part of pacing. The zero value is ready to use. Times are in nanoseconds since
// the process began.
type pace struct {
	window   atomic.Int64 // the beginning of the current window
	received atomic.Int64 // bytes in that window
	probed   atomic.Int64 // when the wait was last measured
	until    atomic.Int64 // the end of pacing
	turn     sync.Mutex   // held by the connection or stream that can continue next
}

// scheduler is the part of Go's scheduler that pacing uses.
type scheduler struct {
	since func() int64
	yield func() // returns when the goroutines that were ready have run
	sleep func(time.Duration)
}

var goScheduler = scheduler{since: since, yield: runtime.Gosched, sleep: time.Sleep}

// Pace counts n bytes that a stream of the caller received, and delays the stream if the caller is
// paced. Call it for each message, before any work is done for the message. Only callers of Listen's
// connections are paced.
func (c *Caller) Pace(n int) {
	if c != nil && c.among != nil {
		c.arrive(c.among, since(), n)
	}
}

// paced reports whether the caller was paced at a time.
func (c *Caller) paced(now int64) bool { return c.pace.until.Load() > now }

// arrive counts n bytes that arrived at a time, and waits if the caller is paced.
func (c *Caller) arrive(among *Callers, now int64, n int) {
	p := &c.pace
	if begin := p.window.Load(); now-begin >= int64(paceWindow) && p.window.CompareAndSwap(begin, now) {
		p.received.Store(0)
	}
	if p.received.Add(int64(n)) < paceBytesMin || among.connected.Load() < 2 {
		return
	}
	if p.until.Load() > now {
		p.wait(among.scheduler())
		return
	}
	if probed := p.probed.Load(); now-probed >= int64(probeGap) && p.probed.CompareAndSwap(probed, now) {
		p.probe(among.scheduler(), now)
	}
}

// probe measures how long a ready goroutine waits, and paces the caller if that is long.
func (p *pace) probe(s *scheduler, now int64) {
	s.yield()
	if then := s.since(); then-now > int64(busyAfter) {
		p.until.Store(then + int64(paceWindow))
	}
}

// wait takes the turn, and returns when the processors have caught up or the turn has lasted restMax.
func (p *pace) wait(s *scheduler) {
	p.turn.Lock()
	defer p.turn.Unlock()
	for began, now := s.since(), s.since(); now-began < int64(restMax); now = s.since() {
		s.yield()
		then := s.since()
		if then-now <= int64(busyAfter) {
			return
		}
		p.until.Store(then + int64(paceWindow))
		s.sleep(restFor)
	}
}
