package routes

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	"github.com/go-sql-driver/mysql"

	"github.com/weirhq/weir/shared/auditchain"
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

const (
	overrideLock = overrideGet + " FOR UPDATE"

	// settingsChanged makes relays read the settings again.
	settingsChanged = "INSERT INTO ratelimit_settings_version (id, version) VALUES (1, 1) " +
		"ON DUPLICATE KEY UPDATE version = version + 1"
)

// attemptsMax bounds the attempts of a change that lost against another change (a deadlock).
const attemptsMax = 5

// change makes a change and its entry in the audit log, or neither. after is nil for a deletion. found reports whether
// there was an override before.
func (m MySQL) change(ctx context.Context, workspace, namespace, pattern string,
	after *Override) (found bool, err error) {
	for range attemptsMax {
		found, err = m.changeOnce(ctx, workspace, namespace, pattern, after)
		if e := (*mysql.MySQLError)(nil); !errors.As(err, &e) || e.Number != 1213 {
			return found, err
		}
	}
	return found, err
}

func (m MySQL) changeOnce(ctx context.Context, workspace, namespace, pattern string,
	after *Override) (found bool, err error) {
	tx, err := m.DB.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted}) // no locks of gaps, which deadlock
	if err != nil {
		return false, err
	}
	defer func() { _ = tx.Rollback() }() // does nothing after Commit
	var limit, durationMs uint64
	before, action := "", "override.set"
	switch err := tx.QueryRowContext(ctx, overrideLock, []byte(workspace), []byte(namespace), []byte(pattern)).Scan(&limit,
		&durationMs); {
	case err == nil:
		found, before = true, state(saturate(limit), saturate(durationMs))
	case !errors.Is(err, sql.ErrNoRows):
		return false, err
	case after == nil:
		return false, nil
	}
	told := ""
	if after == nil {
		action = "override.delete"
		_, err = tx.ExecContext(ctx, overrideDelete, []byte(workspace), []byte(namespace), []byte(pattern))
	} else {
		told = state(after.Limit, after.DurationMs)
		err = set(ctx, tx, workspace, namespace, after, found)
	}
	if err != nil {
		return false, err
	}
	route := map[string]string{"override.set": Paths["setOverride"], "override.delete": Paths["deleteOverride"]}[action]
	err = audit(ctx, tx, &auditchain.Entry{
		Actor: actorOf(ctx), Action: action, Subject: "override " + workspace + "/" + namespace + "/" + pattern,
		Reason: "api " + route, Before: before, After: told,
	})
	if err == nil {
		_, err = tx.ExecContext(ctx, settingsChanged)
	}
	if err != nil {
		return false, err
	}
	return found, tx.Commit()
}

// set writes an override. A new override needs room; see roomFor.
func set(ctx context.Context, tx *sql.Tx, workspace, namespace string, o *Override, there bool) error {
	if !there {
		if err := roomFor(ctx, tx, workspace, namespace, o.Pattern); err != nil {
			return err
		}
	}
	if _, err := tx.ExecContext(ctx, overrideSet, []byte(workspace), []byte(namespace), []byte(o.Pattern), o.Limit,
		o.DurationMs); err != nil || there {
		return err
	}
	return roomFor(ctx, tx, workspace, namespace, o.Pattern)
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
