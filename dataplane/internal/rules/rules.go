// Package rules has the settings in force on a node: the tuning or the trial that takes its place, and for each
// namespace the overrides, resets, mode, outage policy and node share that operators have set. Rules reads them and
// puts them in force; a request looks its Rule up in the Settings of that moment.
package rules

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/weirhq/weir/dataplane/internal/brief"
	"github.com/weirhq/weir/dataplane/internal/cell"
	"github.com/weirhq/weir/dataplane/internal/clock"
	"github.com/weirhq/weir/dataplane/internal/loop"
	"github.com/weirhq/weir/dataplane/store"
)

const readTimeout = 5 * time.Second // of reading settings

// Rules holds the settings in force on a node, and replaces them by settings that it reads. Call Init before any other
// method; after that all methods may be called concurrently. Requests read the settings in force with a single atomic
// load, and never wait for a read of new settings.
type Rules struct {
	inForce atomic.Pointer[Settings]
	cfg     Config
	loading chan struct{} // full while settings are read and put in force: a slow read can't undo a later read
	asOf    readTime      // when the settings in force were read; only the holder of loading uses it
	tries   chan struct{} // full when a trial may have begun or been renewed
	changes loop.Changes  // wakes loops when the tuning changes
	others  loop.Changes  // wakes waiting goroutines when other settings are in force

	errors  atomic.Int64
	readAt  atomic.Int64 // clock.Steady
	problem atomic.Pointer[string]
}

// Source is where settings come from: the part of store.Settings that Rules uses.
type Source interface {
	Settings(ctx context.Context, region string) (store.SettingsRows, error)
}

// Config holds the parts of the node that Rules uses.
type Config struct {
	Source         Source // nil: the built-in default stays in force
	Region, NodeID string
	RegionNodes    int  // nodes of the region; 0 goes by heartbeats
	Fleet          bool // the node has an origin
	Clock          *clock.Clock
	Walk           func(visit func(*cell.Entry)) // visits the entries of the node's table
	Logger         *slog.Logger
}

// Init puts the built-in default in force.
func (r *Rules) Init(cfg Config) {
	r.cfg, r.loading, r.tries = cfg, make(chan struct{}, 1), make(chan struct{}, 1)
	first := defaultSettings()
	first.setNodes(0, &r.cfg)
	r.inForce.Store(first)
}

// InForce returns the settings in force.
func (r *Rules) InForce() *Settings { return r.inForce.Load() }

// Changed returns a channel that is closed when the tuning changes.
func (r *Rules) Changed() <-chan struct{} { return r.changes.Next() }

// Replaced returns a channel that is closed when other settings are put in force.
func (r *Rules) Replaced() <-chan struct{} { return r.others.Next() }

// Cadence returns a function for loop.Every, which returns an interval of the settings in force and its jitter.
func (r *Rules) Cadence(interval func(*Settings) time.Duration) func() (time.Duration, float64) {
	return func() (time.Duration, float64) {
		s := r.InForce()
		return interval(s), s.Tuning.Jitter
	}
}

// Errors returns how many reads have failed, or have read something that is not in force.
func (r *Rules) Errors() int64 { return r.errors.Load() }

// ReadAt returns when settings were last read without an error, or 0 for never.
func (r *Rules) ReadAt() clock.Steady { return clock.Steady(r.readAt.Load()) }

// Problem returns the error of the last read, or "".
func (r *Rules) Problem() string {
	if p := r.problem.Load(); p != nil {
		return *p
	}
	return ""
}

// note records how a read has ended.
func (r *Rules) note(err error, now clock.Steady) {
	if err != nil {
		r.errors.Add(1)
		text := brief.Error(err)
		r.problem.Store(&text)
		return
	}
	r.readAt.Store(int64(now))
	r.problem.Store(nil)
}

// Load reads and applies the stored settings. On any failure the settings in force stay, and also if they were read
// from the store later than the new settings.
func (r *Rules) Load(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	select {
	case r.loading <- struct{}{}:
		defer func() { <-r.loading }()
	case <-ctx.Done():
		return fmt.Errorf("read settings: %w", ctx.Err())
	}
	asked := r.cfg.Clock.ReadSteady()
	rows, err := r.cfg.Source.Settings(ctx, r.cfg.Region)
	if errors.Is(err, store.ErrNoSettings) {
		return nil // the settings in force stay: the region's relay has not begun
	}
	last := r.InForce()
	if err == nil {
		err = r.asOf.take(&rows, last.rows, asked, r.cfg.Clock.ReadSteady())
	}
	if err != nil {
		err = fmt.Errorf("read settings: %w", err)
		if !errors.Is(ctx.Err(), context.Canceled) { // Stop has ended it, which is no problem
			r.note(err, r.cfg.Clock.ReadSteady())
		}
		return err
	}
	nowMs := int64(0) // no reset has expired
	if r.cfg.Clock.Known() {
		nowMs = r.cfg.Clock.ReadMs()
	}
	next, err := last.same(&rows, nowMs), error(nil)
	if next == nil {
		next, err = compile(rows, r.heldResets(last, nowMs), last, nowMs)
		if problem := next.try(&rows, last, r.cfg.NodeID); problem != nil {
			next.rows, err = "", errors.Join(err, problem)
		}
	}
	if next != last {
		next.setNodes(rows.NodesLive, &r.cfg)
	}
	next.trial.renew(&rows, asked)
	r.apply(next.at(r.cfg.Clock.ReadSteady()))
	r.note(err, r.cfg.Clock.ReadSteady())
	return err
}

// apply puts settings in force.
func (r *Rules) apply(next *Settings) {
	r.tuned(r.inForce.Swap(next), next)
	select {
	case r.tries <- struct{}{}:
	default: // EndTrials is about to look
	}
}
