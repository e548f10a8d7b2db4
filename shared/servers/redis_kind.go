package servers

import (
	"context"
	"fmt"
	"path/filepath"
	"regexp"
)

// RedisKind is a kind of server that speaks Redis' protocol.
type RedisKind string

// Kinds differ in commands, replies and limits, so tests use them by turns (see [RedisKindOf]).
const (
	SystemRedis RedisKind = "redis"  // the redis-server of the system, which `make run` uses
	Valkey      RedisKind = "valkey" // 9 or newer
	Redis8      RedisKind = "redis8" // 8 or newer
)

// RedisKinds returns all kinds.
func RedisKinds() []RedisKind { return []RedisKind{SystemRedis, Valkey, Redis8} }

// redisPrograms are the names of each kind's server, and the version that it must print. SystemRedis may have any
// version.
var redisPrograms = map[RedisKind]struct {
	variable, program string
	version           *regexp.Regexp
}{
	SystemRedis: {"REDIS_SERVER_BIN", "redis-server", nil},
	Valkey:      {"VALKEY_SERVER_BIN", "valkey-server", regexp.MustCompile(`^Valkey server v=(9|\d\d+)\.`)},
	Redis8:      {"REDIS8_SERVER_BIN", "redis-server", regexp.MustCompile(`^Redis server v=([89]|\d\d+)\.`)},
}

// FindRedis returns the path of a kind's server: the program that REDIS_SERVER_BIN, VALKEY_SERVER_BIN or
// REDIS8_SERVER_BIN names, or else a program on PATH, in the usual directory of distributions, or in the cache where
// `make setup` stores it (deploy/install/aside.sh).
func FindRedis(ctx context.Context, kind RedisKind) (string, error) {
	where, ok := redisPrograms[kind]
	if !ok {
		return "", fmt.Errorf("%q is no kind of Redis, want one of %q", kind, RedisKinds())
	}
	programs := []string{where.program, filepath.Join("/usr/sbin", where.program)}
	if cache, err := cacheDirectory(); err == nil {
		programs = append(programs, filepath.Join(cache, string(kind), where.program))
	}
	return find(string(kind), where.variable, func(path string) error {
		if where.version == nil {
			return nil
		}
		version, err := versionOf(ctx, path)
		if err == nil && !where.version.MatchString(version) {
			err = fmt.Errorf("%s prints the version %q, want %s", path, version, where.version)
		}
		return err
	}, programs...)
}

// version describes the installed server of a kind.
func (kind RedisKind) version(ctx context.Context) string {
	path, err := FindRedis(ctx, kind)
	if err == nil {
		path, err = versionOf(ctx, path)
	}
	if err != nil {
		return err.Error()
	}
	return path
}
