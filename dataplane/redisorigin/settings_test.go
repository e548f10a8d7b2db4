package redisorigin_test

import (
	"bytes"
	"compress/flate"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirhq/weir/dataplane/redisorigin"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/heartbeat"
	"github.com/weirhq/weir/shared/servers"
)

const (
	settingsKey   = "weir:{origin}:settings"
	heartbeatsKey = "weir:{origin}:heartbeats"
	heartbeatKey  = "weir:{origin}:heartbeat"
)

func manyOverrides(n int) (rows store.SettingsRows) {
	for i := range n {
		rows.Overrides = append(rows.Overrides, store.OverrideRow{Workspace: "w", Namespace: "n", Pattern: fmt.Sprint("user-", i), Limit: int64(i)})
	}
	return rows
}

// storeSettings stores settings as the relay that has the lease.
func storeSettings(t *testing.T, h *redisorigin.Origin, rows store.SettingsRows) {
	t.Helper()
	_, err := h.Lease(t.Context(), 0, "relay", time.Minute)
	if err == nil {
		err = h.StoreSettings(t.Context(), 0, "relay", rows, time.Time{})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// "A copy that is unchanged costs the server a look at its version": it is neither sent to the server again nor read
// again.
func TestUnchangedSettingsStayWhereTheyAre(t *testing.T) {
	server := servers.RedisForTest(t)
	raw := rawClient(t, server.Addr())
	relay := openOrigin(t, "redis://"+server.Addr(), redisorigin.Options{})
	node := openOrigin(t, "redis://"+server.Addr(), redisorigin.Options{})
	traffic := func(calls int, rows store.SettingsRows) int64 {
		t.Helper()
		before := netBytes(t, raw)
		for range calls {
			storeSettings(t, relay, rows)
			got, err := node.Settings(t.Context(), "eu")
			if err != nil || len(got.Overrides) != len(rows.Overrides) || got.NodesLive != rows.NodesLive {
				t.Fatalf("%d overrides, %d nodes, %v", len(got.Overrides), got.NodesLive, err)
			}
		}
		return netBytes(t, raw) - before
	}
	rows := manyOverrides(10_000)
	first := traffic(1, rows)
	version := func() string {
		t.Helper()
		got, err := node.Settings(t.Context(), "eu")
		if err != nil {
			t.Fatal(err)
		}
		return got.Version
	}
	was := version()
	rows.NodesLive = 7
	if again := traffic(10, rows) / 10; again > 10_000 || first < 3*again {
		t.Errorf("%d bytes with the first, %d with each repetition", first, again)
	}
	if is := version(); is != was || is == "" {
		t.Errorf("with other nodes the version is %q, and was %q", is, was)
	}
	rows.Overrides[7].Limit++
	if traffic(1, rows); version() == was {
		t.Error("another limit does not change the version")
	}
}

// netBytes returns the bytes that a server has sent and received.
func netBytes(t *testing.T, raw *redis.Client) (sum int64) {
	t.Helper()
	info, err := raw.Info(t.Context(), "stats").Result()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(info) {
		var n int64
		if _, err := fmt.Sscanf(line, "total_net_input_bytes:%d", &n); err == nil {
			sum += n
		}
		if _, err := fmt.Sscanf(line, "total_net_output_bytes:%d", &n); err == nil {
			sum += n
		}
	}
	return sum
}

// A text that is no copy of the settings is an error that names it, and the next stored copy replaces it.
func TestStrangeSettingsAreNamed(t *testing.T) {
	server := servers.RedisForTest(t)
	raw := rawClient(t, server.Addr())
	h := openOrigin(t, "redis://"+server.Addr(), redisorigin.Options{})
	for name, plant := range map[string][]any{
		"a string":          {"SET", settingsKey, "x"},
		"not deflated":      {"HSET", settingsKey, "v", "1", "n", "1", "at", "1", "d", "nonsense"},
		"without document":  {"HSET", settingsKey, "v", "2"},
		"a number too many": {"HSET", settingsKey, "v", "3", "n", "x", "at", "y", "d", "z"},
	} {
		t.Run(name, func(t *testing.T) {
			command(t, raw, "FLUSHALL")
			command(t, raw, plant...)
			if rows, err := h.Settings(t.Context(), "eu"); err == nil || !strings.Contains(err.Error(), settingsKey) {
				t.Errorf("%+v, %v", rows, err)
			}
		})
	}
	command(t, raw, "FLUSHALL")
	command(t, raw, "HSET", settingsKey, "v", "1", "d", "nonsense")
	storeSettings(t, h, manyOverrides(3))
	if rows, err := h.Settings(t.Context(), "eu"); err != nil || len(rows.Overrides) != 3 {
		t.Errorf("%+v, %v", rows, err)
	}
}

// A copy that a relay of another build stored is read. Fields that this build does not have are ignored, fields that
// the other build did not have are empty, and a text that this build cannot use is handed on as it is.
func TestSettingsOfOtherBuildsAreRead(t *testing.T) {
	server := servers.RedisForTest(t)
	raw := rawClient(t, server.Addr())
	h := openOrigin(t, "redis://"+server.Addr(), redisorigin.Options{})
	for namespace, want := range map[string]store.NamespaceRow{
		`{"w":"dw==","n":"bg==","node_share":"wait"}`:                          {NodeShare: "wait"},
		`{"w":"dw==","n":"bg==","window":"precise"}`:                           {Window: store.WindowPrecise},
		`{"w":"dw==","n":"bg==","window":"of a newer build","newer":{"a":[]}}`: {Window: "of a newer build"},
	} {
		var packed bytes.Buffer
		w, err := flate.NewWriter(&packed, flate.BestSpeed)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := fmt.Fprintf(w, `{"version":0,"document":null,"namespaces":[%s],"newer":7}`, namespace); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		command(t, raw, "FLUSHALL")
		command(t, raw, "HSET", settingsKey, "v", namespace, "n", "1", "at", "1", "d", packed.String())
		want.Workspace, want.Namespace = "w", "n"
		rows, err := h.Settings(t.Context(), "eu")
		if err != nil || len(rows.Namespaces) != 1 || rows.Namespaces[0] != want {
			t.Errorf("%s is %+v, %v; want %+v", namespace, rows.Namespaces, err, want)
		}
	}
}

// Both end by themselves: no relay is needed to forget a region, or a node.
func TestSettingsAndHeartbeatsExpire(t *testing.T) {
	server := servers.RedisForTest(t)
	raw := rawClient(t, server.Addr())
	h := openOrigin(t, "redis://"+server.Addr(), redisorigin.Options{})
	storeSettings(t, h, store.SettingsRows{})
	if err := h.Heartbeat(t.Context(), heartbeat.Heartbeat{NodeID: "a", Region: "eu"}); err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]time.Duration{settingsKey: 7 * 24 * time.Hour, heartbeatsKey: store.NodeLiveFor, heartbeatKey: store.NodeLiveFor} {
		left, err := raw.PTTL(t.Context(), key).Result()
		if err != nil || left > want || left < want/2 {
			t.Errorf("%s expires in %v, want %v: %v", key, left, want, err)
		}
	}
	// A node whose heartbeat is old is dropped when another heartbeat arrives.
	command(t, raw, "ZADD", heartbeatsKey, "1000000", "a")
	if err := h.Heartbeat(t.Context(), heartbeat.Heartbeat{NodeID: "b", Region: "eu"}); err != nil {
		t.Fatal(err)
	}
	if beats, err := h.Heartbeats(t.Context(), 0, 9); err != nil || len(beats) != 1 || beats[0].NodeID != "b" {
		t.Errorf("%+v, %v", beats, err)
	}
	if n, err := raw.HLen(t.Context(), heartbeatKey).Result(); err != nil || n != 2 { // document and order of b
		t.Errorf("%d fields are left, %v", n, err)
	}
}

// A heartbeat that is too large, a node too many, and a malformed heartbeat are refused, each by name.
func TestHeartbeatsAreBounded(t *testing.T) {
	server := servers.RedisForTest(t)
	raw := rawClient(t, server.Addr())
	h := openOrigin(t, "redis://"+server.Addr(), redisorigin.Options{})
	large := heartbeat.Heartbeat{NodeID: "large", Region: "eu", Build: strings.Repeat("x", store.HeartbeatBytesMax)}
	if err := h.Heartbeat(t.Context(), large); err == nil || !strings.Contains(err.Error(), `"large": it is 13`) {
		t.Errorf("a heartbeat too large: %v", err)
	}
	now := time.Now().UnixMicro()
	for i := range store.WaitingHeartbeatsMax / 1000 {
		nodes := []any{"ZADD", heartbeatsKey}
		for j := range 1000 {
			nodes = append(nodes, now, fmt.Sprint(i, "-", j))
		}
		command(t, raw, nodes...)
	}
	if err := h.Heartbeat(t.Context(), heartbeat.Heartbeat{NodeID: "one more", Region: "eu"}); err == nil || !strings.Contains(err.Error(), "10000 nodes") {
		t.Errorf("one node too many: %v", err)
	}
	if err := h.Heartbeat(t.Context(), heartbeat.Heartbeat{NodeID: "3-3", Region: "eu"}); err != nil {
		t.Errorf("a node that is there: %v", err)
	}
	beats, err := h.Heartbeats(t.Context(), 0, store.WaitingHeartbeatsMax)
	if err != nil || len(beats) != 1 || beats[0].NodeID != "3-3" {
		t.Errorf("among 9,999 that are no heartbeats: %+v, %v", beats, err)
	}
}

// A value that is no heartbeat is dropped and holds back no heartbeat, however many such values there are and whatever
// their times.
func TestStrangeHeartbeatsAreDropped(t *testing.T) {
	server := servers.RedisForTest(t)
	raw := rawClient(t, server.Addr())
	h := openOrigin(t, "redis://"+server.Addr(), redisorigin.Options{})
	now := time.Now().UnixMicro()
	for name, plant := range map[string]func(){
		"no documents": func() {
			for i := range 2 * store.HeartbeatsMax {
				command(t, raw, "ZADD", heartbeatsKey, now+int64(i), fmt.Sprint("strange-", i))
			}
		},
		"of another node": func() {
			for i := range 2 * store.HeartbeatsMax {
				command(t, raw, "ZADD", heartbeatsKey, now+int64(i), fmt.Sprint("strange-", i))
				command(t, raw, "HSET", heartbeatKey, fmt.Sprint("bstrange-", i), `{"node":"YQ=="}`)
			}
		},
		"too long": func() {
			command(t, raw, "ZADD", heartbeatsKey, now, "large")
			command(t, raw, "HSET", heartbeatKey, "blarge", `{"node":"bGFyZ2U=","build":"`+strings.Repeat("x", store.HeartbeatBytesMax)+`"}`)
		},
		"top keys too long": func() {
			command(t, raw, "ZADD", heartbeatsKey, now, "large")
			command(t, raw, "HSET", heartbeatKey, "blarge", `{"node":"bGFyZ2U="}`, "tlarge", strings.Repeat("x", store.HeartbeatBytesMax))
		},
		"of no time":        func() { command(t, raw, "ZADD", heartbeatsKey, "+inf", "strange", now, "large") },
		"of the far future": func() { command(t, raw, "ZADD", heartbeatsKey, "1e300", "strange", now+1e12, "large") },
		"of the far past":   func() { command(t, raw, "ZADD", heartbeatsKey, "-inf", "strange", "-1e300", "large") },
	} {
		t.Run(name, func(t *testing.T) {
			command(t, raw, "FLUSHALL")
			plant()
			if err := h.Heartbeat(t.Context(), heartbeat.Heartbeat{NodeID: "node", Region: "eu"}); err != nil {
				t.Fatal(err)
			}
			kept, err := h.Heartbeats(t.Context(), 0, store.HeartbeatsMax)
			if err != nil || len(kept) != 1 || kept[0].NodeID != "node" {
				t.Errorf("heartbeats of %d nodes, want that of one: %v", len(kept), err)
			}
			if err := h.AckHeartbeats(t.Context(), 0, kept); err != nil {
				t.Fatal(err)
			}
			if n, err := raw.ZCard(t.Context(), heartbeatsKey).Result(); n != 0 || err != nil {
				t.Errorf("%d are left, %v", n, err)
			}
			if n, err := raw.HLen(t.Context(), heartbeatKey).Result(); n != 0 || err != nil {
				t.Errorf("%d fields are left, %v", n, err)
			}
		})
	}
}

// A copy of the settings that is too long is not sent to nodes.
func TestSettingsTooLongStayWhereTheyAre(t *testing.T) {
	server := servers.RedisForTest(t)
	raw := rawClient(t, server.Addr())
	h := openOrigin(t, "redis://"+server.Addr(), redisorigin.Options{})
	command(t, raw, "HSET", settingsKey, "v", "1", "n", "1", "at", "-1e300", "d", strings.Repeat("x", 32<<20+1))
	before := netBytes(t, raw)
	_, err := h.Settings(t.Context(), "eu")
	if err == nil || !strings.Contains(err.Error(), "33554433 bytes (at most 33554432)") {
		t.Errorf("a copy too long: %v", err)
	}
	if sent := netBytes(t, raw) - before; sent > 100_000 {
		t.Errorf("%d bytes are sent", sent)
	}
}

// The age of a copy is never reported too low, whatever its stored time.
func TestAgeOfStrangeSettings(t *testing.T) {
	server := servers.RedisForTest(t)
	raw := rawClient(t, server.Addr())
	h := openOrigin(t, "redis://"+server.Addr(), redisorigin.Options{})
	storeSettings(t, h, manyOverrides(3))
	for _, at := range []string{"-1e300", "-9e15", "1", "x", "9e15", "1e300", "inf", "nan"} {
		command(t, raw, "HSET", settingsKey, "at", at, "n", "1e300")
		if rows, err := h.Settings(t.Context(), "eu"); err != nil || rows.Age < 7*24*time.Hour {
			t.Errorf("at %s the age is %v, %v", at, rows.Age, err)
		}
	}
}

// A copy of the settings whose entries have no room for names is refused before they take many times its length in
// memory.
func TestEntriesWithoutNamesAreRefused(t *testing.T) {
	server := servers.RedisForTest(t)
	raw := rawClient(t, server.Addr())
	h := openOrigin(t, "redis://"+server.Addr(), redisorigin.Options{})
	for list, entry := range map[string]string{"namespaces": "{},", "overrides": "null,", "resets": "{},"} {
		plain := `{"version":0,"` + list + `":[` + strings.Repeat(entry, 1_000_000) + `null]}`
		var packed bytes.Buffer
		w, err := flate.NewWriter(&packed, flate.BestSpeed)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = w.Write([]byte(plain))
		_ = w.Close()
		command(t, raw, "HSET", settingsKey, "v", list, "n", "1", "at", "1", "d", packed.String())
		if rows, err := h.Settings(t.Context(), "eu"); err == nil || !strings.Contains(err.Error(), "entries in") {
			t.Errorf("%s: %d entries, %v", list, len(rows.Namespaces)+len(rows.Overrides)+len(rows.Resets), err)
		}
	}
}
