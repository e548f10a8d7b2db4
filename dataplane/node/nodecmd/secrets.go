package nodecmd

import (
	"errors"
	"net/url"

	"github.com/go-sql-driver/mysql"

	"github.com/weirhq/weir/dataplane/redisorigin"
)

// The libraries' errors quote what they could not read, passwords included. Ours
// say what it should have looked like.
var (
	errRedisURL = errors.New("cannot be read: want redis://[user:password@]host:port[/db], or rediss:// for TLS, ?cluster=true for a cluster; max_retries must not be set")
	errMySQLDSN = errors.New("cannot be read: want user:password@tcp(host:3306)/database")
)

// masked stands for a password wherever a configuration is shown; it is package
// url's word for one.
const masked = "xxxxx"

func checkRedisURL(rawURL string) error {
	if _, err := redisorigin.ClientOptions(rawURL); err != nil {
		return errRedisURL
	}
	return nil
}

func parseMySQLDSN(dsn string) (*mysql.Config, error) {
	config, err := mysql.ParseDSN(dsn)
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
		if err := checkRedisURL(value); err != nil {
			return masked // whatever part of it the password is
		}
		u, _ := url.Parse(value)
		return u.Redacted()
	case name == "mysql-dsn":
		config, err := parseMySQLDSN(value)
		if err != nil {
			return masked // whatever part of it the password is
		}
		if config.Passwd != "" {
			config.Passwd = masked
		}
		return config.FormatDSN()
	}
	return value
}

// holdsPassword reports whether a secret is one. What cannot be read is refused
// anyway, for that.
func holdsPassword(name, value string) bool {
	switch name {
	case "redis-url":
		u, err := url.Parse(value)
		if err != nil {
			return false
		}
		_, ok := u.User.Password()
		return ok
	case "mysql-dsn":
		config, err := mysql.ParseDSN(value)
		return err == nil && config.Passwd != ""
	}
	return false
}
