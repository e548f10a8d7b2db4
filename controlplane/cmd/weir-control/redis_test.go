package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/shared/servers"
)

// A real Redis with each fault provoked, one after the other.
func TestExamineRedis(t *testing.T) {
	server := servers.RedisForTest(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer func() { _ = client.Close() }()
	urls, passwordFile := map[string]string{"eu": "redis://" + server.Addr()}, ""
	want := func(name string, result controlplane.CheckResult, says string) {
		t.Helper()
		for _, c := range examineRedis(urls, passwordFile)(t.Context()) {
			if c.Name == name && (c.Result != result || !strings.Contains(c.What+c.Do, says)) || (c.Do == "") != (c.Result == controlplane.CheckOK) {
				t.Errorf("%+v, want %s, saying %q", c, result, says)
			}
			if c.Name == name {
				return
			}
		}
		t.Errorf("there is no check %q", name)
	}
	set := func(name, value string) {
		t.Helper()
		if err := client.ConfigSet(t.Context(), name, value).Err(); err != nil {
			t.Fatal(err)
		}
	}
	want("eu reachable", controlplane.CheckOK, server.Addr())
	want("eu version", controlplane.CheckOK, "7.")
	want("eu eviction", controlplane.CheckOK, "noeviction")
	want("eu memory", controlplane.CheckWarn, "without a limit")
	set("maxmemory-policy", "allkeys-lru")
	want("eu eviction", controlplane.CheckWarn, "CONFIG SET maxmemory-policy noeviction")
	set("maxmemory", "100mb")
	want("eu eviction", controlplane.CheckFail, "allkeys-lru")
	want("eu memory", controlplane.CheckOK, "100.00M")
	set("maxmemory-policy", "noeviction")
	set("maxmemory", "1")
	want("eu memory", controlplane.CheckFail, "Raise maxmemory")
	set("maxmemory", "0")
	set("requirepass", "s3cret")
	want("eu reachable", controlplane.CheckFail, "redis-password-file")
	passwordFile = filepath.Join(t.TempDir(), "password")
	want("password", controlplane.CheckFail, "Correct redis-password-file")
	if err := os.WriteFile(passwordFile, []byte("s3cret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	want("eu reachable", controlplane.CheckOK, server.Addr())
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	want("eu reachable", controlplane.CheckFail, "Start that Redis")
	urls = nil
	want("configured", controlplane.CheckWarn, "Set redis-url")
}

// A cluster that has no slots is down.
func TestExamineRedisCluster(t *testing.T) {
	server, err := servers.StartRedis(t.Context(), servers.Options{Args: []string{"--cluster-enabled", "yes"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Stop() })
	checks := examineRedis(map[string]string{"eu": "redis://" + server.Addr()}, "")(t.Context())
	if c := checks[len(checks)-1]; c.Name != "eu cluster" || c.Result != controlplane.CheckFail {
		t.Errorf("%+v", checks)
	}
	if c := clusterCheck(readInfo("cluster_state:ok\r\ncluster_size:3\r\n")); c.Result != controlplane.CheckOK {
		t.Errorf("%+v", c)
	}
}

// "Without a password", which no error repeats.
func TestValidRedisURL(t *testing.T) {
	for text, says := range map[string]string{"redis://h:1": "", "rediss://user@h:1": "", "redis://:s3cret@h:1": "redis-password-file", "http://h": "not a URL like", "://s3cret": "not a URL like"} {
		err := validRedisURL("eu", text)
		if (err == nil) != (says == "") || err != nil && (!strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "s3cret")) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// Whatever it is that answers, it is judged.
func FuzzReadInfo(f *testing.F) {
	for _, seed := range []string{"# Server\r\nredis_version:7.0.15\r\nmaxmemory:0\r\n", "redis_version:\n", ":", "maxmemory:1\nused_memory:NaN"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		info := readInfo(text)
		for _, c := range append(infoChecks(info), clusterCheck(info)) {
			if c.Name == "" || c.Result == "" || (c.Do == "") != (c.Result == controlplane.CheckOK) {
				t.Errorf("%+v", c)
			}
		}
	})
}
