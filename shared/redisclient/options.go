// Package redisclient opens Redis for every program: nodes, and weir-control for its doctor. It has the only parser of
// a Redis URL, so that each program takes each layout:
//
//	redis://[user:password@]host[:port][/database]       rediss:// for TLS
//	redis://host?addr=host2:port&addr=host3:port         a Cluster, by some of its nodes
//	redis://host?cluster=true                            a Cluster, by its only address
//	redis://host?master=name[&addr=host2:port]           by Sentinels
//	unix://[user:password@]/path/to/socket
//
// and parameters:
//
//	password_file           holds the password; it is read for each connection, so that it can be changed
//	sentinel_username, sentinel_password_file            for the Sentinels, read once
//	tls_ca_file             trusts the certificates that these (PEM) have signed, and no others; read once
//	tls_cert_file, tls_key_file                          a certificate of this client; read for each connection
//	tls_server_name         the name in the server's certificate, if it is not the host
//
// and go-redis's own parameters, such as pool_size, min_idle_conns, dial_timeout, read_timeout and conn_max_lifetime (5
// minutes unless set, 0 for none); but neither max_retries, as every command is sent once, nor skip_verify. Files that
// cannot be read are an error, a FileError. Errors never contain the password.
package redisclient

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// Timeouts unless the URL has others. Calls have shorter deadlines of their own. The timeouts apply to work without a
// deadline, and to connections that are made ahead of need.
const (
	dialTimeout = time.Second
	ioTimeout   = time.Second
	poolTimeout = time.Second
)

// A connection ends after connLifetime, more or less by up to connLifetimeJitter, unless the URL has conn_max_lifetime.
// So connections move to the server to which a name points now, as MySQL connections do. The jitter spreads the new
// connections of nodes that were started at the same time.
const (
	connLifetime       = 5 * time.Minute
	connLifetimeJitter = time.Minute
)

// Options returns the options of a client from a URL. Every command is sent once, and deadlines of a context hold.
func Options(rawURL string) (*redis.UniversalOptions, error) {
	u, err := url.Parse(rawURL)
	if err != nil {
		return nil, errUnparsable // err would quote it, password and all
	}
	if delimiters := delimitersOf(u, rawURL); u.Fragment != "" || delimiters > 1 || delimiters == 1 && u.User == nil {
		// The URL's own error would quote parts of a password that contains a delimiter.
		return nil, errors.New("the Redis URL cannot be parsed: '@', '#', '?', '/' and '%' in names and " +
			"passwords are written %40, %23, %3F, %2F and %25")
	}
	if err := checkScheme(u.Scheme); err != nil {
		return nil, err
	}
	q, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, errUnparsable
	}
	p, err := takeParameters(q)
	if err != nil {
		return nil, fmt.Errorf("the Redis URL has %w", err)
	}
	u.RawQuery = q.Encode()
	o, err := redis.ParseURL(u.String())
	if err == nil {
		err = p.checkAddresses(u, o)
	}
	if err != nil {
		return nil, fmt.Errorf("the Redis URL: %w", err)
	}
	if o.TLSConfig != nil && p.severalServers() {
		o.TLSConfig.ServerName = "" // each connection checks the name of its own server
	}
	if err := p.secure(o); err != nil {
		return nil, fmt.Errorf("the Redis URL: %w", err)
	}
	dialTimeout := cmp.Or(o.DialTimeout, dialTimeout)
	lifetime, jitter := o.ConnMaxLifetime, time.Duration(0)
	if lifetime == 0 { // the parser makes -1 of a 0 in the URL
		lifetime, jitter = connLifetime, connLifetimeJitter
	}
	return &redis.UniversalOptions{
		Addrs:         append([]string{o.Addr}, p.addresses...),
		IsClusterMode: p.cluster,
		MasterName:    p.master,
		Username:      o.Username,
		Password:      o.Password,
		DB:            o.DB,
		TLSConfig:     o.TLSConfig,
		ClientName:    o.ClientName,

		CredentialsProviderContext: o.CredentialsProviderContext,
		SentinelUsername:           p.sentinelUsername,
		SentinelPassword:           p.sentinelPassword,

		MaxRetries:            -1, // a lost reply may be of a command that was run
		MaxRedirects:          -1, // go-redis repeats a Cluster's lost calls as it follows redirections
		ContextTimeoutEnabled: true,
		Dialer:                dialer(dialTimeout, o.TLSConfig),
		OnConnect:             greet,
		DialTimeout:           dialTimeout,
		DialerRetries:         1, // a dead server is reported at once, and the next tick tries again
		ReadTimeout:           cmp.Or(o.ReadTimeout, ioTimeout),
		WriteTimeout:          cmp.Or(o.WriteTimeout, ioTimeout),

		PoolTimeout:      cmp.Or(o.PoolTimeout, poolTimeout),
		PoolSize:         o.PoolSize,
		PoolFIFO:         o.PoolFIFO,
		MinIdleConns:     max(o.MinIdleConns, 1), // so that the first decision need not dial
		MaxIdleConns:     o.MaxIdleConns,
		MaxActiveConns:   o.MaxActiveConns,
		ConnMaxIdleTime:  o.ConnMaxIdleTime,
		ConnMaxLifetime:  lifetime,
		PipelinePoolSize: -1, // everything is a pipeline: a second pool would only be another to fill

		ConnMaxLifetimeJitter: jitter,

		Protocol:                 2, // nothing here needs version 3, in which servers may speak unasked
		DisableIdentity:          true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}, nil
}

// greet pings the server before a connection carries a script. A server closes a connection that sends much without the
// required password, at times before it has sent the reason.
func greet(ctx context.Context, c *redis.Conn) error { return c.Ping(ctx).Err() }

// errUnparsable contains nothing of the parser's error, which would quote a password.
var errUnparsable = errors.New("the Redis URL cannot be parsed, want redis://[user:password@]host:port[/db]")

// checkScheme returns an error that lists the valid schemes, because redis.ParseURL's does not.
func checkScheme(scheme string) error {
	switch scheme {
	case "redis", "rediss", "unix":
		return nil
	}
	return fmt.Errorf("the Redis URL begins with %q, want redis://, rediss:// (TLS) or unix:// (a socket)", scheme+":")
}

// delimitersOf counts the '@' of a URL except in paths, where they are common: for example
// /run/credentials/weir-node@eu.service/ca.pem.
func delimitersOf(u *url.URL, rawURL string) int {
	n := strings.Count(rawURL, "@")
	if u.Scheme == "unix" && u.Host == "" {
		n -= strings.Count(u.EscapedPath(), "@")
	}
	for pair := range strings.SplitSeq(u.RawQuery, "&") {
		if name, value, _ := strings.Cut(pair, "="); strings.HasSuffix(name, "_file") && strings.HasPrefix(value, "/") &&
			parameterChecks[name] != nil {
			n -= strings.Count(value, "@")
		}
	}
	return n
}
