package servers

import (
	"context"
	"fmt"
	"hash/fnv"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// RedisForTest starts a server of the test's kind (see [RedisKindOf]), with further arguments, and stops it when the
// test ends.
func RedisForTest(t testing.TB, args ...string) *Redis {
	t.Helper()
	r, err := StartRedis(t.Context(), RedisKindOf(t), Options{Args: args})
	if err != nil {
		t.Fatal(err)
	}
	cleanUp(t, r.Process)
	return r
}

// RedisKindOf returns the kind of server that a test and all of its subtests use. If the test fails, its log has the
// kind and the version.
//
// WEIR_REDIS chooses the kind: "redis", "valkey" or "redis8" for all tests. With a whole number, which `make test`
// takes from the commit, tests use the kinds by turns: a run covers all kinds, and a test uses each kind at some
// commits. Empty means "redis".
func RedisKindOf(t testing.TB) RedisKind {
	t.Helper()
	test, _, _ := strings.Cut(t.Name(), "/")
	return RedisKindNamed(t, test)
}

// RedisKindNamed is RedisKindOf for a server that several tests share. They all give the same name.
func RedisKindNamed(t testing.TB, name string) RedisKind {
	t.Helper()
	kind, err := redisTurn(os.Getenv("WEIR_REDIS"), name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("ran with WEIR_REDIS=%s: %s", kind, kind.version(context.Background()))
		}
	})
	return kind
}

func redisTurn(choice, name string) (RedisKind, error) {
	kinds := RedisKinds()
	if choice == "" {
		return SystemRedis, nil
	}
	if kind := RedisKind(choice); slices.Contains(kinds, kind) {
		return kind, nil
	}
	commit, err := strconv.ParseUint(choice, 10, 64)
	if err != nil {
		return "", fmt.Errorf("WEIR_REDIS is %q, want one of %q or a whole number", choice, kinds)
	}
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(name))
	n := uint64(len(kinds))
	return kinds[(hash.Sum64()%n+commit%n)%n], nil
}
