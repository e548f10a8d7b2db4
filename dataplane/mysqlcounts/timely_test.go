package mysqlcounts

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/dataplane/storetest"
	"github.com/weirhq/weir/shared/await"
	"github.com/weirhq/weir/shared/servers"
	"github.com/weirhq/weir/shared/window"
)

const shortOverlap = 100 * time.Millisecond

// follower imports what changed, as a node does.
type follower struct {
	c      *Counts
	cursor store.Cursor
	seen   map[window.Cell]int64
}

func (f *follower) pull(t testing.TB) {
	t.Helper()
	next, err := f.c.Import(t.Context(), "eu", began.UnixMilli(), f.cursor, func(i store.Imported) { f.seen[i.Cell] = i.Foreign })
	if err != nil {
		t.Fatal(err)
	}
	f.cursor = next
}

// heldBack publishes a and z as us while another session holds z's row, and lets it go
// once a follower has imported what there was so long ago that no overlap reaches back. A publisher that gives up has done
// so by then.
func heldBack(t *testing.T, c *Counts, db *sql.DB, f *follower, a, z window.Cell, givesUp bool, count int64) (published error) {
	t.Helper()
	ctx, giveUp := context.WithCancel(t.Context())
	defer giveUp()
	holder := holding(t, db, "UPDATE ratelimit_window_counts SET expires_at = expires_at WHERE identifier = ?", z.Identifier)
	done := make(chan error, 1)
	go func() { done <- c.Publish(ctx, "us", countsOf(count, a, z)) }()
	arrived(t, db, done)
	waiting := aMomentAgo(t, c)
	await.True(t, "the overlap is over", func() bool {
		f.pull(t)
		return f.cursor > waiting+store.Cursor(2*shortOverlap.Milliseconds())
	})
	if f.seen[a] == count {
		t.Fatal("what was held back is seen")
	}
	if givesUp {
		giveUp()
		published = <-done
	}
	if err := holder.Commit(); err != nil {
		t.Fatal(err)
	}
	if !givesUp {
		published = <-done
	}
	return published
}

// Conformance 40, with a commit that was held back: the rows were stamped long before
// the imports that could not see them, and are stamped anew.
func TestHeldBackCommitIsNotOverlooked(t *testing.T) {
	servers.EachSQL(t, testHeldBackCommitIsNotOverlooked)
}

func testHeldBackCommitIsNotOverlooked(t *testing.T) {
	db := open(t, migrated(t))
	c := New(db, Options{Overlap: shortOverlap})
	a, z := cell("a"), cell("z")
	publish(t, c, "us", countsOf(1, a, z)...)
	f := &follower{c: c, seen: make(map[window.Cell]int64)}
	f.pull(t)
	for count := int64(2); count < 5; count++ {
		late := testutil.ToFloat64(c.totals.touched)
		if err := heldBack(t, c, db, f, a, z, false, count); err != nil {
			t.Fatal(err)
		}
		f.pull(t)
		if f.seen[a] != count || f.seen[z] != count {
			t.Errorf("an import after the publish has a %d and z %d, want %d", f.seen[a], f.seen[z], count)
		}
		if testutil.ToFloat64(c.totals.touched) == late {
			t.Error("the publish was not counted as late: this proves nothing")
		}
	}
}

// The same for digests, whose row a lock holds for longer than any overlap, again and again.
func TestHeldBackDigestIsNotOverlooked(t *testing.T) {
	servers.EachSQL(t, testHeldBackDigestIsNotOverlooked)
}

func testHeldBackDigestIsNotOverlooked(t *testing.T) {
	db := open(t, migrated(t))
	c := New(db, Options{Overlap: shortOverlap})
	digest := func(keys int) store.Digest {
		return store.Digest{Region: "us", Node: "n", Filter: []byte{1}, Keys: keys, MadeAtMs: 1, ExpiresAtMs: began.Add(time.Hour).UnixMilli()}
	}
	if err := c.PublishDigest(t.Context(), "us", digest(1)); err != nil {
		t.Fatal(err)
	}
	var cursor store.Cursor
	seen := 0
	pull := func() {
		next, err := c.Digests(t.Context(), "eu", began.UnixMilli(), cursor, func(d store.Digest) { seen = d.Keys })
		if err != nil {
			t.Fatal(err)
		}
		cursor = next
	}
	pull()
	for keys := 2; keys < 5; keys++ {
		holder := holding(t, db, "UPDATE ratelimit_digests SET key_count = key_count")
		done := make(chan error, 1)
		go func() { done <- c.PublishDigest(t.Context(), "us", digest(keys)) }()
		arrived(t, db, done)
		waiting := aMomentAgo(t, c)
		await.True(t, "no overlap reaches back", func() bool {
			pull()
			return cursor > waiting+store.Cursor(10*shortOverlap.Milliseconds())
		})
		if seen != keys-1 {
			t.Fatalf("the digest of %d keys is seen before its commit", seen)
		}
		if err := errors.Join(holder.Commit(), <-done); err != nil {
			t.Fatal(err)
		}
		if pull(); seen != keys {
			t.Errorf("an import after the publish has a digest of %d keys, want %d", seen, keys)
		}
	}
}

// holding is a transaction of another session that holds the rows that statement touches.
func holding(t *testing.T, db *sql.DB, statement string, args ...any) *sql.Tx {
	t.Helper()
	holder, err := openPlain(t, dsnOf(t, db)).BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := holder.ExecContext(t.Context(), statement, args...); err != nil {
		t.Fatal(err)
	}
	return holder
}

// arrived waits for a publish, which cannot but wait for the rows that are held, unless it has ended before.
func arrived(t *testing.T, db *sql.DB, published <-chan error) {
	t.Helper()
	await.True(t, "the publish has arrived, or has ended without it", func() bool {
		return len(published) > 0 || one[int](t, db, `SELECT COUNT(*) FROM information_schema.PROCESSLIST
			WHERE DB = DATABASE() AND ID <> CONNECTION_ID() AND INFO LIKE '%ON DUPLICATE KEY%'`) > 0
	})
}

// The same when the publisher has given up: the database goes on and stores the rows
// under their old stamp. Publishing them again raises nothing, and is told all the same.
func TestHeldBackCommitOfAPublisherThatGaveUp(t *testing.T) {
	servers.EachSQL(t, testHeldBackCommitOfAPublisherThatGaveUp)
}

func testHeldBackCommitOfAPublisherThatGaveUp(t *testing.T) {
	db := open(t, migrated(t))
	c := New(db, Options{Overlap: shortOverlap})
	a, z := cell("a"), cell("z")
	publish(t, c, "us", countsOf(1, a, z)...)
	f := &follower{c: c, seen: make(map[window.Cell]int64)}
	f.pull(t)
	err := heldBack(t, c, db, f, a, z, true, 2)
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("the publisher did not give up: %v", err)
	}
	await.True(t, "the database goes on", func() bool {
		return one[int](t, db, "SELECT COUNT(*) FROM ratelimit_window_counts WHERE count = 2") == 2
	})
	f.pull(t)
	if f.seen[a] != 1 {
		t.Error("what was stored late is seen without more: this proves nothing")
	}
	publish(t, c, "us", countsOf(2, a, z)...)
	f.pull(t)
	if f.seen[a] != 2 || f.seen[z] != 2 {
		t.Errorf("after the same again: %v", f.seen)
	}
	// And once settled, the same again is no news.
	stamp := func() int64 { return one[int64](t, db, "SELECT MAX(updated_at) FROM ratelimit_window_counts") }
	before := stamp()
	publish(t, c, "us", countsOf(2, a, z)...)
	if stamp() != before {
		t.Error("a publish that raises nothing has stamped its rows")
	}
}

// timely's bounds, by a clock of the test's own.
func TestTimely(t *testing.T) {
	for _, step := range []struct {
		name  string
		takes []time.Duration // each statement; the last one's again and again
		sent  int
		ok    bool
	}{
		{"at once", []time.Duration{0}, 1, true},
		{"just in time", []time.Duration{400 * time.Millisecond}, 1, true},
		{"just too late", []time.Duration{401 * time.Millisecond, 400 * time.Millisecond}, 2, true},
		{"late three times", []time.Duration{time.Hour, time.Second, time.Second, 0}, 4, true},
		{"always late", []time.Duration{time.Second}, 4, false},
	} {
		now := began
		c := New(nil, Options{})
		c.clock = func() time.Time { return now }
		var sent []string
		send := func(what string) func(context.Context) error {
			return func(context.Context) error {
				now = now.Add(step.takes[min(len(sent), len(step.takes)-1)])
				sent = append(sent, what)
				return nil
			}
		}
		ok, err := c.timely(t.Context(), send("write"), send("touch"))
		if err != nil || ok != step.ok || len(sent) != step.sent {
			t.Errorf("%s: %v, %v after %v", step.name, ok, err, sent)
		}
		for i, what := range sent {
			if (what == "write") != (i == 0) {
				t.Errorf("%s: sent %v", step.name, sent)
			}
		}
	}
}

// Doubts are bounded, and end with what they were about.
func TestDoubts(t *testing.T) {
	var d doubts
	x := countsOf(1, cells(3)...)
	if d.about(x) {
		t.Error("a doubt without a reason")
	}
	d.add(x[:2])
	if !d.about(x) || d.about(x[2:]) {
		t.Error("not about what was added")
	}
	d.settle(x[:1], began.UnixMilli())
	if d.about(x[:1]) || !d.about(x[1:2]) {
		t.Error("settling one settles another")
	}
	d.add(countsOf(1, cells(doubtsMax+10)...))
	if len(d.cells) != doubtsMax {
		t.Errorf("%d doubts", len(d.cells))
	}
	d.settle(nil, x[0].Cell.ExpiresAtMs())
	if len(d.cells) != 0 {
		t.Errorf("%d doubts about what has expired", len(d.cells))
	}
}

// A clock that goes back stamps what is new as old, and a long pause makes reading all
// the cheaper way: both end in a full import.
func TestImportReadsAllWhenItMust(t *testing.T) { servers.EachSQL(t, testImportReadsAllWhenItMust) }

func testImportReadsAllWhenItMust(t *testing.T) {
	c, _ := openCounts(t)
	publish(t, c, "us", countsOf(1, cells(5)...)...)
	now := aMomentAgo(t, c)
	asked := func(cause string) float64 { return testutil.ToFloat64(c.totals.fullImports.WithLabelValues(cause)) }
	for cause, after := range map[string]store.Cursor{
		"asked": 0, "clock": now + 60_000, "pause": now - store.Cursor(pauseMax.Milliseconds()) - 1000,
	} {
		before := asked(cause)
		if got := importAfter(t, c, "eu", after); got != 5 || asked(cause) != before+1 {
			t.Errorf("%s: %d cells, counted %v times", cause, got, asked(cause)-before)
		}
	}
}

// With OwnRows the contract holds as well, and the region's own component is news.
func TestContractWithOwnRows(t *testing.T) { servers.EachSQL(t, testContractWithOwnRows) }

func testContractWithOwnRows(t *testing.T) {
	db := open(t, migrated(t))
	own := New(db, Options{OwnRows: true})
	after := aMomentAgo(t, own)
	publish(t, own, "eu", countsOf(1, cell("x"))...)
	if importAfter(t, own, "eu", after) != 1 || importAfter(t, New(db, Options{}), "eu", after) != 0 {
		t.Error("own rows are news to those who did not ask, or none to those who did")
	}
	storetest.TestCountStore(t, func(t testing.TB) storetest.Store {
		for _, table := range []string{rowsTable, "ratelimit_nodes", "ratelimit_digests", "ratelimit_namespaces", "ratelimit_overrides", "ratelimit_tuning"} {
			exec(t, db, "DELETE FROM "+table)
		}
		s := operated(db)
		s.CountStore = own
		return s
	})
}
