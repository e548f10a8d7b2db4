package handlers

import (
	"fmt"
	"time"

	restate "github.com/restatedev/sdk-go"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/access"
	"github.com/weirhq/weir/controlplane/retire"
)

// RetirementService is the object's name in Restate; its keys are the tables' names.
const RetirementService = "WeirRetirement"

const (
	retirementKey     = "retirement"
	retirementPastKey = "past" // summaries of earlier retirements, newest first
	retirementPastMax = 50

	// retirementGrace is how late a timer can be before Ensure considers it lost. A failing step is retried for
	// rolloutStepRetry, and the object is busy for that time.
	retirementGrace = 2 * rolloutStepRetry
)

// Messages of WeirRetirement.
type (
	// RetirementStart is the request to begin a retirement.
	RetirementStart struct {
		Spec retire.Spec     `json:"spec"`
		By   controlplane.By `json:"by"`
	}
	// RetirementApprove approves one of the two steps that need an approval. It names the step, because a repeated request
	// must not approve the other step.
	RetirementApprove struct {
		Drop bool `json:"drop"` // otherwise the rename
		retire.Order
	}
	// RetirementTimer is the message that keeps a retirement going.
	RetirementTimer struct {
		Epoch int64 `json:"epoch"`
	}
)

// retirement is the object WeirRetirement: a retire.Retirement, with one transition per invocation, as in
// rolloutObject.
type retirement struct {
	work       *retire.Work
	approvers  access.Approvers // nil: every approval counts
	steps      *stepper
	retryAfter time.Duration // troubleRetry, except in tests
	grace      time.Duration // retirementGrace, except in tests
}

func (o *retirement) definition() restate.ServiceDefinition {
	return restate.NewObject(RetirementService,
		durable("Retirements of tables, one object each. Operate them with weirctl.")...).
		Handler("Start", restate.NewObjectHandler(o.start)).
		Handler("Approve", restate.NewObjectHandler(o.approve)).
		Handler("Abort", restate.NewObjectHandler(o.abort)).
		Handler("Ensure", restate.NewObjectHandler(o.ensure)).
		Handler("Step", restate.NewObjectHandler(o.step)).
		Handler("Status", restate.NewObjectSharedHandler(o.status, readOnly...)).
		Handler("List", restate.NewObjectSharedHandler(o.list, readOnly...))
}

// start begins a retirement. While a retirement with the same spec is under way, start returns its state, so that a
// caller who got no answer can retry.
func (o *retirement) start(ctx restate.ObjectContext, req RetirementStart) (retire.Retirement, error) {
	before, err := loadRetirement(ctx)
	if err != nil {
		return before, err
	}
	if before.UnderWay() {
		if before.Spec != req.Spec {
			return before, failed(fmt.Errorf("%w: %s is already being retired, with other settings: see weirctl "+
				"retire status", controlplane.ErrConflict, before.Table))
		}
		return before, nil
	}
	r, err := retire.Begin(o.on(ctx), restate.Key(ctx), req.Spec, req.By)
	if err != nil {
		return before, finally(err)
	}
	if before.ID != "" {
		if err := o.remember(ctx, before.Summary()); err != nil {
			return before, err
		}
	}
	r.Epoch, r.Fence, r.Saved = before.Epoch, before.Fence, before.Saved
	if err := o.settle(ctx, r, r.StartedMs, 0); err != nil {
		return before, err
	}
	return *r, o.audit(ctx, req.By, "start", nil, retirementConditionOf(r))
}

func (o *retirement) on(ctx restate.Context) retire.Steps {
	return o.work.On(o.steps.on(ctx), o.approvers)
}

func (o *retirement) remember(ctx restate.ObjectContext, s retire.Summary) error {
	past, terminal := restate.Get[[]retire.Summary](ctx, retirementPastKey)
	if terminal != nil {
		return terminal
	}
	restate.Set(ctx, retirementPastKey,
		append([]retire.Summary{s}, past[:min(len(past), retirementPastMax-1)]...))
	return nil
}

// step is called by a timer and makes one transition. A stale timer returns at once.
func (o *retirement) step(ctx restate.ObjectContext, t RetirementTimer) (restate.Void, error) {
	r, err := loadRetirement(ctx)
	if err != nil || !r.Takes(t.Epoch) {
		return restate.Void{}, err
	}
	before := retirementConditionOf(&r)
	at, err := o.advance(ctx, &r)
	if err != nil {
		return restate.Void{}, o.later(ctx, at, err)
	}
	if r.Phase == before.Phase {
		return restate.Void{}, nil
	}
	itself := controlplane.By{Actor: "weir-control", Reason: r.Events[len(r.Events)-1].Text}
	if itself.Reason == "" {
		itself.Reason = string(r.Phase)
	}
	return restate.Void{}, o.audit(ctx, itself, string(r.Phase), before, retirementConditionOf(&r))
}

// advance makes the transition that is due, and returns its time.
func (o *retirement) advance(ctx restate.ObjectContext, r *retire.Retirement) (at int64, err error) {
	steps := o.on(ctx)
	if at, err = steps.NowMs(); err != nil {
		return at, err
	}
	wait, err := r.Advance(steps, at)
	if err != nil {
		return at, err
	}
	r.Trouble = ""
	return at, o.settle(ctx, r, at, wait)
}

// later records the error of a step, and retries the step after a while.
func (o *retirement) later(ctx restate.ObjectContext, atMs int64, stepErr error) error {
	if !restate.IsTerminalError(stepErr) {
		return stepErr
	}
	r, err := loadRetirement(ctx)
	if err != nil {
		return err
	}
	r.Trouble = clip(firstLine(stepErr.Error()))
	o.write(ctx, &r, max(atMs, r.TimerMs), o.retryAfter)
	return nil
}

// approve takes a look of its own, because the evidence that the operator saw must still hold.
func (o *retirement) approve(ctx restate.ObjectContext, req RetirementApprove) (retire.Retirement, error) {
	action, operate := "approve_rename", (*retire.Retirement).ApproveRename
	if req.Drop {
		action, operate = "approve_drop", (*retire.Retirement).ApproveDrop
	}
	r, err := existingRetirement(ctx)
	if err != nil {
		return r, err
	}
	steps := o.on(ctx)
	at, err := steps.NowMs()
	if err != nil {
		return r, err
	}
	look, err := steps.Look(&r, req.Actor)
	if err != nil {
		return r, err
	}
	before := retirementConditionOf(&r)
	wait, refused := operate(&r, req.Order, look, at)
	if refused != nil && r.Phase == before.Phase {
		return r, failed(refused)
	}
	r.Trouble = ""
	if err := o.settle(ctx, &r, at, wait); err != nil {
		return r, err
	}
	if refused != nil { // the look showed a problem, and the retirement has gone back
		itself := controlplane.By{Actor: "weir-control", Reason: clip(firstLine(refused.Error()))}
		if err := o.audit(ctx, itself, string(r.Phase), before, retirementConditionOf(&r)); err != nil {
			return r, err
		}
		return r, failed(refused)
	}
	after := retirementConditionOf(&r)
	after.Approved = controlplane.ShortEvidence(req.Evidence)
	return r, o.audit(ctx, req.By, action, before, after)
}

// abort gives up the retirement.
func (o *retirement) abort(ctx restate.ObjectContext, by controlplane.By) (retire.Retirement, error) {
	r, err := existingRetirement(ctx)
	if err != nil {
		return r, err
	}
	at, err := controlplane.NowMs(o.steps.on(ctx))
	if err != nil {
		return r, err
	}
	before := retirementConditionOf(&r)
	wait, err := r.Abort(by, at)
	if err != nil {
		return r, failed(err)
	}
	r.Trouble = ""
	if err := o.settle(ctx, &r, at, wait); away(err) { // the next transition needs MySQL, so it will save the state
		o.write(ctx, &r, at, wait)
	} else if err != nil {
		return r, err
	}
	return r, o.audit(ctx, by, "abort", before, retirementConditionOf(&r))
}

// ensure continues from the state in MySQL if Restate has lost its own or has an older state. It also sends a lost
// timer again: a timer is lost, for example, if an operator cancels its invocation.
func (o *retirement) ensure(ctx restate.ObjectContext, _ restate.Void) (retire.Retirement, error) {
	r, err := loadRetirement(ctx)
	if err != nil {
		return r, err
	}
	before := r
	wait, restored, err := r.Restore(o.on(ctx), restate.Key(ctx))
	if err != nil {
		return r, finally(err)
	}
	if restored {
		o.send(ctx, &r, wait)
		by := controlplane.By{Actor: "weir-control", Reason: "Restate had lost the retirement, or an older state of it"}
		var was any
		if before.ID != "" {
			was = retirementConditionOf(&before)
		}
		return r, o.audit(ctx, by, "restore", was, retirementConditionOf(&r))
	}
	if !r.UnderWay() {
		return r, nil
	}
	at, err := controlplane.NowMs(o.steps.on(ctx))
	if err != nil {
		return r, err
	}
	if r.Overdue(at, o.grace) {
		o.write(ctx, &r, at, 0)
	}
	return r, nil
}

// status returns a snapshot without waiting. For a table that was never retired it returns an empty snapshot instead of
// an error, because it is read every few seconds and Restate's SDK logs errors.
func (o *retirement) status(ctx restate.ObjectSharedContext, _ restate.Void) (retire.Retirement, error) {
	return loadRetirement(ctx)
}

// list returns a snapshot, newest first.
func (o *retirement) list(ctx restate.ObjectSharedContext, _ restate.Void) ([]retire.Summary, error) {
	r, err := loadRetirement(ctx)
	if err != nil || r.ID == "" {
		return nil, err
	}
	past, terminal := restate.Get[[]retire.Summary](ctx, retirementPastKey)
	if terminal != nil {
		return nil, terminal
	}
	return append([]retire.Summary{r.Summary()}, past...), nil
}

// settle saves a transition to MySQL, stores it in Restate and sends the next timer.
func (o *retirement) settle(ctx restate.ObjectContext, r *retire.Retirement, nowMs int64,
	wait time.Duration) error {
	r.Settle(nowMs, wait)
	if err := r.Save(o.on(ctx)); err != nil {
		return finally(err)
	}
	o.send(ctx, r, wait)
	return nil
}

// write is settle without MySQL.
func (o *retirement) write(ctx restate.ObjectContext, r *retire.Retirement, nowMs int64, wait time.Duration) {
	r.Settle(nowMs, wait)
	o.send(ctx, r, wait)
}

// send stores a transition in Restate and sends the next timer: both or neither.
func (o *retirement) send(ctx restate.ObjectContext, r *retire.Retirement, wait time.Duration) {
	if r.UnderWay() {
		restate.ObjectSend(ctx, RetirementService, restate.Key(ctx), "Step").
			Send(RetirementTimer{Epoch: r.Epoch}, restate.WithDelay(max(0, wait)))
	}
	restate.Set(ctx, retirementKey, *r)
}

func (o *retirement) audit(ctx restate.ObjectContext, by controlplane.By, action string, before any,
	after retirementCondition) error {
	return sendAudit(ctx, "table", by, "retirement."+action, before, after)
}

// retirementCondition is the state of a retirement in the audit log, without its history.
type retirementCondition struct {
	ID          string                  `json:"id"`
	Phase       retire.Phase            `json:"phase"`
	Dated       string                  `json:"dated"`
	Why         string                  `json:"why,omitempty"`
	RowsDeleted int64                   `json:"rows_deleted"`
	LastWriteMs int64                   `json:"last_write_ms,omitempty"`
	Evidence    retire.Evidence         `json:"evidence"`
	Approvals   []controlplane.Approval `json:"approvals,omitempty"` // of the step, while it waits for more

	Approved string `json:"approved_evidence,omitempty"` // of an approval: its evidence, shortened
}

func retirementConditionOf(r *retire.Retirement) retirementCondition {
	return retirementCondition{ID: r.ID, Phase: r.Phase, Dated: r.Dated, Why: r.Why, RowsDeleted: r.RowsDeleted,
		LastWriteMs: r.LastWriteMs, Evidence: r.Evidence, Approvals: r.Approvals}
}

func loadRetirement(ctx restate.ObjectSharedContext) (retire.Retirement, error) {
	r, terminal := restate.Get[retire.Retirement](ctx, retirementKey)
	if terminal != nil {
		return r, terminal
	}
	if err := r.Check(); err != nil {
		return r, failed(err)
	}
	return r, nil
}

func existingRetirement(ctx restate.ObjectSharedContext) (retire.Retirement, error) {
	r, err := loadRetirement(ctx)
	if err == nil && r.ID == "" {
		err = failed(neverRetired(restate.Key(ctx)))
	}
	return r, err
}

func neverRetired(table string) error {
	return fmt.Errorf("%w: %q has never been retired: see weirctl retire start --help", controlplane.ErrNotFound, table)
}
