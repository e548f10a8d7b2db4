package store

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/shared/servers"
)

func write(id, region, document string) controlplane.TuningWrite {
	return controlplane.TuningWrite{ID: id, Region: region, Document: document, By: controlplane.By{Actor: "ann", Reason: "test"}}
}

// "A write whose ID is there already is left out and its number answered", in the order
// of the writes and as one transaction.
func TestTuningsAreWrittenOnce(t *testing.T) { servers.EachSQL(t, testTuningsAreWrittenOnce) }

func testTuningsAreWrittenOnce(t *testing.T) {
	s, db := migrated(t)
	first, err := s.WriteTunings(t.Context(), []controlplane.TuningWrite{write("r/apply/eu", "eu", "{1}"), write("r/apply/", "", "{2}")})
	if err != nil || len(first) != 2 || first[0] >= first[1] {
		t.Fatalf("%v, %v", first, err)
	}
	again, err := s.WriteTunings(t.Context(), []controlplane.TuningWrite{write("r/apply/eu", "eu", "{other}"), write("r/revert/eu", "eu", "{3}")})
	if err != nil || again[0] != first[0] || again[1] <= first[1] {
		t.Fatalf("%v, %v", again, err)
	}
	newest, err := s.NewestTunings(t.Context())
	want := []controlplane.RegionTuning{{Region: "", Version: first[1], Document: "{2}"}, {Region: "eu", Version: again[1], Document: "{3}"}}
	if err != nil || !slices.Equal(newest, want) {
		t.Errorf("%+v, %v; want %+v", newest, err, want)
	}
	long := write("r/apply/us", "us", "{}")
	long.Region = fmt.Sprintf("%049d", 0)
	if _, err := s.WriteTunings(t.Context(), []controlplane.TuningWrite{write("r/apply/ap", "ap", "{4}"), long}); err == nil {
		t.Error("a region that is too long")
	}
	if n := count(t, db, "SELECT COUNT(*) FROM ratelimit_tuning"); n != 3 {
		t.Errorf("%d rows: half a write was made", n)
	}
}

// Two attempts at the same moment are one write.
func TestAttemptsAtOnceAreOneWrite(t *testing.T) { servers.EachSQL(t, testAttemptsAtOnceAreOneWrite) }

func testAttemptsAtOnceAreOneWrite(t *testing.T) {
	s, db := migrated(t)
	var attempts sync.WaitGroup
	versions := make([][]int64, 8)
	for i := range versions {
		attempts.Go(func() {
			var err error
			if versions[i], err = s.WriteTunings(t.Context(), []controlplane.TuningWrite{write("r/apply/eu", "eu", "{}"), write("r/apply/us", "us", "{}")}); err != nil {
				t.Error(err)
			}
		})
	}
	attempts.Wait()
	for _, v := range versions {
		if !slices.Equal(v, versions[0]) {
			t.Errorf("versions %v", versions)
		}
	}
	if n := count(t, db, "SELECT COUNT(*) FROM ratelimit_tuning"); n != 2 {
		t.Errorf("%d rows", n)
	}
}
