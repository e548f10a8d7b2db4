package memstore

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/heartbeat"
)

type tuningRow struct {
	version  int64
	document []byte // never changed once stored
}

// SetTuning stores a version of the tuning document for a region, "" for the fleet. A version older than the region's
// newest changes nothing. The document is not read, so tests can store an invalid document.
func (c *Counts) SetTuning(region string, version int64, document []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if version > c.tunings[region].version {
		c.tunings[region] = tuningRow{version, append([]byte{}, document...)}
		c.version++
	}
}

// Trial is a tuning that nodes of a region try until it ends.
type Trial struct {
	store.TrialRow       // but for Left
	Over           int64 // newest version of the region; if another version is the newest, the trial is void
	Ends           time.Time
}

// SetTrial stores the trial of a region, in place of the trial before. "" is for regions without their own tuning or
// trial. A trial without a number is none.
func (c *Counts) SetTrial(region string, t Trial) {
	c.set(func() { c.trials[region] = t })
}

// RenewTrial moves the end of a region's trial.
func (c *Counts) RenewTrial(region string, ends time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.trials[region]
	t.Ends = ends
	c.trials[region] = t
}

// trialLocked returns the trial of a region: see mysqlcounts.
func (c *Counts) trialLocked(region string) store.TrialRow {
	now := c.clock()
	regions := []string{region, ""}
	if _, tuned := c.tunings[region]; tuned {
		regions = regions[:1]
	}
	for _, r := range regions {
		if t := c.trials[r]; t.Number != 0 && t.Over == c.tunings[r].version && t.Ends.After(now) {
			t.Document, t.Left = slices.Clone(t.Document), t.Ends.Sub(now)
			return t.TrialRow
		}
	}
	return store.TrialRow{}
}

// set changes operators' settings.
func (c *Counts) set(change func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change()
	c.version++
}

// SetNamespaces replaces all namespaces.
func (c *Counts) SetNamespaces(rows ...store.NamespaceRow) {
	c.set(func() { c.namespaces = slices.Clone(rows) })
}

// SetOverrides replaces all overrides.
func (c *Counts) SetOverrides(rows ...store.OverrideRow) {
	c.set(func() { c.overrides = slices.Clone(rows) })
}

// SetResets replaces all resets. Nodes that have read a reset that is now missing keep it until it expires.
func (c *Counts) SetResets(rows ...store.ResetRow) {
	c.set(func() { c.resets = slices.Clone(rows) })
}

// SettingsVersion returns a number that changes with each change of operators' settings; see FeedOptions.
func (c *Counts) SettingsVersion() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.version
}

// Settings implements store.Settings.
func (c *Counts) Settings(ctx context.Context, region string) (store.SettingsRows, error) {
	c.count(func(s *CountsStats) { s.SettingsReads++; s.Statements += 5 })
	var rows store.SettingsRows
	err := c.Faults.roundTrip(ctx, OpSettings, func(journey) error {
		c.mu.Lock()
		defer c.mu.Unlock()
		tuning, ok := c.tunings[region]
		if !ok {
			tuning = c.tunings[""]
		}
		rows = store.SettingsRows{
			TuningVersion:  tuning.version,
			TuningDocument: slices.Clone(tuning.document),
			Namespaces:     slices.Clone(c.namespaces),
			Overrides:      slices.Clone(c.overrides),
			Resets:         slices.Clone(c.resets),
			NodesLive:      c.nodesLiveLocked(region),
			Trial:          c.trialLocked(region),
		}
		return nil
	})
	if err != nil {
		return store.SettingsRows{}, err
	}
	return rows, nil
}

func (c *Counts) nodesLiveLocked(region string) (nodes int) {
	since := c.clock().Add(-store.NodeLiveFor)
	for id, beat := range c.beats {
		if seen, there := c.seen[id]; there && beat.Region == region && seen.After(since) {
			nodes++
		}
	}
	return nodes
}

// Heartbeat implements store.Settings.
func (c *Counts) Heartbeat(ctx context.Context, beats ...heartbeat.Heartbeat) error {
	if len(beats) == 0 {
		return nil
	}
	c.count(func(s *CountsStats) { s.Heartbeats++; s.Statements++ })
	return c.Faults.roundTrip(ctx, OpHeartbeat, func(journey) error {
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, beat := range beats {
			c.heartbeatLocked(beat)
		}
		return nil
	})
}

func (c *Counts) heartbeatLocked(beat heartbeat.Heartbeat) {
	was := c.beats[beat.NodeID]
	if was.Stopped && beat.Precedes(&was) {
		return
	}
	if beat.Top == "" {
		beat.Top = was.Top
	}
	c.beats[beat.NodeID] = beat
	c.seen[beat.NodeID] = c.clock().Add(-beat.Age)
	if beat.Stopped {
		delete(c.seen, beat.NodeID)
	}
}

// Heartbeats returns each node's last heartbeat, sorted by node.
func (c *Counts) Heartbeats() []heartbeat.Heartbeat {
	c.mu.Lock()
	defer c.mu.Unlock()
	var beats []heartbeat.Heartbeat
	for _, id := range slices.Sorted(maps.Keys(c.beats)) {
		beats = append(beats, c.beats[id])
	}
	return beats
}
