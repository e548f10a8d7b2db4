package limits

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/internal/controltest"
	"github.com/weirhq/weir/shared/window"
)

func TestOverrideValidate(t *testing.T) {
	good := Override{Workspace: "acme", Namespace: "api", Pattern: "user_*", Limit: 0, DurationMs: 0}
	for _, o := range []Override{good, {"a", "b", "c", window.LimitMax, 1000, window.LimitMax, true, controltest.Day}, {"a", "b", "10.0.0.0/8", 1, 0, 0, false, controltest.Day}, {"a", "b", "*", 1, window.DurationMax.Milliseconds(), 1, false, controltest.Day}} {
		if err := o.Validate(); err != nil {
			t.Errorf("%+v: %v", o, err)
		}
	}
	for words, change := range map[string]func(*Override){
		"workspace is empty (1 to 191 bytes)":                            func(o *Override) { o.Workspace = "" },
		"namespace is 256 bytes long (1 to 255)":                         func(o *Override) { o.Namespace = strings.Repeat("n", 256) },
		"pattern is empty":                                               func(o *Override) { o.Pattern = "" },
		`pattern is "10.0.0.1/8" (this network is written "10.0.0.0/8")`: func(o *Override) { o.Pattern = "10.0.0.1/8" },
		"pattern has 9 '*' (0 to 8)":                                     func(o *Override) { o.Pattern = strings.Repeat("a*", 9) },
		"limit is -1 (0 to 9007199254740991; 0 blocks":                   func(o *Override) { o.Limit = -1 },
		"limit is 9007199254740992":                                      func(o *Override) { o.Limit = window.LimitMax + 1 },
		"duration_ms is 999 (0, or 1000 to":                              func(o *Override) { o.DurationMs = 999 },
		"candidate is -1 (0 to 9007199254740991; 0 for":                  func(o *Override) { o.Candidate = -1 },
		"candidate is 9007199254740992":                                  func(o *Override) { o.Candidate = window.LimitMax + 1 },
		"duration_ms is -1":                                              func(o *Override) { o.DurationMs = -1 },
		"duration_ms is 31622400001":                                     func(o *Override) { o.DurationMs = window.DurationMax.Milliseconds() + 1 },
	} {
		bad := good
		change(&bad)
		controltest.WantInvalid(t, bad.Validate(), words)
	}
}

func TestNamespaceValidate(t *testing.T) {
	good := DefaultNamespace("acme", "api")
	for _, estimate := range []string{"", "{}", `{"preset":"posthog","floor":0,"sync_base_ms":1000,"pending_max":1,"batch_max":20000,"max_read_outage_ms":86400000,"overrides":"a=1, b=0,"}`, `{"test":">=","drain":"leaky","count":"offered"}`} {
		n := good
		n.Estimate = estimate
		if err := n.Validate(); err != nil {
			t.Errorf("%q: %v", estimate, err)
		}
	}
	precise := good
	precise.Window = "precise"
	if err := precise.Validate(); err != nil {
		t.Error(err)
	}
	for words, change := range map[string]func(*Namespace){
		"namespace is empty":                      func(n *Namespace) { n.Namespace = " " },
		`mode is "" (exact, estimate)`:            func(n *Namespace) { n.Mode = "" },
		`outage is "maybe" (local, open, closed)`: func(n *Namespace) { n.Outage = "maybe" },
		`node_share is "x" (wait, flush)`:         func(n *Namespace) { n.NodeShare = "x" },
		`window is "x" (cells, precise)`:          func(n *Namespace) { n.Window = "x" },
		`window is "precise" and mode is "estimate" (a precise window takes mode exact)`: func(n *Namespace) { n.Window, n.Mode = "precise", "estimate" },
		"the document is 4097 bytes long (at most 4096)":                                 func(n *Namespace) { n.Estimate = strings.Repeat(" ", 4097) },
		`unknown field "flor"`:                             func(n *Namespace) { n.Estimate = `{"flor":1}` },
		"text after the document's end":                    func(n *Namespace) { n.Estimate = `{} {}` },
		`estimate: preset is "x" (default, posthog)`:       func(n *Namespace) { n.Estimate = `{"preset":"x"}` },
		`estimate: test is "<" (>, >=)`:                    func(n *Namespace) { n.Estimate = `{"test":"<"}` },
		"estimate: sync_base_ms is 999 (1000 to 600000)":   func(n *Namespace) { n.Estimate = `{"sync_base_ms":999}` },
		"estimate: batch_max is 20001 (1 to 20000)":        func(n *Namespace) { n.Estimate = `{"batch_max":20001}` },
		`estimate: overrides has "a" (identifier=limit`:    func(n *Namespace) { n.Estimate = `{"overrides":"a"}` },
		`estimate: overrides has "b=-1" (identifier=limit`: func(n *Namespace) { n.Estimate = `{"overrides":"a=1,b=-1"}` },
	} {
		bad := good
		change(&bad)
		controltest.WantInvalid(t, bad.Validate(), words)
	}
}

// Every accepted document is JSON with known fields, whatever its bytes.
func FuzzEstimate(f *testing.F) {
	for _, seed := range []string{"", "{}", `{"floor":1}`, `{"overrides":"a=1"}`, `{"preset":null}`, "[", "null"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, document string) {
		if validateEstimate(document) != nil || document == "" {
			return
		}
		var fields *map[string]any
		if err := json.Unmarshal([]byte(document), &fields); err != nil {
			t.Errorf("%q: %v", document, err)
		}
	})
}

// A change without a field is rejected before the store is called. It would write a row and an audit entry without
// content.
func TestAChangeChangesSomething(t *testing.T) {
	settings := NewSettings(nil)
	_, err := settings.SetNamespace(t.Context(), "acme", "api", NamespaceChange{IfUpdatedMs: new(int64)}, controlplane.By{Actor: "ann", Reason: "x"})
	controltest.WantInvalid(t, err, "nothing to change: set shadow, mode, outage, node_share, window or estimate")
	_, err = settings.ChangeOverride(t.Context(), "acme", "api", "u", OverrideChange{IfUpdatedMs: new(int64)}, controlplane.By{Actor: "ann", Reason: "x"})
	controltest.WantInvalid(t, err, "nothing to change: set limit, duration_ms, candidate or shadow")
}
