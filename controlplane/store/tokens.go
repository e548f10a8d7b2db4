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

var _ controlplane.TokenStore = (*Store)(nil)

// InsertToken adds a token and its audit row. A name that was ever used is ErrConflict.
func (s *Store) InsertToken(ctx context.Context, t controlplane.Token, hash controlplane.TokenHash,
	e controlplane.AuditEntry) error {
	return s.inTransaction(ctx, func(q *queries) error {
		err := q.TokenInsert(ctx, controlplanedb.TokenInsertParams{Name: []byte(t.Name), Hash: hash[:], Role: string(t.Role),
			CreatedBy: t.CreatedBy})
		var answered *mysql.MySQLError
		if errors.As(err, &answered) && answered.Number == duplicateKey {
			return fmt.Errorf("%w: there is or was a token of this name, which stands for somebody in the audit log: choose "+
				"another", controlplane.ErrConflict)
		}
		if err != nil {
			return err
		}
		return insertAudit(ctx, q, e)
	})
}

// TokenByHash finds a token in force; ErrNotFound without one.
func (s *Store) TokenByHash(ctx context.Context, hash controlplane.TokenHash) (controlplane.Identity, error) {
	row, err := s.queries.TokenByHash(ctx, hash[:])
	if errors.Is(err, sql.ErrNoRows) {
		return controlplane.Identity{}, controlplane.ErrNotFound
	}
	if err != nil {
		return controlplane.Identity{}, fmt.Errorf("find a token: %w", explain(err))
	}
	return controlplane.Identity{Name: string(row.Name), Role: controlplane.Role(row.Role)}, nil
}

// RevokeToken revokes a token in force, with its audit row; ErrNotFound without one.
func (s *Store) RevokeToken(ctx context.Context, name string, e controlplane.AuditEntry) error {
	return s.inTransaction(ctx, func(q *queries) error {
		n, err := q.TokenRevoke(ctx, []byte(name))
		if err != nil {
			return err
		}
		if n == 0 {
			return fmt.Errorf("%w: no token of this name is in force", controlplane.ErrNotFound)
		}
		return insertAudit(ctx, q, e)
	})
}

// Tokens are at most rows tokens behind a name, by name.
func (s *Store) Tokens(ctx context.Context, after string, rows int) ([]controlplane.Token, error) {
	found, err := s.queries.TokenList(ctx, controlplanedb.TokenListParams{AfterName: []byte(after), Limit: int32(rows)})
	if err != nil {
		return nil, fmt.Errorf("list tokens: %w", explain(err))
	}
	var tokens []controlplane.Token
	for _, r := range found {
		t := controlplane.Token{Name: string(r.Name), Role: controlplane.Role(r.Role), CreatedBy: r.CreatedBy,
			CreatedAt: time.UnixMilli(int64(r.CreatedAt))}
		if r.RevokedAt > 0 {
			t.RevokedAt = time.UnixMilli(int64(r.RevokedAt))
		}
		tokens = append(tokens, t)
	}
	return tokens, nil
}
