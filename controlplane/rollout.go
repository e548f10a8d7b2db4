package controlplane

import (
	"fmt"
	"slices"
	"time"
)

// RolloutPhase is where a rollout stands.
type RolloutPhase string

// The phases, in the order in which a stage goes through them; the last three are
// outcomes, of which every rollout has exactly one.
const (
	RolloutAwaiting    RolloutPhase = "awaiting_approval" // of a person, before the stage
	RolloutMeasuring   RolloutPhase = "measuring"         // the baseline
	RolloutApplying    RolloutPhase = "applying"          // the tuning version is being written
	RolloutConverging  RolloutPhase = "converging"        // nodes are taking it up
	RolloutBaking      RolloutPhase = "baking"            // health is held against the baseline
	RolloutRollingBack RolloutPhase = "rolling_back"

	RolloutDone       RolloutPhase = "done"
	RolloutRolledBack RolloutPhase = "rolled_back"
	RolloutAborted    RolloutPhase = "aborted"
)

// Over tells whether a phase is an outcome.
func (p RolloutPhase) Over() bool {
	return p == RolloutDone || p == RolloutRolledBack || p == RolloutAborted
}

const (
	rolloutVersion   = 1
	rolloutEventsMax = 200

	// Whoever did what no operator asked for, in the audit log.
	rolloutItself = "weir-control"
)

// Rollout is everything that is known of a rollout: one document, so that no half of it
// can be seen. It outlives builds: fields are only ever added, what a document does not
// have is zero, and a change of meaning is a new Version.
//
// Its methods are the transitions. They decide from the document and the answers of
// steps alone; [Rollout.Advance] is the one that time brings, the others are operators'.
type Rollout struct {
	Version int    `json:"version"`
	ID      string `json:"id"`

	// Epoch is raised by every transition: a timer of an earlier one is stale.
	Epoch int64 `json:"epoch"`

	Spec      RolloutSpec `json:"spec"`
	Document  string      `json:"document"` // the tuning, every field present
	Stages    []StagePlan `json:"stages"`
	By        By          `json:"by"` // who started it
	StartedMs int64       `json:"started_ms"`
	EndedMs   int64       `json:"ended_ms,omitempty"` // when it came to its outcome

	Phase   RolloutPhase  `json:"phase"`
	Stage   int           `json:"stage"`             // index into Stages
	Paused  *RolloutPause `json:"paused,omitempty"`  // nothing goes on until an operator resumes
	Why     string        `json:"why,omitempty"`     // one line: why it is rolled back or was aborted
	Trouble string        `json:"trouble,omitempty"` // what stands in the way of the next step, tried again
	Waiting string        `json:"waiting,omitempty"` // what the phase waits for

	// MovedMs is the clock of the last transition and TimerMs when the timer of the next one
	// is due; 0: there is none. See Dead.
	MovedMs int64 `json:"moved_ms,omitempty"`
	TimerMs int64 `json:"timer_ms,omitempty"`

	// Of the phase: when it is over at the earliest (baseline, bake) or the latest
	// (converging), and the snapshot that its health is measured from.
	DueMs  int64           `json:"due_ms,omitempty"`
	Sample *HealthSnapshot `json:"sample,omitempty"`

	Baseline HealthRates `json:"baseline"` // of the stage
	Now      HealthRates `json:"now"`      // of the stage since it bakes

	// What the queries of the plan answered before the stage, and since it bakes.
	QueriesBefore []QueryValue `json:"queries_before,omitempty"`
	QueriesNow    []QueryValue `json:"queries_now,omitempty"`
	BlindMs       int64        `json:"blind_ms,omitempty"` // since when a required one has no value; 0: all have

	// Touched are the regions that have, or may have, the new tuning, in the order in
	// which they got it. A region is here before it is written.
	Touched []Touched    `json:"touched,omitempty"`
	Wanted  RolloutPhase `json:"wanted,omitempty"` // the outcome, while rolling back

	Events []RolloutEvent `json:"events,omitempty"` // oldest first, the newest rolloutEventsMax
}

// Touched is a region that a rollout wrote, or was about to.
type Touched struct {
	Region   string `json:"region"`            // "" is the fleet's row
	Previous string `json:"previous"`          // the document in force before
	Applied  int64  `json:"applied,omitempty"` // version with the new tuning, 0: not known to be written
	Reverted int64  `json:"reverted,omitempty"`
}

// RolloutPause is who paused, why and since when.
type RolloutPause struct {
	By
	AtMs int64 `json:"at_ms"`
}

// RolloutEvent is a line of a rollout's history.
type RolloutEvent struct {
	AtMs  int64  `json:"at_ms"`
	Actor string `json:"actor"`
	What  string `json:"what"`
	Text  string `json:"text,omitempty"`
}

// RolloutSteps are the effects of a rollout. Each may be executed more than once.
type RolloutSteps interface {
	NowMs() (int64, error)
	// Previous is the document in force for each of the regions, "" being the fleet.
	Previous(regions []string) ([]string, error)
	// Write writes versions as one, and answers their numbers. A write that was made
	// before is not made again.
	Write(writes []TuningWrite) ([]int64, error)
	// Health is a snapshot of the scope's nodes, or of those in like.
	Health(scope RolloutScope, like *HealthSnapshot) (HealthSnapshot, error)
	// Queries are what a Prometheus says of the scope. It is asked only if there are rails.
	Queries(scope RolloutScope, rails []QueryRail) ([]QueryValue, error)
	// Applied tells how far the scope's live nodes have taken up versions, by region.
	Applied(scope RolloutScope, versions map[string]int64) (Applied, error)
}

// TuningWrite is one version to write.
type TuningWrite struct {
	ID       string `json:"id"` // of the write, unique for all time
	Region   string `json:"region"`
	Document string `json:"document"`
	By
}

// Applied is how far nodes have taken up a version.
type Applied struct {
	Live    int    `json:"live"`
	Applied int    `json:"applied"`
	Waiting string `json:"waiting,omitempty"` // one node that has not, and what it says
}

// NewRollout is a rollout before its first transition.
func NewRollout(id string, spec RolloutSpec, by By, regions []string, nowMs int64) (*Rollout, error) {
	if err := ValidateRolloutID(id); err != nil {
		return nil, err
	}
	if err := by.Validate(); err != nil {
		return nil, err
	}
	if err := spec.Validate(); err != nil {
		return nil, err
	}
	document, err := spec.document()
	if err != nil {
		return nil, err
	}
	stages, err := spec.Plan.resolve(regions)
	if err != nil {
		return nil, err
	}
	r := &Rollout{Version: rolloutVersion, ID: id, Spec: spec, Document: document, Stages: stages, By: by, StartedMs: nowMs, MovedMs: nowMs}
	r.event(nowMs, by.Actor, "start", by.Reason)
	r.enter(0)
	return r, nil
}

// Check refuses a document of a newer build: writing it back would lose what this one
// does not know.
func (r *Rollout) Check() error {
	if r.Version > rolloutVersion {
		return fmt.Errorf("%w: the rollout's state is version %d and this build knows %d: run the newer weir-control", ErrConflict, r.Version, rolloutVersion)
	}
	return nil
}

// Takes tells whether a timer is the one that the rollout waits for.
func (r *Rollout) Takes(epoch int64) bool {
	return epoch == r.Epoch && r.Paused == nil && !r.Phase.Over()
}

// Settle ends a transition: timers of before are stale, and the next one is due after
// wait; less than 0: not before an operator acts.
func (r *Rollout) Settle(wait time.Duration) {
	r.Epoch++
	r.TimerMs = 0
	if wait >= 0 {
		r.TimerMs = r.MovedMs + wait.Milliseconds()
	}
}

// Dead tells whether the timer has been lost, since it is more than late past due: whoever
// ran it was killed or given up. Of a document that an older build wrote it is not known
// when it is due, and one timer too many does no harm.
func (r *Rollout) Dead(nowMs int64, late time.Duration) bool {
	if r.ID == "" || r.Phase.Over() || r.Phase == RolloutAwaiting || r.Paused != nil {
		return false
	}
	return nowMs > r.TimerMs+late.Milliseconds()
}

// Advance makes the transition that is due, and answers after how long the next one is;
// less than 0: not before an operator acts. After an error r is to be thrown away: what
// was done is done again, to the same effect, from the document before.
func (r *Rollout) Advance(steps RolloutSteps) (wait time.Duration, err error) {
	nowMs, err := steps.NowMs()
	if err != nil {
		return 0, err
	}
	r.MovedMs = nowMs
	switch r.Phase {
	case RolloutMeasuring:
		return r.measure(steps, nowMs)
	case RolloutApplying:
		return r.apply(steps, nowMs)
	case RolloutConverging:
		return r.converge(steps, nowMs)
	case RolloutBaking:
		return r.bake(steps, nowMs)
	case RolloutRollingBack:
		return r.rollBack(steps, nowMs)
	}
	return -1, nil // awaiting, or over
}

func (r *Rollout) stage() StagePlan { return r.Stages[r.Stage] }

// enter begins a stage.
func (r *Rollout) enter(stage int) (wait time.Duration) {
	r.Stage, r.Phase = stage, RolloutMeasuring
	r.Sample, r.Baseline, r.Now, r.DueMs, r.Waiting = nil, HealthRates{}, HealthRates{}, 0, ""
	r.QueriesBefore, r.QueriesNow, r.BlindMs = nil, nil, 0
	if r.stage().Approval {
		r.Phase = RolloutAwaiting
		return -1
	}
	return 0
}

// measure takes the baseline: two snapshots, BaselineMs apart.
func (r *Rollout) measure(steps RolloutSteps, nowMs int64) (time.Duration, error) {
	health, err := steps.Health(r.stage().Scope, r.Sample)
	if err != nil {
		return 0, err
	}
	if r.Sample == nil && r.Spec.Plan.BaselineMs > 0 {
		r.Sample, r.DueMs = &health, nowMs+r.Spec.Plan.BaselineMs
		return r.until(nowMs), nil
	}
	if nowMs < r.DueMs {
		return r.until(nowMs), nil
	}
	if r.Sample != nil {
		r.Baseline = r.Sample.Rates(health)
		if r.unheard(*r.Sample, r.Baseline) && nowMs < r.DueMs+r.Spec.Plan.ApplyTimeoutMs {
			return r.poll(), nil
		}
	}
	if r.QueriesBefore, err = r.ask(steps); err != nil {
		return 0, err
	}
	if wait, blind := r.blind(nowMs, r.QueriesBefore); blind {
		return wait, nil
	}
	rows := r.stage().Scope.rows()
	previous, err := steps.Previous(rows)
	if err != nil {
		return 0, err
	}
	for i, region := range rows {
		r.Touched = append(r.Touched, Touched{Region: region, Previous: previous[i]})
	}
	r.Phase, r.Sample, r.DueMs, r.Waiting = RolloutApplying, nil, 0, ""
	return 0, nil
}

// apply writes the tuning for the stage's regions, all at once.
func (r *Rollout) apply(steps RolloutSteps, nowMs int64) (time.Duration, error) {
	rows := r.stage().Scope.rows()
	first := len(r.Touched) - len(rows)
	var writes []TuningWrite
	for _, t := range r.Touched[first:] {
		writes = append(writes, r.applyWrite(t))
	}
	versions, err := steps.Write(writes)
	if err != nil {
		return 0, err
	}
	for i, v := range versions {
		r.Touched[first+i].Applied = v
	}
	r.event(nowMs, rolloutItself, "apply", fmt.Sprintf("stage %d: %s", r.Stage+1, r.stage().Scope))
	r.Phase, r.DueMs = RolloutConverging, nowMs+r.Spec.Plan.ApplyTimeoutMs
	return 0, nil
}

// converge waits until every live node of the stage reports the tuning.
func (r *Rollout) converge(steps RolloutSteps, nowMs int64) (time.Duration, error) {
	versions := make(map[string]int64, len(r.Touched))
	for _, t := range r.Touched {
		versions[t.Region] = t.Applied
	}
	applied, err := steps.Applied(r.stage().Scope, versions)
	if err != nil {
		return 0, err
	}
	if applied.Applied < applied.Live {
		r.Waiting = fmt.Sprintf("%d of %d live nodes have applied it; %s", applied.Applied, applied.Live, applied.Waiting)
		if nowMs >= r.DueMs {
			return r.fail(nowMs, "not applied in time: "+r.Waiting), nil
		}
		return r.poll(), nil
	}
	health, err := steps.Health(r.stage().Scope, nil)
	if err != nil {
		return 0, err
	}
	r.Phase, r.Sample, r.DueMs, r.Waiting = RolloutBaking, &health, nowMs+r.stage().BakeMs, ""
	r.event(nowMs, rolloutItself, "bake", fmt.Sprintf("stage %d: applied by %d live nodes", r.Stage+1, applied.Live))
	return r.checkIn(nowMs), nil
}

// bake holds the stage's health against its baseline.
func (r *Rollout) bake(steps RolloutSteps, nowMs int64) (time.Duration, error) {
	if r.Sample == nil { // resumed: it bakes from here on
		health, err := steps.Health(r.stage().Scope, nil)
		if err != nil {
			return 0, err
		}
		r.Sample, r.DueMs = &health, nowMs+r.stage().BakeMs
		return r.checkIn(nowMs), nil
	}
	health, err := steps.Health(r.stage().Scope, r.Sample)
	if err != nil {
		return 0, err
	}
	r.Now = r.Sample.Rates(health)
	if breach := r.Spec.Plan.Guardrails.Breach(r.Baseline, r.Now); breach != "" {
		return r.fail(nowMs, breach), nil
	}
	if r.QueriesNow, err = r.ask(steps); err != nil {
		return 0, err
	}
	if breach := r.Spec.Plan.Guardrails.breachOfQueries(r.QueriesBefore, r.QueriesNow); breach != "" {
		return r.fail(nowMs, breach), nil
	}
	if wait, blind := r.blind(nowMs, r.QueriesNow); blind {
		return wait, nil
	}
	if nowMs < r.DueMs {
		return r.checkIn(nowMs), nil
	}
	if r.unheard(*r.Sample, r.Now) { // nobody can say that all is well
		if nowMs >= r.DueMs+r.Spec.Plan.ApplyTimeoutMs {
			return r.fail(nowMs, "no heartbeat since it bakes"), nil
		}
		return r.poll(), nil
	}
	if r.Stage+1 < len(r.Stages) {
		return r.enter(r.Stage + 1), nil
	}
	return r.end(nowMs, RolloutDone, rolloutItself), nil
}

// ask is what the queries of the plan answer now.
func (r *Rollout) ask(steps RolloutSteps) ([]QueryValue, error) {
	rails := r.Spec.Plan.Guardrails.Queries
	if len(rails) == 0 {
		return nil, nil
	}
	return steps.Queries(r.stage().Scope, rails)
}

// blind waits while a required query has no value, and gives up after a time.
func (r *Rollout) blind(nowMs int64, values []QueryValue) (wait time.Duration, blind bool) {
	why := r.Spec.Plan.Guardrails.blind(values)
	if why == "" {
		if r.BlindMs > 0 {
			r.BlindMs, r.Waiting = 0, ""
		}
		return 0, false
	}
	if r.BlindMs == 0 {
		r.BlindMs = nowMs
	}
	if nowMs-r.BlindMs >= r.Spec.Plan.ApplyTimeoutMs {
		return r.fail(nowMs, why), true
	}
	r.Waiting = why
	return r.poll(), true
}

// fail turns the rollout around, by itself.
func (r *Rollout) fail(nowMs int64, why string) time.Duration {
	return r.turn(nowMs, RolloutRolledBack, rolloutItself, fmt.Sprintf("stage %d (%s): %s", r.Stage+1, r.stage().Scope, why))
}

func (r *Rollout) turn(nowMs int64, wanted RolloutPhase, actor, why string) time.Duration {
	r.Phase, r.Wanted, r.Why = RolloutRollingBack, wanted, why
	r.Paused, r.Sample, r.DueMs, r.Waiting, r.EndedMs = nil, nil, 0, "", 0
	r.event(nowMs, actor, "roll back", why)
	return 0
}

// rollBack gives one region its previous tuning back, the last one first.
//
// Of a region that is not known to be written an attempt may still be on its way. Its
// write is made here, and undone in the same breath: whatever arrives later is a write
// that was made before.
func (r *Rollout) rollBack(steps RolloutSteps, nowMs int64) (time.Duration, error) {
	for i := len(r.Touched) - 1; i >= 0; i-- {
		t := &r.Touched[i]
		if t.Reverted != 0 {
			continue
		}
		revert := TuningWrite{
			ID: r.ID + "/revert/" + t.Region, Region: t.Region, Document: t.Previous,
			By: By{Actor: r.By.Actor, Reason: cut(fmt.Sprintf("rollout %s rolled back: %s", r.ID, r.Why), ReasonBytesMax)},
		}
		writes := []TuningWrite{revert}
		if t.Applied == 0 {
			writes = []TuningWrite{r.applyWrite(*t), revert}
		}
		versions, err := steps.Write(writes)
		if err != nil {
			return 0, err
		}
		t.Reverted = versions[len(versions)-1]
		return 0, nil
	}
	return r.end(nowMs, r.Wanted, rolloutItself), nil
}

func (r *Rollout) applyWrite(t Touched) TuningWrite {
	return TuningWrite{
		ID: r.ID + "/apply/" + t.Region, Region: t.Region, Document: r.Document,
		By: By{Actor: r.By.Actor, Reason: cut(fmt.Sprintf("rollout %s: %s", r.ID, r.By.Reason), ReasonBytesMax)},
	}
}

func (r *Rollout) end(nowMs int64, outcome RolloutPhase, actor string) time.Duration {
	r.Phase, r.EndedMs, r.Sample, r.DueMs, r.Waiting = outcome, nowMs, nil, 0, ""
	r.event(nowMs, actor, string(outcome), r.Why)
	return -1
}

// unheard tells that there were nodes, and that none has spoken since.
func (r *Rollout) unheard(before HealthSnapshot, rates HealthRates) bool {
	return len(before.Nodes) > 0 && rates.Nodes == 0 && rates.NodesLost < len(before.Nodes)
}

func (r *Rollout) until(nowMs int64) time.Duration {
	return time.Duration(max(0, r.DueMs-nowMs)) * time.Millisecond
}

// poll is the time between two looks at nodes that are waited for.
func (r *Rollout) poll() time.Duration {
	timeout := time.Duration(r.Spec.Plan.ApplyTimeoutMs) * time.Millisecond
	return min(max(timeout/60, 100*time.Millisecond), 5*time.Second)
}

// checkIn is the time to the next look at a stage that bakes: ten times a bake, and
// every half minute at the least.
func (r *Rollout) checkIn(nowMs int64) time.Duration {
	bake := time.Duration(r.stage().BakeMs) * time.Millisecond
	return min(max(bake/10, 50*time.Millisecond), 30*time.Second, r.until(nowMs))
}

func (r *Rollout) event(nowMs int64, actor, what, words string) {
	r.Events = append(r.Events, RolloutEvent{AtMs: nowMs, Actor: actor, What: what, Text: cut(words, ReasonBytesMax)})
	if extra := len(r.Events) - rolloutEventsMax; extra > 0 {
		r.Events = slices.Delete(r.Events, 0, extra)
	}
}
