package routes

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/go-sql-driver/mysql"

	"github.com/weirhq/weir/shared/auditchain"
)

// The statements equal the statements in queries/controlplane/audit.sql.
const (
	auditChainLock = "INSERT INTO ratelimit_audit_chain (entry_id, follows, previous_hash, hash) VALUES (0, 0, '', '') " +
		"ON DUPLICATE KEY UPDATE entry_id = 0"
	auditChainEnd = "SELECT follows, previous_hash, " +
		"CAST(UNIX_TIMESTAMP() * 1000 + MICROSECOND(NOW(3)) DIV 1000 AS SIGNED) " +
		"FROM ratelimit_audit_chain WHERE entry_id = 0"
	auditInsert = "INSERT INTO ratelimit_audit (at, actor, action, subject, reason, before_state, after_state) " +
		"VALUES (?, ?, ?, ?, ?, ?, ?)"
	auditLinkInsert = "INSERT INTO ratelimit_audit_chain (entry_id, follows, previous_hash, hash) VALUES (?, ?, ?, ?)"
	auditExtend     = "UPDATE ratelimit_audit_chain SET follows = ?, previous_hash = ? WHERE entry_id = 0"
)

// audit adds an entry to the audit log and its hash chain, as the control plane does: the lock of the chain's open end
// makes writers take turns from here to the end of their transactions. Only settingsChanged comes after it.
func audit(ctx context.Context, tx *sql.Tx, e *auditchain.Entry) error {
	err := link(ctx, tx, e)
	if denied := (*mysql.MySQLError)(nil); errors.As(err, &denied) && denied.Number == 1142 {
		return fmt.Errorf("%w: %w", ErrUnaudited, err)
	}
	return err
}

func link(ctx context.Context, tx *sql.Tx, e *auditchain.Entry) error {
	if _, err := tx.ExecContext(ctx, auditChainLock); err != nil {
		return err
	}
	var end auditchain.End
	var previous []byte
	if err := tx.QueryRowContext(ctx, auditChainEnd).Scan(&end.ID, &previous, &e.AtMs); err != nil {
		return err
	}
	copy(end.Hash[:], previous)
	inserted, err := tx.ExecContext(ctx, auditInsert, e.AtMs, e.Actor, e.Action, []byte(e.Subject), e.Reason, e.Before,
		e.After)
	if err != nil {
		return err
	}
	id, err := inserted.LastInsertId()
	if err != nil {
		return err
	}
	e.ID = uint64(id)
	l := end.Append(e)
	if _, err := tx.ExecContext(ctx, auditLinkInsert, e.ID, l.Follows, l.Previous[:], l.Hash[:]); err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, auditExtend, e.ID, l.Hash[:])
	return err
}
