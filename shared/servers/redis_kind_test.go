package servers

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Every kind is the server, in the version, that its comment promises. The server itself says so.
func TestEveryKindOfRedisIsWhatItsNameSays(t *testing.T) {
	t.Parallel()
	for kind, want := range map[RedisKind]struct {
		field string
		major int
		is    bool // Valkey
	}{
		SystemRedis: {"redis_version", 6, false},
		Valkey:      {"valkey_version", 9, true},
		Redis8:      {"redis_version", 8, false},
	} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			r, err := StartRedis(t.Context(), kind, Options{})
			must(t, err)
			cleanUp(t, r.Process)
			info := redisClient(t, r.Addr()).InfoMap(t.Context(), "server").Val()["Server"]
			major, _, _ := strings.Cut(info[want.field], ".")
			if n, err := strconv.Atoi(major); err != nil || n < want.major {
				t.Errorf("%s is %q, want %d or newer", want.field, info[want.field], want.major)
			}
			if is := info["server_name"] == "valkey"; is != want.is {
				t.Errorf("the server's name is %q", info["server_name"])
			}
		})
	}
}

// "a run covers all kinds, and a test uses each kind at some commits"
func TestRedisByTurns(t *testing.T) {
	const names, commits = 12, 100
	for commit := range commits {
		run := map[RedisKind]bool{}
		for i := range names {
			kind, err := redisTurn(strconv.Itoa(commit), fmt.Sprint("TestNumber", i))
			must(t, err)
			run[kind] = true
		}
		if len(run) != len(RedisKinds()) {
			t.Errorf("commit %d runs on %v alone", commit, run)
		}
	}
	for i := range names {
		var met []RedisKind
		for commit := uint64(1<<32 - 1); len(met) < len(RedisKinds()); commit++ {
			kind, err := redisTurn(strconv.FormatUint(commit, 10), fmt.Sprint("TestNumber", i))
			must(t, err)
			if slices.Contains(met, kind) {
				t.Fatalf("test %d meets %v and again %s", i, met, kind)
			}
			met = append(met, kind)
		}
	}
}

func TestRedisIsChosen(t *testing.T) {
	for choice, want := range map[string]RedisKind{
		"": SystemRedis, "redis": SystemRedis, "valkey": Valkey, "redis8": Redis8, "Valkey": "", "-1": "", "both": "",
	} {
		got, err := redisTurn(choice, t.Name())
		if got != want || (err != nil) != (want == "") {
			t.Errorf("%q: %q, %v; want %q", choice, got, err, want)
		}
		if err != nil && !strings.Contains(err.Error(), fmt.Sprintf(`WEIR_REDIS is %q, want one of ["redis" "valkey" "redis8"]`, choice)) {
			t.Errorf("%q: %v", choice, err)
		}
	}
}

// "the kind of server that a test and all of its subtests use"
func TestSubtestsUseTheRedisOfTheirTest(t *testing.T) {
	t.Setenv("WEIR_REDIS", "7")
	want := RedisKindOf(t)
	for i := range 10 {
		t.Run(strconv.Itoa(i), func(t *testing.T) {
			if got := RedisKindOf(t); got != want {
				t.Errorf("uses %s, its test %s", got, want)
			}
		})
	}
}

// failing is a test that has failed.
type failing struct {
	testing.TB

	cleanup func()
	log     strings.Builder
}

func (*failing) Failed() bool                 { return true }
func (f *failing) Cleanup(c func())           { f.cleanup = c }
func (f *failing) Logf(how string, of ...any) { fmt.Fprintf(&f.log, how, of...) }

// "If the test fails, its log has the kind and the version."
func TestAFailedTestNamesItsRedis(t *testing.T) {
	t.Setenv("WEIR_REDIS", "valkey")
	f := &failing{TB: t}
	RedisKindOf(f)
	f.cleanup()
	if got := f.log.String(); !strings.Contains(got, "WEIR_REDIS=valkey: Valkey server v=") {
		t.Errorf("logs %q", got)
	}
}

const (
	saysValkey  = "Valkey server v=9.1.2 sha=00000000:0 malloc=jemalloc-5.3.1 bits=64 build=9108e8f1788612b"
	saysValkey8 = "Valkey server v=8.1.6 sha=00000000:0 malloc=jemalloc-5.3.0 bits=64 build=9108e8f1788612b"
	saysRedis7  = "Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.2.1 bits=64 build=a3f5dcda22ca1f8d"
	saysRedis8  = "Redis server v=8.0.6 sha=00000000:0 malloc=jemalloc-5.3.1 bits=64 build=4ff5c8d39231b5d1"
)

// A program on PATH of an earlier version, or of another kind, is not taken. A program that a variable names must be of
// the kind.
func TestAnotherKindsProgramIsNotTaken(t *testing.T) {
	bin, cache := t.TempDir(), t.TempDir()
	t.Setenv("PATH", bin)
	t.Setenv("XDG_CACHE_HOME", cache)
	t.Setenv("HOME", cache)
	dir, err := cacheDirectory()
	must(t, err)
	system := fakeServer(t, filepath.Join(bin, "redis-server"), saysRedis7)
	old := fakeServer(t, filepath.Join(bin, "valkey-server"), saysValkey8)
	kept := map[RedisKind]string{
		SystemRedis: system,
		Valkey:      fakeServer(t, filepath.Join(dir, "valkey", "valkey-server"), saysValkey),
		Redis8:      fakeServer(t, filepath.Join(dir, "redis8", "redis-server"), saysRedis8),
	}
	for _, kind := range RedisKinds() {
		if path, err := FindRedis(t.Context(), kind); err != nil || path != kept[kind] {
			t.Errorf("%s: %q, %v; want %q", kind, path, err, kept[kind])
		}
	}
	fakeServer(t, system, saysRedis8)
	fakeServer(t, old, saysValkey)
	for kind, want := range map[RedisKind]string{Valkey: old, Redis8: system} {
		if path, err := FindRedis(t.Context(), kind); err != nil || path != want {
			t.Errorf("%s: %q, %v; want the program of the system, %q", kind, path, err, want)
		}
	}
	t.Setenv("VALKEY_SERVER_BIN", system)
	if path, err := FindRedis(t.Context(), Valkey); err == nil || !strings.Contains(err.Error(), saysRedis8) {
		t.Errorf("Redis named as Valkey: %q, %v", path, err)
	}
	if _, err := FindRedis(t.Context(), "keydb"); err == nil {
		t.Error("an unknown kind is found")
	}
}

// redisFinder finds a kind's program as the other servers' are found.
func redisFinder(t *testing.T, kind RedisKind) func() (string, error) {
	return func() (string, error) { return FindRedis(t.Context(), kind) }
}

// fakeServer writes a program that reports the given version.
func fakeServer(t *testing.T, path, version string) string {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(path), 0o700))
	must(t, os.WriteFile(path, []byte("#!/bin/sh\necho '"+version+"'\n"), 0o700))
	return path
}
