package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/access"
	"github.com/weirhq/weir/controlplane/audit"
	"github.com/weirhq/weir/shared/gen/sql/controlplanedb"
	"github.com/weirhq/weir/shared/workspaces"
)

var _ access.TokenStore = (*Store)(nil)

func (s operators) InsertToken(ctx context.Context, t access.Token,
	secret access.TokenSecret, e audit.Entry) error {
	return s.changing(ctx, func(q *queries) error {
		err := q.TokenInsert(ctx, controlplanedb.TokenInsertParams{Name: []byte(t.Name), Hash: secret.Hash[:],
			Role: storedRole(t), Workspaces: []byte(t.Workspaces.String()), CreatedBy: t.CreatedBy,
			ExpiresInMs: secret.ExpiresIn.Milliseconds()})
		if isNumber(err, duplicateKey) {
			return fmt.Errorf("%w: a token has or had this name, and the audit log names its holder by it: choose "+
				"another", controlplane.ErrConflict)
		}
		if err != nil {
			return err
		}
		return insertAudit(ctx, q, e)
	})
}

func (s operators) TokenByHash(ctx context.Context, hash access.TokenHash) (access.Holder, error) {
	row, err := s.queries.TokenByHash(ctx, hash[:])
	if errors.Is(err, sql.ErrNoRows) {
		var old controlplanedb.TokenByOldHashRow
		old, err = s.queries.TokenByOldHash(ctx, sql.NullString{String: string(hash[:]), Valid: true})
		row = controlplanedb.TokenByHashRow{Name: old.Name, Role: old.Role, Workspaces: old.Workspaces,
			EndsAt: uint64(old.EndsAt), NowMs: old.NowMs}
	}
	if errors.Is(err, sql.ErrNoRows) {
		return access.Holder{}, controlplane.ErrNotFound
	}
	if err != nil {
		return access.Holder{}, fmt.Errorf("find a token: %w", explain(err))
	}
	holder := access.Holder{}
	holder.Name = string(row.Name)
	if holder.Role, holder.Workspaces, err = powersOf(row.Role, row.Workspaces); err != nil {
		return access.Holder{}, fmt.Errorf("token %s: %w: %w", holder.Name, controlplane.ErrNotFound, err)
	}
	if row.EndsAt > 0 {
		holder.Left = time.Duration(int64(row.EndsAt)-row.NowMs) * time.Millisecond
		if holder.Left <= 0 {
			return access.Holder{}, controlplane.ErrNotFound
		}
	}
	return holder, nil
}

func (s operators) TokenByName(ctx context.Context, name string) (t access.Token, now time.Time, err error) {
	row, err := s.queries.TokenByName(ctx, []byte(name))
	if errors.Is(err, sql.ErrNoRows) {
		return t, now, controlplane.ErrNotFound
	}
	if err != nil {
		return t, now, fmt.Errorf("find token %s: %w", name, explain(err))
	}
	t = access.Token{Name: name, RevokedAt: momentOf(row.RevokedAt), ExpiresAt: momentOf(row.ExpiresAt)}
	if t.Role, t.Workspaces, err = powersOf(row.Role, row.Workspaces); err != nil {
		return t, now, fmt.Errorf("token %s: %w", name, err)
	}
	return t, time.UnixMilli(row.NowMs), nil
}

func (s operators) TokenUsed(ctx context.Context, name string, within time.Duration) error {
	err := s.queries.TokenUsed(ctx, controlplanedb.TokenUsedParams{Name: []byte(name),
		WithinMs: uint64(within.Milliseconds())})
	if err != nil {
		return fmt.Errorf("note the use of token %s: %w", name, explain(err))
	}
	return nil
}

func (s operators) RotateToken(ctx context.Context, name string, secret access.TokenSecret, overlap time.Duration,
	e audit.Entry) error {
	return s.changing(ctx, func(q *queries) error {
		n, err := q.TokenRotate(ctx, controlplanedb.TokenRotateParams{Name: []byte(name), NewHash: secret.Hash[:],
			OverlapMs: overlap.Milliseconds(), ExpiresInMs: secret.ExpiresIn.Milliseconds()})
		if err != nil {
			return err
		}
		if n == 0 {
			return errNoToken
		}
		return insertAudit(ctx, q, e)
	})
}

// errNoToken is returned for a name without a token, or whose token has ended.
var errNoToken = fmt.Errorf("%w: no token of this name is in force", controlplane.ErrNotFound)

func (s operators) RevokeToken(ctx context.Context, name string, e audit.Entry) error {
	return s.changing(ctx, func(q *queries) error {
		n, err := q.TokenRevoke(ctx, []byte(name))
		if err != nil {
			return err
		}
		if n == 0 {
			return errNoToken
		}
		return insertAudit(ctx, q, e)
	})
}

func (s operators) Tokens(ctx context.Context, after string, rows int) ([]access.Token, error) {
	found, err := s.queries.TokenList(ctx, controlplanedb.TokenListParams{AfterName: []byte(after), Limit: int32(rows)})
	if err != nil {
		return nil, fmt.Errorf("list tokens: %w", explain(err))
	}
	var tokens []access.Token
	for _, r := range found {
		role, valid, err := powersOf(r.Role, r.Workspaces)
		if err != nil { // the token is listed without a role, so that it can be revoked
			role, valid = "", nil
		}
		tokens = append(tokens, access.Token{
			Name: string(r.Name), Role: role, Workspaces: valid, CreatedBy: r.CreatedBy,
			CreatedAt: time.UnixMilli(int64(r.CreatedAt)), RevokedAt: momentOf(r.RevokedAt), ExpiresAt: momentOf(r.ExpiresAt),
			UsedAt: momentOf(r.UsedAt), OldUntil: momentOf(r.OldUntil),
		})
	}
	return tokens, nil
}

// scopedPrefix begins the stored role of a token with workspaces. A build that does not support workspaces does not
// accept such a role, so it rejects the token.
const scopedPrefix = "scoped-"

func storedRole(t access.Token) string {
	if t.Workspaces.All() {
		return string(t.Role)
	}
	return scopedPrefix + string(t.Role)
}

// powersOf parses the stored role and workspaces of a token. It returns an error if they contradict each other, for
// example a scoped role without workspaces; such a token has no role.
func powersOf(role string, names []byte) (access.Role, *workspaces.Set, error) {
	bare, scoped := strings.CutPrefix(role, scopedPrefix)
	if scoped != (len(names) > 0) {
		return "", nil, fmt.Errorf("the role %q and the workspaces %.64q contradict each other", role, names)
	}
	if !scoped {
		return access.Role(role), nil, nil
	}
	valid, err := workspaces.Parse(string(names))
	if err != nil {
		return "", nil, fmt.Errorf("workspaces: %w", err)
	}
	return access.Role(bare), valid, nil
}

// momentOf converts Unix ms to a time; 0 gives the zero time.
func momentOf(ms uint64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(int64(ms))
}
