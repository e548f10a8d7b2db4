package routes

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/go-sql-driver/mysql"

	"github.com/weirhq/weir/shared/auditchain"
	"github.com/weirhq/weir/shared/changes"
	"github.com/weirhq/weir/shared/gen/sql/controlplanedb"
)

// ErrUnaudited is a change that was not made, as it could not be written down.
var ErrUnaudited = errors.New("the change was not made: this node's MySQL user may not write the audit log and its " +
	"hash chain (see the grants for v2-overrides)")

type actorKey struct{}

// withActor stores the caller's name for the audit log: the beginning of the token's hash, as in a file of tokens.
func withActor(r *http.Request) context.Context {
	actor := "caller without a token"
	if scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " "); strings.EqualFold(scheme, "Bearer") &&
		token != "" {
		sum := sha256.Sum256([]byte(token))
		actor = "token " + hex.EncodeToString(sum[:6])
	}
	return context.WithValue(r.Context(), actorKey{}, actor)
}

func actorOf(ctx context.Context) string {
	if actor, ok := ctx.Value(actorKey{}).(string); ok {
		return actor
	}
	return "node"
}

// errNone is the deletion of an override that is not there.
var errNone = errors.New("there is no such override")

// tableDenied is the number of MySQL's error for a missing grant.
const tableDenied = 1142

// change makes a change and its entry in the audit log, or neither. after is nil for a deletion.
func (m MySQL) change(ctx context.Context, workspace, namespace, pattern string, after *Override) error {
	e := auditchain.Entry{
		Actor: actorOf(ctx), Action: "override.delete", Subject: "override " + workspace + "/" + namespace + "/" + pattern,
		Reason: "api " + Paths["deleteOverride"],
	}
	if after != nil {
		e.Action, e.Reason, e.After = "override.set", "api "+Paths["setOverride"], state(after.Limit, after.DurationMs)
	}
	key := controlplanedb.OverrideGetParams{WorkspaceID: []byte(workspace), Namespace: []byte(namespace),
		Pattern: []byte(pattern)}
	changeRow := func(row *controlplanedb.OverrideGetRow) (*controlplanedb.OverrideGetRow, *auditchain.Entry, error) {
		entry, changed := e, new(controlplanedb.OverrideGetRow)
		if row != nil {
			entry.Before, *changed = state(saturate(row.Limit), saturate(row.DurationMs)), *row
		}
		switch {
		case after == nil && row == nil:
			return nil, nil, errNone
		case after == nil:
			return nil, &entry, nil
		}
		changed.Limit, changed.DurationMs = uint64(after.Limit), uint64(after.DurationMs)
		return changed, &entry, nil
	}
	err := changes.Retry(func() error {
		tx, err := m.DB.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted}) // no locks of gaps, which deadlock
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }() // does nothing after Commit
		err = changes.Override(ctx, controlplanedb.New(tx), key, ErrPatternsAlike, changeRow)
		if err != nil {
			return err
		}
		return tx.Commit()
	})
	var denied *mysql.MySQLError
	if errors.As(err, new(changes.AuditError)) && errors.As(err, &denied) && denied.Number == tableDenied {
		return fmt.Errorf("%w: %w", ErrUnaudited, err)
	}
	return err
}

func state(limit, durationMs int64) string {
	b, err := json.Marshal(struct {
		Limit      int64 `json:"limit"`
		DurationMs int64 `json:"duration_ms"`
	}{limit, durationMs})
	if err != nil {
		panic(err) // two integers
	}
	return string(b)
}
