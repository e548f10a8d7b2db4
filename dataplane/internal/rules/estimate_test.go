package rules

import (
	"errors"
	"strings"
	"testing"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

func TestEstimateSettings(t *testing.T) {
	k, err := parseEstimate("")
	if err != nil || k.Leaky || k.Offered || k.Below || k.SyncBaseMs != 15_000 || k.Floor != 10 || k.PendingMax != 10_000 || k.OutageOf(60_000) != 60_000 {
		t.Errorf("defaults: %+v, %v", k, err)
	}
	k, err = parseEstimate(`{"preset":"posthog","sync_base_ms":1000,"floor":0,"pending_max":2,"batch_max":10,"max_read_outage_ms":5000,"overrides":"a=1"}`)
	if err != nil || !k.Leaky || !k.Offered || !k.Below || k.SyncBaseMs != 1000 || k.Floor != 0 || k.PendingMax != 2 || k.BatchMax != 10 ||
		k.OutageOf(60_000) != 5000 || k.overrides["a"] != 1 {
		t.Errorf("posthog: %+v, %v", k, err)
	}
	k, err = parseEstimate(`{"preset":"posthog","drain":"cells","count":"accepted","test":">"}`)
	if err != nil || k.Leaky || k.Offered || k.Below {
		t.Errorf("posthog but for everything: %+v, %v", k, err)
	}
	for document, says := range map[string][]string{
		`{"drian":"cells"}`:              {"drian"},
		`{"drain":"drip"}`:               {"drain", "drip", "leaky"},
		`{"preset":"other"}`:             {"preset", "posthog"},
		`{"sync_base_ms":999}`:           {"sync_base_ms", "999", "1000 to 600000"},
		`{"batch_max":0,"floor":-1}`:     {"batch_max", "1 to 20000", "floor", "-1"},
		`{"pending_max":"many"}`:         {"pending_max"},
		`{} {}`:                          {"after the document"},
		`{`:                              {"unexpected"},
		`{"max_read_outage_ms":1e12}`:    {"max_read_outage_ms"},
		strings.Repeat(" ", 4097) + "{}": {"4096"},
	} {
		k, err := parseEstimate(document)
		if k != nil || !errors.Is(err, window.ErrInvalid) {
			t.Errorf("%s is %+v, %v", document, k, err)
			continue
		}
		for _, word := range says {
			if !strings.Contains(err.Error(), word) {
				t.Errorf("%s: %v does not say %s", document, err, word)
			}
		}
	}
}

// A bad document keeps the settings in force, or the defaults, and is reported.
func TestBadEstimateSettingsKeepWhatWasInForce(t *testing.T) {
	row := store.NamespaceRow{Workspace: "w", Namespace: "n", Mode: "estimate", Estimate: `{"floor":3}`}
	name := spaceName{"w", "n"}
	good, err := compile(store.SettingsRows{Namespaces: []store.NamespaceRow{row}}, nil, defaultSettings(), 0)
	if err != nil || good.spaces[name].Estimate.Floor != 3 {
		t.Fatalf("%+v, %v", good.spaces[name], err)
	}
	for what, row := range map[string]store.NamespaceRow{
		"settings": {Workspace: "w", Namespace: "n", Mode: "estimate", Estimate: `{"floor":-3}`},
		"mode":     {Workspace: "w", Namespace: "n", Mode: "guess"},
	} {
		next, err := compile(store.SettingsRows{Namespaces: []store.NamespaceRow{row}}, nil, good, 0)
		if err == nil || !strings.Contains(err.Error(), `"w"/"n"`) || next.spaces[name].Estimate != good.spaces[name].Estimate {
			t.Errorf("bad %s: %+v, %v", what, next.spaces[name], err)
		}
		first, err := compile(store.SettingsRows{Namespaces: []store.NamespaceRow{row}}, nil, defaultSettings(), 0)
		if err == nil || (first.spaces[name].Estimate != nil) != (what == "settings") {
			t.Errorf("bad %s at the start: %+v, %v", what, first.spaces[name], err)
		}
	}
	again, err := compile(store.SettingsRows{Namespaces: []store.NamespaceRow{row}}, nil, good, 0)
	if err != nil || again.spaces[name].Estimate.Waiting != good.spaces[name].Estimate.Waiting {
		t.Error("keys that wait are counted anew with each reading of the settings")
	}
}
