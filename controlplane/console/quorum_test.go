package console

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/weirhq/weir/controlplane"
)

// The forms that start a rollout and a retirement have the number of people who must approve and the time for which an
// approval counts. The fields begin with the API's defaults, and the API gets the values that were entered. A value
// that is malformed or rejected starts nothing, and the error names the field.
func TestFormsSayWhoApproves(t *testing.T) {
	for _, form := range []struct {
		page, to string
		fill     func() url.Values
		started  func(*world) *controlplane.Quorum
	}{
		{"/console/rollouts/new", "/console/rollouts/new", func() url.Values {
			plan := someTuning()
			plan.Set("regions.1", "all")
			return plan
		}, func(w *world) *controlplane.Quorum {
			if w.one == nil {
				return nil
			}
			return &w.one.Spec.Plan.Quorum
		}},
		{"/console/jobs", "/console/jobs/retirement", func() url.Values { return url.Values{"do": {"start"}, "reason": {"nothing needs it"}} },
			func(w *world) *controlplane.Quorum {
				if w.retire == nil {
					return nil
				}
				return &w.retire.Spec.Quorum
			}},
	} {
		for _, tc := range []struct {
			approvers, ttl string
			want           controlplane.Quorum
			says           string
		}{
			{"2", "8h", controlplane.Quorum{Approvers: 2, ApprovalTTLMs: 8 * 3600 * 1000}, ""},
			{"", "", controlplane.Quorum{Approvers: 1, ApprovalTTLMs: 24 * 3600 * 1000}, ""},
			{"two", "", controlplane.Quorum{}, "people who approve: &#34;two&#34;, want a whole number from 1 to 10"},
			{"2", "soon", controlplane.Quorum{}, "an approval counts for &#34;soon&#34;, want something like 8h or 90m"},
			{"0x2", "", controlplane.Quorum{}, "people who approve: &#34;0x2&#34;, want"},
			{"02", "", controlplane.Quorum{}, "people who approve: &#34;02&#34;, want"},
			{"2", "08h", controlplane.Quorum{}, "an approval counts for &#34;08h&#34;, want"},
			{"2", "1000.5ms", controlplane.Quorum{}, "an approval counts for &#34;1000.5ms&#34;, want"},
			{"11", "8h", controlplane.Quorum{}, "approvers is 11 (1 to 10)"},
			{"1", "1ms", controlplane.Quorum{}, "approval_ttl_ms is 1 (1000 to 2592000000)"},
		} {
			w := start(t, false)
			b := w.as("operator")
			if shown := b.get(form.page).body; !strings.Contains(shown, `name="approvers" value="1"`) || !strings.Contains(shown, `name="approval_ttl" value="24h"`) {
				t.Fatalf("%s: %s", form.page, shown)
			}
			values := form.fill()
			values.Set("approvers", tc.approvers)
			values.Set("approval_ttl", tc.ttl)
			a := b.send(form.page, form.to, values)
			got := form.started(w)
			switch {
			case tc.says == "" && (a.status != http.StatusSeeOther || got == nil || *got != tc.want):
				t.Errorf("%s %q %q: %d, %+v, want %+v", form.to, tc.approvers, tc.ttl, a.status, got, tc.want)
			case tc.says != "" && (a.status != http.StatusBadRequest || got != nil || !strings.Contains(a.body, tc.says)):
				t.Errorf("%s %q %q: %d, %+v, it does not say %s", form.to, tc.approvers, tc.ttl, a.status, got, tc.says)
			case tc.says != "" && form.page == form.to && !strings.Contains(a.body, `name="approvers" value="`+tc.approvers+`"`):
				t.Errorf("%q is lost", tc.approvers)
			}
		}
	}
	// An API that requires no tokens cannot distinguish people.
	w := start(t, true)
	a := w.visit().send("/console/jobs", "/console/jobs/retirement", url.Values{"do": {"start"}, "actor": {"ann"}, "reason": {"x"}, "approvers": {"2"}})
	if a.status != http.StatusBadRequest || !strings.Contains(a.body, "it cannot distinguish people") || w.retire != nil {
		t.Errorf("%d %s", a.status, a.body)
	}
}
