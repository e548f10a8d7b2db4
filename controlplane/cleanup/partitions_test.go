package cleanup

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/weirhq/weir/controlplane"
)

// With partitions a run drops each expired partition, deletes rows outside of partitions in batches, and then adds
// partitions ahead.
func TestCleanupDropsPartitions(t *testing.T) {
	store := &table{now: day, partitioned: true, missing: 1, expiries: []time.Time{day.Add(-time.Hour), day.Add(time.Hour)},
		dated: []time.Time{day.Add(-3 * time.Hour), day.Add(-2 * time.Hour), day.Add(-time.Second)}} // the last within the grace
	cleanup, metrics := newCleanup(t, store, func(*Config) {})
	report, err := cleanup.Run(controlplane.Once(t.Context()))
	if err != nil || report.Partitions != 2 || report.Rows != 21 || report.Batches != 1 {
		t.Errorf("%+v, %v", report, err)
	}
	if len(store.dated) != 1 || len(store.expiries) != 1 || store.made != 1 {
		t.Errorf("left %v and %v, partitions made %d times", store.dated, store.expiries, store.made)
	}
	if n := testutil.ToFloat64(metrics.partitionsDropped); n != 2 {
		t.Errorf("%g partitions are counted", n)
	}
	if n := testutil.ToFloat64(metrics.partitionRows); n != 20 {
		t.Errorf("%g of their rows are counted", n)
	}
	if n := testutil.ToFloat64(metrics.partitionsMissing); n != 1 {
		t.Errorf("%g classes lack partitions", n)
	}
}

// If a server refuses to drop or add partitions, rows are deleted in batches, and the report and the metric have the
// reason.
func TestCleanupDeletesInBatchesWhatTheServerRefusesToDrop(t *testing.T) {
	for name, c := range map[string]struct {
		table table
		why   string
		made  int
	}{
		"an old layout":     {table{}, NoPartitions, 0},
		"no drop":           {table{partitioned: true, dropsRefused: true}, "drop a partition: the server refuses: no such definer", 0},
		"no partition made": {table{partitioned: true, addsRefused: true}, "make partitions ahead: the server refuses: no such definer", 0},
		"nothing refused":   {table{partitioned: true}, "", 1},
	} {
		t.Run(name, func(t *testing.T) {
			store := c.table
			store.now, store.expiries = day, []time.Time{day.Add(-time.Hour)}
			cleanup, metrics := newCleanup(t, &store, func(*Config) {})
			report, err := cleanup.Run(controlplane.Once(t.Context()))
			if err != nil || report.Rows != 1 || report.Refused != c.why || len(store.expiries) != 0 || store.made != c.made {
				t.Errorf("%+v, %v; %d rows are left, partitions made %d times", report, err, len(store.expiries), store.made)
			}
			if got := testutil.ToFloat64(metrics.partitionsRefused); got != controlplane.OneIf(c.why != "") {
				t.Errorf("weir_cleanup_partitions_refused is %g", got)
			}
			store.dropsRefused, store.addsRefused, store.partitioned = false, false, true
			if report, err := cleanup.Run(controlplane.Once(t.Context())); err != nil || report.Refused != "" ||
				testutil.ToFloat64(metrics.partitionsRefused) != 0 {
				t.Errorf("mended: %+v, %v", report, err)
			}
		})
	}
}

// With Keep the rows of each dropped partition are kept for that time, and then dropped. A partition that cannot be
// kept is not dropped.
func TestCleanupKeepsWhatItDrops(t *testing.T) {
	store := &table{now: day, partitioned: true, dated: []time.Time{day.Add(-3 * time.Hour), day.Add(-2 * time.Hour)}}
	cleanup, metrics := newCleanup(t, store, func(c *Config) { c.Keep = 24 * time.Hour })
	run := func() (Report, error) { return cleanup.Run(controlplane.Once(t.Context())) }

	store.keepErr = fmt.Errorf("%w: no right", ErrPartitionsRefused)
	if report, err := run(); err == nil || !strings.Contains(err.Error(), "keep its rows for 24h0m0s: the server refuses: no right") ||
		report.Refused != "" || len(store.dated) != 2 {
		t.Errorf("refused: %+v, %v; left %v", report, err, store.dated)
	}
	store.keepErr = ErrTableInUse
	if report, err := run(); err != nil || report.Partitions != 0 || testutil.ToFloat64(metrics.partitionsBusy) != 1 {
		t.Errorf("in use: %+v, %v", report, err)
	}
	store.keepErr = nil
	if report, err := run(); err != nil || report.Partitions != 2 || len(store.kept) != 2 {
		t.Errorf("%+v, %v; kept until %v", report, err, store.kept)
	}
	store.now = day.Add(22 * time.Hour)
	for want := 1; want >= 0; want-- {
		if _, err := run(); err != nil || len(store.kept) != want {
			t.Errorf("after 22 h: %v, kept until %v", err, store.kept)
		}
	}
}

// "Expired rows that are copied to a new partition would stay until that partition ends": none is added before the
// batches have deleted the last expired row.
func TestCleanupMakesPartitionsWhenNothingHasExpired(t *testing.T) {
	store := &table{now: day, partitioned: true}
	for range 150 {
		store.expiries = append(store.expiries, day.Add(-time.Hour))
	}
	cleanup, _ := newCleanup(t, store, func(c *Config) { c.Limits.BatchRowsMax, c.Limits.BatchesMax = 100, 1 })
	for run, want := range []int{0, 1} {
		report, err := cleanup.Run(controlplane.Once(t.Context()))
		if err != nil || store.made != want {
			t.Errorf("run %d: %+v, %v; partitions made %d times", run, report, err, store.made)
		}
	}
}

// If the table is in use, its partitions stay until the next run, and the rest of the run goes on.
func TestCleanupGoesOnWhileTheTableIsInUse(t *testing.T) {
	store := &table{now: day, partitioned: true, inUse: true, expiries: []time.Time{day.Add(-time.Hour)},
		dated: []time.Time{day.Add(-2 * time.Hour)}, seen: []time.Time{day.Add(-48 * time.Hour)}}
	cleanup, metrics := newCleanup(t, store, func(*Config) {})
	report, err := cleanup.Run(controlplane.Once(t.Context()))
	if err != nil || report.Rows != 1 || report.DeadNodes != 1 || report.Partitions != 0 {
		t.Errorf("%+v, %v", report, err)
	}
	if n := testutil.ToFloat64(metrics.partitionsBusy); n != 2 {
		t.Errorf("%g times in use, want a drop and an addition", n)
	}
	store.inUse = false
	if report, err = cleanup.Run(controlplane.Once(t.Context())); err != nil || report.Partitions != 1 {
		t.Errorf("afterwards %+v, %v", report, err)
	}
}

// A run drops a bounded number of partitions.
func TestCleanupDropsABoundedNumberOfPartitions(t *testing.T) {
	store := &table{now: day, partitioned: true}
	for i := range partitionsRun + 5 {
		store.dated = append(store.dated, day.Add(time.Duration(i-10_000)*time.Hour))
	}
	cleanup, _ := newCleanup(t, store, func(*Config) {})
	for _, want := range []int{partitionsRun, 5} {
		if report, err := cleanup.Run(controlplane.Once(t.Context())); err != nil || report.Partitions != want {
			t.Errorf("%+v, %v; want %d", report, err, want)
		}
	}
}
