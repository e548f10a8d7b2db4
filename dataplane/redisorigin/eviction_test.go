package redisorigin_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weirhq/weir/dataplane/redisorigin"
)

// "The servers that may drop keys", by partition, and of which that is unknown.
func TestServersThatEvictAreNamed(t *testing.T) {
	server, raw := serverOfUser(t)
	other, _ := serverOfUser(t)
	o := openAll(t, []string{"a=" + asUser(server.Addr()), "b=" + asUser(other.Addr())}, redisorigin.Options{})
	if servers, err := o.Evicting(t.Context()); err != nil || len(servers) != 0 {
		t.Errorf("with noeviction: %q, %v", servers, err)
	}
	for _, policy := range []string{"allkeys-lru", "volatile-ttl", "allkeys-random"} {
		command(t, raw, "CONFIG", "SET", "maxmemory-policy", policy)
		servers, err := o.Evicting(t.Context())
		if want := "a (" + server.Addr() + ") (" + policy + ")"; err != nil || len(servers) != 1 || servers[0] != want {
			t.Errorf("with %s: %q, %v; want %q", policy, servers, err, want)
		}
	}
	command(t, raw, "ACL", "SETUSER", "weir", "-info")
	if servers, err := o.Evicting(t.Context()); err == nil || len(servers) != 0 || !strings.Contains(err.Error(), "NOPERM") {
		t.Errorf("a user that may not ask: %q, %v", servers, err)
	}
	command(t, raw, "ACL", "SETUSER", "weir", "+info")
	if err := other.Kill(); err != nil {
		t.Fatal(err)
	}
	if servers, err := o.Evicting(t.Context()); err == nil || len(servers) != 1 || !strings.Contains(err.Error(), "b ("+other.Addr()+")") {
		t.Errorf("one server is down: %q, %v", servers, err)
	}
}

func TestMastersOfAClusterThatEvictAreNamed(t *testing.T) {
	nodes := clusterForTest(t)
	o := openOrigin(t, "redis://"+nodes[0].Options().Addr+"?cluster=true", redisorigin.Options{})
	command(t, nodes[2], "CONFIG", "SET", "maxmemory-policy", "allkeys-lfu")
	servers, err := o.Evicting(t.Context())
	if want := fmt.Sprintf("[%s (allkeys-lfu)]", nodes[2].Options().Addr); err != nil || fmt.Sprint(servers) != want {
		t.Errorf("%v, %v; want %s", servers, err, want)
	}
}

// Another process with the same name is alive only if its time grows between two calls.
func TestProcessesOfOneNameSeeEachOther(t *testing.T) {
	server, raw := serverOfUser(t)
	a, b := openOrigin(t, asUser(server.Addr()), redisorigin.Options{}), openOrigin(t, asUser(server.Addr()), redisorigin.Options{})
	others := func(o *redisorigin.Origin, node, process string) map[string]int64 {
		t.Helper()
		others, err := o.Announce(t.Context(), node, process)
		if err != nil {
			t.Fatal(err)
		}
		return others
	}
	if seen := others(a, "node", "p"); len(seen) != 0 {
		t.Errorf("alone: %v", seen)
	}
	first := others(b, "node", "q")["p"]
	if first == 0 || others(b, "node", "q")["p"] != first {
		t.Error("a process that is silent grows")
	}
	for others(a, "node", "p"); others(b, "node", "q")["p"] == first; {
		others(a, "node", "p") // until the server's clock has gone on by a millisecond
	}
	if seen := others(b, "node-2", "q"); len(seen) != 0 {
		t.Errorf("another name: %v", seen)
	}
	if err := a.Withdraw(t.Context(), "node", "p"); err != nil {
		t.Fatal(err)
	}
	if seen := others(b, "node", "q"); len(seen) != 0 {
		t.Errorf("after it has withdrawn: %v", seen)
	}
	if ttl := raw.PTTL(t.Context(), "weir:{origin}:name:node").Val(); ttl <= 0 {
		t.Errorf("the list stays for %v", ttl)
	}
	wantNoDenials(t, raw)
}
