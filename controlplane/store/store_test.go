package store

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/audit"
	"github.com/weirhq/weir/controlplane/fleet"
	"github.com/weirhq/weir/controlplane/limits"
	"github.com/weirhq/weir/schema"
	"github.com/weirhq/weir/schema/schematest"
	"github.com/weirhq/weir/shared/servers"
)

func TestNowIsTheClockOfTheDatabase(t *testing.T) { servers.EachSQL(t, testNowIsTheClockOfTheDatabase) }

func testNowIsTheClockOfTheDatabase(t *testing.T) {
	store, _ := migrated(t)
	before := time.Now().Truncate(time.Millisecond)
	now, err := store.Now(t.Context())
	if err != nil || now.Before(before) || now.After(time.Now().Add(time.Millisecond)) {
		t.Errorf("%v, %v; the machine's clock said %v", now, err, before)
	}
}

func TestFleetNodes(t *testing.T) { servers.EachSQL(t, testFleetNodes) }

func testFleetNodes(t *testing.T) {
	store, db := migrated(t)
	if now, nodes, err := store.FleetNodes(t.Context(), 10); err != nil || len(nodes) != 0 || time.Since(now).Abs() > time.Minute {
		t.Errorf("an empty fleet: %v, %v, %v", now, nodes, err)
	}
	insertNode(t, db, "b", "us", 1500, 2000, `{"allowed_total":3}`)
	insertNode(t, db, "c", "eu", 0, 1, "{}")
	insertNode(t, db, "a", "us", 0, 1, "{}")
	now, nodes, err := store.FleetNodes(t.Context(), 10)
	if err != nil || len(nodes) != 3 || time.Since(now).Abs() > time.Minute {
		t.Fatalf("%v, %v, %v", now, nodes, err)
	}
	order := nodes[0].Heartbeat.NodeID + nodes[1].Heartbeat.NodeID + nodes[2].Heartbeat.NodeID
	b := nodes[2]
	if order != "cab" || b.Heartbeat.Region != "us" || b.Heartbeat.Build != "v1" || b.Heartbeat.TuningVersion != 7 || b.Heartbeat.StartedAtMs != 500 ||
		b.Heartbeat.SentAtMs != 1500 || b.SeenAt.UnixMilli() != 2000 || b.Health != `{"allowed_total":3}` {
		t.Errorf("order %s, b is %+v", order, b)
	}
	if _, nodes, err := store.FleetNodes(t.Context(), 2); err != nil || len(nodes) != 2 {
		t.Errorf("bounded to 2: %v, %v", nodes, err)
	}
}

// A node that withdrew itself is listed as left for an hour. Cleanup keeps its row as long as the row of a dead node,
// so that a rollout that looks after a cleanup still sees that it left.
func TestANodeThatHasLeftIsListed(t *testing.T) { servers.EachSQL(t, testNodeLeft) }

func testNodeLeft(t *testing.T) {
	store, db := migrated(t)
	now, err := store.Now(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	insertNode(t, db, "live", "eu", now.UnixMilli(), now.UnixMilli(), "{}")
	insertNode(t, db, "left", "eu", now.Add(-30*time.Minute).UnixMilli(), 0, "{}")
	insertNode(t, db, "long ago", "eu", now.Add(-2*time.Hour).UnixMilli(), 0, "{}")
	for range 2 {
		fleet, err := fleet.List(t.Context(), store, time.Minute)
		if err != nil || len(fleet.Nodes) != 1 || fleet.Nodes[0].NodeID != "live" || !slices.Equal(fleet.Left, []string{"left"}) || fleet.Truncated {
			t.Fatalf("%+v, %v", fleet, err)
		}
		if deleted, err := store.DeleteDeadNodes(t.Context(), now.Add(-time.Hour), 10); err != nil || deleted > 1 {
			t.Fatalf("deleted %d, %v; want the one of long ago", deleted, err)
		}
	}
}

// If the database's clock steps back by an hour, heartbeats from before are in the future. A node that dies afterwards
// is silent after the usual time, not an hour later. Live and withdrawn nodes keep their status.
func TestHeartbeatsFromBeforeAStepBackAgeAgain(t *testing.T) {
	servers.EachSQL(t, testHeartbeatsFromBeforeAStepBack)
}

func testHeartbeatsFromBeforeAStepBack(t *testing.T) {
	store, db := migrated(t)
	now, err := store.Now(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ms := now.UnixMilli()
	insertNode(t, db, "dead", "eu", ms, now.Add(time.Hour).UnixMilli(), "{}")
	insertNode(t, db, "live", "eu", ms, ms, "{}")
	insertNode(t, db, "left", "eu", ms, 0, "{}")
	list := func() fleet.Fleet {
		t.Helper()
		fleet, err := fleet.List(t.Context(), store, time.Minute)
		if err != nil || len(fleet.Nodes) != 2 || !slices.Equal(fleet.Left, []string{"left"}) {
			t.Fatalf("%+v, %v", fleet, err)
		}
		return fleet
	}
	for _, want := range []int64{1, 0} {
		listing := list()
		if got, err := fleet.SetRight(t.Context(), listing, store); err != nil || got != want {
			t.Fatalf("%d heartbeats were corrected, %v; want %d", got, err, want)
		}
	}
	for _, n := range list().Nodes {
		if ahead := n.SeenAt.Sub(now); ahead > time.Minute || !n.Live {
			t.Errorf("%s: its heartbeat is %v ahead, live %v", n.NodeID, ahead, n.Live)
		}
	}
}

func TestInsertAuditKeepsEveryByte(t *testing.T) { servers.EachSQL(t, testInsertAuditKeepsEveryByte) }

func testInsertAuditKeepsEveryByte(t *testing.T) {
	store, db := migrated(t)
	e := audit.Entry{
		By:     controlplane.By{Actor: strings.Repeat("a", 191), Reason: strings.Repeat("🔥", 125)},
		Action: strings.Repeat("x", 64), Subject: "a\x00b\xff" + strings.Repeat("s", 796),
		Before: `{"running":true}`, After: strings.Repeat("z", audit.StateBytesMax),
	}
	if err := audit.Write(t.Context(), store, e); err != nil {
		t.Fatal(err)
	}
	var got audit.Entry
	var at int64
	err := db.QueryRowContext(t.Context(), `SELECT at, actor, reason, action, subject, before_state, after_state FROM ratelimit_audit`).
		Scan(&at, &got.Actor, &got.Reason, &got.Action, &got.Subject, &got.Before, &got.After)
	if err != nil || got != e {
		t.Errorf("%v; read back %.80q", err, got)
	}
	if time.Since(time.UnixMilli(at)).Abs() > time.Minute {
		t.Errorf("at %v", time.UnixMilli(at))
	}
}

// The log is read newest first, in pages.
func TestAudit(t *testing.T) { servers.EachSQL(t, testAudit) }

func testAudit(t *testing.T) {
	store, _ := migrated(t)
	var want []audit.Entry
	for _, subject := range []string{"a", "b", "c"} {
		e := audit.Entry{By: controlplane.By{Actor: "ann", Reason: "because"}, Action: "cleanup.pause", Subject: subject, Before: "{}", After: "[]"}
		if err := store.InsertAudit(t.Context(), e); err != nil {
			t.Fatal(err)
		}
		want = append([]audit.Entry{e}, want...)
	}
	page := func(before int64) ([]audit.Record, error) {
		found, _, err := audit.Search(t.Context(), store, audit.Filter{}, before, 2)
		return found, err
	}
	first, err := page(0)
	if err != nil || len(first) != 2 || first[0].Entry != want[0] || first[1].Entry != want[1] || time.Since(first[0].At).Abs() > time.Minute {
		t.Fatalf("%+v, %v", first, err)
	}
	rest, err := page(first[1].Row)
	if err != nil || len(rest) != 1 || rest[0].Entry != want[2] {
		t.Errorf("%+v, %v", rest, err)
	}
}

// An error about the DSN "does not repeat it: it may hold a password".
func TestOpenRefusesABadDSNWithoutRepeatingIt(t *testing.T) {
	for _, dsn := range []string{"weir:s3cret@tcp(127.0.0.1:3306", "weir:s3cret@tcp(127.0.0.1:3306)/", "weir:s3cret@127.0.0.1/weir", "weir:s3cret@tcp(h)/weir?tls=s3cret", "weir:s3cret@tcp(h)/weir?timeout=s3cret", "s3cret"} {
		db, err := Open(dsn)
		if err == nil {
			_ = db.Close()
			t.Errorf("%s was taken", dsn)
		} else if strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: %v", dsn, err)
		}
	}
}

// "It does not connect, so that a process may start before its database does."
func TestOpenDoesNotConnect(t *testing.T) {
	db, err := Open("weir:secret@tcp(127.0.0.1:1)/weir")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	_, err = New(db).Now(t.Context())
	if !errors.Is(err, controlplane.ErrUnavailable) || !strings.Contains(err.Error(), "read the clock of the database: unavailable: MySQL does not answer") || strings.Contains(err.Error(), "secret") {
		t.Errorf("error %v", err)
	}
}

// Every error shows the cause: a silent server and missing tables are ErrUnavailable, a refused statement is not, and
// an exceeded deadline stays a deadline.
func TestErrorsTellWhatIsWrong(t *testing.T) { servers.EachSQL(t, testErrorsTellWhatIsWrong) }

func testErrorsTellWhatIsWrong(t *testing.T) {
	empty, err := Open(servers.SharedSQL(t).DatabaseForTest(t))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = empty.Close() }()
	_, err = New(empty).DeleteExpired(t.Context(), time.Now(), 1)
	if !errors.Is(err, controlplane.ErrUnavailable) || !strings.Contains(err.Error(), "tables are missing") {
		t.Errorf("without tables: %v", err)
	}
	store, _ := migrated(t)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := store.OldestExpiry(ended); !errors.Is(err, context.Canceled) || errors.Is(err, controlplane.ErrUnavailable) {
		t.Errorf("a caller that is gone: %v", err)
	}
	if _, err := store.DeleteDeadNodes(t.Context(), time.Now(), -1); err == nil || errors.Is(err, controlplane.ErrUnavailable) {
		t.Errorf("a statement that is refused: %v", err)
	}
}

// After a failover the former primary runs as a replica that answers reads, and the name leads to the new primary.
func TestWritesGoToTheNewPrimaryAfterAFailover(t *testing.T) {
	servers.EachSQL(t, testWritesGoToTheNewPrimaryAfterAFailover)
}

func testWritesGoToTheNewPrimaryAfterAFailover(t *testing.T) {
	former, next := servers.SQLForTest(t), servers.SQLForTest(t)
	for _, server := range []*servers.SQL{former, next} {
		server.CreateForTest(t, "weir")
		root := rootOf(t, server)
		if err := schema.Migrate(t.Context(), root, slog.New(slog.DiscardHandler)); err != nil {
			t.Fatal(err)
		}
		execAll(t, root, "CREATE USER control IDENTIFIED BY 'x'", "GRANT SELECT, INSERT, UPDATE, DELETE ON weir.* TO control")
	}
	way := servers.ProxyForTest(t, former.Addr())
	db, err := Open("control:x@tcp(" + way.Addr() + ")/weir")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	s := New(db)
	if err := setLimit(t, s, 1); err != nil {
		t.Fatal(err)
	}
	execAll(t, rootOf(t, former), "SET GLOBAL read_only = 1")
	way.SetTarget(next.Addr())
	for range 2 * connectionsMax { // at most an error for each open connection
		if err = setLimit(t, s, 2); err == nil {
			break
		}
	}
	if err != nil {
		t.Errorf("writes still go to the former primary: %v", err)
	}
	if n := count(t, rootOf(t, next), "SELECT COUNT(*) FROM ratelimit_overrides WHERE `limit` = 2"); n != 1 {
		t.Errorf("the new primary has %d overrides", n)
	}
}

// Settings of managed databases and careful administrators have no effect, even at their worst values.
func TestSettingsOfTheServerChangeNothing(t *testing.T) {
	servers.EachSQL(t, testSettingsOfTheServerChangeNothing)
}

func testSettingsOfTheServerChangeNothing(t *testing.T) {
	server := servers.SQLForTest(t)
	server.CreateForTest(t, "weir")
	root := rootOf(t, server)
	execAll(t, root, "CREATE USER control IDENTIFIED BY ''", "GRANT ALL ON weir.* TO control") // init_connect spares root
	execAll(t, root,
		"SET GLOBAL sql_mode = 'ANSI_QUOTES,NO_BACKSLASH_ESCAPES,NO_ZERO_DATE'",
		"SET GLOBAL autocommit = 0",
		"SET GLOBAL TRANSACTION ISOLATION LEVEL SERIALIZABLE, READ ONLY",
		"SET GLOBAL time_zone = '+09:00'",
		"SET GLOBAL wait_timeout = 1",
		"SET GLOBAL sql_select_limit = 1",
		"SET GLOBAL innodb_lock_wait_timeout = 1",
		"SET GLOBAL default_storage_engine = 'MyISAM'",
		"SET GLOBAL init_connect = 'SET NAMES gbk'")
	limited := "SET GLOBAL max_execution_time = 1"
	if servers.EngineOf(t) == servers.MariaDB {
		limited = "SET GLOBAL max_statement_time = 0.001"
	}
	execAll(t, root, limited)

	db := schematest.Open(t, strings.Replace(server.DSN("weir"), "root@", "control@", 1), Open)
	if n := count(t, db, "SELECT COUNT(*) FROM information_schema.TABLES WHERE TABLE_SCHEMA = 'weir' AND ENGINE <> 'InnoDB'"); n != 0 {
		t.Errorf("%d tables are not InnoDB's", n)
	}
	s := New(db)
	if err := setLimit(t, s, 7); err != nil {
		t.Error(err)
	}
	if err := s.InsertAudit(t.Context(), audit.Entry{By: controlplane.By{Actor: "ann", Reason: "r"}, ID: "m1",
		Action: "x.y", Subject: "s"}); err != nil {
		t.Error(err)
	}
	other, err := Open(server.DSN("weir"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Close() }()
	if limits, audits := count(t, other, "SELECT COUNT(*) FROM ratelimit_overrides"), count(t, other, "SELECT COUNT(*) FROM ratelimit_audit"); limits != 1 || audits < 1 {
		t.Errorf("another process sees %d overrides and %d entries", limits, audits)
	}
	execAll(t, other, "UPDATE ratelimit_overrides SET `limit` = 8") // a read of the first process sees it
	if n := count(t, db, "SELECT `limit` FROM ratelimit_overrides"); n != 8 {
		t.Errorf("the first process reads %d: its first snapshot", n)
	}
	for query, want := range map[string]string{
		"SELECT @@SESSION.time_zone": "+00:00", "SELECT @@SESSION.wait_timeout": "28800", "SELECT @@SESSION.sql_mode": "STRICT_ALL_TABLES",
		"SELECT @@SESSION.innodb_lock_wait_timeout": "50", "SELECT @@SESSION.character_set_client": "utf8mb4",
	} {
		var got string
		if err := db.QueryRowContext(t.Context(), query).Scan(&got); err != nil || got != want {
			t.Errorf("%s is %q, %v; want %q", query, got, err, want)
		}
	}
}

func rootOf(t *testing.T, server *servers.SQL) *sql.DB {
	t.Helper()
	db, err := Open(server.DSN("weir"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func execAll(t *testing.T, db *sql.DB, statements ...string) {
	t.Helper()
	for _, statement := range statements {
		exec(t, db, statement)
	}
}

func setLimit(t *testing.T, s *Store, limit int64) error {
	return s.ChangeOverride(t.Context(), "acme", "api", "u*",
		func(*limits.Override) (*limits.Override, audit.Entry, error) {
			return &limits.Override{Workspace: "acme", Namespace: "api", Pattern: "u*", Limit: limit},
				audit.Entry{By: controlplane.By{Actor: "ann", Reason: "test"}, Action: "override.set", Subject: "acme/api/u*"}, nil
		})
}
