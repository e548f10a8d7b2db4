package mysqlcounts

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/gen/sql/dataplanedb"
	"github.com/weirhq/weir/shared/heartbeat"
)

// problemBytesMax bounds Health.SettingsProblem, so that all figures together fit into their column (65,535 bytes).
const problemBytesMax = 2000

// heartbeatRows is the statement that stores the heartbeats of several nodes.
var heartbeatRows = mustSplit(dataplanedb.NodeBeat)

// Heartbeat implements store.Settings with a single statement, and stores the usage that the heartbeats report: see
// usage.go. A heartbeat with too much text shows a live node all the
// same, so text for people (Build and Health.SettingsProblem) and the figures of a relay are cut, and a Top that is too
// long is left out. Names that identify the node are not cut.
func (c *Counts) Heartbeat(ctx context.Context, beats ...heartbeat.Heartbeat) error {
	if len(beats) > store.HeartbeatsMax {
		return fmt.Errorf("%d heartbeats (at most %d)", len(beats), store.HeartbeatsMax)
	}
	args, refused := heartbeatArgs(beats)
	if len(args) == 0 {
		return refused
	}
	statement := heartbeatRows.statement(len(args) / heartbeatColumns)
	err := c.retry.do(ctx, func() error {
		_, err := c.db.ExecContext(ctx, statement, args...)
		return classify(err)
	})
	switch {
	case errors.Is(err, store.ErrRefused) && len(beats) > 1:
		return c.heartbeatEach(ctx, beats)
	case err != nil:
		return fmt.Errorf("heartbeats of %d nodes, %q first: %w", len(beats), beats[0].NodeID, err)
	}
	c.storeUsage(ctx, beats)
	return refused
}

// heartbeatEach stores each heartbeat with a statement of its own, after the server has refused all of them because of
// some.
func (c *Counts) heartbeatEach(ctx context.Context, beats []heartbeat.Heartbeat) (refused error) {
	for _, b := range beats {
		err := c.Heartbeat(ctx, b)
		if err != nil && !errors.Is(err, store.ErrRefused) {
			return err
		}
		refused = errors.Join(refused, err)
	}
	return refused
}

// heartbeatColumns is the number of arguments of a row, in the order of dataplanedb.NodeBeatParams.
const heartbeatColumns = 10

// heartbeatArgs returns the arguments of the heartbeats that fit into the table, and an error about the others. Rows
// are in the order of their keys, so that two relays do not deadlock.
func heartbeatArgs(beats []heartbeat.Heartbeat) (args []any, refused error) {
	beats = slices.Clone(beats)
	slices.SortStableFunc(beats, func(a, b heartbeat.Heartbeat) int { return cmp.Compare(a.NodeID, b.NodeID) })
	for _, b := range beats {
		r, err := heartbeatRow(b)
		if err != nil {
			refused = errors.Join(refused, fmt.Errorf("heartbeat of %q: %w", b.NodeID, err))
			continue
		}
		args = append(args, r.NodeID, r.Region, r.Build, r.TuningVersion, r.StartedAt, r.SentAt, r.Stopped, r.AgeMs,
			r.Health, r.TopKeys)
	}
	return args, refused
}

func heartbeatRow(b heartbeat.Heartbeat) (row dataplanedb.NodeBeatParams, err error) {
	switch {
	case len(b.NodeID) < 1 || len(b.NodeID) > nodeIDBytesMax:
		return row, fmt.Errorf("%w: node id is %d bytes long (1 to %d)", store.ErrRefused, len(b.NodeID), nodeIDBytesMax)
	case len(b.Region) < 1 || len(b.Region) > store.RegionBytesMax:
		return row, fmt.Errorf("%w: region is %d bytes long (1 to %d)", store.ErrRefused, len(b.Region), store.RegionBytesMax)
	case b.TuningVersion < 0 || b.StartedAtMs < 0 || b.SentAtMs < 0:
		return row, fmt.Errorf("%w: tuning version %d, started at %d, sent at %d: none may be negative",
			store.ErrRefused, b.TuningVersion, b.StartedAtMs, b.SentAtMs)
	}
	health, err := json.Marshal(bounded(b.Health))
	if err != nil {
		return row, fmt.Errorf("%w: %w", store.ErrRefused, err)
	}
	var stopped int64
	if b.Stopped {
		stopped = 1
	}
	return dataplanedb.NodeBeatParams{
		Stopped: stopped, AgeMs: max(0, b.Age.Milliseconds()),
		NodeID: []byte(b.NodeID), Region: []byte(b.Region), Build: cut(b.Build, buildBytesMax),
		TuningVersion: uint64(b.TuningVersion), StartedAt: uint64(b.StartedAtMs), SentAt: uint64(b.SentAtMs),
		Health: string(health), TopKeys: sql.NullString{String: b.Top, Valid: b.Top != "" &&
			len(b.Top) <= heartbeat.TopBytesMax},
	}, nil
}

// bounded cuts figures that no node sends, so that a heartbeat fits into its column whatever its origin contains. It
// drops shards beyond heartbeat.ShardsMax, and entries of a trial's evidence beyond its bounds. It drops all lags if
// there are more than heartbeat.RegionsMax regions, or if a region's name is too long.
func bounded(h heartbeat.Health) heartbeat.Health {
	h.SettingsProblem = cut(h.SettingsProblem, problemBytesMax)
	h.Problems = slices.Clone(h.Problems[:min(len(h.Problems), heartbeat.ProblemsMax)])
	for i := range h.Problems {
		h.Problems[i] = cut(h.Problems[i], heartbeat.ProblemBytesMax)
	}
	h.Limits = h.Limits.Bounded()
	if h.Relay == nil {
		return h
	}
	r := *h.Relay
	r.Held = r.Held[:min(len(r.Held), heartbeat.ShardsMax)]
	tooLong := func(region string) bool { return len(region) > store.RegionBytesMax }
	if len(r.LagP99Ms) > heartbeat.RegionsMax || slices.ContainsFunc(slices.Collect(maps.Keys(r.LagP99Ms)), tooLong) {
		r.LagP99Ms = nil
	}
	h.Relay = &r
	return h
}

// cut returns text that fits into a column: valid UTF-8 of at most bytesMax bytes.
func cut(s string, bytesMax int) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= bytesMax {
		return s
	}
	end := bytesMax
	for !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end]
}
