package console

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/limits"
)

// People find workspaces and namespaces without typing a name: the page lists the names in settings, overrides and
// reported keys, each with a link, and input fields suggest them.
func TestNamesAreListed(t *testing.T) {
	w := start(t, false)
	w.namespaces = []string{"quiet"} // of acme
	for i := range 2500 {
		w.settings = append(w.settings, limits.Override{Workspace: "acme", Namespace: "api", Pattern: fmt.Sprintf("user_%04d", i), Limit: 1})
	}
	w.settings = append(w.settings, limits.Override{Workspace: "zeta", Namespace: "web", Pattern: "*", Limit: 1})
	w.top = limits.TopKeys{Reports: limits.Reports{Now: time.Now(), Nodes: 2}, Keys: []limits.TopKey{
		{Workspace: "acme", Namespace: "api", Identifier: "user_1", DurationMs: 60_000, Count: 9},
		{Workspace: "busy & co", Namespace: "jobs", Identifier: "a/b", DurationMs: 60_000, Count: 5},
	}}
	b := w.as("viewer")
	offered := []string{`<option value="acme"><option value="busy &amp; co"><option value="zeta"></datalist>`, `list="workspaces"`, `list="namespaces"`}
	for path, says := range map[string][]string{
		"/console/limits": append([]string{
			`<a href="/console/limits?workspace=acme">acme</a></th><td><a href="/console/limits/namespace?namespace=api&amp;workspace=acme">api</a></td><td>overrides, busy or denied keys</td>`,
			`namespace?namespace=quiet&amp;workspace=acme">quiet</a></td><td>settings</td>`,
			`namespace?namespace=jobs&amp;workspace=busy&#43;%26&#43;co">jobs</a></td><td>busy or denied keys</td>`,
			`namespace?namespace=web&amp;workspace=zeta">web</a></td><td>overrides</td>`,
			`<option value="api"><option value="jobs"><option value="quiet"><option value="web"></datalist>`,
		}, offered...),
		"/console/limits?workspace=busy+%26+co": append([]string{"Namespaces without settings", `<option value="jobs"></datalist>`}, offered...),
		"/console/keys": append([]string{`<a href="/console/keys?namespace=web&amp;workspace=zeta">web</a>`, `list="identifiers"`,
			`<datalist id="identifiers"><option value="a/b"><option value="user_1"></datalist>`, `href="/console/keys?identifier=a%2Fb&amp;namespace=jobs&amp;workspace=busy&#43;%26&#43;co"`}, offered...),
		"/console/keys?workspace=acme&namespace=api": offered,
	} {
		a := b.get(path)
		for _, words := range says {
			if a.status != http.StatusOK || !strings.Contains(a.body, words) {
				t.Errorf("%s does not say %s: %d\n%s", path, words, a.status, a.body)
			}
		}
		if strings.Contains(a.body, "There are more") || len(a.body) > 400_000 {
			t.Errorf("%s: %d bytes\n%s", path, len(a.body), a.body)
		}
	}
	if w.overridePages != 2*4 { // each namespace of many is stepped over
		t.Errorf("%d pages of overrides were read for 4 pages", w.overridePages)
	}
	const missing = "Not all workspaces and namespaces can be listed: unavailable: MySQL does not answer"
	unavailable := fmt.Errorf("%w: MySQL does not answer", controlplane.ErrUnavailable)
	w.set(func() { w.noTop = unavailable })
	if a := b.get("/console/limits"); !strings.Contains(a.body, missing) || !strings.Contains(a.body, ">quiet</a>") {
		t.Errorf("without what nodes have seen:\n%s", a.body)
	}
	w.set(func() { w.down = unavailable })
	for _, path := range []string{"/console/limits", "/console/keys"} {
		if a := b.get(path); a.status != http.StatusOK || strings.Contains(a.body, "No operator has set") || !strings.Contains(a.body, missing) {
			t.Errorf("%s: %d\n%s", path, a.status, a.body)
		}
	}
}

// A page reads and lists a bounded number of names and shows that there are more. A refresh of live figures reads no
// names.
func TestNamesAreBounded(t *testing.T) {
	w := start(t, false)
	for n := range 6 {
		for i := range 1100 {
			w.settings = append(w.settings, limits.Override{Workspace: "acme", Namespace: fmt.Sprintf("ns-%d", n), Pattern: fmt.Sprintf("user_%04d", i), Limit: 1})
		}
	}
	b := w.as("viewer")
	a := b.get("/console/keys")
	if w.overridePages != overridePagesMax || !strings.Contains(a.body, ">ns-3</a>") || strings.Contains(a.body, ">ns-5</a>") || !strings.Contains(a.body, "There are more than this page lists") {
		t.Errorf("%d pages were read\n%s", w.overridePages, a.body)
	}
	r := b.request(http.MethodGet, "/console/keys?workspace=acme&namespace=ns-1&identifier=user_0001", nil)
	r.Header.Set("Sec-Fetch-Dest", "empty")
	if a := b.do(r); a.status != http.StatusOK || w.overridePages != overridePagesMax {
		t.Errorf("%d, %d pages were read", a.status, w.overridePages)
	}
	w.set(func() {
		w.settings = nil
		for n := range 2 * namesShown {
			w.settings = append(w.settings, limits.Override{Workspace: "acme", Namespace: fmt.Sprintf("ns-%04d", n), Pattern: "*", Limit: 1})
		}
	})
	for _, path := range []string{"/console/keys", "/console/limits", "/console/limits?workspace=acme"} {
		a := b.get(path)
		if strings.Count(a.body, `">ns-0`) != namesShown || strings.Count(a.body, "<option") != 1+namesShown || !strings.Contains(a.body, "There are more than this page lists") {
			t.Errorf("%s: %d links, %d options", path, strings.Count(a.body, `">ns-0`), strings.Count(a.body, "<option"))
		}
	}
}
