package memstore

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/heartbeat"
)

// settingsKept is how long a shard keeps its copy of the settings.
const settingsKept = 7 * 24 * time.Hour

// settingsCopy is the copy that a relay has stored in a shard; the zero value is none.
type settingsCopy struct {
	rows   store.SettingsRows // shared with callers that read them
	readAt time.Time          // by shardClock.steady
}

// waitingHeartbeat is a heartbeat that waits for the relay.
type waitingHeartbeat struct {
	store.StoredHeartbeat
	at time.Time
}

// Settings implements store.Mailbox.
func (h *Origin) Settings(ctx context.Context, _ string) (rows store.SettingsRows, err error) {
	err = h.last.Call(ctx, h.keyless, func(shard int) error {
		return h.call(ctx, OpSettings, shard, func(s *originShard, _ store.Epoch) error {
			age := s.clock.steady().Sub(s.settings.readAt)
			if s.settings.readAt.IsZero() || age > settingsKept {
				return store.ErrNoSettings
			}
			rows = s.settings.rows
			rows.Age = max(0, age)
			return nil
		})
	})
	if err != nil {
		return store.SettingsRows{}, err
	}
	return rows, nil
}

// StoreSettings implements store.Mailbox.
func (h *Origin) StoreSettings(ctx context.Context, shard int, holder string, rows store.SettingsRows,
	asOf time.Time,
) error {
	rows = cloned(rows)
	return h.call(ctx, OpStoreSettings, shard, func(s *originShard, _ store.Epoch) error {
		now := h.clock()
		if s.lease.holder != holder || !s.lease.until.After(s.clock.steady()) {
			return store.ErrNoLease
		}
		if asOf.IsZero() || asOf.After(now) {
			asOf = now
		}
		s.settings = settingsCopy{rows, asOf.Add(s.clock.back)}
		return nil
	})
}

// SetSettings stores a copy of the settings in each shard, as a relay that has ended since.
func (h *Origin) SetSettings(rows store.SettingsRows) {
	rows = cloned(rows)
	h.originServers.mu.Lock()
	defer h.originServers.mu.Unlock()
	for i := range h.shards {
		s, now := h.shardLocked(i)
		s.settings = settingsCopy{rows, now.Add(s.clock.back)}
	}
}

func cloned(rows store.SettingsRows) store.SettingsRows {
	rows.TuningDocument, rows.Trial.Document = slices.Clone(rows.TuningDocument), slices.Clone(rows.Trial.Document)
	rows.Namespaces, rows.Overrides, rows.Resets = slices.Clone(rows.Namespaces), slices.Clone(rows.Overrides),
		slices.Clone(rows.Resets)
	return rows
}

// Heartbeat implements store.Mailbox.
func (h *Origin) Heartbeat(ctx context.Context, beats ...heartbeat.Heartbeat) error {
	if len(beats) == 0 {
		return nil
	}
	return h.last.Call(ctx, h.keyless, func(shard int) error {
		return h.call(ctx, OpHeartbeat, shard, func(s *originShard, _ store.Epoch) error {
			s.dropHeartbeats(h.clock())
			for _, b := range beats {
				if err := s.saveHeartbeat(b, h.clock()); err != nil {
					return err
				}
			}
			return nil
		})
	})
}

func (s *originShard) saveHeartbeat(b heartbeat.Heartbeat, now time.Time) error {
	was, known := s.beats[b.NodeID]
	if !known && len(s.beats) >= store.WaitingHeartbeatsMax {
		return fmt.Errorf("heartbeat of %q: the origin keeps heartbeats of at most %d nodes for the relay", b.NodeID,
			store.WaitingHeartbeatsMax)
	}
	if known && b.Precedes(&was.Heartbeat) {
		return nil
	}
	b.Top = cmp.Or(b.Top, was.Top)
	s.marks++
	s.beats[b.NodeID] = waitingHeartbeat{store.StoredHeartbeat{Heartbeat: b, Mark: s.marks}, now}
	return nil
}

// dropHeartbeats drops heartbeats that no relay has taken for too long.
func (s *originShard) dropHeartbeats(now time.Time) {
	for id, b := range s.beats {
		if now.Sub(b.at) > store.NodeLiveFor {
			delete(s.beats, id)
		}
	}
}

// Heartbeats implements store.Mailbox.
func (h *Origin) Heartbeats(ctx context.Context, shard, max int) (beats []store.StoredHeartbeat, err error) {
	if max < 1 {
		return nil, opError(OpHeartbeats, fmt.Errorf("max is %d, want >= 1", max))
	}
	err = h.call(ctx, OpHeartbeats, shard, func(s *originShard, _ store.Epoch) error {
		s.dropHeartbeats(h.clock())
		for _, b := range s.beats {
			b.Age = h.clock().Sub(b.at)
			beats = append(beats, b.StoredHeartbeat)
		}
		slices.SortFunc(beats, func(a, b store.StoredHeartbeat) int { return cmp.Compare(a.Mark, b.Mark) })
		beats = beats[:min(len(beats), max)]
		return nil
	})
	if err != nil {
		return nil, err
	}
	return beats, nil
}

// AckHeartbeats implements store.Mailbox.
func (h *Origin) AckHeartbeats(ctx context.Context, shard int, beats []store.StoredHeartbeat) error {
	return h.call(ctx, OpStored, shard, func(s *originShard, _ store.Epoch) error {
		for _, b := range beats {
			if s.beats[b.NodeID].Mark == b.Mark {
				delete(s.beats, b.NodeID)
			}
		}
		return nil
	})
}
