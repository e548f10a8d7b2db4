package store

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/weirhq/weir/controlplane/audit"
	"github.com/weirhq/weir/shared/auditchain"
	"github.com/weirhq/weir/shared/changes"
	"github.com/weirhq/weir/shared/gen/sql/controlplanedb"
)

func insertAudit(ctx context.Context, q *queries, e audit.Entry) error {
	return changes.Append(ctx, q, linkable(e))
}

// linkable returns an entry without an ID and a time, which changes.Append sets.
func linkable(e audit.Entry) *auditchain.Entry {
	return &auditchain.Entry{
		Actor: e.Actor, Action: e.Action, Subject: e.Subject, Reason: e.Reason, Before: e.Before, After: e.After,
		WriteID: e.ID,
	}
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
