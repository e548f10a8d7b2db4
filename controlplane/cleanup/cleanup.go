package cleanup

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/weirhq/weir/controlplane"
)

const (
	nodeRowsMax = 1000            // heartbeat rows one run deletes
	nodesMin    = 1 * time.Minute // a node is not dead because it is late
	graceMost   = 7 * 24 * time.Hour
	clocksApart = 1 * time.Second // that the two clocks may differ by, however short the grace
	deadMost    = 90 * 24 * time.Hour
	keepMin     = 1 * time.Hour
	keepMost    = 7 * 24 * time.Hour
	resetGrace  = 24 * time.Hour // that a reset outlives its expiry, for clocks that are behind
	resetsRun   = 1000           // resets one run deletes
)

// Config says what the expiry cleanup deletes. Start from DefaultConfig.
type Config struct {
	Limits SweepLimits

	// Grace is how long an expired row is kept, 0 to 7 days; default 1 minute. Rows
	// expire when no decision can depend on them any more, by the clock of the
	// database; grace covers the clocks of nodes that are behind it. A run deletes nothing
	// while the database's clock differs from this process's by more than Grace, and by more
	// than a second: one of the two is wrong, and rows would go that decisions depend on.
	Grace time.Duration

	// Keep is how long the rows of a partition that is dropped are kept in a table of their own, 1 hour to 7 days;
	// default 0: not at all. Rows that are deleted in batches are not kept. A server that does not let this user keep
	// them ends the run in an error: no partition is dropped unkept.
	Keep time.Duration

	// NodeDeadAfter is how long a node is not heard of before its heartbeat row goes,
	// 1 minute to 90 days; default 24 h. Until then operators see it as not live.
	NodeDeadAfter time.Duration

	// StepTimeout bounds one statement, 100 ms to 5 min; default 30 s.
	StepTimeout time.Duration
}

// DefaultConfig are the defaults named at the fields.
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

// Store is what the cleanup needs of MySQL. All methods may be called at once.
type Store interface {
	PartitionStore
	// Now is the clock of the database.
	Now(ctx context.Context) (time.Time, error)
	// OldestExpiry is the earliest moment from which a window count can be deleted: the end of the hour or the day whose
	// partition it is in, if that is over, or its expires_at if it is in none; false without either.
	OldestExpiry(ctx context.Context) (at time.Time, ok bool, err error)
	// DeleteExpired deletes at most rows window counts with expires_at < cutoff.
	DeleteExpired(ctx context.Context, cutoff time.Time, rows int) (deleted int64, err error)
	// DeleteDeadNodes deletes at most rows heartbeats last seen before cutoff.
	DeleteDeadNodes(ctx context.Context, cutoff time.Time, rows int) (deleted int64, err error)
	// DeleteExpiredResets deletes at most rows resets of keys with expires_at < cutoff.
	DeleteExpiredResets(ctx context.Context, cutoff time.Time, rows int) (deleted int64, err error)
}

// Plan is what a run decides before its first batch, and keeps to.
type Plan struct {
	CutoffMs     int64         `json:"cutoff_ms"`      // Unix ms: window counts that expired before it go
	NodeCutoffMs int64         `json:"node_cutoff_ms"` // Unix ms: nodes last seen before it go
	Lag          time.Duration `json:"lag_ns"`         // at the start
	Limits       SweepLimits   `json:"limits"`
	Partitioned  bool          `json:"partitioned,omitzero"` // batches delete only what is in no dated partition
	Refused      string        `json:"refused,omitzero"`     // why it is not partitioned
}

// Report is what a run did. With an error beside it, it is what was done before.
type Report struct {
	Rows       int64 // those of partitions by the statistics of the server
	Partitions int   // dropped
	Batches    int
	DeadNodes  int64
	Lag        time.Duration // at the start
	StoppedBy  StoppedBy
	Refused    string // why it deleted rows in batches that partitions would drop, or made none ahead
}

// Run deletes what has expired: one run, whose steps depend on nothing but the answers of those before. Each may be
// executed more than once, after a crash or a lost answer: deleting what is already gone deletes nothing.
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
	// Rows that have expired would stay until the end of the partition that they are copied to.
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

// Cleanup deletes what has expired from a database, each step under its own timeout, and
// counts what it does.
type Cleanup struct {
	config  Config
	store   Store
	metrics *Metrics
	clock   func() time.Time // of this process
}

// New returns the cleanup of a configuration, or what is wrong with it.
func New(config Config, store Store, metrics *Metrics) (*Cleanup, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	return &Cleanup{config: config, store: store, metrics: metrics, clock: time.Now}, nil
}

// plan reads the clock of the database and the lag. Clocks that differ are controlplane.ErrClocksDiffer.
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

// deleteExpired is one batch.
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

// deleteDeadNodes deletes the heartbeats of nodes that are long gone. With them go resets of keys from before which
// nothing is left. It counts the heartbeats.
func (c *Cleanup) deleteDeadNodes(ctx context.Context, cutoffMs int64) (int64, error) {
	deleted, err := c.store.DeleteDeadNodes(ctx, time.UnixMilli(cutoffMs), nodeRowsMax)
	if err != nil {
		return 0, fmt.Errorf("delete heartbeats of nodes not seen since %d: %w", cutoffMs, err)
	}
	c.metrics.nodesDeleted.Add(float64(deleted))
	return deleted, c.deleteExpiredResets(ctx)
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

// Lag is how long ago the oldest expired row should have gone: 0 when none is left
// that should have.
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

// trustedNow is the clock of the database, which this process's must agree with.
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
