package rollout

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/fleet"
	"github.com/weirhq/weir/controlplane/internal/controltest"
	"github.com/weirhq/weir/controlplane/rollout/plan"
)

var cid = controlplane.By{Actor: "cid", Reason: "looks well"}

// twice returns a rollout whose two stages each need two approvers.
func twice(t *testing.T) (*land, *Rollout, inLand) {
	t.Helper()
	first, rest := canary, all
	first.Approval, rest.Approval = true, true
	l := newLand("eu", "us")
	s := spec(first, rest)
	s.Plan.BaselineMs, s.Plan.Quorum = 0, controlplane.Quorum{Approvers: 2, ApprovalTTLMs: time.Hour.Milliseconds()}
	r, steps := begin(t, l, s)
	return l, r, steps
}

func approves(t *testing.T, l *land, r *Rollout, o Order, says string) time.Duration {
	t.Helper()
	wait, err := r.Operate(o, l.now.UnixMilli())
	if says == "" && err != nil || says != "" && (!errors.Is(err, controlplane.ErrConflict) || !strings.Contains(err.Error(), says)) {
		t.Errorf("%s: %v, want %q", o.By.Actor, err, says)
	}
	if err == nil {
		r.Settle(wait)
	}
	return wait
}

// "How many different people must approve a stage": two approvals of the same person count once, the person who started
// the rollout counts, and each stage needs approvals of its own.
func TestAStageTakesItsApprovers(t *testing.T) {
	l, r, steps := twice(t)
	byStarter := order(r, Approve, r.By)
	if wait := approves(t, l, r, byStarter, ""); wait != time.Hour || r.Phase != Awaiting || len(r.Approvals) != 1 {
		t.Fatalf("%s, %v, %+v", r.Phase, wait, r.Approvals)
	}
	approves(t, l, r, byStarter, "ann has approved it already; 1 more by other people needed")
	approves(t, l, r, order(r, Approve, r.By), "ann has approved it already")
	approves(t, l, r, order(r, Approve, bob), "")
	if r.Phase != Measuring || r.Approvals != nil {
		t.Fatalf("%s, %+v", r.Phase, r.Approvals)
	}
	last := r.Events[len(r.Events)-1]
	if want := "stage 1, 2 of 2, evidence " + byStarter.Evidence[:12] + ": " + bob.Reason; last.Actor != bob.Actor || last.Text != want {
		t.Errorf("%+v, want %q", last, want)
	}
	play(t, r, steps, nil)
	if r.Phase != Awaiting || r.Stage != 1 || r.Approvals != nil {
		t.Fatalf("%s of stage %d, %+v", r.Phase, r.Stage, r.Approvals)
	}
	approves(t, l, r, byStarter, "waits, and the approval names stage 1")
	approves(t, l, r, order(r, Approve, cid), "")
	approves(t, l, r, order(r, Approve, r.By), "")
	if r.Phase != Measuring {
		t.Errorf("%s", r.Phase)
	}
}

// An approval expires after its time. Then the stage needs a new request, so that a repeated message does not renew the
// approval.
func TestApprovalsExpire(t *testing.T) {
	l, r, steps := twice(t)
	first := order(r, Approve, r.By)
	approves(t, l, r, first, "")
	l.now = l.now.Add(time.Hour)
	approves(t, l, r, order(r, Approve, bob), "an earlier approval has just expired, or its evidence has changed")
	approves(t, l, r, first, "an earlier approval has just expired")
	if !r.Takes(r.Epoch) {
		t.Fatal("no timer lets it expire")
	}
	if wait, err := r.Advance(steps.on); err != nil || wait >= 0 || len(r.Approvals) != 0 {
		t.Fatalf("%v, %v, %+v", wait, err, r.Approvals)
	}
	approves(t, l, r, first, "stage 1 (asked ")
	approves(t, l, r, order(r, Approve, bob), "")
	approves(t, l, r, order(r, Approve, r.By), "")
	if r.Phase != Measuring {
		t.Errorf("%s", r.Phase)
	}
}

// If the clock was ahead when an approval was given, the approval does not outlive its time after the clock is
// corrected.
func TestAnApprovalDoesNotOutliveACorrectionOfTheClock(t *testing.T) {
	const nowMs = 1_700_000_000_000
	q := controlplane.Quorum{Approvers: 2, ApprovalTTLMs: time.Hour.Milliseconds()}
	for ahead, want := range map[time.Duration]time.Duration{
		0: time.Hour, -time.Minute: 59 * time.Minute, -time.Hour: 0, time.Second: time.Hour,
		10 * time.Minute: 0, 24 * time.Hour: 0,
	} {
		given := []controlplane.Approval{{By: bob, AtMs: nowMs + ahead.Milliseconds(), Evidence: "e"}}
		if n := len(q.Counting(given, "e", nowMs)); (n == 1) != (want > 0) {
			t.Errorf("given %v ahead: %d count", ahead, n)
		}
		if left := q.UntilExpiry(given, nowMs); left != want {
			t.Errorf("given %v ahead: it expires in %v, want %v", ahead, left, want)
		}
	}
}

// While a rollout is paused no approval is accepted, and approvals expire.
func TestApprovalsExpireWhilePaused(t *testing.T) {
	l, r, steps := twice(t)
	approves(t, l, r, order(r, Approve, bob), "")
	if wait := approves(t, l, r, order(r, Pause, controltest.Ann), ""); wait != time.Hour {
		t.Errorf("%v", wait)
	}
	approves(t, l, r, order(r, Approve, cid), "nothing waits for an approval")
	l.now = l.now.Add(time.Hour)
	if wait, err := r.Advance(steps.on); err != nil || wait >= 0 || len(r.Approvals) != 0 || r.Takes(r.Epoch) {
		t.Errorf("%v, %v, %+v", wait, err, r.Approvals)
	}
}

// An approval is valid for the evidence that was shown. The loss of a node voids it; a figure that changes does not.
func TestAnApprovalIsOfItsEvidence(t *testing.T) {
	l, r, steps := twice(t)
	approves(t, l, r, order(r, Approve, bob), "")
	approves(t, l, r, order(r, Approve, cid), "")
	play(t, r, steps, nil)
	seen := order(r, Approve, bob)
	r.Now.ErrorsPerMinute = new(3.0)
	if r.Evidence() != seen.Evidence {
		t.Error("a figure that moves is evidence")
	}
	for name, change := range map[string]func(*Rollout){
		"the tuning":     func(r *Rollout) { r.Document = "{}" },
		"the stage":      func(r *Rollout) { r.Stages[1].BakeMs++ },
		"what was there": func(r *Rollout) { r.Touched[0].Over++ },
		"the id":         func(r *Rollout) { r.ID = "other" },
	} {
		other := *r
		other.Stages, other.Touched = append([]plan.StagePlan(nil), r.Stages...), append([]Touched(nil), r.Touched...)
		if change(&other); other.Evidence() == seen.Evidence {
			t.Errorf("%s is no evidence", name)
		}
	}
	approves(t, l, r, seen, "")
	r.Watch[0].Nodes[0].Gone = true
	if r.Evidence() == seen.Evidence {
		t.Fatal("a node that is lost is no evidence")
	}
	late := order(r, Approve, cid)
	late.Evidence = seen.Evidence
	approves(t, l, r, late, "the evidence has changed since it was shown")
	if of(r, l.now.UnixMilli(), fleet.Look{}).waitOn(); len(r.Approvals) != 0 || r.Asked != r.Epoch+1 {
		t.Errorf("%+v, asked %d", r.Approvals, r.Asked)
	}
}

func TestQuorumValidate(t *testing.T) {
	for says, q := range map[string]controlplane.Quorum{
		"approvers is 11 (1 to 10)":                          {Approvers: 11},
		"approvers is -1 (1 to 10)":                          {Approvers: -1},
		"approval_ttl_ms is 999 (1000 to 2592000000)":        {ApprovalTTLMs: 999},
		"approval_ttl_ms is 2592000001 (1000 to 2592000000)": {ApprovalTTLMs: 2592000001},
	} {
		controltest.WantInvalid(t, q.Validate(), says)
	}
	if q := (controlplane.Quorum{}); q.Validate() != nil || q.Need() != 1 || q.TTL() != 24*time.Hour {
		t.Errorf("%d for %v", q.Need(), q.TTL())
	}
	o := Order{Action: Approve, By: controltest.Ann, Stage: 1, Asked: 1}
	controltest.WantInvalid(t, o.Validate(), "evidence is empty")
}
