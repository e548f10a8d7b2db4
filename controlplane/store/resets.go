package store

import (
	"context"
	"fmt"
	"time"

	"github.com/weirhq/weir/controlplane/audit"
	"github.com/weirhq/weir/controlplane/limits"
	"github.com/weirhq/weir/shared/gen/sql/controlplanedb"
)

// ChangeReset reads the reset of an identifier, calls change, and writes its result and the audit entry in the same
// transaction.
func (s settings) ChangeReset(ctx context.Context, workspace, namespace, identifier string,
	change func(before *limits.Reset, live int64, now time.Time) (limits.Reset,
		audit.Entry, error),
) error {
	return s.changing(ctx, func(q *queries) error {
		rows, err := q.ResetGet(ctx, controlplanedb.ResetGetParams{WorkspaceID: []byte(workspace),
			Namespace: []byte(namespace), Identifier: []byte(identifier)})
		if err != nil {
			return fmt.Errorf("read the reset: %w", err)
		}
		var before *limits.Reset
		for _, r := range rows {
			before = new(resetOf([]byte(workspace), []byte(namespace), []byte(identifier), r.Generation, r.SetAt, r.ExpiresAt))
		}
		live, err := q.ResetsCount(ctx)
		if err != nil {
			return fmt.Errorf("count the resets: %w", err)
		}
		nowMs, err := q.DatabaseNow(ctx) // read once the row is locked, so of two resets the later has the later time
		if err != nil {
			return fmt.Errorf("read the clock of the database: %w", err)
		}
		after, e, err := change(before, live, time.UnixMilli(nowMs))
		if err != nil {
			return err
		}
		err = q.ResetUpsert(ctx, controlplanedb.ResetUpsertParams{
			WorkspaceID: []byte(workspace), Namespace: []byte(namespace), Identifier: []byte(identifier),
			Generation: uint16(after.Generation), SetAt: unixMs(after.SetAt), ExpiresAt: unixMs(after.ExpiresAt),
		})
		if err != nil {
			return fmt.Errorf("write the reset: %w", err)
		}
		return insertSettingsAudit(ctx, q, e)
	})
}

// Resets returns at most rows resets of a namespace, newest first.
func (s settings) Resets(ctx context.Context, workspace, namespace string, rows int) ([]limits.Reset, error) {
	found, err := s.queries.ResetList(ctx, controlplanedb.ResetListParams{WorkspaceID: []byte(workspace),
		Namespace: []byte(namespace), Limit: int32(rows)})
	if err != nil {
		return nil, fmt.Errorf("list resets: %w", explain(err))
	}
	var resets []limits.Reset
	for _, r := range found {
		resets = append(resets, resetOf(r.WorkspaceID, r.Namespace, r.Identifier, r.Generation, r.SetAt, r.ExpiresAt))
	}
	return resets, nil
}

func resetOf(workspace, namespace, identifier []byte, generation uint16, setAt, expiresAt uint64) limits.Reset {
	return limits.Reset{
		Workspace: string(workspace), Namespace: string(namespace), Identifier: string(identifier),
		Generation: int64(generation), SetAt: time.UnixMilli(int64(setAt)), ExpiresAt: time.UnixMilli(int64(expiresAt)),
	}
}

func (s expiry) DeleteExpiredResets(ctx context.Context, cutoff time.Time, rows int) (int64, error) {
	return s.briefly(ctx, func(q *queries) (int64, error) {
		return q.ResetsDeleteExpired(ctx, controlplanedb.ResetsDeleteExpiredParams{CutoffMs: unixMs(cutoff),
			Limit: int32(rows)})
	})
}
