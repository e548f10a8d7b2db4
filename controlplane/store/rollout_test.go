package store

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/rollout"
	"github.com/weirhq/weir/controlplane/tunings"
	"github.com/weirhq/weir/shared/servers"
)

func write(id, region, document string) tunings.Write {
	return tunings.Write{ID: id, Region: region, Document: document, By: controlplane.By{Actor: "ann", Reason: "test"}}
}

// "If a write with the same ID exists already, it is skipped and its number returned", in the order of the writes and
// in one transaction.
func TestTuningsAreWrittenOnce(t *testing.T) { servers.EachSQL(t, testTuningsAreWrittenOnce) }

func testTuningsAreWrittenOnce(t *testing.T) {
	s, db := migrated(t)
	first, err := s.WriteTunings(t.Context(), []tunings.Write{write("r/apply/eu", "eu", "{1}"), write("r/apply/", "", "{2}")})
	if err != nil || first.Refused != nil || len(first.Versions) != 2 || first.Versions[0] >= first.Versions[1] {
		t.Fatalf("%+v, %v", first, err)
	}
	again, err := s.WriteTunings(t.Context(), []tunings.Write{write("r/apply/eu", "eu", "{1}"), write("r/revert/eu", "eu", "{3}")})
	if err != nil || again.Refused != nil || again.Versions[0] != first.Versions[0] || again.Versions[1] <= first.Versions[1] {
		t.Fatalf("%+v, %v", again, err)
	}
	newest, err := s.NewestTunings(t.Context())
	want := []tunings.RegionTuning{{Region: "", Version: first.Versions[1], Document: "{2}"}, {Region: "eu", Version: again.Versions[1], Document: "{3}"}}
	if err != nil || !slices.Equal(newest, want) {
		t.Errorf("%+v, %v; want %+v", newest, err, want)
	}
	long := write("r/apply/us", "us", "{}")
	long.Region = fmt.Sprintf("%049d", 0)
	if _, err := s.WriteTunings(t.Context(), []tunings.Write{write("r/apply/ap", "ap", "{4}"), long}); err == nil {
		t.Error("a region that is too long")
	}
	if n := count(t, db, "SELECT COUNT(*) FROM ratelimit_tuning"); n != 3 {
		t.Errorf("%d rows: half a write was made", n)
	}
}

// Two concurrent attempts make a single write.
func TestAttemptsAtOnceAreOneWrite(t *testing.T) { servers.EachSQL(t, testAttemptsAtOnceAreOneWrite) }

func testAttemptsAtOnceAreOneWrite(t *testing.T) {
	s, db := migrated(t)
	var attempts sync.WaitGroup
	versions := make([]tunings.Written, 8)
	for i := range versions {
		attempts.Go(func() {
			var err error
			if versions[i], err = s.WriteTunings(t.Context(), []tunings.Write{write("r/apply/eu", "eu", "{}"), write("r/apply/us", "us", "{}")}); err != nil {
				t.Error(err)
			}
		})
	}
	attempts.Wait()
	for _, v := range versions {
		if v.Refused != nil || !slices.Equal(v.Versions, versions[0].Versions) {
			t.Errorf("versions %v", versions)
		}
	}
	if n := count(t, db, "SELECT COUNT(*) FROM ratelimit_tuning"); n != 2 {
		t.Errorf("%d rows", n)
	}
}

// "Nothing is written if the ID was used for another document, or if a write replaces a version that is no longer the
// region's newest", whatever wrote that version.
func TestTuningWritesAreFenced(t *testing.T) { servers.EachSQL(t, testTuningWritesAreFenced) }

func testTuningWritesAreFenced(t *testing.T) {
	s, db := migrated(t)
	first, err := s.WriteTunings(t.Context(), []tunings.Write{write("one/apply/eu", "eu", "{1}"), write("one/apply/", "", "{1}")})
	if err != nil || first.Refused != nil {
		t.Fatalf("%+v, %v", first, err)
	}
	exec(t, db, "INSERT INTO ratelimit_tuning (region, document, actor, reason, created_at) VALUES ('eu', '{by hand}', 'ann', 'x', 1)")
	over := func(w tunings.Write, version int64) tunings.Write {
		w.Over = version
		return w
	}
	fleet, eu := first.Versions[1], first.Versions[0]
	for name, c := range map[string]struct {
		writes []tunings.Write
		want   tunings.Refusal
	}{
		"over one that was replaced": {
			[]tunings.Write{over(write("one/revert/", "", "{0}"), fleet), over(write("one/revert/eu", "eu", "{0}"), eu)},
			tunings.Refusal{ID: "one/revert/eu", Region: "eu", Newest: fleet + 1},
		},
		"over none, where there is one": {
			[]tunings.Write{write("two/apply/eu", "eu", "{2}"), write("two/revert/eu", "eu", "{0}")},
			tunings.Refusal{ID: "two/apply/eu", Region: "eu", Newest: fleet + 1},
		},
		"another document": {
			[]tunings.Write{write("one/apply/eu", "eu", "{2}")},
			tunings.Refusal{ID: "one/apply/eu", Region: "eu", Newest: fleet + 1, IDTaken: true},
		},
		"another region": {
			[]tunings.Write{write("one/apply/", "us", "{1}")},
			tunings.Refusal{ID: "one/apply/", Region: "us", IDTaken: true},
		},
	} {
		written, err := s.WriteTunings(t.Context(), c.writes)
		if err != nil || written.Refused == nil || *written.Refused != c.want || len(written.Versions) > 0 {
			t.Errorf("%s: %+v %+v, %v", name, written.Versions, written.Refused, err)
		}
	}
	if n := count(t, db, "SELECT COUNT(*) FROM ratelimit_tuning"); n != 3 {
		t.Errorf("%d rows: half a write was made", n)
	}
}

// Of two concurrent writes that replace the same version, exactly one is made.
func TestWritesOverTheSameVersionAreOne(t *testing.T) {
	servers.EachSQL(t, testWritesOverTheSameVersionAreOne)
}

func testWritesOverTheSameVersionAreOne(t *testing.T) {
	s, db := migrated(t)
	var writers sync.WaitGroup
	made := make([]tunings.Written, 8)
	for i := range made {
		writers.Go(func() {
			var err error
			if made[i], err = s.WriteTunings(t.Context(), []tunings.Write{write(fmt.Sprintf("r%d/apply/eu", i), "eu", "{}")}); err != nil {
				t.Error(err)
			}
		})
	}
	writers.Wait()
	refused := 0
	for _, m := range made {
		if m.Refused != nil && m.Refused.Newest > 0 {
			refused++
		}
	}
	if n := count(t, db, "SELECT COUNT(*) FROM ratelimit_tuning"); n != 1 || refused != len(made)-1 {
		t.Errorf("%d rows, %d refused", n, refused)
	}
}

// TuningsOf finds the versions that a rollout wrote by its ID.
func TestTuningsOfARollout(t *testing.T) { servers.EachSQL(t, testTuningsOfARollout) }

func testTuningsOfARollout(t *testing.T) {
	s, db := migrated(t)
	for _, w := range []tunings.Write{write("a_b/apply/eu", "eu", "{1}"), write("a-b/apply/us", "us", "{2}"), write("a_b/apply/", "", "{3}")} {
		if _, err := s.WriteTunings(t.Context(), []tunings.Write{w}); err != nil {
			t.Fatal(err)
		}
	}
	exec(t, db, "INSERT INTO ratelimit_tuning (region, document, actor, reason, created_at) VALUES ('ap', '{by hand}', 'ann', 'x', 1)")
	wrote, err := s.TuningsOf(t.Context(), "a_b", 10)
	if want := []tunings.RegionTuning{{Region: "eu", Version: 1, Document: "{1}"}, {Region: "", Version: 3, Document: "{3}"}}; err != nil || !slices.Equal(wrote, want) {
		t.Errorf("%+v, %v", wrote, err)
	}
	if wrote, err := s.TuningsOf(t.Context(), "a", 10); err != nil || len(wrote) > 0 {
		t.Errorf("%+v, %v", wrote, err)
	}
}

// A saved rollout is listed before it writes versions, and the list begins with the newest. Of two states the state
// with more saves stays, and of two states with as many saves the first.
func TestRolloutsAreSaved(t *testing.T) { servers.EachSQL(t, testRolloutsAreSaved) }

func testRolloutsAreSaved(t *testing.T) {
	s, db := migrated(t)
	exec(t, db, "INSERT INTO ratelimit_rollouts (id, actor, reason, started_at) VALUES ('before', 'eve', 'by an older build', 1)")
	const aborted = `{"why":"\"no\" – said bob","ended_ms":1767225600123,"epoch":12,"saved":3}`
	row := func(id, actor string, startedMs, saved int64, phase rollout.Phase, state string) rollout.Row {
		return rollout.Row{ID: id, By: controlplane.By{Actor: actor, Reason: "r"}, StartedMs: startedMs, Saved: saved, Phase: phase, State: state}
	}
	for _, tc := range []struct {
		row  rollout.Row
		want error
	}{
		{row("wrote", "ann", 5, 1, rollout.Measuring, "{1}"), nil},
		{row("aborted", "bob", 7, 1, rollout.Measuring, "{1}"), nil},
		{row("aborted", "bob", 7, 1, rollout.Measuring, "{1}"), nil}, // again
		{row("aborted", "bob", 7, 1, rollout.Measuring, "{another}"), controlplane.ErrConflict},
		{row("aborted", "bob", 7, 3, rollout.Aborted, aborted), nil},
		{row("aborted", "bob", 7, 2, rollout.Baking, "{2}"), controlplane.ErrConflict},
		{row("waits", "cyd", 9, 4, rollout.Awaiting, "{4}"), nil}, // its row was lost
		{row("before", "ann", 5, 1, rollout.Done, "{1}"), nil},
	} {
		if err := s.SaveRollout(t.Context(), tc.row); !errors.Is(err, tc.want) {
			t.Errorf("%+v: %v, want %v", tc.row, err, tc.want)
		}
	}
	trace := func(id, actor, reason string, startedMs, saved int64, phase rollout.Phase) rollout.Trace {
		return rollout.Trace{Saved: saved, Summary: rollout.Summary{ID: id, By: controlplane.By{Actor: actor, Reason: reason}, StartedMs: startedMs, Phase: phase}}
	}
	want := []rollout.Trace{
		trace("waits", "cyd", "r", 9, 4, rollout.Awaiting), trace("aborted", "bob", "r", 7, 3, rollout.Aborted),
		trace("wrote", "ann", "r", 5, 1, rollout.Measuring), trace("before", "eve", "by an older build", 1, 1, rollout.Done),
	}
	want[1].Why, want[1].EndedMs, want[1].Epoch = `"no" – said bob`, 1767225600123, 12
	traces, err := s.Rollouts(t.Context(), 100)
	if err != nil || !slices.Equal(traces, want) {
		t.Errorf("%+v, %v, want %+v", traces, err, want)
	}
	if traces, err = s.Rollouts(t.Context(), 2); err != nil || !slices.Equal(traces, want[:2]) {
		t.Errorf("of two rows: %+v, %v", traces, err)
	}
	for id, want := range map[string]bool{"waits": true, "Waits": false, "other": false} {
		if recorded, err := s.RolloutRecorded(t.Context(), id); err != nil || recorded != want {
			t.Errorf("%s is recorded: %v, %v", id, recorded, err)
		}
	}
	for _, tc := range []struct {
		id    string
		saved int64
		want  string
	}{{"aborted", 2, aborted}, {"aborted", 3, ""}, {"Aborted", 0, ""}, {"other", 0, ""}} {
		if state, err := s.NewerRollout(t.Context(), tc.id, tc.saved); err != nil || state != tc.want {
			t.Errorf("%s, newer than save %d: %q, %v, want %q", tc.id, tc.saved, state, err, tc.want)
		}
	}
}

// TuningVersions lists versions newest first, of a region or all regions, with the rollout that wrote them, and at most
// as many as requested.
func TestTuningVersions(t *testing.T) { servers.TurnSQL(t, testTuningVersions) }

func testTuningVersions(t *testing.T) {
	s, db := migrated(t)
	wrote, err := s.WriteTunings(t.Context(), []tunings.Write{write("r1/apply/eu", "eu", "{1}"), write("r1/apply/", "", "{2}")})
	if err != nil {
		t.Fatal(err)
	}
	exec(t, db, "INSERT INTO ratelimit_tuning (region, document, actor, reason, created_at) VALUES ('', '{3}', 'bob', 'by hand', 7)")
	all, err := s.TuningVersions(t.Context(), nil, math.MaxInt64, 10)
	if err != nil || len(all) != 3 {
		t.Fatalf("%+v, %v", all, err)
	}
	if v := all[0]; v.Document != "{3}" || v.Rollout != "" || v.By != (controlplane.By{Actor: "bob", Reason: "by hand"}) || v.At.UnixMilli() != 7 {
		t.Errorf("%+v", v)
	}
	if v := all[2]; v.Document != "{1}" || v.Rollout != "r1" || v.Region != "eu" || v.Version != wrote.Versions[0] {
		t.Errorf("%+v", v)
	}
	fleet, eu := "", "eu"
	for _, tc := range []struct {
		region *string
		before int64
		rows   int
		want   int
	}{{&fleet, math.MaxInt64, 10, 2}, {&eu, math.MaxInt64, 10, 1}, {&eu, wrote.Versions[0], 10, 0}, {nil, wrote.Versions[1], 10, 1}, {nil, math.MaxInt64, 2, 2}} {
		if page, err := s.TuningVersions(t.Context(), tc.region, tc.before, tc.rows); err != nil || len(page) != tc.want {
			t.Errorf("%+v: %+v, %v", tc, page, err)
		}
	}
}
