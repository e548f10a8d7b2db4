package limits

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/shared/window"
)

// KeysMax is the most keys on a page of ListKeys.
const KeysMax = controlplane.PageMax

// Bounds of the rows that a page reads: at a time, and together. So a page can have fewer keys than its limit, for
// example if most keys of the range have been reset.
const (
	rangeRowsMin = 200
	rangeRowsMax = 4000
	pageRowsMax  = 40_000
)

// KeysQuery selects a page of a namespace's keys.
type KeysQuery struct {
	Workspace, Namespace string
	Prefix               string // of the identifiers; "": all
	After                string // Next of the page before; "": the first page
	Limit                int    // 1 to KeysMax
}

// Validate reports the first field outside its bounds.
func (q KeysQuery) Validate() error {
	if err := validateSpace(q.Workspace, q.Namespace); err != nil {
		return err
	}
	if err := controlplane.ValidateLength("prefix", q.Prefix, window.IdentifierBytesMax); err != nil {
		return err
	}
	if err := controlplane.ValidateLength("after", q.After, window.IdentifierBytesMax); err != nil {
		return err
	}
	if q.After != "" && !strings.HasPrefix(q.After, q.Prefix) {
		return fmt.Errorf("%w: after is %q, and prefix is %q (after begins with prefix)", controlplane.ErrInvalid, q.After,
			q.Prefix)
	}
	return controlplane.ValidateCount("limit", q.Limit, 1, KeysMax)
}

// KeyPage is a page of a namespace's keys.
type KeyPage struct {
	Now        time.Time   // by the clock of the database
	Keys       []KeyListed // in the byte order of their identifiers
	Next       string      // After of the next page; "": this is the last page
	ReportsErr error       // why the nodes' reports could not be read; nil: they were read
}

// KeyListed is a key on a KeyPage. The report lacks Now, which the page has.
type KeyListed struct {
	Identifier string
	KeyReport
}

// KeyRowOf is a stored part of a key, of any generation.
type KeyRowOf struct {
	Identifier string
	KeyRow
}

// KeysStore reads the keys of namespaces. All methods must be safe for concurrent use.
type KeysStore interface {
	KeyStore
	TopStore
	// KeyRowsOf returns at most rows of a namespace's keys that have not expired, with identifiers from begins on and
	// before ends, in the byte order of their identifiers, and the clock of the database.
	KeyRowsOf(ctx context.Context, workspace, namespace, begins, ends string,
		rows int) (now time.Time, found []KeyRowOf, err error)
	// OverridesOf returns the overrides that apply to identifiers, by identifier. It has no entry for none.
	OverridesOf(ctx context.Context, workspace, namespace string, identifiers []string) (map[string]*Override, error)
	// ResetsOf returns the resets of identifiers, by identifier. It has no entry for none.
	ResetsOf(ctx context.Context, workspace, namespace string, identifiers []string) (map[string]*Reset, error)
}

// ListKeys returns a page of the keys for which regions have stored counts, with the limits that apply to them. It
// omits keys that were reset and have no cost since. Limits come from overrides, or else from the reports of nodes
// whose heartbeats arrived within liveWithin.
func ListKeys(ctx context.Context, store KeysStore, q KeysQuery, liveWithin time.Duration) (KeyPage, error) {
	if err := q.Validate(); err != nil {
		return KeyPage{}, err
	}
	l := lister{store: store, query: q}
	if err := l.read(ctx); err != nil {
		return KeyPage{}, err
	}
	if err := l.settings(ctx); err != nil {
		return KeyPage{}, err
	}
	l.judge(ctx, liveWithin)
	return l.page, nil
}

// lister makes a page.
type lister struct {
	store KeysStore
	query KeysQuery
	page  KeyPage
	rows  int // that the page's keys have, and those left out between them
}

// read fills the page, a range of rows at a time. If a range is full, its last key can have more rows. Then the next
// range begins with that key.
func (l *lister) read(ctx context.Context) error {
	begins, ends := l.query.Prefix, behind(l.query.Prefix)
	if l.query.After != "" {
		begins = successor(l.query.After)
	}
	size := rangeRows(4 * l.query.Limit)
	for read := 0; read < pageRowsMax; {
		now, rows, err := l.store.KeyRowsOf(ctx, l.query.Workspace, l.query.Namespace, begins, ends, size)
		if err != nil {
			return fmt.Errorf("read the keys: %w", err)
		}
		if l.page.Now.IsZero() {
			l.page.Now = now
		}
		read += len(rows)
		full := len(rows) == size
		if full && size < rangeRowsMax && sameKey(rows) == size {
			size = rangeRowsMax
			continue
		}
		taken, err := l.take(ctx, rows, full)
		if err != nil || taken < 0 {
			return err
		}
		if !full {
			l.page.Next = ""
			return nil
		}
		if len(l.page.Keys) == l.query.Limit {
			return nil
		}
		begins = successor(l.page.Next)
		size = l.nextRows(size)
	}
	return nil
}

// take adds the keys of a range of rows to the page, and returns how many rows it has taken. It returns -1 if the page
// has its limit of keys, and the range has more. If the range is full, its last key is left for the next range, unless
// it has the whole range.
func (l *lister) take(ctx context.Context, rows []KeyRowOf, full bool) (taken int, err error) {
	resets, err := l.resetsOf(ctx, rows)
	if err != nil {
		return 0, err
	}
	for len(rows) > 0 {
		n := sameKey(rows)
		if full && n == len(rows) && taken > 0 {
			break
		}
		if len(l.page.Keys) == l.query.Limit {
			return -1, nil
		}
		l.add(rows[:n], resets[rows[0].Identifier], full && n == len(rows))
		l.page.Next = rows[0].Identifier
		l.rows += n
		taken, rows = taken+n, rows[n:]
	}
	return taken, nil
}

// nextRows returns how many rows to read after a range of size rows: enough for the rest of the page, if the next keys
// have as many rows as the last.
func (l *lister) nextRows(size int) int {
	keys := len(l.page.Keys)
	if keys == 0 {
		return rangeRows(2 * size)
	}
	perKey := l.rows/keys + 1
	return rangeRows((l.query.Limit - keys + 1) * perKey)
}

func rangeRows(n int) int { return min(max(n, rangeRowsMin), rangeRowsMax) }

// resetsOf returns the resets of the keys of some rows.
func (l *lister) resetsOf(ctx context.Context, rows []KeyRowOf) (map[string]*Reset, error) {
	var identifiers []string
	for n := 0; len(rows) > 0; rows = rows[n:] {
		n = sameKey(rows)
		identifiers = append(identifiers, rows[0].Identifier)
	}
	resets, err := l.store.ResetsOf(ctx, l.query.Workspace, l.query.Namespace, identifiers)
	if err != nil {
		return nil, fmt.Errorf("look for the resets of keys: %w", err)
	}
	return resets, nil
}

// add adds the key of some rows, unless it was reset and has no cost since.
func (l *lister) add(rows []KeyRowOf, reset *Reset, truncated bool) {
	parts := make([]KeyRow, len(rows))
	for i := range rows {
		parts[i] = rows[i].KeyRow
	}
	empty := func(w KeyWindow) bool { return w.Current.Count == 0 && w.Previous.Count == 0 }
	k := KeyListed{Identifier: rows[0].Identifier, KeyReport: KeyReport{Truncated: truncated, Reset: reset}}
	k.Windows = slices.DeleteFunc(windowsOf(parts, reset, l.page.Now.UnixMilli()), empty)
	if len(k.Windows) > 0 {
		l.page.Keys = append(l.page.Keys, k)
	}
}

// settings sets the overrides of the page's keys, and the limits and shadow modes that follow.
func (l *lister) settings(ctx context.Context) error {
	if len(l.page.Keys) == 0 {
		return nil
	}
	shadow, err := shadowOf(ctx, l.store, l.query.Workspace, l.query.Namespace)
	if err != nil {
		return err
	}
	identifiers := make([]string, len(l.page.Keys))
	for i := range l.page.Keys {
		identifiers[i] = l.page.Keys[i].Identifier
	}
	overrides, err := l.store.OverridesOf(ctx, l.query.Workspace, l.query.Namespace, identifiers)
	if err != nil {
		return err
	}
	for i := range l.page.Keys {
		k := &l.page.Keys[i]
		k.Override, k.Shadow = overrides[k.Identifier], shadow
		k.setLimits(KeyQuery{})
	}
	return nil
}

// judge takes limits from the nodes' reports for windows that have none.
func (l *lister) judge(ctx context.Context, liveWithin time.Duration) {
	if len(l.page.Keys) == 0 {
		return
	}
	top, err := mergeTopKeys(ctx, l.store, &TopQuery{Workspace: l.query.Workspace, Namespace: l.query.Namespace},
		liveWithin)
	reported := make(map[string][]TopKey)
	for _, k := range top.Keys {
		reported[k.Identifier] = append(reported[k.Identifier], k)
	}
	for i := range l.page.Keys {
		k := &l.page.Keys[i]
		q := KeyQuery{Workspace: l.query.Workspace, Namespace: l.query.Namespace, Identifier: k.Identifier, Cost: 1}
		k.Judge(q, TopKeys{Reports: top.Reports, Keys: reported[k.Identifier]})
	}
	l.page.ReportsErr = err
}

// FreeAt returns when a cost of 1 passes a window by the stored counts, if no more cost is accepted: tMs if it passes
// then, in Unix milliseconds. In shadow mode it always passes. Otherwise, ok is false if the limit is unknown or 0.
func (r *KeyReport) FreeAt(w *KeyWindow, tMs int64) (atMs int64, ok bool) {
	if r.Shadow {
		return tMs, true
	}
	if w.Limit == nil {
		return 0, false
	}
	return window.PassesAt(w.Current.Count, w.Previous.Count, 1, *w.Limit, tMs, w.DurationMs)
}

// sameKey returns how many of the first rows belong to the same key.
func sameKey(rows []KeyRowOf) int {
	n := slices.IndexFunc(rows, func(r KeyRowOf) bool { return r.Identifier != rows[0].Identifier })
	if n < 0 {
		return len(rows)
	}
	return n
}

// successor returns the first text after another in byte order.
func successor(text string) string { return text + "\x00" }

// behind returns a text that comes after all identifiers with a prefix, and not after any other identifier that
// comes after them.
func behind(prefix string) string {
	b := []byte(prefix)
	for len(b) > 0 && b[len(b)-1] == math.MaxUint8 {
		b = b[:len(b)-1]
	}
	if len(b) == 0 {
		return strings.Repeat("\xff", window.IdentifierBytesMax+1)
	}
	b[len(b)-1]++
	return string(b)
}
