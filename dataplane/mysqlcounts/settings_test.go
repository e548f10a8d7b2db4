package mysqlcounts

import (
	"database/sql"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/gen/sql/dataplanedb"
	"github.com/weirhq/weir/shared/heartbeat"
	"github.com/weirhq/weir/shared/servers"
	"github.com/weirhq/weir/shared/window"
)

// Rows from an operator's own SQL must not hide the other settings. The limiter validates them, so a number that is too
// large must stay too large.
func TestSettingsOfAnyNumber(t *testing.T) { servers.EachSQL(t, testSettingsOfAnyNumber) }

func testSettingsOfAnyNumber(t *testing.T) {
	c, db := openCounts(t)
	exec(t, db, "INSERT INTO ratelimit_namespaces (workspace_id, namespace, shadow, updated_at) VALUES ('w', 'two', 2, 1), ('w', 'minus', -1, 1), ('w', 'off', 0, 1)")
	exec(t, db, "INSERT INTO ratelimit_overrides (workspace_id, namespace, pattern, `limit`, duration_ms, updated_at, candidate, shadow) VALUES ('w', 'n', 'p', ?, ?, 1, ?, 2)", uint64(math.MaxUint64), uint64(math.MaxInt64)+1, uint64(math.MaxUint64))
	s, err := c.Settings(t.Context(), "eu")
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range s.Namespaces {
		if n.Shadow != (n.Namespace != "off") {
			t.Errorf("%+v", n)
		}
		// Columns that a row leaves out have their defaults.
		if n.Mode != "exact" || n.Outage != "local" || n.NodeShare != "wait" || n.Window != store.WindowCells || n.Estimate != "" {
			t.Errorf("the defaults are %+v", n)
		}
	}
	want := store.OverrideRow{Workspace: "w", Namespace: "n", Pattern: "p", Limit: math.MaxInt64, DurationMs: math.MaxInt64, Candidate: math.MaxInt64, Shadow: true}
	if len(s.Namespaces) != 3 || len(s.Overrides) != 1 || s.Overrides[0] != want {
		t.Errorf("%+v", s)
	}
}

// If a part of the settings cannot be read, Settings returns an error and no other part.
func TestSettingsAreWholeOrNone(t *testing.T) { servers.EachSQL(t, testSettingsAreWholeOrNone) }

func testSettingsAreWholeOrNone(t *testing.T) {
	for _, table := range []string{"ratelimit_tuning", "ratelimit_namespaces", "ratelimit_overrides"} {
		c, db := openCounts(t)
		exec(t, db, "INSERT INTO ratelimit_namespaces (workspace_id, namespace, shadow, updated_at) VALUES ('w', 'n', 1, 1)")
		exec(t, db, "DROP TABLE "+table)
		s, err := c.Settings(t.Context(), "eu")
		wantTransient(t, err)
		if s.Namespaces != nil {
			t.Errorf("without %s: %+v", table, s)
		}
	}
}

// Nodes may be upgraded before the database is migrated, or before their user is granted the tables. They must not lose
// all settings then, but only resets or trials, each with its own reason.
func TestSettingsWithoutATable(t *testing.T) { servers.EachSQL(t, testSettingsWithoutATable) }

func testSettingsWithoutATable(t *testing.T) {
	for table, user := range map[string]string{"ratelimit_resets": "no_resets", "ratelimit_trials": "no_trials"} {
		t.Run(table+" is missing", func(t *testing.T) {
			c, db := openCounts(t)
			exec(t, db, "DROP TABLE "+table)
			wantSettingsWithout(t, c, db, table, "Error 1146")
		})
		t.Run(table+" is not granted", func(t *testing.T) {
			dsn := migrated(t)
			db := open(t, dsn)
			exec(t, db, "CREATE USER IF NOT EXISTS '"+user+"'@'%' IDENTIFIED BY 'change me'")
			for _, t2 := range []string{"tuning", "trials", "namespaces", "overrides", "resets", "nodes"} {
				if granted := "ratelimit_" + t2; granted != table {
					exec(t, db, "GRANT SELECT ON "+granted+" TO '"+user+"'@'%'")
				}
			}
			c := New(open(t, strings.Replace(dsn, "root@", user+":change me@", 1)), Options{})
			wantSettingsWithout(t, c, db, table, "Error 1142")
		})
	}
}

func wantSettingsWithout(t *testing.T, c *Counts, db *sql.DB, table, says string) {
	t.Helper()
	exec(t, db, "INSERT INTO ratelimit_tuning (region, document, actor, reason, created_at) VALUES ('', '{}', 'a', 'r', 1)")
	exec(t, db, "INSERT INTO ratelimit_namespaces (workspace_id, namespace, shadow, updated_at) VALUES ('w', 'n', 1, 1)")
	exec(t, db, "INSERT INTO ratelimit_overrides (workspace_id, namespace, pattern, `limit`, duration_ms, updated_at, "+
		"candidate, shadow) VALUES ('w', 'n', 'p', 5, 0, 1, 0, FALSE)")
	s, err := c.Settings(t.Context(), "eu")
	if err != nil {
		t.Fatal(err)
	}
	if s.TuningVersion != 1 || len(s.Namespaces) != 1 || len(s.Overrides) != 1 || s.Resets != nil || s.Trial.Number != 0 {
		t.Errorf("%+v", s)
	}
	if s.Problem == nil || !strings.Contains(s.Problem.Error(), says) || !strings.Contains(s.Problem.Error(), table) {
		t.Errorf("the problem is %v", s.Problem)
	}
}

// Text for people is cut if it is too long, because the heartbeat shows a live node all the same. Names that identify
// the node are not cut.
func TestHeartbeatCutsText(t *testing.T) { servers.EachSQL(t, testHeartbeatCutsText) }

func testHeartbeatCutsText(t *testing.T) {
	c, db := openCounts(t)
	b := heartbeat.Heartbeat{NodeID: "n", Region: "eu", Build: strings.Repeat("b", 63) + "éé\xff"}
	b.Health.SettingsProblem = "\xff\x00" + strings.Repeat("\x01", 1<<20)
	if err := c.Heartbeat(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	got := beats(t, db)[0]
	if got.Build != strings.Repeat("b", 63) {
		t.Errorf("build is %q", got.Build)
	}
	if want := "\uFFFD\x00" + strings.Repeat("\x01", problemBytesMax-4); got.Health.SettingsProblem != want {
		t.Errorf("%d bytes of problem, want %d", len(got.Health.SettingsProblem), len(want))
	}
	for says, bad := range map[string]heartbeat.Heartbeat{
		"node id is 0": {Region: "eu"}, "node id is 65": {NodeID: strings.Repeat("n", 65), Region: "eu"},
		"region is 0": {NodeID: "n"}, "region is 49": {NodeID: "n", Region: strings.Repeat("r", 49)},
		"negative": {NodeID: "n", Region: "eu", SentAtMs: -1},
	} {
		wantRefused(t, c.Heartbeat(t.Context(), bad), says)
	}
}

// Figures of a relay that no node sends are left out or cut, because they come through an origin that other parties may
// write to. The stored figures fit into their column.
func TestHeartbeatBoundsTheRelaysFigures(t *testing.T) {
	servers.EachSQL(t, testHeartbeatBoundsTheRelaysFigures)
}

func testHeartbeatBoundsTheRelaysFigures(t *testing.T) {
	c, db := openCounts(t)
	lags := func(n int, region string) map[string]int64 {
		lags := make(map[string]int64)
		for i := range n {
			lags[fmt.Sprintf("%s%02d", region, i)] = math.MinInt64
		}
		return lags
	}
	long := strings.Repeat("\x01", store.RegionBytesMax-2)
	for id, relay := range map[string]heartbeat.Relay{
		"a shards":  {Held: slices.Repeat([]int{math.MinInt}, 20_000)},
		"b regions": {LagP99Ms: lags(heartbeat.RegionsMax+1, long)},
		"c names":   {LagP99Ms: lags(1, strings.Repeat("r", 65_000))},
		"d most":    {Held: slices.Repeat([]int{math.MinInt}, heartbeat.ShardsMax), LagP99Ms: lags(heartbeat.RegionsMax, long)},
	} {
		b := heartbeat.Heartbeat{NodeID: id, Region: "eu", Health: heartbeat.Health{Relay: &relay}}
		b.Health.SettingsProblem = strings.Repeat("\x01", problemBytesMax)
		b.Health.Problems = slices.Repeat([]string{strings.Repeat("\x01", heartbeat.ProblemBytesMax)}, heartbeat.ProblemsMax)
		b.Health.Limits = &heartbeat.Limits{Judged: 7, Top: slices.Repeat([]heartbeat.TopKey{{Identifier: make([]byte, 255)}}, 1000)}
		before := len(relay.Held)
		if err := c.Heartbeat(t.Context(), b); err != nil {
			t.Errorf("%s: %.200s", id, err)
		}
		if len(relay.Held) != before {
			t.Errorf("%s: the caller's own heartbeat was cut", id)
		}
	}
	wants := map[string]struct{ held, lags int }{
		"a shards": {heartbeat.ShardsMax, 0}, "b regions": {}, "c names": {}, "d most": {heartbeat.ShardsMax, heartbeat.RegionsMax},
	}
	stored := beats(t, db)
	if len(stored) != len(wants) {
		t.Errorf("%d of %d heartbeats are stored", len(stored), len(wants))
	}
	for _, got := range stored {
		want := wants[got.NodeID]
		if l := got.Health.Limits; l == nil || l.Judged != 7 || len(l.Top) != heartbeat.LimitsTopMax {
			t.Errorf("%q is stored with the evidence %+v", got.NodeID, l)
		}
		if held, lags := len(got.Health.Relay.Held), len(got.Health.Relay.LagP99Ms); held != want.held || lags != want.lags {
			t.Errorf("%q is stored with %d shards and %d regions, want %+v", got.NodeID, held, lags, want)
		}
	}
}

// "Some are out of bounds and will never be recorded, and all others are", whether this package or the server refuses
// them.
func TestARefusedHeartbeatKeepsBackNoOther(t *testing.T) {
	servers.EachSQL(t, testARefusedHeartbeatKeepsBackNoOther)
}

func testARefusedHeartbeatKeepsBackNoOther(t *testing.T) {
	c, db := openCounts(t)
	exec(t, db, "ALTER TABLE ratelimit_nodes ADD CONSTRAINT small CHECK (tuning_version < 100)")
	wantRefused(t, c.Heartbeat(t.Context(),
		heartbeat.Heartbeat{NodeID: "c", Region: "eu"}, heartbeat.Heartbeat{NodeID: "b"}, heartbeat.Heartbeat{NodeID: "a", Region: "eu"}), "region is 0 bytes long")
	wantRefused(t, c.Heartbeat(t.Context(),
		heartbeat.Heartbeat{NodeID: "d", Region: "eu", TuningVersion: 100}, heartbeat.Heartbeat{NodeID: "e", Region: "eu"}), "heartbeats of 1 nodes")
	if n := one[int](t, db, "SELECT COUNT(*) FROM ratelimit_nodes WHERE node_id IN ('a', 'c', 'e')"); n != 3 {
		t.Errorf("%d of 3 heartbeats are recorded", n)
	}
	if err := c.Heartbeat(t.Context(), make([]heartbeat.Heartbeat, store.HeartbeatsMax+1)...); err == nil || !strings.Contains(err.Error(), "at most 100") {
		t.Errorf("too many heartbeats: %v", err)
	}
}

// The statement takes as many arguments as the generator has checked.
func TestHeartbeatArguments(t *testing.T) {
	if want := reflect.TypeFor[dataplanedb.NodeBeatParams]().NumField(); heartbeatColumns != want {
		t.Errorf("%d arguments a row, the checked statement takes %d", heartbeatColumns, want)
	}
	if got := heartbeatRows.statement(1); got != dataplanedb.NodeBeat {
		t.Errorf("one row is\n%s\nwant\n%s", got, dataplanedb.NodeBeat)
	}
}

// seen_at comes from the database's clock, so that a wrong clock of a node shows.
func TestHeartbeatIsSeenByTheDatabasesClock(t *testing.T) {
	servers.EachSQL(t, testHeartbeatIsSeenByTheDatabasesClock)
}

func testHeartbeatIsSeenByTheDatabasesClock(t *testing.T) {
	c, db := openCounts(t)
	if err := c.Heartbeat(t.Context(), heartbeat.Heartbeat{NodeID: "n", Region: "eu", SentAtMs: 5}); err != nil {
		t.Fatal(err)
	}
	if skew := one[int64](t, db, "SELECT UNIX_TIMESTAMP() * 1000 - CAST(seen_at AS SIGNED) FROM ratelimit_nodes"); skew < -1000 || skew > 60_000 {
		t.Errorf("seen %d ms ago", skew)
	}
	// A heartbeat that came through an origin has waited there, so it shows no skew of its node's clock.
	if err := c.Heartbeat(t.Context(), heartbeat.Heartbeat{NodeID: "n", Region: "eu", SentAtMs: 5, Age: time.Hour}); err != nil {
		t.Fatal(err)
	}
	hour := time.Hour.Milliseconds()
	if skew := one[int64](t, db, "SELECT UNIX_TIMESTAMP() * 1000 - CAST(seen_at AS SIGNED) FROM ratelimit_nodes"); skew < hour-1000 || skew > hour+60_000 {
		t.Errorf("one that is an hour old was seen %d ms ago", skew)
	}
}

// Readers of withdrawn rows compare sent_at with the database's clock. So a node with a wrong clock leaves like any
// other node, and a heartbeat that arrives late changes nothing.
func TestALastHeartbeatIsDatedByTheDatabasesClock(t *testing.T) {
	servers.EachSQL(t, testALastHeartbeatIsDatedByTheDatabasesClock)
}

func testALastHeartbeatIsDatedByTheDatabasesClock(t *testing.T) {
	c, db := openCounts(t)
	beat := func(b heartbeat.Heartbeat) (sentAgoMs, seenMs int64) {
		t.Helper()
		b.NodeID, b.Region = "n", "eu"
		if err := c.Heartbeat(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		return one[int64](t, db, "SELECT UNIX_TIMESTAMP() * 1000 - CAST(sent_at AS SIGNED) FROM ratelimit_nodes"),
			one[int64](t, db, "SELECT CAST(seen_at AS SIGNED) FROM ratelimit_nodes")
	}
	const started = 3 // by a clock that is decades behind
	if ago, seen := beat(heartbeat.Heartbeat{StartedAtMs: started, SentAtMs: 5}); ago < time.Hour.Milliseconds() || seen == 0 {
		t.Errorf("a usual heartbeat was sent %d ms ago, seen at %d; want the node's own time", ago, seen)
	}
	for name, b := range map[string]heartbeat.Heartbeat{
		"the last":                       {StartedAtMs: started, SentAtMs: 6, Stopped: true},
		"the last, sent twice":           {StartedAtMs: started, SentAtMs: 6, Stopped: true},
		"an earlier one that comes late": {StartedAtMs: started, SentAtMs: 5},
	} {
		beat(heartbeat.Heartbeat{StartedAtMs: started, SentAtMs: 6, Stopped: true})
		if ago, seen := beat(b); ago < -1000 || ago > 60_000 || seen != 0 {
			t.Errorf("%s: sent %d ms ago, seen at %d; want now, and 0", name, ago, seen)
		}
	}
	if ago, seen := beat(heartbeat.Heartbeat{StartedAtMs: started + 5, SentAtMs: 9}); ago < time.Hour.Milliseconds() || seen == 0 {
		t.Errorf("the next process's heartbeat was sent %d ms ago, seen at %d; want the node's own time", ago, seen)
	}
}

func TestCut(t *testing.T) {
	for _, c := range []struct {
		in   string
		max  int
		want string
	}{{"", 3, ""}, {"abc", 3, "abc"}, {"abcd", 3, "abc"}, {"aéé", 3, "aé"}, {"aéé", 2, "a"}, {"🙂", 3, ""}, {"a\xffb", 4, "a\uFFFD"}} {
		if got := cut(c.in, c.max); got != c.want {
			t.Errorf("%q to %d: %q, want %q", c.in, c.max, got, c.want)
		}
	}
}

// The widths of columns equal the bounds in Go, with the same width for each name.
func TestColumnsAreAsWideAsTheBounds(t *testing.T) {
	servers.EachSQL(t, testColumnsAreAsWideAsTheBounds)
}

func testColumnsAreAsWideAsTheBounds(t *testing.T) {
	_, db := openCounts(t)
	for column, want := range map[string]int{
		"ratelimit_window_counts.workspace_id": window.WorkspaceBytesMax, "ratelimit_window_counts.namespace": window.NamespaceBytesMax,
		"ratelimit_window_counts.identifier": window.IdentifierBytesMax, "ratelimit_window_counts.region": store.RegionBytesMax,
		"ratelimit_nodes.region": store.RegionBytesMax, "ratelimit_nodes.node_id": nodeIDBytesMax, "ratelimit_nodes.build": buildBytesMax,
		"ratelimit_tuning.region": store.RegionBytesMax, "ratelimit_changes.region": store.RegionBytesMax,
		"ratelimit_namespaces.estimate":     store.EstimateBytesMax,
		"ratelimit_namespaces.workspace_id": window.WorkspaceBytesMax, "ratelimit_namespaces.namespace": window.NamespaceBytesMax,
		"ratelimit_overrides.workspace_id": window.WorkspaceBytesMax, "ratelimit_overrides.namespace": window.NamespaceBytesMax,
		"ratelimit_overrides.pattern": window.IdentifierBytesMax,
	} {
		table, name, _ := strings.Cut(column, ".")
		got := one[int](t, db, `SELECT CHARACTER_MAXIMUM_LENGTH FROM information_schema.COLUMNS
			WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = ? AND COLUMN_NAME = ?`, table, name)
		if got != want {
			t.Errorf("%s takes %d bytes, want %d", column, got, want)
		}
	}
}
