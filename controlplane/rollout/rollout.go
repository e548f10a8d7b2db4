package rollout

import (
	"fmt"
	"time"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/queries"
	"github.com/weirhq/weir/controlplane/rollout/guard"
	"github.com/weirhq/weir/controlplane/rollout/plan"
)

// Phase is the state of a rollout, for example Baking.
type Phase string

// The phases, in the order in which a stage goes through them. The last three are outcomes; every rollout has exactly
// one outcome.
const (
	Awaiting    Phase = "awaiting_approval" // before the stage, until people approve it
	Measuring   Phase = "measuring"         // the baseline is taken
	Applying    Phase = "applying"          // the trials of the stage are being written
	Converging  Phase = "converging"        // until the nodes of the stage run the tuning
	Baking      Phase = "baking"            // health is compared with the baseline
	Keeping     Phase = "keeping"           // after the last stage: the tuning is stored as a version
	RollingBack Phase = "rolling_back"      // until no live node runs the tuning

	Done       Phase = "done"
	RolledBack Phase = "rolled_back"
	Aborted    Phase = "aborted"

	// Lost appears in lists only: MySQL has a row that a rollout began, but no state.
	Lost Phase = "lost"
)

// Over reports whether a phase is an outcome.
func (p Phase) Over() bool {
	return p == Done || p == RolledBack || p == Aborted || p == Lost
}

// IDBytesMax bounds the ID of a rollout.
const IDBytesMax = 64

const (
	documentVersion = 3

	// limitsVersion is the version of rollouts of limits: a build that reads up to documentVersion would take their
	// document for a tuning.
	limitsVersion = 4
)

// Rollout is the whole state of a rollout as one document, so it is stored and read as a whole. Documents outlive
// builds: a build may only add fields, and a field that a document lacks is zero. If the meaning of a field changes,
// Version must change too, and Upgrade must convert older documents.
//
// Its methods are the transitions. They decide from the document and the results of steps alone. [Rollout.Advance]
// makes the transition that is due by time; operators call [Rollout.Operate] and [Rollout.RollBack]. A Rollout must not
// be used concurrently.
type Rollout struct {
	Version int    `json:"version"`
	ID      string `json:"id"`

	controlplane.Transitions

	Spec      Spec            `json:"spec"`
	Document  string          `json:"document"` // the subject, with every field present: see Spec.subject
	Stages    plan.StagePlans `json:"stages"`
	By        controlplane.By `json:"by"` // the actor that started it
	StartedMs int64           `json:"started_ms"`
	EndedMs   int64           `json:"ended_ms,omitempty"` // time of the outcome

	Forced string `json:"forced,omitempty"` // critical health of the fleet that the operator overrode at the start

	Phase Phase `json:"phase"`
	Stage int   `json:"stage"`           // index into Stages
	Asked int64 `json:"asked,omitempty"` // epoch at which the wait for an approval began; approvals name it
	// Approvals of the stage that waits, at most one per actor.
	Approvals []controlplane.Approval `json:"approvals,omitempty"`

	Paused  *Paused `json:"paused,omitempty"`  // no stage goes on until an operator resumes
	Why     string  `json:"why,omitempty"`     // one line: the reason for the rollback or abort
	Trouble string  `json:"trouble,omitempty"` // error that blocks the next step, which is retried
	Waiting string  `json:"waiting,omitempty"` // the condition that the phase waits for

	MovedMs int64 `json:"moved_ms,omitempty"` // time of the last transition

	Saved    int64  `json:"saved,omitempty"`    // number of saves to MySQL; the state with the higher number is newer
	Standing string `json:"standing,omitempty"` // digest of the state last saved, see Rollout.standing

	// DueMs is the earliest end of a baseline or bake, or the latest end of converging or rolling back; 0: the wait has
	// not begun.
	DueMs int64 `json:"due_ms,omitempty"`

	Bake Bake `json:"bake,omitzero"` // progress of the bake, while the stage bakes

	// SinceMs is the database time at which the bake was over, or the rollback had written everything; 0 before. Neither
	// phase ends before each live node has sent a heartbeat after it.
	SinceMs int64 `json:"since_ms,omitempty"`

	guard.Figures

	// Blind is for how long a required query has had no value.
	Blind queries.Lasting `json:"blind_for_ms,omitempty"`

	// Touched are the regions that run, or may run, the new tuning, in the order in which they got it. A region is added
	// before anything is written for it.
	Touched Touches `json:"touched,omitempty"`

	// Shadows are the regions that got trials with shadow, once stages without shadow have begun. These trials go on until
	// a trial without shadow replaces them, and are ended with the others.
	Shadows Touches `json:"shadows,omitempty"`

	// Effect is the evidence of a rollout of limits.
	Effect guard.Effect `json:"effect,omitzero"`

	Keeps       bool `json:"keeps,omitempty"`        // the subject is, or may be, stored; a rollback must revert it
	Kept        bool `json:"kept,omitempty"`         // of limits: all items are stored
	Reverted    bool `json:"reverted,omitempty"`     // of limits: the rollback has nothing left to write
	TrialsEnded bool `json:"trials_ended,omitempty"` // the rollback has ended the trials
	// LeasesMs is when the lease of the last renewal ends; after it no node can run the trial. 0: unknown.
	LeasesMs int64 `json:"leases_ms,omitempty"`
	// Unknown names the nodes that were silent at the outcome, so they may run either tuning.
	Unknown string `json:"unknown,omitempty"`
	Wanted  Phase  `json:"wanted,omitempty"` // the outcome, while rolling back
}

// Touched is a region that a rollout wrote, or was about to write.
type Touched struct {
	Region   string `json:"region"`            // "" is the fleet's row
	Previous string `json:"previous"`          // the document in force before
	Over     int64  `json:"over,omitempty"`    // the region's own version before, 0: none
	Below    int64  `json:"below,omitempty"`   // bound of the trial, see tunings.TrialWrite; 0: all nodes
	Trial    int64  `json:"trial,omitempty"`   // number of the trial, 0: possibly not written
	Applied  int64  `json:"applied,omitempty"` // version with the new tuning, 0: possibly not written
	Reverted int64  `json:"reverted,omitempty"`
	Newer    int64  `json:"newer,omitempty"` // a version that another writer stored; the rollback leaves it in force
	// Gone: MySQL no longer has a version of the region, because it was restored from an older copy.
	Gone bool `json:"gone,omitempty"`
}

// settled reports whether the rollback has nothing left to write for the region.
func (t Touched) settled() bool { return t.Reverted != 0 || t.Newer != 0 || t.Gone }

// Paused names the actor who paused a rollout, the reason and the time.
type Paused struct {
	controlplane.By
	AtMs int64 `json:"at_ms"`
}

// New returns a rollout before its first transition.
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
	document, err := spec.subject()
	if err != nil {
		return nil, err
	}
	stages, err := spec.Plan.Resolve(regions)
	if err != nil {
		return nil, err
	}
	r := &Rollout{
		Version: documentVersion, ID: id, Spec: spec, Document: document, Stages: stages, By: by,
		StartedMs: nowMs, MovedMs: nowMs,
	}
	if spec.Limits != nil {
		r.Version = limitsVersion
	}
	r.AddEvent(nowMs, by.Actor, "start", by.Reason)
	if spec.Limits != nil {
		if names := otherDuration(*spec.Limits); len(names) > 0 {
			r.AddEvent(nowMs, controlplane.Itself, "no evidence", "the evidence leaves out decisions that the change gives "+
				"another duration, by duration_ms of: "+controlplane.Several(names))
		}
	}
	r.enter(0)
	return r, nil
}

// Check rejects a document of a newer build, because this build would drop the fields that it cannot read.
func (r *Rollout) Check() error {
	if r.Version > limitsVersion {
		return fmt.Errorf("%w: the rollout's state is version %d (this build reads up to %d): run the newer weir-control",
			controlplane.ErrConflict, r.Version, limitsVersion)
	}
	return nil
}

// Upgrade converts a document of an older build. Version 1 does not list the nodes that were there before a stage, so a
// rollout that has touched a region cannot be watched, and rolls back. Version 2 has no trials: its stages wrote
// versions.
func (r *Rollout) Upgrade() {
	if r.Version == 0 || r.Version >= documentVersion {
		return
	}
	from := r.Version
	r.Version, r.Keeps, r.Spec.Plan.LeaseMs = documentVersion, len(r.Touched) > 0, plan.DefaultPlan().LeaseMs
	if from > 1 {
		return
	}
	r.Asked = r.Epoch
	r.Spec.Plan.Guardrails.RestartsPerHour = plan.DefaultGuardrails().RestartsPerHour
	switch {
	case r.Phase.Over() || r.Phase == RollingBack:
	case len(r.Touched) > 0:
		r.fail(r.Stage, "the rollout's state is of an older build, which does not name the nodes that were "+
			"there before")
	case r.Phase == Measuring:
		r.DueMs = 0
	}
}

// Takes reports whether the rollout is waiting for this timer.
func (r *Rollout) Takes(epoch int64) bool { return r.ticks() && r.IsCurrent(epoch) }

// ticks reports whether a timer makes the next transition. A rollout that waits for a person still needs timers while
// it has nodes to watch, or approvals that can expire.
func (r *Rollout) ticks() bool {
	return r.ID != "" && !r.Phase.Over() && (!r.waits() || r.begun() || len(r.Approvals) > 0)
}

// waits reports whether the rollout cannot go on before a person acts.
func (r *Rollout) waits() bool { return r.Phase == Awaiting || r.Paused != nil }

// Overdue reports whether the next timer is late by more than grace, so it must have been lost. A document of an older
// build does not have the due time. It counts as overdue, because an extra timer does no harm.
func (r *Rollout) Overdue(nowMs int64, grace time.Duration) bool {
	return r.ticks() && r.OverdueBy(nowMs, grace)
}

func (r *Rollout) stage() plan.StagePlan { return r.Stages[r.Stage] }
