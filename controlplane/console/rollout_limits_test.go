package console

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"html"
	"mime/multipart"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/weirhq/weir/controlplane/limits"
	controlv1 "github.com/weirhq/weir/shared/gen/proto/weir/control/v1"
	"github.com/weirhq/weir/shared/gen/proto/weir/control/v1/controlv1connect"
	"github.com/weirhq/weir/shared/settings"
)

// limitRollouts has a rollout of limits, and records a start.
type limitRollouts struct {
	controlv1connect.UnimplementedRolloutServiceHandler
	started *controlv1.StartRolloutRequest
	one     *controlv1.Rollout
	err     error
}

func (s *limitRollouts) StartRollout(_ context.Context, req *connect.Request[controlv1.StartRolloutRequest]) (*connect.Response[controlv1.StartRolloutResponse], error) {
	if s.err != nil {
		return nil, s.err
	}
	s.started = req.Msg
	return connect.NewResponse(&controlv1.StartRolloutResponse{Rollout: &controlv1.Rollout{Id: req.Msg.GetId()}}), nil
}

func (s *limitRollouts) RolloutStatus(context.Context, *connect.Request[controlv1.RolloutStatusRequest]) (*connect.Response[controlv1.RolloutStatusResponse], error) {
	return connect.NewResponse(&controlv1.RolloutStatusResponse{Rollout: s.one}), s.err
}

// startLimits serves a console with rollouts of limits, and an override user_*.
func startLimits(t *testing.T) (*world, *limitRollouts) {
	t.Helper()
	w, s := start(t, false), &limitRollouts{}
	mux := http.NewServeMux()
	mux.Handle(controlv1connect.NewRolloutServiceHandler(s))
	w.set(func() {
		w.rolloutCalls = mux
		w.settings = []limits.Override{{Workspace: "acme", Namespace: "api", Pattern: "user_*", Limit: 100, DurationMs: 60_000, UpdatedAt: time.UnixMilli(1)}}
	})
	return w, s
}

const (
	limitsPage = "/console/rollouts/limits"
	stricter   = `kind: weir-settings
version: 1
namespaces: [{workspace: acme, namespace: web, shadow: true}]
overrides:
  - {workspace: acme, namespace: api, pattern: "user_*", limit: 50, duration_ms: 60000}
  - {workspace: acme, namespace: api, pattern: "<b>x</b>", limit: 1500}
`
)

// someLimits is a form that is filled in.
func someLimits() url.Values {
	return url.Values{"document": {stricter}, "id": {"r1"}, "reason": {"less"}, "regions.1": {"eu"}, "nodes.1": {"1"}, "shadow.1": {"on"}, "bake.1": {"10m"},
		"regions.2": {"all"}, "approval.2": {"on"}, "protected": {"acme/api/partner_*\r\n\r\n acme/api/a/b \r\n"}}
}

var difference = regexp.MustCompile(`name="difference" value="([0-9a-f]+)"`)

// shownWith returns the mark of the difference that a page shows.
func shownWith(t *testing.T, a answered) string {
	t.Helper()
	found := difference.FindStringSubmatch(a.body)
	if found == nil {
		t.Fatalf("no difference: %d\n%s", a.status, a.body)
	}
	return found[1]
}

// The first step shows the difference and starts nothing. The second step starts the rollout with it, the stages and
// the guardrails.
func TestARolloutOfLimitsStarts(t *testing.T) {
	w, s := startLimits(t)
	b, form := w.as("operator"), someLimits()
	a := b.send(limitsPage, limitsPage, form)
	for _, has := range []string{
		`<code>namespace acme/web</code> shadow false -&gt; true`, `<code>override acme/api/user_*</code> limit 100 -&gt; 50`,
		`<code>override acme/api/&lt;b&gt;x&lt;/b&gt;</code> limit 1` + "\u202f" + `500, window of the request`,
		`name="shadow.1" checked`, ">Start the rollout</button>", `name="reason" value="less"`, "acme/api/partner_*\r\n", `name="guard.newly_denied_share" value="0.01"`,
		`name="guard.newly_denied_callers" value="10"`,
	} {
		if a.status != http.StatusOK || !strings.Contains(a.body, has) || s.started != nil {
			t.Errorf("%d, no %s\n%s", a.status, has, a.body)
		}
	}
	if strings.Contains(a.body, "<b>x</b>") {
		t.Error("a pattern is not escaped")
	}
	if !strings.Contains(a.body, `id="diff"`) {
		t.Error("the address #diff has no target")
	}
	form.Set("difference", shownWith(t, a))
	form.Set("guard.newly_denied_share", "0.05")
	form.Set("guard.newly_denied_callers", "1000000")
	if a := b.send(limitsPage, limitsPage, form); a.status != http.StatusSeeOther || a.header.Get("Location") != "/console/rollouts/at/r1?did=rollout.start" {
		t.Fatalf("%d\n%s", a.status, a.body)
	}
	got := s.started
	if got.GetTuning() != "" || got.GetActor() != "bot-operator" && got.GetActor() != "" || got.GetReason() != "less" || len(got.GetLimits().GetOverrides()) != 2 || len(got.GetLimits().GetNamespaces()) != 1 {
		t.Errorf("%v", got)
	}
	stages := got.GetPlan().GetStages()
	if len(stages) != 2 || !stages[0].GetShadow() || stages[0].GetNodes() != 1 || stages[1].GetShadow() || !stages[1].GetApproval() || !stages[1].GetAll() {
		t.Errorf("%v", stages)
	}
	g := got.GetPlan().GetGuardrails()
	if g.GetNewlyDeniedShare() != 0.05 || g.GetNewlyDeniedCallers() != 1_000_000 || len(g.GetProtected()) != 2 || g.GetProtected()[1].GetPattern() != "a/b" {
		t.Errorf("%v", g)
	}
}

// The form has the time of the baseline and the lease of the trials, with the defaults of the API. Errors name the
// field, and an empty field is the default.
func TestAFormOfLimitsHasItsBaselineAndLease(t *testing.T) {
	w, s := startLimits(t)
	b := w.as("operator")
	if a := b.get(limitsPage); !strings.Contains(a.body, `name="baseline" value="2m"`) || !strings.Contains(a.body, `name="lease" value="5m"`) {
		t.Errorf("%d\n%s", a.status, a.body)
	}
	form := someLimits()
	form.Set("difference", shownWith(t, b.send(limitsPage, limitsPage, form)))
	for field, says := range map[string]string{"baseline": "health is measured for: &#34;soon&#34;, want", "lease": "lease of the trials: &#34;soon&#34;, want"} {
		form.Set(field, "soon")
		if a := b.send(limitsPage, limitsPage, form); a.status != http.StatusBadRequest || s.started != nil || !strings.Contains(a.body, says) ||
			!strings.Contains(a.body, `name="`+field+`" value="soon"`) {
			t.Errorf("%s: %d\n%s", field, a.status, a.body)
		}
		form.Set(field, "")
	}
	form.Set("baseline", "30s")
	if a := b.send(limitsPage, limitsPage, form); a.status != http.StatusSeeOther {
		t.Fatalf("%d\n%s", a.status, a.body)
	}
	if plan := s.started.GetPlan(); plan.GetBaselineMs() != 30_000 || plan.LeaseMs != nil {
		t.Errorf("%v", plan)
	}
}

// If the document or the stored settings have changed since the difference was shown, the form is shown again.
func TestALimitsFormStartsOnlyWhatItShowed(t *testing.T) {
	w, s := startLimits(t)
	b, form := w.as("operator"), someLimits()
	form.Set("difference", shownWith(t, b.send(limitsPage, limitsPage, form)))
	w.set(func() { w.settings[0].Limit = 70 })
	a := b.send(limitsPage, limitsPage, form)
	if a.status != http.StatusConflict || !strings.Contains(a.body, "The difference is another one") || !strings.Contains(a.body, "limit 70 -&gt; 50") || s.started != nil {
		t.Fatalf("%d\n%s", a.status, a.body)
	}
	form.Set("difference", shownWith(t, a))
	form.Set("do", "review")
	if a := b.send(limitsPage, limitsPage, form); a.status != http.StatusOK || s.started != nil {
		t.Fatalf("%d\n%s", a.status, a.body)
	}
	form.Del("do")
	w.set(func() {
		s.err = connect.NewError(connect.CodeAborted, errors.New("the stored settings differ:\n~ override acme/api/user_*: limit 70 -> <i>"))
	})
	if a := b.send(limitsPage, limitsPage, form); a.status != http.StatusConflict || !strings.Contains(a.body, "limit 70 -&gt; &lt;i&gt;") || !strings.Contains(a.body, `role="alert"`) {
		t.Fatalf("%d\n%s", a.status, a.body)
	}
}

// A document, a stage or a guardrail that is wrong is named, and no input is lost.
func TestALimitsFormNamesWhatIsWrong(t *testing.T) {
	w, s := startLimits(t)
	b, many := w.as("operator"), "kind: weir-settings\nversion: 1\noverrides:\n"
	for i := range settings.ChangesMax + 1 {
		many += fmt.Sprintf("- {workspace: a, namespace: b, pattern: %d, limit: 1}\n", i)
	}
	seen := shownWith(t, b.send(limitsPage, limitsPage, someLimits()))
	for says, change := range map[string][2]string{
		"the document is empty: paste or upload one":                  {"document", " "},
		"line 3: x is not a known field":                              {"document", "kind: weir-settings\nversion: 1\nx: 1\n"},
		"nothing changes: the stored settings have the values":        {"document", "kind: weir-settings\nversion: 1\n"},
		"the document is 28673 bytes long (at most 28672)":            {"document", strings.Repeat("x", documentBytesMax+1)},
		"the document has 501 items (at most 500)":                    {"document", many},
		`stage 1: "few" is no number of nodes`:                        {"nodes.1", "few"},
		`Allowed share of newly denied decisions is "x", want a numb`: {"guard.newly_denied_share", "x"},
		`Allowed number of newly denied callers is "1.5", want a who`: {"guard.newly_denied_callers", "1.5"},
		`"acme/api" is no protected caller`:                           {"protected", "acme/api"},
	} {
		form := someLimits()
		form.Set("difference", seen)
		form.Set(change[0], change[1])
		a := b.send(limitsPage, limitsPage, form)
		if a.status != http.StatusBadRequest || !strings.Contains(html.UnescapeString(a.body), says) || !strings.Contains(a.body, `value="less"`) || s.started != nil {
			t.Errorf("%s: %d\n%s", says, a.status, a.body)
		}
	}
	w.set(func() { w.down = errors.New("MySQL is gone") })
	if a := b.send("/console/rollouts/limits", limitsPage, someLimits()); a.status < 500 || s.started != nil {
		t.Errorf("%d\n%s", a.status, a.body)
	}
}

// With an error, the address #diff of the form has no target. Otherwise browsers would show the difference, and not the
// error at the top of the page.
func TestAnErrorOfALimitsFormIsInSight(t *testing.T) {
	w, _ := startLimits(t)
	b, form := w.as("operator"), someLimits()
	seen := shownWith(t, b.send(limitsPage, limitsPage, form))
	for _, document := range []string{"kind: weir\n", strings.Replace(stricter, "limit: 50", "limit: 40", 1)} {
		form.Set("document", document)
		form.Set("difference", seen)
		if a := b.send(limitsPage, limitsPage, form); !strings.Contains(a.body, `role="alert"`) || strings.Contains(a.body, `id="diff"`) {
			t.Errorf("%d\n%s", a.status, a.body)
		}
	}
}

// The regions of a rollout that is done have the stored limits, although their trials have ended. They are not rolled
// back.
func TestADoneRolloutOfLimitsIsNotRolledBack(t *testing.T) {
	w, s := startLimits(t)
	s.one = &controlv1.Rollout{Id: "r1", EndedAtMs: 5, Limits: &controlv1.LimitsChange{}, Evidence: &controlv1.LimitsEvidence{Judged: 3},
		Regions: []*controlv1.RolloutRegion{{Region: "eu", Trial: 4, TrialEnded: true}}}
	for phase, has := range map[string]string{"keeping": "the new limits are stored, trial 4 has ended", "done": "the new limits are stored, trial 4 has ended",
		"rolled_back": "rolled back, trial 4 has ended"} {
		s.one.Phase = phase
		if page := w.as("operator").get("/console/rollouts/at/r1").body; !strings.Contains(page, has) || strings.Contains(page, `class="denied"`) {
			t.Errorf("%s\n%s", phase, page)
		}
	}
}

// upload sends a form with a file, as browsers do.
func (b *browser) upload(page, path string, form url.Values, file string) answered {
	b.w.t.Helper()
	var body bytes.Buffer
	parts := multipart.NewWriter(&body)
	form.Set("forgery", b.forgery(page))
	for name, values := range form {
		if err := parts.WriteField(name, values[0]); err != nil {
			b.w.t.Fatal(err)
		}
	}
	part, err := parts.CreateFormFile("file", "limits.yaml")
	if err == nil {
		_, err = part.Write([]byte(file))
	}
	if err := errors.Join(err, parts.Close()); err != nil {
		b.w.t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(b.w.t.Context(), http.MethodPost, b.w.url+path, &body)
	if err != nil {
		b.w.t.Fatal(err)
	}
	r.Header.Set("Content-Type", parts.FormDataContentType())
	r.Header.Set("Origin", b.w.url)
	return b.do(r)
}

// A file takes the place of the text. A form with a file needs the token against forgery, and is bounded, like any
// other.
func TestALimitsDocumentIsUploaded(t *testing.T) {
	w, s := startLimits(t)
	b, form := w.as("operator"), someLimits()
	form.Set("document", "not a document")
	a := b.upload(limitsPage, limitsPage, form, stricter)
	if a.status != http.StatusOK || !strings.Contains(a.body, "limit 100 -&gt; 50") || strings.Contains(a.body, "not a document") {
		t.Fatalf("%d\n%s", a.status, a.body)
	}
	form.Set("difference", shownWith(t, a))
	form.Set("document", stricter)
	if a := b.upload(limitsPage, limitsPage, form, ""); a.status != http.StatusSeeOther || s.started == nil {
		t.Errorf("without a file: %d\n%s", a.status, a.body)
	}
	if a := b.upload(limitsPage, limitsPage, form, strings.Repeat("#", formBytesMax)); a.status != http.StatusRequestEntityTooLarge || !strings.Contains(a.body, "longer than 65536 bytes") {
		t.Errorf("a long file: %d %s", a.status, a.body)
	}
	forged := someLimits()
	forged.Set("forgery", "x")
	if a := b.post(limitsPage, forged); a.status != http.StatusForbidden {
		t.Errorf("forged: %d", a.status)
	}
	if a := w.as("viewer").get(limitsPage); a.status != http.StatusOK || strings.Contains(a.body, "<textarea") {
		t.Errorf("a viewer: %d", a.status)
	}
	if a := w.as("operator@acme").get(limitsPage); a.status != http.StatusForbidden {
		t.Errorf("a token of some workspaces: %d", a.status)
	}
}

// Stages are added with an unfinished document, and a namespace's page links a form that begins with its settings.
func TestALimitsFormOfANamespace(t *testing.T) {
	w, _ := startLimits(t)
	b := w.as("operator")
	const link = "/console/rollouts/limits?workspace=acme&amp;namespace=api"
	if page := b.get("/console/limits/namespace?workspace=acme&namespace=api").body; !strings.Contains(page, `href="`+link+`"`) {
		t.Errorf("no link\n%s", page)
	}
	shown := html.UnescapeString(b.get(html.UnescapeString(link)).body)
	for _, has := range []string{`{workspace: "acme", namespace: "api", mode: "exact"`, `pattern: "user_*", limit: 100, duration_ms: 60000}`} {
		if !strings.Contains(shown, has) {
			t.Errorf("no %s\n%s", has, shown)
		}
	}
	form := someLimits()
	form.Set("document", "half a docu")
	form.Set("do", "stage")
	a := b.send(limitsPage, limitsPage, form)
	if a.status != http.StatusOK || !strings.Contains(a.body, "Stage 5") || !strings.Contains(a.body, "half a docu") || strings.Contains(a.body, `role="alert"`) {
		t.Errorf("%d\n%s", a.status, a.body)
	}
}

// ofLimits is a rollout of limits with evidence about callers whose names are markup.
func ofLimits() *controlv1.Rollout {
	return &controlv1.Rollout{Id: "r1", Actor: "ann", Reason: "less", StartedAtMs: 1_700_000_000_000, Phase: "measuring", Stage: 1,
		Limits: &controlv1.LimitsChange{Overrides: []*controlv1.OverrideChange{
			{Before: &controlv1.Override{Workspace: "acme", Namespace: "api", Pattern: "user_*", Limit: 100, DurationMs: 60_000}, After: &controlv1.Override{Workspace: "acme", Namespace: "api", Pattern: "user_*", Limit: 50, DurationMs: 60_000}},
			{After: &controlv1.Override{Workspace: "acme", Namespace: "api", Pattern: `<script>alert("p")</script>`, Limit: 5}},
			{Before: &controlv1.Override{Workspace: "acme", Namespace: "api", Pattern: "old", Limit: 5}}}},
		Stages: []*controlv1.RolloutProgress{{Regions: []string{"eu"}, Nodes: 1, BakeMs: 600_000, Shadow: true, State: "active"}, {Regions: []string{"eu"}, BakeMs: 600_000, State: "waiting"}, {Regions: []string{"us"}, Rest: true, BakeMs: 600_000, Approval: true, State: "waiting"}},
		Evidence: &controlv1.LimitsEvidence{Judged: 12_345, DeniedBefore: 100, DeniedAfter: 150, NewlyDenied: 55, Callers: 3, Protected: 1, Nodes: 2,
			Namespaces: []*controlv1.LimitsEvidenceNamespace{{Workspace: "acme", Namespace: "api", Judged: 12_000, DeniedBefore: 90, DeniedAfter: 140, NewlyDenied: 55}, {Workspace: "acme", Namespace: `<i>"web"</i>`, Judged: 345, DeniedBefore: 10, DeniedAfter: 10}},
			Top:        []*controlv1.LimitsEvidenceCaller{{Workspace: "acme", Namespace: "api", Identifier: `"><img src=x onerror=alert(1)>&x=1`, DurationMs: 60_000, Limit: 50, NewlyDenied: 54}, {Workspace: "acme", Namespace: "api", Identifier: "partner_1", DurationMs: 60_000, Limit: 50, NewlyDenied: 1, Protected: true}}},
		Rails: []*controlv1.RolloutRail{{Field: "newly_denied_share", Region: "eu", Now: proto.Float64(0.0045), Most: proto.Float64(0.01), Margin: proto.Float64(0.55)}, {Field: "newly_denied_callers", Region: "eu", Now: proto.Float64(3), Most: proto.Float64(10), Margin: proto.Float64(0.7)}, {Field: "protected", Region: "eu", Now: proto.Float64(1), Most: proto.Float64(0), Margin: proto.Float64(-1)}}}
}

// The page of a rollout of limits shows the change, the mode of each stage, and the evidence. Names of callers and
// patterns are text, never markup.
func TestThePageOfARolloutOfLimits(t *testing.T) {
	w, s := startLimits(t)
	w.set(func() { s.one = ofLimits() })
	b := w.as("operator")
	page := b.get("/console/rollouts/at/r1").body
	for _, has := range []string{
		"the health of the stage&#39;s nodes before they get the new limits.", "3 items of the settings",
		"<code>override acme/api/user_*</code> limit 100 -&gt; 50", `<code>override acme/api/&lt;script&gt;alert(&#34;p&#34;)&lt;/script&gt;</code>`,
		"<b>1 node of eu</b> <span class=\"faint\">shadow, bakes 10 min", "<b>eu</b> <span class=\"faint\">enforced, bakes",
		"<td class=\"n\"><b>55</b></td>", "acme/&lt;i&gt;&#34;web&#34;&lt;/i&gt;</a>", "<code>&#34;&gt;&lt;img src=x onerror=alert(1)&gt;&amp;x=1</code>",
		`identifier=%22%3e%3cimg%20src%3dx%20onerror%3dalert%281%29%3e%26x%3d1"`, `<span class="state bad">protected</span>`,
		"<b>Newly denied decisions of protected callers</b>", "50 in 60 s</td>",
	} {
		if !strings.Contains(page, has) {
			t.Errorf("no %s", has)
		}
	}
	for _, not := range []string{"<img", "<i>", `<script>alert`, `id="tuning"`} {
		if strings.Contains(page, not) {
			t.Errorf("it has %s", not)
		}
	}
	w.set(func() {
		s.one.Phase, s.one.EndedAtMs, s.one.Evidence = "done", 1_700_000_100_000, nil
		for i := range changeShown {
			s.one.Limits.Overrides = append(s.one.Limits.Overrides, &controlv1.OverrideChange{After: &controlv1.Override{Workspace: "acme", Namespace: "api", Pattern: fmt.Sprint("later", i), Limit: 5}})
		}
	})
	page = b.get("/console/rollouts/at/r1").body
	for _, has := range []string{"No decision yet about keys whose limit changes. 0 nodes have reported.", "Everything that the rollout changed returns to its state before", "Done: the new limits are stored",
		`<details class="more"><summary>3 further items</summary><ul class="plain lines"><li><b class="sign" aria-hidden="true">&#43;</b><span><span class="unseen">new:</span> <code>override acme/api/later17</code>`} {
		if !strings.Contains(page, has) {
			t.Errorf("no %s\n%s", has, page)
		}
	}
}
