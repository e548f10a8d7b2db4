package redisorigin

import (
	"fmt"
	"math"
	"math/big"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"
	"pgregory.net/rapid"

	"github.com/weirhq/weir/shared/window"
)

func cellOf(workspace, namespace, identifier string, d time.Duration, sequence int64) window.Cell {
	return window.Cell{Key: window.Key{Workspace: workspace, Namespace: namespace, Identifier: identifier, Duration: d}, Sequence: sequence}
}

func keyspaceOf(t testing.TB, prefix string) keyspace {
	t.Helper()
	l, err := newLayout(Options{Prefix: prefix})
	if err != nil {
		t.Fatal(err)
	}
	return newKeyspace(l.prefix)
}

// Operators see the keys, and nodes of different builds must agree on them.
func TestKeysAreTheDocumentedOnes(t *testing.T) {
	k := keyspaceOf(t, "")
	for want, c := range map[string]window.Cell{
		"weir:exact:{acme:api:alice:60000}:29340112":     cellOf("acme", "api", "alice", time.Minute, 29340112),
		"weir:exact:{a%3Ab:c/d:e@f.g-h_i:1000}:-1":       cellOf("a:b", "c/d", "e@f.g-h_i", time.Second, -1),
		"weir:exact:{%7B%7D:%25%3A:%00%0A%20%7F:1000}:0": cellOf("{}", "%:", "\x00\n \x7f", time.Second, 0),
		"weir:exact:{é:🙂:\xff:1001}:7":                   cellOf("é", "🙂", "\xff", 1001*time.Millisecond, 7),
	} {
		if got := k.key(c); got != want {
			t.Errorf("key of %v is %q, want %q", c, got, want)
		}
		if got, err := k.cell(want); err != nil || got != c {
			t.Errorf("cell of %q is %v, %v", want, got, err)
		}
	}
	reset := cellOf("w", "n", "i", time.Second, 1)
	reset.Generation = window.GenerationMax
	const since = "weir:exact:{w:n:i:1000}:1:32767"
	if got := k.key(reset); got != since {
		t.Errorf("since a reset: %q", got)
	}
	if got, err := k.cell(since); err != nil || got != reset {
		t.Errorf("cell of %q is %v, %v", since, got, err)
	}
	estimated := cellOf("w", "n", "i", time.Second, 1)
	estimated.Mode = window.Estimate
	k = keyspaceOf(t, "prod:weir")
	const want = "prod:weir:estimate:{w:n:i:1000}:1"
	if got := k.key(estimated); got != want {
		t.Errorf("with a prefix, in the other mode: %q", got)
	}
	if got, err := k.cell(want); err != nil || got != estimated {
		t.Errorf("cell of %q is %v, %v", want, got, err)
	}
}

func TestForeignKeysAreRefused(t *testing.T) {
	k := keyspaceOf(t, "")
	for _, key := range []string{
		"", "x", "weir:exact:", "weir:exact:{a:b:c:1000}", "weir:exact:{a:b:c:1000}:", "weir:exact:{a:b:c}:1", "weir:exact:{a:b:c:1000}:1:0", "weir:exact:{a:b:c:1000}:1:", "weir:exact:{a:b:c:1000}:1:02", "weir:exact:{a:b:c:1000}:1:65536", "weir:exact:{a:b:c:1000}:1:2:3",
		"weir:other:{a:b:c:1000}:1", "weir:exact:{a:b:c:d:1000}:1", "weir:exact:{a:b:c:x}:1", "weir:exact:{a:b:c:1000}:x",
		"weir:exact:{a:b:c:1000}:01", "weir:exact:{a:b:c:+1000}:1", // other spellings
		"weir:exact:{%61:b:c:1000}:1", "weir:exact:{%3a:b:c:1000}:1", "weir:exact:{%:b:c:1000}:1", "weir:exact:{%zz:b:c:1000}:1", "weir:exact:{a b:b:c:1000}:1",
		"weir:exact:{:b:c:1000}:1", "weir:exact:{a::c:1000}:1", "weir:exact:{a:b::1000}:1", "weir:exact:{a:b:c:999}:1", // out of bounds
		"weir:exact:{a:b:c:1000}:-3", "weir:exact:{a:b:c:1000}:9223372036854775807", "weir:exact:{a:b:c:1000}:1:32768",
		"weir:exact:{a:b:c:9223372036854775807}:1", // milliseconds that no duration holds
	} {
		if c, err := k.cell(key); err == nil {
			t.Errorf("%q is %v", key, c)
		}
	}
}

func TestPrefixIsChecked(t *testing.T) {
	for _, c := range []struct{ prefix, says string }{
		{"a{", "Prefix"}, {"a b", "Prefix"}, {"é", "Prefix"}, {"\x00", "Prefix"}, {strings.Repeat("p", 65), "65 bytes"},
	} {
		if _, err := newLayout(Options{Prefix: c.prefix}); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("prefix %q: %v", c.prefix, err)
		}
	}
}

// decode(encode(x)) == x for all x, so no two cells share a key. A Cluster hashes the text in the first braces, which
// must be all but the sequence.
func FuzzKey(f *testing.F) {
	f.Add("acme", "api", "alice", int64(60000), int64(29340112))
	f.Add("", ":", "::", int64(1000), int64(0))
	f.Add("{", "}", "{}", int64(1000), int64(-1))
	f.Add("%3A", "%", "%%", int64(1), int64(math.MaxInt64))
	f.Add("\x00", "\xff", "é", int64(31622400000), int64(math.MinInt64))
	k := keyspaceOf(f, "")
	f.Fuzz(func(t *testing.T, workspace, namespace, identifier string, durationMs, sequence int64) {
		if durationMs < 0 || durationMs > math.MaxInt64/int64(time.Millisecond) {
			durationMs = 1000
		}
		c := cellOf(workspace, namespace, identifier, time.Duration(durationMs)*time.Millisecond, sequence)
		key := k.key(c)
		switch got, err := k.cell(key); {
		case c.Validate() != nil && err == nil:
			t.Fatalf("%q is the key of %#v, which is out of bounds", key, got)
		case c.Validate() == nil && (err != nil || got != c):
			t.Fatalf("%q is the key of %#v and of %#v, %v", key, c, got, err)
		}
		if strings.ContainsAny(key, " \n\r\x00") || strings.Count(key, "{") != 1 || strings.Count(key, "}") != 1 {
			t.Fatalf("%q does not print on one line, or has other braces than its own", key)
		}
		next := c
		next.Sequence++
		if tag, nextTag := hashTag(key), hashTag(k.key(next)); tag != nextTag || tag == "" {
			t.Fatalf("%q and %q are hashed by %q and %q", key, k.key(next), tag, nextTag)
		}
	})
}

// hashTag implements the rule of the Redis Cluster specification: the text between the first opening brace and the
// first closing brace after it, if it is not empty.
func hashTag(key string) string {
	_, tail, ok := strings.Cut(key, "{")
	if !ok {
		return ""
	}
	tag, _, _ := strings.Cut(tail, "}")
	return tag
}

// A key that is not Weir's is refused; an accepted key is spelled in a single way.
func FuzzForeignKey(f *testing.F) {
	f.Add("weir:exact:{acme:api:alice:60000}:29340112")
	f.Add("weir:exact:{%3a:%:%00:1000}:1")
	k := keyspaceOf(f, "")
	f.Fuzz(func(t *testing.T, key string) {
		if c, err := k.cell(key); err == nil && (k.key(c) != key || c.Validate() != nil) {
			t.Fatalf("%q is read as %v, whose key is %q: %v", key, c, k.key(c), c.Validate())
		}
	})
}

// A stored total is an integer as Redis writes it, and nothing else.
func FuzzParseCount(f *testing.F) {
	for _, s := range []string{"", "0", "1", "-1", "-0", "+1", "01", "1.0", "1e3", " 1", "9223372036854775807", "9223372036854775808", "x"} {
		f.Add(s)
	}
	canonical := regexp.MustCompile(`^(0|[1-9][0-9]*)$`)
	f.Fuzz(func(t *testing.T, s string) {
		n, ok := parseCount(s)
		exact, _ := new(big.Int).SetString(s, 10)
		want := canonical.MatchString(s) && exact.IsInt64()
		if ok != want || ok && n != exact.Int64() || !ok && n != 0 {
			t.Fatalf("%q is read as %d, %v", s, n, ok)
		}
	})
}

func TestJitterIsBoundedStableAndSpread(t *testing.T) {
	if got := jitter("weir:exact:{acme:api:alice:60000}:29340112", time.Minute); got != 1_921_611_457 {
		t.Errorf("the jitter of a key has changed: %d", got)
	}
	rapid.Check(t, func(t *rapid.T) {
		key := rapid.String().Draw(t, "key")
		d := time.Duration(rapid.Int64Range(1000, window.DurationMax.Milliseconds()).Draw(t, "ms")) * time.Millisecond
		if j := jitter(key, d); j < 0 || j > min(d/10, time.Minute) || j != jitter(key, d) {
			t.Fatalf("jitter of %v is %v", d, j)
		}
	})
	tenths := make([]int, 10)
	for i := range 10000 {
		tenths[min(9, jitter(fmt.Sprint("weir:exact:{acme:api:user-", i, ":3600000}:489001"), time.Hour)/(6*time.Second))]++
	}
	for i, n := range tenths {
		if n < 800 || n > 1200 {
			t.Errorf("%d of 10,000 keys fall into tenth %d: %v", n, i, tenths)
		}
	}
}

// Conformance (estimate) 16: "a stable per-key jitter that is not correlated with the shard choice": keys of a
// partition expire as spread as all keys do.
func TestJitterIsNotThePartition(t *testing.T) {
	const partitions, all = 4, 20_000
	keys := keyspaceOf(t, "")
	o := &Origin{layout: &layout{}, seeds: make([]uint64, partitions)}
	for n := range o.seeds {
		o.seeds[n] = xxhash.Sum64String(fmt.Sprint("redis-", n))
	}
	var tenths [partitions][10]int
	for i := range all {
		c := cellOf("acme", "api", fmt.Sprint("user-", i), time.Hour, 489001)
		tenth := min(9, jitter(keys.key(c), c.Duration)/(6*time.Second))
		tenths[o.ShardOf(&c.Key)][tenth]++
	}
	const ideal = all / partitions / 10
	for n := range tenths {
		for _, held := range tenths[n] {
			if held < ideal*8/10 || held > ideal*12/10 {
				t.Fatalf("keys of each partition by tenths of the jitter, want about %d: %v", ideal, tenths)
			}
		}
	}
}
