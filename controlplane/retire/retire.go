package retire

import (
	"fmt"
	"time"

	"github.com/weirhq/weir/controlplane"
)

// Phase is the state of a retirement, for example Draining.
type Phase string

// The phases, in order. The last two are outcomes; every retirement has exactly one outcome.
const (
	// no process may write to the table, and counts must be shared in all regions
	Observing Phase = "observing"
	Draining  Phase = "draining"          // expired rows are deleted
	Awaiting  Phase = "awaiting_approval" // until people approve the rename
	Renaming  Phase = "renaming"          // the rename is under way
	// the soak: a process that still needs the table fails now
	Renamed       Phase = "renamed"
	AwaitingFinal Phase = "awaiting_final_approval" // until people approve the drop
	Dropping      Phase = "dropping"                // the drop is under way
	Restoring     Phase = "restoring"               // the table gets its name back

	Dropped Phase = "dropped"
	Aborted Phase = "aborted"
)

// Over reports whether a phase is an outcome.
func (p Phase) Over() bool { return p == Dropped || p == Aborted }

const documentVersion = 1

// Retirement is the whole state of the retirement of a table as one document, so it is stored and read as a whole.
// Documents outlive builds: a build may only add fields, and a field that a document lacks is zero. If the meaning of a
// field changes, Version must change too.
//
// Its methods are the transitions. They decide from the document and the results of steps alone. [Retirement.Advance]
// makes the transition that is due by time; operators call the others.
type Retirement struct {
	Version int    `json:"version"`
	ID      string `json:"id"`
	Table   string `json:"table"`
	Dated   string `json:"dated"` // the name after the rename; unused when the retirement began

	controlplane.Transitions // the epoch continues from one retirement of a table to the next

	// Saved is the number of saves to MySQL, see Retirement.Save; 0: saved by a build without saves.
	Saved int64 `json:"saved,omitempty"`

	// Fence is the number of the rename or drop under way; see Steps. Each fence is higher than all before it, and at
	// least the time in Unix ms, so that it also rises if this document is lost.
	Fence int64 `json:"fence"`

	Spec      Spec            `json:"spec"`
	By        controlplane.By `json:"by"` // the actor that started it
	StartedMs int64           `json:"started_ms"`
	EndedMs   int64           `json:"ended_ms,omitempty"`

	Phase   Phase  `json:"phase"`
	Next    Phase  `json:"next,omitempty"`    // while restoring: observing or aborted
	Why     string `json:"why,omitempty"`     // one line: why it went back or was aborted
	Trouble string `json:"trouble,omitempty"` // error that blocks the next step, which is retried
	Waiting string `json:"waiting,omitempty"` // the condition that the phase waits for
	DueMs   int64  `json:"due_ms,omitempty"`  // earliest end of observing or the soak

	Mark        TableMark `json:"mark"` // the highest mark seen
	LastWriteMs int64     `json:"last_write_ms,omitempty"`
	Evidence    Evidence  `json:"evidence"`
	RowsDeleted int64     `json:"rows_deleted"`

	// Approvals of the step that waits, at most one per actor. Asked is the epoch of the request for them.
	Approvals []controlplane.Approval `json:"approvals,omitempty"`
	Asked     int64                   `json:"asked,omitempty"`

	// Without Rename the table is never renamed, and without Drop never dropped. Both are void once the table has its name
	// back.
	Rename *Decision `json:"rename,omitempty"`
	Drop   *Decision `json:"drop,omitempty"`
}

// Decision records who approved a step, why and when.
type Decision struct {
	controlplane.By
	AtMs int64 `json:"at_ms"`
}

// TableNames reports which of the two names exist.
type TableNames struct {
	Table bool `json:"table"`
	Dated bool `json:"dated"`
}

// TableDrop is the result of a drop.
type TableDrop struct {
	TableNames
	Rows int64 `json:"rows"` // rows that prevented the drop
}

// Begin looks at a table, and returns its retirement before the first transition.
func Begin(steps Steps, table string, spec Spec, by controlplane.By) (*Retirement, error) {
	if err := ValidateRetirable(table); err != nil { // before the name is used in a statement
		return nil, err
	}
	nowMs, err := steps.NowMs()
	if err != nil {
		return nil, err
	}
	look, err := steps.Look(&Retirement{Table: table, Dated: DatedName(table, nowMs), Spec: spec})
	if err != nil {
		return nil, err
	}
	return New(table, spec, by, look, nowMs)
}

// New returns a retirement before its first transition. look must be of the table and of its new name, see DatedName.
func New(table string, spec Spec, by controlplane.By, look Look,
	nowMs int64) (*Retirement, error) {
	if err := ValidateRetirable(table); err != nil {
		return nil, err
	}
	if err := by.Validate(); err != nil {
		return nil, err
	}
	if err := spec.Validate(); err != nil {
		return nil, err
	}
	dated := DatedName(table, nowMs)
	switch {
	case look.Table == nil:
		return nil, fmt.Errorf("%w: there is no table %s: nothing is left to retire", controlplane.ErrNotFound, table)
	case look.Dated != nil:
		return nil, fmt.Errorf("%w: table %s exists already: try again in a second", controlplane.ErrConflict, dated)
	}
	r := &Retirement{
		Version: documentVersion, ID: time.UnixMilli(nowMs).UTC().Format("20060102-150405"), Table: table, Dated: dated,
		Spec: spec, By: by, StartedMs: nowMs, Mark: look.Table.Mark,
	}
	r.AddEvent(nowMs, by.Actor, "start", by.Reason)
	r.Evidence.QuietSinceMs = nowMs
	r.note(look, look.Table, nowMs)
	r.Phase = Observing
	return r, nil
}

// Check rejects a document of a newer build, because this build would drop the fields that it cannot read.
func (r *Retirement) Check() error {
	if r.Version > documentVersion {
		return fmt.Errorf("%w: the retirement's state is version %d (this build reads up to %d): run the newer weir-control",
			controlplane.ErrConflict, r.Version, documentVersion)
	}
	return nil
}

// Takes reports whether the retirement is waiting for this timer.
func (r *Retirement) Takes(epoch int64) bool {
	return r.UnderWay() && r.IsCurrent(epoch)
}

// UnderWay reports whether there is a retirement that is not over.
func (r *Retirement) UnderWay() bool { return r.ID != "" && !r.Phase.Over() }

// Overdue reports whether the next timer is late by more than grace, so it must have been lost.
func (r *Retirement) Overdue(nowMs int64, grace time.Duration) bool {
	return r.UnderWay() && r.OverdueBy(nowMs, grace)
}

// Advance makes the transition that is due, and returns the time until the next transition; less than 0: none. After an
// error the caller must discard r and call Advance again on the document from before: steps that were done are
// repeated, to the same effect.
func (r *Retirement) Advance(steps Steps, nowMs int64) (wait time.Duration, err error) {
	switch r.Phase {
	case Dropping:
		return r.drop(steps, nowMs)
	case Restoring:
		return r.restore(steps, nowMs)
	}
	look, err := steps.Look(r)
	if err != nil {
		return 0, err
	}
	r.Waiting = ""
	switch r.Phase {
	case Observing:
		return r.observe(look, nowMs), nil
	case Draining:
		return r.drain(steps, look, nowMs)
	case Renaming:
		return r.rename(steps, look, nowMs)
	case Awaiting:
		wait = r.await(look, nowMs)
	case Renamed, AwaitingFinal:
		wait = r.soak(look, nowMs)
	default:
		return -1, nil // over
	}
	r.withdraw(look.Ended, nowMs)
	r.askAnew(nowMs)
	return wait, nil
}

// observe waits until there was no write, and counts were shared, for QuietMs.
func (r *Retirement) observe(look Look, nowMs int64) time.Duration {
	if look.Table == nil {
		return r.waits("there is no table " + r.Table + " any more: abort")
	}
	wrote := r.note(look, look.Table, nowMs)
	healthy := r.Evidence.HealthySinceMs
	if healthy == 0 {
		r.DueMs = 0
		return r.waits(r.Evidence.Problem)
	}
	r.DueMs = max(r.Evidence.QuietSinceMs, healthy) + r.Spec.QuietMs
	if wrote {
		return r.waits("a row was written")
	}
	if nowMs < r.DueMs {
		return min(r.poll(r.Spec.QuietMs), r.until(nowMs))
	}
	return r.enter(Draining, nowMs, "no write, and counts healthy, for "+milliseconds(r.Spec.QuietMs))
}

// drain deletes expired rows, a batch at a time, and waits for the other rows to expire.
func (r *Retirement) drain(steps Steps, look Look, nowMs int64) (time.Duration, error) {
	if look.Table == nil {
		return r.waits("there is no table " + r.Table + " any more: abort"), nil
	}
	if r.note(look, look.Table, nowMs) {
		return r.back(nowMs, "a row was written while draining"), nil
	}
	if r.Evidence.Rows == 0 {
		return r.enter(Awaiting, nowMs, fmt.Sprintf("empty, after %d rows were deleted", r.RowsDeleted)), nil
	}
	batch, err := steps.drain(r.Table, r.Spec.BatchRows)
	if err != nil {
		return 0, err
	}
	r.RowsDeleted += batch.Rows
	if batch.Rows < int64(r.Spec.BatchRows) {
		if left := r.Evidence.Rows - batch.Rows; left > 0 {
			r.Waiting = fmt.Sprintf("%d rows are left; each is deleted once it has been expired for --cleanup-grace", left)
			if left == 1 {
				r.Waiting = "1 row is left; it is deleted once it has been expired for --cleanup-grace"
			}
		}
		return r.poll(r.Spec.QuietMs), nil
	}
	return batch.Took, nil // leaves half of the time to other work
}

// await keeps the evidence up to date for the approval.
func (r *Retirement) await(look Look, nowMs int64) time.Duration {
	if problem := r.unfit(look, nowMs); problem != "" {
		return r.back(nowMs, problem)
	}
	return r.waits(r.Evidence.Problem)
}

// unfit returns why the table must not be renamed, whatever has been approved; empty: it can be.
func (r *Retirement) unfit(look Look, nowMs int64) string {
	switch {
	case look.Table == nil:
		return "there is no table " + r.Table + " any more"
	case r.note(look, look.Table, nowMs) || r.Evidence.Rows > 0:
		return "a row was written"
	}
	return ""
}

// rename renames the table. If an earlier attempt may have renamed it, or may still do so, the way back is by
// restoring, because its higher fence stops such attempts.
func (r *Retirement) rename(steps Steps, look Look, nowMs int64) (time.Duration, error) {
	if look.Dated == nil {
		if problem := r.unfit(look, nowMs); problem != "" {
			return r.turn(Observing, nowMs, problem+" before the rename"), nil
		}
	}
	names, err := steps.rename(r.Table, r.Table, r.Dated, r.Fence)
	if err != nil {
		return 0, err
	}
	switch names {
	case TableNames{Dated: true}:
		return r.enter(Renamed, nowMs, "to "+r.Dated), nil
	case TableNames{Table: true, Dated: true}: // unclear which of them was ours
		return r.turn(Aborted, nowMs, fmt.Sprintf("both %s and %s are there after the rename", r.Table, r.Dated)),
			nil
	}
	return r.waits(fmt.Sprintf("neither %s nor %s can be renamed: abort", r.Table, r.Dated)), nil
}

// soak watches the renamed table until the soak is over, and afterwards. A process that still writes to the table gets
// errors now, so its operators notice. Weir itself can only see a new table with the old name, or a row that was
// written at the last moment.
func (r *Retirement) soak(look Look, nowMs int64) time.Duration {
	problem, fatal := r.unfitDated(look, nowMs)
	if fatal {
		return r.turn(Observing, nowMs, problem)
	}
	if problem != "" { // the soak begins again once the problem is solved
		r.Phase, r.DueMs = Renamed, nowMs+r.Spec.SoakMs
		return r.waits(problem)
	}
	if r.Phase == Renamed && nowMs >= r.DueMs {
		return r.enter(AwaitingFinal, nowMs, "the soak of "+milliseconds(r.Spec.SoakMs)+" is over")
	}
	wait := r.waits(r.Evidence.Problem)
	if r.Phase == Renamed {
		wait = min(wait, r.until(nowMs))
	}
	return wait
}

// unfitDated returns why the renamed table must not be dropped; fatal: a process needs it.
func (r *Retirement) unfitDated(look Look, nowMs int64) (problem string, fatal bool) {
	switch {
	case look.Dated == nil && look.Table != nil:
		return "another process gave the table its name back", true
	case look.Dated == nil:
		return "there is no table " + r.Dated + " any more: abort", false
	case r.note(look, look.Dated, nowMs) || r.Evidence.Rows > 0:
		return "a row is in it after the rename", true
	case look.Table != nil:
		return fmt.Sprintf("a new table %s was created: find out by which process, and drop the new table or abort",
			r.Table), false
	}
	return "", false
}

// drop drops the table, if both approvals were given.
func (r *Retirement) drop(steps Steps, nowMs int64) (time.Duration, error) {
	if r.Rename == nil || r.Drop == nil {
		return r.turn(Aborted, nowMs, "an approval is missing"), nil
	}
	did, err := steps.drop(r.Table, r.Dated, r.Fence)
	if err != nil {
		return 0, err
	}
	switch {
	case !did.Dated:
		return r.end(nowMs, Dropped, controlplane.Itself), nil
	case did.Rows > 0:
		return r.turn(Observing, nowMs, "a row is in it after the rename"), nil
	}
	return r.turn(Aborted, nowMs, "a new table "+r.Table+" was created since the drop was approved"), nil
}

// restore gives the table its name back. If another table has the name by now, both stay as they are.
func (r *Retirement) restore(steps Steps, nowMs int64) (time.Duration, error) {
	names, err := steps.rename(r.Table, r.Dated, r.Table, r.Fence)
	if err != nil {
		return 0, err
	}
	switch names {
	case TableNames{Table: true}:
		if r.Next == Observing {
			return r.back(nowMs, r.Why), nil
		}
		return r.end(nowMs, Aborted, controlplane.Itself), nil
	case TableNames{Table: true, Dated: true}:
		r.Why = controlplane.Cut(fmt.Sprintf("%s; %s was left as it is, because a new table %s exists", r.Why, r.Dated,
			r.Table),
			controlplane.ReasonBytesMax)
		return r.end(nowMs, Aborted, controlplane.Itself), nil
	case TableNames{}:
		if r.Drop != nil { // the drop was faster
			return r.end(nowMs, Dropped, controlplane.Itself), nil
		}
		r.Why = controlplane.Cut(fmt.Sprintf("%s; neither %s nor %s is there any more", r.Why, r.Table, r.Dated),
			controlplane.ReasonBytesMax)
		return r.end(nowMs, Aborted, controlplane.Itself), nil
	}
	return r.waits("the rename back to " + r.Table + " has not happened"), nil
}

// note updates the evidence from a look, and reports whether the table was written since the look before.
func (r *Retirement) note(look Look, table *TableFigures, nowMs int64) (wrote bool) {
	e := &r.Evidence
	e.AtMs, e.Rows, e.LastExpiryMs = nowMs, table.Rows, table.Mark.LastExpiryMs
	e.Health = look.Health
	switch {
	case e.Problem != "":
		e.HealthySinceMs = 0
	case e.HealthySinceMs == 0:
		e.HealthySinceMs = nowMs
	}
	if wrote = table.Mark.Above(r.Mark); wrote {
		r.LastWriteMs, e.QuietSinceMs = nowMs, nowMs
	}
	r.Mark = r.Mark.Max(table.Mark)
	return wrote
}

// enter begins the next phase.
func (r *Retirement) enter(phase Phase, nowMs int64, text string) time.Duration {
	r.Phase, r.DueMs, r.Why = phase, 0, ""
	r.Approvals, r.Asked = nil, r.Epoch+1
	if phase == Renamed {
		r.DueMs = nowMs + r.Spec.SoakMs
	}
	r.AddEvent(nowMs, controlplane.Itself, string(phase), text)
	return 0
}

// back begins to observe again. All approvals and decisions are void.
func (r *Retirement) back(nowMs int64, why string) time.Duration {
	r.Phase, r.Next, r.Why, r.DueMs = Observing, "", controlplane.Cut(why, controlplane.ReasonBytesMax), 0
	r.Rename, r.Drop, r.Approvals = nil, nil, nil
	r.Evidence.QuietSinceMs = nowMs
	r.AddEvent(nowMs, controlplane.Itself, "back to observing", r.Why)
	return 0
}

// turn begins to give the table its name back, which must come first once a rename has been tried.
func (r *Retirement) turn(next Phase, nowMs int64, why string) time.Duration {
	r.Phase, r.Next, r.Why, r.DueMs, r.Waiting = Restoring, next,
		controlplane.Cut(why, controlplane.ReasonBytesMax), 0, ""
	r.Approvals = nil
	r.raiseFence(nowMs)
	r.AddEvent(nowMs, controlplane.Itself, "restore", r.Why)
	return 0
}

// Settle ends a transition: earlier timers are stale, and the next transition is due after wait.
func (r *Retirement) Settle(nowMs int64, wait time.Duration) { r.EndTransition(nowMs, wait) }

func (r *Retirement) raiseFence(nowMs int64) { r.Fence = max(r.Fence+1, nowMs) }

func (r *Retirement) end(nowMs int64, outcome Phase, actor string) time.Duration {
	r.Phase, r.EndedMs, r.DueMs, r.Waiting = outcome, nowMs, 0, ""
	r.AddEvent(nowMs, actor, string(outcome), r.Why)
	return -1
}

func (r *Retirement) waits(what string) time.Duration {
	r.Waiting = what
	return r.poll(r.Spec.QuietMs)
}

// poll returns the time between two looks.
func (r *Retirement) poll(spanMs int64) time.Duration {
	return min(max(time.Duration(spanMs)*time.Millisecond/20, 20*time.Millisecond), 30*time.Second)
}

func (r *Retirement) until(nowMs int64) time.Duration {
	return time.Duration(max(0, r.DueMs-nowMs)) * time.Millisecond
}

func milliseconds(ms int64) string { return (time.Duration(ms) * time.Millisecond).String() }
