package store

import (
	"bytes"
	"errors"
	"testing"

	"github.com/weirhq/weir/controlplane"
)

// "Hashed at rest": a token works until it is revoked, and no row of any table holds it.
func TestTokens(t *testing.T) {
	s, db := migrated(t)
	tokens, err := controlplane.NewTokens(s, "")
	if err != nil {
		t.Fatal(err)
	}
	by := controlplane.By{Actor: "ann", Reason: "pipeline"}
	secret, err := tokens.Create(t.Context(), "ci", controlplane.RoleOperator, by)
	if err != nil {
		t.Fatal(err)
	}
	if who, err := tokens.Authenticate(t.Context(), secret); err != nil || who != (controlplane.Identity{Name: "ci", Role: controlplane.RoleOperator}) {
		t.Errorf("%+v, %v", who, err)
	}
	var hash []byte
	if err := db.QueryRowContext(t.Context(), "SELECT hash FROM ratelimit_tokens").Scan(&hash); err != nil || len(hash) != 32 || bytes.Contains(hash, []byte(secret)[:8]) {
		t.Errorf("%x, %v", hash, err)
	}
	if _, err := tokens.Create(t.Context(), "ci", controlplane.RoleAdmin, by); !errors.Is(err, controlplane.ErrConflict) {
		t.Errorf("a name twice: %v", err)
	}
	if err := tokens.Revoke(t.Context(), "nobody", by); !errors.Is(err, controlplane.ErrNotFound) {
		t.Errorf("%v", err)
	}
	if err := tokens.Revoke(t.Context(), "ci", by); err != nil {
		t.Fatal(err)
	}
	if _, err := tokens.Authenticate(t.Context(), secret); !errors.Is(err, controlplane.ErrUnauthenticated) {
		t.Errorf("a revoked token: %v", err)
	}
	list, err := tokens.List(t.Context())
	if err != nil || len(list) != 1 || list[0].Name != "ci" || list[0].CreatedBy != "ann" || list[0].RevokedAt.IsZero() || list[0].CreatedAt.IsZero() {
		t.Errorf("%+v, %v", list, err)
	}
	if n := count(t, db, "SELECT COUNT(*) FROM ratelimit_audit WHERE subject = 'token ci' AND actor = 'ann'"); n != 2 {
		t.Errorf("%d audit rows: one for each change, none for what was refused", n)
	}
}
