package access

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/controlplane/internal/controltest"
)

// An approval ends with the credential with which it was given, or when the credential's role no longer suffices.
func TestApprovalsEndWithTheirCredentials(t *testing.T) {
	v := newVault()
	v.now = time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC)
	v.expires = map[string]time.Time{"expired": v.now, "expires": v.now.Add(time.Millisecond)}
	tokens, err := NewTokens(v, strings.Repeat("s", 32))
	if err != nil {
		t.Fatal(err)
	}
	for name, role := range map[string]Role{"operator": RoleOperator, "admin": RoleAdmin, "viewer": RoleViewer, "revoked": RoleAdmin, "expired": RoleAdmin, "expires": RoleOperator} {
		if _, err := tokens.Create(t.Context(), name, role, 0, controltest.Ann); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := tokens.Create(t.Context(), "scoped", RoleOperator, 0, controltest.Ann, "acme"); err != nil {
		t.Fatal(err)
	}
	if err := tokens.Revoke(t.Context(), "revoked", controltest.Ann); err != nil {
		t.Fatal(err)
	}
	c := Credentials{Tokens: tokens, Required: true, Subjects: map[string]Role{"spiffe://corp/bob": RoleOperator, "spiffe://corp/eve": RoleViewer}}
	all := []string{"scoped", "operator", "admin", "viewer", "revoked", "expired", "expires", "nobody", AdminTokenName, "spiffe://corp/bob", "spiffe://corp/eve", "operator"}
	for role, want := range map[Role]map[string]string{
		RoleOperator: {
			"scoped": "the token is limited to some workspaces",
			"viewer": "the token's role is viewer (at least operator)", "revoked": "the token was revoked at 2026-01-02 15:04:05.000Z",
			"expired": "the token expired at 2026-01-02 15:04:05.000Z", "nobody": "there is no such token, and no certificate with a role",
			"spiffe://corp/eve": "the certificate's role is viewer (at least operator)",
		},
		RoleAdmin: {
			"scoped": "limited to some workspaces",
			"viewer": "viewer", "revoked": "revoked", "expired": "expired", "nobody": "no such token", "spiffe://corp/eve": "viewer",
			"operator": "the token's role is operator (at least admin)", "expires": "operator", "spiffe://corp/bob": "operator",
		},
	} {
		ended, err := c.Ended(t.Context(), all, role)
		if err != nil || len(ended) != len(want) {
			t.Errorf("%s: %v, %v", role, ended, err)
		}
		for actor, why := range want {
			if !strings.Contains(ended[actor], why) {
				t.Errorf("%s as %s: %q, want %q", actor, role, ended[actor], why)
			}
		}
	}
	withoutFile, err := NewTokens(v, "")
	if err != nil {
		t.Fatal(err)
	}
	if ended, err := (Credentials{Tokens: withoutFile, Required: true}).Ended(t.Context(), []string{AdminTokenName}, RoleOperator); err != nil || len(ended) != 1 {
		t.Errorf("the token of a file that is gone: %v, %v", ended, err)
	}
	if ended, err := (Credentials{Tokens: withoutFile}).Ended(t.Context(), all, RoleAdmin); err != nil || len(ended) != 0 {
		t.Errorf("where nobody is authenticated: %v, %v", ended, err)
	}
	v.err = errors.New("MySQL is away")
	if ended, err := c.Ended(t.Context(), []string{"operator"}, RoleOperator); err == nil {
		t.Errorf("nobody can tell, and %v have ended", ended)
	}
}
