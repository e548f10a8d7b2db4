package relay

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/heartbeat"
)

// settingsTimeout bounds reading all settings, storing them in the shards, and storing heartbeats.
const settingsTimeout = 5 * time.Second

// settingsDue reports whether the relay must carry settings now: once every SettingsInterval, if it has a lease.
func (r *Relay) settingsDue(now time.Time) bool {
	if since := now.Sub(r.settingsAt); since >= 0 && since < r.tuning().SettingsInterval {
		return false
	}
	return r.cfg.Settings != nil && r.leads(now)
}

// carrySettings carries the nodes' heartbeats to the store, and the operators' settings from the store to the origin,
// for each shard whose lease the relay has. If the store fails, the origin's copies stay as they are, and their age
// grows.
func (r *Relay) carrySettings(ctx context.Context, now time.Time) error {
	r.settingsAt = now
	ctx, cancel := context.WithTimeout(ctx, settingsTimeout)
	defer cancel()
	var errs []error
	for _, s := range r.shards {
		if _, ok := s.lease.term(now); ok {
			errs = append(errs, s.storeHeartbeats(ctx, now))
		}
	}
	return errors.Join(append(errs, r.storeSettings(ctx, now))...)
}

// settingsReadEvery is how often the relay reads settings with an unchanged version, because a change that bypasses the
// control plane does not change the version.
const settingsReadEvery = time.Minute

// knownSettings are the settings that the relay has read. Only the loop that carries settings uses them.
type knownSettings struct {
	rows    store.SettingsRows
	version int64 // the version before they were read; 0 if unknown
	readAt  time.Time
	asked   time.Time // when the relay requested them, by a clock that does not step; a trial's lease counts from then
	nodes   liveNodes
}

// trialEnds reports whether a third of the trial's lease has passed since the relay read it.
func (k *knownSettings) trialEnds() bool {
	return k.rows.Trial.Number != 0 && 3*time.Since(k.asked) >= k.rows.Trial.Left
}

// settingsRows returns the settings. It reads them again unless they cannot have changed: Feed has returned the same
// version within the interval, the region's nodes are the same, and no trial's lease must be renewed.
func (r *Relay) settingsRows(ctx context.Context, now time.Time) (store.SettingsRows, error) {
	known := &r.settings
	version, at := r.reader.settingsVersion()
	t := r.tuning()
	fresh := version != 0 && now.Sub(at) < max(t.SettingsInterval, 2*t.Interval) && !known.trialEnds()
	if known.nodes.changed(now) || !fresh || version != known.version || now.Sub(known.readAt) >= settingsReadEvery {
		known.version = 0 // until the read succeeds
		asked := time.Now()
		rows, err := r.cfg.Settings.Settings(ctx, r.cfg.Region)
		if err != nil {
			return rows, fmt.Errorf("read settings: %w", err)
		}
		if known.rows, known.readAt, known.asked = rows, now, asked; rows.Problem == nil {
			known.version = version
		}
	}
	return known.rows, nil
}

func (r *Relay) storeSettings(ctx context.Context, now time.Time) error {
	rows, err := r.settingsRows(ctx, now)
	if err != nil {
		return err
	}
	left := rows.Trial.Left
	var errs []error
	for _, s := range r.shards {
		if _, ok := s.lease.term(now); !ok {
			continue
		}
		asOf, err := s.clock(ctx)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		rows.Trial.Left = max(0, left-time.Since(r.settings.asked)) // computed after asOf, so it is never too long
		if err := r.mailbox.StoreSettings(ctx, s.index, r.cfg.Holder, rows, asOf); err != nil {
			errs = append(errs, fmt.Errorf("send settings to shard %d: %w", s.index, err))
		}
	}
	return errors.Join(errs...)
}

// storeHeartbeats stores the waiting heartbeats of the region's nodes, up to store.HeartbeatsMax at a time. Storing a
// heartbeat twice does no harm.
func (s *shard) storeHeartbeats(ctx context.Context, now time.Time) error {
	var refused error
	for range store.WaitingHeartbeatsMax / store.HeartbeatsMax {
		kept, err := s.relay.mailbox.Heartbeats(ctx, s.index, store.HeartbeatsMax)
		if err != nil {
			return fmt.Errorf("take heartbeats of shard %d: %w", s.index, err)
		}
		if len(kept) == 0 {
			break
		}
		beats, strange := s.heartbeatsOf(kept)
		err = s.relay.cfg.Settings.Heartbeat(ctx, beats...)
		if strange != nil && refused == nil {
			refused = strange
		}
		switch {
		case errors.Is(err, store.ErrRefused): // the store has refused some, and stored all others
			refused = errors.Join(refused, err)
		case err != nil:
			return fmt.Errorf("store %d heartbeats: %w", len(kept), err)
		}
		s.relay.settings.nodes.see(beats, now)
		if err := s.relay.mailbox.AckHeartbeats(ctx, s.index, kept); err != nil {
			return fmt.Errorf("drop stored heartbeats of shard %d: %w", s.index, err)
		}
		if len(kept) < store.HeartbeatsMax {
			break
		}
	}
	return refused
}

// storeLastHeartbeats stores the waiting heartbeats of a relay that has just released its leases. If the next relay
// stores the same heartbeats, that does no harm. Heartbeats that cannot be stored are left to the next relay.
func (r *Relay) storeLastHeartbeats(ctx context.Context) {
	if r.cfg.Settings == nil {
		return
	}
	for _, s := range r.shards {
		if err := s.storeHeartbeats(ctx, r.cfg.Clock()); err != nil {
			r.cfg.Logger.Warn("relay cannot store the last heartbeats; the next relay stores them", "error", err)
		}
	}
}

// heartbeatsOf returns the heartbeats of the own region's nodes, and an error about the first heartbeat of another
// region. A relay must not store heartbeats of other regions.
func (s *shard) heartbeatsOf(kept []store.StoredHeartbeat) (beats []heartbeat.Heartbeat, strange error) {
	for _, b := range kept {
		if own := s.relay.cfg.Region; b.Region == own {
			beats = append(beats, b.Heartbeat)
		} else if strange == nil {
			strange = fmt.Errorf("%w: heartbeats at shard %d: %.80q claims region %.80q, and this relay's region is %q",
				store.ErrRefused,
				s.index, b.NodeID, b.Region, own)
		}
	}
	return beats, strange
}

// liveNodes are the nodes with a recent heartbeat.
type liveNodes struct {
	seen  map[string]time.Time // time of the last heartbeat, by node ID
	other bool                 // the set of nodes has changed since changed was last called
}

func (n *liveNodes) see(beats []heartbeat.Heartbeat, now time.Time) {
	if n.seen == nil {
		n.seen = make(map[string]time.Time)
	}
	for i := range beats {
		b := &beats[i]
		if _, there := n.seen[b.NodeID]; there == b.Stopped {
			n.other = true
		}
		n.seen[b.NodeID] = now.Add(-b.Age)
		if b.Stopped {
			delete(n.seen, b.NodeID)
		}
	}
}

// changed reports whether a node has come or gone since the last call. It waits longer than the store, which receives
// heartbeats later, so the store no longer counts a node that has gone.
func (n *liveNodes) changed(now time.Time) bool {
	maps.DeleteFunc(n.seen, func(_ string, at time.Time) bool {
		gone := now.Sub(at) > store.NodeLiveFor+settingsTimeout
		n.other = n.other || gone
		return gone
	})
	other := n.other
	n.other = false
	return other
}
