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

// Config configures a relay. Region, Origin, Feed, Counts and Holder must be set.
type Config struct {
	Region string            // see store.CheckRegion
	Origin store.RelayOrigin // the region's origin
	Feed   store.Feed        // the fleet's change feed
	Counts store.CountStore  // the fleet's CountStore; the relay calls Publish and Import
	// Settings is where operators store settings for the fleet, for example overrides, and where heartbeats are stored.
	// The relay carries both through Origin, which must be a store.Mailbox then. If Settings is nil, the relay carries
	// neither.
	Settings store.Settings

	Holder string        // the node's ID, unique in the region, 1 to store.HolderBytesMax bytes
	Tuning func() Tuning // called before each step, also concurrently; nil: DefaultTuning
	// TuningChanged returns a channel that is closed when Tuning changes, so that no loop waits for an interval of the old
	// tuning. If it is nil, loops notice a change when their current wait ends.
	TuningChanged func() <-chan struct{}

	Clock  func() time.Time // paces the relay; cells expire by their origin's clock; nil: time.Now
	Logger *slog.Logger     // nil: logs nothing

	// Publish is called with each row for peers, twice an interval if counts are due. Such a row has a Stream and a
	// Payload, but no number. Feed receives the same counts in rows of its own. Publish must neither block nor change the
	// row, but may keep it. A row is a lower bound of its region's cost whether or not it is stored later, so a relay that
	// has been replaced does no harm by publishing. If Publish is nil, the relay makes no rows for peers.
	Publish func(row store.FeedRow)
}

// Tuning is the part of the configuration that can change while a relay runs. A duration of 0 means its default. Floor
// and Step have no default, because 0 is a valid value; DefaultTuning has 0.1 and 0.01.
type Tuning struct {
	// Interval is the time between two rows of a shard, and between two reads: 200 ms. A lower value publishes counts
	// sooner, but runs more statements.
	Interval         time.Duration
	SnapshotEvery    time.Duration // least time between two snapshots: 30 s. Lower: relays start sooner, more bytes
	SettingsInterval time.Duration // between two reads of settings: 5 s. Lower: sooner in force, more statements
	// Floor is a share of the limit. While no other region uses a cell, a count is published whenever it passes a multiple
	// of the floor. A count below the floor is not stored in the CountStore. For example, with a floor of 0.1 and a limit
	// of 1,000, a region publishes a cell's first count, and then about each hundredth request. 0 publishes every growth.
	// A higher value takes fewer bytes, but a region that begins to use a key starts from an older count.
	Floor float64
	// Step is a share of the limit. A count is stored again in the CountStore when it has grown by StoreSteps steps; 0
	// stores every growth.
	Step              float64
	MinGlobalDuration time.Duration // shortest window whose counts are published: 2 s
	StoreFloor        float64       // share of its limit from which a count is stored, if Floor is lower
	StoreSteps        float64       // steps by which a count must grow to be stored again; 0 means 1
}

// StoreFloor and StoreSteps are the values that nodes use. With the default floor and step, a cell that reaches its
// limit takes some three rows in the CountStore: for example, with a limit of 1,000, at totals of about 500, 750 and
// 1,000. Each stored count costs MySQL a row, and the change feed has the other counts.
const (
	StoreFloor = 0.5
	StoreSteps = 25
)

// DefaultTuning returns the tuning of a relay whose Config.Tuning is nil.
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

// Relay carries counts between the origin of its region and the other regions, for each shard of the origin whose lease
// it has. Any number of a region's nodes may run a relay.
//
// Start and Stop may each be called twice, but not concurrently. Step is for callers that control the time, such as
// tests and simulators: it must not run concurrently with another Step, or between Start and Stop. Apply, Leads, Lost,
// Handed and the methods of Collector may be called at any time, concurrently.
type Relay struct {
	cfg     Config
	mailbox store.Mailbox // Config.Origin, or nil if it is no store.Mailbox
	clock   *clock.Clock  // measures durations by Config.Clock
	shards  []*shard
	reader  *reader
	metrics metrics
	loops   loop.Lifecycle

	importing  chan struct{} // has capacity 1; filled while an import runs
	settingsAt time.Time     // when carrySettings last ran
	settings   knownSettings
}

// ErrStarted is returned by Start on a relay that was started or stopped before.
var ErrStarted = errors.New("relay: was started before")

const callTimeout = 2 * time.Second // of a call about some cells; loads of all cells have stallTimeout

// New returns a relay that does nothing until Start or Step is called.
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

// Start starts the loops and returns at once. The loops use ctx's values, but ignore its end: Stop ends them.
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

// Stop ends the loops, waits for them, and releases the leases, so that another relay can take over at once. Counts
// that were not published stay in the origin, where that relay finds them. Stop also stores pending heartbeats, because
// they include the last heartbeat of the node that stops. If ctx has ended before the call, Stop tries for up to 5 s. A
// second Stop returns nil at once.
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

// Step does once all that the loops do in an interval, in this order: leases, peers, changes, the change feed, foreign
// totals, stored counts, settings and heartbeats. It continues after an error, and returns all errors.
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

// shardOf returns the shard that holds a key's cells in this region's origin.
func (r *Relay) shardOf(key *window.Key) *shard {
	if len(r.shards) == 1 {
		return r.shards[0]
	}
	asked := *key // passing the key to an Origin makes it escape to the heap, so pass a copy
	return r.shards[r.cfg.Origin.ShardOf(&asked)]
}

// Leads reports whether the relay has the lease of any shard, and so applies rows from peers: see Apply.
func (r *Relay) Leads() bool { return r.leads(r.cfg.Clock()) }

func (r *Relay) leads(now time.Time) bool {
	for _, s := range r.shards {
		if _, ok := s.lease.term(now); ok {
			return true
		}
	}
	return false
}

// every runs step about once an interval until ctx ends.
func (r *Relay) every(ctx context.Context, interval func() time.Duration, step func(context.Context)) {
	cadence := func() (time.Duration, float64) { return interval(), 0 }
	r.loops.Go(func() { loop.Every(ctx, cadence, r.cfg.TuningChanged, step) })
}

// readPausing reads the change feed until ctx ends. A read begins an interval after the last read began, but at least
// three quarters of an interval after it ended, so a relay that is far from MySQL reads less often.
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

// takeAfterReads takes changes after each read of the change feed. So a count that must be published because of a row
// just read is published at once, and a relay that is far from MySQL writes fewer rows. Takes begin at least half an
// interval apart. If reads fail or take long, the next take begins 1.5 intervals after the last take ended.
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

// wake signals the loop that waits for c, which has capacity 1.
func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// watched returns a function that runs a step, and logs when the step starts to fail and when it works again.
func (r *Relay) watched(name string, step func(context.Context, time.Time) error) func(context.Context) {
	var failingSince time.Time
	return func(ctx context.Context) {
		now := r.cfg.Clock()
		err := step(ctx, now)
		switch {
		case ctx.Err() != nil: // the relay is being stopped
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
