package store

import (
	"context"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/shared/gen/sql/controlplanedb"
)

var _ controlplane.AuditStore = (*Store)(nil)

// InsertAudit adds a row to the audit log.
func (s *Store) InsertAudit(ctx context.Context, e controlplane.AuditEntry) error {
	err := s.queries.AuditInsert(ctx, controlplanedb.AuditInsertParams{
		Actor:       e.Actor,
		Action:      e.Action,
		Subject:     []byte(e.Subject),
		Reason:      e.Reason,
		BeforeState: e.Before,
		AfterState:  e.After,
	})
	if err != nil {
		return explain(err)
	}
	return nil
}
