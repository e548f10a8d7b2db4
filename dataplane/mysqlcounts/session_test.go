package mysqlcounts

import (
	"database/sql"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/shared/await"
	"github.com/weirhq/weir/shared/gen/sql/dataplanedb"
	"github.com/weirhq/weir/shared/mysqlclient"
	"github.com/weirhq/weir/shared/servers"
)

// The server's defaults, its init_connect and the DSN all have the worst possible settings, and every connection of the
// pool has the right settings.
func TestEverySessionHasTheSettings(t *testing.T) { servers.EachSQL(t, testEverySessionHasTheSettings) }

func testEverySessionHasTheSettings(t *testing.T) {
	server := servers.SQLForTest(t)
	server.CreateForTest(t, "weir")
	root := openPlain(t, server.DSN("weir"))
	exec(t, root, "SET GLOBAL sql_mode = 'NO_BACKSLASH_ESCAPES,ANSI_QUOTES'")
	exec(t, root, "SET GLOBAL time_zone = '-03:30'")
	exec(t, root, "SET GLOBAL autocommit = 0")
	exec(t, root, "SET GLOBAL init_connect = 'SET NAMES gbk'")
	exec(t, root, "CREATE USER weir IDENTIFIED BY ''") // init_connect does not run for root
	exec(t, root, "GRANT ALL ON weir.* TO weir")
	migrate(t, server.DSN("weir"))

	dsn := strings.Replace(server.DSN("weir"), "root@", "weir@", 1) + "&charset=gbk&sql_mode=''"
	db := open(t, dsn)
	conns := make([]*sql.Conn, connsMax)
	for i := range conns {
		conn, err := db.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		conns[i] = conn
	}
	for i, conn := range conns {
		for query, want := range map[string]string{
			"SELECT @@SESSION.sql_mode":                 "STRICT_ALL_TABLES",
			"SELECT @@SESSION.character_set_client":     "utf8mb4",
			"SELECT @@SESSION.character_set_connection": "utf8mb4",
			"SELECT @@SESSION.autocommit":               "1",
			"SELECT @@SESSION.innodb_lock_wait_timeout": "1",
			"SELECT @@SESSION.time_zone":                "+00:00",
		} {
			var got string
			if err := conn.QueryRowContext(t.Context(), query).Scan(&got); err != nil || got != want {
				t.Errorf("connection %d: %s is %q, %v; want %q", i, query, got, err, want)
			}
		}
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	}

	c := New(db, Options{})
	names := []string{"\xbf' OR 1=1 -- ", "\xbf\\' OR 1=1 -- ", `\`, `\'`, `"`, "é", "alice "}
	for _, name := range names {
		publish(t, c, "eu", countsOf(3, cell(name))...)
	}
	got := imported(t, c, "us")
	for _, name := range names {
		if got[cell(name)].Foreign != 3 || len(got) != len(names) {
			t.Errorf("%q: %+v", name, got)
		}
	}
}

// A pool whose sessions would truncate values or never commit is an error before the first write.
func TestPublishNeedsAGoodSession(t *testing.T) { servers.EachSQL(t, testPublishNeedsAGoodSession) }

func testPublishNeedsAGoodSession(t *testing.T) {
	dsn := migrated(t)
	for _, setting := range []string{"&sql_mode=''", "&autocommit=0"} {
		bad := openPlain(t, dsn+setting)
		err := New(bad, Options{}).Publish(t.Context(), "eu", countsOf(1, cell("x")))
		wantTransient(t, err)
		if err == nil || !strings.Contains(err.Error(), "mysqlcounts.Open") {
			t.Errorf("%v does not say what to do", err)
		}
		if n := one[int](t, bad, "SELECT COUNT(*) FROM "+rowsTable); n != 0 {
			t.Errorf("%s: %d rows were written", setting, n)
		}
		// Open's settings take precedence over the DSN's.
		publish(t, New(open(t, dsn+setting), Options{}), "eu", countsOf(1, cell("x"))...)
		exec(t, open(t, dsn), "DELETE FROM "+rowsTable)
	}
	// The server's defaults are good enough.
	publish(t, New(openPlain(t, dsn), Options{}), "eu", countsOf(1, cell("x"))...)
}

func TestPublishNeedsRoomForAChunk(t *testing.T) { servers.EachSQL(t, testPublishNeedsRoomForAChunk) }

func testPublishNeedsRoomForAChunk(t *testing.T) {
	server := servers.SQLForTest(t)
	dsn := server.DatabaseForTest(t)
	migrate(t, dsn)
	exec(t, openPlain(t, dsn), "SET GLOBAL max_allowed_packet = ?", mysqlclient.PacketBytesMin/2)
	err := New(open(t, dsn), Options{}).Publish(t.Context(), "eu", countsOf(1, cell("x")))
	wantTransient(t, err)
	if err == nil || !strings.Contains(err.Error(), "max_allowed_packet is 2097152, want at least 4194304") {
		t.Errorf("%v", err)
	}
}

func TestOpenKeepsWhatTheDSNSays(t *testing.T) { servers.EachSQL(t, testOpenKeepsWhatTheDSNSays) }

func testOpenKeepsWhatTheDSNSays(t *testing.T) {
	if _, err := Open("no slash"); err == nil {
		t.Error("a DSN without a slash is opened")
	}
	// The timeouts in the DSN stay: this pool gives up on a server that answers later.
	proxy := servers.ProxyForTest(t, servers.SharedSQL(t).Addr())
	db := open(t, through(t, servers.SharedSQL(t).DatabaseForTest(t), proxy)+"&readTimeout=200ms&timeout=5s")
	await.True(t, "the server answers in time", func() bool { return db.PingContext(t.Context()) == nil })
	proxy.BlackHole(true)
	start := time.Now()
	if err := db.QueryRowContext(t.Context(), "SELECT 1").Err(); err == nil {
		t.Error("an answer out of a black hole")
	}
	if took := time.Since(start); took > 10*time.Second {
		t.Errorf("gave up after %v", took)
	}
}

// "The clock is seconds since 1970, which know no time zone": a server in a zone whose clocks go back has the same
// local hour twice. 1761438600 and 1761442200 are both half past two in the night in which summer time ends.
func TestClockKnowsNoTimeZone(t *testing.T) { servers.EachSQL(t, testClockKnowsNoTimeZone) }

func testClockKnowsNoTimeZone(t *testing.T) {
	db := open(t, migrated(t))
	useAutumn(t, db)
	const summer, winter = 1761438600, 1761442200
	for _, zone := range []string{"Weir/Autumn", "+00:00", "-03:30", "+13:00"} {
		for _, now := range []int64{summer, winter} {
			conn := at(t, db, zone, now)
			if zone == "Weir/Autumn" {
				var local string
				if err := conn.QueryRowContext(t.Context(), "SELECT CAST(NOW() AS CHAR)").Scan(&local); err != nil || local != "2025-10-26 02:30:00" {
					t.Fatalf("the zone is not in force: %s, %v", local, err)
				}
			}
			q := dataplanedb.New(conn)
			if err := q.WindowCountUpsert(t.Context(), dataplanedb.WindowCountUpsertParams{
				WorkspaceID: []byte(zone), Namespace: []byte("n"), Identifier: []byte("i"), Region: []byte("eu"), Sequence: now}); err != nil {
				t.Fatal(err)
			}
			if err := q.NodeBeat(t.Context(), dataplanedb.NodeBeatParams{NodeID: []byte("n"), Region: []byte("eu")}); err != nil {
				t.Fatal(err)
			}
			want := now*1000 + 250
			var updated, seen int64
			if err := conn.QueryRowContext(t.Context(), "SELECT updated_at FROM ratelimit_window_counts WHERE workspace_id = ? AND sequence = ?", []byte(zone), now).Scan(&updated); err != nil {
				t.Fatal(err)
			}
			if err := conn.QueryRowContext(t.Context(), "SELECT seen_at FROM ratelimit_nodes").Scan(&seen); err != nil {
				t.Fatal(err)
			}
			if updated != want || seen != want {
				t.Errorf("in %s at %d: updated_at %d, seen_at %d, want %d", zone, now, updated, seen, want)
			}
			if err := conn.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// at returns a session in a zone whose clock stands still a quarter past the second.
func at(t *testing.T, db *sql.DB, zone string, now int64) *sql.Conn {
	t.Helper()
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.ExecContext(t.Context(), "SET time_zone = ?, timestamp = ? + 0.25", zone, now); err != nil {
		t.Fatal(err)
	}
	return conn
}

// useAutumn adds a time zone, because a server has no named zones unless they are loaded. The zone is two hours ahead
// until 2025-10-26 01:00 UTC, and one hour from then on.
func useAutumn(t *testing.T, db *sql.DB) {
	for _, statement := range []string{
		"REPLACE INTO mysql.time_zone (Time_zone_id, Use_leap_seconds) VALUES (1, 'N')",
		"REPLACE INTO mysql.time_zone_name (Name, Time_zone_id) VALUES ('Weir/Autumn', 1)",
		"REPLACE INTO mysql.time_zone_transition_type (Time_zone_id, Transition_type_id, `Offset`, Is_DST, Abbreviation) VALUES (1, 0, 7200, 1, 'S'), (1, 1, 3600, 0, 'W')",
		"REPLACE INTO mysql.time_zone_transition (Time_zone_id, Transition_time, Transition_type_id) VALUES (1, 0, 0), (1, 1761440400, 1)",
	} {
		exec(t, db, statement)
	}
}

// dsnOf returns the DSN of the database that db is connected to.
func dsnOf(t *testing.T, db *sql.DB) string {
	t.Helper()
	return servers.SharedSQL(t).DSN(one[string](t, db, "SELECT DATABASE()"))
}
