package mysqlcounts

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/gen/sql/dataplanedb"
	"github.com/weirhq/weir/shared/heartbeat"
)

// problemBytesMax bounds the one figure that is text, so that the whole stays far
// below what its column takes (65,535 bytes).
const problemBytesMax = 2000

// Heartbeat implements store.Settings. Text for people (Build and
// Health.SettingsProblem) is cut where it is too long, and Top is left out, as a node that
// says too much is still alive; what identifies the node is not.
func (c *Counts) Heartbeat(ctx context.Context, b heartbeat.Beat) error {
	row, err := beatRow(b)
	if err != nil {
		return fmt.Errorf("heartbeat of %q: %w", b.NodeID, err)
	}
	err = c.retry.do(ctx, func() error { return classify(c.queries.NodeBeat(ctx, row)) })
	if err != nil {
		return fmt.Errorf("heartbeat of %q: %w", b.NodeID, err)
	}
	return nil
}

func beatRow(b heartbeat.Beat) (row dataplanedb.NodeBeatParams, err error) {
	switch {
	case len(b.NodeID) < 1 || len(b.NodeID) > nodeIDBytesMax:
		return row, fmt.Errorf("%w: node id is %d bytes long (1 to %d)", store.ErrRefused, len(b.NodeID), nodeIDBytesMax)
	case len(b.Region) < 1 || len(b.Region) > store.RegionBytesMax:
		return row, fmt.Errorf("%w: region is %d bytes long (1 to %d)", store.ErrRefused, len(b.Region), store.RegionBytesMax)
	case b.TuningVersion < 0 || b.StartedAtMs < 0 || b.SentAtMs < 0:
		return row, fmt.Errorf("%w: tuning version %d, started at %d, sent at %d: one is negative",
			store.ErrRefused, b.TuningVersion, b.StartedAtMs, b.SentAtMs)
	}
	b.Health.SettingsProblem = cut(b.Health.SettingsProblem, problemBytesMax)
	health, err := json.Marshal(b.Health)
	if err != nil {
		return row, fmt.Errorf("%w: %w", store.ErrRefused, err)
	}
	var stopped int64
	if b.Stopped {
		stopped = 1
	}
	return dataplanedb.NodeBeatParams{
		Stopped: stopped,
		NodeID:  []byte(b.NodeID), Region: []byte(b.Region), Build: cut(b.Build, buildBytesMax),
		TuningVersion: uint64(b.TuningVersion), StartedAt: uint64(b.StartedAtMs), SentAt: uint64(b.SentAtMs),
		Health: string(health), TopKeys: sql.NullString{String: b.Top, Valid: b.Top != "" && len(b.Top) <= heartbeat.TopBytesMax},
	}, nil
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
