package mysqlcounts

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/gen/sql/dataplanedb"
	"github.com/weirhq/weir/shared/window"
)

// Import implements store.CountStore. It yields counts while the database still sends rows, so it never holds more than
// a row. Rows that no relay can have written are left out and counted (weir_mysql_invalid_rows_total).
func (c *Counts) Import(ctx context.Context, nowMs int64, yield func(region string, n store.Count)) error {
	var r importRow
	err := c.each(ctx, func(rows *sql.Rows) error {
		if err := r.scan(rows); err != nil {
			return err
		}
		if region, count, ok := r.component(); ok {
			if !store.Ahead(&count.Cell, nowMs-r.ageMs) {
				yield(region, count)
			}
		} else {
			c.noteInvalid(region, count.Cell)
		}
		return nil
	}, dataplanedb.WindowCountsImport, max(nowMs, 0))
	if err != nil {
		return fmt.Errorf("import counts: %w", err)
	}
	return nil
}

// noteInvalid counts a row that no relay can have written, and logs the first such row.
func (c *Counts) noteInvalid(region string, cell window.Cell) {
	c.totals.invalidRows.Inc()
	c.invalidOnce.Do(func() {
		c.logger.Error("a row of ratelimit_window_counts is left out because no relay can have written it; further rows are "+
			"not logged", "region", region, "key", cell.Key.String(), "sequence", cell.Sequence)
	})
}

// importRow is reused for all rows. Rows mostly come in the order of the primary key, so names repeat from row to row.
// A string is only allocated for a name that differs from the name before it.
type importRow struct {
	workspace, namespace, identifier, region sql.RawBytes
	durationMs, sequence, count, age         any

	ageMs      int64 // time since the count last grew
	last       window.Key
	lastRegion string
}

func (r *importRow) scan(rows *sql.Rows) error {
	return rows.Scan(&r.workspace, &r.namespace, &r.identifier, &r.durationMs, &r.sequence, &r.region, &r.count, &r.age)
}

// component returns the row's count. ok reports whether a relay can have written the row.
func (r *importRow) component() (region string, n store.Count, ok bool) {
	durationMs, ok1 := integer(r.durationMs)
	sequence, ok2 := integer(r.sequence)
	count, ok3 := integer(r.count)
	r.ageMs, _ = integer(r.age)
	whole := ok1 && ok2 && ok3 && window.ReadStoredDuration(durationMs, &r.last)
	keep(&r.last.Workspace, r.workspace)
	keep(&r.last.Namespace, r.namespace)
	keep(&r.last.Identifier, r.identifier)
	keep(&r.lastRegion, r.region)
	n = store.Count{Cell: window.Cell{Key: r.last, Sequence: sequence}, Count: count}
	ok = whole && checkRegion(r.lastRegion) == nil && n.Cell.Validate() == nil && checkCount(count) == nil
	return r.lastRegion, n, ok
}

func keep(name *string, raw sql.RawBytes) {
	if *name != string(raw) {
		*name = string(raw)
	}
}

// integer converts an integer column, in any type that the driver returns. ok is false if int64 cannot hold it.
func integer(v any) (n int64, ok bool) {
	switch v := v.(type) {
	case int64:
		return v, true
	case uint64:
		return int64(v), v <= 1<<63-1
	case []byte:
		n, err := strconv.ParseInt(string(v), 10, 64)
		return n, err == nil
	}
	return 0, false
}
