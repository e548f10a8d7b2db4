package api

import (
	"context"
	"fmt"
	"slices"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/access"
	controlv1 "github.com/weirhq/weir/shared/gen/proto/weir/control/v1"
)

// tellsApart rejects a quorum of several people if the API requires no tokens, because callers then choose their own
// names.
func (s *service) tellsApart(q controlplane.Quorum) error {
	if q.Need() > 1 && !s.RequireTokens {
		return fmt.Errorf("%w: approvers is %d, want at most 1: this API requires no tokens, so it cannot distinguish people",
			controlplane.ErrInvalid, q.Need())
	}
	return nil
}

// approvals returns the approvals that a step has and needs. An approval that has just expired is included until the
// step looks at its approvals again.
func approvals(q controlplane.Quorum, given []controlplane.Approval, evidence string) *controlv1.Approvals {
	answer := &controlv1.Approvals{Approvers: int32(q.Need()), Evidence: evidence}
	for _, a := range given {
		answer.Given = append(answer.Given, &controlv1.Approval{
			Actor: a.Actor, Reason: a.Reason, AtMs: a.AtMs, ExpiresAtMs: a.AtMs + q.TTL().Milliseconds(),
		})
	}
	return answer
}

// counting removes approvals whose credentials have ended from a response, as the waiting step itself will at its next
// look. If MySQL does not answer in time, it removes none, because approvals are checked again when they are used.
func (s *service) counting(ctx context.Context, a *controlv1.Approvals, needs access.Role) {
	if s.Approvers == nil || len(a.GetGiven()) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, lagTimeout)
	defer cancel()
	var actors []string
	for _, given := range a.GetGiven() {
		actors = append(actors, given.GetActor())
	}
	ended, err := s.Approvers.Ended(ctx, actors, needs)
	if err != nil {
		return
	}
	a.Given = slices.DeleteFunc(a.GetGiven(), func(given *controlv1.Approval) bool {
		_, gone := ended[given.GetActor()]
		return gone
	})
}
