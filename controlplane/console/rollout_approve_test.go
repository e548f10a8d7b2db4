package console

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/retire"
	"github.com/weirhq/weir/controlplane/rollout"
)

// An approval applies to the page that the operator saw. Its form holds the stage and the moment of the request. An
// approval without both is rejected.
func TestAnApprovalIsOfThePageThatWasSeen(t *testing.T) {
	w := start(t, false)
	b := w.as("operator")
	plan := someTuning()
	plan.Set("id", "gated")
	plan.Set("regions.1", "eu")
	plan.Set("regions.2", "all")
	if a := b.send("/console/rollouts/new", "/console/rollouts/new", plan); a.status != http.StatusSeeOther {
		t.Fatalf("%d %s", a.status, a.body)
	}
	const page = "/console/rollouts/at/gated"
	w.set(func() { w.one.Phase, w.one.Stage, w.one.Asked = rollout.Awaiting, 1, 7 })
	shown := b.get(page).body
	for _, hidden := range []string{`name="stage" value="2"`, `name="asked" value="7"`, `name="evidence" value="` + w.one.Evidence()} {
		if !strings.Contains(shown, hidden) {
			t.Errorf("the page has no %s", hidden)
		}
	}
	form := url.Values{"do": {"approve"}, "reason": {"looks well"}}
	if a := b.send(page, page, form); a.status != http.StatusBadRequest || !strings.Contains(a.body, "an approval names its stage") || w.order.Action != "" {
		t.Errorf("%d, %+v", a.status, w.order)
	}
	form.Set("stage", "2")
	form.Set("asked", "7")
	form.Set("evidence", w.one.Evidence())
	if a := b.send(page, page, form); a.status != http.StatusSeeOther || w.order.Stage != 2 || w.order.Asked != 7 || w.order.Evidence != w.one.Evidence() || w.order.Action != rollout.Approve {
		t.Errorf("%d, %+v", a.status, w.order)
	}
}

// The approvals of a step that takes two people are shown, and a retirement is approved as the page showed it.
func TestApprovalsAreShown(t *testing.T) {
	w := full(t)
	b := w.as("admin")
	given := controlplane.Approval{By: controlplane.By{Actor: "bob", Reason: "nothing needs it"}, AtMs: 1}
	quorum := controlplane.Quorum{Approvers: 2}
	w.set(func() {
		w.one.Phase, w.one.Approvals, w.one.Spec.Plan.Quorum, w.one.Paused = rollout.Awaiting, []controlplane.Approval{given}, quorum, nil
		w.retire.Phase, w.retire.Approvals, w.retire.Spec.Quorum = retire.Awaiting, []controlplane.Approval{given}, quorum
	})
	for _, page := range []string{"/console/rollouts/at/r1", "/console/jobs"} {
		if shown := b.get(page).body; !strings.Contains(shown, "1 of 2 people have approved it. <b>bob</b>") {
			t.Errorf("%s: %s", page, shown)
		}
	}
	hash := w.retire.EvidenceHash()
	if shown := b.get("/console/jobs").body; !strings.Contains(shown, `name="evidence" value="`+hash) {
		t.Errorf("%s", shown)
	}
	form := url.Values{"do": {"rename"}, "reason": {"so do I"}, "evidence": {hash}}
	if a := b.send("/console/jobs", "/console/jobs/retirement", form); a.status != http.StatusSeeOther || w.evidence != hash {
		t.Errorf("%d, %q", a.status, w.evidence)
	}
}

// A rollback that nodes do not follow can be given up, and until that is trouble it cannot.
func TestLateNodesAreGivenUp(t *testing.T) {
	w := full(t)
	b := w.as("operator")
	for trouble, want := range map[string]bool{"": false, "the rollback has not reached all nodes in time": true} {
		w.set(func() { w.one.Phase, w.one.Trouble, w.one.Paused = rollout.RollingBack, trouble, nil })
		if got := strings.Contains(b.get("/console/rollouts/at/r1").body, "Give up late nodes"); got != want {
			t.Errorf("trouble %q: offered %v", trouble, got)
		}
	}
}
