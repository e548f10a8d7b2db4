package mysqlcounts

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/shared/gen/sql/dataplanedb"
	"github.com/weirhq/weir/shared/window"
)

// Import implements dataplane.CountStore. It yields while the database is still
// sending, and so never holds more than a row. Rows that no data plane can have written
// are left out and counted (weir_mysql_invalid_rows_total).
func (c *Counts) Import(ctx context.Context, region string, nowMs int64, yield func(dataplane.Imported)) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("import as %q: %w", region, err)
		}
	}()
	rows, err := c.db.QueryContext(ctx, dataplanedb.WindowCountsImport, []byte(region), []byte(region), max(nowMs, 0))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	var r importRow
	for rows.Next() {
		if err := r.scan(rows); err != nil {
			return err
		}
		imported, ok := r.imported()
		if !ok {
			c.totals.invalidRows.Inc()
			continue
		}
		yield(imported)
	}
	return rows.Err()
}

// importRow is read again and again into the same memory. Rows come in the order of
// the primary key more often than not, where names repeat from row to row: a string
// is only made for a name that differs from the last one.
type importRow struct {
	workspace, namespace, identifier   sql.RawBytes
	durationMs, sequence, foreign, own any

	last window.Key
}

func (r *importRow) scan(rows *sql.Rows) error {
	return rows.Scan(&r.workspace, &r.namespace, &r.identifier, &r.durationMs, &r.sequence, &r.foreign, &r.own)
}

// imported is ok if the row is one that a data plane can have written.
func (r *importRow) imported() (i dataplane.Imported, ok bool) {
	durationMs, ok1 := integer(r.durationMs)
	sequence, ok2 := integer(r.sequence)
	foreign, ok3 := integer(r.foreign)
	own, ok4 := integer(r.own)
	if !ok1 || !ok2 || !ok3 || !ok4 || durationMs > window.DurationMax.Milliseconds() {
		return i, false
	}
	keep(&r.last.Workspace, r.workspace)
	keep(&r.last.Namespace, r.namespace)
	keep(&r.last.Identifier, r.identifier)
	r.last.Duration = time.Duration(durationMs) * time.Millisecond
	i = dataplane.Imported{Cell: window.Cell{Key: r.last, Sequence: sequence}, Foreign: foreign, Own: own}
	return i, checkCell(i.Cell) == nil && checkCount(foreign) == nil && checkCount(own) == nil
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
