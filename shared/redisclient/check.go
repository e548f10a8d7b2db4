package redisclient

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirhq/weir/shared/strict"
)

const (
	databaseMax = 1 << 20 // more than any server has
	sizeMax     = 1_000_000
	timeoutMax  = 10 * time.Minute
	ageMax      = 366 * 24 * time.Hour
	nameMax     = 256 // bytes
)

// parameterChecks holds a check for each parameter that a URL may have. go-redis reads some of its
// own parameters leniently: for example, 5 as 5 s, and -1s as no timeout at all.
var parameterChecks = map[string]func(name, value string) error{
	"addr":    strict.Address,
	"cluster": truth, "pool_fifo": truth,
	"master": named, "client_name": named, "sentinel_username": named,
	"tls_server_name": strict.Host,

	"password_file": path, "sentinel_password_file": path,
	"tls_ca_file": path, "tls_cert_file": path, "tls_key_file": path,

	"db":       number(0, databaseMax),
	"protocol": number(2, 3), // accepted without effect: see Options

	"pool_size": number(1, sizeMax), "min_idle_conns": number(0, sizeMax), "max_idle_conns": number(0, sizeMax),
	"max_active_conns": number(0, sizeMax),

	"dial_timeout": duration(time.Millisecond, timeoutMax), "read_timeout": duration(time.Millisecond, timeoutMax),
	"write_timeout": duration(time.Millisecond, timeoutMax), "pool_timeout": duration(time.Millisecond, timeoutMax),
	"conn_max_idle_time": duration(0, ageMax), "conn_max_lifetime": duration(0, ageMax),
	"idle_timeout": duration(0, ageMax), "max_conn_age": duration(0, ageMax),
}

func number(low, high int64) func(name, value string) error {
	return func(name, value string) error {
		_, err := strict.Int(name, value, low, high)
		return err
	}
}

func duration(low, high time.Duration) func(name, value string) error {
	return func(name, value string) error {
		_, err := strict.TimeDuration(name, value, low, high)
		return err
	}
}

func truth(name, value string) error {
	_, err := strict.Bool(name, value)
	return err
}

func named(name, value string) error { return strict.Name(name, value, nameMax) }

func path(name, value string) error {
	if value == "" {
		return fmt.Errorf("%s is empty, want the path of a file", name)
	}
	return nil
}

// checkParameters returns an error for parameters that are unknown, empty, wrong, or set twice.
func checkParameters(q url.Values) error {
	switch {
	case q.Has("max_retries"):
		return errors.New("max_retries must not be set: a command that is sent twice counts twice")
	case q.Has("skip_verify"):
		return errors.New("skip_verify must not be set: name the trusted CAs with tls_ca_file, and the server with " +
			"tls_server_name")
	}
	for _, name := range slices.Sorted(maps.Keys(q)) {
		check, values := parameterChecks[name], q[name]
		if check == nil {
			return fmt.Errorf("an unknown parameter%s (known: %s)", slip(name),
				strings.Join(slices.Sorted(maps.Keys(parameterChecks)), ", "))
		}
		if len(values) > 1 && name != "addr" {
			return fmt.Errorf("%s %d times, want it once", name, len(values))
		}
		for _, value := range values {
			if err := check(name, value); err != nil {
				return fmt.Errorf("a wrong parameter: %w", err)
			}
		}
	}
	return nil
}

// checkAddresses returns an error for a list of servers where only a single server is allowed, and for a database that
// would be ignored.
func (p parameters) checkAddresses(u *url.URL, o *redis.Options) error {
	if o.Network == "unix" {
		if p.severalServers() {
			return errors.New("a socket is one server: addr, cluster and master must not be set")
		}
		return nil
	}
	if strings.ContainsAny(u.Host, ",; ") {
		return fmt.Errorf("the host is %s, want one host:port: further servers of a Cluster or Sentinel are named with "+
			"&addr=host:port, and independent servers as name=URL each", strict.Quote(u.Host))
	}
	if err := strict.Address("the address", o.Addr); err != nil {
		return err
	}
	if text := strings.TrimPrefix(u.Path, "/"); text != "" {
		if _, err := strict.Int("the database", text, 0, databaseMax); err != nil {
			return err
		}
	}
	if o.DB != 0 && p.master == "" && p.severalServers() {
		return fmt.Errorf("the database is %d, and a Cluster has 0 alone", o.DB)
	}
	return nil
}

// slip names an unknown parameter and, if there is a similar known parameter, suggests it. Without a similar parameter
// it does not repeat the name, because the name may be part of a password.
func slip(name string) string {
	for _, known := range slices.Sorted(maps.Keys(parameterChecks)) {
		if strict.Misspells(name, known) {
			return fmt.Sprintf(", %s, did you mean %s?", strict.Quote(name), known)
		}
	}
	return ""
}
