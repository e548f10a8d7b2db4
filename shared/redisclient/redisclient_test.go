package redisclient

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/shared/testcert"
)

func TestAURLNamesOneServer(t *testing.T) {
	for rawURL, says := range map[string]string{
		"redis://a:6379,b:6379": `the host is "a:6379,b:6379", want one host:port: further servers of a Cluster or Sentinel are named with &addr=host:port`,
		"redis://a,b":           "want one host:port", "redis://a:6379?addr=b:1,c:1": "not a list", "redis://a:6379?addr=b": "want host:port",
		"redis://10.0.0.010:6379": "ends in a number", "redis://a:06379": "leading zeros", "redis://a:0": "port is 0", "redis://a:65536": "port is 65536",
		"redis://a/01": "leading zeros", "redis://a/-1": "the database is -1", "redis://a/1?cluster=true": "a Cluster has 0 alone", "redis://a?db=0x1": "decimal digits",
		"redis://a?cluster=true&master=m": "set only one", "redis://a?cluster=yes": "want true or false", "redis://a?cluster=": "want true or false",
		"redis://a?master=": "master is empty", "redis://a?addr=": "addr is empty", "redis://a?password_file=": "password_file is empty",
		"redis://a?pool_size=010": "leading zeros", "redis://a?pool_size=0": "pool_size is 0 (1 to 1000000)", "redis://a?pool_size=1&pool_size=2": "pool_size 2 times, want it once",
		"redis://a?read_timeout=3": "want a unit", "redis://a?read_timeout=-1s": "read_timeout is -1s (1ms to 10m0s)", "redis://a?read_timeout=0": "read_timeout is 0 (1ms to 10m0s)",
		"redis://a?pool_fifo=1": "want true or false", "redis://a?x=1": "unknown parameter (known", "unix:///run/r.sock?cluster=true": "a socket is one server",
		"unix:///run/r.sock?addr=a:1": "a socket is one server", "redis://a?tls_server_name=a,b": "tls_server_name is", "redis://a?%zz=1": "cannot be parsed",
		"redsi://a": `begins with "redsi:", want redis://, rediss:// (TLS) or unix://`, "http://a": `begins with "http:"`, "redis://a:port": "want redis://[user",
	} {
		if _, err := Options(rawURL); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %q", rawURL, err, says)
		}
	}
	for _, rawURL := range []string{"redis://a", "redis://[::1]:1/3", "redis://:6379", "unix:///run/redis@eu/r.sock?db=1", "redis://u:p@a?master=m&addr=b:1",
		"redis://a?protocol=3"} {
		if _, err := Options(rawURL); err != nil {
			t.Errorf("%s: %v", rawURL, err)
		}
	}
}

// A path may have an '@', for example the path of a systemd template unit's credential.
func TestAPathMayHoldDelimiters(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "weir-node@eu.service")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	ca, password := filepath.Join(dir, "ca.pem"), filepath.Join(dir, "password")
	if err := errors.Join(os.WriteFile(ca, testcert.New(t).PEM, 0o600), os.WriteFile(password, []byte("\xef\xbb\xbfp w\r\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	for _, base := range []string{"rediss://weir@a:1?", "rediss://a:1?", "rediss://weir@a:1?read_timeout=1s&"} {
		o, err := Options(base + "tls_ca_file=" + ca + "&password_file=" + password)
		if err != nil || o.TLSConfig.RootCAs == nil {
			t.Errorf("%s: %v", base, err)
			continue
		}
		if _, secret, err := o.CredentialsProviderContext(t.Context()); err != nil || secret != "p w" {
			t.Errorf("%s: the password is %q, %v", base, secret, err)
		}
	}
	for _, rawURL := range []string{"redis://u:12?secret=1&x=@host", "redis://u:12?tls_ca_file=secret@host", "redis://u:12/secret@host"} {
		if _, err := Options(rawURL); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", rawURL, err)
		}
	}
}

// A connection without a maximum age stays at a server to which the name no longer points.
func TestConnectionsEndByTheirAge(t *testing.T) {
	for rawURL, want := range map[string]struct{ age, jitter time.Duration }{
		"redis://a":                          {5 * time.Minute, time.Minute},
		"redis://a?cluster=true":             {5 * time.Minute, time.Minute},
		"redis://a?master=m&addr=b:1":        {5 * time.Minute, time.Minute},
		"redis://a?conn_max_lifetime=1h":     {time.Hour, 0},
		"redis://a?max_conn_age=1h":          {time.Hour, 0},
		"redis://a?conn_max_lifetime=0":      {-1, 0}, // never
		"redis://a?conn_max_idle_time=1m":    {5 * time.Minute, time.Minute},
		"redis://a?conn_max_lifetime=1500ms": {1500 * time.Millisecond, 0},
	} {
		o, err := Options(rawURL)
		if err != nil || o.ConnMaxLifetime != want.age || o.ConnMaxLifetimeJitter != want.jitter {
			t.Errorf("%s: connections end after %v ± %v, %v, want %v ± %v", rawURL, o.ConnMaxLifetime,
				o.ConnMaxLifetimeJitter, err, want.age, want.jitter)
		}
	}
}

func TestTargetsAreOneListOrSeveral(t *testing.T) {
	for _, lists := range [][]string{{"b=redis://b:1 a=redis://a:1"}, {"b=redis://b:1", "a=redis://a:1"}, {" b=redis://b:1\n a=redis://a:1\n"}} {
		targets, err := Targets(lists...)
		if err != nil || len(targets) != 2 || targets[0].Name != "b" || targets[1].Where() != "a:1" {
			t.Errorf("%q: %+v, %v", lists, targets, err)
		}
	}
	if targets, err := Targets("redis://a?master=m&addr=b:1"); err != nil || targets[0].Where() != "m by a:6379,b:1" {
		t.Errorf("%+v, %v", targets, err)
	}
	for list, says := range map[string]string{"": "names no server", "a=redis://a:1 redis://b:1": "has no name", "a=redis://a:1 a=redis://b:1": "name of an earlier one",
		"redis://u:p w@a": "part 2 of 2 is no URL", "a=redis://a:1,b=redis://b:1": "", "a": "part 1 of 1 is no URL"} {
		if _, err := Targets(list); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, want %q", list, err, says)
		}
	}
	if shown := Mask("a=redis://u:secret@a:1 b=redis://b:1"); shown != "a=redis://u:xxxxx@a:1 b=redis://b:1" || !HoldsPassword("a=redis://u:secret@a:1") || HoldsPassword("redis://u@a") {
		t.Errorf("shown as %s", shown)
	}
}

func FuzzTargets(f *testing.F) {
	for _, seed := range []string{"redis://u:xyzzy@a:1/2?pool_size=3", "a=rediss://a b=unix:///x?db=1", "redis://a,b", "redis://a?addr=b:1&cluster=true", "redis://u:xyzzy@a?tls_ca_file=/a@b"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, list string) {
		targets, err := Targets(list)
		if (err == nil) == (targets == nil) {
			t.Fatalf("%q: %v, %v", list, targets, err)
		}
		if err != nil && strings.Count(list, "xyzzy") == 1 && strings.Contains(list, "://u:xyzzy@") && strings.Contains(err.Error(), "xyzzy") {
			t.Errorf("the error holds the password: %v", err)
		}
		for _, target := range targets {
			o := target.Options
			if o.MaxRetries != -1 || o.MaxRedirects != -1 || !o.ContextTimeoutEnabled || o.ReadTimeout <= 0 || o.DialTimeout <= 0 || o.DialTimeout > 10*time.Minute {
				t.Errorf("%q: %+v", list, o)
			}
		}
		Mask(list)
		HoldsPassword(list)
	})
}
