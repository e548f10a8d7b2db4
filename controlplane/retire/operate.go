package retire

import (
	"fmt"
	"time"

	"github.com/weirhq/weir/controlplane"
)

// Order is an operator's approval of a step, and the reason for it. Evidence must be Retirement.EvidenceHash as it was
// shown.
type Order struct {
	controlplane.By
	Evidence string `json:"evidence"`
}

// Validate reports the first missing field.
func (o Order) Validate() error {
	if err := o.By.Validate(); err != nil {
		return err
	}
	if o.Evidence == "" {
		return fmt.Errorf("%w: evidence is empty: an approval names the evidence that status showed", controlplane.ErrInvalid)
	}
	return nil
}

// ApproveRename approves the rename. The rename begins once as many people as Spec requires have approved it, if the
// evidence is the same that was shown and still holds in look. wait has the meaning of Advance. An error that wraps
// controlplane.ErrConflict may come with a change of r: if look shows a write, r returns to observing.
func (r *Retirement) ApproveRename(o Order, look Look, nowMs int64) (wait time.Duration, err error) {
	given, err := r.given(o, look, nowMs, Awaiting, "the rename is approved while it is awaiting_approval")
	if err != nil {
		return 0, err
	}
	if problem := r.unfit(look, nowMs); problem != "" {
		return r.back(nowMs, problem), r.conflict("the evidence does not hold any more: " + problem)
	}
	return r.approve(o, given, nowMs, "approve rename", Renaming, &r.Rename)
}

// ApproveDrop approves the drop of the renamed table, at the end of the soak. The same people or others can approve it.
// Otherwise it is like ApproveRename.
func (r *Retirement) ApproveDrop(o Order, look Look, nowMs int64) (wait time.Duration, err error) {
	given, err := r.given(o, look, nowMs, AwaitingFinal, "the drop is approved while it is awaiting_final_approval")
	if err != nil {
		return 0, err
	}
	switch problem, fatal := r.unfitDated(look, nowMs); {
	case fatal:
		return r.turn(Observing, nowMs, problem), r.conflict("the evidence does not hold any more: " + problem)
	case problem != "":
		return 0, r.conflict(problem)
	}
	return r.approve(o, given, nowMs, "approve drop", Dropping, &r.Drop)
}

// given returns the approvals with the new approval, or an error if r is not in the phase that waits for it.
func (r *Retirement) given(o Order, look Look, nowMs int64, in Phase, when string) ([]controlplane.Approval, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if r.Phase != in {
		return nil, r.conflict(when)
	}
	if err := r.withdrawn(look.Ended, o.By); err != nil {
		return nil, err
	}
	return r.approvedBy(o, nowMs)
}

// approve stores the approvals and, once there are enough, enters the next phase and sets decision.
func (r *Retirement) approve(o Order, given []controlplane.Approval, nowMs int64, what string, next Phase,
	decision **Decision) (wait time.Duration, err error) {
	if problem := r.Evidence.Problem; problem != "" {
		return 0, r.conflict("counts are not healthy: " + problem)
	}
	if r.AddEvent(nowMs, o.Actor, what, r.counted(given, o)); r.lacks(given) {
		return r.waits(r.Waiting), nil
	}
	*decision = &Decision{By: o.By, AtMs: nowMs}
	r.raiseFence(nowMs)
	r.Phase, r.Waiting, r.Approvals = next, "", nil
	return 0, nil
}

// Abort gives up. The table gets its name back, unless it was dropped first or another table has its name by now.
func (r *Retirement) Abort(by controlplane.By, nowMs int64) (wait time.Duration, err error) {
	if err := by.Validate(); err != nil {
		return 0, err
	}
	why := controlplane.Cut(fmt.Sprintf("aborted by %s: %s", by.Actor, by.Reason), controlplane.ReasonBytesMax)
	switch {
	case !r.UnderWay():
		return 0, r.conflict("nothing is left to abort")
	case r.Phase == Restoring && r.Next == Aborted:
		return 0, r.conflict("it is being aborted")
	}
	r.AddEvent(nowMs, by.Actor, "abort", by.Reason)
	switch r.Phase {
	case Observing, Draining, Awaiting:
		r.Why = why
		return r.end(nowMs, Aborted, by.Actor), nil
	}
	return r.turn(Aborted, nowMs, why), nil
}

func (r *Retirement) conflict(what string) error {
	return fmt.Errorf("%w: the retirement of %s is %s: %s", controlplane.ErrConflict, r.Table, r.Phase, what)
}

// Summary is a line of the list of retirements.
type Summary struct {
	ID        string          `json:"id"`
	By        controlplane.By `json:"by"`
	StartedMs int64           `json:"started_ms"`
	EndedMs   int64           `json:"ended_ms,omitempty"`
	Phase     Phase           `json:"phase"`
	Why       string          `json:"why,omitempty"`
}

// Summary returns the retirement's line of the list.
func (r *Retirement) Summary() Summary {
	return Summary{ID: r.ID, By: r.By, StartedMs: r.StartedMs, EndedMs: r.EndedMs, Phase: r.Phase, Why: r.Why}
}
