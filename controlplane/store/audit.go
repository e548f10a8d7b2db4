package store

import (
	"context"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/shared/gen/sql/controlplanedb"
)

var _ controlplane.AuditStore = (*Store)(nil)

// InsertAudit adds a row to the audit log.
func (s *Store) InsertAudit(ctx context.Context, e controlplane.AuditEntry) error {
	if err := insertAudit(ctx, s.queries, e); err != nil {
		return explain(err)
	}
	return nil
}

func insertAudit(ctx context.Context, q *queries, e controlplane.AuditEntry) error {
	return q.AuditInsert(ctx, controlplanedb.AuditInsertParams{
		Actor:       e.Actor,
		Action:      e.Action,
		Subject:     []byte(e.Subject),
		Reason:      e.Reason,
		BeforeState: e.Before,
		AfterState:  e.After,
	})
}
