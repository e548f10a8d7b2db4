package store

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/audit"
	"github.com/weirhq/weir/controlplane/limits"
	"github.com/weirhq/weir/controlplane/tunings"
	"github.com/weirhq/weir/shared/gen/sql/dataplanedb"
	"github.com/weirhq/weir/shared/servers"
	"github.com/weirhq/weir/shared/window"
)

var operator = controlplane.By{Actor: "ann", Reason: "support case"}

// Limit 0 blocks; set after delete works, the audit log has before and after, and nodes read the new value.
func TestOverrides(t *testing.T) { servers.EachSQL(t, testOverrides) }

func testOverrides(t *testing.T) {
	s, db := migrated(t)
	settings := limits.NewSettings(s)
	o := limits.Override{Workspace: "acme", Namespace: "api", Pattern: "user_*", Limit: 10, DurationMs: 60_000, Candidate: 4, Shadow: true}
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
	if err := settings.DeleteOverride(t.Context(), "acme", "api", "user_*", nil, operator); err != nil || seen() != "" {
		t.Errorf("%v; nodes see %q", err, seen())
	}
	if err := settings.DeleteOverride(t.Context(), "acme", "api", "user_*", nil, operator); !errors.Is(err, controlplane.ErrNotFound) {
		t.Errorf("deleted twice: %v", err)
	}
	set(7)
	stored, err := settings.Override(t.Context(), "acme", "api", "user_*")
	if err != nil {
		t.Fatal(err)
	}
	for _, seenMs := range []int64{0, stored.UpdatedAt.UnixMilli() - 1} {
		err := settings.DeleteOverride(t.Context(), "acme", "api", "user_*", &seenMs, operator)
		if !errors.Is(err, controlplane.ErrConflict) {
			t.Errorf("delete another override than was seen at %d: %v", seenMs, err)
		}
	}
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

// Fields that a change leaves out stay as they are, and the audit log has all fields before and after.
func TestChangesOfAnOverride(t *testing.T) { servers.EachSQL(t, testChangesOfAnOverride) }

func testChangesOfAnOverride(t *testing.T) {
	s, db := migrated(t)
	settings := limits.NewSettings(s)
	number := func(n int64) *int64 { return &n }
	yes, no := true, false
	for _, step := range []struct {
		change limits.OverrideChange
		want   string // limit, duration, candidate, shadow
		err    error
	}{
		{limits.OverrideChange{Candidate: number(4)}, "", controlplane.ErrInvalid}, // a new override needs a limit
		{limits.OverrideChange{Limit: number(10), DurationMs: number(60_000), Candidate: number(4), Shadow: &yes}, "10 60000 4 true", nil},
		{limits.OverrideChange{Limit: number(12)}, "12 60000 4 true", nil},
		{limits.OverrideChange{}, "12 60000 4 true", controlplane.ErrInvalid},
		{limits.OverrideChange{Candidate: number(-1)}, "12 60000 4 true", controlplane.ErrInvalid},
		{limits.OverrideChange{Candidate: number(0)}, "12 60000 0 true", nil},
		{limits.OverrideChange{Shadow: &no}, "12 60000 0 false", nil},
		{limits.OverrideChange{DurationMs: number(0)}, "12 0 0 false", nil},
	} {
		after, err := settings.ChangeOverride(t.Context(), "acme", "api", "user_*", step.change, operator)
		if !errors.Is(err, step.err) || err == nil && words(after) != step.want {
			t.Errorf("%+v: %+v, %v", step.change, after, err)
		}
		is, err := settings.Override(t.Context(), "acme", "api", "user_*")
		if step.want == "" && !errors.Is(err, controlplane.ErrNotFound) || step.want != "" && (err != nil || words(is) != step.want) {
			t.Errorf("%+v left %+v, %v; want %s", step.change, is, err, step.want)
		}
	}
	wantAudit(t, s, [][3]string{
		{"override.set", "", `"limit":10,"duration_ms":60000,"candidate":4,"shadow":true`},
		{"override.set", `"limit":10,"duration_ms":60000,"candidate":4,"shadow":true`, `"limit":12,"duration_ms":60000,"candidate":4,"shadow":true`},
		{"override.set", `"candidate":4,"shadow":true`, `"candidate":0,"shadow":true`},
		{"override.set", `"candidate":0,"shadow":true`, `"candidate":0,"shadow":false`},
		{"override.set", `"duration_ms":60000`, `"duration_ms":0`},
	})
	if got := count(t, db, "SELECT COUNT(*) FROM ratelimit_audit"); got != 5 {
		t.Errorf("%d audit rows: what was refused is no change", got)
	}
}

func words(o limits.Override) string {
	return fmt.Sprintf("%d %d %d %t", o.Limit, o.DurationMs, o.Candidate, o.Shadow)
}

// A change that is based on a version of an override is refused if another change came in between, however fast the
// changes follow each other.
func TestChangesOfWhatWasSeen(t *testing.T) { servers.EachSQL(t, testChangesOfWhatWasSeen) }

func testChangesOfWhatWasSeen(t *testing.T) {
	s, _ := migrated(t)
	settings := limits.NewSettings(s)
	change := func(limit int64, seen *int64) error {
		_, err := settings.ChangeOverride(t.Context(), "acme", "api", "user_1", limits.OverrideChange{Limit: &limit, IfUpdatedMs: seen}, operator)
		return err
	}
	look := func() *int64 {
		t.Helper()
		o, err := settings.Override(t.Context(), "acme", "api", "user_1")
		if err != nil {
			t.Fatal(err)
		}
		ms := o.UpdatedAt.UnixMilli()
		return &ms
	}
	nothing := new(int64)
	refused := func(what string, err error, says string) {
		t.Helper()
		if !errors.Is(err, controlplane.ErrConflict) || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %q", what, err, says)
		}
	}
	if err := change(1, nothing); err != nil {
		t.Fatal(err)
	}
	refused("made twice", change(2, nothing), "override acme/api/user_1 exists already, since ")
	first := look()
	for limit := range int64(20) { // many of them within a millisecond
		seen := look()
		if err := change(limit, seen); err != nil {
			t.Fatal(err)
		}
		refused("changed twice", change(100, seen), "override acme/api/user_1 was changed at ")
	}
	if err := settings.DeleteOverride(t.Context(), "acme", "api", "user_1", nil, operator); err != nil {
		t.Fatal(err)
	}
	refused("deleted", change(3, first), "override acme/api/user_1 does not exist any more")

	yes := true
	if _, err := settings.SetNamespace(t.Context(), "acme", "api", limits.NamespaceChange{Shadow: &yes, IfUpdatedMs: nothing}, operator); err != nil {
		t.Fatal(err)
	}
	_, err := settings.SetNamespace(t.Context(), "acme", "api", limits.NamespaceChange{Shadow: &yes, IfUpdatedMs: nothing}, operator)
	refused("a namespace", err, "namespace acme/api exists already, since ")
}

// If many callers create the same override at once, exactly one succeeds. If many callers change different fields at
// once, no change is lost.
func TestChangesAtOnce(t *testing.T) { servers.EachSQL(t, testChangesAtOnce) }

func testChangesAtOnce(t *testing.T) {
	s, db := migrated(t)
	settings := limits.NewSettings(s)
	together := func(n int, do func(i int64) error) (done int) {
		errs := make(chan error, n)
		for i := range n {
			go func() { errs <- do(int64(i)) }()
		}
		for range n {
			switch err := <-errs; {
			case err == nil:
				done++
			case !errors.Is(err, controlplane.ErrConflict):
				t.Error(err)
			}
		}
		return done
	}
	if done := together(8, func(i int64) error {
		_, err := settings.ChangeOverride(t.Context(), "acme", "api", "one", limits.OverrideChange{Limit: &i, IfUpdatedMs: new(int64)}, operator)
		return err
	}); done != 1 {
		t.Errorf("%d of 8 have made it", done)
	}
	yes, limit := true, int64(9)
	// whichever is first creates the row
	changes := []limits.OverrideChange{{Limit: &limit, Candidate: &limit}, {Limit: &limit, Shadow: &yes}}
	if done := together(8, func(i int64) error {
		_, err := settings.ChangeOverride(t.Context(), "acme", "api", "both", changes[i%2], operator)
		return err
	}); done != 8 {
		t.Errorf("%d of 8 were taken", done)
	}
	if is, err := settings.Override(t.Context(), "acme", "api", "both"); err != nil || words(is) != "9 0 9 true" {
		t.Errorf("%+v, %v", is, err)
	}
	if got := count(t, db, "SELECT COUNT(*) FROM ratelimit_audit WHERE before_state = ''"); got != 2 {
		t.Errorf("%d say that they made an override; there are 2", got)
	}
}

// If two transactions both find no row, the later one then finds the row of the other, and neither returns an error of
// MySQL.
func TestTheLaterOfTwoLooksAgain(t *testing.T) { servers.EachSQL(t, testTheLaterOfTwoLooksAgain) }

func testTheLaterOfTwoLooksAgain(t *testing.T) {
	s, _ := migrated(t)
	var found sync.WaitGroup // both have read
	found.Add(2)
	errs, again := make(chan error, 2), make(chan int64, 2)
	for i := range int64(2) {
		go func() {
			errs <- s.ChangeOverride(t.Context(), "acme", "api", "user_1", func(before *limits.Override) (*limits.Override, audit.Entry, error) {
				if before == nil {
					found.Done()
					found.Wait()
				} else {
					again <- before.Limit
				}
				return &limits.Override{Limit: i + 1}, audit.Entry{By: operator, Action: "override.set", Subject: "s"}, nil
			})
		}()
	}
	for range 2 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	if len(again) != 1 {
		t.Fatalf("%d have looked again, want 1", len(again))
	}
	is, err := s.Override(t.Context(), "acme", "api", "user_1")
	if was := <-again; err != nil || is.Limit+was != 3 {
		t.Errorf("%d was found, and then there is %+v, %v", was, is, err)
	}
}

// "Namespaces that estimate with a leaky drain have no candidates."
func TestACandidateThatCannotBeJudgedIsRefused(t *testing.T) {
	servers.EachSQL(t, testACandidateThatCannotBeJudgedIsRefused)
}

func testACandidateThatCannotBeJudgedIsRefused(t *testing.T) {
	s, _ := migrated(t)
	settings := limits.NewSettings(s)
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
		if _, err := settings.SetNamespace(t.Context(), "acme", "api", limits.NamespaceChange{Mode: &step.mode, Estimate: &step.knobs}, operator); err != nil {
			t.Fatal(err)
		}
		o := limits.Override{Workspace: "acme", Namespace: "api", Pattern: "*", Limit: 10, Candidate: step.candidate}
		if err := settings.SetOverride(t.Context(), o, operator); errors.Is(err, controlplane.ErrInvalid) != step.refused || !step.refused && err != nil {
			t.Errorf("%+v: %v", step, err)
		}
	}
}

// At most 32 patterns with more than one '*' may begin alike. SetOverride and ChangeOverride refuse the next pattern
// and write nothing. Other patterns, and changes of existing patterns, are not refused.
func TestAPatternWithoutRoomIsRefused(t *testing.T) {
	servers.EachSQL(t, testAPatternWithoutRoomIsRefused)
}

func testAPatternWithoutRoomIsRefused(t *testing.T) {
	s, db := migrated(t)
	settings := limits.NewSettings(s)
	set := func(namespace, pattern string) error {
		return settings.SetOverride(t.Context(), limits.Override{Workspace: "acme", Namespace: namespace, Pattern: pattern, Limit: 1}, operator)
	}
	change := func(namespace, pattern string) error {
		limit := int64(2)
		_, err := settings.ChangeOverride(t.Context(), "acme", namespace, pattern, limits.OverrideChange{Limit: &limit}, operator)
		return err
	}
	taken := func(pattern string, do ...func(namespace, pattern string) error) {
		t.Helper()
		for _, f := range do {
			if err := f("api", pattern); err != nil {
				t.Errorf("%q: %v", pattern, err)
			}
		}
	}
	for i := range window.PatternsAlikeMax {
		taken(fmt.Sprintf("|%%_é%.*s*%d*", i%3, "ab", i), set)
	}
	rows := count(t, db, "SELECT COUNT(*) FROM ratelimit_audit")
	for _, pattern := range []string{"|%_é*a*", "|*a*", "|%_éabc*a*", "**"} {
		for name, f := range map[string]func(string, string) error{"set": set, "change": change} {
			err := f("api", pattern)
			if want := "pattern begins like 32 other patterns of acme/api with more than one '*' (at most 32 begin alike)"; !errors.Is(err, controlplane.ErrInvalid) || !strings.Contains(err.Error(), want) {
				t.Errorf("%s %q: %v, want %q", name, pattern, err, want)
			}
		}
	}
	if got := count(t, db, "SELECT COUNT(*) FROM ratelimit_audit"); got != rows {
		t.Errorf("%d audit rows of what was refused", got-rows)
	}
	if got := count(t, db, "SELECT COUNT(*) FROM ratelimit_overrides"); got != window.PatternsAlikeMax {
		t.Errorf("%d overrides", got)
	}
	taken("|%_éb*a*", set, change)
	taken("|%_é*", set, change)
	taken("|%_é*0*", set, change)
	if err := set("others", "|%_é*a*"); err != nil {
		t.Error(err)
	}
	if err := settings.DeleteOverride(t.Context(), "acme", "api", "|%_é*0*", nil, operator); err != nil {
		t.Fatal(err)
	}
	taken("**", change)
}

// If many callers create patterns that begin alike at once, no more than the maximum succeed.
func TestThePlacesOfPatternsAreTakenOnce(t *testing.T) {
	servers.EachSQL(t, testThePlacesOfPatternsAreTakenOnce)
}

func testThePlacesOfPatternsAreTakenOnce(t *testing.T) {
	s, db := migrated(t)
	settings := limits.NewSettings(s)
	set := func(i int) error {
		return settings.SetOverride(t.Context(), limits.Override{Workspace: "acme", Namespace: "api", Pattern: fmt.Sprintf("*%02d*", i), Limit: 1}, operator)
	}
	const free = 3
	for i := range window.PatternsAlikeMax - free {
		if err := set(2 * i); err != nil {
			t.Fatal(err)
		}
	}
	errs := make(chan error, 8)
	for i := range 8 {
		go func() { errs <- set(2*i + 1) }()
	}
	for range 8 {
		if err := <-errs; err != nil && !errors.Is(err, controlplane.ErrInvalid) {
			t.Error(err)
		}
	}
	if got := count(t, db, "SELECT COUNT(*) FROM ratelimit_overrides"); got != window.PatternsAlikeMax {
		t.Errorf("%d overrides, want %d", got, window.PatternsAlikeMax)
	}
}

// wantAudit compares the log with actions and parts of their before and after.
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

// has reports whether whole contains part; an empty part needs an empty whole.
func has(whole, part string) bool {
	if part == "" {
		return whole == ""
	}
	return strings.Contains(whole, part)
}

// Pages follow each other in byte order, to the end.
func TestOverridePages(t *testing.T) { servers.EachSQL(t, testOverridePages) }

func testOverridePages(t *testing.T) {
	s, _ := migrated(t)
	settings := limits.NewSettings(s)
	for i := range 5 {
		o := limits.Override{Workspace: "acme", Namespace: "api", Pattern: fmt.Sprint("user_", i), Limit: 1}
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

// Fields that a change of a namespace leaves out stay as they are.
func TestNamespaces(t *testing.T) { servers.EachSQL(t, testNamespaces) }

func testNamespaces(t *testing.T) {
	s, db := migrated(t)
	settings := limits.NewSettings(s)
	yes, estimate, closed, odd, knobs := true, "estimate", "closed", "odd", `{"floor":3}`
	for _, change := range []limits.NamespaceChange{{Shadow: &yes}, {Mode: &estimate, Estimate: &knobs}, {Outage: &closed}} {
		if _, err := settings.SetNamespace(t.Context(), "acme", "api", change, operator); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := settings.SetNamespace(t.Context(), "acme", "api", limits.NamespaceChange{NodeShare: &odd}, operator); !errors.Is(err, controlplane.ErrInvalid) {
		t.Errorf("%v", err)
	}
	want := limits.Namespace{Workspace: "acme", Namespace: "api", Shadow: true, Mode: "estimate", Outage: "closed", NodeShare: "wait", Window: "cells", Estimate: knobs}
	list, more, err := settings.Namespaces(t.Context(), "acme", "")
	if err != nil || more || len(list) != 1 || list[0].UpdatedAt.IsZero() {
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

// A window type reaches nodes and the audit log. Writes of an earlier build do not change it. The estimate mode rejects
// a precise window.
func TestTheWindowOfANamespace(t *testing.T) { servers.EachSQL(t, testTheWindowOfANamespace) }

func testTheWindowOfANamespace(t *testing.T) {
	s, db := migrated(t)
	settings := limits.NewSettings(s)
	set := func(change limits.NamespaceChange) error {
		_, err := settings.SetNamespace(t.Context(), "acme", "login", change, operator)
		return err
	}
	wantWindow := func(want string) {
		t.Helper()
		one, err := settings.Namespace(t.Context(), "acme", "login")
		if err != nil || one.Window != want {
			t.Errorf("%+v, %v: want window %s", one, err, want)
		}
		some, _, err := settings.Namespaces(t.Context(), "acme", "")
		if err != nil || len(some) != 1 || some[0].Window != want {
			t.Errorf("%+v, %v: want window %s", some, err, want)
		}
		all, _, err := settings.AllNamespaces(t.Context(), nil, "", "")
		if err != nil || len(all) != 1 || all[0].Window != want {
			t.Errorf("%+v, %v: want window %s", all, err, want)
		}
		rows, err := dataplanedb.New(db).Namespaces(t.Context())
		if err != nil || len(rows) != 1 || rows[0].WindowKind != want {
			t.Errorf("nodes read %+v, %v: want window %s", rows, err, want)
		}
	}
	yes, precise, cells, odd, exact, estimate := true, "precise", "cells", "odd", "exact", "estimate"
	if err := set(limits.NamespaceChange{Window: &precise}); err != nil {
		t.Fatal(err)
	}
	wantWindow("precise")
	if err := set(limits.NamespaceChange{Shadow: &yes}); err != nil {
		t.Fatal(err)
	}
	wantWindow("precise")
	if err := set(limits.NamespaceChange{Window: &odd}); !errors.Is(err, controlplane.ErrInvalid) || !strings.Contains(err.Error(), `window is "odd" (cells, precise)`) {
		t.Errorf("%v", err)
	}
	const both = `window is "precise" and mode is "estimate"`
	if err := set(limits.NamespaceChange{Mode: &estimate}); !errors.Is(err, controlplane.ErrInvalid) || !strings.Contains(err.Error(), both) {
		t.Errorf("%v", err)
	}
	const before = "UPDATE ratelimit_namespaces SET shadow = ?, mode = ?, outage = ?, node_share = ?, estimate = ? WHERE workspace_id = ? AND namespace = ?"
	exec(t, db, before, false, "exact", "closed", "wait", "", []byte("acme"), []byte("login"))
	wantWindow("precise")
	if err := set(limits.NamespaceChange{Mode: &estimate, Window: &cells}); err != nil {
		t.Fatal(err)
	}
	wantWindow("cells")
	if err := set(limits.NamespaceChange{Window: &precise}); !errors.Is(err, controlplane.ErrInvalid) || !strings.Contains(err.Error(), both) {
		t.Errorf("%v", err)
	}
	if err := set(limits.NamespaceChange{Window: &precise, Mode: &exact}); err != nil {
		t.Fatal(err)
	}
	wantWindow("precise")
	wantAudit(t, s, [][3]string{
		{"namespace.set", "", `"window":"precise"`}, {"namespace.set", `"window":"precise"`, `"window":"precise"`},
		{"namespace.set", `"window":"precise"`, `"window":"cells"`}, {"namespace.set", `"window":"cells"`, `"window":"precise"`},
	})
}

// Relays read the settings when their version changes: each change raises it, and a change that is rolled back does
// not.
func TestEachChangeRaisesTheVersionOfTheSettings(t *testing.T) {
	servers.EachSQL(t, testEachChangeRaisesTheVersionOfTheSettings)
}

func testEachChangeRaisesTheVersionOfTheSettings(t *testing.T) {
	s, db := migrated(t)
	settings := limits.NewSettings(s)
	version := func() (n int64) {
		t.Helper()
		const query = "SELECT COALESCE(MAX(version), 0) FROM ratelimit_settings_version"
		if err := db.QueryRowContext(t.Context(), query).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	o := limits.Override{Workspace: "acme", Namespace: "api", Pattern: "x", Limit: 1}
	for what, change := range []struct {
		do     func() error
		raises int64
	}{
		{func() error { return settings.SetOverride(t.Context(), o, operator) }, 1},
		{func() error { return settings.DeleteOverride(t.Context(), "acme", "api", "x", nil, operator) }, 1},
		{func() error { return settings.DeleteOverride(t.Context(), "acme", "api", "x", nil, operator) }, 0}, // not found
		{func() error {
			_, err := s.WriteTunings(t.Context(), []tunings.Write{
				{ID: "r/1", Region: "eu", Document: "{}", By: operator}, {ID: "r/2", Region: "us", Document: "{}", By: operator}})
			return err
		}, 1},
		{func() error {
			return s.ChangeNamespace(t.Context(), "acme", "api",
				func(*limits.Namespace) (limits.Namespace, audit.Entry, error) {
					return limits.Namespace{Workspace: "acme", Namespace: "api", Shadow: true}, audit.Entry{}, nil
				})
		}, 1},
		{func() error {
			return s.ChangeReset(t.Context(), "acme", "api", "x",
				func(_ *limits.Reset, _ int64, now time.Time) (limits.Reset, audit.Entry, error) {
					return limits.Reset{Generation: 1, SetAt: now, ExpiresAt: now.Add(time.Hour)}, audit.Entry{}, nil
				})
		}, 1},
	} {
		before := version()
		if err := change.do(); (err == nil) != (change.raises > 0) {
			t.Errorf("change %d: %v", what, err)
		}
		if raised := version() - before; raised != change.raises {
			t.Errorf("change %d raises the version by %d, want %d", what, raised, change.raises)
		}
	}
}
