package scale

import (
	"fmt"
	"testing"
	"time"

	"github.com/weirhq/weir/controlplane/limits"
	operators "github.com/weirhq/weir/controlplane/store"
	"github.com/weirhq/weir/shared/servers"
	"github.com/weirhq/weir/shared/window"
)

const (
	listedKeys   = 1_000_000
	liveWithin   = time.Minute
	overridesAll = 10_000 // half of them patterns
	resetsAll    = 1_000
)

// Measures a page of a list of a namespace with 1,000,000 keys. The keys of the pages have six rows each: two cells in
// three regions. All others have one. The partitions are there that a running control plane creates.
//
//	go test -run '^$' -bench ListKeys -benchtime 10x ./deploy/scale
func BenchmarkListKeys(b *testing.B) { servers.EachSQL(b, benchListKeys) }

func benchListKeys(b *testing.B) {
	d := newTable(b, 0, 0)
	d.fillKeys(listedKeys)
	store := operators.New(d.db)
	pages := func(settings string) {
		for _, page := range []limits.KeysQuery{
			{},
			{After: keyName(listedKeys / 2)},
			{Prefix: keyName(listedKeys * 3 / 4)[:len("user_0750")]},
		} {
			for _, limit := range []int{50, limits.KeysMax} {
				page.Workspace, page.Namespace, page.Limit = "acme", "keys", limit
				name := fmt.Sprintf("%s/after=%s/prefix=%s/limit=%d", settings, page.After, page.Prefix, limit)
				b.Run(name, func(b *testing.B) { benchPage(b, store, page) })
			}
		}
	}
	pages("settings=none")
	d.fillSettings()
	pages("settings=many")
}

func benchPage(b *testing.B, store limits.KeysStore, q limits.KeysQuery) {
	var slowest time.Duration
	for b.Loop() {
		began := time.Now()
		page, err := limits.ListKeys(b.Context(), store, q, liveWithin)
		slowest = max(slowest, time.Since(began))
		if err != nil || page.ReportsErr != nil || len(page.Keys) != q.Limit {
			b.Fatalf("%d keys, %v, %v", len(page.Keys), err, page.ReportsErr)
		}
	}
	b.ReportMetric(float64(slowest.Microseconds())/1000, "slowest-ms")
}

func keyName(i int) string { return fmt.Sprintf("user_%07d", i) }

// fillKeys stores n keys with windows of an hour, every fourth with windows of a day.
func (d *table) fillKeys(n int) {
	d.tb.Helper()
	_, err := d.db.ExecContext(d.tb.Context(), "CALL ratelimit_add_partitions(1000000)")
	must(d.tb, err)
	row := func(from, until int, region string, age int64) {
		for _, w := range []struct {
			is string
			k  window.Key
		}{{"seq % 4 > 0", window.Key{Duration: time.Hour}}, {"seq % 4 = 0", window.Key{Duration: 24 * time.Hour}}} {
			ms := w.k.DurationMs()
			sequence := window.Sequence(d.now.UnixMilli(), ms) - age
			class := 0
			if w.k.Duration > 12*time.Hour {
				class = 1
			}
			_, err := d.db.ExecContext(d.tb.Context(), `INSERT INTO ratelimit_window_counts
				(workspace_id, namespace, identifier, duration_ms, sequence, region, count, expires_at, updated_at, expiry_class)
				SELECT 'acme', 'keys', CONCAT('user_', LPAD(seq, 7, '0')), ?, ?, ?, 5, ?, ?, ? FROM `+
				servers.Numbers(from, until-1)+" WHERE "+w.is,
				window.StoredDuration(&w.k), sequence, region, window.ExpiresAt(sequence, ms), d.now.UnixMilli(), class)
			must(d.tb, err)
		}
	}
	const turn = 50_000
	for at := 0; at < n; at += turn {
		row(at, min(at+turn, n), "eu", 0)
	}
	for _, from := range []int{0, n / 2, n * 3 / 4} {
		row(from, from+2*limits.KeysMax, "eu", 1)
		for _, region := range []string{"ap", "us"} {
			row(from, from+2*limits.KeysMax, region, 0)
			row(from, from+2*limits.KeysMax, region, 1)
		}
	}
	_, err = d.db.ExecContext(d.tb.Context(), "ANALYZE TABLE ratelimit_window_counts")
	must(d.tb, err)
}

// fillSettings stores overrides and resets of keys all over the namespace.
func (d *table) fillSettings() {
	d.tb.Helper()
	for _, statement := range []string{
		"INSERT INTO ratelimit_overrides (workspace_id, namespace, pattern, `limit`, updated_at) " +
			"SELECT 'acme', 'keys', CONCAT('user_', LPAD(seq * 197, 7, '0'), IF(seq % 2 = 0, '*', '')), 100, 1 FROM " +
			servers.Numbers(1, overridesAll),
		"INSERT INTO ratelimit_resets (workspace_id, namespace, identifier, generation, set_at, expires_at) " +
			"SELECT 'acme', 'keys', CONCAT('user_', LPAD(seq * 997, 7, '0')), 1, 1, ~0 >> 1 FROM " +
			servers.Numbers(1, resetsAll),
	} {
		_, err := d.db.ExecContext(d.tb.Context(), statement)
		must(d.tb, err)
	}
}
