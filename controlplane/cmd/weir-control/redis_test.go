package main

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/weirhq/weir/controlplane/watch"
	"github.com/weirhq/weir/shared/await"
	"github.com/weirhq/weir/shared/servers"
	"github.com/weirhq/weir/shared/testcert"
)

// Each fault is provoked on a real Redis, one after the other.
func TestExamineRedis(t *testing.T) {
	server := servers.RedisForTest(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer func() { _ = client.Close() }()
	urls, passwordFile := map[string]string{"eu": "redis://" + server.Addr()}, ""
	want := func(name string, result watch.CheckResult, says string) {
		t.Helper()
		for _, c := range examineRedis(urls, passwordFile)(t.Context()) {
			if c.Name == name && (c.Result != result || !strings.Contains(c.What+c.Do, says)) || (c.Do == "") != (c.Result == watch.CheckOK) {
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
	want("eu reachable", watch.CheckOK, server.Addr())
	about := client.InfoMap(t.Context(), "server").Val()["Server"]
	version := about["redis_version"]
	if valkey := about["valkey_version"]; valkey != "" {
		version = "Valkey " + valkey
	}
	want("eu version", watch.CheckOK, version)
	want("eu eviction", watch.CheckOK, "noeviction")
	want("eu memory", watch.CheckWarn, "without a limit")
	set("maxmemory-policy", "allkeys-lru")
	want("eu eviction", watch.CheckWarn, "CONFIG SET maxmemory-policy noeviction")
	set("maxmemory", "100mb")
	want("eu eviction", watch.CheckFail, "allkeys-lru")
	want("eu memory", watch.CheckOK, "100.00M")
	set("maxmemory-policy", "noeviction")
	set("maxmemory", "1")
	want("eu memory", watch.CheckFail, "Raise maxmemory")
	set("maxmemory", "0")
	set("requirepass", "s3cret")
	want("eu reachable", watch.CheckFail, "redis-password-file")
	passwordFile = filepath.Join(t.TempDir(), "password")
	want("password", watch.CheckFail, "Correct redis-password-file")
	if err := os.WriteFile(passwordFile, []byte("s3cret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	want("eu reachable", watch.CheckOK, server.Addr())
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	want("eu reachable", watch.CheckFail, "Start that Redis")
	urls = nil
	want("configured", watch.CheckWarn, "Set redis-url")
}

// A cluster without slots is down, through its single node and as a Cluster.
func TestExamineRedisCluster(t *testing.T) {
	server := servers.RedisForTest(t, "--cluster-enabled", "yes")
	checks := examineRedis(map[string]string{"eu": "redis://" + server.Addr()}, "")(t.Context())
	if c := checks[len(checks)-1]; c.Name != "eu cluster" || c.Result != watch.CheckFail {
		t.Errorf("%+v", checks)
	}
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer func() { _ = client.Close() }()
	if err := client.Do(t.Context(), "CLUSTER", "ADDSLOTSRANGE", 0, 16383).Err(); err != nil {
		t.Fatal(err)
	}
	byAddress := map[string]string{"eu": "redis://" + server.Addr() + "?cluster=true"}
	await.True(t, "the masters of the Cluster are examined", func() bool {
		checks = examineRedis(byAddress, "")(t.Context())
		last := checks[len(checks)-1]
		return last.Name == "eu cluster" && last.Result == watch.CheckOK
	})
	_, port, _ := strings.Cut(server.Addr(), ":")
	if c := checks[0]; !strings.HasSuffix(c.Name, ":"+port+" reachable") || c.Result != watch.CheckOK {
		t.Errorf("%+v", checks)
	}
	if c := clusterCheck(readInfo("cluster_state:ok\r\ncluster_slots_ok:16384\r\ncluster_size:3\r\n")); c.Result != watch.CheckOK {
		t.Errorf("%+v", c)
	}
}

// The doctor accepts the URLs of every layout that nodes accept, and the user that the page about the nodes' Redis
// documents.
func TestExamineRedisOfEveryLayout(t *testing.T) {
	readme, err := os.ReadFile("../../../dataplane/redisorigin/README.md")
	if err != nil {
		t.Fatal(err)
	}
	rights := regexp.MustCompile(`(?m)^ +(ACL SETUSER weir on .*)$`).FindStringSubmatch(string(readme))
	ca := testcert.New(t)
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	ca.Issue(t, "redis.test").Write(t, path("cert.pem"), path("key.pem"))
	if err := errors.Join(os.WriteFile(path("ca.pem"), ca.PEM, 0o600), os.WriteFile(path("password"), []byte("password\r\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	secure := l.Addr().String()
	_ = l.Close()
	server := servers.RedisForTest(t, "--tls-port", secure[strings.LastIndex(secure, ":")+1:],
		"--tls-cert-file", path("cert.pem"), "--tls-key-file", path("key.pem"), "--tls-ca-cert-file", path("ca.pem"), "--tls-auth-clients", "no")
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer func() { _ = client.Close() }()
	var words []any
	for word := range strings.FieldsSeq(rights[1]) {
		words = append(words, word)
	}
	if err := client.Do(t.Context(), words...).Err(); err != nil {
		t.Fatal(err)
	}
	_, port, err := net.SplitHostPort(server.Addr())
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ list, first string }{
		"a user":      {"redis://weir@" + server.Addr(), "eu reachable"},
		"partitions":  {"a=redis://weir@" + server.Addr() + " b=redis://weir@127.0.0.1:" + port, "eu a reachable"},
		"TLS":         {"rediss://weir@" + secure + "?tls_server_name=redis.test&tls_ca_file=" + path("ca.pem"), "eu reachable"},
		"its own way": {"redis://weir@" + server.Addr() + "?password_file=" + path("password"), "eu reachable"},
	} {
		if err := validRedisURL("eu", c.list); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		checks := examineRedis(map[string]string{"eu": c.list}, path("password"))(t.Context())
		for _, check := range checks {
			if check.Result == watch.CheckFail || strings.HasSuffix(check.Name, " info") {
				t.Errorf("%s: %+v", name, check)
			}
		}
		if checks[0].Name != c.first || len(checks) < 4 {
			t.Errorf("%s: %+v", name, checks)
		}
	}
	if err := client.Do(t.Context(), "ACL", "SETUSER", "weir", "-info").Err(); err != nil {
		t.Fatal(err)
	}
	checks := examineRedis(map[string]string{"eu": "redis://weir@" + server.Addr()}, path("password"))(t.Context())
	if checks[0].Result != watch.CheckOK || checks[1].Name != "eu info" || checks[1].Result != watch.CheckWarn || !strings.Contains(checks[1].Do, "+info") {
		t.Errorf("without the right to INFO: %+v", checks)
	}
	// If Sentinels do not answer, that is a failed check, and not an error of the URL.
	checks = examineRedis(map[string]string{"eu": "redis://127.0.0.1:1?master=weir&addr=127.0.0.1:2"}, "")(t.Context())
	if len(checks) != 1 || checks[0].Name != "eu reachable" || checks[0].Result != watch.CheckFail {
		t.Errorf("by Sentinels: %+v", checks)
	}
}

// "Without a password", which no error repeats.
func TestValidRedisURL(t *testing.T) {
	for text, says := range map[string]string{"redis://h:1": "", "rediss://user@h:1": "", "redis://:s3cret@h:1": "redis-password-file", "http://h": "not a URL like", "://s3cret": "not a URL like", "redis://a:1,b:1": "want one host:port", "redis://h?master=m&addr=i:1": "", "redis://h?cluster=true": "", "rediss://h?tls_ca_file=/no/such": "", "a=redis://h b=redis://i": ""} {
		err := validRedisURL("eu", text)
		if (err == nil) != (says == "") || err != nil && (!strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "s3cret")) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// A server that answers reads may still reject writes, and a server may leave a figure out.
func TestExamineRedisThatTakesNoWrites(t *testing.T) {
	const whole = "redis_version:7.0.15\r\nmaxmemory:100\r\nmaxmemory_policy:noeviction\r\nused_memory:1\r\n"
	for info, want := range map[string]string{
		"role:master\r\nloading:0\r\nrdb_last_bgsave_status:ok\r\n": "writes OK",
		"role:master\r\nmin_slaves_good_slaves:1\r\n":               "writes OK",
		"role:slave\r\nmaster_link_status:up\r\n":                   "writes FAIL",
		"role:master\r\nloading:1\r\n":                              "writes FAIL",
		"role:master\r\nrdb_last_bgsave_status:err\r\n":             "writes WARN",
		"role:master\r\naof_last_write_status:err\r\n":              "writes FAIL",
		"role:master\r\nmin_slaves_good_slaves:0\r\n":               "writes WARN",
		"": "writes WARN",
	} {
		if got := resultOf(infoChecks(readInfo(whole+info)), "writes"); !strings.EqualFold(got, want) {
			t.Errorf("%q: %s, want %s", info, got, want)
		}
	}
	for _, name := range []string{"maxmemory", "maxmemory_policy", "used_memory"} {
		info := readInfo(whole)
		delete(info, name)
		checks := infoChecks(info)
		if last := checks[len(checks)-1]; last.Result != watch.CheckWarn || !strings.Contains(last.What, "no "+name) {
			t.Errorf("without %s: %+v", name, last)
		}
	}
}

// Valkey has a version of its own, and that of the Redis from which it was made.
func TestExamineValkey(t *testing.T) {
	check := infoChecks(readInfo("redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:9.1.2\r\n"))[0]
	if check.Result != watch.CheckOK || check.What != "Valkey 9.1.2" {
		t.Errorf("%+v", check)
	}
}

func resultOf(checks []watch.Check, name string) string {
	for _, c := range checks {
		if c.Name == name {
			return name + " " + string(c.Result)
		}
	}
	return "no " + name
}

// A replica answers, and all of its figures are fine.
func TestExamineRedisReplica(t *testing.T) {
	primary, replica := servers.RedisForTest(t), servers.RedisForTest(t)
	host, port, err := net.SplitHostPort(primary.Addr())
	if err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(&redis.Options{Addr: replica.Addr()})
	defer func() { _ = client.Close() }()
	if err := client.ReplicaOf(t.Context(), host, port).Err(); err != nil {
		t.Fatal(err)
	}
	checks := examineRedis(map[string]string{"eu": "redis://" + replica.Addr()}, "")(t.Context())
	if got := resultOf(checks, "eu writes"); !strings.EqualFold(got, "eu writes FAIL") {
		t.Errorf("%s: %+v", got, checks)
	}
}

// A Cluster that serves keys although slots are lost reports its state as ok.
func TestExamineAClusterThatLacksSlots(t *testing.T) {
	for slots, want := range map[string]watch.CheckResult{
		"16384": watch.CheckOK, "10923": watch.CheckFail, "": watch.CheckFail,
	} {
		c := clusterCheck(map[string]string{"cluster_state": "ok", "cluster_slots_ok": slots, "cluster_size": "3"})
		if c.Result != want {
			t.Errorf("%q slots: %+v, want %s", slots, c, want)
		}
	}
}

// The servers of ten regions accept connections and never answer, each for longer than a tenth of an area's time.
func TestARedisThatHangsHidesNoOtherRegion(t *testing.T) {
	server := servers.RedisForTest(t)
	proxy := servers.ProxyForTest(t, server.Addr())
	proxy.BlackHole(true)
	urls := map[string]string{"z": "redis://" + server.Addr()}
	for _, region := range strings.Split("abcdefghij", "") {
		urls[region] = "redis://" + proxy.Addr() + "?read_timeout=5s"
	}
	checks := watch.Diagnose(t.Context(), map[string]watch.Examiner{"redis": examineRedis(urls, "")})
	var hang []string
	for _, c := range checks {
		if region, name, _ := strings.Cut(c.Name, " "); region != "z" {
			hang = append(hang, region)
			if name != "reachable" || c.Result != watch.CheckFail {
				t.Errorf("of a region that hangs: %+v", c)
			}
		}
	}
	if got := strings.Join(hang, ""); got != "abcdefghij" {
		t.Errorf("the regions that hang are %q, want each once, in order", got)
	}
	if got := resultOf(checks, "z reachable"); !strings.EqualFold(got, "z reachable OK") {
		t.Errorf("%s: %+v", got, checks[len(checks)-1])
	}
}

// silentAfterPing answers PING alone, like a server that hangs after the examination has begun.
type silentAfterPing struct {
	redis.Cmdable
	err error
}

func (silentAfterPing) Ping(context.Context) *redis.StatusCmd {
	return redis.NewStatusResult("PONG", nil)
}

func (s silentAfterPing) Info(context.Context, ...string) *redis.StringCmd {
	return redis.NewStringResult("", s.err)
}

func (s silentAfterPing) ClusterInfo(context.Context) *redis.StringCmd {
	return redis.NewStringResult("", s.err)
}

func TestATimeoutIsNoMissingRight(t *testing.T) {
	for _, c := range []struct {
		err   error
		grant bool
	}{
		{context.DeadlineExceeded, false},
		{os.ErrDeadlineExceeded, false},
		{errors.New("NOPERM is not from the server"), false},
		{redisError("LOADING Redis is loading the dataset in memory"), false},
		{redisError("NOPERM User weir has no permissions to run the 'info' command"), true},
	} {
		client := silentAfterPing{err: c.err}
		found := examineServer(t.Context(), "redis.test:6379", "", client)
		found = append(found[1:], examineCluster(t.Context(), client))
		for _, check := range found {
			if check.Result == watch.CheckOK || check.Do == "" || strings.Contains(check.Do, "Grant") != c.grant ||
				!strings.Contains(check.What, c.err.Error()) {
				t.Errorf("%v: %+v, want advice to grant: %v", c.err, check, c.grant)
			}
		}
		if len(found) != 2 {
			t.Errorf("%v: %+v, want a check of INFO and one of the Cluster", c.err, found)
		}
	}
}

// redisError is an error that a server answered.
type redisError string

func (e redisError) Error() string { return string(e) }
func (redisError) RedisError()     {}

// Every answer gets a judgement, whatever server sent it.
func FuzzReadInfo(f *testing.F) {
	for _, seed := range []string{"# Server\r\nredis_version:7.0.15\r\nmaxmemory:0\r\n", "redis_version:\n", ":", "maxmemory:1\nused_memory:NaN"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		info := readInfo(text)
		for _, c := range append(infoChecks(info), clusterCheck(info)) {
			if c.Name == "" || c.Result == "" || (c.Do == "") != (c.Result == watch.CheckOK) {
				t.Errorf("%+v", c)
			}
		}
	})
}
