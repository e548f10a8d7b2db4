package console

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/audit"
	"github.com/weirhq/weir/controlplane/cleanup"
	"github.com/weirhq/weir/controlplane/fleet"
	"github.com/weirhq/weir/controlplane/internal/controltest"
	"github.com/weirhq/weir/controlplane/limits"
	"github.com/weirhq/weir/controlplane/retire"
	"github.com/weirhq/weir/controlplane/rollout"
	rolloutplan "github.com/weirhq/weir/controlplane/rollout/plan"
	"github.com/weirhq/weir/controlplane/tunings"
	"github.com/weirhq/weir/controlplane/watch"
	"github.com/weirhq/weir/shared/heartbeat"
	"github.com/weirhq/weir/shared/window"
)

// everyPage is each page that can be looked at.
var everyPage = []string{
	"/console/", "/console/regions/region-00", "/console/rollouts", "/console/rollouts/new", "/console/rollouts/at/r1",
	"/console/rollouts/limits?workspace=acme&namespace=api",
	"/console/jobs", "/console/limits", "/console/limits?workspace=acme", "/console/limits/namespace?workspace=acme&namespace=api",
	"/console/keys", "/console/keys?workspace=acme&namespace=api&identifier=user_1", "/console/health", "/console/health?check=1", "/console/audit",
	"/console/usage", "/console/usage?usage=90d", "/console/limits/namespace?workspace=acme&namespace=api&usage=7d",
}

// Each page without data tells the operator the next step.
func TestEveryPageEmpty(t *testing.T) {
	b := start(t, false).as("operator")
	for path, says := range map[string]string{
		"/console/":                "No nodes have reported yet",
		"/console/regions/eu":      "No node of a region &#34;eu&#34; has sent a heartbeat",
		"/console/rollouts":        "There has been no rollout yet",
		"/console/rollouts/new":    "from the built-in tuning",
		"/console/rollouts/limits": "The next step shows the difference from the stored settings",
		"/console/rollouts/at/r1":  "there is no rollout &#34;r1&#34;",
		"/console/jobs":            "It has not run yet",
		"/console/limits":          "Name a workspace",
		"/console/limits/namespace?workspace=a&namespace=n": "No identifier of this namespace has a limit of its own",
		"/console/keys": "Name a key",
		"/console/keys?workspace=a&namespace=n&identifier=i": "No override matches",
		"/console/health":  "Nothing was found",
		"/console/usage":   "No region has reported usage in this time",
		"/console/audit":   "Nothing has been changed yet",
		"/console/nowhere": "There is no page at this address",
	} {
		if a := b.get(path); !strings.Contains(a.body, says) || !strings.Contains(a.body, "</html>") {
			t.Errorf("%s does not say %q: %d\n%s", path, says, a.status, a.body)
		}
	}
}

// If everything below the API is down, each page shows the API's error and where to look.
func TestEveryPageWithEverythingDown(t *testing.T) {
	w := start(t, false)
	b := w.as("operator")
	w.set(func() {
		w.down = fmt.Errorf("%w: MySQL does not answer: look at it", controlplane.ErrUnavailable)
		w.one, _ = rollout.New("r1", rollout.Spec{Tuning: controltest.Document(), Plan: plan()}, controlplane.By{Actor: "ann", Reason: "x"}, []string{"eu"}, 1)
	})
	for _, path := range everyPage {
		a := b.get(path)
		if path == "/console/limits" || path == "/console/keys" || strings.HasPrefix(path, "/console/health") {
			if a.status != http.StatusOK {
				t.Errorf("%s needs nothing to be there: %d", path, a.status)
			}
			continue
		}
		if !strings.Contains(a.body, "MySQL does not answer: look at it") || !strings.Contains(a.body, "</html>") {
			t.Errorf("%s: %d\n%s", path, a.status, a.body)
		}
	}
}

// Figures stay on the page during an outage, and the page shows that they are old.
func TestTheFleetStaysWhenMySQLGoes(t *testing.T) {
	w := start(t, false)
	clock := time.Now()
	w.console.now = func() time.Time { return clock }
	w.set(func() { w.fleet = populous(2, 3, clock) })
	b := w.as("viewer")
	if a := b.get("/console/"); !strings.Contains(a.body, "region-01") {
		t.Fatalf("%d %s", a.status, a.body)
	}
	w.set(func() { w.down = fmt.Errorf("%w: MySQL does not answer", controlplane.ErrUnavailable) })
	clock = clock.Add(time.Minute)
	if a := b.get("/console/"); a.status != http.StatusOK || !strings.Contains(a.body, "These figures are old: ") || !strings.Contains(a.body, "region-01") {
		t.Errorf("%d %s", a.status, a.body)
	}
}

func plan() rolloutplan.Plan {
	p := rolloutplan.DefaultPlan()
	p.Stages = []rolloutplan.Stage{{Regions: []string{"eu"}, BakeMs: 60_000}, {All: true, BakeMs: 60_000, Approval: true}}
	return p
}

// full returns a world with a lot of everything.
func full(t testing.TB) *world {
	t.Helper()
	w := start(t, false)
	now := time.Now()
	w.fleet = populous(20, 50, now)
	for i := range 10_000 {
		w.settings = append(w.settings, limits.Override{Workspace: "acme", Namespace: "api", Pattern: fmt.Sprintf("user_%05d", i), Limit: int64(i), UpdatedAt: now})
	}
	for i := range 50 {
		w.cleanup.History = append(w.cleanup.History, cleanup.Run{StartedAt: now, Took: time.Second, Trigger: "schedule", Report: cleanup.Report{Rows: int64(i)}})
	}
	w.cleanup.Running, w.cleanup.Interval = true, time.Minute
	r, err := rollout.New("r1", rollout.Spec{Tuning: controltest.Document("floor=0.5"), Plan: plan()}, controlplane.By{Actor: "ann", Reason: "fewer rows"}, []string{"eu", "us"}, now.UnixMilli())
	if err != nil {
		t.Fatal(err)
	}
	w.one = r
	w.retire, err = retire.New(retire.Blocklist, retire.DefaultSpec(), controlplane.By{Actor: "ann", Reason: "unused"}, retire.Look{Table: &retire.TableFigures{Rows: 7}}, now.UnixMilli())
	if err != nil {
		t.Fatal(err)
	}
	w.found = []watch.Finding{{Severity: watch.SeverityCritical, Subject: "eu", What: "no node of it is live", Do: "start one", SinceMs: now.UnixMilli()}}
	w.resets = []limits.Reset{{Workspace: "acme", Namespace: "api", Identifier: "user_1", Generation: 3, SetAt: now, ExpiresAt: now}}
	for i := range int64(120) {
		w.audit = append(w.audit, audit.Record{Row: 120 - i, At: now, Entry: audit.Entry{By: controlplane.By{Actor: "ann", Reason: "deploy"}, Action: "override.set", Subject: fmt.Sprint("entry ", 120-i), After: "{}"}})
	}
	w.usage = make(map[heartbeat.UsageOf][]limits.UsageHour)
	for h := range 90 * 24 {
		at := now.Truncate(time.Hour).Add(time.Duration(-h) * time.Hour)
		w.reports = append(w.reports, limits.UsageHour{At: at, Region: "eu"})
		for i := range int64(60) {
			of := heartbeat.UsageOf{Workspace: "acme", Namespace: fmt.Sprintf("api-%02d", i)}
			if i == 0 {
				of.Namespace = "api"
			}
			w.usage[of] = append(w.usage[of], limits.UsageHour{At: at, Region: "eu", UsageCost: heartbeat.UsageCost{Accepted: 1_000_000 - i, Denied: i}})
		}
	}
	return w
}

// 1,000 nodes in 20 regions and 10,000 overrides: pages have an end, and everything that
// people would miss is on them.
func TestEveryPageFull(t *testing.T) {
	b := full(t).as("operator")
	for path, says := range map[string][]string{
		"/console/":                  {"900 of 1\u202f000 nodes in 20 regions live", "region-19", "node-00-009 in region-00", "and 2 more of its nodes"},
		"/console/regions/region-00": {"45 of 50 nodes live", "node-00-049", "last heartbeat at"},
		"/console/rollouts":          {"fewer rows", "r1"},
		"/console/rollouts/at/r1":    {"Guardrails", "Convergence delay", "at most 30\u202f000", "Pause", "0.5", "default 0.1"},
		"/console/jobs":              {"Rows deleted by each of the last 50 runs", "every 60 s", "Pause the schedule", "Watches for writes", "Abort"},
		"/console/keys?workspace=acme&namespace=api&identifier=user_00007": {"The override <code>user_00007</code> applies", "<b>7</b>", "No reset of it is in force", "Reset it"},
		"/console/keys?workspace=acme&namespace=api&identifier=user_1":     {"It was reset", "It was reset"},
		"/console/health":          {"no node of it is live", "start one", "critical", "Check now"},
		"/console/health?check=1":  {"set noeviction", "fails", "Check again"},
		"/console/audit":           {"entry 120", "entry 71", "before=71"},
		"/console/usage":           {"api-19", "~475", "More namespaces had cost: these are the 20 with the most", `aria-current="page">Usage</a>`},
		"/console/audit?before=71": {"entry 70", "Newest", "before=21"},
		"/console/audit?before=21": {"entry 20", "entry 1<"},
		"/console/limits/namespace?workspace=acme&namespace=api":                  {"user_00049", "blocked", "after=user_00049"},
		"/console/limits/namespace?workspace=acme&namespace=api&after=user_09950": {"user_09999", "First page"},
	} {
		a := b.get(path)
		for _, words := range says {
			if a.status != http.StatusOK || !strings.Contains(a.body, words) {
				t.Errorf("%s does not say %q: %d", path, words, a.status)
			}
		}
		if len(a.body) > 400_000 {
			t.Errorf("%s is %d bytes long", path, len(a.body))
		}
	}
}

// The form of the audit log has all search fields of the API. The page's address holds the search, further pages keep
// it, and the API's errors appear at their field.
func TestAuditForm(t *testing.T) {
	w := full(t)
	w.audit[1].Actor, w.audit[1].Action, w.audit[1].Subject = "bob", "namespace.set", "namespace acme/api" // entry 119
	w.audit[2].At = w.audit[2].At.Add(-48 * time.Hour)
	b := w.as("viewer")
	for query, want := range map[string]struct{ says, not string }{
		"actor=bob":                     {"namespace acme/api", "entry 120"},
		"action=namespace":              {"namespace acme/api", "entry 120"},
		"subject=entry+7":               {"entry 79", "entry 80"},
		"workspace=acme&namespace=api":  {"namespace acme/api", "entry 120"},
		"actor=eve":                     {"No change matches", "entry 120"},
		"until=2001-01-01T00:00":        {"No change matches", "entry 120"},
		"actor=ann":                     {"before=70", "namespace acme/api"},
		"actor=ann&before=70":           {`value="ann"`, "entry 70"},
		"since=2001-01-01T00:00&actor=": {"entry 120", "entry 60"},
	} {
		a := b.get("/console/audit?" + query)
		if a.status != http.StatusOK || !strings.Contains(a.body, want.says) || strings.Contains(a.body, want.not+"<") {
			t.Errorf("%s: %d, want %q and not %q\n%s", query, a.status, want.says, want.not, a.body)
		}
	}
	if a := b.get("/console/audit?actor=ann"); !strings.Contains(a.body, `href="/console/audit?actor=ann&amp;before=70"`) {
		t.Errorf("the next page is about everybody:\n%s", a.body)
	}
	for query, want := range map[string][2]string{
		"namespace=api": {"workspace", "workspace is empty (a namespace needs its workspace)"},
		"since=soon":    {"since", "since is &#34;soon&#34;, want a moment like"},
		"since=2026-01-02T00:00&until=2026-01-01T00:00": {"until", "until is 2026-01-01T00:00, want a moment after 2026-01-02T00:00"},
		"action=" + strings.Repeat("a", 65):             {"action", "action is 65 bytes long (at most 64)"},
	} {
		a := b.get("/console/audit?" + query)
		if a.status != http.StatusBadRequest || !strings.Contains(a.body, `aria-invalid="true" aria-describedby="wrong-`+want[0]+`"><small class="badtext" id="wrong-`+want[0]+`" role="alert">`+want[1]) {
			t.Errorf("%s: %d\n%s", query, a.status, a.body)
		}
	}
}

// A region's worst nodes come first, and are not among the nodes that are left out.
func TestTheWorstNodesAreNamed(t *testing.T) {
	w := start(t, false)
	w.set(func() {
		w.fleet = populous(1, 6, time.Now())
		for i := range w.fleet.Nodes {
			w.fleet.Nodes[i].Health.SettingsProblem = "a field it does not know"
		}
		w.fleet.Nodes[5].Live = false
	})
	body := w.as("viewer").get("/console/").body
	dead, late, more := strings.Index(body, "node-00-005 in region-00</a> last heartbeat"), strings.Index(body, "node-00-000 in region-00</a> does not run"), strings.Index(body, "and 3 more of its nodes")
	if dead < 0 || late < dead || more < late {
		t.Errorf("the dead node is at %d, a late one at %d, the others at %d:\n%s", dead, late, more, body)
	}
}

// Nodes and callers choose names freely, and names never become markup.
func TestNamesAreEscaped(t *testing.T) {
	const evil = `<img src=x onerror=alert(1)>"'`
	w := start(t, false)
	w.fleet = fleet.Fleet{Now: time.Now(), Nodes: []fleet.Node{{Heartbeat: heartbeat.Heartbeat{NodeID: evil, Region: evil, Build: evil, Health: heartbeat.Health{SettingsProblem: evil}}, Live: true}}}
	w.settings = []limits.Override{{Workspace: "acme", Namespace: "api", Pattern: evil}}
	at := time.Now().Truncate(time.Hour).Add(-time.Hour)
	w.reports = []limits.UsageHour{{At: at, Region: "eu"}, {At: at.Add(-2 * time.Hour), Region: "eu"}, {At: at.Add(-2 * time.Hour), Region: evil}, {At: at, Region: evil}}
	w.usage = map[heartbeat.UsageOf][]limits.UsageHour{{Workspace: evil, Namespace: evil}: {{At: at, Region: evil, UsageCost: heartbeat.UsageCost{Accepted: 1}}}}
	b := w.as("operator")
	for _, path := range append(everyPage, "/console/usage?usage="+url.QueryEscape(evil), "/console/regions/"+url.PathEscape(evil), "/console/sign-in?next="+url.QueryEscape(evil), "/console/limits/namespace?"+url.Values{"workspace": {evil}, "namespace": {evil}, "after": {evil}, "pattern": {evil}}.Encode()) {
		if a := b.get(path); strings.Contains(a.body, "<img") {
			t.Errorf("%s: %s", path, a.body)
		}
	}
	if a := b.send("/console/jobs", "/console/rollouts/new", url.Values{"id": {evil}, "regions.1": {evil}, "tuning.floor": {evil}, "base": {markOf(tunings.RegionTuning{Document: controltest.Document()})}}); strings.Contains(a.body, "<img") || a.status != http.StatusBadRequest {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// No page has inline scripts or inline styles: no page needs anything that the policy forbids.
func TestPagesKeepToThePolicy(t *testing.T) {
	b := full(t).as("operator")
	inline := regexp.MustCompile(`(?i)<style|\sstyle=|\son[a-z]+=|<script[^>]*>[^<]|javascript:`)
	for _, path := range append(everyPage, "/console/sign-in") {
		a := b.get(path)
		if found := inline.FindString(a.body); found != "" {
			t.Errorf("%s has %q", path, found)
		}
		for header, want := range map[string]string{
			"Content-Security-Policy": policy, "X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY",
			"Referrer-Policy": "same-origin", "Cache-Control": "no-store",
		} {
			if got := a.header.Get(header); got != want {
				t.Errorf("%s: %s is %q", path, header, got)
			}
		}
	}
	for _, forbidden := range []string{"unsafe", "*", "http:", "https:"} {
		if strings.Contains(policy, forbidden) {
			t.Errorf("the policy has %q", forbidden)
		}
	}
}

// A page names our own files only, and each of them is there.
func TestPagesNameTheirOwnFiles(t *testing.T) {
	b := start(t, false).as("viewer")
	named := regexp.MustCompile(`(?:src|href)="([^"]+)"`)
	for _, m := range named.FindAllStringSubmatch(b.get("/console/").body, -1) {
		if !strings.HasPrefix(m[1], "/") && !strings.HasPrefix(m[1], "#") {
			t.Errorf("%q is not ours", m[1])
		}
		if strings.HasPrefix(m[1], "/console/static/") {
			if a := b.get(m[1]); a.status != http.StatusOK || !strings.Contains(a.header.Get("Cache-Control"), "immutable") {
				t.Errorf("%s: %d, %q", m[1], a.status, a.header.Get("Cache-Control"))
			}
		}
	}
	for path, want := range map[string]int{
		"/console/static/uplot/uPlot.esm.js": http.StatusOK, "/console/static/uplot/LICENSE": http.StatusOK,
		"/console/static/": http.StatusNotFound, "/console/static/%2e%2e/templates/frame.html": http.StatusNotFound, "/console/static/none": http.StatusNotFound,
	} {
		if a := b.get(path); a.status != want {
			t.Errorf("%s: %d, want %d", path, a.status, want)
		}
	}
}

// Each error of the API has its status and its words.
func TestErrorsOfTheAPI(t *testing.T) {
	w := start(t, false)
	b := w.as("operator")
	for _, tc := range []struct {
		err  error
		want int
	}{
		{fmt.Errorf("%w: reason is too long", controlplane.ErrInvalid), http.StatusBadRequest},
		{fmt.Errorf("%w: another one is under way", controlplane.ErrConflict), http.StatusConflict},
		{fmt.Errorf("%w: there is none", controlplane.ErrNotFound), http.StatusNotFound},
		{fmt.Errorf("%w: Restate does not answer", controlplane.ErrUnavailable), http.StatusServiceUnavailable},
		{errors.New("odd"), http.StatusInternalServerError},
	} {
		form := url.Values{"do": {"pause"}, "reason": {"x"}}
		form.Set("forgery", b.forgery("/console/jobs"))
		w.set(func() { w.down = tc.err })
		a := b.post("/console/jobs/cleanup", form)
		w.set(func() { w.down = nil })
		if a.status != tc.want || !strings.Contains(a.body, `role="alert"`) || tc.want != http.StatusInternalServerError && !strings.Contains(a.body, tc.err.Error()) {
			t.Errorf("%v: %d\n%s", tc.err, a.status, a.body)
		}
	}
}

// Each page renders in under 200 ms with 1,000 nodes, 20 regions and 10,000 overrides, including a new read of the
// fleet. The time that browsers need is measured in deploy/e2e/console.
func BenchmarkPages(b *testing.B) {
	w := full(b)
	var later atomic.Int64
	w.console.now = func() time.Time { return time.Now().Add(time.Duration(later.Load())) }
	for _, path := range everyPage {
		b.Run(strings.TrimPrefix(path, "/"), func(b *testing.B) {
			who := w.as("operator")
			for b.Loop() {
				later.Add(int64(5 * time.Second)) // the pulse's figures are old, so that the page reads the fleet again
				if a := who.get(path); a.status != http.StatusOK {
					b.Fatal(a.status, a.body)
				}
			}
		})
	}
}

// A hot key is drawn with its regions' parts against its limit, and with its window over
// the two cells at this moment.
func TestAHotKey(t *testing.T) {
	w := start(t, false)
	w.top = limits.TopKeys{Reports: limits.Reports{Now: time.UnixMilli(1_700_000_015_000 / 60_000 * 60_000).Add(15 * time.Second), Nodes: 4}, Keys: []limits.TopKey{
		{Workspace: "acme", Namespace: "api", Identifier: "user_1", DurationMs: 60_000, Limit: 100, Count: 90, Regions: []limits.TopKeyRegion{{Region: "eu", Count: 60}, {Region: "us", Count: 30}}},
	}}
	a := w.as("viewer").get("/console/keys?workspace=acme&namespace=api&identifier=user_1")
	for _, words := range []string{
		"100 in 60 s", "<b>90</b> counted of 100", "eu 60", "us 30",
		// a quarter into the cell
		"covers 75\u202f% of the previous one", `class="slide" x="75"`, "counts in full, 45 s left",
		`x="0" y="4" width="360"`, `x="360" y="4" width="180"`, // of 600 for the limit
		"As 4 nodes reported",
	} {
		if !strings.Contains(a.body, words) {
			t.Errorf("it does not say %q:\n%s", words, a.body)
		}
	}
}

// Leases and reservations are shown with their holder and age. A holder's label is text, not markup.
func TestWhatIsHeld(t *testing.T) {
	w := start(t, false)
	at := time.UnixMilli(1_700_000_000_000)
	w.held = limits.HeldReport{Reports: limits.Reports{Now: at, Nodes: 2, Oldest: 4 * time.Second}, Held: []limits.Held{
		{Kind: "lease", Workspace: "acme", Namespace: "exports", Identifier: "org_7", Holder: "<b>job", Region: "eu", Node: "eu-1", Amount: 1,
			SinceMs: at.Add(-time.Hour).UnixMilli()},
		{Kind: "reservation", Workspace: "acme", Namespace: "tokens", Identifier: "org_8", Region: "us", Node: "us-1", Amount: 4000,
			SinceMs: at.Add(-time.Minute).UnixMilli(), EndsMs: at.Add(30 * time.Second).UnixMilli()},
	}}
	w.top = limits.TopKeys{Reports: limits.Reports{Now: at, Nodes: 1}, Keys: []limits.TopKey{
		{Workspace: "acme", Namespace: "exports", Identifier: "org_7", Limit: 3, Count: 9}}}
	a := w.as("viewer").get("/console/keys")
	for _, words := range []string{"org_7", "&lt;b&gt;job", "eu-1", "when released", "<td>reservation</td>", "4\u202f000", "30 s",
		"As 2 nodes reported", "3 leases at once"} {
		if !strings.Contains(a.body, words) {
			t.Errorf("it does not say %q:\n%s", words, a.body)
		}
	}
}

// A namespace's keys are listed with a link to each, and a link to the next page that names identifiers of any bytes.
func TestTheKeysOfANamespace(t *testing.T) {
	w := start(t, false)
	b := w.as("viewer")
	if a := b.get("/console/keys?workspace=acme&namespace=api"); !strings.Contains(a.body, "Regions have stored no counts of such keys lately") {
		t.Errorf("without keys:\n%s", a.body)
	}
	at := time.UnixMilli(1_700_000_000_000)
	start := window.Start(window.Sequence(at.UnixMilli(), 60_000), 60_000)
	minute := func(count, limit int64) []limits.KeyWindow {
		return []limits.KeyWindow{{DurationMs: 60_000, Effective: count, Limit: &limit, Current: limits.KeyCell{StartMs: start, Count: count}}}
	}
	w.keys = limits.KeyPage{Now: at, Next: "z\xff", ReportsErr: errors.New("<b>down"), Keys: []limits.KeyListed{
		{Identifier: "<i>", KeyReport: limits.KeyReport{Windows: minute(1234, 9999)}},
		{Identifier: "full", KeyReport: limits.KeyReport{Windows: minute(5, 5), Override: &limits.Override{Pattern: "fu*"}}},
		{Identifier: "blocked", KeyReport: limits.KeyReport{Windows: minute(5, 0), Truncated: true}},
		{Identifier: "z\xff", KeyReport: limits.KeyReport{Windows: []limits.KeyWindow{{Mode: window.Estimate, DurationMs: 1000, Effective: 7}}}},
	}}
	a := b.get("/console/keys?workspace=acme&namespace=api&prefix=p")
	for _, words := range []string{
		"&lt;i&gt;", "identifier=%3ci%3e", "1\u202f234", "<td>now</td>", "<code>fu*</code>", "<td>in 40 s</td>", "never", "or more",
		"unknown", `href="/console/keys?after=z%FF&amp;namespace=api&amp;prefix=p&amp;workspace=acme"`, "&lt;b&gt;down", `value="p"`,
	} {
		if !strings.Contains(a.body, words) {
			t.Errorf("it does not say %q:\n%s", words, a.body)
		}
	}
	w.set(func() {
		for i := range w.keys.Keys {
			w.keys.Keys[i].Shadow = true
		}
	})
	if a := b.get("/console/keys?workspace=acme&namespace=api"); strings.Count(a.body, `<td>now <span class="faint">(shadow)</span></td>`) != 4 {
		t.Errorf("in shadow mode:\n%s", a.body)
	}
	b.get("/console/keys?after=z%FF&namespace=api&prefix=z&workspace=acme")
	if want := (limits.KeysQuery{Workspace: "acme", Namespace: "api", Prefix: "z", After: "z\xff", Limit: 50}); w.listed != want {
		t.Errorf("asked for %+v, want %+v", w.listed, want)
	}
}
