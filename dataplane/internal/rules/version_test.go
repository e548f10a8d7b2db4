package rules

import (
	"context"
	"testing"
	"time"

	"github.com/weirhq/weir/dataplane/store"
)

// versioned is a source of settings with a version.
type versioned struct{ rows store.SettingsRows }

func (v *versioned) Settings(context.Context, string) (store.SettingsRows, error) { return v.rows, nil }

// Rows of the version in force are not compiled again: the snapshot is the same. Other nodes, another version, a reset
// that has expired and rows at fault are in force after a single read.
func TestSettingsOfTheSameVersionAreNotCompiled(t *testing.T) {
	now := time.UnixMilli(1_700_000_000_000)
	const ends = 1_700_000_060_000
	source := &versioned{store.SettingsRows{
		Version: "1", NodesLive: 2,
		Overrides: []store.OverrideRow{{Workspace: "w", Namespace: "n", Pattern: "*", Limit: 3}},
		Resets: []store.ResetRow{
			{Workspace: "w", Namespace: "n", Identifier: "u", Generation: 1, AtMs: 1, ExpiresAtMs: ends}},
	}}
	r := newRules(source, "a", func() time.Time { return now })
	read := func() *Settings {
		t.Helper()
		if err := r.Load(t.Context()); err != nil {
			t.Fatal(err)
		}
		return r.InForce()
	}
	limit := func(s *Settings) int64 { return s.spaces[spaceName{"w", "n"}].wildcards[0].Limit }
	first := read()
	if read() != first || limit(first) != 3 || len(first.resets.known) != 1 {
		t.Errorf("nothing has changed, and the snapshot is another one: %+v", first)
	}
	source.rows.NodesLive = 5
	if s := read(); s.live != 5 || first.live != 2 || limit(s) != 3 || read() != s {
		t.Errorf("with other nodes: %+v", s)
	}
	source.rows.Version = "2"
	source.rows.Overrides = []store.OverrideRow{{Workspace: "w", Namespace: "n", Pattern: "*", Limit: 4}}
	if s := read(); limit(s) != 4 || limit(first) != 3 || read() != s {
		t.Errorf("with another limit: %+v", s)
	}
	now = time.UnixMilli(ends)
	if s := read(); len(s.resets.known) != 0 || read() != s {
		t.Errorf("the reset has expired: %+v", s.resets)
	}
	source.rows.Version, source.rows.Overrides[0].Limit = "3", -1
	for range 2 { // the error is there each time
		if err := r.Load(t.Context()); err == nil {
			t.Error("a limit of -1 is no error")
		}
	}
	source.rows.Version, source.rows.Overrides[0].Limit = "", 6
	if a, b := read(), read(); a == b || limit(b) != 6 {
		t.Errorf("without a version: %+v", b)
	}
}
