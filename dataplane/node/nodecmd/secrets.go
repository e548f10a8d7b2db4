package nodecmd

import (
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"slices"
	"strings"

	"github.com/go-sql-driver/mysql"

	"github.com/weirhq/weir/dataplane/redisorigin"
	"github.com/weirhq/weir/shared/mysqldsn"
)

// The libraries' errors quote what they could not read, passwords included. Ours
// say what it should have looked like.
var (
	errRedisURL = errors.New("cannot be read: want redis://[user:password@]host:port[/db], or rediss:// for TLS, " +
		"?cluster=true for a cluster; several servers as name=redis://… each, separated by spaces, all names different; " +
		"max_retries and skip_verify must not be set")
	errMySQLDSN = errors.New("cannot be read: want user:password@tcp(host:3306)/database")
)

// masked replaces a password wherever a configuration is shown, as package url does it.
const masked = "xxxxx"

// redisURLs are the partitions that redis-url lists, one to a word.
func redisURLs(list string) []string { return strings.Fields(list) }

func checkRedisURL(list string) error { return redisURLError(redisorigin.CheckURLs(redisURLs(list))) }

// redisURLError is an error about redis-url without its secrets: which file cannot be
// used, or what the URL should look like.
func redisURLError(err error) error {
	var file *redisorigin.FileError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &file):
		return fmt.Errorf("names a file that cannot be used: %w", file)
	}
	return errRedisURL
}

func parseMySQLDSN(dsn string) (*mysql.Config, error) {
	config, err := mysqldsn.Parse(dsn)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return nil, err // of a file that it names
	}
	if err != nil || config.DBName == "" || config.Net != "tcp" && config.Net != "unix" {
		return nil, errMySQLDSN
	}
	return config, nil
}

// mask shows a secret without its password: where, and as whom.
func mask(name, value string) string {
	switch {
	case value == "":
		return ""
	case name == "redis-url":
		return maskRedisURL(value)
	case name == "mysql-dsn":
		config, err := parseMySQLDSN(value)
		if err != nil {
			return masked // any part of it may be the password
		}
		if config.Passwd != "" {
			config.Passwd = masked
		}
		return config.FormatDSN()
	}
	return value
}

func maskRedisURL(list string) string {
	if err := checkRedisURL(list); errors.Is(err, errRedisURL) {
		return masked // any part of it may be the password
	}
	shown := redisURLs(list)
	for i, nameAndURL := range shown {
		name, rawURL := redisorigin.SplitName(nameAndURL)
		u, err := url.Parse(rawURL)
		if err != nil {
			return masked
		}
		shown[i] = u.Redacted()
		if name != "" {
			shown[i] = name + "=" + shown[i]
		}
	}
	return strings.Join(shown, " ")
}

// holdsPassword reports whether a secret holds a password. What cannot be parsed is
// refused elsewhere, for that reason.
func holdsPassword(name, value string) bool {
	switch name {
	case "redis-url":
		return slices.ContainsFunc(redisURLs(value), func(nameAndURL string) bool {
			_, rawURL := redisorigin.SplitName(nameAndURL)
			u, err := url.Parse(rawURL)
			if err != nil {
				return false
			}
			_, ok := u.User.Password()
			return ok
		})
	case "mysql-dsn":
		config, err := mysqldsn.Parse(value)
		return err == nil && config.Passwd != ""
	}
	return false
}
