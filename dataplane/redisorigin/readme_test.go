package redisorigin_test

import (
	"context"
	"errors"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirhq/weir/dataplane/redisorigin"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/dataplane/storetest"
	"github.com/weirhq/weir/shared/heartbeat"
	"github.com/weirhq/weir/shared/servers"
	"github.com/weirhq/weir/shared/window"
)

// readmeRights returns the README's ACL SETUSER, and readmeClusterRights its additions for a Cluster.
func readmeRights(t testing.TB) []any        { return readmeACL(t, 0) }
func readmeClusterRights(t testing.TB) []any { return readmeACL(t, 1) }

func readmeACL(t testing.TB, nth int) (words []any) {
	t.Helper()
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	lines := regexp.MustCompile(`(?m)^ +(ACL SETUSER weir .*)$`).FindAllSubmatch(readme, -1)
	if len(lines) != 2 {
		t.Fatalf("the README has %d times ACL SETUSER, want 2", len(lines))
	}
	for word := range strings.FieldsSeq(string(lines[nth][1])) {
		words = append(words, word)
	}
	return words
}

// The README documents the rights that the scripts and the client need.
func TestTheREADMEsUserHasTheRightsThatAreUsed(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	single, cluster := redisorigin.Rights(false), redisorigin.Rights(true)
	for _, line := range []string{
		"    ACL SETUSER weir on >password ~weir:* &weir:* " + strings.Join(single, " ") + "\n",
		"    ACL SETUSER weir " + strings.Join(cluster[len(single):], " ") + "\n",
	} {
		if !strings.Contains(string(readme), line) {
			t.Errorf("the README lacks the line\n%s", line)
		}
	}
}

// The user that the README documents passes the whole contract of an Origin, and needs every right that it has.
func TestTheREADMEsUserKeepsTheContract(t *testing.T) {
	server, raw := serverOfUser(t)
	way := newLossyWay(t, asUser(server.Addr())+"?client_name=weir-node")
	storetest.TestOrigin(t, func(testing.TB) storetest.Origin { return way.origin(t, raw) })
	for _, err := range useOrigin(t, asUser(server.Addr())+"/1", cellNow("x", time.Minute)) {
		if err != nil {
			t.Errorf("with the README's rights: %v", err)
		}
	}
	wantNoDenials(t, raw)
	takeChangesOfAServerThatRefusesKeys(t, server, raw)
	used := raw.Info(t.Context(), "commandstats").Val() + "cmdstat_auth:" // for servers without HELLO
	for _, right := range redisorigin.Rights(false) {
		if name, ok := strings.CutPrefix(right, "+"); ok && !strings.Contains(used, "cmdstat_"+name+":") {
			t.Errorf("no call uses the right to %s: the README gives too much", name)
		}
	}
}

// serverOfUser starts a server with the user that the README documents.
func serverOfUser(t *testing.T) (*servers.Redis, *redis.Client) {
	t.Helper()
	server := servers.RedisForTest(t)
	raw := rawClient(t, server.Addr())
	command(t, raw, readmeRights(t)...)
	return server, raw
}

// asUser returns the URL of a server for that user.
func asUser(addr string) string { return "redis://weir:password@" + addr }

// takeChangesOfAServerThatRefusesKeys runs the command that a script calls only if another command is refused.
func takeChangesOfAServerThatRefusesKeys(t *testing.T, server *servers.Redis, raw *redis.Client) {
	t.Helper()
	h := openOrigin(t, asUser(server.Addr()), redisorigin.Options{})
	for _, name := range []string{"a", "b"} {
		add(t, h, store.Cost{Cell: cellNow(name, time.Hour), Add: 9, Limit: 9})
	}
	command(t, raw, "ACL", "SETUSER", "weir", "-zadd")
	for range 2 {
		if changes, err := h.Changes(t.Context(), 0, 1); err != nil || len(changes.Cells) != 1 {
			t.Errorf("of a server that refuses keys: %+v, %v", changes, err)
		}
	}
}

// wantNoDenials reads the server's log of refused commands.
func wantNoDenials(t *testing.T, raw *redis.Client) {
	t.Helper()
	denied, err := raw.ACLLog(t.Context(), 16).Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range denied {
		t.Errorf("the server refused %s to %s (%s)", d.Object, d.Username, d.Reason)
	}
}

// useOrigin makes each call of an Origin.
func useOrigin(t testing.TB, url string, c window.Cell) []error {
	h, ctx := openOrigin(t, url, redisorigin.Options{}), t.Context()
	sent, sendErr := h.Send(ctx, store.Chunk{Stream: 7, Number: 1, Costs: []store.Cost{{Cell: c, Add: 1, Limit: 9}}})
	changes, changesErr := h.Changes(ctx, 0, 10)
	_, _, scanErr := h.Scan(ctx, 0, 0, 10)
	_, leaseErr := h.Lease(ctx, 0, "a", time.Minute)
	_, applyErr := h.Apply(ctx, 0, []store.Foreign{{Cell: c, Count: 3}})
	errs := []error{sendErr, changesErr, scanErr, leaseErr, h.Ack(ctx, 0, []store.Change{{Cell: c, Total: 1, Limit: 9}}),
		claim(ctx, h, store.Cost{Cell: c, Add: 1, AtMost: 5, Limit: 9})[0].Err,
		applyErr, h.Raise(ctx, 0, changes.Epoch, []store.Change{{Cell: c, Total: 5}}),
		h.Healed(ctx, 0, changes.Epoch), h.StoreSettings(ctx, 0, "a", store.SettingsRows{}, time.Time{}), h.Release(ctx, 0, "a"),
		h.Heartbeat(ctx, heartbeat.Heartbeat{NodeID: "a", Region: "eu"})}
	_, settingsErr := h.Settings(ctx, "eu")
	beats, beatsErr := h.Heartbeats(ctx, 0, 10)
	errs = append(errs, settingsErr, beatsErr, h.AckHeartbeats(ctx, 0, beats))
	for _, total := range sent.Totals {
		errs = append(errs, total.Err)
	}
	if errors.Join(errs...) != nil {
		return errs
	}
	listening, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	announced := make(chan struct{}, 100)
	go func() { ended <- h.Listen(listening, 0, func([]store.Foreign) { announced <- struct{}{} }) }()
	for count := int64(4); len(announced) == 0; count++ {
		if _, err := h.Apply(ctx, 0, []store.Foreign{{Cell: c, Count: count}}); err != nil {
			break
		}
		select {
		case err := <-ended:
			cancel()
			return append(errs, err)
		case <-time.After(time.Millisecond):
		}
	}
	cancel()
	return append(errs, <-ended)
}

// The README lists exactly the existing metrics.
func TestREADMEsMetrics(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	listed := make(map[string]bool)
	for _, name := range regexp.MustCompile("(?m)^\\| `(weir_[a-z_]+)").FindAllSubmatch(readme, -1) {
		listed[string(name[1])] = true
	}
	there := gathered(t, openAt(t, "127.0.0.1:1", redisorigin.Options{}))
	for name := range there {
		if !listed[name] {
			t.Errorf("README does not tell of %s", name)
		}
	}
	if len(listed) != len(there) {
		t.Errorf("README tells of %d metrics, there are %d", len(listed), len(there))
	}
}
