package redisorigin_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirhq/weir/dataplane/redisorigin"
	"github.com/weirhq/weir/dataplane/store"
)

// A relay identifies a Cluster's buckets by one epoch and one mark. If any bucket is emptied, the epoch changes and the
// mark disappears, and calls for the epoch before are refused.
func TestAClusterThatLosesOneBucket(t *testing.T) {
	nodes := clusterForTest(t)
	o := openOrigin(t, "redis://"+nodes[0].Options().Addr+"?cluster=true", redisorigin.Options{})
	changes := func() store.Changes {
		t.Helper()
		c, err := o.Changes(t.Context(), 0, 9)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	for _, bucket := range []int{0, 17, 255} {
		before := changes()
		if err := o.Healed(t.Context(), 0, before.Epoch); err != nil {
			t.Fatal(err)
		}
		if before = changes(); !before.Healed {
			t.Fatalf("bucket %d: after Healed it is not", bucket)
		}
		for _, key := range []string{"epoch", "healed"} {
			clusterCommand(t, nodes, "DEL", fmt.Sprintf("weir:{origin%d}:%s", bucket, key))
		}
		after := changes()
		if after.Healed || after.Epoch == before.Epoch {
			t.Errorf("bucket %d was emptied: healed is %v, the epoch %d, and was %d", bucket, after.Healed, after.Epoch,
				before.Epoch)
		}
		late := []store.Change{{Cell: cellNow(fmt.Sprint("late", bucket), time.Hour), Total: 5, Limit: 9}}
		for what, err := range map[string]error{
			"raise": o.Raise(t.Context(), 0, before.Epoch, late), "healed": o.Healed(t.Context(), 0, before.Epoch),
		} {
			if !errors.Is(err, store.ErrEpoch) {
				t.Errorf("bucket %d: %s of the epoch before: %v, want ErrEpoch", bucket, what, err)
			}
		}
		if got := read(t, o, late[0].Cell)[0]; got != 0 || changes().Healed {
			t.Errorf("bucket %d: what was meant for the epoch before has raised a cell to %d, or healed the bucket", bucket, got)
		}
	}
}

// If more buckets have a change than a call takes, More is set, even if no bucket has a second change.
func TestAClustersChangesAreMoreThanOneCallTakes(t *testing.T) {
	nodes := clusterForTest(t)
	o := openOrigin(t, "redis://"+nodes[0].Options().Addr+"?cluster=true", redisorigin.Options{})
	slotsTaken := map[int64]bool{}
	for i := 0; len(slotsTaken) < 20; i++ {
		c := cellNow(fmt.Sprint("k", i), time.Hour)
		slot := nodes[0].ClusterKeySlot(t.Context(), o.Key(c)).Val()
		if !slotsTaken[slot] {
			slotsTaken[slot] = true
			add(t, o, store.Cost{Cell: c, Add: 1, Limit: 9})
		}
	}
	for _, most := range []int{5, 19, 20} {
		changes, err := o.Changes(t.Context(), 0, most)
		if err != nil || len(changes.Cells) != most || changes.More != (most < 20) {
			t.Errorf("at most %d: %d changes, more is %t, %v", most, len(changes.Cells), changes.More, err)
		}
	}
}

// "It returns an error if the Cluster's nodes have changed since the first page."
func TestAScanEndsWithTheClustersNodes(t *testing.T) {
	nodes := clusterForTest(t)
	o := openOrigin(t, "redis://"+nodes[0].Options().Addr+"?cluster=true", redisorigin.Options{})
	for i := range 100 {
		add(t, o, store.Cost{Cell: cellNow(fmt.Sprint("k", i), time.Hour), Add: 1, Limit: 9})
	}
	_, next, err := o.Scan(t.Context(), 0, 0, 1)
	if err != nil || next == 0 {
		t.Fatalf("the first page: cursor %d, %v", next, err)
	}
	if _, _, err := o.Scan(t.Context(), 0, next, 1); err != nil {
		t.Errorf("the second page: %v", err)
	}
	const ofOtherNodes = 1 << 60 // a bit of the hash of the addresses
	if _, _, err := o.Scan(t.Context(), 0, next^ofOtherNodes, 1); err == nil {
		t.Error("a scan goes on among other nodes than it began with")
	}
}

// clusterCommand runs a command at the node that has the slot of its first key.
func clusterCommand(t testing.TB, nodes []*redis.Client, args ...any) {
	t.Helper()
	slot := int(nodes[0].ClusterKeySlot(t.Context(), args[1].(string)).Val())
	command(t, nodes[slot*3/slots], args...)
}
