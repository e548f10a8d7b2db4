package rollout

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/internal/controltest"
	"github.com/weirhq/weir/controlplane/rollout/plan"
)

// If the token of an approver is revoked, the approval is dropped when the next approval arrives. The stage then needs
// a new request, because its evidence has changed.
func TestARolloutDropsApprovalsOfEndedCredentials(t *testing.T) {
	const nowMs = 1_700_000_000_000
	waiting := func() *Rollout {
		r := &Rollout{ID: "r1", Phase: Awaiting, Asked: 3}
		r.Epoch = 4
		r.Spec.Plan.Approvers = 2
		r.Stages = []plan.StagePlan{{Approval: true}}
		r.Approvals = []controlplane.Approval{{By: controlplane.By{Actor: "bob", Reason: "fine"}, AtMs: nowMs - 1000, Evidence: r.Evidence()}}
		return r
	}
	r := waiting()
	if changed, err := r.Withdraw(map[string]string{}, controltest.Ann, nowMs); changed || err != nil || len(r.Approvals) != 1 {
		t.Errorf("nothing has ended: %v, %v", changed, err)
	}
	if changed, err := r.Withdraw(map[string]string{controltest.Ann.Actor: "the token was revoked"}, controltest.Ann, nowMs); changed || !errors.Is(err, controlplane.ErrConflict) || !strings.Contains(err.Error(), "ann may not approve: the token was revoked") {
		t.Errorf("the one who approves: %v, %v", changed, err)
	}
	changed, err := r.Withdraw(map[string]string{"bob": "the token was revoked"}, controltest.Ann, nowMs)
	if !changed || !errors.Is(err, controlplane.ErrConflict) || len(r.Approvals) != 0 || r.Asked != 5 || !strings.Contains(err.Error(), "the approval of bob no longer counts, because the token was revoked") {
		t.Errorf("an earlier one: %v, %v, %+v", changed, err, r.Approvals)
	}
	if last := r.Events[len(r.Events)-1]; last.What != "ask again" || !strings.Contains(last.Text, "bob") {
		t.Errorf("%+v", last)
	}
	if got := waiting().Approving(controltest.Ann); !slices.Equal(got, []string{"ann", "bob"}) {
		t.Errorf("%v", got)
	}
}
