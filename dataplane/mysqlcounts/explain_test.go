//go:build explain

package mysqlcounts

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/shared/gen/sql/controlplanedb"
	"github.com/weirhq/weir/shared/gen/sql/dataplanedb"
	"github.com/weirhq/weir/shared/servers"
	"github.com/weirhq/weir/shared/window"
)

// What the primary key and the indexes of ratelimit_window_counts were chosen by: the
// data plane's own code and the cleanup's own statements on a million rows, in three
// forms of the table. schema/README.md has the outcome.
//
//	go test -tags explain -run TestExplain -v ./dataplane/mysqlcounts

// layouts differ in their keys alone.
var layouts = []struct{ name, keys string }{
	{"composite primary key", "PRIMARY KEY (workspace_id, namespace, identifier, duration_ms, sequence, region), KEY expires_at_idx (expires_at)"},
	{"the same, no expiry index", "PRIMARY KEY (workspace_id, namespace, identifier, duration_ms, sequence, region)"},
	{"surrogate key, unique, lookup", `pk BIGINT UNSIGNED NOT NULL AUTO_INCREMENT, PRIMARY KEY (pk),
		UNIQUE KEY unique_idx (workspace_id, namespace, identifier, duration_ms, sequence, region),
		KEY lookup_idx (workspace_id, namespace, identifier, duration_ms, sequence), KEY expires_at_idx (expires_at)`},
}

// A million rows: windows × identifiers × regions.
const (
	windowsStored = 40
	identifiers   = 8_334
)

var regionsStored = []string{"ap-south-1", "eu-west-1", "us-east-1"}

// explained is one layout under measurement.
type explained struct {
	*Counts
	t     *testing.T
	facts [][2]string // what, figure
}

func TestExplain(t *testing.T) {
	server, err := servers.StartMariaDB(t.Context(), servers.Options{Args: []string{"--innodb-buffer-pool-size=1G", "--loose-innodb-log-file-size=256M"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
	})
	var table []*explained
	for i, layout := range layouts {
		t.Logf("=== %s", layout.name)
		name := fmt.Sprintf("layout%d", i)
		if err := server.CreateDatabase(t.Context(), name); err != nil {
			t.Fatal(err)
		}
		db := open(t, server.DSN(name))
		exec(t, db, `CREATE TABLE ratelimit_window_counts (
			workspace_id VARBINARY(191) NOT NULL, namespace VARBINARY(255) NOT NULL, identifier VARBINARY(255) NOT NULL,
			duration_ms BIGINT UNSIGNED NOT NULL, sequence BIGINT NOT NULL, region VARBINARY(48) NOT NULL,
			count BIGINT UNSIGNED NOT NULL, expires_at BIGINT UNSIGNED NOT NULL, updated_at BIGINT UNSIGNED NOT NULL, `+layout.keys+")")
		e := &explained{Counts: New(db, Options{}), t: t}
		e.measure()
		table = append(table, e)
	}
	print(t, table)
}

func (e *explained) measure() {
	e.fill()
	e.sizes()
	for _, windowsLive := range []int{40, 20, 8, 2, 1} {
		e.imports(windowsLive)
	}
	e.upserts()
	e.cleanup()
}

// fill stores the windows one after the other, each as flushes of its cells in no
// order: a flush is sorted, but its cells are anywhere.
func (e *explained) fill() {
	start := time.Now()
	for s := range windowsStored {
		for _, region := range regionsStored {
			order := rand.Perm(identifiers)
			for chunk := range slices.Chunk(order, dataplane.PublishRowsMax) {
				e.publish(region, chunk, int64(s), 1)
			}
		}
	}
	rows := windowsStored * identifiers * len(regionsStored)
	e.fact("fill, rows/s", fmt.Sprintf("%.0f", float64(rows)/time.Since(start).Seconds()))
	exec(e.t, e.db, "ANALYZE TABLE ratelimit_window_counts")
}

func (e *explained) publish(region string, ids []int, sequence, count int64) time.Duration {
	var cells []window.Cell
	for _, id := range ids {
		cells = append(cells, window.Cell{Sequence: thisHour + sequence, Key: window.Key{
			Workspace: fmt.Sprintf("ws_%02d", id%20), Namespace: fmt.Sprintf("namespace_%d", id%7),
			Identifier: fmt.Sprintf("user_%08x%08x", uint32(id)*2654435761, id), Duration: time.Hour,
		}})
	}
	counts := countsOf(count, cells...)
	start := time.Now()
	if err := e.Publish(e.t.Context(), region, counts); err != nil {
		e.t.Fatal(err)
	}
	return time.Since(start)
}

func (e *explained) sizes() {
	var data, index int64
	if err := e.db.QueryRowContext(e.t.Context(), `SELECT data_length, index_length FROM information_schema.tables
		WHERE table_schema = DATABASE() AND table_name = 'ratelimit_window_counts'`).Scan(&data, &index); err != nil {
		e.t.Fatal(err)
	}
	e.fact("size, MB (rows + indexes)", fmt.Sprintf("%d + %d", data>>20, index>>20))
}

func (e *explained) imports(windowsLive int) {
	nowMs := window.ExpiresAt(thisHour+int64(windowsStored-windowsLive)-1, time.Hour.Milliseconds())
	what := fmt.Sprintf("import, %g %% live", 100*float64(windowsLive)/windowsStored)
	e.explain(what, dataplanedb.WindowCountsImport, []byte("eu-west-1"), []byte("eu-west-1"), nowMs)
	cells := 0
	took := median(5, func() time.Duration {
		cells = 0
		start := time.Now()
		if err := e.Import(e.t.Context(), "eu-west-1", nowMs, func(dataplane.Imported) { cells++ }); err != nil {
			e.t.Fatal(err)
		}
		return time.Since(start)
	})
	e.fact(fmt.Sprintf("%s (%d cells), ms", what, cells), ms(took))
}

func (e *explained) upserts() {
	next := int64(2)
	e.fact("upsert 500 existing, ms", ms(median(21, func() time.Duration {
		next++
		return e.publish("eu-west-1", rand.Perm(identifiers)[:500], windowsStored-1, next)
	})))
	from := identifiers
	e.fact("upsert 500 new, ms", ms(median(21, func() time.Duration {
		ids := make([]int, 500)
		for i := range ids {
			ids[i] = from + i
		}
		from += 500
		return e.publish("eu-west-1", ids, windowsStored-1, 1)
	})))
}

func (e *explained) cleanup() {
	cutoff := window.ExpiresAt(thisHour+windowsStored/2, time.Hour.Milliseconds())
	e.explain("oldest expiry", controlplanedb.WindowCountsOldestExpiry)
	e.fact("oldest expiry, ms", ms(median(5, func() time.Duration {
		start := time.Now()
		if one[int64](e.t, e.db, controlplanedb.WindowCountsOldestExpiry) == 0 {
			e.t.Fatal("the table is empty")
		}
		return time.Since(start)
	})))
	e.explain("delete 5,000 expired", controlplanedb.WindowCountsDeleteExpired, cutoff, 5000)
	e.fact("delete 5,000 expired, ms", ms(median(5, func() time.Duration {
		start := time.Now()
		exec(e.t, e.db, controlplanedb.WindowCountsDeleteExpired, cutoff, 5000)
		return time.Since(start)
	})))
}

// explain logs the server's plan.
func (e *explained) explain(what, query string, args ...any) {
	plan, err := planOf(e.t.Context(), e.db, query, args...)
	if err != nil {
		e.t.Fatalf("explain %s: %v", what, err)
	}
	e.t.Logf("%-21s %s", what, plan)
}

func planOf(ctx context.Context, db *sql.DB, query string, args ...any) (string, error) {
	rows, err := db.QueryContext(ctx, "EXPLAIN "+query, args...)
	if err != nil {
		return "", err
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		return "", err
	}
	values := make([]sql.NullString, len(columns))
	into := make([]any, len(columns))
	for i := range values {
		into[i] = &values[i]
	}
	var plan []string
	for rows.Next() {
		if err := rows.Scan(into...); err != nil {
			return "", err
		}
		for i, name := range columns {
			if v := values[i].String; v != "" && slices.Contains([]string{"type", "key", "rows", "Extra"}, name) {
				plan = append(plan, v)
			}
		}
	}
	return strings.Join(plan, ", "), rows.Err()
}

func (e *explained) fact(what, figure string) { e.facts = append(e.facts, [2]string{what, figure}) }

func median(runs int, f func() time.Duration) time.Duration {
	all := make([]time.Duration, runs)
	for i := range all {
		all[i] = f()
	}
	slices.Sort(all)
	return all[runs/2]
}

func ms(d time.Duration) string { return fmt.Sprintf("%.1f", float64(d)/1e6) }

// print writes the table in the form that the README has it.
func print(t *testing.T, table []*explained) {
	var b strings.Builder
	b.WriteString("\n| |")
	for _, layout := range layouts {
		b.WriteString(" " + layout.name + " |")
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(layouts)) + "\n")
	for i, fact := range table[0].facts {
		b.WriteString("| " + fact[0] + " |")
		for _, e := range table {
			b.WriteString(" " + e.facts[i][1] + " |")
		}
		b.WriteString("\n")
	}
	t.Log(b.String())
}
