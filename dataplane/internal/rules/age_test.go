package rules

import (
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/dataplane/store"
)

// A relay that has stopped leaves an old copy. If a node falls back to this copy because its first shard is gone, it
// keeps the settings that were read later: neither a withdrawn tuning nor a lifted override comes back. Rows that a
// relay has read since then come into force, even with an older version, because the store may have been restored.
func TestAnOldCopyOfSettingsUndoesNothing(t *testing.T) {
	now := time.UnixMilli(1_700_000_000_000)
	source := &versioned{}
	r := newRules(source, "a", func() time.Time { return now })
	read := func(version int64, age time.Duration) error {
		source.rows = store.SettingsRows{Version: string(rune('0' + version)), TuningVersion: version,
			TuningDocument: []byte(`{}`), Age: age}
		return r.Load(t.Context())
	}
	for _, c := range []struct {
		name    string
		pass    time.Duration
		version int64
		age     time.Duration
		want    int64
		problem string
	}{
		{"the first copy, however old", 0, 1, time.Hour, 1, ""},
		{"a newer one", 0, 3, 2 * time.Second, 3, ""},
		{"an old one", 30 * time.Second, 2, time.Hour, 3, "read from the store 1h0m0s ago"},
		{"the built-in tuning of an old one", 0, 0, time.Hour, 3, "read from the store 1h0m0s ago"},
		{"the one in force, as old", 0, 3, 32 * time.Second, 3, ""},
		{"another one of the same moment", 0, 2, 32 * time.Second, 2, ""},
		{"the one in force, renewed", 0, 2, 0, 2, ""},
		{"one of before that", 5 * time.Second, 3, 10 * time.Second, 2, "read from the store 10s ago"},
		{"an older version, read since", 0, 1, 4 * time.Second, 1, ""},
		{"after a step of the clock back", -time.Hour, 2, 0, 2, ""},
	} {
		now = now.Add(c.pass)
		err := read(c.version, c.age)
		if got := r.InForce().Version; got != c.want {
			t.Errorf("%s: version %d is in force, want %d", c.name, got, c.want)
		}
		if (err == nil) != (c.problem == "") || err != nil && !strings.Contains(err.Error(), c.problem) {
			t.Errorf("%s: error %v, want %q", c.name, err, c.problem)
		}
	}
}
