package store

import (
	"database/sql"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/audit"
	"github.com/weirhq/weir/controlplane/tunings"
	"github.com/weirhq/weir/shared/servers"
	"github.com/weirhq/weir/shared/tuning"
)

const trialLease = 60_000

func trial(id, region string) tunings.TrialWrite {
	return tunings.TrialWrite{ID: id, Region: region, Document: "{}", Below: tuning.TrialShares, LeaseMs: trialLease}
}

func trialAudit() audit.Entry {
	return audit.Entry{By: controlplane.By{Actor: "ann", Reason: "test"}, Action: "rollout.try", Subject: "trial r"}
}

func mustTry(t *testing.T, s *Store, writes ...tunings.TrialWrite) tunings.TrialsWritten {
	t.Helper()
	written, err := s.WriteTrials(t.Context(), writes, trialAudit())
	if err != nil {
		t.Fatal(err)
	}
	return written
}

// leftOf returns the time until a trial ends, in ms.
func leftOf(t *testing.T, db *sql.DB, id string) (ms int64) {
	t.Helper()
	err := db.QueryRowContext(t.Context(), `SELECT CAST(ends_at AS SIGNED) - CAST(UNIX_TIMESTAMP() * 1000 AS SIGNED)
		FROM ratelimit_trials WHERE write_id = ?`, id).Scan(&ms)
	if err != nil {
		t.Fatal(err)
	}
	return ms
}

// "If a write with the same ID exists already, it is skipped and its number returned", with one audit entry for all
// writes. If a write is refused, none is made.
func TestTrialsAreWrittenOnce(t *testing.T) { servers.EachSQL(t, testTrialsAreWrittenOnce) }

func testTrialsAreWrittenOnce(t *testing.T) {
	s, db := migrated(t)
	first := mustTry(t, s, trial("r/try/eu", "eu"), trial("r/try/", ""))
	again := mustTry(t, s, trial("r/try/eu", "eu"), trial("r/try/", ""))
	if len(first.Numbers) != 2 || first.Numbers[0] >= first.Numbers[1] || !slices.Equal(first.Numbers, again.Numbers) {
		t.Errorf("%+v, then %+v", first, again)
	}
	if left := leftOf(t, db, "r/try/eu"); left < trialLease/2 || left > trialLease+1000 {
		t.Errorf("good for %d ms", left)
	}
	other := trial("r/try/eu", "eu")
	other.Document = "{1}"
	if got := mustTry(t, s, trial("r/try/us", "us"), other); got.Refused == nil || !got.Refused.IDTaken || got.Refused.Region != "eu" {
		t.Errorf("another tuning under the same id: %+v", got)
	}
	over := trial("r/try/ap", "ap")
	over.Over = 7
	if got := mustTry(t, s, trial("r/try/us", "us"), over); got.Refused == nil || got.Refused.IDTaken || got.Refused.Region != "ap" {
		t.Errorf("over a version that is not there: %+v", got)
	}
	if n := count(t, db, "SELECT COUNT(*) FROM ratelimit_trials"); n != 2 {
		t.Errorf("%d trials: half a write was made", n)
	}
	if n := count(t, db, "SELECT COUNT(*) FROM ratelimit_audit WHERE action = 'rollout.try' AND actor = 'ann'"); n != 1 {
		t.Errorf("%d entries of the audit log", n)
	}
}

// "A larger bound widens its trial, without a change of its end": its number stays, it is never narrowed, and the audit
// log has an entry. A trial that has ended or was replaced by another version cannot be widened.
func TestATrialIsWidened(t *testing.T) { servers.EachSQL(t, testATrialIsWidened) }

func testATrialIsWidened(t *testing.T) {
	s, db := migrated(t)
	below := func(id string) (is int64) {
		if err := db.QueryRowContext(t.Context(), "SELECT below FROM ratelimit_trials WHERE write_id = ?", id).Scan(&is); err != nil {
			t.Fatal(err)
		}
		return is
	}
	eu, us := trial("r/try/eu", "eu"), trial("r/try/us", "us")
	eu.Below = 100
	first := mustTry(t, s, eu)
	eu.Below, eu.LeaseMs = 300, 10*trialLease
	for range 2 {
		if got := mustTry(t, s, eu, us); got.Refused != nil || got.Numbers[0] != first.Numbers[0] || below(eu.ID) != 300 {
			t.Errorf("%+v after %+v, below %d", got, first, below(eu.ID))
		}
	}
	if left := leftOf(t, db, eu.ID); left > trialLease+1000 {
		t.Errorf("widened, and good for %d ms", left)
	}
	eu.Below = 200 // an attempt of an earlier stage that comes late
	if got := mustTry(t, s, eu); got.Refused != nil || got.Numbers[0] != first.Numbers[0] || below(eu.ID) != 300 {
		t.Errorf("%+v, below %d", got, below(eu.ID))
	}
	if n := count(t, db, "SELECT COUNT(*) FROM ratelimit_audit WHERE action = 'rollout.try'"); n != 2 {
		t.Errorf("%d entries of the audit log", n)
	}
	if _, err := s.EndTrials(t.Context(), []tunings.TrialWrite{us}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.WriteTunings(t.Context(), []tunings.Write{write("direct", "eu", "{}")}); err != nil {
		t.Fatal(err)
	}
	ap := trial("r/try/ap", "ap")
	eu.Below = 400
	if got := mustTry(t, s, ap, eu); got.Refused == nil || got.Refused.Region != "eu" || got.Refused.Newest == 0 || below(eu.ID) != 300 {
		t.Errorf("over a version that came since: %+v, below %d", got, below(eu.ID))
	}
	if n := count(t, db, "SELECT COUNT(*) FROM ratelimit_trials WHERE region = 'ap'"); n != 0 {
		t.Error("half a write was made")
	}
	if left := leftOf(t, db, us.ID); left > 0 {
		t.Errorf("one that is over is good for %d ms", left)
	}
}

// Two concurrent attempts make a single write.
func TestAttemptsAtATrialAtOnceAreOneWrite(t *testing.T) {
	servers.EachSQL(t, testAttemptsAtATrialAtOnce)
}

func testAttemptsAtATrialAtOnce(t *testing.T) {
	s, db := migrated(t)
	var attempts sync.WaitGroup
	numbers := make([][]int64, 8)
	for i := range numbers {
		attempts.Go(func() {
			err := retried(func() error {
				written, err := s.WriteTrials(t.Context(), []tunings.TrialWrite{trial("r/try/eu", "eu"), trial("r/try/us", "us")},
					trialAudit())
				numbers[i] = written.Numbers
				return err
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	attempts.Wait()
	for _, got := range numbers {
		if !slices.Equal(got, numbers[0]) || len(got) != 2 {
			t.Errorf("%v and %v", got, numbers[0])
		}
	}
	if n := count(t, db, "SELECT COUNT(*) FROM ratelimit_trials"); n != 2 {
		t.Errorf("%d trials", n)
	}
}

// retried repeats an attempt after a deadlock, as steps do.
func retried(attempt func() error) (err error) {
	for range 8 {
		if err = attempt(); err == nil {
			return nil
		}
	}
	return fmt.Errorf("eight times: %w", err)
}

// A renewal extends all trials or none. A trial that has ended, by its time or because of another version of its
// region, does not begin again.
func TestTrialsAreRenewed(t *testing.T) { servers.EachSQL(t, testTrialsAreRenewed) }

func testTrialsAreRenewed(t *testing.T) {
	s, db := migrated(t)
	mustTry(t, s, trial("r/try/eu", "eu"), trial("r/try/us", "us"))
	renew := func() tunings.TrialsRenewed {
		t.Helper()
		renewed, err := s.RenewTrials(t.Context(), []string{"r/try/eu", "r/try/us"}, 10*trialLease, nil)
		if err != nil {
			t.Fatal(err)
		}
		return renewed
	}
	if got := renew(); got.Ended != nil {
		t.Errorf("%+v", got.Ended)
	}
	for _, id := range []string{"r/try/eu", "r/try/us"} {
		if left := leftOf(t, db, id); left < 9*trialLease {
			t.Errorf("%s is good for %d ms", id, left)
		}
	}
	exec(t, db, "UPDATE ratelimit_trials SET ends_at = 5 WHERE write_id = 'r/try/us'")
	exec(t, db, "UPDATE ratelimit_trials SET ends_at = ends_at - 300000 WHERE write_id = 'r/try/eu'")
	if got := renew(); got.Ended == nil || *got.Ended != (tunings.TrialEnded{Region: "us"}) {
		t.Errorf("after its end: %+v", got.Ended)
	}
	if left := leftOf(t, db, "r/try/eu"); left > 6*trialLease {
		t.Errorf("half a renewal was made: %d ms", left)
	}
	mustTry(t, s, trial("r/try/ap", "ap"))
	written, err := s.WriteTunings(t.Context(), []tunings.Write{write("direct", "ap", "{9}")})
	if err != nil || written.Refused != nil {
		t.Fatalf("%+v, %v", written, err)
	}
	renewed, err := s.RenewTrials(t.Context(), []string{"r/try/ap"}, trialLease, nil)
	want := tunings.TrialEnded{Region: "ap", Newer: written.Versions[0]}
	if err != nil || renewed.Ended == nil || *renewed.Ended != want {
		t.Errorf("%+v, %v; want %+v", renewed.Ended, err, want)
	}
}

// A trial that was ended does not begin again. A write that was not made before its end begins nothing when it arrives
// later.
func TestTrialsEnd(t *testing.T) { servers.EachSQL(t, testTrialsEnd) }

func testTrialsEnd(t *testing.T) {
	s, db := migrated(t)
	writes := []tunings.TrialWrite{trial("r/try/eu", "eu"), trial("r/try/us", "us")}
	made := mustTry(t, s, writes[0])
	var numbers []int64
	for range 2 {
		var err error
		if numbers, err = s.EndTrials(t.Context(), writes); err != nil || len(numbers) != 2 || numbers[0] != made.Numbers[0] {
			t.Fatalf("%v, %v", numbers, err)
		}
	}
	if late := mustTry(t, s, writes...); !slices.Equal(late.Numbers, numbers) {
		t.Errorf("%+v, want %v", late, numbers)
	}
	if renewed, err := s.RenewTrials(t.Context(), []string{"r/try/eu"}, trialLease, nil); err != nil || renewed.Ended == nil {
		t.Errorf("%+v, %v", renewed, err)
	}
	if n := count(t, db, "SELECT COUNT(*) FROM ratelimit_trials WHERE ends_at > 0"); n != 0 {
		t.Errorf("%d trials go on", n)
	}
}

// If MySQL was restored from a copy from before the trial began, a renewal reports that the trial has ended. It does
// not return an error that looks like an outage, and renews no other trial.
func TestATrialThatARestoreHasTakenAwayIsOver(t *testing.T) { servers.EachSQL(t, testRestoredTrial) }

func testRestoredTrial(t *testing.T) {
	s, db := migrated(t)
	mustTry(t, s, trial("r/try/eu", "eu"), trial("r/try/us", "us"))
	exec(t, db, "DELETE FROM ratelimit_trials WHERE write_id = 'r/try/us'")
	renewed, err := s.RenewTrials(t.Context(), []string{"r/try/eu", "r/try/us"}, 10*trialLease, nil)
	if err != nil || renewed.Ended == nil || renewed.Ended.Lost != "r/try/us" {
		t.Errorf("%+v, %v", renewed, err)
	}
	if left := leftOf(t, db, "r/try/eu"); left > 2*trialLease {
		t.Errorf("the other trial is good for %d ms", left)
	}
}
