package mysqlcounts

import (
	"context"
	"database/sql"
	"slices"
	"strings"
)

// planOf is what the server says it would do: type, key, rows, extra. MySQL 9 answers with a tree unless it is asked
// not to.
func planOf(ctx context.Context, db *sql.DB, query string, args ...any) (string, error) {
	plan, err := explain(ctx, db, "EXPLAIN FORMAT=TRADITIONAL ", []string{"type", "key", "rows", "Extra"}, query, args...)
	return strings.Join(plan, ", "), err
}

// explain picks columns of a plan, row by row, without those that are empty.
func explain(ctx context.Context, db *sql.DB, form string, picked []string, query string, args ...any) ([]string, error) {
	rows, err := db.QueryContext(ctx, form+query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		return nil, err
	}
	values := make([]sql.NullString, len(columns))
	into := make([]any, len(columns))
	for i := range values {
		into[i] = &values[i]
	}
	var plan []string
	for rows.Next() {
		if err := rows.Scan(into...); err != nil {
			return nil, err
		}
		for i, name := range columns {
			if v := values[i].String; v != "" && slices.Contains(picked, name) {
				plan = append(plan, v)
			}
		}
	}
	return plan, rows.Err()
}
