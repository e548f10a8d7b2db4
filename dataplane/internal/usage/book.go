package usage

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/weirhq/weir/dataplane/internal/clock"
	"github.com/weirhq/weir/dataplane/internal/topk"
	"github.com/weirhq/weir/shared/heartbeat"
)

const (
	// periodReports is the number of reports in a period, after which rows can change hands: 5 minutes.
	periodReports = 20
	// exchangesMax is how many rows can be closed in a period. A closed row stays in the reports for a period, so that its
	// last cost is usually counted with its name. Its place is then free, and its cost is in the sum of removed rows.
	exchangesMax = heartbeat.UsageRowsMax / 10
	// candidates is how many namespaces without a row are compared with the rows.
	candidates = 256
)

// Book has the totals of namespaces since the process started: the namespaces with the most cost have a row each, at
// most heartbeat.UsageRowsMax and heartbeat.UsageRowsBytesMax, and all others share one. Its memory is bounded,
// whatever names callers send. The zero Book is empty. All methods may be called concurrently.
//
// The mutex is held for a map look-up, or for some 10 µs by Report, and never across I/O.
type Book struct {
	mu       sync.Mutex
	rows     map[heartbeat.UsageOf]*row
	bytes    int // sum of heartbeat.UsageRowBytes
	others   heartbeat.UsageCost
	gone     heartbeat.UsageCost                       // of removed rows
	waiting  *topk.Sketch[heartbeat.UsageOf, struct{}] // namespaces without a row, by cost in the period; nil: none
	lastRow  int64
	reports  int64
	reported clock.Steady // when the last report was made; 0: never
	document string       // of the last report

	// cost of unknown namespaces, and cost that found the Book busy
	unnamedAccepted, unnamedDenied atomic.Int64
}

type row struct {
	number int64
	cost   heartbeat.UsageCost
	period int64 // cost in this period
	closed bool  // its namespace counts among the others, and its place becomes free after the period
}

// Accept adds accepted cost. Names need not outlive the call.
func (b *Book) Accept(workspace, namespace string, cost int64) {
	if cost <= 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.addLocked(heartbeat.UsageOf{Workspace: workspace, Namespace: namespace}, heartbeat.UsageCost{Accepted: cost})
}

// TryAccept is Accept for a request. If the Book is busy, the cost counts among the others, so no request ever waits.
func (b *Book) TryAccept(workspace, namespace string, cost int64) {
	if cost <= 0 {
		return
	}
	if !b.mu.TryLock() {
		b.unnamedAccepted.Add(cost)
		return
	}
	defer b.mu.Unlock()
	b.addLocked(heartbeat.UsageOf{Workspace: workspace, Namespace: namespace}, heartbeat.UsageCost{Accepted: cost})
}

// AcceptUnnamed adds accepted cost of unknown namespaces.
func (b *Book) AcceptUnnamed(cost int64) { b.unnamedAccepted.Add(max(0, cost)) }

// TryDeny adds denied cost for a request: a sample of cost that stands for weight denials. If the Book is busy, the
// cost counts among the others.
func (b *Book) TryDeny(workspace, namespace string, cost, weight int64) {
	if cost <= 0 || weight <= 0 {
		return
	}
	if cost > most/weight {
		cost, weight = most, 1
	}
	if cost *= weight; !b.mu.TryLock() {
		b.unnamedDenied.Add(cost)
		return
	}
	defer b.mu.Unlock()
	b.addLocked(heartbeat.UsageOf{Workspace: workspace, Namespace: namespace}, heartbeat.UsageCost{Denied: cost})
}

// most is the highest total.
const most = 1<<62 - 1

// plus returns a + b, at most most. A sum of atomics that has overflowed counts as most.
func plus(a, b int64) int64 {
	if b < 0 || b > most {
		b = most
	}
	return min(a, most-b) + b
}

func (b *Book) addLocked(of heartbeat.UsageOf, cost heartbeat.UsageCost) {
	r := b.rows[of]
	if r == nil && b.waiting == nil {
		r = b.openLocked(of)
	}
	if r != nil && !r.closed {
		r.cost.Accepted, r.cost.Denied = plus(r.cost.Accepted, cost.Accepted), plus(r.cost.Denied, cost.Denied)
		r.period = plus(r.period, plus(cost.Accepted, cost.Denied))
		return
	}
	b.others.Accepted, b.others.Denied = plus(b.others.Accepted, cost.Accepted), plus(b.others.Denied, cost.Denied)
	if r == nil {
		if b.waiting == nil {
			b.waiting = topk.New[heartbeat.UsageOf, struct{}](candidates)
		}
		// The sketch keeps the names, which may be slices of a caller's buffer. A known name is not copied.
		if b.waiting.Find(of) == nil {
			of = cloned(of)
		}
		b.waiting.Add(of, min(plus(cost.Accepted, cost.Denied), math.MaxInt32))
	}
}

// openLocked gives a namespace a row, or returns nil if there is no room.
func (b *Book) openLocked(of heartbeat.UsageOf) *row {
	bytes := heartbeat.UsageRowBytes(of.Workspace, of.Namespace)
	if len(b.rows) >= heartbeat.UsageRowsMax || b.bytes+bytes > heartbeat.UsageRowsBytesMax {
		return nil
	}
	if b.rows == nil {
		b.rows = make(map[heartbeat.UsageOf]*row)
	}
	b.lastRow++
	r := &row{number: b.lastRow}
	b.rows[cloned(of)], b.bytes = r, b.bytes+bytes
	return r
}

func cloned(of heartbeat.UsageOf) heartbeat.UsageOf {
	return heartbeat.UsageOf{Workspace: strings.Clone(of.Workspace), Namespace: strings.Clone(of.Namespace)}
}

// Report returns the document for a heartbeat. It makes another document at most once per heartbeat.UsageEvery, or if
// last is set, for the last heartbeat of a process. collect is called before that.
func (b *Book) Report(now clock.Steady, last bool, collect func()) string {
	if document := b.current(now, last); document != "" {
		return document
	}
	collect()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.others.Accepted = plus(b.others.Accepted, b.unnamedAccepted.Swap(0))
	b.others.Denied = plus(b.others.Denied, b.unnamedDenied.Swap(0))
	b.reports++
	report := heartbeat.Usage{Number: b.reports, OtherAccepted: b.others.Accepted, OtherDenied: b.others.Denied,
		GoneAccepted: b.gone.Accepted, GoneDenied: b.gone.Denied}
	for of, r := range b.rows {
		report.Rows = append(report.Rows, heartbeat.UsageRow{Workspace: []byte(of.Workspace),
			Namespace: []byte(of.Namespace), Accepted: r.cost.Accepted, Denied: r.cost.Denied, Row: r.number})
	}
	slices.SortFunc(report.Rows, func(a, b heartbeat.UsageRow) int { return cmp.Compare(a.Row, b.Row) })
	document, err := report.Document()
	if err != nil { // cannot happen: the rows are bounded
		return ""
	}
	b.document, b.reported = document, now
	if b.reports%periodReports == 0 {
		b.exchangeLocked()
	}
	return document
}

// current returns the last document while it is recent enough.
func (b *Book) current(now clock.Steady, last bool) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if last || b.document == "" || int64(now-b.reported) >= heartbeat.UsageEvery.Milliseconds() {
		return ""
	}
	return b.document
}

// exchangeLocked ends a period. The rows that were closed a period ago become free, and go to the namespaces that had
// the most cost without a row. For the other such namespaces, rows with less than half of their cost are closed.
func (b *Book) exchangeLocked() {
	for of, r := range b.rows {
		if r.closed {
			b.gone.Accepted, b.gone.Denied = plus(b.gone.Accepted, r.cost.Accepted), plus(b.gone.Denied, r.cost.Denied)
			delete(b.rows, of)
			b.bytes -= heartbeat.UsageRowBytes(of.Workspace, of.Namespace)
		}
	}
	if b.waiting == nil {
		b.beginPeriodLocked()
		return
	}
	type namespace struct {
		of   heartbeat.UsageOf
		cost int64
	}
	var next []namespace
	b.waiting.Each(func(c *topk.Counter[heartbeat.UsageOf, struct{}]) {
		next = append(next, namespace{c.Key, c.Count - c.Over})
	})
	byCost := func(a, b namespace) int {
		return cmp.Or(cmp.Compare(b.cost, a.cost), cmp.Compare(a.of.Workspace, b.of.Workspace),
			cmp.Compare(a.of.Namespace, b.of.Namespace))
	}
	slices.SortFunc(next, byCost)
	next = slices.DeleteFunc(next, func(n namespace) bool { return b.openLocked(n.of) != nil })
	var held []namespace
	for of, r := range b.rows {
		held = append(held, namespace{of, r.period})
	}
	slices.SortFunc(held, func(a, b namespace) int { return byCost(b, a) })
	for i := range min(len(next), len(held), exchangesMax) {
		if held[i].cost >= next[i].cost/2 {
			break
		}
		b.rows[held[i].of].closed = true
	}
	b.waiting.Clear()
	if len(next) == 0 {
		b.waiting = nil
	}
	b.beginPeriodLocked()
}

func (b *Book) beginPeriodLocked() {
	for _, r := range b.rows {
		r.period = 0
	}
}
