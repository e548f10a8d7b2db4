package console

import (
	"fmt"
	"html"
	"maps"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/console/sessions"
	"github.com/weirhq/weir/controlplane/internal/controltest"
	rolloutplan "github.com/weirhq/weir/controlplane/rollout/plan"
	"github.com/weirhq/weir/controlplane/tunings"
)

// everyChange is each form's address.
var everyChange = []string{
	"/console/sign-out", "/console/rollouts/new", "/console/rollouts/at/r1", "/console/jobs/cleanup", "/console/limits/namespace", "/console/limits/override",
	"/console/rollouts/preview", "/console/rollouts/stages", "/console/jobs/retirement", "/console/keys",
	"/console/tokens",
}

// A visitor without a session sees the sign-in page and the static files, and nothing else.
func TestWithoutASession(t *testing.T) {
	w := full(t)
	b := w.visit()
	for _, path := range append(everyPage, "/console/events", "/console/events?topic=fleet", "/console/nowhere") {
		a := b.get(path)
		signIn := a.status == http.StatusSeeOther && strings.HasPrefix(a.header.Get("Location"), "/console/sign-in")
		if !signIn && a.status != http.StatusUnauthorized || strings.Contains(a.body, "<main") {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
	}
	for _, path := range everyChange {
		if a := b.post(path, url.Values{"actor": {"eve"}, "reason": {"x"}, "forgery": {w.console.forgery}}); a.status != http.StatusUnauthorized {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
	}
	for _, path := range []string{"/console/sign-in", "/console/static/console.css"} {
		if a := b.get(path); a.status != http.StatusOK {
			t.Errorf("%s: %d", path, a.status)
		}
	}
	if a := b.get("/"); a.status != http.StatusFound || a.header.Get("Location") != "/console/" {
		t.Errorf("/: %d %v", a.status, a.header)
	}
}

// A change comes from a page of ours: by its Origin and by the token of its session.
func TestForgery(t *testing.T) {
	w := full(t)
	b := w.as("operator")
	token := b.forgery("/console/jobs")
	for name, tc := range map[string]struct {
		origin, token string
	}{
		"no Origin":              {"", token},
		"another site's":         {"https://evil.example", token},
		"nobody's":               {"null", token},
		"no token":               {w.url, ""},
		"another session's":      {w.url, w.as("operator").forgery("/console/jobs")},
		"that of open consoles'": {w.url, w.console.forgery},
	} {
		for _, path := range everyChange {
			r := b.request(http.MethodPost, path, url.Values{"do": {"run"}, "reason": {"x"}, "forgery": {tc.token}})
			if tc.origin != "" {
				r.Header.Set("Origin", tc.origin)
			}
			if a := b.do(r); a.status != http.StatusForbidden {
				t.Errorf("%s, %s: %d %s", name, path, a.status, a.body)
			}
		}
	}
	if w.by != (controlplane.By{}) {
		t.Errorf("something was changed by %+v", w.by)
	}
	if a := b.post("/console/jobs/cleanup", url.Values{"do": {"run"}, "reason": {"backlog"}, "forgery": {token}}); a.status != http.StatusSeeOther || w.by != (controlplane.By{Actor: "bot-operator", Reason: "backlog"}) {
		t.Errorf("a page of ours: %d, by %+v", a.status, w.by)
	}
}

// "A page hides buttons that the viewer's role must not use, but the API is what enforces roles."
func TestAViewerChangesNothing(t *testing.T) {
	w := full(t)
	viewer, operator := w.as("viewer"), w.as("operator")
	for _, path := range everyPage {
		if a := viewer.get(path); strings.Contains(a.body, `name="reason"`) {
			t.Errorf("%s has a form for a viewer", path)
		}
	}
	if a := operator.get("/console/jobs"); !strings.Contains(a.body, `name="reason"`) {
		t.Error("an operator has no form")
	}
	for path, form := range map[string]url.Values{
		"/console/jobs/cleanup":     {"do": {"pause"}},
		"/console/rollouts/at/r1":   {"do": {"abort"}},
		"/console/rollouts/new":     {"regions.1": {"all"}, "base": {markOf(tunings.RegionTuning{Document: controltest.Document()})}},
		"/console/limits/namespace": {"workspace": {"acme"}, "namespace": {"api"}},
		"/console/keys":             {"workspace": {"acme"}, "namespace": {"api"}, "identifier": {"u"}},
		"/console/jobs/retirement":  {"do": {"rename"}},
		"/console/limits/override":  {"workspace": {"acme"}, "namespace": {"api"}, "pattern": {"u"}, "limit": {"1"}},
	} {
		for _, k := range knobs {
			form.Set("tuning."+k.Name, "1")
		}
		form.Set("reason", "x")
		a := viewer.send("/console/", path, form)
		if a.status != http.StatusForbidden || !strings.Contains(a.body, "this requires the role operator") {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
	}
	if w.by != (controlplane.By{}) {
		t.Errorf("something was changed by %+v", w.by)
	}
}

// Sessions end: by hand, when idle, with age, and with their token.
func TestSessionsEnd(t *testing.T) {
	w := start(t, false)
	clock := time.Now()
	w.console.now = func() time.Time { return clock }
	in := func(b *browser) bool { return b.get("/console/jobs").status == http.StatusOK }

	b := w.as("viewer")
	for range 5 {
		clock = clock.Add(sessions.Idle - time.Second)
		if !in(b) {
			t.Fatal("a session in use has ended")
		}
	}
	clock = clock.Add(sessions.Idle)
	if in(b) {
		t.Error("an idle session goes on")
	}

	b = w.as("viewer")
	for range int(sessions.Lifetime/time.Hour) - 1 {
		clock = clock.Add(time.Hour)
		if !in(b) {
			t.Fatal("a session has ended early")
		}
	}
	clock = clock.Add(time.Hour)
	if in(b) {
		t.Error("a session outlives its time")
	}

	b = w.as("viewer")
	if a := b.send("/console/", "/console/sign-out", url.Values{}); a.status != http.StatusSeeOther || in(b) {
		t.Errorf("signed out: %d", a.status)
	}

	b = w.as("viewer")
	w.set(func() { w.revoked = true })
	if in(b) {
		t.Error("a revoked token's session goes on")
	}
	w.set(func() { w.revoked = false })
	if in(b) {
		t.Error("the session of a token that was revoked comes back")
	}
}

// A sign-in makes a new id, in a cookie that scripts and other sites have no part in; no
// secret is kept or logged.
func TestSignIn(t *testing.T) {
	w := start(t, false)
	b := w.visit()
	if a := b.get("/console/limits?workspace=acme"); a.header.Get("Location") != "/console/sign-in?next=%2Fconsole%2Flimits%3Fworkspace%3Dacme" {
		t.Errorf("%v", a.header)
	}
	if a := b.post("/console/sign-in", url.Values{"token": {"stranger"}}); a.status != http.StatusUnauthorized || !strings.Contains(a.body, "unknown or revoked") || a.header.Get("Set-Cookie") != "" {
		t.Errorf("a stranger: %d %v", a.status, a.header)
	}
	if a := b.post("/console/sign-in", url.Values{"token": {" "}}); a.status != http.StatusBadRequest {
		t.Errorf("nothing: %d", a.status)
	}
	a := b.post("/console/sign-in", url.Values{"token": {" operator\n"}, "next": {"/console/limits?workspace=acme"}})
	cookie := a.header.Get("Set-Cookie")
	for _, words := range []string{cookieLoopback + "=", "HttpOnly", "SameSite=Strict", "Path=/"} {
		if !strings.Contains(cookie, words) {
			t.Errorf("%q has no %s", cookie, words)
		}
	}
	if a.header.Get("Location") != "/console/limits?workspace=acme" || strings.Contains(cookie, "operator") {
		t.Errorf("%v", a.header)
	}
	again := b.post("/console/sign-in", url.Values{"token": {"viewer"}})
	id, _, _ := strings.Cut(strings.TrimPrefix(cookie, cookieLoopback+"="), ";")
	if _, goesOn := w.console.sessions.Find(id); goesOn || again.header.Get("Set-Cookie") == cookie {
		t.Errorf("the session of %q goes on after another sign-in", cookie)
	}
	if log := w.log.String(); strings.Contains(log, "token=") || !strings.Contains(log, "name=bot-operator") {
		t.Errorf("log %s", log)
	}
	if a := b.get("/console/sign-in?next=/console/jobs"); a.status != http.StatusSeeOther || a.header.Get("Location") != "/console/jobs" {
		t.Errorf("signed in already: %d %v", a.status, a.header)
	}
}

// Over TLS the cookie is bound to it by its name. Over plain HTTP from elsewhere no token is taken, and
// X-Forwarded-Proto proves TLS only from a trusted proxy that sends it once.
func TestSignInFromElsewhere(t *testing.T) {
	for name, tc := range map[string]struct {
		trusted string
		proto   []string
		secure  bool
	}{
		"plain":                        {"127.0.0.0/8", nil, false},
		"plain behind a proxy":         {"127.0.0.0/8", []string{"http"}, false},
		"a proxy that is trusted":      {"127.0.0.0/8", []string{"HTTPS"}, true},
		"a proxy that is not trusted":  {"10.0.0.0/8", []string{"https"}, false},
		"a proxy, none is trusted":     {"", []string{"https"}, false},
		"a proxy that hands a line on": {"127.0.0.0/8", []string{"https", "http"}, false},
		"a proxy that adds to a line":  {"127.0.0.0/8", []string{"https, http"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := start(t, false)
			if tc.trusted != "" {
				w.console.TrustedProxies = []netip.Prefix{netip.MustParsePrefix(tc.trusted)}
			}
			b := w.visit()
			r := b.request(http.MethodPost, "/console/sign-in", url.Values{"token": {"viewer"}})
			r.Host = "weir.example"
			r.Header.Set("Origin", "https://weir.example")
			r.Header["X-Forwarded-Proto"] = tc.proto
			a := b.do(r)
			cookie := a.header.Get("Set-Cookie")
			if tc.secure {
				if !strings.HasPrefix(cookie, cookieSecure+"=") || !strings.Contains(cookie, "; Secure") || strings.Contains(cookie, "Domain") {
					t.Errorf("the cookie is %q", cookie)
				}
				return
			}
			if a.status != http.StatusForbidden || !strings.Contains(a.body, "plain HTTP") || cookie != "" {
				t.Errorf("%d %q", a.status, cookie)
			}
		})
	}
}

// On loopback nothing needs TLS, and a stranger's X-Forwarded-Proto does not choose the cookie.
func TestForgedProtoOnLoopback(t *testing.T) {
	w := start(t, false)
	b := w.visit()
	r := b.request(http.MethodPost, "/console/sign-in", url.Values{"token": {"viewer"}})
	r.Header.Set("Origin", w.url)
	r.Header.Set("X-Forwarded-Proto", "https")
	if cookie := b.do(r).header.Get("Set-Cookie"); !strings.HasPrefix(cookie, cookieLoopback+"=") || strings.Contains(cookie, "; Secure") {
		t.Errorf("the cookie is %q", cookie)
	}
}

// After the sign-in people go on to a page of ours and nowhere else.
func TestNextIsLocal(t *testing.T) {
	for next, want := range map[string]string{
		"/console/jobs": "/console/jobs", "/console/limits?workspace=a%26b": "/console/limits?workspace=a%26b",
		"": "/console/", "https://evil.example/console/": "/console/", "//evil.example/console/": "/console/", `/\evil.example/console/`: "/console/",
		"/console/../readyz": "/console/", "/readyz": "/console/", "/console/sign-out": "/console/", "javascript:alert(1)": "/console/", "/console/%0d%0aX: y": "/console/%0D%0AX:%20y",
	} {
		if got := local(next); got != want {
			t.Errorf("%q: %q, want %q", next, got, want)
		}
	}
}

// If the API requires no tokens, there is no sign-in: every page shows that, and a change requires the name of its
// author.
func TestWithoutTokens(t *testing.T) {
	w := start(t, true)
	b := w.visit()
	for _, path := range []string{"/console/", "/console/jobs", "/console/limits"} {
		if a := b.get(path); a.status != http.StatusOK || !strings.Contains(a.body, "This console requires no sign-in") {
			t.Errorf("%s: %d", path, a.status)
		}
	}
	if a := b.send("/console/jobs", "/console/jobs/cleanup", url.Values{"do": {"pause"}, "actor": {"ann"}, "reason": {"deploy"}}); a.status != http.StatusSeeOther || w.by != (controlplane.By{Actor: "ann", Reason: "deploy"}) {
		t.Errorf("%d, by %+v", a.status, w.by)
	}
	if a := b.get("/console/jobs"); !strings.Contains(a.body, `value="ann"`) {
		t.Error("the name is asked for again")
	}
	if a := b.send("/console/jobs", "/console/jobs/cleanup", url.Values{"do": {"pause"}, "reason": {"deploy"}}); a.status != http.StatusBadRequest || !strings.Contains(a.body, "actor is empty") {
		t.Errorf("nobody: %d %s", a.status, a.body)
	}
	if a := b.get("/console/sign-in"); a.status != http.StatusSeeOther {
		t.Errorf("the sign-in: %d", a.status)
	}
}

// A change that cannot be undone requires the role admin, as everywhere.
func TestADropTakesAnAdmin(t *testing.T) {
	w := full(t)
	w.set(func() { w.retire.Phase = "awaiting_final_approval" })
	operator, admin := w.as("operator"), w.as("admin")
	if a := operator.get("/console/jobs"); !strings.Contains(a.body, "The drop requires the role admin") || strings.Contains(a.body, `value="drop"`) {
		t.Error("an operator has a button")
	}
	form := url.Values{"do": {"drop"}, "reason": {"unused"}, "evidence": {w.retire.EvidenceHash()}}
	if a := operator.send("/console/jobs", "/console/jobs/retirement", form); a.status != http.StatusForbidden {
		t.Errorf("an operator: %d %s", a.status, a.body)
	}
	if a := admin.get("/console/jobs"); !strings.Contains(a.body, `value="drop"`) {
		t.Error("an admin has none")
	}
	if a := admin.send("/console/jobs", "/console/jobs/retirement", form); a.status != http.StatusSeeOther || w.by.Actor != "bot-admin" {
		t.Errorf("an admin: %d, by %+v", a.status, w.by)
	}
}

// The API gets the values that people enter in forms, and the page confirms the change.
func TestForms(t *testing.T) {
	w := start(t, false)
	b := w.as("operator")
	plan := url.Values{"id": {"r1"}, "regions.1": {"eu"}, "bake.1": {"90s"}, "regions.2": {"50%"}, "regions.3": {"all"}, "approval.3": {"on"}, "reason": {"fewer rows"}, "base": {markOf(tunings.RegionTuning{Document: controltest.Document()})}}
	for _, k := range tunedFrom("") {
		plan.Set("tuning."+k.Name, k.Value)
	}
	plan.Set("tuning.floor", "0.5")
	if a := b.send("/console/rollouts/new", "/console/rollouts/preview", plan); a.status != http.StatusOK || !strings.Contains(a.body, "What it would do") || !strings.Contains(a.body, "as heartbeats lack them: how many of them are near their limits") || !strings.Contains(a.body, `value="0.5"`) || w.one != nil {
		t.Errorf("preview: %d\n%s", a.status, a.body)
	}
	a := b.send("/console/rollouts/new", "/console/rollouts/new", plan)
	if a.status != http.StatusSeeOther || w.one == nil || !strings.Contains(b.get(a.header.Get("Location")).body, "The rollout has started.") {
		t.Fatalf("start: %d %v", a.status, a.header)
	}
	if w.one.Spec.Plan.Guardrails.LatencyUs != rolloutplan.DefaultGuardrails().LatencyUs {
		t.Errorf("what the form does not have is not the default: %+v", w.one.Spec.Plan.Guardrails)
	}
	stages := w.one.Spec.Plan.Stages
	if len(stages) != 3 || stages[0].Regions[0] != "eu" || stages[0].BakeMs != 90_000 || stages[1].SharePercent != 50 || !stages[2].All || !stages[2].Approval || !strings.Contains(w.one.Document, `"floor":0.5`) {
		t.Errorf("%+v, %s", stages, w.one.Document)
	}
	if a := b.send("/console/rollouts/new", "/console/rollouts/new", plan); a.status != http.StatusConflict || !strings.Contains(a.body, "is under way") || !strings.Contains(a.body, `value="90s"`) {
		t.Errorf("a second one: %d", a.status)
	}
	for field, tc := range map[string]struct{ value, says string }{
		"tuning.step": {"x", "Step is"}, "bake.1": {"soon", "stage 1: bake time"}, "regions.2": {"half%", "stage 2"}, "tuning.floor": {"NaN", "Floor is &#34;NaN&#34;, want a number"},
	} {
		was := plan.Get(field)
		plan.Set(field, tc.value)
		if a := b.send("/console/rollouts/new", "/console/rollouts/new", plan); a.status != http.StatusBadRequest || !strings.Contains(a.body, tc.says) {
			t.Errorf("%s: %d", field, a.status)
		}
		plan.Set(field, was)
	}

	override := url.Values{"do": {"set"}, "workspace": {"acme"}, "namespace": {"api"}, "pattern": {"user_*"}, "limit": {"5"}, "duration": {"1m"}, "reason": {"abuse"}}
	if a := b.send("/console/jobs", "/console/limits/override", override); a.status != http.StatusSeeOther || len(w.settings) != 1 || w.settings[0].Limit != 5 || w.settings[0].DurationMs != 60_000 {
		t.Errorf("override: %d %+v", a.status, w.settings)
	}
	w.settings[0].Candidate, w.settings[0].Shadow = 3, true // another's
	at := "/console/limits/namespace?workspace=acme&namespace=api&pattern=user_*"
	for _, holds := range []string{`name="limit" value="5"`, `name="duration" value="1m"`, `name="candidate" value="3"`, `name="shadow" checked> shadow: decide, count and report`, `name="seen" value="1700000000000"`} {
		if a := b.get(at); !strings.Contains(a.body, holds) {
			t.Errorf("the form of what is there has no %s:\n%s", holds, a.body)
		}
	}
	for field, value := range map[string]string{"limit": "6", "candidate": "4", "shadow": "on"} {
		override.Set(field, value)
	}
	a = b.send("/console/jobs", "/console/limits/override", override) // as if it were new
	if a.status != http.StatusConflict || !strings.Contains(a.body, "It is now a limit of 5 in 1m, with the candidate 3, in shadow mode.") || !strings.Contains(a.body, `name="limit" value="6"`) || w.settings[0].Limit != 5 {
		t.Errorf("what another has set is overwritten: %d %+v\n%s", a.status, w.settings, a.body)
	}
	override.Set("seen", "1700000000000") // as the page has it now
	if a := b.send("/console/jobs", "/console/limits/override", override); a.status != http.StatusSeeOther || len(w.settings) != 1 || fmt.Sprint(w.settings[0].Limit, w.settings[0].DurationMs, w.settings[0].Candidate, w.settings[0].Shadow) != "6 60000 4 true" {
		t.Errorf("changed: %d %+v", a.status, w.settings)
	}
	override.Set("limit", "many")
	if a := b.send("/console/jobs", "/console/limits/override", override); a.status != http.StatusBadRequest || !strings.Contains(a.body, "limit is &#34;many&#34;") || !strings.Contains(a.body, `value="many"`) {
		t.Errorf("a limit that is none: %d", a.status)
	}
	for field, values := range map[string][]string{"limit": {"+5", "05", "1_000"}, "candidate": {"+5", "0x5"}, "duration": {"+60s", "060s", "1000.5ms"}} {
		for _, value := range values {
			form := url.Values{}
			maps.Copy(form, override)
			form.Set("limit", "5")
			form.Set(field, value)
			if a := b.send("/console/jobs", "/console/limits/override", form); a.status != http.StatusBadRequest || !strings.Contains(html.UnescapeString(a.body), field+" is "+strconv.Quote(value)) {
				t.Errorf("%s %s: %d", field, value, a.status)
			}
		}
	}
	override.Set("do", "delete")
	override.Set("seen", "1")
	if a := b.send("/console/jobs", "/console/limits/override", override); a.status == http.StatusSeeOther || len(w.settings) != 1 {
		t.Errorf("delete another one than was seen: %d %+v", a.status, w.settings)
	}
	override.Set("seen", fmt.Sprint(w.settings[0].UpdatedAt.UnixMilli()))
	if a := b.send("/console/jobs", "/console/limits/override", override); a.status != http.StatusSeeOther || len(w.settings) != 0 {
		t.Errorf("delete: %d %+v", a.status, w.settings)
	}
	reset := url.Values{"workspace": {"acme"}, "namespace": {"api"}, "identifier": {"user_7"}, "window": {"24h"}, "reason": {"let back in"}}
	if a := b.send("/console/jobs", "/console/keys", reset); a.status != http.StatusSeeOther || len(w.resets) != 1 || !strings.Contains(b.get(a.header.Get("Location")).body, "It was reset") {
		t.Errorf("reset: %d %+v", a.status, w.resets)
	}
}
