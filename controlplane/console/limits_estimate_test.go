package console

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/limits"
	"github.com/weirhq/weir/shared/window"
)

// Before an override is set, the page shows which requests it would have denied, and on which reports the estimate is
// based. Values that are changed after the review are estimated again.
func TestAnOverrideIsReviewedBeforeItIsSet(t *testing.T) {
	w := start(t, false)
	w.estimate = limits.Estimate{Reported: 1037, Nodes: 4, Oldest: 3 * time.Second, Matched: 12, Unknown: 1, Cost: 1000, Denied: 31, Keys: 1,
		Worst: []limits.Key{{Workspace: "acme", Namespace: "api", Identifier: "<user_1>", Cost: 131, Limit: 100}}}
	b := w.as("operator")
	at := "/console/limits/namespace?workspace=acme&namespace=api"
	if page := b.get(at).body; !strings.Contains(page, `value="review">Review<`) || strings.Contains(page, `value="set"`) {
		t.Errorf("the form sets without a review:\n%s", page)
	}
	form := url.Values{"do": {"review"}, "workspace": {"acme"}, "namespace": {"api"}, "pattern": {"user_*"}, "limit": {"100"}, "duration": {"1m"}, "seen": {"0"}, "reason": {"a contract"}}
	a := b.send(at, "/console/limits/override", form)
	const says = "of the 1\u202f037 busiest keys that 4 nodes reported, 12 under this override (1 of them unknown: another window, or the caller&#39;s limit); " +
		"in the window under way it would have denied 3.1 % of their cost, of 1 key: acme/api/&lt;user_1&gt; has 131 of 100."
	for _, holds := range []string{says, "the oldest report is 3 s old", `value="set">Set it<`, `name="reason" value="a contract"`, `name="limit" value="100"`} {
		if a.status != http.StatusOK || !strings.Contains(a.body, holds) {
			t.Errorf("%d, without %q:\n%s", a.status, holds, a.body)
		}
	}
	if got := fmt.Sprint(w.estimated); got != "[{acme api user_* 100 60000 false false}]" || len(w.settings) != 0 {
		t.Errorf("asked for %s, set %v", got, w.settings)
	}

	form.Set("do", "set")
	if mark := readOverrideForm(form).Mark(); strings.ContainsAny(mark, "\r\n") {
		t.Errorf("browsers send %q with other line breaks", mark)
	}
	form.Set("reviewed", readOverrideForm(form).Mark())
	form.Set("limit", "5")
	form.Set("shadow", "on")
	if a := b.send(at, "/console/limits/override", form); a.status != http.StatusOK || fmt.Sprint(w.estimated) != "[{acme api user_* 5 60000 true false}]" || len(w.settings) != 0 {
		t.Errorf("set without a review of what it is now: %d, %v, %v", a.status, w.estimated, w.settings)
	}
	form.Set("reviewed", readOverrideForm(form).Mark())
	if a := b.send(at, "/console/limits/override", form); a.status != http.StatusSeeOther || len(w.settings) != 1 || w.settings[0].Limit != 5 {
		t.Errorf("%d %v", a.status, w.settings)
	}

	form.Set("limit", "6")
	form.Set("reviewed", readOverrideForm(form).Mark())
	if a := b.send(at, "/console/limits/override", form); a.status != http.StatusConflict || !strings.Contains(a.body, "<b>Estimate:</b> of the") {
		t.Errorf("after another's change there is no estimate: %d\n%s", a.status, a.body)
	}
}

// Without reports the page shows the reason, and the override can still be set. A change that the API rejects is an
// error.
func TestAReviewWithoutAnEstimate(t *testing.T) {
	w := start(t, false)
	b := w.as("operator")
	form := url.Values{"do": {"review"}, "workspace": {"acme"}, "namespace": {"api"}, "pattern": {"user_*"}, "limit": {"100"}, "reason": {"x"}}
	review := func() answered { return b.send("/console/jobs", "/console/limits/override", form) }
	if a := review(); a.status != http.StatusOK || !strings.Contains(a.body, "the effect of this change is unknown: no live node has reported its busiest keys.") || strings.Contains(a.body, "oldest report") || !strings.Contains(a.body, "Set it") {
		t.Errorf("%d\n%s", a.status, a.body)
	}
	w.set(func() { w.noEstimate = fmt.Errorf("%w: MySQL does not answer", controlplane.ErrUnavailable) })
	if a := review(); a.status != http.StatusOK || !strings.Contains(a.body, "the effect of this change is unknown: unavailable: MySQL does not answer.") || !strings.Contains(a.body, "Set it") {
		t.Errorf("%d\n%s", a.status, a.body)
	}
	w.set(func() { w.noEstimate = fmt.Errorf("%w: changes[0]: limit is -1 (0 to 9)", controlplane.ErrInvalid) })
	if a := review(); a.status != http.StatusBadRequest || !strings.Contains(a.body, "limit is -1 (0 to 9)") || strings.Contains(a.body, "changes[0]") || strings.Contains(a.body, "Set it") {
		t.Errorf("%d\n%s", a.status, a.body)
	}
}

// Before an override is deleted, the page shows its values and the estimate for its keys.
func TestADeletionIsConfirmed(t *testing.T) {
	w := start(t, false)
	w.settings = []limits.Override{{Workspace: "acme", Namespace: "api", Pattern: "user_*", Limit: 5, UpdatedAt: time.UnixMilli(1_700_000_000_000)}}
	w.estimate = limits.Estimate{Reported: 37, Nodes: 4, Matched: 12, Unknown: 12}
	b := w.as("operator")
	const list, at = "/console/limits/namespace?workspace=acme&namespace=api", "/console/limits/namespace?workspace=acme&namespace=api&delete=user_*"
	if body := b.get(list).body; !strings.Contains(body, `href="/console/limits/namespace?namespace=api&amp;workspace=acme&amp;delete=user_*#delete"`) || strings.Contains(body, `value="delete"`) {
		t.Errorf("nothing leads to the deletion, or it needs no confirmation:\n%s", body)
	}
	a := b.get(at)
	for _, holds := range []string{"It is now a limit of 5.", "of the 37 busiest keys that 4 nodes reported, 12 under this override (12 of them unknown: another window, or the caller&#39;s limit).", `name="seen" value="1700000000000"`, "Delete it"} {
		if a.status != http.StatusOK || !strings.Contains(a.body, holds) {
			t.Errorf("%d, without %q:\n%s", a.status, holds, a.body)
		}
	}
	if got := fmt.Sprint(w.estimated); got != "[{acme api user_* 0 0 false true}]" {
		t.Errorf("asked for %s", got)
	}
	if a := w.as("viewer").get(at); a.status != http.StatusOK || strings.Contains(a.body, "Delete it") {
		t.Errorf("a viewer is asked to confirm: %d", a.status)
	}
	if a := b.get(list + "&delete=none"); a.status != http.StatusNotFound || !strings.Contains(a.body, "there is no override &#34;none&#34;") {
		t.Errorf("%d\n%s", a.status, a.body)
	}
}

// People type "unlimited" for the largest limit, and pages show it so.
func TestAnOverrideCanBeUnlimited(t *testing.T) {
	w := start(t, false)
	b := w.as("operator")
	at := "/console/limits/namespace?workspace=acme&namespace=api"
	form := url.Values{"do": {"set"}, "workspace": {"acme"}, "namespace": {"api"}, "pattern": {"user_*"}, "limit": {"unlimited"}, "seen": {"0"}, "reason": {"x"}}
	form.Set("reviewed", readOverrideForm(form).Mark())
	if a := b.send(at, "/console/limits/override", form); a.status != http.StatusSeeOther || len(w.settings) != 1 || w.settings[0].Limit != window.LimitMax {
		t.Fatalf("%d, %+v", a.status, w.settings)
	}
	page := b.get(at + "&pattern=user_*").body
	for _, holds := range []string{`data-label="Limit">unlimited<`, `name="limit" value="unlimited"`} {
		if !strings.Contains(page, holds) {
			t.Errorf("the page has no %s:\n%s", holds, page)
		}
	}
}
