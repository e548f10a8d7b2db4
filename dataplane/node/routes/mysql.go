package routes

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/weirhq/weir/shared/gen/sql/controlplanedb"
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

// Set implements Overrides.
func (m MySQL) Set(ctx context.Context, workspace, namespace string, o Override) error {
	ctx, cancel := context.WithTimeout(ctx, mysqlTimeout)
	defer cancel()
	if err := m.change(ctx, workspace, namespace, o.Pattern, &o); err != nil {
		return fmt.Errorf("set an override of %q: %w", namespace, err)
	}
	return nil
}

// Get implements Overrides.
func (m MySQL) Get(ctx context.Context, workspace, namespace, pattern string) (o Override, found bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, mysqlTimeout)
	defer cancel()
	rows, err := controlplanedb.New(m.DB).OverrideLook(ctx, controlplanedb.OverrideLookParams{
		WorkspaceID: []byte(workspace), Namespace: []byte(namespace), Pattern: []byte(pattern)})
	if err != nil {
		return Override{}, false, fmt.Errorf("get an override of %q: %w", namespace, err)
	}
	for _, r := range rows {
		return Override{pattern, saturate(r.Limit), saturate(r.DurationMs)}, true, nil
	}
	return Override{}, false, nil
}

// List implements Overrides.
func (m MySQL) List(ctx context.Context, workspace, namespace, after string, most int) (list []Override, err error) {
	ctx, cancel := context.WithTimeout(ctx, mysqlTimeout)
	defer cancel()
	rows, err := controlplanedb.New(m.DB).OverrideList(ctx, controlplanedb.OverrideListParams{
		WorkspaceID: []byte(workspace), Namespace: []byte(namespace), AfterPattern: []byte(after), Limit: int32(most)})
	if err != nil {
		return nil, fmt.Errorf("list the overrides of %q: %w", namespace, err)
	}
	for _, r := range rows {
		list = append(list, Override{string(r.Pattern), saturate(r.Limit), saturate(r.DurationMs)})
	}
	return list, nil
}

// Delete implements Overrides.
func (m MySQL) Delete(ctx context.Context, workspace, namespace, pattern string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, mysqlTimeout)
	defer cancel()
	err := m.change(ctx, workspace, namespace, pattern, nil)
	if errors.Is(err, errNone) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("delete an override of %q: %w", namespace, err)
	}
	return true, nil
}

// saturate keeps a number that is too large too large.
func saturate(n uint64) int64 { return int64(min(n, math.MaxInt64)) }
