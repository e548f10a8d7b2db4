package store

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/controlplane/limits"
	"github.com/weirhq/weir/shared/servers"
	"github.com/weirhq/weir/shared/window"
)

// A key's rows are its own rows of all regions that have not expired. After a reset the earlier counts are left out.
func TestGetKey(t *testing.T) { servers.EachSQL(t, testGetKey) }

func testGetKey(t *testing.T) {
	s, db := migrated(t)
	now, err := s.Now(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	day := window.Key{Duration: 24 * time.Hour}
	current := window.Sequence(now.UnixMilli(), day.DurationMs())
	insert := func(identifier, region string, k window.Key, sequence int64, count int) {
		t.Helper()
		_, err := db.ExecContext(t.Context(), `INSERT INTO ratelimit_window_counts
			(workspace_id, namespace, identifier, duration_ms, sequence, region, count, expires_at, updated_at)
			VALUES ('acme', 'api', ?, ?, ?, ?, ?, ?, 7)`,
			identifier, window.StoredDuration(&k), sequence, region, count, window.ExpiresAt(sequence, k.DurationMs()))
		if err != nil {
			t.Fatal(err)
		}
	}
	insert("user_1", "eu", day, current, 60)
	insert("user_1", "us", day, current, 30)
	insert("user_1", "us", day, current-1, 40)
	insert("user_1", "us", day, current-2, 400) // has expired
	insert("user_1 ", "us", day, current, 4000) // a different key
	query := limits.KeyQuery{Workspace: "acme", Namespace: "api", Identifier: "user_1", Cost: 1}
	look := func() limits.KeyWindow {
		t.Helper()
		r, err := limits.GetKey(t.Context(), s, query)
		if err != nil || len(r.Windows) != 1 || r.Truncated {
			t.Fatalf("%+v, %v", r, err)
		}
		return r.Windows[0]
	}
	w := look()
	if w.Current.Count != 90 || w.Previous.Count != 40 || len(w.Current.Parts) != 2 || w.Limit != nil {
		t.Errorf("%+v", w)
	}
	if p := w.Current.Parts[0]; p.Region != "eu" || p.Count != 60 || p.UpdatedAt.UnixMilli() != 7 {
		t.Errorf("%+v", p)
	}

	settings := limits.NewSettings(s)
	if err := settings.SetOverride(t.Context(), limits.Override{Workspace: "acme", Namespace: "api", Pattern: "user_*", Limit: 200}, operator); err != nil {
		t.Fatal(err)
	}
	if w = look(); w.Limit == nil || *w.Limit != 200 {
		t.Errorf("with an override: %+v", w)
	}
	if _, err := settings.ResetKey(t.Context(), "acme", "api", "user_1", 0, operator); err != nil {
		t.Fatal(err)
	}
	if w = look(); w.Current.Count != 0 || w.Previous.Count != 0 || w.Current.Generation == 0 {
		t.Errorf("after a reset: %+v", w)
	}
}

// A page of a namespace's keys has live rows alone, by the bytes of identifiers, and the settings that apply to them.
func TestListKeys(t *testing.T) { servers.EachSQL(t, testListKeys) }

func testListKeys(t *testing.T) {
	s, db := migrated(t)
	now, err := s.Now(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	day := window.Key{Duration: 24 * time.Hour}
	current := window.Sequence(now.UnixMilli(), day.DurationMs())
	insert := func(namespace, identifier, region string, sequence int64, count uint64) {
		t.Helper()
		_, err := db.ExecContext(t.Context(), `INSERT INTO ratelimit_window_counts
			(workspace_id, namespace, identifier, duration_ms, sequence, region, count, expires_at, updated_at)
			VALUES ('acme', ?, ?, ?, ?, ?, ?, ?, 7)`,
			namespace, identifier, window.StoredDuration(&day), sequence, region, count, window.ExpiresAt(sequence, day.DurationMs()))
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, identifier := range []string{"a", "a ", "a\x00", "A", "a\xff", "a\xff\xff", "b", "\xff\xff", "reset"} {
		insert("api", identifier, "eu", current, 60)
		insert("api", identifier, "us", current, 30)
	}
	insert("api", "old", "us", current-2, 400)
	insert("other", "a1", "us", current, 400)
	insert("api", "wrong", "us", current, 1<<60) // no relay can have written it
	settings := limits.NewSettings(s)
	if err := settings.SetOverride(t.Context(), limits.Override{Workspace: "acme", Namespace: "api", Pattern: "b*", Limit: 200}, operator); err != nil {
		t.Fatal(err)
	}
	if _, err := settings.ResetKey(t.Context(), "acme", "api", "reset", 0, operator); err != nil {
		t.Fatal(err)
	}
	for prefix, want := range map[string][]string{
		"":         {"A", "a", "a\x00", "a ", "a\xff", "a\xff\xff", "b", "\xff\xff"},
		"a":        {"a", "a\x00", "a ", "a\xff", "a\xff\xff"},
		"a\xff":    {"a\xff", "a\xff\xff"},
		"\xff":     {"\xff\xff"},
		"\xff\xff": {"\xff\xff"},
		"c":        nil,
	} {
		var got []string
		q := limits.KeysQuery{Workspace: "acme", Namespace: "api", Prefix: prefix, Limit: 2}
		for first := true; first || q.After != ""; first = false {
			page, err := limits.ListKeys(t.Context(), s, q, time.Minute)
			if err != nil || page.ReportsErr != nil || len(page.Keys) > 2 {
				t.Fatalf("%q: %+v, %v", prefix, page, err)
			}
			for _, k := range page.Keys {
				got = append(got, k.Identifier)
				limited := strings.HasPrefix(k.Identifier, "b")
				if w := k.Windows[0]; w.Current.Count != 90 || (w.Limit != nil) != limited || limited && *w.Limit != 200 {
					t.Errorf("%q: %+v", k.Identifier, w)
				}
			}
			q.After = page.Next
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", prefix, got, want)
		}
	}
}
