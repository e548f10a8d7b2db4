package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/shared/gen/sql/controlplanedb"
)

var (
	_ controlplane.AuditStore = (*Store)(nil)
	_ controlplane.AuditLog   = (*Store)(nil)
)

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

// insertSettingsAudit is insertAudit for a change of the settings, which relays are to read anew.
func insertSettingsAudit(ctx context.Context, q *queries, e controlplane.AuditEntry) error {
	if err := insertAudit(ctx, q, e); err != nil {
		return err
	}
	return settingsChanged(ctx, q)
}

// settingsChanged comes last in a transaction: other changes wait for its end.
func settingsChanged(ctx context.Context, q *queries) error {
	if err := q.SettingsChanged(ctx); err != nil {
		return fmt.Errorf("raise the version of the settings: %w", err)
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

// Audit returns at most rows entries with an id below before, newest first.
func (s *Store) Audit(ctx context.Context, before int64, rows int) ([]controlplane.AuditRecord, error) {
	found, err := s.queries.AuditList(ctx, controlplanedb.AuditListParams{BeforeID: uint64(before), Limit: int32(rows)})
	if err != nil {
		return nil, fmt.Errorf("read the audit log: %w", explain(err))
	}
	var records []controlplane.AuditRecord
	for _, f := range found {
		records = append(records, controlplane.AuditRecord{
			Row: int64(f.ID), At: time.UnixMilli(int64(f.At)),
			AuditEntry: controlplane.AuditEntry{
				By:     controlplane.By{Actor: f.Actor, Reason: f.Reason},
				Action: f.Action, Subject: string(f.Subject), Before: f.BeforeState, After: f.AfterState,
			},
		})
	}
	return records, nil
}
