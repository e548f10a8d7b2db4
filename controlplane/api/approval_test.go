package api

import (
	"context"
	"errors"
	"testing"

	"github.com/weirhq/weir/controlplane/access"
	controlv1 "github.com/weirhq/weir/shared/gen/proto/weir/control/v1"
)

// ended reports that these actors may not approve any more, or fails.
type ended struct {
	actors map[string]string
	err    error
}

func (e ended) Ended(context.Context, []string, access.Role) (map[string]string, error) {
	return e.actors, e.err
}

// A status shows the approvals that count. Approvals of credentials that have ended are left out, unless MySQL does not
// answer.
func TestAStatusShowsTheApprovalsThatCount(t *testing.T) {
	for name, tc := range map[string]struct {
		approvers access.Approvers
		want      int
	}{
		"one has ended": {ended{actors: map[string]string{"bob": "the token was revoked"}}, 1},
		"none":          {ended{}, 2},
		"nobody tells":  {ended{err: errors.New("MySQL is away")}, 2},
		"all count":     {nil, 2},
	} {
		s := &service{Config{Approvers: tc.approvers}}
		shown := &controlv1.Approvals{Given: []*controlv1.Approval{{Actor: "ann"}, {Actor: "bob"}}}
		if s.counting(t.Context(), shown, access.RoleOperator); len(shown.GetGiven()) != tc.want || shown.GetGiven()[0].GetActor() != "ann" {
			t.Errorf("%s: %v", name, shown.GetGiven())
		}
		s.counting(t.Context(), nil, access.RoleOperator) // of a step that waits for none
	}
}
