package store

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/weirhq/weir/controlplane/limits"
	"github.com/weirhq/weir/shared/servers"
	"github.com/weirhq/weir/shared/window"
)

// The database finds the same override as nodes: patterns are compared as bytes, and '*' is the only wildcard.
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
			exec(t, db, "INSERT INTO ratelimit_overrides (workspace_id, namespace, pattern, `limit`, updated_at) VALUES ('acme', 'api', ?, 1, 1)", []byte(p))
		}
	}
	slices.SortFunc(patterns, window.ComparePatterns)
	wanted := make(map[string]string)
	for range 200 {
		identifier, want := text("aA%_|\\é", 1+r.IntN(5)), ""
		for _, p := range patterns {
			if window.Matches(p, identifier) {
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
		wanted[identifier] = want
	}
	wantOverridesOf(t, s, wanted)
	if found, err := s.OverrideOf(t.Context(), "acme", "other", "a"); found != nil || err != nil {
		t.Errorf("another namespace's: %+v, %v", found, err)
	}
}

// wantOverridesOf checks the patterns of the overrides that apply to identifiers, looked up all together, some at a
// time and each alone; "" is none.
func wantOverridesOf(t *testing.T, s *Store, want map[string]string) {
	t.Helper()
	identifiers := slices.Sorted(maps.Keys(want))
	for _, n := range []int{len(identifiers), 7, 1} {
		for some := range slices.Chunk(identifiers, n) {
			found, err := s.OverridesOf(t.Context(), "acme", "api", some)
			if err != nil {
				t.Fatal(err)
			}
			for _, identifier := range some {
				got := ""
				if o := found[identifier]; o != nil {
					got = o.Pattern
				}
				if got != want[identifier] {
					t.Errorf("%q, looked up with %d: %q, want %q", identifier, n, got, want[identifier])
				}
			}
		}
	}
}

// Of the networks that an address or network is in, the database finds the longest. Exactly the identifier comes
// before it, and patterns with '*' after it.
func TestOverrideOfNetworks(t *testing.T) { servers.EachSQL(t, testOverrideOfNetworks) }

func testOverrideOfNetworks(t *testing.T) {
	s, db := migrated(t)
	set := func(workspace, pattern string, limit int) {
		t.Helper()
		exec(t, db, "INSERT INTO ratelimit_overrides (workspace_id, namespace, pattern, `limit`, updated_at) VALUES (?, 'api', ?, ?, 1)", []byte(workspace), []byte(pattern), limit)
	}
	for i, pattern := range []string{"0.0.0.0/0", "203.0.0.0/16", "203.0.113.0/24", "203.0.113.7/32", "203.0.113.8", "203.0.113.*", "*:*", "2001:db8::/32", "2001:db8:1:2::/64", "10.0.0.1/8"} {
		set("acme", pattern, 100+i)
	}
	set("other", "203.0.113.9/32", 1)
	wanted := map[string]string{
		"203.0.113.1": "203.0.113.0/24", "203.0.113.9": "203.0.113.0/24", "203.0.113.7": "203.0.113.7/32", "203.0.113.8": "203.0.113.8", "::ffff:203.0.1.1": "203.0.0.0/16", "64:ff9b::c633:6401": "0.0.0.0/0",
		"203.0.113.x": "203.0.113.*", "2001:db8:1:2::/64": "2001:db8:1:2::/64", "2001:DB8:1:2::7": "2001:db8:1:2::/64", "2001:db8:1::/48": "2001:db8::/32", "2001:db9::1": "*:*", "10.0.0.1/8": "10.0.0.1/8", "user_1": "",
	}
	wantOverridesOf(t, s, wanted)
	for identifier, want := range wanted {
		found, err := s.OverrideOf(t.Context(), "acme", "api", identifier)
		if found == nil {
			found = &limits.Override{}
		}
		if err != nil || found.Pattern != want || (found.Limit >= 100) != (want != "") {
			t.Errorf("%q: %+v, %v, want %q", identifier, found, err, want)
		}
	}
}

// The right override is found among 20,000.
func TestOverrideOfMany(t *testing.T) { servers.EachSQL(t, testOverrideOfMany) }

func testOverrideOfMany(t *testing.T) {
	s, db := migrated(t)
	for from := 0; from < 20_000; from += 1000 {
		statement := "INSERT INTO ratelimit_overrides (workspace_id, namespace, pattern, `limit`, updated_at) VALUES "
		for i := range 1000 {
			statement += fmt.Sprintf("('acme', 'api', 'user_%05d_*', %d, 1),", from+i, from+i)
		}
		exec(t, db, statement[:len(statement)-1])
	}
	found, err := s.OverrideOf(t.Context(), "acme", "api", "user_19999_x")
	if want := (limits.Override{Workspace: "acme", Namespace: "api", Pattern: "user_19999_*", Limit: 19999}); err != nil || found == nil || found.Pattern != want.Pattern || found.Limit != want.Limit {
		t.Errorf("%+v, %v", found, err)
	}
	var identifiers []string // more than a statement has
	for i := range identifiersMax + 2 {
		identifiers = append(identifiers, fmt.Sprintf("user_%05d_x", i*19))
	}
	all, err := s.OverridesOf(t.Context(), "acme", "api", identifiers)
	if last := all[identifiers[identifiersMax+1]]; err != nil || len(all) != len(identifiers) || last.Limit != 19*(identifiersMax+1) {
		t.Errorf("%d of %d, %v", len(all), len(identifiers), err)
	}
}
