package dataplane

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirhq/weir/dataplane/internal/clock"
	"github.com/weirhq/weir/dataplane/internal/loop"
	"github.com/weirhq/weir/dataplane/store"
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
	clock *clock.Clock
	table *table

	settings atomic.Pointer[settings]
	dirty    dirtyList     // entries whose counts changed
	marks    uint32        // flags that a request leaves on its entry; constant
	farShift atomic.Uint32 // a cost below limit >> farShift is far from its share; 0: with no origin all are
	nodes    atomic.Int64  // of the region, >= 1

	queues struct {
		sync.Mutex // the shards' queues too
		flush      []queued
		tell       []queued

		collectedMs int64 // when collect last began
	}
	flushing, importing sync.Mutex // one step of each at a time
	shards              []*shard   // of the origin; constant
	syncs               syncCounts // of the estimate mode

	imports importState // under importing

	elsewhere                    elsewhere
	bulletin                     bulletin     // under telling
	learnedTo                    store.Cursor // what learnOnce continues from; under learning
	digesting, telling, learning sync.Mutex   // one step of each at a time

	metrics  *metrics
	shape    atomic.Pointer[shape]
	probe    *probe // constant; nil without a count store, which takes its figure
	top      top
	loops    loop.Lifecycle
	stopping atomic.Bool // nothing is kicked or asked to be synced any more
	calls    loop.Calls  // to the origin, on behalf of decisions
}

// New makes a limiter. It does no I/O: a node starts whether or not the layers
// above are there. Errors name the field of Config at fault.
func New(cfg Config) (*Limiter, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	fleet := cfg.Origin != nil || cfg.Counts != nil
	wall := clock.New(cfg.Clock)
	l := &Limiter{cfg: cfg, clock: wall, marks: flagTouched,
		table: newTable(cfg.EntriesMax, cfg.ClockSkewMax.Milliseconds(), wall.Steady, fleet, cfg.Origin != nil)}
	if fleet {
		l.marks |= flagDirty
	}
	l.elsewhere.init()
	l.bulletin.cells, l.bulletin.watched = make(map[window.Cell]*telling), make(map[*entry]watched)
	l.shards = newShards(cfg.Origin, cfg.Breaker)
	l.apply(defaultSettings())
	l.metrics = newMetrics(l)
	if cfg.Counts != nil {
		if l.probe, err = newProbe(cfg.Clock); err != nil {
			return nil, err
		}
	}
	return l, nil
}

// Allow decides r at the clock's time, and counts its cost if it is allowed.
//
// On a key that this node knows and has heard of lately, that is a look-up, a few
// loads and one compare-and-swap: no lock, no I/O, no allocation. A cold, stale or
// strict key asks the origin first, under Config.ReadTimeout and ctx, unless what
// is known already denies.
func (l *Limiter) Allow(ctx context.Context, r Request) (d Decision) {
	nowMs, told := l.clock.NowMs()
	l.decide(ctx, nowMs, told, &r, nil, &d)
	return d
}

// AllowAt is Allow at a time of the caller's, at most Config.ClockSkewMax away from
// the clock's. Times of one key may run backwards a little: the key's cell that is
// current stays current.
func (l *Limiter) AllowAt(ctx context.Context, now time.Time, r Request) (d Decision) {
	if d.Err = l.checkTime(now); d.Err == nil {
		l.decide(ctx, now.UnixMilli(), false, &r, nil, &d)
	}
	return d
}

// Peek answers what Allow would, Remaining after the cost included, and counts nothing: no
// cost, no decision, no denied key. Where a namespace waits for its share, Allow decides at the origin
// and Peek by what this node knows.
func (l *Limiter) Peek(ctx context.Context, r Request) Decision {
	r.peek = true
	return l.Allow(ctx, r)
}

func (l *Limiter) checkTime(now time.Time) error {
	if skew, ok := l.clock.Near(now, l.cfg.ClockSkewMax); !ok {
		return fmt.Errorf("%w: now is %v away from the clock (at most %v)", ErrInvalid, skew, l.cfg.ClockSkewMax)
	}
	return nil
}

// question is a valid request with everything resolved: what the rest of the path
// works on. It lives on the caller's stack, and so do the things that it points to.
type question struct {
	id         *identity
	request    *Request // its names; everything else is here
	nowMs      int64
	durationMs int64
	limit      int64
	cost       int64
	mode       window.Mode
	ahead      int64 // in a batch: cost of the items before on the same key
	counts     *stripe
	until      time.Duration // since the clock's base: until when the decision may wait, once it has begun to
	told       bool          // nowMs is the clock's as last told, and may be a little late
}

// counting is true of a question that leaves a trace if it is allowed.
func (q *question) counting() bool { return q.cost > 0 && !q.request.peek }

func (q *question) key() window.Key {
	k := q.request.key()
	k.Duration, k.Mode = milliseconds(q.durationMs), q.mode
	return k
}

// decide is the first half of the request path: validate → override → identity. It
// changes r if an override says so.
func (l *Limiter) decide(ctx context.Context, nowMs int64, told bool, r *Request, held *Reservation, d *Decision) {
	if !r.valid() {
		d.Err = r.Validate()
		return
	}
	by := l.settings.Load().resolve(r)
	var q question // set field by field: a literal would be made elsewhere and copied
	q.mode = by.mode()
	id := l.table.of(r.Workspace, r.Namespace, r.Identifier, r.Duration, q.mode)
	if by.reset != nil {
		id.renew(by.reset)
	}
	q.id, q.request, q.nowMs, q.told = &id, r, nowMs, told
	q.durationMs, q.limit, q.cost = r.Duration.Milliseconds(), r.Limit, r.cost()
	if q.counts = l.metrics.stripe(&q); q.counts.samples() {
		l.askTimed(ctx, &q, by, held, d)
		return
	}
	if by.estimate != nil { // ask would find it out too, a call later
		l.askEstimate(&q, by, l.table.get(&id), held, d)
		return
	}
	l.ask(ctx, &q, by, l.table.get(&id), held, d)
}

func (l *Limiter) askTimed(ctx context.Context, q *question, by *rule, held *Reservation, d *Decision) {
	began := l.clock.Elapsed()
	l.ask(ctx, q, by, l.table.get(q.id), held, d)
	l.metrics.decisionSeconds.Observe((l.clock.Elapsed() - began).Seconds())
}

// ask is the second half: entry → (refresh) → judge → answer, into d. e is the key's
// entry if the caller has it; the one that was used is returned if the table holds it.
// held, if there is one, is told what was counted.
func (l *Limiter) ask(ctx context.Context, q *question, by *rule, e *entry, held *Reservation, d *Decision) *entry {
	if by.estimate != nil {
		return l.askEstimate(q, by, e, held, d)
	}
	met := known
	for {
		if e == nil {
			if q.cost > q.limit {
				l.oversized(q, by, d)
				return nil
			}
			e, met = l.meet(q, by)
		}
		var v verdict
		var alive bool
		source := SourceLocal
		if l.shards == nil {
			alive = e.judge(&v, q.nowMs, q.durationMs, q.limit, q.cost, q.counting())
		} else {
			source, alive = l.judgeInFleet(ctx, &v, e, met, q, by)
		}
		if v.agedOut > 0 {
			l.metrics.dropped[droppedExpired].Add(v.agedOut)
		}
		if !alive { // evicted meanwhile: look the key up again
			e, met = l.table.get(q.id), known
			continue
		}
		switch {
		case v.refused: // by an outage policy, which says nothing about the key
		case !v.allowed:
			tellRetry(&v, q)
			if q.told && l.soon(&v, q) {
				continue
			}
			l.denied(e, v.seq, q)
		case met == untracked:
			if q.counting() && !v.claimed {
				l.spill(e, v.seq, q.cost, q.nowMs)
			}
			if held != nil && q.counting() {
				*held = Reservation{l, e, v.seq, q.limit, q.cost, true}
			}
		case q.counting():
			l.accepted(e, met, &v, q)
			if held != nil {
				*held = Reservation{l, e, v.seq, q.limit, q.cost, false}
			}
		}
		out := d.answer(&v, q, by, source)
		if q.request.peek {
			return l.used(e, met, q, source)
		}
		if v.refused {
			q.counts.refused.Add(1)
		}
		if n := q.counts.decided(source, out, 1); out != outcomeAllowed && !v.refused {
			l.tally(e, q, n)
		}
		if by.candidate != 0 {
			q.counts.compared(d)
		}
		return l.used(e, met, q, source)
	}
}

// judgeInFleet judges and counts on a node with an origin, which it asks first about a
// key that is cold, stale or strict, and where a namespace waits for its share. What it
// could not ask is judged by the namespace's outage policy.
func (l *Limiter) judgeInFleet(ctx context.Context, v *verdict, e *entry, met contact, q *question, by *rule) (source Source, alive bool) {
	source, alive = SourceLocal, true
	if met == untracked {
		return l.judgeGuest(ctx, v, e, q, by)
	}
	now, set := l.clock.Steady(), l.settings.Load()
	if e.wantsRefresh(now, set.freshForMs) || l.asksFirst(e, q, now, set) {
		source, alive = l.refreshFor(ctx, e, q, by.outage)
	}
	switch {
	case !alive:
		return source, false
	case by.waits && !source.Degraded():
		return l.share(ctx, v, e, q, source, by)
	case source.Degraded() && source != SourceDegraded:
		return source, l.judgeOut(v, e, q, source)
	}
	return source, e.judge(v, q.nowMs, q.durationMs, q.limit, q.cost, q.counting())
}

// soon is true when a denial by a told time would be over within staleMax, and the clock,
// which it sets q to, is already further: whoever comes back after exactly the time that
// they were told is let in.
func (l *Limiter) soon(v *verdict, q *question) bool {
	q.told = false
	if v.passesAtMs == 0 || v.passesAtMs-q.nowMs > clock.StaleMax.Milliseconds() {
		return false
	}
	before := q.nowMs
	q.nowMs = max(before, l.clock.ReadMs())
	return q.nowMs > before
}

// oversized answers a cost above the limit on a key that is not held: denied
// whatever is known elsewhere, and nothing to remember.
func (l *Limiter) oversized(q *question, by *rule, d *Decision) {
	v := verdict{seq: window.Sequence(q.nowMs, q.durationMs), tMs: q.nowMs}
	out := d.answer(&v, q, by, SourceLocal)
	if q.request.peek {
		return
	}
	l.tally(nil, q, q.counts.decided(SourceLocal, out, 1))
	if by.candidate != 0 {
		q.counts.compared(d)
	}
}

// accepted marks an entry of the table whose count has grown.
func (l *Limiter) accepted(e *entry, met contact, v *verdict, q *question) {
	marks := l.marks
	if met == created {
		marks &^= flagTouched // only a second contact tells a caller from a one-shot
	}
	flags := e.marks()
	if !flags.have(marks) {
		l.dirty.mark(e, marks)
	}
	if shift := l.farShift.Load(); shift != 0 && v.previous+v.current+q.ahead+q.cost >= q.limit>>shift {
		l.crowds(e, v, q)
	}
	if flags.news() {
		e.useNews(q.nowMs)
	}
}

// denied makes the key strict. A denial changes no count.
func (l *Limiter) denied(e *entry, sequence int64, q *question) {
	if q.ahead+q.cost > q.limit || q.request.peek {
		return // would be denied on an empty key too: says nothing about it; or is to leave it as it is
	}
	marks := flagTouched | pressedMark(sequence)
	flags := e.marks()
	if !flags.have(marks) {
		l.dirty.mark(e, marks)
	}
	if flags.news() {
		e.useNews(q.nowMs)
	}
	if !l.table.fleet {
		return // nobody to ask
	}
	strictMs := l.settings.Load().strictForMs
	if strictMs == 0 {
		strictMs = q.durationMs
	}
	now := l.clock.Steady()
	wasStrict := e.isStrict(now)
	if e.beStrict(now+clock.Steady(strictMs)) && !wasStrict {
		l.metrics.strictActivations.Add(1)
	}
}

// collect moves the dirty entries to the queues of replay and flush.
func (l *Limiter) collect() {
	l.queues.Lock()
	defer l.queues.Unlock()
	sinceMs := l.queues.collectedMs
	l.queues.collectedMs = l.nowMs()
	l.dirty.take(func(e *entry) { l.collectLocked(e, sinceMs) })
}

func (l *Limiter) collectLocked(e *entry, sinceMs int64) {
	var sh *shard
	var queues uint32
	if l.cfg.Origin != nil && !e.marks().estimates() {
		sh, queues = l.shardOf(e), inReplay
	}
	if l.cfg.Counts != nil {
		queues |= inFlush | inTell
	}
	l.queueLocked(sh, e, sinceMs, queues)
}

// queued is an entry that others should be told of. All entries are collected at once, so
// what was collected has accepted cost after sinceMs, when the collection before began: a
// bound of the age of its youngest cost, at most a replay tick too high. 0 is unknown: others'
// cost made it grow, or nothing did.
type queued struct {
	entry   *entry
	sinceMs int64
}

// queueLocked puts an entry into queues, into each once. sh is its shard's, of the queue of replay.
func (l *Limiter) queueLocked(sh *shard, e *entry, sinceMs int64, queues uint32) {
	fresh := e.enqueue(queues)
	if fresh&inReplay != 0 {
		sh.queue = append(sh.queue, e)
	}
	if fresh&inFlush != 0 {
		l.queues.flush = append(l.queues.flush, queued{e, sinceMs})
	}
	if fresh&inTell != 0 {
		l.queues.tell = append(l.queues.tell, queued{e, sinceMs})
	}
}

func (l *Limiter) nowMs() int64 {
	return l.clock.ReadMs()
}
