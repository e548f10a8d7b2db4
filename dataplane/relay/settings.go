package relay

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/heartbeat"
)

// settingsTimeout is of reading all settings, and of telling a shard of them.
const settingsTimeout = 5 * time.Second

// settingsDue is true once an interval, of a relay with a lease.
func (r *Relay) settingsDue(now time.Time) bool {
	if since := now.Sub(r.settingsAt); since >= 0 && since < r.tuning().SettingsInterval {
		return false
	}
	return r.cfg.Settings != nil && r.leads(now)
}

// carrySettings takes what nodes say of themselves to the store, and what operators have set from there to the origin,
// for each shard that has its lease. If the store fails, the origin's copies stay as they are, and grow old.
func (r *Relay) carrySettings(ctx context.Context, now time.Time) error {
	r.settingsAt = now
	ctx, cancel := context.WithTimeout(ctx, settingsTimeout)
	defer cancel()
	var errs []error
	for _, s := range r.shards {
		if _, ok := s.term(now); ok {
			errs = append(errs, s.storeBeats(ctx))
		}
	}
	return errors.Join(append(errs, r.tellSettings(ctx, now))...)
}

func (r *Relay) tellSettings(ctx context.Context, now time.Time) error {
	rows, err := r.cfg.Settings.Settings(ctx, r.cfg.Region)
	if err != nil {
		return fmt.Errorf("read settings: %w", err)
	}
	var errs []error
	for _, s := range r.shards {
		if _, ok := s.term(now); !ok {
			continue
		}
		if err := r.cfg.Origin.TellSettings(ctx, s.index, rows); err != nil {
			errs = append(errs, fmt.Errorf("tell shard %d settings: %w", s.index, err))
		}
	}
	return errors.Join(errs...)
}

// storeBeats stores what nodes of the region have said, some at a time. A node says more within the interval; what is
// stored twice does no harm.
func (s *shard) storeBeats(ctx context.Context) error {
	var refused error
	for range store.BeatsMax / store.HeartbeatsMax {
		kept, err := s.relay.cfg.Origin.Beats(ctx, s.index, store.HeartbeatsMax)
		if err != nil {
			return fmt.Errorf("take heartbeats of shard %d: %w", s.index, err)
		}
		if len(kept) == 0 {
			break
		}
		beats, strange := s.beatsOf(kept)
		err = s.relay.cfg.Settings.Heartbeat(ctx, beats...)
		if strange != nil && refused == nil {
			refused = strange
		}
		switch {
		case errors.Is(err, store.ErrRefused): // some; all others are stored
			refused = errors.Join(refused, err)
		case err != nil:
			return fmt.Errorf("store %d heartbeats: %w", len(kept), err)
		}
		if err := s.relay.cfg.Origin.Stored(ctx, s.index, kept); err != nil {
			return fmt.Errorf("drop stored heartbeats of shard %d: %w", s.index, err)
		}
		if len(kept) < store.HeartbeatsMax {
			break
		}
	}
	return refused
}

// storeLastBeats is for a relay that has just released its leases; two that store a heartbeat do no harm. What fails is
// left to the next relay.
func (r *Relay) storeLastBeats(ctx context.Context) {
	if r.cfg.Settings == nil {
		return
	}
	for _, s := range r.shards {
		if err := s.storeBeats(ctx); err != nil {
			r.cfg.Logger.Warn("the last heartbeats are left to the next relay", "error", err)
		}
	}
}

// beatsOf are the heartbeats of nodes of the own region, and why others are left out: a region speaks for itself alone.
func (s *shard) beatsOf(kept []store.KeptBeat) (beats []heartbeat.Beat, strange error) {
	for _, b := range kept {
		if own := s.relay.cfg.Region; b.Region == own {
			beats = append(beats, b.Beat)
		} else if strange == nil {
			strange = fmt.Errorf("%w: heartbeats at shard %d: %.80q says that its region is %.80q, and this is %q", store.ErrRefused,
				s.index, b.NodeID, b.Region, own)
		}
	}
	return beats, strange
}
