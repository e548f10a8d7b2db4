package slots

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirhq/weir/dataplane/internal/fair"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

const (
	// Margin is how much longer the origin counts a holding than the node does.
	Margin = 500 * time.Millisecond

	tick        = 50 * time.Millisecond  // longest time for which a due entry waits, to be handled with others
	callTimeout = 250 * time.Millisecond // of a call to the origin; must be less than a third of the shortest time to live
	retryMin    = 20 * time.Millisecond  // between two calls for waiting requests
	retryMax    = 250 * time.Millisecond
	yieldFor    = 300 * time.Millisecond // longer than retryMax, so that other nodes call meanwhile
	yieldEvery  = 2 * time.Second
	restMax     = time.Second // longest pause between two calls to a shard that fails
	asksMax     = 500         // most keys of a call
	stripes     = 64
	spareMax    = 1 << 16
	eachMax     = 1000    // records that are read under a mutex
	sweepMax    = 1000    // keys that a call looks at to make room
	idsMax      = 100_000 // leases by ID
)

// LeasesMax is the most leases that a key may have on a node.
const LeasesMax = 1_000_000

var (
	// ErrFull is returned for a key, or a lease by ID, if its caller's and namespace's shares have no room.
	ErrFull = errors.New("slots: too many keys have leases on this node")

	// ErrWaiters is returned if the caller has no room for another waiting request of the key.
	ErrWaiters = errors.New("slots: too many requests wait for the key on this node")

	// ErrLeases is returned if the caller has its share of the key's LeasesMax leases on this node.
	ErrLeases = errors.New("slots: the key has too many leases on this node")
)

// Origin grants slots. A reply without an error must have an answer for each key.
type Origin interface {
	Shards() int
	ShardOf(key *window.Key) int
	store.Grants
}

// Config configures a Table.
type Config struct {
	Origin        Origin        // nil: this node has all slots of all keys
	EntriesMax    int           // most keys
	WaitersMax    int           // most requests that wait for a key
	AnswerTimeout time.Duration // how long Try waits for the origin; 0: until its ctx ends
	Nodes         func() int64  // number of the region's nodes; nil: 1

	// Judge sets the Limit and OutEnds of a waiting request by the current settings, and reports whether it may go on
	// waiting. Changed returns a channel that is closed when the settings change. nil: settings never change.
	Judge   func(*Ask) (waits bool)
	Changed func() <-chan struct{}

	// Ended is called when a lease by ID has ended, under a mutex of the table; nil: it is not called.
	Ended func(name Name, id string, sinceMs int64)

	Go  func(func()) bool    // runs loops for waiting callers before Run; nil: callers run them themselves
	Now func() time.Duration // a clock that never goes back; nil: the system's

	// Recent returns a reading of the clock that is at most some milliseconds old and costs less than Now; nil: Now.
	Recent func() time.Duration
}

// Name names a key.
type Name struct{ Workspace, Namespace, Identifier string }

// SlotsKey returns the key in the form of the origin.
func (n *Name) SlotsKey() window.Key { return store.SlotsKey(n.Workspace, n.Namespace, n.Identifier) }

// Ask is a request for a lease.
type Ask struct {
	Name       Name
	Own        int64         // the request's own limit
	Limit      int64         // the limit in force
	TTL        time.Duration // of the slot if the node dies, and of an unattended lease without renewal
	AgeMax     time.Duration // when an attended lease ends by itself; 0: never
	Unattended bool          // the lease ends TTL after its grant or last renewal
	OutEnds    bool          // Wait ends if the origin does not answer
	Free       bool          // grant only a free slot of this node, or refuse, without a call to the origin
	Holder     string        // a label
	By         fair.Caller   // set by Acquire

	// ID makes it a lease by ID: requests of a key with the same ID share a lease, which ByID returns. "": none.
	ID      string
	SinceMs int64 // of a lease by ID: Unix ms; if the lease was granted before, Result has its own
}

// Result is the result of a request.
type Result struct {
	Lease   Lease
	Granted bool
	Out     bool // the origin was needed, but has not answered
	Asked   bool // the origin has answered
	Held    int64
	SinceMs int64         // SinceMs of the first request with the lease's ID
	RetryIn time.Duration // time after which to try again, 0: unknown
	Err     error         // ErrFull, ErrWaiters, ErrLeases or ErrStopped
}

// Stats are counts since the table was made.
type Stats struct {
	Leases, Waiters        int64 // now
	Granted, Refused, Lost int64
	Calls, Asks, Errors    int64 // calls to the origin, keys in them, and failed calls
}

// Table has all keys of a node. Make it with New.
type Table struct {
	cfg     Config
	node    uint64
	swept   atomic.Uint32 // next stripe to search for idle keys
	running atomic.Bool   // Run was called
	stopped atomic.Bool

	calls, asks, errors atomic.Int64

	stripes [stripes]stripe
	shards  []*shard

	keys fair.Places // of Config.EntriesMax
	ids  fair.Places // of idsMax
}

func (a *Ask) of() fair.Of {
	return fair.Of{Caller: a.By, Space: fair.Space{Workspace: a.Name.Workspace, Namespace: a.Name.Namespace}}
}

// stripe is a part of the keys.
type stripe struct {
	table   *Table
	mu      sync.Mutex
	entries map[Name]*entry
	stats   Stats
	_       [64]byte
}

// shard is the state for a shard of the origin.
type shard struct {
	index     int
	asks      *schedule // nil without an origin
	ends      *schedule
	calling   sync.Mutex    // held during a call, so that a single call is under way; no decision takes it
	number    int64         // number of the last call; guarded by calling
	rest      time.Duration // pause between two calls while they fail; guarded by calling
	restUntil atomic.Int64
}

// New returns an empty table.
func New(cfg Config) *Table {
	t := &Table{cfg: cfg}
	if base := time.Now(); cfg.Now == nil {
		t.cfg.Now = func() time.Duration { return time.Since(base) }
	}
	if cfg.Recent == nil {
		t.cfg.Recent = t.cfg.Now
	}
	for t.node == 0 {
		t.node = rand.Uint64()
	}
	t.keys.Most = int64(cmp.Or(cfg.EntriesMax, 100_000))
	t.cfg.WaitersMax, t.ids.Most = cmp.Or(cfg.WaitersMax, 1000), idsMax
	for i := range t.stripes {
		t.stripes[i].table, t.stripes[i].entries = t, make(map[Name]*entry)
	}
	t.shards = []*shard{{ends: newSchedule()}}
	if cfg.Origin != nil {
		t.shards = make([]*shard, cfg.Origin.Shards())
		for i := range t.shards {
			t.shards[i] = &shard{index: i, asks: newSchedule(), ends: newSchedule()}
		}
	}
	return t
}

func (t *Table) now() time.Duration { return t.cfg.Now() + time.Second } // because 0 means not set

func (t *Table) nodes() int64 {
	if t.cfg.Nodes == nil {
		return 1
	}
	return max(1, t.cfg.Nodes())
}

// stripeOf spreads keys well enough for a mutex, and costs less than a hash.
func (t *Table) stripeOf(name *Name) *stripe {
	id := name.Identifier
	n := len(id) // at least 1
	return &t.stripes[(int(id[n-1])*31+int(id[n/2])*7+int(id[0])+n)%stripes]
}

// Try requests a lease. If this node has no free slot, Try waits for the origin's answer until ctx ends. Use it for
// decisions that must not wait long.
func (t *Table) Try(ctx context.Context, a *Ask) (r Result) { t.Acquire(ctx, a, false, &r); return r }

// Wait is Try, but waits for a slot until ctx ends. On this node, callers take turns, and each caller's requests are
// served in their order.
func (t *Table) Wait(ctx context.Context, a *Ask) (r Result) { t.Acquire(ctx, a, true, &r); return r }

// Acquire is Try, or Wait if wait is set. It fills r, which must be empty.
func (t *Table) Acquire(ctx context.Context, a *Ask, wait bool, r *Result) {
	now := t.cfg.Recent() + time.Second
	a.By = fair.In(ctx)
	s := t.stripeOf(&a.Name)
	s.mu.Lock()
	e := s.entries[a.Name]
	if e == nil {
		s.mu.Unlock()
		t.makeRoom(a.of())
		s.mu.Lock()
		if e = t.entryLocked(s, a); e == nil {
			s.stats.Refused++
			s.mu.Unlock()
			r.Err = ErrFull
			return
		}
	}
	e.limit, e.ttl = a.Limit, a.TTL
	soon := now + tick
	if soon >= e.validUntil || e.endAt != 0 && soon >= e.endAt || a.Unattended || a.AgeMax > 0 {
		now = t.now() // an end that is near needs the exact time
		e.expire(now)
		e.serve(now)
	}
	if e.again(now, a, r) {
		s.mu.Unlock()
		return
	}
	if e.hasRoom(a.Limit) && !t.stopped.Load() && !e.yields(now) && e.mayHave(a.By) {
		if e.grant(now, a, r); r.Granted && a.ID != "" {
			e.answer(*r, func(w *waiter) bool { return w.ask.ID == a.ID })
		}
		if e.validUntil > now+a.TTL && e.shard.asks != nil {
			e.askBy(now) // so that the slot does not stay taken for longer
		}
		s.mu.Unlock()
		return
	}
	w, refused := e.refusedOrQueued(now, a, !wait)
	s.mu.Unlock()
	if *r = refused; w != nil {
		*r = t.await(ctx, e, w)
	}
}

// ByID returns the lease of a key by its ID. It returns false if this node has granted none, or if it has ended.
func (t *Table) ByID(name *Name, id string) (l Lease, ok bool) {
	now := t.now()
	s := t.stripeOf(name)
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entries[*name]
	if e == nil {
		return l, false
	}
	e.expire(now)
	l, ok = e.ids[id]
	return l, ok
}

// refusedOrQueued queues the request and returns its waiter, if waiting can help. Otherwise it returns nil and the
// refusal.
func (e *entry) refusedOrQueued(now time.Duration, a *Ask, once bool) (*waiter, Result) {
	t, alone := e.stripe.table, e.shard.asks == nil
	refused := Result{Held: e.busy + e.others, RetryIn: e.retryIn}
	switch {
	case t.stopped.Load():
		refused.Out, refused.Err = true, ErrStopped
	case !e.mayHave(a.By):
		refused.Err = ErrLeases
	case a.Limit == 0: // no event on this node would grant it
	case a.Free || once && (alone || now < e.fullUntil):
	case !e.waiters.hasRoom(a.By, int64(t.cfg.WaitersMax)):
		refused.Err = ErrWaiters
	case once && now < time.Duration(e.shard.restUntil.Load()):
		refused.Out, refused.RetryIn = true, time.Duration(e.shard.restUntil.Load())-now
	default:
		w := &waiter{ask: *a, once: once, ready: make(chan Result, 1)}
		e.waiters.add(w)
		e.stripe.stats.Waiters++
		if !alone && (once || e.waiters.len == 1) {
			e.askBy(max(now, time.Duration(e.shard.restUntil.Load())))
		}
		return w, refused
	}
	e.stripe.stats.Refused++
	return nil, refused
}

// await waits for a waiter's result.
func (t *Table) await(ctx context.Context, e *entry, w *waiter) Result {
	if w.once && t.cfg.AnswerTimeout > 0 {
		within, cancel := context.WithTimeout(ctx, t.cfg.AnswerTimeout)
		defer cancel()
		ctx = within
	}
	if !t.running.Load() && t.cfg.Go != nil {
		meanwhile, end := context.WithCancel(context.Background())
		defer end()
		t.runShard(meanwhile, e.shard, func(f func()) { t.cfg.Go(f) })
	}
	for ctx.Err() == nil {
		var changed <-chan struct{}
		if t.cfg.Changed != nil {
			changed = t.cfg.Changed() // before judge, which must not miss a change
			t.judge(e, w)
		}
		select {
		case r := <-w.ready:
			return r
		case <-changed:
		case <-ctx.Done():
		}
	}
	s := e.stripe
	s.mu.Lock()
	defer s.mu.Unlock()
	if !w.at.Queued() {
		return <-w.ready // it was answered meanwhile
	}
	e.waiters.remove(w)
	s.stats.Waiters--
	s.stats.Refused++
	return Result{Held: e.busy + e.others, RetryIn: e.retryIn, Out: w.once, Asked: !w.once && w.number > 0}
}

// judge applies the current settings to a waiting request.
func (t *Table) judge(e *entry, w *waiter) {
	s := e.stripe
	now := t.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	was := w.ask.Limit
	if !w.at.Queued() {
		return
	}
	if waits := t.cfg.Judge(&w.ask); !waits || w.ask.Limit == 0 {
		e.waiters.remove(w)
		s.stats.Waiters--
		s.stats.Refused++
		w.ready <- Result{Held: e.busy + e.others, RetryIn: e.retryIn, Asked: w.number > 0}
		return
	}
	if w.ask.Limit != was {
		e.limit = w.ask.Limit
		e.serve(now)
		e.askBy(max(now, e.yieldUntil, time.Duration(e.shard.restUntil.Load())))
	}
}

// entryLocked returns the entry of a key, and adds it if there is none. It returns nil if there is no room.
func (t *Table) entryLocked(s *stripe, a *Ask) *entry {
	name, of := &a.Name, a.of()
	if e := s.entries[*name]; e != nil {
		return e
	}
	if !t.keys.Take(of, 1) {
		return nil
	}
	e := &entry{stripe: s, name: *name, of: of, shard: t.shards[0], held: math.MaxInt64, validUntil: forever}
	e.ask.e, e.end.e = e, e
	if t.cfg.Origin != nil {
		key := name.SlotsKey()
		e.shard, e.held, e.validUntil = t.shards[t.cfg.Origin.ShardOf(&key)], 0, 0
	}
	s.entries[*name] = e
	return e
}

// makeRoom forgets some idle keys if there is no room for a new key.
func (t *Table) makeRoom(of fair.Of) {
	for looked, turns := 0, 0; !t.keys.HasRoom(of) && looked < sweepMax && turns < stripes; turns++ {
		looked += t.sweep(&t.stripes[t.swept.Add(1)%stripes], sweepMax-looked)
	}
}

// sweep forgets idle keys among up to most keys of a stripe, and returns how many it has looked at. The order of a map
// is random, so later calls look at other keys.
func (t *Table) sweep(s *stripe, most int) (looked int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, e := range s.entries {
		if looked++; looked > most {
			break
		}
		if e.idle() {
			delete(s.entries, name)
			t.keys.Give(e.of, 1)
		}
	}
	return looked
}

// IsStopped reports whether End was called.
func (t *Table) IsStopped() bool { return t.stopped.Load() }

// Out reports whether the shard of a key is not called now because calls to it fail, for example while Redis is down.
func (t *Table) Out(name *Name) bool {
	if t.cfg.Origin == nil {
		return false
	}
	key := name.SlotsKey()
	return t.now() < time.Duration(t.shards[t.cfg.Origin.ShardOf(&key)].restUntil.Load())
}

// Look is a node's state of a key.
type Look struct {
	Leases, Slots, Others, Waiters int64
	Alone                          bool // there is no origin
	ValidFor                       time.Duration
	Starved                        bool
	RestsFor                       time.Duration // rest of the pause of the key's shard
}

// Look returns the state of a key, and sets r to the result that Try would have on this node. It grants nothing. known
// reports whether the node has an entry of the key.
func (t *Table) Look(a *Ask, r *Result) (at Look, known bool) {
	now := t.now()
	if at.Alone = t.cfg.Origin == nil; !at.Alone {
		key := a.Name.SlotsKey()
		at.RestsFor = max(0, time.Duration(t.shards[t.cfg.Origin.ShardOf(&key)].restUntil.Load())-now)
	}
	s := t.stripeOf(&a.Name)
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entries[a.Name]
	if e == nil {
		r.Granted = at.Alone && a.Limit > 0
		return at, false
	}
	e.expire(now)
	at.Leases, at.Slots, at.Others, at.Waiters, at.Starved = e.busy, e.held, e.others, e.waiters.len, e.starved
	if at.Alone {
		at.Slots = max(e.busy, a.Limit) // without an origin, a node has as many slots as the limit
	} else if e.held > 0 {
		at.ValidFor = e.validUntil - now
	}
	r.Granted, r.Held, r.RetryIn = e.hasRoom(a.Limit) && e.waiters.len == 0, e.busy+e.others, e.retryIn
	return at, true
}

// Held is a lease as operators see it.
type Held struct {
	Name   Name
	Holder string
	Age    time.Duration
	Ends   time.Duration // time until its end; -1: not before it is released
}

// Each calls f for all leases, with up to eachMax of a key at a time under its stripe's mutex.
func (t *Table) Each(f func(*Held)) {
	for i := range t.stripes {
		s := &t.stripes[i]
		s.mu.Lock()
		entries := slices.Collect(maps.Values(s.entries))
		s.mu.Unlock()
		for _, e := range entries {
			for from, more := 0, true; more; from += eachMax {
				s.mu.Lock()
				more = e.each(t.now(), from, f)
				s.mu.Unlock()
			}
		}
	}
}

// each calls f for the leases in eachMax records, and reports whether there are more.
func (e *entry) each(now time.Duration, from int, f func(*Held)) (more bool) {
	for i := from; i < min(from+eachMax, len(e.records)); i++ {
		if r := &e.records[i]; r.live && now < r.deadline && now < e.validUntil {
			h := Held{Name: e.name, Holder: r.holder, Age: now - r.since, Ends: -1}
			if r.deadline != forever {
				h.Ends = r.deadline - now
			}
			f(&h)
		}
	}
	return from+eachMax < len(e.records)
}

// Stats returns the sums over all stripes.
func (t *Table) Stats() (sum Stats) {
	sum.Calls, sum.Asks, sum.Errors = t.calls.Load(), t.asks.Load(), t.errors.Load()
	for i := range t.stripes {
		s := &t.stripes[i]
		s.mu.Lock()
		sum.Leases += s.stats.Leases
		sum.Waiters += s.stats.Waiters
		sum.Granted += s.stats.Granted
		sum.Refused += s.stats.Refused
		sum.Lost += s.stats.Lost
		s.mu.Unlock()
	}
	return sum
}
