package cleanup

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/shared/heartbeat"
)

const (
	nodeRowsMax = 1000            // heartbeat rows per run
	nodesMin    = 1 * time.Minute // a node that is late is not dead
	graceMost   = 7 * 24 * time.Hour
	clocksApart = 1 * time.Second // allowed difference of the two clocks, however short the grace
	deadMost    = 90 * 24 * time.Hour
	keepMin     = 1 * time.Hour
	keepMost    = 7 * 24 * time.Hour
	resetGrace  = 24 * time.Hour // how long a reset outlives its expiry, for clocks that are behind
	resetsRun   = 1000           // resets per run

	// UsageKept is how long the usage of namespaces is kept.
	UsageKept       = 90 * 24 * time.Hour
	usageRun        = 5000 // rows of usage per run
	usageReportsRun = 1000 // totals of ended processes per run
)

// Config configures the expiry cleanup. Start from DefaultConfig.
type Config struct {
	Limits SweepLimits

	// Grace is how long an expired row is kept, 0 to 7 days; default 1 minute. By the database's clock, rows expire when
	// no decision can depend on them any more; grace covers nodes whose clocks are behind it. A run deletes nothing while
	// the database's clock differs from this process's by more than Grace, and by more than a second: either clock may be
	// wrong, so rows that decisions still depend on could be deleted.
	Grace time.Duration

	// Keep is how long the rows of a dropped partition are kept in a table of their own, 1 hour to 7 days; default 0: not
	// at all. Set it if an operator should be able to restore rows, for example after the server's clock was ahead. Rows
	// that are deleted in batches are not kept. If the server does not allow this user to keep rows, the run ends in an
	// error, and no partition is dropped.
	Keep time.Duration

	// NodeDeadAfter is how long a node can send no heartbeat before its row is deleted, 1 minute to 90 days; default 24 h.
	// Until then operators see it as not live.
	NodeDeadAfter time.Duration

	// StepTimeout bounds each statement, 100 ms to 5 min; default 30 s.
	StepTimeout time.Duration
}

// DefaultConfig returns the defaults named at the fields.
func DefaultConfig() Config {
	return Config{
		Limits:        DefaultSweepLimits(),
		Grace:         time.Minute,
		NodeDeadAfter: 24 * time.Hour,
		StepTimeout:   30 * time.Second,
	}
}

// Validate reports the first field outside its bounds.
func (c Config) Validate() error {
	var keep error
	if c.Keep != 0 {
		keep = controlplane.ValidateSpan("cleanup keep, unless 0,", c.Keep, keepMin, keepMost)
	}
	return cmp.Or(c.Limits.Validate(), controlplane.ValidateSpan("cleanup grace", c.Grace, 0, graceMost), keep,
		controlplane.ValidateSpan("node dead after", c.NodeDeadAfter, nodesMin, deadMost),
		controlplane.ValidateSpan("cleanup step timeout", c.StepTimeout, 100*time.Millisecond, 5*time.Minute))
}

// Store has the operations on MySQL that the cleanup needs. Implementations must allow concurrent calls.
type Store interface {
	PartitionStore
	// Now returns the time of the database's clock.
	Now(ctx context.Context) (time.Time, error)
	// OldestExpiry returns the earliest time from which a window count could be deleted. For a count in a partition that
	// is the end of its hour or day, if it has ended; for other counts their expires_at. ok is false if there is neither.
	OldestExpiry(ctx context.Context) (at time.Time, ok bool, err error)
	// DeleteExpired deletes at most rows window counts with expires_at < cutoff.
	DeleteExpired(ctx context.Context, cutoff time.Time, rows int) (deleted int64, err error)
	// DeleteDeadNodes deletes at most rows heartbeats last seen before cutoff.
	DeleteDeadNodes(ctx context.Context, cutoff time.Time, rows int) (deleted int64, err error)
	// DeleteExpiredResets deletes at most rows resets of keys with expires_at < cutoff.
	DeleteExpiredResets(ctx context.Context, cutoff time.Time, rows int) (deleted int64, err error)
	// DeleteOldUsage deletes at most rows rows of usage of hours that began before cutoff, the oldest first.
	DeleteOldUsage(ctx context.Context, cutoff time.Time, rows int) (deleted int64, err error)
	// DeleteOldUsageReports deletes at most rows totals of processes that have reported nothing since cutoff.
	DeleteOldUsageReports(ctx context.Context, cutoff time.Time, rows int) (deleted int64, err error)
}

// Plan is the decisions of a run before its first batch, which do not change during the run.
type Plan struct {
	CutoffMs     int64         `json:"cutoff_ms"`      // Unix ms: window counts that expired before it are deleted
	NodeCutoffMs int64         `json:"node_cutoff_ms"` // Unix ms: nodes last seen before it are deleted
	Lag          time.Duration `json:"lag_ns"`         // at the start
	Limits       SweepLimits   `json:"limits"`
	Partitioned  bool          `json:"partitioned,omitzero"` // batches delete only rows outside of dated partitions
	Refused      string        `json:"refused,omitzero"`     // why it is not partitioned
}

// Report is the result of a run. If the run failed, it contains the work before the error.
type Report struct {
	Rows       int64 // in partitions an estimate from the server's statistics
	Partitions int   // dropped
	Batches    int
	DeadNodes  int64
	Lag        time.Duration // at the start
	StoppedBy  StoppedBy
	Refused    string // why it deleted rows in batches instead of dropping partitions, or added no partitions
}

// Run executes a run of the cleanup. Each step depends only on the results of earlier steps, and may be executed more
// than once after a crash or a lost answer, because deleting rows that are gone has no effect.
func (c *Cleanup) Run(j controlplane.Journal) (Report, error) {
	plan, err := do(c, j, "plan", c.plan)
	if err != nil {
		return Report{}, err
	}
	report := Report{Lag: plan.Lag, Refused: plan.Refused}
	if plan.Partitioned {
		if err := c.dropPartitions(j, &plan, &report); err != nil {
			return report, err
		}
	}
	if err := c.deleteBatches(j, plan, &report); err != nil {
		return report, err
	}
	// Expired rows that are copied to a new partition would stay until that partition ends, so partitions are added only
	// when no expired row is left.
	if plan.Partitioned && report.StoppedBy == StoppedByNothing {
		added, err := do(c, j, "add partitions", c.addPartitions)
		if err != nil {
			return report, err
		}
		report.Refused = cmp.Or(added.Refused, report.Refused)
	}
	report.DeadNodes, err = do(c, j, "delete dead nodes", func(ctx context.Context) (int64, error) {
		return c.deleteDeadNodes(ctx, plan.NodeCutoffMs)
	})
	return report, err
}

// do executes a step within its timeout.
func do[T any](c *Cleanup, j controlplane.Journal, name string, step func(context.Context) (T, error)) (T, error) {
	return controlplane.Do(j, name, controlplane.Within(c.config.StepTimeout, step))
}

func (c *Cleanup) deleteBatches(j controlplane.Journal, plan Plan, report *Report) error {
	sweep := NewSweep(plan.Limits)
	for rows, ok := sweep.Next(); ok; rows, ok = sweep.Next() {
		name := fmt.Sprintf("delete batch %d", report.Batches+1)
		batch, err := do(c, j, name, func(ctx context.Context) (Batch, error) { return c.deleteExpired(ctx, plan, rows) })
		if err != nil {
			return err
		}
		sweep.Done(batch)
		report.Rows += batch.Rows
		report.Batches, report.StoppedBy = sweep.Batches(), sweep.StoppedBy()
	}
	return nil
}

// Cleanup deletes expired rows and the heartbeats of dead nodes from a database, each step with a timeout, and counts
// its work in metrics.
type Cleanup struct {
	config  Config
	store   Store
	metrics *Metrics
	clock   func() time.Time // of this process
}

// New returns a cleanup, or the first error in config.
func New(config Config, store Store, metrics *Metrics) (*Cleanup, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	return &Cleanup{config: config, store: store, metrics: metrics, clock: time.Now}, nil
}

// plan reads the clock of the database and the lag. It returns controlplane.ErrClocksDiffer if the clocks differ.
func (c *Cleanup) plan(ctx context.Context) (Plan, error) {
	now, err := c.trustedNow(ctx)
	if err != nil {
		return Plan{}, fmt.Errorf("plan the cleanup: %w", err)
	}
	lag, err := c.lag(ctx, now)
	if err != nil {
		return Plan{}, fmt.Errorf("plan the cleanup: %w", err)
	}
	refused, err := c.store.PartitionsRefused(ctx)
	if err != nil {
		return Plan{}, fmt.Errorf("plan the cleanup: %w", err)
	}
	c.metrics.partitionsRefused.Set(controlplane.OneIf(refused != ""))
	return Plan{
		Partitioned:  refused == "",
		Refused:      refused,
		CutoffMs:     now.Add(-c.config.Grace).UnixMilli(),
		NodeCutoffMs: now.Add(-c.config.NodeDeadAfter).UnixMilli(),
		Lag:          lag,
		Limits:       c.config.Limits,
	}, nil
}

// deleteExpired executes a batch.
func (c *Cleanup) deleteExpired(ctx context.Context, plan Plan, rows int) (Batch, error) {
	start, del := time.Now(), c.store.DeleteExpired
	if plan.Partitioned {
		del = c.store.DeleteUndated
	}
	deleted, err := del(ctx, time.UnixMilli(plan.CutoffMs), rows)
	batch := Batch{Rows: deleted, Took: time.Since(start)}
	c.metrics.batch(batch, err)
	if err != nil {
		return Batch{}, fmt.Errorf("delete at most %d rows expired before %d: %w", rows, plan.CutoffMs, err)
	}
	return batch, nil
}

// deleteDeadNodes deletes the heartbeats of nodes that have been silent for long, resets that no count depends on any
// more, and old usage. It returns the number of heartbeats.
func (c *Cleanup) deleteDeadNodes(ctx context.Context, cutoffMs int64) (int64, error) {
	deleted, err := c.store.DeleteDeadNodes(ctx, time.UnixMilli(cutoffMs), nodeRowsMax)
	if err != nil {
		return 0, fmt.Errorf("delete heartbeats of nodes not seen since %d: %w", cutoffMs, err)
	}
	c.metrics.nodesDeleted.Add(float64(deleted))
	if err := c.deleteExpiredResets(ctx); err != nil {
		return deleted, err
	}
	return deleted, c.deleteOldUsage(ctx)
}

func (c *Cleanup) deleteOldUsage(ctx context.Context) error {
	now, err := c.trustedNow(ctx)
	if err != nil {
		return fmt.Errorf("delete old usage: %w", err)
	}
	deleted, err := c.store.DeleteOldUsage(ctx, now.Add(-UsageKept), usageRun)
	if err != nil {
		return fmt.Errorf("delete usage before %d: %w", now.Add(-UsageKept).UnixMilli(), err)
	}
	c.metrics.usageDeleted.Add(float64(deleted))
	before := now.Add(-heartbeat.UsageForgottenAfter)
	if _, err := c.store.DeleteOldUsageReports(ctx, before, usageReportsRun); err != nil {
		return fmt.Errorf("delete the totals of processes that ended before %d: %w", before.UnixMilli(), err)
	}
	return nil
}

func (c *Cleanup) deleteExpiredResets(ctx context.Context) error {
	now, err := c.trustedNow(ctx)
	if err != nil {
		return fmt.Errorf("delete expired resets: %w", err)
	}
	if _, err := c.store.DeleteExpiredResets(ctx, now.Add(-resetGrace), resetsRun); err != nil {
		return fmt.Errorf("delete resets expired before %d: %w", now.Add(-resetGrace).UnixMilli(), err)
	}
	return nil
}

// Lag returns how long ago the oldest expired row should have been deleted, or 0 if there is none.
func (c *Cleanup) Lag(ctx context.Context) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, c.config.StepTimeout)
	defer cancel()
	now, err := c.store.Now(ctx)
	if err != nil {
		return 0, fmt.Errorf("read the cleanup's lag: %w", err)
	}
	lag, err := c.lag(ctx, now)
	if err != nil {
		return 0, fmt.Errorf("read the cleanup's lag: %w", err)
	}
	return lag, nil
}

func (c *Cleanup) lag(ctx context.Context, now time.Time) (lag time.Duration, err error) {
	oldest, ok, err := c.store.OldestExpiry(ctx)
	if err != nil {
		return 0, err
	}
	if ok {
		lag = max(0, now.Add(-c.config.Grace).Sub(oldest))
	}
	c.metrics.lagSeconds.Set(lag.Seconds())
	return lag, nil
}

// trustedNow returns the time of the database's clock, and an error if this process's clock differs too much.
func (c *Cleanup) trustedNow(ctx context.Context) (time.Time, error) {
	before := c.clock()
	now, err := c.store.Now(ctx)
	if err != nil {
		return time.Time{}, err
	}
	bound := max(c.config.Grace, clocksApart)
	if ahead, behind := now.Sub(c.clock()), before.Sub(now); ahead > bound || behind > bound {
		return time.Time{}, fmt.Errorf("%w by %v, more than %v: nothing is deleted until both follow NTP (weirctl doctor)",
			controlplane.ErrClocksDiffer, max(ahead, behind).Round(time.Millisecond), bound)
	}
	return now, nil
}
