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
	rows, err := db.QueryContext(ctx, "EXPLAIN FORMAT=TRADITIONAL "+query, args...)
	if err != nil {
		return "", err
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		return "", err
	}
	values := make([]sql.NullString, len(columns))
	into := make([]any, len(columns))
	for i := range values {
		into[i] = &values[i]
	}
	var plan []string
	for rows.Next() {
		if err := rows.Scan(into...); err != nil {
			return "", err
		}
		for i, name := range columns {
			if v := values[i].String; v != "" && slices.Contains([]string{"type", "key", "rows", "Extra"}, name) {
				plan = append(plan, v)
			}
		}
	}
	return strings.Join(plan, ", "), rows.Err()
}
