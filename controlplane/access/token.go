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
	// AdminTokenName is the actor that the token of weir-control's own file stands for.
	AdminTokenName = "admin-token-file"

	// TokenPrefix begins every token, so that searches for leaked secrets find it.
	TokenPrefix = "weir_"

	tokenBytes    = 32
	secretLeast   = 32              // bytes of a token that somebody else made
	rememberFor   = 5 * time.Minute // without MySQL
	vouchedWait   = time.Second     // for MySQL's verdict on a token that is remembered
	remembersMost = 1000
	strangersMax  = 16          // concurrent checks of tokens that MySQL has not confirmed yet
	usedWithin    = time.Minute // between two notes of a token's use
)

// Role is what a token may do. Each may do what those before it may.
type Role string

// The roles.
const (
	RoleViewer   Role = "viewer"   // look
	RoleOperator Role = "operator" // change what is under way, and what is set
	RoleAdmin    Role = "admin"    // make and revoke tokens
)

var rank = map[Role]int{RoleViewer: 1, RoleOperator: 2, RoleAdmin: 3}

// May tells whether a role suffices for what needs another.
func (r Role) May(needs Role) bool { return rank[r] > 0 && rank[needs] > 0 && rank[r] >= rank[needs] }

// Identity is who makes a call.
type Identity struct {
	Name       string // name in the audit log
	Role       Role
	Workspaces *workspaces.Set // that the holder may see and change
}

// Token is a token as it is kept: without its secret.
type Token struct {
	Name      string
	Role      Role
	CreatedBy string

	Workspaces *workspaces.Set // for which the token is valid

	CreatedAt time.Time
	RevokedAt time.Time // zero: it was not
	ExpiresAt time.Time // zero: never
	UsedAt    time.Time // of its last call, to a minute; zero: there was none
	OldUntil  time.Time // until when the secret before the last rotation opens as much; zero: it was not rotated
}

// Holder is who holds a secret, and for how long.
type Holder struct {
	Identity
	Left time.Duration // until the secret opens nothing; 0: it does not end by itself
}

// TokenSecret is a secret as it is kept, and how long it opens something.
type TokenSecret struct {
	Hash      TokenHash
	ExpiresIn time.Duration // 0: without end, or for a rotation: the token ends when it did before
}

// TokenHash is what is kept of a secret. Secrets are random and long, so that one round
// of SHA-256 is as good as any number.
type TokenHash [sha256.Size]byte

// HashToken hashes a secret.
func HashToken(secret string) TokenHash { return sha256.Sum256([]byte(secret)) }

// TokenStore keeps tokens. Changes and their audit rows are one. All methods may be
// called at once.
type TokenStore interface {
	// InsertToken adds a token. A name that was ever used is controlplane.ErrConflict.
	InsertToken(ctx context.Context, t Token, secret TokenSecret, e audit.Entry) error
	// TokenByHash finds a token in force by its secret, or the one before; controlplane.ErrNotFound without one.
	TokenByHash(ctx context.Context, hash TokenHash) (Holder, error)
	// TokenByName returns the token with a name, valid or not, and the clock by which its times
	// were set. It returns controlplane.ErrNotFound if there is none.
	TokenByName(ctx context.Context, name string) (t Token, now time.Time, err error)
	// TokenUsed notes that a token is used, unless it was noted within a time.
	TokenUsed(ctx context.Context, name string, within time.Duration) error
	// RotateToken gives a token in force a new secret, beside which the one before is in force for overlap;
	// controlplane.ErrNotFound without one.
	RotateToken(ctx context.Context, name string, secret TokenSecret, overlap time.Duration,
		e audit.Entry) error
	// RevokeToken revokes a token in force; controlplane.ErrNotFound without one.
	RevokeToken(ctx context.Context, name string, e audit.Entry) error
	// Tokens are at most rows of them behind a name, by name.
	Tokens(ctx context.Context, after string, rows int) ([]Token, error)
}

// ErrUnauthenticated is wrapped by errors about a token that opens nothing.
var ErrUnauthenticated = errors.New("not authenticated")

// Tokens make tokens and tell who holds one.
//
// A revoked token is refused at once. While MySQL does not answer within a second, or
// answers with an error of its own, tokens that it has vouched for within the last five
// minutes are still taken until they expire: that is when operators are needed. A token that is revoked
// through this process is not among them.
type Tokens struct {
	store     TokenStore
	admin     *TokenHash    // of the secret in a file; nil: no such file
	strangers chan struct{} // holds one element for each running check of an unconfirmed token

	mu    sync.Mutex
	known map[TokenHash]vouched
	noted map[string]time.Time // when the last use of a token was noted, or tried to be
}

type vouched struct {
	Holder
	at time.Time
}

// holds tells whether MySQL's word still counts.
func (v vouched) holds() bool {
	age := time.Since(v.at)
	return age < rememberFor && (v.Left == 0 || age < v.Left)
}

// NewTokens returns tokens kept in store. adminSecret is taken as an admin's beside
// them, so that the first token can be made; empty: none.
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

// Authenticate tells who holds a secret. Errors wrap ErrUnauthenticated or controlplane.ErrUnavailable.
func (t *Tokens) Authenticate(ctx context.Context, secret string) (Identity, error) {
	return t.Holder(ctx, HashToken(secret))
}

// Holder is Authenticate for who has kept the hash of a secret, and not the secret.
func (t *Tokens) Holder(ctx context.Context, hash TokenHash) (Identity, error) {
	if t.admin != nil && subtle.ConstantTimeCompare(hash[:], t.admin[:]) == 1 {
		return Identity{Name: AdminTokenName, Role: RoleAdmin}, nil
	}
	last, known := t.recall(hash)
	asking, cancel := ctx, context.CancelFunc(func() {})
	if known { // MySQL that hangs must not use up the time of the call itself
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

// recall is who held a token when MySQL last vouched for it, within rememberFor.
func (t *Tokens) recall(hash TokenHash) (Identity, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	last, ok := t.known[hash]
	return last.Identity, ok && last.holds()
}

// used notes the use of a token, at most once a minute. What cannot be noted is no reason to refuse the call.
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

// List is the tokens behind a name, revoked ones too, at most controlplane.PageMax, by name; more tells
// whether there are others behind them.
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
