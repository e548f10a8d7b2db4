package nodecmd

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/weirhq/weir/shared/mysqldsn"
	"github.com/weirhq/weir/shared/redisclient"
)

const wantRedisURL = "want redis://[user:password@]host:port[/db], or rediss:// for TLS, ?cluster=true for a " +
	"cluster; several servers as name=redis://… each, separated by spaces, all names different"

// checkRedisURL returns the fault of redis-url, if any. Errors contain no password.
func checkRedisURL(list string) error {
	_, err := redisclient.Targets(list)
	return redisURLError(err)
}

func redisURLError(err error) error {
	var file *redisclient.FileError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &file):
		return fmt.Errorf("names a file that cannot be used: %w", file)
	}
	return fmt.Errorf("cannot be read: %s: %w", wantRedisURL, err)
}

// checkMySQLDSN returns the fault of mysql-dsn, if any. Errors contain no password.
func checkMySQLDSN(dsn string) error {
	_, err := mysqldsn.Parse(dsn)
	if err == nil || errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return err // about a file that the DSN names
	}
	return errors.New(strings.TrimPrefix(err.Error(), "the MySQL DSN ")) // the caller names the flag instead
}

// secrets are the settings that may hold a password.
var secrets = map[string]struct {
	mask          func(string) string
	holdsPassword func(string) bool
}{
	"redis-url": {redisclient.Mask, redisclient.HoldsPassword},
	"mysql-dsn": {mysqldsn.Mask, mysqldsn.HoldsPassword},
}

// mask shows a setting without its password: where, and as whom.
func mask(name, value string) string {
	if s, ok := secrets[name]; ok {
		return s.mask(value)
	}
	return value
}

// holdsPassword reports whether a setting contains a password. Settings that cannot be parsed are rejected elsewhere.
func holdsPassword(name, value string) bool {
	s, ok := secrets[name]
	return ok && s.holdsPassword(value)
}
