package cleanup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/weirhq/weir/controlplane"
)

const (
	partitionsRun = 100 // dropped per run

	// partitionRowsMax is how many rows may be copied, while publishes wait, when a partition is added late.
	partitionRowsMax = 100_000
)

// ErrTableInUse is wrapped by errors of partitions that cannot be dropped or added now, because an open transaction or
// a long statement uses their table. The next run retries.
var ErrTableInUse = errors.New("the table is in use")

// ErrPartitionsRefused is wrapped by errors of a server that cannot drop or add partitions for this user: a privilege,
// a procedure or its definer is missing, or the table has other partitions. The cleanup then deletes rows in batches.
var ErrPartitionsRefused = errors.New("the server refuses")

// NoPartitions is the reason for batches on a server without partitions, or a table from before partitions.
const NoPartitions = "the table has no partitions of hours and days"

// Kinds of partitions.
const (
	PartitionsOfHours = "hours"
	PartitionsOfDays  = "days"
)

// MissingPartitionsAdvice is the advice to operators about missing partitions.
const MissingPartitionsAdvice = "Find out why the cleanup made none (weirctl cleanup status: paused, failing, or " +
	"behind). Above 100,000 rows it leaves that to you, at a quiet time: schema/README.md, Expiry."

// MissingPartitions describes the result of PartitionStore.PartitionsMissing.
func MissingPartitions(kinds []string) string {
	return fmt.Sprintf("no partitions of %s are ahead, so the cleanup deletes their rows in batches, which is slower",
		strings.Join(kinds, " and "))
}

// PartitionStore has the operations on a table whose rows are dropped by hour and by day.
type PartitionStore interface {
	// PartitionsRefused returns the reason why the cleanup must delete rows in batches: NoPartitions, or a privilege that
	// this user lacks. It returns "" if the cleanup can drop partitions.
	PartitionsRefused(ctx context.Context) (why string, err error)
	// DropExpiredPartition drops a partition all of whose rows expired before cutoff. It returns Dropped{} if there is
	// none.
	DropExpiredPartition(ctx context.Context, cutoff time.Time) (Dropped, error)
	// KeepExpiredPartition moves the rows of the partition that will be dropped next into a table of their own, for at
	// least keep.
	KeepExpiredPartition(ctx context.Context, cutoff time.Time, keep time.Duration) error
	// DropKept drops a table of kept rows whose time is over, if there is one.
	DropKept(ctx context.Context) error
	// AddPartitions adds partitions ahead of the clock. It returns the number of classes that get none, because more than
	// rowsMax rows would have to be copied.
	AddPartitions(ctx context.Context, rowsMax int) (missing int, err error)
	// PartitionsMissing returns the kinds of partitions, hours or days, that are missing for rows that are written now.
	PartitionsMissing(ctx context.Context) (kinds []string, err error)
	// DeleteUndated deletes at most rows window counts with expires_at < cutoff that are in no partition of an hour or a
	// day.
	DeleteUndated(ctx context.Context, cutoff time.Time, rows int) (deleted int64, err error)
}

// Dropped is a partition that was dropped.
type Dropped struct {
	Partition string        `json:"partition,omitzero"` // empty: none
	Rows      int64         `json:"rows,omitzero"`      // an estimate from the server's statistics
	Took      time.Duration `json:"took_ns,omitzero"`
	Refused   string        `json:"refused,omitzero"` // why the server drops none
}

// Added is the result of adding partitions ahead of the clock.
type Added struct {
	Missing int    `json:"missing,omitzero"` // classes of rows without partitions ahead
	Refused string `json:"refused,omitzero"` // why the server adds none
}

// dropPartitions drops expired partitions, one per step, so that publishes can go on in between. If the server refuses,
// plan changes to delete all rows in batches.
func (c *Cleanup) dropPartitions(j controlplane.Journal, plan *Plan, report *Report) error {
	for took := time.Duration(0); report.Partitions < partitionsRun && took < plan.Limits.RunTimeMax; {
		name := fmt.Sprintf("drop partition %d", report.Partitions+1)
		dropped, err := do(c, j, name, func(ctx context.Context) (Dropped, error) {
			return c.dropPartition(ctx, plan.CutoffMs)
		})
		if dropped.Refused != "" {
			plan.Partitioned, report.Refused = false, dropped.Refused
		}
		if err != nil || dropped.Partition == "" {
			return err
		}
		report.Partitions++
		report.Rows += dropped.Rows
		took += dropped.Took
	}
	return nil
}

// PartitionsProblem returns why expired rows are deleted in batches instead of by dropping partitions. It reads the
// tables now, because a cleanup that is paused or fails adds no partitions either. The zero value means no problem.
func (c *Cleanup) PartitionsProblem(ctx context.Context) (problem PartitionsProblem, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.config.StepTimeout)
	defer cancel()
	if problem.Refused, err = c.store.PartitionsRefused(ctx); err != nil || problem.Refused != "" {
		return problem, err
	}
	missing, err := c.store.PartitionsMissing(ctx)
	if err != nil {
		return problem, err
	}
	c.metrics.partitionsMissing.Set(float64(len(missing)))
	if len(missing) > 0 {
		problem.Missing = MissingPartitions(missing)
	}
	return problem, nil
}

// PartitionsProblem is the reason why rows are deleted in batches. The zero value means that there is no problem.
type PartitionsProblem struct {
	Refused string // the server has no partitions, or does not allow this user to drop or add them
	Missing string // partitions are possible, but none is ahead of the clock
}

// String returns the problem, or "".
func (p PartitionsProblem) String() string { return cmp.Or(p.Refused, p.Missing) }

// dropPartition drops a partition. It returns Dropped without a partition if none has expired, the table is in use, or
// the server refuses. Rows that should be kept are moved first. If no partition has expired, it drops a table of kept
// rows whose time is over.
func (c *Cleanup) dropPartition(ctx context.Context, cutoffMs int64) (Dropped, error) {
	start := time.Now()
	err := c.keep(ctx, cutoffMs)
	var dropped Dropped
	if err == nil {
		dropped, err = c.store.DropExpiredPartition(ctx, time.UnixMilli(cutoffMs))
	}
	if err == nil && dropped.Partition == "" {
		err = c.dropKept(ctx)
	}
	switch {
	case errors.Is(err, ErrTableInUse):
		c.metrics.partitionsBusy.Inc()
		return Dropped{}, nil
	case errors.Is(err, ErrPartitionsRefused):
		c.metrics.partitionsRefused.Set(1)
		return Dropped{Refused: controlplane.Clip("drop a partition: " + err.Error())}, nil
	case err != nil:
		return Dropped{}, fmt.Errorf("drop a partition that expired before %d: %w", cutoffMs, err)
	}
	dropped.Took = time.Since(start)
	c.metrics.dropped(dropped)
	return dropped, nil
}

// keep keeps the rows of the next partition. If the server refuses, it returns an error that ends the run, so that no
// rows are lost that an operator wants to keep.
func (c *Cleanup) keep(ctx context.Context, cutoffMs int64) error {
	if c.config.Keep == 0 {
		return nil
	}
	err := c.store.KeepExpiredPartition(ctx, time.UnixMilli(cutoffMs), c.config.Keep)
	if errors.Is(err, ErrPartitionsRefused) {
		return fmt.Errorf("keep its rows for %v: %v", c.config.Keep, err) //nolint:errorlint // it is no refusal to drop
	}
	return err
}

// dropKept drops a table of kept rows. If the server refuses, such tables are left to an operator.
func (c *Cleanup) dropKept(ctx context.Context) error {
	if err := c.store.DropKept(ctx); err != nil && !errors.Is(err, ErrPartitionsRefused) {
		return err
	}
	return nil
}

// addPartitions adds partitions ahead of the clock. If the table is in use, a later run adds them: they are added two
// days ahead.
func (c *Cleanup) addPartitions(ctx context.Context) (Added, error) {
	missing, err := c.store.AddPartitions(ctx, partitionRowsMax)
	switch {
	case errors.Is(err, ErrTableInUse):
		c.metrics.partitionsBusy.Inc()
		return Added{}, nil
	case errors.Is(err, ErrPartitionsRefused):
		c.metrics.partitionsRefused.Set(1)
		return Added{Refused: controlplane.Clip("make partitions ahead: " + err.Error())}, nil
	case err != nil:
		return Added{}, fmt.Errorf("make partitions ahead: %w", err)
	}
	c.metrics.partitionsMissing.Set(float64(missing))
	return Added{Missing: missing}, nil
}
