// Package changes writes overrides and their entries in the audit log, for the control plane and for nodes with
// v2-overrides. An override, its entry and the version of the settings change in one transaction, or none of them.
package changes

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/go-sql-driver/mysql"

	"github.com/weirhq/weir/shared/auditchain"
	"github.com/weirhq/weir/shared/gen/sql/controlplanedb"
	"github.com/weirhq/weir/shared/window"
)

const (
	duplicateKey = 1062
	deadlock     = 1213
)

// attemptsMax is how often Retry attempts a change.
const attemptsMax = 5

// ErrWritten reports that the log already has an entry with the same WriteID.
var ErrWritten = errors.New("the entry is in the audit log")

// AuditError is an error of the statements that write the audit log.
type AuditError struct{ error }

func (e AuditError) Unwrap() error { return e.error }

// Retry runs a transaction that first reads and then writes a row. If the row exists, the read locks it. If two
// transactions both find no row, the later insert fails, and Retry runs it again, so it finds the row. It also runs
// again after a deadlock.
func Retry(transaction func() error) (err error) {
	for range attemptsMax {
		err = transaction()
		if !isNumber(err, duplicateKey) && !isNumber(err, deadlock) {
			return err
		}
	}
	return err
}

func isNumber(err error, number uint16) bool {
	var answered *mysql.MySQLError
	return errors.As(err, &answered) && answered.Number == number
}

// Override reads an override, calls change, and writes its result, the audit entry and the version of the settings.
// before is nil if there is no override, and a nil after deletes it. A new pattern for which there is no room fails
// with an error that wraps noRoom.
func Override(ctx context.Context, q *controlplanedb.Queries, key controlplanedb.OverrideGetParams, noRoom error,
	change func(before *controlplanedb.OverrideGetRow) (after *controlplanedb.OverrideGetRow, e *auditchain.Entry,
		err error),
) error {
	rows, err := q.OverrideGet(ctx, key)
	if err != nil {
		return fmt.Errorf("read the override: %w", err)
	}
	var before *controlplanedb.OverrideGetRow
	for i := range rows {
		before = &rows[i]
	}
	after, e, err := change(before)
	if err != nil {
		return err
	}
	if err := Put(ctx, q, key, noRoom, before, after); err != nil {
		return err
	}
	if err := Append(ctx, q, e); err != nil {
		return err
	}
	return Changed(ctx, q)
}

// Put writes an override that was read with a lock, without its entry in the audit log and the version of the settings.
// See Override.
func Put(ctx context.Context, q *controlplanedb.Queries, key controlplanedb.OverrideGetParams, noRoom error,
	before, after *controlplanedb.OverrideGetRow) (err error) {
	switch {
	case after == nil && before == nil:
	case after == nil:
		_, err = q.OverrideDelete(ctx, controlplanedb.OverrideDeleteParams(key))
	case before == nil:
		err = insert(ctx, q, key, noRoom, after)
	default:
		err = q.OverrideUpdate(ctx, controlplanedb.OverrideUpdateParams{
			WorkspaceID: key.WorkspaceID, Namespace: key.Namespace, Pattern: key.Pattern, Limit: after.Limit,
			DurationMs: after.DurationMs, Candidate: after.Candidate, Shadow: after.Shadow,
		})
	}
	if err != nil {
		return fmt.Errorf("write the override: %w", err)
	}
	return nil
}

// insert adds an override unless nodes would ignore it because too many patterns begin alike, such as "a*b*" and
// "a*c*". The first check locks these patterns, so that concurrent inserts take turns. The second check counts patterns
// that were inserted while the first check waited for the lock.
func insert(ctx context.Context, q *controlplanedb.Queries, key controlplanedb.OverrideGetParams, noRoom error,
	after *controlplanedb.OverrideGetRow) error {
	if err := roomFor(ctx, q, key, noRoom); err != nil {
		return err
	}
	err := q.OverrideInsert(ctx, controlplanedb.OverrideInsertParams{
		WorkspaceID: key.WorkspaceID, Namespace: key.Namespace, Pattern: key.Pattern, Limit: after.Limit,
		DurationMs: after.DurationMs, Candidate: after.Candidate, Shadow: after.Shadow,
	})
	if err != nil {
		return err
	}
	return roomFor(ctx, q, key, noRoom)
}

// alikeRowsMax bounds the patterns that one check reads.
const alikeRowsMax = 100_000

func roomFor(ctx context.Context, q *controlplanedb.Queries, key controlplanedb.OverrideGetParams, noRoom error) error {
	pattern := string(key.Pattern)
	if strings.Count(pattern, "*") < 2 {
		return nil
	}
	rows, err := q.OverridesAlike(ctx, controlplanedb.OverridesAlikeParams{
		WorkspaceID: key.WorkspaceID, Namespace: key.Namespace, Written: key.Pattern, Limit: alikeRowsMax + 1,
	})
	if err != nil {
		return fmt.Errorf("read the patterns that begin alike: %w", err)
	}
	if len(rows) > alikeRowsMax {
		return fmt.Errorf("%w: pattern begins like more than %d other patterns of %s/%s with more than one '*' (at most "+
			"%d are checked)", noRoom, alikeRowsMax, key.WorkspaceID, key.Namespace, alikeRowsMax)
	}
	others := make([]string, len(rows))
	for i, r := range rows {
		others[i] = string(r)
	}
	if alike := window.PatternsAlike(pattern, others); alike >= window.PatternsAlikeMax {
		return fmt.Errorf("%w: pattern begins like %d other patterns of %s/%s with more than one '*' (at most %d begin "+
			"alike): delete one of them, or write more before the first '*'",
			noRoom, alike, key.WorkspaceID, key.Namespace, window.PatternsAlikeMax)
	}
	return nil
}

// Changed raises the version of the settings, so that relays read them again. It must be the last statement of a
// transaction, because other changes wait for its lock until the transaction ends.
func Changed(ctx context.Context, q *controlplanedb.Queries) error {
	if err := q.SettingsChanged(ctx); err != nil {
		return fmt.Errorf("raise the version of the settings: %w", err)
	}
	return nil
}

// Append adds an entry and its link to the audit log, and sets the entry's ID and time. It locks the open end of the
// chain until the transaction ends, so writers take turns, and no two entries follow the same entry. Times ascend with
// IDs because the time is read after the lock. In every transaction only Changed may come after Append, so that all
// writers lock in the same order.
func Append(ctx context.Context, q *controlplanedb.Queries, e *auditchain.Entry) error {
	if err := appendEntry(ctx, q, e); err != nil {
		return AuditError{err}
	}
	return nil
}

func appendEntry(ctx context.Context, q *controlplanedb.Queries, e *auditchain.Entry) error {
	if err := q.AuditChainLock(ctx); err != nil {
		return fmt.Errorf("lock the chain of the audit log: %w", err)
	}
	end, err := q.AuditChainEnd(ctx)
	if err == nil && len(end) != 1 {
		err = fmt.Errorf("%d rows", len(end))
	}
	if err != nil {
		return fmt.Errorf("read the end of the audit log's chain: %w", err)
	}
	e.AtMs = uint64(max(0, end[0].NowMs))
	id, err := q.AuditInsert(ctx, controlplanedb.AuditInsertParams{
		At: e.AtMs, Actor: e.Actor, Action: e.Action, Subject: []byte(e.Subject), Reason: e.Reason,
		BeforeState: e.Before, AfterState: e.After,
		WriteID: sql.NullString{String: e.WriteID, Valid: e.WriteID != ""},
	})
	if e.WriteID != "" && isNumber(err, duplicateKey) {
		return ErrWritten
	}
	if err != nil {
		return fmt.Errorf("write the audit log: %w", err)
	}
	e.ID = uint64(id)
	last := auditchain.End{ID: end[0].Follows}
	copy(last.Hash[:], end[0].PreviousHash)
	link := last.Append(e)
	err = q.AuditLinkInsert(ctx, controlplanedb.AuditLinkInsertParams{
		EntryID: e.ID, Follows: link.Follows, PreviousHash: link.Previous[:], Hash: link.Hash[:],
	})
	if err != nil {
		return fmt.Errorf("link entry %d of the audit log: %w", e.ID, err)
	}
	err = q.AuditChainExtend(ctx, controlplanedb.AuditChainExtendParams{Follows: e.ID, PreviousHash: link.Hash[:]})
	if err != nil {
		return fmt.Errorf("move the end of the audit log's chain: %w", err)
	}
	return nil
}
