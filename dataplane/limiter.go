package dataplane

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirhq/weir/shared/window"
)

// Limiter decides whether requests may pass. All methods may be called
// concurrently. Make one with New; it decides from then on. Start runs the loops
// that carry counts to other nodes and regions; Stop ends them, after a last send.
//
// A Limiter never fails a request because something above it is down: it decides
// from what it knows, and says so in Decision.Source. Decision.Err is only ever
// about the request itself.
type Limiter struct {
	cfg   Config
	table *table

	settings atomic.Pointer[settings]
	dirty    atomic.Pointer[entry] // stack of entries whose counts changed, newest first
	marks    uint32                // flags that a request leaves on its entry; constant

	queues struct {
		sync.Mutex
		replay, flush []*entry
	}
	replaying, flushing, importing sync.Mutex // one step of each at a time

	metrics *metrics
	loops   lifecycle
	calls   callGroup // to the origin, on behalf of decisions
}

// New makes a limiter. It does no I/O: a node starts whether or not the layers
// above are there. Errors name the field of Config at fault.
func New(cfg Config) (*Limiter, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	l := &Limiter{cfg: cfg, table: newTable(cfg.EntriesMax, cfg.Origin != nil), marks: flagTouched}
	if cfg.Origin != nil || cfg.Counts != nil {
		l.marks |= flagDirty
	}
	l.settings.Store(defaultSettings())
	l.metrics = newMetrics(l)
	return l, nil
}

// Allow decides r at the clock's time, and counts its cost if it is allowed.
//
// On a key that this node knows and has heard of lately, that is a look-up, a few
// loads and one compare-and-swap: no lock, no I/O, no allocation. A cold, stale or
// strict key asks the origin first, under Config.ReadTimeout and ctx, unless what
// is known already denies.
func (l *Limiter) Allow(ctx context.Context, r Request) Decision {
	now := l.cfg.Clock()
	d, sampled := l.allow(ctx, now, r)
	if sampled {
		l.metrics.decisionSeconds.Observe(l.cfg.Clock().Sub(now).Seconds())
	}
	return d
}

// AllowAt is Allow at a time of the caller's, at most Config.ClockSkewMax away from
// the clock's. Times of one key may run backwards a little: the key's cell that is
// current stays current.
func (l *Limiter) AllowAt(ctx context.Context, now time.Time, r Request) Decision {
	if err := l.checkTime(now); err != nil {
		return Decision{Err: err}
	}
	d, _ := l.allow(ctx, now, r)
	return d
}

// Peek answers as Allow would for a cost of 0, and counts nothing.
func (l *Limiter) Peek(ctx context.Context, r Request) Decision {
	r.Cost = 0
	return l.Allow(ctx, r)
}

func (l *Limiter) checkTime(now time.Time) error {
	clock := l.cfg.Clock()
	if skew := now.Sub(clock).Abs(); skew > l.cfg.ClockSkewMax {
		return fmt.Errorf("%w: now is %v away from the clock (at most %v)", ErrInvalid, skew, l.cfg.ClockSkewMax)
	}
	return nil
}

// allow is the whole request path: validate → override → entry → (refresh) → judge
// → answer.
func (l *Limiter) allow(ctx context.Context, now time.Time, r Request) (d Decision, sampled bool) {
	if err := r.Validate(); err != nil {
		return Decision{Err: err}, false
	}
	set := l.settings.Load()
	rule := set.resolve(&r)
	nowMs := now.UnixMilli()
	key := window.Key{Workspace: r.Workspace, Namespace: r.Namespace, Identifier: r.Identifier, Duration: r.Duration}
	durationMs := key.DurationMs()

	for {
		e := l.table.get(key)
		tracked := true
		if e == nil {
			if r.Cost > r.Limit {
				return l.oversized(r, rule, nowMs), false
			}
			e, tracked = l.table.add(key, sequenceAt(nowMs, durationMs), nowMs, &l.table.created.traffic)
		}
		source, alive := SourceLocal, true
		if l.cfg.Origin != nil && e.wantsRefresh(nowMs, set.freshForMs) {
			source, alive = l.refreshFor(ctx, e, nowMs, r)
		}
		var v verdict
		if alive {
			v, alive = e.judge(nowMs, durationMs, r.Limit, r.Cost, true)
		}
		if !alive {
			continue // evicted meanwhile: look the key up again
		}
		if !v.allowed {
			l.denied(e, nowMs, r)
		} else if r.Cost > 0 {
			l.accepted(e, tracked, v.seq, r)
		}
		d, outcome := decide(v, r, nowMs, durationMs).ruled(rule)
		d.Source = source
		return d, l.metrics.decided(e.stripe, source, outcome)
	}
}

// oversized answers a cost above the limit on a key that is not held: denied
// whatever is known elsewhere, and nothing to remember.
func (l *Limiter) oversized(r Request, by rule, nowMs int64) Decision {
	durationMs := r.Duration.Milliseconds()
	v := verdict{seq: sequenceAt(nowMs, durationMs), tMs: nowMs}
	d, outcome := decide(v, r, nowMs, durationMs).ruled(by)
	d.Source = SourceLocal
	l.metrics.decided(0, SourceLocal, outcome)
	return d
}

// accepted marks an entry whose count has grown. What was accepted on an entry that
// the full table could not take is answered, but lost to others.
func (l *Limiter) accepted(e *entry, tracked bool, sequence int64, r Request) {
	if !tracked {
		l.metrics.dropped[droppedFull].Add(r.Cost)
		return
	}
	if r.Limit < e.limitLow[slotOf(sequence)].Load() {
		e.noteLimit(sequence, r.Limit)
	}
	if e.flags.Load()&l.marks != l.marks {
		l.mark(e, l.marks)
	}
}

// denied makes the key strict. A denial changes no count.
func (l *Limiter) denied(e *entry, nowMs int64, r Request) {
	if e.flags.Load()&flagTouched == 0 {
		l.mark(e, flagTouched)
	}
	if r.Cost > r.Limit {
		return // would be denied on an empty key too: says nothing about it
	}
	strictMs := l.settings.Load().strictForMs
	if strictMs == 0 {
		strictMs = r.Duration.Milliseconds()
	}
	wasStrict := e.strictUntil.Load() > nowMs
	if e.beStrict(nowMs+strictMs) && !wasStrict {
		l.metrics.strictActivations.Add(1)
	}
}

// mark sets flags on an entry, and pushes it on the dirty stack if it was not there.
func (l *Limiter) mark(e *entry, flags uint32) {
	if before := e.flags.Or(flags); flags&flagDirty == 0 || before&flagDirty != 0 {
		return
	}
	for {
		head := l.dirty.Load()
		e.next = head
		if l.dirty.CompareAndSwap(head, e) {
			return
		}
	}
}

// collect moves the dirty entries to the queues of replay and flush. A count that
// grows while this runs is either seen by whoever reads the entry next, or marks it
// again: the flag is cleared before any count is read.
func (l *Limiter) collect() {
	l.queues.Lock()
	defer l.queues.Unlock()
	for e := l.dirty.Swap(nil); e != nil; {
		next := e.next
		e.next = nil
		l.enqueueLocked(e)
		e.flags.And(^uint32(flagDirty))
		e = next
	}
}

func (l *Limiter) enqueueLocked(e *entry) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if l.cfg.Origin != nil && !e.inReplay {
		e.inReplay = true
		l.queues.replay = append(l.queues.replay, e)
	}
	if l.cfg.Counts != nil && !e.inFlush {
		e.inFlush = true
		l.queues.flush = append(l.queues.flush, e)
	}
}

func (l *Limiter) nowMs() int64 { return l.cfg.Clock().UnixMilli() }
