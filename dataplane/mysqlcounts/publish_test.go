package mysqlcounts

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/mysqlclient"
	"github.com/weirhq/weir/shared/servers"
	"github.com/weirhq/weir/shared/window"
)

// Names are binary literals, so no part of a name is read as SQL. Each of these names ends a quoted text, starts an
// escape or stands for an argument in some context.
func TestNamesAreNeverReadAsSQL(t *testing.T) { servers.EachSQL(t, testNamesAreNeverReadAsSQL) }

func testNamesAreNeverReadAsSQL(t *testing.T) {
	c, _ := openCounts(t)
	var all []window.Cell
	for b := range 256 {
		all = append(all, cell(string([]byte{byte(b)})), cell("x"+string([]byte{byte(b)})+"'"), cell(string([]byte{byte(b)})+`\'?`))
	}
	for _, name := range []string{
		`', '', '', 1, 1, '', 1, 1, 1) -- `, `\', ?, ?) -- `, "?", "??", "' OR ''='", "\xbf' OR 1=1 -- ", "\xbf\\' OR 1=1 -- ",
		"\xf0'", "\xf0\x9f'", "\xe5\\'", "_binary'x'", "/*", "*/", "--", "#", "\\", "\\\\", "\x1a", "\x00'",
	} {
		all = append(all, cell(name))
	}
	counts := slices.Compact(countsOf(0, all...))
	for i := range counts {
		counts[i].Count = int64(i + 1)
	}
	publish(t, c, "us", counts...)
	got := imported(t, c, "eu")
	for _, want := range counts {
		if got[want.Cell].Foreign != want.Count {
			t.Errorf("%q has %d, want %d", want.Cell.Identifier, got[want.Cell].Foreign, want.Count)
		}
	}
	if len(got) != len(counts) {
		t.Errorf("%d cells, want %d", len(got), len(counts))
	}
}

// updated_at is the time when the count last grew, by the database's clock. The upsert compares with the stored count,
// so a publish that changes nothing does not change updated_at.
func TestUpdatedAtMovesOnlyWithTheCount(t *testing.T) {
	servers.EachSQL(t, testUpdatedAtMovesOnlyWithTheCount)
}

func testUpdatedAtMovesOnlyWithTheCount(t *testing.T) {
	c, db := openCounts(t)
	x := cell("x")
	publish(t, c, "eu", countsOf(5, x)...)
	before := one[int64](t, db, "SELECT updated_at FROM "+rowsTable)
	if now := one[int64](t, db, "SELECT UNIX_TIMESTAMP() * 1000"); before < now-60_000 || before > now+60_000 {
		t.Fatalf("updated_at is %d, the database's clock %d", before, now)
	}
	for _, step := range []struct {
		count int64
		moves bool
	}{{4, false}, {5, false}, {6, true}} {
		exec(t, db, "UPDATE "+rowsTable+" SET updated_at = 7")
		publish(t, c, "eu", countsOf(step.count, x)...)
		if at := one[int64](t, db, "SELECT updated_at FROM "+rowsTable); (at != 7) != step.moves {
			t.Errorf("published %d: updated_at is %d", step.count, at)
		}
	}
	if e := one[int64](t, db, "SELECT expires_at FROM "+rowsTable); e != x.ExpiresAtMs() {
		t.Errorf("expires_at is %d, want %d", e, x.ExpiresAtMs())
	}
}

// "It returns store.ErrRefused for rows that Import would leave out, without a call to the database": this store has no
// database.
func TestPublishRefusesWithoutAsking(t *testing.T) {
	c := New(openPlain(t, "root@tcp(127.0.0.1:1)/none"), Options{})
	for says, change := range map[string]func(*store.Count){
		"count is -1":        func(n *store.Count) { n.Count = -1 },
		"count is 900719925": func(n *store.Count) { n.Count = store.CountMax + 1 },
		"identifier is":      func(n *store.Count) { n.Cell.Identifier = "" },
		"sequence is -3":     func(n *store.Count) { n.Cell.Sequence = -3 },
		"sequence is 2562":   func(n *store.Count) { n.Cell.Sequence = math.MaxInt64/n.Cell.DurationMs() - 1 },
		"duration is 1ms":    func(n *store.Count) { n.Cell.Duration = 1e6 },
	} {
		bad := store.Count{Cell: cell("x"), Count: 1}
		change(&bad)
		wantRefused(t, c.Publish(t.Context(), "eu", []store.Count{bad}), says)
	}
	good := countsOf(1, cell("x"))
	for _, region := range []string{"", fmt.Sprintf("%049d", 1)} {
		wantTransient(t, c.Publish(t.Context(), region, good))
	}
	wantTransient(t, c.Publish(t.Context(), "eu", good))
}

// The widest possible rows fit the bounds, the statement and the packet.
func TestPublishWidestChunk(t *testing.T) { servers.EachSQL(t, testPublishWidestChunk) }

func testPublishWidestChunk(t *testing.T) {
	server := servers.SQLForTest(t)
	dsn := server.DatabaseForTest(t)
	migrate(t, dsn)
	exec(t, openPlain(t, dsn), "SET GLOBAL max_allowed_packet = ?", mysqlclient.PacketBytesMin)
	db := open(t, dsn)
	c := New(db, Options{})

	wide := func(n int, last string) string {
		b := make([]byte, n-len(last)) // zeros, which are escaped into two bytes each
		return string(b) + last
	}
	var all []window.Cell
	for i := range store.PublishRowsMax {
		all = append(all, window.Cell{Sequence: math.MaxInt64/window.DurationMax.Milliseconds() - 2, Key: window.Key{
			Workspace: wide(window.WorkspaceBytesMax, ""), Namespace: wide(window.NamespaceBytesMax, ""),
			Identifier: wide(window.IdentifierBytesMax, fmt.Sprintf("%03d", i)), Duration: window.DurationMax,
		}})
	}
	region := wide(store.RegionBytesMax, "")
	publish(t, c, region, countsOf(store.CountMax, all...)...)
	// The cells are far ahead, so Import leaves them out.
	if got := one[int64](t, db, "SELECT COUNT(*) FROM "+rowsTable+" WHERE count = ?", store.CountMax); got != int64(len(all)) {
		t.Fatalf("%d of %d rows have their counts", got, len(all))
	}
}
