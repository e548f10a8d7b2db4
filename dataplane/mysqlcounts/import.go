package mysqlcounts

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/gen/sql/dataplanedb"
	"github.com/weirhq/weir/shared/window"
)

// pauseMax is how old a cursor may be: by then most of what lives has changed, and it
// is cheaper to read all of it in order.
const pauseMax = 5 * time.Minute

// Import implements store.CountStore. It yields while the database is still
// sending, and so never holds more than a row. Rows that no data plane can have written
// are left out and counted (weir_mysql_invalid_rows_total).
func (c *Counts) Import(ctx context.Context, region string, nowMs int64, after store.Cursor, yield func(store.Imported)) (next store.Cursor, err error) {
	next = after
	err = c.read(ctx, region, func(s snapshot) error {
		if err := c.importFrom(ctx, s, region, nowMs, after, yield); err != nil {
			return err
		}
		next = s.cursor()
		return nil
	})
	if err != nil {
		return after, fmt.Errorf("import as %q: %w", region, err)
	}
	return next, nil
}

func (c *Counts) importFrom(ctx context.Context, s snapshot, region string, nowMs int64, after store.Cursor, yield func(store.Imported)) (err error) {
	query, args := c.importQuery(s, []byte(region), max(nowMs, 0), after)
	rows, err := s.conn.QueryContext(ctx, query, args...)
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

func (c *Counts) importQuery(s snapshot, region []byte, nowMs int64, after store.Cursor) (query string, args []any) {
	since, full := c.since(s, after)
	if full != "" {
		c.totals.fullImports.WithLabelValues(full).Inc()
		return dataplanedb.WindowCountsImport, []any{region, region, region, nowMs}
	}
	unchanged := region
	if c.ownRows {
		unchanged = []byte{} // no region has this name; NULL would be none at all
	}
	return dataplanedb.WindowCountsImportSince, []any{region, region, region, since, unchanged, nowMs}
}

// since is the stamp from which an import that continues at after must read, or why it
// must read everything.
func (c *Counts) since(s snapshot, after store.Cursor) (sinceMs int64, full string) {
	switch {
	case after <= 0:
		return 0, "asked"
	case s.nowMs < int64(after): // what was stamped since may be anywhere before it
		return 0, "clock"
	case s.nowMs-int64(after) > pauseMax.Milliseconds():
		return 0, "pause"
	}
	return max(int64(after)-c.overlap.Milliseconds(), 0), ""
}

// importRow is read again and again into the same memory. Rows come in the order of
// the primary key more often than not, where names repeat from row to row: a string
// is only made for a name that differs from the last one.
type importRow struct {
	workspace, namespace, identifier   sql.RawBytes
	durationMs, sequence, foreign, own any
	newest                             sql.RawBytes // NULL without a foreign component

	last       window.Key
	lastRegion string
}

func (r *importRow) scan(rows *sql.Rows) error {
	return rows.Scan(&r.workspace, &r.namespace, &r.identifier, &r.durationMs, &r.sequence, &r.foreign, &r.own, &r.newest)
}

// imported is ok if the row is one that a data plane can have written.
func (r *importRow) imported() (i store.Imported, ok bool) {
	durationMs, ok1 := integer(r.durationMs)
	sequence, ok2 := integer(r.sequence)
	foreign, ok3 := integer(r.foreign)
	own, ok4 := integer(r.own)
	ok5 := window.ReadStoredDuration(durationMs, &r.last)
	if !ok1 || !ok2 || !ok3 || !ok4 || !ok5 {
		return i, false
	}
	keep(&r.last.Workspace, r.workspace)
	keep(&r.last.Namespace, r.namespace)
	keep(&r.last.Identifier, r.identifier)
	i = store.Imported{Cell: window.Cell{Key: r.last, Sequence: sequence}, Foreign: foreign, Own: own}
	if i.NewestRegion, i.NewestAtMs, ok = r.youngest(); !ok {
		return i, false
	}
	return i, checkCell(i.Cell) == nil && checkCount(foreign) == nil && checkCount(own) == nil
}

// momentDigits is how the moment is written that comes before a region in newest.
const momentDigits = 20

func (r *importRow) youngest() (region string, atMs int64, ok bool) {
	if r.newest == nil {
		return "", 0, true
	}
	if len(r.newest) <= momentDigits {
		return "", 0, false
	}
	atMs, err := strconv.ParseInt(string(r.newest[:momentDigits]), 10, 64)
	keep(&r.lastRegion, r.newest[momentDigits:])
	return r.lastRegion, atMs, err == nil
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
