package routes

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"time"
)

// errFull is a Memory that holds memoryMax overrides.
var errFull = fmt.Errorf("there are %d overrides, the most that are kept in memory", memoryMax)

// mysqlTimeout bounds a statement. People wait for it, and nothing else does.
const mysqlTimeout = 5 * time.Second

// MySQL implements Overrides with the table from which all nodes read their settings. Its user needs SELECT, INSERT,
// UPDATE and DELETE on ratelimit_overrides, INSERT on ratelimit_audit, SELECT, INSERT and UPDATE on
// ratelimit_audit_chain, and INSERT and UPDATE on ratelimit_settings_version. These are more grants than a node
// otherwise has: see schema/README.md. A change that cannot be audited is not made. Changes keep a candidate limit and
// the shadow mode of an override.
type MySQL struct{ DB *sql.DB }

var _ Overrides = MySQL{}

// The statements are not among queries/dataplane, which every node's user may run.
const (
	overrideSet = "INSERT INTO ratelimit_overrides (workspace_id, namespace, pattern, `limit`, duration_ms, updated_at) " +
		"VALUES (?, ?, ?, ?, ?, UNIX_TIMESTAMP() * 1000 + MICROSECOND(NOW(3)) DIV 1000) " +
		"ON DUPLICATE KEY UPDATE `limit` = VALUES(`limit`), duration_ms = VALUES(duration_ms), updated_at = " +
		"VALUES(updated_at)"
	overrideGet = "SELECT `limit`, duration_ms FROM ratelimit_overrides WHERE workspace_id = ? AND namespace = ? AND " +
		"pattern = ?"
	overrideList = "SELECT pattern, `limit`, duration_ms FROM ratelimit_overrides WHERE workspace_id = ? AND " +
		"namespace = ? AND pattern > ? ORDER BY pattern LIMIT ?"
	overrideDelete = "DELETE FROM ratelimit_overrides WHERE workspace_id = ? AND namespace = ? AND pattern = ?"
)

// Set implements Overrides.
func (m MySQL) Set(ctx context.Context, workspace, namespace string, o Override) error {
	ctx, cancel := context.WithTimeout(ctx, mysqlTimeout)
	defer cancel()
	if _, err := m.change(ctx, workspace, namespace, o.Pattern, &o); err != nil {
		return fmt.Errorf("set an override of %q: %w", namespace, err)
	}
	return nil
}

// Get implements Overrides.
func (m MySQL) Get(ctx context.Context, workspace, namespace, pattern string) (Override, bool, error) {
	ctx, cancel := context.WithTimeout(ctx, mysqlTimeout)
	defer cancel()
	var limit, durationMs uint64
	err := m.DB.QueryRowContext(ctx, overrideGet, []byte(workspace), []byte(namespace),
		[]byte(pattern)).Scan(&limit, &durationMs)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return Override{}, false, nil
	case err != nil:
		return Override{}, false, fmt.Errorf("get an override of %q: %w", namespace, err)
	}
	return Override{pattern, saturate(limit), saturate(durationMs)}, true, nil
}

// List implements Overrides.
func (m MySQL) List(ctx context.Context, workspace, namespace, after string, most int) (list []Override, err error) {
	ctx, cancel := context.WithTimeout(ctx, mysqlTimeout)
	defer cancel()
	rows, err := m.DB.QueryContext(ctx, overrideList, []byte(workspace), []byte(namespace), []byte(after), most)
	if err != nil {
		return nil, fmt.Errorf("list the overrides of %q: %w", namespace, err)
	}
	defer func() { _ = rows.Close() }() // rows.Err has the error that matters
	for rows.Next() {
		var pattern []byte
		var limit, durationMs uint64
		if err := rows.Scan(&pattern, &limit, &durationMs); err != nil {
			return nil, fmt.Errorf("read an override of %q: %w", namespace, err)
		}
		list = append(list, Override{string(pattern), saturate(limit), saturate(durationMs)})
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("list the overrides of %q: %w", namespace, err)
	}
	return list, nil
}

// Delete implements Overrides.
func (m MySQL) Delete(ctx context.Context, workspace, namespace, pattern string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, mysqlTimeout)
	defer cancel()
	found, err := m.change(ctx, workspace, namespace, pattern, nil)
	if err != nil {
		return false, fmt.Errorf("delete an override of %q: %w", namespace, err)
	}
	return found, nil
}

// saturate keeps a number that is too large too large.
func saturate(n uint64) int64 { return int64(min(n, math.MaxInt64)) }
