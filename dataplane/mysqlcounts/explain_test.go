//go:build explain

package mysqlcounts

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/gen/sql/controlplanedb"
	"github.com/weirhq/weir/shared/gen/sql/dataplanedb"
	"github.com/weirhq/weir/shared/servers"
	"github.com/weirhq/weir/shared/window"
)

// Measures the candidates for the primary key and the indexes of ratelimit_window_counts: the data plane's code and the
// cleanup's statements on a million rows, in three layouts of the table. schema/README.md has the outcome.
//
//	go test -tags explain -run TestExplain -v ./dataplane/mysqlcounts

// layouts differ only in their keys.
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

// explained is a layout that is being measured.
type explained struct {
	*Counts
	t    testing.TB
	name string
	grow int64 // the last published count
	ids  int   // number of identifiers stored
}

// TestExplain takes the layouts in turns, so that other load on the machine affects all of them.
func TestExplain(t *testing.T) { servers.EachSQL(t, testExplain) }

func testExplain(t *testing.T) {
	server, err := servers.StartSQL(t.Context(), servers.EngineOf(t), servers.Options{Args: []string{"--innodb-buffer-pool-size=1G", "--loose-innodb-log-file-size=256M", "--loose-innodb-redo-log-capacity=256M"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
	})
	m := measurement{t: t}
	for i, layout := range layouts {
		name := fmt.Sprintf("layout%d", i)
		server.CreateForTest(t, name)
		db := open(t, server.DSN(name))
		exec(t, db, `CREATE TABLE ratelimit_window_counts (
			workspace_id VARBINARY(191) NOT NULL, namespace VARBINARY(255) NOT NULL, identifier VARBINARY(255) NOT NULL,
			duration_ms BIGINT UNSIGNED NOT NULL, sequence BIGINT NOT NULL, region VARBINARY(48) NOT NULL,
			count BIGINT UNSIGNED NOT NULL, expires_at BIGINT UNSIGNED NOT NULL,
			expiry_class TINYINT UNSIGNED NOT NULL DEFAULT 0, updated_at BIGINT UNSIGNED NOT NULL,
			`+layout.keys+")")
		m.layouts = append(m.layouts, &explained{Counts: New(db, Options{}), t: t, name: layout.name, grow: 1, ids: identifiers})
	}
	m.fill()
	for _, windowsLive := range []int{40, 8, 2} {
		m.imports(windowsLive)
	}
	m.median("upsert 500 existing, ms", 21, (*explained).upsertExisting)
	m.median("upsert 500 new, ms", 21, (*explained).upsertNew)
	m.cleanup()
	t.Log(m.table())
}

// measurement collects a row for each call or statement measured, with a figure for each layout.
type measurement struct {
	t       *testing.T
	layouts []*explained
	rows    [][]string
}

func (m *measurement) each(what string, figure func(*explained) string) {
	row := []string{what}
	for _, e := range m.layouts {
		row = append(row, figure(e))
	}
	m.rows = append(m.rows, row)
}

func (m *measurement) median(what string, runs int, f func(*explained) time.Duration) {
	all := make(map[*explained][]time.Duration)
	for range runs {
		for _, e := range m.layouts {
			all[e] = append(all[e], f(e))
		}
	}
	m.each(what, func(e *explained) string {
		slices.Sort(all[e])
		return fmt.Sprintf("%.1f", float64(all[e][runs/2])/1e6)
	})
}

// plans logs the server's plan of a statement.
func (m *measurement) plans(what, query string, args ...any) {
	for _, e := range m.layouts {
		plan, err := planOf(m.t.Context(), e.db, query, args...)
		if err != nil {
			m.t.Fatalf("explain %s: %v", what, err)
		}
		m.t.Logf("%-20s | %-30s | %s", what, e.name, plan)
	}
}

// fill stores the windows in turn. Each window is stored as publishes of random cells: a publish is sorted, but its
// cells are spread over the table.
func (m *measurement) fill() {
	took := make(map[*explained]time.Duration)
	for s := range windowsStored {
		for _, e := range m.layouts {
			for _, region := range regionsStored {
				for chunk := range slices.Chunk(rand.Perm(identifiers), store.PublishRowsMax) {
					took[e] += e.publish(region, chunk, int64(s), 1)
				}
			}
		}
	}
	rows := windowsStored * identifiers * len(regionsStored)
	m.each("fill, rows/s", func(e *explained) string { return fmt.Sprintf("%.0f", float64(rows)/took[e].Seconds()) })
	for _, e := range m.layouts {
		exec(m.t, e.db, "ANALYZE TABLE ratelimit_window_counts")
	}
	m.each("rows + indexes, MB", (*explained).sizes)
}

func (m *measurement) imports(windowsLive int) {
	nowMs := window.ExpiresAt(thisHour+int64(windowsStored-windowsLive)-1, time.Hour.Milliseconds())
	what := fmt.Sprintf("import, %g %% live", 100*float64(windowsLive)/windowsStored)
	m.plans(what, dataplanedb.WindowCountsImport, nowMs)
	m.median(what+", ms", 5, func(e *explained) time.Duration {
		rows := 0
		start := time.Now()
		err := e.Import(e.t.Context(), nowMs, func(string, store.Count) { rows++ })
		if want := windowsLive * identifiers * len(regionsStored); err != nil || rows != want {
			e.t.Fatalf("%d rows, want %d: %v", rows, want, err)
		}
		return time.Since(start)
	})
}

func (m *measurement) cleanup() {
	cutoff := window.ExpiresAt(thisHour+windowsStored/2, time.Hour.Milliseconds())
	m.plans("oldest expiry", controlplanedb.WindowCountsOldestExpiry)
	m.median("oldest expiry, ms", 7, func(e *explained) time.Duration {
		start := time.Now()
		if one[int64](e.t, e.db, controlplanedb.WindowCountsOldestExpiry) == 0 {
			e.t.Fatal("the table is empty")
		}
		return time.Since(start)
	})
	m.plans("delete 5,000 expired", controlplanedb.WindowCountsDeleteExpired, cutoff, 5000)
	m.median("delete 5,000 expired, ms", 7, func(e *explained) time.Duration {
		start := time.Now()
		exec(e.t, e.db, controlplanedb.WindowCountsDeleteExpired, cutoff, 5000)
		return time.Since(start)
	})
}

func (e *explained) upsertExisting() time.Duration {
	e.grow++
	return e.publish("eu-west-1", rand.Perm(identifiers)[:500], windowsStored-1, e.grow)
}

func (e *explained) upsertNew() time.Duration {
	fresh := make([]int, 500)
	for i := range fresh {
		fresh[i] = e.ids + i
	}
	e.ids += len(fresh)
	return e.publish("eu-west-1", fresh, windowsStored-1, 1)
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

func (e *explained) sizes() string {
	var data, index int64
	if err := e.db.QueryRowContext(e.t.Context(), `SELECT data_length, index_length FROM information_schema.tables
		WHERE table_schema = DATABASE() AND table_name = 'ratelimit_window_counts'`).Scan(&data, &index); err != nil {
		e.t.Fatal(err)
	}
	return fmt.Sprintf("%d + %d", data>>20, index>>20)
}

// table returns the figures as the README's table.
func (m *measurement) table() string {
	head := []string{""}
	for _, e := range m.layouts {
		head = append(head, e.name)
	}
	lines := []string{"", strings.Join(head, " | "), "---" + strings.Repeat("|---:", len(m.layouts))}
	for _, row := range m.rows {
		lines = append(lines, strings.Join(row, " | "))
	}
	return strings.Join(lines, "\n")
}
