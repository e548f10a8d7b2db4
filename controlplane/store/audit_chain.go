package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/weirhq/weir/controlplane/audit"
	"github.com/weirhq/weir/shared/auditchain"
	"github.com/weirhq/weir/shared/gen/sql/controlplanedb"
)

// errWritten reports that the log already has an entry with the same ID.
var errWritten = errors.New("the entry is in the audit log")

// insertAudit adds an entry and its link. It locks the open end of the chain until the transaction ends, so writers
// take turns, and no two entries follow the same entry. Times ascend with IDs because the time is read after the lock.
// In every transaction only settingsChanged may come after insertAudit, so that all writers lock in the same order.
func insertAudit(ctx context.Context, q *queries, e audit.Entry) error {
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
	entry := auditchain.Entry{
		AtMs: uint64(max(0, end[0].NowMs)), Actor: e.Actor, Action: e.Action, Subject: e.Subject, Reason: e.Reason,
		Before: e.Before, After: e.After, WriteID: e.ID,
	}
	if err := insertEntry(ctx, q, &entry); err != nil {
		return err
	}
	link := auditchain.End{ID: end[0].Follows, Hash: hashOf(end[0].PreviousHash)}.Append(&entry)
	err = q.AuditLinkInsert(ctx, controlplanedb.AuditLinkInsertParams{
		EntryID: entry.ID, Follows: link.Follows, PreviousHash: link.Previous[:], Hash: link.Hash[:],
	})
	if err != nil {
		return fmt.Errorf("link entry %d of the audit log: %w", entry.ID, err)
	}
	err = q.AuditChainExtend(ctx, controlplanedb.AuditChainExtendParams{Follows: entry.ID, PreviousHash: link.Hash[:]})
	if err != nil {
		return fmt.Errorf("move the end of the audit log's chain: %w", err)
	}
	return nil
}

// insertEntry adds the row of an entry, and sets its ID.
func insertEntry(ctx context.Context, q *queries, e *auditchain.Entry) error {
	id, err := q.AuditInsert(ctx, controlplanedb.AuditInsertParams{
		At: e.AtMs, Actor: e.Actor, Action: e.Action, Subject: []byte(e.Subject), Reason: e.Reason,
		BeforeState: e.Before, AfterState: e.After,
		WriteID: sql.NullString{String: e.WriteID, Valid: e.WriteID != ""},
	})
	if e.WriteID != "" && isNumber(err, duplicateKey) {
		return errWritten
	}
	if err != nil {
		return fmt.Errorf("write the audit log: %w", err)
	}
	e.ID = uint64(id)
	return nil
}

func (s auditLog) AuditLinks(ctx context.Context, after int64, rows int) (page audit.Links, err error) {
	tx, err := s.db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true})
	if err != nil {
		return page, explain(err)
	}
	defer func() { _ = tx.Rollback() }() // the transaction has changed nothing
	q := s.queries.WithTx(tx)
	found, err := q.AuditLinks(ctx, controlplanedb.AuditLinksParams{AfterID: uint64(after), Limit: int32(rows)})
	if err != nil {
		return page, fmt.Errorf("read the audit log: %w", explain(err))
	}
	for i := range found {
		page.Links = append(page.Links, linkOf(&found[i]))
	}
	first, err := q.AuditChainFirst(ctx)
	if err != nil {
		return page, fmt.Errorf("read the beginning of the audit log's chain: %w", explain(err))
	}
	end, err := q.AuditChainEnd(ctx)
	if err != nil {
		return page, fmt.Errorf("read the end of the audit log's chain: %w", explain(err))
	}
	page.First = uint64(first)
	for _, e := range end {
		page.End = auditchain.End{ID: e.Follows, Hash: hashOf(e.PreviousHash)}
	}
	return page, nil
}

func linkOf(r *controlplanedb.AuditLinksRow) audit.Link {
	return audit.Link{
		Entry: auditchain.Entry{
			ID: r.ID, AtMs: r.At, Actor: r.Actor, Action: r.Action, Subject: string(r.Subject), Reason: r.Reason,
			Before: r.BeforeState, After: r.AfterState, WriteID: r.WriteID.String,
		},
		Link: auditchain.Link{
			Follows: uint64(r.Follows.Int64), Previous: hashOf([]byte(r.PreviousHash.String)),
			Hash: hashOf([]byte(r.Hash.String)),
		},
	}
}

// hashOf converts a hash from a column. NULL gives the zero hash.
func hashOf(column []byte) (h auditchain.Hash) {
	copy(h[:], column)
	return h
}
