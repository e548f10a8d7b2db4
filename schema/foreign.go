package schema

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// ErrForeignTable is wrapped by Migrate's error when a table has one of our names but not our form. Nothing was changed
// then.
var ErrForeignTable = errors.New("a table of this name belongs to another design")

// countsKey is the beginning of the primary key of ratelimit_window_counts, on which statements rely. With partitions
// the key also has the columns of the partitions, which follow from these.
var countsKey = []string{
	"workspace_id varbinary", "namespace varbinary", "identifier varbinary",
	"duration_ms bigint", "sequence bigint", "region varbinary",
}

// refuseForeign protects a fleet that comes from the design with text columns and a surrogate key. Its table would
// satisfy IF NOT EXISTS, accept every statement of ours, and quietly count 'Alice' and 'alice' as the same person.
func refuseForeign(ctx context.Context, db *sql.DB) error {
	const table = "ratelimit_window_counts"
	key, there, err := primaryKey(ctx, db, table)
	if err != nil {
		return fmt.Errorf("read the form of %s: %w", table, err)
	}
	if there && !slices.Equal(key[:min(len(key), len(countsKey))], countsKey) {
		return fmt.Errorf("%w: %s has the primary key (%s), want (%s): rename it, its counts are of no use after two windows",
			ErrForeignTable, table, strings.Join(key, ", "), strings.Join(countsKey, ", "))
	}
	return nil
}

// primaryKey lists a table's key columns, in the order of its columns, with their types.
func primaryKey(ctx context.Context, db *sql.DB, table string) (key []string, there bool, err error) {
	rows, err := db.QueryContext(ctx, `
		SELECT COLUMN_NAME, DATA_TYPE, COLUMN_KEY = 'PRI' FROM information_schema.COLUMNS
		WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = ? ORDER BY ORDINAL_POSITION`, table)
	if err != nil {
		return nil, false, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var name, kind string
		var primary bool
		if err := rows.Scan(&name, &kind, &primary); err != nil {
			return nil, false, err
		}
		there = true
		if primary {
			key = append(key, name+" "+kind)
		}
	}
	return key, there, rows.Err()
}
