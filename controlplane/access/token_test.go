package access

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/audit"
	"github.com/weirhq/weir/controlplane/internal/controltest"
	"github.com/weirhq/weir/shared/workspaces"
)

// vault stores tokens in memory.
type vault struct {
	tokens  map[string]TokenHash // valid tokens
	roles   map[string]Role
	valid   map[string]*workspaces.Set
	audit   []audit.Entry
	err     error
	left    time.Duration // of each token that is found; 0: without end
	used    []string
	now     time.Time
	expires map[string]time.Time
	hangs   bool // like a stopped MySQL: a call ends when its context does
}

func newVault() *vault {
	return &vault{tokens: map[string]TokenHash{}, roles: map[string]Role{}, valid: map[string]*workspaces.Set{}}
}

// newTokens returns the tokens of a vault, without an admin token.
func newTokens(t *testing.T) (*vault, *Tokens) {
	t.Helper()
	v := newVault()
	tokens, err := NewTokens(v, "")
	if err != nil {
		t.Fatal(err)
	}
	return v, tokens
}

func (v *vault) InsertToken(_ context.Context, t Token, secret TokenSecret, e audit.Entry) error {
	if _, used := v.roles[t.Name]; used {
		return fmt.Errorf("%w: used", controlplane.ErrConflict)
	}
	v.tokens[t.Name], v.roles[t.Name], v.left, v.valid[t.Name] = secret.Hash, t.Role, secret.ExpiresIn, t.Workspaces
	v.audit = append(v.audit, e)
	return v.err
}

func (v *vault) TokenByHash(ctx context.Context, hash TokenHash) (Holder, error) {
	if v.hangs {
		<-ctx.Done()
		return Holder{}, fmt.Errorf("MySQL did not answer in time: %w", ctx.Err())
	}
	if v.err != nil {
		return Holder{}, v.err
	}
	for name, have := range v.tokens {
		if have == hash {
			return Holder{Identity{Name: name, Role: v.roles[name], Workspaces: v.valid[name]}, v.left}, nil
		}
	}
	return Holder{}, controlplane.ErrNotFound
}

func (v *vault) TokenByName(_ context.Context, name string) (Token, time.Time, error) {
	role, there := v.roles[name]
	switch {
	case v.err != nil:
		return Token{}, time.Time{}, v.err
	case !there:
		return Token{}, time.Time{}, controlplane.ErrNotFound
	}
	t := Token{Name: name, Role: role, Workspaces: v.valid[name], ExpiresAt: v.expires[name]}
	if _, ok := v.tokens[name]; !ok {
		t.RevokedAt = v.now
	}
	return t, v.now, nil
}

func (v *vault) TokenUsed(_ context.Context, name string, _ time.Duration) error {
	v.used = append(v.used, name)
	return errors.New("read-only")
}

func (v *vault) RotateToken(_ context.Context, name string, secret TokenSecret, overlap time.Duration, e audit.Entry) error {
	if _, ok := v.tokens[name]; !ok {
		return controlplane.ErrNotFound
	}
	if overlap > 0 {
		v.tokens["before "+name], v.roles["before "+name] = v.tokens[name], v.roles[name]
	}
	v.tokens[name] = secret.Hash
	v.audit = append(v.audit, e)
	return nil
}

func (v *vault) RevokeToken(_ context.Context, name string, e audit.Entry) error {
	if _, ok := v.tokens[name]; !ok {
		return controlplane.ErrNotFound
	}
	delete(v.tokens, name)
	v.audit = append(v.audit, e)
	return nil
}

func (v *vault) Tokens(context.Context, string, int) ([]Token, error) { return nil, v.err }

func TestTokens(t *testing.T) {
	v, tokens := newTokens(t)
	secret, err := tokens.Create(t.Context(), "ci", RoleOperator, 0, controltest.Ann)
	if err != nil || !strings.HasPrefix(secret, TokenPrefix) || len(secret) < 40 {
		t.Fatalf("%q, %v", secret, err)
	}
	if who, err := tokens.Authenticate(t.Context(), secret); err != nil || who != (Identity{Name: "ci", Role: RoleOperator}) {
		t.Errorf("%+v, %v", who, err)
	}
	if _, err := tokens.Create(t.Context(), "ci", RoleViewer, 0, controltest.Ann); !errors.Is(err, controlplane.ErrConflict) {
		t.Errorf("a name twice: %v", err)
	}
	if err := tokens.Revoke(t.Context(), "ci", controltest.Ann); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{secret, secret + "x", "", "weir_"} {
		if _, err := tokens.Authenticate(t.Context(), bad); !errors.Is(err, ErrUnauthenticated) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	if err := tokens.Revoke(t.Context(), "ci", controltest.Ann); !errors.Is(err, controlplane.ErrNotFound) {
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
		if _, err := tokens.Create(t.Context(), name, RoleViewer, 0, controltest.Ann); !errors.Is(err, controlplane.ErrInvalid) {
			t.Errorf("name %q: %v", name, err)
		}
	}
	_, err = tokens.Create(t.Context(), "ci", "root", 0, controltest.Ann)
	controltest.WantInvalid(t, err, `role is "root" (viewer, operator or admin)`)
	_, err = tokens.Create(t.Context(), "ci", RoleViewer, 0, controlplane.By{Actor: "ann"})
	controltest.WantInvalid(t, err, "reason is empty")
	_, err = NewTokens(newVault(), "short")
	controltest.WantInvalid(t, err, "the admin token is 5 bytes long (32 or more")
}

// The token in the file needs no database, and is an admin.
func TestAdminToken(t *testing.T) {
	v := newVault()
	v.err = controlplane.ErrUnavailable
	file := strings.Repeat("0123456789abcdef", 4)
	tokens, err := NewTokens(v, file)
	if err != nil {
		t.Fatal(err)
	}
	if who, err := tokens.Authenticate(t.Context(), file); err != nil || who != (Identity{Name: AdminTokenName, Role: RoleAdmin}) {
		t.Errorf("%+v, %v", who, err)
	}
	if _, err := tokens.Authenticate(t.Context(), file[1:]); !errors.Is(err, controlplane.ErrUnavailable) {
		t.Errorf("%v", err)
	}
}

// While MySQL does not answer, tokens that it has confirmed within the last five minutes are still accepted. A token
// that it has rejected since is not.
func TestTokensOutliveAnOutageForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, tokens := newTokens(t)
		secret, _ := tokens.Create(t.Context(), "ci", RoleViewer, 0, controltest.Ann)
		if _, err := tokens.Authenticate(t.Context(), secret); err != nil {
			t.Fatal(err)
		}
		v.err = fmt.Errorf("%w: down", controlplane.ErrUnavailable)
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
		v.err = controlplane.ErrUnavailable
		if _, err := tokens.Authenticate(t.Context(), secret); err == nil {
			t.Error("a revoked token is taken in an outage")
		}
	})
}

// A hanging MySQL refuses no connection but answers nothing. A remembered token is accepted after vouchedWait, well
// before the deadline of its call. Any other token is rejected.
func TestTokensOutliveAHangingMySQL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, tokens := newTokens(t)
		used, _ := tokens.Create(t.Context(), "used", RoleOperator, 0, controltest.Ann)
		unused, _ := tokens.Create(t.Context(), "unused", RoleOperator, 0, controltest.Ann)
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

// While MySQL hangs, only a bounded number of invented tokens is checked at once; a further token is rejected at once.
// A remembered token is still accepted.
func TestMadeUpTokensAreCheckedAFewAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, tokens := newTokens(t)
		used, _ := tokens.Create(t.Context(), "used", RoleOperator, 0, controltest.Ann)
		if _, err := tokens.Authenticate(t.Context(), used); err != nil {
			t.Fatal(err)
		}
		v.hangs = true
		call, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		refused := make(chan error, 10*strangersMax)
		for i := range cap(refused) {
			go func() {
				_, err := tokens.Authenticate(call, fmt.Sprint("made up ", i))
				refused <- err
			}()
		}
		synctest.Wait()
		if n := len(refused); n != cap(refused)-strangersMax {
			t.Errorf("%d of %d checks of made-up tokens have ended at once, want all but %d", n, cap(refused), strangersMax)
		}
		if err := <-refused; !errors.Is(err, controlplane.ErrUnavailable) {
			t.Errorf("one too many: %v", err)
		}
		if who, err := tokens.Authenticate(call, used); err != nil || who.Name != "used" {
			t.Errorf("a remembered token: %+v, %v", who, err)
		}
		cancel()
		synctest.Wait()
		v.hangs = false
		if _, err := tokens.Authenticate(t.Context(), "made up"); !errors.Is(err, ErrUnauthenticated) {
			t.Errorf("afterwards: %v", err)
		}
	})
}

// If MySQL answers with an error of its own ("too many connections"), that is not a rejection of the token either.
func TestAnErrorOfMySQLIsNoVerdictOnAToken(t *testing.T) {
	v, tokens := newTokens(t)
	secret, _ := tokens.Create(t.Context(), "ci", RoleViewer, 0, controltest.Ann)
	if _, err := tokens.Authenticate(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	v.err = errors.New("Error 1040: Too many connections")
	if _, err := tokens.Authenticate(t.Context(), secret); err != nil {
		t.Error(err)
	}
}

// A token that is revoked through this process is forgotten at once, because MySQL may stop answering in the next
// moment.
func TestARevokedTokenIsForgotten(t *testing.T) {
	v, tokens := newTokens(t)
	secret, _ := tokens.Create(t.Context(), "ci", RoleViewer, 0, controltest.Ann)
	if _, err := tokens.Authenticate(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	if err := tokens.Revoke(t.Context(), "ci", controltest.Ann); err != nil {
		t.Fatal(err)
	}
	v.err = controlplane.ErrUnavailable
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

// A use is recorded once a minute, and a failure to record it does not fail the call.
func TestTheUseOfATokenIsNoted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, tokens := newTokens(t)
		secret, err := tokens.Create(t.Context(), "ci", RoleOperator, 0, controltest.Ann)
		if err != nil {
			t.Fatal(err)
		}
		for range 130 {
			if _, err := tokens.Authenticate(t.Context(), secret); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		if len(v.used) != 3 {
			t.Errorf("noted %d times in 130 s", len(v.used))
		}
	})
}

// While MySQL is down, a token that it has confirmed is accepted, but not beyond its expiry.
func TestATokenEndsWhileMySQLIsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, tokens := newTokens(t)
		secret, err := tokens.Create(t.Context(), "ci", RoleOperator, 2*time.Minute, controltest.Ann)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tokens.Authenticate(t.Context(), secret); err != nil {
			t.Fatal(err)
		}
		v.err = controlplane.ErrUnavailable
		time.Sleep(2*time.Minute - time.Second)
		if _, err := tokens.Authenticate(t.Context(), secret); err != nil {
			t.Errorf("before its end: %v", err)
		}
		time.Sleep(time.Second)
		if who, err := tokens.Authenticate(t.Context(), secret); !errors.Is(err, controlplane.ErrUnavailable) {
			t.Errorf("after it: %+v, %v", who, err)
		}
	})
}

// A rotation makes a new secret, and the audit log has the time for which the previous secret stays valid. An expiry
// out of bounds is rejected.
func TestRotate(t *testing.T) {
	v, tokens := newTokens(t)
	before, err := tokens.Create(t.Context(), "ci", RoleOperator, time.Hour, controltest.Ann)
	if err != nil {
		t.Fatal(err)
	}
	after, err := tokens.Rotate(t.Context(), "ci", time.Minute, 0, controltest.Ann)
	if err != nil || after == before || !strings.HasPrefix(after, TokenPrefix) {
		t.Fatalf("%q, %v", after, err)
	}
	for _, secret := range []string{before, after} {
		if _, err := tokens.Authenticate(t.Context(), secret); err != nil {
			t.Error(err)
		}
	}
	if len(v.audit) != 2 || v.audit[0].After != `{"role":"operator","expires_in_ms":3600000}` || v.audit[1].Action != "token.rotate" || v.audit[1].After != `{"overlap_ms":60000}` {
		t.Errorf("%+v", v.audit)
	}
	for says, do := range map[string]func() (string, error){
		"not found": func() (string, error) { return tokens.Rotate(t.Context(), "other", 0, 0, controltest.Ann) },
		"overlap_ms is -1 (0 to 2592000000)": func() (string, error) {
			return tokens.Rotate(t.Context(), "ci", -time.Millisecond, 0, controltest.Ann)
		},
		"expires_in_ms is 59999 (60000 to ": func() (string, error) {
			return tokens.Rotate(t.Context(), "ci", 0, time.Minute-time.Millisecond, controltest.Ann)
		},
		"expires_in_ms is -1 (60000 to ": func() (string, error) {
			return tokens.Create(t.Context(), "new", RoleViewer, -time.Millisecond, controltest.Ann)
		},
		"reason is empty": func() (string, error) { return tokens.Rotate(t.Context(), "ci", 0, 0, controlplane.By{Actor: "ann"}) },
	} {
		if _, err := do(); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want %s", err, says)
		}
	}
}

// A token with workspaces is a viewer or an operator. Its names are within their bounds, and there are at most 32.
func TestTheWorkspacesOfATokenHaveBounds(t *testing.T) {
	for says, tc := range map[string]struct {
		role  Role
		names []string
	}{
		"role is \"admin\" (viewer or operator if workspaces is set)": {RoleAdmin, []string{"acme"}},
		"workspaces has a name of 0 bytes (1 to 191)":                 {RoleViewer, []string{"acme", ""}},
		"workspaces has a name of 192 bytes (1 to 191)":               {RoleViewer, []string{strings.Repeat("x", 192)}},
		"workspaces has 33 names (at most 32)":                        {RoleOperator, slices.Repeat([]string{"acme"}, 33)},
	} {
		tokens, err := NewTokens(newVault(), "")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tokens.Create(t.Context(), "ci", tc.role, 0, controltest.Ann, tc.names...); !errors.Is(err, controlplane.ErrInvalid) || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want %s", err, says)
		}
	}
}

// A token keeps its workspaces while MySQL does not answer.
func TestATokenKeepsItsWorkspacesInAnOutage(t *testing.T) {
	v, tokens := newTokens(t)
	secret, err := tokens.Create(t.Context(), "ci", RoleViewer, 0, controltest.Ann, "acme")
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		who, err := tokens.Authenticate(t.Context(), secret)
		if err != nil || !slices.Equal(who.Workspaces.Names(), []string{"acme"}) {
			t.Errorf("%+v, %v", who, err)
		}
		v.err = fmt.Errorf("%w: MySQL", controlplane.ErrUnavailable)
	}
}
