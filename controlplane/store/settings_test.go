package store

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/shared/gen/sql/dataplanedb"
)

var operator = controlplane.By{Actor: "ann", Reason: "support case"}

// "Limit 0 blocks; set after delete works", with before and after in the audit log, and
// nodes read what was set.
func TestOverrides(t *testing.T) {
	s, db := migrated(t)
	settings := controlplane.NewSettings(s)
	o := controlplane.Override{Workspace: "acme", Namespace: "api", Pattern: "user_*", Limit: 10, DurationMs: 60_000, Candidate: 4, Shadow: true}
	set := func(limit int64) {
		t.Helper()
		o.Limit = limit
		if err := settings.SetOverride(t.Context(), o, operator); err != nil {
			t.Fatal(err)
		}
	}
	seen := func() string {
		t.Helper()
		rows, err := dataplanedb.New(db).Overrides(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		all := ""
		for _, r := range rows {
			all += fmt.Sprintf("%s/%s/%s %d %d %d %d;", r.WorkspaceID, r.Namespace, r.Pattern, r.Limit, r.DurationMs, r.Candidate, r.Shadow)
		}
		return all
	}
	set(10)
	set(0)
	if got, want := seen(), "acme/api/user_* 0 60000 4 1;"; got != want {
		t.Errorf("nodes see %q, want %q", got, want)
	}
	if err := settings.DeleteOverride(t.Context(), "acme", "api", "user_*", operator); err != nil || seen() != "" {
		t.Errorf("%v; nodes see %q", err, seen())
	}
	if err := settings.DeleteOverride(t.Context(), "acme", "api", "user_*", operator); !errors.Is(err, controlplane.ErrNotFound) {
		t.Errorf("deleted twice: %v", err)
	}
	set(7)
	if got, want := seen(), "acme/api/user_* 7 60000 4 1;"; got != want {
		t.Errorf("nodes see %q, want %q", got, want)
	}
	wantAudit(t, s, [][3]string{
		{"override.set", "", `"limit":10`}, {"override.set", `"limit":10`, `"limit":0`},
		{"override.delete", `"limit":0`, ""}, {"override.set", "", `"limit":7`},
	})
	page, _, err := settings.Overrides(t.Context(), "acme", "api", "")
	if err != nil || len(page) != 1 || page[0].Candidate != 4 || !page[0].Shadow {
		t.Errorf("%+v, %v", page, err)
	}
	o.Limit = -1
	if err := settings.SetOverride(t.Context(), o, operator); !errors.Is(err, controlplane.ErrInvalid) {
		t.Errorf("%v", err)
	}
	if got := count(t, db, "SELECT COUNT(*) FROM ratelimit_audit"); got != 4 {
		t.Errorf("%d audit rows: what was refused is no change", got)
	}
}

// "Namespaces that estimate with a leaky drain have no candidates."
func TestACandidateThatCannotBeJudgedIsRefused(t *testing.T) {
	s, _ := migrated(t)
	settings := controlplane.NewSettings(s)
	for _, step := range []struct {
		mode, knobs string
		candidate   int64
		refused     bool
	}{
		{"estimate", `{"drain":"leaky"}`, 5, true},
		{"estimate", `{"drain":"leaky"}`, 0, false},
		{"estimate", `{"drain":"cells"}`, 5, false},
		{"exact", `{"drain":"leaky"}`, 5, false},
	} {
		if _, err := settings.SetNamespace(t.Context(), "acme", "api", controlplane.NamespaceChange{Mode: &step.mode, Estimate: &step.knobs}, operator); err != nil {
			t.Fatal(err)
		}
		o := controlplane.Override{Workspace: "acme", Namespace: "api", Pattern: "*", Limit: 10, Candidate: step.candidate}
		if err := settings.SetOverride(t.Context(), o, operator); errors.Is(err, controlplane.ErrInvalid) != step.refused || !step.refused && err != nil {
			t.Errorf("%+v: %v", step, err)
		}
	}
}

// wantAudit compares the log with action, what before has and what after has.
func wantAudit(t *testing.T, s *Store, want [][3]string) {
	t.Helper()
	rows, err := s.db.QueryContext(t.Context(), `SELECT action, before_state, after_state FROM ratelimit_audit WHERE actor = 'ann' AND reason = 'support case' ORDER BY id`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for i := 0; rows.Next(); i++ {
		var action, before, after string
		if err := rows.Scan(&action, &before, &after); err != nil || i >= len(want) {
			t.Fatalf("row %d: %s, %v", i, action, err)
		}
		w := want[i]
		if action != w[0] || !has(before, w[1]) || !has(after, w[2]) {
			t.Errorf("row %d: %s from %q to %q, want %q", i, action, before, after, w)
		}
		if i == len(want)-1 {
			want = nil
		}
	}
	if rows.Err() != nil || want != nil {
		t.Errorf("%v, missing %q", rows.Err(), want)
	}
}

// has: an empty part is an empty whole.
func has(whole, part string) bool {
	if part == "" {
		return whole == ""
	}
	return strings.Contains(whole, part)
}

// Pages follow one another, byte by byte, to the end.
func TestOverridePages(t *testing.T) {
	s, _ := migrated(t)
	settings := controlplane.NewSettings(s)
	for i := range 5 {
		o := controlplane.Override{Workspace: "acme", Namespace: "api", Pattern: fmt.Sprint("user_", i), Limit: 1}
		if err := settings.SetOverride(t.Context(), o, operator); err != nil {
			t.Fatal(err)
		}
	}
	after, got := "", ""
	for {
		page, err := s.Overrides(t.Context(), "acme", "api", after, 2)
		if err != nil {
			t.Fatal(err)
		}
		if len(page) == 0 {
			break
		}
		for _, o := range page {
			got += o.Pattern + " "
			after = o.Pattern
		}
	}
	if want := "user_0 user_1 user_2 user_3 user_4 "; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	all, more, err := settings.Overrides(t.Context(), "acme", "api", "user_2")
	if err != nil || more || len(all) != 2 || all[0].UpdatedAt.IsZero() {
		t.Errorf("%+v, %v, %v", all, more, err)
	}
}

// What is not given stays as it is.
func TestNamespaces(t *testing.T) {
	s, db := migrated(t)
	settings := controlplane.NewSettings(s)
	yes, estimate, closed, odd, knobs := true, "estimate", "closed", "odd", `{"floor":3}`
	for _, change := range []controlplane.NamespaceChange{{Shadow: &yes}, {Mode: &estimate, Estimate: &knobs}, {Outage: &closed}} {
		if _, err := settings.SetNamespace(t.Context(), "acme", "api", change, operator); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := settings.SetNamespace(t.Context(), "acme", "api", controlplane.NamespaceChange{Headroom: &odd}, operator); !errors.Is(err, controlplane.ErrInvalid) {
		t.Errorf("%v", err)
	}
	want := controlplane.Namespace{Workspace: "acme", Namespace: "api", Shadow: true, Mode: "estimate", Outage: "closed", Headroom: "kick", Estimate: knobs}
	list, err := settings.Namespaces(t.Context(), "acme")
	if err != nil || len(list) != 1 || list[0].UpdatedAt.IsZero() {
		t.Fatalf("%+v, %v", list, err)
	}
	list[0].UpdatedAt = want.UpdatedAt
	if list[0] != want {
		t.Errorf("%+v, want %+v", list[0], want)
	}
	rows, err := dataplanedb.New(db).Namespaces(t.Context())
	if err != nil || len(rows) != 1 || rows[0].Mode != "estimate" || rows[0].Shadow != 1 || rows[0].Estimate != knobs {
		t.Errorf("nodes see %+v, %v", rows, err)
	}
	wantAudit(t, s, [][3]string{
		{"namespace.set", "", `"shadow":true`}, {"namespace.set", `"mode":"exact"`, `"mode":"estimate"`}, {"namespace.set", `"outage":"local"`, `"outage":"closed"`},
	})
}
