package rollout

import (
	"fmt"
	"time"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/fleet"
	"github.com/weirhq/weir/controlplane/queries"
)

// Phase is where a rollout stands.
type Phase string

// The phases, in the order in which a stage goes through them; the last three are
// outcomes, and every rollout has exactly one.
const (
	Awaiting    Phase = "awaiting_approval" // of a person, before the stage
	Measuring   Phase = "measuring"         // the baseline
	Applying    Phase = "applying"          // the stage's trials are being written
	Converging  Phase = "converging"        // nodes are taking them up
	Baking      Phase = "baking"            // health is held against the baseline
	Keeping     Phase = "keeping"           // after the last stage: the tuning is stored for good
	RollingBack Phase = "rolling_back"      // until no live node runs it any more

	Done       Phase = "done"
	RolledBack Phase = "rolled_back"
	Aborted    Phase = "aborted"

	// Lost is a phase of the list alone: MySQL knows that a rollout began, and has no state of it.
	Lost Phase = "lost"
)

// Over tells whether a phase is an outcome.
func (p Phase) Over() bool {
	return p == Done || p == RolledBack || p == Aborted || p == Lost
}

const documentVersion = 3

// Rollout is the whole state of a rollout as one document, so it is stored and read as a whole. Documents outlive
// builds: a build may only add fields, and a field that a document lacks is zero. If the meaning of a field changes, so
// does Version, and Upgrade converts older documents.
//
// Its methods are the transitions. They decide from the document and the answers of steps alone. Time brings
// [Rollout.Advance]; operators bring [Rollout.Operate] and [Rollout.RollBack]. A Rollout must not be used concurrently.
type Rollout struct {
	Version int    `json:"version"`
	ID      string `json:"id"`

	controlplane.Transitions

	Spec      Spec            `json:"spec"`
	Document  string          `json:"document"` // the tuning, every field present
	Stages    StagePlans      `json:"stages"`
	By        controlplane.By `json:"by"` // who started it
	StartedMs int64           `json:"started_ms"`
	EndedMs   int64           `json:"ended_ms,omitempty"` // when it came to its outcome

	Forced string `json:"forced,omitempty"` // what was critical of the fleet's health when it was started all the same

	Phase Phase `json:"phase"`
	Stage int   `json:"stage"`           // index into Stages
	Asked int64 `json:"asked,omitempty"` // the epoch that began the wait for an approval, which names it
	// Approvals are of the stage that waits for one, each of another actor.
	Approvals []controlplane.Approval `json:"approvals,omitempty"`

	Paused  *Paused `json:"paused,omitempty"`  // no stage goes on until an operator resumes
	Why     string  `json:"why,omitempty"`     // one line: why it is rolled back or was aborted
	Trouble string  `json:"trouble,omitempty"` // what stands in the way of the next step, tried again
	Waiting string  `json:"waiting,omitempty"` // what the phase waits for

	MovedMs int64 `json:"moved_ms,omitempty"` // the clock of the last transition

	Saved    int64  `json:"saved,omitempty"`    // how often it was saved to MySQL: of two states the higher one counts
	Standing string `json:"standing,omitempty"` // of the state that was saved, see Rollout.standing

	// Of the phase: when it is over at the earliest (baseline, bake) or the latest (converging,
	// rolling back); 0: it has not begun to wait.
	DueMs int64 `json:"due_ms,omitempty"`

	Bake Bake `json:"bake,omitzero"` // of the stage, while it bakes

	// SinceMs is the clock of the database when the bake was over, or when the rollback had
	// written all, 0 before: neither ends before each live node has been heard of since.
	SinceMs int64 `json:"since_ms,omitempty"`

	Clocks fleet.Clocks `json:"clocks,omitzero"`

	// Watch is what the rollout knows of nodes: of every region that it touched, and of those
	// whose baseline it takes. Rollouts that are over, or roll back, have none.
	Watch Watches `json:"watch,omitempty"`

	// Compared is what all regions do, those with the tuning against those without. Rollouts that are over, or roll
	// back, have none.
	Compared Compared `json:"compared,omitzero"`

	// What the stage's regions did, for people: the worst figure of any. Guardrails are held
	// against each region and node by itself.
	Baseline fleet.HealthRates `json:"baseline"`
	Now      fleet.HealthRates `json:"now"` // in the newest window

	// What the queries of the plan answered before the stage of each region, and last.
	QueriesBefore []queries.Value `json:"queries_before,omitempty"`
	QueriesNow    []queries.Value `json:"queries_now,omitempty"`
	Blind         queries.Lasting `json:"blind_for_ms,omitempty"` // how long a required query has had no value

	// Touched are the regions that have, or may have, the new tuning, in the order in
	// which they got it. A region is here before it is written.
	Touched Touches `json:"touched,omitempty"`

	Keeps       bool `json:"keeps,omitempty"`        // versions are, or may be, written: a rollback reverts them
	TrialsEnded bool `json:"trials_ended,omitempty"` // by the rollback
	// LeasesMs is when the lease of the last renewal is over, so that no node can run the trial any more; 0: not known.
	LeasesMs int64 `json:"leases_ms,omitempty"`
	// Unknown names the nodes that were silent at the outcome, so that it is not known which tuning they run.
	Unknown string `json:"unknown,omitempty"`
	Wanted  Phase  `json:"wanted,omitempty"` // the outcome, while rolling back
}

// Touched is a region that a rollout wrote, or was about to.
type Touched struct {
	Region   string `json:"region"`            // "" is the fleet's row
	Previous string `json:"previous"`          // the document in force before
	Over     int64  `json:"over,omitempty"`    // the region's own version before, 0: it had none
	Below    int64  `json:"below,omitempty"`   // bound of the trial, as tunings.TrialWrite has it; 0: all nodes
	Trial    int64  `json:"trial,omitempty"`   // number of the trial of the new tuning, 0: not known to be written
	Applied  int64  `json:"applied,omitempty"` // version with the new tuning, 0: not known to be written
	Reverted int64  `json:"reverted,omitempty"`
	Newer    int64  `json:"newer,omitempty"` // a version that something else wrote: the rollback leaves it in force
	// Gone: MySQL has no version of the region any more, as it was restored from an older copy.
	Gone bool `json:"gone,omitempty"`
}

// settled tells that the rollback has nothing left to write for the region.
func (t Touched) settled() bool { return t.Reverted != 0 || t.Newer != 0 || t.Gone }

// Paused is who paused, why and since when.
type Paused struct {
	controlplane.By
	AtMs int64 `json:"at_ms"`
}

// New is a rollout before its first transition.
func New(id string, spec Spec, by controlplane.By, regions []string, nowMs int64) (*Rollout, error) {
	if err := ValidateID(id); err != nil {
		return nil, err
	}
	if err := by.Validate(); err != nil {
		return nil, err
	}
	if err := spec.Validate(); err != nil {
		return nil, err
	}
	document, err := spec.WholeTuning()
	if err != nil {
		return nil, err
	}
	stages, err := spec.Plan.resolve(regions)
	if err != nil {
		return nil, err
	}
	r := &Rollout{
		Version: documentVersion, ID: id, Spec: spec, Document: document, Stages: stages, By: by,
		StartedMs: nowMs, MovedMs: nowMs,
	}
	r.AddEvent(nowMs, by.Actor, "start", by.Reason)
	r.enter(0)
	return r, nil
}

// Check refuses a document of a newer build: writing it back would lose what this one
// does not know.
func (r *Rollout) Check() error {
	if r.Version > documentVersion {
		return fmt.Errorf("%w: the rollout's state is version %d and this build knows %d: run the newer weir-control",
			controlplane.ErrConflict, r.Version, documentVersion)
	}
	return nil
}

// Upgrade reads a document of an older build. Version 1 says nothing of the nodes that were
// there before a stage: a rollout that has touched a region cannot be watched, and goes back. Version 2 has no trials:
// its stages wrote versions.
func (r *Rollout) Upgrade() {
	if r.Version == 0 || r.Version >= documentVersion {
		return
	}
	from := r.Version
	r.Version, r.Keeps, r.Spec.Plan.LeaseMs = documentVersion, len(r.Touched) > 0, leaseDefault.Milliseconds()
	if from > 1 {
		return
	}
	r.Asked = r.Epoch
	r.Spec.Plan.Guardrails.RestartsPerHour = DefaultGuardrails().RestartsPerHour
	switch {
	case r.Phase.Over() || r.Phase == RollingBack:
	case len(r.Touched) > 0:
		r.fail(r.Stage, "the rollout's state is of an older build, which does not name the nodes that were "+
			"there before")
	case r.Phase == Measuring:
		r.DueMs = 0
	}
}

// Takes tells whether a timer is the one that the rollout waits for.
func (r *Rollout) Takes(epoch int64) bool { return r.ticks() && r.IsCurrent(epoch) }

// ticks tells whether time brings the next transition. While a rollout waits for a person
// it does so as long as there is something to watch, or an approval that may expire.
func (r *Rollout) ticks() bool {
	return r.ID != "" && !r.Phase.Over() && (!r.waits() || len(r.Touched) > 0 || len(r.Approvals) > 0)
}

// waits tells whether only a person lets the rollout go on.
func (r *Rollout) waits() bool { return r.Phase == Awaiting || r.Paused != nil }

// Overdue tells whether the next timer should have come for longer than grace: it is lost. Of a
// document that an older build wrote it is not known when it is due, and one timer too many
// does no harm.
func (r *Rollout) Overdue(nowMs int64, grace time.Duration) bool {
	return r.ticks() && r.OverdueBy(nowMs, grace)
}

func (r *Rollout) stage() StagePlan { return r.Stages[r.Stage] }
