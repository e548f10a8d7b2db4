package store

import (
	"context"
	"database/sql"
	"errors"

	"github.com/go-sql-driver/mysql"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/shared/gen/sql/controlplanedb"
)

var _ controlplane.AuditStore = (*Store)(nil)

// InsertAudit adds a row to the audit log, unless one with the same ID is there.
func (s *Store) InsertAudit(ctx context.Context, e controlplane.AuditEntry) error {
	err := insertAudit(ctx, s.queries, e)
	var answered *mysql.MySQLError
	if e.ID != "" && errors.As(err, &answered) && answered.Number == duplicateKey {
		return nil // an attempt before this one has written it
	}
	if err != nil {
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
		WriteID:     sql.NullString{String: e.ID, Valid: e.ID != ""},
	})
}
