package storetest

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/dataplane/store"
)

func testDigests(t *testing.T, open func(t testing.TB) Store) {
	run := func(name string, f func(t *testing.T, s Store)) {
		t.Run(name, func(t *testing.T) { f(t, open(t)) })
	}
	run("are those of other regions, one for each node", testDigestsOfOthers)
	run("replace what the node said before", testDigestReplaced)
	run("expire", testDigestExpiry)
	run("are told again only when replaced", testDigestsSince)
	run("have filters of any bytes, up to DigestBytesMax", testDigestFilters)
	run("keep no reference to the filter", testDigestKeepsNothing)
}

func digest(node string, filter string) store.Digest {
	return store.Digest{Node: node, Keys: len(filter), Filter: []byte(filter),
		MadeAtMs: began.UnixMilli(), ExpiresAtMs: began.UnixMilli() + time.Hour.Milliseconds()}
}

func publishDigest(t *testing.T, s Store, region string, d store.Digest) {
	t.Helper()
	if err := s.PublishDigest(t.Context(), region, d); err != nil {
		t.Fatalf("digest of %q as %q: %v", d.Node, region, err)
	}
}

func digests(t *testing.T, s Store, region string, nowMs int64, after store.Cursor) ([]store.Digest, store.Cursor) {
	t.Helper()
	var got []store.Digest
	next, err := s.Digests(t.Context(), region, nowMs, after, func(d store.Digest) { got = append(got, d) })
	if err != nil {
		t.Fatalf("digests as %q: %v", region, err)
	}
	return got, next
}

func wantDigests(t *testing.T, s Store, region string, want ...store.Digest) {
	t.Helper()
	got, _ := digests(t, s, region, began.UnixMilli(), 0)
	same := func(a, b store.Digest) bool {
		return a.Region == b.Region && a.Node == b.Node && a.Keys == b.Keys && bytes.Equal(a.Filter, b.Filter) &&
			a.MadeAtMs == b.MadeAtMs && a.ExpiresAtMs == b.ExpiresAtMs
	}
	for _, w := range want {
		if !slices.ContainsFunc(got, func(g store.Digest) bool { return same(g, w) }) {
			t.Errorf("as %q: the digest of %q in %q is missing or another", region, w.Node, w.Region)
		}
	}
	if len(got) != len(want) {
		t.Errorf("as %q: %d digests, want %d", region, len(got), len(want))
	}
}

func of(region string, d store.Digest) store.Digest {
	d.Region = region
	return d
}

func testDigestsOfOthers(t *testing.T, s Store) {
	a, b := digest("n", "first"), digest("N", "second")
	publishDigest(t, s, "us", a)
	publishDigest(t, s, "us", b)
	publishDigest(t, s, "ap", a)
	publishDigest(t, s, "eu", of("us", digest("liar", "x"))) // it is eu's whatever it says
	wantDigests(t, s, "eu", of("us", a), of("us", b), of("ap", a))
	wantDigests(t, s, "us", of("ap", a), of("eu", digest("liar", "x")))
	wantDigests(t, s, "EU", of("us", a), of("us", b), of("ap", a), of("eu", digest("liar", "x")))
}

func testDigestReplaced(t *testing.T, s Store) {
	first, second := digest("n", "a longer filter"), digest("n", "short")
	second.MadeAtMs, second.ExpiresAtMs = first.MadeAtMs-5, first.ExpiresAtMs-5
	publishDigest(t, s, "us", first)
	publishDigest(t, s, "us", second)
	wantDigests(t, s, "eu", of("us", second))
}

func testDigestExpiry(t *testing.T, s Store) {
	d := digest("n", "x")
	publishDigest(t, s, "us", d)
	for nowMs, want := range map[int64]int{d.ExpiresAtMs - 1: 1, d.ExpiresAtMs: 0, d.ExpiresAtMs + 1: 0} {
		if got, _ := digests(t, s, "eu", nowMs, 0); len(got) != want {
			t.Errorf("%d ms before its end: %d digests, want %d", d.ExpiresAtMs-nowMs, len(got), want)
		}
	}
}

func testDigestsSince(t *testing.T, s Store) {
	publishDigest(t, s, "us", digest("a", "x"))
	publishDigest(t, s, "us", digest("b", "x"))
	_, cursor := digests(t, s, "eu", began.UnixMilli(), 0)
	deadline := time.Now().Add(quietWithin)
	quiet := func() {
		for {
			got, next := digests(t, s, "eu", began.UnixMilli(), cursor)
			if cursor = next; len(got) == 0 {
				return
			}
			if time.Now().After(deadline) {
				t.Fatal("what was told before is told again and again")
			}
		}
	}
	quiet()
	publishDigest(t, s, "us", digest("b", "y"))
	got, _ := digests(t, s, "eu", began.UnixMilli(), cursor)
	if len(got) != 1 || got[0].Node != "b" || string(got[0].Filter) != "y" {
		t.Errorf("after b was replaced: %+v", got)
	}
}

func testDigestFilters(t *testing.T, s Store) {
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	want := []store.Digest{
		of("us", digest("none", "")),
		of("us", digest("every byte", string(every))),
		of("us", digest(strings.Repeat("n", 64), strings.Repeat("\x00", store.DigestBytesMax))),
	}
	for _, d := range want {
		publishDigest(t, s, "us", d)
	}
	wantDigests(t, s, "eu", want...)
	tooLong := digest("n", strings.Repeat("x", store.DigestBytesMax+1))
	if err := s.PublishDigest(t.Context(), "us", tooLong); !errors.Is(err, store.ErrRefused) {
		t.Errorf("a filter that is too long: %v, want ErrRefused", err)
	}
	wantDigests(t, s, "eu", want...)
}

func testDigestKeepsNothing(t *testing.T, s Store) {
	d := digest("n", "abc")
	publishDigest(t, s, "us", d)
	d.Filter[0] = 'X'
	wantDigests(t, s, "eu", of("us", digest("n", "abc")))
	got, _ := digests(t, s, "eu", began.UnixMilli(), 0)
	got[0].Filter[0] = 'X'
	wantDigests(t, s, "eu", of("us", digest("n", "abc")))
}
