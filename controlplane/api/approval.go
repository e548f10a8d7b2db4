package api

import (
	"fmt"

	"github.com/weirhq/weir/controlplane"
	controlv1 "github.com/weirhq/weir/shared/gen/proto/weir/control/v1"
)

// tellsApart refuses to count people that the API cannot tell apart: without tokens each caller says who it is.
func (s *service) tellsApart(q controlplane.Quorum) error {
	if q.Need() > 1 && !s.RequireTokens {
		return fmt.Errorf("%w: approvers is %d, want at most 1: this API requires no tokens, so it cannot tell people apart",
			controlplane.ErrInvalid, q.Need())
	}
	return nil
}

// approvals are those that a step has and needs. One that has just expired is there until it is asked for anew.
func approvals(q controlplane.Quorum, given []controlplane.Approval, evidence string) *controlv1.Approvals {
	answer := &controlv1.Approvals{Approvers: int32(q.Need()), Evidence: evidence}
	for _, a := range given {
		answer.Given = append(answer.Given, &controlv1.Approval{
			Actor: a.Actor, Reason: a.Reason, AtMs: a.AtMs, ExpiresAtMs: a.AtMs + q.TTL().Milliseconds(),
		})
	}
	return answer
}
