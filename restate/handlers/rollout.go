package handlers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	restate "github.com/restatedev/sdk-go"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/access"
	"github.com/weirhq/weir/controlplane/rollout"
)

// RolloutService is the object's name in Restate; its keys are the rollouts' IDs.
const RolloutService = "WeirRollout"

const (
	rolloutKey = "rollout"

	// rolloutStepRetry is how long a failing step is retried at once; an operator's order waits for that time.
	rolloutStepRetry = 15 * time.Second

	approversTimeout = 5 * time.Second // of a check of tokens

	// stepRetention is how long the journals of looks are kept. Each contains the state twice, a third of a megabyte for a
	// thousand nodes, and there is a look every half minute.
	stepRetention = 10 * time.Minute

	// troubleRetry is the time to the next attempt of a step that has already been retried for long. Meanwhile operators
	// can use the object.
	troubleRetry = 10 * time.Second
)

// RolloutTimer is the message that keeps a rollout going.
type RolloutTimer struct {
	Epoch int64 `json:"epoch"`
}

// rolloutObject is the object WeirRollout: a rollout.Rollout, with one transition per invocation. No invocation
// outlasts a transition, so a new build never has to continue a longer journal of the old build. Between two looks of a
// bake nothing runs: a delayed message waits in Restate.
type rolloutObject struct {
	work       *rollout.Work
	approvers  access.Approvers // nil: every approval counts
	steps      *stepper
	retryAfter time.Duration // troubleRetry, except in tests
}

// durable returns the options of rollouts' invocations. An invocation that keeps failing for an hour, for example
// because it cannot be replayed, is paused and not killed. A killed invocation would leave the rollout stuck, so an
// operator must look.
func durable(documentation string) []restate.ServiceDefinitionOption {
	return []restate.ServiceDefinitionOption{
		restate.WithDocumentation(documentation),
		restate.WithIngressPrivate(true),
		restate.WithJournalRetention(24 * time.Hour),
		restate.WithIdempotencyRetention(orderRetention),
		restate.WithAbortTimeout(10 * time.Minute),
		retries(10*time.Second, 360, restate.PauseOnMaxAttempts()),
	}
}

// retries returns the policy of attempts: the waits between them double from 200 ms to longest, and after most attempts
// then says what happens.
func retries(longest time.Duration, most uint,
	then restate.InvocationRetryPolicyOption) restate.ServiceDefinitionOption {
	return restate.WithInvocationRetryPolicy(restate.WithInitialRetryInterval(200*time.Millisecond),
		restate.WithRetryIntervalFactor(2), restate.WithMaxRetryInterval(longest), restate.WithMaxRetryAttempts(most), then)
}

func (o *rolloutObject) definition() restate.ServiceDefinition {
	return restate.NewObject(RolloutService,
		durable(
			"Rollouts of tuning, one object each. Operate them with weirctl.")...).
		Handler("Begin", restate.NewObjectHandler(o.begin)).
		Handler("Restore", restate.NewObjectHandler(o.restore)).
		Handler("Step", restate.NewObjectHandler(o.step, restate.WithJournalRetention(stepRetention))).
		Handler("TakeBack", restate.NewObjectHandler(o.rollBack)).
		Handler("Forget", restate.NewObjectHandler(o.forget)).
		Handler("Ensure", restate.NewObjectHandler(o.ensure)).
		Handler("Operate", restate.NewObjectHandler(o.operate)).
		Handler("Status", restate.NewObjectSharedHandler(o.status, readOnly...))
}

// begin must only be called under the lock of rollouts, which makes sure that only one rollout is under way.
func (o *rolloutObject) begin(ctx restate.ObjectContext, req rollout.Begin) (rollout.Rollout, error) {
	r, err := o.restored(ctx)
	if err != nil {
		return r, err
	}
	wait, fresh, err := r.Begin(o.on(ctx), restate.Key(ctx), req)
	if err != nil {
		return rollout.Rollout{}, finally(err)
	}
	if !fresh {
		return r, nil
	}
	if err := o.settle(ctx, &r, wait); err != nil {
		return rollout.Rollout{}, err
	}
	return r, o.audit(ctx, req.By, "start", nil, condition(&r))
}

func (o *rolloutObject) on(ctx restate.Context) rollout.Steps { return o.work.On(o.steps.on(ctx)) }

// current returns the document, or MySQL's document if that is newer. If newer is true, the caller must settle it with
// wait.
func (o *rolloutObject) current(ctx restate.ObjectContext) (r rollout.Rollout, wait time.Duration, newer bool,
	err error) {
	if r, err = load(ctx); err != nil {
		return r, 0, false, err
	}
	var before any
	if r.ID != "" {
		before = condition(&r)
	}
	if wait, newer, err = r.Restore(o.on(ctx), restate.Key(ctx)); err != nil || !newer {
		return r, 0, false, finally(err)
	}
	by := controlplane.By{Actor: "weir-control", Reason: "Restate had lost the rollout, or an older state of it"}
	return r, wait, true, o.audit(ctx, by, "restore", before, condition(&r))
}

// restored returns the current rollout, settled.
func (o *rolloutObject) restored(ctx restate.ObjectContext) (rollout.Rollout, error) {
	r, wait, newer, err := o.current(ctx)
	if err == nil && newer {
		err = o.settle(ctx, &r, wait)
	}
	return r, err
}

// restore is called under the lock of rollouts if MySQL has another state of the rollout than Restate. If Restate has
// the newer state, it is saved to MySQL: an operator ended the rollout while MySQL was down, or MySQL was restored from
// an older copy.
func (o *rolloutObject) restore(ctx restate.ObjectContext, _ restate.Void) (rollout.Rollout, error) {
	r, wait, newer, err := o.current(ctx)
	if err == nil {
		err = known(ctx, &r)
	}
	switch {
	case err != nil:
		return r, err
	case newer:
		return r, o.settle(ctx, &r, wait)
	}
	if err := r.SaveAgain(o.on(ctx)); err != nil {
		return r, finally(err)
	}
	restate.Set(ctx, rolloutKey, r)
	return r, nil
}

// step is called by a timer and makes one transition. A stale timer returns at once.
func (o *rolloutObject) step(ctx restate.ObjectContext, t RolloutTimer) (restate.Void, error) {
	r, err := load(ctx)
	if err != nil || !r.Takes(t.Epoch) {
		return restate.Void{}, err
	}
	if err := o.advance(ctx); err != nil {
		return restate.Void{}, o.later(ctx, err)
	}
	return restate.Void{}, nil
}

// advance makes the transition that is due. Continuing from a newer state counts as a transition.
func (o *rolloutObject) advance(ctx restate.ObjectContext) error {
	r, wait, newer, err := o.current(ctx)
	if err != nil {
		return err
	}
	if newer {
		return o.settle(ctx, &r, wait)
	}
	before, paused := r.Phase, r.Paused
	if wait, err = r.Advance(o.on(ctx)); err != nil {
		return err
	}
	if err := o.settle(ctx, &r, wait); err != nil {
		return err
	}
	if paused == nil && r.Paused != nil { // its guardrails could not judge the stage
		return o.audit(ctx, r.Paused.By, "pause", before, condition(&r))
	}
	if r.Phase != before && (r.Phase == rollout.RollingBack || r.Phase.Over()) {
		itself := controlplane.By{Actor: "weir-control", Reason: "all stages are done"}
		if r.Why != "" {
			itself.Reason = clip(r.Why)
		}
		return o.audit(ctx, itself, string(r.Phase), before, condition(&r))
	}
	return nil
}

// later records the error of a step, and retries the step after a while. It records only errors of the step itself;
// Restate retries after other errors at once.
func (o *rolloutObject) later(ctx restate.ObjectContext, stepErr error) error {
	if !restate.IsTerminalError(stepErr) {
		return stepErr
	}
	r, err := load(ctx)
	if err != nil {
		return err
	}
	r.MovedMs, err = controlplane.Do(o.steps.on(ctx), "now, after trouble",
		func(context.Context) (int64, error) { return time.Now().UnixMilli(), nil })
	if err != nil {
		return err
	}
	r.Trouble = clip(firstLine(stepErr.Error()))
	o.write(ctx, &r, o.retryAfter)
	return nil
}

// ensure sends a message of a rollout again that [Keeper] considers lost: its outcome or its timer.
func (o *rolloutObject) ensure(ctx restate.ObjectContext, t RolloutTimer) (restate.Void, error) {
	r, wait, newer, err := o.current(ctx)
	if err != nil {
		return restate.Void{}, err
	}
	if newer {
		return restate.Void{}, o.settle(ctx, &r, wait)
	}
	o.sendOutcome(ctx, &r)
	if !r.Takes(t.Epoch) { // it has advanced since, so no timer was lost
		return restate.Void{}, nil
	}
	at, err := controlplane.NowMs(o.steps.on(ctx))
	if err != nil {
		return restate.Void{}, err
	}
	return restate.Void{}, o.settle(ctx, &r, r.Revive(at))
}

// operate makes an operator's transition.
func (o *rolloutObject) operate(ctx restate.ObjectContext, order rollout.Order) (rollout.Rollout, error) {
	if order.Action == rollout.RollBack {
		return rollout.Rollout{},
			failed(fmt.Errorf("%w: a rollback goes through %s", controlplane.ErrInvalid, RolloutsService))
	}
	r, err := o.restored(ctx)
	alone := away(err) && order.Action.Stops()
	if alone {
		r, err = load(ctx)
	}
	if err == nil {
		err = known(ctx, &r)
	}
	if err != nil {
		return r, err
	}
	at, err := controlplane.NowMs(o.steps.on(ctx))
	if err != nil {
		return r, err
	}
	before := condition(&r)
	if order.Action == rollout.Approve {
		if err := o.withdraw(ctx, &r, order, at); err != nil {
			return r, err
		}
	}
	wait, err := r.Operate(order, at)
	if alone && err == nil { // the next transition needs MySQL, so it will save the state
		o.write(ctx, &r, wait)
		return r, o.audit(ctx, order.By, string(order.Action), before, condition(&r))
	}
	return o.operated(ctx, r, order, before, wait, err)
}

// withdraw returns an error for an approval whose credential has ended. If the credential of an earlier approval has
// ended, it removes that approval, and a new request for approvals begins.
func (o *rolloutObject) withdraw(ctx restate.ObjectContext, r *rollout.Rollout, order rollout.Order,
	at int64) error {
	if o.approvers == nil {
		return nil
	}
	actors := r.Approving(order.By)
	ended, err := controlplane.Do(o.steps.on(ctx), "look who may still approve",
		controlplane.Within(approversTimeout, func(ctx context.Context) (map[string]string, error) {
			return o.approvers.Ended(ctx, actors, access.RoleOperator)
		}))
	if err != nil {
		return err
	}
	before := condition(r)
	changed, refused := r.Withdraw(ended, order.By, at)
	if changed {
		if err := o.settle(ctx, r, r.UntilApproved(at)); err != nil {
			return err
		}
		itself := controlplane.By{Actor: "weir-control", Reason: clip(firstLine(refused.Error()))}
		if err := o.audit(ctx, itself, "withdraw", before, condition(r)); err != nil {
			return err
		}
	}
	return finally(refused)
}

// away reports whether a step has failed for its whole retry time, because MySQL is down.
func away(err error) bool {
	failed := restate.AsTerminalError(err)
	return failed != nil && failed.Code() == http.StatusInternalServerError
}

// rollBack must only be called under the lock of rollouts, so that no other rollout is under way.
func (o *rolloutObject) rollBack(ctx restate.ObjectContext, by controlplane.By) (rollout.Rollout, error) {
	r, err := o.restored(ctx)
	if err == nil {
		err = known(ctx, &r)
	}
	if err != nil {
		return r, err
	}
	before := condition(&r)
	wait, err := r.RollBack(o.on(ctx), by)
	return o.operated(ctx, r, rollout.Order{Action: rollout.RollBack, By: by}, before, wait, err)
}

// operated settles an operator's transition.
func (o *rolloutObject) operated(ctx restate.ObjectContext, r rollout.Rollout, order rollout.Order,
	before rolloutCondition, wait time.Duration, err error) (rollout.Rollout, error) {
	if err != nil {
		return r, finally(err)
	}
	if err := o.settle(ctx, &r, wait); err != nil {
		return r, err
	}
	after := condition(&r)
	if order.Action == rollout.Approve {
		after.Approved = controlplane.ShortEvidence(order.Evidence)
	}
	return r, o.audit(ctx, order.By, string(order.Action), before, after)
}

// forget deletes the state of an ended rollout that is no longer listed. MySQL keeps it.
func (o *rolloutObject) forget(ctx restate.ObjectContext, _ restate.Void) (restate.Void, error) {
	r, err := load(ctx)
	if err == nil && r.Phase.Over() {
		restate.ClearAll(ctx)
	}
	return restate.Void{}, err
}

// status returns a snapshot without waiting.
func (o *rolloutObject) status(ctx restate.ObjectSharedContext, _ restate.Void) (rollout.Rollout, error) {
	r, err := load(ctx)
	if err == nil {
		err = known(ctx, &r)
	}
	return r, err
}

// known returns an error if the document is empty.
func known(ctx restate.ObjectSharedContext, r *rollout.Rollout) error {
	if r.ID == "" {
		return failed(fmt.Errorf("%w: there is no rollout %q", controlplane.ErrNotFound, restate.Key(ctx)))
	}
	return nil
}

// settle saves a transition to MySQL, stores it in Restate and sends its messages.
func (o *rolloutObject) settle(ctx restate.ObjectContext, r *rollout.Rollout, wait time.Duration) error {
	r.Settle(wait)
	if err := r.Save(o.on(ctx)); err != nil {
		return finally(err)
	}
	o.send(ctx, r, wait)
	return nil
}

// write is settle without MySQL, for a state that need not be saved.
func (o *rolloutObject) write(ctx restate.ObjectContext, r *rollout.Rollout, wait time.Duration) {
	r.Settle(wait)
	o.send(ctx, r, wait)
}

// send stores a transition in Restate and sends its messages: the next timer, and the outcome to the lock. Either all
// of this happens or nothing.
func (o *rolloutObject) send(ctx restate.ObjectContext, r *rollout.Rollout, wait time.Duration) {
	if wait >= 0 {
		restate.ObjectSend(ctx, RolloutService, restate.Key(ctx), "Step").
			Send(RolloutTimer{Epoch: r.Epoch}, restate.WithDelay(wait))
	}
	restate.Set(ctx, rolloutKey, *r)
	o.sendOutcome(ctx, r)
}

// sendOutcome sends the outcome of a rollout that is over to the lock.
func (o *rolloutObject) sendOutcome(ctx restate.ObjectContext, r *rollout.Rollout) {
	if r.Phase.Over() {
		restate.ObjectSend(ctx, RolloutsService, rolloutScope, "Ended").Send(r.Summary())
	}
}

func (o *rolloutObject) audit(ctx restate.ObjectContext, by controlplane.By, action string, before any,
	after rolloutCondition) error {
	return sendAudit(ctx, "rollout", by, "rollout."+action, before, after)
}

// rolloutCondition is the state of a rollout in the audit log, without its history and the figures of nodes.
type rolloutCondition struct {
	Phase   rollout.Phase   `json:"phase"`
	Stage   int             `json:"stage"` // from 1
	Of      int             `json:"of"`
	Tuning  json.RawMessage `json:"tuning,omitempty"`
	Limits  *limitsSummary  `json:"limits,omitempty"` // nil: the rollout has a tuning
	Touched int             `json:"regions_touched"`
	Paused  bool            `json:"paused,omitempty"`

	Approvals []controlplane.Approval `json:"approvals,omitempty"` // of the stage, while it waits for more
	Why       string                  `json:"why,omitempty"`

	Forced   string `json:"forced,omitempty"`            // critical health that was overridden at the start
	Approved string `json:"approved_evidence,omitempty"` // of an approval: its evidence, shortened
}

// limitsSummary stands for a change of limits, which can be longer than an entry. The entries rollout.try,
// override.set, override.delete and namespace.set have the items.
type limitsSummary struct {
	Items  int    `json:"items"`
	Digest string `json:"digest"`
}

func condition(r *rollout.Rollout) rolloutCondition {
	c := rolloutCondition{Phase: r.Phase, Stage: r.Stage + 1, Of: len(r.Stages), Touched: len(r.Trials()),
		Paused: r.Paused != nil, Approvals: r.Approvals, Why: r.Why, Forced: r.Forced}
	if r.Spec.Limits == nil {
		c.Tuning = json.RawMessage(r.Document)
	} else {
		c.Limits = &limitsSummary{r.Spec.Limits.Items(), controlplane.Digest(r.Spec.Limits)}
	}
	return c
}

// clip shortens a line to a reason for the audit log.
func clip(line string) string {
	return controlplane.ShortReason(line)
}

func load(ctx restate.ObjectSharedContext) (rollout.Rollout, error) {
	r, terminal := restate.Get[rollout.Rollout](ctx, rolloutKey)
	if terminal != nil {
		return r, terminal
	}
	if err := r.Check(); err != nil {
		return r, failed(err)
	}
	r.Upgrade()
	return r, nil
}

// failed returns an error for the caller, with the status that Client.classify reads.
func failed(err error) error {
	code := restate.Code(http.StatusInternalServerError)
	switch {
	case errors.Is(err, controlplane.ErrInvalid):
		code = http.StatusBadRequest
	case errors.Is(err, controlplane.ErrNotFound):
		code = http.StatusNotFound
	case errors.Is(err, controlplane.ErrConflict):
		code = http.StatusConflict
	case errors.Is(err, controlplane.ErrChanged):
		code = http.StatusPreconditionFailed
	}
	return restate.ToTerminalError(err, restate.WithErrorCode(code))
}

// finally returns an error of a transition. Its own refusals and the last errors of steps are terminal; Restate retries
// after any other error.
func finally(err error) error {
	if err == nil || restate.IsTerminalError(err) || !refusal(err) {
		return err
	}
	return failed(err)
}

// refusal reports whether a transition was refused, so it changed nothing.
func refusal(err error) bool {
	return errors.Is(err, controlplane.ErrInvalid) || errors.Is(err, controlplane.ErrConflict) ||
		errors.Is(err, controlplane.ErrNotFound) || errors.Is(err, controlplane.ErrChanged)
}
