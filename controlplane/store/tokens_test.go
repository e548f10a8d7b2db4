package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/access"
	"github.com/weirhq/weir/schema/schematest"
	"github.com/weirhq/weir/shared/servers"
	"github.com/weirhq/weir/shared/window"
)

// Tokens are stored as hashes: a token works until it is revoked, and no row of any table contains it.
func TestTokens(t *testing.T) { servers.EachSQL(t, testTokens) }

func testTokens(t *testing.T) {
	s, db := migrated(t)
	tokens, err := access.NewTokens(s, "")
	if err != nil {
		t.Fatal(err)
	}
	by := controlplane.By{Actor: "ann", Reason: "pipeline"}
	secret, err := tokens.Create(t.Context(), "ci", access.RoleOperator, 0, by)
	if err != nil {
		t.Fatal(err)
	}
	if who, err := tokens.Authenticate(t.Context(), secret); err != nil || who != (access.Identity{Name: "ci", Role: access.RoleOperator}) {
		t.Errorf("%+v, %v", who, err)
	}
	var hash []byte
	if err := db.QueryRowContext(t.Context(), "SELECT hash FROM ratelimit_tokens").Scan(&hash); err != nil || len(hash) != 32 || bytes.Contains(hash, []byte(secret)[:8]) {
		t.Errorf("%x, %v", hash, err)
	}
	if _, err := tokens.Create(t.Context(), "ci", access.RoleAdmin, 0, by); !errors.Is(err, controlplane.ErrConflict) {
		t.Errorf("a name twice: %v", err)
	}
	if err := tokens.Revoke(t.Context(), "nobody", by); !errors.Is(err, controlplane.ErrNotFound) {
		t.Errorf("%v", err)
	}
	if err := tokens.Revoke(t.Context(), "ci", by); err != nil {
		t.Fatal(err)
	}
	if _, err := tokens.Authenticate(t.Context(), secret); !errors.Is(err, access.ErrUnauthenticated) {
		t.Errorf("a revoked token: %v", err)
	}
	list, more, err := tokens.List(t.Context(), "")
	if err != nil || more || len(list) != 1 || list[0].Name != "ci" || list[0].CreatedBy != "ann" || list[0].RevokedAt.IsZero() || list[0].CreatedAt.IsZero() {
		t.Errorf("%+v, %v", list, err)
	}
	if n := count(t, db, "SELECT COUNT(*) FROM ratelimit_audit WHERE subject = 'token ci' AND actor = 'ann'"); n != 2 {
		t.Errorf("%d audit rows: one for each change, none for what was refused", n)
	}
}

// A token keeps its workspaces in every read and after a rotation. Builds without workspaces refuse its stored role. A
// row whose role and workspaces contradict each other is refused.
func TestTokensKeepTheirWorkspaces(t *testing.T) { servers.EachSQL(t, testTokensKeepTheirWorkspaces) }

func testTokensKeepTheirWorkspaces(t *testing.T) {
	s, db := migrated(t)
	tokens, err := access.NewTokens(s, "")
	if err != nil {
		t.Fatal(err)
	}
	by := controlplane.By{Actor: "ann", Reason: "pipeline"}
	var most []string // the longest list of the longest names
	for i := range access.TokenWorkspacesMax {
		most = append(most, fmt.Sprintf("%02d", i)+strings.Repeat(",", window.WorkspaceBytesMax-2))
	}
	for name, want := range map[string][]string{"all": nil, "two": {"a,b %/c", "acme"}, "most": most} {
		secret, err := tokens.Create(t.Context(), name, access.RoleOperator, 0, by, want...)
		if err != nil {
			t.Fatal(err)
		}
		rotated, err := tokens.Rotate(t.Context(), name, time.Hour, 0, by)
		if err != nil {
			t.Fatal(err)
		}
		for _, secret := range []string{secret, rotated} {
			who, err := tokens.Authenticate(t.Context(), secret)
			if err != nil || who.Role != access.RoleOperator || !slices.Equal(who.Workspaces.Names(), want) {
				t.Errorf("%s: %+v of %q, %v", name, who, who.Workspaces.Names(), err)
			}
		}
		kept, _, err := s.TokenByName(t.Context(), name)
		if err != nil || kept.Role != access.RoleOperator || !slices.Equal(kept.Workspaces.Names(), want) {
			t.Errorf("%s by name: %+v, %v", name, kept, err)
		}
		var role string
		if err := db.QueryRowContext(t.Context(), "SELECT role FROM ratelimit_tokens WHERE name = ?", name).Scan(&role); err != nil || (access.Role(role) == access.RoleOperator) != (want == nil) {
			t.Errorf("%s is stored with the role %q, %v", name, role, err)
		}
		for _, broken := range []string{"role = 'operator', workspaces = 'acme'", "role = 'scoped-operator', workspaces = ''", "role = 'scoped-operator', workspaces = '%'"} {
			exec(t, db, "UPDATE ratelimit_tokens SET "+broken+" WHERE name = ?", name)
			if who, err := tokens.Authenticate(t.Context(), rotated); !errors.Is(err, access.ErrUnauthenticated) {
				t.Errorf("%s is let in as %+v, %v", broken, who, err)
			}
		}
	}
	list, _, err := tokens.List(t.Context(), "")
	if err != nil || len(list) != 3 || list[0].Role != "" {
		t.Errorf("%+v, %v", list, err)
	}
}

// A hanging MariaDB accepts connections but answers nothing. A token that it confirmed a moment ago still opens the
// API, within the timeout of a call.
func TestAUsedTokenOutlivesAHangingMySQL(t *testing.T) {
	servers.EachSQL(t, testAUsedTokenOutlivesAHangingMySQL)
}

func testAUsedTokenOutlivesAHangingMySQL(t *testing.T) {
	mysql := servers.SQLForTest(t)
	db := schematest.Open(t, mysql.DatabaseForTest(t), Open)
	tokens, err := access.NewTokens(New(db), "")
	if err != nil {
		t.Fatal(err)
	}
	secret, err := tokens.Create(t.Context(), "ops", access.RoleOperator, 0, controlplane.By{Actor: "ann", Reason: "on call"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tokens.Authenticate(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	if err := mysql.Freeze(); err != nil {
		t.Fatal(err)
	}
	call, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	var calls sync.WaitGroup
	for range connectionsMax + 1 { // more than there are connections
		calls.Go(func() {
			if who, err := tokens.Authenticate(call, secret); err != nil || who.Name != "ops" {
				t.Errorf("%+v, %v", who, err)
			}
		})
	}
	calls.Wait()
	if err := mysql.Thaw(); err != nil {
		t.Fatal(err)
	}
	if err := tokens.Revoke(t.Context(), "ops", controlplane.By{Actor: "ann", Reason: "leaked"}); err != nil {
		t.Fatal(err)
	}
	if _, err := tokens.Authenticate(t.Context(), secret); !errors.Is(err, access.ErrUnauthenticated) {
		t.Errorf("a revoked token, with MySQL back: %v", err)
	}
}

// A rotated token has two secrets until the overlap ends, and never three. An expired token opens nothing and cannot be
// rotated. Its use is recorded at most once in a period.
func TestTokensEnd(t *testing.T) { servers.EachSQL(t, testTokensEnd) }

func testTokensEnd(t *testing.T) {
	s, db := migrated(t)
	tokens, err := access.NewTokens(s, "")
	if err != nil {
		t.Fatal(err)
	}
	by := controlplane.By{Actor: "ann", Reason: "quarterly"}
	secrets := make([]string, 3)
	if secrets[0], err = tokens.Create(t.Context(), "ci", access.RoleOperator, time.Hour, by); err != nil {
		t.Fatal(err)
	}
	want := func(open ...bool) {
		t.Helper()
		for i, secret := range secrets {
			if secret == "" {
				continue
			}
			who, err := tokens.Authenticate(t.Context(), secret)
			if open[i] && (err != nil || who.Name != "ci" || who.Role != access.RoleOperator) || !open[i] && !errors.Is(err, access.ErrUnauthenticated) {
				t.Errorf("secret %d: %+v, %v", i, who, err)
			}
		}
	}
	want(true)
	if secrets[1], err = tokens.Rotate(t.Context(), "ci", time.Hour, 0, by); err != nil {
		t.Fatal(err)
	}
	want(true, true)
	if secrets[2], err = tokens.Rotate(t.Context(), "ci", time.Hour, 0, by); err != nil {
		t.Fatal(err)
	}
	want(false, true, true)
	list, _, err := tokens.List(t.Context(), "")
	if err != nil || len(list) != 1 || time.Until(list[0].ExpiresAt) > time.Hour || time.Until(list[0].OldUntil) > time.Hour || list[0].UsedAt.IsZero() || list[0].OldUntil.IsZero() {
		t.Fatalf("%+v, %v", list, err)
	}
	exec(t, db, "UPDATE ratelimit_tokens SET old_until = old_until - 3600000 - 1000, used_at = 7")
	want(false, false, true)
	if err := s.TokenUsed(t.Context(), "ci", time.Minute); err != nil || count(t, db, "SELECT COUNT(*) FROM ratelimit_tokens WHERE used_at > 7") != 1 {
		t.Errorf("its use is not noted: %v", err)
	}
	exec(t, db, "UPDATE ratelimit_tokens SET used_at = used_at - 50000")
	if err := s.TokenUsed(t.Context(), "ci", time.Hour); err != nil || count(t, db, "SELECT COUNT(*) FROM ratelimit_tokens WHERE used_at > UNIX_TIMESTAMP() * 1000 - 40000") != 0 {
		t.Errorf("its use is noted twice within the time: %v", err)
	}
	exec(t, db, "UPDATE ratelimit_tokens SET expires_at = expires_at - 3600000 - 1000")
	want(false, false, false)
	if _, err := tokens.Rotate(t.Context(), "ci", 0, time.Hour, by); !errors.Is(err, controlplane.ErrNotFound) {
		t.Errorf("an expired one: %v", err)
	}
	if n := count(t, db, "SELECT COUNT(*) FROM ratelimit_audit WHERE action = 'token.rotate'"); n != 2 {
		t.Errorf("%d audit rows", n)
	}
}

// TokenByName also finds tokens that have ended, because an approval is judged by the token that gave it.
func TestTokenByName(t *testing.T) { servers.EachSQL(t, testTokenByName) }

func testTokenByName(t *testing.T) {
	s, _ := migrated(t)
	tokens, err := access.NewTokens(s, "")
	if err != nil {
		t.Fatal(err)
	}
	by := controlplane.By{Actor: "ann", Reason: "pipeline"}
	if _, err := tokens.Create(t.Context(), "ci", access.RoleOperator, time.Hour, by); err != nil {
		t.Fatal(err)
	}
	found, now, err := s.TokenByName(t.Context(), "ci")
	if left := found.ExpiresAt.Sub(now); err != nil || found.Role != access.RoleOperator || !found.RevokedAt.IsZero() || left <= 59*time.Minute || left > time.Hour {
		t.Errorf("%+v at %v, %v", found, now, err)
	}
	if err := tokens.Revoke(t.Context(), "ci", by); err != nil {
		t.Fatal(err)
	}
	if found, _, err := s.TokenByName(t.Context(), "ci"); err != nil || found.RevokedAt.IsZero() {
		t.Errorf("%+v, %v", found, err)
	}
	if _, _, err := s.TokenByName(t.Context(), "CI"); !errors.Is(err, controlplane.ErrNotFound) {
		t.Errorf("another name: %v", err)
	}
}
