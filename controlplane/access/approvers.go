package access

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/weirhq/weir/controlplane"
)

// Approvers reports whose approvals no longer count. An approval is only valid as long as the credential with which it
// was given. So it must be checked when it is used, which can be days later.
type Approvers interface {
	// Ended returns the actors who may no longer approve a step that requires a role, each with the reason.
	Ended(ctx context.Context, actors []string, needs Role) (map[string]string, error)
}

// Credentials are the tokens and certificate roles with which operators authenticate. They implement Approvers.
type Credentials struct {
	Tokens   *Tokens
	Subjects map[string]Role

	// Required is false if the API does not authenticate its callers. Then operators' names have no credentials, so no
	// approval ends.
	Required bool
}

var _ Approvers = Credentials{}

// Ended returns the actors whose token was revoked, has expired or has too low a role, and actors without a credential.
func (c Credentials) Ended(ctx context.Context, actors []string, needs Role) (map[string]string, error) {
	ended := map[string]string{}
	if !c.Required {
		return ended, nil
	}
	for _, actor := range slices.Compact(slices.Sorted(slices.Values(actors))) {
		why, err := c.ended(ctx, actor, needs)
		if err != nil {
			return nil, fmt.Errorf("check whether %s may still approve: %w", actor, err)
		}
		if why != "" {
			ended[actor] = why
		}
	}
	return ended, nil
}

func (c Credentials) ended(ctx context.Context, actor string, needs Role) (why string, err error) {
	if actor == AdminTokenName {
		if c.Tokens.admin == nil {
			return "weir-control no longer has an api-admin-token-file", nil
		}
		return "", nil
	}
	if c.Subjects[actor].May(needs) {
		return "", nil
	}
	token, now, err := c.Tokens.store.TokenByName(ctx, actor)
	switch {
	case errors.Is(err, controlplane.ErrNotFound):
		if role, ok := c.Subjects[actor]; ok {
			return fmt.Sprintf("the certificate's role is %s (at least %s)", role, needs), nil
		}
		return "there is no such token, and no certificate with a role", nil
	case err != nil:
		return "", err
	case !token.RevokedAt.IsZero():
		return "the token was revoked at " + controlplane.Clock(token.RevokedAt), nil
	case !token.ExpiresAt.IsZero() && !token.ExpiresAt.After(now):
		return "the token expired at " + controlplane.Clock(token.ExpiresAt), nil
	case !token.Workspaces.All():
		return "the token is limited to some workspaces", nil
	case !token.Role.May(needs):
		return fmt.Sprintf("the token's role is %s (at least %s)", token.Role, needs), nil
	}
	return "", nil
}
