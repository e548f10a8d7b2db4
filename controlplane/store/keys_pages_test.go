package store

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/controlplane/limits"
	"github.com/weirhq/weir/shared/servers"
	"github.com/weirhq/weir/shared/window"
)

// While pages of keys are read, relays insert rows and raise counts, and rows expire. Each key that has counts during
// the whole listing is on exactly one page, no key is on two, and the pages end.
func TestPagesOfKeysThatChange(t *testing.T) { servers.EachSQL(t, testPagesOfKeysThatChange) }

func testPagesOfKeysThatChange(t *testing.T) {
	s, db := migrated(t)
	examples := 0
	rapid.Check(t, func(rt *rapid.T) {
		examples++
		w := &keyWriter{rt: rt, db: db, ctx: t.Context(), namespace: fmt.Sprint("ns", examples), rows: make(map[string][]keyCell)}
		var err error
		if w.now, err = s.Now(t.Context()); err != nil {
			rt.Fatal(err)
		}
		sizes := []int{1, 2, 3, limits.KeysMax}
		if rapid.IntRange(0, 19).Draw(rt, "wide") == 0 {
			w.widen()
			sizes = []int{700, limits.KeysMax}
		}
		for range rapid.IntRange(0, 12).Draw(rt, "keys") {
			w.insert(w.identifier())
		}
		w.whole, w.ever = w.present(), w.present()
		q := limits.KeysQuery{Workspace: "acme", Namespace: w.namespace, Prefix: rapid.SampledFrom([]string{"", "", "a", "a\xff", "\xff"}).Draw(rt, "prefix"),
			Limit: rapid.SampledFrom(sizes).Draw(rt, "limit")}
		var got []string
		for pages := 1; ; pages++ {
			page, err := limits.ListKeys(t.Context(), changing{s, w}, q, time.Minute)
			if err != nil || page.ReportsErr != nil || len(page.Keys) > q.Limit {
				rt.Fatalf("%d keys, %v, %v", len(page.Keys), err, page.ReportsErr)
			}
			for _, k := range page.Keys {
				got = append(got, k.Identifier)
			}
			if q.After = page.Next; q.After == "" {
				break
			}
			if pages > len(w.ever)+1 {
				rt.Fatalf("%d pages of %d keys", pages, len(w.ever))
			}
		}
		if !slices.IsSorted(got) || len(slices.Compact(slices.Clone(got))) != len(got) {
			rt.Fatalf("not each key once, in order: %q", got)
		}
		for identifier := range w.whole {
			if _, found := slices.BinarySearch(got, identifier); found != strings.HasPrefix(identifier, q.Prefix) {
				rt.Fatalf("%q was there all the time, and listed: %v", identifier, found)
			}
		}
		for _, identifier := range got {
			if !w.ever[identifier] || !strings.HasPrefix(identifier, q.Prefix) {
				rt.Fatalf("%q was never there", identifier)
			}
		}
	})
}

// changing is a store whose rows change before each range of rows is read.
type changing struct {
	*Store
	writer *keyWriter
}

func (c changing) KeyRowsOf(ctx context.Context, workspace, namespace, begins, ends string,
	rows int) (time.Time, []limits.KeyRowOf, error) {
	c.writer.change()
	return c.Store.KeyRowsOf(ctx, workspace, namespace, begins, ends, rows)
}

// keyWriter writes rows as relays and the cleanup do.
type keyWriter struct {
	rt        *rapid.T
	db        *sql.DB
	ctx       context.Context
	namespace string
	now       time.Time
	rows      map[string][]keyCell
	whole     map[string]bool // keys that have been present since the listing began
	ever      map[string]bool // keys that have been present since then
}

// keyCell is a row of a key.
type keyCell struct {
	window window.Key
	age    int64 // in cells
	region string
}

func (c *keyCell) sequence(now time.Time) int64 {
	return window.Sequence(now.UnixMilli(), c.window.DurationMs()) - c.age
}

func (w *keyWriter) exec(statement string, args ...any) {
	if _, err := w.db.ExecContext(w.ctx, statement, args...); err != nil {
		w.rt.Fatal(err)
	}
}

func (w *keyWriter) identifier() string {
	return rapid.StringOfN(rapid.RuneFrom([]rune("ab \x00")), 1, 3, 3).Draw(w.rt, "identifier") +
		rapid.SampledFrom([]string{"", "", "\xff"}).Draw(w.rt, "ending")
}

func (w *keyWriter) present() map[string]bool {
	all := make(map[string]bool)
	for identifier := range w.rows {
		all[identifier] = true
	}
	return all
}

// change makes a few changes.
func (w *keyWriter) change() {
	for range rapid.IntRange(0, 4).Draw(w.rt, "changes") {
		identifier := w.identifier()
		if present := w.sorted(); len(present) > 0 && rapid.Bool().Draw(w.rt, "a present key") {
			identifier = rapid.SampledFrom(present).Draw(w.rt, "present")
		}
		if len(w.rows[identifier]) > 0 && rapid.Bool().Draw(w.rt, "delete") {
			w.remove(identifier)
		} else {
			w.insert(identifier)
		}
	}
}

// sorted returns the keys that are present, without those of widen.
func (w *keyWriter) sorted() (all []string) {
	for identifier := range w.rows {
		if !strings.HasPrefix(identifier, "wide") {
			all = append(all, identifier)
		}
	}
	slices.Sort(all)
	return all
}

// insert adds a row to a key, or raises its count.
func (w *keyWriter) insert(identifier string) {
	cell := keyCell{
		window: window.Key{Duration: rapid.SampledFrom([]time.Duration{24 * time.Hour, 40 * 24 * time.Hour}).Draw(w.rt, "window")},
		age:    rapid.Int64Range(0, 1).Draw(w.rt, "age"), region: rapid.SampledFrom([]string{"eu", "us"}).Draw(w.rt, "region"),
	}
	sequence, ms := cell.sequence(w.now), cell.window.DurationMs()
	w.exec(`INSERT INTO ratelimit_window_counts
		(workspace_id, namespace, identifier, duration_ms, sequence, region, count, expires_at, expiry_class, updated_at)
		VALUES ('acme', ?, ?, ?, ?, ?, 1, ?, ?, 1) ON DUPLICATE KEY UPDATE count = count + 1`,
		w.namespace, []byte(identifier), window.StoredDuration(&cell.window), sequence, cell.region, window.ExpiresAt(sequence, ms), cell.class())
	if !slices.Contains(w.rows[identifier], cell) {
		w.rows[identifier] = append(w.rows[identifier], cell)
	}
	if w.ever != nil {
		w.ever[identifier] = true
	}
}

func (c *keyCell) class() int {
	if c.window.Duration > 31*24*time.Hour {
		return 2
	}
	return 1
}

// remove deletes a row of a key. The key is gone if that was its last.
func (w *keyWriter) remove(identifier string) {
	cells := w.rows[identifier]
	cell := cells[rapid.IntRange(0, len(cells)-1).Draw(w.rt, "row")]
	w.exec(`DELETE FROM ratelimit_window_counts WHERE workspace_id = 'acme' AND namespace = ? AND identifier = ?
		AND duration_ms = ? AND sequence = ? AND region = ? AND expiry_class = ?`,
		w.namespace, []byte(identifier), window.StoredDuration(&cell.window), cell.sequence(w.now), cell.region, cell.class())
	if w.rows[identifier] = slices.DeleteFunc(slices.Clone(cells), func(c keyCell) bool { return c == cell }); len(w.rows[identifier]) == 0 {
		delete(w.rows, identifier)
		delete(w.whole, identifier)
	}
}

// widen adds a key with more rows than a range, and more keys than fill another range.
func (w *keyWriter) widen() {
	cell := keyCell{window: window.Key{Duration: 24 * time.Hour}}
	sequence := cell.sequence(w.now)
	for _, as := range []struct {
		identifier, region string
		n                  int
	}{{"'ab'", "CONCAT('r', seq)", 4100}, {"CONCAT('wide', LPAD(seq, 4, '0'))", "'eu'", 2100}} {
		w.exec(`INSERT INTO ratelimit_window_counts
			(workspace_id, namespace, identifier, duration_ms, sequence, region, count, expires_at, expiry_class, updated_at)
			SELECT 'acme', ?, `+as.identifier+", ?, ?, "+as.region+", 1, ?, 1, 1 FROM "+servers.Numbers(1, as.n),
			w.namespace, window.StoredDuration(&cell.window), sequence, window.ExpiresAt(sequence, cell.window.DurationMs()))
	}
	w.rows["ab"] = append(w.rows["ab"], keyCell{window: cell.window, region: "r1"}, keyCell{window: cell.window, region: "r2"})
	for i := range 2100 {
		w.rows[fmt.Sprintf("wide%04d", i+1)] = []keyCell{{window: cell.window, region: "eu"}}
	}
}
