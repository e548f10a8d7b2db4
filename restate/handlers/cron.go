package handlers

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	restate "github.com/restatedev/sdk-go"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/cleanup"
)

// CronService is the object's name in Restate; its keys are names of jobs, for example "cleanup".
const CronService = "WeirCron"

const (
	stateKey    = "state"
	documentKey = "document" // the job's own document

	pauseTimeout = 5 * time.Second // of an attempt to read or save an order in MySQL
)

// Messages of WeirCron.
type (
	// StartRequest is the request to begin a chain.
	StartRequest struct {
		IntervalMs int64 `json:"interval_ms"`

		// Order is the newest order in MySQL to pause or resume the job. The zero value means that there is none.
		Order controlplane.PauseOrder `json:"order,omitzero"`
	}
	// Tick is the message that keeps a chain going.
	Tick struct {
		Generation int64 `json:"generation"`
		Sequence   int64 `json:"sequence"`
	}
)

// cron is the object WeirCron. See the package documentation for its invariants.
type cron struct {
	jobs  map[string]Job
	steps *stepper
	saves controlplane.JobStates // saved pauses; nil: pauses are not saved
	grace time.Duration          // how late a tick can be before Ensure replaces it
}

func (c *cron) definition() restate.ServiceDefinition {
	return restate.NewObject(CronService,
		restate.WithDocumentation("Weir's recurring jobs, one object each. Operate them with weirctl."),
		restate.WithIngressPrivate(true),
		restate.WithJournalRetention(6*time.Hour),
		restate.WithIdempotencyRetention(orderRetention),
		// This exceeds the time of any step, because an attempt should not be cut off while a batch is under way.
		restate.WithAbortTimeout(10*time.Minute),
		// It retries for minutes, then the invocation is killed and Ensure begins the chain again: a tick that cannot be
		// replayed must not block the object forever.
		retries(10*time.Second, 40, restate.KillOnMaxAttempts())).
		Handler("Start", restate.NewObjectHandler(c.start)).
		Handler("Ensure", restate.NewObjectHandler(c.ensure)).
		Handler("Pause", restate.NewObjectHandler(c.pause)).
		Handler("Resume", restate.NewObjectHandler(c.resume)).
		Handler("TriggerNow", restate.NewObjectHandler(c.triggerNow)).
		Handler("Tick", restate.NewObjectHandler(c.tick)).
		Handler("Status", restate.NewObjectSharedHandler(c.status, readOnly...)).
		Handler("Document", restate.NewObjectSharedHandler(c.document, readOnly...))
}

// start begins a chain if there is none, or if the interval has changed. On a paused job it changes nothing.
func (c *cron) start(ctx restate.ObjectContext, req StartRequest) (State, error) {
	return c.chain(ctx, req, false)
}

// ensure is start, but also begins a chain again that has lost its tick.
func (c *cron) ensure(ctx restate.ObjectContext, req StartRequest) (State, error) {
	return c.chain(ctx, req, true)
}

// chain makes sure that there is one chain, unless the job is paused.
func (c *cron) chain(ctx restate.ObjectContext, req StartRequest, repair bool) (State, error) {
	interval := time.Duration(req.IntervalMs) * time.Millisecond
	if interval < intervalMin || interval > intervalMax {
		return State{}, invalid(fmt.Errorf("interval_ms is %d (%d to %d)", req.IntervalMs, intervalMin.Milliseconds(),
			intervalMax.Milliseconds()))
	}
	s, err := c.load(ctx)
	if err != nil {
		return s, err
	}
	at, err := controlplane.NowMs(c.steps.on(ctx))
	if err != nil {
		return s, err
	}
	if err := c.adopt(ctx, &s, req.Order); err != nil {
		return s, err
	}
	if !s.wantsChain(interval) && !(repair && s.dead(at, c.grace)) {
		return s, nil
	}
	cancelNext(ctx, &s)
	s.begin(interval, at)
	sendNext(ctx, &s, at)
	restate.Set(ctx, stateKey, s)
	return s, nil
}

// pause ends the chain until resume. On a paused job it changes nothing.
func (c *cron) pause(ctx restate.ObjectContext, by controlplane.By) (State, error) {
	s, err := c.newest(ctx, by)
	if err != nil || s.Pause != nil {
		return s, err
	}
	at, err := controlplane.NowMs(c.steps.on(ctx))
	if err != nil {
		return s, err
	}
	before := s
	cancelNext(ctx, &s)
	s.end()
	s.Pause = &Pause{By: by, AtMs: at}
	if err := c.save(ctx, &s, at); err != nil {
		return s, err
	}
	restate.Set(ctx, stateKey, s)
	return s, auditJob(ctx, by, "pause", before.condition(), s.condition())
}

// resume begins a chain again, with a tick at once. On a running job it changes nothing.
func (c *cron) resume(ctx restate.ObjectContext, by controlplane.By) (State, error) {
	s, err := c.newest(ctx, by)
	if err != nil || s.Pause == nil {
		return s, err
	}
	at, err := controlplane.NowMs(c.steps.on(ctx))
	if err != nil {
		return s, err
	}
	before := s
	s.OrderedMs, s.Pause = s.ordered(), nil
	if err := c.save(ctx, &s, at); err != nil {
		return s, err
	}
	if s.IntervalMs > 0 { // otherwise it was paused before its first run, and the next Ensure starts it
		s.begin(time.Duration(s.IntervalMs)*time.Millisecond, at)
		sendNext(ctx, &s, at)
	}
	restate.Set(ctx, stateKey, s)
	return s, auditJob(ctx, by, "resume", before.condition(), s.condition())
}

// triggerNow runs the job once, paused or not. It does not change the chain.
func (c *cron) triggerNow(ctx restate.ObjectContext, by controlplane.By) (Run, error) {
	s, err := c.loadFor(ctx, by)
	if err != nil {
		return Run{}, err
	}
	at, err := controlplane.NowMs(c.steps.on(ctx))
	if err != nil {
		return Run{}, err
	}
	r, err := c.run(ctx, at, by.Actor)
	if err != nil {
		return Run{}, err
	}
	s.record(r)
	restate.Set(ctx, stateKey, s)
	return r, auditJob(ctx, by, "run", nil, r)
}

// tick runs the job and keeps the chain going. A stale tick returns at once.
func (c *cron) tick(ctx restate.ObjectContext, t Tick) (restate.Void, error) {
	s, err := c.load(ctx)
	if err != nil || !s.takes(t) {
		return restate.Void{}, err
	}
	at, err := controlplane.NowMs(c.steps.on(ctx))
	if err != nil {
		return restate.Void{}, err
	}
	s.advance(at)
	sendNext(ctx, &s, at)
	restate.Set(ctx, stateKey, s) // from here on the chain goes on by itself

	r, err := c.run(ctx, at, cleanup.TriggerSchedule)
	if err != nil {
		return restate.Void{}, err
	}
	s.record(r)
	if next := s.NextTick; r.Report.More && s.hurry(r.StartedMs+r.TookMs) {
		restate.CancelInvocation(ctx, next)
		sendNext(ctx, &s, s.DueMs)
	}
	restate.Set(ctx, stateKey, s)
	return restate.Void{}, nil
}

// status returns a snapshot without waiting.
func (c *cron) status(ctx restate.ObjectSharedContext, _ restate.Void) (State, error) {
	return c.load(ctx)
}

// document returns the job's own document, or null if there is none.
func (c *cron) document(ctx restate.ObjectSharedContext, _ restate.Void) (json.RawMessage, error) {
	if _, err := c.load(ctx); err != nil {
		return nil, err
	}
	document, terminal := restate.Get[json.RawMessage](ctx, documentKey)
	if terminal != nil {
		return nil, terminal
	}
	if document == nil {
		return json.RawMessage("null"), nil
	}
	return document, nil
}

// run runs the job. It returns only errors that Restate should retry; the job's own error is in the run.
func (c *cron) run(ctx restate.ObjectContext, startedMs int64, trigger string) (Run, error) {
	job := c.jobs[restate.Key(ctx)]
	report, err := job.Run(ctx)
	if err != nil && !restate.IsTerminalError(err) {
		return Run{}, err
	}
	r := Run{StartedMs: startedMs, Trigger: trigger, Report: report}
	if err != nil {
		r.Error, r.Report.More = err.Error(), false
	}
	endedMs, err := controlplane.Do(c.steps.on(ctx), "finished", finished(job, r.Error != ""))
	if err != nil {
		return Run{}, err
	}
	r.TookMs = max(0, endedMs-startedMs)
	return r, nil
}

// load reads the state of the job, and returns an error if this build has no such job.
func (c *cron) load(ctx restate.ObjectSharedContext) (State, error) {
	key := restate.Key(ctx)
	if _, ok := c.jobs[key]; !ok {
		return State{}, restate.ToTerminalError(fmt.Errorf("there is no job %q", key), restate.WithErrorCode(404))
	}
	s, terminal := restate.Get[State](ctx, stateKey)
	if terminal != nil {
		return State{}, terminal
	}
	if err := s.check(); err != nil {
		return State{}, restate.ToTerminalError(fmt.Errorf("job %s: %w", key, err), restate.WithErrorCode(409))
	}
	return s, nil
}

// loadFor is load for an operator's order, which must have an actor and a reason.
func (c *cron) loadFor(ctx restate.ObjectSharedContext, by controlplane.By) (State, error) {
	if err := by.Validate(); err != nil {
		return State{}, invalid(err)
	}
	return c.load(ctx)
}

// newest is loadFor, but first adopts a newer order from MySQL, so that an operator's order comes after it.
func (c *cron) newest(ctx restate.ObjectContext, by controlplane.By) (State, error) {
	s, err := c.loadFor(ctx, by)
	if err != nil || c.saves == nil {
		return s, err
	}
	job := restate.Key(ctx)
	order, err := controlplane.Do(c.steps.within(rolloutStepRetry).on(ctx), "look for a newer order",
		controlplane.Within(pauseTimeout, func(ctx context.Context) (controlplane.PauseOrder, error) {
			return controlplane.LoadPause(ctx, c.saves, job)
		}))
	if err != nil && !restate.IsTerminalError(err) {
		return s, err
	}
	if err == nil { // otherwise MySQL is down, and Restate's state decides
		err = c.adopt(ctx, &s, order)
		return s, err
	}
	return s, nil
}

// adopt applies an order from MySQL that is newer than the state, and adds an entry to the audit log.
func (c *cron) adopt(ctx restate.ObjectContext, s *State, o controlplane.PauseOrder) error {
	before := *s
	adopted := s.adopt(o)
	if s.OrderedMs == before.OrderedMs {
		return nil
	}
	if before.Running && !s.Running {
		cancelNext(ctx, &before)
	}
	restate.Set(ctx, stateKey, *s)
	if !adopted {
		return nil
	}
	by := controlplane.By{Actor: "weir-control", Reason: "Restate had lost the newest order about the job"}
	return auditJob(ctx, by, "restore", before.condition(), s.condition())
}

// save records the time of an operator's pause or resume, and saves the order to MySQL. If that fails, the order still
// counts, and [Keeper] saves it later.
func (c *cron) save(ctx restate.ObjectContext, s *State, at int64) error {
	s.OrderedMs = max(at, s.OrderedMs+1)
	if c.saves == nil {
		return nil
	}
	job, order := restate.Key(ctx), s.order()
	_, err := controlplane.Do(c.steps.within(rolloutStepRetry).on(ctx), "save the order",
		controlplane.Within(pauseTimeout, func(ctx context.Context) (bool, error) {
			return true, controlplane.SavePause(ctx, c.saves, job, order)
		}))
	if err != nil && !restate.IsTerminalError(err) {
		return err
	}
	return nil
}

// sendNext sends the tick that the state waits for, and stores the ID of its invocation.
func sendNext(ctx restate.ObjectContext, s *State, nowMs int64) {
	delay := time.Duration(max(0, s.DueMs-nowMs)) * time.Millisecond
	sent := restate.ObjectSend(ctx, CronService, restate.Key(ctx), "Tick").
		Send(Tick{Generation: s.Generation, Sequence: s.Sequence}, restate.WithDelay(delay))
	s.NextTick = sent.GetInvocationId()
}

// cancelNext cancels the tick that is under way. This only saves work: a tick that arrives anyway is stale.
func cancelNext(ctx restate.ObjectContext, s *State) {
	if s.NextTick != "" {
		restate.CancelInvocation(ctx, s.NextTick)
	}
}

// condition returns the state of a job in the audit log, without its history.
func (s *State) condition() any {
	return struct {
		Running    bool   `json:"running"`
		IntervalMs int64  `json:"interval_ms"`
		Pause      *Pause `json:"pause,omitempty"`
	}{s.Running, s.IntervalMs, s.Pause}
}

func invalid(err error) error { return restate.ToTerminalError(err, restate.WithErrorCode(400)) }

// text returns v as JSON, or "" for nil.
func text(v any) (string, error) {
	if v == nil {
		return "", nil
	}
	b, err := json.Marshal(v)
	return string(b), err
}
