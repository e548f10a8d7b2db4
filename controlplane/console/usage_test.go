package console

import (
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/limits"
	controlv1 "github.com/weirhq/weir/shared/gen/proto/weir/control/v1"
	"github.com/weirhq/weir/shared/heartbeat"
)

const apiPage = "/console/limits/namespace?workspace=acme&namespace=api"

// hourAgo is the hour n hours before the hour that is under way.
func hourAgo(n int) time.Time {
	return time.Now().UTC().Truncate(time.Hour).Add(-time.Duration(n) * time.Hour)
}

// spent returns hours of usage in a region, by the number of hours ago.
func spent(region string, costs map[int]heartbeat.UsageCost) (hours []limits.UsageHour) {
	for n, cost := range costs {
		hours = append(hours, limits.UsageHour{At: hourAgo(n), Region: region, UsageCost: cost})
	}
	return hours
}

func reported(region string, ago ...int) (hours []limits.UsageHour) {
	for _, n := range ago {
		hours = append(hours, limits.UsageHour{At: hourAgo(n), Region: region})
	}
	return hours
}

// row returns the row of a page's table of steps for an hour, without markup.
func row(t *testing.T, body string, at time.Time) string {
	t.Helper()
	_, rest, found := strings.Cut(body, at.Format("2006-01-02 15:04")+"</time>")
	if !found {
		t.Fatalf("no row of %v\n%s", at, body)
	}
	rest, _, _ = strings.Cut(rest, "</tr>")
	return strings.TrimSpace(regexp.MustCompile(`(<[^>]*>)+`).ReplaceAllString(rest, " "))
}

// An hour without a report is drawn as a gap, and the table says that it is unknown. An hour with reports and without
// cost is 0. Denied cost is called an estimate, and times are in UTC.
func TestUsageOfANamespaceHasGaps(t *testing.T) {
	w := start(t, false)
	w.reports = append(reported("eu", 23, 22, 21, 20, 19, 3, 2, 1, 0), reported("us", 23, 22, 21, 19, 18, 17, 3, 2, 1, 0)...)
	w.usage = map[heartbeat.UsageOf][]limits.UsageHour{{Workspace: "acme", Namespace: "api"}: spent("eu", map[int]heartbeat.UsageCost{
		22: {Accepted: 1500, Denied: 500}, 20: {Accepted: 7000}, 1: {Accepted: 1000}})}
	a := w.as("viewer").get(apiPage)
	if a.status != http.StatusOK {
		t.Fatal(a.status, a.body)
	}
	for _, says := range []string{`<h2 id="usages">Usage</h2>`, "<dd>9\u202f500</dd>", "<dd>~500</dd>", "Denied cost, estimate", "UTC", "17 hours are unknown",
		"no reports of eu, us", `aria-label="9` + "\u202f" + `500 accepted, about 500 denied"`, "2\u202f000 in an hour at the top"} {
		if !strings.Contains(a.body, says) {
			t.Errorf("it does not say %q", says)
		}
	}
	for n, want := range map[int]string{22: "1\u202f500 ~500 complete", 21: "0 ~0 complete", 20: "at least 7\u202f000 unknown none of us",
		10: "unknown unknown none of eu, us", 24: "unknown unknown none of eu, us"} {
		if got := row(t, a.body, hourAgo(n)); got != want {
			t.Errorf("%d hours ago: %q, want %q", n, got, want)
		}
	}
	// Steps begin 24 hours ago. The step of 22 hours ago has three quarters of the highest bar, and the step of 20 hours
	// ago is a gap.
	for _, draws := range []string{`class="accepted" d="M20 25h9V100h-9z`, `class="denied" d="M20 0h9V25h-9z"`, `class="unknown" d="M0 0h10V100h-10zM40 0h10V100h-10z`} {
		if !strings.Contains(a.body, draws) {
			t.Errorf("it does not draw %s\n%s", draws, a.body)
		}
	}
}

// The ranges are links, so that they work without scripts. The API is asked for the chosen range.
func TestUsageRanges(t *testing.T) {
	w := start(t, false)
	b := w.as("viewer")
	for _, page := range []struct{ path, here string }{{apiPage, "/console/limits/namespace?namespace=api&amp;workspace=acme&amp;"}, {"/console/usage", "/console/usage?"}} {
		for _, r := range usageRanges {
			sep := "?"
			if strings.Contains(page.path, "?") {
				sep = "&"
			}
			a := b.get(page.path + sep + "usage=" + r.Name)
			if link := fmt.Sprintf(`<a href="%susage=%s#usage" aria-current="true">%s</a>`, page.here, r.Name, r.Label); a.status != http.StatusOK || !strings.Contains(a.body, link) {
				t.Errorf("%s of %s: %d, no %s\n%s", r.Name, page.path, a.status, link, a.body)
			}
			w.mu.Lock()
			if span := time.Since(w.asking.From) - r.Span; span < 0 || span > time.Minute || w.asking.Step != time.Hour && r.Name != "90d" || w.asking.Step != 24*time.Hour && r.Name == "90d" {
				t.Errorf("%s: %+v", r.Name, w.asking)
			}
			w.mu.Unlock()
		}
		if a := b.get(page.path); !strings.Contains(a.body, `usage=24h#usage" aria-current="true"`) {
			t.Errorf("%s does not show 24 hours", page.path)
		}
	}
}

// A range that does not exist is refused with the ranges that do, and the rest of a namespace's page is there.
func TestAnUnknownUsageRange(t *testing.T) {
	b := start(t, false).as("viewer")
	for _, bad := range []string{"91d", "24H", "0", "-1h", strings.Repeat("9", 4000)} {
		for _, path := range []string{apiPage + "&usage=", "/console/usage?usage="} {
			a := b.get(path + bad)
			if a.status != http.StatusBadRequest || !strings.Contains(a.body, "(live, 24h, 7d or 90d)") || !strings.Contains(a.body, "usage=7d#usage") {
				t.Errorf("%s%s: %d\n%s", path, bad, a.status, a.body)
			}
			if path != "/console/usage?usage=" && !strings.Contains(a.body, "Overrides") {
				t.Error("the page lacks its overrides")
			}
		}
	}
}

// If usage cannot be read, the section shows why, and the rest of the page is there.
func TestUsageThatCannotBeRead(t *testing.T) {
	w := start(t, false)
	w.settings = []limits.Override{{Workspace: "acme", Namespace: "api", Pattern: "user_7", Limit: 5}}
	b := w.as("operator")
	for _, tc := range []struct {
		err  error
		says string
		code int // of the page that shows nothing else
	}{
		{fmt.Errorf("%w: MySQL does not answer", controlplane.ErrUnavailable), "MySQL does not answer", http.StatusServiceUnavailable},
		{errors.New("read the hours with usage: Table 'weir.ratelimit_usage_reports' doesn't exist"), "The usage cannot be shown: ", http.StatusInternalServerError},
	} {
		w.set(func() { w.noUsage = tc.err })
		a := b.get(apiPage)
		if a.status != http.StatusOK || !strings.Contains(a.body, tc.says) || !strings.Contains(a.body, "user_7") || !strings.Contains(a.body, "Change the settings") {
			t.Errorf("%v: %d\n%s", tc.err, a.status, a.body)
		}
		if a := b.get("/console/usage"); a.status != tc.code || !strings.Contains(a.body, tc.says) || !strings.Contains(a.body, "</html>") {
			t.Errorf("%v: %d\n%s", tc.err, a.status, a.body)
		}
	}
	w.set(func() { w.noUsage = nil })
	if a := b.get(apiPage); a.status != http.StatusOK || !strings.Contains(a.body, "No region has reported usage in this time, so it is unknown") || strings.Contains(a.body, "Accepted cost") {
		t.Errorf("nodes that report no usage: %d\n%s", a.status, a.body)
	}
	w.set(func() { w.reports = reported("eu", 200, 100) })
	a := b.get(apiPage)
	if !strings.Contains(a.body, "No region has reported usage in this time, so it is unknown") || strings.Contains(a.body, "Accepted cost") ||
		row(t, a.body, hourAgo(1)) != "unknown unknown none of eu" {
		t.Errorf("a region that has stopped: %d\n%s", a.status, a.body)
	}
}

// The page of usage lists namespaces by cost, each with a link to its page. A token that is limited to workspaces sees
// only theirs.
func TestTopUsage(t *testing.T) {
	w := start(t, false)
	w.reports = reported("eu", 2, 1)
	w.usage = map[heartbeat.UsageOf][]limits.UsageHour{
		{Workspace: "acme", Namespace: "a&b"}:  spent("eu", map[int]heartbeat.UsageCost{1: {Accepted: 5}}),
		{Workspace: "other", Namespace: "api"}: spent("eu", map[int]heartbeat.UsageCost{1: {Accepted: 10, Denied: 700}}),
		{}:                                     spent("eu", map[int]heartbeat.UsageCost{2: {Accepted: 50}}),
	}
	all := w.as("viewer").get("/console/usage").body
	first, others, last := strings.Index(all, `namespace=api&amp;workspace=other#usage">api</a>`), strings.Index(all, "all others"), strings.Index(all, `namespace=a%26b&amp;workspace=acme#usage">a&amp;b</a>`)
	if first < 0 || others < first || last < others || !strings.Contains(all, "~700") {
		t.Errorf("%d, %d, %d\n%s", first, others, last, all)
	}
	limited := w.as("viewer@acme")
	a := limited.get("/console/usage")
	if a.status != http.StatusOK || !strings.Contains(a.body, "a&amp;b") || strings.Contains(a.body, "other#usage") || strings.Contains(a.body, "all others") || !strings.Contains(a.body, "of your workspaces") {
		t.Errorf("%d\n%s", a.status, a.body)
	}
	if a := limited.get("/console/limits/namespace?workspace=acme&namespace=a%26b"); a.status != http.StatusOK || !strings.Contains(a.body, `<h2 id="usages">`) || strings.Contains(a.body, "/console/rollouts") || strings.Contains(a.body, "/console/audit") {
		t.Errorf("%d\n%s", a.status, a.body)
	}
	if a := limited.get("/console/limits/namespace?workspace=other&namespace=api"); a.status != http.StatusForbidden || strings.Contains(a.body, "700") {
		t.Errorf("%d\n%s", a.status, a.body)
	}
}

// A drawing has a bar or a gap for each step and never both, whatever the costs are, and nothing is outside of it.
func TestUsageDrawing(t *testing.T) {
	step := regexp.MustCompile(`M(\d+) \d+h(?:9V\d+h-9|10V100h-10)z`)
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 30).Draw(t, "steps")
		s := &controlv1.UsageSeries{AcceptedSteps: rapid.SliceOfN(rapid.Int64Min(0), n, n).Draw(t, "accepted"),
			DeniedSteps: rapid.SliceOfN(rapid.Int64Min(0), n, n).Draw(t, "denied")}
		var times []*controlv1.UsageTime
		for range n {
			times = append(times, &controlv1.UsageTime{Known: rapid.Bool().Draw(t, "known")})
		}
		drawn := drawUsage(s, times)
		seen := func(path string) map[string]bool {
			at := make(map[string]bool)
			for _, m := range step.FindAllStringSubmatch(path, -1) {
				at[m[1]] = true
			}
			if rest := step.ReplaceAllString(path, ""); rest != "" {
				t.Fatalf("%q is no bar", rest)
			}
			return at
		}
		accepted, denied, unknown := seen(drawn.Accepted), seen(drawn.Denied), seen(drawn.Unknown)
		for i, at := range times {
			x := fmt.Sprint(usageStepWide * i)
			if known := at.GetKnown(); unknown[x] == known || accepted[x] != (known && s.GetAcceptedSteps()[i] > 0) || denied[x] != (known && s.GetDeniedSteps()[i] > 0) {
				t.Fatalf("step %d, known %t: %+v", i, known, drawn)
			}
		}
	})
}
