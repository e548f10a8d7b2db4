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
		if _, ok := s.lease.term(now); ok {
			errs = append(errs, s.storeHeartbeats(ctx, now))
		}
	}
	return errors.Join(append(errs, r.storeSettings(ctx, now))...)
}

// settingsReadEvery is how often settings are read whose version is the same: a change that was made past the control
// plane raises none.
const settingsReadEvery = time.Minute

// knownSettings are what a relay has read, in the loop that carries settings.
type knownSettings struct {
	rows    store.SettingsRows
	version int64 // before they were read; 0 is unknown
	readAt  time.Time
	asked   time.Time // when readAt was, by a clock that does not step: a trial's lease is reckoned from it
	nodes   liveNodes
}

// trialEnds tells whether a third of the time is over for which the trial was good when it was read.
func (k *knownSettings) trialEnds() bool {
	return k.rows.Trial.Number != 0 && 3*time.Since(k.asked) >= k.rows.Trial.Left
}

// settingsRows reads the settings, unless it is known that they have not changed since they were read last: Feed has
// told their version within the interval, the region's nodes are the same, and a trial has not to be renewed.
func (r *Relay) settingsRows(ctx context.Context, now time.Time) (store.SettingsRows, error) {
	known := &r.settings
	version, at := r.reader.settingsVersion()
	t := r.tuning()
	fresh := version != 0 && now.Sub(at) < max(t.SettingsInterval, 2*t.Interval) && !known.trialEnds()
	if known.nodes.changed(now) || !fresh || version != known.version || now.Sub(known.readAt) >= settingsReadEvery {
		known.version = 0 // until they are read
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
		rows.Trial.Left = max(0, left-time.Since(r.settings.asked)) // after asOf: what is left is never too much
		if err := r.mailbox.StoreSettings(ctx, s.index, r.cfg.Holder, rows, asOf); err != nil {
			errs = append(errs, fmt.Errorf("send settings to shard %d: %w", s.index, err))
		}
	}
	return errors.Join(errs...)
}

// storeHeartbeats stores what nodes of the region have said, some at a time. A node says more within the interval;
// what is stored twice does no harm.
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
		case errors.Is(err, store.ErrRefused): // some; all others are stored
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

// storeLastHeartbeats is for a relay that has just released its leases; two that store a heartbeat do no harm. What
// fails is left to the next relay.
func (r *Relay) storeLastHeartbeats(ctx context.Context) {
	if r.cfg.Settings == nil {
		return
	}
	for _, s := range r.shards {
		if err := s.storeHeartbeats(ctx, r.cfg.Clock()); err != nil {
			r.cfg.Logger.Warn("the last heartbeats are left to the next relay", "error", err)
		}
	}
}

// heartbeatsOf are the heartbeats of nodes of the own region, and why others are left out: a region speaks for itself
// alone.
func (s *shard) heartbeatsOf(kept []store.StoredHeartbeat) (beats []heartbeat.Heartbeat, strange error) {
	for _, b := range kept {
		if own := s.relay.cfg.Region; b.Region == own {
			beats = append(beats, b.Heartbeat)
		} else if strange == nil {
			strange = fmt.Errorf("%w: heartbeats at shard %d: %.80q says that its region is %.80q, and this is %q",
				store.ErrRefused,
				s.index, b.NodeID, b.Region, own)
		}
	}
	return beats, strange
}

// liveNodes are the nodes whose heartbeats were stored lately.
type liveNodes struct {
	seen  map[string]time.Time // by node
	other bool                 // they are others than when changed was called last
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

// changed tells whether a node has come or gone. The store has counted one out by then: its heartbeat came there later.
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
