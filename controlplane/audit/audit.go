package audit

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/shared/window"
)

const (
	// ActionBytesMax bounds Entry.Action.
	ActionBytesMax = 64
	// SubjectBytesMax bounds Entry.Subject.
	SubjectBytesMax = 800
	// StateBytesMax bounds Entry.Before and After each.
	StateBytesMax = 60 << 10
)

// Entry is a row of the audit log: the actor, the action and its subject, the reason, and the states before and after.
// Its time is the database's time of the insert.
type Entry struct {
	controlplane.By
	ID      string `json:"id,omitempty"` // of the message that requested the change; empty: no other attempt can write it
	Action  string `json:"action"`       // e.g. "cleanup.pause"
	Subject string `json:"subject"`      // e.g. "token ci"
	Before  string `json:"before"`       // JSON, or empty
	After   string `json:"after"`        // JSON, or empty
}

// Validate reports the first field that the audit table would reject or truncate.
func (e Entry) Validate() error {
	if err := e.By.Validate(); err != nil {
		return err
	}
	if err := controlplane.ValidateText("action", e.Action, ActionBytesMax); err != nil {
		return err
	}
	if n := len(e.Subject); n == 0 || n > SubjectBytesMax {
		return fmt.Errorf("%w: subject is %d bytes long (1 to %d)", controlplane.ErrInvalid, n, SubjectBytesMax)
	}
	for field, state := range map[string]string{"before": e.Before, "after": e.After} {
		if err := controlplane.ValidateLength(field, state, StateBytesMax); err != nil {
			return err
		}
		if !utf8.ValidString(state) {
			return fmt.Errorf("%w: %s is not valid UTF-8", controlplane.ErrInvalid, field)
		}
	}
	return nil
}

// Store writes the log. It must only ever add rows, each with its link in the hash chain of package auditchain.
type Store interface {
	// InsertAudit adds a row. If it is called twice with the same ID, it must add a single row. Without an ID it adds two.
	InsertAudit(ctx context.Context, e Entry) error
}

// Write validates and stores an entry.
func Write(ctx context.Context, store Store, e Entry) error {
	if err := e.Validate(); err != nil {
		return fmt.Errorf("audit %s: %w", e.Action, err)
	}
	if err := store.InsertAudit(ctx, e); err != nil {
		return fmt.Errorf("audit %s of %s by %s: %w", e.Action, e.Subject, e.Actor, err)
	}
	return nil
}

const (
	// PageMax bounds the entries of a page of the log.
	PageMax          = 500
	auditPageDefault = 50

	// PageBytesMax bounds the texts of a page, except that the first entry is always included.
	PageBytesMax = 4 << 20

	// auditReadMax bounds the entries of a read: 12 MiB of the largest entries.
	auditReadMax = 100
)

// Record is an entry as stored in the log.
type Record struct {
	Entry
	Row int64     // its ID in the table
	At  time.Time // by the clock of the database
}

// Log reads the log.
type Log interface {
	// Audit returns at most rows entries with an ID below before, newest first.
	Audit(ctx context.Context, before int64, rows int) ([]Record, error)

	// AuditLinks returns at most rows entries with an ID above after, oldest first, and the ends of the hash chain, from
	// the same snapshot.
	AuditLinks(ctx context.Context, after int64, rows int) (Links, error)
}

// Filter selects entries; the zero value selects all.
type Filter struct {
	Actor                string
	Workspace, Namespace string // of overrides, settings and keys
	Action               string // the whole action ("override.set") or its object ("override")
	Subject              string // a part of the subject
	SinceMs, UntilMs     int64  // Unix ms, SinceMs inclusive, UntilMs exclusive; 0: no bound
}

// Validate reports the first field that no entry can match.
func (f *Filter) Validate() error {
	for _, bound := range []struct {
		field, value string
		bytesMax     int
	}{
		{"actor", f.Actor, controlplane.ActorBytesMax}, {"action", f.Action, ActionBytesMax},
		{"subject", f.Subject, SubjectBytesMax},
		{"workspace", f.Workspace, window.WorkspaceBytesMax}, {"namespace", f.Namespace, window.NamespaceBytesMax},
	} {
		if err := controlplane.ValidateLength(bound.field, bound.value, bound.bytesMax); err != nil {
			return err
		}
	}
	switch {
	case f.Namespace != "" && f.Workspace == "":
		return fmt.Errorf("%w: workspace is empty (a namespace needs its workspace)", controlplane.ErrInvalid)
	case f.SinceMs < 0:
		return fmt.Errorf("%w: since_ms is %d (0 for the beginning, or Unix ms)", controlplane.ErrInvalid, f.SinceMs)
	case f.UntilMs < 0, f.UntilMs != 0 && f.UntilMs <= f.SinceMs:
		return fmt.Errorf("%w: until_ms is %d (0 for now, or Unix ms after since_ms, %d)", controlplane.ErrInvalid, f.UntilMs,
			f.SinceMs)
	}
	return nil
}

const (
	// auditSearched bounds the entries that a call reads.
	auditSearched = 10 * PageMax

	// auditDisorder bounds how much earlier an entry's time can be than the time of an older entry: transactions overtake
	// each other, and clocks are set.
	auditDisorder = time.Minute
)

// Search returns a page of the entries that a filter selects: at most limit entries (0: 50) with an ID below before (0:
// from the newest), with at most PageBytesMax of text. It searches only the next auditSearched entries. If the page
// ends before limit and before the end of the log, searchedTo is the ID below which the caller can continue.
func Search(ctx context.Context, log Log, f Filter, before int64,
	limit int) (page []Record, searchedTo int64, err error) {
	if err := f.Validate(); err != nil {
		return nil, 0, err
	}
	before, limit, err = auditPage(before, limit)
	if err != nil {
		return nil, 0, err
	}
	size, all := 0, f == (Filter{})
	for searched := 0; searched < auditSearched; {
		rows := auditReadMax
		if all {
			rows = min(rows, limit-len(page))
		}
		found, err := log.Audit(ctx, before, rows)
		if err != nil {
			return nil, 0, err
		}
		for i := range found {
			if f.past(&found[i]) {
				return page, 0, nil
			}
			if f.takes(&found[i]) {
				if size += found[i].bytes(); len(page) > 0 && size > PageBytesMax {
					return page, before, nil
				}
				page = append(page, found[i])
			}
			before = found[i].Row
			if len(page) == limit {
				if all {
					return page, 0, nil
				}
				return page, before, nil
			}
		}
		if len(found) < rows {
			return page, 0, nil
		}
		searched += rows
	}
	return page, before, nil
}

// bytes returns the length of an entry's texts.
func (r *Record) bytes() int {
	return len(r.Actor) + len(r.Action) + len(r.Subject) + len(r.Reason) + len(r.Before) + len(r.After)
}

// past reports whether no older entry can match.
func (f *Filter) past(r *Record) bool {
	return f.SinceMs > 0 && r.At.Before(time.UnixMilli(f.SinceMs).Add(-auditDisorder))
}

func (f *Filter) takes(r *Record) bool {
	at := r.At.UnixMilli()
	switch {
	case f.Actor != "" && r.Actor != f.Actor,
		f.Action != "" && r.Action != f.Action && !strings.HasPrefix(r.Action, f.Action+"."),
		!strings.Contains(r.Subject, f.Subject),
		at < f.SinceMs, f.UntilMs != 0 && at >= f.UntilMs:
		return false
	}
	if f.Workspace == "" {
		return true
	}
	kind, of, _ := strings.Cut(r.Subject, " ")
	space := f.Workspace + "/"
	if f.Namespace != "" {
		space += f.Namespace + "/"
	}
	return slices.Contains([]string{"override", "namespace", "key"}, kind) && strings.HasPrefix(of+"/", space)
}

// auditPage returns where a page begins and its length, with defaults: at most limit entries (0: 50) below before (0:
// from the newest).
func auditPage(before int64, limit int) (int64, int, error) {
	if limit < 0 || limit > PageMax {
		return 0, 0, fmt.Errorf("%w: limit is %d (1 to %d, 0 for %d)", controlplane.ErrInvalid, limit, PageMax,
			auditPageDefault)
	}
	if before < 0 {
		return 0, 0, fmt.Errorf("%w: before_id is %d (0 for the newest entries, or an entry's id)", controlplane.ErrInvalid,
			before)
	}
	if before == 0 {
		before = math.MaxInt64
	}
	return before, cmp.Or(limit, auditPageDefault), nil
}
