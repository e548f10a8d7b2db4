package mysqlcounts

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/gen/sql/dataplanedb"
)

// Settings implements store.Settings. It reads the tables in turn, not in one transaction, because no table refers to
// another. If a part cannot be read, Settings fails, except for trials and resets whose table is missing or not
// granted. For example, nodes may be upgraded before the database is migrated, and must not lose all settings then.
func (c *Counts) Settings(ctx context.Context, region string) (store.SettingsRows, error) {
	var s store.SettingsRows
	// Trials are read first. If a trial is over because its tuning was stored, the tuning that is read next makes the
	// trial void.
	trials, err := c.queries.TrialsForRegion(ctx, []byte(region))
	if err != nil {
		if err = fmt.Errorf("read the trials of %q: %w", region, err); !isNotSetUp(err) {
			return store.SettingsRows{}, err
		}
		s.Problem = fmt.Errorf("%w; no trial is run until the table is migrated and granted", err)
	}
	if err := c.readTuning(ctx, region, trials, &s); err != nil {
		return store.SettingsRows{}, fmt.Errorf("read the tuning of %q: %w", region, err)
	}
	if err := c.readNamespaces(ctx, &s); err != nil {
		return store.SettingsRows{}, fmt.Errorf("read the namespaces: %w", err)
	}
	if err := c.readOverrides(ctx, &s); err != nil {
		return store.SettingsRows{}, fmt.Errorf("read the overrides: %w", err)
	}
	if err := c.readResets(ctx, &s); err != nil {
		err = fmt.Errorf("read the resets: %w", err)
		if !isNotSetUp(err) {
			return store.SettingsRows{}, err
		}
		s.Problem = errors.Join(s.Problem, fmt.Errorf("%w; no reset is applied until the table is migrated and granted", err))
	}
	live, err := c.queries.NodesLive(ctx, dataplanedb.NodesLiveParams{
		Region: []byte(region), WithinMs: store.NodeLiveFor.Milliseconds(),
	})
	if err != nil {
		return store.SettingsRows{}, fmt.Errorf("count the nodes of %q: %w", region, err)
	}
	s.NodesLive = int(live)
	return s, nil
}

// readTuning reads at most two rows: the region's newest tuning and the fleet's.
func (c *Counts) readTuning(ctx context.Context, region string, trials []dataplanedb.TrialsForRegionRow,
	s *store.SettingsRows) error {
	rows, err := c.queries.TuningForRegion(ctx, []byte(region))
	newest := map[string]int64{}
	for _, r := range rows {
		newest[string(r.Region)] = saturate(r.Version)
		if own := string(r.Region) == region; own || s.TuningVersion == 0 {
			s.TuningVersion, s.TuningDocument = saturate(r.Version), []byte(r.Document)
		}
	}
	s.Trial = trialOf(region, trials, newest)
	return err
}

// trialOf returns the trial of a region: its own trial, or, if the region has no tuning of its own, the trial of such
// regions. A trial is void if the stored tuning is not the tuning that the trial changes.
func trialOf(region string, trials []dataplanedb.TrialsForRegionRow, newest map[string]int64) (t store.TrialRow) {
	for _, r := range trials {
		of := string(r.Region)
		if _, tuned := newest[region]; of != region && (tuned || t.Number != 0) || saturate(r.OverVersion) != newest[of] {
			continue
		}
		t = store.TrialRow{Number: saturate(r.Number), Document: []byte(r.Document), Below: saturate(r.Below),
			Left: time.Duration(r.LeftMs) * time.Millisecond}
	}
	return t
}

func (c *Counts) readNamespaces(ctx context.Context, s *store.SettingsRows) error {
	rows, err := c.queries.Namespaces(ctx)
	for _, r := range rows {
		s.Namespaces = append(s.Namespaces, store.NamespaceRow{
			Workspace: string(r.WorkspaceID), Namespace: string(r.Namespace), Shadow: r.Shadow != 0,
			Mode: r.Mode, Outage: r.Outage, NodeShare: r.NodeShare, Window: store.Window(r.WindowKind), Estimate: r.Estimate,
		})
	}
	return err
}

func (c *Counts) readOverrides(ctx context.Context, s *store.SettingsRows) error {
	rows, err := c.queries.Overrides(ctx)
	for _, r := range rows {
		s.Overrides = append(s.Overrides, store.OverrideRow{
			Workspace: string(r.WorkspaceID), Namespace: string(r.Namespace), Pattern: string(r.Pattern),
			Limit: saturate(r.Limit), DurationMs: saturate(r.DurationMs), Candidate: saturate(r.Candidate),
			Shadow: r.Shadow != 0,
		})
	}
	return err
}

func (c *Counts) readResets(ctx context.Context, s *store.SettingsRows) error {
	rows, err := c.queries.Resets(ctx, store.ResetsMax)
	for _, r := range rows {
		s.Resets = append(s.Resets, store.ResetRow{
			Workspace: string(r.WorkspaceID), Namespace: string(r.Namespace), Identifier: string(r.Identifier),
			Generation: int64(r.Generation), AtMs: saturate(r.SetAt), ExpiresAtMs: saturate(r.ExpiresAt),
		})
	}
	return err
}

// saturate converts n, or returns the largest int64 if n is larger. So a number that is too large stays too large, and
// validation refuses it.
func saturate(n uint64) int64 { return int64(min(n, math.MaxInt64)) }
