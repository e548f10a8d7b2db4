package redisorigin

import (
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// A cell has one bucket: a message about it, or a key of it, in any other bucket is invalid.
func TestACellIsHeardFromItsBucketOnly(t *testing.T) {
	layout, err := newLayout(Options{})
	if err != nil {
		t.Fatal(err)
	}
	s := newShard(&Origin{layout: layout}, Partition{}, true)
	c := window.Cell{Key: window.Key{Workspace: "w", Namespace: "n", Identifier: "i", Duration: time.Hour}, Sequence: 1}
	for _, b := range s.buckets {
		got, ok := s.cellOf(b.keys.key(c))
		if want := b == s.bucketOf(&c.Key); ok != want || ok && got != c {
			t.Errorf("bucket %d: %v, %t, want %t", b.n, got, ok, want)
		}
	}
}

// No two buckets of a shard ever have the same epoch: each draws from its own numbers.
func TestBucketsDrawEpochsOfTheirOwn(t *testing.T) {
	layout, err := newLayout(Options{})
	if err != nil {
		t.Fatal(err)
	}
	s := newShard(&Origin{layout: layout}, Partition{}, true)
	for _, b := range s.buckets {
		for range 20 {
			text := s.newEpoch(b)
			if epoch, err := strconv.ParseUint(text, 10, 32); err != nil || epoch == 0 || epoch%clusterBuckets != uint64(b.n) {
				t.Fatalf("bucket %d draws %q, want one of its own numbers", b.n, text)
			}
		}
	}
}

// The listener takes counts that an origin can have from a message, and rejects anything else in it.
func TestCountsThatNoOriginHasAreNotHeard(t *testing.T) {
	layout, err := newLayout(Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	s := newShard(&Origin{layout: layout}, Partition{}, false)
	c := window.Cell{Key: window.Key{Workspace: "w", Namespace: "n", Identifier: "i", Duration: time.Hour}, Sequence: 1}
	var delivered []store.Foreign
	payload := ""
	for _, count := range []int64{1, store.CountMax, store.CountMax + 1, -1} {
		payload += fmt.Sprintf("%s %d\n", s.buckets[0].keys.key(c), count)
	}
	s.deliver(strings.TrimSuffix(payload, "\n"), func(totals []store.Foreign) { delivered = append(delivered, totals...) })
	if want := []store.Foreign{{Cell: c, Count: 1}, {Cell: c, Count: store.CountMax}}; !slices.Equal(delivered, want) {
		t.Errorf("heard %v, want %v", delivered, want)
	}
	if n := layout.garbage.Load(); n != 2 {
		t.Errorf("%d lines are garbage, want 2", n)
	}
}
