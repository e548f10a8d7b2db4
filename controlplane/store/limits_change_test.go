package store

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/limits"
	"github.com/weirhq/weir/controlplane/rollout"
	"github.com/weirhq/weir/controlplane/tunings"
	"github.com/weirhq/weir/shared/servers"
	settingsdoc "github.com/weirhq/weir/shared/settings"
	"github.com/weirhq/weir/shared/window"
)

var ann = controlplane.By{Actor: "ann", Reason: "test"}

func overrideItem(pattern string, limit int64) settingsdoc.Override {
	return settingsdoc.Override{Workspace: "acme", Namespace: "api", Pattern: pattern, Limit: limit}
}

// limitsFixture stores the states before a change of three overrides and a namespace, and returns the change.
func limitsFixture(t *testing.T, s *Store) settingsdoc.Change {
	t.Helper()
	for _, o := range []settingsdoc.Override{overrideItem("gone", 3), overrideItem("u*", 10)} {
		mustSet(t, s, o)
	}
	shadow := settingsdoc.DefaultNamespace("acme", "mail")
	shadow.Shadow = true
	before := settingsdoc.Document{Overrides: []settingsdoc.Override{overrideItem("gone", 3), overrideItem("u*", 10)}}
	after := settingsdoc.Document{Namespaces: []settingsdoc.Namespace{shadow},
		Overrides: []settingsdoc.Override{overrideItem("new", 7), overrideItem("u*", 8)}}
	return settingsdoc.Difference(&before, &after, true)
}

func mustSet(t *testing.T, s *Store, o settingsdoc.Override) {
	t.Helper()
	err := limits.NewSettings(s).SetOverride(t.Context(), limits.Override{Workspace: o.Workspace, Namespace: o.Namespace,
		Pattern: o.Pattern, Limit: o.Limit}, ann)
	if err != nil {
		t.Fatal(err)
	}
}

func limitsTrial(t *testing.T, id, region string, c settingsdoc.Change) tunings.TrialWrite {
	t.Helper()
	document, err := (&settingsdoc.LimitsTrial{Mode: settingsdoc.TrialShadow, Change: c}).Document()
	if err != nil {
		t.Fatal(err)
	}
	w := trial(id, region)
	w.Document = document
	return w
}

// storedItems returns the stored overrides and namespaces in one line.
func storedItems(t *testing.T, s *Store) string {
	t.Helper()
	overrides, err := s.Overrides(t.Context(), "acme", "api", "", 1000)
	if err != nil {
		t.Fatal(err)
	}
	var items []string
	for _, o := range overrides {
		items = append(items, fmt.Sprintf("%s=%d", o.Pattern, o.Limit))
	}
	namespaces, err := s.Namespaces(t.Context(), "acme", "", 1000)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range namespaces {
		items = append(items, fmt.Sprintf("%s:%v", n.Namespace, n.Shadow))
	}
	return strings.Join(items, " ")
}

func wantItems(t *testing.T, s *Store, want string) {
	t.Helper()
	if got := storedItems(t, s); got != want {
		t.Errorf("stored %q, want %q", got, want)
	}
}

// "KeepLimits makes the whole change once and ends the trials; RevertLimits restores the items that are still as the
// change left them."
func TestLimitsAreKeptAndReverted(t *testing.T) { servers.EachSQL(t, testLimitsAreKeptAndReverted) }

func testLimitsAreKeptAndReverted(t *testing.T) {
	s, db := migrated(t)
	c := limitsFixture(t, s)
	w := rollout.LimitsWrite{ID: "r/limits", Change: c, By: ann,
		Trials: []tunings.TrialWrite{limitsTrial(t, "r/try/eu", "eu", c), limitsTrial(t, "r/shadow/us", "us", c)}}
	mustTry(t, s, w.Trials[0])
	version := count(t, db, `SELECT version FROM ratelimit_settings_version`)
	for range 2 {
		written, err := s.KeepLimits(t.Context(), w)
		if err != nil || written != (rollout.LimitsWritten{Items: 4}) {
			t.Fatalf("%+v, %v", written, err)
		}
		wantItems(t, s, "new=7 u*=8 mail:true")
	}
	if raised := count(t, db, `SELECT version FROM ratelimit_settings_version`) - version; raised != 1 {
		t.Errorf("the version of the settings is raised by %d", raised)
	}
	if n := count(t, db, `SELECT COUNT(*) FROM ratelimit_trials WHERE ends_at = 0`); n != 2 {
		t.Errorf("%d of 2 trials are ended", n)
	}
	for _, action := range []string{"override.set", "override.delete", "namespace.set"} {
		if n := count(t, db, `SELECT COUNT(*) FROM ratelimit_audit WHERE action = ?`, action); n != map[string]int{"override.set": 4, "override.delete": 1, "namespace.set": 1}[action] {
			t.Errorf("%d entries %s", n, action)
		}
	}
	mustSet(t, s, overrideItem("new", 99))
	for range 2 {
		written, err := s.RevertLimits(t.Context(), w)
		if err != nil || written.Items != 3 || written.Left != "override acme/api/new is limit 99, not limit 7" {
			t.Fatalf("%+v, %v", written, err)
		}
		wantItems(t, s, "gone=3 new=99 u*=10 mail:false")
	}
	if written, err := s.KeepLimits(t.Context(), w); err != nil || written.Refused == "" {
		t.Errorf("a late attempt: %+v, %v", written, err)
	}
	wantItems(t, s, "gone=3 new=99 u*=10 mail:false")
	if n := count(t, db, `SELECT COUNT(*) FROM ratelimit_audit a LEFT JOIN ratelimit_audit_chain c ON c.entry_id = a.id WHERE c.entry_id IS NULL`); n != 0 {
		t.Errorf("%d entries without a link", n)
	}
}

// A keep is refused if an item is no longer as before, or if a rollback came first; nothing is written then.
func TestLimitsThatAreRefused(t *testing.T) { servers.EachSQL(t, testLimitsThatAreRefused) }

func testLimitsThatAreRefused(t *testing.T) {
	s, _ := migrated(t)
	c := limitsFixture(t, s)
	mustSet(t, s, overrideItem("u*", 11))
	w := rollout.LimitsWrite{ID: "r/limits", Change: c, By: ann}
	written, err := s.KeepLimits(t.Context(), w)
	if err != nil || written.Refused != "something else changed the limits meanwhile: override acme/api/u* is limit 11, not limit 10" {
		t.Errorf("%+v, %v", written, err)
	}
	if conflicts, err := s.LimitsConflicts(t.Context(), c); err != nil || conflicts.Items() != 1 {
		t.Errorf("%+v, %v", conflicts, err)
	}
	wantItems(t, s, "gone=3 u*=11")
	mustSet(t, s, overrideItem("u*", 10))
	if written, err := s.RevertLimits(t.Context(), w); err != nil || written != (rollout.LimitsWritten{}) {
		t.Errorf("%+v, %v", written, err)
	}
	if written, err := s.KeepLimits(t.Context(), w); err != nil || written.Refused == "" {
		t.Errorf("after the rollback: %+v, %v", written, err)
	}
	wantItems(t, s, "gone=3 u*=10")
}

// Trials of limits do not begin, and are not renewed, once an item has changed.
func TestAnEditEndsTrialsOfLimits(t *testing.T) { servers.EachSQL(t, testAnEditEndsTrialsOfLimits) }

func testAnEditEndsTrialsOfLimits(t *testing.T) {
	s, db := migrated(t)
	c := limitsFixture(t, s)
	w := limitsTrial(t, "r/try/eu", "eu", c)
	mustTry(t, s, w)
	if renewed, err := s.RenewTrials(t.Context(), []string{w.ID}, 10*trialLease, &c); err != nil || renewed.Ended != nil {
		t.Errorf("%+v, %v", renewed, err)
	}
	mustSet(t, s, overrideItem("new", 7))
	renewed, err := s.RenewTrials(t.Context(), []string{w.ID}, 20*trialLease, &c)
	if err != nil || renewed.Ended == nil || !strings.Contains(renewed.Ended.String(), "override acme/api/new is limit 7") {
		t.Errorf("%+v, %v", renewed, err)
	}
	if left := leftOf(t, db, w.ID); left > 10*trialLease+1000 {
		t.Errorf("it was renewed: good for %d ms", left)
	}
	if written := mustTry(t, s, limitsTrial(t, "r/try/us", "us", c)); written.Refused == nil || written.Refused.Conflict == "" {
		t.Errorf("%+v", written)
	}
	if n := count(t, db, `SELECT COUNT(*) FROM ratelimit_trials`); n != 1 {
		t.Errorf("%d trials", n)
	}
}

// Attempts, rollbacks and edits at once: a keep is made as a whole or not at all, and an edit is never lost.
func TestLimitsAtOnce(t *testing.T) { servers.EachSQL(t, testLimitsAtOnce) }

func testLimitsAtOnce(t *testing.T) {
	s, _ := migrated(t)
	limitsFixture(t, s)
	edits := limits.NewSettings(s)
	for round := range 20 {
		before, after := &settingsdoc.Document{}, &settingsdoc.Document{}
		for i := range 10 {
			pattern := fmt.Sprintf("r%d-%d", round, i)
			if i%2 == 0 {
				mustSet(t, s, overrideItem(pattern, 1))
				before.Overrides = append(before.Overrides, overrideItem(pattern, 1))
			}
			after.Overrides = append(after.Overrides, overrideItem(pattern, 2))
		}
		w := rollout.LimitsWrite{ID: fmt.Sprintf("r%d/limits", round), By: ann,
			Change: settingsdoc.Difference(before, after, true)}
		var all sync.WaitGroup
		errs := make(chan error, 8)
		try := func(f func() error) { all.Go(func() { errs <- f() }) }
		for range 2 {
			try(func() error { _, err := s.KeepLimits(t.Context(), w); return err })
		}
		try(func() error { _, err := s.RevertLimits(t.Context(), w); return err })
		edited := fmt.Sprintf("r%d-%d", round, 3+round%2)
		try(func() error {
			return edits.SetOverride(t.Context(), limits.Override{Workspace: "acme", Namespace: "api", Pattern: edited,
				Limit: 50}, ann)
		})
		all.Wait()
		close(errs)
		for err := range errs {
			if err != nil {
				t.Fatal(err)
			}
		}
		for i := range 10 {
			pattern := fmt.Sprintf("r%d-%d", round, i)
			o, err := s.Override(t.Context(), "acme", "api", pattern)
			if err != nil {
				t.Fatal(err)
			}
			got, want := int64(0), int64(1-i%2)
			if o != nil {
				got = o.Limit
			}
			if pattern == edited {
				want = 50
			}
			if got != want { // the rollback is the last word, whichever came first
				t.Errorf("%s is %d, want %d", pattern, got, want)
			}
		}
	}
}

// A change with the most items is one transaction within the time of a step.
func TestTheLargestChangeOfLimits(t *testing.T) { servers.EachSQL(t, testTheLargestChangeOfLimits) }

func testTheLargestChangeOfLimits(t *testing.T) {
	s, _ := migrated(t)
	after := &settingsdoc.Document{}
	for i := range settingsdoc.ChangesMax {
		after.Overrides = append(after.Overrides, overrideItem(fmt.Sprintf("u%03d", i), 5))
	}
	w := rollout.LimitsWrite{ID: "r/limits", Change: settingsdoc.Difference(&settingsdoc.Document{}, after, true), By: ann}
	if written, err := s.KeepLimits(t.Context(), w); err != nil || written.Items != settingsdoc.ChangesMax {
		t.Fatalf("%+v, %v", written, err)
	}
	if written, err := s.RevertLimits(t.Context(), w); err != nil || written.Items != settingsdoc.ChangesMax {
		t.Fatalf("%+v, %v", written, err)
	}
	wantItems(t, s, "")
}

// A change that deletes a pattern makes room for a pattern that it creates, whichever sorts first, and so does its
// rollback.
func TestAChangeOfLimitsMakesRoomForItself(t *testing.T) {
	servers.EachSQL(t, testAChangeOfLimitsMakesRoomForItself)
}

func testAChangeOfLimitsMakesRoomForItself(t *testing.T) {
	s, _ := migrated(t)
	before := &settingsdoc.Document{}
	for i := range window.PatternsAlikeMax - 1 {
		mustSet(t, s, overrideItem(fmt.Sprintf("p*m%02d*", i), 1))
	}
	others := storedItems(t, s)
	for round, pair := range [][2]string{{"p*a*", "p*z*"}, {"p*z*", "p*a*"}} {
		was, is := overrideItem(pair[0], 5), overrideItem(pair[1], 6)
		mustSet(t, s, was)
		before.Overrides = []settingsdoc.Override{was}
		stored := storedItems(t, s)
		w := rollout.LimitsWrite{ID: fmt.Sprintf("r%d/limits", round), By: ann,
			Change: settingsdoc.Difference(before, &settingsdoc.Document{Overrides: []settingsdoc.Override{is}}, true)}
		if written, err := s.KeepLimits(t.Context(), w); err != nil || written != (rollout.LimitsWritten{Items: 2}) {
			t.Errorf("%s for %s: %+v, %v", is.Pattern, was.Pattern, written, err)
		}
		if written, err := s.RevertLimits(t.Context(), w); err != nil || written != (rollout.LimitsWritten{Items: 2}) {
			t.Errorf("%s for %s: %+v, %v", was.Pattern, is.Pattern, written, err)
		}
		wantItems(t, s, stored)
		if err := limits.NewSettings(s).DeleteOverride(t.Context(), "acme", "api", was.Pattern, nil, ann); err != nil {
			t.Fatal(err)
		}
		wantItems(t, s, others)
	}
}
