package nodecmd

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/dataplane/mysqlcounts"
	"github.com/weirhq/weir/shared/await"
	"github.com/weirhq/weir/shared/gen/sql/controlplanedb"
	"github.com/weirhq/weir/shared/servers"
	"github.com/weirhq/weir/shared/tuning"
)

// A node without MySQL is a full member of its region: operators' tuning, overrides and resets reach it, its heartbeats
// are stored, and when it stops it leaves the fleet.
func TestANodeWithoutMySQL(t *testing.T) { servers.EachSQL(t, testANodeWithoutMySQL) }

func testANodeWithoutMySQL(t *testing.T) {
	o := operate(t, migrated(t, servers.SQLForTest(t)))
	o.tune(1, 100*time.Millisecond)
	redis := "--redis-url=redis://" + servers.RedisForTest(t).Addr()
	with := begin(t, "--region=eu", "--node-id=with", redis, "--mysql-dsn="+o.dsn)
	without := begin(t, "--region=eu", "--node-id=without", redis)

	o.knows("with", "tuning_version = 1")
	o.knows("without", "tuning_version = 1")
	o.tune(2, 150*time.Millisecond)
	o.knows("with", "tuning_version = 2")
	o.knows("without", "tuning_version = 2")

	o.exec("INSERT INTO ratelimit_overrides (workspace_id, namespace, pattern, `limit`, duration_ms, candidate, shadow, updated_at) VALUES ('acme', 'api', 'x', 3, 0, 0, 0, 1)")
	for name, c := range map[string]*command{"with": with, "without": without} {
		await.True(t, "the override is in force on the node "+name, func() bool { return c.ask(t, "x", 0).Limit == 3 })
	}
	if !without.ask(t, "x", 3).Allowed || without.ask(t, "x", 1).Allowed {
		t.Error("the override's limit does not hold")
	}
	now := time.Now().UnixMilli()
	o.exec("INSERT INTO ratelimit_resets (workspace_id, namespace, identifier, generation, set_at, expires_at) VALUES ('acme', 'api', 'x', 1, ?, ?)", now, now+600_000)
	for name, c := range map[string]*command{"with": with, "without": without} {
		await.True(t, "the reset reaches the node "+name, func() bool { return c.ask(t, "x", 0).Remaining == 3 })
		o.knows(name, fmt.Sprintf("JSON_VALUE(health, '$.reset_at_ms') = %d", now))
	}
	if code := without.end(); code != 0 {
		t.Errorf("exit code %d\n%s", code, &without.stderr)
	}
	o.knows("without", "seen_at = 0")
	if code := with.end(); code != 0 {
		t.Errorf("exit code %d\n%s", code, &with.stderr)
	}
	o.knows("with", "seen_at = 0")
}

// Operators reach a node whose Redis is down, if it has MySQL.
func TestSettingsWhileRedisIsDown(t *testing.T) { servers.EachSQL(t, testSettingsWhileRedisIsDown) }

func testSettingsWhileRedisIsDown(t *testing.T) {
	o := operate(t, migrated(t, servers.SQLForTest(t)))
	o.tune(1, 100*time.Millisecond)
	server := servers.ProxyForTest(t, servers.RedisForTest(t).Addr())
	c := begin(t, "--region=eu", "--node-id=a", "--redis-url=redis://"+server.Addr(), "--mysql-dsn="+o.dsn)
	o.knows("a", "tuning_version = 1")
	server.Cut()
	o.tune(2, 100*time.Millisecond)
	o.knows("a", "tuning_version = 2")
	c.end() // its accepted cost, if any, cannot be sent
}

// operator changes settings past weir-control, and reads heartbeats.
type operator struct {
	testing.TB
	dsn string
	db  *sql.DB
}

func operate(t testing.TB, dsn string) *operator {
	t.Helper()
	db, err := mysqlcounts.Open(dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return &operator{t, dsn, db}
}

// exec changes the settings, and raises their version as the control plane does.
func (o *operator) exec(statement string, args ...any) {
	o.Helper()
	if _, err := o.db.ExecContext(o.Context(), statement, args...); err != nil {
		o.Fatalf("%s: %v", statement, err)
	}
	if err := controlplanedb.New(o.db).SettingsChanged(o.Context()); err != nil {
		o.Fatal(err)
	}
}

// tune stores a version of the tuning: the default, with another settings interval.
func (o *operator) tune(version int64, interval time.Duration) {
	o.Helper()
	changed := tuning.Default()
	changed.SettingsInterval = tuning.Duration(interval)
	document, err := json.Marshal(changed)
	if err != nil {
		o.Fatal(err)
	}
	o.exec("INSERT INTO ratelimit_tuning (version, region, document, actor, reason, created_at) VALUES (?, '', ?, 'a', 'r', 1)", version, string(document))
}

// knows waits until the newest heartbeat of a node meets a condition.
func (o *operator) knows(node, says string) {
	o.Helper()
	await.True(o, node+" tells that "+says, func() bool {
		var n int
		query := "SELECT COUNT(*) FROM ratelimit_nodes WHERE node_id = ? AND " + says
		if err := o.db.QueryRowContext(o.Context(), query, []byte(node)).Scan(&n); err != nil {
			o.Fatalf("%s: %v", strings.TrimSpace(query), err)
		}
		return n == 1
	})
}
