package access

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/audit"
	"github.com/weirhq/weir/shared/workspaces"
)

const (
	// TokenNameBytesMax bounds the name of a token.
	TokenNameBytesMax = 64
	// TokenWorkspacesMax bounds the workspaces of a token.
	TokenWorkspacesMax = 32
	// AdminTokenName is the actor for the token in weir-control's own file.
	AdminTokenName = "admin-token-file"

	// TokenPrefix begins every token, so that scanners for leaked secrets can find it.
	TokenPrefix = "weir_"

	tokenBytes    = 32
	secretLeast   = 32              // bytes of a token that an operator made
	rememberFor   = 5 * time.Minute // how long a token is accepted without MySQL
	vouchedWait   = time.Second     // for MySQL's answer about a remembered token
	remembersMost = 1000
	strangersMax  = 16          // concurrent checks of tokens that MySQL has not confirmed yet
	usedWithin    = time.Minute // between two records of a token's use
)

// Role is the permission of a token. Each role includes the roles before it.
type Role string

// The roles.
const (
	RoleViewer   Role = "viewer"   // read
	RoleOperator Role = "operator" // read, and change settings and work under way
	RoleAdmin    Role = "admin"    // all of that, and create and revoke tokens
)

var rank = map[Role]int{RoleViewer: 1, RoleOperator: 2, RoleAdmin: 3}

// May reports whether a role suffices where another role is required.
func (r Role) May(needs Role) bool { return rank[r] > 0 && rank[needs] > 0 && rank[r] >= rank[needs] }

// Identity is the caller of a request.
type Identity struct {
	Name       string // name in the audit log
	Role       Role
	Workspaces *workspaces.Set // workspaces that the caller may read and change
}

// Token is a stored token, without its secret.
type Token struct {
	Name      string
	Role      Role
	CreatedBy string

	Workspaces *workspaces.Set // workspaces for which the token is valid

	CreatedAt time.Time
	RevokedAt time.Time // zero: not revoked
	ExpiresAt time.Time // zero: never
	UsedAt    time.Time // time of its last call, to a minute; zero: there was none
	OldUntil  time.Time // until when the secret before the last rotation is valid; zero: not rotated
}

// Holder is the identity that a secret belongs to, and for how long it is valid.
type Holder struct {
	Identity
	Left time.Duration // until the secret expires; 0: it does not expire
}

// TokenSecret is a secret as stored, and for how long it is valid.
type TokenSecret struct {
	Hash      TokenHash
	ExpiresIn time.Duration // 0: it does not expire or, in a rotation, expires at the same time as before
}

// TokenHash is the stored hash of a secret. Secrets are random and long, so a single round of SHA-256 is enough.
type TokenHash [sha256.Size]byte

// HashToken hashes a secret.
func HashToken(secret string) TokenHash { return sha256.Sum256([]byte(secret)) }

// TokenStore stores tokens. Each change and its audit entry must be atomic. Implementations must allow concurrent
// calls.
type TokenStore interface {
	// InsertToken adds a token. It returns controlplane.ErrConflict if the name was ever used.
	InsertToken(ctx context.Context, t Token, secret TokenSecret, e audit.Entry) error
	// TokenByHash finds a valid token by its present or previous secret. It returns controlplane.ErrNotFound if there is
	// none.
	TokenByHash(ctx context.Context, hash TokenHash) (Holder, error)
	// TokenByName returns the token with a name, valid or not, and the clock by which its times were set. It returns
	// controlplane.ErrNotFound if there is none.
	TokenByName(ctx context.Context, name string) (t Token, now time.Time, err error)
	// TokenUsed records the use of a token, unless a use was recorded within a time.
	TokenUsed(ctx context.Context, name string, within time.Duration) error
	// RotateToken gives a valid token a new secret. The previous secret stays valid for overlap. It returns
	// controlplane.ErrNotFound if there is no such token.
	RotateToken(ctx context.Context, name string, secret TokenSecret, overlap time.Duration,
		e audit.Entry) error
	// RevokeToken revokes a valid token. It returns controlplane.ErrNotFound if there is none.
	RevokeToken(ctx context.Context, name string, e audit.Entry) error
	// Tokens returns at most rows tokens whose names sort after a name, in order.
	Tokens(ctx context.Context, after string, rows int) ([]Token, error)
}

// ErrUnauthenticated is wrapped by errors about a token that is not valid.
var ErrUnauthenticated = errors.New("not authenticated")

// Tokens creates and authenticates tokens.
//
// A revoked token is rejected at once. Operators need access during an outage. So if MySQL does not answer within a
// second, or answers with an error of its own, tokens that it has confirmed within the last five minutes are still
// accepted until they expire. A token that was revoked through this process is not accepted then.
type Tokens struct {
	store     TokenStore
	admin     *TokenHash    // hash of the secret in a file; nil: no such file
	strangers chan struct{} // holds one element for each running check of an unconfirmed token

	mu    sync.Mutex
	known map[TokenHash]vouched
	noted map[string]time.Time // when the use of a token was last recorded, or tried to be
}

type vouched struct {
	Holder
	at time.Time
}

// holds reports whether MySQL's confirmation still counts.
func (v vouched) holds() bool {
	age := time.Since(v.at)
	return age < rememberFor && (v.Left == 0 || age < v.Left)
}

// NewTokens returns the tokens in store. adminSecret is also accepted, with the role admin, so that the first token can
// be created; empty: there is none.
func NewTokens(store TokenStore, adminSecret string) (*Tokens, error) {
	t := &Tokens{store: store, strangers: make(chan struct{}, strangersMax), known: map[TokenHash]vouched{},
		noted: map[string]time.Time{}}
	if adminSecret != "" {
		if len(adminSecret) < secretLeast {
			return nil, fmt.Errorf("%w: the admin token is %d bytes long (%d or more: openssl rand -hex 32)",
				controlplane.ErrInvalid,
				len(adminSecret), secretLeast)
		}
		hash := HashToken(adminSecret)
		t.admin = &hash
	}
	return t, nil
}

// Authenticate returns the identity that a secret belongs to. Errors wrap ErrUnauthenticated or
// controlplane.ErrUnavailable.
func (t *Tokens) Authenticate(ctx context.Context, secret string) (Identity, error) {
	return t.Holder(ctx, HashToken(secret))
}

// Holder is Authenticate for callers that have only the hash of a secret.
func (t *Tokens) Holder(ctx context.Context, hash TokenHash) (Identity, error) {
	if t.admin != nil && subtle.ConstantTimeCompare(hash[:], t.admin[:]) == 1 {
		return Identity{Name: AdminTokenName, Role: RoleAdmin}, nil
	}
	last, known := t.recall(hash)
	asking, cancel := ctx, context.CancelFunc(func() {})
	if known { // a hanging MySQL must not use up the timeout of the call itself
		asking, cancel = context.WithTimeout(ctx, vouchedWait)
	}
	defer cancel()
	if !known { // while MySQL hangs, invented tokens must not use up the slots of operators' calls
		select {
		case t.strangers <- struct{}{}:
			defer func() { <-t.strangers }()
		default:
			return Identity{}, fmt.Errorf("%w: more than %d tokens are being checked at once", controlplane.ErrUnavailable,
				strangersMax)
		}
	}
	holder, err := t.store.TokenByHash(asking, hash)
	switch {
	case err == nil:
		t.remember(hash, holder)
		t.used(ctx, holder.Name)
		return holder.Identity, nil
	case errors.Is(err, controlplane.ErrNotFound):
		t.forget(func(h TokenHash, _ vouched) bool { return h == hash })
		return Identity{}, fmt.Errorf("%w: the token is unknown, expired or revoked", ErrUnauthenticated)
	case known && ctx.Err() == nil:
		return last, nil
	}
	return Identity{}, fmt.Errorf("check the token: %w", err)
}

// recall returns the identity of a token that MySQL has confirmed within rememberFor.
func (t *Tokens) recall(hash TokenHash) (Identity, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	last, ok := t.known[hash]
	return last.Identity, ok && last.holds()
}

// used records the use of a token, at most once a minute. A failure to record it must not fail the call.
func (t *Tokens) used(ctx context.Context, name string) {
	t.mu.Lock()
	fresh := time.Since(t.noted[name]) < usedWithin
	if !fresh {
		if len(t.noted) >= remembersMost {
			clear(t.noted)
		}
		t.noted[name] = time.Now()
	}
	t.mu.Unlock()
	if fresh {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, vouchedWait)
	defer cancel()
	_ = t.store.TokenUsed(ctx, name, usedWithin)
}

func (t *Tokens) remember(hash TokenHash, holder Holder) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.known) >= remembersMost {
		clear(t.known)
	}
	t.known[hash] = vouched{holder, time.Now()}
}

func (t *Tokens) forget(which func(TokenHash, vouched) bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	maps.DeleteFunc(t.known, which)
}

// Revoke ends a token.
func (t *Tokens) Revoke(ctx context.Context, name string, by controlplane.By) error {
	if err := validateTokenName(name); err != nil {
		return err
	}
	e := audit.Entry{By: by, Action: "token.revoke", Subject: "token " + name}
	if err := e.Validate(); err != nil {
		return err
	}
	if err := t.store.RevokeToken(ctx, name, e); err != nil {
		return fmt.Errorf("revoke token %s: %w", name, err)
	}
	t.forget(func(_ TokenHash, v vouched) bool { return v.Name == name })
	return nil
}

// List returns the tokens whose names sort after a name, including revoked tokens, at most controlplane.PageMax, in
// order. more reports whether further tokens follow.
func (t *Tokens) List(ctx context.Context, after string) (tokens []Token, more bool, err error) {
	return controlplane.Page(t.store.Tokens(ctx, after, controlplane.PageMax+1))
}

func validateTokenName(name string) error {
	if err := controlplane.ValidateText("token name", name, TokenNameBytesMax); err != nil {
		return err
	}
	if name == AdminTokenName || strings.HasPrefix(name, TokenPrefix) || name == controlplane.Itself {
		return fmt.Errorf("%w: token name %q is taken", controlplane.ErrInvalid, name)
	}
	return nil
}
