package limits

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/shared/window"
)

// KeyRowsMax is the most rows of a key that a report reads.
const KeyRowsMax = 1000

// KeyQuery selects a key, and the request for which the report says whether it would pass.
type KeyQuery struct {
	Workspace, Namespace, Identifier string
	Limit                            int64 // the limit to judge by; 0: the override's, if an override applies
	Cost                             int64 // of the request, from 1
}

// Validate reports the first field outside its bounds.
func (q KeyQuery) Validate() error {
	if err := validateSpace(q.Workspace, q.Namespace); err != nil {
		return err
	}
	switch {
	case q.Identifier == "" || len(q.Identifier) > window.IdentifierBytesMax:
		return fmt.Errorf("%w: identifier is %d bytes long (1 to %d)", controlplane.ErrInvalid, len(q.Identifier),
			window.IdentifierBytesMax)
	case q.Limit < 0 || q.Limit > window.LimitMax:
		return fmt.Errorf("%w: limit is %d (0 to %d; 0 for the override's)", controlplane.ErrInvalid, q.Limit,
			int64(window.LimitMax))
	case q.Cost < 1 || q.Cost > window.LimitMax:
		return fmt.Errorf("%w: cost is %d (1 to %d)", controlplane.ErrInvalid, q.Cost, int64(window.LimitMax))
	}
	return nil
}

// KeyReport has the counts of a key that regions have stored, and the operators' settings for it. It lacks cost that a
// region has accepted since it last stored a count, and counts below the region's floor: only nodes have these.
type KeyReport struct {
	Now       time.Time   // by the clock of the database
	Windows   []KeyWindow // by mode, then duration
	Truncated bool        // there are more than KeyRowsMax rows
	Override  *Override   // the override that applies, or nil
	Shadow    bool        // the override or the namespace is in shadow mode: all requests pass, also over the limit
	Reset     *Reset      // nil: none
}

// KeyWindow has a key's two cells of the same duration.
type KeyWindow struct {
	Mode              window.Mode
	DurationMs        int64
	Current, Previous KeyCell
	Weight            float64
	Effective         int64 // compared with the limit

	Limit         *int64 // nil: unknown
	LimitReported bool   // the limit comes from nodes' reports
	Reported      *int64 // cost in the window, as nodes last reported it; nil: no recent report
	Verdict       Verdict
}

// Verdict is whether a request would pass. Judge takes it from the reports of nodes, because nodes
// decide: the counts that regions store are late, and small counts are not stored.
type Verdict int

// The verdicts.
const (
	Unjudged    Verdict = iota // Judge was not called
	Unknown                    // no limit is set, or no node has reported the key lately
	Passes                     // there is room for the cost, or the key is in shadow mode
	Denied                     // there is no room for the cost at present
	NeverPasses                // the cost is more than the limit
)

// KeyCell is a cell of the generation that is in force.
type KeyCell struct {
	StartMs    int64
	Generation int64
	Count      int64
	Parts      []KeyPart // by region
}

// KeyPart is a region's stored count of a cell.
type KeyPart struct {
	Region    string
	Count     int64
	UpdatedAt time.Time // when it last grew in MySQL, by its clock
}

// KeyRow is a stored part, of any generation.
type KeyRow struct {
	KeyPart
	StoredDuration, Sequence int64 // see window.StoredDuration
}

// KeyStore reads keys.
type KeyStore interface {
	// KeyRows returns at most rows of a key that have not expired, and the clock of the
	// database.
	KeyRows(ctx context.Context, workspace, namespace, identifier string,
		rows int) (now time.Time, found []KeyRow, err error)
	// KeyReset returns the reset of an identifier, nil for none.
	KeyReset(ctx context.Context, workspace, namespace, identifier string) (*Reset, error)
	// OverrideOf returns the override that applies to an identifier, nil for none.
	OverrideOf(ctx context.Context, workspace, namespace, identifier string) (*Override, error)
	// Namespace returns the settings of a namespace, nil for none.
	Namespace(ctx context.Context, workspace, namespace string) (*Namespace, error)
}

// GetKey returns the report on a key. It reads the parts one after the other. If a reset is made meanwhile, the report
// has it with counts from before it, as nodes do until they read the reset.
func GetKey(ctx context.Context, store KeyStore, q KeyQuery) (r KeyReport, err error) {
	if err := q.Validate(); err != nil {
		return r, err
	}
	if r.Override, err = store.OverrideOf(ctx, q.Workspace, q.Namespace, q.Identifier); err != nil {
		return r, err
	}
	if r.Shadow, err = shadowOf(ctx, store, q.Workspace, q.Namespace); err != nil {
		return r, err
	}
	if r.Reset, err = store.KeyReset(ctx, q.Workspace, q.Namespace, q.Identifier); err != nil {
		return r, fmt.Errorf("look for the reset: %w", err)
	}
	now, rows, err := store.KeyRows(ctx, q.Workspace, q.Namespace, q.Identifier, KeyRowsMax+1)
	if err != nil {
		return r, fmt.Errorf("look at the key: %w", err)
	}
	r.Now, r.Truncated = now, len(rows) > KeyRowsMax
	r.Windows = windowsOf(rows[:min(len(rows), KeyRowsMax)], r.Reset, now.UnixMilli())
	r.setLimits(q)
	return r, nil
}

// shadowOf reports whether a namespace is in shadow mode.
func shadowOf(ctx context.Context, store KeyStore, workspace, namespace string) (bool, error) {
	settings, err := store.Namespace(ctx, workspace, namespace)
	return settings != nil && settings.Shadow, err
}

// setLimits sets the limits that do not come from nodes' reports, and the shadow mode of the override.
func (r *KeyReport) setLimits(q KeyQuery) {
	r.Shadow = r.Shadow || r.Override != nil && r.Override.Shadow
	for i := range r.Windows {
		w := &r.Windows[i]
		if limit, ok := r.limit(q, w.DurationMs); ok {
			w.Limit = &limit
		}
	}
}

// limit returns the limit by which a window is judged. An override with a duration of its own does not apply to windows
// of other durations, which no request has at present.
func (r *KeyReport) limit(q KeyQuery, durationMs int64) (limit int64, ok bool) {
	if q.Limit > 0 {
		return q.Limit, true
	}
	if o := r.Override; o != nil && (o.DurationMs == 0 || o.DurationMs == durationMs) {
		return o.Limit, true
	}
	return 0, false
}

// windowsOf sorts rows into the cells that count at a moment. It leaves out rows of a generation that is not in force.
// A key with only such rows has empty cells.
func windowsOf(rows []KeyRow, reset *Reset, nowMs int64) (windows []KeyWindow) {
	var inForce window.Reset
	if reset != nil {
		inForce = window.Reset{Generation: window.Generation(reset.Generation), AtMs: reset.SetAt.UnixMilli()}
	}
	for i := range rows {
		row := &rows[i]
		var k window.Key
		if !window.ReadStoredDuration(row.StoredDuration, &k) || k.Duration < window.DurationMin {
			continue
		}
		w := windowOf(&windows, k.Mode, k.DurationMs(), inForce, nowMs)
		for _, cell := range []*KeyCell{&w.Current, &w.Previous} {
			if row.Sequence == cell.StartMs/w.DurationMs && int64(k.Generation) == cell.Generation {
				cell.Count = sum(cell.Count, row.Count)
				cell.Parts = append(cell.Parts, row.KeyPart)
			}
		}
	}
	for i := range windows {
		w := &windows[i]
		w.Weight = window.Weight(nowMs, w.DurationMs)
		w.Effective = window.Effective(w.Current.Count, w.Previous.Count, 0, nowMs, w.DurationMs)
		for _, cell := range []*KeyCell{&w.Current, &w.Previous} {
			slices.SortFunc(cell.Parts, func(a, b KeyPart) int { return strings.Compare(a.Region, b.Region) })
		}
	}
	slices.SortFunc(windows, func(a, b KeyWindow) int {
		return cmp.Or(cmp.Compare(a.Mode, b.Mode), cmp.Compare(a.DurationMs, b.DurationMs))
	})
	return windows
}

// windowOf finds or adds a window.
func windowOf(windows *[]KeyWindow, mode window.Mode, durationMs int64, reset window.Reset, nowMs int64) *KeyWindow {
	for i := range *windows {
		if w := &(*windows)[i]; w.Mode == mode && w.DurationMs == durationMs {
			return w
		}
	}
	cell := func(sequence int64) KeyCell {
		return KeyCell{StartMs: window.Start(sequence, durationMs),
			Generation: int64(reset.GenerationOf(sequence, durationMs))}
	}
	current := window.Sequence(nowMs, durationMs)
	*windows = append(*windows, KeyWindow{Mode: mode, DurationMs: durationMs, Current: cell(current),
		Previous: cell(current - 1)})
	return &(*windows)[len(*windows)-1]
}

// Judge sets the verdict of each window by the nodes' last reports about the key. It ignores reports that were made
// before the key's reset, or longer ago than the window lasts: they do not contain the cost that counts now. If reports
// are missing, the real cost may be higher than reported: Judge may then set Denied, but never Passes. In shadow mode
// each verdict is Passes, whatever nodes report.
func (r *KeyReport) Judge(q KeyQuery, top TopKeys) {
	for i := range r.Windows {
		w := &r.Windows[i]
		for _, k := range top.Keys {
			if k.Workspace != q.Workspace || k.Namespace != q.Namespace || k.Identifier != q.Identifier ||
				k.DurationMs != w.DurationMs {
				continue
			}
			if r.Now.Sub(k.ReportedAt).Milliseconds() < w.DurationMs &&
				(r.Reset == nil || k.ReportedAt.After(r.Reset.SetAt)) {
				w.Reported = &k.Count
			}
			if w.Limit == nil && k.Limit >= 0 {
				w.Limit, w.LimitReported = &k.Limit, true
			}
		}
		w.Verdict = w.judge(q.Cost)
		if w.Verdict == Passes && (top.Truncated || top.Unreadable > 0) {
			w.Verdict = Unknown
		}
		if r.Shadow {
			w.Verdict = Passes
		}
	}
}

func (w *KeyWindow) judge(cost int64) Verdict {
	switch {
	case w.Limit == nil:
		return Unknown
	case cost > *w.Limit:
		return NeverPasses
	case w.Reported == nil:
		return Unknown
	case cost > *w.Limit-*w.Reported:
		return Denied
	}
	return Passes
}
