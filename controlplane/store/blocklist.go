package store

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/weirhq/weir/shared/gen/sql/controlplanedb"
)

// blocklistRowsPerStatement bounds one INSERT: 1,000 rows of the longest names are
// under 6 MB with every byte escaped, well below the packet that servers accept by
// default (16 MB and more).
const blocklistRowsPerStatement = 1000

var blocklistUpsert = newBulkStatement(controlplanedb.BlocklistUpsert)

// BlockedKey is one verdict of the design that shared verdicts instead of counts:
// this key was over this limit in this cell.
type BlockedKey struct {
	Workspace  string
	Namespace  string
	Identifier string
	Duration   time.Duration // whole milliseconds
	Sequence   int64
	Limit      int64
	ExpiresAt  time.Time
}

// UpsertBlocklist writes rows, thousands at a time. A row that is there already keeps
// the later of the two expiries. Rows are sorted by their unique key first: writers
// that lock in one order do not deadlock. The slice is not changed.
func (s *Store) UpsertBlocklist(ctx context.Context, keys []BlockedKey) error {
	sorted := slices.Clone(keys)
	slices.SortFunc(sorted, compareBlocked)
	err := chunked(sorted, blocklistRowsPerStatement, func(chunk []BlockedKey) error {
		args := make([]any, 0, len(chunk)*7)
		for _, k := range chunk {
			args = append(args, k.Workspace, k.Namespace, k.Identifier, k.Duration.Milliseconds(), k.Sequence, k.Limit,
				unixMs(k.ExpiresAt))
		}
		if _, err := s.db.ExecContext(ctx, blocklistUpsert.text(len(chunk)), args...); err != nil {
			return explain(err)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("write %d blocklist rows: %w", len(keys), err)
	}
	return nil
}

// ActiveBlocklist returns the rows that expire after now.
func (s *Store) ActiveBlocklist(ctx context.Context, now time.Time) ([]BlockedKey, error) {
	rows, err := s.queries.BlocklistListActive(ctx, unixMs(now))
	if err != nil {
		return nil, fmt.Errorf("list the active blocklist: %w", explain(err))
	}
	keys := make([]BlockedKey, len(rows))
	for i, r := range rows {
		keys[i] = BlockedKey{
			Workspace:  r.WorkspaceID,
			Namespace:  r.Namespace,
			Identifier: r.Identifier,
			Duration:   time.Duration(r.DurationMs) * time.Millisecond,
			Sequence:   r.Sequence,
			Limit:      int64(r.Limit),
			ExpiresAt:  time.UnixMilli(int64(r.ExpiresAt)),
		}
	}
	return keys, nil
}

// DeleteExpiredBlocklist deletes at most rows of those that expired before cutoff,
// oldest first.
func (s *Store) DeleteExpiredBlocklist(ctx context.Context, cutoff time.Time, rows int) (int64, error) {
	deleted, err := s.deleting(ctx, func(q *queries) (int64, error) {
		return q.BlocklistDeleteExpired(ctx, controlplanedb.BlocklistDeleteExpiredParams{CutoffMs: unixMs(cutoff),
			Limit: int32(rows)})
	})
	if err != nil {
		return 0, fmt.Errorf("delete at most %d blocklist rows expired before %d: %w", rows, cutoff.UnixMilli(), err)
	}
	return deleted, nil
}

func compareBlocked(a, b BlockedKey) int {
	return cmp.Or(
		cmp.Compare(a.Workspace, b.Workspace),
		cmp.Compare(a.Namespace, b.Namespace),
		cmp.Compare(a.Identifier, b.Identifier),
		cmp.Compare(a.Duration, b.Duration),
		cmp.Compare(a.Sequence, b.Sequence),
	)
}
