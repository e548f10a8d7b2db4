package redisorigin_test

import (
	"context"
	"errors"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/dataplane/redisorigin"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/heartbeat"
	"github.com/weirhq/weir/shared/servers"
	"github.com/weirhq/weir/shared/window"
)

// readmeRights is the README's ACL SETUSER.
func readmeRights(t testing.TB) (words []any) {
	t.Helper()
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	line := regexp.MustCompile(`(?m)^ +(ACL SETUSER weir .*)$`).FindSubmatch(readme)
	if line == nil {
		t.Fatal("README has no ACL SETUSER")
	}
	for word := range strings.FieldsSeq(string(line[1])) {
		words = append(words, word)
	}
	return words
}

// "A user that may do this and no more": with each right it works, and with any one
// less it does not.
func TestREADMEsUserMayDoWhatIsNeeded(t *testing.T) {
	server := servers.RedisForTest(t)
	raw := rawClient(t, server.Addr())
	command(t, raw, readmeRights(t)...)
	c := cellNow("x", time.Minute)
	use := func() []error {
		return useOrigin(t, "redis://weir:password@"+server.Addr()+"/1", c)
	}
	for _, err := range use() {
		if err != nil {
			t.Errorf("with the README's rights: %v", err)
		}
	}
	for _, right := range []string{"eval", "get", "set", "pexpireat", "hmget", "hset", "hstrlen", "pttl", "time",
		"zadd", "zcard", "zrange", "zrevrangebyscore", "zscore", "hdel", "zrem", "zremrangebyscore", "scan", "publish", "subscribe", "del"} {
		command(t, raw, "ACL", "SETUSER", "weir", "-"+right)
		command(t, raw, "FLUSHALL")
		command(t, raw, "ACL", "LOG", "RESET")
		failed := false
		for _, err := range use() {
			failed = failed || err != nil
		}
		if !failed {
			t.Errorf("without the right to %s all calls succeed: the README gives too much", right)
		}
		command(t, raw, "ACL", "SETUSER", "weir", "+"+right)
	}
}

// useOrigin makes each call of an Origin.
func useOrigin(t testing.TB, url string, c window.Cell) []error {
	h, ctx := openOrigin(t, url, redisorigin.Options{}), t.Context()
	sent, sendErr := h.Send(ctx, store.Chunk{Stream: 7, Number: 1, Costs: []store.Cost{{Cell: c, Add: 1, Limit: 9}}})
	changes, changesErr := h.Changes(ctx, 0, 10)
	_, _, scanErr := h.Scan(ctx, 0, 0, 10)
	_, leaseErr := h.Lease(ctx, 0, "a", time.Minute)
	_, tellErr := h.Tell(ctx, 0, []store.Foreign{{Cell: c, Count: 3}})
	errs := []error{sendErr, changesErr, scanErr, leaseErr, h.Told(ctx, 0, []store.Change{{Cell: c, Total: 1, Limit: 9}}),
		h.Claim(ctx, claimsOf(store.Claim{Cell: c, Cost: 1, AtMost: 5, Limit: 9})).Totals[0].Err,
		tellErr, h.Raise(ctx, 0, changes.Epoch, []store.Change{{Cell: c, Total: 5}}),
		h.Healed(ctx, 0, changes.Epoch), h.TellSettings(ctx, 0, "a", store.SettingsRows{}, time.Time{}), h.Release(ctx, 0, "a"),
		h.Heartbeat(ctx, heartbeat.Beat{NodeID: "a", Region: "eu"})}
	_, settingsErr := h.Settings(ctx, "eu")
	beats, beatsErr := h.Beats(ctx, 0, 10)
	errs = append(errs, settingsErr, beatsErr, h.Stored(ctx, 0, beats))
	for _, total := range sent.Totals {
		errs = append(errs, total.Err)
	}
	if errors.Join(errs...) != nil {
		return errs
	}
	listening, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	heard := make(chan struct{}, 100)
	go func() { ended <- h.Listen(listening, 0, func([]store.Foreign) { heard <- struct{}{} }) }()
	for count := int64(4); len(heard) == 0; count++ {
		if _, err := h.Tell(ctx, 0, []store.Foreign{{Cell: c, Count: count}}); err != nil {
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

// The README's metrics are those that there are.
func TestREADMEsMetrics(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	told := make(map[string]bool)
	for _, name := range regexp.MustCompile("(?m)^\\| `(weir_[a-z_]+)").FindAllSubmatch(readme, -1) {
		told[string(name[1])] = true
	}
	there := gathered(t, openAt(t, "127.0.0.1:1", redisorigin.Options{}))
	for name := range there {
		if !told[name] {
			t.Errorf("README does not tell of %s", name)
		}
	}
	if len(told) != len(there) {
		t.Errorf("README tells of %d metrics, there are %d", len(told), len(there))
	}
}
