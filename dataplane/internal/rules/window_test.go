package rules

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// The window of a namespace holds for its overrides too. A window that this build cannot use is an error that names the
// field and its values, and so is a precise window in the estimate mode, which names both fields: the namespace then
// counts in cells, and all else that is set for it holds.
func TestWindowSettings(t *testing.T) {
	for _, tc := range []struct {
		window  store.Window
		mode    string
		precise bool
		problem string
	}{
		{"", "", false, ""},
		{"", "estimate", false, ""},
		{store.WindowCells, "exact", false, ""},
		{store.WindowCells, "estimate", false, ""},
		{store.WindowPrecise, "", true, ""},
		{store.WindowPrecise, "exact", true, ""},
		{store.WindowPrecise, "estimate", false, `namespace "w"/"n": ` +
			`invalid: window is "precise" and mode is "estimate" (a precise window takes mode exact)`},
		{"sliding", "exact", false, `namespace "w"/"n": invalid: window is "sliding" (cells or precise)`},
		{"Precise", "estimate", false, `window is "Precise" (cells or precise)`},
	} {
		rows := store.SettingsRows{
			Namespaces: []store.NamespaceRow{{Workspace: "w", Namespace: "n", Mode: tc.mode, NodeShare: "wait", Window: tc.window}},
			Overrides: []store.OverrideRow{{Workspace: "w", Namespace: "n", Pattern: "user", Limit: 3},
				{Workspace: "w", Namespace: "n", Pattern: "a*", Limit: 3}},
		}
		s, err := compile(rows, nil, defaultSettings(), 0)
		if (err == nil) != (tc.problem == "") || err != nil && (!errors.Is(err, window.ErrInvalid) || !strings.Contains(err.Error(), tc.problem)) {
			t.Errorf("window %q, mode %q: %v, want %q", tc.window, tc.mode, err, tc.problem)
		}
		for _, identifier := range []string{"user", "a1", "other"} {
			limit, duration := int64(10), time.Minute
			by := s.Resolve("w", "n", identifier, &limit, &duration)
			if by.Precise != tc.precise || !by.Waits || (by.Estimate != nil) != (tc.mode == "estimate") {
				t.Errorf("window %q, mode %q: %q is judged by %+v", tc.window, tc.mode, identifier, by)
			}
		}
	}
	limit, duration := int64(10), time.Minute
	if by := defaultSettings().Resolve("w", "n", "user", &limit, &duration); by.Precise {
		t.Error("a namespace without settings has a precise window")
	}
}

// A namespace whose mode cannot be read goes on with the estimate mode that was in force, and so counts in cells.
func TestAPreciseWindowBesideAModeThatCannotBeRead(t *testing.T) {
	row := store.NamespaceRow{Workspace: "w", Namespace: "n", Mode: "estimate"}
	last, err := compile(store.SettingsRows{Namespaces: []store.NamespaceRow{row}}, nil, defaultSettings(), 0)
	if err != nil {
		t.Fatal(err)
	}
	row.Mode, row.Window = "guess", store.WindowPrecise
	s, err := compile(store.SettingsRows{Namespaces: []store.NamespaceRow{row}}, nil, last, 0)
	if sp := s.spaces[spaceName{"w", "n"}]; err == nil || sp.Precise || sp.Estimate == nil {
		t.Errorf("%+v, %v", sp, err)
	}
	if s, err = compile(store.SettingsRows{Namespaces: []store.NamespaceRow{row}}, nil, defaultSettings(), 0); err == nil {
		t.Error("the mode is accepted")
	}
	if sp := s.spaces[spaceName{"w", "n"}]; !sp.Precise || sp.Estimate != nil {
		t.Errorf("%+v", sp)
	}
}
