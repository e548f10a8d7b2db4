package store

import (
	"testing"
	"time"

	"github.com/weirhq/weir/controlplane/limits"
	"github.com/weirhq/weir/shared/servers"
	"github.com/weirhq/weir/shared/window"
)

// A key's rows are those of all regions that have not expired, of no other key; once it is
// reset, what was counted before is not told.
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
	insert("user_1 ", "us", day, current, 4000) // is another
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
