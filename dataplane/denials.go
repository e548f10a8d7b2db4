package dataplane

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirhq/weir/dataplane/internal/cell"
	"github.com/weirhq/weir/dataplane/internal/topk"
)

// A denial leaves no count behind, so denials are sampled on their own way out, for
// TopDenied. Each stripe takes the first few of a millisecond as they are, and of a flood
// one in deniedSampleEvery, which then stands for all since the one before. Samples go
// into a sketch of deniedKeys keys; see there for what it may miss.

const (
	deniedKeys        = 512
	deniedSampleEvery = 509 // a prime: callers who take turns are not in step with it
	deniedExact       = 16  // of a stripe and millisecond
	deniedSpan        = time.Minute
)

// top is what a limiter keeps for TopKeys.
type top struct {
	walking sync.Mutex
	restEnd time.Time // under walking

	// held for some hundred nanoseconds, or by TopKeys for some microseconds; denials never wait for it
	mu             sync.Mutex
	recent, before *topk.Sketch[cell.Identity, denials]
	recentMs       int64 // when recent began; 0: never
	beforeMs       int64

	reportedMs atomic.Int64 // when a heartbeat last reported keys
}

// denials is what is remembered of a denied key.
type denials struct {
	names cell.Names
	limit int64
}

// tally takes note of a denial that has been counted, the nth of its kind on its stripe,
// of e if the key is held. It writes nothing to memory while a flood is only sampled.
func (l *Limiter) tally(e *cell.Entry, c *call, n int64) {
	if s := c.counts; s.exactLeft.Load() > 0 || s.deniedMs.Load() != c.nowMs || n%deniedSampleEvery == 0 {
		l.takeSample(e, c)
	}
}

func (l *Limiter) takeSample(e *cell.Entry, c *call) {
	s := c.counts
	if s.deniedMs.Load() != c.nowMs {
		s.deniedMs.Store(c.nowMs)
		s.exactLeft.Store(deniedExact)
	}
	if left := s.exactLeft.Load(); left > 0 {
		s.exactLeft.Store(left - 1)
	}
	l.sample(e, c)
}

// sample counts a denial for all of its stripe since the last sample. Where the sketch is
// busy a later one stands for this one too.
func (l *Limiter) sample(e *cell.Entry, c *call) {
	t := &l.top
	if !t.mu.TryLock() {
		return
	}
	defer t.mu.Unlock()
	n := c.counts.denials()
	weight := n - c.counts.sampled
	if weight <= 0 { // another goroutine on the stripe was faster
		return
	}
	c.counts.sampled = n
	t.turnLocked(c.nowMs)
	d, fresh := t.recent.Add(*c.id, weight)
	d.limit = c.limit
	if !fresh {
		return
	}
	if e != nil {
		d.names = *e.Names()
		return
	}
	key := c.key()
	d.names = l.table.NamesOf(&key, nil)
}

// turnLocked begins a new span when the recent one is over.
func (t *top) turnLocked(nowMs int64) {
	span := deniedSpan.Milliseconds()
	switch age := nowMs - t.recentMs; {
	case t.recent == nil:
		t.recent, t.before = topk.New[cell.Identity, denials](deniedKeys), topk.New[cell.Identity, denials](deniedKeys)
		t.recentMs, t.beforeMs = nowMs, nowMs
	case age >= 2*span:
		t.recent.Clear()
		t.before.Clear()
		t.recentMs, t.beforeMs = nowMs, nowMs
	case age >= span:
		t.recent, t.before = t.before, t.recent
		t.recent.Clear()
		t.beforeMs, t.recentMs = t.recentMs, nowMs
	}
}

func (l *Limiter) denials(q *TopQuery, nowMs int64) TopKeys {
	answer := l.top.denied(q, nowMs)
	l.settings.Load().enforce(answer.Keys)
	return answer
}

func (t *top) denied(q *TopQuery, nowMs int64) TopKeys {
	t.mu.Lock()
	defer t.mu.Unlock()
	answer := TopKeys{At: time.UnixMilli(nowMs), Since: time.UnixMilli(nowMs)}
	if t.recent == nil {
		return answer
	}
	t.turnLocked(nowMs)
	answer.Since = time.UnixMilli(t.beforeMs)
	found := ranking{limit: q.Limit}
	add := func(c *topk.Counter[cell.Identity, denials], other *topk.Sketch[cell.Identity, denials], once bool) {
		f := c.Value.names.Family()
		if !q.wants(&f) {
			return
		}
		count, more := c.Count-c.Over, c.Over
		if o := other.Find(c.Key); o == nil {
			more += other.Least()
		} else if once {
			return
		} else {
			count, more = count+o.Count-o.Over, more+o.Over
		}
		found.add(TopKey{Workspace: f.Workspace, Namespace: f.Namespace, Identifier: c.Value.names.Identifier(),
			Duration: milliseconds(f.DurationMs), Limit: c.Value.limit, Count: count, More: more})
	}
	t.recent.Each(func(c *topk.Counter[cell.Identity, denials]) { add(c, t.before, false) })
	t.before.Each(func(c *topk.Counter[cell.Identity, denials]) { add(c, t.recent, true) })
	answer.Keys = found.keys
	return answer
}
