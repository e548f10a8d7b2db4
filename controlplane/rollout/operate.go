package rollout

import (
	"fmt"
	"time"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/rollout/plan"
)

// Action is an operator's order for a rollout.
type Action string

// The actions.
const (
	Approve  Action = "approve"  // begin the stage that waits for an approval
	Pause    Action = "pause"    // stop, and keep the trials that have been applied
	Resume   Action = "resume"   // go on: the phase that was paused begins again
	Abort    Action = "abort"    // give up, and roll back
	RollBack Action = "rollback" // roll back a rollout that is done
)

// Stops reports whether an action only stops a rollout. Such actions take effect even while MySQL is down.
func (a Action) Stops() bool { return a == Pause || a == Abort }

// Order is an operator's action and the reason for it. Only an approval needs the fields below By.
type Order struct {
	Action Action          `json:"action"`
	By     controlplane.By `json:"by"`

	// Of an approval: the stage, from 1, and Rollout.Asked and Rollout.Evidence as status showed them. If the approval
	// arrives late or twice, they no longer match, so it cannot approve another stage.
	Stage    int    `json:"stage,omitempty"`
	Asked    int64  `json:"asked,omitempty"`
	Evidence string `json:"evidence,omitempty"`
}

// Validate reports the first missing field.
func (o Order) Validate() error {
	if err := o.By.Validate(); err != nil {
		return err
	}
	if o.Action == Approve && (o.Stage < 1 || o.Asked < 1) {
		return fmt.Errorf("%w: an approval names its stage and the request that status showed: stage is %d and "+
			"asked is %d (1 or more)",
			controlplane.ErrInvalid, o.Stage, o.Asked)
	}
	if o.Action == Approve && o.Evidence == "" {
		return fmt.Errorf("%w: evidence is empty: an approval names the evidence that status showed", controlplane.ErrInvalid)
	}
	return nil
}

// Operate makes an operator's transition, and returns the time until the next transition, as Advance does. If it
// returns an error, nothing has changed, and the error wraps controlplane.ErrInvalid or controlplane.ErrConflict.
func (r *Rollout) Operate(o Order, nowMs int64) (wait time.Duration, err error) {
	if err := o.Validate(); err != nil {
		return 0, err
	}
	moved := r.MovedMs
	r.MovedMs = nowMs
	if wait, err = (&operation{Rollout: r, order: o, by: o.By, nowMs: nowMs}).make(); err != nil {
		r.MovedMs = moved
		return wait, err
	}
	r.Trouble = ""
	return wait, nil
}

// operation is a transition of an operator, while it is made.
type operation struct {
	*Rollout
	order Order
	by    controlplane.By
	nowMs int64
}

func (r *operation) make() (time.Duration, error) {
	switch r.order.Action {
	case Approve:
		return r.approve()
	case Pause:
		return r.pause()
	case Resume:
		return r.resume()
	case Abort:
		return r.abort()
	case RollBack:
		return r.rollBackDone()
	}
	return 0, fmt.Errorf("%w: there is no action %q", controlplane.ErrInvalid, r.order.Action)
}

func (r *operation) approve() (time.Duration, error) {
	if r.Phase != Awaiting || r.Paused != nil {
		return 0, r.conflict("nothing waits for an approval")
	}
	if r.order.Stage != r.Stage+1 || r.order.Asked != r.Asked {
		return 0, r.conflict(fmt.Sprintf("stage %d (asked %d) waits, and the approval names stage %d (asked %d): "+
			"look at the status again",
			r.Stage+1, r.Asked, r.order.Stage, r.order.Asked))
	}
	if r.order.Evidence != r.Evidence() {
		return 0, r.conflict("the evidence has changed since it was shown: look at the status again")
	}
	quorum := r.Spec.Plan.Quorum
	given, problem := quorum.With(r.Approvals, controlplane.Approval{By: r.by, AtMs: r.nowMs,
		Evidence: r.order.Evidence})
	if problem != "" {
		return 0, r.conflict(problem)
	}
	r.AddEvent(r.nowMs, r.by.Actor, "approve",
		fmt.Sprintf("stage %d, %d of %d, evidence %s: %s", r.Stage+1, len(given), quorum.Need(),
			controlplane.ShortEvidence(r.order.Evidence), r.by.Reason))
	if len(given) < quorum.Need() {
		r.Approvals = given
		return r.UntilApproved(r.nowMs), nil
	}
	r.Approvals = nil
	r.beginMeasuring()
	return 0, nil
}

// UntilApproved returns the time until the next transition while the rollout waits for a person; less than 0: there is
// none.
func (r *Rollout) UntilApproved(nowMs int64) time.Duration {
	if !r.begun() {
		return r.Spec.Plan.UntilExpiry(r.Approvals, nowMs)
	}
	return r.Spec.Plan.WaitEvery(r.stage())
}

// waitOn drops approvals that no longer count. If it drops any, a new request for approvals begins.
func (r *transition) waitOn() time.Duration {
	counting := r.Spec.Plan.Counting(r.Approvals, r.Evidence(), r.nowMs)
	if void := len(r.Approvals) - len(counting); void > 0 {
		r.Approvals, r.Asked = counting, r.Epoch+1
		r.AddEvent(r.nowMs, controlplane.Itself, "ask again",
			fmt.Sprintf("stage %d: %d of %d approvals left: the others expired, or "+
				"the evidence changed", r.Stage+1, len(counting), len(counting)+void))
	}
	return r.UntilApproved(r.nowMs)
}

// Evidence returns a hash of what a person approves: the tuning, the stage that waits, the versions and trials of the
// regions before it, and how many nodes these regions have lost. An approval is valid for this hash alone. Figures that
// each heartbeat changes are not part of it, because they would void an approval at once; the guardrails judge them.
func (r *Rollout) Evidence() string {
	type lost struct {
		Region string
		Nodes  int
	}
	var losses []lost
	for i := range r.Watch {
		losses = append(losses, lost{r.Watch[i].Region, r.Watch[i].NodesLost()})
	}
	return controlplane.Digest(struct {
		ID, Tuning string
		Stage      int
		Of         plan.StagePlan
		Touched    []Touched
		Lost       []lost
		Shadows    []Touched `json:",omitempty"`
	}{r.ID, r.Document, r.Stage, r.stage(), r.Touched, losses, r.Shadows})
}

// pause stops the rollout. Its baselines and waits are void, because they will be out of date when an operator resumes.
// Guardrails still apply: if a guardrail breaks while the rollout is paused or waits for an approval, the rollout rolls
// back.
func (r *operation) pause() (time.Duration, error) {
	switch {
	case r.Phase.Over():
		return 0, r.conflict("it is over")
	case r.Phase == RollingBack:
		return 0, r.conflict("a rollback cannot be paused")
	case r.Phase == Keeping:
		return 0, r.conflict("its stages are over: wait for its end, or abort it")
	case r.Paused != nil:
		return 0, r.conflict("resume or abort it")
	}
	r.Paused = &Paused{By: r.by, AtMs: r.nowMs}
	r.AddEvent(r.nowMs, r.by.Actor, "pause", r.by.Reason)
	return r.UntilApproved(r.nowMs), nil
}

// Revive goes on with a rollout whose timer was lost.
func (r *Rollout) Revive(nowMs int64) (wait time.Duration) {
	r.MovedMs = nowMs
	r.AddEvent(nowMs, controlplane.Itself, "revive", "its timer was lost")
	return 0
}

// resume ends a pause. If the rollout is not paused, it only checks at once whether a transition is due.
func (r *operation) resume() (time.Duration, error) {
	if r.Phase.Over() {
		return 0, r.conflict("it is over")
	}
	if r.Paused != nil {
		r.Paused = nil
		r.restart(r.nowMs)
	}
	r.AddEvent(r.nowMs, r.by.Actor, "resume", r.by.Reason)
	if r.Phase == Awaiting && !r.begun() {
		return r.UntilApproved(r.nowMs), nil
	}
	return 0, nil
}

// restart begins the waits of a phase again, after a time in which nothing was measured.
func (r *Rollout) restart(nowMs int64) {
	r.Blind = 0
	switch r.Phase {
	case Measuring:
		r.judge(nowMs).RestartBaseline()
		r.DueMs = 0
	case Baking:
		r.DueMs = 0
	case Converging:
		r.DueMs = nowMs + r.Spec.Plan.ApplyTimeoutMs
	case Keeping:
		if r.DueMs > 0 { // the tuning is stored
			r.DueMs = nowMs + r.Spec.Plan.ApplyTimeoutMs
		}
	case RollingBack:
		r.DueMs, r.SinceMs, r.LeasesMs = 0, 0, 0
	}
}

// abort gives up the rollout and rolls it back. During a rollback it gives up the nodes that have not followed in time.
// Such nodes may hang forever, and no other rollout can start before the rollback ends.
func (r *operation) abort() (time.Duration, error) {
	switch {
	case r.Phase == Done:
		return 0, r.conflict("roll it back instead of aborting it")
	case r.Phase == RollingBack && r.DueMs > 0 && r.nowMs >= r.DueMs:
		r.Why = fmt.Sprintf("%s; %s gave up waiting: %s; %s", r.Why, r.by.Actor, r.by.Reason, r.Waiting)
		return r.end(Aborted, r.by.Actor), nil
	case r.Phase == RollingBack:
		return 0, r.conflict("it is being rolled back; an abort can give up nodes that do not follow after apply_timeout_ms")
	case r.Phase.Over():
		return 0, r.conflict("nothing is left to abort")
	}
	return r.turn(Aborted, r.by.Actor, fmt.Sprintf("aborted by %s: %s", r.by.Actor, r.by.Reason)), nil
}

func (r *operation) rollBackDone() (time.Duration, error) {
	switch {
	case !r.Phase.Over():
		return 0, r.conflict("abort it, which rolls back too")
	case r.Phase != Done:
		return 0, r.conflict("there is nothing to roll back")
	}
	return r.turn(RolledBack, r.by.Actor, fmt.Sprintf("rolled back by %s: %s", r.by.Actor, r.by.Reason)), nil
}

func (r *Rollout) conflict(what string) error {
	standing := string(r.Phase)
	if r.Paused != nil {
		standing += ", paused by " + r.Paused.Actor
	}
	return fmt.Errorf("%w: rollout %s is %s: %s", controlplane.ErrConflict, r.ID, standing, what)
}

// Summary is a line of the list of rollouts.
type Summary struct {
	ID        string          `json:"id"`
	By        controlplane.By `json:"by"`
	StartedMs int64           `json:"started_ms"`
	EndedMs   int64           `json:"ended_ms,omitempty"`
	Phase     Phase           `json:"phase"` // of a rollout under way: as last saved
	Why       string          `json:"why,omitempty"`
	Epoch     int64           `json:"epoch,omitempty"` // of the rollout when this was sent; 0: unknown
}

// Summary returns the rollout's line of the list.
func (r *Rollout) Summary() Summary {
	return Summary{ID: r.ID, By: r.By, StartedMs: r.StartedMs, EndedMs: r.EndedMs, Phase: r.Phase, Why: r.Why,
		Epoch: r.Epoch}
}

// Approving returns the actors who have approved the waiting stage, and the actor of an order to
// approve it.
func (r *Rollout) Approving(by controlplane.By) []string {
	return controlplane.ActorsOf(r.Approvals, by.Actor)
}

// Withdraw removes approvals whose credentials have ended, and begins a new request for approvals. err is why an
// approval by an actor is rejected, or nil if no credential has ended. changed reports whether r has changed.
func (r *Rollout) Withdraw(ended map[string]string, by controlplane.By, nowMs int64) (changed bool, err error) {
	if why, gone := ended[by.Actor]; gone {
		return false, r.conflict(fmt.Sprintf("%s may not approve: %s", by.Actor, why))
	}
	left, void := controlplane.WithoutEnded(r.Approvals, ended)
	if void == "" || r.Phase != Awaiting {
		return false, nil
	}
	r.Approvals, r.Asked, r.MovedMs = left, r.Epoch+1, nowMs
	r.AddEvent(nowMs, controlplane.Itself, "ask again", fmt.Sprintf("stage %d: %s", r.Stage+1, void))
	return true, r.conflict(void + ": look at the status again")
}
