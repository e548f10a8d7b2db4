package controlplane

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// vault keeps tokens in memory.
type vault struct {
	tokens map[string]TokenHash // in force
	roles  map[string]Role
	audit  []AuditEntry
	err    error
	hangs  bool // as MySQL that is stopped: a call ends when its context does
}

func newVault() *vault { return &vault{tokens: map[string]TokenHash{}, roles: map[string]Role{}} }

func (v *vault) InsertToken(_ context.Context, t Token, hash TokenHash, e AuditEntry) error {
	if _, used := v.roles[t.Name]; used {
		return fmt.Errorf("%w: used", ErrConflict)
	}
	v.tokens[t.Name], v.roles[t.Name] = hash, t.Role
	v.audit = append(v.audit, e)
	return v.err
}

func (v *vault) TokenByHash(ctx context.Context, hash TokenHash) (Identity, error) {
	if v.hangs {
		<-ctx.Done()
		return Identity{}, fmt.Errorf("MySQL did not answer in time: %w", ctx.Err())
	}
	if v.err != nil {
		return Identity{}, v.err
	}
	for name, have := range v.tokens {
		if have == hash {
			return Identity{Name: name, Role: v.roles[name]}, nil
		}
	}
	return Identity{}, ErrNotFound
}

func (v *vault) RevokeToken(_ context.Context, name string, e AuditEntry) error {
	if _, ok := v.tokens[name]; !ok {
		return ErrNotFound
	}
	delete(v.tokens, name)
	v.audit = append(v.audit, e)
	return nil
}

func (v *vault) Tokens(context.Context, string, int) ([]Token, error) { return nil, v.err }

func TestTokens(t *testing.T) {
	v := newVault()
	tokens, err := NewTokens(v, "")
	if err != nil {
		t.Fatal(err)
	}
	secret, err := tokens.Create(t.Context(), "ci", RoleOperator, ann)
	if err != nil || !strings.HasPrefix(secret, TokenPrefix) || len(secret) < 40 {
		t.Fatalf("%q, %v", secret, err)
	}
	if who, err := tokens.Authenticate(t.Context(), secret); err != nil || who != (Identity{"ci", RoleOperator}) {
		t.Errorf("%+v, %v", who, err)
	}
	if _, err := tokens.Create(t.Context(), "ci", RoleViewer, ann); !errors.Is(err, ErrConflict) {
		t.Errorf("a name twice: %v", err)
	}
	if err := tokens.Revoke(t.Context(), "ci", ann); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{secret, secret + "x", "", "weir_"} {
		if _, err := tokens.Authenticate(t.Context(), bad); !errors.Is(err, ErrUnauthenticated) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	if err := tokens.Revoke(t.Context(), "ci", ann); !errors.Is(err, ErrNotFound) {
		t.Errorf("revoked twice: %v", err)
	}
	if len(v.audit) != 2 || v.audit[0].Action != "token.create" || v.audit[0].After != `{"role":"operator"}` || v.audit[1].Action != "token.revoke" || v.audit[1].Subject != "token ci" {
		t.Errorf("%+v", v.audit)
	}
	for _, e := range v.audit {
		if strings.Contains(fmt.Sprint(e), secret) {
			t.Error("the secret is in the audit log")
		}
	}
}

func TestTokenRefusals(t *testing.T) {
	tokens, err := NewTokens(newVault(), "")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"", strings.Repeat("x", 65), AdminTokenName, "weir-control", "weir_abc"} {
		if _, err := tokens.Create(t.Context(), name, RoleViewer, ann); !errors.Is(err, ErrInvalid) {
			t.Errorf("name %q: %v", name, err)
		}
	}
	_, err = tokens.Create(t.Context(), "ci", "root", ann)
	wantInvalid(t, err, `role is "root" (viewer, operator or admin)`)
	_, err = tokens.Create(t.Context(), "ci", RoleViewer, By{Actor: "ann"})
	wantInvalid(t, err, "reason is empty")
	_, err = NewTokens(newVault(), "short")
	wantInvalid(t, err, "the admin token is 5 bytes long (32 or more")
}

// The token of the file needs no database, and is an admin's.
func TestAdminToken(t *testing.T) {
	v := newVault()
	v.err = ErrUnavailable
	file := strings.Repeat("0123456789abcdef", 4)
	tokens, err := NewTokens(v, file)
	if err != nil {
		t.Fatal(err)
	}
	if who, err := tokens.Authenticate(t.Context(), file); err != nil || who != (Identity{AdminTokenName, RoleAdmin}) {
		t.Errorf("%+v, %v", who, err)
	}
	if _, err := tokens.Authenticate(t.Context(), file[1:]); !errors.Is(err, ErrUnavailable) {
		t.Errorf("%v", err)
	}
}

// While MySQL does not answer, tokens that it has vouched for within the last five
// minutes are still taken; one that it has refused since is not.
func TestTokensOutliveAnOutageForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newVault()
		tokens, _ := NewTokens(v, "")
		secret, _ := tokens.Create(t.Context(), "ci", RoleViewer, ann)
		if _, err := tokens.Authenticate(t.Context(), secret); err != nil {
			t.Fatal(err)
		}
		v.err = fmt.Errorf("%w: down", ErrUnavailable)
		for _, step := range []struct {
			after time.Duration
			taken bool
		}{{4 * time.Minute, true}, {59 * time.Second, true}, {time.Second, false}} {
			<-time.After(step.after)
			if _, err := tokens.Authenticate(t.Context(), secret); (err == nil) != step.taken {
				t.Errorf("after %v more: %v", step.after, err)
			}
		}
		v.err = nil
		_, _ = tokens.Authenticate(t.Context(), secret)
		delete(v.tokens, "ci")
		_, _ = tokens.Authenticate(t.Context(), secret)
		v.err = ErrUnavailable
		if _, err := tokens.Authenticate(t.Context(), secret); err == nil {
			t.Error("a revoked token is taken in an outage")
		}
	})
}

// MySQL that hangs refuses no connection and answers nothing: a remembered token is taken
// after vouchedWait, well before the deadline of its call, and any other is refused.
func TestTokensOutliveAHangingMySQL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newVault()
		tokens, _ := NewTokens(v, "")
		used, _ := tokens.Create(t.Context(), "used", RoleOperator, ann)
		unused, _ := tokens.Create(t.Context(), "unused", RoleOperator, ann)
		if _, err := tokens.Authenticate(t.Context(), used); err != nil {
			t.Fatal(err)
		}
		v.hangs = true
		call, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		begun := time.Now()
		if who, err := tokens.Authenticate(call, used); err != nil || who.Name != "used" || time.Since(begun) != vouchedWait {
			t.Errorf("%+v, %v after %v", who, err, time.Since(begun))
		}
		if _, err := tokens.Authenticate(call, unused); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a token that MySQL never vouched for: %v", err)
		}
		if _, err := tokens.Authenticate(call, used); err == nil {
			t.Error("a call whose time is over is let in")
		}
		<-time.After(rememberFor)
		late, cancelLate := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancelLate()
		if _, err := tokens.Authenticate(late, used); err == nil {
			t.Error("a token is remembered for longer than 5 minutes")
		}
	})
}

// MySQL that answers with an error of its own ("too many connections") has said nothing
// about the token either.
func TestAnErrorOfMySQLIsNoVerdictOnAToken(t *testing.T) {
	v := newVault()
	tokens, _ := NewTokens(v, "")
	secret, _ := tokens.Create(t.Context(), "ci", RoleViewer, ann)
	if _, err := tokens.Authenticate(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	v.err = errors.New("Error 1040: Too many connections")
	if _, err := tokens.Authenticate(t.Context(), secret); err != nil {
		t.Error(err)
	}
}

// A token that is revoked through this process is forgotten at once: MySQL may stop
// answering in the next moment.
func TestARevokedTokenIsForgotten(t *testing.T) {
	v := newVault()
	tokens, _ := NewTokens(v, "")
	secret, _ := tokens.Create(t.Context(), "ci", RoleViewer, ann)
	if _, err := tokens.Authenticate(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	if err := tokens.Revoke(t.Context(), "ci", ann); err != nil {
		t.Fatal(err)
	}
	v.err = ErrUnavailable
	if _, err := tokens.Authenticate(t.Context(), secret); err == nil {
		t.Error("a revoked token is taken in an outage")
	}
}

func TestRoles(t *testing.T) {
	roles := []Role{RoleViewer, RoleOperator, RoleAdmin}
	for i, has := range roles {
		for j, needs := range roles {
			if has.May(needs) != (i >= j) {
				t.Errorf("%s may what needs %s: %v", has, needs, has.May(needs))
			}
		}
		if Role("").May(has) || has.May("") {
			t.Error("no role is a role")
		}
	}
}
