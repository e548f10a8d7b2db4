package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/audit"
	"github.com/weirhq/weir/shared/changes"
	"github.com/weirhq/weir/shared/gen/sql/controlplanedb"
)

var (
	_ audit.Store = (*Store)(nil)
	_ audit.Log   = (*Store)(nil)
)

// InsertAudit adds an entry to the audit log and its hash chain, unless the log has an entry with the same ID.
func (s auditLog) InsertAudit(ctx context.Context, e audit.Entry) error {
	return s.changing(ctx, func(q *queries) error {
		err := insertAudit(ctx, q, e)
		if errors.Is(err, changes.ErrWritten) {
			return nil // an earlier attempt wrote it
		}
		return err
	})
}

// insertSettingsAudit is insertAudit for a change of the settings. It also raises their version, so that relays read
// them again.
func insertSettingsAudit(ctx context.Context, q *queries, e audit.Entry) error {
	if err := insertAudit(ctx, q, e); err != nil {
		return err
	}
	return changes.Changed(ctx, q)
}

func (s auditLog) Audit(ctx context.Context, before int64, rows int) ([]audit.Record, error) {
	found, err := s.queries.AuditList(ctx, controlplanedb.AuditListParams{BeforeID: uint64(before), Limit: int32(rows)})
	if err != nil {
		return nil, fmt.Errorf("read the audit log: %w", explain(err))
	}
	var records []audit.Record
	for _, f := range found {
		records = append(records, audit.Record{
			Row: int64(f.ID), At: time.UnixMilli(int64(f.At)),
			Entry: audit.Entry{
				By:     controlplane.By{Actor: f.Actor, Reason: f.Reason},
				Action: f.Action, Subject: string(f.Subject), Before: f.BeforeState, After: f.AfterState,
			},
		})
	}
	return records, nil
}
