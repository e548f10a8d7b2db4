package cleanup

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/shared/heartbeat"
)

var day = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// table is a window-count table in memory: expiries, sorted, and heartbeats.
type table struct {
	now      time.Time
	expiries []time.Time
	seen     []time.Time
	resets   []time.Time // expiries
	usage    []time.Time // hours
	reports  []time.Time // of ended processes
	batches  []int
	err      error // of the next DeleteExpired

	partitioned bool
	dated       []time.Time // ends of partitions; each has ten rows
	inUse       bool
	made        int // calls that add partitions
	missing     int

	dropsRefused, addsRefused bool
	kept                      []time.Time // until
	keepErr                   error
}

func (s *table) PartitionsRefused(context.Context) (string, error) {
	if s.partitioned {
		return "", nil
	}
	return NoPartitions, nil
}

func (s *table) PartitionsMissing(context.Context) ([]string, error) {
	return []string{PartitionsOfHours, PartitionsOfDays}[:s.missing], nil
}

func (s *table) DropExpiredPartition(_ context.Context, cutoff time.Time) (Dropped, error) {
	switch {
	case s.inUse:
		return Dropped{}, ErrTableInUse
	case s.dropsRefused:
		return Dropped{}, fmt.Errorf("%w: no such definer", ErrPartitionsRefused)
	}
	if len(s.dated) == 0 || s.dated[0].After(cutoff) {
		return Dropped{}, nil
	}
	at := s.dated[0]
	s.dated = s.dated[1:]
	return Dropped{Partition: at.String(), Rows: 10}, nil
}

func (s *table) AddPartitions(context.Context, int) (int, error) {
	switch {
	case s.inUse:
		return 0, ErrTableInUse
	case s.addsRefused:
		return 0, fmt.Errorf("%w: no such definer", ErrPartitionsRefused)
	}
	s.made++
	return s.missing, nil
}

func (s *table) KeepExpiredPartition(_ context.Context, cutoff time.Time, keep time.Duration) error {
	if s.keepErr != nil {
		return s.keepErr
	}
	if len(s.dated) > 0 && !s.dated[0].After(cutoff) {
		s.kept = append(s.kept, s.dated[0].Add(keep))
	}
	return nil
}

func (s *table) DropKept(context.Context) error {
	if s.dropsRefused {
		return ErrPartitionsRefused
	}
	if len(s.kept) > 0 && !s.kept[0].After(s.now) {
		s.kept = s.kept[1:]
	}
	return nil
}

func (s *table) DeleteUndated(ctx context.Context, cutoff time.Time, rows int) (int64, error) {
	if !s.partitioned {
		return 0, errors.New("there are no partitions")
	}
	s.partitioned = false
	defer func() { s.partitioned = true }()
	return s.DeleteExpired(ctx, cutoff, rows)
}

func (s *table) Now(context.Context) (time.Time, error) { return s.now, nil }

func (s *table) OldestExpiry(context.Context) (time.Time, bool, error) {
	if len(s.expiries) == 0 {
		return time.Time{}, false, nil
	}
	return slices.MinFunc(s.expiries, time.Time.Compare), true, nil
}

func (s *table) DeleteExpired(ctx context.Context, cutoff time.Time, rows int) (int64, error) {
	if _, ok := ctx.Deadline(); !ok {
		return 0, errors.New("a batch without a deadline")
	}
	if err := s.err; err != nil {
		s.err = nil
		return 0, err
	}
	if s.partitioned && !s.dropsRefused {
		return 0, errors.New("rows that a partition's drop would take")
	}
	s.batches = append(s.batches, rows)
	var n int
	s.expiries, n = without(s.expiries, cutoff, rows)
	return int64(n), nil
}

func (s *table) DeleteDeadNodes(_ context.Context, cutoff time.Time, rows int) (int64, error) {
	var n int
	s.seen, n = without(s.seen, cutoff, rows)
	return int64(n), nil
}

func (s *table) DeleteExpiredResets(_ context.Context, cutoff time.Time, rows int) (int64, error) {
	var n int
	s.resets, n = without(s.resets, cutoff, rows)
	return int64(n), nil
}

func (s *table) DeleteOldUsage(_ context.Context, cutoff time.Time, rows int) (int64, error) {
	var n int
	s.usage, n = without(s.usage, cutoff, rows)
	return int64(n), nil
}

func (s *table) DeleteOldUsageReports(_ context.Context, cutoff time.Time, rows int) (int64, error) {
	var n int
	s.reports, n = without(s.reports, cutoff, rows)
	return int64(n), nil
}

// Usage is kept for 90 days, and the totals of a process until heartbeat.UsageForgottenAfter after its last report.
func TestCleanupDeletesOldUsage(t *testing.T) {
	hour, forgotten := day.Add(-UsageKept), day.Add(-heartbeat.UsageForgottenAfter)
	store := &table{now: day, usage: []time.Time{hour.Add(-1), hour, day}, reports: []time.Time{forgotten.Add(-1), forgotten}}
	cleanup, metrics := newCleanup(t, store, func(*Config) {})
	if _, err := cleanup.Run(controlplane.Once(t.Context())); err != nil || len(store.usage) != 2 || len(store.reports) != 1 {
		t.Errorf("%v; usage of %v, reports of %v are left", err, store.usage, store.reports)
	}
	if n := testutil.ToFloat64(metrics.usageDeleted); n != 1 {
		t.Errorf("weir_cleanup_usage_deleted_total is %v", n)
	}
}

func without(times []time.Time, cutoff time.Time, rows int) (left []time.Time, deleted int) {
	for _, at := range times {
		if at.Before(cutoff) && deleted < rows {
			deleted++
			continue
		}
		left = append(left, at)
	}
	return left, deleted
}

// While the database's clock or this process's is wrong, nothing is deleted, because decisions might still depend on
// the rows.
func TestCleanupDeletesNothingWhileTheClocksDiffer(t *testing.T) {
	for name, c := range map[string]struct {
		grace, ahead time.Duration // of the database's clock
		refused      bool
	}{
		"the database is ahead":     {time.Minute, time.Minute + 2*time.Millisecond, true},
		"a day ahead":               {time.Minute, 24 * time.Hour, true},
		"the database is behind":    {time.Minute, -time.Minute - 2*time.Millisecond, true},
		"within the grace":          {time.Minute, 59 * time.Second, false},
		"behind, within the grace":  {time.Minute, -59 * time.Second, false},
		"no grace leaves a second":  {0, 900 * time.Millisecond, false},
		"no grace, and two seconds": {0, 2 * time.Second, true},
	} {
		t.Run(name, func(t *testing.T) {
			old := []time.Time{day.Add(-48 * time.Hour)}
			store := &table{now: day.Add(c.ahead), expiries: old, seen: old, resets: old}
			cleanup, _ := newCleanup(t, store, func(config *Config) { config.Grace = c.grace })
			cleanup.clock = func() time.Time { return day }
			_, err := cleanup.Run(controlplane.Once(t.Context()))
			if errors.Is(err, controlplane.ErrClocksDiffer) != c.refused || (err != nil) != c.refused {
				t.Errorf("error %v", err)
			}
			if left := len(store.expiries) + len(store.seen) + len(store.resets); (left == 3) != c.refused {
				t.Errorf("%d of 3 rows are left", left)
			}
			if _, err := cleanup.Lag(t.Context()); err != nil {
				t.Errorf("the lag is read whatever the clocks say: %v", err)
			}
		})
	}
}

func config(change func(*Config)) Config {
	c := DefaultConfig()
	change(&c)
	return c
}

func newCleanup(t *testing.T, store Store, change func(*Config)) (*Cleanup, *Metrics) {
	t.Helper()
	metrics := NewMetrics()
	c, err := New(config(change), store, metrics)
	if err != nil {
		t.Fatal(err)
	}
	c.clock = func() time.Time { // agrees with the database's
		now, _ := store.Now(t.Context())
		return now
	}
	return c, metrics
}

// Cleanup deletes only expires_at < cutoff, in bounded batches, and continues on the next tick.
func TestCleanupDeletesOnlyWhatExpiredBeforeTheCutoff(t *testing.T) {
	store := &table{now: day}
	cutoff := day.Add(-time.Minute)
	for i := range 25 {
		store.expiries = append(store.expiries, cutoff.Add(-time.Duration(i+1)*time.Second))
	}
	live := []time.Time{cutoff, cutoff.Add(time.Millisecond), day, day.Add(time.Hour)}
	store.expiries = append(store.expiries, live...)
	cleanup, metrics := newCleanup(t, store, func(c *Config) {
		c.Grace, c.Limits.BatchRowsMax, c.Limits.BatchesMax = time.Minute, 10, 2
	})

	first, err := cleanup.Run(controlplane.Once(t.Context()))
	if err != nil {
		t.Fatal(err)
	}
	if first.Rows != 20 || first.Batches != 2 || first.StoppedBy != StoppedByBatches || first.Lag != 25*time.Second {
		t.Errorf("first run: %+v", first)
	}
	second, err := cleanup.Run(controlplane.Once(t.Context()))
	if err != nil {
		t.Fatal(err)
	}
	if second.Rows != 5 || second.Batches != 1 || second.StoppedBy != StoppedByNothing || second.Lag != 25*time.Second {
		t.Errorf("second run: %+v", second)
	}
	if !slices.Equal(store.expiries, live) {
		t.Errorf("left %v, want the live ones %v", store.expiries, live)
	}
	if !slices.Equal(store.batches, []int{10, 10, 10}) {
		t.Errorf("batches of %v rows", store.batches)
	}
	if n := testutil.ToFloat64(metrics.rowsDeleted); n != 25 {
		t.Errorf("weir_cleanup_rows_deleted_total is %v", n)
	}
	if lag, err := cleanup.Lag(t.Context()); lag != 0 || err != nil {
		t.Errorf("lag of a clean table: %v, %v", lag, err)
	}
}

func TestCleanupDeletesDeadNodes(t *testing.T) {
	store := &table{now: day, seen: []time.Time{day.Add(-25 * time.Hour), day.Add(-24 * time.Hour), day}}
	cleanup, metrics := newCleanup(t, store, func(c *Config) { c.NodeDeadAfter = 24 * time.Hour })
	report, err := cleanup.Run(controlplane.Once(t.Context()))
	if err != nil || report.DeadNodes != 1 || len(store.seen) != 2 {
		t.Errorf("%+v, %v; left %v", report, err, store.seen)
	}
	if n := testutil.ToFloat64(metrics.nodesDeleted); n != 1 {
		t.Errorf("weir_cleanup_dead_nodes_deleted_total is %v", n)
	}
}

func TestCleanupErrorTellsWhatWasTriedAndKeepsWhatWasDone(t *testing.T) {
	store := &table{now: day}
	for range 15 {
		store.expiries = append(store.expiries, day.Add(-time.Hour))
	}
	cleanup, metrics := newCleanup(t, store, func(c *Config) { c.Limits.BatchRowsMax = 10 })
	steps := failSecondBatch{Journal: controlplane.Once(t.Context()), store: store, err: errors.New("deadlock")}
	report, err := cleanup.Run(steps)
	if err == nil || !strings.Contains(err.Error(), "delete at most 10 rows expired before") || !errors.Is(err, steps.err) {
		t.Errorf("error %v", err)
	}
	if report.Rows != 10 || report.Batches != 1 {
		t.Errorf("report beside the error: %+v", report)
	}
	if n := testutil.ToFloat64(metrics.batchErrors); n != 1 {
		t.Errorf("weir_cleanup_batch_errors_total is %v", n)
	}
}

type failSecondBatch struct {
	controlplane.Journal
	store *table
	err   error
}

func (f failSecondBatch) Do(name string, answer any, step func(context.Context) (any, error)) error {
	if name == "delete batch 2" {
		f.store.err = f.err
	}
	return f.Journal.Do(name, answer, step)
}

func TestLagIsTheAgeOfTheOldestRowThatShouldHaveGone(t *testing.T) {
	for name, tc := range map[string]struct {
		expiries []time.Time
		want     time.Duration
	}{
		"no rows":                    {nil, 0},
		"only live rows":             {[]time.Time{day.Add(time.Hour)}, 0},
		"expired, but within grace":  {[]time.Time{day.Add(-30 * time.Second)}, 0},
		"expired before the grace":   {[]time.Time{day.Add(time.Hour), day.Add(-90 * time.Second)}, 30 * time.Second},
		"the oldest is what matters": {[]time.Time{day.Add(-2 * time.Minute), day.Add(-time.Hour)}, 59 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			cleanup, metrics := newCleanup(t, &table{now: day, expiries: tc.expiries}, func(c *Config) { c.Grace = time.Minute })
			lag, err := cleanup.Lag(t.Context())
			if err != nil || lag != tc.want {
				t.Errorf("%v, %v; want %v", lag, err, tc.want)
			}
			if s := testutil.ToFloat64(metrics.lagSeconds); s != tc.want.Seconds() {
				t.Errorf("weir_cleanup_lag_seconds is %v", s)
			}
		})
	}
}

func TestConfigValidate(t *testing.T) {
	for field, change := range map[string]func(*Config){
		"batches is 0":                                  func(c *Config) { c.Limits.BatchesMax = 0 },
		"grace is -1ns (0s to 168h0m0s)":                func(c *Config) { c.Grace = -1 },
		"node dead after is 59s (1m0s to 2160h0m0s)":    func(c *Config) { c.NodeDeadAfter = 59 * time.Second },
		"keep, unless 0, is 59m0s (1h0m0s to 168h0m0s)": func(c *Config) { c.Keep = 59 * time.Minute },
		"keep, unless 0, is 169h":                       func(c *Config) { c.Keep = 169 * time.Hour },
		"step timeout is 99ms (100ms to 5m0s)":          func(c *Config) { c.StepTimeout = 99 * time.Millisecond },
		"step timeout is 5m0.001s (100ms to 5m0s)":      func(c *Config) { c.StepTimeout = 5*time.Minute + time.Millisecond },
		"grace is 168h0m0.000000001s (0s to 168h0m0s)":  func(c *Config) { c.Grace = 7*24*time.Hour + 1 },
	} {
		_, err := New(config(change), &table{}, NewMetrics())
		wantInvalid(t, err, field)
	}
	if err := DefaultConfig().Validate(); err != nil {
		t.Errorf("the defaults: %v", err)
	}
}

func wantInvalid(t *testing.T, err error, words string) {
	t.Helper()
	if !errors.Is(err, controlplane.ErrInvalid) || !strings.Contains(err.Error(), words) {
		t.Errorf("error %v; want one that is ErrInvalid and says %q", err, words)
	}
}
