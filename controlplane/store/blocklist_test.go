package store

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirhq/weir/shared/gen/sql/controlplanedb"
	"github.com/weirhq/weir/shared/servers"
)

func blocked(i int, expires time.Time) BlockedKey {
	return BlockedKey{Workspace: "acme", Namespace: "api", Identifier: fmt.Sprintf("user_%d", i), Duration: time.Minute, Sequence: 7, Limit: 10, ExpiresAt: expires}
}

func TestBulkTextIsTheOneRowStatementWithMoreTuples(t *testing.T) {
	if got := newBulkStatement(controlplanedb.BlocklistUpsert).text(1); got != controlplanedb.BlocklistUpsert {
		t.Errorf("one row: %q", got)
	}
	got := newBulkStatement("INSERT INTO t (a, b) VALUES (?, ?) ON DUPLICATE KEY UPDATE b = VALUES(b)").text(3)
	if want := "INSERT INTO t (a, b) VALUES (?, ?), (?, ?), (?, ?) ON DUPLICATE KEY UPDATE b = VALUES(b)"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// Insert in bulk, over the bound of one statement; list what is active; delete what
// has expired, in bounded batches.
func TestBlocklist(t *testing.T) { servers.EachSQL(t, testBlocklist) }

func testBlocklist(t *testing.T) {
	store, db := migrated(t)
	now := time.UnixMilli(1_700_000_000_000)
	var keys []BlockedKey
	for i := range 2*blocklistRowsPerStatement + 1 {
		expires := now.Add(time.Minute)
		if i%2 == 0 {
			expires = now.Add(-time.Duration(i) * time.Second) // 0: expires now
		}
		keys = append(keys, blocked(i, expires))
	}
	given := slices.Clone(keys)
	if err := store.UpsertBlocklist(t.Context(), keys); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(keys, given) {
		t.Error("the caller's slice was changed")
	}
	if n := count(t, db, `SELECT COUNT(*) FROM ratelimit_blocklist`); n != len(keys) {
		t.Fatalf("%d rows of %d", n, len(keys))
	}
	active, err := store.ActiveBlocklist(t.Context(), now)
	if err != nil || len(active) != blocklistRowsPerStatement {
		t.Fatalf("%d active, %v", len(active), err)
	}
	slices.SortFunc(active, compareBlocked)
	if want := blocked(1, now.Add(time.Minute)); active[0] != want {
		t.Errorf("read back %+v, want %+v", active[0], want)
	}
	var batches []int64
	for {
		n, err := store.DeleteExpiredBlocklist(t.Context(), now, 400)
		if err != nil {
			t.Fatal(err)
		}
		batches = append(batches, n)
		if n < 400 {
			break
		}
	}
	if !slices.Equal(batches, []int64{400, 400, 200}) {
		t.Errorf("batches of %v", batches)
	}
	if n := count(t, db, `SELECT COUNT(*) FROM ratelimit_blocklist WHERE expires_at >= ?`, now.UnixMilli()); n != blocklistRowsPerStatement+1 {
		t.Errorf("%d rows left that had not expired before now", n)
	}
}

// "A row that is there already keeps the later of the two expiries."
func TestUpsertBlocklistKeepsTheLaterExpiry(t *testing.T) {
	servers.EachSQL(t, testUpsertBlocklistKeepsTheLaterExpiry)
}

func testUpsertBlocklistKeepsTheLaterExpiry(t *testing.T) {
	store, _ := migrated(t)
	early, late := time.UnixMilli(2000), time.UnixMilli(3000)
	for _, keys := range [][]BlockedKey{{blocked(1, late), blocked(2, early)}, {blocked(1, early), blocked(2, late), blocked(2, early)}, nil} {
		if err := store.UpsertBlocklist(t.Context(), keys); err != nil {
			t.Fatal(err)
		}
	}
	active, err := store.ActiveBlocklist(t.Context(), time.UnixMilli(1000))
	slices.SortFunc(active, compareBlocked)
	if err != nil || !slices.Equal(active, []BlockedKey{blocked(1, late), blocked(2, late)}) {
		t.Errorf("%+v, %v", active, err)
	}
}

// "Writers that lock in one order do not deadlock": two write the same keys, one of
// them in the opposite order.
func TestUpsertBlocklistDoesNotDeadlock(t *testing.T) {
	servers.EachSQL(t, testUpsertBlocklistDoesNotDeadlock)
}

func testUpsertBlocklistDoesNotDeadlock(t *testing.T) {
	store, _ := migrated(t)
	var forth []BlockedKey
	for i := range 300 {
		forth = append(forth, blocked(i, time.UnixMilli(5000)))
	}
	back := slices.Clone(forth)
	slices.Reverse(back)
	var writers sync.WaitGroup
	for _, keys := range [][]BlockedKey{forth, back} {
		writers.Go(func() {
			for range 15 {
				if err := store.UpsertBlocklist(t.Context(), keys); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	writers.Wait()
}

func TestUpsertBlocklistErrorNamesTheRows(t *testing.T) {
	servers.EachSQL(t, testUpsertBlocklistErrorNamesTheRows)
}

func testUpsertBlocklistErrorNamesTheRows(t *testing.T) {
	store, _ := migrated(t)
	keys := []BlockedKey{blocked(1, time.UnixMilli(5000)), {Workspace: strings.Repeat("w", 192), Namespace: "api", Identifier: "x"}}
	if err := store.UpsertBlocklist(t.Context(), keys); err == nil || !strings.Contains(err.Error(), "write 2 blocklist rows: rows 0 to 1 of 2") {
		t.Errorf("error %v", err)
	}
}
