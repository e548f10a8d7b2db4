package relay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/weirhq/weir/dataplane/internal/clock"
	"github.com/weirhq/weir/dataplane/internal/loop"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// Config is all that a relay needs. Region, Origin, Feed, Counts and Holder have no defaults.
type Config struct {
	Region string            // see store.CheckRegion
	Origin store.RelayOrigin // the region's
	Feed   store.Feed        // the fleet's
	Counts store.CountStore  // the fleet's; Publish and Import are used
	// Settings is where operators set what the fleet agrees on, and where heartbeats belong. The relay carries both
	// through Origin, which must be a store.Mailbox then. If Settings is nil, the relay carries neither.
	Settings store.Settings

	Holder string        // the node's ID, unique in the region, 1 to store.HolderBytesMax bytes
	Tuning func() Tuning // called before each step, also concurrently; nil: the defaults
	// TuningChanged returns a channel that is closed when Tuning changes, so that no loop waits for
	// an interval of the old tuning. If it is nil, loops notice a change when their current wait
	// ends.
	TuningChanged func() <-chan struct{}

	Clock  func() time.Time // nil is time.Now. It paces the relay; cells live by their origin's clock
	Logger *slog.Logger     // nil discards

	// Publish is called with what peers are to know, twice an interval where there is any: a row of news with a Stream and
	// a Payload, and no number. Feed gets the same by rows of its own. Publish must neither block nor change the row, and
	// may keep it. What a row tells is true whether or not it is stored afterwards: a relay that has been replaced may
	// tell, and does no harm. Nil: nothing is called.
	Publish func(row store.FeedRow)
}

// Tuning is what may change while a relay runs. A duration of 0 is its default. Floor and Step have none, since 0 has
// a meaning of its own; DefaultTuning has 0.1 and 0.01.
type Tuning struct {
	// between two rows of a shard, and two reads: 200 ms. Lower: sooner told, more statements
	Interval         time.Duration
	SnapshotEvery    time.Duration // at least, between two snapshots: 30 s. Lower: a relay starts sooner, more bytes
	SettingsInterval time.Duration // between two reads of settings: 5 s. Lower: sooner in force, more statements
	// Floor is a share of the limit. While no other region uses a cell, a count is published
	// whenever it passes a multiple of the floor; and a count is stored from the floor on. 0
	// publishes every growth. A higher value takes fewer bytes, but a region that begins to use a
	// key starts from an older count.
	Floor float64
	// Step is a share of the limit. A count is stored again when it has grown by that much; 0
	// stores every growth.
	Step              float64
	MinGlobalDuration time.Duration // shortest window that is told: 2 s
	StoreFloor        float64       // share of its limit from which a count is stored, where Floor is lower
	StoreSteps        float64       // how many Steps it must have grown to be stored again; 0 is 1
}

// StoreFloor and StoreSteps are what nodes store with: with the default floor and step some three rows for a cell that
// reaches its limit. Each is a row that MySQL writes, and news has all the rest.
const (
	StoreFloor = 0.5
	StoreSteps = 25
)

// DefaultTuning is a relay's that is given none.
func DefaultTuning() Tuning {
	return Tuning{Interval: 200 * time.Millisecond, SnapshotEvery: 30 * time.Second, SettingsInterval: 5 * time.Second,
		Floor: 0.1, Step: 0.01, MinGlobalDuration: 2 * time.Second}
}

func (t Tuning) withDefaults() Tuning {
	otherwise := DefaultTuning()
	t.Interval = cmp.Or(t.Interval, otherwise.Interval)
	t.SnapshotEvery = cmp.Or(t.SnapshotEvery, otherwise.SnapshotEvery)
	t.SettingsInterval = cmp.Or(t.SettingsInterval, otherwise.SettingsInterval)
	t.MinGlobalDuration = cmp.Or(t.MinGlobalDuration, otherwise.MinGlobalDuration)
	return t
}

// Relay carries counts between the origin of one region and the other regions, for each shard of
// the origin whose lease it has. Any number of a region's nodes may run one.
//
// Start and Stop may each be called twice, but not concurrently. Step is for callers that control
// the time, such as tests and simulators: it must not run concurrently with another Step, or
// between Start and Stop. Apply, Leads, Lost, Handed and the methods of Collector may be called at
// any time, concurrently.
type Relay struct {
	cfg     Config
	mailbox store.Mailbox // Config.Origin; nil if it is none
	clock   *clock.Clock  // of Config.Clock: for what lasts a while
	shards  []*shard
	reader  *reader
	metrics metrics
	loops   loop.Lifecycle

	importing  chan struct{} // holds one while an import runs
	settingsAt time.Time     // of carrySettings
	settings   knownSettings
}

// ErrStarted is returned by Start on a relay that was started or stopped before.
var ErrStarted = errors.New("relay: was started before")

const callTimeout = 2 * time.Second // of a call about some cells; see stallTimeout for those about all

// New makes a relay that does nothing until it is started.
func New(cfg Config) (*Relay, error) {
	switch {
	case len(cfg.Holder) < 1 || len(cfg.Holder) > store.HolderBytesMax:
		return nil, fmt.Errorf("relay: holder is %d bytes long (1 to %d)", len(cfg.Holder), store.HolderBytesMax)
	case cfg.Origin == nil || cfg.Feed == nil || cfg.Counts == nil:
		return nil, errors.New("relay: origin, feed and counts must all be set")
	}
	mailbox, ok := cfg.Origin.(store.Mailbox)
	if cfg.Settings != nil && !ok {
		return nil, fmt.Errorf("relay: settings are set, and origin, a %T, is not a store.Mailbox: it cannot carry them",
			cfg.Origin)
	}
	if err := store.CheckRegion(cfg.Region); err != nil {
		return nil, fmt.Errorf("relay: %w", err)
	}
	if err := (store.Stream{Region: cfg.Region, Shard: cfg.Origin.Shards() - 1}).Validate(); err != nil {
		return nil, fmt.Errorf("relay: %w", err)
	}
	if cfg.Tuning == nil {
		cfg.Tuning = DefaultTuning
	}
	r := &Relay{clock: clock.New(cfg.Clock), mailbox: mailbox, importing: make(chan struct{}, 1)}
	if cfg.Clock == nil {
		cfg.Clock = time.Now
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	r.cfg = cfg
	r.reader = newReader(r)
	for i := range cfg.Origin.Shards() {
		r.shards = append(r.shards, newShard(r, i))
	}
	r.metrics.init(r)
	return r, nil
}

// Start begins the loops and returns at once; ctx gives them its values, not its end. Stop ends them.
func (r *Relay) Start(ctx context.Context) error {
	ctx, ok := r.loops.Start(ctx)
	if !ok {
		return ErrStarted
	}
	for _, s := range r.shards {
		r.loops.Go(func() { s.keepLease(ctx) })
		r.loops.Go(func() { s.takeAfterReads(ctx) })
		if r.cfg.Publish != nil {
			r.loops.Go(func() { s.publishToPeersWhenWoken(ctx) })
		}
		r.every(ctx, r.interval, s.watched("prune the change feed", s.prune))
		r.every(ctx, func() time.Duration { return saveEvery }, s.watched("store counts", s.save))
		r.loops.Go(func() { s.applyWhenWoken(ctx) })
	}
	r.loops.Go(func() { r.readPausing(ctx) })
	carry := r.watched("carry settings", r.carrySettings)
	often := func() time.Duration { return min(r.interval(), r.tuning().SettingsInterval) }
	r.every(ctx, often, func(ctx context.Context) {
		if r.settingsDue(r.cfg.Clock()) {
			carry(ctx)
		}
	})
	return nil
}

// Stop ends the loops, waits for them, and releases the leases, so that another relay can take over
// at once. Counts that were not published stay in the origin, where that relay finds them. Stop
// also stores pending heartbeats, because they include the last one of the node that stops. If ctx
// has ended before the call, Stop tries for up to 5 s. A second Stop returns nil at once.
func (r *Relay) Stop(ctx context.Context) error {
	if !r.loops.Stop() {
		return nil
	}
	ctx, done := loop.LastCalls(ctx)
	defer done()
	led := r.leads(r.cfg.Clock())
	var errs []error
	for _, s := range r.shards {
		errs = append(errs, s.lease.release(ctx))
	}
	if led {
		r.storeLastHeartbeats(ctx)
	}
	return errors.Join(errs...)
}

// Step does all that the loops do in one interval, once and in this order: leases, peers, changes, news, foreign
// totals, stored counts, settings and heartbeats. It goes on after an error, and returns them all.
func (r *Relay) Step(ctx context.Context) error {
	now := r.cfg.Clock()
	var errs []error
	for _, s := range r.shards {
		if !s.lease.renewAt.After(now) {
			errs = append(errs, s.lease.renew(ctx, now))
		}
		if r.cfg.Publish != nil {
			errs = append(errs, s.publishToPeers(ctx, now))
		}
		errs = append(errs, s.take(ctx, now))
	}
	errs = append(errs, r.reader.read(ctx, now))
	for _, s := range r.shards {
		errs = append(errs, s.applyForeign(ctx, now))
		if now.Sub(s.savedAt) >= saveEvery {
			errs = append(errs, s.save(ctx, now))
		}
		errs = append(errs, s.prune(ctx, now))
	}
	if r.settingsDue(now) {
		errs = append(errs, r.carrySettings(ctx, now))
	}
	return errors.Join(errs...)
}

func (r *Relay) tuning() Tuning { return r.cfg.Tuning().withDefaults() }

func (r *Relay) interval() time.Duration { return r.tuning().Interval }

// shardOf is the shard that holds a cell of this region's origin.
func (r *Relay) shardOf(key *window.Key) *shard {
	if len(r.shards) == 1 {
		return r.shards[0]
	}
	asked := *key // a key that an Origin gets is allocated
	return r.shards[r.cfg.Origin.ShardOf(&asked)]
}

// Leads is true while the relay has the lease of any shard, and so takes rows in: see Apply.
func (r *Relay) Leads() bool { return r.leads(r.cfg.Clock()) }

// leads is true while the relay has the lease of any shard.
func (r *Relay) leads(now time.Time) bool {
	for _, s := range r.shards {
		if _, ok := s.lease.term(now); ok {
			return true
		}
	}
	return false
}

// every runs a step about once an interval until ctx ends.
func (r *Relay) every(ctx context.Context, interval func() time.Duration, step func(context.Context)) {
	cadence := func() (time.Duration, float64) { return interval(), 0 }
	r.loops.Go(func() { loop.Every(ctx, cadence, r.cfg.TuningChanged, step) })
}

// readPausing reads news, and again an interval after it has begun and at least three quarters of one after it has
// ended, until ctx ends: a relay that is far from MySQL asks less often.
func (r *Relay) readPausing(ctx context.Context) {
	read := r.watched("read the change feed", r.reader.read)
	began, ended := time.Now(), time.Now()
	due := func() time.Time { return latest(began.Add(r.interval()), ended.Add(r.interval()*3/4)) }
	for loop.Sleep(ctx, due, r.cfg.TuningChanged, nil) {
		began = time.Now()
		read(ctx)
		ended = time.Now()
		for _, s := range r.shards {
			wake(s.readEnded)
		}
	}
}

// takeAfterReads takes changes each time that news was read: what the own region is to tell because of them, it tells
// at once, and a relay that is far from MySQL writes fewer rows for all others to read. Half an interval passes after a
// take has begun, and reads that fail or take long are not waited for longer than one and a half after it has ended.
func (s *shard) takeAfterReads(ctx context.Context) {
	take, changed := s.watched("take changes", s.take), s.relay.cfg.TuningChanged
	began, ended := time.Now(), time.Now()
	soon := func() time.Time { return began.Add(s.relay.interval() / 2) }
	late := func() time.Time { return ended.Add(s.relay.interval() * 3 / 2) }
	for loop.Sleep(ctx, soon, changed, nil) && loop.Sleep(ctx, late, changed, s.readEnded) {
		began = time.Now()
		take(ctx)
		ended = time.Now()
	}
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// wake has the loop go on that waits for c, which has room for one.
func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// watched runs a step, and logs when it starts to fail and when it works again.
func (r *Relay) watched(name string, step func(context.Context, time.Time) error) func(context.Context) {
	var failingSince time.Time
	return func(ctx context.Context) {
		now := r.cfg.Clock()
		err := step(ctx, now)
		switch {
		case ctx.Err() != nil: // being stopped
		case err != nil:
			r.metrics.errors.Add(1)
			if failingSince.IsZero() {
				failingSince = now
				r.cfg.Logger.Warn("relay cannot "+name+"; it goes on trying", "error", err)
			}
		case !failingSince.IsZero():
			r.cfg.Logger.Info("relay can "+name+" again", "after", now.Sub(failingSince).Round(time.Millisecond))
			failingSince = time.Time{}
		}
	}
}
