package redisorigin_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirhq/weir/dataplane/redisorigin"
	"github.com/weirhq/weir/shared/await"
	"github.com/weirhq/weir/shared/redisclient"
	"github.com/weirhq/weir/shared/window"
)

func TestClientOptions(t *testing.T) {
	for rawURL, want := range map[string]func(o *redis.UniversalOptions) bool{
		"redis://host": func(o *redis.UniversalOptions) bool {
			return o.Addrs[0] == "host:6379" && !o.IsClusterMode && o.TLSConfig == nil && o.DB == 0 &&
				o.MaxRetries == -1 && o.MaxRedirects == -1 && o.ContextTimeoutEnabled && o.DialerRetries == 1 &&
				o.DialTimeout == time.Second && o.ReadTimeout == time.Second && o.WriteTimeout == time.Second && o.MinIdleConns == 1
		},
		"redis://u:p@host:1/2": func(o *redis.UniversalOptions) bool {
			return o.Addrs[0] == "host:1" && o.Username == "u" && o.Password == "p" && o.DB == 2
		},
		"rediss://host": func(o *redis.UniversalOptions) bool { return o.TLSConfig.ServerName == "host" },
		"rediss://host?addr=other:1": func(o *redis.UniversalOptions) bool {
			return o.TLSConfig.ServerName == "" && len(o.Addrs) == 2 && o.Addrs[1] == "other:1"
		},
		"redis://host?cluster=true":            func(o *redis.UniversalOptions) bool { return o.IsClusterMode && len(o.Addrs) == 1 },
		"redis://host?master=m&addr=other:1":   func(o *redis.UniversalOptions) bool { return o.MasterName == "m" && len(o.Addrs) == 2 },
		"redis://host?pool_size=3":             func(o *redis.UniversalOptions) bool { return o.PoolSize == 3 },
		"redis://host?dial_timeout=30ms":       func(o *redis.UniversalOptions) bool { return o.DialTimeout == 30*time.Millisecond },
		"redis://host?min_idle_conns=5":        func(o *redis.UniversalOptions) bool { return o.MinIdleConns == 5 },
		"unix://u:p@/run/redis.sock?db=1":      func(o *redis.UniversalOptions) bool { return o.Addrs[0] == "/run/redis.sock" && o.DB == 1 },
		"redis://host?client_name=weir-node-1": func(o *redis.UniversalOptions) bool { return o.ClientName == "weir-node-1" },
	} {
		if o, err := redisorigin.ClientOptions(rawURL); err != nil || !want(o) {
			t.Errorf("%s: %+v, %v", rawURL, o, err)
		}
	}
}

func TestURLsThatAreRefused(t *testing.T) {
	for rawURL, says := range map[string]string{
		"http://u:secret@host":                   "begins with \"http:\", want redis://",
		"redis://u:secret@host/x":                "database",
		"redis://u:secret@host?max_retries=1":    "max_retries",
		"redis://u:secret@host?cluster=x":        "cluster",
		"redis://u:secret@host?colour=blue":      `an unknown parameter (known: addr, client_name, cluster`,
		"redis://u:secret@host?Read_timeuot=1s":  `an unknown parameter, "Read_timeuot", did you mean read_timeout? (known`,
		"redis://u:secret/x@host:port:6379":      "cannot be parsed",
		"redis://u:secret@ho st":                 "cannot be parsed",
		"redis://u:12/secret@host":               "cannot be parsed: '@'",
		"redis://u:12?secret=1&x=@host":          "cannot be parsed: '@'",
		"redis://u:12#secret@host":               "cannot be parsed: '@'",
		"redis://u:@x/secret@host":               "cannot be parsed: '@'",
		"redis://u:secret@host?read_timeout=soo": "read_timeout",
	} {
		_, err := redisorigin.Open([]string{rawURL}, redisorigin.Options{})
		if err == nil || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v, want an error about %q", rawURL, err, says)
		}
	}
}

// "It never retries by itself", and "obey ctx's deadline": a client that would not is
// refused at the door.
func TestClientsThatAreRefused(t *testing.T) {
	for says, client := range map[string]redis.UniversalClient{
		"MaxRetries":            redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", ContextTimeoutEnabled: true}),
		"ContextTimeoutEnabled": redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1}),
		"MaxRedirects":          redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}, ContextTimeoutEnabled: true, MaxRetries: -1}),
		"replicas":              redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}, ContextTimeoutEnabled: true, MaxRedirects: -1, ReadOnly: true}),
		"*redis.Ring":           redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": "127.0.0.1:1"}, ContextTimeoutEnabled: true, MaxRetries: -1}),
		"<nil>":                 nil,
	} {
		if _, err := redisorigin.New([]redisorigin.Partition{{Client: client}}, redisorigin.Options{}); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("want an error about %s: %v", says, err)
		}
		if client != nil {
			if err := client.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	for says, o := range map[string]redisorigin.Options{"Prefix": {Prefix: "{"}, "Grace": {Grace: -1}} {
		if _, err := redisorigin.Open([]string{"redis://127.0.0.1:1"}, o); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("want an error about %s: %v", says, err)
		}
	}
}

// The library's words go to the logger at level debug, and nowhere else.
func TestLibraryLogsToTheLogger(t *testing.T) {
	var log await.Log
	logger := slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	o := openOrigin(t, "redis://127.0.0.1:1?min_idle_conns=1", redisorigin.Options{Logger: logger})
	if _, err := o.Read(context.Background(), []window.Cell{cellNow("x", time.Second)}); err == nil {
		t.Fatal("a read without a server")
	}
	if got := log.String(); !strings.Contains(got, "level=DEBUG") || !strings.Contains(got, "library=go-redis") {
		t.Errorf("logged %q", got)
	}
}

// "Errors never contain the password", for every password, escaped or not, and for every kind of error.
func FuzzErrorsHoldNoPassword(f *testing.F) {
	for _, around := range [][2]string{{"", ""}, {"12/", ""}, {"12?", "=1&c="}, {"12#", ""}, {"@x/", ""}, {"@", "@"}, {"%zz", ""}, {":", ":"}, {"a=", ""}, {"[", "]"}, {" ", "\n"}} {
		f.Add("redis://u:", around[0], around[1], "@host:6379/0?cluster=x")
		f.Add("a=rediss://", around[0], around[1], "@host:port?tls_ca_file=/no/such/file&colour=blue")
	}
	f.Fuzz(func(t *testing.T, head, before, after, tail string) {
		if !strings.HasPrefix(tail, "@") || strings.Contains(head, "?") {
			return // text outside of a password is no secret
		}
		const secret = "hunter2"
		if strings.Contains(head+tail, secret) || !strings.Contains(head, "://") {
			return
		}
		if _, err := redisclient.Targets(head + before + secret + after + tail); err != nil && strings.Contains(err.Error(), secret) {
			t.Fatalf("%s: %v", head+before+secret+after+tail, err)
		}
	})
}
