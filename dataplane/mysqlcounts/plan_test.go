package mysqlcounts

import (
	"context"
	"database/sql"
	"slices"
	"strings"
)

// planOf returns the server's plan of a statement: type, key, rows, extra. MySQL 9 returns a tree unless FORMAT says
// otherwise.
func planOf(ctx context.Context, db *sql.DB, query string, args ...any) (string, error) {
	plan, err := explain(ctx, db, "EXPLAIN FORMAT=TRADITIONAL ", []string{"type", "key", "rows", "Extra"}, query, args...)
	return strings.Join(plan, ", "), err
}

// explain returns columns of a plan, row by row, without empty values.
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
