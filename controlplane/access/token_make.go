package access

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"time"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/audit"
	"github.com/weirhq/weir/shared/workspaces"
)

const (
	tokenLifeLeast = time.Minute
	tokenLifeMost  = 10 * 366 * 24 * time.Hour

	// TokenOverlapMax bounds how long the previous secret can stay valid after a rotation.
	TokenOverlapMax = 30 * 24 * time.Hour
	// TokenOverlapDefault is the overlap if an operator sets none.
	TokenOverlapDefault = 24 * time.Hour
)

// Create creates a token and returns its secret, which is not stored. The token expires after expiresIn, or never if
// that is 0. It is limited to the named workspaces; without names it is valid for all. A token with workspaces can't be
// an admin, because admins manage the whole fleet. For example, a deploy pipeline should have an operator token of its
// own.
func (t *Tokens) Create(ctx context.Context, name string, role Role, expiresIn time.Duration, by controlplane.By,
	names ...string) (secret string, err error) {
	if err := validateTokenName(name); err != nil {
		return "", err
	}
	if rank[role] == 0 {
		return "", fmt.Errorf("%w: role is %q (viewer, operator or admin)", controlplane.ErrInvalid, role)
	}
	if err := validateLife(expiresIn); err != nil {
		return "", err
	}
	valid, err := tokenWorkspaces(role, names)
	if err != nil {
		return "", err
	}
	e := audit.Entry{By: by, Action: "token.create", Subject: "token " + name,
		After: tokenState{Role: role, Workspaces: valid.Names(), ExpiresInMs: expiresIn.Milliseconds()}.text()}
	if err := e.Validate(); err != nil {
		return "", err
	}
	secret, kept := newSecret(expiresIn)
	token := Token{Name: name, Role: role, Workspaces: valid, CreatedBy: by.Actor}
	if err := t.store.InsertToken(ctx, token, kept, e); err != nil {
		return "", fmt.Errorf("create token %s: %w", name, err)
	}
	return secret, nil
}

// Rotate gives a token a new secret and returns it. The previous secret stays valid for overlap, and the secret before
// that ends at once. The token expires after expiresIn, or if that is 0 at the same time as before.
func (t *Tokens) Rotate(ctx context.Context, name string, overlap, expiresIn time.Duration,
	by controlplane.By) (secret string, err error) {
	if err := validateTokenName(name); err != nil {
		return "", err
	}
	overlapMs := overlap.Milliseconds()
	if err := cmp.Or(controlplane.ValidateMs("overlap_ms", overlapMs, 0, TokenOverlapMax),
		validateLife(expiresIn)); err != nil {
		return "", err
	}
	e := audit.Entry{By: by, Action: "token.rotate", Subject: "token " + name,
		After: tokenState{OverlapMs: &overlapMs, ExpiresInMs: expiresIn.Milliseconds()}.text()}
	if err := e.Validate(); err != nil {
		return "", err
	}
	secret, kept := newSecret(expiresIn)
	if err := t.store.RotateToken(ctx, name, kept, overlap, e); err != nil {
		return "", fmt.Errorf("rotate token %s: %w", name, err)
	}
	t.forget(func(_ TokenHash, v vouched) bool { return v.Name == name })
	return secret, nil
}

// tokenState is the part of a token in the audit log.
type tokenState struct {
	Role        Role     `json:"role,omitempty"`
	Workspaces  []string `json:"workspaces,omitempty"`
	OverlapMs   *int64   `json:"overlap_ms,omitempty"`
	ExpiresInMs int64    `json:"expires_in_ms,omitempty"`
}

func (s tokenState) text() string {
	text, _ := json.Marshal(s) // strings and numbers cannot fail
	return string(text)
}

func newSecret(expiresIn time.Duration) (secret string, kept TokenSecret) {
	random := make([]byte, tokenBytes)
	_, _ = rand.Read(random) // never fails
	secret = TokenPrefix + base64.RawURLEncoding.EncodeToString(random)
	return secret, TokenSecret{Hash: HashToken(secret), ExpiresIn: expiresIn}
}

// tokenWorkspaces returns the workspaces of a new token.
func tokenWorkspaces(role Role, names []string) (*workspaces.Set, error) {
	if len(names) > TokenWorkspacesMax {
		return nil, fmt.Errorf("%w: workspaces has %d names (at most %d)", controlplane.ErrInvalid, len(names),
			TokenWorkspacesMax)
	}
	valid, err := workspaces.New(names...)
	if err != nil {
		return nil, fmt.Errorf("%w: workspaces has %w", controlplane.ErrInvalid, err)
	}
	if !valid.All() && role == RoleAdmin {
		return nil, fmt.Errorf("%w: role is %q (viewer or operator if workspaces is set)", controlplane.ErrInvalid, role)
	}
	return valid, nil
}

func validateLife(d time.Duration) error {
	if d != 0 && (d < tokenLifeLeast || d > tokenLifeMost) {
		return fmt.Errorf("%w: expires_in_ms is %d (%d to %d, or 0)", controlplane.ErrInvalid, d.Milliseconds(),
			tokenLifeLeast.Milliseconds(), tokenLifeMost.Milliseconds())
	}
	return nil
}
