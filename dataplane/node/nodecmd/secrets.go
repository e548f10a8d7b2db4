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

// checkRedisURL reports what is wrong with redis-url. No error holds a password.
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

// checkMySQLDSN reports what is wrong with mysql-dsn. No error holds a password.
func checkMySQLDSN(dsn string) error {
	_, err := mysqldsn.Parse(dsn)
	if err == nil || errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return err // about a file that the DSN names
	}
	return errors.New(strings.TrimPrefix(err.Error(), "the MySQL DSN ")) // the caller names the flag instead
}

// mask shows a secret without its password: where, and as whom.
func mask(name, value string) string {
	switch name {
	case "redis-url":
		return redisclient.Mask(value)
	case "mysql-dsn":
		return mysqldsn.Mask(value)
	}
	return value
}

// holdsPassword reports whether a secret holds a password. What cannot be parsed is
// refused elsewhere, for that reason.
func holdsPassword(name, value string) bool {
	switch name {
	case "redis-url":
		return redisclient.HoldsPassword(value)
	case "mysql-dsn":
		return mysqldsn.HoldsPassword(value)
	}
	return false
}
