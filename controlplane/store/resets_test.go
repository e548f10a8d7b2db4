package store

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/limits"
	"github.com/weirhq/weir/shared/gen/sql/dataplanedb"
	"github.com/weirhq/weir/shared/servers"
	"github.com/weirhq/weir/shared/window"
)

// A reset is a generation of the key, replicated like an override. Each reset has a new generation and a later time of
// the database's clock, and its audit entry has before and after.
func TestResets(t *testing.T) { servers.EachSQL(t, testResets) }

func testResets(t *testing.T) {
	s, db := migrated(t)
	settings := limits.NewSettings(s)
	before, err := s.Now(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var last limits.Reset
	var audit []string
	for n := 1; n <= 3; n++ {
		r, err := settings.ResetKey(t.Context(), "acme", "api", "user_1", time.Hour, operator)
		if err != nil {
			t.Fatal(err)
		}
		if r.Generation == last.Generation || r.SetAt.Before(before) || !r.SetAt.After(last.SetAt) || r.ExpiresAt != r.SetAt.Add(2*time.Hour) {
			t.Errorf("reset %d: %+v after %+v", n, r, last)
		}
		last = r
		audit = append(audit, fmt.Sprintf(`"generation":%d,`, r.Generation))
	}
	rows, err := dataplanedb.New(db).Resets(t.Context(), 10)
	if err != nil || len(rows) != 1 || int64(rows[0].Generation) != last.Generation || int64(rows[0].SetAt) != last.SetAt.UnixMilli() || int64(rows[0].ExpiresAt) != last.ExpiresAt.UnixMilli() {
		t.Errorf("nodes see %+v, %v", rows, err)
	}
	if list, err := settings.Resets(t.Context(), "acme", "api"); err != nil || len(list) != 1 || list[0] != last {
		t.Errorf("listed: %+v, %v; want %+v", list, err, last)
	}
	wantAudit(t, s, [][3]string{
		{"key.reset", "", audit[0]}, {"key.reset", audit[0], audit[1]}, {"key.reset", audit[1], audit[2]},
	})

	// A shorter reset does not shorten the time for which a reset is kept.
	short, err := settings.ResetKey(t.Context(), "acme", "api", "user_1", time.Second, operator)
	if err != nil || short.ExpiresAt != last.ExpiresAt {
		t.Errorf("after a shorter window: %+v, %v", short, err)
	}
	if r, err := settings.ResetKey(t.Context(), "acme", "api", "any", 0, operator); err != nil || r.ExpiresAt.Sub(r.SetAt) != 2*window.DurationMax {
		t.Errorf("of any window: %+v, %v", r, err)
	}
	exec(t, db, "UPDATE ratelimit_resets SET generation = 32767")
	wrapped, err := settings.ResetKey(t.Context(), "acme", "api", "any", 0, operator)
	if err != nil || wrapped.Generation > 64 {
		t.Errorf("after the last generation: %+v, %v", wrapped, err)
	}
	if list, err := settings.Resets(t.Context(), "acme", "api"); err != nil || !slices.Contains(list, wrapped) {
		t.Errorf("listed after the last generation: %+v, %v; want %+v", list, err, wrapped)
	}
	for _, identifier := range []string{"", "user_*"} {
		if _, err := settings.ResetKey(t.Context(), "acme", "api", identifier, 0, operator); !errors.Is(err, controlplane.ErrInvalid) {
			t.Errorf("of %q: %v", identifier, err)
		}
	}
	if _, err := settings.ResetKey(t.Context(), "acme", "api", "any", time.Millisecond, operator); !errors.Is(err, controlplane.ErrInvalid) {
		t.Errorf("a window of 1 ms: %v", err)
	}

	// The cleanup deletes resets that have expired.
	for at, want := range map[time.Time]int64{short.ExpiresAt: 0, short.ExpiresAt.Add(time.Millisecond): 1} {
		if n, err := s.DeleteExpiredResets(t.Context(), at, 10); want == 0 && n != 0 || err != nil {
			t.Errorf("%d went before %v, %v", n, at, err)
		}
	}
	if got := count(t, db, "SELECT COUNT(*) FROM ratelimit_resets"); got != 1 {
		t.Errorf("%d are left, want the one that has not expired", got)
	}
}
