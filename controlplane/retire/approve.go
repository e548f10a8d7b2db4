package retire

import (
	"fmt"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/access"
)

// EvidenceHash returns a hash of what a person approves: the table, the waiting step, the rows left, the last write,
// and the request. It leaves out figures that change by themselves. Whether counts are healthy and nothing was written
// is checked again when the approval arrives.
func (r *Retirement) EvidenceHash() string {
	return controlplane.Digest(struct {
		Shown string
		Asked int64
	}{r.shown(), r.Asked})
}

// shown returns a hash of the evidence without the request. When an approval expires a new request begins, but the
// other approvals must stay valid.
func (r *Retirement) shown() string {
	renamedMs := int64(0)
	if r.Rename != nil {
		renamedMs = r.Rename.AtMs
	}
	return controlplane.Digest(struct {
		ID, Table, Dated                                string
		Phase                                           Phase
		Rows, LastWriteMs, QuietSinceMs, RenameApproved int64
	}{r.ID, r.Table, r.Dated, r.Phase, r.Evidence.Rows, r.LastWriteMs, r.Evidence.QuietSinceMs, renamedMs})
}

// approvedBy returns the approvals with the new approval. It changes nothing.
func (r *Retirement) approvedBy(o Order, nowMs int64) ([]controlplane.Approval, error) {
	if o.Evidence != r.EvidenceHash() {
		return nil, r.conflict("the evidence has changed since it was shown: look at the status again")
	}
	given, problem := r.Spec.With(r.Approvals, controlplane.Approval{By: o.By, AtMs: nowMs, Evidence: r.shown()})
	if problem != "" {
		return nil, r.conflict(problem)
	}
	return given, nil
}

// lacks stores the approvals, and reports whether there are too few.
func (r *Retirement) lacks(given []controlplane.Approval) bool {
	r.Approvals = given
	return len(given) < r.Spec.Need()
}

// counted returns the history's text about an approval.
func (r *Retirement) counted(given []controlplane.Approval, o Order) string {
	return fmt.Sprintf("%d of %d, evidence %s: %s", len(given), r.Spec.Need(), controlplane.ShortEvidence(o.Evidence),
		o.Reason)
}

// askAnew drops the approvals that no longer count. If it drops any, a new request for approvals begins.
func (r *Retirement) askAnew(nowMs int64) {
	counting := r.Spec.Counting(r.Approvals, r.shown(), nowMs)
	if void := len(r.Approvals) - len(counting); void > 0 {
		r.Approvals, r.Asked = counting, r.Epoch+1
		r.AddEvent(nowMs, controlplane.Itself, "ask again",
			fmt.Sprintf("%d of %d approvals left: the others expired, or the evidence "+
				"changed", len(counting), len(counting)+void))
	}
}

// approving returns the actors who have approved the waiting step, and more.
func (r *Retirement) approving(more ...string) []string {
	return controlplane.ActorsOf(r.Approvals, more...)
}

// Needs returns the role that is required to approve the waiting step.
func (r *Retirement) Needs() access.Role {
	if r.Phase == AwaitingFinal || r.Phase == Renamed {
		return access.RoleAdmin
	}
	return access.RoleOperator
}

// withdrawn returns an error for an approval if the credentials of its actor have ended, or the credentials of an
// earlier approver, whose approval the next look removes.
func (r *Retirement) withdrawn(ended map[string]string, by controlplane.By) error {
	if why, gone := ended[by.Actor]; gone {
		return r.conflict(fmt.Sprintf("%s may not approve: %s", by.Actor, why))
	}
	if _, void := controlplane.WithoutEnded(r.Approvals, ended); void != "" {
		return r.conflict(void + ": look at the status again in a moment")
	}
	return nil
}

// withdraw removes approvals whose credentials have ended. If it removes any, a new request for approvals begins.
func (r *Retirement) withdraw(ended map[string]string, nowMs int64) {
	left, void := controlplane.WithoutEnded(r.Approvals, ended)
	if void != "" {
		r.Approvals, r.Asked = left, r.Epoch+1
		r.AddEvent(nowMs, controlplane.Itself, "ask again", void)
	}
}
