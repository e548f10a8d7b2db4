package retire

import (
	"fmt"
	"time"

	"github.com/weirhq/weir/controlplane"
)

// Phase is where a retirement stands.
type Phase string

// The phases, in their order; the last two are outcomes, and every retirement has
// exactly one.
const (
	// no process may write, and counts must be shared well
	Observing Phase = "observing"
	Draining  Phase = "draining"          // rows that have expired are deleted
	Awaiting  Phase = "awaiting_approval" // of a person, before the rename
	Renaming  Phase = "renaming"          // the rename is under way
	// it soaks: a process that needs the table fails now
	Renamed       Phase = "renamed"
	AwaitingFinal Phase = "awaiting_final_approval" // of a person, before the drop
	Dropping      Phase = "dropping"                // the drop is under way
	Restoring     Phase = "restoring"               // the table gets its name back

	Dropped Phase = "dropped"
	Aborted Phase = "aborted"
)

// Over tells whether a phase is an outcome.
func (p Phase) Over() bool { return p == Dropped || p == Aborted }

const documentVersion = 1

// Retirement is everything that is known of the retirement of a table: one document, so
// that no half of it can be seen. It outlives builds: fields are only ever added, what a
// document does not have is zero, and a change of meaning is a new Version.
//
// Its methods are the transitions. They decide from the document and the answers of
// steps alone; [Retirement.Advance] is the one that time brings, the others are operators'.
type Retirement struct {
	Version int    `json:"version"`
	ID      string `json:"id"`
	Table   string `json:"table"`
	Dated   string `json:"dated"` // the name that the table gets; nothing had it when this began

	controlplane.Transitions // the epoch goes on from one retirement of a table to the next

	// Saved is how often the document was saved to MySQL, see Retirement.Save; 0: by a build that does not.
	Saved int64 `json:"saved,omitempty"`

	// Fence is the number of the rename or drop under way; see Steps. Each is
	// higher than all before it, and not lower than the time in Unix ms, so that it stays
	// so when this document is lost.
	Fence int64 `json:"fence"`

	Spec      Spec            `json:"spec"`
	By        controlplane.By `json:"by"` // who started it
	StartedMs int64           `json:"started_ms"`
	EndedMs   int64           `json:"ended_ms,omitempty"`

	Phase   Phase  `json:"phase"`
	Next    Phase  `json:"next,omitempty"`    // while restoring: observing or aborted
	Why     string `json:"why,omitempty"`     // one line: why it was sent back or aborted
	Trouble string `json:"trouble,omitempty"` // what stands in the way of the next step, tried again
	Waiting string `json:"waiting,omitempty"` // what the phase waits for
	DueMs   int64  `json:"due_ms,omitempty"`  // when observing or the soak is over at the earliest

	Mark        TableMark `json:"mark"` // the highest that was seen
	LastWriteMs int64     `json:"last_write_ms,omitempty"`
	Evidence    Evidence  `json:"evidence"`
	RowsDeleted int64     `json:"rows_deleted"`

	// Approvals are of the step that waits for one, each of another actor; Asked is the epoch that asked for them.
	Approvals []controlplane.Approval `json:"approvals,omitempty"`
	Asked     int64                   `json:"asked,omitempty"`

	// Without Rename nothing is renamed, and without Drop nothing is dropped. Both are
	// void once the table has its name back.
	Rename *Decision `json:"rename,omitempty"`
	Drop   *Decision `json:"drop,omitempty"`
}

// Decision is who let the next thing happen, why and when.
type Decision struct {
	controlplane.By
	AtMs int64 `json:"at_ms"`
}

// TableNames tells which of the two names are there.
type TableNames struct {
	Table bool `json:"table"`
	Dated bool `json:"dated"`
}

// TableDrop is what became of a drop.
type TableDrop struct {
	TableNames
	Rows int64 `json:"rows"` // that stood in its way
}

// Begin takes a look at a table, and returns its retirement before the first transition.
func Begin(steps Steps, table string, spec Spec, by controlplane.By) (*Retirement, error) {
	if err := ValidateRetirable(table); err != nil { // before any statement has the name
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

// New is a retirement before its first transition. The look is of the table
// and of the name that it is to get, see DatedName.
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

// Check refuses a document of a newer build: writing it back would lose what this one
// does not know.
func (r *Retirement) Check() error {
	if r.Version > documentVersion {
		return fmt.Errorf("%w: the retirement's state is version %d and this build knows %d: run the newer weir-control",
			controlplane.ErrConflict, r.Version, documentVersion)
	}
	return nil
}

// Takes tells whether a timer is the one that the retirement waits for.
func (r *Retirement) Takes(epoch int64) bool {
	return r.UnderWay() && r.IsCurrent(epoch)
}

// UnderWay tells whether there is a retirement, and it is not over.
func (r *Retirement) UnderWay() bool { return r.ID != "" && !r.Phase.Over() }

// Overdue tells whether the next timer should have come for longer than grace: it is lost.
func (r *Retirement) Overdue(nowMs int64, grace time.Duration) bool {
	return r.UnderWay() && r.OverdueBy(nowMs, grace)
}

// Advance makes the transition that is due, and answers after how long the next one is;
// less than 0: never. After an error r is to be thrown away: what was done is done again,
// to the same effect, from the document before.
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

// observe waits until no process has written, and counts have been shared, for long enough.
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

// drain deletes what has expired, a batch at a time, and waits for the rest to expire.
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
	return batch.Took, nil // half of the time belongs to others
}

// await keeps the evidence fresh for the approval.
func (r *Retirement) await(look Look, nowMs int64) time.Duration {
	if problem := r.unfit(look, nowMs); problem != "" {
		return r.back(nowMs, problem)
	}
	return r.waits(r.Evidence.Problem)
}

// unfit tells why the table is not to be renamed, whatever anybody has approved.
func (r *Retirement) unfit(look Look, nowMs int64) string {
	switch {
	case look.Table == nil:
		return "there is no table " + r.Table + " any more"
	case r.note(look, look.Table, nowMs) || r.Evidence.Rows > 0:
		return "a row was written"
	}
	return ""
}

// rename renames. Where an earlier attempt may have done so, or may still, the way back
// is by restoring: its fence ends such attempts.
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
	case TableNames{Table: true, Dated: true}: // which of them was ours cannot be told
		return r.turn(Aborted, nowMs, fmt.Sprintf("both %s and %s are there after the rename", r.Table, r.Dated)),
			nil
	}
	return r.waits(fmt.Sprintf("neither %s nor %s can be renamed: abort", r.Table, r.Dated)), nil
}

// soak watches the renamed table until, and after, it has been there long enough. A process
// that still writes to it gets errors now, and its operators notice; what can be seen from here is
// a table of the old name that was made anew, or a row that came in at the last moment.
func (r *Retirement) soak(look Look, nowMs int64) time.Duration {
	problem, fatal := r.unfitDated(look, nowMs)
	if fatal {
		return r.turn(Observing, nowMs, problem)
	}
	if problem != "" { // the soak begins anew once it is solved
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

// unfitDated tells why the renamed table is not to be dropped; fatal: it is needed.
func (r *Retirement) unfitDated(look Look, nowMs int64) (problem string, fatal bool) {
	switch {
	case look.Dated == nil && look.Table != nil:
		return "somebody else has given it its name back", true
	case look.Dated == nil:
		return "there is no table " + r.Dated + " any more: abort", false
	case r.note(look, look.Dated, nowMs) || r.Evidence.Rows > 0:
		return "a row is in it after the rename", true
	case look.Table != nil:
		return fmt.Sprintf("somebody has made %s anew: find out who, and drop that one or abort", r.Table), false
	}
	return "", false
}

// drop drops, given both approvals.
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
	return r.turn(Aborted, nowMs, "somebody has made "+r.Table+" anew since the drop was approved"), nil
}

// restore gives the table its name back. What has the name meanwhile is let be.
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
		r.Why = controlplane.Cut(fmt.Sprintf("%s; %s was left as it is, since %s has been made anew", r.Why, r.Dated,
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

// note takes a look into the evidence, and tells whether something was written since the
// one before.
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

// back begins to observe again: nothing is renamed, and no approval holds any more.
func (r *Retirement) back(nowMs int64, why string) time.Duration {
	r.Phase, r.Next, r.Why, r.DueMs = Observing, "", controlplane.Cut(why, controlplane.ReasonBytesMax), 0
	r.Rename, r.Drop, r.Approvals = nil, nil, nil
	r.Evidence.QuietSinceMs = nowMs
	r.AddEvent(nowMs, controlplane.Itself, "back to observing", r.Why)
	return 0
}

// turn gives the table its name back first, wherever a rename has been tried.
func (r *Retirement) turn(next Phase, nowMs int64, why string) time.Duration {
	r.Phase, r.Next, r.Why, r.DueMs, r.Waiting = Restoring, next,
		controlplane.Cut(why, controlplane.ReasonBytesMax), 0, ""
	r.Approvals = nil
	r.raiseFence(nowMs)
	r.AddEvent(nowMs, controlplane.Itself, "restore", r.Why)
	return 0
}

// Settle makes a transition the newest one: timers of before are stale, and the next one
// is due after wait.
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

// poll is the time between two looks.
func (r *Retirement) poll(spanMs int64) time.Duration {
	return min(max(time.Duration(spanMs)*time.Millisecond/20, 20*time.Millisecond), 30*time.Second)
}

func (r *Retirement) until(nowMs int64) time.Duration {
	return time.Duration(max(0, r.DueMs-nowMs)) * time.Millisecond
}

func milliseconds(ms int64) string { return (time.Duration(ms) * time.Millisecond).String() }
