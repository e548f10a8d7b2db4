package console

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/controlplane/limits"
	"github.com/weirhq/weir/shared/window"
)

const keyPage = "/console/keys?workspace=acme&namespace=api&identifier=user_1"

// The page draws a key's two cells with the sliding weight: each region's count in both cells, the limit, and whether
// the next request passes. A reset leaves no counts.
func TestAKeysCells(t *testing.T) {
	w := start(t, false)
	now := time.UnixMilli(1_700_000_000_000 / 60_000 * 60_000).Add(15 * time.Second)
	k := window.Key{Duration: time.Minute}
	row := func(cell int64, region string, count int64, ago time.Duration) limits.KeyRow {
		return limits.KeyRow{StoredDuration: window.StoredDuration(&k), Sequence: window.Sequence(now.UnixMilli(), 60_000) - cell,
			KeyPart: limits.KeyPart{Region: region, Count: count, UpdatedAt: now.Add(-ago)}}
	}
	w.set(func() {
		w.now, w.rows = now, []limits.KeyRow{row(1, "us", 40, time.Minute), row(0, "eu", 60, 3*time.Second), row(0, "us", 30, 2*time.Second)}
	})
	b := w.as("operator")
	says := func(path string, all ...string) {
		t.Helper()
		a := b.get(path)
		for _, words := range all {
			if !strings.Contains(a.body, words) {
				t.Errorf("%s does not say %q:\n%s", path, words, a.body)
			}
		}
	}
	says(keyPage, "Regions have stored <b>120</b>. No limit is known here", "previous: 75\u202f% counts", "current: 45 s left", `data-live="key"`)
	says(keyPage+"&limit=100",
		"Regions have stored <b>120</b>, of 100. It is unknown whether a cost of 1 passes: no node has reported the key lately.", `class="slide" x="75"`,
		"<title>eu, current cell: 60</title>", "<title>us, current cell: 30</title>", "<title>us, previous cell: 40</title>",
		`class="part0" x="302" y="54" width="296" height="66"`, // eu, 110 high for the limit
		`class="part1" x="302" y="21" width="296" height="33"`, // us, on it
		"3 s ago", "2 s ago")
	says(keyPage+"&limit=200&cost=5", "of 200. It is unknown whether a cost of 5 passes")
	says(keyPage+"&limit=200&cost=201", "A cost of 201 never passes: it is more than the limit.")

	w.set(func() { w.settings = []limits.Override{{Pattern: "user_*", Limit: 0, Shadow: true}} })
	says(keyPage, "The override is in shadow mode: every request passes", "A cost of 1 is over the limit, and passes because of shadow mode.")
	if a := b.get(keyPage); strings.Contains(a.body, "blocked") || strings.Contains(a.body, "Nothing passes") {
		t.Errorf("blocked in shadow mode:\n%s", a.body)
	}
	w.set(func() { w.settings, w.shadow = nil, true })
	says(keyPage, "The namespace is in shadow mode: every request passes", "A cost of 1 passes, because the key is in shadow mode. No limit is known here")
	says(keyPage+"&limit=200", "A cost of 1 passes, because the key is in shadow mode.")
	w.set(func() { w.settings, w.shadow = []limits.Override{{Pattern: "user_*", Limit: 0}}, false })
	says(keyPage, "The override <code>user_*</code> applies", "Nothing passes: it is blocked.")
	w.set(func() {
		w.settings = []limits.Override{{Pattern: "203.0.113.0/24"}, {Pattern: "203.0.0.0/16"}, {Pattern: "*"}}
	})
	says(strings.Replace(keyPage, "user_1", "203.0.113.7", 1), "The override <code>203.0.113.0/24</code> applies")
	w.set(func() {
		w.settings = nil
		w.top = limits.TopKeys{Reports: limits.Reports{Now: now, Nodes: 1}, Keys: []limits.TopKey{{Workspace: "acme", Namespace: "api", Identifier: "user_1", DurationMs: 60_000, Limit: 300, Count: 133, ReportedAt: now}}}
	})
	says(keyPage, "Regions have stored <b>120</b>, nodes last reported <b>133</b>, of 300, the limit that nodes report. According to the last reports of nodes, a cost of 1 passes.")
	says(keyPage+"&cost=168", "According to the last reports of nodes, a cost of 168 is denied.")

	w.set(func() {
		w.resets = []limits.Reset{{Identifier: "user_1", Generation: 1, SetAt: now.Add(-time.Second)}}
	})
	says(keyPage, "Regions have stored <b>0</b>", "Nothing is counted in them.")
	for field, want := range map[string]string{"limit=x": "limit is &#34;x&#34;, want a whole number", "limit=010": "limit is &#34;010&#34;, want a whole number", "cost=%2B5": "cost is &#34;&#43;5&#34;, want a whole number", "cost=-1": "cost is -1 (1 to"} {
		if a := b.get(keyPage + "&" + field); a.status != http.StatusBadRequest || !strings.Contains(a.body, want) {
			t.Errorf("%s: %d, without %q", field, a.status, want)
		}
	}
}
