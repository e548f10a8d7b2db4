package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/weirhq/weir/controlplane/cleanup"
	"github.com/weirhq/weir/controlplane/watch"
	"github.com/weirhq/weir/shared/gen/sql/controlplanedb"
)

// The generator does not support tables of information_schema, nor procedures.
const (
	// partitionedSQL lists a procedure only if the user may execute it.
	partitionedSQL = `SELECT
  (SELECT COUNT(*) FROM information_schema.PARTITIONS WHERE TABLE_SCHEMA = DATABASE()
    AND TABLE_NAME = 'ratelimit_window_counts' AND PARTITION_NAME IN ('h_later', 'd_later', 'later')) = 3,
  EXISTS (SELECT 1 FROM information_schema.ROUTINES WHERE ROUTINE_SCHEMA = DATABASE()
    AND ROUTINE_NAME = 'ratelimit_drop_expired_partition'),
  EXISTS (SELECT 1 FROM information_schema.ROUTINES WHERE ROUTINE_SCHEMA = DATABASE()
    AND ROUTINE_NAME = 'ratelimit_add_partitions')`

	// overPartitionsSQL selects the partitions of hours and days that have ended, by their ends. Their description is a
	// class and an end.
	overPartitionsSQL = `SELECT PARTITION_NAME,
  CAST(SUBSTRING_INDEX(PARTITION_DESCRIPTION, ',', 1) AS UNSIGNED) AS class,
  CAST(SUBSTRING_INDEX(PARTITION_DESCRIPTION, ',', -1) AS UNSIGNED) AS bound
FROM information_schema.PARTITIONS
WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = 'ratelimit_window_counts'
  AND PARTITION_DESCRIPTION REGEXP '^[01],[0-9]+$'
  AND CAST(SUBSTRING_INDEX(PARTITION_DESCRIPTION, ',', -1) AS UNSIGNED) <= UNIX_TIMESTAMP(NOW(3)) * 1000
ORDER BY class, bound`

	// lastPartitionsSQL returns the ends of the last partitions of hours and of days, or 0 if there are none.
	lastPartitionsSQL = `SELECT
  COALESCE(MAX(IF(PARTITION_DESCRIPTION LIKE '0,%',
    CAST(SUBSTRING_INDEX(PARTITION_DESCRIPTION, ',', -1) AS UNSIGNED), 0)), 0),
  COALESCE(MAX(IF(PARTITION_DESCRIPTION LIKE '1,%',
    CAST(SUBSTRING_INDEX(PARTITION_DESCRIPTION, ',', -1) AS UNSIGNED), 0)), 0),
  UNIX_TIMESTAMP() * 1000
FROM information_schema.PARTITIONS
WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = 'ratelimit_window_counts' AND PARTITION_DESCRIPTION REGEXP '^[01],[0-9]+$'`

	laterSQL = "SELECT EXISTS (SELECT 1 FROM ratelimit_window_counts PARTITION (%s))"

	// oldestInSQL reads an index entry of each named partition.
	oldestInSQL = "SELECT COALESCE(MIN(expires_at), 0) FROM ratelimit_window_counts PARTITION (%s)"

	dropPartitionSQL = "CALL ratelimit_drop_expired_partition(?)"
	addPartitionsSQL = "CALL ratelimit_add_partitions(?)"
	keepPartitionSQL = "CALL ratelimit_keep_expired_partition(?, ?)"
	dropKeptSQL      = "CALL ratelimit_drop_kept_partition()"

	// MySQL caches the statistics of a table for a day unless a session disables that. MariaDB does not have the variable.
	freshStatisticsSQL = "SET SESSION information_schema_stats_expiry = 0"
)

// Errors of the server.
const (
	lockWaitTimeout  = 1205
	unknownVariable  = 1193
	unknownPartition = 1735
	notPartitioned   = 1747 // but the statement names partitions
)

// refusals are the errors of a server that cannot drop or add partitions for this user. The cleanup then deletes the
// same rows in batches.
var refusals = []uint16{
	1044, // no access to the database, here of the procedures' definer
	1064, // syntax that it does not parse
	1142, // no access to the table
	1227, // no right to set the definer
	1235, // not in this version
	1289, // not in this build
	1305, // no such procedure
	1370, // no right to execute it
	1449, // no such definer
	1505, // the table has no partitions
	1507, // it has other partitions
	1644, // the procedure's own error: its definer sees no partitions, or the bounds are not Weir's
	unknownPartition,
	8108, // TiDB: unsupported
	8200, // TiDB: unsupported DDL
}

// PartitionsRefused returns the reason why the cleanup deletes rows in batches, or "" if it can drop partitions.
func (s expiry) PartitionsRefused(ctx context.Context) (why string, err error) {
	var table, drop, add bool
	if err := s.db.QueryRowContext(ctx, partitionedSQL).Scan(&table, &drop, &add); err != nil {
		return "", fmt.Errorf("look for partitions: %w", explain(err))
	}
	const lacking = "the procedure %s is missing, or this user may not execute it"
	switch {
	case !table:
		return cleanup.NoPartitions, nil
	case !drop:
		return fmt.Sprintf(lacking, "ratelimit_drop_expired_partition"), nil
	case !add:
		return fmt.Sprintf(lacking, "ratelimit_add_partitions"), nil
	}
	return "", nil
}

func (s expiry) DropExpiredPartition(ctx context.Context, cutoff time.Time) (cleanup.Dropped, error) {
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return cleanup.Dropped{}, explain(err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := conn.ExecContext(ctx, freshStatisticsSQL); err != nil && !isNumber(err, unknownVariable) {
		return cleanup.Dropped{}, explain(err)
	}
	var name sql.NullString
	var dropped cleanup.Dropped
	err = conn.QueryRowContext(ctx, dropPartitionSQL, unixMs(cutoff)).Scan(&name, &dropped.Rows)
	dropped.Partition = name.String
	return dropped, partitionError(err)
}

func (s expiry) KeepExpiredPartition(ctx context.Context, cutoff time.Time, keep time.Duration) error {
	var name sql.NullString
	return partitionError(s.db.QueryRowContext(ctx, keepPartitionSQL, unixMs(cutoff), keep.Milliseconds()).Scan(&name))
}

func (s expiry) DropKept(ctx context.Context) error {
	var name sql.NullString
	return partitionError(s.db.QueryRowContext(ctx, dropKeptSQL).Scan(&name))
}

// AddPartitions adds partitions ahead of the clock.
func (s expiry) AddPartitions(ctx context.Context, rowsMax int) (missing int, err error) {
	var added int
	err = s.db.QueryRowContext(ctx, addPartitionsSQL, rowsMax).Scan(&added, &missing)
	return missing, partitionError(err)
}

func (s expiry) DeleteUndated(ctx context.Context, cutoff time.Time, rows int) (int64, error) {
	return s.briefly(ctx, func(q *queries) (int64, error) {
		return q.WindowCountsDeleteUndated(ctx, controlplanedb.WindowCountsDeleteUndatedParams{CutoffMs: unixMs(cutoff),
			Limit: int32(rows)})
	})
}

func partitionError(err error) error {
	var answered *mysql.MySQLError
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &answered):
		return explain(err)
	case answered.Number == lockWaitTimeout:
		return fmt.Errorf("%w: %w", cleanup.ErrTableInUse, err)
	case slices.Contains(refusals, answered.Number):
		return fmt.Errorf("%w: %w", cleanup.ErrPartitionsRefused, err)
	}
	return explain(err)
}

// overPartitions are the partitions of a class whose hour or day has ended, by their ends.
type overPartitions struct {
	names  []string
	bounds []int64
}

// oldestOver returns the earliest end of an hour or day that has ended and whose partition still has rows, which
// batches leave in place. It returns 0 if there is none.
func (s expiry) oldestOver(ctx context.Context) (ms int64, err error) {
	for range 3 { // the cleanup may drop a partition that was just listed
		if ms, err = s.oldestOfListed(ctx); !isNumber(err, unknownPartition) {
			break
		}
	}
	return ms, err
}

func (s expiry) oldestOfListed(ctx context.Context) (ms int64, err error) {
	classes, err := s.overPartitions(ctx)
	if err != nil {
		return 0, err
	}
	for _, class := range classes {
		if len(class.names) == 0 {
			continue
		}
		var oldest int64
		query := fmt.Sprintf(oldestInSQL, strings.Join(class.names, ", "))
		if err := s.db.QueryRowContext(ctx, query).Scan(&oldest); err != nil {
			return 0, err
		}
		at, _ := slices.BinarySearch(class.bounds, oldest+1)
		if oldest > 0 && at < len(class.bounds) && (ms == 0 || class.bounds[at] < ms) {
			ms = class.bounds[at]
		}
	}
	return ms, nil
}

func (s expiry) overPartitions(ctx context.Context) (classes [2]overPartitions, err error) {
	rows, err := s.db.QueryContext(ctx, overPartitionsSQL)
	if err != nil {
		return classes, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var name string
		var class, bound int64
		if err := rows.Scan(&name, &class, &bound); err != nil {
			return classes, err
		}
		of := &classes[class]
		of.names, of.bounds = append(of.names, "`"+name+"`"), append(of.bounds, bound)
	}
	return classes, rows.Err()
}

// PartitionsMissing returns the kinds of partitions, hours or days, of which no partition is ahead of the clock
// although rows are written. Such rows are in the last partition of their class.
func (s expiry) PartitionsMissing(ctx context.Context) (missing []string, err error) {
	var hours, days, now int64
	if err := s.db.QueryRowContext(ctx, lastPartitionsSQL).Scan(&hours, &days, &now); err != nil {
		return nil, fmt.Errorf("look for partitions ahead: %w", explain(err))
	}
	for _, class := range []struct {
		kind, later   string
		last, widthMs int64
	}{
		{cleanup.PartitionsOfHours, "h_later", hours, time.Hour.Milliseconds()},
		{cleanup.PartitionsOfDays, "d_later", days, 24 * time.Hour.Milliseconds()},
	} {
		if class.last > now+class.widthMs {
			continue
		}
		var rows bool // a new or idle table has no rows, so the next cleanup makes its partitions at no cost
		if err := s.db.QueryRowContext(ctx, fmt.Sprintf(laterSQL, class.later)).Scan(&rows); err != nil {
			return nil, fmt.Errorf("look into %s: %w", class.later, explain(err))
		}
		if rows {
			missing = append(missing, class.kind)
		}
	}
	return missing, nil
}

// examinePartitions reports whether the cleanup drops partitions or deletes rows in batches.
func (s *Store) examinePartitions(ctx context.Context) ([]watch.Check, error) {
	why, err := s.PartitionsRefused(ctx)
	if err != nil {
		return nil, err
	}
	if why != "" {
		return []watch.Check{watch.Warn("partitions", "the cleanup deletes rows in batches: "+why,
			"Grant EXECUTE on both procedures as schema/README.md has it, if the server knows partitions.")}, nil
	}
	missing, err := s.PartitionsMissing(ctx)
	if err != nil {
		return nil, err
	}
	if len(missing) > 0 {
		return []watch.Check{watch.Warn("partitions", cleanup.MissingPartitions(missing),
			cleanup.MissingPartitionsAdvice)}, nil
	}
	return []watch.Check{watch.Pass("partitions", "the cleanup drops whole hours and days")}, nil
}
