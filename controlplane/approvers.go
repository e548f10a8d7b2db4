package controlplane

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Approvers reports whose approvals no longer count. An approval is only valid as long as the
// credential with which it was given. So it is judged when it is used, which may be days later.
type Approvers interface {
	// Ended returns those of the actors who may no longer approve a step that requires a role, each
	// with the reason.
	Ended(ctx context.Context, actors []string, needs Role) (map[string]string, error)
}

// Credentials are the tokens and certificate roles with which operators authenticate. It implements
// Approvers.
type Credentials struct {
	Tokens   *Tokens
	Subjects map[string]Role

	// Required is false if the API authenticates nobody. An operator's name then has no credential
	// behind it, so no approval ends.
	Required bool
}

var _ Approvers = Credentials{}

// Ended returns the actors whose token was revoked, has expired or has too low a role, and those
// without a credential.
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
	case errors.Is(err, ErrNotFound):
		if role, ok := c.Subjects[actor]; ok {
			return fmt.Sprintf("the certificate's role is %s (at least %s)", role, needs), nil
		}
		return "there is no such token, and no certificate with a role", nil
	case err != nil:
		return "", err
	case !token.RevokedAt.IsZero():
		return "the token was revoked at " + clock(token.RevokedAt), nil
	case !token.ExpiresAt.IsZero() && !token.ExpiresAt.After(now):
		return "the token expired at " + clock(token.ExpiresAt), nil
	case !token.Workspaces.All():
		return "the token is limited to some workspaces", nil
	case !token.Role.May(needs):
		return fmt.Sprintf("the token's role is %s (at least %s)", token.Role, needs), nil
	}
	return "", nil
}

// actorsOf returns the actors of approvals, and more.
func actorsOf(given []Approval, more ...string) []string {
	for _, a := range given {
		more = append(more, a.Actor)
	}
	return more
}

// withoutEnded returns the approvals whose credentials have not ended. void names the other
// approvals with the reasons; it is empty if there are none.
func withoutEnded(given []Approval, ended map[string]string) (left []Approval, void string) {
	var reasons []string
	left = slices.DeleteFunc(slices.Clone(given), func(a Approval) bool {
		why, gone := ended[a.Actor]
		if gone {
			reasons = append(reasons, fmt.Sprintf("the approval of %s no longer counts, because %s", a.Actor, why))
		}
		return gone
	})
	return left, strings.Join(reasons, "; ")
}

// Approving returns the actors who have approved the waiting stage, and the actor of an order to
// approve it.
func (r *Rollout) Approving(by By) []string { return actorsOf(r.Approvals, by.Actor) }

// Withdraw removes approvals whose credentials have ended, and asks for the stage's approval again.
// err says why an approval by an actor is refused, and is nil if no credential has ended. changed
// reports whether r has changed.
func (r *Rollout) Withdraw(ended map[string]string, by By, nowMs int64) (changed bool, err error) {
	if why, gone := ended[by.Actor]; gone {
		return false, r.conflict(fmt.Sprintf("%s may not approve: %s", by.Actor, why))
	}
	left, void := withoutEnded(r.Approvals, ended)
	if void == "" || r.Phase != RolloutAwaiting {
		return false, nil
	}
	r.Approvals, r.Asked, r.MovedMs = left, r.Epoch+1, nowMs
	r.event(nowMs, rolloutItself, "ask anew", fmt.Sprintf("stage %d: %s", r.Stage+1, void))
	return true, r.conflict(void + ": look at the status again")
}

// UntilApproved returns the time to the next transition while the rollout waits for a person. It is
// negative if the rollout does nothing until then.
func (r *Rollout) UntilApproved(nowMs int64) time.Duration { return r.untilApproved(nowMs) }

// Approving returns the actors who have approved the waiting step, and more.
func (r *Retirement) Approving(more ...string) []string { return actorsOf(r.Approvals, more...) }

// Needs returns the role that is required to approve the waiting step.
func (r *Retirement) Needs() Role {
	if r.Phase == RetirementAwaitingFinal || r.Phase == RetirementRenamed {
		return RoleAdmin
	}
	return RoleOperator
}

// withdrawn returns an error for an approval if its actor's credentials have ended, or those of an
// earlier approval, which the next look removes.
func (r *Retirement) withdrawn(ended map[string]string, by By) error {
	if why, gone := ended[by.Actor]; gone {
		return r.conflict(fmt.Sprintf("%s may not approve: %s", by.Actor, why))
	}
	if _, void := withoutEnded(r.Approvals, ended); void != "" {
		return r.conflict(void + ": look at the status again in a moment")
	}
	return nil
}

// withdraw removes approvals whose credentials have ended. If there are any, it asks for the step's
// approval again.
func (r *Retirement) withdraw(ended map[string]string, nowMs int64) {
	left, void := withoutEnded(r.Approvals, ended)
	if void != "" {
		r.Approvals, r.Asked = left, r.Epoch+1
		r.event(nowMs, rolloutItself, "ask anew", void)
	}
}
