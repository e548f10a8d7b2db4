package redisorigin_test

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/weirhq/weir/dataplane/redisorigin"
	"github.com/weirhq/weir/shared/redisclient"
	"github.com/weirhq/weir/shared/window"
)

// named returns an Origin whose partitions have these names, and which no call reaches.
func named(t testing.TB, names ...string) *redisorigin.Origin {
	t.Helper()
	var partitions []redisorigin.Partition
	for _, name := range names {
		client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1, ContextTimeoutEnabled: true})
		t.Cleanup(func() { client.Close() })
		partitions = append(partitions, redisorigin.Partition{Name: name, Client: client})
	}
	o, err := redisorigin.New(partitions, redisorigin.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func letters(n int) []string { return strings.Split("abcdefghijklmnopqrstuvwxyz"[:n], "") }

func userKey(i int) *window.Key {
	return &window.Key{Workspace: "acme", Namespace: "api", Identifier: fmt.Sprint("user-", i), Duration: time.Minute}
}

// partitionOf returns the name of the partition that holds a key.
func partitionOf(o *redisorigin.Origin, key *window.Key) string {
	return o.PartitionName(o.ShardOf(key))
}

// Nodes of different builds must agree on where a key is.
func TestPartitionsOfKeysAreTheDocumentedOnes(t *testing.T) {
	o := named(t, letters(3)...)
	for identifier, want := range map[string]string{"alice": "b", "bob": "b", "": "c", "a:b{c}": "a", strings.Repeat("é", 120): "c"} {
		key := &window.Key{Workspace: "acme", Namespace: "api", Identifier: identifier, Duration: time.Minute}
		if got := partitionOf(o, key); got != want {
			t.Errorf("%q is in partition %s, want %s", identifier, got, want)
		}
	}
}

// Conformance (estimate) 17: "100 keys over 3 → all used; the same key always the same;
// 4,000 keys over 2, 3, 4, 8 → each within half to twice the ideal".
func TestKeysAreBalanced(t *testing.T) {
	for _, c := range []struct{ keys, partitions int }{{100, 3}, {4000, 2}, {4000, 3}, {4000, 4}, {4000, 8}} {
		o := named(t, letters(c.partitions)...)
		if o.Shards() != c.partitions {
			t.Errorf("%d shards of %d partitions", o.Shards(), c.partitions)
		}
		held := make(map[string]int)
		for i := range c.keys {
			held[partitionOf(o, userKey(i))]++
		}
		ideal := c.keys / c.partitions
		for _, name := range letters(c.partitions) {
			if n := held[name]; n < ideal/2 || n > ideal*2 {
				t.Errorf("%d keys over %d partitions: %s has %d", c.keys, c.partitions, name, n)
			}
		}
	}
}

// Conformance (estimate) 17: "adding one of n moves about 1/n of the keys", and all of them to the added partition.
func TestAddingAPartitionMovesLittle(t *testing.T) {
	const keys = 4000
	for n := 1; n <= 8; n++ {
		before, after := named(t, letters(n)...), named(t, letters(n+1)...)
		added, moved := letters(n + 1)[n], 0
		for i := range keys {
			was, is := partitionOf(before, userKey(i)), partitionOf(after, userKey(i))
			if n > 1 && was != is && is != added {
				t.Fatalf("user-%d moved from %s to %s when %s was added", i, was, is, added)
			}
			if is == added {
				moved++
			}
		}
		if ideal := keys / (n + 1); moved < ideal*8/10 || moved > ideal*12/10 {
			t.Errorf("adding one to %d partitions moved %d of %d keys, want about %d", n, moved, keys, ideal)
		}
	}
}

// "Their order, addresses and health play no part in it"; and any key has a partition.
func TestPartitionsFollowFromNamesAlone(t *testing.T) {
	names := []string{"eu-1", "eu-2", "b", "a", "z.9_"}
	o, turned := named(t, names...), named(t, reversed(names)...)
	rapid.Check(t, func(t *rapid.T) {
		key := &window.Key{
			Workspace:  rapid.String().Draw(t, "workspace"),
			Namespace:  rapid.String().Draw(t, "namespace"),
			Identifier: rapid.String().Draw(t, "identifier"),
			Duration:   time.Duration(rapid.Int64Range(1000, window.DurationMax.Milliseconds()).Draw(t, "ms")) * time.Millisecond,
		}
		if a, b := partitionOf(o, key), partitionOf(turned, key); a != b || !slices.Contains(names, a) {
			t.Fatalf("%v is in partition %s and, in another order of them, in %s", key, a, b)
		}
	})
}

// A single server needs no hashing, and the choice among several allocates no memory.
func TestShardOfAllocatesNothing(t *testing.T) {
	one, three, key := named(t, ""), named(t, letters(3)...), userKey(1)
	if one.Shards() != 1 || one.ShardOf(key) != 0 {
		t.Errorf("%d shards, a key in shard %d", one.Shards(), one.ShardOf(key))
	}
	for _, o := range []*redisorigin.Origin{one, three} {
		if n := testing.AllocsPerRun(100, func() { o.ShardOf(key) }); n != 0 {
			t.Errorf("%v allocations over %d shards", n, o.Shards())
		}
	}
}

func TestNamesThatAreRefused(t *testing.T) {
	for says, urls := range map[string][]string{
		"at least one":            nil,
		"has no name":             {"a=redis://h:1", "redis://h:2"},
		"name of an earlier one":  {"a=redis://h:1", "a=redis://h:2"},
		"partition 1 of 1 has a ": {"ü=redis://h:1"},
		"part 1 of 2 is no URL":   {"a b=redis://h:1"},
		"65 bytes":                {strings.Repeat("n", 65) + "=redis://h:1"},
		"partition b":             {"a=redis://h:1", "b=redis://u:secret@h:1?max_retries=1"},
		"part 2 of 3 is no URL":   {"a=redis://h:1", "se cret=redis://u:secret@h:1"},
	} {
		if _, err := redisorigin.Open(urls, redisorigin.Options{}); err == nil || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v, want an error about %q", urls, err, says)
		}
	}
	for in, want := range map[string][2]string{
		"a=redis://h:1?cluster=true":    {"a", "redis://h:1?cluster=true"},
		"redis://h:1?cluster=true":      {"", "redis://h:1?cluster=true"},
		"redis://u:p=x@h:1":             {"", "redis://u:p=x@h:1"},
		"unix:///run/r.sock?db=1":       {"", "unix:///run/r.sock?db=1"},
		"eu-1=unix:///run/r.sock?db=1":  {"eu-1", "unix:///run/r.sock?db=1"},
		"redis:/u:secret@h?pool_size=1": {"", "redis:/u:secret@h?pool_size=1"},
	} {
		if name, rawURL := redisclient.SplitName(in); name != want[0] || rawURL != want[1] {
			t.Errorf("%s is %q and %q", in, name, rawURL)
		}
	}
}

func reversed(names []string) []string {
	names = slices.Clone(names)
	slices.Reverse(names)
	return names
}
