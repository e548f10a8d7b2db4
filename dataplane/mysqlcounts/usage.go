package mysqlcounts

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/weirhq/weir/shared/gen/sql/dataplanedb"
	"github.com/weirhq/weir/shared/heartbeat"
)

// The usage that heartbeats report is stored in transactions of its own, after the heartbeats. A report that is not
// stored does no harm, because the next report of the same process has its cost too. So an error of the usage is no
// error of the heartbeat: it is counted in weir_mysql_usage_errors_total, and logged.

var (
	usageClaimRow = mustSplit(dataplanedb.UsageClaim)
	usageAddRow   = mustSplit(dataplanedb.UsageAdd)
	usageStoreRow = mustSplit(dataplanedb.UsageStore)

	usageNumbersText = mustCut(dataplanedb.UsageNumbers, processPredicate)
	usageLockText    = mustCut(dataplanedb.UsageLock, processPredicate)
)

const (
	processPredicate = "(node_id = ? AND started_at = ?)"
	usageRowsMax     = 1000 // of a statement
	// usageBytesMax bounds the totals in a transaction, so that a statement with them fits into a packet.
	usageBytesMax = 1 << 20
)

func mustCut(text, predicate string) (parts [2]string) {
	var ok bool
	if parts[0], parts[1], ok = strings.Cut(text, predicate); !ok {
		panic(fmt.Sprintf("mysqlcounts: no %s in %q", predicate, text)) // text is a constant, so a test would fail
	}
	return parts
}

// process identifies a process of a node.
type process struct {
	node      string
	startedAt uint64
}

func (p process) compare(other process) int {
	return cmp.Or(strings.Compare(p.node, other.node), cmp.Compare(p.startedAt, other.startedAt))
}

// usageReport is the usage in a heartbeat.
type usageReport struct {
	process
	region   string
	totals   heartbeat.Usage
	document string
	age      time.Duration
	ranFor   time.Duration // from the start of the process until the heartbeat, by the node's clock
}

// storeUsage adds the usage of heartbeats that were stored.
func (c *Counts) storeUsage(ctx context.Context, beats []heartbeat.Heartbeat) {
	reports := c.usageReports(beats)
	for len(reports) > 0 && ctx.Err() == nil {
		n, bytes := 0, 0
		for n < len(reports) && (n == 0 || bytes+len(reports[n].document) <= usageBytesMax) {
			bytes += len(reports[n].document)
			n++
		}
		if err := c.addUsage(ctx, reports[:n]); err != nil {
			c.usageFailed(fmt.Errorf("usage of %d nodes, %q first: %w", n, reports[0].node, err))
		}
		reports = reports[n:]
	}
}

func (c *Counts) usageFailed(err error) {
	c.totals.usageErrors.Inc()
	c.usageOnce.Do(func() {
		c.logger.Warn("the usage of namespaces was not stored; the next heartbeats have it too. Later errors only count in "+
			"weir_mysql_usage_errors_total", "error", err)
	})
}

// usageReports returns the reports of heartbeats, one of each process, in the order of their keys, so that two relays
// do not deadlock.
func (c *Counts) usageReports(beats []heartbeat.Heartbeat) []usageReport {
	newest := make(map[process]usageReport)
	for i := range beats {
		b := &beats[i]
		if _, err := heartbeatRow(*b); b.Usage == "" || err != nil {
			continue
		}
		totals, err := heartbeat.ReadUsage([]byte(b.Usage))
		if err != nil {
			c.usageFailed(fmt.Errorf("heartbeat of %q: %w", b.NodeID, err))
			continue
		}
		r := usageReport{process{b.NodeID, uint64(b.StartedAtMs)}, b.Region, totals, b.Usage, b.Age,
			time.Duration(b.SentAtMs-b.StartedAtMs) * time.Millisecond}
		if was, there := newest[r.process]; !there || was.totals.Number < r.totals.Number {
			newest[r.process] = r
		}
	}
	return slices.SortedFunc(maps.Values(newest), func(a, b usageReport) int { return a.compare(b.process) })
}

// addUsage adds the reports that are not counted yet.
func (c *Counts) addUsage(ctx context.Context, reports []usageReport) error {
	reports, err := c.uncounted(ctx, reports)
	if err != nil || len(reports) == 0 {
		return err
	}
	return c.retry.do(ctx, func() error { return c.countUsage(ctx, reports) })
}

// uncounted returns the reports that are newer than the counted reports. It takes no lock: most heartbeats repeat a
// report.
func (c *Counts) uncounted(ctx context.Context, reports []usageReport) ([]usageReport, error) {
	counted := make(map[process]uint64)
	query, args := processesStatement(usageNumbersText, reports)
	err := c.each(ctx, func(rows *sql.Rows) error {
		var row dataplanedb.UsageNumbersRow
		err := rows.Scan(&row.NodeID, &row.StartedAt, &row.Number)
		counted[process{string(row.NodeID), row.StartedAt}] = row.Number
		return err
	}, query, args...)
	return slices.DeleteFunc(slices.Clone(reports), func(r usageReport) bool {
		return uint64(r.totals.Number) <= counted[r.process]
	}), err
}

func processesStatement(text [2]string, reports []usageReport) (query string, args []any) {
	for i := range reports {
		args = append(args, []byte(reports[i].node), reports[i].startedAt)
	}
	return text[0] + strings.Join(slices.Repeat([]string{processPredicate}, len(reports)), or) + text[1], args
}

// countUsage adds the cost of the reports since the counted reports of the same processes, in one transaction.
func (c *Counts) countUsage(ctx context.Context, reports []usageReport) (err error) {
	tx, err := c.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, rollback(tx))
		}
	}()
	_, args := processesStatement(usageLockText, reports)
	if _, err := tx.ExecContext(ctx, usageClaimRow.statement(len(reports)), args...); err != nil {
		return err
	}
	counted, nowMs, err := lockUsage(ctx, tx, reports)
	if err != nil {
		return err
	}
	hours := make(map[usageHour]heartbeat.UsageCost)
	var stored []any
	for i := range reports {
		r := &reports[i]
		was := counted[r.process]
		cost, ok := r.since(&was)
		if !ok {
			continue
		}
		hour := hourOf(nowMs - max(0, r.age.Milliseconds()))
		for of, n := range cost {
			// The row without names is added even if it has no cost: it shows that the region reported in this hour.
			if at := (usageHour{of, hour, r.region}); n != (heartbeat.UsageCost{}) || of == (heartbeat.UsageOf{}) {
				sum := hours[at]
				hours[at] = heartbeat.UsageCost{Accepted: addCost(sum.Accepted, n.Accepted), Denied: addCost(sum.Denied, n.Denied)}
			}
		}
		stored = append(stored, []byte(r.node), r.startedAt, r.totals.Number, nowMs, []byte(r.document))
	}
	if err := addHours(ctx, tx, hours); err != nil {
		return err
	}
	if len(stored) > 0 {
		if _, err := tx.ExecContext(ctx, usageStoreRow.statement(len(stored)/5), stored...); err != nil {
			return err
		}
	}
	return tx.Commit()
}

// rollback ends a transaction after an error. A transaction that the server has ended already is no error.
func rollback(tx *sql.Tx) error {
	if err := tx.Rollback(); !errors.Is(err, sql.ErrTxDone) {
		return err
	}
	return nil
}

// since returns the cost to count. The totals of an old process without a counted report are only stored: see
// heartbeat.UsageForgottenAfter.
func (r *usageReport) since(counted *heartbeat.Usage) (cost map[heartbeat.UsageOf]heartbeat.UsageCost, ok bool) {
	cost, ok = r.totals.Since(counted)
	if ok && counted.Number == 0 && r.ranFor > heartbeat.UsageNewFor {
		cost = map[heartbeat.UsageOf]heartbeat.UsageCost{{}: {}}
	}
	return cost, ok
}

// lockUsage locks the counted reports until the transaction ends, and returns them with the database's clock.
func lockUsage(ctx context.Context, tx *sql.Tx,
	reports []usageReport) (counted map[process]heartbeat.Usage, nowMs int64, err error) {
	query, args := processesStatement(usageLockText, reports)
	rows, err := tx.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, 0, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	counted = make(map[process]heartbeat.Usage, len(reports))
	of := make(map[process]*usageReport, len(reports))
	for i := range reports {
		of[reports[i].process] = &reports[i]
	}
	for rows.Next() {
		var row dataplanedb.UsageLockRow
		if err := rows.Scan(&row.NodeID, &row.StartedAt, &row.Number, &row.Totals, &row.NowMs); err != nil {
			return nil, 0, err
		}
		nowMs = row.NowMs
		var was heartbeat.Usage
		p := process{string(row.NodeID), row.StartedAt}
		if len(row.Totals) > 0 {
			was, err = heartbeat.ReadUsage(row.Totals)
			if r := of[p]; err != nil && r != nil { // another build has stored more than this build can read
				was = r.totals // nothing is counted twice
				was.Number = int64(row.Number)
			}
		}
		counted[p] = was
	}
	return counted, nowMs, rows.Err()
}

// usageHour is the key of a row of ratelimit_usage.
type usageHour struct {
	heartbeat.UsageOf
	hourAtMs int64
	region   string
}

func hourOf(unixMs int64) int64 { return unixMs - unixMs%time.Hour.Milliseconds() }

// addCost adds cost of two processes. Both are below 2^62, so a sum of several can overflow, and then stops there.
func addCost(a, b int64) int64 {
	const most = 1<<62 - 1
	return min(a, most-b) + b
}

// addHours adds to rows, in the order of their keys.
func addHours(ctx context.Context, tx *sql.Tx, hours map[usageHour]heartbeat.UsageCost) error {
	keys := slices.SortedFunc(maps.Keys(hours), func(a, b usageHour) int {
		return cmp.Or(bytes.Compare([]byte(a.Workspace), []byte(b.Workspace)),
			bytes.Compare([]byte(a.Namespace), []byte(b.Namespace)), cmp.Compare(a.hourAtMs, b.hourAtMs),
			strings.Compare(a.region, b.region))
	})
	for chunk := range slices.Chunk(keys, usageRowsMax) {
		var args []any
		for _, k := range chunk {
			n := hours[k]
			args = append(args, []byte(k.Workspace), []byte(k.Namespace), k.hourAtMs, []byte(k.region), n.Accepted, n.Denied)
		}
		if _, err := tx.ExecContext(ctx, usageAddRow.statement(len(chunk)), args...); err != nil {
			return err
		}
	}
	return nil
}
