package relay

import (
	"errors"
	"testing"
	"time"

	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/dataplane/store"
)

// grownShard returns a shard with its lease, and with cells whose totals are worth storing.
func grownShard(t *testing.T, cells int) (s *shard, counts *memstore.Counts, now time.Time) {
	now = time.UnixMilli(minuteCell("").ExpiresAtMs()).Add(-time.Minute)
	counts = memstore.NewCounts(memstore.CountsOptions{Clock: func() time.Time { return now }})
	r := newTestRelay(t)
	r.cfg.Counts = counts
	s = r.shards[0]
	s.lease.until = now.Add(time.Hour)
	for i := range cells {
		s.book.growLocked(&store.Change{Cell: minuteCell(string(rune('a' + i))), Total: 100, Limit: 100}, now)
	}
	return s, counts, now
}

// Counts that could not be stored are stored with the next call, although they have not grown since.
func TestCountsThatCouldNotBeStoredAreStoredLater(t *testing.T) {
	s, counts, now := grownShard(t, 3)
	counts.Faults.Fail(errors.New("down"))
	if err := s.save(t.Context(), now); err == nil {
		t.Fatal("no error")
	}
	counts.Faults.Fail(nil)
	if err := s.save(t.Context(), now); err != nil || len(counts.Rows()) != 3 {
		t.Errorf("%v; %d rows are stored, want 3", err, len(counts.Rows()))
	}
	if err := s.save(t.Context(), now); err != nil || counts.Stats().Publishes != 2 {
		t.Errorf("%v; %d calls, and nothing has grown since the second", err, counts.Stats().Publishes)
	}
}

// A relay that has lost its lease stores nothing: its successor does.
func TestOnlyTheHolderOfTheLeaseStores(t *testing.T) {
	s, counts, now := grownShard(t, 1)
	s.lease.until = now
	if err := s.save(t.Context(), now); err != nil || len(counts.Rows()) != 0 {
		t.Errorf("%v; %d rows are stored", err, len(counts.Rows()))
	}
}
