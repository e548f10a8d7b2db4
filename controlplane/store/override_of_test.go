package store

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/weirhq/weir/controlplane/limits"
	"github.com/weirhq/weir/shared/servers"
	"github.com/weirhq/weir/shared/window"
)

// The database finds the override that nodes apply: a pattern is compared as bytes, and nothing but
// '*' stands for more than itself.
func TestOverrideOfAgreesWithNodes(t *testing.T) { servers.EachSQL(t, testOverrideOfAgreesWithNodes) }

func testOverrideOfAgreesWithNodes(t *testing.T) {
	s, db := migrated(t)
	r := rand.New(rand.NewPCG(1, 2))
	text := func(letters string, n int) string {
		b := make([]byte, n)
		for i := range b {
			b[i] = letters[r.IntN(len(letters))]
		}
		return string(b)
	}
	var patterns []string
	for len(patterns) < 120 {
		if p := text("aA%_|\\*", 1+r.IntN(5)); !slices.Contains(patterns, p) {
			patterns = append(patterns, p)
			if _, err := db.ExecContext(t.Context(), "INSERT INTO ratelimit_overrides (workspace_id, namespace, pattern, `limit`, updated_at) VALUES ('acme', 'api', ?, 1, 1)", []byte(p)); err != nil {
				t.Fatal(err)
			}
		}
	}
	slices.SortFunc(patterns, window.ComparePatterns)
	for range 200 {
		identifier, want := text("aA%_|\\é", 1+r.IntN(5)), ""
		for _, p := range patterns {
			if window.MatchesParts(window.PatternParts(p), identifier) {
				want = p
				break
			}
		}
		found, err := s.OverrideOf(t.Context(), "acme", "api", identifier)
		got := ""
		if found != nil {
			got = found.Pattern
		}
		if err != nil || got != want {
			t.Errorf("%q: %q, %v, want %q", identifier, got, err, want)
		}
	}
	if found, err := s.OverrideOf(t.Context(), "acme", "other", "a"); found != nil || err != nil {
		t.Errorf("another namespace's: %+v, %v", found, err)
	}
}

// All of 20,000 overrides are looked through.
func TestOverrideOfMany(t *testing.T) { servers.EachSQL(t, testOverrideOfMany) }

func testOverrideOfMany(t *testing.T) {
	s, db := migrated(t)
	for from := 0; from < 20_000; from += 1000 {
		statement := "INSERT INTO ratelimit_overrides (workspace_id, namespace, pattern, `limit`, updated_at) VALUES "
		for i := range 1000 {
			statement += fmt.Sprintf("('acme', 'api', 'user_%05d_*', %d, 1),", from+i, from+i)
		}
		if _, err := db.ExecContext(t.Context(), statement[:len(statement)-1]); err != nil {
			t.Fatal(err)
		}
	}
	found, err := s.OverrideOf(t.Context(), "acme", "api", "user_19999_x")
	if want := (limits.Override{Workspace: "acme", Namespace: "api", Pattern: "user_19999_*", Limit: 19999}); err != nil || found == nil || found.Pattern != want.Pattern || found.Limit != want.Limit {
		t.Errorf("%+v, %v", found, err)
	}
}
