package controlplane

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Approvers reports whose approvals no longer count. An approval lasts as long as the credential with which it was
// given: it is judged when it is used, which may be days after it was given.
type Approvers interface {
	// Ended returns those of the actors who may not approve any more what needs a role, each with the reason.
	Ended(ctx context.Context, actors []string, needs Role) (map[string]string, error)
}

// Credentials are the tokens, and the roles of certificates' subjects, by which a weir-control authenticates operators.
// It implements Approvers.
type Credentials struct {
	Tokens   *Tokens
	Subjects map[string]Role

	// Required is false where the API authenticates nobody. Names of operators stand for no credential there, so no
	// approval ends.
	Required bool
}

var _ Approvers = Credentials{}

// Ended returns those of the actors whose token was revoked, has expired or has too little of a role, and those who
// have no credential any more.
func (c Credentials) Ended(ctx context.Context, actors []string, needs Role) (map[string]string, error) {
	ended := map[string]string{}
	if !c.Required {
		return ended, nil
	}
	for _, actor := range slices.Compact(slices.Sorted(slices.Values(actors))) {
		why, err := c.ended(ctx, actor, needs)
		if err != nil {
			return nil, fmt.Errorf("look whether %s may still approve: %w", actor, err)
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
			return "weir-control has no api-admin-token-file any more", nil
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
			return fmt.Sprintf("the certificate's role is %s, which is less than %s", role, needs), nil
		}
		return "there is no such token, and no certificate with a role", nil
	case err != nil:
		return "", err
	case !token.RevokedAt.IsZero():
		return "the token was revoked at " + clock(token.RevokedAt), nil
	case !token.ExpiresAt.IsZero() && !token.ExpiresAt.After(now):
		return "the token expired at " + clock(token.ExpiresAt), nil
	case !token.Workspaces.All():
		return "the token is valid for some workspaces alone", nil
	case !token.Role.May(needs):
		return fmt.Sprintf("the token's role is %s, which is less than %s", token.Role, needs), nil
	}
	return "", nil
}

// actorsOf are the actors of approvals, and of one more order.
func actorsOf(given []Approval, more ...string) []string {
	for _, a := range given {
		more = append(more, a.Actor)
	}
	return more
}

// withoutEnded are the approvals of those whose credentials have not ended; void names the others with the reasons,
// empty if there are none.
func withoutEnded(given []Approval, ended map[string]string) (left []Approval, void string) {
	var reasons []string
	left = slices.DeleteFunc(slices.Clone(given), func(a Approval) bool {
		why, gone := ended[a.Actor]
		if gone {
			reasons = append(reasons, fmt.Sprintf("the approval of %s does not count any more, because %s", a.Actor, why))
		}
		return gone
	})
	return left, strings.Join(reasons, "; ")
}

// Approving are the actors who approve the stage that waits, and one more who is about to.
func (r *Rollout) Approving(by By) []string { return actorsOf(r.Approvals, by.Actor) }

// Withdraw drops approvals whose credentials have ended and asks for the stage anew. It returns why an approval by an
// actor is then refused; nil: nothing has ended. changed reports whether r has changed.
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

// UntilApproved is the time to the next transition while the rollout waits for a person; less than 0: time brings none.
func (r *Rollout) UntilApproved(nowMs int64) time.Duration { return r.untilApproved(nowMs) }

// Approving are the actors who approve the step that waits, and more.
func (r *Retirement) Approving(more ...string) []string { return actorsOf(r.Approvals, more...) }

// Needs is the role that approving the step that waits takes.
func (r *Retirement) Needs() Role {
	if r.Phase == RetirementAwaitingFinal || r.Phase == RetirementRenamed {
		return RoleAdmin
	}
	return RoleOperator
}

// withdrawn refuses an approval while credentials have ended: that of its actor, or those of earlier approvals, which
// the next look drops.
func (r *Retirement) withdrawn(ended map[string]string, by By) error {
	if why, gone := ended[by.Actor]; gone {
		return r.conflict(fmt.Sprintf("%s may not approve: %s", by.Actor, why))
	}
	if _, void := withoutEnded(r.Approvals, ended); void != "" {
		return r.conflict(void + ": look at the status again in a moment")
	}
	return nil
}

// withdraw drops approvals whose credentials have ended, and asks for the step anew if there are any.
func (r *Retirement) withdraw(ended map[string]string, nowMs int64) {
	left, void := withoutEnded(r.Approvals, ended)
	if void != "" {
		r.Approvals, r.Asked = left, r.Epoch+1
		r.event(nowMs, rolloutItself, "ask anew", void)
	}
}
