package mysqlcounts

import (
	"strings"
	"testing"

	"github.com/weirhq/weir/shared/gen/sql/controlplanedb"
	"github.com/weirhq/weir/shared/servers"
)

// Statements that run all the time find their rows by an index on both engines, however many rows there are.
// schema/README.md uses these plans to explain the keys.
func TestPlans(t *testing.T) { servers.EachSQL(t, testPlans) }

func testPlans(t *testing.T) {
	c, db := openCounts(t)
	fill(t, db, 10_000)
	publish(t, c, "eu-west-1", countsOf(2, filled(50)...)...)
	expired := began.UnixMilli() - 1
	exec(t, db, "UPDATE "+rowsTable+" SET expires_at = ? WHERE identifier < 'user_0000000500'", expired)
	exec(t, db, "ANALYZE TABLE "+rowsTable)
	soon := began.UnixMilli()
	for what, plan := range map[string]struct {
		query string
		args  []any
		wants string
	}{
		"delete what has expired": {controlplanedb.WindowCountsDeleteExpired, []any{soon, 100}, "range, expires_at_idx"},
		"the oldest expiry":       {controlplanedb.WindowCountsOldestExpiry, nil, "optimized away"},
	} {
		got, err := planOf(t.Context(), db, plan.query, plan.args...)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		t.Logf("%s: %s", what, got)
		if !strings.Contains(got, plan.wants) || strings.Contains(got, "ALL, ") {
			t.Errorf("%s: the plan is %s, want %s and no scan", what, got, plan.wants)
		}
	}
}
