package redisorigin_test

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirhq/weir/dataplane/redisorigin"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/await"
	"github.com/weirhq/weir/shared/servers"
	"github.com/weirhq/weir/shared/testcert"
	"github.com/weirhq/weir/shared/window"
)

// authority signs certificates of a test.
type authority struct {
	*testcert.Authority
	t    testing.TB
	file string
}

func newAuthority(t testing.TB) authority {
	a := testcert.New(t)
	return authority{a, t, textFile(t, string(a.PEM))}
}

// issue signs a certificate for a server of that name on this machine, and for a client.
func (a authority) issue(name string) (certFile, keyFile string) {
	a.t.Helper()
	dir := a.t.TempDir()
	certFile, keyFile = filepath.Join(dir, "certificate.pem"), filepath.Join(dir, "key.pem")
	a.Issue(a.t, name).Write(a.t, certFile, keyFile)
	return certFile, keyFile
}

func textFile(t testing.TB, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file.pem")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// tlsRedis starts a Redis that serves TLS at the address returned, as redis.test.
func tlsRedis(t testing.TB, a authority, args ...string) (addr string, raw *redis.Client) {
	t.Helper()
	certFile, keyFile := a.issue("redis.test")
	port := freePort(t)
	server := servers.RedisForTest(t, append([]string{
		"--tls-port", port, "--tls-cert-file", certFile, "--tls-key-file", keyFile, "--tls-ca-cert-file", a.file}, args...)...)
	return net.JoinHostPort("127.0.0.1", port), rawClient(t, server.Addr())
}

// certain expects an error from all calls with these words and without a secret. For a bounded cost the error must mean
// that nothing was applied.
func certain(ctx context.Context, t *testing.T, o *redisorigin.Origin, words ...string) {
	t.Helper()
	c := cellNow("x", time.Minute)
	_, readErr := o.Read(ctx, []window.Cell{c})
	_, sendErr := o.Send(ctx, store.Chunk{Stream: streams.Add(1), Number: 1, Costs: []store.Cost{{Cell: c, Add: 1}}})
	claimErr := addOne(ctx, o, c, 1)
	_, applyErr := o.Apply(ctx, 0, []store.Foreign{{Cell: c, Count: 1}})
	for what, err := range map[string]error{"read": readErr, "send": sendErr, "bounded": claimErr, "apply": applyErr} {
		if err == nil {
			t.Errorf("%s: no error, want one that says %q", what, words)
			continue
		}
		if what == "bounded" && isMaybe(err) {
			t.Errorf("it is uncertain whether a bounded cost was applied: %v", err)
		}
		call := map[string]string{"bounded": "send"}[what]
		for _, word := range append(words, "redisorigin: "+cmp.Or(call, what)) {
			if !strings.Contains(err.Error(), word) {
				t.Errorf("%s: %q does not say %q", what, err, word)
			}
		}
		if strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), "PRIVATE") {
			t.Errorf("%s: %q holds a secret", what, err)
		}
	}
}

func parameters(pairs ...string) string {
	q := url.Values{}
	for i := 0; i < len(pairs); i += 2 {
		q.Set(pairs[i], pairs[i+1])
	}
	return "?" + q.Encode()
}

func TestTLS(t *testing.T) {
	ours, other := newAuthority(t), newAuthority(t)
	addr, _ := tlsRedis(t, ours, "--tls-auth-clients", "no")
	c := cellNow("tls", time.Minute)
	for _, rawURL := range []string{
		"rediss://" + addr + parameters("tls_ca_file", ours.file, "tls_server_name", "redis.test"),
		"a=rediss://" + addr + parameters("tls_ca_file", ours.file, "tls_server_name", "redis.test"),
	} {
		before := read(t, openOrigin(t, rawURL, redisorigin.Options{}), c)[0]
		if got := add(t, openOrigin(t, rawURL, redisorigin.Options{}), store.Cost{Cell: c, Add: 1})[0]; got != before+1 {
			t.Errorf("total over TLS: %d after %d", got, before)
		}
	}
	for name, f := range map[string]struct {
		parameters string
		says       []string
	}{
		"an authority that has not signed it": {parameters("tls_ca_file", other.file, "tls_server_name", "redis.test"), []string{addr, "certificate"}},
		"the machine's authorities":           {parameters("tls_server_name", "redis.test"), []string{addr, "certificate"}},
		"another name":                        {parameters("tls_ca_file", ours.file, "tls_server_name", "other.test"), []string{addr, "other.test"}},
	} {
		t.Run(name, func(t *testing.T) {
			certain(t.Context(), t, openOrigin(t, "rediss://"+addr+f.parameters, redisorigin.Options{}), f.says...)
		})
	}
	t.Run("TLS to a server that has none", func(t *testing.T) {
		plain := servers.RedisForTest(t).Addr()
		o := openOrigin(t, "rediss://"+plain+parameters("tls_ca_file", ours.file), redisorigin.Options{})
		// it waits for the rest of a command, as it takes the bytes
		hurried(t, func(ctx context.Context) { certain(ctx, t, o, plain) })
	})
	t.Run("a server that accepts and never answers", func(t *testing.T) {
		silent := servers.ProxyForTest(t, addr)
		silent.BlackHole(true)
		o := openOrigin(t, "rediss://"+silent.Addr()+parameters("tls_ca_file", ours.file, "tls_server_name", "redis.test"), redisorigin.Options{})
		hurried(t, func(ctx context.Context) { certain(ctx, t, o, silent.Addr()) })
	})
}

// A client's certificate is required, and read for each connection.
func TestMutualTLS(t *testing.T) {
	ours, other := newAuthority(t), newAuthority(t)
	addr, _ := tlsRedis(t, ours, "--tls-auth-clients", "yes")
	certFile, keyFile := ours.issue("weir.test")
	trusting := []string{"tls_ca_file", ours.file, "tls_server_name", "redis.test"}
	with := func(certFile, keyFile string) string {
		return "rediss://" + addr + parameters(append(trusting, "tls_cert_file", certFile, "tls_key_file", keyFile)...)
	}
	c := cellNow("mtls", time.Minute)
	if got := add(t, openOrigin(t, with(certFile, keyFile), redisorigin.Options{}), store.Cost{Cell: c, Add: 1})[0]; got != 1 {
		t.Errorf("total over mutual TLS: %d", got)
	}
	foreignCert, foreignKey := other.issue("weir.test")
	for name, rawURL := range map[string]string{
		"no certificate":      "rediss://" + addr + parameters(trusting...),
		"another authority's": with(foreignCert, foreignKey),
	} {
		t.Run(name, func(t *testing.T) {
			certain(t.Context(), t, openOrigin(t, rawURL, redisorigin.Options{}), addr, "TLS handshake")
		})
	}
	t.Run("a certificate that is replaced", func(t *testing.T) {
		o := openOrigin(t, with(foreignCert, foreignKey), redisorigin.Options{})
		for from, to := range map[string]string{certFile: foreignCert, keyFile: foreignKey} {
			content, err := os.ReadFile(from)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(to, content, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		await.True(t, "the new certificate is used", func() bool { return addOne(t.Context(), o, c, 1) == nil })
	})
}

func TestPasswords(t *testing.T) {
	server := servers.RedisForTest(t)
	raw := rawClient(t, server.Addr())
	command(t, raw, "ACL", "SETUSER", "weir", "on", ">hunter2", "~weir:*", "+@all")
	command(t, raw, "ACL", "SETUSER", "default", "resetpass", ">hunter22", "on")
	c := cellNow("x", time.Minute)
	file := func(content string) string { return parameters("password_file", textFile(t, content)) }

	for name, rawURL := range map[string]string{
		"a user in the URL":                "redis://weir:hunter2@" + server.Addr(),
		"a password in the URL":            "redis://:hunter22@" + server.Addr(),
		"a user and a file":                "redis://weir@" + server.Addr() + file("hunter2\n"),
		"a file alone":                     "redis://" + server.Addr() + file("hunter22"),
		"a partition with a user and file": "a=redis://weir@" + server.Addr() + file("hunter2\r\n"),
	} {
		t.Run(name, func(t *testing.T) { read(t, openOrigin(t, rawURL, redisorigin.Options{}), c) })
	}
	for name, rawURL := range map[string]string{
		"a wrong password in the URL": "redis://weir:hunter2x@" + server.Addr(),
		"a wrong password in a file":  "redis://weir@" + server.Addr() + file("hunter2x"),
		"no such user":                "redis://nobody:hunter2@" + server.Addr(),
	} {
		t.Run(name, func(t *testing.T) {
			certain(t.Context(), t, openOrigin(t, rawURL, redisorigin.Options{}), server.Addr(), "WRONGPASS")
		})
	}
	t.Run("no password", func(t *testing.T) {
		certain(t.Context(), t, openOrigin(t, "redis://"+server.Addr(), redisorigin.Options{}), server.Addr(), "NOAUTH")
	})
	t.Run("a file that is replaced, and removed", func(t *testing.T) {
		path := textFile(t, "hunter2x")
		rawURL := "redis://weir@" + server.Addr() + parameters("password_file", path)
		o := openOrigin(t, rawURL, redisorigin.Options{})
		certain(t.Context(), t, o, "WRONGPASS")
		if err := os.WriteFile(path, []byte("hunter2"), 0o600); err != nil {
			t.Fatal(err)
		}
		await.True(t, "the new password is used", func() bool { return addOne(t.Context(), o, c, 1) == nil })

		unlucky := openOrigin(t, rawURL, redisorigin.Options{})
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		command(t, raw, "CLIENT", "KILL", "USER", "weir") // the connections that were made ahead of need
		certain(t.Context(), t, unlucky, server.Addr(), "password_file", path)
	})
}

// "Files that cannot be read are an error, a FileError", and parameters that do not fit are reported before any
// connection.
func TestSecurityParametersThatAreRefused(t *testing.T) {
	ours := newAuthority(t)
	certFile, keyFile := ours.issue("weir.test")
	_, otherKey := ours.issue("weir.test")
	empty := textFile(t, "\n")
	for _, c := range []struct {
		scheme string
		q      string
		says   string
		file   bool
	}{
		{"rediss", parameters("tls_ca_file", "/no/such/ca.pem"), "tls_ca_file: open /no/such/ca.pem", true},
		{"rediss", parameters("tls_ca_file", empty), "holds no certificate", true},
		{"rediss", parameters("tls_cert_file", certFile), "set both, or neither", false},
		{"rediss", parameters("tls_key_file", keyFile), "set both, or neither", false},
		{"rediss", parameters("tls_cert_file", certFile, "tls_key_file", otherKey), certFile, true},
		{"rediss", parameters("tls_cert_file", certFile, "tls_key_file", "/no/such/key"), "/no/such/key", true},
		{"rediss", "?skip_verify=true", "tls_ca_file", false},
		{"redis", parameters("tls_ca_file", ours.file), "rediss://", false},
		{"redis", parameters("tls_server_name", "x"), "rediss://", false},
		{"redis", parameters("password_file", "/no/such/password"), "password_file: open /no/such/password", true},
		{"redis", parameters("password_file", empty), "is empty", true},
		{"redis", parameters("master", "m", "sentinel_password_file", "/no/such/password"), "sentinel_password_file: open", true},
	} {
		_, err := redisorigin.ClientOptions(c.scheme + "://host" + c.q)
		if err == nil || !strings.Contains(err.Error(), c.says) || errors.As(err, new(*redisorigin.FileError)) != c.file {
			t.Errorf("%s: %v, want an error about %q", c.q, err, c.says)
		}
	}
	_, err := redisorigin.ClientOptions("redis://u:hunter2@host" + parameters("password_file", textFile(t, "x")))
	if err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("two passwords: %v", err)
	}
	o, err := redisorigin.ClientOptions("rediss://host" + parameters("master", "m", "sentinel_username", "s", "sentinel_password_file", textFile(t, "pw\n")))
	if err != nil || o.SentinelUsername != "s" || o.SentinelPassword != "pw" || o.TLSConfig.MinVersion != tls.VersionTLS12 {
		t.Errorf("%+v, %v", o, err)
	}
}
