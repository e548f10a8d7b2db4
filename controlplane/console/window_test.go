package console

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
)

// The page shows a namespace's window with its other settings, and the form changes it. A namespace without settings
// has a note that explains which limits need a precise window.
func TestTheWindowOfANamespace(t *testing.T) {
	w := start(t, false)
	b := w.as("operator")
	const set, unset = "/console/limits/namespace?workspace=acme&namespace=api", "/console/limits/namespace?workspace=acme&namespace=login"
	const note = "For sign-ins, password resets, SMS and paid quotas"
	for path, noted := range map[string]bool{set: false, unset: true} {
		a := b.get(path)
		if !strings.Contains(a.body, "window <b>cells</b>") || !strings.Contains(a.body, "<option selected>cells</option><option>precise</option>") ||
			!strings.Contains(a.body, "<option selected>wait</option><option>flush</option>") ||
			!strings.Contains(a.body, "up to 9 % less than the limit") || strings.Contains(a.body, note) != noted {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
	}
	if a := b.get("/console/limits?workspace=acme"); !strings.Contains(a.body, "window cells") {
		t.Errorf("%d %s", a.status, a.body)
	}
	form := url.Values{"workspace": {"acme"}, "namespace": {"login"}, "mode": {"exact"}, "outage": {"closed"}, "node_share": {"wait"},
		"window": {"precise"}, "reason": {"guessing"}}
	a := b.send(unset, "/console/limits/namespace", form)
	if a.status != http.StatusSeeOther || w.change.Window == nil || *w.change.Window != "precise" || *w.change.Outage != "closed" {
		t.Errorf("%d %+v %s", a.status, w.change, a.body)
	}
	form.Set("mode", "estimate")
	a = b.send(unset, "/console/limits/namespace", form)
	if a.status != http.StatusBadRequest || !strings.Contains(a.body, "window is &#34;precise&#34; and mode is &#34;estimate&#34;") ||
		!strings.Contains(a.body, "<option>cells</option><option selected>precise</option>") {
		t.Errorf("%d %s", a.status, a.body)
	}
}
