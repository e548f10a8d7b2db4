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

// problemBytesMax bounds the one figure that is text, so that the whole stays below what its column takes
// (65,535 bytes).
const problemBytesMax = 2000

// heartbeatRows is the statement that records several nodes' heartbeats at once.
var heartbeatRows = mustSplit(dataplanedb.NodeBeat)

// Heartbeat implements store.Settings, as one statement. Text for people (Build and
// Health.SettingsProblem) is cut where it is too long, as are the figures of a relay, and Top is left out, as a node
// that says too much is still alive; what identifies the node is not.
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
	return refused
}

// heartbeatEach records each word by itself, after the server has refused all of them for the sake of one.
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

// heartbeatColumns is how many arguments a row takes, in the order of dataplanedb.NodeBeatParams.
const heartbeatColumns = 10

// heartbeatArgs are those of all rows that the table can hold, and why it cannot hold the others. Rows are written in
// the order of their keys, so that two relays do not wait for each other.
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
		return row, fmt.Errorf("%w: tuning version %d, started at %d, sent at %d: one is negative",
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

// bounded cuts and leaves out what no node says, so that a beat takes less than its column, whatever its
// origin hands on: shards beyond heartbeat.ShardsMax, and the lags of more regions than heartbeat.RegionsMax, or of one
// whose name is too long.
func bounded(h heartbeat.Health) heartbeat.Health {
	h.SettingsProblem = cut(h.SettingsProblem, problemBytesMax)
	h.Problems = slices.Clone(h.Problems[:min(len(h.Problems), heartbeat.ProblemsMax)])
	for i := range h.Problems {
		h.Problems[i] = cut(h.Problems[i], heartbeat.ProblemBytesMax)
	}
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

// cut makes text that its column takes: valid UTF-8 of at most bytesMax bytes.
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
