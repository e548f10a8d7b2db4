// Package denied remembers which keys are denied most, for a minute or two.
package denied

import (
	"sync"
	"time"

	"github.com/weirhq/weir/dataplane/internal/cell"
	"github.com/weirhq/weir/dataplane/internal/clock"
	"github.com/weirhq/weir/dataplane/internal/topk"
)

const (
	keys = 512
	span = time.Minute
)

// Log lists denied keys. It has a sketch of the current span, and a sketch of the span before. Spans follow the steady
// clock, so a step of the wall clock neither keeps keys for longer nor drops them. The zero Log is empty.
type Log struct {
	// held for some hundred nanoseconds, or by Each for some microseconds; Add never waits for it
	mu             sync.Mutex
	recent, before *topk.Sketch[cell.Identity, denial]
	recentAt       clock.Steady // when recent began; 0: never
	beforeAt       clock.Steady
}

// denial is the record of a denied key.
type denial struct {
	names cell.Names
	limit int64
}

// Add counts denials of a key. It gets the number from weigh, and for a new key the names from names, both under the
// Log's mutex. If the Log is busy, Add does nothing: a later call can count the denials.
func (l *Log) Add(id cell.Identity, now clock.Steady, limit int64, weigh func() int64, names func() cell.Names) {
	if !l.mu.TryLock() {
		return
	}
	defer l.mu.Unlock()
	if weight := weigh(); weight > 0 { // otherwise another goroutine was faster
		l.addLocked(id, now, limit, weight, names)
	}
}

// AddOne counts a denial of a key. It waits if the Log is busy, because no later call counts this denial.
func (l *Log) AddOne(id cell.Identity, now clock.Steady, limit int64, names func() cell.Names) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.addLocked(id, now, limit, 1, names)
}

func (l *Log) addLocked(id cell.Identity, now clock.Steady, limit, weight int64, names func() cell.Names) {
	l.turnLocked(now)
	d, fresh := l.recent.Add(id, weight)
	if d.limit = limit; fresh {
		d.names = names()
	}
}

// turnLocked begins a new span when the recent span is over.
func (l *Log) turnLocked(now clock.Steady) {
	span := clock.Steady(span.Milliseconds())
	switch age := now - l.recentAt; {
	case l.recent == nil:
		l.recent, l.before = topk.New[cell.Identity, denial](keys), topk.New[cell.Identity, denial](keys)
		l.recentAt, l.beforeAt = now, now
	case age >= 2*span:
		l.recent.Clear()
		l.before.Clear()
		l.recentAt, l.beforeAt = now, now
	case age >= span:
		l.recent, l.before = l.before, l.recent
		l.recent.Clear()
		l.beforeAt, l.recentAt = l.recentAt, now
	}
}

// Key is a key that was denied.
type Key struct {
	Names *cell.Names
	Limit int64 // of its last sample
	Count int64 // of denials, at least
	More  int64 // how many more it may be
}

// Each calls f with all keys. It returns the time since which they were denied, or 0 if no key ever
// was.
func (l *Log) Each(now clock.Steady, f func(*Key)) (since clock.Steady) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.recent == nil {
		return 0
	}
	l.turnLocked(now)
	each := func(c *topk.Counter[cell.Identity, denial], other *topk.Sketch[cell.Identity, denial], once bool) {
		k := Key{Names: &c.Value.names, Limit: c.Value.limit, Count: c.Count - c.Over, More: c.Over}
		if o := other.Find(c.Key); o == nil {
			k.More += other.Least()
		} else if once {
			return
		} else {
			k.Count, k.More = k.Count+o.Count-o.Over, k.More+o.Over
		}
		f(&k)
	}
	l.recent.Each(func(c *topk.Counter[cell.Identity, denial]) { each(c, l.before, false) })
	l.before.Each(func(c *topk.Counter[cell.Identity, denial]) { each(c, l.recent, true) })
	return l.beforeAt
}
