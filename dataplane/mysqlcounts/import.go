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

// Import implements store.CountStore. It yields while the database is still
// sending, and so never holds more than a row. Rows that no relay can have written
// are left out and counted (weir_mysql_invalid_rows_total).
func (c *Counts) Import(ctx context.Context, nowMs int64, yield func(region string, n store.Count)) error {
	var r importRow
	err := c.each(ctx, func(rows *sql.Rows) error {
		if err := r.scan(rows); err != nil {
			return err
		}
		if region, count, ok := r.component(); ok {
			yield(region, count)
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
		c.logger.Error("a row of ratelimit_window_counts is left out because no relay can have written it; further ones are "+
			"not logged", "region", region, "key", cell.Key.String(), "sequence", cell.Sequence)
	})
}

// importRow is read again and again into the same memory. Rows come in the order of
// the primary key more often than not, where names repeat from row to row: a string
// is only made for a name that differs from the last one.
type importRow struct {
	workspace, namespace, identifier, region sql.RawBytes
	durationMs, sequence, count              any

	last       window.Key
	lastRegion string
}

func (r *importRow) scan(rows *sql.Rows) error {
	return rows.Scan(&r.workspace, &r.namespace, &r.identifier, &r.durationMs, &r.sequence, &r.region, &r.count)
}

// component is ok if the row is one that a relay can have written.
func (r *importRow) component() (region string, n store.Count, ok bool) {
	durationMs, ok1 := integer(r.durationMs)
	sequence, ok2 := integer(r.sequence)
	count, ok3 := integer(r.count)
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

// integer reads a column of integers in any form that the driver hands it over in. Not
// ok is one that int64 cannot hold.
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
